"""`assay report`: a competition's pages as static files."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import AsJson, emit

__all__ = ["report"]


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER|FILE.html", help="A folder, or one file for the board.")],
    epoch: Annotated[int | None, typer.Option(min=0, metavar="N", help="The epoch, if not the last that is settled.")] = None,
    all_epochs: Annotated[
        bool, typer.Option("--all-epochs", help="Write the epochs before it too, each to a folder epoch-N in --out.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a competition's pages as static files: the board, participants, validators, the epoch.

    If --out is a folder, it gets the pages, with their data as JSON. Put the folder on any web host, or open its index.html
    without a server. A later report replaces the whole folder. If --out ends in .html, only the board is written, as one file.
    With --all-epochs, the pages of every settled epoch are written, and the boards link to each other.

    \b
    Examples:
      assay report my-competition -o site
      assay report my-competition -o site --all-epochs
      assay report my-competition -o board.html --epoch 12
    """
    from assay.cli.output import Working
    from assay.cli.show import sentence, show
    from assay.errors import BadInput
    from assay.serve import report as files
    from assay.serve.season import read

    if all_epochs and out.suffix == ".html":
        raise BadInput("--all-epochs writes many pages, and this is one file", file=out, hint="name a folder for --out")
    with Working(f"reading {folder}"):
        season = read(folder, epoch)
    if out.suffix == ".html":
        with Working(f"drawing {out}"):
            files.write_file(season, out)
        count, start = 1, out
    else:
        with Working(f"drawing {out}"):
            earlier = partial(read, folder) if all_epochs else None
            count, start = files.write_folder(season, out, earlier=earlier), out / "index.html"
    if emit({"schema": "assay.report/1", "epoch": season.settlement.epoch, "files": count, "start": str(start)}, as_json):
        return
    show(sentence(f"Epoch {season.settlement.epoch}: {count} {'file' if count == 1 else 'files'}. Open {start}"))
