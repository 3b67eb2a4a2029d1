"""The score of tests: the share of trials passed over the whole task set. SPEC 2.1.

- A trial passes or it does not. A timeout is a fail. An error is not the participant's fault, so the trial is missing.
- The scheme says which tasks and how many trials there are. A validator that misses a trial is incomplete: it has no score, and
  the settlement says how many trials are missing.
- 73 of 91 → 0.802197802.
- `passed_by = "all"`: a task counts as passed only where every counting validator saw every trial of it pass. The validators that
  count are known later (stake, assignment), so `counted` keeps a bit for each task, and `jointly` makes the one score of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from assay.errors import BadInput
from assay.exact import NANO, half_even
from assay.scheme.model import TestsScore
from assay.settle.columns import COMMON, RecordColumn, StandingRecords, count, key
from assay.settle.inputs import Bools, Frame, Ints, Scored

__all__ = ["COLUMNS", "counted", "jointly", "score_of", "tally"]


def score_of(passed: int, trials: int) -> int:
    """The score (nanos) of `passed` out of `trials` over all tasks, half to even. SPEC 2.1."""
    return half_even(passed * NANO, trials)


COLUMNS = (
    *COMMON,
    key("task"),
    RecordColumn("outcome", "word", words=("pass", "fail", "timeout", "error")),
    count("trial", 1, least=1),
    RecordColumn("image", "note", most=256),
    RecordColumn("work", "note", most=256),
)
"""The columns of a record. SPEC 7."""
PASS, ERROR = 0, 3


def counted(standing: StandingRecords, frame: Frame, rules: TestsScore) -> Scored:
    """Each validator's pass rate of each participant's submission; raises BadInput as `tally` does. SPEC 2.1."""
    columns, (rows, cols) = standing.counting()
    width, tasks = frame.shape[1], {task: at for at, task in enumerate(frame.tasks)}
    cells, task = rows * width + cols, columns.lookup("task", tasks)
    known = (task >= 0) & (columns["trial"] <= rules.trials)
    ran, passes = known & (columns["outcome"] != ERROR), known & (columns["outcome"] == PASS)

    def counts(of: Ints) -> Ints:
        return np.bincount(of, minlength=frame.shape[0] * width).reshape(frame.shape)

    missing = len(tasks) * rules.trials - counts(cells[ran])
    scored = tally(counts(cells[passes]), missing, counts(cells) > 0, frame, rules, standing.first)
    return replace(scored, passes=_bits(cells[passes], task[passes], frame, rules)) if rules.scores_jointly() else scored


def _bits(cells: Ints, task: Ints, frame: Frame, rules: TestsScore) -> NDArray[np.uint8]:
    """As `Scored.passes`, of the trials that passed: the cell and the task of each."""
    width = -(-len(frame.tasks) // 8)
    pairs, times = np.unique(cells * len(frame.tasks) + task, return_counts=True)
    cell, task = np.divmod(pairs[times == rules.trials], len(frame.tasks))
    bits = np.zeros(frame.shape[0] * frame.shape[1] * width, np.uint8)
    np.bitwise_or.at(bits, cell * width + task // 8, (128 >> task % 8).astype(np.uint8))
    return bits.reshape(*frame.shape, width)


def jointly(scored: Scored, counting: Bools, tasks: int) -> Scored:
    """The scores where `counting` (validators that count, [validators, participants]) as the one score of all. SPEC 3.0.

    It is the share of the tasks of which every one of them saw every trial pass.
    """
    assert scored.passes is not None
    bits = np.bitwise_and.reduce(np.where(counting[:, :, None], scored.passes, np.uint8(255)), axis=0)
    passed = np.unpackbits(bits, axis=1, count=tasks).sum(axis=1)
    share = np.array([score_of(int(count), tasks) for count in passed], np.int64)
    return replace(scored, scores=np.where(counting, share, scored.scores))


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
