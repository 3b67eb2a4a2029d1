"""Say which records of closed epochs a ledger still needs, and sign where the others are. SPEC 3.0, 6.

An epoch may be dropped if its receipt is in the log (and cosigned, if the log has witnesses), and if the next settlement needs
nothing of it but what `assay.ledger.standing` has stored. The records that still decide a score stay. Whatever the ledger needs
later all the same, because the rules changed or somebody asks about an old epoch, is read from the archive.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from assay.errors import BadInput
from assay.exact import canonical
from assay.ledger import check, standing
from assay.ledger.access import Ledger, stored_settlement
from assay.ledger.counting import CountedView
from assay.ledger.keys import PrivateKey, sign_envelope
from assay.ledger.store import StoredArchived, StoredReceipt
from assay.ledger.store.archives import PREDICATE, ArchivedEpoch
from assay.ledger.store.tables import ranges_of

__all__ = ["check_droppable", "needed", "signed", "uncovered"]


def check_droppable(ledger: Ledger, view: CountedView, receipt: StoredReceipt) -> None:
    """Raise BadInput if the records of a receipt must stay in the ledger."""
    name, hint = f"epoch {receipt.epoch}", "archive it without --drop, and drop it later"
    if receipt.position >= ledger.log.size:
        raise BadInput(f"the log does not have the receipt of {name} yet", file=ledger.log.folder, hint=hint)
    if ledger.config.policy.exists() and view.witnessed(receipt.position + 1) is None:
        what = f"the log has witnesses, and they have not cosigned the receipt of {name} yet"
        raise BadInput(what, file=ledger.config.policy, hint="`assay ledger witness` asks them; then drop it")
    if _stored(view) is None and not _too_old(view, receipt.epoch):
        what = f"the next settlement reads the records of {name}: the ledger has not stored what follows from them"
        many = f"a ledger does so that has more than {standing.MANY:,} records; `assay ledger rebuild` does it at once"
        raise BadInput(what, file=ledger.store.name, hint=f"{hint}: {many}")


def needed(view: CountedView) -> list[list[int]]:
    """The seqs of closed epochs' records that still decide a score, as ranges."""
    rows = _stored(view) or {}
    ranges = (json.loads(row).get("kept", []) for about, row in rows.items() if about != standing.SPOILT)
    return sorted(pair for pairs in ranges for pair in pairs)


def _stored(view: CountedView) -> dict[str, bytes] | None:
    """The rows that are stored about closed epochs, if they are of the last receipt; raises Damaged."""
    there = standing.stored(view)
    return None if there is None else there[1]


def _too_old(view: CountedView, epoch: int) -> bool:
    """Whether the rules of the last settlement leave the records of an epoch out of the next one, because of their age."""
    last = view.last_receipt()
    assert last is not None
    rules = json.loads(stored_settlement(view, last.epoch)[1])["scheme"]["consensus"]
    age = rules.get("max_age_epochs")
    return age is not None and rules.get("assign") is None and view.count() > standing.MANY and epoch <= last.epoch - age


def uncovered(seqs: Sequence[int], covered: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The seqs that an archive does not have, as ranges: records that do not count. covered: ranges that it has."""
    there = {seq for first, last in covered for seq in range(first, last + 1)}
    return ranges_of(seq for seq in seqs if seq not in there)


def signed(ledger: Ledger, entry: ArchivedEpoch, signer: PrivateKey) -> StoredArchived:
    """The row that says where the records of a receipt are. Raises BadInput for a signer that is not the log's."""
    ledger.check_signer(signer)
    predicate = {"origin": ledger.key.name} | asdict(entry)
    about = {"name": f"receipt of epoch {entry.epoch}", "digest": {"sha256": entry.receipt.removeprefix("sha256:")}}
    statement = {"_type": check.STATEMENT, "subject": [about], "predicateType": PREDICATE, "predicate": predicate}
    return StoredArchived(entry.epoch, entry.first, canonical(sign_envelope(canonical(statement), signer)))
