"""Reads CSV files into rows of typed cells, and writes CSV. SPEC 7.

The header names the columns, in any order. An empty optional cell means that there is no value.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.errors import BadInput, suggest
from assay.folder.files import TABLE_BYTES, Place, TableRow, decode, load

__all__ = ["HELD", "HISTORY", "PARTICIPANTS", "RANDOMNESS", "VALIDATORS", "CsvFormat", "dumped", "parse", "read"]

_DIGITS = re.compile("[0-9]+", re.ASCII)


@dataclass(frozen=True)
class CsvFormat:
    """The form of a CSV file: its required columns, its optional ones, and those that hold whole numbers."""

    name: str
    needed: tuple[str, ...]
    optional: tuple[str, ...] = ()
    whole: frozenset[str] = frozenset()

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns, the required ones first."""
        return self.needed + self.optional


PARTICIPANTS = CsvFormat(
    "participants.csv",
    ("key",),
    ("uid", "name", "submission", "submitted_at", "last_reset_epoch", "accepted_epoch", "address"),
    frozenset({"uid", "last_reset_epoch", "accepted_epoch"}),
)
VALIDATORS = CsvFormat("validators.csv", ("key", "stake"), ("name", "failed_audit"))
HISTORY = CsvFormat("history.csv", ("epoch", "top_score"), ("submission", "task_set"), frozenset({"epoch"}))
RANDOMNESS = CsvFormat("randomness.csv", ("epoch", "hex"), (), frozenset({"epoch"}))
HELD = CsvFormat("held.csv", ("participant", "submission", "why"))
"""The file of submissions that a service holds back as near-copies, in a validator's copy of the folder."""


def read(path: Path, table: CsvFormat) -> list[TableRow]:
    """The rows of a CSV file. Raises BadInput as `parse` does."""
    return parse(load(path, TABLE_BYTES, hint=f"make one with the columns {', '.join(table.columns)}"), table, path)


def parse(data: bytes, table: CsvFormat, file: Path | str | None = None) -> list[TableRow]:
    """The rows in the bytes of a CSV file, cells stripped, empty optional cells left out.

    Raises BadInput, with the line, for an empty file, an unknown, repeated or missing column, a row with more or fewer cells
    than the header, a quote that is not closed, and a cell that is not the whole number that its column needs.
    """
    file = table.name if file is None else file
    text = decode(data, file)
    lines = _lines(text, file)
    place, header = next(lines, (Place(file, 1), []))
    if not header:
        raise place.refuse("is empty", hint=f"its first line names the columns: {', '.join(table.columns)}")
    names = _header(header, table, place)
    rows = []
    for place, cells in lines:
        if len(cells) != len(names):
            raise place.refuse(
                f"has {len(cells)} cells, the header has {len(names)}", hint="a cell with a comma in it needs quotes around it"
            )
        rows.append(TableRow(_typed(names, cells, table, place), place))
    return rows


def dumped(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Rows as CSV with a header. A missing field is an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(["" if row.get(name) is None else row[name] for name in columns] for row in rows)
    return text.getvalue().encode()


def _lines(text: str, file: Path | str) -> Iterator[tuple[Place, Sequence[str]]]:
    """Every row that is not blank, with its first line."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    begins = 1
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise BadInput(
                f"is not CSV: {error}",
                file=file,
                line=begins,
                hint="close every quote, and write one inside a quoted cell twice",
            ) from None
        stripped = [cell.strip(" \t") for cell in cells]
        if any(stripped):
            yield Place(file, begins), stripped
        begins = reader.line_num + 1


def _header(header: Sequence[str], table: CsvFormat, place: Place) -> Sequence[str]:
    for name in header:
        if name not in table.columns:
            hint = suggest(name[:80].lower(), table.columns, f"the columns are {', '.join(table.columns)}")
            raise place.refuse(f"there is no column {name[:80]!r}", field=name[:80], hint=hint)
        if header.count(name) > 1:
            raise place.refuse("the column is there twice", field=name, hint="remove one of the two")
    for name in table.needed:
        if name not in header:
            raise place.refuse("the column is missing", field=name, hint="add it to the header and to every row")
    return header


def _typed(names: Sequence[str], cells: Sequence[str], table: CsvFormat, place: Place) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, cell in zip(names, cells, strict=True):
        if not cell:
            if name in table.needed:
                raise place.refuse("is empty", field=name, hint="give it a value, or remove the row")
        elif name not in table.whole:
            fields[name] = cell
        elif _DIGITS.fullmatch(cell) and len(cell) <= 18:
            fields[name] = int(cell)
        else:
            raise place.refuse(f"{cell[:60]!r} is not a whole number of at least 0", field=name, hint="use digits only")
    return fields
