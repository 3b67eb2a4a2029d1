"""The work of the crash tests' workers on a ledger until they are killed, and what they report to have done."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import ledger_kit
from assay.ledger import access, bundle, check, config, intake, settling
from assay.ledger import log as note
from assay.ledger.access import Ledger, open_ledger
from assay.ledger.audit import audit, audit_receipts
from assay.ledger.batch import Batch
from assay.ledger.exchange import import_bundle
from assay.ledger.log import Log
from assay.ledger.merkle import Tree
from assay.ledger.store import Submission
from ledger_kit import KEY, ORIGIN, SIGNER, V2

Json = Any
Say = Callable[..., None]
FIRST = 3
"""The first epoch."""
CYCLES = 100
"""After so many a worker waits for its end: it does not outlive a test run that has gone."""
FILES = {
    *("open", "close", "fsync", "mkdir", "rename", "replace", "unlink", "rmdir", "write", "flock"),
    *("BufferedWriter.write", "BufferedWriter.flush"),
}
DATABASE = {"do_execute", "do_executemany", "do_commit", "rows_of"}
"""The calls between which a worker is killed: of the file system, and to the database, by SQLAlchemy or past it."""


def found_in(place: Path, epoch: int) -> list[Batch]:
    """The batches of an epoch: everybody's, one record again in another batch, and one record that says something else."""
    everybody = [record | {"submission": f"{record['submission']}-{epoch}"} for record in ledger_kit.records(epoch=epoch)]
    again = everybody[:1]
    other = [next(record for record in everybody if record["validator"] == V2) | {"outcome": "fail"}]
    return [batch for some in (everybody, again, other) for batch in ledger_kit.batches(place, some)]


def create_ledger(place: Path, database: str) -> None:
    """A ledger whose participants hand in something new in each epoch."""
    people = "key,uid,name,submission,submitted_at,last_reset_epoch,address\nm1,1,,,,,\nm2,2,,,,,\n"
    ledger_kit.ledger_folder(place, database=database, participants_csv=people)
    (place.parent / "exported").mkdir()


RECORDS, CONFLICTS, BATCHES = 13, 1, 5
"""The numbers that an epoch has in the end."""


def cycle(ledger: Ledger, epoch: int, say: Say) -> None:
    """Take in, settle, export; what was done before may be done again."""
    say("begun", epoch)
    terms = intake.intake_rules(ledger.folder)
    for participant, submission in (("m1", f"s1-{epoch}"), ("m2", f"s2-{epoch}")):
        with ledger.store.writing() as tx:
            if participant not in (held := tx.submissions()) or held[participant].epoch < epoch:
                tx.add_submission(Submission(participant, submission, epoch))
        say("submission", epoch, participant, submission)
    for batch in found_in(ledger.folder, epoch):
        accepted = intake.accept(ledger.store, batch, terms)
        assert accepted.new + accepted.known == len(batch.records)
        say("batch", epoch, batch.digest)
    settled = settling.settle(ledger, SIGNER, epoch)
    assert settled.receipt is not None
    assert settled.settlement.ranking == ["m1", "m2"]
    say("settled", epoch, settled.settlement.digest, settled.receipt.digest)
    target = exported(ledger.folder, epoch)
    if not target.exists():
        bundle.export(ledger, epoch, target)
    say("exported", epoch)


def exported(place: Path, epoch: int) -> Path:
    return place.parent / "exported" / f"epoch-{epoch}"


def work(place: str, notes: str, last_step: int | None, cycles: int = CYCLES) -> None:
    """One cycle after the other, from the epoch after the last; at step `last_step` killed, or by somebody else."""
    say = teller(Path(notes))
    if last_step is not None:
        _die_at(last_step)
    with open_ledger(place) as ledger:
        with ledger.store.reading() as view:
            last = view.last_receipt()
        first = FIRST if last is None else last.epoch + 1
        for epoch in range(first, first + cycles):
            begun = time.monotonic()
            cycle(ledger, epoch, say)
            say("cycle", time.monotonic() - begun)
    if cycles == CYCLES:
        signal.pause()


def publish(place: str, notes: str, last_step: int, size: int) -> None:
    """Bring a log up to so many entries, one by one."""
    _die_at(last_step)
    log, say = Log(Path(place), KEY), teller(Path(notes))
    for number in range(log.size + 1, size + 1):
        log.publish(checkpoint(number), number - 1, entries(number)[-1:])
        say(number)


def entries(size: int) -> list[bytes]:
    return [number.to_bytes(32, "big") for number in range(size)]


def checkpoint(size: int) -> bytes:
    return note.sign_checkpoint(size, Tree(list(map(check.leaf_hash, entries(size)))).root(), KEY, SIGNER)


def init(place: str, last_step: int, database: str) -> None:
    """Give a competition a ledger."""
    _die_at(last_step)
    access.make_ledger(Path(place), ORIGIN, SIGNER, database=database)


def init_again(place: str, database: str) -> None:
    """Do what was begun, and look at what it made."""
    if not config.exists(Path(place)):
        access.make_ledger(Path(place), ORIGIN, SIGNER, database=database)
    with open_ledger(place) as ledger:
        assert ledger.log.size == 0
        assert ledger.store.meta.key == str(KEY)
        assert audit(ledger.store).records == 0


def bring_in(place: str, last_step: int, source: str) -> None:
    """Import a bundle into a copy of its ledger."""
    _die_at(last_step)
    with open_ledger(place) as ledger:
        import_bundle(ledger, Path(source))


def bring_in_again(place: str, source: str) -> None:
    """The bundle is all in the ledger, or not at all; then all of it."""
    Log(Path(place) / "log", KEY).check()
    with open_ledger(place) as ledger:
        with ledger.store.writing() as tx:
            there = tx.last_receipt() is not None
            assert (tx.count(), len(list(tx.batches()))) == ((RECORDS, BATCHES) if there else (0, 0))
        assert ledger.log.size == there
        assert (import_bundle(ledger, Path(source)).batches == 0) == there
        assert (audit(ledger.store).records, audit_receipts(ledger)) == (RECORDS, 1)


def teller(path: Path) -> Say:
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def say(*what: object) -> None:
        os.write(number, json.dumps(what).encode() + b"\n")

    return say


def heard(path: Path) -> list[list[Any]]:
    """The reports of a worker, in order."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def _die_at(last: int) -> None:
    """Be killed before step number `last` from now on."""

    def counted(name: str) -> None:
        nonlocal last
        last -= 1
        if last == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    _each_step(counted)


def _each_step(call: Callable[[str], None]) -> None:
    """Call with the name of each step, or with its SQL, before it is done."""

    def step(frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call" and function.__qualname__ in FILES:
            call(function.__qualname__)
        elif event == "call" and frame.f_code.co_name in DATABASE:
            call(frame.f_locals.get("statement", frame.f_code.co_name))

    sys.setprofile(step)


def steps_of(place: str, notes: str) -> list[str]:
    """One cycle, in which steps."""
    steps: list[str] = []
    _each_step(steps.append)
    work(place, notes, None, 1)
    sys.setprofile(None)
    return steps
