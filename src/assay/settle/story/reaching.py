"""What agreed score would take the next place, and what that would bring: computed as the settlement itself is. SPEC 2.1, 4, 5.

The question is: had the participant handed in something new, later than everybody, and had the validators agreed on a score of it
in this epoch, everything else being as it was, what is the least such score?
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from assay.exact import BPS, NANO, text
from assay.scheme.model import TestsScore
from assay.settle.document import shown
from assay.settle.rewarding import Rewarded, rewarded
from assay.settle.score.tests import score_of
from assay.settle.story.telling import Case, Chapter, Json, ordinal, percent

if TYPE_CHECKING:
    from assay.settle.settlement import Settlement

__all__ = ["reaching"]

_MOMENT = timedelta(microseconds=1)
_END = datetime.max.replace(tzinfo=UTC) - _MOMENT


def reaching(settlement: Settlement, case: Case) -> Chapter:
    """The next place in the ranking, who has it, and the least score that takes it; or that no score can."""
    if case.scheme.reward.kind == "ranking":
        return _sharing(settlement, case)
    place = case.rank
    if place == 1:
        return _chapter(("It has the first place.",), {"rank": 1, "above": None, "least": None})
    column, other = settlement.order[place - 1], settlement.order[place - 2]
    above = settlement.frame.participants[other]
    theirs = _said(settlement, _value(settlement, other))
    facts: Json = {"rank": place, "above": above, "above_score": theirs}
    has = f"The place before, {ordinal(place - 1)}, is that of {above} with {theirs}."
    found = _least(settlement, column, place)
    if found is None:
        never = "No score takes it: there is none above that, and of equal scores the earlier submission is first."
        return _chapter((has, never), facts | {"least": None})
    value, then = found
    least, at = _said(settlement, value), then.order.index(column)
    takes = "takes it" if at == place - 2 else f"takes the {ordinal(at + 1)} place at once"
    brings, numbers = _brings(settlement, then, at)
    said = f"A new submission with an agreed score of {least} or more {takes}: with it, and all else as it was, {brings}."
    facts |= {"least": least, "place": at + 1} | numbers
    enough, trials = _enough(case, value)
    return _chapter((has, said, *enough), facts | trials)


def _sharing(settlement: Settlement, case: Case) -> Chapter:
    """The next place of a ranking in which equal scores share one: the same score as theirs is enough."""
    if case.place == 1:
        return _chapter(("It has the first place.",), {"rank": 1, "above": None, "least": None})
    own = _value(settlement, settlement.order[case.rank - 1])
    better = [column for column in settlement.order if _value(settlement, column) > own]
    value = _value(settlement, better[-1])
    above, least = settlement.frame.participants[better[-1]], _said(settlement, value)
    place = 1 + sum(_value(settlement, column) > value for column in better)
    said = f"The place before, {ordinal(place)}, is that of {above} with {least}. The same score shares it."
    enough, trials = _enough(case, value)
    facts = {"rank": case.place, "above": above, "above_score": least, "least": least, "place": place}
    return _chapter((said, *enough), facts | trials)


def _enough(case: Case, value: int) -> tuple[tuple[str, ...], Json]:
    """How many trials passed give this score (nanos), where tests are counted."""
    if not isinstance(rules := case.scheme.score, TestsScore):
        return (), {}
    trials = case.tasks * rules.trials
    passed = _passed(value, trials)
    said = f"If every {case.judge} sees the same, {passed} of {trials} trials passed are enough."
    return (said,), {"trials_passed": passed, "trials": trials}


def _chapter(said: tuple[str, ...], facts: Json) -> Chapter:
    return Chapter(name="next-place", title="The next place", text=said, facts=facts)


def _step(settlement: Settlement) -> int:
    """The least difference between two scores, in nanos."""
    return 1 if settlement.agreement.bps is None else NANO // BPS


def _value(settlement: Settlement, column: int) -> int:
    """The nanos that the ranking goes by: a rubric's are its BPS."""
    bps = settlement.agreement.bps
    return int(settlement.agreement.score[column]) if bps is None else int(bps[column]) * _step(settlement)


def _said(settlement: Settlement, value: int) -> str:
    """A score as people of this competition write it."""
    return text(value) if settlement.agreement.bps is None else f"{value // _step(settlement)} BPS"


def _least(settlement: Settlement, column: int, place: int) -> tuple[int, Rewarded] | None:
    """The least score (nanos) with which the participant is before this place, and what follows; None if there is none."""
    above, step = _value(settlement, settlement.order[place - 2]), _step(settlement)
    for value in range(above, min(NANO, above + step) + 1, step):
        then = _with(settlement, column, value)
        if then.order.index(column) < place - 1:
            return value, then
    return None


def _with(settlement: Settlement, column: int, value: int) -> Rewarded:
    """What follows if the participant's new submission has this agreed score (nanos)."""
    inputs, agreement = settlement.inputs, settlement.agreement
    scores, bps = agreement.score.copy(), None if agreement.bps is None else agreement.bps.copy()
    scores[column] = value
    if bps is not None:
        bps[column] = value // _step(settlement)
    people = list(inputs.participants)
    own = people[column]
    last = max((one.submitted_at for one in people if one.submitted_at is not None), default=_END)
    when = None if own.submitted_at is None else min(last, _END) + _MOMENT
    people[column] = replace(own, submission="", submitted_at=when)  # an empty one is taken for new by both clocks
    return rewarded(
        replace(inputs, participants=tuple(people)),
        settlement.frame,
        settlement.scored,
        replace(agreement, score=scores, bps=bps),
    )


def _brings(settlement: Settlement, then: Rewarded, at: int) -> tuple[str, Json]:
    """What the place at this index would be worth."""
    if then.payouts is not None:
        net = str(next((paid.net for paid in then.payouts.rows if paid.place == at + 1), 0))
        return f"it would be paid {net} after fees", {"net": net}
    assert then.allotment is not None
    share = shown(then.allotment.share[at])
    u16, chain = then.allotment.u16[at], then.allotment.chain_u16[at]
    return f"its share would be {percent(share)}: weight {u16} of 65535", {"share": share, "u16": u16, "chain_u16": chain}


def _passed(value: int, trials: int) -> int:
    """How many trials passed give at least this score (nanos). SPEC 2.1."""
    passed = value * trials // NANO
    return passed + (score_of(passed, trials) < value)
