"""The published JSON schemas (draft 2020-12): of settlements, of what the ledger signs, of cases. SPEC 6.

The settlement's schema follows from its fields (`assay.settle.document`), those of scheme, record and subnet file from the models
that read them; the others are written out here. All are closed, so a field too many is refused. A schema describes a form: what
needs a comparison of parts (weights that sum to 10 000, unique keys) only a reader can check.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import models_json_schema

from assay.conformance.cases import SCHEMA
from assay.conformance.kinds import KINDS
from assay.conformance.schema_parts import (
    AMOUNT,
    AUDIT,
    BPS,
    COUNT,
    DIGEST,
    DUEL,
    EPOCH,
    FLAG,
    FRACTION,
    JUDGE_KINDS,
    KEY,
    LEAST,
    RATIO,
    SAID,
    SHARE,
    SIZE,
    TASK_HEALTH,
    TEXT,
    U16,
    VERDICT,
    Json,
    closed,
    listed,
    or_null,
    plain,
)
from assay.folder import registry
from assay.folder.registry import PULLED_SCHEMA as REGISTRY
from assay.kind import find, names
from assay.ledger import check, statements
from assay.ledger.batch import PREDICATE
from assay.ledger.statements import PARTICIPANT_PROOF
from assay.records import Evidence, Pulled, Registered
from assay.scheme.fields import Section
from assay.scheme.model import Scheme
from assay.scheme.subnet import SubnetFile
from assay.settle.document import SCHEMA as SETTLED
from assay.settle.document import SETTLEMENT
from assay.tables import Field, Holds

__all__ = ["schemas", "with_kinds_here"]

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schemas() -> Mapping[str, Json]:
    """File name → schema."""
    bodies = {
        "settlement": ("A settlement, assay.settlement/1.", _settlement()),
        "emission": ("An emission split, assay.emission/1.", _emission()),
        "scheme": ("A scheme: scheme.toml as JSON.", _scheme()),
        "record": ("A record of evidence: one line of a file in evidence/.", _record()),
        "subnet": ("A subnet file as JSON.", plain(SubnetFile.model_json_schema())),
        "case": ("A competition at one epoch: the input of a case of kind settle.", _case()),
        "registry": (
            f"Of which block of a chain a registry is: registry.json, {REGISTRY}.",
            _pulled({"schema": {"const": REGISTRY}, "neurons": _registered()}),
        ),
        "inputs": ("What a settlement follows from beside evidence and previous settlement: inputs.json of a bundle.", _inputs()),
        "batch": ("What a validator signs of a batch: the payload of its envelope, assay:evidence/v2.", _batch()),
        "receipt": ("A receipt, assay.receipt/1, and in `$defs` the statement in it, assay:receipt/v2.", _receipt()),
        "receipt-predicate": ("The predicate of a receipt, of type assay:receipt/v2, in an in-toto statement.", _predicate()),
        "emission-receipt": (
            "A signed split, assay.emission-receipt/1, and in `$defs` the statement in it, assay:emission/v1.",
            _signed_split(),
        ),
        "proof": ("A participant's own proof, assay.proof/2.", _proof()),
        "kinds": ("The shape of each kind's case: kind, input and output.", _kinds()),
        "cases": (f"A file of cases, {SCHEMA}.", _cases()),
    }
    return {f"{name}.schema.json": {"$schema": DRAFT, "title": title} | body for name, (title, body) in bodies.items()}


_HOLDS: Mapping[Holds, Json] = {
    Holds.KEY: KEY,
    Holds.TEXT: TEXT,
    Holds.SUBMISSION: TEXT,
    Holds.SCORE: SHARE,
    Holds.SHARE: SHARE,
    Holds.FRACTION: FRACTION,
    Holds.STAKE: AMOUNT,
    Holds.AMOUNT: AMOUNT,
    Holds.BPS: BPS,
    Holds.COUNT: COUNT,
    Holds.PLACE: {"type": "integer", "minimum": 1},
    Holds.U16: U16,
    Holds.EPOCH: EPOCH,
    Holds.FLAG: FLAG,
    Holds.DIGEST: DIGEST,
    Holds.KEYS: listed(KEY),
}


def _settlement() -> Json:
    body = {column.name: _column(column) for column in SETTLEMENT}
    clock = body.pop("clock")  # the published schema has it behind the rest, and its bytes do not change
    return closed({"schema": {"const": SETTLED}, **body, "clock": clock, "digest": DIGEST})


def _column(column: Field) -> Json:
    """The schema of a column of the settlement."""
    match column.holds:
        case Holds.WORD:
            schema: Json = {"enum": list(column.words)}
        case Holds.WORK:
            schema = {"oneOf": _work()}
        case Holds.OBJECT:
            schema = _object(column.columns)
        case Holds.ROWS:
            schema = listed(_object(column.columns))
        case holds:
            schema = _HOLDS[holds]
    return or_null(schema) if column.null else schema


def _object(columns: Iterable[Field]) -> Json:
    optional = tuple(column.name for column in columns if column.optional)
    last = sorted(columns, key=lambda column: column.name == "unregistered")  # as it was published: behind the burn's warm-up
    return closed({column.name: _column(column) for column in last}, optional)


def _work() -> list[Json]:
    """The schema of each kind's own work in a vote."""
    return [find(name).work_schema() for name in JUDGE_KINDS]


def _emission() -> Json:
    row = {"uid": or_null(U16), "share": SHARE, "u16": U16, "chain_u16": U16}
    part = {"name": KEY, "share": SHARE, "emission": or_null(AMOUNT), "settlement": DIGEST, "received": SHARE}
    return closed(
        {
            "schema": {"const": "assay.emission/1"},
            "epoch": EPOCH,
            "competitions": listed(closed(part, optional=("received",))),
            "weights": listed(closed({"participant": KEY, **row})),
            "burn": closed({**row, "uid": U16}),
            "receipts": listed(closed({"competition": KEY, "epoch": EPOCH, "digest": DIGEST, "log": TEXT})),
            "digest": DIGEST,
        },
        optional=("receipts",),
    )


def _scheme() -> Json:
    schema: Json = plain(Scheme.model_json_schema())
    _as_written(schema["$defs"])
    return schema


def with_kinds_here(schema: Json) -> Json:
    """The schema of schemes with the kinds that other packages have here, beside those that are published."""
    for name in sorted({*names()} - {*JUDGE_KINDS}):
        rules: Json = plain(find(name).rules.model_json_schema(ref_template="#/$defs/{model}"))
        schema["$defs"] |= rules.pop("$defs", {})
        schema["properties"]["score"]["oneOf"].append(rules)
    return schema


def _record() -> Json:
    schema: Json = plain(TypeAdapter[Any](Evidence).json_schema())
    ran = ["quality", "steps_completed", "steps_total", "cost", "budget", "seconds", "max_seconds"]
    other = {"properties": {"outcome": {"enum": ["invalid", "service-error"]}}, "required": ["outcome"]}
    schema["$defs"]["Workflow"] |= {"if": other, "else": {"required": ran}}
    return schema


def _case() -> Json:
    tables = {name: listed(_row(model)) for name, model in registry.ROWS.items()}
    return closed(
        {
            "scheme": {"$ref": "scheme.schema.json"},
            "epoch": or_null(EPOCH),
            "participants": tables["participants"] | {"minItems": 1},
            "validators": tables["validators"] | {"minItems": 1},
            "tasks": or_null(listed(TEXT)),
            "history": or_null(tables["history"]),
            "randomness": or_null(tables["randomness"]),
            "evidence": or_null(listed({"$ref": "record.schema.json"})),
            "previous": or_null({"$ref": "settlement.schema.json"}),
            "registry": or_null(_pulled()),
        },
        optional=("epoch", "tasks", "history", "randomness", "evidence", "previous", "registry"),
    )


def _row(model: type[Section]) -> Json:
    """A row of a table; what may be left out may be null as well, as an empty cell is."""
    schema: Json = plain(model.model_json_schema())
    for name, field in schema["properties"].items():
        if name not in schema["required"] and {"type": "null"} not in field.get("anyOf", ()):
            schema["properties"][name] = or_null(field)
    return schema


def _cases() -> Json:
    name: Json = {"type": "string", "minLength": 1, "maxLength": 200}
    answered = closed({"name": name, "input": {}, "output": {}, "inner": {}}, optional=("inner",))
    refusal: Json = {"name": name, "input": {}, "refused": {"const": True}, "code": TEXT, "why": TEXT}
    refused = closed(refusal, optional=("code", "why"))
    fields: Json = {"schema": {"const": SCHEMA}, "kind": {"enum": list(KINDS)}, "about": TEXT}
    return closed(fields | {"cases": listed({"oneOf": [answered, refused]}) | {"minItems": 1}})


HEX: Json = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
BASE64: Json = {"type": "string", "pattern": "^[A-Za-z0-9+/_-]*={0,2}$", "contentEncoding": "base64"}
ROOT: Json = closed({"root": DIGEST, "count": COUNT})


def _inputs() -> Json:
    """The document that a receipt names by its digest: what is empty is left out of a row."""
    tables = {name: listed(plain(model.model_json_schema())) for name, model in registry.ROWS.items()}
    fields = {"scheme": {"$ref": "scheme.schema.json"}, **tables, "tasks": listed(TEXT), "registry": _pulled()}
    return closed(fields, optional=("registry",))


def _pulled(more: Json | None = None) -> Json:
    """The block of a chain that the registry is of; `more` fields stand before it in the file."""
    fields: Json = plain(Pulled.model_json_schema())["properties"]
    return closed((more or {}) | fields)


def _registered() -> Json:
    """All uids of that block."""
    return {"type": "array", "items": closed(plain(Registered.model_json_schema(mode="serialization"))["properties"])}


def _batch() -> Json:
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


def _receipt() -> Json:
    """The file: the envelope, and the proof that its statement is in the log."""
    return _in_log(check.FORMAT, check.PREDICATE, _receipt_predicate())


def _predicate() -> Json:
    """The predicate of a receipt alone, for programs that know in-toto; its identifier is the predicate's type."""
    return {"$id": check.PREDICATE} | closed(_receipt_predicate(), optional=("registry",))


def _receipt_predicate() -> Json:
    return {
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
        "registry": _pulled(),
    }


def _signed_split() -> Json:
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
    proof_schema = closed({"schema": {"const": schema}, "envelope": envelope, "proof": text})
    return proof_schema | {"$defs": {"statement": _statement(kind, predicate, {"minItems": 1, "maxItems": 1})}}


def _proof() -> Json:
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


def _kinds() -> Json:
    """A line of the protocol with its answer: `kind` and `input`, and the `output` where it is not refused."""
    asked = [(kind.model, "validation") for kind in KINDS.values() if kind.model is not None]
    places, document = models_json_schema(asked, ref_template="#/$defs/{model}")  # type: ignore[arg-type]
    cases = []
    for name, case_kind in KINDS.items():
        given = {"$ref": "case.schema.json"} if case_kind.model is None else places[case_kind.model, "validation"]
        fields = {"kind": {"const": name}, "input": given, "output": OUTPUTS[name]}
        cases.append(closed(fields, optional=("output",)) | {"description": case_kind.about})
    shapes = plain(document["$defs"])
    _as_written(shapes)
    return {"oneOf": cases, "$defs": shapes}


def _as_written(shapes: Json) -> None:
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
_ANSWERS: Json = or_null({"type": "object", "additionalProperties": FLAG})
_PANEL = closed(
    {
        "why": {"enum": [None, "unjudged", "panel-split"]},
        "undecided": listed(KEY),
        **_parts(_ANSWERS, "baseline", "checks"),
        "verdict": or_null(TEXT),
        **_parts(listed(closed({"name": KEY, "flips": COUNT, "votes": COUNT})), "questions", "judges"),
    }
)
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
    "panel": _PANEL,
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
    "duel": closed(DUEL),
    "margin": closed({"verdicts": closed(dict.fromkeys(("winner", "order", "tier"), LEAST), optional=("tier",))}),
    "audit": closed(AUDIT),
    "task-health": closed({"tasks": listed(TASK_HEALTH)}),
    "merkle-tree": _TREE,
    "inclusion": closed({"included": {"const": True}}),
    "consistency": closed({"consistent": {"const": True}}),
    "checkpoint": closed({"origin": TEXT, "size": SIZE, "root": HEX}),
    "witnessed": closed(
        {"origin": TEXT, "size": SIZE, "root": HEX, "witnesses": {"type": "object", "additionalProperties": SIZE}}
    ),
    "fork": closed({"origin": TEXT, "first": SIZE, "second": SIZE}),
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
    "audit-receipt": closed(
        {
            **{name: value for name, value in SAID.items() if name != "settlement"},
            "verdict": VERDICT,
            **_parts(COUNT, "judged", "counted"),
            "validators": listed(closed({"validator": KEY, **_parts(COUNT, "judged", "wrong")})),
            "digest": DIGEST,
            **_parts(SIZE, "index", "size"),
        }
    ),
}
"""Kind → the shape of its output; those of the ledger may have more fields."""
