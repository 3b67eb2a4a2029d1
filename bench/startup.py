"""The time until the command line says what it can do: `assay --help` against importing typer and rich alone.

    python -m bench.startup

Prints the best of several runs of each, taken in turn, and their ratio; the aim is at most 1.5.
"""

from __future__ import annotations

import subprocess
import sys
import time

AIM = 1.5
RUNS = 15
PROGRAMS = {
    "import typer, rich": [sys.executable, "-c", "import typer, rich"],
    "assay --help": [sys.executable, "-m", "assay", "--help"],
}


def seconds(command: list[str]) -> float:
    """The seconds that a command takes, from start to end."""
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def main() -> None:
    """Measure and print."""
    taken: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for _ in range(RUNS):
        for name, command in PROGRAMS.items():
            taken[name].append(seconds(command))
    best = {name: min(times) for name, times in taken.items()}
    for name, time_ in best.items():
        print(f"{name:20} {time_ * 1000:7.1f} ms")
    base, ours = best.values()
    print(f"{'ratio':20} {ours / base:7.2f}    (aim: at most {AIM})")


if __name__ == "__main__":
    main()
