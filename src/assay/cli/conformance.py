"""`assay conformance`: run the published cases against Assay or another implementation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import AsJson, emit

__all__ = ["app"]

app = typer.Typer(
    name="conformance",
    help="Run the test cases that every implementation must pass.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def run(
    folder: Annotated[Path, typer.Argument(metavar="PATH", help="The folder of case files, or one file.")] = Path("conformance"),
    other: Annotated[
        str | None,
        typer.Option(
            "--with",
            metavar="COMMAND",
            help="Another implementation: it gets a line of JSON for each case, and answers with one line.",
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(metavar="S", help="How long an answer may take.", min=0.1)] = 60.0,
    case: Annotated[
        str | None, typer.Option(metavar="NAME", help="Run only the case of this name, and show what was expected and what came.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the cases; exit code 1 if one fails. Cases that an implementation says it does not support are counted apart.

    \b
    Examples:
      assay conformance run
      assay conformance run conformance/cap.json --case "water-filling needs two passes"
      assay conformance run conformance --with "node my-validator.js"
    """
    from assay.cli.errors import printable
    from assay.cli.output import Working
    from assay.conformance import run as run_cases

    with Working(f"running the cases in {folder}"):
        report = run_cases(folder, other, seconds=seconds, case=case)
    if not emit(report.document(), as_json):
        typer.echo("\n".join(map(printable, report.lines())))
    if not report.good:
        raise typer.Exit(1)


@app.command()
def serve() -> None:
    """Answer cases on stdin, so that others can be tested against Assay.

    A line of JSON {"kind": …, "input": …} in, a line with the output out; {"refused": true} where nothing follows from it.

    \b
    Example:
      echo '{"kind": "tests", "input": {"passed": 73, "trials": 91}}' | assay conformance serve
    """
    from assay.conformance import serve as answer

    answer(sys.stdin.buffer, sys.stdout.buffer)
