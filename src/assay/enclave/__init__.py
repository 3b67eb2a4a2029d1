"""Judging inside an enclave: sealed submissions, the service that judges them, and the verification of its attestation."""
