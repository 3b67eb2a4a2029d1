"""Checks the results of an enclave, then writes them into the competition's folder.

The checks run in this order. The first one that fails is raised as Refused, with its stage:

attestation   the keys are those of the bounty's enclave (see `assay.enclave.attest.verify` for its stages)
statement     the enclave signed the outcome of each commitment, and the times are within the bounty's
batch         the evidence is the enclave's, and has exactly one record for each solution that was handed in
judgements    each record agrees with its judgement
quotes        a quote binds each judgement

The files that are written:

    participants.csv                      submission, and submitted_at = the time at which the enclave received the commitment
    validators.csv                        the enclave's key, if there is no validator yet
    judgements/HEX.json                   the judgement that a record's `attestation` names
    judgements/HEX.attestation.json       its quote: `assay enclave verify` checks it
    judgements/enclave.attestation.json   the quote of the enclave's keys
    judgements/submissions.json           the outcome of each commitment, signed by the enclave
    batches/, and the ledger              the signed evidence; without a ledger its records, in evidence/

Writing the same results again changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from assay.enclave.attest import Attestation, Collateral, EnclaveStatement, VerifiedQuote
from assay.enclave.attest.document import parse_attestation
from assay.enclave.messages import SignedStatement
from assay.enclave.proofs import check_enclave, check_judgement, contradiction
from assay.enclave.service.results import RESULTS_SCHEMA, RESULTS_STATEMENT
from assay.errors import BadInput, Refused
from assay.exact import canonical, digest
from assay.folder import csvs, strict, write_bytes, write_text
from assay.folder.files import decode
from assay.judge import submitting
from assay.judge.rubric.stored import JUDGEMENTS, digest_hex
from assay.ledger import batch as batches
from assay.ledger import check, config, intake, signing
from assay.ledger.access import open_ledger
from assay.ledger.batch import Batch
from assay.ledger.keys import public
from assay.records import Rubric
from assay.scheme.bounty import Bounty
from assay.scheme.fields import instant


@dataclass(frozen=True)
class SubmissionRow:
    """The outcome of a participant's commitment. submission: None unless a solution was accepted."""

    participant: str
    commitment: str
    committed_at: datetime
    received_at: datetime | None
    submission: str | None
    state: str


@dataclass(frozen=True)
class CheckedResults:
    """Results that passed every check. judgements, attestations: by the digest of the judgement's document."""

    stated: EnclaveStatement
    attestation: Attestation
    verified: VerifiedQuote
    statement: SignedStatement
    rows: tuple[SubmissionRow, ...]
    batch: Batch | None
    judgements: Mapping[str, dict[str, Any]]
    attestations: Mapping[str, Attestation]

    @property
    def epoch(self) -> int:
        """The epoch of the evidence."""
        return int(self.statement.predicate["epoch"])


def check_results(
    bounty: Bounty, attestation: Attestation, data: bytes, *, now: int, collateral: Collateral | None = None
) -> CheckedResults:
    """Check fetched results against the bounty. Raises Refused, and BadInput if they cannot be read."""
    stated, verified = check_enclave(bounty, attestation, now=now, collateral=collateral)
    results = _parsed(data)
    statement = _read_statement(results["statement"], bounty, stated)
    rows = tuple(_parse_row(row) for row in statement.predicate["submissions"])
    _check_rows(bounty, rows)
    batch = _read_batch(results["batch"], statement, bounty, stated, rows)
    judgements = {digest(result): result for result in results["judgements"]}
    attestations = {_stated_judgement(attestation): attestation for attestation in map(_read_quote, results["attestations"])}
    for record in () if batch is None else batch.records:
        if isinstance(record, Rubric):
            _check_record(bounty, record, judgements)
    for name in judgements:
        if name not in attestations:
            raise Refused("quotes", "a judgement has no quote", expected=name)
        check_judgement(bounty, attestations[name], name, stated.signer, now=now, collateral=collateral)
    return CheckedResults(stated, attestation, verified, statement, rows, batch, judgements, attestations)


def _parsed(data: bytes) -> dict[str, Any]:
    shape = {
        "schema": RESULTS_SCHEMA,
        "statement": object,
        "batch": (None, check.WORD),
        "judgements": [object],
        "attestations": [object],
    }
    parsed = strict.parse(decode(data, None))
    if bad := check.misfit(parsed, shape):
        raise BadInput(f"is not what an enclave gives out: another {bad}", hint="is it an enclave's service of this version?")
    result: dict[str, Any] = parsed
    return result


def _read_statement(document: Any, bounty: Bounty, stated: EnclaveStatement) -> SignedStatement:
    try:
        signed = RESULTS_STATEMENT.read(canonical(document))
        signed.check_by(public(stated.signer), "statement")
    except check.CheckError as refused:
        raise Refused("statement", refused.what, expected=refused.expected, found=refused.found) from None
    if signed.digest != bounty.digest:
        raise Refused("statement", "it is about another bounty", expected=bounty.digest, found=signed.digest)
    return signed


def _parse_row(row: dict[str, Any]) -> SubmissionRow:
    times = [None if row[name] is None else instant(row[name]) for name in ("committed_at", "received_at")]
    assert times[0] is not None  # by its shape
    return SubmissionRow(row["participant"], row["commitment"], times[0], times[1], row["submission"], row["state"])


def _check_rows(bounty: Bounty, rows: tuple[SubmissionRow, ...]) -> None:
    """Refuse a participant that occurs twice, and a commitment or a solution that came late."""
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
            raise Refused("statement", "the state of a commitment contradicts its solution", participant=row.participant)


def _read_batch(
    text: str | None, statement: SignedStatement, bounty: Bounty, stated: EnclaveStatement, rows: tuple[SubmissionRow, ...]
) -> Batch | None:
    """The enclave's batch. It has one record for each solution, about the participant who committed to it first."""
    firsts: dict[str, str] = {}
    for row in sorted(rows, key=lambda row: (row.committed_at, row.participant.encode())):
        if row.submission is not None:
            firsts.setdefault(row.submission, row.participant)
    if text is None:
        if firsts or statement.predicate["batch"] is not None:
            raise Refused("batch", "there is no evidence of what was handed in")
        return None
    try:
        batch = batches.read(text.encode())
        batches.check_signature(batch, public(stated.signer))
    except BadInput as error:
        raise Refused("batch", error.what) from None
    head = batch.statement
    for what, wanted, actual in (
        ("digest", statement.predicate["batch"], batch.digest),
        ("log", bounty.origin, head.origin),
        ("competition", bounty.scheme.name, head.competition),
        ("kind", "rubric", head.kind),
        ("validator", stated.signer, public(head.validator).id),
        ("epoch", statement.predicate["epoch"], head.epoch),
    ):
        if wanted != actual:
            raise Refused("batch", f"it is of another {what}", expected=wanted, found=actual)
    about = {record.submission: record.participant for record in batch.records}
    if about != firsts or len(about) != len(batch.records):
        raise Refused("batch", "its records are not one for each solution, about whoever committed first")
    return batch


def _check_record(bounty: Bounty, record: Rubric, judgements: Mapping[str, dict[str, Any]]) -> None:
    """Refuse a record that contradicts its judgement. Only a record `unjudged` without an answer has no judgement."""
    if record.attestation is None and record.outcome == "unjudged":
        return
    judgement = judgements.get(record.attestation or "")
    if judgement is None:
        raise Refused("judgements", "there is none for a record", participant=record.participant, expected=record.attestation)
    name = contradiction(judgement, record, bounty)
    if name is not None:
        raise Refused("judgements", f"a record has another {name}", participant=record.participant, found=judgement.get(name))


def _read_quote(document: Any) -> Attestation:
    return parse_attestation(json.dumps(document).encode())


def _stated_judgement(attestation: Attestation) -> str:
    """The digest of the judgement that an attestation states; "" if it states something else."""
    return getattr(attestation.statement, "judgement", "")


STAKE = "1"
"""The stake of an enclave that is the only validator: its program is attested, so there is no vote."""


def write_results(bounty: Bounty, results: CheckedResults) -> list[Path]:
    """Write checked results into the bounty's folder, and return the files. Raises BadInput and StoreError."""
    competition, with_ledger = bounty.file.parent, config.exists(bounty.file.parent)
    rows = [row for row in results.rows if row.submission is not None]
    for row in rows:
        submitting.find(competition, row.participant)
    validators = _validators(competition, results)
    written = _write_documents(competition, results)
    if validators is not None:
        write_text(competition / csvs.VALIDATORS.name, validators)
        written.append(competition / csvs.VALIDATORS.name)
    for row in rows:
        _enter(competition, row, results.epoch if with_ledger else None)
    if rows:
        written.append(competition / csvs.PARTICIPANTS.name)
    if results.batch is not None:
        written.append(_write_evidence(competition, results.batch, with_ledger=with_ledger))
    return written


def _enter(competition: Path, row: SubmissionRow, epoch: int | None) -> None:
    assert row.submission is not None  # the caller leaves out the other rows
    submitting.find(competition, row.participant).enter(row.submission, at=row.committed_at, epoch=epoch, exact=True)


def _write_documents(competition: Path, results: CheckedResults) -> list[Path]:
    folder = competition / JUDGEMENTS
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot be made ({error.strerror})", file=folder, hint="check the folder and its permissions") from None
    files = {
        "enclave.attestation.json": results.attestation.data,
        "submissions.json": results.statement.envelope + b"\n",
    }
    for name, document in results.judgements.items():
        files[f"{digest_hex(name)}.json"] = canonical(document) + b"\n"
        files[f"{digest_hex(name)}.attestation.json"] = results.attestations[name].data
    for name, data in files.items():
        write_bytes(folder / name, data)
    return [folder / name for name in files]


def _validators(competition: Path, results: CheckedResults) -> str | None:
    """The text of validators.csv with the enclave alone; None if the file lists it. Raises BadInput if it lists only others."""
    file = competition / csvs.VALIDATORS.name
    key = public(results.stated.signer).raw.hex()
    if file.exists() and csvs.read(file, csvs.VALIDATORS):
        if key in intake.keys_of(competition):
            return None
        hint = f"add a row with its key and a stake: {key},{STAKE},enclave"
        raise BadInput("does not have the enclave among the validators", file=file, hint=hint)
    return f"key,stake,name\n{key},{STAKE},enclave\n"


def _write_evidence(competition: Path, batch: Batch, *, with_ledger: bool) -> Path:
    """Write the batch to batches/ and the ledger; without a ledger, its records to evidence/. Returns the file."""
    name = signing.file_name(batch)
    path = competition / "batches" / name if with_ledger else competition / "evidence" / f"enclave-{name[:-6]}.jsonl"
    try:
        path.parent.mkdir(exist_ok=True)
    except OSError as error:
        what = f"cannot be made ({error.strerror})"
        raise BadInput(what, file=path.parent, hint="check the folder and its permissions") from None
    if not with_ledger:
        write_bytes(path, b"".join(body + b"\n" for body in batch.bodies))
        return path
    write_bytes(path, batch.data)
    with open_ledger(competition) as ledger:
        intake.accept(ledger.store, batch, intake.intake_rules(competition))
    return path
