"""The judge that makes evidence: the entry point in the group `assay.judges` named as the kind, or as `[judge] use` says.

Assay's own judges are found in the same way as those of other packages.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol

from assay.errors import BadInput, not_here
from assay.judge.running import RunOptions, RunSummary, Tell
from assay.kind import JUDGES as GROUP
from assay.kind import origin, plugins

__all__ = ["GROUP", "JudgeFunction", "exists", "find"]


class JudgeFunction(Protocol):
    """From a competition's folder to evidence in it: what an entry point leads to."""

    def __call__(self, competition: Path, validator: str, options: RunOptions, on_event: Tell) -> RunSummary:
        """Judges what has no evidence of this validator yet, and writes it into `evidence/` as it goes.

        Of the options it takes those that concern it. Running it again goes on where it stopped. An error is never written.
        Raises BadInput before anything is judged, and AssayError where nothing can be.
        """


def exists(kind: str, use: str | None = None) -> bool:
    """Whether a judge here makes the evidence: False if it comes from elsewhere, as scores that are given do."""
    return use is not None or bool(plugins(GROUP, kind))


def find(kind: str, use: str | None = None, *, file: Path | None = None) -> JudgeFunction:
    """The judge of a score.kind, or the one that `[judge] use` names in its place; file: the scheme that asks for it.

    Raises BadInput if there is none, several, or none that loads.
    """
    name, field = (kind, "score.kind") if use is None else (use, "judge.use")
    candidates = plugins(GROUP, name)
    if not candidates:
        there = ", ".join(sorted(entry_points(group=GROUP).names)) or "none"
        what = f"there is no judge for the kind {kind!r}, only for: {there}"
        hint = f"install a package that has an entry point {name!r} in {GROUP}, or put evidence from elsewhere into evidence/"
        if use is not None:
            what = f"no package here has the judge {use!r}, only: {there}"
        raise BadInput(what, file=file, field=field, hint=hint)
    if len(candidates) > 1:
        several = " and ".join(map(origin, candidates))
        hint = "keep one, or name one that has a name of its own: [judge] use"
        raise BadInput(f"there are several judges for the kind {kind!r}: {several}", file=file, field=field, hint=hint)
    try:
        judge: JudgeFunction = candidates[0].load()
    except (ImportError, AttributeError) as error:
        if isinstance(error, ImportError) and (elsewhere := not_here(error)):
            raise elsewhere from None
        what = f"the judge {origin(candidates[0])} cannot be loaded: {error}"
        raise BadInput(what, file=file, field=field, hint="install what it needs") from error
    return judge
