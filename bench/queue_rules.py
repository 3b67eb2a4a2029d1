"""Two rules of the engine, stated again for the simulated queue: what a trial asks for, and who has the next turn at a service.

The engine's own are `assay.engine.load.Load` and `assay.engine.ray_node.Bucket`; tests/docs/test_docs_scale.py compares them.
"""

from __future__ import annotations

import heapq
import math

__all__ = ["STEPS", "Share", "turns"]

STEPS = 16
"""Parts of a core."""
_FRESH, _STEP, _LEAST, _LEAST_FACTOR, _CROWDED = 0.3, 0.05, 0.05, 0.25, 0.98


class Share:
    """Sixteenths of a core that a trial asks for, by its task: the rule of `assay.engine.load.Load`, stated again."""

    def __init__(self, tasks: int, allowed: float, busy: float) -> None:
        self._used: list[float | None] = [None] * tasks
        self._allowed, self._busy, self.factor = allowed, busy, 1.0

    def asks(self, task: int) -> int:
        """Sixteenths of a core."""
        used = self._used[task]
        if used is None:
            return math.ceil(self._allowed * STEPS)
        return min(math.ceil(self._allowed * STEPS), math.ceil(max(_LEAST, min(self._allowed, used) * self.factor) * STEPS))

    def saw(self, task: int, cores: float, busy: float | None) -> None:
        """Note what a trial used; busy: its node, if there was more to do than all nodes could take."""
        before = self._used[task]
        self._used[task] = cores if before is None else before + _FRESH * (cores - before)
        if busy is not None and busy < self._busy:
            self.factor = max(_LEAST_FACTOR, self.factor * (1 - _STEP))
        elif busy is not None and busy > _CROWDED:
            self.factor = min(1.0, self.factor * (1 + _STEP))


def turns(waiting: int, rate: float) -> float:
    """How often the bucket is asked for each turn that it gives, if so many stations wait: the rule of `ray_node.Bucket`.

    rate: requests a second. Whoever waits is told the seconds to the next token, and asks again then, like everybody else.
    """
    most = max(1.0, rate)
    tokens, at, asked = most, 0.0, 0
    asking = [(0.0, number) for number in range(waiting)]
    while asking:
        now, number = heapq.heappop(asking)
        tokens, at, asked = min(most, tokens + (now - at) * rate), now, asked + 1
        if tokens < 1 - 1e-9:
            heapq.heappush(asking, (now + (1 - tokens) / rate, number))
        else:
            tokens -= 1
    return asked / waiting
