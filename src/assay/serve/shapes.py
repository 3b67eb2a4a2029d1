"""The shapes of the API's answers, for OpenAPI: what is sent is made from the ledger, and these models only describe it."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Annotated, Any

from pydantic import BaseModel, Field

from assay.conformance.schemas import schemas
from assay.serve.answers import DIGEST, described, with_nulls
from assay.serve.downloads import DOWNLOADS
from assay.serve.http import JSON

__all__ = ["document", "download", "example", "json_body"]

Json = dict[str, Any]
_KEY = "example.org/term+6c1ef3ad+AY2mIK7nc1nDPZt0kxJB5v2Rb0Wl9z6H7s8wJX0SyZb2"
_ROW = {"name": "term-challenge", "board": "/term-challenge/", "api": "/v1/term-challenge", "kind": "tests"}
_ROW |= {"open": 13, "settled": 12, "origin": "example.org/term", "vkey": _KEY}  # type: ignore[dict-item]


class CompetitionRow(BaseModel):
    """A competition: its addresses here, the epochs, and its log."""

    model_config = described(_ROW)

    name: str
    board: str
    api: str
    kind: str
    open: Annotated[int | None, Field(description="The epoch that is open now; null without a ledger")]
    settled: Annotated[int | None, Field(description="The last settled epoch")]
    origin: Annotated[str | None, Field(description="The name of the log")]
    vkey: Annotated[str | None, Field(description="The public key of the log, for `assay verify --key`")]


class Competitions(BaseModel):
    """The competitions of a service."""

    model_config = described({"competitions": [_ROW]})

    competitions: list[CompetitionRow]


class CompetitionDetail(CompetitionRow):
    """A competition with its rules."""

    model_config = described(
        _ROW | {"scheme": {}, "digest": DIGEST, "participants": 6, "validators": 4, "tasks": 80, "task_set": DIGEST}
    )

    scheme: Annotated[Json, Field(description="The rules as JSON, every default filled in; `digest` is over this")]
    digest: str
    participants: int
    validators: int
    tasks: int
    task_set: Annotated[str | None, Field(description="The digest of the task set; null for a kind without one")]


class ParticipantEntry(BaseModel):
    """A participant: key, name, uid on the chain, current submission and since when."""

    key: str
    name: str
    uid: int | None
    submission: str | None
    submitted_at: Annotated[str | None, Field(description="RFC 3339, UTC")]


class Page(BaseModel):
    """A page of a list."""

    next: Annotated[str | None, Field(description="The address of the following page; null on the last one")]


class Participants(Page):
    """Participants by key."""

    model_config = described(
        {
            "participants": [
                {"key": "atlas", "name": "Atlas", "uid": 7, "submission": DIGEST, "submitted_at": "2026-03-01T12:00:00Z"}
            ],
            "next": "/v1/term-challenge/participants?after=atlas",
        }
    )

    participants: list[ParticipantEntry]


class HeartbeatRow(BaseModel):
    """A validator's last heartbeat: the submissions it judges, and the time."""

    at: str
    judging: list[Json]


class ValidatorRow(BaseModel):
    """A validator: key, name, stake in rao as text, last heartbeat."""

    key: str
    name: str
    stake: str
    heartbeat: HeartbeatRow | None


class Validators(Page):
    """Validators by key."""

    model_config = described(
        {
            "validators": [
                {
                    "key": "5f1d0a…",
                    "name": "val-1",
                    "stake": "1000000000",
                    "heartbeat": {"at": "2026-03-01T12:00:00Z", "judging": [{"participant": "atlas", "task": "t1"}]},
                }
            ],
            "next": None,
        }
    )

    validators: list[ValidatorRow]


class EpochEntry(BaseModel):
    """A settled epoch: the digest of its receipt, and its place in the log (from 0)."""

    epoch: int
    receipt: str
    position: int


class EpochList(Page):
    """Settled epochs, the newest first."""

    model_config = described({"epochs": [{"epoch": 12, "receipt": DIGEST, "position": 11}], "next": None})

    epochs: list[EpochEntry]


class BoardRow(BaseModel):
    """A row of the board. Exact numbers are text; what the scheme does not have is null."""

    place: int
    rank: str
    participant: str
    name: str
    uid: int | None
    score: str
    low: Annotated[float | None, Field(description="The interval of the pass rate; it decides nothing")]
    high: float | None
    tied_with_next: bool
    kept: Annotated[str | None, Field(description="What decay leaves of the share")]
    share: str | None
    u16: Annotated[int | None, Field(description="The weight for the chain")]
    net: Annotated[str | None, Field(description="The payout in wei")]


class Board(Page):
    """The board of an epoch, best first."""

    model_config = described(
        {
            "epoch": 12,
            "rows": [
                {
                    "place": 1,
                    "rank": "1",
                    "participant": "atlas",
                    "name": "Atlas",
                    "uid": 7,
                    "score": "0.875000000",
                    "low": 0.71,
                    "high": 0.95,
                    "tied_with_next": False,
                    "kept": "1.000000000",
                    "share": "0.313641000",
                    "u16": 20550,
                    "net": None,
                }
            ],
            "next": None,
        }
    )

    epoch: int
    rows: list[BoardRow]


class Records(Page):
    """Records of evidence in the order of their acceptance; each is one of record.schema.json, with its `seq`."""

    model_config = described({"epoch": 12, "records": [{"kind": "tests", "epoch": 12, "seq": 1}], "next": None})

    epoch: int
    records: list[Json]


@cache
def _published() -> dict[str, Json]:
    by_name = {name.removesuffix(".schema.json"): schema for name, schema in schemas().items()}
    return {name: {key: value for key, value in schema.items() if key != "$schema"} for name, schema in by_name.items()}


_EXPLANATION: Json = {
    "title": "The story of one participant, assay.explanation/1.",
    "type": "object",
    "required": ["schema", "participant", "epoch", "scheme", "settlement", "status", "reason", "summary", "chapters"],
    "properties": {
        "schema": {"const": "assay.explanation/1"},
        "participant": {"type": "string"},
        "epoch": {"type": "integer"},
        "scheme": {"type": "object"},
        "settlement": {"type": "string"},
        "status": {"type": "string"},
        "reason": {"type": ["string", "null"]},
        "summary": {"type": "string"},
        "chapters": {"type": "array", "items": {"type": "object"}},
    },
}


def example(name: str) -> Any:
    """An example that is too long to write by hand: a real answer about a small competition, from examples.json."""
    return _examples()[name]


@cache
def _examples() -> Json:
    examples: Json = json.loads((files("assay.serve") / "examples.json").read_bytes())
    return examples


def document(name: str) -> dict[int | str, Json]:
    """The responses of a route that answers with a published document: `settlement`, `receipt`, `proof`, `explanation`."""
    schema = _EXPLANATION if name == "explanation" else _published()[name]
    content = {JSON: {"schema": _inlined(schema), "example": with_nulls(example(name))}}
    return {200: {"description": schema["title"], "content": content}}


def json_body(model: type[BaseModel]) -> Json:
    """The `openapi_extra` of a route that reads JSON itself, after it has checked the signature."""
    return {"requestBody": {"required": True, "content": {JSON: {"schema": _inlined(model.model_json_schema())}}}}


def _inlined(schema: Json) -> Json:
    """A schema without references: those of a document of its own mean another place inside of OpenAPI."""

    def plain(value: Any, whole: Json) -> Any:
        if isinstance(value, dict):
            if isinstance(ref := value.get("$ref"), str):
                file, _, pointer = ref.partition("#")
                place = whole if not file else _published()[file.removesuffix(".schema.json")]
                target: Any = place
                for part in pointer.split("/")[1:]:
                    target = target[part]
                return plain(target, place)
            return {key: plain(part, whole) for key, part in value.items() if key != "$defs"}
        return [plain(part, whole) for part in value] if isinstance(value, list) else value

    inlined: Json = plain(schema, schema)
    return inlined


def download(media: str, example: str = "") -> dict[int | str, Json]:
    """The responses of a route that answers with a file. example: of a text; bytes have none."""
    content: Json = {"schema": {"type": "string"} if example else {"type": "string", "format": "binary"}}
    if example:
        content["example"] = example
    return {200: {"description": "The file", "content": {media.partition(";")[0]: content}}, **DOWNLOADS}
