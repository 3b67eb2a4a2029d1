"""Reads records of evidence from JSON lines or a JSON case, and checks each against the registry and against the others.

- A record of any epoch must be of the scheme's kind, and name a validator and a participant of the registry. SPEC 1, 7.
- Evidence of epochs after the settled one is ignored. SPEC 1.
- Two different records with one key need a `seq` each, which says which was first. SPEC 3.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np

from assay import kind as kinds
from assay.errors import BadInput
from assay.folder import strict
from assay.folder.files import BOM, EVIDENCE_RECORDS, LINE_BYTES, Place, decode, unreadable
from assay.records import Evidence, Record, record, records
from assay.scheme.model import ScoreRules
from assay.scheme.reading import opened
from assay.settle.columns import Columns
from assay.settle.inputs import Frame, Ints
from assay.settle.score import first_epochs

__all__ = ["Gathered", "Registry", "check_conflicts", "check_repeated", "gather", "lines", "parse", "parsed", "read"]


@dataclass(frozen=True)
class Registry:
    """The validators and participants that a record may name, and the kind that the scheme scores."""

    kind: str
    validators: Set[str]
    participants: Set[str]
    rules: ScoreRules | None = None
    """The rules of the scheme; with them, many lines are read as arrays."""

    def check_kind(self, value: object, place: Place) -> None:
        """Refuse a record of another kind. Raises BadInput. SPEC 7."""
        kind = value.get("kind") if isinstance(value, dict) else None
        if kind != self.kind and kinds.known(kind):
            raise place.refuse(
                f"is {kind!r}, the scheme scores {self.kind!r}", field="kind", hint="move the record, or correct score.kind"
            )

    def check(self, record: Evidence, place: Place) -> None:
        """Refuse a record of an unknown validator or participant. Raises BadInput. SPEC 1."""
        if record.validator not in self.validators:
            raise place.refuse(
                f"there is no validator {record.validator!r}",
                field="validator",
                hint="it must be in validators.csv; if the validator was removed from it, remove the evidence too",
            )
        if record.participant not in self.participants:
            raise place.refuse(
                f"there is no participant {record.participant!r}", field="participant", hint="it must be in participants.csv"
            )


@dataclass
class Gathered:
    """The records in the order of reading, and the place of each."""

    records: list[Evidence] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    before: int = 0
    """The number of records that were read before these."""

    @property
    def highest(self) -> int | None:
        """The highest epoch; None without a record."""
        return max((record.epoch for record in self.records), default=None)

    def table(self, epoch: int) -> tuple[Evidence, ...]:
        """The records of epochs up to this one."""
        return tuple(record for record in self.records if record.epoch <= epoch)

    def check_conflicts(self, oldest: int, epoch: int) -> None:
        """`check_conflicts` of these."""
        check_conflicts(self, oldest, epoch)

    def first_epochs(self, frame: Frame) -> dict[str, int]:
        """`settle.score.first_epochs` of these."""
        return first_epochs(self.records, frame)


def read(paths: Iterable[Path], registry: Registry) -> Gathered:
    """The records in JSON-lines files. Raises BadInput with file, line and field."""
    gathered = Gathered()
    for path in paths:
        try:
            with opened(path) as file:
                for some in _several(lines(file, path)):
                    read_several(gathered, some, path, registry)
        except OSError as error:
            raise unreadable(path, error) from None
    return gathered


TOGETHER, TOGETHER_BYTES = 500, 2**20
"""Lines that are read together, at most, and how many bytes they may have."""


def _several(numbered: Iterator[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    """The lines in small lists. If one cannot be read, those before it come first: the first fault of a file is named."""
    some, size, failed = list[tuple[int, bytes]](), 0, None
    try:
        for number, line in numbered:
            some.append((number, line))
            size += len(line)
            if len(some) == TOGETHER or size > TOGETHER_BYTES:
                yield some
                some, size = [], 0
    except (BadInput, OSError) as error:
        failed = error
    if some:
        yield some
    if failed is not None:
        raise failed


def read_several(gathered: Gathered, some: Sequence[tuple[int, bytes]], path: Path, registry: Registry) -> None:
    """Read some lines of a file: together, or one by one if something may be wrong with one of them. Raises BadInput."""
    together = records([line.rstrip(b"\r\n") for _, line in some], registry.kind)
    if together is None:
        for number, line in some:
            place = Place(path, number)
            _add(gathered, parse(line, place), place, registry)
        return
    for (number, _), item in zip(some, together, strict=True):
        _take(gathered, item, Place(path, number), registry)


def gather(values: Iterable[object], place: Place, registry: Registry) -> Gathered:
    """The records in a list of JSON objects. Raises BadInput with the number of the record and the field."""
    gathered = Gathered()
    for index, value in enumerate(values):
        here = place.inside(index)
        _add(gathered, value, here, registry)
    return gathered


def lines(file: BinaryIO, path: Path | str) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, numbered from 1. A line that is too long is refused before it is read whole."""
    number = 0
    while line := file.readline(LINE_BYTES + 1):
        number += 1
        if len(line) > LINE_BYTES:
            raise BadInput(
                f"the line is longer than {LINE_BYTES} bytes",
                file=path,
                line=number,
                hint="write one record a line",
            )
        line = line.removeprefix(BOM) if number == 1 else line
        if line.strip():
            yield number, line


def parse(line: bytes, place: Place) -> object:
    """The JSON value on a line; raises BadInput."""
    try:
        return strict.parse(_text(line.strip(b"\r\n")))
    except BadInput as error:
        raise place.put(error) from None


def _text(line: bytes) -> str:
    try:
        return decode(line, None)
    except BadInput as error:
        error.line = None  # it counts from the beginning of the record
        raise


def _add(gathered: Gathered, value: object, place: Place, registry: Registry) -> None:
    if not isinstance(value, dict):
        raise place.refuse("is not a JSON object", hint="write one record a line, in braces")
    registry.check_kind(value, place)
    _take(gathered, _record(value, place), place, registry)


def parsed(line: bytes, place: Place) -> Evidence:
    """The record on a line; raises BadInput."""
    return _record(parse(line, place), place)


def _record(value: object, place: Place) -> Evidence:
    try:
        return record(value)
    except BadInput as error:
        raise place.put(error) from None


def _take(gathered: Gathered, item: Evidence, place: Place, registry: Registry) -> None:
    registry.check(item, place)
    if gathered.before + len(gathered.records) == EVIDENCE_RECORDS:
        raise place.refuse(f"there are more than {EVIDENCE_RECORDS} records", hint="keep so much evidence in Parquet")
    gathered.records.append(item)
    gathered.places.append(place)


def check_conflicts(gathered: Gathered, oldest: int, epoch: int) -> None:
    """Refuse different records with one key, in epochs oldest … epoch, unless `seq` says which was first. SPEC 3.0."""
    first: dict[tuple[object, ...], int] = {}
    several: dict[tuple[object, ...], list[int]] = {}
    for index, item in enumerate(gathered.records):
        if oldest <= item.epoch <= epoch:
            key = item.slot
            earlier = first.setdefault(key, index)
            if earlier != index:
                several.setdefault(key, [earlier]).append(index)
    for indices in several.values():
        _check_key(gathered, indices)


def check_repeated(columns: Columns, model: type[Record], look: Callable[[Ints], Gathered], oldest: int, epoch: int) -> None:
    """As `check_conflicts`, of records as arrays; `look` gives the records at some places."""
    epochs = columns["epoch"]
    at = np.flatnonzero((epochs >= oldest) & (epochs <= epoch))
    standing = columns if len(at) == len(columns) else columns.take(at)
    twice = at[standing.twice(model.shared_key, model.parts)]
    if len(twice):
        check_conflicts(look(twice), oldest, epoch)


def _check_key(gathered: Gathered, indices: Sequence[int]) -> None:
    records = [gathered.records[index] for index in indices]
    different = [index for index in indices if gathered.records[index].content != records[0].content]
    if not different:
        return
    sequence = [item.seq for item in records]
    numbers = [number for number in sequence if number is not None]
    if len(numbers) == len(sequence) and numbers.count(min(numbers)) == 1:
        return
    why = "not both have a seq" if None in sequence else "both have the same seq"
    at, earlier = gathered.places[different[0]], gathered.places[indices[0]]
    raise at.refuse(
        f"differs from the record of the same key at {earlier}, and {why}",
        hint="keep the one that came first, or give each the seq of the ledger",
    )
