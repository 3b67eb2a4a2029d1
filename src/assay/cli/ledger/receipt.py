"""`assay receipt`: the receipt of an epoch, or a participant's own proof."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["receipt"]


def receipt(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)],
    epoch: Annotated[int | None, typer.Argument(metavar="[EPOCH]", help="The epoch; otherwise the last settled.", min=0)] = None,
    participant: Annotated[
        str | None, typer.Option("--for", metavar="PARTICIPANT", help="His own proof: key, short form, name, or a beginning.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it to a file.")] = None,
) -> None:
    """The receipt of a settled epoch: the signed statement, and the proof that it is in the log.

    With --for it is a participant's own proof: his result, the records that it rests on, and that both are under receipts in the
    log. Nothing of the others is in it. Both are checked by `assay verify`.

    \b
    Examples:
      assay receipt my-competition 12 -o epoch-12.receipt
      assay receipt my-competition 12 --for miner-7 -o miner-7-epoch-12.proof
    """
    from assay.cli.output import json_bytes, put
    from assay.errors import CannotSettle
    from assay.ledger.opened import open_ledger

    with open_ledger(folder) as ledger:
        if epoch is None:
            with ledger.store.reading() as view:
                epoch = view.settled_epoch()
        if epoch is None:
            raise CannotSettle("no epoch is settled yet", file=ledger.store.name, hint="`assay settle` makes a receipt")
        if participant is None:
            document = ledger.document(ledger.receipt(epoch))
        else:
            from assay.cli.keys import find
            from assay.ledger.proof import participants_of, proof_for

            document = proof_for(ledger, find(participant, participants_of(ledger, epoch)), epoch)
    put(json_bytes(document), output)
