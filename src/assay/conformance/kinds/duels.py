"""The kind of case for duels: a challenger against a king, pair by pair. SPEC 7, `[duel]`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from assay.conformance.kinds.stages import kind
from assay.errors import BadInput
from assay.rules import duel as duels
from assay.scheme.fields import Digest, Key, Section
from assay.scheme.model import Duel

__all__ = ["duel"]

Json = dict[str, Any]


_Outcome = Literal["pass", "fail", "timeout", "error"]


class _DuelTrial(Section):
    task: Key
    trial: Annotated[int, Field(ge=1, le=10_000)] = 1
    challenger: _Outcome | None = None
    king: _Outcome | None = None


class _Duel(Section):
    duel: Duel
    receipt: Digest
    challenger: Key
    king: Key
    tasks: Annotated[tuple[Key, ...], Field(strict=False, min_length=1, max_length=10_000)]
    trials: Annotated[int, Field(ge=1, le=10_000)] = 1
    challengers: Annotated[int, Field(ge=1, le=10_000)] = 1
    results: Annotated[tuple[_DuelTrial, ...], Field(strict=False)] = ()


@kind(_Duel)
def duel(given: _Duel) -> Json:
    """A duel by the [duel] section: the submissions of both, the receipt that its order is drawn from, how many challengers share
    alpha, and outcomes of trials: the path as far as they go, the winner and by what, or the pair that is waited for. SPEC 7."""
    if len(set(given.tasks)) != len(given.tasks):
        raise BadInput("a task is there twice", field="tasks", hint="keep one of the two")
    pairs = [(row.task, row.trial) for row in given.results]
    if len(set(pairs)) != len(pairs):
        raise BadInput("a trial is there twice", field="results", hint="keep one of the two")
    along = duels.order(
        given.tasks, given.trials, bytes.fromhex(given.receipt.removeprefix("sha256:")), given.challenger, given.king
    )
    sides: tuple[dict[duels.Pair, bool], dict[duels.Pair, bool]] = ({}, {})
    for row, pair in zip(given.results, pairs, strict=True):
        for side, outcome in zip(sides, (row.challenger, row.king), strict=True):
            if outcome not in (None, "error"):
                side[pair] = outcome == "pass"
    course = duels.decide(len(along), duels.outcomes(along, *sides), given.duel, given.challengers)
    return duels.document(along, course)
