"""`assay model`, a model whose answers are written beforehand; and the options of all commands that ask a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.judge.kind_options import FALLBACK, MODEL, MODEL_URL, PRICE

UrlOption = Annotated[str | None, typer.Option(MODEL_URL.name, metavar=MODEL_URL.metavar, help=MODEL_URL.help)]
ModelOption = Annotated[str | None, typer.Option(MODEL.name, metavar=MODEL.metavar, help=MODEL.help)]
FallbackOption = Annotated[str | None, typer.Option(FALLBACK.name, metavar=FALLBACK.metavar, help=FALLBACK.help)]
PriceOption = Annotated[list[str] | None, typer.Option(PRICE.name, metavar=PRICE.metavar, help=PRICE.help)]

HELP = "Serve a scripted model, for demonstrations and tests."
app = typer.Typer(name="model", help=HELP, no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """Serve a scripted model, for demonstrations and tests."""


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

    content = read_script(script)
    try:
        model, http = make_server(content, port=port)
    except OSError as error:
        raise BadInput(f"port {port} cannot be listened on ({error.strerror})", field="--port", hint="choose another") from None
    with http:
        typer.echo(f"listening  {model.url}")
        typer.echo(
            printable(
                f"answers    {script}: {plural(len(content.solutions), 'solution')}, "
                f"{plural(len(content.faults), 'fault')}; no model"
            )
        )
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            http.serve_forever(poll_interval=0.05)
        except KeyboardInterrupt:
            typer.echo("stopped")
