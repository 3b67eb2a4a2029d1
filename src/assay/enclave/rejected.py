"""What an enclave turns away, and why: a code for machines, a sentence for people. Nothing of a plaintext is in either."""

from __future__ import annotations

from enum import StrEnum

from assay.errors import AssayError

__all__ = ["Code", "Rejected"]


class Code(StrEnum):
    """Why something was turned away. Who gets one has changed nothing at the enclave, but for the two that are final."""

    MALFORMED = "malformed"
    """It is not what its schema says."""
    TOO_LARGE = "too-large"
    """More bytes than are read, or (final) a solution with more tokens than the bounty allows."""
    OTHER_BOUNTY = "other-bounty"
    """It is about another bounty."""
    UNKNOWN_PARTICIPANT = "unknown-participant"
    """participants.csv has no such row."""
    NO_KEY = "no-key"
    """The participant's key is a name, and no public key: nobody can sign for it."""
    BAD_SIGNATURE = "bad-signature"
    """The participant did not sign it."""
    LATE = "late"
    """By the enclave's clock, when it was there whole."""
    SECOND_COMMITMENT = "second-commitment"
    """The participant has committed to something else."""
    NO_COMMITMENT = "no-commitment"
    """There is no commitment of this participant."""
    NOT_OPENED = "not-opened"
    """It was sealed to another key, for another bounty or by another participant, or was changed."""
    NOT_COMMITTED = "not-committed"
    """Salt and solution are not what was committed to."""
    SECOND_SOLUTION = "second-solution"
    """The participant has handed in another one."""
    NO_SOLUTION = "no-solution"
    """(Final.) What was committed to and sealed is not a solution."""
    NOT_YET = "not-yet"
    """There are no results before the time for solutions is over and everything is judged, or the scoring deadline."""
    UNKNOWN = "unknown"
    """There is nothing of this name."""
    NO_SPONSOR = "no-sponsor"
    """The bounty names no key to seal it to."""
    NOT_SETTLED = "not-settled"
    """Receipt and settlement are not those of this bounty, or do not rest on what was judged here."""
    STARTING = "starting"
    """The enclave has no keys yet: dstack does not answer."""
    BUSY = "busy"
    """Too much at once; or the request did not arrive whole in time."""
    INTERNAL = "internal"
    """The enclave's own trouble."""


class Rejected(AssayError):
    """The enclave does not take it, and says why by a code."""

    def __init__(self, code: Code, what: str, *, hint: str = "") -> None:
        super().__init__(what, hint=hint)
        self.code = code
