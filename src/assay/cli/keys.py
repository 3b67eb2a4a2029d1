"""Finding the participant or validator that somebody means: by key, short form, name, or a beginning that is unique."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from assay.errors import BadInput, suggest

if TYPE_CHECKING:
    from assay.records import Participant

INPUTS_BYTES = 2**27
"""The largest size of a bundle's inputs."""

__all__ = ["called_in", "complete", "find", "names", "validator_of"]


def find(text: str, participants: Sequence[Participant]) -> str:
    """The key of the participant; raises BadInput if none or several match."""
    head, dots, tail = text.partition("…")
    ways: tuple[Callable[[Participant], bool], ...] = (
        lambda participant: participant.key == text,
        lambda participant: bool(participant.name) and participant.name == text,
        lambda participant: (
            bool(dots)
            and len(participant.key) > len(text)
            and participant.key.startswith(head)
            and participant.key.endswith(tail)
        ),
        lambda participant: not dots and participant.key.startswith(text),
        lambda participant: not dots and participant.name.startswith(text),
    )
    for way in ways:
        matches = [participant.key for participant in participants if way(participant)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            several = ", ".join(sorted(matches)[:5])
            raise BadInput(
                f"{text[:80]!r} could be {len(matches)} participants", field="participant", hint=f"give one of them: {several}"
            )
    words = [word for participant in participants for word in (participant.key, participant.name) if word]
    first = ", ".join(participant.key for participant in participants[:5]) + (" …" if len(participants) > 5 else "")
    hint = suggest(text, words, f"participants.csv has {first}")
    raise BadInput(f"there is no participant {text[:80]!r}", field="participant", hint=hint)


def validator_of(folder: Path, text: str) -> str:
    """The key of the validator with this key, or the only one with this name; otherwise the text itself."""
    names = _validators(folder)
    named = [key for key, name in names.items() if name == text]
    return named[0] if text not in names and len(named) == 1 else text


def _validators(folder: Path) -> dict[str, str]:
    """Key → name of the validators, from validators.csv or an exported epoch's inputs.json; empty if it cannot be read."""
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
    """Key → name of the validators in a bundle's inputs; raises BadInput if they are not JSON."""
    from assay.folder.files import decode, load
    from assay.folder.strict import parse

    content = parse(decode(load(path, INPUTS_BYTES, hint="export the epoch again"), path))
    rows = content.get("validators") if isinstance(content, dict) else None
    return {str(row.get("key")): str(row.get("name") or "") for row in rows or () if isinstance(row, dict)}


def called_in(folder: Path, keys: Iterable[str]) -> dict[str, str]:
    """Key → the name that people read, for each of these validators; the key itself if the folder cannot be read."""
    from assay.records import Validator
    from assay.settle.story import called

    wanted, named = set(keys), _validators(folder)
    return called([Validator(key=key, stake=0, name=named.get(key, "")) for key in sorted(wanted | named.keys())])


def names(folder: Path) -> dict[str, str]:
    """Key → name of the participants in participants.csv that have a name; empty if it cannot be read."""
    from assay.folder import csvs

    try:
        rows = [row.fields for row in csvs.read(folder / csvs.PARTICIPANTS.name, csvs.PARTICIPANTS)]
    except BadInput:
        return {}
    return {row["key"]: row["name"] for row in rows if row.get("name")}


def complete(ctx: typer.Context, incomplete: str) -> list[str]:
    """The keys of participants.csv with this beginning, for the shell's completion."""
    from assay.folder import csvs

    folder = ctx.params.get("folder")
    if folder is None:
        return []
    try:
        rows = csvs.read(Path(folder) / "participants.csv", csvs.PARTICIPANTS)
    except BadInput:
        return []
    return [row.fields["key"] for row in rows if row.fields["key"].startswith(incomplete)]
