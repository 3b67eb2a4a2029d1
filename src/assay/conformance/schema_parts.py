"""The parts that published schemas are made of: schemas of single values, and how a model becomes a schema. SPEC 6.

A kind of judge describes its own `work` with these parts (`Kind.work_schema`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.characters import PATTERN
from assay.exact import LARGEST, text

Json = dict[str, Any]

JUDGE_KINDS = ("tests", "workflow", "rubric", "points", "given")
"""The kinds of SPEC 2, in its order: those whose shapes are published. Another package publishes its own kind's."""

KEY: Json = {"type": "string", "minLength": 1, "maxLength": 256, "not": {"pattern": PATTERN}}
TEXT: Json = {"type": "string"}
FLAG: Json = {"type": "boolean"}
COUNT: Json = {"type": "integer", "minimum": 0}
EPOCH: Json = {"type": "integer", "minimum": 0, "maximum": LARGEST}
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


VERDICT: Json = {"enum": ["confirmed", "recounted", "refused"]}
_SUM: Json = {"type": "string", "pattern": "^-?(0|[1-9][0-9]*)$", "description": "nanos"}
_ABOUT: Json = {"participant": KEY, "validator": KEY, "task": KEY, "trial": {"type": "integer", "minimum": 1}}
_CLAIM: Json = {"above": or_null(KEY), "below": or_null(KEY)}
_OUTCOME: Json = {"enum": ["pass", "fail", "timeout"]}
_STATE: Json = {"enum": ["held", "flaky", "false", "missing"]}
AUDIT: Json = {
    "claims": listed(closed(_CLAIM | {"margin": {"type": "integer"}})),
    "trials": closed({"counted": COUNT, "drawn_from": COUNT, "size": AMOUNT}),
    "untested": listed(closed({"validator": KEY, "trials": COUNT})),
    "judged": listed(closed(_ABOUT | {"record": DIGEST, "claimed": _OUTCOME, "seen": listed(_OUTCOME), "state": _STATE})),
    "draws": listed(COUNT),
    "martingale": listed(AMOUNT),
    "overstated": listed(closed(_CLAIM | {"nanos": _SUM, "stands": FLAG})),
    "verdict": VERDICT,
}
"""What an audit's statement says of its draw and of what was seen. docs/auditing.md."""


def plain(schema: Any) -> Any:
    """A model's schema as its JSON is: integers that are written as decimal strings are strings."""
    if isinstance(schema, list):
        return [plain(item) for item in schema]
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


RATIO: Json = {"type": "string", "pattern": "^[0-9]+/[1-9][0-9]*$", "description": "in lowest terms"}
SIZE: Json = {"type": "string", "pattern": "^(0|[1-9][0-9]{0,18})$"}
SAID: Json = {"competition": KEY, "epoch": EPOCH, "settlement": DIGEST}

_SIDE: Json = {"enum": ["challenger", "king", None]}
_PAIR: Json = {"task": KEY, "trial": {"type": "integer", "minimum": 1, "maximum": 10_000}}
_STEP: Json = {"challenger": FLAG, "king": FLAG, "sum": {"type": "integer"}, "challenger_wealth": AMOUNT, "king_wealth": AMOUNT}
DUEL: Json = {
    "pairs": COUNT,
    "path": listed(closed(_PAIR | _STEP)),
    "winner": _SIDE,
    "by": {"enum": ["certainty", "wealth", None]},
    "waits_for": or_null(closed(_PAIR)),
}

TASK_HEALTH: Json = closed(
    {
        "task": KEY,
        **dict.fromkeys(("participants", "passed", "failed", "errors", "repeated", "pairs", "differing"), COUNT),
        **dict.fromkeys(("passers", "failers"), COUNT),
        **dict.fromkeys(("rest_passers", "rest_failers"), or_null(RATIO)),
        "words": listed({"enum": ["dead", "flaky", "never-separating", "negative"]}),
    }
)


LEAST: Json = closed({"flips": or_null(COUNT), "missing": or_null(COUNT), "stake": or_null(AMOUNT)})
