"""`assay sandbox`: does this machine hold what a sandbox must hold?"""

from __future__ import annotations

import typer

from assay.cli.judging.words import EngineOption, RuntimeOption, SandboxName, SandboxOption

__all__ = ["app"]

app = typer.Typer(name="sandbox", help="Where agents run.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """Where agents run."""


@app.command()
def check(sandbox: SandboxOption = SandboxName.bubblewrap, engine: EngineOption = None, runtime: RuntimeOption = None) -> None:
    """Try out what any sandbox must hold: no network, no host files, no privilege, bounds, everything dead afterwards.

    Ends with 1 if something does not hold. Then do not run strangers' agents here.

    \b
    Examples:
      assay sandbox check
      assay sandbox check --sandbox containers --runtime runsc
    """
    from assay.cli.errors import printable
    from assay.judge.sandbox.check import check as checks
    from assay.judge.sandbox.choose import choose

    chosen = choose(sandbox.value, engine=engine, runtime=runtime)
    chosen.sweep()
    typer.echo(printable(chosen.describe()))
    failed = total = 0
    for result in checks(chosen):
        total += 1
        failed += not result.ok
        mark, colour = ("✓", typer.colors.GREEN) if result.ok else ("✗", typer.colors.RED)
        typer.secho(mark, fg=colour, nl=False)
        typer.echo(f" {result.name}" + ("" if result.ok else f": {printable(result.why)}"))
    typer.echo(f"{total - failed} of {total} hold")
    if failed:
        raise typer.Exit(1)
