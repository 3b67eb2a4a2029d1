"""How far a participant's submissions are, and the logs of their trials as far as the scheme releases them. SPEC 7.

A submission is `received`, `being-judged` (a validator's heartbeat names it), `judged` (the ledger has evidence about it) or
`scored` (the last settled epoch has an agreed score for it). One that another submission took the place of is `replaced`; a
sealed one stays `received` here.

Logs are what the agent and the tests of a trial printed. Those of a hidden task are never released, and a task whose files are
not here counts as hidden.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from assay.errors import BadInput
from assay.judge import submitting
from assay.judge.run_files import short
from assay.judge.terminal.record import FILE, TrialRecord, read_record
from assay.judge.terminal.tasks import read_task
from assay.ledger.intake import open_epoch
from assay.ledger.store import Store
from assay.scheme.model import Release, SubmissionRules
from assay.serve.http import HttpProblem
from assay.serve.notebook import Upload
from assay.serve.site import ServedCompetition, now

__all__ = ["LISTED", "Progress", "released_logs"]

Json = dict[str, Any]
SILENT = timedelta(seconds=90)
"""A validator that said nothing for so long is judging nothing."""
LISTED = 1000
"""The most submissions, and the most trials, that one answer lists."""
LOOKED_UP = 10
"""Submissions of a participant, the newest that count, for which one answer looks into the ledger."""
PRINTED = 64_000
"""Bytes of each file of a log, from its end."""
_FILES = ("agent/stdout.txt", "agent/stderr.txt", "tests/stdout.txt", "tests/stderr.txt")


@dataclass(frozen=True)
class _Known:
    """What the last settled epoch was about."""

    epoch: int | None
    settled: dict[str, str] = field(default_factory=dict)
    """Participant → its submission."""
    scores: dict[str, str] = field(default_factory=dict)
    """Participant → its agreed score."""


class Progress:
    """Tells how far submissions are. It remembers what the last settled epoch was about; threads share it."""

    def __init__(self) -> None:
        self._lock, self._known = threading.Lock(), dict[str, _Known]()

    def submissions(self, served: ServedCompetition, participant: str) -> Json:
        """A participant's uploads, newest first, and commitments, with the rules that count for the next one.

        Raises HttpProblem (409) without a ledger, and StoreError.
        """
        desk, notebook = served.books()
        rules = served.scheme.submission or SubmissionRules()
        uploads = notebook.uploads(participant, last=LISTED)
        current = submitting.find(served.folder, participant).submission
        known = self._read(served, desk)
        judging = self._judging(served)
        kept = dict.fromkeys(upload.submission for upload in uploads if _is_current(upload, current))
        judged = {
            submission for submission in [*kept][:LOOKED_UP] if _has_evidence(served, desk, participant, submission, known.epoch)
        }
        rows = [_row(upload, current, known, judging, judged) for upload in uploads]
        commitments = [
            {"digest": made.digest, "epoch": made.epoch, "at": made.at} for made in notebook.commitments(participant, last=LISTED)
        ]
        return {
            "participant": participant,
            "epoch": open_epoch(desk),
            "per_epoch": rules.per_epoch,
            "reveal": rules.reveal,
            "submissions": rows,
            "commitments": commitments,
        }

    def _judging(self, served: ServedCompetition) -> dict[str, list[str]]:
        """Submission → the validators that are judging it now."""
        _desk, notebook = served.books()
        found: dict[str, list[str]] = {}
        for beat in notebook.heartbeats():
            if now() - beat.at <= SILENT:
                for submission in sorted({str(entry.get("submission", "")) for entry in beat.judging} - {""}):
                    found.setdefault(submission, []).append(beat.validator)
        return found

    def _read(self, served: ServedCompetition, desk: Store) -> _Known:
        with self._lock, desk.reading() as view:
            epoch = view.settled_epoch()
            known = self._known.get(served.segment)
            if known is None or known.epoch != epoch:
                known = _Known(epoch)
                if epoch is not None and (stored := view.settlement(epoch)) is not None:
                    agreed = json.loads(stored.document)["agreed"]
                    scores = {row["participant"]: row["score"] for row in agreed if row["score"] is not None}
                    known = _Known(epoch, {name: made.submission for name, made in view.submissions(epoch).items()}, scores)
                self._known[served.segment] = known
            return known


def _has_evidence(served: ServedCompetition, desk: Store, participant: str, submission: str, settled: int | None) -> bool:
    """Whether the ledger has evidence of an open epoch about a submission, of any validator."""
    kind = served.scheme.kind
    about = submission if kind.record.shared_key else participant
    with desk.reading() as view:
        return any(
            json.loads(row.body)["submission"] == submission
            for validator in served.rules().validators
            for row in view.run(kind.name, validator, about, -1 if settled is None else settled)
        )


def _is_current(upload: Upload, current: str) -> bool:
    """Whether an upload counts: no other one took its place. A sealed one stands in no registry."""
    return upload.submission in (upload.archive, current)


def _row(upload: Upload, current: str, known: _Known, judging: dict[str, list[str]], judged: set[str]) -> Json:
    """An upload as the API shows it."""
    sealed = upload.submission == upload.archive
    row: Json = {
        "submission": upload.submission,
        "archive": upload.archive,
        "epoch": upload.epoch,
        "at": upload.at,
        "sealed": sealed,
        "current": _is_current(upload, current),
    }
    scored = known.settled.get(upload.participant) == upload.submission
    if not row["current"]:
        row["state"] = "replaced"
    elif scored and upload.participant in known.scores:
        row["state"], row["score"] = "scored", known.scores[upload.participant]
    elif upload.submission in judging:
        row["state"], row["validators"] = "being-judged", judging[upload.submission]
    else:
        row["state"] = "judged" if scored or upload.submission in judged else "received"
    return row


def released_logs(served: ServedCompetition, submission: str, participant: str | None, task: str | None) -> Json:
    """The trials of a submission; with a task, also what they printed. participant: who asks; None: nobody who signed.

    Raises HttpProblem: 403 if the scheme does not release them to this reader, 404 if there are none here; StoreError.
    """
    desk, _notebook = served.books()
    policy = (served.scheme.release or Release()).logs
    if policy == "never":
        raise HttpProblem(403, "this competition releases no logs", hint="[release] logs in its scheme says so", stage="release")
    if policy == "own" and participant is None:
        hint = "sign the request with the participant's key"
        raise HttpProblem(403, "logs are released to their participant only", hint=hint, stage="release")
    with desk.reading() as view:
        settled = view.settled_epoch()
    trials, later = [], False
    for place, record in _trials(served.folder, submission):
        if policy == "own" and record.participant != participant:
            continue
        if policy == "after-epoch" and (settled is None or record.epoch > settled):
            later = True
            continue
        if task in (None, record.task):
            trials.append((place, record))
    if later and not trials:
        raise HttpProblem(403, "logs are released when their epoch is settled", hint="ask again then", stage="release")
    if not trials:
        what = f"there are no logs of {submission[:80]} here" + ("" if task is None else f" for the task {task[:80]!r}")
        raise HttpProblem(404, what, hint="validators keep the logs of what they judged", stage="logs")
    hidden = {name: _is_hidden(served.folder, name) for name in {record.task for _place, record in trials}}
    rows = [_trial(place, record, hidden[record.task], printed=task is not None) for place, record in trials[:LISTED]]
    return {"submission": submission, "trials": rows}


def _trials(folder: Path, submission: str) -> Iterator[tuple[Path, TrialRecord]]:
    for file in sorted((folder / "trials").glob(f"[!.]*/[!.]*@{short(submission)}/[!.]*/*/{FILE}")):
        with suppress(BadInput):
            record = read_record(file)
            if record.submission == submission:
                yield file.parent, record


def _is_hidden(folder: Path, task: str) -> bool:
    try:
        return read_task(folder / "tasks" / task).settings.metadata.assay.hidden
    except (BadInput, OSError, ValueError):  # also for a task whose id is no path
        return True


def _trial(place: Path, record: TrialRecord, hidden: bool, *, printed: bool) -> Json:
    row: Json = {
        "validator": record.validator,
        "participant": record.participant,
        "epoch": record.epoch,
        "task": record.task,
        "trial": record.trial,
        "outcome": record.outcome,
        "hidden": hidden,
    }
    if printed and not hidden:
        row["message"] = record.message
        row["printed"] = {name: _tail(place / name) for name in _FILES}
    return row


def _tail(file: Path) -> str:
    """The end of a file; empty if there is none."""
    try:
        with open(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
            opened.seek(max(0, os.fstat(opened.fileno()).st_size - PRINTED))
            return opened.read(PRINTED).decode("utf-8", "replace")
    except OSError:
        return ""
