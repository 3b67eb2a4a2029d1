"""Which epoch is settled next, and what it costs to close another one, or one in which nobody has a score. SPEC 6, Epochs.

Settling goes from one epoch to the next. What is closed stays closed, so two things are done only by saying so:

- to pass epochs: `--epoch 20` after epoch 2 means that 3 to 19 are never settled, and decay goes on over all of them;
- to close an epoch while nobody has an agreed score: then everything burns, though evidence may only be late.

An epoch in which somebody has a score is closed without a word; whose score is missing for want of reports is named.
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

__all__ = ["Closing", "next_epoch", "silent", "to_settle", "to_show"]


def next_epoch(view: View) -> int | None:
    """The epoch after the last one settled; before the first, the lowest that has evidence; None if there is none."""
    last = view.settled_epoch()
    return view.lowest_epoch() if last is None else last + 1


def to_settle(view: View) -> int | None:
    """The epoch that is settled where none is named: the next, or, if nothing newer has evidence, the last one settled.

    None if there is no evidence at all. Raises BadInput if only epochs after the next have new evidence.
    """
    following, last = next_epoch(view), view.settled_epoch()
    if last is None:
        return following
    found = view.lowest_epoch(last + 1)
    if found is None:
        return last
    if found != following:
        raise BadInput(
            f"epoch {following} is the next to be settled and has no evidence of its own; the first that has some is {found}",
            hint=f"to settle {following} by what was seen before, name it: --epoch {following}; or pass to {found}, which "
            f"leaves out what is between for good: --epoch {found} --skip",
        )
    return found


def to_show(view: View) -> int | None:
    """The epoch that is shown where none is named: the last one settled; before the first, the one that is settled next."""
    last = view.settled_epoch()
    return next_epoch(view) if last is None else last


def silent(settlement: Settlement, reported: frozenset[str]) -> tuple[str, ...]:
    """The keys of the validators who may judge here, and of whom nothing is among what was reported, by name."""
    seats, names = settlement.seats, called(settlement.inputs.validators)
    asked = [row for row, may in enumerate(seats.may_count) if may and (seats.drawn is None or seats.drawn[row].any())]
    keys = [settlement.frame.validators[row] for row in asked]
    return tuple(sorted((key for key in keys if key not in reported), key=names.__getitem__))


@dataclass(frozen=True)
class Closing:
    """What closing an epoch means beside its settlement."""

    settlement: Settlement
    passed: range
    """The epochs before it that would never be settled."""
    instead: Settlement | None
    """What the first of them would be settled as; None if none is passed, or if it cannot be settled."""
    silent: tuple[str, ...]
    """The keys of the validators who may judge, and of whom there is no evidence since the last receipt."""

    @property
    def silent_names(self) -> list[str]:
        """What people read of them."""
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
        there = {vote["validator"] for vote in row["validators"]}
        more = [
            frame.row[key]
            for key in self.silent
            if key not in there and (seats.drawn is None or seats.drawn[frame.row[key], column])
        ]
        count, stake = len(there) + len(more), int(row["stake"]) + sum(seats.stakes[one] for one in more)
        return bool(more) and count >= rules.min_validators and stake * NANO >= rules.min_stake * seats.totals[column]

    @property
    def scored(self) -> bool:
        """Whether anybody has an agreed score."""
        return bool(self.settlement.ranking)

    def costs(self) -> Iterator[str]:
        """What it costs that epochs are passed or that nobody has a score, and who has not reported; empty if it is neither."""
        if not self.passed and self.scored:
            return
        epoch, rules = self.settlement.epoch, self.settlement.inputs.scheme
        if self.passed:
            first, last = self.passed[0], self.passed[-1]
            which, them = (
                (f"Epoch {first}", "it") if first == last else (f"Epochs {first} to {last} ({len(self.passed)})", "them")
            )
            yield f"{which} would be passed for good: nobody can settle {them} then, and evidence of {them} is refused."
            yield from self._decay()
        if not self.scored and rules.payout is not None:
            yield f"Nobody has an agreed score in epoch {epoch}, so the whole deposit would be refunded."
        elif not self.scored:
            yield f"Nobody has an agreed score in epoch {epoch}, so everything would burn."
        if self.silent:
            have = "has" if len(self.silent) == 1 else "have"
            yield f"{plural(len(self.silent), 'validator')} {have} not reported yet: {named(self.silent_names)}."
            if self.scored and self.unscored:
                yield f"For want of that {named(self.unscored)} would have no agreed score."
        else:
            yield "Every validator has reported."

    def _decay(self) -> Iterator[str]:
        """What more burns than in the epoch that is next, and whose decay goes on."""
        before = self.instead
        if before is None or self.settlement.allotment is None:
            return
        burnt = [one.document["burn"]["share"] for one in (self.settlement, before)]
        if nanos(burnt[0]) != nanos(burnt[1]):
            yield f"{percent(burnt[0])} would burn; in epoch {before.epoch}, which is next, {percent(burnt[1])}."
        now, then = self.settlement.weights, before.weights
        stale = [
            f"{key} keeps {percent(now[key].kept)} instead of {percent(then[key].kept)}"
            for key in self.settlement.ranking
            if key in then and now[key].kept < then[key].kept
        ]
        if stale:
            yield f"Decay goes on: {named(stale, 3)}."

    def check(self, *, skip: bool, without_scores: bool) -> None:
        """Refuse what was not said: epochs that are passed, or an epoch without any score. Raises CannotSettle."""
        hints = []
        if self.passed and not skip:
            hints += [f"the next is settled with --epoch {self.passed[0]}", "those before are passed by --skip"]
        if not self.scored and not without_scores:
            hints += ["wait for the validators" if self.silent else "see why: --dry-run", "it is closed so by --without-scores"]
        if hints:
            raise CannotSettle(
                f"epoch {self.settlement.epoch} was not closed. {' '.join(self.costs())}".removesuffix("."), hint="; ".join(hints)
            )
