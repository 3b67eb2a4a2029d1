"""The stages that recompute: the inputs are those of the receipt, and the same settlement follows from them. SPEC 2-6.

A participant's own proof: its result is in the receipt, and all records that it rests on are in its evidence. SPEC 6.

The result binds count and root of its records, so that a proof from which one was left out is refused. A proof of version 1, of a
receipt of version 1, does not say whether its records are all: that is told as not looked at.
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
from assay.ledger import batch, bundle, check, eligible, evidence, statements
from assay.ledger.check import LogKey, Receipt
from assay.ledger.eligible import BatchTaskSet
from assay.ledger.statements import FIRST_RECEIPT, PARTICIPANT_PROOF
from assay.ledger.verify import claims
from assay.ledger.verify.claims import ReceiptChain
from assay.ledger.verify.report import Material, Verified, gather_material, or_null, read_document, read_file, several, stage
from assay.records import Evidence, record
from assay.scheme.load import read as read_scheme
from assay.settle import Inputs, Settlement, pipeline

Json = dict[str, Any]


def same_scheme(file: Path, said: Json, into: Verified) -> None:
    """Stage `inputs`, of a scheme file that somebody keeps: it is the one that the receipt names."""
    found = read_scheme(file).digest
    if found != said["scheme"]:
        raise Refused("inputs", "the scheme is not the receipt's", expected=said["scheme"], found=found, file=file)
    into.right("inputs", f"the scheme of {file} is the receipt's")


def check_kind(given: Material, said: Json) -> None:
    """Raise BadInput if the inputs are those of the receipt, and their kind is one that no package here has.

    Nothing is then wrong with the receipt: it cannot be said here whether the settlement follows. Any other fault of the inputs
    is left to the stage `inputs`.
    """
    assert given.root is not None
    path = given.root / bundle.INPUTS
    try:
        found = read_document(path)
        name = found["scheme"]["score"]["kind"]
    except (AssayError, LookupError, TypeError):
        return
    if isinstance(name, str) and not known(name) and digest(found) == said["inputs"]:
        what = f"the competition is of the kind {name[:80]!r}, which no package here has: its settlement cannot be computed again"
        hint = f"install the package whose entry point in {GROUP} is called so"
        raise BadInput(what, file=path, field="scheme.score.kind", hint=hint, stage=MISSING)


def _judge(settled: Inputs, into: Verified) -> None:
    """Say which judge made the evidence, where the scheme names one in the place of the kind's own."""
    if settled.scheme.judge is None:
        return
    name = settled.scheme.judge.use
    here = " and ".join(map(origin, plugins(JUDGES, name))) or "which is not installed here"
    ours = settled.scheme.kind.name
    into.not_looked_at("judge", f"the judge {name!r} ({here}) made the evidence, in the place of the one that is called {ours!r}")


def settlement(given: Material, before: ReceiptChain, judged: Sequence[BatchTaskSet], into: Verified) -> Settlement:
    """Stages `inputs`, `settlement` and `results`: everything is computed again, and compared with what the receipt says."""
    assert given.root is not None
    said = before.receipts[-1].predicate
    found = _inputs(given.root / bundle.INPUTS, said)
    without = eligible.left_out(judged, said["task_set"])
    paths = list(given.evidence.values())

    with (
        stage("inputs"),
        eligible.from_files(paths, lambda: itertools.chain.from_iterable(map(_records, paths)), without) as where,
    ):
        settled = eligible.settled_from(found, epoch=said["epoch"], evidence=where, previous=before.previous)
        for what, ours, theirs in (
            ("scheme", settled.scheme.digest, said["scheme"]),
            ("competition", settled.scheme.name, said["competition"]),
            ("task set", settled.task_set, said["task_set"]),
            ("registry", found.get("registry"), said.get("registry")),
        ):
            _same(ours, theirs, "inputs", f"the {what} is not the receipt's", given.root / bundle.INPUTS)
        if eligible.inputs_document(settled) != found:
            raise Refused("inputs", "it is not written in the one form that inputs have", file=given.root / bundle.INPUTS)
        people, judges = several(len(settled.participants), "participant"), several(len(settled.validators), "validator")
        into.right("inputs", f"{people}, {judges}, scheme {said['scheme']}{_block(said)}")
        _judge(settled, into)
    with stage("settlement"):
        again = pipeline.settle(settled)
        _compare(again.document, given.root / bundle.SETTLEMENT)
        _same(again.digest, said["settlement"], "settlement", "the receipt is of another settlement", given.path)
        into.right("settlement", f"computed again to the bit: {again.digest}")
    held = (batch.StoredRecord(seq, sha256(body).digest(), body) for seq, body in _in_order(paths))
    first = before.receipts[-1].version == 1
    into.left_out = gone = frozenset(without.tolist())
    rows = statements.results(again.document, None if first else eligible.bind_results(held, found, again.document, gone))
    root = f"sha256:{statements.results_tree(rows).root().hex()}"
    _same({"root": root, "count": len(rows)}, said["results"], "results", "the receipt is of other results", given.path)
    into.right("results", f"{several(len(rows), 'result')} under their root")
    return again


def records_about(bundle_: Path, found: Verified, participant: str) -> list[Evidence]:
    """The records that the result of one participant rests on, of a bundle that was verified, with their seq."""
    assert found.settlement is not None
    paths = list(gather_material(bundle_, None).evidence.values())
    held = (batch.StoredRecord(seq, sha256(body).digest(), body) for seq, body in _in_order(paths))
    rows = eligible.records_behind_results(
        held, read_document(bundle_ / bundle.INPUTS), found.settlement.document, found.left_out
    )
    return [record(json.loads(one.body) | {"seq": one.seq}) for name, _, one in rows if name == participant]


def _in_order(paths: Sequence[Path]) -> Iterator[tuple[int, bytes]]:
    """The records of all files in order of acceptance: each file is, and a later epoch's may have been accepted earlier."""
    return heapq.merge(*map(_records, paths), key=itemgetter(0))


def _records(path: Path) -> Iterator[tuple[int, bytes]]:
    for part in evidence.evidence_parts(path):
        yield from zip(part.seqs, part.bodies, strict=True)


def _block(said: Json) -> str:
    """Of which block the registry is, where it was pulled from a chain: whether it was right there, only the chain can say."""
    found = said.get("registry")
    return f"; registry of subnet {found['netuid']} at block {found['block']}, {found['hash']}" if found else ""


def _inputs(path: Path, said: Json) -> Json:
    with stage("inputs"):
        found = read_document(path)
        if not isinstance(found, dict):
            raise Refused("inputs", "it is not a JSON object", file=path)
        _same(digest(found), said["inputs"], "inputs", "the inputs are not those of the receipt", path)
        return found


def _same(found: object, wanted: object, name: str, what: str, file: Path) -> None:
    if found != wanted:
        raise Refused(name, what, expected=or_null(wanted), found=or_null(found), file=file)


def _compare(ours: Json, path: Path) -> None:
    """Refuse a settlement that differs from the one computed, naming the first field, and whose it is."""
    if (
        read_file(path) == batch.plain_json(ours).encode() + b"\n"
    ):  # as it is exported; it is long, and parsing it would take as long
        return
    found = differs(ours, read_document(path))
    if found is not None:
        place, participant, wanted, there = found
        what = f"{place or 'all of it'} differs"
        raise Refused("settlement", what, participant=participant, expected=or_null(wanted), found=or_null(there), file=path)


Difference = tuple[str, str, Any, Any]
"""Field, participant ("" if it is nobody's), what was computed, what is there."""
NOTHING = "nothing"


def differs(ours: Any, theirs: Any, place: str = "", participant: str = "") -> Difference | None:
    """The first field in which two documents differ, rows about participants being compared by participant; None if none does."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        participant = ours.get("participant", participant) if isinstance(ours.get("participant", ""), str) else participant
        for name in (*ours, *(name for name in theirs if name not in ours)):
            inner = f"{place}.{name}" if place else name
            if name not in ours or name not in theirs:
                return inner, participant, ours.get(name, NOTHING), theirs.get(name, NOTHING)
            found = differs(ours[name], theirs[name], inner, participant)
            if found is not None:
                return found
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
            found = differs(row, both[key], place, key)
            if found is not None:
                return found
    for at, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        found = differs(one, other, f"{place}[{at}]", participant)
        if found is not None:
            return found
    if len(ours) != len(theirs):
        return place, participant, f"{len(ours)} rows", f"{len(theirs)} rows"
    return None


def _keys(rows: list[Any]) -> list[str]:
    """Whom each row is about, if every one is about a participant of its own."""
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
    """Whether the bytes are those of a participant's proof rather than of a receipt."""
    return b"assay.proof/" in data[:4096] or b'"result_proof"' in data


def participant_proof(data: bytes, key: LogKey | None, path: Path, into: Verified) -> tuple[Receipt, LogKey, check.Checkpoint]:
    """Check a proof: the receipts in it, the result, and every record. Raises Refused."""
    with stage("receipt"):
        try:
            found = strict.parse(decode(data, path))
        except BadInput as error:
            raise error.at(file=path) from None
        if bad := check.misfit(found, _SHAPE):
            raise Refused("receipt", f"it is not a participant's proof: {bad} does not fit", file=path)
    one, known = claims.read_receipt(canonical(found["receipt"]), key, path)
    now = claims.check_receipt_file(one, known, path, into, own=key is None)
    said, mine = one.predicate, found["result"]
    for what, there in (("proof", found["schema"] == FIRST_RECEIPT), ("result", "records" not in mine)):
        if there != (one.version == 1):
            raise Refused("receipt", f"the {what} is of another version than the receipt", expected=one.version, file=path)
    with stage("results"):
        leaf = check.leaf_hash(canonical(mine))
        _included(found["result_proof"], said["results"], leaf, "results")
    rank = "no rank" if mine["rank"] is None else f"rank {mine['rank']}"
    into.right("results", f"the result of {mine['participant']} ({rank}) is one of {said['results']['count']}")
    bound = {said["epoch"]: said["evidence"]}
    with stage("chain"):
        for other in found["receipts"]:
            earlier = _earlier(other, said, now, known, path)
            bound[earlier.predicate["epoch"]] = earlier.predicate["evidence"]
    if found["receipts"]:
        into.right("chain", f"{several(len(found['receipts']), 'earlier receipt')}, signed and in the log")
    with stage("evidence"):
        for row in found["records"]:
            _record(row, bound, mine)
        if one.version > 1:
            _all_of_them(found["records"], mine["records"])
    count, every = several(len(found["records"]), "record"), "all " if one.version > 1 else ""
    into.right("evidence", f"{every}{count} that it rests on, each under the evidence root of a receipt")
    if one.version == 1:
        what = "whether these are all records: the receipt is of version 1, whose results do not say which they rest on"
        into.not_looked_at("evidence", what)
    into.not_looked_at("settlement", "what is not in a participant's proof: the others; the bundle of the epoch has them")
    return one, known, now


def _earlier(document: Any, here: JsonObject, now: check.Checkpoint, key: LogKey, path: Path) -> Receipt:
    """A receipt from before, proven in the same checkpoint: one of a forked log could have other records."""
    found, _ = claims.read_receipt(canonical(document), key, path, "chain")
    try:
        then = claims.check_receipt(found, key, path)
    except Refused as refused:
        raise Refused("chain", refused.what, expected=refused.expected, found=refused.found, file=path) from None
    if then != now:
        what = "an earlier receipt is not proven by the same checkpoint as the participant's"
        raise Refused("chain", what, expected=now.root.hex(), found=then.root.hex(), file=path)
    said = found.predicate
    if said["competition"] != here["competition"] or said["epoch"] >= here["epoch"]:
        raise Refused("chain", "a receipt is of another competition, or of no earlier epoch", file=path)
    return found


def _record(row: Mapping[str, Any], bound: Mapping[int, Any], mine: Mapping[str, Any]) -> None:
    """Refuse a record that is not under the root of its receipt, or is about somebody else."""
    one = record(row["record"])
    root = bound.get(row["epoch"])
    if root is None:
        raise Refused("evidence", f"there is no receipt of epoch {row['epoch']} for the record with seq {row['seq']}")
    leaf = evidence.evidence_leaf(row["seq"], bytes.fromhex(one.digest.removeprefix("sha256:")))
    _included(row["proof"], root, leaf, "evidence")
    if json.dumps(row["record"], sort_keys=True) != json.dumps(one.document(), sort_keys=True):
        raise Refused("evidence", f"the record with seq {row['seq']} is not in its canonical form")
    submission = mine["agreed"].get("submission") if isinstance(mine["agreed"], dict) else None
    if one.participant != mine["participant"] and (not one.submission or one.submission != submission):
        raise Refused("evidence", f"the record with seq {row['seq']} is about somebody else", found=one.participant)


def _all_of_them(rows: Sequence[JsonObject], said: JsonObject) -> None:
    """Refuse records that are not those which the result binds, in order of acceptance."""
    seqs = [row["seq"] for row in rows]
    if len(rows) != said["count"]:
        raise Refused("evidence", "the result rests on another number of records", expected=said["count"], found=len(rows))
    root = evidence.evidence_root(seqs, [sha256(canonical(row["record"])).digest() for row in rows])
    if root != said["root"]:
        raise Refused("evidence", "the records are not those that the result rests on", expected=said["root"], found=root)


def _included(place: Mapping[str, Any], under: Mapping[str, Any], leaf: bytes, name: str) -> None:
    if place["size"] != under["count"]:
        raise Refused(name, "the proof is of a tree of another size", expected=under["count"], found=place["size"])
    hashes = [bytes.fromhex(one) for one in place["hashes"]]
    root = bytes.fromhex(under["root"].removeprefix("sha256:"))
    check.check_inclusion(root, under["count"], place["index"], leaf, hashes, name)
