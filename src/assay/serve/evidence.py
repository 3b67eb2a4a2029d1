"""The routes of validators: what to judge now, the evidence they send, what they are judging. SPEC 3.0, 6.

Evidence is acknowledged when it is on the disk. The same batch once more is the same answer, so a validator that saw no answer
sends it again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from assay.characters import allowed
from assay.errors import BadInput, printable
from assay.exact import canonical
from assay.folder import csvs, registry
from assay.folder.files import Place
from assay.judge.holds import standings
from assay.ledger import batch as batches
from assay.ledger.batch import Batch
from assay.ledger.intake import accept_all
from assay.ledger.store import Accepted, Store, StoredRecord
from assay.serve.answers import DIGEST, described
from assay.serve.bodies import receive
from assay.serve.http import JSON, PROBLEMS, HttpProblem, answer, of_operator, signed
from assay.serve.logs import is_said_hidden
from assay.serve.shapes import example, json_body
from assay.serve.site import ServedCompetition, Site, now

__all__ = ["BATCHES", "BatchOutcome", "EvidenceOutcome", "routes"]

BATCHES = "application/vnd.assay.batches"
"""The media type of signed batches, an empty line between two."""
HEARTBEAT_BYTES = 64 * 1024
NODE_GONE = timedelta(minutes=5)
"""A validator's node that was not heard for so long is gone: then another one may work with its key."""
CONFLICTS_SHOWN = 10
"""So many conflicts of a batch an answer names."""
BATCHES_AT_ONCE = 1000
"""The most batches of one request."""
_JUDGING = {"participant": "atlas", "submission": DIGEST, "task": "count-words", "done": 3, "total": 80}
_JUDGING |= {"since": "2026-03-01T12:00:00Z"}
_CHARACTERS = "leave out control characters, and those that turn the direction of text around"
_TROUBLE = {"code": "task-uncalibrated", "what": "a task does not calibrate on this machine: t3: its tests fail"}
Segment = Annotated[str, Path(description="The competition's part of the address.", examples=["term-challenge"])]


class JudgingEntry(BaseModel):
    """A submission that a validator judges now: its participant, its task if the kind has tasks, and how far the judging is."""

    model_config = ConfigDict(strict=True)

    participant: Annotated[str, Field(max_length=256)]
    submission: Annotated[str, Field(max_length=256)] = ""
    task: Annotated[str, Field(max_length=256)] = ""
    done: Annotated[int, Field(ge=0, le=10**9)] = 0
    total: Annotated[int, Field(ge=0, le=10**9)] = 0
    since: Annotated[str, Field(max_length=40, description="RFC 3339, UTC")] = ""


class TroubleEntry(BaseModel):
    """A fault on a validator's machine: a code for programs, and one line with what to do. Only the operator reads it."""

    model_config = ConfigDict(strict=True)

    code: Annotated[str, Field(pattern="^[a-z][a-z0-9-]{0,39}$")]
    what: Annotated[str, Field(min_length=1, max_length=300)]


class HeartbeatBody(BaseModel):
    """A validator's heartbeat: what it is judging (at most 64 things), what is wrong there (at most 20), and which node says it.

    A key is for one node at a time. Another one is refused (409) until this one was not heard for five minutes, or it takes over.
    Fields that this version does not know are ignored.
    """

    model_config = described({"judging": [_JUDGING], "troubles": [_TROUBLE], "node": DIGEST[7:39]}) | ConfigDict(strict=True)

    judging: Annotated[list[JudgingEntry], Field(max_length=64)] = []
    troubles: Annotated[list[TroubleEntry], Field(max_length=20)] = []
    node: Annotated[str | None, Field(pattern="^[0-9a-f]{32}$", description="A random number of the node's own")] = None
    take_over: Annotated[bool, Field(description="Take the key from another node, which is refused from then on")] = False
    ends: Annotated[bool, Field(description="This node ends: another one may begin at once")] = False


class ConflictPair(BaseModel):
    """Two different records of one trial: the first was accepted earlier and counts; the later one is only stored."""

    first: dict[str, Any]
    later: dict[str, Any]


class BatchOutcome(BaseModel):
    """The outcome of a batch: `accepted` has records that are new in the ledger, `known` has none, `refused` says why.

    conflicts: how many of its records contradict an earlier one of the same validator; `conflicting` has the first of them.
    """

    batch: str = ""
    outcome: Literal["accepted", "known", "refused"]
    epoch: int = 0
    records: int = 0
    new: int = 0
    conflicts: int = 0
    conflicting: list[ConflictPair] = []
    detail: str = ""
    hint: str = ""


class EvidenceOutcome(BaseModel):
    """The outcome of each batch, in the order in which they were sent."""

    model_config = described(
        {
            "batches": [
                {"batch": DIGEST, "outcome": "accepted", "epoch": 13, "records": 4, "new": 4, "conflicts": 0, "conflicting": []}
            ]
        }
    )

    batches: list[BatchOutcome]


def routes(site: Site) -> APIRouter:
    """The routes of validators."""
    router = APIRouter(prefix="/v1", tags=["validators"], responses=PROBLEMS)
    batches_sent = {"schema": {"type": "string"}, "example": example("batch")}

    @router.post(
        "/{segment}/evidence",
        response_model=EvidenceOutcome,
        openapi_extra={"requestBody": {"required": True, "content": {BATCHES: batches_sent}}},
    )
    async def evidence(request: Request, segment: Segment) -> Response:
        """Hand in signed batches of one validator, as `assay evidence sign` writes them, an empty line between two.

        Each is stored or refused by itself. A batch that is `accepted` or `known` is on the disk.
        """
        served = site.competition(segment)
        validator, asked = await signed(request, served, served.validator_of)
        with await receive(request, batches.BATCH_BYTES, asked.body_sha256) as body:
            outcomes = await run_in_threadpool(_accept_all, served, validator, body.read())
        return answer(request, canonical({"batches": outcomes}), JSON)

    @router.post(
        "/{segment}/heartbeat",
        status_code=204,
        openapi_extra=json_body(HeartbeatBody),
    )
    async def heartbeat(request: Request, segment: Segment) -> Response:
        """Say what is being judged; a validator that says nothing for 90 seconds is shown as silent.

        Entries about a stranger are dropped. A hidden task counts, but its name is not shown. 409: see `node`.
        """
        served = site.competition(segment)
        validator, asked = await signed(request, served, served.validator_of)
        with await receive(request, HEARTBEAT_BYTES, asked.body_sha256) as body:
            content = _heartbeat(body.read())
        await run_in_threadpool(_note_heartbeat, served, validator, content)
        return Response(status_code=204)

    return router


def _accept_all(served: ServedCompetition, validator: str, data: bytes) -> list[dict[str, Any]]:
    """Check, store and acknowledge batches; a wrong one does not stop the others.

    Raises HttpProblem (413) for too many batches, and StoreError or BadInput where the service, not a batch, is at fault.
    """
    parts = data.split(b"\n\n", BATCHES_AT_ONCE)
    if len(parts) > BATCHES_AT_ONCE:
        what = f"there are more than {BATCHES_AT_ONCE} batches"
        raise HttpProblem(413, what, hint="send less at once", field="body")
    (store, _), read = served.books(), [_read(part.rstrip(b"\n") + b"\n", validator) for part in parts]
    own = [batch for batch in read if isinstance(batch, Batch)]
    held = _held(served, own)
    taken = [batch for batch in own if batch.digest not in held]
    verdicts = accept_all(store, taken, served.rules()) if taken else iter(())
    outcomes = list[dict[str, Any]]()
    for batch in read:
        verdict: Accepted | BadInput | HttpProblem
        if isinstance(batch, Batch):
            verdict = held[batch.digest] if batch.digest in held else next(verdicts)
        else:
            verdict = batch
        if isinstance(batch, Batch) and isinstance(verdict, Accepted):
            outcomes.append(_outcome(store, batch, verdict, served.scheme.consensus.max_age_epochs))
        elif isinstance(verdict, BadInput | HttpProblem):
            if of_operator(verdict):  # nothing follows from it about the batch
                raise verdict
            where = f"{verdict.field}: " if verdict.field else ""
            outcomes.append({"outcome": "refused", "detail": printable(where + verdict.what), "hint": printable(verdict.hint)})
    return outcomes


def _held(served: ServedCompetition, own: Sequence[Batch]) -> dict[str, BadInput]:
    """Batch (digest) → why it is not taken yet: it is about a submission that is held, or not compared yet. SPEC 3, 7.

    It stays with its validator, who sends it again, so nothing is lost; it is taken once the submission is released. A batch that
    the ledger has stays there. Raises BadInput, StoreError.
    """
    rules = served.scheme.submission
    if rules is None or rules.copies != "hold" or served.scheme.kind.record.by_participant or not own:
        return {}
    file = served.folder / csvs.PARTICIPANTS.name
    people = registry.participants(csvs.read(file, csvs.PARTICIPANTS), Place(file), served.scheme)
    stands = standings(served.folder, served.scheme, [(person.key, person.submission) for person in people], comparing=True)
    judged = {submission for (_, submission), stand in stands.items() if stand.judged}
    waits = {submission: stand for (_, submission), stand in stands.items() if submission not in judged}
    refusals: dict[str, BadInput] = {}
    store, _ = served.books()
    with store.reading() as view:
        for batch in own:
            about = next((waits[record.submission] for record in batch.records if record.submission in waits), None)
            if about is not None and not view.named(batch.digest):
                hint = "keep the batch and send it again: it is taken once the organiser releases the submission"
                refusals[batch.digest] = BadInput(f"it is about a submission that is not judged now. {about.why}", hint=hint)
    return refusals


def _read(data: bytes, validator: str) -> Batch | BadInput | HttpProblem:
    """The batch in these bytes, or why it is not one of this validator."""
    try:
        batch = batches.read(data)
    except BadInput as error:
        return error
    if batch.statement.validator != validator:
        what = f"the batch is of {batch.statement.validator!r}, and the request is signed by {validator!r}"
        return HttpProblem(403, what, hint="a validator hands in its own batches", stage="validator")
    return batch


def _outcome(store: Store, batch: Batch, stored: Accepted, age: int | None) -> dict[str, Any]:
    """The answer about a batch that is on the disk. age: the scheme's `max_age_epochs`. Raises StoreError."""
    count, conflicting = _conflicts(store, batch.digest, age) if stored.conflicting or not stored.new else (0, [])
    return {
        "batch": batch.digest,
        "outcome": "accepted" if stored.new else "known",
        "epoch": batch.statement.epoch,
        "records": len(batch.records),
        "new": stored.new,
        "conflicts": count,
        "conflicting": conflicting,
    }


def _conflicts(store: Store, digest: str, age: int | None) -> tuple[int, list[dict[str, Any]]]:
    """The number of records in a batch that contradict earlier ones of its validator, and the first of these pairs."""
    with store.reading() as view:
        seqs = [(batch.first_seq, batch.last_seq) for batch in view.named(digest)]
        first, last = next(((first, last) for first, last in seqs if first and last), (0, -1))
        count, pairs = view.conflicts_among(first, last, CONFLICTS_SHOWN, age=age)
    return count, [{"first": _document(pair.first), "later": _document(pair.record)} for pair in pairs]


def _document(stored: StoredRecord) -> dict[str, Any]:
    """A record with its place in the ledger, as `assay evidence list` has it."""
    body: dict[str, Any] = json.loads(stored.body)
    return body | {"seq": stored.seq}


def _note_heartbeat(served: ServedCompetition, validator: str, content: HeartbeatBody) -> None:
    """Note what a validator judges, as everybody may read it: only participants of the registry, and no hidden task by name.

    Raises HttpProblem (409) if another node has the validator's key, StoreError.
    """
    (_, notebook), at = served.books(), now()
    if content.node is not None and content.ends:
        notebook.end_turns(content.node)
    elif content.node is not None:
        name = f"node of {validator}"
        if not notebook.take_turn(name, content.node, at, NODE_GONE, anyway=content.take_over):
            hint = "stop one of them; this one begins five minutes after the other was heard last, or now with --take-over"
            raise HttpProblem(409, "another node works with this key", field="node", hint=hint)
    known = served.rules().participants
    judging = [entry.model_dump() for entry in content.judging if entry.participant in known]
    for entry in judging:
        if is_said_hidden(served.folder, entry["task"]):
            entry["task"] = ""
    notebook.beat(validator, at, judging, [row.model_dump() for row in content.troubles])


def _heartbeat(data: bytes) -> HeartbeatBody:
    try:
        content = HeartbeatBody.model_validate_json(data)
    except ValueError:
        raise BadInput("is not a heartbeat", field="body", hint="see HeartbeatBody in /v1/openapi.json") from None
    for entry in content.judging:  # everybody is shown it
        if not all(map(allowed, (entry.participant, entry.submission, entry.task))):
            raise BadInput("a name has characters that are not allowed", field="body", hint=_CHARACTERS)
    if not all(allowed(entry.what) for entry in content.troubles):
        raise BadInput("a trouble has characters that are not allowed", field="body", hint=_CHARACTERS)
    return content
