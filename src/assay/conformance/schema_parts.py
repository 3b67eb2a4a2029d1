"""What the published schemas are made of: the values that occur in them, and how objects and models become schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.characters import PATTERN
from assay.exact import text

__all__ = [
    "AMOUNT",
    "BPS",
    "COUNT",
    "DIGEST",
    "EPOCH",
    "FLAG",
    "FRACTION",
    "KEY",
    "SHARE",
    "TEXT",
    "U16",
    "Json",
    "closed",
    "listed",
    "or_null",
    "plain",
]

Json = dict[str, Any]

KEY: Json = {"type": "string", "minLength": 1, "maxLength": 256, "not": {"pattern": PATTERN}}
TEXT: Json = {"type": "string"}
FLAG: Json = {"type": "boolean"}
COUNT: Json = {"type": "integer", "minimum": 0}
EPOCH: Json = {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}
BPS: Json = {"type": "integer", "minimum": 0, "maximum": 10_000}
U16: Json = {"type": "integer", "minimum": 0, "maximum": 65_535}
DIGEST: Json = {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"}
FRACTION: Json = {"type": "string", "pattern": r"^(0|[1-9][0-9]*)(\.[0-9]{0,8}[1-9])?$", "description": "nanos, normalised"}
SHARE: Json = {"type": "string", "pattern": r"^(1|0(\.[0-9]{0,8}[1-9])?)$", "description": "0 … 1 in nanos, normalised"}
AMOUNT: Json = {"type": "string", "pattern": "^(0|[1-9][0-9]*)$", "description": "rao or wei"}


def closed(fields: Mapping[str, Json], optional: tuple[str, ...] = ()) -> Json:
    """An object with these fields and no others."""
    required = [name for name in fields if name not in optional]
    return {"type": "object", "properties": dict(fields), "required": required, "additionalProperties": False}


def listed(items: Json) -> Json:
    """A list of such."""
    return {"type": "array", "items": items}


def or_null(schema: Json) -> Json:
    """Such, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def plain(schema: Any) -> Any:
    """A model's schema as its JSON is: integers that are written as decimal strings are strings."""
    if isinstance(schema, list):
        return [plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "integer" and "pattern" in schema:
        written = {**schema, "type": "string"}
        if isinstance(schema.get("default"), int):
            written["default"] = str(schema["default"]) if "." not in schema["pattern"] else text(schema["default"])
        schema = written
    return {
        name: plain(value)
        for name, value in schema.items()
        if name != "discriminator" and not (name == "title" and isinstance(value, str))
    }
