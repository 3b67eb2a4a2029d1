"""A simulated season of 64 validators and 256 participants: epochs a CPU second, and the kernel's own part of an epoch."""

from __future__ import annotations

import resource

from assay.rules.seasons import World, season
from assay.rules.simulate import _agreement, simulate
from assay.scheme.load import parse, presets

EPOCHS = 500


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Print how many epochs are drawn and settled in a second of CPU time; the baseline is consensus alone."""
    scheme = parse(presets()["term-challenge"])
    best = [float("inf")] * 3
    for _ in range(3):
        start = _cpu()
        drawn = season(World(participants=256, validators=64, epochs=EPOCHS))
        _ = drawn.current, drawn.there, drawn.counting
        middle = _cpu()
        _agreement(scheme, drawn)
        agreed = _cpu()
        simulate(scheme, drawn)
        parts = (middle - start, agreed - middle, _cpu() - agreed)
        best = [min(pair) for pair in zip(best, parts, strict=True)]
    draw, consensus, whole = best
    print(
        f"{EPOCHS} epochs, 64 validators x 256 participants, {len(drawn.start)} submissions, {len(drawn.columns[0])} judgements"
    )
    print(f"simulated  {EPOCHS / whole:7,.0f} epochs a CPU second, of which consensus is {consensus / whole:.0%}")
    print(f"with draws {EPOCHS / (whole + draw):7,.0f} epochs a CPU second")


if __name__ == "__main__":
    main()
