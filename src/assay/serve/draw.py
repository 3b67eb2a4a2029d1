"""Numbers as pages write them, and their places in drawings. SPEC 1.

Numbers are text that the settlement has; what is cut is cut, never rounded up. Drawings place them by floats, which nobody reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from fractions import Fraction

from assay.exact import BPS, NANO, half_even, nanos, text
from assay.settle.story.telling import plural

__all__ = ["NARROW", "cut", "day", "fraction", "pc", "percent", "rest_text", "seconds", "share", "short", "size", "spark", "when"]

NARROW = "\u202f"
"""The narrow space before a per cent sign, where no line breaks."""
Json = dict[str, object]


def percent(amount: str | int) -> str:
    """A share of the whole with two decimals, half to even: "31.36 %"."""
    count = half_even(nanos(amount) if isinstance(amount, str) else amount, NANO // BPS)
    sign, count = ("−" if count < 0 else ""), abs(count)
    return f"{sign}{count // 100}.{count % 100:02}{NARROW}%"


def share(amount: str | int) -> str:
    """A share with as many decimals as it needs, at most two: "50 %", "28.5 %"."""
    return f"{text(half_even(nanos(amount) if isinstance(amount, str) else amount, NANO // BPS), 2)}{NARROW}%"


def cut(number: str) -> tuple[str, str]:
    """A score as its first three decimals, in ink, and the rest, which is quieter."""
    whole, point, decimals = number.partition(".")
    return f"{whole}{point}{decimals[:3]}", decimals[3:]


def fraction(amount: str | int) -> float:
    """Return where a number lies between 0 and 1, for a drawing."""
    return (nanos(amount) if isinstance(amount, str) else amount) / NANO


def rest_text(above: Fraction | None, below: Fraction | None) -> str:
    """The parts of the other tasks that those pass who pass a task, and those who do not: "41 % / 63 %"."""
    parts = ("–" if part is None else f"{half_even(100 * part.numerator, part.denominator)}{NARROW}%" for part in (above, below))
    return " / ".join(parts)


def pc(place: float) -> str:
    """A place in a drawing as an attribute: 0.559 → "55.9%"."""
    return f"{round(100 * place, 3):g}%"


def size(count: int) -> str:
    """The size of a file: "512 bytes", "12 kB", "1.5 MB"."""
    return plural(count, "byte") if count < 1000 else f"{count / 1000:.0f} kB" if count < 10**6 else f"{count / 10**6:.1f} MB"


def short(digest: str) -> str:
    """The first characters of a digest or key; the whole of it stands beside it as a title."""
    bare = digest.removeprefix("sha256:")
    return bare if len(bare) <= 10 else f"{bare[:8]}…"


def when(moment: datetime | None) -> str:
    """A moment for people, in UTC: "2 Nov 2026, 00:30 UTC"."""
    return "at an unknown time" if moment is None else f"{day(moment)}, {moment:%H:%M} UTC"


def day(moment: datetime) -> str:
    """A day for people: "2 Nov 2026"."""
    return f"{moment.day} {moment:%b %Y}"


def seconds(value: float) -> str:
    """Seconds for people: "0.4 s", "38 s", "4 min 10 s", "1 h 05 min"."""
    if value < 10:
        return f"{value:.1f}".removesuffix(".0") + " s"
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    return f"{whole // 3600} h {whole // 60 % 60:02} min"


def spark(values: Sequence[int | None], label: str) -> Json | None:
    """A small line of shares (nanos) over epochs, on 96 × 24; None where there is not more than one epoch with a share.

    values: None for an epoch without a share, in which the line breaks.
    """
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return None
    top = max(known) or 1
    step = 94 / max(1, len(values) - 1)
    drawn = [(1 + at * step, 22.5 - 19 * value / top) for at, value in enumerate(values) if value is not None]
    (first, height), *others = _steady(drawn)
    path = f"M{first:.1f} {height:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in others)
    last, end = drawn[-1]
    return {"d": path, "x0": f"{first:.1f}", "x": f"{last:.1f}", "y": f"{end:.1f}", "label": label}


def _steady(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points without those that change nothing: a season of hundreds of epochs is a line of a few steps."""
    corners: list[tuple[float, float]] = []
    for point in points:
        if len(corners) >= 2 and corners[-1][1] == point[1] == corners[-2][1]:
            corners[-1] = point
        else:
            corners.append(point)
    return corners
