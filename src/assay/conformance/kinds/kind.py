"""What a kind of case is: the shape of its input, and how Assay answers it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from assay.errors import BadInput
from assay.exact import half_even, text
from assay.scheme.fields import Section, refused
from assay.scheme.reading import validate

__all__ = ["Kind", "Ratio", "kind", "ratio", "shown", "whole_input"]

Json = dict[str, Any]
RATIO = "^[0-9]+/[1-9][0-9]*$"


@dataclass(frozen=True)
class Kind:
    """A kind of case: the model that its input is checked by (None: the answer checks it itself), and the answer to an input."""

    name: str
    about: str
    model: type[Section] | None
    answer: Callable[[Any], Any]


def kind(model: type[Section]) -> Callable[[Callable[[Any], Any]], Kind]:
    """Make a kind of a function from a checked input to an output; its docstring says what the kind is about."""

    def made(function: Callable[[Any], Any]) -> Kind:
        return Kind(_name(function), _about(function), model, lambda given: function(validate(model, given)))

    return made


def whole_input(function: Callable[[Any], Any]) -> Kind:
    """Make a kind of a function that checks its input itself."""
    return Kind(_name(function), _about(function), None, function)


def _name(function: Callable[[Any], Any]) -> str:
    return function.__name__.rstrip("_").replace("_", "-")


def _about(function: Callable[[Any], Any]) -> str:
    return " ".join((function.__doc__ or "").split())


def ratio(value: Fraction) -> str:
    """An exact ratio as it stands in a case: `1/3`, in lowest terms, `0/1` for nothing. SPEC 1."""
    return f"{value.numerator}/{value.denominator}"


def shown(value: Fraction) -> str:
    """An exact ratio in nanos, half to even, as a decimal string. SPEC 1."""
    return text(half_even(value.numerator * 1_000_000_000, value.denominator))


def _read(value: object) -> Fraction:
    parts = value.split("/") if isinstance(value, str) else []
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) <= 1000 for part in parts) or not int(parts[1]):
        raise refused(BadInput(f"{str(value)[:60]!r} is not a ratio", hint='write two integers, as in "1/3"'))
    return Fraction(int(parts[0]), int(parts[1]))


Ratio = Annotated[
    Fraction,
    BeforeValidator(_read),
    PlainSerializer(ratio, return_type=str),
    WithJsonSchema({"type": "string", "pattern": RATIO}),
]
"""An exact ratio of at least 0, written as `1/3`."""
