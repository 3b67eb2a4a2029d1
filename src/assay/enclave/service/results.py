"""Makes the results for everybody when judging is over, and for the sponsor the sealed results and the release. SPEC 5, 6, 7.

`assay.enclave-results/1`, canonical JSON, closed:

    statement      signed by the enclave: the times of commitments, the solutions, their outcome, and the digest of the batch
    batch          the evidence, a signed batch for the ledger; null if no solution was handed in
    judgements     the documents that the records' `attestation` names
    attestations   a quote for each of them

They are made when the time for solutions is over and every solution is judged, at the latest at the scoring deadline, and never
change after that. A solution that is not judged or not attested by then is unjudged: it never gets a zero, and nothing waits for
it.

The sponsor gets a release in exchange for a receipt and its settlement. The log whose key the bounty names must have signed the
receipt, for this very scheme. The sponsor may hold the log's key, so that is not enough: the enclave also settles its own
judgements, and releases the solutions that both settlements pay for, sealed to the sponsor.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from assay.enclave.attest.document import parse_attestation
from assay.enclave.messages import Rejected, RejectionCode, StatementKind
from assay.enclave.sealing import seal_bytes
from assay.enclave.service.judging import JudgedSolution, JudgingQueue
from assay.enclave.service.state import TakenCommitment, id_of
from assay.errors import BadInput
from assay.exact import canonical, digest
from assay.folder import strict
from assay.folder.files import decode
from assay.ledger import batch as batches
from assay.ledger import check
from assay.ledger.keys import PublicKey
from assay.records import Participant, Rubric, Validator
from assay.scheme.fields import instant_text
from assay.settle import pipeline
from assay.settle.inputs import Inputs

RESULTS_SCHEMA = "assay.enclave-results/1"
SPONSOR_SCHEMA = "assay.sponsor-results/1"
_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z"
RESULTS_STATEMENT = StatementKind(
    "assay:enclave-results/v1",
    "bounty",
    {
        "epoch": int,
        "batch": (None, check.DIGEST),
        "submissions": [
            {
                "participant": check.WORD,
                "commitment": check.DIGEST,
                "committed_at": _TIME,
                "received_at": (None, _TIME),
                "submission": (None, check.DIGEST),
                "state": "committed|refused|judged|unjudged",
            }
        ],
    },
    most=64 * 2**20,
)
"""The state of each commitment: no solution yet (committed), refused, judged, or left unjudged."""


@dataclass(frozen=True)
class PublishedResults:
    """The published results as bytes, and the outcome of each ID."""

    data: bytes
    states: dict[str, str]


def make_results(work: JudgingQueue) -> PublishedResults:
    """The results at this moment. A solution that is not judged and attested is unjudged."""
    state, identity = work.desk.state, work.desk.identity
    counted = {name: _counted(work, group) for group in work.groups() for name in group}
    rows, states = [], {}
    for name, commitment in sorted(state.commitments.items(), key=lambda row: (row[1].at, row[1].signed.participant.encode())):
        states[name] = _state(work, name, counted.get(name))
        rows.append(_row(work, name, commitment, states[name]))
    records = records_of(work)
    batch = None
    if records:
        scheme = work.desk.bounty.scheme
        batch = batches.make(
            records,
            origin=work.desk.bounty.origin,
            competition=scheme.name,
            task_set=None,
            signer=identity.signer,
            validator=identity.validator,
        )
    predicate = {"epoch": work.epoch, "batch": None if batch is None else batch.digest, "submissions": rows}
    judged = {judged.digest: name for name, judged in _judgements(work)}
    document = {
        "schema": RESULTS_SCHEMA,
        "statement": json.loads(RESULTS_STATEMENT.make(identity.bounty, predicate, identity.signer).envelope),
        "batch": None if batch is None else batch.data.decode(),
        "judgements": [work.done[name].document for _, name in sorted(judged.items())],
        "attestations": [parse_attestation(state.quotes[name]).document() for _, name in sorted(judged.items())],
    }
    return PublishedResults(canonical(document) + b"\n", states)


def records_of(work: JudgingQueue) -> list[Rubric]:
    """The evidence: one record for each solution."""
    return [_record(work, group) for group in work.groups()]


def seal_for_sponsor(work: JudgingQueue, sponsor: PublicKey) -> bytes:
    """Judgements and their cost, sealed to the sponsor. SPEC 7.

    They contain no text of a solution, and no text that a model wrote about one: only a release has those.
    """
    names = {name: work.desk.state.commitments[name].signed.participant for name, _ in _judgements(work)}
    rows = [
        _sponsor_row(work.done[name], participant) for name, participant in sorted(names.items(), key=lambda row: row[1].encode())
    ]
    plain = {"schema": SPONSOR_SCHEMA, "bounty": work.desk.identity.bounty, "judgements": rows}
    return seal_bytes("results", canonical(plain), sponsor, bounty=work.desk.identity.bounty).file


def _sponsor_row(judged: JudgedSolution, participant: str) -> dict[str, Any]:
    names = ("outcome", "baseline", "checks", "verdict", "reason", "detectors", "model", "exchanges", "measured")
    return {"participant": participant, "submission": judged.record.submission} | {name: judged.document[name] for name in names}


def _judgements(work: JudgingQueue) -> Iterator[tuple[str, JudgedSolution]]:
    """The judgements that count: those that are attested."""
    for group in work.groups():
        name = _counted(work, group)
        if name is not None:
            yield name, work.done[name]


def _counted(work: JudgingQueue, group: list[str]) -> str | None:
    """The ID under which a group is judged and attested; None if it is not."""
    return work.judged(group) if work.attested(group) else None


def _record(work: JudgingQueue, group: list[str]) -> Rubric:
    """The record of a solution, about the participant who committed to it first."""
    first = work.desk.state.commitments[group[0]].signed.participant
    name = _counted(work, group)
    if name is not None:
        return work.done[name].record.model_copy(update={"participant": first})
    return Rubric(
        kind="rubric",
        epoch=work.epoch,
        validator=work.desk.identity.validator,
        participant=first,
        submission=work.desk.opened[group[0]].solution.digest,
        observed_at=work.desk.times.scores,
        outcome="unjudged",
    )


def _state(work: JudgingQueue, name: str, counted: str | None) -> str:
    submission = work.desk.state.submissions.get(name)
    if submission is None:
        return "committed"
    if submission.refused:
        return "refused"
    return "unjudged" if counted is None else work.done[counted].record.outcome


def _row(work: JudgingQueue, name: str, commitment: TakenCommitment, state: str) -> dict[str, Any]:
    submission, opened = work.desk.state.submissions.get(name), work.desk.opened.get(name)
    return {
        "participant": commitment.signed.participant,
        "commitment": commitment.signed.digest,
        "committed_at": instant_text(commitment.at),
        "received_at": None if submission is None else instant_text(submission.at),
        "submission": None if opened is None else opened.solution.digest,
        "state": state,
    }


def read_results(data: bytes, work: JudgingQueue) -> PublishedResults:
    """Results that were published before. Raises BadInput unless this enclave signed them."""
    try:
        document = strict.parse(decode(data, None))
        statement = RESULTS_STATEMENT.read(canonical(document["statement"]))
    except (BadInput, check.CheckError, KeyError, TypeError):
        raise BadInput("was changed after the enclave wrote it", hint="restore it from a copy, or remove it") from None
    if not statement.is_by(work.desk.identity.signer.public) or statement.digest != work.desk.identity.bounty:
        raise BadInput("is not signed by this enclave, for this bounty", hint="restore it from a copy, or remove it")
    return PublishedResults(data, {id_of(row["participant"]): row["state"] for row in statement.predicate["submissions"]})


def results_due(work: JudgingQueue, now: datetime) -> bool:
    """Whether it is time for the results: no solution can come any more, and all are judged or the deadline is over."""
    times = work.desk.times
    return now > times.solutions and (work.finished or now > times.scores)


RELEASE_SCHEMA = "assay.release/1"
RELEASE_BYTES = 64 * 2**20
"""Bytes of receipt and settlement together."""


def release_solutions(work: JudgingQueue, data: bytes, sponsor: PublicKey) -> bytes:
    """The sealed release for `{"receipt", "settlement"}`, with the same content each time. Raises Rejected."""
    receipt, settlement = _parse_request(data)
    _check_receipt(work, receipt, settlement)
    names = _paid_participants(settlement) & _own_payouts(work)
    plain = {
        "schema": RELEASE_SCHEMA,
        "bounty": work.desk.identity.bounty,
        "settlement": settlement["digest"],
        "solutions": [_released(work, group) for group in work.groups() if _whose(work, group) in names],
    }
    return seal_bytes("release", canonical(plain), sponsor, bounty=work.desk.identity.bounty).file


def _parse_request(data: bytes) -> tuple[check.Receipt, dict[str, Any]]:
    try:
        request = strict.parse(decode(data, None))
        if (
            not isinstance(request, dict)
            or request.keys() != {"receipt", "settlement"}
            or not isinstance(request["settlement"], dict)
        ):
            raise Rejected(
                RejectionCode.MALFORMED, "this is not a receipt and a settlement", hint="`assay enclave release` sends them"
            )
        return check.Receipt.parse(canonical(request["receipt"])), request["settlement"]
    except (BadInput, check.CheckError) as error:
        raise Rejected(RejectionCode.MALFORMED, error.what) from None


def _check_receipt(work: JudgingQueue, receipt: check.Receipt, settlement: dict[str, Any]) -> None:
    """Reject a receipt or settlement that is not of this bounty, signed by its log."""
    bounty = work.desk.bounty
    if bounty.terms.log is None:
        raise Rejected(RejectionCode.NOT_SETTLED, "the bounty names no log", hint="nothing can be released without [bounty] log")
    try:
        check.check_receipt(receipt, [check.LogKey.parse(bounty.terms.log)])
    except check.CheckError as refused:
        raise Rejected(RejectionCode.NOT_SETTLED, f"the receipt is not right: {refused}") from None
    predicate = receipt.predicate
    computed = digest({name: value for name, value in settlement.items() if name != "digest"})
    for what, wanted, actual in (
        ("competition", bounty.scheme.name, predicate["competition"]),
        ("scheme", bounty.scheme.digest, predicate["scheme"]),
        ("settlement", predicate["settlement"], computed),
        ("digest", computed, settlement.get("digest")),
    ):
        if wanted != actual:
            raise Rejected(RejectionCode.NOT_SETTLED, f"the receipt and the settlement are not of this bounty: another {what}")
    if predicate["epoch"] < work.epoch:
        raise Rejected(
            RejectionCode.NOT_SETTLED, f"the receipt is of epoch {predicate['epoch']}, what was judged here is of {work.epoch}"
        )


def _paid_participants(settlement: dict[str, Any]) -> set[str]:
    """The participants whom the settlement pays."""
    try:
        return {row["participant"] for row in settlement["payouts"] if int(row["gross"]) > 0}
    except (KeyError, TypeError, ValueError):
        raise Rejected(RejectionCode.NOT_SETTLED, "the settlement has no payouts that can be read") from None


def _own_payouts(work: JudgingQueue) -> set[str]:
    """The participants whom a settlement of this enclave's own judgements pays."""
    rules = work.desk.bounty.scheme
    alone = {"min_validators": 1, "min_stake": 0, "min_validator_stake": 0, "assign": None, "max_age_epochs": None}
    people = [
        Participant(
            key=commitment.signed.participant, submission=work.desk.opened[name].solution.digest, submitted_at=commitment.at
        )
        for name, commitment in work.desk.state.commitments.items()
        if name in work.desk.opened
    ]
    settled = pipeline.settle(
        Inputs(
            scheme=rules.model_copy(update={"consensus": rules.consensus.model_copy(update=alone)}),
            epoch=work.epoch,
            participants=tuple(people),
            validators=(Validator(work.desk.identity.validator, 1),),
            evidence=records_of(work),
        )
    )
    return _paid_participants(settled.document)


def _whose(work: JudgingQueue, group: list[str]) -> str:
    return work.desk.state.commitments[group[0]].signed.participant


def _released(work: JudgingQueue, group: list[str]) -> dict[str, Any]:
    """A solution as it is released, with the salt of its quotes' digests and the whole transcript."""
    name = work.judged(group)
    assert name is not None  # it was paid
    judged, opened = work.done[name], work.desk.opened[name]
    return {
        "participant": _whose(work, group),
        "submission": opened.solution.digest,
        "judgement": judged.digest,
        "solution": base64.b64encode(opened.solution.data).decode(),
        "salt": opened.salt.hex(),
        "quotes": judged.quotes,
        "reasons": judged.reasons,
        "transcript": judged.transcript,
    }
