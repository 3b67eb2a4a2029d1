"""The stand-alone checks: C2SP keys, signed notes, checkpoints and log proofs."""

import pytest

from assay.ledger import check
from assay.ledger.check import CheckError, Checkpoint, LogKey, LogProof
from check_kit import KEY, LEAVES, NAME, ONE, OTHER, TWO, b64, checkpoint
from oracle import trees


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
    with pytest.raises(CheckError, match="key: "):
        LogKey.parse(text)


@pytest.mark.parametrize(
    "private",
    [
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "-----BEGIN PRIVATE KEY-----\nMC4CAQ+wBQYDK2VwBCIE+J1hsZ3v/VpguoRK9JLs\n-----END PRIVATE KEY-----",
        "PRIVATE+KEY+example.org/log+033de0ae+AZ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g",
    ],
)
def test_a_private_key_that_was_given_for_the_public_one_is_not_shown(private: str) -> None:
    with pytest.raises(CheckError) as error:
        LogKey.parse(private)
    assert str(error.value) == "key: it is not a vkey NAME+HEX+BASE64 of an Ed25519 key"


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
    with pytest.raises(CheckError, match="the note is not signed by the key"):
        check.check_note(f"{text}\n{''.join(lines[:3])}".encode(), [KEY])


@pytest.mark.parametrize("character", ["\t", "\r", "\0", "\x1f"])
def test_a_note_has_no_control_characters_though_they_were_signed(character: str) -> None:
    text = f"{NAME}\n3\n{b64(trees.tree_of(LEAVES[:3]))}\na{character}b\n"
    with pytest.raises(CheckError, match="log: it is not a signed note"):
        check.check_note(f"{text}\n{trees.signature(text, NAME, ONE)}".encode(), [KEY])


def test_a_wrong_signature_of_a_known_key_spoils_the_note() -> None:
    text = f"{NAME}\n3\n{b64(trees.tree_of(LEAVES[:3]))}\n"
    wrong = f"— {NAME} {b64(KEY.hint + bytes(64))}\n"
    with pytest.raises(CheckError, match="a signature of the note is wrong"):
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
    with pytest.raises(CheckError, match="log: it is not"):
        check.check_note(note, [KEY])


def noted(size: int) -> bytes:
    """A note of so many bytes, rightly signed."""
    lines = "a" * (size - len(f"\n\n{trees.signature('', NAME, ONE)}".encode()))
    signature = trees.signature(lines + "\n", NAME, ONE)
    return f"{lines}\n\n{signature}".encode()


def test_a_note_is_read_up_to_its_bound_and_not_above() -> None:
    assert check.NOTE_BYTES == 2**20
    largest = noted(2**20)
    assert len(largest) == 2**20
    assert check.check_note(largest, [KEY])[1] == [KEY]
    with pytest.raises(CheckError, match="log: it is not a signed note"):
        check.check_note(noted(2**20 + 1), [KEY])


def test_a_log_proof_is_read_up_to_its_bound_and_not_above() -> None:
    head = "c2sp.org/tlog-proof@v1\nindex 1\n\n"
    rest = "a" * (2**20 - len(head))
    assert LogProof.parse(head + rest).checkpoint == rest.encode()
    with pytest.raises(CheckError, match="log: it is not"):
        LogProof.parse(head + rest + "a")


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
    with pytest.raises(CheckError, match="log: it is not"):
        Checkpoint.parse(text)


def test_a_checkpoint_is_of_the_log_whose_key_signed_it() -> None:
    text = f"example.org/other\n3\n{b64(bytes(32))}\n"
    with pytest.raises(CheckError, match="the checkpoint is of another log"):
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
    with pytest.raises(CheckError, match="log: it is not"):
        LogProof.parse(text)
