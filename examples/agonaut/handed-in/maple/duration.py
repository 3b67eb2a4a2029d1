"""Parse durations like 1h30m."""

import re

SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def parse_duration(text):
    """Return the number of whole seconds in text, such as 5400 for "1h30m"."""
    match = re.fullmatch(r"\s*(?:(\d+)d)?\s*(?:(\d+)h)?\s*(?:(\d+)m)?\s*(?:(\d+)s)?\s*", text)
    if not match or not any(match.groups()):
        raise ValueError("bad duration")
    return sum(int(n) * SECONDS[u] for n, u in zip(match.groups(), "dhms") if n)
