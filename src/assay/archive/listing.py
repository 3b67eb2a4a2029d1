"""The listing of an archive: the files of each epoch of each competition, the faults, and the files that do not belong to it.

    ARCHIVE/COMPETITION/epoch-N/
        epoch-N.receipt       the receipt of epoch N, proven in the log as it was then
        epoch-N.parquet       the records of that receipt; or epoch-N.jsonl
        batches.jsonl         the signed batches of these records
        inputs.json           the inputs of the settlement
        settlement.json
        audits/epoch-N-DIGITS.audit     the signed audits of this epoch

COMPETITION is a path of any depth. Nothing is in two epochs, so an archive grows by one folder an epoch, and by audits that come
later. A fault of an epoch is reported for this epoch alone; files that do not belong to an archive are named and not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from assay.errors import BadInput, Refused
from assay.exact import LARGEST
from assay.folder.places import MOST_FILES, STAGE, ArchivePlace, StoredFile
from assay.ledger.bundle import AUDITS, BATCHES, INPUTS, SETTLEMENT

__all__ = ["EVIDENCE", "RECEIPT", "EpochFiles", "Listing", "cache_of", "chosen", "epoch_folder", "listed", "split_pattern"]

RECEIPT, EVIDENCE = "receipt", "evidence"
_FOLDER = re.compile(r"epoch-(0|[1-9][0-9]{0,15})")
_LIKE_ONE = re.compile(r"epoch-[0-9]+", re.IGNORECASE)


@dataclass(frozen=True)
class EpochFiles:
    """The files of one epoch, by what they are: receipt, evidence, batches.jsonl, inputs.json, settlement.json, audits/NAME."""

    competition: str
    epoch: int
    files: Mapping[str, StoredFile]

    @property
    def folder(self) -> str:
        """Its folder in the archive."""
        return epoch_folder(self.competition, self.epoch)

    @property
    def audits(self) -> Mapping[str, StoredFile]:
        """Its audits: `audits/NAME`, as in a bundle → file."""
        return {role: file for role, file in self.files.items() if role.startswith(f"{AUDITS}/")}


@dataclass
class Listing:
    """Competition → its epochs, ascending; the faults of epochs (None: of the whole competition); the paths that are ignored."""

    competitions: dict[str, dict[int, EpochFiles]] = field(default_factory=dict)
    faults: dict[tuple[str, int | None], Refused] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)

    def up_to(self, competition: str, epoch: int) -> tuple[EpochFiles, ...]:
        """The epochs of a competition up to this one."""
        return tuple(files for number, files in self.competitions[competition].items() if number <= epoch)


def epoch_folder(competition: str, epoch: int) -> str:
    """The folder of an epoch in the archive."""
    return f"{competition}/epoch-{epoch}" if competition else f"epoch-{epoch}"


def cache_of(cache: Path, competition: str) -> Path:
    """The folder for what is fetched of a competition."""
    return cache / sha256(competition.encode()).hexdigest()[:32]


def listed(place: ArchivePlace, below: str = "") -> Listing:
    """Read what is in an archive, or below a folder of it. Raises BadInput, also for too many files, and Unreachable."""
    result = Listing()
    by_competition: dict[str, dict[int, dict[str, StoredFile]]] = {}
    for number, file in enumerate(place.files(below)):
        if number == MOST_FILES:
            raise BadInput(f"has more than {MOST_FILES} files", file=place.name, hint="verify a part of it")
        _place(file, by_competition, result)
    for competition in sorted(by_competition):
        epochs = {epoch: EpochFiles(competition, epoch, files) for epoch, files in sorted(by_competition[competition].items())}
        result.competitions[competition] = epochs
    return result


def _place(file: StoredFile, by_competition: dict[str, dict[int, dict[str, StoredFile]]], result: Listing) -> None:
    """Put a file where it belongs: into its epoch, among the faults, or among what is ignored."""
    parts = file.path.split("/")
    at = next((at for at, part in enumerate(parts) if _LIKE_ONE.fullmatch(part)), None)
    competition = "/".join(parts[: len(parts) - 1 if at is None else at])
    if at is None:
        if file.wrong:
            result.faults.setdefault((competition, None), _refused(file, file.wrong))
        else:
            result.ignored.append(file.path)
        return
    named = _FOLDER.fullmatch(parts[at])
    if named is None or int(named[1]) > LARGEST:
        what = f"{parts[at][:40]!r} is not how an epoch's folder is called: another one may be of the same epoch"
        result.faults.setdefault((competition, None), _refused(file, what))
        return
    epoch = int(named[1])
    files = by_competition.setdefault(competition, {}).setdefault(epoch, {})
    if file.wrong:
        result.faults.setdefault((competition, epoch), _refused(file, file.wrong))
        return
    role = _role(parts[at + 1 :], epoch)
    if role is None:
        result.ignored.append(file.path)
    elif role in files:
        what = f"exists beside {files[role].path.rpartition('/')[2]}: keep the evidence of an epoch in one file"
        result.faults.setdefault((competition, epoch), _refused(file, what))
    else:
        files[role] = file


def _role(rest: list[str], epoch: int) -> str | None:
    """The role of a file in an epoch's folder; None if it does not belong to an archive."""
    if len(rest) == 2 and rest[0] == AUDITS and rest[1].endswith(".audit"):
        return f"{AUDITS}/{rest[1]}"
    if len(rest) != 1:
        return None
    known = {f"epoch-{epoch}.receipt": RECEIPT, f"epoch-{epoch}.parquet": EVIDENCE, f"epoch-{epoch}.jsonl": EVIDENCE}
    return (known | {name: name for name in (BATCHES, INPUTS, SETTLEMENT)}).get(rest[0])


def _refused(file: StoredFile, what: str) -> Refused:
    return Refused(STAGE, what, file=file.path)


def split_pattern(pattern: str) -> tuple[str, str]:
    """The archive in a pattern for files of evidence, and the rest: `s3://b/a/**/*.parquet` → `s3://b/a`, `**/*.parquet`.

    The folder of one epoch is not the archive: an epoch rests on those before it. So the archive ends before the first part with
    `*` or `?`, and before the first `epoch-N`. Without a pattern, everything is meant.
    """
    scheme, separator, rest = pattern.partition("://")
    if not separator:
        scheme, rest = "", pattern
    parts = rest.rstrip("/").split("/")
    ends = [at for at, part in enumerate(parts) if re.search(r"[*?]", part) or _LIKE_ONE.match(part)]
    at = ends[0] if ends else len(parts)
    root = "/".join(parts[:at]) or ("/" if pattern.startswith("/") else ".")
    return (f"{scheme}://{root}" if separator else root), "/".join(parts[at:]) or "**"


def chosen(listing: Listing, pattern: str) -> dict[str, list[int]]:
    """The epochs of each competition whose evidence has a path that fits the pattern: `*` within a name, `**` over folders."""
    fits = re.compile(_expression(pattern.split("/")))
    epochs = {
        competition: [number for number, files in epochs.items() if _fits(fits, files.files.values())]
        for competition, epochs in listing.competitions.items()
    }
    return {competition: numbers for competition, numbers in epochs.items() if numbers}


def _fits(fits: re.Pattern[str], files: Iterable[StoredFile]) -> bool:
    return any(
        fits.fullmatch(file.path)
        for file in files
        if file.path.endswith((".parquet", ".jsonl")) and not file.path.endswith(BATCHES)
    )


def _expression(parts: list[str]) -> str:
    """A pattern as a regular expression."""
    words = []
    for at, part in enumerate(parts):
        last = at == len(parts) - 1
        if part == "**":
            words.append(".*" if last else "(?:[^/]+/)*")
        else:
            plain = "".join({"*": "[^/]*", "?": "[^/]"}.get(character, re.escape(character)) for character in part)
            words.append(plain if last else f"{plain}/")
    return "".join(words)
