"""SPEC 2.4: valid issues and stars."""

from fractions import Fraction
from typing import Any

from ..numbers import fraction, nanos, show
from .verdict import Verdict

Doc = dict[str, Any]


def total(records: list[Doc], name: str) -> int:
    """The sum of a count over records, less what was revoked, not below 0. SPEC 2.4."""
    counted = sum(int(record[name]) for record in records)
    revoked = sum(int(record.get("revoked_" + name, 0)) for record in records)
    return max(0, counted - revoked)


def verdict(records: list[Doc], rules: Doc, epoch: int) -> Verdict:
    """min(points / full_points, 1): counts over the last `window_epochs`, stars by the latest record. SPEC 2.4."""
    window = rules["window_epochs"]
    table = rules["repositories"]
    first = 0 if window is None else epoch - window + 1
    valid = invalid = starred = counted = 0
    points = taken = Fraction(0)
    for repository, worth in table.items():
        here = [record for record in records if record["repository"] == repository]
        recent = [record for record in here if record["epoch"] >= first]
        counted += len(recent)
        valid_here = total(recent, "valid")
        valid += valid_here
        invalid_here = total(recent, "invalid")
        invalid += invalid_here
        taken += fraction(worth) * invalid_here
        points += fraction(worth) * valid_here
        if here and max(here, key=lambda record: int(record["epoch"]))["starred"]:
            starred += 1
    if not counted:
        return Verdict()
    if valid >= 1 or rules.get("stars_alone", False):
        points += min(fraction(rules["star_max"]), fraction(rules["star_points"]) * starred)
    if rules.get("invalid", "gate") == "subtract":
        points = max(Fraction(0), points - taken)
    elif invalid > valid:
        points = Fraction(0)
    score = nanos(min(points / fraction(rules["full_points"]), Fraction(1)))
    return Verdict(score, {"valid": valid, "invalid": invalid, "starred": starred, "points": show(points)})
