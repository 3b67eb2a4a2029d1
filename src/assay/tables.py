"""A settlement's document as Arrow tables, which polars, pandas and DuckDB read without copying. Needs the extra `bulk`.

Fractions are decimals of nine digits and stakes decimals of none, so nothing is rounded. Amounts of wei are text: 2^256 does not
fit the widest decimal of Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from assay.errors import CannotSettle

if TYPE_CHECKING:
    import pyarrow

__all__ = ["ABSENT", "NEEDS", "TABLES", "Field", "Holds", "Tables", "flat", "rows", "tables"]

NEEDS = "install it: pip install 'assay[bulk]'"

Json = dict[str, Any]


class Holds(StrEnum):
    """The type of a field: it decides how the field is written, read again, and kept in a table."""

    KEY = "key"
    TEXT = "text"
    SUBMISSION = "submission"
    WORD = "word"
    """One of `Field.words`."""
    SCORE = "score"
    """0 … 1 in nanos; read back as a number, because the next settlement may need it."""
    SHARE = "share"
    """0 … 1 in nanos."""
    FRACTION = "fraction"
    """Any count of nanos."""
    STAKE = "stake"
    """rao"""
    AMOUNT = "amount"
    """wei"""
    BPS = "bps"
    COUNT = "count"
    PLACE = "place"
    """1, 2, …"""
    U16 = "u16"
    EPOCH = "epoch"
    FLAG = "flag"
    DIGEST = "digest"
    WORK = "work"
    """The details that a kind of evidence adds: an object."""
    KEYS = "keys"
    OBJECT = "object"
    """Of `Field.columns`."""
    ROWS = "rows"
    """A list of objects of `Field.columns`."""


@dataclass(frozen=True)
class Field:
    """A field of the document or of a row in it."""

    name: str
    holds: Holds
    value: Callable[[Any], Any]
    """The value, from what the row is about; `ABSENT` leaves an optional field out."""
    null: bool = False
    optional: bool = False
    words: tuple[str | None, ...] = ()
    columns: tuple[Field, ...] = ()


ABSENT = object()

_TRUTH, _INTEGER, _WORD, _FRACTION, _STAKE = "bool", "int64", "string", "fraction", "stake"
_ARROW = {
    **dict.fromkeys((Holds.KEY, Holds.TEXT, Holds.SUBMISSION, Holds.WORD, Holds.DIGEST, Holds.AMOUNT), _WORD),
    **dict.fromkeys((Holds.SCORE, Holds.SHARE, Holds.FRACTION), _FRACTION),
    **dict.fromkeys((Holds.BPS, Holds.COUNT, Holds.PLACE, Holds.U16, Holds.EPOCH), _INTEGER),
    Holds.STAKE: _STAKE,
    Holds.FLAG: _TRUTH,
}
"""The type of a field as a column of a table; a field of another type has no column."""


TABLES = ("agreed", "validators", "weights", "payouts")
"""The names of the tables of a settlement."""


@dataclass(frozen=True)
class Tables:
    """One table for each list of a settlement."""

    agreed: pyarrow.Table
    """A row for every participant; `rank` is null without an agreed score."""
    validators: pyarrow.Table
    """A row for every participant and validator with evidence about it; `reason` says why one does not count."""
    weights: pyarrow.Table
    """A row for every participant with an agreed score, in ranking order; the burn is the last, without a participant."""
    payouts: pyarrow.Table
    """A row for every place that is paid; amounts are text."""


def flat(columns: Iterable[Field]) -> dict[str, Holds]:
    """The columns of a table: the fields with one value that every row has."""
    return {column.name: column.holds for column in columns if column.holds in _ARROW and not column.optional}


def tables(document: Json, columns: Sequence[Field], burnt: Sequence[str]) -> Tables:
    """The tables of a settlement's document; raises CannotSettle where pyarrow is not installed. SPEC 6.

    columns: the fields of the document. burnt: the fields that the burn has as a row of weights.
    """
    try:
        import pyarrow as arrow
    except ImportError:
        raise CannotSettle("Arrow tables need pyarrow, which is not installed", hint=NEEDS) from None
    types = {
        _INTEGER: arrow.int64(),
        _TRUTH: arrow.bool_(),
        _WORD: arrow.string(),
        _FRACTION: arrow.decimal128(38, 9),
        _STAKE: arrow.decimal128(38, 0),
    }

    def table(columns: dict[str, Holds], rows: list[Json]) -> pyarrow.Table:
        kinds = {name: _ARROW[holds] for name, holds in columns.items()}
        fields = [arrow.field(name, types[kind]) for name, kind in kinds.items()]
        values = [arrow.array([_value(row.get(name), kind) for row in rows], types[kind]) for name, kind in kinds.items()]
        return arrow.table(values, schema=arrow.schema(fields))

    filled = rows(document, columns, burnt)
    return Tables(*(table(*filled[name]) for name in TABLES))


def rows(document: Json, columns: Sequence[Field], burnt: Sequence[str]) -> dict[str, tuple[dict[str, Holds], list[Json]]]:
    """Name of each table → its columns, and its rows as the document has them; parameters as for `tables`. SPEC 6."""
    lists = {column.name: column.columns for column in columns}
    columns_of = {column.name: column.columns for column in lists["agreed"]}
    agreed = flat(lists["agreed"])
    agreed = {name: agreed[name] for name in ("participant", "submission")} | {"rank": Holds.PLACE} | agreed
    votes = {"participant": Holds.KEY, "validator": Holds.KEY, "counts": Holds.FLAG}
    votes |= flat(columns_of["not_counted"]) | flat(columns_of["validators"])
    ranks = {key: place for place, key in enumerate(document["ranking"], start=1)}
    burn = document["burn"]
    weights = [*document["weights"], *([] if burn is None else [{name: burn[name] for name in burnt}])]
    return {
        "agreed": (agreed, [row | {"rank": ranks.get(row["participant"])} for row in document["agreed"]]),
        "validators": (votes, [seen for row in document["agreed"] for seen in _validators(row)]),
        "weights": (flat(lists["weights"]), weights),
        "payouts": (flat(lists["payouts"]), document["payouts"]),
    }


def _value(value: Any, kind: str) -> Any:
    return Decimal(value) if value is not None and kind in {_FRACTION, _STAKE} else value


def _validators(row: Json) -> list[Json]:
    of = {"participant": row["participant"]}
    counted = [of | {"counts": True} | vote for vote in row["validators"]]
    return counted + [of | {"counts": False} | left_out for left_out in row["not_counted"]]
