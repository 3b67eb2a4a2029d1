"""Receipts as COSE (RFC 9942) and SCITT read them: decoded and checked by another library, and by the RFC's own steps."""

import json
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import cbor2
import pytest
from cwt import COSE, COSEKey

import ledger_kit
from assay.errors import BadInput, CannotSettle
from assay.ledger import check, keys
from assay.ledger.cose import cose_receipt, scitt_statement
from assay.ledger.settling import settle
from cli_kit import refused, run
from ledger_kit import KEY, SIGNER, opened

EPOCHS = (3, 4, 5)


def three(place: Path) -> None:
    ledger_kit.ledger_folder(place)
    for epoch in EPOCHS:
        ledger_kit.add(place, ledger_kit.records(epoch=epoch))
        with opened(place) as ledger:
            settle(ledger, SIGNER, epoch)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return ledger_kit.once(tmp_path / "small", ("cose",), three)


def the_key() -> Any:
    return COSEKey.new({1: 1, 2: str(KEY).encode(), 3: -8, -1: 6, -2: KEY.raw})


def root_of(entry: bytes, proof: bytes) -> bytes:
    """The root that an inclusion proof leads to, by the steps of RFC 9162, 2.1.3.2."""
    size, index, path = cbor2.loads(proof)
    assert index < size
    digest, last = sha256(b"\x00" + entry).digest(), size - 1
    for hash_ in path:
        assert last > 0
        if index % 2 or index == last:
            digest = sha256(b"\x01" + hash_ + digest).digest()
            while index % 2 == 0 and index:
                index, last = index >> 1, last >> 1
        else:
            digest = sha256(b"\x01" + digest + hash_).digest()
        index, last = index >> 1, last >> 1
    assert last == 0
    return digest


def checked(receipt: bytes, entry: bytes) -> dict[int, Any]:
    """What is signed in the header of a COSE receipt that proves the entry."""
    tag = cbor2.loads(receipt)
    assert tag.tag == 18
    protected, open_, payload, signature = tag.value
    assert (payload, len(signature), set(open_), set(open_[396])) == (None, 64, {396}, {-1})
    (proof,) = open_[396][-1]
    COSE.new().decode(receipt, the_key(), detached_payload=root_of(entry, proof))
    headers: dict[int, Any] = cbor2.loads(protected)
    assert cbor2.dumps(headers, canonical=True) == protected
    assert cbor2.dumps(tag, canonical=True) == receipt
    return headers


@pytest.mark.no_cover
@pytest.mark.parametrize("epoch", EPOCHS)
def test_a_cose_receipt_proves_the_entry_to_another_library(place: Path, epoch: int) -> None:
    with opened(place) as ledger:
        stored = ledger.receipt(epoch)
        receipt = cose_receipt(ledger, epoch, SIGNER)
    entry = bytes.fromhex(stored.digest.removeprefix("sha256:"))
    headers = checked(receipt, entry)
    assert headers == {1: -8, 4: str(KEY).encode(), 15: {1: KEY.name, 2: f"small epoch {epoch}"}, 395: 1}
    with pytest.raises(Exception, match=r"(?i)verif"):
        checked(receipt, sha256(b"another").digest())
    changed = bytearray(receipt)
    changed[-1] ^= 1
    with pytest.raises(Exception, match=r"(?i)verif"):
        checked(bytes(changed), entry)


def test_a_scitt_statement_is_signed_and_transparent(place: Path) -> None:
    with opened(place) as ledger:
        stored = ledger.receipt(4)
        statement = scitt_statement(ledger, 4, SIGNER)
        alone = cose_receipt(ledger, 4, SIGNER)
    payload = COSE.new().decode(statement, the_key())
    assert payload == check.Envelope.parse(json.loads(stored.envelope), "receipt").payload
    protected, open_, _, _ = cbor2.loads(statement).value
    assert cbor2.loads(protected) == {
        1: -8,
        3: "application/vnd.in-toto+json",
        4: str(KEY).encode(),
        15: {1: KEY.name, 2: "small epoch 4"},
    }
    assert open_ == {394: [alone]}  # Ed25519 signs the same in the same way
    checked(open_[394][0], sha256(payload).digest())


def test_the_commands_write_the_same(place: Path, tmp_path: Path) -> None:
    signer = tmp_path / "log.key"
    signer.write_bytes(SIGNER.to_file())
    signer.chmod(0o600)
    for name, make in (("cose", cose_receipt), ("scitt", scitt_statement)):
        with opened(place) as ledger:
            wanted = make(ledger, 5, SIGNER)
        printed = run("export", name, place, "5", "--key", signer, "-o", tmp_path / name, columns=200).stdout
        assert (tmp_path / name).read_bytes() == wanted
        assert f"{len(wanted):,} bytes" in printed
        assert str(KEY) in printed
        document = json.loads(run("export", name, place, "5", "--key", signer, "-o", tmp_path / name, "--json").stdout)
        assert document == {"bytes": len(wanted), "epoch": 5, "file": str(tmp_path / name), "key": str(KEY)}
        assert "which key signs for the log" in refused("export", name, place, "5", "-o", tmp_path / name)


def test_what_cannot_be_signed_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(place) as ledger:
        with pytest.raises(BadInput, match="not the key of this log"):
            cose_receipt(ledger, 3, keys.new())
        with pytest.raises(CannotSettle):
            cose_receipt(ledger, 9, SIGNER)
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "cbor2", None)
            with pytest.raises(BadInput, match="cbor2") as caught:
                cose_receipt(ledger, 3, SIGNER)
            assert caught.value.hint == "pip install 'assay[cose]'"


@pytest.mark.parametrize("what", ["a receipt", "a checkpoint"])
def test_no_root_is_signed_that_the_log_never_had(place: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A receipt, or the checkpoint beside it, was exchanged in the database: the key signs nothing of it."""
    with opened(place) as ledger:
        with ledger.store.reading() as view:
            held = list(view.receipts())
        own = held[1]
        if what == "a receipt":
            others = [held[0], held[1], held[1]]
            monkeypatch.setattr(type(view), "receipts", lambda *_: iter(others))
            wrong = 5
        else:
            spoiled = type(own)(own.epoch, own.position, own.digest, own.envelope, own.checkpoint.replace(b"\n2\n", b"\n9\n"))
            monkeypatch.setattr(type(ledger), "receipt", lambda *_: spoiled)
            wrong = 4
        with pytest.raises(BadInput, match="other receipts than its checkpoint"):
            cose_receipt(ledger, wrong, SIGNER)
