"""Case files: reading and writing them. SPEC 6.

    {"schema": "assay.cases/1", "kind": KIND, "about": "one sentence",
     "cases": [{"name", "input", "output"} or {"name", "input", "refused": true, "why"}]}

`about` and `name` are for the reader; a case is what must come out of an input, or that nothing may.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from assay.conformance.kinds import KINDS
from assay.errors import BadInput
from assay.folder import strict
from assay.folder.text import decode, load
from assay.scheme.fields import Section
from assay.scheme.reading import validate

__all__ = ["SCHEMA", "Case", "CaseFile", "dumped", "files", "read"]

SCHEMA = "assay.cases/1"
FILE_BYTES = 64_000_000
"""A case file is refused above this size."""
WIDTH = 130
"""Up to this many characters a value is written on one line."""


@dataclass(frozen=True)
class Case:
    """An input and what must come of it: an output, or a refusal (`output` is None then) and why."""

    name: str
    input: Any
    output: Any
    refused: bool = False
    why: str = ""


@dataclass(frozen=True)
class CaseFile:
    """The cases of one kind in one file."""

    path: Path
    kind: str
    about: str
    cases: tuple[Case, ...]


class _Case(Section):
    name: Annotated[str, Field(min_length=1, max_length=200)]
    input: Any
    output: Any = None
    refused: Literal[True] | None = None
    why: str = ""


class _File(Section):
    format: Annotated[Literal["assay.cases/1"], Field(alias="schema")]
    kind: str
    about: str
    cases: Annotated[tuple[_Case, ...], Field(strict=False, min_length=1)]


def files(directory: Path) -> list[CaseFile]:
    """The case files (*.json, but for *.schema.json) of a folder, by name; raises BadInput if there is none or one is wrong."""
    if not directory.is_dir():
        raise BadInput("no such folder", file=directory, hint="give the folder `conformance` of the project, or your own")
    found = sorted(path for path in directory.glob("*.json") if not path.name.endswith(".schema.json"))
    if not found:
        raise BadInput("has no case files", file=directory, hint="they end in .json and say assay.cases/1")
    return [read(path) for path in found]


def read(path: Path) -> CaseFile:
    """The cases in a file; raises BadInput with the place in it for what is not a case file."""
    text = decode(load(path, FILE_BYTES, hint="give a case file"), path)
    try:
        content = strict.parse(text)
        found = validate(_File, content)
        _check(found, content)
    except BadInput as error:
        error.at(file=path)
        raise
    cases = tuple(Case(one.name, one.input, one.output, one.refused is True, one.why) for one in found.cases)
    return CaseFile(path, found.kind, found.about, cases)


def _check(found: _File, content: Any) -> None:
    if found.kind not in KINDS:
        raise BadInput(f"there is no kind {found.kind[:60]!r}", field="kind", hint=f"use one of {', '.join(KINDS)}")
    seen: set[str] = set()
    for index, (one, raw) in enumerate(zip(found.cases, content["cases"], strict=True)):
        if one.name in seen:
            raise BadInput(f"{one.name!r} is there twice", field=f"cases[{index}].name", hint="give each case its own name")
        seen.add(one.name)
        if ("output" in raw) == (one.refused is True):
            raise BadInput("has an output and is refused, or neither", field=f"cases[{index}]", hint="give one of the two")


def dumped(document: Any) -> str:
    """JSON for people: what fits on a line stands on one, the rest is indented by a space; keys in the order given."""
    return f"{_lines(document, 0, 0)}\n"


def _lines(value: Any, indent: int, before: int) -> str:
    flat = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or len(flat) + indent + before <= WIDTH:
        return flat
    inner = " " * (indent + 1)
    if isinstance(value, dict):
        rows = [f"{json.dumps(key, ensure_ascii=False)}: " for key in value]
        rows = [f"{inner}{head}{_lines(one, indent + 1, len(head))}" for head, one in zip(rows, value.values(), strict=True)]
        return "{\n" + ",\n".join(rows) + f"\n{' ' * indent}}}"
    return "[\n" + ",\n".join(inner + _lines(one, indent + 1, 0) for one in value) + f"\n{' ' * indent}]"
