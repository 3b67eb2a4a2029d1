"""A rubric's score: baseline gate, weighted checks, verdict, cap of unskippable checks; whole BPS throughout. SPEC 2.3.

- If B1, B2, B3 or B4 is false, the score is 0. All four answers are required.
- base = the weights of the checks answered YES. The verdict moves it. A NO on an unskippable check caps it at a fifth.
- Points missed on skippable checks alone come back: all of them for EXCEPTIONAL, half for ELEGANT.
- A missing answer, one that is not a boolean, or an unknown verdict makes a malformed judgement: it has no score, never zero.
- In the formats `text` and `json_object` one fence around an answer, or one `<think>` before it, is taken off; nothing else is.
- With `injection = "unjudged"` in the scheme, a judgement that suspects an injection has no score either. Without it the
  suspicion decides nothing.
- base 8000 with 2000 missed on skippable checks → EXCEPTIONAL 10000, ELEGANT 9000, COHERENT 8000, MINOR_ISSUES 7200, FLAWED 6400,
  FUNDAMENTALLY_BROKEN 2000.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from assay.exact import BPS, NANO
from assay.records import Evidence, Rubric
from assay.scheme.model import RubricScore
from assay.settle.inputs import Bools, Frame, Ints, Scored
from assay.settle.score import accepted, first_epochs, holding, of_kind

if TYPE_CHECKING:
    from assay.scheme.bounty import Format

__all__ = ["BASELINE", "VERDICTS", "Grade", "after_verdict", "answer_text", "judge", "score"]

BASELINE = ("B1", "B2", "B3", "B4")
"""Legal, ethical, not spam, addresses the problem; true = met."""
VERDICTS = ("EXCEPTIONAL", "ELEGANT", "COHERENT", "MINOR_ISSUES", "FLAWED", "FUNDAMENTALLY_BROKEN")
FIFTH = BPS // 5
"""The most that a submission keeps if it fails an unskippable check, or is fundamentally broken."""
_SPACE = "[ \t\r\n]*"
_FENCE = re.compile(rf"{_SPACE}```(?:json)?[ \t]*\r?\n(.*)\n[ \t]*```{_SPACE}", re.DOTALL)
_THOUGHT = re.compile(rf"{_SPACE}<think>.*?</think>(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Grade:
    """How the BPS came about. `gate`: the baseline is met; `capped`: an unskippable check is answered NO. SPEC 2.3."""

    base: int
    missed_skippable: int
    verdict: str | None
    gate: bool
    capped: bool
    bps: int


def judge(baseline: object, checks: object, verdict: object, rules: RubricScore) -> Grade | None:
    """The final BPS of one judgement as it came; None if it is malformed. SPEC 2.3."""
    gate = _answers(baseline, BASELINE)
    if gate is None:
        return None
    if not all(gate):
        return Grade(base=0, missed_skippable=0, verdict=None, gate=False, capped=False, bps=0)
    answers = _answers(checks, [check.id for check in rules.checks])
    if answers is None or not isinstance(verdict, str) or verdict not in VERDICTS:
        return None
    answered = list(zip(rules.checks, answers, strict=True))
    base = sum(check.weight for check, yes in answered if yes)
    missed = sum(check.weight for check, yes in answered if not yes and check.skippable)
    capped = any(not yes and not check.skippable for check, yes in answered)
    moved = after_verdict(verdict, base, missed)
    return Grade(base, missed, verdict, gate=True, capped=capped, bps=min(moved, FIFTH) if capped else moved)


def after_verdict(verdict: str, base: int, missed_skippable: int) -> int:
    """BPS after the verdict, before the cap; within 0 … 10 000, as missed points were never in the base. SPEC 2.3, rule 3."""
    return {
        "EXCEPTIONAL": base + missed_skippable,
        "ELEGANT": base + missed_skippable // 2,
        "COHERENT": base,
        "MINOR_ISSUES": base - base // 10,
        "FLAWED": base - base // 5,
        "FUNDAMENTALLY_BROKEN": min(base, FIFTH),
    }[verdict]


def answer_text(content: str, form: Format) -> str:
    """The JSON text in a model's answer: in `text` and `json_object` without one fence around it or one thought before it.

    A fence is a line of three backticks, with or without `json` after them, and a last line of three; a thought is from a leading
    `<think>` to the first `</think>`. One of the two is taken off, once. SPEC 2.3.
    """
    wrapped = None if form == "json_schema" else _FENCE.fullmatch(content) or _THOUGHT.fullmatch(content)
    return content if wrapped is None else wrapped[1]


def _answers(given: object, names: Sequence[str]) -> list[bool] | None:
    """The answers in the order of the names; None unless each is a boolean."""
    if not isinstance(given, Mapping):
        return None
    answers = [given.get(name) for name in names]
    return [answer is True for answer in answers] if all(isinstance(answer, bool) for answer in answers) else None


def score(records: Sequence[Evidence], frame: Frame, rules: RubricScore) -> Scored:
    """Each validator's BPS of each submission, as nanos; raises BadInput as `accepted` does. SPEC 2.3."""
    mine = of_kind(records, Rubric)
    scores = np.zeros(frame.shape, np.int64)
    counting, unjudged, suspected = (np.zeros(frame.shape, np.bool_) for _ in range(3))
    numbers = {name: np.zeros(frame.shape, np.int64) for name in ("base", "missed_skippable", "bps")}
    flags = {name: np.zeros(frame.shape, np.bool_) for name in ("gate", "capped")}
    verdicts = np.full(frame.shape, None, np.object_)
    column_of = holding(frame)
    for record in accepted(mine, frame):
        column = column_of(record)
        if column is None:
            continue
        cell = (frame.row[record.validator], column)
        grade = judge(record.baseline, record.checks, record.verdict, rules) if record.outcome == "judged" else None
        if grade is None:
            unjudged[cell] = True
            continue
        if record.injection_suspected and rules.injection is not None:
            unjudged[cell] = suspected[cell] = True
            continue
        counting[cell] = True
        scores[cell] = grade.bps * (NANO // BPS)
        verdicts[cell] = grade.verdict
        for name, number in numbers.items():
            number[cell] = getattr(grade, name)
        for name, flag in flags.items():
            flag[cell] = getattr(grade, name)
    work: dict[str, Ints | Bools | NDArray[np.object_]] = {**numbers, "verdict": verdicts, **flags}
    first = first_epochs(mine, frame)
    return Scored(scores=scores, counting=counting, unjudged=unjudged, suspected=suspected, work=work, first=first)
