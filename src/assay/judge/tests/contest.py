"""What a run needs of a competition's folder: rules, registry, tasks, agents, and what has evidence already. SPEC 7.

tasks/ID/…                the task set, pinned by tasks.txt; --tasks names another place
agents/<digest12>/…       submitted agents, as `submit` put them there
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.errors import BadInput
from assay.exact import canonical
from assay.folder import csvs, evidence, registry
from assay.folder.places import Place
from assay.folder.text import load
from assay.folder.write import write_bytes
from assay.judge.tests import agent as agents
from assay.judge.tests.agent import Agent
from assay.judge.tests.plan import Done, counting
from assay.judge.tests.store import short
from assay.judge.tests.tasks import Task, manifest, read
from assay.records import Participant, Tests, Validator
from assay.scheme import Scheme
from assay.scheme import read as read_scheme
from assay.scheme.model import TestsScore
from assay.settle import assign

__all__ = ["Contest", "agent_of", "check_same_tasks", "drawn", "open_contest", "written"]

AGENTS = "agents"
TASKS = "tasks"
_SET = "tasks.json"
_SET_BYTES = 64_000_000


@dataclass(frozen=True)
class Contest:
    """A competition that is judged by tests, as one validator sees it."""

    folder: Path
    scheme: Scheme
    rules: TestsScore
    validator: str
    participants: tuple[Participant, ...]
    """Of everybody, in the order given."""
    validators: tuple[Validator, ...]
    tasks: Mapping[str, Task]
    """By id, in the order of tasks.txt."""
    agents: Mapping[str, Agent]
    """By submission."""
    absent: tuple[str, ...]
    """Participants whose submission counts, and whose agent is not here."""


@dataclass(frozen=True)
class Written:
    """What the evidence in a competition's folder says of one validator."""

    done: frozenset[Done]
    epoch: int | None
    """The highest epoch of anybody's evidence."""
    first: Mapping[str, int]
    """Submission → the lowest epoch of anybody's evidence about it."""


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
    file = folder / "participants.csv"
    everybody = registry.participants(csvs.read(file, csvs.PARTICIPANTS), Place(file), scheme)
    judges = _validators(folder, len(everybody))
    _known(validator, [one.key for one in judges], folder / "validators.csv", "validator")
    for key in participants:
        _known(key, [one.key for one in everybody], file, "participant")
    found: dict[str, Agent] = {}
    absent: list[str] = []
    for one in counting(everybody):
        if participants and one.key not in participants:
            continue
        agent = agent_of(folder, one)
        if agent is None:
            absent.append(one.key)
        else:
            found[one.submission] = agent
    if not found:
        raise BadInput(
            "no participant has an agent here" + (f": {', '.join(absent[:5])} have none" if absent else ""),
            file=file,
            hint="assay submit DIR PARTICIPANT AGENT puts one in its place",
        )
    return Contest(folder, scheme, scheme.score, validator, everybody, judges, _tasks(folder, tasks, only), found, tuple(absent))


def agent_of(folder: Path, participant: Participant) -> Agent | None:
    """The agent that a participant submitted; None if it is not here. Raises BadInput if its files are not what was submitted."""
    for built_in in agents.BUILT_IN.values():
        if participant.submission == built_in.digest:
            return built_in
    place = folder / AGENTS / short(participant.submission)
    if not place.is_dir():
        return next((one for one in _others(folder) if one.digest == participant.submission), None)
    found = agents.load(place)
    if found.digest != participant.submission:
        raise BadInput(
            f"is not what {participant.key!r} submitted: its digest is {found.digest}",
            file=place,
            hint="submit the agent again, or get the files back that were submitted",
        )
    return found


def _others(folder: Path) -> tuple[Agent, ...]:
    """The agents under agents/ that are called by something else than their digest."""
    found = sorted((folder / AGENTS).glob(f"*/{agents.FILE}"))
    return tuple(agents.load(one.parent) for one in found if not one.parent.name.startswith("."))


def written(contest: Contest) -> Written:
    """Reads all evidence once; raises BadInput for what is wrong with it."""
    judges = frozenset(one.key for one in contest.validators)
    known = evidence.Registry("tests", judges, frozenset(one.key for one in contest.participants))
    done: set[Done] = set()
    epoch: int | None = None
    first: dict[str, int] = {}
    folder = contest.folder / "evidence"
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    for path in paths:
        if path.suffix == ".parquet":
            raise BadInput("is Parquet, and a run writes .jsonl beside it", file=path, hint="keep all evidence in .jsonl")
        if path.suffix != ".jsonl":
            continue
        for found in evidence.read([path], known).records:  # file by file, so that no more than one is in memory
            epoch = found.epoch if epoch is None else max(epoch, found.epoch)
            first[found.submission] = min(found.epoch, first.get(found.submission, found.epoch))
            if isinstance(found, Tests) and found.validator == contest.validator:
                done.add((found.submission, found.task, found.trial))
    return Written(frozenset(done), epoch, first)


def drawn(contest: Contest, found: Written, epoch: int) -> list[Participant]:
    """The participants whose submissions count, are here, and are this validator's to judge. SPEC 2, 3.0.

    epoch: of the evidence that is to come; a submission that has none yet, and no accepted_epoch, is accepted in it.
    Raises BadInput where the randomness of an epoch is missing.
    """
    file = contest.folder / csvs.RANDOMNESS.name
    rules = contest.scheme.consensus
    asked = rules.assign is not None and file.exists()
    randomness = registry.randomness(csvs.read(file, csvs.RANDOMNESS), Place(file)) if asked else {}
    keys = [one.key for one in contest.validators]
    may = assign.may_count([one.stake for one in contest.validators], rules)
    mine = []
    for one in counting(contest.participants):
        if one.submission in contest.agents:
            at = found.first.get(one.submission, epoch) if one.accepted_epoch is None else one.accepted_epoch
            try:
                rows = assign.drawn(one, at, keys, may, rules, randomness)
            except BadInput as error:
                raise error.at(file=file) from None
            if contest.validator in (keys[row] for row in rows):
                mine.append(one)
    return mine


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


def _validators(folder: Path, participants: int) -> tuple[Validator, ...]:
    file = folder / "validators.csv"
    return registry.validators(csvs.read(file, csvs.VALIDATORS), Place(file), participants)


def _tasks(folder: Path, place: Path | None, only: Sequence[str]) -> dict[str, Task]:
    file = folder / "tasks.txt"
    pinned = manifest.read(file)
    found = {task.id: task for task in manifest.chosen(pinned, read(place or folder / TASKS), file=file)}
    for name in only:
        _known(name, list(found), file, "task")
    return {one.id: found[one.id] for one in pinned.pins if not only or one.id in only}


def _known(said: str, known: Sequence[str], file: Path, what: str) -> None:
    if said not in known:
        close = difflib.get_close_matches(said, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there is {', '.join(sorted(known)[:5])}"
        raise BadInput(f"there is no {what} {said[:80]!r}", file=file, field=what, hint=hint)
