"""`assay enclave`: the group of its commands, with `serve`, `develop` and `compose-hash`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from assay.cli.enclave.results import collect, deliver, release, results
from assay.cli.enclave.verify import collateral, verify
from assay.cli.judging.models import FallbackOption, ModelOption, PriceOption
from assay.cli.output import AsJson, emit
from assay.exact import LARGEST


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

    Every image must be named by its digest: otherwise the hash would not say what runs.

    \b
    Examples:
      assay enclave compose-hash app-compose.json
      assay enclave compose-hash deploy/enclave/docker-compose.yml -o app-compose.json
    """
    from assay.enclave import dstack
    from assay.folder import write_bytes

    data = dstack.read_compose(file, name)
    if output is not None:
        write_bytes(output, data)
    if as_json:
        emit({"compose_hash": dstack.compose_hash(data), "file": str(output or file)})
        return
    typer.echo(dstack.compose_hash(data))


class TcbStatus(StrEnum):
    """The TCB status that the development authority reports."""

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
        Path | None, typer.Option(metavar="DIR", help="Store the secret here, so that a restart gives the same keys.")
    ] = None,
    compose: Annotated[Path | None, typer.Option(metavar="FILE", help="The app-compose.json that it claims to run.")] = None,
    tcb: Annotated[TcbStatus, typer.Option(help="The platform's status, as its authority reports it.")] = TcbStatus.UpToDate,
    collateral: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the quotes' collateral here.")] = None,
) -> None:
    """Answer as dstack does inside an enclave, for tests and demonstrations, on a machine that has none.

    Its quotes are real in form, under a development root of its own: `assay enclave verify` refuses them unless you give
    --development. Its keys are only as safe as this machine. Ctrl-C ends it.

    \b
    Example:
      assay enclave develop --socket dstack.sock --state dev --collateral collateral.json
    """
    import signal
    import time

    from assay.cli.errors import printable
    from assay.enclave.develop.machine import DEVELOPMENT_COMPOSE, Authority, Machine
    from assay.enclave.develop.server import DevelopmentServer, load_secret
    from assay.exact import canonical
    from assay.folder import write_bytes
    from assay.folder.files import load

    text = DEVELOPMENT_COMPOSE if compose is None else load(compose, 1_000_000, hint="give dstack's app-compose.json")
    machine = Machine(Authority(load_secret(state), tcb.value), text)
    with DevelopmentServer(socket, machine, lambda: int(time.time())) as server:
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


def serve(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)],
    listen: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="unix:PATH, or HOST:PORT; only if HOST is not loopback do other machines reach it."),
    ] = "127.0.0.1:8300",
    dstack: Annotated[
        str | None,
        typer.Option(metavar="ENDPOINT", help="dstack's socket; otherwise DSTACK_SIMULATOR_ENDPOINT, or its usual path."),
    ] = None,
    model_url: Annotated[
        str | None, typer.Option("--model-url", metavar="URL", help="The model service; otherwise ASSAY_LLM_BASE_URL.")
    ] = None,
    model: ModelOption = None,
    fallback: FallbackOption = None,
    price: PriceOption = None,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", metavar="N", help="Solutions that are judged at the same time.", min=1)
    ] = 8,
    epoch: Annotated[int, typer.Option(metavar="N", help="The epoch of the evidence.", min=0, max=LARGEST)] = 1,
    collateral: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The quotes' collateral, added to each attestation.")
    ] = None,
) -> None:
    """Serve the bounty in DIR: take commitments and sealed solutions, judge them, give out results that anybody can verify.

    It runs inside a dstack CVM. Its keys come from dstack and are never written. Its files in DIR/enclave are public or sealed,
    and it continues from them after a restart. Results are published when the time for solutions is over, not before. A
    model or dstack that does not answer keeps solutions waiting until the scoring deadline; a solution that still waits
    then is unjudged, never zero.

    The model's key is taken from ASSAY_LLM_API_KEY alone. Nothing of a solution, a key or an answer is ever logged.

    \b
    Examples:
      assay enclave serve /bounty --listen 0.0.0.0:8300 --model-url https://api.example.com/v1
      assay enclave serve my-bounty --listen unix:enclave.sock --dstack dstack.sock --model-url http://127.0.0.1:8400/v1
    """
    import os

    from assay.cli.enclave.options import given_collateral
    from assay.cli.errors import printable
    from assay.enclave.service.lifecycle import ServiceOptions
    from assay.enclave.service.process import StartOptions, serve_competition
    from assay.errors import BadInput
    from assay.judge import service
    from assay.judge.rubric.asking import Models, parse_prices

    model_service = service.of_judges(os.environ, model_url)
    if model_service is None:
        hint = "give the address of an OpenAI-compatible service, or set ASSAY_LLM_BASE_URL; its key is ASSAY_LLM_API_KEY"
        raise BadInput("no model is named that could judge", field="--model-url", hint=hint)

    def tell(line: str) -> None:
        typer.echo(printable(line), err=True)

    models = Models(model_service.base_url, model_service.key, model, fallback, parse_prices(price or ()))
    setting = ServiceOptions(epoch=epoch, jobs=jobs, collateral=given_collateral(collateral))
    serve_competition(StartOptions(folder, listen, models, tell, dstack, setting))


app = typer.Typer(
    name="enclave",
    help="Run an enclave that judges sealed solutions, and check what an enclave proves.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command()(verify)
app.command()(collateral)
app.command("compose-hash")(compose_hash)
app.command()(serve)
app.command()(deliver)
app.command()(collect)
app.command()(results)
app.command()(release)
app.command()(develop)
