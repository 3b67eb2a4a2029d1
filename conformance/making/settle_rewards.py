"""Cases of whole settlements: weights, decay from one settlement to the next, payouts. SPEC 4, 5."""

from __future__ import annotations

from .case import case
from .worlds import ALONE, CHECKS, MET, Doc, after, evidence, given, record, settled, tests, weights

REWARD = [
    case("0.8, 0.6, 0.2 are 50, 37.5 and 12.5 %", given({"a": "0.8", "b": "0.6", "c": "0.2"}), weights("0.5", "0.375", "0.125")),
    case(
        "a participant without a uid: its share burns",
        given({"a": "0.5", "b": "0.5"}, people={"b": {"uid": None}}),
        weights("0.5", "0", burn={"share": "0.5", "unregistered": "0.5"}),
    ),
    case(
        "a score of 0 is agreed and has no weight",
        given({"a": "0.5", "b": "0"}, reward={"cap": "100%"}),
        weights("1", "0", ranking=["a", "b"]),
    ),
    case("below the floor", given({"a": "0.5", "b": "0.4"}, reward={"min_score": "0.5", "cap": "1"}), weights("1", "0")),
    case(
        "the burn UID may be another", given({"a": "0.5"}, decay={"burn_uid": 7}), weights("0.5", burn={"uid": 7, "u16": 32768})
    ),
    case(
        "with another burn UID, 0 is a uid",
        given({"a": "0.5"}, decay={"burn_uid": 7}, people={"a": {"uid": 0}}),
        {"weights": [{"uid": 0}]},
    ),
    case(
        "drop leaves a part unallocated",
        given({"a": "0.5"}, reward={"excess": "drop"}),
        weights("0.5", unallocated="0.5", burn={"share": "0"}),
    ),
]


OLD = {"last_reset_epoch": 0}
DECAY = [
    *(
        case(
            f"decay epoch {epoch} keeps {note}",
            given({"a": "0.5"}, epoch=epoch, people={"a": OLD}, reward={"cap": "1"}),
            {"weights": [{"last": 0, "kept": kept, "share": kept}]},
        )
        for epoch, note, kept in ((10, "all", "1"), (11, "95 %", "0.95"), (26, "20 %", "0.2"), (500, "20 %", "0.2"))
    ),
    case(
        "without last_reset_epoch a clock starts now", given({"a": "0.5"}, epoch=500), {"weights": [{"last": 500, "kept": "1"}]}
    ),
    case(
        "the competition's clock: all decay alike",
        given(
            {"a": "0.5", "b": "0.5"},
            epoch=22,
            decay={"clock": "competition"},
            history=[{"epoch": 10, "top_score": "0.6", "submission": "h", "task_set": ""}],
        ),
        {"weights": [{"last": 10, "kept": "0.9", "u16": 29491}] * 2, "burn": {"u16": 6554}},
    ),
    case(
        "the competition's clock without a record",
        given({"a": "0"}, epoch=22, decay={"clock": "competition"}),
        {"weights": [{"last": None, "kept": "1"}]},
    ),
    case(
        "a better submission resets its clock",
        after(
            given({"a": "0.5"}),
            given(
                {"a": "0.6"},
                epoch=30,
                people={"a": {"submission": "new"}},
                evidence=[row | {"submission": "new"} for row in evidence({"a": ["0.6"] * 3}, epoch=30)],
            ),
        ),
        {"weights": [{"last": 30, "kept": "1"}]},
    ),
    case(
        "the same submission does not",
        after(given({"a": "0.5"}), given({"a": "0.5"}, epoch=30)),
        {"weights": [{"last": 5, "kept": "0.25"}]},
    ),
    case(
        "a new task set restarts the clocks",
        after(tests({"a": ["pf"] * 3}), tests({"a": ["pf"] * 3}, epoch=30, tasks=["t1"])),
        {"weights": [{"last": 30, "kept": "1"}], "clock": {"record": "1", "last": 30}},
    ),
    case(
        "the same task set in another order does not",
        after(tests({"a": ["pf"] * 3}), tests({"a": ["pf"] * 3}, epoch=30, tasks=["t2", "t1"])),
        {"weights": [{"last": 5}]},
    ),
    case(
        "a settlement before overrides history.csv",
        after(
            given({"a": "0.5"}, decay={"clock": "competition"}),
            given(
                {"a": "0.5"},
                epoch=30,
                decay={"clock": "competition"},
                history=[{"epoch": 29, "top_score": "0.9", "submission": "h"}],
            ),
        ),
        {"weights": [{"last": 5}]},
    ),
    case(
        "one that left the registry keeps its clock",
        after(given({"a": "0.5", "b": "0.4"}), given({"a": "0.5"}, epoch=30)),
        {"clock": {"participants": [{"participant": "a"}, {"participant": "b", "last": 5}]}},
    ),
]


PAID: Doc = {"reward": {"kind": "payout"}, "consensus": ALONE}
PAYOUT = [
    case(
        "a payout has no weights",
        given({"a": ["0.7"]}, payout={"deposit": "1000"}, **PAID),
        {
            "weights": [],
            "burn": None,
            "unallocated": "0",
            "released": "1000",
            "tier_bps": 10000,
            "refund": "0",
            "payouts": [{"participant": "a", "place": 1, "net": "1000"}],
        },
    ),
    case(
        "places go by ranking, with their addresses",
        given(
            {"a": ["0.7"], "b": ["0.9"]},
            payout={"deposit": "1000", "split": [6000, 4000]},
            people={"b": {"address": "0x" + "Ab" * 20}},
            **PAID,
        ),
        {
            "payouts": [
                {"participant": "b", "address": "0x" + "Ab" * 20, "net": "600"},
                {"participant": "a", "address": None, "net": "400"},
            ]
        },
    ),
    case(
        "ties go to the earlier submission",
        given(
            {"a": ["0.7"], "b": ["0.7"]},
            payout={"deposit": "1000"},
            people={"b": {"submitted_at": "2026-01-01T00:00:00Z"}},
            **PAID,
        ),
        {"payouts": [{"participant": "b", "net": "1000"}]},
    ),
    case(
        "nobody agreed: the deposit is refunded",
        given({"a": ["0.7"]}, payout={"deposit": "1000"}, reward={"kind": "payout"}),
        {"payouts": [], "refund": "1000", "released": "0", "tier_bps": 0, "fees": "0"},
    ),
    case(
        "rubric: payouts go by BPS",
        settled(
            "rubric",
            [record("rubric", "v1", "a", baseline=MET, checks={"C1": True, "C2": False}, verdict="COHERENT")],
            score={"checks": CHECKS},
            payout={"deposit": "1001", "threshold_bps": 7500},
            **PAID,
        ),
        {"agreed": [{"bps": 6000}], "tier_bps": 5000, "released": "500", "refund": "501"},
    ),
    case(
        "an unjudged submission does not hold the others up",
        settled(
            "rubric",
            [
                record("rubric", "v1", "a", outcome="unjudged"),
                record("rubric", "v1", "b", baseline=MET, checks={"C1": True, "C2": True}, verdict="COHERENT"),
            ],
            score={"checks": CHECKS},
            payout={"deposit": "1000"},
            **PAID,
        ),
        {"payouts": [{"participant": "b"}], "agreed": [{"participant": "b"}, {"participant": "a", "status": "unjudged"}]},
    ),
    case(
        "the deposit is given out to the last wei",
        given(
            {"a": ["1"], "b": ["0.9"], "c": ["0.8"]},
            payout={"deposit": "99999999999999999999999", "split": [3333, 3333, 3334], "fee_bps": 333},
            **PAID,
        ),
    ),
]


NOTHING: Doc = {"weights": [], "burn": None, "payouts": [], "unallocated": "0"}
RANKED: Doc = {"reward": {"kind": "ranking"}, "consensus": ALONE | {"combine": "mean"}}
RANKING = [
    case(
        "a ranking has neither weights nor payouts, and nothing burns",
        tests({"a": ["pf", "ff"], "b": ["pp"], "c": ["pe"]}, **RANKED),
        NOTHING | {"ranking": ["b", "a"], "agreed": [{"score": "1"}, {"score": "0.25"}, {"participant": "c", "score": None}]},
    ),
    case(
        "equal scores of a ranking are in the order of submission, then key",
        given(
            {"a": ["0.7"], "b": ["0.7"], "c": ["0.7"]},
            people={"c": {"submitted_at": "2026-01-01T00:00:00Z"}},
            **RANKED,
        ),
        NOTHING | {"ranking": ["c", "a", "b"]},
    ),
    case(
        "a ranking keeps its clocks",
        after(given({"a": ["0.5"]}, **RANKED), given({"a": ["0.5"]}, epoch=30, **RANKED)),
        NOTHING | {"clock": {"participants": [{"participant": "a", "last": 5}]}},
    ),
]


DRAFTS = [*REWARD, *DECAY, *PAYOUT, *RANKING]
