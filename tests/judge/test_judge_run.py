"""The run that all judges share, with a judge of nothing: what it stores, tries again and plans, and how it waits."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from assay.errors import BadInput
from assay.judge import run_files
from assay.judge.judge_run import Attempt, CellPool, JudgeRun, Report
from assay.judge.running import Judged, RunEvent, RunOptions
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
        self.told, self.wrong = epoch, wrong
        self.asked: list[str] = []

    def cells(self, wanted: Sequence[Participant]) -> list[Whole]:
        return [Whole(one.key, one.submission, self.told) for one in wanted]

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

    def start(self, cells: Sequence[Whole]) -> None:
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
