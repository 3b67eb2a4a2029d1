"""A participant's own proof: his result, the records that it rests on, and that all of it is under receipts in the log. SPEC 6.

Nothing of others is in it but hashes: he can show it to anybody, and anybody can check it by `assay verify`.
"""

from __future__ import annotations

import json
from typing import Any

from assay.errors import BadInput
from assay.ledger import evidence, settling
from assay.ledger.merkle import Tree
from assay.ledger.opened import Ledger, kept, version
from assay.ledger.receipt import proof_document, results, results_tree
from assay.ledger.store import Kept, Receipt, View
from assay.records import Participant

__all__ = ["participants_of", "proof_for"]

Json = dict[str, Any]


def proof_for(ledger: Ledger, participant: str, epoch: int | None = None) -> Json:
    """The proof of a participant's result in an epoch (None: the last settled). Raises BadInput for a stranger, CannotSettle."""
    with ledger.counted() as view:
        last = view.last_receipt() if epoch is None else None
        found = ledger.receipt(last.epoch if last is not None else epoch or 0)
        settled, inputs = kept(view, found.epoch)
        settlement, document = json.loads(settled.document), json.loads(inputs)
        rows = results(settlement, settling.rests(view, document, settlement) if version(found) > 1 else None)
        at = next((index for index, row in enumerate(rows) if row["participant"] == participant), None)
        if at is None:
            what = f"there is no participant {participant[:80]!r} in the settlement of epoch {found.epoch}"
            raise BadInput(what, hint="give the whole key")
        receipts = [one for one in view.receipts() if one.position <= found.position]
        about = list(settling.about(view, document, settlement, participant))
        proofs = _proofs(view, receipts, about)
    used = {one for one, _, _, _ in proofs} - {found.epoch}
    others = [ledger.document(one, found) for one in receipts if one.epoch in used]
    return proof_document(ledger.document(found), rows[at], results_tree(rows).inclusion(at), proofs, others)


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
