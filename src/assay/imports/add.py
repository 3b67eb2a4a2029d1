"""Adding imported evidence to a competition that is there: its registries must know everybody, its records stay. SPEC 3.0, 7."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

from assay.errors import BadInput
from assay.folder import csvs, strict, tasks
from assay.folder.text import decode, load
from assay.imports.build import Built, build, jsonl, rule_of, tests_of
from assay.imports.trials import Options, Trial
from assay.records import Evidence, record
from assay.scheme import load as schemes
from assay.scheme.model import Scheme

__all__ = ["MAX_BYTES", "add"]

MAX_BYTES = 2_000_000_000
"""A file of evidence is refused above this size."""


def add(trials: Iterable[Trial], directory: Path, name: str, options: Options) -> tuple[Scheme, Built, str, int]:
    """The scheme there, what was built, the new text of the evidence file `name`, and how many records are new; raises BadInput.

    Writes nothing. The scheme there decides what counts; participants, validators, tasks and trials must be known to it; a
    record that is there already is left alone, one that says something else of the same trial is refused.
    """
    if not directory.is_dir():
        raise BadInput("no such competition", file=directory, hint="import without --add to make it")
    file = directory / "scheme.toml"
    rules = schemes.read(file)
    score = tests_of(rules, str(file))
    rule = rule_of(score, options)
    if rule != score.agent_timeout:
        said = "the leaderboard counts" if options.count_as == "leaderboard" else "the import counts"
        what = f'is "{score.agent_timeout}", and {said} agents that ran out of time as "{rule}" does'
        raise BadInput(what, file=file, field="score.agent_timeout", hint="evidence of one competition counts by one rule")
    trials = list(trials)
    built = build(trials, rule, options, _submissions(directory / csvs.PARTICIPANTS.name, trials, rule, options))
    validators = directory / csvs.VALIDATORS.name
    known = [row.fields["key"] for row in csvs.read(validators, csvs.VALIDATORS)]
    _known(validators, known, built.validators, "validator")
    _known(directory / "tasks.txt", tasks.read(directory / "tasks.txt", score.trials).ids, built.tasks, "task")
    if built.trials > score.trials:
        what = f"is {score.trials}, and the import has trials up to {built.trials}"
        raise BadInput(what, file=file, field="score.trials", hint="raise it, or import attempts as runs")
    own, others = _evidence(directory, name)
    new = [item for item in built.records if _is_new(item, own, others, directory / name)]
    before = directory / name
    text = before.read_text(encoding="utf-8") if before.is_file() else ""
    if text and not text.endswith("\n"):
        text += "\n"
    return rules, built, text + jsonl(new), len(new)


def _submissions(file: Path, trials: list[Trial], rule: str, options: Options) -> dict[str, str]:
    """The submission that each agent's trials are of: the one that participants.csv names."""
    submissions = {row.fields["key"]: row.fields.get("submission", "") for row in csvs.read(file, csvs.PARTICIPANTS)}
    derived = {agent.key: agent.submission for agent in build(trials, rule, options).agents}
    keys = sorted(derived, key=str.encode)
    _known(file, list(submissions), keys, "participant")
    for key in keys:
        if not submissions[key]:
            raise BadInput(f"participant {key!r} has no submission", file=file, hint="fill it in: evidence is about a submission")
        if submissions[key] != derived[key] and not options.assume_submission:
            raise BadInput(
                f"the submission of {key!r} is {submissions[key][:80]}, and these trials are of {derived[key]}",
                file=file,
                hint="if they are of that submission all the same, say --assume-submission",
            )
    return {key: submissions[key] for key in keys}


def _known(file: Path, known: Iterable[str], asked: Iterable[str], what: str) -> None:
    there = set(known)
    for name in asked:
        if name not in there:
            close = difflib.get_close_matches(name, there, n=1, cutoff=0.6)
            hint = f"did you mean {close[0]!r}? If not, add it there first" if close else "add it there first"
            raise BadInput(f"does not know the {what} {name!r}", file=file, hint=hint)


def _evidence(directory: Path, name: str) -> tuple[dict[tuple[object, ...], Evidence], dict[tuple[object, ...], Path]]:
    """Key → record of the import's own file, and key → file of everybody else's."""
    own: dict[tuple[object, ...], Evidence] = {}
    others: dict[tuple[object, ...], Path] = {}
    for file in sorted((directory / "evidence").glob("*.jsonl")):
        text = decode(load(file, MAX_BYTES, hint="is somebody else at work in this directory?"), file)
        for number, line in enumerate(text.split("\n"), start=1):
            if not line.strip():
                continue
            try:
                item = record(strict.parse(line))
            except BadInput as error:
                raise error.at(file=file, line=number) from None
            if file == directory / name:
                own[item.key] = item
            else:
                others[item.key] = file
    return own, others


def _is_new(item: Evidence, own: dict[tuple[object, ...], Evidence], others: dict[tuple[object, ...], Path], file: Path) -> bool:
    before = own.get(item.key)
    if before is not None and before.content != item.content:
        what = f"has other evidence of {' '.join(map(str, item.key[1:]))}"
        raise BadInput(what, file=file, hint="one trial has one record; import it under another trial number if both count")
    if item.key in others:
        what = f"has evidence of {' '.join(map(str, item.key[1:]))} already"
        raise BadInput(what, file=others[item.key], hint="leave that run out of the import, or the file out of the directory")
    return before is None
