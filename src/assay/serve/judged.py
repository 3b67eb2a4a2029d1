"""The records that the ledger has of each validator about the submissions that count now, for `GET work`.

A worker process keeps it, and reads each batch of evidence once:

- Only submissions that count now are kept. For a new submission, the validator's records about it are looked up by the index of
  slots, so nothing must be kept of a submission that may come back.
- The trials of a submission are the bits of an integer. 64 validators, 4,096 submissions and 80 tasks of 5 trials take about
  50 MB; sets of numbers took 6 GB.
- A validator waits only for its own evidence to be read: there is a lock for each.

A trial is listed if it need not be judged again: it was judged on the task set of now, in an epoch that still counts
(`max_age_epochs`), and in the open epoch where a kind's records are about an epoch. Records that are too old are not counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from threading import Lock
from typing import Any, NamedTuple

from assay.exact import canonical
from assay.ledger import batch, check
from assay.ledger.counting import BatchVerdicts
from assay.ledger.store import Store, StoredBatch, View
from assay.ledger.store.tables import RecordRow
from assay.scheme.model import Scheme
from assay.serve.epochs import People

__all__ = ["JudgedEvidence", "JudgedSoFar", "TrialBits"]

Json = dict[str, Any]
MOST_TASKS = 10_000
"""Tasks that are told apart where the rules name none."""


class TrialBits:
    """Trials as the bits of an integer. trials: how many of each task count; None: the kind has no task set.

    Trials that the rules do not ask for are left out. Without a task set, tasks are noted as they come, each with one trial.
    """

    def __init__(self, tasks: Sequence[str], trials: int | None) -> None:
        self._open, self._trials = trials is None, trials or 1
        self._places = {task: place for place, task in enumerate(tasks)}

    def bit(self, task: str, trial: int) -> int:
        """The bit of a trial; 0 if it is left out."""
        if self._open and task not in self._places and len(self._places) < MOST_TASKS:
            self._places[task] = len(self._places)
        place = self._places.get(task)
        return 0 if place is None or not 1 <= trial <= self._trials else 1 << (place * self._trials + trial - 1)

    def document(self, bits: int) -> bytes:
        """The trials as canonical JSON: task → numbers, ascending."""
        every, listed = (1 << self._trials) - 1, {}
        for task, place in tuple(self._places.items()) if bits else ():
            if numbers := bits >> place * self._trials & every:
                listed[task] = _numbers(numbers)
        return b"{" + b",".join(_name(task) + listed[task] for task in sorted(listed, key=_utf16)) + b"}"


class JudgedSoFar(NamedTuple):
    """A validator's records about a submission: how many still count, their trials as bits, and the lowest epoch of all."""

    records: int = 0
    trials: int = 0
    epoch: int | None = None

    def with_record(self, epoch: int, trial: int, *, counts: bool) -> JudgedSoFar:
        """The same with one record more. trial: its bit. counts: whether it still counts."""
        lowest = epoch if self.epoch is None else min(epoch, self.epoch)
        return JudgedSoFar(self.records + counts, self.trials | trial, lowest)


NOT_JUDGED = JudgedSoFar()


class _ValidatorState:
    """The state kept of one validator: the last batch that was read, and the records of each submission that was asked for."""

    def __init__(self) -> None:
        self.lock, self.last, self.about = Lock(), 0, dict[str, JudgedSoFar]()


class JudgedEvidence:
    """The records of each validator in one ledger, counted by submission. Threads share it."""

    def __init__(self, store: Store) -> None:
        self._store, self._lock, self._states = store, Lock(), dict[str, _ValidatorState]()
        self._rules = _TrialRules((), None, None, None, 0)

    def of(
        self, people: People, scheme: Scheme, validator: str, counting: Mapping[str, str], wanted: Iterable[str], epoch: int
    ) -> tuple[dict[str, JudgedSoFar], TrialBits]:
        """Submission → what the ledger has of a validator about it, at least of those `wanted`; and how to read the trials.

        counting: submission → participant, of all that count now. epoch: the open one. Raises StoreError.
        """
        about_epoch = epoch if "epoch" in scheme.kind.record.parts else None
        oldest = scheme.consensus.oldest(epoch)
        rules = _TrialRules(people.tasks, scheme.kind.trials(scheme.score), people.task_set, about_epoch, oldest)
        with self._lock:
            if rules.state != self._rules.state:
                self._rules, self._states = rules, {}
            for gone in self._states.keys() - people.validators.keys():
                del self._states[gone]
            state, rules = self._states.setdefault(validator, _ValidatorState()), self._rules
        with state.lock, self._store.reading() as view:
            about = {submission: known for submission, known in state.about.items() if submission in counting}
            verdicts = _Verdicts(view, self._store.meta.key)
            last = view.last_batch()
            if about:
                for submission, judged_in, trial in _since(view, validator, state.last, rules, verdicts):
                    if (known := about.get(submission)) is not None:
                        about[submission] = known.with_record(judged_in, trial, counts=judged_in >= oldest)
            for submission in wanted:
                if submission not in about:
                    whose = submission if scheme.kind.record.shared_key else counting[submission]
                    about[submission] = _looked_up(view, (scheme.score.kind, validator, whose), submission, rules, verdicts)
            state.about, state.last = about, last
        return about, rules.bits


class _TrialRules:
    """The trials to be listed, each with its bit. task_set: of now; epoch: the only one that counts, None: all from `oldest`."""

    def __init__(self, tasks: Sequence[str], trials: int | None, task_set: str | None, epoch: int | None, oldest: int) -> None:
        self.state = (tuple(tasks), trials, task_set, epoch, oldest)
        self.bits, self._task_set, self._epoch, self.oldest = TrialBits(tasks, trials), task_set, epoch, oldest
        self._same = dict[int, bool]()
        """Number of a batch → whether it was judged on the task set of now."""

    def bit(self, trial: Json, stored: RecordRow, view: View) -> int:
        """The bit of a record's trial; 0 if it is judged again, or the record has no task."""
        if "task" not in trial or self._epoch not in (None, stored.epoch) or stored.epoch < self.oldest:
            return 0
        if not self._same_tasks(stored.batch, view):
            return 0
        return self.bits.bit(trial["task"], trial.get("trial", 1))

    def _same_tasks(self, number: int, view: View) -> bool:
        if self._task_set is None:
            return True
        if number not in self._same:
            self._same[number] = _task_set_of(view.numbered(number)) in (None, self._task_set)
        return self._same[number]


def _task_set_of(stored: StoredBatch) -> str | None:
    with suppress(check.CheckError):  # what cannot be read does not count, and nobody asks further
        return batch.stated(stored.envelope)[1].task_set
    return None


class _Verdicts:
    """Says which batches count; nothing is read before the first question."""

    def __init__(self, view: View, key: str) -> None:
        self._view, self._key = view, key

    @cached_property
    def _verdicts(self) -> BatchVerdicts:
        return BatchVerdicts(self._view, self._key)

    def counts(self, number: int) -> bool:
        return self._verdicts.counts(number)


def _since(view: View, validator: str, after: int, rules: _TrialRules, verdicts: _Verdicts) -> Iterator[tuple[str, int, int]]:
    """Submission, epoch and bit of each record that a validator's batches brought after a batch."""
    for stored in view.of_validator(validator, after):
        if stored.first_seq is None or stored.last_seq is None or not verdicts.counts(stored.id):
            continue
        if any(other.id < stored.id and verdicts.counts(other.id) for other in view.named(stored.digest)):
            continue  # somebody inserted a copy of it
        for row in view.between(stored.first_seq, stored.last_seq):
            if row.batch == stored.id:
                parsed = json.loads(row.body)
                yield str(parsed["submission"]), row.epoch, rules.bit(parsed, row, view)


def _looked_up(view: View, run: tuple[str, str, str], submission: str, rules: _TrialRules, verdicts: _Verdicts) -> JudgedSoFar:
    """The records of a run (kind, validator, submission or participant) about a submission."""
    judged, seen = NOT_JUDGED, set[bytes]()
    for row in view.run(*run):
        parsed = json.loads(row.body)
        if parsed["submission"] == submission and row.digest not in seen and verdicts.counts(row.batch):
            seen.add(row.digest)
            judged = judged.with_record(row.epoch, rules.bit(parsed, row, view), counts=row.epoch >= rules.oldest)
    return judged


@lru_cache(maxsize=4096)
def _numbers(bits: int) -> bytes:
    """The places of the bits that are set, from 1, as JSON."""
    return canonical([place + 1 for place in range(bits.bit_length()) if bits >> place & 1])


@lru_cache(maxsize=4096)
def _name(task: str) -> bytes:
    return canonical(task) + b":"


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be")
