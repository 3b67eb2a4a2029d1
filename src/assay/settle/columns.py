"""Records of one kind as arrays: what every scorer computes from, wherever the records came from. SPEC 2, 3.0, 7.

    records, lines of JSON or rows of Parquet ─▶ `Columns` ─▶ `stand` (which records count, and for whom) ─▶ the kind's tally

A kind says which columns its records have (`Kind.columns`). A text is a number into a list of names; everything else is int64.
Fields that a scorer does not read, such as an image or a quote, are not in the arrays: a record's details are read again from
where it stands, and only for the records that somebody asks about (`RecordTable`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from assay.exact import LARGEST
from assay.settle.inputs import Bools, Frame, Ints

if TYPE_CHECKING:
    from assay.records import Record

__all__ = [
    "COMMON",
    "Columns",
    "Form",
    "RecordColumn",
    "RecordTable",
    "StandingRecords",
    "choice",
    "coded",
    "count",
    "half_even_all",
    "key",
    "nanos",
    "repeated",
    "slots",
    "together",
]

Form = Literal["text", "count", "nanos", "word", "flag", "answer", "choice", "vote", "instant", "note", "notes"]
"""The form in which a field is written.

text: one line, as a number of a name. count: an integer. nanos: a decimal string. word: one of
`words`. flag: a boolean. answer: a boolean, or anything else, which is −1. choice: a text of `words`, or anything else, which is
−1. vote: an answer, or a choice if it has `words`, in a list: `panel.0.checks.C1`; its record is read by itself.
instant, note (a text), notes (an object of texts): checked, and not kept.
"""


@dataclass(frozen=True, slots=True)
class RecordColumn:
    """One field of a record. `name`: with a point where it is inside an object, as in `baseline.B1`."""

    name: str
    form: Form
    default: int | None = None
    """The value of a field that is left out; None: it is needed, or there is nothing to keep of it."""
    least: int = 0
    most: int = 0
    """Bounds: of a count, of nanos, or of the characters of a text."""
    words: tuple[str, ...] = ()

    @property
    def needed(self) -> bool:
        """Whether a record without it is refused."""
        return self.default is None and self.form not in ("note", "notes")


def key(name: str) -> RecordColumn:
    """A field that holds an identifier."""
    return RecordColumn(name, "text", least=1, most=256)


def count(name: str, default: int | None = 0, least: int = 0, most: int = 10**9) -> RecordColumn:
    """A field that counts."""
    return RecordColumn(name, "count", default, least, most)


def nanos(name: str, most: int, default: int | None = 0) -> RecordColumn:
    """A field with a decimal string, at most so many nanos."""
    return RecordColumn(name, "nanos", default, most=most)


def choice(name: str, *words: str) -> RecordColumn:
    """A field with one of some words; left out, it is the first."""
    return RecordColumn(name, "word", 0, words=words)


COMMON = (
    count("epoch", None, most=LARGEST),
    key("validator"),
    key("participant"),
    RecordColumn("submission", "text", most=256),
    RecordColumn("observed_at", "instant"),
    count("seq", -1),
)
"""The columns of every kind."""


def half_even_all(numerators: Ints, denominators: Ints | int) -> Ints:
    """numerator / denominator (at least 0, above 0), halves to even; twice a denominator fits 64 bits. SPEC 1."""
    quotients, rests = np.divmod(numerators, denominators)
    twice = 2 * rests
    return np.asarray(quotients + ((twice > denominators) | ((twice == denominators) & (quotients % 2 == 1))), np.int64)


@dataclass(frozen=True)
class Columns:
    """Records of one kind as arrays of the same length."""

    numbers: Mapping[str, Ints]
    """Field → a number for each record, in as many bits as it needs; of a text, its place in `names`."""
    names: Mapping[str, tuple[str, ...]]
    """Field with a text → its different values, in any order."""
    _known: dict[str, Ints] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.numbers["epoch"])

    def __getitem__(self, name: str) -> Ints:
        return self.numbers[name].astype(np.int64, copy=False)

    def take(self, at: Ints | Bools) -> Columns:
        """Some of the records."""
        return Columns({name: values[at] for name, values in self.numbers.items()}, self.names)

    def lookup(self, name: str, places: Mapping[str, int]) -> Ints:
        """For each record, the place of its text; −1 where it has none."""
        return np.array([places.get(text, -1) for text in self.names[name]] or [-1], np.int64)[self[name]]

    def twice(self, shared: bool, parts: Sequence[str]) -> Ints:
        """The places of the records whose slot another record has too, ascending. SPEC 3.0."""
        if "twice" not in self._known:
            self._known["twice"] = repeated(slots(self, shared, parts))
        return self._known["twice"]

    def ranks(self, name: str) -> Ints:
        """For each record, where its text stands among all, in the order of UTF-8 bytes."""
        texts = self.names[name]
        ranks = np.zeros(len(texts) + 1, np.int64)
        ranks[sorted(range(len(texts)), key=lambda at: texts[at].encode())] = np.arange(len(texts))
        return np.asarray(ranks[self[name]], np.int64)

    @staticmethod
    def of(records: Sequence[Record], columns: Sequence[RecordColumn]) -> Columns:
        """The arrays of records that were read one by one."""
        numbers: dict[str, Ints] = {}
        names: dict[str, tuple[str, ...]] = {}
        for column in columns:
            if column.form in ("instant", "note", "notes"):
                continue
            numbered: dict[str, int] = {}
            numbers[column.name] = np.array(coded(records, column, numbered), np.int64)
            if column.form == "text":
                names[column.name] = tuple(numbered)
        return Columns(numbers, names)


def _values(records: Sequence[Record], name: str) -> list[Any]:
    outer, _, inner = name.partition(".")
    values = [getattr(record, outer) for record in records]
    return [value.get(inner) if isinstance(value, Mapping) else None for value in values] if inner else values


def _voted(records: Sequence[Record], name: str) -> list[Any]:
    """`panel.0.verdict` or `panel.0.checks.C1` of records; None where there is none."""
    outer, at, field, *inner = name.split(".", 3)
    values: list[Any] = []
    for record in records:
        panel = getattr(record, outer) or ()
        value = getattr(panel[int(at)], field) if int(at) < len(panel) else None
        values.append((value.get(inner[0]) if isinstance(value, Mapping) else None) if inner else value)
    return values


def coded(records: Sequence[Record], column: RecordColumn, numbered: dict[str, int]) -> list[int]:
    """A field of records as numbers. `numbered`: text → its number, to which new ones are added."""
    values = _voted(records, column.name) if column.form == "vote" else _values(records, column.name)
    if column.form == "text":
        return [numbered.setdefault(value, len(numbered)) for value in values]
    if column.form == "answer" or (column.form == "vote" and not column.words):
        return [int(value) if isinstance(value, bool) else -1 for value in values]
    if column.words:
        places = {word: at for at, word in enumerate(column.words)}
        return [places.get(value, -1) if isinstance(value, str) else -1 for value in values]
    return values if column.default is None else [column.default if value is None else value for value in values]


@dataclass(frozen=True)
class StandingRecords:
    """The records that stand, one for each key, and for whom they count. Arrays have one element for each record. SPEC 3.0."""

    columns: Columns
    rows: Ints
    """The validator's row."""
    cols: Ints
    """The column of the participant that the record counts for; −1: for nobody."""
    first: Mapping[str, int]
    """As in `Scored.first`."""

    def counting(self) -> tuple[Columns, tuple[Ints, Ints]]:
        """The records that count for somebody, and the cell (row, column) of each."""
        use = self.cols >= 0
        return self.columns.take(use), (self.rows[use], self.cols[use])


class RecordTable(Sequence[Any]):
    """Records that were read as arrays. Each becomes a `Record` when somebody looks at it, and then stays.

    read: the records at some places, in their order; what it gives is what was read into the arrays.
    """

    def __init__(self, columns: Columns, read: Callable[[Ints], list[Any]]) -> None:
        self.columns, self.read = columns, read

    def __len__(self) -> int:
        return len(self.columns)

    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Any]: ...
    def __getitem__(self, at: int | slice) -> Any:
        return self._all[at]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._all)

    @cached_property
    def _all(self) -> list[Any]:
        return self.read(np.arange(len(self)))

    def take(self, at: Ints) -> RecordTable:
        """Some of the records, in this order."""
        return RecordTable(self.columns.take(at), lambda wanted: self.read(at[wanted]))

    def about(self, frame: Frame, column: int) -> Sequence[Any]:
        """The records that may bear on the explanation of a participant: those about it or its submission, and those that a
        validator's service failed in, which take a task out for everybody. SPEC 2.2."""
        chosen = self.columns.lookup("participant", {frame.participants[column]: 0}) == 0
        if frame.submissions[column]:
            chosen |= self.columns.lookup("submission", {frame.submissions[column]: 0}) == 0
        return self.read(np.flatnonzero(chosen))


def slots(columns: Columns, shared: bool, parts: Sequence[str]) -> Ints:
    """A number for each record; equal for two records if and only if they have the same slot. SPEC 3.0."""
    about = "submission" if shared else "participant"
    fields = [columns.numbers[name] for name in ("validator", about, *parts)]
    if shared:
        without = columns.lookup("submission", {"": 0}) == 0
        fields.append(np.where(without, columns["participant"], -1))
    return together(fields)


def together(fields: Sequence[Ints]) -> Ints:
    """A number for each place; equal for two places if and only if every field is equal there."""
    numbers, size = np.zeros(len(fields[0]), np.int64), 1
    for values in fields:
        least = int(values.min()) if len(values) else 0
        width = int(values.max()) - least + 1 if len(values) else 1
        if size * width >= 2**62:
            distinct, numbers = np.unique(numbers, return_inverse=True)
            size = len(distinct)
            if size * width >= 2**62:
                distinct, values = np.unique(values, return_inverse=True)
                least, width = 0, len(distinct)
        numbers *= width
        numbers += values
        numbers -= least
        size *= width
    return numbers


def repeated(numbers: Ints) -> Ints:
    """The places of the numbers that occur more than once, ascending."""
    if len(numbers) < 2:
        return np.empty(0, np.int64)
    size = int(numbers.max()) + 1
    if size <= 4 * len(numbers) + 1000:
        counts = np.bincount(numbers, minlength=size)
        return np.flatnonzero(counts[numbers] > 1) if len(counts) and counts.max() > 1 else np.empty(0, np.int64)
    ordered = np.sort(numbers, kind="stable")
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    return np.flatnonzero(np.isin(numbers, np.unique(twice))) if len(twice) else np.empty(0, np.int64)
