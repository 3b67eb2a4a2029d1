"""Reads lm-evaluation-harness: the samples of `--log_samples`, `samples_<task>_<time>.jsonl` beside `results_<time>.json`.

The source is such a file, or a folder of them. A document becomes the task `task/doc_id`. The k-th evaluation of a model on a
task, by time, belongs to run k. A document is a pass if the chosen metric is 1, or at least the threshold; NaN is not a score, so
it is an error. The results file of the same time names the model; without that file the folder's name is used.

The harness stores no errors: an evaluation that stopped early has fewer documents, and the rest is missing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
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
    json_object,
    kind_of,
    listed,
    optional_text,
    parsed,
    passed,
    runs_of,
    task_id,
    validator_of,
)
from assay.scheme.reading import opened

__all__ = ["MAX_LINE", "MetricChoice", "read"]

MAX_LINE = 64_000_000
"""A line, which holds one document and the model's answers, is refused above this size."""

_NAME = re.compile(r"samples_(?P<task>.+)_(?P<time>\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?)\.jsonl", re.ASCII)
_KEPT = frozenset(
    [
        "doc_id",
        "doc",
        "target",
        "arguments",
        "resps",
        "filtered_resps",
        "filter",
        "metrics",
        "doc_hash",
        "prompt_hash",
        "target_hash",
    ]
)
"""The fields of a line that are not metrics."""

Json = dict[str, Any]


@dataclass(frozen=True)
class MetricChoice:
    """The choice of the number that decides a document, and the least value that is a pass."""

    metric: str | None = None
    filter: str | None = None
    threshold: Decimal | None = None


def read(src: Path, options: ImportOptions | None = None, choice: MetricChoice | None = None) -> Trials:
    """The trials in a file of samples, or in a folder of them; raises BadInput naming file, line and field."""
    options, choice = options or ImportOptions(), choice or MetricChoice()
    if options.attempts == "runs":
        hint = "leave out --attempts: each evaluation is a run"
        raise BadInput("the samples of this harness are one attempt each", field="--attempts", hint=hint)
    files, walk = listed(src, r"samples_.+\.jsonl")
    trials: list[Trial] = []
    times: dict[tuple[str, str], list[str]] = defaultdict(list)
    hashes: dict[str, str] = {}
    for file in files:
        name = _NAME.fullmatch(file.name)
        if name is None:
            hint = "the harness calls it samples_<task>_<time>.jsonl"
            raise BadInput("does not have the name of a file of samples", file=file, hint=hint)
        task, time = name["task"], name["time"]
        agent = options.agent or _model(file, time)
        times[agent, task].append(time)
        start = datetime.strptime(time[:19], "%Y-%m-%dT%H-%M-%S").replace(tzinfo=UTC)
        for line, sample in _lines(file):
            try:
                trial = _trial(sample, Trial(agent, time, task, started_at=start, file=str(file), line=line), choice, hashes)
            except BadInput as error:
                raise error.at(file=file, line=line) from None
            if trial is not None:
                trials.append(trial)
            if len(trials) > MAX_TRIALS:
                raise BadInput(f"holds more than {MAX_TRIALS} documents", file=src, hint="import it in parts")
    if not trials:
        hint = "give the folder of --output_path; the evaluation needs --log_samples"
        raise BadInput("has no samples of lm-evaluation-harness in it (samples_*.jsonl)", file=src, hint=hint)
    numbers = runs_of(times, key=lambda time: time)
    named = (
        replace(
            unnumbered, validator=validator_of(numbers[unnumbered.agent, unnumbered.version, unnumbered.validator]), version=""
        )
        for unnumbered in trials
    )
    return Trials(tuple(named), (*walk.notes, "start times are read as UTC; the harness records none with a time zone"))


def _model(file: Path, time: str) -> str:
    """The model in the results of the same time; otherwise the folder's name."""
    results = file.with_name(f"results_{time}.json")
    if results.is_file() and not results.is_symlink():
        name = optional_text(json_object(results), "model_name", results)
        if name is not None:
            return name
    return file.resolve().parent.name


def _lines(file: Path) -> Iterator[tuple[int, Json]]:
    try:
        with opened(file) as lines:
            number = 0
            while line := lines.readline(MAX_LINE + 1):
                number += 1
                if len(line) > MAX_LINE:
                    raise BadInput(f"is longer than {MAX_LINE} bytes", file=file, line=number, hint="is this a file of samples?")
                if line.strip():
                    try:
                        yield number, parsed(line, file)
                    except BadInput as error:
                        error.line = number
                        raise
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", file=file, hint="check its permissions") from None


def _trial(sample: Json, trial: Trial, choice: MetricChoice, hashes: dict[str, str]) -> Trial | None:
    """The trial of a line; None if it has another filter. `version` holds the task's name until runs are numbered."""
    doc = sample.get("doc_id")
    if not isinstance(doc, int | str) or isinstance(doc, bool) or doc == "":
        raise BadInput(f"is {kind_of(doc)}, not a number or text", field="doc_id", hint="is this a line of samples?")
    if choice.filter is not None and sample.get("filter") != choice.filter:
        return None
    name = task_id(trial.task, doc)
    doc_hash = optional_text(sample, "doc_hash", trial.file)
    if doc_hash is not None and hashes.setdefault(name, doc_hash) != doc_hash:
        what = f"document {doc} of {trial.task!r} is not the one that another evaluation had"
        raise BadInput(what, field="doc_hash", hint="compare evaluations of one version of a task only")
    metric = _metric(sample, choice.metric)
    if metric not in sample:
        raise BadInput(
            f"has no {metric[:80]!r}", field=metric[:80], hint=f"--metric is one of {', '.join(_metrics(sample))[:200]}"
        )
    resolved = passed(sample[metric], choice.threshold, f"{metric[:80]!r}")
    mode = "none" if resolved is not None else "no score"
    return replace(trial, task=name, version=trial.task, resolved=resolved, trouble=FailureCause.NONE, mode=mode)


def _metrics(sample: Json) -> list[str]:
    named = sample.get("metrics")
    if isinstance(named, list) and named and all(isinstance(name, str) for name in named):
        return named
    return sorted(name for name in sample if name not in _KEPT)


def _metric(sample: Json, chosen: str | None) -> str:
    if chosen is not None:
        return chosen
    names = _metrics(sample)
    if len(names) != 1:
        hint = f"name the one that decides: --metric, one of {', '.join(names)[:200]}" if names else "is this a line of samples?"
        raise BadInput(f"has {len(names) or 'no'} metrics", field="metrics", hint=hint)
    return names[0]
