"""The pages of a competition: a board, participants, validators and epochs, drawn from settlements, and the static report.

    season.read(folder)  ─▶  Season  ─▶  board · participant · validators · epoch (views)  ─▶  pages (HTML and JSON)  ─▶  report

A view is a plain dict that a template prints. It reads what the settlement and its story say and computes no number of its own;
floats appear only as places in a drawing.
"""

from __future__ import annotations

from importlib.util import find_spec

from assay.errors import CannotSettle

__all__ = ["installed"]


def installed() -> None:
    """Raise CannotSettle if the libraries of the service (the extra `serve`) are not installed."""
    for name in ("fastapi", "http_message_signatures", "jinja2", "uvicorn", "zstandard"):
        if find_spec(name) is None:
            raise CannotSettle(f"the service needs {name}, which is not installed", hint="pip install 'assay[serve]'")
