"""The published JSON schemas (draft 2020-12): of what is settled, of what the ledger signs, of cases. SPEC 6.

Settlement and emission are written out here: closed, so that a field too many is seen. Scheme, record and subnet are what the
models say that read them. A schema says what a document looks like; what only comparing its parts can tell (weights that
sum to 10 000, keys that are unique) is for the reader of the document, so a document may fit its schema and be refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from assay.conformance.cases import SCHEMA
from assay.conformance.kind_schemas import as_written, kinds
from assay.conformance.kinds import KINDS
from assay.conformance.ledger_schemas import batch, inputs, proof, pulled, receipt, registered, signed_split
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
from assay.folder import registry
from assay.folder.pulled import SCHEMA as REGISTRY
from assay.records import Evidence
from assay.scheme.fields import Section
from assay.scheme.model import Scheme
from assay.scheme.subnet import Subnet
from assay.settle.consensus import Reason, Status

__all__ = ["schemas"]

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schemas() -> Mapping[str, Json]:
    """File name → schema."""
    bodies = {
        "settlement": ("A settlement, assay.settlement/1.", _settlement()),
        "emission": ("An emission split, assay.emission/1.", _emission()),
        "scheme": ("A scheme: scheme.toml as JSON.", _scheme()),
        "record": ("A record of evidence: one line of a file in evidence/.", _record()),
        "subnet": ("A subnet file as JSON.", plain(Subnet.model_json_schema())),
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


def _settlement() -> Json:
    return closed(
        {
            "schema": {"const": "assay.settlement/1"},
            "scheme": closed({"name": KEY, "version": KEY, "digest": DIGEST}),
            "epoch": EPOCH,
            "task_set": or_null(DIGEST),
            "total_stake": AMOUNT,
            "agreed": listed(_agreed()),
            "ranking": listed(KEY),
            "weights": listed(_weight()),
            "burn": or_null(_burn()),
            "unallocated": SHARE,
            "released": or_null(AMOUNT),
            "tier_bps": or_null(BPS),
            "payouts": listed(_payout()),
            "fees": or_null(AMOUNT),
            "refund": or_null(AMOUNT),
            "clock": _clock(),
            "digest": DIGEST,
        }
    )


def _agreed() -> Json:
    return closed(
        {
            "participant": KEY,
            "submission": TEXT,
            "score": or_null(SHARE),
            "bps": or_null(BPS),
            "status": {"enum": [status.code for status in Status]},
            "reason": {"enum": [reason.code for reason in Reason]},
            "duplicate_of": or_null(KEY),
            "stake": AMOUNT,
            "needed_stake_of": AMOUNT,
            "median": or_null(SHARE),
            "mad": or_null(SHARE),
            "mean": or_null(SHARE),
            "flagged_majority": FLAG,
            "validators": listed(_vote()),
            "not_counted": listed(_not_counted()),
        }
    )


def _vote() -> Json:
    work = [
        closed({"passed": COUNT, "trials": COUNT}),
        closed({"tasks": COUNT}),
        closed(
            {"base": BPS, "missed_skippable": BPS, "verdict": or_null(TEXT), "gate": FLAG, "capped": FLAG, "bps": BPS},
        ),
        closed({"valid": COUNT, "invalid": COUNT, "starred": COUNT, "points": FRACTION}),
        closed({"epoch": EPOCH}),
    ]
    fields = {"validator": KEY, "score": SHARE, "stake": AMOUNT, "flagged": FLAG, "excluded": FLAG}
    return closed(fields | {"modified_z": or_null(FRACTION), "z_squared": or_null(FRACTION), "work": {"oneOf": work}})


def _not_counted() -> Json:
    reasons = ["not-assigned", "no-stake", "stake-below-minimum", "injection-suspected", "unjudged"]
    reasons += ["incomplete", "no-tasks"]
    return closed({"validator": KEY, "reason": {"enum": reasons}, "missing": COUNT})


def _weight() -> Json:
    return closed(
        {
            "participant": KEY,
            "uid": or_null(U16),
            "score": SHARE,
            "strategy": SHARE,
            "capped": SHARE,
            "last": or_null(EPOCH),
            "stale": COUNT,
            "kept": SHARE,
            "share": SHARE,
            "u16": U16,
            "chain_u16": U16,
            "tasks_seen": COUNT,
            "warm": SHARE,
        },
        optional=("tasks_seen", "warm"),
    )


def _burn() -> Json:
    burnt = dict.fromkeys(("strategy", "cap", "decay", "warm_up", "unregistered"), SHARE)
    return closed({"uid": U16, "share": SHARE, "u16": U16, "chain_u16": U16, **burnt}, optional=("warm_up",))


def _payout() -> Json:
    money = dict.fromkeys(("gross", "fee", "net"), AMOUNT)
    place = {"type": "integer", "minimum": 1}
    return closed({"participant": KEY, "address": or_null(TEXT), "place": place, **money})


def _clock() -> Json:
    own = closed({"participant": KEY, "submission": TEXT, "best": SHARE, "last": EPOCH})
    marks = {"record": or_null(SHARE), "last": or_null(EPOCH), "submission": or_null(TEXT)}
    return closed({**marks, "participants": listed(own)})


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
