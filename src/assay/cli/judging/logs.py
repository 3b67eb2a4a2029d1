"""`assay logs`: what one trial printed, and how it ended."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import AsJson, emit

__all__ = ["logs"]

_LAST = 64_000
_WHOLE = 64_000_000
_FILES = ("agent/stdout.txt", "agent/stderr.txt", "tests/stdout.txt", "tests/stderr.txt")


def logs(
    folder: Annotated[
        Path, typer.Argument(metavar="TRIAL", help="The trial's folder, as `assay trials --json` names it.", show_default=False)
    ],
    whole: Annotated[bool, typer.Option("--all", help="All of it, not only the last 64 kB of each.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what one trial printed, and how it ended.

    \b
    Example:
      assay logs my-competition/trials/val-1/miner-7@0123456789ab/git-rescue/1
    """
    from assay.cli.judging.words import text_lines
    from assay.cli.show import heading, sentence, show
    from assay.judge.tests import record

    found = record.read(folder / record.FILE)
    printed = {name: _tail(folder / name, _WHOLE if whole else _LAST) for name in _FILES}
    if as_json:
        texts = {name: data.decode("utf-8", "replace") for name, data in printed.items()}
        emit({"trial": found.model_dump(mode="json", by_alias=True, exclude_none=True), "printed": texts})
        return
    show(
        heading(f"{found.participant} on {found.task}, trial {found.trial}, by {found.validator}: {found.outcome}"),
        sentence(found.message or f"{found.reason}; attempt {found.attempt}, {found.mode} tests, in {found.sandbox}."),
    )
    for name, data in printed.items():
        if data:
            show("", heading(name))
            typer.echo("\n".join(text_lines(data.rstrip(b"\n"))))


def _tail(file: Path, most: int) -> bytes:
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, file.stat().st_size - most))
            return opened.read(most)
    except OSError:
        return b""
