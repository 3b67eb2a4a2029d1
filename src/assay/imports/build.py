"""Turns trials into the content of a competition's files: agents, outcomes, and records of evidence. SPEC 2.1, 7."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from assay.errors import BadInput
from assay.exact import canonical, digest, whole
from assay.imports.trials import UNKNOWN_TIME, Cells, ImportOptions, Trial, cells, decide
from assay.records import Evidence, Tests, record
from assay.scheme.fields import instant_text
from assay.scheme.load import parse
from assay.scheme.model import Scheme, TestsScore

__all__ = [
    "Built",
    "ImportedAgent",
    "build",
    "jsonl",
    "participants_csv",
    "rule_of",
    "submission_of",
    "tests_of",
    "validators_csv",
    "with_score",
]

MAX_TRIALS_OF_A_TASK = 10_000


@dataclass(frozen=True, slots=True)
class ImportedAgent:
    """A participant of an import: key, the digest that stands for the submission, earliest start, versions."""

    key: str
    submission: str
    submitted_at: datetime | None
    versions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Built:
    """The checked content that an import will write, and the counts for its report."""

    agents: tuple[ImportedAgent, ...]
    validators: tuple[str, ...]
    tasks: tuple[str, ...]
    trials: int
    """Trials of each task: the largest number of any task."""
    records: tuple[Evidence, ...]
    outcomes: Mapping[str, int]
    modes: Mapping[str, Mapping[str, int]]
    """The harness's name of a failure → outcome → number of trials."""
    missing: Mapping[tuple[str, str], int]
    """(agent, validator) → number of trials without a result; errors count as no result."""
    repeated: int
    retried: int
    undated: int
    """Trials whose start is not recorded."""


def tests_of(scheme: Scheme, where: str) -> TestsScore:
    """The rules of a scheme of kind tests. Raises BadInput for any other kind."""
    if not isinstance(scheme.score, TestsScore):
        raise BadInput(
            f"scores by {scheme.score.kind}, and trials are tests", file=where, field="score.kind", hint='use kind = "tests"'
        )
    return scheme.score


def rule_of(rules: TestsScore, options: ImportOptions) -> Literal["fail", "verify"]:
    """The rule of `agent_timeout` for the trials: the user's, the leaderboard's, or the scheme's. SPEC 2.1."""
    if options.count_as == "leaderboard":
        if options.agent_timeout == "fail":
            hint = 'leave out one of the two: the leaderboard counts as "verify" does'
            raise BadInput('"fail" contradicts counting as the leaderboard does', field="--agent-timeout", hint=hint)
        return "verify"
    return options.agent_timeout or rules.agent_timeout


def build(trials: Iterable[Trial], rule: str, options: ImportOptions, submissions: Mapping[str, str] | None = None) -> Built:
    """The content of an import. submissions: of participants in an existing competition. Raises BadInput."""
    board = options.count_as == "leaderboard"
    chosen = cells((decide(trial, rule, leaderboard=board, strict_errors=options.strict_errors), trial) for trial in trials)
    if not chosen.outcomes:
        raise BadInput("there are no trials to import", hint="is this the right folder?")
    agents = _agents(trial for _, trial in chosen.outcomes.values())
    digests = {agent.key: agent.submission for agent in agents} | dict(submissions or {})
    records = tuple(_record(cell, outcome, trial, digests, options) for cell, (outcome, trial) in chosen.outcomes.items())
    return _counted(chosen, agents, records)


def _counted(chosen: Cells, agents: tuple[ImportedAgent, ...], records: tuple[Evidence, ...]) -> Built:
    tasks = tuple(sorted({task for _, _, task, _ in chosen.outcomes}, key=str.encode))
    trials = max(trial for _, _, _, trial in chosen.outcomes)
    whole_run = len(tasks) * trials
    results: Counter[tuple[str, str]] = Counter()
    modes: dict[str, Counter[str]] = defaultdict(Counter)
    for (agent, validator, _, _), (outcome, trial) in chosen.outcomes.items():
        results[agent, validator] += outcome != "error"
        modes[trial.mode][outcome] += 1
    return Built(
        agents=agents,
        validators=tuple(sorted({validator for _, validator, _, _ in chosen.outcomes}, key=str.encode)),
        tasks=tasks,
        trials=trials,
        records=records,
        outcomes=Counter(outcome for outcome, _ in chosen.outcomes.values()),
        modes={mode: dict(count) for mode, count in sorted(modes.items())},
        missing={pair: whole_run - count for pair, count in results.items() if count < whole_run},
        repeated=chosen.repeated,
        retried=chosen.retried,
        undated=sum(trial.started_at is None for _, trial in chosen.outcomes.values()),
    )


def submission_of(agent: str, versions: Sequence[str]) -> str:
    """The digest that stands for an imported agent's submission: of its name and versions, because its files are not here."""
    return digest({"agent": agent, "schema": "assay.imported-agent/1", "versions": sorted(set(versions) - {""})})


def _submission(agent: str, named: set[str], versions: set[str]) -> str:
    """The submission that all trials of an agent name; otherwise a digest that stands for it."""
    return next(iter(named)) if len(named) == 1 and named != {""} else submission_of(agent, sorted(versions))


def _agents(trials: Iterable[Trial]) -> tuple[ImportedAgent, ...]:
    starts: dict[str, datetime | None] = {}
    versions: dict[str, set[str]] = defaultdict(set)
    named: dict[str, set[str]] = defaultdict(set)
    for trial in trials:
        before = starts.get(trial.agent)
        starts[trial.agent] = min(filter(None, (before, trial.started_at)), default=None)
        versions[trial.agent].add(trial.version)
        named[trial.agent].add("" if trial.origin is None else trial.origin.submission)
    return tuple(
        ImportedAgent(key, _submission(key, named[key], versions[key]), starts[key], tuple(sorted(versions[key] - {""})))
        for key in sorted(starts, key=str.encode)
    )


def _carried(origin: Tests | None) -> dict[str, object]:
    """The fields that only an exported record has."""
    if origin is None:
        return {}
    fields = {"epoch": origin.epoch, "observed_at": origin.observed_at, "image": origin.image}
    return {name: value for name, value in fields.items() if value is not None}


def _record(
    cell: tuple[str, str, str, int], outcome: str, trial: Trial, digests: Mapping[str, str], options: ImportOptions
) -> Evidence:
    agent, validator, task, number = cell
    try:
        for name, what in ((agent, "agent"), (validator, "run")):
            if name != name.strip():
                raise BadInput(f"the name of the {what}, {name[:80]!r}, begins or ends with a space", hint="remove the space")
        if " " in task or task.startswith("#"):
            raise BadInput(f"task {task[:80]!r} cannot stand in tasks.txt", hint="a task's id has no spaces and no # in front")
        if number > MAX_TRIALS_OF_A_TASK:
            raise BadInput(f"trial {number} is more than {MAX_TRIALS_OF_A_TASK}", hint="number the trials of a task from 1")
        return record(
            {
                "kind": "tests",
                "epoch": options.epoch,
                "validator": validator,
                "participant": agent,
                "submission": digests[agent],
                "observed_at": trial.started_at or UNKNOWN_TIME,
                "task": task,
                "outcome": outcome,
                "trial": number,
            }
            | _carried(trial.origin)
        )
    except BadInput as error:
        raise error.at(file=trial.file, line=trial.line) from None


def jsonl(records: Iterable[Evidence]) -> str:
    """Records as JSON lines, each in canonical JSON. SPEC 7."""
    return "".join(f"{canonical(item.document()).decode()}\n" for item in records)


def participants_csv(agents: Sequence[ImportedAgent], options: ImportOptions, rules: Scheme) -> str:
    """The text of participants.csv: uids in the order of the agents, without the burn uid; a ranking has no uids. SPEC 7."""
    if rules.reward.kind == "ranking":
        starts = ("" if agent.submitted_at is None else instant_text(agent.submitted_at) for agent in agents)
        ranked = ([agent.key, "", agent.submission, start] for agent, start in zip(agents, starts, strict=True))
        return _csv([["key", "name", "submission", "submitted_at"], *ranked])
    burn_uid = rules.decay.burn_uid if rules.decay is not None else 0
    rows = [["key", "uid", "name", "submission", "submitted_at", "last_reset_epoch", "address"]]
    uid = options.first_uid
    for agent in agents:
        if uid is not None and uid == burn_uid:
            uid += 1
        if uid is not None and not 0 <= uid <= 65_535:
            raise BadInput(f"there is no uid {uid}", field="--first-uid", hint="uids are from 0 to 65535; start lower")
        when = "" if agent.submitted_at is None else instant_text(agent.submitted_at)
        rows.append([agent.key, "" if uid is None else str(uid), "", agent.submission, when, "", ""])
        uid = None if uid is None else uid + 1
    return _csv(rows)


def validators_csv(validators: Sequence[str], options: ImportOptions) -> str:
    """The text of validators.csv: one validator for each run, all with the same stake. SPEC 7."""
    try:
        stake = str(whole(options.stake, 63))
    except BadInput as error:
        raise error.at(field="--stake") from None
    return _csv([["key", "stake", "name"], *([key, stake, ""] for key in validators)])


def _csv(rows: Iterable[Sequence[str]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def with_score(source: str, fields: Mapping[str, str]) -> str:
    """The text of a scheme with some fields of `[score]` (name → TOML value) set, and everything else unchanged."""
    if not fields:
        return source
    lines = source.splitlines()
    start = next((n for n, line in enumerate(lines) if re.match(r"\s*\[\s*score\s*\]", line)), None)
    if start is None:
        raise BadInput("has no section [score]", field="--scheme", hint='write [score] and, below it, kind = "tests"')
    end = next((n for n in range(start + 1, len(lines)) if re.match(r"\s*\[", lines[n])), len(lines))
    for name, value in fields.items():
        place = next((n for n in range(start + 1, end) if re.match(rf"\s*{name}\s*=", lines[n])), None)
        if place is None:
            kind = next((n for n in range(start + 1, end) if re.match(r"\s*kind\s*=", lines[n])), start)
            lines.insert(kind + 1, f"{name} = {value}")
            end += 1
        else:
            lines[place] = _with_value(lines[place], name, value)
    text = "\n".join(lines) + "\n"
    parse(text)
    return text


def _with_value(line: str, name: str, value: str) -> str:
    """A line of TOML with another value; its comment stays in its column if there is room."""
    rest = line.partition("=")[2].lstrip()
    old = re.match(r"\"[^\"]*\"|'[^']*'|[^\s#]*", rest)
    comment = rest[old.end() if old else 0 :].strip()
    start = f"{name} = {value}"
    return f"{start:<{max(len(start) + 2, line.index('#'))}}{comment}" if comment else start
