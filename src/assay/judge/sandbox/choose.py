"""A sandbox by its name."""

from __future__ import annotations

from pathlib import Path

from assay.errors import BadInput, check_linux
from assay.judge.sandbox.box import Sandbox

__all__ = ["NAMES", "choose"]

NAMES = ("bubblewrap", "containers")


def choose(
    name: str = "bubblewrap",
    *,
    folder: Path | None = None,
    engine: str | None = None,
    runtime: str | None = None,
    reuse: bool = False,
) -> Sandbox:
    """The sandbox called so. Raises BadInput for another name and for what it has not got, and Trouble.

    folder: where bubblewrap keeps its boxes. engine, runtime: the containers' socket, as unix:///…, and their runtime.
    reuse: let bubblewrap use a box's folder again.
    """
    check_linux("a sandbox")
    if name == "bubblewrap":
        for option, value in (("engine", engine), ("runtime", runtime)):
            if value:
                raise BadInput("bubblewrap has none", field=f"--{option}", hint="say --sandbox containers with it")
        from assay.judge.sandbox.bubblewrap import Bubblewrap

        return Bubblewrap(folder=folder, reuse=reuse)
    if name == "containers":
        if reuse:
            raise BadInput("every container is new", field="--reuse-boxes", hint="leave it out")
        from assay.judge.sandbox.containers import Containers

        return Containers(engine, runtime=runtime)
    raise BadInput(f"there is no sandbox {name!r}", hint=f"choose one of {', '.join(NAMES)}")
