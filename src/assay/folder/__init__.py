"""A competition's folder on disk: everything between the files and the pure kernel. SPEC 7.

The modules that compute are imported when they are first used: a judge only reads and writes, and never settles.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from assay.folder.files import write_bytes, write_text

if TYPE_CHECKING:
    from assay.folder.previous import previous_of
    from assay.folder.reader import parse_case, read

__all__ = ["parse_case", "previous_of", "read", "write_bytes", "write_text"]

_HOMES = {"parse_case": "assay.folder.reader", "previous_of": "assay.folder.previous", "read": "assay.folder.reader"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
