"""The stand-alone checks: JSON and base64 with one reading, DSSE, RFC 6962, C2SP notes and proofs, receipts, the command."""

import ast
import base64
import hashlib
import json
import re
import runpy
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from assay.ledger import check
from assay.ledger.check import Checkpoint, Envelope, LogKey, LogProof, Receipt, Refused
from oracle import envelopes, trees

ONE, TWO, THREE = (Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (1, 2, 3))
NAME = "example.org/log"
KEY = LogKey.parse(trees.vkey(NAME, ONE))
OTHER = LogKey.parse(trees.vkey(NAME, TWO))
DIGEST = "sha256:" + "cd" * 32
ENTRIES = [bytes([number]) for number in range(40)]
LEAVES = [trees.leaf(one) for one in ENTRIES]


def public(key: Ed25519PrivateKey) -> check.Ed25519Key:
    return check.Ed25519Key(key.public_key().public_bytes_raw())


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


# JSON, base64, numbers


@pytest.mark.parametrize(
    "data",
    [
        b'{"a": 1, "a": 1}',
        b'{"a": [{"b": 1, "b": 2}]}',
        b"[NaN]",
        b"[-Infinity]",
        b'"\\ud800"',
        b'{"\\udfff": 1}',
        b"\xff",
        b"\xef\xbb\xbf{}",
        b"{",
        b"{} {}",
        b"[" * 100_000,
        b"[" + b"9" * 5000 + b"]",
    ],
)
def test_json_has_one_reading(data: bytes) -> None:
    with pytest.raises(Refused, match="s: it is not JSON with one reading"):
        check.parse_json(data, "s")


def test_json_is_read_up_to_a_size() -> None:
    assert check.parse_json(b'{"a": "\\ud83d\\ude00"}', "s", 21) == {"a": "😀"}
    with pytest.raises(Refused, match=r"s: it is too large \(expected at most 20 bytes, found 21 bytes\)"):
        check.parse_json(b'{"a": "\\ud83d\\ude00"}', "s", 20)


@given(st.binary(max_size=40))
def test_base64_is_read_in_both_alphabets(data: bytes) -> None:
    assert check.unbase64(b64(data), "s") == data
    assert check.unbase64(base64.urlsafe_b64encode(data).decode(), "s", either=True) == data
    assert check.unbase64(b64(data), "s", either=True) == data


@pytest.mark.parametrize(
    "text", ["YQ", "YQ=", "YR==", "YQ==\n", " YQ==", "Y Q==", "YQ==YQ==", "-_8=", "é", "YQ===", None, 7, b"YQ=="]
)
def test_base64_has_one_spelling(text: Any) -> None:
    with pytest.raises(Refused, match="it is not base64"):
        check.unbase64(text, "s")


@pytest.mark.parametrize("text", ["-+8=", "_/8=", "-/8=", "-_8", "YR==", "-_9="])
def test_the_alphabets_of_base64_do_not_mix(text: str) -> None:
    with pytest.raises(Refused, match="it is not base64"):
        check.unbase64(text, "s", either=True)


def test_numbers_have_one_spelling() -> None:
    assert [check.number(text, "s") for text in ("0", "7", "9223372036854775807")] == [0, 7, 2**63 - 1]
    for text in ("", "00", "01", "+1", "-1", "1 ", "１", "9223372036854775808", "1" * 20, "1e3", "0x1"):
        with pytest.raises(Refused, match="it is not a number"):
            check.number(text, "s")


@pytest.mark.parametrize(
    ("value", "shape", "where"),
    [
        ({"a": 1}, {"a": int}, ""),
        ({"a": True}, {"a": int}, "a"),
        ({"a": -1}, {"a": int}, "a"),
        ({"a": 2**53}, {"a": int}, "a"),
        ({"a": 1.0}, {"a": int}, "a"),
        ({"a": 1, "b": 1}, {"a": int}, "the document"),
        ([], {"a": int}, "the document"),
        ({"a": {"b": None}}, {"a": {"b": (None, int)}}, ""),
        ({"a": {"b": "x"}}, {"a": {"b": (None, int)}}, "b"),
        ({"a": [1, 2]}, {"a": [int]}, ""),
        ({"a": [1, "2"]}, {"a": [int]}, "a"),
        ({"a": 1}, {"a": [int]}, "a"),
        ({"a": "xy"}, {"a": "x"}, "a"),
        ({"a": "x\n"}, {"a": "x"}, "a"),
        ({"a": 1}, {"a": "1"}, "a"),
        ({"a": [{}]}, {"a": object}, ""),
    ],
)
def test_a_shape_says_where_a_document_differs(value: Any, shape: Any, where: str) -> None:
    assert check.misfit(value, shape) == where


# Ed25519 and DSSE


def small_order() -> set[int]:
    """The y of the points whose eightfold is the neutral one, by the curve's own arithmetic."""
    p = 2**255 - 19
    d = -121665 * pow(121666, -1, p) % p

    def add(one: tuple[int, int], two: tuple[int, int]) -> tuple[int, int]:
        (a, b), (c, e) = one, two
        t = d * a * b * c * e % p
        return (a * e + b * c) * pow(1 + t, -1, p) % p, (b * e + a * c) * pow(1 - t, -1, p) % p

    def point(y: int) -> tuple[int, int] | None:
        square = (y * y - 1) * pow(d * y * y + 1, -1, p) % p
        root = pow(square, (p + 3) // 8, p)
        root = root if root * root % p == square else root * pow(2, (p - 1) // 4, p) % p
        return (root, y) if root * root % p == square else None

    order = 2**252 + 27742317777372353535851937790883648493
    found: set[int] = set()
    for y in range(2, 60):  # a point times the order of the base point has one of the eight small orders
        if (start := point(y)) is not None:
            total, step, left = (0, 1), start, order
            while left:
                total, step, left = add(total, step) if left & 1 else total, add(step, step), left >> 1
            found.add(total[1])
    return found


def test_a_key_that_anybody_can_sign_for_is_none() -> None:
    weak = small_order()
    assert len(weak) == 5
    for y in weak:
        for sign in (0, 1 << 255):
            with pytest.raises(Refused, match="not an Ed25519 public key"):
                check.Ed25519Key((y | sign).to_bytes(32, "little"))


@pytest.mark.parametrize("raw", [b"", bytes(31), bytes(33), (2**255 - 19 + 3).to_bytes(32, "little"), b"\xff" * 32])
def test_a_key_has_one_spelling(raw: bytes) -> None:
    with pytest.raises(Refused, match="key: it is not an Ed25519 public key"):
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
    with pytest.raises(Refused, match=why):
        Envelope.parse(envelopes.dsse(b"{}", ONE) | change, "s")
    with pytest.raises(Refused, match="not a DSSE envelope"):
        Envelope.parse([], "s")


def test_a_threshold_counts_keys() -> None:
    twice = Envelope.parse(envelopes.dsse(b"{}", ONE, ONE, THREE), "s")
    keys = [public(ONE), public(TWO), public(ONE)]
    assert check.check_envelope(twice, keys, "s") == [public(ONE)]
    with pytest.raises(Refused, match=r"expected 2 of ed25519:.*found one said to be of"):
        check.check_envelope(twice, keys, "s", 2)
    with pytest.raises(Refused, match="expected 1 of no key at all"):
        check.check_envelope(twice, [], "s")
    with pytest.raises(Refused, match="it is not signed by the key"):
        check.check_envelope(twice, [public(TWO)], "s", 0)


def test_a_keyid_is_a_hint() -> None:
    document = envelopes.dsse(b"{}", TWO)
    document["signatures"][0]["keyid"] = public(ONE).id
    envelope = Envelope.parse(document, "s")
    assert check.check_envelope(envelope, [public(TWO)], "s") == [public(TWO)]
    with pytest.raises(Refused, match="it is not signed by the key"):
        check.check_envelope(envelope, [public(ONE)], "s")
    del document["signatures"][0]["keyid"]
    with pytest.raises(Refused, match="found one without a keyid"):
        check.check_envelope(Envelope.parse(document, "s"), [public(ONE)], "s")


def test_the_type_of_the_payload_is_signed_and_asked_for() -> None:
    with pytest.raises(Refused, match="the payload is of another type"):
        check.check_envelope(Envelope.parse(envelopes.dsse(b"{}", ONE, kind="text/plain"), "s"), [public(ONE)], "s")
    renamed = envelopes.dsse(b"{}", ONE, kind="text/plain") | {"payloadType": check.IN_TOTO}
    with pytest.raises(Refused, match="it is not signed by the key"):
        check.check_envelope(Envelope.parse(renamed, "s"), [public(ONE)], "s")


# RFC 6962


def test_roots_and_proofs_of_the_trees_that_everybody_tests_with() -> None:
    """The eight leaves of Certificate Transparency's own tests, and the roots there."""
    leaves = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
    hashes = [check.leaf_hash(bytes.fromhex(one)) for one in leaves]
    roots = [
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
        "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ]
    assert [trees.tree_of(hashes[: size + 1]).hex() for size in range(8)] == roots
    assert check.EMPTY_ROOT.hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    proof = [
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ]
    check.check_inclusion(bytes.fromhex(roots[7]), 8, 5, hashes[5], [bytes.fromhex(one) for one in proof])
    proof = [
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ]
    check.check_consistency(6, bytes.fromhex(roots[5]), 8, bytes.fromhex(roots[7]), [bytes.fromhex(one) for one in proof])


def mutations(proof: Sequence[bytes]) -> list[list[bytes]]:
    """Proofs that are not this one: a bit more or less in each hash, one too many or too few, two in each other's place."""
    flipped = [[*proof[:at], bytes([one[0] ^ 1]) + one[1:], *proof[at + 1 :]] for at, one in enumerate(proof)]
    swapped = [[*proof[: at - 1], proof[at], proof[at - 1], *proof[at + 1 :]] for at in range(1, len(proof))]
    return [*flipped, *swapped, [*proof, bytes(32)], *([list(proof[:-1]), list(proof[1:])] if proof else [])]


@pytest.mark.parametrize("size", [*range(1, 18), 31, 32, 33, 40])
def test_inclusion_is_proven_by_its_proof_alone(size: int) -> None:
    hashes = LEAVES[:size]
    top = trees.tree_of(hashes)
    for index in range(size):
        proof = trees.inclusion(index, hashes)
        check.check_inclusion(top, size, index, hashes[index], proof)
        for wrong in mutations(proof):
            with pytest.raises(Refused, match="log: the proof"):
                check.check_inclusion(top, size, index, hashes[index], wrong)
        for other in {0, index ^ 1, size - 1} - {index}:
            with pytest.raises(Refused, match="log: "):
                check.check_inclusion(top, size, other, hashes[index], proof)
    for index in (-1, size):
        with pytest.raises(Refused, match="beyond the tree"):
            check.check_inclusion(top, size, index, hashes[0], [])


@pytest.mark.parametrize("new", [*range(18), 31, 32, 33])
def test_consistency_is_proven_by_its_proof_alone(new: int) -> None:
    after = trees.tree_of(LEAVES[:new])
    for old in range(new + 1):
        before = trees.tree_of(LEAVES[:old])
        proof = trees.consistency(old, LEAVES[:new])
        check.check_consistency(old, before, new, after, proof)
        for wrong in mutations(proof):
            with pytest.raises(Refused, match="consistency: the "):
                check.check_consistency(old, before, new, after, wrong)
        with pytest.raises(Refused, match="consistency: the "):
            check.check_consistency(old, trees.leaf(b"?"), new, after, proof)
        if old:
            with pytest.raises(Refused, match="consistency: the "):
                check.check_consistency(old, before, new, trees.leaf(b"?"), proof)
    with pytest.raises(Refused, match="has become smaller"):
        check.check_consistency(new + 1, after, new, after, [])


# C2SP


def test_the_key_of_the_checksum_database_of_go_is_read() -> None:
    text = "sum.golang.org+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8"
    key = LogKey.parse(text)
    assert (key.name, key.hint.hex(), str(key)) == ("sum.golang.org", "033de0ae", text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "name",
        "name+00000000",
        "+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8",
        "sum.golang.org+033de0af+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8",
        "sum.golang.org+033DE0AE+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8",
        "sum.golang.com+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8",
        "sum golang.org+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8",
        "sum.golang.org+033de0ae+Bc4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8",
        "sum.golang.org+033de0ae+AQ==",
        "sum.golang.org+033de0ae+Ac4zctda0e5eza-HJyk9SxEdh+s3Ux18htTTAD8OuAn8",
    ],
)
def test_what_is_no_vkey_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="key: "):
        LogKey.parse(text)


def checkpoint(size: int = 3, key: Ed25519PrivateKey = ONE, name: str = NAME) -> str:
    return trees.note(name, size, trees.tree_of(LEAVES[:size]), key)


def test_a_checkpoint_is_read() -> None:
    assert check.check_checkpoint(checkpoint().encode(), [KEY]) == Checkpoint(NAME, 3, trees.tree_of(LEAVES[:3]))
    assert check.check_checkpoint(checkpoint(0).encode(), [KEY]).size == 0


def test_signatures_of_strangers_are_ignored() -> None:
    text = f"{NAME}\n3\n{b64(trees.tree_of(LEAVES[:3]))}\nan extension\n"
    lines = [
        trees.signature(text, NAME, TWO),
        trees.signature(text, "witness.example/w", ONE),
        f"— {NAME} {b64(b'1234?')}\n",
        trees.signature(text, NAME, ONE),
    ]
    note = f"{text}\n{''.join(lines)}".encode()
    assert check.check_checkpoint(note, [KEY]).size == 3
    assert check.check_note(note, [OTHER, KEY, KEY])[1] == [OTHER, KEY]
    twice = f"{text}\n{lines[3] * 2}".encode()
    assert check.check_note(twice, [KEY])[1] == [KEY]
    with pytest.raises(Refused, match="the note is not signed by the key"):
        check.check_note(f"{text}\n{''.join(lines[:3])}".encode(), [KEY])


@pytest.mark.parametrize("character", ["\t", "\r", "\0", "\x1f"])
def test_a_note_has_no_control_characters_though_they_were_signed(character: str) -> None:
    text = f"{NAME}\n3\n{b64(trees.tree_of(LEAVES[:3]))}\na{character}b\n"
    with pytest.raises(Refused, match="log: it is not a signed note"):
        check.check_note(f"{text}\n{trees.signature(text, NAME, ONE)}".encode(), [KEY])


def test_a_wrong_signature_of_a_known_key_spoils_the_note() -> None:
    text = f"{NAME}\n3\n{b64(trees.tree_of(LEAVES[:3]))}\n"
    wrong = f"— {NAME} {b64(KEY.hint + bytes(64))}\n"
    with pytest.raises(Refused, match="a signature of the note is wrong"):
        check.check_note(f"{text}\n{trees.signature(text, NAME, ONE)}{wrong}".encode(), [KEY])


def test_the_text_of_a_note_ends_at_its_last_empty_line() -> None:
    text = "a\n\n— b c\n\nd\n"
    assert check.check_note(f"{text}\n{trees.signature(text, NAME, ONE)}".encode(), [KEY])[0] == text


GOOD = checkpoint()
TEXT, LINE = GOOD.split("\n\n")


@pytest.mark.parametrize(
    "note",
    [
        b"",
        b"\n\n",
        b"\xff" + GOOD.encode(),
        GOOD.rstrip("\n").encode(),
        f"{TEXT}\n{LINE}".encode(),
        f"\n\n{LINE}".encode(),
        f"{TEXT}\n\n".encode(),
        f"{TEXT}\n\n\n".encode(),
        GOOD.replace("\n", "\r\n").encode(),
        GOOD.replace("example", "exam\tple").encode(),
        GOOD.encode() + b"\n",
        GOOD.encode() + b" " * 2**20,
        f"{TEXT}\n\n{LINE * 65}".encode(),
        f"{TEXT}\n\n{LINE.replace('— ', '- ')}".encode(),
        f"{TEXT}\n\n{LINE.replace('— ', '—  ')}".encode(),
        f"{TEXT}\n\n{LINE.replace(NAME, 'a+b')}".encode(),
        (TEXT + "\n\n" + LINE.replace(NAME, "a\u00a0b")).encode(),
        f"{TEXT}\n\n{LINE.rstrip()} \n".encode(),
        f"{TEXT}\n\n— {NAME} {b64(KEY.hint)}\n".encode(),
        f"{TEXT}\n\n— {NAME}\n".encode(),
        f"{TEXT}\n\n{LINE}text after it\n".encode(),
    ],
)
def test_what_is_no_signed_note_is_refused(note: bytes) -> None:
    with pytest.raises(Refused, match="log: it is not"):
        check.check_note(note, [KEY])


@pytest.mark.parametrize(
    "text",
    [
        f"{NAME}\n3\n",
        f"\n3\n{b64(bytes(32))}\n",
        f"{NAME}\n03\n{b64(bytes(32))}\n",
        f"{NAME}\n-3\n{b64(bytes(32))}\n",
        f"{NAME}\n3\n{b64(bytes(31))}\n",
        f"{NAME}\n3\n{bytes(32).hex()}\n",
        f"{NAME}\n0\n{b64(bytes(32))}\n",
        f"{NAME}\n3\n{b64(bytes(32))}\n\nmore\n",
        f"{NAME}\n3\n{b64(bytes(32))}",
    ],
)
def test_what_is_no_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="log: it is not"):
        Checkpoint.parse(text)


def test_a_checkpoint_is_of_the_log_whose_key_signed_it() -> None:
    text = f"example.org/other\n3\n{b64(bytes(32))}\n"
    with pytest.raises(Refused, match="the checkpoint is of another log"):
        check.check_checkpoint(f"{text}\n{trees.signature(text, NAME, ONE)}".encode(), [KEY])


def test_a_log_proof_is_read() -> None:
    hashes = trees.inclusion(1, LEAVES[:3])
    text = trees.proof(1, hashes, GOOD)
    assert LogProof.parse(text) == LogProof(1, tuple(hashes), GOOD.encode())
    assert LogProof.parse(text.replace("\nindex", "\nextra AAA=\nindex")) == LogProof.parse(text)
    assert LogProof.parse(trees.proof(0, [], GOOD)).hashes == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "c2sp.org/tlog-proof@v2\nindex 1\n\n" + GOOD,
        "c2sp.org/tlog-proof@v1\n\n" + GOOD,
        "c2sp.org/tlog-proof@v1\nindex 01\n\n" + GOOD,
        "c2sp.org/tlog-proof@v1\nindex  1\n\n" + GOOD,
        "c2sp.org/tlog-proof@v1\nindex 1\n",
        "c2sp.org/tlog-proof@v1\nextra AB==\nindex 1\n\n" + GOOD,
        "c2sp.org/tlog-proof@v1\nextra AA==\nextra AA==\nindex 1\n\n" + GOOD,
        "c2sp.org/tlog-proof@v1\nindex 1\nextra AA==\n\n" + GOOD,
        f"c2sp.org/tlog-proof@v1\nindex 1\n{b64(bytes(31))}\n\n{GOOD}",
        f"c2sp.org/tlog-proof@v1\r\nindex 1\n\n{GOOD}",
        "c2sp.org/tlog-proof@v1\nindex 1\n" + f"{b64(bytes(32))}\n" * 65 + "\n" + GOOD,
        "c2sp.org/tlog-proof@v1\nindex 1\n\n" + "a" * 2**20,
    ],
)
def test_what_is_no_log_proof_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="log: it is not"):
        LogProof.parse(text)


# Receipts


def receipts(count: int = 5, **changes: Any) -> tuple[list[dict[str, Any]], list[bytes]]:
    """The envelopes of some receipts and their entries in the log."""
    pairs = [envelopes.receipt("term", epoch, DIGEST, ONE, **changes) for epoch in range(count)]
    return [envelope for envelope, _ in pairs], [entry for _, entry in pairs]


def file_of(index: int, size: int, envelope: Any = None, key: Ed25519PrivateKey = ONE) -> dict[str, Any]:
    """The receipt of an entry as a document, in a log of that size."""
    found, entries = receipts()
    hashes = [trees.leaf(one) for one in entries[:size]]
    signed = trees.note(NAME, size, trees.tree_of(hashes), key)
    proof = trees.proof(index, trees.inclusion(index, hashes), signed)
    return {"schema": "assay.receipt/1", "envelope": found[index] if envelope is None else envelope, "proof": proof}


def parsed(document: Any) -> Receipt:
    return Receipt.parse(json.dumps(document).encode())


def test_a_receipt_checks() -> None:
    receipt = parsed(file_of(2, 5))
    assert receipt.digest == receipts()[1][2]
    assert receipt.predicate["epoch"] == 2
    assert check.check_receipt(receipt, [OTHER, KEY]).size == 5


def test_each_step_of_a_receipt_is_checked() -> None:
    wrong_proof = file_of(2, 5) | {"proof": file_of(3, 5)["proof"]}
    for document, keys, why in (
        (file_of(2, 5), [OTHER], "receipt: it is not signed by the key"),
        (file_of(2, 5, key=TWO), [KEY], "log: the note is not signed by the key"),
        (wrong_proof, [KEY], "log: the proof does not lead to the root"),
    ):
        with pytest.raises(Refused, match=why):
            check.check_receipt(parsed(document), keys)


def test_a_receipt_goes_on_from_a_checkpoint_seen_before() -> None:
    hashes = [trees.leaf(one) for one in receipts()[1]]
    seen = {size: trees.note(NAME, size, trees.tree_of(hashes[:size]), ONE).encode() for size in range(6)}
    for size in range(4):
        check.check_receipt(parsed(file_of(2, 3)), [KEY], seen[size], trees.consistency(size, hashes[:3]))
    check.check_receipt(parsed(file_of(2, 3)), [KEY], seen[5], trees.consistency(3, hashes))
    forked = trees.note(NAME, 2, trees.tree_of(hashes[1:3]), ONE).encode()
    foreign = trees.note("example.org/other", 2, trees.tree_of(hashes[:2]), ONE).encode()
    other = LogKey.parse(trees.vkey("example.org/other", ONE))
    for note, keys, why in (
        (forked, [KEY], "the proof does not lead from the first 2 entries to the 3"),
        (foreign, [KEY, other], "the checkpoint that was seen is of another log"),
        (foreign, [KEY], "consistency: the note is not signed"),
    ):
        with pytest.raises(Refused, match=why):
            check.check_receipt(parsed(file_of(2, 3)), keys, note, trees.consistency(2, hashes[:3]))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"schema": "assay.receipt/2"}, "not of the format assay.receipt/1: schema does not fit"),
        ({"more": 1}, "not of the format assay.receipt/1"),
        ({"proof": 1}, "proof does not fit"),
        ({"proof": "x"}, "log: it is not a c2sp.org/tlog-proof@v1"),
        ({"envelope": 1}, "not a DSSE envelope"),
        ({"envelope": envelopes.dsse(b'{"a": 1, "a": 1}', ONE)}, "one reading"),
        ({"envelope": envelopes.dsse(b"[]", ONE)}, "the document does not fit"),
        ({"envelope": receipts(1, epoch="1")[0][0]}, "epoch does not fit"),
        ({"envelope": receipts(1, scheme="sha256:AB")[0][0]}, "scheme does not fit"),
        ({"envelope": receipts(1, previous={"epoch": 1})[0][0]}, "previous does not fit"),
        ({"envelope": receipts(1, extra=1)[0][0]}, "predicate does not fit"),
        ({"envelope": receipts(1, competition="other")[0][0]}, "its subject is not the settlement"),
        ({"envelope": receipts(1, settlement="sha256:" + "ef" * 32)[0][0]}, "its subject is not the settlement"),
    ],
)
def test_what_is_no_receipt_is_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(Refused, match=why):
        parsed(file_of(2, 5) | change)


def test_every_bit_of_a_receipt_is_held() -> None:
    """One bit more or less anywhere, and it is refused; or it is a bit that nobody signs and that says nothing."""
    data = json.dumps(file_of(2, 5), separators=(",", ":")).encode()
    says_nothing = re.search(rb'"keyid":"([^"]*)"', data)
    assert says_nothing is not None
    for at in range(len(data)):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        try:
            check.check_receipt(Receipt.parse(changed), [KEY])
        except Refused:
            continue
        assert at in range(says_nothing.start(), says_nothing.end()), (at, changed[max(0, at - 20) : at + 20])


# The command


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A receipt, the checkpoint before it, the proof between them."""
    hashes = [trees.leaf(one) for one in receipts()[1]]
    (tmp_path / "receipt").write_text(json.dumps(file_of(2, 5)), encoding="utf-8")
    (tmp_path / "seen").write_text(trees.note(NAME, 3, trees.tree_of(hashes[:3]), ONE), encoding="utf-8")
    (tmp_path / "hashes").write_text("".join(f"{b64(one)}\n" for one in trees.consistency(3, hashes)), encoding="utf-8")
    (tmp_path / "forked").write_text(trees.note(NAME, 3, trees.tree_of(hashes[1:4]), ONE), encoding="utf-8")
    return tmp_path


def test_the_command_says_what_it_has_checked(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(files / "receipt"), "--key", str(KEY)]
    assert check.main(words) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"checked: signature; entry 2 of 5 in {NAME}",
        f"it says: term epoch 2, settlement {DIGEST}",
        "not checked: that this follows from the evidence, which `assay verify` recomputes",
    ]
    assert check.main([*words, "--checkpoint", str(files / "seen"), "--consistency", str(files / "hashes")]) == 0
    assert capsys.readouterr().out.startswith(f"checked: signature; entry 2 of 5 in {NAME}; consistency\n")


def test_the_command_says_what_is_wrong(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    receipt = str(files / "receipt")
    for words, code, why in (
        ([receipt, "--key", str(OTHER)], 1, "refused: receipt: it is not signed by the key"),
        ([receipt, "--key", "nonsense"], 1, "refused: key: "),
        ([receipt, "--key", str(KEY), "--checkpoint", str(files / "forked")], 1, "refused: consistency: "),
        ([str(files / "none"), "--key", str(KEY)], 2, "cannot read: "),
    ):
        assert check.main(words) == code
        said = capsys.readouterr()
        assert (said.out, said.err.startswith(why)) == ("", True), said.err


def test_the_file_runs_alone(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = files / "check.py"
    copy.write_bytes(Path(check.__file__).read_bytes())
    command = [sys.executable, "-I", str(copy), str(files / "receipt"), "--key", str(KEY)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=files, timeout=120, check=False)
    assert (done.returncode, done.stderr, done.stdout[:8]) == (0, "", "checked:")
    monkeypatch.setattr(sys, "argv", ["check.py", str(files / "receipt"), "--key", str(KEY)])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path(check.__file__, run_name="__main__")


def test_it_imports_nothing_but_python_and_cryptography() -> None:
    tree = ast.parse(Path(check.__file__).read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) == {"cryptography"}


def test_an_error_tells_what_was_expected_and_found() -> None:
    assert str(Refused("log", "it is wrong")) == "log: it is wrong"
    assert str(Refused("log", "it is wrong", 1, "x" * 300)) == f"log: it is wrong (expected 1, found {'x' * 200})"
    assert hashlib.sha256().digest() == check.EMPTY_ROOT
