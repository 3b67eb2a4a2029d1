"""What is told of panels: flips by question and by model, splits, and what a scheme with a panel is warned of. SPEC 2.3."""

from __future__ import annotations

from typing import Any

import pytest

from assay import kind as kinds
from assay.records import Participant, Rubric, Validator
from assay.scheme.load import parse
from assay.scheme.model import RubricScore
from assay.settle.inputs import Inputs
from assay.settle.pipeline import settle
from assay.settle.score.rubric import decide
from assay.settle.story.judgements import PanelFlips, flips_of, saw
from score_kit import make

MET = {"B1": True, "B2": True, "B3": True, "B4": True}
SCHEME = """[scheme]
name = "panels"
[score]
kind = "rubric"
checks = [{id = "C1", weight = 6000, skippable = false}, {id = "C2", weight = 4000}]
panel = {answers = 3, max_disagreement = "1/3"}
[consensus]
min_validators = 1
min_stake = "0"
outliers = {method = "none"}
"""


def vote(judge: str, first: bool = True, second: bool = True, verdict: str = "COHERENT") -> dict[str, Any]:
    return {"judge": judge, "baseline": MET, "checks": {"C1": first, "C2": second}, "verdict": verdict}


def judgement(validator: str, *panel: dict[str, Any], rules: Any) -> Rubric:
    """A record of a panel, with what it decides."""
    bare = make("rubric", validator, panel=list(panel))
    assert isinstance(bare, Rubric)
    assert bare.panel is not None
    decision = decide(bare.panel, rules)
    fields: dict[str, Any] = (
        {"outcome": "unjudged"}
        if decision.why
        else {"baseline": decision.baseline, "checks": decision.checks, "verdict": decision.verdict}
    )
    record = make("rubric", validator, panel=list(panel), **{name: value for name, value in fields.items() if value is not None})
    assert isinstance(record, Rubric)
    return record


def test_a_story_tells_flips_and_splits() -> None:
    scheme = parse(SCHEME)
    gate = {"judge": "b", "baseline": MET | {"B2": False}}
    records = [
        judgement("v1", vote("a"), vote("b", first=False), vote("a"), rules=scheme.score),
        judgement("v2", vote("a"), vote("b", first=False), gate, rules=scheme.score),
        judgement("v3", gate, gate, vote("a"), rules=scheme.score),
    ]
    settled = settle(
        Inputs(scheme, 5, (Participant("ann", submission="s-ann"),), tuple(Validator(f"v{at}", 1) for at in (1, 2, 3)), records)
    )
    (row,) = settled.document["agreed"]
    assert row["not_counted"] == [{"validator": "v2", "reason": "panel-split", "missing": 0}]
    assert [vote["work"]["gate"] for vote in row["validators"]] == [True, False]
    (chapter,) = [chapter for chapter in settled.explain("ann").chapters if chapter.name == "failed"]
    assert "In 2 panels, 2 of 33 votes differ from the majority, most of them at B2 (1/6) and C1 (1/3)." in chapter.text
    assert "By model: a 1/18, b 1/15." in chapter.text
    assert chapter.facts["panels"]["questions"]["C1"] == {"flips": 1, "votes": 3}
    total = flips_of(records, scheme.score)
    assert total is not None
    assert (total.panels, total.split) == (3, 1)
    assert total.sentences()[-1] == "1 of 3 panels is split, so unjudged."


def test_panels_that_agree_and_what_is_no_panel() -> None:
    scheme = parse(SCHEME)
    alike = judgement("v1", *[vote("a")] * 3, rules=scheme.score)
    agreeing = flips_of([alike, make("rubric", "v2", outcome="unjudged")], scheme.score)  # type: ignore[list-item]
    assert isinstance(agreeing, PanelFlips)
    assert agreeing.sentences() == ["In 1 panel, 0 of 21 votes differ from the majority."]
    assert flips_of([], scheme.score) is None
    assert flips_of([alike], parse(SCHEME.replace('panel = {answers = 3, max_disagreement = "1/3"}\n', "")).score) is None


def test_split_everywhere_is_the_reason_that_is_told() -> None:
    scheme = parse(SCHEME)
    gate = {"judge": "b", "baseline": MET | {"B2": False}}
    records = [judgement("v1", vote("a"), vote("b", first=False), gate, rules=scheme.score)]
    settled = settle(Inputs(scheme, 5, (Participant("ann", submission="s-ann"),), (Validator("v1", 1),), records))
    (chapter,) = [chapter for chapter in settled.explain("ann").chapters if chapter.name == "status"]
    assert "The answers of the panel of v1 differ too much" in chapter.text[0]


@pytest.mark.parametrize(
    ("work", "words"),
    [
        ({"gate": False}, "baseline not met"),
        ({"gate": False, "votes": 12, "flips": 1}, "baseline not met; 1 of the panel's 12 votes differ"),
        (
            {"gate": True, "base": 4000, "verdict": "COHERENT", "capped": True, "bps": 2000},
            "base 4000, COHERENT, unskippable check missed: 2000",
        ),
    ],
)
def test_a_validators_work_in_a_few_words(work: dict[str, Any], words: str) -> None:
    assert saw(work) == words


def test_an_even_panel_and_a_rubric_without_hard_checks_are_remarked() -> None:
    rules = parse(SCHEME.replace("answers = 3", "answers = 4").replace("skippable = false", "skippable = true")).score
    assert isinstance(rules, RubricScore)
    first, second = kinds.find("rubric").remarks(rules)
    assert "every check is skippable" in first
    assert "of 4 answers half can say YES and half NO" in second
    assert list(kinds.find("rubric").remarks(parse(SCHEME).score)) == []
