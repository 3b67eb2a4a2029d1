"""One run of any judge: cells without evidence of a validator are planned, judged, tried again, stored and summed up.

A judge is a subclass of `JudgeRun`: it says which cells there are, judges one, and has the words of the summary. `carry_out` does
the rest, in this order:

- It takes the lock of the validator, so that one run of a validator goes on at a time, and mends what a killed run left.
- It plans the cells without evidence, less those of participants for whom `assign` drew other validators. SPEC 3.0.
- It judges `jobs` cells at a time. An infrastructure error is tried again after 2, 8, 32 … seconds, a bounded number of times.
  Then the cell is left missing: an error is no evidence, and never scored as a failure.
- It judges on this machine, or where the engine of the options does (`stations`). This changes nothing else: results
  from elsewhere come back to the run, which alone writes evidence.
- A result is on the disk before it counts; a run that is stopped or killed goes on where it was.
- Ctrl-C and SIGTERM end it cleanly, if it runs in the main thread: the summary then says `stopped`.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import time
from collections import Counter
from collections.abc import Awaitable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

from assay.errors import AssayError, BadInput
from assay.exact import canonical
from assay.judge import entries, run_files
from assay.judge.cell_queue import Attempt, CellPool, CellQueue, MissingCells, Report
from assay.judge.entries import Entries, Written
from assay.judge.running import Cell, CellResult, Judged, RunEvent, RunOptions, RunSummary, Stop, Tell, backoff, quiet, stopping
from assay.judge.stations import Crew, Errand, Heard, StationSpec

if TYPE_CHECKING:
    from assay.records import Evidence, Participant, Record

__all__ = ["HELD", "Attempt", "CellPool", "JudgeRun", "Report"]

_TICK = 0.1
"""Seconds between two looks at whether somebody wants the end."""
HELD = 5.0
"""Seconds between two looks at which cells other drivers still have."""
_FOLDER = "judging"
"""Holds the lock of a judge that has no other folder of its own."""

C = TypeVar("C", bound=Cell)
R = TypeVar("R", bound=CellResult)


class JudgeRun(Generic[C, R]):
    """A run of one judge. A subclass has `cells` and `judge`; everything else has a default that fits a simple judge."""

    unit: ClassVar[str] = "trial"
    """The noun for a cell."""
    submission: ClassVar[str] = "agent"
    """The noun for a submission."""
    retries: ClassVar[bool] = True
    """Whether an error is tried again; not where the judge does that by itself."""

    def __init__(self, competition: Path, validator: str, options: RunOptions | None = None, on_event: Tell = quiet) -> None:
        self.competition, self.validator, self.tell = competition, validator, on_event
        self._in_ledger: frozenset[Any] | set[Any] = frozenset()
        self.options = options or RunOptions()
        self.options.check()
        self.summary = RunSummary(0, unit=self.unit, submission=self.submission)
        self.evidence_file = run_files.evidence_file(competition, validator)
        self.stop = Stop()
        self._look_at = 0.0
        self.oldest = 0
        """The first epoch whose evidence still counts; what has only older evidence is judged again. SPEC 3.0."""
        self.here: Sequence[Participant] = ()
        """Participants whose submission counts, and is here."""

    # Methods for a judge to override

    def open(self) -> Entries:
        """Read the competition and set `here`; raises BadInput for whatever is wrong with it, before anything is judged."""
        from assay.scheme.load import read

        seen = entries.read(self.competition, read(self.competition / "scheme.toml"), self.validator, self.options.participants)
        judgeable, asked = entries.judgeable(seen), self.options.participants
        self.here = [participant for participant in judgeable if not asked or participant.key in asked]
        return seen

    def lock(self) -> AbstractContextManager[int]:
        """Holds the validator's lock; raises RunBusy and BadInput."""
        return run_files.held(self.competition / _FOLDER / run_files.segment(self.validator), self.validator)

    def clear(self) -> None:
        """Take away what a killed run left, with the lock held."""
        try:
            run_files.mend(self.evidence_file)
        except OSError as error:
            raise BadInput(f"cannot be written ({error.strerror})", file=self.evidence_file.parent) from None

    def saw(self, record: Evidence) -> None:
        """Note what matters in a record that this validator has already."""

    def epoch(self, written: Written[tuple[object, ...]]) -> int:
        """The epoch of the evidence that is to come."""
        return written.of(self.options.epoch)

    def check(self, wanted: Sequence[Participant], done: frozenset[tuple[object, ...]]) -> None:
        """Refuse what cannot be judged here; done: the keys of cells with evidence. Raises AssayError."""

    def cells(self, wanted: Sequence[Participant]) -> Collection[C]:
        """Everything there is to judge of these participants, in the order in which it is judged.

        For many cells, return a collection that makes each cell anew in every pass: they are never all in memory.
        """
        raise NotImplementedError

    def recover(self, missing: Iterable[C]) -> Collection[tuple[object, ...]]:
        """Write the evidence of what was judged just before an earlier run ended; returns the keys of those cells."""
        return ()

    def refused(self, attempt: Attempt[C]) -> R | None:
        """An error that is known before the cell begins; None: it is to be judged."""
        return None

    def judge(self, cell: C) -> R | Awaitable[R]:
        """Judge one cell; a method that is not `async` runs in a thread.

        AssayError and OSError make the cell an error, which is tried again, unless it is BadInput.
        """
        raise NotImplementedError

    def service(self) -> AbstractAsyncContextManager[Any]:
        """The context that an `async` judge holds open while it judges."""
        return nullcontext()

    def workers(self, cells: Collection[C]) -> CellPool[C, R]:
        """The pool that judges the cells on this machine: coroutines or threads of this process."""
        return _InProcess(self, min(self.options.jobs, len(cells)))

    def station(self) -> StationSpec:
        """The station that judges the cells on other machines. Raises BadInput for a judge that works on one only."""
        hint = "leave --engine out: this machine judges"
        raise BadInput(f"the judge of {self.seen.scheme.kind.name!r} works on one machine", field="--engine", hint=hint)

    def errand(self, attempt: Attempt[C]) -> Errand:
        """A cell as an errand for the station."""
        raise NotImplementedError

    def report(self, attempt: Attempt[C], heard: Heard) -> Report[C, R]:
        """The report on an attempt, from the end of its errand. Raises AssayError and OSError, which make the cell an error."""
        if heard.trouble:
            return Report(attempt.cell, self.failed(attempt.cell, heard.trouble), final=heard.final)
        return Report(attempt.cell, heard.reply)

    def prepare(self, cells: Iterable[C], crew: Crew) -> None:
        """Get ready, before the first errand of a cell is sent."""

    def keep(self, cell: C, result: R) -> Path | None:
        """Store a result and its evidence; returns where it is kept. Raises OSError and AssayError where it cannot be."""
        record: Record | None = getattr(result, "evidence", None)
        if record is not None:
            if record.key[2:] != cell.key:  # the next run would not find it, and would judge the cell again
                raise ValueError(f"the key of the cell is {cell.key}, and its record ends in {record.key[2:]}")
            run_files.append(self.evidence_file, canonical(record.document()) + b"\n")
        return None

    def failed(self, cell: C, why: str) -> R:
        """The result of a cell that could not be judged."""
        return cast("R", Judged("error", message=why))

    def not_kept(self, cell: C, result: R, why: str) -> R:
        """The result of a cell that was judged and could not be stored."""
        return self.failed(cell, f"it could not be kept: {why}")

    def discard(self, cell: C) -> None:
        """Take away what is left of an attempt that is followed by another."""

    def keep_error(self, cell: C, result: R) -> Path | None:
        """Store what there is of a cell that is left missing; returns where."""
        return None

    def tidy(self) -> None:
        """Clear up when nothing is judged any more."""

    def remarks(self) -> Iterable[str]:
        """Sentences on what else the run came to."""
        return ()

    def evidence(self, cell: C, submission: str, **own: Any) -> Record:
        """A record of the competition's kind, with the fields that every record has filled in. Raises BadInput."""
        common = {"kind": self.seen.scheme.kind.name, "epoch": self.summary.epoch, "validator": self.validator}
        whose = {"participant": cell.participant, "submission": submission, "observed_at": datetime.now(UTC)}
        return self.seen.scheme.kind.record.model_validate(common | whose | own)

    # The course of the run

    def carry_out(self) -> RunSummary:
        """Judge what is missing; raises BadInput and RunBusy before anything is judged, AssayError where nothing can be."""
        self.seen = self.open()
        with self.lock() as self.lock_number, stopping() as self.stop:
            self.clear()
            written = self._standing(entries.written(self.seen, self._noted))
            self._in_ledger = self.options.done - written.done
            self.go(replace(written, done=written.done | self._in_ledger))
        summary = self.summary
        summary.outcomes = Counter(sorted(summary.outcomes.elements()))
        summary.remarks += [*self.remarks(), *entries.held_remarks(self.seen)]
        return summary

    def _standing(self, written: Written[tuple[object, ...]]) -> Written[tuple[object, ...]]:
        """The evidence that still counts. If records are about an epoch, that one was judged once and for all."""
        scheme = self.seen.scheme
        if scheme.consensus.max_age_epochs is None or "epoch" in scheme.kind.record.parts:
            return written
        self.oldest = scheme.consensus.oldest(self.epoch(written))
        return written.standing(self.oldest)

    def _noted(self, record: Evidence) -> tuple[object, ...]:
        self.saw(record)
        self.chose(record.key[2:], getattr(record, "outcome", ""))
        return record.key[2:]

    def chose(self, key: tuple[object, ...], outcome: str) -> None:
        """Tell the choice of the options what became of a cell."""
        if self.options.choice is not None:
            self.options.choice.saw(key, outcome)

    @property
    def enough(self) -> bool:
        """Whether the choice of the options needs nothing more."""
        return self.options.choice is not None and self.options.choice.enough

    def go(self, written: Written[tuple[object, ...]]) -> None:
        """Plan, and judge what is missing."""
        missing = self.plan(written)
        if missing and not self.enough:
            self.work(missing)

    def plan(self, written: Written[tuple[object, ...]]) -> Collection[C]:
        """The cells to be judged."""
        epoch = self.summary.epoch = self.epoch(written)
        here, everybody = self.here, self.options.everybody
        wanted = here if everybody else entries.drawn(self.seen, here, written.first, epoch)
        self.check(wanted, written.done)
        whole = self.cells(wanted)
        if self.options.choice is not None:
            whole = self.options.choice.chosen(whole)
        recovered = frozenset(self.recover(MissingCells(whole, written.done)))
        if recovered:
            self.tell(RunEvent("kept", count=len(recovered)))
        self.summary.others = tuple(participant.key for participant in here if participant not in wanted)
        return self.planned(whole, written.done | recovered)

    def planned(self, whole: Collection[C], done: Collection[tuple[object, ...]]) -> Collection[C]:
        """The cells that are not done; tells their number."""
        missing = MissingCells(whole, done)
        self.summary.in_ledger = sum(cell.key in self._in_ledger for cell in whole) if self._in_ledger else 0
        self.summary.planned = len(missing)
        self.tell(RunEvent("planned", count=len(missing), done=len(whole) - len(missing)))
        return missing

    def work(self, cells: Collection[C]) -> None:
        """Judge these cells, until none is left or somebody wants the end."""
        engine, queue = self.options.engine, CellQueue(cells)
        crew = None if engine is None else engine.crew(self.station())
        pool = self.workers(cells) if crew is None else _CrewPool(self, crew)
        try:
            pool.start(cells)
            while queue.left and not self.stop.asked and not self.enough:
                self._lease(queue)
                self._give_out(queue, pool)
                for report in pool.listen(queue.pause(_TICK)):
                    self._reported(queue, pool, report)
        finally:
            if self.stop.asked:
                self.stopped()
            pool.close(now=self.stop.asked > 1)
            self.tidy()
        self.summary.remarks += () if crew is None else crew.remarks()
        self.summary.errors.sort(key=lambda row: [part.encode() for part in (*row[0].parts.values(), row[0].participant)])

    def _reported(self, queue: CellQueue[C], pool: CellPool[C, R], report: Report[C, R] | None) -> None:
        """Keep what a worker found, and have it go on, while that is flushed to the disk; unless it says what is next."""
        depends = self.options.choice is not None
        if depends and report is not None:
            self._ended(queue, report)
        if not self.stop.asked and not self.enough:
            self._give_out(queue, pool)
        if not depends and report is not None:
            self._ended(queue, report)

    def stopped(self) -> None:
        """Say that the run ends before everything is judged."""
        self.summary.stopped = True
        self.tell(RunEvent("stopping"))

    def _give_out(self, queue: CellQueue[C], pool: CellPool[C, R]) -> None:
        while pool.idle() and (attempt := queue.take()) is not None:
            if not self._claimed(queue, attempt):
                continue
            error = self.refused(attempt)
            if error is not None:
                self._ended(queue, Report(attempt.cell, error, final=True))
                continue
            self.tell(RunEvent("began", attempt.cell))
            pool.begin(attempt)

    def _lease(self, queue: CellQueue[C]) -> None:
        """Keep what this driver has, and now and then look at what others have."""
        leases = self.options.leases
        if leases is None:
            return
        leases.renew()
        if queue.held and time.monotonic() >= self._look_at:
            queue.free(leases.held(queue.held))
            self._look_at = time.monotonic() + HELD

    def _claimed(self, queue: CellQueue[C], attempt: Attempt[C]) -> bool:
        """Claim a cell; False if this driver must not judge it now. A cell of another driver waits until that one gives it up."""
        if self.options.leases is None:
            return True
        claim = self.options.leases.claim(attempt.cell.key)
        if claim != "ours":
            del queue.going[attempt.cell]
        if claim == "held":
            queue.held[attempt.cell.key] = attempt
        elif claim == "done":
            self.summary.planned -= 1
            self.summary.in_ledger += 1
        return claim == "ours"

    def _lost(self, cell: C) -> bool:
        """Whether another driver took a cell over while this one judged it."""
        return self.options.leases is not None and not self.options.leases.holds(cell.key)

    def _ended(self, queue: CellQueue[C], report: Report[C, R]) -> None:
        """Keep what came of a cell, or put it off."""
        cell, result, attempt = report.cell, report.result, queue.going.pop(report.cell)
        if self._lost(cell):
            self.discard(cell)
            queue.held[cell.key] = attempt
            return
        if result.outcome != "error":
            try:
                place = self.keep(cell, result)
            except (OSError, AssayError) as error:
                result = self.not_kept(cell, result, str(error))
            else:
                self.summary.outcomes[result.outcome] += 1
                self.chose(cell.key, result.outcome)
                self.tell(RunEvent("ended", cell, record=result, folder=place))
                return
        if self.retries and not report.final and attempt.number < self.options.attempts:
            wait = backoff(attempt.number, self.options.delay)
            queue.put_off(Attempt(cell, attempt.number + 1, (*attempt.earlier, result.message)), wait)
            self.discard(cell)
            self.tell(RunEvent("again", cell, record=result, seconds=wait))
            return
        if self.options.leases is not None:
            self.options.leases.release(cell.key)
        self.missing(cell, result, self.keep_error(cell, result))

    def missing(self, cell: Cell, result: CellResult, place: Path | None = None) -> None:
        """Leave something without evidence, and say why."""
        self.summary.errors.append((cell, result.message))
        self.chose(cell.key, "error")
        self.tell(RunEvent("ended", cell, record=result, folder=place))


class _InProcess(Generic[C, R]):
    """A `CellPool` of coroutines, or of threads for a judge that is none."""

    def __init__(self, run: JudgeRun[C, R], count: int) -> None:
        self._run, self._count = run, count
        self._runner, self._open = asyncio.Runner(), AsyncExitStack()
        self._threads = ThreadPoolExecutor(count)
        self._tasks: set[asyncio.Task[Report[C, R]]] = set()

    def start(self, cells: Collection[C]) -> None:
        self._runner.run(self._open.enter_async_context(self._run.service()))

    def idle(self) -> bool:
        return len(self._tasks) < self._count

    def begin(self, attempt: Attempt[C]) -> None:
        self._tasks.add(self._runner.get_loop().create_task(self._judged(attempt.cell)))

    def listen(self, seconds: float) -> Iterator[Report[C, R]]:
        done = self._runner.run(self._wait(seconds))
        for task in done:
            yield task.result()
            self._tasks.discard(task)  # not before: the next begins when what this one found is on the disk

    async def _wait(self, seconds: float) -> set[asyncio.Task[Report[C, R]]]:
        if not self._tasks:
            await asyncio.sleep(seconds)
            return set()
        done, _ = await asyncio.wait(self._tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return done

    async def _judged(self, cell: C) -> Report[C, R]:
        judge = self._run.judge
        try:
            if inspect.iscoroutinefunction(judge):
                return Report(cell, await judge(cell))
            return Report(cell, cast("R", await asyncio.get_running_loop().run_in_executor(self._threads, judge, cell)))
        except (OSError, AssayError) as error:
            return Report(cell, self._run.failed(cell, str(error)), final=isinstance(error, BadInput))

    def close(self, *, now: bool) -> None:
        try:
            self._runner.run(self._end())
        finally:
            self._threads.shutdown(wait=not now, cancel_futures=True)
            self._runner.close()

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._open.aclose()


class _CrewPool(Generic[C, R]):
    """A `CellPool` of stations on other machines: cells go out as errands, and what is heard comes back as reports."""

    def __init__(self, run: JudgeRun[C, R], crew: Crew) -> None:
        self._run, self._crew = run, crew
        self._numbers = itertools.count(1)
        self._going: dict[int, Attempt[C]] = {}
        self._never: list[Report[C, R]] = []
        """Of cells that could not be sent."""

    def start(self, cells: Collection[C]) -> None:
        self._run.prepare(cells, self._crew)

    def idle(self) -> bool:
        return self._crew.idle()

    def begin(self, attempt: Attempt[C]) -> None:
        number = next(self._numbers)
        try:
            errand = self._run.errand(attempt)
        except (OSError, AssayError) as error:
            self._never.append(self._failed(attempt, error))
            return
        self._going[number] = attempt
        self._crew.send(number, errand)

    def listen(self, seconds: float) -> Iterator[Report[C, R] | None]:
        while self._never:
            yield self._never.pop()
        for heard in self._crew.hear(seconds):
            attempt = self._going.pop(heard.number, None)
            if attempt is None:
                continue
            yield None
            try:
                yield self._run.report(attempt, heard)
            except (OSError, AssayError) as error:
                yield self._failed(attempt, error)

    def _failed(self, attempt: Attempt[C], error: Exception) -> Report[C, R]:
        return Report(attempt.cell, self._run.failed(attempt.cell, str(error)), final=isinstance(error, BadInput))

    def close(self, *, now: bool) -> None:
        self._crew.close(now=now)
