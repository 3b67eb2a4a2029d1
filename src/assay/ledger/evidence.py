"""The evidence that a receipt binds: its Merkle root, and the files of a bundle that it is in. SPEC 3.0, 6.

A leaf is a record's `seq` (8 bytes, big endian) and its digest (32 bytes), in order of acceptance: the root binds which of two
records was first. Files are read as a stranger's: whatever is in them, the answer is records or BadInput.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct

from assay.errors import BadInput
from assay.exact import canonical
from assay.folder.evidence import lines, parse
from assay.folder.places import Place
from assay.folder.text import opened, unreadable
from assay.ledger import merkle, parquet
from assay.ledger.parquet import Part
from assay.records import record

__all__ = ["Held", "files", "held", "leaf", "parts", "root", "write_lines"]

AT_ONCE = 10_000
"""Records that are looked at together."""
_entry = Struct(">xQ32s").pack
"""The zero byte that RFC 6962 puts before a leaf, seq, digest: by one call, since there are millions."""


@dataclass(frozen=True)
class Held:
    """The records of some files: where each stands in the order of acceptance, its digest, and (kind, epoch, validator)."""

    seqs: list[int] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    said: list[tuple[str, int, str]] = field(default_factory=list)


def leaf(seq: int, digest: bytes) -> bytes:
    """The leaf hash of a record."""
    return hashlib.sha256(_entry(seq, digest)).digest()


def root(seqs: Sequence[int], digests: Sequence[bytes]) -> str:
    """`sha256:…` over the records, which must stand in order of acceptance. SPEC 6."""
    return f"sha256:{merkle.root(list(map(leaf, seqs, digests))).hex()}"


def files(folder: Path) -> dict[int, Path]:
    """The files `epoch-N.jsonl` or `epoch-N.parquet` of a folder, by N; raises BadInput for others, and both of one N."""
    found: dict[int, Path] = {}
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
        if int(digits) in found:
            raise BadInput(
                f"stands beside {found[int(digits)].name}", file=path, hint="keep the evidence of an epoch in one file"
            )
        found[int(digits)] = path
    return dict(sorted(found.items()))


def held(path: Path, most: int) -> Held:
    """What a file holds, without the records themselves; raises BadInput for what is wrong with it, and for more than `most`."""
    found = Held()
    if path.suffix == ".parquet" and parquet.rows(path) > most:
        raise BadInput(f"has more than {most} records", file=path, hint="export the evidence again")
    for seqs, bodies, said in parts(path):
        found.seqs.extend(seqs)
        found.digests.extend([hashlib.sha256(body).digest() for body in bodies])
        found.said.extend(said)
        if len(found.seqs) > most:
            raise BadInput(f"has more than {most} records", file=path, hint="export the evidence again")
    return found


def parts(path: Path) -> Iterator[Part]:
    """The records in a file, some at a time, in its order; raises BadInput with file and line."""
    if path.suffix == ".parquet":
        yield from parquet.read(path)
        return
    try:
        with opened(path) as file:
            part = Part([], [], [])
            for number, line in lines(file, path):
                _add(part, line, Place(path, number))
                if len(part.seqs) == AT_ONCE:
                    yield part
                    part = Part([], [], [])
            yield part
    except OSError as error:
        raise unreadable(path, error) from None


def _add(part: Part, line: bytes, place: Place) -> None:
    value = parse(line, place)
    try:
        one = record(value)
    except BadInput as error:
        raise place.put(error) from None
    if one.seq is None:
        raise place.refuse("is missing", field="seq", hint="a bundle has it in every record")
    part.seqs.append(one.seq)
    part.bodies.append(canonical(one.document()))
    part.said.append((one.kind, one.epoch, one.validator))


def write_lines(path: Path, records: Iterable[tuple[int, bytes]]) -> None:
    """Write records (seq, canonical JSON) to a new file as lines of JSON, `seq` last, and flush it to the disk."""
    import os

    with path.open("xb") as file:
        for seq, body in records:
            file.write(b'%b,"seq":%d}\n' % (body[:-1], seq))
        file.flush()
        os.fsync(file.fileno())
