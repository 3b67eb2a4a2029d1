"""Opens evidence in Parquet with DuckDB, checks its columns, and makes the queries on it. SPEC 7."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from assay.errors import BadInput, CannotSettle, suggest
from assay.exact import LARGEST
from assay.folder.files import Place
from assay.records import Submission
from assay.scheme.fields import Key, instant

if TYPE_CHECKING:
    import duckdb

__all__ = [
    "BLOCK",
    "GROUP_MASKS",
    "INSTANTS",
    "CompetitionBatch",
    "EvidenceExtent",
    "Names",
    "ParquetFiles",
    "check_names",
    "confined",
    "enum",
    "groups",
    "identity",
    "look_over",
    "opened_parquet",
    "quoted",
    "unaided",
]


T = TypeVar("T")

MEMORY = "2500MB"
"""The memory that DuckDB may use. Beyond that it writes to a temporary folder."""
LEAST_MEMORY = 64 * 2**20
"""Bytes without which DuckDB reads no Parquet file of a usual size."""
WHOLE = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"})
TEXT = frozenset({"VARCHAR"})
INSTANTS = frozenset({"TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"})
NEEDED: Mapping[str, frozenset[str]] = {
    "epoch": WHOLE,
    "validator": TEXT,
    "participant": TEXT,
    "submission": TEXT,
    "task": TEXT,
    "outcome": TEXT,
}
OPTIONAL: Mapping[str, frozenset[str]] = {
    "kind": TEXT,
    "competition": TEXT,
    "image": TEXT,
    "work": TEXT,
    "observed_at": TEXT | INSTANTS,
    "trial": WHOLE,
    "seq": WHOLE,
}
COLUMNS: Mapping[str, frozenset[str]] = {**NEEDED, **OPTIONAL}


@dataclass(frozen=True)
class ParquetFiles:
    """Parquet files with the columns of tests evidence, open in DuckDB."""

    connection: duckdb.DuckDBPyConnection
    paths: tuple[Path, ...]
    types: Mapping[str, str]
    """Column → its DuckDB type; an optional column only if a file has it."""
    alike: bool
    """Whether all files have the same columns of the same types."""
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def table(self) -> str:
        """The files as SQL."""
        return self._table("")

    @property
    def rows_table(self) -> str:
        """The files as SQL, with the columns filename and file_row_number (from 0) added."""
        return self._table(", filename = true, file_row_number = true")

    def _table(self, options: str) -> str:
        names = ", ".join(quoted(_literal(path)) for path in self.paths)
        return f"read_parquet([{names}], union_by_name = {not self.alike}, hive_partitioning = false{options})"

    def column(self, name: str, otherwise: str = "NULL") -> str:
        """The column as SQL, or `otherwise` if no file has it."""
        return name if name in self.types else otherwise

    @property
    def trial(self) -> str:
        """The trial as SQL: 1 if a record gives none."""
        return "coalesce(trial, 1)" if "trial" in self.types else "1"

    @property
    def instant(self) -> str:
        """`observed_at` as SQL: microseconds since 1970 for a timestamp, otherwise its text."""
        kind = self.types.get("observed_at")
        return "NULL" if kind is None else "epoch_us(observed_at)" if kind in INSTANTS else "observed_at"

    def rows(self, select: str, rest: str = "") -> list[tuple[Any, ...]]:
        """The rows of a query over the files."""
        return self.connection.execute(f"SELECT {select} FROM {self.table} {rest}").fetchall()

    def place(self, condition: str) -> Place:
        """The place of the first row for which a condition holds. This is slow, and only for a refusal."""
        query = f"SELECT filename, file_row_number FROM {self.rows_table} WHERE {condition} ORDER BY 1, 2 LIMIT 1"
        row = self.connection.execute(query).fetchone()
        return Place() if row is None else Place(Path(row[0]), row[1] + 1)

    def refuse(self, condition: str, column: str, what: str, hint: str) -> BadInput:
        """The refusal of the first row for which a condition holds; `{}` in `what` is the value of its column."""
        if "{}" in what:
            value = self.rows(f"left(CAST({column} AS VARCHAR), 60)", f"WHERE {condition} LIMIT 1")
            what = what.format("an empty cell" if not value or value[0][0] is None else repr(value[0][0]))
        return self.place(condition).refuse(what, field=column, hint=hint)

    def enum(self, values: Sequence[str]) -> str:
        """Make a DuckDB type that numbers these values from 0, and return its name."""
        name = f"names_{next(self.numbers)}"
        self.connection.execute(f"CREATE TEMP TYPE {name} AS {enum(*values)}")
        return name


def enum(*values: str) -> str:
    """A DuckDB type that numbers these values from 0, as SQL."""
    return f"ENUM ({', '.join(quoted(value) for value in values)})"


def quoted(text: str) -> str:
    """A string as SQL."""
    return "'" + text.replace("'", "''") + "'"


def _literal(path: Path) -> str:
    """A path with its pattern characters escaped for DuckDB."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in str(path))


@contextmanager
def opened_parquet(paths: Sequence[Path]) -> Iterator[ParquetFiles]:
    """Open the files. Raises BadInput for a file that is not Parquet, and for a missing, unknown or wrong column."""
    try:
        import duckdb
    except ImportError:
        raise BadInput(
            "Parquet is read with DuckDB, which is not installed", file=paths[0], hint="pip install 'assay[bulk]'"
        ) from None
    with _database(os.getpid()).cursor() as connection:
        try:
            connection.execute("SET enable_progress_bar = false")
            file_columns = [_columns(connection, path) for path in paths]
            alike = all(columns == file_columns[0] for columns in file_columns)
            yield ParquetFiles(connection, tuple(paths), _merged(file_columns, paths), alike)
        except duckdb.OutOfMemoryException:
            raise CannotSettle("the evidence does not fit the memory", hint="settle fewer competitions at once") from None
        except duckdb.Error as error:
            raise _damaged(connection, paths, error) from None


def unaided(paths: Sequence[Path], ask: Callable[[ParquetFiles], T | None]) -> T | None:
    """The answer of a query to files with columns of any kind; None without DuckDB, if they have not the same columns, or if
    DuckDB refuses.

    A query without another order gives rows in the order of the files.
    """
    try:
        import duckdb
    except ImportError:
        return None
    with _database(os.getpid(), in_order=True).cursor() as connection, suppress(duckdb.Error):
        connection.execute("SET enable_progress_bar = false")
        types = []
        for path in paths:
            described = f"DESCRIBE SELECT * FROM read_parquet([{quoted(_literal(path))}], hive_partitioning = false)"
            types.append({name: kind for name, kind, *_ in connection.execute(described).fetchall()})
        if all(columns == types[0] for columns in types):
            return ask(ParquetFiles(connection, tuple(paths), types[0], alike=True))
    return None


BELIEVING = (
    "statistics_propagation",
    "filter_pushdown",
    "join_filter_pushdown",
    "row_group_pruner",
    "top_n",
    "late_materialization",
)
"""The optimizers of DuckDB that take what a file says of its values (such as the lowest and highest of a row group) for true."""


@cache
def _database(process: int, *, in_order: bool = False) -> duckdb.DuckDBPyConnection:
    """An empty database in memory, one for each process: opening one takes as long as counting a million records.

    A stranger may have written the files, and their footers may lie. So what follows from a file follows from its rows.
    """
    import duckdb

    settings: dict[str, Any] = {
        "disabled_optimizers": ",".join(BELIEVING),
        "memory_limit": MEMORY,
        "temp_directory": os.path.join(tempfile.gettempdir(), f"assay-{process}"),
        "preserve_insertion_order": in_order,
        "autoinstall_known_extensions": False,
    }
    return duckdb.connect(config=settings)


def confined(memory: int, threads: int) -> None:
    """Limit DuckDB in this process to bytes of memory, and to threads (0: as it is); without DuckDB there is nothing to limit."""
    with suppress(ImportError):
        for in_order in (False, True):
            database = _database(os.getpid(), in_order=in_order)
            database.execute(f"SET memory_limit = '{max(memory, LEAST_MEMORY)}B'")
            if threads:
                database.execute(f"SET threads = {threads}")


def _columns(connection: duckdb.DuckDBPyConnection, path: Path) -> dict[str, str]:
    rows = connection.execute(f"DESCRIBE SELECT * FROM read_parquet([{quoted(_literal(path))}], hive_partitioning = false)")
    columns = {name: kind for name, kind, *_ in rows.fetchall()}
    for name, kind in columns.items():
        if name not in COLUMNS:
            hint = suggest(name[:80].lower(), COLUMNS, f"the columns are {', '.join(COLUMNS)}")
            raise BadInput(f"there is no column {name[:80]!r}", file=path, field=name[:80], hint=hint)
        if kind not in COLUMNS[name]:
            wanted = " or ".join(sorted(COLUMNS[name]))
            raise BadInput(f"the column is of type {kind[:80]}", file=path, field=name, hint=f"write it as {wanted}")
    for name in NEEDED:
        if name not in columns:
            raise BadInput("the column is missing", file=path, field=name, hint=f"the columns needed are {', '.join(NEEDED)}")
    return columns


def _merged(file_columns: Sequence[Mapping[str, str]], paths: Sequence[Path]) -> dict[str, str]:
    types: dict[str, str] = {}
    for columns, path in zip(file_columns, paths, strict=True):
        for name, kind in columns.items():
            known = types.setdefault(name, kind)
            if known != kind and name == "observed_at":
                raise BadInput(
                    f"the column is of type {kind}, in {paths[0].name} of {known}", file=path, field=name, hint="use one type"
                )
    return types


def _damaged(connection: duckdb.DuckDBPyConnection, paths: Sequence[Path], error: duckdb.Error) -> BadInput:
    """The refusal that names the damaged file. It reads each file to the end, because counting rows does not."""
    import duckdb

    for path in paths:
        try:
            connection.execute(f"SELECT max(hash(COLUMNS(*))) FROM read_parquet([{quoted(_literal(path))}])").fetchall()
        except duckdb.Error as fault:
            what = str(fault).partition("\n")[0].partition(": ")[2] or "it is damaged"
            return BadInput(f"is not readable Parquet: {what[:200]}", file=path, hint="write the file again")
    return BadInput(
        f"DuckDB could not read it: {str(error).partition(chr(10))[0][:200]}", file=paths[0].parent, hint="check the files"
    )


BLOCK = 120
"""Tasks in one mask, a 128-bit integer."""
GROUP_MASKS = 16
"""Above this number of masks one pass is not enough for a group."""


@dataclass(frozen=True)
class Names:
    """The names that an answer may hold, numbered by their order."""

    files: ParquetFiles
    competitions: tuple[str, ...]
    """Empty if the files have one competition; its number is then 0."""
    validators: tuple[str, ...]
    participants: tuple[str, ...]
    submissions: tuple[str, ...]

    def code(self, column: str) -> str:
        """SQL for the number of a name in one of the four columns competition … submission; −1 for an unknown name."""
        kind = self._types[column]
        if kind is None:
            return f"{0 if column == 'competition' else -1}::INTEGER AS {column[0]}"
        return f"coalesce(enum_code(TRY_CAST({column} AS {kind}))::INTEGER, -1) AS {column[0]}"

    def known(self, column: str) -> str:
        """SQL for the number of rows with a known name."""
        return f"count(TRY_CAST({column} AS {self._types[column]}))"

    @cached_property
    def _types(self) -> dict[str, str | None]:
        columns = {"competition": self.competitions, "validator": self.validators}
        columns |= {"participant": self.participants, "submission": self.submissions}
        return {column: self.files.enum(values) if values else None for column, values in columns.items()}


@dataclass(frozen=True)
class CompetitionBatch:
    """Competitions with one task set and one window of epochs."""

    tasks: tuple[str, ...]
    trials: int
    oldest: int
    epoch: int
    competitions: tuple[str, ...] = ()
    """Their names; empty: all competitions."""

    @property
    def one_pass(self) -> bool:
        """Whether there are few enough trials to give each a bit."""
        return self.trials * -(-len(self.tasks) // BLOCK) <= GROUP_MASKS

    @property
    def window(self) -> str:
        """SQL condition: the row is of these competitions, and of an epoch that counts."""
        return f"{self.mine} AND epoch BETWEEN {self.oldest} AND {self.epoch}"

    @property
    def outside(self) -> str:
        """SQL condition: the row is of these competitions, and of an epoch that does not count."""
        return f"{self.mine} AND epoch NOT BETWEEN {self.oldest} AND {self.epoch}"

    @property
    def mine(self) -> str:
        """SQL condition: the row is of these competitions."""
        return f"competition IN ({', '.join(map(quoted, self.competitions))})" if self.competitions else "true"


def identity(files: ParquetFiles) -> str:
    """SQL for a 64-bit hash of (competition, validator, submission). SPEC 3.0.

    If two of them share a hash, both are counted record by record.
    """
    return f"hash({', '.join(_keys(files))})"


def groups(
    files: ParquetFiles, batch: CompetitionBatch, names: Names, condition: str, *, constant_trial: bool, lowest: bool
) -> str:
    """SQL for one row per (competition, validator, submission).

    Columns: c, v, s (numbers of `names`), h (`identity`), n records, passed, ran (errors left out), bits (trials that occur at
    least once) and, if asked for, the lowest epoch.
    """
    masks = _masks(files, batch, constant_trial) if batch.one_pass else []
    by = ", ".join(_keys(files))
    counts = [
        "count(*) AS n",
        f"count(TRY_CAST(outcome AS {enum('pass')})) AS passed",
        f"count(TRY_CAST(outcome AS {enum('pass', 'fail', 'timeout')})) AS ran",
        *(f"{mask} AS m{index}" for index, mask in enumerate(masks)),
        *(["min(epoch)::BIGINT AS lowest"] if lowest else []),
    ]
    bits = " + ".join(f"coalesce(bit_count(m{index}), 0)::INTEGER" for index in range(len(masks))) or "-1"
    outer = [names.code(column) for column in ("competition", "validator", "submission")]
    outer += [f"{identity(files)} AS h", "n", "passed", "ran", f"{bits} AS bits", *(["lowest"] if lowest else [])]
    where = "" if condition == "true" else f"WHERE {condition}"
    inner = f"SELECT {by}, {', '.join(counts)} FROM {files.table} {where} GROUP BY {by}"
    return f"SELECT {', '.join(outer)} FROM ({inner})"


def _keys(files: ParquetFiles) -> list[str]:
    return [*(["competition"] if "competition" in files.types else []), "validator", "submission"]


def _masks(files: ParquetFiles, batch: CompetitionBatch, constant_trial: bool) -> Sequence[str]:
    """SQL for the masks: for each trial and block of tasks, a bit for each task with a record."""
    masks = []
    for begin in range(0, len(batch.tasks), BLOCK):
        kind = files.enum(batch.tasks[begin : begin + BLOCK])
        mask = f"bit_or(1::HUGEINT << enum_code(TRY_CAST(task AS {kind})))"
        if constant_trial:
            masks.append(mask)
        else:
            masks += [f"{mask} FILTER ({files.trial} = {trial})" for trial in range(1, batch.trials + 1)]
    return masks


MOST = 10**9
LONGEST = 256
"""Most characters of an image's name."""
OUTCOMES = ("pass", "fail", "timeout", "error")
_RFC3339 = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ]([01][0-9]|2[0-3])(:[0-5][0-9]){2}(\.[0-9]{1,6}0{0,3})?"
    r"([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)
_CHECKS = {"task": TypeAdapter(Key), "submission": TypeAdapter(Submission)}


@dataclass(frozen=True)
class EvidenceExtent:
    """The number of records, and the lowest and highest epoch and trial; None without a record."""

    records: int
    epochs: tuple[int | None, int | None]
    trials: tuple[int, int]
    all_known: bool
    """Whether every participant is one of the names."""


def look_over(files: ParquetFiles, names: Names | None = None) -> EvidenceExtent:
    """The extent of epochs and trials. Raises BadInput with file and row for a wrong number, kind or time."""
    asked = ["count(*)", "count(epoch)", "min(epoch)", "max(epoch)"]
    asked += [f"count(TRY_CAST(outcome AS {enum(*OUTCOMES)}))"]
    asked += [f"count(kind) - count(TRY_CAST(kind AS {enum('tests')}))" if "kind" in files.types else "0"]
    asked += ["min(trial)", "max(trial)"] if "trial" in files.types else ["1", "1"]
    asked += ["min(seq)", "max(seq)"] if "seq" in files.types else ["0", "0"]
    asked += ["count(*)"] if names is None else [names.known("participant")]
    ((records, dated, first, last, judged, others, trial, trials, seq, seqs, known),) = files.rows(", ".join(asked))
    if records and (dated < records or first < 0 or last > LARGEST):
        wrong = f"epoch IS NULL OR epoch < 0 OR epoch > {LARGEST}"
        raise files.refuse(wrong, "epoch", "{} is not an epoch", f"use a whole number from 0 to {LARGEST}")
    if judged < records:
        wrong = f"outcome IS NULL OR outcome NOT IN ({', '.join(map(quoted, OUTCOMES))})"
        raise files.refuse(wrong, "outcome", "{} is not an outcome", f"use {', '.join(OUTCOMES)}")
    if others:
        raise files.refuse("kind <> 'tests'", "kind", "is {}, not 'tests'", "Parquet holds evidence of kind tests")
    if trial is not None and (trial < 1 or trials > MOST):
        raise files.refuse(f"trial < 1 OR trial > {MOST}", "trial", "{} is not a trial", f"use 1 … {MOST}")
    if seq is not None and (seq < 0 or seqs > MOST):
        raise files.refuse(f"seq < 0 OR seq > {MOST}", "seq", "{} is out of range", f"use 0 … {MOST}")
    for name, what in (("image", "the image"), ("work", "the work")):
        if name in files.types and (files.rows(f"max(length({name}))")[0][0] or 0) > LONGEST:
            raise files.refuse(f"length({name}) > {LONGEST}", name, "has more than 256 characters", f"write the digest of {what}")
    if files.types.get("observed_at") == "VARCHAR":
        _check_times(files)
    return EvidenceExtent(records, (first, last), (trial or 1, trials or 1), known == records)


def _check_times(files: ParquetFiles) -> None:
    day = "replace(upper(left(observed_at, 19)), 'T', ' ')"
    right = f"regexp_full_match(observed_at, {quoted(_RFC3339)}) AND TRY_CAST({day} AS TIMESTAMP) IS NOT NULL"
    wrong = f"observed_at IS NOT NULL AND NOT ({right} AND left(observed_at, 4) <> '0000')"
    examples = files.rows("observed_at", f"WHERE {wrong} LIMIT 1")
    if examples:
        try:
            instant(examples[0][0])
        except BadInput as error:
            raise files.place(wrong).inside("observed_at").put(error) from None
        raise files.refuse(wrong, "observed_at", "{} is not a time with a time zone", 'write it as in "2026-11-02T09:00:00Z"')


def check_names(files: ParquetFiles, column: str, query: str) -> None:
    """Refuse a query's values that are invalid in a column (task, submission). Raises BadInput with file and row."""
    for (value,) in files.connection.execute(query).fetchall():
        if value is None:
            raise files.refuse(f"{column} IS NULL", column, "is empty", "give it a value")
        try:
            _CHECKS[column].validate_python(value, strict=True)
        except ValidationError:
            what, hint = "{} is not allowed here", "use at most 256 printable characters"
            raise files.refuse(f"encode({column}) = unhex('{value.encode().hex()}')", column, what, hint) from None
