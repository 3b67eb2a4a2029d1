"""Settle an epoch from the ledger, draft and replay settlements, and find the records behind a result. SPEC 6.

- The registry comes from the folder. Evidence and earlier settlements come from the ledger; so do submissions, where
  participants.csv leaves them empty.
- Evidence counts if its validator signed it: `assay.ledger.counting` sets the rest aside. While a batch is missing that was
  acknowledged here (`assay.ledger.intake`), nothing is settled.
- In a ledger with many records, what follows from closed epochs is read as their receipts stored it: `assay.ledger.standing`.
- Settlement and receipt are stored in one transaction. The settlement is computed outside its lock; if evidence, submissions or
  receipts changed before the lock is held, it is computed again.
- Settling goes to the next epoch; `assay.ledger.closing_cost` says what the operator must ask for.
- An epoch is settled once. Asked again, it is computed again from what was stored, and must give the same digest.
- The log is written after the transaction: tiles, then checkpoint. Entries that a crash left out are written the next time. If
  the log cannot be continued, nothing is settled.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping
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
from assay.ledger import access, check, eligible, evidence, intake, standing, statements
from assay.ledger.access import Ledger, receipt_predicate, stored_settlement
from assay.ledger.closing_cost import Closing, next_epoch, silent, to_settle, to_show
from assay.ledger.counting import Aside, BatchVerdicts, CountedView
from assay.ledger.keys import PrivateKey
from assay.ledger.standing import StandingEvidence
from assay.ledger.store import Damaged, StoredReceipt, StoredRecord, StoredSettlement, View
from assay.ledger.store.engine import RESTORE
from assay.ledger.store.view import LATEST
from assay.records import Evidence, record
from assay.scheme.model import Scheme
from assay.settle import Settlement, pipeline
from assay.settle.inputs import Previous

__all__ = [
    "Draft",
    "EpochResult",
    "about",
    "again",
    "check_answered",
    "check_receipt",
    "compute",
    "draft",
    "is_settled",
    "newest",
    "open_epoch",
    "rebuild",
    "records_about",
    "records_by_participant",
    "replay",
    "rests",
    "settle",
    "shown",
    "under",
]

Json = dict[str, Any]


@dataclass(frozen=True)
class EpochResult:
    """A settled epoch: its settlement and its receipt. `new`: this call settled it.

    aside: the batches that do not count, if it is new.
    """

    settlement: Settlement
    receipt: StoredReceipt | None
    new: bool
    aside: tuple[Aside, ...] = ()


@dataclass(frozen=True)
class Draft:
    """A settlement that is not stored yet, what its receipt will say, and what must not change until it is stored."""

    settlement: Settlement
    inputs: Json
    evidence: tuple[str, int]
    records: Mapping[str, Json]
    before: StoredReceipt | None
    seen: tuple[object, ...]
    counted: CountedView
    """The snapshot that it was computed from, now closed: the batches set aside, and what the log's key will sign of it."""
    closing: Closing
    """The cost of closing the epoch."""
    standing: StandingEvidence | None
    """The standing that the receipt will store for the next epoch."""


def settle(
    ledger: Ledger,
    signer: PrivateKey,
    epoch: int | None = None,
    *,
    skip: bool = False,
    without_scores: bool = False,
    drafted: Draft | None = None,
) -> EpochResult:
    """Settle an epoch (None: the next, as `to_settle` finds it), or return it if it was settled before. SPEC 6, Epochs.

    skip: earlier epochs that are not settled may be skipped for good. without_scores: the epoch may be closed though no
    participant has an agreed score. drafted: what `draft` gave for this epoch just now. Raises BadInput for what SPEC refuses,
    for a signer that is not the log's, and for an epoch before the last settled one; CannotSettle if there is no evidence, or if
    `skip` or `without_scores` is needed; StoreError.
    """
    ledger.check_signer(signer)
    ledger.store.check_home()
    plan = draft(ledger, epoch) if drafted is None else drafted
    if isinstance(plan, EpochResult):
        ledger.bring_up()
        return plan
    _check_log(ledger, plan)
    with ledger.store.writing() as tx:
        if _seen(tx, plan.settlement.epoch) != plan.seen:  # something came meanwhile; now nothing can until this is stored
            plan = draft(ledger, epoch)
            if isinstance(plan, EpochResult):
                ledger.bring_up()
                return plan
            _check_log(ledger, plan)
        plan.closing.check(skip=skip, without_scores=without_scores)
        receipt = _receipt(ledger, tx, signer, plan)
        document = canonical(plan.settlement.document)
        inputs_document = canonical(plan.inputs)
        settled = StoredSettlement(receipt.epoch, plan.settlement.digest, eligible.inputs_digest(plan.inputs), document)
        tx.add_settled(settled, inputs_document, receipt)
        tx.add_checked(plan.counted.looked, plan.counted.signed(receipt.epoch, signer))
        if plan.standing is not None:
            plan.standing.store(tx, receipt.digest, plan.counted.looked, ledger.key, signer)
    if plan.standing is not None:  # there are many records
        ledger.store.make_parts(receipt.epoch)
    _publish(ledger, receipt)
    return EpochResult(plan.settlement, receipt, new=True, aside=plan.counted.aside)


def _check_log(ledger: Ledger, plan: Draft) -> None:
    """Raise BadInput or Damaged if a receipt for this draft could not follow those in the log."""
    ledger.log.check_end()
    ledger.bring_up()
    if plan.before is not None:
        check_receipt(ledger, plan.before)


def check_receipt(ledger: Ledger, before: StoredReceipt) -> None:
    """Raise Damaged for a stored receipt that is not as it was signed, or that is not of the stored settlement."""
    try:
        whole = check.Receipt.parse(canonical(ledger.document(before)))
        check.check_receipt(whole, [ledger.key])
    except check.CheckError as refused:
        what = f"the receipt of epoch {before.epoch} is not as it was signed ({refused})"
        raise Damaged(what, file=ledger.store.name, hint=RESTORE) from None
    with ledger.store.reading() as view:
        settled, _ = stored_settlement(view, before.epoch)
    stored = json.loads(settled.document)["digest"], before.digest
    if stored != (whole.predicate["settlement"], f"sha256:{whole.digest.hex()}"):
        what = f"the settlement of epoch {before.epoch} is not the one that its receipt names"
        raise Damaged(what, file=ledger.store.name, hint=RESTORE)


def _publish(ledger: Ledger, receipt: StoredReceipt) -> None:
    try:
        ledger.bring_up()
    except BadInput as error:
        what = f"{error.what}; epoch {receipt.epoch} is settled, and its receipt is stored: only the log lacks it"
        raise BadInput(what, file=error.file, hint=f"{error.hint}; then `assay ledger check` writes it there") from None


def is_settled(ledger: Ledger, epoch: int | None = None) -> bool:
    """Whether an epoch (None: the next, as `to_settle` finds it) has its receipt, so that nothing is left to sign."""
    with ledger.counted() if epoch is None else ledger.store.reading() as view:
        epoch = to_settle(view) if epoch is None else epoch
        return epoch is not None and view.receipt(epoch) is not None


def shown(ledger: Ledger) -> Settlement:
    """The last settlement, computed again; before the first, what the next would be. Raises CannotSettle if there is neither."""
    with ledger.counted() as view:
        return _draft(ledger, view, to_show(view)).settlement


def newest(ledger: Ledger) -> int | None:
    """The highest epoch that has evidence which counts, settled or not.

    Of the batches since the last receipt, only as many are checked as it takes to find one that counts. Raises StoreError.
    """
    with ledger.store.reading() as view:
        judge = BatchVerdicts(view, str(ledger.key))
        epochs = ((epoch, view.numbers_of(epoch)) for epoch in reversed(view.epochs()))
        return next((epoch for epoch, numbers in epochs if any(map(judge.counts, numbers))), None)


def open_epoch(ledger: Ledger) -> int:
    """The highest epoch that has evidence which counts, if it is not settled; otherwise the first that is open."""
    with ledger.counted() as view:
        last, highest = view.settled_epoch(), view.highest_epoch()
    return max(1 if last is None else last + 1, highest or 0)


def draft(ledger: Ledger, epoch: int | None = None) -> EpochResult | Draft:
    """The result that `settle` would store, nothing written; or the epoch, if it was settled before. Raises as `settle` does.

    Skipped epochs and missing scores are not refused here: `closing` has them.
    """
    with ledger.counted() as view:
        return _draft(ledger, view, to_settle(view) if epoch is None else epoch)


def _draft(ledger: Ledger, view: CountedView, epoch: int | None) -> EpochResult | Draft:
    """The draft of an epoch, or the settled epoch, by one snapshot; raises CannotSettle for None: there is no evidence."""
    last = view.last_receipt()
    if epoch is None:
        raise CannotSettle("there is no evidence in the ledger", file=ledger.store.name, hint="add some: assay evidence add")
    receipt = view.receipt(epoch)
    if receipt is not None:
        return EpochResult(again(view, receipt), receipt, new=False)
    if last is not None and epoch < last.epoch:
        raise BadInput(
            f"epoch {epoch} was skipped: the last one settled is {last.epoch}",
            hint="what was settled stays; settle a later epoch",
        )
    _check_closed(view)
    check_answered(ledger, view)
    document = _inputs(ledger.folder, view, epoch)
    standing_evidence = standing.find(view, document, epoch)
    settlement = compute(view, document, epoch, last, standing_evidence)
    first = 0 if last is None else last.epoch + 1
    pairs = [(seq, digest) for seq, digest, _ in view.records(first, epoch)]
    bound = evidence.evidence_root([seq for seq, _ in pairs], [digest for _, digest in pairs]), len(pairs)
    inputs = eligible.inputs_document(settlement.inputs)
    bases = rests(view, inputs, settlement.document, standing_evidence)
    seen, closing = _seen(view, epoch), _closing(ledger, view, settlement)
    return Draft(settlement, inputs, bound, bases, last, seen, view, closing, standing_evidence)


def _closing(ledger: Ledger, view: CountedView, settlement: Settlement) -> Closing:
    """The cost of closing the epoch of a settlement."""
    epoch, following, last = settlement.epoch, next_epoch(view), view.last_receipt()
    first = 0 if last is None else last.epoch + 1
    passed = range(epoch if following is None else following, epoch)
    instead = None
    if passed:
        try:
            document = _inputs(ledger.folder, view, passed[0])
            instead = compute(view, document, passed[0], last, standing.find(view, document, passed[0]))
        except BadInput:  # the folder is of a later epoch
            instead = None
    reported = frozenset(received.validator for received in view.batches(first, epoch))
    return Closing(settlement, passed, instead, silent(settlement, reported))


def rests(
    view: CountedView, document: Json, settlement: Json, standing_evidence: StandingEvidence | None = None
) -> Mapping[str, Json]:
    """Participant → root and count of the records that its result in a settlement document rests on; document: of its inputs.

    standing_evidence: what counts in it; None: everything is found in the records.
    """
    if standing_evidence is not None:
        return standing_evidence.results()
    oldest, epoch = _oldest(view, document, settlement["epoch"]), settlement["epoch"]
    without = frozenset(_left_out(view, oldest, epoch, settlement["task_set"]).tolist())
    return eligible.bind_results(view.records(oldest, epoch), document, settlement, without)


def records_about(ledger: Ledger, settlement: Settlement, participant: str) -> list[Evidence]:
    """The records that the result of one participant rests on, with their seq. Raises StoreError."""
    with ledger.counted() as view:
        rows = about(view, eligible.inputs_document(settlement.inputs), settlement.document, participant)
        return [record(json.loads(row.body) | {"seq": row.seq}) for _, row in rows]


def rebuild(ledger: Ledger, signer: PrivateKey) -> int | None:
    """Store anew what follows from the evidence of closed epochs. SPEC 3.0.

    Returns their last one; None if nothing is stored, because it is not needed, or because the next receipt must sign more first.
    Raises BadInput for a signer that is not the log's, and StoreError.
    """
    ledger.check_signer(signer)
    with ledger.store.writing() as tx:
        standing.forget(tx)
        view = CountedView(tx, ledger.key, ledger.judged)
        last = view.last_receipt()
        if last is None or view.before.epoch != last.epoch:
            return None
        standing_evidence = standing.find(view, json.loads(stored_settlement(view, last.epoch)[1]), last.epoch)
        if standing_evidence is None:
            return None
        standing_evidence.store(tx, last.digest, view.before.batches, ledger.key, signer)
    return last.epoch


def records_by_participant(ledger: Ledger, settlement: Settlement, last_seq: int = LATEST) -> dict[str, list[StoredRecord]]:
    """Participant → the records that its result rests on, as they are stored, in order of acceptance; no others are read.

    last_seq: records that were accepted after this one are left out: they came after the settlement. Raises StoreError.
    """
    by_participant: dict[str, list[StoredRecord]] = {}
    document, everybody = eligible.inputs_document(settlement.inputs), settlement.frame.column
    with ledger.counted() as view:
        for key, _, stored in _behind(view, document, settlement.document, everybody, last_seq):
            by_participant.setdefault(key, []).append(stored)
    return by_participant


def about(view: CountedView, document: Json, settlement: Json, participant: str) -> Iterator[tuple[int, StoredRecord]]:
    """The records that the result of one participant rests on, each with its epoch. Only this participant's are read."""
    rows = _behind(view, document, settlement, {participant})
    return ((epoch, stored) for key, epoch, stored in rows if key == participant)


def _behind(
    view: CountedView, document: Json, settlement: Json, participants: Container[str], last_seq: int = LATEST
) -> Iterator[tuple[str, int, StoredRecord]]:
    """(participant, epoch, record) of what the results of these participants (or their duplicates) rest on; for each in order."""
    scope = standing.scope_of(view, document, settlement["epoch"])
    rows = {scope.of(participant) for participant in scope.inputs.participants if participant.key in participants}
    bearing = standing.behind(view, scope, rows, settlement["epoch"])
    records = (stored for _, stored, _ in bearing if stored.seq <= last_seq)
    return eligible.records_behind_results(records, document, settlement, ())


def _left_out(view: View, oldest: int, epoch: int, task_set: str | None) -> eligible.Numbers:
    judged = (eligible.judged(stored.envelope, stored.members) for stored in view.batches(oldest, epoch))
    return eligible.left_out(judged, task_set)


def _oldest(view: View, document: Json, epoch: int) -> int:
    """The first epoch whose evidence must be read; in a ledger with few records, all is."""
    rules = document["scheme"]["consensus"]
    age = rules.get("max_age_epochs")
    return 0 if age is None or rules.get("assign") is not None or view.count(0, epoch) <= standing.MANY else max(0, epoch - age)


def _check_closed(view: CountedView) -> None:
    """Raise Damaged if a receipt binds other records than count now.

    This happens if a program that did not check signatures signed a receipt over a batch that its validator did not sign.
    """
    first = 0
    for receipt in view.receipts():
        stated, counted = receipt_predicate(receipt)["evidence"]["count"], view.count(first, receipt.epoch)
        if stated != counted:
            aside = "".join(f"; {each}" for each in view.aside if first <= each.batch.epoch <= receipt.epoch)
            what = f"the receipt of epoch {receipt.epoch} binds {stated} records, but {counted} of the ledger's count{aside}"
            raise Damaged(what, hint=RESTORE)
        first = receipt.epoch + 1


def check_answered(ledger: Ledger, view: CountedView) -> int:
    """The number of batches acknowledged here, all of which count; raises Damaged for one that does not, and BadInput."""
    why = {aside.batch.digest: aside.why for aside in view.aside}

    def came_later(batch: str) -> bool:
        with ledger.store.reading() as newer:  # it is acknowledged by now, so this snapshot has it
            return any(stored.id > view.looked for stored in newer.named(batch))

    return intake.check_acknowledged(ledger.folder / intake.ACKNOWLEDGED, view.digests, why, came_later)


def compute(
    view: View, document: Json, epoch: int, before: StoredReceipt | None, standing_evidence: StandingEvidence | None = None
) -> Settlement:
    """The settlement of an epoch by the ledger's evidence, after the settlement that `before` is the receipt of.

    standing_evidence: what counts in it; None: everything is found in the records.
    """
    earlier = None if before is None else previous_of(json.loads(stored_settlement(view, before.epoch)[0].document))
    if standing_evidence is not None:
        source = standing_evidence.source(view)
        return pipeline.settle(eligible.settled_from(document, epoch=epoch, evidence=source, previous=earlier))
    return _from_records(view, document, epoch, earlier)


def _from_records(view: View, document: Json, epoch: int, earlier: Previous | None) -> Settlement:
    """The settlement of an epoch by the ledger's records, after an earlier one."""
    oldest = _oldest(view, document, epoch)
    records = ((seq, body) for seq, _, body in view.records(oldest, epoch))
    kind = find(document["scheme"]["score"]["kind"])
    task_set = digest(document["tasks"]) if document.get("tasks") else None  # only a kind with tasks.txt has one
    many = (
        kind.in_bulk
        and view.count(oldest, epoch) > eligible.MANY
        and find_spec("duckdb") is not None
        and find_spec("pyarrow") is not None
    )
    with eligible.from_records(records, _left_out(view, oldest, epoch, task_set), many=many) as source:
        return pipeline.settle(eligible.settled_from(document, epoch=epoch, evidence=source, previous=earlier))


def again(view: CountedView, receipt: StoredReceipt, *, whole: bool = False) -> Settlement:
    """A settled epoch, computed again from what was stored; raises CannotSettle if the digest is another.

    whole: from the records themselves, whatever the ledger knows of closed epochs.
    """
    settled, stored = stored_settlement(view, receipt.epoch)
    before, document = view.receipt_at(receipt.position - 1), json.loads(stored)
    standing_evidence = None if whole else standing.find(view, document, receipt.epoch)
    settlement = compute(view, document, receipt.epoch, before, standing_evidence)
    if settlement.digest != settled.digest:
        raise CannotSettle(
            f"epoch {receipt.epoch} was settled as {settled.digest}, but the ledger now gives {settlement.digest}",
            hint="the ledger was changed, or another program settled it; compare with a copy of the ledger",
        )
    return settlement


def replay(ledger: Ledger) -> Iterator[EpochResult]:
    """Every settled epoch from the first, computed again; raises CannotSettle at the first difference. SPEC 6."""
    with ledger.counted() as view:
        last = -1
        for receipt in list(view.receipts()):
            settlement = again(view, receipt, whole=True)
            pairs = list(view.pairs(last + 1, receipt.epoch))
            stated = receipt_predicate(receipt)
            bound = {
                "root": evidence.evidence_root([seq for seq, _ in pairs], [digest for _, digest in pairs]),
                "count": len(pairs),
            }
            records = None
            if access.receipt_version(receipt) > 1:
                records = rests(view, json.loads(stored_settlement(view, receipt.epoch)[1]), settlement.document)
            results = f"sha256:{statements.results_tree(statements.results(settlement.document, records)).root().hex()}"
            for name, signed, computed in (
                ("evidence", stated["evidence"], bound),
                ("results", stated["results"]["root"], results),
                ("settlement", stated["settlement"], settlement.digest),
            ):
                if signed != computed:
                    raise CannotSettle(
                        f"the receipt of epoch {receipt.epoch} has the {name} {signed}, the ledger gives {computed}",
                        hint="the ledger was changed; compare with a copy of it",
                    )
            last = receipt.epoch
            yield EpochResult(settlement, receipt, new=False)


def under(ledger: Ledger, scheme: Scheme) -> Iterator[tuple[Settlement, Settlement]]:
    """Every settled epoch as it was settled, and as other rules would have settled it, from the first epoch on. SPEC 4, 6.

    Registry, submissions and evidence of each epoch are the ledger's; clocks of decay follow the other rules.
    Raises BadInput if the evidence does not fit the other rules, and CannotSettle if an epoch is not what its receipt says.
    """
    with ledger.counted() as view:
        earlier: Previous | None = None
        for receipt in list(view.receipts()):
            document = json.loads(stored_settlement(view, receipt.epoch)[1]) | {"scheme": scheme.document()}
            other = _from_records(view, document, receipt.epoch, earlier)
            earlier = other.handed_on
            yield again(view, receipt), other


def _inputs(place: Path, view: View, epoch: int) -> Json:
    """The document of the folder's inputs, with the ledger's submissions where participants.csv has none. SPEC 2.

    If both have a submission, the ledger adds the epoch in which it was accepted, unless participants.csv has one.
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
    """The state that a settlement of this epoch depends on: it must not change between computing and storing."""
    last = view.last_receipt()
    return (None if last is None else last.digest, view.last_batch(epoch), view.submissions(epoch))


def _receipt(ledger: Ledger, view: View, signer: PrivateKey, plan: Draft) -> StoredReceipt:
    before = plan.before
    payload = statements.receipt_statement(
        plan.settlement.document,
        inputs=eligible.inputs_digest(plan.inputs),
        evidence=plan.evidence,
        records=plan.records,
        previous=None if before is None else (before.epoch, before.digest),
        version=version("assay"),
        registry=plan.inputs.get("registry"),
    )
    return ledger.signed(view, payload, plan.settlement.epoch, signer)
