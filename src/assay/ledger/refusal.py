"""What `check` refuses, as an error that says which file it is in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assay.errors import BadInput
from assay.ledger.check import Refused

__all__ = ["as_bad_input"]


@contextmanager
def as_bad_input(hint: str, *, file: Path | str | None = None, line: int | None = None, field: str = "") -> Iterator[None]:
    """In the block, what `check` refuses is raised as BadInput, with this place and this hint."""
    try:
        yield
    except Refused as refused:
        what = str(refused).removeprefix(f"{refused.stage}: ")
        raise BadInput(what, file=file, line=line, field=field, hint=hint, stage=refused.stage) from None
