"""Collect what was given to be verified (`Material`), and report what was checked, stage by stage (`Verified`). SPEC 6.

`stage` turns any error in its block into one that names the stage. `batch_lines` and `split_batch_line` read the signed batches
of a bundle: each line has an envelope, and the seqs of its records.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import MISSING, AssayError, BadInput, Refused
from assay.folder import strict
from assay.folder.evidence import parse
from assay.folder.files import SETTLEMENT_BYTES, Place, decode, load, unreadable
from assay.ledger import bundle, check, evidence
from assay.ledger.check import RECEIPT_BYTES
from assay.scheme.reading import opened

if TYPE_CHECKING:
    from assay.settle import Settlement


STAGES = ("receipt", "log", "consistency", "witnesses", "chain", "evidence", "signatures", "inputs", "settlement", "results")
"""In the order in which they are checked."""
HINTED = ("chain", "evidence", "inputs")
"""Stages in which hints are shown; in the others, hints help only those who have the ledger."""


@dataclass(frozen=True)
class StageResult:
    """The result of a stage: what was checked there; or, if not `done`, what was not checked, and why."""

    stage: str
    what: str
    done: bool = True


@dataclass
class Verified:
    """The report of a verification without a fault. `receipt`: its statement; for a subnet, `emission` is the signed split."""

    receipt: dict[str, Any] = field(default_factory=dict)
    checked: list[StageResult] = field(default_factory=list)
    emission: dict[str, Any] | None = None
    settlement: Settlement | None = field(default=None, repr=False, compare=False)
    """The settlement that was computed again, if it was."""
    left_out: frozenset[int] = field(default=frozenset(), repr=False, compare=False)
    """The seqs of records that were left out of it because they belong to another task set."""

    def right(self, stage: str, what: str) -> None:
        """Note that a stage is right."""
        self.checked.append(StageResult(stage, what))

    def not_looked_at(self, stage: str, what: str) -> None:
        """Note what could not be checked, and what would be needed for it."""
        self.checked.append(StageResult(stage, what, done=False))

    @property
    def recomputed(self) -> bool:
        """Whether the settlement was computed again from the evidence."""
        return any(result.stage == "settlement" and result.done for result in self.checked)

    def document(self) -> dict[str, Any]:
        """The report as a JSON object."""
        rows = [{"stage": result.stage, "checked": result.done, "what": result.what} for result in self.checked]
        what = {"receipt": self.receipt} if self.emission is None else {"emission": self.emission}
        return {"verified": True, "recomputed": self.recomputed, **what, "stages": rows}


def several(count: int, singular: str, many: str = "") -> str:
    """ "1 receipt", "2 receipts", "3 batches"."""
    return f"{count} {singular if count == 1 else many or singular + 's'}"


def or_null(value: object) -> object:
    """A value for `expected` or `found` of Refused, where None would mean that there is no value to show."""
    return "null" if value is None else value


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Raise every error of Assay in the block as Refused of this stage.

    But a missing library is BadInput of the stage `MISSING`: nothing that is verified is wrong then.
    """
    try:
        yield
    except check.CheckError as refused:
        if refused.stage == MISSING:
            raise BadInput(str(refused), stage=MISSING) from None
        raise Refused(name, refused.what, expected=refused.expected, found=refused.found) from None
    except Refused:
        raise
    except BadInput as error:
        if error.stage == MISSING:
            raise
        place = f"{error.field}: " if error.field else ""
        hint = f"; {error.hint}" if error.hint and name in HINTED else ""
        raise Refused(name, f"{place}{error.what}{hint}", file=error.file, line=error.line) from None
    except AssayError as error:
        raise Refused(name, error.what, file=error.file) from None


MATERIAL_HINT = "give a receipt, a participant's proof, or the folder that `assay export epoch` wrote"


@dataclass(frozen=True)
class Material:
    """The receipt's bytes, and the files beside it, as far as they were given."""

    path: Path
    data: bytes
    root: Path | None = None
    """The bundle."""
    evidence: Mapping[int, Path] = field(default_factory=dict)
    """Epoch of a receipt → the file of its evidence."""
    alone: Path | None = None
    """A file of evidence that was given with a receipt, without a bundle."""


def gather_material(receipt: Path, evidence_path: Path | None) -> Material:
    """The material at the path of a receipt or bundle, and at another path for the evidence, if that is given.

    Raises BadInput if a file is missing, or cannot be verified; Refused for a file that does not belong there.
    """
    path, root = receipt, None if evidence_path is None else _root(evidence_path)
    if os.path.isdir(receipt):
        path, root, evidence_path = _last(receipt), receipt, evidence_path or receipt
    data = load(path, RECEIPT_BYTES, hint=MATERIAL_HINT)
    if data[257:262] == b"ustar":  # a bundle as a service hands it out
        raise Refused("receipt", "it is a tar archive; unpack it with tar -xf, and give the folder that is in it", file=path)
    if evidence_path is None:
        return Material(path, data)
    if root is None:
        if os.path.isdir(evidence_path):
            what = f"has no {bundle.INPUTS}, so the inputs of the settlement are unknown"
            raise BadInput(what, file=evidence_path, hint="give the folder that `assay export epoch` wrote")
        return Material(path, data, alone=evidence_path)
    try:
        files = evidence.evidence_files(root / bundle.EVIDENCE)
    except BadInput as error:
        raise Refused("evidence", error.what, file=error.file) from None
    if os.path.isfile(evidence_path):
        files |= {_epoch(evidence_path): evidence_path}
    return Material(path, data, root, files)


def read_file(path: Path) -> bytes:
    """The bytes of a file of a bundle; raises BadInput."""
    return load(path, SETTLEMENT_BYTES, hint="the bundle is incomplete: export it again")


def read_document(path: Path) -> Any:
    """The JSON in a file of a bundle; raises BadInput."""
    text = decode(read_file(path), path)
    try:
        return strict.parse(text)
    except BadInput as error:
        raise error.at(file=path) from None


def _last(root: Path) -> Path:
    """The last receipt of a bundle."""
    folder = root / bundle.RECEIPTS
    paths = sorted(folder.glob("epoch-*.receipt"), key=_epoch) if folder.is_dir() else []
    if not paths:
        raise BadInput("has no receipts", file=root, hint=MATERIAL_HINT)
    return paths[-1]


def _root(path: Path) -> Path | None:
    """The bundle that a path is, or is in."""
    return next((folder for folder in (path, *list(path.resolve().parents)[:2]) if os.path.isfile(folder / bundle.INPUTS)), None)


def _epoch(path: Path) -> int:
    digits = path.name.partition(".")[0].removeprefix("epoch-")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 17 else -1


BATCH_LINE_BYTES = 16 * 2**20
"""Bytes of a line of batches.jsonl: an envelope and the ranges of up to 100,000 records."""
BEFORE, BETWEEN = b'{"envelope":', b',"members":'


def batch_lines(path: Path) -> Iterator[tuple[Place, bytes]]:
    """The lines of batches.jsonl, each with its place; raises BadInput, also for a line that is too long."""
    try:
        with opened(path) as file:
            for number, line in enumerate(iter(partial(file.readline, BATCH_LINE_BYTES + 1), b""), start=1):
                if len(line) > BATCH_LINE_BYTES:
                    raise BadInput(f"the line is longer than {BATCH_LINE_BYTES} bytes", file=path, line=number)
                yield Place(path, number), line
    except OSError as error:
        raise unreadable(path, error) from None


def split_batch_line(line: bytes, place: Place) -> tuple[bytes, list[list[int]]]:
    """The envelope in a line, byte for byte, and the ranges of its records; raises BadInput."""
    head, between, tail = line.rpartition(BETWEEN)
    if not between or not head.startswith(BEFORE) or not tail.endswith(b"}\n"):
        raise place.refuse('is not a batch: {"envelope":…,"members":[[first,last],…]}')
    members = parse(tail[:-2], place)
    if check.misfit(members, [[int]]) or not isinstance(members, list) or not all(len(pair) == 2 for pair in members):
        raise place.refuse("is not a list of ranges", field="members")
    return head.removeprefix(BEFORE), members
