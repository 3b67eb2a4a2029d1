"""The process of a node that tells what is wrong: it looks each second, writes the page and the metrics, and tells of alarms.

It is a process of its own: neither a slow webhook nor a long judging holds up the other, and it can say that the node was killed.
Alarms that stand, and what is still to be told of them, are in the node's status: after a new start nothing is told twice.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import AssayError
from assay.exact import canonical
from assay.folder.files import write_text
from assay.judge.running import backoff
from assay.node import FOLDER, status
from assay.node.page import metrics, page
from assay.node.status import NodeStatus
from assay.publish.alarms import Alarm, AlarmChange
from assay.publish.faces import time_text

if TYPE_CHECKING:
    from assay.node.carriers import Carrier
    from assay.node.season_facts import SeasonWatch

__all__ = ["Herald", "Telling"]

Json = dict[str, Any]
LOOK_SECONDS = 1.0
SEASON_SECONDS = 10.0
"""Between two looks at the ledger and the service's tables, of an operator's node."""
WRITE_SECONDS = 5.0
"""Between two pages, while only the progress changes; an alarm that begins or is over is shown at once."""
STALE_SECONDS = 30.0
"""After so long the page and the metrics are written again, so that their time says that somebody looks."""
_DIES = 5.0
"""Seconds until a node that was killed has let go of its folder."""
FIRST_PAUSE = 10.0
"""Seconds until a carrier that failed is tried again, the first time."""
QUEUE = 200
"""The most alarms that may still be to be told; the oldest is forgotten."""


@dataclass(frozen=True)
class Telling:
    """The places where a node shows and tells its alarms. page, metrics: None is `status.html` and `status.prom` in DIR/node."""

    carriers: tuple[Carrier, ...] = ()
    page: Path | None = None
    metrics: Path | None = None

    def files(self, folder: Path) -> tuple[Path, Path]:
        """The files of the metrics and of the page."""
        place = folder / FOLDER
        return self.metrics or place / "status.prom", self.page or place / "status.html"


@dataclass
class _NotDelivered:
    """A carrier that does not work: since when, why, how often, and when it is tried again (by the monotonic clock)."""

    since: str
    what: str = ""
    count: int = 0
    again: float = 0.0

    def again_after(self, why: str) -> _NotDelivered:
        """The same after another failure: each pause is longer than the one before."""
        count = self.count + 1
        return _NotDelivered(self.since, why, count, time.monotonic() + backoff(count, FIRST_PAUSE, factor=2.0, longest=600.0))


@dataclass
class Herald:
    """Tells what is wrong in one folder. tell: prints a line for people. whole: see `of_operator`."""

    folder: Path
    telling: Telling
    tell: Callable[[str], None] = lambda line: None
    whole: bool = True
    _failures: dict[str, _NotDelivered] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        content = status.content_of(self.folder)
        self._standing = status.standing_in(content)
        names = {carrier.name for carrier in self.telling.carriers}
        rows = content.get("untold")
        self._untold: list[Json] = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        for row in self._untold:  # an option that is not given any more is told nothing
            row["left"] = [name for name in row.get("left", ()) if name in names]
        self._watch: SeasonWatch | None = None
        self._season: Any = None
        self._season_at = self._shown_at = -1e9
        self._shown = self._kept = b""

    def run(self) -> int:
        """Look until SIGTERM comes; then once more, since the node ended, or was killed. Returns an exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._over.set())
        _let_go(self.folder)
        while not self._over.wait(LOOK_SECONDS):
            self._look_safely()
        until = time.monotonic() + _DIES
        while status.content_of(self.folder).get("state") != "ended" and status.is_working(self.folder):
            if time.monotonic() > until:
                break
            time.sleep(0.05)
        self._look_safely(last=True)
        return 0

    def _look_safely(self, *, last: bool = False) -> None:
        try:
            self.look(last=last)
        except Exception:  # noqa: BLE001  (it goes on: this process must not end)
            traceback.print_exc()

    def look(self, *, last: bool = False) -> None:
        """Look once: what began or is over is told and shown. last: the node ended; if it was asked to, that is no alarm."""
        now = time.time()
        self._look_at_season()
        seen = status.look(self.folder, season=self._season, whole=self.whole, standing=self._standing)
        if last and seen.content.get("state") == "ended":
            ends = {alarm.key for alarm, _ in seen.change.begun if alarm.code == "not-running"}
            self._standing.alarms = tuple(row for row in seen.alarms if row[0].key not in ends)
            begun = tuple(row for row in seen.change.begun if row[0].key not in ends)
            seen = replace(seen, alarms=self._standing.alarms, change=replace(seen.change, begun=begun))
        changed = bool(seen.change.begun or seen.change.over)
        self._queue(seen.change, now)
        self._keep(seen)
        self._show(seen, now, at_once=last or changed)
        if self._deliver():
            self._keep(seen)

    def _look_at_season(self) -> None:
        """Look at the ledger and the service's tables, if it is an operator's node and it is time."""
        if time.monotonic() < self._season_at + SEASON_SECONDS or status.content_of(self.folder).get("role") != "operator":
            return
        if self._watch is None:
            from assay.node.season_facts import SeasonWatch

            self._watch = SeasonWatch(self.folder)
        self._season, self._season_at = self._watch.look(), time.monotonic()

    # Telling

    def _queue(self, change: AlarmChange, now: float) -> None:
        """Queue what began and what is over. An alarm that is over before its begin was told is not told at all."""
        for event, rows in (("began", change.begun), ("over", change.over)):
            for alarm, since in rows:
                self.tell(f"{'alarm' if event == 'began' else 'over'}: {alarm.sentence if event == 'began' else alarm.what}")
                left = [
                    carrier.name for carrier in self.telling.carriers if (alarm.code, alarm.about) != ("not-told", carrier.name)
                ]
                if event == "over":
                    left = [name for name in left if not self._forget(alarm, name)]
                if left:
                    at, row = time_text(now), {**alarm.document, "since": time_text(since)}
                    self._untold.append({"event": event, "at": at, "left": left, "alarm": row})
        self._untold = [row for row in self._untold if row["left"]][-QUEUE:]

    def _forget(self, alarm: Alarm, name: str) -> bool:
        """Take the begin of an alarm from what a carrier has still to tell; False if it was told."""
        for row in self._untold:
            named = row["alarm"]
            if row["event"] == "began" and (named["code"], named["about"]) == alarm.key and name in row["left"]:
                row["left"].remove(name)
                return True
        return False

    def _deliver(self) -> bool:
        """Tell what is still to be told, in its order; returns whether anything changed. A carrier that fails is tried later."""
        changed = False
        for carrier in self.telling.carriers:
            failure = self._failures.get(carrier.name)
            if failure is not None and time.monotonic() < failure.again:
                continue
            for row in [row for row in self._untold if carrier.name in row["left"]]:
                changed = True
                if why := carrier.carry(self._document(row)):
                    failure = failure or _NotDelivered(time_text(time.time()))
                    self._failures[carrier.name] = failure.again_after(why)
                    break
                row["left"].remove(carrier.name)
                self._failures.pop(carrier.name, None)
                failure = None
        self._untold = [row for row in self._untold if row["left"]]
        return changed

    def _document(self, row: Json) -> Json:
        """The document that a carrier gets. text, content: one sentence, in the fields that chat services show."""
        role = str(status.content_of(self.folder).get("role", "validator"))
        alarm: Json = row["alarm"]
        began = row["event"] == "began"
        hint = f" What to do: {alarm['hint']}." if began and alarm["hint"] else ""
        text = f"{self.folder.name} ({role}): {'' if began else 'over: '}{alarm['what']}.{hint}"
        node = {"node": self.folder.name, "role": role, "host": socket.gethostname()}
        return alarm | node | {"event": row["event"], "at": row["at"], "text": text, "content": text[:2000]}

    # Keeping and showing

    def _keep(self, seen: NodeStatus) -> None:
        """Leave what stands, and what is still to be told, on the disk."""
        telling = {name: {"what": failure.what, "since": failure.since} for name, failure in self._failures.items()}
        note = {"alarms": status.rows_of(seen.alarms), "untold": self._untold, "telling": telling}
        text = canonical(note)
        if text != self._kept:
            status.write(self.folder, note)
            self._kept = text

    def _show(self, seen: NodeStatus, now: float, *, at_once: bool) -> None:
        """Write the page and the metrics, if something changed or it is time."""
        shown = canonical({**seen.document, "season": repr(seen.season), "targets": list(seen.targets)})
        pause = WRITE_SECONDS if shown != self._shown else STALE_SECONDS
        if not at_once and time.monotonic() < self._shown_at + pause:
            return
        self._shown, self._shown_at = shown, time.monotonic()
        for file, text in zip(
            self.telling.files(self.folder), (metrics(seen, now), page(self.folder.name, seen, now)), strict=True
        ):
            with suppress(AssayError, OSError):  # the disk may be full: that is an alarm of its own
                file.parent.mkdir(parents=True, exist_ok=True)
                write_text(file, text)


def _let_go(folder: Path) -> None:
    """Close the node's lock, which this process has by its birth: a node that was killed can be begun again at once."""
    lock = os.path.realpath(folder / FOLDER / ".lock")
    for number in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{number}") == lock:
                os.close(number)
