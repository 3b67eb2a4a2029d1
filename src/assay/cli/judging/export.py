"""`assay export`: epochs of a ledger as files, trials in the shape of other harnesses."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.archive import export_archive
from assay.cli.exports import export_cose, export_erc8004, export_scitt
from assay.cli.ledger.epochs import export_emission, export_epoch
from assay.cli.output import AsJson, emit

__all__ = ["app"]

HELP = "Export epochs of a ledger as files, or trials in the format of other harnesses."
app = typer.Typer(name="export", help=HELP, no_args_is_help=True, rich_markup_mode=None)
app.command("epoch")(export_epoch)
app.command("emission")(export_emission)
app.command("archive")(export_archive)
app.command("cose")(export_cose)
app.command("scitt")(export_scitt)
app.command("erc8004")(export_erc8004)


@app.callback()
def _group() -> None:
    """Export epochs of a ledger as files, or trials in the format of other harnesses."""


@app.command()
def harbor(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A new folder for the jobs.", show_default=False)],
    validator: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this validator's. May be repeated.")] = None,
    as_json: AsJson = False,
) -> None:
    """Harbor job folders: one job a validator, of the trials about current submissions.

    \b
    Examples:
      assay export harbor my-competition jobs
      assay import harbor jobs again
    """
    from assay.cli.keys import validator_of
    from assay.cli.show import Column, grid, sentence, show
    from assay.judge.terminal.export import harbor as do
    from assay.settle.story.telling import plural

    done = do(folder, out, validators=[validator_of(folder, name) for name in validator or ()])
    rows = list(done.jobs.items())
    if emit({"jobs": {name: str(job) for name, job in rows}, "trials": done.trials, "from_records_alone": done.bare}, as_json):
        return
    show(grid([Column("validator", [name for name, _ in rows]), Column("job", [str(job) for _, job in rows])]))
    bare = f", {done.bare} of them from their record alone" if done.bare else ""
    show("", sentence(f"{plural(done.trials, 'trial')}{bare}."))
