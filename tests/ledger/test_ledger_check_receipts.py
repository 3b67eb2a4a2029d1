"""The stand-alone checks: receipts."""

import json
import re
from typing import Any

import pytest

from assay.ledger import check
from assay.ledger.check import CheckError, LogKey, Receipt
from check_kit import KEY, NAME, ONE, OTHER, TWO, file_of, parsed, receipts
from oracle import envelopes, trees


def test_a_receipt_checks() -> None:
    receipt = parsed(file_of(2, 5))
    assert receipt.digest == receipts()[1][2]
    assert receipt.predicate["epoch"] == 2
    assert check.check_receipt(receipt, [OTHER, KEY]).size == 5


def test_a_receipt_and_what_is_signed_in_it_are_read_up_to_their_bounds_and_not_above() -> None:
    file = json.dumps(file_of(2, 5)).encode().ljust(4 * 2**20)
    assert Receipt.parse(file).predicate["epoch"] == 2
    with pytest.raises(CheckError, match=r"^receipt: it is too large \(expected at most 4194304 bytes, found 4194305 bytes\)"):
        Receipt.parse(file + b" ")
    assert check.parse_json(b"1".ljust(2**20), "receipt") == 1
    with pytest.raises(CheckError, match="it is too large"):
        check.parse_json(b"1".ljust(2**20 + 1), "receipt")


def test_each_step_of_a_receipt_is_checked() -> None:
    wrong_proof = file_of(2, 5) | {"proof": file_of(3, 5)["proof"]}
    for document, keys, why in (
        (file_of(2, 5), [OTHER], "receipt: it is not signed by the key"),
        (file_of(2, 5, key=TWO), [KEY], "log: the note is not signed by the key"),
        (wrong_proof, [KEY], "log: the proof does not lead to the root"),
    ):
        with pytest.raises(CheckError, match=why):
            check.check_receipt(parsed(document), keys)


def test_a_receipt_goes_on_from_a_checkpoint_seen_before() -> None:
    hashes = [trees.leaf(receipt) for receipt in receipts()[1]]
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
        with pytest.raises(CheckError, match=why):
            check.check_receipt(parsed(file_of(2, 3)), keys, note, trees.consistency(2, hashes[:3]))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"schema": "assay.receipt/2"}, "does not have the format assay.receipt/1: schema does not fit"),
        ({"more": 1}, "does not have the format assay.receipt/1"),
        ({"proof": 1}, "proof does not fit"),
        ({"proof": "x"}, "log: it is not a c2sp.org/tlog-proof@v1"),
        ({"envelope": 1}, "not a DSSE envelope"),
        ({"envelope": envelopes.dsse(b'{"a": 1, "a": 1}', ONE)}, "strict JSON"),
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
    with pytest.raises(CheckError, match=why):
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
        except CheckError:
            continue
        assert at in range(says_nothing.start(), says_nothing.end()), (at, changed[max(0, at - 20) : at + 20])
