"""Write and read a bundle's evidence, as JSON lines or Parquet, and compute the root that a receipt binds. SPEC 3.0, 6, 7.

Parquet holds evidence of one kind, and needs pyarrow (the extra `bulk`). Its columns are the fields of the kind's records: whole
numbers, booleans and texts as they are, anything else as canonical JSON. Reading it gives the bytes that `Record.digest` hashes:
a record's canonical JSON is a template for the columns, and each distinct value is escaped once by the encoder of canonical JSON.

A leaf of the root is a record's `seq` (8 bytes, big endian) and its digest (32 bytes), in order of acceptance: the root binds it.

Files may come from strangers: reading gives records, or raises BadInput. What is no record has a digest that no receipt names.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from assay.errors import BadInput, brief
from assay.exact import LARGEST, canonical, text
from assay.folder.evidence import lines, parse
from assay.folder.files import LINE_BYTES, Place, unreadable
from assay.kind import find, known
from assay.ledger import merkle
from assay.records import record
from assay.scheme.reading import check_file, opened

if TYPE_CHECKING:
    from numpy.typing import NDArray

PARQUET_ROWS = 65_536
"""Records of one row group, written together."""
PARQUET_AT_ONCE = 8_192
"""Records that are read together: few enough that their bytes stay in the processor's cache."""
LONGEST = 4_096
"""The most characters of a value: more than any field of a record may have."""
ROOM = 2**23
"""Bytes of a row group, after which another begins."""
SPARE = 2 * ROOM
"""Bytes that a row group may have beside `LONGEST` characters of each record."""
_PLAIN = r"^[0-9A-Za-z:.+-]*$"
"""A text that needs no escape in JSON."""


class RecordChunk(NamedTuple):
    """Some records: their seqs, their canonical JSON, and the (kind, epoch, validator) of each."""

    seqs: list[int]
    bodies: list[bytes]
    heads: list[tuple[str, int, str]]


class ParquetField(NamedTuple):
    """A field of a record as a column."""

    name: str
    form: str
    """integer, boolean, string; or json: anything else, as its canonical JSON."""
    needed: bool
    default: str | None
    """The value of an empty cell, as canonical JSON; None: the field is left out."""


@cache
def parquet_fields(kind: str) -> tuple[ParquetField, ...]:
    """The columns of a kind's records beside `seq` and `kind`, in the order of canonical JSON."""
    model = find(kind).record
    schema = model.model_json_schema(mode="serialization")["properties"]
    fields = []
    for name in sorted(schema.keys() - {"seq", "kind"}):
        info, parts = model.model_fields[name], schema[name].get("anyOf", [schema[name]])
        types = {part.get("type") for part in parts} - {"null"}
        form = types.pop() if len(types) == 1 and types <= {"integer", "boolean", "string"} else "json"
        default = None
        if not info.is_required() and info.default is not None:
            of_nanos = form == "string" and isinstance(info.default, int)
            default = canonical(text(info.default) if of_nanos else info.default).decode()
        fields.append(ParquetField(name, form, info.is_required(), default))
    return tuple(fields)


def write_parquet(path: Path, records: Iterable[tuple[int, bytes]]) -> int:
    """Write records (seq, canonical JSON) of one kind to a new Parquet file and flush it to the disk; returns how many.

    Raises BadInput for records of several kinds.
    """
    import pyarrow.parquet as pq

    groups = _groups(records)
    first = next(groups)  # there is always one
    kind = json.loads(first[0][1])["kind"] if first else "tests"
    count = 0
    with path.open("xb") as file:
        with pq.ParquetWriter(file, _schema(kind), compression="zstd") as writer:
            for group in itertools.chain([first], groups):
                writer.write_table(_table(group, kind, path))
                count += len(group)
        _flush(file)
    return count


def _groups(records: Iterable[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    """The records in groups of some rows and bytes; one empty group if there are none."""
    group, size, first = list[tuple[int, bytes]](), 0, True
    for pair in records:
        group.append(pair)
        size += len(pair[1])
        if len(group) == PARQUET_ROWS or size > ROOM:
            yield group
            group, size, first = [], 0, False
    if group or first:
        yield group


def _flush(file: Any) -> None:
    import os

    file.flush()
    os.fsync(file.fileno())


def _schema(kind: str) -> Any:
    """`seq`, the fields of the kind, and for every kind but tests `kind`: without it a file holds evidence of tests."""
    import pyarrow as pa

    types = {"integer": pa.int64(), "boolean": pa.bool_()}
    fields = [("seq", pa.int64()), *((column.name, types.get(column.form, pa.string())) for column in parquet_fields(kind))]
    return pa.schema(fields if kind == "tests" else [*fields, ("kind", pa.string())])


def _table(records: Sequence[tuple[int, bytes]], kind: str, path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.json as pj

    schema = _schema(kind)
    if not records:
        return schema.empty_table()
    if {column.name for column in parquet_fields(kind) if column.form == "json"}:
        return pa.table(_written_apart([body for _, body in records], [seq for seq, _ in records], kind, path), schema=schema)
    lines = b"\n".join(body for _, body in records)
    inner = pa.schema([*(field for field in schema if field.name not in ("seq", "kind")), ("kind", pa.string())])
    options = pj.ParseOptions(explicit_schema=inner, unexpected_field_behavior="error")
    block = pj.ReadOptions(block_size=len(lines) + 1)
    try:
        table = pj.read_json(io.BytesIO(lines), read_options=block, parse_options=options)
    except pa.ArrowInvalid:
        raise _several_kinds(path) from None
    if table.column("kind").unique().to_pylist() != [kind]:
        raise _several_kinds(path)
    return table.append_column("seq", pa.array([seq for seq, _ in records], pa.int64())).select(schema.names)


def _several_kinds(path: Path) -> BadInput:
    return BadInput("the evidence is of several kinds, and Parquet holds one", file=path, hint="write it as lines of JSON")


def _written_apart(bodies: Sequence[bytes], seqs: list[int], kind: str, path: Path) -> dict[str, list[Any]]:
    """The columns of records that hold JSON of others: each field of it is written by the encoder of canonical JSON."""
    fields = parquet_fields(kind)
    columns: dict[str, list[Any]] = {column.name: [] for column in fields}
    columns |= {"seq": [*seqs], "kind": [kind] * len(seqs)}
    for body in bodies:
        document = json.loads(body)
        if document["kind"] != kind:
            raise _several_kinds(path)
        for column in fields:
            value = document.get(column.name)
            columns[column.name].append(canonical(value).decode() if column.form == "json" and value is not None else value)
    return columns


def parquet_rows(path: Path) -> int:
    """The number of records in a Parquet file by its footer; raises BadInput for another file."""
    with _opened(path) as file:
        count: int = file.metadata.num_rows
        return count


class ParquetRows(NamedTuple):
    """Some rows of a Parquet file as its columns: `seq`, and those fields of its kind that it has."""

    kind: str
    columns: dict[str, Any]
    path: Path

    def encoded(self, name: str) -> tuple[NDArray[np.intp], list[Any]]:
        """A field as numbers of its different values; an empty cell is the last value, None. Raises BadInput."""
        column = next(column for column in parquet_fields(self.kind) if column.name == name)
        with _readable(self.path):
            cells = _encoded(self.columns[name], column, self.path)
            values = cells.dictionary.to_pylist()
            return cells.indices.fill_null(len(values)).to_numpy().astype(np.intp), [*values, None]

    def records(self) -> RecordChunk:
        """Their records; raises BadInput for a wrong column or value."""
        with _readable(self.path):
            return _part(self.columns, len(self.columns["seq"]), self.kind, self.path)


def read_parquet(path: Path) -> Iterator[RecordChunk]:
    """The records of a Parquet file in its order, some at a time; raises BadInput for a wrong file, column or value."""
    for rows in parquet_parts(path):
        yield rows.records()


def parquet_parts(path: Path) -> Iterator[ParquetRows]:
    """The rows of a Parquet file in its order, some at a time; raises BadInput for a wrong file, or one without a column."""
    with _opened(path) as file:
        names = file.schema_arrow.names
        kind = _kind_of(file, path)
        fields = parquet_fields(kind)
        for name, needed in (
            ("seq", True),
            *((column.name, column.needed and column.name != "observed_at") for column in fields),
        ):
            if names.count(name) != 1 and (needed or name in names):
                raise BadInput("the column is missing, or occurs twice", file=path, field=name, hint="export the evidence again")
        columns = ["seq", *(column.name for column in fields if column.name in names)]
        batches = file.iter_batches(batch_size=PARQUET_AT_ONCE, columns=columns)
        while True:
            with _readable(path):
                batch = next(batches, None)
            if batch is None:
                return
            yield ParquetRows(kind, {name: batch.column(name) for name in columns}, path)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Raise what pyarrow raises for a wrong file as BadInput."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(path, error) from None


def parquet_kind(path: Path) -> str:
    """The kind of the records in a Parquet file; tests, if it has none. Raises BadInput for another file, or several kinds."""
    with _opened(path) as file:
        return _kind_of(file, path)


def parquet_columns(path: Path) -> dict[str, bool]:
    """The columns of a file that records are made of, in its order: name → whether it has texts that repeat. Raises BadInput."""
    with _opened(path) as file:
        kind = _kind_of(file, path)
        repeats = {column.name: column.form == "string" and column.name != "observed_at" for column in parquet_fields(kind)}
        repeats |= {"seq": False, "kind": True}
        return {name: repeats[name] for name in file.schema_arrow.names if name in repeats}


def _kind_of(file: Any, path: Path) -> str:
    """The kind of the records in an open file: that of its column `kind`; tests, if there is none. Raises BadInput."""
    if "kind" not in file.schema_arrow.names:
        return "tests"
    kinds: set[object] = set()
    with _readable(path):
        for batch in file.iter_batches(batch_size=PARQUET_AT_ONCE, columns=["kind"]):
            kinds |= set(batch.column("kind").unique().to_pylist())
    names = [name for name in kinds if isinstance(name, str) and known(name)]
    if len(kinds) > 1 or len(names) != len(kinds):
        raise BadInput("is not one kind of evidence that is known here", file=path, field="kind", hint="export it again")
    return names[0] if names else "tests"


def _opened(path: Path) -> Any:
    import pyarrow.parquet as pq

    with _readable(path):
        check_file(path)
        file = pq.ParquetFile(path)
    _check_sizes(file.metadata, path)
    return file


def _check_sizes(metadata: Any, path: Path) -> None:
    """Raise BadInput for rows larger than records can be: a few kB of a compressed page may expand to gigabytes.

    The metadata of single columns is not read, because pyarrow ends the process if it is missing.
    """
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        if group.total_byte_size > SPARE + group.num_rows * LONGEST * 4:
            raise BadInput("has rows that are larger than records can be", file=path, hint="export the evidence again")


def _unreadable(path: Path, error: Exception) -> BadInput:
    return BadInput(f"is not readable Parquet ({str(error).partition(chr(10))[0][:200]})", file=path, hint="export it again")


def _part(columns: dict[str, Any], count: int, kind: str, path: Path) -> RecordChunk:
    import pyarrow as pa
    import pyarrow.compute as pc

    fields = parquet_fields(kind)
    named = {column.name: column for column in fields}
    encoded = {name: _encoded(columns[name], named[name], path) for name in columns if name not in ("seq", "observed_at")}
    pieces, before = list[Any](), "{"
    if not fields[0].needed:  # then the first comma is cut off below
        before = ","
    for column in sorted([*fields, ParquetField("kind", "string", True, None)]):
        if column.name == "kind":
            before += f'"kind":{canonical(kind).decode()},'
            continue
        before += f'"{column.name}":'
        if column.name == "observed_at":
            pieces += _times(columns.get("observed_at"), column, before, path)
        elif column.name in encoded:
            pieces.append(_text(encoded[column.name], before, path, column))
        elif column.default is not None:
            pieces.append(pa.scalar(before + column.default, pa.large_string()))
        before = ","
    joined = pc.binary_join_element_wise(*pieces, pa.scalar("}", pa.large_string()), pa.scalar("", pa.large_string()))
    seqs = columns["seq"]
    if not pa.types.is_integer(seqs.type):
        raise BadInput(f"the column is of type {str(seqs.type)[:80]}", file=path, field="seq", hint="export the evidence again")
    if seqs.null_count or pc.any(pc.less(seqs, 0), min_count=0).as_py():
        raise BadInput("is empty, or below 0", file=path, field="seq", hint="export the evidence again")
    epochs, validators = (encoded[name].dictionary.to_pylist() for name in ("epoch", "validator"))
    pairs = [(kind, epoch, validator) for epoch in epochs for validator in validators]
    at = encoded["epoch"].indices.to_numpy().astype("int64") * len(validators) + encoded["validator"].indices.to_numpy()
    bodies = _split(joined)
    if not fields[0].needed:
        bodies = [b"{" + body[1:] for body in bodies]
    return RecordChunk(seqs.to_numpy().tolist(), bodies, [pairs[index] for index in at.tolist()])


def _split(texts: Any) -> list[bytes]:
    """The UTF-8 of every text of an array of large strings without nulls."""
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1].tolist()
    whole = data.to_pybytes()
    return [whole[begin:end] for begin, end in itertools.pairwise(ends)]


def _encoded(array: Any, column: ParquetField, path: Path) -> Any:
    """The column, dictionary-encoded; raises BadInput for a column of another type."""
    import pyarrow as pa

    kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    wanted = {"integer": pa.types.is_integer, "boolean": pa.types.is_boolean}.get(column.form)
    right = wanted(kind) if wanted is not None else pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if not right:
        raise BadInput(f"the column is of type {str(kind)[:80]}", file=path, field=column.name, hint="export the evidence again")
    return array if pa.types.is_dictionary(array.type) else array.dictionary_encode()


def _text(encoded: Any, before: str, path: Path, column: ParquetField) -> Any:
    """The field of each record as canonical JSON. An empty cell says the default, or leaves the field out."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = [None if value is None else _json(value, path, column) for value in encoded.dictionary.to_pylist()]
    texts = pa.array([None if value is None else before + value for value in values], pa.large_string())
    taken = texts.take(encoded.indices)
    if taken.null_count:
        if column.needed:
            raise BadInput("is empty", file=path, field=column.name, hint="export the evidence again")
        taken = pc.fill_null(taken, "" if column.default is None else before + column.default)
    return taken


def _json(value: str | int, path: Path, column: ParquetField) -> str:
    most = LARGEST if isinstance(value, int) else LINE_BYTES if column.form == "json" else LONGEST
    if (len(value) if isinstance(value, str) else abs(value)) > most:
        raise BadInput(
            f"has a value that is too large: {brief(value)}", file=path, field=column.name, hint="export the evidence again"
        )
    return str(value) if column.form == "json" else canonical(value).decode()


def _times(array: Any, column: ParquetField, before: str, path: Path) -> list[Any]:
    """The time of each record as canonical JSON. Most times are different, so they are not dictionary-encoded."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if array is None:
        raise BadInput("the column is missing", file=path, field="observed_at", hint="export the evidence again")
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        raise BadInput(f"the column is of type {str(array.type)[:80]}", file=path, field="observed_at", hint="export it again")
    if array.null_count or not pc.all(pc.match_substring_regex(array, _PLAIN), min_count=0).as_py():
        return [_text(array.dictionary_encode(), before, path, column)]
    return [pa.scalar(f'{before}"', pa.large_string()), array.cast(pa.large_string()), pa.scalar('"', pa.large_string())]


AT_ONCE = 10_000
"""Records of JSON lines that are read together."""
_entry = Struct(">xQ32s").pack
"""Packs the zero byte that RFC 6962 puts before a leaf, seq and digest; one call, since there are millions of leaves."""


@dataclass(frozen=True)
class BoundRecords:
    """The records of some files: the seq of each, its digest, and its (kind, epoch, validator)."""

    seqs: list[int] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    heads: list[tuple[str, int, str]] = field(default_factory=list)


def evidence_leaf(seq: int, digest: bytes) -> bytes:
    """The leaf hash of a record."""
    return hashlib.sha256(_entry(seq, digest)).digest()


def evidence_root(seqs: Sequence[int], digests: Sequence[bytes]) -> str:
    """`sha256:…` over the records, which must be in order of acceptance. SPEC 6."""
    return f"sha256:{merkle.root(list(map(evidence_leaf, seqs, digests))).hex()}"


def evidence_files(folder: Path) -> dict[int, Path]:
    """The files `epoch-N.jsonl` or `epoch-N.parquet` of a folder, by N; raises BadInput for another file, or two of one N."""
    files: dict[int, Path] = {}
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise unreadable(folder, error) from None
    for path in paths:
        name, _, kind = path.name.partition(".")
        digits = name.removeprefix("epoch-")
        if (
            kind not in ("jsonl", "parquet")
            or not digits.isascii()
            or not digits.isdigit()
            or name != f"epoch-{int(digits[:16])}"
        ):
            raise BadInput("is not evidence of an epoch", file=path, hint="a bundle holds epoch-N.jsonl or epoch-N.parquet")
        if int(digits) in files:
            raise BadInput(
                f"exists beside {files[int(digits)].name}", file=path, hint="keep the evidence of an epoch in one file"
            )
        files[int(digits)] = path
    return dict(sorted(files.items()))


def read_evidence(path: Path, most: int) -> BoundRecords:
    """Seqs and digests of the records in a file; raises BadInput for a wrong file, and for more than `most` records."""
    bound = BoundRecords()
    if path.suffix == ".parquet" and parquet_rows(path) > most:
        raise BadInput(f"has more than {most} records", file=path, hint="export the evidence again")
    for seqs, bodies, claims in evidence_parts(path):
        bound.seqs.extend(seqs)
        bound.digests.extend([hashlib.sha256(body).digest() for body in bodies])
        bound.heads.extend(claims)
        if len(bound.seqs) > most:
            raise BadInput(f"has more than {most} records", file=path, hint="export the evidence again")
    return bound


def evidence_parts(path: Path) -> Iterator[RecordChunk]:
    """The records in a file of evidence, some at a time, in its order; raises BadInput with file and line."""
    if path.suffix == ".parquet":
        yield from read_parquet(path)
        return
    try:
        with opened(path) as file:
            part = RecordChunk([], [], [])
            for number, line in lines(file, path):
                _add_part(part, line, Place(path, number))
                if len(part.seqs) == AT_ONCE:
                    yield part
                    part = RecordChunk([], [], [])
            yield part
    except OSError as error:
        raise unreadable(path, error) from None


def _add_part(part: RecordChunk, line: bytes, place: Place) -> None:
    value = parse(line, place)
    try:
        parsed = record(value)
    except BadInput as error:
        raise place.put(error) from None
    if parsed.seq is None:
        raise place.refuse("is missing", field="seq", hint="every record of a bundle has it")
    part.seqs.append(parsed.seq)
    part.bodies.append(canonical(parsed.document()))
    part.heads.append((parsed.kind, parsed.epoch, parsed.validator))


def write_lines(path: Path, records: Iterable[tuple[int, bytes]]) -> None:
    """Write records (seq, canonical JSON) to a new file as lines of JSON, `seq` last, and flush it to the disk."""
    import os

    with path.open("xb") as file:
        for seq, body in records:
            file.write(b'%b,"seq":%d}\n' % (body[:-1], seq))
        file.flush()
        os.fsync(file.fileno())
