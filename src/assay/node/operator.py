"""An operator's node: one process that serves a season, closes its epochs, and publishes them.

    operator ─┬─ service          `assay serve`, on a socket that the operator keeps open
              ├─ clock            begun when an epoch ends; it waits for the validators, closes the epoch, and ends
              └─ a watch          for each target of publish.toml: `assay publish --watch`

Each of them is a fork. One that fails is begun again after a pause that grows, and the others go on meanwhile. What each must
remember is in the ledger and in the folder; the operator itself remembers nothing, so it may be killed at any moment.
"""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import AssayError, BadInput, Unreachable
from assay.exact import canonical
from assay.folder.files import load, write_bytes
from assay.judge.running import backoff
from assay.ledger import config
from assay.node import FOLDER, status, working
from assay.node.children import TROUBLE, Child, Stopping, StopWaiting
from assay.node.herald import Herald, Telling
from assay.scheme import subnet
from assay.serve.listening import ServeOptions, addresses, listen

if TYPE_CHECKING:
    from assay.ledger.keys import PrivateKey
    from assay.node.closing import Closer
    from assay.publish.watch import WatchEvent, WatchReport

__all__ = ["Operator", "OperatorOptions", "places"]

Tell = Callable[[str], None]
LOOK_SECONDS = 1.0
LATEST = 3600.0
"""After so many seconds it is always looked whether an epoch has ended: clocks are set, and schemes change."""
_STOP_SECONDS = 30
"""A child that has not ended so long after SIGTERM is killed; the service ends the requests that are under way first."""
_LAST_WORDS = 5.0
"""Seconds for the last page, when everything else has ended."""
_PORT_SECONDS = 10
"""For so long a port that is taken is asked for again."""
_DUE = "due.json"


@dataclass(frozen=True)
class OperatorOptions:
    """What an operator's node does.

    place: a competition's folder or a subnet file. service: None if another process serves. registry: the target of publish.toml
    from which registries are pulled. targets: those that are published to. export: the folder for settled epochs.
    """

    place: Path
    service: ServeOptions | None = None
    registry: str | None = None
    targets: tuple[str, ...] = ()
    export: Path | None = None
    catch_up: bool = False
    """Whether a clock that is new may close several epochs at once."""
    ask: Callable[[], str] | None = field(default=None, repr=False)
    """Asks for the passphrase of a key of publish.toml."""


def places(place: Path) -> tuple[list[Path], Path | None, Path]:
    """The competitions' folders, the subnet file if there is one, and the folder of publish.toml. Raises BadInput."""
    if not place.is_file():
        return [place], None, place
    return [place.parent / member.path for member in subnet.read(place).competitions], place, place.parent


class _NodePart:
    """A part of the node that is kept running: begun again when it ends, after a pause that grows while it fails at once."""

    def __init__(self, name: str, work: Callable[[], int], tell: Tell) -> None:
        self.name, self.child, self._tell = name, Child(work), tell
        self.failed, self._again, self._begun = 0, 0.0, 0.0
        self.fatal: int | None = None
        """The exit code with which the node ends: this part cannot run as it was asked to."""

    def look(self) -> None:
        """See whether it ended, and begin it if it is time."""
        now = time.monotonic()
        code = self.child.ended()
        if code is not None:
            lasted = now - self._begun
            self.failed = 1 if lasted > 60 else self.failed + 1
            if self.failed == 1 and lasted < 60 and code == BadInput.exit_code:
                self.fatal = code
            self._again = now + backoff(self.failed, 1.0, factor=2.0, longest=60.0)
            self._tell(f"{self.name} ended with {code}; it is begun again")
        if not self.child.running and now >= self._again:
            self._begun = now
            self.child.begin()


def _heralds(folders: Sequence[Path], telling: Telling, tell: Tell) -> Iterator[Herald]:
    """Who tells what is wrong in each folder; what all have in common is told of the first."""
    for number, folder in enumerate(folders):
        own = telling if not number else Telling(telling.carriers)
        yield Herald(folder, own, tell, whole=not number)


class Operator:
    """The node of one season. signers: the log's key of each competition's folder, and of the subnet file."""

    def __init__(
        self, options: OperatorOptions, signers: Mapping[Path, PrivateKey], tell: Tell, telling: Telling | None = None
    ) -> None:
        self.options, self.signers, self.tell = options, signers, tell
        self.folders, self.subnet, self.beside = places(options.place)
        self._stop = Stopping(self._end_children)
        self._clock = Child(self._close_here)
        self._parts: list[_NodePart] = []
        self._heralds = [*_heralds(self.folders, telling or Telling(), tell)]
        self._tellers = [_NodePart("what tells of alarms", herald.run, tell) for herald in self._heralds]
        """They end last: so they see whether somebody asked for the end."""
        self.port = 0
        """The port of the service, when it listens."""
        self._next = 0.0
        """When the clock is begun next, by the time of day."""
        self._failed = 0
        self._trouble: dict[str, Any] | None = None

    def run(self) -> int:
        """Work until somebody asks for the end; returns the exit code. Raises AssayError for what cannot be begun."""
        with ExitStack() as stack:
            for folder in self.folders:
                stack.enter_context(working(folder, "the operator"))
            opened = None if self.options.service is None else stack.enter_context(self._listening(self.options.service))
            self.port = 0 if opened is None else opened.getsockname()[1]
            stack.enter_context(self._stop.heard())
            self._parts = self._made(opened)
            if service := self._service():
                self.tell(f"serving at {service['address']}/")
            begun = {"role": "operator", "started": status.now_text(), "once": False, "trouble": None}
            begun |= {"held": None, "publishes": list(self.options.targets)}
            self._note(**begun, state="waiting", url=str(self.options.place), service=self._service())
            with suppress(StopWaiting):
                while not self._stop.asked and not self._fatal:
                    self._look()
                    self._stop.sleep(LOOK_SECONDS)
            self._end_all()
            self._note(state="ended")
            for part in self._tellers:
                part.child.end(_LAST_WORDS)
            return self._fatal

    def once(self) -> int:
        """Close what has ended, without waiting for anybody, and publish it to each target; then end. Raises AssayError."""
        with ExitStack() as stack:
            for folder in self.folders:
                stack.enter_context(working(folder, "the operator"))
            begun = {"role": "operator", "started": status.now_text(), "once": True, "trouble": None}
            self._note(**begun, url=str(self.options.place), publishes=list(self.options.targets))
            self._closer().carry_out(wait=False)
            for name in self.options.targets:
                self._watch_once(name)
            for herald in self._heralds:
                herald.look()
        return 0

    # Parts

    def _listening(self, service: ServeOptions) -> socket.socket:
        """The socket of the service. After a kill the port may be taken until the last process of the node before has ended."""
        until = time.monotonic() + _PORT_SECONDS
        while True:
            try:
                return listen(service)
            except Unreachable:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)

    def _made(self, opened: socket.socket | None) -> list[_NodePart]:
        parts = []
        if opened is not None:
            parts.append(_NodePart("the service", lambda: self._serve_here(opened), self.tell))
        for name in self.options.targets:
            parts.append(_NodePart(f"the watch of {name}", lambda name=name: self._watch_here(name), self.tell))  # type: ignore[misc]
        return parts

    @property
    def _fatal(self) -> int:
        return next((part.fatal for part in self._parts if part.fatal is not None), 0)

    def _look(self) -> None:
        before = self._service()
        for part in (*self._parts, *self._tellers):
            part.look()
        self._look_at_clock()
        if self._service() != before:
            self._note(service=self._service())

    def _look_at_clock(self) -> None:
        """Begin the clock when an epoch has ended; when it has ended itself, see when the next one does."""
        code = self._clock.ended()
        if code == 0:
            if self._failed:
                self.tell("recovered")
            self._failed, self._trouble = 0, None
            self._next = min(self._due(), time.time() + LATEST)
        elif code is not None:
            self._failed += 1
            self._next = time.time() + backoff(self._failed, 1.0, factor=2.0, longest=60.0)
        if not self._clock.running and (time.time() >= self._next or self._next > time.time() + LATEST):
            self._clock.begin()

    def _service(self) -> dict[str, Any] | None:
        service = self.options.service
        if service is None:
            return None
        return {"address": addresses(service, self.port)[0], "up": self._parts[0].child.running if self._parts else False}

    def _end_children(self) -> None:
        for child in (self._clock, *(part.child for part in self._parts)):
            child.send(signal.SIGTERM)

    def _end_all(self) -> None:
        """End all children, and wait for them; who does not end is killed."""
        self._end_children()
        children = [child for child in (self._clock, *(part.child for part in self._parts)) if child.running]
        until = time.monotonic() + _STOP_SECONDS
        while children:
            children = [child for child in children if child.ended() is None]
            if children and time.monotonic() > until:
                for child in children:
                    child.send(signal.SIGKILL)
                    child.wait()
                return
            time.sleep(0.05)

    # What the children do

    def _serve_here(self, opened: socket.socket) -> int:
        from assay.serve.run import run

        assert self.options.service is not None
        try:
            run(self.options.service, opened)
        except AssayError as error:
            self.tell(f"the service: {error}")
            return error.exit_code
        return 0

    def _closer(self) -> Closer:
        from assay.node.closing import Closer

        target = None if self.options.registry is None else (self.beside, self.options.registry)
        place, again = self.options.export, self.options.catch_up
        return Closer(self.folders, self.signers, self.tell, subnet=self.subnet, target=target, export=place, catch_up=again)

    def _close_here(self) -> int:
        """Close what has ended, and note when to look again."""
        from assay.judge.running import stopping

        closer = self._closer()
        head = self._read_due().get("head")
        closer.before = None if head is None else (head[0], head[1])
        try:
            with stopping() as stop:
                closer.stop = stop
                due = closer.carry_out()
        except (AssayError, OSError) as error:
            trouble = status.trouble_of(error, self._trouble)
            if self._failed == 0:
                self.tell(f"trouble: {trouble['what']}")
            self._note(trouble=trouble, state="waiting")
            return TROUBLE
        note = {"due": None if due.at is None else int(due.at), "head": None if due.head is None else [int(x) for x in due.head]}
        try:
            write_bytes(self.folders[0] / FOLDER / _DUE, canonical(note) + b"\n")
        except BadInput as error:  # a full disk: it is tried again, with pauses
            self._note(trouble=status.trouble_of(error, self._trouble))
            return TROUBLE
        self._note(trouble=None)
        return 0

    def _due(self) -> float:
        """When the next epoch ends, as the clock has noted it; now, if it is not known."""
        at = self._read_due().get("due", 0)
        return time.time() + LATEST if at is None else float(at)

    def _read_due(self) -> dict[str, Any]:
        try:
            note = json.loads(load(self.folders[0] / FOLDER / _DUE, 1000, hint=""))
        except (AssayError, ValueError):
            return {}
        return note if isinstance(note, dict) else {}

    def _watch(self, name: str) -> Any:
        from assay.publish import publishers
        from assay.publish.watch import TargetWatch

        target = publishers.read_target(self.beside, name, self.options.ask)

        def tell(event: WatchEvent) -> None:
            self.tell(f"{name}: {event.text}")

        return TargetWatch(target, publishers.open_publisher(target), tell, subnet=self.subnet)

    def _watch_here(self, name: str) -> int:
        """Publish to a target what is settled, until a signal comes."""
        from assay.judge.running import stopping

        try:
            watch, log = self._watch(name), config.read(self.subnet or self.folders[0]).tiles / "checkpoint"
            with stopping() as stop:
                while not stop.asked:
                    report = watch.step()
                    self._note_target(name, report)
                    until, before = time.monotonic() + min(report.rest, watch.every), _changed(log)
                    while not stop.asked and _changed(log) == before and (left := until - time.monotonic()) > 0:
                        time.sleep(min(left, 0.5))
        except AssayError as error:
            self.tell(f"{name}: {error}")
            return error.exit_code
        return 0

    def _watch_once(self, name: str) -> None:
        watch = self._watch(name)
        report = watch.step()
        while not report.rest:
            report = watch.step()
        self._note_target(name, report)

    def _note_target(self, name: str, report: WatchReport) -> None:
        """Leave what a watch saw in a file of its own: several processes write here."""
        rows = [
            {"code": alarm.code, "what": alarm.what, "hint": alarm.hint, "since": status.text_of(since)}
            for alarm, since in report.alarms
        ]
        now, facts = status.now_text(), report.facts
        document = {"target": name, "published": facts.published, "waiting": facts.waiting, "alarms": rows, "at": now}
        with suppress(BadInput, OSError):
            write_bytes(self.folders[0] / FOLDER / f"target-{name}.json", canonical(document) + b"\n")

    def _note(self, **changes: Any) -> None:
        for folder in self.folders:
            status.note(folder, **changes)


def _changed(log: Path) -> int | None:
    """What changes when an epoch is settled or a split signed: its log is written."""
    with suppress(OSError):
        return log.stat().st_mtime_ns
    return None
