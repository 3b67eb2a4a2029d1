"""`agent`: the share of a checklist that the output meets: a keyword, a key of its JSON, a regular expression. SPEC 2.2."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from assay.errors import BadInput
from assay.judge.workflow import limits, values
from assay.judge.workflow.libraries import library
from assay.judge.workflow.quality.scored import Scored, share
from assay.scheme.fields import Section

__all__ = ["Check", "JsonKey", "Keyword", "Regex", "score"]

Words = Annotated[str, Field(min_length=1, max_length=4096)]


class Keyword(Section):
    """Met if the text is in the output, in whichever case."""

    kind: Literal["keyword"]
    text: Words


class JsonKey(Section):
    """Met if the output, as JSON, has something at a path such as `result.items.0`; and, if `equals` is there, just this."""

    kind: Literal["json_key"]
    path: Words
    equals: str | int | bool | None = None


class Regex(Section):
    """Met if the expression is found in the output within its time; flags are written into it, as in `(?i)`."""

    kind: Literal["regex"]
    pattern: Words

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        regex = library("regex")
        try:
            regex.compile(pattern)
        except regex.error as error:
            raise PydanticCustomError("assay", "is no regular expression: {why}", {"why": str(error)}) from None
        return pattern


Check = Annotated[Keyword | JsonKey | Regex, Field(discriminator="kind")]


def score(checks: tuple[Check, ...], output: Any) -> Scored:
    """The quality of an output; which items were met is in `how`, in their order."""
    text, value = values.shown(output), _json(output)
    met = [_met(check, text, value) for check in checks]
    how: dict[str, Any] = {"met": [word for word, _ in met]}
    if any(isinstance(check, Regex) for check in checks):
        how["tool"] = f"regex {version('regex')}, {limits.REGEX_SECONDS:g} s each"
    return Scored(share(sum(found for _, found in met), len(checks)), how)


def _met(check: Check, text: str, value: Any) -> tuple[str, bool]:
    if isinstance(check, Keyword):
        found = check.text.casefold() in text.casefold()
    elif isinstance(check, JsonKey):
        try:
            there = values.at(value, tuple(check.path.split(".")))
        except LookupError:
            found = False
        else:
            found = "equals" not in check.model_fields_set or values.equal(there, check.equals)
    else:
        try:
            found = library("regex").search(check.pattern, text, timeout=limits.REGEX_SECONDS) is not None
        except TimeoutError:
            return "too slow", False
    return ("yes" if found else "no"), found


def _json(output: Any) -> Any:
    """What is said in a text that is JSON; anything else as it is."""
    if not isinstance(output, str):
        return output
    try:
        return values.parse(output.encode())
    except BadInput:
        return output
