"""Cases of schemes and records: what is accepted, normalised, digested. SPEC 6, 7."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any

from . import choices, panels
from .case import CaseDraft, File, case, refused
from .defaults import CONSENSUS, DECAY, REWARD

Doc = dict[str, Any]

NAME: Doc = {"name": "s"}
PAYOUT: Doc = {
    "deposit": "100",
    "threshold_bps": 7000,
    "split": [10000],
    "fee_bps": 0,
    "tiers": [
        {"reach_bps": 10000, "release_bps": 10000},
        {"reach_bps": 8000, "release_bps": 5000},
        {"reach_bps": 5000, "release_bps": 2500},
    ],
}
WORKFLOW: Doc = {
    "kind": "workflow",
    "weights": {"success": "0.5", "cost": "0.25", "latency": "0.15", "reliability": "0.1"},
    "gate": "0.7",
    "penalties": {"unplanned_retry": "0.1", "timeout": "0.2", "hard_failure": "0.5"},
    "window": 100,
    "max_retries_per_step": 5,
}
POINTS: Doc = {
    "kind": "points",
    "repositories": {"org/one": "5"},
    "star_points": "0.25",
    "star_max": "1.25",
    "full_points": 100,
}


def given(**sections: Any) -> Doc:
    return {"scheme": NAME, "score": {"kind": "given"}, **sections}


def whole(**sections: Any) -> Doc:
    """The document with all defaults, under the given sections."""
    base: Doc = {"scheme": {"name": "s", "version": "1.0.0"}, "score": {"kind": "given"}}
    return base | {"consensus": CONSENSUS, "reward": REWARD, "decay": DECAY} | sections


def scheme(name: str, content: Doc, document: Doc | None = None) -> CaseDraft:
    return case(name, {"scheme": content}, None if document is None else {"document": document})


def wrong(name: str, content: Any, why: str) -> CaseDraft:
    return refused(name, {"scheme": content}, why)


def rubric(*checks: Doc) -> Doc:
    return {"kind": "rubric", "checks": list(checks)}


def presets() -> list[CaseDraft]:
    """The schemes that ship with the package, as their TOML reads."""
    folder = resources.files("assay.scheme") / "presets"
    names = ["agonaut", "bounty-challenge", "cswon", "term-challenge"]
    return [scheme(f"the preset {name}", tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf-8"))) for name in names]


CHECK: Doc = {"id": "C1", "weight": 10000}
TOLD: Doc = {"id": "C1", "label": "", "description": "", "weight": 10000, "skippable": True}
PAID: Doc = {"reward": {"kind": "payout"}, "payout": {"deposit": "100"}}

SCHEME = [
    scheme("every default filled in", given(), whole()),
    scheme("defaults written out are the same scheme", whole(), whole()),
    scheme(
        "percentages and decimals are the same scheme",
        given(reward={"cap": "50.0%"}, decay={"rate": "5%", "max_burn": "0.80"}),
        whole(),
    ),
    scheme("empty sections", given(consensus={"outliers": {}}, reward={}, decay={}), whole()),
    scheme("tests", given(score={"kind": "tests"}), whole(score={"kind": "tests", "agent_timeout": "fail", "trials": 1})),
    scheme("workflow", given(score={"kind": "workflow"}), whole(score=WORKFLOW)),
    scheme("points", given(score={"kind": "points", "repositories": {"org/one": "5.0"}}), whole(score=POINTS)),
    scheme("rubric", given(score=rubric(CHECK)), whole(score=rubric(TOLD))),
    scheme(
        "a rubric in the seed's spelling",
        given(score=rubric(CHECK | {"unskippable": True})),
        whole(score=rubric(TOLD | {"skippable": False})),
    ),
    scheme(
        "an optional field that is set",
        given(consensus={"assign": 3, "max_age_epochs": 0}),
        whole(consensus=CONSENSUS | {"assign": 3, "max_age_epochs": 0}),
    ),
    scheme("a window of points", given(score=POINTS | {"window_epochs": 3}), whole(score=POINTS | {"window_epochs": 3})),
    scheme(
        "z has a threshold of its own",
        given(consensus={"outliers": {"method": "z"}}),
        whole(consensus=CONSENSUS | {"outliers": {"method": "z", "threshold": "2", "mad_floor": "0.01"}}),
    ),
    scheme(
        "kappa is filled in where it is used",
        given(consensus={"combine": "clip"}),
        whole(consensus=CONSENSUS | {"combine": "clip", "kappa": "0.5"}),
    ),
    scheme(
        "trim is filled in where it is used",
        given(consensus={"combine": "trimmed"}),
        whole(consensus=CONSENSUS | {"combine": "trimmed", "trim": "0.2"}),
    ),
    scheme("an empty section about logs says who reads them", given(release={}), whole(release={"logs": "own"})),
    scheme(
        "empty sections about kept work and audits have their defaults",
        given(score={"kind": "tests"}, evidence={}, audit={}),
        whole(
            score={"kind": "tests", "agent_timeout": "fail", "trials": 1},
            evidence={"keep": "nothing", "most_mb": 64},
            audit={"risk": "0.05", "delay": "600s"},
        ),
    ),
    scheme(
        "kept work, and an audit of one place",
        given(
            score={"kind": "tests"},
            evidence={"keep": "work", "most_mb": 8, "epochs": 12},
            audit={"risk": "1%", "places": 1, "delay": "5m"},
        ),
        whole(
            score={"kind": "tests", "agent_timeout": "fail", "trials": 1},
            evidence={"keep": "work", "most_mb": 8, "epochs": 12},
            audit={"risk": "0.01", "places": 1, "delay": "300s"},
        ),
    ),
    scheme("no curve is a section all the same", given(decay={"curve": "none"}), whole(decay=DECAY | {"curve": "none"})),
    scheme(
        "payouts have no decay",
        given(**PAID),
        {
            "scheme": {"name": "s", "version": "1.0.0"},
            "score": {"kind": "given"},
            "consensus": CONSENSUS,
            "reward": REWARD | {"kind": "payout"},
            "payout": PAYOUT,
        },
    ),
    scheme(
        "a deadline is an instant in UTC",
        given(reward={"kind": "payout"}, payout={"deposit": "1", "scoring_deadline": "2026-12-01T01:00:00+01:00"}),
        {"payout": PAYOUT | {"deposit": "1", "scoring_deadline": "2026-12-01T00:00:00Z"}},
    ),
    scheme("the name is part of the digest", given(scheme={"name": "t"}), whole(scheme={"name": "t", "version": "1.0.0"})),
    scheme(
        "the version is part of the digest",
        given(scheme={"name": "s", "version": "2"}),
        whole(scheme={"name": "s", "version": "2"}),
    ),
    *presets(),
    wrong("no score", {"scheme": NAME}, "a scheme says what it scores"),
    wrong("no name", {"scheme": {}, "score": {"kind": "given"}}, "a scheme has a name"),
    wrong("an unknown kind", given(score={"kind": "taste"}), "there is no such kind"),
    wrong("a field nobody knows", given(reward={"capp": "50%"}), "schemes are closed"),
    wrong("a section nobody knows", given(rewards={}), "schemes are closed"),
    wrong("a field of another kind", given(score={"kind": "given", "trials": 3}), "schemes are closed"),
    wrong("an audit of what has no trials", given(audit={}), "only trials are judged again"),
    wrong("work that no trial leaves", given(evidence={"keep": "work"}), "only trials leave work"),
    wrong("an audit without a risk", given(score={"kind": "tests"}, audit={"risk": "0"}), "a risk is from 0.1 % to 50 %"),
    wrong("an audit that risks too much", given(score={"kind": "tests"}, audit={"risk": "51%"}), "a risk is from 0.1 % to 50 %"),
    wrong("a cap as a float", given(reward={"cap": 0.5}), "fractions are decimal strings"),
    wrong("a cap as an integer", given(reward={"cap": 1}), "fractions are decimal strings"),
    wrong("a count as a string", given(consensus={"min_validators": "3"}), "counts are integers"),
    wrong("a count as a float", given(consensus={"min_validators": 3.0}), "counts are integers"),
    wrong("a boolean as an integer", given(consensus={"recheck": 1}), "booleans are booleans"),
    wrong("a count as a boolean", given(consensus={"min_validators": True}), "counts are integers"),
    wrong("min_stake above 1", given(consensus={"min_stake": "1.1"}), "a share is at most 1"),
    wrong("no trial", given(score={"kind": "tests", "trials": 0}), "there is at least one trial"),
    wrong("an empty window", given(score={"kind": "workflow", "window": 0}), "there is at least one task"),
    wrong("weights of a workflow above 1", given(score={"kind": "workflow", "weights": {"cost": "0.5"}}), "the four sum to 1"),
    wrong(
        "a repository without an owner",
        given(score={"kind": "points", "repositories": {"one": "5"}}),
        "a repository is owner/name",
    ),
    wrong("no repository", given(score={"kind": "points", "repositories": {}}), "a table has a repository"),
    wrong("points without a table", given(score={"kind": "points"}), "a table has a repository"),
    scheme(
        "a rubric by which a suspected injection counts as unjudged",
        given(score=rubric(CHECK) | {"injection": "unjudged"}),
        whole(score=rubric(TOLD) | {"injection": "unjudged"}),
    ),
    wrong("rubric: an injection that scores zero", given(score=rubric(CHECK) | {"injection": "zero"}), "no model makes a zero"),
    wrong("rubric weights that do not sum to 10 000", given(score=rubric(CHECK | {"weight": 9000})), "weights sum to 10 000"),
    wrong("a rubric without checks", given(score={"kind": "rubric"}), "a rubric has checks"),
    wrong(
        "noise with another kind than tests",
        given(consensus={"outliers": {"scale": "noise"}}),
        "input: it needs scores that are a share of trials",
    ),
    wrong("drop with exact-sum", given(reward={"excess": "drop", "encoding": "exact-sum"}), "a part is left that nobody has"),
    wrong("drop with max-upscale", given(reward={"excess": "drop", "encoding": "max-upscale"}), "drop goes with round only"),
    wrong("a cap of 0", given(reward={"cap": "0%"}), "nobody could be paid"),
    wrong("T below 0.01", given(reward={"temperature": "0.009999999"}), "T is at least 0.01"),
    wrong("a burn UID of 65536", given(decay={"burn_uid": 65536}), "a uid has 16 bits"),
    wrong("payouts without a deposit", given(reward={"kind": "payout"}), "a payout has a deposit"),
    wrong("payouts that decay", given(**PAID, decay={}), "payouts do not decay"),
    wrong("a deposit without payouts", given(payout={"deposit": "100"}), "weights have no deposit"),
    wrong(
        "a split of 9 999", given(reward={"kind": "payout"}, payout={"deposit": "1", "split": [9999]}), "the split sums to 10 000"
    ),
    wrong(
        "a deadline without a time zone",
        given(reward={"kind": "payout"}, payout={"deposit": "1", "scoring_deadline": "2026-12-01T00:00:00"}),
        "an instant has a time zone",
    ),
    wrong("no scheme at all", None, "a scheme is an object"),
    wrong("a list", [], "a scheme is an object"),
]

HEAD: Doc = {"epoch": 3, "validator": "v", "participant": "p", "submission": "sha256:s", "observed_at": "2026-01-02T03:04:05Z"}
RAN: Doc = {
    "task": "t",
    "quality": "0.5",
    "steps_completed": 1,
    "steps_total": 2,
    "cost": "0.01",
    "budget": "0.05",
    "seconds": "2",
    "max_seconds": "10",
}
ZEROS: Doc = {"retries": 0, "declared_retries": 0, "timeouts": 0, "hard_failures": 0, "outcome": "ran"}


def kept(name: str, kind: str, fields: Doc, derived: Doc | None = None) -> CaseDraft:
    """A record, and its document: head and fields as given, and what is told of it."""
    content = HEAD | {"kind": kind} | fields
    document = {field: value for field, value in content.items() if field != "seq"}
    return case(name, {"record": content}, {"document": document | (derived or {})})


def bad(name: str, kind: str, fields: Doc, why: str, without: str = "") -> CaseDraft:
    content = {field: value for field, value in (HEAD | {"kind": kind} | fields).items() if field != without}
    return refused(name, {"record": content}, why)


PASS: Doc = {"task": "t", "outcome": "pass"}

RECORD = [
    kept("tests: the trial is 1 where nothing is said", "tests", PASS, {"trial": 1}),
    kept("tests: another trial", "tests", PASS | {"trial": 5}),
    kept("seq is the ledger's, not the record's", "tests", PASS | {"seq": 7}, {"trial": 1}),
    kept(
        "an offset is taken off",
        "tests",
        PASS | {"observed_at": "2026-01-02T04:04:05+01:00"},
        {"observed_at": "2026-01-02T03:04:05Z", "trial": 1},
    ),
    kept("no submission", "tests", PASS | {"submission": ""}, {"trial": 1}),
    kept("workflow, whole", "workflow", RAN | ZEROS),
    kept("workflow: counts are 0 where nothing is said", "workflow", RAN, ZEROS),
    kept(
        "workflow: fractions are normalised",
        "workflow",
        RAN | {"quality": "0.50", "cost": "00.010"},
        ZEROS | {"quality": "0.5", "cost": "0.01"},
    ),
    kept("workflow: an invalid plan needs no numbers", "workflow", {"task": "t", "outcome": "invalid"}),
    kept("workflow: nor does a service error", "workflow", {"task": "t", "outcome": "service-error"}),
    kept("rubric", "rubric", {"baseline": {"B1": True}, "checks": {"C1": True}, "verdict": "COHERENT"}, {"outcome": "judged"}),
    kept(
        "rubric: what a judge said is kept as it came",
        "rubric",
        {"baseline": {"B1": "yes"}, "checks": [1, 2.5], "verdict": 7},
        {"outcome": "judged"},
    ),
    kept("rubric: unjudged", "rubric", {"outcome": "unjudged"}),
    kept(
        "points: counts are 0 where nothing is said",
        "points",
        {"repository": "org/one"},
        {"valid": 0, "invalid": 0, "revoked_valid": 0, "revoked_invalid": 0, "starred": False},
    ),
    kept(
        "points, whole",
        "points",
        {"repository": "org/one", "valid": 3, "invalid": 1, "revoked_valid": 1, "revoked_invalid": 1, "starred": True},
    ),
    kept("given", "given", {"score": "0.80"}, {"score": "0.8"}),
    bad("no kind that is known", "taste", {"score": "0.8"}, "there is no such kind"),
    bad("a field nobody knows", "given", {"score": "0.8", "colour": "red"}, "records are closed"),
    bad("a score above 1", "given", {"score": "1.000000001"}, "a score is from 0 to 1"),
    bad("a score as a float", "given", {"score": 0.8}, "fractions are decimal strings"),
    bad("a negative score", "given", {"score": "-0.1"}, "a score is from 0 to 1"),
    bad("no score", "given", {}, "a record is whole"),
    bad("no epoch", "given", {"score": "0.8"}, "a record is whole", without="epoch"),
    bad("no time", "given", {"score": "0.8"}, "a record is whole", without="observed_at"),
    bad("no submission field", "given", {"score": "0.8"}, "a record is whole", without="submission"),
    bad("a negative epoch", "given", {"score": "0.8", "epoch": -1}, "epochs count from 0"),
    bad("an epoch as text", "given", {"score": "0.8", "epoch": "3"}, "epochs are integers"),
    bad("an empty validator", "given", {"score": "0.8", "validator": ""}, "a key has a character"),
    bad("a line break in a key", "given", {"score": "0.8", "participant": "p\nq"}, "a key can be printed"),
    bad("a bidi control in a key", "given", {"score": "0.8", "validator": "v\u202e"}, "SPEC 1 lists it"),
    bad("a zero-width space in a submission", "given", {"score": "0.8", "submission": "s\u200b"}, "SPEC 1 lists it"),
    kept("a character of Unicode 15 in a key", "given", {"score": "0.8", "participant": "p\U0001fae8"}),
    kept("a key of 256 characters beyond U+FFFF", "given", {"score": "0.8", "participant": "\U0001f600" * 256}),
    bad("a key of 257 characters", "given", {"score": "0.8", "participant": "p" * 257}, "a key has at most 256"),
    bad("an unknown outcome", "tests", {"task": "t", "outcome": "passed"}, "pass, fail, timeout, error"),
    bad("trial 0", "tests", PASS | {"trial": 0}, "trials count from 1"),
    bad("a time without a zone", "tests", PASS | {"observed_at": "2026-01-02T03:04:05"}, "an instant has a time zone"),
    bad("a negative count", "points", {"repository": "org/one", "valid": -1}, "counts are at least 0"),
    bad("a count as a float", "points", {"repository": "org/one", "valid": 1.0}, "counts are integers"),
    bad("a star as 1", "points", {"repository": "org/one", "starred": 1}, "booleans are booleans"),
    bad(
        "a task that ran without a budget",
        "workflow",
        {k: v for k, v in RAN.items() if k != "budget"},
        "a task that ran has all numbers",
    ),
    bad("a budget of 0", "workflow", RAN | {"budget": "0"}, "the budget is more than 0"),
    bad(
        "an invalid plan with more steps done than there are",
        "workflow",
        {"task": "t", "outcome": "invalid", "steps_completed": 3, "steps_total": 2},
        "steps_completed is at most steps_total",
    ),
    bad("more steps than there are", "workflow", RAN | {"steps_completed": 3}, "steps_completed is at most steps_total"),
    bad("a fraction as a percentage", "workflow", RAN | {"quality": "50%"}, "percentages are for schemes"),
    refused("no object", {"record": ["tests"]}, "a record is an object"),
]

SCHEMES = [*SCHEME, *choices.SCHEMES, *panels.SCHEMES]
PANELS = [
    *(kept(name, "rubric", fields, derived) for name, fields, derived in panels.RECORDS),
    *(bad(name, "rubric", fields, why) for name, fields, why in panels.BAD_RECORDS),
]
FILES = [
    File(
        "scheme",
        "scheme",
        "Schemes: defaults, normal form, digest, refusals (SPEC 6, 7).",
        [*SCHEME, *choices.SCHEMES, *panels.SCHEMES],
    ),
    File("record", "record", "Records of evidence: normal form, digest, refusals (SPEC 6, 7).", [*RECORD, *PANELS]),
]
