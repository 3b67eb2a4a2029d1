"""Attestation: the statements of an enclave, the document that proves them, and its offline verification at a given time."""

from assay.enclave.attest.collateral import Collateral, read_collateral
from assay.enclave.attest.document import Attestation, EnclaveStatement, JudgementStatement, LogEvent, events_of, report_data
from assay.enclave.attest.verify import STAGES, StageCheck, VerifiedQuote, verify, verify_quote

__all__ = [
    "STAGES",
    "Attestation",
    "Collateral",
    "EnclaveStatement",
    "JudgementStatement",
    "LogEvent",
    "StageCheck",
    "VerifiedQuote",
    "events_of",
    "read_collateral",
    "report_data",
    "verify",
    "verify_quote",
]
