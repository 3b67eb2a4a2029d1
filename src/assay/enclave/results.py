"""What an enclave gave out, checked by whoever fetched it: signed by the bounty's enclave, whole, and every judgement proven.

In this order; the first thing that is not right is raised as Refused, with its stage:

attestation   the keys are those of the bounty's enclave (see `assay.enclave.attest.verify` for its stages)
statement     the enclave signed what became of each commitment; the times are within the bounty's
batch         the evidence is the enclave's, and there is a record for each solution that was handed in, and no other
judgements    each record says what its judgement says
quotes        each judgement is bound by a quote
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from assay.enclave.attest import Attestation, Collateral, EnclaveStatement, Verified
from assay.enclave.attest.document import parse as parse_attestation
from assay.enclave.attested import check_enclave, check_judgement, contradiction
from assay.enclave.service.results import RESULTS, SCHEMA
from assay.enclave.signed import Signed
from assay.errors import BadInput, Refused
from assay.exact import canonical, digest
from assay.folder import strict
from assay.folder.text import decode
from assay.ledger import batch as batches
from assay.ledger import check
from assay.ledger.batch import Batch
from assay.ledger.keys import public
from assay.records import Rubric
from assay.scheme.bounty import Bounty
from assay.scheme.times import instant

__all__ = ["Row", "Verdicts", "checked"]


@dataclass(frozen=True)
class Row:
    """What became of a participant's commitment. submission: None unless a solution was taken."""

    participant: str
    commitment: str
    committed_at: datetime
    received_at: datetime | None
    submission: str | None
    state: str


@dataclass(frozen=True)
class Verdicts:
    """Results that are right. judgements, attestations: by the digest of the judgement's document."""

    stated: EnclaveStatement
    attestation: Attestation
    verified: Verified
    statement: Signed
    rows: tuple[Row, ...]
    batch: Batch | None
    judgements: Mapping[str, dict[str, Any]]
    attestations: Mapping[str, Attestation]

    @property
    def epoch(self) -> int:
        """The epoch of the evidence."""
        return int(self.statement.predicate["epoch"])


def checked(bounty: Bounty, attestation: Attestation, data: bytes, *, now: int, collateral: Collateral | None = None) -> Verdicts:
    """Results as they were fetched, checked against the bounty; raises Refused, and BadInput for what cannot be read."""
    stated, verified = check_enclave(bounty, attestation, now=now, collateral=collateral)
    found = _parsed(data)
    statement = _statement(found["statement"], bounty, stated)
    rows = tuple(_row(one) for one in statement.predicate["submissions"])
    _check_rows(bounty, rows)
    batch = _batch(found["batch"], statement, bounty, stated, rows)
    judgements = {digest(one): one for one in found["judgements"]}
    attestations = {_named(one): one for one in map(_attestation, found["attestations"])}
    for record in () if batch is None else batch.records:
        if isinstance(record, Rubric):
            _check_record(bounty, record, judgements)
    for name in judgements:
        if name not in attestations:
            raise Refused("quotes", "a judgement has no quote", expected=name)
        check_judgement(bounty, attestations[name], name, stated.signer, now=now, collateral=collateral)
    return Verdicts(stated, attestation, verified, statement, rows, batch, judgements, attestations)


def _parsed(data: bytes) -> dict[str, Any]:
    shape = {
        "schema": SCHEMA,
        "statement": object,
        "batch": (None, check.WORD),
        "judgements": [object],
        "attestations": [object],
    }
    found = strict.parse(decode(data, None))
    if bad := check.misfit(found, shape):
        raise BadInput(f"is not what an enclave gives out: another {bad}", hint="is it an enclave's service of this version?")
    result: dict[str, Any] = found
    return result


def _statement(found: Any, bounty: Bounty, stated: EnclaveStatement) -> Signed:
    try:
        made = RESULTS.read(canonical(found))
        made.check_by(public(stated.signer), "statement")
    except check.Refused as refused:
        raise Refused("statement", refused.what, expected=refused.expected, found=refused.found) from None
    if made.digest != bounty.digest:
        raise Refused("statement", "it is about another bounty", expected=bounty.digest, found=made.digest)
    return made


def _row(said: dict[str, Any]) -> Row:
    times = [None if said[name] is None else instant(said[name]) for name in ("committed_at", "received_at")]
    assert times[0] is not None  # by its shape
    return Row(said["participant"], said["commitment"], times[0], times[1], said["submission"], said["state"])


def _check_rows(bounty: Bounty, rows: tuple[Row, ...]) -> None:
    """Each participant once, in time."""
    closing = bounty.terms.submissions_until
    until = bounty.terms.commitments_until or closing
    if len({row.participant for row in rows}) != len(rows):
        raise Refused("statement", "a participant is there twice")
    for row in rows:
        if until is not None and row.committed_at > until:
            raise Refused("statement", "a commitment came late", participant=row.participant, expected=until)
        if closing is not None and row.received_at is not None and row.received_at > closing:
            raise Refused("statement", "a solution came late", participant=row.participant, expected=closing)
        if (row.submission is None) != (row.state in ("committed", "refused")):
            raise Refused("statement", "what became of a commitment contradicts itself", participant=row.participant)


def _batch(found: str | None, statement: Signed, bounty: Bounty, stated: EnclaveStatement, rows: tuple[Row, ...]) -> Batch | None:
    """The evidence: the enclave's batch, a record for each solution, about whoever committed to it first."""
    firsts: dict[str, str] = {}
    for row in sorted(rows, key=lambda row: (row.committed_at, row.participant.encode())):
        if row.submission is not None:
            firsts.setdefault(row.submission, row.participant)
    if found is None:
        if firsts or statement.predicate["batch"] is not None:
            raise Refused("batch", "there is no evidence of what was handed in")
        return None
    try:
        made = batches.read(found.encode())
        batches.check_signature(made, public(stated.signer))
    except BadInput as error:
        raise Refused("batch", error.what) from None
    said = made.statement
    for what, wanted, given in (
        ("digest", statement.predicate["batch"], made.digest),
        ("log", bounty.origin, said.origin),
        ("competition", bounty.scheme.name, said.competition),
        ("kind", "rubric", said.kind),
        ("validator", stated.signer, public(said.validator).id),
        ("epoch", statement.predicate["epoch"], said.epoch),
    ):
        if wanted != given:
            raise Refused("batch", f"it is of another {what}", expected=wanted, found=given)
    about = {one.submission: one.participant for one in made.records}
    if about != firsts or len(about) != len(made.records):
        raise Refused("batch", "its records are not one for each solution, about whoever committed first")
    return made


def _check_record(bounty: Bounty, record: Rubric, judgements: Mapping[str, dict[str, Any]]) -> None:
    """A record says what its judgement says; only one that is unjudged for want of an answer has none."""
    if record.attestation is None and record.outcome == "unjudged":
        return
    found = judgements.get(record.attestation or "")
    if found is None:
        raise Refused("judgements", "there is none for a record", participant=record.participant, expected=record.attestation)
    name = contradiction(found, record, bounty)
    if name is not None:
        raise Refused("judgements", f"a record has another {name}", participant=record.participant, found=found.get(name))


def _attestation(found: Any) -> Attestation:
    return parse_attestation(json.dumps(found).encode())


def _named(found: Attestation) -> str:
    """The judgement that an attestation states; of anything else, nothing that could be meant."""
    return getattr(found.statement, "judgement", "")
