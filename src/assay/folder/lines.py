"""Reads many lines of JSON as arrays, without a Python object for each. SPEC 1, 7.

    bytes → lines → those of one layout together → holes (texts, numbers, booleans) → arrays; every other line → `evidence`

Lines that a program wrote are alike: the same fields in the same order. The first line of a layout is parsed strictly, which
gives the text between the values. A line has that layout if the same text is around its values, to the byte, and only then are
its values read from where they must stand. A line of no layout, or with a value that is anything but plainly right (an escape, a
control character, an integer out of range, an unknown name), is left to `assay.folder.evidence`, which reads or refuses it. So
what is read is what that module reads, and what is refused has its words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from assay import kind as kinds
from assay.errors import BadInput
from assay.folder import evidence, strict
from assay.folder.blocks import LONGEST, Hole, Layout, LineBlock, words_of
from assay.folder.evidence import Gathered, Registry, check_repeated
from assay.folder.files import BOM, EVIDENCE_RECORDS, LINE_BYTES, Place, unreadable
from assay.kind import Kind
from assay.records import records as read_together
from assay.scheme.reading import opened
from assay.settle.columns import Columns, RecordColumn, RecordTable, coded
from assay.settle.inputs import Bools, Frame, Ints
from assay.settle.score import first_epochs_of

__all__ = ["MANY_BYTES", "Lines", "read"]

MANY_BYTES = 2**18
"""From this size on, files are read as arrays: below, it takes as long to begin."""
BLOCK = 2**22
"""Bytes that are read at once."""
LAYOUTS, TRIES = 64, 8
"""The most layouts that are remembered, and how many lines of a block are tried for a new one."""
_VALUE = re.compile(rb'"[^"\\]*"|true|false|-?[0-9]+(?![0-9.eE])')


class _RecordFields:
    """The fields of a record of the kind, and how each is written."""

    def __init__(self, kind: Kind, rules: Any) -> None:
        self.kind = kind
        self.columns = kind.columns(rules)
        self.by_name = {column.name: column for column in self.columns}
        self.objects = {name.partition(".")[0] for name, column in self.by_name.items() if "." in name and column.form != "vote"}
        self.needed = frozenset(column.name for column in self.columns if column.needed)

    def written(self, path: tuple[str, ...], value: bytes) -> str | None:
        """The form of a value at a path in a right record; "" if nothing is kept of it; None if it may be wrong."""
        name = ".".join(path)
        column = self.by_name.get(name) if len(path) > 1 or "." not in name else None
        how = "text" if value[:1] == b'"' else "boolean" if value in (b"true", b"false") else "number"
        if len(path) == 2 and path[0] in self.objects and column is None:
            return "ignored" if how != "number" else None
        if len(path) == 2 and column is None:
            outer = self.by_name.get(path[0])
            return "ignored" if outer is not None and outer.form == "notes" and how == "text" else None
        if column is None or len(path) > 2:
            return None
        forms = {"text": "text", "word": "text", "choice": "text", "instant": "text", "note": "text", "nanos": "text"}
        wanted = forms.get(column.form, "number" if column.form == "count" else "boolean")
        return how if how == wanted else None

    def layout(self, line: bytes) -> Layout | None:
        """The layout of a line; None if the line, or something in it, may be wrong."""
        try:
            value = strict.parse(line.decode())
        except (BadInput, UnicodeDecodeError):
            return None
        if not isinstance(value, dict) or value.get("kind") != self.kind.name or not self.needed <= value.keys():
            return None
        try:
            return self._cut(line)
        except LookupError:
            return None

    def _cut(self, line: bytes) -> Layout:
        """Cut a line of JSON without escapes at its values; raises LookupError for one that is not plainly right."""
        texts, holes, path, quotes, at, begin = list[bytes](), list[tuple[str, str, int]](), list[str](), 0, 0, 0
        key: str | None = None
        while at < len(line):
            match = _VALUE.match(line, at)
            if match is None:
                if (byte := line[at : at + 1]) == b"{":
                    path += [key] if key is not None else []
                    key = None
                elif byte == b"}":
                    path = path[:-1]
                elif byte == b",":
                    key = None
                elif byte not in (b":", b" "):
                    raise LookupError
                at += 1
                continue
            value, at = match[0], match.end()
            if key is None:  # every name in an object is followed by its value
                key, quotes = value[1:-1].decode(), quotes + 2
                continue
            if (path, key) == ([], "kind"):
                quotes += 2
                continue
            written = self.written((*path, key), value)
            if written is None:
                raise LookupError
            inner = 1 if value[:1] == b'"' else 0
            texts.append(line[begin : match.start() + inner])
            begin = at - inner
            holes.append((".".join((*path, key)), written if written != "ignored" or inner else "boolean", quotes + inner))
            quotes += 2 * inner
        texts.append(line[begin:])
        cut = []
        for (name, written, quote), after in zip(holes, texts[1:], strict=True):
            end = after.find(b'"')
            cut.append(Hole(name, written, quote, end) if end >= 0 else Hole(name, written, -1, len(after)))
        return Layout(quotes, tuple(map(words_of, texts)), tuple(cut))


class _LineReader:
    """Reads blocks of lines, and keeps the names and the arrays of all of them."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.fields = _RecordFields(kinds.find(registry.kind), registry.rules)
        self.kept = [column for column in self.fields.columns if column.form not in ("instant", "note", "notes")]
        self.layouts: list[Layout] = []
        self.numbered: dict[str, dict[str, int]] = {column.name: {} for column in self.kept if column.form == "text"}
        self.parts: dict[str, list[Ints]] = {column.name: [] for column in self.kept}
        self.blocks: list[tuple[LineBlock, Ints]] = []
        self.places: list[tuple[Path, int, int]] = []
        """File, number of the block's first line, and how many records there were before."""
        self.count = 0

    def take(self, data: bytes, path: Path, number: int) -> int:
        """Read a block, whose first line has this number; returns how many lines it has. Raises BadInput."""
        block = LineBlock(data)
        numbers = {column.name: np.full(len(block), column.default or 0, np.int64) for column in self.kept}
        read = np.zeros(len(block), np.bool_)
        if self.count + len(block) <= EVIDENCE_RECORDS:
            self._read_alike(block, numbers, read)
        records = self._read_others(block, numbers, ~read, path, number)
        for name, values in numbers.items():
            self.parts[name].append(values if len(records) == len(block) else values[records])
        self.blocks.append((block, records))
        self.places.append((path, number, self.count))
        self.count += len(records)
        return len(block)

    def _read_alike(self, block: LineBlock, numbers: dict[str, Ints], read: Bools) -> None:
        """Read the lines of known layouts, and of new ones."""
        left, tries = np.flatnonzero(block.plain), 0
        done: set[int] = set()
        while len(left):
            for number, layout in enumerate(self.layouts):
                if number in done:
                    continue
                done.add(number)
                rows = left[block.many_quotes[left] == layout.quotes]
                if len(rows):
                    right, spans = block.fits(layout, rows)
                    if right.any():
                        spans = spans if right.all() else [(begin[right], end[right]) for begin, end in spans]
                        rows = rows[right]
                        self._fill(block, layout, rows, spans, numbers, read)
                        left = np.setdiff1d(left, rows, assume_unique=True)
            if not len(left) or tries == TRIES or len(self.layouts) == LAYOUTS:
                return
            new = self.fields.layout(block.line(int(left[0])))
            tries += 1
            if new is None or new in self.layouts:
                left = left[1:]
            else:
                self.layouts.append(new)

    def _fill(
        self,
        block: LineBlock,
        layout: Layout,
        rows: Ints,
        spans: list[tuple[Ints, Ints]],
        numbers: dict[str, Ints],
        read: Bools,
    ) -> None:
        """Read the holes of lines of a layout. A line with a value that may be wrong is not marked as read."""
        right, present = np.ones(len(rows), np.bool_), dict[str, Bools]()
        values: dict[str, Ints] = {}
        for hole, (begins, ends) in zip(layout.holes, spans, strict=True):
            column = self.fields.by_name.get(hole.name)
            if hole.written == "boolean":
                integers, fine = block.booleans(begins, ends)
            elif column is None:
                continue
            else:
                integers, fine = self._value(block, column, begins, ends)
            right &= fine
            if column is not None and column.name in numbers:
                values[column.name] = integers
                present[column.name] = np.ones(len(rows), np.bool_)
        missing = np.zeros(len(rows), np.bool_)
        for column in self.kept:
            if column.name not in values:
                values[column.name] = np.full(len(rows), column.default or 0, np.int64)
                present[column.name] = missing
        wrong = self.fields.kind.wrong(Columns(values, {}), present)
        if wrong is not None:
            right &= ~wrong
        if not right.all():
            rows, values = rows[right], {name: array[right] for name, array in values.items()}
        for name, array in values.items():
            numbers[name][rows] = array
        read[rows] = True

    def _value(self, block: LineBlock, column: RecordColumn, begins: Ints, ends: Ints) -> tuple[Ints, Bools]:
        """The values of a field, and which of them are plainly right."""
        if column.form == "count":
            integers, fine = block.numbers(begins, ends)
            return integers, fine & (integers >= column.least) & (integers <= column.most)
        if column.form == "nanos":
            return block.decimals(begins, ends, column.most)
        if column.form == "instant":
            return begins, block.instants(begins, ends)
        sizes = ends - begins
        if column.form == "note":
            return begins, sizes <= column.most
        if sizes.max(initial=0) > LONGEST:
            return begins, np.zeros(len(begins), np.bool_)
        places, texts = block.different(begins, ends)
        if column.words:
            words = {word.encode(): at for at, word in enumerate(column.words)}
            integers = np.array([words.get(text, -1) for text in texts], np.int64)[places]
            return integers, (integers >= 0) | (column.form == "choice")
        numbered, known = self.numbered[column.name], self._known(column.name)
        codes, right = list[int](), list[bool]()
        for text in texts:
            name = text.decode()
            right.append(column.least <= len(text) <= column.most and (known is None or name in known))
            codes.append(numbered.setdefault(name, len(numbered)) if right[-1] else 0)
        return np.array(codes, np.int64)[places], np.array(right, np.bool_)[places]

    def _known(self, name: str) -> Any:
        return {"validator": self.registry.validators, "participant": self.registry.participants}.get(name)

    def _read_others(self, block: LineBlock, numbers: dict[str, Ints], others: Bools, path: Path, number: int) -> Ints:
        """Read the lines that were left, one by one, and put them where they belong; returns the lines with a record."""
        gathered, some, rows = Gathered(before=self.count), list[tuple[int, bytes]](), list[int]()
        for at in np.flatnonzero(others).tolist():
            line = block.line(at)
            if len(line) >= LINE_BYTES:
                evidence.read_several(gathered, some, path, self.registry)
                what = f"the line is longer than {LINE_BYTES} bytes"
                raise BadInput(what, file=path, line=number + at, hint="write one record a line")
            if line.strip():
                some.append((number + at, line))
                rows.append(at)
        for begin in range(0, len(some), evidence.TOGETHER):
            evidence.read_several(gathered, some[begin : begin + evidence.TOGETHER], path, self.registry)
        for column in self.kept if rows else ():
            numbers[column.name][rows] = coded(gathered.records, column, self.numbered.get(column.name, {}))
        records = ~others
        records[rows] = True
        return np.flatnonzero(records)

    def lines(self) -> Lines:
        """All that was read."""
        empty = [np.empty(0, np.int64)]
        columns = Columns(
            {name: np.concatenate(parts or empty) for name, parts in self.parts.items()},
            {name: tuple(numbered) for name, numbered in self.numbered.items()},
        )
        return Lines(columns, self.registry, tuple(self.blocks), tuple(self.places))


@dataclass(frozen=True)
class Lines:
    """Records that were read as arrays, with the lines that they are on. It answers what `Gathered` answers."""

    columns: Columns
    registry: Registry
    blocks: tuple[tuple[LineBlock, Ints], ...]
    """The lines, and which of them have a record."""
    places: tuple[tuple[Path, int, int], ...]
    """Of each block its file, the number of its first line, and how many records are before it."""

    @cached_property
    def _before(self) -> Ints:
        return np.array([before for _, _, before in self.places], np.int64)

    def _lines(self, at: Ints) -> Iterator[tuple[Place, bytes]]:
        """Place and text of some records."""
        blocks = np.searchsorted(self._before, at, side="right") - 1
        for number, index in zip(blocks.tolist(), at.tolist(), strict=True):
            block, rows = self.blocks[number]
            path, first, before = self.places[number]
            row = int(rows[index - before])
            yield Place(path, first + row), block.line(row)

    def read(self, at: Ints) -> list[Any]:
        """The records at some places."""
        records, several = list[Any](), list[tuple[Place, bytes]](self._lines(at))
        for begin in range(0, len(several), evidence.TOGETHER):
            some = several[begin : begin + evidence.TOGETHER]
            together = read_together([line.rstrip(b"\r\n") for _, line in some], self.registry.kind)
            records += [evidence.parsed(line, place) for place, line in some] if together is None else together
        return records

    @property
    def highest(self) -> int | None:
        """The highest epoch; None without a record."""
        return int(self.columns["epoch"].max()) if len(self.columns) else None

    def table(self, epoch: int) -> RecordTable:
        """The records of epochs up to this one."""
        at = np.flatnonzero(self.columns["epoch"] <= epoch)
        return (
            RecordTable(self.columns, self.read)
            if len(at) == len(self.columns)
            else RecordTable(self.columns, self.read).take(at)
        )

    def check_conflicts(self, oldest: int, epoch: int) -> None:
        """As `evidence.check_conflicts`. Raises BadInput."""
        model = kinds.find(self.registry.kind).record
        check_repeated(self.columns, model, self._look, oldest, epoch)

    def _look(self, at: Ints) -> Gathered:
        return Gathered(self.read(at), [place for place, _ in self._lines(at)])

    def first_epochs(self, frame: Frame) -> dict[str, int]:
        """As `settle.score.first_epochs`."""
        by_participant = kinds.find(self.registry.kind).record.by_participant
        return first_epochs_of(self.columns, frame, by_participant=by_participant)


def read(paths: Iterable[Path], registry: Registry) -> Lines:
    """The records in JSON-lines files. Raises BadInput with file, line and field, as `evidence.read` does."""
    reader = _LineReader(registry)
    for path in paths:
        number = 1
        try:
            with opened(path) as file:
                for data in _blocks(file):
                    number += reader.take(data.removeprefix(BOM) if number == 1 else data, path, number)
        except OSError as error:
            raise unreadable(path, error) from None
    return reader.lines()


def _blocks(file: Any) -> Iterator[bytes]:
    """The file in blocks of whole lines; a line that is too long ends the last block."""
    rest = b""
    while data := file.read(BLOCK):
        data = rest + data
        cut = data.rfind(b"\n") + 1
        rest = data[cut:]
        if cut:
            yield data[:cut]
        if len(rest) > LINE_BYTES:  # it is refused, whatever comes
            rest = rest[: LINE_BYTES + 1]
            break
    if rest:
        yield rest + b"\n"
