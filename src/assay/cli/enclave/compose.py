"""`assay enclave compose-hash`: what a bounty pins."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import AsJson, emit

__all__ = ["compose_hash"]


def compose_hash(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="app-compose.json, or a docker-compose.yml to make one from.", show_default=False),
    ],
    name: Annotated[str, typer.Option(metavar="NAME", help="The app's name, where app-compose.json is made.")] = "assay-enclave",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write app-compose.json, to be deployed as it is.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the compose hash: the SHA-256 of app-compose.json, which dstack measures and a bounty pins.

    Refuses a file in which an image is not named by its digest, since the hash would not say then what runs.

    \b
    Examples:
      assay enclave compose-hash app-compose.json
      assay enclave compose-hash deploy/enclave/docker-compose.yml -o app-compose.json
    """
    from assay.enclave import compose
    from assay.folder import write_bytes

    data = compose.read_compose(file, name)
    if output is not None:
        write_bytes(output, data)
    if as_json:
        emit({"compose_hash": compose.compose_hash(data), "file": str(output or file)})
        return
    typer.echo(compose.compose_hash(data))
