"""`data_transform`: 1 if the output is structurally equal to the reference, else the share of equal fields. SPEC 2.2.

- A field is a string, number, truth, null, or an empty list or object, at its path. The share is of all paths that either has.
- With a schema, an output that does not fit it is worth nothing: the reference does fit.
- Numbers are compared exactly, as decimals. Patterns have a time limit; nothing is fetched.
"""

from __future__ import annotations

import decimal
from collections.abc import Iterator
from decimal import Decimal
from importlib.metadata import version
from typing import Any

from assay.errors import BadInput
from assay.judge.workflow import limits, values
from assay.judge.workflow.libraries import library
from assay.judge.workflow.quality.scored import Scored, share

__all__ = ["check_schema", "fits", "score"]

_EXACT = decimal.Context(prec=4 * limits.NUMBER, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)
_REFUSED = frozenset({"patternProperties", "$dynamicRef", "$recursiveRef"})


def check_schema(schema: Any, reference: Any) -> None:
    """Refuse a schema that is none, that would have to be fetched, or that the reference does not fit; raises BadInput."""
    if not isinstance(schema, dict):
        raise BadInput("is not a JSON object")
    for key, value in _keywords(schema):
        if key in _REFUSED or (key == "$ref" and not str(value).startswith("#")):
            raise BadInput(f"{key} {str(value)[:80]!r} cannot be used here", hint="write the schema in one file, without it")
    errors = library("jsonschema.exceptions")
    try:
        _class(schema).check_schema(schema)
    except errors.SchemaError as error:
        raise BadInput(f"is no JSON Schema: {error.message[:200]}") from None
    why = fits(schema, reference)
    if why:
        raise BadInput(f"the reference does not fit it: {why}")


def fits(schema: Any, output: Any) -> str:
    """Why an output does not fit a schema; empty if it does."""
    referencing = library("referencing")
    with decimal.localcontext(_EXACT):
        try:
            errors = _class(schema)(schema, registry=referencing.Registry()).iter_errors(output)
            first = next(iter(errors), None)
        except TimeoutError:
            return "a pattern took too long"
        except (RecursionError, referencing.exceptions.Unresolvable) as error:
            return f"it cannot be followed: {type(error).__name__}"
    return "" if first is None else f"{first.json_path}: {first.message}"[:200]


def score(reference: Any, schema: Any, output: Any) -> Scored:
    """The quality of an output; schema: None for none. A text that is JSON is read, unless the reference is a text itself."""
    if isinstance(output, str) and not isinstance(reference, str):
        try:
            output = values.parse(output.encode())
        except BadInput:
            return Scored(0, {"note": "a text that is not JSON"})
    how: dict[str, Any] = {}
    if schema is not None:
        how["tool"] = f"jsonschema {version('jsonschema')}"
        why = fits(schema, output)
        if why:
            return Scored(0, how | {"schema": why})
    mine, wanted = dict(values.leaves(output)), dict(values.leaves(reference))
    same = sum(path in mine and mine[path] == leaf for path, leaf in wanted.items())
    whole = len(mine.keys() | wanted.keys())
    return Scored(share(same, whole), how | {"equal_fields": same, "fields": whole})


def _class(schema: Any) -> Any:
    """The validator for a schema's draft, with numbers, patterns and uniqueness as they are here."""
    jsonschema = library("jsonschema")
    draft = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    checker = draft.TYPE_CHECKER.redefine_many({"number": _is_number, "integer": _is_integer})
    return jsonschema.validators.extend(draft, {"pattern": _pattern, "uniqueItems": _unique}, type_checker=checker)


def _is_number(_checker: object, value: object) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _is_integer(_checker: object, value: object) -> bool:
    return _is_number(_checker, value) and value == int(value)  # type: ignore[call-overload]


def _pattern(_validator: object, pattern: str, value: object, _schema: object) -> Iterator[Any]:
    if isinstance(value, str) and library("regex").search(pattern, value, timeout=limits.REGEX_SECONDS) is None:
        yield library("jsonschema").ValidationError("does not match the pattern")


def _unique(_validator: object, wanted: bool, value: object, _schema: object) -> Iterator[Any]:
    if wanted and isinstance(value, list) and len({frozenset(values.leaves(one)) for one in value}) < len(value):
        yield library("jsonschema").ValidationError("has equal elements")


def _keywords(schema: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(schema, dict):
        yield from schema.items()
    for inner in (schema.values() if isinstance(schema, dict) else schema) if isinstance(schema, dict | list) else ():
        yield from _keywords(inner)
