"""The log that leads to RTMR3, and what dstack writes in it: the compose hash, the app's id, where its keys come from.

RTMR3 is a register that can only be extended: SHA-384(register ‖ digest). dstack extends it by the digest of each event that it
logs; replaying the log must give the register that the quote states. A digest alone says nothing of a payload, so each is
computed anew from the event:

    version 1    SHA-384(type, 4 bytes little-endian ‖ ":" ‖ name ‖ ":" ‖ payload)
    version 2    SHA-384(canonical JSON of {"event", "event_type", "payload": hex, "version": 2})

Three lies are left to a program that may add events of its own, which dstack lets it, and each is refused:

- a second `compose-hash`: the names that are read here are there once;
- an event cut in another place, since the first form does not say where a name ends: no name has a colon;
- an event of another type, whose digest is not computed from its payload: RTMR3 has none.

Events of the other registers are the firmware's. They are not looked at; those registers are pinned as they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from assay.errors import BadInput, Refused, brief
from assay.exact import canonical
from assay.folder import strict
from assay.scheme.fields import Section
from assay.scheme.reading import validate

__all__ = ["COMPOSE", "EVENTS", "NAMES", "RTMR3", "RUNTIME", "Event", "events_of", "logged", "replay"]

RTMR3 = 3
RUNTIME = 0x08000001
"""The type of the events that dstack logs."""
EVENTS = 4_096
"""Events of one log."""
EVENT_BYTES = 65_536
"""Bytes of one event's payload."""
COMPOSE = "compose-hash"
NAMES = (COMPOSE, "app-id", "instance-id", "key-provider", "os-image-hash")
"""The events that are read."""
_REGISTER = 48

_Hex = Annotated[str, Field(pattern="^([0-9a-f]{2})*$", max_length=2 * EVENT_BYTES)]


class Event(Section):
    """An event of the log, as dstack has it. `imr` is the register, 0 to 3; `digest` may be left out where it can be computed."""

    imr: Annotated[int, Field(ge=0, le=3)]
    event_type: Annotated[int, Field(ge=0, le=2**32 - 1)]
    digest: Annotated[str, Field(pattern="^([0-9a-f]{96})?$")] = ""
    event: Annotated[str, Field(max_length=1024)]
    event_payload: _Hex
    version: Literal[1, 2] = 1

    def document(self) -> dict[str, Any]:
        """The event as JSON; version 1 goes without saying, as in dstack."""
        return self.model_dump(mode="json", exclude={"version"} if self.version == 1 else None)

    def computed(self) -> bytes:
        """The digest of a runtime event by what it says."""
        if self.version == 2:
            said = {"event": self.event, "event_type": self.event_type, "payload": self.event_payload, "version": 2}
            return hashlib.sha384(canonical(said)).digest()
        parts = (self.event_type.to_bytes(4, "little"), self.event.encode(), bytes.fromhex(self.event_payload))
        return hashlib.sha384(b":".join(parts)).digest()


def events_of(log: str) -> tuple[Event, ...]:
    """The events of dstack's `event_log`, a JSON text; what newer versions say beside is left out. Raises BadInput."""
    found = strict.parse(log)
    if not isinstance(found, list):
        raise BadInput("is no list of events", field="event_log")
    if len(found) > EVENTS:
        raise BadInput(f"has more than {EVENTS} events", field="event_log")
    known = Event.model_fields
    rows = [{name: one[name] for name in known if name in one} if isinstance(one, dict) else one for one in found]
    try:
        return tuple(validate(Event, row) for row in rows)
    except BadInput as error:
        raise error.at(field="event_log") from None


def replay(events: Iterable[Event]) -> bytes:
    """RTMR3 (48 bytes) after the log's own events of it; raises Refused for an event that is not what its digest is of."""
    register = bytes(_REGISTER)
    for number, event in enumerate(events):
        if event.imr == RTMR3:
            register = hashlib.sha384(register + _digest(number, event)).digest()
    return register


def _digest(number: int, event: Event) -> bytes:
    where = f"event {number}, {brief(event.event)}"
    if event.event_type != RUNTIME:
        what = f"{where} of RTMR3 has a type whose digest does not come from its payload"
        raise Refused("events", what, expected=f"{RUNTIME:#010x}", found=f"{event.event_type:#010x}")
    if ":" in event.event and event.version == 1:
        raise Refused("events", f"{where} has a colon in its name, so that it could be another event cut elsewhere")
    found = event.computed()
    if event.digest not in ("", found.hex()):
        raise Refused("events", f"{where} has another digest than its payload", expected=found.hex(), found=event.digest)
    return found


def logged(events: Sequence[Event]) -> dict[str, bytes]:
    """Name → payload of the events of RTMR3 that are read; raises Refused if one of them is there twice."""
    found: dict[str, bytes] = {}
    for event in events:
        if event.imr == RTMR3 and event.event in NAMES:
            if event.event in found:
                raise Refused("events", f"{event.event} is there twice, so that nobody can say which is dstack's own")
            found[event.event] = bytes.fromhex(event.event_payload)
    return found
