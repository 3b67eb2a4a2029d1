"""An operator's node: one process that serves a season, closes its epochs, and publishes them.

    operator ─┬─ service          `assay serve`, on a socket that the operator keeps open
              ├─ clock            begun when an epoch ends; it waits for the validators, closes the epoch, and ends
              └─ a watch          for each target of publish.toml: `assay publish --watch`

Each of them is a fork. One that fails is begun again after a pause that grows, and the others go on meanwhile. Everything that
each must remember is in the ledger and in the folder, so every process may be killed at any moment.
"""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import AssayError, BadInput, Unreachable
from assay.folder.strict import load_note
from assay.judge.running import backoff
from assay.ledger import config
from assay.node import CLOCK, FOLDER, status, working
from assay.node.children import TROUBLE, Child, Stopping, StopWaiting
from assay.node.clock import SteadyClock
from assay.node.herald import Herald, Telling
from assay.publish.faces import time_text
from assay.scheme.load import read as read_scheme
from assay.scheme.subnet import places
from assay.serve.links import segment
from assay.serve.listening import ServeOptions, addresses, listen

if TYPE_CHECKING:
    from assay.ledger.keys import PrivateKey
    from assay.node.closing import Closer
    from assay.publish.watch import WatchEvent, WatchReport

__all__ = ["Operator", "OperatorOptions"]

Tell = Callable[[str], None]
LOOK_SECONDS = 1.0
LATEST = 3600.0
"""After so many seconds it is always looked whether an epoch has ended: clocks are set, and schemes change."""
_STOP_SECONDS = 30
"""A child that has not ended so long after SIGTERM is killed; the service ends the requests that are under way first."""
_LAST_WORDS = 5.0
"""Seconds for the last page, when everything else has ended."""
_STEADY_SECONDS = 60
"""A part that ran for so long runs well."""
_PORT_SECONDS = 10
"""For so long a port that is taken is asked for again."""


@dataclass(frozen=True)
class OperatorOptions:
    """The options of an operator's node.

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


class _NodePart:
    """A part of the node that is kept running: begun again when it ends, after a pause that grows while it fails at once."""

    def __init__(self, name: str, work: Callable[[], int], tell: Tell) -> None:
        self.name, self.child, self._tell = name, Child(work), tell
        self.failed, self._again, self._begun = 0, 0.0, 0.0
        self.refused = False
        """Whether it ended at once at its first start, since it cannot run as it was asked to."""
        self.ended = ""
        """The way in which it ended last; empty once it has run for a minute again."""

    def look(self) -> None:
        """See whether it ended, and begin it if it is time."""
        now = time.monotonic()
        code = self.child.ended()
        if code is not None:
            self._failed(code, now)
        elif self.child.running and now - self._begun > _STEADY_SECONDS:
            self.ended = ""
        if not self.child.running and now >= self._again:
            self._begun = now
            try:
                self.child.begin()
            except OSError as error:  # no memory, no processes
                self._failed(TROUBLE, now, f" ({error.strerror})")

    def _failed(self, code: int, now: float, why: str = "") -> None:
        lasted = now - self._begun
        self.failed = 1 if lasted > _STEADY_SECONDS else self.failed + 1
        self.refused = self.failed == 1 and lasted < _STEADY_SECONDS and code == BadInput.exit_code
        self._again = now + backoff(self.failed, 1.0, factor=2.0, longest=60.0)
        self.ended = f"ended with exit code {code}{why} at {status.now_text()}"
        self._tell(f"{self.name} ended with exit code {code}{why}; it is restarted")


def _heralds(folders: Sequence[Path], telling: Telling, tell: Tell) -> Iterator[Herald]:
    """The heralds of the folders, which tell what is wrong in each; what all have in common is told of the first."""
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
        self._tellers = [_NodePart("the alarm process", herald.run, tell) for herald in self._heralds]
        """They end last: so they see whether somebody asked for the end."""
        self._time = SteadyClock()
        self._since = self._time()
        self.port = 0
        """The port of the service, when it listens."""
        self._next = 0.0
        """The next begin of the clock, by the time of day."""
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
            self._parts = self._make_parts(opened)
            self._tell_pages()
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
        """Close what has ended, without waiting for anybody, and publish it to each target; then end.

        Returns the exit code: 3 if a target has an alarm, as a watch that looks once, otherwise 0. A transaction that a chain has
        not confirmed yet is no alarm: the next call follows it. Raises AssayError if an epoch could not be closed.
        """
        with ExitStack() as stack:
            for folder in self.folders:
                stack.enter_context(working(folder, "the operator"))
            begun = {"role": "operator", "started": status.now_text(), "once": True, "trouble": None}
            self._note(**begun, url=str(self.options.place), publishes=list(self.options.targets))
            try:
                self._closer().carry_out(wait=False)
            except AssayError as error:
                self._note(trouble=status.trouble_of(error))
                raise
            finally:
                codes = [self._watch_once(name) for name in self.options.targets]
                for herald in self._heralds:
                    herald.look()
        return max(codes, default=0)

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

    def _make_parts(self, opened: socket.socket | None) -> list[_NodePart]:
        parts = []
        if opened is not None:
            parts.append(_NodePart("the service", lambda: self._serve_here(opened), self.tell))
        for name in self.options.targets:
            parts.append(_NodePart(f"the watch of {name}", lambda name=name: self._watch_here(name), self.tell))  # type: ignore[misc]
        return parts

    @property
    def _fatal(self) -> int:
        """The exit code with which the node ends, if its service cannot run as it was asked to; a target may be mended later."""
        refused = self.options.service is not None and bool(self._parts) and self._parts[0].refused
        return BadInput.exit_code if refused else 0

    def _look(self) -> None:
        before = self._shown()
        for part in (*self._parts, *self._tellers):
            part.look()
        self._time()
        self._look_at_clock()
        if self._shown() != before:
            self._note(**self._shown())

    def _shown(self) -> dict[str, Any]:
        """The state of the node's parts, and of this machine's clock, for the status."""
        down = {part.name: part.ended for part in (*self._parts, *self._tellers) if part.ended}
        return {"service": self._service(), "down": down, "jumped": int(self._time.jumped)}

    def _look_at_clock(self) -> None:
        """Begin the clock when an epoch has ended; when it has ended itself, see when the next one does."""
        code, now = self._clock.ended(), self._time()
        if code == 0:
            if self._failed:
                self.tell("recovered")
            self._failed, self._trouble = 0, None
            self._next = min(self._due(), now + LATEST)
        elif code is not None:
            self._failed += 1
            self._next = now + backoff(self._failed, 1.0, factor=2.0, longest=60.0)
            if status.content_of(self.folders[0]).get("trouble") is None:
                self._note(trouble=status.trouble_of(RuntimeError(f"what closes epochs ended with exit code {code}")))
        if not self._clock.running and (now >= self._next or self._next > now + LATEST):
            self._begin_clock()

    def _begin_clock(self) -> None:
        try:
            self._clock.begin()
        except OSError as error:
            self._failed += 1
            self._next = self._time() + backoff(self._failed, 1.0, factor=2.0, longest=60.0)
            self._note(trouble=status.trouble_of(error))

    def _service(self) -> dict[str, Any] | None:
        service = self.options.service
        if service is None:
            return None
        return {"address": addresses(service, self.port)[0], "up": self._parts[0].child.running if self._parts else False}

    def _tell_pages(self) -> None:
        """Say where each competition's pages are, as people share it. Raises BadInput for a scheme that cannot be read."""
        if service := self._service():
            for folder in self.folders:
                self.tell(f"serving at {service['address']}/{segment(read_scheme(folder / 'scheme.toml').name)}/")

    def _end_children(self) -> None:
        for child in (self._clock, *(part.child for part in self._parts)):
            child.send(signal.SIGTERM)

    def _end_all(self) -> None:
        """End all children, and wait for them; a child that does not end is killed."""
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

    # The work of the children

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
        return Closer(
            self.folders,
            self.signers,
            self.tell,
            subnet=self.subnet,
            target=target,
            export=self.options.export,
            catch_up=self.options.catch_up,
            clock=self._time,
            since=self._since,
        )

    def _close_here(self) -> int:
        """Close what has ended, and note when to look again."""
        from assay.judge.running import stopping

        closer = self._closer()
        match self._read_clock().get("head"):
            case [int(block), int(at)]:
                closer.before = block, at
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
        try:
            due.note(self.folders[0])
        except (BadInput, OSError) as error:  # a full disk: it is tried again, with pauses
            self._note(trouble=status.trouble_of(error, self._trouble))
            return TROUBLE
        self._note(trouble=None)
        return 0

    def _due(self) -> float:
        """The end of the next epoch, as the clock has noted it; now, if it is not known."""
        at = self._read_clock().get("due", 0)
        return self._time() + LATEST if at is None else float(at) if isinstance(at, int) else 0.0

    def _read_clock(self) -> dict[str, Any]:
        return load_note(self.folders[0] / FOLDER / CLOCK)

    def _watch(self, name: str) -> Any:
        from assay.publish import publishers
        from assay.publish.watch import TargetWatch

        target = publishers.read_target(self.beside, name)  # a child cannot ask for a passphrase: ASSAY_PASSPHRASE

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
            self._note_broken(name, error)
            return error.exit_code
        return 0

    def _watch_once(self, name: str) -> int:
        """Publish to a target what is settled, once; returns 3 if it has an alarm then, or the exit code of what is wrong."""
        try:
            watch = self._watch(name)
            report = watch.step()
            while not report.rest:
                report = watch.step()
        except AssayError as error:
            self._note_broken(name, error)
            return error.exit_code
        self._note_target(name, report)
        return 3 if report.alarms else 0

    def _note_broken(self, name: str, error: AssayError) -> None:
        """Leave for the status that nothing can be published to a target."""
        self.tell(f"{name}: {error}")
        now = status.now_text()
        what = str(error).removesuffix(f"; {error.hint}")
        row = {"code": "broken", "what": f"nothing is published there: {what}", "hint": error.hint, "since": now}
        status.write_target(self.folders[0], name, {"published": None, "waiting": None, "alarms": [row], "at": now})

    def _note_target(self, name: str, report: WatchReport) -> None:
        """Leave what a watch saw in the status of the first folder."""
        rows = [
            {"code": alarm.code, "what": alarm.what, "hint": alarm.hint, "since": time_text(since)}
            for alarm, since in report.alarms
        ]
        now, facts = status.now_text(), report.facts
        row = {"published": facts.published, "waiting": facts.waiting, "alarms": rows, "at": now}
        status.write_target(self.folders[0], name, row)

    def _note(self, **changes: Any) -> None:
        for folder in self.folders:
            status.note(folder, **changes)


def _changed(log: Path) -> int | None:
    """The time of the log's last change: it is written when an epoch is settled or a split signed."""
    with suppress(OSError):
        return log.stat().st_mtime_ns
    return None
