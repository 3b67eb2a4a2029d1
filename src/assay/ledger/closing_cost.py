"""Say which epoch is settled next, and what it costs to skip epochs or to close one without scores. SPEC 6, Epochs.

Settling goes from one epoch to the next, and a closed epoch stays closed. So two things happen only if the operator asks for
them:

- skipping epochs: `--epoch 20` after epoch 2 means that 3 to 19 are never settled, and decay runs over all of them;
- closing an epoch in which no participant has an agreed score: then everything burns, though evidence may only be late.

An epoch in which somebody has a score is closed without asking. If a participant's score is missing because validators have not
reported, the participant is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from assay.errors import BadInput, CannotSettle
from assay.exact import NANO, nanos
from assay.ledger.store import View
from assay.settle import Settlement
from assay.settle.story.telling import called, named, percent, plural

__all__ = ["Closing", "next_epoch", "silent", "to_settle", "to_show", "unjudged"]


def next_epoch(view: View) -> int | None:
    """The epoch after the last one settled; before the first, the lowest that has evidence; None if there is none."""
    last = view.settled_epoch()
    return view.lowest_epoch() if last is None else last + 1


def to_settle(view: View) -> int | None:
    """The epoch to settle if the operator names none: the next, or the last one settled if nothing newer has evidence.

    None if there is no evidence at all. Raises BadInput if only epochs after the next have new evidence.
    """
    following, last = next_epoch(view), view.settled_epoch()
    if last is None:
        return following
    newest = view.lowest_epoch(last + 1)
    if newest is None:
        return last
    if newest != following:
        raise BadInput(
            f"epoch {following} is the next to settle, but has no evidence of its own; the first epoch with evidence is {newest}",
            hint=f"to settle {following} by earlier evidence, name it: --epoch {following}; or skip to {newest}, and leave out "
            f"the epochs between for good: --epoch {newest} --skip",
        )
    return newest


def to_show(view: View) -> int | None:
    """The epoch to show if none is named: the last one settled; before the first, the one that is settled next."""
    last = view.settled_epoch()
    return next_epoch(view) if last is None else last


def silent(settlement: Settlement, reported: frozenset[str]) -> tuple[str, ...]:
    """The keys of the validators who may judge here and have not reported, in the order of their names."""
    seats, names = settlement.seats, called(settlement.inputs.validators)
    asked = [row for row, may in enumerate(seats.may_count) if may and (seats.drawn is None or seats.drawn[row].any())]
    keys = [settlement.frame.validators[row] for row in asked]
    return tuple(sorted((key for key in keys if key not in reported), key=names.__getitem__))


def unjudged(settlement: Settlement) -> list[str]:
    """The participants whose submission counts and has no agreed score; where no submission is judged, all without a score."""
    handed_in = {participant.key: bool(participant.submission) for participant in settlement.inputs.participants}
    everybody = settlement.inputs.scheme.kind.record.by_participant
    rows = [row for row in settlement.document["agreed"] if row["status"] not in ("agreed", "duplicate")]
    return [row["participant"] for row in rows if everybody or handed_in[row["participant"]]]


@dataclass(frozen=True)
class Closing:
    """The cost of closing an epoch, beside its settlement."""

    settlement: Settlement
    passed: range
    """The earlier epochs that would never be settled."""
    instead: Settlement | None
    """The settlement of the first of them; None if none is skipped, or if it cannot be settled."""
    silent: tuple[str, ...]
    """The keys of the validators who may judge and have sent no evidence since the last receipt."""

    @property
    def silent_names(self) -> list[str]:
        """Their names, as people read them."""
        names = called(self.settlement.inputs.validators)
        return [names[key] for key in self.silent]

    @property
    def unscored(self) -> list[str]:
        """The participants without an agreed score who could have one if the silent validators had judged them. SPEC 3.1."""
        rows = self.settlement.document["agreed"][len(self.settlement.ranking) :]
        return [row["participant"] for row in rows if row["status"] != "duplicate" and self._could_have_one(row)]

    def _could_have_one(self, row: dict[str, Any]) -> bool:
        """Whether a quorum would be reached with the silent validators who may judge it and whose score does not count yet."""
        seats, frame, inputs = self.settlement.seats, self.settlement.frame, self.settlement.inputs
        column, rules = frame.column[row["participant"]], inputs.scheme.consensus
        if not inputs.participants[column].submission and not inputs.scheme.kind.record.by_participant:
            return False
        counted = {vote["validator"] for vote in row["validators"]}
        more = [
            frame.row[key]
            for key in self.silent
            if key not in counted and (seats.drawn is None or seats.drawn[frame.row[key], column])
        ]
        count, stake = len(counted) + len(more), int(row["stake"]) + sum(seats.stakes[seat] for seat in more)
        return bool(more) and count >= rules.min_validators and stake * NANO >= rules.min_stake * seats.totals[column]

    @property
    def scored(self) -> bool:
        """Whether anybody has an agreed score."""
        return bool(self.settlement.ranking)

    def costs(self) -> Iterator[str]:
        """Sentences: what skipped epochs or an epoch without scores cost, and who has not reported; none if it is neither."""
        if not self.passed and self.scored:
            return
        epoch, rules = self.settlement.epoch, self.settlement.inputs.scheme
        if self.passed:
            first, last = self.passed[0], self.passed[-1]
            which, them = (
                (f"Epoch {first}", "it") if first == last else (f"Epochs {first} to {last} ({len(self.passed)})", "them")
            )
            yield f"{which} would be skipped for good: nobody can settle {them} then, and evidence of {them} is refused."
            yield from self._decay()
        if not self.scored and rules.payout is not None:
            yield f"Nobody has an agreed score in epoch {epoch}, so the whole deposit would be refunded."
        elif not self.scored:
            yield f"Nobody has an agreed score in epoch {epoch}, so everything would burn."
        if self.silent:
            have = "has" if len(self.silent) == 1 else "have"
            yield f"{plural(len(self.silent), 'validator')} {have} not reported yet: {named(self.silent_names)}."
            if self.scored and self.unscored:
                yield f"Without their reports, {named(self.unscored)} would have no agreed score."
        else:
            yield "Every validator has reported."

    def _decay(self) -> Iterator[str]:
        """Sentences on the burn and the decay: how much more burns than in the next epoch, and whose decay continues."""
        before = self.instead
        if before is None or self.settlement.allotment is None:
            return
        burnt = [settlement.document["burn"]["share"] for settlement in (self.settlement, before)]
        if nanos(burnt[0]) != nanos(burnt[1]):
            yield f"{percent(burnt[0])} would burn; in epoch {before.epoch}, which is next, {percent(burnt[1])}."
        now, then = self.settlement.weights, before.weights
        stale = [
            f"{key} keeps {percent(now[key].kept)} instead of {percent(then[key].kept)}"
            for key in self.settlement.ranking
            if key in then and now[key].kept < then[key].kept
        ]
        if stale:
            yield f"Decay continues: {named(stale, 3)}."

    def check(self, *, skip: bool, without_scores: bool) -> None:
        """Raise CannotSettle for skipped epochs, or an epoch without any score, that the operator did not ask for."""
        hints = []
        if self.passed and not skip:
            hints += [f"settle the next one with --epoch {self.passed[0]}, or skip those before with --skip"]
        if not self.scored and not without_scores:
            hints += ["wait for the validators" if self.silent else "see why: --dry-run", "or close it with --without-scores"]
        if hints:
            raise CannotSettle(
                f"epoch {self.settlement.epoch} was not closed. {' '.join(self.costs())}".removesuffix("."), hint="; ".join(hints)
            )
