"""The trials of a season until it is decided: a choice of what a run judges (`judge.running.CellChoice`). SPEC 2.1, 3, 4, 5.

A participant that `rules.decided` decides is not judged any further. The next trial is one of the participant that can still get
the highest score, so leaders are whole soon, and those who cannot reach them are left alone; where ranks count, participants
whose rank is open take turns before. Its trials of the tasks that fewest have passed come first, so that bounds fall early. Which
trial is next follows from the evidence alone: with one job, a run that was killed goes on as if nothing had happened.

Evidence of others is what was there when the run began. What comes meanwhile is not known, and so may be anything.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from assay.competition import open_competition
from assay.judge.running import Cell
from assay.rules.decided import Certainty, OpenSeason, Until

__all__ = ["Spared", "UntilDecided"]

Key = tuple[object, ...]
Json = dict[str, Any]
_Rank = tuple[int, int, int, int]
_NOBODY = -1
"""The column of cells that are not in the settlement; they are judged last, and never decided."""


class Spared(NamedTuple):
    """A participant that is decided, with trials that were not judged."""

    trials: int
    standing: Certainty


class UntilDecided:
    """The trials of one validator that may still matter. Participants are columns of the season's frame."""

    def __init__(self, season: OpenSeason, validator: str) -> None:
        settlement = season.settlement
        frame = settlement.frame
        self.season, self._row = season, frame.row[validator]
        self._task = {name: at for at, name in enumerate(frame.tasks)}
        self._per_task = season.trials // max(1, len(frame.tasks))
        self._judged: set[tuple[int, int]] = set()
        """Column and number of the trials that this validator has judged."""
        self._pending: dict[int, set[Key]] = {}
        """By column, the cells without a result."""
        self._decided: set[int] = set()
        self._open: list[int] = []
        """Columns that may have cells which are pending, and may not be decided."""
        self._old = season.settlement.inputs.scheme.consensus.max_age_epochs is not None
        """Whether evidence that is there already may be too old to count."""
        self.hardest = _Hardest(season, self._per_task)
        for at in range(len(frame.participants)):
            self._judged |= {(at, number) for number in season.judged(self._row, at)}

    @classmethod
    def of(cls, folder: Path, validator: str, until: Until, epoch: int | None = None) -> UntilDecided:
        """The choice for a competition with the evidence that it has now. Raises BadInput and StoreError."""
        return cls(OpenSeason(open_competition(folder).upcoming(epoch), until), validator)

    # What a run asks

    def chosen(self, cells: Collection[Any]) -> Collection[Any]:
        """The cells of participants that are not decided, best first; each pass looks anew at what is known by then."""
        by_column: dict[int, list[Any]] = {}
        for cell in cells:
            place = self.place(cell.key)
            by_column.setdefault(_NOBODY if place is None else place[0], []).append(cell)
        self._old = False
        for at, own in by_column.items():
            self._pending[at] = {cell.key for cell in own if self.place(cell.key) not in self._judged}
        self._open = [at for at, keys in self._pending.items() if keys]
        for at in by_column:
            self.is_decided(at)
        return _BestFirst(self, by_column)

    def saw(self, key: Key, outcome: str) -> None:
        """Note the outcome of a trial, by (submission, task, trial). One that stays missing by an error changes no bound."""
        place = self.place(key)
        if place is None or self._old:
            return
        at, _ = place
        if at in self._pending:
            self._pending[at].discard(key)
        if outcome != "error" and place not in self._judged and self.season.missing[self._row, at]:
            self._judged.add(place)
            self.season.took(self._row, at, passed=outcome == "pass")
            self.hardest.saw(place[1], passed=outcome == "pass")

    @property
    def enough(self) -> bool:
        """Whether no trial that this run could judge can change anything."""
        while self._open and (not self._pending[self._open[-1]] or self.is_decided(self._open[-1])):
            self._open.pop()
        return not self._open

    # What is known

    def place(self, key: Key) -> tuple[int, int] | None:
        """The column and the number of a trial; None if it does not count."""
        submission, task, trial = key
        at, number = self.season.settlement.frame.holder.get(str(submission)), self._task.get(str(task))
        if at is None or number is None or not isinstance(trial, int) or not 1 <= trial <= self._per_task:
            return None
        return at, number * self._per_task + trial - 1

    def is_decided(self, at: int) -> bool:
        """Whether nothing that is left of a participant matters; it stays so."""
        if at == _NOBODY or at in self._decided:
            return at != _NOBODY
        counts = self.season.seated[self._row, at] or self.season.undrawn[at]
        if not counts or self.season.decides(at):
            self._decided.add(at)
        return at in self._decided

    def rank(self, at: int) -> _Rank:
        """The place of a participant among those to be judged next: the lowest first. It never gets a lower one.

        While its rank is open, whoever has the widest range is first. Otherwise it is who may get the highest score.
        """
        season, row = self.season, self._row
        missing = int(season.missing[row, at])
        if season.until == "decided" and season.why(at) == "rank":
            return 0, -missing, 0, at
        return 1, -int(season.high[at]), -missing - int(season.passed[row, at]), at

    @property
    def spared(self) -> list[Spared]:
        """The participants with trials that need not be judged, in the order of the registry."""
        left = [(at, len(keys)) for at, keys in sorted(self._pending.items()) if keys and self.is_decided(at)]
        return [Spared(count, self.season.standing(at)) for at, count in left]

    @property
    def document(self) -> Json:
        """The trials that were spared, for programs."""
        spared = self.spared
        rows = [{"spared": row.trials} | row.standing.document for row in spared]
        total = sum(row.trials for row in spared)
        return {"until": self.season.until, "decided": self.is_all_decided, "spared": total, "participants": rows}

    @property
    def is_all_decided(self) -> bool:
        """Whether all that has no result is spared."""
        return all(self.is_decided(at) for at, keys in self._pending.items() if keys)


class _Hardest:
    """The order of a participant's trials: first those of tasks that fewest have passed, so that bounds fall early."""

    def __init__(self, season: OpenSeason, per_task: int) -> None:
        self._per_task = max(1, per_task)
        passed, judged = season.by_trial
        self._passed, self._judged = (counts.reshape(-1, self._per_task).sum(axis=1) for counts in (passed, judged))
        self._order: list[int] | None = None

    def saw(self, number: int, *, passed: bool) -> None:
        """Note the outcome of a trial."""
        self._passed[number // self._per_task] += passed
        self._judged[number // self._per_task] += 1
        self._order = None

    @property
    def order(self) -> list[int]:
        """The numbers of all trials, by (passed + 1) / (judged + 2) of their tasks, then as the tasks are listed."""
        if self._order is None:
            share = (self._passed + 1) * 2**32 // (self._judged + 2)
            tasks = np.argsort(share, kind="stable")
            self._order = (tasks[:, None] * self._per_task + np.arange(self._per_task)).ravel().tolist()
        return self._order


class _BestFirst(Collection[Any]):
    """The cells of participants that are not decided. The next is of the one that ranks first when it is asked for."""

    def __init__(self, choice: UntilDecided, cells: Mapping[int, list[Any]]) -> None:
        self._choice, self._cells = choice, cells

    def __iter__(self) -> Iterator[Cell]:
        choice = self._choice
        left = {at: {choice.place(cell.key): cell for cell in cells} for at, cells in self._cells.items() if at != _NOBODY}
        heap = [choice.rank(at) for at in left if not choice.is_decided(at)]
        heapq.heapify(heap)
        walks: dict[int, tuple[list[int], Iterator[int]]] = {}
        """By column, an order and how far along it the trials are given out."""
        while heap:
            known = heapq.heappop(heap)
            at = known[-1]
            if choice.is_decided(at):
                continue
            if choice.rank(at) != known:  # it was better when it was put there
                heapq.heappush(heap, choice.rank(at))
                continue
            order = choice.hardest.order
            if at not in walks or walks[at][0] is not order:
                walks[at] = order, iter(order)
            yield left[at].pop(next((at, number) for number in walks[at][1] if (at, number) in left[at]))
            if left[at]:
                heapq.heappush(heap, choice.rank(at))
        yield from self._cells.get(_NOBODY, ())

    def __len__(self) -> int:
        return sum(len(cells) for at, cells in self._cells.items() if not self._choice.is_decided(at))

    def __contains__(self, cell: object) -> bool:
        return any(cell == other for other in self)
