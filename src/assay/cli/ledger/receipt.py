"""`assay receipt`: the receipt of an epoch, or a participant's own proof."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

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
    """The receipt of an epoch, or a participant's own proof.

    A receipt is the signed statement of a settled epoch, and the proof that it is in the log. With --for it is a participant's
    own proof: his result, the records that it rests on, and that both are under receipts in the log; nothing of the others.
    `assay verify` checks both.

    It is JSON; on a terminal only what it states is shown, unless it is written to a file or, with -o -, printed.

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
    if output is None and _terminal():
        _show(folder, document)
    else:
        put(json_bytes(document), output)


def _terminal() -> bool:
    return sys.stdout.isatty()


def _show(folder: Path, document: dict[str, Any]) -> None:
    """What a receipt or a proof states, and how to keep it: the JSON itself would fill the terminal."""
    from assay.cli.output import json_bytes
    from assay.cli.show import Column, command, grid, heading, show
    from assay.ledger.check import Receipt

    inner = document.get("receipt", document)
    found = Receipt.parse(json_bytes(inner))
    said = found.predicate
    name, of, more = f"epoch-{said['epoch']}.receipt", "receipt", list[str]()
    rows = [
        ("settlement", said["settlement"]),
        ("evidence", f"{said['evidence']['count']} records, {said['evidence']['root']}"),
        ("log", f"entry {found.proof.index} of {found.proof.checkpoint.decode().partition(chr(10))[0]}"),
    ]
    if inner is not document:
        mine = document["result"]
        of, name = f"proof of {mine['participant']}", f"{mine['participant']}-epoch-{said['epoch']}.proof"
        more = ["--for", mine["participant"]]
        rank = "none" if mine["rank"] is None else str(mine["rank"])
        rows = [("rank", rank), ("score", str(mine["agreed"]["score"])), ("records", str(len(document["records"]))), *rows]
    columns = [Column("", [one for one, _ in rows]), Column("what it states", [what for _, what in rows], kind="text")]
    keep: list[str | Path] = ["assay", "receipt", folder, str(said["epoch"]), *more, "-o", name]
    show(heading(f"{said['competition']} · epoch {said['epoch']}: {of}"), grid(columns), "", command("To keep it", *keep))
