"""Consensus against SPEC 3 recomputed with fractions, and against published cases."""

import json
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from assay.exact import NANO, nanos
from assay.scheme.model import Consensus
from assay.settle.consensus import Agreement, Votes, agree
from assay.settle.inputs import Bools
from consensus_kit import MOST, agreed, codes, ints, rows, rules

# --- SPEC 3 with fractions, one participant at a time -------------------------------------------------------------------


def middle(values: Iterable[Fraction]) -> Fraction:
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def exact(x: int) -> Fraction:
    return Fraction(x, NANO)


def spec(votes: Votes, asked: Consensus, p: int) -> dict[str, Any]:
    """Everything SPEC 3 says of participant p, from the text."""
    least = max(1, asked.min_validator_stake)
    total = votes.totals if isinstance(votes.totals, int) else votes.totals[p]

    def who(mask: Bools | None) -> dict[int, int]:
        return {} if mask is None else {v: s for v, s in enumerate(votes.stakes) if mask[v, p] and s >= least}

    def quorum(them: dict[int, int]) -> bool:
        return len(them) >= asked.min_validators and sum(them.values()) >= exact(asked.min_stake) * total

    stakes = who(votes.counting)
    x = {v: exact(int(votes.scores[v, p])) for v in stakes}
    facts: dict[str, Any] = {
        "stake": sum(stakes.values()),
        "flagged": [],
        "excluded": [],
        "majority": False,
        "score": -1,
        "bps": -1,
    }
    facts |= {"median": None, "mad": None, "mean": None, "value": Fraction(0)}
    if not quorum(stakes):
        if quorum(stakes | who(votes.unjudged)):
            return facts | {"codes": ("unjudged", "malformed-or-unjudged")}
        if quorum(stakes | who(votes.incomplete)):
            return facts | {"codes": ("incomplete", "missing-trials")}
        why = "too-few-validators" if len(x) < asked.min_validators else "too-little-stake"
        return facts | {"codes": ("no-quorum", why if x else "no-evidence")}
    facts |= outliers(x, stakes, asked)
    left = {v: s for v, s in stakes.items() if v not in facts["excluded"]}
    facts["value"] = value = combined(x, left, asked.combine)
    if asked.recheck and sum(left.values()) < exact(asked.min_stake) * total:
        return facts | {"codes": ("no-quorum", "stake-after-outliers")}
    return facts | {"codes": ("agreed", None), "score": round(value * NANO), "bps": value * 10_000 // 1}


def outliers(x: Mapping[int, Fraction], stakes: Mapping[int, int], asked: Consensus) -> dict[str, Any]:
    method, threshold, values = asked.outliers.method, exact(asked.outliers.threshold), list(x.values())
    facts: dict[str, Any] = {}
    flagged: list[int] = []
    if method == "modified-z" and len(x) >= 3:
        median = middle(values)
        mad = middle([abs(value - median) for value in values])
        scale = max(mad, exact(asked.outliers.mad_floor))
        facts = {"median": round(median * NANO), "mad": round(mad * NANO)}
        if scale:
            flagged = [v for v in x if Fraction("0.6745") * abs(x[v] - median) / scale > threshold]
    if method == "z" and len(x) >= 3:
        mean, variance = moments(values)
        facts = {"mean": round(mean * NANO)}
        if variance:
            flagged = [v for v in x if (x[v] - mean) ** 2 / variance > threshold**2]
    majority = bool(flagged) and 2 * sum(stakes[v] for v in flagged) >= sum(stakes.values())
    return facts | {"flagged": flagged, "excluded": [] if majority else flagged, "majority": majority}


def moments(values: Sequence[Fraction]) -> tuple[Fraction, Fraction]:
    mean = sum(values, Fraction()) / len(values)
    return mean, sum(((value - mean) ** 2 for value in values), Fraction()) / len(values)


def combined(x: Mapping[int, Fraction], left: Mapping[int, int], how: str) -> Fraction:
    if how == "stake-mean":
        return sum((s * x[v] for v, s in left.items()), Fraction()) / sum(left.values())
    if how == "mean":
        return sum((x[v] for v in left), Fraction()) / len(left)
    return min(x[v] for v in left if 2 * sum(s for w, s in left.items() if x[w] <= x[v]) >= sum(left.values()))


def check(votes: Votes, asked: Consensus) -> None:
    got = agree(votes, asked, bps=True)
    for p in range(votes.scores.shape[1]):
        want = spec(votes, asked, p)
        assert {
            "stake": got.stake[p],
            "flagged": rows(got.flagged, p),
            "excluded": rows(got.excluded, p),
            "majority": bool(got.flagged_majority[p]),
            "score": got.score[p],
            "bps": ints(got.bps)[p],
            "median": got.median(p),
            "mad": got.mad(p),
            "mean": got.mean(p),
            "value": Fraction(got.numerator[p], got.denominator[p] * NANO),
            "codes": codes(got, p),
        } == want
        for v in range(votes.scores.shape[0]):
            check_distances(got, want, v, p)


def check_distances(got: Agreement, want: dict[str, Any], v: int, p: int) -> None:
    votes, asked = got.votes, got.rules.outliers
    x = {w: exact(int(votes.scores[w, p])) for w in rows(votes.counting, p)}
    modified = squared = None
    if want["median"] is not None and v in x:
        median = middle(x.values())
        scale = max(middle([abs(value - median) for value in x.values()]), exact(asked.mad_floor))
        modified = round(Fraction("0.6745") * abs(x[v] - median) / scale * NANO) if scale else None
    if want["mean"] is not None and v in x:
        mean, variance = moments(list(x.values()))
        squared = round((x[v] - mean) ** 2 / variance * NANO) if variance else None
    assert (got.modified_z(v, p), got.z_squared(v, p)) == (modified, squared)


NEAR = st.integers(79, 82).map(lambda n: n * NANO // 100)
SCORES = st.sampled_from([0, 1, NANO // 2, NANO - 1, NANO]) | NEAR | st.integers(0, NANO)
STAKES = st.sampled_from([0, 1, 1, 2, 3, 1000, MOST, MOST - 1]) | st.integers(0, MOST)
FRACTIONS = st.sampled_from(["0", "0.01", "0.3", "0.5", "1"])
RULES = st.builds(
    rules,
    min_validators=st.integers(1, 4),
    min_stake=FRACTIONS,
    min_validator_stake=st.sampled_from(["0", "2", str(MOST)]),
    recheck=st.booleans(),
    combine=st.sampled_from(["stake-mean", "stake-median", "mean"]),
    outliers=st.fixed_dictionaries(
        {
            "method": st.sampled_from(["modified-z", "modified-z", "z", "none"]),
            "threshold": st.sampled_from(["0", "0.6745", "1", "1.349", "1.5", "3.5", "123456789.987654321", "9" * 60]),
            "mad_floor": FRACTIONS,
        }
    ),
)


@st.composite
def votes(draw: st.DrawFn) -> Votes:
    V, P = draw(st.integers(0, 9)), draw(st.integers(0, 3))

    def mask(of: st.SearchStrategy[bool]) -> Bools:
        return np.array(draw(st.lists(of, min_size=V * P, max_size=V * P)), np.bool_).reshape(V, P)

    stakes = tuple(draw(st.lists(STAKES, min_size=V, max_size=V)))
    mostly = st.sampled_from([True, True, True, False])
    total = st.integers(0, 5).map(lambda more: sum(stakes) + more)
    return Votes(
        scores=np.array(draw(st.lists(SCORES, min_size=V * P, max_size=V * P)), np.int64).reshape(V, P),
        counting=mask(draw(st.sampled_from([mostly, st.just(True)]))),
        stakes=stakes,
        totals=draw(total | st.tuples(*[total] * P)),
        incomplete=mask(st.booleans()) if draw(st.booleans()) else None,
        unjudged=mask(st.booleans()) if draw(st.booleans()) else None,
    )


@given(votes(), RULES)
def test_every_number_is_what_the_text_says(given_votes: Votes, asked: Consensus) -> None:
    check(given_votes, asked)


@given(st.lists(SCORES, min_size=3, max_size=8), st.data(), RULES)
def test_small_equal_stakes_where_majorities_and_ties_abound(scores: list[int], data: st.DataObject, asked: Consensus) -> None:
    stakes = data.draw(st.lists(st.integers(1, 3), min_size=len(scores), max_size=len(scores)))
    asked = asked.model_copy(update={"min_validators": 1, "min_validator_stake": 0})
    votes = Votes(np.array(scores, np.int64)[:, None], np.ones((len(scores), 1), np.bool_), tuple(stakes), sum(stakes))
    check(votes, asked)


# --- published cases ----------------------------------------------------------------------------------------------------


def test_published_cases(shared: Path) -> None:
    cases = json.loads((shared / "vectors/consensus.json").read_text())["cases"]
    assert cases
    for case in cases:
        keys, stakes, scores = zip(*case["scores"], strict=True)
        asked = {"min_validators": case["min_validators"]} if "min_validators" in case else {}
        got = agreed(scores, [int(stake) for stake in stakes], **asked)
        if case["agreed"] is None:
            assert got.score[0] == -1
            assert codes(got)[0] == case["status"]
        else:
            assert got.score[0] == nanos(case["agreed"])
            assert [keys[row] for row in rows(got.flagged)] == case["flagged"]
            assert [keys[row] for row in rows(got.excluded)] == case["excluded"]
