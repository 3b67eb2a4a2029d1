"""A case before its output is known: the input, and what a person says must come of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["CaseDraft", "File", "case", "refused"]


@dataclass(frozen=True)
class CaseDraft:
    """A case to be made; `expect` is the part of the output that is written by hand (None: what package and oracle agree on)."""

    name: str
    input: Any
    expect: Any = None
    refused: str = ""
    """Why it must be refused; empty if it must not."""


@dataclass(frozen=True)
class File:
    """A case file to be made."""

    name: str
    kind: str
    about: str
    drafts: list[CaseDraft] = field(default_factory=list)


def case(name: str, given: Any, expect: Any = None) -> CaseDraft:
    """A case that has an output, which contains `expect`."""
    return CaseDraft(name, given, expect)


def refused(name: str, given: Any, why: str) -> CaseDraft:
    """A case that must be refused, and why."""
    return CaseDraft(name, given, refused=why)
