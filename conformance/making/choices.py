"""Cases of rules that a scheme may read in another way than the seeds: `passed_by`, `invalid`, `stars_alone`. SPEC 2.4, 3.0.

Each list is appended to a file of another module, after the cases that stand there.
"""

from __future__ import annotations

from typing import Any

from .case import case, refused
from .defaults import CONSENSUS, DECAY, REWARD
from .worlds import ALONE, SEEDED, Doc, record, settled, status, tests

ALL: Doc = {"passed_by": "all"}
TABLE: Doc = {"org/one": "5", "org/two": "0.5"}
HEAD: Doc = {"scheme": {"name": "s", "version": "1.0.0"}}
TESTS: Doc = {"kind": "tests", "agent_timeout": "fail", "trials": 1}
POINTS: Doc = {
    "kind": "points",
    "repositories": {"org/one": "5"},
    "star_points": "0.25",
    "star_max": "1.25",
    "full_points": 100,
}


def scheme(name: str, score: Doc, whole: Doc) -> Any:
    document = HEAD | {"score": whole, "consensus": CONSENSUS, "reward": REWARD, "decay": DECAY}
    return case(name, {"scheme": HEAD | {"score": score}}, {"document": document})


def wrong(name: str, why: str, **sections: Any) -> Any:
    return refused(name, {"scheme": HEAD | sections}, why)


SCHEMES = [
    scheme("a task passes by each validator, as without the rule", TESTS | {"passed_by": "each"}, TESTS),
    scheme("a task passes by all validators", TESTS | ALL, TESTS | ALL),
    scheme("more invalid issues than valid ones give 0, as without the rule", POINTS | {"invalid": "gate"}, POINTS),
    scheme("invalid issues take points", POINTS | {"invalid": "subtract"}, POINTS | {"invalid": "subtract"}),
    scheme("stars do not count alone, as without the rule", POINTS | {"stars_alone": False}, POINTS),
    scheme("stars count alone", POINTS | {"stars_alone": True}, POINTS | {"stars_alone": True}),
    wrong("a task passes by most validators", "each or all", score=TESTS | {"passed_by": "most"}),
    wrong("invalid issues are forgotten", "gate or subtract", score=POINTS | {"invalid": "forget"}),
    wrong("stars alone as a number", "booleans are booleans", score=POINTS | {"stars_alone": 1}),
    wrong("stars alone, of no points", "it does nothing", score=POINTS | {"stars_alone": True, "star_points": "0"}),
    wrong("stars alone, at most 0 points", "it does nothing", score=POINTS | {"stars_alone": True, "star_max": "0"}),
    wrong("a task of another kind passes by all", "schemes are closed", score={"kind": "given"} | ALL),
    wrong(
        "noise, and one score of all validators",
        "input: noise does nothing where all have one score",
        score=TESTS | ALL,
        consensus={"outliers": {"scale": "noise"}},
    ),
]


def issues(name: str, points: str, score: str, valid: Doc, unlike: Any, starred: int = 0, **rules: Any) -> Any:
    section = {"kind": "points", "repositories": TABLE, **rules}
    given = {"score": section, "valid": valid, "invalid": unlike, "starred": starred}
    return case(name, given, {"points": points, "score": score})


TAKES: Doc = {"invalid": "subtract"}
ISSUES = [
    issues("subtract: an invalid issue takes the points of its repository", "10", "0.1", {"org/one": 3}, {"org/one": 1}, **TAKES),
    issues("subtract: of another repository than the valid ones", "14", "0.14", {"org/one": 3}, {"org/two": 2}, **TAKES),
    issues("subtract: no less than 0", "0", "0", {"org/two": 3}, {"org/one": 1}, **TAKES),
    issues("subtract: more invalid than valid is no gate", "3.5", "0.035", {"org/one": 1}, {"org/two": 3}, **TAKES),
    issues("subtract: from the points of stars too", "0.5", "0.005", {"org/two": 1}, {"org/two": 1}, 2, **TAKES),
    issues("subtract: stars alone are nothing", "0", "0", {}, {}, 2, **TAKES),
    issues("subtract: after the limit of stars, before that of the score", "100", "1", {"org/one": 21}, {"org/one": 1}, **TAKES),
    issues("a gate may be told of each repository too", "0", "0", {"org/one": 1}, {"org/one": 1, "org/two": 1}),
    issues("stars alone", "0.5", "0.005", {}, 0, 2, stars_alone=True),
    issues("stars alone, and an invalid issue", "0", "0", {}, 1, 2, stars_alone=True),
    issues(
        "stars alone, and an invalid issue that takes points",
        "0.25",
        "0.0025",
        {},
        {"org/two": 2},
        2,
        stars_alone=True,
        star_points="1",
        **TAKES,
    ),
    refused(
        "subtract: invalid issues of nowhere",
        {"score": {"kind": "points", "repositories": TABLE} | TAKES, "valid": {}, "invalid": 3, "starred": 0},
        "the points are those of a repository",
    ),
    refused(
        "subtract: invalid issues outside the table",
        {"score": {"kind": "points", "repositories": TABLE} | TAKES, "valid": {}, "invalid": {"org/else": 1}, "starred": 0},
        "issues elsewhere are not counted",
    ),
]


def seen(name: str, outcomes: Doc, expect: Doc, **parts: Any) -> Any:
    return case(f"passed by all: {name}", tests(outcomes, score=ALL | parts.pop("score", {}), **parts), expect)


def scores(score: str, *passed: int) -> Doc:
    """The agreed score, which every counting validator has, and how many trials each saw pass."""
    return {"agreed": [{"score": score, "validators": [{"score": score, "work": {"passed": count}} for count in passed]}]}


TRIALS = [
    record("tests", validator, "a", task=task, trial=trial, outcome="fail" if (validator, task, trial) in failed else "pass")
    for failed in [{("v1", "t1", 2), ("v2", "t3", 1), ("v2", "t3", 2)}]
    for validator in ("v1", "v2", "v3")
    for task in ("t1", "t2", "t3")
    for trial in (1, 2)
]
SETTLED = [
    seen("a task that one saw fail fails for all", {"a": ["ppff", "pppf", "pfpp"]}, scores("0.25", 2, 3, 3)),
    seen(
        "and the validators differ too much otherwise",
        {"a": ["p" * 10, "p" * 10, "p" * 10, "f" * 10]},
        scores("0", 10, 10, 10, 0),
    ),
    seen("who misses a trial is not asked", {"a": ["pppp", "pppp", "pppp", "fff-"]}, scores("1", 4, 4, 4)),
    seen("who has an error is not asked", {"a": ["pppp", "pppp", "pppp", "fffe"]}, scores("1", 4, 4, 4)),
    seen("who has no stake is not asked", {"a": ["pp", "pp", "pp", "ff"]}, scores("1", 2, 2, 2), stakes={"v4": "0"}),
    seen(
        "who has too little stake is not asked",
        {"a": ["pp", "pp", "pp", "ff"]},
        scores("1", 2, 2, 2),
        stakes={"v4": "99"},
        consensus={"min_validator_stake": "100"},
    ),
    seen(
        "who is not drawn is not asked",
        {"a": ["pf", "fp", "pp", "pp"]},
        {"agreed": [{"validators": [{}, {}], "not_counted": [{"reason": "not-assigned"}, {"reason": "not-assigned"}]}]},
        consensus={"assign": 2, "min_validators": 2},
        people={"a": {"accepted_epoch": 5}},
        randomness=SEEDED,
    ),
    seen("little stake is asked as much", {"a": ["ppp", "ppp", "ppf"]}, scores("0.666666667", 3, 3, 2), stakes={"v3": "1"}),
    seen("one validator alone", {"a": ["ppf"]}, scores("0.666666667", 2), consensus=ALONE),
    seen("tasks outside the set are not looked at", {"a": ["ppf", "ppp", "ppp"]}, scores("1", 2, 2, 2), tasks=["t1", "t2"]),
    seen(
        "each participant by itself",
        {"a": ["pp", "pp", "pf"], "b": ["pp", "pp", "pp"]},
        status(("b", "agreed", None), ("a", "agreed", None), ranking=["b", "a"]),
    ),
    seen(
        "validators without a quorum have one score too",
        {"a": ["pp", "pf"]},
        {"agreed": [{"status": "no-quorum", "score": None, "validators": [{"score": "0.5"}, {"score": "0.5"}]}]},
    ),
    case(
        "passed by all: every trial of every validator",
        settled("tests", TRIALS, score=ALL | {"trials": 2}),
        scores("0.333333333", 5, 4, 6),
    ),
    case(
        "points: an invalid issue takes the points of its repository",
        settled(
            "points",
            [
                record("points", "v1", "a", 3, repository="org/one", valid=4, invalid=2),
                record("points", "v1", "a", 4, repository="org/one", revoked_invalid=1),
                record("points", "v1", "a", repository="org/two", invalid=3, revoked_invalid=9),
                record("points", "v1", "b", repository="org/two", invalid=1, starred=True),
            ],
            score={"repositories": TABLE, "stars_alone": True} | TAKES,
            consensus=ALONE,
        ),
        {
            "agreed": [
                {"participant": "a", "score": "0.15", "validators": [{"work": {"valid": 4, "invalid": 1, "points": "15"}}]},
                {"participant": "b", "score": "0", "validators": [{"work": {"invalid": 1, "starred": 1, "points": "0"}}]},
            ]
        },
    ),
]
