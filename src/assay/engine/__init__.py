"""Engines that run trials, and the shards of an archive, on this machine or on the nodes of a Ray cluster.

`opened` is the entrance for trials. The local engine is no object: a run without one judges with processes of this machine
(`judge.terminal.pool`, or `judge.judge_run` for judges that only ask a service), and needs no Ray. Shards of an archive run in
`archive.workers` or in `engine.ray_shards`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from assay.errors import BadInput, suggest
from assay.judge.stations import ErrandEngine

__all__ = ["ENGINES", "check_name", "opened"]

ENGINES = ("local", "ray")


def check_name(name: str, address: str | None) -> None:
    """Refuse an engine that there is not, and the address of a cluster for one that needs none. Raises BadInput."""
    if name not in ENGINES:
        raise BadInput(f"there is no engine {name[:80]!r}", field="--engine", hint=suggest(name, ENGINES, "use local or ray"))
    if name == "local" and address is not None:
        raise BadInput("is of a Ray cluster", field="--address", hint="add --engine ray, or leave it out")


@contextmanager
def opened(name: str = "local", address: str | None = None, most: int | None = None) -> Iterator[ErrandEngine | None]:
    """The engine of this name, for the block; None is this machine.

    address: of a Ray cluster, as HOST:PORT; None: RAY_ADDRESS, or the one on this machine. most: cells at one time on all nodes
    together; None: as many as they can take. Raises BadInput for an unknown name, without Ray, and where no cluster is.
    """
    check_name(name, address)
    if name == "local":
        yield None
        return
    from assay.engine.ray_engine import RayEngine

    engine = RayEngine(address, most)
    try:
        yield engine
    finally:
        engine.close()
