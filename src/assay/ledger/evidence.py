"""Write and read a bundle's evidence, as JSON lines or Parquet, and compute the root that a receipt binds. SPEC 3.0, 6, 7.

Parquet holds evidence of kind tests, and needs pyarrow (the extra `bulk`). Reading it gives the bytes that `Record.digest`
hashes: a record's canonical JSON is a template for the columns, and each distinct value is escaped once by the encoder of
canonical JSON.

A leaf of the root is a record's `seq` (8 bytes, big endian) and its digest (32 bytes), in order of acceptance. So the root binds
which of two records was first.

Files may come from strangers. Whatever is in them, reading gives records, or raises BadInput; bytes that are not a record have a
digest that no receipt names.
"""

from __future__ import annotations

import hashlib
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

from assay.errors import BadInput, brief
from assay.exact import LARGEST, canonical
from assay.folder.evidence import lines, parse
from assay.folder.files import Place, unreadable
from assay.ledger import merkle
from assay.records import record
from assay.scheme.reading import check_file, opened

PARQUET_COLUMNS = ("seq", "epoch", "validator", "participant", "submission", "task", "outcome", "trial", "observed_at", "image")
"""The columns that are written, in this order."""
PARQUET_ROWS = 65_536
"""Records of one row group, written together."""
PARQUET_AT_ONCE = 8_192
"""Records that are read together: few enough that their bytes stay in the processor's cache."""
LONGEST = 4_096
"""The most characters of a value: more than any field of a record may have."""
ROOM = 2**24
"""Bytes that a row group may have beside `LONGEST` characters of each record."""
_NUMBERS = frozenset({"seq", "epoch", "trial"})
_PLAIN = r"^[0-9A-Za-z:.+-]*$"
"""A text that needs no escape in JSON."""


class RecordChunk(NamedTuple):
    """Some records: their seqs, their canonical JSON, and the (kind, epoch, validator) of each."""

    seqs: list[int]
    bodies: list[bytes]
    said: list[tuple[str, int, str]]


def write_parquet(path: Path, records: Iterable[tuple[int, bytes]]) -> int:
    """Write records (seq, canonical JSON) to a new Parquet file and flush it to the disk; returns how many."""
    import pyarrow.parquet as pq

    count, held = 0, list[tuple[int, bytes]]()
    with path.open("xb") as file:
        with pq.ParquetWriter(file, _schema(), compression="zstd") as writer:
            for pair in records:
                held.append(pair)
                count += 1
                if len(held) == PARQUET_ROWS:
                    writer.write_table(_table(held))
                    held = []
            if held or not count:
                writer.write_table(_table(held))
        _flush(file)
    return count


def _flush(file: Any) -> None:
    import os

    file.flush()
    os.fsync(file.fileno())


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema([(name, pa.int64() if name in _NUMBERS else pa.string()) for name in PARQUET_COLUMNS])


def _table(records: Sequence[tuple[int, bytes]]) -> Any:
    import pyarrow as pa
    import pyarrow.json as pj

    schema = _schema()
    if not records:
        return schema.empty_table()
    lines = b"\n".join(body for _, body in records)
    inner = pa.schema([*(field for field in schema if field.name != "seq"), ("kind", pa.string())])
    options = pj.ParseOptions(explicit_schema=inner, unexpected_field_behavior="error")
    block = pj.ReadOptions(block_size=len(lines) + 1)
    table = pj.read_json(io.BytesIO(lines), read_options=block, parse_options=options)
    return table.append_column("seq", pa.array([seq for seq, _ in records], pa.int64())).select(list(PARQUET_COLUMNS))


def parquet_rows(path: Path) -> int:
    """How many records a Parquet file has by its footer; raises BadInput for another file."""
    with _opened(path) as file:
        count: int = file.metadata.num_rows
        return count


def read_parquet(path: Path) -> Iterator[RecordChunk]:
    """The records of a Parquet file in its order, some at a time; raises BadInput for a wrong file, column or value."""
    import pyarrow as pa

    with _opened(path) as file:
        names = file.schema_arrow.names
        for name in PARQUET_COLUMNS:
            if names.count(name) != 1 and (name not in ("trial", "observed_at", "image") or name in names):
                raise BadInput("the column is missing, or occurs twice", file=path, field=name, hint="export the evidence again")
        columns = [name for name in PARQUET_COLUMNS if name in names]
        try:
            for batch in file.iter_batches(batch_size=PARQUET_AT_ONCE, columns=columns):
                yield _part({name: batch.column(name) for name in columns}, len(batch), path)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _unreadable(path, error) from None


def _opened(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        check_file(path)
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    _check_sizes(file.metadata, path)
    return file


def _check_sizes(metadata: Any, path: Path) -> None:
    """Raise BadInput for rows larger than records can be: a few kB of a compressed page may expand to gigabytes.

    The metadata of single columns is not read, because pyarrow ends the process if it is missing.
    """
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        if group.total_byte_size > ROOM + group.num_rows * LONGEST * 4:
            raise BadInput("has rows that are larger than records can be", file=path, hint="export the evidence again")


def _unreadable(path: Path, error: Exception) -> BadInput:
    return BadInput(f"is not readable Parquet ({str(error).partition(chr(10))[0][:200]})", file=path, hint="export it again")


def _part(columns: dict[str, Any], count: int, path: Path) -> RecordChunk:
    import pyarrow as pa
    import pyarrow.compute as pc

    encoded = {name: _encoded(array, name, path) for name, array in columns.items() if name != "observed_at"}
    pieces = [
        _text(encoded["epoch"], '{"epoch":', path, "epoch"),
        _text(encoded["image"], ',"image":', path, "image") if "image" in encoded else None,
        *_times(columns.get("observed_at"), count, path),
        _text(encoded["outcome"], ',"outcome":', path, "outcome"),
        _text(encoded["participant"], ',"participant":', path, "participant"),
        _text(encoded["submission"], ',"submission":', path, "submission"),
        _text(encoded["task"], ',"task":', path, "task"),
        _text(encoded["trial"], ',"trial":', path, "trial") if "trial" in encoded else pa.scalar(',"trial":1', pa.large_string()),
        _text(encoded["validator"], ',"validator":', path, "validator"),
        pa.scalar("}", pa.large_string()),
    ]
    joined = pc.binary_join_element_wise(*(piece for piece in pieces if piece is not None), pa.scalar("", pa.large_string()))
    if columns["seq"].null_count or pc.any(pc.less(columns["seq"], 0), min_count=0).as_py():
        raise BadInput("is empty, or below 0", file=path, field="seq", hint="export the evidence again")
    epochs, validators = (encoded[name].dictionary.to_pylist() for name in ("epoch", "validator"))
    pairs = [("tests", epoch, validator) for epoch in epochs for validator in validators]
    at = encoded["epoch"].indices.to_numpy().astype("int64") * len(validators) + encoded["validator"].indices.to_numpy()
    return RecordChunk(columns["seq"].to_numpy().tolist(), _split(joined), [pairs[index] for index in at.tolist()])


def _split(texts: Any) -> list[bytes]:
    """The UTF-8 of every text of an array of large strings without nulls."""
    import numpy as np

    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1].tolist()
    whole = data.to_pybytes()
    return [whole[begin:end] for begin, end in itertools.pairwise(ends)]


def _encoded(array: Any, name: str, path: Path) -> Any:
    """The column, dictionary-encoded; raises BadInput for a column of another type."""
    import pyarrow as pa

    kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    right = pa.types.is_integer(kind) if name in _NUMBERS else pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if not right:
        raise BadInput(f"the column is of type {str(kind)[:80]}", file=path, field=name, hint="export the evidence again")
    return array if pa.types.is_dictionary(array.type) else array.dictionary_encode()


def _text(encoded: Any, before: str, path: Path, name: str) -> Any:
    """The field of each record as canonical JSON; an empty image is left out, an empty trial is the first."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = [None if value is None else _json(value, path, name) for value in encoded.dictionary.to_pylist()]
    texts = pa.array([None if value is None else before + value for value in values], pa.large_string())
    taken = texts.take(encoded.indices)
    if taken.null_count:
        otherwise = {"image": "", "trial": ',"trial":1'}.get(name)
        if otherwise is None:
            raise BadInput("is empty", file=path, field=name, hint="export the evidence again")
        taken = pc.fill_null(taken, otherwise)
    return taken


def _json(value: str | int, path: Path, name: str) -> str:
    if (len(value) if isinstance(value, str) else abs(value)) > (LONGEST if isinstance(value, str) else LARGEST):
        raise BadInput(f"has a value that is too large: {brief(value)}", file=path, field=name, hint="export the evidence again")
    return canonical(value).decode()


def _times(array: Any, count: int, path: Path) -> list[Any]:
    """Kind and time of each record as canonical JSON. Most times are different, so they are not dictionary-encoded."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if array is None:
        raise BadInput("the column is missing", file=path, field="observed_at", hint="export the evidence again")
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        raise BadInput(f"the column is of type {str(array.type)[:80]}", file=path, field="observed_at", hint="export it again")
    before = ',"kind":"tests","observed_at":'
    if array.null_count or not pc.all(pc.match_substring_regex(array, _PLAIN), min_count=0).as_py():
        return [_text(array.dictionary_encode(), before, path, "observed_at")]
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
    said: list[tuple[str, int, str]] = field(default_factory=list)


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
        bound.said.extend(claims)
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
    part.said.append((parsed.kind, parsed.epoch, parsed.validator))


def write_lines(path: Path, records: Iterable[tuple[int, bytes]]) -> None:
    """Write records (seq, canonical JSON) to a new file as lines of JSON, `seq` last, and flush it to the disk."""
    import os

    with path.open("xb") as file:
        for seq, body in records:
            file.write(b'%b,"seq":%d}\n' % (body[:-1], seq))
        file.flush()
        os.fsync(file.fileno())
