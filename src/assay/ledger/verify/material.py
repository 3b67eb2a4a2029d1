"""What was given to be verified, and where each part of it is: a bundle, a receipt with evidence, or a receipt alone. SPEC 6."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.errors import BadInput, Refused
from assay.folder import strict
from assay.folder.limits import SETTLEMENT_BYTES
from assay.folder.text import decode, load
from assay.ledger import bundle, evidence
from assay.ledger.check import RECEIPT_BYTES

__all__ = ["Material", "content", "document", "gathered"]

HINT = "give a receipt, a participant's proof, or the folder that `assay export epoch` wrote"


@dataclass(frozen=True)
class Material:
    """The receipt's bytes, and the files that go with it as far as they are there."""

    path: Path
    data: bytes
    root: Path | None = None
    """The bundle."""
    evidence: Mapping[int, Path] = field(default_factory=dict)
    """Epoch of a receipt → the file of its evidence."""
    alone: Path | None = None
    """A file of evidence that is given beside a receipt, without a bundle."""


def gathered(receipt: Path, found: Path | None) -> Material:
    """What a path and, if it is given, another one for the evidence hold.

    Raises BadInput if something is not there, or is nothing that can be verified; Refused for files that do not belong there.
    """
    path, root = receipt, None if found is None else _root(found)
    if os.path.isdir(receipt):
        path, root, found = _last(receipt), receipt, found or receipt
    data = load(path, RECEIPT_BYTES, hint=HINT)
    if found is None:
        return Material(path, data)
    if root is None:
        if os.path.isdir(found):
            what = f"has no {bundle.INPUTS}, so it is not known what the evidence was settled by"
            raise BadInput(what, file=found, hint="give the folder that `assay export epoch` wrote")
        return Material(path, data, alone=found)
    try:
        files = evidence.files(root / bundle.EVIDENCE)
    except BadInput as error:
        raise Refused("evidence", error.what, file=error.file) from None
    if os.path.isfile(found):
        files |= {_epoch(found): found}
    return Material(path, data, root, files)


def content(path: Path) -> bytes:
    """The bytes of a file of a bundle; raises BadInput."""
    return load(path, SETTLEMENT_BYTES, hint="the bundle is not whole: export it again")


def document(path: Path) -> Any:
    """The JSON in a file of a bundle; raises BadInput."""
    text = decode(content(path), path)
    try:
        return strict.parse(text)
    except BadInput as error:
        raise error.at(file=path) from None


def _last(root: Path) -> Path:
    """The last receipt of a bundle."""
    folder = root / bundle.RECEIPTS
    paths = sorted(folder.glob("epoch-*.receipt"), key=_epoch) if folder.is_dir() else []
    if not paths:
        raise BadInput("has no receipts", file=root, hint=HINT)
    return paths[-1]


def _root(found: Path) -> Path | None:
    """The bundle that a path is, or is in."""
    return next((one for one in (found, *list(found.resolve().parents)[:2]) if os.path.isfile(one / bundle.INPUTS)), None)


def _epoch(path: Path) -> int:
    digits = path.name.partition(".")[0].removeprefix("epoch-")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 17 else -1
