"""Reads a competition's folder, or a JSON case with the same content, into the inputs of a settlement. SPEC 7.

Both ways build a `Source`, and one function checks it, so they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.errors import BadInput, CannotSettle, suggest
from assay.exact import LARGEST
from assay.folder import csvs, registry, strict
from assay.folder import previous as earlier
from assay.folder.evidence import Gathered, Registry, gather
from assay.folder.evidence import read as read_lines
from assay.folder.files import EVIDENCE_FILES, Place, TableRow
from assay.folder.lines import MANY_BYTES, Lines
from assay.folder.lines import read as read_many_lines
from assay.folder.registry import ListedTasks
from assay.kind import find
from assay.records import Participant, Pulled
from assay.scheme.load import read as read_scheme
from assay.scheme.model import Scheme
from assay.scheme.reading import present, validate
from assay.settle.inputs import Frame, Inputs, Previous, Scored, frame

__all__ = ["EvidenceSource", "parse_case", "passed_over", "read"]

CASE = ("scheme", "epoch", "participants", "validators", "tasks", "history", "randomness", "evidence", "previous", "registry")
Read = Gathered | Lines | tuple[Path, ...] | Scored
EvidenceSource = Callable[[Registry], Read]
"""Reads evidence: takes the names that a record may have; returns the records, Parquet files that hold them, or their scores."""


@dataclass(frozen=True)
class Source:
    """The parts of the inputs, not yet checked against each other."""

    scheme: Scheme
    tables: Mapping[str, tuple[list[TableRow], Place]]
    tasks: Callable[[int], ListedTasks]
    evidence: EvidenceSource
    previous: Previous | None
    previous_place: Place
    registry: Pulled | None
    registry_place: Place


def read(
    path: Path,
    *,
    epoch: int | None = None,
    previous: Path | None = None,
    evidence: EvidenceSource | None = None,
    scheme: Scheme | None = None,
) -> Inputs:
    """The inputs for an epoch (None: the highest with evidence) from a competition's folder and an earlier settlement.

    evidence: reads it from elsewhere, instead of from the folder. scheme: other rules, instead of the folder's.

    Raises BadInput for anything that SPEC refuses, with file, line and field, and CannotSettle if there is no evidence. SPEC 7.
    """
    if not path.is_dir():
        raise BadInput("no such folder", file=path, hint="`assay init --preset NAME DIR` makes a competition to start from")
    source = Source(
        scheme=read_scheme(path / "scheme.toml") if scheme is None else scheme,
        tables={
            "participants": (csvs.read(path / "participants.csv", csvs.PARTICIPANTS), Place(path / "participants.csv")),
            "validators": (csvs.read(path / "validators.csv", csvs.VALIDATORS), Place(path / "validators.csv")),
            "history": (_optional(path / "history.csv", csvs.HISTORY), Place(path / "history.csv")),
            "randomness": (_optional(path / "randomness.csv", csvs.RANDOMNESS), Place(path / "randomness.csv")),
        },
        tasks=lambda trials: registry.read_tasks(path / "tasks.txt", trials),
        evidence=evidence or (lambda known: _evidence(path / "evidence", known)),
        previous=None if previous is None else earlier.read(previous),
        previous_place=Place(previous),
        registry=registry.read_pulled(path / registry.PULLED_FILE),
        registry_place=Place(path / registry.PULLED_FILE),
    )
    return _inputs(source, epoch, Place(path / "evidence"))


def parse_case(case: Mapping[str, Any], *, evidence: EvidenceSource | None = None) -> Inputs:
    """The inputs in a JSON case: scheme, epoch, the rows of each table, records, an earlier settlement; a missing part is empty.

    evidence: reads it from elsewhere, instead of from the case.

    Raises BadInput for anything that SPEC refuses, with the path of the field, and CannotSettle if there is no evidence. SPEC 7.
    """
    if not isinstance(case, Mapping):
        raise BadInput("is not a JSON object", hint=f"a case has the fields {', '.join(CASE)}")
    strict.check(dict(case))
    for name in case:
        if name not in CASE:
            raise BadInput(f"there is no field {name[:80]!r} here", hint=suggest(name, CASE, f"use {', '.join(CASE)}"))
    try:
        scheme = validate(Scheme, case.get("scheme"))
    except BadInput as error:
        error.at(field="scheme")
        raise
    source = Source(
        scheme=scheme,
        tables={name: (_rows(case, name), Place(field=name)) for name in ("participants", "validators", "history", "randomness")},
        tasks=lambda trials: registry.parse_tasks(_strings(case, "tasks"), trials, Place(field="tasks")),
        evidence=evidence or (lambda known: gather(_list(case, "evidence"), Place(field="evidence"), known)),
        previous=_previous(case.get("previous")),
        previous_place=Place(field="previous"),
        registry=None if case.get("registry") is None else registry.parse_pulled(case["registry"], Place(field="registry")),
        registry_place=Place(field="registry"),
    )
    return _inputs(source, case.get("epoch"), Place(field="evidence"))


def _inputs(source: Source, epoch: object, place: Place) -> Inputs:
    scheme = source.scheme
    epoch = _checked_epoch(epoch)
    rows, where = source.tables["participants"]
    participants = registry.participants(rows, where, scheme)
    validators = registry.validators(*source.tables["validators"], columns=len(participants))
    if source.registry is not None:
        registry.check_pulled(source.registry, participants, validators, source.registry_place)
    trials = scheme.kind.trials(scheme.score)
    task_set = None if trials is None else source.tasks(trials)
    history = registry.history(*source.tables["history"])
    randomness = registry.randomness(*source.tables["randomness"])
    keys = frozenset(participant.key for participant in participants)
    known = Registry(scheme.score.kind, frozenset(validator.key for validator in validators), keys, scheme.score)
    evidence = source.evidence(known)
    settled = _epoch(epoch, evidence, scheme, place)
    registry.not_after(participants, rows, settled)
    if source.previous is not None:
        try:
            earlier.check_follows(source.previous, scheme, settled)
        except BadInput as error:
            raise source.previous_place.put(error) from None
    inputs = Inputs(
        scheme=scheme,
        epoch=settled,
        participants=participants,
        validators=validators,
        tasks=() if task_set is None else task_set.ids,
        task_set=None if task_set is None else task_set.digest,
        manifest=() if task_set is None else task_set.manifest,
        history=history,
        randomness=randomness,
        previous=source.previous,
        registry=source.registry,
    )
    axes = frame(inputs)
    inputs = _with_evidence(inputs, axes, evidence)
    if scheme.consensus.assign is not None:
        scored = inputs.evidence
        known_first = scored.first if isinstance(scored, Scored) else {}
        first = known_first if isinstance(evidence, tuple | Scored) else evidence.first_epochs(axes)
        _check_randomness(participants, rows, first, randomness, source.tables["randomness"][1])
    return inputs


def _with_evidence(inputs: Inputs, axes: Frame, evidence: Read) -> Inputs:
    """The inputs with their evidence: records, or scores from Parquet files."""
    if isinstance(evidence, Scored):
        return replace(inputs, evidence=evidence)
    if not isinstance(evidence, tuple):
        evidence.check_conflicts(axes.oldest, axes.epoch)
        return replace(inputs, evidence=evidence.table(inputs.epoch))
    return replace(inputs, evidence=inputs.scheme.kind.parquet.tally(evidence, axes, inputs.scheme))


def _epoch(epoch: int | None, evidence: Read, scheme: Scheme, place: Place) -> int:
    if epoch is not None:
        return epoch
    assert not isinstance(evidence, Scored)  # who scored it knew the epoch
    if not isinstance(evidence, tuple):
        highest = evidence.highest
    else:
        highest = scheme.kind.parquet.highest_epoch(evidence, scheme)
    if highest is None:
        raise CannotSettle(
            "there is no evidence, so there is no epoch to settle",
            file=place.file,
            field=place.field,
            hint="add evidence, or say which epoch with --epoch",
        )
    return highest


def _checked_epoch(epoch: object) -> int | None:
    if epoch is None:
        return None
    if not isinstance(epoch, int) or isinstance(epoch, bool) or not 0 <= epoch <= LARGEST:
        raise BadInput(f"{str(epoch)[:60]!r} is not an epoch", field="epoch", hint=f"use a whole number from 0 to {LARGEST}")
    return epoch


def _check_randomness(
    participants: Sequence[Participant],
    rows: Sequence[TableRow],
    first: Mapping[str, int],
    randomness: Mapping[int, bytes],
    place: Place,
) -> None:
    """Refuse `assign` without the randomness of an epoch that accepted a submission. Raises BadInput. SPEC 3.0."""
    for participant, row in zip(participants, rows, strict=True):
        accepted = first.get(participant.key) if participant.accepted_epoch is None else participant.accepted_epoch
        if accepted is not None and accepted not in randomness:
            raise place.refuse(
                f"there is no randomness of epoch {accepted}, in which "
                f"the submission of {participant.key!r} ({row.place}) was accepted",
                field="epoch",
                hint=f"add the line {accepted},HEX, where HEX is the hash of the block at which that epoch ended, 64 digits "
                "without 0x; consensus.assign draws the validators from it",
            )


def _optional(path: Path, table: csvs.CsvFormat) -> list[TableRow]:
    return csvs.read(path, table) if present(path) else []


def _evidence(folder: Path, known: Registry) -> Read:
    """The records in a folder's files, in the order of their names; or its Parquet files, for the bulk reader."""
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix in (".jsonl", ".parquet")) if present(folder) else []
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", file=folder, hint="it must be a folder of .jsonl files") from None
    if len(paths) > EVIDENCE_FILES:
        raise BadInput(f"has more than {EVIDENCE_FILES} files", file=folder, hint="put many records in one file")
    bulk = tuple(path for path in paths if path.suffix == ".parquet")
    in_bulk = find(known.kind).in_bulk
    if not bulk:
        many = in_bulk and sum(path.stat().st_size for path in paths if path.is_file()) >= MANY_BYTES
        return read_many_lines(paths, known) if many else read_lines(paths, known)
    if not in_bulk:
        raise BadInput(f"evidence of kind {known.kind!r} is not read from Parquet", file=bulk[0], hint="write it as .jsonl")
    if len(bulk) != len(paths):
        other = next(path for path in paths if path.suffix == ".jsonl")
        raise BadInput(
            f"cannot be read together with {bulk[0].name}",
            file=other,
            hint="keep all evidence in .jsonl, or all of it in .parquet",
        )
    return bulk


def passed_over(folder: Path) -> list[Path]:
    """The files beside the evidence that are not read, except hidden files and texts for people."""
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    read_too = (".jsonl", ".parquet", ".md", ".txt")
    return [path for path in paths if not path.name.startswith(".") and path.suffix not in read_too]


def _previous(document: object) -> Previous | None:
    if document is None:
        return None
    try:
        return earlier.previous_of(document)
    except BadInput as error:
        error.at(field="previous")
        raise


def _list(case: Mapping[str, Any], name: str) -> list[Any]:
    value = case.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadInput("is not a list", field=name, hint="write it in brackets")
    return value


def _strings(case: Mapping[str, Any], name: str) -> Iterator[tuple[str, Place]]:
    for index, value in enumerate(_list(case, name)):
        place = Place(field=name).inside(index)
        if not isinstance(value, str):
            raise place.refuse("is not a string", hint="write a line of tasks.txt in quotes")
        yield value, place


def _rows(case: Mapping[str, Any], name: str) -> list[TableRow]:
    rows = []
    for index, value in enumerate(_list(case, name)):
        place = Place(field=name).inside(index)
        if not isinstance(value, dict):
            raise place.refuse("is not an object", hint="write a row as an object, a field for each column")
        rows.append(TableRow(value, place))
    return rows
