"""The participants as one validator sees them: submissions that count, the validator's draw and its evidence. SPEC 2, 3.0, 7."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from assay.errors import BadInput, suggest
from assay.folder import csvs, evidence, registry
from assay.folder.files import Place
from assay.judge import holds
from assay.judge.run_files import short
from assay.records import Evidence, Participant, Validator
from assay.scheme.model import Scheme
from assay.settle import pipeline
from assay.settle.consensus import may_count
from assay.settle.inputs import arrived, failed_audits

__all__ = [
    "Entries",
    "HandedIn",
    "Submissions",
    "Written",
    "counting",
    "drawn",
    "handed_in",
    "held_remarks",
    "judgeable",
    "known",
    "read",
    "submitted",
    "written",
]

Done = TypeVar("Done")


class HandedIn(Protocol):
    """The submitted files of a participant, with their digest."""

    @property
    def digest(self) -> str:
        """`sha256:…`, which is the submission."""
        ...


T = TypeVar("T", bound=HandedIn)


@dataclass(frozen=True)
class Entries:
    """A competition's registry and rules, and the validator who judges."""

    folder: Path
    scheme: Scheme
    validator: str
    participants: tuple[Participant, ...]
    """Of everybody, in the order given."""
    validators: tuple[Validator, ...]


@dataclass(frozen=True)
class Submissions(Generic[T]):
    """The submitted files of participants, by the submission's digest.

    here: participants whose submission counts, and is here. absent: those whose submission counts, and is not.
    """

    files: Mapping[str, T]
    here: tuple[Participant, ...]
    absent: tuple[str, ...]


@dataclass(frozen=True)
class Written(Generic[Done]):
    """The evidence in a competition's folder, as far as a run of one validator needs it."""

    done: frozenset[Done]
    epoch: int | None
    """The highest epoch of anybody's evidence."""
    first: Mapping[str, int]
    """Submission → the lowest epoch of anybody's evidence about it."""
    newest: Mapping[Done, int]
    """The highest epoch of the validator's own evidence, by what it is about."""

    def of(self, epoch: int | None) -> int:
        """The epoch of evidence that is to come, `epoch` if that is said."""
        return epoch if epoch is not None else max(1, self.epoch or 1)

    def standing(self, oldest: int) -> Written[Done]:
        """The same without the validator's evidence of epochs before `oldest`, which does not count any more. SPEC 3.0."""
        return replace(self, done=frozenset(about for about in self.done if self.newest[about] >= oldest))


def read(folder: Path, scheme: Scheme, validator: str, wanted: Sequence[str] = ()) -> Entries:
    """Reads the registry; wanted: participants that somebody named. Raises BadInput for whatever is wrong."""
    file = folder / csvs.PARTICIPANTS.name
    everybody = registry.participants(csvs.read(file, csvs.PARTICIPANTS), Place(file), scheme)
    place = folder / csvs.VALIDATORS.name
    judges = registry.validators(csvs.read(place, csvs.VALIDATORS), Place(place), len(everybody))
    known(validator, [judge.key for judge in judges], place, "validator")
    for key in wanted:
        known(key, [participant.key for participant in everybody], file, "participant")
    return Entries(folder, scheme, validator, everybody, judges)


def counting(participants: Iterable[Participant]) -> list[Participant]:
    """The participants whose submission counts, in the order given: of several with the same one only the earliest. SPEC 2."""
    listed = [participant for participant in participants if participant.submission]
    first: dict[str, Participant] = {}
    for participant in sorted(listed, key=arrived):
        first.setdefault(participant.submission, participant)
    return [participant for participant in listed if first[participant.submission] is participant]


def judgeable(entries: Entries) -> list[Participant]:
    """Participants whose submission counts and is not held as a near-copy, in the order given. SPEC 7, `[submission] copies`."""
    held_now = _held(entries)
    return [participant for participant in counting(entries.participants) if participant.key not in held_now]


def held_remarks(entries: Entries) -> list[str]:
    """A sentence for each held submission: why it is held, and who can release it."""
    held_now = _held(entries)
    return [
        f"{participant.key} is held. {held_now[participant.key]}"
        for participant in counting(entries.participants)
        if participant.key in held_now
    ]


def _held(entries: Entries) -> dict[str, str]:
    return holds.held(entries.folder, entries.scheme, counting(entries.participants))


def submitted(
    entries: Entries, wanted: Sequence[str], of: Callable[[Participant], T | None], what: str, hint: str
) -> Submissions[T]:
    """The files of submissions that count; wanted: keys of participants, empty for all. Raises BadInput if no files are here."""
    files_of: dict[str, T] = {}
    absent: list[str] = []
    here: list[Participant] = []
    for participant in judgeable(entries):
        if wanted and participant.key not in wanted:
            continue
        theirs = of(participant)
        if theirs is None:
            absent.append(participant.key)
        else:
            files_of[participant.submission] = theirs
            here.append(participant)
    if not files_of:
        missing = f": {', '.join(absent[:5])} have none" if absent else ""
        raise BadInput(f"no participant has {what} here{missing}", file=entries.folder / csvs.PARTICIPANTS.name, hint=hint)
    return Submissions(files_of, tuple(here), tuple(absent))


def handed_in(
    place: Path, participant: Participant, load: Callable[[Path], T], others: Callable[[Path], Iterable[T]]
) -> T | None:
    """The files that a participant submitted, out of a folder of submissions; None if they are not there.

    others: those that are called by something else than their digest. Raises BadInput if the files are not those submitted.
    """
    folder = place / short(participant.submission)
    if not folder.is_dir():
        return next((other for other in others(place) if other.digest == participant.submission), None)
    files = load(folder)
    if files.digest != participant.submission:
        raise BadInput(
            f"is not what {participant.key!r} submitted: its digest is {files.digest}",
            file=folder,
            hint="submit it again, or get the files back that were submitted",
        )
    return files


def written(entries: Entries, key: Callable[[Evidence], Done]) -> Written[Done]:
    """Reads all evidence once; key: what a record is about. Raises BadInput for what is wrong with it."""
    judges = frozenset(validator.key for validator in entries.validators)
    who = frozenset(participant.key for participant in entries.participants)
    names = evidence.Registry(entries.scheme.score.kind, judges, who)
    newest: dict[Done, int] = {}
    epoch: int | None = None
    first: dict[str, int] = {}
    folder = entries.folder / "evidence"
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    for path in paths:
        if path.suffix == ".parquet":
            raise BadInput("is Parquet, and a run writes .jsonl beside it", file=path, hint="keep all evidence in .jsonl")
        if path.suffix != ".jsonl":
            continue
        for record in evidence.read([path], names).records:  # file by file, so that no more than one is in memory
            epoch = record.epoch if epoch is None else max(epoch, record.epoch)
            first[record.submission] = min(record.epoch, first.get(record.submission, record.epoch))
            if record.validator == entries.validator:
                about = key(record)
                newest[about] = max(record.epoch, newest.get(about, record.epoch))
    return Written(frozenset(newest), epoch, first, newest)


def drawn(entries: Entries, here: Sequence[Participant], first: Mapping[str, int], epoch: int) -> list[Participant]:
    """The participants of `here` whose submissions are this validator's to judge. SPEC 3.0.

    epoch: of the evidence that is to come; a submission that is not in `first`, and has no accepted_epoch, is accepted in it.
    Raises BadInput where the randomness of an epoch is missing.
    """
    file = entries.folder / csvs.RANDOMNESS.name
    rules = entries.scheme.consensus
    asked = rules.assign is not None and file.exists()
    randomness = registry.randomness(csvs.read(file, csvs.RANDOMNESS), Place(file)) if asked else {}
    keys = [validator.key for validator in entries.validators]
    failed = failed_audits(entries.scheme, entries.validators)
    allowed = may_count([validator.stake for validator in entries.validators], rules)
    may = [counts and key not in failed for key, counts in zip(keys, allowed, strict=True)]
    own = {row for row, key in enumerate(keys) if key == entries.validator}
    mine = []
    for participant in here:
        at = first.get(participant.submission, epoch) if participant.accepted_epoch is None else participant.accepted_epoch
        try:
            rows = pipeline.drawn(participant, at, keys, may, rules, randomness)
        except BadInput as error:
            raise error.at(file=file) from None
        if not own.isdisjoint(rows):
            mine.append(participant)
    return mine


def known(name: str, names: Sequence[str], file: Path, what: str) -> None:
    """Refuse a name that is none of these; raises BadInput with a suggestion."""
    if name not in names:
        some = ", ".join(sorted(names)[:5]) + (" …" if len(names) > 5 else "")
        hint = suggest(name, names, f"there is {some}")
        raise BadInput(f"there is no {what} {name[:80]!r}", file=file, field=what, hint=hint)
