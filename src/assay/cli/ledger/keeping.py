"""`assay ledger adopt`: what an operator does with a ledger's database as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import AsJson, emit
from assay.errors import BadInput

__all__ = ["Folder", "adopt"]

Folder = Annotated[
    Path, typer.Argument(metavar="DIR|SUBNET.toml", help="The competition's folder, or a subnet file.", show_default=False)
]


def adopt(
    folder: Folder,
    old_is_stopped: Annotated[
        bool, typer.Option("--old-is-stopped", help="Nobody works any more where the ledger lived before.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say that this is the ledger now, and the only one: after its folder was moved, or its database restored.

    A ledger knows where it lives. What is somewhere else is a copy: it can be read, and takes in and signs nothing. Two that both
    sign would give out two receipts for one epoch, and the log would be forked for good. So first stop whatever works with the
    ledger where it was: nodes, cron jobs, an old PostgreSQL cluster.

    \b
    Examples:
      assay ledger adopt my-competition
      assay ledger adopt my-competition --old-is-stopped
    """
    from assay.cli.show import sentence, show
    from assay.ledger.opened import open_ledger

    with open_ledger(folder) as ledger:
        why = ledger.store.elsewhere()
        if why is not None and not old_is_stopped:
            hint = "if this is the only one now, and nobody works with the other: add --old-is-stopped"
            raise BadInput(why.what, file=why.file, hint=hint)
        if why is not None:
            ledger.store.adopt()
    if as_json:
        emit({"adopted": why is not None})
        return
    here = "The ledger lives here already; nothing was changed." if why is None else "The ledger lives here from now on."
    show(sentence(here))
