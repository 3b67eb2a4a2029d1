"""Cases of whole settlements: whose evidence counts, for whom, and who comes first. SPEC 2, 3."""

from __future__ import annotations

from .case import case, refused
from .worlds import ALONE, SEEDED, agreed, evidence, given, record, settled, status, workflow

SUBMITTED = [
    case(
        "earlier submission breaks a tie",
        given(
            {"a": "0.8", "b": "0.8"},
            people={"a": {"submitted_at": "2026-01-02T00:00:00Z"}, "b": {"submitted_at": "2026-01-01T00:00:00Z"}},
        ),
        agreed("b", "a"),
    ),
    case(
        "times are instants, not text",
        given(
            {"a": "0.8", "b": "0.8"},
            people={"a": {"submitted_at": "2026-01-01T01:30:00+02:00"}, "b": {"submitted_at": "2026-01-01T00:00:00Z"}},
        ),
        agreed("a", "b"),
    ),
    case(
        "no time comes last",
        given({"a": "0.8", "b": "0.8"}, people={"b": {"submitted_at": "2026-01-01T00:00:00Z"}}),
        agreed("b", "a"),
    ),
    case("then the key's UTF-8 bytes", given({"z😀": "0.8", "z～": "0.8", "é": "0.8"}), agreed("z～", "z😀", "é")),
    case("capital letters come first", given({"b": "0.8", "C": "0.8"}), agreed("C", "b")),
    case(
        "the score comes before the time",
        given({"a": "0.8", "b": "0.800000001"}, people={"a": {"submitted_at": "2026-01-01T00:00:00Z"}}),
        agreed("b", "a"),
    ),
    case(
        "duplicate submission: the earliest counts",
        given(
            {"a": "0.8", "b": "0.9"},
            people={
                "a": {"submission": "same", "submitted_at": "2026-01-02T00:00:00Z"},
                "b": {"submission": "same", "submitted_at": "2026-01-01T00:00:00Z"},
            },
            evidence=[row | {"submission": "same"} for row in evidence({"a": ["0.8"] * 3})],
        ),
        {
            "agreed": [
                {"participant": "b", "score": "0.8"},
                {"participant": "a", "status": "duplicate", "reason": "same-submission", "duplicate_of": "b", "validators": []},
            ]
        },
    ),
    case(
        "duplicates of one time: the lower key counts",
        given(
            {"b": "0.8"},
            people={"b": {"submission": "same"}, "a": {"submission": "same"}},
            evidence=[row | {"submission": "same"} for row in evidence({"b": ["0.8"] * 3})],
        ),
        {"agreed": [{"participant": "a", "score": "0.8"}, {"participant": "b", "status": "duplicate"}]},
    ),
    case(
        "empty submissions are no duplicates",
        workflow(
            [{"participant": "a", "submission": "", "task": "t"}, {"participant": "b", "submission": "", "task": "t"}],
            people={"a": {"submission": ""}, "b": {"submission": ""}},
        ),
        agreed("a", "b"),
    ),
    case(
        "evidence about an older submission is not counted",
        given({"a": "0.8"}, people={"a": {"submission": "new"}}),
        status(("a", "no-quorum", "no-evidence")),
    ),
    case(
        "evidence names another participant: the submission's holder is meant",
        given({"a": ["0.8"] * 3}, people={"b": {"submission": "of-a"}, "a": {"submission": "of-b"}}),
        {"agreed": [{"participant": "b", "score": "0.8"}, {"participant": "a", "status": "no-quorum"}]},
    ),
]


STANDING = [
    case("an evaluation stands", given({"a": "0.8"}, epoch=900), agreed("a")),
    case(
        "evidence of later epochs is ignored",
        given({"a": "0.8"}, evidence=[*evidence({"a": ["0.8"] * 3}), *evidence({"a": ["0.1"] * 3}, epoch=6)]),
        agreed("a", epoch=5),
    ),
    case(
        "no epoch: the highest that has evidence",
        given({"a": "0.8"}, epoch=None, evidence=[*evidence({"a": ["0.8"] * 3}), *evidence({"a": ["0.1"] * 3}, epoch=6)]),
        agreed("a", epoch=6),
    ),
    case(
        "given: the latest epoch counts",
        given({"a": "0.8"}, evidence=[*evidence({"a": ["0.1"] * 3}, epoch=4), *evidence({"a": ["0.8"] * 3})]),
        {"agreed": [{"score": "0.8"}]},
    ),
    case("max_age_epochs: as old as that counts", given({"a": "0.8"}, epoch=7, consensus={"max_age_epochs": 2}), agreed("a")),
    case(
        "max_age_epochs: older does not",
        given({"a": "0.8"}, epoch=8, consensus={"max_age_epochs": 2}),
        status(("a", "no-quorum", "no-evidence")),
    ),
    case("max_age_epochs = 0: this epoch alone", given({"a": "0.8"}, consensus={"max_age_epochs": 0}), agreed("a")),
    case(
        "max_age_epochs: the next record takes the place of one too old",
        settled(
            "tests",
            [
                record("tests", "v1", "a", 1, task="t", outcome="fail", seq=1),
                record("tests", "v1", "a", 4, task="t", outcome="pass", seq=2),
            ],
            consensus=ALONE | {"max_age_epochs": 2},
        ),
        {"agreed": [{"score": "1"}]},
    ),
    case(
        "the first accepted of two different records",
        settled(
            "tests",
            [
                record("tests", "v1", "a", task="t", outcome="pass", seq=2),
                record("tests", "v1", "a", task="t", outcome="fail", seq=1),
            ],
            consensus=ALONE,
        ),
        {"agreed": [{"score": "0"}]},
    ),
    case(
        "the same record twice is one record",
        settled("tests", [record("tests", "v1", "a", task="t", outcome="pass")] * 2, consensus=ALONE),
        {"agreed": [{"score": "1"}]},
    ),
    case(
        "the same record under two names is one record",
        settled(
            "tests",
            [
                record("tests", "v1", "a", task="t", outcome="pass"),
                record("tests", "v1", "b", task="t", outcome="pass", submission="of-a"),
            ],
            consensus=ALONE,
        ),
        {"agreed": [{"participant": "a", "score": "1"}, {"participant": "b", "status": "no-quorum"}]},
    ),
    case(
        "workflow: a submission makes no other record",
        workflow([{"task": "t", "submission": "", "seq": 1, "quality": "0"}, {"task": "t", "seq": 2}]),
        status(("a", "no-quorum", "no-evidence")),
    ),
    refused(
        "conflict without seq refused",
        settled(
            "tests",
            [record("tests", "v1", "a", task="t", outcome="pass"), record("tests", "v1", "a", task="t", outcome="fail")],
            consensus=ALONE,
        ),
        "nothing says which was first",
    ),
    refused(
        "conflict of which one has a seq refused",
        settled(
            "tests",
            [record("tests", "v1", "a", task="t", outcome="pass", seq=1), record("tests", "v1", "a", task="t", outcome="fail")],
            consensus=ALONE,
        ),
        "nothing says which was first",
    ),
    refused(
        "conflict with one seq for two refused",
        settled(
            "tests",
            [
                record("tests", "v1", "a", task="t", outcome="pass", seq=1),
                record("tests", "v1", "a", task="t", outcome="fail", seq=1),
            ],
            consensus=ALONE,
        ),
        "nothing says which was first",
    ),
    case(
        "assign: three of five are drawn, the others do not count",
        given(
            {"a": ["0.5", "0.6", "0.7", "0.8", "0.9"]}, consensus={"assign": 3, "outliers": {"method": "none"}}, randomness=SEEDED
        ),
    ),
    case(
        "assign: the quorum is of the assigned",
        given(
            {"a": ["0.5", None, "0.7", "0.8", "0.9"]},
            consensus={"assign": 2, "min_validators": 1, "min_stake": "50%"},
            stakes={"v2": "100000"},
            randomness=SEEDED,
        ),
    ),
    case(
        "assign: drawn with the randomness of the epoch of acceptance",
        given(
            {"a": ["0.5", "0.6", "0.7", "0.8", "0.9"]},
            consensus={"assign": 1, "min_validators": 1},
            people={"a": {"accepted_epoch": 2}},
            randomness=SEEDED,
        ),
    ),
    case(
        "assign: else of the first evidence",
        given(
            {"a": "0.5"},
            consensus={"assign": 1, "min_validators": 1},
            evidence=[*evidence({"a": ["0.5", "0.6", "0.7"]}), *evidence({"a": ["0.5", "0.6", "0.7"]}, epoch=3)],
            randomness=SEEDED,
        ),
    ),
    case(
        "assign: nobody is drawn for a submission without evidence",
        given({"a": "0.5"}, consensus={"assign": 3}, people={"b": {}}, randomness=SEEDED),
        {"agreed": [{"participant": "a"}, {"participant": "b", "reason": "no-evidence", "needed_stake_of": "0"}]},
    ),
    case(
        "assign: those without stake are not drawn",
        given({"a": ["0.5", "0.6", "0.7"]}, consensus={"assign": 2, "min_validators": 2}, stakes={"v1": "0"}, randomness=SEEDED),
        agreed("a"),
    ),
    refused(
        "assign without randomness refused",
        given({"a": "0.5"}, consensus={"assign": 3}),
        "validators are drawn with the epoch's randomness",
    ),
]


AGREEING = [
    case(
        "a validator without stake is told, and does not count",
        given({"a": ["0.8", "0.8", "0.8", "0.1"]}, stakes={"v4": "0"}),
        {"agreed": [{"score": "0.8", "not_counted": [{"validator": "v4", "reason": "no-stake"}]}]},
    ),
    case(
        "stake below the minimum is told, and does not count",
        given({"a": ["0.8", "0.8", "0.8", "0.1"]}, stakes={"v4": "99"}, consensus={"min_validator_stake": "100"}),
        {"agreed": [{"score": "0.8", "not_counted": [{"validator": "v4", "reason": "stake-below-minimum"}]}]},
    ),
    case("too few validators", given({"a": ["0.8", "0.8"]}), status(("a", "no-quorum", "too-few-validators"))),
    case("too little stake", given({"a": ["0.8"] * 3}, stakes={"v4": "701"}), status(("a", "no-quorum", "too-little-stake"))),
    case(
        "too little stake after outliers",
        given({"a": ["0.5", "0.5", "0.9"]}, consensus={"recheck": True, "min_stake": "70%"}),
        {
            "agreed": [
                {
                    "status": "no-quorum",
                    "reason": "stake-after-outliers",
                    "median": "0.5",
                    "validators": [{}, {}, {"flagged": True, "excluded": True}],
                }
            ]
        },
    ),
    case(
        "flagged hold half the stake: nobody is excluded",
        given({"a": ["0.8", "0.8", "0.2"]}, stakes={"v3": "200"}),
        {"agreed": [{"score": "0.5", "flagged_majority": True, "validators": [{}, {}, {"flagged": True, "excluded": False}]}]},
    ),
    case(
        "those without an agreed score follow, by key",
        given({"b": "0.5", "z": ["0.9"], "a": ["0.9"]}),
        {"agreed": [{"participant": "b"}, {"participant": "a"}, {"participant": "z"}], "ranking": ["b"]},
    ),
    case(
        "without a quorum nobody is flagged",
        given({"a": ["0.5", "0.5", "0.9"]}, consensus={"min_validators": 4}),
        {"agreed": [{"median": None, "validators": [{"flagged": False, "modified_z": None}] * 3}]},
    ),
    case(
        "nobody has evidence",
        given({"a": "0.5"}, evidence=[], stakes={"v1": "1"}, people={"a": {}}),
        status(("a", "no-quorum", "no-evidence"), weights=[], burn={"u16": 65535, "strategy": "1"}),
    ),
]


DRAFTS = [*SUBMITTED, *STANDING, *AGREEING]
