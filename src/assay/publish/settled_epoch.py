"""What may be published: an epoch that the ledger has settled, with its receipt, and nothing else. SPEC 6."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from assay.competition import open_competition
from assay.errors import CannotSettle, Refused
from assay.exact import canonical, digest
from assay.kind import find
from assay.ledger import check, eligible, settling, subnet_bundle
from assay.ledger.access import Ledger, stored_settlement
from assay.ledger.store import StoredReceipt, View
from assay.records import Rubric
from assay.records import record as read_record
from assay.scheme import subnet

__all__ = ["EpochShares", "SettledEpoch", "read", "read_joint"]

Json = dict[str, Any]


@dataclass(frozen=True)
class EpochShares:
    """Exact shares of the whole, which no document has: (participant, uid, share) of whoever has one; what burns. SPEC 4."""

    rows: tuple[tuple[str, int, Fraction], ...]
    burn: Fraction
    burn_uid: int


@dataclass(frozen=True)
class SettledEpoch:
    """A settled epoch: the digest of its receipt's statement, the settlement, and what belongs to participants.

    addresses: of those who have one, as the registry had it when it was settled. judgements: of a rubric, the records that a
    participant's agreed score rests on. shares: settles it again from what was kept, while the ledger is open; raises
    CannotSettle if that gives something else, or if it pays out. registries: of which subnets of which chains the uids are, as
    the receipts say; none where no registry was pulled.
    """

    competition: str
    epoch: int
    receipt: str
    settlement: Json
    addresses: Mapping[str, str]
    judgements: Mapping[str, tuple[Rubric, ...]]
    shares: Callable[[], EpochShares]
    registries: tuple[Json, ...] = ()


def read(ledger: Ledger, epoch: int | None = None) -> SettledEpoch:
    """The epoch (None: the last that was settled) as the ledger keeps it.

    Raises CannotSettle if it is not settled, and Refused if receipt and settlement are not as they were signed: what does not
    check is not published.
    """
    with ledger.counted() as view:
        epoch = view.settled_epoch() if epoch is None else epoch
        if epoch is None:
            raise CannotSettle("nothing is settled yet", file=ledger.store.name, hint="`assay settle` makes a receipt")
        receipt = ledger.receipt(epoch)
        settled, document = stored_settlement(view, receipt.epoch)
        settlement: Json = json.loads(settled.document)
        said = _checked(ledger, canonical(ledger.document(receipt)), settlement)
        given: Json = json.loads(document)
        if (found := eligible.inputs_digest(given)) != said["inputs"]:
            raise Refused("inputs", "they are not those of the receipt", expected=said["inputs"], found=found)
        addresses = {row["key"]: row["address"] for row in given["participants"] if row.get("address")}
        judged = issubclass(find(given["scheme"]["score"]["kind"]).record, Rubric)
        judgements = _judgements(view, given, settlement) if judged else {}
    return SettledEpoch(
        said["competition"],
        receipt.epoch,
        receipt.digest,
        settlement,
        addresses,
        judgements,
        shares=lambda: _shares(ledger, receipt),
        registries=tuple(one for one in (said.get("registry"),) if one is not None),
    )


def read_joint(path: Path, epoch: int | None = None) -> SettledEpoch:
    """The signed split of an epoch (None: the last that was signed) of a subnet. `receipt`: of its statement, which names theirs.

    Raises CannotSettle if it is not signed, or gives another split now, and what `joint.settled` raises.
    """
    found, there = subnet_bundle.signed_epoch(path, epoch)
    rows = tuple((row.participant, row.uid, row.share) for row in found.rows if row.uid is not None and row.share)
    shares = EpochShares(rows, found.burn.share, int(found.burn.uid or 0))
    document = found.document | {"agreed": [], "ranking": [], "refund": None}
    registries = tuple(_registries(path, found.epoch))
    return SettledEpoch(path.stem, found.epoch, there.digest, document, {}, {}, shares=lambda: shares, registries=registries)


def _registries(path: Path, epoch: int) -> Iterator[Json]:
    """What the receipts of a subnet file's competitions say of where their uids are."""
    for member in subnet.read(path).competitions:
        with open_competition(path.parent / member.path).ledger as ledger:
            yield from read(ledger, epoch).registries


def _checked(ledger: Ledger, receipt: bytes, settlement: Json) -> Json:
    """What the receipt states; raises Refused unless it is signed, in the log, and of this settlement."""
    try:
        found = check.Receipt.parse(receipt)
        check.check_receipt(found, [ledger.key])
    except check.CheckError as refused:
        raise Refused("receipt", f"it is not as it was signed ({refused})") from None
    stated: Json = found.predicate
    again = digest({name: value for name, value in settlement.items() if name != "digest"})
    if not settlement["digest"] == again == stated["settlement"]:
        raise Refused("settlement", "it is not that of the receipt", expected=stated["settlement"], found=again)
    return stated


def _shares(ledger: Ledger, receipt: StoredReceipt) -> EpochShares:
    """The shares of an epoch as they were before they were encoded."""
    with ledger.counted() as view:
        settlement = settling.again(view, receipt)
    found, decay = settlement.allotment, settlement.inputs.scheme.decay
    if found is None or decay is None:
        if settlement.payouts is None:
            what, hint = "into a ranking, which has no weights", 'only a scheme of [reward] kind = "weights" goes to a subnet'
        else:
            what, hint = "into payouts, which are no weights", "publish it to a target of another kind"
        raise CannotSettle(f"epoch {receipt.epoch} is settled {what}", hint=hint)
    rows = ((one.participant, one.uid, one.share) for one in settlement.weights.values())
    return EpochShares(
        tuple((key, uid, share) for key, uid, share in rows if uid is not None and share), found.burn, decay.burn_uid
    )


def _judgements(view: View, given: Json, settlement: Json) -> dict[str, tuple[Rubric, ...]]:
    """Participant → the records of the judgements that its agreed score rests on."""
    counted = {
        (row["participant"], one["validator"]) for row in settlement["agreed"] for one in row["validators"] if not one["excluded"]
    }
    found: dict[str, tuple[Rubric, ...]] = {row["participant"]: () for row in settlement["agreed"]}
    for participant, _, one in eligible.records_behind_results(view.records(0, settlement["epoch"]), given, settlement, ()):
        record = read_record(json.loads(one.body))
        if isinstance(record, Rubric) and (participant, record.validator) in counted:
            found[participant] += (record,)
    return found
