"""`assay report`: a competition's pages as static files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import AsJson, emit

__all__ = ["report"]


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER|FILE.html", help="A folder, or one file for the board.")],
    epoch: Annotated[int | None, typer.Option(min=0, metavar="N", help="The epoch, if not the last that is settled.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write a competition's pages as static files: the board, participants, validators, the epoch.

    If --out is a folder, it gets the pages, with their data as JSON. Put the folder on any web host, or open its index.html
    without a server. A later report replaces the whole folder. If --out ends in .html, only the board is written, as one file.

    \b
    Examples:
      assay report my-competition -o site
      assay report my-competition -o board.html --epoch 12
    """
    from assay.cli.output import Working
    from assay.cli.show import sentence, show
    from assay.serve import report as files
    from assay.serve.season import read

    with Working(f"reading {folder}"):
        season = read(folder, epoch)
    if out.suffix == ".html":
        with Working(f"drawing {out}"):
            files.write_file(season, out)
        count, start = 1, out
    else:
        with Working(f"drawing {out}"):
            count, start = files.write_folder(season, out), out / "index.html"
    if emit({"schema": "assay.report/1", "epoch": season.settlement.epoch, "files": count, "start": str(start)}, as_json):
        return
    show(sentence(f"Epoch {season.settlement.epoch}: {count} {'file' if count == 1 else 'files'}. Open {start}"))
