"""A round: the tasks that are asked in an epoch, drawn by public randomness that nobody knew before. SPEC 2.2, 3.0.

`round.toml` says how many (`tasks = 6`), `randomness.csv` has the epoch's 32 bytes: the hash of a block that came later, say. Of
all pinned tasks those with the lowest SHA-256(randomness ‖ 0x00 ‖ task id) are asked, so that anybody can draw them again.
Without round.toml every task is asked in every epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from assay.errors import BadInput
from assay.folder import csvs, registry
from assay.folder.places import Place
from assay.folder.text import present
from assay.judge.workflow import limits
from assay.judge.workflow.taskset import Pinned
from assay.scheme.fields import Section
from assay.scheme.reading import read_toml, validate

__all__ = ["FILE", "Round", "draw", "latest", "read"]

FILE = "round.toml"
SCHEMA = "assay.round/1"


class _Round(Section):
    tasks: Annotated[int, Field(ge=1, le=limits.DRAWN)]


@dataclass(frozen=True)
class Round:
    """What is asked in an epoch."""

    epoch: int
    task_set: str
    """The digest of tasks.txt."""
    tasks: Mapping[str, str]
    """Id → digest of the task's files, in the order of the ids' UTF-8 bytes."""
    randomness: bytes | None = None
    """None: nothing was drawn, all are asked."""

    def document(self) -> dict[str, Any]:
        """The round as JSON, which every validator makes alike."""
        drawn = None if self.randomness is None else self.randomness.hex()
        return {"schema": SCHEMA, "epoch": self.epoch, "task_set": self.task_set, "randomness": drawn, "tasks": dict(self.tasks)}


def draw(names: Iterable[str], randomness: bytes, count: int) -> list[str]:
    """The `count` names with the lowest hash, in the order of their UTF-8 bytes. SPEC 3.0 draws validators in the same way."""
    ranked = sorted(names, key=lambda name: (sha256(randomness + b"\0" + name.encode()).digest(), name.encode()))
    return sorted(ranked[:count], key=str.encode)


def read(competition: Path, pinned: Pinned, epoch: int) -> Round:
    """The round of an epoch; raises BadInput where the randomness is missing, or there are not so many tasks."""
    file = competition / FILE
    if not present(file):
        return Round(epoch, pinned.digest, pinned.digests)
    content, source = read_toml(file)
    count = validate(_Round, content, file=file, source=source).tasks
    if count > len(pinned.digests):
        what = f"{count} tasks are to be drawn, and there are {len(pinned.digests)}"
        raise BadInput(what, file=file, field="tasks", hint="pin more, or draw fewer")
    known = _randomness(competition)
    if epoch not in known:
        raise BadInput(
            f"there is no randomness of epoch {epoch}",
            file=competition / csvs.RANDOMNESS.name,
            hint="add a row for it when the block is there whose hash it is",
        )
    names = draw(pinned.digests, known[epoch], count)
    return Round(epoch, pinned.digest, {name: pinned.digests[name] for name in names}, known[epoch])


def latest(competition: Path) -> int | None:
    """The highest epoch whose randomness is known; None where none is drawn."""
    if not present(competition / FILE):
        return None
    return max(_randomness(competition), default=None)


def _randomness(competition: Path) -> Mapping[int, bytes]:
    file = competition / csvs.RANDOMNESS.name
    return registry.randomness(csvs.read(file, csvs.RANDOMNESS), Place(file))
