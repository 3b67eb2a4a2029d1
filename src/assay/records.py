"""Participants, validators, and the records of evidence that judges write. SPEC 7.

A record is flat, frozen, and of one kind. It keeps what a judge saw as it came: a rubric's judgement may be malformed; it is kept
and counts as unjudged. SPEC 2.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, PlainSerializer, TypeAdapter, ValidationError, model_validator
from pydantic_core import PydanticCustomError, SchemaValidator, core_schema

from assay import kind as kinds
from assay.characters import allowed
from assay.errors import BadInput
from assay.exact import NANO, canonical, digest, nanos, text
from assay.scheme.fields import (
    CANONICAL_INSTANT,
    LINE,
    READ_INSTANT,
    Count,
    Digest,
    Epoch,
    Instant,
    Key,
    OneLine,
    Rao,
    Section,
    Whole,
    checked,
)
from assay.scheme.reading import refusal, union_tag

__all__ = [
    "Evidence",
    "Given",
    "History",
    "PanelAnswer",
    "Participant",
    "Points",
    "Pulled",
    "Randomness",
    "Record",
    "Rubric",
    "Tests",
    "Validator",
    "Workflow",
    "record",
    "records",
]

MAX_UNITS = 10**9
"""Costs, budgets and seconds stay below this, so that their nanos fit 64 bits."""
PANEL_ANSWERS = 100
"""The most answers that a record of a panel holds; a scheme asks for fewer."""


@dataclass(frozen=True, slots=True)
class Participant:
    """A participant: hotkey or account, uid if registered, submission (digest; "" = none) and when that came. SPEC 7."""

    key: str
    uid: int | None = None
    name: str = ""
    submission: str = ""
    submitted_at: datetime | None = None
    last_reset_epoch: int | None = None
    accepted_epoch: int | None = None
    address: str | None = None


@dataclass(frozen=True, slots=True)
class Validator:
    """A validator: a key and its stake in rao, 0 … 2^63 − 1. SPEC 1, 7."""

    key: str
    stake: int
    name: str = ""
    failed_audit: str = ""
    """Digest of a signed audit that saw false claims of it, "" for none. docs/auditing.md."""


@dataclass(frozen=True, slots=True)
class History:
    """A row of history.csv: an epoch's top score (nanos), the submission that had it, the task set ("" = unknown). SPEC 4, 7."""

    epoch: int
    top_score: int
    submission: str = ""
    task_set: str = ""


@dataclass(frozen=True, slots=True)
class Randomness:
    """The public randomness of an epoch: 32 bytes. SPEC 3.0."""

    epoch: int
    value: bytes


_Hash = Annotated[str, Field(pattern="^0x[0-9a-f]{64}$")]


class Pulled(Section):
    """The source of uids and stakes: a block of a chain (named by its block 0), and the digest of what was read there."""

    chain: _Hash
    netuid: Annotated[int, Field(ge=0, le=65_535)]
    mechanism: Annotated[int, Field(ge=0, le=255)]
    block: Whole
    hash: _Hash
    spec_version: Annotated[int, Field(ge=0, le=2**32 - 1)]
    rows: Digest


class Registered(Section):
    """The holder of a uid at the pulled block: its stake weight, validator's permit, and the block in which it got the uid."""

    uid: Annotated[int, Field(ge=0, le=65_535)]
    hotkey: Key
    stake: Rao
    permit: bool
    registered: Whole


def _score(value: object) -> int:
    count = nanos(value)
    if count > NANO:
        raise BadInput(f"{value!r} is more than 1", hint="a score is from 0 to 1")
    return count


def _amount(value: object) -> int:
    count = nanos(value)
    if count >= MAX_UNITS * NANO:
        raise BadInput(f"{value!r} is too large", hint=f"it must be below {MAX_UNITS}")
    return count


_TEXT = PlainSerializer(text, return_type=str)
_PATTERN = Field(json_schema_extra={"type": "string", "pattern": "^[0-9]+(\\.[0-9]{1,9})?$"})
READ_FRACTION, READ_AMOUNT = checked(_score), checked(_amount)
Fraction = Annotated[int, READ_FRACTION, _TEXT, _PATTERN]
"""0 … 1 as nanos, a decimal string in JSON."""
Amount = Annotated[int, READ_AMOUNT, _TEXT, _PATTERN]
"""At least 0, as nanos of a unit (money, seconds), a decimal string in JSON."""
Submission = Annotated[str, Field(max_length=256, json_schema_extra=LINE), OneLine]


class Record(Section):
    """The fields that every record of evidence has. `seq` is the ledger's order of acceptance. SPEC 3.0, 7."""

    epoch: Epoch
    validator: Key
    participant: Key
    submission: Submission
    observed_at: Instant
    seq: Count | None = None

    if TYPE_CHECKING:
        kind: str

    shared_key: ClassVar[bool] = True
    """Whether the participant is not part of the key: records that differ only in it are the same. SPEC 3.0."""
    parts: ClassVar[tuple[str, ...]] = ()
    """The fields that tell one validator's records about one submission (or participant) apart. SPEC 3.0."""
    by_participant: ClassVar[bool] = False
    """Whether the evidence is about the participant, not the submission: then no participant is a duplicate. SPEC 2, 2.4."""
    holds_json: ClassVar[bool] = False
    """Whether a field has objects or numbers that others wrote; they need a full RFC 8785 encoder."""

    @property
    def key(self) -> tuple[object, ...]:
        """The key that a second record about the same thing shares with this one. SPEC 3.0."""
        about = self.submission if self.shared_key else self.participant
        return (self.kind, self.validator, about, *(getattr(self, part) for part in self.parts))

    @cached_property
    def slot(self) -> tuple[object, ...]:
        """The slot that only one record may take: the key, with the participant if the record has no submission. SPEC 3.0."""
        return (*self.key, self.participant) if self.shared_key and not self.submission else self.key

    def document(self) -> dict[str, Any]:
        """The record as JSON, defaults filled in, fractions normalised, without `seq`, which the ledger gives. SPEC 6."""
        return self.model_dump(mode="json", exclude_none=True, exclude={"seq"})

    @cached_property
    def content(self) -> dict[str, Any]:
        """The content that two records of one key must share; otherwise they conflict."""
        return self.model_dump(exclude={"seq", "participant"} if self.shared_key else {"seq"})

    @cached_property
    def digest(self) -> str:
        """`sha256:…` of the canonical JSON of `document()`. SPEC 6."""
        return digest(self.document())


class Tests(Record):
    """One trial of one task. SPEC 2.1."""

    __test__ = False
    parts: ClassVar[tuple[str, ...]] = ("task", "trial")
    kind: Literal["tests"]
    task: Key
    outcome: Literal["pass", "fail", "timeout", "error"]
    trial: Annotated[int, Field(ge=1, le=10**9)] = 1
    image: Annotated[str, Field(max_length=256)] | None = None
    """The digest of what the box started from, where the judge says it; nothing is computed from it."""
    work: Annotated[str, Field(max_length=256)] | None = None
    """The SHA-256 of the agent's finished work, where it is kept: `[evidence] keep = "work"`. Nothing is computed from it."""


class Workflow(Record):
    """One task of a workflow, as it ran: quality, steps, cost, time and troubles. SPEC 2.2."""

    shared_key: ClassVar[bool] = False
    parts: ClassVar[tuple[str, ...]] = ("epoch", "task")
    kind: Literal["workflow"]
    task: Key
    quality: Fraction = 0
    steps_completed: Count = 0
    steps_total: Count = 0
    cost: Amount = 0
    budget: Amount = 0
    seconds: Amount = 0
    max_seconds: Amount = 0
    retries: Count = 0
    declared_retries: Count = 0
    timeouts: Count = 0
    hard_failures: Count = 0
    outcome: Literal["ran", "invalid", "service-error"] = "ran"

    @model_validator(mode="after")
    def _ran_whole(self) -> Workflow:
        if self.outcome == "ran":
            needed = ("quality", "steps_completed", "steps_total", "cost", "budget", "seconds", "max_seconds")
            for name in needed:
                if name not in self.model_fields_set:
                    raise PydanticCustomError("assay", "{name} is missing; a task that ran has it", {"name": name})
            for name in ("steps_total", "budget", "max_seconds"):
                if getattr(self, name) == 0:
                    raise PydanticCustomError("assay", "{name} is 0; it must be more than 0", {"name": name})
        if self.steps_completed > self.steps_total:
            raise PydanticCustomError("assay", "steps_completed is more than steps_total; correct one of them")
        return self


class PanelAnswer(Section):
    """One answer of a panel, as it came; anything malformed in it makes it no vote. SPEC 2.3."""

    judge: Key
    """The bounty's name of the model that answered."""
    outcome: Literal["judged", "unjudged"] = "judged"
    baseline: Any = None
    checks: Any = None
    verdict: Any = None


class Rubric(Record):
    """A judgement by rubric: baseline, checks, verdict, as they came; anything malformed in them makes it unjudged. SPEC 2.3."""

    holds_json: ClassVar[bool] = True
    kind: Literal["rubric"]
    baseline: Any = None
    checks: Any = None
    verdict: Any = None
    outcome: Literal["judged", "unjudged"] = "judged"
    injection_suspected: bool | None = None
    attestation: Annotated[str, Field(max_length=256)] | None = None
    quotes: dict[str, str] | None = None
    panel: Annotated[tuple[PanelAnswer, ...], Field(strict=False, min_length=1, max_length=PANEL_ANSWERS)] | None = None
    """Every answer of a panel, in its order; the answers above are then what the panel decides."""

    @cached_property
    def content(self) -> dict[str, Any]:
        """As for any record, but with the answers as JSON: for Python `true` and 1 are equal, and only `true` is an answer."""
        panel = None if self.panel is None else [answer.model_dump(mode="json", exclude_none=True) for answer in self.panel]
        answers = canonical([self.baseline, self.checks, self.verdict, panel])
        left = {"seq", "participant", "baseline", "checks", "verdict", "panel"}
        return self.model_dump(exclude=left) | {"answers": answers}


class Points(Record):
    """One repository's issues in one epoch. SPEC 2.4."""

    shared_key: ClassVar[bool] = False
    parts: ClassVar[tuple[str, ...]] = ("repository", "epoch")
    by_participant: ClassVar[bool] = True
    kind: Literal["points"]
    repository: Key
    valid: Count = 0
    invalid: Count = 0
    revoked_valid: Count = 0
    revoked_invalid: Count = 0
    starred: bool = False


class Given(Record):
    """A score that arrives already computed. SPEC 2.5."""

    parts: ClassVar[tuple[str, ...]] = ("epoch",)
    kind: Literal["given"]
    score: Fraction


if TYPE_CHECKING:
    Evidence = Record
else:
    Evidence = Tests | Workflow | Rubric | Points | Given
"""A record of any kind. The published JSON schema has only the five kinds of SPEC 2."""


def record(content: object) -> Evidence:
    """The record in parsed JSON, of any installed kind; raises BadInput with the field."""
    name = content.get("kind") if isinstance(content, dict) else None
    if isinstance(content, dict) and not kinds.known(name):
        raise union_tag("kind")
    model = kinds.find(str(name)).record if isinstance(content, dict) else Record
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise refusal(error, model) from None


def records(lines: Sequence[bytes], kind: str, *, flat: bool = False) -> list[Evidence] | None:
    """The records of a kind on lines of JSON, read together: several times as fast as one by one.

    flat: it is known that each line is one object that has no other inside, and no key twice. None if `record` must read them one
    by one: one may be wrong, or has what is rare (an escape, an object inside). The result is the same as `record` gives for each
    line. SPEC 1, 7.
    """
    validator, names = _together(kind)
    text = b"[%b]" % b",".join(lines)
    if validator is None or not _plain(text) or not (flat or _one_each(lines)):
        return None
    try:
        parsed: list[Evidence] = validator.validate_json(text)
    except ValidationError:
        return None
    if flat:
        return parsed
    # A key that is twice in one object is in the text more often than in the records; so is a value that is a field's name.
    keys = sum(text.count(name) for name in names)
    return parsed if len(parsed) == len(lines) and keys == sum(len(item.model_fields_set) for item in parsed) else None


def _plain(text: bytes) -> bool:
    """True if the text has no escape and no character that `assay.characters` refuses: its strings need no further check."""
    if b"\\" in text:
        return False
    if not text.translate(None, _PRINTABLE):
        return True
    try:
        return allowed(text.decode("utf-8"))
    except UnicodeDecodeError:
        return False


_PRINTABLE = bytes(range(0x20, 0x7F))


def _one_each(lines: Sequence[bytes]) -> bool:
    """Whether each line is one object without another inside, and without braces in its strings."""
    text = b"\n".join(lines)
    between = text.count(b"}\n{") == len(lines) - 1 and text[:1] == b"{" and text[-1:] == b"}"
    return between and text.count(b"{") == text.count(b"}") == len(lines)


@cache
def _together(kind: str) -> tuple[SchemaValidator | None, tuple[bytes, ...]]:
    """The validator of a JSON list of records of a kind whose characters are checked already; and its fields, in quotes."""
    model = kinds.find(kind).record
    names = tuple(f'"{name}"'.encode() for name in model.model_fields)
    if model.holds_json:
        return None, names
    changed = _without_characters(TypeAdapter(list[model]).core_schema)  # type: ignore[valid-type]
    return SchemaValidator(changed, _use_prebuilt=False), names  # else it would take the class's own validator


def _without_characters(schema: Any) -> Any:
    """A schema of pydantic without the check of characters, and with canonical instants read by pydantic itself."""
    if isinstance(schema, list):
        return [_without_characters(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    function = schema.get("function")
    called = function.get("function") if isinstance(function, dict) else None
    inner = {name: value if name in ("cls", "metadata") else _without_characters(value) for name, value in schema.items()}
    if called is OneLine.func:
        return inner["schema"]
    if called is READ_INSTANT.func:
        text_first: list[Mapping[str, Any]] = [core_schema.str_schema(pattern=CANONICAL_INSTANT, strict=True)]
        return core_schema.chain_schema(
            [*text_first, core_schema.datetime_schema(strict=False)], serialization=inner["serialization"]
        )
    return inner
