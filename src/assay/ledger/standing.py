"""Keep what the next settlement needs of the evidence of closed epochs, so that settling costs what is new. SPEC 3.0, 6.

Once an epoch has its receipt, nothing more counts of it or of an earlier one (`assay.ledger.counting`). So whatever follows from
the records of closed epochs is final. In a ledger with more than `MANY` records, each receipt stores it in the table `standing`,
in its own transaction: a row for each current submission (or participant: `Record.shared_key`, and where nothing is submitted).
The next epoch reads these rows and the records that came since.

    {"count":89,"first":[1,1],"hashes":["…"],"last":89,"sums":{"VALIDATOR":[89,73,89]}}

- `count`, `hashes`: of the records on which the result rests, the frontier of their Merkle tree: its root needs only new leaves.
- `last`: the largest seq of any record about it. If a new record has a lower one, it was accepted before some that counted when
  its epoch was still ahead; the row is made again from the records, which the index of slots finds.
- `first`: the lowest epoch of any such record, and its seq.
- `sums` (tests, if each validator has its score): for each validator what `Kind.counts` gives, added up. `kept` (all others): the
  seqs, as ranges, of the records that `Kind.lasting` chose. These are read again.

The row "" is a statement that the log's key signed. It names the receipt, the rules of counting, the validators who sent
evidence, and a digest over all rows. Rows that differ from it are damage, since a row stands for evidence. Rows of another
receipt, of other rules, or of other validators (one left, or is back) are stale. They are passed over, and the next receipt
stores new ones. The row "!" has what service errors took out (`Kind.spoils`).

No row is used where a settlement depends on more than the rows say: with `max_age_epochs`, which bounds what is read anyhow, and
with `assign` if somebody has submitted nothing. `assay.ledger.eligible` has the settlement from all records, which is the same.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from itertools import islice
from typing import Any

from assay.exact import canonical, digest
from assay.folder.evidence import Gathered
from assay.folder.reader import EvidenceSource
from assay.kind import Kind
from assay.ledger import check, eligible, evidence
from assay.ledger.batch import StoredRecord, plain_json, run_of
from assay.ledger.check import LogKey
from assay.ledger.counting import CountedView
from assay.ledger.keys import PrivateKey, sign_envelope
from assay.ledger.merkle import Frontier
from assay.ledger.store import Damaged, RecordRow, View, Writer, runs
from assay.ledger.store.tables import ranges_of
from assay.records import Participant
from assay.settle.inputs import Frame, Inputs, Scored, frame

__all__ = ["MANY", "REBUILD", "Scope", "StandingEvidence", "about_of", "behind", "find", "forget", "fresh", "scope_of", "stored"]

Json = dict[str, Any]
MANY = 20_000
"""A ledger with more records than this stores what follows from them."""
REBUILD = "make it again from the evidence: assay ledger rebuild"
SIGNED, SPOILT = "", "!"
"""The rows that are about nobody."""
PREDICATE = "assay:standing/v1"
_AT_ONCE = 10_000
_RUNS = 200
"""Runs whose records are read at once: with a thousand trials each they are about 100 MB."""
_HEAD = ("validator", "participant", "submission", "epoch", "outcome")
_SHAPE = {
    "_type": check.STATEMENT,
    "subject": [object],
    "predicateType": PREDICATE,
    "predicate": {
        "origin": check.WORD,
        "epoch": int,
        "receipt": check.DIGEST,
        "batches": int,
        "rules": check.DIGEST,
        "authors": check.DIGEST,
        "rows": check.DIGEST,
    },
}


def about_of(shared: bool, submission: str, participant: str) -> str:
    """The name of the row for records about a submission, or about a participant."""
    return f"s:{submission}" if shared and submission else f"p:{participant}"


@dataclass
class AboutRow:
    """The sums and bounds that follow from the records about one submission or participant, in order of acceptance."""

    bound: Frontier = field(default_factory=Frontier)
    last: int = 0
    first: tuple[int, int] | None = None
    sums: dict[str, list[int]] = field(default_factory=dict)
    kept: list[list[int]] = field(default_factory=list)
    closed: bool = False
    """The row was stored: whether an earlier record has the key of a new one must be looked up."""
    new: list[Json] = field(default_factory=list)
    """The new records that may last, without what `Kind.lasting` does not ask for."""
    taken: set[tuple[object, ...]] = field(default_factory=set)
    """The keys of records that were added."""
    changed: bool = False

    @classmethod
    def parse(cls, document: bytes) -> AboutRow:
        """A row as it was stored."""
        row: Json = json.loads(document)
        bound = Frontier(row["count"], [bytes.fromhex(node) for node in row["hashes"]])
        first = None if row["first"] is None else (row["first"][0], row["first"][1])
        return cls(bound, row["last"], first, row.get("sums", {}), row.get("kept", []), closed=True)

    def document(self, *, tallied: bool) -> bytes:
        """The row as it is stored, canonical JSON."""
        hashes = [node.hex() for node in self.bound.hashes]
        row = {"count": self.bound.count, "first": self.first, "hashes": hashes, "last": self.last}
        return plain_json(row | ({"sums": self.sums} if tallied else {"kept": self.kept})).encode()


@dataclass(frozen=True)
class Scope:
    """The scope of a settlement: the records that bear on it, and how they are counted."""

    inputs: Inputs
    authors: frozenset[str]
    """The validators of the registry who have sent evidence."""

    @cached_property
    def kind(self) -> Kind:
        """The kind that the scheme scores."""
        return self.inputs.scheme.kind

    @cached_property
    def tallied(self) -> bool:
        """Whether sums over records are enough for scores."""
        return self.kind.tallied(self.inputs.scheme.score)

    @cached_property
    def tasks(self) -> frozenset[str]:
        """The ids of the task set."""
        return frozenset(self.inputs.tasks)

    @cached_property
    def validators(self) -> frozenset[str]:
        """The validators in the registry."""
        return frozenset(validator.key for validator in self.inputs.validators)

    @cached_property
    def abouts(self) -> dict[str, str]:
        """Row → the submission, or the participant, whose runs have its records."""
        shared = self.kind.record.shared_key
        return {self.of(row): row.submission if shared else row.key for row in self.inputs.participants}

    def of(self, participant: Participant) -> str:
        """The row on which the result of a participant rests."""
        return about_of(self.kind.record.shared_key, participant.submission, participant.key)

    @cached_property
    def rules(self) -> str:
        """The digest of what the rows depend on, beside the records."""
        score = self.inputs.scheme.document()["score"]
        return digest({"score": score, "tasks": list(self.inputs.manifest)})

    def about(self, value: Json) -> str:
        """The row of a record."""
        return about_of(self.kind.record.shared_key, value["submission"], value["participant"])

    def bears(self, value: Json) -> bool:
        """Whether a record is of the kind and of a validator of the registry."""
        return value["kind"] == self.kind.name and value["validator"] in self.validators

    def key(self, value: Json) -> tuple[object, ...]:
        """The key of a record: no two that count have the same one."""
        return (value["validator"], *(value[name] for name in self.kind.record.parts))

    def slot(self, value: Json) -> bytes:
        """The slot under which the record is stored: as `slot_of` gives it."""
        record = self.kind.record
        alone = record.shared_key and not value["submission"]
        run = run_of(value["kind"], value["validator"], value["submission" if record.shared_key else "participant"])
        rest = [*(value[name] for name in record.parts), *([value["participant"]] if alone else [])]
        return run + sha256(run + "\0".join(map(str, rest)).encode()).digest()[:8]

    @property
    def by_epoch(self) -> bool:
        """Whether no record of a later epoch can have the key of an earlier one."""
        return "epoch" in self.kind.record.parts


class StandingEvidence:
    """The evidence that counts in the settlement of one epoch, as rows: see the module. Raises StoreError."""

    def __init__(self, scope: Scope, epoch: int, closed: int, rows: dict[str, AboutRow], spoilt: set[tuple[Any, ...]]) -> None:
        self.scope, self.epoch, self.closed = scope, epoch, closed
        self.rows, self.spoilt = rows, spoilt
        self.stored = bool(rows)
        """Whether the rows continue those in the table, so that what did not change need not be stored again."""
        self._again: set[str] = set()

    def bring_up(self, view: CountedView) -> None:
        """Add the records that came after the rows, and make the rows that are missing."""
        scope = self.scope
        missing = scope.abouts.keys() - self.rows.keys()
        self._again = set(missing) if self.stored else set()
        for about in missing:
            self.rows[about] = AboutRow(changed=True)
        if self.closed < self.epoch:
            first = self.closed + 1
            judged = (eligible.judged(stored.envelope, stored.members) for stored in view.batches(first, self.epoch))
            without = frozenset(eligible.left_out(judged, scope.inputs.task_set).tolist())
            records = view.records(first, self.epoch)
            while some := list(islice(records, _AT_ONCE)):
                self._take(view, some, without)
        self._make_again(view)
        self._choose(view)

    def _take(self, view: CountedView, some: Sequence[StoredRecord], without: frozenset[int]) -> None:
        """Add new records, of which `without` are left out."""
        scope, kind = self.scope, self.scope.kind
        bearing: list[tuple[str, StoredRecord, Json]] = []
        for stored in some:
            value: Json = json.loads(stored.body)
            if value["kind"] != kind.name or stored.seq in without:
                continue
            taken_out = kind.spoils(value)
            if taken_out is not None:
                self.spoilt.add(taken_out)
            about = scope.about(value)
            row = self.rows.get(about)
            if row is None or value["validator"] not in scope.validators or about in self._again:
                continue
            if stored.seq < row.last:
                self._again.add(about)
            else:
                bearing.append((about, stored, value))
        taken = self._taken(view, bearing)
        for about, stored, value in bearing:
            self._add(self.rows[about], stored, value, (about, *scope.key(value)) in taken)

    def _taken(self, view: CountedView, bearing: Iterable[tuple[str, StoredRecord, Json]]) -> set[tuple[object, ...]]:
        """The rows and keys of closed records, of those that new ones have."""
        scope = self.scope
        if scope.by_epoch:
            return set()
        wanted = {scope.slot(value): (about, *scope.key(value)) for about, _, value in bearing if self.rows[about].closed}
        rows = runs.of_slots(view, wanted, self.closed)
        archived = [row for row in rows if not row.body]  # their 16 bytes say what they are about
        without = runs.other_task_sets(view, archived, scope.inputs.task_set)
        taken = {wanted[row.slot] for row in archived if row.seq not in without}
        here = [row for row in rows if row.body]
        return taken | {(about, *scope.key(value)) for about, _, value in _bearing(view, scope, here)}

    def _add(self, row: AboutRow, stored: StoredRecord, value: Json, taken: bool) -> None:
        """Add a record to its row. taken: an earlier one has its key."""
        scope, key = self.scope, self.scope.key(value)
        row.last, row.changed = stored.seq, True
        if row.first is None or (value["epoch"], stored.seq) < row.first:
            row.first = (value["epoch"], stored.seq)
        if taken or key in row.taken:
            return
        row.taken.add(key)
        row.bound.add(evidence.evidence_leaf(stored.seq, stored.digest))
        if scope.tallied:
            counts = scope.kind.counts(value, scope.tasks, scope.inputs.scheme.score)
            sums = row.sums.setdefault(value["validator"], [0] * len(counts))
            for at, count in enumerate(counts):
                sums[at] += count
        else:
            row.new.append(_head(value, scope) | {"seq": stored.seq})

    def _make_again(self, view: CountedView) -> None:
        """Make the rows that must be made again, each from all its records."""
        self.rows |= {about: AboutRow(changed=True) for about in self._again}
        for about, stored, value in behind(view, self.scope, self._again, self.epoch):
            self._add(self.rows[about], stored, value, taken=False)

    def _choose(self, view: CountedView) -> None:
        """Choose the records that may still decide a score."""
        kind = self.scope.kind
        if self.scope.tallied:
            return
        for row in self.rows.values():
            if not row.changed:
                continue
            before = ({**json.loads(record.body), "seq": record.seq} for record in runs.of_seqs(view, row.kept))
            values = [*(_head(value, self.scope) | {"seq": value["seq"]} for value in before), *row.new]
            values = list({value["seq"]: value for value in values}.values())
            lasting = kind.lasting(values, self.scope.inputs.scheme.score, self.spoilt)
            seqs = {value["seq"] for value in lasting} | ({row.first[1]} if row.first else set())
            row.kept, row.new = ranges_of(seqs), []

    def source(self, view: View) -> EvidenceSource:
        """The source that the settlement reads instead of all records."""
        if self.scope.tallied:
            return lambda _: self._scored()
        remaining = ((row.seq, row.body) for row in runs.of_seqs(view, self._ranges()))
        return lambda known: eligible.gathered(remaining, known)

    def _ranges(self) -> list[list[int]]:
        return sorted(pair for row in self.rows.values() for pair in row.kept)

    def _scored(self) -> Scored:
        axes = frame(self.scope.inputs)
        places = self._holders(axes)
        sums = {
            (axes.row[validator], column): counts
            for about, column in places.items()
            for validator, counts in self.rows[about].sums.items()
        }
        first = {axes.participants[column]: self.rows[about].first for about, column in places.items()}
        lowest = {key: epoch[0] for key, epoch in first.items() if epoch is not None}
        return self.scope.kind.scored(sums, axes, self.scope.inputs.scheme.score, lowest)

    def _holders(self, axes: Frame) -> dict[str, int]:
        """Row → the column of the participant whose result rests on it; duplicates have none."""
        shared = self.scope.kind.record.shared_key
        pairs = zip(axes.participants, axes.submissions, strict=True)
        return {about_of(shared, submission, key): axes.column[key] for key, submission in pairs if key not in axes.duplicate_of}

    def results(self) -> dict[str, Json]:
        """Participant → count and root of the records that its result rests on: as `eligible.bind_results` gives them."""
        axes = frame(self.scope.inputs)
        rows = {axes.participants[column]: self.rows[about] for about, column in self._holders(axes).items()}
        nothing = AboutRow()
        bound = {key: rows.get(key, nothing).bound for key in axes.participants}
        return {key: {"root": f"sha256:{tree.root().hex()}", "count": tree.count} for key, tree in bound.items()}

    def documents(self) -> dict[str, bytes]:
        """The rows as they are stored, without the signed one."""
        tallied = self.scope.tallied
        spoilt = plain_json(sorted(map(list, self.spoilt))).encode()
        return {about: row.document(tallied=tallied) for about, row in self.rows.items()} | {SPOILT: spoilt}

    def store(self, tx: Writer, receipt: str, batches: int, key: LogKey, signer: PrivateKey) -> None:
        """Store the rows with the receipt of their epoch (its digest). batches: the number of the last batch that was counted."""
        documents = self.documents()
        rows = _digest_of(documents)
        predicate = {
            "origin": key.name,
            "epoch": self.epoch,
            "receipt": receipt,
            "batches": batches,
            "rules": self.scope.rules,
            "authors": digest(sorted(self.scope.authors)),
            "rows": rows,
        }
        about = {"name": f"evidence of {key.name}", "digest": {"sha256": rows.removeprefix("sha256:")}}
        statement = {"_type": check.STATEMENT, "subject": [about], "predicateType": PREDICATE, "predicate": predicate}
        same = {name for name, row in self.rows.items() if self.stored and not row.changed} & runs.standing_rows(tx).keys()
        written = {name: row for name, row in documents.items() if name not in same}
        written[SIGNED] = canonical(sign_envelope(canonical(statement), signer))
        runs.keep(tx, written, same)


def _head(value: Json, scope: Scope) -> Json:
    return {name: value[name] for name in (*_HEAD, *scope.kind.record.parts) if name in value}


def _digest_of(documents: Mapping[str, bytes]) -> str:
    """The digest over rows."""
    whole = sha256()
    for about in sorted(documents, key=str.encode):
        whole.update(sha256(about.encode() + b"\0" + documents[about]).digest())
    return f"sha256:{whole.hexdigest()}"


def _bearing(view: CountedView, scope: Scope, rows: Sequence[RecordRow]) -> Iterator[tuple[str, StoredRecord, Json]]:
    """(row, record, its JSON) of those of some records that bear on the settlement."""
    without = runs.other_task_sets(view, rows, scope.inputs.task_set)
    for row in rows:
        value: Json = json.loads(row.body)
        if row.seq not in without and scope.bears(value):
            yield scope.about(value), StoredRecord(row.seq, row.digest, row.body), value


def behind(view: CountedView, scope: Scope, abouts: Collection[str], epoch: int) -> Iterator[tuple[str, StoredRecord, Json]]:
    """(row, record, its JSON) of all records of epochs up to this one that bear on some rows.

    The records of each row come in order of acceptance. Rows are looked up together, as many as have `_RUNS` runs, so that
    neither the queries nor the records in memory are many. Raises StoreError.
    """
    authors, ascending = sorted(scope.authors), sorted(abouts)
    at_once = max(1, _RUNS // max(1, len(authors)))
    for at in range(0, len(ascending), at_once):
        some = frozenset(ascending[at : at + at_once])
        named = {scope.abouts[about] for about in some}  # all who submitted nothing share their runs
        wanted = [run_of(scope.kind.name, validator, name) for name in sorted(named) for validator in authors]
        yield from (entry for entry in _bearing(view, scope, runs.of_runs(view, wanted, epoch)) if entry[0] in some)


def scope_of(view: CountedView, document: Mapping[str, Any], epoch: int) -> Scope:
    """The scope of an epoch's settlement; document: of its inputs. Raises BadInput."""
    inputs = eligible.settled_from(document, epoch=epoch, evidence=lambda _: Gathered(), previous=None)
    registered = {validator.key for validator in inputs.validators}
    return Scope(inputs, frozenset(runs.authors(view, epoch) & registered))


def find(view: CountedView, document: Mapping[str, Any], epoch: int) -> StandingEvidence | None:
    """The evidence that counts in the settlement of an epoch by the stored rows and what came since; document: of its inputs.

    None if it must be found in all records: there are few, or the rules or the epoch need it. Raises BadInput, StoreError, and
    Damaged for rows that the log's key did not sign.
    """
    if view.count(0, epoch) <= MANY:
        return None
    scope = scope_of(view, document, epoch)
    rules, participants = scope.inputs.scheme.consensus, scope.inputs.participants
    if rules.max_age_epochs is not None or (rules.assign is not None and not all(row.submission for row in participants)):
        return None
    last = view.last_receipt()
    if last is not None and last.epoch > epoch:
        return None
    current = _stored(view, scope) or StandingEvidence(scope, epoch, -1, {}, set())
    current.bring_up(view)
    return current


def fresh(view: CountedView, document: Mapping[str, Any], epoch: int) -> StandingEvidence:
    """The same from all records, whatever is stored."""
    recomputed = StandingEvidence(scope_of(view, document, epoch), epoch, -1, {}, set())
    recomputed.bring_up(view)
    return recomputed


def _stored(view: CountedView, scope: Scope) -> StandingEvidence | None:
    """The rows of the last receipt; None if there are none, or if they are stale. Raises Damaged."""
    there = _current(view)
    if there is None:
        return None
    stated, documents = there
    before = runs.authors(view, stated["epoch"], stated["batches"]) & scope.validators
    if (stated["rules"], stated["authors"]) != (scope.rules, digest(sorted(before))):
        return None
    rows = {about: AboutRow.parse(documents[about]) for about in documents.keys() & scope.abouts.keys()}
    spoilt = {tuple(parts) for parts in json.loads(documents[SPOILT])}
    last = StandingEvidence(scope, scope.inputs.epoch, stated["epoch"], rows, spoilt)
    last.stored = True
    return last


def _current(view: CountedView) -> tuple[Json, dict[str, bytes]] | None:
    """The signed statement about the rows, and the rows; None if there are none, or if they are not of the last receipt."""
    documents, last = runs.standing_rows(view), view.last_receipt()
    if not documents or last is None:
        return None
    stated = _predicate(documents, view.key)
    return (stated, documents) if stated["receipt"] == last.digest else None


def _predicate(documents: Mapping[str, bytes], key: LogKey) -> Json:
    """The statement about the rows that the log's key signed; raises Damaged unless these are the rows."""
    what = "the stored standing of its evidence is not what the log's key signed"
    try:
        parsed = check.Envelope.parse(check.parse_json(documents[SIGNED], "batch"), "batch")
        check.check_envelope(parsed, [key], "batch")
        statement: Json = check.parse_json(parsed.payload, "batch")
        misfit = check.misfit(statement, _SHAPE)
    except (KeyError, TypeError, check.CheckError) as error:
        raise Damaged(f"{what} ({error})", hint=REBUILD) from None
    others = {about: row for about, row in documents.items() if about != SIGNED}
    predicate: Json = {} if misfit else statement["predicate"]
    if misfit or predicate["origin"] != key.name or predicate["rows"] != _digest_of(others):
        raise Damaged(f"{what}: a row was changed, or is missing", hint=REBUILD)
    return predicate


def forget(tx: Writer) -> None:
    """Remove the stored rows."""
    runs.keep(tx, {})


def stored(view: CountedView) -> tuple[int, dict[str, bytes]] | None:
    """The epoch of the stored rows, and the rows without the signed one; None if the last receipt has none. Raises Damaged."""
    there = _current(view)
    if there is None:
        return None
    stated, documents = there
    return int(stated["epoch"]), {about: row for about, row in documents.items() if about != SIGNED}
