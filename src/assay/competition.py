"""A competition as a folder on disk, a subnet as a file over several: open, settle, read the result. SPEC 4, 7."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from assay import folder
from assay.errors import BadInput, CannotSettle
from assay.scheme import Scheme, subnet
from assay.scheme import read as read_scheme
from assay.settle import Settlement, pipeline
from assay.settle.emission import Emission, Settled, joined, split
from assay.settle.shares import Shares

if TYPE_CHECKING:
    from assay.ledger.opened import Ledger

__all__ = ["Competition", "emission", "open_competition", "part"]


@dataclass(frozen=True)
class Competition:
    """A folder with a scheme, its registry and evidence. The rules are read when it is opened, the rest when it is settled."""

    path: Path
    scheme: Scheme

    @property
    def ledger(self) -> Ledger:
        """The competition's ledger, open: a context manager. Raises BadInput if it has none, and StoreError. SPEC 6."""
        from assay.ledger.opened import open_ledger

        return open_ledger(self.path)

    def settle(self, epoch: int | None = None, *, previous: Path | str | None = None) -> Settlement:
        """The settlement of an epoch (None: the highest that has evidence), after an earlier settlement if its file is given.

        Where the competition has a ledger, evidence and earlier settlements are the ledger's; nothing is kept. Raises BadInput
        for what SPEC refuses and CannotSettle if there is no evidence. SPEC 2–7.
        """
        if (self.path / "ledger.toml").exists():
            return self._from_ledger(epoch, previous)
        before = None if previous is None else Path(previous)
        return pipeline.settle(folder.read(self.path, epoch=epoch, previous=before))

    def _from_ledger(self, epoch: int | None, previous: Path | str | None) -> Settlement:
        from assay.ledger import settling

        if previous is not None:
            raise BadInput("the ledger knows the settlement before", field="previous", hint="leave it out")
        with self.ledger as ledger:
            return settling.draft(ledger, epoch).settlement


def open_competition(path: Path | str) -> Competition:
    """The competition in a folder; raises BadInput if its scheme cannot be read. SPEC 7."""
    place = Path(path)
    return Competition(path=place, scheme=read_scheme(place / "scheme.toml"))


def emission(path: Path | str, epoch: int | None = None) -> Emission:
    """The emission split of a subnet file: all its competitions settled at one epoch, and joined. SPEC 4, Emission split.

    Without an epoch it is the highest that any of them has evidence of, so that a competition which saw nothing new stands
    as it is. Raises BadInput for what SPEC refuses and CannotSettle if none has evidence.
    """
    place = Path(path)
    rules = subnet.read(place)
    competitions = [open_competition(place.parent / member.path) for member in rules.competitions]
    found = [_settled_or_none(one, epoch) for one in competitions]
    epochs = [settlement.epoch for settlement in found if settlement is not None]
    if not epochs:
        raise CannotSettle("none of the competitions has evidence", file=place, hint="put records into their evidence/ folders")
    last = max(epochs)
    settled = [
        earlier if earlier is not None and earlier.epoch == last else one.settle(last)
        for one, earlier in zip(competitions, found, strict=True)
    ]
    joint = split(rules, [part(one) for one in settled])
    _check_uids(settled, rules.burn_uid)
    return joint


def _check_uids(settled: Sequence[Settlement], burn_uid: int) -> None:
    """Refuse uids in conflict between the registries, agreed score or not: who has none may have one in the next epoch."""
    rows = [(one.inputs.scheme.name, one.inputs.participants) for one in settled]
    joined([(name, [one.key for one in people], [one.uid for one in people]) for name, people in rows], burn_uid)


def _settled_or_none(competition: Competition, epoch: int | None) -> Settlement | None:
    """The settlement; None if there is no evidence to say which epoch it is of."""
    try:
        return competition.settle(epoch)
    except CannotSettle:
        if epoch is not None:
            raise
        return None


def part(settlement: Settlement) -> Settled:
    """What the split takes from a settlement; `split` refuses one that pays out. SPEC 4, Emission split."""
    allotment, scheme = settlement.allotment, settlement.inputs.scheme
    participants = settlement.inputs.participants
    return Settled(
        name=scheme.name,
        epoch=settlement.epoch,
        digest=settlement.digest,
        reward=scheme.reward,
        participants=settlement.ranking,
        uids=[participants[column].uid for column in settlement.order],
        shares=Shares([0] * len(settlement.order), 1) if allotment is None else allotment.share,
    )
