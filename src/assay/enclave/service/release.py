"""The winners' solutions, after settlement, sealed to the sponsor. SPEC 5, 7.

Handed in are a receipt and the settlement that it is of. The log whose key the bounty names must have signed it, and it must be
of this very scheme. Since whoever has the log's key may be the sponsor itself, that is not enough: the enclave settles what it
judged by itself, and releases what both it and the settlement pay for.
"""

from __future__ import annotations

import base64
from typing import Any

from assay.enclave.rejected import Code, Rejected
from assay.enclave.sealed import seal_as
from assay.enclave.service.results import records_of
from assay.enclave.service.work import Work
from assay.errors import BadInput
from assay.exact import canonical, digest
from assay.folder import strict
from assay.folder.text import decode
from assay.ledger import check
from assay.ledger.keys import PublicKey
from assay.records import Participant, Validator
from assay.settle import pipeline
from assay.settle.inputs import Inputs

__all__ = ["RELEASE", "RELEASE_BYTES", "release"]

RELEASE = "assay.release/1"
RELEASE_BYTES = 64 * 2**20
"""Bytes of receipt and settlement together."""


def release(work: Work, data: bytes, sponsor: PublicKey) -> bytes:
    """The sealed release for a receipt and its settlement, `{"receipt", "settlement"}`; raises Rejected. The same each time."""
    receipt, settlement = _read(data)
    _check(work, receipt, settlement)
    names = _paid(settlement) & _own(work)
    plain = {
        "schema": RELEASE,
        "bounty": work.desk.identity.bounty,
        "settlement": settlement["digest"],
        "solutions": [_released(work, group) for group in work.groups() if _whose(work, group) in names],
    }
    return seal_as("release", canonical(plain), sponsor, bounty=work.desk.identity.bounty).file


def _read(data: bytes) -> tuple[check.Receipt, dict[str, Any]]:
    try:
        said = strict.parse(decode(data, None))
        if not isinstance(said, dict) or said.keys() != {"receipt", "settlement"} or not isinstance(said["settlement"], dict):
            raise Rejected(Code.MALFORMED, "this is not a receipt and a settlement", hint="`assay enclave release` sends them")
        return check.Receipt.parse(canonical(said["receipt"])), said["settlement"]
    except (BadInput, check.Refused) as error:
        raise Rejected(Code.MALFORMED, error.what) from None


def _check(work: Work, receipt: check.Receipt, settlement: dict[str, Any]) -> None:
    """Refuse what is not a settlement of this bounty, signed by its log."""
    bounty = work.desk.bounty
    if bounty.terms.log is None:
        raise Rejected(Code.NOT_SETTLED, "the bounty names no log", hint="nothing can be released without [bounty] log")
    try:
        check.check_receipt(receipt, [check.LogKey.parse(bounty.terms.log)])
    except check.Refused as refused:
        raise Rejected(Code.NOT_SETTLED, f"the receipt is not right: {refused}") from None
    said = receipt.predicate
    found = digest({name: value for name, value in settlement.items() if name != "digest"})
    for what, wanted, given in (
        ("competition", bounty.scheme.name, said["competition"]),
        ("scheme", bounty.scheme.digest, said["scheme"]),
        ("settlement", said["settlement"], found),
        ("digest", found, settlement.get("digest")),
    ):
        if wanted != given:
            raise Rejected(Code.NOT_SETTLED, f"the receipt and the settlement are not of this bounty: another {what}")
    if said["epoch"] < work.epoch:
        raise Rejected(Code.NOT_SETTLED, f"the receipt is of epoch {said['epoch']}, what was judged here is of {work.epoch}")


def _paid(settlement: dict[str, Any]) -> set[str]:
    """Whom the settlement pays."""
    try:
        return {row["participant"] for row in settlement["payouts"] if int(row["gross"]) > 0}
    except (KeyError, TypeError, ValueError):
        raise Rejected(Code.NOT_SETTLED, "the settlement has no payouts that can be read") from None


def _own(work: Work) -> set[str]:
    """Whom a settlement on what was judged here alone pays."""
    rules = work.desk.bounty.scheme
    alone = {"min_validators": 1, "min_stake": 0, "min_validator_stake": 0, "assign": None, "max_age_epochs": None}
    people = [
        Participant(key=one.said.participant, submission=work.desk.opened[name].solution.digest, submitted_at=one.at)
        for name, one in work.desk.state.commitments.items()
        if name in work.desk.opened
    ]
    made = pipeline.settle(
        Inputs(
            scheme=rules.model_copy(update={"consensus": rules.consensus.model_copy(update=alone)}),
            epoch=work.epoch,
            participants=tuple(people),
            validators=(Validator(work.desk.identity.validator, 1),),
            evidence=records_of(work),
        )
    )
    return _paid(made.document)


def _whose(work: Work, group: list[str]) -> str:
    return work.desk.state.commitments[group[0]].said.participant


def _released(work: Work, group: list[str]) -> dict[str, Any]:
    """A solution, the salt of its quotes' digests, and all that the model was asked and said of it."""
    name = work.judged(group)
    assert name is not None  # it was paid
    one, given = work.done[name], work.desk.opened[name]
    return {
        "participant": _whose(work, group),
        "submission": given.solution.digest,
        "judgement": one.digest,
        "solution": base64.b64encode(given.solution.data).decode(),
        "salt": given.salt.hex(),
        "quotes": one.quotes,
        "reasons": one.reasons,
        "transcript": one.transcript,
    }
