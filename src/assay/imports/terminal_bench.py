"""Reads Terminal-Bench 1: the `results.json` files of its runs, in the usual layouts.

    <agent>/<run>/<task>/<trial>/results.json     one object for each trial
    <agent>/<run>/results.json                    {"results": [ ... ]}, a whole run
    <agent>/<task>/<task>.k-of-n/results.json     no folder for the run: attempt k is run k

The source may be a run, an agent's folder or a folder of agents. If a run has both kinds of file, both are read. A trial that is
equal in both counts once; a trial that differs is refused.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.errors import BadInput
from assay.imports.trials import (
    MAX_TRIALS,
    FailureCause,
    FolderWalk,
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

__all__ = ["MODES", "read"]

MODES: Mapping[str, FailureCause] = {
    "unset": FailureCause.NONE,
    "none": FailureCause.NONE,
    "agent_timeout": FailureCause.AGENT_TIMEOUT,
    "test_timeout": FailureCause.TEST_TIMEOUT,
    "agent_installation_failed": FailureCause.SETUP,
    "parse_error": FailureCause.AGENT,
    "unknown_agent_error": FailureCause.AGENT,
    "fatal_llm_parse_error": FailureCause.AGENT,
    "context_length_exceeded": FailureCause.AGENT,
    "output_length_exceeded": FailureCause.AGENT,
}
"""Terminal-Bench's failure modes and their causes. Any other mode is an error, unless the tests passed."""

_ATTEMPT = re.compile(r"\.([0-9]{1,9})-of-([0-9]{1,9})(?:\.(.+))?$", re.ASCII)
_RUN = re.compile(r"\d{4}-\d\d-\d\d__\d\d-\d\d-\d\d|^run[-_ ]?\d", re.ASCII | re.IGNORECASE)
"""The form of the name of a run's folder."""
_SKIP = frozenset({"sessions", "panes", "agent-logs"})


@dataclass(frozen=True, slots=True)
class _TerminalBenchTrial:
    trial: Trial
    home: Path
    """The folder with the task folders: a run, or an agent whose attempts are its runs."""
    attempts: int
    """n of `k-of-n`."""
    suffix: str
    """The text after `k-of-n` in the trial's name: the run's id, or nothing."""


def read(src: Path, options: ImportOptions | None = None) -> Trials:
    """The trials in a folder of Terminal-Bench runs, or in one results.json; raises BadInput naming file and field."""
    options = options or ImportOptions()
    root = src.parent if src.is_file() else src
    raws: list[tuple[_TerminalBenchTrial, bool]] = []

    def visit(path: Path) -> bool:
        content = json_object(path)
        raws.extend(_file(path, content, root))
        if len(raws) > MAX_TRIALS:
            raise BadInput(f"holds more than {MAX_TRIALS} trials", file=src, hint="import it in parts")
        return "results" not in content

    if src.is_file():
        visit(src)
    notes = list(FolderWalk().notes if src.is_file() else find(src, "results.json", visit, skip=_SKIP).notes)
    if not raws:
        hint = "give the folder of a run, of an agent's runs, or of several agents"
        raise BadInput("has no trial of Terminal-Bench in it (results.json)", file=src, hint=hint)
    if naive := sum(assumed for _, assumed in raws):
        notes.append(f"{naive} start times have no time zone and were read as UTC")
    unknown = {raw.trial.mode for raw, _ in raws if raw.trial.mode not in MODES}
    notes += [f"failure mode {mode[:80]!r} is not known here: an error, unless the tests passed" for mode in sorted(unknown)]
    return Trials(_named([raw for raw, _ in raws], root, options), tuple(notes))


def _file(path: Path, content: dict[str, Any], root: Path) -> list[tuple[_TerminalBenchTrial, bool]]:
    if "results" not in content:
        home = path.parent
        task = text_of(content, "task_id", path)
        if home != root and home.parent.name == task and home.parent != root:
            home = home.parent.parent
        elif home != root:
            home = home.parent
        return [_trial(path, content, home, "")]
    results = content["results"]
    if not isinstance(results, list):
        raise BadInput(f"is {kind_of(results)}, not a list", file=path, field="results", hint="is this Terminal-Bench's file?")
    rows = []
    for index, row in enumerate(results):
        if not isinstance(row, dict):
            raise BadInput(f"is {kind_of(row)}, not an object", file=path, field=f"results[{index}]", hint="correct or remove it")
        rows.append(_trial(path, row, path.parent, f"results[{index}]."))
    return rows


def _trial(path: Path, content: dict[str, Any], home: Path, prefix: str) -> tuple[_TerminalBenchTrial, bool]:
    task = text_of(content, "task_id", path, prefix=prefix)
    name = optional_text(content, "trial_name", path, prefix=prefix) or (path.parent.name if not prefix else "")
    attempt = _ATTEMPT.search(name)
    number, attempts, suffix = (int(attempt[1]), int(attempt[2]), attempt[3] or "") if attempt else (1, 1, "")
    if not 1 <= number <= attempts:
        raise BadInput(f"{name[:100]!r} counts wrongly", file=path, field=f"{prefix}trial_name", hint="k-of-n has k from 1 to n")
    mode = optional_text(content, "failure_mode", path, prefix=prefix) or "unset"
    if "is_resolved" not in content:
        raise BadInput("is missing", file=path, field=f"{prefix}is_resolved", hint="is this Terminal-Bench's file?")
    resolved = content["is_resolved"]
    if resolved is not None and not isinstance(resolved, bool):
        raise BadInput(f"is {kind_of(resolved)}", file=path, field=f"{prefix}is_resolved", hint="it must be true, false or null")
    start = optional_text(content, "trial_started_at", path, prefix=prefix)
    try:
        started, assumed = moment(start)
    except BadInput as error:
        raise error.at(file=path, field=f"{prefix}trial_started_at") from None
    trial = Trial(
        agent="",
        validator="",
        task=task,
        trial=number,
        resolved=resolved,
        trouble=MODES.get(mode, FailureCause.ELSEWHERE),
        mode=mode,
        started_at=started,
        file=str(path),
    )
    return _TerminalBenchTrial(trial, home, attempts, suffix), assumed


def _named(raws: list[_TerminalBenchTrial], root: Path, options: ImportOptions) -> tuple[Trial, ...]:
    """The trials with their agents, and runs as validators."""
    by_home: dict[Path, list[_TerminalBenchTrial]] = defaultdict(list)
    for raw in raws:
        by_home[raw.home].append(raw)
    agents: dict[str, dict[Path, bool]] = defaultdict(dict)
    for home, inside in by_home.items():
        bare = not _RUN.search(home.name) and all(raw.attempts > 1 and not raw.suffix for raw in inside)
        name = options.agent or (home.resolve().name if bare else _agent(home, root))
        agents[name][home] = bare
    trials: list[Trial] = []
    for name, homes in agents.items():
        attempts_of_one_run = len(homes) == 1 and any(raw.attempts > 1 for raw in by_home[next(iter(homes))])
        as_runs = options.attempts == "runs" or (options.attempts == "auto" and attempts_of_one_run)
        if as_runs and len(homes) > 1:
            raise BadInput(
                f"agent {name!r} has {len(homes)} runs", file=root, hint="attempts can stand for runs only where there is one run"
            )
        numbers = numbered([_label(home, root) for home in homes])
        for home in homes:
            for raw in by_home[home]:
                run = raw.trial.trial if as_runs else numbers[_label(home, root)]
                trial = 1 if as_runs else raw.trial.trial
                trials.append(replace(raw.trial, agent=name, validator=validator_of(run), trial=trial))
    return tuple(trials)


def _label(home: Path, root: Path) -> str:
    return home.relative_to(root).as_posix() if home.is_relative_to(root) else home.name


def _agent(run: Path, root: Path) -> str:
    """The agent of a run: the folder above it, if that is inside the source; otherwise from the run's own metadata."""
    if run != root and run.parent != root:
        return run.parent.name
    metadata = run / "run_metadata.json"
    if metadata.is_file() and not metadata.is_symlink():
        content = json_object(metadata)
        agent = optional_text(content, "agent_name", metadata)
        model = optional_text(content, "model_name", metadata)
        if agent:
            return f"{agent}_{model.rpartition('/')[2]}" if model else agent
    above = run.parent if run == root else root
    return above.resolve().name or "agent"
