"""The source of all pages: one settled epoch of a competition, the epochs before it, and the proof that its ledger has.

Everything is read once and never written. Without a ledger there is one epoch, no receipt and no history.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from heapq import nlargest
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from assay.competition import Competition, open_competition
from assay.errors import BadInput
from assay.folder import csvs, registry
from assay.folder.files import Place
from assay.records import Evidence, Participant, Validator, record
from assay.scheme.model import Release, Scheme
from assay.serve.history import EpochRow, Past, rows_of
from assay.serve.links import logs_page, participant_page
from assay.settle import Settlement
from assay.settle.inputs import Scored
from assay.settle.score import holding
from assay.settle.story import Chapter, Explanation, called, without_score

if TYPE_CHECKING:
    from assay.ledger.access import Ledger
    from assay.ledger.batch import StoredRecord
    from assay.serve.task import TaskGrid
    from assay.uncertainty import Standing

__all__ = ["EpochProof", "Json", "Link", "Season", "handed_in", "read"]

Json = dict[str, Any]
T = TypeVar("T")
LATEST = 20
"""Records that are kept as the last ones."""
RECORDS = 300_000
"""Records above which a page does not look at each of them."""
_EARLIEST = datetime.min.replace(tzinfo=UTC)
ROOM = 44
"""A key of more characters is shown by its two ends where there is no name: a hotkey has 47 or 48."""


@dataclass(frozen=True, slots=True)
class Link:
    """A receipt in the chain: its epoch, its place in the log (from 0), the digest of what it states."""

    epoch: int
    position: int
    digest: str


@dataclass(frozen=True)
class EpochProof:
    """The ledger's proof of the epoch shown: its receipt was checked and its settlement computed again when this was read."""

    chain: tuple[Link, ...]
    """Every receipt, from the first."""
    states: Json
    """The claims of the epoch's receipt."""
    origin: str
    key: str
    """The log's name and its public key, as `assay verify --key` takes it."""
    size: int
    root: str
    """Of the log, when the receipt was signed: how many receipts, and the root as sha256:…"""
    receipt: Json
    """The receipt as its file has it."""
    cosigned: tuple[tuple[str, datetime], ...] = ()
    """The witnesses of the log's policy that have cosigned its checkpoint, each with the time."""


@dataclass(frozen=True)
class Season:
    """One epoch of a competition and what came before it."""

    folder: Path
    settlement: Settlement
    past: Past | None = None
    """The epochs before, and the records that the settlement rests on; None without a ledger."""
    proof: EpochProof | None = None
    newest: int | None = None
    """The highest epoch that has evidence, if it is later than the one shown and not settled."""
    waiting: tuple[Participant, ...] = ()
    """The participants that handed in something since, the newest first; only of the last epoch."""
    others: Mapping[int, str] = field(default_factory=dict)
    """Epoch → the folder of its pages ("../epoch-3/"; "" for the same), of each other epoch that a reader may step to."""
    address: str | None = None
    """The address of these pages at a service, `https://assay.example.org/term-challenge`; None in a report."""
    root: str = ""
    """The folder of style, script and fonts, seen from the pages: "" or a folder ("../")."""
    _views: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Return what `make` gives, made once for this season: views of several pages share it, and none of them changes it."""
        if name not in self._views:
            self._views[name] = make()
        view: T = self._views[name]
        return view

    def with_waiting(self) -> Season:
        """The same epoch, with who handed in something since as participants.csv has it now. Raises BadInput."""
        return self._as(waiting=handed_in(self.folder, self.settlement))

    def with_receipt(self, data: bytes) -> Season:
        """The same epoch with its receipt as it is now: witnesses may have cosigned since. Raises BadInput."""
        if self.proof is None:
            return self
        return self._as(proof=_proven(self.proof, self.folder, json.loads(data)))

    def below(self, others: Mapping[int, str]) -> Season:
        """The same epoch as the pages in a folder of its own show it. others: as in `Season.others`."""
        return self._as(waiting=(), others=others, root="../")

    def released_logs(self, submission: str, task: str | None = None) -> str:
        """The page with the public logs of a submission, or of one of its tasks; "" if only its participant may read them."""
        public = (self.scheme.release or Release()).logs == "after-epoch" and self.address is not None
        return f"{self.root}{logs_page(submission, task)}" if public and submission else ""

    def _as(self, **changes: Any) -> Season:
        """A copy with other fields, which shares what was computed: nothing of that depends on them."""
        other = copy(self)
        other.__dict__.update(changes)
        return other

    @property
    def scheme(self) -> Scheme:
        """The rules."""
        return self.settlement.inputs.scheme

    @property
    def document(self) -> Json:
        """The settlement's document."""
        return self.settlement.document

    @cached_property
    def participants(self) -> dict[str, Participant]:
        """Key → participant."""
        return {participant.key: participant for participant in self.settlement.inputs.participants}

    @cached_property
    def by_page(self) -> dict[str, str]:
        """The name of each participant's page → its key."""
        return {participant_page(key): key for key in self.participants}

    @cached_property
    def validators(self) -> dict[str, Validator]:
        """Key → validator, the highest stake first."""
        order = sorted(self.settlement.inputs.validators, key=lambda validator: (-validator.stake, validator.key.encode()))
        return {validator.key: validator for validator in order}

    @cached_property
    def called(self) -> dict[str, str]:
        """Validator's key → what people call it: its name, or its key, shortened where nobody else is called the same."""
        short = called(self.settlement.inputs.validators)
        names = [validator.name for validator in self.validators.values()]
        return {
            key: validator.name if validator.name and names.count(validator.name) == 1 else short[key]
            for key, validator in self.validators.items()
        }

    def name(self, key: str) -> str:
        """Return what people call a participant: its name, or its key, shortened."""
        name = self.participants[key].name
        if (not name or "…" in name) and len(key) <= ROOM:  # an import cuts it for a terminal; a page has room
            return key
        return name or f"{key[:8]}…{key[-6:]}"

    @cached_property
    def agreed(self) -> dict[str, Json]:
        """Participant → its row of `agreed`."""
        return {row["participant"]: row for row in self.document["agreed"]}

    @cached_property
    def standings(self) -> Mapping[str, Standing]:
        """Participant → its interval and whether the next one is clearly behind; empty where that cannot be said."""
        return self.scheme.kind.standings(self.settlement) or {}

    @cached_property
    def without_score(self) -> dict[str, Chapter]:
        """Participant without an agreed score → why."""
        return without_score(self.settlement)

    @property
    def epochs(self) -> tuple[int, ...]:
        """The settled epochs up to the one shown, ascending; only this one without a ledger."""
        return (*(() if self.past is None else (epoch for epoch, _ in self.past.receipts)), self.settlement.epoch)

    @cached_property
    def rows(self) -> dict[str, EpochRow]:
        """Participant → its row of the epoch shown."""
        return rows_of(self.document)

    def history(self, last: int | None = None) -> list[tuple[int, dict[str, EpochRow]]]:
        """Of each epoch up to the one shown, or of so many of the last, the participants' rows, oldest first."""
        before = None if last is None else last - 1
        return [*(() if self.past is None else self.past.rows(before)), (self.settlement.epoch, self.rows)]

    @cached_property
    def documents(self) -> tuple[Json, ...]:
        """The settlement documents up to the epoch shown, oldest first. Each has every vote: a long ledger has many of them."""
        return (*(() if self.past is None else self.past.documents(self.epochs[:-1])), self.document)

    def story(self, key: str) -> Explanation:
        """Return why a participant has its numbers; raises BadInput for a stranger."""
        known = self._summed is not None or not isinstance(self.settlement.inputs.evidence, Scored)
        return self.settlement.explain(key, self.records(key) if known else None, token=self.token)

    @cached_property
    def token(self) -> str:
        """The token of the deposit, as people read it; empty for ether."""
        if not (self.folder / "publish.toml").exists():
            return ""
        from assay.publish.evm.settings import deposit_token

        return deposit_token(self.folder)

    def records(self, key: str) -> Sequence[Evidence]:
        """The records about a participant's submission; none where only sums are known."""
        if self._summed is not None:
            return [record(json.loads(stored.body) | {"seq": stored.seq}) for stored in self._summed.get(key, ())]
        return self._records.get(key, ())

    @property
    def is_small(self) -> bool:
        """Whether a page may look at every record: by the size of the competition there are at most `RECORDS`."""
        inputs, trials = self.settlement.inputs, self.scheme.kind.trials(self.scheme.score) or 1
        return (len(inputs.tasks) or 1) * trials * len(inputs.validators) * len(inputs.participants) <= RECORDS

    @cached_property
    def latest(self) -> list[tuple[str, Evidence]]:
        """(participant, record) of the records that were observed last, the newest first; none where there are too many."""
        pairs = ((key, about) for key in self.participants for about in self.records(key)) if self.is_small else ()
        return nlargest(LATEST, pairs, key=lambda pair: pair[1].observed_at)

    @cached_property
    def tasks(self) -> TaskGrid:
        """The trials that stand, by task."""
        from assay.serve.task import TaskGrid

        return TaskGrid(self)

    @cached_property
    def _summed(self) -> dict[str, list[StoredRecord]] | None:
        """Participant → its records as the ledger has them, where the settlement was computed from sums of these."""
        if self.past is None or not isinstance(self.settlement.inputs.evidence, Scored):
            return None
        return self.past.records(self.settlement)

    @cached_property
    def _records(self) -> dict[str, list[Evidence]]:
        evidence, frame = self.settlement.inputs.evidence, self.settlement.frame
        column_of = holding(frame)
        records: dict[str, list[Evidence]] = {}
        for about in () if isinstance(evidence, Scored) else evidence:
            column = frame.column.get(about.participant) if about.by_participant else column_of(about)
            if column is not None:
                records.setdefault(frame.participants[column], []).append(about)
        return records


def handed_in(folder: Path, settlement: Settlement | None = None) -> tuple[Participant, ...]:
    """Return who handed in something that a settlement (None: any) did not see, the newest first: it is judged for a later epoch.

    Raises BadInput if participants.csv cannot be read.
    """
    file = folder / csvs.PARTICIPANTS.name
    known = registry.participants(csvs.read(file, csvs.PARTICIPANTS), Place(file), open_competition(folder).scheme)
    seen = (
        {} if settlement is None else {participant.key: participant.submission for participant in settlement.inputs.participants}
    )
    new = [participant for participant in known if participant.submission not in ("", seen.get(participant.key))]
    return tuple(sorted(new, key=lambda participant: participant.submitted_at or _EARLIEST, reverse=True))


def read(folder: Path, epoch: int | None = None, judged: dict[tuple[object, ...], str] | None = None) -> Season:
    """The season of a folder, at an epoch (None: the last that is settled; without a ledger the highest that has evidence).

    judged: verdicts on batches that were read before, see `Ledger.judged`; new ones are added.
    Raises BadInput for what SPEC refuses, CannotSettle where nothing can be shown, StoreError. SPEC 6, 7.
    """
    competition = open_competition(folder)
    if not competition.has_ledger:
        return Season(folder, competition.settle(epoch))
    from assay.ledger.access import open_ledger
    from assay.serve.notebook import CACHE_KIB

    with open_ledger(folder, cache=CACHE_KIB) as ledger:
        if judged is not None:
            ledger.judged = judged
        season = _from_ledger(competition, ledger, epoch)
    return season if epoch is not None else replace(season, waiting=handed_in(folder, season.settlement))


def _from_ledger(competition: Competition, ledger: Ledger, epoch: int | None) -> Season:
    from assay.ledger import settling

    settlement = settling.shown(ledger) if epoch is None else settling.draft(ledger, epoch).settlement
    newest = settling.newest(ledger)
    with ledger.store.reading() as view:
        settled = view.settled_epoch()
        before = tuple((receipt.epoch, receipt.digest) for receipt in view.receipts() if receipt.epoch < settlement.epoch)
        past = Past(competition.path, before, view.last_seq())
    return Season(
        competition.path,
        settlement,
        past,
        _proof(ledger, settlement),
        newest if newest is not None and newest > max(settlement.epoch, -1 if settled is None else settled) else None,
    )


def _proof(ledger: Ledger, settlement: Settlement) -> EpochProof | None:
    """The proof of a settled epoch, checked here: signature, place in the log, and the settlement, which was computed again."""
    from assay.ledger import settling
    from assay.ledger.access import receipt_predicate
    from assay.ledger.evidence import evidence_root

    with ledger.counted() as view:
        receipt = view.receipt(settlement.epoch)
        if receipt is None:
            return None
        links = [*view.receipts()]
        first = max((link.epoch + 1 for link in links if link.epoch < receipt.epoch), default=0)
        records = list(view.pairs(first, receipt.epoch))
    settling.check_receipt(ledger, receipt)
    states = receipt_predicate(receipt)
    root = evidence_root([seq for seq, _ in records], [digest for _, digest in records])
    for name, stated, computed in (
        ("settlement", states["settlement"], settlement.digest),
        ("evidence", states["evidence"], {"root": root, "count": len(records)}),
    ):
        if stated != computed:
            what = f"the receipt of epoch {receipt.epoch} does not name the {name} that the ledger has"
            raise BadInput(what, file=ledger.store.name, hint="`assay ledger check` says what was changed")
    chain = tuple(Link(link.epoch, link.position, link.digest) for link in links)
    proof = EpochProof(chain, states, ledger.config.origin, str(ledger.key), 0, "", {})
    return _proven(proof, ledger.folder, ledger.document(receipt))


def _proven(proof: EpochProof, folder: Path, receipt: Json) -> EpochProof:
    """The proof with this receipt: the checkpoint that it is in, and who cosigned that."""
    from assay.ledger import config
    from assay.ledger.check import LogKey, LogProof, check_checkpoint
    from assay.ledger.cosigning import cosignatures, read_policy

    note, path = LogProof.parse(receipt["proof"]).checkpoint, config.read(folder).policy
    checkpoint = check_checkpoint(note, [LogKey.parse(proof.key)])
    policy = read_policy(path) if path.exists() else None
    times = {} if policy is None else cosignatures(note, policy.keys())
    cosigned = (
        ()
        if policy is None
        else tuple((name, datetime.fromtimestamp(times[policy.witnesses[name].key], UTC)) for name in policy.names(times))
    )
    size, root = checkpoint.size, f"sha256:{checkpoint.root.hex()}"
    return replace(proof, size=size, root=root, receipt=receipt, cosigned=cosigned)
