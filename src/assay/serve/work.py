"""The routes of validators that say what to judge, and move files by their digest: submissions, task sets, logs and kept work.

Every request is signed by a validator of the competition. A download goes on where it broke off (Range); what was sent is on the
disk before it is acknowledged, under the SHA-256 that the sender signed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from assay.errors import BadInput
from assay.exact import canonical, digest
from assay.folder.files import flush_folder
from assay.judge import entries, holds
from assay.judge.entries import Entries
from assay.ledger.closing_cost import next_epoch
from assay.records import Participant
from assay.scheme.fields import Digest
from assay.scheme.model import Scheme
from assay.serve.answers import DIGEST, Work, described
from assay.serve.bodies import Received, receive
from assay.serve.desk import FolderDesk, FolderFiles, ValidatorFolder, additions
from assay.serve.downloads import Workshop, file_answer, open_made, tar_of
from assay.serve.epochs import EpochReader, People
from assay.serve.http import JSON, PROBLEMS, HttpProblem, answer, signed
from assay.serve.judged import JudgedEvidence, JudgedSoFar, TrialBits
from assay.serve.logs import FILES, NAME, SHA, hand_over, object_file
from assay.serve.public import OCTETS, TAR, Segment
from assay.serve.shapes import download, json_body
from assay.serve.site import ServedCompetition, Site
from assay.serve.watching import Watch

__all__ = ["OBJECT_BYTES", "routes"]

Json = dict[str, Any]
OBJECT_BYTES = 256 * 2**20
"""Bytes of an object: a trial's log, or the work that was kept of it."""
WAIT_SECONDS = 60
"""For at most so long a request for work waits for something new."""
LOGS_AT_ONCE = 500
"""Records of one request that says which files are their logs."""
LOGS_BYTES = 4 * 2**20
POLLS = 4
"""Requests for work that may wait at one time, of one validator."""
FREE_BYTES = 2**30
"""Bytes that stay free on the disk: above that, no object is taken."""
DigestInPath = Annotated[Digest, Path(description="`sha256:…`", examples=[DIGEST])]
Sha = Annotated[str, Path(pattern=f"^{SHA}$", description="SHA-256 of the content", examples=[DIGEST[7:]])]
_LOOKS = 5
"""Times that work is read anew because a file of the folder changed while it was read."""
_PRIVATE = {"Cache-Control": "private, no-cache"}


class StoredObject(BaseModel):
    """An object that is on the disk."""

    model_config = described({"sha256": DIGEST[7:], "size": 1024, "new": True})

    sha256: str
    size: int
    new: bool


class LoggedRecord(BaseModel):
    """A record of the validator that is in the ledger, and the files of its trial: name → SHA-256."""

    model_config = ConfigDict(extra="forbid", strict=True)

    record: Json
    files: Annotated[
        dict[
            Annotated[str, Field(pattern=f"^{NAME}$", max_length=100)],
            Annotated[str, Field(pattern=f"^{SHA}$")],
        ],
        Field(max_length=FILES),
    ]


class LogsRequest(BaseModel):
    """The files of each record's logs, by name and digest; the files themselves are objects."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"examples": [{"logs": [{"record": {"kind": "tests"}, "files": {"agent/stdout.txt": DIGEST[7:]}}]}]},
    )

    logs: Annotated[list[LoggedRecord], Field(max_length=LOGS_AT_ONCE)]


class LogsOutcome(BaseModel):
    """The outcome of the logs of a record: `missing` names the objects to be sent before they are accepted."""

    record: str
    outcome: Literal["accepted", "known", "missing", "refused"]
    missing: list[str] = []
    detail: str = ""
    hint: str = ""


class LogsOutcomes(BaseModel):
    """The outcome of each record's logs, in the order in which they were sent."""

    model_config = described({"logs": [{"record": DIGEST, "outcome": "missing", "missing": [DIGEST[7:]]}]})

    logs: list[LogsOutcome]


def routes(site: Site, watch: Watch, workshop: Workshop) -> APIRouter:
    """The routes of validators that say what to judge, and move files."""
    router = APIRouter(prefix="/v1", tags=["validators"], responses=PROBLEMS)
    desks = {segment: WorkDesk(served) for segment, served in site.competitions.items()}

    @router.get("/{segment}/work", response_model=Work)
    async def work(
        request: Request,
        segment: Segment,
        wait: Annotated[int, Query(ge=0, le=WAIT_SECONDS, description="Seconds to wait for something new.")] = 0,
        seen: Annotated[str, Query(max_length=64, description="`seen` of the last answer: wait while it is the same.")] = "",
    ) -> Response:
        """The work of a validator now: the open epoch, the submissions that count, the assigned ones, and the records it has."""
        served = site.competition(segment)
        validator, _ = await signed(request, served, served.validator_of)
        desk = desks[segment]
        files = watch.files(segment)
        offer = await run_in_threadpool(desk.offer, validator)
        if wait and offer.seen == seen:
            with watch.place(validator, POLLS):
                offer = await _news(watch.work(request, segment, wait), desk, offer, files)
        return answer(request, await run_in_threadpool(desk.document, offer), JSON, headers=_PRIVATE)

    @router.get("/{segment}/folder", response_model=ValidatorFolder)
    async def folder(request: Request, segment: Segment) -> Response:
        """The rules and the registry as files, for a validator's copy of the competition's folder: without its ledger."""
        served = site.competition(segment)
        validator, _ = await signed(request, served, served.validator_of)
        files = await run_in_threadpool(desks[segment].folder, validator)
        return answer(request, canonical(files.document), JSON, headers=_PRIVATE)

    _contents(router, site, workshop)
    _objects(router, site)
    return router


async def _news(states: AsyncIterator[tuple[object, int | None]], desk: WorkDesk, offer: Offer, files: object) -> Offer:
    """The work as soon as it is other work, or when there are no more states. files: when the offer was made."""
    known = files, offer.head["settled"]
    async for state in states:
        if state != known:  # evidence of others is no other work
            again = await run_in_threadpool(desk.offer, offer.validator)
            if again.seen != offer.seen:
                return again
            known = state
    return offer


def _contents(router: APIRouter, site: Site, workshop: Workshop) -> None:
    """Submissions and task sets as tars."""

    @router.get("/{segment}/submissions/{digest}/content", responses=download(TAR), response_class=Response)
    async def submission(request: Request, segment: Segment, digest: DigestInPath) -> Response:
        """The files of a submission as a tar, the same bytes for the same submission; `Range` resumes a download."""
        served = site.competition(segment)
        await signed(request, served, served.validator_of)
        cached = await workshop.file(
            served.folder, f"submission-{digest[7:]}.tar", lambda path: _write_submission(served, digest, path)
        )
        file = await run_in_threadpool(open_made, cached)
        return file_answer(request, file, cached.size, TAR, digest, _PRIVATE)

    @router.get("/{segment}/tasks/{digest}/content", responses=download(TAR), response_class=Response)
    async def tasks(request: Request, segment: Segment, digest: DigestInPath) -> Response:
        """The task set as a tar: tasks.txt, and the folder of each task in `tasks/`; `Range` resumes a download."""
        served = site.competition(segment)
        await signed(request, served, served.validator_of)
        stamp = await run_in_threadpool(_stamp, served, digest)
        cached = await workshop.file(
            served.folder, f"tasks-{digest[7:]}-{stamp}.tar", lambda path: tar_of(path, _task_files(served, digest))
        )
        file = await run_in_threadpool(open_made, cached)
        return file_answer(request, file, cached.size, TAR, cached.sha256, _PRIVATE)


def _objects(router: APIRouter, site: Site) -> None:
    """Trial logs and kept work, by their digest."""
    body = {"requestBody": {"required": True, "content": {OCTETS: {"schema": {"type": "string", "format": "binary"}}}}}

    @router.put("/{segment}/objects/{sha256}", response_model=StoredObject, openapi_extra=body)
    async def put(request: Request, segment: Segment, sha256: Sha) -> Response:
        """Store a trial's log, or the work that was kept of it, under its SHA-256. Sending it again does no harm."""
        served = site.competition(segment)
        _, asked = await signed(request, served, served.validator_of)
        if asked.body_sha256.hex() != sha256:
            what = "the address and Content-Digest name two different contents"
            raise HttpProblem(400, what, field="sha256", hint="send it to the address that has its own SHA-256")
        with await receive(request, OBJECT_BYTES, asked.body_sha256) as received:
            new = await run_in_threadpool(_store, object_file(served.folder, sha256), received)
            size = received.size
        return answer(request, canonical({"sha256": sha256, "size": size, "new": new}), JSON, headers=_PRIVATE)

    @router.post("/{segment}/logs", response_model=LogsOutcomes, openapi_extra=json_body(LogsRequest))
    async def logs(request: Request, segment: Segment) -> Response:
        """Say which objects are the logs of one's own records. It may be said again; the first files count."""
        served = site.competition(segment)
        validator, asked = await signed(request, served, served.validator_of)
        with await receive(request, LOGS_BYTES, asked.body_sha256) as body:
            entries = _logs(body.read())
        outcomes = await run_in_threadpool(hand_over, served, validator, entries)
        return answer(request, canonical({"logs": outcomes}), JSON, headers=_PRIVATE)

    @router.get("/{segment}/objects/{sha256}", responses=download(OCTETS), response_class=Response)
    async def get(request: Request, segment: Segment, sha256: Sha) -> Response:
        """An object by its SHA-256; `Range` resumes a download."""
        served = site.competition(segment)
        await signed(request, served, served.validator_of)
        path = object_file(served.folder, sha256)
        try:
            file = await run_in_threadpool(path.open, "rb")
        except FileNotFoundError:
            raise HttpProblem(404, f"there is no object {sha256}", hint="it was not sent to this service") from None
        return file_answer(request, file, os.fstat(file.fileno()).st_size, OCTETS, sha256, _PRIVATE)


def _logs(data: bytes) -> list[tuple[Json, dict[str, str]]]:
    try:
        return [(entry.record, entry.files) for entry in LogsRequest.model_validate_json(data).logs]
    except ValueError:
        raise BadInput("does not say which files are logs", field="body", hint="see POST logs in /v1/openapi.json") from None


@dataclass(frozen=True)
class Offer:
    """The work offered to a validator, without what it judged already. rows: one for each submission that counts."""

    validator: str
    head: Json
    rows: list[Json]

    @cached_property
    def seen(self) -> str:
        """The tag of this offer: it changes when the offer does."""
        return digest(self.head | {"submissions": self.rows})[7:23]


class WorkDesk:
    """The desk that offers validators their work in one competition. Threads share it."""

    def __init__(self, served: ServedCompetition) -> None:
        self._served, self._epochs, self._files = served, EpochReader(served), FolderDesk(served)
        self._judged = None if served.store is None else JudgedEvidence(served.store)

    def offer(self, validator: str) -> Offer:
        """Return what a validator has to judge now. Raises BadInput, HttpProblem (409 without a ledger), StoreError."""
        return self._look(validator)[0]

    def folder(self, validator: str) -> FolderFiles:
        """Return the files whose digest `work` names. Raises as `work` does."""
        return self._look(validator)[1]

    def _look(self, validator: str) -> tuple[Offer, FolderFiles]:
        """Look until no file of the folder changed meanwhile: rows and the folder's digest are of one state."""
        for _ in range(_LOOKS):
            state = self._served.files()
            looked = self._look_once(validator)
            if self._served.files() == state:
                break
        return looked

    def _look_once(self, validator: str) -> tuple[Offer, FolderFiles]:
        store, _ = self._served.books()
        scheme, people = self._served.scheme, self._epochs.people()
        with store.reading() as view:
            epoch, settled = next_epoch(view) or 1, view.settled_epoch()
        latest = self._served.handed_in()
        here = []
        for person in people.participants.values():
            handed_in = latest.get(person.key)
            if not person.submission and handed_in is not None:
                submission, accepted = handed_in.submission, handed_in.epoch
                person = Participant(person.key, submission=submission, accepted_epoch=accepted, submitted_at=None)
            here.append(person)
        counting = entries.counting(here)
        first = {row.submission: row.epoch for row in latest.values()}
        if scheme.consensus.assign is not None:
            self._add_first(first, people, counting, epoch)
        before = None if scheme.consensus.assign is None else {name: at for name, at in first.items() if at < epoch}
        held = self._held(scheme, counting)
        added = additions(people.participants.values(), here, latest, before)
        files = self._files.files(scheme, added, held)
        back = {row["participant"] for row in held or ()}
        counting = [person for person in counting if person.key not in back]
        seats = Entries(self._served.folder, scheme, validator, tuple(here), tuple(people.validators.values()))
        mine = {person.key for person in entries.drawn(seats, counting, first, epoch)}
        head: Json = {
            "epoch": epoch,
            "settled": settled,
            "kind": scheme.score.kind,
            "scheme": scheme.digest,
            "task_set": people.task_set,
            "folder": files.digest,
        }
        rows: list[Json] = [
            {"participant": person.key, "submission": person.submission, "assigned": person.key in mine} for person in counting
        ]
        return Offer(validator, head, rows), files

    def _held(self, scheme: Scheme, counting: Sequence[Participant]) -> list[dict[str, str]] | None:
        """The submissions that no validator gets, each with the reason; None where the scheme holds nothing."""
        if scheme.submission is None or scheme.submission.copies != "hold" or scheme.kind.record.by_participant:
            return None
        keys = [(person.key, person.submission) for person in counting]
        known = holds.standings(self._served.folder, scheme, keys, comparing=True)
        if any(stands.state == "pending" for stands in known.values()):
            self._served.wake()
        return [
            {"participant": key, "submission": submission, "why": stands.why}
            for (key, submission), stands in known.items()
            if not stands.judged
        ]

    def _add_first(self, first: dict[str, int], people: People, counting: Sequence[Participant], epoch: int) -> None:
        """Add the lowest epoch of anybody's evidence about each submission, where the registry does not say when it came."""
        wanted = [person.submission for person in counting if person.accepted_epoch is None]
        owners = {person.submission: person.key for person in counting}
        for validator in people.validators if wanted else ():
            judged, _ = self._of(validator, owners, wanted, epoch)
            for submission in wanted:
                if (lowest := judged[submission].epoch) is not None:
                    first[submission] = min(first.get(submission, lowest), lowest)

    def _of(
        self, validator: str, owners: Mapping[str, str], wanted: Iterable[str], epoch: int
    ) -> tuple[Mapping[str, JudgedSoFar], TrialBits]:
        assert self._judged is not None  # `offer` asked for the ledger first
        return self._judged.of(self._epochs.people(), self._served.scheme, validator, owners, wanted, epoch)

    def document(self, offer: Offer) -> bytes:
        """An offer as JSON, with what the ledger has already of this validator. Raises StoreError."""
        owners = {row["submission"]: row["participant"] for row in offer.rows}
        done, bits = self._of(offer.validator, owners, owners, offer.head["epoch"])
        rows = []
        for row in offer.rows:  # row by row: all of them at once would hold up the other threads
            judged = done[row["submission"]]
            evidence = b'"evidence":{"records":%d,"trials":%b}' % (judged.records, bits.document(judged.trials))
            rows.append(b"%b,%b}" % (canonical(row)[:-1], evidence))
        head = canonical(offer.head | {"seen": offer.seen})
        return b'%b,"submissions":[%b]}' % (head[:-1], b",".join(rows))


def _write_submission(served: ServedCompetition, submission: str, path: FilePath) -> None:
    """Write the files of a submission as a tar. Raises HttpProblem (404) if they are not here."""
    source = served.scheme.kind.files(served.folder, submission)
    if source is None:
        raise HttpProblem(404, f"the files of {submission} are not here", hint="`work` has the submissions that count")
    tar_of(path, [("" if source.is_dir() else source.name, source)])


def _task_files(served: ServedCompetition, task_set: str) -> list[tuple[str, FilePath]]:
    """Return what a task set has: the name in the tar, and the file or folder.

    Raises HttpProblem: 404 for another task set than the one of now, 503 if its operator has not put its files here yet.
    """
    people = EpochReader(served).people()
    if people.task_set != task_set:
        hint = f"the one of now is {people.task_set}" if people.task_set else "this kind has no task set"
        raise HttpProblem(404, f"there is no task set {task_set}", hint=hint)
    folder = served.folder / "tasks"
    plain = [name for name in people.tasks if name not in (".", "..") and "/" not in name]
    if len(plain) < len(people.tasks) or not all((folder / name).is_dir() for name in plain):
        hint = "its operator puts them into tasks/; ask again then"
        raise HttpProblem(503, "the files of the task set are not here", hint=hint, stage="tasks", retry=60)
    return [("tasks.txt", served.folder / "tasks.txt"), *((f"tasks/{name}", folder / name) for name in sorted(plain))]


def _stamp(served: ServedCompetition, task_set: str) -> str:
    """Return what changes when a file of the task set does: a set may name its tasks by ids alone."""
    rows = []
    for name, source in _task_files(served, task_set):
        for folder, _, files in os.walk(source) if source.is_dir() else [(str(source.parent), [], [source.name])]:
            for file in files:
                place = os.path.join(folder, file)
                status = os.lstat(place)
                rows.append([name, place, status.st_size, status.st_mtime_ns // 1000, status.st_mode])
    return digest(sorted(rows))[7:23]


def _store(path: FilePath, received: Received) -> bool:
    """Put a body on the disk under its name, whole or not at all; False if it is there. Raises BadInput, HttpProblem (507)."""
    if path.exists():
        return False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(path.parent).free < received.size + FREE_BYTES:
            raise HttpProblem(507, "the disk of this service is almost full", hint="tell its operator; keep the file until then")
        received.save(path)
        for folder in (path.parent.parent, path.parent.parent.parent):
            flush_folder(folder)
    except OSError as error:
        raise BadInput(f"cannot be written ({error.strerror})", file=path, hint="tell the operator of this service") from None
    return True
