"""Read the records of epochs whose bodies were dropped, where they are now: in an archive.

The table `archived` has a row for each such receipt: a statement that the log's key signed, which names the archive, its files of
the receipt's epochs with their digests, the receipt, and its checkpoint.

    {"origin":"…","first":4,"epoch":5,"receipt":"sha256:…","checkpoint":"…","records":1200,"place":"s3://b/archive",
     "files":[{"path":"small/epoch-5/epoch-5.parquet","size":31415,"digest":"sha256:…"}, …]}

If the archive has moved, ledger.toml says where it is: `archive = "PLACE"`. What is read is compared with the digest that the
ledger keeps of each record, so an archive that was changed is refused.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from assay.errors import BadInput, Refused, Unreachable
from assay.folder.places import open_place
from assay.ledger import check
from assay.ledger.check import CheckError, LogKey
from assay.ledger.store.engine import RESTORE, Archived, Damaged
from assay.ledger.store.tables import StoredArchived, archived, meta, records

__all__ = ["PLACE", "PREDICATE", "ArchivedEpoch", "ArchivedFile", "bodies", "entries", "file_digest"]

PREDICATE = "assay:archived/v1"
PLACE = "assay_archive"
"""The option of a database's connections that says where the archives are now."""
_TEXT = r"(?s).{1,65536}"
_SHAPE = {
    "_type": check.STATEMENT,
    "subject": [object],
    "predicateType": PREDICATE,
    "predicate": {
        "origin": check.WORD,
        "first": int,
        "epoch": int,
        "receipt": check.DIGEST,
        "checkpoint": _TEXT,
        "records": int,
        "place": _TEXT,
        "files": [{"path": _TEXT, "size": int, "digest": check.DIGEST}],
    },
}
_STATEMENT_BYTES = 2**20
_EPOCHS = 2
"""Archived epochs that are kept in memory: records of two epochs may have been accepted in turns."""


@dataclass(frozen=True)
class ArchivedFile:
    """A file of an archive: its path below the archive, its bytes, and its digest."""

    path: str
    size: int
    digest: str


@dataclass(frozen=True)
class ArchivedEpoch:
    """The place of a receipt's records: those of the epochs `first` … `epoch`."""

    first: int
    epoch: int
    receipt: str
    checkpoint: str
    records: int
    place: str
    files: tuple[ArchivedFile, ...]

    @property
    def evidence(self) -> ArchivedFile:
        """The file with the records."""
        names = {f"epoch-{self.epoch}.{end}" for end in ("parquet", "jsonl")}
        return next(file for file in self.files if file.path.rpartition("/")[2] in names)


def entries(connection: Connection) -> list[ArchivedEpoch]:
    """The archived epochs, by epoch; raises Damaged for a row that the log's key did not sign."""
    rows = [StoredArchived(*row) for row in connection.execute(select(archived).order_by(archived.c.epoch))]
    if not rows:
        return []
    key = LogKey.parse(str(connection.scalar(select(meta.c.value).where(meta.c.key == "key"))))
    return [_entry(row, key) for row in rows]


def _entry(row: StoredArchived, key: LogKey) -> ArchivedEpoch:
    what = f"the row that says where the records of epoch {row.epoch} are is not what the log's key signed"
    try:
        parsed = check.Envelope.parse(check.parse_json(row.envelope, "batch", _STATEMENT_BYTES), "batch")
        check.check_envelope(parsed, [key], "batch")
        statement: dict[str, Any] = check.parse_json(parsed.payload, "batch", _STATEMENT_BYTES)
        misfit = check.misfit(statement, _SHAPE)
    except (CheckError, TypeError) as error:
        raise Damaged(f"{what} ({error})", hint=RESTORE) from None
    stated = {} if misfit else dict(statement["predicate"])
    if (stated.pop("origin", None), stated.get("first"), stated.get("epoch")) != (key.name, row.first, row.epoch):
        raise Damaged(what, hint=RESTORE)
    return ArchivedEpoch(**stated | {"files": tuple(ArchivedFile(**file) for file in stated["files"])})


def bodies(connection: Connection, seq: int) -> Mapping[int, bytes]:
    """Seq → body of the records with which this one is archived. Raises Damaged if it is not, and Archived."""
    epoch = connection.scalar(select(records.c.epoch).where(records.c.seq == seq)) or 0
    entry = next((entry for entry in entries(connection) if entry.first <= epoch <= entry.epoch), None)
    if entry is None:
        raise Damaged(f"record {seq} has no body, and its epoch {epoch} is in no archive", hint=RESTORE)
    moved: str | None = connection.get_execution_options().get(PLACE)
    place = moved or entry.place
    try:
        return _bodies(place, entry.evidence)
    except (BadInput, Refused, Unreachable) as error:
        hint = 'bring the archive back there; if it has moved, write archive = "PLACE" into ledger.toml'
        what = f"the records of epoch {entry.epoch} are in the archive {place}, which cannot be read ({error})"
        raise Archived(what, hint=hint) from None


@lru_cache(maxsize=_EPOCHS)
def _bodies(where: str, file: ArchivedFile) -> Mapping[int, bytes]:

    place = open_place(where)
    listed = next((each for each in place.files(file.path.rpartition("/")[0]) if each.path == file.path), None)
    if listed is None:
        raise BadInput("no such file", file=file.path)
    with tempfile.TemporaryDirectory(prefix="assay-archive-") as cache:
        path = place.fetch(listed, Path(cache))
        if file_digest(path) != file.digest:
            raise BadInput("was changed: its digest differs", file=file.path)
        return dict(_pairs(path))


def _pairs(path: Path) -> Iterator[tuple[int, bytes]]:
    from assay.ledger.evidence import evidence_parts

    for part in evidence_parts(path):
        yield from zip(part.seqs, part.bodies, strict=True)


def file_digest(path: Path) -> str:
    """The digest of a file, `sha256:…`."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
