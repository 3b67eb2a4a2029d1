"""The published JSON schemas (draft 2020-12): of what is settled, of what the ledger signs, of cases. SPEC 6.

The settlement's is made of its columns (`assay.settle.document`), the emission's is written out here: both are closed, so that a
field too many is seen. Scheme, record and subnet are what the
models say that read them. A schema says what a document looks like; what only comparing its parts can tell (weights that
sum to 10 000, keys that are unique) is for the reader of the document, so a document may fit its schema and be refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import TypeAdapter

from assay.conformance import schema_parts as parts
from assay.conformance.cases import SCHEMA
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
    as_written,
    batch,
    closed,
    inputs,
    kinds,
    listed,
    or_null,
    plain,
    proof,
    pulled,
    receipt,
    registered,
    signed_split,
)
from assay.folder import registry
from assay.folder.registry import PULLED_SCHEMA as REGISTRY
from assay.kind import find, names
from assay.records import Evidence
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
            pulled({"schema": {"const": REGISTRY}, "neurons": registered()}),
        ),
        "inputs": ("What a settlement follows from beside evidence and previous settlement: inputs.json of a bundle.", inputs()),
        "batch": ("What a validator signs of a batch: the payload of its envelope, assay:evidence/v2.", batch()),
        "receipt": ("A receipt, assay.receipt/1, and in `$defs` the statement in it, assay:receipt/v2.", receipt()),
        "emission-receipt": (
            "A signed split, assay.emission-receipt/1, and in `$defs` the statement in it, assay:emission/v1.",
            signed_split(),
        ),
        "proof": ("A participant's own proof, assay.proof/2.", proof()),
        "kinds": ("The shape of each kind's case: kind, input and output.", kinds()),
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
    """What a column of the settlement looks like."""
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
    """What each kind says of its own work in a vote."""
    return [find(name).work_schema() for name in parts.JUDGE_KINDS]


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
    as_written(schema["$defs"])
    return schema


def with_kinds_here(schema: Json) -> Json:
    """The schema of schemes with the kinds that other packages have here, beside those that are published."""
    for name in sorted({*names()} - {*parts.JUDGE_KINDS}):
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
            "registry": or_null(pulled()),
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
