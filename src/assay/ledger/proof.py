"""A participant's own proof: his result, the records that it rests on, and that all of it is under receipts in the log. SPEC 6.

Nothing of others is in it but hashes: he can show it to anybody, and anybody can check it by `assay verify`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from assay.errors import BadInput
from assay.ledger import batch, evidence, standing
from assay.ledger.merkle import Tree
from assay.ledger.opened import Ledger, kept, predicate
from assay.ledger.receipt import proof_document, results, results_tree
from assay.ledger.store import Kept, Receipt, View
from assay.records import KINDS, Participant, record

__all__ = ["participants_of", "proof_for"]

Json = dict[str, Any]


def proof_for(ledger: Ledger, participant: str, epoch: int | None = None) -> Json:
    """The proof of a participant's result in an epoch (None: the last settled). Raises BadInput for a stranger, CannotSettle."""
    with ledger.counted() as view:
        last = view.last_receipt() if epoch is None else None
        found = ledger.receipt(last.epoch if last is not None else epoch or 0)
        settled, inputs = kept(view, found.epoch)
        rows = results(json.loads(settled.document))
        at = next((index for index, row in enumerate(rows) if row["participant"] == participant), None)
        if at is None:
            what = f"there is no participant {participant[:80]!r} in the settlement of epoch {found.epoch}"
            raise BadInput(what, hint="give the whole key")
        receipts = [one for one in view.receipts() if one.position <= found.position]
        about = list(_about(view, json.loads(inputs), rows[at]["agreed"], receipts, predicate(found)["task_set"]))
        proofs = _proofs(view, receipts, about)
    used = {one for one, _, _, _ in proofs} - {found.epoch}
    others = [ledger.document(one, found) for one in receipts if one.epoch in used]
    return proof_document(ledger.document(found), rows[at], results_tree(rows).inclusion(at), proofs, others)


def _about(view: View, inputs: Json, row: Json, receipts: list[Receipt], task_set: str | None) -> Iterator[tuple[int, Kept]]:
    """The records that a result rests on, first accepted of their slot, each with its epoch."""
    if row["duplicate_of"] is not None:
        return
    scheme, epoch = inputs["scheme"], receipts[-1].epoch
    age = scheme["consensus"].get("max_age_epochs")
    oldest = 0 if age is None else max(0, epoch - age)
    kind, validators = scheme["score"]["kind"], {one["key"] for one in inputs["validators"]}
    by_submission = KINDS[kind].shared_key and row["submission"]
    field, wanted = ("submission", row["submission"]) if by_submission else ("participant", row["participant"])
    judged = (standing.Judged(batch.stated(one.envelope)[1].task_set, one.members) for one in view.batches(0, epoch))
    gone = frozenset(standing.left_out(judged, task_set).tolist())
    word = json.dumps(wanted, ensure_ascii=False).encode()
    taken: set[tuple[object, ...]] = set()
    for found in view.records(oldest, epoch):
        if word not in found.body or found.seq in gone:
            continue
        one = record(json.loads(found.body))
        ours = getattr(one, field) == wanted and (by_submission or not KINDS[kind].shared_key or not one.submission)
        if ours and one.kind == kind and one.validator in validators and one.slot not in taken:
            taken.add(one.slot)
            yield one.epoch, found


def _proofs(view: View, receipts: list[Receipt], about: list[tuple[int, Kept]]) -> list[tuple[int, int, bytes, Any]]:
    """(epoch of the receipt, seq, record, place under its evidence root) of each record."""
    found, first = [], 0
    for one in receipts:
        mine = [row for epoch, row in about if first <= epoch <= one.epoch]
        if mine:
            pairs = [(seq, digest) for seq, digest, _ in view.records(first, one.epoch)]
            tree = Tree([evidence.leaf(*pair) for pair in pairs])
            places = {seq: at for at, (seq, _) in enumerate(pairs)}
            found += [(one.epoch, row.seq, row.body, tree.inclusion(places[row.seq])) for row in mine]
        first = one.epoch + 1
    return found


def participants_of(ledger: Ledger, epoch: int) -> list[Participant]:
    """The participants of a settled epoch, key and name, as its inputs have them; raises CannotSettle if it is not settled."""
    ledger.receipt(epoch)
    with ledger.store.reading() as view:
        inputs = json.loads(kept(view, epoch)[1])
    return [Participant(key=row["key"], name=row.get("name", "")) for row in inputs["participants"]]
