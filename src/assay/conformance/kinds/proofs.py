"""Kinds of case for the ledger: its formats, and what a receipt binds. SPEC 6.

The formats are Merkle trees and proofs, signed notes, envelopes, tiles and batches. A receipt binds roots and inputs; a case
checks whether it holds: alone, for one participant, or for a whole epoch.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from assay import folder
from assay.conformance.kinds.stages import CaseKind, kind
from assay.errors import BadInput
from assay.exact import canonical
from assay.folder import strict
from assay.folder.previous import previous_of
from assay.ledger import batch as batches
from assay.ledger import bundle, check, evidence, keys, log, merkle, statements, verify
from assay.ledger import eligible as documents
from assay.ledger.check import Envelope, LogKey, LogProof
from assay.ledger.keys import as_bad_input
from assay.ledger.statements import Split
from assay.records import record as read_record
from assay.scheme.fields import Hex32, Section
from assay.scheme.reading import validate
from assay.scheme.subnet import SubnetFile
from assay.settle import emission, settle

__all__ = [
    "VerifyCase",
    "batch",
    "checkpoint",
    "consistency",
    "dsse",
    "evidence_root",
    "inclusion",
    "inputs",
    "log_proof",
    "merkle_tree",
    "proof",
    "results_root",
    "signed_receipt",
    "signed_split",
    "tile_path",
    "tiled_log",
    "verified",
    "write_bundle",
]


Json = dict[str, Any]
Bytes = Annotated[str, Field(max_length=200_000, pattern=r"^([0-9a-f]{2})*$")]
Size = Annotated[int, Field(ge=0, lt=2**63)]
Hashes = Annotated[tuple[Hex32, ...], Field(strict=False, max_length=100)]
Words = Annotated[tuple[str, ...], Field(strict=False)]
Text = Annotated[str, Field(max_length=1_000_000)]
_HINT = "it must be refused"


def refusing(case_kind: CaseKind) -> CaseKind:
    """The kind, with what `check` refuses as the refusal of the case."""

    def answer(given: Any) -> Any:
        with as_bad_input(_HINT):
            return case_kind.answer(given)

    return CaseKind(case_kind.name, case_kind.about, case_kind.model, answer)


def _raw(texts: tuple[str, ...]) -> list[bytes]:
    return [bytes.fromhex(text) for text in texts]


class _Tree(Section):
    entries: Annotated[tuple[Bytes, ...], Field(strict=False)]
    index: Size | None = None
    old: Size | None = None


@kind(_Tree)
def merkle_tree(given: _Tree) -> Json:
    """The RFC 6962 root over entries; with `index` the proof that this entry is among them, with `old` the proof that the tree
    goes on from that of the first `old`."""
    tree = merkle.Tree([check.leaf_hash(entry) for entry in _raw(given.entries)])
    proofs: Json = {"root": tree.root().hex()}
    try:
        if given.index is not None:
            proofs["inclusion"] = [node.hex() for node in tree.inclusion(given.index).hashes]
        if given.old is not None:
            proofs["consistency"] = [node.hex() for node in tree.consistency(given.old)]
    except ValueError as error:
        raise BadInput(str(error), hint="use a smaller number") from None
    return proofs


class _Inclusion(Section):
    root: Hex32
    size: Size
    index: Size
    entry: Bytes
    proof: Hashes


@refusing
@kind(_Inclusion)
def inclusion(given: _Inclusion) -> Json:
    """Whether an entry is at its index in the tree of that size and root, by the proof: refused if it is not."""
    leaf = check.leaf_hash(bytes.fromhex(given.entry))
    check.check_inclusion(bytes.fromhex(given.root), given.size, given.index, leaf, _raw(given.proof))
    return {"included": True}


class _Consistency(Section):
    old: Size
    old_root: Hex32
    new: Size
    new_root: Hex32
    proof: Hashes


@refusing
@kind(_Consistency)
def consistency(given: _Consistency) -> Json:
    """Whether the larger tree goes on from the smaller, by the proof: refused if it does not."""
    roots = bytes.fromhex(given.old_root), bytes.fromhex(given.new_root)
    check.check_consistency(given.old, roots[0], given.new, roots[1], _raw(given.proof))
    return {"consistent": True}


class _Checkpoint(Section):
    note: Text
    keys: Words


@refusing
@kind(_Checkpoint)
def checkpoint(given: _Checkpoint) -> Json:
    """A checkpoint in a signed note (C2SP), by the public keys of the log (vkeys): what it says, if one of them signed it."""
    log_state = check.check_checkpoint(given.note.encode(), [LogKey.parse(key) for key in given.keys])
    return {"origin": log_state.origin, "size": str(log_state.size), "root": log_state.root.hex()}


class _LogProof(Section):
    proof: Text
    entry: Bytes
    keys: Words


@refusing
@kind(_LogProof)
def log_proof(given: _LogProof) -> Json:
    """A C2SP tlog-proof of an entry, by the public keys of the log (vkeys): where it is, if it is there."""
    entry_proof = LogProof.parse(given.proof)
    log = check.check_checkpoint(entry_proof.checkpoint, [LogKey.parse(key) for key in given.keys])
    check.check_inclusion(log.root, log.size, entry_proof.index, check.leaf_hash(bytes.fromhex(given.entry)), entry_proof.hashes)
    return {"origin": log.origin, "index": str(entry_proof.index), "size": str(log.size)}


class _Dsse(Section):
    json_: Annotated[Text, Field(alias="json")]
    keys: Words
    threshold: Annotated[int, Field(ge=1)] = 1


@refusing
@kind(_Dsse)
def dsse(given: _Dsse) -> Json:
    """A DSSE envelope as a JSON text around an in-toto payload, by keys (`ed25519:` or `sr25519:` and hex, or the
    address of a hotkey): the payload (hex) and the keys that signed it, in the order given, if they are at least `threshold`."""
    envelope = Envelope.parse(check.parse_json(given.json_.encode(), "dsse"), "dsse")
    signers = check.check_envelope(envelope, [keys.public(key) for key in given.keys], "dsse", given.threshold)
    return {"payload": envelope.payload.hex(), "signed_by": [key.id for key in signers]}


class _TilePath(Section):
    level: Annotated[int, Field(ge=0)] | str
    index: Annotated[int, Field(ge=0)]
    width: int


@kind(_TilePath)
def tile_path(given: _TilePath) -> Json:
    """Where the tile of a level (or of `entries`) is (C2SP tlog-tiles), 256 hashes wide or narrower."""
    try:
        return {"path": log.tile_path(given.level, given.index, given.width)}
    except ValueError as error:
        raise BadInput(str(error), hint="levels are 0 to 63, widths 1 to 256") from None


class _TiledLog(Section):
    files: dict[str, Bytes]
    checkpoint: Text
    key: str
    seen: Text | None = None


@refusing
@kind(_TiledLog)
def tiled_log(given: _TiledLog) -> Json:
    """A log as its files (path → hex) and its checkpoint, every tile and entry checked by its key (vkey); with `seen`, a signed
    checkpoint seen at another time, that the log goes on from it."""
    key = LogKey.parse(given.key)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "checkpoint").write_bytes(given.checkpoint.encode())
        for path, data in given.files.items():
            if not re.fullmatch(r"tile/(\d+|entries)/(x\d{3}/)*\d{3}(\.p/\d+)?", path, re.ASCII):
                raise BadInput(f"{path[:60]!r} is not the path of a tile", field="files", hint="see C2SP tlog-tiles")
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(bytes.fromhex(data))
        tiled = log.Log(folder, key)
        tiled.check()
        if given.seen is not None:
            tiled.check_against(check.check_checkpoint(given.seen.encode(), [key]))
        entries = [entry.hex() for entry in tiled.entries()]
    return {"size": str(tiled.size), "root": tiled.checkpoint.root.hex(), "last": entries[-1] if entries else None}


class _Batch(Section):
    text: Text
    key: str | None = None


@kind(_Batch)
def batch(given: _Batch) -> Json:
    """A batch of evidence as the text of its file, by the key of its validator, which is the one it names if none is given: what
    it states, and its digest."""
    signed_batch = batches.read(given.text.encode())
    batches.check_signature(signed_batch, keys.public(signed_batch.statement.validator if given.key is None else given.key))
    return {"digest": signed_batch.digest, "statement": signed_batch.statement.document()}


Epochs = Annotated[Mapping[Annotated[str, Field(pattern="^(0|[1-9][0-9]{0,14})$")], Any], Field(min_length=1)]


def _called(name: str, case_kind: CaseKind) -> CaseKind:
    return CaseKind(name, case_kind.about, case_kind.model, case_kind.answer)


class _Records(Section):
    records: Annotated[tuple[Any, ...], Field(strict=False)]


@kind(_Records)
def evidence_root(given: _Records) -> Json:
    """Records, each with its `seq`, in order of acceptance: the root that a receipt states over them, and how many they are."""
    seqs, digests = list[int](), list[bytes]()
    for index, value in enumerate(given.records):
        strict.check(value)
        try:
            parsed = read_record(value)
        except BadInput as error:
            raise error.at(field=f"records[{index}]") from None
        if parsed.seq is None or (seqs and parsed.seq <= seqs[-1]):
            raise BadInput("has no seq above the one before", field=f"records[{index}]", hint="give them in order of acceptance")
        seqs.append(parsed.seq)
        digests.append(bytes.fromhex(parsed.digest.removeprefix("sha256:")))
    return {"root": evidence.evidence_root(seqs, digests), "count": len(seqs)}


class _Case(Section):
    case: Any


@kind(_Case)
def inputs(given: _Case) -> Json:
    """A case of kind `settle`: what its settlement follows from beside evidence and previous settlement, as the document that a
    receipt names, and the digest of it."""
    document = documents.inputs_document(folder.parse_case(given.case))
    return {"document": document, "digest": documents.inputs_digest(document)}


class _Rests(Section):
    root: Annotated[str, Field(pattern=f"^{check.DIGEST}$")]
    count: Annotated[int, Field(ge=0, le=check.LARGEST)]


class _Settlement(Section):
    settlement: Any
    records: Mapping[str, _Rests] | None = None
    participant: str | None = None


@kind(_Settlement)
def results_root(given: _Settlement) -> Json:
    """A settlement: the root that its receipt states over the results of its participants, and how many they are; `records`:
    participant → root and count of the records that the result rests on, without which it is that of a receipt of version 1; with
    `participant`, its result and the proof that it is one of them."""
    previous_of(given.settlement)
    names = {row["participant"] for row in given.settlement["agreed"]}
    if given.records is not None and set(given.records) != names:
        raise BadInput("has not one row for each participant", field="records", hint="name those of the settlement")
    records = None if given.records is None else {name: file.model_dump() for name, file in given.records.items()}
    rows = statements.results(given.settlement, records)
    tree = statements.results_tree(rows)
    answer: Json = {"root": f"sha256:{tree.root().hex()}", "count": len(rows)}
    if given.participant is None:
        return answer
    at = next((at for at, row in enumerate(rows) if row["participant"] == given.participant), None)
    if at is None:
        raise BadInput(f"there is no participant {given.participant[:80]!r}", field="participant", hint="name one of them")
    hashes = [node.hex() for node in tree.inclusion(at).hashes]
    return answer | {"result": rows[at], "index": at, "inclusion": hashes}


class _Receipt(Section):
    receipt: Text
    key: str
    checkpoint: Text | None = None
    consistency: Hashes = ()


@refusing
@kind(_Receipt)
def _receipt(given: _Receipt) -> Json:
    """The text of a receipt, by the key of the log (vkey): what it states of which settlement, and its place in the log; with a
    `checkpoint` of the log from another time and the hashes of the `consistency` proof between the two, that the log went on."""
    key = LogKey.parse(given.key)
    path = Path("receipt")
    receipt, _ = verify.claims.read_receipt(given.receipt.encode(), key, path)
    now = verify.claims.check_receipt(receipt, key, path)
    if given.checkpoint is not None:
        hashes = [bytes.fromhex(node) for node in given.consistency]
        check.check_receipt(receipt, [key], given.checkpoint.encode(), hashes)
    statement = {name: receipt.predicate[name] for name in ("competition", "epoch", "settlement")}
    return statement | {"digest": f"sha256:{receipt.digest.hex()}", "index": str(receipt.proof.index), "size": str(now.size)}


signed_receipt = _called("receipt", _receipt)


class _Part(Section):
    receipt: Text
    case: dict[str, Any]


class _Split(Section):
    receipt: Text
    key: str
    competitions: Annotated[tuple[_Part, ...], Field(strict=False)] | None = None
    subnet: dict[str, Any] | None = None


@refusing
@kind(_Split)
def _split(given: _Split) -> Json:
    """The text of a signed split, by the key of the subnet's log (vkey): what it states, and its place in the log. With
    `competitions`, the receipt of each and the case that it settles, it must follow from these; with `subnet`, a subnet file as
    JSON, it must be divided so."""
    key, path = LogKey.parse(given.key), Path("receipt")
    signed, _ = verify.subnet_bundle.read(given.receipt.encode(), [key], path)
    now = verify.claims.check_receipt(signed, key, path)
    if given.subnet is not None:
        verify.subnet_bundle.follows(signed, validate(SubnetFile, given.subnet), "the subnet file")
    if given.competitions is not None:
        logs = signed.logs
        if len(logs) != len(given.competitions):
            raise BadInput("are not as many as the split names", field="competitions", hint="give each one's receipt and case")
        verify.subnet_bundle.same(
            signed, [_bound(signed, at, part, logs[at]) for at, part in enumerate(given.competitions)], path
        )
    claims, split = signed.predicate, signed.predicate["split"]
    return {
        "subnet": claims["subnet"],
        "epoch": claims["epoch"],
        "split": split["digest"],
        "receipts": split["receipts"],
        "digest": f"sha256:{signed.digest.hex()}",
        "index": str(signed.proof.index),
        "size": str(now.size),
    }


signed_split = _called("emission-receipt", _split)


def _bound(signed: Split, at: int, part: _Part, key: LogKey) -> emission.SplitInput:
    """A competition of a signed split: its receipt, by the key that the split names, and the settlement that it is of."""
    path = Path(f"competitions[{at}]")
    receipt, _ = verify.claims.read_receipt(part.receipt.encode(), key, path)
    verify.claims.check_receipt(receipt, key, path)
    digest, settlement = verify.subnet_bundle.bound(signed, at, receipt, path), settle(folder.parse_case(part.case))
    if settlement.digest != receipt.predicate["settlement"]:
        raise BadInput("is not the case that its receipt is of", field=str(path), hint="give the case that was settled")
    return emission.split_input(settlement, digest, str(key))


class _Proof(Section):
    proof: Text
    key: str


@refusing
@kind(_Proof)
def proof(given: _Proof) -> Json:
    """The text of a participant's own proof, by the key of the log (vkey): his result, and how many records it rests on."""
    data, key = given.proof.encode(), LogKey.parse(given.key)
    receipt, _, _ = verify.recompute.participant_proof(data, key, Path("proof"), verify.Verified())
    document = strict.parse(given.proof)
    statement = {name: receipt.predicate[name] for name in ("competition", "epoch", "settlement")}
    return statement | {"participant": document["result"]["participant"], "records": len(document["records"])}


class VerifyCase(Section):
    """The input of a case of kind `verify`: a bundle as one JSON document."""

    key: str
    receipts: Epochs
    inputs: Any
    settlement: Any
    previous: Any = None
    records: Epochs
    batches: Annotated[tuple[Any, ...], Field(strict=False)]


@refusing
@kind(VerifyCase)
def _verify(given: VerifyCase) -> Json:
    """An epoch as a whole, by the key of the log (vkey): `receipts` by epoch, the last of which is verified; `inputs`;
    `settlement`, and the `previous` one; `records` by the epoch of their receipt, each with its `seq`; `batches`: envelope and
    members. Refused at the first stage that is not right."""
    key = LogKey.parse(given.key)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write_bundle(root, given)
        material, into = verify.gather_material(root, None), verify.Verified()
        receipt, _ = verify.claims.read_receipt(material.data, key, material.path)
        now = verify.claims.check_receipt_file(receipt, key, material.path, into, own=False)
        verify.whole(material, receipt, key, now, into)
    statement = {name: receipt.predicate[name] for name in ("competition", "epoch", "settlement")}
    return statement | {
        "receipts": len(given.receipts),
        "records": sum(map(len, given.records.values())),
        "batches": len(given.batches),
    }


verified = _called("verify", _verify)


def write_bundle(root: Path, given: VerifyCase) -> None:
    """Write the bundle into a folder. Raises BadInput."""
    files = {bundle.INPUTS: given.inputs, bundle.SETTLEMENT: given.settlement}
    if given.previous is not None:
        files[bundle.PREVIOUS] = given.previous
    files |= {f"{bundle.RECEIPTS}/epoch-{epoch}.receipt": document for epoch, document in given.receipts.items()}
    texts = {path: canonical(document) for path, document in files.items()}
    for epoch, records in given.records.items():
        if not isinstance(records, list):
            raise BadInput("is not a list", field=f"records.{epoch}", hint="give the records of the receipt")
        texts[f"{bundle.EVIDENCE}/epoch-{epoch}.jsonl"] = b"".join(canonical(record) + b"\n" for record in records)
    texts[bundle.BATCHES] = b"".join(_line(number, row) for number, row in enumerate(given.batches))
    for path, data in texts.items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_bytes(data)


def _line(number: int, row: Any) -> bytes:
    if not isinstance(row, dict) or row.keys() != {"envelope", "members"}:
        raise BadInput("is not an envelope and members", field=f"batches[{number}]", hint="give both, and nothing else")
    return b'{"envelope":%b,"members":%b}\n' % (canonical(row["envelope"]), canonical(row["members"]))
