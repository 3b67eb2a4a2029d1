"""Yuma consensus before weights are set: consensus, trust of validators, bonds and dividends, as Bittensor's chain has them.

    weights ─▶ without own, outdated and unpermitted ─▶ rows sum to 1 ─▶ consensus at κ ─▶ clipped ─▶ incentive
                                             bonds, moved toward the weights ─▶ dividends

The numbers have 32 bits after the point, and each step rounds as the chain's does (`assay.rules.fixed`). Three kinds of bonds:

    legacy      bonds are shares of each server's column, and move by one rate
    yuma3       bonds are absolute, and move toward the weights by one rate
    liquid      yuma3 with a rate for each pair: faster where a validator buys ahead of the consensus, or sells

Facts are those of the pallet `subtensor`, epoch/run_epoch.rs; the code is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from assay.errors import BadInput
from assay.rules.fixed import BITS, ONE, U16, Row, columns, divided, exp, normalized, of_ratio, proportion, times

__all__ = ["Neurons", "YumaEpoch", "YumaRules", "epoch"]

Matrix = list[Row]


@dataclass(frozen=True, slots=True)
class YumaRules:
    """The subnet's hyperparameters that matter to an epoch, as the chain has them."""

    kappa: int = 32_767
    """Of 65535: the part of the stake that must reach a weight."""
    bonds_penalty: int = 65_535
    """Of 65535: 0: bonds follow the weights as they are set; all: as they are clipped."""
    bonds_moving_average: int = 900_000
    """Millionths that remain of old bonds."""
    yuma3: bool = False
    liquid: bool = False
    alpha_low: int = of_ratio(45_875, U16)
    alpha_high: int = of_ratio(58_982, U16)
    """Least and largest rates, with 32 bits after the point."""
    steepness: int = 1000
    """Of the sigmoid between them, hundredths."""


@dataclass(frozen=True)
class Neurons:
    """The n neurons of a subnet before an epoch."""

    stakes: Sequence[int]
    """Stake that counts as weight, in any unit, [n]."""
    weights: Sequence[Sequence[int]]
    """The weights that each has set, as u16, [n, n]."""
    permits: Sequence[bool]
    """The neurons that may set weights, [n]."""
    bonds: Sequence[Sequence[int]] = ()
    """As the chain keeps them, u16, [n, n]; empty: none."""
    inactive: frozenset[int] = frozenset()
    outdated: frozenset[tuple[int, int]] = frozenset()
    """(i, j): j was registered after i set its weights."""
    recent: frozenset[int] = frozenset()
    """The neurons registered since the last epoch: nobody has bonds with them."""
    owner: int | None = None
    """The owner's neuron."""

    def __post_init__(self) -> None:
        n = len(self.stakes)
        square = [self.weights, *([self.bonds] if self.bonds else [])]
        if not n or any(len(matrix) != n or any(len(row) != n for row in matrix) for matrix in square) or len(self.permits) != n:
            raise BadInput(f"weights, bonds and permits are not those of {n} neurons", hint="give n rows of n numbers")
        if any(not 0 <= value <= U16 for matrix in square for row in matrix for value in row):
            raise BadInput("a weight or a bond is out of range", hint=f"use 0 to {U16}")
        if any(not 0 <= stake < 2**64 for stake in self.stakes):
            raise BadInput("a stake is out of range", hint="use 0 to 2^64 − 1")


@dataclass(frozen=True)
class YumaEpoch:
    """The result of an epoch, with 32 bits after the point; `u16` as the chain stores it."""

    stake: Row
    consensus: Row
    trust: Row
    """Of validators (vtrust): the sum of their clipped weights."""
    incentive: Row
    dividends: Row
    bonds: Matrix
    """As the chain keeps them, u16."""
    clipped: Matrix = field(repr=False, default_factory=list)

    def u16(self, name: str) -> list[int]:
        """One of the rows as parts of 65535."""
        return [proportion(value) for value in getattr(self, name)]


def epoch(neurons: Neurons, rules: YumaRules) -> YumaEpoch:
    """The epoch of a subnet with these neurons."""
    n = len(neurons.stakes)
    whole = sum(neurons.stakes)
    stake = [of_ratio(value, whole) for value in neurons.stakes]
    active = normalized([value if neurons.permits[i] and i not in neurons.inactive else 0 for i, value in enumerate(stake)])
    weights = [normalized(_row(neurons, i)) for i in range(n)]
    consensus = [_median(active, column, of_ratio(rules.kappa, U16)) for column in columns(weights)]
    clipped = [[min(pair) for pair in zip(row, consensus, strict=True)] for row in weights]
    incentive = normalized([sum(map(times, column, active)) for column in columns(clipped)])
    bonds, dividends = (_absolute if rules.yuma3 else _shares)(
        neurons, rules, _toward(weights, clipped, rules), active, consensus, incentive
    )
    return YumaEpoch(
        stake=stake,
        consensus=consensus,
        trust=[sum(row) for row in clipped],
        incentive=incentive,
        dividends=dividends,
        bonds=[[proportion(value) for value in row] for row in bonds],
        clipped=clipped,
    )


def _row(neurons: Neurons, i: int) -> Row:
    """The weights of a neuron that count: not its own, unless it is the owner's, and none about somebody who came later."""
    if not neurons.permits[i]:
        return [0] * len(neurons.stakes)
    return [
        0 if (i == j and i != neurons.owner) or (i, j) in neurons.outdated else weight << BITS
        for j, weight in enumerate(neurons.weights[i])
    ]


def _median(stake: Row, scores: Row, kappa: int) -> int:
    """The weight at which less than κ of the stake is above: the first, ascending, with more than 1 − κ at or below it."""
    holders = [(score, value) for score, value in zip(scores, stake, strict=True) if value > 0]
    if not holders:
        return 0
    parts = normalized([value for _, value in holders])
    minority = sum(parts) - kappa
    below = 0
    ordered = sorted(zip((score for score, _ in holders), parts, strict=True))
    for score, value in ordered:
        below += value
        if minority < below:
            return score
    return ordered[-1][0]


def _toward(weights: Matrix, clipped: Matrix, rules: YumaRules) -> Matrix:
    """The weights that bonds follow: as set, as clipped, or between them."""
    ratio = of_ratio(rules.bonds_penalty, U16)
    return [
        [first + times(ratio, second - first) for first, second in zip(*rows, strict=True)]
        for rows in zip(weights, clipped, strict=True)
    ]


def _old(neurons: Neurons, scale: bool) -> Matrix:
    """Bonds as the chain keeps them, without those with recent neurons; scale: as parts of 1."""
    n = len(neurons.stakes)
    rows = neurons.bonds or [[0] * n] * n
    return [
        [0 if j in neurons.recent else of_ratio(bond, U16) if scale else bond << BITS for j, bond in enumerate(row)]
        for row in rows
    ]


def _by_column(matrix: Matrix) -> Matrix:
    return columns([normalized(column) for column in columns(matrix)])


def _moved(new: Matrix, old: Matrix, rate: int) -> Matrix:
    return [
        [times(rate, after) + times(ONE - rate, before) for after, before in zip(*rows, strict=True)]
        for rows in zip(new, old, strict=True)
    ]


def _rate(rules: YumaRules) -> int:
    return ONE - of_ratio(rules.bonds_moving_average, 1_000_000)


def _shares(
    neurons: Neurons, rules: YumaRules, toward: Matrix, active: Row, consensus: Row, incentive: Row
) -> tuple[Matrix, Row]:
    """Legacy bonds, as shares of each column, scaled so that the largest of a column is 1; and dividends."""
    old = _by_column(_old(neurons, scale=False))
    bought = _by_column([[times(weight, active[i]) for weight in row] for i, row in enumerate(toward)])
    bonds = _by_column(_moved(bought, old, _rate(rules)))
    dividends = normalized([sum(map(times, row, incentive)) for row in bonds])
    tops = [max(column) for column in columns(bonds)]
    return [[divided(value, top) for value, top in zip(row, tops, strict=True)] for row in bonds], dividends


def _absolute(
    neurons: Neurons, rules: YumaRules, toward: Matrix, active: Row, consensus: Row, incentive: Row
) -> tuple[Matrix, Row]:
    """Bonds of Yuma 3, and dividends: a validator's part of each server's bonds, times its stake."""
    old = _old(neurons, scale=True)
    if rules.liquid and any(consensus):
        bonds = [
            [
                min(ONE, times(ONE - rate, bond) + max(0, times(rate, weight)))
                for weight, bond, rate in zip(new, before, _rates(new, before, consensus, rules), strict=True)
            ]
            for new, before in zip(toward, old, strict=True)
        ]
    else:
        bonds = _moved(toward, old, _rate(rules))
    parts = [sum(map(times, row, incentive)) for row in _by_column(bonds)]
    return bonds, normalized(list(map(times, parts, active)))


def _rates(weights: Row, bonds: Row, consensus: Row, rules: YumaRules) -> Row:
    """The rate at which each bond of a validator moves: a sigmoid of how far it buys ahead of the consensus, or sells."""
    rates = []
    for weight, bond, agreed in zip(weights, bonds, consensus, strict=True):
        ahead = weight - agreed if weight >= bond else bond - weight
        ahead = min(ONE, max(0, ahead))
        power = times(of_ratio(rules.steepness, -100), ahead - ONE // 2)
        rate = rules.alpha_low + times(divided(ONE, ONE + exp(power)), rules.alpha_high - rules.alpha_low)
        rates.append(min(rules.alpha_high, max(rules.alpha_low, rate)))
    return rates
