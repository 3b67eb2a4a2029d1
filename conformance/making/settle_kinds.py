"""Cases of whole settlements: each kind of evidence, as a settlement counts it. SPEC 2."""

from __future__ import annotations

from typing import Any

from .case import case
from .worlds import ALONE, CHECKS, MET, agreed, record, settled, status, tests, workflow

YES: dict[str, Any] = {"baseline": MET, "checks": {"C1": True, "C2": True}, "verdict": "COHERENT"}

KINDS = [
    case("tests: a timeout is a fail", tests({"a": ["pt", "pt", "pt"]}), {"agreed": [{"score": "0.5"}]}),
    case(
        "tests: an error is missing, never a fail",
        tests({"a": ["pp", "pp", "pe"]}),
        {
            "agreed": [
                {
                    "status": "incomplete",
                    "reason": "missing-trials",
                    "not_counted": [{"validator": "v3", "reason": "incomplete", "missing": 1}],
                }
            ]
        },
    ),
    case(
        "tests: a validator that misses a task does not count",
        tests({"a": ["pp", "pp", "pp", "f-"]}),
        {"agreed": [{"score": "1", "not_counted": [{"validator": "v4", "reason": "incomplete", "missing": 1}]}]},
    ),
    case(
        "tests: tasks outside the set are not counted",
        tests({"a": ["ppf", "ppf", "ppf"]}, tasks=["t1", "t2"]),
        {"agreed": [{"score": "1", "validators": [{"work": {"passed": 2, "trials": 2}}] * 3}]},
    ),
    case(
        "tests: two trials of each task",
        settled(
            "tests",
            [
                record("tests", "v1", "a", task=task, trial=trial, outcome="pass" if (task, trial) != ("t2", 2) else "fail")
                for task in ("t1", "t2")
                for trial in (1, 2)
            ],
            score={"trials": 2},
            consensus=ALONE,
        ),
        {"agreed": [{"score": "0.75"}]},
    ),
    case(
        "tests: a trial that was not asked for is not counted",
        settled(
            "tests",
            [record("tests", "v1", "a", task="t1", trial=trial, outcome="pass" if trial == 1 else "fail") for trial in (1, 2)],
            consensus=ALONE,
        ),
        {"agreed": [{"score": "1"}]},
    ),
    case(
        "tests: the first trial of two is not enough",
        tests({"a": ["p", "p", "p"]}, score={"trials": 2}),
        status(("a", "incomplete", "missing-trials")),
    ),
    case(
        "tests: a submission without any run",
        tests({"a": ["p", "p", "p"]}, people={"b": {}}),
        status(("a", "agreed", None), ("b", "no-quorum", "no-evidence")),
    ),
    case("tests: 73 of 91 by three validators", tests({"a": ["p" * 73 + "f" * 18] * 3}), {"agreed": [{"score": "0.802197802"}]}),
    case(
        "tests: n of the noise is tasks times trials",
        tests({"a": ["p" * 7 + "f" * 3] * 3 + ["p" * 8 + "f" * 2]}, consensus={"outliers": {"scale": "noise"}}),
        {
            "agreed": [
                {"score": "0.725", "validators": [{"flagged": False, "z_squared": "0"}] * 3 + [{"z_squared": "0.476190476"}]}
            ]
        },
    ),
    case(
        "tests: a manifest pins the task set, its ids count",
        tests({"a": ["pp", "pp", "pp"]}, tasks=["t1 sha256:" + "0" * 64, "t2 snapshot"]),
        {"agreed": [{"score": "1"}]},
    ),
    case(
        "workflow: the mean of the tasks",
        workflow([{"task": "t1"}, {"task": "t2", "quality": "0"}]),
        {"agreed": [{"score": "0.55", "validators": [{"work": {"tasks": 2}}]}]},
    ),
    case(
        "workflow: an invalid plan is 0",
        workflow([{"task": "t1"}, {"task": "t2", "outcome": "invalid"}]),
        {"agreed": [{"score": "0.5"}]},
    ),
    case(
        "workflow: the last two by epoch, then task",
        workflow(
            [
                {"task": "t9", "epoch": 3, "quality": "0"},
                {"task": "t2", "epoch": 4},
                {"task": "t10", "epoch": 4, "quality": "0"},
                {"task": "t1", "epoch": 5},
            ],
            score={"window": 2},
        ),
        {"agreed": [{"score": "1"}]},
    ),
    case(
        "workflow: a service error takes the task out for everybody",
        workflow(
            [
                {"task": "t1"},
                {"task": "t2", "quality": "0"},
                {"participant": "b", "task": "t1", "quality": "0"},
                {"participant": "b", "task": "t2", "outcome": "service-error"},
            ]
        ),
        {"agreed": [{"participant": "a", "score": "1"}, {"participant": "b", "score": "0.1"}]},
    ),
    case(
        "workflow: but of that validator and that epoch alone",
        workflow(
            [
                {"task": "t1"},
                {"task": "t1", "epoch": 4, "outcome": "service-error"},
                {"task": "t1", "validator": "v2", "quality": "0", "outcome": "service-error"},
            ]
        ),
        {"agreed": [{"score": "1", "not_counted": [{"validator": "v2", "reason": "no-tasks"}]}]},
    ),
    case(
        "workflow: nothing is left after service errors",
        workflow([{"task": "t1", "outcome": "service-error"}]),
        {"agreed": [{"status": "no-quorum", "reason": "no-evidence", "not_counted": [{"reason": "no-tasks"}]}]},
    ),
    case(
        "workflow: each task is rounded, then the mean",
        workflow(
            [{"task": "t1", "quality": "0.000000001"}, {"task": "t2", "quality": "0.000000003"}, {"task": "t3", "quality": "0"}]
        ),
    ),
    case(
        "workflow: with a warm-up a share grows with the tasks seen",
        workflow(
            [{"task": "t1"}, {"participant": "b", "task": "t1"}, {"participant": "b", "task": "t2"}],
            score={"warm_up": 2},
            people={"b": {"last_reset_epoch": 0}},
            decay={"grace_epochs": 4, "rate": "50%"},
        ),
        {
            "weights": [
                {"participant": "a", "tasks_seen": 1, "warm": "0.5", "share": "0.25"},
                {"participant": "b", "tasks_seen": 2, "warm": "1", "kept": "0.5", "share": "0.25"},
            ],
            "burn": {"decay": "0.25", "warm_up": "0.25", "share": "0.5"},
        },
    ),
    case(
        "workflow: of what validators saw the lower median warms up",
        workflow(
            [{"task": f"t{task}", "validator": f"v{who}"} for who, count in enumerate((1, 2)) for task in range(count)],
            score={"warm_up": 2},
        ),
        {"weights": [{"tasks_seen": 1, "warm": "0.5", "share": "0.25"}]},
    ),
    case(
        "rubric: agreed BPS decide the ranking, not nanos",
        settled(
            "rubric",
            [
                record("rubric", v, p, baseline=MET, checks={"C1": True, "C2": v == "v2" and p == "b"}, verdict="COHERENT")
                for p in ("a", "b")
                for v in ("v1", "v2")
            ],
            score={"checks": CHECKS},
            consensus=ALONE,
            stakes={"v1": "9999999", "v2": "1"},
        ),
        {"agreed": [{"participant": "a", "bps": 6000, "score": "0.6"}, {"participant": "b", "bps": 6000, "score": "0.60000004"}]},
    ),
    case(
        "rubric: malformed is unjudged, not 0",
        settled(
            "rubric",
            [record("rubric", "v1", "a", baseline=MET, checks={"C1": True}, verdict="COHERENT")],
            score={"checks": CHECKS},
            consensus=ALONE,
        ),
        {"agreed": [{"status": "unjudged", "reason": "malformed-or-unjudged", "not_counted": [{"reason": "unjudged"}]}]},
    ),
    case(
        "rubric: unjudged is unjudged",
        settled("rubric", [record("rubric", "v1", "a", outcome="unjudged")], score={"checks": CHECKS}, consensus=ALONE),
        status(("a", "unjudged", "malformed-or-unjudged")),
    ),
    *(
        case(
            f"rubric: a suspected injection {what}",
            settled(
                "rubric",
                [
                    record("rubric", "v1", "a", **YES, injection_suspected=True),
                    record("rubric", "v1", "b", **YES, injection_suspected=False),
                ],
                score={"checks": CHECKS} | rules,
                consensus=ALONE,
            ),
            status(*expected),
        )
        for what, rules, expected in (
            ("is noted", {}, [("a", "agreed", None), ("b", "agreed", None)]),
            (
                "counts as unjudged",
                {"injection": "unjudged"},
                [("b", "agreed", None), ("a", "unjudged", "malformed-or-unjudged")],
            ),
        )
    ),
    case(
        "rubric: the baseline gate is a score of 0",
        settled("rubric", [record("rubric", "v1", "a", baseline=MET | {"B2": False})], score={"checks": CHECKS}, consensus=ALONE),
        {"agreed": [{"status": "agreed", "score": "0", "bps": 0}], "weights": [{"share": "0"}]},
    ),
    case(
        "points: sums over epochs, revoked later",
        settled(
            "points",
            [
                record("points", "v1", "a", epoch, repository="org/one", valid=valid, revoked_valid=revoked)
                for epoch, valid, revoked in ((1, 10, 0), (3, 5, 0), (5, 0, 4))
            ],
            score={"repositories": {"org/one": "5"}},
            consensus=ALONE,
        ),
        {"agreed": [{"score": "0.55", "validators": [{"work": {"valid": 11, "points": "55"}}]}]},
    ),
    case(
        "points: sums floor at 0, by repository",
        settled(
            "points",
            [
                record("points", "v1", "a", repository="org/one", revoked_valid=9),
                record("points", "v1", "a", repository="org/two", valid=2),
            ],
            score={"repositories": {"org/one": "5", "org/two": "5"}},
            consensus=ALONE,
        ),
        {"agreed": [{"score": "0.1"}]},
    ),
    case(
        "points: the window is the last epochs",
        settled(
            "points",
            [record("points", "v1", "a", epoch, repository="org/one", valid=1) for epoch in (2, 3, 4, 5)],
            score={"repositories": {"org/one": "5"}, "window_epochs": 3},
            consensus=ALONE,
        ),
        {"agreed": [{"score": "0.15"}]},
    ),
    case(
        "points: the latest star counts, though outside the window",
        settled(
            "points",
            [
                record("points", "v1", "a", 2, repository="org/one", starred=True),
                record("points", "v1", "a", 5, repository="org/two", valid=1),
            ],
            score={"repositories": {"org/one": "5", "org/two": "5"}, "window_epochs": 1},
            consensus=ALONE,
        ),
        {"agreed": [{"score": "0.0525"}]},
    ),
    case(
        "points: a star taken back",
        settled(
            "points",
            [
                record("points", "v1", "a", 2, repository="org/one", starred=True),
                record("points", "v1", "a", 5, repository="org/one", valid=1),
            ],
            score={"repositories": {"org/one": "5"}},
            consensus=ALONE,
        ),
        {"agreed": [{"score": "0.05"}]},
    ),
    case(
        "points: submissions are not looked at",
        settled(
            "points",
            [
                record("points", "v1", "a", repository="org/one", valid=1, submission="old"),
                record("points", "v1", "b", repository="org/one", valid=2),
            ],
            score={"repositories": {"org/one": "5"}},
            consensus=ALONE,
            people={"a": {"submission": "same"}, "b": {"submission": "same"}},
        ),
        agreed("b", "a"),
    ),
    case(
        "points: everything outside the window is no evidence",
        settled(
            "points",
            [record("points", "v1", "a", 2, repository="org/one", valid=1)],
            score={"repositories": {"org/one": "5"}, "window_epochs": 1},
            consensus=ALONE,
        ),
        status(("a", "no-quorum", "no-evidence")),
    ),
    case(
        "points: issues elsewhere are not counted",
        settled(
            "points",
            [
                record("points", "v1", "a", repository="org/else", valid=9),
                record("points", "v1", "a", repository="org/one", valid=1),
            ],
            score={"repositories": {"org/one": "5"}},
            consensus=ALONE,
        ),
        {"agreed": [{"score": "0.05"}]},
    ),
]


DRAFTS = KINDS
