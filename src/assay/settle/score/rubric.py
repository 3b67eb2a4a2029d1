"""A rubric's score: baseline gate, weighted checks, verdict, cap of unskippable checks; whole BPS throughout. SPEC 2.3.

- If B1, B2, B3 or B4 is false, the score is 0. All four answers are required.
- base = the weights of the checks answered YES. The verdict moves it. A NO on an unskippable check caps it at a fifth.
- Points missed on skippable checks alone come back: all of them for EXCEPTIONAL, half for ELEGANT.
- A missing answer, one that is not a boolean, or an unknown verdict makes a malformed judgement: it has no score, never zero.
- In the formats `text` and `json_object` one fence around an answer, or one `<think>` before it, is taken off; nothing else is.
- With `injection = "unjudged"` in the scheme, a judgement that suspects an injection has no score either. Without it the
  suspicion decides nothing.
- With `[score.panel]` the answers are those that the panel decides (`score.panel`), and a judgement that has others is malformed.
- base 8000 with 2000 missed on skippable checks → EXCEPTIONAL 10000, ELEGANT 9000, COHERENT 8000, MINOR_ISSUES 7200, FLAWED 6400,
  FUNDAMENTALLY_BROKEN 2000.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from assay.exact import BPS, NANO
from assay.scheme.model import RubricScore
from assay.settle.columns import COMMON, RecordColumn, StandingRecords, choice
from assay.settle.inputs import Bools, Frame, Ints, Scored
from assay.settle.score import panel as panels
from assay.settle.score.panel import Decided, PanelVotes

if TYPE_CHECKING:
    from assay.records import PanelAnswer
    from assay.scheme.bounty import Format

__all__ = ["BASELINE", "VERDICTS", "Grade", "after_verdict", "answer_text", "columns", "counted", "decide", "judge"]

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
    """The steps to the BPS. `gate`: the baseline is met; `capped`: an unskippable check is answered NO. SPEC 2.3."""

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


_MOVED = {name: at for at, name in enumerate(VERDICTS)}


def columns(rules: RubricScore) -> tuple[RecordColumn, ...]:
    """The columns of a record: each answer of the baseline and of the rubric's checks. SPEC 7."""
    return (
        *COMMON,
        *(RecordColumn(f"baseline.{name}", "answer", -1) for name in BASELINE),
        *(RecordColumn(f"checks.{check.id}", "answer", -1) for check in rules.checks),
        RecordColumn("verdict", "choice", -1, words=VERDICTS),
        choice("outcome", "judged", "unjudged"),
        RecordColumn("injection_suspected", "flag", 0),
        RecordColumn("attestation", "note", most=256),
        RecordColumn("quotes", "notes"),
        *panels.vote_columns(rules, BASELINE, VERDICTS),
    )


def decide(panel: Sequence[PanelAnswer], rules: RubricScore) -> Decided:
    """What a panel's answers decide, by the rules of its scheme. SPEC 2.3."""
    return panels.decide(panel, rules, BASELINE, VERDICTS)


def counted(standing: StandingRecords, frame: Frame, rules: RubricScore) -> Scored:
    """Each validator's BPS of each submission, as nanos, as `judge` gives them. SPEC 2.3."""
    given, cell = standing.counting()
    gates = np.stack([given[f"baseline.{name}"] for name in BASELINE])
    met = (gates == 1).all(axis=0)
    sides = [given[f"checks.{check.id}"] for check in rules.checks]
    base, missed = (np.zeros(len(given), np.int64) for _ in range(2))
    capped, malformed = (np.zeros(len(given), np.bool_) for _ in range(2))
    for check, answers in zip(rules.checks, sides, strict=True):
        base += check.weight * (answers == 1)
        missed += check.weight * (check.skippable & (answers == 0))
        capped |= (answers == 0) & (not check.skippable)
        malformed |= answers < 0
    malformed = (gates < 0).any(axis=0) | (met & (malformed | (given["verdict"] < 0))) | (given["outcome"] != 0)
    panel = None
    if rules.panel is not None:
        panel = panels.tally(PanelVotes.of_columns(given, rules, BASELINE), rules)
        malformed |= ~panel.whole | ((np.stack([*gates, *sides, given["verdict"]]) != panel.answers) & panel.needed).any(axis=0)
    moved = np.zeros(len(given), np.int64)
    for verdict, at in _MOVED.items():
        mine = given["verdict"] == at
        moved[mine] = _after_verdicts(verdict, base[mine], missed[mine])
    bps = np.where(capped, np.minimum(moved, FIFTH), moved)
    suspect = ~malformed & (given["injection_suspected"] == 1) & (rules.injection is not None)
    graded = ~malformed & ~suspect
    works = graded & met

    def spread(values: Any, kind: Any, among: Bools) -> Any:
        array = np.zeros(frame.shape, kind)
        array[cell[0][among], cell[1][among]] = values[among] if isinstance(values, np.ndarray) else values
        return array

    numbers = {"base": base, "missed_skippable": missed, "bps": bps}
    work: dict[str, Ints | Bools | NDArray[np.object_]] = {
        name: spread(values, np.int64, works) for name, values in numbers.items()
    }
    work["verdict"] = np.full(frame.shape, None, np.object_)
    work["verdict"][cell[0][works], cell[1][works]] = np.array(VERDICTS, np.object_)[given["verdict"][works]]
    work |= {"gate": spread(True, np.bool_, works), "capped": spread(capped, np.bool_, works)}
    if panel is not None:
        work |= {name: spread(numbers.sum(axis=(0, 1)), np.int64, graded) for name, numbers in panel.differing.items()}
    return Scored(
        scores=spread(bps * (NANO // BPS), np.int64, works),
        counting=spread(True, np.bool_, graded),
        unjudged=spread(True, np.bool_, ~graded),
        suspected=spread(True, np.bool_, suspect),
        split=None if panel is None else spread(panel.split, np.bool_, ~graded & ~suspect),
        work=work,
        first=standing.first,
    )


def _after_verdicts(verdict: str, base: Ints, missed: Ints) -> Ints:
    """`after_verdict` of several judgements."""
    if verdict == "FUNDAMENTALLY_BROKEN":
        return np.minimum(base, FIFTH)
    return np.asarray(
        {
            "EXCEPTIONAL": base + missed,
            "ELEGANT": base + missed // 2,
            "COHERENT": base,
            "MINOR_ISSUES": base - base // 10,
            "FLAWED": base - base // 5,
        }[verdict],
        np.int64,
    )
