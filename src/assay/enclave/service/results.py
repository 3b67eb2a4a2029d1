"""What the enclave gives out: to everybody, once it can be no advantage to anybody; and, sealed, to the sponsor. SPEC 5, 6.

`assay.enclave-results/1`, canonical JSON, closed:

    statement      signed by the enclave: who committed when, what was handed in, what became of it; the digest of the batch
    batch          the evidence, a signed batch of the ledger's; null if nothing was handed in
    judgements     the documents that the records' `attestation` names
    attestations   a quote for each of them

They are made when the time for solutions is over and everything is judged, or else at the scoring deadline, and are the same from
then on. What is not judged, or not attested, is unjudged then: never zero, and nobody waits for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from assay.enclave.attest.document import parse as parse_attestation
from assay.enclave.sealed import seal_as
from assay.enclave.service.judged import Judged
from assay.enclave.service.state import Commitment, id_of
from assay.enclave.service.work import Work
from assay.enclave.signed import Kind
from assay.errors import BadInput
from assay.exact import canonical
from assay.folder import strict
from assay.folder.text import decode
from assay.ledger import batch as batches
from assay.ledger import check
from assay.ledger.keys import PublicKey
from assay.records import Rubric
from assay.scheme.times import instant_text

__all__ = ["RESULTS", "SCHEMA", "SPONSOR", "Results", "due", "for_sponsor", "make", "read", "records_of"]

SCHEMA = "assay.enclave-results/1"
SPONSOR = "assay.sponsor-results/1"
_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z"
RESULTS = Kind(
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
"""What became of each commitment: nothing was handed in, it was refused, judged, or left unjudged."""


@dataclass(frozen=True)
class Results:
    """What is given out to everybody, as bytes, and what became of each ID."""

    data: bytes
    states: dict[str, str]


def make(work: Work) -> Results:
    """The results as they are now: what is not judged and attested is unjudged."""
    state, identity = work.desk.state, work.desk.identity
    counted = {name: _counted(work, group) for group in work.groups() for name in group}
    rows, states = [], {}
    for name, one in sorted(state.commitments.items(), key=lambda row: (row[1].at, row[1].said.participant.encode())):
        states[name] = _state(work, name, counted.get(name))
        rows.append(_row(work, name, one, states[name]))
    records = records_of(work)
    made = None
    if records:
        scheme = work.desk.bounty.scheme
        made = batches.make(
            records,
            origin=work.desk.bounty.origin,
            competition=scheme.name,
            task_set=None,
            signer=identity.signer,
            validator=identity.validator,
        )
    said = {"epoch": work.epoch, "batch": None if made is None else made.digest, "submissions": rows}
    judged = {one.digest: name for name, one in _judgements(work)}
    document = {
        "schema": SCHEMA,
        "statement": json.loads(RESULTS.make(identity.bounty, said, identity.signer).envelope),
        "batch": None if made is None else made.data.decode(),
        "judgements": [work.done[name].document for _, name in sorted(judged.items())],
        "attestations": [parse_attestation(state.quotes[name]).document() for _, name in sorted(judged.items())],
    }
    return Results(canonical(document) + b"\n", states)


def records_of(work: Work) -> list[Rubric]:
    """The evidence, a record for each solution."""
    return [_record(work, group) for group in work.groups()]


def for_sponsor(work: Work, sponsor: PublicKey) -> bytes:
    """What was judged and what it took, sealed to the sponsor. Nothing of a solution's text is in it, and nothing that a model
    wrote after reading it: that is released with the winners' solutions alone. SPEC 7.
    """
    names = {name: work.desk.state.commitments[name].said.participant for name, _ in _judgements(work)}
    rows = [_told(work.done[name], whose) for name, whose in sorted(names.items(), key=lambda row: row[1].encode())]
    plain = {"schema": SPONSOR, "bounty": work.desk.identity.bounty, "judgements": rows}
    return seal_as("results", canonical(plain), sponsor, bounty=work.desk.identity.bounty).file


def _told(one: Judged, participant: str) -> dict[str, Any]:
    names = ("outcome", "baseline", "checks", "verdict", "reason", "detectors", "model", "exchanges", "measured")
    return {"participant": participant, "submission": one.record.submission} | {name: one.document[name] for name in names}


def _judgements(work: Work) -> Iterator[tuple[str, Judged]]:
    """Those that count: attested."""
    for group in work.groups():
        name = _counted(work, group)
        if name is not None:
            yield name, work.done[name]


def _counted(work: Work, group: list[str]) -> str | None:
    """The ID under which a group is judged and attested."""
    return work.judged(group) if work.attested(group) else None


def _record(work: Work, group: list[str]) -> Rubric:
    """The evidence about a solution, for whoever committed to it first."""
    first = work.desk.state.commitments[group[0]].said.participant
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


def _state(work: Work, name: str, counted: str | None) -> str:
    submission = work.desk.state.submissions.get(name)
    if submission is None:
        return "committed"
    if submission.refused:
        return "refused"
    return "unjudged" if counted is None else work.done[counted].record.outcome


def _row(work: Work, name: str, one: Commitment, state: str) -> dict[str, Any]:
    submission, opened = work.desk.state.submissions.get(name), work.desk.opened.get(name)
    return {
        "participant": one.said.participant,
        "commitment": one.said.digest,
        "committed_at": instant_text(one.at),
        "received_at": None if submission is None else instant_text(submission.at),
        "submission": None if opened is None else opened.solution.digest,
        "state": state,
    }


def read(data: bytes, work: Work) -> Results:
    """Results as they were given out before; raises BadInput unless we signed them."""
    try:
        said = strict.parse(decode(data, None))
        statement = RESULTS.read(canonical(said["statement"]))
    except (BadInput, check.Refused, KeyError, TypeError):
        raise BadInput("is not as the enclave wrote it", hint="restore it from a copy, or take it away") from None
    if not statement.is_by(work.desk.identity.signer.public) or statement.digest != work.desk.identity.bounty:
        raise BadInput("is not signed by this enclave, for this bounty", hint="restore it from a copy, or take it away")
    return Results(data, {id_of(row["participant"]): row["state"] for row in statement.predicate["submissions"]})


def due(work: Work, now: datetime) -> bool:
    """Whether the results are to be made: nothing more can come in, and nothing is waited for any longer."""
    times = work.desk.times
    return now > times.solutions and (work.finished or now > times.scores)
