"""What rubric judges saw: the checks that were missed, and how far the answers of panels differ. SPEC 2.3."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from assay.records import Evidence, Rubric
from assay.scheme.model import RubricScore, ScoreRules
from assay.settle.score.panel import FlipRate
from assay.settle.score.rubric import BASELINE, decide
from assay.settle.story.agreement import counting_records, failed_chapter, votes_of
from assay.settle.story.telling import Chapter, Json, Subject, named, plural

if TYPE_CHECKING:
    from assay.settle.settlement import Settlement

__all__ = ["PanelFlips", "flips_of", "remarks", "rubric", "saw"]

_GATE = {"B1": "it is legal", "B2": "it is ethical", "B3": "it is not spam", "B4": "it addresses the problem"}
SHOWN = 5
"""How many questions are named in a sentence."""


def rubric(settlement: Settlement, subject: Subject, evidence: Sequence[Evidence]) -> Chapter:
    """Checks that some validator's judge answered with NO, and parts of the baseline that were not met. SPEC 2.3."""
    records, rules = (
        counting_records(settlement, subject, [record for record in evidence if isinstance(record, Rubric)]),
        subject.scheme.score,
    )
    assert isinstance(rules, RubricScore)
    facts: list[Json] = []
    rows = []
    for name in BASELINE:
        if by := [record.validator for record in records if record.baseline[name] is False]:
            facts.append({"check": name, "weight": None, "skippable": False, "validators": by})
            rows.append((name, "all", "no", _said_no(subject, by), _GATE[name]))
    for check in rules.checks:
        if by := [record.validator for record in records if all(record.baseline.values()) and record.checks[check.id] is False]:
            facts.append({"check": check.id, "weight": check.weight, "skippable": check.skippable, "validators": by})
            rows.append((check.id, str(check.weight), "yes" if check.skippable else "no", _said_no(subject, by), check.label))
    sentence = f"{plural(len(rows), 'check')} {'was' if len(rows) == 1 else 'were'} missed." if rows else "No check was missed."
    columns = ("check", "BPS", "skippable", "NO by", "what it asks")
    chapter = failed_chapter("Checks that were missed", sentence, {"checks": facts}, columns, rows)
    if (flips := flips_of(records, rules)) is None:
        return chapter
    return replace(chapter, text=(*chapter.text, *flips.sentences()), facts={**chapter.facts, "panels": flips.document()})


def _said_no(subject: Subject, keys: Sequence[str]) -> str:
    return named([subject.called[key] for key in sorted(keys, key=votes_of(subject).index)])


def saw(work: Json) -> str:
    """A validator's work, as a settlement has it, in a few words."""
    panel = f"; {work['flips']} of the panel's {work['votes']} votes differ" if "votes" in work else ""
    if not work["gate"]:
        return f"baseline not met{panel}"
    capped = ", unskippable check missed" if work["capped"] else ""
    return f"base {work['base']}, {work['verdict']}{capped}: {work['bps']}{panel}"


def remarks(rules: RubricScore) -> Iterator[str]:
    """What in the rules is allowed, and yet probably not meant."""
    if all(check.skippable for check in rules.checks):
        yield "score.checks: every check is skippable, so an EXCEPTIONAL verdict gives full marks for nothing"
    if rules.panel is not None and rules.panel.answers % 2 == 0:
        yield f"score.panel.answers: of {rules.panel.answers} answers half can say YES and half NO, which is then unjudged"


@dataclass
class PanelFlips:
    """How often the answers of some panels differ from what their panel decides: sums over all of them, by question and model."""

    panels: int = 0
    split: int = 0
    """Panels without a judgement whose answers differ too much."""
    questions: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Name → flips and votes."""
    judges: dict[str, tuple[int, int]] = field(default_factory=dict)

    def sentences(self) -> list[str]:
        """Both rates in words; fractions are flips / votes."""
        votes, flips = (sum(row[at] for row in self.questions.values()) for at in (1, 0))
        differing = sorted((row for row in self.questions.items() if row[1][0]), key=_most)
        where = f", most of them at {named([f'{name} ({_ratio(row)})' for name, row in differing[:SHOWN]])}" if differing else ""
        lines = [f"In {plural(self.panels, 'panel')}, {flips} of {plural(votes, 'vote')} differ from the majority{where}."]
        if len(self.judges) > 1:
            lines.append(f"By model: {', '.join(f'{name} {_ratio(row)}' for name, row in sorted(self.judges.items()))}.")
        if self.split:
            lines.append(
                f"{self.split} of {plural(self.panels, 'panel')} {'is' if self.split == 1 else 'are'} split, so unjudged."
            )
        return lines

    def document(self) -> Json:
        """The same as facts."""
        return {
            "panels": self.panels,
            "split": self.split,
            "questions": {name: {"flips": flips, "votes": votes} for name, (flips, votes) in self.questions.items()},
            "judges": {name: {"flips": flips, "votes": votes} for name, (flips, votes) in sorted(self.judges.items())},
        }


def _most(row: tuple[str, tuple[int, int]]) -> tuple[int, str]:
    return -row[1][0], row[0]


def _ratio(row: tuple[int, int]) -> str:
    return f"{row[0]}/{row[1]}"


def flips_of(records: Iterable[Rubric], rules: ScoreRules) -> PanelFlips | None:
    """The flips of all panels among these records; None if the rules have no panel, or there is none."""
    if not isinstance(rules, RubricScore) or rules.panel is None:
        return None
    total = PanelFlips()
    for record in records:
        if record.panel is not None:
            decision = decide(record.panel, rules)
            total.panels += 1
            total.split += decision.why == "panel-split"
            _add(total.questions, decision.questions)
            _add(total.judges, decision.judges)
    return total if total.panels else None


def _add(sums: dict[str, tuple[int, int]], rates: Iterable[FlipRate]) -> None:
    for rate in rates:
        flips, votes = sums.get(rate.name, (0, 0))
        sums[rate.name] = flips + rate.flips, votes + rate.votes
