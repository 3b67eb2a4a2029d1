"""Durations as people write them: "1h30m" -> 5400."""

import re

UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_WHOLE = re.compile(r"(?:(\d+)d)?\s*(?:(\d+)h)?\s*(?:(\d+)m)?\s*(?:(\d+)s)?", re.ASCII)
_PART = re.compile(r"\s*(?:(\d+)([A-Za-z]?)|(\S))", re.ASCII)
LONGEST = 64


class DurationError(ValueError):
    """The text is no duration; `at` is the index of the character where that shows."""

    def __init__(self, why: str, at: int) -> None:
        super().__init__(f"{why} at character {at + 1}")
        self.at = at


def parse_duration(text: str) -> int:
    """Whole seconds. Raises DurationError for anything but d, h, m, s in that order, each at most once."""
    if len(text) > LONGEST:
        raise DurationError(f"longer than {LONGEST} characters", LONGEST)
    found = _WHOLE.fullmatch(text.strip())
    if found and any(found.groups()):
        return sum(int(count) * size for count, size in zip(found.groups(), UNITS.values()) if count)
    raise _fault(text)


def _fault(text: str) -> DurationError:
    """Why a text that is no duration is none: only then is it read part by part."""
    order, last, at = list(UNITS), -1, 0
    while at < len(text.rstrip()):
        part = _PART.match(text, at)
        count, unit, other = part.groups()
        if other:
            return DurationError(f"{other!r} is not part of a duration", part.start(3))
        if unit not in UNITS:
            return DurationError(f"unknown unit {unit!r}" if unit else "number without a unit", part.end(1))
        if order.index(unit) <= last:
            return DurationError(f"{unit!r} comes twice or too late", part.start(2))
        last, at = order.index(unit), part.end()
    return DurationError("nothing", 0)
