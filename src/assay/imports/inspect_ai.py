"""Reads Inspect AI: the samples of `.eval` logs (a zip of JSON) and `.json` logs, or of a folder of logs.

A log is one evaluation of one model on one task. Its samples become tasks `task/sample`. The k-th log of a model and a task
belongs to run k. Epochs are trials of a run; if a model has only one log of each task, they are runs. Retries of one evaluation
have the same task id and count as one run.

- A sample is an error, never a failure, if it has an error, an operator stopped it, it was invalidated, it has no score, or it is
  in the dataset but not in the log.
- The scorer says C (correct), I (incorrect), P (partially) or N (no answer). C is a pass; with a threshold, every score that
  reaches it is, where C counts 1, P 0.5, I and N 0. Any other number needs a threshold.
- If an agent ran into a limit and Inspect scored its work, that score counts. For a limit of time the scheme's `agent_timeout`
  decides, as for every harness.

The file is not trusted: members are bounded in size, number and ratio, read one by one, and never written anywhere.
"""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from assay.errors import BadInput
from assay.imports.trials import (
    MAX_TRIALS,
    FailureCause,
    ImportOptions,
    Trial,
    Trials,
    inside,
    json_object,
    kind_of,
    listed,
    moment,
    optional_text,
    parsed,
    passed,
    runs_of,
    task_id,
    text_of,
    validator_of,
)

__all__ = ["MAX_MEMBER", "MAX_TOTAL", "read"]

MAX_MEMBER = 256_000_000
"""A `.json` log, or one sample of an `.eval` log, is refused above this size."""
MAX_TOTAL = 16_000_000_000
"""An `.eval` log is refused if it holds more than this, uncompressed."""
MAX_RATIO = 2_000
"""An `.eval` log is refused if it is compressed more than this: text never is."""
ZSTANDARD = 93
"""The method of a zip's member that the standard library cannot read before Python 3.14."""

_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
)
"""The errors of a damaged zip. For bzip2 it is an OSError without a reason of the system."""
_VALUES: Mapping[str, Decimal] = {"C": Decimal(1), "P": Decimal("0.5"), "I": Decimal(0), "N": Decimal(0)}
_LIMITS: Mapping[str, FailureCause] = {
    "time": FailureCause.AGENT_TIMEOUT,
    "working": FailureCause.AGENT_TIMEOUT,
    "operator": FailureCause.ELSEWHERE,
}
"""The cause behind a limit. Any other limit (messages, tokens, cost, context, custom) is the agent's."""

Json = dict[str, Any]


@dataclass(frozen=True)
class ScoreChoice:
    """The choice of the score that decides a sample, and the least value that is a pass."""

    scorer: str | None = None
    metric: str | None = None
    threshold: Decimal | None = None


@dataclass
class _InspectLog:
    """One log: its agent and task, and its trials, which have an epoch as number and no run yet."""

    agent: str
    task: str
    id: str
    trials: list[Trial] = field(default_factory=list)
    naive: int = 0


def read(src: Path, options: ImportOptions | None = None, choice: ScoreChoice | None = None) -> Trials:
    """The trials of an Inspect log, or of a folder of them; raises BadInput naming file, sample and field."""
    options, choice = options or ImportOptions(), choice or ScoreChoice()
    files, walk = listed(src, r".+\.(eval|json)")
    logs: list[_InspectLog] = []
    count = 0
    for file in files:
        log = _log(file, options, choice, alone=file == src)
        if log is None:
            continue
        logs.append(log)
        count += len(log.trials)
        if count > MAX_TRIALS:
            raise BadInput(f"holds more than {MAX_TRIALS} samples", file=src, hint="import it in parts")
    if not count:
        raise BadInput("has no samples of Inspect in it (.eval or .json logs)", file=src, hint="give a log, or the folder `logs`")
    notes = list(walk.notes)
    if naive := sum(log.naive for log in logs):
        notes.append(f"{naive} start times have no time zone and were read as UTC")
    return Trials(_named(logs, src, options), tuple(notes))


def _log(file: Path, options: ImportOptions, choice: ScoreChoice, *, alone: bool) -> _InspectLog | None:
    """A log with its trials; None for a JSON file in a folder that is not a log."""
    if file.suffix == ".eval":
        try:
            with zipfile.ZipFile(file) as archive:
                members = _members(archive, file)
                name = "header.json" if "header.json" in members else "_journal/start.json"
                if name not in members:
                    raise BadInput("has neither header.json nor _journal/start.json", file=file, hint="is this a log of Inspect?")
                header = parsed(_bytes(archive, members[name], file), f"{file}!{name}")
                samples = (
                    (f"{file}!{path}", parsed(_bytes(archive, info, file), f"{file}!{path}"))
                    for path, info in sorted(members.items())
                    if path.startswith("samples/") and path.endswith(".json")
                )
                return _read(header, samples, file, options, choice)
        except (*_BROKEN, OSError) as error:
            if isinstance(error, OSError) and error.strerror is not None:
                raise BadInput(f"cannot be read ({error.strerror})", file=file, hint="check its permissions") from None
            hint = "was it copied whole? `inspect log dump` says whether Inspect can read it"
            raise BadInput(f"is not a log of Inspect ({error})", file=file, hint=hint) from None
    content = json_object(file, MAX_MEMBER)
    if "eval" not in content or "status" not in content:
        if alone:
            raise BadInput("is not a log of Inspect", file=file, hint="give an .eval or .json log, or the folder `logs`")
        return None
    samples_of = content.get("samples") or []
    if not isinstance(samples_of, list) or not all(isinstance(sample, dict) for sample in samples_of):
        raise BadInput("is not a list of objects", file=file, field="samples", hint="is this a log of Inspect?")
    return _read(content, ((f"{file}!samples[{at}]", sample) for at, sample in enumerate(samples_of)), file, options, choice)


def _members(archive: zipfile.ZipFile, file: Path) -> dict[str, zipfile.ZipInfo]:
    """The members by name, with bounded declared sizes. Of several with one name the last counts, as in every reader."""
    infos = archive.infolist()
    total, packed = sum(info.file_size for info in infos), sum(info.compress_size for info in infos)
    hint = "is this a log of Inspect? import it in parts"
    if len(infos) > MAX_TRIALS:
        raise BadInput(f"holds more than {MAX_TRIALS} files", file=file, hint=hint)
    for info in infos:
        if info.file_size > MAX_MEMBER:
            raise BadInput(f"holds {info.filename[:80]!r} of more than {MAX_MEMBER} bytes", file=file, hint=hint)
    if total > MAX_TOTAL:
        raise BadInput(f"holds more than {MAX_TOTAL} bytes", file=file, hint=hint)
    if total > MAX_RATIO * max(packed, 100_000):
        raise BadInput(
            f"is compressed more than {MAX_RATIO} times", file=file, hint="a log of text never is; do not trust this file"
        )
    return {info.filename: info for info in infos}


def _bytes(archive: zipfile.ZipFile, info: zipfile.ZipInfo, file: Path) -> bytes:
    """The content of a member, never more bytes than it declares."""
    if info.compress_type != ZSTANDARD:
        with archive.open(info) as member:
            data = member.read(info.file_size + 1)
    else:
        data = _unpacked(archive, info, file)
    if len(data) != info.file_size or zlib.crc32(data) != info.CRC:
        raise BadInput(f"holds {info.filename[:80]!r}, which is damaged", file=file, hint="copy the log again")
    return data


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo, file: Path) -> bytes:
    try:
        import zstandard
    except ImportError:
        hint = "pip install 'assay[inspect]', or `inspect log convert --to json`, and import the JSON log"
        raise BadInput("is compressed with Zstandard, which needs the package zstandard", file=file, hint=hint) from None
    stored = zipfile.ZipInfo(info.filename)
    for name in ("header_offset", "compress_size", "flag_bits", "orig_filename"):
        setattr(stored, name, getattr(info, name))
    stored.file_size, stored.compress_type, stored.CRC = info.compress_size, zipfile.ZIP_STORED, None  # type: ignore[assignment]
    try:
        with (
            archive.open(stored) as packed,
            zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True) as stream,
        ):
            return bytes(stream.read(info.file_size + 1))
    except zstandard.ZstdError as error:
        raise BadInput(
            f"holds {info.filename[:80]!r}, which is damaged ({error})", file=file, hint="copy the log again"
        ) from None


def _read(
    header: Json, samples: Iterator[tuple[str, Json]], file: Path, options: ImportOptions, choice: ScoreChoice
) -> _InspectLog:
    about = inside(header, "eval", file)
    task, model = text_of(about, "task", file, prefix="eval."), text_of(about, "model", file, prefix="eval.")
    solver = optional_text(about, "solver", file, prefix="eval.")
    agent = options.agent or (f"{solver}_{model}" if solver else model)
    log = _InspectLog(agent, task, optional_text(about, "task_id", file, prefix="eval.") or str(file))
    created = optional_text(about, "created", file, prefix="eval.")
    there = set()
    for where, sample in samples:
        try:
            trial = _trial(sample, Trial(agent, "", task, file=where), choice)
            trial, naive = _dated(trial, sample.get("started_at") or created)
        except BadInput as error:
            raise error.at(file=where) from None
        log.trials.append(trial)
        log.naive += naive
        there.add((trial.task, trial.trial))
    for name, epoch in _expected(about, file):
        if (task_id(task, name), epoch) not in there:
            absent = Trial(agent, "", task_id(task, name), epoch, None, FailureCause.ELSEWHERE, "not in the log", file=str(file))
            log.trials.append(_dated(absent, created)[0])
    return log


def _dated(trial: Trial, start: object) -> tuple[Trial, bool]:
    try:
        started, naive = moment(start)
    except BadInput as error:
        raise error.at(field="started_at") from None
    return replace(trial, started_at=started), naive


def _expected(about: Json, file: Path) -> Iterator[tuple[object, int]]:
    """The samples that the log's dataset names, once for each epoch."""
    ids = inside(about, "dataset", file, "eval.").get("sample_ids") or []
    epochs = inside(about, "config", file, "eval.").get("epochs") or 1
    if not isinstance(ids, list) or not isinstance(epochs, int) or isinstance(epochs, bool) or len(ids) * epochs > MAX_TRIALS:
        raise BadInput("is not a list of samples", file=file, field="eval.dataset.sample_ids", hint="is this a log of Inspect?")
    for at, name in enumerate(ids):
        try:
            _check_id(name, f"eval.dataset.sample_ids[{at}]")
        except BadInput as error:
            raise error.at(file=file) from None
    return ((name, epoch) for name in ids for epoch in range(1, epochs + 1))


def _check_id(name: object, field: str) -> None:
    """Raise BadInput if it is not the id of a sample: Inspect writes numbers or text."""
    if not isinstance(name, int | str) or isinstance(name, bool) or name == "":
        what = "empty" if name == "" else "a number with a fraction" if isinstance(name, Decimal) else kind_of(name)
        raise BadInput(f"is {what}, not a whole number or text", field=field, hint="is this a log of Inspect?")


def _trial(sample: Json, trial: Trial, choice: ScoreChoice) -> Trial:
    name, epoch = sample.get("id"), sample.get("epoch", 1)
    _check_id(name, "id")
    if not isinstance(epoch, int) or isinstance(epoch, bool) or epoch < 1:
        raise BadInput("is not a number from 1", field="epoch", hint="is this a log of Inspect?")
    trial = replace(trial, task=task_id(trial.task, name), trial=epoch)
    if sample.get("error") is not None:
        return replace(trial, trouble=FailureCause.ELSEWHERE, mode="error")
    if sample.get("invalidation") is not None:
        return replace(trial, trouble=FailureCause.ELSEWHERE, mode="invalidated")
    resolved = _resolved(sample, choice)
    limit = inside(sample, "limit", trial.file)
    if not limit:
        return replace(trial, resolved=resolved, mode="none" if resolved is not None else "no score")
    kind = text_of(limit, "type", trial.file, prefix="limit.")
    trouble = FailureCause.ELSEWHERE if resolved is None else _LIMITS.get(kind, FailureCause.AGENT)
    return replace(trial, resolved=resolved, trouble=trouble, mode=f"limit: {kind}")


def _resolved(sample: Json, choice: ScoreChoice) -> bool | None:
    """True if the sample passed by the chosen scorer; None without a score."""
    scores = inside(sample, "scores", "")
    if not scores:
        return None
    names = ", ".join(map(str, scores))[:200]
    if choice.scorer is None and len(scores) > 1:
        raise BadInput("has several scores", field="scores", hint=f"name the scorer that decides: --scorer, one of {names}")
    scorer = choice.scorer or next(iter(scores))
    if scorer not in scores:
        raise BadInput(f"has no score by {scorer[:80]!r}", field="scores", hint=f"--scorer is one of {names}")
    value = inside(scores, scorer, "", "scores.").get("value")
    what = f"the score by {scorer[:80]!r}"
    if isinstance(value, dict):
        keys = ", ".join(value)[:200]
        if choice.metric is None or choice.metric not in value:
            raise BadInput(f"{what} has several values", field=f"scores.{scorer[:80]}", hint=f"name one: --metric, one of {keys}")
        value = value[choice.metric]
    elif choice.metric is not None:
        raise BadInput(f"{what} is one value", field="--metric", hint="leave it out")
    if isinstance(value, str):
        if value not in _VALUES:
            raise BadInput(f"{what} is {value[:40]!r}", field=f"scores.{scorer[:80]}", hint="C, I, P, N or a number can be read")
        return _VALUES[value] >= (Decimal(1) if choice.threshold is None else choice.threshold)
    return passed(value, choice.threshold, what)


def _named(logs: list[_InspectLog], src: Path, options: ImportOptions) -> tuple[Trial, ...]:
    """The trials, with logs or epochs as runs."""
    several: dict[tuple[str, str], list[str]] = defaultdict(list)
    for log in logs:
        several[log.agent, log.task].append(log.id)
    order = {log.id: (min((t.started_at for t in log.trials if t.started_at), default=None), log.id) for log in logs}
    numbers = runs_of(several, key=lambda name: (str(order[name][0] or "~"), name))
    most = {agent: max(len(set(ids)) for (owner, _), ids in several.items() if owner == agent) for agent, _ in several}
    trials = []
    for log in logs:
        deep = max((trial.trial for trial in log.trials), default=1) > 1
        as_runs = options.attempts == "runs" or (options.attempts == "auto" and most[log.agent] == 1 and deep)
        if as_runs and most[log.agent] > 1:
            what = f"{log.agent!r} has {most[log.agent]} logs of one task"
            raise BadInput(what, file=src, hint="epochs can stand for runs only where there is one log of each task")
        for trial in log.trials:
            run, number = (trial.trial, 1) if as_runs else (numbers[log.agent, log.task, log.id], trial.trial)
            trials.append(replace(trial, validator=validator_of(run), trial=number))
    return tuple(trials)
