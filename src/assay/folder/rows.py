"""Reads rows of Parquet as arrays, for every kind that has columns. SPEC 1, 7.

    files → check of the columns → batches of rows → arrays → which rows stand → the kind's tally

A column of Parquet is a field of a record (docs/formats.md). Names are checked once for each different one, numbers all
together. A row with a value that is not plainly right is made into a record of its own, which gives the refusal that its line of
JSON would get.
Records are made of those rows only, of rows whose key occurs twice, and of rows that somebody asks for.

Evidence of kind tests has a way of its own, `assay.folder.bulk`: there DuckDB adds up trials, and there is no array at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from assay.characters import allowed
from assay.errors import BadInput, suggest
from assay.exact import text as decimal_text
from assay.folder import strict
from assay.folder.blocks import Texts
from assay.folder.evidence import Gathered, Registry, check_repeated
from assay.folder.files import EVIDENCE_RECORDS, Place, check_file
from assay.records import Evidence, record
from assay.scheme.model import Scheme
from assay.settle.columns import Columns, RecordColumn, RecordTable, coded
from assay.settle.inputs import Bools, Frame, Ints, Scored
from assay.settle.score import score

__all__ = ["RowFiles", "count", "dictionary", "highest_epoch", "records", "tally"]

AT_ONCE = 2**16
"""Rows that are read together: few enough that a column of them stays in the processor's cache."""
UNKNOWN = datetime(1, 1, 1, tzinfo=UTC)
"""The time of a record whose file gives none."""
_ALSO = ("kind", "competition")
_FIXED = ("instant", "nanos", "note", "notes", "vote")
"""Fields whose different values are too many to be numbered."""


class RowFiles:
    """Parquet files with evidence of one kind."""

    def __init__(self, paths: Sequence[Path], scheme: Scheme) -> None:
        self.paths, self.scheme, self.kind = tuple(paths), scheme, scheme.kind
        self.columns = scheme.kind.columns(scheme.score)
        self.fields = {column.name.partition(".")[0]: column for column in self.columns}
        """Column of the files → how it is written; of an object, one of its fields."""
        self.objects = {column.name.partition(".")[0] for column in self.columns if "." in column.name}

    def batches(self, names: Sequence[str] | None = None) -> Iterator[tuple[Path, int, Any]]:
        """File, number of the first row (from 0) and rows; raises BadInput for a wrong file or column."""
        for path in self.paths:
            with _reading(path) as pq:
                file = pq.ParquetFile(path)
                schema = file.schema_arrow
                self._check(schema, path)
                here = [name for name in schema.names if names is None or name in names]
                numbered = [name for name in here if self._numbered(name, schema.field(name).type)]
                with pq.ParquetFile(path, read_dictionary=numbered) as file:
                    first = 0
                    for batch in file.iter_batches(batch_size=AT_ONCE, columns=here):
                        yield path, first, batch
                        first += len(batch)

    def count(self) -> int:
        """The number of rows; raises BadInput for a wrong file."""
        count = 0
        for path in self.paths:
            with _reading(path) as pq, pq.ParquetFile(path) as file:
                count += file.metadata.num_rows
        return count

    def _numbered(self, name: str, kind: Any) -> bool:
        """Whether different texts of a column are numbered while they are read."""
        import pyarrow.types as types

        text = types.is_string(kind) or types.is_large_string(kind)
        return text and (name not in self.fields or self.fields[name].form not in _FIXED)

    def _check(self, schema: Any, path: Path) -> None:
        for name in schema.names:
            if (name not in self.fields and name not in _ALSO) or schema.names.count(name) > 1:
                known = [*self.fields, *_ALSO]
                hint = suggest(name[:80].lower(), known, f"the columns are {', '.join(known)}")
                raise BadInput(f"there is no column {name[:80]!r}", file=path, field=name[:80], hint=hint)
            kind = schema.field(name).type
            wanted = self._wrong(name, kind)
            if wanted:
                raise BadInput(f"the column is of type {str(kind)[:80]}", file=path, field=name, hint=f"write it as {wanted}")
        for name, column in self.fields.items():
            if column.needed and column.form != "instant" and name not in schema.names:
                needed = [name for name, column in self.fields.items() if column.needed and column.form != "instant"]
                hint = f"the columns needed are {', '.join(needed)}"
                raise BadInput("the column is missing", file=path, field=name, hint=hint)

    def _wrong(self, name: str, kind: Any) -> str:
        """The types that the column must have, if it has another; otherwise nothing."""
        import pyarrow.types as types

        form = self.fields[name].form if name in self.fields else "text"
        text = types.is_string(kind) or types.is_large_string(kind)
        if types.is_dictionary(kind):
            kind, text = kind.value_type, types.is_string(kind.value_type) or types.is_large_string(kind.value_type)
        inner = types.is_boolean if name in self.objects else types.is_string
        if form in ("answer", "notes"):
            of_fields = types.is_struct(kind) and all(inner(kind.field(at).type) for at in range(kind.num_fields))
            right, wanted = text or of_fields, f"text (JSON), or a struct of {'booleans' if name in self.objects else 'texts'}"
        elif form == "vote":
            right, wanted = text, "text (JSON)"
        elif form == "nanos":
            right = text or (types.is_decimal(kind) and 0 <= kind.scale <= 9)
            wanted = "text, or a decimal with at most 9 digits after the point"
        elif form == "instant":
            right, wanted = text or types.is_timestamp(kind), "text or a timestamp"
        elif form == "count":
            right, wanted = types.is_integer(kind), "integers"
        elif form == "flag":
            right, wanted = types.is_boolean(kind), "booleans"
        else:
            right, wanted = text, "text"
        return "" if right else wanted

    def record(self, row: Mapping[str, Any], place: Place) -> Evidence:
        """The record that a row says. Raises BadInput with its place."""
        content: dict[str, Any] = {"kind": self.kind.name, "observed_at": UNKNOWN}
        for name, value in row.items():
            if value is not None and name != "competition":
                content[name] = self._as_json(name, value, place.inside(name))
        try:
            return record(content)
        except BadInput as error:
            raise place.put(error) from None

    def _as_json(self, name: str, value: Any, place: Place) -> Any:
        """A value as JSON has it."""
        form = self.fields[name].form if name in self.fields else "text"
        if isinstance(value, Decimal):
            scaled = int(value.scaleb(9))
            return decimal_text(scaled) if scaled >= 0 else str(value)
        if isinstance(value, datetime):
            return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        if form == "choice":
            return value if value in self.fields[name].words else _parsed(value, place)
        if form in ("answer", "notes", "vote"):
            if isinstance(value, str):
                return _parsed(value, place)
            return {inner: content for inner, content in value.items() if content is not None}
        return value


def _parsed(value: str, place: Place) -> Any:
    try:
        return strict.parse(value)
    except BadInput as error:
        raise place.put(error) from None


@contextmanager
def _reading(path: Path) -> Iterator[Any]:
    try:
        import pyarrow as pa
        import pyarrow.compute
        import pyarrow.parquet as pq
    except ImportError:
        what, hint = "Parquet is read with pyarrow, which is not installed", "pip install 'assay[bulk]'"
        raise BadInput(what, file=path, hint=hint) from None
    try:
        check_file(path)
        yield pq
    except (pa.ArrowException, OSError) as error:
        what = f"is not readable Parquet: {str(error).partition(chr(10))[0][:200]}"
        raise BadInput(what, file=path, hint="write the file again") from None


class _ReadWhole(Exception):
    """A row may be wrong, and not all of its fields were read."""


def _names_or_orders(column: RecordColumn) -> bool:
    """Whether a field says what a record is about, and which of two came first; the others say how it went."""
    return column.form in ("text", "word") or column.name in ("epoch", "seq")


class _Rows:
    """The rows of all files as arrays, and where each stands."""

    def __init__(self, files: RowFiles, registry: Registry, scores: Ints | None = None) -> None:
        self.files, self.registry = files, registry
        self.scores = scores
        self.read = [column for column in files.columns if scores is None or _names_or_orders(column)]
        """The fields to read."""
        self.kept = [column for column in self.read if column.form not in ("instant", "note", "notes")]
        self.numbered: dict[str, dict[str, int]] = {column.name: {} for column in self.kept if column.form == "text"}
        count = files.count()
        self.numbers: dict[str, Any] = {
            column.name: np.empty(count, np.int64 if column.form == "nanos" or column.most >= 2**31 else np.int32)
            for column in self.kept
        }
        self.begins: list[int] = []
        self.count = 0
        for path, first, batch in files.batches(None if scores is None else (*_ALSO, *(column.name for column in self.read))):
            self._take(path, first, batch)
        if scores is not None:
            self.numbers["score"] = scores
        self.columns = Columns(self.numbers, {name: tuple(numbered) for name, numbered in self.numbered.items()})

    def _take(self, path: Path, first: int, batch: Any) -> None:
        count, names = len(batch), set(batch.schema.names)
        right = self._fits("kind", self.files.kind.name, names, batch) & self._of_this(names, batch, path, first)
        everywhere, nowhere = np.ones(count, np.bool_), np.zeros(count, np.bool_)
        values: dict[str, Ints] = {}
        present: dict[str, Bools] = {}
        wanted = {column.name for column in self.kept}
        for column in self.read:
            name, _, inner = column.name.partition(".")
            fine, there = None, nowhere
            if name in names:
                integers, fine, missing = self._value(column, inner, batch.column(name))
                there = everywhere if missing is None else ~missing
                if missing is not None and column.needed and column.form != "instant":
                    right &= there
            elif column.name in wanted:
                integers = np.full(count, column.default or 0, np.int64)
            if fine is not None:
                right &= fine
            if column.name in wanted:
                values[column.name], present[column.name] = integers, there
        wrong = self.files.kind.wrong(Columns(values, {}), present) if self.scores is None else None
        if wrong is not None:
            right &= ~wrong
        rows = np.flatnonzero(~right)
        if len(rows):
            if self.scores is not None:
                raise _ReadWhole
            values = {name: array.copy() for name, array in values.items()}
            self._read_alone(batch, rows, values, path, first)
        for name, array in values.items():
            self.numbers[name][self.count : self.count + count] = array
        self.begins.append(self.count)
        self.count += count

    def _fits(self, name: str, wanted: str, names: set[str], batch: Any) -> Bools:
        """Whether a column, if it is there, has this text."""
        if name not in names:
            return np.ones(len(batch), np.bool_)
        texts, codes = dictionary(batch.column(name))
        return np.array([*(text == wanted for text in texts), name == "kind"], np.bool_)[codes]

    def _of_this(self, names: set[str], batch: Any, path: Path, first: int) -> Bools:
        """Refuse a row of another competition. Raises BadInput."""
        fits = self._fits("competition", self.files.scheme.name, names, batch)
        if not fits.all():
            at = int(np.argmin(fits))
            value = batch.column("competition")[at].as_py()
            shown = "an empty cell" if value is None else repr(value[:60])
            hint = "keep each competition in its own folder"
            what = f"{shown} is not {self.files.scheme.name!r}"
            raise Place(path, first + at + 1).refuse(what, field="competition", hint=hint)
        return fits

    def _value(self, column: RecordColumn, inner: str, array: Any) -> tuple[Ints, Bools | None, Bools | None]:
        """The values of a field; which are plainly right (None: all), and which are missing (None: none)."""
        missing = np.asarray(array.is_null()) if array.null_count else None
        fine: Bools | None
        if column.form == "count":
            integers, fine = _counts(array, column)
        elif column.form == "flag":
            integers, fine = np.asarray(array.fill_null(bool(column.default))).astype(np.int64), None
        elif column.form == "nanos":
            integers, fine = _nanos(array, column.most)
        elif column.form == "instant":
            integers, fine = _NONE, _instants(array)
        elif column.form in ("note", "notes"):
            integers, fine = _NONE, _noted(array, column)
        elif column.form == "answer":
            integers, fine = _answers(array, inner)
        elif column.form == "vote":  # a panel is read as a record
            integers, fine = np.full(len(array), -1, np.int64), np.zeros(len(array), np.bool_)
        else:
            texts, codes = dictionary(array)
            numbers, known = self._names(column, texts)
            integers, fine = numbers[codes], None if known.all() else known[codes]
        if missing is not None:
            integers = np.where(missing, column.default or 0, integers) if integers is not _NONE else integers
            fine = None if fine is None else fine | missing
        return integers, fine, missing

    def _names(self, column: RecordColumn, texts: Sequence[str]) -> tuple[Ints, Bools]:
        """The number of each different text, and whether it is right; one more for a row without a text."""
        if column.words:
            words = {word: at for at, word in enumerate(column.words)}
            integers = [words.get(text, -1) for text in texts]
            right = [number >= 0 for number in integers]
            if column.form == "choice":  # any JSON, beside the words
                for at in [at for at, number in enumerate(integers) if number < 0]:
                    right[at], value = _json(texts[at])
                    integers[at] = words.get(value, -1) if isinstance(value, str) else -1
            return np.array([*integers, column.default or 0], np.int64), np.array([*right, True], np.bool_)
        numbered = self.numbered[column.name]
        known = {"validator": self.registry.validators, "participant": self.registry.participants}.get(column.name)
        right = [
            text in numbered or (column.least <= len(text) <= column.most and (allowed(text) if known is None else text in known))
            for text in texts
        ]
        codes = [numbered.setdefault(text, len(numbered)) if fine else 0 for text, fine in zip(texts, right, strict=True)]
        return np.array([*codes, 0], np.int64), np.array([*right, True], np.bool_)

    def _read_alone(self, batch: Any, rows: Ints, values: Mapping[str, Ints], path: Path, first: int) -> None:
        """Make records of rows that may be wrong, and put what they say into the arrays. Raises BadInput."""
        alone = []
        for at, row in zip(rows.tolist(), batch.take(rows).to_pylist(), strict=True):
            place = Place(path, first + at + 1)
            self.registry.check_kind({"kind": self.files.kind.name} | {k: v for k, v in row.items() if k == "kind" and v}, place)
            read = self.files.record(row, place)
            self.registry.check(read, place)
            alone.append(read)
        for column in self.kept:
            values[column.name][rows] = coded(alone, column, self.numbered.get(column.name, {}))

    def look(self, at: Ints) -> Gathered:
        """The records of some rows, in this order, and their places. Raises BadInput for more than can be looked at."""
        if len(at) > EVIDENCE_RECORDS:
            what = f"more than {EVIDENCE_RECORDS} records share their key with another one"
            raise BadInput(what, file=self.files.paths[0].parent, hint="keep the first accepted of each")
        record_at: dict[int, tuple[Evidence, Place]] = {}
        wanted = np.unique(at)
        batches = np.searchsorted(np.array(self.begins), wanted, side="right") - 1
        needed = dict(enumerate(self.begins))
        for number, (path, first, batch) in enumerate(self.files.batches()):
            mine = wanted[batches == number]
            rows = mine - needed[number]
            for index, row, content in zip(mine.tolist(), rows.tolist(), batch.take(rows).to_pylist(), strict=True):
                place = Place(path, first + row + 1)
                record_at[index] = self.files.record(content, place), place
        return Gathered([record_at[index][0] for index in at.tolist()], [record_at[index][1] for index in at.tolist()])


def dictionary(array: Any) -> tuple[list[str], Ints]:
    """The different texts of a column, and the number of each row's; the last, which is no text, for an empty cell."""
    import pyarrow as pa

    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    indices = encoded.indices
    codes = indices.fill_null(len(texts)) if indices.null_count else indices
    return [text or "" for text in texts], codes.to_numpy(zero_copy_only=False).astype(np.int64)


def _spans(array: Any) -> tuple[Texts, Ints, Ints]:
    """The texts of a column, as places in its bytes. An empty cell is an empty text."""
    import pyarrow as pa

    plain = array.cast(pa.large_string()).fill_null("")
    _, offsets, data = plain.buffers()
    ends = np.frombuffer(offsets, np.int64)[plain.offset : plain.offset + len(plain) + 1]
    return Texts(data.to_pybytes() if data is not None else b""), ends[:-1], ends[1:]


_NONE = np.empty(0, np.int64)
"""The values of a field of which nothing is kept."""


def _counts(array: Any, column: RecordColumn) -> tuple[Ints, Bools | None]:
    import pyarrow as pa

    filled = array.fill_null(0) if array.null_count else array
    if pa.types.is_uint64(filled.type):
        filled = pa.compute.min_element_wise(filled, pa.scalar(2**62, pa.uint64()))
    integers: Ints = filled.to_numpy(zero_copy_only=False).astype(np.int64)
    if not len(integers) or (integers.min() >= column.least and integers.max() <= column.most):
        return integers, None
    return integers, (integers >= column.least) & (integers <= column.most)


def _nanos(array: Any, most: int) -> tuple[Ints, Bools | None]:
    import pyarrow as pa

    if not len(array):
        return np.empty(0, np.int64), None
    if not pa.types.is_decimal(array.type):
        texts, begins, ends = _spans(array)
        return texts.decimals(begins, ends, most)
    wide = array.cast(pa.decimal128(38, array.type.scale)) if array.type.bit_width != 128 else array
    halves = np.frombuffer(wide.buffers()[1], np.int64)[2 * wide.offset : 2 * (wide.offset + len(wide))].reshape(-1, 2)
    low, high = halves[:, 0], halves[:, 1]
    scale = 10 ** (9 - array.type.scale)
    if not high.any() and low.min() >= 0 and low.max() <= most // scale:
        return low * scale if scale > 1 else low, None
    fine = (high == 0) & (low >= 0) & (low <= most // scale)
    return np.where(fine, low, 0) * scale, fine


def _instants(array: Any) -> Bools:
    import pyarrow as pa

    if pa.types.is_timestamp(array.type):
        years = pa.compute.year(array.fill_null(0)).to_numpy(zero_copy_only=False)
        return np.asarray((years >= 1) & (years <= 9999) & (array.type.unit != "ns"), np.bool_)
    texts, begins, ends = _spans(array)
    return texts.instants(begins, ends) if len(begins) else np.empty(0, np.bool_)


def _noted(array: Any, column: RecordColumn) -> Bools:
    """Whether the texts of a field that is not kept are right."""
    import pyarrow as pa

    if column.form == "note":
        texts = pa.compute.dictionary_decode(array) if pa.types.is_dictionary(array.type) else array
        return np.asarray(pa.compute.utf8_length(texts).fill_null(0).to_numpy(zero_copy_only=False) <= column.most, np.bool_)
    if pa.types.is_struct(array.type):
        return np.ones(len(array), np.bool_)
    return np.array([text is not None and _is_notes(text) for text in array.to_pylist()], np.bool_)


def _is_notes(text: str) -> bool:
    _, value = _json(text)
    return isinstance(value, dict) and all(isinstance(note, str) for note in value.values())


def _json(text: str) -> tuple[bool, Any]:
    """Parse a text: return whether it is JSON, and its value."""
    try:
        return True, strict.parse(text)
    except BadInput:
        return False, None


def _answers(array: Any, inner: str) -> tuple[Ints, Bools]:
    """One answer of each row: 1, 0, or −1 for none; and whether the object is plainly right."""
    import pyarrow as pa

    right = np.ones(len(array), np.bool_)
    if pa.types.is_struct(array.type):
        if array.type.get_field_index(inner) < 0:
            return np.full(len(array), -1, np.int64), right
        answers = array.field(inner)
        return np.where(answers.is_null(), -1, np.asarray(answers.fill_null(False)).astype(np.int64)), right
    texts, codes = dictionary(array)
    read = [_json(text) for text in texts]
    answers = [value.get(inner) if isinstance(value, dict) else None for _, value in read]
    integers = [int(answer) if isinstance(answer, bool) else -1 for answer in answers]
    return np.array([*integers, -1], np.int64)[codes], np.array([*(fine for fine, _ in read), True], np.bool_)[codes]


def count(paths: Sequence[Path], scheme: Scheme) -> int:
    """The number of rows; raises BadInput for a file that cannot be read."""
    return RowFiles(paths, scheme).count()


def highest_epoch(paths: Sequence[Path], scheme: Scheme) -> int | None:
    """The highest epoch in Parquet files, None if they have no record; raises BadInput."""
    highest: int | None = None
    for _, _, batch in RowFiles(paths, scheme).batches(["epoch"]):
        if len(batch) and batch.column("epoch").null_count < len(batch):
            import pyarrow.compute as pc

            here = pc.max(batch.column("epoch")).as_py()
            highest = here if highest is None else max(highest, here)
    return highest


def tally(paths: Sequence[Path], axes: Frame, scheme: Scheme, scores: Ints | None = None) -> Scored:
    """The scores of a competition from the records in Parquet files. Raises BadInput with file and row. SPEC 2.

    A column `competition`, if there is one, must hold the scheme's name. scores: what the kind computes from the numbers of each
    row, in the order of the files, if that is known already; then the numbers are not read.
    """
    registry = Registry(scheme.score.kind, frozenset(axes.validators), frozenset(axes.participants), scheme.score)
    files = RowFiles(paths, scheme)
    try:
        rows = _Rows(files, registry, scores)
    except _ReadWhole:
        rows = _Rows(files, registry)
    check_repeated(rows.columns, scheme.kind.record, rows.look, axes.oldest, axes.epoch)
    return score(RecordTable(rows.columns, lambda at: rows.look(at).records), axes, scheme.score)


def records(paths: Sequence[Path], scheme: Scheme, wanted: Mapping[str, Sequence[str]]) -> Iterator[Evidence]:
    """The records whose columns have one of the wanted values, in the order of the files. Raises BadInput with file and row."""
    files = RowFiles(paths, scheme)
    for path, first, batch in files.batches():
        chosen = np.ones(len(batch), np.bool_)
        for name, values in wanted.items():
            texts, codes = dictionary(batch.column(name))
            chosen &= np.array([*(text in values for text in texts), False], np.bool_)[codes]
        at = np.flatnonzero(chosen)
        for row, content in zip(at.tolist(), batch.take(at).to_pylist(), strict=True):
            yield files.record(content, Place(path, first + row + 1))
