"""Looks at an operator's season for what is wrong with it: who is heard of, what validators tell, and what nobody judges.

The service's tables and the ledger say it, as any program on the operator's machine may read them: the service need not run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from assay.errors import AssayError, BadInput
from assay.judge import entries
from assay.ledger.closing_cost import next_epoch
from assay.node.alarms import SILENT, SeasonFacts, Unjudged, ValidatorFacts
from assay.records import Validator
from assay.scheme.fields import instant
from assay.serve.epochs import EpochReader, People
from assay.serve.judged import JudgedEvidence
from assay.serve.notebook import Heartbeat
from assay.serve.site import ServedCompetition

__all__ = ["SeasonWatch", "season_facts"]

EPOCHS = 2
"""A submission that was handed in so many epochs ago is judged by now, whatever its validators do."""
WAITS = timedelta(hours=1)
"""So long after it came, a submission is judged by now if no validator is judging anything."""


def season_facts(folder: Path) -> SeasonFacts:
    """Look once; what cannot be read is in `wrong`."""
    with SeasonWatch(folder) as watch:
        return watch.look()


class SeasonWatch:
    """Looks at the season of one folder again and again, and reads only what is new. A context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._served: ServedCompetition | None = None
        self._judged: JudgedEvidence | None = None

    def __enter__(self) -> SeasonWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the ledger; the next look opens it again."""
        if self._served is not None:
            self._served.close()
        self._served = self._judged = None

    def look(self) -> SeasonFacts:
        """Look at the season. A ledger or a registry that cannot be read is named in `wrong`, and read anew the next time."""
        now = datetime.now(UTC)
        try:
            return self._facts(now)
        except (AssayError, OSError) as error:
            self.close()
            return SeasonFacts(0, now, wrong=str(error))

    def _facts(self, now: datetime) -> SeasonFacts:
        served = self._served = self._served or ServedCompetition(self._folder)
        store, notebook = served.books()
        judged = self._judged = self._judged or JudgedEvidence(store)
        scheme, people = served.scheme, EpochReader(served).people()
        with store.reading() as view:
            epoch = next_epoch(view) or 1
        beats = {beat.validator: beat for beat in notebook.heartbeats()}
        rules = scheme.consensus
        seats = [row for row in people.validators.values() if row.stake >= rules.min_validator_stake]
        seats.sort(key=lambda row: (-row.stake, row.name, row.key))
        validators = tuple(_validator(row, beats.get(row.key), now) for row in seats)
        unjudged: tuple[Unjudged, ...] = ()
        if not scheme.kind.record.by_participant:
            judging = {entry.get("participant") for beat in beats.values() if now - beat.at <= SILENT for entry in beat.judging}
            waiting = list(self._unjudged(served, people, judged, epoch))
            unjudged = tuple(row for row in waiting if _is_late(row, epoch, now, judging))
        return SeasonFacts(epoch, notebook.since, validators, rules.min_validators, rules.min_stake, unjudged)

    def _unjudged(self, served: ServedCompetition, people: People, judged: JudgedEvidence, epoch: int) -> Iterator[Unjudged]:
        """The submissions that count of which nobody has sent evidence; none if there is no evidence of any other."""
        scheme, latest = served.scheme, served.handed_in()
        here = []
        for person in people.participants.values():
            if not person.submission and (row := latest.get(person.key)) is not None:
                person = replace(
                    person, submission=row.submission, accepted_epoch=row.epoch, submitted_at=_time(row.submitted_at)
                )
            here.append(person)
        counting = entries.counting(here)
        owners = {person.submission: person.key for person in counting}
        records = dict.fromkeys(owners, 0)
        for validator in people.validators:
            known, _ = judged.of(people, scheme, validator, owners, owners, epoch)
            for submission in records:
                records[submission] += known[submission].records
        for person in counting if any(records.values()) else ():
            if not records[person.submission]:
                yield Unjudged(person.name or person.key, person.accepted_epoch or 0, person.submitted_at)


def _validator(row: Validator, beat: Heartbeat | None, now: datetime) -> ValidatorFacts:
    name = row.name or row.key
    if beat is None:
        return ValidatorFacts(name, row.stake)
    troubles = tuple((str(trouble["code"]), str(trouble["what"])) for trouble in beat.troubles)
    return ValidatorFacts(name, row.stake, beat.at, bool(beat.judging) and now - beat.at <= SILENT, troubles)


def _is_late(row: Unjudged, epoch: int, now: datetime, judging: set[Any]) -> bool:
    """Whether somebody would have judged a submission by now. judging: whose submissions validators judge."""
    if row.epoch and epoch - row.epoch >= EPOCHS:
        return True
    return not judging and row.at is not None and now - row.at >= WAITS


def _time(text: str) -> datetime | None:
    try:
        return instant(text)
    except BadInput:
        return None
