"""A history under other rules: what each participant has under both, epoch by epoch, to the digests. SPEC 4, 5, 6.

    (settlement as it was, settlement under the other rules) of each epoch ─▶ `compared` ─▶ Backtest ─▶ `document`

The caller settles both from the first epoch on, because clocks of decay depend on earlier settlements. All shares are exact: of
the weights, or of the deposit where the scheme pays out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from assay.errors import BadInput
from assay.exact import digest, share_text
from assay.scheme.model import Scheme
from assay.settle.consensus import Status
from assay.settle.settlement import Settlement

__all__ = ["Backtest", "EpochPair", "SettledUnder", "ShareChange", "check_comparable", "compared"]

SCHEMA = "assay.backtest/1"
NONE = Fraction()


@dataclass(frozen=True, slots=True)
class SettledUnder:
    """An epoch under one of the two schemes."""

    digest: str
    """Of its settlement."""
    shares: Mapping[str, Fraction]
    """Participant → its part, in ranking order: of the weights, or net of the deposit."""
    agreed: int
    """The number of participants with an agreed score."""
    excluded: int
    """The number of validators' scores left out as outliers."""

    @property
    def rest(self) -> Fraction:
        """The part that no participant has: it burns, stays unallocated, or is fees and refund."""
        return 1 - sum(self.shares.values(), NONE)

    def of(self, participant: str) -> Fraction:
        """A participant's part; 0 without an agreed score."""
        return self.shares.get(participant, NONE)


@dataclass(frozen=True, slots=True)
class EpochPair:
    """An epoch as it was settled (old) and under the other rules (new)."""

    epoch: int
    old: SettledUnder
    new: SettledUnder

    @property
    def moved(self) -> Fraction:
        """The part of the whole that somebody else has under the new rules."""
        gains = (self.new.of(key) - self.old.of(key) for key in {*self.old.shares, *self.new.shares})
        return sum((gain for gain in gains if gain > 0), max(NONE, self.new.rest - self.old.rest))


@dataclass(frozen=True, slots=True)
class ShareChange:
    """A participant's mean share over all epochs, under both."""

    participant: str
    old: Fraction
    new: Fraction

    @property
    def gain(self) -> Fraction:
        """new − old; below 0 for a loss."""
        return self.new - self.old


@dataclass(frozen=True)
class Backtest:
    """A competition's epochs under two schemes."""

    old: Scheme
    new: Scheme
    epochs: tuple[EpochPair, ...]

    @cached_property
    def changes(self) -> list[ShareChange]:
        """Every participant that ever had an agreed score, the largest gain first, then by key."""
        keys = {key for pair in self.epochs for side in (pair.old, pair.new) for key in side.shares}
        changes = [
            self._mean(key, *zip(*((pair.old.of(key), pair.new.of(key)) for pair in self.epochs), strict=True)) for key in keys
        ]
        return sorted(changes, key=lambda change: (-change.gain, change.participant.encode()))

    @property
    def rest(self) -> ShareChange:
        """The mean of what nobody has, under both."""
        return self._mean("", [pair.old.rest for pair in self.epochs], [pair.new.rest for pair in self.epochs])

    def _mean(self, key: str, old: Iterable[Fraction], new: Iterable[Fraction]) -> ShareChange:
        return ShareChange(key, sum(old, NONE) / len(self.epochs), sum(new, NONE) / len(self.epochs))

    @cached_property
    def document(self) -> dict[str, Any]:
        """The back-test as JSON, with a digest over the rest of it; shares are decimal strings, for the reader. SPEC 1, 6."""
        content = {
            "schema": SCHEMA,
            "old": _named(self.old),
            "new": _named(self.new),
            "epochs": [
                {"epoch": pair.epoch, "old": _side(pair.old), "new": _side(pair.new), "moved": share_text(pair.moved)}
                for pair in self.epochs
            ],
            "participants": [{"participant": change.participant, **_change(change)} for change in self.changes],
            "rest": _change(self.rest),
        }
        return content | {"digest": digest(content)}


def _named(scheme: Scheme) -> dict[str, str]:
    return {"name": scheme.name, "version": scheme.scheme.version, "digest": scheme.digest}


def _side(side: SettledUnder) -> dict[str, Any]:
    return {
        "settlement": side.digest,
        "agreed": side.agreed,
        "excluded": side.excluded,
        "shares": {key: share_text(share) for key, share in side.shares.items()},
        "rest": share_text(side.rest),
    }


def _change(change: ShareChange) -> dict[str, str]:
    """Gain and loss apart: a decimal string has no sign. SPEC 1."""
    shares = {"old": change.old, "new": change.new, "gain": max(NONE, change.gain), "loss": max(NONE, -change.gain)}
    return {name: share_text(share) for name, share in shares.items()}


def check_comparable(old: Scheme, new: Scheme) -> None:
    """Raise BadInput if two schemes do not score the same kind of evidence, or do not reward in the same way."""
    for field, mine, other in (
        ("score.kind", old.score.kind, new.score.kind),
        ("reward.kind", old.reward.kind, new.reward.kind),
    ):
        if mine != other:
            raise BadInput(
                f"the competition has {mine!r}, the other scheme {other!r}, so nothing can be compared",
                field=field,
                hint="change other rules in a copy of the competition's own scheme.toml",
            )
    if new.reward.kind == "ranking":
        raise BadInput("a ranking pays nobody, so nobody gains or loses", field="reward.kind", hint="compare two boards instead")


def compared(old: Scheme, new: Scheme, pairs: Iterable[tuple[Settlement, Settlement]]) -> Backtest:
    """The comparison of epochs that were settled under both schemes, in their order."""
    return Backtest(old, new, tuple(EpochPair(first.epoch, _of(first), _of(second)) for first, second in pairs))


def _of(settlement: Settlement) -> SettledUnder:
    agreement = settlement.agreement
    return SettledUnder(
        digest=settlement.digest,
        shares=_shares(settlement),
        agreed=int((agreement.status == Status.AGREED).sum()),
        excluded=int(agreement.excluded.sum()),
    )


def _shares(settlement: Settlement) -> dict[str, Fraction]:
    payouts, payout = settlement.payouts, settlement.inputs.scheme.payout
    if payouts is None or payout is None:
        return {key: weight.share for key, weight in settlement.weights.items()}
    nets = dict.fromkeys(settlement.ranking, 0) | {settlement.ranking[row.place - 1]: row.net for row in payouts.rows}
    return {key: Fraction(net, payout.deposit) if payout.deposit else NONE for key, net in nets.items()}
