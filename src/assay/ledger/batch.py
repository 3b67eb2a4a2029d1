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
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from hashlib import sha256
from operator import lt
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from assay.errors import BadInput, brief
from assay.exact import canonical
from assay.folder.evidence import parse
from assay.folder.files import LINE_BYTES, Place, load
from assay.kind import find, known
from assay.ledger import check, record_lines
from assay.ledger.keys import PrivateKey, PublicKey, as_bad_input, public, sign_envelope
from assay.ledger.merkle import Proof, Tree, root
from assay.ledger.record_lines import RecordColumns, columns_of
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


def read_columns(lines: Sequence[bytes], kind: str, file: Path | str | None, first: int) -> RecordColumns:
    """The columns of the records on lines of canonical JSON. `first`, and what it raises: as `read_records`."""
    columns = record_lines.matched(lines, kind) if record_lines.decides(kind) else None
    return columns_of(read_records(lines, kind, file, first)) if columns is None else columns


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
    flat = record_lines.matched(lines, kind) is not None  # they are in that form: each field once, and no object inside
    records = records_on(lines, kind, flat=flat)
    if records is None:
        return []
    return records if flat or plain_json(_documents(records, kind)).encode() == b"[%b]" % b",".join(lines) else []


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

    envelope: the first line as it came; signed: the same, decoded. bodies (canonical JSON), digests (32 bytes) and columns are of
    its records, in the order of the digests.
    """

    envelope: bytes
    signed: check.Envelope
    statement: BatchStatement
    bodies: tuple[bytes, ...]
    digests: tuple[bytes, ...]
    columns: RecordColumns = field(compare=False, repr=False)

    @property
    def payload(self) -> bytes:
        """The bytes of the statement."""
        return self.signed.payload

    @cached_property
    def digest(self) -> str:
        """`sha256:…` of the payload: what names the batch."""
        return f"sha256:{sha256(self.payload).hexdigest()}"

    @cached_property
    def records(self) -> tuple[Evidence, ...]:
        """The records as objects, which the intake of a batch without a conflict does not need."""
        return tuple(read_records(self.bodies, self.statement.kind, None, 2))

    @cached_property
    def slots(self) -> list[bytes]:
        """The slots of the records as 16 bytes each, in their order."""
        return _slots(self.columns, self.statement.kind)

    @cached_property
    def participants(self) -> frozenset[str]:
        """The participants whom its records are about."""
        return frozenset(name.decode() for name in {*self.columns.participants})

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
    columns = columns_of([item for _, (_, item) in rows])
    statement = BatchStatement(
        origin, competition, epoch, kind, validator, task_set, len(rows), root_of(digests), _submissions(columns)
    )
    envelope = canonical(sign_envelope(canonical(statement.document()), signer))
    batch = Batch(envelope, parsed(envelope), statement, tuple(body for _, (body, _) in rows), digests, columns)
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
        signed, statement = stated(envelope)
    if len(bodies) != statement.count or len(bodies) > RECORDS:
        what = f"has {len(bodies)} records, but its statement counts {statement.count}, and the most is {RECORDS}"
        raise BadInput(what, file=file, hint=_AGAIN)
    columns = read_columns(bodies, statement.kind, file, 2)
    batch = Batch(envelope, signed, statement, tuple(bodies), tuple([sha256(body).digest() for body in bodies]), columns)
    _check(batch, file)
    return batch


def check_signature(batch: Batch, key: PublicKey) -> None:
    """Raise BadInput unless this key is the one that the batch's statement names as its validator, and signed the batch."""
    if public(batch.statement.validator) != key:
        what = f"the statement names {brief(batch.statement.validator)} as its validator, but the key given is {key}"
        raise BadInput(what, field="validator", hint="check a batch with the key of the validator that it names")
    with as_bad_input("somebody else made the batch, or it was changed", field=batch.statement.validator):
        check_envelope(batch.signed, key)


def check_envelope(signed: check.Envelope, key: PublicKey) -> None:
    """Raise `check.CheckError` for an envelope that this key did not sign, or that names another key beside a signature."""
    check.check_envelope(signed, [key], "batch")
    other = next((name for name, _ in signed.signatures if name not in ("", key.id)), None)
    if other is not None:
        raise check.CheckError("batch", "the signature names another key", key.id, other)


def record_proof(batch: Batch, digest: bytes) -> Proof:
    """The proof that the record with this digest (32 bytes) is in the batch; raises BadInput if it is not."""
    if digest not in batch.digests:
        raise BadInput(f"the record {digest.hex()} is not in the batch {batch.digest}", hint="look in another batch")
    return Tree([check.leaf_hash(leaf) for leaf in batch.digests]).inclusion(batch.digests.index(digest))


def root_of(digests: Sequence[bytes]) -> str:
    """The root that a batch states of its records: RFC 6962 over their distinct digests, ascending."""
    leaves = [sha256(b"\0" + digest).digest() for digest in digests]  # as `check.leaf_hash`, without a call for each
    return f"sha256:{root(leaves).hex()}"


def slot_of(item: Evidence) -> bytes:
    """The slot of a record as 16 bytes: 8 of SHA-256 of its run, then 8 of the whole. No part of a slot has a zero byte in it."""
    slot = item.slot
    run = run_of(*slot[:3])
    return run + sha256(run + "\0".join(map(str, slot[3:])).encode()).digest()[:8]


def slots_of(items: Sequence[Evidence]) -> list[bytes]:
    """The slots of records of one kind, as `slot_of` gives each."""
    return _slots(columns_of(items), items[0].kind) if items else []


def _slots(columns: RecordColumns, kind: str) -> list[bytes]:
    """The slots of records of a kind, from their columns: a run is hashed once."""
    shared = find(kind).record.shared_key
    abouts, parts = columns.submissions if shared else columns.participants, columns.parts
    tails: Sequence[bytes] = parts[0] if len(parts) == 1 else [b"\0".join(row) for row in zip(*parts, strict=True)]
    if shared and b"" in abouts:
        rows = zip(*parts, abouts, columns.participants, strict=True)
        tails = [b"\0".join(row if about else (*row, participant)) for *row, about, participant in rows]
    tails = tails or [b""] * len(abouts)
    if len({*abouts}) == len({*columns.validators}) == 1:
        run = run_of(kind, columns.validators[0].decode(), abouts[0].decode())
        return [run + sha256(run + tail).digest()[:8] for tail in tails]
    pairs = list(zip(columns.validators, abouts, strict=True))
    runs = {pair: run_of(kind, *(name.decode() for name in pair)) for pair in {*pairs}}
    return [runs[pair] + sha256(runs[pair] + tail).digest()[:8] for pair, tail in zip(pairs, tails, strict=True)]


@lru_cache(maxsize=4096)
def run_of(*parts: object) -> bytes:
    """The 8 bytes with which the slots of a run begin. parts: kind, validator, submission or participant."""
    return sha256("\0".join(map(str, parts)).encode()).digest()[:8]


def _submissions(columns: RecordColumns) -> tuple[str, ...]:
    return tuple(name.decode() for name in sorted({*columns.submissions}))


def _submission_digest(name: str) -> str:
    """The hex digits in a submission's name, if it is a digest; otherwise the SHA-256 of the name."""
    return name.removeprefix("sha256:") if re.fullmatch(check.DIGEST, name) else sha256(name.encode()).hexdigest()


def parsed(envelope: bytes) -> check.Envelope:
    """A batch's envelope, decoded; raises `check.CheckError`."""
    return check.Envelope.parse(check.parse_json(envelope, "batch"), "batch")


def stated(envelope: bytes) -> tuple[check.Envelope, BatchStatement]:
    """A batch's envelope, decoded, and its statement, which must be in canonical form; raises `check.CheckError`."""
    plain = _plainly_stated(envelope)
    if plain is not None:
        return plain
    signed = parsed(envelope)
    payload = signed.payload
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
    return signed, statement


_NAME = rb'"([^"\\\x00-\x1f\x7f]+)"'
_COUNT, _DIGEST, _PREDICATE_TYPE = rb"(0|[1-9][0-9]{0,14})", check.DIGEST.encode(), re.escape(PREDICATE.encode())
_ENVELOPE = re.compile(
    rb'\{"payload":"([^"]+)","payloadType":"%b","signatures":\[\{"keyid":"([0-9a-z:]+)","sig":"([^"]+)"\}\]\}'
    % re.escape(check.IN_TOTO.encode())
)
_PAYLOAD = re.compile(
    rb'\{"_type":"%b","predicate":\{"competition":%b,"count":%b,"epoch":%b,"kind":%b,"origin":%b,"root":"(%b)",'
    rb'"task_set":(null|"%b"),"validator":%b\},"predicateType":"%b","subject":\[\{"digest":\{"sha256":"([0-9a-f]{64})"\},"name":%b\}\]\}'
    % (re.escape(check.STATEMENT.encode()), _NAME, _COUNT, _COUNT, _NAME, _NAME, _DIGEST, _DIGEST, _NAME, _PREDICATE_TYPE, _NAME)
)


def _plainly_stated(envelope: bytes) -> tuple[check.Envelope, BatchStatement] | None:
    """The same of an envelope as `make` writes it for one submission; None for any other, which `stated` reads or refuses."""
    outer = _ENVELOPE.fullmatch(envelope) if len(envelope) <= check.ENVELOPE_BYTES else None
    if outer is None:
        return None
    try:
        payload, signature = a2b_base64(outer[1]), a2b_base64(outer[3])
        whole = (b2a_base64(payload, newline=False), b2a_base64(signature, newline=False)) == (outer[1], outer[3])
        match = _PAYLOAD.fullmatch(payload) if whole else None
        if match is None:
            return None
        competition, count, epoch, kind, origin, root_, task_set, validator, digest, name = map(bytes.decode, match.groups())
    except ValueError:  # not base64, or not UTF-8
        return None
    if digest != _submission_digest(name) or not known(kind):
        return None
    chosen = None if task_set == "null" else task_set[1:-1]
    statement = BatchStatement(origin, competition, int(epoch), kind, validator, chosen, int(count), root_, (name,))
    return check.Envelope(check.IN_TOTO, payload, ((outer[2].decode(), signature),)), statement


def _check(batch: Batch, file: Path | None) -> None:
    """Raise BadInput for a batch that is too large, or whose records do not fit its statement."""

    def refuse(what: str, line: int | None = None, hint: str = _AGAIN) -> BadInput:
        return BadInput(what, file=file, line=line, hint=hint)

    statement, columns, slots = batch.statement, batch.columns, dict[tuple[object, ...], Evidence]()
    size = len(batch.envelope) + sum(map(len, batch.bodies)) + len(batch.bodies) + 1
    if len(batch.bodies) > RECORDS or size > BATCH_BYTES or len(batch.envelope) > check.ENVELOPE_BYTES:
        limits = f"{RECORDS} records, {BATCH_BYTES} bytes, an envelope of {check.ENVELOPE_BYTES} bytes"
        raise refuse(f"is larger than a batch may be: {limits}", hint="sign fewer records at once")
    mine, ascending = (statement.epoch, statement.validator), all(map(lt, batch.digests, batch.digests[1:]))
    alike = {*columns.epochs} == {b"%d" % statement.epoch} and {*columns.validators} == {statement.validator.encode()}
    if not alike or not ascending or len({*batch.slots}) < len(batch.bodies):
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
    if _submissions(columns) != statement.submissions:
        raise refuse("the records are not of the submissions that are its subjects")
