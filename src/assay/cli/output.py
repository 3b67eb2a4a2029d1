"""Output beside tables: canonical JSON, CSV, files that are written completely or not at all, and a spinner."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.errors import as_text
from assay.exact import canonical

if TYPE_CHECKING:
    from assay.errors import Refused

__all__ = ["AsJson", "Working", "emit", "json_bytes", "put", "refused_json"]

Json = dict[str, Any]
AsJson = Annotated[bool, typer.Option("--json", help="As one line of canonical JSON.")]


def json_bytes(document: Json) -> bytes:
    """The document as one line of canonical JSON (RFC 8785)."""
    return canonical(document) + b"\n"


def emit(document: Json | Callable[[], Json], as_json: bool = True) -> bool:
    """If `as_json`, print a command's result as one JSON document on stdout; returns whether it did.

    document: may be a function that makes the document, if only programs need it.
    """
    if as_json:
        put(json_bytes(document() if callable(document) else document), None)
    return as_json


def refused_json(error: Refused) -> Json:
    """A refusal as a command that verifies prints it with `--json`."""
    plain = {
        name: None if value is None else as_text(value) for name, value in (("expected", error.expected), ("found", error.found))
    }
    place = {"file": None if error.file is None else str(error.file), "line": error.line}
    return {
        "verified": False,
        "stage": error.stage,
        "participant": error.participant or None,
        "what": error.what,
        **plain,
        **place,
    }


def put(data: bytes, file: Path | None) -> None:
    """Write the bytes into a file; to stdout if it is None or "-"."""
    if file is None or str(file) == "-":
        typer.echo(data, nl=False)
    else:
        from assay.folder import write_bytes

        write_bytes(file, data)


PATIENCE = 1.0
"""Seconds before anything is shown."""


class Working:
    """Shows what the block does and for how long, once it has run for a second: `with Working("settling"): …`.

    The block may change `what` as it goes on.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Working:
        if sys.stderr.isatty():
            self._thread = threading.Thread(target=self._show, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()

    def _show(self) -> None:
        if self._done.wait(PATIENCE):
            return
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            shown = self.what
            task = progress.add_task(f"{shown} …", total=None)
            while not self._done.wait(0.2):
                if self.what != shown:
                    shown = self.what
                    progress.update(task, description=f"{shown} …")
