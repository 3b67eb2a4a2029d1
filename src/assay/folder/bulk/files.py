"""Parquet files as one table, through DuckDB: their columns checked, and any row that is refused found again. SPEC 7.

DuckDB is the extra `bulk`; it is imported here alone, when Parquet is read.
"""

from __future__ import annotations

import difflib
import itertools
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import BadInput, CannotSettle
from assay.folder.places import Place

if TYPE_CHECKING:
    import duckdb

__all__ = ["INSTANTS", "Files", "enum", "opened", "quoted"]

MEMORY = "2500MB"
"""What DuckDB may hold; beyond it spills to a temporary folder."""
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
    "observed_at": TEXT | INSTANTS,
    "trial": WHOLE,
    "seq": WHOLE,
}
COLUMNS: Mapping[str, frozenset[str]] = {**NEEDED, **OPTIONAL}


@dataclass(frozen=True)
class Files:
    """Parquet files with the columns of tests evidence, open in DuckDB."""

    connection: duckdb.DuckDBPyConnection
    paths: tuple[Path, ...]
    types: Mapping[str, str]
    """Column → its DuckDB type; the optional ones only if a file has them."""
    alike: bool
    """Every file has the same columns of the same types."""
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
        """The column as SQL, or what stands for it where no file has it."""
        return name if name in self.types else otherwise

    @property
    def trial(self) -> str:
        """The trial as SQL: 1 where none is given."""
        return "coalesce(trial, 1)" if "trial" in self.types else "1"

    @property
    def instant(self) -> str:
        """`observed_at` as SQL: microseconds since 1970 where it is a timestamp, else its text."""
        kind = self.types.get("observed_at")
        return "NULL" if kind is None else "epoch_us(observed_at)" if kind in INSTANTS else "observed_at"

    def rows(self, select: str, rest: str = "") -> list[tuple[Any, ...]]:
        """The rows of a query over the files."""
        return self.connection.execute(f"SELECT {select} FROM {self.table} {rest}").fetchall()

    def place(self, condition: str) -> Place:
        """The first row for which a condition holds: a second, slow look, for a refusal."""
        query = f"SELECT filename, file_row_number FROM {self.rows_table} WHERE {condition} ORDER BY 1, 2 LIMIT 1"
        found = self.connection.execute(query).fetchone()
        return Place() if found is None else Place(Path(found[0]), found[1] + 1)

    def refuse(self, condition: str, column: str, what: str, hint: str) -> BadInput:
        """The refusal of the first row for which a condition holds; `{}` in `what` is the value of its column."""
        if "{}" in what:
            value = self.rows(f"left(CAST({column} AS VARCHAR), 60)", f"WHERE {condition} LIMIT 1")
            what = what.format("an empty cell" if not value or value[0][0] is None else repr(value[0][0]))
        return self.place(condition).refuse(what, field=column, hint=hint)

    def enum(self, values: Sequence[str]) -> str:
        """The name of a type of DuckDB that numbers these values from 0."""
        name = f"names_{next(self.numbers)}"
        self.connection.execute(f"CREATE TEMP TYPE {name} AS {enum(*values)}")
        return name


def enum(*values: str) -> str:
    """A type of DuckDB that numbers these values from 0, as SQL."""
    return f"ENUM ({', '.join(quoted(value) for value in values)})"


def quoted(text: str) -> str:
    """A string as SQL."""
    return "'" + text.replace("'", "''") + "'"


def _literal(path: Path) -> str:
    """A path in which DuckDB sees no pattern."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in str(path))


@contextmanager
def opened(paths: Sequence[Path]) -> Iterator[Files]:
    """The files, open; raises BadInput for a file that is not Parquet and for a missing, unknown or wrong column, by name."""
    try:
        import duckdb
    except ImportError:
        raise BadInput(
            "Parquet is read with DuckDB, which is not installed", file=paths[0], hint="pip install 'assay[bulk]'"
        ) from None
    with _database(os.getpid()).cursor() as connection:
        try:
            connection.execute("SET enable_progress_bar = false")
            found = [_columns(connection, path) for path in paths]
            alike = all(columns == found[0] for columns in found)
            yield Files(connection, tuple(paths), _merged(found, paths), alike)
        except duckdb.OutOfMemoryException:
            raise CannotSettle("the evidence does not fit the memory", hint="settle fewer competitions at once") from None
        except duckdb.Error as error:
            raise _damaged(connection, paths, error) from None


@cache
def _database(process: int) -> duckdb.DuckDBPyConnection:
    """An empty database in memory, one a process: to open one takes as long as to count a million records."""
    import duckdb

    settings: dict[str, Any] = {
        "memory_limit": MEMORY,
        "temp_directory": os.path.join(tempfile.gettempdir(), f"assay-{process}"),
        "preserve_insertion_order": False,
        "autoinstall_known_extensions": False,
    }
    return duckdb.connect(config=settings)


def _columns(connection: duckdb.DuckDBPyConnection, path: Path) -> dict[str, str]:
    rows = connection.execute(f"DESCRIBE SELECT * FROM read_parquet([{quoted(_literal(path))}], hive_partitioning = false)")
    columns = {name: kind for name, kind, *_ in rows.fetchall()}
    for name, kind in columns.items():
        if name not in COLUMNS:
            close = difflib.get_close_matches(name[:80].lower(), COLUMNS, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]!r}?" if close else f"the columns are {', '.join(COLUMNS)}"
            raise BadInput(f"there is no column {name[:80]!r}", file=path, field=name[:80], hint=hint)
        if kind not in COLUMNS[name]:
            wanted = " or ".join(sorted(COLUMNS[name]))
            raise BadInput(f"the column is of type {kind[:80]}", file=path, field=name, hint=f"write it as {wanted}")
    for name in NEEDED:
        if name not in columns:
            raise BadInput("the column is missing", file=path, field=name, hint=f"the columns needed are {', '.join(NEEDED)}")
    return columns


def _merged(found: Sequence[Mapping[str, str]], paths: Sequence[Path]) -> dict[str, str]:
    types: dict[str, str] = {}
    for columns, path in zip(found, paths, strict=True):
        for name, kind in columns.items():
            known = types.setdefault(name, kind)
            if known != kind and name == "observed_at":
                raise BadInput(
                    f"the column is of type {kind}, in {paths[0].name} of {known}", file=path, field=name, hint="use one type"
                )
    return types


def _damaged(connection: duckdb.DuckDBPyConnection, paths: Sequence[Path], error: duckdb.Error) -> BadInput:
    """The refusal that names the file which DuckDB could not read: each is read to the end, which counting its rows is not."""
    import duckdb

    for path in paths:
        try:
            connection.execute(f"SELECT max(hash(COLUMNS(*))) FROM read_parquet([{quoted(_literal(path))}])").fetchall()
        except duckdb.Error as found:
            what = str(found).partition("\n")[0].partition(": ")[2] or "it is damaged"
            return BadInput(f"is not readable Parquet: {what[:200]}", file=path, hint="write the file again")
    return BadInput(
        f"DuckDB could not read it: {str(error).partition(chr(10))[0][:200]}", file=paths[0].parent, hint="check the files"
    )
