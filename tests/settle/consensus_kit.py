"""What the tests of consensus share: votes from lists of decimal strings, and what came of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from assay.exact import nanos
from assay.scheme.model import Consensus
from assay.settle.consensus import Agreement, Reason, Status, Votes, agree
from assay.settle.inputs import Bools, Ints

MOST = 2**63 - 1


def rules(**fields: Any) -> Consensus:
    return Consensus.model_validate({"outliers": {}} | fields)


Column = Sequence[str | None]
Totals = int | tuple[int, ...] | None


def panel(columns: Sequence[Column], stakes: Sequence[int], *, total: Totals = None, **masks: list[list[int]]) -> Votes:
    """Votes from lists of decimal strings per participant, None where a validator says nothing."""
    scores = [[0 if text is None else nanos(text) for text in column] for column in columns]
    return Votes(
        scores=np.array(scores, np.int64).reshape(len(columns), len(stakes)).T,
        counting=np.array([[text is not None for text in column] for column in columns], np.bool_)
        .reshape(len(columns), len(stakes))
        .T,
        stakes=tuple(stakes),
        totals=sum(stakes) if total is None else total,
        incomplete=_mask(masks.get("incomplete"), len(columns), len(stakes)),
        unjudged=_mask(masks.get("unjudged"), len(columns), len(stakes)),
    )


def _mask(mask: list[list[int]] | None, columns: int, stakes: int) -> Bools | None:
    return None if mask is None else np.array(mask, np.bool_).reshape(columns, stakes).T


def agreed(scores: Column, stakes: Sequence[int], *, total: int | None = None, bps: bool = False, **fields: Any) -> Agreement:
    return agree(panel([scores], stakes, total=total), rules(**fields), bps=bps)


def codes(result: Agreement, p: int = 0) -> tuple[str, str | None]:
    return Status(int(result.status[p])).code, Reason(int(result.reason[p])).code


def rows(mask: Bools, p: int = 0) -> list[int]:
    return [int(row) for row in np.flatnonzero(mask[:, p])]


def ints(values: Ints | None) -> list[int]:
    assert values is not None
    return [int(value) for value in values]
