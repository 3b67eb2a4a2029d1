"""Cosignatures and policies: SPEC 6, Witnesses; C2SP tlog-cosignature and tlog-policy."""

import base64
import builtins
import hashlib
import re
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import mldsa

from assay.errors import BadInput
from assay.ledger import cosigning, keys, log
from assay.ledger.check import CheckError, Checkpoint, LogKey
from assay.ledger.cosigning import ED25519, ML_DSA_44, Policy, WitnessKey, check_policy, cosign, cosignatures, merged, read_policy
from ledger_kit import KEY, SIGNER

ROOT = hashlib.sha256(b"root").digest()
NOTE = log.sign_checkpoint(7, ROOT, KEY, SIGNER)
TEXT = cosigning.text_of(NOTE)
SIGNERS = {name: keys.from_seed(name.encode() * 16) for name in ("w1", "w2", "w3")}
WITNESSES = {name: WitnessKey(f"example.net/{name}", ED25519, key.public.raw) for name, key in SIGNERS.items()}


def line(name: str, time: int = 1_700_000_000, text: str = TEXT) -> str:
    return cosign(text, f"example.net/{name}", SIGNERS[name], time)


def test_the_example_of_the_specification_is_read() -> None:
    """The cosignature in C2SP's tlog-cosignature is over 20,852,163 entries, from 2023-03-14; its key is not given there."""
    signature = "jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJsX3b2oyin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA=="
    data = base64.b64decode(signature)
    assert (len(data), int.from_bytes(data[4:12], "big")) == (4 + 8 + 64, 1679315147)


def test_a_cosignature_signs_its_time_and_the_whole_text() -> None:
    cosignature = base64.b64decode(line("w1", 1679315147).split(" ")[2])
    key = SIGNERS["w1"].public
    assert cosignature[:4] == hashlib.sha256(b"example.net/w1\n\x04" + key.raw).digest()[:4]
    assert cosignature[4:12] == (1679315147).to_bytes(8, "big")
    assert key.verifies(cosignature[12:], b"cosignature/v1\ntime 1679315147\n" + TEXT.encode())


def test_cosignatures_are_read_with_their_times() -> None:
    note = merged(NOTE, [line("w1", 5), line("w2", 9)])
    assert cosignatures(note, WITNESSES.values()) == {WITNESSES["w1"]: 5, WITNESSES["w2"]: 9}
    assert cosignatures(note, [WITNESSES["w2"]]) == {WITNESSES["w2"]: 9}
    assert cosignatures(NOTE, WITNESSES.values()) == {}
    assert cosignatures(note + line("w1", 12).encode(), [WITNESSES["w1"]]) == {WITNESSES["w1"]: 12}
    assert cosignatures(merged(note, [line("w1", 3)]), [WITNESSES["w1"]]) == {WITNESSES["w1"]: 3}
    assert merged(note, [line("w1", 5)]).count(b"example.net/w1") == 1
    assert Checkpoint.parse(cosigning.text_of(note)).size == 7


@pytest.mark.parametrize("at", [4 + 3, 4 + 7, 4 + 8, 4 + 8 + 63])
def test_a_changed_cosignature_is_refused(at: int) -> None:
    words = line("w1").split(" ")
    data = bytearray(base64.b64decode(words[2]))
    data[at] ^= 1
    note = merged(NOTE, [f"{words[0]} {words[1]} {base64.b64encode(data).decode()}\n"])
    with pytest.raises(CheckError, match="a cosignature is wrong"):
        cosignatures(note, WITNESSES.values())


@pytest.mark.parametrize("blob", [bytes(71), bytes(73), b"\xff" * 8 + bytes(64)])
def test_a_signature_of_another_size_or_time_is_none(blob: bytes) -> None:
    assert WITNESSES["w1"].time_of(blob, TEXT) is None


def test_a_cosignature_of_another_checkpoint_is_refused() -> None:
    other = cosigning.text_of(log.sign_checkpoint(8, ROOT, KEY, SIGNER))
    with pytest.raises(CheckError, match="a cosignature is wrong"):
        cosignatures(merged(NOTE, [line("w1", text=other)]), WITNESSES.values())


# ML-DSA-44


def ml_dsa(name: str = "example.net/pq", *, origin: str | None = None, time: int = 1_700_000_000) -> tuple[WitnessKey, str]:
    """The key and the cosignature of a witness with an ML-DSA-44 key; the structure is written out a second time."""
    private = mldsa.MLDSA44PrivateKey.generate()
    key = WitnessKey(name, ML_DSA_44, private.public_key().public_bytes_raw())
    who, about = name.encode(), (origin or KEY.name).encode()
    message = b"subtree/v1\n\x00" + bytes([len(who)]) + who + time.to_bytes(8, "big") + bytes([len(about)]) + about
    message += (0).to_bytes(8, "big") + (7).to_bytes(8, "big") + ROOT
    data = key.hint + time.to_bytes(8, "big") + private.sign(message)
    return key, f"— {name} {base64.b64encode(data).decode()}\n"


def test_a_cosignature_by_ml_dsa_44_is_checked() -> None:
    key, signed = ml_dsa()
    assert WitnessKey.parse(str(key)) == key
    assert key.hint == hashlib.sha256(b"example.net/pq\n\x06" + key.raw).digest()[:4]
    assert cosignatures(merged(NOTE, [signed]), [key]) == {key: 1_700_000_000}
    key, signed = ml_dsa(origin="example.org/other")
    with pytest.raises(CheckError, match="a cosignature is wrong"):
        cosignatures(merged(NOTE, [signed]), [key])


def test_a_name_that_ml_dsa_44_cannot_sign_is_refused() -> None:
    key = WitnessKey("w" * 256, ML_DSA_44, bytes(1312))
    with pytest.raises(CheckError, match=r"longer than an ML-DSA-44 cosignature"):
        key.time_of(bytes(8 + 2420), TEXT)


@pytest.mark.parametrize("missing", [True, False])
def test_a_library_that_cannot_check_ml_dsa_44_is_named(missing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    key, signed = ml_dsa()
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.endswith("asymmetric.mldsa"):
            raise ImportError(name)
        return real(name, *rest)

    def unsupported(*_: object) -> object:
        raise UnsupportedAlgorithm("not in this build")

    if missing:
        monkeypatch.setattr(builtins, "__import__", without)
    else:
        monkeypatch.setattr(mldsa.MLDSA44PublicKey, "from_public_bytes", unsupported)
    with pytest.raises(CheckError, match="install a newer one") as refused:
        cosignatures(merged(NOTE, [signed]), [key])
    assert refused.value.stage == "unsupported"


# Keys and notes


def spelled(kind: int, raw: bytes) -> str:
    return f"w+00000000+{base64.b64encode(bytes([kind]) + raw).decode()}"


def test_a_vkey_is_read_and_written() -> None:
    for key in WITNESSES.values():
        assert WitnessKey.parse(str(key)) == key


@pytest.mark.parametrize(
    ("vkey", "says"),
    [
        (str(KEY), "not the vkey"),
        ("example.net/w1", "not the vkey"),
        ("a b+00000000+BA==", "not the vkey"),
        ("w+00000000+", "not the vkey"),
        ("w+00000000+BA==", "not the vkey"),
        ("w+00000000+B", "not canonical base64"),
        (spelled(4, SIGNER.public.raw), "hex digits"),
        (spelled(4, bytes(32)), "cannot be trusted|can be trusted"),
        (spelled(7, bytes(32)), "not the vkey"),
    ],
)
def test_what_is_no_key_of_a_witness_is_refused(vkey: str, says: str) -> None:
    with pytest.raises(CheckError, match=says):
        WitnessKey.parse(vkey)


BODY = TEXT.encode() + b"\n"


@pytest.mark.parametrize("note", [b"", b"text\n", NOTE[:-1], NOTE + b"\xff\n", BODY, BODY + b"x\n" * 65])
def test_what_is_no_note_is_refused(note: bytes) -> None:
    with pytest.raises(CheckError, match="not a signed note"):
        cosigning.text_of(note)


@pytest.mark.parametrize("signed", ["— w AAAA\n", "- w AAAAAAAA\n", "— w+x AAAAAAAA\n", "— w\n", "— w AAAAAAA\n"])
def test_what_is_no_signature_line_is_refused(signed: str) -> None:
    with pytest.raises(CheckError):
        cosignatures(NOTE + signed.encode(), WITNESSES.values())


def test_an_answer_is_read_as_lines() -> None:
    assert cosigning.signature_lines((line("w1") + line("w2")).encode()) == [line("w1"), line("w2")]
    for answer in (b"", "— w AAAA".encode(), line("w1").encode()[:-1], b"x\n", b"\xff\n", line("w1").encode() * 65):
        with pytest.raises(CheckError):
            cosigning.signature_lines(answer)


# Policies


def policy(tmp_path: Path, text: str) -> Policy:
    path = tmp_path / "witnesses.policy"
    path.write_bytes(text.encode())
    return read_policy(path)


ALL = "".join(f"witness {name} {key} https://{name}.example.net/\n" for name, key in WITNESSES.items())


def test_a_policy_is_read(tmp_path: Path) -> None:
    text = f"# ours\n\n \tlog {KEY} https://example.org/log\n{ALL}\tgroup two 2  w1\tw2 w3 \nquorum two\n"
    parsed = policy(tmp_path, text)
    assert parsed.logs == (KEY,)
    assert parsed.urls == {KEY.name: "https://example.org/log"}
    assert {name: witness.key for name, witness in parsed.witnesses.items()} == WITNESSES
    assert parsed.witnesses["w2"].url == "https://w2.example.net/"
    assert (parsed.groups, parsed.quorum) == ({"two": (2, ("w1", "w2", "w3"))}, "two")
    assert parsed.keys() == [*WITNESSES.values()]


@pytest.mark.parametrize(
    ("rules", "cosigned", "reached"),
    [
        ("quorum none\n", set(), True),
        ("quorum w1\n", {"w1"}, True),
        ("quorum w1\n", {"w2", "w3"}, False),
        ("group g any w1 w2\nquorum g\n", {"w2"}, True),
        ("group g any w1 w2\nquorum g\n", {"w3"}, False),
        ("group g all w1 w2\nquorum g\n", {"w1"}, False),
        ("group g all w1 w2\nquorum g\n", {"w1", "w2"}, True),
        ("group g 2 w1 w2 w3\nquorum g\n", {"w1", "w3"}, True),
        ("group g 2 w1 w2 w3\nquorum g\n", {"w3"}, False),
        ("group g any w1 w2\ngroup h all g w3\nquorum h\n", {"w1", "w2"}, False),
        ("group g any w1 w2\ngroup h all g w3\nquorum h\n", {"w2", "w3"}, True),
        ("quorum w1\n", {"g"}, False),
        ("group g any w1\nquorum g\n", {"g"}, False),
    ],
)
def test_a_quorum_is_counted(rules: str, cosigned: set[str], reached: bool, tmp_path: Path) -> None:
    assert policy(tmp_path, ALL + rules).reached(cosigned) is reached


W1 = f"witness w1 {WITNESSES['w1']}\n"


@pytest.mark.parametrize(
    ("text", "number", "says"),
    [
        ("", None, "no line with a quorum"),
        (W1, None, "no line with a quorum"),
        ("logs x\n", 1, "none of log, witness, group, quorum"),
        ("quorum\x07 none\n", 1, "control character"),
        ("quorum none\r\n", 1, "control character"),
        ("quorum none\nquorum none\n", 2, "a second quorum"),
        ("quorum w1\n", 1, "not a witness or group above"),
        (f"quorum w1\n{W1}", 1, "not a witness or group above"),
        ("quorum\n", 1, "not a witness or group above"),
        ("log\n", 1, "a log has a key"),
        (f"log {KEY} a b\n", 1, "a log has a key"),
        (f"log {WITNESSES['w1']}\n", 1, "the log's key is wrong"),
        (f"log {KEY}\nlog {LogKey(KEY.raw, 'example.org/other')}\n", 2, "in the file twice"),
        ("witness w1\n", 1, "a witness has a name"),
        (f"witness w1 {KEY}\n", 1, "the key of 'w1' is wrong"),
        (f"witness none {WITNESSES['w1']}\n", 1, "is taken"),
        (f"{W1}witness w1 {WITNESSES['w2']}\n", 2, "is taken"),
        (f"{W1}witness w2 {WitnessKey('other', ED25519, WITNESSES['w1'].raw)}\n", 2, "in the file twice"),
        (f"{W1}group g\n", 2, "a group has a name"),
        (f"{W1}group g 1\n", 2, "a group has a name"),
        (f"{W1}group w1 1 w1\n", 2, "is taken"),
        (f"{W1}group g 1 w2\n", 2, "'w2' is not a witness or group above"),
        (f"{W1}group g 1 none\n", 2, "'none' is not a witness or group above"),
        (f"{W1}group g 1 g\n", 2, "'g' is not a witness or group above"),
        (f"{W1}group g 1 w1 w1\n", 2, "'w1' is a member twice"),
        (f"{W1}group g any w1\ngroup h any w1\n", 3, "'w1' is a member twice"),
        (f"{W1}group g 2 w1\n", 2, "'2' is not any, all, or"),
        (f"{W1}group g 0 w1\n", 2, "'0' is not any, all, or"),
        (f"{W1}group g 01 w1\n", 2, "'01' is not any, all, or"),
        (f"{W1}group g most w1\n", 2, "'most' is not any, all, or"),
    ],
)
def test_a_wrong_policy_is_refused_with_its_line(text: str, number: int | None, says: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=re.escape(says)) as refused:
        policy(tmp_path, text)
    assert refused.value.line == number
    assert refused.value.hint


def test_names_are_octets(tmp_path: Path) -> None:
    path = tmp_path / "witnesses.policy"
    path.write_bytes(b"# \xff\xe2\x84\xaa\n" + W1.replace("witness w1", "witness \N{KELVIN SIGN}").encode() + b"quorum K\n")
    with pytest.raises(BadInput, match="not a witness or group above"):
        read_policy(path)


def test_thirty_two_of_each_are_taken(tmp_path: Path) -> None:
    several = [keys.from_seed(f"{number:02}".encode() * 16).public.raw for number in range(10, 42)]
    text = "".join(f"log {LogKey(raw, f'example.org/{at}')}\n" for at, raw in enumerate(several))
    text += "".join(f"witness w{at} {WitnessKey(f'w{at}', ED25519, raw)}\n" for at, raw in enumerate(several))
    text += "".join(f"group g{at} any w{at}\n" for at in range(32))
    parsed = policy(tmp_path, f"{text}group all all {' '.join(f'g{at}' for at in range(32))}\nquorum all\n")
    assert parsed.reached({f"w{at}" for at in range(32)})
    assert not parsed.reached({f"w{at}" for at in range(31)})


def test_a_checkpoint_is_checked_against_a_policy(tmp_path: Path) -> None:
    rules = policy(tmp_path, f"log {KEY}\n{ALL}group two 2 w1 w2 w3\nquorum two\n")
    witnessed = check_policy(rules, merged(NOTE, [line("w3", 9), line("w1", 5)]), KEY)
    assert (witnessed.checkpoint.size, dict(witnessed.times), witnessed.newest) == (7, {"w1": 5, "w3": 9}, 9)
    with pytest.raises(CheckError, match="too few witnesses") as refused:
        check_policy(rules, merged(NOTE, [line("w1")]), KEY)
    assert (refused.value.expected, refused.value.found) == ("the quorum two", "w1")
    with pytest.raises(CheckError, match="no witness of the policy"):
        check_policy(rules, NOTE, KEY)
    other = LogKey(KEY.raw, "example.org/other")
    with pytest.raises(CheckError, match="does not name this log"):
        check_policy(rules, NOTE, other)
    with pytest.raises(CheckError):
        check_policy(policy(tmp_path, "quorum none\n"), NOTE.replace(b"\n7\n", b"\n8\n"), KEY)
    assert check_policy(policy(tmp_path, "quorum none\n"), NOTE, KEY).newest is None
