"""`assay enclave`: the group of its commands."""

from __future__ import annotations

import typer

from assay.cli.enclave.collateral import collateral
from assay.cli.enclave.compose import compose_hash
from assay.cli.enclave.develop import develop
from assay.cli.enclave.verify import verify

__all__ = ["app"]

app = typer.Typer(
    name="enclave",
    help="Enclaves that judge sealed solutions, and what they prove.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command()(verify)
app.command()(collateral)
app.command("compose-hash")(compose_hash)
app.command()(develop)
