"""Settling an epoch from the ledger: evidence and history are what it keeps; settlement and receipt are one transaction. SPEC 6.

- The registry is the folder's; evidence, earlier settlements and, where participants.csv leaves them empty, submissions are the
  ledger's.
- Evidence counts that its validator signed: `assay.ledger.counting` sets aside what fails. Nothing is settled while a batch is
  missing that was acknowledged here (`assay.ledger.intake`).
- It is computed outside the lock. If evidence, submissions or receipts have changed when the lock is held, it is computed again.
- Settling goes to the next epoch; `assay.ledger.closing_cost` says what else takes a word of its own.
- An epoch is settled once. Asked again, it is computed again from what was kept, which must give the same digest.
- The log is written after the transaction: tiles, then checkpoint. What a crash leaves out there is made up for at the next time.
  Where the log cannot be gone on from, nothing is settled.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from assay import folder
from assay.errors import BadInput, CannotSettle
from assay.exact import canonical, digest
from assay.folder.evidence import Gathered
from assay.folder.previous import previous_of
from assay.kind import find
from assay.ledger import access, batch, check, eligible, evidence, intake, statements
from assay.ledger.access import Ledger, receipt_predicate, stored_settlement
from assay.ledger.closing_cost import Closing, next_epoch, silent, to_settle, to_show
from assay.ledger.counting import Aside, CountedView
from assay.ledger.keys import PrivateKey
from assay.ledger.store import Damaged, StoredReceipt, StoredRecord, StoredSettlement, View
from assay.ledger.store.engine import RESTORE
from assay.records import Evidence, record
from assay.settle import Settlement, pipeline

__all__ = [
    "Draft",
    "SettledEpoch",
    "about",
    "again",
    "check_answered",
    "check_receipt",
    "compute",
    "draft",
    "is_settled",
    "newest",
    "records_about",
    "replay",
    "rests",
    "settle",
    "shown",
]

Json = dict[str, Any]


@dataclass(frozen=True)
class SettledEpoch:
    """A settlement, and its receipt; None where it was only computed. `new`: it was not settled before.

    aside: the batches that do not count, if it is new.
    """

    settlement: Settlement
    receipt: StoredReceipt | None
    new: bool
    aside: tuple[Aside, ...] = ()


@dataclass(frozen=True)
class Draft:
    """A settlement that is not kept yet, what its receipt says, and what must not have changed until it is."""

    settlement: Settlement
    inputs: Json
    evidence: tuple[str, int]
    records: Mapping[str, Json]
    before: StoredReceipt | None
    seen: tuple[object, ...]
    counted: CountedView
    """What was looked at, which is closed: what is set aside of it, and what the log's key says of it."""
    closing: Closing
    """What it costs to keep it."""


def settle(
    ledger: Ledger, signer: PrivateKey, epoch: int | None = None, *, skip: bool = False, without_scores: bool = False
) -> SettledEpoch:
    """Settle an epoch (None: the next, as `to_settle` finds it), or report what it was settled as.

    skip: epochs before it that are not settled may be passed for good. without_scores: it may be closed though nobody has an
    agreed score. Raises BadInput for what SPEC refuses, for a signer that is not the log's, and for an epoch before the last one
    that was settled; CannotSettle if there is no evidence, or for what takes one of the two words; StoreError. SPEC 6, Epochs.
    """
    ledger.check_signer(signer)
    ledger.store.check_home()
    while True:
        found = draft(ledger, epoch)
        if isinstance(found, SettledEpoch):
            ledger.bring_up()
            return found
        ledger.log.check_end()
        ledger.bring_up()
        if found.before is not None:
            check_receipt(ledger, found.before)
        with ledger.store.writing() as tx:
            if _seen(tx, found.settlement.epoch) != found.seen:
                continue
            found.closing.check(skip=skip, without_scores=without_scores)
            made = _receipt(ledger, tx, signer, found)
            document = canonical(found.settlement.document)
            inputs_document = canonical(found.inputs)
            settled = StoredSettlement(made.epoch, found.settlement.digest, eligible.inputs_digest(found.inputs), document)
            tx.add_settled(settled, inputs_document, made)
            tx.add_checked(found.counted.looked, found.counted.signed(made.epoch, signer))
        _publish(ledger, made)
        return SettledEpoch(found.settlement, made, new=True, aside=found.counted.aside)


def check_receipt(ledger: Ledger, before: StoredReceipt) -> None:
    """Refuse a receipt of the ledger's that is not as it was signed, or that is not of the settlement kept; raises Damaged."""
    try:
        whole = check.Receipt.parse(canonical(ledger.document(before)))
        check.check_receipt(whole, [ledger.key])
    except check.CheckError as refused:
        what = f"the receipt of epoch {before.epoch} is not as it was signed ({refused})"
        raise Damaged(what, file=ledger.store.name, hint=RESTORE) from None
    with ledger.store.reading() as view:
        settled, _ = stored_settlement(view, before.epoch)
    found = json.loads(settled.document)["digest"], before.digest
    if found != (whole.predicate["settlement"], f"sha256:{whole.digest.hex()}"):
        what = f"the settlement of epoch {before.epoch} is not the one that its receipt is of"
        raise Damaged(what, file=ledger.store.name, hint=RESTORE)


def _publish(ledger: Ledger, made: StoredReceipt) -> None:
    try:
        ledger.bring_up()
    except BadInput as error:
        what = f"{error.what}; epoch {made.epoch} is settled, and its receipt is kept: only the log lacks it"
        raise BadInput(what, file=error.file, hint=f"{error.hint}; then `assay ledger check` writes it there") from None


def is_settled(ledger: Ledger, epoch: int | None = None) -> bool:
    """Whether an epoch (None: the next, as `to_settle` finds it) has its receipt, so that nothing is left to be signed."""
    with ledger.counted() if epoch is None else ledger.store.reading() as view:
        epoch = to_settle(view) if epoch is None else epoch
        return epoch is not None and view.receipt(epoch) is not None


def shown(ledger: Ledger) -> Settlement:
    """The last settlement, computed again; before the first, what the next would be. Raises CannotSettle if there is neither."""
    with ledger.counted() as view:
        epoch = to_show(view)
    return draft(ledger, epoch).settlement


def newest(ledger: Ledger) -> int | None:
    """The highest epoch that has evidence which counts, settled or not."""
    with ledger.counted() as view:
        return view.highest_epoch()


def draft(ledger: Ledger, epoch: int | None = None) -> SettledEpoch | Draft:
    """What `settle` would keep, nothing written; or the outcome, if the epoch was settled before. Raises as `settle` does.

    What takes a word of its own is not refused here: `closing` has it.
    """
    with ledger.counted() as view:
        last = view.last_receipt()
        epoch = to_settle(view) if epoch is None else epoch
        if epoch is None:
            raise CannotSettle("there is no evidence in the ledger", file=ledger.store.name, hint="add some: assay evidence add")
        there = view.receipt(epoch)
        if there is not None:
            return SettledEpoch(again(view, there), there, new=False)
        if last is not None and epoch < last.epoch:
            raise BadInput(
                f"epoch {epoch} was passed: the last one settled is {last.epoch}",
                hint="what was settled stays; settle a later epoch",
            )
        _check_closed(view)
        check_answered(ledger, view)
        document = _inputs(ledger.folder, view, epoch)
        settlement = compute(view, document, epoch, last)
        first = 0 if last is None else last.epoch + 1
        pairs = [(seq, digest) for seq, digest, _ in view.records(first, epoch)]
        bound = evidence.evidence_root([seq for seq, _ in pairs], [digest for _, digest in pairs]), len(pairs)
        found = eligible.inputs_document(settlement.inputs)
        return Draft(
            settlement,
            found,
            bound,
            rests(view, found, settlement.document),
            last,
            _seen(view, epoch),
            view,
            _closing(ledger, view, settlement),
        )


def _closing(ledger: Ledger, view: CountedView, settlement: Settlement) -> Closing:
    """What it costs to close the epoch of a settlement."""
    epoch, following, last = settlement.epoch, next_epoch(view), view.last_receipt()
    first = 0 if last is None else last.epoch + 1
    passed = range(epoch if following is None else following, epoch)
    instead = None
    if passed:
        try:
            instead = compute(view, _inputs(ledger.folder, view, passed[0]), passed[0], last)
        except BadInput:  # what the folder says is of a later epoch
            instead = None
    reported = frozenset(one.validator for one in view.batches(first, epoch))
    return Closing(settlement, passed, instead, silent(settlement, reported))


def rests(view: View, document: Json, settlement: Json) -> Mapping[str, Json]:
    """Participant → root and count of the records that its result in a settlement document rests on; document: of its inputs."""
    epoch = settlement["epoch"]
    return eligible.bind_results(view.records(0, epoch), document, settlement, _left_out(view, epoch, settlement["task_set"]))


def records_about(ledger: Ledger, settlement: Settlement, participant: str) -> list[Evidence]:
    """The records that the result of one participant rests on, with their seq. Raises StoreError."""
    with ledger.counted() as view:
        found = about(view, eligible.inputs_document(settlement.inputs), settlement.document, participant)
        return [record(json.loads(one.body) | {"seq": one.seq}) for _, one in found]


def about(view: View, document: Json, settlement: Json, participant: str) -> Iterator[tuple[int, StoredRecord]]:
    """The records that the result of one participant rests on, each with its epoch."""
    epoch = settlement["epoch"]
    without = _left_out(view, epoch, settlement["task_set"])
    for name, of, one in eligible.records_behind_results(view.records(0, epoch), document, settlement, without):
        if name == participant:
            yield of, one


def _left_out(view: View, epoch: int, task_set: str | None) -> frozenset[int]:
    judged = (_judged(one.envelope, one.members) for one in view.batches(0, epoch))
    return frozenset(eligible.left_out(judged, task_set).tolist())


def _check_closed(view: CountedView) -> None:
    """Refuse to go on from receipts that are of other records than count now; raises Damaged.

    So it is where a receipt was signed, by a program that did not look, over a batch that its validator did not sign.
    """
    first = 0
    for one in view.receipts():
        stated, found = receipt_predicate(one)["evidence"]["count"], view.count(first, one.epoch)
        if stated != found:
            aside = "".join(f"; {each}" for each in view.aside if first <= each.batch.epoch <= one.epoch)
            what = f"the receipt of epoch {one.epoch} is of {stated} records, and {found} of the ledger's count{aside}"
            raise Damaged(what, hint=RESTORE)
        first = one.epoch + 1


def check_answered(ledger: Ledger, view: CountedView) -> int:
    """How many batches were acknowledged here, all of which count; raises Damaged for one that does not, and BadInput."""
    why = {one.batch.digest: one.why for one in view.aside}
    return intake.check_acknowledged(ledger.folder / intake.ACKNOWLEDGED, {one.digest for one in view.batches()}, why)


def compute(view: View, document: Json, epoch: int, before: StoredReceipt | None) -> Settlement:
    """The settlement of an epoch by the ledger's evidence, after the settlement that `before` is the receipt of."""
    earlier = None if before is None else previous_of(json.loads(stored_settlement(view, before.epoch)[0].document))
    records = ((seq, body) for seq, _, body in view.records(0, epoch))
    kind = find(document["scheme"]["score"]["kind"])
    task_set = digest(document["tasks"]) if document.get("tasks") else None  # a kind without tasks.txt has none
    judged = (_judged(one.envelope, one.members) for one in view.batches(0, epoch))
    without = eligible.left_out(judged, task_set)
    many = (
        kind.in_bulk
        and view.count(0, epoch) > eligible.MANY
        and find_spec("duckdb") is not None
        and find_spec("pyarrow") is not None
    )
    with eligible.from_records(records, without, many=many) as found:
        return pipeline.settle(eligible.settled_from(document, epoch=epoch, evidence=found, previous=earlier))


def again(view: View, there: StoredReceipt) -> Settlement:
    """An epoch that was settled, computed again from what was kept; raises CannotSettle if that does not give the same digest."""
    settled, document = stored_settlement(view, there.epoch)
    before = view.receipt_at(there.position - 1)
    found = compute(view, json.loads(document), there.epoch, before)
    if found.digest != settled.digest:
        raise CannotSettle(
            f"epoch {there.epoch} was settled as {settled.digest}, and what the ledger keeps gives {found.digest}",
            hint="the ledger was changed, or the program that settled was another; compare with a copy of it",
        )
    return found


def replay(ledger: Ledger) -> Iterator[SettledEpoch]:
    """Every epoch from the first, computed again; raises CannotSettle at the first that gives another digest. SPEC 6."""
    with ledger.counted() as view:
        last = -1
        for there in list(view.receipts()):
            settlement = again(view, there)
            pairs = [(seq, digest) for seq, digest, _ in view.records(last + 1, there.epoch)]
            stated = receipt_predicate(there)
            bound = {
                "root": evidence.evidence_root([seq for seq, _ in pairs], [digest for _, digest in pairs]),
                "count": len(pairs),
            }
            records = None
            if access.receipt_version(there) > 1:
                records = rests(view, json.loads(stored_settlement(view, there.epoch)[1]), settlement.document)
            results = f"sha256:{statements.results_tree(statements.results(settlement.document, records)).root().hex()}"
            for name, said, found in (
                ("evidence", stated["evidence"], bound),
                ("results", stated["results"]["root"], results),
                ("settlement", stated["settlement"], settlement.digest),
            ):
                if said != found:
                    raise CannotSettle(
                        f"the receipt of epoch {there.epoch} says of its {name} {said}, the ledger gives {found}",
                        hint="the ledger was changed; compare with a copy of it",
                    )
            last = there.epoch
            yield SettledEpoch(settlement, there, new=False)


def _inputs(place: Path, view: View, epoch: int) -> Json:
    """The document of the folder's registry, with the ledger's submissions where participants.csv has none. SPEC 2.

    Of a submission that both have, the ledger knows the epoch in which it was accepted, if participants.csv says nothing else.
    """
    document = eligible.inputs_document(folder.read(place, epoch=epoch, evidence=lambda _: Gathered()))
    latest = view.submissions(epoch)
    for row in document["participants"]:
        handed_in = latest.get(row["key"])
        if handed_in is None:
            continue
        if "submission" not in row:
            row |= {"submission": handed_in.submission, "accepted_epoch": handed_in.epoch}
            if handed_in.submitted_at:
                row["submitted_at"] = handed_in.submitted_at
        elif row["submission"] == handed_in.submission:
            row.setdefault("accepted_epoch", handed_in.epoch)
    return document


def _seen(view: View, epoch: int) -> tuple[object, ...]:
    """What a settlement of this epoch depends on: it must be the same when it is kept as when it was computed."""
    last = view.last_receipt()
    return (None if last is None else last.digest, view.last_batch(epoch), view.submissions(epoch))


def _receipt(ledger: Ledger, view: View, signer: PrivateKey, found: Draft) -> StoredReceipt:
    before = found.before
    payload = statements.receipt_statement(
        found.settlement.document,
        inputs=eligible.inputs_digest(found.inputs),
        evidence=found.evidence,
        records=found.records,
        previous=None if before is None else (before.epoch, before.digest),
        version=version("assay"),
        registry=found.inputs.get("registry"),
    )
    return ledger.signed(view, payload, found.settlement.epoch, signer)


def _judged(envelope: bytes, members: Any) -> eligible.BatchTaskSet:
    return eligible.BatchTaskSet(batch.stated(envelope)[1].task_set, members)
