"""Splits a Dockerfile into instructions, and reads the words of an instruction as Docker does outside RUN.

Lines are joined, comments and here-documents dropped, flags and the JSON form read. In words, quotes, escapes and `${VARIABLES}`
are resolved.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from assay.folder.files import Place

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+")
_DEPTH = 20


def raw(text: str) -> list[str]:
    """The words between unquoted blanks, with their quotes and escapes."""
    words: list[str] = []
    word, quote, skip = "", "", False
    for letter in text:
        if skip or (letter == "\\" and quote != "'"):
            word, skip = word + letter, not skip
        elif quote:
            word, quote = word + letter, "" if letter == quote else quote
        elif letter in " \t":
            words, word = ([*words, word] if word else words), ""
        else:
            word, quote = word + letter, letter if letter in "'\"" else ""
    return [*words, word] if word else words


def expand(text: str, values: Mapping[str, str], place: Place) -> str:
    """A word without quotes and escapes, and with the values of variables. Raises BadInput for text that cannot be read."""
    return _Reader(text, values, place).until("")


class _Reader:
    """Reads one word from left to right."""

    def __init__(self, text: str, values: Mapping[str, str], place: Place, depth: int = 0) -> None:
        self.text, self.values, self.place, self.depth, self.at = text, values, place, depth, 0

    def until(self, end: str) -> str:
        out: list[str] = []
        while self.at < len(self.text):
            letter = self.text[self.at]
            if letter == end:
                return "".join(out)
            self.at += 1
            if letter == "'":
                out.append(self.single())
            elif letter == '"':
                out.append(self.double())
            elif letter == "\\":
                out.append(self.text[self.at : self.at + 1])
                self.at += 1
            else:
                out.append(self.variable() if letter == "$" else letter)
        if end:
            raise self.open_ended(end)
        return "".join(out)

    def single(self) -> str:
        close = self.text.find("'", self.at)
        if close < 0:
            raise self.open_ended("'")
        inner, self.at = self.text[self.at : close], close + 1
        return inner

    def double(self) -> str:
        out: list[str] = []
        while self.at < len(self.text):
            letter = self.text[self.at]
            self.at += 1
            if letter == '"':
                return "".join(out)
            if letter == "\\" and self.text[self.at : self.at + 1] in ("\\", '"', "$"):
                out.append(self.text[self.at : self.at + 1])
                self.at += 1
            else:
                out.append(self.variable() if letter == "$" else letter)
        raise self.open_ended('"')

    def variable(self) -> str:
        """The value of the variable after a `$`."""
        if self.text[self.at : self.at + 1] != "{":
            name = _NAME.match(self.text, self.at)
            if not name:
                return "$"
            self.at = name.end()
            return self.values.get(name[0], "")
        name = _NAME.match(self.text, self.at + 1)
        if not name:
            raise self.place.refuse("has ${ without a name after it", hint="write ${NAME}, or \\$ for the sign itself")
        self.at = name.end()
        rule = re.compile(r":?[-+]|").match(self.text, self.at)
        mark = rule[0] if rule else ""
        self.at += len(mark)
        word = self.inner() if mark else ""
        if self.text[self.at : self.at + 1] != "}":
            raise self.place.refuse(
                f"has ${{{name[0]}{self.text[self.at : self.at + 1]}…, which is not supported",
                hint="write ${NAME}, ${NAME:-word} or ${NAME:+word}",
            )
        self.at += 1
        value = self.values.get(name[0])
        there = bool(value) if ":" in mark else value is not None
        if not mark:
            return value or ""
        if mark[-1] == "-":
            return value or "" if there else word
        return word if there else ""

    def inner(self) -> str:
        """The word inside `${NAME:-word}`."""
        if self.depth >= _DEPTH:
            raise self.place.refuse("has variables nested too deeply", hint="split it into several instructions")
        reader = _Reader(self.text, self.values, self.place, self.depth + 1)
        reader.at = self.at
        word = reader.until("}")
        self.at = reader.at
        return word

    def open_ended(self, end: str) -> Exception:
        return self.place.refuse(f"has no closing {end}", hint="close it, or put \\ before the sign")


INSTRUCTIONS = frozenset(
    [
        "ADD",
        "ARG",
        "CMD",
        "COPY",
        "ENTRYPOINT",
        "ENV",
        "EXPOSE",
        "FROM",
        "HEALTHCHECK",
        "LABEL",
        "MAINTAINER",
        "ONBUILD",
        "RUN",
        "SHELL",
        "STOPSIGNAL",
        "USER",
        "VOLUME",
        "WORKDIR",
    ]
)
"""Every instruction that Docker knows."""
_FLAGGED = frozenset({"ADD", "COPY", "FROM", "HEALTHCHECK", "RUN"})
_HEREDOC = re.compile(r"\d*<<(-?)(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\2")
_DIRECTIVE = re.compile(r"#\s*([A-Za-z]+)\s*=\s*(.*?)\s*")


@dataclass(frozen=True)
class Instruction:
    """One instruction of a Dockerfile."""

    name: str
    """In capitals."""
    value: str
    """The text after the flags, with continued lines joined."""
    line: int
    """The line on which it begins, counted from 1."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """By name without dashes; the value of a flag without one is empty."""
    heredoc: bool = False
    """Whether a here-document follows it. Its lines are dropped."""


def parse(text: str, file: Path | str | None = None) -> tuple[Instruction, ...]:
    """The instructions of a Dockerfile. Raises BadInput, with the line, for text that is no instruction."""
    rows = text.removeprefix("\ufeff").splitlines()
    _directives(rows, file)
    instructions: list[Instruction] = []
    at = 0
    while at < len(rows):
        if not rows[at].strip() or rows[at].lstrip().startswith("#"):
            at += 1
            continue
        start = at + 1
        whole, at = _joined(rows, at)
        read = _instruction(whole, Place(file, start))
        marks = [] if read.name not in ("RUN", "COPY", "ADD") else [m for w in raw(read.value) if (m := _HEREDOC.fullmatch(w))]
        for mark in marks:
            at = _skipped(rows, at, mark, Place(file, start))
        instructions.append(Instruction(read.name, read.value, start, read.flags, bool(marks)))
    if not any(instruction.name == "FROM" for instruction in instructions):
        raise Place(file).refuse("has no FROM", hint="begin with the image that everything starts from")
    early = next(instruction for instruction in instructions if instruction.name != "ARG")
    if early.name != "FROM":
        raise Place(file, early.line).refuse(f"{early.name} stands before FROM", hint="only ARG may")
    return tuple(instructions)


def listed(value: str) -> tuple[str, ...] | None:
    """The items of the JSON form `["a", "b"]`; None for other text, which is a line for the shell."""
    if not value.startswith("["):
        return None
    try:
        items = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return tuple(items) if isinstance(items, list) and all(isinstance(item, str) for item in items) else None


def _directives(rows: list[str], file: Path | str | None) -> None:
    for number, row in enumerate(rows, start=1):
        directive = _DIRECTIVE.fullmatch(row.strip())
        if not directive:
            return
        if directive[1].lower() == "escape" and directive[2] != "\\":
            raise Place(file, number).refuse(f"sets the escape sign to {directive[2][:5]!r}", hint="only \\ is supported")


def _joined(rows: list[str], at: int) -> tuple[str, int]:
    """A line joined with the lines that continue it, without comments and empty lines, and the index of the next line."""
    out = ""
    while at < len(rows):
        row = rows[at]
        at += 1
        if out and (not row.strip() or row.lstrip().startswith("#")):
            continue
        body = row.rstrip(" \t")
        if not body.endswith("\\"):
            return out + row, at
        out += body[:-1] or " "
    return out, at


def _instruction(whole: str, place: Place) -> Instruction:
    name, rest = (*whole.split(maxsplit=1), "", "")[:2]
    if name.upper() not in INSTRUCTIONS:
        raise place.refuse(
            f"{name[:40]!r} is not an instruction of a Dockerfile", hint="is a \\ missing at the end of the line before?"
        )
    rest, flags = rest.strip(), {}
    while name.upper() in _FLAGGED and (flag := re.match(r"--([a-z][a-z-]*)(?:=(\S*))?(?:\s+|$)", rest)):
        flags[flag[1]] = flag[2] or ""
        rest = rest[flag.end() :]
    if not rest:
        raise place.refuse(f"{name.upper()} has nothing after it", hint="complete it, or remove it")
    return Instruction(name.upper(), rest, place.line or 0, flags)


def _skipped(rows: list[str], at: int, mark: re.Match[str], place: Place) -> int:
    while at < len(rows):
        row = rows[at].lstrip("\t") if mark[1] else rows[at]
        at += 1
        if row == mark[3]:
            return at
    raise place.refuse(f"its here-document has no closing {mark[3]}", hint=f"put {mark[3]} alone on a line after it")
