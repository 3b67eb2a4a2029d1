"""Cases of consensus and of drawing validators. SPEC 3."""

from __future__ import annotations

import hashlib
from typing import Any

from .case import CaseDraft, File, case, refused

Doc = dict[str, Any]
Vote = tuple[str, str, str]

PLAIN: Doc = {"outliers": {"method": "none"}}
Z: Doc = {"outliers": {"method": "z"}}


def votes(*given: Vote) -> list[Doc]:
    """(validator, stake, score); instead of a score also "incomplete", "unjudged", "silent"."""
    rows = []
    for validator, stake, stated in given:
        rows.append({"validator": validator, "stake": stake} | ({"state": stated} if stated.isalpha() else {"score": stated}))
    return rows


def of(*scores: str, stake: str = "100") -> list[Vote]:
    """v1, v2, … with the same stake."""
    return [(f"v{place}", stake, score) for place, score in enumerate(scores, 1)]


def weighing(*given: str) -> list[Vote]:
    """v1, v2, … from "stake score"."""
    return [(f"v{place}", *text.split()) for place, text in enumerate(given, 1)]  # type: ignore[misc]


def rows(given: list[Vote], flagged: str, excluded: str, rules: Doc | None) -> list[Doc]:
    """The counting validators, and which of them (names in words) are flagged and excluded."""
    least = max(1, int((rules or {}).get("min_validator_stake", "0")))
    names = [name for name, stake, stated in given if int(stake) >= least and not stated.isalpha()]
    return [{"validator": name, "flagged": name in flagged.split(), "excluded": name in excluded.split()} for name in names]


def agreed(
    name: str,
    given: list[Vote],
    score: str,
    *,
    flagged: str = "",
    excluded: str = "",
    rules: Doc | None = None,
    bps: int | None = None,
    **expect: Any,
) -> CaseDraft:
    document = {"consensus": rules or {}, "votes": votes(*given)} | ({} if bps is None else {"bps": True})
    outcome = {
        "status": "agreed",
        "reason": None,
        "score": score,
        "bps": bps,
        "validators": rows(given, flagged, excluded, rules),
    }
    return case(name, document, outcome | expect)


def short(
    name: str, given: list[Vote], reason: str, *, status: str = "no-quorum", rules: Doc | None = None, **expect: Any
) -> CaseDraft:
    document = {"consensus": rules or {}, "votes": votes(*given)}
    return case(name, document, {"status": status, "reason": reason, "score": None} | expect)


def outliers(**settings: Any) -> Doc:
    return {"outliers": settings}


TWO = {"min_validators": 2}
MEDIAN = {"combine": "stake-median", **PLAIN}

CONSENSUS = [
    agreed("two validators, weighed by stake", [("v1", "9000", "0.9"), ("v2", "1000", "0.5")], "0.86", rules=TWO),
    agreed(
        "five validators, one far off",
        of("0.80", "0.82", "0.79", "0.81", "0.20", stake="1"),
        "0.805",
        flagged="v5",
        excluded="v5",
    ),
    agreed(
        "MAD = 0: the floor 0.01 is the scale",
        of("0.80", "0.80", "0.20", stake="1000"),
        "0.8",
        flagged="v3",
        excluded="v3",
        mad="0",
    ),
    agreed("MAD = 0, within the floor's tolerance", of("0.80", "0.80", "0.85", stake="1000"), "0.816666667", mad="0"),
    agreed(
        "two validators agree to the bit, the third is one task of 91 off",
        of("0.802197802", "0.802197802", "0.813186813"),
        "0.805860806",
        mad="0",
    ),
    agreed("the bare formula: MAD = 0 flags nobody", of("0.8", "0.8", "0.2"), "0.6", rules=outliers(mad_floor="0")),
    agreed(
        "flagged with 60 % of the stake: nobody is excluded",
        [("v1", "1000", "0.8"), ("v2", "1000", "0.8"), ("v3", "3000", "0.2")],
        "0.44",
        flagged="v3",
        flagged_majority=True,
    ),
    agreed(
        "flagged hold exactly half the stake: nobody is excluded",
        [("v1", "50", "0.8"), ("v2", "50", "0.8"), ("v3", "100", "0.2")],
        "0.5",
        flagged="v3",
        flagged_majority=True,
    ),
    agreed(
        "flagged hold just less than half the stake",
        [("v1", "51", "0.8"), ("v2", "50", "0.8"), ("v3", "100", "0.2")],
        "0.8",
        flagged="v3",
        excluded="v3",
        flagged_majority=False,
    ),
    agreed(
        "dust cannot outvote stake",
        [("whale", "1000000000000000", "0.8"), ("d1", "1", "0"), ("d2", "1", "0")],
        "0.8",
        flagged="whale",
        flagged_majority=True,
    ),
    short(
        "a validator without stake does not count",
        [("v1", "1000", "0.8"), ("v2", "1000", "0.8"), ("v3", "0", "0.8")],
        "too-few-validators",
        stake="2000",
    ),
    agreed("|M| just below 3.5 is not flagged", of("0.5", "0.5", "0.551890289"), "0.517296763", rules=outliers(threshold="3.5")),
    agreed("|M| just above 3.5 is flagged", of("0.5", "0.5", "0.55189029"), "0.5", flagged="v3", excluded="v3"),
    agreed("the threshold met exactly: |M| = 6.745", of("0.4", "0.4", "0.5"), "0.433333333", rules=outliers(threshold="6.745")),
    agreed(
        "a nano beyond the threshold",
        of("0.4", "0.4", "0.500000001"),
        "0.4",
        flagged="v3",
        excluded="v3",
        rules=outliers(threshold="6.745"),
    ),
    agreed("the median of four is the mean of the middle two", of("0.1", "0.2", "0.3", "0.4"), "0.25", median="0.25", mad="0.1"),
    agreed("a median between two nanos is shown half to even", of("0.1", "0.2", "0.200000001", "0.3"), "0.2", median="0.2"),
    agreed("two scores flag nobody", of("0.9", "0.1"), "0.5", rules=TWO, median=None, mad=None),
    agreed("one validator is enough where the scheme says so", of("0.7"), "0.7", rules={"min_validators": 1}),
    agreed("validators at both ends", of("0", "0.5", "0.5", "0.5", "1"), "0.5", flagged="v1 v5", excluded="v1 v5"),
    agreed("no outlier method", of("0.8", "0.8", "0.2"), "0.6", rules=PLAIN, median=None, mad=None, mean=None),
    agreed("z: five validators cannot flag one", of("0.8", "0.8", "0.8", "0.8", "0"), "0.64", rules=Z, mean="0.64", median=None),
    agreed(
        "z: six validators, one at √5 σ",
        of("0.8", "0.8", "0.8", "0.8", "0.8", "0.2"),
        "0.8",
        flagged="v6",
        excluded="v6",
        rules=Z,
    ),
    agreed("z: σ = 0 flags nobody", of("0.5", "0.5", "0.5"), "0.5", rules=Z, mean="0.5"),
    agreed("z: exactly 2 σ is not flagged", of("0.5", "0.5", "0.5", "0.5", "0"), "0.4", rules=Z),
    agreed(
        "z: a lower threshold",
        of("0.5", "0.5", "0.5", "0.5", "0"),
        "0.5",
        flagged="v5",
        excluded="v5",
        rules=outliers(method="z", threshold="1.999999999"),
    ),
    agreed(
        "z goes by heads, not by stake",
        [
            ("v1", "1", "0.5"),
            ("v2", "1", "0.5"),
            ("v3", "900", "0.1"),
            ("v4", "1", "0.5"),
            ("v5", "1", "0.5"),
            ("v6", "1", "0.5"),
        ],
        "0.102209945",
        flagged="v3",
        flagged_majority=True,
        rules=Z,
    ),
    agreed(
        "stake-median: the lower on a tie", [("v1", "50", "0.2"), ("v2", "25", "0.6"), ("v3", "25", "0.9")], "0.2", rules=MEDIAN
    ),
    agreed("stake-median: one rao decides", [("v1", "50", "0.2"), ("v2", "26", "0.6"), ("v3", "25", "0.9")], "0.6", rules=MEDIAN),
    agreed(
        "stake-median: heavy stake is the median",
        [("v1", "1", "0.1"), ("v2", "1", "0.2"), ("v3", "9", "0.9")],
        "0.9",
        rules=MEDIAN,
    ),
    agreed(
        "stake-median after outliers",
        of("0.4", "0.5", "0.51", "0.52", "0.0"),
        "0.5",
        flagged="v5",
        excluded="v5",
        rules={"combine": "stake-median"},
    ),
    agreed(
        "mean: stake has no part in it",
        [("v1", "1", "0.6"), ("v2", "1", "0.7"), ("v3", "998", "0.8")],
        "0.7",
        rules={"combine": "mean", **PLAIN},
    ),
    agreed("mean: half to even", of("0", "0.000000001", stake="1"), "0", rules=TWO | {"combine": "mean"}),
    agreed(
        "mean: half to even, upwards", of("0.000000001", "0.000000002", stake="1"), "0.000000002", rules=TWO | {"combine": "mean"}
    ),
    agreed(
        "stake near 2^63 stays exact",
        [("v1", str(2**63 - 1), "1"), ("v2", str(2**63 - 1), "0"), ("v3", "1", "1")],
        "0.5",
        rules=PLAIN,
    ),
    agreed(
        "stake near 2^63, one rao seen",
        [("v1", "9223372036854775807", "0.000000001"), ("v2", "9223372036854775806", "0.000000002"), ("v3", "1", "0")],
        "0.000000001",
        rules=PLAIN,
    ),
    agreed(
        "30 % of the stake exactly",
        [("v1", "100", "0.5"), ("v2", "100", "0.5"), ("v3", "100", "0.5"), ("v4", "700", "silent")],
        "0.5",
    ),
    short(
        "a rao short of 30 %",
        [("v1", "100", "0.5"), ("v2", "100", "0.5"), ("v3", "99", "0.5"), ("v4", "701", "silent")],
        "too-little-stake",
        stake="299",
    ),
    short("two where three are needed", [*of("0.5", "0.5"), ("v3", "100", "silent")], "too-few-validators"),
    short("nobody", [("v1", "100", "silent"), ("v2", "100", "silent")], "no-evidence", stake="0"),
    short(
        "stake below the minimum does not count",
        [("v1", "100", "0.5"), ("v2", "100", "0.5"), ("v3", "99", "0.5")],
        "too-few-validators",
        rules={"min_validator_stake": "100"},
        stake="200",
    ),
    agreed(
        "stake at the minimum counts",
        [("v1", "100", "0.5"), ("v2", "100", "0.5"), ("v3", "100", "0.8")],
        "0.5",
        flagged="v3",
        excluded="v3",
        rules={"min_validator_stake": "100"},
    ),
    short(
        "stake below the minimum is still part of the total",
        [("v1", "40", "0.5"), ("v2", "30", "0.1"), ("v3", "31", "0.1")],
        "too-little-stake",
        rules={"min_validators": 1, "min_stake": "40%", "min_validator_stake": "40"},
        stake="40",
    ),
    short(
        "recheck: too little stake after outliers",
        [("v1", "30", "0.5"), ("v2", "30", "0.5"), ("v3", "40", "0.9")],
        "stake-after-outliers",
        rules={"recheck": True, "min_stake": "70%"},
        median="0.5",
        validators=[{"flagged": False}, {"flagged": False}, {"flagged": True, "excluded": True}],
    ),
    agreed(
        "no recheck: stake is counted before outliers",
        [("v1", "30", "0.5"), ("v2", "30", "0.5"), ("v3", "40", "0.9")],
        "0.5",
        flagged="v3",
        excluded="v3",
        rules={"min_stake": "70%"},
    ),
    agreed(
        "recheck: just enough stake after outliers",
        [("v1", "35", "0.5"), ("v2", "35", "0.5"), ("v3", "30", "0.9")],
        "0.5",
        flagged="v3",
        excluded="v3",
        rules={"recheck": True, "min_stake": "70%"},
    ),
    agreed(
        "recheck with a flagged majority: nobody is out",
        [("v1", "30", "0.5"), ("v2", "20", "0.5"), ("v3", "50", "0.9")],
        "0.7",
        flagged="v3",
        flagged_majority=True,
        rules={"recheck": True, "min_stake": "100%"},
    ),
    short(
        "an incomplete validator is not in the quorum",
        [*of("0.5", "0.5"), ("v3", "100", "incomplete")],
        "missing-trials",
        status="incomplete",
    ),
    short(
        "incomplete only where it would have been enough",
        [("v1", "100", "0.5"), ("v2", "100", "incomplete")],
        "too-few-validators",
    ),
    short(
        "a malformed judgement",
        [("v1", "100", "unjudged")],
        "malformed-or-unjudged",
        status="unjudged",
        rules={"min_validators": 1, "min_stake": "0"},
    ),
    short(
        "unjudged comes before incomplete",
        [*of("0.5", "0.5"), ("v3", "100", "incomplete"), ("v4", "100", "unjudged")],
        "malformed-or-unjudged",
        status="unjudged",
    ),
    agreed(
        "a quorum without the incomplete one",
        [*of("0.5", "0.5", "0.6"), ("v4", "100", "incomplete")],
        "0.5",
        flagged="v3",
        excluded="v3",
    ),
    agreed(
        "agreed BPS are floored from the exact combination",
        [("v1", "1", "0.7"), ("v2", "2", "0.7001")],
        "0.700066667",
        rules={"min_validators": 1, "min_stake": "0"},
        bps=7000,
    ),
    agreed(
        "BPS do not go by way of nanos",
        [("v1", "1", "0.7"), ("v2", "9999999999", "0.7001")],
        "0.7001",
        rules={"min_validators": 1, "min_stake": "0"},
        bps=7000,
    ),
    refused("a validator twice", {"consensus": {}, "votes": votes(*of("0.5", "0.5"), ("v1", "1", "0.5"))}, "a key is there once"),
    refused("a score above 1", {"consensus": {}, "votes": votes(*of("0.5", "0.5", "1.1"))}, "a score is from 0 to 1"),
    refused(
        "stake as a number", {"consensus": {}, "votes": [{"validator": "v1", "stake": 100, "score": "0.5"}]}, "stake is a string"
    ),
    refused(
        "a vote with neither score nor state",
        {"consensus": {}, "votes": [*votes(*of("0.5", "0.5")), {"validator": "v9", "stake": "1"}]},
        "who says nothing is silent",
    ),
    refused(
        "a vote with score and state",
        {
            "consensus": {},
            "votes": [{"validator": "v9", "stake": "1", "score": "0.5", "state": "silent"}],
        },
        "a vote is one of the two",
    ),
    case(
        "validators in the order given",
        {"consensus": {}, "votes": votes(("v3", "1", "0.5"), ("v1", "1", "0.5"), ("v2", "1", "0.5"))},
        {"validators": [{"validator": "v3"}, {"validator": "v1"}, {"validator": "v2"}]},
    ),
    refused("min_stake above 1", {"consensus": {"min_stake": "101%"}, "votes": votes(*of("0.5"))}, "a share is at most 1"),
    refused(
        "no validator needed", {"consensus": {"min_validators": 0}, "votes": votes(*of("0.5"))}, "min_validators is at least 1"
    ),
]

SEEDS = {"ones": "11" * 32, "zeros": "00" * 32, "abc": hashlib.sha256(b"abc").hexdigest()}
NAMES = ["v1", "v10", "v2", "w～", "w😀", "über"]


def drawn(
    name: str, k: int, seed: str, submission: str = "sha256:s", keys: list[str] | None = None, expect: Any = None
) -> CaseDraft:
    given = {"assign": k, "validators": keys or NAMES, "submission": submission, "randomness": SEEDS[seed]}
    return case(name, given, expect)


ASSIGN = [
    *(drawn(f"{k} of six, randomness {seed}", k, seed) for seed in SEEDS for k in (1, 2, 3)),
    drawn("another submission, another draw", 3, "abc", "sha256:t"),
    drawn("as many as there are", 6, "abc", expect={"validators": NAMES}),
    drawn("more than there are", 7, "abc", expect={"validators": NAMES}),
    drawn("the order of the registry does not matter", 3, "abc", keys=NAMES[::-1]),
    drawn("keys sort by UTF-8 bytes", 2, "abc", keys=["w😀", "w～"], expect={"validators": ["w～", "w😀"]}),
    refused(
        "nobody to draw", {"assign": 0, "validators": NAMES, "submission": "s", "randomness": "00" * 32}, "assign is at least 1"
    ),
    refused(
        "randomness of 31 bytes",
        {"assign": 1, "validators": NAMES, "submission": "s", "randomness": "00" * 31},
        "randomness has 32 bytes",
    ),
]

NOISE: Doc = {"outliers": {"scale": "noise"}}
TEN = of("0.7", "0.7", "0.7", "0.8")


def noise(name: str, given: list[Vote], trials: int, score: str, *, flagged: str = "", **settings: Any) -> CaseDraft:
    """Nobody holds half of the stake, so who is flagged is excluded."""
    rules = {"outliers": {"scale": "noise", **settings}}
    outcome = {"status": "agreed", "score": score, "validators": rows(given, flagged, flagged, rules)}
    return case(name, {"consensus": rules, "votes": votes(*given), "trials": trials}, outcome)


def by(combine: str, **part: str) -> Doc:
    return {"combine": combine, **part, **PLAIN}


NOISY = [
    noise("noise: one trial of ten more is no outlier", TEN, 10, "0.725"),
    noise("noise: of ten thousand trials it is", TEN, 10_000, "0.7", flagged="v4"),
    noise("noise: at the limit, to the bit", of("0.5", "0.5", "0.5", "0.75"), 25, "0.5625", threshold="2.5"),
    noise("noise: a nano beyond the limit", of("0.5", "0.5", "0.5", "0.75"), 25, "0.5", threshold="2.499999999", flagged="v4"),
    noise("noise: the MAD counts where it is larger", of("0.1", "0.5", "0.9", "0.5", "0.3"), 1_000_000, "0.46"),
    noise("noise: the floor counts where both are smaller", of("0", "0", "0", "0.05"), 10, "0.0125"),
    noise("noise: beyond the floor, where all fail", of("0", "0", "0", "0.06"), 10, "0", flagged="v4"),
    noise("noise: no scale at all flags nobody", of("0", "0", "0", "0.5"), 10, "0.125", mad_floor="0"),
    noise("noise: the median of an even count", of("0.5", "0.6", "0.5", "0.6", "0.9", "0.55"), 80, "0.55", flagged="v5"),
    noise("noise: three that are far apart", of("0.1", "0.5", "0.9"), 10_000, "0.5"),
    refused("noise without a number of trials", {"consensus": NOISE, "votes": votes(*TEN)}, "n is tasks times trials"),
    refused("noise of no trials", {"consensus": NOISE, "votes": votes(*TEN), "trials": 0}, "n is at least 1"),
    refused(
        "noise goes with modified-z",
        {"consensus": {"outliers": {"scale": "noise", "method": "z"}}, "votes": votes(*TEN), "trials": 10},
        "the scale is that of the median",
    ),
    agreed("clip: what half of the stake does not reach", weighing("49 0.9", "2 0.6", "49 0.5"), "0.551", rules=by("clip")),
    agreed("clip: half of the stake exactly", weighing("50 0.9", "1 0.6", "49 0.5"), "0.701", rules=by("clip")),
    agreed("clip: equal scores reach together", weighing("30 0.9", "30 0.9", "40 0.5"), "0.74", rules=by("clip")),
    agreed("clip: all of the stake", weighing("49 0.9", "2 0.6", "49 0.5"), "0.5", rules=by("clip", kappa="100%")),
    agreed("clip: a third", weighing("33 0.9", "33 0.6", "34 0.3"), "0.498", rules=by("clip", kappa="0.333333333")),
    agreed(
        "clip: after outliers",
        weighing("10 0.9", "30 0.5", "30 0.5", "30 0.52"),
        "0.5",
        flagged="v1",
        excluded="v1",
        rules={"combine": "clip"},
    ),
    agreed("trimmed: whole validators", weighing("20 0.1", "60 0.5", "20 0.9"), "0.5", rules=by("trimmed")),
    agreed("trimmed: a validator in part", weighing("25 0.2", "25 0.8", "50 0.8"), "0.75", rules=by("trimmed")),
    agreed("trimmed: one validator is all that is left", weighing("10 0", "80 0.7", "10 1"), "0.7", rules=by("trimmed")),
    agreed("trimmed: nothing cut off", weighing("50 0.2", "25 0.8", "25 0.6"), "0.45", rules=by("trimmed", trim="0")),
    agreed("trimmed: nearly all cut off", weighing("50 0.2", "1 0.6", "50 0.8"), "0.6", rules=by("trimmed", trim="0.499999999")),
    agreed(
        "trimmed: stake near 2^63",
        [("v1", str(2**63 - 1), "1"), ("v2", str(2**63 - 1), "0"), ("v3", "1", "0.5")],
        "0.5",
        rules=by("trimmed"),
    ),
    refused("kappa of 0", {"consensus": by("clip", kappa="0"), "votes": votes(*TEN)}, "kappa is above 0"),
    refused("trim of a half", {"consensus": by("trimmed", trim="50%"), "votes": votes(*TEN)}, "something must be left"),
    refused("kappa without clip", {"consensus": by("mean", kappa="50%"), "votes": votes(*TEN)}, "it does nothing"),
    refused("trim without trimmed", {"consensus": by("clip", trim="20%"), "votes": votes(*TEN)}, "it does nothing"),
]

FILES = [
    File("assign", "assign", "Which validators are drawn for a submission (SPEC 3.0).", ASSIGN),
    File("consensus", "consensus", "One agreed score out of many: quorum, outliers, combination (SPEC 3).", [*CONSENSUS, *NOISY]),
]
