"""Small boards whose margins brute force can find."""

from __future__ import annotations

from random import Random
from typing import Any

Doc = dict[str, Any]
COMBINE = ("stake-mean", "stake-mean", "stake-mean", "mean", "stake-median", "clip", "trimmed")
OUTLIERS: tuple[Doc, ...] = (
    {},
    {"method": "modified-z", "threshold": "1", "mad_floor": "0"},
    {"method": "modified-z", "threshold": "2", "mad_floor": "0.1"},
    {"method": "modified-z", "threshold": "0.5", "mad_floor": "0"},
    {"method": "modified-z", "scale": "noise", "threshold": "1"},
    {"method": "z", "threshold": "1.2"},
    {"method": "none"},
)


def drawn(seed: int) -> Doc:
    """A board of up to 4 validators and 3 participants, with any rules that consensus has."""
    r = Random(seed)
    validators, participants = r.randint(1, 4), r.randint(1, 3)
    trials = r.randint(1, 4 if validators < 4 else 2)
    consensus: Doc = {
        "min_validators": r.randint(1, 3),
        "min_stake": r.choice(["0", "30%", "60%"]),
        "combine": r.choice(COMBINE),
        "outliers": r.choice(OUTLIERS),
    }
    if r.random() < 0.2:
        consensus["recheck"] = True
    names = [f"v{at}" for at in range(validators)]
    given: Doc = {
        "consensus": consensus,
        "trials": trials,
        "validators": [{"key": name, "stake": str(r.choice([1, 1, 2, 3, 5, 10]))} for name in names],
        "participants": [{"key": f"p{at}", "seen": _seen(r, names, trials)} for at in range(participants)],
    }
    if r.random() < 0.5:
        given["payout"] = {"deposit": "1000", "threshold_bps": r.choice([3000, 7000, 10_000])}
    return given


def _seen(r: Random, names: list[str], trials: int) -> Doc:
    seen: Doc = {}
    for name in names:
        if r.random() < 0.1:
            continue
        missing = r.randint(1, trials - 1) if trials > 1 and r.random() < 0.15 else 0
        seen[name] = {"passed": r.randint(0, trials - missing)} | ({"missing": missing} if missing else {})
    return seen
