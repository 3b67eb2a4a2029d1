"""Cases of panels: k answers about one solution, what they decide, and settlements of them. SPEC 2.3, docs/rubric.md."""

from __future__ import annotations

from random import Random
from typing import Any

from oracle.cases import answer_like, case_of, panelled
from oracle.score.panel import decided
from oracle.score.rubric import VERDICTS

from .case import CaseDraft, File, case, refused
from .defaults import CONSENSUS, DECAY, REWARD
from .worlds import ALONE, CHECKS, MET, Doc, record, settled

__all__ = ["BAD_RECORDS", "FILES", "RECORDS", "SCHEMES"]

TWO = [{"id": "C1", "weight": 6000}, {"id": "C2", "weight": 4000}]
NO_GATE: Doc = {"baseline": MET | {"B3": False}}
NO_BOUNDS = ("2/1", "1/0", "0.3", "-1/3", "1", "1/10000")
UNJUDGED: Doc = {"outcome": "unjudged"}


def vote(first: bool = True, second: bool = True, verdict: str = "COHERENT", judge: str = "m") -> Doc:
    """A whole answer whose baseline is met."""
    return {"judge": judge, "baseline": MET, "checks": {"C1": first, "C2": second}, "verdict": verdict}


def by(answer: Doc, judge: str = "m") -> Doc:
    return {"judge": judge} | answer


def given(panel: list[Doc], k: int | None = None, bound: str | None = None, checks: Any = TWO) -> Doc:
    rules: Doc = {"answers": len(panel) if k is None else k} | ({} if bound is None else {"max_disagreement": bound})
    return {"score": {"kind": "rubric", "checks": checks, "panel": rules}, "panel": panel}


def decides(name: str, panel: list[Doc], expect: Doc, **more: Any) -> CaseDraft:
    return case(name, given(panel, **more), {"why": None} | expect)


def splits(name: str, panel: list[Doc], *undecided: str, **more: Any) -> CaseDraft:
    nothing = {"baseline": None, "checks": None, "verdict": None}
    return case(name, given(panel, **more), {"why": "panel-split", "undecided": list(undecided)} | nothing)


def unjudged(name: str, panel: list[Doc], **more: Any) -> CaseDraft:
    return case(name, given(panel, **more), {"why": "unjudged", "undecided": [], "baseline": None})


def verdicts(*words: str) -> list[Doc]:
    return [vote(verdict=word) for word in words]


E, L, C, M, F, _ = VERDICTS
BOTH: Doc = {"C1": True, "C2": True}
BROKEN_C1: Doc = {"baseline": MET, "checks": {"C1": "yes", "C2": True}, "verdict": C}
PANEL = [
    decides("three agree", [vote()] * 3, {"checks": {"C1": True, "C2": True}, "verdict": C}),
    decides("two of three", [vote(), vote(first=False), vote()], {"checks": {"C1": True, "C2": True}}),
    decides("each check by itself", [vote(False), vote(second=False), vote()], {"checks": {"C1": True, "C2": True}}),
    decides("two of three say NO", [vote(False), vote(), vote(False)], {"checks": {"C1": False, "C2": True}}),
    decides("the flips of models", [vote(judge="a"), vote(False, judge="b"), vote(judge="a")], {"checks": BOTH}),
    decides("the verdict in the middle", verdicts(E, F, C), {"verdict": C}),
    decides("the middle need not be the most frequent", verdicts(E, E, C, F, F), {"verdict": C}),
    decides("a middle of four that more than half reach", verdicts(E, C, C, M), {"verdict": C}),
    splits("a tie of verdicts", verdicts(E, E, C, C), "verdict"),
    splits("a tie of two neighbours", verdicts(L, C), "verdict"),
    splits("a tie of a check", [vote(), vote(False), vote(), vote(False)], "C1"),
    splits("two answers that differ in all", [vote(True, False), vote(False, True)], "C1", "C2"),
    decides("three of four", [vote(), vote(False), vote(), vote()], {"checks": {"C1": True, "C2": True}}),
    decides("a baseline that two of three find not met", [by(NO_GATE), vote(), by(NO_GATE)], {"checks": None, "verdict": None}),
    decides("one finds it not met, and two agree", [by(NO_GATE), vote(), vote()], {"checks": {"C1": True, "C2": True}}),
    splits("one finds it not met, and two differ", [by(NO_GATE), vote(), vote(False)], "C1"),
    splits("a tie of the baseline needs no checks", [by(NO_GATE), vote()], "B3"),
    decides("an unjudged answer is no vote", [by(UNJUDGED), vote(), vote()], {"verdict": C}),
    splits("an unjudged answer takes no side", [by(UNJUDGED), vote(), vote(False)], "C1"),
    decides("a malformed answer is no vote", [by(BROKEN_C1), vote(), vote()], {"verdict": C}),
    decides("an unknown verdict is no vote", [vote(verdict="SPLENDID"), vote(), vote()], {"verdict": C}),
    decides("an answer without a part of the baseline", [by({"baseline": {"B1": True}}), vote(), vote()], {"verdict": C}),
    decides("an answer without anything", [by({}), vote(), vote()], {"verdict": C}),
    unjudged("one vote of three", [by(UNJUDGED), vote(), by(UNJUDGED)]),
    unjudged("half of the answers are votes", [by(UNJUDGED), vote(), vote(), by(UNJUDGED)]),
    unjudged("no answers", [], k=3),
    decides("two of three answers are there", [vote(), vote()], {"verdict": C}, k=3),
    splits("two of three answers are there, and differ", [vote(), vote(False)], "C1", k=3),
    unjudged("one of three answers is there", [vote()], k=3),
    unjudged("four answers of three", [vote()] * 4, k=3),
    decides("at the bound", [vote(), vote(False), vote()], {"checks": {"C1": True, "C2": True}}, bound="1/3"),
    decides("at the bound, not reduced", [vote(), vote(False), vote()], {"checks": {"C1": True, "C2": True}}, bound="2/6"),
    splits("above the bound", [vote(), vote(False), vote()], bound="1/4"),
    splits("above the bound by a ten-thousandth", [vote(), vote(False), vote()], bound="3332/9999"),
    splits("the bound is for each question", [vote(), vote(False, False), vote()], bound="1/5"),
    splits("the bound is for the verdict too", verdicts(C, C, M), bound="0/1"),
    splits("the bound is of the votes, not of k", [vote(), vote(False), vote(), vote(), by(UNJUDGED)], bound="1/5"),
    decides("no bound beyond a majority", [vote(), vote(), vote(), vote(False), vote(False)], {"verdict": C}, bound="1/1"),
    decides("the baseline has a bound", [by(NO_GATE), by(NO_GATE), vote()], {"checks": None}, bound="1/3"),
    splits("the baseline is above the bound", [by(NO_GATE), by(NO_GATE), vote()], bound="0/1"),
    decides("answers to checks that are not asked", [vote() | {"checks": BOTH | {"C9": False}}] * 2, {"why": None}),
    refused("no panel in the rules", {"score": {"kind": "rubric", "checks": TWO}, "panel": [vote()]}, "there is no panel"),
    refused("an answer of nobody", given([{"baseline": MET}], k=3), "each answer has a judge"),
    refused("an answer with a field that nobody knows", given([vote() | {"score": 7}], k=3), "answers are closed"),
    refused("an outcome that nobody knows", given([vote() | {"outcome": "error"}], k=3), "judged or unjudged"),
    refused("a panel of one", given([vote()]), "a panel has at least two answers"),
    refused("a panel of 26", given([vote()] * 26), "a panel has at most 25 answers"),
    *(
        refused(f"the bound {bound}", given([vote()] * 3, bound=bound), "p/q")
        for bound in ("2/1", "1/0", "0.3", "-1/3", "1", "1/10000")
    ),
]


def drawn(seed: int) -> CaseDraft:
    """A panel drawn from a seed."""
    r = Random(f"panel/{seed}")
    k = r.choice([2, 3, 3, 4, 5, 7])
    rules = {"checks": TWO}
    panel = [answer_like(r, vote(r.random() < 0.7, r.random() < 0.7, r.choice([L, C, M])), rules) for _ in range(k)]
    return case(f"drawn {seed}", given(panel, bound=r.choice([None, "1/3", "1/4", "2/5"])))


def about(participant: str, *panel: Doc, **fields: Any) -> Doc:
    """A record of a panel of three, with what it decides."""
    decision = decided(list(panel), {"checks": CHECKS, "panel": {"answers": 3, "max_disagreement": "1/3"}})
    names = ("baseline", "checks", "verdict")
    outcome = (
        {"outcome": "unjudged"} if decision["why"] else {name: decision[name] for name in names if decision[name] is not None}
    )
    return record("rubric", "v1", participant, **outcome, panel=list(panel)) | fields


def whole(name: str, *records: Doc, expect: Doc | None = None, **rules: Any) -> CaseDraft:
    score = {"checks": CHECKS, "panel": {"answers": 3, "max_disagreement": "1/3"}} | rules
    return case(name, settled("rubric", list(records), score=score, consensus=ALONE), expect)


def row(**fields: Any) -> Doc:
    return {"agreed": [fields]}


def left_out(reason: str) -> Doc:
    row_of = {"validator": "v1", "reason": reason, "missing": 0}
    return row(status="unjudged", reason="malformed-or-unjudged", not_counted=[row_of])


SPLIT, SPOILT = left_out("panel-split"), left_out("unjudged")
AGREE = (vote(), vote(), vote())
SETTLED = [
    whole("the majority is the judgement", about("a", vote(), vote(second=False), vote()), expect=row(bps=10000)),
    whole("NO by the majority", about("a", vote(second=False), vote(second=False), vote()), expect=row(bps=6000)),
    whole("a baseline that the majority finds not met", about("a", by(NO_GATE), by(NO_GATE), vote()), expect=row(bps=0)),
    whole("a panel that is split is unjudged", about("a", vote(), vote(False), by(UNJUDGED)), expect=SPLIT),
    whole("a panel above the bound is unjudged", about("a", *verdicts(E, C, M)), expect=SPLIT),
    whole("too few votes are unjudged", about("a", vote(), by(UNJUDGED), by(UNJUDGED)), expect=SPOILT),
    whole("a record without its panel is unjudged", about("a", *AGREE, panel=None), expect=SPOILT),
    whole(
        "other answers than the panel decides",
        about("a", *AGREE, checks={"C1": True, "C2": False}),
        expect=SPOILT,
    ),
    whole("another verdict than the panel decides", about("a", *AGREE, verdict=E), expect=SPOILT),
    whole("another baseline than the panel decides", about("a", *AGREE, baseline=MET | {"B1": False}), expect=SPOILT),
    whole(
        "judged, says the record, and its panel is split",
        about("a", vote(), vote(False), by(UNJUDGED), outcome="judged", baseline=MET, checks={"C1": True, "C2": True}, verdict=C),
        expect=SPLIT,
    ),
    whole("unjudged, says the record, and its panel is not", about("a", *AGREE, outcome="unjudged"), expect=SPOILT),
    whole(
        "without a panel in the rules it is not looked at",
        about("a", *verdicts(C, C, E), verdict=E),
        panel=None,
        expect=row(bps=10000),
    ),
    whole("an injection is suspected", about("a", *AGREE, injection_suspected=True), injection="unjudged"),
    *(case(f"drawn {seed}", panelled(case_of(seed, "rubric", 1 + seed % 3), seed)) for seed in range(24)),
]

HEAD: Doc = {"scheme": {"name": "s", "version": "1.0.0"}}
TOLD = [{"id": "C1", "label": "", "description": "", "weight": 10000, "skippable": True}]


def scheme(name: str, panel: Doc, section: Doc) -> CaseDraft:
    """A scheme with a panel, and its section as the digest has it."""
    document = HEAD | {"score": {"kind": "rubric", "checks": TOLD, "panel": section}}
    document |= {"consensus": CONSENSUS, "reward": REWARD, "decay": DECAY}
    checks = [{"id": "C1", "weight": 10000}]
    return case(name, {"scheme": HEAD | {"score": {"kind": "rubric", "checks": checks, "panel": panel}}}, {"document": document})


SCHEMES = [
    scheme("a panel, without a bound", {"answers": 3}, {"answers": 3, "max_disagreement": "1/1"}),
    scheme("a panel, its bound reduced", {"answers": 4, "max_disagreement": "02/8"}, {"answers": 4, "max_disagreement": "1/4"}),
    scheme("a panel that must agree", {"answers": 25, "max_disagreement": "0/7"}, {"answers": 25, "max_disagreement": "0/1"}),
]
_ANSWER: Doc = {"judge": "m", "outcome": "judged", "baseline": {"B1": True}, "checks": [1, 2.5], "verdict": 7}
RECORDS: list[tuple[str, Doc, Doc]] = [
    ("rubric: the answers of a panel are kept as they came", {"outcome": "judged", "panel": [_ANSWER]}, {}),
    (
        "rubric: an answer of a panel is judged where nothing is said",
        {"outcome": "unjudged", "panel": [{"judge": "m"}, {"judge": "n", "outcome": "unjudged", "verdict": None}]},
        {"panel": [{"judge": "m", "outcome": "judged"}, {"judge": "n", "outcome": "unjudged"}]},
    ),
]
BAD_RECORDS: list[tuple[str, Doc, str]] = [
    ("rubric: a panel without answers", {"panel": []}, "a panel has answers"),
    ("rubric: a panel of 101 answers", {"panel": [{"judge": "m"}] * 101}, "a panel has at most 100 answers"),
    ("rubric: a panel that is no list", {"panel": {"judge": "m"}}, "a panel is a list"),
    ("rubric: an answer of nobody", {"panel": [{}]}, "each answer has a judge"),
]

FILES = [
    File("panel", "panel", "What the answers of a panel decide (SPEC 2.3; docs/rubric.md).", [*PANEL, *map(drawn, range(24))]),
    File("settle-panel", "settle", "Whole settlements of panels (SPEC 2.3; docs/rubric.md).", SETTLED),
]
