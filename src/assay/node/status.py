"""What a node says of itself: a file that it writes while it works, and one line for a person, with what is wrong and what to do.

The file is for reading only: a node never decides anything by it, so a disk that is full or a file that is lost harms nobody.
Whether a node works at all is not in the file: its lock says it.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from assay.errors import AssayError, BadInput
from assay.exact import canonical
from assay.folder.files import alone, load, lock, write_bytes
from assay.node import FOLDER
from assay.scheme.fields import instant, instant_text

__all__ = ["NodeStatus", "is_working", "note", "now_text", "read_status", "text_of", "trouble_of"]

Json = dict[str, Any]
_FILE = "status.json"
_FILE_BYTES = 10_000_000
_SILENT = timedelta(minutes=5)
"""A service that has not answered for so long is named."""
_FREE = 2**30
"""Bytes on the disk below which that is named."""
_SHOWN = 3
"""Of what is alike, so many are named."""


def now_text() -> str:
    """The time, as the file has it."""
    return instant_text(datetime.now(UTC).replace(microsecond=0))


def text_of(moment: float) -> str:
    """A time in seconds since 1970, as the file has it."""
    return instant_text(datetime.fromtimestamp(int(moment), UTC))


def trouble_of(error: BaseException, before: Json | None = None) -> Json:
    """What went wrong, and since when; before: the trouble until now."""
    known = isinstance(error, AssayError)
    what = str(error) if known else f"{type(error).__name__}: {error}"
    since = before["since"] if before is not None else now_text()
    return {"what": what[:2000], "since": since}


def note(folder: Path, **changes: Any) -> Json:
    """Change the file, and return what it says; a disk that is full is not named here."""
    with suppress(BadInput, OSError):
        (folder / FOLDER).mkdir(parents=True, exist_ok=True)
        with alone(folder / FOLDER):  # a node's processes change it
            content = _read(folder) | changes | {"pid": os.getpid()}
            write_bytes(folder / FOLDER / _FILE, canonical(content) + b"\n")
            return content
    return _read(folder) | changes


def _read(folder: Path) -> Json:
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
    """What a node does, and what is wrong: sentences, each with what to do; empty if nothing is."""

    working: bool
    waiting: int
    """Batches that the service does not have yet."""
    content: Json
    wrong: tuple[str, ...] = field(default=())

    @property
    def line(self) -> str:
        """One line for a person."""
        said = self.content
        epoch = f"epoch {said['epoch']}" if "epoch" in said else "no epoch yet"
        doing = "between two rounds" if said.get("once") else "not running"
        doing = str(said.get("state", "idle")) if self.working else doing
        if self.working and doing == "judging" and said.get("total"):
            doing = f"judging, {said.get('done', 0)} of {said['total']} done"
        batches = "1 batch waits" if self.waiting == 1 else f"{self.waiting} batches wait"
        return f"{epoch}: {doing}; {batches} to be sent; {len(self.wrong) or 'nothing'} wrong"

    @property
    def document(self) -> Json:
        """The same for programs."""
        shown = {name: value for name, value in self.content.items() if name != "seen"}
        return shown | {"working": self.working, "waiting": self.waiting, "wrong": list(self.wrong)}


def read_status(folder: Path) -> NodeStatus:
    """The status of the node of a folder. Raises BadInput if no node ever worked there."""
    content = _read(folder)
    if not content:
        hint = "begin one: assay node validator DIR --url URL --key NAME"
        raise BadInput("no node has worked here", file=folder, hint=hint)
    working, waiting = is_working(folder), len(list((folder / "batches").glob("*.batch")))
    return NodeStatus(working, waiting, content, tuple(_wrong(folder, content, working=working)))


def _wrong(folder: Path, content: Json, *, working: bool) -> list[str]:
    wrong = []
    if not working and not content.get("once"):
        wrong.append(
            f"the node does not run; begin it again: assay node validator {folder} --url {content.get('url')} --key NAME"
        )
    trouble = content.get("trouble")
    if trouble is not None and (not content.get("away") or _since(trouble["since"]) > _SILENT):
        wrong.append(f"since {trouble['since']}: {trouble['what']}")
    for name, what in (
        ("refused", "the service refuses a batch"),
        ("missing", "a result is missing"),
        ("absent", "a submission could not be fetched"),
        ("uncalibrated", "a task does not calibrate on this machine"),
    ):
        rows = content.get(name, [])
        wrong += [f"{what}: {row}" for row in rows[:_SHOWN]]
        if len(rows) > _SHOWN:
            wrong.append(f"{what}: {len(rows) - _SHOWN} more, see --json")
    if content.get("conflicts"):
        wrong.append(str(content["conflicts"]))
    with suppress(OSError):
        if (free := shutil.disk_usage(folder).free) < _FREE:
            wrong.append(f"the disk is almost full: {free // 2**20} MiB are free; make room")
    return wrong


def _since(text: str) -> timedelta:
    try:
        return datetime.now(UTC) - instant(text)
    except ValueError:
        return _SILENT * 2
