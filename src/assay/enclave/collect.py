"""From an enclave's results to a competition's folder: the results are checked first, then written.

The checks, in this order; the first one that fails is raised as Refused, with its stage:

attestation   the keys are those of the bounty's enclave (see `assay.enclave.attest.verify` for its stages)
statement     the enclave signed the outcome of each commitment; the times are within the bounty's
batch         the evidence is the enclave's, and has exactly one record for each solution that was handed in
judgements    each record agrees with its judgement
quotes        each judgement is bound by a quote

The files:

    participants.csv                      submission, and submitted_at = the time at which the enclave had the commitment
    validators.csv                        the enclave's key, if there is no validator yet
    judgements/HEX.json                   the judgement that a record's `attestation` names
    judgements/HEX.attestation.json       its quote: `assay enclave verify` checks it
    judgements/enclave.attestation.json   the quote of the enclave's keys
    judgements/submissions.json           the outcome of each commitment, signed by the enclave
    batches/, and the ledger              the signed evidence; without a ledger its records, in evidence/

Running it again changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from assay.enclave.attest import Attestation, Collateral, EnclaveStatement, Verified
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
    """The outcome of a participant's commitment. submission: None unless a solution was taken."""

    participant: str
    commitment: str
    committed_at: datetime
    received_at: datetime | None
    submission: str | None
    state: str


@dataclass(frozen=True)
class CheckedResults:
    """Results that are right. judgements, attestations: by the digest of the judgement's document."""

    stated: EnclaveStatement
    attestation: Attestation
    verified: Verified
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
    """Results as they were fetched, checked against the bounty; raises Refused, and BadInput for what cannot be read."""
    stated, verified = check_enclave(bounty, attestation, now=now, collateral=collateral)
    found = _parsed(data)
    statement = _read_statement(found["statement"], bounty, stated)
    rows = tuple(_parse_row(one) for one in statement.predicate["submissions"])
    _check_rows(bounty, rows)
    batch = _read_batch(found["batch"], statement, bounty, stated, rows)
    judgements = {digest(one): one for one in found["judgements"]}
    attestations = {_stated_judgement(one): one for one in map(_read_quote, found["attestations"])}
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
    found = strict.parse(decode(data, None))
    if bad := check.misfit(found, shape):
        raise BadInput(f"is not what an enclave gives out: another {bad}", hint="is it an enclave's service of this version?")
    result: dict[str, Any] = found
    return result


def _read_statement(found: Any, bounty: Bounty, stated: EnclaveStatement) -> SignedStatement:
    try:
        made = RESULTS_STATEMENT.read(canonical(found))
        made.check_by(public(stated.signer), "statement")
    except check.CheckError as refused:
        raise Refused("statement", refused.what, expected=refused.expected, found=refused.found) from None
    if made.digest != bounty.digest:
        raise Refused("statement", "it is about another bounty", expected=bounty.digest, found=made.digest)
    return made


def _parse_row(said: dict[str, Any]) -> SubmissionRow:
    times = [None if said[name] is None else instant(said[name]) for name in ("committed_at", "received_at")]
    assert times[0] is not None  # by its shape
    return SubmissionRow(said["participant"], said["commitment"], times[0], times[1], said["submission"], said["state"])


def _check_rows(bounty: Bounty, rows: tuple[SubmissionRow, ...]) -> None:
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


def _read_batch(
    found: str | None, statement: SignedStatement, bounty: Bounty, stated: EnclaveStatement, rows: tuple[SubmissionRow, ...]
) -> Batch | None:
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


def _read_quote(found: Any) -> Attestation:
    return parse_attestation(json.dumps(found).encode())


def _stated_judgement(found: Attestation) -> str:
    """The judgement that an attestation states; of anything else, nothing that could be meant."""
    return getattr(found.statement, "judgement", "")


STAKE = "1"
"""Of an enclave that is the only validator: what it ran is attested, not voted on."""


def write_results(bounty: Bounty, found: CheckedResults) -> list[Path]:
    """Put results that are right into the bounty's folder, and return the files; raises BadInput and StoreError."""
    competition, with_ledger = bounty.file.parent, config.exists(bounty.file.parent)
    rows = [row for row in found.rows if row.submission is not None]
    for row in rows:
        submitting.find(competition, row.participant)
    validators = _validators(competition, found)
    written = _write_documents(competition, found)
    if validators is not None:
        write_text(competition / csvs.VALIDATORS.name, validators)
        written.append(competition / csvs.VALIDATORS.name)
    for row in rows:
        _enter(competition, row, found.epoch if with_ledger else None)
    if rows:
        written.append(competition / csvs.PARTICIPANTS.name)
    if found.batch is not None:
        written.append(_write_evidence(competition, found.batch, with_ledger=with_ledger))
    return written


def _enter(competition: Path, row: SubmissionRow, epoch: int | None) -> None:
    assert row.submission is not None  # the caller saw to it
    submitting.find(competition, row.participant).enter(row.submission, at=row.committed_at, epoch=epoch, exact=True)


def _write_documents(competition: Path, found: CheckedResults) -> list[Path]:
    folder = competition / JUDGEMENTS
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot be made ({error.strerror})", file=folder, hint="check the folder and its permissions") from None
    files = {
        "enclave.attestation.json": found.attestation.data,
        "submissions.json": found.statement.envelope + b"\n",
    }
    for name, document in found.judgements.items():
        files[f"{digest_hex(name)}.json"] = canonical(document) + b"\n"
        files[f"{digest_hex(name)}.attestation.json"] = found.attestations[name].data
    for name, data in files.items():
        write_bytes(folder / name, data)
    return [folder / name for name in files]


def _validators(competition: Path, found: CheckedResults) -> str | None:
    """validators.csv with the enclave as the only one; None if it has it. Raises BadInput if it has only others."""
    file = competition / csvs.VALIDATORS.name
    key = public(found.stated.signer).raw.hex()
    if file.exists() and csvs.read(file, csvs.VALIDATORS):
        if key in intake.keys_of(competition):
            return None
        hint = f"add a row with its key and a stake: {key},{STAKE},enclave"
        raise BadInput("does not have the enclave among the validators", file=file, hint=hint)
    return f"key,stake,name\n{key},{STAKE},enclave\n"


def _write_evidence(competition: Path, found: Batch, *, with_ledger: bool) -> Path:
    """The batch in batches/ and in the ledger, or its records in evidence/."""
    name = signing.file_name(found)
    path = competition / "batches" / name if with_ledger else competition / "evidence" / f"enclave-{name[:-6]}.jsonl"
    try:
        path.parent.mkdir(exist_ok=True)
    except OSError as error:
        what = f"cannot be made ({error.strerror})"
        raise BadInput(what, file=path.parent, hint="check the folder and its permissions") from None
    if not with_ledger:
        write_bytes(path, b"".join(body + b"\n" for body in found.bodies))
        return path
    write_bytes(path, found.data)
    with open_ledger(competition) as ledger:
        intake.accept(ledger.store, found, intake.intake_rules(competition))
    return path
