"""Which batches of a ledger count: those that their validators signed for its log, in time. SPEC 3.0, 6.

Who may insert into a shared database can put a batch there past the intake, in another validator's name. So before anything is
settled, each batch's signature is checked, whoever took it in. What fails is set aside and named: it is kept and shown, and
nothing is computed from it, now or later, so that the season goes on. Set aside is a batch

- that the validator whom it names did not sign, or whose validator's name is no key;
- that is for another log; or, if its epoch is open, of version 1, which names none, unless it was there before version 2 was,
  and nothing was signed here since;
- that came after its epoch was settled.

A batch whose row does not agree with itself (digest, statement, records) was damaged or changed, and nothing is settled over it.

A signature is checked once: with each receipt, the log's key signs up to which batch that was done, a digest over their rows, and
what is set aside, and that is kept in the ledger. Nobody else can put such a word there. Rows that differ from what was signed
are damage.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

from sqlalchemy import Select

from assay.errors import BadInput
from assay.exact import canonical
from assay.ledger import batch, check, keys
from assay.ledger.batch import BatchStatement
from assay.ledger.check import LogKey
from assay.ledger.envelope import sign
from assay.ledger.keys import PrivateKey
from assay.ledger.keys.hotkey import NotInstalled
from assay.ledger.store import Damaged, Kept, KeptBatch, View
from assay.ledger.store.errors import RESTORE
from assay.ledger.store.rows import Row
from assay.ledger.store.view import LATEST

__all__ = ["Aside", "Counted", "check_members", "check_row", "expect"]

PREDICATE = "assay:checked/v1"
_SHAPE = {
    "_type": check.STATEMENT,
    "subject": [object],
    "predicateType": PREDICATE,
    "predicate": {
        "origin": check.WORD,
        "epoch": int,
        "batches": int,
        "digest": check.DIGEST,
        "aside": [{"number": int, "why": check.WORD}],
    },
}
Json = dict[str, Any]


@dataclass(frozen=True)
class Aside:
    """A batch that is set aside, and why. new: no receipt was signed since it is there."""

    batch: KeptBatch
    why: str
    new: bool

    def __str__(self) -> str:
        of = f"batch {self.batch.digest}, said to be of {self.batch.validator}, epoch {self.batch.epoch}"
        return f"{of}, is set aside: {self.why}"


class _Before(NamedTuple):
    """What was signed last: up to which batch, when which epoch was settled, the digest over their rows, what is set aside."""

    batches: int = 0
    epoch: int = -1
    digest: str = ""
    aside: Mapping[int, str] = {}


class Counted(View):
    """A view of the evidence that counts: what is set aside is in none of its records and batches. Raises Damaged.

    aside: what is, in order of acceptance. looked: up to which batch there are some.
    """

    def __init__(self, view: View, key: LogKey) -> None:
        super().__init__(view._connection)
        self.key = key
        before = _remembered(view, key)
        self.aside: tuple[Aside, ...] = ()
        self.looked, self.digest = 0, ""
        settled, unnamed = view.settled_epoch(), view.unnamed()
        for one in view.batches():
            if not self.looked < one.id <= LATEST:
                raise Damaged(f"batch {one.id} has a number that none is given", hint=RESTORE)
            self.looked, self.digest = one.id, _digest(self.digest, one)
            if one.id <= before.batches:
                why = before.aside.get(one.id, "")
                if one.id == before.batches and self.digest != before.digest:
                    raise Damaged("batches are not those whose signatures were checked: one was changed or put in", hint=RESTORE)
            else:
                open_ = settled is None or one.epoch > settled
                why = self._wrong(one, late=one.epoch <= before.epoch, named=open_ and (one.id > unnamed or before.batches > 0))
            if why:
                self.aside += (Aside(one, why, new=one.id > before.batches),)
        if self.looked < before.batches:
            what = f"{before.batches} batches were checked, and the last one there is {self.looked}"
            raise Damaged(what, hint=RESTORE)
        self._gone = self._without()

    def counted(self, first_epoch: int, last_epoch: int) -> int:
        """How many records of these epochs count."""
        gone = sum(1 for epoch in self._gone.values() if first_epoch <= epoch <= last_epoch)
        return self.count(first_epoch, last_epoch) - gone

    def records(self, first_epoch: int = 0, last_epoch: int = LATEST) -> Iterator[Kept]:
        """As of any view, without those that only batches have which are set aside."""
        return (one for one in super().records(first_epoch, last_epoch) if one.seq not in self._gone)

    def batches(self, first_epoch: int = 0, last_epoch: int = LATEST) -> Iterator[KeptBatch]:
        """As of any view, without those that are set aside."""
        aside = {one.batch.id for one in self.aside}
        return (one for one in super().batches(first_epoch, last_epoch) if one.id not in aside)

    def highest_epoch(self) -> int | None:
        """The highest epoch that has evidence which counts."""
        return max((one.epoch for one in self.batches()), default=None) if self.aside else super().highest_epoch()

    def lowest_epoch(self, first: int = 0) -> int | None:
        """The lowest epoch from this one on that has evidence which counts."""
        return min((one.epoch for one in self.batches(first)), default=None) if self.aside else super().lowest_epoch(first)

    def _sharing(self, slots: Select[Any]) -> Iterator[list[Row]]:
        """As of any view; so nobody is said to contradict what he did not sign."""
        for rows in super()._sharing(slots):
            yield [one for one in rows if one.seq not in self._gone]

    def signed(self, epoch: int, signer: PrivateKey) -> bytes:
        """What the log's key says of these batches when it signs the receipt of an epoch: an envelope, to be kept."""
        said = {
            "origin": self.key.name,
            "epoch": epoch,
            "batches": self.looked,
            "digest": self.digest,
            "aside": [{"number": one.batch.id, "why": one.why} for one in self.aside],
        }
        about = {"name": f"batches of {self.key.name}", "digest": {"sha256": self.digest.removeprefix("sha256:")}}
        statement = {"_type": check.STATEMENT, "subject": [about], "predicateType": PREDICATE, "predicate": said}
        return canonical(sign(canonical(statement), signer))

    def _wrong(self, one: KeptBatch, *, late: bool, named: bool) -> str:
        """Why a batch does not count; "" if it does. named: it must name a log."""
        said = check_row(one)
        check_members(one, said, [digest for pair in _ranges(one, said) for digest in self.digests(*pair)])
        if said.version == 1 and named:
            return "it is of version 1, which names no log"
        if said.version > 1 and said.origin != self.key.name:
            return f"it is for the log {said.origin!r}"
        if late:
            return "it came after its epoch was settled"
        try:
            batch.check_envelope(one.envelope, keys.public(said.validator))
        except NotInstalled:
            raise
        except check.Refused as refused:
            return str(refused).removeprefix("batch: ")
        except BadInput as error:
            return error.what
        if others := sum(self.elsewhere(*pair, said.epoch) for pair in one.members):
            raise Damaged(f"{others} records of batch {one.id} are kept as of another epoch", hint=RESTORE)
        return ""

    def _without(self) -> dict[int, int]:
        """The seqs of the records that only batches have which are set aside, and their epochs."""
        brought = {seq: one.batch.epoch for one in self.aside for seq in _seqs(_brought(one.batch))}
        if not brought:
            return {}
        # Of every epoch: what is set aside may say anything of its own.
        kept = {seq for one in self.batches() for seq in _seqs(one.members) if seq in brought}
        return {seq: epoch for seq, epoch in brought.items() if seq not in kept}


def check_row(one: KeptBatch) -> BatchStatement:
    """What a batch's envelope states, if its row is of that; raises Damaged."""
    name = f"batch {one.id}"
    if type(one.envelope) is not bytes:
        raise Damaged(f"the form of {name} is not what it was", hint=RESTORE)
    try:
        payload, said = batch.stated(one.envelope)
    except check.Refused as error:
        raise Damaged(f"the envelope of {name} is none ({error})", hint=RESTORE) from None
    expect(f"the digest of {name}", f"sha256:{sha256(payload).hexdigest()}", one.digest)
    columns = (one.validator, one.epoch, one.count, one.root)
    expect(f"what {name} states", (said.validator, said.epoch, said.count, said.root), columns)
    return said


def check_members(one: KeptBatch, said: BatchStatement, digests: list[bytes]) -> None:
    """Refuse a batch whose records are not those that its statement counts; digests: those of its members. Raises Damaged."""
    expect(f"the count of batch {one.id}", said.count, len(digests))
    expect(f"the root of batch {one.id}", said.root, batch.root_of(sorted(digests)))


def expect(what: str, expected: object, found: object) -> None:
    """Raise Damaged, which names what is not what it was, unless the two are the same."""
    if expected != found:
        raise Damaged(f"{what} is not what it was: {expected} was expected, {found} is there", hint=RESTORE)


def _ranges(one: KeptBatch, said: BatchStatement) -> tuple[tuple[int, int], ...]:
    """The ranges of a batch's members, which are no more than its statement counts: what is there may be anybody's."""
    counts = [last - first + 1 for first, last in (*one.members, *_brought(one))]
    if min(counts, default=0) < 0 or max(counts, default=0) > said.count or sum(counts) > 2 * said.count:
        raise Damaged(f"the count of batch {one.id} is not what it was: it has more members than {said.count}", hint=RESTORE)
    return one.members


def _brought(one: KeptBatch) -> tuple[tuple[int, int], ...]:
    """The range of the records that were new with a batch."""
    return () if one.first_seq is None or one.last_seq is None else ((one.first_seq, one.last_seq),)


def _seqs(ranges: tuple[tuple[int, int], ...]) -> Iterator[int]:
    return (seq for first, last in ranges for seq in range(first, last + 1))


def _digest(before: str, one: KeptBatch) -> str:
    """The digest over the rows of the batches up to this one."""
    envelope = one.envelope if type(one.envelope) is bytes else b""  # of another form it is damage, as `check_row` says
    row = [one.id, one.digest, sha256(envelope).hexdigest(), one.members, one.first_seq, one.last_seq]
    return f"sha256:{sha256(json.dumps([before, *row]).encode()).hexdigest()}"


def _remembered(view: View, key: LogKey) -> _Before:
    """What the log's key signed last of the ledger's batches; words of others, and what says it is of more, are passed over."""
    for count, envelope in view.checked():
        try:
            if type(envelope) is not bytes:
                continue
            found = check.Envelope.parse(check.parse_json(envelope, "batch"), "batch")
            check.check_envelope(found, [key], "batch")
        except check.Refused:
            continue
        said: Json = check.parse_json(found.payload, "batch")
        if not check.misfit(said, _SHAPE) and (said["predicate"]["origin"], said["predicate"]["batches"]) == (key.name, count):
            told = said["predicate"]
            aside = {row["number"]: row["why"] for row in told["aside"]}
            return _Before(told["batches"], told["epoch"], told["digest"], aside)
    return _Before()
