"""Which validators are drawn to evaluate a submission: `assign = k`. SPEC 3.0."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from assay.errors import BadInput
from assay.records import Participant
from assay.scheme.model import Consensus

__all__ = ["assigned", "drawn", "may_count"]

RANDOMNESS_BYTES = 32


def may_count(stakes: Sequence[int], rules: Consensus) -> tuple[bool, ...]:
    """Whether validators with these stakes (rao) may count at all. SPEC 3.1."""
    return tuple(stake > 0 and stake >= rules.min_validator_stake for stake in stakes)


def drawn(
    participant: Participant,
    epoch: int,
    keys: Sequence[str],
    may: Sequence[bool],
    rules: Consensus,
    randomness: Mapping[int, bytes],
) -> list[int]:
    """The rows of the validators drawn for a submission that was accepted in `epoch`; all without `assign`. SPEC 3.0.

    Raises BadInput if the randomness of that epoch is not there.
    """
    if rules.assign is None:
        return list(range(len(keys)))
    if epoch not in randomness:
        raise BadInput(
            f"there is no randomness of epoch {epoch}, in which the submission of {participant.key!r} was accepted",
            hint="add the row to randomness.csv; `assign` draws the validators from it",
        )
    return assigned(keys, may, participant.submission or participant.key, randomness[epoch], rules.assign)


def assigned(keys: Sequence[str], may_count: Sequence[bool], material: str, randomness: bytes, k: int) -> list[int]:
    """The rows drawn, ascending: the k lowest SHA-256(randomness ‖ 00 ‖ material ‖ 00 ‖ key) of those that may count. SPEC 3.0.

    `material` is the submission (the participant's key where there is none); fewer than k that may count: all of them.
    Raises BadInput if the randomness is not 32 bytes.
    """
    if len(randomness) != RANDOMNESS_BYTES:
        raise BadInput(
            f"the randomness has {len(randomness)} bytes", hint="give the 32 bytes of the epoch's public randomness, in hex"
        )
    prefix = b"\0".join((randomness, material.encode(), b""))
    drawn = sorted(
        (hashlib.sha256(prefix + key.encode()).digest(), row)
        for row, (key, may) in enumerate(zip(keys, may_count, strict=True))
        if may
    )
    return sorted(row for _, row in drawn[:k])
