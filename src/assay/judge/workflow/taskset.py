"""The tasks of a competition: folders under tasks/, pinned by tasks.txt with the digest of each one's files. SPEC 6, 7.

A line is `task-id sha256:digest`, as in the manifest of a set of tests. A task that is not what was pinned is refused: validators
who judge different files would disagree, and nobody could see why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from assay.errors import BadInput
from assay.folder import tasks as listed
from assay.folder.limits import TABLE_BYTES
from assay.folder.places import Place
from assay.folder.text import load
from assay.judge.workflow import task as one_task
from assay.judge.workflow.task import FILE, Task

__all__ = ["LIST", "TASKS", "Pinned", "everything", "read", "text"]

LIST, TASKS = "tasks.txt", "tasks"
_HEAD = "# The tasks of this competition, each with the digest of its folder; `assay workflow pin` writes it.\n"


@dataclass(frozen=True)
class Pinned:
    """The set, as tasks.txt has it."""

    digests: Mapping[str, str]
    """Id → digest of the folder, in the order of the ids' UTF-8 bytes."""
    digest: str
    """Of the set."""
    folder: Path

    def task(self, name: str) -> Task:
        """The task of that id; raises BadInput if it is not here, or is not what was pinned."""
        found = one_task.read(self.folder / name)
        if found.digest != self.digests[name]:
            raise BadInput(
                f"the files of the task {name!r} are not those that were pinned",
                file=found.folder,
                hint="pin the set again, which begins a new one, or get the files back that were pinned",
            )
        return found


def read(competition: Path, folder: Path | None = None) -> Pinned:
    """The set of a competition; folder: where the tasks are, if not in tasks/. Raises BadInput."""
    file = competition / LIST
    rows = listed.lines(load(file, TABLE_BYTES, hint="`assay workflow pin DIR` writes it"), file)
    found = listed.parse(rows, 1, Place(file))
    digests: dict[str, str] = {}
    for row, place in rows:
        name, *rest = row.split()
        if len(rest) != 1 or not rest[0].startswith("sha256:"):
            raise place.refuse(f"the task {name!r} is not pinned by a digest", hint="`assay workflow pin DIR` does that")
        if name in (".", "..") or "/" in name or "\\" in name:
            raise place.refuse(f"{name!r} is not the name of a folder", hint="a task's id is its folder's name")
        digests[name] = rest[0]
    ordered = dict(sorted(digests.items(), key=lambda item: item[0].encode()))
    return Pinned(ordered, found.digest, folder or competition / TASKS)


def everything(folder: Path) -> list[Task]:
    """Every task under a folder, by id; raises BadInput for the first that is wrong, and if there is none."""
    places = sorted(
        (one.parent for one in folder.glob(f"*/{FILE}") if not one.parent.name.startswith(".")), key=lambda at: at.name.encode()
    )
    if not places:
        raise BadInput("has no tasks", file=folder, hint=f"a task is a folder in it with {FILE}")
    return [one_task.read(place) for place in places]


def text(tasks: Iterable[Task]) -> str:
    """What tasks.txt is for these."""
    return _HEAD + "".join(f"{one.id} {one.digest}\n" for one in tasks)
