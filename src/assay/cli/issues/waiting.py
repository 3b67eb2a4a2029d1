"""What is said while GitHub lets somebody wait."""

from __future__ import annotations

import typer

__all__ = ["told"]


def told(why: str, seconds: float) -> None:
    """On stderr: why, and when it is tried again."""
    from assay.cli.errors import printable
    from assay.cli.judging.words import duration

    typer.echo(printable(f"{why}; again in {duration(seconds)}"), err=True)
