"""Every value that a bundle holds, changed one at a time: verify fails, and names the stage and whose it is."""

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamper_kit
from assay.errors import Refused
from assay.exact import canonical
from assay.ledger.verify import verify
from assay.ledger.verify.report import or_null
from depth import depth
from tamper_kit import KEY, Change, all_refused, as_json, changes, flipped, leaves, put, refused, tried

exported = pytest.fixture(scope="module")(tamper_kit.exported)


@pytest.mark.no_cover
def test_the_whole_bundle_is_right(exported: Path) -> None:
    for name in ("bundle", "columns"):
        report = verify(exported / name, key=KEY)
        assert report.recomputed
        assert [result.stage for result in report.checked if result.done] == [
            *("receipt", "log", "log", "chain", "evidence", "signatures", "inputs", "settlement", "results")
        ]


@pytest.mark.full
@pytest.mark.no_cover
def test_inputs(exported: Path) -> None:
    given = exported / "bundle"
    assert len(all_refused(given, "inputs.json", {"inputs"}, as_json(given, "inputs.json"))) > 80


@pytest.mark.full
@pytest.mark.no_cover
def test_the_settlement_before(exported: Path) -> None:
    given = exported / "bundle"
    assert len(all_refused(given, "previous.json", {"chain"}, as_json(given, "previous.json"))) > 100


@pytest.mark.full
def test_the_settlement(exported: Path) -> None:
    given = exported / "bundle"
    errors = all_refused(given, "settlement.json", {"settlement"}, as_json(given, "settlement.json"))
    assert len(errors) > depth(130, 200)
    document = json.loads((given / "settlement.json").read_bytes())
    for path, value in leaves(document):
        if path[0] in ("agreed", "weights") and path[2:] != ("participant",) and f"{path}" in errors:
            error = errors[f"{path}"]
            assert error.participant == document[path[0]][path[1]]["participant"]
            assert (error.expected, error.found) == (or_null(value), flipped(value))


def test_every_field_of_every_record(exported: Path) -> None:
    given = exported / "bundle"
    for epoch in (3, 4, 5):
        file = f"evidence/epoch-{epoch}.jsonl"
        records = [json.loads(line) for line in (given / file).read_bytes().splitlines()]

        def changed_lines(records: list[Any] = records) -> Iterator[Change]:
            for what, changed in changes(records):
                if what.endswith("without trial"):  # it was 1, which is what a record without it has: the same record
                    continue
                yield what, b"".join(canonical(record) + b"\n" for record in changed)
            yield "swapped", b"".join(canonical(record) + b"\n" for record in [records[1], records[0], *records[2:]])
            yield "twice", b"".join(canonical(record) + b"\n" for record in [*records, records[-1]])

        assert len(all_refused(given, file, {"evidence"}, tried(changed_lines()))) > depth(10, 30)


@pytest.mark.no_cover
def test_every_cell_of_parquet(exported: Path, tmp_path: Path) -> None:
    given = exported / "columns"
    for epoch in (4, 5):
        file = f"evidence/epoch-{epoch}.parquet"
        table = pq.read_table(given / file)

        def changed_tables(table: pa.Table = table) -> Iterator[Change]:
            target = tmp_path / "changed.parquet"
            for name in table.column_names:
                column = table.column(name).to_pylist()
                for at, value in enumerate(column):
                    cells = [*column[:at], flipped(value), *column[at + 1 :]]
                    changed = table.set_column(
                        table.column_names.index(name), name, pa.array(cells, table.schema.field(name).type)
                    )
                    pq.write_table(changed, target)
                    yield f"{name} {at}", target.read_bytes()
            for at in range(len(table)):
                pq.write_table(pa.concat_tables([table.slice(0, at), table.slice(at + 1)]), target)
                yield f"without row {at}", target.read_bytes()

        assert len(all_refused(given, file, {"evidence"}, tried(changed_tables()))) > depth(10, 30)


def envelopes(envelope: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """A DSSE envelope with each value in it, and in what it carries, changed."""
    payload = json.loads(base64.b64decode(envelope["payload"]))
    for what, changed in changes(payload):
        yield f"payload {what}", envelope | {"payload": base64.b64encode(canonical(changed)).decode()}
    signature = base64.b64decode(envelope["signatures"][0]["sig"])
    for at in range(len(signature)):
        changed = signature[:at] + bytes([signature[at] ^ 1]) + signature[at + 1 :]
        yield f"sig {at}", put(envelope, ("signatures", 0, "sig"), base64.b64encode(changed).decode())
    yield "keyid", put(envelope, ("signatures", 0, "keyid"), flipped(envelope["signatures"][0]["keyid"]))
    yield "type", envelope | {"payloadType": flipped(envelope["payloadType"])}
    yield "no signature", envelope | {"signatures": []}


def test_every_batch(exported: Path) -> None:
    given = exported / "bundle"
    lines = (given / "batches.jsonl").read_bytes().splitlines()
    assert len(lines) == 9

    def changed_batches() -> Iterator[Change]:
        for at, line in enumerate(lines):
            document = json.loads(line)
            some = [
                (what, document | {"envelope": envelope})
                for what, envelope in envelopes(document["envelope"])
                if at == 0 or "sig" not in what
            ]
            some += [(f"members {what}", document | {"members": members}) for what, members in changes(document["members"])]
            for what, changed in some:
                text = b'{"envelope":%b,"members":%b}' % (canonical(changed["envelope"]), canonical(changed["members"]))
                yield f"{at} {what}", b"\n".join([*lines[:at], text, *lines[at + 1 :], b""])
            yield f"{at} left out", b"\n".join([*lines[:at], *lines[at + 1 :], b""])
            yield f"{at} cut off", b"\n".join([*lines[:at], line[:-1], *lines[at + 1 :], b""])

    assert len(all_refused(given, "batches.jsonl", {"signatures"}, tried(changed_batches()))) > depth(30, 200)


def receipts(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """A receipt with each value changed, and the stage at which that shows."""
    for what, changed in envelopes(document["envelope"]):
        yield "receipt", what, document | {"envelope": changed}
    yield "receipt", "schema", document | {"schema": "assay.receipt/2"}
    for name in document:
        yield "receipt", f"without {name}", {key: value for key, value in document.items() if key != name}
    lines = document["proof"].split("\n")
    for at, line in enumerate(lines[:-1]):
        changed = lines[:at] + ([flipped(line)] if "index" not in line else ["index 7"]) + lines[at + 1 :]
        yield "log", f"line {at} of the proof", document | {"proof": "\n".join(changed)}
        yield "log", f"without line {at}", document | {"proof": "\n".join(lines[:at] + lines[at + 1 :])}
        if at > 1 and line and not line.startswith("—") and at != lines.index("") + 1 and not line.isdigit():
            data = base64.b64decode(line)
            for byte in range(len(data)):
                other = base64.b64encode(data[:byte] + bytes([data[byte] ^ 0x80]) + data[byte + 1 :]).decode()
                yield "log", f"line {at} byte {byte}", document | {"proof": "\n".join([*lines[:at], other, *lines[at + 1 :]])}


def test_every_receipt(exported: Path) -> None:
    given = exported / "bundle"
    for epoch, stage in ((5, ""), (4, "chain"), (3, "chain")):
        file = f"receipts/epoch-{epoch}.receipt"
        whole = json.loads((given / file).read_bytes())
        for wanted, what, changed in tried(receipts(whole)):
            error = refused(given, file, canonical(changed) + b"\n")
            assert error is not None, what
            assert error.stage == (stage or wanted), (what, str(error))


def test_receipts_that_are_swapped_left_out_or_too_many(exported: Path, tmp_path: Path) -> None:
    given = Path(shutil.copytree(exported / "bundle", tmp_path / "bundle"))
    folder = given / "receipts"
    three, four = (folder / f"epoch-{epoch}.receipt" for epoch in (3, 4))
    for receipt, other in ((three, four), (four, three)):
        error = refused(given, f"receipts/{receipt.name}", other.read_bytes())
        assert error is not None
        assert error.stage == "chain"
    for path, name in ((three, "epoch-3.gone"), (four, "epoch-0.receipt"), (four, "x.receipt")):
        path.rename(folder / name)
        with pytest.raises(Refused) as refusal:
            verify(given, key=KEY)
        assert refusal.value.stage == "chain"
        (folder / name).rename(path)
    assert verify(given, key=KEY).recomputed


@pytest.mark.parametrize(
    "name", ["inputs.json", "previous.json", "settlement.json", "batches.jsonl", "evidence/epoch-3.jsonl", "log/checkpoint"]
)
def test_files_that_are_missing_empty_or_not_json(name: str, exported: Path, tmp_path: Path) -> None:
    given = Path(shutil.copytree(exported / "bundle", tmp_path / "bundle"))
    stages = {
        "inputs": "inputs",
        "previous": "chain",
        "settlement": "settlement",
        "batches": "signatures",
        "evidence": "evidence",
        "log": "log",
    }
    stage = stages[name.partition(".")[0].partition("/")[0]]
    for data in (b"", b"\xff", b"[]", b"{}", b"[" * 5000, b"null", b'"\\ud800"', b'{"a":1,"a":2}', None):
        path = given / name
        whole = path.read_bytes()
        path.unlink() if data is None else path.write_bytes(data)
        if data is None and name == "inputs.json":
            path.write_bytes(whole)
            continue
        with pytest.raises(Refused) as refusal:
            verify(given, key=KEY)
        assert refusal.value.stage == stage, data
        path.write_bytes(whole)


def test_evidence_that_is_too_much(exported: Path, tmp_path: Path) -> None:
    given = Path(shutil.copytree(exported / "bundle", tmp_path / "bundle"))
    for name in ("epoch-6.jsonl", "epoch-5.parquet", "notes.txt", "epoch-05.jsonl", "epoch-x.jsonl"):
        (given / "evidence" / name).write_bytes(b"")
        with pytest.raises(Refused) as refusal:
            verify(given, key=KEY)
        assert refusal.value.stage == "evidence"
        (given / "evidence" / name).unlink()
