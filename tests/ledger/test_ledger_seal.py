"""HPKE: the library against the standard's vectors and against an implementation of its own; keys that open and do not sign."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.folder import strict
from assay.ledger import keys
from assay.ledger.keys import SEAL_BYTES, open_sealed, seal
from cli_kit import output, refused, run
from oracle import hpke

# RFC 9180, A.2 and A.2.1: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20Poly1305, base mode
INFO = bytes.fromhex("4f6465206f6e2061204772656369616e2055726e")
PLAIN = b"Beauty is truth, truth beauty"
IKM_E = "909a9b35d3dc4713a5e72a4da274b55d3d3821a37e5d099e74a647db583a904b"
SECRET_E = "f4ec9b33b792c372c1d2c2063507b684ef925b8c75a42dbcbf57d63ccd381600"
PUBLIC_E = "1afa08d3dec047a643885163f1180476fa7ddb54c6a8029ea33f95796bf2ac4a"
IKM_R = "1ac01f181fdf9f352797655161c58b75c656a6cc2716dcb66372da835542e1df"
SECRET_R = "8057991eef8f1f1af18f4a9491d16a1ce333f695d4db8e38da75975c4478e0fb"
PUBLIC_R = "4310ee97d88cc1f088a5576c77ab0cf5c3ac797f3d95139c6c84b5429c59662a"
SHARED = "0bbe78490412b4bbea4812666f7916932b828bba79942424abb65244930d69a7"
SCHEDULE = (
    "00431df6cd95e11ff49d7013563baf7f11588c75a6611ee2a4404a49306ae4cf"
    "c5b69c5718a60cc5876c358d3f7fc31ddb598503f67be58ea1e798c0bb19eb9796"
)
REST = (
    "5b9cd775e64b437a2335cf499361b2e0d5e444d5cb41a8a53336d8fe402282c6",  # secret
    "ad2744de8e17f4ebba575b3f5f5a8fa1f69c2a07f6e7500bc60ca6e3e3ec1c91",  # key
    "5c4d98150661b848853b547f",  # base_nonce
    "a3b010d4994890e2c6968a36f64470d3c824c8f5029942feb11e7a74b2921922",  # exporter_secret
)
ENCRYPTED = {
    0: "1c5250d8034ec2b784ba2cfd69dbdb8af406cfe3ff938e131f0def8c8b60b4db21993c62ce81883d2dd1b51a28",
    1: "6b53c051e4199c518de79594e1c4ab18b96f081549d45ce015be002090bb119e85285337cc95ba5f59992dc98c",
    2: "71146bd6795ccc9c49ce25dda112a48f202ad220559502cef1f34271e0cb4b02b4f10ecac6f48c32f878fae86b",
    4: "63357a2aa291f5a4e5f27db6baa2af8cf77427c7c1a909e0b37214dd47db122bb153495ff0b02e9e54a50dbe16",
    255: "18ab939d63ddec9f6ac2b60d61d36a7375d2070c9b683861110757062c52b8880a5f6b3936da9cd6c23ef2a95c",
    256: "7a4a13e9ef23978e2c520fd4d2e757514ae160cd0cd05e556ef692370ca53076214c0c40d4c728d6ed9e727a5b",
}
EXPORTED = {
    b"": "4bbd6243b8bb54cec311fac9df81841b6fd61f56538a775e7c80a9f40160606e",
    b"\0": "8c1df14732580e5501b00f82b10a1647b40713191b7c1240ac80e2b68808ba69",
    b"TestContext": "5acb09211139c43b3090489a9da433e8a30ee7188ba8b0a9a1ccf0c229283e53",
}

P = 2**255 - 19
LOW_ORDER = [
    0,
    1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
    P - 1,
]
"""Every point of low order, by its u-coordinate."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of keys of the test's own."""
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    monkeypatch.delenv("ASSAY_PASSPHRASE", raising=False)
    return tmp_path / "keys"


def test_the_oracle_gives_what_the_standard_prints() -> None:
    assert hpke.derive_key_pair(bytes.fromhex(IKM_E)) == (bytes.fromhex(SECRET_E), bytes.fromhex(PUBLIC_E))
    assert hpke.derive_key_pair(bytes.fromhex(IKM_R)) == (bytes.fromhex(SECRET_R), bytes.fromhex(PUBLIC_R))
    shared, enc = hpke.encap(bytes.fromhex(PUBLIC_R), bytes.fromhex(SECRET_E))
    assert (shared.hex(), enc.hex()) == (SHARED, PUBLIC_E)
    assert hpke.decap(enc, bytes.fromhex(SECRET_R)) == shared
    context = hpke.key_schedule(shared, INFO)
    assert tuple(part.hex() for part in context) == (SCHEDULE, *REST)
    for number, expected in ENCRYPTED.items():
        aad = f"Count-{number}".encode()
        assert context.seal(aad, PLAIN, number).hex() == expected
        assert context.open(aad, bytes.fromhex(expected), number) == PLAIN
    for exported, expected in EXPORTED.items():
        assert context.export(exported, 32).hex() == expected


@pytest.mark.no_cover
@given(data=st.binary(max_size=300), info=st.binary(max_size=100), seeds=st.tuples(*[st.binary(min_size=32, max_size=32)] * 2))
def test_the_oracle_opens_what_is_sealed_and_the_other_way_round(data: bytes, info: bytes, seeds: tuple[bytes, bytes]) -> None:
    key = keys.from_seed(seeds[0], keys.X25519)
    assert key.public.raw == hpke.public_of(seeds[0])
    sealed = seal(data, key.public, info)
    assert len(sealed) == len(data) + SEAL_BYTES
    assert hpke.unseal(sealed, seeds[0], info) == data
    assert open_sealed(hpke.sealed(data, key.public.raw, info, seeds[1]), key, info) == data


def test_only_the_key_and_only_the_info_opens() -> None:
    key, other = keys.new(keys.X25519), keys.new(keys.X25519)
    sealed = seal(b"solution", key.public, b"bounty 1")
    assert seal(b"solution", key.public, b"bounty 1") != sealed
    assert open_sealed(sealed, key, b"bounty 1") == b"solution"
    wrong = [(sealed, other, b"bounty 1"), (sealed, key, b"bounty 2"), (sealed, key, b""), (sealed[:-1], key, b"bounty 1")]
    wrong += [(b"", key, b"bounty 1"), (sealed[:32], key, b"bounty 1"), (bytes(32) + sealed[32:], key, b"bounty 1")]
    for position in range(len(sealed)):
        changed = bytearray(sealed)
        changed[position] ^= 1
        wrong.append((bytes(changed), key, b"bounty 1"))
    for data, opener, info in wrong:
        with pytest.raises(BadInput, match=r"does not open with x25519:[0-9a-f]{64}; it was sealed to another key"):
            open_sealed(data, opener, info)


def test_a_key_that_opens_does_not_sign_and_the_other_way_round() -> None:
    opens, signs = keys.new(keys.X25519), keys.new()
    with pytest.raises(BadInput, match="cannot sign: it opens what is sealed"):
        opens.sign(b"message")
    assert not opens.public.verifies(bytes(64), b"message")
    with pytest.raises(BadInput, match=r"nothing can be sealed to ed25519:.*: it signs"):
        seal(b"solution", signs.public, b"")
    with pytest.raises(BadInput, match="cannot open: it signs; make one that opens"):
        open_sealed(bytes(48), signs, b"")
    with pytest.raises(BadInput, match="is a key for sealing"):
        keys.public(opens.public.id)
    for text in (signs.public.id, signs.public.raw.hex(), opens.public.raw.hex(), opens.public.id.upper(), ""):
        with pytest.raises(BadInput, match="is not a key for sealing"):
            keys.sealing(text)
    assert keys.sealing(opens.public.id) == opens.public


@pytest.mark.parametrize("u", [*LOW_ORDER, P, P + 1, P + 9, 2**255 - 1, *(u + 2**255 for u in LOW_ORDER), 2**255 + 9])
def test_a_point_of_low_order_and_a_second_spelling_are_refused(u: int) -> None:
    text = f"x25519:{u.to_bytes(32, 'little').hex()}"
    with pytest.raises(BadInput, match="is not a public key of X25519"):
        keys.sealing(text)


@pytest.mark.parametrize("passphrase", ["", "correct horse"])
def test_such_a_key_is_kept_as_the_others(folder: Path, passphrase: str) -> None:
    key = keys.new(keys.X25519)
    path = keys.save("sponsor", key, passphrase)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_bytes().startswith(b"-----BEGIN " + (b"ENCRYPTED " if passphrase else b"") + b"PRIVATE KEY-----\n")
    again = keys.load("sponsor", lambda: passphrase)
    assert again.public == key.public
    assert open_sealed(seal(b"results", key.public, b"info"), again, b"info") == b"results"
    assert repr(again) == f"<private key of {key.public}>"
    assert keys.read(SECRET_R.encode(), kind=keys.X25519).public.raw.hex() == PUBLIC_R


def test_the_commands_know_the_kind(folder: Path, tmp_path: Path) -> None:
    document = strict.parse(output("keys", "new", "sponsor", "--kind", "x25519", "--json"))
    assert document["kind"] == "x25519"
    assert document["key"] == document["id"] == keys.load("sponsor").public.id
    assert output("keys", "show", "sponsor", "--public") == f"{document['key']}\n"
    assert f"public key  {document['key']}\n" in output("keys", "show", "sponsor", columns=200)
    assert strict.parse(output("keys", "list", "--json"))["keys"][0]["key"] == document["key"]
    seed = tmp_path / "seed"
    seed.write_text(SECRET_R)
    run("keys", "import", "enclave", seed, "--kind", "x25519")
    assert output("keys", "show", "enclave", "--public") == f"x25519:{PUBLIC_R}\n"
    assert "is not an Ed25519 key; logs sign with Ed25519" in refused("keys", "show", "sponsor", "--log", "example.org/log")
