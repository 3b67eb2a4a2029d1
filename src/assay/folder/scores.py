"""Scores workflow evidence in Parquet in one pass of DuckDB, without an array of its numbers. SPEC 2.2, 3.0, 7.

    files → types of the columns → DuckDB: one score for each row ─┬─▶ sums of each validator's window for each participant
                    names: pyarrow, as numbers of different texts ─┘

Scores are floats that are rounded; a record so near a half that a float does not decide it is scored
in integers of 128 bits. So each score is that of `task`, to the bit.

This is only a shorter way. `assay.folder.rows` decides which records count wherever that is not plain: a key that occurs twice, a
service that failed, more tasks than the window, epochs that do not count. It reads all numbers too if a value may be wrong, or an
amount is text, and has all refusals. What decides a score is taken from the rows, not from the statistics in a file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from assay.characters import allowed
from assay.exact import LARGEST, NANO
from assay.folder import rows
from assay.folder.parquet import ParquetFiles, enum, unaided
from assay.folder.rows import RowFiles, highest_epoch, records
from assay.scheme.model import Scheme, WorkflowScore
from assay.settle.inputs import Frame, Ints, Scored
from assay.settle.score.workflow import CLOSE, NEEDED, averaged

__all__ = ["highest_epoch", "records", "tally"]

LEAST = 2**16
"""Below this number of rows arrays are as fast."""
INTEGERS = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT"})
TIMES = frozenset({"TIMESTAMP", "TIMESTAMP WITH TIME ZONE"})
COUNTS = ("retries", "declared_retries", "timeouts", "hard_failures")
AMOUNTS = ("quality", "cost", "budget", "seconds", "max_seconds")
NUMBERS = (*NEEDED, *COUNTS)
STEPS = 2**20 - 1
"""Most steps of a plain record: quality · steps is then right to half a nano as a float."""
PLAIN = 2**29 - 1
"""Most of another count of a plain record."""
OUTCOMES = ("ran", "invalid", "service-error")


def tally(paths: Sequence[Path], axes: Frame, scheme: Scheme) -> Scored:
    """The scores of a competition from the records in Parquet files. Raises BadInput with file and row. SPEC 2.2.

    A column `competition`, if there is one, must hold the scheme's name.
    """
    assert isinstance(scheme.score, WorkflowScore)
    rules, scores = scheme.score, None
    if rows.count(paths, scheme) >= LEAST:
        scores = unaided(paths, lambda files: _scores(files, rules))
    summed = None if scores is None else _summed(RowFiles(paths, scheme), axes, rules, scores)
    return rows.tally(paths, axes, scheme, scores) if summed is None else summed


def _are_plain(types: Mapping[str, str]) -> bool:
    """Whether all columns that are needed are there, and of types that DuckDB computes with exactly."""
    forms = dict.fromkeys(("steps_completed", "steps_total", *COUNTS), INTEGERS) | {"observed_at": TIMES}
    return set(NEEDED) <= types.keys() and all(
        kind.startswith("DECIMAL(") and _digits(kind)[1] <= 9 if name in AMOUNTS else kind in forms.get(name, {kind})
        for name, kind in types.items()
    )


def _digits(kind: str) -> tuple[int, int]:
    """All digits of a decimal type, and those after the point."""
    width, _, scale = kind.removeprefix("DECIMAL(").removesuffix(")").partition(",")
    return int(width), int(scale)


class _RowsNotPlain(Exception):
    """It must be looked at which records count."""


def _summed(files: RowFiles, axes: Frame, rules: WorkflowScore, scores: Ints) -> Scored | None:
    """The scores of a competition from S of each row; None if not every row counts plainly."""
    sums, begin = _Sums(files, axes), 0
    names = ("epoch", "seq", "kind", "competition", "outcome", *sums.codes)
    try:
        for _, _, batch in files.batches(names):
            sums.take(batch, scores[begin : begin + len(batch)])
            begin += len(batch)
        return sums.scored(rules.window)
    except _RowsNotPlain:
        return None


TASKS, MOST_SLOTS = 512, 2**28
"""Most different tasks, and bytes of the array that says which keys occurred."""


class _Sums:
    """Sums over the rows taken so far, for each cell: row · participants + column."""

    def __init__(self, files: RowFiles, axes: Frame) -> None:
        self.files, self.axes = files, axes
        self.codes: dict[str, dict[str, int]] = {"validator": axes.row, "participant": axes.column, "task": {}}
        self.codes["submission"] = {name: at for at, name in enumerate(dict.fromkeys(("", *axes.submissions)))}
        self.texts: dict[str, tuple[Any, Any]] = {}
        """By column: the different texts of the rows taken last, and their numbers."""
        theirs = [self.codes["submission"][name] for name in axes.submissions]
        self.theirs = np.where(axes.unique, np.array(theirs, np.int32), -1)
        size = axes.shape[0] * axes.shape[1]
        self.counts, self.sums = np.zeros(size, np.int64), np.zeros(size, np.float64)
        self.keys = np.zeros(0, np.bool_)
        """The combinations (epoch, cell, task) that occurred."""
        self.epochs: dict[int, int] = {}
        self.lowest = {name: np.full(len(self.codes[name]), LARGEST + 1) for name in ("submission", "participant")}
        self.records = 0

    def take(self, batch: Any, scores: Ints) -> None:
        """Add rows. Raises _RowsNotPlain."""
        self._same(batch)
        epoch = self._epoch(batch)
        codes = {name: self._code(name, batch.column(name)) for name in self.codes}
        for name, lowest in self.lowest.items():
            seen = np.zeros(len(lowest) + 1, np.bool_)
            seen[codes[name]] = True
            np.minimum(lowest, epoch, out=lowest, where=seen[:-1])
        cells = codes["validator"] * self.axes.shape[1] + codes["participant"]
        self._occur(self.epochs.setdefault(epoch, len(self.epochs)), codes["task"], cells)
        counts = self.theirs[codes["participant"]] == codes["submission"]
        if not counts.all():
            cells, scores = cells[counts], scores[counts]
        self.counts += np.bincount(cells, minlength=len(self.counts))
        self.sums += np.bincount(cells, scores, minlength=len(self.sums))
        self.records += len(batch)

    def _same(self, batch: Any) -> None:
        """Raises _RowsNotPlain unless the columns that are not names say what they usually say."""
        wanted = {"kind": {"workflow"}, "competition": {self.files.scheme.name}, "outcome": {"ran", "invalid"}}
        for name in wanted.keys() & set(batch.schema.names):
            column = batch.column(name)
            empty = name == "competition" and column.null_count
            if empty or not wanted[name].issuperset(column.dictionary.to_pylist()):
                raise _RowsNotPlain
        if "seq" in batch.schema.names and batch.column("seq").null_count < len(batch):
            raise _RowsNotPlain

    def _epoch(self, batch: Any) -> int:
        """The epoch of all rows."""
        column = batch.column("epoch")
        epochs = column.to_numpy(zero_copy_only=False)
        least = int(epochs.min()) if len(epochs) and not column.null_count else -1
        if not self.axes.oldest <= least <= self.axes.epoch or least != epochs.max():
            raise _RowsNotPlain
        return least

    def _code(self, name: str, column: Any) -> Ints:
        """The number of each row's text; of a submission that nobody has now, one more than there are."""
        if column.null_count:
            raise _RowsNotPlain
        words, numbers = self.texts.get(name, (None, None))
        if words is None or not words.equals(column.dictionary):  # batches of a row group share their texts
            words, numbers = column.dictionary, self._numbers(name, column.dictionary.to_pylist())
            self.texts[name] = words, numbers
        codes: Ints = numbers[column.indices.to_numpy()]
        return codes

    def _numbers(self, name: str, texts: list[str]) -> Ints:
        """The number of each text. Raises _RowsNotPlain."""
        numbered = self.codes[name]
        for text in texts if not numbered.keys() >= set(texts) else ():
            if text not in numbered and (name != "submission" or len(text) > 256 or not allowed(text)):
                if name != "task" or not 0 < len(text) <= 256 or not allowed(text):
                    raise _RowsNotPlain
                numbered[text] = len(numbered)
        rest = len(numbered)
        return np.array([numbered.get(text, rest) for text in texts] or [0], np.int32)

    def _occur(self, epoch: int, tasks: Ints, cells: Ints) -> None:
        """Note keys; raises _RowsNotPlain for too many. epoch: its number among those that occur."""
        width = len(self.counts)
        size = (epoch + 1) * TASKS * width
        if len(self.codes["task"]) > TASKS or size > MOST_SLOTS:
            raise _RowsNotPlain
        if size > len(self.keys):
            self.keys = np.concatenate([self.keys, np.zeros(size - len(self.keys), np.bool_)])
        self.keys[(epoch * width + cells) * TASKS + tasks] = True

    def scored(self, window: int) -> Scored:
        """The scores. Raises _RowsNotPlain if a key occurred twice, or a window has more tasks."""
        if self.counts.max(initial=0) > window or np.count_nonzero(self.keys) != self.records:
            raise _RowsNotPlain
        first = {}
        submissions, participants = self.lowest["submission"], self.lowest["participant"]
        for column, (key, submission) in enumerate(zip(self.axes.participants, self.axes.submissions, strict=True)):
            about = submissions[self.codes["submission"][submission]] if submission else participants[column]
            if about <= LARGEST and key not in self.axes.duplicate_of:
                first[key] = int(about)
        return averaged(self.sums.astype(np.int64), self.counts, self.axes, first)


def _scores(files: ParquetFiles, rules: WorkflowScore) -> Ints | None:
    """S of each row in nanos, in the order of the files, int32; None if a row is not plain. SPEC 2.2."""
    if not _are_plain(files.types):
        return None
    scores = files.connection.sql(_query(files, rules)).to_arrow_table().column("y")
    values: Ints = scores.to_numpy()
    return None if scores.null_count else values


def _query(files: ParquetFiles, rules: WorkflowScore) -> str:
    """SQL for y of each row: its score, NULL if the row is not plain."""
    condition = _Conditions(files)
    ok, score = " AND ".join([*condition.always(), *condition.ran()]), _formula(rules, condition.number)
    if "outcome" in files.types and files.rows("DISTINCT outcome") != [("ran",)]:
        code = f"enum_code(TRY_CAST(outcome AS {enum(*OUTCOMES)}))"
        ran = f"(outcome IS NULL OR {code} = 0)"
        ok = f"CASE WHEN {ran} THEN {ok} ELSE {' AND '.join([*condition.always(), f'{code} > 0', *condition.other()])} END"
        score = f"CASE WHEN {ran} THEN {score} ELSE 0 END"
    numbers = ", ".join(name for name in NUMBERS if name in files.types)
    return (
        f"SELECT CASE WHEN ok THEN CASE WHEN abs(x - r) < {0.5 - CLOSE!r} THEN r "
        f"ELSE {_exactly(rules, condition.number)} END END AS y FROM "
        f"(SELECT *, x::INTEGER AS r FROM (SELECT {numbers}, {ok} AS ok, {score} AS x FROM {files.table}))"
    )


class _Conditions:
    """The conditions that a plain row meets, as SQL."""

    def __init__(self, files: ParquetFiles) -> None:
        self.types = files.types
        self.holed = _holed(files.paths)

    def number(self, name: str) -> str:
        """A count that may be left out."""
        if name not in self.types:
            return "0"
        return f"coalesce({name}, 0)" if name in self.holed else name

    def always(self) -> Iterator[str]:
        """Of any outcome."""
        if "observed_at" in self.types:
            yield "coalesce(observed_at BETWEEN TIMESTAMP '0002-01-01' AND TIMESTAMP '9998-12-31', true)"
        numbers = [self.number(name) for name in COUNTS if name in self.types]
        if numbers:
            yield f"({' | '.join(numbers)}) BETWEEN 0 AND {PLAIN}"

    def ran(self) -> Iterator[str]:
        """Of a row that ran."""
        yield f"(steps_completed | steps_total) BETWEEN 0 AND {STEPS}"
        yield "steps_completed <= steps_total AND steps_total > 0 AND quality BETWEEN 0 AND 1"
        yield "cost >= 0 AND budget > 0 AND seconds >= 0 AND max_seconds > 0"
        yield from self._bounded()

    def other(self) -> Iterator[str]:
        """Of a row that did not run: it may leave out everything else."""
        done, steps = "coalesce(steps_completed, 0)", "coalesce(steps_total, 0)"
        yield f"({done} | {steps}) BETWEEN 0 AND {STEPS} AND {done} <= {steps}"
        yield "coalesce(quality <= 1, true)"
        yield from (f"coalesce({name} >= 0, true)" for name in AMOUNTS)
        yield from self._bounded()

    def _bounded(self) -> Iterator[str]:
        """Amounts below 10^9, where the type of the column does not say so."""
        for name in AMOUNTS:
            width, scale = _digits(self.types[name])
            if width - scale > 9:
                yield f"coalesce({name} < 1000000000, true)"


def _formula(rules: WorkflowScore, number: Callable[[str], str]) -> str:
    """SQL for S in nanos, as a float that is wrong by less than 2^-18. SPEC 2.2."""
    success = f"(quality::DOUBLE * {NANO}e0 * steps_completed)"
    share = {name: getattr(rules.weights, name) / NANO for name in ("success", "cost", "latency", "reliability")}

    def spared(part: str, used: str, limit: str) -> str:
        left = f"{share[part] * NANO!r} * (1 - {used}::DOUBLE / {limit}::DOUBLE)"
        return f"CASE WHEN {used} < {limit} THEN {left} ELSE 0 END"

    declared, most = number("declared_retries"), f"{rules.max_retries_per_step} * steps_total"
    unplanned = f"({number('retries')} - CASE WHEN {declared} < {most} THEN {declared} ELSE {most} END)"
    penalties = rules.penalties
    trouble = f"({penalties.unplanned_retry}e0 * (CASE WHEN {unplanned} > 0 THEN {unplanned} ELSE 0 END)"
    trouble += f" + {penalties.timeout}e0 * {number('timeouts')} + {penalties.hard_failure}e0 * {number('hard_failures')})"
    return (
        f"{share['success']!r} * ({success} / steps_total) + CASE WHEN {success} > {rules.gate}e0 * steps_total + 0.5 "
        f"THEN ({spared('cost', 'cost', 'budget')}) + ({spared('latency', 'seconds', 'max_seconds')}) ELSE 0 END "
        f"+ CASE WHEN {trouble} < {NANO}e0 THEN {share['reliability']!r} * ({NANO}e0 - {trouble}) ELSE 0 END"
    )


def _exactly(rules: WorkflowScore, number: Callable[[str], str]) -> str:
    """SQL for S where x, its float, is near a half: floor(x) or one more; NULL if the numbers are too large for 128 bits.

    As in `settle.score.workflow`: the four parts come over one denominator D, and 2·numerator is compared with (2·floor + 1)·D.
    """

    def nanos(name: str) -> str:
        return f"({name}::DECIMAL(38, 9) * {NANO})::HUGEINT"

    def spared(used: str, limit: str) -> str:
        passed = f"{success} > {rules.gate}::HUGEINT * steps_total AND {used} < {limit}"
        return f"(CASE WHEN {passed} THEN {nanos(limit)} - {nanos(used)} ELSE 0::HUGEINT END)"

    weights, penalties = rules.weights, rules.penalties
    parts = (weights.success, weights.cost, weights.latency, weights.reliability)
    common = math.gcd(*parts, NANO)
    success = f"({nanos('quality')} * steps_completed)"
    less, early = spared("cost", "budget"), spared("seconds", "max_seconds")
    first, second, third = "steps_total::HUGEINT", nanos("budget"), nanos("max_seconds")
    unplanned = (
        f"greatest(0, {number('retries')} - least({number('declared_retries')}, {rules.max_retries_per_step} * steps_total))"
    )
    trouble = f"{penalties.unplanned_retry}::HUGEINT * {unplanned} + {penalties.timeout}::HUGEINT * {number('timeouts')}"
    trouble += f" + {penalties.hard_failure}::HUGEINT * {number('hard_failures')}"
    over = [f"{weight // common}::HUGEINT" for weight in parts]
    numerator = (
        f"({over[0]} * {success} * {second} * {third} + {over[1]} * {NANO} * {less} * {first} * {third} "
        f"+ {over[2]} * {NANO} * {early} * {first} * {second} "
        f"+ {over[3]} * greatest(0::HUGEINT, {NANO} - ({trouble})) * {first} * {second} * {third})"
    )
    whole, floor = f"({NANO // common}::HUGEINT * {first} * {second} * {third})", "floor(x)::HUGEINT"
    above = f"2 * {numerator} - (2 * {floor} + 1) * {whole}"
    small = f"{NANO // common}e0 * {first}::DOUBLE * {second}::DOUBLE * {third}::DOUBLE < 1e28"
    return f"CASE WHEN {small} THEN floor(x)::INTEGER + CASE WHEN {above} + {floor} % 2 > 0 THEN 1 ELSE 0 END END"


def _holed(paths: Sequence[Path]) -> frozenset[str]:
    """The counts that may have empty cells, by what the files say of themselves; only speed depends on it.

    A cell that is empty against what its file says makes its row one that is not plain.
    """
    import pyarrow.parquet as pq

    full: set[str] = set(COUNTS)
    for path in paths:
        with pq.ParquetFile(path) as file:
            groups = [file.metadata.row_group(at) for at in range(file.metadata.num_row_groups)]
        for column in (group.column(at) for group in groups for at in range(group.num_columns)):
            stated = column.statistics
            if column.path_in_schema in full and (stated is None or not stated.has_null_count or stated.null_count):
                full.discard(column.path_in_schema)
    return frozenset(COUNTS) - full
