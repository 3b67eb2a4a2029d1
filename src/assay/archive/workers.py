"""Workers for an archive: a function is mapped over shards, and results come in the order in which they are ready.

`ShardEngine` is all that the rest of this room asks for, so another engine needs one method. A function and its shards can be
pickled. `LocalWorkers` are processes on this machine, each with its part of the memory.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import islice
from multiprocessing.context import ForkServerContext
from typing import Protocol, TypeVar

from assay.folder.parquet import confined

__all__ = ["DEFAULT_MEMORY", "LocalWorkers", "Lost", "ShardEngine"]

Shard = TypeVar("Shard")
Result = TypeVar("Result")
DEFAULT_MEMORY = 4 * 2**30
"""Bytes that all workers of this machine may use together."""
PRELOADED = ("assay.kinds", "duckdb", "pyarrow.parquet", "pyarrow.json", "pyarrow.compute")
"""Slow to import. Nothing of them runs before a worker is forked."""
IN_FLIGHT = 2
"""Shards that are handed out at once for each of several workers, so that none waits; one worker gets one."""
OF_DUCKDB = 3
"""DuckDB gets one part of so many of a worker's memory; the rest is Python's, Arrow's, and what DuckDB does not count."""


@dataclass(frozen=True)
class Lost:
    """The result of a shard whose worker ended before it had one, such as for want of memory."""

    why: str


class ShardEngine(Protocol):
    """Runs a function over shards."""

    def map(self, function: Callable[[Shard], Result], shards: Sequence[Shard]) -> Iterator[tuple[Shard, Result | Lost]]:
        """Each shard with its result, as they become ready. An exception of the function ends the map, and is raised."""
        ...


@dataclass(frozen=True)
class LocalWorkers:
    """Worker processes on this machine. One worker, or one shard, is this process itself: nothing is started."""

    workers: int = 0
    """0: as many as there are processors."""
    memory: int = DEFAULT_MEMORY

    @property
    def count(self) -> int:
        """The number of workers."""
        return self.workers or len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1))

    def map(self, function: Callable[[Shard], Result], shards: Sequence[Shard]) -> Iterator[tuple[Shard, Result | Lost]]:
        """See ShardEngine."""
        if min(self.count, len(shards)) <= 1:
            confined(self.memory // OF_DUCKDB, 0)
            for shard in shards:
                yield shard, function(shard)
            return
        unfinished: list[Shard] = []
        yield from self._mapped(function, iter(shards), min(self.count, len(shards)), unfinished)
        while unfinished:  # a worker died, and with it the pool: which shard killed it, shows when one runs after the other
            remaining: list[Shard] = []
            yield from self._mapped(function, iter(unfinished), 1, remaining)
            if remaining:
                yield remaining[0], Lost("its worker ended: perhaps the memory was not enough")
            unfinished = remaining[1:]

    def _mapped(
        self, function: Callable[[Shard], Result], shards: Iterator[Shard], workers: int, unfinished: list[Shard]
    ) -> Iterator[tuple[Shard, Result]]:
        """Results of a pool of workers; the shards that have none because a worker died are added to `unfinished`."""
        share = self.memory // workers // OF_DUCKDB
        method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
        context = multiprocessing.get_context(method)
        if isinstance(context, ForkServerContext):
            context.set_forkserver_preload([function.__module__, *PRELOADED])  # imported once, for all workers
        threads = max(1, self.count // workers)
        pool = ProcessPoolExecutor(workers, context, initializer=confined, initargs=(share, threads))
        running: dict[Future[Result], Shard] = {}
        try:
            while True:
                for shard in islice(shards, (1 if workers == 1 else workers * IN_FLIGHT) - len(running)):
                    running[pool.submit(function, shard)] = shard
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    result = future.result()
                    yield running.pop(future), result
        except BrokenProcessPool:
            unfinished.extend([*running.values(), *shards])
        finally:
            pool.shutdown(cancel_futures=True)
