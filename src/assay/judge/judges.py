"""Which judge makes evidence of a kind: the entry point of that name in the group `assay.judges`; ours are there as any other."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Protocol

from assay.errors import BadInput, not_here
from assay.judge.running import Event, Options, Summary

__all__ = ["GROUP", "Judge", "find"]

GROUP = "assay.judges"


class Judge(Protocol):
    """From a competition's folder to evidence in it: what an entry point leads to."""

    def __call__(self, competition: Path, validator: str, options: Options, on_event: Callable[[Event], None]) -> Summary:
        """Judges what has no evidence of this validator yet, and writes it into `evidence/` as it goes.

        Of the options it takes those that concern it. Running it again goes on where it stopped. An error is never written.
        Raises BadInput before anything is judged, and AssayError where nothing can be.
        """


def find(kind: str, *, file: Path | None = None) -> Judge:
    """The judge of a score.kind; file: the scheme that asks for it. Raises BadInput if there is none, or none that loads."""
    known = entry_points(group=GROUP)
    found = {one.value: one for one in known if one.name == kind}  # one package can be seen twice on the way of imports
    if not found:
        there = ", ".join(sorted(known.names)) or "none"
        raise BadInput(
            f"there is no judge for the kind {kind!r}, only for: {there}",
            file=file,
            field="score.kind",
            hint=f"install a package that has an entry point {kind!r} in {GROUP}, or put evidence from elsewhere into evidence/",
        )
    if len(found) > 1:
        several = " and ".join(sorted(map(_origin, found.values())))
        raise BadInput(
            f"there are several judges for the kind {kind!r}: {several}", file=file, field="score.kind", hint="keep one"
        )
    one = next(iter(found.values()))
    try:
        judge: Judge = one.load()
    except (ImportError, AttributeError) as error:
        if isinstance(error, ImportError) and (elsewhere := not_here(error)):
            raise elsewhere from None
        raise BadInput(
            f"the judge {_origin(one)} cannot be loaded: {error}", file=file, field="score.kind", hint="install what it needs"
        ) from error
    return judge


def _origin(one: EntryPoint) -> str:
    return f"{one.value} of {one.dist.name}" if one.dist is not None else one.value
