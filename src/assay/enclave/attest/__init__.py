"""Attestation: what an enclave states, the document that proves it, and its verification, offline and at a given time."""

from assay.enclave.attest.collateral import Collateral, read_collateral
from assay.enclave.attest.document import Attestation, EnclaveStatement, Event, JudgementStatement, events_of, report_data
from assay.enclave.attest.verify import STAGES, Check, Verified, verify, verify_quote

__all__ = [
    "STAGES",
    "Attestation",
    "Check",
    "Collateral",
    "EnclaveStatement",
    "Event",
    "JudgementStatement",
    "Verified",
    "events_of",
    "read_collateral",
    "report_data",
    "verify",
    "verify_quote",
]
