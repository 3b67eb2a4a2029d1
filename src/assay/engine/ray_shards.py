"""Shards of an archive as Ray tasks: all nodes of a cluster verify or settle an archive, with the results of one machine.

- Each shard is a task of one core, and of its part of the memory of a node.
- At most `AHEAD` times as many are under way as the cluster has cores.
- A shard has no effect but its result. So where a node or worker was lost, Ray itself begins it again elsewhere, `LOST` times.

An archive must be at the same place for all nodes: an object store, or a folder that they share. Nodes remove
the files that they fetched of an object store at the end.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import assay
from assay.archive.workers import DEFAULT_MEMORY, OF_DUCKDB, Lost
from assay.engine.ray_engine import AHEAD, connected
from assay.errors import BadInput
from assay.folder.parquet import confined

__all__ = ["RayWorkers"]

LOST = 3
"""Times that a shard is begun again because its node or worker was lost."""
PATIENCE = 60.0
"""Seconds that nodes have to remove what they fetched."""

Shard = TypeVar("Shard")
Result = TypeVar("Result")


@dataclass(frozen=True)
class RayWorkers:
    """An `archive.ShardEngine` on a Ray cluster."""

    address: str | None = None
    """None: RAY_ADDRESS, or the cluster on this machine."""
    workers: int = 0
    """The most shards at one time on all nodes together; 0: as many as there are cores."""
    memory: int = DEFAULT_MEMORY
    """Bytes that all workers of a node may use together."""

    def map(self, function: Callable[[Shard], Result], shards: Sequence[Shard]) -> Iterator[tuple[Shard, Result | Lost]]:
        """See `ShardEngine`. Raises BadInput where Ray is not installed or no cluster is, and Unreachable."""
        ray = connected(self.address)
        try:
            yield from self._mapped(ray, function, shards)
        finally:
            _forget(ray, shards)
            ray.shutdown()

    def _mapped(
        self, ray: Any, function: Callable[[Shard], Result], shards: Sequence[Shard]
    ) -> Iterator[tuple[Shard, Result | Lost]]:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
        if not nodes:
            raise BadInput("no node of the Ray cluster has a core for it", field="--engine", hint="start one: ray start …")
        cores = sum(int(node["CPU"]) for node in nodes)
        share = min(self.memory // int(max(node["CPU"] for node in nodes)), *(int(node.get("memory", 0)) for node in nodes))
        task = ray.remote(num_cpus=1, memory=share, max_retries=LOST, retry_exceptions=False)(_carried_out)
        waiting, running, most = iter(shards), dict[Any, Shard](), self.workers or AHEAD * cores
        while True:
            for shard in islice(waiting, most - len(running)):
                running[task.remote(assay.__version__, os.getcwd(), share // OF_DUCKDB, function, shard)] = shard
            if not running:
                return
            for ref in ray.wait(list(running), num_returns=1)[0]:
                yield running.pop(ref), _result(ray, ref)


def _result(ray: Any, ref: Any) -> Any:
    try:
        return ray.get(ref)
    except ray.exceptions.RayTaskError as error:
        raise (error.cause or error) from None
    except ray.exceptions.RayError as error:
        return Lost(f"its node or worker was lost {LOST + 1} times, at last: {type(error).__name__}")


def _carried_out(version: str, folder: str, memory: int, function: Callable[[Shard], Result], shard: Shard) -> Result:
    """On a node. folder: that of the driver, which paths may be relative to. memory: bytes, for DuckDB. Raises BadInput."""
    if version != assay.__version__:
        what = f"a node has Assay {assay.__version__}, and this is {version}"
        raise BadInput(what, field="--engine", hint="install the same on all nodes")
    with suppress(OSError):  # an object store needs none
        os.chdir(folder)
    confined(memory, 1)
    return function(shard)


def _forget(ray: Any, shards: Sequence[Any]) -> None:
    """Have each node remove what it fetched for shards."""
    caches = sorted({cache for shard in shards if (cache := getattr(shard, "cache", None)) is not None})
    affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    task = ray.remote(num_cpus=0, max_retries=0)(_removed)
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]] if caches else []
    refs = [task.options(scheduling_strategy=affinity(node, soft=False)).remote(caches) for node in nodes]
    if refs:
        ray.wait(refs, num_returns=len(refs), timeout=PATIENCE)


def _removed(folders: Sequence[str]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
