"""Reads a settled epoch from the ledger and checks it against its signed receipt; only such an epoch may be published. SPEC 6."""

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
    """The exact shares of an epoch, which the settlement's document only has rounded. SPEC 4.

    rows: (participant, uid, share) of each participant with a share. burn: the share that burns, at `burn_uid`.
    """

    rows: tuple[tuple[str, int, Fraction], ...]
    burn: Fraction
    burn_uid: int


@dataclass(frozen=True)
class SettledEpoch:
    """A settled epoch: the digest of its receipt's statement, the settlement, and the data of participants.

    addresses: participant → address, as the registry had it when the epoch was settled; a participant without one is not in it.
    judgements: of a rubric, the records from which a participant's agreed score follows. shares: settles the epoch again from
    the stored evidence, while the ledger is open; raises CannotSettle if the result differs, or if the epoch pays out.
    registries: the subnets and chains that the uids belong to, by the receipts; empty if no registry was pulled.
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
    """An epoch from the ledger (None: the last that was settled).

    Raises CannotSettle if the epoch is not settled, and Refused if its receipt or settlement differs from what was signed.
    """
    with ledger.counted() as view:
        epoch = view.settled_epoch() if epoch is None else epoch
        if epoch is None:
            raise CannotSettle("nothing is settled yet", file=ledger.store.name, hint="`assay settle` makes a receipt")
        receipt = ledger.receipt(epoch)
        settled, document = stored_settlement(view, receipt.epoch)
        settlement: Json = json.loads(settled.document)
        statement = _checked(ledger, canonical(ledger.document(receipt)), settlement)
        inputs: Json = json.loads(document)
        if (recomputed := eligible.inputs_digest(inputs)) != statement["inputs"]:
            raise Refused("inputs", "they are not those of the receipt", expected=statement["inputs"], found=recomputed)
        addresses = {row["key"]: row["address"] for row in inputs["participants"] if row.get("address")}
        judged = issubclass(find(inputs["scheme"]["score"]["kind"]).record, Rubric)
        judgements = _judgements(view, inputs, settlement) if judged else {}
    return SettledEpoch(
        statement["competition"],
        receipt.epoch,
        receipt.digest,
        settlement,
        addresses,
        judgements,
        shares=lambda: _shares(ledger, receipt),
        registries=tuple(registry for registry in (statement.get("registry"),) if registry is not None),
    )


def read_joint(path: Path, epoch: int | None = None) -> SettledEpoch:
    """The signed split of a subnet's epoch (None: the last that was signed), which names the receipt of each competition.

    Raises CannotSettle if the split is not signed or is different now, and what `subnet_bundle.signed_epoch` raises.
    """
    split, receipt = subnet_bundle.signed_epoch(path, epoch)
    rows = tuple((row.participant, row.uid, row.share) for row in split.rows if row.uid is not None and row.share)
    shares = EpochShares(rows, split.burn.share, int(split.burn.uid or 0))
    document = split.document | {"agreed": [], "ranking": [], "refund": None}
    registries = tuple(_registries(path, split.epoch))
    return SettledEpoch(path.stem, split.epoch, receipt.digest, document, {}, {}, shares=lambda: shares, registries=registries)


def _registries(path: Path, epoch: int) -> Iterator[Json]:
    """The registries that the receipts of a subnet file's competitions name."""
    for member in subnet.read(path).competitions:
        with open_competition(path.parent / member.path).ledger as ledger:
            yield from read(ledger, epoch).registries


def _checked(ledger: Ledger, receipt: bytes, settlement: Json) -> Json:
    """The receipt's statement. Raises Refused unless it is signed, is in the log, and belongs to this settlement."""
    try:
        parsed = check.Receipt.parse(receipt)
        check.check_receipt(parsed, [ledger.key])
    except check.CheckError as refused:
        raise Refused("receipt", f"it is not as it was signed ({refused})") from None
    stated: Json = parsed.predicate
    again = digest({name: value for name, value in settlement.items() if name != "digest"})
    if not settlement["digest"] == again == stated["settlement"]:
        raise Refused("settlement", "it is not that of the receipt", expected=stated["settlement"], found=again)
    return stated


def _shares(ledger: Ledger, receipt: StoredReceipt) -> EpochShares:
    """The shares of an epoch, before they were encoded as weights."""
    with ledger.counted() as view:
        settlement = settling.again(view, receipt)
    allotment, decay = settlement.allotment, settlement.inputs.scheme.decay
    if allotment is None or decay is None:
        if settlement.payouts is None:
            what, hint = "into a ranking, which has no weights", 'only a scheme of [reward] kind = "weights" goes to a subnet'
        else:
            what, hint = "into payouts, which are not weights", "publish it to a target of another kind"
        raise CannotSettle(f"epoch {receipt.epoch} is settled {what}", hint=hint)
    rows = ((weight.participant, weight.uid, weight.share) for weight in settlement.weights.values())
    return EpochShares(
        tuple((key, uid, share) for key, uid, share in rows if uid is not None and share), allotment.burn, decay.burn_uid
    )


def _judgements(view: View, inputs: Json, settlement: Json) -> dict[str, tuple[Rubric, ...]]:
    """Participant → the records of the judgements from which its agreed score follows."""
    counted = {
        (row["participant"], vote["validator"])
        for row in settlement["agreed"]
        for vote in row["validators"]
        if not vote["excluded"]
    }
    judgements: dict[str, tuple[Rubric, ...]] = {row["participant"]: () for row in settlement["agreed"]}
    for participant, _, stored in eligible.records_behind_results(view.records(0, settlement["epoch"]), inputs, settlement, ()):
        record = read_record(json.loads(stored.body))
        if isinstance(record, Rubric) and (participant, record.validator) in counted:
            judgements[participant] += (record,)
    return judgements
