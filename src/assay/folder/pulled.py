"""registry.json: of which block of a chain the uids in participants.csv and the stakes in validators.csv are.

`assay registry pull` writes it beside the two. What it says holds as long as they say what was read there, so a settlement by
other uids or stakes is refused: it would claim to be of a block that it is not of.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from assay.errors import BadInput
from assay.exact import canonical, digest
from assay.folder import strict
from assay.folder.places import Place
from assay.folder.text import decode, load, present
from assay.records import Participant, Pulled, Registered, Validator
from assay.scheme.reading import validate

__all__ = ["FILE", "SCHEMA", "check", "dumped", "parse", "read", "rows"]

FILE = "registry.json"
SCHEMA = "assay.registry/1"
BYTES = 20_000_000


def rows(participants: Iterable[Participant], validators: Iterable[Validator]) -> str:
    """The digest over the uids and stakes: whoever has no uid is not of the chain."""
    uids = sorted((one.uid, one.key) for one in participants if one.uid is not None)
    stakes = sorted((one.key, str(one.stake)) for one in validators)
    return digest({"participants": [[key, uid] for uid, key in uids], "validators": [list(pair) for pair in stakes]})


def read(path: Path) -> Pulled | None:
    """What a registry.json says; None where there is none. Raises BadInput for one that is not well formed."""
    if not present(path):
        return None
    place = Place(path)
    text = decode(load(path, BYTES, hint="pull the registry again"), path)
    try:
        content = strict.parse(text)
    except BadInput as error:
        raise place.put(error) from None
    said = content.pop("schema", None) if isinstance(content, dict) else None
    if said != SCHEMA:
        raise place.refuse(f"is not of the format {SCHEMA}", field="schema", hint="pull the registry again, or remove the file")
    listed = content.pop("neurons", None)
    for number, one in enumerate(listed if isinstance(listed, list) else [listed]):
        try:
            validate(Registered, one)
        except BadInput as error:
            error.at(field=f"neurons.{number}")
            raise place.put(error) from None
    return parse(content, place)


def parse(content: Any, place: Place) -> Pulled:
    """The same out of an object without `schema` and `neurons`, as the inputs of a receipt have it; raises BadInput."""
    try:
        return validate(Pulled, content)
    except BadInput as error:
        raise place.put(error) from None


def dumped(found: Pulled, neurons: Sequence[Registered]) -> bytes:
    """The bytes of the file; neurons: all that the block has, by uid."""
    listed = [one.model_dump(mode="json") for one in neurons]
    return canonical({"schema": SCHEMA} | found.model_dump() | {"neurons": listed}) + b"\n"


def check(found: Pulled, participants: Iterable[Participant], validators: Iterable[Validator], place: Place) -> None:
    """Refuse uids and stakes that are not those of the block; raises BadInput."""
    if rows(participants, validators) != found.rows:
        raise place.refuse(
            f"the uids and stakes are not those that were pulled at block {found.block}",
            hint="pull the registry again, or remove registry.json: then nothing is said of a block",
        )
