"""The API's documents of a competition and its settled epochs: read from the ledger, computed nowhere else. SPEC 6.

Evidence is public when its epoch is settled, not before: otherwise a validator could copy what another one saw. A competition
without a ledger has one epoch, the one that its pages show.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from assay.errors import CannotSettle, brief
from assay.exact import canonical
from assay.folder import csvs, registry
from assay.folder.files import Place
from assay.ledger import bundle, evidence
from assay.ledger.access import stored_settlement
from assay.ledger.check import LogKey
from assay.ledger.closing_cost import next_epoch
from assay.ledger.counting import CountedView
from assay.ledger.exchange import proof_for
from assay.ledger.store import Store, StoredReceipt, View
from assay.records import Participant, Validator
from assay.scheme.fields import instant_text
from assay.serve.board import csv_rows
from assay.serve.downloads import tar_of
from assay.serve.epoch import table_csv
from assay.serve.http import HttpProblem
from assay.serve.notebook import Heartbeat
from assay.serve.season import Season
from assay.serve.site import ServedCompetition
from assay.tables import TABLES

__all__ = ["EpochReader", "People"]

Json = dict[str, Any]


@dataclass(frozen=True)
class People:
    """The registry of a competition as its folder has it, by key in the order of their bytes, and its task set's digest."""

    participants: Mapping[str, Participant]
    validators: Mapping[str, Validator]
    tasks: tuple[str, ...]
    task_set: str | None


class EpochReader:
    """One competition, read for the API. Threads share it. Methods raise StoreError where the database does not answer."""

    def __init__(self, served: ServedCompetition) -> None:
        self.served = served
        self._people: tuple[object, People] | None = None
        self._clean: object = None

    # The competition

    def people(self) -> People:
        """Return who takes part, as the folder says now. Raises BadInput."""
        state = self.served.files()
        known = self._people
        if known is None or known[0] != state:
            known = self._people = (state, _people(self.served))
        return known[1]

    def summary(self) -> Json:
        """The row of this competition in the list of competitions."""
        served = self.served
        row: Json = {
            "name": served.name,
            "board": f"/{served.segment}/",
            "api": f"/v1/{served.segment}",
            "kind": served.scheme.score.kind,
            "open": None,
            "settled": None,
            "origin": None,
            "vkey": None,
        }
        if served.store is not None:
            with served.store.reading() as view:
                row |= {"open": next_epoch(view) or 1, "settled": view.settled_epoch()}
            row |= {"origin": served.store.meta.origin, "vkey": served.store.meta.key}
        return row

    def competition(self) -> Json:
        """The competition: what the list says, its rules, and how many take part."""
        people, scheme = self.people(), self.served.scheme
        return self.summary() | {
            "scheme": scheme.document(),
            "digest": scheme.digest,
            "participants": len(people.participants),
            "validators": len(people.validators),
            "tasks": len(people.tasks),
            "task_set": people.task_set,
        }

    def participant_rows(self) -> list[Json]:
        """A row for each participant; its submission is the ledger's where the folder names none, as when an epoch is settled."""
        latest = {} if self.served.store is None else self.served.handed_in()
        listed = []
        for key, person in self.people().participants.items():
            submission, at = person.submission, None if person.submitted_at is None else instant_text(person.submitted_at)
            if not submission and key in latest:
                submission, at = latest[key].submission, latest[key].submitted_at or None
            row = {"key": key, "name": person.name, "uid": person.uid, "submission": submission or None, "submitted_at": at}
            listed.append(row)
        return listed

    def validator_rows(self) -> list[Json]:
        """A row for each validator, with what it said last of what it judges."""
        beats: dict[str, Heartbeat] = {}
        if self.served.notebook is not None:
            beats = {beat.validator: beat for beat in self.served.notebook.heartbeats()}
        listed = []
        for key, validator in self.people().validators.items():
            beat = beats.get(key)
            heartbeat = None if beat is None else {"at": instant_text(beat.at), "judging": list(beat.judging)}
            listed.append({"key": key, "name": validator.name, "stake": str(validator.stake), "heartbeat": heartbeat})
        return listed

    # Its epochs

    def settled(self) -> list[Json]:
        """A row for each settled epoch, the newest first; none without a ledger."""
        if self.served.store is None:
            return []
        with self.served.store.reading() as view:
            return [
                {"epoch": receipt.epoch, "receipt": receipt.digest, "position": receipt.position}
                for receipt in sorted(view.receipts(), key=lambda receipt: -receipt.epoch)
            ]

    def season(self, epoch: int) -> Season:
        """A settled epoch, or the one that the pages show. Raises CannotSettle for another one, BadInput, StoreError."""
        store = self.served.store
        if store is not None:
            with store.reading() as view:
                if view.receipt(epoch) is not None:
                    return self.served.season(epoch)
                last = view.settled_epoch()
            if last is not None:
                raise _unsettled(epoch, last)
        season = self.served.season()
        if season.settlement.epoch != epoch:
            raise CannotSettle(f"there is no epoch {epoch} yet", hint=f"the one shown is {season.settlement.epoch}")
        return season

    def document(self, epoch: int) -> bytes:
        """The settlement's document: as it is stored, or drawn from the evidence before the first epoch is settled."""
        if self.served.store is not None:
            with self.served.store.reading() as view:
                if view.receipt(epoch) is not None:
                    return stored_settlement(view, epoch)[0].document
        return canonical(self.season(epoch).document)

    def board(self, epoch: int) -> list[Json]:
        """The rows of the board: rank, participant, name, uid, score, interval, tie, kept, share, u16, payout; null without."""
        heading, *rows = csv_rows(self.season(epoch))
        listed: list[Json] = []
        for place, cells in enumerate(rows, start=1):
            row: Json = {name: cell or None for name, cell in zip(heading, cells, strict=True)}
            row |= {name: None if row[name] is None else int(row[name]) for name in ("uid", "u16")}
            row |= {name: None if row[name] is None else float(row[name]) for name in ("low", "high")}
            row |= {"name": row["name"] or "", "tied_with_next": row["tied_with_next"] == "true", "place": place}
            listed.append(row)
        return listed

    def explanation(self, epoch: int, key: str) -> bytes:
        """The reasons for a participant's numbers, as `assay explain --json` has them, but for `margins`, which the board has.

        Raises HttpProblem (404) for a stranger.
        """
        season, folder = self.season(epoch), self.served.folder
        if key not in season.participants:
            raise _stranger(key, epoch)
        return canonical(season.story(key).document() | season.scheme.kind.about(season.settlement, folder, key))

    def table(self, epoch: int, name: str) -> bytes:
        """A table of the settlement as CSV. Raises HttpProblem (404) for another name."""
        if name not in TABLES:
            raise HttpProblem(404, f"there is no table {brief(name, 80)}", hint=f"there is {', '.join(TABLES)}")
        return table_csv(json.loads(self.document(epoch)), name)

    def receipt(self, epoch: int) -> bytes:
        """The receipt of a settled epoch, as `assay receipt` prints it."""
        with self._ledgered().reading() as view:
            return bundle.receipt_now(view, _receipt(view, epoch).epoch)

    def proof(self, epoch: int, key: str) -> bytes:
        """A participant's own proof, as `assay receipt --for` prints it. Raises HttpProblem (404) for a stranger."""
        with self._ledgered().reading() as view:
            inputs = json.loads(stored_settlement(view, _receipt(view, epoch).epoch)[1])
        if key not in {row["key"] for row in inputs["participants"]}:
            raise _stranger(key, epoch)
        with self.served.ledger() as ledger:
            return canonical(proof_for(ledger, key, epoch)) + b"\n"

    def records(self, epoch: int, after: int, most: int) -> list[tuple[int, bytes]]:
        """The records of a settled epoch that count, from a seq on: (seq, a line of JSON with the seq), at most so many."""
        with self._ledgered().reading() as view:
            _receipt(view, epoch)
            page = self.counted(view, epoch).page(epoch, after, most)
        return [(row.seq, b'%b,"seq":%d}' % (row.body[:-1], row.seq)) for row in page]

    def counted(self, view: View, epoch: int) -> View:
        """The evidence of an epoch that counts: every batch in it was signed by its validator."""
        settled = view.settled_epoch()
        state = (settled, None if settled is not None and epoch <= settled else view.last_batch())
        if state == self._clean:  # nothing was set aside when all batches were looked at
            return view
        counted = CountedView(view, LogKey.parse(self._ledgered().meta.key), self.served.judged)
        if not counted.aside:
            self._clean = state
        return counted

    def position(self, epoch: int) -> int:
        """The place of a settled epoch's receipt in the log. Raises CannotSettle if it is not settled."""
        with self._ledgered().reading() as view:
            return _receipt(view, epoch).position

    def bundle_name(self, epoch: int) -> str:
        """The name of the bundle's tar in the cache, another after each new audit. Raises CannotSettle if it is not settled."""
        names = sorted(path.name for path in (self.served.folder / bundle.AUDITS).glob("*.audit"))
        audits = f"-{sha256(' '.join(names).encode()).hexdigest()[:16]}" if names else ""
        return f"bundle-{epoch}-{self.position(epoch)}{audits}.tar"

    def write_bundle(self, epoch: int, path: Path) -> None:
        """Write what `assay export epoch` writes as a tar, in a folder `epoch-N`."""
        with tempfile.TemporaryDirectory(prefix=".export-", dir=path.parent) as beside, self.served.ledger() as ledger:
            folder = bundle.export(ledger, epoch, Path(beside) / "bundle")
            tar_of(path, [(f"epoch-{epoch}", folder)])

    def write_parquet(self, epoch: int, path: Path) -> None:
        """Write the evidence of a settled epoch that counts as Parquet. Raises HttpProblem (404, 501)."""
        kind = self.served.scheme.score.kind
        if not self.served.scheme.kind.in_bulk:
            raise HttpProblem(404, f"there is no Parquet for evidence of kind {kind!r}", hint=f"epochs/{epoch}/records has it")
        if find_spec("pyarrow") is None:
            hint = "its operator adds it: pip install 'assay[bulk]'; epochs/N/records has the same"
            raise HttpProblem(501, "Parquet is written with pyarrow, which this service does not have", hint=hint)
        with self._ledgered().reading() as view:
            evidence.write_parquet(path, ((seq, body) for seq, _, body in self.counted(view, epoch).records(epoch, epoch)))

    def _ledgered(self) -> Store:
        return self.served.books()[0]


def _people(served: ServedCompetition) -> People:
    folder, scheme = served.folder, served.scheme
    file, place = folder / csvs.PARTICIPANTS.name, folder / csvs.VALIDATORS.name
    participants = registry.participants(csvs.read(file, csvs.PARTICIPANTS), Place(file), scheme)
    validators = registry.validators(csvs.read(place, csvs.VALIDATORS), Place(place), len(participants))
    tasks = registry.task_set(folder, scheme)
    return People(
        {person.key: person for person in sorted(participants, key=lambda person: person.key.encode())},
        {validator.key: validator for validator in sorted(validators, key=lambda validator: validator.key.encode())},
        () if tasks is None else tasks.ids,
        None if tasks is None else tasks.digest,
    )


def _receipt(view: View, epoch: int) -> StoredReceipt:
    receipt = view.receipt(epoch)
    if receipt is None:
        raise _unsettled(epoch, view.settled_epoch())
    return receipt


def _unsettled(epoch: int, last: int | None) -> CannotSettle:
    settled = "nothing is settled yet" if last is None else f"the last one settled is {last}"
    return CannotSettle(f"epoch {epoch} is not settled: {settled}", hint="the list of epochs has those that are")


def _stranger(key: str, epoch: int) -> HttpProblem:
    return HttpProblem(404, f"there is no participant {brief(key, 80)} in epoch {epoch}", hint="give the whole key")
