"""Checks of a ledger after its worker was killed: what must be true of it, and that work begun can be finished."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cli_kit
from assay.ledger import check, settling
from assay.ledger.access import Ledger, open_ledger
from assay.ledger.log import Log
from assay.ledger.verify import verify
from crash_work import BATCHES, CONFLICTS, FIRST, RECORDS, checkpoint, cycle, entries, exported, heard, teller
from ledger_kit import KEY


def look_at_log(place: str, notes: str, seen: str, size: int) -> None:
    """The log is whole, has what was acknowledged, and goes on."""
    log = Log(Path(place), KEY)
    log.check()
    keep_seen(log, Path(seen))
    assert log.size >= max((note[0] for note in heard(Path(notes))), default=0)
    assert list(log.entries()) == entries(log.size)
    log.publish(checkpoint(size), log.size, entries(size)[log.size :])
    log.check()
    keep_seen(log, Path(seen))
    assert not list(log.folder.rglob(".*"))


def look(place: str, notes: str, seen: str) -> None:
    """Everything that was acknowledged is there once, whatever else; and what was begun can be finished."""
    folder, acknowledged = Path(place), heard(Path(notes))
    raw = Log(folder / "log", KEY)  # as the crash left it: a checkpoint that the tiles prove, all of them
    raw.check()
    keep_seen(raw, Path(seen))
    with open_ledger(folder) as ledger, ledger.store.writing():
        pass  # where a server still carries out what the dead one asked for, this waits for it
    with open_ledger(folder) as ledger:
        _kept(ledger, acknowledged)
        keep_seen(ledger.log, Path(seen))
        begun = max((note[1] for note in acknowledged if note[0] == "begun"), default=FIRST)
        cycle(ledger, begun, teller(Path(notes)))
        with ledger.store.reading() as view:
            assert view.count(begun, begun) == RECORDS
            assert view.count() == view.last_seq() == RECORDS * (begun - FIRST + 1)
            assert len(list(view.conflicts(begun, begun))) == CONFLICTS
            assert len(list(view.batches(begun, begun))) == BATCHES
        keep_seen(ledger.log, Path(seen))
    said_so = cli_kit.output("ledger", "check", folder)
    assert f"{RECORDS * (begun - FIRST + 1)} records" in said_so
    earliest = min(Path(seen).iterdir())
    verified = verify(exported(folder, begun), key=str(KEY), checkpoint=earliest)
    assert verified.recomputed
    assert verified.receipt["epoch"] == begun
    assert not list((folder / "log").rglob(".*")), "what a dead writer left in the log goes with the next append"


def _kept(ledger: Ledger, acknowledged: Sequence[list[Any]]) -> None:
    with ledger.store.reading() as view:
        records = list(view.records())
        assert [record.seq for record in records] == list(range(1, len(records) + 1))
        assert len({record.digest for record in records}) == len(records)
        receipts = list(view.receipts())
        assert [receipt.position for receipt in receipts] == list(range(len(receipts)))
        for kind, *what in acknowledged:
            if kind == "batch":
                epoch, digest = what
                (batch,) = view.named(digest)
                assert batch.epoch == epoch
                assert sum(last - first + 1 for first, last in batch.members) == batch.count
            elif kind == "settled":
                epoch, settlement, receipt = what
                kept, there = view.settlement(epoch), view.receipt(epoch)
                assert kept is not None
                assert there is not None
                assert (kept.digest, there.digest) == (settlement, receipt)
            elif kind == "submission":
                epoch, participant, submission = what
                assert view.submissions(epoch)[participant].submission == submission
            elif kind == "exported":
                assert exported(ledger.folder, what[0]).is_dir()
    assert list(ledger.log.entries()) == [bytes.fromhex(receipt.digest[7:]) for receipt in receipts]
    ledger.log.check()
    for path in exported(ledger.folder, 0).parent.glob("epoch-*"):
        if ["exported", int(path.name[6:])] not in acknowledged:  # whole, though nobody was told
            verify(path, key=str(KEY))


def keep_seen(log: Log, seen: Path) -> None:
    """Keep the log's checkpoint, which must go on from the last one that was seen."""
    seen.mkdir(exist_ok=True)
    before = sorted(seen.iterdir())
    if before:
        old, new = check.check_checkpoint(before[-1].read_bytes(), [KEY]), log.checkpoint
        check.check_consistency(old.size, old.root, new.size, new.root, log.consistency(old.size))
    (seen / f"{len(before):06}").write_bytes(log.note)


def look_whole(place: str, seen: str) -> None:
    """At the end: every epoch comes out again, and the log goes on from every checkpoint ever seen."""
    with open_ledger(place) as ledger:
        for path in sorted(Path(seen).iterdir()):
            ledger.log.check_against(check.check_checkpoint(path.read_bytes(), [KEY]))
        assert len(list(settling.replay(ledger))) == ledger.log.size > 0
