"""The prompts, written by us and versioned by digest: a judgement names the one under which it came about. SPEC 2.3."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from string import Template

from assay.exact import digest as digest_of

NAMES = ("again", "baseline", "checks", "system", "verdict")


@cache
def _text(name: str) -> str:
    return files(__name__).joinpath(f"{name}.txt").read_text(encoding="utf-8").strip()


@cache
def digest() -> str:
    """`sha256:…` over the canonical JSON of {name: text}."""
    return digest_of({name: _text(name) for name in NAMES})


def filled(name: str, **values: str | int) -> str:
    """A prompt whose placeholders are filled with our own text; never with untrusted text."""
    return Template(_text(name)).substitute(values)
