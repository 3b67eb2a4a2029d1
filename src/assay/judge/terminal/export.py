"""Trials as Harbor's job folders, one job a validator; `assay import harbor` reads back the same records. FORMATS: Harbor job.

    OUT/<job>/config.json, result.json
    OUT/<job>/<trial>/config.json, result.json, trial.log, exception.txt, agent/, verifier/, artifacts/

- A trial is exported if it has evidence and is about the participant's current submission: what counts, and nothing else.
- An agent out of time is `AgentTimeoutError`, tests out of time are `VerifierTimeoutError`, every other fail is a reward of 0.
- Attempts are told apart by their start, as Harbor does; a trial whose folder is gone is exported from its record alone.
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
    """What was written."""

    jobs: Mapping[str, Path]
    """By validator."""
    trials: int
    bare: int
    """Trials of which only the record is here."""


def harbor(competition: Path, out: Path, *, validators: Sequence[str] = ()) -> HarborExport:
    """Writes the jobs into a new folder; validators: none means all. Raises BadInput.

    An importer numbers the jobs by their names, so they are named in the order of the validators' keys.
    """
    found = _current(competition, validators)
    if not found:
        raise BadInput("there is no evidence to export", file=competition, hint="judge something first: assay run")
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise BadInput("is not empty", file=out, hint="export into a new folder")
        names = sorted({one.validator for one in found}, key=str.encode)
        jobs = {name: out / f"{number:04d}-{segment(name)}" for number, name in enumerate(names, start=1)}
        bare = 0
        for name, job in jobs.items():
            bare += _job(competition, job, [one for one in found if one.validator == name])
    except OSError as error:
        raise BadInput(
            f"cannot be written ({error.strerror})", file=error.filename or out, hint="check permissions and space"
        ) from None
    return HarborExport(jobs, len(found), bare)


def _current(competition: Path, validators: Sequence[str]) -> list[Tests]:
    """The records about current submissions, errors left out; the first of a key."""
    scheme = read_scheme(competition / "scheme.toml")
    file = competition / csvs.PARTICIPANTS.name
    people = registry.participants(csvs.read(file, csvs.PARTICIPANTS), Place(file), scheme)
    file = competition / csvs.VALIDATORS.name
    judges = [one.key for one in registry.validators(csvs.read(file, csvs.VALIDATORS), Place(file), len(people))]
    for name in validators:
        if name not in judges:
            raise BadInput(f"there is no validator {name[:80]!r}", file=file, hint=f"there is {', '.join(judges[:5])}")
    known = evidence.Registry("tests", frozenset(judges), frozenset(one.key for one in people))
    records = evidence.read(sorted((competition / "evidence").glob("*.jsonl")), known).records
    current = {(one.key, one.submission) for one in people if one.submission}
    kept: dict[tuple[object, ...], Tests] = {}
    for one in records:
        counts = isinstance(one, Tests) and one.outcome != "error" and (one.participant, one.submission) in current
        if counts and isinstance(one, Tests) and (not validators or one.validator in validators):
            before = kept.setdefault(one.key, one)
            if (one.seq or 0) < (before.seq or 0):
                kept[one.key] = one
    return sorted(kept.values(), key=lambda one: (one.participant.encode(), one.task.encode(), one.trial))


def _job(competition: Path, job: Path, records: Sequence[Tests]) -> int:
    """Writes one job; how many of its trials are bare."""
    store = TrialStore(competition, records[0].validator)
    job.mkdir()
    bare, written = 0, []
    last: dict[tuple[str, str], datetime] = {}
    for one in records:
        name = f"{segment(one.task)[:60]}__{_id(one).hex[:12]}"
        folder = job / name
        folder.mkdir()
        kept = store.result(one.participant, one.submission, one.task, one.trial)
        if kept is not None and kept.evidence() != one:
            kept = None
        bare += kept is None
        start = kept.started_at if kept is not None else one.observed_at
        before = last.get((one.participant, one.task))
        if (
            before is not None and start <= before
        ):  # attempts are told apart by their start, and trial 2 may have been judged first
            start = before + timedelta(microseconds=1)
        last[one.participant, one.task] = start
        result = _result(one, kept, name, folder, start)
        written.append(result)
        if kept is not None:
            _files(store.place(one.participant, one.submission, one.task, one.trial), folder)
        _put(folder / "result.json", result)
        _put(folder / "config.json", _config(one, name))
        (folder / "trial.log").write_text(_log(one, kept), encoding="utf-8", newline="\n")
        if result["exception_info"] is not None:
            (folder / "exception.txt").write_text(
                result["exception_info"]["exception_message"] + "\n", encoding="utf-8", newline="\n"
            )
    _put(
        job / "config.json",
        {"job_name": job.name, "n_attempts": max(one.trial for one in records), "orchestrator": {"type": "assay"}},
    )
    _put(job / "result.json", _sums(job, written))
    return bare


def _id(one: Tests) -> uuid.UUID:
    return uuid.uuid5(_SPACE, one.digest)


def _result(one: Tests, kept: TrialRecord | None, name: str, folder: Path, start: datetime) -> dict[str, Any]:
    exception = _exception(one, kept)
    rewards = (
        None
        if exception is not None and (kept is None or kept.tests is None)
        else {"reward": 1.0 if one.outcome == "pass" else 0.0}
    )
    end = max(start, kept.finished_at if kept is not None else one.observed_at)
    return {
        "id": str(_id(one)),
        "task_name": one.task,
        "trial_name": name,
        "trial_uri": folder.absolute().as_uri(),
        "task_id": {"path": one.task},
        "source": None,
        "task_checksum": kept.digests.task.removeprefix("sha256:") if kept is not None else None,
        "config": _config(one, name),
        "agent_info": {"name": one.participant, "version": _version(one, kept), "model_info": None},
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


def _config(one: Tests, name: str) -> dict[str, Any]:
    """How Harbor would have been asked for it, and which record it is."""
    agent = {"name": one.participant, "kwargs": {"assay": one.document()}}
    return {"task": {"path": one.task}, "trial_name": name, "agent": agent}


def _version(one: Tests, kept: TrialRecord | None) -> str:
    said = f"{kept.agent_name} {kept.agent_version} " if kept is not None else ""
    return f"{said}{one.submission}"


def _exception(one: Tests, kept: TrialRecord | None) -> dict[str, Any] | None:
    """What Harbor would have raised; None where it would have gone through."""
    in_time = kept is None or kept.agent is None or kept.agent.stopped != "time"
    if one.outcome == "timeout":
        tests = kept is not None and kept.reason is TrialReason.TESTS_TIME
        kind, said = (
            ("VerifierTimeoutError", "the tests ran out of time") if tests else ("AgentTimeoutError", "the agent ran out of time")
        )
    elif not in_time:  # and its tests decided all the same
        kind, said = "AgentTimeoutError", "the agent ran out of time, and its work was verified"
    else:
        return None
    return {
        "exception_type": kind,
        "exception_message": said,
        "exception_traceback": "",
        "occurred_at": instant_text(one.observed_at),
    }


def _log(one: Tests, kept: TrialRecord | None) -> str:
    said = f"{one.outcome}\n" if kept is None else f"{one.outcome}: {kept.reason}\n"
    return said + "".join(f"{note}\n" for note in (kept.notes if kept is not None else ()))


def _files(place: Path, folder: Path) -> None:
    """What was printed and left, under Harbor's names."""
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
