"""The story of a participant's numbers, told from a settlement: the same for the library and the command line.

    evidence ─▶ failed ─▶ quorum ─▶ outliers ─▶ score ─▶ rank ─▶ share ─▶ cap ─▶ decay ─▶ weight ─▶ next-place
                                                            (or: rank ─▶ release ─▶ payout ─▶ next-place, or: rank ─▶ next-place)

A story only reads what the stages computed, so it cannot disagree with the numbers. Each chapter has sentences and a table
for people, and the same numbers as `facts` for programs. SPEC 2–6.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from assay.errors import BadInput, suggest
from assay.records import Evidence
from assay.settle.story import agreement, weights
from assay.settle.story.agreement import failing, why_not
from assay.settle.story.telling import Chapter, Explanation, Json, Subject, Table, called, money, ordinal, percent, person
from assay.settle.story.weights import reaching

if TYPE_CHECKING:
    from assay.settle.settlement import Settlement

__all__ = ["Chapter", "Explanation", "Table", "called", "explain", "percent", "without_score"]


def explain(settlement: Settlement, key: str, records: Sequence[Evidence] | None = None, token: str = "") -> Explanation:
    """The story of one participant, agreed or not; raises BadInput if the registry does not have it. SPEC 2–5.

    records: those about the participant, if the settlement was computed from sums and so cannot name tasks. token: the token of
    the deposit, as people read it; empty for ether.
    """
    column = settlement.frame.column.get(key)
    if column is None:
        raise _unknown(key, settlement.frame.participants)
    row = next(row for row in settlement.document["agreed"] if row["participant"] == key)
    subject = _subject(settlement, row, token)
    chapters = [*agreement.chapters(subject, failing(settlement, subject, records))]
    if subject.agreed:
        if subject.scheme.reward.kind != "ranking":
            chapters += (
                weights.payout_chapters(subject, subject.scheme.payout)
                if subject.scheme.payout
                else weights.weight_chapters(subject)
            )
        chapters.append(reaching(settlement, subject))
    return Explanation(
        participant=key,
        epoch=settlement.epoch,
        scheme=subject.scheme.name,
        version=subject.scheme.scheme.version,
        settlement=settlement.digest,
        status=subject.row["status"],
        reason=subject.row["reason"],
        summary=_summary(subject),
        chapters=tuple(chapters),
    )


def without_score(settlement: Settlement) -> dict[str, Chapter]:
    """The reason of each participant without an agreed score, in the order of the settlement. SPEC 3."""
    rows = settlement.document["agreed"][len(settlement.order) :]
    return {row["participant"]: why_not(_subject(settlement, row)) for row in rows}


def _subject(settlement: Settlement, row: Json, token: str = "") -> Subject:
    inputs = settlement.inputs
    column = settlement.frame.column

    def name(key: str) -> str:
        return person(inputs.participants[column[key]])

    participant = inputs.participants[column[row["participant"]]]
    names = called(inputs.validators)
    return Subject(inputs.scheme, settlement.document, row, participant, len(inputs.tasks), names, name, token)


def _unknown(key: str, known: tuple[str, ...]) -> BadInput:
    hint = suggest(key, known, "give a key of participants.csv")
    return BadInput(f"there is no participant {key[:80]!r}", field="participant", hint=hint)


def _summary(subject: Subject) -> str:
    name = person(subject.participant)
    if not subject.agreed:
        epoch, status = subject.document["epoch"], subject.row["status"]
        without = "place in the ranking" if subject.scheme.reward.kind == "ranking" else "share in the reward"
        return f"{name} has no agreed score in epoch {epoch} ({status}), so it has no {without}."
    if subject.scheme.reward.kind == "ranking":
        return f"{name} is {ordinal(subject.place)} of {subject.ranked} with a score of {subject.shown_score}."
    place = f"{name} is {ordinal(subject.rank)} of {subject.ranked} with a score of {subject.shown_score}"
    if subject.scheme.payout:
        paid = subject.payout
        return (
            f"{place} and is paid {money(paid['net'], subject.token)} after fees."
            if paid and paid["net"] != "0"
            else f"{place} and is not paid."
        )
    weight = subject.weight
    if weight["uid"] is None:
        return f"{place}. It has no uid, so its share burns: weight 0 of 65535."
    return f"{place} and has a share of {percent(weight['share'])}: weight {weight['u16']} of 65535."
