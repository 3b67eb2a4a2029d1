"""What a receipt binds, and whether it holds: roots, inputs, receipts, a participant's own proof, an epoch as a whole. SPEC 6."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from assay import folder
from assay.conformance.kinds.kind import Kind, kind
from assay.conformance.kinds.proving import Hashes, Text, refusing
from assay.errors import BadInput
from assay.exact import canonical
from assay.folder import strict
from assay.folder.previous import previous_of
from assay.ledger import bundle, check, evidence, receipt, verify
from assay.ledger import inputs as documents
from assay.ledger.check import LogKey
from assay.ledger.split import Split
from assay.records import record as read_record
from assay.scheme.fields import Section
from assay.scheme.reading import validate
from assay.scheme.subnet import Subnet
from assay.settle import emission, settle

__all__ = ["evidence_root", "inputs", "proof", "results_root", "signed_receipt", "signed_split", "verified"]

Json = dict[str, Any]
Epochs = Annotated[Mapping[Annotated[str, Field(pattern="^(0|[1-9][0-9]{0,14})$")], Any], Field(min_length=1)]


def _called(name: str, found: Kind) -> Kind:
    return Kind(name, found.about, found.model, found.answer)


class _Records(Section):
    records: Annotated[tuple[Any, ...], Field(strict=False)]


@kind(_Records)
def evidence_root(given: _Records) -> Json:
    """Records, each with its `seq`, in order of acceptance: the root that a receipt states over them, and how many they are."""
    seqs, digests = list[int](), list[bytes]()
    for index, value in enumerate(given.records):
        strict.check(value)
        try:
            one = read_record(value)
        except BadInput as error:
            raise error.at(field=f"records[{index}]") from None
        if one.seq is None or (seqs and one.seq <= seqs[-1]):
            raise BadInput("has no seq above the one before", field=f"records[{index}]", hint="give them in order of acceptance")
        seqs.append(one.seq)
        digests.append(bytes.fromhex(one.digest.removeprefix("sha256:")))
    return {"root": evidence.root(seqs, digests), "count": len(seqs)}


class _Case(Section):
    case: Any


@kind(_Case)
def inputs(given: _Case) -> Json:
    """A case of kind `settle`: what its settlement follows from beside evidence and previous settlement, as the document that a
    receipt names, and the digest of it."""
    document = documents.document(folder.parse_case(given.case))
    return {"document": document, "digest": documents.digest_of(document)}


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
    records = None if given.records is None else {name: one.model_dump() for name, one in given.records.items()}
    rows = receipt.results(given.settlement, records)
    tree = receipt.results_tree(rows)
    found: Json = {"root": f"sha256:{tree.root().hex()}", "count": len(rows)}
    if given.participant is None:
        return found
    at = next((at for at, row in enumerate(rows) if row["participant"] == given.participant), None)
    if at is None:
        raise BadInput(f"there is no participant {given.participant[:80]!r}", field="participant", hint="name one of them")
    hashes = [one.hex() for one in tree.inclusion(at).hashes]
    return found | {"result": rows[at], "index": at, "inclusion": hashes}


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
    found, _ = verify.receipts.read(given.receipt.encode(), key, path)
    now = verify.receipts.checked(found, key, path)
    if given.checkpoint is not None:
        hashes = [bytes.fromhex(one) for one in given.consistency]
        check.check_receipt(found, [key], given.checkpoint.encode(), hashes)
    said = {name: found.predicate[name] for name in ("competition", "epoch", "settlement")}
    return said | {"digest": f"sha256:{found.digest.hex()}", "index": str(found.proof.index), "size": str(now.size)}


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
    found, _ = verify.joint.read(given.receipt.encode(), [key], path)
    now = verify.receipts.checked(found, key, path)
    if given.subnet is not None:
        verify.joint.follows(found, validate(Subnet, given.subnet), "the subnet file")
    if given.competitions is not None:
        logs = found.logs
        if len(logs) != len(given.competitions):
            raise BadInput("are not as many as the split names", field="competitions", hint="give each one's receipt and case")
        verify.joint.same(found, [_bound(found, at, one, logs[at]) for at, one in enumerate(given.competitions)], path)
    said, split = found.predicate, found.predicate["split"]
    return {
        "subnet": said["subnet"],
        "epoch": said["epoch"],
        "split": split["digest"],
        "receipts": split["receipts"],
        "digest": f"sha256:{found.digest.hex()}",
        "index": str(found.proof.index),
        "size": str(now.size),
    }


signed_split = _called("emission-receipt", _split)


def _bound(found: Split, at: int, one: _Part, key: LogKey) -> emission.Settled:
    """A competition of a signed split: its receipt, by the key that the split names, and the settlement that it is of."""
    path = Path(f"competitions[{at}]")
    receipt, _ = verify.receipts.read(one.receipt.encode(), key, path)
    verify.receipts.checked(receipt, key, path)
    digest, settlement = verify.joint.bound(found, at, receipt, path), settle(folder.parse_case(one.case))
    if settlement.digest != receipt.predicate["settlement"]:
        raise BadInput("is not the case that its receipt is of", field=str(path), hint="give the case that was settled")
    return emission.part(settlement, digest, str(key))


class _Proof(Section):
    proof: Text
    key: str


@refusing
@kind(_Proof)
def proof(given: _Proof) -> Json:
    """The text of a participant's own proof, by the key of the log (vkey): his result, and how many records it rests on."""
    data, key = given.proof.encode(), LogKey.parse(given.key)
    found, _, _ = verify.own.own(data, key, Path("proof"), verify.Verified())
    document = strict.parse(given.proof)
    said = {name: found.predicate[name] for name in ("competition", "epoch", "settlement")}
    return said | {"participant": document["result"]["participant"], "records": len(document["records"])}


class _Bundle(Section):
    key: str
    receipts: Epochs
    inputs: Any
    settlement: Any
    previous: Any = None
    records: Epochs
    batches: Annotated[tuple[Any, ...], Field(strict=False)]


@refusing
@kind(_Bundle)
def _verify(given: _Bundle) -> Json:
    """An epoch as a whole, by the key of the log (vkey): `receipts` by epoch, the last of which is verified; `inputs`;
    `settlement`, and the `previous` one; `records` by the epoch of their receipt, each with its `seq`; `batches`: envelope and
    members. Refused at the first stage that is not right."""
    key = LogKey.parse(given.key)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        _write(root, given)
        found, into = verify.gathered(root, None), verify.Verified()
        one, _ = verify.receipts.read(found.data, key, found.path)
        now = verify.receipts.receipt(one, key, found.path, into, own=False)
        verify.whole(found, one, key, now, into)
    said = {name: one.predicate[name] for name in ("competition", "epoch", "settlement")}
    return said | {
        "receipts": len(given.receipts),
        "records": sum(map(len, given.records.values())),
        "batches": len(given.batches),
    }


verified = _called("verify", _verify)


def _write(root: Path, given: _Bundle) -> None:
    """The bundle as a folder."""
    files = {bundle.INPUTS: given.inputs, bundle.SETTLEMENT: given.settlement}
    if given.previous is not None:
        files[bundle.PREVIOUS] = given.previous
    files |= {f"{bundle.RECEIPTS}/epoch-{epoch}.receipt": document for epoch, document in given.receipts.items()}
    texts = {path: canonical(document) for path, document in files.items()}
    for epoch, records in given.records.items():
        if not isinstance(records, list):
            raise BadInput("is not a list", field=f"records.{epoch}", hint="give the records of the receipt")
        texts[f"{bundle.EVIDENCE}/epoch-{epoch}.jsonl"] = b"".join(canonical(one) + b"\n" for one in records)
    texts[bundle.BATCHES] = b"".join(_line(number, one) for number, one in enumerate(given.batches))
    for path, data in texts.items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_bytes(data)


def _line(number: int, one: Any) -> bytes:
    if not isinstance(one, dict) or one.keys() != {"envelope", "members"}:
        raise BadInput("is not an envelope and members", field=f"batches[{number}]", hint="give both, and nothing else")
    return b'{"envelope":%b,"members":%b}\n' % (canonical(one["envelope"]), canonical(one["members"]))
