"""Cases of rewards: strategy, cap, encoding, all of them together. SPEC 4."""

from __future__ import annotations

from typing import Any

from .case import CaseDraft, File, case, refused

Doc = dict[str, Any]


WHOLE = {"cap": "100%"}
PEER = ["0.95", "0.8", "0.6"]


def shared(name: str, scores: list[str], shares: list[str] | None = None, burn: str = "0/1", **reward: Any) -> CaseDraft:
    expect = {"burn": burn} | ({} if shares is None else {"shares": shares})
    return case(name, {"reward": reward, "scores": scores}, expect)


STRATEGY = [
    shared("linear is the default", ["0.8", "0.6", "0.2"], ["1/2", "3/8", "1/8"]),
    shared("linear: six equal scores", ["0.5"] * 6, ["1/6"] * 6, strategy="linear"),
    shared("linear: one participant has all", ["0.000000001"], ["1/1"], strategy="linear"),
    shared("linear: a score of 0 takes no part", ["0.5", "0"], ["1/1", "0/1"], strategy="linear"),
    shared("direct: a score is a weight", ["0.35"], ["7/20"], "13/20", strategy="direct"),
    shared("direct: together above 1, in proportion", ["1", "0.5", "0.5"], ["1/2", "1/4", "1/4"], strategy="direct"),
    shared("direct: together exactly 1", ["0.75", "0.25"], ["3/4", "1/4"], strategy="direct"),
    shared("quadratic", ["0.6", "0.2"], ["9/10", "1/10"], strategy="quadratic"),
    shared("ranked", PEER, ["1/2", "1/3", "1/6"], strategy="ranked"),
    shared("ranked: equal scores still have ranks", ["0.5", "0.5"], ["2/3", "1/3"], strategy="ranked"),
    shared(
        "ranked: those below the floor have no rank",
        ["0.9", "0.5", "0.1"],
        ["2/3", "1/3", "0/1"],
        strategy="ranked",
        min_score="0.5",
    ),
    shared("winner takes all", PEER, ["1/1", "0/1", "0/1"], strategy="winner-takes-all"),
    shared("winner takes all: the first of equals", ["0.8", "0.8"], ["1/1", "0/1"], strategy="winner-takes-all"),
    shared("winner takes all: the top two, equally", PEER, ["1/2", "1/2", "0/1"], strategy="winner-takes-all", top=2),
    shared(
        "winner takes all: fewer than the top", ["0.9", "0.1", "0"], ["1/2", "1/2", "0/1"], strategy="winner-takes-all", top=5
    ),
    shared("softmax, T = 1: exact ratios of 50-digit powers", PEER, strategy="softmax"),
    shared("softmax: equal scores, equal shares", ["0.5", "0.5", "0.5"], ["1/3", "1/3", "1/3"], strategy="softmax"),
    shared("softmax, T = 0.1", PEER, strategy="softmax", temperature="0.1"),
    shared("softmax, T = 0.01: the exponent is −99.9999999", ["1", "0.000000001"], strategy="softmax", temperature="0.01"),
    shared("softmax, T = 10", PEER, strategy="softmax", temperature="10"),
    shared("softmax, T = 1/3 cut at nanos", PEER, strategy="softmax", temperature="0.333333333"),
    shared("softmax: a score of 0 takes no part", ["0.5", "0"], ["1/1", "0/1"], strategy="softmax"),
    shared("the floor: at it one takes part", ["0.8", "0.5", "0.499999999"], ["8/13", "5/13", "0/1"], min_score="0.5"),
    shared("nobody above the floor", ["0.3", "0.2"], ["0/1", "0/1"], "1/1", min_score="50%"),
    shared("nobody at all", [], [], "1/1"),
    shared("only zeros", ["0", "0"], ["0/1", "0/1"], "1/1", strategy="ranked"),
    refused("an unknown strategy", {"reward": {"strategy": "cubic"}, "scores": ["0.5"]}, "there is no such strategy"),
    refused(
        "a temperature below 0.01",
        {"reward": {"strategy": "softmax", "temperature": "0.009"}, "scores": ["0.5"]},
        "T is at least 0.01",
    ),
    refused("a top of 0", {"reward": {"strategy": "winner-takes-all", "top": 0}, "scores": ["0.5"]}, "somebody wins"),
]


def limited(
    name: str,
    cap: str,
    shares: list[str],
    to: list[str],
    burn: str = "0/1",
    unallocated: str = "0/1",
    excess: str = "redistribute",
) -> CaseDraft:
    given = {"reward": {"cap": cap, "excess": excess}, "shares": shares}
    return case(name, given, {"shares": to, "burn": burn, "unallocated": unallocated})


STEEP = ["9/10", "2/25", "1/50"]
CAP = [
    limited("water-filling needs two passes", "0.4", STEEP, ["2/5", "2/5", "1/5"]),
    limited("80/15/5 % under 50 %", "50%", ["4/5", "3/20", "1/20"], ["1/2", "3/8", "1/8"]),
    limited("nobody left to take the excess: it burns", "0.5", ["1/1"], ["1/2"], burn="1/2"),
    limited("six participants under 15 %: a tenth burns", "15%", ["1/6"] * 6, ["3/20"] * 6, burn="1/10"),
    limited("seven participants under 15 % are not capped", "15%", ["1/7"] * 7, ["1/7"] * 7),
    limited("all end at the cap, exactly", "0.25", ["7/10", "1/10", "1/10", "1/10"], ["1/4"] * 4),
    limited("at the cap is not above it", "0.5", ["1/2", "1/2"], ["1/2", "1/2"]),
    limited("no cap", "100%", STEEP, STEEP),
    limited("those without a share take no excess", "0.5", ["1/1", "0/1"], ["1/2", "0/1"], burn="1/2"),
    limited("the last pass lifts nobody above the cap", "0.3", ["1/2", "1/4", "3/20", "1/10"], ["3/10", "3/10", "6/25", "4/25"]),
    limited("what does not sum to 1 is not filled up", "0.5", ["3/5", "1/10"], ["1/2", "1/5"]),
    limited("little altogether, all of it in one place", "0.3", ["2/5"], ["3/10"], burn="1/10"),
    limited("a cap that nanos cut", "0.333333333", ["1/1"], ["333333333/1000000000"], burn="666666667/1000000000"),
    limited("drop: what is cut is unallocated", "0.4", STEEP, ["2/5", "2/25", "1/50"], unallocated="1/2", excess="drop"),
    limited("burn: what is cut burns", "0.4", STEEP, ["2/5", "2/25", "1/50"], burn="1/2", excess="burn"),
    limited("drop without anything to cut", "0.9", STEEP, STEEP, excess="drop"),
    limited("nobody", "0.5", [], []),
    refused("a cap of 0", {"reward": {"cap": "0"}, "shares": ["1/1"]}, "nobody could be paid"),
    refused("shares above 1", {"reward": {}, "shares": ["2/3", "2/3"]}, "shares sum to 1 or less"),
    refused(
        "drop with exact-sum",
        {"reward": {"excess": "drop", "encoding": "exact-sum"}, "shares": ["1/1"]},
        "a part is left that nobody has",
    ),
    refused(
        "drop with max-upscale",
        {"reward": {"excess": "drop", "encoding": "max-upscale"}, "shares": ["1/1"]},
        "drop goes with round only",
    ),
]


def u16(
    name: str, encoding: str, shares: list[str], burn: str, to: list[int], burnt: int, chain: list[int], chain_burnt: int
) -> CaseDraft:
    given = {"encoding": encoding, "shares": shares, "burn": burn}
    return case(name, given, {"u16": to, "burn_u16": burnt, "chain_u16": chain, "burn_chain_u16": chain_burnt})


MAX = 65535
ENCODING = [
    u16("a half is 32768, halves up", "round", ["1/2", "1/2"], "0/1", [32768, 32768], 0, [MAX, MAX], 0),
    u16("six equal get 10923 each", "round", ["1/6"] * 6, "0/1", [10923] * 6, 0, [MAX] * 6, 0),
    u16(
        "exact-sum: the earlier half gets the one left over", "exact-sum", ["1/2", "1/2"], "0/1", [32768, 32767], 0, [MAX, MAX], 0
    ),
    u16("exact-sum: six equal", "exact-sum", ["1/6"] * 6, "0/1", [10923, 10923, 10923, 10922, 10922, 10922], 0, [MAX] * 6, 0),
    u16("exact-sum: the burn comes last", "exact-sum", ["1/2"], "1/2", [32768], 32767, [MAX], MAX),
    u16("exact-sum: everything burns", "exact-sum", ["0/1"], "1/1", [0], MAX, [0], MAX),
    u16("max-upscale: 100 and 200", "max-upscale", ["1/3", "2/3"], "0/1", [32768, MAX], 0, [32768, MAX], 0),
    u16("max-upscale: the burn can be the largest", "max-upscale", ["1/4"], "3/4", [21845], MAX, [21845], MAX),
    u16(
        "the chain's form is shown whatever the encoding",
        "round",
        ["1/2", "1/4"],
        "1/4",
        [32768, 16384],
        16384,
        [MAX, 32768],
        32768,
    ),
    u16("a share too small to be seen", "round", ["1/1000000", "999999/1000000"], "0/1", [0, MAX], 0, [0, MAX], 0),
    u16("half a unit is rounded up", "round", ["1/131070", "131069/131070"], "0/1", [1, MAX], 0, [1, MAX], 0),
    u16("less than half a unit is not", "round", ["1/131071", "131070/131071"], "0/1", [0, MAX], 0, [1, MAX], 0),
    u16("an unallocated part is nobody's", "round", ["1/2"], "0/1", [32768], 0, [MAX], 0),
    refused(
        "exact-sum with a part that is nobody's",
        {"encoding": "exact-sum", "shares": ["1/2"], "burn": "1/4"},
        "exact-sum gives out everything",
    ),
    refused("more than there is", {"encoding": "round", "shares": ["1/1"], "burn": "1/4"}, "shares and burn sum to at most 1"),
]


def weighed(name: str, people: list[Any], expect: Doc | None = None, **reward: Any) -> CaseDraft:
    """People: a score, or (score, kept), or (score, kept, False) for one that is not registered."""
    names = ("score", "kept", "registered")
    rows = [dict(zip(names, person if isinstance(person, tuple) else (person,), strict=False)) for person in people]
    return case(name, {"reward": reward, "participants": rows}, expect)


def as_u16(*values: int, burn: int | None = None, **more: Any) -> Doc:
    return {"weights": [{"u16": value} for value in values], **({} if burn is None else {"burn": {"u16": burn}}), **more}


WEIGHTS = [
    weighed("a peer's scores, linear", PEER, as_u16(26493, 22310, 16732), **WHOLE),
    weighed("a peer's scores, quadratic", PEER, as_u16(31088, 22046, 12401), strategy="quadratic", **WHOLE),
    weighed("a peer's scores, ranked", PEER, as_u16(32768, 21845, 10923), strategy="ranked", **WHOLE),
    weighed("a peer's scores, softmax", PEER, as_u16(25546, 21987, 18002), strategy="softmax", temperature="1", **WHOLE),
    weighed("a peer's scores, the top two", PEER, as_u16(32768, 32768, 0), strategy="winner-takes-all", top=2, **WHOLE),
    weighed("six equal scores", ["0.5"] * 6, as_u16(*[10923] * 6), **WHOLE),
    weighed("direct, alone", ["0.35"], as_u16(22937, burn=42598), strategy="direct", **WHOLE),
    weighed("direct, above 1", ["1", "0.5", "0.5"], as_u16(32768, 16384, 16384, burn=0), strategy="direct", **WHOLE),
    weighed("all decay alike: W₀ = B·65535", [("0.5", "0.9"), ("0.5", "0.9")], as_u16(29491, 29491, burn=6554), **WHOLE),
    weighed(
        "decay of one burns; the other does not gain",
        [("0.5", "0.2"), "0.5"],
        {"weights": [{"share": "0.1"}, {"share": "0.5"}], "burn": {"share": "0.4", "decay": "0.4"}},
    ),
    weighed(
        "decay comes after the cap", [("0.9", "0.5"), "0.1"], {"weights": [{"capped": "0.5", "share": "0.25"}, {"share": "0.5"}]}
    ),
    weighed(
        "an unregistered share burns",
        ["0.5", ("0.5", "1", False)],
        {
            "weights": [{"u16": 32768}, {"capped": "0.5", "share": "0", "u16": 0, "chain_u16": 0}],
            "burn": {"unregistered": "0.5", "u16": 32768},
        },
    ),
    weighed(
        "the unregistered keep their place under the cap",
        [("0.9", "1", False), "0.06", "0.04"],
        {"weights": [{"capped": "0.5", "share": "0"}, {"share": "0.3"}, {"share": "0.2"}], "burn": {"unregistered": "0.5"}},
    ),
    weighed(
        "the unregistered decay before they burn",
        [("1", "0.9", False)],
        {"burn": {"strategy": "0", "cap": "0", "decay": "0.1", "unregistered": "0.9", "u16": 65535}},
        **WHOLE,
    ),
    weighed("nobody is registered", [("0.6", "1", False), ("0.4", "1", False)], as_u16(0, 0, burn=65535)),
    weighed("nobody takes part", ["0", "0"], as_u16(0, 0, burn=65535)),
    weighed("nobody at all", [], as_u16(burn=65535)),
    weighed(
        "every burn at once",
        [("0.5", "0.9"), ("0.3", "1", False)],
        {"burn": {"strategy": "0.2", "cap": "0.1", "decay": "0.04", "unregistered": "0.3"}},
        strategy="direct",
        cap="0.4",
        excess="burn",
    ),
    weighed(
        "drop leaves a part unallocated", ["0.8", "0.2"], {"unallocated": "0.3", "burn": {"share": "0", "u16": 0}}, excess="drop"
    ),
    weighed(
        "what is unallocated does not decay",
        [("0.8", "0.5"), "0.2"],
        {"unallocated": "0.3", "burn": {"share": "0.25"}},
        excess="drop",
    ),
    weighed("exact-sum: the whole 65535", ["0.5", "0.3", ("0.2", "0.95"), ("0.1", "1", False)], None, encoding="exact-sum"),
    weighed("max-upscale", ["0.5", ("0.5", "0.5")], as_u16(65535, 32768, burn=32768), encoding="max-upscale"),
    weighed(
        "thirds are not rounded before they are encoded",
        ["0.1", "0.1", "0.1"],
        {"weights": [{"share": "0.333333333", "u16": 21845}] * 3},
    ),
]


FILES = [
    File("strategy", "strategy", "Agreed scores into exact shares (SPEC 4, Floor and Strategy).", STRATEGY),
    File("cap", "cap", "The cap on a share, and the excess (SPEC 4, Cap).", CAP),
    File("encoding", "encoding", "Exact shares into u16 (SPEC 4, Encoding).", ENCODING),
    File("weights", "weights", "Agreed scores into weights and burn, all steps together (SPEC 4).", WEIGHTS),
]
