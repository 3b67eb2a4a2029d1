"""The subnet file: which competitions share one subnet's emission, and in what parts. SPEC 4 (Emission split), 7."""

from __future__ import annotations

import os
import posixpath
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from assay.errors import BadInput
from assay.exact import NANO, text
from assay.scheme.fields import Rao, Section, Share
from assay.scheme.reading import read_toml, validate

__all__ = ["Member", "SubnetFile", "places", "read"]

VKEY = r"^[^\s+]+\+[0-9a-f]{8}\+[A-Za-z0-9+/]+=*$"
"""The form of a log's public key, NAME+HEX+BASE64 (C2SP signed-note)."""


class Member(Section):
    """One of `[[competitions]]`: its folder, relative to the subnet file, and its part α_c of the emission. SPEC 4.

    log: its log's public key (vkey). What is signed of the subnet may then name no other.
    """

    path: Annotated[str, Field(min_length=1, max_length=4096)]
    share: Share
    log: Annotated[str, Field(min_length=1, max_length=4096, pattern=VKEY)] | None = None


class SubnetFile(Section):
    """A subnet file: competitions and their parts (Σ at most 1), encoding, burn UID, emission in rao if known. SPEC 4, 7.

    unearned: what a competition claims in which nobody took part burns, or goes to the others in proportion to their parts.
    """

    competitions: Annotated[tuple[Member, ...], Field(strict=False, min_length=1, max_length=1000)]
    encoding: Literal["round", "exact-sum", "max-upscale"] = "round"
    burn_uid: Annotated[int, Field(ge=0, le=65_535)] = 0
    emission: Rao | None = None
    unearned: Literal["burn", "others"] = "burn"

    @model_validator(mode="after")
    def _fits(self) -> Self:
        total = sum(member.share for member in self.competitions)
        if total > NANO:
            raise PydanticCustomError(
                "assay",
                "the shares of the competitions sum to {total}; they may not be more than 1 together",
                {"total": text(total)},
            )
        paths = [posixpath.normpath(member.path) for member in self.competitions]
        twice = sorted({path for path in paths if paths.count(path) > 1})
        if twice:
            raise PydanticCustomError("assay", "{path} is listed twice; keep one of the two entries", {"path": repr(twice[0])})
        return self


def read(path: Path) -> SubnetFile:
    """The subnet in a TOML file; raises BadInput with the field and its line, or for a folder that is listed by two paths."""
    content, source = read_toml(path)
    subnet = validate(SubnetFile, content, file=path, source=source)
    seen: dict[str, str] = {}
    for number, member in enumerate(subnet.competitions):
        folder = os.path.realpath(path.parent / member.path)
        if folder in seen:
            what = f"{member.path!r} is the same folder as {seen[folder]!r}"
            raise BadInput(what, file=path, field=f"competitions[{number}].path", hint="keep one of the two entries")
        seen[folder] = member.path
    return subnet


def places(place: Path) -> tuple[list[Path], Path | None, Path]:
    """Return the folders of the competitions, the subnet file if there is one, and the folder of publish.toml.

    place: a competition's folder, which need not exist, or a subnet file. Raises BadInput for a subnet file that is wrong.
    """
    if not place.is_file():
        return [place], None, place
    return [place.parent / member.path for member in read(place).competitions], place, place.parent
