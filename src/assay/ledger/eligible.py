"""Find what a settlement is computed from: its inputs document, the evidence that counts, the records behind each result.

The inputs document (SPEC 6, 7) has the scheme, the registry, tasks, history and randomness, and, if the registry was pulled from
a chain, its block. It is a case (docs/formats.md) without epoch, evidence and previous settlement. It is normalised, so it does
not depend on the order of rows or on spelling. A receipt pins it by its digest; `settled_from` turns it into the input of a
settlement, as every case is read.

The ledger keeps everything that was ever accepted. Left out of a settlement (SPEC 3.0) are

- records that were judged on another task set (their batch names it), so that they do not block the evidence of this one;
- records by validators, or about participants, who are no longer in the registry;
- records of another kind than the scheme scores now.

A record about a submission counts for whoever holds that submission. So it stays when the participant that it names has left, and
is read as if it named another one.

A result binds the count and root of the records that it rests on, so that none can be left out (SPEC 6). They are the records
that bear on the settlement, no older than `max_age_epochs`, about the participant's submission; or about the participant, if the
kind goes by participant or nothing was submitted. Of one slot, only the first accepted record is among them. The result of a
duplicate rests on no records.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from assay.errors import BadInput
from assay.exact import canonical, digest, text
from assay.folder.evidence import Gathered, Registry, gather
from assay.folder.files import Place
from assay.folder.previous import check_follows
from assay.folder.reader import EvidenceSource, parse_case
from assay.kind import find
from assay.ledger import evidence
from assay.ledger.batch import StoredRecord, stated
from assay.records import Participant
from assay.scheme.fields import instant_text
from assay.settle.inputs import Inputs, Previous

if TYPE_CHECKING:
    from numpy.typing import NDArray


Json = dict[str, Any]
INPUTS_FIELDS = ("scheme", "participants", "validators", "tasks", "history", "randomness", "registry")


def inputs_document(inputs: Inputs) -> Json:
    """The inputs document: rows sorted by key or epoch, fractions and times normalised, empty fields left out. SPEC 6."""
    registry = {} if inputs.registry is None else {"registry": inputs.registry.model_dump()}
    return registry | {
        "scheme": inputs.scheme.document(),
        "participants": [
            _participant(participant)
            for participant in sorted(inputs.participants, key=lambda participant: participant.key.encode())
        ],
        "validators": [
            _row(key=validator.key, stake=str(validator.stake), name=validator.name, failed_audit=validator.failed_audit)
            for validator in sorted(inputs.validators, key=lambda validator: validator.key.encode())
        ],
        "tasks": list(inputs.manifest),
        "history": [
            _row(epoch=row.epoch, top_score=text(row.top_score), submission=row.submission, task_set=row.task_set)
            for row in sorted(inputs.history, key=lambda row: row.epoch)
        ],
        "randomness": [{"epoch": epoch, "hex": value.hex()} for epoch, value in sorted(inputs.randomness.items())],
    }


def inputs_digest(document: Mapping[str, Any]) -> str:
    """`sha256:…` of the document's canonical JSON. SPEC 6."""
    return digest(document)


def settled_from(document: Mapping[str, Any], *, epoch: int, evidence: EvidenceSource, previous: Previous | None) -> Inputs:
    """The input of an epoch's settlement; raises BadInput as `folder.parse_case` does, and for an unknown field."""
    for name in document:
        if name not in INPUTS_FIELDS:
            raise BadInput(f"there is no field {name[:80]!r} here", hint=f"the fields are {', '.join(INPUTS_FIELDS)}")
    inputs = parse_case({**document, "epoch": epoch}, evidence=evidence)
    if previous is not None:
        check_follows(previous, inputs.scheme, epoch)
    return replace(inputs, previous=previous)


def _participant(participant: Participant) -> Json:
    return _row(
        key=participant.key,
        uid=participant.uid,
        name=participant.name,
        submission=participant.submission,
        submitted_at=None if participant.submitted_at is None else instant_text(participant.submitted_at),
        last_reset_epoch=participant.last_reset_epoch,
        accepted_epoch=participant.accepted_epoch,
        address=participant.address,
    )


def _row(**fields: object) -> Json:
    return {name: value for name, value in fields.items() if value is not None and value != ""}


MANY = 20_000
"""More records than this, of kind tests, are read through Parquet, not one by one."""


class BatchTaskSet(NamedTuple):
    """The task set of a batch's records, and their seqs as ranges, first and last included."""

    task_set: str | None
    members: Sequence[Sequence[int]]


if TYPE_CHECKING:
    Numbers = NDArray[np.int64]


def judged(envelope: bytes, members: Sequence[Sequence[int]]) -> BatchTaskSet:
    """The task set on which a batch's records were judged, by its envelope."""
    return BatchTaskSet(stated(envelope)[1].task_set, members)


def left_out(batches: Iterable[BatchTaskSet], task_set: str | None) -> NDArray[np.int64]:
    """The seqs of records that are only in batches of other task sets, ascending; none if the settlement has no task set."""
    if task_set is None:
        return np.empty(0, np.int64)
    others, same = list[Sequence[int]](), list[Sequence[int]]()
    for batch in batches:
        (others if batch.task_set not in (None, task_set) else same).extend(batch.members)
    if not others:
        return np.empty(0, np.int64)
    return np.setdiff1d(_numbers(others), _numbers(same))


def _numbers(ranges: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    return np.concatenate([np.empty(0, np.int64), *(np.arange(first, last + 1) for first, last in ranges)])


@contextmanager
def from_records(records: Iterable[tuple[int, bytes]], without: NDArray[np.int64], *, many: bool) -> Iterator[EvidenceSource]:
    """The ledger's evidence (seq, canonical JSON), for as long as the block lasts; `many`: through Parquet."""
    if not many:
        yield lambda known: gathered(records, known, without)
        return
    with TemporaryDirectory(prefix="assay-ledger-") as place:

        def written(known: Registry) -> tuple[Path, ...]:
            whole = Path(place) / "evidence.parquet"
            evidence.write_parquet(whole, _of_kind(records, known.kind))
            return (_fitting(whole, without, known, Path(place)),)

        yield written


def _of_kind(records: Iterable[tuple[int, bytes]], kind: str) -> Iterator[tuple[int, bytes]]:
    """The records of a kind: the rules, and with them the kind, may have changed between two epochs."""
    field = b'"kind":'
    pattern = field + canonical(kind)
    for seq, body in records:
        if pattern in body and (body.count(field) == 1 or json.loads(body)["kind"] == kind):
            yield seq, body


@contextmanager
def from_files(
    paths: Sequence[Path], records: Callable[[], Iterable[tuple[int, bytes]]], without: NDArray[np.int64]
) -> Iterator[EvidenceSource]:
    """The evidence in files of a bundle; `records` reads them one by one, unless all of them are Parquet.

    A Parquet file has one kind of records; those of another kind than the scheme's are not read.
    A stranger's Parquet is written again, with only the columns of which the digests were taken, each once, and with statistics
    (such as the lowest value of a row group) that are true.
    """
    if not paths or any(path.suffix != ".parquet" for path in paths):
        yield lambda known: gathered(records(), known, without)
        return
    with TemporaryDirectory(prefix="assay-ledger-") as place:
        yield (
            lambda known: (
                tuple(
                    _fitting(_copied(path, Path(place)), without, known, Path(place))
                    for path in paths
                    if evidence.parquet_kind(path) == known.kind
                )
                or Gathered()
            )
        )


def gathered(records: Iterable[tuple[int, bytes]], known: Registry, without: NDArray[np.int64] | None = None) -> Gathered:
    """The records (seq, canonical JSON) that bear on the settlement, checked as those of a folder are."""
    gone, shared = frozenset(() if without is None else without.tolist()), find(known.kind).record.shared_key
    somebody = min(known.participants)
    values = []
    for seq, body in records:
        value: dict[str, Any] = json.loads(body)
        if seq in gone or value["kind"] != known.kind or value["validator"] not in known.validators:
            continue
        if value["participant"] not in known.participants:
            if not shared or not value["submission"]:
                continue
            value["participant"] = somebody
        values.append(value | {"seq": seq})
    return gather(values, Place(), known)


def _copied(path: Path, place: Path) -> Path:
    """A copy of a Parquet file in `place`, with statistics of our own."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = evidence.parquet_columns(path)
    target = place / f"copied-{path.name}"
    with pq.ParquetFile(path, read_dictionary=[name for name, repeats in columns.items() if repeats]) as file:
        schema = pa.schema([file.schema_arrow.field(name) for name in columns])
        with pq.ParquetWriter(target, schema, compression="lz4", store_schema=False) as writer:
            for batch in file.iter_batches(evidence.PARQUET_ROWS, columns=list(columns)):
                writer.write_batch(batch.select(list(columns)))
    return target


def _fitting(path: Path, without: NDArray[np.int64], known: Registry, place: Path) -> Path:
    """The file itself if nothing is to be left out; otherwise what is left of it, in a new file in `place`."""
    return path if not len(without) and _all_known(path, known) else _rest(path, without, known, place)


def _all_known(path: Path, known: Registry) -> bool:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    names = {"validator": known.validators, "participant": known.participants}
    with pq.ParquetFile(path, read_dictionary=list(names)) as file:
        return all(
            set(pc.unique(batch.column(name)).to_pylist()) <= keys
            for batch in file.iter_batches(columns=list(names))
            for name, keys in names.items()
        )


def _rest(path: Path, without: NDArray[np.int64], known: Registry, place: Path) -> Path:
    """The file without the records that do not count."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    validators, participants = pa.array(sorted(known.validators)), pa.array(sorted(known.participants))
    target = place / f"standing-{path.name}"
    with pq.ParquetFile(path) as file, pq.ParquetWriter(target, file.schema_arrow) as writer:
        for batch in file.iter_batches():
            known_participant = pc.is_in(batch.column("participant"), participants)
            stays = pc.and_(
                pc.is_in(batch.column("validator"), validators),
                pc.or_(known_participant, pc.not_equal(batch.column("submission"), "")),
            )
            stays = pc.and_not(stays, pc.is_in(batch.column("seq"), pa.array(without, batch.column("seq").type)))
            named = pc.if_else(known_participant, batch.column("participant"), participants[0])
            changed = batch.set_column(batch.schema.get_field_index("participant"), "participant", named)
            writer.write_batch(changed.filter(stays))
    return target


def records_behind_results(
    records: Iterable[StoredRecord], inputs: Json, settlement: Mapping[str, Any], without: Container[int]
) -> Iterator[tuple[str, int, StoredRecord]]:
    """(participant, epoch, record) of each record that a result rests on, in order of acceptance.

    records: all up to the settlement's epoch, in that order. inputs: its inputs document. without: the seqs that are left out
    because they belong to another task set.
    """
    scheme = inputs["scheme"]
    kind, age = scheme["score"]["kind"], scheme["consensus"].get("max_age_epochs")
    oldest = 0 if age is None else settlement["epoch"] - age
    validators = {validator["key"] for validator in inputs["validators"]}
    model = find(kind).record
    shared, rows = model.shared_key, [row for row in settlement["agreed"] if row["duplicate_of"] is None]
    submitted = {row["submission"]: row["participant"] for row in rows if shared and row["submission"]}
    others = {row["participant"] for row in rows} - set(submitted.values())
    taken: set[tuple[object, ...]] = set()
    for stored in records:
        value: Json = json.loads(stored.body)
        if value["kind"] != kind or value["epoch"] < oldest or value["validator"] not in validators or stored.seq in without:
            continue
        by_submission = shared and value["submission"]
        about = submitted.get(value["submission"]) if by_submission else value["participant"]
        if about is None or not (by_submission or about in others):
            continue
        slot = (about, value["validator"], *(value[name] for name in model.parts))
        if slot not in taken:
            taken.add(slot)
            yield about, value["epoch"], stored


def bind_results(
    records: Iterable[StoredRecord], inputs: Json, settlement: Mapping[str, Any], without: Container[int]
) -> dict[str, Json]:
    """Participant → count and root of the records that its result rests on; the root is made as for a receipt. SPEC 6."""
    bound: dict[str, tuple[list[int], list[bytes]]] = {row["participant"]: ([], []) for row in settlement["agreed"]}
    for participant, _, stored in records_behind_results(records, inputs, settlement, without):
        seqs, digests = bound[participant]
        seqs.append(stored.seq)
        digests.append(stored.digest)
    return {name: {"root": evidence.evidence_root(*both), "count": len(both[0])} for name, both in bound.items()}
