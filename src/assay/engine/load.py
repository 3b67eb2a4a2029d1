"""The load of an errand on a node, learned from those before it: so nodes are busy, and nobody has to set a number.

Ray places tasks by what they ask for. A trial that asked for all the cores that its task allows would leave a node idle while its
agent waits for a model; one that asked for none would crowd it. So an errand asks for the cores that its like have used:

- At first it asks for what the task allows.
- Then it asks for the running mean of what errands of the same task used, at least `LEAST`, at most what the task allows.
- While a node that is full is less than `BUSY` busy, everything asks it for a little less, down to a quarter; above `CROWDED` for
  a little more. So unmeasured work, such as copying files, is made up for; and a node that other programs use gets less.

Memory is never shared out so: an errand asks for its whole limit, and a node gives it away once.
"""

from __future__ import annotations

import math
from collections import OrderedDict

from assay.judge.stations import Needs

__all__ = ["ErrandLoad"]

LEAST = 0.05
"""Cores that anything asks for."""
BUSY, CROWDED = 0.92, 0.98
"""Shares of a node's time in which its cores are not idle."""
_STEP, _LEAST_FACTOR = 0.05, 0.25
_STEPS = 16
"""Parts of a core: Ray gives a task a worker that is there if the one before asked for the same."""
_FRESH = 0.3
"""The weight of one more measurement in the running mean."""
_KEYS = 10_000
"""Tasks that are remembered."""


class ErrandLoad:
    """The cores that errands use, by task. It does no I/O and reads no clock."""

    def __init__(self) -> None:
        self._used: OrderedDict[str, float] = OrderedDict()
        self._factors: dict[str, float] = {}
        """By node: what everything asks it for is multiplied by it."""

    def cpus(self, key: str, needs: Needs, node: str = "") -> float:
        """Cores that an errand asks a node for. key: errands with the same one use about the same."""
        used = self._used.get(key)
        if used is None:
            return max(LEAST, needs.cpus)
        asked = math.ceil(max(LEAST, min(needs.cpus, used) * self._factors.get(node, 1.0)) * _STEPS) / _STEPS
        return min(max(LEAST, needs.cpus), asked)

    def saw(self, key: str, cores: float, busy: float | None = None, node: str = "") -> None:
        """Note what an errand used on average. busy: how busy its node was meanwhile, if the node was full of ours."""
        before = self._used.pop(key, None)
        self._used[key] = cores if before is None else before + _FRESH * (cores - before)
        if len(self._used) > _KEYS:
            self._used.popitem(last=False)
        factor = self._factors.get(node, 1.0)
        if busy is not None and busy < BUSY:
            self._factors[node] = max(_LEAST_FACTOR, factor * (1 - _STEP))
        elif busy is not None and busy > CROWDED:
            self._factors[node] = min(1.0, factor * (1 + _STEP))
