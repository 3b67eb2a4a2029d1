"""An epoch as files: written whole or not at all, and back into another ledger without losing anything."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ledger_kit
import small_folder
from assay.errors import AssayError, BadInput, CannotSettle, Refused
from assay.exact import canonical
from assay.folder import files
from assay.ledger import bundle, evidence, settling
from assay.ledger.audit import audit
from assay.ledger.exchange import ImportedEpoch, import_bundle
from assay.ledger.verify import verify
from assay.ledger.verify.recompute import records_about
from assay.records import record
from cli_kit import files_under
from ledger_kit import SIGNER, V1

KEY = str(ledger_kit.KEY)


def settled(place: Path, kind: str = "tests", epochs: tuple[int, ...] = (3, 4)) -> Path:
    """A competition with settled epochs; some evidence of the last one came before the last but one was settled."""
    ledger_kit.ledger_folder(place, kind)
    for epoch in epochs:
        ledger_kit.add(place, ledger_kit.records(kind, epoch=epoch))
        if epoch == epochs[0] and kind == "tests":
            ledger_kit.add(place, ledger_kit.records(kind, epoch=epochs[-1], validators=[V1], trial=2))
            again = ledger_kit.records(kind, epoch=epoch, validators=[V1])
            ledger_kit.add(place, [*again[:2], *ledger_kit.records(kind, epoch=epoch, validators=[V1], trial=3)])
            ledger_kit.add(place, ledger_kit.records(kind, epoch=epoch, validators=[V1], outcome="fail"))
        with ledger_kit.opened(place) as ledger:
            settling.settle(ledger, SIGNER, epoch, skip=True)
    return place


def exported(place: Path, epoch: int, target: Path, *, as_parquet: bool = False) -> Path:
    with ledger_kit.opened(place) as ledger:
        return bundle.export(ledger, epoch, target, as_parquet=as_parquet)


def content(place: Path) -> list[Any]:
    with ledger_kit.opened(place) as ledger, ledger.store.reading() as view:
        epochs = [receipt.epoch for receipt in view.receipts()]
        return [
            sorted(view.records()),
            sorted((batch.digest, batch.validator, batch.count, batch.envelope, batch.members) for batch in view.batches()),
            list(view.receipts()),
            [view.settlement(epoch) for epoch in epochs],
            [view.inputs(settlement.inputs) for epoch in epochs if (settlement := view.settlement(epoch))],
            sorted(conflict.record.seq for conflict in view.conflicts()),
        ]


@pytest.mark.parametrize("as_parquet", [False, True])
def test_a_round_trip_loses_nothing(as_parquet: bool, database: str, tmp_path: Path) -> None:
    place = settled(tmp_path / "small", epochs=(3, 4, 9))
    copy = ledger_kit.ledger_folder(tmp_path / "copy", database=database)
    for epoch in (3, 4, 9):
        source = exported(place, epoch, tmp_path / f"epoch-{epoch}", as_parquet=as_parquet)
        with ledger_kit.opened(copy) as ledger:
            assert import_bundle(ledger, source).records > 0
            assert import_bundle(ledger, source) == ImportedEpoch(epoch, 0, 0, new=False)
    assert content(copy) == content(place)
    assert files_under(copy / "log") == files_under(place / "log")
    with ledger_kit.opened(copy) as ledger:
        assert len(list(settling.replay(ledger))) == 3
    for epoch in (3, 9):
        again = exported(copy, epoch, tmp_path / f"again-{epoch}", as_parquet=as_parquet)
        assert files_under(again) == files_under(tmp_path / f"epoch-{epoch}")


@pytest.mark.parametrize("as_parquet", [False, True])
def test_the_folders_of_an_archive_are_the_bundle_in_parts(as_parquet: bool, tmp_path: Path) -> None:
    place = settled(tmp_path / "small", epochs=(3, 4, 9))
    whole = files_under(exported(place, 9, tmp_path / "bundle", as_parquet=as_parquet))
    parts: dict[str, bytes] = {}
    batches = b""
    with ledger_kit.opened(place) as ledger:
        for epoch in (3, 4, 9):
            folder = tmp_path / str(epoch)
            folder.mkdir()
            bundle.write_epoch(ledger, ledger.receipt(epoch), folder, as_parquet=as_parquet)
            files = files_under(folder)
            batches += files.pop(bundle.BATCHES)
            if epoch == 4:
                parts[bundle.PREVIOUS] = files[bundle.SETTLEMENT]
            for name, data in files.items():
                inner = bundle.RECEIPTS if name.endswith(".receipt") else bundle.EVIDENCE
                parts[name if name in (bundle.INPUTS, bundle.SETTLEMENT) else f"{inner}/{name}"] = data
    parts[bundle.BATCHES] = batches
    assert parts == {name: data for name, data in whole.items() if not name.startswith(bundle.LOG)}


@pytest.mark.full
@pytest.mark.no_cover
def test_what_an_import_flags_follows_the_order_of_acceptance(database: str, tmp_path: Path) -> None:
    """Evidence of epoch 4 came before what contradicts it in epoch 3, which is imported first."""
    place = ledger_kit.ledger_folder(tmp_path / "small")
    ledger_kit.add(place, ledger_kit.records(epoch=4, validators=[V1], outcome="fail"))
    for epoch in (3, 4):
        ledger_kit.add(place, ledger_kit.records(epoch=epoch))
        with ledger_kit.opened(place) as ledger:
            settling.settle(ledger, SIGNER, epoch)
    copy = ledger_kit.ledger_folder(tmp_path / "copy", database=database)
    flagged = []
    for epoch in (3, 4):
        with ledger_kit.opened(copy) as ledger:
            import_bundle(ledger, exported(place, epoch, tmp_path / str(epoch)))
            audit(ledger.store)
            with ledger.store.reading() as view:
                flagged.append([(conflict.record.seq, conflict.first.seq) for conflict in view.conflicts()])
    assert flagged[0] == []
    assert content(copy) == content(place)
    for folder in (place, copy):
        with ledger_kit.opened(folder) as ledger, ledger.store.reading() as view:
            assert flagged[1] == [(conflict.record.seq, conflict.first.seq) for conflict in view.conflicts()]
            assert [conflict.record.seq for conflict in view.conflicts(3, 3)] == [5, 6, 7, 8]
            assert view.conflicting() == {batch.id: 4 for batch in view.batches() if batch.members[0][0] in (5, 17, 21, 25)}
            assert audit(ledger.store).conflicts == len(flagged[1]) == 16


@pytest.mark.sampled(2)
@pytest.mark.no_cover
@pytest.mark.parametrize("kind", sorted(small_folder.SCHEMES))
def test_every_kind_goes_round(kind: str, tmp_path: Path) -> None:
    place = settled(tmp_path / "small", kind)
    copy = ledger_kit.ledger_folder(tmp_path / "copy", kind)
    for epoch in (3, 4):
        source = exported(place, epoch, tmp_path / str(epoch))
        assert verify(source, key=KEY).recomputed
        with ledger_kit.opened(copy) as ledger:
            import_bundle(ledger, source)
    assert content(copy) == content(place)


def test_epochs_are_imported_in_their_order_and_into_their_own_ledger(tmp_path: Path) -> None:
    place = settled(tmp_path / "small")
    three, four = (exported(place, epoch, tmp_path / str(epoch)) for epoch in (3, 4))
    copy, other = ledger_kit.ledger_folder(tmp_path / "copy"), ledger_kit.ledger_folder(tmp_path / "other")
    ledger_kit.add(other, ledger_kit.records(outcome="fail"))
    with ledger_kit.opened(copy) as ledger, pytest.raises(BadInput, match="the ledger has 0 of the 1 epochs before it"):
        import_bundle(ledger, four)
    with ledger_kit.opened(other) as ledger:
        with pytest.raises(BadInput, match="the ledger has evidence of its own of epoch 3 or before"):
            import_bundle(ledger, three)
        settling.settle(ledger, SIGNER)
        with pytest.raises(BadInput, match="its receipt of epoch 3 is not the ledger's"):
            import_bundle(ledger, four)
    (three / "settlement.json").write_bytes(b"{}")
    with ledger_kit.opened(copy) as ledger:
        with pytest.raises(Refused, match="settlement"):
            import_bundle(ledger, three)
        with ledger.store.reading() as view:
            assert view.last_seq() == 0


CHANGED: dict[str, tuple[str, Any]] = {
    "tests": ("outcome", "fail"),
    "workflow": ("quality", "1"),
    "rubric": ("checks", '{"c1":false}'),
    "points": ("valid", 3),
    "given": ("score", "0.6"),
}


@pytest.mark.parametrize("kind", CHANGED)
def test_every_kind_as_parquet_verifies_and_a_changed_row_does_not(kind: str, tmp_path: Path) -> None:
    place = settled(tmp_path / "small", kind, epochs=(3,))
    source = exported(place, 3, tmp_path / "out", as_parquet=True)
    as_lines = exported(place, 3, tmp_path / "lines")
    settlements = [verify(folder, key=KEY).settlement for folder in (source, as_lines)]
    assert settlements[0] is not None
    assert settlements[1] is not None
    assert settlements[0].digest == settlements[1].digest
    about = [records_about(folder, verify(folder, key=KEY), "m1") for folder in (source, as_lines)]
    assert about[0] == about[1] != []
    path = source / "evidence/epoch-3.parquet"
    table = pq.read_table(path)
    name, value = CHANGED[kind]
    at = table.schema.get_field_index(name)
    column = table.column(name).to_pylist()
    assert column[0] != value
    changed = pa.array([value, *column[1:]], table.schema.field(name).type)
    pq.write_table(table.set_column(at, table.schema.field(name), changed), path)
    with pytest.raises(Refused, match="evidence"):
        verify(source, key=KEY)


def test_evidence_of_several_kinds_is_no_parquet(tmp_path: Path) -> None:
    bodies = [canonical(record(small_folder.record(kind)).document()) for kind in ("given", "points", "rubric")]
    for first, second in ((0, 1), (2, 0)):
        with pytest.raises(BadInput, match="of several kinds, and Parquet holds one"):
            evidence.write_parquet(tmp_path / f"{first}.parquet", [(1, bodies[first]), (2, bodies[second])])


def test_what_cannot_be_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = settled(tmp_path / "small", "given")
    with pytest.raises(CannotSettle, match="epoch 7 has no receipt"):
        exported(place, 7, tmp_path / "out")
    (tmp_path / "there").mkdir()
    with pytest.raises(BadInput, match="is there already"):
        exported(place, 3, tmp_path / "there")
    with pytest.raises(BadInput, match="cannot be written"):
        exported(place, 3, tmp_path / "there" / ("x" * 300) / "out")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    trials = settled(tmp_path / "tests", epochs=(3,))
    with pytest.raises(BadInput, match="Parquet is written with pyarrow, which is not installed"):
        exported(trials, 3, tmp_path / "out", as_parquet=True)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("fails", ["write", "flush", "rename"])
def test_an_export_that_fails_leaves_nothing(fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = settled(tmp_path / "small", epochs=(3,))

    def broken(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    target = {"write": (evidence, "write_parquet"), "flush": (files, "flush_folder"), "rename": (os, "rename")}[fails]
    monkeypatch.setattr(*target, broken)
    with pytest.raises(AssayError, match="No space left on device"):
        exported(place, 3, tmp_path / "out" / "epoch", as_parquet=True)
    monkeypatch.undo()
    assert not (tmp_path / "out/epoch").exists() or fails == "flush"
    assert not list((tmp_path / "out").glob(".*"))
    assert verify(exported(place, 3, tmp_path / "out" / "again"), key=KEY).recomputed


@pytest.mark.no_cover
def test_a_stranger_needs_no_database_to_verify(tmp_path: Path) -> None:
    source = exported(settled(tmp_path / "small"), 4, tmp_path / "epoch")
    code = (
        "import sys, socket\n"
        "socket.socket = None\n"
        "import assay\n"
        f"found = assay.verify({str(source)!r}, key={KEY!r})\n"
        "print(found.recomputed, 'sqlalchemy' in sys.modules)\n"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path, timeout=300
    )
    assert completed.stdout.split() == ["True", "False"]
