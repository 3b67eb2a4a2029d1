"""Seasons that never were: participants of known skill, tasks, validators that see outcomes with noise. SPEC 2.1, 3.

The seed decides every draw. The draws are binary floats; what follows from them is asked of the kernel, in whole nanos.

    a task      of a difficulty; an agent of some ability passes it with the chance 1 / (1 + exp(SLOPE · (difficulty − ability)));
                a flaky task passes by a coin half of the time
    a validator sees each outcome the other way round now and then, and needs some epochs until it has judged a submission
    a season    in each epoch a participant may hand in a better or worse agent, or leave; then a newcomer takes its place

The skill of a submission is the share of trials that it passes in the long run. Kinds other than tests are simulated in the same
way: their score is the share of so many things that went well.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from assay.errors import BadInput
from assay.exact import NANO
from assay.settle.inputs import Bools, Ints
from assay.settle.score.trials import score_of

__all__ = ["DrawnSeason", "Draws", "World", "season"]

Floats = NDArray[np.float64]
SLOPE = 4.0
"""The sharpness with which a task parts agents: one that is half a unit better than a task is hard passes it 88 times of 100."""
GRID = 64
"""Steps of ability for each unit."""
WIDEST = 4.0
FINE = 13
"""Bits of a draw from a table of quantiles."""
PATIENCE = 6
"""Epochs after which every validator has judged."""
LARGEST_STAKE = 10**15


@dataclass(frozen=True, slots=True)
class World:
    """The world that a season is drawn from."""

    participants: int = 32
    validators: int = 8
    epochs: int = 200
    seed: int = 0
    tasks: int = 80
    trials: int = 1
    """Of each task."""
    stakes: tuple[int, ...] = ()
    """Rao; empty: drawn, so that the largest of many validators holds several times the usual stake."""
    updates: float = 0.1
    """The chance that a participant hands in a new submission in an epoch."""
    churn: float = 0.01
    """The chance that it leaves, and a newcomer takes its place."""
    flaky: float = 0.1
    """The part of the tasks that pass by a coin half of the time."""
    noise: float = 0.01
    """The rate at which a validator sees an outcome the other way round: the mean; a third of the validators twice as often."""
    late: float = 0.3
    """The chance that a validator needs another epoch to judge a submission."""

    def check(self) -> None:
        """Raise BadInput if a number is out of range."""
        for name, most in (("participants", 4096), ("validators", 1024), ("epochs", 100_000), ("tasks", 5_000)):
            if not 1 <= getattr(self, name) <= most:
                raise BadInput(f"{getattr(self, name)} is out of range", field=name, hint=f"use 1 to {most}")
        if self.tasks * self.trials > 5_000:
            raise BadInput(f"{self.tasks} tasks with {self.trials} trials each are too many", hint="use at most 5000 together")
        for name in ("updates", "churn", "flaky", "noise", "late"):
            if not 0 <= getattr(self, name) < 1:
                raise BadInput(f"{getattr(self, name)} is out of range", field=name, hint="use a part of 1, such as 0.1")
        if self.stakes and len(self.stakes) != self.validators:
            raise BadInput(f"there are {len(self.stakes)} stakes for {self.validators} validators", field="stakes")


class Draws:
    """Random numbers that follow from a seed alone: the raw bits of PCG-64, which no version of a library changes."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.PCG64(seed)

    def uniform(self, *shape: int) -> Floats:
        """Floats from 0 up to 1."""
        raw = self._bits.random_raw(int(np.prod(shape)))
        return np.asarray((raw >> np.uint64(11)) / 2**53, np.float64).reshape(shape)

    def whole(self, bits: int, *shape: int) -> Ints:
        """Integers below 2^bits."""
        raw = self._bits.random_raw(int(np.prod(shape)))
        return np.asarray(raw >> np.uint64(64 - bits), np.int64).reshape(shape)

    def normal(self, *shape: int) -> Floats:
        """Normal deviates, by Box and Muller."""
        radius = np.sqrt(-2 * np.log1p(-self.uniform(*shape)))
        return np.asarray(radius * np.cos(2 * np.pi * self.uniform(*shape)))


@dataclass(frozen=True, eq=False)
class DrawnSeason:
    """A drawn season of N places, E epochs and V validators. A submission s is in a place from epoch start to end − 1. S of them.

    A column is what validators have judged of a submission at some time: C of them.
    """

    world: World
    stakes: tuple[int, ...]
    place: Ints
    """[S]."""
    start: Ints
    """[S]."""
    end: Ints
    """[S]."""
    participant: Ints
    """[S]: everybody who ever was there has a number of its own."""
    newcomer: Bools
    """[S]: the first submission of somebody who came during the season."""
    skill: Ints
    """Nanos, [S]."""
    scores: Ints
    """Nanos, [V, S]: what each validator sees."""
    after: Ints
    """[V, S]: epochs from the start until the validator has judged the submission."""

    @cached_property
    def columns(self) -> tuple[Ints, Ints]:
        """The submission of each column, and how many epochs after its start the column begins, [C]."""
        pairs = [
            np.stack([at, np.full(len(at), wait)])
            for wait in range(PATIENCE + 1)
            if len(at := np.flatnonzero((self.after == wait).any(axis=0) & (self.start + wait < self.end)))
        ]
        submission, wait = np.concatenate(pairs, axis=1)
        return submission, wait

    @cached_property
    def counting(self) -> Bools:
        """The validators that have judged each column, [V, C]."""
        submission, wait = self.columns
        return np.asarray(self.after[:, submission] <= wait, np.bool_)

    @cached_property
    def current(self) -> Ints:
        """The column of each place, [E, N]; −1 while nobody has judged what is there."""
        columns = np.full((self.world.epochs, self.world.participants), -1)
        submission, wait = self.columns
        rows = zip(self.place[submission], (self.start[submission] + wait), self.end[submission], strict=True)
        for column, (place, start, end) in enumerate(rows):
            columns[start:end, place] = column
        return columns

    @cached_property
    def there(self) -> Ints:
        """The submission in each place, [E, N]."""
        submissions = np.zeros((self.world.epochs, self.world.participants), np.int64)
        for submission, (place, start, end) in enumerate(zip(self.place, self.start, self.end, strict=True)):
            submissions[start:end, place] = submission
        return submissions


def season(world: World) -> DrawnSeason:
    """A season of this world. Raises BadInput if a number is out of range."""
    world.check()
    draws = Draws(world.seed)
    stakes = world.stakes or tuple(int(LARGEST_STAKE * (1 - chance) ** 2) + 1 for chance in draws.uniform(world.validators))
    coins = draws.uniform(world.epochs, world.participants)
    new, come = coins < world.churn + world.updates, coins < world.churn
    new[0], come[0] = True, True
    place, start = np.nonzero(new.T)
    came = come.T[place, start]
    end = np.where(np.append(place[1:], -1) == place, np.append(start[1:], 0), world.epochs)
    ability = _abilities(draws, came)
    difficulty = draws.normal(world.tasks)
    chances = _chances(difficulty, ability[1], world)
    counts = _counts(draws, chances, ability[0], world)
    trials = world.tasks * world.trials
    nanos = np.array([score_of(count, trials) for count in range(trials + 1)], np.int64)
    return DrawnSeason(
        world=world,
        stakes=stakes,
        place=place,
        start=start,
        end=end,
        participant=np.cumsum(came) - 1,
        newcomer=came & (start > 0),
        skill=np.rint(chances.mean(axis=1) * NANO).astype(np.int64)[ability[0]],
        scores=nanos[counts],
        after=_delays(draws, (world.validators, len(place)), world.late),
    )


def _abilities(draws: Draws, came: Bools) -> tuple[Ints, Floats]:
    """The place of each submission's ability in the grid, [S], and the abilities that occur there, ascending."""
    first, step = draws.normal(len(came)), 0.15 * draws.normal(len(came)) + 0.1
    ability = np.zeros(len(came))
    last = 0.0
    for at, (is_new, value, change) in enumerate(zip(came.tolist(), first.tolist(), step.tolist(), strict=True)):
        last = value if is_new else last + change
        ability[at] = last
    steps = np.rint(np.clip(ability, -WIDEST, WIDEST) * GRID).astype(np.int64)
    known, index = np.unique(steps, return_inverse=True)
    return index, known / GRID


def _chances(difficulty: Floats, abilities: Floats, world: World) -> Floats:
    """The chance that an agent of each ability passes each task, [abilities, tasks]."""
    chance = 1 / (1 + np.exp(SLOPE * (difficulty[None] - abilities[:, None])))
    flaky = np.arange(world.tasks) < round(world.flaky * world.tasks)
    return np.where(flaky, chance / 2 + 0.25, chance)


def _counts(draws: Draws, chances: Floats, ability: Ints, world: World) -> Ints:
    """The number of trials that each validator sees pass, [V, S]: a draw from the exact distribution for ability and noise."""
    counts = np.zeros((world.validators, len(ability)), np.int64)
    points = (np.arange(2**FINE) + 0.5) / 2**FINE
    for kind in range(min(3, world.validators)):
        flips = kind * world.noise
        sums = _distribution(chances * (1 - flips) + (1 - chances) * flips, world.trials)
        table = np.stack([np.searchsorted(row, points) for row in sums])
        rows = np.arange(kind, world.validators, 3)
        counts[rows] = table[ability[None], draws.whole(FINE, len(rows), len(ability))]
    return np.minimum(counts, world.tasks * world.trials)


def _distribution(chances: Floats, trials: int) -> Floats:
    """The chance that at most so many of all trials pass, [abilities, tasks · trials + 1]."""
    whole = np.zeros((len(chances), chances.shape[1] * trials + 1))
    whole[:, 0] = 1
    for task in range(chances.shape[1]):
        chance = chances[:, task, None]
        for _ in range(trials):
            moved = whole[:, :-1] * chance
            whole *= 1 - chance
            whole[:, 1:] += moved
    return np.asarray(np.cumsum(whole, axis=1))


def _delays(draws: Draws, shape: tuple[int, int], late: float) -> Ints:
    drawn = draws.uniform(*shape)
    if not late:
        return np.zeros(shape, np.int64)
    return np.asarray(np.minimum(PATIENCE, np.floor(np.log1p(-drawn) / np.log(late))), np.int64)
