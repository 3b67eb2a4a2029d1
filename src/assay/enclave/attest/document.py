"""Reads and writes the attestation document: a statement, its quote, dstack's event log and the collateral to check them.

`assay.attestation/1`, canonical JSON, closed: `statement`, `quote` (hex), `event_log` (dstack's events), `vm_config` (dstack's
description of the machine; no check depends on it) and, optionally, `collateral`.

    report_data = SHA-512("assay/report-data/v1" ‖ 0x00 ‖ canonical JSON of the statement)

The tag separates these quotes from quotes that were made for another purpose; `type` separates the two statements.

RTMR3 is a register that can only be extended: SHA-384(register ‖ digest). dstack extends it by the digest of each event that it
logs, so replaying the log must give the register that the quote states. A digest alone does not prove the payload, so each digest
is computed again from the event:

    version 1    SHA-384(type, 4 bytes little-endian ‖ ":" ‖ name ‖ ":" ‖ payload)
    version 2    SHA-384(canonical JSON of {"event", "event_type", "payload": hex, "version": 2})

A program may add events of its own, so it could lie in three ways, and each is refused:

- a second `compose-hash`: each name that is read here may occur once;
- an event split at another place, since the first form does not mark where a name ends: no name contains a colon;
- an event of another type, whose digest is not computed from its payload: RTMR3 has none.

Events of the other registers come from the firmware. They are not read; those registers are pinned as they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from assay.enclave.attest.collateral import Collateral
from assay.enclave.attest.quote import QUOTE_BYTES
from assay.errors import BadInput, Refused, brief
from assay.exact import canonical, digest
from assay.folder import strict
from assay.folder.files import decode, load
from assay.scheme.fields import Digest, SealKey, Section
from assay.scheme.reading import validate

REPORT_TAG = b"assay/report-data/v1\0"
_Signer = Annotated[str, Field(pattern="^ed25519:[0-9a-f]{64}$")]


class EnclaveStatement(Section):
    """The keys of an enclave that judges a bounty: solutions are sealed to `seal`, results are signed by `signer`."""

    type: Literal["enclave"] = "enclave"
    bounty: Digest
    seal: SealKey
    signer: _Signer


class JudgementStatement(Section):
    """One judgement: the digest of its document, and the key that signs it."""

    type: Literal["judgement"] = "judgement"
    bounty: Digest
    judgement: Digest
    signer: _Signer


Statement = Annotated[EnclaveStatement | JudgementStatement, Field(discriminator="type")]


def report_data(statement: EnclaveStatement | JudgementStatement) -> bytes:
    """The 64 bytes that a quote must carry to be about this statement."""
    document: dict[str, Any] = statement.model_dump(mode="json")
    return hashlib.sha512(REPORT_TAG + canonical(document)).digest()


RTMR3 = 3
RUNTIME_EVENT = 0x08000001
"""The type of the events that dstack logs."""
MOST_EVENTS = 4_096
"""Events of one log."""
EVENT_BYTES = 65_536
"""Bytes of one event's payload."""
COMPOSE_EVENT = "compose-hash"
READ_EVENTS = (COMPOSE_EVENT, "app-id", "instance-id", "key-provider", "os-image-hash")
"""The names of the events that are read."""
_REGISTER = 48

_Hex = Annotated[str, Field(pattern="^([0-9a-f]{2})*$", max_length=2 * EVENT_BYTES)]


class LogEvent(Section):
    """An event of dstack's log. `imr` is the register, 0 to 3; `digest` may be left out where it can be computed."""

    imr: Annotated[int, Field(ge=0, le=3)]
    event_type: Annotated[int, Field(ge=0, le=2**32 - 1)]
    digest: Annotated[str, Field(pattern="^([0-9a-f]{96})?$")] = ""
    event: Annotated[str, Field(max_length=1024)]
    event_payload: _Hex
    version: Literal[1, 2] = 1

    def document(self) -> dict[str, Any]:
        """The event as JSON; version 1 is left out, as dstack does."""
        return self.model_dump(mode="json", exclude={"version"} if self.version == 1 else None)

    def computed(self) -> bytes:
        """The digest of a runtime event, computed from its content."""
        if self.version == 2:
            content = {"event": self.event, "event_type": self.event_type, "payload": self.event_payload, "version": 2}
            return hashlib.sha384(canonical(content)).digest()
        parts = (self.event_type.to_bytes(4, "little"), self.event.encode(), bytes.fromhex(self.event_payload))
        return hashlib.sha384(b":".join(parts)).digest()


def events_of(log: str) -> tuple[LogEvent, ...]:
    """The events of dstack's `event_log`, a JSON text; fields of newer versions are left out. Raises BadInput."""
    listed = strict.parse(log)
    if not isinstance(listed, list):
        raise BadInput("is not a list of events", field="event_log")
    if len(listed) > MOST_EVENTS:
        raise BadInput(f"has more than {MOST_EVENTS} events", field="event_log")
    known = LogEvent.model_fields
    rows = [{name: item[name] for name in known if name in item} if isinstance(item, dict) else item for item in listed]
    try:
        return tuple(validate(LogEvent, row) for row in rows)
    except BadInput as error:
        raise error.at(field="event_log") from None


def replay_log(events: Iterable[LogEvent]) -> bytes:
    """RTMR3 (48 bytes) after its events in the log. Raises Refused for an event whose digest does not match its content."""
    register = bytes(_REGISTER)
    for number, event in enumerate(events):
        if event.imr == RTMR3:
            register = hashlib.sha384(register + _event_digest(number, event)).digest()
    return register


def _event_digest(number: int, event: LogEvent) -> bytes:
    where = f"event {number}, {brief(event.event)}"
    if event.event_type != RUNTIME_EVENT:
        what = f"{where} of RTMR3 has a type whose digest does not come from its payload"
        raise Refused("events", what, expected=f"{RUNTIME_EVENT:#010x}", found=f"{event.event_type:#010x}")
    if ":" in event.event and event.version == 1:
        raise Refused("events", f"{where} has a colon in its name, so that it could be another event cut elsewhere")
    computed = event.computed()
    if event.digest not in ("", computed.hex()):
        raise Refused("events", f"{where} has another digest than its payload", expected=computed.hex(), found=event.digest)
    return computed


def logged_values(events: Sequence[LogEvent]) -> dict[str, bytes]:
    """Name → payload of the events of RTMR3 that are read. Raises Refused if one of them occurs twice."""
    payloads: dict[str, bytes] = {}
    for event in events:
        if event.imr == RTMR3 and event.event in READ_EVENTS:
            if event.event in payloads:
                raise Refused("events", f"{event.event} occurs twice, so that nobody can tell which is dstack's own")
            payloads[event.event] = bytes.fromhex(event.event_payload)
    return payloads


ATTESTATION_SCHEMA = "assay.attestation/1"
ATTESTATION_BYTES = 8 * 2**20
"""Bytes of one document."""


class Attestation(Section):
    """A statement and its proof, not checked yet: `verify` checks them."""

    statement: Statement
    quote: Annotated[str, Field(pattern="^([0-9a-f]{2})+$", max_length=2 * QUOTE_BYTES)]
    event_log: Annotated[tuple[LogEvent, ...], Field(strict=False, max_length=MOST_EVENTS)] = ()
    vm_config: Annotated[str, Field(max_length=65_536)] = ""
    collateral: Collateral | None = None

    def document(self) -> dict[str, Any]:
        """The document as JSON, with its schema's name."""
        document = self.model_dump(mode="json", exclude={"event_log", "collateral"})
        document |= {"schema": ATTESTATION_SCHEMA, "event_log": [event.document() for event in self.event_log]}
        return document if self.collateral is None else document | {"collateral": self.collateral.document()}

    def with_collateral(self, collateral: Collateral | None) -> Self:
        """A copy with other collateral, or without any."""
        return self.model_copy(update={"collateral": collateral})

    @property
    def data(self) -> bytes:
        """The bytes of its file: canonical JSON and a line's end."""
        return canonical(self.document()) + b"\n"

    @property
    def digest(self) -> str:
        """`sha256:…` over the canonical JSON."""
        return digest(self.document())


def parse_attestation(data: bytes, file: Path | str | None = None) -> Attestation:
    """The document in these bytes; raises BadInput with the field that is wrong."""
    if len(data) > ATTESTATION_BYTES:
        raise BadInput(f"is larger than {ATTESTATION_BYTES} bytes", file=file, hint="is this an attestation?")
    try:
        document = strict.parse(decode(data, file))
    except BadInput as error:
        raise error.at(file=file) from None
    if not isinstance(document, dict) or document.get("schema") != ATTESTATION_SCHEMA:
        schema = brief(document.get("schema")) if isinstance(document, dict) else "no object"
        raise BadInput(f"is not an attestation (schema: {schema})", file=file, hint=f"its schema is {ATTESTATION_SCHEMA}")
    rest = {name: value for name, value in document.items() if name != "schema"}
    return validate(Attestation, rest, file=file)


def read_attestation(file: Path) -> Attestation:
    """The document in a file; raises BadInput."""
    return parse_attestation(load(file, ATTESTATION_BYTES, hint="an enclave's is at its /attestation"), file)


@dataclass(frozen=True)
class DstackReply:
    """dstack's own answer to GetQuote: a bare quote, the log that leads to RTMR3, and the requested report data."""

    quote: bytes
    events: tuple[LogEvent, ...]
    report_data: bytes

    def check(self, quoted: str) -> None:
        """Refuse a reply whose quote binds other report data (in hex) than the reply states. Short data end in zeros."""
        if self.report_data.ljust(64, b"\0").hex() != quoted:
            what = "the quote is about something else than dstack's reply says"
            raise Refused("report_data", what, expected=self.report_data.hex(), found=quoted)


def parse_reply(data: bytes, file: Path | str | None = None) -> DstackReply | None:
    """dstack's reply `{quote, event_log, report_data, vm_config}` in these bytes; None if they are something else.

    Fields of newer versions are left out. Raises BadInput for a reply with an invalid field.
    """
    if len(data) > ATTESTATION_BYTES or not data.lstrip().startswith(b"{"):
        return None
    try:
        reply = strict.parse(decode(data, file))
    except BadInput as error:
        raise error.at(file=file) from None
    if not isinstance(reply, dict) or "schema" in reply or not {"quote", "event_log"} <= reply.keys():
        return None
    log = reply["event_log"]
    if not isinstance(log, str):
        raise BadInput("is not a text of JSON", file=file, field="event_log", hint="give dstack's reply unchanged")
    try:
        events = events_of(log) if log else ()
    except BadInput as error:
        raise error.at(file=file, field="" if error.field.startswith("event_log") else "event_log") from None
    return DstackReply(_hex_field(reply, "quote", file), events, _hex_field(reply, "report_data", file))


def _hex_field(reply: dict[str, Any], name: str, file: Path | str | None) -> bytes:
    try:
        return bytes.fromhex(reply.get(name, "").removeprefix("0x"))
    except (ValueError, AttributeError):
        raise BadInput("is not hex", file=file, field=name, hint="give dstack's reply unchanged") from None
