"""A competition as a folder, and a subnet as a file over several: open them, settle, read the result. SPEC 4, 7."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from assay import folder
from assay.errors import BadInput, CannotSettle
from assay.rules import backtest
from assay.scheme import subnet
from assay.scheme.load import read as read_scheme
from assay.scheme.model import Scheme
from assay.scheme.reading import present
from assay.settle import Settlement, pipeline
from assay.settle.columns import RecordTable
from assay.settle.emission import Emission, SplitInput, split, split_input
from assay.settle.inputs import Inputs, Scored

if TYPE_CHECKING:
    from assay.ledger.access import Ledger
    from assay.rules.decided import DecidedSeason, Until
    from assay.rules.margin import Margins

__all__ = ["Competition", "emission", "open_competition"]


@dataclass(frozen=True)
class Competition:
    """A folder with a scheme, its registry and evidence. Opening reads the rules, settling reads the rest."""

    path: Path
    scheme: Scheme

    @property
    def has_ledger(self) -> bool:
        """Whether evidence and settlements are in a ledger; otherwise they are in the folder."""
        return present(self.path / "ledger.toml")

    @property
    def ledger(self) -> Ledger:
        """The competition's ledger, open: a context manager. Raises BadInput if it has none, and StoreError. SPEC 6."""
        from assay.ledger.access import open_ledger

        return open_ledger(self.path)

    @property
    def newest(self) -> int | None:
        """The highest epoch with evidence in the ledger, settled or not; None without evidence or without a ledger."""
        if not self.has_ledger:
            return None
        from assay.ledger import settling  # late: a third of the time of `assay explain`, where there is no ledger

        with self.ledger as ledger:
            return settling.newest(ledger)

    def settle(self, epoch: int | None = None, *, previous: Path | str | None = None) -> Settlement:
        """The settlement of an epoch (None: the highest that has evidence), after an earlier settlement if its file is given.

        If the competition has a ledger, evidence and earlier settlements are the ledger's, None is the last epoch settled
        (before the first, the one that is next), and nothing is kept. Raises BadInput for what SPEC refuses and CannotSettle if
        there is no evidence. SPEC 2–7.
        """
        if self.has_ledger:
            return self._from_ledger(epoch, previous)
        before = None if previous is None else Path(previous)
        return pipeline.settle(folder.read(self.path, epoch=epoch, previous=before))

    def upcoming(self, epoch: int | None = None) -> Settlement:
        """The settlement that an open epoch has by the evidence there is, even without any; nothing is kept.

        epoch: None is the first that is open where there is a ledger here, or a later one with evidence; otherwise the highest
        that has evidence, or 1. Raises BadInput for what SPEC refuses, and StoreError.
        """
        from assay.ledger import config, settling

        if self.has_ledger and config.read(self.path).is_here:
            with self.ledger as ledger:
                at = settling.open_epoch(ledger) if epoch is None else epoch
                return settling.draft(ledger, at).settlement
        try:
            inputs = folder.read(self.path, epoch=epoch)
        except CannotSettle:
            inputs = folder.read(self.path, epoch=1)
        if epoch is None and not inputs.epoch:
            inputs = folder.read(self.path, epoch=1)
        return pipeline.settle(inputs)

    def decided(self, epoch: int | None = None, until: Until = "decided") -> DecidedSeason:
        """The participants of an epoch that could still change a rank, a tier or a weight; the epoch as for `settle`.

        until: `paid` asks only for what anybody is paid. Raises BadInput unless the evidence is of kind tests, with
        `passed_by = "each"`; otherwise as `settle` does.
        """
        from assay.rules.decided import decided

        return decided(self.settle(epoch), until)

    def margins(self, epoch: int | None = None) -> Margins:
        """The smallest changes that give another winner, payout tier or order; the epoch as for `settle`.

        Raises BadInput unless the evidence is of kind tests; otherwise as `settle` does.
        """
        from assay.rules.margin import margins  # late: `assay settle` does not need it

        return margins(self.settle(epoch))

    def backtest(self, scheme: Scheme) -> backtest.Backtest:
        """The competition's epochs under its own rules and under others, from the first epoch on. SPEC 4, 5.

        With a ledger they are the settled epochs, each with its own registry. A folder knows only today's registry; its epochs
        are those with evidence (where that is Parquet, the newest). Raises BadInput if the rules have another kind of evidence or
        of reward, or if the evidence does not fit them, and CannotSettle if there is no epoch.
        """
        backtest.check_comparable(self.scheme, scheme)
        pairs = self._ledger_under(scheme) if self.has_ledger else self._folder_under(scheme)
        comparison = backtest.compared(self.scheme, scheme, pairs)
        if not comparison.epochs:
            raise CannotSettle("no epoch is settled yet", file=self.path, hint="settle one first: assay settle DIR")
        return comparison

    def _ledger_under(self, scheme: Scheme) -> Iterator[tuple[Settlement, Settlement]]:
        from assay.ledger import settling

        with self.ledger as ledger:
            yield from settling.under(ledger, scheme)

    def _folder_under(self, scheme: Scheme) -> Iterator[tuple[Settlement, Settlement]]:
        both = [folder.read(self.path), folder.read(self.path, scheme=scheme)]
        epochs = _epochs(both[0])
        before: list[Settlement] = []
        for epoch in epochs:
            at = [_at(inputs, epoch) for inputs in both]
            if before:
                at = [replace(inputs, previous=earlier.handed_on) for inputs, earlier in zip(at, before, strict=True)]
            before = [pipeline.settle(inputs) for inputs in at]
            yield before[0], before[1]

    def _from_ledger(self, epoch: int | None, previous: Path | str | None) -> Settlement:
        from assay.ledger import settling

        if previous is not None:
            raise BadInput("the ledger already has the previous settlement", field="previous", hint="leave it out")
        with self.ledger as ledger:
            return settling.shown(ledger) if epoch is None else settling.draft(ledger, epoch).settlement


def _epochs(inputs: Inputs) -> list[int]:
    """The epochs with evidence, ascending; where only sums are known, the newest."""
    evidence = inputs.evidence
    if isinstance(evidence, Scored):
        return [inputs.epoch]
    if isinstance(evidence, RecordTable):
        return sorted(set(evidence.columns["epoch"].tolist()))
    return sorted({record.epoch for record in evidence})


def _at(inputs: Inputs, epoch: int) -> Inputs:
    """The inputs of an earlier epoch: a last reset or an acceptance after it is not known yet."""

    def then(value: int | None) -> int | None:
        return None if value is None or value > epoch else value

    participants = tuple(
        replace(row, last_reset_epoch=then(row.last_reset_epoch), accepted_epoch=then(row.accepted_epoch))
        for row in inputs.participants
    )
    return replace(inputs, epoch=epoch, participants=participants)


def open_competition(path: Path | str) -> Competition:
    """The competition in a folder; raises BadInput if its scheme cannot be read. SPEC 7."""
    place = Path(path)
    return Competition(path=place, scheme=read_scheme(place / "scheme.toml"))


def emission(path: Path | str, epoch: int | None = None) -> Emission:
    """The emission split of a subnet file: all its competitions settled at one epoch, and joined. SPEC 4, Emission split.

    A competition with a ledger stands as it was settled there, and its receipt, which is checked, is named; an epoch that is
    open there has none yet. Without an epoch it is the highest that all ledgers have settled; where there is none, the highest
    that any competition has evidence of, so that one which saw nothing new stands as it is. Raises BadInput for what SPEC
    refuses, StoreError, and CannotSettle if none has evidence.
    """
    place = Path(path)
    rules = subnet.read(place)
    competitions = [open_competition(place.parent / member.path) for member in rules.competitions]
    epoch = _settled_by_all(competitions) if epoch is None else epoch
    settlements = [_settled_or_none(competition, epoch) for competition in competitions]
    epochs = [settled.epoch for settled in settlements if settled is not None]
    if not epochs:
        raise CannotSettle("none of the competitions has evidence", file=place, hint="put records into their evidence/ folders")
    last = max(epochs)
    settled = [
        earlier if earlier is not None and earlier.epoch == last else _settled(competition, last)
        for competition, earlier in zip(competitions, settlements, strict=True)
    ]
    try:
        return split(rules, settled)
    except BadInput as error:
        error.at(file=place)
        raise


def _settled_by_all(competitions: Sequence[Competition]) -> int | None:
    """The highest epoch that has a receipt in every ledger; None if there is none."""
    folders = [competition.path for competition in competitions if competition.has_ledger]
    if not folders:
        return None
    from assay.ledger.subnet_bundle import last_epoch

    return last_epoch(folders)


def _settled(competition: Competition, epoch: int | None) -> SplitInput:
    """The input of the split: the settlement of an epoch, and its receipt's digest and log key if it has a receipt."""
    if not competition.has_ledger:
        return split_input(competition.settle(epoch))
    from assay.ledger import settling

    with competition.ledger as ledger:
        draft = settling.draft(ledger, settling.newest(ledger) if epoch is None else epoch)
        if not isinstance(draft, settling.EpochResult) or draft.receipt is None:
            return split_input(draft.settlement)
        settling.check_receipt(ledger, draft.receipt)
        return split_input(draft.settlement, draft.receipt.digest, str(ledger.key))


def _settled_or_none(competition: Competition, epoch: int | None) -> SplitInput | None:
    """The input of the split, as `_settled` gives it; None if there is no evidence and so no epoch."""
    try:
        return _settled(competition, epoch)
    except CannotSettle:
        if epoch is not None:
            raise
        return None
