"""Run the stages that compute: the inputs and the settlement of a bundle, and the result in a participant's own proof. SPEC 2-6.

A result binds count and root of its records, so a proof that leaves one out is refused. A proof of version 1, for a receipt of
version 1, does not show whether its records are complete; the report says so.
"""

from __future__ import annotations

import heapq
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from operator import itemgetter
from pathlib import Path
from typing import Any

from assay.errors import MISSING, AssayError, BadInput, Refused
from assay.exact import canonical, digest
from assay.folder import strict
from assay.folder.files import decode
from assay.kind import GROUP, JUDGES, known, origin, plugins
from assay.ledger import batch, binding, bundle, check, eligible, evidence, statements
from assay.ledger.check import LogKey, Receipt
from assay.ledger.eligible import BatchTaskSet
from assay.ledger.evidence import BoundRecords
from assay.ledger.statements import FIRST_RECEIPT, PARTICIPANT_PROOF
from assay.ledger.verify import claims
from assay.ledger.verify.claims import ReceiptChain
from assay.ledger.verify.report import Material, Verified, gather_material, or_null, read_document, read_file, several, stage
from assay.records import Evidence, record
from assay.rules.decided import Until, decided
from assay.scheme.load import read as read_scheme
from assay.settle import Inputs, Settlement, pipeline

Json = dict[str, Any]


def same_scheme(file: Path, predicate: Json, into: Verified) -> None:
    """Stage `inputs`, for a given scheme file: it must be the one that the receipt names."""
    scheme = read_scheme(file).digest
    if scheme != predicate["scheme"]:
        raise Refused("inputs", "the scheme is not the receipt's", expected=predicate["scheme"], found=scheme, file=file)
    into.right("inputs", f"the scheme of {file} is the receipt's")


def check_kind(given: Material, predicate: Json) -> None:
    """Raise BadInput if the inputs are those of the receipt, but no package here has their kind.

    The receipt is not wrong then; this machine only cannot recompute its settlement. Any other fault of the inputs is left to the
    stage `inputs`.
    """
    assert given.root is not None
    path = given.root / bundle.INPUTS
    try:
        inputs = read_document(path)
        name = inputs["scheme"]["score"]["kind"]
    except (AssayError, LookupError, TypeError):
        return
    if isinstance(name, str) and not known(name) and digest(inputs) == predicate["inputs"]:
        what = f"the competition is of the kind {name[:80]!r}, which no package here has: its settlement cannot be computed again"
        hint = f"install the package whose entry point in {GROUP} is called so"
        raise BadInput(what, file=path, field="scheme.score.kind", hint=hint, stage=MISSING)


def _judge(settled: Inputs, into: Verified) -> None:
    """Report which judge made the evidence, if the scheme names one that replaces the kind's own."""
    if settled.scheme.judge is None:
        return
    name = settled.scheme.judge.use
    here = " and ".join(map(origin, plugins(JUDGES, name))) or "which is not installed here"
    ours = settled.scheme.kind.name
    into.not_looked_at("judge", f"the judge {name!r} ({here}) made the evidence, instead of the judge {ours!r}")


def settlement(
    given: Material, before: ReceiptChain, judged: Sequence[BatchTaskSet], records: BoundRecords, into: Verified
) -> Settlement:
    """Stages `inputs`, `settlement` and `results`: compute everything again, and compare it with the receipt.

    records: those of the evidence whose digests are known, in order of acceptance.
    """
    assert given.root is not None
    predicate = before.receipts[-1].predicate
    inputs = _inputs(given.root / bundle.INPUTS, predicate)
    without = eligible.left_out(judged, predicate["task_set"])
    paths = list(given.evidence.values())

    with (
        stage("inputs"),
        eligible.from_files(paths, lambda: itertools.chain.from_iterable(map(_records, paths)), without) as where,
    ):
        settled = eligible.settled_from(inputs, epoch=predicate["epoch"], evidence=where, previous=before.previous)
        for what, ours, theirs in (
            ("scheme", settled.scheme.digest, predicate["scheme"]),
            ("competition", settled.scheme.name, predicate["competition"]),
            ("task set", settled.task_set, predicate["task_set"]),
            ("registry", inputs.get("registry"), predicate.get("registry")),
        ):
            _same(ours, theirs, "inputs", f"the {what} is not the receipt's", given.root / bundle.INPUTS)
        if eligible.inputs_document(settled) != inputs:
            raise Refused("inputs", "it is not in the normalised form of inputs", file=given.root / bundle.INPUTS)
        people, judges = several(len(settled.participants), "participant"), several(len(settled.validators), "validator")
        into.right("inputs", f"{people}, {judges}, scheme {predicate['scheme']}{_block(predicate)}")
        _judge(settled, into)
    with stage("settlement"):
        again = pipeline.settle(settled)
        _compare(again.document, given.root / bundle.SETTLEMENT)
        _same(again.digest, predicate["settlement"], "settlement", "the receipt is of another settlement", given.path)
        into.right("settlement", f"computed again to the bit: {again.digest}")
    into.left_out = gone = frozenset(without.tolist())
    bound = None
    if before.receipts[-1].version > 1 and all(path.suffix == ".parquet" for path in paths):
        bound = binding.bind_parquet(paths, inputs, again.document, without, records)
    elif before.receipts[-1].version > 1:
        stored_records = (batch.StoredRecord(seq, sha256(body).digest(), body) for seq, body in in_order(paths))
        bound = eligible.bind_results(stored_records, inputs, again.document, gone)
    rows = statements.results(again.document, bound)
    root = f"sha256:{statements.results_tree(rows).root().hex()}"
    _same({"root": root, "count": len(rows)}, predicate["results"], "results", "the receipt is of other results", given.path)
    into.right("results", f"{several(len(rows), 'result')} under their root")
    return again


def records_about(bundle_: Path, report: Verified, participant: str) -> list[Evidence]:
    """The records that a participant's result rests on, with their seq, from a verified bundle."""
    return [about for name, about in records_behind(bundle_, report) if name == participant]


def records_behind(bundle_: Path, report: Verified) -> Iterator[tuple[str, Evidence]]:
    """(participant, record) of each record that a result rests on, with its seq, from a verified bundle."""
    assert report.settlement is not None
    paths = list(gather_material(bundle_, None).evidence.values())
    stored_records = (batch.StoredRecord(seq, sha256(body).digest(), body) for seq, body in in_order(paths))
    rows = eligible.records_behind_results(
        stored_records, read_document(bundle_ / bundle.INPUTS), report.settlement.document, report.left_out
    )
    for name, _, stored in rows:
        yield name, record(json.loads(stored.body) | {"seq": stored.seq})


def in_order(paths: Sequence[Path]) -> Iterator[tuple[int, bytes]]:
    """The records of all files in order of acceptance; each file is in this order, but epochs may overlap."""
    return heapq.merge(*map(_records, paths), key=itemgetter(0))


def _records(path: Path) -> Iterator[tuple[int, bytes]]:
    for part in evidence.evidence_parts(path):
        yield from zip(part.seqs, part.bodies, strict=True)


def _block(predicate: Json) -> str:
    """The block of a registry that was pulled from a chain; only the chain can show whether the registry is right."""
    registry = predicate.get("registry")
    return f"; registry of subnet {registry['netuid']} at block {registry['block']}, {registry['hash']}" if registry else ""


def _inputs(path: Path, predicate: Json) -> Json:
    with stage("inputs"):
        inputs = read_document(path)
        if not isinstance(inputs, dict):
            raise Refused("inputs", "it is not a JSON object", file=path)
        _same(digest(inputs), predicate["inputs"], "inputs", "the inputs are not those of the receipt", path)
        return inputs


def _same(computed: object, wanted: object, name: str, what: str, file: Path) -> None:
    if computed != wanted:
        raise Refused(name, what, expected=or_null(wanted), found=or_null(computed), file=file)


def _compare(ours: Json, path: Path) -> None:
    """Raise Refused if a settlement differs from the computed one; it names the first field, and its participant."""
    if (
        read_file(path) == batch.plain_json(ours).encode() + b"\n"
    ):  # byte for byte as exported; parsing a long document would take much longer
        return
    difference = differs(ours, read_document(path))
    if difference is not None:
        place, participant, wanted, given = difference
        what = f"{place or 'all of it'} differs"
        raise Refused("settlement", what, participant=participant, expected=or_null(wanted), found=or_null(given), file=path)


Difference = tuple[str, str, Any, Any]
"""Field, participant ("" if there is none), what was computed, what is there."""
NOTHING = "nothing"


def differs(ours: Any, theirs: Any, place: str = "", participant: str = "") -> Difference | None:
    """The first field in which two documents differ; None if none does. Rows about participants are compared by participant."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        participant = ours.get("participant", participant) if isinstance(ours.get("participant", ""), str) else participant
        for name in (*ours, *(name for name in theirs if name not in ours)):
            inner = f"{place}.{name}" if place else name
            if name not in ours or name not in theirs:
                return inner, participant, ours.get(name, NOTHING), theirs.get(name, NOTHING)
            difference = differs(ours[name], theirs[name], inner, participant)
            if difference is not None:
                return difference
        return None
    if isinstance(ours, list) and isinstance(theirs, list):
        return _rows_differ(ours, theirs, place, participant)
    if type(ours) is not type(theirs) or ours != theirs:
        return place, participant, ours, theirs
    return None


def _rows_differ(ours: list[Any], theirs: list[Any], place: str, participant: str) -> Difference | None:
    keys = _keys(ours), _keys(theirs)
    if keys[0] and keys[1] and keys[0] != keys[1]:
        both = dict(zip(keys[1], theirs, strict=True))
        for key, row in zip(keys[0], ours, strict=True):
            if key not in both:
                return place, key, "a row", NOTHING
            difference = differs(row, both[key], place, key)
            if difference is not None:
                return difference
    for at, (mine, other) in enumerate(zip(ours, theirs, strict=False)):
        difference = differs(mine, other, f"{place}[{at}]", participant)
        if difference is not None:
            return difference
    if len(ours) != len(theirs):
        return place, participant, f"{len(ours)} rows", f"{len(theirs)} rows"
    return None


def _keys(rows: list[Any]) -> list[str]:
    """The participant of each row; none unless every row has a different one."""
    keys = [row.get("participant") if isinstance(row, dict) else None for row in rows]
    names = [key for key in keys if isinstance(key, str)]
    return names if len(names) == len(rows) and len(set(names)) == len(rows) else []


JsonObject = Mapping[str, Any]
_PLACE = {"index": int, "size": int, "hashes": ["[0-9a-f]{64}"]}
_RECORDS = {"root": check.DIGEST, "count": int}
_SHAPE = {
    "schema": f"{PARTICIPANT_PROOF}|{FIRST_RECEIPT}",
    "receipt": object,
    "result": {
        "participant": check.WORD,
        "rank": (None, int),
        "agreed": object,
        "weight": object,
        "payouts": [object],
        "records?": _RECORDS,
    },
    "result_proof": _PLACE,
    "records": [{"epoch": int, "seq": int, "record": object, "proof": _PLACE}],
    "receipts": [object],
}


def is_participant_proof(data: bytes) -> bool:
    """Whether these bytes are a participant's proof, not a receipt."""
    return b"assay.proof/" in data[:4096] or b'"result_proof"' in data


def participant_proof(data: bytes, key: LogKey | None, path: Path, into: Verified) -> tuple[Receipt, LogKey, check.Checkpoint]:
    """Check a proof: the receipts in it, the result, and every record. Raises Refused."""
    with stage("receipt"):
        try:
            proof = strict.parse(decode(data, path))
        except BadInput as error:
            raise error.at(file=path) from None
        if bad := check.misfit(proof, _SHAPE):
            raise Refused("receipt", f"it is not a participant's proof: {bad} does not fit", file=path)
    receipt, known = claims.read_receipt(canonical(proof["receipt"]), key, path)
    now = claims.check_receipt_file(receipt, known, path, into, own=key is None)
    predicate, mine = receipt.predicate, proof["result"]
    for what, is_first in (("proof", proof["schema"] == FIRST_RECEIPT), ("result", "records" not in mine)):
        if is_first != (receipt.version == 1):
            raise Refused("receipt", f"the {what} is of another version than the receipt", expected=receipt.version, file=path)
    with stage("results"):
        leaf = check.leaf_hash(canonical(mine))
        _included(proof["result_proof"], predicate["results"], leaf, "results")
    rank = "no rank" if mine["rank"] is None else f"rank {mine['rank']}"
    into.right("results", f"the result of {mine['participant']} ({rank}) is one of {predicate['results']['count']}")
    bound = {predicate["epoch"]: predicate["evidence"]}
    with stage("chain"):
        for other in proof["receipts"]:
            earlier = _earlier(other, predicate, now, known, path)
            bound[earlier.predicate["epoch"]] = earlier.predicate["evidence"]
    if proof["receipts"]:
        into.right("chain", f"{several(len(proof['receipts']), 'earlier receipt')}, signed and in the log")
    with stage("evidence"):
        for row in proof["records"]:
            _record(row, bound, mine)
        if receipt.version > 1:
            _all_of_them(proof["records"], mine["records"])
    count, every = several(len(proof["records"]), "record"), "all " if receipt.version > 1 else ""
    into.right("evidence", f"{every}{count} that it rests on, each under the evidence root of a receipt")
    if receipt.version == 1:
        what = "whether these are all records: results in a receipt of version 1 do not bind their records"
        into.not_looked_at("evidence", what)
    into.not_looked_at(
        "settlement", "a participant's proof does not have the other participants; the bundle of the epoch has them"
    )
    return receipt, known, now


def _earlier(document: Any, here: JsonObject, now: check.Checkpoint, key: LogKey, path: Path) -> Receipt:
    """An earlier receipt, which must be proven in the same checkpoint: one of a forked log could have other records."""
    receipt, _ = claims.read_receipt(canonical(document), key, path, "chain")
    try:
        then = claims.check_receipt(receipt, key, path)
    except Refused as refused:
        raise Refused("chain", refused.what, expected=refused.expected, found=refused.found, file=path) from None
    if then != now:
        what = "an earlier receipt is not proven by the same checkpoint as the participant's"
        raise Refused("chain", what, expected=now.root.hex(), found=then.root.hex(), file=path)
    predicate = receipt.predicate
    if predicate["competition"] != here["competition"] or predicate["epoch"] >= here["epoch"]:
        raise Refused("chain", "a receipt is of another competition, or of no earlier epoch", file=path)
    return receipt


def _record(row: Mapping[str, Any], bound: Mapping[int, Any], mine: Mapping[str, Any]) -> None:
    """Raise Refused for a record that is not under the root of its receipt, or is about another participant."""
    parsed = record(row["record"])
    root = bound.get(row["epoch"])
    if root is None:
        raise Refused("evidence", f"there is no receipt of epoch {row['epoch']} for the record with seq {row['seq']}")
    leaf = evidence.evidence_leaf(row["seq"], bytes.fromhex(parsed.digest.removeprefix("sha256:")))
    _included(row["proof"], root, leaf, "evidence")
    if json.dumps(row["record"], sort_keys=True) != json.dumps(parsed.document(), sort_keys=True):
        raise Refused("evidence", f"the record with seq {row['seq']} is not in its canonical form")
    submission = mine["agreed"].get("submission") if isinstance(mine["agreed"], dict) else None
    if parsed.participant != mine["participant"] and (not parsed.submission or parsed.submission != submission):
        raise Refused("evidence", f"the record with seq {row['seq']} is about another participant", found=parsed.participant)


def _all_of_them(rows: Sequence[JsonObject], bound: JsonObject) -> None:
    """Raise Refused unless these are the records that the result binds, in order of acceptance."""
    seqs = [row["seq"] for row in rows]
    if len(rows) != bound["count"]:
        raise Refused("evidence", "the result rests on another number of records", expected=bound["count"], found=len(rows))
    root = evidence.evidence_root(seqs, [sha256(canonical(row["record"])).digest() for row in rows])
    if root != bound["root"]:
        raise Refused("evidence", "the records are not those that the result rests on", expected=bound["root"], found=root)


def _included(place: Mapping[str, Any], under: Mapping[str, Any], leaf: bytes, name: str) -> None:
    if place["size"] != under["count"]:
        raise Refused(name, "the proof is of a tree of another size", expected=under["count"], found=place["size"])
    hashes = [bytes.fromhex(digits) for digits in place["hashes"]]
    root = bytes.fromhex(under["root"].removeprefix("sha256:"))
    check.check_inclusion(root, under["count"], place["index"], leaf, hashes, name)


def verify_decided(settlement: Settlement, until: Until, into: Verified) -> None:
    """Stage `decided`: no outcome of a missing trial changes a rank, a tier or a weight, or what is paid; raises Refused.

    The bounds of every score are computed again from the bundle's evidence. SPEC 2.1, 3, 4, 5.
    """
    with stage("decided"):
        decision = decided(settlement, until)
        standing = next((row for row in decision.standings if not row.decided), None)
        if standing is not None:
            what = f"{several(standing.missing, 'missing trial')} could change it: {standing.reason}"
            raise Refused("decided", what, participant=standing.participant, expected="decided", found=standing.why)
    changes = "what anybody is paid" if until == "paid" else "a rank, a tier or a weight"
    into.right("decided", f"no outcome of {several(decision.missing, 'missing trial')} could change {changes}: {decision.digest}")
