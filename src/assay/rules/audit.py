"""A risk-limiting audit of trials: what is claimed, which trials are drawn, and when the claims are confirmed. docs/auditing.md.

    ranking, agreed scores ─claims─▶ margins ─sizes─▶ trials to draw from ─seed─▶ draws ─judged again─▶ martingale ─▶ verdict

- Null hypothesis: at least one claim is wrong, which takes overstatements that sum to its margin.
- A trial's size is the most by which it can overstate any claim, as a part of the claim's margin: rounded up, in units of 1/NANO.
- Draws are with replacement, in proportion to size: the martingale of Kaplan and Markov needs that. A trial that was drawn before
  is not judged again.
- The martingale is an integer in units of 1/ONE, rounded down at every step. It is never above the exact one, so the chance that
  wrong claims are confirmed is at most the risk limit.

The references are P. B. Stark, "Risk-limiting postelection audits: conservative P-values from common probability inequalities"
(2009), and "Efficient post-election audits of multiple contests" (2009). Everything is an integer.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, count, pairwise
from typing import Literal

from assay.exact import BPS, NANO
from assay.scheme.model import Scheme

__all__ = [
    "ONE",
    "RUNS",
    "AuditClaim",
    "AuditPath",
    "AuditPlan",
    "ClaimedTrial",
    "Finding",
    "claims_of",
    "clean_draws",
    "draws",
    "finding",
    "follow",
    "needless",
    "overstated",
    "plan",
    "seed_of",
    "share_of",
    "undecided",
]

ONE = 10**18
"""The martingale's beginning."""
SLACK = 4
"""Nanos that roundings add to a difference of two agreed scores, at most: one for each score, as reported and as it truly is."""
INFLATION = (11, 10)
"""The ratio by which every size counts for more than it is: so one false trial does not end the audit, and costs more draws."""
RUNS = 3
"""The number of times a trial is judged again before its claim is false."""

Finding = Literal["held", "flaky", "false", "missing"]


@dataclass(frozen=True, slots=True)
class AuditClaim:
    """One thing that the audit confirms: a participant's agreed score is above another's, or above or below a fixed score.

    above, below: participants; None: the fixed score. margin: nanos by which it holds, as reported, less `SLACK`; not above 0: no
    sample can confirm it.
    """

    above: str | None
    below: str | None
    margin: int


@dataclass(frozen=True, slots=True)
class ClaimedTrial:
    """A trial of the evidence that counts. effect: nanos by which its outcome moves its participant's agreed score, at most.

    testable: tests ran on work of it, so it can be judged again; record: the digest of its record.
    """

    participant: str
    validator: str
    task: str
    trial: int
    passed: bool
    effect: Fraction
    testable: bool = True
    record: str = ""

    @property
    def place(self) -> tuple[bytes, bytes, bytes, int]:
        """The sorting key of trials: the UTF-8 bytes of participant, validator and task, then the trial's number."""
        return (self.participant.encode(), self.validator.encode(), self.task.encode(), self.trial)


def share_of(scheme: Scheme, stake: int, total: int, validators: int) -> Fraction:
    """The most by which one validator's score moves the agreed one. stake, total: its own, and of all that count. SPEC 3.3.

    Exact for the two means. Every other way to combine is monotone and moves with its inputs, so never more than they do: 1.
    A task that counts only if all saw it pass may take the whole step of one validator too.
    """
    if getattr(scheme.score, "passed_by", None) == "all":
        return Fraction(1)
    if scheme.consensus.combine == "stake-mean":
        return Fraction(stake, total)
    return Fraction(1, validators) if scheme.consensus.combine == "mean" else Fraction(1)


def claims_of(scheme: Scheme, ranking: Sequence[str], scores: Mapping[str, int], places: int | None = None) -> list[AuditClaim]:
    """The claims that follow from the ranking and must be confirmed, by what the scheme rewards. scores: nanos. SPEC 2.1, 4, 5.

    places: only the first so many places, each in its order, and that they are the first. None: all that are paid. Winners that
    share alike have no order among themselves to be claimed. Nothing is claimed where nobody is paid.
    """
    if scheme.payout is not None:
        return [*_payout_claims(scheme, ranking, scores)]
    reward = scheme.reward
    floor = max(reward.min_score, 1)
    paid = [key for key in ranking if scores[key] >= floor]
    alike = reward.kind == "weights" and reward.strategy == "winner-takes-all"
    first = len(paid) if places is None else min(places, len(paid))
    first = min(first, reward.top) if alike else first
    inside, outside = paid[:first], ranking[first:]
    claims = [] if alike else [_beats(scores, *pair) for pair in pairwise(inside)]
    lasts = inside if alike else inside[-1:]
    claims += [_beats(scores, key, other) for key in lasts for other in outside]
    if reward.min_score:
        claims += [_reaches(scores, key, floor) for key in lasts]
        if first == len(paid) and not (alike and first == reward.top):
            claims += [_stays_below(scores, key, floor) for key in outside]
    return claims


def _payout_claims(scheme: Scheme, ranking: Sequence[str], scores: Mapping[str, int]) -> Iterator[AuditClaim]:
    """The tier that the best reaches, the order of the paid places, and that nobody else belongs to them. SPEC 5."""
    assert scheme.payout is not None
    marks = [-(-tier.reach_bps * scheme.payout.threshold_bps * NANO // BPS**2) for tier in scheme.payout.tiers]
    reached = [mark for mark in marks if ranking and scores[ranking[0]] >= mark]
    missed = [mark for mark in marks if mark not in reached]
    paid = [key for key in ranking[: len(scheme.payout.split)] if scores[key] >= marks[-1]]
    others = ranking[len(paid) :]
    yield from (_beats(scores, *pair) for pair in pairwise(paid))
    if paid:
        yield _reaches(scores, paid[0], reached[0])
        yield _reaches(scores, paid[-1], marks[-1])
        if len(paid) == len(scheme.payout.split):
            yield from (_beats(scores, paid[-1], other) for other in others)
    if len(paid) < len(scheme.payout.split):
        yield from (_stays_below(scores, other, marks[-1]) for other in others)
    if paid and missed:
        yield from (_stays_below(scores, key, missed[-1]) for key in ranking)


def _beats(scores: Mapping[str, int], above: str, below: str) -> AuditClaim:
    return AuditClaim(above, below, scores[above] - scores[below] - SLACK)


def _reaches(scores: Mapping[str, int], key: str, mark: int) -> AuditClaim:
    return AuditClaim(key, None, scores[key] - mark + 1 - SLACK)


def _stays_below(scores: Mapping[str, int], key: str, mark: int) -> AuditClaim:
    return AuditClaim(None, key, mark - scores[key] - SLACK)


@dataclass(frozen=True)
class AuditPlan:
    """The plan of a draw: the trials that can overstate a claim, sorted by `place`, and the size of each.

    risk: nanos. recount: a claim has no margin, so no sample confirms it. untested: trials that could overstate a claim, but no
    tests ran on them; the audit takes them as they are claimed.
    """

    claims: tuple[AuditClaim, ...]
    trials: tuple[ClaimedTrial, ...]
    sizes: tuple[int, ...]
    risk: int
    recount: bool
    untested: tuple[ClaimedTrial, ...] = ()

    @cached_property
    def size(self) -> int:
        """The sizes together: so many times NANO is how often the margins could be overstated."""
        return sum(self.sizes)

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """The ends of the trials' parts of 0 … size − 1."""
        return tuple(accumulate(self.sizes))


def plan(claims: Sequence[AuditClaim], trials: Sequence[ClaimedTrial], risk: int) -> AuditPlan:
    """The plan of an audit of these claims. risk: the risk limit, in nanos."""
    passes, fails = dict[str, int](), dict[str, int]()
    for claim in claims:
        for key, least in ((claim.above, passes), (claim.below, fails)):
            if key is not None:
                least[key] = min(claim.margin, least.get(key, claim.margin))
    sized, untested = list[tuple[ClaimedTrial, int]](), list[ClaimedTrial]()
    for trial in sorted(trials, key=lambda trial: trial.place):
        margin = (passes if trial.passed else fails).get(trial.participant)
        if margin is None:
            continue
        if trial.testable:
            size = trial.effect * NANO / max(1, margin)
            sized.append((trial, -(-size.numerator // size.denominator)))
        else:
            untested.append(trial)
    recount = any(claim.margin <= 0 for claim in claims)
    return AuditPlan(
        tuple(claims), tuple(trial for trial, _ in sized), tuple(size for _, size in sized), risk, recount, tuple(untested)
    )


def seed_of(randomness: bytes, receipt: bytes) -> bytes:
    """The seed of a draw: SHA-256("assay-audit/1" ‖ 00 ‖ randomness ‖ receipt), 32 bytes each. receipt: the payload's SHA-256.

    Raises ValueError for another length.
    """
    if len(randomness) != 32 or len(receipt) != 32:
        raise ValueError("randomness and receipt have 32 bytes each")
    return hashlib.sha256(b"assay-audit/1\0" + randomness + receipt).digest()


def draws(plan: AuditPlan, seed: bytes) -> Iterator[int]:
    """The draws without end, each the index of a trial, in proportion to the sizes, with replacement. None from no trials.

    Draw j = 1, 2, … takes ⌊h·size / 2^256⌋, h = SHA-256(seed ‖ j), j in 8 bytes; it falls into one trial's part of the sizes.
    """
    for number in count(1) if plan.size else ():
        digest = hashlib.sha256(seed + number.to_bytes(8, "big")).digest()
        yield bisect_right(plan.ends, int.from_bytes(digest, "big") * plan.size >> 256)


def finding(passed: bool, seen: Sequence[str]) -> Finding:
    """The outcome of a claim. seen: the outcomes of judging again, in their order; none: the work is missing, or another.

    A claim that was seen again once has held. It is false only if `RUNS` runs saw nothing of it.
    """
    if not seen:
        return "missing"
    agreed = [(outcome == "pass") == passed for outcome in seen]
    if any(agreed):
        return "held" if all(agreed) else "flaky"
    return "false" if len(seen) >= RUNS else "flaky"


def undecided(passed: bool, seen: Sequence[str]) -> bool:
    """Whether runs are missing: none shows what is claimed, and there are fewer than `RUNS`. No run at all: missing work."""
    return 0 < len(seen) < RUNS and not any((outcome == "pass") == passed for outcome in seen)


def needless(passed: bool, seen: Sequence[str]) -> bool:
    """Whether there are more runs than an audit makes: any after one that shows what is claimed, or more than `RUNS`.

    Who may run a false claim until it shows once could hide every lie about a flaky task.
    """
    return len(seen) > RUNS or any((outcome == "pass") == passed for outcome in seen[:-1])


@dataclass(frozen=True, slots=True)
class AuditPath:
    """The path of the martingale: its value after each draw, in units of 1/ONE, and the trial that each draw took."""

    drawn: tuple[int, ...]
    values: tuple[int, ...]
    confirmed: bool
    """Whether it has reached 1/risk; the draws end there."""


def follow(plan: AuditPlan, seed: bytes, wrong: Mapping[int, bool], most: int | None = None) -> AuditPath:
    """The martingale along the draws, up to its end: confirmed, or as many draws as there are trials (or `most`).

    wrong: index of a trial → whether its claim is false or its work missing; the path ends before the first draw of one that is
    not in it. A held trial multiplies by γZ/(γZ − NANO), another by (γ − 1)Z/(γZ − NANO): Z the size, γ the inflation.
    """
    value, drawn, values = ONE, list[int](), list[int]()
    over, under = INFLATION
    last = len(plan.trials) if most is None else most
    if plan.recount:
        return AuditPath((), (), confirmed=False)
    below = over * plan.size - under * NANO
    if below <= 0:  # all trials together could not overstate a margin
        return AuditPath((), (), confirmed=True)
    for index in draws(plan, seed):
        if len(drawn) == last or index not in wrong:
            break
        value = value * (over - under if wrong[index] else over) * plan.size // below
        drawn.append(index)
        values.append(value)
        if value * plan.risk >= ONE * NANO:
            return AuditPath(tuple(drawn), tuple(values), confirmed=True)
    return AuditPath(tuple(drawn), tuple(values), confirmed=False)


def clean_draws(plan: AuditPlan) -> int | None:
    """The number of draws that confirm the claims if every trial holds; None if it is above the trials': all are judged again."""
    path = follow(plan, bytes(32), dict.fromkeys(range(len(plan.trials)), False))
    return len(path.drawn) if path.confirmed else None


def overstated(plan: AuditPlan, wrong: Mapping[int, bool]) -> list[tuple[AuditClaim, Fraction, bool]]:
    """Each claim, by how many nanos it was overstated, and whether it stands; for an audit that judged all trials again.

    wrong: as for `follow`, for every trial. A claim without a margin stands if nothing was overstated.
    """
    sums: dict[tuple[str, bool], Fraction] = {}
    for index, trial in enumerate(plan.trials):
        if wrong[index]:
            whose = (trial.participant, trial.passed)
            sums[whose] = sums.get(whose, Fraction(0)) + trial.effect
    rows = []
    for claim in plan.claims:
        total = Fraction(0)
        for key, sign in ((claim.above, 1), (claim.below, -1)):
            if key is not None:
                total += sign * (sums.get((key, True), Fraction(0)) - sums.get((key, False), Fraction(0)))
        rows.append((claim, total, total <= 0 or total < claim.margin))
    return rows
