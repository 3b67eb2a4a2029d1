"""Whether an attestation is that of a bounty's enclave: what it states, and what the bounty pins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.enclave.attest import Attestation, Collateral, EnclaveStatement, JudgementStatement, Verified, verify
from assay.errors import BadInput, Refused
from assay.exact import canonical
from assay.judge.rubric import judgement as judgements
from assay.records import Rubric
from assay.scheme.bounty import Bounty
from assay.scheme.measured import Measured

__all__ = ["check_enclave", "check_judgement", "contradiction", "pinned"]


def pinned(bounty: Bounty) -> Measured:
    """What the bounty's enclave must measure as; raises BadInput if the bounty has none."""
    if bounty.enclave is None:
        hint = "pin one: [enclave] compose_hash = …, which `assay enclave compose-hash` prints"
        raise BadInput("says nothing of an enclave", file=bounty.file, field="enclave", hint=hint)
    return bounty.enclave


def check_enclave(
    bounty: Bounty, found: Attestation, *, now: int, collateral: Collateral | None = None
) -> tuple[EnclaveStatement, Verified]:
    """The keys of the bounty's enclave, and all that was checked of them; raises Refused and BadInput. now: since 1970."""
    said = stated(bounty, found)
    return said, verify(found, policy=pinned(bounty), now=now, collateral=collateral)


def stated(bounty: Bounty, found: Attestation) -> EnclaveStatement:
    """The keys that an attestation states for a bounty, not verified; raises Refused if it is about something else."""
    said = found.statement
    if not isinstance(said, EnclaveStatement):
        raise Refused("statement", "it is not about an enclave", expected="enclave", found=said.type)
    _same("bounty", "it is of another bounty", bounty.digest, said.bounty)
    return said


def check_judgement(
    bounty: Bounty, found: Attestation, judgement: str, signer: str, *, now: int, collateral: Collateral | None = None
) -> Verified:
    """Verify that this very judgement (its digest) was made in the bounty's enclave; raises Refused and BadInput."""
    said = found.statement
    if not isinstance(said, JudgementStatement):
        raise Refused("statement", "it is not about a judgement", expected="judgement", found=said.type)
    _same("bounty", "it is of another bounty", bounty.digest, said.bounty)
    _same("judgement", "it is of another judgement", judgement, said.judgement)
    _same("signer", "it names another signer", signer, said.signer)
    return verify(found, policy=pinned(bounty), now=now, collateral=collateral)


def contradiction(document: Mapping[str, Any], record: Rubric, bounty: Bounty) -> str | None:
    """The first field in which a judgement's document is not that of the record which names it: another submission, an answer."""
    wanted = {
        "schema": judgements.SCHEMA,
        "bounty": bounty.digest,
        "submission": record.submission,
        "outcome": record.outcome,
        "baseline": record.baseline,
        "checks": record.checks,
        "verdict": record.verdict,
        "injection_suspected": record.injection_suspected,
    }
    return next((name for name, value in wanted.items() if canonical(document.get(name)) != canonical(value)), None)


def _same(stage: str, what: str, expected: str, found: str) -> None:
    if expected != found:
        raise Refused(stage, what, expected=expected, found=found)
