"""Every value that a bundle holds, changed one at a time: verify fails, and names the stage and whose it is."""

import base64
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ledger_kit
from assay.errors import Refused
from assay.exact import canonical
from assay.ledger import bundle, note, settling, tiles
from assay.ledger.check import leaf_hash
from assay.ledger.merkle import root
from assay.ledger.verify import STAGES, verify
from assay.ledger.verify.receipts import log_of
from assay.ledger.verify.report import or_null

KEY = str(ledger_kit.KEY)
Path_ = tuple[str | int, ...]
Change = tuple[str, bytes]
"""What was changed, and the bytes of the file then."""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three epochs of a small competition, the last of them exported."""
    place = ledger_kit.made(tmp_path_factory.mktemp("tamper") / "small", tasks_txt="t1\n")
    for epoch, outcome in ((3, "pass"), (4, "fail"), (5, "pass")):
        changes = {"task": "t1", "image": "sha256:i"} if epoch == 4 else {"task": "t1"}
        found = ledger_kit.records(epoch=epoch, outcome=outcome, trial=1, **changes)
        ledger_kit.add(place, [one for at, one in enumerate(found) if at % 2 == 0 or epoch == 5])
        with ledger_kit.opened(place) as ledger:
            settling.settle(ledger, ledger_kit.SIGNER)
    with ledger_kit.opened(place) as ledger:
        bundle.export(ledger, 5, place / "bundle")
        bundle.export(ledger, 5, place / "columns", as_parquet=True)
    return place


def flipped(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if value is None:
        return "x"
    return value[:-1] + ("1" if value[-1] == "0" else "0") if value else "x"


def leaves(value: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Every value in a document that is no object or list."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not isinstance(value, dict | list):
        yield path, value
    for key, inner in pairs:
        yield from leaves(inner, (*path, key))


def holders(value: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Every object and list in a document that holds something."""
    if isinstance(value, dict | list) and value:
        yield path, value
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from holders(inner, (*path, key))


def put(document: Any, path: Path_, value: Any) -> Any:
    """A copy of the document with another value at the path."""
    if not path:
        return value
    copy: Any = dict(document) if isinstance(document, dict) else list(document)
    copy[path[0]] = put(document[path[0]], path[1:], value)
    return copy


def changes(document: Any) -> Iterator[tuple[str, Any]]:
    """The document with each value changed, each field and each row left out, and a field too many."""
    for path, value in leaves(document):
        yield f"{path}", put(document, path, flipped(value))
    for path, holder in holders(document):
        if isinstance(holder, dict):
            for name in holder:
                yield f"{path} without {name}", put(document, path, {key: one for key, one in holder.items() if key != name})
        else:
            for at in range(len(holder)):
                yield f"{path} without number {at}", put(document, path, [one for index, one in enumerate(holder) if index != at])


def refused(given: Path, file: str, data: bytes) -> Refused | None:
    """What verify says of a bundle in which a file has other bytes."""
    path = given / file
    beside = path.rename(given.parent / "beside")  # a new file is quicker than one cut down to nothing and written again
    path.write_bytes(data)
    try:
        verify(given, key=KEY)
    except Refused as error:
        return error
    finally:
        beside.replace(path)
    return None


def all_refused(given: Path, file: str, stages: set[str], found: Iterator[Change]) -> dict[str, Refused]:
    """Every change of the file is refused at one of the stages; what each was refused with."""
    whole, errors, slipped = (given / file).read_bytes(), {}, []
    for what, data in found:
        if data == whole:
            continue
        error = refused(given, file, data)
        if error is None or error.stage not in stages:
            slipped.append((what, None if error is None else str(error)))
            continue
        errors[what] = error
        assert not re.search(rf": ({'|'.join(STAGES)}): ", str(error)), f"a stage is named twice: {error}"
        if error.stage != "chain" and error.expected is not None:
            assert error.expected != error.found, what
    assert slipped == []
    return errors


def as_json(given: Path, file: str) -> Iterator[Change]:
    document = json.loads((given / file).read_bytes())
    return ((what, canonical(changed) + b"\n") for what, changed in changes(document))


def test_the_whole_bundle_is_right(exported: Path) -> None:
    for name in ("bundle", "columns"):
        found = verify(exported / name, key=KEY)
        assert found.recomputed
        assert [one.stage for one in found.checked if one.done] == [
            *("receipt", "log", "log", "chain", "evidence", "signatures", "inputs", "settlement", "results")
        ]


def test_inputs(exported: Path) -> None:
    given = exported / "bundle"
    assert len(all_refused(given, "inputs.json", {"inputs"}, as_json(given, "inputs.json"))) > 80


def test_the_settlement_before(exported: Path) -> None:
    given = exported / "bundle"
    assert len(all_refused(given, "previous.json", {"chain"}, as_json(given, "previous.json"))) > 150


def test_the_settlement(exported: Path) -> None:
    given = exported / "bundle"
    errors = all_refused(given, "settlement.json", {"settlement"}, as_json(given, "settlement.json"))
    assert len(errors) > 200
    document = json.loads((given / "settlement.json").read_bytes())
    for path, value in leaves(document):
        if path[0] in ("agreed", "weights") and path[2:] != ("participant",):
            error = errors[f"{path}"]
            assert error.participant == document[path[0]][path[1]]["participant"]
            assert (error.expected, error.found) == (or_null(value), flipped(value))


def test_every_field_of_every_record(exported: Path) -> None:
    given = exported / "bundle"
    for epoch in (3, 4, 5):
        file = f"evidence/epoch-{epoch}.jsonl"
        records = [json.loads(line) for line in (given / file).read_bytes().splitlines()]

        def found(records: list[Any] = records) -> Iterator[Change]:
            for what, changed in changes(records):
                if what.endswith("without trial"):  # it was 1, which is what a record without it has: the same record
                    continue
                yield what, b"".join(canonical(one) + b"\n" for one in changed)
            yield "swapped", b"".join(canonical(one) + b"\n" for one in [records[1], records[0], *records[2:]])
            yield "twice", b"".join(canonical(one) + b"\n" for one in [*records, records[-1]])

        assert len(all_refused(given, file, {"evidence"}, found())) > 30


def test_every_cell_of_parquet(exported: Path, tmp_path: Path) -> None:
    given = exported / "columns"
    for epoch in (4, 5):
        file = f"evidence/epoch-{epoch}.parquet"
        table = pq.read_table(given / file)

        def found(table: pa.Table = table) -> Iterator[Change]:
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

        assert len(all_refused(given, file, {"evidence"}, found())) > 30


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

    def found() -> Iterator[Change]:
        for at, line in enumerate(lines):
            document = json.loads(line)
            some = [
                (what, document | {"envelope": one})
                for what, one in envelopes(document["envelope"])
                if at == 0 or "sig" not in what
            ]
            some += [(f"members {what}", document | {"members": one}) for what, one in changes(document["members"])]
            for what, changed in some:
                text = b'{"envelope":%b,"members":%b}' % (canonical(changed["envelope"]), canonical(changed["members"]))
                yield f"{at} {what}", b"\n".join([*lines[:at], text, *lines[at + 1 :], b""])
            yield f"{at} left out", b"\n".join([*lines[:at], *lines[at + 1 :], b""])
            yield f"{at} cut off", b"\n".join([*lines[:at], line[:-1], *lines[at + 1 :], b""])

    assert len(all_refused(given, "batches.jsonl", {"signatures"}, found())) > 200


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
        for wanted, what, changed in receipts(whole):
            error = refused(given, file, canonical(changed) + b"\n")
            assert error is not None, what
            assert error.stage == (stage or wanted), (what, str(error))


def test_receipts_that_are_swapped_left_out_or_too_many(exported: Path, tmp_path: Path) -> None:
    given = Path(shutil.copytree(exported / "bundle", tmp_path / "bundle"))
    folder = given / "receipts"
    three, four = (folder / f"epoch-{epoch}.receipt" for epoch in (3, 4))
    for one, other in ((three, four), (four, three)):
        error = refused(given, f"receipts/{one.name}", other.read_bytes())
        assert error is not None
        assert error.stage == "chain"
    for path, name in ((three, "epoch-3.gone"), (four, "epoch-0.receipt"), (four, "x.receipt")):
        path.rename(folder / name)
        with pytest.raises(Refused) as found:
            verify(given, key=KEY)
        assert found.value.stage == "chain"
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
        with pytest.raises(Refused) as found:
            verify(given, key=KEY)
        assert found.value.stage == stage, data
        path.write_bytes(whole)


def test_evidence_that_is_too_much(exported: Path, tmp_path: Path) -> None:
    given = Path(shutil.copytree(exported / "bundle", tmp_path / "bundle"))
    for name in ("epoch-6.jsonl", "epoch-5.parquet", "notes.txt", "epoch-05.jsonl", "epoch-x.jsonl"):
        (given / "evidence" / name).write_bytes(b"")
        with pytest.raises(Refused) as found:
            verify(given, key=KEY)
        assert found.value.stage == "evidence"
        (given / "evidence" / name).unlink()


def flips(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The bytes of a tile with a bit of each hash changed, cut off, and grown."""
    for at in range(0, len(data), tiles.HASH):
        place = at + at // tiles.HASH % tiles.HASH
        yield f"hash {at // tiles.HASH}", data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
    yield "cut off", data[:-1]
    yield "grown", data + bytes(tiles.HASH)


def test_every_hash_and_entry_of_the_log(exported: Path) -> None:
    given = exported / "bundle"
    files = [str(path.relative_to(given)) for path in sorted((given / "log").rglob("*")) if path.is_file()]
    assert files == ["log/checkpoint", "log/tile/0/000.p/3", "log/tile/entries/000.p/3"]
    assert len(all_refused(given, files[1], {"log"}, flips((given / files[1]).read_bytes()))) == 5
    entries = (given / files[2]).read_bytes()
    every: Iterator[Change] = (
        (str(at), entries[:at] + bytes([entries[at] ^ 1]) + entries[at + 1 :]) for at in range(len(entries))
    )
    assert len(all_refused(given, files[2], {"log"}, every)) == len(entries)
    checkpoint = (given / files[0]).read_bytes()
    each: Iterator[Change] = (
        (str(at), checkpoint[:at] + bytes([checkpoint[at] ^ 1]) + checkpoint[at + 1 :]) for at in range(len(checkpoint))
    )
    assert len(all_refused(given, files[0], {"log"}, each)) == len(checkpoint)


@pytest.fixture(scope="module")
def long_log(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Callable[[int], bytes]]:
    """A log of 700 entries: full tiles, partial ones, two levels."""
    place = tmp_path_factory.mktemp("long") / "log"
    entries = [number.to_bytes(32, "big") for number in range(700)]

    def checkpoint(size: int) -> bytes:
        top = root([leaf_hash(one) for one in entries[:size]])
        return note.sign_checkpoint(size, top, ledger_kit.KEY, ledger_kit.SIGNER)

    for path, data in bundle.log_files(entries, checkpoint(700)).items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(data)
    return place, checkpoint


def test_every_hash_of_every_tile_of_a_long_log(long_log: tuple[Path, Callable[[int], bytes]]) -> None:
    from assay.ledger.check import check_checkpoint
    from assay.ledger.verify import Verified

    place, checkpoint = long_log
    now = check_checkpoint(checkpoint(400), [ledger_kit.KEY])
    assert log_of(place, ledger_kit.KEY, now, Verified(), whole=True).size == 700
    count = 0
    for path in sorted((place / "tile").rglob("*")):
        if not path.is_file() or "entries" in path.parts:
            continue
        whole = path.read_bytes()
        for what, data in flips(whole):
            path.write_bytes(data)
            with pytest.raises(Refused) as found:
                log_of(place, ledger_kit.KEY, now, Verified(), whole=True)
            assert found.value.stage == "log", what
            assert str(path.relative_to(place)) in str(found.value.file) or what in ("grown", "cut off"), (what, found.value)
            count += 1
        path.write_bytes(whole)
    assert count == 700 + 2 + 2 * 4


def test_a_log_that_was_rolled_back_or_forked(exported: Path, tmp_path: Path) -> None:
    given = Path(shutil.copytree(exported / "bundle", tmp_path / "bundle"))
    entries = [bytes([number]) * 32 for number in range(3)]
    for size in (0, 2, 3):
        shutil.rmtree(given / "log")
        top = root([leaf_hash(one) for one in entries[:size]])
        for path, data in bundle.log_files(
            entries[:size], note.sign_checkpoint(size, top, ledger_kit.KEY, ledger_kit.SIGNER)
        ).items():
            (given / "log" / path).parent.mkdir(parents=True, exist_ok=True)
            (given / "log" / path).write_bytes(data)
        with pytest.raises(Refused, match="was forked" if size == 3 else "was rolled back") as found:
            verify(given, key=KEY)
        assert found.value.stage == "log"
