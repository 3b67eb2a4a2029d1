"""`assay settle` in a competition with a ledger: what is signed and kept, and the line that says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import BadInput

if TYPE_CHECKING:
    from assay.cli.waiting import Meant
    from assay.ledger.opened import Ledger
    from assay.ledger.settling import Draft, Outcome
    from assay.ledger.sound import Aside
    from assay.settle import Settlement

__all__ = ["settled"]


def settled(
    folder: Path,
    epoch: int | None,
    key: str | None,
    *,
    dry_run: bool,
    meant: Meant,
    hold: Callable[[Settlement], None] | None = None,
) -> tuple[Settlement, str]:
    """The settlement, kept unless it is a dry run, and what to say of its receipt; hold: raises if it is not to be kept yet."""
    from assay.cli.ledger.keys import asking
    from assay.cli.progress import Working
    from assay.ledger import config, keys, settling
    from assay.ledger.opened import open_ledger

    with open_ledger(folder) as ledger:
        with Working(f"settling {folder}"):
            found = settling.draft(ledger, epoch)
        if isinstance(found, settling.Outcome):
            return found.settlement, _remark(ledger, found)
        if dry_run:
            _warn(found.counted.aside)
            return found.settlement, " ".join(["Nothing was kept: the epoch is open, and has no receipt.", *_told(found)])
        name = key or ledger.config.signer
        if name is None:
            raise BadInput(
                "does not say which key signs the receipt",
                file=folder / config.FILE,
                field="signer",
                hint="name the log's key with --key NAME; without it the settlement can be shown: --dry-run",
            )
        signer = keys.load(name, asking())
        if hold is not None:
            hold(found.settlement)
        meant.check(found.closing)
        with Working(f"settling {folder}"):
            made = settling.settle(ledger, signer, found.settlement.epoch, skip=meant.skip, without_scores=meant.without_scores)
        _warn(made.aside)
        told = _told(found)
        return made.settlement, " ".join([_remark(ledger, made) + ("." if told else ""), *told])


def _told(found: Draft) -> list[str]:
    """What closing the epoch costs, or, where it is simply the next, whose evidence is of earlier epochs only."""
    from assay.settle.story.telling import named

    costs, who = [*found.closing.costs()], found.closing.silent
    if costs or not who:
        return costs
    return [f"Of {named([*who], 10)} there is nothing new: what they saw before stands."]


def _warn(aside: tuple[Aside, ...]) -> None:
    """Name the batches that do not count, and were not named with an earlier receipt."""
    from assay.cli.errors import warn

    warn([str(one) for one in aside if one.new])


def _remark(ledger: Ledger, found: Outcome) -> str:
    if found.receipt is None:  # pragma: no cover  (who is settled has a receipt)
        return ""
    before = "" if found.new else ", as it was settled before"
    return f"Receipt {found.receipt.digest}, entry {found.receipt.position} of {ledger.key.name}{before}"
