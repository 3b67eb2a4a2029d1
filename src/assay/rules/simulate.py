"""A scheme over a drawn season: what the kernel makes of skill that is known. SPEC 3, 4, 5.

    DrawnSeason ─▶ consensus of all columns at once ─▶ each epoch: ranking, clocks, shares ─▶ SeasonOutcome

Consensus, clocks, shares and payouts are the kernel's own functions, and exact. The figures about them are for the reader, and
binary floats. A validator's evaluation stands until the submission changes, as SPEC 3.0 has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.errors import BadInput
from assay.exact import BPS, NANO
from assay.rules.seasons import DrawnSeason
from assay.scheme.model import Decay, Scheme
from assay.scheme.reading import validate
from assay.settle import reward
from assay.settle.consensus import Agreement, Status, Votes, agree
from assay.settle.inputs import Bools, Clock, Ints
from assay.settle.rewarding import AgreedScore, advance

__all__ = ["Knob", "SeasonOutcome", "knobs", "simulate", "varied"]

Floats = NDArray[np.float64]
TENTHS = 10
CLEARLY = NANO // 20
"""The difference in skill, in nanos, from which a less skilled participant must have less than a newcomer."""


@dataclass(frozen=True, eq=False)
class SeasonOutcome:
    """The result of a scheme in a season; every number is a float for the reader. E epochs."""

    to_skill: float
    """The part of what is given out that goes where it would go if everybody's skill were known, and judged at once."""
    correlation: float
    """Spearman's, between skill and share, of those with an agreed score; the mean over epochs."""
    panels: int
    """The number of times a submission was judged to a quorum: by so many validators, anew when another one has judged it."""
    panels_hurt: float
    """The part of them in which at least one validator is left out; all are honest."""
    scores_hurt: float
    """The part of the validators' scores that is left out."""
    agreed: float
    """The part of participants and epochs with an agreed score."""
    burnt: float
    """The part that nobody gets, the mean over epochs."""
    largest: float
    """The largest share, the mean over epochs."""
    waits: tuple[int, ...]
    """Of each newcomer: epochs until nobody has a larger share who is less skilled by `CLEARLY`."""
    never: int
    """The number of newcomers that never got there, with their first submission or before the season ended."""
    by_epoch: Floats
    """[3, E]: to skill, burnt, the largest share."""
    by_skill: Floats
    """[2, TENTHS]: mean share of those in each tenth of the skill, as it is and as it would be if skills were known."""

    @property
    def wait(self) -> float | None:
        """The median of `waits`; None without one."""
        return float(np.median(self.waits)) if self.waits else None

    def document(self) -> dict[str, Any]:
        """As JSON: floats as decimal strings, four digits after the point."""
        numbers = ("to_skill", "correlation", "panels_hurt", "scores_hurt", "agreed", "burnt", "largest")
        waits = {"median": None if self.wait is None else f"{self.wait:g}", "seen": len(self.waits), "never": self.never}
        return {name: f"{getattr(self, name):.4f}" for name in numbers} | {"panels": self.panels, "newcomers": waits}


def simulate(scheme: Scheme, season: DrawnSeason) -> SeasonOutcome:
    """The result of a scheme in a season. BadInput if the scheme only ranks, or draws validators for each submission."""
    if scheme.reward.kind == "ranking":
        raise BadInput(
            "a ranking pays nobody, so there is nothing to simulate", field="reward.kind", hint="use a scheme that pays"
        )
    if scheme.consensus.assign is not None:
        raise BadInput("is not simulated", field="consensus.assign", hint="simulate as many validators as it draws, without it")
    agreement = _agreement(scheme, season)
    shares, ideal = _shares(scheme, season, agreement)
    return _outcome(season, agreement, shares, ideal)


def _agreement(scheme: Scheme, season: DrawnSeason) -> Agreement:
    submission, _ = season.columns
    trials = None if scheme.kind.trials(scheme.score) is None else season.world.tasks * season.world.trials
    votes = Votes(season.scores[:, submission], season.counting, season.stakes, sum(season.stakes), trials=trials)
    return agree(votes, scheme.consensus, bps=scheme.kind.in_bps)


def _shares(scheme: Scheme, season: DrawnSeason, agreement: Agreement) -> tuple[Floats, Floats]:
    """The share of each place in each epoch, and the one it would have if all skills were known, [E, N]; NaN without a score."""
    E, N = season.current.shape
    shares, ideal = np.full((E, N), np.nan), np.zeros((E, N))
    clocks = _Clocks(scheme.decay or Decay(), season)
    nanos = agreement.score if agreement.bps is None else agreement.bps * (NANO // BPS)
    agreed = np.append(agreement.status == Status.AGREED, False)
    submission = np.append(season.columns[0], -1)
    before = np.full(N, -1)
    for epoch, columns in enumerate(season.current):
        places = np.flatnonzero(agreed[columns])
        scores = nanos[columns[places]]
        order = np.lexsort((places, season.start[submission[columns[places]]], -scores))
        places, scores = places[order], scores[order]
        kept = clocks.kept(epoch, submission[columns[places]], scores, columns[places] != before[places])
        shares[epoch, places] = _given(scheme, scores.tolist(), kept)
        skills = season.skill[season.there[epoch]]
        best = np.argsort(-skills, kind="stable")
        ideal[epoch, best] = _given(scheme, skills[best].tolist(), None)
        before = columns
    return shares, ideal


def _given(scheme: Scheme, scores: list[int], kept: Sequence[int] | None) -> list[float]:
    """The shares of scores in ranking order. kept: 1 − B of each, nanos; None: only what strategy and cap give out."""
    if scheme.payout is not None:
        rows = reward.pay(scores, scheme.payout).rows
        return [row.net / max(1, scheme.payout.deposit) for row in rows] + [0.0] * (len(scores) - len(rows))
    if kept is None:
        shares = reward.cap(reward.share_out(scores, scheme.reward), scheme.reward).shares
    else:
        shares = reward.allot(scores, scheme.reward, kept, (True,) * len(scores)).share
    return [part / shares.denominator for part in shares.parts]


class _Clocks:
    """Both clocks of decay along a season. Only what changed since the epoch before is told to the kernel."""

    def __init__(self, rules: Decay, season: DrawnSeason) -> None:
        self.rules, self.clock = rules, None if rules.curve == "none" else Clock()
        self.keys = [f"p{number}" for number in season.participant.tolist()]

    def kept(self, epoch: int, submissions: Ints, scores: Ints, changed: Bools) -> Sequence[int]:
        """1 − B of each in nanos, in ranking order."""
        if self.clock is None:
            return (NANO,) * len(submissions)
        clocked = changed if self.clock.record is not None else np.ones(len(changed), np.bool_)
        ranked = [
            AgreedScore(self.keys[submission], str(submission), score)
            for submission, score in zip(submissions[clocked].tolist(), scores[clocked].tolist(), strict=True)
        ]
        self.clock = advance(
            before=self.clock, previous_task_set=None, task_set=None, epoch=epoch, agreed=ranked, history=(), rules=self.rules
        )
        if self.rules.clock == "competition":
            return (NANO - reward.burnt(self.clock.last, epoch, self.rules)[1],) * len(submissions)
        lasts = [self.clock.participants[self.keys[submission]].last for submission in submissions.tolist()]
        return [NANO - lost for _, lost in reward.each(lasts, epoch, self.rules)]


def _outcome(season: DrawnSeason, agreement: Agreement, shares: Floats, ideal: Floats) -> SeasonOutcome:
    judged = ~np.isnan(shares)
    have = np.where(judged, shares, 0)
    skills = season.skill[season.there]
    given, total = np.minimum(have, ideal).sum(axis=1), have.sum(axis=1)
    to_skill = np.divide(given, total, out=np.zeros_like(given), where=total > 0)
    waits, never = _waits(season, have, skills)
    quorum = agreement.quorum
    counted = agreement.votes.counting[:, quorum]
    excluded = agreement.excluded[:, quorum]
    return SeasonOutcome(
        to_skill=float(given.sum() / max(total.sum(), 1e-12)),
        correlation=_correlation(skills, have, judged),
        panels=int(quorum.sum()),
        panels_hurt=float(excluded.any(axis=0).mean()) if quorum.any() else 0.0,
        scores_hurt=float(excluded.sum() / max(1, counted.sum())),
        agreed=float(judged.mean()),
        burnt=float(1 - total.mean()),
        largest=float(have.max(axis=1).mean()),
        waits=waits,
        never=never,
        by_epoch=np.stack([to_skill, 1 - total, have.max(axis=1)]),
        by_skill=_by_skill(skills, have, ideal),
    )


def _correlation(skills: Ints, shares: Floats, judged: Bools) -> float:
    """The mean over epochs of the rank correlation; ties have the mean of their ranks."""
    correlations = []
    for skill, share, mask in zip(skills, shares, judged, strict=True):
        if mask.sum() > 2:
            skill_ranks, other = _ranks(skill[mask]), _ranks(share[mask])
            spread = skill_ranks.std() * other.std()
            if spread:
                correlations.append(float(((skill_ranks - skill_ranks.mean()) * (other - other.mean())).mean() / spread))
    return float(np.mean(correlations)) if correlations else 0.0


def _ranks(values: NDArray[Any]) -> Floats:
    _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
    upto = np.cumsum(counts)
    return np.asarray((upto - (counts - 1) / 2)[index])


def _waits(season: DrawnSeason, shares: Floats, skills: Ints) -> tuple[tuple[int, ...], int]:
    """Epochs until nobody who is clearly less skilled has more than a newcomer; how many newcomers never got there."""
    waits, never = [], 0
    for submission in np.flatnonzero(season.newcomer).tolist():
        place, start, end = (int(array[submission]) for array in (season.place, season.start, season.end))
        less = skills[start:end] <= skills[start, place] - CLEARLY
        if not less[0].any():
            continue
        mine = shares[start:end, place]
        there = np.flatnonzero((mine > 0) & (mine >= np.where(less, shares[start:end], 0).max(axis=1)))
        if len(there):
            waits.append(int(there[0]))
        else:
            never += 1
    return tuple(waits), never


def _by_skill(skills: Ints, shares: Floats, ideal: Floats) -> Floats:
    edges = np.quantile(skills, np.linspace(0, 1, TENTHS + 1)[1:-1])
    tenth = np.searchsorted(edges, skills, side="right")
    return np.array(
        [
            [float(values[tenth == at].mean()) if (tenth == at).any() else 0.0 for at in range(TENTHS)]
            for values in (shares, ideal)
        ]
    )


@dataclass(frozen=True)
class Knob:
    """A scheme with one field changed."""

    field: str
    value: str
    scheme: Scheme


def varied(scheme: Scheme, changes: dict[str, Any]) -> Scheme:
    """A scheme with other values of fields such as `reward.cap`; None removes a field. Raises BadInput if they do not fit."""
    document = scheme.document()
    for path, value in changes.items():
        *sections, name = path.split(".")
        inner = document
        for section in sections:
            inner = inner.setdefault(section, {})
        if value is None:
            inner.pop(name, None)
        else:
            inner[name] = value
    return validate(Scheme, document)


def knobs(scheme: Scheme) -> Iterator[Knob]:
    """Schemes that differ from this one in one field; those that are no schemes are left out."""
    for field, value, changes in _changes(scheme):
        try:
            other = varied(scheme, changes)
        except BadInput:
            continue
        if other.digest != scheme.digest:
            yield Knob(field, value, other)


def _changes(scheme: Scheme) -> Iterator[tuple[str, str, dict[str, Any]]]:
    rules = scheme.consensus.outliers
    for method in ("modified-z", "z", "none"):
        if method != rules.method:
            yield "outliers.method", method, {"consensus.outliers": {"method": method}}
    if scheme.kind.trials(scheme.score) is not None:
        yield "outliers.scale", "noise", {"consensus.outliers": {"method": "modified-z", "scale": "noise"}}
    for combine in ("stake-mean", "stake-median", "mean", "clip", "trimmed"):
        if combine != scheme.consensus.combine:
            yield "combine", combine, {"consensus.combine": combine, "consensus.kappa": None, "consensus.trim": None}
    for least in (1, 2, 5):
        yield "min_validators", str(least), {"consensus.min_validators": least}
    if scheme.reward.kind != "weights":
        return
    for strategy in ("linear", "softmax", "winner-takes-all", "quadratic", "ranked"):
        if strategy != scheme.reward.strategy:
            yield "strategy", strategy, {"reward.strategy": strategy}
    for cap in ("5%", "15%", "50%", "100%"):
        yield "cap", cap, {"reward.cap": cap}
    yield "decay", "none", {"decay.curve": "none"}
    for clock in ("participant", "competition"):
        yield "decay.clock", clock, {"decay.clock": clock, "decay.curve": "linear"}
