"""Fixtures for tests of the enclave: a development machine, an attestation of it, and a bare look at refusals."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from assay.enclave.attest import Attestation, EnclaveStatement, LogEvent, VerifiedQuote, report_data, verify
from assay.enclave.develop.machine import Authority, Machine
from assay.errors import Refused
from assay.scheme.bounty import Measurements
from assay.scheme.reading import validate

__all__ = ["AUTHORITY", "MACHINE", "NOW", "STATEMENT", "attested", "compose_hash", "policy", "refused", "stages", "with_changes"]

NOW = 1_800_000_000
AUTHORITY = Authority(b"a secret of thirty-two bytes" + bytes(4))
MACHINE = Machine(AUTHORITY)
STATEMENT = EnclaveStatement(bounty=f"sha256:{'ab' * 32}", seal=f"x25519:{'cd' * 32}", signer=f"ed25519:{'ef' * 32}")


def attested(machine: Machine = MACHINE, log: Sequence[LogEvent] | None = None, **changes: Any) -> Attestation:
    """The attestation that a machine makes of STATEMENT, with its collateral; `changes` are put in place of its fields."""
    attestation = Attestation(
        statement=STATEMENT,
        quote=machine.quote(report_data(STATEMENT)).hex(),
        event_log=tuple(machine.log if log is None else log),
        collateral=machine.authority.collateral(NOW),
    )
    return attestation.model_copy(update=changes)


def compose_hash(machine: Machine = MACHINE) -> str:
    """The compose hash that a bounty pins for a machine."""
    return machine.compose_hash.hex()


def policy(machine: Machine = MACHINE, **changes: Any) -> Measurements:
    """A policy for tests that pins the machine's compose hash."""
    return validate(Measurements, {"compose_hash": compose_hash(machine), "development": True} | changes)


def refused(attestation: Attestation, stage: str, words: str | None = None, *, now: int = NOW, **pins: Any) -> Refused:
    """The refusal of an attestation, which must be at the stage and say the words."""
    with pytest.raises(Refused, match=words) as error:
        verify(attestation, policy=policy(**pins), now=now)
    assert error.value.stage == stage, error.value
    assert error.value.exit_code == 1
    return error.value


def stages(verified: VerifiedQuote, *, done: bool = True) -> list[str]:
    """The stages that were checked, or those that were not."""
    return [check.stage for check in verified.checked if check.done is done]


def with_changes(machine: Machine, **fields: bytes) -> Machine:
    """The machine with fields of its TD report changed."""
    return replace(machine, changes=dict(fields))
