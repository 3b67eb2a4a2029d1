"""The schemas of what the ledger signs and hands out: inputs, batch statements, receipts, participants' own proofs. SPEC 6."""

from __future__ import annotations

import re

from assay.conformance.schema_parts import AMOUNT, COUNT, DIGEST, EPOCH, KEY, TEXT, U16, Json, closed, listed, or_null, plain
from assay.folder import registry
from assay.ledger import check, split
from assay.ledger.batch import PREDICATE
from assay.ledger.receipt import PROOF
from assay.records import KINDS, Pulled, Registered

__all__ = ["batch", "inputs", "proof", "pulled", "receipt", "signed_split"]

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
        "kind": {"enum": list(KINDS)},
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
    return _in_log(split.FORMAT, split.PREDICATE, predicate)


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
            "schema": {"const": PROOF},
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
