"""The stand-alone checks: Ed25519 keys and DSSE envelopes."""

import json
from typing import Any

import pytest

from assay.ledger import check
from assay.ledger.check import CheckError, Envelope
from check_kit import ONE, THREE, TWO, public
from oracle import envelopes


def small_order() -> set[int]:
    """The y of the points whose eightfold is the neutral one, by the curve's own arithmetic."""
    p = 2**255 - 19
    d = -121665 * pow(121666, -1, p) % p

    def add(first: tuple[int, int], second: tuple[int, int]) -> tuple[int, int]:
        (a, b), (c, e) = first, second
        t = d * a * b * c * e % p
        return (a * e + b * c) * pow(1 + t, -1, p) % p, (b * e + a * c) * pow(1 - t, -1, p) % p

    def point(y: int) -> tuple[int, int] | None:
        square = (y * y - 1) * pow(d * y * y + 1, -1, p) % p
        root = pow(square, (p + 3) // 8, p)
        root = root if root * root % p == square else root * pow(2, (p - 1) // 4, p) % p
        return (root, y) if root * root % p == square else None

    order = 2**252 + 27742317777372353535851937790883648493
    ys: set[int] = set()
    for y in range(2, 60):  # a point times the order of the base point has one of the eight small orders
        if (start := point(y)) is not None:
            total, step, left = (0, 1), start, order
            while left:
                total, step, left = add(total, step) if left & 1 else total, add(step, step), left >> 1
            ys.add(total[1])
    return ys


@pytest.mark.no_cover
def test_a_key_that_anybody_can_sign_for_is_none() -> None:
    weak = small_order()
    assert len(weak) == 5
    for y in weak:
        for sign in (0, 1 << 255):
            with pytest.raises(CheckError, match="not an Ed25519 public key"):
                check.Ed25519Key((y | sign).to_bytes(32, "little"))


@pytest.mark.parametrize(
    "raw", [b"", bytes(31), bytes(33), b"\xff" * 32, *((2**255 - 19 + y).to_bytes(32, "little") for y in (0, 1, 3))]
)
def test_a_key_has_one_spelling(raw: bytes) -> None:
    with pytest.raises(CheckError, match="key: it is not an Ed25519 public key"):
        check.Ed25519Key(raw)


def test_the_signature_of_nobody_does_not_verify() -> None:
    key, message = public(ONE), b"message"
    assert key.id == f"ed25519:{key.raw.hex()}"
    good = ONE.sign(message)
    assert key.verifies(good, message)
    order = 2**252 + 27742317777372353535851937790883648493
    again = good[:32] + (int.from_bytes(good[32:], "little") + order).to_bytes(32, "little")
    for signature in (b"", good[:-1], good + b"\0", bytes(64), again, TWO.sign(message), ONE.sign(b"other")):
        assert not key.verifies(signature, message)


def test_what_is_signed_is_what_dsse_says() -> None:
    assert check.pae("http://example.com/HelloWorld", b"hello world") == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    assert check.pae("é", b"") == b"DSSEv1 2 \xc3\xa9 0 "


def test_an_envelope_is_that_of_securesystemslib() -> None:
    from securesystemslib.dsse import Envelope as Theirs
    from securesystemslib.signer import CryptoSigner  # type: ignore[attr-defined]

    signers = [CryptoSigner(ONE), CryptoSigner(TWO)]
    theirs = Theirs(b'{"a":1}', check.IN_TOTO, {})
    for signer in signers:
        theirs.sign(signer)
    document = json.loads(json.dumps(theirs.to_dict()))
    ours = Envelope.parse(document, "s")
    assert ours.payload == theirs.payload
    assert check.check_envelope(ours, [public(ONE), public(TWO)], "s", 2) == [public(ONE), public(TWO)]

    signed = envelopes.dsse(b'{"a":1}', ONE)
    signed["signatures"][0]["keyid"] = signers[0].public_key.keyid
    Theirs.from_dict(signed).verify([signers[0].public_key], 1)


def test_the_alphabet_of_an_envelope_is_its_own_business() -> None:
    body = bytes(range(256)) + b"\xff\xfe"
    document = envelopes.dsse(body, ONE)
    spelt = {
        **document,
        "payload": document["payload"].replace("+", "-").replace("/", "_"),
        "signatures": [{"sig": document["signatures"][0]["sig"].replace("+", "-").replace("/", "_")}],
        "comment": "fields that DSSE does not know are nobody's",
    }
    envelope = Envelope.parse(spelt, "s")
    assert envelope.payload == body
    assert envelope.signatures[0][0] == ""
    assert check.check_envelope(envelope, [public(ONE)], "s") == [public(ONE)]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"payload": None}, "base64"),
        ({"payload": "YR=="}, "base64"),
        ({"payloadType": 1}, "not a DSSE envelope"),
        ({"signatures": []}, "not a DSSE envelope"),
        ({"signatures": {}}, "not a DSSE envelope"),
        ({"signatures": [{"sig": "YQ=="}] * 65}, "not a DSSE envelope"),
        ({"signatures": ["YQ=="]}, "a signature is not an object"),
        ({"signatures": [{"keyid": 7, "sig": "YQ=="}]}, "a signature is not an object"),
        ({"signatures": [{"keyid": "a"}]}, "base64"),
    ],
)
def test_what_is_no_envelope_is_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(CheckError, match=why):
        Envelope.parse(envelopes.dsse(b"{}", ONE) | change, "s")
    with pytest.raises(CheckError, match="not a DSSE envelope"):
        Envelope.parse([], "s")


def test_a_threshold_counts_keys() -> None:
    twice = Envelope.parse(envelopes.dsse(b"{}", ONE, ONE, THREE), "s")
    keys = [public(ONE), public(TWO), public(ONE)]
    assert check.check_envelope(twice, keys, "s") == [public(ONE)]
    with pytest.raises(CheckError, match=r"expected 2 of ed25519:.*found a signature with the keyid"):
        check.check_envelope(twice, keys, "s", 2)
    with pytest.raises(CheckError, match="expected 1 of no key at all"):
        check.check_envelope(twice, [], "s")
    with pytest.raises(CheckError, match="it is not signed by the key"):
        check.check_envelope(twice, [public(TWO)], "s", 0)


def test_a_keyid_is_a_hint() -> None:
    document = envelopes.dsse(b"{}", TWO)
    document["signatures"][0]["keyid"] = public(ONE).id
    envelope = Envelope.parse(document, "s")
    assert check.check_envelope(envelope, [public(TWO)], "s") == [public(TWO)]
    with pytest.raises(CheckError, match="it is not signed by the key"):
        check.check_envelope(envelope, [public(ONE)], "s")
    del document["signatures"][0]["keyid"]
    with pytest.raises(CheckError, match="found a signature without a keyid"):
        check.check_envelope(Envelope.parse(document, "s"), [public(ONE)], "s")


def test_the_type_of_the_payload_is_signed_and_asked_for() -> None:
    with pytest.raises(CheckError, match="the payload is of another type"):
        check.check_envelope(Envelope.parse(envelopes.dsse(b"{}", ONE, kind="text/plain"), "s"), [public(ONE)], "s")
    renamed = envelopes.dsse(b"{}", ONE, kind="text/plain") | {"payloadType": check.IN_TOTO}
    with pytest.raises(CheckError, match="it is not signed by the key"):
        check.check_envelope(Envelope.parse(renamed, "s"), [public(ONE)], "s")
