"""Near-copies among the submissions of a competition: compares each with all earlier ones of others, and keeps what it found.

    who was first       by time of handing in, then by intake into the ledger; without a ledger by participants.csv alone
    copies/found.jsonl  what was compared, in a folder with a ledger: one row a comparison, the last one of a submission counts

With a ledger, earlier versions of a submission are known, so a copy of one is noticed. What a participant handed in before the
other one is its own: these fingerprints are left out of the pair. docs/near-copies.md.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from assay.errors import BadInput
from assay.exact import canonical
from assay.folder.files import alone, decode, flush_folder, load, stamp, write_bytes
from assay.folder.strict import load_note
from assay.judge import tree
from assay.judge.prints import BASELINE, baseline_of, baseline_state, source_prints
from assay.records import Participant
from assay.rules.near_copies import CopyPair, compare, is_near
from assay.scheme.fields import instant, instant_text
from assay.scheme.model import Scheme
from assay.scheme.reading import present

if TYPE_CHECKING:
    from assay.ledger.store import Submission

__all__ = [
    "FOUND",
    "CopyRow",
    "Entered",
    "NearCopy",
    "SourceSurvey",
    "add_rows",
    "compare_new",
    "compared",
    "failure",
    "history",
    "note_failure",
    "of_ledger",
    "survey",
    "whole_lines",
]

PLACE = "copies"
FOUND, FAILED = f"{PLACE}/found.jsonl", f"{PLACE}/failed.json"
NEAR, PASSAGES = 20, 50
"""Pairs of a submission and passages of a pair that are kept: the largest."""
_LOG_BYTES = 1 << 28
_LAST = datetime.max.replace(tzinfo=UTC)
Json = dict[str, Any]
CompareState = Literal["compared", "absent", "too-large"]
_Lacking = Literal["absent", "too-large"]


@dataclass(frozen=True, slots=True)
class Entered:
    """A submission as it was handed in: whose, when (None: nobody knows), and its place in the order of intake."""

    participant: str
    submission: str
    at: datetime | None
    place: int = 0

    @property
    def key(self) -> tuple[str, str]:
        """The participant and the submission."""
        return self.participant, self.submission

    @property
    def order(self) -> tuple[datetime, int, bytes]:
        """As a sorting key: who was first."""
        return self.at or _LAST, self.place, self.participant.encode()

    def document(self) -> Json:
        """As JSON."""
        at = None if self.at is None else instant_text(self.at)
        return {"participant": self.participant, "submission": self.submission, "at": at}


@dataclass(frozen=True)
class NearCopy:
    """A submission, and an earlier one that it has too much in common with."""

    later: Entered
    earlier: Entered
    pair: CopyPair
    same_files: tuple[tuple[str, str], ...]
    """Files without source whose bytes are equal: here, and there."""

    def document(self) -> Json:
        """As JSON: who, when, how much, and the passages, the longest first."""
        return self.later.document() | {
            "earlier": self.earlier.document(),
            "fingerprints": {"own": self.pair.prints, "earlier": self.pair.other_prints, "common": self.pair.common},
            "passages": [
                {
                    "file": passage.file,
                    "lines": [*passage.lines],
                    "earlier_file": passage.other,
                    "earlier_lines": [*passage.other_lines],
                }
                for passage in self.pair.passages
            ],
            "same_files": [{"file": here, "earlier_file": there} for here, there in self.same_files],
        }


@dataclass(frozen=True)
class CopyRow:
    """A submission that was compared. near: the largest of `pairs` pairs, as JSON. absent: its files are not here."""

    participant: str
    submission: str
    state: CompareState
    baseline: str
    near: tuple[Json, ...] = ()
    pairs: int = 0

    @property
    def key(self) -> tuple[str, str]:
        """The participant and the submission."""
        return self.participant, self.submission

    def with_near(self, pair: Json) -> CopyRow:
        """The row with one more pair."""
        kept = sorted((*self.near, pair), key=lambda near: -near["fingerprints"]["common"])[:NEAR]
        return replace(self, near=tuple(kept), pairs=self.pairs + 1)

    def document(self) -> Json:
        """As a row of found.jsonl."""
        names = ("participant", "submission", "state", "baseline", "pairs")
        return {name: getattr(self, name) for name in names} | {"near": [*self.near]}


@dataclass(frozen=True)
class SourceSurvey:
    """The result of comparing all submissions."""

    found: tuple[NearCopy, ...]
    compared: int
    absent: tuple[str, ...]
    """Participants whose files are not here."""
    too_large: tuple[str, ...]


@dataclass(frozen=True)
class _SubmissionSource:
    """The part of a submission kept in memory while others are compared with it. Its passages are read again to be shown.

    hashes: without those of the baseline.
    """

    place: Path
    submission: str
    hashes: frozenset[bytes]
    others: Mapping[str, str]


@dataclass
class _SubmissionComparison:
    """Compares pairs of a history. kept: the folder that keeps fingerprints."""

    folder: Path
    scheme: Scheme
    entries: Sequence[Entered]
    baseline: frozenset[bytes]
    kept: Path | None = None
    _sources: dict[str, _SubmissionSource | _Lacking] = field(default_factory=dict)

    def state(self, entry: Entered) -> CompareState:
        """Whether its source is here, and not too large."""
        source = self._source(entry)
        return source if isinstance(source, str) else "compared"

    def _source(self, entry: Entered) -> _SubmissionSource | _Lacking:
        known = self._sources.get(entry.submission)
        if known is None:
            try:
                place = self.scheme.kind.files(self.folder, entry.submission)
                known = "absent" if place is None else self._read(place, entry.submission)
            except tree.TreeError:
                known = "too-large"
            except BadInput:  # its files are others than those handed in
                known = "absent"
            self._sources[entry.submission] = known
        return known

    def _read(self, place: Path, submission: str) -> _SubmissionSource:
        read = source_prints(place, submission, self.kept)
        return _SubmissionSource(
            place, submission, frozenset(fingerprint.hash for fingerprint in read.prints) - self.baseline, read.others
        )

    def near(self, later: Entered, earlier: Entered) -> NearCopy | None:
        """The pair, if the later one is to be looked at as a near-copy of the earlier one."""
        mine, theirs = self._source(later), self._source(earlier)
        if isinstance(mine, str) or isinstance(theirs, str):
            return None
        out = self._own_before(later, earlier)
        own, other = (mine.hashes - out, theirs.hashes - out) if out else (mine.hashes, theirs.hashes)
        if later.submission != earlier.submission and not is_near(len(own & other), len(own), len(other)):
            return None
        read = (source_prints(side.place, side.submission, self.kept).prints for side in (mine, theirs))
        pair = compare(
            *(
                [fingerprint for fingerprint in prints if fingerprint.hash in side]
                for prints, side in zip(read, (own, other), strict=True)
            )
        )
        pair = replace(pair, passages=pair.passages[:PASSAGES])
        return NearCopy(later, earlier, pair, tuple(_same(mine.others, theirs.others))[:PASSAGES])

    def _own_before(self, later: Entered, earlier: Entered) -> frozenset[bytes]:
        """The hashes that the later participant handed in before the other one did."""
        hashes: frozenset[bytes] = frozenset()
        for entry in self._by_participant[later.participant]:
            if entry.order < earlier.order:
                source = self._source(entry)
                hashes |= frozenset() if isinstance(source, str) else source.hashes
        return hashes

    @cached_property
    def _by_participant(self) -> Mapping[str, Sequence[Entered]]:
        rows: dict[str, list[Entered]] = {}
        for entry in self.entries:
            rows.setdefault(entry.participant, []).append(entry)
        return rows

    def pairs(self, later: Entered) -> Iterator[NearCopy]:
        """Its pairs with all earlier ones of others."""
        if self.state(later) == "compared":
            for earlier in self.entries:
                if earlier.order < later.order and earlier.participant != later.participant:
                    pair = self.near(later, earlier)
                    if pair is not None:
                        yield pair


def _same(mine: Mapping[str, str], theirs: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    where = {digest: file for file, digest in theirs.items()}
    return ((file, where[digest]) for file, digest in sorted(mine.items()) if digest in where)


def history(participants: Iterable[Participant], taken_in: Iterable[tuple[int, Submission]] = ()) -> tuple[Entered, ...]:
    """All submissions that were ever handed in, the first first; each of a participant once.

    taken_in: the ledger's, with their numbers. participants: those of participants.csv, whose submission a ledger may not have.
    """
    rows = [
        Entered(row.participant, row.submission, instant(row.submitted_at) if row.submitted_at else None, number)
        for number, row in taken_in
    ]
    last = max((row.place for row in rows), default=0) + 1
    rows += [
        Entered(participant.key, participant.submission, participant.submitted_at, last)
        for participant in participants
        if participant.submission
    ]
    first: dict[tuple[str, str], Entered] = {}
    for row in sorted(rows, key=lambda row: row.order):
        first.setdefault(row.key, row)
    return tuple(first.values())


def of_ledger(folder: Path, participants: Iterable[Participant]) -> tuple[Entered, ...] | None:
    """The history that the folder's ledger knows; None if it has none here. Raises BadInput, StoreError."""
    if not present(folder / "ledger.toml"):
        return None
    from assay.ledger import config
    from assay.ledger.access import open_store

    settings = config.read(folder)
    if not settings.is_here:
        return None
    with open_store(settings) as store, store.reading() as view:
        return history(participants, view.submissions_after(0))


def survey(folder: Path, scheme: Scheme, entries: Sequence[Entered], baseline: Sequence[Path] = ()) -> SourceSurvey:
    """Compares each submission with all earlier ones of other participants. It keeps nothing. Raises BadInput."""
    common = baseline_of([*(folder / name for name in BASELINE), *baseline])
    comparison = _SubmissionComparison(folder, scheme, entries, common)
    states = {entry: comparison.state(entry) for entry in entries}

    def of(state: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(entry.participant for entry in entries if states[entry] == state))

    pairs = tuple(pair for entry in entries for pair in comparison.pairs(entry))
    return SourceSurvey(pairs, list(states.values()).count("compared"), of("absent"), of("too-large"))


def compare_new(
    folder: Path, scheme: Scheme, entries: Sequence[Entered], tell: Callable[[Entered], None] = lambda _: None
) -> int:
    """Compares what is not in found.jsonl yet, or was compared beside another baseline; returns how many submissions that were.

    One process at a time does so. Each row is on the disk before the next one is compared. Raises BadInput.
    """
    place = folder / PLACE / "prints"
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot be made ({error.strerror})", file=place, hint="check permissions and space") from None
    count = 0
    with alone(place.parent):
        state, rows = baseline_state(folder), {**compared(folder)}
        comparison: _SubmissionComparison | None = None
        for at, entry in enumerate(entries):
            before = rows.get(entry.key)
            if before is not None and before.baseline == state and before.state != "absent":
                continue
            if comparison is None:
                common = baseline_of([folder / name for name in BASELINE])
                comparison = _SubmissionComparison(folder, scheme, entries, common, kept=place)
            row = CopyRow(*entry.key, comparison.state(entry), state)
            for pair in comparison.pairs(entry):
                row = row.with_near(pair.document())
            if row == before:  # its files are still not here
                continue
            changed = [row, *_later(comparison, entry, entries[at + 1 :], rows, state)]
            add_rows(folder / FOUND, [change.document() for change in changed])
            rows |= {change.key: change for change in changed}
            tell(entry)
            count += 1
        note_failure(folder, "")
    return count


def failure(folder: Path) -> str:
    """Why the last comparison beside a service failed; empty if it did not."""
    note = load_note(folder / FAILED)
    return note["why"] if isinstance(note.get("why"), str) else ""


def note_failure(folder: Path, why: str) -> None:
    """Keep why a comparison failed, until one ends; `why` empty: it ended. Nothing is kept where nothing can be written."""
    file = folder / FAILED
    with suppress(OSError, BadInput):
        if why:
            file.parent.mkdir(exist_ok=True)
            write_bytes(file, canonical({"why": why, "at": instant_text(datetime.now(UTC).replace(microsecond=0))}) + b"\n")
        else:
            file.unlink(missing_ok=True)


def _later(
    comparison: _SubmissionComparison,
    entry: Entered,
    after: Sequence[Entered],
    rows: Mapping[tuple[str, str], CopyRow],
    state: str,
) -> Iterator[CopyRow]:
    """The rows of submissions that were compared before this earlier one was here: what was committed to comes late."""
    for later in after:
        row = rows.get(later.key)
        if row is None or row.baseline != state or row.state != "compared" or later.participant == entry.participant:
            continue
        pair = comparison.near(later, entry)
        if pair is not None:
            yield row.with_near(pair.document())


def compared(folder: Path) -> Mapping[tuple[str, str], CopyRow]:
    """(participant, submission) → what was compared of it; empty if nothing was. Raises BadInput for a file that was changed."""
    file = folder / FOUND
    return _found(file, stamp(file)) if file.exists() else {}


@lru_cache(maxsize=64)
def _found(file: Path, _state: tuple[object, ...]) -> Mapping[tuple[str, str], CopyRow]:
    rows: dict[tuple[str, str], CopyRow] = {}
    for number, line in enumerate(whole_lines(file), start=1):
        try:
            row = json.loads(line)
            known = CopyRow(**{**row, "near": tuple(row["near"])})
        except (ValueError, TypeError, KeyError):
            hint = f"remove the folder {PLACE}/: everything is compared again"
            raise BadInput("is no row of a comparison", file=file, line=number, hint=hint) from None
        rows[known.key] = known
    return rows


def whole_lines(file: Path) -> list[str]:
    """The whole lines of a file that only grows: one that a killed process began is none."""
    text = decode(load(file, _LOG_BYTES, hint="keep what was written"), file)
    return text[: text.rfind("\n") + 1].splitlines()


def add_rows(file: Path, rows: Sequence[Json]) -> None:
    """Add rows to a file that only grows, and cut off what a killed process began. Raises BadInput."""
    try:
        with file.open("ab+") as opened:
            size = opened.seek(0, os.SEEK_END)
            while size and os.pread(opened.fileno(), 1, size - 1) != b"\n":
                size -= 1
            opened.truncate(size)
            opened.write(b"".join(canonical(row) + b"\n" for row in rows))
            opened.flush()
            os.fsync(opened.fileno())
        flush_folder(file.parent)
    except OSError as error:
        raise BadInput(f"cannot be written ({error.strerror})", file=file, hint="check permissions and space") from None
