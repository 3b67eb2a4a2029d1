"""What the commands share that ask a model: where it is, what it is called there, what it costs.

`assay model`: a model whose answers are written beforehand, for demonstrations and tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from assay.errors import BadInput

if TYPE_CHECKING:
    from assay.judge.service import ModelAccess


UrlOption = Annotated[
    str | None,
    typer.Option(
        "--model-url", metavar="URL", help="The model service; else ASSAY_LLM_BASE_URL of a rubric, ASSAY_MODEL_URL of agents."
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="What the service calls the bounty's model, if something else."),
]
FallbackOption = Annotated[
    str | None, typer.Option("--fallback", metavar="NAME", help="The same of the bounty's fallback model.")
]
PriceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--price", metavar="NAME=IN/OUT", help="What a million tokens of a model cost, asked and answered, such as m=0.27/1.1."
    ),
]


def service(whose: Literal["agents", "judges"], url: str | None) -> ModelAccess | None:
    """The service that agents, or judges themselves, ask; with the key that is in the environment alone."""
    import os

    from assay.judge import service as services

    return services.of_judges(os.environ, url) if whose == "judges" else services.of_agents(os.environ, url)


def unnamed(model: ModelAccess | None) -> list[str]:
    """A word on a service at which agents may ask for any model: one that is always refused buys an error instead of a fail."""
    if model is None or model.names:
        return []
    what = "agents may name any model of the service: one that is always at its limit turns a fail into an error"
    return [f"{what}; set ASSAY_MODEL_NAMES to the models that this account may use"]


def prices(said: Sequence[str] | None) -> dict[str, tuple[int, int]]:
    """Model → what a million of its tokens cost, in millionths; raises BadInput."""
    from assay.exact import nanos

    found: dict[str, tuple[int, int]] = {}
    for one in said or ():
        name, equals, amounts = one.rpartition("=")
        asked, slash, answered = amounts.partition("/")
        try:
            both = nanos(asked), nanos(answered)
        except BadInput:
            both = (1, 1)
        if not (name and equals and slash) or any(amount % 1000 for amount in both):
            hint = "write NAME=IN/OUT with at most six digits after the point, such as --price deepseek-chat=0.27/1.1"
            raise BadInput(f"{one[:100]!r} is not a price", field="--price", hint=hint)
        found[name] = both[0] // 1000, both[1] // 1000
    return found


HELP = "A scripted model, for demonstrations and tests."
app = typer.Typer(name="model", help=HELP, no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """A scripted model, for demonstrations and tests."""


@app.command()
def scripted(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="What it answers: a TOML file.", show_default=False)],
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65535, help="On loopback; 0: any that is free.")] = 0,
) -> None:
    """Answer as a script says, in OpenAI's wire format, until it is stopped.

    No model is behind it: `model` in every reply begins with `scripted/`. The first line says where it listens; that is
    the --model-url for whoever judges. Ctrl-C ends it.

    \b
    Example:
      assay model scripted replies.toml --port 8080
    """
    import signal

    from assay.cli.errors import printable
    from assay.errors import BadInput
    from assay.judge.rubric.scripted import read_script
    from assay.judge.rubric.scripted_server import make_server
    from assay.settle.story.telling import plural

    found = read_script(script)
    try:
        model, http = make_server(found, port=port)
    except OSError as error:
        raise BadInput(f"port {port} cannot be listened on ({error.strerror})", field="--port", hint="choose another") from None
    with http:
        typer.echo(f"listening  {model.url}")
        typer.echo(
            printable(
                f"answers    {script}: {plural(len(found.solutions), 'solution')}, {plural(len(found.faults), 'fault')}; no model"
            )
        )
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            http.serve_forever(poll_interval=0.05)
        except KeyboardInterrupt:
            typer.echo("stopped")
