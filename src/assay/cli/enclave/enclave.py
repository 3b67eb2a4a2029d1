"""`assay enclave`: the group of its commands."""

from __future__ import annotations

import typer

from assay.cli.enclave.collateral import collateral
from assay.cli.enclave.collect import collect
from assay.cli.enclave.compose import compose_hash
from assay.cli.enclave.develop import develop
from assay.cli.enclave.serve import serve
from assay.cli.enclave.sponsor import release, results
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
app.command()(serve)
app.command()(collect)
app.command()(results)
app.command()(release)
app.command()(develop)
