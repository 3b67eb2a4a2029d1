"""Words of a Dockerfile line: quotes, escapes and `${VARIABLES}`, as Docker reads them outside RUN.

A Dockerfile's text into instructions: continuations, comments, flags, here-documents, the JSON form.
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
    """The words between unquoted blanks, with their quotes and escapes still in them."""
    found: list[str] = []
    word, quote, skip = "", "", False
    for letter in text:
        if skip or (letter == "\\" and quote != "'"):
            word, skip = word + letter, not skip
        elif quote:
            word, quote = word + letter, "" if letter == quote else quote
        elif letter in " \t":
            found, word = ([*found, word] if word else found), ""
        else:
            word, quote = word + letter, letter if letter in "'\"" else ""
    return [*found, word] if word else found


def expand(text: str, values: Mapping[str, str], place: Place) -> str:
    """A word without its quotes and escapes and with variables filled in; raises BadInput for what cannot be read."""
    return _Reader(text, values, place).until("")


class _Reader:
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
        found, self.at = self.text[self.at : close], close + 1
        return found

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
        """What stands after `$`."""
        if self.text[self.at : self.at + 1] != "{":
            found = _NAME.match(self.text, self.at)
            if not found:
                return "$"
            self.at = found.end()
            return self.values.get(found[0], "")
        found = _NAME.match(self.text, self.at + 1)
        if not found:
            raise self.place.refuse("has ${ without a name after it", hint="write ${NAME}, or \\$ for the sign itself")
        self.at = found.end()
        rule = re.compile(r":?[-+]|").match(self.text, self.at)
        mark = rule[0] if rule else ""
        self.at += len(mark)
        word = self.inner() if mark else ""
        if self.text[self.at : self.at + 1] != "}":
            raise self.place.refuse(
                f"has ${{{found[0]}{self.text[self.at : self.at + 1]}…, which is not supported",
                hint="${NAME}, ${NAME:-word} and ${NAME:+word} are",
            )
        self.at += 1
        value = self.values.get(found[0])
        there = bool(value) if ":" in mark else value is not None
        if not mark:
            return value or ""
        if mark[-1] == "-":
            return value or "" if there else word
        return word if there else ""

    def inner(self) -> str:
        """The word inside `${NAME:-word}`."""
        if self.depth >= _DEPTH:
            raise self.place.refuse("has variables nested too deeply", hint="write it in several steps")
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
    """One instruction."""

    name: str
    """In capitals."""
    value: str
    """What stands after the flags, its lines joined."""
    line: int
    """Where it begins, from 1."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """Without their dashes; empty text for one without a value."""
    heredoc: bool = False
    """Whether lines of a here-document belong to it; they are not kept."""


def parse(text: str, file: Path | str | None = None) -> tuple[Instruction, ...]:
    """The instructions of a Dockerfile; raises BadInput with the line for what is none."""
    rows = text.removeprefix("\ufeff").splitlines()
    _directives(rows, file)
    found: list[Instruction] = []
    at = 0
    while at < len(rows):
        if not rows[at].strip() or rows[at].lstrip().startswith("#"):
            at += 1
            continue
        start = at + 1
        whole, at = _joined(rows, at)
        one = _instruction(whole, Place(file, start))
        marks = [] if one.name not in ("RUN", "COPY", "ADD") else [m for w in raw(one.value) if (m := _HEREDOC.fullmatch(w))]
        for mark in marks:
            at = _skipped(rows, at, mark, Place(file, start))
        found.append(Instruction(one.name, one.value, start, one.flags, bool(marks)))
    if not any(one.name == "FROM" for one in found):
        raise Place(file).refuse("has no FROM", hint="begin with the image that everything starts from")
    early = next(one for one in found if one.name != "ARG")
    if early.name != "FROM":
        raise Place(file, early.line).refuse(f"{early.name} stands before FROM", hint="only ARG may")
    return tuple(found)


def listed(value: str) -> tuple[str, ...] | None:
    """The JSON form `["a", "b"]` as a list; None if it is not one, and so a shell's line."""
    if not value.startswith("["):
        return None
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return tuple(found) if isinstance(found, list) and all(isinstance(one, str) for one in found) else None


def _directives(rows: list[str], file: Path | str | None) -> None:
    for number, row in enumerate(rows, start=1):
        found = _DIRECTIVE.fullmatch(row.strip())
        if not found:
            return
        if found[1].lower() == "escape" and found[2] != "\\":
            raise Place(file, number).refuse(f"sets the escape sign to {found[2][:5]!r}", hint="only \\ is supported")


def _joined(rows: list[str], at: int) -> tuple[str, int]:
    """A line with the lines that continue it, without comments and empty lines among them; and the next line's index."""
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
    while name.upper() in _FLAGGED and (found := re.match(r"--([a-z][a-z-]*)(?:=(\S*))?(?:\s+|$)", rest)):
        flags[found[1]] = found[2] or ""
        rest = rest[found.end() :]
    if not rest:
        raise place.refuse(f"{name.upper()} has nothing after it", hint="complete it or remove it")
    return Instruction(name.upper(), rest, place.line or 0, flags)


def _skipped(rows: list[str], at: int, mark: re.Match[str], place: Place) -> int:
    while at < len(rows):
        row = rows[at].lstrip("\t") if mark[1] else rows[at]
        at += 1
        if row == mark[3]:
            return at
    raise place.refuse(f"its here-document has no closing {mark[3]}", hint=f"put {mark[3]} alone on a line after it")
