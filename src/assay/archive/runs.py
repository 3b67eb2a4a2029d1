"""Verify a whole archive, or settle the epochs whose evidence fits a pattern: shards out, verdicts in, and one report of all.

An epoch is verified if its own shard is right, and the records of every epoch before it are held. So its verdict is that of
`assay verify` with the bundle of the epoch, but each record is compared with its signature once.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.archive.listing import EpochFiles, Listing, cache_of, chosen, listed, split_pattern
from assay.archive.shards import (
    LOST,
    ArchiveSettlement,
    EpochVerdict,
    Fault,
    SettleShard,
    VerifyShard,
    fault_of,
    settle_epochs,
    verify_epoch,
)
from assay.archive.workers import Lost, ShardEngine
from assay.errors import BadInput, CannotSettle
from assay.folder.places import STAGE, open_place
from assay.ledger.bundle import SETTLEMENT
from assay.ledger.verify import STAGES, audits

__all__ = ["ArchiveReport", "settle_all", "verify_all"]

Progress = Callable[[int, int], None]
"""Called with the number of epochs that are done, and of all."""
OTHERS = ("evidence", "signatures")
"""Stages that check what later epochs rest on too."""


@dataclass(frozen=True)
class ArchiveReport:
    """The verdict of every epoch, by competition and epoch; faults of whole competitions have no epoch. `ignored`: paths."""

    place: str
    verdicts: tuple[EpochVerdict, ...]
    faults: tuple[tuple[str, Fault], ...]
    ignored: tuple[str, ...]

    @property
    def verified(self) -> bool:
        """Whether everything that was found is verified."""
        return not self.faults and all(verdict.fault is None for verdict in self.verdicts)

    @property
    def refused(self) -> bool:
        """Whether anything is wrong, and not only out of reach of this machine."""
        faults = [fault for _, fault in self.faults] + [verdict.fault for verdict in self.verdicts if verdict.fault is not None]
        return any(fault.refused for fault in faults)

    def document(self) -> dict[str, Any]:
        """The report as a JSON object."""
        rows: list[dict[str, Any]] = [
            {"competition": competition, "epoch": None, "verified": False} | _fault(fault) for competition, fault in self.faults
        ]
        for verdict in self.verdicts:
            results = {
                "records": verdict.records,
                "settlement": verdict.settlement,
                "log": verdict.log,
                "audits": _audits(verdict),
            }
            row = {"competition": verdict.competition, "epoch": verdict.epoch, "verified": verdict.fault is None}
            rows.append(row | results | ({} if verdict.fault is None else _fault(verdict.fault)))
        return {"verified": self.verified, "archive": self.place, "epochs": rows, "ignored": list(self.ignored)}


def _audits(verdict: EpochVerdict) -> list[dict[str, Any]]:
    return [{"checked": result.done, "what": result.what} for result in verdict.audits]


def _fault(fault: Fault) -> dict[str, Any]:
    return {
        "stage": fault.stage,
        "participant": fault.participant or None,
        "what": fault.what,
        "expected": fault.expected,
        "found": fault.found,
        "file": fault.file,
        "line": fault.line,
    }


def verify_all(
    where: str,
    *,
    engine: ShardEngine,
    keys: Sequence[str] = (),
    policy: Path | None = None,
    progress: Progress = lambda done, total: None,
) -> ArchiveReport:
    """Verify every epoch of every competition in an archive; a fault of one does not end the others' work.

    keys: of the logs; without them each receipt is checked with the key that it names itself. Raises BadInput if there is no
    archive, and Unreachable if it cannot be listed.
    """
    place = open_place(where)
    listing = listed(place)
    if not listing.competitions and not listing.faults:
        raise BadInput("has no epochs", file=place.name, hint="give an archive: what `assay export archive` writes")
    with _cache(listing) as cache:
        shards = [
            VerifyShard(
                where, str(cache.path), listing.up_to(competition, epoch), tuple(keys), None if policy is None else str(policy)
            )
            for competition, epochs in listing.competitions.items()
            for epoch in epochs
            if (competition, epoch) not in listing.faults
        ]
        verdict_of: dict[tuple[str, int], EpochVerdict] = {}
        for shard, result in engine.map(verify_epoch, shards):
            files = shard.epoch
            if isinstance(result, Lost):
                result = EpochVerdict(files.competition, files.epoch, Fault(LOST, result.why))
            verdict_of[files.competition, files.epoch] = result
            cache.done(files.competition)
            progress(len(verdict_of), len(shards))
    faults = [(competition, fault_of(error, {})) for (competition, epoch), error in listing.faults.items() if epoch is None]
    verdicts = [verdict for competition in listing.competitions for verdict in _joined(listing, competition, verdict_of)]
    return ArchiveReport(place.name, tuple(_one_log_each(verdicts)), tuple(faults), tuple(listing.ignored))


def _joined(listing: Listing, competition: str, verdict_of: dict[tuple[str, int], EpochVerdict]) -> Iterator[EpochVerdict]:
    """The verdicts of a competition's epochs, each with the first fault of what it rests on, if that comes before its own."""
    inherited: Fault | None = None
    taken: list[tuple[int, int]] = []
    for epoch in listing.competitions[competition]:
        error = listing.faults.get((competition, epoch))
        verdict = verdict_of.get((competition, epoch)) or EpochVerdict(competition, epoch, fault_of(error, {}) if error else None)
        own = verdict.fault
        if verdict.held and inherited is None and _overlap(taken, verdict.seqs):
            verdict = replace(verdict, held=False, fault=Fault("evidence", "two records have the same seq"))
            own = verdict.fault
        elif inherited is not None and (own is None or _order(inherited) <= _order(own)):
            verdict = replace(verdict, fault=inherited)
        taken = sorted([*taken, *verdict.seqs])
        if not verdict.held and inherited is None:
            inherited = own if own is not None and own.stage in OTHERS else _resting(epoch, own)
        yield verdict


def _resting(epoch: int, own: Fault | None) -> Fault:
    """The fault of an epoch that rests on records which were not looked at."""
    why = "" if own is None else f": {own}"
    name = "evidence" if own is None or own.refused else own.stage
    return Fault(
        name, f"it rests on the records of epoch {epoch}, which were not verified{why}", file=None if own is None else own.file
    )


def _order(fault: Fault) -> int:
    """The place of a fault's stage; audits are checked last, and the archive's files before anything in them."""
    return len(STAGES) if fault.stage == audits.STAGE else STAGES.index(fault.stage) if fault.stage in STAGES else -1


def _overlap(taken: Sequence[tuple[int, int]], seqs: Sequence[tuple[int, int]]) -> bool:
    return any(before[1] >= after[0] for before, after in itertools.pairwise(sorted([*taken, *seqs])))


def _one_log_each(verdicts: Sequence[EpochVerdict]) -> Iterator[EpochVerdict]:
    """Refuse a log that is in two folders: its epochs would be there twice."""
    folders: dict[str, str] = {}
    for verdict in verdicts:
        folder = folders.setdefault(verdict.log, verdict.competition) if verdict.log else verdict.competition
        if folder != verdict.competition and verdict.fault is None:
            what = f"its log is that of the folder {folder!r}: an epoch may be in an archive only once"
            verdict = replace(verdict, fault=Fault(STAGE, what, file=f"{verdict.competition}/epoch-{verdict.epoch}"))
        yield verdict


class _Cache:
    """The folder of what is fetched, for as long as a competition's epochs are in work."""

    def __init__(self, path: Path, epochs: dict[str, int]) -> None:
        self.path, self._left = path, epochs

    def done(self, competition: str, epochs: int = 1) -> None:
        """Note that epochs of a competition are done; after the last one, its files are removed."""
        self._left[competition] -= epochs
        if self._left[competition] <= 0:
            shutil.rmtree(cache_of(self.path, competition), ignore_errors=True)


@contextmanager
def _cache(listing: Listing) -> Iterator[_Cache]:
    with tempfile.TemporaryDirectory(prefix="assay-fetched-") as path:
        wrong = [competition for competition, epoch in listing.faults if epoch is not None]
        left = {name: len(epochs) - wrong.count(name) for name, epochs in listing.competitions.items()}
        yield _Cache(Path(path), left)


def settle_all(
    pattern: str,
    *,
    engine: ShardEngine,
    output: Callable[[ArchiveSettlement], None] | None = None,
    progress: Progress = lambda done, total: None,
) -> tuple[list[ArchiveSettlement], list[str]]:
    """Settle the epochs of an archive whose evidence fits a pattern, by competition and epoch; and the paths that are ignored.

    An epoch continues from the settlement before it in the archive, or, where there is none, from the one that is computed here.
    Signatures are not looked at: that is what verifying is for. output: called with each settled epoch, with its document.

    Raises BadInput if nothing fits, and Unreachable if the archive cannot be listed.
    """
    root, below = split_pattern(pattern)
    place = open_place(root)
    listing = listed(place)
    wanted = chosen(listing, below)
    if not wanted:
        hint = "give the path of an archive, or a pattern such as 's3://bucket/archive/**/*.parquet'"
        raise BadInput(f"no evidence of an epoch fits {below!r}", file=place.name, hint=hint)
    settled: list[ArchiveSettlement] = []
    total = sum(map(len, wanted.values()))
    with _cache(listing) as cache:
        pieces = [piece for competition, epochs in wanted.items() for piece in _pieces(listing, competition, epochs)]
        ready, refused = [], []
        for piece in pieces:
            places = [(piece[-1][-1].competition, None), *((files.competition, files.epoch) for files in piece[-1])]
            error = next((listing.faults[place] for place in places if place in listing.faults), None)
            if error is None:
                ready.append(SettleShard(root, str(cache.path), piece, output is not None))
            else:
                refused += [ArchiveSettlement(each[-1].competition, each[-1].epoch, fault=fault_of(error, {})) for each in piece]
        settled += refused
        for shard, result in engine.map(settle_epochs, ready):
            if isinstance(result, Lost):
                why = Fault(LOST, result.why)
                result = [ArchiveSettlement(shard.competition, each[-1].epoch, fault=why) for each in shard.epochs]
            for epoch in result:
                if output is not None and epoch.fault is None:
                    output(epoch)
                settled.append(replace(epoch, document=None))
            cache.done(shard.competition, len(shard.epochs))
            progress(len(settled), total)
    return sorted(settled, key=lambda epoch: (epoch.competition, epoch.epoch)), listing.ignored


def _pieces(listing: Listing, competition: str, epochs: Sequence[int]) -> Iterator[tuple[tuple[EpochFiles, ...], ...]]:
    """The epochs of a competition as shards: an epoch whose settlement before is in the archive begins one.

    Raises CannotSettle for an epoch that rests on one that is neither settled in the archive nor to be settled.
    """
    piece: list[tuple[EpochFiles, ...]] = []
    for epoch in epochs:
        files = listing.up_to(competition, epoch)
        before = files[-2] if len(files) > 1 else None
        if before is None or SETTLEMENT in before.files:
            if piece:
                yield tuple(piece)
            piece = [files]
        elif piece and piece[-1][-1].epoch == before.epoch:
            piece.append(files)
        else:
            what = (
                f"epoch {epoch} rests on epoch {before.epoch}, which has no settlement.json and is not among the epochs to settle"
            )
            raise CannotSettle(what, file=files[-1].folder, hint=f"settle epoch {before.epoch} too")
    yield tuple(piece)
