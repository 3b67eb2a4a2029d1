"""Validators' scores into one agreed score. SPEC 3."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from assay.conformance.kinds.kind import kind
from assay.errors import BadInput
from assay.exact import text
from assay.records import Fraction
from assay.scheme.fields import Key, Rao, Section
from assay.scheme.model import Consensus
from assay.settle.assign import assigned
from assay.settle.consensus import Agreement, Reason, Status, Votes, agree

__all__ = ["assign", "consensus"]

Json = dict[str, Any]


class _Vote(Section):
    validator: Key
    stake: Rao
    score: Fraction | None = None
    state: Literal["incomplete", "unjudged", "silent"] | None = None


class _Consensus(Section):
    consensus: Consensus
    votes: Annotated[tuple[_Vote, ...], Field(strict=False, min_length=1)]
    bps: bool = False


@kind(_Consensus)
def consensus(given: _Consensus) -> Json:
    """What each validator of the registry says of one participant (a whole score, an incomplete run, a malformed judgement, or
    nothing), by the scheme's [consensus] section: status, agreed score, who was flagged and excluded. SPEC 3."""
    votes = given.votes
    if len({vote.validator for vote in votes}) != len(votes):
        raise BadInput("a validator votes twice", field="votes", hint="keep one of the two")
    for place, vote in enumerate(votes):
        if (vote.score is None) == (vote.state is None):
            raise BadInput("has score and state, or neither", field=f"votes[{place}]", hint="give one of the two")
    column = (len(votes), 1)
    state = np.array([vote.state or "whole" for vote in votes]).reshape(column)
    found = agree(
        Votes(
            scores=np.array([vote.score or 0 for vote in votes], np.int64).reshape(column),
            counting=state == "whole",
            stakes=tuple(vote.stake for vote in votes),
            totals=sum(vote.stake for vote in votes),
            incomplete=state == "incomplete",
            unjudged=state == "unjudged",
        ),
        given.consensus,
        bps=given.bps,
    )
    return _told(found, votes)


def _told(found: Agreement, votes: tuple[_Vote, ...]) -> Json:
    agreed = int(found.status[0]) == Status.AGREED
    return {
        "status": Status(int(found.status[0])).code,
        "reason": Reason(int(found.reason[0])).code,
        "score": text(int(found.score[0])) if agreed else None,
        "bps": int(found.bps[0]) if agreed and found.bps is not None else None,
        "stake": str(found.stake[0]),
        "median": _maybe(found.median(0)),
        "mad": _maybe(found.mad(0)),
        "mean": _maybe(found.mean(0)),
        "flagged_majority": bool(found.flagged_majority[0]),
        "validators": [
            {
                "validator": vote.validator,
                "flagged": bool(found.flagged[row, 0]),
                "excluded": bool(found.excluded[row, 0]),
                "modified_z": _maybe(found.modified_z(row, 0)),
                "z_squared": _maybe(found.z_squared(row, 0)),
            }
            for row, vote in enumerate(votes)
            if found.votes.counting[row, 0]
        ],
    }


def _maybe(count: int | None) -> str | None:
    return None if count is None else text(count)


class _Assign(Section):
    assign: Annotated[int, Field(ge=1, le=10**9)]
    validators: Annotated[tuple[Key, ...], Field(strict=False, min_length=1)]
    submission: Key
    randomness: Annotated[str, Field(pattern="^[0-9a-fA-F]{64}$")]


@kind(_Assign)
def assign(given: _Assign) -> Json:
    """Which of the validators that may count are drawn for a submission, by their keys' UTF-8 bytes. SPEC 3.0."""
    keys = tuple(sorted(set(given.validators), key=str.encode))
    rows = assigned(keys, [True] * len(keys), given.submission, bytes.fromhex(given.randomness), given.assign)
    return {"validators": [keys[row] for row in sorted(rows)]}
