"""The attestation document: a statement, the quote that binds it, and what it takes to check the quote offline.

`assay.attestation/1`, canonical JSON, closed: `statement`, `quote` (hex), `event_log` (dstack's events), `vm_config` (dstack's
words on the machine, which nothing rests on) and, so that nothing need be fetched, `collateral`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field

from assay.enclave.attest.collateral import Collateral
from assay.enclave.attest.events import EVENTS, Event, events_of
from assay.enclave.attest.quote import QUOTE_BYTES
from assay.enclave.attest.statement import Statement
from assay.errors import BadInput, Refused, brief
from assay.exact import canonical, digest
from assay.folder import strict
from assay.folder.text import decode, load
from assay.scheme.fields import Section
from assay.scheme.reading import validate

__all__ = ["ATTESTATION_BYTES", "SCHEMA", "Attestation", "Reply", "parse", "read", "reply_in"]

SCHEMA = "assay.attestation/1"
ATTESTATION_BYTES = 8 * 2**20
"""Bytes of one document."""


class Attestation(Section):
    """A statement and its proof. Nothing of it is checked yet: `verify` does."""

    statement: Statement
    quote: Annotated[str, Field(pattern="^([0-9a-f]{2})+$", max_length=2 * QUOTE_BYTES)]
    event_log: Annotated[tuple[Event, ...], Field(strict=False, max_length=EVENTS)] = ()
    vm_config: Annotated[str, Field(max_length=65_536)] = ""
    collateral: Collateral | None = None

    def document(self) -> dict[str, Any]:
        """The document as JSON, with its schema's name."""
        found = self.model_dump(mode="json", exclude={"event_log", "collateral"})
        found |= {"schema": SCHEMA, "event_log": [one.document() for one in self.event_log]}
        return found if self.collateral is None else found | {"collateral": self.collateral.document()}

    def with_collateral(self, collateral: Collateral | None) -> Self:
        """The same with other collateral, or without."""
        return self.model_copy(update={"collateral": collateral})

    @property
    def data(self) -> bytes:
        """The bytes of its file: canonical JSON and a line's end."""
        return canonical(self.document()) + b"\n"

    @property
    def digest(self) -> str:
        """`sha256:…` over the canonical JSON."""
        return digest(self.document())


def parse(data: bytes, file: Path | str | None = None) -> Attestation:
    """The document in these bytes; raises BadInput with the field that is wrong."""
    if len(data) > ATTESTATION_BYTES:
        raise BadInput(f"is larger than {ATTESTATION_BYTES} bytes", file=file, hint="is this an attestation?")
    try:
        found = strict.parse(decode(data, file))
    except BadInput as error:
        raise error.at(file=file) from None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        said = brief(found.get("schema")) if isinstance(found, dict) else "no object"
        raise BadInput(f"is not an attestation (schema: {said})", file=file, hint=f"its schema is {SCHEMA}")
    rest = {name: value for name, value in found.items() if name != "schema"}
    return validate(Attestation, rest, file=file)


def read(file: Path) -> Attestation:
    """The document in a file; raises BadInput."""
    return parse(load(file, ATTESTATION_BYTES, hint="an enclave's is at its /attestation"), file)


@dataclass(frozen=True)
class Reply:
    """dstack's own answer to GetQuote: a bare quote, the log that leads to RTMR3, and what it was asked to bind."""

    quote: bytes
    events: tuple[Event, ...]
    report_data: bytes

    def check(self, found: str) -> None:
        """Refuse a reply whose quote binds something else (its report data in hex) than it says. Short data end in zeros."""
        if self.report_data.ljust(64, b"\0").hex() != found:
            what = "the quote is about something else than dstack's reply says"
            raise Refused("report_data", what, expected=self.report_data.hex(), found=found)


def reply_in(data: bytes, file: Path | str | None = None) -> Reply | None:
    """dstack's reply `{quote, event_log, report_data, vm_config}` in these bytes, as it is; None if they are something else.

    What newer versions say beside is left out. Raises BadInput for a reply with a field that cannot be one.
    """
    if len(data) > ATTESTATION_BYTES or not data.lstrip().startswith(b"{"):
        return None
    try:
        found = strict.parse(decode(data, file))
    except BadInput as error:
        raise error.at(file=file) from None
    if not isinstance(found, dict) or "schema" in found or not {"quote", "event_log"} <= found.keys():
        return None
    log = found["event_log"]
    if not isinstance(log, str):
        raise BadInput("is not a text of JSON", file=file, field="event_log", hint="give dstack's reply as it came")
    try:
        events = events_of(log) if log else ()
    except BadInput as error:
        raise error.at(file=file, field="" if error.field.startswith("event_log") else "event_log") from None
    return Reply(_hex(found, "quote", file), events, _hex(found, "report_data", file))


def _hex(found: dict[str, Any], name: str, file: Path | str | None) -> bytes:
    try:
        return bytes.fromhex(found.get(name, "").removeprefix("0x"))
    except (ValueError, AttributeError):
        raise BadInput("is not hex", file=file, field=name, hint="give dstack's reply as it came") from None
