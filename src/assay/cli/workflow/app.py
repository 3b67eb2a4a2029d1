"""The commands of `assay workflow`."""

from __future__ import annotations

import typer

from assay.cli.workflow import plans, sets

__all__ = ["app"]

app = typer.Typer(
    name="workflow", help="Plans of workflows, and the tasks they are for.", no_args_is_help=True, rich_markup_mode=None
)
app.command("check")(plans.check)
app.command("run")(plans.run)
app.command("task")(sets.task)
app.command("pin")(sets.pin)
app.command("round")(sets.round_)
