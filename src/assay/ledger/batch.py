"""Make and read signed batches: records of one validator under one signature, each provable alone. SPEC 6.

A file `*.batch` is a DSSE envelope on the first line, then its records, one a line, in canonical JSON without `seq`, each once,
in the order of their digests. The envelope's payload is an in-toto statement. Its subjects are the submissions. Its predicate
names the log in whose ledger the batch counts (by origin), competition, epoch, kind, validator, task set, the count of records
and the RFC 6962 root over their digests. Two records of a batch never contradict one another.

Version 1 of the statement names no log, so the same batch would count in any ledger of a competition of that name. Ledgers that
have such batches keep them, and they can be read; no such batch is made or accepted any more.

Records are read many at once, at a few microseconds a record, yet every byte is checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from hashlib import sha256
from operator import attrgetter, lt
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from assay.errors import BadInput, brief
from assay.exact import canonical
from assay.folder.evidence import parse
from assay.folder.files import LINE_BYTES, Place, load
from assay.kind import find, known
from assay.ledger import check
from assay.ledger.keys import PrivateKey, PublicKey, as_bad_input, public, sign_envelope
from assay.ledger.merkle import Proof, Tree, root
from assay.records import Evidence, record
from assay.records import records as records_on

plain_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
"""Canonical JSON (RFC 8785) by Python's own encoder, for values without fractions and without keys beyond ASCII."""


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

    Python's own encoder suffices, except for records that hold arbitrary JSON, whose numbers and keys it may write differently.
    """
    if find(kind).record.holds_json:
        return [canonical(item.document()) for item in records]
    return [plain_json(document).encode() for document in _documents(records, kind)]


def _documents(records: Sequence[Evidence], kind: str) -> Any:
    return _records_adapter(kind).dump_python(list(records), mode="json", exclude_none=True, exclude={"__all__": {"seq"}})


def read_records(lines: Sequence[bytes], kind: str, file: Path | str | None, first: int) -> list[Evidence]:
    """The records on lines of canonical JSON, of one kind; `first` is the number of the first line.

    Raises BadInput, with the line, for one that is too long, is not a record of the kind, or is not in canonical form.
    """
    longest = max(map(len, lines), default=0)
    if longest > LINE_BYTES:
        at = next(number for number, line in enumerate(lines, first) if len(line) == longest)
        raise BadInput(f"the line is longer than {LINE_BYTES} bytes", file=file, line=at, hint="write one record a line")
    return _read_together(lines, kind) or [
        _read_record(line, kind, Place(file, number)) for number, line in enumerate(lines, first)
    ]


def _read_together(lines: Sequence[bytes], kind: str) -> list[Evidence]:
    """The records on lines, parsed together and held to their canonical form; none if they must be read one by one."""
    form = _canonical_line(kind)
    if form is not None:  # this form has each field once, and no object inside
        return (records_on(lines, kind, flat=True) or []) if all(map(form.fullmatch, lines)) else []
    found = records_on(lines, kind)
    if found is None:
        return []
    return found if plain_json(_documents(found, kind)).encode() == b"[%b]" % b",".join(lines) else []


_FORMS = {
    "count": rb"(?:0|[1-9][0-9]*)",
    "flag": rb"(?:true|false)",
    "nanos": rb'"(?:0|[1-9][0-9]*)(?:\.[0-9]*[1-9])?"',
    "instant": rb'"[0-9T:-]{19}(?:\.(?!000000)[0-9]{6})?Z"',
}
"""The pattern of a field in canonical JSON, where it was read already; the others are texts without an escape."""


@cache
def _canonical_line(kind: str) -> re.Pattern[bytes] | None:
    """The pattern of the canonical line of a record that `records_on` has read: every field, in order, in its one spelling.

    None for a kind that is not read as arrays, or holds JSON of others.
    """
    rules = find(kind)
    if not rules.in_bulk or rules.record.holds_json:
        return None
    pieces = {"kind": b'"kind":"%b"' % re.escape(kind.encode())}
    for column in rules.columns(None):
        if column.name != "seq":
            pieces[column.name] = b'"%b":%b' % (column.name.encode(), _FORMS.get(column.form, rb'"[^"]*"'))
    optional = {column.name for column in rules.columns(None) if column.form == "note"}
    last = max(pieces.keys() - optional)
    before = [b"(?:%b,)?" % pieces[name] if name in optional else b"%b," % pieces[name] for name in sorted(pieces) if name < last]
    after = [b"(?:,%b)?" % pieces[name] for name in sorted(pieces) if name > last]
    return re.compile(rb"\{%b%b%b\}" % (b"".join(before), pieces[last], b"".join(after)))


def _read_record(line: bytes, kind: str, place: Place) -> Evidence:
    value = parse(line, place)
    named = value.get("kind") if isinstance(value, dict) else None
    if named != kind:
        raise place.refuse(f"is not of the kind {kind!r}", field="kind", hint="all records of a batch have one kind")
    try:
        parsed = record(value)
    except BadInput as error:
        raise place.put(error) from None
    if canonical(parsed.document()) != line:
        raise place.refuse("is not in its canonical form", hint="sign the evidence again: assay evidence sign")
    return parsed


RECORDS = 100_000
"""The most records of one batch."""
BATCH_BYTES = 64 * 2**20
"""The most bytes of one batch."""
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
    """The statement that a validator signs: log, competition, epoch, kind, task set, submissions, the records' count and root.

    origin: the log's; None if the evidence is for no log, and no ledger accepts it. Version 1 names none.
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
    """A batch whose records fit its statement. `check_signature` checks who signed it.

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

    @cached_property
    def slots(self) -> list[bytes]:
        """The slots of the records as 16 bytes each, in their order."""
        return slots_of(self.records)

    @property
    def data(self) -> bytes:
        """The bytes of its file."""
        return b"\n".join((self.envelope, *self.bodies, b""))


def make(
    records: Iterable[Evidence], *, origin: str | None, competition: str, task_set: str | None, signer: PrivateKey, validator: str
) -> Batch:
    """The signed batch of records of one validator, epoch and kind; a record that is given twice is in it once.

    origin: that of the log in whose ledger it counts; None: in no ledger. validator: its key as the registry spells it, which
    must be the signer's. Raises BadInput if there are no records or too many, or if they do not belong together or contradict one
    another.
    """
    if public(validator) != signer.public:
        raise BadInput(f"{brief(validator)} is not the key that signs, {signer.public}", hint="sign with the validator's own key")
    given = list(records)
    if not given:
        raise BadInput("there are no records to sign", hint="is this the right validator and epoch?")
    kind, epoch = given[0].kind, given[0].epoch
    for item in given:
        if (item.kind, item.epoch, item.validator) != (kind, epoch, validator):
            raise BadInput(
                f"a record of {brief(item.validator)}, epoch {item.epoch}, kind {item.kind} is not of {brief(validator)}, "
                f"epoch {epoch}, kind {kind}",
                hint="a batch has one validator, epoch and kind",
            )
    bodies = record_bodies(given, kind)
    rows = sorted({sha256(body).digest(): (body, item) for body, item in zip(bodies, given, strict=True)}.items())
    digests = tuple(digest for digest, _ in rows)
    unique = tuple(item for _, (_, item) in rows)
    statement = BatchStatement(
        origin, competition, epoch, kind, validator, task_set, len(rows), root_of(digests), _submissions(unique)
    )
    payload = canonical(statement.document())
    envelope = canonical(sign_envelope(payload, signer))
    batch = Batch(envelope, payload, statement, unique, tuple(body for _, (body, _) in rows), digests)
    _check(batch, None)
    return batch


def read(source: bytes | Path) -> Batch:
    """The batch in a file or in bytes; raises BadInput, with the line, for anything but a batch as `make` makes it.

    The signature is not checked: `check_signature` does that.
    """
    file = source if isinstance(source, Path) else None
    data = load(source, BATCH_BYTES, hint="give a batch that `assay evidence sign` wrote") if isinstance(source, Path) else source
    envelope, *bodies, end = data.split(b"\n", RECORDS + 2) if b"\n" in data else (data, b"-")
    if len(data) > BATCH_BYTES or end or not bodies:
        raise BadInput("is not a batch: an envelope and records, each on a line", file=file, hint=_AGAIN)
    with as_bad_input(_AGAIN, file=file, line=1):
        payload, statement = stated(envelope)
    if len(bodies) != statement.count or len(bodies) > RECORDS:
        what = f"has {len(bodies)} records, but its statement counts {statement.count}, and the most is {RECORDS}"
        raise BadInput(what, file=file, hint=_AGAIN)
    records = read_records(bodies, statement.kind, file, 2)
    digests = tuple(sha256(body).digest() for body in bodies)
    batch = Batch(envelope, payload, statement, tuple(records), tuple(bodies), digests)
    _check(batch, file)
    return batch


def check_signature(batch: Batch, key: PublicKey) -> None:
    """Raise BadInput unless this key is the one that the batch's statement names as its validator, and signed the batch."""
    if public(batch.statement.validator) != key:
        what = f"the statement names {brief(batch.statement.validator)} as its validator, but the key given is {key}"
        raise BadInput(what, field="validator", hint="check a batch with the key of the validator that it names")
    with as_bad_input("somebody else made the batch, or it was changed", field=batch.statement.validator):
        check_envelope(batch.envelope, key)


def check_envelope(envelope: bytes, key: PublicKey) -> None:
    """Raise `check.CheckError` for an envelope that this key did not sign, or that names another key beside a signature."""
    parsed = check.Envelope.parse(check.parse_json(envelope, "batch"), "batch")
    check.check_envelope(parsed, [key], "batch")
    other = next((name for name, _ in parsed.signatures if name not in ("", key.id)), None)
    if other is not None:
        raise check.CheckError("batch", "the signature names another key", key.id, other)


def record_proof(batch: Batch, digest: bytes) -> Proof:
    """The proof that the record with this digest (32 bytes) is in the batch; raises BadInput if it is not."""
    if digest not in batch.digests:
        raise BadInput(f"the record {digest.hex()} is not in the batch {batch.digest}", hint="look in another batch")
    return Tree([check.leaf_hash(leaf) for leaf in batch.digests]).inclusion(batch.digests.index(digest))


def root_of(digests: Sequence[bytes]) -> str:
    """The root that a batch states of its records: RFC 6962 over their distinct digests, ascending."""
    return f"sha256:{root([check.leaf_hash(digest) for digest in digests]).hex()}"


def slot_of(item: Evidence) -> bytes:
    """The slot of a record as 16 bytes: 8 of SHA-256 of its run, then 8 of the whole. No part of a slot has a zero byte in it."""
    slot = item.slot
    return _slot(run_of(*slot[:3]), slot[3:])


def slots_of(items: Sequence[Evidence]) -> list[bytes]:
    """The slots of records of one kind, as `slot_of` gives each: a run is hashed once, and no record's slot is put together."""
    if not items:
        return []
    model, runs, slots = type(items[0]), dict[tuple[str, str], bytes](), list[bytes]()
    kind, shared = items[0].kind, model.shared_key
    fields = attrgetter("validator", "submission", "participant", *model.parts)
    for validator, submission, participant, *parts in map(fields, items):
        about = submission if shared else participant
        run = runs.get((validator, about))
        if run is None:
            run = runs[validator, about] = run_of(kind, validator, about)
        if shared and not submission:
            parts.append(participant)
        slots.append(_slot(run, parts))
    return slots


def _slot(run: bytes, parts: Sequence[object]) -> bytes:
    return run + sha256(run + "\0".join(map(str, parts)).encode()).digest()[:8]


@lru_cache(maxsize=4096)
def run_of(*parts: object) -> bytes:
    """The 8 bytes with which the slots of a run begin. parts: kind, validator, submission or participant."""
    return sha256("\0".join(map(str, parts)).encode()).digest()[:8]


def _submissions(records: Iterable[Evidence]) -> tuple[str, ...]:
    return tuple(sorted(set(map(attrgetter("submission"), records)), key=str.encode))


def _submission_digest(name: str) -> str:
    """The hex digits in a submission's name, if it is a digest; otherwise the SHA-256 of the name."""
    return name.removeprefix("sha256:") if re.fullmatch(check.DIGEST, name) else sha256(name.encode()).hexdigest()


def stated(envelope: bytes) -> tuple[bytes, BatchStatement]:
    """The payload of a batch's envelope, and its statement, which must be in canonical form; raises `check.CheckError`."""
    payload = check.Envelope.parse(check.parse_json(envelope, "batch"), "batch").payload
    document = check.parse_json(payload, "batch")
    first = isinstance(document, dict) and document.get("predicateType") == FIRST
    bad = check.misfit(document, _SHAPE_1 if first else _SHAPE)
    if bad or not known(document["predicate"]["kind"]):
        bad = bad or "kind"
        raise check.CheckError("batch", f"its statement is not a batch's: {bad} does not fit")
    names = tuple(subject["name"] for subject in document["subject"])
    defaults = {"origin": None, "version": 1} if first else {}
    statement = BatchStatement(**(defaults | document["predicate"]), submissions=names)
    if plain_json(statement.document()).encode() != payload:
        raise check.CheckError("batch", "the statement is not in its canonical form")
    return payload, statement


def _check(batch: Batch, file: Path | None) -> None:
    """Raise BadInput for a batch that is too large, or whose records do not fit its statement."""

    def refuse(what: str, line: int | None = None, hint: str = _AGAIN) -> BadInput:
        return BadInput(what, file=file, line=line, hint=hint)

    statement, slots = batch.statement, dict[tuple[object, ...], Evidence]()
    size = len(batch.envelope) + sum(map(len, batch.bodies)) + len(batch.bodies) + 1
    if len(batch.records) > RECORDS or size > BATCH_BYTES or len(batch.envelope) > check.ENVELOPE_BYTES:
        limits = f"{RECORDS} records, {BATCH_BYTES} bytes, an envelope of {check.ENVELOPE_BYTES} bytes"
        raise refuse(f"is larger than a batch may be: {limits}", hint="sign fewer records at once")
    mine, ascending = (statement.epoch, statement.validator), all(map(lt, batch.digests, batch.digests[1:]))
    whose = set(map(attrgetter("epoch", "validator"), batch.records))
    if whose != {mine} or not ascending or len(set(batch.slots)) < len(batch.records):
        for number, item in enumerate(batch.records):
            if (item.epoch, item.validator) != mine:
                raise refuse(f"is not of {brief(statement.validator)} and epoch {statement.epoch}", number + 2)
            if number and batch.digests[number - 1] >= batch.digests[number]:
                raise refuse("is not in the order of the digests, each once", number + 2)
            earlier = slots.setdefault(item.slot, item)
            if earlier is not item and earlier.content != item.content:
                raise refuse("contradicts another record of the batch", number + 2, "keep the record that is meant")
    if root_of(batch.digests) != statement.root:
        raise refuse("the records are not those that were signed: their root differs")
    if _submissions(batch.records) != statement.submissions:
        raise refuse("the records are not of the submissions that are its subjects")
