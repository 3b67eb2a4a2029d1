"""Case files: reading and writing them. SPEC 6.

    {"schema": "assay.cases/1", "kind": KIND, "about": "one sentence",
     "cases": [{"name", "input", "output"} or {"name", "input", "refused": true, "code", "why"}]}

`about`, `name` and `why` are for the reader; a case is what must come out of an input, or that nothing may. `inner` is for the
reader too: what an output was made of, where that is not in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
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
    code: str = ""
    """The code of the refusal, for a case that says one."""
    text: str = ""
    """The input as the file has it, on one line: what another implementation is asked."""


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
    code: Annotated[str, Field(max_length=100)] = ""
    why: str = ""
    inner: Any = None


class _File(Section):
    format: Annotated[Literal["assay.cases/1"], Field(alias="schema")]
    kind: str
    about: str
    cases: Annotated[tuple[_Case, ...], Field(strict=False, min_length=1)]


def files(directory: Path) -> list[CaseFile]:
    """The case files (*.json, but for *.schema.json) of a folder, by name, or one file; raises BadInput for a wrong one."""
    if directory.is_file():
        return [read(directory)]
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
    texts = _inputs(text)
    cases = tuple(
        Case(one.name, one.input, one.output, one.refused is True, one.why, one.code, own)
        for one, own in zip(found.cases, texts, strict=True)
    )
    return CaseFile(path, found.kind, found.about, cases)


def _inputs(text: str) -> list[str]:
    """The inputs as they are spelt in the text of a file, line ends (which no JSON string holds) taken out."""
    found = []
    for key, start, end in _members(text, _space(text, 0)):
        if key == "cases":
            place = start
            while text[place] != "]" and place < end - 1:
                place = _space(text, place + 1)
                for name, begins, ends in _members(text, place):
                    if name == "input":
                        found.append(text[begins:ends].replace("\n", "").replace("\r", ""))
                place = _space(text, _DECODER.raw_decode(text, place)[1])
    return found


def _members(text: str, place: int) -> Iterator[tuple[str, int, int]]:
    """The keys of the object at a place of a JSON text, and where their values begin and end."""
    while text[place] != "}":
        place = _space(text, place + 1)
        if text[place] == "}":
            return
        key, place = _DECODER.raw_decode(text, place)
        start = _space(text, _space(text, place) + 1)
        end = _DECODER.raw_decode(text, start)[1]
        yield key, start, end
        place = _space(text, end)


def _space(text: str, place: int) -> int:
    """The next place that is no white space of JSON."""
    while text[place : place + 1] in (" ", "\t", "\r", "\n"):
        place += 1
    return place


_DECODER = json.JSONDecoder()


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
