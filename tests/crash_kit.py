"""Workers for the crash tests: what they do to a ledger until they are killed, and what must be true of it afterwards.

They are forked from a process that has imported everything (`Warm`), so that a kill costs no start of Python. A worker puts down
in a file what has returned, as somebody who was told so would remember it.
"""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import cli_kit
import ledger_kit
from assay.ledger import bundle, check, config, intake, making, note, settling
from assay.ledger.audit import audit, audit_receipts
from assay.ledger.batch import Batch
from assay.ledger.importing import import_bundle
from assay.ledger.log import Log
from assay.ledger.merkle import Tree
from assay.ledger.opened import Ledger, open_ledger
from assay.ledger.store import Submission
from assay.ledger.verify import verify
from ledger_kit import KEY, ORIGIN, SIGNER, V2

__all__ = ["SERIES", "Warm", "every_step", "every_write", "rounds", "warm"]

Json = Any
Say = Callable[..., None]
FIRST = 3
"""The first epoch."""
SERIES = 25
"""Workers that are killed in one ledger."""
CYCLES = 100
"""After so many a worker waits for its end: it does not outlive a test run that has gone."""
WAIT = 300
FILES = {
    *("open", "close", "fsync", "mkdir", "rename", "replace", "unlink", "rmdir", "write", "flock"),
    *("BufferedWriter.write", "BufferedWriter.flush"),
}
DATABASE = {"do_execute", "do_executemany", "do_commit"}
"""The calls between which a worker is killed: of the file system, and SQLAlchemy's to the database."""
WRITES = ("INSERT", "do_commit", "mkdir", "replace", "rename", "unlink", "rmdir")


# What a worker does


def found_in(place: Path, epoch: int) -> list[Batch]:
    """The batches of an epoch: everybody's, one record again in another batch, and one record that says something else."""
    everybody = [one | {"submission": f"{one['submission']}-{epoch}"} for one in ledger_kit.records(epoch=epoch)]
    again = everybody[:1]
    other = [next(one for one in everybody if one["validator"] == V2) | {"outcome": "fail"}]
    return [one for some in (everybody, again, other) for one in ledger_kit.batches(place, some)]


def made(place: Path, database: str) -> None:
    """A ledger whose participants hand in something new in each epoch."""
    people = "key,uid,name,submission,submitted_at,last_reset_epoch,address\nm1,1,,,,,\nm2,2,,,,,\n"
    ledger_kit.made(place, database=database, participants_csv=people)
    (place.parent / "exported").mkdir()


RECORDS, CONFLICTS, BATCHES = 13, 1, 5
"""What an epoch has in the end."""


def cycle(ledger: Ledger, epoch: int, say: Say) -> None:
    """Take in, settle, export; what was done before may be done again."""
    say("begun", epoch)
    terms = intake.terms(ledger.folder)
    for participant, submission in (("m1", f"s1-{epoch}"), ("m2", f"s2-{epoch}")):
        with ledger.store.writing() as tx:
            if participant not in (held := tx.submissions()) or held[participant].epoch < epoch:
                tx.add_submission(Submission(participant, submission, epoch))
        say("submission", epoch, participant, submission)
    for one in found_in(ledger.folder, epoch):
        accepted = intake.accept(ledger.store, one, terms)
        assert accepted.new + accepted.known == len(one.records)
        say("batch", epoch, one.digest)
    made = settling.settle(ledger, SIGNER, epoch)
    assert made.receipt is not None
    assert made.settlement.ranking == ["m1", "m2"]
    say("settled", epoch, made.settlement.digest, made.receipt.digest)
    target = exported(ledger.folder, epoch)
    if not target.exists():
        bundle.export(ledger, epoch, target)
    say("exported", epoch)


def exported(place: Path, epoch: int) -> Path:
    return place.parent / "exported" / f"epoch-{epoch}"


def work(place: str, told: str, last_step: int | None, cycles: int = CYCLES) -> None:
    """One cycle after the other, from the epoch after the last; at step `last_step` killed, or by somebody else."""
    say = _teller(Path(told))
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


def publish(place: str, told: str, last_step: int, size: int) -> None:
    """Bring a log up to so many entries, one by one."""
    _die_at(last_step)
    log, say = Log(Path(place), KEY), _teller(Path(told))
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
    making.make(Path(place), ORIGIN, SIGNER, database=database)


def init_again(place: str, database: str) -> None:
    """Do what was begun, and look at what it made."""
    if not config.exists(Path(place)):
        making.make(Path(place), ORIGIN, SIGNER, database=database)
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


def _teller(path: Path) -> Say:
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def say(*what: object) -> None:
        os.write(number, json.dumps(what).encode() + b"\n")

    return say


def heard(path: Path) -> list[list[Any]]:
    """What a worker said, in order."""
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


# What must be true afterwards


def look_at_log(place: str, told: str, seen: str, size: int) -> None:
    """The log is whole, has what was acknowledged, and goes on."""
    log = Log(Path(place), KEY)
    log.check()
    keep_seen(log, Path(seen))
    assert log.size >= max((one[0] for one in heard(Path(told))), default=0)
    assert list(log.entries()) == entries(log.size)
    log.publish(checkpoint(size), log.size, entries(size)[log.size :])
    log.check()
    keep_seen(log, Path(seen))
    assert not list(log.folder.rglob(".*"))


def look(place: str, told: str, seen: str) -> None:
    """Everything that was acknowledged is there once, whatever else; and what was begun can be finished."""
    folder, said = Path(place), heard(Path(told))
    raw = Log(folder / "log", KEY)  # as the crash left it: a checkpoint that the tiles prove, all of them
    raw.check()
    keep_seen(raw, Path(seen))
    with open_ledger(folder) as ledger, ledger.store.writing():
        pass  # where a server still carries out what the dead one asked for, this waits for it
    with open_ledger(folder) as ledger:
        _kept(ledger, said)
        keep_seen(ledger.log, Path(seen))
        begun = max((one[1] for one in said if one[0] == "begun"), default=FIRST)
        cycle(ledger, begun, _teller(Path(told)))
        with ledger.store.reading() as view:
            assert view.count(begun, begun) == RECORDS
            assert view.count() == view.last_seq() == RECORDS * (begun - FIRST + 1)
            assert len(list(view.conflicts(begun, begun))) == CONFLICTS
            assert len(list(view.batches(begun, begun))) == BATCHES
        keep_seen(ledger.log, Path(seen))
    said_so = cli_kit.output("ledger", "check", folder)
    assert f"{RECORDS * (begun - FIRST + 1)} records" in said_so
    earliest = min(Path(seen).iterdir())
    found = verify(exported(folder, begun), key=str(KEY), checkpoint=earliest)
    assert found.recomputed
    assert found.receipt["epoch"] == begun
    assert not list((folder / "log").rglob(".*")), "what a dead writer left in the log goes with the next append"


def _kept(ledger: Ledger, said: Sequence[list[Any]]) -> None:
    with ledger.store.reading() as view:
        found = list(view.records())
        assert [one.seq for one in found] == list(range(1, len(found) + 1))
        assert len({one.digest for one in found}) == len(found)
        receipts = list(view.receipts())
        assert [one.position for one in receipts] == list(range(len(receipts)))
        for kind, *what in said:
            if kind == "batch":
                epoch, digest = what
                batch = view.batch(digest)
                assert batch is not None
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
    assert list(ledger.log.entries()) == [bytes.fromhex(one.digest[7:]) for one in receipts]
    ledger.log.check()
    for path in exported(ledger.folder, 0).parent.glob("epoch-*"):
        if ["exported", int(path.name[6:])] not in said:  # whole, though nobody was told
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


# Starting and killing


class Warm:
    """A process that has imported everything and forks workers, functions of a module: one at a time."""

    def __init__(self, folder: Path, module: str = "crash_kit") -> None:
        self._report = folder / "report.json"
        command = [sys.executable, "-c", f"import crash_kit; crash_kit.serve({module!r})"]
        path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
        self._server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder, env=os.environ | {"PYTHONPATH": path}
        )

    def ask(self, function: Callable[..., Any], *args: Any) -> Any:
        """What a function of the module returns in a new process; an error there is one here."""
        number = self._start(function, args)
        assert self._ended(WAIT), f"{function.__name__} did not end (process {number})"
        return self._answer(function)

    def killed(self, function: Callable[..., Any], *args: Any, after: float | None = None) -> bool:
        """Kill a new process after so many seconds, or wait until it kills itself. Whether it was killed before it was done."""
        number = self._start(function, args)
        if after is not None and not self._ended(after):
            os.kill(number, signal.SIGKILL)
        assert self._ended(WAIT), f"{function.__name__} was not killed (process {number})"
        if self._status == -signal.SIGKILL:
            return True
        self._answer(function)
        return False

    def close(self) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.stdout.close()
        try:
            self._server.wait(WAIT)
        finally:
            self._server.kill()

    def _start(self, function: Callable[..., Any], args: Sequence[Any]) -> int:
        assert self._server.stdin is not None
        self._report.unlink(missing_ok=True)
        order = [function.__name__, list(args), str(self._report)]
        self._server.stdin.write(json.dumps(order, default=str).encode() + b"\n")
        self._server.stdin.flush()
        self._status: int | None = None
        return self._number()

    def _ended(self, seconds: float) -> bool:
        """Whether the process ends in this time."""
        assert self._server.stdout is not None
        if self._status is None and select.select([self._server.stdout], [], [], seconds)[0]:
            self._status = self._number()
        return self._status is not None

    def _number(self) -> int:
        assert self._server.stdout is not None
        line = b""
        while not line.endswith(b"\n"):  # not through the buffer, which select does not see
            piece = os.read(self._server.stdout.fileno(), 1)
            assert piece, "the process that forks workers is gone"
            line += piece
        return int(line)

    def _answer(self, function: Callable[..., Any]) -> Any:
        assert self._status == 0, f"{function.__name__} ended with {self._status}"
        result, error = json.loads(self._report.read_text())
        assert error is None, f"in {function.__name__}: {error}"
        return result


def imports() -> None:
    """Import what is imported late."""
    with tempfile.TemporaryDirectory() as place:
        made(Path(place) / "small", "ledger.db")
        look(f"{place}/small", f"{place}/told", f"{place}/seen")


def serve(module: str) -> None:
    """Fork a process for each order on standard input; its number and how it ended on standard output."""
    known = import_module(module)
    known.imports()
    for line in sys.stdin.buffer:
        name, args, report = json.loads(line)
        number = os.fork()
        if number == 0:
            _child(getattr(known, name), args, Path(report))
        _put(number)
        _put(os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]))


def _put(number: int) -> None:
    os.write(1, b"%d\n" % number)


def _child(function: Callable[..., Any], args: Sequence[Any], report: Path) -> None:
    answer: list[Any] = [None, None]
    try:
        answer[0] = function(*args)
    except BaseException:  # noqa: BLE001  (whatever it is, the test shows it)
        answer[1] = traceback.format_exc()
    sys.setprofile(None)
    report.write_text(json.dumps(answer))
    os._exit(0)


@contextmanager
def warm(folder: Path, module: str = "crash_kit") -> Iterator[Warm]:
    """The process that forks, for as long as the block lasts."""
    made = Warm(folder, module)
    try:
        yield made
    finally:
        made.close()


def rounds(warm: Warm, folder: Path, database: str, draw: random.Random, count: int, *, at_steps: bool) -> None:
    """Kill so many workers, one after the other: at random moments of a cycle, or at random steps. And look after each."""
    place, told, seen = (folder / name for name in ("small", "told", "seen"))
    made(place, database)
    steps = len(warm.ask(steps_of, place, told))
    killed = 0
    while killed < count:
        if at_steps:
            assert warm.killed(work, place, told, draw.randint(1, steps))
            killed += 1
        else:
            seconds = [one[1] for one in heard(told) if one[0] == "cycle"]
            killed += warm.killed(work, place, told, None, after=draw.uniform(0, seconds[-1]))
        warm.ask(look, place, told, seen)
    warm.ask(look_whole, place, seen)


def every_step(warm: Warm, folder: Path, another: Callable[[Path], str]) -> int:
    """Kill a worker at each step of a cycle in turn, in new ledgers of some epochs each; how many steps there were."""
    step, killed = 0, True
    while killed:
        if step % SERIES == 0:
            place, told, seen = (folder / str(step) / name for name in ("small", "told", "seen"))
            made(place, another(place))
            warm.ask(steps_of, place, told)
        step += 1
        killed = warm.killed(work, place, told, step, 1)
        warm.ask(look, place, told, seen)
    return step


def every_write(warm: Warm, folder: Path) -> int:
    """Kill a worker before everything that settling and exporting write, in a ledger with one epoch; how often."""

    def copy(name: str) -> tuple[Path, ...]:
        shutil.copytree(folder / "whole", folder / name)
        return tuple(folder / name / part for part in ("small", "told", "seen"))

    made(folder / "whole/small", "ledger.db")
    warm.ask(steps_of, folder / "whole/small", folder / "whole/told")
    steps = warm.ask(steps_of, *copy("steps")[:2])
    first = next(number for number, name in enumerate(steps, start=1) if name.startswith("INSERT INTO inputs"))
    writes = [number for number, name in enumerate(steps, start=1) if number >= first and name.startswith(WRITES)]
    for number in writes:
        place, told, seen = copy(str(number))
        assert warm.killed(work, place, told, number)
        warm.ask(look, place, told, seen)
    return len(writes)


def steps_of(place: str, told: str) -> list[str]:
    """One cycle, in which steps."""
    steps: list[str] = []
    _each_step(steps.append)
    work(place, told, None, 1)
    sys.setprofile(None)
    return steps
