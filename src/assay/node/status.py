"""The status of a node: a file that it writes while it works, one line for a person, and the alarms that stand.

If the file is lost, nobody's evidence or score changes: alarms that stand are told once more, and a round may come sooner
or later. Several processes of a node write into it, each its own fields. Whether a node works at all is not in the file: its
lock says it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from assay.errors import AssayError, BadInput
from assay.exact import canonical
from assay.folder.files import NODE_STATUS, alone, lock, write_bytes
from assay.folder.strict import load_note
from assay.node import FOLDER
from assay.node.alarms import SeasonFacts, of_operator, of_validator
from assay.publish.alarms import Alarm, AlarmChange, StandingAlarms, what_and_hint
from assay.publish.faces import time_text
from assay.scheme.fields import instant, instant_text

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
    "trouble_of",
    "write",
    "write_target",
]

Json = dict[str, Any]
_OWN = frozenset({"contradicted", "seen", "telling", "untold"})
"""The fields of the file that are for the node alone."""


def now_text() -> str:
    """The time, as the file has it."""
    return instant_text(_now())


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def trouble_of(error: BaseException, before: Json | None = None) -> Json:
    """The error, what to do, and since when; before: the trouble until now."""
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
    return _change(folder, lambda content: content | changes)


def write_target(folder: Path, name: str, row: Json) -> None:
    """Change what the file says of one target that is published to, as `write` does."""
    _change(folder, lambda content: content | {"targets": _targets_in(content) | {name: row}})


def _change(folder: Path, changed: Callable[[Json], Json]) -> Json:
    with suppress(BadInput, OSError):
        (folder / FOLDER).mkdir(parents=True, exist_ok=True)
        with alone(folder / FOLDER):  # several processes change it
            content = changed(content_of(folder))
            write_bytes(folder / NODE_STATUS, canonical(content) + b"\n")
            return content
    return changed(content_of(folder))


def content_of(folder: Path) -> Json:
    """The content of the file; nothing if it cannot be read."""
    return load_note(folder / NODE_STATUS)


def is_working(folder: Path) -> bool:
    """Whether a node, a pull or a push works in a folder: then its lock is held by the process that is named in it."""
    try:
        number = os.open(folder / FOLDER / ".lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        named = os.pread(number, 20, 0)
        if not named.isdigit() or not os.path.exists(f"/proc/{int(named)}"):
            return False  # the lock is not tried: a node that starts now would find it taken
        lock(number, wait=False)
    except OSError:
        return True
    finally:
        os.close(number)
    return False


@dataclass(frozen=True)
class NodeStatus:
    """The status of a node: its work, and the alarms that stand, each with the time since when (seconds since 1970)."""

    working: bool
    waiting: int
    """Batches that the service does not have yet."""
    content: Json
    alarms: tuple[tuple[Alarm, float], ...] = ()
    season: SeasonFacts | None = None
    targets: tuple[Json, ...] = ()
    """The notes of an operator's watches, one for each target that is published to."""
    change: AlarmChange = field(default_factory=AlarmChange)
    """The alarms that began or ended since the last look."""

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
        content = self.content
        epoch = f"epoch {content['epoch']}" if "epoch" in content else "no epoch yet"
        doing = "between two rounds" if content.get("once") else "not running"
        doing = str(content.get("state", "idle")) if self.working else doing
        if self.working and doing == "judging" and content.get("total"):
            doing = f"judging, {content.get('done', 0)} of {content['total']} done"
        many = len(self.alarms)
        wrong = f"{'nothing' if not many else '1 thing' if many == 1 else f'{many} things'} wrong"
        if self.role == "operator":
            closes = f"; it closes at {content['closes']}" if content.get("closes") else ""
            return f"{epoch}: {doing}{closes}; {wrong}"
        batches = "1 batch waits" if self.waiting == 1 else f"{self.waiting} batches wait"
        return f"{epoch}: {doing}; {batches} to be sent; {wrong}"

    @property
    def document(self) -> Json:
        """The same for programs."""
        shown = {name: value for name, value in self.content.items() if name not in _OWN}
        counts: Json = {"working": self.working, "waiting": self.waiting, "role": self.role}
        if self.role == "operator":
            counts["targets"] = list(self.targets)
        return shown | counts | {"wrong": list(self.wrong), "alarms": rows_of(self.alarms)}


def rows_of(alarms: Sequence[tuple[Alarm, float]]) -> list[Json]:
    """Alarms as the file has them, and programs read them."""
    return [alarm.document | {"since": time_text(since)} for alarm, since in alarms]


def standing_in(content: Mapping[str, Any]) -> StandingAlarms:
    """The alarms that the file has; those that cannot be read are left out."""
    standing = []
    for row in content.get("alarms") or ():
        with suppress(AssayError, KeyError, TypeError, AttributeError):
            alarm = Alarm(str(row["code"]), str(row["what"]), str(row["hint"]), str(row.get("about", "")))
            standing.append((alarm, instant(row["since"]).timestamp()))
    return StandingAlarms(tuple(standing))


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
        rows = _targets_in(content)
        targets = tuple({"target": name, **rows[name]} for name in content.get("publishes", ()) if name in rows)
        alarms = of_operator(folder, content, season, targets, now, working=working, free=free, whole=whole)
    else:
        alarms = of_validator(folder, content, now, working=working, free=free)
    standing = standing_in(content) if standing is None else standing
    change = standing.follow(alarms, now.timestamp())
    return NodeStatus(working, waiting, content, standing.alarms, season, targets, change)


def _targets_in(content: Mapping[str, Any]) -> dict[str, Json]:
    """The last note of each target's watch, by the target's name."""
    rows = content.get("targets")
    return {name: row for name, row in rows.items() if isinstance(row, dict)} if isinstance(rows, dict) else {}


def read_status(folder: Path, *, whole: bool = True) -> NodeStatus:
    """Read the status of a folder's node, as it is now. Raises BadInput if there is no folder, or no node ever worked there."""
    if not folder.is_dir():
        raise BadInput("no such folder", file=folder, hint="correct the path")
    content = content_of(folder)
    if not content:
        hint = "start one: assay node operator DIR, or on a validator's machine: assay node validator DIR --url URL --key NAME"
        raise BadInput("no node has worked here", file=folder, hint=hint)
    if content.get("role") != "operator":
        return look(folder)
    from assay.node.season_facts import season_facts

    return look(folder, season=season_facts(folder), whole=whole)
