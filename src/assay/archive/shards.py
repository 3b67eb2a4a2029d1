"""The work on one shard of an archive: verify one epoch, or settle the epochs of one competition that stand after each other.

A shard has everything that it needs, and no other shard's result, so it runs anywhere. Verifying checks each thing once: an
epoch's shard checks that the receipts up to it are one log, but compares only its own records and batches with what was signed.
Those of earlier epochs, on which its settlement rests, are checked by their own shards; `assay.archive.runs` joins the verdicts.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.archive.listing import EVIDENCE, RECEIPT, EpochFiles, cache_of
from assay.errors import MISSING, AssayError, BadInput, CannotSettle, Refused, Unreachable, as_text
from assay.exact import canonical
from assay.folder.evidence import Gathered
from assay.folder.files import SETTLEMENT_BYTES, load
from assay.folder.places import STAGE, ArchivePlace, StoredFile, open_place
from assay.folder.previous import previous_of
from assay.ledger import batch as batches
from assay.ledger import bundle, check, eligible, evidence
from assay.ledger.batch import BatchStatement
from assay.ledger.check import LogKey, Receipt
from assay.ledger.eligible import BatchTaskSet
from assay.ledger.evidence import BoundRecords
from assay.ledger.verify import audits, claims, recompute, report, witnesses
from assay.ledger.verify.report import Material, StageResult, Verified, read_document, stage
from assay.settle import pipeline
from assay.settle.inputs import Previous

__all__ = [
    "ArchiveSettlement",
    "EpochVerdict",
    "Fault",
    "SettleShard",
    "VerifyShard",
    "fault_of",
    "settle_epochs",
    "verify_epoch",
]


@dataclass(frozen=True)
class Fault:
    """The fault of an epoch that is refused or could not be read: its stage, and `assay.Refused`'s words with archive paths."""

    stage: str
    what: str
    participant: str = ""
    expected: str | None = None
    found: str | None = None
    file: str | None = None
    line: int | None = None

    @property
    def refused(self) -> bool:
        """Whether the archive is wrong; if not, this machine could not look."""
        return self.stage not in (UNREACHABLE, MISSING, LOST)

    def __str__(self) -> str:
        error = Refused(
            self.stage,
            self.what,
            participant=self.participant,
            expected=self.expected,
            found=self.found,
            file=self.file,
            line=self.line,
        )
        return str(error)


UNREACHABLE, LOST = "unreachable", "lost"
"""Stages of faults that say nothing about the archive: its store does not answer; the worker ended."""


@dataclass(frozen=True)
class VerifyShard:
    """One epoch to verify, with all epochs before it, ascending. keys: those of logs that are known; none: each names its own."""

    place: str
    cache: str
    epochs: tuple[EpochFiles, ...]
    keys: tuple[str, ...] = ()
    policy: str | None = None

    @property
    def epoch(self) -> EpochFiles:
        """The epoch that is verified."""
        return self.epochs[-1]


@dataclass(frozen=True)
class EpochVerdict:
    """The verdict on one epoch. `held`: its own records are those that its receipt binds and its validators signed."""

    competition: str
    epoch: int
    fault: Fault | None = None
    held: bool = False
    records: int = 0
    settlement: str = ""
    log: str = ""
    """The key that the receipt was checked with."""
    name: str = ""
    """The competition that the receipt names."""
    seqs: tuple[tuple[int, int], ...] = ()
    """The seqs of its records, as ranges, first and last included."""
    audits: tuple[StageResult, ...] = ()
    """The results of its audits: what was checked, and what was not."""


def verify_epoch(shard: VerifyShard) -> EpochVerdict:
    """Verify one epoch as far as its own files go. Whatever is in them, the fault is in the verdict; nothing is raised."""
    verdict = EpochVerdict(shard.epoch.competition, shard.epoch.epoch)
    names: dict[str, str] = {}
    try:
        with _assembled(open_place(shard.place), Path(shard.cache), shard.epochs, names) as root:
            return _EpochCheck(shard, root, verdict).run(names)
    except AssayError as error:
        return replace(verdict, fault=fault_of(error, names))


UNREADABLE = (OSError, ValueError, TypeError, LookupError, NotImplementedError, MemoryError)
"""The errors that libraries raise for Parquet that only seems to be right. One epoch's files never end the others' work."""


def _unreadable(error: Exception) -> Fault:
    return Fault(STAGE, f"its files cannot be read ({type(error).__name__}: {str(error).partition(chr(10))[0][:200]})")


def fault_of(error: AssayError, names: dict[str, str]) -> Fault:
    """An error as a fault, whose file is named as the archive names it. names: path on this machine → path in the archive."""
    file = None if error.file is None else names.get(str(error.file), str(error.file))
    if isinstance(error, Refused):
        expected, got = (None if value is None else as_text(value) for value in (error.expected, error.found))
        return Fault(error.stage, error.what, error.participant, expected, got, file, error.line)
    name = UNREACHABLE if isinstance(error, Unreachable) else error.stage or STAGE
    field = f"{error.field}: " if error.field else ""
    return Fault(name, f"{field}{error.what}" + (f"; {error.hint}" if error.hint else ""), file=file, line=error.line)


@dataclass
class _EpochCheck:
    """The stages of one epoch, in the order of `assay verify`."""

    shard: VerifyShard
    root: Path
    verdict: EpochVerdict

    def run(self, names: dict[str, str]) -> EpochVerdict:
        fault: Fault | None = None
        try:
            self._stages()
        except AssayError as error:
            fault = fault_of(error, names)
        except UNREADABLE as error:
            fault = _unreadable(error)
        return replace(self.verdict, fault=fault)

    def _stages(self) -> None:
        path = self.root / bundle.RECEIPTS / f"epoch-{self.shard.epoch.epoch}.receipt"
        with stage("receipt"):
            data = load(path, check.RECEIPT_BYTES, hint="")
        given = Material(path, data, self.root, _evidence(self.root, self.shard.epochs))
        into = Verified()
        checked, key = claims.read_receipt(data, None, path)
        keys = [LogKey.parse(text) for text in self.shard.keys]
        if keys and key not in keys:
            what = "it is not signed by a key that was given"
            raise Refused("receipt", what, expected=", ".join(self.shard.keys), found=str(key), file=path)
        now = claims.check_receipt_file(checked, key, path, into, own=not keys)
        name = checked.predicate["competition"]
        self.verdict = replace(self.verdict, settlement=checked.predicate["settlement"], log=str(key), name=name)
        unwitnessed: Refused | None = None
        policy = None if self.shard.policy is None else Path(self.shard.policy)
        try:
            witnesses.verify_witnesses(policy, None, key, checked.proof.checkpoint, into)
        except Refused as refused:  # its records are looked at all the same: later epochs rest on them
            unwitnessed = refused
        with stage("evidence"):
            _check_footers(given.evidence.values())
        recompute.check_kind(given, checked.predicate)
        self._no_gap(checked, path)
        before = claims.check_chain(given, checked, key, now, into)
        records = self._own_records(given, checked)
        judged = claims.check_signed(given, records, name, now.origin, into)
        self.verdict = replace(self.verdict, held=True, records=len(records.seqs), seqs=tuple(_ranges(records.seqs)))
        if unwitnessed is not None:
            raise unwitnessed
        into.settlement = recompute.settlement(given, before, [*self._judged_before(), *judged], records, into)
        audits.verify_audits(given, checked, key, policy, into)
        results = tuple(result for result in into.checked if result.stage == audits.STAGE)
        self.verdict = replace(self.verdict, audits=results)

    def _no_gap(self, checked: Receipt, path: Path) -> None:
        """Refuse an archive from which an epoch was left out, by its number."""
        previous = checked.predicate["previous"]
        before = self.shard.epochs[-2].epoch if len(self.shard.epochs) > 1 else None
        named = None if previous is None else previous["epoch"]
        if named is not None and (before is None or before < named):
            what = f"epoch {named}, whose receipt it names, is not in the archive"
            raise Refused("chain", what, file=path)

    def _own_records(self, given: Material, checked: Receipt) -> BoundRecords:
        epoch = self.shard.epoch.epoch
        if epoch not in given.evidence:
            raise Refused("evidence", f"there is no evidence for the receipt of epoch {epoch}", file=self.root / bundle.EVIDENCE)
        previous = checked.predicate["previous"]
        first = 0 if previous is None else previous["epoch"] + 1
        return claims.check_bound(given.evidence[epoch], checked, first, self.root / bundle.BATCHES)

    def _judged_before(self) -> Iterator[BatchTaskSet]:
        """The task sets of the batches of earlier epochs, which their own shards check."""
        for files in self.shard.epochs[:-1]:
            with stage("signatures"):
                signed = _batches(self.root / _earlier(files))
                yield from (BatchTaskSet(statement.task_set, members) for statement, members in signed)


LARGEST_FILES = {RECEIPT: check.RECEIPT_BYTES, bundle.INPUTS: SETTLEMENT_BYTES, bundle.SETTLEMENT: SETTLEMENT_BYTES}
"""The most bytes of a file: none that is larger is fetched. Batches and evidence are as large as the disk has room."""


def _evidence(root: Path, epochs: Sequence[EpochFiles]) -> dict[int, Path]:
    """Epoch → the file of its records, of those that have one."""
    return {
        files.epoch: root / bundle.EVIDENCE / files.files[EVIDENCE].path.rpartition("/")[2]
        for files in epochs
        if EVIDENCE in files.files
    }


def _check_footers(paths: Iterable[Path]) -> None:
    """Refuse Parquet whose rows are larger than records can be, before anything reads it whole. Raises BadInput."""
    for path in paths:
        if path.suffix == ".parquet":
            evidence.parquet_rows(path)


def _earlier(files: EpochFiles) -> str:
    return f"batches-{files.epoch}.jsonl"


def _batches(path: Path) -> Iterator[tuple[BatchStatement, list[list[int]]]]:
    """The statement of each batch in a file, and the seqs of its records; signatures are not looked at. Raises BadInput."""
    for place, line in report.batch_lines(path):
        envelope, members = report.split_batch_line(line, place)
        try:
            yield batches.stated(envelope)[1], members
        except check.CheckError as refused:
            raise place.refuse(refused.what) from None


def _ranges(seqs: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Ascending numbers as ranges, first and last included."""
    for _, run in itertools.groupby(enumerate(seqs), lambda pair: pair[1] - pair[0]):
        numbers = [seq for _, seq in run]
        yield numbers[0], numbers[-1]


@contextmanager
def _assembled(
    place: ArchivePlace, cache: Path, epochs: Sequence[EpochFiles], names: dict[str, str], *, signed: bool = True
) -> Iterator[Path]:
    """A folder that looks like the bundle of the last epoch, of links to its files; names: filled with what each path is called.

    signed: with everything that was signed. A file that is not in the archive is not in the folder either.
    """
    last = epochs[-1]
    with tempfile.TemporaryDirectory(prefix="assay-archive-") as temporary:
        root = Path(temporary)
        for folder in (bundle.EVIDENCE, bundle.RECEIPTS):
            (root / folder).mkdir()
            names[str(root / folder)] = last.competition
        names[str(root)] = last.folder
        for files in epochs:
            mine = files is last
            wanted = {bundle.BATCHES: bundle.BATCHES if mine else _earlier(files)}
            if mine or not signed:
                wanted |= {bundle.INPUTS: bundle.INPUTS if mine else f"inputs-{files.epoch}.json"}
            if signed:
                wanted |= {RECEIPT: f"{bundle.RECEIPTS}/epoch-{files.epoch}.receipt"}
            if mine:
                wanted |= {bundle.SETTLEMENT: bundle.SETTLEMENT}
            elif files is epochs[-2]:
                wanted |= {bundle.SETTLEMENT: bundle.PREVIOUS}
            if EVIDENCE in files.files:
                wanted |= {EVIDENCE: f"{bundle.EVIDENCE}/{files.files[EVIDENCE].path.rpartition('/')[2]}"}
            for role, target in wanted.items():
                file = files.files.get(role)
                plain = f"epoch-{files.epoch}.receipt" if role == RECEIPT else role
                names[str(root / target)] = f"{files.folder}/{plain}" if file is None else file.path
                if file is not None:
                    if file.size > LARGEST_FILES.get(role, file.size):
                        raise Refused(STAGE, f"is larger than {LARGEST_FILES[role]} bytes", file=file.path)
                    _link(place.fetch(file, cache_of(cache, last.competition)), root / target)
        if signed and any(files.audits for files in epochs):
            (root / bundle.AUDITS).mkdir()
            for role, file in _audits_of(root, epochs).items():
                names[str(root / role)] = file.path
                if file.size > check.RECEIPT_BYTES:
                    raise Refused(STAGE, f"is larger than {check.RECEIPT_BYTES} bytes", file=file.path)
                _link(place.fetch(file, cache_of(cache, last.competition)), root / role)
        yield root


def _audits_of(root: Path, epochs: Sequence[EpochFiles]) -> dict[str, StoredFile]:
    """The audits that the bundle of the last epoch has: its own, and the earlier ones that its inputs mark, by their digests."""
    wanted = dict(epochs[-1].audits)
    with suppress(AssayError, AttributeError, *UNREADABLE):  # wrong inputs are refused when their turn comes
        rows = read_document(root / bundle.INPUTS)["validators"]
        marked = {row.get("failed_audit", "").removeprefix("sha256:")[:8] for row in rows}
        for files in epochs[:-1]:
            for role, file in files.audits.items():
                if role.rpartition("-")[2].removesuffix(".audit") in marked:
                    wanted.setdefault(role, file)
    return wanted


def _link(source: Path, target: Path) -> None:
    try:
        target.symlink_to(source.resolve())
    except OSError:  # Windows, without the right to make links
        shutil.copyfile(source, target)


@dataclass(frozen=True)
class SettleShard:
    """Epochs of one competition to settle, one after the other; each is the last of its tuple, after all epochs before it.

    Only the first may rest on a settlement of the archive; the others rest on the one that was computed before.
    """

    place: str
    cache: str
    epochs: tuple[tuple[EpochFiles, ...], ...]
    documents: bool = False
    """True if the settlements are wanted, and not only their digests."""

    @property
    def competition(self) -> str:
        """The competition's folder in the archive."""
        return self.epochs[0][-1].competition


@dataclass(frozen=True)
class ArchiveSettlement:
    """One epoch as it was settled, or why it was not. archived: the digest of the settlement in the archive, if it has one."""

    competition: str
    epoch: int
    settlement: str = ""
    archived: str = ""
    agreed: int = 0
    """Participants with an agreed score."""
    document: bytes | None = None
    fault: Fault | None = None

    @property
    def differs(self) -> bool:
        """Whether the archive has another settlement of this epoch."""
        return bool(self.archived) and self.archived != self.settlement


def settle_epochs(shard: SettleShard) -> list[ArchiveSettlement]:
    """Settle epochs from their inputs and evidence; no signature is looked at. After a fault, later epochs are not settled."""
    settled: list[ArchiveSettlement] = []
    previous: Previous | None = None
    for at, epochs in enumerate(shard.epochs):
        names: dict[str, str] = {}
        competition, epoch = epochs[-1].competition, epochs[-1].epoch
        try:
            with _assembled(open_place(shard.place), Path(shard.cache), epochs, names, signed=False) as root:
                done, previous = _settled(root, epochs, previous, computed=at > 0, documents=shard.documents)
                settled.append(done)
            continue
        except AssayError as error:
            fault = fault_of(error, names)
        except UNREADABLE as error:
            fault = _unreadable(error)
        settled.append(ArchiveSettlement(competition, epoch, fault=fault))
        for later in shard.epochs[at + 1 :]:
            what = f"it rests on epoch {epoch}, which was not settled"
            settled.append(ArchiveSettlement(competition, later[-1].epoch, fault=Fault("settlement", what)))
        break
    return settled


def _settled(
    root: Path, epochs: Sequence[EpochFiles], previous: Previous | None, *, computed: bool, documents: bool
) -> tuple[ArchiveSettlement, Previous]:
    last = epochs[-1]
    inputs = read_document(root / bundle.INPUTS)
    if not isinstance(inputs, dict):
        raise BadInput("is not a JSON object", file=root / bundle.INPUTS)
    if not computed and os.path.lexists(root / bundle.PREVIOUS):
        try:
            previous = previous_of(read_document(root / bundle.PREVIOUS))
        except BadInput as error:
            raise error.at(file=root / bundle.PREVIOUS) from None
    files = _evidence(root, epochs)
    if last.epoch not in files:
        raise CannotSettle("there is no evidence of this epoch", file=root / bundle.EVIDENCE)
    judged = []
    for each in epochs:
        path = root / (bundle.BATCHES if each is last else _earlier(each))
        if os.path.lexists(path):
            judged += [BatchTaskSet(statement.task_set, members) for statement, members in _batches(path)]
    ordered = list(files.values())
    _check_footers(ordered)
    unsigned = eligible.settled_from(inputs, epoch=last.epoch, evidence=lambda _: Gathered(), previous=previous)
    without = eligible.left_out(judged, unsigned.task_set)
    with eligible.from_files(ordered, lambda: itertools.chain.from_iterable(map(_records, ordered)), without) as where:
        given = eligible.settled_from(inputs, epoch=last.epoch, evidence=where, previous=previous)
        settlement = pipeline.settle(given)
    document = settlement.document
    archived = ""
    if os.path.lexists(root / bundle.SETTLEMENT):
        stated: Any = read_document(root / bundle.SETTLEMENT)
        archived = str(stated.get("digest", "")) if isinstance(stated, dict) else "not a settlement"
    agreed = sum(row["status"] == "agreed" for row in document["agreed"])
    done = ArchiveSettlement(
        last.competition, last.epoch, settlement.digest, archived, agreed, canonical(document) if documents else None
    )
    return done, previous_of(document)


def _records(path: Path) -> Iterator[tuple[int, bytes]]:
    for part in evidence.evidence_parts(path):
        yield from zip(part.seqs, part.bodies, strict=True)
