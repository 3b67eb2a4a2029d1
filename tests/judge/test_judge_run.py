"""The run that all judges share, with a judge of nothing: what it stores, tries again and plans, and how it waits."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.errors import BadInput
from assay.judge import run_files
from assay.judge.cell_queue import CellQueue, MissingCells
from assay.judge.judge_run import Attempt, CellPool, JudgeRun, Report
from assay.judge.running import Judged, RunEvent, RunOptions
from assay.judge.stations import Claim, Crew, Errand, Heard, StationSpec
from assay.records import Participant

SCHEME = '[scheme]\nname = "small"\n[score]\nkind = "given"\n[consensus]\nmin_validators = 1\n'


@dataclass(frozen=True)
class Whole:
    """All that a participant submitted."""

    participant: str
    submission: str
    epoch: int = 1

    @property
    def parts(self) -> dict[str, str]:
        return {}

    @property
    def key(self) -> tuple[object, ...]:
        return self.submission, self.epoch


class Half(JudgeRun[Whole, Judged]):
    """Gives everybody a half; keeps which cells it was asked for."""

    def __init__(self, *args: Any, epoch: int = 1, wrong: Exception | None = None) -> None:
        super().__init__(*args)
        self.given_epoch, self.wrong = epoch, wrong
        self.asked: list[str] = []

    def cells(self, wanted: Sequence[Participant]) -> list[Whole]:
        return [Whole(participant.key, participant.submission, self.given_epoch) for participant in wanted]

    def judge(self, cell: Whole) -> Judged:
        self.asked.append(cell.participant)
        if self.wrong is not None and cell.participant == "ann":
            raise self.wrong
        return Judged("scored", evidence=self.evidence(cell, cell.submission, score="0.5"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "scheme.toml").write_text(SCHEME)
    (tmp_path / "participants.csv").write_text("key,submission\nann,first\nbob,second\n")
    (tmp_path / "validators.csv").write_text("key,stake\nval-1,1\n")
    return tmp_path


def test_a_second_run_judges_nothing_again(folder: Path) -> None:
    run = Half(folder, "val-1", RunOptions(jobs=2))
    assert run.carry_out().outcomes == Counter(scored=2)
    before = run.evidence_file.read_bytes()
    assert before.count(b"\n") == 2
    again = Half(folder, "val-1")
    summary = again.carry_out()
    assert (again.asked, summary.planned, summary.judged) == ([], 0, 0)
    assert again.evidence_file.read_bytes() == before


@dataclass(frozen=True)
class Solved:
    """The one task of a competition, of kind tests."""

    participant: str
    submission: str

    @property
    def parts(self) -> dict[str, str]:
        return {"task": "t1"}

    @property
    def key(self) -> tuple[object, ...]:
        return self.submission, "t1", 1


class Passes(JudgeRun[Solved, Judged]):
    """Everybody passes the task."""

    def cells(self, wanted: Sequence[Participant]) -> list[Solved]:
        return [Solved(participant.key, participant.submission) for participant in wanted]

    def judge(self, cell: Solved) -> Judged:
        return Judged("pass", evidence=self.evidence(cell, cell.submission, task="t1", outcome="pass"))


def test_what_is_too_old_to_count_is_judged_again(folder: Path) -> None:
    """An evaluation stands until the submission or the task set changes, or for `max_age_epochs`. SPEC 3.0."""
    (folder / "scheme.toml").write_text(SCHEME.replace("given", "tests") + "max_age_epochs = 2\n")
    (folder / "tasks.txt").write_text("t1\n")
    for epoch, judged in ((1, 2), (3, 0), (4, 2), (6, 0)):
        run = Passes(folder, "val-1", RunOptions(epoch=epoch))
        assert run.carry_out().judged == judged, epoch
        statuses = [row["status"] for row in assay.open(folder).settle(epoch=epoch).document["agreed"]]
        assert statuses == ["agreed", "agreed"], epoch
    assert Passes(folder, "val-1").carry_out().judged == 0  # the epoch is that of the newest evidence then
    assert run.evidence_file.read_text().count('"epoch":4') == 2
    (folder / "scheme.toml").write_text(SCHEME.replace("given", "tests"))
    assert Passes(folder, "val-1", RunOptions(epoch=60)).carry_out().judged == 0


def test_records_about_an_epoch_never_grow_too_old_to_be_done(folder: Path) -> None:
    (folder / "scheme.toml").write_text(SCHEME + "max_age_epochs = 0\n")
    assert Half(folder, "val-1").carry_out().judged == 2
    assert Half(folder, "val-1", RunOptions(epoch=9)).carry_out().judged == 0  # the cells are of epoch 1


def test_a_record_of_another_key_than_its_cell_is_not_written(folder: Path) -> None:
    run = Half(folder, "val-1", epoch=7)  # its records are of epoch 1
    with pytest.raises(ValueError, match=r"the key of the cell is \('first', 7\), and its record ends in \('first', 1\)"):
        run.carry_out()
    assert not run_files.evidence_file(folder, "val-1").exists()


@pytest.mark.parametrize(("wrong", "times"), [(OSError("gone"), 3), (BadInput("is no service"), 1)])
def test_an_error_is_tried_again_unless_it_would_be_the_same(folder: Path, wrong: Exception, times: int) -> None:
    events: list[RunEvent] = []
    run = Half(folder, "val-1", RunOptions(attempts=3, delay=0.001), events.append, wrong=wrong)
    summary = run.carry_out()
    assert Counter(run.asked) == Counter(ann=times, bob=1)
    assert [(cell.participant, why) for cell, why in summary.errors] == [("ann", str(wrong))]
    assert summary.outcomes == Counter(scored=1)
    assert [event.kind for event in events].count("again") == times - 1
    assert b"ann" not in run.evidence_file.read_bytes()


class Slow:
    """Judges one cell at a time: the first with an error, then another over many looks, so that the first is long due."""

    def __init__(self) -> None:
        self.going: list[Whole] = []
        self.waits: list[float] = []

    def start(self, cells: Collection[Whole]) -> None:
        pass

    def idle(self) -> bool:
        return not self.going

    def begin(self, attempt: Attempt[Whole]) -> None:
        self.going.append(attempt.cell)

    def listen(self, seconds: float) -> Iterator[Report[Whole, Judged]]:
        self.waits.append(seconds)
        time.sleep(min(seconds, 0.005))
        if self.going and (len(self.waits) == 1 or len(self.waits) > 20):
            yield Report(self.going.pop(), Judged("error", message="broken"))

    def close(self, *, now: bool) -> None:
        pass


def test_a_run_whose_workers_are_all_busy_sleeps_while_a_cell_is_due(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Slow()

    def workers(_run: Half, _cells: Sequence[Whole]) -> CellPool[Whole, Judged]:
        return pool

    monkeypatch.setattr(Half, "workers", workers)
    summary = Half(folder, "val-1", RunOptions(attempts=2, delay=0.001)).carry_out()
    assert len(summary.errors) == 2
    assert min(pool.waits) > 0


class Away(Half):
    """The same judge, whose cells are judged by a crew."""

    def station(self) -> StationSpec:
        return StationSpec("here:nowhere", None)

    def errand(self, attempt: Attempt[Whole]) -> Errand:
        if attempt.cell.participant == "ann" and self.wrong is not None:
            raise self.wrong
        return Errand(attempt, 60)


class Loopback:
    """An engine, and its crew, in this process: it judges when it is heard. lost: the trouble of the first."""

    def __init__(self, run: Half, most: int = 1, lost: str = "") -> None:
        self.run, self.most, self.lost = run, most, lost
        self.going: dict[int, Attempt[Whole]] = {}
        self.highest = 0

    def crew(self, _spec: StationSpec) -> Crew:
        return self

    def idle(self) -> bool:
        return len(self.going) < self.most

    def send(self, number: int, errand: Errand) -> None:
        self.going[number] = errand.payload
        self.highest = max(self.highest, len(self.going))

    def hear(self, _seconds: float) -> Iterator[Heard]:
        for number in list(self.going):
            attempt = self.going.pop(number)
            if self.lost:
                trouble, self.lost = self.lost, ""
                yield Heard(number, trouble=trouble)
            else:
                yield Heard(number, reply=self.run.judge(attempt.cell))

    def close(self, *, now: bool) -> None:
        self.going.clear()

    def remarks(self) -> Iterator[str]:
        yield "a node was cleared"


def away(folder: Path, *, lost: str = "", wrong: Exception | None = None, leases: Any = None) -> tuple[Away, Loopback]:
    run = Away(folder, "val-1", RunOptions(delay=0.001), wrong=wrong)
    crew = Loopback(run, lost=lost)
    run.options = replace(run.options, engine=crew, leases=leases)
    return run, crew


def test_cells_that_are_judged_elsewhere_are_kept_here(folder: Path) -> None:
    run, crew = away(folder, lost="it was lost 21 times")
    summary = run.carry_out()
    assert (summary.outcomes, summary.remarks) == (Counter(scored=2), ["a node was cleared"])
    assert crew.highest == 1
    assert run.evidence_file.read_bytes().count(b"\n") == 2


def test_a_cell_that_cannot_be_sent_is_an_error(folder: Path) -> None:
    run, _ = away(folder, wrong=BadInput("the file is gone"))
    summary = run.carry_out()
    assert [(cell.participant, why) for cell, why in summary.errors] == [("ann", "the file is gone")]


def test_a_judge_without_a_station_says_so(folder: Path) -> None:
    run = Half(folder, "val-1")
    run.options = replace(run.options, engine=Loopback(run))
    with pytest.raises(BadInput, match="works on one machine"):
        run.carry_out()


class SharedLeases:
    """Leases in which another driver has ann's cell until it was asked for `held` times; then its record is in the ledger."""

    def __init__(self, held: int, lost: int = 0) -> None:
        self.looks, self.lost, self.released = held, lost, list[object]()
        self.claims = Counter[object]()

    def claim(self, key: tuple[object, ...]) -> Claim:
        self.claims[key[0]] += 1
        if key[0] != "first":
            return "ours"
        return "held" if self.looks > 0 else "done"

    def held(self, keys: Collection[tuple[object, ...]]) -> Collection[tuple[object, ...]]:
        self.looks -= 1
        return keys if self.looks > 0 else ()

    def renew(self) -> None: ...

    def holds(self, _key: tuple[object, ...]) -> bool:
        self.lost -= 1
        return self.lost < 0

    def release(self, key: tuple[object, ...]) -> None:
        self.released.append(key)


def test_what_another_driver_has_is_not_judged_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.judge.judge_run.HELD", 0.001)
    leases = SharedLeases(held=3)
    run, _ = away(folder, leases=leases)
    summary = run.carry_out()
    assert (run.asked, summary.judged, summary.planned, summary.in_ledger) == (["bob"], 1, 1, 1)
    assert leases.claims["first"] == 2  # not at each look


def test_what_another_driver_took_over_is_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.judge.judge_run.HELD", 0.001)
    run, _ = away(folder, leases=SharedLeases(held=0, lost=1))
    summary = run.carry_out()
    assert run.asked == ["bob", "bob"]  # the first result came too late; nobody else judged it, so it is judged again
    assert (summary.judged, run.evidence_file.read_bytes().count(b"\n")) == (1, 1)


def test_cells_are_made_when_their_turn_comes() -> None:
    numbers: list[int] = []

    class Many(list[Any]):
        def __iter__(self) -> Iterator[Any]:
            for number in range(1000):
                numbers.append(number)
                yield Whole("ann", f"s{number}")

    queue = CellQueue(MissingCells(Many(), {("s1", 1)}))
    assert [queue.take() for _ in range(3)] == [Attempt(Whole("ann", f"s{number}")) for number in (0, 2, 3)]
    assert len(numbers) < 10


def test_what_is_due_again_begins_before_what_is_fresh() -> None:
    queue = CellQueue([Whole("ann", f"s{number}") for number in range(4)])
    first, second = queue.take(), queue.take()
    assert first is not None
    assert second is not None
    queue.put_off(Attempt(first.cell, 2), 0.0)
    del queue.going[second.cell]
    queue.held[second.cell.key] = second
    queue.free([second.cell.key])
    assert [queue.take() for _ in range(2)] == [Attempt(first.cell, 2), Attempt(Whole("ann", "s2"))]
    queue.free([])
    assert queue.take() == second
    assert queue.left
