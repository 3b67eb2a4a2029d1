"""A simulation of the queue of trials on a cluster that loses nodes and drivers: `python -m bench.queue`.

    python -m bench.queue                               a million trials on a thousand nodes; the table of docs/scale.md
    python -m bench.queue --trials 20000 --nodes 20     smaller
    python -m bench.queue --set nodes.mean_hours_to_loss=6

Nothing is judged: a trial is an event on a heap, so a day of a cluster takes seconds. The same seed gives the same table. The
numbers come from bench/scale.toml, where each says where it was measured or that it is assumed. The rules are the engine's:

- The driver is one process. A cell costs it one durable insert to claim, one to keep its record, one to give the lease up.
- At most `ahead` times as many trials are sent as the nodes carry out at one time. The cells after them are not made yet.
- A trial asks for its memory, and for the cores that the engine's own `ErrandLoad` says.
- A trial whose node is lost goes elsewhere, at most `lost` times. An error is tried again after 2 and 8 s; then it is missing.
- A driver that dies takes its trials with it. The next one finds its leases standing, and looks every `held` seconds at which of
  them are over; only then it claims again.
- A driver that freezes is replaced too, but its nodes go on. When it wakes, it keeps only what it still has the lease of.
- The ledger accepts the first record of a cell, and no other.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import time
from array import array
from bisect import bisect
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from assay.engine.load import ErrandLoad
from assay.judge.stations import Needs
from bench.scale import Figures, add_options, asks_per_turn, chosen

__all__ = ["Simulation", "Tally", "simulate"]

STEPS = 16
"""Parts of a core."""
_AT_ONCE = 16  # cells that a driver sends before it looks at what it heard
_SELDOM = 64  # turns of a driver between two looks at how much the nodes take
_LOOKS = 4  # at nodes, before a trial waits
LOSSES = (("nothing is lost", 0.0), ("as assumed", 1.0), ("nodes 4 times as often", 4.0), ("nodes 20 times as often", 20.0))


@dataclass
class Tally:
    """The result of a simulation. Seconds are simulated."""

    makespan: float = 0.0
    ideal: float = 0.0
    nearly: float = 0.0
    """The time when 99 of 100 cells were settled."""
    counted: int = 0
    counted_twice: int = 0
    missing: int = 0
    judged_again: int = 0
    """Trials that came to an end more than once: work that was wasted."""
    refused: int = 0
    """Records that the ledger refused: the cell had one."""
    retried: int = 0
    lost: int = 0
    """Trials that were under way when their node or driver was lost."""
    looks: int = 0
    """Claims of cells whose lease another driver has."""
    longest: dict[int, int] = field(default_factory=dict)
    """Cells that the driver remembers at most, by tenths of the run."""
    bound: int = 0
    busy: float = 0.0
    """Share of the nodes' cores."""
    driver_busy: float = 0.0


@dataclass(eq=False)
class _Driver:
    """A driver's process. `until`: the simulated second up to which it is at work."""

    number: int
    cells: Iterator[int]
    load: ErrandLoad
    until: float = 0.0
    renewed: float = 0.0
    alive: bool = True
    frozen: bool = False
    due: bool = False
    going: int = 0
    turns: int = 0
    bound: int = 0
    worked: float = 0.0
    ready: deque[int] = field(default_factory=deque)
    later: list[tuple[float, int]] = field(default_factory=list)
    inbox: deque[tuple[int, bool]] = field(default_factory=deque)
    """Cell, and whether it was an error."""
    waiting: deque[_Trial] = field(default_factory=deque)
    """Sent, but no node had room yet."""


@dataclass(eq=False)
class _Trial:
    cell: int
    task: int
    driver: _Driver
    asks: int = 0
    node: int = -1
    lost: int = 0
    over: float = 0.0
    """The time when it ends, where it is now."""


class Simulation:
    """One run over `trials` cells on `nodes` nodes. losses: how often nodes are lost, beside what is assumed; 0: never."""

    def __init__(self, figures: Figures, trials: int, nodes: int, seed: int = 1, losses: float = 1.0) -> None:
        value = figures.value
        self._random, self._trials, self._nodes = random.Random(seed), trials, nodes
        self._cores, self._ask_memory = value("nodes.cores"), value("trials.memory_gib")
        self._room_memory = int(value("nodes.memory_gib") // self._ask_memory)
        self._insert = value("measured.insert_ms") / 1e3
        self._over = (value("measured.trial_cpu_ms") + value("measured.ray_overhead_ms")) / 1e3
        self._ahead, self._most_lost, self._lease = int(value("engine.ahead")), int(value("engine.lost")), value("engine.lease")
        self._held, self._attempts, self._delay = value("engine.held"), int(value("engine.attempts")), value("engine.delay")
        self._fresh_first = bool(value("engine.fresh_first"))
        self._errors, self._needs = value("trials.error_share"), Needs(value("trials.cpus"))
        self._mtbf = value("nodes.mean_hours_to_loss") * 3600 / losses if losses else math.inf
        self._back, self._noticed = value("nodes.back_seconds"), value("nodes.noticed_seconds")
        self._driver_back, self._freeze = value("nodes.driver_back_seconds"), value("nodes.frozen_seconds")
        self._seconds = self._durations(figures.points("trials.quantiles"))
        self._tasks, mean = int(value("nodes.tasks")), value("trials.cores")
        self._names = [f"task-{number}" for number in range(self._tasks)]
        self._used = [mean * (0.5 + self._random.random()) for _ in range(self._tasks)]
        self._events: list[tuple[float, int, int, object]] = []
        self._numbers = count()
        self._now, self._gate, self._gap = 0.0, 0.0, 60 / value("nodes.model_rate")
        self._free = [int(self._cores * STEPS)] * nodes
        self._slots = [self._room_memory] * nodes
        self._on: list[dict[_Trial, None]] = [{} for _ in range(nodes)]  # in the order of their begin: a seed gives one course
        self._up = [True] * nodes
        self._load = [0.0] * nodes
        self._open = deque(range(nodes))
        self._ledger, self._ends = bytearray(trials), bytearray(trials)
        self._holder, self._tries = [0] * trials, dict[int, int]()
        self._drivers: list[_Driver] = [_Driver(0, iter(()), ErrandLoad(), alive=False)]
        self._missing = set[int]()
        self._settled, self._used_seconds = 0, 0.0
        self._troubles = [(1, False)] * int(value("nodes.drivers_lost")) + [(1, True)] * int(value("nodes.drivers_frozen"))
        if not losses:
            self._troubles = []
        self.tally = Tally()

    def run(self) -> Tally:
        """Carry it out to the end."""
        for node in range(self._nodes) if self._mtbf < math.inf else ():
            self._at(self._random.expovariate(1 / self._mtbf), _LOSS, node)
        steps = len(self._troubles) + 1
        marks = [self._trials * (number + 1) // steps for number in range(len(self._troubles))]
        self._new_driver()
        while self._settled < self._trials:
            self._now, _, kind, what = heapq.heappop(self._events)
            _HANDLERS[kind](self, what)
            if not self.tally.nearly and self._settled * 100 >= self._trials * 99:
                self.tally.nearly = self._now
            if marks and self._settled >= marks[0]:
                marks.pop(0)
                self._trouble(self._troubles.pop()[1])
        tally = self.tally
        tally.makespan = self._now
        tally.ideal = self._ideal()
        tally.counted, tally.counted_twice = sum(map(bool, self._ledger)), sum(number > 1 for number in self._ledger)
        tally.judged_again = sum(number > 1 for number in self._ends)
        tally.busy = self._used_seconds / (self._now * self._nodes * self._cores)
        tally.driver_busy = sum(driver.worked for driver in self._drivers) / self._now
        return tally

    # Events

    def _at(self, when: float, kind: int, what: object) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), kind, what))

    def _new_driver(self, _what: object = None) -> None:
        ledger, missing = self._ledger, self._missing
        cells = (cell for cell in range(self._trials) if not ledger[cell] and cell not in missing)
        driver = _Driver(len(self._drivers), cells, ErrandLoad(), self._now, self._now)
        self._drivers.append(driver)
        self._wake(driver, self._now)

    def _trouble(self, freezes: bool) -> None:
        """The driver of now dies or freezes; another one begins on another machine soon."""
        driver = self._drivers[-1]
        if freezes:
            driver.frozen = True
            self._at(self._now + self._freeze, _THAW, driver)
        else:
            self._end(driver)
        self._at(self._now + self._driver_back, _BEGIN, None)

    def _end(self, driver: _Driver) -> None:
        """A driver is gone, and its stations with it."""
        driver.alive = False
        for store in (driver.inbox, driver.waiting, driver.ready, driver.later):
            store.clear()
        for node in range(self._nodes):
            for trial in [trial for trial in self._on[node] if trial.driver is driver]:
                self._leave(trial)
                self.tally.lost += 1
            self._fill(node)

    def _thaw(self, driver: _Driver) -> None:
        """It keeps what it has the lease of, throws the rest away, and ends: another one works."""
        driver.frozen = False
        for cell, error in driver.inbox:
            if self._holder[cell] == driver.number and not error:
                self._keep(cell)
        self._end(driver)

    def _loss(self, node: int) -> None:
        self._up[node] = False
        for trial in list(self._on[node]):
            self._leave(trial)
            self.tally.lost += 1
            self._at(self._now + self._noticed, _LOST, trial)
        self._at(self._now + self._back, _RETURN, node)

    def _return(self, node: int) -> None:
        self._up[node] = True
        self._at(self._now + self._random.expovariate(1 / self._mtbf), _LOSS, node)
        self._fill(node)

    def _lost(self, trial: _Trial) -> None:
        driver = trial.driver
        trial.lost += 1
        if not driver.alive:
            return
        if trial.lost > self._most_lost:
            driver.inbox.append((trial.cell, True))
            self._wake(driver, self._now)
        else:
            self._place(trial)

    def _over_at(self, trial: _Trial) -> None:
        if trial.node < 0 or trial.over != self._now:  # its node or driver was lost meanwhile
            return
        node, driver = trial.node, trial.driver
        self._ended(trial)
        self._leave(trial)
        self._fill(node)
        error = self._random.random() < self._errors
        if not error:
            self._ends[trial.cell] = min(255, self._ends[trial.cell] + 1)
        driver.inbox.append((trial.cell, error))
        self._wake(driver, self._now)

    # Nodes

    def _place(self, trial: _Trial) -> None:
        """Begin it on a node with room, or let it wait for one."""
        trial.asks = self._asks(trial.driver, trial.task)
        for _ in range(min(_LOOKS, len(self._open))):
            node = self._open[0]
            self._open.rotate(-1)
            if self._up[node] and self._slots[node] and self._free[node] >= trial.asks:
                self._begin(trial, node)
                return
        trial.driver.waiting.append(trial)
        if len(trial.driver.waiting) == 1:  # nobody waited, so there may be room
            for node in range(self._nodes):
                self._fill(node)

    def _asks(self, driver: _Driver, task: int) -> int:
        """Parts of a core that a trial of a task asks for."""
        return round(driver.load.cpus(self._names[task], self._needs) * STEPS)

    def _fill(self, node: int) -> None:
        """Begin on this node what waits and fits."""
        if not self._up[node]:
            return
        for driver in self._drivers:
            while driver.waiting and self._slots[node] and self._free[node] >= driver.waiting[0].asks:
                self._begin(driver.waiting.popleft(), node)

    def _begin(self, trial: _Trial, node: int) -> None:
        trial.node = node
        self._free[node] -= trial.asks
        self._slots[node] -= 1
        self._on[node][trial] = None
        self._load[node] += self._used[trial.task]
        self._gate = max(self._gate, self._now) + self._gap  # one bucket for all nodes, in the order of asking
        seconds = self._seconds[trial.cell]
        trial.over = self._gate - self._gap + self._over + seconds
        self._at(trial.over, _OVER, trial)

    def _leave(self, trial: _Trial) -> None:
        node, trial.node = trial.node, -1
        self._on[node].pop(trial, None)
        self._free[node] += trial.asks
        self._slots[node] += 1
        self._load[node] -= self._used[trial.task]

    def _ended(self, trial: _Trial) -> None:
        used, driver = self._used[trial.task], trial.driver
        self._used_seconds += used * self._seconds[trial.cell]
        full = bool(driver.waiting)
        driver.load.saw(self._names[trial.task], used, min(1.0, self._load[trial.node] / self._cores) if full else None)

    def _durations(self, points: list[tuple[float, float]]) -> array[float]:
        """The seconds that the agent of each cell takes: the same in each attempt."""
        durations = array("d", bytes(8 * self._trials))
        for cell in range(self._trials):
            share = ((cell * 2654435761) % (1 << 32)) / (1 << 32)
            number = max(1, bisect(points, (share, math.inf)))
            (low, short), (high, long) = points[number - 1], points[number]
            durations[cell] = short + (long - short) * (share - low) / (high - low)
        return durations

    def _ideal(self) -> float:
        """Seconds that the work alone takes if every core, or every byte, is always used."""
        work = memory = longest = 0.0
        for cell, seconds in enumerate(self._seconds):
            work += seconds * self._used[cell % self._tasks]
            memory += seconds
            longest = max(longest, seconds)
        return max(work / (self._nodes * self._cores), memory / (self._nodes * self._room_memory), longest)

    # Drivers

    def _wake(self, driver: _Driver, when: float) -> None:
        if driver.alive and not driver.due and not driver.frozen:
            driver.due = True
            self._at(max(when, driver.until), _TURN, driver)

    def _turn(self, driver: _Driver) -> None:
        """A driver hears one trial, and sends some."""
        driver.due = False
        if not driver.alive or driver.frozen:
            return
        driver.renewed, inserts = self._now, 0
        if driver.inbox:
            inserts += self._heard(driver, *driver.inbox.popleft())
        if not driver.turns % _SELDOM:
            driver.bound = self._ahead * max(self._nodes, self._room(driver))
            self.tally.bound = max(self.tally.bound, driver.bound)
        driver.turns, bound = driver.turns + 1, driver.bound
        for _ in range(_AT_ONCE):
            if driver.going >= bound or (cell := self._next(driver)) is None:
                break
            inserts += 1
            self._claim(driver, cell)
        self._remember(driver)
        driver.worked += inserts * self._insert
        driver.until = self._now + inserts * self._insert
        if driver.inbox or inserts:
            self._wake(driver, driver.until)
        elif driver.later and driver.going < bound:
            self._wake(driver, max(driver.later[0][0], self._now + 1e-3))

    def _room(self, driver: _Driver) -> int:
        """Trials that all nodes take at one time, if all ask for what a middle one asks for."""
        asks = self._asks(driver, self._settled % self._tasks)
        return self._nodes * min(self._room_memory, int(self._cores * STEPS) // asks)

    def _next(self, driver: _Driver) -> int | None:
        while driver.later and driver.later[0][0] <= self._now:
            due = heapq.heappop(driver.later)[1]
            if self._is_held(driver, due):
                heapq.heappush(driver.later, (self._now + self._held, due))
            else:
                driver.ready.append(due)
        if driver.ready and not self._fresh_first:
            return driver.ready.popleft()
        cell = next(driver.cells, None)
        if cell is None and driver.ready:
            return driver.ready.popleft()
        return cell

    def _claim(self, driver: _Driver, cell: int) -> None:
        """Take a cell, unless it is done or another driver that lives has it."""
        if self._ledger[cell]:
            return
        if self._is_held(driver, cell):
            self.tally.looks += 1
            heapq.heappush(driver.later, (self._now + self._held, cell))
            return
        self._holder[cell] = driver.number
        driver.going += 1
        self._place(_Trial(cell, cell % self._tasks, driver))

    def _is_held(self, driver: _Driver, cell: int) -> bool:
        """Whether another driver has the lease of a cell, and was not silent for too long."""
        holder = self._drivers[self._holder[cell]]
        return bool(holder.number) and holder is not driver and self._now < holder.renewed + self._lease

    def _heard(self, driver: _Driver, cell: int, error: bool) -> int:
        """Take the result of a cell; returns how many durable inserts that took."""
        driver.going -= 1
        if self._holder[cell] != driver.number:
            heapq.heappush(driver.later, (self._now + self._held, cell))
            return 0
        if not error:
            self._keep(cell)
            return 2
        tries = self._tries[cell] = self._tries.get(cell, 1) + 1
        if tries <= self._attempts:
            self.tally.retried += 1
            heapq.heappush(driver.later, (self._now + self._delay * 4 ** (tries - 2), cell))
            return 0
        self._missing.add(cell)
        self.tally.missing += 1
        self._settled += 1
        return 1

    def _keep(self, cell: int) -> None:
        """The ledger takes the first record of a cell."""
        if self._ledger[cell]:
            self.tally.refused += 1
            return
        self._ledger[cell] += 1
        self._settled += 1

    def _remember(self, driver: _Driver) -> None:
        tenth = min(9, self._settled * 10 // self._trials)
        there = driver.going + len(driver.ready) + len(driver.later)
        self.tally.longest[tenth] = max(there, self.tally.longest.get(tenth, 0))


_OVER, _TURN, _LOSS, _RETURN, _LOST, _BEGIN, _THAW = range(7)
_HANDLERS: tuple[Callable[[Simulation, Any], None], ...] = (
    Simulation._over_at,
    Simulation._turn,
    Simulation._loss,
    Simulation._return,
    Simulation._lost,
    Simulation._new_driver,
    Simulation._thaw,
)


def simulate(figures: Figures, trials: int, nodes: int, seed: int = 1, losses: float = 1.0) -> Tally:
    """One run; see `Simulation`."""
    return Simulation(figures, trials, nodes, seed, losses).run()


def table(tally: Tally, trials: int, nodes: int) -> list[str]:
    """The lines that are printed of one run."""
    tenths = [tally.longest.get(tenth, 0) for tenth in (0, 4, 8)]
    return [
        f"{trials:,} trials on {nodes:,} nodes, of which some are lost, and so are drivers",
        f"  hours                                             {tally.makespan / 3600:10.2f}",
        f"  hours until 99 of 100 are settled                 {tally.nearly / 3600:10.2f}",
        f"  ideal: the work alone, on cores always busy       {tally.ideal / 3600:10.2f}",
        f"  beside the ideal                                  {tally.makespan / tally.ideal:10.2f}",
        f"  the nodes' cores, busy                            {tally.busy:10.0%}",
        f"  the drivers, busy                                 {tally.driver_busy:10.0%}",
        f"  trials counted                                    {tally.counted:10,}",
        f"  left missing, after all attempts                  {tally.missing:10,}",
        f"  counted twice                                     {tally.counted_twice:10,}",
        f"  judged to an end more than once                   {tally.judged_again:10,}",
        f"  cut off when a node or driver was lost            {tally.lost:10,}",
        f"  errors tried again                                {tally.retried:10,}",
        f"  claims of cells that another driver has           {tally.looks:10,}",
        f"  bound of what is under way                        {tally.bound:10,}",
        "  cells in the driver's memory, at most, in tenths 1, 5, 9" + "".join(f"{tenth:10,}" for tenth in tenths),
    ]


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1_000_000)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    add_options(parser)
    options = parser.parse_args(words)
    figures = chosen(options)
    began = time.process_time()
    print("\n".join(table(simulate(figures, options.trials, options.nodes, options.seed), options.trials, options.nodes)))
    trials, nodes = max(1, options.trials // 10), max(1, options.nodes // 10)
    print(f"\nlosses, {trials:,} trials on {nodes:,} nodes         hours   beside none   cut off   judged again   counted twice")
    none = 0.0
    for name, losses in LOSSES:
        tally = simulate(figures, trials, nodes, options.seed, losses)
        none = none or tally.makespan
        row = f"{tally.makespan / 3600:8.2f}{tally.makespan / none:14.2f}{tally.lost:10,}{tally.judged_again:15,}"
        print(f"{name:44}{row}{tally.counted_twice:16,}")
    rate = int(figures.value("nodes.model_rate"))
    asked = "   ".join(f"{waiting:,}: {asks_per_turn(waiting, rate):,.1f}" for waiting in (100, 400, 800))
    print(f"\nthe bucket at {rate:,} requests a minute, asked for each turn that it gives, if so many wait: {asked}")
    if options.cpu:
        print(f"{time.process_time() - began:.1f} s of the processor")


if __name__ == "__main__":
    main()
