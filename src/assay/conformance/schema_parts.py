"""What the published schemas are made of: values, how models become schemas, what the ledger signs, each kind's case. SPEC 6.

The values come first: a key, a share, an amount. Then the ledger's documents (inputs, batch statements, receipts, proofs of a
participant's own), then what goes in and comes out of each kind of case.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic.json_schema import models_json_schema

from assay.characters import PATTERN
from assay.conformance.kinds import KINDS
from assay.exact import LARGEST, text
from assay.folder import registry
from assay.ledger import check, statements
from assay.ledger.batch import PREDICATE
from assay.ledger.statements import PARTICIPANT_PROOF
from assay.records import Pulled, Registered

__all__ = [
    "AMOUNT",
    "BPS",
    "COUNT",
    "DIGEST",
    "EPOCH",
    "FLAG",
    "FRACTION",
    "JUDGE_KINDS",
    "KEY",
    "SHARE",
    "TEXT",
    "U16",
    "Json",
    "as_written",
    "batch",
    "closed",
    "inputs",
    "kinds",
    "listed",
    "or_null",
    "plain",
    "proof",
    "pulled",
    "receipt",
    "signed_split",
]


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


HEX: Json = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
BASE64: Json = {"type": "string", "pattern": "^[A-Za-z0-9+/_-]*={0,2}$", "contentEncoding": "base64"}
ROOT: Json = closed({"root": DIGEST, "count": COUNT})


def inputs() -> Json:
    """The document that a receipt names by its digest: what is empty is left out of a row."""
    tables = {name: listed(plain(model.model_json_schema())) for name, model in registry.ROWS.items()}
    fields = {"scheme": {"$ref": "scheme.schema.json"}, **tables, "tasks": listed(TEXT), "registry": pulled()}
    return closed(fields, optional=("registry",))


def pulled(more: Json | None = None) -> Json:
    """Of which block of a chain the registry is; `more` fields stand before it in the file."""
    fields: Json = plain(Pulled.model_json_schema())["properties"]
    return closed((more or {}) | fields)


def registered() -> Json:
    """All uids of that block."""
    return {"type": "array", "items": closed(plain(Registered.model_json_schema(mode="serialization"))["properties"])}


def batch() -> Json:
    """The in-toto statement about a batch of evidence."""
    predicate = {
        "origin": or_null(KEY),
        "competition": KEY,
        "epoch": EPOCH,
        "kind": {"enum": list(JUDGE_KINDS)},
        "validator": KEY,
        "task_set": or_null(DIGEST),
        "count": COUNT,
        "root": DIGEST,
    }
    return _statement(PREDICATE, predicate, {})


def receipt() -> Json:
    """The file: the envelope, and the proof that its statement is in the log."""
    predicate = {
        "competition": KEY,
        "epoch": EPOCH,
        "scheme": DIGEST,
        "task_set": or_null(DIGEST),
        "inputs": DIGEST,
        "evidence": ROOT,
        "previous": or_null(closed({"epoch": EPOCH, "receipt": DIGEST})),
        "results": ROOT,
        "settlement": DIGEST,
        "software": closed({"name": KEY, "version": KEY}),
        "registry": pulled(),
    }
    return _in_log(check.FORMAT, check.PREDICATE, predicate)


def signed_split() -> Json:
    """The file: the envelope, and the proof that its statement is in the subnet's log."""
    whole = {"$ref": "emission.schema.json"}
    rows = {"receipts": {"minItems": 1}, "competitions": {"minItems": 1}}
    predicate = {
        "subnet": KEY,
        "epoch": EPOCH,
        "rules": closed(
            {
                "encoding": {"enum": ["round", "exact-sum", "max-upscale"]},
                "burn_uid": U16,
                "emission": or_null(AMOUNT),
                "unearned": {"enum": ["burn", "others"]},
            }
        ),
        "split": {"allOf": [whole, {"required": ["receipts"], "properties": rows}]},
        "previous": or_null(closed({"epoch": EPOCH, "receipt": DIGEST})),
        "software": closed({"name": KEY, "version": KEY}),
    }
    return _in_log(statements.SPLIT_FORMAT, statements.SPLIT_PREDICATE, predicate)


def _in_log(schema: str, kind: str, predicate: Json) -> Json:
    """A file with a signed statement and the proof that it is in a log."""
    payload = {**BASE64, "contentMediaType": "application/json", "contentSchema": {"$ref": "#/$defs/statement"}}
    signature = _open({"keyid": TEXT, "sig": BASE64})
    signatures = listed(signature) | {"minItems": 1, "maxItems": check.SIGNATURES}
    envelope = _open({"payloadType": {"const": check.IN_TOTO}, "payload": payload, "signatures": signatures})
    text = {"type": "string", "pattern": f"^{re.escape(check.PROOF)}\n"}
    found = closed({"schema": {"const": schema}, "envelope": envelope, "proof": text})
    return found | {"$defs": {"statement": _statement(kind, predicate, {"minItems": 1, "maxItems": 1})}}


def proof() -> Json:
    """A receipt, the result of one participant, the records that it rests on, and their receipts."""
    rows = {name: {"$ref": f"settlement.schema.json#/properties/{name}/items"} for name in ("agreed", "weights", "payouts")}
    place = closed({"index": COUNT, "size": COUNT, "hashes": listed(HEX) | {"maxItems": check.HASHES}})
    result = {
        "participant": KEY,
        "rank": or_null({"type": "integer", "minimum": 1}),
        "agreed": rows["agreed"],
        "weight": or_null(rows["weights"]),
        "payouts": listed(rows["payouts"]),
        "records": ROOT,
    }
    record = {"epoch": EPOCH, "seq": COUNT, "record": {"$ref": "record.schema.json"}, "proof": place}
    return closed(
        {
            "schema": {"const": PARTICIPANT_PROOF},
            "receipt": {"$ref": "receipt.schema.json"},
            "result": closed(result),
            "result_proof": place,
            "records": listed(closed(record)),
            "receipts": listed({"$ref": "receipt.schema.json"}),
        }
    )


def _open(fields: Json) -> Json:
    """An object of DSSE: a reader ignores the fields that it does not know, which nobody has signed."""
    return closed(fields) | {"additionalProperties": True}


def _statement(kind: str, predicate: Json, subjects: Json) -> Json:
    subject = closed({"name": TEXT, "digest": closed({"sha256": HEX})})
    return closed(
        {
            "_type": {"const": check.STATEMENT},
            "subject": listed(subject) | subjects,
            "predicateType": {"const": kind},
            "predicate": closed(predicate, optional=("registry",)),
        }
    )


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
    "emission-receipt": closed(
        {
            **_parts(KEY, "subnet"),
            "epoch": EPOCH,
            **_parts(DIGEST, "split", "digest"),
            "receipts": {"$ref": "emission.schema.json#/properties/receipts"},
            **_parts(SIZE, "index", "size"),
        }
    ),
    "proof": _at_least({**SAID, "participant": KEY, "records": COUNT}),
    "verify": _at_least({**SAID, **_parts(COUNT, "receipts", "records", "batches")}),
}
"""Kind → the shape of its output; those of the ledger may have more fields."""
