"""The inputs of a settlement (`Inputs`), and the axes that all its arrays share (`Frame`). SPEC 2, 3, 7.

Rows are validators, by key; columns are participants, in the order of the registry. Everything here is a value: the folder, the
ledger or a test makes it, and `pipeline.settle` reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from assay.records import Evidence, History, Participant, Pulled, Validator
from assay.scheme.model import Scheme

__all__ = ["Bools", "Clock", "Frame", "Inputs", "Ints", "Own", "Previous", "Scored", "arrived", "frame"]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_LAST = datetime.max.replace(tzinfo=UTC)


def arrived(participant: Participant) -> tuple[datetime, bytes]:
    """The order of arrival, as a sorting key: submission time (none is last), then the key's UTF-8 bytes. SPEC 2.1."""
    return (participant.submitted_at or _LAST, participant.key.encode())


@dataclass(frozen=True, slots=True)
class Own:
    """A participant's own clock: the submission it had, its best score (nanos), the epoch of its last reset. SPEC 4, Decay."""

    submission: str
    best: int
    last: int


@dataclass(frozen=True)
class Clock:
    """The memory of decay: the competition's record (nanos), its epoch and submission, and each participant's own. SPEC 4."""

    record: int | None = None
    last: int | None = None
    submission: str | None = None
    participants: Mapping[str, Own] = field(default_factory=dict)


@dataclass(frozen=True)
class Previous:
    """The state that an earlier settlement hands to a later one. It overrides last_reset_epoch and history.csv. SPEC 4, Decay."""

    scheme: str
    epoch: int
    task_set: str | None
    clock: Clock


@dataclass(frozen=True)
class Frame:
    """The axes of every array of one settlement, and which evidence counts. SPEC 2, 3.0."""

    epoch: int
    oldest: int
    """Evidence of epochs oldest … epoch counts (`max_age_epochs`)."""
    validators: tuple[str, ...]
    """Rows: keys in the order of their UTF-8 bytes."""
    participants: tuple[str, ...]
    """Columns: keys in the order of the registry."""
    submissions: tuple[str, ...]
    """The current submission of each column, "" for none."""
    duplicate_of: Mapping[str, str] = field(default_factory=dict)
    """Participant whose submission another one handed in earlier → that other one. SPEC 2."""
    tasks: tuple[str, ...] = ()

    @cached_property
    def row(self) -> dict[str, int]:
        """Validator key → row."""
        return {key: index for index, key in enumerate(self.validators)}

    @cached_property
    def column(self) -> dict[str, int]:
        """Participant key → column."""
        return {key: index for index, key in enumerate(self.participants)}

    @cached_property
    def holder(self) -> dict[str, int]:
        """Submission → the column of the participant it counts for; duplicates and empty submissions are not in it."""
        pairs = zip(self.participants, self.submissions, strict=True)
        return {
            submission: column for column, (key, submission) in enumerate(pairs) if submission and key not in self.duplicate_of
        }

    @cached_property
    def unique(self) -> Bools:
        """The participants whose submission is not a duplicate, as a mask, [participants]. SPEC 2."""
        return np.array([key not in self.duplicate_of for key in self.participants], dtype=np.bool_)

    @property
    def shape(self) -> tuple[int, int]:
        """(validators, participants)."""
        return len(self.validators), len(self.participants)


@dataclass(frozen=True)
class Scored:
    """Each validator's score of each participant, by its evidence. Arrays are [validators, participants]. SPEC 2."""

    scores: Ints
    """Nanos; 0 where `counting` is False."""
    counting: Bools
    """The validator has a whole score for this participant."""
    incomplete: Bools | None = None
    """tests: has evidence, but misses a trial."""
    unjudged: Bools | None = None
    """rubric: has a judgement, but it is malformed or says unjudged, or counts as unjudged."""
    suspected: Bools | None = None
    """rubric: the part of `unjudged` where the judgement is whole, but suspects an injection and the scheme says unjudged."""
    split: Bools | None = None
    """rubric: the part of `unjudged` where a panel has enough answers, but they differ too much. SPEC 2.3."""
    emptied: Bools | None = None
    """workflow: had tasks, but all of them were left out because of service errors."""
    missing: Ints | None = None
    """tests: how many trials are missing."""
    passes: NDArray[np.uint8] | None = None
    """tests, where a task passes by all validators: a bit for each task, [validators, participants, ⌈tasks / 8⌉]: whether the
    validator saw every trial of it pass."""
    work: Mapping[str, NDArray[np.int64] | NDArray[np.bool_] | NDArray[np.object_]] = field(default_factory=dict)
    """The parts that the score was computed from: arrays by name, as in the settlement's `work` (points in nanos)."""
    left_out: frozenset[tuple[str, int, str]] = frozenset()
    """workflow: (validator, epoch, task) of the tasks that were left out because of service errors."""
    first: Mapping[str, int] = field(default_factory=dict)
    """Participant → lowest epoch of any evidence about its submission: the epoch of acceptance, if the registry has none."""


@dataclass(frozen=True)
class Inputs:
    """Everything a settlement follows from. The caller has validated it. SPEC 7."""

    scheme: Scheme
    epoch: int
    participants: tuple[Participant, ...]
    validators: tuple[Validator, ...]
    evidence: Sequence[Evidence] | Scored = ()
    """Records of one kind, the scheme's; or, for evidence in Parquet, already scored over `frame(inputs)`."""
    tasks: tuple[str, ...] = ()
    task_set: str | None = None
    manifest: tuple[str, ...] = ()
    """The lines of the task set, sorted, whose digest is `task_set`."""
    history: tuple[History, ...] = ()
    randomness: Mapping[int, bytes] = field(default_factory=dict)
    previous: Previous | None = None
    registry: Pulled | None = None
    """The block of the chain at which uids and stakes were read; nothing is computed from it."""


def failed_audits(scheme: Scheme, validators: Iterable[Validator]) -> Mapping[str, str]:
    """Validator → the signed audit that saw its false claims: those that the scheme leaves out. docs/auditing.md."""
    if scheme.audit is None or scheme.audit.failed is None:
        return {}
    return {validator.key: validator.failed_audit for validator in validators if validator.failed_audit}


def frame(inputs: Inputs) -> Frame:
    """The axes of a settlement: validators by key, participants by registry, and which submissions are duplicates. SPEC 2."""
    scheme = inputs.scheme
    earliest: dict[str, Participant] = {}
    duplicates: dict[str, str] = {}
    if not scheme.kind.record.by_participant:
        for participant in sorted(inputs.participants, key=arrived):
            if participant.submission:
                first = earliest.setdefault(participant.submission, participant)
                if first is not participant:
                    duplicates[participant.key] = first.key
    return Frame(
        epoch=inputs.epoch,
        oldest=scheme.consensus.oldest(inputs.epoch),
        validators=tuple(sorted((validator.key for validator in inputs.validators), key=str.encode)),
        participants=tuple(participant.key for participant in inputs.participants),
        submissions=tuple(participant.submission for participant in inputs.participants),
        duplicate_of=duplicates,
        tasks=inputs.tasks,
    )
