"""The files with which a validator's copy of a competition's folder judges as the operator's folder does.

    scheme.toml · participants.csv · validators.csv · tasks.txt · …  ─▶  FolderFiles: the texts, and one digest of them

`participants.csv` is the operator's, with what the ledger knows filled in: a submission that the folder does not name, and, if
`assign` draws validators, the epoch in which a submission was accepted. So all validators draw the same. `ledger.toml` names only
the log and its key: where the operator's database is, and which key file signs, stays with the operator.
"""

from __future__ import annotations

import csv
import io
import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field

from assay.exact import canonical, digest
from assay.folder import csvs
from assay.folder.files import TABLE_BYTES, decode, load, stamp
from assay.ledger import config
from assay.records import Participant
from assay.scheme.reading import present
from assay.serve.answers import DIGEST, described
from assay.serve.site import ServedCompetition

if TYPE_CHECKING:
    from assay.ledger.store import Submission
    from assay.scheme.model import Scheme

__all__ = ["FolderDesk", "FolderFiles", "ValidatorFolder", "additions"]

Cells = Mapping[str, dict[str, str]]
"""Participant → column of participants.csv → the cell that the ledger knows."""


class ValidatorFolder(BaseModel):
    """The files of a validator's copy of the folder, beside tasks and submissions; `digest` is over `files`."""

    model_config = described(
        {"digest": DIGEST, "files": {"scheme.toml": '[scheme]\nname = "term-challenge"\n', "participants.csv": "key\natlas\n"}}
    )

    digest: Annotated[str, Field(description="The digest of the canonical JSON of `files`; `work` names it as `folder`")]
    files: Annotated[dict[str, str], Field(description="Name → text")]


@dataclass(frozen=True)
class FolderFiles:
    """The texts by file name, and the digest of them."""

    digest: str
    files: Mapping[str, str]

    @property
    def document(self) -> dict[str, Any]:
        """The answer of the API."""
        return {"digest": self.digest, "files": dict(self.files)}


class FolderDesk:
    """Hands out the files of one competition; reads them again when one has changed. Threads share it."""

    def __init__(self, served: ServedCompetition) -> None:
        self._served, self._lock = served, threading.Lock()
        self._known: tuple[object, FolderFiles] | None = None

    def files(self, scheme: Scheme, added: Cells, held: Sequence[Mapping[str, str]] | None = None) -> FolderFiles:
        """Return the files. Raises BadInput.

        added: what the ledger knows beside participants.csv. held: rows of what is held back; None where nothing ever is.
        """
        folder = self._served.folder
        names = _names(folder, scheme)
        state = (*(stamp(folder / name) for name in (*names, config.FILE)), canonical(added), held and canonical([*held]))
        with self._lock:
            if self._known is None or self._known[0] != state:
                texts = {name: _text(self._served, name) for name in names if present(folder / name)}
                texts[csvs.PARTICIPANTS.name] = _completed(texts[csvs.PARTICIPANTS.name], added)
                texts[config.FILE] = _public_ledger(self._served)
                if held is not None:
                    texts[csvs.HELD.name] = csvs.dumped(csvs.HELD.columns, held).decode()
                self._known = (state, FolderFiles(digest(texts), texts))
            return self._known[1]


def additions(
    people: Iterable[Participant], here: Iterable[Participant], latest: Mapping[str, Submission], first: Mapping[str, int] | None
) -> Cells:
    """Return what the ledger knows beside the folder's participants.csv.

    people: as the folder has them; here: the same, as the ledger completes them. first: submission → the epoch in which it was
    accepted, if that is settled and validators are drawn; None if nobody is drawn.
    """
    added: dict[str, dict[str, str]] = {}
    for person, known in zip(people, here, strict=True):
        cells: dict[str, str] = {}
        if person.submission != known.submission:
            cells = {"submission": known.submission, "submitted_at": latest[person.key].submitted_at}
        if first is not None and person.accepted_epoch is None and known.submission in first:
            cells["accepted_epoch"] = str(first[known.submission])
        if cells:
            added[person.key] = cells
    return added


def _names(folder: Path, scheme: Scheme) -> list[str]:
    kind = scheme.kind
    names = ["scheme.toml", *filter(None, [kind.beside]), csvs.PARTICIPANTS.name, csvs.VALIDATORS.name, csvs.RANDOMNESS.name]
    return [*names, *(["tasks.txt"] if kind.has_tasks(folder, scheme.score) else []), *kind.shared]


def _text(served: ServedCompetition, name: str) -> str:
    file = served.folder / name
    return decode(load(file, TABLE_BYTES, hint="put it back"), file)


def _completed(text: str, added: Cells) -> str:
    """The text of participants.csv with further cells; unchanged if there are none."""
    if not added:
        return text
    header, *rows = ([cell.strip(" \t") for cell in row] for row in csv.reader(io.StringIO(text, newline="")) if any(row))
    columns = [*header, *sorted({name for cells in added.values() for name in cells} - {*header})]
    listed = (dict(zip(header, row, strict=True)) for row in rows)
    return csvs.dumped(columns, (row | added.get(row["key"], {}) for row in listed)).decode()


def _public_ledger(served: ServedCompetition) -> str:
    """ledger.toml without what is the operator's own."""
    settings = config.read(served.folder)
    rows = (("origin", settings.origin), ("key", settings.key))
    return "".join(f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in rows)
