"""Case files, the differences between an answer and its case, and the report of a run. SPEC 6.

    {"schema": "assay.cases/1", "kind": KIND, "about": "one sentence",
     "cases": [{"name", "input", "output"} or {"name", "input", "refused": true, "code", "why"}]}

A case says what must come out of an input, or that the input must be refused. `about`, `name` and `why` are for the reader. So is
`inner`: what an output was made from, if the output does not show it.
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
from assay.folder.files import decode, load
from assay.scheme.fields import Section
from assay.scheme.reading import validate

__all__ = [
    "ABSENT",
    "SCHEMA",
    "Case",
    "CaseFile",
    "Difference",
    "Failure",
    "FileReport",
    "RunReport",
    "differences",
    "dumped",
    "files",
    "read",
]


SCHEMA = "assay.cases/1"
FILE_BYTES = 64_000_000
"""A case file is refused above this size."""
WIDTH = 130
"""Up to this many characters a value is written on one line."""


@dataclass(frozen=True)
class Case:
    """An input and what must come out of it: an output, or a refusal (then `output` is None) and why."""

    name: str
    input: Any
    output: Any
    refused: bool = False
    why: str = ""
    code: str = ""
    """The code of the refusal, if the case has one."""
    text: str = ""
    """The input as the file has it, on one line: another implementation gets this."""


@dataclass(frozen=True)
class CaseFile:
    """The cases of one kind in one file."""

    path: Path
    kind: str
    about: str
    cases: tuple[Case, ...]


class _CaseShape(Section):
    name: Annotated[str, Field(min_length=1, max_length=200)]
    input: Any
    output: Any = None
    refused: Literal[True] | None = None
    code: Annotated[str, Field(max_length=100)] = ""
    why: str = ""
    inner: Any = None


class _CaseFileShape(Section):
    format: Annotated[Literal["assay.cases/1"], Field(alias="schema")]
    kind: str
    about: str
    cases: Annotated[tuple[_CaseShape, ...], Field(strict=False, min_length=1)]


def files(directory: Path) -> list[CaseFile]:
    """The case files of a folder (*.json without *.schema.json), by name, or one file; raises BadInput for a wrong one."""
    if directory.is_file():
        return [read(directory)]
    if not directory.is_dir():
        raise BadInput("no such folder", file=directory, hint="give the folder `conformance` of the project, or your own")
    paths = sorted(path for path in directory.glob("*.json") if not path.name.endswith(".schema.json"))
    if not paths:
        raise BadInput("has no case files", file=directory, hint="they end in .json and say assay.cases/1")
    return [read(path) for path in paths]


def read(path: Path) -> CaseFile:
    """The cases in a file; raises BadInput with the place of the fault if it is not a case file."""
    text = decode(load(path, FILE_BYTES, hint="give a case file"), path)
    try:
        content = strict.parse(text)
        shape = validate(_CaseFileShape, content)
        _check(shape, content)
    except BadInput as error:
        error.at(file=path)
        raise
    texts = _inputs(text)
    cases = tuple(
        Case(case.name, case.input, case.output, case.refused is True, case.why, case.code, own)
        for case, own in zip(shape.cases, texts, strict=True)
    )
    return CaseFile(path, shape.kind, shape.about, cases)


def _inputs(text: str) -> list[str]:
    """The inputs as the text of a file spells them, without line ends (no JSON string has one)."""
    spelled = []
    for key, start, end in _members(text, _space(text, 0)):
        if key == "cases":
            place = start
            while text[place] != "]" and place < end - 1:
                place = _space(text, place + 1)
                for name, begins, ends in _members(text, place):
                    if name == "input":
                        spelled.append(text[begins:ends].replace("\n", "").replace("\r", ""))
                place = _space(text, _DECODER.raw_decode(text, place)[1])
    return spelled


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
    """The next place that is not white space of JSON."""
    while text[place : place + 1] in (" ", "\t", "\r", "\n"):
        place += 1
    return place


_DECODER = json.JSONDecoder()


def _check(shape: _CaseFileShape, content: Any) -> None:
    if shape.kind not in KINDS:
        raise BadInput(f"there is no kind {shape.kind[:60]!r}", field="kind", hint=f"use one of {', '.join(KINDS)}")
    seen: set[str] = set()
    for index, (case, raw) in enumerate(zip(shape.cases, content["cases"], strict=True)):
        if case.name in seen:
            raise BadInput(f"{case.name!r} is there twice", field=f"cases[{index}].name", hint="give each case its own name")
        seen.add(case.name)
        if ("output" in raw) == (case.refused is True):
            raise BadInput("has an output and is refused, or neither", field=f"cases[{index}]", hint="give one of the two")


def dumped(document: Any) -> str:
    """JSON for people: a value that fits stands on one line, others are indented by a space; keys keep their order."""
    return f"{_lines(document, 0, 0)}\n"


def _lines(value: Any, indent: int, before: int) -> str:
    flat = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or len(flat) + indent + before <= WIDTH:
        return flat
    inner = " " * (indent + 1)
    if isinstance(value, dict):
        rows = [f"{json.dumps(key, ensure_ascii=False)}: " for key in value]
        rows = [f"{inner}{head}{_lines(part, indent + 1, len(head))}" for head, part in zip(rows, value.values(), strict=True)]
        return "{\n" + ",\n".join(rows) + f"\n{' ' * indent}}}"
    return "[\n" + ",\n".join(inner + _lines(item, indent + 1, 0) for item in value) + f"\n{' ' * indent}]"


SHOWN = 200
"""Characters of a value that a message shows."""


class _Absent:
    """The type of `ABSENT`."""

    def __repr__(self) -> str:
        return "nothing"


ABSENT: Any = _Absent()
"""Stands for a field or element that one of the two values does not have."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where an answer is not what was expected; the path is "" for the whole document."""

    path: str
    expected: Any
    got: Any

    def __str__(self) -> str:
        return f"{self.path or 'the whole'}: expected {_shown(self.expected)}, got {_shown(self.got)}"


def differences(expected: Any, got: Any, path: str = "") -> Iterator[Difference]:
    """The places where two JSON values differ, in the order of the keys; none if they are equal.

    1 and 1.0 are one number in JSON; true is not 1.
    """
    if isinstance(expected, dict) and isinstance(got, dict):
        for key in sorted({*expected, *got}):
            inner = f"{path}.{key}" if path else key
            yield from differences(expected.get(key, ABSENT), got.get(key, ABSENT), inner)
    elif isinstance(expected, list) and isinstance(got, list):
        for index in range(max(len(expected), len(got))):
            yield from differences(_at(expected, index), _at(got, index), f"{path}[{index}]")
    elif not _same(expected, got):
        yield Difference(path, expected, got)


def _at(values: list[Any], index: int) -> Any:
    return values[index] if index < len(values) else ABSENT


def _same(got: Any, other: Any) -> bool:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (got, other))
    return bool(got == other) and (numbers or type(got) is type(other))


def _shown(value: Any) -> str:
    text = repr(value) if value is ABSENT else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


@dataclass(frozen=True)
class Failure:
    """A case that failed: its name, the reason in one sentence, and the first difference, if there is an answer."""

    case: str
    why: str
    difference: Difference | None = None

    def __str__(self) -> str:
        return f"{self.case}: {self.why}"


@dataclass(frozen=True)
class FileReport:
    """The results of one case file."""

    path: Path
    kind: str
    about: str
    cases: int
    failures: tuple[Failure, ...]
    unsupported: int = 0
    """Cases that the implementation says it does not support: neither passed nor failed."""
    refusals: int = 0
    """The cases among those passed that had to be refused."""
    shown: tuple[tuple[Any, Any], ...] = ()
    """The expected and the actual output, if a single case was run."""

    @property
    def passed(self) -> int:
        """The number of cases that passed; a failure beside the cases (an exit code, say) does not count here."""
        return max(0, self.cases - self.unsupported - len(self.failures))

    def lines(self) -> list[str]:
        """A line for the file, a line for each failure under it."""
        apart = f", {self.unsupported} unsupported" if self.unsupported else ""
        lines = [f"{self.path.name}: {self.passed} of {self.cases}{apart}"]
        for wanted, got in self.shown:
            lines += ["expected", *_indented(wanted), "got", *_indented(got)]
        return lines + [f"  FAILED {failure}" for failure in self.failures]


@dataclass(frozen=True)
class RunReport:
    """The results of a folder of case files; the run is good if nothing failed."""

    directory: Path
    command: str | None
    files: tuple[FileReport, ...]

    @property
    def cases(self) -> int:
        """The number of cases."""
        return sum(file.cases for file in self.files)

    @property
    def failed(self) -> int:
        """The number of failures."""
        return sum(len(file.failures) for file in self.files)

    @property
    def good(self) -> bool:
        """Whether nothing failed."""
        return self.failed == 0

    def document(self) -> dict[str, Any]:
        """The report for programs: what `lines` says, file by file."""
        files = [
            {"file": file.path.name, "kind": file.kind, "cases": file.cases, "passed": file.passed, "refusals": file.refusals}
            | {"unsupported": file.unsupported, "failures": [{"case": bad.case, "why": bad.why} for bad in file.failures]}
            | (
                {"shown": [{"expected": json.dumps(want), "got": json.dumps(got)} for want, got in file.shown]}
                if file.shown
                else {}
            )
            for file in self.files
        ]
        return {"good": self.good, "cases": self.cases, "failed": self.failed, "files": files}

    def lines(self) -> list[str]:
        """The report as text: a line for each file, a line for each failure under it, and the sum at the end.

        If not all cases pass, right outputs and right refusals are counted apart: refusing everything proves nothing.
        """
        lines = [line for file in self.files for line in file.lines()]
        unsupported, refusals = sum(file.unsupported for file in self.files), sum(file.refusals for file in self.files)
        outputs = sum(file.passed for file in self.files) - refusals
        end = "all pass" if self.good else f"{self.failed} failed"
        if unsupported or not self.good:
            end = f"{outputs} outputs and {refusals} refusals right, {unsupported} unsupported, {self.failed} failed"
        return [*lines, f"{self.cases} cases in {len(self.files)} files: {end}"]


def _indented(value: Any) -> list[str]:
    return [f"  {line}" for line in json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True).split("\n")]
