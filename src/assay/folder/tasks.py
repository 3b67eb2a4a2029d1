"""tasks.txt: the task set, and the digest that pins it. SPEC 2.1, 6, 7.

A line is a task id; a manifest adds the digest of the task's files and how its tests see the agent's work:
`task-id [sha256:digest] [shared|snapshot]`. Blank lines, and lines that begin with `#`, say nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.characters import allowed
from assay.exact import digest
from assay.folder.limits import TABLE_BYTES, TASKS, TRIALS_IN_ALL
from assay.folder.places import Place
from assay.folder.text import decode, load

__all__ = ["TaskSet", "lines", "parse", "read", "weaker"]

_WORDS = re.compile(r"[^ \t]+")
_DIGEST = re.compile("sha256:[0-9a-f]{64}", re.ASCII)
MODES = ("shared", "snapshot")
LONGEST = 256
"""Characters of a task id."""


@dataclass(frozen=True)
class TaskSet:
    """The task ids in the order of the file, and the digest of the set, which does not depend on the order."""

    ids: tuple[str, ...]
    digest: str
    manifest: tuple[str, ...] = ()
    """The lines, words joined by one space, sorted by their UTF-8 bytes: what the digest is taken of."""


def read(path: Path, trials: int) -> TaskSet:
    """The task set in a file; raises BadInput as `parse` does."""
    return parse(lines(load(path, TABLE_BYTES, hint="list the tasks, one id a line"), path), trials, Place(path))


def weaker(path: Path) -> dict[str, str]:
    """The tasks whose tests see more of the agent's work than its results: id → shared or snapshot, in the order of the file."""
    rows = [_WORDS.findall(row) for row, _ in lines(load(path, TABLE_BYTES, hint=""), path)]
    return {words[0]: words[-1] for words in rows if len(words) > 1 and words[-1] in MODES}


def unsolved(folder: Path) -> list[str]:
    """The tasks of a competition whose files are here without a reference solution, in the order of tasks.txt."""
    rows = [_WORDS.findall(row)[0] for row, _ in lines(load(folder / "tasks.txt", TABLE_BYTES, hint=""), folder / "tasks.txt")]
    here = {name: folder / "tasks" / name for name in rows if name not in (".", "..") and "/" not in name}
    return [name for name, task in here.items() if task.is_dir() and not (task / "solution" / "solve.sh").exists()]


def lines(data: bytes, file: Path | str) -> list[tuple[str, Place]]:
    """The lines that say something, and where they stand; raises BadInput for bytes that are not UTF-8."""
    rows = enumerate(re.split(r"\r\n|\r|\n", decode(data, file)), start=1)
    return [(row, Place(file, number)) for number, row in rows if row.strip(" \t") and not row.lstrip(" \t").startswith("#")]


def parse(rows: Iterable[tuple[str, Place]], trials: int, place: Place) -> TaskSet:
    """The task set in lines; raises BadInput for an id that cannot be printed or is repeated, a wrong word, and no task."""
    seen: dict[str, Place] = {}
    whole = []
    for row, here in rows:
        words = _WORDS.findall(row)
        if not words:
            raise here.refuse("is an empty task id", hint="give the task an id, or remove it")
        _check(words, here)
        if words[0] in seen:
            raise here.refuse(f"the task {words[0]!r} is there twice, first at {seen[words[0]]}", hint="remove one of the two")
        seen[words[0]] = here
        whole.append(" ".join(words))
        if len(whole) > TASKS or len(whole) * trials > TRIALS_IN_ALL:
            raise here.refuse(
                f"has too many tasks (at most {TASKS}, and {TRIALS_IN_ALL} trials in all)", hint="make several competitions of it"
            )
    if not whole:
        raise place.refuse("has no tasks", hint="list the tasks, one id a line")
    whole.sort(key=str.encode)
    return TaskSet(tuple(seen), digest(whole), tuple(whole))


def _check(words: Sequence[str], place: Place) -> None:
    name, *rest = words
    if len(name) > LONGEST or not allowed(name) or name.startswith("#"):
        hint = f"use 1 to {LONGEST} printable characters, no spaces, and no # in front"
        raise place.refuse(f"{name[:60]!r} is not a task id", hint=hint)
    if rest and _DIGEST.fullmatch(rest[0]):
        rest = rest[1:]
    if rest and rest[0] in MODES:
        rest = rest[1:]
    if rest:
        raise place.refuse(
            f"{rest[0][:80]!r} is out of place after the task id",
            hint="a line is: task-id [sha256: and 64 hex digits] [shared or snapshot]",
        )
