"""`assay enclave develop`: dstack's guest API without a TEE, until it is stopped."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["develop"]


class Status(StrEnum):
    """What the development authority says of the platform."""

    UpToDate = "UpToDate"
    SWHardeningNeeded = "SWHardeningNeeded"
    ConfigurationNeeded = "ConfigurationNeeded"
    ConfigurationAndSWHardeningNeeded = "ConfigurationAndSWHardeningNeeded"
    OutOfDate = "OutOfDate"
    OutOfDateConfigurationNeeded = "OutOfDateConfigurationNeeded"
    Revoked = "Revoked"


def develop(
    socket: Annotated[Path, typer.Option(metavar="PATH", help="The Unix socket to listen on.", show_default=False)],
    state: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the secret here, so that a restart gives the same keys.")
    ] = None,
    compose: Annotated[Path | None, typer.Option(metavar="FILE", help="The app-compose.json that it says it runs.")] = None,
    tcb: Annotated[Status, typer.Option(help="What its authority says of the platform.")] = Status.UpToDate,
    collateral: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the quotes' collateral here.")] = None,
) -> None:
    """Answer as dstack does inside an enclave, for tests and demonstrations, on a machine that has none.

    Its quotes are real in form, under a development root of its own: `assay enclave verify` refuses them unless it is told
    --development. Its keys are only as safe as this machine. Ctrl-C ends it.

    \b
    Example:
      assay enclave develop --socket dstack.sock --state dev --collateral collateral.json
    """
    import signal
    import time

    from assay.cli.errors import printable
    from assay.enclave.develop.authority import Authority
    from assay.enclave.develop.machine import COMPOSE, Machine
    from assay.enclave.develop.server import Server
    from assay.enclave.develop.state import secret_of
    from assay.exact import canonical
    from assay.folder import write_bytes
    from assay.folder.text import load

    text = COMPOSE if compose is None else load(compose, 1_000_000, hint="give dstack's app-compose.json")
    machine = Machine(Authority(secret_of(state), tcb.value), text)
    with Server(socket, machine, lambda: int(time.time())) as server:
        if collateral is not None:
            write_bytes(collateral, canonical(server.collateral()) + b"\n")
        typer.echo(printable(f"listening       {socket}"))
        typer.echo(f"compose hash    {machine.compose_hash.hex()}")
        typer.echo("root            Assay development root, not Intel: what it attests proves nothing")
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            typer.echo("stopped")
