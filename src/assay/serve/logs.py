"""The logs of trials: what validators hand over, and who may read it, as the scheme releases it. SPEC 7.

    validator    a record, name → SHA-256 of each file  ─▶  is the record its own, and in the ledger?  ─▶  notebook
                 each file that is missing              ─▶  objects/
    participant  ◀─  the trials of a submission, with their files by SHA-256, as far as `[release] logs` allows

Logs are what the agent and the tests of a trial printed, and the work that was kept. No record of evidence names its logs, so
the validator says in a signed request which files belong to which of its records. Of a trial that was judged in the service's
own folder, what was printed is read there. Logs of a hidden task are never released, and its trials are counted here, not listed;
its name and outcomes are public like all evidence. A task whose files are not here counts as hidden.
"""

from __future__ import annotations

import json
import os
import shlex
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import file_digest
from io import BufferedReader
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

from assay.errors import BadInput
from assay.exact import canonical
from assay.judge.run_files import short
from assay.judge.terminal.record import FILE, PRINTED, TrialRecord, end_of, read_record
from assay.judge.terminal.tasks import read_task
from assay.records import Tests, record
from assay.scheme.model import Release
from assay.serve.draw import size
from assay.serve.http import HttpProblem
from assay.serve.links import logs_page, participant_page
from assay.serve.notebook import TrialLogs
from assay.serve.season import Season
from assay.serve.site import ServedCompetition
from assay.settle.story.telling import plural

__all__ = [
    "FILES",
    "LISTED",
    "NAME",
    "ON_A_PAGE",
    "SHA",
    "KeptFile",
    "ReleasedLogs",
    "ReleasedTrial",
    "hand_over",
    "is_hidden",
    "is_said_hidden",
    "log_view",
    "object_file",
    "open_released",
    "policy",
    "released",
    "tail",
]

Json = dict[str, Any]
LISTED = 1000
"""The most trials that one answer lists."""
TAIL_BYTES = 64_000
"""Bytes of the end of a file that an answer shows."""
ON_A_PAGE = 64
"""The most trials of a task that a page shows, and the bytes of the end of a file that it shows."""
ON_A_PAGE_BYTES = 4_000
FILES = 16
"""The most files of one trial."""
NAME = "[a-z0-9][a-z0-9_-]*(\\.[a-z0-9]+)*(/[a-z0-9][a-z0-9_-]*(\\.[a-z0-9]+)*){0,3}"
"""The pattern of a file's name: it is safe as a path below a folder."""
SHA = "[0-9a-f]{64}"


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file of a trial: what it is called, its SHA-256 as 64 hex digits, its bytes, and where it is."""

    name: str
    sha256: str
    size: int
    path: Path


@dataclass(frozen=True, slots=True)
class ReleasedTrial:
    """A trial whose logs a reader may see. message: why it ended in an error."""

    about: Tests
    message: str
    files: tuple[KeptFile, ...]


@dataclass(frozen=True, slots=True)
class ReleasedLogs:
    """The trials of a submission for one reader; hidden: how many more are of hidden tasks; left_out: how many are not listed."""

    trials: tuple[ReleasedTrial, ...]
    hidden: int
    left_out: int


def object_file(folder: Path, sha256: str) -> Path:
    """Return where what has this SHA-256 (64 hex digits) is kept in a competition's folder."""
    return folder / "objects" / sha256[:2] / sha256


# Handing over


def hand_over(served: ServedCompetition, validator: str, entries: Sequence[tuple[Json, dict[str, str]]]) -> list[Json]:
    """Note which files belong to which records of a validator; each entry (record, name → SHA-256) has an outcome of its own.

    `accepted` and `known` are on the disk. `missing` names the objects to be sent first. `refused` says why. Raises StoreError,
    HttpProblem (409 without a ledger).
    """
    store, notebook = served.books()
    parsed = [_own_record(validator, content) for content, _ in entries]
    records = [about for about in parsed if isinstance(about, Tests)]
    with store.reading() as view:
        stored = {about.digest for about, there in zip(records, view.stored(records), strict=True) if there}
    known = notebook.logged([about.digest for about in records])
    outcomes = []
    for about, (_, files) in zip(parsed, entries, strict=True):
        if isinstance(about, BadInput):
            where = f"{about.field}: " if about.field else ""
            outcomes.append(_refused("", where + about.what, about.hint))
        elif about.digest not in stored:
            outcomes.append(_refused(about.digest, "the ledger does not have this record", "send its batch first"))
        else:
            before = known.get(about.digest)
            wanted = dict.fromkeys(files.values()) if before is None or before.files == files else ()
            if missing := [sha for sha in wanted if not object_file(served.folder, sha).is_file()]:
                outcomes.append({"record": about.digest, "outcome": "missing", "missing": missing})
                continue
            logs = TrialLogs(about.digest, about.submission, canonical(about.document()), files)
            noted = before or notebook.log(logs)
            if noted.files != files:
                hint = "the first ones count: --no-logs sends the evidence alone"
                outcomes.append(_refused(about.digest, "other logs of this record were handed over before", hint))
            else:
                outcomes.append({"record": about.digest, "outcome": "known" if before else "accepted"})
    return outcomes


def _own_record(validator: str, content: Json) -> Tests | BadInput:
    try:
        about = record(content)
    except BadInput as error:
        return error
    if not isinstance(about, Tests):
        return BadInput("only trials have logs: records of the kind tests", hint="send the others without logs")
    if about.validator != validator:
        return BadInput("the record is of another validator", hint="a validator hands over the logs of its own trials")
    return about


def _refused(digest: str, detail: str, hint: str) -> Json:
    return {"record": digest, "outcome": "refused", "detail": detail, "hint": hint}


# Reading


def policy(served: ServedCompetition) -> str:
    """Return who may read logs: `own`, `after-epoch` or `never`."""
    return (served.scheme.release or Release()).logs


def released(
    served: ServedCompetition,
    submission: str,
    participant: str | None,
    task: str | None = None,
    *,
    after: int = 0,
    most: int | None,
) -> ReleasedLogs:
    """The trials of a submission (of one task: None for all) for a reader. participant: who asks; None: nobody who signed.

    after: so many are passed over; most: so many are listed (None: all). Raises HttpProblem: 403 if the scheme does not release
    them to this reader, 404 if there are none here; StoreError.
    """
    _, notebook = served.books()
    allowed, hidden = _allowed(served, _trials(served.folder, notebook.logs(submission), submission), participant)
    trials = [trial for trial in allowed if task in (None, trial.about.task)]
    if not trials and (task is not None or not hidden):
        what = f"there are no logs of {submission[:80]} here" + ("" if task is None else f" for the task {task[:80]!r}")
        raise HttpProblem(404, what, hint="validators hand over the logs of what they judged", stage="logs")
    trials.sort(key=lambda trial: (trial.about.task.encode(), trial.about.trial, trial.about.validator.encode()))
    rest = trials[after:]
    listed = tuple(_complete(trial) for trial in rest[:most])
    return ReleasedLogs(listed, hidden, len(rest) - len(listed))


def _allowed(
    served: ServedCompetition, among: Iterable[ReleasedTrial], participant: str | None
) -> tuple[list[ReleasedTrial], int]:
    """The trials that a reader may see, and how many more are of hidden tasks. Raises HttpProblem (403) as `released` does."""
    store, _ = served.books()
    rule = policy(served)
    if rule == "never":
        raise HttpProblem(403, "this competition releases no logs", hint="[release] logs in its scheme says so", stage="release")
    if rule == "own" and participant is None:
        hint = "its participant reads them with assay logs --url ADDRESS --key NAME"
        raise HttpProblem(403, "logs are released to their participant only", hint=hint, stage="release")
    with store.reading() as view:
        settled = view.settled_epoch()
    trials, hidden, later = list[ReleasedTrial](), 0, False
    for trial in among:
        if rule == "own" and trial.about.participant != participant:
            continue
        if rule == "after-epoch" and (settled is None or trial.about.epoch > settled):
            later = True
        elif is_hidden(served.folder, trial.about.task):
            hidden += 1
        else:
            trials.append(trial)
    if later and not trials and not hidden:
        raise HttpProblem(403, "logs are released when their epoch is settled", hint="ask again then", stage="release")
    return trials, hidden


def _trials(folder: Path, sent: Sequence[TrialLogs], submission: str) -> Iterator[ReleasedTrial]:
    """Every trial whose logs were handed over, then those that were judged in the folder alone; without the files' sizes."""
    slots = set()
    for trial in _handed_over(folder, sent):
        slots.add(trial.about.slot)
        yield trial
    for file in sorted((folder / "trials").glob(f"[!.]*/[!.]*@{short(submission)}/[!.]*/*/{FILE}")):
        with suppress(BadInput, OSError):
            trial = _judged_here(file, _stamp(os.stat(file)))
            if trial.about.submission == submission and trial.about.slot not in slots:
                yield trial


def _handed_over(folder: Path, sent: Iterable[TrialLogs]) -> Iterator[ReleasedTrial]:
    for logs in sent:
        about = record(json.loads(logs.body))
        assert isinstance(about, Tests)
        files = (KeptFile(name, sha, -1, object_file(folder, sha)) for name, sha in sorted(logs.files.items()))
        yield ReleasedTrial(about, "", tuple(files))


@lru_cache(maxsize=8192)
def _judged_here(file: Path, stamp: tuple[int, ...]) -> ReleasedTrial:
    """A trial that was judged in the folder. Each file that somebody fetches asks for all of them, so they are read once."""
    judged = read_record(file)
    return ReleasedTrial(
        _record_of(judged), judged.message, tuple(KeptFile(name, "", -1, file.parent / name) for name in PRINTED)
    )


def _record_of(judged: TrialRecord) -> Tests:
    """The evidence that a trial gives; also of one that ended in an error, which is no evidence."""
    fields = {name: getattr(judged, name) for name in TrialRecord.model_fields.keys() & Tests.model_fields.keys()}
    return Tests(kind="tests", observed_at=judged.finished_at, **fields)


def _complete(trial: ReleasedTrial) -> ReleasedTrial:
    """The trial with the sizes and digests of its files; one that is gone is left out."""
    files = []
    for file in trial.files:
        with suppress(OSError):
            status = os.lstat(file.path)
            if stat.S_ISREG(status.st_mode):
                digest = file.sha256 or _sha256(file.path, _stamp(status))
                files.append(KeptFile(file.name, digest, status.st_size, file.path))
    return ReleasedTrial(trial.about, trial.message, tuple(files))


@lru_cache(maxsize=16_384)
def _sha256(path: Path, stamp: tuple[int, ...]) -> str:
    with _opened(path) as file:
        return file_digest(file, "sha256").hexdigest()


def _opened(path: Path) -> BufferedReader:
    return open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")


def tail(file: KeptFile, most: int = TAIL_BYTES) -> str:
    """The end of a file as text; empty if it is gone."""
    return end_of(file.path, most).decode("utf-8", "replace")


def open_released(
    served: ServedCompetition, submission: str, participant: str | None, sha256: str
) -> tuple[BufferedReader, KeptFile]:
    """A released file by its SHA-256, open, of whichever trial. Raises HttpProblem: 403 as `released` does, 404; StoreError."""
    _, notebook = served.books()
    sent = notebook.logs(submission)
    named = [logs for logs in sent if sha256 in logs.files.values()]
    with suppress(HttpProblem):  # what was handed over names its digests: no other trial has to be looked at
        if opened := _open_among(_allowed(served, _handed_over(served.folder, named), participant)[0], sha256):
            return opened
    if opened := _open_among(_allowed(served, _trials(served.folder, sent, submission), participant)[0], sha256):
        return opened
    raise HttpProblem(404, f"no released log has the SHA-256 {sha256}", hint="the list of logs names them", stage="logs")


def _open_among(trials: Iterable[ReleasedTrial], sha256: str) -> tuple[BufferedReader, KeptFile] | None:
    for trial in trials:
        if any(file.sha256 in ("", sha256) for file in trial.files):
            for file in _complete(trial).files:
                if file.sha256 == sha256:
                    with suppress(OSError):
                        return _opened(file.path), file
    return None


# Showing


def log_view(released_logs: ReleasedLogs, season: Season, submission: str, task: str | None) -> Json:
    """The page of the released logs of a submission: which tasks have some, or what the trials of a task printed."""
    address = season.address or ""
    api = f"../v1/{address.rpartition('/')[2]}/submissions/{quote(submission)}/logs"
    command = f"assay logs --url {address} --submission {submission}"
    keys = dict.fromkeys(trial.about.participant for trial in released_logs.trials)
    view: Json = {
        "submission": submission,
        "task": task or "",
        "all": logs_page(submission),
        "json": api if task is None else f"{api}?task={quote(task, safe='')}",
        "who": [(season.name(key), participant_page(key)) if key in season.participants else (key, "") for key in keys],
        "command": f"{command} --json" if task is None else f"{command} --task {shlex.quote(task)} --json",
        "hidden": plural(released_logs.hidden, "more trial") if released_logs.hidden else "",
        "left_out": plural(released_logs.left_out, "more trial") if released_logs.left_out else "",
        "trials": [],
        "tasks": [],
    }
    if task is None:
        view["tasks"] = [*_tasks(released_logs, submission)]
    else:
        view["trials"] = [_shown(trial, season, api) for trial in released_logs.trials]
    return view


def _tasks(released_logs: ReleasedLogs, submission: str) -> Iterator[Json]:
    for name, group in groupby(released_logs.trials, key=lambda trial: trial.about.task):
        trials = [*group]
        outcomes = Counter(trial.about.outcome for trial in trials)
        yield {
            "task": name,
            "href": logs_page(submission, name),
            "outcomes": ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())),
            "size": size(sum(file.size for trial in trials for file in trial.files)),
        }


def _shown(trial: ReleasedTrial, season: Season, files: str) -> Json:
    about = trial.about
    shown = []
    for file in trial.files:
        text = tail(file, ON_A_PAGE_BYTES) if file.name.endswith(".txt") else ""
        row = {"name": file.name, "size": size(file.size), "href": f"{files}/{file.sha256}", "text": text}
        shown.append(row | {"cut": file.size > ON_A_PAGE_BYTES, "open": file.name == PRINTED[0]})
    return {
        "outcome": about.outcome,
        "trial": about.trial,
        "epoch": about.epoch,
        "validator": season.called.get(about.validator, about.validator),
        "message": trial.message,
        "files": [row for row in shown if row["size"] != size(0)],
    }


# Hidden tasks


def is_hidden(folder: Path, task: str) -> bool:
    """Whether a task is hidden. One whose files are not here, or whose id is no path, is."""
    if "/" in task or task in (".", ".."):
        return True
    try:
        return _says_hidden(folder / "tasks" / task)
    except (BadInput, OSError, ValueError):
        return True


def is_said_hidden(folder: Path, task: str) -> bool:
    """Whether the files of a task say that it is hidden; False if they are not here: the name of a task is in tasks.txt."""
    if "/" in task:
        return True
    return bool(task) and os.path.isdir(folder / "tasks" / task) and is_hidden(folder, task)


def _says_hidden(place: Path) -> bool:
    return _read_hidden(place, _stamp(os.stat(place / "task.toml")))


@lru_cache(maxsize=4096)
def _read_hidden(place: Path, stamp: tuple[int, ...]) -> bool:
    return read_task(place).settings.metadata.assay.hidden


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return status.st_mtime_ns, status.st_size, status.st_ino
