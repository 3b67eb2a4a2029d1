"""The cost of a box over the same command run bare: `python -m bench.sandbox [ROUNDS]`. Times are medians, in milliseconds.

Rounds are interleaved, so that whatever else the machine does falls on all rows alike.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from assay.judge.sandbox import Box, Limits
from assay.judge.sandbox.bubblewrap import Bubblewrap

LIMITS = Limits(seconds=60, memory=512 << 20, processes=64, disk=64 << 20, output=1 << 20)
COMMAND = ["true"]
BARE = [
    "bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/usr", "/usr",
    "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--", *COMMAND,
]  # fmt: skip


def measure(rounds: int) -> dict[str, float]:
    """Medians by what was measured."""
    taken: dict[str, list[float]] = {}

    def timed(what: str, action: Callable[[], object]) -> None:
        began = time.perf_counter()
        action()
        taken.setdefault(what, []).append((time.perf_counter() - began) * 1000)

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sandbox = Bubblewrap()
        stack.callback(sandbox.scratch.close)
        image = sandbox.image()
        kept = stack.enter_context(sandbox.open(image, LIMITS))

        def run(box: Box) -> None:
            assert box.run(COMMAND, limits=LIMITS, stdout=folder / "out", stderr=folder / "err").exit_code == 0

        def trial() -> None:
            for _box in range(2):
                with sandbox.open(image, LIMITS) as box:
                    run(box)

        def empty() -> None:
            with sandbox.open(image, LIMITS):
                pass

        def bare() -> None:
            for _box in range(2):
                subprocess.run(BARE, check=True)

        for _round in range(rounds):
            timed("the command, bare", lambda: subprocess.run(COMMAND, check=True))
            timed("two bare bwrap", bare)
            timed("a box made and removed", empty)
            timed("a command in a box", lambda: run(kept))
            timed("two boxes, a command in each", trial)
    return {what: statistics.median(times) for what, times in taken.items()}


def main() -> None:
    """Print the table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    for what, median in measure(rounds).items():
        print(f"{median:8.1f} ms  {what}")


if __name__ == "__main__":
    main()
