"""What a node says of itself: a file that it writes while it works, one line for a person, and the alarms that stand.

The file is for reading only: a node never decides anything by it, so a disk that is full or a file that is lost harms nobody.
Several processes of a node write into it, each its own fields. Whether a node works at all is not in the file: its lock says it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import AssayError, BadInput
from assay.exact import canonical
from assay.folder.files import alone, load, lock, write_bytes
from assay.node import FOLDER
from assay.node.alarms import SeasonFacts, of_operator, of_validator
from assay.publish.alarms import Alarm, AlarmChange, StandingAlarms, what_and_hint
from assay.scheme.fields import instant, instant_text

if TYPE_CHECKING:
    pass

__all__ = [
    "NodeStatus",
    "content_of",
    "is_working",
    "look",
    "note",
    "now_text",
    "read_status",
    "rows_of",
    "standing_in",
    "text_of",
    "trouble_of",
    "write",
]

Json = dict[str, Any]
_FILE = "status.json"
_FILE_BYTES = 10_000_000
_OWN = frozenset({"contradicted", "seen", "telling", "untold"})
"""What is in the file for the node alone."""


def now_text() -> str:
    """The time, as the file has it."""
    return instant_text(_now())


def text_of(moment: float) -> str:
    """A time in seconds since 1970, as the file has it."""
    return instant_text(datetime.fromtimestamp(int(moment), UTC))


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def trouble_of(error: BaseException, before: Json | None = None) -> Json:
    """What went wrong, what to do, and since when; before: the trouble until now."""
    what, hint = str(error), ""
    if isinstance(error, AssayError):
        hint = what_and_hint(error)[1]
    else:
        what = f"{type(error).__name__}: {error}"
    since = before["since"] if before and "since" in before else now_text()
    return {"what": what[:2000], "hint": hint[:2000], "since": since}


def note(folder: Path, **changes: Any) -> Json:
    """Change the file, and return what it says; a disk that is full is not named here."""
    return write(folder, changes | {"pid": os.getpid()})


def write(folder: Path, changes: Json) -> Json:
    """Change fields of the file, as `note` does, for a process that is not the one that works."""
    with suppress(BadInput, OSError):
        (folder / FOLDER).mkdir(parents=True, exist_ok=True)
        with alone(folder / FOLDER):  # several processes change it
            content = content_of(folder) | changes
            write_bytes(folder / FOLDER / _FILE, canonical(content) + b"\n")
            return content
    return content_of(folder) | changes


def content_of(folder: Path) -> Json:
    """What the file says; nothing if it cannot be read."""
    try:
        content = json.loads(load(folder / FOLDER / _FILE, _FILE_BYTES, hint=""))
    except (BadInput, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def is_working(folder: Path) -> bool:
    """Whether a node, a pull or a push works in a folder: then its lock is held by the process that is named in it."""
    try:
        number = os.open(folder / FOLDER / ".lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        named = os.pread(number, 20, 0)
        if not named.isdigit() or not os.path.exists(f"/proc/{int(named)}"):
            return False  # the lock is not tried: who begins right now would find it taken
        lock(number, wait=False)
    except OSError:
        return True
    finally:
        os.close(number)
    return False


@dataclass(frozen=True)
class NodeStatus:
    """What a node does, and the alarms that stand, each with the time since when (seconds since 1970)."""

    working: bool
    waiting: int
    """Batches that the service does not have yet."""
    content: Json
    alarms: tuple[tuple[Alarm, float], ...] = ()
    season: SeasonFacts | None = None
    targets: tuple[Json, ...] = ()
    """What an operator's watches noted, one for each target that is published to."""
    change: AlarmChange = field(default_factory=AlarmChange)
    """What began and what is over since the last look."""

    @property
    def role(self) -> str:
        """`validator` or `operator`."""
        return "operator" if self.content.get("role") == "operator" else "validator"

    @property
    def wrong(self) -> tuple[str, ...]:
        """A sentence for each alarm: what is wrong, and what to do."""
        return tuple(alarm.sentence for alarm, _ in self.alarms)

    @property
    def line(self) -> str:
        """One line for a person."""
        said = self.content
        epoch = f"epoch {said['epoch']}" if "epoch" in said else "no epoch yet"
        doing = "between two rounds" if said.get("once") else "not running"
        doing = str(said.get("state", "idle")) if self.working else doing
        if self.working and doing == "judging" and said.get("total"):
            doing = f"judging, {said.get('done', 0)} of {said['total']} done"
        wrong = f"{len(self.alarms) or 'nothing'} wrong"
        if self.role == "operator":
            closes = f"; it closes at {said['closes']}" if said.get("closes") else ""
            return f"{epoch}: {doing}{closes}; {wrong}"
        batches = "1 batch waits" if self.waiting == 1 else f"{self.waiting} batches wait"
        return f"{epoch}: {doing}; {batches} to be sent; {wrong}"

    @property
    def document(self) -> Json:
        """The same for programs."""
        shown = {name: value for name, value in self.content.items() if name not in _OWN}
        counts = {"working": self.working, "waiting": self.waiting, "role": self.role}
        return shown | counts | {"wrong": list(self.wrong), "alarms": rows_of(self.alarms)}


def rows_of(alarms: Sequence[tuple[Alarm, float]]) -> list[Json]:
    """Alarms as the file has them, and programs read them."""
    return [alarm.document | {"since": text_of(since)} for alarm, since in alarms]


def standing_in(content: Mapping[str, Any]) -> StandingAlarms:
    """The alarms that the file has; those that cannot be read are left out."""
    found = []
    for row in content.get("alarms") or ():
        with suppress(AssayError, KeyError, TypeError, AttributeError):
            alarm = Alarm(str(row["code"]), str(row["what"]), str(row["hint"]), str(row.get("about", "")))
            found.append((alarm, instant(row["since"]).timestamp()))
    return StandingAlarms(tuple(found))


def look(
    folder: Path, *, season: SeasonFacts | None = None, whole: bool = True, standing: StandingAlarms | None = None
) -> NodeStatus:
    """Look at a node's folder, and say what stands. Reads files only; the operator's season is looked at by the caller.

    standing: the alarms until now, which are changed; None: those of the file. whole: see `of_operator`.
    """
    content = content_of(folder)
    working, waiting = is_working(folder), len(list((folder / "batches").glob("*.batch")))
    free = None
    with suppress(OSError):
        free = shutil.disk_usage(folder).free
    now = _now()
    targets: tuple[Json, ...] = ()
    if content.get("role") == "operator":
        targets = tuple(row for row in _targets(folder) if row.get("target") in content.get("publishes", ()))
        alarms = of_operator(folder, content, season, targets, now, working=working, free=free, whole=whole)
    else:
        alarms = of_validator(folder, content, now, working=working, free=free)
    standing = standing_in(content) if standing is None else standing
    change = standing.follow(alarms, now.timestamp())
    return NodeStatus(working, waiting, content, standing.alarms, season, targets, change)


def _targets(folder: Path) -> Iterator[Json]:
    for file in sorted((folder / FOLDER).glob("target-*.json")):
        with suppress(BadInput, ValueError):
            document = json.loads(load(file, _FILE_BYTES, hint=""))
            if isinstance(document, dict):
                yield document


def read_status(folder: Path, *, whole: bool = True) -> NodeStatus:
    """The status of the node of a folder, as it is now. Raises BadInput if no node ever worked there."""
    content = content_of(folder)
    if not content:
        hint = "begin one: assay node validator DIR --url URL --key NAME"
        raise BadInput("no node has worked here", file=folder, hint=hint)
    if content.get("role") != "operator":
        return look(folder)
    from assay.node.season_facts import season_facts

    return look(folder, season=season_facts(folder), whole=whole)
