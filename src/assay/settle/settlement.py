"""A settlement: everything that SPEC 2–5 produced for one epoch, and ways to read it. SPEC 6, 7."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from assay import tables
from assay.records import Evidence
from assay.settle import story
from assay.settle.consensus import Agreement
from assay.settle.document import BURNT, SETTLEMENT, document
from assay.settle.inputs import Bools, Clock, Frame, Inputs, Previous, Scored
from assay.settle.reward import Allotment, Payouts
from assay.settle.rewarding import Decayed, Warmth

__all__ = ["Decayed", "Seats", "Settlement", "Warmth", "Weight"]


@dataclass(frozen=True)
class Seats:
    """The validators that may count, and the stake that quorums are shares of. SPEC 3.0, 3.1."""

    stakes: tuple[int, ...]
    """Rao, by row."""
    may_count: tuple[bool, ...]
    """By row: stake above 0 and at least `min_validator_stake`, and not left out for a failed audit."""
    total_stake: int
    """Of all validators in the registry."""
    drawn: Bools | None
    """[validators, participants]: which validators were assigned; None if all are."""
    totals: tuple[int, ...]
    """By column: the stake that the quorum is a share of."""


@dataclass(frozen=True, slots=True)
class Weight:
    """A participant's weight: exact shares after each step, and the two encodings. SPEC 4."""

    participant: str
    uid: int | None
    score: int
    strategy: Fraction
    capped: Fraction
    kept: int
    share: Fraction
    u16: int
    chain_u16: int


@dataclass(frozen=True)
class Settlement:
    """One epoch of one competition, settled: what every stage computed, and the `document` that is digested. SPEC 6."""

    inputs: Inputs
    frame: Frame
    scored: Scored
    seats: Seats
    agreement: Agreement
    order: tuple[int, ...]
    """The ranking, as columns."""
    clock: Clock
    """Both clocks after this epoch."""
    decayed: Decayed | None
    allotment: Allotment | None
    """None where the scheme pays out instead, or only ranks."""
    payouts: Payouts | None
    warmth: Warmth | None = None
    """None where the scheme has no warm-up."""

    @property
    def epoch(self) -> int:
        """The epoch that was settled."""
        return self.inputs.epoch

    @cached_property
    def ranking(self) -> list[str]:
        """Keys of the participants with an agreed score, best first. SPEC 2.1."""
        return [self.frame.participants[column] for column in self.order]

    @cached_property
    def weights(self) -> Mapping[str, Weight]:
        """Key → weight, in ranking order; empty where the scheme pays out or only ranks. SPEC 4."""
        if self.allotment is None or self.decayed is None:
            return {}
        allotment, decayed = self.allotment, self.decayed
        return {
            key: Weight(
                participant=key,
                uid=self.inputs.participants[column].uid,
                score=int(self.agreement.score[column]),
                strategy=Fraction(allotment.strategy.parts[place], allotment.strategy.denominator),
                capped=Fraction(allotment.capped.parts[place], allotment.capped.denominator),
                kept=decayed.kept[place],
                share=Fraction(allotment.share.parts[place], allotment.share.denominator),
                u16=allotment.u16[place],
                chain_u16=allotment.chain_u16[place],
            )
            for place, (key, column) in enumerate(zip(self.ranking, self.order, strict=True))
        }

    @cached_property
    def document(self) -> dict[str, Any]:
        """The settlement as the closed JSON document of schema `assay.settlement/1`, digest included. SPEC 6, 7."""
        return document(self)

    @property
    def digest(self) -> str:
        """`sha256:…` over the canonical JSON of the document without its `digest`. SPEC 6."""
        digest: str = self.document["digest"]
        return digest

    @property
    def handed_on(self) -> Previous:
        """The state that the settlement of a later epoch takes from this one. SPEC 4, Decay."""
        return Previous(scheme=self.inputs.scheme.name, epoch=self.epoch, task_set=self.inputs.task_set, clock=self.clock)

    def explain(self, participant: str, records: Sequence[Evidence] | None = None, *, token: str = "") -> story.Explanation:
        """The way to this participant's numbers, or the reason for having none; BadInput if it is not in the registry. SPEC 2–5.

        records: those about the participant, if this settlement was computed from sums and so cannot name tasks. token: the token
        of the deposit, as people read it; empty for ether.
        """
        return story.explain(self, participant, records, token)

    def to_arrow(self) -> tables.Tables:
        """The document as Arrow tables for polars, pandas and DuckDB; raises CannotSettle without the extra `bulk`. SPEC 6."""
        return tables.tables(self.document, SETTLEMENT, BURNT)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Settlement) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)
