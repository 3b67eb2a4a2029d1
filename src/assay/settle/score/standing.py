"""Memory of the records that were counted, so that the next epoch need not read them all again. SPEC 2, 3.0.

A ledger with many records asks the kind, and the kinds of SPEC 2 answer with these functions. They are given records as JSON, of
which each is the first accepted of its key.

- tests: of each validator and submission, how many records there are, how many trials passed, and how many ran.
- workflow: the tasks of the last window, and every service error. A task counts only if no participant's record of that task is a
  service error of the same validator. The registry decides which of those records are read, so tasks that may be left out do not
  count for the length of the window. For each submission also the record of the lowest epoch: it says when it was accepted.
- given: the score of the latest epoch.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from assay.scheme.model import TestsScore, WorkflowScore
from assay.settle.inputs import Frame, Scored
from assay.settle.score.trials import tally

__all__ = ["given_lasting", "tests_counts", "tests_scored", "workflow_lasting", "workflow_spoilt"]

Json = dict[str, Any]
Spoilt = tuple[str, int, str]
"""A task that a service error takes out: validator, epoch, task."""


def tests_counts(value: Json, tasks: Container[str], rules: TestsScore) -> tuple[int, int, int]:
    """A record's counts for its cell: 1, 1 if the trial passed, 1 if it ran; only trials of the scheme's tasks run. SPEC 2.1."""
    ran = value["outcome"] != "error" and value["trial"] <= rules.trials and value["task"] in tasks
    return 1, int(ran and value["outcome"] == "pass"), int(ran)


def tests_scored(
    cells: Mapping[tuple[int, int], Sequence[int]], frame: Frame, rules: TestsScore, first: Mapping[str, int]
) -> Scored:
    """The scores of cells (row, column) by the sums of `tests_counts`; first: as `Scored.first`. Raises BadInput as `tally`."""
    counts = np.zeros((3, *frame.shape), np.int64)
    if cells:
        rows, columns = np.array(list(cells), np.int64).T
        counts[:, rows, columns] = np.array(list(cells.values()), np.int64).T
    seen, passed, ran = counts
    return tally(passed, len(frame.tasks) * rules.trials - ran, seen > 0, frame, rules, first)


def workflow_spoilt(value: Json) -> Spoilt | None:
    """The task that a record takes out for every participant; None if it is not a service error. SPEC 2.2."""
    return (value["validator"], value["epoch"], value["task"]) if value["outcome"] == "service-error" else None


def workflow_lasting(values: Iterable[Json], rules: WorkflowScore, spoilt: Container[Spoilt]) -> list[Json]:
    """The records about one participant that may still decide a score. spoilt: what any service error takes out. SPEC 2.2."""
    runs: dict[tuple[str, str], list[Json]] = {}
    for value in values:
        runs.setdefault((value["validator"], value["submission"]), []).append(value)
    deciding = []
    for run in runs.values():
        run.sort(key=lambda value: (value["epoch"], value["task"].encode()), reverse=True)
        left = rules.window
        for value in run:
            if left or value["outcome"] == "service-error":
                deciding.append(value)
            left -= left > 0 and (value["validator"], value["epoch"], value["task"]) not in spoilt
    return _with_lowest(runs.values(), deciding)


def given_lasting(values: Iterable[Json]) -> list[Json]:
    """The records about one submission that may still decide a score: of each validator the one of the latest epoch. SPEC 2.5."""
    latest: dict[str, Json] = {}
    for value in values:
        latest[value["validator"]] = max(latest.get(value["validator"], value), value, key=lambda given: given["epoch"])
    return list(latest.values())


def _with_lowest(runs: Iterable[Iterable[Json]], deciding: list[Json]) -> list[Json]:
    """The records kept, and for each submission the first record of its lowest epoch."""
    lowest: dict[str, Json] = {}
    for value in (value for run in runs for value in run):
        before = lowest.setdefault(value["submission"], value)
        if (value["epoch"], value["seq"]) < (before["epoch"], before["seq"]):
            lowest[value["submission"]] = value
    return list({value["seq"]: value for value in (*deciding, *lowest.values())}.values())
