"""Checks the registry (participants, validators, history, also as pulled from a chain) and the task set. SPEC 1, 7."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, ValidationError

from assay.characters import allowed
from assay.errors import BadInput
from assay.exact import canonical, digest
from assay.folder import strict
from assay.folder.files import (
    LISTED_ROWS,
    LONGEST_TASK,
    MOST_PAIRS,
    MOST_PARTICIPANTS,
    MOST_TASKS,
    MOST_UIDS,
    MOST_VALIDATORS,
    TABLE_BYTES,
    TRIALS_IN_ALL,
    Place,
    TableRow,
    decode,
    load,
)
from assay.records import Fraction, History, Participant, Pulled, Registered, Submission, Validator
from assay.scheme.fields import LINE, Epoch, Instant, Key, OneLine, Rao, Section, refused
from assay.scheme.model import Scheme
from assay.scheme.reading import present, refusal, validate

__all__ = [
    "PULLED_FILE",
    "PULLED_SCHEMA",
    "ROWS",
    "ListedTasks",
    "check_pulled",
    "dump_pulled",
    "history",
    "not_after",
    "parse_pulled",
    "parse_tasks",
    "participants",
    "pulled_rows",
    "randomness",
    "read_pulled",
    "read_tasks",
    "task_lines",
    "task_set",
    "validators",
    "weaker_tasks",
]


S = TypeVar("S", bound=Section)


def _empty(value: object) -> object:
    return "" if value is None else value


def _absent(value: object) -> object:
    return None if value == "" else value


def _address(value: object) -> object:
    if isinstance(value, str) and re.fullmatch("0x[0-9a-fA-F]{40}", value, re.ASCII) is None:
        raise refused(BadInput(f"{value[:60]!r} is not an EVM address", hint="write 0x and 40 hex digits, or leave it empty"))
    return value


def _bytes32(value: object) -> object:
    if isinstance(value, str) and re.fullmatch("[0-9a-fA-F]{64}", value, re.ASCII) is None:
        raise refused(BadInput(f"{value[:80]!r} is not 32 bytes in hex", hint="write 64 hex digits, without 0x"))
    return value


Label = Annotated[str, Field(max_length=4096, json_schema_extra=LINE), OneLine, BeforeValidator(_empty)]
Digest = Annotated[Submission, BeforeValidator(_empty)]


class _RegistryParticipantRow(Section):
    key: Key
    uid: Annotated[int, Field(ge=0, lt=MOST_UIDS)] | None = None
    name: Label = ""
    submission: Digest = ""
    submitted_at: Annotated[Instant | None, BeforeValidator(_absent)] = None
    last_reset_epoch: Epoch | None = None
    accepted_epoch: Epoch | None = None
    address: Annotated[Annotated[str, BeforeValidator(_address)] | None, BeforeValidator(_absent)] = None


class _RegistryValidatorRow(Section):
    key: Key
    stake: Rao
    name: Label = ""
    failed_audit: Annotated[str, Field(pattern="^(sha256:[0-9a-f]{64})?$"), BeforeValidator(_empty)] = ""


class _HistoryRow(Section):
    epoch: Epoch
    top_score: Fraction
    submission: Digest = ""
    task_set: Digest = ""


class _RandomnessRow(Section):
    epoch: Epoch
    hex: Annotated[str, BeforeValidator(_bytes32)]


ROWS: Mapping[str, type[Section]] = {
    "participants": _RegistryParticipantRow,
    "validators": _RegistryValidatorRow,
    "history": _HistoryRow,
    "randomness": _RandomnessRow,
}
"""Name of a table → the model of its rows."""


def participants(rows: Sequence[TableRow], place: Place, scheme: Scheme) -> tuple[Participant, ...]:
    """The participants in their order. Raises BadInput for no rows, a repeated key or uid, and the burn UID. SPEC 1, 4."""
    _some(rows, place, "participant", MOST_PARTICIPANTS)
    checked = [_checked(row, _RegistryParticipantRow) for row in rows]
    _unique("key", [row.key for row in checked], rows)
    _unique("uid", [row.uid for row in checked], rows)
    burn = None if scheme.decay is None else scheme.decay.burn_uid
    for row, source in zip(checked, rows, strict=True):
        if burn is not None and row.uid == burn:
            raise source.place.refuse(
                f"{burn} is the burn UID", field="uid", hint="give the participant its own uid, or change decay.burn_uid"
            )
    return tuple(Participant(**{name: getattr(row, name) for name in _RegistryParticipantRow.model_fields}) for row in checked)


def validators(rows: Sequence[TableRow], place: Place, columns: int) -> tuple[Validator, ...]:
    """The validators in their order. Raises BadInput for no rows, a repeated key, or too many for `columns` participants."""
    _some(rows, place, "validator", MOST_VALIDATORS)
    if len(rows) * columns > MOST_PAIRS:
        raise place.refuse(
            f"{len(rows)} validators × {columns} participants are more than {MOST_PAIRS}", hint="make several competitions of it"
        )
    checked = [_checked(row, _RegistryValidatorRow) for row in rows]
    _unique("key", [row.key for row in checked], rows)
    return tuple(Validator(row.key, row.stake, row.name, row.failed_audit) for row in checked)


def history(rows: Sequence[TableRow], place: Place) -> tuple[History, ...]:
    """Earlier epochs, ascending. Raises BadInput for a repeated epoch. SPEC 4, Decay."""
    _at_most(rows, place, LISTED_ROWS)
    checked = [_checked(row, _HistoryRow) for row in rows]
    _unique("epoch", [row.epoch for row in checked], rows)
    return tuple(History(row.epoch, row.top_score, row.submission, row.task_set) for row in sorted(checked, key=_epoch))


def randomness(rows: Sequence[TableRow], place: Place) -> Mapping[int, bytes]:
    """Epoch → its 32 public random bytes. Raises BadInput for a repeated epoch. SPEC 3.0."""
    _at_most(rows, place, LISTED_ROWS)
    checked = [_checked(row, _RandomnessRow) for row in rows]
    _unique("epoch", [row.epoch for row in checked], rows)
    return {row.epoch: bytes.fromhex(row.hex) for row in checked}


def not_after(participants: Sequence[Participant], rows: Sequence[TableRow], epoch: int) -> None:
    """Refuse a last reset after the epoch that is being settled. Raises BadInput. SPEC 1."""
    for participant, row in zip(participants, rows, strict=True):
        last = participant.last_reset_epoch
        if last is not None and last > epoch:
            raise row.place.refuse(
                f"{last} is after the epoch being settled, {epoch}",
                field="last_reset_epoch",
                hint="leave it empty, or settle a later epoch",
            )


def _epoch(row: _HistoryRow) -> int:
    return row.epoch


def _checked(row: TableRow, model: type[S]) -> S:
    try:
        return model.model_validate(row.fields)
    except ValidationError as error:
        raise row.place.put(refusal(error, model)) from None


def _some(rows: Sequence[TableRow], place: Place, what: str, most: int) -> None:
    if not rows:
        raise place.refuse(f"has no {what}", hint=f"there must be at least one {what}")
    _at_most(rows, place, most)


def _at_most(rows: Sequence[TableRow], place: Place, most: int) -> None:
    if len(rows) > most:
        raise place.refuse(f"has {len(rows)} rows; at most {most} are read", hint="make several competitions of it")


def _unique(name: str, values: Sequence[object], rows: Sequence[TableRow]) -> None:
    first: dict[object, Place] = {}
    for value, row in zip(values, rows, strict=True):
        if value is not None and first.setdefault(value, row.place) is not row.place:
            raise row.place.refuse(
                f"{value!r} is there twice, first at {first[value]}", field=name, hint="remove one of the two rows, or correct it"
            )


PULLED_FILE = "registry.json"
PULLED_SCHEMA = "assay.registry/1"
PULLED_BYTES = 20_000_000


def pulled_rows(participants: Iterable[Participant], validators: Iterable[Validator]) -> str:
    """The digest over the uids and stakes. A participant without a uid is not on the chain, and left out."""
    uids = sorted((entry.uid, entry.key) for entry in participants if entry.uid is not None)
    stakes = sorted((entry.key, str(entry.stake)) for entry in validators)
    return digest({"participants": [[key, uid] for uid, key in uids], "validators": [list(pair) for pair in stakes]})


def read_pulled(path: Path) -> Pulled | None:
    """The content of a registry.json; None if there is none. Raises BadInput if it is malformed."""
    if not present(path):
        return None
    place = Place(path)
    text = decode(load(path, PULLED_BYTES, hint="pull the registry again"), path)
    try:
        content = strict.parse(text)
    except BadInput as error:
        raise place.put(error) from None
    schema = content.pop("schema", None) if isinstance(content, dict) else None
    if schema != PULLED_SCHEMA:
        raise place.refuse(
            f"is not of the format {PULLED_SCHEMA}", field="schema", hint="pull the registry again, or remove the file"
        )
    listed = content.pop("neurons", None)
    for number, neuron in enumerate(listed if isinstance(listed, list) else [listed]):
        try:
            validate(Registered, neuron)
        except BadInput as error:
            error.at(field=f"neurons.{number}")
            raise place.put(error) from None
    return parse_pulled(content, place)


def parse_pulled(content: Any, place: Place) -> Pulled:
    """The content of a registry from an object without `schema` and `neurons`, as in a receipt's inputs. Raises BadInput."""
    try:
        return validate(Pulled, content)
    except BadInput as error:
        raise place.put(error) from None


def dump_pulled(pulled: Pulled, neurons: Sequence[Registered]) -> bytes:
    """The bytes of a registry.json. neurons: all neurons of the block, by uid."""
    listed = [neuron.model_dump(mode="json") for neuron in neurons]
    return canonical({"schema": PULLED_SCHEMA} | pulled.model_dump() | {"neurons": listed}) + b"\n"


def check_pulled(pulled: Pulled, participants: Iterable[Participant], validators: Iterable[Validator], place: Place) -> None:
    """Refuse uids and stakes that differ from those of the block. Raises BadInput."""
    if pulled_rows(participants, validators) != pulled.rows:
        raise place.refuse(
            f"the uids and stakes are not those that were pulled at block {pulled.block}",
            hint="pull the registry again, or remove registry.json: then the settlement names no block",
        )


_WORDS = re.compile(r"[^ \t]+")
_DIGEST = re.compile("sha256:[0-9a-f]{64}", re.ASCII)
TASK_MODES = ("shared", "snapshot")


@dataclass(frozen=True)
class ListedTasks:
    """The task ids in the order of the file, and the digest of the set, which does not depend on the order."""

    ids: tuple[str, ...]
    digest: str
    manifest: tuple[str, ...] = ()
    """The lines that the digest covers: words joined by one space, sorted by their UTF-8 bytes."""


def read_tasks(path: Path, trials: int) -> ListedTasks:
    """The task set in a file. Raises BadInput as `parse_tasks` does."""
    return parse_tasks(task_lines(load(path, TABLE_BYTES, hint="list the tasks, one id a line"), path), trials, Place(path))


def task_set(folder: Path, scheme: Scheme) -> ListedTasks | None:
    """The task set of a folder, as validators need it; None for a competition without one. Raises BadInput."""
    if not scheme.kind.has_tasks(folder, scheme.score):
        return None
    return read_tasks(folder / "tasks.txt", scheme.kind.trials(scheme.score) or 1)


def weaker_tasks(path: Path) -> dict[str, str]:
    """Id → shared or snapshot, for tasks whose tests see more of the agent's work than its results."""
    rows = [_WORDS.findall(row) for row, _ in task_lines(load(path, TABLE_BYTES, hint=""), path)]
    return {words[0]: words[-1] for words in rows if len(words) > 1 and words[-1] in TASK_MODES}


def unsolved_tasks(folder: Path) -> list[str]:
    """The tasks whose files are here, but have no reference solution, in the order of tasks.txt."""
    rows = [
        _WORDS.findall(row)[0] for row, _ in task_lines(load(folder / "tasks.txt", TABLE_BYTES, hint=""), folder / "tasks.txt")
    ]
    here = {name: folder / "tasks" / name for name in rows if name not in (".", "..") and "/" not in name}
    return [name for name, task in here.items() if task.is_dir() and not (task / "solution" / "solve.sh").exists()]


def task_lines(data: bytes, file: Path | str) -> list[tuple[str, Place]]:
    """The lines with content and their places, without comments. Raises BadInput for bytes that are not UTF-8."""
    rows = enumerate(re.split(r"\r\n|\r|\n", decode(data, file)), start=1)
    return [(row, Place(file, number)) for number, row in rows if row.strip(" \t") and not row.lstrip(" \t").startswith("#")]


def parse_tasks(rows: Iterable[tuple[str, Place]], trials: int, place: Place) -> ListedTasks:
    """The task set in these lines. Raises BadInput for an invalid or repeated id, a wrong word, and no task."""
    seen: dict[str, Place] = {}
    whole = []
    for row, here in rows:
        words = _WORDS.findall(row)
        if not words:
            raise here.refuse("is an empty task id", hint="give the task an id, or remove it")
        _check_task(words, here)
        if words[0] in seen:
            raise here.refuse(f"the task {words[0]!r} is there twice, first at {seen[words[0]]}", hint="remove one of the two")
        seen[words[0]] = here
        whole.append(" ".join(words))
        if len(whole) > MOST_TASKS or len(whole) * trials > TRIALS_IN_ALL:
            raise here.refuse(
                f"has too many tasks (at most {MOST_TASKS}, and {TRIALS_IN_ALL} trials in all)",
                hint="make several competitions of it",
            )
    if not whole:
        raise place.refuse("has no tasks", hint="list the tasks, one id a line")
    whole.sort(key=str.encode)
    return ListedTasks(tuple(seen), digest(whole), tuple(whole))


def _check_task(words: Sequence[str], place: Place) -> None:
    name, *rest = words
    if len(name) > LONGEST_TASK or not allowed(name) or name.startswith("#"):
        hint = f"use 1 to {LONGEST_TASK} printable characters, no spaces, and no # in front"
        raise place.refuse(f"{name[:60]!r} is not a task id", hint=hint)
    if rest and _DIGEST.fullmatch(rest[0]):
        rest = rest[1:]
    if rest and rest[0] in TASK_MODES:
        rest = rest[1:]
    if rest:
        raise place.refuse(
            f"{rest[0][:80]!r} is out of place after the task id",
            hint="a line is: task-id [sha256: and 64 hex digits] [shared or snapshot]",
        )
