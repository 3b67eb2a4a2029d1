"""The errors that Assay raises on purpose, and the helpers that put values into messages.

    AssayError
    ├── BadInput        the input is wrong: exit code 2
    ├── CannotSettle    the input is right, but no settlement follows from it: exit code 1
    ├── Unreachable     a service does not answer, or refuses the request; nothing follows from that: exit code 1
    └── Refused         a receipt, or something that it rests on, does not check: exit code 1

Each error says what is wrong, where, and what to do about it.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from assay.characters import printable

__all__ = [
    "MISSING",
    "AssayError",
    "BadInput",
    "CannotSettle",
    "Refused",
    "Unreachable",
    "as_text",
    "brief",
    "broken",
    "check_linux",
    "not_here",
    "printable",
    "suggest",
]


MISSING = "unsupported"
"""The stage of a refusal because a library is not installed: nothing is wrong with the input."""


class AssayError(Exception):
    """The root: one sentence on what is wrong, where it is, and what to do (`hint`)."""

    exit_code = 1

    def __init__(
        self,
        what: str,
        *,
        file: Path | str | None = None,
        line: int | None = None,
        field: str = "",
        hint: str = "",
        stage: str = "",
    ) -> None:
        super().__init__(what)
        self.what, self.file, self.line, self.field, self.hint, self.stage = what, file, line, field, hint, stage

    @property
    def reason_code(self) -> str:
        """For programs; it stays when the words change: the stage that refused, else the outermost part of the input at fault."""
        return self.stage or re.split(r"[.\[]", self.field)[0] or "input"

    @property
    def where(self) -> str:
        """File, line and field, as far as they are known: `scheme.toml:12: reward.cap`; empty if none is."""
        place = "" if self.file is None else str(self.file)
        if self.line is not None:
            place += f":{self.line}" if place else f"line {self.line}"
        return ": ".join(part for part in (place, self.field) if part)

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return printable(f"{text}; {self.hint}" if self.hint else text)

    def at(self, *, file: Path | str | None = None, line: int | None = None, field: str = "") -> AssayError:
        """The same error, with file and line filled in if they were not known; the field is put before the known field."""
        self.file = file if self.file is None else self.file
        self.line = line if self.line is None else self.line
        self.field = ".".join(part for part in (field, self.field) if part)
        return self


class BadInput(AssayError):
    """The input cannot be read or breaks a rule of SPEC: exit code 2, nothing written."""

    exit_code = 2


POSIX = frozenset({"fcntl", "grp", "pwd", "resource", "termios"})
"""Modules of the standard library that Windows does not have."""


def check_linux(what: str) -> None:
    """Raise BadInput on another system than Linux: judging, and handling files that agents wrote, need Linux."""
    if not hasattr(os, "O_PATH"):
        raise BadInput(f"{what} needs Linux (this is {sys.platform})", hint=_HERE)


def not_here(error: ImportError) -> BadInput | None:
    """The refusal to show if an import failed because this is Windows; None for a library that can be installed."""
    if error.name not in POSIX:
        return None
    return BadInput(f"this needs Linux (Python has no module {error.name} on {sys.platform})", hint=_HERE)


_HERE = "settling a folder without a ledger, explaining and verifying work on any system"


class CannotSettle(AssayError):
    """The input is well formed, but no settlement follows from it: exit code 1, nothing written."""

    @property
    def reason_code(self) -> str:
        """Always the same: no single part of the input is wrong."""
        return "cannot-settle"


class Unreachable(AssayError):
    """A service does not answer, or refuses us. That says nothing about a participant; the result that needs it is missing.

    `final`: trying again does not help until somebody repairs the cause (a wrong key, an invalid address).
    """

    def __init__(self, what: str, *, final: bool = False, hint: str = "") -> None:
        super().__init__(what, hint=hint)
        self.final = final


class Refused(AssayError):
    """A check failed: the stage, the participant, what was expected and what was found, as far as they are known."""

    def __init__(
        self,
        stage: str,
        what: str,
        *,
        participant: str = "",
        expected: object = None,
        found: object = None,
        file: Path | str | None = None,
        line: int | None = None,
    ) -> None:
        super().__init__(what, file=file, line=line, stage=stage)
        self.participant, self.expected, self.found = participant, expected, found

    def __str__(self) -> str:
        about = f"{self.participant}: " if self.participant else ""
        pairs = (("expected", self.expected), ("found", self.found))
        parts = [f"{name} {as_text(value):.200}" for name, value in pairs if value is not None]
        place = f"{self.where}: " if self.where else ""
        return printable(f"{self.stage}: {place}{about}{self.what}" + (f" ({', '.join(parts)})" if parts else ""))


def as_text(value: object) -> str:
    """A value as a file would have it: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def brief(value: object, most: int = 60) -> str:
    """A value for a message: cut after `most` characters; a list or an object is only named."""
    if isinstance(value, dict | list | tuple):  # the repr of one that is deep would not end well
        return "a list" if isinstance(value, list | tuple) else "an object"
    if isinstance(value, int) and value.bit_length() > 4 * most:  # nor would that of an integer of many digits
        return f"an integer of {value.bit_length()} bits"
    if value is None or isinstance(value, bool):
        return json.dumps(value)  # as the file has it
    shown = repr(value[: most + 1] if isinstance(value, str) else value)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def suggest(name: str, known: Iterable[str], otherwise: str = "", *, then: str = "", most: int = 1) -> str:
    """The hint for a name that is not known: `did you mean 'quorum'?` with the nearest names, at most `most` of them.

    `then` follows the question; `otherwise` is the whole hint if no known name is near.
    """
    import difflib  # rarely needed

    near = difflib.get_close_matches(name[:80], list(known), n=most, cutoff=0.5)
    if not near:
        return otherwise
    return f"did you mean {' or '.join(map(repr, near))}?" + (f" {then}" if then else "")


def broken(error: BaseException) -> str:
    """The cause of a broken connection, in the system's words; never in the other side's words, which may say anything."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TimeoutError):
            return "no answer in time"
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror[0].lower() + cause.strerror[1:]
        cause = cause.__cause__ or cause.__context__
    return re.sub("(?<=[a-z])(?=[A-Z])", " ", type(error).__name__).lower()
