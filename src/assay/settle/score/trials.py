"""The score of tests: the share of trials passed over the whole task set. SPEC 2.1.

- A trial passes or it does not. A timeout is a fail. An error is not the participant's fault, so the trial is missing.
- The scheme says which tasks and how many trials there are. A validator that misses a trial is incomplete: it has no score, and
  the settlement says how many trials are missing.
- 73 of 91 → 0.802197802.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from assay.errors import BadInput
from assay.exact import NANO, half_even
from assay.records import Evidence, Tests
from assay.scheme.model import TestsScore
from assay.settle.inputs import Bools, Frame, Ints, Scored
from assay.settle.score import accepted, first_epochs, holding, of_kind

__all__ = ["score", "score_of", "tally"]


def score_of(passed: int, trials: int) -> int:
    """The score (nanos) of `passed` out of `trials` over all tasks, half to even. SPEC 2.1."""
    return half_even(passed * NANO, trials)


def score(records: Sequence[Evidence], frame: Frame, rules: TestsScore) -> Scored:
    """Each validator's pass rate of each participant's submission; raises BadInput as `accepted` and `tally` do. SPEC 2.1."""
    mine = of_kind(records, Tests)
    width = len(frame.participants)
    seen: list[
        int
    ] = []  # the cell, validator · width + participant, of each record; then of each trial that ran, and that passed
    run: list[int] = []
    passed: list[int] = []
    tasks, trials = frozenset(frame.tasks), rules.trials
    row, column_of = frame.row, holding(frame)
    for record in accepted(mine, frame):
        column = column_of(record)
        if column is None:
            continue
        cell = row[record.validator] * width + column
        seen.append(cell)
        if record.outcome != "error" and record.trial <= trials and record.task in tasks:
            run.append(cell)
            if record.outcome == "pass":
                passed.append(cell)

    def counted(cells: list[int]) -> Ints:
        return np.bincount(np.array(cells, np.int64), minlength=frame.shape[0] * width).reshape(frame.shape)

    return tally(
        counted(passed),
        len(tasks) * trials - counted(run),
        counted(seen) > 0,
        frame,
        rules,
        first_epochs(mine, frame),
    )


def tally(passed: Ints, missing: Ints, seen: Bools, frame: Frame, rules: TestsScore, first: Mapping[str, int]) -> Scored:
    """Scores from counts, all [validators, participants]: trials passed, trials missing, whether there is any record. SPEC 2.1.

    Counts are over the task set and the trials 1 … k alone; `first` is `Scored.first`. Raises BadInput if there is no task.
    """
    trials = len(frame.tasks) * rules.trials
    if trials == 0:
        raise BadInput("the task set is empty", file="tasks.txt", hint="list the tasks, one id a line")
    counting = seen & (missing == 0)
    counts, place = np.unique(passed[counting], return_inverse=True)
    scores = np.zeros(frame.shape, np.int64)
    scores[counting] = np.array([score_of(int(count), trials) for count in counts], np.int64)[place]
    return Scored(
        scores=scores,
        counting=counting,
        incomplete=seen & (missing > 0),
        missing=np.where(seen, missing, 0),
        work={"passed": np.where(counting, passed, 0), "trials": np.where(counting, trials, 0)},
        first=first,
    )
