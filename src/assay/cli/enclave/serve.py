"""`assay enclave serve`: the judging service that runs inside an enclave."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.judging.models import FallbackOption, ModelOption, PriceOption

__all__ = ["serve"]


def serve(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)],
    listen: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="unix:PATH, or HOST:PORT; only if HOST is not loopback do other machines reach it."),
    ] = "127.0.0.1:8300",
    dstack: Annotated[
        str | None, typer.Option(metavar="ENDPOINT", help="dstack's socket; else DSTACK_SIMULATOR_ENDPOINT, or its usual place.")
    ] = None,
    model_url: Annotated[
        str | None, typer.Option("--model-url", metavar="URL", help="The model service; else ASSAY_LLM_BASE_URL.")
    ] = None,
    model: ModelOption = None,
    fallback: FallbackOption = None,
    price: PriceOption = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", metavar="N", help="Solutions that are judged at one time.", min=1)] = 8,
    epoch: Annotated[int, typer.Option(metavar="N", help="Of the evidence.", min=0, max=2**53 - 1)] = 1,
    collateral: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The quotes' collateral, to go with each attestation.")
    ] = None,
) -> None:
    """Serve the bounty in DIR: take commitments and sealed solutions, judge them, give out results that anybody can verify.

    It runs inside a dstack CVM. Its keys come from dstack and are never written; what it keeps in DIR/enclave is public or
    sealed, and it goes on from there after a restart. Results are given out when the time for solutions is over, not before. A
    model or dstack that does not answer keeps solutions waiting until the scoring deadline; who still waits then is unjudged,
    never zero.

    The model's key is taken from ASSAY_LLM_API_KEY alone. Nothing of a solution, a key or an answer is ever logged.

    \b
    Examples:
      assay enclave serve /bounty --listen 0.0.0.0:8300 --model-url https://api.example.com/v1
      assay enclave serve my-bounty --listen unix:enclave.sock --dstack dstack.sock --model-url http://127.0.0.1:8400/v1
    """
    from assay.cli.enclave.words import collateral_in
    from assay.cli.errors import printable
    from assay.cli.judging.models import prices, service
    from assay.enclave.service.service import Setting
    from assay.enclave.service.start import Start, serving
    from assay.errors import BadInput
    from assay.judge.rubric.model import Models, Price

    found = service("rubric", model_url)
    if found is None:
        hint = "give the address of an OpenAI-compatible service, or set ASSAY_LLM_BASE_URL; its key is ASSAY_LLM_API_KEY"
        raise BadInput("no model is named that could judge", field="--model-url", hint=hint)
    costs = {name: Price(*one) for name, one in prices(price).items()}

    def tell(line: str) -> None:
        typer.echo(printable(line), err=True)

    models = Models(found.base_url, found.key, model, fallback, costs)
    setting = Setting(epoch=epoch, jobs=jobs, collateral=collateral_in(collateral))
    serving(Start(folder, listen, models, tell, dstack, setting))
