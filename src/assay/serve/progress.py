"""The state of a participant's submissions, from received to settled. SPEC 7.

A submission is `received`, `being-judged` (a validator's heartbeat names it), `judged` (the ledger has evidence about it) or
`scored` (the last settled epoch has an agreed score for it). One that another submission took the place of is `replaced`, and one
that no validator gets, because it is a near-copy of an earlier one of somebody else, is `held`.

A sealed one is `being-judged` when the enclave took it, `judged` when its result was collected, and `refused` if the enclave did;
a commitment is `committed` when the enclave took it. Scores are the participant's: an enclave takes one solution of each.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from assay.enclave import delivery
from assay.judge import submitting
from assay.ledger.intake import open_epoch
from assay.ledger.store import Store
from assay.scheme.model import SubmissionRules
from assay.serve.notebook import Upload
from assay.serve.site import ServedCompetition, now
from assay.serve.uploads import archive_bounds, copy_standing, is_duplicate

__all__ = ["Progress"]

Json = dict[str, Any]
SILENT = timedelta(seconds=90)
"""A validator that said nothing for so long is judging nothing."""
LISTED = 1000
"""The most submissions that one answer lists."""


@dataclass(frozen=True)
class _Known:
    """The results of the last settled epoch."""

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
        store, notebook = served.books()
        rules = served.scheme.submission or SubmissionRules()
        uploads = notebook.uploads(participant, last=LISTED)
        current = submitting.find(served.folder, participant).submission
        known = self._read(served, store)
        judging = self._judging(served)
        judged = any(upload.submission == current for upload in uploads) and _has_evidence(
            served, store, participant, current, known.epoch
        )
        rows = [
            _sealed_row(served.folder, upload, current, known)
            if upload.submission == upload.archive
            else _with_copies(served, upload, _row(upload, current, known, judging, judged))
            for upload in uploads
        ]
        commitments = [
            {"digest": row.digest, "epoch": row.epoch, "at": row.at} for row in notebook.commitments(participant, last=LISTED)
        ]
        return {
            "participant": participant,
            "epoch": open_epoch(store),
            "per_epoch": rules.per_epoch,
            "reveal": rules.reveal,
            "archive_bytes": archive_bounds(served.scheme).packed,
            "submissions": rows,
            "commitments": commitments,
        }

    def _judging(self, served: ServedCompetition) -> dict[str, list[str]]:
        """Submission → the validators that are judging it now."""
        _store, notebook = served.books()
        judging: dict[str, list[str]] = {}
        for beat in notebook.heartbeats():
            if now() - beat.at <= SILENT:
                for submission in sorted({str(entry.get("submission", "")) for entry in beat.judging} - {""}):
                    judging.setdefault(submission, []).append(beat.validator)
        return judging

    def _read(self, served: ServedCompetition, store: Store) -> _Known:
        with self._lock, store.reading() as view:
            epoch = view.settled_epoch()
            known = self._known.get(served.segment)
            if known is None or known.epoch != epoch:
                known = _Known(epoch)
                if epoch is not None and (stored := view.settlement(epoch)) is not None:
                    agreed = json.loads(stored.document)["agreed"]
                    scores = {row["participant"]: row["score"] for row in agreed if row["score"] is not None}
                    known = _Known(epoch, {name: row.submission for name, row in view.submissions(epoch).items()}, scores)
                self._known[served.segment] = known
            return known


def _has_evidence(served: ServedCompetition, store: Store, participant: str, submission: str, settled: int | None) -> bool:
    """Whether the ledger has evidence of an open epoch about a submission, of any validator."""
    kind = served.scheme.kind
    about = submission if kind.record.shared_key else participant
    with store.reading() as view:
        return any(
            json.loads(row.body)["submission"] == submission
            for validator in served.rules().validators
            for row in view.run(kind.name, validator, about, -1 if settled is None else settled)
        )


def _row(upload: Upload, current: str, known: _Known, judging: dict[str, list[str]], judged: bool) -> Json:
    """An upload as the API shows it."""
    row = _plain(upload, sealed=False, current=upload.submission == current)
    scored = known.settled.get(upload.participant) == upload.submission
    if not row["current"]:
        row["state"] = "replaced"
    elif scored and upload.participant in known.scores:
        row["state"], row["score"] = "scored", known.scores[upload.participant]
    elif upload.submission in judging:
        row["state"], row["validators"] = "being-judged", judging[upload.submission]
    else:
        row["state"] = "judged" if scored or judged else "received"
    return row


def _with_copies(served: ServedCompetition, upload: Upload, row: Json) -> Json:
    """The row with what is known of a current submission as a copy; one that is held is in the state `held`."""
    if not row["current"]:
        return row
    stands = copy_standing(served, upload)
    row |= {"duplicate": is_duplicate(served, upload), "copies": None if stands is None else stands.document()}
    if stands is not None and stands.state == "held":
        row |= {"why": f"{stands.why} {stands.todo}".strip()}
        row |= {} if row["state"] == "scored" else {"state": "held"}
    return row


def _sealed_row(folder: Path, upload: Upload, current: str, known: _Known) -> Json:
    """A sealed upload as the API shows it. current: the digest of the participant's solution, once it was collected."""
    commitment = delivery.upload_file(folder, upload.archive, "commitment")
    sealed = delivery.upload_file(folder, upload.archive, "sealed")
    file = commitment if commitment.exists() else sealed
    row = _plain(upload, sealed=True, current=file == sealed)
    if (refused := delivery.answer_file(file, "refused")).exists():
        return row | {"state": "refused", "current": False, "why": delivery.refusal(refused)}
    if not delivery.answer_file(file, "taken").exists():
        return row | {"state": "received"}
    if file == commitment:
        return row | {"state": "committed"}
    if current and known.settled.get(upload.participant) == current and upload.participant in known.scores:
        return row | {"state": "scored", "score": known.scores[upload.participant]}
    return row | {"state": "judged" if current else "being-judged"}


def _plain(upload: Upload, *, sealed: bool, current: bool) -> Json:
    names = ("submission", "archive", "epoch", "at")
    row = {name: getattr(upload, name) for name in names}
    return row | {"sealed": sealed, "current": current, "duplicate": False, "copies": None}
