"""Keys: their spellings, their files, and that nothing private is ever shown."""

import builtins
import copy
import pickle
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bittensor_core
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from assay.errors import BadInput
from assay.exact import canonical
from assay.folder import strict
from assay.ledger import keys
from cli_kit import output, refused, run

ALICE = "5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQY"
ALICE_RAW = "d43593c715fdd31c61141abd04a99fd6822c8558854ccde39a5684e7a56da27d"
POLKADOT_ALICE = "15oF4uVJwmo4TdGW7VfQxNLavjCXviqxT9S1MgbjMNHr6Sp5"
SEED = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
RAW = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
"""The first key of RFC 8032's tests."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of keys of the test's own, which is not there yet."""
    place = tmp_path / "config/keys"
    monkeypatch.setenv("ASSAY_KEYS", str(place))
    monkeypatch.delenv("ASSAY_PASSPHRASE", raising=False)
    return place


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Assay without the extra."""
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name == "bittensor_core":
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)


# Public keys


@pytest.mark.parametrize(
    ("text", "kind", "raw"),
    [
        (RAW, "ed25519", RAW),
        (RAW.upper(), "ed25519", RAW),
        (f"0x{RAW}", "ed25519", RAW),
        (f"ed25519:{RAW}", "ed25519", RAW),
        (ALICE, "sr25519", ALICE_RAW),
        (POLKADOT_ALICE, "sr25519", ALICE_RAW),
        (f"sr25519:{ALICE}", "sr25519", ALICE_RAW),
        (f"sr25519:{ALICE_RAW}", "sr25519", ALICE_RAW),
        (f"sr25519:0x{ALICE_RAW}", "sr25519", ALICE_RAW),
        (f"ed25519:{bittensor_core.ss58_encode(bytes.fromhex(RAW))}", "ed25519", RAW),
    ],
)
def test_a_key_has_several_spellings(text: str, kind: str, raw: str) -> None:
    key = keys.public(text)
    assert key == keys.PublicKey(kind, bytes.fromhex(raw))
    assert key.id == str(key) == f"{kind}:{raw}"
    assert keys.public(key.id) == key


@pytest.mark.parametrize(
    "text",
    [
        "",
        "val-1",
        RAW[1:],
        f"{RAW}0",
        f"rsa:{RAW}",
        f":{RAW}",
        f"0x0x{RAW}",
        f" {RAW}",
        ALICE[:-1] + "Z",
        ALICE[:-1],
        "00" * 32,
    ],
)
def test_what_is_no_public_key_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        keys.public(text)


def test_the_signature_of_the_standard() -> None:
    signer = keys.read(SEED.encode())
    assert signer.public == keys.public(RAW)
    assert signer.sign(b"").hex() == (
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
    )


@pytest.mark.parametrize("kind", keys.KINDS)
def test_a_key_verifies_what_it_signed(kind: str) -> None:
    signer, other = keys.new(kind), keys.new(kind)
    signature = signer.sign(b"message")
    assert signer.public.verifies(signature, b"message")
    for wrong, message in ((signature, b"massage"), (signature[:-1], b"message"), (bytes(64), b"message"), (b"", b"message")):
        assert not signer.public.verifies(wrong, message)
    assert not other.public.verifies(signature, b"message")


def test_a_signature_by_bittensor_verifies() -> None:
    pair = bittensor_core.Keypair.from_uri("//Alice")
    alice = keys.public(ALICE)
    assert alice.verifies(pair.sign(b"message"), b"message")
    assert alice.verifies(pair.sign(b"<Bytes>message</Bytes>"), b"message")
    assert not keys.PublicKey("sr25519", b"\xff" * 31).verifies(bytes(64), b"message")


def test_without_the_extra_it_is_said_what_to_install(bare: None, folder: Path) -> None:
    assert keys.public(RAW).verifies(keys.read(SEED.encode()).sign(b"m"), b"m")
    for what in (lambda: keys.public(ALICE), lambda: keys.new("sr25519"), lambda: keys.read(SEED.encode(), kind="sr25519")):
        with pytest.raises(BadInput, match=r"not installed; install it: pip install 'assay\[bittensor\]'"):
            what()


# Private keys


def test_a_kind_that_is_none_is_refused() -> None:
    with pytest.raises(BadInput, match="there is no kind of key 'rsa'; use one of ed25519, sr25519, x25519"):
        keys.new("rsa")
    with pytest.raises(BadInput, match="there is no kind of key 'rsa'"):
        keys.read(SEED.encode(), kind="rsa")


@pytest.mark.parametrize(("kind", "passphrase"), [("ed25519", ""), ("ed25519", "correct horse"), ("sr25519", "")])
def test_a_key_is_kept_and_found_again(folder: Path, kind: str, passphrase: str, monkeypatch: pytest.MonkeyPatch) -> None:
    key = keys.new(kind)
    path = keys.save("val-1", key, passphrase)
    assert path == folder / "val-1.key" == keys.path_of("val-1")
    assert (path.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o600, 0o700)
    assert [path.name for path in folder.iterdir()] == ["val-1.key"]
    again = keys.load("val-1", lambda: passphrase)
    assert again.public == key.public
    assert key.public.verifies(again.sign(b"m"), b"m")
    assert keys.load(str(path), lambda: passphrase).public == key.public
    if passphrase:
        with pytest.raises(BadInput, match=r"val-1\.key: is encrypted; set ASSAY_PASSPHRASE"):
            keys.load("val-1")
        with pytest.raises(BadInput, match=r"val-1\.key: the passphrase does not open it"):
            keys.load("val-1", lambda: "wrong")
        with pytest.raises(BadInput, match="is encrypted"):
            keys.load("val-1", str)
        assert keys.listed() == [keys.NamedKey("val-1", path, None, "is encrypted")]
        monkeypatch.setenv("ASSAY_PASSPHRASE", passphrase)
    assert keys.load("val-1").public == key.public
    assert keys.listed() == [keys.NamedKey("val-1", path, key.public)]


def test_what_bittensor_wrote_is_read(tmp_path: Path) -> None:
    pair = bittensor_core.Keypair.from_uri("//Alice")
    data = bittensor_core.serialized_keypair_to_keyfile_data(pair)
    assert keys.read(data).public == keys.public(ALICE)
    encrypted = keys.read(data).to_file("secret")
    assert bittensor_core.keyfile_data_is_encrypted(encrypted)
    assert keys.read(encrypted, passphrase=lambda: "secret").public == keys.public(ALICE)
    assert bittensor_core.deserialize_keypair_from_keyfile_data(keys.read(data).to_file()).ss58_address == ALICE
    seeded = bittensor_core.Keypair.from_seed(bytes.fromhex(SEED))
    assert keys.read(f" 0x{SEED}\n".encode(), kind="sr25519").public.raw == seeded.public_key


def test_the_key_of_a_log_of_go_is_read() -> None:
    """`note.GenerateKey` of golang.org/x/mod/sumdb writes it; this one is in its documentation."""
    skey = b"PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz\n"
    assert keys.read(skey).public.raw == _raw_of("PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW")


def _raw_of(vkey: str) -> bytes:
    from assay.ledger.check import LogKey

    return LogKey.parse(vkey).raw


EC = generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
WATCHED = canonical({"ss58Address": ALICE})
BITTENSOR_ED = bittensor_core.serialized_keypair_to_keyfile_data(
    bittensor_core.Keypair.from_seed(bytes.fromhex(SEED), crypto_type=bittensor_core.CRYPTO_ED25519)
)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "holds no private key"),
        (SEED[1:].encode(), "holds no private key"),
        (b"\xff" * 64, "holds no private key"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "is not a PEM of a private key"),
        (b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n", "it is damaged"),
        (EC, "of another kind than Ed25519"),
        (b"{}", "is not a Bittensor key file with a private key"),
        (b'{"secretSeed": "0x12"}', "is not a Bittensor key file"),
        (WATCHED, "is not a Bittensor key file with a private key"),
        (BITTENSOR_ED, "of another kind than sr25519"),
        (b"$ANSIBLE_VAULT;1.1;AES256\nzz", "the passphrase does not open it"),
        (b"PRIVATE+KEY+a+00000000+AAAA", "is not the key of a log"),
        (b"PRIVATE+KEY+a+00000000+AAA", "is not the key of a log"),
    ],
)
def test_what_is_no_private_key_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        keys.read(data, passphrase=lambda: "passphrase")


def test_a_key_is_never_written_over(folder: Path) -> None:
    path = keys.save("val-1", keys.new())
    before = path.read_bytes()
    with pytest.raises(BadInput, match=r"val-1\.key: there is a key of this name already"):
        keys.save("val-1", keys.new())
    assert path.read_bytes() == before
    assert [path.name for path in folder.iterdir()] == ["val-1.key"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_key_that_others_can_read_is_not_used(mode: int) -> None:
    keys.save("val-1", keys.new()).chmod(mode)
    with pytest.raises(BadInput, match=f"can be read by others .mode {mode:04o}.; let only yourself read it: chmod 600"):
        keys.load("val-1")
    assert keys.listed()[0].problem.startswith("can be read by others")


def test_a_folder_that_others_can_write_to_is_not_used(folder: Path, tmp_path: Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with pytest.raises(BadInput, match="others can write to it; let only yourself write to it: chmod 700"):
        keys.save("val-1", keys.new())
    assert list(folder.iterdir()) == []
    keys.save(str(folder / "elsewhere"), keys.new())


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a b", "a\0b", "é", "x" * 101, "-x"])
def test_a_name_is_one_of_a_file(name: str) -> None:
    with pytest.raises(BadInput, match="cannot be the name of a key"):
        keys.path_of(name)


def test_what_cannot_be_written_or_read_is_said(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be written"):
        keys.save(str(tmp_path / "file/val-1.key"), keys.new())
    with pytest.raises(BadInput, match=r"no such file; `assay keys list`"):
        keys.load("val-1")
    assert keys.listed() == []
    folder.parent.mkdir()
    folder.write_text("")
    with pytest.raises(BadInput, match="cannot be read"):
        keys.listed()


def test_keys_are_at_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ASSAY_KEYS", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert keys.folder() == tmp_path / ".config/assay/keys"


@pytest.mark.parametrize("kind", keys.KINDS)
def test_a_private_key_does_not_show_itself(kind: str) -> None:
    key = keys.read(SEED.encode(), kind=kind)
    for shown in (repr(key), str(key), f"{key}", repr([key]), repr(vars(type(key)))):
        assert SEED not in shown
        assert repr(bytes.fromhex(SEED)) not in shown
    assert repr(key) == f"<private key of {key.public}>"
    ways: tuple[Callable[[object], object], ...] = (pickle.dumps, copy.copy, copy.deepcopy)
    for what in ways:
        with pytest.raises(TypeError, match="a private key is not pickled"):
            what(key)


def test_an_error_does_not_show_what_it_read() -> None:
    """Not even in the traceback of what went before it."""
    secret = "5" * 63
    for data in (
        secret,
        f"0x{secret}",
        f'{{"secretSeed": "0x{secret}"}}',
        f'{{"secretPhrase": "{secret}"}}',
        f"PRIVATE+KEY+a+00000000+{secret}",
    ):
        with pytest.raises(BadInput) as caught:
            keys.read(data.encode())
        assert secret not in "".join(traceback.format_exception(caught.value, chain=True))


# The commands


def test_the_commands_show_public_keys_alone(folder: Path, tmp_path: Path) -> None:
    outputs = [output("keys", "new", "val-1"), output("keys", "new", "hot", "--kind", "sr25519", "--json")]
    seed = tmp_path / "seed"
    seed.write_text(SEED)
    outputs += [output("keys", "import", "val-2", seed), output("keys", "import", "val-3", seed, "--kind", "sr25519", "--json")]
    outputs += [output("keys", "list"), output("keys", "list", "--json"), output("keys", "show", "val-2")]
    outputs += [output("keys", "show", "val-2", "--log", "example.org/log", "--json")]
    assert output("keys", "show", "val-2", "--public") == f"{RAW}\n"
    private = [SEED]
    for path in folder.iterdir():
        data = path.read_text()
        private += re.findall(r"[0-9a-f]{64}", data) if path.stem in ("hot", "val-3") else data.splitlines()[1:-1]
    public = {keys.load(path.stem).public.raw.hex() for path in folder.iterdir()}
    whole = "".join(outputs)
    assert [secret for secret in private if secret in whole and secret not in public] == []
    assert RAW in outputs[2]
    document = strict.parse(outputs[-1])
    assert document == {
        "name": "val-2",
        "path": str(folder / "val-2.key"),
        "kind": "ed25519",
        "key": RAW,
        "id": f"ed25519:{RAW}",
        "vkey": document["vkey"],
    }
    assert document["vkey"].startswith("example.org/log+")
    assert keys.public(strict.parse(outputs[1])["key"]) == keys.load("hot").public
    assert [key["name"] for key in strict.parse(outputs[5])["keys"]] == ["hot", "val-1", "val-2", "val-3"]


def test_there_may_be_no_keys(folder: Path) -> None:
    assert output("keys", "list", columns=500).split() == f"There are no keys in {folder}.".split()
    assert strict.parse(output("keys", "list", "--json")) == {"keys": []}


def test_a_passphrase_encrypts(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_PASSPHRASE", "secret")
    run("keys", "new", "val-1")
    assert b"ENCRYPTED" in (folder / "val-1.key").read_bytes()
    output("keys", "show", "val-1")
    monkeypatch.delenv("ASSAY_PASSPHRASE")
    assert "val-1.key: is encrypted; set ASSAY_PASSPHRASE" in refused("keys", "show", "val-1")
    assert "is encrypted" in refused("keys", "import", "val-2", folder / "val-1.key")
    assert strict.parse(output("keys", "list", "--json"))["keys"][0] == {
        "id": None,
        "key": None,
        "kind": None,
        "name": "val-1",
        "path": str(folder / "val-1.key"),
        "problem": "is encrypted",
    }
    assert "is encrypted" in output("keys", "list")
    monkeypatch.setenv("ASSAY_PASSPHRASE", "secret")
    run("keys", "import", "val-2", folder / "val-1.key")
    monkeypatch.delenv("ASSAY_PASSPHRASE")
    assert b"ENCRYPTED" in (folder / "val-2.key").read_bytes()


def test_a_passphrase_is_asked_for(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import typer

    from assay.cli.ledger import keys as commands

    asked: list[str] = []

    def prompt(text: str, **how: Any) -> str:
        assert how.pop("hide_input")
        assert how.pop("err")
        asked.append("new" if how.get("confirmation_prompt") else "old")
        return "secret"

    monkeypatch.setattr(typer, "prompt", prompt)
    monkeypatch.setattr(commands, "_terminal", lambda: True)
    run("keys", "new", "val-1", "--passphrase")
    run("keys", "show", "val-1")
    run("keys", "import", "val-2", folder / "val-1.key")
    assert asked == ["new", "old", "old"]
    assert b"ENCRYPTED" in (folder / "val-2.key").read_bytes()


def test_the_commands_refuse_in_words(folder: Path, tmp_path: Path) -> None:
    run("keys", "new", "val-1")
    assert "there is a key of this name already" in refused("keys", "new", "val-1")
    assert "no such file; give the file that holds the key" in refused("keys", "import", "val-2", tmp_path / "none")
    wrong = tmp_path / "wrong"
    wrong.write_bytes(bytes.fromhex(SEED)[:31])
    assert refused("keys", "import", "val-2", wrong).startswith(f"{wrong}: holds no private key")
