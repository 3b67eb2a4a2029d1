"""`python -m tests.subtensor`: a simulated node in a process of its own."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from threading import Event
from typing import Annotated

import typer

from .simulator import Simulator, files

AGE = 60
"""Seconds: as old as its first five blocks are by its own clock."""
app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def main(
    metadata: Annotated[
        list[Path] | None, typer.Option(help="What Metadata_metadata_at_version answered; may be repeated.")
    ] = None,
    port: Annotated[int, typer.Option(help="The port on 127.0.0.1; 0 takes a free one.")] = 0,
    netuid: Annotated[int, typer.Option(help="The subnet to begin with.")] = 1,
    hotkey: Annotated[list[str] | None, typer.Option(help="A hotkey of it, as a URI or an address; may be repeated.")] = None,
    setting: Annotated[list[str] | None, typer.Option(help="A setting of the subnet, such as Tempo=10; may be repeated.")] = None,
    block_time: Annotated[float, typer.Option(help="Seconds between blocks; 0 makes none by itself.")] = 12.0,
    fast: Annotated[bool, typer.Option(help="Make a block as soon as an extrinsic waits.")] = False,
    finality: Annotated[int, typer.Option(help="How many blocks the final one is behind the head.")] = 2,
    plain: Annotated[bool, typer.Option(help="The runtime as its metadata has it, without what is newer.")] = False,
    control: Annotated[bool, typer.Option(help="Allow the methods simulator_* on the same socket.")] = False,
) -> None:
    """Run a simulated subtensor node until it is interrupted; the first line it prints is its URL.

    Its clock begins now, and goes on by 12 seconds a block. So commitments, which go by the clock, want blocks each 12 seconds.

    Example: python -m tests.subtensor --hotkey //Alice --hotkey //Bob --setting CommitRevealWeightsEnabled=false --block-time 1
    """
    try:
        paths = tuple(metadata) if metadata else files()
        settings = {name: json.loads(value) for name, _, value in (text.partition("=") for text in setting or ())}
        simulator = Simulator.with_subnet(
            netuid, *(hotkey or ()), settings=settings, paths=paths, extended=not plain, finality=finality, fast=fast,
            block_time=block_time or None, control=control, port=port, began=int(time.time() - AGE) * 1000,
        )  # fmt: skip
    except (OSError, ValueError, KeyError) as e:
        print(f"error: {e}", file=sys.stderr)
        raise typer.Exit(2) from None
    stopped = Event()
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, lambda *_: stopped.set())
    with simulator:
        print(simulator.url, flush=True)
        stopped.wait()


if __name__ == "__main__":
    app()
