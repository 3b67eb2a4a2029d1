"""A signed batch of evidence: what one validator saw, under one signature, every record provable alone. SPEC 6.

A file `*.batch` is a DSSE envelope on the first line, then the records it is about, one a line in canonical JSON without `seq`,
each once, in the order of their digests. The envelope's payload is an in-toto statement: the subjects are the submissions, the
predicate names the origin of the log in whose ledger the batch counts, competition, epoch, kind, validator, task set, the count
of records and the RFC 6962 root over their digests. Two records of a batch do not contradict one another.

Version 1 of the statement names no log, so the same batch would count in any ledger of a competition of that name. Ledgers that
have such batches keep them, and they can be read; none is made or taken in any more.

Records as lines of canonical JSON are read many at once, at a few microseconds a record, without a doubt about any byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from assay.errors import BadInput, brief
from assay.exact import canonical
from assay.folder.evidence import parse
from assay.folder.files import LINE_BYTES, Place, load
from assay.kind import find, known
from assay.ledger import check
from assay.ledger.keys import PrivateKey, PublicKey, as_bad_input, public, sign_envelope
from assay.ledger.merkle import Proof, Tree, root
from assay.records import Evidence, record

plain_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
"""The canonical JSON (RFC 8785) of what holds no fractions and no keys beyond ASCII, by Python's own encoder."""


class StoredRecord(NamedTuple):
    """A record: its place in the order of acceptance (from 1), its digest (32 bytes), its canonical JSON without `seq`."""

    seq: int
    digest: bytes
    body: bytes


@cache
def _records_adapter(kind: str) -> TypeAdapter[list[Evidence]]:
    model: Any = find(kind).record
    return TypeAdapter(list[model])


def record_bodies(records: Sequence[Evidence], kind: str) -> list[bytes]:
    """The canonical JSON (RFC 8785) of records of one kind.

    Only what holds JSON of somebody else can have numbers or keys that Python's own encoder writes otherwise.
    """
    if find(kind).record.holds_json:
        return [canonical(one.document()) for one in records]
    return [plain_json(one).encode() for one in _documents(records, kind)]


def _documents(records: Sequence[Evidence], kind: str) -> Any:
    return _records_adapter(kind).dump_python(list(records), mode="json", exclude_none=True, exclude={"__all__": {"seq"}})


def read_records(lines: Sequence[bytes], kind: str, file: Path | str | None, first: int) -> list[Evidence]:
    """The records on lines of canonical JSON, of one kind; `first` is the number of the first line.

    Raises BadInput with the line for one that is too long, no record of the kind, or not written in its canonical form.
    """
    longest = max(map(len, lines), default=0)
    if longest > LINE_BYTES:
        at = next(number for number, line in enumerate(lines, first) if len(line) == longest)
        raise BadInput(f"the line is longer than {LINE_BYTES} bytes", file=file, line=at, hint="write one record a line")
    return _read_together(lines, kind) or [
        _read_record(line, kind, Place(file, number)) for number, line in enumerate(lines, first)
    ]


def _read_together(lines: Sequence[bytes], kind: str) -> list[Evidence]:
    """The records on lines, read and compared as one text; none if they must be looked at one by one.

    Of a kind that has no objects inside its records, "},{" stands between two of them. Where no line has it, the commas that join
    as many lines as there are records are those between the records: no line ends within one.
    """
    if find(kind).record.holds_json or b"},{" in b"\n".join(lines):
        return []
    text = b"[" + b",".join(lines) + b"]"
    try:
        records = _records_adapter(kind).validate_json(text)
    except ValidationError:
        return []
    return records if len(records) == len(lines) and plain_json(_documents(records, kind)).encode() == text else []


def _read_record(line: bytes, kind: str, place: Place) -> Evidence:
    value = parse(line, place)
    found = value.get("kind") if isinstance(value, dict) else None
    if found != kind:
        raise place.refuse(f"is not of the kind {kind!r}", field="kind", hint="a batch has records of one kind")
    try:
        one = record(value)
    except BadInput as error:
        raise place.put(error) from None
    if canonical(one.document()) != line:
        raise place.refuse("is not in its canonical form", hint="sign the evidence again: assay evidence sign")
    return one


RECORDS = 100_000
"""Records of one batch."""
BATCH_BYTES = 64 * 2**20
"""Bytes of one batch."""
PREDICATE = "assay:evidence/v2"
FIRST = "assay:evidence/v1"
"""The statement of version 1, which is only read."""

_AGAIN = "ask its validator for it again"
_PREDICATE = {
    "competition": check.WORD,
    "epoch": int,
    "kind": check.WORD,
    "validator": check.WORD,
    "task_set": (None, check.DIGEST),
    "count": int,
    "root": check.DIGEST,
}
_SHAPE = {
    "_type": re.escape(check.STATEMENT),
    "subject": [{"name": "(?s:.*)", "digest": {"sha256": "[0-9a-f]{64}"}}],
    "predicateType": re.escape(PREDICATE),
    "predicate": _PREDICATE | {"origin": (None, check.WORD)},
}
_SHAPE_1 = _SHAPE | {"predicateType": re.escape(FIRST), "predicate": _PREDICATE}


@dataclass(frozen=True)
class BatchStatement:
    """What a validator signs: for which log, competition, epoch, kind, task set, the submissions, how many records, their root.

    origin: the log's; None where the evidence is for no log, and no ledger takes it. version 1 names none.
    """

    origin: str | None
    competition: str
    epoch: int
    kind: str
    validator: str
    task_set: str | None
    count: int
    root: str
    submissions: tuple[str, ...]
    version: int = 2

    def document(self) -> dict[str, Any]:
        """The in-toto statement."""
        fields = [*_PREDICATE, "origin"] if self.version > 1 else [*_PREDICATE]
        return {
            "_type": check.STATEMENT,
            "subject": [{"name": name, "digest": {"sha256": _submission_digest(name)}} for name in self.submissions],
            "predicateType": PREDICATE if self.version > 1 else FIRST,
            "predicate": {name: getattr(self, name) for name in fields},
        }


@dataclass(frozen=True)
class Batch:
    """A batch whose records are those that its statement counts; whose signature it is, `check_signature` says.

    envelope: the first line as it came. records, bodies (canonical JSON) and digests (32 bytes) are parallel, in the order of
    the digests.
    """

    envelope: bytes
    payload: bytes
    statement: BatchStatement
    records: tuple[Evidence, ...]
    bodies: tuple[bytes, ...]
    digests: tuple[bytes, ...]

    @cached_property
    def digest(self) -> str:
        """`sha256:…` of the payload: what names the batch."""
        return f"sha256:{sha256(self.payload).hexdigest()}"

    @property
    def data(self) -> bytes:
        """The bytes of its file."""
        return b"\n".join((self.envelope, *self.bodies, b""))


def make(
    records: Iterable[Evidence], *, origin: str | None, competition: str, task_set: str | None, signer: PrivateKey, validator: str
) -> Batch:
    """The signed batch of records of one validator, epoch and kind; the same record twice is one.

    origin: that of the log in whose ledger it counts; None: in no ledger. validator: its key as the registry spells it, which
    must be the signer's. Raises BadInput if the records do not belong together, are none or too many, or contradict one another.
    """
    if public(validator) != signer.public:
        raise BadInput(f"{brief(validator)} is not the key that signs, {signer.public}", hint="sign with the validator's own key")
    given = list(records)
    if not given:
        raise BadInput("there are no records to sign", hint="is this the right validator and epoch?")
    kind, epoch = given[0].kind, given[0].epoch
    for one in given:
        if (one.kind, one.epoch, one.validator) != (kind, epoch, validator):
            raise BadInput(
                f"a record of {brief(one.validator)}, epoch {one.epoch}, kind {one.kind} is not of {brief(validator)}, "
                f"epoch {epoch}, kind {kind}",
                hint="a batch has one validator, epoch and kind",
            )
    bodies = record_bodies(given, kind)
    rows = sorted({sha256(body).digest(): (body, one) for body, one in zip(bodies, given, strict=True)}.items())
    digests = tuple(digest for digest, _ in rows)
    found = tuple(one for _, (_, one) in rows)
    statement = BatchStatement(
        origin, competition, epoch, kind, validator, task_set, len(rows), root_of(digests), _submissions(found)
    )
    payload = canonical(statement.document())
    envelope = canonical(sign_envelope(payload, signer))
    batch = Batch(envelope, payload, statement, found, tuple(body for _, (body, _) in rows), digests)
    _check(batch, None)
    return batch


def read(source: bytes | Path) -> Batch:
    """The batch in a file or in bytes; raises BadInput, with the line, for anything but a batch as `make` makes it.

    Whether it is signed by whom it names is not looked at yet.
    """
    file = source if isinstance(source, Path) else None
    data = load(source, BATCH_BYTES, hint="give a batch that `assay evidence sign` wrote") if isinstance(source, Path) else source
    envelope, *bodies, end = data.split(b"\n", RECORDS + 2) if b"\n" in data else (data, b"-")
    if len(data) > BATCH_BYTES or end or not bodies:
        raise BadInput("is not a batch: an envelope and records, each on a line", file=file, hint=_AGAIN)
    with as_bad_input(_AGAIN, file=file, line=1):
        payload, statement = stated(envelope)
    if len(bodies) != statement.count or len(bodies) > RECORDS:
        what = f"has {len(bodies)} records, its statement counts {statement.count}, and the most is {RECORDS}"
        raise BadInput(what, file=file, hint=_AGAIN)
    records = read_records(bodies, statement.kind, file, 2)
    digests = tuple(sha256(body).digest() for body in bodies)
    batch = Batch(envelope, payload, statement, tuple(records), tuple(bodies), digests)
    _check(batch, file)
    return batch


def check_signature(batch: Batch, key: PublicKey) -> None:
    """Raise BadInput unless this key is the one that the batch's statement names as its validator, and signed the batch."""
    if public(batch.statement.validator) != key:
        what = f"the statement names {brief(batch.statement.validator)} as its validator, and the key given is {key}"
        raise BadInput(what, field="validator", hint="check a batch by the key of the validator whom it names")
    with as_bad_input("the batch is somebody else's, or was changed", field=batch.statement.validator):
        check_envelope(batch.envelope, key)


def check_envelope(envelope: bytes, key: PublicKey) -> None:
    """Refuse an envelope that this key did not sign, or that names another key beside a signature; raises `check.CheckError`."""
    found = check.Envelope.parse(check.parse_json(envelope, "batch"), "batch")
    check.check_envelope(found, [key], "batch")
    other = next((name for name, _ in found.signatures if name not in ("", key.id)), None)
    if other is not None:
        raise check.CheckError("batch", "the signature is said to be of another key", key.id, other)


def record_proof(batch: Batch, digest: bytes) -> Proof:
    """The proof that the record of a digest (32 bytes) is in the batch; raises BadInput if it is not."""
    if digest not in batch.digests:
        raise BadInput(f"the record {digest.hex()} is not in the batch {batch.digest}", hint="look in another batch")
    return Tree([check.leaf_hash(one) for one in batch.digests]).inclusion(batch.digests.index(digest))


def root_of(digests: Sequence[bytes]) -> str:
    """The root that a batch states of its records: RFC 6962 over their distinct digests, ascending."""
    return f"sha256:{root([check.leaf_hash(one) for one in digests]).hex()}"


def _submissions(records: Iterable[Evidence]) -> tuple[str, ...]:
    return tuple(sorted({one.submission for one in records}, key=lambda name: name.encode()))


def _submission_digest(name: str) -> str:
    """The digest that a submission is, where its name is one; else that of the name."""
    return name.removeprefix("sha256:") if re.fullmatch(check.DIGEST, name) else sha256(name.encode()).hexdigest()


def stated(envelope: bytes) -> tuple[bytes, BatchStatement]:
    """The payload of a batch's envelope, and the statement in it, which has one spelling; raises `check.CheckError`."""
    payload = check.Envelope.parse(check.parse_json(envelope, "batch"), "batch").payload
    document = check.parse_json(payload, "batch")
    first = isinstance(document, dict) and document.get("predicateType") == FIRST
    bad = check.misfit(document, _SHAPE_1 if first else _SHAPE)
    if bad or not known(document["predicate"]["kind"]):
        bad = bad or "kind"
        raise check.CheckError("batch", f"what it states is not what a batch states: {bad} does not fit")
    names = tuple(one["name"] for one in document["subject"])
    told = {"origin": None, "version": 1} if first else {}
    statement = BatchStatement(**(told | document["predicate"]), submissions=names)
    if plain_json(statement.document()).encode() != payload:
        raise check.CheckError("batch", "the statement is not in its canonical form")
    return payload, statement


def _check(batch: Batch, file: Path | None) -> None:
    """Refuse a batch that is too large, or whose records are not those that its statement speaks of."""

    def refuse(what: str, line: int | None = None, hint: str = _AGAIN) -> BadInput:
        return BadInput(what, file=file, line=line, hint=hint)

    said, slots = batch.statement, dict[tuple[object, ...], Evidence]()
    size = len(batch.envelope) + sum(map(len, batch.bodies)) + len(batch.bodies) + 1
    if len(batch.records) > RECORDS or size > BATCH_BYTES or len(batch.envelope) > check.ENVELOPE_BYTES:
        limits = f"{RECORDS} records, {BATCH_BYTES} bytes, an envelope of {check.ENVELOPE_BYTES} bytes"
        raise refuse(f"is larger than a batch may be: {limits}", hint="sign less at once")
    for number, one in enumerate(batch.records):
        if (one.epoch, one.validator) != (said.epoch, said.validator):
            raise refuse(f"is not of {brief(said.validator)} and epoch {said.epoch}", number + 2)
        if number and batch.digests[number - 1] >= batch.digests[number]:
            raise refuse("is not in the order of the digests, each once", number + 2)
        earlier = slots.setdefault(one.slot, one)
        if earlier is not one and earlier.content != one.content:
            raise refuse("contradicts another record of the batch", number + 2, "keep the one that is meant")
    if root_of(batch.digests) != said.root:
        raise refuse("the records are not those that were signed: another root")
    if _submissions(batch.records) != said.submissions:
        raise refuse("the records are not of the submissions that are its subjects")
