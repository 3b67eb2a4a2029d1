"""Stage `duel`: compute a duel again from a verified bundle, and compare it field by field. SPEC 7, `[duel]`.

A duel's document says whose duel it was. Everything else follows from the bundle: the rules, the tasks, the receipt that the
order is drawn from, and the trials of the validator. A duel that is under way has nothing to verify yet.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from assay.errors import Refused
from assay.ledger.check import Receipt
from assay.ledger.verify.recompute import differs
from assay.ledger.verify.report import Verified, or_null, read_document, stage
from assay.rules.duel import SCHEMA, Contest, Pair, Side
from assay.scheme.fields import Digest, Epoch, Key, Section
from assay.scheme.reading import validate
from assay.settle import Inputs

__all__ = ["verify_duel"]


class _DuelSide(Section):
    participant: Key
    submission: Key


class _DuelReceipt(Section):
    epoch: Epoch
    digest: Digest


class _Claim(Section):
    """The claims of a duel's document; the rest is computed."""

    validator: Key
    epoch: Epoch
    challenger: _DuelSide
    king: _DuelSide
    challengers: Annotated[int, Field(ge=1, le=10_000)]
    receipt: _DuelReceipt


def verify_duel(file: Path, settled: Inputs, receipts: Sequence[Receipt], records: Iterable[bytes], into: Verified) -> None:
    """Raise Refused unless the duel in a file is what the bundle's evidence gives.

    settled: the inputs of the settlement that was computed again. receipts: from the first to its own. records: canonical JSON,
    in order of acceptance.
    """
    with stage("duel"):
        document = read_document(file)
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            raise Refused("duel", f"it does not have the format {SCHEMA}", file=file)
        if document.get("winner") is None:
            raise Refused("duel", "it is not decided, so there is nothing to verify yet", file=file)
        claim = validate(_Claim, {name: document.get(name) for name in _Claim.model_fields}, file=file)
        contest = _contest(claim, settled, file)
        _check_receipt(claim, receipts, file)
        ours = contest.fought(*_passed(contest, records))
        difference = differs(ours, document)
        if difference is not None:
            place, _, wanted, given = difference
            raise Refused("duel", f"{place or 'all of it'} differs", expected=or_null(wanted), found=or_null(given), file=file)
    names = f"{claim.challenger.participant} against {claim.king.participant}"
    into.right("duel", f"{names}: computed again to the bit: {ours['digest']}")


def _contest(claim: _Claim, settled: Inputs, file: Path) -> Contest:
    if settled.scheme.duel is None or settled.task_set is None:
        raise Refused("duel", "the scheme has no section [duel]", file=file)
    challenger, king = (Side(side.participant, side.submission) for side in (claim.challenger, claim.king))
    by_key = {participant.key: participant for participant in settled.participants}
    for side in (challenger, king):
        participant = by_key.get(side.participant)
        if participant is None or participant.submission != side.submission:
            expected = None if participant is None else participant.submission
            what = f"{side.participant!r} does not have that submission in the epoch"
            raise Refused("duel", what, expected=or_null(expected), found=side.submission, file=file)
        if participant.accepted_epoch is not None and participant.accepted_epoch > claim.receipt.epoch:
            what = f"the submission of {side.participant!r} was accepted in epoch {participant.accepted_epoch}, after the receipt"
            raise Refused("duel", what, file=file)
    if claim.validator not in {validator.key for validator in settled.validators}:
        raise Refused("duel", f"there is no validator {claim.validator[:80]!r}", file=file)
    return Contest(
        scheme=settled.scheme,
        epoch=claim.epoch,
        validator=claim.validator,
        challenger=challenger,
        king=king,
        receipt=(claim.receipt.epoch, claim.receipt.digest),
        tasks=settled.tasks,
        task_set=settled.task_set,
        challengers=claim.challengers,
    )


def _check_receipt(claim: _Claim, receipts: Sequence[Receipt], file: Path) -> None:
    """The order's receipt is one of the log before the epoch of the duel's evidence."""
    known = {receipt.predicate["epoch"]: f"sha256:{receipt.digest.hex()}" for receipt in receipts}
    expected = known.get(claim.receipt.epoch)
    if expected != claim.receipt.digest:
        what = f"its order is not drawn from the receipt of epoch {claim.receipt.epoch}"
        raise Refused("duel", what, expected=or_null(expected), found=claim.receipt.digest, file=file)
    between = [epoch for epoch in known if claim.receipt.epoch < epoch < claim.epoch]
    if claim.receipt.epoch >= claim.epoch or between:
        what = f"the receipt of epoch {claim.receipt.epoch} is not the last one before epoch {claim.epoch}"
        raise Refused("duel", what, file=file)


def _passed(contest: Contest, records: Iterable[bytes]) -> list[dict[Pair, bool]]:
    """Of both sides, whether each trial passed by the validator's evidence; the first accepted counts."""
    outcomes: dict[str, dict[Pair, str]] = {contest.challenger.submission: {}, contest.king.submission: {}}
    for body in records:
        value: dict[str, Any] = json.loads(body)
        if value["validator"] == contest.validator and value["submission"] in outcomes and value["epoch"] <= contest.epoch:
            pair = value["task"], value["trial"]
            outcomes[value["submission"]].setdefault(pair, value["outcome"])
    return [{pair: outcome == "pass" for pair, outcome in side.items() if outcome != "error"} for side in outcomes.values()]
