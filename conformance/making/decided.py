"""Whole settlements for rules that a second implementer had to guess: each fails for the other reading. SPEC 1, 3."""

from __future__ import annotations

import hashlib
from typing import Any

from .case import CaseDraft, File, case, refused
from .oracle_side import digest_of
from .worlds import ALONE, CHECKS, MET, SEEDED, Doc, agreed, evidence, given, record, settled, status, tests, workflow

KEYS = ("v1", "v2", "v3", "v4")


def drawn(what: str, epoch: int, number: int) -> list[str]:
    """The validators that are drawn for a submission, or for a key where there is none. SPEC 3.0."""
    seed = f"{epoch:064x}"
    ranked = sorted(KEYS, key=lambda key: hashlib.sha256(b"\0".join([bytes.fromhex(seed), what.encode(), key.encode()])).digest())
    return sorted(ranked[:number])


def assigned(people: Doc, records: list[Doc], kind: str = "given", **more: Any) -> Doc:
    """A case in which two of four validators are drawn."""
    rules = {"assign": 2, "min_validators": 1, "min_stake": "0"}
    return settled(kind, records, consensus=rules, people=people, stakes=dict.fromkeys(KEYS, "100"), randomness=SEEDED, **more)


def heard(key: str, what: str, epoch: int) -> Doc:
    """Who counts for one participant, and who was not drawn."""
    counting = drawn(what, epoch, 2)
    others = [{"validator": validator, "reason": "not-assigned", "missing": 0} for validator in KEYS if validator not in counting]
    return {"participant": key, "validators": [{"validator": validator} for validator in counting], "not_counted": others}


EMPTY: Doc = {"a": {"submission": ""}}
NAMELESS = [row | {"submission": ""} for row in evidence({"a": ["0.8"] * 4})]
POINTS = [record("points", key, "a", repository="o/r", valid=1, submission="") for key in KEYS]
SEVERAL = [row | {"epoch": 4} if row["validator"] == "v4" else row for row in evidence({"a": ["0.8"] * 4})]
ABOUT_PEOPLE = [
    record("points", "v4", "a", 4, repository="o/r", valid=1, submission=""),
    *(record("points", key, name, repository="o/r", valid=n) for n, name in ((2, "a"), (1, "b")) for key in KEYS),
]
"""The first record that names a is about no submission, and older than the first about a's."""
RUBRIC: Doc = {"score": {"checks": CHECKS, "injection": "unjudged"}, "consensus": ALONE}
JUDGED: Doc = {"baseline": MET, "checks": {"C1": True, "C2": True}, "verdict": "COHERENT"}

WHO_COUNTS = [
    case(
        "assign without a submission: the key is hashed in its place",
        assigned(EMPTY, NAMELESS),
        {"agreed": [heard("a", "a", 5)]},
    ),
    case(
        "assign for points: the submission, or the key where there is none",
        assigned(EMPTY, POINTS, "points", score={"repositories": {"o/r": "5"}}),
        {"agreed": [heard("a", "a", 5)]},
    ),
    case(
        "assign for points: accepted in the epoch of the first record that names the participant, whatever its submission",
        assigned({"a": {"submission": "of-a"}}, ABOUT_PEOPLE, "points", score={"repositories": {"o/r": "5"}}),
        {"agreed": [heard("a", "of-a", 4), heard("b", "of-b", 5)]},
    ),
    case(
        "assign: accepted in the epoch of the first record by anybody",
        assigned({}, SEVERAL),
        {"agreed": [heard("a", "of-a", 4)]},
    ),
    case(
        "assign: accepted_epoch says when",
        assigned({"a": {"accepted_epoch": 2}}, SEVERAL),
        {"agreed": [heard("a", "of-a", 2)]},
    ),
    case(
        "assign: nothing needed of whom nothing is known, of a duplicate the whole registry's",
        assigned({"b": {"submission": "of-a"}, "c": {}}, evidence({"a": ["0.8"] * 4})),
        {
            "agreed": [
                {"participant": "a", "needed_stake_of": "200"},
                {"participant": "b", "status": "duplicate", "needed_stake_of": "400"},
                {"participant": "c", "reason": "no-evidence", "needed_stake_of": "0"},
            ]
        },
    ),
    case(
        "not counted: not being drawn comes before having no stake",
        assigned({}, evidence({"a": ["0.8"] * 4})) | {"validators": [{"key": key, "stake": "0"} for key in KEYS]},
    ),
    case(
        "not counted: unjudged comes before a suspected injection",
        settled(
            "rubric",
            [
                record("rubric", "v1", "a", **JUDGED, injection_suspected=True),
                record("rubric", "v2", "a", outcome="unjudged", injection_suspected=True),
                record("rubric", "v3", "a", outcome="unjudged"),
            ],
            **RUBRIC,
        ),
    ),
    case(
        "not counted: trials are missing only of who is incomplete, not of who was not drawn",
        tests(
            {"a": ["pp" if key in drawn("of-a", 5, 2) else "p-" for key in KEYS]},
            consensus={"assign": 2, "min_validators": 1, "min_stake": "0"},
            randomness=SEEDED,
        ),
        {"agreed": [heard("a", "of-a", 5)]},
    ),
    case(
        "not counted: nor of who has no stake",
        tests({"a": ["pp", "p-", "p-"]}, stakes={"v2": "0"}, consensus=ALONE),
        {
            "agreed": [
                {
                    "not_counted": [
                        {"validator": "v2", "reason": "no-stake", "missing": 0},
                        {"validator": "v3", "reason": "incomplete", "missing": 1},
                    ]
                }
            ]
        },
    ),
    case(
        "nobody counts though there are records: no-evidence",
        given({"a": "0.8", "b": "0.5"}, stakes=dict.fromkeys(("v1", "v2", "v3"), "0") | {"v4": "100"}),
        status(("a", "no-quorum", "no-evidence"), ("b", "no-quorum", "no-evidence")),
    ),
    case(
        "nobody counts, and the incomplete would be no quorum: no-evidence",
        tests({"a": ["p-", "p-"], "b": ["pp", "pp", "pp"]}),
        status(("b", "agreed", None), ("a", "no-quorum", "no-evidence")),
    ),
    case(
        "nobody counts and there is no record: no-evidence",
        given({"a": "0.8"}, people={"b": {}}),
        status(("a", "agreed", None), ("b", "no-quorum", "no-evidence")),
    ),
    case(
        "unjudged: incomplete validators are not added to those who could not judge",
        tests({"a": ["pp", "p-", "p-"]}),
        status(("a", "incomplete", "missing-trials")),
    ),
    case(
        "one seq on records of different keys: seq orders the records of one key, and no others",
        given(
            {},
            evidence=[row | {"seq": 7} for row in evidence({"a": ["0.8"] * 3})],
            people={"a": {}},
            stakes={"v1": "100", "v2": "100", "v3": "100"},
        ),
        agreed("a"),
    ),
    case(
        "two records of one key that name two participants are one record",
        given(
            {"a": ["0.8"] * 3},
            people={"b": {}},
            evidence=[*evidence({"a": ["0.8"] * 3}), record("given", "v1", "b", score="0.8") | {"submission": "of-a"}],
        ),
        status(("a", "agreed", None), ("b", "no-quorum", "no-evidence")),
    ),
    refused(
        "two records of one key that differ in observed_at",
        given({}, people={"a": {}}, stakes=dict.fromkeys(("v1", "v2", "v3"), "100"))
        | {"evidence": [*evidence({"a": ["0.8"] * 3}), evidence({"a": ["0.8"]})[0] | {"observed_at": "2026-01-02T03:04:06Z"}]},
        "without seq nothing says which was first",
    ),
]


def warm(name: str, why: str, window: int, warm_up: int, **more: Any) -> CaseDraft:
    tasks = workflow([{"task": "t"}], score={"window": window, "warm_up": warm_up}, **more)
    return refused(name, tasks, why) if why else case(name, tasks)


CHAIN: Doc = {
    "chain": "0x" + "ab" * 32,
    "netuid": 3,
    "mechanism": 0,
    "block": 1000,
    "hash": "0x" + "cd" * 32,
    "spec_version": 200,
}


def pulled(change: Doc | None = None, rows: Doc | None = None) -> Doc:
    """A case whose uids and stakes were read from a chain, and the digest over them."""
    world = given({"a": "0.8", "b": "0.5"}, people={"c": {"uid": None}})
    uids = [
        [person["key"], person["uid"]]
        for person in sorted(world["participants"], key=lambda person: person["uid"] or 0)
        if person["uid"]
    ]
    stakes = sorted([validator["key"], validator["stake"]] for validator in world["validators"])
    digest = digest_of({"participants": uids, "validators": stakes})
    return world | (change or {}) | {"registry": CHAIN | {"rows": digest} | (rows or {})}


BOUNDS = [
    warm("warm-up as long as the window", "", 4, 4),
    warm("warm-up longer than the window", "no more tasks than the window's are ever seen", 4, 5),
    warm("warm-up of 0", "a warm-up is of at least one task", 4, 0),
    warm("warm-up with payouts", "it takes from weights", 4, 2, reward={"kind": "payout"}, payout={"deposit": "1000"}),
    case(
        "a registry of a block: whoever has no uid is not in its rows",
        pulled(),
        {"ranking": ["a", "b"], "weights": [{"uid": 1}, {"uid": 2}]},
    ),
    refused(
        "a registry of other stakes",
        pulled({"validators": [{"key": f"v{n}", "stake": "7"} for n in (1, 2, 3)]}),
        "they are not of the block",
    ),
    refused("a registry without a block", pulled(rows={"block": None}), "a registry is of a block"),
    refused("a registry with upper-case hex", pulled(rows={"hash": "0x" + "CD" * 32}), "hashes have one spelling"),
    refused("a registry with a field nobody knows", pulled(rows={"pulled_at": 1}), "it is closed"),
    case("the largest epoch", given({"a": "0.8"}) | {"epoch": 2**53 - 1}, agreed("a")),
    refused("tasks of a case: a comment", tests({"a": ["p"]}, tasks=["t1", "#x"]), "in tasks.txt it would say nothing"),
    refused("tasks of a case: a blank line", tests({"a": ["p"]}, tasks=["t1", " "]), "a task has an id"),
    refused("tasks of a case: two lines in one", tests({"a": ["p"]}, tasks=["t1\nt2"]), "an id is text of SPEC 1"),
]
TEXT = [
    case(f"a key with {what}", given({f"p{char}": "0.8", f"q{char}": "0.5"}), agreed(f"p{char}", f"q{char}"))
    for what, char in (
        ("a character of Unicode 15", "\U0001fae8"),
        ("an unassigned character", "\u0378"),
        ("a private-use character", "\ue000"),
        ("a no-break space", "\xa0"),
        ("a soft hyphen", "\xad"),
        ("a combining mark, not composed", "e\u0301"),
        ("a digit of another script", "٣"),
    )
] + [
    refused(f"a key with {what}", given({f"p{char}": "0.8"}), "SPEC 1 lists it")
    for what, char in (
        ("a control character (C0)", "\x1b"),
        ("a control character (C1)", "\x9b"),
        ("DEL", "\x7f"),
        ("a line separator", "\u2028"),
        ("a bidi control", "\u202e"),
        ("the Arabic letter mark", "\u061c"),
        ("a zero-width space", "\u200b"),
        ("a zero-width joiner", "\u200d"),
        ("a word joiner", "\u2060"),
        ("a byte order mark", "\ufeff"),
        ("a noncharacter", "\ufdd0"),
        ("a noncharacter of a higher plane", "\U0001ffff"),
    )
]

FILES = [
    File(
        "settle-decided",
        "settle",
        "Rules that the specification leaves to one sentence: text, registries, bounds, who counts (SPEC 1, 3).",
        [*WHO_COUNTS, *BOUNDS, *TEXT],
    )
]
