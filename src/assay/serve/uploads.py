"""Uploads: the archives that a participant may hand in to a service, with quotas, commitments, submissions and their states.

A submission is accepted in this order: the rules are asked before the body is read; the body comes, while a box begins to unpack
it if one is free; when the body is whole and has the digest that was signed, its files leave the box; the kind checks them and
makes them the submission of the participant; the notebook has it. Each step can be repeated: the same archive once more gets the
same answer.

Commit and reveal (`[submission] reveal`): a participant commits to the SHA-256 of an archive, and sends the archive some epochs
later. Its time is the time of the commitment, so nobody gains by copying what others reveal.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from math import ceil
from pathlib import Path

from assay.enclave import delivery
from assay.errors import AssayError, BadInput
from assay.folder.files import alone
from assay.judge import holds, submitting, tree
from assay.judge.holds import CopyStanding
from assay.judge.sandbox import InfrastructureError, Sandbox, choose
from assay.ledger.intake import open_epoch
from assay.records import Tests
from assay.scheme.bounty import Bounty, read_bounty
from assay.scheme.fields import instant, instant_text
from assay.scheme.model import Scheme, SubmissionRules
from assay.serve.archives import BOUNDS, ArchiveBounds
from assay.serve.bodies import Received
from assay.serve.http import HttpProblem
from assay.serve.live import closes_at
from assay.serve.notebook import SubmissionCommitment, Upload
from assay.serve.site import ServedCompetition, now
from assay.serve.unpacking import ComingArchive, SpareBoxes, unpack

__all__ = [
    "PER_EPOCH",
    "Permission",
    "archive_bounds",
    "check_room",
    "commit",
    "copy_standing",
    "count_attempt",
    "forgive_attempt",
    "is_duplicate",
    "permit",
    "prepare",
    "seal",
    "seconds_to_wait",
    "store",
    "unpacked",
]

PER_EPOCH = 100
"""The number of submissions (or commitments) that a participant has in an epoch if the scheme does not say."""
ATTEMPTS = 10
"""So many archives of a participant are taken in for each submission that the quota allows: refused ones cost the host too."""
_ROOM = 1 << 30
"""Bytes that must stay free on the disk."""
_LATER = 600
"""Seconds after which a client may try again if nobody knows when the next epoch begins."""


@dataclass(frozen=True)
class Permission:
    """The permission of a participant to hand in an archive now."""

    participant: str
    archive: str
    """`sha256:…` of the body."""
    epoch: int
    """The epoch that is open."""
    at: datetime | None = None
    """The time that counts, if it is the time of a commitment."""
    known: Upload | None = None
    """An earlier upload of the same archive: the participant's newest one, or any sealed one."""


def archive_bounds(scheme: Scheme) -> ArchiveBounds:
    """Return how large an archive may be in a competition."""
    return replace(BOUNDS, packed=min(BOUNDS.packed, scheme.kind.archive_bytes))


def permit(served: ServedCompetition, participant: str, archive: str, *, sealed: bool = False) -> Permission:
    """Asks the rules whether a participant may hand an archive in now.

    sealed: nobody knows yet whether it is a commitment or a solution, so `seal` counts it.

    Raises StoreError and HttpProblem: 429 above the quota, 409 without a commitment that is old enough, 503 if the disk is full.
    """
    store, notebook = served.books()
    before = notebook.uploads(participant)
    epoch = open_epoch(store)
    known = next((upload for upload in before[:1] if upload.archive == archive), None)
    known = known or next((upload for upload in before if archive == upload.archive == upload.submission), None)
    if known is not None and _is_current(served, known):
        return Permission(participant, archive, epoch, known=known)
    rules = served.scheme.submission or SubmissionRules()
    if not sealed:
        _check_quota(served, rules, epoch, _epochs_of(served, before), "submissions")
    check_room(served.folder)
    if rules.reveal is None:
        return Permission(participant, archive, epoch)
    commitment = notebook.commitment(participant, archive)
    if commitment is None:
        what = f"nobody committed to this archive before: its digest is {archive}"
        hint = f"commit to it now, and hand it in {_epochs(rules.reveal)} later: assay submit --commit"
        raise HttpProblem(409, what, hint=hint, stage="commitment")
    if epoch < commitment.epoch + rules.reveal:
        what = f"the commitment was made in epoch {commitment.epoch}, and epoch {epoch} is open"
        hint = f"hand it in from epoch {commitment.epoch + rules.reveal} on"
        raise HttpProblem(409, what, hint=hint, stage="commitment", retry=seconds_to_wait(served.scheme, epoch))
    return Permission(participant, archive, epoch, at=instant(commitment.at))


def _epochs_of(served: ServedCompetition, uploads: Sequence[Upload], kind: delivery.UploadKind = "sealed") -> list[int]:
    """The epochs of uploads for the quota: of the commitments to sealed solutions, or of everything else.

    The solution that somebody committed to is no second submission, so the two are counted apart.
    """

    def is_commitment(upload: Upload) -> bool:
        sealed = upload.archive == upload.submission
        return sealed and delivery.upload_file(served.folder, upload.archive, "commitment").exists()

    return [upload.epoch for upload in uploads if is_commitment(upload) == (kind == "commitment")]


def _epochs(count: int) -> str:
    return "an epoch" if count == 1 else f"{count} epochs"


def _is_current(served: ServedCompetition, upload: Upload) -> bool:
    """Whether an upload is still the participant's submission. A sealed one stands in no registry."""
    if upload.submission == upload.archive:
        return True
    return submitting.find(served.folder, upload.participant).submission == upload.submission


def _check_quota(served: ServedCompetition, rules: SubmissionRules, epoch: int, epochs: list[int], what: str) -> None:
    most = rules.per_epoch or PER_EPOCH
    count = epochs.count(epoch)
    if count >= most:
        quota = f"{count} {what} were handed in in epoch {epoch}, and {most} are the most"
        raise HttpProblem(
            429, quota, hint=f"wait for epoch {epoch + 1}", stage="quota", retry=seconds_to_wait(served.scheme, epoch)
        )


def count_attempt(served: ServedCompetition, permission: Permission) -> None:
    """Count an archive that is taken in, whether it is accepted or not. Raises HttpProblem (429) if there were too many."""
    _store, notebook = served.books()
    rules = served.scheme.submission or SubmissionRules()
    most = ATTEMPTS * (rules.per_epoch or PER_EPOCH)
    if not notebook.attempt(permission.participant, permission.epoch, most):
        what = f"{most} archives were sent in epoch {permission.epoch}, refused ones included, and {most} are the most"
        hint = f"wait for epoch {permission.epoch + 1}"
        if issubclass(served.scheme.kind.record, Tests):
            hint += "; try what you hand in on your machine first: assay trial"
        raise HttpProblem(429, what, hint=hint, stage="quota", retry=seconds_to_wait(served.scheme, permission.epoch))


def forgive_attempt(served: ServedCompetition, permission: Permission) -> None:
    """Do not count an archive that was not taken in because the service could not. If that cannot be noted, it counts."""
    with suppress(AssayError):
        served.books()[1].forgive(permission.participant, permission.epoch)


def seconds_to_wait(scheme: Scheme, epoch: int) -> int:
    """Seconds after which to try again what the epoch after the open one allows."""
    seconds = closes_in(scheme, epoch)
    return _LATER if seconds is None else seconds


def closes_in(scheme: Scheme, epoch: int) -> int | None:
    """Seconds until an epoch that is open ends; None if the time does not say it, or is over."""
    moment = now()
    closes = closes_at(scheme, epoch, moment)
    return None if closes is None else max(1, ceil((closes - moment).total_seconds()))


def check_room(folder: Path) -> None:
    """Raise HttpProblem (503) if the disk of a folder has no room for another submission."""
    room = tree.room(folder)
    if room.bytes < _ROOM + BOUNDS.bytes:
        raise HttpProblem(503, "the service's disk is full", hint="tell its operator, and try again later", retry=_LATER)


def commit(served: ServedCompetition, participant: str, digest: str) -> SubmissionCommitment:
    """Notes that a participant committed to an archive; the first time counts. Raises HttpProblem (409, 429) and StoreError."""
    store, notebook = served.books()
    rules = served.scheme.submission or SubmissionRules()
    if rules.reveal is None:
        what = f"the competition {served.name!r} takes no commitments"
        raise HttpProblem(409, what, hint="hand the archive in as it is", stage="commitment")
    known = notebook.commitment(participant, digest)
    if known is not None:
        return known
    epoch = open_epoch(store)
    with alone(served.folder):
        _check_quota(served, rules, epoch, [commitment.epoch for commitment in notebook.commitments(participant)], "commitments")
        at = instant_text(now().replace(microsecond=0))
        return notebook.commit(SubmissionCommitment(participant, digest, epoch, at))


@cache
def _boxes() -> Sandbox:
    """The sandbox of this process. Raises InfrastructureError."""
    return choose()


@cache
def _spares() -> SpareBoxes:
    """The boxes of this process that are begun ahead."""
    return SpareBoxes()


_FIRST = threading.Lock()


def prepare(served: ServedCompetition) -> None:
    """Begin the box of the next upload ahead. A sandbox that does not work is told to whoever uploads."""
    with suppress(InfrastructureError):
        _spares().prepare(_boxes(), archive_bounds(served.scheme))


def unpacked(served: ServedCompetition, archive: Path | ComingArchive, files: Path) -> None:
    """Unpacks an archive in a box into a folder of `submitting.staging`. Nothing of the competition has changed.

    Raises BadInput for an archive that is refused, Withdrawn, and HttpProblem (503).
    """
    try:
        with _FIRST:
            boxes = _boxes()
        unpack(archive, files, archive_bounds(served.scheme), sandbox=boxes, spares=_spares())
    except InfrastructureError as error:
        what = f"the archive could not be unpacked: {error.what}"
        raise HttpProblem(503, what, hint="nothing was accepted; send it again later", stage="sandbox", retry=30) from error


def store(served: ServedCompetition, permission: Permission, files: Path) -> Upload:
    """Makes unpacked files the submission of the participant. The upload that is returned is on the disk.

    Raises BadInput for a content that is refused, HttpProblem (429, 503) and StoreError; then nothing has changed.
    """
    flushing = threading.Thread(target=_flush, args=(files,))  # so that `placed` need not wait for the disk after the digest
    flushing.start()
    try:
        upload = _enter(served, served.scheme, permission, files)
        served.wake()
        return upload
    except BadInput as error:
        raise _seen_from(error, files) from None
    finally:
        flushing.join()


def is_duplicate(served: ServedCompetition, upload: Upload) -> bool:
    """Whether somebody handed in the same submission earlier, so that this one earns nothing. SPEC 2. Raises AssayError.

    A sealed one is never said to be: nobody here knows what is in it. A duplicate counts for the quota: it was taken in.
    """
    if upload.submission == upload.archive or served.scheme.kind.record.by_participant:
        return False
    latest = served.handed_in()
    others = {row.participant: row.submission for row in latest.values()}
    return submitting.find(served.folder, upload.participant).is_duplicate(upload.submission, others)


def copy_standing(served: ServedCompetition, upload: Upload) -> CopyStanding | None:
    """The state of a submission as a near-copy; None where the scheme compares none, or it is sealed. Raises BadInput."""
    scheme, key = served.scheme, (upload.participant, upload.submission)
    if upload.submission == upload.archive or scheme.kind.record.by_participant:
        return None
    standing = holds.standings(served.folder, scheme, [key], comparing=True).get(key)
    if standing is not None and standing.state == "pending":
        served.wake()
    return standing


def _flush(files: Path) -> None:
    with suppress(OSError):  # whoever places the files flushes them too, and says what is wrong
        submitting.flush(files)


def _enter(served: ServedCompetition, scheme: Scheme, permission: Permission, files: Path) -> Upload:
    """One process at a time changes participants.csv, and counts what a participant handed in."""
    store, notebook = served.books()
    participant, rules = permission.participant, scheme.submission or SubmissionRules()
    with alone(served.folder), submitting.with_open_ledger(served.folder, store):
        _check_quota(served, rules, permission.epoch, _epochs_of(served, notebook.uploads(participant)), "submissions")
        if permission.at is None:
            done = scheme.kind.submit(served.folder, participant, str(files), None)
        else:
            done = scheme.kind.submit(served.folder, participant, str(files), None, at=permission.at)
        row = submitting.find(served.folder, participant).row
        at = row.get("submitted_at", "").strip() or instant_text(now().replace(microsecond=0))
        epoch = permission.epoch if done.epoch is None or not done.changed else done.epoch
        upload = Upload(participant, permission.archive, done.submission, epoch, at)
        notebook.upload(upload)
    return upload


def _seen_from(error: BadInput, files: Path) -> BadInput | HttpProblem:
    """The error as the participant should see it: with paths as the archive has them."""
    if error.what.startswith("cannot be written"):
        return HttpProblem(503, "the service cannot store submissions now", hint="tell its operator", retry=_LATER)
    if error.file is not None:
        with suppress(ValueError):
            inside = Path(error.file).relative_to(files).as_posix()
            error.file = None if inside == "." else inside
    error.what = error.what.replace(f"{files}/", "").replace(str(files), "the archive")
    return error


def seal(served: ServedCompetition, permission: Permission, body: Received) -> Upload:
    """Keeps a sealed solution, or the commitment to one, under its digest, unopened; it stands in no registry.

    `assay enclave deliver` hands it to the enclave. The upload that is returned is on the disk. Raises BadInput for what no
    enclave of this bounty would take from this participant, HttpProblem (409 after the deadline, 429, 503) and StoreError; then
    nothing is kept.
    """
    _store, notebook = served.books()
    participant, bounty = permission.participant, read_bounty(served.folder)
    sent = _sealed_upload(bounty, body)
    if sent.participant != participant:
        what = f"it is of the participant {sent.participant!r}, and {participant!r} signs the request"
        raise BadInput(what, field="body", hint="sign with the key that committed")
    _check_deadline(bounty, sent)
    place = delivery.upload_file(served.folder, permission.archive, sent.kind)
    at = instant_text(permission.at or now().replace(microsecond=0))
    with alone(served.folder):
        rules = served.scheme.submission or SubmissionRules()
        epochs = _epochs_of(served, notebook.uploads(participant), sent.kind)
        _check_quota(served, rules, permission.epoch, epochs, "commitments" if sent.kind == "commitment" else "submissions")
        try:
            place.parent.mkdir(mode=0o700, exist_ok=True)
            body.save(place, private=True)
        except OSError as error:
            what = f"the service cannot store submissions now ({error.strerror})"
            raise HttpProblem(503, what, hint="tell its operator", retry=_LATER) from None
        upload = Upload(participant, permission.archive, permission.archive, permission.epoch, at)
        notebook.upload(upload)
    return upload


def _sealed_upload(bounty: Bounty, body: Received) -> delivery.SealedUpload:
    try:
        return delivery.parse_upload(bounty, body.read())
    except BadInput as error:
        raise error.at(field="body") from None


def _check_deadline(bounty: Bounty, sent: delivery.SealedUpload) -> None:
    """Raises HttpProblem (409) if the enclave would take it no more; the time that counts is the enclave's."""
    terms = bounty.terms
    until = terms.submissions_until
    if sent.kind == "commitment":
        until = terms.commitments_until or until
    if until is not None and now() > until:
        what = f"{'commitments' if sent.kind == 'commitment' else 'solutions'} were accepted until {instant_text(until)}"
        raise HttpProblem(409, what, hint="the bounty's deadlines stand in bounty.toml", stage="late")
