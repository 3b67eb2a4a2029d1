"""Near-copies in a competition's folder: reads the submissions, compares each with all earlier ones, and remembers releases.

Nothing of a submission is executed. A file is read as text if it is UTF-8 without NUL and not too large; any other counts by its
digest only. A submission with too much in it is not compared, and that is said. docs/near-copies.md.

    copies.jsonl        who released which held submission, when and why: it only grows
    baseline/           common code that everybody may use; it and the files of tasks/ are left out
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from assay.errors import BadInput, suggest
from assay.exact import canonical
from assay.folder import strict
from assay.folder.files import alone, decode, flush_folder, load
from assay.judge import tree
from assay.records import Participant
from assay.rules.near_copies import CopyPair, Print, compare, fingerprints, grams
from assay.scheme.fields import instant_text
from assay.scheme.model import Scheme
from assay.settle.inputs import arrived

__all__ = ["RELEASES", "NearCopy", "SourceSurvey", "held", "release", "released", "survey"]

RELEASES = "copies.jsonl"
BASELINE = ("baseline", "tasks")
FILE_BYTES = 1 << 20
"""A larger file counts by its digest only, if it is not above ALL_BYTES."""
ALL_BYTES, ALL_FILES = 4 << 20, 2_000
"""Of one submission; above it nothing is compared."""
_LOG_BYTES = 1 << 24
Json = dict[str, Any]


@dataclass(frozen=True)
class NearCopy:
    """A submission, and an earlier one that it has too much in common with."""

    later: Participant
    earlier: Participant
    pair: CopyPair
    same_files: tuple[tuple[str, str], ...]
    """Files without source whose bytes are equal: here, and there."""

    def document(self) -> Json:
        """As JSON: who, when, how much, and the passages."""
        return {
            "participant": self.later.key,
            "submission": self.later.submission,
            "at": _at(self.later),
            "earlier": {
                "participant": self.earlier.key,
                "submission": self.earlier.submission,
                "at": _at(self.earlier),
            },
            "fingerprints": {"own": self.pair.prints, "earlier": self.pair.other_prints, "common": self.pair.common},
            "passages": [
                {"file": one.file, "lines": [*one.lines], "earlier_file": one.other, "earlier_lines": [*one.other_lines]}
                for one in self.pair.passages
            ],
            "same_files": [{"file": here, "earlier_file": there} for here, there in self.same_files],
        }


def _at(person: Participant) -> str | None:
    return None if person.submitted_at is None else instant_text(person.submitted_at)


@dataclass(frozen=True)
class SourceSurvey:
    """The result of comparing all submissions."""

    found: tuple[NearCopy, ...]
    compared: int
    absent: tuple[str, ...]
    """Participants whose files are not here."""
    too_large: tuple[str, ...]


@dataclass(frozen=True)
class _Source:
    texts: dict[str, str]
    digests: dict[str, str]


def _source(place: Path) -> _Source:
    """The files of a submission. Raises TreeError for one that is too large."""
    texts: dict[str, str] = {}
    digests: dict[str, str] = {}
    for entry in tree.walk(place, bounds=tree.Bounds(bytes=ALL_BYTES, files=ALL_FILES)):
        if entry.kind not in ("file", "exec"):
            continue
        beneath = "" if entry.path == "." else entry.path
        data = tree.peek(place, beneath, most=ALL_BYTES) or b""
        try:
            if len(data) > FILE_BYTES or b"\0" in data:
                raise ValueError
            texts[beneath or place.name] = data.decode()
        except ValueError:
            digests[beneath or place.name] = sha256(data).hexdigest()
    return _Source(texts, digests)


@lru_cache(maxsize=1024)
def _prints(place: Path, submission: str, baseline: frozenset[bytes]) -> tuple[tuple[Print, ...], dict[str, str]]:
    """The fingerprints of a submission, and the digests of its other files. submission: its digest, so that it is read once."""
    source = _source(place)
    return tuple(fingerprints(source.texts, baseline)), source.digests


def baseline_of(places: Sequence[Path]) -> frozenset[bytes]:
    """The hashes of all files of some folders; a place that is not there has none. Raises BadInput for one that is too large."""
    found: set[bytes] = set()
    for place in places:
        if not os.path.lexists(place):
            continue
        try:
            for entry in tree.walk(place):
                beneath = "" if entry.path == "." else entry.path
                if entry.kind in ("file", "exec") and entry.size <= FILE_BYTES:
                    text = (tree.peek(place, beneath, most=FILE_BYTES) or b"").decode("utf-8", "replace")
                    found.update(one.hash for one in grams(beneath, text))
        except tree.TreeError as error:
            raise BadInput(f"cannot be a baseline: {error}", file=place, hint="name a folder of source") from None
    return frozenset(found)


def survey(folder: Path, scheme: Scheme, participants: Sequence[Participant], baseline: Sequence[Path] = ()) -> SourceSurvey:
    """Compares each submission with all earlier ones of other participants, by the time at which they were handed in.

    participants: those whose submission counts (`judge.entries.counting`); duplicates are not among them. Raises BadInput.
    """
    common = baseline_of([*(folder / name for name in BASELINE), *baseline])
    before: list[tuple[Participant, tuple[Print, ...], dict[str, str]]] = []
    found, absent, large = [], [], []
    for person in sorted(participants, key=arrived):
        place = scheme.kind.files(folder, person.submission)
        if place is None:
            absent.append(person.key)
            continue
        try:
            prints, digests = _prints(place, person.submission, common)
        except tree.TreeError:
            large.append(person.key)
            continue
        for earlier, theirs, others in before:
            pair = compare(prints, theirs)
            if pair.near:
                found.append(NearCopy(person, earlier, pair, tuple(_same(digests, others))))
        before.append((person, prints, digests))
    return SourceSurvey(tuple(found), len(before), tuple(absent), tuple(large))


def _same(mine: dict[str, str], theirs: dict[str, str]) -> Iterator[tuple[str, str]]:
    where = {digest: file for file, digest in theirs.items()}
    return ((file, where[digest]) for file, digest in sorted(mine.items()) if digest in where)


def held(folder: Path, scheme: Scheme, participants: Sequence[Participant]) -> dict[str, str]:
    """Submission → why it is not judged: with `copies = "hold"`, near-copies that nobody released. Raises BadInput."""
    if scheme.submission is None or scheme.submission.copies != "hold":
        return {}
    free = {row["submission"] for row in released(folder)}
    why: dict[str, str] = {}
    for copy in survey(folder, scheme, participants).found:
        if copy.later.submission not in free:
            what = f"has {copy.pair.common} of {copy.pair.prints} fingerprints in common with an earlier submission"
            why.setdefault(copy.later.submission, f"{what} of {copy.earlier.key}; the operator of the competition can release it")
    return why


def released(folder: Path) -> list[Json]:
    """The releases of held submissions, each with its reason. Raises BadInput for a file that was changed."""
    place = folder / RELEASES
    if not place.exists():
        return []
    rows = []
    for number, line in enumerate(decode(load(place, _LOG_BYTES, hint="keep what releases wrote"), place).splitlines(), start=1):
        row = strict.parse(line)
        if not isinstance(row, dict) or not all(isinstance(row.get(name), str) for name in _FIELDS):
            raise BadInput("is no release", file=place, line=number, hint="assay copies DIR --release KEY writes these lines")
        rows.append(row)
    return rows


_FIELDS = ("participant", "submission", "by", "reason", "at")


def release(folder: Path, participants: Sequence[Participant], key: str, *, by: str, reason: str) -> Json:
    """Lets a held submission be judged, and writes down who did so and why. Raises BadInput."""
    person = next((one for one in participants if one.key == key and one.submission), None)
    if person is None:
        raise BadInput(f"no submission of {key[:80]!r}", hint=suggest(key, [one.key for one in participants], "name its key"))
    if not by.strip() or not reason.strip():
        raise BadInput("a release needs a name and a reason", hint="give both: --by NAME --reason TEXT")
    row = {"participant": key, "submission": person.submission, "by": by, "reason": reason}
    row["at"] = instant_text(datetime.now(UTC).replace(microsecond=0))
    with alone(folder):
        released(folder)  # nothing is added to a file that cannot be read
        with (folder / RELEASES).open("ab") as file:
            file.write(canonical(row) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        flush_folder(folder)
    return row
