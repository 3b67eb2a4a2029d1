"""Exports trials as Harbor's job folders, one job for each validator. FORMATS: Harbor job.

    OUT/<job>/config.json, result.json
    OUT/<job>/<trial>/config.json, result.json, trial.log, exception.txt, agent/, verifier/, artifacts/

- A trial is exported if it has evidence and belongs to the participant's current submission: only these trials count.
- An agent that ran out of time is an `AgentTimeoutError`, tests that ran out of time are a `VerifierTimeoutError`. Every other
  fail is a reward of 0.
- Attempts are distinguished by their start, as Harbor does. A trial whose folder is gone is exported from its evidence alone.
- `assay import harbor` reads back the same records.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from assay.errors import BadInput
from assay.folder import csvs, evidence, registry
from assay.folder.files import Place
from assay.judge import tree
from assay.judge.run_files import segment
from assay.judge.terminal.record import TrialReason, TrialRecord, TrialStore
from assay.records import Tests
from assay.scheme.fields import instant_text
from assay.scheme.load import read as read_scheme

__all__ = ["HarborExport", "harbor"]

_SPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")
_KEPT = (("agent", "agent"), ("tests", "verifier"), ("artifacts", "artifacts"))


@dataclass(frozen=True)
class HarborExport:
    """The written jobs."""

    jobs: Mapping[str, Path]
    """Validator → the job's folder."""
    trials: int
    bare: int
    """The number of trials that had only their evidence, and no folder."""


def harbor(competition: Path, out: Path, *, validators: Sequence[str] = ()) -> HarborExport:
    """Writes the jobs into a new folder; without validators, those of all. Raises BadInput.

    An importer numbers the jobs by their names, so the names follow the order of the validators' keys.
    """
    records = _current(competition, validators)
    if not records:
        raise BadInput("there is no evidence to export", file=competition, hint="judge something first: assay run")
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise BadInput("is not empty", file=out, hint="export into a new folder")
        names = sorted({record.validator for record in records}, key=str.encode)
        jobs = {name: out / f"{number:04d}-{segment(name)}" for number, name in enumerate(names, start=1)}
        bare = 0
        for name, job in jobs.items():
            bare += _job(competition, job, [record for record in records if record.validator == name])
    except OSError as error:
        raise BadInput(
            f"cannot be written ({error.strerror})", file=error.filename or out, hint="check permissions and space"
        ) from None
    return HarborExport(jobs, len(records), bare)


def _current(competition: Path, validators: Sequence[str]) -> list[Tests]:
    """The evidence about current submissions, without errors; of records with the same key the first."""
    scheme = read_scheme(competition / "scheme.toml")
    file = competition / csvs.PARTICIPANTS.name
    participants = registry.participants(csvs.read(file, csvs.PARTICIPANTS), Place(file), scheme)
    file = competition / csvs.VALIDATORS.name
    judges = [row.key for row in registry.validators(csvs.read(file, csvs.VALIDATORS), Place(file), len(participants))]
    for name in validators:
        if name not in judges:
            raise BadInput(f"there is no validator {name[:80]!r}", file=file, hint=f"name one of {', '.join(judges[:5])}")
    known = evidence.Registry("tests", frozenset(judges), frozenset(participant.key for participant in participants))
    records = evidence.read(sorted((competition / "evidence").glob("*.jsonl")), known).records
    current = {(participant.key, participant.submission) for participant in participants if participant.submission}
    first: dict[tuple[object, ...], Tests] = {}
    for record in records:
        if not isinstance(record, Tests) or record.outcome == "error" or (record.participant, record.submission) not in current:
            continue
        if not validators or record.validator in validators:
            before = first.setdefault(record.key, record)
            if (record.seq or 0) < (before.seq or 0):
                first[record.key] = record
    return sorted(first.values(), key=lambda record: (record.participant.encode(), record.task.encode(), record.trial))


def _job(competition: Path, job: Path, records: Sequence[Tests]) -> int:
    """Writes one job; returns how many of its trials are bare."""
    store = TrialStore(competition, records[0].validator)
    job.mkdir()
    bare, written = 0, []
    last: dict[tuple[str, str], datetime] = {}
    for record in records:
        name = f"{segment(record.task)[:60]}__{_id(record).hex[:12]}"
        folder = job / name
        folder.mkdir()
        trial = store.result(record.participant, record.submission, record.task, record.trial)
        if trial is not None and trial.evidence() != record:
            trial = None
        bare += trial is None
        start = trial.started_at if trial is not None else record.observed_at
        before = last.get((record.participant, record.task))
        if before is not None and start <= before:  # starts must differ and rise, and trial 2 may have been judged first
            start = before + timedelta(microseconds=1)
        last[record.participant, record.task] = start
        result = _result(record, trial, name, folder, start)
        written.append(result)
        if trial is not None:
            _files(store.place(record.participant, record.submission, record.task, record.trial), folder)
        _put(folder / "result.json", result)
        _put(folder / "config.json", _config(record, name))
        (folder / "trial.log").write_text(_log(record, trial), encoding="utf-8", newline="\n")
        if result["exception_info"] is not None:
            (folder / "exception.txt").write_text(
                result["exception_info"]["exception_message"] + "\n", encoding="utf-8", newline="\n"
            )
    _put(
        job / "config.json",
        {"job_name": job.name, "n_attempts": max(record.trial for record in records), "orchestrator": {"type": "assay"}},
    )
    _put(job / "result.json", _sums(job, written))
    return bare


def _id(record: Tests) -> uuid.UUID:
    return uuid.uuid5(_SPACE, record.digest)


def _result(record: Tests, trial: TrialRecord | None, name: str, folder: Path, start: datetime) -> dict[str, Any]:
    """Harbor's result.json. trial: the trial's own record, if its folder is here."""
    exception = _exception(record, trial)
    verified = exception is None or (trial is not None and trial.tests is not None)
    rewards = {"reward": 1.0 if record.outcome == "pass" else 0.0} if verified else None
    end = max(start, trial.finished_at if trial is not None else record.observed_at)
    return {
        "id": str(_id(record)),
        "task_name": record.task,
        "trial_name": name,
        "trial_uri": folder.absolute().as_uri(),
        "task_id": {"path": record.task},
        "source": None,
        "task_checksum": trial.digests.task.removeprefix("sha256:") if trial is not None else None,
        "config": _config(record, name),
        "agent_info": {"name": record.participant, "version": _version(record, trial), "model_info": None},
        "agent_result": None,
        "verifier_result": None if rewards is None else {"rewards": rewards},
        "exception_info": exception,
        "started_at": instant_text(start),
        "finished_at": instant_text(end),
        "environment_setup": None,
        "agent_setup": None,
        "agent_execution": None,
        "verifier": None,
        "step_results": None,
    }


def _config(record: Tests, name: str) -> dict[str, Any]:
    """Harbor's config.json of a trial, with the record of evidence in the agent's kwargs."""
    agent = {"name": record.participant, "kwargs": {"assay": record.document()}}
    return {"task": {"path": record.task}, "trial_name": name, "agent": agent}


def _version(record: Tests, trial: TrialRecord | None) -> str:
    agent = f"{trial.agent_name} {trial.agent_version} " if trial is not None else ""
    return f"{agent}{record.submission}"


def _exception(record: Tests, trial: TrialRecord | None) -> dict[str, Any] | None:
    """The exception that Harbor would have raised; None if it would have raised none."""
    in_time = trial is None or trial.agent is None or trial.agent.stopped != "time"
    if record.outcome == "timeout":
        tests = trial is not None and trial.reason is TrialReason.TESTS_TIME
        kind, message = (
            ("VerifierTimeoutError", "the tests ran out of time") if tests else ("AgentTimeoutError", "the agent ran out of time")
        )
    elif not in_time:  # the rule of the competition let its tests decide
        kind, message = "AgentTimeoutError", "the agent ran out of time, and its work was verified"
    else:
        return None
    return {
        "exception_type": kind,
        "exception_message": message,
        "exception_traceback": "",
        "occurred_at": instant_text(record.observed_at),
    }


def _log(record: Tests, trial: TrialRecord | None) -> str:
    first = f"{record.outcome}\n" if trial is None else f"{record.outcome}: {trial.reason}\n"
    return first + "".join(f"{note}\n" for note in (trial.notes if trial is not None else ()))


def _files(place: Path, folder: Path) -> None:
    """Copies output, logs and artifacts, under Harbor's names."""
    for ours, theirs in _KEPT:
        if (place / ours).is_dir():
            tree.copy(place / ours, folder / theirs)
    for ours, theirs in (("stdout.txt", "test-stdout.txt"), ("stderr.txt", "test-stderr.txt")):
        if (folder / "verifier" / ours).is_file():
            (folder / "verifier" / ours).rename(folder / "verifier" / theirs)


def _sums(job: Path, written: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    rows = list(written)
    return {
        "id": str(uuid.uuid5(_SPACE, job.name)),
        "started_at": min(row["started_at"] for row in rows),
        "finished_at": max(row["finished_at"] for row in rows),
        "n_total_trials": len(rows),
        "stats": {"n_trials": len(rows), "n_errors": sum(row["exception_info"] is not None for row in rows)},
    }


def _put(file: Path, content: object) -> None:
    file.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")
