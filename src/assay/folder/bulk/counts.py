"""Groups of records into counts per validator and participant, competition by competition. SPEC 2, 3.0."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.folder.bulk import exact
from assay.folder.bulk.ask import Batch, Names, groups
from assay.folder.bulk.check import check_names, look_over
from assay.folder.bulk.files import Files, quoted
from assay.folder.evidence import Gathered, check_conflicts
from assay.records import Tests
from assay.scheme.model import TestsScore
from assay.settle.inputs import Bools, Frame, Ints, Scored
from assay.settle.score import accepted, tests
from assay.settle.score.accepted import holding

__all__ = ["Counts"]

Groups = dict[str, NDArray[Any]]
TABLE = 50_000_000
"""Up to this many pairs of numbers are looked up in an array, more in a sorted list."""


class Counts:
    """The counts of several competitions, their cells (validator, participant) one after the other in one array each."""

    def __init__(self, files: Files, competitions: Mapping[str, tuple[Frame, TestsScore]]) -> None:
        self.files, self.competitions = files, competitions
        self.frames = [frame for frame, _ in competitions.values()]
        self.names = Names(
            files,
            competitions=tuple(competitions) if "competition" in files.types else (),
            validators=_all(frame.validators for frame in self.frames),
            participants=_all(frame.participants for frame in self.frames),
            submissions=_all([("",), *(frame.submissions for frame in self.frames)]),
        )
        self.summary = look_over(files, self.names)
        sizes = [frame.shape[0] * frame.shape[1] for frame in self.frames]
        self.base = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.width = np.array([frame.shape[1] for frame in self.frames], np.int64)
        self.row = _Lookup(self.names.validators, [frame.row for frame in self.frames])
        self.column = _Lookup(self.names.participants, [frame.column for frame in self.frames])
        self.empty = _Lookup(self.names.participants, [_without(frame) for frame in self.frames])
        self.holder = _Lookup(self.names.submissions, [frame.holder for frame in self.frames])
        self.passed, self.ran = np.zeros(self.base[-1], np.int64), np.zeros(self.base[-1], np.int64)
        self.seen = np.zeros(self.base[-1], np.bool_)
        self.first: list[dict[str, int]] = [{} for _ in self.frames]

    def scored(self) -> dict[str, Scored]:
        """The scores of every competition, by name; raises BadInput with file and row."""
        self._check_participants()
        for batch in self._batches():
            self._count(batch)
            self._note_first_of_others(batch)
        found = {}
        for index, (name, (frame, rules)) in enumerate(self.competitions.items()):
            cells = slice(self.base[index], self.base[index + 1])
            passed, ran, seen = (a[cells].reshape(frame.shape) for a in (self.passed, self.ran, self.seen))
            missing = len(frame.tasks) * rules.trials - ran
            found[name] = tests.tally(passed, missing, seen, frame, rules, self.first[index])
        return found

    def _batches(self) -> list[Batch]:
        """Competitions that one pass can count together."""
        several: dict[tuple[tuple[str, ...], int, int, int], list[str]] = {}
        for name, (frame, rules) in self.competitions.items():
            several.setdefault((frame.tasks, rules.trials, frame.oldest, frame.epoch), []).append(name)
        named = len(several) > 1
        return [Batch(*key, competitions=tuple(names) if named else ()) for key, names in several.items()]

    def _count(self, batch: Batch) -> None:
        """Add up the records of a batch, and look over those of the epochs that do not count."""
        lowest, highest = self.summary.epochs
        if lowest is None or highest is None:
            return
        if lowest < batch.oldest or highest > batch.epoch:
            outside = self._groups(batch, batch.outside, lowest=True)
            others = f"SELECT DISTINCT task FROM {self.files.table} WHERE {batch.outside}"
            check_names(self.files, "task", others)
            before = outside["lowest"] <= batch.epoch
            self._note_first({name: values[before] for name, values in outside.items()})
            inside = self._groups(batch, batch.window, lowest=True)
        else:
            inside = self._groups(batch, batch.mine, lowest=lowest != highest)
            inside.setdefault("lowest", np.broadcast_to(np.int64(lowest), inside["n"].shape))
        self._note_first(inside)
        dirty = self._dirty(inside)
        if dirty.any():
            self._exactly(batch, np.unique(inside["h"][dirty]), int(inside["n"][dirty].sum()))
        cell = self._cells(inside)
        use = (cell >= 0) & ~dirty
        cell = cell[use]
        self.seen[cell] = True
        self.passed[cell] = inside["passed"][use]
        self.ran[cell] = inside["ran"][use]

    def _groups(self, batch: Batch, condition: str, *, lowest: bool) -> Groups:
        """The groups of the competitions asked for; raises BadInput for unknown names."""
        constant = self.summary.trials == (1, 1)
        query = groups(self.files, batch, self.names, condition, constant_trial=constant, lowest=lowest)
        found = self._asked_for(self.files.connection.execute(query).fetchnumpy())
        self._check_known(found, "v", self.row, "validator", "validators.csv")
        if (found["s"] < 0).any():
            check_names(self.files, "submission", f"SELECT DISTINCT submission FROM {self.files.table}")
        return found

    def _asked_for(self, answer: Mapping[str, Any]) -> Groups:
        """The columns of an answer, none of which is ever null; rows of other competitions left out."""
        found = {name: np.ma.getdata(values) for name, values in answer.items()}
        if self.names.competitions and (found["c"] < 0).any():
            found = {name: values[found["c"] >= 0] for name, values in found.items()}
        return found

    def _check_participants(self) -> None:
        """Refuse a participant that its competition does not know; raises BadInput. Often the first look has shown it already."""
        alike = all(frame.column.keys() == self.frames[0].column.keys() for frame in self.frames)
        if self.summary.all_known and alike:
            return
        by = "competition, participant" if self.names.competitions else "participant"
        asked = f"{self.names.code('competition')}, {self.names.code('participant')}"
        query = f"SELECT {asked} FROM (SELECT {by} FROM {self.files.table} GROUP BY {by})"
        found = self._asked_for(self.files.connection.execute(query).fetchnumpy())
        self._check_known(found, "p", self.column, "participant", "participants.csv")

    def _check_known(self, found: Groups, letter: str, known: _Lookup, column: str, file: str) -> None:
        unknown = known.of(found["c"], found[letter]) < 0
        if not unknown.any():
            return
        for index in np.unique(found["c"][unknown]):
            keys = ", ".join(quoted(key) for key in known.keys(int(index)))
            mine = f" AND competition = {quoted(self.names.competitions[index])}" if self.names.competitions else ""
            condition = f"({column} IS NULL OR {column} NOT IN ({keys})){mine}"
            raise self.files.refuse(condition, column, f"there is no {column} {{}}", f"it must be in {file}")

    def _cells(self, found: Groups) -> Ints:
        """The cell that each group counts for: whoever holds the submission, or the participant if neither has one; or −1."""
        columns = self.holder.of(found["c"], found["s"])
        without = found["s"] == 0
        if "p" in found and without.any():
            columns[without] = self.empty.of(found["c"][without], found["p"][without])
        rows = self.row.of(found["c"], found["v"])
        return np.where(columns < 0, -1, self.base[found["c"]] + rows * self.width[found["c"]] + columns)

    def _dirty(self, found: Groups) -> Bools:
        """Groups whose counts may be wrong: a trial twice, an unknown task or trial, no submission."""
        dirty = (found["bits"] != found["n"]) | (found["s"] == 0)
        if dirty.any():
            dirty |= np.isin(found["h"], found["h"][dirty])
        return np.asarray(dirty, np.bool_)

    def _exactly(self, batch: Batch, numbers: NDArray[np.uint64], records: int) -> None:
        looked = exact.look(self.files, batch, self.names, numbers, records)
        for group in map(self._asked_for, looked.groups):
            cell = self._cells(group)
            use = cell >= 0
            self.seen[cell[use]] = True
            np.add.at(self.passed, cell[use], group["passed"][use])
            np.add.at(self.ran, cell[use], group["ran"][use])
        for name, gathered in looked.conflicting.items():
            if not self.names.competitions or name in self.competitions:
                self._accept(batch, list(self.competitions).index(name) if name in self.competitions else 0, gathered)

    def _accept(self, batch: Batch, index: int, gathered: Gathered) -> None:
        """Count the first accepted of records that differ, as JSON lines are counted; raises BadInput. SPEC 3.0."""
        frame = self.frames[index]
        check_conflicts(gathered, batch.oldest, batch.epoch)
        tasks, column_of = frozenset(batch.tasks), holding(frame)
        for record in accepted(gathered.records, frame):
            column = column_of(record)
            if column is not None and isinstance(record, Tests):
                cell = self.base[index] + frame.row[record.validator] * self.width[index] + column
                known = record.task in tasks and record.trial <= batch.trials
                self.ran[cell] += known and record.outcome != "error"
                self.passed[cell] += known and record.outcome == "pass"

    def _note_first(self, found: Groups) -> None:
        """Keep the lowest epoch of any evidence about each submission. SPEC 3.0."""
        self._lower(found, self.holder.of(found["c"], found["s"]))

    def _note_first_of_others(self, batch: Batch) -> None:
        """Keep the lowest epoch of any evidence about each participant that has no submission. SPEC 3.0."""
        without = _all(tuple(_without(frame)) for frame in self.frames)
        if without:
            by = "competition, participant" if self.names.competitions else "participant"
            wanted = f"participant IN ({', '.join(map(quoted, without))}) AND {batch.mine} AND epoch <= {batch.epoch}"
            inner = f"SELECT {by}, min(epoch)::BIGINT AS lowest FROM {self.files.table} WHERE {wanted} GROUP BY {by}"
            asked = f"{self.names.code('competition')}, {self.names.code('participant')}"
            answer = self.files.connection.execute(f"SELECT {asked}, lowest FROM ({inner})").fetchnumpy()
            found = self._asked_for(answer)
            self._lower(found, self.empty.of(found["c"], found["p"]))

    def _lower(self, found: Groups, columns: Ints) -> None:
        use = columns >= 0
        starts = np.concatenate([[0], np.cumsum(self.width)])
        lowest = np.full(starts[-1], np.iinfo(np.int64).max)
        np.minimum.at(lowest, starts[found["c"][use]] + columns[use], found["lowest"][use].astype(np.int64))
        for index, frame in enumerate(self.frames):
            for key, epoch in zip(frame.participants, lowest[starts[index] : starts[index + 1]].tolist(), strict=True):
                if epoch != np.iinfo(np.int64).max:
                    self.first[index][key] = min(epoch, self.first[index].get(key, epoch))


def _without(frame: Frame) -> Mapping[str, int]:
    """Participants without a submission, and their columns."""
    return {
        key: frame.column[key] for key, submission in zip(frame.participants, frame.submissions, strict=True) if not submission
    }


class _Lookup:
    """(competition, number of a name) → row or column there, −1 where that competition does not have the name."""

    def __init__(self, names: tuple[str, ...], places: list[Mapping[str, int]] | list[dict[str, int]]) -> None:
        self.size = len(names) + 1
        self.places = places
        number = {name: index for index, name in enumerate(names)}
        pairs = [(c * self.size + number[name], place) for c, known in enumerate(places) for name, place in known.items()]
        keys = np.array([key for key, _ in pairs] or [-1], np.int64)
        values = np.array([value for _, value in pairs] or [-1], np.int64)
        order = np.argsort(keys, kind="stable")
        self.sorted, self.values = keys[order], values[order]
        self.table: Ints | None = None
        if self.size * len(places) <= TABLE:
            self.table = np.full(self.size * len(places), -1, np.int64)
            if pairs:
                self.table[keys] = values

    def of(self, competition: NDArray[Any], name: NDArray[Any]) -> Ints:
        """The places of many at once; a name of −1 has none."""
        asked = np.where(name < 0, self.size - 1, name) + competition.astype(np.int64) * self.size
        if self.table is not None:
            return np.asarray(self.table[asked], np.int64)
        at = np.minimum(np.searchsorted(self.sorted, asked), len(self.sorted) - 1)
        return np.where(self.sorted[at] == asked, self.values[at], -1)

    def keys(self, competition: int) -> Iterable[str]:
        """The names that a competition has."""
        return self.places[competition]


def _all(many: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for names in many for name in names))
