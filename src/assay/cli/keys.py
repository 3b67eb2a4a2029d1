"""Finding the participant that somebody means: by key, the short form on a board, name, or a unique beginning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from assay.errors import BadInput, suggest

if TYPE_CHECKING:
    from assay.records import Participant

INPUTS_BYTES = 2**27
"""As many as a bundle's inputs may have."""

__all__ = ["called_in", "complete", "find", "names", "validator_of"]


def find(said: str, participants: Sequence[Participant]) -> str:
    """The key of the participant; raises BadInput if nobody or several could be meant."""
    head, dots, tail = said.partition("…")
    ways: tuple[Callable[[Participant], bool], ...] = (
        lambda one: one.key == said,
        lambda one: bool(one.name) and one.name == said,
        lambda one: bool(dots) and len(one.key) > len(said) and one.key.startswith(head) and one.key.endswith(tail),
        lambda one: not dots and one.key.startswith(said),
        lambda one: not dots and one.name.startswith(said),
    )
    for way in ways:
        found = [one.key for one in participants if way(one)]
        if len(found) == 1:
            return found[0]
        if found:
            several = ", ".join(sorted(found)[:5])
            raise BadInput(f"{said[:80]!r} could be {len(found)} participants", field="participant", hint=f"say which: {several}")
    words = [word for one in participants for word in (one.key, one.name) if word]
    first = ", ".join(one.key for one in participants[:5]) + (" …" if len(participants) > 5 else "")
    hint = suggest(said, words, f"participants.csv has {first}")
    raise BadInput(f"there is no participant {said[:80]!r}", field="participant", hint=hint)


def validator_of(folder: Path, said: str) -> str:
    """The key of the validator that has this key or, alone, this name; what was said, if nobody has: who needs it will say so."""
    names = _validators(folder)
    named = [key for key, name in names.items() if name == said]
    return named[0] if said not in names and len(named) == 1 else said


def _validators(folder: Path) -> dict[str, str]:
    """Key → name of the validators in validators.csv, of an exported epoch in inputs.json; nobody where it cannot be read."""
    from assay.folder import csvs
    from assay.ledger.bundle import INPUTS

    try:
        if not (folder / "validators.csv").exists() and (folder / INPUTS).exists():
            return _exported(folder / INPUTS)
        rows = [row.fields for row in csvs.read(folder / "validators.csv", csvs.VALIDATORS)]
    except BadInput:
        return {}
    return {row["key"]: row.get("name") or "" for row in rows}


def _exported(path: Path) -> dict[str, str]:
    """The same of a bundle's inputs; raises BadInput for what is no JSON."""
    from assay.folder.files import decode, load
    from assay.folder.strict import parse

    found = parse(decode(load(path, INPUTS_BYTES, hint="export the epoch again"), path))
    rows = found.get("validators") if isinstance(found, dict) else None
    return {str(one.get("key")): str(one.get("name") or "") for one in rows or () if isinstance(one, dict)}


def called_in(folder: Path, keys: Iterable[str]) -> dict[str, str]:
    """Key → what people read of each of these validators, by `_validators`; the key itself where that cannot be read."""
    from assay.records import Validator
    from assay.settle.story import called

    wanted, named = set(keys), _validators(folder)
    return called([Validator(key=key, stake=0, name=named.get(key, "")) for key in sorted(wanted | named.keys())])


def names(folder: Path) -> dict[str, str]:
    """Key → name of participants, by participants.csv; of those who have one, and nobody where that cannot be read."""
    from assay.folder import csvs

    try:
        rows = [row.fields for row in csvs.read(folder / csvs.PARTICIPANTS.name, csvs.PARTICIPANTS)]
    except BadInput:
        return {}
    return {row["key"]: row["name"] for row in rows if row.get("name")}


def complete(ctx: typer.Context, incomplete: str) -> list[str]:
    """The keys of participants.csv that begin so, for the shell."""
    from assay.folder import csvs

    folder = ctx.params.get("folder")
    if folder is None:
        return []
    try:
        rows = csvs.read(Path(folder) / "participants.csv", csvs.PARTICIPANTS)
    except BadInput:
        return []
    return [row.fields["key"] for row in rows if row.fields["key"].startswith(incomplete)]
