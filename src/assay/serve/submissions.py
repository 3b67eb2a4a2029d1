"""The routes of participants: register, commit, hand in, look at one's own submissions and their logs.

Every answer that says that something was accepted is sent after it is on the disk. The same request once more, signed anew, gets
the same answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from assay.errors import BadInput
from assay.exact import canonical
from assay.judge import submitting
from assay.scheme.bounty import read_bounty
from assay.scheme.fields import Digest
from assay.serve import uploads
from assay.serve.archives import ComingArchive, Withdrawn
from assay.serve.http import JSON, PROBLEMS, HttpProblem, declared, look, receive, signed
from assay.serve.notebook import Upload
from assay.serve.progress import Progress, released_logs
from assay.serve.registration import register
from assay.serve.signed import SignedRequest
from assay.serve.site import ServedCompetition, Site

__all__ = ["ARCHIVE", "SEALED", "routes"]

ARCHIVE = "application/gzip"
"""The media type of an archive; any other than SEALED means an archive too."""
SEALED = "application/vnd.assay.sealed"
"""The media type of a sealed submission."""
SMALL_BYTES = 16_384
"""Bytes of a body that is JSON."""
BOXES = 2
"""How many archives are unpacked at once in one process."""
EARLY_BYTES = 2**18
"""Bytes of a body from which on a box begins while the body comes."""
EARLY_SECONDS = 10.0
"""So long a box waits for the whole of such a body."""
WAIT_SECONDS = 20.0
"""How long an archive that came waits for its turn."""

Model = TypeVar("Model", bound=BaseModel)
Result = TypeVar("Result")
Segment = Annotated[str, Path(description="The competition's part of the address.", examples=["term-challenge"])]
DigestInPath = Annotated[Digest, Path(description="A submission's digest.", examples=["sha256:" + "0" * 64])]


class RegistrationRequest(BaseModel):
    """What a newcomer sends, signed with the key to be registered."""

    model_config = ConfigDict(extra="forbid", strict=True)

    code: Annotated[str, Field(max_length=100, description="An invitation's code; none where everybody may register.")] = ""
    name: Annotated[str, Field(max_length=256, description="How people call the participant.")] = ""
    address: Annotated[str, Field(max_length=100, description="Where payouts go: an address of Ethereum.")] = ""


class RegistrationAnswer(BaseModel):
    """The participant that the key stands for, and whether the key was registered just now."""

    participant: str
    new: bool


class CommitmentRequest(BaseModel):
    """A commitment to an archive that is handed in later."""

    model_config = ConfigDict(extra="forbid", strict=True)

    digest: Annotated[Digest, Field(description="The SHA-256 of the archive, as it will be sent.")]


class CommitmentAnswer(BaseModel):
    """A commitment as it is kept: the time counts, and the archive is taken from epoch `from_epoch` on."""

    digest: str
    epoch: int
    at: str
    from_epoch: int


class SubmissionAnswer(BaseModel):
    """What was accepted: the submission's digest, the epoch, the time that counts."""

    participant: str
    submission: str
    archive: str
    epoch: int
    at: str


class OwnSubmission(BaseModel):
    """One of one's own submissions, and how far it is."""

    submission: str
    archive: str
    epoch: int
    at: str
    sealed: bool
    current: bool
    state: Literal["received", "being-judged", "judged", "scored", "replaced"]
    score: str = ""
    validators: list[str] = []


class CommitmentRow(BaseModel):
    """One of one's own commitments."""

    digest: str
    epoch: int
    at: str


class SubmissionsAnswer(BaseModel):
    """One's own submissions and commitments, newest first, and the rules for the next one."""

    participant: str
    epoch: int
    per_epoch: int | None
    reveal: int | None
    submissions: list[OwnSubmission]
    commitments: list[CommitmentRow]


class LoggedTrial(BaseModel):
    """A trial, and what it printed if a task was named and the task is not hidden."""

    validator: str
    participant: str
    epoch: int
    task: str
    trial: int
    outcome: Literal["pass", "fail", "timeout", "error"]
    hidden: bool
    message: str = ""
    printed: dict[str, str] = {}


class LogsAnswer(BaseModel):
    """The trials of a submission."""

    submission: str
    trials: list[LoggedTrial]


def routes(site: Site) -> APIRouter:
    """The routes of participants."""
    router = APIRouter(prefix="/v1", tags=["participants"], responses=PROBLEMS)
    _registration(router, site)
    _handing_in(router, site)
    _looking(router, site)
    return router


def _registration(router: APIRouter, site: Site) -> None:
    @router.post(
        "/{segment}/participants",
        status_code=201,
        response_model=RegistrationAnswer,
        responses={200: {"model": RegistrationAnswer, "description": "The key was registered before"}},
        openapi_extra=_json_body(RegistrationRequest),
    )
    async def participants(request: Request, segment: Segment) -> Response:
        """Register the key that signs the request as a participant: a key of the registry, or one that was invited."""
        served = site.competition(segment)
        key, asked = await signed(request, served, lambda key: key, spend=False)
        with await receive(request, SMALL_BYTES, asked.body_sha256) as body:
            said = _read(RegistrationRequest, body.read() or b"{}")
        done = await run_in_threadpool(register, served, key, said.code, name=said.name, address=said.address, asked=asked)
        return _json({"participant": done.participant, "new": done.new}, 201 if done.new else 200)

    @router.post(
        "/{segment}/commitments",
        status_code=201,
        response_model=CommitmentAnswer,
        openapi_extra=_json_body(CommitmentRequest),
    )
    async def commitments(request: Request, segment: Segment) -> Response:
        """Commit to an archive that is handed in later, where the scheme asks for it; the first time counts."""
        served = site.competition(segment)
        participant, asked = await signed(request, served, served.participant_of)
        with await receive(request, SMALL_BYTES, asked.body_sha256) as body:
            said = _read(CommitmentRequest, body.read())
        made = await run_in_threadpool(uploads.commit, served, participant, said.digest)
        rules = served.scheme.submission
        first = made.epoch + ((rules.reveal if rules else None) or 0)
        return _json({"digest": made.digest, "epoch": made.epoch, "at": made.at, "from_epoch": first}, 201)


def _handing_in(router: APIRouter, site: Site) -> None:
    boxes, under_way = _Boxes(), set[tuple[str, str]]()
    binary = {"schema": {"type": "string", "format": "binary"}}

    @router.put(
        "/{segment}/submissions",
        status_code=201,
        response_model=SubmissionAnswer,
        responses={200: {"model": SubmissionAnswer, "description": "The same archive was accepted before"}},
        openapi_extra={"requestBody": {"required": True, "content": {ARCHIVE: binary, SEALED: binary}}},
    )
    async def hand_in(request: Request, segment: Segment) -> Response:
        """Hand in an archive (tar, tar.gz, tar.xz, zip) or a sealed submission; it becomes the participant's submission."""
        served = site.competition(segment)
        participant, asked = await signed(request, served, served.participant_of)
        with _only_one(under_way, (segment, participant)):
            return await take(request, served, participant, asked)

    async def take(request: Request, served: ServedCompetition, participant: str, asked: SignedRequest) -> Response:
        most = uploads.archive_bounds(served.scheme).packed
        sealed = request.headers.get("content-type", "").partition(";")[0].strip().lower() == SEALED
        archive = f"sha256:{asked.body_sha256.hex()}"
        try:
            if sealed:
                await run_in_threadpool(_check_sealed, served)
            permission = await run_in_threadpool(uploads.permit, served, participant, archive)
        except HttpProblem:
            with await receive(request, most):  # else the client would see a broken connection, not the sentence
                raise
        if permission.known is None and not sealed:
            return _upload(await boxes.take(request, served, permission, most, asked.body_sha256), 201)
        with await receive(request, most, asked.body_sha256) as body:
            if permission.known is not None:
                return _upload(permission.known, 200)
            return _upload(await run_in_threadpool(uploads.seal, served, permission, body), 201)


class _Boxes:
    """How archives get through the boxes of one process. Its methods are for one event loop.

    A box begins while the body still comes, if one is free: its start takes as long as the transfer of some megabytes. A client
    that is slow loses it, and so holds up nobody. When the body is there, the archive waits for another box.
    """

    def __init__(self) -> None:
        self._turns, self._early = asyncio.Semaphore(BOXES), asyncio.Semaphore(BOXES)

    async def take(
        self, request: Request, served: ServedCompetition, permission: uploads.Permission, most: int, sha: bytes
    ) -> Upload:
        """Receive an archive, unpack it, and make it a submission. Raises what `receive` and the steps of `uploads` raise."""
        async with _staged(served) as files, self._begun(served, request, most, files) as early:
            archive = None if early is None else early.archive
            with await receive(request, most, sha, follower=archive) as body:
                if early is None or not await early.finish():
                    async with _turn(self._turns):
                        await _to_end(uploads.unpacked, served, body.path(), files)
            return await _to_end(uploads.store, served, permission, files)

    @asynccontextmanager
    async def _begun(
        self, served: ServedCompetition, request: Request, most: int, files: FilePath
    ) -> AsyncIterator[_Early | None]:
        """A box that unpacks a body while it comes; None if no box is free, or the body is small, or of unknown size."""
        size = declared(request) or 0
        if not EARLY_BYTES <= size <= most or self._early.locked():
            yield None
            return
        async with self._early:
            early = _Early(ComingArchive(size, EARLY_SECONDS), served, files)
            try:
                yield early
            finally:
                await early.stop()


class _Early:
    """An archive that a box unpacks while it comes."""

    def __init__(self, archive: ComingArchive, served: ServedCompetition, files: FilePath) -> None:
        self.archive = archive
        loop, self._done = asyncio.get_running_loop(), asyncio.Event()

        def done() -> None:
            loop.call_soon_threadsafe(self._done.set)

        self._unpacking = asyncio.ensure_future(run_in_threadpool(uploads.unpacked, served, archive, files, done))

    async def finish(self) -> bool:
        """The archive is whole, and the one that was signed. Return whether it was unpacked; it was not if it came slowly.

        Raises what `uploads.unpacked` raises.
        """
        self.archive.end(whole=True)
        unpacked = asyncio.ensure_future(self._done.wait())
        try:
            await asyncio.wait([self._unpacking, unpacked], return_when=asyncio.FIRST_COMPLETED)
        finally:
            unpacked.cancel()
        if not self._done.is_set():  # else the box may still be removed meanwhile
            try:
                self._unpacking.result()
            except Withdrawn:
                return False
        return True

    async def stop(self) -> None:
        """Nobody needs the box any more."""
        self.archive.end(whole=False)
        await _ended(self._unpacking)
        self._unpacking.exception()


@asynccontextmanager
async def _staged(served: ServedCompetition) -> AsyncIterator[FilePath]:
    """A path for unpacked files that does not exist, in a folder that is removed afterwards."""
    with ExitStack() as stack:
        folder = await _to_end(stack.enter_context, submitting.staging(served.folder))
        try:
            yield folder / "files"
        finally:
            await _to_end(stack.close)


async def _to_end(work: Callable[..., Result], *args: Any) -> Result:
    """Works in a thread to the end, even if the client goes away meanwhile: nothing is left half done."""
    working = asyncio.ensure_future(run_in_threadpool(work, *args))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await _ended(working)
        working.exception()
        raise


async def _ended(working: asyncio.Future[Any]) -> None:
    """Wait until something has ended, however often this is cancelled."""
    while not working.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([working])


@contextmanager
def _only_one(under_way: set[tuple[str, str]], who: tuple[str, str]) -> Iterator[None]:
    """One submission of a participant at a time: nobody takes all boxes, or fills the disk. Raises HttpProblem (429)."""
    if who in under_way:
        what = "another submission of this participant is being taken in"
        raise HttpProblem(429, what, hint="wait for its answer, then send this one", retry=10)
    under_way.add(who)
    try:
        yield
    finally:
        under_way.discard(who)


@asynccontextmanager
async def _turn(turns: asyncio.Semaphore) -> AsyncIterator[None]:
    """Waits until a box is free. Raises HttpProblem (429)."""
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            await turns.acquire()
    except TimeoutError:
        raise HttpProblem(429, "too many submissions come at once", hint="send it again later", retry=30) from None
    try:
        yield
    finally:
        turns.release()


def _check_sealed(served: ServedCompetition) -> None:
    """Raises HttpProblem (415) if no enclave could open a sealed submission."""
    beside = served.scheme.kind.beside
    if not beside or not (served.folder / beside).exists() or read_bounty(served.folder).enclave is None:
        what = f"the competition {served.name!r} takes no sealed submissions"
        raise HttpProblem(415, what, hint="hand in an archive that is not sealed", stage="sealed")


def _looking(router: APIRouter, site: Site) -> None:
    progress = Progress()

    @router.get("/{segment}/submissions", response_model=SubmissionsAnswer)
    async def submissions(request: Request, segment: Segment) -> Response:
        """One's own submissions and how far they are; the request is signed."""
        served = site.competition(segment)
        participant, _asked = await signed(request, served, served.participant_of)
        return _json(await look(request, progress.submissions, served, participant))

    @router.get("/{segment}/submissions/{digest}/logs", response_model=LogsAnswer)
    async def logs(
        request: Request,
        segment: Segment,
        digest: DigestInPath,
        task: Annotated[str | None, Query(max_length=256, description="Only this task, with what its trials printed.")] = None,
    ) -> Response:
        """The trials of a submission, as far as the scheme releases them; signed by its participant, or by nobody."""
        served = site.competition(segment)
        participant = None
        if "signature" in request.headers:
            participant, _asked = await signed(request, served, served.participant_of)
        return _json(await look(request, released_logs, served, digest, participant, task))


def _upload(upload: Upload, status: int) -> Response:
    row = {name: getattr(upload, name) for name in SubmissionAnswer.model_fields}
    return _json(row, status)


def _json(document: dict[str, Any], status: int = 200) -> Response:
    return Response(canonical(document), status, {"Cache-Control": "no-store"}, JSON)


def _json_body(model: type[BaseModel]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {JSON: {"schema": model.model_json_schema()}}}}


def _read(model: type[Model], data: bytes) -> Model:
    try:
        return model.model_validate_json(data)
    except ValueError:
        what = f"is not a {model.__name__.removesuffix('Request').lower()}"
        raise BadInput(what, field="body", hint=f"see {model.__name__} in /v1/openapi.json") from None
