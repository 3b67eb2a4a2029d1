"""From evidence to the score of each participant by each validator; a kind of judge has the scorer. SPEC 2, 3.0.

`score` asks the kind of the scheme. The rules that all scorers need are here: which records stand, and for whom they count.
`stand` decides it for arrays of records (`assay.settle.columns`); only records whose key occurs twice are looked at one by one.
`accepted` and `holding` say the same of single records, for explanations and pages.

- Only evidence of the epochs `oldest` … `epoch` is read.
- Of several records with one key the first accepted counts: the one with the lowest `seq`. Different records of one key are
  refused if nothing says which of them came first.
- A record counts for the participant that has its submission now. A record without a submission counts for the participant that
  it names, if that participant has no submission either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from assay.errors import BadInput
from assay.exact import NANO
from assay.kind import Kind, find
from assay.records import Evidence, Record
from assay.scheme.model import ScoreRules
from assay.settle.columns import Columns, RecordTable, StandingRecords
from assay.settle.inputs import Frame, Ints, Scored

__all__ = ["accepted", "by_columns", "first_epochs", "first_epochs_of", "holding", "of_kind", "score", "stand"]


R = TypeVar("R", bound=Record)


def of_kind(records: Sequence[Evidence], kind: type[R]) -> list[R]:
    """The records, all of one kind; raises BadInput if one is of another. SPEC 7."""
    same: list[R] = [record for record in records if isinstance(record, kind)]
    if len(same) != len(records):
        other = next(record for record in records if not isinstance(record, kind))
        raise BadInput(
            f"a record of kind {other.kind!r} by {other.validator!r} in a competition of kind {kind.__name__.lower()!r}",
            field="evidence",
            hint="keep the evidence of each competition in its own folder, or correct score.kind",
        )
    return same


def accepted(records: Sequence[R], frame: Frame) -> list[R]:
    """The records that stand: one per key, the first accepted of the epochs that count. SPEC 3.0.

    Raises BadInput for validators and participants that are not in the registry, and for different records of one key
    that do not all have a `seq` of their own.
    """
    standing = [record for record in records if frame.oldest <= record.epoch <= frame.epoch]
    _known({record.validator for record in standing}, frame.row, "validator", "validators.csv")
    _known({record.participant for record in standing}, frame.column, "participant", "participants.csv")
    chosen: dict[tuple[object, ...], R] = {}
    several: dict[tuple[object, ...], list[R]] = {}
    for record in standing:
        first = chosen.setdefault(record.slot, record)
        if first is not record:
            several.setdefault(record.slot, [first]).append(record)
    for key, same in several.items():
        chosen[key] = _first(same)
    return list(chosen.values())


def _known(names: Iterable[str], registry: dict[str, int], what: str, file: str) -> None:
    unknown = sorted(set(names) - registry.keys(), key=str.encode)
    if unknown:
        raise BadInput(f"there is no {what} {unknown[0]!r}", field="evidence", hint=f"add it to {file}, or take its records out")


def _first(records: Sequence[R]) -> R:
    """The first accepted of several records of one key; equal records count as one."""
    first = min(records, key=lambda record: -1 if record.seq is None else record.seq)
    different = [record for record in records if record.content != first.content]
    if different and any(record.seq is None or (record is not first and record.seq == first.seq) for record in records):
        about = f"{first.validator!r} about {first.participant!r} in epochs {first.epoch} and {different[0].epoch}"
        raise BadInput(
            f"two different records for one key ({', '.join(str(part) for part in first.key)}): by {about}",
            field="evidence",
            hint="keep the one that came first, or give every record its seq",
        )
    return first


def holding(frame: Frame) -> Callable[[Record], int | None]:
    """A function from a record to the column that it counts for, or None. For tests, rubric and given. SPEC 2, 3.0."""
    holder, column, submissions = frame.holder, frame.column, frame.submissions

    def of(record: Record) -> int | None:
        if record.submission:
            return holder.get(record.submission)
        named = column[record.participant]
        return None if submissions[named] else named

    return of


def stand(evidence: RecordTable, frame: Frame, model: type[Record]) -> StandingRecords:
    """The records that stand, and for whom they count; raises BadInput as `accepted` does. SPEC 3.0."""
    everything = evidence.columns
    epochs = everything["epoch"]
    at = np.flatnonzero((epochs >= frame.oldest) & (epochs <= frame.epoch))
    columns = everything if len(at) == len(everything) else everything.take(at)
    for name, places, file in (("validator", frame.row, "validators.csv"), ("participant", frame.column, "participants.csv")):
        used = np.unique(columns[name]) if len(everything.names[name]) > len(places) else range(len(everything.names[name]))
        _known((everything.names[name][code] for code in used), places, name, file)
    twice = columns.twice(model.shared_key, model.parts)
    if len(twice):
        stays = np.ones(len(at), np.bool_)
        stays[twice] = False
        stays[twice[_chosen(evidence.read(at[twice]))]] = True
        columns = columns.take(stays)
    rows, cols = columns.lookup("validator", frame.row), _counting_for(columns, frame, model)
    return StandingRecords(columns, rows, cols, first_epochs_of(everything, frame, by_participant=model.by_participant))


def _chosen(records: Sequence[Record]) -> list[int]:
    """The places of the records that were accepted first, of each key. Raises BadInput for different ones without `seq`."""
    several: dict[tuple[object, ...], list[int]] = {}
    for at, record in enumerate(records):
        several.setdefault(record.slot, []).append(at)
    place = {id(record): at for at, record in enumerate(records)}
    return [place[id(_first([records[at] for at in same]))] for same in several.values()]


def _counting_for(columns: Columns, frame: Frame, model: type[Record]) -> Ints:
    """The column of the participant that each record counts for, −1 for nobody. SPEC 2, 3.0."""
    named = columns.lookup("participant", frame.column)
    if model.by_participant:
        return named
    if not model.shared_key:
        current = columns.lookup("submission", {name: at for at, name in enumerate(dict.fromkeys(frame.submissions))})
        numbers = {name: at for at, name in enumerate(dict.fromkeys(frame.submissions))}
        theirs = np.array([numbers[name] for name in frame.submissions] or [-1], np.int64)[named]
        return np.where((current == theirs) & np.append(frame.unique, False)[named], named, -1)
    without = np.array([not submission for submission in frame.submissions] or [False], np.bool_)
    of_submission = columns.lookup("submission", frame.holder)
    empty = columns.lookup("submission", {"": 0}) == 0
    return np.where(empty, np.where(without[named], named, -1), of_submission)


def first_epochs_of(columns: Columns, frame: Frame, *, by_participant: bool) -> dict[str, int]:
    """As `first_epochs`, of records as arrays."""
    before = columns["epoch"] <= frame.epoch
    epochs, lowest = columns["epoch"][before], dict[str, dict[str, int]]()
    for name in ("participant",) if by_participant else ("submission", "participant"):
        least = np.full(len(columns.names[name]), np.iinfo(np.int64).max)
        np.minimum.at(least, columns[name][before], epochs)
        lowest[name] = {
            text: epoch
            for text, epoch in zip(columns.names[name], least.tolist(), strict=True)
            if epoch != np.iinfo(np.int64).max
        }
    first = {}
    for key, submission in zip(frame.participants, frame.submissions, strict=True):
        by_submission = submission and not by_participant
        epoch = lowest["submission"].get(submission) if by_submission else lowest["participant"].get(key)
        if epoch is not None and key not in frame.duplicate_of:
            first[key] = epoch
    return first


def by_columns(kind: Kind, records: Sequence[Evidence], frame: Frame, rules: ScoreRules) -> Scored:
    """The scores of a kind that has columns: of records that were read as arrays, or are put into arrays here. SPEC 2."""
    if not isinstance(records, RecordTable):
        same = of_kind(records, kind.record)
        records = RecordTable(Columns.of(same, kind.columns(rules)), lambda at: [same[index] for index in at.tolist()])
    return kind.tally(stand(records, frame, kind.record), frame, rules)


def first_epochs(records: Sequence[Evidence], frame: Frame) -> dict[str, int]:
    """Participant → lowest epoch, up to the one settled, of any evidence about its submission. SPEC 3.0.

    `points`, and participants without a submission: of any evidence about that participant. Duplicates are left out.
    """
    seen = {(record.submission, record.participant, record.epoch) for record in records if record.epoch <= frame.epoch}
    by_participant = bool(records) and records[0].by_participant
    about_submission: dict[str, int] = {}
    about_participant: dict[str, int] = {}
    for submission, participant, epoch in seen:
        about_submission[submission] = min(epoch, about_submission.get(submission, epoch))
        about_participant[participant] = min(epoch, about_participant.get(participant, epoch))
    first = {}
    for key, submission in zip(frame.participants, frame.submissions, strict=True):
        lowest = about_submission.get(submission) if submission and not by_participant else about_participant.get(key)
        if lowest is not None and key not in frame.duplicate_of:
            first[key] = lowest
    return first


def score(records: Sequence[Evidence], frame: Frame, rules: ScoreRules) -> Scored:
    """Each validator's score of each participant, by the rules of `[score]`. SPEC 2.

    Raises BadInput for records that the kind cannot score, and for a kind whose scores are not whole nanos from 0 to 1.
    """
    scored = find(rules.kind).score(records, frame, rules)
    scores, counting = scored.scores, scored.counting
    exact = scores.shape == counting.shape == frame.shape and scores.dtype == np.int64 and counting.dtype == np.bool_
    if not exact or (scores.size and (scores.min() < 0 or scores.max() > NANO or scores[~counting].any())):
        what = f"the scores of the kind {rules.kind!r} are not nanos from 0 to 1 as int64, one for each validator and participant"
        raise BadInput(what, field="score.kind", hint="report it to the authors of the package that has this kind")
    return scored
