"""Which batches of a ledger count: those that their validators signed for its log, in time. SPEC 3.0, 6.

Who may insert into a shared database can put rows there past the intake. So before anything is settled, each batch is put
together again from its rows and read as the intake reads it, whoever took it in. What fails is set aside and named: it is kept
and shown, and nothing is computed from it, now or later, so that the season goes on. Set aside is a batch

- that the validator whom it names did not sign, or whose validator's name is no key;
- that is for another log or competition; or, if its epoch is open, of version 1, which names no log, unless it was there before
  version 2 was, and nothing was signed here since;
- that came after its epoch was settled;
- whose rows are not what was signed: another digest, epoch, count or root, records that are no evidence of its validator;
- that is there already.

A batch that was taken in here and was changed since is set aside as well; that it was acknowledged says that it must be there
(`assay.ledger.intake`), and nothing is settled without it.

A batch is looked at once: with each receipt, the log's key signs up to which batch that was done, a digest over their rows, and
what is set aside, and that is kept in the ledger. Nobody else can put such a word there. Rows that differ from what was signed
are damage.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
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
from assay.ledger.store.tables import RecordRow, slot_of
from assay.ledger.store.view import LATEST

__all__ = ["Aside", "BatchVerdicts", "CountedView", "check_members", "check_row", "expect"]

PREDICATE = "assay:checked/v2"
FIRST = "assay:checked/v1"
"""The word of version 1, which names each batch that is set aside by itself; it is only read."""
_ROWS = {FIRST: {"number": int, "why": check.WORD}, PREDICATE: {"numbers": [[int]], "why": check.WORD}}
_SHAPE = {
    "_type": check.STATEMENT,
    "subject": [object],
    "predicateType": check.WORD,
    "predicate": {"origin": check.WORD, "epoch": int, "batches": int, "digest": check.DIGEST, "aside": [object]},
}
_WORD_BYTES = 2**28
"""Bytes of a word: it grows with what is set aside, and who may insert decides how much that is."""
_WHY, _REASONS = 200, 1_000
"""Characters of a reason, and how many of them a word tells apart."""
_OTHER = "it does not count, as others before it"
Json = dict[str, Any]


@dataclass(frozen=True)
class Aside:
    """A batch that is set aside, without its envelope and members, and why. new: no receipt was signed since it is there."""

    batch: StoredBatch
    why: str
    new: bool

    def __str__(self) -> str:
        digest, validator = is_plain(self.batch.digest), is_plain(self.batch.validator)
        of = f"batch {digest}, said to be of {validator}, epoch {self.batch.epoch}"
        return f"{of}, is set aside: {self.why}"


class _CheckedBefore(NamedTuple):
    """What was signed last: up to which batch, when which epoch was settled, the digest over their rows, what is set aside."""

    batches: int = 0
    epoch: int = -1
    digest: str = ""
    aside: Mapping[int, str] = {}


class BatchVerdicts:
    """Says of the batches of one snapshot why they do not count; key: the log's public key. Raises StoreError."""

    def __init__(self, view: View, key: str) -> None:
        self._view, self._origin = view, key.partition("+")[0]
        self._competition, self._settled, self._unnamed = view.competition(), view.settled_epoch(), view.unnamed()
        self.before = _remembered(view, key)
        self._judged: dict[int, bool] = {}

    def counts(self, number: int) -> bool:
        """Whether the batch of a number does."""
        if number not in self._judged:
            self._judged[number] = not self.why(self._view.numbered(number))
        return self._judged[number]

    def why(self, one: StoredBatch) -> str:
        """Why a batch does not count; "" if it does, or if it is there twice."""
        if one.id <= self.before.batches:
            return self.before.aside.get(one.id, "")
        try:
            wrong = self._wrong(one)
        except NotInstalled:
            raise
        except check.CheckError as refused:
            wrong = str(refused).removeprefix("batch: ")
        except (BadInput, Damaged) as error:
            wrong = error.what
        return is_plain(wrong)

    def _wrong(self, one: StoredBatch) -> str:
        """The same of a batch that was not looked at before. Raises BadInput, check.CheckError or Damaged, which say it too."""
        said = check_row(one)
        if said.competition != self._competition:
            return f"it is of the competition {brief(said.competition)}"
        open_ = self._settled is None or one.epoch > self._settled
        if said.version == 1 and open_ and (one.id > self._unnamed or self.before.batches > 0):
            return "it is of version 1, which names no log"
        if said.version > 1 and said.origin != self._origin:
            return f"it is for the log {said.origin!r}"
        if one.epoch <= self.before.epoch:
            return "it came after its epoch was settled"
        batch.check_envelope(one.envelope, keys.public(said.validator))
        return _unlike(self._view, one, said)


class CountedView(View):
    """A view of the evidence that counts: what is set aside is in none of its records and batches. Raises Damaged.

    aside: what is, in order of acceptance. looked: up to which batch there are some. judged: what was found of batches before, by
    the digest over the rows up to them, which is added to.
    """

    def __init__(self, view: View, key: LogKey, judged: dict[tuple[object, ...], str] | None = None) -> None:
        super().__init__(view._connection)
        self.key = key
        judge, judged = BatchVerdicts(view, str(key)), {} if judged is None else judged
        before, settled = judge.before, view.settled_epoch()
        self.aside: tuple[Aside, ...] = ()
        self.looked, self.digest = 0, ""
        aside, good = list[Aside](), dict[str, int]()
        for one in view.batches():
            if not self.looked < one.id <= LATEST:
                raise Damaged(f"batch {one.id} has a number that none is given", hint=RESTORE)
            self.looked, self.digest = one.id, _digest(self.digest, one)
            if one.id == before.batches and self.digest != before.digest:
                raise Damaged("batches are not those whose signatures were checked: one was changed or put in", hint=RESTORE)
            about = (self.digest, before.digest, settled)
            if (why := judged.get(about)) is None:
                why = judged[about] = judge.why(one)
            if not why and one.id > before.batches and one.digest in good:
                why = f"it is there already, as batch {good[one.digest]}"
            if why:
                aside.append(Aside(replace(one, envelope=b"", members=()), why, new=one.id > before.batches))
            else:
                good.setdefault(one.digest, one.id)
        if self.looked < before.batches:
            what = f"{before.batches} batches were checked, and the last one there is {self.looked}"
            raise Damaged(what, hint=RESTORE)
        self.aside = tuple(aside)
        self._numbers = frozenset(one.batch.id for one in aside)

    def count(self, first_epoch: int = 0, last_epoch: int = LATEST) -> int:
        """How many records of these epochs count."""
        if not self.aside:
            return super().count(first_epoch, last_epoch)
        return sum(last - first + 1 for first, last in self._ranges(first_epoch, last_epoch))

    def batches(self, first_epoch: int = 0, last_epoch: int = LATEST) -> Iterator[StoredBatch]:
        """As of any view, without those that are set aside."""
        return (one for one in super().batches(first_epoch, last_epoch) if one.id not in self._numbers)

    def highest_epoch(self) -> int | None:
        """The highest epoch that has evidence which counts."""
        return max((one.epoch for one in self.batches()), default=None) if self.aside else super().highest_epoch()

    def lowest_epoch(self, first: int = 0) -> int | None:
        """The lowest epoch from this one on that has evidence which counts."""
        return min((one.epoch for one in self.batches(first)), default=None) if self.aside else super().lowest_epoch(first)

    def rows(self) -> Iterator[RecordRow]:
        """As of any view, those that count."""
        return (one for part in self._only(([row] for row in super().rows()), 0, LATEST) for one in part)

    def _pieces(self, first_epoch: int, last_epoch: int, query: Select[Any]) -> Iterator[Any]:
        return self._only(super()._pieces(first_epoch, last_epoch, query), first_epoch, last_epoch)

    def _sharing(self, slots: Select[Any]) -> Iterator[list[RecordRow]]:
        """As of any view; so nobody is said to contradict what he did not sign."""
        return self._only(super()._sharing(slots), 0, LATEST)

    def _only(self, parts: Iterator[Any], first_epoch: int, last_epoch: int) -> Iterator[Any]:
        """Of rows that begin with `seq`, in lists, those that a batch of these epochs has which counts."""
        if not self.aside:
            yield from parts
            return
        ranges = self._ranges(first_epoch, last_epoch)
        firsts, lasts = [first for first, _ in ranges], [last for _, last in ranges]
        for rows in parts:
            kept = [row for row in rows if (at := bisect_right(firsts, row.seq)) and row.seq <= lasts[at - 1]]
            if kept:
                yield kept

    def _ranges(self, first_epoch: int, last_epoch: int) -> list[tuple[int, int]]:
        """The seqs that the batches of these epochs have which count, as ranges that do not touch, ascending."""
        found: list[tuple[int, int]] = []
        for first, last in sorted(pair for one in self.batches(first_epoch, last_epoch) for pair in one.members):
            if found and first <= found[-1][1] + 1:
                found[-1] = (found[-1][0], max(found[-1][1], last))
            else:
                found.append((first, last))
        return found

    def signed(self, epoch: int, signer: PrivateKey) -> bytes:
        """What the log's key says of these batches when it signs the receipt of an epoch: an envelope, to be kept."""
        reasons: dict[str, list[list[int]]] = {}
        for one in self.aside:
            ranges = reasons.setdefault(one.why if one.why in reasons or len(reasons) < _REASONS else _OTHER, [])
            if ranges and ranges[-1][1] == one.batch.id - 1:
                ranges[-1][1] = one.batch.id
            else:
                ranges.append([one.batch.id, one.batch.id])
        said = {
            "origin": self.key.name,
            "epoch": epoch,
            "batches": self.looked,
            "digest": self.digest,
            "aside": [{"numbers": ranges, "why": why} for why, ranges in reasons.items()],
        }
        about = {"name": f"batches of {self.key.name}", "digest": {"sha256": self.digest.removeprefix("sha256:")}}
        statement = {"_type": check.STATEMENT, "subject": [about], "predicateType": PREDICATE, "predicate": said}
        return canonical(sign_envelope(canonical(statement), signer))


def _unlike(view: View, one: StoredBatch, said: BatchStatement) -> str:
    """In what the rows of a batch differ from what its validator signed; "" if in nothing. Raises BadInput.

    The batch is put together as the file that it came as, and that is read as the intake reads it.
    """
    count = sum(last - first + 1 for first, last in one.members)
    if count != said.count:
        return f"{said.count} records are expected, {count} are there"
    if one.first_seq is not None and one.last_seq is not None:
        ends = [(max(first, one.first_seq), min(last, one.last_seq)) for first, last in one.members]
        within = sum(last - first + 1 for first, last in ends if first <= last)
        if within != one.last_seq - one.first_seq + 1:
            return "it is said to have brought records that it does not have"
    if sum(view.size(*pair) for pair in one.members) > batch.BATCH_BYTES:
        return f"it has more than {batch.BATCH_BYTES} bytes"
    rows = [row for pair in one.members for row in view.between(*pair)]
    for row in rows:
        if {type(row.digest), type(row.slot), type(row.body)} != {bytes} or row.digest != sha256(row.body).digest():
            return f"record {row.seq} is not what it was: it has another digest"
        if row.epoch != said.epoch:
            return f"record {row.seq} is kept as of another epoch"
    bodies = [row.body for row in sorted(rows, key=lambda row: row.digest)]
    found = batch.read(b"\n".join((one.envelope, *bodies, b"")))
    slots = dict(zip(found.digests, map(slot_of, found.records), strict=True))
    wrong = next((row.seq for row in rows if slots[row.digest] != row.slot), None)
    return "" if wrong is None else f"record {wrong} is kept in the slot of another"


def is_plain(words: str) -> str:
    """Words that may be of somebody else, in ASCII without control characters, and cut."""
    kept = words if len(words) <= _WHY else f"{words[:_WHY]}…"
    return "".join(one if " " <= one <= "~" else one.encode("unicode_escape").decode() for one in kept)


def check_row(one: StoredBatch) -> BatchStatement:
    """What a batch's envelope states, if its row is of that; raises Damaged."""
    name = f"batch {one.id}"
    if type(one.envelope) is not bytes:
        raise Damaged(f"the form of {name} is not what it was", hint=RESTORE)
    try:
        payload, said = batch.stated(one.envelope)
    except check.CheckError as error:
        raise Damaged(f"the envelope of {name} is none ({error})", hint=RESTORE) from None
    expect(f"the digest of {name}", f"sha256:{sha256(payload).hexdigest()}", one.digest)
    columns = (one.validator, one.epoch, one.count, one.root)
    expect(f"what {name} states", (said.validator, said.epoch, said.count, said.root), columns)
    return said


def check_members(one: StoredBatch, said: BatchStatement, digests: list[bytes]) -> None:
    """Refuse a batch whose records are not those that its statement counts; digests: those of its members. Raises Damaged."""
    expect(f"the count of batch {one.id}", said.count, len(digests))
    expect(f"the root of batch {one.id}", said.root, batch.root_of(sorted(digests)))


def expect(what: str, expected: object, found: object) -> None:
    """Raise Damaged, which names what is not what it was, unless the two are the same."""
    if expected != found:
        raise Damaged(f"{what} is not what it was: {expected} was expected, {found} is there", hint=RESTORE)


def _digest(before: str, one: StoredBatch) -> str:
    """The digest over the rows of the batches up to this one."""
    envelope = one.envelope if type(one.envelope) is bytes else b""  # of another form it is none, as `check_row` says
    row = [one.id, one.digest, sha256(envelope).hexdigest(), one.members, one.first_seq, one.last_seq]
    return f"sha256:{sha256(json.dumps([before, *row]).encode()).hexdigest()}"


def _remembered(view: View, vkey: str) -> _CheckedBefore:
    """What the log's key signed last of the ledger's batches; words of others, and what says it is of more, are passed over."""
    for count, envelope in view.checked():
        try:
            if type(envelope) is not bytes:
                continue
            key = LogKey.parse(vkey)
            found = check.Envelope.parse(check.parse_json(envelope, "batch", _WORD_BYTES), "batch")
            check.check_envelope(found, [key], "batch")
            said: Json = check.parse_json(found.payload, "batch", _WORD_BYTES)
        except check.CheckError:
            continue
        if check.misfit(said, _SHAPE) or check.misfit(said["predicate"]["aside"], [_ROWS.get(said["predicateType"], {})]):
            continue
        told = said["predicate"]
        if (told["origin"], told["batches"]) == (key.name, count):
            return _CheckedBefore(told["batches"], told["epoch"], told["digest"], dict(_aside(told["aside"])))
    return _CheckedBefore()


def _aside(rows: list[Json]) -> Iterator[tuple[int, str]]:
    """The number of each batch that a word sets aside, and why."""
    for row in rows:
        for first, last in row.get("numbers") or [(row["number"], row["number"])]:
            yield from ((number, row["why"]) for number in range(first, last + 1))
