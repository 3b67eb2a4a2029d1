"""Kinds of case for witnesses: whether enough of them cosigned a checkpoint, and whether two checkpoints prove a fork. SPEC 6."""

from __future__ import annotations

from typing import Any

from assay.conformance.kinds.proofs import Text, refusing
from assay.conformance.kinds.stages import kind
from assay.ledger import cosigning, forks
from assay.ledger.check import LogKey
from assay.scheme.fields import Section

__all__ = ["fork", "witnessed"]

Json = dict[str, Any]


class _Witnessed(Section):
    note: Text
    policy: Text
    key: Text


@refusing
@kind(_Witnessed)
def witnessed(given: _Witnessed) -> Json:
    """A checkpoint with cosignatures (C2SP tlog-cosignature), a policy (C2SP tlog-policy) and the log's key (vkey): what it
    says, and when the witnesses of the policy cosigned it (seconds since 1970): refused if they are no quorum."""
    policy = cosigning.parse_policy(given.policy.encode())
    cosigned = cosigning.check_policy(policy, given.note.encode(), LogKey.parse(given.key))
    log, times = cosigned.checkpoint, {name: str(time) for name, time in cosigned.times.items()}
    return {"origin": log.origin, "size": str(log.size), "root": log.root.hex(), "witnesses": times}


class _Fork(Section):
    proof: Text


@refusing
@kind(_Fork)
def fork(given: _Fork) -> Json:
    """A proof that a log was forked: the log, and the sizes of the two checkpoints that it cannot have both."""
    first, second = forks.check_fork(given.proof.encode()).checkpoints()
    return {"origin": first.origin, "first": str(first.size), "second": str(second.size)}
