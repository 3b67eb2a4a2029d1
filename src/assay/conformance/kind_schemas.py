"""The shape of each kind's case: what goes in, what comes out. SPEC 6."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic.json_schema import models_json_schema

from assay.conformance.kinds import KINDS
from assay.conformance.schema_parts import (
    AMOUNT,
    BPS,
    COUNT,
    DIGEST,
    EPOCH,
    FLAG,
    FRACTION,
    KEY,
    SHARE,
    TEXT,
    U16,
    Json,
    closed,
    listed,
    or_null,
    plain,
)

__all__ = ["as_written", "kinds"]

HEX: Json = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
RATIO: Json = {"type": "string", "pattern": "^[0-9]+/[1-9][0-9]*$", "description": "in lowest terms"}
SIZE: Json = {"type": "string", "pattern": "^(0|[1-9][0-9]{0,18})$"}
SAID: Json = {"competition": KEY, "epoch": EPOCH, "settlement": DIGEST}


def kinds() -> Json:
    """A line of the protocol with its answer: `kind` and `input`, and the `output` where it is not refused."""
    asked = [(found.model, "validation") for found in KINDS.values() if found.model is not None]
    places, document = models_json_schema(asked, ref_template="#/$defs/{model}")  # type: ignore[arg-type]
    cases = []
    for name, found in KINDS.items():
        given = {"$ref": "case.schema.json"} if found.model is None else places[found.model, "validation"]
        fields = {"kind": {"const": name}, "input": given, "output": OUTPUTS[name]}
        cases.append(closed(fields, optional=("output",)) | {"description": found.about})
    shapes = plain(document["$defs"])
    as_written(shapes)
    return {"oneOf": cases, "$defs": shapes}


def as_written(shapes: Json) -> None:
    """Make of the shapes of a scheme's parts what a scheme may say: their models know less of it."""
    del shapes["Outliers"]["properties"]["threshold"]["default"]  # it depends on the method
    check = shapes["Check"]
    check["properties"]["unskippable"] = {"type": "boolean"}
    check["not"] = {"required": ["skippable", "unskippable"]}


def _at_least(fields: Mapping[str, Json]) -> Json:
    """An object with these fields, and perhaps others."""
    return {"type": "object", "properties": dict(fields), "required": list(fields)}


def _parts(of: Json, *names: str) -> Json:
    return dict.fromkeys(names, of)


_VOTE = closed({"validator": KEY, **_parts(FLAG, "flagged", "excluded"), **_parts(or_null(FRACTION), "modified_z", "z_squared")})
_CONSENSUS = closed(
    {
        **_parts(TEXT, "status"),
        "reason": or_null(TEXT),
        "score": or_null(SHARE),
        "bps": or_null(BPS),
        "stake": AMOUNT,
        **_parts(or_null(SHARE), "median", "mad", "mean"),
        "flagged_majority": FLAG,
        "validators": listed(_VOTE),
    }
)
_RUBRIC = closed({"base": BPS, "missed_skippable": BPS, "verdict": or_null(TEXT), "gate": FLAG, "capped": FLAG, "bps": BPS})
_ROW = closed({**_parts(SHARE, "strategy", "capped", "share"), **_parts(U16, "u16", "chain_u16")})
_BURN = closed({**_parts(SHARE, "share", "strategy", "cap", "decay", "unregistered"), **_parts(U16, "u16", "chain_u16")})
_PLACE = closed({"place": {"type": "integer", "minimum": 1}, **_parts(AMOUNT, "gross", "fee", "net")})
_TREE = closed({"root": HEX, "inclusion": listed(HEX), "consistency": listed(HEX)}, optional=("inclusion", "consistency"))
_RESULTS = _at_least({"root": DIGEST, "count": COUNT})

OUTPUTS: Mapping[str, Json] = {
    "decimal": closed({"text": TEXT, "count": AMOUNT}),
    "instant": closed({"utc": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(\\.[0-9]{6})?Z$"}}),
    "canonical": closed({"text": TEXT, "digest": DIGEST}),
    "apportion": closed({"amounts": listed(AMOUNT)}),
    "scheme": closed({"document": {"$ref": "scheme.schema.json"}, "digest": DIGEST}),
    "record": closed({"document": {"$ref": "record.schema.json"}, "digest": DIGEST}),
    "task-set": closed({"ids": listed(KEY), "digest": DIGEST}),
    "tests": closed({"score": SHARE}),
    "workflow": closed(_parts(SHARE, "success", "cost", "latency", "reliability", "score")),
    "rubric": {"oneOf": [_RUBRIC, closed({"malformed": {"const": True}})]},
    "rubric-answer": closed({"text": TEXT}),
    "points": closed({"valid": COUNT, "points": FRACTION, "score": SHARE}),
    "assign": closed({"validators": listed(KEY)}),
    "consensus": _CONSENSUS,
    "strategy": closed({"shares": listed(RATIO), "burn": RATIO}),
    "cap": closed({"shares": listed(RATIO), "burn": RATIO, "unallocated": RATIO}),
    "decay": closed({"stale": COUNT, "burned": SHARE, "kept": SHARE}),
    "clock": {"$ref": "settlement.schema.json#/properties/clock"},
    "encoding": closed({**_parts(listed(U16), "u16", "chain_u16"), **_parts(U16, "burn_u16", "burn_chain_u16")}),
    "weights": closed({"weights": listed(_ROW), "burn": _BURN, "unallocated": SHARE}),
    "payout": closed({"tier_bps": BPS, "places": listed(_PLACE), **_parts(AMOUNT, "released", "fees", "refund")}),
    "settle": {"$ref": "settlement.schema.json"},
    "emission": {"$ref": "emission.schema.json"},
    "merkle-tree": _TREE,
    "inclusion": closed({"included": {"const": True}}),
    "consistency": closed({"consistent": {"const": True}}),
    "checkpoint": closed({"origin": TEXT, "size": SIZE, "root": HEX}),
    "log-proof": closed({"origin": TEXT, "index": SIZE, "size": SIZE}),
    "dsse": closed({"payload": {"type": "string", "pattern": "^([0-9a-f]{2})*$"}, "signed_by": listed(TEXT)}),
    "tile-path": closed({"path": TEXT}),
    "tiled-log": closed({"size": SIZE, "root": HEX, "last": or_null(TEXT)}),
    "batch": _at_least({"digest": DIGEST, "statement": {"type": "object"}}),
    "evidence-root": closed({"root": DIGEST, "count": COUNT}),
    "inputs": closed({"document": {"$ref": "inputs.schema.json"}, "digest": DIGEST}),
    "results-root": _RESULTS,
    "receipt": _at_least({**SAID, "digest": DIGEST, "index": SIZE, "size": SIZE}),
    "emission-receipt": _at_least({"epoch": EPOCH, "digest": DIGEST, "index": SIZE, "size": SIZE}),
    "proof": _at_least({**SAID, "participant": KEY, "records": COUNT}),
    "verify": _at_least({**SAID, **_parts(COUNT, "receipts", "records", "batches")}),
}
"""Kind → the shape of its output; those of the ledger may have more fields."""
