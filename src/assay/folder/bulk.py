"""Adds up tests evidence in Parquet, many millions of records, without a Python object for each. SPEC 2.1, 3.0, 7.

    files → check of the columns → one pass of groups → doubtful groups exactly → counts → settle.score.trials.tally

The result equals that of the same records as JSON lines, to the bit. A record that is refused there is refused here. Groups in
which a trial occurs twice, or a task is unknown, are counted record by record: equal records count once, and of different records
the first accepted one counts. Only records of which no `seq` says which was first are read into Python; they are refused there.

Sums are not enough where a task passes by all validators: rows are read as those of other kinds (`assay.folder.rows`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.errors import BadInput
from assay.folder.evidence import Gathered, check_conflicts
from assay.folder.files import EVIDENCE_RECORDS, Place
from assay.folder.parquet import (
    CompetitionBatch,
    Names,
    ParquetFiles,
    check_names,
    groups,
    identity,
    look_over,
    opened_parquet,
    quoted,
)
from assay.folder.rows import tally as tally_rows
from assay.records import Tests, record
from assay.scheme.model import Scheme, TestsScore
from assay.settle.inputs import Bools, Frame, Ints, Scored
from assay.settle.score import accepted, holding, trials

__all__ = ["Counts", "Exact", "highest_epoch", "look", "records", "single", "tally", "tally_many"]


PART = 10_000_000
"""Most records that are read one by one at the same time."""
KEY = "competition, validator, submission, own, task, trial"
UNKNOWN = datetime(1, 1, 1, tzinfo=UTC)
"""The time of a record whose file gives none."""
SAME = """min(epoch) = max(epoch) AND min(outcome) = max(outcome)
    AND (count(seen_at) = 0 OR (count(seen_at) = count(*) AND min(seen_at) = max(seen_at)))
    AND (count(image) = 0 OR (count(image) = count(*) AND min(image) = max(image)))
    AND (count(work) = 0 OR (count(work) = count(*) AND min(work) = max(work)))"""
"""Whether the records of a key say the same, in every field of `Record.content`. SPEC 3.0."""


@dataclass
class Exact:
    """The counts of the doubtful records."""

    groups: list[dict[str, Any]] = field(default_factory=list)
    """Arrays c, v, p, s, passed, ran: one element for each score, over known tasks and trials, without conflicting keys."""
    conflicting: dict[str, Gathered] = field(default_factory=dict)
    """Competition ("" if there is only one) → the records of keys that have different records."""


def look(files: ParquetFiles, batch: CompetitionBatch, names: Names, dirty: NDArray[np.uint64], records: int) -> Exact:
    """The counts of every record whose `identity` is doubtful. Raises BadInput with file and row for an invalid task."""
    tasks = files.enum(batch.tasks)
    codes = ", ".join(names.code(column) for column in ("competition", "validator", "participant", "submission"))
    exact = Exact()
    for part in _parts(files, dirty, records):
        files.connection.execute(
            f"CREATE OR REPLACE TEMP TABLE keys AS SELECT {KEY}, ({SAME}) AS same, any_value(outcome) AS outcome, "
            "count(seq) = count(*) AS numbered, arg_min(outcome, seq) AS earliest, "
            f"(TRY_CAST(task AS {tasks}) IS NOT NULL AND trial <= {batch.trials}) AS known "
            f"FROM ({_select(files, files.table, batch, part)}) GROUP BY {KEY}"
        )
        check_names(files, "task", "SELECT DISTINCT task FROM keys WHERE NOT known")
        if "seq" in files.types:
            _take_first(files, _select(files, files.table, batch, part))
        exact.groups.append(
            files.connection.execute(
                f"SELECT {codes}, passed, ran FROM (SELECT competition, validator, submission, own AS participant, "
                "count_if(same AND known AND outcome = 'pass')::BIGINT AS passed, "
                "count_if(same AND known AND outcome <> 'error')::BIGINT AS ran "
                "FROM keys GROUP BY competition, validator, submission, own)"
            ).fetchnumpy()
        )
        if files.connection.execute("SELECT count(*) FROM keys WHERE NOT same").fetchall() != [(0,)]:
            _gather(files, batch, part, exact)
    return exact


def _take_first(files: ParquetFiles, rows: str) -> None:
    """Of the different records of a key, let the first accepted one count, if each has a `seq`, and the lowest is of one only."""
    different = f"SELECT {KEY} FROM keys WHERE NOT same AND numbered"
    if files.connection.execute(f"SELECT count(*) FROM ({different})").fetchall() == [(0,)]:
        return
    files.connection.execute(
        f"CREATE OR REPLACE TEMP TABLE tied AS SELECT {KEY} FROM ({rows}) SEMI JOIN ({different}) USING ({KEY}) "
        f"GROUP BY {KEY} HAVING min(seq, 2)[1] = min(seq, 2)[2]"
    )
    files.connection.execute(
        "UPDATE keys SET same = true, outcome = earliest "
        f"WHERE NOT same AND numbered AND ({KEY}) NOT IN (SELECT ({KEY}) FROM tied)"
    )


def _parts(files: ParquetFiles, dirty: NDArray[np.uint64], records: int) -> Iterator[str]:
    """SQL conditions that divide the doubtful records into small parts."""
    import pyarrow as pa

    files.connection.register("dirty_numbers", pa.table({"h": dirty}))
    files.connection.execute("CREATE OR REPLACE TEMP TABLE dirty AS SELECT DISTINCT h FROM dirty_numbers")
    number = -(-records // PART)
    for index in range(number):
        yield f"{identity(files)} IN (SELECT h FROM dirty WHERE h % {number} = {index})"


def _select(files: ParquetFiles, table: str, batch: CompetitionBatch, part: str, extra: str = "") -> str:
    """SQL for the records of a part, with every field in which records can differ."""
    fields = [
        f"{files.column('competition', quoted(''))} AS competition",
        "validator, participant, submission, CASE WHEN submission = '' THEN participant ELSE '' END AS own",
        f"task, {files.trial} AS trial, outcome, epoch, {files.instant} AS seen_at, {files.column('seq')} AS seq",
        f"{files.column('image')} AS image, {files.column('work')} AS work",
    ]
    return f"SELECT {', '.join(fields)}{extra} FROM {table} WHERE {batch.window} AND {part}"


def _gather(files: ParquetFiles, batch: CompetitionBatch, part: str, exact: Exact) -> None:
    """Gather the records of conflicting keys as JSON lines would give them, with their places."""
    rows = _select(files, files.rows_table, batch, part, ", filename, file_row_number")
    query = (
        "SELECT competition, filename, file_row_number, "
        "epoch, validator, participant, submission, task, trial, outcome, seen_at, seq, image, work "
        f"FROM ({rows}) SEMI JOIN (SELECT * FROM keys WHERE NOT same) USING ({KEY}) ORDER BY 2, 3 LIMIT {EVIDENCE_RECORDS + 1}"
    )
    answer = files.connection.execute(query).fetchall()
    if len(answer) > EVIDENCE_RECORDS:
        raise BadInput(
            f"more than {EVIDENCE_RECORDS} records share their key with a different one",
            file=files.paths[0].parent,
            hint="keep the first accepted of each",
        )
    for competition, path, number, *fields in answer:
        place = Place(Path(path), number + 1)
        gathered = exact.conflicting.setdefault(competition, Gathered())
        gathered.records.append(_record(fields, place))
        gathered.places.append(place)


def single(files: ParquetFiles, wanted: Mapping[str, Sequence[str]]) -> Iterator[Tests]:
    """The records whose columns have one of the wanted values. Raises BadInput for more than `EVIDENCE_RECORDS`."""
    chosen = [f"{column} IN ({', '.join(map(quoted, values)) or 'NULL'})" for column, values in wanted.items()]
    more = f"{files.column('seq')}, {files.column('image')}, {files.column('work')}"
    seen = f"{files.trial} AS trial, outcome, {files.instant} AS seen_at, {more}"
    query = (
        f"SELECT filename, file_row_number, epoch, validator, participant, submission, task, {seen} FROM {files.rows_table} "
        f"WHERE {' AND '.join(chosen) or 'true'} "
        f"ORDER BY epoch, participant, task, 8, filename, file_row_number LIMIT {EVIDENCE_RECORDS + 1}"
    )
    answer = files.connection.execute(query).fetchall()
    if len(answer) > EVIDENCE_RECORDS:
        hint = "ask for fewer: of one participant, validator, task or outcome"
        raise BadInput(f"the answer has more than {EVIDENCE_RECORDS} records", file=files.paths[0].parent, hint=hint)
    for path, number, *fields in answer:
        yield _record(fields, Place(Path(path), number + 1))


def _record(fields: list[Any], place: Place) -> Tests:
    names = ("epoch", "validator", "participant", "submission", "task", "trial", "outcome", "observed_at", "seq", "image", "work")
    content = dict(zip(names, fields, strict=True))
    seen_at = content["observed_at"]
    if not isinstance(seen_at, str):
        content["observed_at"] = UNKNOWN if seen_at is None else _instant(seen_at, place)
    try:
        read = record(content | {"kind": "tests"})
    except BadInput as error:
        raise place.put(error) from None
    assert isinstance(read, Tests)
    return read


def _instant(microseconds: int, place: Place) -> datetime:
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
    except OverflowError:
        raise place.refuse("is not a time of the years 1 … 9999", field="observed_at", hint="correct it") from None


Groups = dict[str, NDArray[Any]]
TABLE = 50_000_000
"""Up to this many pairs are looked up in an array, more in a sorted list."""


class Counts:
    """The counts of several competitions. One array holds the cells (validator, participant) of all of them."""

    def __init__(self, files: ParquetFiles, competitions: Mapping[str, tuple[Frame, TestsScore]]) -> None:
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
        scores = {}
        for index, (name, (frame, rules)) in enumerate(self.competitions.items()):
            cells = slice(self.base[index], self.base[index + 1])
            passed, ran, seen = (a[cells].reshape(frame.shape) for a in (self.passed, self.ran, self.seen))
            missing = len(frame.tasks) * rules.trials - ran
            scores[name] = trials.tally(passed, missing, seen, frame, rules, self.first[index])
        return scores

    def _batches(self) -> list[CompetitionBatch]:
        """Competitions that one pass can count together."""
        several: dict[tuple[tuple[str, ...], int, int, int], list[str]] = {}
        for name, (frame, rules) in self.competitions.items():
            several.setdefault((frame.tasks, rules.trials, frame.oldest, frame.epoch), []).append(name)
        named = len(several) > 1
        return [CompetitionBatch(*key, competitions=tuple(names) if named else ()) for key, names in several.items()]

    def _count(self, batch: CompetitionBatch) -> None:
        """Add up the records of a batch, and check those of the epochs that do not count."""
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

    def _groups(self, batch: CompetitionBatch, condition: str, *, lowest: bool) -> Groups:
        """The groups of the requested competitions. Raises BadInput for unknown names."""
        constant = self.summary.trials == (1, 1)
        query = groups(self.files, batch, self.names, condition, constant_trial=constant, lowest=lowest)
        rows = self._asked_for(self.files.connection.execute(query).fetchnumpy())
        self._check_known(rows, "v", self.row, "validator", "validators.csv")
        if (rows["s"] < 0).any():
            check_names(self.files, "submission", f"SELECT DISTINCT submission FROM {self.files.table}")
        return rows

    def _asked_for(self, answer: Mapping[str, Any]) -> Groups:
        """The columns of an answer, never null, without the rows of other competitions."""
        columns = {name: np.ma.getdata(values) for name, values in answer.items()}
        if self.names.competitions and (columns["c"] < 0).any():
            columns = {name: values[columns["c"] >= 0] for name, values in columns.items()}
        return columns

    def _check_participants(self) -> None:
        """Refuse a participant that its competition does not know. Often the first pass has shown that all are known."""
        alike = all(frame.column.keys() == self.frames[0].column.keys() for frame in self.frames)
        if self.summary.all_known and alike:
            return
        by = "competition, participant" if self.names.competitions else "participant"
        asked = f"{self.names.code('competition')}, {self.names.code('participant')}"
        query = f"SELECT {asked} FROM (SELECT {by} FROM {self.files.table} GROUP BY {by})"
        rows = self._asked_for(self.files.connection.execute(query).fetchnumpy())
        self._check_known(rows, "p", self.column, "participant", "participants.csv")

    def _check_known(self, rows: Groups, letter: str, known: _Lookup, column: str, file: str) -> None:
        unknown = known.of(rows["c"], rows[letter]) < 0
        if not unknown.any():
            return
        for index in np.unique(rows["c"][unknown]):
            keys = ", ".join(quoted(key) for key in known.keys(int(index)))
            mine = f" AND competition = {quoted(self.names.competitions[index])}" if self.names.competitions else ""
            condition = f"({column} IS NULL OR {column} NOT IN ({keys})){mine}"
            raise self.files.refuse(condition, column, f"there is no {column} {{}}", f"it must be in {file}")

    def _cells(self, counted: Groups) -> Ints:
        """The cell of each group, or −1: of the submission's holder, or of the participant if there is no submission."""
        columns = self.holder.of(counted["c"], counted["s"])
        without = counted["s"] == 0
        if "p" in counted and without.any():
            columns[without] = self.empty.of(counted["c"][without], counted["p"][without])
        rows = self.row.of(counted["c"], counted["v"])
        return np.where(columns < 0, -1, self.base[counted["c"]] + rows * self.width[counted["c"]] + columns)

    def _dirty(self, rows: Groups) -> Bools:
        """The groups whose counts may be wrong: a repeated trial, an unknown task or trial, or no submission."""
        dirty = (rows["bits"] != rows["n"]) | (rows["s"] == 0)
        if dirty.any():
            dirty |= np.isin(rows["h"], rows["h"][dirty])
        return np.asarray(dirty, np.bool_)

    def _exactly(self, batch: CompetitionBatch, numbers: NDArray[np.uint64], records: int) -> None:
        looked = look(self.files, batch, self.names, numbers, records)
        for group in map(self._asked_for, looked.groups):
            cell = self._cells(group)
            use = cell >= 0
            self.seen[cell[use]] = True
            np.add.at(self.passed, cell[use], group["passed"][use])
            np.add.at(self.ran, cell[use], group["ran"][use])
        for name, gathered in looked.conflicting.items():
            if not self.names.competitions or name in self.competitions:
                self._accept(batch, list(self.competitions).index(name) if name in self.competitions else 0, gathered)

    def _accept(self, batch: CompetitionBatch, index: int, gathered: Gathered) -> None:
        """Count the first accepted of different records, as for JSON lines. Raises BadInput. SPEC 3.0."""
        frame = self.frames[index]
        check_conflicts(gathered, batch.oldest, batch.epoch)
        tasks, column_of = frozenset(batch.tasks), holding(frame)
        for counted in accepted(gathered.records, frame):
            column = column_of(counted)
            if column is not None and isinstance(counted, Tests):
                cell = self.base[index] + frame.row[counted.validator] * self.width[index] + column
                known = counted.task in tasks and counted.trial <= batch.trials
                self.ran[cell] += known and counted.outcome != "error"
                self.passed[cell] += known and counted.outcome == "pass"

    def _note_first(self, rows: Groups) -> None:
        """Note the lowest epoch of any evidence about each submission. SPEC 3.0."""
        self._lower(rows, self.holder.of(rows["c"], rows["s"]))

    def _note_first_of_others(self, batch: CompetitionBatch) -> None:
        """Note the lowest epoch of any evidence about each participant without a submission. SPEC 3.0."""
        without = _all(tuple(_without(frame)) for frame in self.frames)
        if without:
            by = "competition, participant" if self.names.competitions else "participant"
            wanted = f"participant IN ({', '.join(map(quoted, without))}) AND {batch.mine} AND epoch <= {batch.epoch}"
            inner = f"SELECT {by}, min(epoch)::BIGINT AS lowest FROM {self.files.table} WHERE {wanted} GROUP BY {by}"
            asked = f"{self.names.code('competition')}, {self.names.code('participant')}"
            answer = self.files.connection.execute(f"SELECT {asked}, lowest FROM ({inner})").fetchnumpy()
            rows = self._asked_for(answer)
            self._lower(rows, self.empty.of(rows["c"], rows["p"]))

    def _lower(self, rows: Groups, columns: Ints) -> None:
        use = columns >= 0
        starts = np.concatenate([[0], np.cumsum(self.width)])
        lowest = np.full(starts[-1], np.iinfo(np.int64).max)
        np.minimum.at(lowest, starts[rows["c"][use]] + columns[use], rows["lowest"][use].astype(np.int64))
        for index, frame in enumerate(self.frames):
            for key, epoch in zip(frame.participants, lowest[starts[index] : starts[index + 1]].tolist(), strict=True):
                if epoch != np.iinfo(np.int64).max:
                    self.first[index][key] = min(epoch, self.first[index].get(key, epoch))


def _without(frame: Frame) -> Mapping[str, int]:
    """Participant without a submission → column."""
    return {
        key: frame.column[key] for key, submission in zip(frame.participants, frame.submissions, strict=True) if not submission
    }


class _Lookup:
    """(competition, number of a name) → row or column there; −1 if that competition does not have the name."""

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
        """The rows or columns of many names; −1 for a name of −1."""
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


def highest_epoch(paths: Sequence[Path], scheme: Scheme) -> int | None:
    """The highest epoch in Parquet files, None if they have no record; raises BadInput."""
    with opened_parquet(paths) as files:
        return look_over(files).epochs[1]


def records(paths: Sequence[Path], scheme: Scheme | None, wanted: Mapping[str, Sequence[str]]) -> Iterator[Tests]:
    """The records whose columns have one of the wanted values, in the order epoch, participant, task, trial.

    wanted: column → values; if empty, all records. Raises BadInput with file and row for an invalid record, and for more records
    than `EVIDENCE_RECORDS`.
    """
    with opened_parquet(paths) as files:
        yield from single(files, wanted)


def tally(paths: Sequence[Path], axes: Frame, scheme: Scheme) -> Scored:
    """The scores of one competition from the records in Parquet files. Raises BadInput with file and row. SPEC 2.1.

    A column `competition`, if there is one, must hold the scheme's name.
    """
    assert isinstance(scheme.score, TestsScore)
    if scheme.score.scores_jointly():
        return tally_rows(paths, axes, scheme)
    with opened_parquet(paths) as files:
        if "competition" in files.types:
            other = f"competition IS DISTINCT FROM {quoted(scheme.name)}"
            if files.rows("count(*)", f"WHERE {other}") != [(0,)]:
                raise files.refuse(
                    other, "competition", f"{{}} is not {scheme.name!r}", "keep each competition in its own folder"
                )
            return Counts(files, {scheme.name: (axes, scheme.score)}).scored()[scheme.name]
        return Counts(files, {"": (axes, scheme.score)}).scored()[""]


def tally_many(paths: Sequence[Path], competitions: Mapping[str, tuple[Frame, TestsScore]]) -> dict[str, Scored]:
    """The scores of several competitions in one set of files, by the column `competition`; other competitions are ignored.

    Raises BadInput with file and row. SPEC 2.1.
    """
    joint = next((name for name, (_, rules) in competitions.items() if rules.scores_jointly()), None)
    if joint is not None:
        hint = "put its evidence into files of its own"
        raise BadInput(f'{joint!r} has passed_by = "all", which sums do not tell', field="score.passed_by", hint=hint)
    with opened_parquet(paths) as files:
        if "competition" not in files.types:
            raise BadInput("the column is missing", file=paths[0], field="competition", hint="name the competition in every row")
        return Counts(files, competitions).scored()
