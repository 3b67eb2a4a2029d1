"""A competition's folder for the judge by tests: pinned tasks, submitted agents, and trials to judge. SPEC 2.1, 7.

tasks.txt                 the tasks of a score, each pinned by its folder's digest
tasks/ID/…                the task set; --tasks names another place
agents/<digest12>/…       submitted agents, as `submit_agent` put them there
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from assay.errors import BadInput
from assay.exact import canonical
from assay.folder import registry as listed
from assay.folder.files import TABLE_BYTES, Place, load, write_bytes, write_text
from assay.judge import entries, submitting
from assay.judge.entries import Entries, counting
from assay.judge.terminal import agent as agents
from assay.judge.terminal.agent import Agent
from assay.judge.terminal.task_settings import Mode
from assay.judge.terminal.tasks import Task, TaskSet, read_tasks
from assay.records import Participant
from assay.scheme.load import read as read_scheme
from assay.scheme.model import TestsScore

_HEAD = "# The tasks of this competition: id, digest of its folder, and how its tests see the agent's work if not separately.\n"


@dataclass(frozen=True)
class Pin:
    """One line."""

    id: str
    digest: str | None = None
    """None if the line is an id only, which pins nothing."""
    mode: Mode = "separate"

    def __str__(self) -> str:
        weaker = "" if self.mode == "separate" else self.mode
        return " ".join(word for word in (self.id, self.digest, weaker) if word)


@dataclass(frozen=True)
class Manifest:
    """The lines, in the order of the file."""

    pins: tuple[Pin, ...]

    @property
    def digest(self) -> str:
        """The digest of the set, the same as a settlement's `task_set`; it does not depend on the order."""
        return listed.parse_tasks(
            [(str(pin), Place("tasks.txt", number)) for number, pin in enumerate(self.pins, 1)], 1, Place("tasks.txt")
        ).digest

    def text(self) -> str:
        """The file."""
        return _HEAD + "".join(f"{pin}\n" for pin in self.pins)


@dataclass(frozen=True)
class Changes:
    """The differences from the pinned tasks, as sorted task ids."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    """Tasks whose files changed."""
    moded: tuple[str, ...] = ()
    """Tasks whose tests see the agent's work in another way than before."""
    unpinned: tuple[str, ...] = ()
    """Listed by id only."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.moded or self.unpinned)


def pin_tasks(tasks: Iterable[Task]) -> Manifest:
    """The manifest of tasks, sorted by id."""
    return Manifest(tuple(Pin(task.id, task.digest, task.mode) for task in sorted(tasks, key=lambda task: task.id.encode())))


def read_manifest(path: Path) -> Manifest:
    """The manifest in a tasks.txt; raises BadInput as `folder.registry` does."""
    rows = listed.task_lines(load(path, TABLE_BYTES, hint="pin a task set to write it"), path)
    listed.parse_tasks(rows, 1, Place(path))
    return Manifest(tuple(_pin(row) for row, _ in rows))


def pins_of(rows: Iterable[str]) -> dict[str, str | None]:
    """Task → the digest of its folder, from the lines of a manifest; None if the line pins nothing."""
    return {pin.id: pin.digest for pin in map(_pin, rows)}


def _pin(row: str) -> Pin:
    name, *rest = row.split()
    digest = next((word for word in rest if word.startswith("sha256:")), None)
    mode: Mode = "shared" if "shared" in rest else "snapshot" if "snapshot" in rest else "separate"
    return Pin(name, digest, mode)


def write_manifest(manifest: Manifest, path: Path) -> None:
    """Writes the file whole or not at all; raises BadInput if that fails or there are no tasks."""
    if not manifest.pins:
        raise BadInput("has no tasks", file=path, hint="pin a set with at least one task")
    write_text(path, manifest.text())


def compare_manifest(before: Manifest, after: Manifest) -> Changes:
    """The changes from one manifest to another."""
    old, new = ({pin.id: pin for pin in manifest.pins} for manifest in (before, after))
    both = sorted(old.keys() & new.keys(), key=str.encode)
    return Changes(
        added=tuple(sorted(new.keys() - old.keys(), key=str.encode)),
        removed=tuple(sorted(old.keys() - new.keys(), key=str.encode)),
        changed=tuple(name for name in both if old[name].digest not in (None, new[name].digest)),
        moded=tuple(name for name in both if old[name].mode != new[name].mode),
        unpinned=tuple(name for name in both if old[name].digest is None),
    )


def chosen(manifest: Manifest, tasks: TaskSet, *, file: Path | None = None) -> TaskSet:
    """The tasks that a manifest lists; raises BadInput if one is missing or is not what was pinned; others are left out."""
    there = {task.id: task for task in tasks}
    again = "pin the set again, which begins a new one, or get the files back that were pinned"
    for pin in manifest.pins:
        if pin.id not in there:
            raise BadInput(f"the task {pin.id!r} is not in the set", file=file, hint="get the whole set, or pin the one there is")
        task = there[pin.id]
        if pin.digest not in (None, task.digest):
            raise BadInput(f"the files of the task {pin.id!r} are not those that were pinned", file=task.folder, hint=again)
        if pin.mode != task.mode and pin.digest is not None:
            raise BadInput(f"the task {pin.id!r} is pinned as {pin.mode}, and is {task.mode}", file=file, hint=again)
    wanted = {pin.id for pin in manifest.pins}
    return TaskSet(tuple(task for task in tasks if task.id in wanted), tasks.passed_over)


@dataclass(frozen=True, slots=True)
class TrialCell:
    """One trial to be judged."""

    participant: str
    submission: str
    task: str
    trial: int

    @property
    def parts(self) -> dict[str, str]:
        """The task and the trial's number, which tell it from the participant's other trials."""
        return {"task": self.task, "trial": str(self.trial)}

    @property
    def key(self) -> tuple[object, ...]:
        """See `running.Cell`."""
        return self.submission, self.task, self.trial


@dataclass(frozen=True)
class EveryTrial(Collection[TrialCell]):
    """Every trial, participant by participant, so that scores become complete one after the other. None is kept in memory."""

    participants: Sequence[Participant]
    tasks: tuple[str, ...]
    trials: int

    def __iter__(self) -> Iterator[TrialCell]:
        for participant in counting(self.participants):
            for task in self.tasks:
                for trial in range(1, self.trials + 1):
                    yield TrialCell(participant.key, participant.submission, task, trial)

    def __len__(self) -> int:
        return len(counting(self.participants)) * len(self.tasks) * self.trials

    def __contains__(self, cell: object) -> bool:
        return any(cell == own for own in self)


AGENTS = "agents"
TASKS = "tasks"
_SET = "tasks.json"
_SET_BYTES = 64_000_000


@dataclass(frozen=True)
class TrialCompetition(Entries):
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
) -> TrialCompetition:
    """Reads it; participants, only: keys and task ids to which it is narrowed. Raises BadInput for whatever is wrong."""
    scheme = read_scheme(folder / "scheme.toml")
    if not isinstance(scheme.score, TestsScore):
        what = f"is {scheme.score.kind!r}, and agents are judged by tests"
        raise BadInput(what, file=folder / "scheme.toml", field="score.kind", hint='use kind = "tests"')
    seen = entries.read(folder, scheme, validator, participants)
    hint = "assay submit DIR PARTICIPANT AGENT puts one in its place"
    theirs = entries.submitted(seen, participants, lambda participant: agent_of(folder, participant), "an agent", hint)
    return TrialCompetition(
        folder=folder,
        scheme=scheme,
        validator=validator,
        participants=seen.participants,
        validators=seen.validators,
        rules=scheme.score,
        tasks=_tasks(folder, tasks, only),
        agents=theirs.files,
        here=theirs.here,
        absent=theirs.absent,
    )


def agent_of(folder: Path, participant: Participant) -> Agent | None:
    """The agent that a participant submitted; None if it is not here. Raises BadInput if its files are not what was submitted."""
    for built_in in agents.BUILT_IN.values():
        if participant.submission == built_in.digest:
            return built_in
    return entries.handed_in(folder / AGENTS, participant, agents.load_agent, _agents)


def is_here(folder: Path, submission: str) -> bool:
    """Whether the agent with a digest can run here: a built-in one, or one of agents/. Raises as `agent_of` does."""
    return agent_of(folder, Participant("", submission=submission)) is not None


def _agents(place: Path) -> Iterator[Agent]:
    """The agents in a folder, whatever they are called."""
    for path in sorted(place.glob(f"*/{agents.FILE}")):
        if not path.parent.name.startswith("."):
            yield agents.load_agent(path.parent)


def check_same_tasks(contest: TrialCompetition, root: Path, done: Collection[tuple[object, ...]]) -> None:
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
    current = {participant.submission for participant in contest.participants}
    judged = {str(task) for submission, task, _ in done if submission in current}
    for name in sorted(judged, key=str.encode):
        if name in before and name in now and before[name] != now[name]:
            raise BadInput(
                f"the task {name!r} is not the one that {contest.validator!r} judged before",
                file=contest.tasks[name].folder,
                hint=f"a new task set begins a new competition; or put {root} and its evidence/run-….jsonl away, and judge again",
            )
    earlier = {name: digest for name, digest in before.items() if name in judged}
    write_bytes(file, canonical(earlier | now) + b"\n")


def _tasks(folder: Path, place: Path | None, only: Sequence[str]) -> dict[str, Task]:
    file = folder / "tasks.txt"
    pinned = read_manifest(file)
    tasks = {task.id: task for task in chosen(pinned, read_tasks(place or folder / TASKS), file=file)}
    for name in only:
        entries.known(name, list(tasks), file, "task")
    return {pin.id: tasks[pin.id] for pin in pinned.pins if not only or pin.id in only}


@dataclass(frozen=True)
class SubmittedAgent:
    """The result of submitting an agent."""

    agent: Agent
    folder: Path | None
    """The folder of the agent's files; None for a built-in agent, which has none."""
    before: str
    """The participant's submission until now; empty if there was none."""
    epoch: int | None = None
    """The epoch in which the ledger accepted it; None without a ledger."""

    @property
    def changed(self) -> bool:
        """Whether it is another submission than before."""
        return self.before != self.agent.digest


def submit_agent(
    competition: Path, participant: str, source: str, *, at: datetime | None = None, epoch: int | None = None
) -> SubmittedAgent:
    """Makes an agent (a folder, a command line, oracle or noop) the current submission of a participant; raises BadInput.

    epoch: in which it is accepted, for a competition with a ledger; None is the latest that is open. The same submission once
    more changes nothing. Raises StoreError where the ledger cannot be written.
    """
    row = submitting.find(competition, participant)
    agent, before = agents.find_agent(source), row.submission
    if agent.folder is None and agent != agents.BUILT_IN.get(agent.name):
        with TemporaryDirectory(prefix="assay-agent-") as temporary:
            folder = Path(temporary) / agents.FILE
            write_text(folder, f"name = {json.dumps(agent.name)}\ncommand = {json.dumps(agent.command)}\n")
            agent = _placed(competition, agents.load_agent(folder.parent))
    elif agent.folder is not None:
        agent = _placed(competition, agent)
    accepted = row.enter(agent.digest, at=at, epoch=epoch)
    return SubmittedAgent(agent, agent.folder, before, accepted)


def put_agent(competition: Path, source: Path, submission: str) -> None:
    """Copy the agent in a folder to agents/; submission: the digest that it must have. Raises BadInput."""
    agent = agents.load_agent(source)
    if agent.digest != submission:
        raise BadInput(f"is not the submission {submission}: its digest is {agent.digest}", file=source, hint="get it again")
    _placed(competition, agent)


def _placed(competition: Path, agent: Agent) -> Agent:
    """The agent with its files in agents/."""
    assert agent.folder is not None
    folder = submitting.placed(
        competition / AGENTS,
        agent.folder,
        agent.digest,
        lambda folder: agents.load_agent(folder).digest,
        bounds=agents.BOUNDS,
        refused="an agent is files, folders, and links that stay inside",
    )
    # A folder of somebody else may have changed while it was copied.
    return replace(agent, folder=folder) if submitting.is_staged(competition, agent.folder) else agents.load_agent(folder)
