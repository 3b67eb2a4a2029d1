"""Attacks on verify and on settling by somebody who holds the bundle, the database, a validator's key, or the log's own."""

import base64
import contextlib
import hashlib
import json
import os
import shutil
import sqlite3
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import ledger_kit
from assay import conformance
from assay.errors import BadInput, Refused
from assay.exact import canonical, digest
from assay.ledger import batch, bundle, check, log, settling, statements
from assay.ledger.exchange import proof_for
from assay.ledger.keys import sign_envelope
from assay.ledger.merkle import Tree
from assay.ledger.store import Damaged
from assay.ledger.verify import verify
from ledger_kit import SIGNER

KEY = str(ledger_kit.KEY)
RECORDS = ledger_kit.records()
FAILED = [record | ({"outcome": "fail"} if (record["participant"], record["task"]) == ("m1", "t1") else {}) for record in RECORDS]


def exported(place: Path, records: list[dict[str, Any]]) -> Path:
    """The folder of a competition whose epoch 3 is settled and exported: `lines` and `columns`."""
    ledger_kit.ledger_folder(place)
    ledger_kit.add(place, records)
    with ledger_kit.opened(place) as ledger:
        settling.settle(ledger, SIGNER)
        bundle.export(ledger, 3, place / "lines")
        bundle.export(ledger, 3, place / "columns", as_parquet=True)
        (place / "m1.proof").write_bytes(canonical(proof_for(ledger, "m1")))
    return place


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("honest") / "small", FAILED)


@pytest.fixture(scope="module")
def wished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the operator would like to have come of it."""
    return exported(tmp_path_factory.mktemp("wished") / "small", RECORDS)


def forged(honest: Path, wished: Path, target: Path) -> Path:
    """The honest evidence with the wished settlement, under a receipt that the log's own key signed."""
    shutil.copytree(honest, target)
    shutil.copy(wished / bundle.SETTLEMENT, target)
    file = target / "receipts" / "epoch-3.receipt"
    predicate = check.Receipt.parse(file.read_bytes()).predicate
    settlement = json.loads((target / bundle.SETTLEMENT).read_bytes())
    evidence = predicate["evidence"]["root"], predicate["evidence"]["count"]
    records = {row["participant"]: predicate["evidence"] for row in settlement["agreed"]}
    payload = statements.receipt_statement(
        settlement, inputs=predicate["inputs"], evidence=evidence, records=records, previous=None, version="0.1.0"
    )
    entry = hashlib.sha256(payload).digest()
    tree = Tree([check.leaf_hash(entry)])
    checkpoint = log.sign_checkpoint(1, tree.root(), ledger_kit.KEY, SIGNER)
    file.write_bytes(statements.receipt_file(canonical(sign_envelope(payload, SIGNER)), tree.inclusion(0), checkpoint))
    for path, data in bundle.log_files([entry], checkpoint).items():
        (target / bundle.LOG / path).write_bytes(data)
    return target


@pytest.mark.no_cover
@pytest.mark.parametrize("kind", ["lines", "columns"])
def test_an_operator_signs_another_settlement(kind: str, honest: Path, wished: Path, tmp_path: Path) -> None:
    with pytest.raises(Refused) as refused:
        verify(forged(honest / kind, wished / kind, tmp_path / "forged"), key=KEY)
    assert (refused.value.stage, refused.value.participant) == ("settlement", "m1")


def test_a_footer_that_lies_about_the_columns(honest: Path, wished: Path, tmp_path: Path) -> None:
    """DuckDB goes by the statistics of a row group: where they say that all passed, it does not look whether they did."""
    given = forged(honest / "columns", wished / "columns", tmp_path / "forged")
    file = given / "evidence" / "epoch-3.parquet"
    pq.write_table(pq.read_table(file), file, row_group_size=2)
    data = file.read_bytes()
    begin = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
    assert data.count(b"fail", begin) > 0
    file.write_bytes(data[:begin] + data[begin:].replace(b"fail", b"pass"))
    with pytest.raises(Refused) as refused:
        verify(given, key=KEY)
    assert (refused.value.stage, refused.value.participant) == ("settlement", "m1")


@pytest.mark.parametrize("first", [True, False])
def test_a_column_twice_in_two_spellings(first: bool, honest: Path, wished: Path, tmp_path: Path) -> None:
    given = forged(honest / "columns", wished / "columns", tmp_path / "forged")
    file = given / "evidence" / "epoch-3.parquet"
    table = pq.read_table(file)
    column = [["pass"] * len(table)]
    pq.write_table(table.add_column(0, "OUTCOME", column) if first else table.append_column("OUTCOME", column), file)
    with pytest.raises(Refused) as refused:
        verify(given, key=KEY)
    assert refused.value.stage == "settlement"


def test_a_proof_in_the_place_of_the_receipt(honest: Path, tmp_path: Path) -> None:
    given = Path(shutil.copytree(honest / "lines", tmp_path / "bundle"))
    shutil.copy(honest / "m1.proof", given / "receipts" / "epoch-3.receipt")
    (given / bundle.SETTLEMENT).write_bytes(b"{}")
    with pytest.raises(Refused, match="in the place of the receipt") as refused:
        verify(given, key=KEY)
    assert refused.value.stage == "receipt"


def test_the_bundle_of_another_receipt(honest: Path, wished: Path) -> None:
    with pytest.raises(Refused, match="was forked") as refused:
        verify(honest / "lines" / "receipts" / "epoch-3.receipt", evidence=wished / "lines", key=KEY)
    assert refused.value.stage == "log"


@contextlib.contextmanager
def pipe(path: Path) -> Iterator[None]:
    """A pipe in the place of a file; whoever opens it gets an end of file, so that a test that fails does not hang."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: os.close(os.open(path, os.O_WRONLY)))
    writer.start()
    try:
        yield
    finally:
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        writer.join()
        os.close(reader)


FILES = ("settlement.json", "batches.jsonl", "evidence/epoch-3.jsonl", "receipts/epoch-3.receipt", "receipts/epoch-2.receipt")
TILES = ("log/checkpoint", "log/tile/0/000.p/1", "log/tile/entries/000.p/1")


@pytest.mark.parametrize("name", [*FILES, *TILES, "inputs.json", "evidence/epoch-3.parquet"])
def test_pipes_and_devices_are_not_read(name: str, honest: Path, tmp_path: Path) -> None:
    given = Path(shutil.copytree(honest / ("columns" if "parquet" in name else "lines"), tmp_path / "bundle"))
    evidence = given if name == "inputs.json" else None
    with pipe(given / name), pytest.raises((Refused, BadInput), match=r"pipe or a device|inputs\.json"):
        verify(given / "receipts" / "epoch-3.receipt" if evidence else given, evidence=evidence, key=KEY)
    (given / name).unlink()
    (given / name).symlink_to("/dev/zero")
    with pytest.raises((Refused, BadInput), match=r"pipe or a device|inputs\.json"):
        verify(given / "receipts" / "epoch-3.receipt" if evidence else given, evidence=evidence, key=KEY)


def test_a_pipe_that_is_named_as_one_is_read(honest: Path) -> None:
    ends = os.pipe()
    os.write(ends[1], (honest / "m1.proof").read_bytes())
    os.close(ends[1])
    try:
        assert verify(Path(f"/dev/fd/{ends[0]}"), key=KEY).receipt["epoch"] == 3
    finally:
        os.close(ends[0])


@pytest.mark.parametrize("content", [None, b""])
def test_no_folder_of_receipts(content: bytes | None, honest: Path, tmp_path: Path) -> None:
    given = Path(shutil.copytree(honest / "lines", tmp_path / "bundle"))
    alone = Path(shutil.copy(given / "receipts" / "epoch-3.receipt", tmp_path))
    shutil.rmtree(given / "receipts")
    if content is not None:
        (given / "receipts").write_bytes(content)
    with pytest.raises(Refused) as refused:
        verify(alone, evidence=given, key=KEY)
    assert refused.value.stage == "chain"


def rewritten(given: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    path = given / bundle.BATCHES
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))


@pytest.mark.full
def test_more_work_than_there_are_bytes(honest: Path, tmp_path: Path) -> None:
    """Ranges that overlap, and batches again and again, each of which would be checked over all records."""
    given = Path(shutil.copytree(honest / "lines", tmp_path / "bundle"))

    def ranges(members: bytes) -> Callable[[list[bytes]], list[bytes]]:
        return lambda lines: [lines[0].rpartition(b',"members":')[0] + b',"members":' + members + b"}\n", *lines[1:]]

    for change, words in (
        (ranges(b"[" + b",".join([b"[1,4]"] * 100_000) + b"]"), "do not ascend"),
        (ranges(b"[[1,9007199254740991]]"), "not those that were signed"),
        (ranges(b"[[4,1]]"), "do not ascend"),
        (ranges(b"[[1,3],[99,99]]"), "a record of the batch is missing"),
        (lambda lines: lines * 1_000, "occurs twice"),
    ):
        whole = (given / bundle.BATCHES).read_bytes()
        rewritten(given, change)
        with pytest.raises(Refused, match=words) as refused:
            verify(given, key=KEY)
        assert refused.value.stage == "signatures"
        (given / bundle.BATCHES).write_bytes(whole)


def test_a_little_parquet_that_stands_for_a_lot(honest: Path, tmp_path: Path) -> None:
    given = Path(shutil.copytree(honest / "columns", tmp_path / "bundle"))
    file = given / "evidence" / "epoch-3.parquet"
    table = pq.read_table(file)
    column = [["a" * 2**25] + ["t1"] * (len(table) - 1)]
    large = table.set_column(table.column_names.index("task"), "task", column)
    pq.write_table(large, file, compression="zstd", use_dictionary=False, write_statistics=False)
    assert file.stat().st_size < 20_000
    with pytest.raises(Refused, match="larger than records can be") as refused:
        verify(given, key=KEY)
    assert refused.value.stage == "evidence"


def test_the_name_of_a_column_is_no_text(honest: Path, tmp_path: Path) -> None:
    given = Path(shutil.copytree(honest / "columns", tmp_path / "bundle"))
    file = given / "evidence" / "epoch-3.parquet"
    file.write_bytes(file.read_bytes().replace(b"outcome", b"out\xffome"))
    with pytest.raises(Refused, match="is not readable Parquet") as refused:
        verify(given, key=KEY)
    assert refused.value.stage == "evidence"


def test_a_batch_of_nothing_but_line_ends() -> None:
    with pytest.raises(BadInput, match="is not a batch"):
        batch.read(b"\n" * (batch.RECORDS + 3))


def test_a_name_that_gives_orders_to_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    some = "sha256:" + "ab" * 32
    settlement = {"scheme": {"name": "x\x1b[2J\nverified", "digest": some}, "epoch": 3, "digest": some, "task_set": None}
    settlement |= {"agreed": [], "ranking": [], "weights": [], "payouts": []}
    payload = statements.receipt_statement(settlement, inputs=some, evidence=(some, 0), records={}, previous=None, version="1")
    tree = Tree([check.leaf_hash(hashlib.sha256(payload).digest())])
    checkpoint = log.sign_checkpoint(1, tree.root(), ledger_kit.KEY, SIGNER)
    file = tmp_path / "a.receipt"
    file.write_bytes(statements.receipt_file(canonical(sign_envelope(payload, SIGNER)), tree.inclusion(0), checkpoint))
    for key, code in ((KEY, 0), (KEY.replace("small", "smalL"), 1)):
        assert check.main([str(file), "--key", key]) == code
        printed = capsys.readouterr()
        assert "\x1b" not in printed.out + printed.err
    assert check.main([str(file), "--key", KEY]) == 0
    assert "it says: x\\x1b[2J\\nverified epoch 3" in capsys.readouterr().out


# Whoever can write to the database.


@pytest.fixture
def settled(tmp_path: Path) -> Path:
    """Epoch 3 is settled, epoch 4 has evidence."""
    place = ledger_kit.ledger_folder(tmp_path / "small")
    ledger_kit.add(place, RECORDS)
    with ledger_kit.opened(place) as ledger:
        settling.settle(ledger, SIGNER)
    ledger_kit.add(place, ledger_kit.records(epoch=4))
    return place


@contextlib.contextmanager
def database(place: Path) -> Iterator[sqlite3.Connection]:
    """The database without its triggers."""
    with contextlib.closing(sqlite3.connect(place / "ledger.db")) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f'DROP TRIGGER "{name}"')
        yield connection
        connection.commit()


def refused_to_settle(place: Path, words: str) -> None:
    with ledger_kit.opened(place) as ledger:
        with pytest.raises(Damaged, match=words):
            settling.settle(ledger, SIGNER)
        assert not settling.is_settled(ledger, 4)
        assert ledger.log.size == 1


def test_another_settlement_before(settled: Path) -> None:
    with database(settled) as connection:
        document = json.loads(connection.execute("SELECT document FROM settlements").fetchone()[0])
        document["clock"]["record"] = "0.9"
        document["digest"] = digest({name: value for name, value in document.items() if name != "digest"})
        connection.execute("UPDATE settlements SET document = ?, digest = ?", (canonical(document), document["digest"]))
    refused_to_settle(settled, "is not the one that its receipt names")


def test_another_receipt_before(settled: Path) -> None:
    with database(settled) as connection:
        envelope = json.loads(connection.execute("SELECT envelope FROM receipts").fetchone()[0])
        payload = base64.b64decode(envelope["payload"]).replace(b'"epoch":3', b'"epoch":2')
        envelope["payload"] = base64.b64encode(payload).decode()
        row = canonical(envelope), f"sha256:{hashlib.sha256(payload).hexdigest()}"
        connection.execute("UPDATE receipts SET envelope = ?, digest = ?", row)
    refused_to_settle(settled, "is not as it was signed")


def test_the_digest_of_the_receipt_before(settled: Path) -> None:
    with database(settled) as connection:
        connection.execute("UPDATE receipts SET digest = ?", ("sha256:" + "0" * 64,))
    refused_to_settle(settled, "is not the one that its receipt names")


def test_a_record_that_was_changed_before_it_was_settled(settled: Path) -> None:
    with database(settled) as connection:
        seq, body = connection.execute("SELECT seq, body FROM records WHERE epoch = 4").fetchone()
        body = body.replace(b"pass", b"fail")
        row = body, hashlib.sha256(body).digest(), seq
        connection.execute("UPDATE records SET body = ?, digest = ? WHERE seq = ?", row)
    refused_to_settle(
        settled, "was acknowledged, but it does not count: the records are not those that were signed: their root differs"
    )


def test_an_earlier_receipt_with_the_bundle_of_a_later_one(settled: Path, tmp_path: Path) -> None:
    with ledger_kit.opened(settled) as ledger:
        settling.settle(ledger, SIGNER)
        bundle.export(ledger, 4, tmp_path / "bundle")
    with pytest.raises(Refused, match="is not the one that is verified") as refused:
        verify(tmp_path / "bundle" / "receipts" / "epoch-3.receipt", evidence=tmp_path / "bundle", key=KEY)
    assert refused.value.stage == "chain"


# A validator with a key.


def test_evidence_of_an_epoch_that_nobody_is_at(settled: Path) -> None:
    """Settled, it would be the last: no epoch before it could be settled any more."""
    ledger_kit.add(settled, ledger_kit.records(epoch=2**53 - 1, validators=[ledger_kit.V1]))
    with ledger_kit.opened(settled) as ledger:
        receipt = settling.settle(ledger, SIGNER).receipt
        assert receipt is not None
        assert receipt.epoch == 4
        with pytest.raises(BadInput, match=r"epoch 5 is the next .* no evidence of its own"):
            settling.settle(ledger, SIGNER)


# What the oracle signed, rightly and wrongly: each is refused at the stage that its case names.


@pytest.mark.parametrize("name", ["receipt", "proof", "verify"])
def test_forgeries_that_are_rightly_signed(name: str) -> None:
    suite = conformance.read(Path(__file__).parents[2] / "conformance" / f"{name}.json")
    for case in suite.cases:
        if not case.refused:
            assert conformance.answer(name, case.input) == case.output
            continue
        with pytest.raises((BadInput, Refused)) as refused:
            conformance.answer(name, case.input)
        assert name != "verify" or case.why.startswith(f"{getattr(refused.value, 'stage', '')}: "), case.name
