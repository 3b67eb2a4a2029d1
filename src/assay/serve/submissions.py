"""The routes of participants: register, commit, hand in, look at one's own submissions and their logs.

Every answer that says that something was accepted is sent after it is on the disk. The same request once more, signed anew, gets
the same answer.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from assay.errors import AssayError, BadInput
from assay.exact import canonical
from assay.scheme.bounty import read_bounty
from assay.scheme.fields import Digest
from assay.serve import logs, uploads
from assay.serve.answers import DIGEST, described
from assay.serve.archives import ARCHIVE, SEALED
from assay.serve.bodies import receive
from assay.serve.downloads import file_answer
from assay.serve.http import JSON, PROBLEMS, HttpProblem, answer, look, signed, status_of
from assay.serve.notebook import Upload
from assay.serve.progress import Progress
from assay.serve.public import OCTETS, TEXT, AfterNumber, next_page
from assay.serve.registration import register
from assay.serve.shapes import download, json_body
from assay.serve.signed import SignedRequest
from assay.serve.site import ServedCompetition, Site
from assay.serve.taking import BOXES, take_archive, turn

__all__ = ["routes"]

SMALL_BYTES = 16_384
"""Bytes of a body that is JSON."""
OWN = {"Cache-Control": "private, no-cache"}
"""The headers of a signed answer: only the client that asked may keep it, and it asks again with the ETag."""
_UNTRUSTED = {"Cache-Control": "private, no-cache", "Content-Security-Policy": "sandbox", "Content-Disposition": "inline"}
"""The headers of a file that an agent wrote: a browser takes it for text, whatever is in it."""
Model = TypeVar("Model", bound=BaseModel)
_AT = "2026-03-01T12:00:00Z"
_CODE = "q1Yk0m4Xw8T2rV7sB5nZ6cJd"
_ADDRESS = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
_ARCHIVE_DIGEST = "sha256:60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"
Segment = Annotated[str, Path(description="The competition's part of the address.", examples=["term-challenge"])]
DigestInPath = Annotated[Digest, Path(description="A submission's digest.", examples=["sha256:" + "0" * 64])]


class RegistrationRequest(BaseModel):
    """A newcomer's request for registration, signed with the key to be registered."""

    model_config = described({"code": _CODE, "name": "Atlas", "address": _ADDRESS}, strict=True)

    code: Annotated[str, Field(max_length=100, description="An invitation's code; none where everybody may register.")] = ""
    name: Annotated[str, Field(max_length=256, description="How people call the participant.")] = ""
    address: Annotated[str, Field(max_length=100, description="Where payouts go: an address of Ethereum.")] = ""


class RegistrationAnswer(BaseModel):
    """The participant that the key stands for, and whether the key was registered, or the name changed, just now."""

    model_config = described({"participant": "atlas", "new": True, "renamed": False})

    participant: str
    new: bool
    renamed: bool = False


class CommitmentRequest(BaseModel):
    """A commitment to an archive that is handed in later."""

    model_config = described({"digest": DIGEST}, strict=True)

    digest: Annotated[Digest, Field(description="The SHA-256 of the archive, as it will be sent.")]


class CommitmentAnswer(BaseModel):
    """A commitment as it is kept: the time counts, and the archive is taken from epoch `from_epoch` on."""

    model_config = described({"digest": DIGEST, "epoch": 12, "at": _AT, "from_epoch": 13})

    digest: str
    epoch: int
    at: str
    from_epoch: int


class CopiesAnswer(BaseModel):
    """The state of a submission as a near-copy of earlier ones of others, with the decision about it."""

    state: Annotated[
        Literal["pending", "clear", "flagged", "held", "released", "confirmed", "not-compared"],
        Field(description="pending: it is compared beside the requests, in seconds; held: no validator gets it"),
    ]
    why: str = ""
    todo: Annotated[str, Field(description="What the participant can do")] = ""
    near: Annotated[
        list[dict[str, Any]], Field(description="The earlier submissions, with dates and the passages that match")
    ] = []
    decision: Annotated[dict[str, Any] | None, Field(description="The organiser's decision, its reason and time")] = None


class SubmissionAnswer(BaseModel):
    """The submission that was accepted: its digest, the epoch, the time that counts."""

    model_config = described(
        {"participant": "atlas", "submission": DIGEST, "archive": _ARCHIVE_DIGEST, "epoch": 13, "at": _AT, "duplicate": False}
        | {"copies": {"state": "pending", "why": "It is being compared with earlier submissions.", "todo": "", "near": []}}
    )

    participant: str
    submission: str
    archive: str
    epoch: int
    at: str
    duplicate: Annotated[bool, Field(description="Somebody handed in the same submission earlier: this one earns nothing")]
    copies: Annotated[CopiesAnswer | None, Field(description="Near-copies; null where the scheme compares none")] = None


class OwnSubmission(BaseModel):
    """One of one's own submissions, and how far it is."""

    submission: str
    archive: str
    epoch: int
    at: str
    sealed: bool
    current: bool
    state: Literal["received", "being-judged", "judged", "scored", "replaced", "held", "committed", "refused"]
    duplicate: Annotated[bool, Field(description="Somebody handed in the same submission earlier: this one earns nothing")]
    score: str = ""
    validators: list[str] = []
    copies: Annotated[CopiesAnswer | None, Field(description="Near-copies; of the current one")] = None
    why: Annotated[str, Field(description="Why the enclave refused a sealed one, or why one is held")] = ""


class CommitmentRow(BaseModel):
    """One of one's own commitments."""

    digest: str
    epoch: int
    at: str


class SubmissionsAnswer(BaseModel):
    """One's own submissions and commitments, newest first, and the rules for the next one."""

    model_config = described(
        {
            "participant": "atlas",
            "epoch": 13,
            "per_epoch": 3,
            "reveal": None,
            "archive_bytes": 64_000_000,
            "submissions": [
                {"submission": DIGEST, "archive": _ARCHIVE_DIGEST, "epoch": 13, "at": _AT, "sealed": False, "current": True}
                | {"duplicate": False, "state": "being-judged", "score": "", "validators": ["val-1"]}
            ],
            "commitments": [],
        }
    )

    participant: str
    epoch: int
    per_epoch: int | None
    reveal: int | None
    archive_bytes: Annotated[int, Field(description="The most bytes of an archive, as it is sent.")]
    submissions: list[OwnSubmission]
    commitments: list[CommitmentRow]


class LogFile(BaseModel):
    """A file of a trial: `logs/SHA256` has all of it, `printed` its end."""

    name: str
    sha256: str
    size: int


class LoggedTrial(BaseModel):
    """A trial with its files; also the end of what was printed, if a task was named."""

    validator: str
    participant: str
    epoch: int
    task: str
    trial: int
    outcome: Literal["pass", "fail", "timeout", "error"]
    message: str = ""
    files: list[LogFile]
    printed: dict[str, str] = {}


class LogsAnswer(BaseModel):
    """The trials of a submission, without those of hidden tasks: only how many these are."""

    model_config = described(
        {
            "submission": DIGEST,
            "release": "own",
            "hidden": 0,
            "left_out": 0,
            "next": None,
            "trials": [
                {"validator": "val-1", "participant": "atlas", "epoch": 13, "task": "count-words", "trial": 1}
                | {"outcome": "fail", "message": "1 of 3 tests failed"}
                | {"files": [{"name": "tests/stdout.txt", "sha256": DIGEST[7:], "size": 1234}]}
                | {"printed": {"agent/stdout.txt": "done\n", "tests/stdout.txt": "FAILED test_empty_file\n"}}
            ],
        }
    )

    submission: str
    release: Annotated[Literal["own", "after-epoch", "never"], Field(description="Who may read logs, by the scheme")]
    trials: list[LoggedTrial]
    hidden: Annotated[int, Field(description="How many more trials are of hidden tasks")]
    left_out: Annotated[int, Field(description="How many trials come after these")]
    next: Annotated[str | None, Field(description="The address of the following page; null on the last one")]


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
        openapi_extra=json_body(RegistrationRequest),
    )
    async def participants(request: Request, segment: Segment) -> Response:
        """Register the key that signs the request as a participant: a key of the registry, or one that was invited.

        A participant that registers again with another name changes its name; boards have it from the next settled epoch on.
        """
        served = site.competition(segment)
        key, asked = await signed(request, served, lambda key: key, spend=False)
        with await receive(request, SMALL_BYTES, asked.body_sha256) as body:
            fields = _read(RegistrationRequest, body.read() or b"{}")
        done = await run_in_threadpool(register, served, key, fields.code, name=fields.name, address=fields.address, asked=asked)
        row = {"participant": done.participant, "new": done.new, "renamed": done.renamed}
        return _json(row, 201 if done.new else 200)

    @router.post(
        "/{segment}/commitments",
        status_code=201,
        response_model=CommitmentAnswer,
        openapi_extra=json_body(CommitmentRequest),
    )
    async def commitments(request: Request, segment: Segment) -> Response:
        """Commit to an archive that is handed in later, where the scheme asks for it; the first time counts."""
        served = site.competition(segment)
        participant, asked = await signed(request, served, served.participant_of)
        with await receive(request, SMALL_BYTES, asked.body_sha256) as body:
            fields = _read(CommitmentRequest, body.read())
        commitment = await run_in_threadpool(uploads.commit, served, participant, fields.digest)
        rules = served.scheme.submission
        first = commitment.epoch + ((rules.reveal if rules else None) or 0)
        return _json({"digest": commitment.digest, "epoch": commitment.epoch, "at": commitment.at, "from_epoch": first}, 201)


def _handing_in(router: APIRouter, site: Site) -> None:
    waiting = asyncio.Semaphore(BOXES)
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
        _, notebook = served.books()
        async with turn(notebook, [f"submission of {participant}"]) as mine:  # nobody takes all boxes, or fills the disk
            if not mine:
                what = "another submission of this participant is being taken in"
                raise HttpProblem(429, what, hint="wait for its answer, then send this one", retry=10)
            return await take(request, served, participant, asked)

    async def take(request: Request, served: ServedCompetition, participant: str, asked: SignedRequest) -> Response:
        most = uploads.archive_bounds(served.scheme).packed
        sealed = request.headers.get("content-type", "").partition(";")[0].strip().lower() == SEALED
        archive = f"sha256:{asked.body_sha256.hex()}"
        try:
            if sealed:
                await run_in_threadpool(_check_sealed, served)
            permission = await run_in_threadpool(uploads.permit, served, participant, archive, sealed=sealed)
            if permission.known is None:
                await run_in_threadpool(uploads.count_attempt, served, permission)
        except HttpProblem:
            with await receive(request, most):  # else the client would see a broken connection, not the sentence
                raise
        try:
            if permission.known is None and not sealed:
                taken = await take_archive(request, served, permission, most, asked.body_sha256, waiting)
                return await run_in_threadpool(_upload, served, taken, 201)
            with await receive(request, most, asked.body_sha256) as body:
                if permission.known is not None:
                    return await run_in_threadpool(_upload, served, permission.known, 200)
                sent = await run_in_threadpool(uploads.seal, served, permission, body)
                return await run_in_threadpool(_upload, served, sent, 201)
        except (AssayError, OSError) as error:
            status = status_of(error)[0] if isinstance(error, AssayError) else 503
            if permission.known is None and (status == 429 or status >= 500):
                await run_in_threadpool(uploads.forgive_attempt, served, permission)
            raise


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
        document = await look(request, progress.submissions, served, participant)
        return answer(request, canonical(document), JSON, headers=OWN)

    @router.get("/{segment}/submissions/{digest}/logs", response_model=LogsAnswer)
    async def log_list(
        request: Request,
        segment: Segment,
        digest: DigestInPath,
        task: Annotated[str | None, Query(max_length=256, description="Only this task, with what its trials printed.")] = None,
        after: AfterNumber = 0,
    ) -> Response:
        """The trials of a submission, as far as the scheme releases them. Its participant signs, unless logs are public."""
        served = site.competition(segment)
        participant = await reader(request, served)
        listed = await look(request, _log_list, served, digest, participant, task, after)
        following = next_page(request, str(after + len(listed["trials"]))) if listed["left_out"] else None
        return answer(request, canonical(listed | {"next": following}), JSON, headers=OWN)

    @router.get("/{segment}/submissions/{digest}/logs/{sha256}", responses=download(TEXT), response_class=Response)
    async def log_file(
        request: Request,
        segment: Segment,
        digest: DigestInPath,
        sha256: Annotated[str, Path(pattern=f"^{logs.SHA}$", description="SHA-256 of the file", examples=["0" * 64])],
    ) -> Response:
        """A released file of a trial, whole. Browsers show it as text and run nothing in it. `Range` resumes a download."""
        served = site.competition(segment)
        participant = await reader(request, served)
        file, log = await look(request, logs.open_released, served, digest, participant, sha256)
        return file_answer(request, file, log.size, OCTETS if log.name.endswith(".tar") else TEXT, sha256, _UNTRUSTED)

    async def reader(request: Request, served: ServedCompetition) -> str | None:
        """The participant who signed the request; None if nobody did."""
        return (await signed(request, served, served.participant_of))[0] if "signature" in request.headers else None


def _log_list(
    served: ServedCompetition, submission: str, participant: str | None, task: str | None, after: int
) -> dict[str, Any]:
    listed = logs.released(served, submission, participant, task, after=after, most=logs.LISTED)
    rows = []
    for trial in listed.trials:
        about = trial.about
        row: dict[str, Any] = {name: getattr(about, name) for name in LoggedTrial.model_fields if hasattr(about, name)}
        row |= {
            "message": trial.message,
            "files": [{name: getattr(file, name) for name in LogFile.model_fields} for file in trial.files],
        }
        if task is not None:
            row["printed"] = {file.name: logs.tail(file) for file in trial.files if file.name.endswith(".txt")}
        rows.append(row)
    about_all = {"submission": submission, "release": logs.policy(served), "hidden": listed.hidden, "left_out": listed.left_out}
    return about_all | {"trials": rows}


def _upload(served: ServedCompetition, upload: Upload, status: int) -> Response:
    row: dict[str, Any] = {name: getattr(upload, name) for name in ("participant", "submission", "archive", "epoch", "at")}
    row["duplicate"] = uploads.is_duplicate(served, upload)
    stands = uploads.copy_standing(served, upload)
    row["copies"] = None if stands is None else stands.document()
    return _json(row, status)


def _json(document: dict[str, Any], status: int = 200) -> Response:
    return Response(canonical(document), status, {"Cache-Control": "no-store"}, JSON)


def _read(model: type[Model], data: bytes) -> Model:
    try:
        return model.model_validate_json(data)
    except ValueError:
        what = f"is not a {model.__name__.removesuffix('Request').lower()}"
        raise BadInput(what, field="body", hint=f"see {model.__name__} in /v1/openapi.json") from None
