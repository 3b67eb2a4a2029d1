"""The kind of case for panels: k answers about one solution, and what they decide. SPEC 2.3; docs/rubric.md, "Panels"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from assay.conformance.kinds.stages import kind
from assay.errors import BadInput
from assay.records import PANEL_ANSWERS, PanelAnswer
from assay.scheme.fields import Section
from assay.scheme.score import RubricScore
from assay.settle.score import rubric
from assay.settle.score.panel import FlipRate

__all__ = ["panel"]

Json = dict[str, Any]


class _Panel(Section):
    score: RubricScore
    panel: Annotated[tuple[PanelAnswer, ...], Field(strict=False, max_length=PANEL_ANSWERS)]


@kind(_Panel)
def panel(given: _Panel) -> Json:
    """A panel's answers, by the [score] section: what they decide, or why they decide nothing; which questions are undecided; and
    the flips of each decided question and of each of the first k answers. SPEC 2.3."""
    if given.score.panel is None:
        raise BadInput("there is no panel", field="score.panel", hint="say how many answers it has")
    found = rubric.decide(given.panel, given.score)
    return {
        "why": found.why,
        "undecided": list(found.undecided),
        "baseline": None if found.baseline is None else dict(found.baseline),
        "checks": None if found.checks is None else dict(found.checks),
        "verdict": found.verdict,
        "questions": _rates(found.questions),
        "judges": _rates(found.judges),
    }


def _rates(rates: Sequence[FlipRate]) -> list[Json]:
    return [{"name": rate.name, "flips": rate.flips, "votes": rate.votes} for rate in rates]
