"""The libraries of the extra `workflow`, imported where they are first needed; without them there is one clear refusal."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from assay.errors import BadInput

__all__ = ["library"]


def library(name: str) -> Any:
    """The module of that name; raises BadInput if it is not installed."""
    try:
        return import_module(name)
    except ImportError:
        raise BadInput(f"{name} is not installed", hint="pip install 'assay[workflow]'") from None
