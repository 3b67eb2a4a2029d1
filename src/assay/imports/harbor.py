"""Reads Harbor (Terminal-Bench 2): the trials of a job, `<job>/<trial>/result.json`, or of a folder of jobs.

A job is a run. Its trials of one task are numbered by their start. If an agent has only one job, they stand for runs, as on the
Terminal-Bench 2 leaderboard. A trial that `assay export harbor` wrote contains its record.
"""

from __future__ import annotations

import decimal
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from assay.errors import BadInput
from assay.imports.trials import (
    MAX_TRIALS,
    FailureCause,
    ImportOptions,
    Trial,
    Trials,
    find,
    json_object,
    kind_of,
    moment,
    numbered,
    optional_text,
    text_of,
    validator_of,
)
from assay.records import Tests, record

__all__ = ["EXCEPTIONS", "read"]

EXCEPTIONS: Mapping[str, FailureCause] = {
    "AgentTimeoutError": FailureCause.AGENT_TIMEOUT,
    "VerifierTimeoutError": FailureCause.TEST_TIMEOUT,
    "AgentSetupTimeoutError": FailureCause.SETUP,
    "NonZeroAgentExitCodeError": FailureCause.AGENT,
    "ContextLengthExceededError": FailureCause.AGENT,
    "OutputLengthExceededError": FailureCause.AGENT,
    "RewardFileNotFoundError": FailureCause.AGENT,
    "RewardFileEmptyError": FailureCause.AGENT,
    "VerifierOutputParseError": FailureCause.AGENT,
}
"""Harbor's exceptions and their causes. Any other exception (environment, Docker, an API, a cancelled job) is an error,
unless the tests passed."""

_SKIP = frozenset({"agent", "artifacts", "steps", "verifier"})
_JOB = ("n_total_trials", "stats", "trial_results")


@dataclass(frozen=True, slots=True)
class _HarborTrial:
    trial: Trial
    job: Path
    name: str


def read(src: Path, options: ImportOptions | None = None) -> Trials:
    """The trials of a Harbor job, of a folder of jobs, or of one trial; raises BadInput naming file and field."""
    options = options or ImportOptions()
    raws: list[tuple[_HarborTrial, bool]] = []

    def visit(path: Path) -> bool:
        content = json_object(path)
        if "task_name" not in content and any(key in content for key in _JOB):
            return False
        raws.append(_trial(path, content, options))
        if len(raws) > MAX_TRIALS:
            raise BadInput(f"holds more than {MAX_TRIALS} trials", file=src, hint="import it in parts")
        return True

    walk = find(src, "result.json", visit, skip=_SKIP)
    if not raws:
        hint = "give the folder of a job (jobs/<job>) or the folder of the jobs"
        raise BadInput("has no trial of Harbor in it (result.json)", file=src, hint=hint)
    notes = list(walk.notes)
    if naive := sum(assumed for _, assumed in raws):
        notes.append(f"{naive} start times have no time zone and were read as UTC")
    return Trials(_named([raw for raw, _ in raws], src, options), tuple(notes))


def _trial(path: Path, content: dict[str, Any], options: ImportOptions) -> tuple[_HarborTrial, bool]:
    task = text_of(content, "task_name", path)
    name = optional_text(content, "trial_name", path) or path.parent.name
    agent, version = _agent(path, content)
    exception = _inside(path, content, "exception_info")
    mode = text_of(exception, "exception_type", path, prefix="exception_info.") if exception else "none"
    start = optional_text(content, "started_at", path)
    try:
        started, assumed = moment(start)
    except BadInput as error:
        raise error.at(file=path, field="started_at") from None
    trial = Trial(
        agent=options.agent or agent,
        validator="",
        task=task,
        resolved=_resolved(path, content),
        trouble=EXCEPTIONS.get(mode, FailureCause.ELSEWHERE) if exception else FailureCause.NONE,
        mode=mode,
        started_at=started,
        version=version,
        origin=_origin(path, content),
        file=str(path),
    )
    return _HarborTrial(trial, path.parent.parent, name), assumed


def _inside(path: Path, content: dict[str, Any], name: str, prefix: str = "") -> dict[str, Any] | None:
    value = content.get(name)
    if value is not None and not isinstance(value, dict):
        hint = "correct it or leave the trial out"
        raise BadInput(f"is {kind_of(value)}, not an object", file=path, field=prefix + name, hint=hint)
    return value


def _origin(path: Path, content: dict[str, Any]) -> Tests | None:
    """The record that `assay export harbor` wrote as the agent's argument `assay`; None without one."""
    value: Any = content
    for name in ("config", "agent", "kwargs", "assay"):
        value = value.get(name) if isinstance(value, dict) else None
    if value is None:
        return None
    try:
        origin = record(value)
    except BadInput as error:
        raise error.at(file=path, field="config.agent.kwargs.assay") from None
    if not isinstance(origin, Tests):
        raise BadInput("is not a record of tests", file=path, field="config.agent.kwargs.assay", hint="export it again")
    return origin


def _agent(path: Path, content: dict[str, Any]) -> tuple[str, str]:
    """The participant's key, as on the leaderboards (`agent_model`), and its version."""
    info = _inside(path, content, "agent_info")
    if info is None:
        raise BadInput("is missing", file=path, field="agent_info", hint="is this the result of a Harbor trial?")
    agent = text_of(info, "name", path, prefix="agent_info.")
    version = optional_text(info, "version", path, prefix="agent_info.") or ""
    model = _inside(path, info, "model_info", "agent_info.")
    if model is None:
        return agent, version
    name = text_of(model, "name", path, prefix="agent_info.model_info.")
    provider = optional_text(model, "provider", path, prefix="agent_info.model_info.")
    full = name if provider is None or name.startswith(f"{provider}/") else f"{provider}/{name}"
    return f"{agent}_{name.rpartition('/')[2]}", f"{version} {full}".strip()


def _resolved(path: Path, content: dict[str, Any]) -> bool | None:
    """True if the reward called `reward` is exactly 1, or without that name all rewards; None if one that decides is missing."""
    result = _inside(path, content, "verifier_result")
    rewards = _inside(path, result, "rewards", "verifier_result.") if result is not None else None
    if not rewards:
        return None
    for name, reward in rewards.items():
        number = isinstance(reward, int | decimal.Decimal) and not isinstance(reward, bool)
        if reward is not None and not number:
            field = f"verifier_result.rewards.{name[:80]}"
            hint = "a reward is a number; correct it or leave the trial out"
            raise BadInput(f"is {kind_of(reward)}", file=path, field=field, hint=hint)
    deciding = [rewards["reward"]] if "reward" in rewards else list(rewards.values())
    return None if None in deciding else all(reward == 1 for reward in deciding)


def _named(raws: list[_HarborTrial], src: Path, options: ImportOptions) -> tuple[Trial, ...]:
    """The trials with numbered attempts, and jobs or attempts as validators."""
    jobs: dict[str, set[str]] = defaultdict(set)
    attempts: dict[tuple[str, Path, str], list[_HarborTrial]] = defaultdict(list)
    known = [raw.trial for raw in raws if raw.trial.origin is not None]
    for raw in (raw for raw in raws if raw.trial.origin is None):
        jobs[raw.trial.agent].add(str(raw.job))
        attempts[raw.trial.agent, raw.job, raw.trial.task].append(raw)
    most: dict[str, int] = defaultdict(int)
    for (agent, _, _), several in attempts.items():
        most[agent] = max(most[agent], len(several))
    as_runs = {
        agent: options.attempts == "runs" or (options.attempts == "auto" and len(of) == 1 and most[agent] > 1)
        for agent, of in jobs.items()
    }
    for agent, wanted in as_runs.items():
        if wanted and len(jobs[agent]) > 1:
            hint = "attempts can stand for runs only where there is one job"
            raise BadInput(f"agent {agent!r} has {len(jobs[agent])} jobs", file=src, hint=hint)
    numbers = {agent: numbered(sorted(of)) for agent, of in jobs.items()}
    trials = [
        replace(trial, validator=trial.origin.validator, trial=trial.origin.trial) for trial in known if trial.origin is not None
    ]
    for (agent, job, _), several in attempts.items():
        for attempt, raw in enumerate(sorted(several, key=_order), start=1):
            run, number = (attempt, 1) if as_runs[agent] else (numbers[agent][str(job)], attempt)
            trials.append(replace(raw.trial, validator=validator_of(run), trial=number))
    return tuple(trials)


def _order(raw: _HarborTrial) -> tuple[datetime, str]:
    return raw.trial.started_at or datetime.max.replace(tzinfo=UTC), raw.name
