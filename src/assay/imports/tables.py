"""Reads any table of trials: a CSV with one row for each trial, and its columns mapped to the fields of a trial.

The default columns are agent, run, task, resolved, failure_mode, started_at. A run that is a number k stands for the validator
`run-k`; any other run is a validator's key.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from assay.errors import BadInput, suggest
from assay.folder.files import LINE_BYTES
from assay.imports.harbor import EXCEPTIONS
from assay.imports.terminal_bench import MODES
from assay.imports.trials import MAX_TRIALS, FailureCause, ImportOptions, Outcome, Trial, Trials, moment, validator_of
from assay.scheme.reading import opened

__all__ = ["COLUMNS", "MAX_BYTES", "mapping", "read"]

MAX_BYTES = 1_000_000_000
"""A table is refused above this size."""

COLUMNS: Mapping[str, str] = {
    "agent": "agent",
    "validator": "run",
    "task": "task",
    "trial": "trial",
    "resolved": "resolved",
    "outcome": "outcome",
    "failure_mode": "failure_mode",
    "started_at": "started_at",
    "version": "version",
}
"""Field of a trial → default name of its column."""

_TROUBLES: Mapping[str, FailureCause] = {**MODES, **EXCEPTIONS}
_RESOLVED: Mapping[str, bool | None] = {"1": True, "0": False, "true": True, "false": False, "": None, "null": None, "none": None}
_OUTCOMES: tuple[Outcome, ...] = ("pass", "fail", "timeout", "error")
_WHOLE = re.compile("[0-9]{1,9}", re.ASCII)


def mapping(pairs: Iterable[str]) -> dict[str, str]:
    """The column mapping in texts such as "agent=model", "validator=run". Raises BadInput."""
    columns: dict[str, str] = {}
    fields = {column: field for field, column in COLUMNS.items()}
    for pair in pairs:
        name, equals, column = pair.partition("=")
        name = fields.get(name, name)  # the default column of the field validator is called run
        if not equals or not column:
            raise BadInput(f"{pair[:80]!r} is not a mapping", field="--column", hint="write FIELD=COLUMN, for example run=seed")
        if name not in COLUMNS:
            raise BadInput(f"there is no field {name[:80]!r}", field="--column", hint=_suggest(name, list(fields), "fields"))
        if name in columns:
            raise BadInput(f"{COLUMNS[name]} is mapped twice", field="--column", hint="keep one of the two")
        columns[name] = column
    return columns


def read(src: Path, columns: Mapping[str, str] | None = None, options: ImportOptions | None = None) -> Trials:
    """The trials in a CSV (or .tsv) file; `columns` maps fields to columns. Raises BadInput naming file, line and column."""
    options = options or ImportOptions()
    chosen = dict(columns or {})
    trials: list[Trial] = []
    naive = 0
    for line, row in _rows(src, chosen, options):
        trial, assumed = _trial(src, line, row, {**COLUMNS, **chosen}, options)
        trials.append(trial)
        naive += assumed
        if len(trials) > MAX_TRIALS:
            raise BadInput(f"holds more than {MAX_TRIALS} trials", file=src, line=line, hint="import it in parts")
    if not trials:
        raise BadInput("has no rows", file=src, hint="a first line with the names of the columns, then a row for each trial")
    notes = [f"{naive} start times have no time zone and were read as UTC"] if naive else []
    unknown = sorted({trial.mode for trial in trials if trial.mode not in _TROUBLES})
    notes += [f"failure mode {mode[:80]!r} is not known here: an error, unless the tests passed" for mode in unknown]
    return Trials(tuple(trials), tuple(notes))


def _rows(src: Path, chosen: dict[str, str], options: ImportOptions) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a table (field → value), with their lines."""
    try:
        if src.is_file() and src.stat().st_size > MAX_BYTES:
            raise BadInput(f"is larger than {MAX_BYTES} bytes", file=src, hint="import it in parts")
        with io.TextIOWrapper(opened(src), encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(_lines(file, src), delimiter="\t" if src.suffix == ".tsv" else ",", strict=True)
            try:
                header = next(reader, None)
                places = _places(src, header, chosen, options)
                for row in reader:
                    if not row:
                        continue
                    if len(row) != len(header or ()):
                        what = f"has {len(row)} columns where the first line has {len(header or ())}"
                        raise BadInput(what, file=src, line=reader.line_num, hint="put a value that contains a comma in quotes")
                    yield reader.line_num, {field: row[place].strip(" \t") for field, place in places.items()}
            except csv.Error as error:
                raise BadInput(f"is not CSV: {error}", file=src, line=reader.line_num, hint="check the quotes") from None
            except UnicodeDecodeError:
                raise BadInput("is not UTF-8", file=src, line=reader.line_num + 1, hint="save the file as UTF-8") from None
    except OSError as error:
        what = "no such file" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        raise BadInput(what, file=src, hint="give a CSV file with one row for each trial") from None


def _lines(file: io.TextIOWrapper, src: Path) -> Iterator[str]:
    """The lines of a table. A line that is too long is refused before it is read whole."""
    number = 0
    while line := file.readline(LINE_BYTES + 1):
        number += 1
        if len(line) > LINE_BYTES:
            raise BadInput(f"the line is longer than {LINE_BYTES} bytes", file=src, line=number, hint="is this a table?")
        yield line


def _needed(options: ImportOptions) -> list[str]:
    """The fields that every row must have. If attempts are runs, a row needs a trial number instead of a run."""
    agent = [] if options.agent else ["agent"]
    return [*agent, "trial" if options.attempts == "runs" else "validator", "task"]


def _places(src: Path, header: list[str] | None, chosen: dict[str, str], options: ImportOptions) -> dict[str, int]:
    """Field → index of its column."""
    if header is None:
        raise BadInput("is empty", file=src, hint="a first line with the names of the columns, then a row for each trial")
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise BadInput(f"has two columns called {twice[0][:80]!r}", file=src, line=1, hint="rename one of them")
    places = {}
    for field, default in COLUMNS.items():
        column = chosen.get(field, default)
        if column in header:
            places[field] = header.index(column)
        elif field in chosen or field in _needed(options):
            hint = f"{_suggest(column, header, 'columns')} (--column {COLUMNS[field]}=COLUMN)"
            raise BadInput(f"there is no column {column[:80]!r} for the {COLUMNS[field]}", file=src, line=1, hint=hint)
    if "resolved" not in places and "outcome" not in places:
        hint = f"map one with --column resolved=COLUMN; the columns are {', '.join(header)[:200]}"
        raise BadInput("there is no column that says whether the tests passed", file=src, line=1, hint=hint)
    return places


def _trial(src: Path, line: int, row: dict[str, str], columns: dict[str, str], options: ImportOptions) -> tuple[Trial, bool]:
    def refuse(field: str, what: str, hint: str) -> BadInput:
        return BadInput(what, file=src, line=line, field=columns[field], hint=hint)

    for field in _needed(options):
        if not row.get(field):
            raise refuse(field, "is empty", "every trial has an agent, a run and a task")
    number = row.get("trial") or "1"
    if not _WHOLE.fullmatch(number) or int(number) < 1:
        raise refuse("trial", f"{number[:40]!r} is not a number from 1", "trials are numbered 1, 2, …")
    resolved = row.get("resolved", "").strip().lower()
    if resolved not in _RESOLVED:
        raise refuse("resolved", f"is {resolved[:40]!r}", "write 1 or 0, true or false, or nothing where none was recorded")
    stated = next((outcome for outcome in _OUTCOMES if outcome == row.get("outcome")), None)
    if row.get("outcome") and stated is None:
        raise refuse("outcome", f"is {row['outcome'][:40]!r}", f"use one of {', '.join(_OUTCOMES)}")
    try:
        started, assumed = moment(row.get("started_at"))
    except BadInput as error:
        raise error.at(file=src, line=line, field=columns["started_at"]) from None
    mode = row.get("failure_mode") or "unset"
    run = number if options.attempts == "runs" else row["validator"]
    trial = Trial(
        agent=options.agent or row["agent"],
        validator=validator_of(int(run)) if _WHOLE.fullmatch(run) else run,
        task=row["task"],
        trial=1 if options.attempts == "runs" else int(number),
        resolved=_RESOLVED[resolved],
        trouble=_TROUBLES.get(mode, FailureCause.ELSEWHERE),
        mode=mode,
        started_at=started,
        version=row.get("version", ""),
        stated=stated,
        file=str(src),
        line=line,
    )
    return trial, assumed


def _suggest(name: str, known: list[str], what: str) -> str:
    return suggest(name, known, f"the {what} are {', '.join(known)[:200]}")
