"""What a run needs of a competition's folder: rules, registry, services, the tasks, and what participants submitted. SPEC 7.

tasks/ID/…                the tasks, pinned by tasks.txt; --tasks names another place
planners/<digest12>/…     what participants submitted, as `submit` put it there
services.toml             where the services are; round.toml and randomness.csv: what is drawn of the tasks
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.errors import BadInput
from assay.judge import entries
from assay.judge.entries import Entries
from assay.judge.workflow import services as service_files
from assay.judge.workflow import taskset
from assay.judge.workflow.planner import Planner, load_planner
from assay.judge.workflow.services import Services
from assay.judge.workflow.taskset import Pinned
from assay.records import Participant
from assay.scheme.load import read as read_scheme
from assay.scheme.model import WorkflowScore

__all__ = ["PLANNERS", "Contest", "open_contest", "rules_of"]

PLANNERS = "planners"


@dataclass(frozen=True)
class Contest(Entries):
    """A competition of workflows, as one validator sees it."""

    rules: WorkflowScore
    services: Services
    pinned: Pinned
    planners: Mapping[str, Planner]
    """By submission."""
    here: tuple[Participant, ...]
    """Participants whose submission counts, and is here."""
    absent: tuple[str, ...]
    """Participants whose submission counts, and is not here."""


def rules_of(scheme: Path) -> WorkflowScore:
    """The rules in a scheme file; raises BadInput if it scores something else."""
    found = read_scheme(scheme).score
    if not isinstance(found, WorkflowScore):
        raise BadInput(f"is {found.kind!r}, and plans are judged as workflows", file=scheme, field="score.kind")
    return found


def open_contest(
    folder: Path, validator: str, *, tasks: Path | None = None, participants: Sequence[str] = (), only: Sequence[str] = ()
) -> Contest:
    """Reads it; participants, only: keys and task ids to which it is narrowed. Raises BadInput for whatever is wrong."""
    rules = rules_of(folder / "scheme.toml")
    seen = entries.read(folder, read_scheme(folder / "scheme.toml"), validator, participants)
    pinned = taskset.read(folder, tasks)
    for name in only:
        entries.known(name, list(pinned.digests), folder / taskset.LIST, "task")
    hint = "assay submit DIR PARTICIPANT FOLDER puts one in its place"
    theirs = entries.submitted(
        seen,
        participants,
        lambda one: entries.handed_in(folder / PLANNERS, one, load_planner, _planners),
        "a planner",
        hint,
    )
    return Contest(
        folder=folder,
        scheme=seen.scheme,
        validator=validator,
        participants=seen.participants,
        validators=seen.validators,
        rules=rules,
        services=service_files.read(folder / service_files.FILE),
        pinned=pinned,
        planners=theirs.found,
        here=theirs.here,
        absent=theirs.absent,
    )


def _planners(place: Path) -> Iterator[Planner]:
    """The planners in a folder, whatever they are called."""
    for one in sorted(place.glob("*")):
        if one.is_dir() and not one.name.startswith("."):
            yield load_planner(one)
