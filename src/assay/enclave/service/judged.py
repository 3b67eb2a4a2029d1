"""A judgement as the enclave keeps it: sealed to itself, with the texts that are private until they are released."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from assay.enclave.sealed import Sealed, seal_as
from assay.enclave.service.identity import Identity
from assay.errors import BadInput
from assay.exact import canonical, digest
from assay.folder import strict
from assay.judge.rubric.judgement import Judgement
from assay.judge.rubric.judgement import record as record_of
from assay.records import Rubric, record

__all__ = ["Judged", "keep", "opened"]

SCHEMA = "assay.judged/1"


@dataclass(frozen=True)
class Judged:
    """What was judged: the record, the judgement's document, and the texts."""

    record: Rubric
    document: Mapping[str, Any]
    quotes: Mapping[str, str] = field(repr=False)
    reasons: Mapping[str, str] = field(repr=False)
    transcript: str = field(repr=False)

    @property
    def digest(self) -> str:
        """`sha256:…` of the document: the record's `attestation`."""
        return digest(self.document)


def keep(
    found: Judgement, identity: Identity, *, participant: str, salt: bytes, epoch: int, at: datetime
) -> tuple[Judged, Sealed]:
    """A judgement with its record, and both sealed to the enclave itself. The salt hides the quotes' digests."""
    made = record_of(found, epoch=epoch, validator=identity.validator, participant=participant, observed_at=at, blind=salt)
    one = Judged(made, found.document(salt), dict(found.quotes), dict(found.reasons), found.transcript.decode())
    plain = {
        "schema": SCHEMA,
        "record": one.record.document(),
        "judgement": one.document,
        "quotes": one.quotes,
        "reasons": one.reasons,
        "transcript": one.transcript,
    }
    return one, seal_as("judged", canonical(plain), identity.seal.public, bounty=identity.bounty)


def opened(found: Sealed, identity: Identity) -> Judged:
    """What `keep` sealed; raises BadInput for anything else."""
    said = strict.parse(found.open(identity.seal).decode())
    if not isinstance(said, dict) or said.get("schema") != SCHEMA:
        raise BadInput("is no judgement", hint="another version of the enclave wrote it")
    made = record(said["record"])
    assert isinstance(made, Rubric)  # we wrote it, and signed it
    return Judged(made, said["judgement"], said["quotes"], said["reasons"], said["transcript"])
