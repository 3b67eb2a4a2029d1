"""Decide which batches of a ledger count: those that their validators signed for its log, in time. SPEC 3.0, 6.

Anyone who may insert into a shared database can put rows there without the intake. So before settling, each batch is put together
again from its rows and read as the intake reads it. A batch that fails is set aside and named: it stays in the database and is
shown, but nothing is ever computed from it, so the season can continue. A batch is set aside if

- the validator whom it names did not sign it, or that validator's name is not a key;
- it is for another log or competition; or its epoch is open and it is of version 1, which names no log, unless it was there
  before version 2 existed and nothing was signed here since;
- it came after its epoch was settled;
- its rows are not what was signed: another digest, epoch, count or root, or records that are not evidence of its validator;
- the same batch is there already.

A batch that the intake accepted and that was changed later is set aside as well. Because it was acknowledged, it must be there
(`assay.ledger.intake`), so nothing is settled without it.

Each batch is checked once. With each receipt, the log's key signs a verdict: up to which batch all were checked, a digest over
their rows, and which are set aside. The verdict is stored in the ledger; nobody else can make one. Rows that differ from a signed
verdict are damage.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import Any, NamedTuple

from sqlalchemy import Select

from assay.errors import BadInput, brief
from assay.exact import canonical
from assay.ledger import batch, check, keys
from assay.ledger.batch import BatchStatement
from assay.ledger.check import LogKey
from assay.ledger.keys import PrivateKey, sign_envelope
from assay.ledger.keys.hotkey import NotInstalled
from assay.ledger.store import Damaged, StoredBatch, View
from assay.ledger.store.engine import RESTORE
from assay.ledger.store.tables import RecordRow, SeqRanges
from assay.ledger.store.view import LATEST

__all__ = ["Aside", "BatchVerdicts", "CountedView", "check_members", "check_row", "expect"]

PREDICATE = "assay:checked/v2"
FIRST = "assay:checked/v1"
"""The verdict of version 1, which names each set-aside batch by itself; it is only read."""
_ROWS = {FIRST: {"number": int, "why": check.WORD}, PREDICATE: {"numbers": [[int]], "why": check.WORD}}
_SHAPE = {
    "_type": check.STATEMENT,
    "subject": [object],
    "predicateType": check.WORD,
    "predicate": {"origin": check.WORD, "epoch": int, "batches": int, "digest": check.DIGEST, "aside": [object]},
}
_WORD_BYTES = 2**28
"""Bytes of a verdict: it grows with what is set aside, and whoever may insert decides how much that is."""
_WHY, _REASONS = 200, 1_000
"""Characters of a reason, and how many different reasons a verdict names."""
_OTHER = "it does not count, like others before it"
Json = dict[str, Any]


@dataclass(frozen=True)
class Aside:
    """A batch that is set aside (without envelope and members), and why. new: no receipt was signed since it came."""

    batch: StoredBatch
    why: str
    new: bool

    def __str__(self) -> str:
        digest, validator = is_plain(self.batch.digest), is_plain(self.batch.validator)
        of = f"batch {digest}, attributed to {validator}, epoch {self.batch.epoch}"
        return f"{of}, is set aside: {self.why}"


class CheckedBefore(NamedTuple):
    """The last signed verdict: up to which batch, with which epoch, the digest over their rows, what is set aside."""

    batches: int = 0
    epoch: int = -1
    digest: str = ""
    aside: Mapping[int, str] = {}


class BatchVerdicts:
    """Finds why batches of one snapshot do not count. key: the log's public key. Raises StoreError."""

    def __init__(self, view: View, key: str) -> None:
        self._view, self._key, self._origin = view, key, key.partition("+")[0]
        self._judged: dict[int, bool] = {}

    @cached_property
    def before(self) -> CheckedBefore:
        """The verdict on earlier batches that the log's key signed last."""
        return _remembered(self._view, self._key)

    @cached_property
    def _ledger(self) -> tuple[str, int | None, int]:
        """The competition, the last settled epoch, and the last batch that may name no log."""
        return self._view.competition(), self._view.settled_epoch(), self._view.unnamed()

    def counts(self, number: int) -> bool:
        """Whether the batch of this number counts."""
        if number <= self.before.batches:
            return number not in self.before.aside
        if number not in self._judged:
            self._judged[number] = not self.why(self._view.numbered(number))
        return self._judged[number]

    def why(self, stored: StoredBatch) -> str:
        """The reason that a batch after the last signed verdict does not count; "" if it does.

        A batch that is there twice is not looked for here.
        """
        try:
            wrong = self._wrong(stored)
        except NotInstalled:
            raise
        except check.CheckError as refused:
            wrong = str(refused).removeprefix("batch: ")
        except (BadInput, Damaged) as error:
            wrong = error.what
        return is_plain(wrong)

    def _wrong(self, stored: StoredBatch) -> str:
        """The same of a batch that was not checked before. Raises BadInput, check.CheckError or Damaged, which say it too."""
        statement = check_row(stored)
        competition, settled, unnamed = self._ledger
        if statement.competition != competition:
            return f"it is of the competition {brief(statement.competition)}"
        open_ = settled is None or stored.epoch > settled
        if statement.version == 1 and open_ and (stored.id > unnamed or self.before.batches > 0):
            return "it is of version 1, which names no log"
        if statement.version > 1 and statement.origin != self._origin:
            return f"it is for the log {statement.origin!r}"
        if stored.epoch <= self.before.epoch:
            return "it came after its epoch was settled"
        batch.check_envelope(batch.parsed(stored.envelope), keys.public(statement.validator))
        return _unlike(self._view, stored, statement)


class CountedView(View):
    """A view of the evidence that counts: its records and batches leave out what is set aside. Raises Damaged.

    aside: the batches set aside, in order of acceptance. looked: the number of the last batch. judged: a cache of verdicts by the
    digest over the rows up to each batch, which is added to. digests: of the batches that count. before: what
    the log's key signed last.
    """

    def __init__(self, view: View, key: LogKey, judged: dict[tuple[object, ...], str] | None = None) -> None:
        super().__init__(view._connection)
        self.key = key
        judge, judged = BatchVerdicts(view, str(key)), {} if judged is None else judged
        before = judge.before
        state = before.digest, view.settled_epoch()
        self.aside: tuple[Aside, ...] = ()
        self.looked, self.digest = 0, ""
        aside, good = list[Aside](), dict[str, int]()
        for stored in view.batches():
            if not self.looked < stored.id <= LATEST:
                raise Damaged(f"batch {stored.id} has a number that the ledger never gives", hint=RESTORE)
            self.looked, self.digest = stored.id, _digest(self.digest, stored)
            if stored.id == before.batches and self.digest != before.digest:
                raise Damaged(
                    "the batches are not those whose signatures were checked: one was changed or inserted", hint=RESTORE
                )
            about = (self.digest, *state)
            why = before.aside.get(stored.id, "") if stored.id <= before.batches else judged.get(about)
            if why is None:
                why = judged[about] = judge.why(stored)
            if not why and stored.id > before.batches and stored.digest in good:
                why = f"it is there already, as batch {good[stored.digest]}"
            if why:
                aside.append(Aside(replace(stored, envelope=b"", members=()), why, new=stored.id > before.batches))
            else:
                good.setdefault(stored.digest, stored.id)
        if self.looked < before.batches:
            what = f"{before.batches} batches were checked, but the last one there is {self.looked}"
            raise Damaged(what, hint=RESTORE)
        for old in [state_key for state_key in list(judged) if state_key[1:] != state]:
            judged.pop(old, None)  # the new receipt has the verdict on these batches
        self.aside = tuple(aside)
        self._numbers = frozenset(entry.batch.id for entry in aside)
        self.digests, self.before = good.keys(), before

    def count(self, first_epoch: int = 0, last_epoch: int = LATEST) -> int:
        """The number of records of these epochs that count."""
        if not self.aside:
            return super().count(first_epoch, last_epoch)
        return sum(last - first + 1 for first, last in self._seqs(first_epoch, last_epoch).pairs)

    def batches(self, first_epoch: int = 0, last_epoch: int = LATEST) -> Iterator[StoredBatch]:
        """The batches of these epochs that count, in order of acceptance."""
        return iter(self._counting(super().batches(first_epoch, last_epoch)))

    def highest_epoch(self) -> int | None:
        """The highest epoch that has evidence which counts."""
        return max((stored.epoch for stored in self.batches()), default=None) if self.aside else super().highest_epoch()

    def lowest_epoch(self, first: int = 0) -> int | None:
        """The lowest epoch from this one on that has evidence which counts."""
        return min((stored.epoch for stored in self.batches(first)), default=None) if self.aside else super().lowest_epoch(first)

    def rows(self) -> Iterator[RecordRow]:
        """All records that count, with all that is stored of them, in order of acceptance."""
        return (row for part in self._only(([row] for row in super().rows()), 0, LATEST) for row in part)

    def _pieces(
        self, first_epoch: int, last_epoch: int, query: Select[Any], at_once: int | None = None
    ) -> Generator[Any, None, None]:
        return self._only(super()._pieces(first_epoch, last_epoch, query, at_once), first_epoch, last_epoch)

    def _sharing(self, slots: Select[Any]) -> Iterator[list[RecordRow]]:
        """Only records that count: so no validator is said to contradict a record that they did not sign."""
        return self._only(super()._sharing(slots), 0, LATEST)

    def _counting(self, some: Iterable[StoredBatch]) -> Iterable[StoredBatch]:
        return (stored for stored in some if stored.id not in self._numbers)

    def _only(self, parts: Iterator[Any], first_epoch: int, last_epoch: int) -> Generator[Any, None, None]:
        """Of lists of rows that begin with `seq`, the rows that belong to a counting batch of these epochs."""
        if not self.aside:
            yield from parts
            return
        seqs = self._seqs(first_epoch, last_epoch)
        for rows in parts:
            counting_rows = [row for row in rows if row.seq in seqs]
            if counting_rows:
                yield counting_rows

    def _seqs(self, first_epoch: int, last_epoch: int) -> SeqRanges:
        """The seqs in the counting batches of these epochs."""
        return SeqRanges(pair for stored in self.batches(first_epoch, last_epoch) for pair in stored.members)

    def signed(self, epoch: int, signer: PrivateKey) -> bytes:
        """The verdict on these batches, an envelope that the log's key signs with the receipt of an epoch."""
        reasons: dict[str, list[list[int]]] = {}
        for entry in self.aside:
            ranges = reasons.setdefault(entry.why if entry.why in reasons or len(reasons) < _REASONS else _OTHER, [])
            if ranges and ranges[-1][1] == entry.batch.id - 1:
                ranges[-1][1] = entry.batch.id
            else:
                ranges.append([entry.batch.id, entry.batch.id])
        verdict = {
            "origin": self.key.name,
            "epoch": epoch,
            "batches": self.looked,
            "digest": self.digest,
            "aside": [{"numbers": ranges, "why": why} for why, ranges in reasons.items()],
        }
        about = {"name": f"batches of {self.key.name}", "digest": {"sha256": self.digest.removeprefix("sha256:")}}
        statement = {"_type": check.STATEMENT, "subject": [about], "predicateType": PREDICATE, "predicate": verdict}
        return canonical(sign_envelope(canonical(statement), signer))


def _unlike(view: View, stored: StoredBatch, statement: BatchStatement) -> str:
    """The difference between the rows of a batch and what its validator signed; "" if there is none. Raises BadInput.

    The rows are put together as the file that the batch came as, and that file is read as the intake reads it.
    """
    count = sum(last - first + 1 for first, last in stored.members)
    if count != statement.count:
        return f"{statement.count} records are expected, {count} are there"
    if stored.first_seq is not None and stored.last_seq is not None:
        ends = [(max(first, stored.first_seq), min(last, stored.last_seq)) for first, last in stored.members]
        within = sum(last - first + 1 for first, last in ends if first <= last)
        if within != stored.last_seq - stored.first_seq + 1:
            return "it claims to have brought records that it does not have"
    if sum(view.size(*pair) for pair in stored.members) > batch.BATCH_BYTES:
        return f"it has more than {batch.BATCH_BYTES} bytes"
    rows = [row for pair in stored.members for row in view.between(*pair)]
    for row in rows:
        if {type(row.digest), type(row.slot), type(row.body)} != {bytes} or row.digest != sha256(row.body).digest():
            return f"record {row.seq} was changed: its digest differs"
        if row.epoch != statement.epoch:
            return f"record {row.seq} is stored under another epoch"
    bodies = [row.body for row in sorted(rows, key=lambda row: row.digest)]
    parsed = batch.read(b"\n".join((stored.envelope, *bodies, b"")))
    slots = dict(zip(parsed.digests, parsed.slots, strict=True))
    wrong = next((row.seq for row in rows if slots[row.digest] != row.slot), None)
    return "" if wrong is None else f"record {wrong} is stored in the slot of another record"


def is_plain(words: str) -> str:
    """Words that a stranger may have written, as printable ASCII, cut to a length."""
    shown = words if len(words) <= _WHY else f"{words[:_WHY]}…"
    return "".join(character if " " <= character <= "~" else character.encode("unicode_escape").decode() for character in shown)


def check_row(stored: StoredBatch) -> BatchStatement:
    """The statement of a batch's envelope; raises Damaged if the row differs from it."""
    name = f"batch {stored.id}"
    if type(stored.envelope) is not bytes:
        raise Damaged(f"the form of {name} was changed", hint=RESTORE)
    try:
        signed, statement = batch.stated(stored.envelope)
    except check.CheckError as error:
        raise Damaged(f"the envelope of {name} cannot be read ({error})", hint=RESTORE) from None
    expect(f"the digest of {name}", f"sha256:{sha256(signed.payload).hexdigest()}", stored.digest)
    columns = (stored.validator, stored.epoch, stored.count, stored.root)
    expect(f"what {name} states", (statement.validator, statement.epoch, statement.count, statement.root), columns)
    return statement


def check_members(stored: StoredBatch, statement: BatchStatement, digests: list[bytes]) -> None:
    """Raise Damaged if a batch's records are not those that its statement counts. digests: of its members."""
    expect(f"the count of batch {stored.id}", statement.count, len(digests))
    expect(f"the root of batch {stored.id}", statement.root, batch.root_of(sorted(digests)))


def expect(what: str, expected: object, actual: object) -> None:
    """Raise Damaged, which names what was changed, unless the two are the same."""
    if expected != actual:
        raise Damaged(f"{what} changed: {expected} was expected, {actual} is there", hint=RESTORE)


def _digest(before: str, stored: StoredBatch) -> str:
    """The digest over the rows of the batches up to this one."""
    envelope = stored.envelope if type(stored.envelope) is bytes else b""  # `check_row` refuses another form
    row = [stored.id, stored.digest, sha256(envelope).hexdigest(), stored.members, stored.first_seq, stored.last_seq]
    return f"sha256:{sha256(json.dumps([before, *row]).encode()).hexdigest()}"


def _remembered(view: View, vkey: str) -> CheckedBefore:
    """The last verdict that the log's key signed; envelopes of other keys, or of another count of batches, are skipped."""
    for count, envelope in view.checked():
        try:
            if type(envelope) is not bytes:
                continue
            key = LogKey.parse(vkey)
            parsed = check.Envelope.parse(check.parse_json(envelope, "batch", _WORD_BYTES), "batch")
            check.check_envelope(parsed, [key], "batch")
            statement: Json = check.parse_json(parsed.payload, "batch", _WORD_BYTES)
        except check.CheckError:
            continue
        if check.misfit(statement, _SHAPE) or check.misfit(
            statement["predicate"]["aside"], [_ROWS.get(statement["predicateType"], {})]
        ):
            continue
        verdict = statement["predicate"]
        if (verdict["origin"], verdict["batches"]) == (key.name, count):
            return CheckedBefore(verdict["batches"], verdict["epoch"], verdict["digest"], dict(_aside(verdict["aside"])))
    return CheckedBefore()


def _aside(rows: list[Json]) -> Iterator[tuple[int, str]]:
    """The number of each batch that a verdict sets aside, and why."""
    for row in rows:
        for first, last in row.get("numbers") or [(row["number"], row["number"])]:
            yield from ((number, row["why"]) for number in range(first, last + 1))
