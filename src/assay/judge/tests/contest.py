"""What a run needs of a competition's folder: rules, registry, tasks, agents, and what has evidence already. SPEC 7.

tasks/ID/…                the task set, pinned by tasks.txt; --tasks names another place
agents/<digest12>/…       submitted agents, as `submit` put them there
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.errors import BadInput
from assay.exact import canonical
from assay.folder.text import load
from assay.folder.write import write_bytes
from assay.judge import entries
from assay.judge.entries import Entries, Written
from assay.judge.tests import agent as agents
from assay.judge.tests.agent import Agent
from assay.judge.tests.plan import Done
from assay.judge.tests.tasks import Task, manifest, read
from assay.records import Evidence, Participant, Tests
from assay.scheme.load import read as read_scheme
from assay.scheme.model import TestsScore

__all__ = ["Contest", "agent_of", "check_same_tasks", "open_contest", "written"]

AGENTS = "agents"
TASKS = "tasks"
_SET = "tasks.json"
_SET_BYTES = 64_000_000


@dataclass(frozen=True)
class Contest(Entries):
    """A competition that is judged by tests, as one validator sees it."""

    rules: TestsScore
    tasks: Mapping[str, Task]
    """By id, in the order of tasks.txt."""
    agents: Mapping[str, Agent]
    """By submission."""
    here: tuple[Participant, ...]
    """Participants whose submission counts, and whose agent is here."""
    absent: tuple[str, ...]
    """Participants whose submission counts, and whose agent is not here."""


def open_contest(
    folder: Path,
    validator: str,
    *,
    tasks: Path | None = None,
    participants: Sequence[str] = (),
    only: Sequence[str] = (),
) -> Contest:
    """Reads it; participants, only: keys and task ids to which it is narrowed. Raises BadInput for whatever is wrong."""
    scheme = read_scheme(folder / "scheme.toml")
    if not isinstance(scheme.score, TestsScore):
        what = f"is {scheme.score.kind!r}, and agents are judged by tests"
        raise BadInput(what, file=folder / "scheme.toml", field="score.kind", hint='use kind = "tests"')
    seen = entries.read(folder, scheme, validator, participants)
    hint = "assay submit DIR PARTICIPANT AGENT puts one in its place"
    theirs = entries.submitted(seen, participants, lambda one: agent_of(folder, one), "an agent", hint)
    return Contest(
        folder=folder,
        scheme=scheme,
        validator=validator,
        participants=seen.participants,
        validators=seen.validators,
        rules=scheme.score,
        tasks=_tasks(folder, tasks, only),
        agents=theirs.found,
        here=theirs.here,
        absent=theirs.absent,
    )


def agent_of(folder: Path, participant: Participant) -> Agent | None:
    """The agent that a participant submitted; None if it is not here. Raises BadInput if its files are not what was submitted."""
    for built_in in agents.BUILT_IN.values():
        if participant.submission == built_in.digest:
            return built_in
    return entries.handed_in(folder / AGENTS, participant, agents.load, _agents)


def _agents(place: Path) -> Iterator[Agent]:
    """The agents in a folder, whatever they are called."""
    for one in sorted(place.glob(f"*/{agents.FILE}")):
        if not one.parent.name.startswith("."):
            yield agents.load(one.parent)


def written(contest: Contest) -> Written[Done]:
    """What there is evidence of; raises BadInput for what is wrong with it."""
    return entries.written(contest, _about)


def _about(found: Evidence) -> Done:
    assert isinstance(found, Tests)  # evidence of another kind was refused
    return found.submission, found.task, found.trial


def check_same_tasks(contest: Contest, root: Path, done: frozenset[Done]) -> None:
    """Refuses to go on with evidence about other tasks than these; remembers these. root: the validator's own folder.

    Evidence names a task by its id only, so what was judged of other files would count for these. SPEC 3.0. Raises BadInput.
    """
    file = root / _SET
    now = {name: task.digest for name, task in contest.tasks.items()}
    before: dict[str, str] = {}
    if file.exists():
        try:
            before = dict(json.loads(load(file, _SET_BYTES, hint="")))
        except (ValueError, TypeError):
            before = {}
    current = {one.submission for one in contest.participants}
    judged = {task for submission, task, _ in done if submission in current}
    for name in sorted(judged, key=str.encode):
        if name in before and name in now and before[name] != now[name]:
            raise BadInput(
                f"the task {name!r} is not the one that {contest.validator!r} judged before",
                file=contest.tasks[name].folder,
                hint=f"a new task set begins a new competition; or put {root} and its evidence/run-….jsonl away, and judge again",
            )
    kept = {name: found for name, found in before.items() if name in judged}
    write_bytes(file, canonical(kept | now) + b"\n")


def _tasks(folder: Path, place: Path | None, only: Sequence[str]) -> dict[str, Task]:
    file = folder / "tasks.txt"
    pinned = manifest.read(file)
    found = {task.id: task for task in manifest.chosen(pinned, read(place or folder / TASKS), file=file)}
    for name in only:
        entries.known(name, list(found), file, "task")
    return {one.id: found[one.id] for one in pinned.pins if not only or one.id in only}
