"""Cases that must be refused: what SPEC does not let pass, one fault in each. SPEC 1, 3, 4, 7."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from assay.conformance import answer

from .case import CaseDraft, File, refused
from .oracle_side import digest_of
from .worlds import ALONE, Doc, given, record, settled, tests

WORLD = given({"a": "0.8", "b": "0.5"}, consensus=ALONE)
BEFORE = answer("settle", copy.deepcopy(WORLD))
LATER = WORLD | {"epoch": 6}


def changed(name: str, why: str, *path: Any, to: Any, world: Doc = WORLD) -> CaseDraft:
    """The world with one thing changed."""
    document = copy.deepcopy(world)
    place: Any = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return refused(name, document, why)


def rated(name: str, why: str, score: Any) -> CaseDraft:
    return changed(name, why, "evidence", 0, "score", to=score)


def earlier(name: str, why: str, **change: Any) -> CaseDraft:
    return refused(name, LATER | {"previous": copy.deepcopy(BEFORE) | change}, why)


def again(name: str, why: str, change: Callable[[Doc], Doc]) -> CaseDraft:
    """The settlement before with something changed, and rightly digested."""
    changed = change({key: value for key, value in copy.deepcopy(BEFORE).items() if key != "digest"})
    return refused(name, LATER | {"previous": changed | {"digest": digest_of(changed)}}, why)


REFUSALS = [
    rated("a score above 1", "scores are from 0 to 1", "1.1"),
    rated("a negative score", "scores are from 0 to 1", "-0.1"),
    rated("a score as a JSON float", "fractions are decimal strings", 0.8),
    rated("NaN", "not a number", "NaN"),
    rated("Infinity", "not a number", "Infinity"),
    rated("an exponent", "no exponent", "8e-1"),
    changed("an unknown validator", "records name validators of the registry", "evidence", 0, "validator", to="nobody"),
    changed("an unknown participant", "records name participants of the registry", "evidence", 0, "participant", to="nobody"),
    changed(
        "a record of another kind",
        "evidence is of the scheme's kind",
        "evidence",
        0,
        to=record("tests", "v1", "a", task="t", outcome="pass"),
    ),
    changed(
        "an unknown validator in a later epoch",
        "records are checked whatever their epoch",
        "evidence",
        0,
        to=record("given", "nobody", "a", 99, score="0.8"),
    ),
    changed("a record that is no object", "records are objects", "evidence", 0, to="given"),
    changed("one participant twice", "keys are unique", "participants", 1, "key", to="a"),
    changed("one uid twice", "uids are unique", "participants", 1, "uid", to=1),
    changed("the burn UID is a participant's", "the burn UID is nobody's", "participants", 1, "uid", to=0),
    changed("a uid of 65536", "a uid has 16 bits", "participants", 1, "uid", to=65536),
    changed("a negative uid", "uids count from 0", "participants", 1, "uid", to=-1),
    changed(
        "last_reset_epoch after the epoch", "a reset is not later than the epoch", "participants", 0, "last_reset_epoch", to=6
    ),
    changed("a time without a zone", "an instant has a time zone", "participants", 0, "submitted_at", to="2026-01-01T00:00:00"),
    changed("an address that is none", "an address has 20 bytes", "participants", 0, "address", to="0x1234"),
    changed("a participant without a key", "a participant has a key", "participants", 0, "key", to=""),
    changed("a column nobody knows", "rows are closed", "participants", 0, "colour", to="red"),
    changed("no participants", "a competition has a participant", "participants", to=[]),
    changed("one validator twice", "keys are unique", "validators", 1, "key", to="v1"),
    changed("a stake of 2^63", "stake is at most 2^63 − 1", "validators", 0, "stake", to=str(2**63)),
    changed("a negative stake", "stake is at least 0", "validators", 0, "stake", to="-1"),
    changed("a stake as a number", "stake is a string of digits", "validators", 0, "stake", to=100),
    changed("no validators", "a competition has a validator", "validators", to=[]),
    changed("a negative epoch", "epochs count from 0", "epoch", to=-1),
    changed("an epoch as text", "epochs are integers", "epoch", to="5"),
    changed("an epoch as a float", "epochs are integers", "epoch", to=5.0),
    changed("a field nobody knows", "cases are closed", "evidense", to=[]),
    changed("an unknown strategy", "schemes are closed", "scheme", "reward", to={"strategy": "cubic"}),
    changed(
        "drop with exact-sum",
        "a part is left that nobody has",
        "scheme",
        "reward",
        to={"excess": "drop", "encoding": "exact-sum"},
    ),
    changed("a ranking with a cap", "a ranking gives out nothing", "scheme", "reward", to={"kind": "ranking", "cap": "30%"}),
    changed(
        "history: one epoch twice",
        "an epoch has one row",
        "history",
        to=[{"epoch": 1, "top_score": "0.5"}, {"epoch": 1, "top_score": "0.6"}],
    ),
    changed("history: a score above 1", "scores are from 0 to 1", "history", to=[{"epoch": 1, "top_score": "1.5"}]),
    changed(
        "randomness: one epoch twice",
        "an epoch has one row",
        "randomness",
        to=[{"epoch": 1, "hex": "00" * 32}, {"epoch": 1, "hex": "11" * 32}],
    ),
    changed("randomness of 31 bytes", "randomness has 32 bytes", "randomness", to=[{"epoch": 1, "hex": "00" * 31}]),
    refused("no epoch and no evidence", WORLD | {"epoch": None, "evidence": []}, "nothing says which epoch"),
    refused("no scheme", {name: part for name, part in WORLD.items() if name != "scheme"}, "a case has a scheme"),
    refused("tests without tasks", tests({"a": ["p"]}, consensus=ALONE, tasks=[]), "a task set has a task"),
    refused("tests: a task twice", tests({"a": ["p"]}, consensus=ALONE, tasks=["t1", "t1"]), "each task once"),
    refused(
        "a rubric that sums to 9 000",
        settled(
            "rubric",
            [record("rubric", "v1", "a", outcome="unjudged")],
            score={"checks": [{"id": "C1", "weight": 9000}]},
            consensus=ALONE,
        ),
        "weights sum to 10 000",
    ),
    earlier(
        "previous: another competition's",
        "the settlement before is of the same competition",
        scheme={**BEFORE["scheme"], "name": "other"},
    ),
    earlier("previous: changed after it was made", "its digest is over all of it", total_stake="999"),
    earlier("previous: a clock moved", "its digest is over all of it", clock={**BEFORE["clock"], "last": 6}),
    earlier("previous: without a digest", "a settlement has a digest", digest=None),
    earlier("previous: another schema", "the settlement before is assay.settlement/1", schema="assay.settlement/2"),
    again("previous: a field too many", "a settlement is closed", lambda before: before | {"remark": "as agreed"}),
    again(
        "previous: a field too few", "a settlement is whole", lambda before: {k: v for k, v in before.items() if k != "refund"}
    ),
    again(
        "previous: a row with a field too many",
        "a settlement is closed",
        lambda before: before | {"agreed": [row | {"remark": ""} for row in before["agreed"]]},
    ),
    again(
        "previous: a clock after its own epoch",
        "a reset is not later than the epoch",
        lambda before: before | {"clock": before["clock"] | {"last": 6, "record": "0.8"}},
    ),
    again(
        "previous: a participant twice in the clocks",
        "each participant has one clock",
        lambda before: before | {"clock": before["clock"] | {"participants": before["clock"]["participants"][:1] * 2}},
    ),
    refused("previous: of the same epoch", WORLD | {"previous": BEFORE}, "the settlement before is of an earlier epoch"),
    refused(
        "previous: of a later epoch", WORLD | {"epoch": 4, "previous": BEFORE}, "the settlement before is of an earlier epoch"
    ),
    refused("previous: no settlement", LATER | {"previous": {"epoch": 4}}, "the settlement before is a settlement"),
    refused("a list instead of a case", [WORLD], "a case is an object"),
]

FILES = [File("settle-refused", "settle", "What a settlement refuses, one fault in each (SPEC 1, 3, 4, 7).", REFUSALS)]
