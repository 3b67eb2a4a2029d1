"""Moves the logs of trials between a folder and a service: a validator hands them over, and a participant fetches them.

    records ─▶ files with their SHA-256 ─POST logs─▶ which are missing? ─PUT objects─▶ POST logs again ─▶ accepted
    list of trials ─▶ FOLDER/task/trial/validator/file, each checked against the SHA-256 that the list names

Nothing is moved twice: the same call again continues where an earlier one broke off. A folder of kept work goes as a tar.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import file_digest, sha256
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from assay.errors import AssayError, BadInput, Refused, Unreachable, printable
from assay.folder.files import write_bytes
from assay.judge.run_files import segment
from assay.kind import find
from assay.records import Evidence
from assay.serve.client import Client, patiently
from assay.serve.downloads import tar_of
from assay.serve.http import JSON
from assay.serve.logs import NAME, SHA
from assay.serve.public import OCTETS
from assay.serve.work import LOGS_AT_ONCE, LogsOutcome, LogsOutcomes

__all__ = ["LogsSent", "fetch_logs", "send_logs"]

Json = dict[str, Any]
LOG_BYTES = 256 * 2**20
"""Bytes of a file that is fetched."""


@dataclass
class LogsSent:
    """The outcome of sending the logs of trials: the number that is new at the service, the number it had, reasons of refusal."""

    new: int = 0
    known: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    left_out: list[str] = field(default_factory=list)
    """Folders that cannot be handed over, and why."""


def send_logs(client: Client, folder: Path, records: Iterable[Evidence], sent: LogsSent) -> None:
    """Hand over what the folder keeps of the trials that these records are about; `sent` counts.

    Raises Unreachable, and BadInput if the service refuses the request.
    """
    entries = (entry for record in records if (entry := _entry(folder, record, sent)) is not None)
    while group := list(islice(entries, LOGS_AT_ONCE)):
        outcomes = _asked(client, group)
        again = []
        for entry, outcome in zip(group, outcomes, strict=True):
            if outcome.outcome == "missing":
                _send_objects(client, entry, outcome.missing)
                again.append(entry)
            _count(sent, outcome)
        for outcome in _asked(client, again) if again else ():
            _count(sent, outcome)
            if outcome.outcome == "missing":
                raise Unreachable("the service has not stored what was sent to it", hint="send it again; tell its operator")


@dataclass(frozen=True)
class _RecordFiles:
    """A record, and name → where its file (or folder, sent as a tar) is, with its SHA-256."""

    record: Json
    files: dict[str, tuple[Path, str]]


def _entry(folder: Path, record: Evidence, sent: LogsSent) -> _RecordFiles | None:
    """The files that are kept of a record's trial; None if there are none. Empty files are left out."""
    files = {}
    for name, path in sorted(find(record.kind).kept(folder, record).items()):
        try:
            with _as_file(path) as file, file.open("rb") as opened:
                if file.stat().st_size:
                    files[f"{name}.tar" if file != path else name] = path, file_digest(opened, "sha256").hexdigest()
        except (AssayError, OSError) as error:
            sent.left_out.append(f"{path}: {error}")
    return _RecordFiles(record.document(), files) if files else None


@contextmanager
def _as_file(path: Path) -> Iterator[Path]:
    """The file itself; of a folder a tar, the same bytes for the same files, which is removed again."""
    if not path.is_dir():
        yield path
        return
    with TemporaryDirectory(prefix="assay-logs-") as place:
        tar = Path(place) / "kept.tar"
        tar_of(tar, [("", path)])
        yield tar


def _asked(client: Client, entries: Sequence[_RecordFiles]) -> list[LogsOutcome]:
    """Say which files belong to which records, and return what the service says to each."""
    rows = [{"record": entry.record, "files": {name: sha for name, (_, sha) in entry.files.items()}} for entry in entries]
    body = json.dumps({"logs": rows}).encode()
    try:
        outcomes = LogsOutcomes.model_validate(patiently(lambda: client.send("POST", "logs", body, JSON))).logs
    except ValueError:
        outcomes = []
    if len(outcomes) != len(entries):
        what = f"the service did not say what became of the logs of {len(entries)} trials"
        raise Unreachable(what, final=True, hint="is it a service of this version? --no-logs sends the evidence alone")
    return outcomes


def _send_objects(client: Client, entry: _RecordFiles, missing: Sequence[str]) -> None:
    for path, sha in entry.files.values():
        if sha in missing:
            with _as_file(path) as file:
                data = file.read_bytes()
            patiently(partial(client.send, "PUT", f"objects/{sha}", data, OCTETS))


def _count(sent: LogsSent, outcome: LogsOutcome) -> None:
    if outcome.outcome == "accepted":
        sent.new += 1
    elif outcome.outcome == "known":
        sent.known += 1
    elif outcome.outcome == "refused":
        why = f"{outcome.detail}; {outcome.hint}" if outcome.hint else outcome.detail
        sent.refused[printable(why)] += 1


def fetch_logs(client: Client, listed: Json, folder: Path) -> tuple[list[Path], int]:
    """Fetch every file of a list of logs, as the service answers it, into a folder; return the files, and how many are new.

    Raises Unreachable; Refused for a file with another digest than the list names; BadInput if a file cannot be written, or the
    list names one that would be outside of the folder.
    """
    files, new = list[Path](), 0
    for trial in listed["trials"]:
        place = folder / segment(trial["task"]) / str(int(trial["trial"])) / segment(trial["validator"])
        for row in trial["files"]:
            name, sha = str(row["name"]), str(row["sha256"])
            if re.fullmatch(NAME, name) is None or re.fullmatch(SHA, sha) is None:
                raise BadInput(f"the service names a file {name[:80]!r}", hint="is it a service of this version?")
            path = place / name
            if not path.is_file() or sha256(path.read_bytes()).hexdigest() != sha:
                data = patiently(partial(client.download, f"submissions/{listed['submission']}/logs/{sha}", LOG_BYTES))
                if (actual := sha256(data).hexdigest()) != sha:
                    raise Refused("logs", f"{name} is another file than the service lists", expected=sha, found=actual)
                try:
                    path.parent.mkdir(parents=True, exist_ok=True)
                except OSError as error:
                    what = f"cannot be made ({error.strerror})"
                    raise BadInput(what, file=path.parent, hint="choose another folder with -o") from None
                write_bytes(path, data)
                new += 1
            files.append(path)
    return files, new
