"""Writes an import: a competition's whole folder, or evidence added to an existing competition. SPEC 3.0, 7.

Everything is checked before anything is written, and the files appear at once or not at all. An existing competition must know
every participant, validator and task; its records stay.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.errors import BadInput, suggest
from assay.folder import csvs, registry, strict
from assay.folder.files import decode, load, write_text
from assay.imports.build import Built, build, jsonl, participants_csv, rule_of, tests_of, validators_csv, with_score
from assay.imports.trials import ImportOptions, Trial, Trials
from assay.records import Evidence, record
from assay.scheme import load as schemes
from assay.scheme import subnet
from assay.scheme.model import Scheme
from assay.settle.story.telling import plural

__all__ = ["EVIDENCE", "MAX_BYTES", "ImportedCompetition", "add", "competition"]


MAX_BYTES = 2_000_000_000
"""Most bytes of a file of evidence."""


def add(trials: Iterable[Trial], directory: Path, name: str, options: ImportOptions) -> tuple[Scheme, Built, str, int]:
    """Prepare adding evidence to the competition in `directory`, without writing. Raises BadInput.

    Returns its scheme, the built import, the new text of the evidence file `name`, and the number of new records. That scheme
    decides what counts. The competition must know participants, validators, tasks and trials. A record that it has already is
    left out; one that contradicts it is refused.
    """
    if not directory.is_dir():
        raise BadInput("no such competition", file=directory, hint="import without --add to make it")
    file = directory / "scheme.toml"
    rules = schemes.read(file)
    score = tests_of(rules, str(file))
    rule = rule_of(score, options)
    if rule != score.agent_timeout:
        who = "the leaderboard counts" if options.count_as == "leaderboard" else "the import counts"
        what = f'is "{score.agent_timeout}", and {who} agents that ran out of time as "{rule}" does'
        raise BadInput(what, file=file, field="score.agent_timeout", hint="evidence of one competition counts by one rule")
    trials = list(trials)
    built = build(trials, rule, options, _submissions(directory / csvs.PARTICIPANTS.name, trials, rule, options))
    validators = directory / csvs.VALIDATORS.name
    known = [row.fields["key"] for row in csvs.read(validators, csvs.VALIDATORS)]
    _known(validators, known, built.validators, "validator")
    _known(directory / "tasks.txt", registry.read_tasks(directory / "tasks.txt", score.trials).ids, built.tasks, "task")
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


def _submissions(file: Path, trials: list[Trial], rule: str, options: ImportOptions) -> dict[str, str]:
    """The submission of each agent, as participants.csv names it."""
    submissions = {row.fields["key"]: row.fields.get("submission", "") for row in csvs.read(file, csvs.PARTICIPANTS)}
    derived = {agent.key: agent.submission for agent in build(trials, rule, options).agents}
    keys = sorted(derived, key=str.encode)
    _known(file, list(submissions), keys, "participant")
    for key in keys:
        if not submissions[key]:
            raise BadInput(f"participant {key!r} has no submission", file=file, hint="fill it in: evidence needs a submission")
        if submissions[key] != derived[key] and not options.assume_submission:
            raise BadInput(
                f"the submission of {key!r} is {submissions[key][:80]}, and these trials are of {derived[key]}",
                file=file,
                hint="if they are of that submission all the same, use --assume-submission",
            )
    return {key: submissions[key] for key in keys}


def _known(file: Path, known: Iterable[str], asked: Iterable[str], what: str) -> None:
    there = set(known)
    for name in asked:
        if name not in there:
            hint = suggest(name, there, "add it there first", then="If not, add it there first")
            raise BadInput(f"does not know the {what} {name!r}", file=file, hint=hint)


def _evidence(directory: Path, name: str) -> tuple[dict[tuple[object, ...], Evidence], dict[tuple[object, ...], Path]]:
    """Key → record in the import's own file, and key → file of all other evidence."""
    own: dict[tuple[object, ...], Evidence] = {}
    others: dict[tuple[object, ...], Path] = {}
    for file in sorted((directory / "evidence").glob("*.jsonl")):
        text = decode(load(file, MAX_BYTES, hint="does another program change this folder?"), file)
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
        raise BadInput(what, file=others[item.key], hint="leave that run out of the import, or remove the file from the folder")
    return before is None


EVIDENCE = "evidence/imported.jsonl"
"""The path of imported evidence in a competition's folder."""

PLATFORM = "platform"
INNER = "term-challenge"
BENCHMARK = "benchmark"
SUBNET = "my-subnet.toml"


@dataclass(frozen=True)
class ImportedCompetition:
    """A finished import, for the report."""

    directory: Path
    """The competition's folder."""
    scheme: Scheme
    built: Built
    added: int
    """The number of new records."""
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """The report as JSON."""
        built = self.built
        return {
            "directory": str(self.directory),
            "scheme": {"name": self.scheme.name, "version": self.scheme.scheme.version, "digest": self.scheme.digest},
            "agents": len(built.agents),
            "validators": len(built.validators),
            "tasks": len(built.tasks),
            "trials": built.trials,
            "records": len(built.records),
            "added": self.added,
            "outcomes": {outcome: built.outcomes.get(outcome, 0) for outcome in ("pass", "fail", "timeout", "error")},
            "modes": {mode: dict(counts) for mode, counts in built.modes.items()},
            "incomplete": [
                {"participant": agent, "validator": validator, "missing": count}
                for (agent, validator), count in built.missing.items()
            ],
            "repeated": built.repeated,
            "retried": built.retried,
            "undated": built.undated,
            "notes": list(self.notes),
        }


def competition(
    trials: Trials | Iterable[Trial], directory: Path, *, scheme: str | None = None, options: ImportOptions | None = None
) -> ImportedCompetition:
    """Write imported trials as a competition's folder, or add them to one (`options.into`). Raises BadInput. SPEC 7.

    scheme: the name of a preset, or the text of a scheme; None: the scheme of the folder, otherwise `benchmark`. Preset
    `platform` makes a subnet file with the competition in a folder beside it. Adding always uses the scheme of the folder.
    """
    options = options or ImportOptions()
    notes = trials.notes if isinstance(trials, Trials) else ()
    if scheme == PLATFORM:
        return _platform(trials, directory, options, notes)
    if options.into == "add":
        return _added(trials, directory, options, notes)
    there = directory / "scheme.toml"
    if scheme is None and options.into == "replace" and there.is_file():
        schemes.read(there)
        scheme = there.read_text(encoding="utf-8")
    text, built = _checked(trials, scheme or BENCHMARK, options)
    rules = schemes.parse(text)
    _place(directory, _files(text, rules, built, options), options, directory)
    return ImportedCompetition(directory, rules, built, len(built.records), (*notes, *_remarks(built, rules, options)))


def _checked(trials: Iterable[Trial], scheme: str, options: ImportOptions) -> tuple[str, Built]:
    """The scheme's text with the import's rules, and the content to write. Raises BadInput."""
    source = _source(scheme)
    score = tests_of(schemes.parse(source, file="the scheme"), "the scheme")
    rule = rule_of(score, options)
    built = build(trials, rule, options)
    fields = {} if score.agent_timeout == rule else {"agent_timeout": f'"{rule}"'}
    fields |= {} if score.trials == built.trials else {"trials": str(built.trials)}
    return with_score(source, fields), built


def _source(scheme: str) -> str:
    known = schemes.presets()
    if scheme in known:
        return known[scheme]
    if "\n" in scheme:
        return scheme
    hint = suggest(scheme, known, f"the presets are {', '.join(known)}")
    raise BadInput(f"there is no preset {scheme[:80]!r}", field="--scheme", hint=hint)


def _files(text: str, rules: Scheme, built: Built, options: ImportOptions) -> dict[str, str]:
    return {
        "scheme.toml": text,
        "participants.csv": participants_csv(built.agents, options, rules),
        "validators.csv": validators_csv(built.validators, options),
        "tasks.txt": "".join(f"{task}\n" for task in built.tasks),
        EVIDENCE: jsonl(built.records),
    }


def _platform(trials: Iterable[Trial], directory: Path, options: ImportOptions, notes: tuple[str, ...]) -> ImportedCompetition:
    """Write a subnet file and, beside it, the competition; or add to the competition of an existing subnet. SPEC 4, 7."""
    inner, file = directory / INNER, directory / SUBNET
    if file.exists():
        if INNER not in [member.path.rstrip("/") for member in subnet.read(file).competitions]:
            hint = "add it there, or import into the folder of one of its competitions"
            raise BadInput(f"lists no competition {INNER!r}", file=file, field="competitions", hint=hint)
        return competition(Trials(tuple(trials), notes), inner, options=options)
    if options.into == "add":
        raise BadInput("no such file", file=file, hint="import without --add to make the subnet")
    text, built = _checked(trials, INNER, options)
    rules = schemes.parse(text)
    files = {f"{INNER}/{name}": content for name, content in _files(text, rules, built, options).items()}
    _place(directory, {SUBNET: _subnet(schemes.presets()[PLATFORM]), **files}, options, inner)
    note = f"{SUBNET} has the other competitions commented out; their parts of the emission burn"
    return ImportedCompetition(inner, rules, built, len(built.records), (*notes, *_remarks(built, rules, options), note))


def _subnet(preset: str) -> str:
    """The preset's subnet file with all other competitions commented out, because their folders do not exist."""
    head, *tables = re.split(r"(?m)^(?=\[\[competitions\]\])", preset)
    tables_now = [
        table if tomllib.loads(table)["competitions"][0]["path"] == INNER else re.sub(r"(?m)^(?=.)", "# ", table)
        for table in tables
    ]
    return head + "".join(tables_now)


def _added(trials: Iterable[Trial], directory: Path, options: ImportOptions, notes: tuple[str, ...]) -> ImportedCompetition:
    rules, built, content, count = add(trials, directory, EVIDENCE, options)
    if count:
        file = directory / EVIDENCE
        try:
            file.parent.mkdir(exist_ok=True)
        except OSError as error:
            raise BadInput(f"cannot be made ({error.strerror})", file=file.parent, hint="check the permissions") from None
        write_text(file, content)
    return ImportedCompetition(directory, rules, built, count, (*notes, *_remarks(built, rules, options)))


def _remarks(built: Built, rules: Scheme, options: ImportOptions) -> list[str]:
    """Notes about what is allowed but perhaps not intended."""
    remarks = []
    if built.undated:
        have, their = ("has", "its") if built.undated == 1 else ("have", "their")
        remarks.append(
            f"{plural(built.undated, 'trial')} {have} no start time; "
            f"{their} observed_at is 1970-01-01T00:00:00Z, which stands for an unknown time"
        )
    if built.repeated:
        repeated = "occurred twice and counts" if built.repeated == 1 else "occurred twice and count"
        remarks.append(f"{plural(built.repeated, 'trial')} {repeated} once")
    if built.retried:
        remarks.append(f"{plural(built.retried, 'error')} gave way to a later result of the same trial")
    several = [agent.key for agent in built.agents if len(agent.versions) > 1]
    if several:
        agents = plural(len(several), "agent")
        remarks.append(f"{agents} ran in several versions, {several[0]!r} for one; each version counts as one submission")
    if built.missing:
        runs = "1 run is" if len(built.missing) == 1 else f"{len(built.missing)} runs are"
        remarks.append(f"{runs} incomplete (errors are missing trials) and will not count for their agents")
    least = rules.consensus.min_validators
    if len(built.validators) < least and options.into != "add":
        runs = plural(len(built.validators), "run")
        asked = plural(least, "validator" if rules.stakes else "run")
        remarks.append(f"{runs}, and the scheme asks for {asked}: nothing will be agreed until consensus.min_validators is lower")
    return remarks


def _place(directory: Path, files: Mapping[str, str], options: ImportOptions, inner: Path) -> None:
    """Make the folder beside its target, then move it there. It must be free, or an earlier import of this competition."""
    target = directory.resolve()
    old = _occupied(target, directory, files, options, inner)
    new: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        for name, content in files.items():
            path = new / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, content)
        new.chmod(0o755)
        if old:
            aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
            target.rename(aside / target.name)
            try:
                new.rename(target)
            except OSError:
                (aside / target.name).rename(target)
                raise
            shutil.rmtree(aside)
        else:
            new.rename(target)
    except OSError as error:
        raise BadInput(
            f"cannot be written ({error.strerror})", file=directory, hint="check the permissions and the space left"
        ) from None
    finally:
        if new is not None and new.exists():
            shutil.rmtree(new, ignore_errors=True)


def _occupied(target: Path, directory: Path, files: Mapping[str, str], options: ImportOptions, inner: Path) -> bool:
    """Whether there is a folder to replace. Raises BadInput if it must not be replaced."""
    if not target.exists():
        return False
    if not target.is_dir():
        raise BadInput("is a file", file=directory, hint="name a new or empty folder")
    there = {path.relative_to(target).as_posix() for path in target.rglob("*") if not path.is_dir() or path.is_symlink()}
    if not there and not any(target.iterdir()):
        return False
    if options.into != "replace":
        hint = "name a new folder, or use --add (add evidence to this competition) or --force (repeat an earlier import)"
        raise BadInput("is not empty", file=directory, hint=hint)
    foreign = sorted(there - set(files))
    if foreign:
        hint = "--force only replaces what an import wrote; move it away, or use --add"
        raise BadInput("does not come from an import", file=directory / foreign[0], hint=hint)
    earlier = schemes.read(inner / "scheme.toml")
    prefix = "" if inner == directory else f"{INNER}/"
    name = schemes.parse(files[f"{prefix}scheme.toml"]).name
    if earlier.name != name:
        raise BadInput(f"is the competition {earlier.name!r}, not {name!r}", file=directory, hint="name another folder")
    return True
