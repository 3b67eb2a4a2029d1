"""Prove that a log was forked: its key signed two checkpoints that cannot be of one log. SPEC 6, Witnesses.

A proof is one JSON document, and whoever has it needs nothing else, neither the log nor Assay:

    {"schema": "assay.fork/1", "key": "NAME+HEX+BASE64", "first": "…", "second": "…", "root": null, "hashes": []}

first, second    the two signed checkpoints, the smaller one first
root, hashes     for trees of different sizes: the root over the second tree's first entries, as many as the first tree has (hex),
                 and the RFC 6962 consistency proof from there to the second checkpoint (base64). It is not the first one's root.

Two checkpoints of the same size with different roots need no proof between them.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.errors import BadInput
from assay.folder.files import load
from assay.ledger import check
from assay.ledger.check import CheckError, Checkpoint, LogKey
from assay.ledger.keys import as_bad_input
from assay.ledger.log import Log

__all__ = ["FORMAT", "Fork", "check_fork", "kept", "prove", "read_checkpoint"]

FORMAT = "assay.fork/1"
_STAGE = "fork"
_SHAPE = {
    "schema": re.escape(FORMAT),
    "key": check.WORD,
    "first": check.WORD,
    "second": check.WORD,
    "root": (None, "[0-9a-f]{64}"),
    "hashes": [check.WORD],
}


@dataclass(frozen=True)
class Fork:
    """Two checkpoints that one log cannot have, as they were signed, the smaller one first; and what shows it."""

    key: LogKey
    first: bytes
    second: bytes
    root: bytes | None = None
    """The root over the beginning of the second tree; None if both have the same size."""
    hashes: tuple[bytes, ...] = ()

    def document(self) -> dict[str, Any]:
        """The proof as a JSON object."""
        return {
            "schema": FORMAT,
            "key": str(self.key),
            "first": self.first.decode(),
            "second": self.second.decode(),
            "root": None if self.root is None else self.root.hex(),
            "hashes": [base64.b64encode(hash_).decode() for hash_ in self.hashes],
        }

    def checkpoints(self) -> tuple[Checkpoint, Checkpoint]:
        """The two checkpoints; raises CheckError unless the log's key signed both, and they show a fork."""
        first, second = (check.check_checkpoint(note, [self.key], _STAGE) for note in (self.first, self.second))
        if first.size > second.size:
            raise CheckError(_STAGE, "the smaller checkpoint does not come first", f"at most {second.size} entries", first.size)
        if first.size == second.size:
            if first.root == second.root:
                raise CheckError(_STAGE, "both checkpoints are of the same tree, so there is no fork")
            return first, second
        if self.root is None:
            raise CheckError(_STAGE, "the trees differ in size, and nothing shows that the second does not begin with the first")
        if self.root == first.root:
            raise CheckError(_STAGE, "the second tree begins with the first, so there is no fork")
        check.check_consistency(first.size, self.root, second.size, second.root, self.hashes)
        return first, second


def prove(first: bytes, second: bytes, key: LogKey, log: Log | None = None) -> Fork:
    """The proof that two signed checkpoints are of different histories.

    log: the tiles of the larger one, needed if the sizes differ. Raises BadInput if the key did not sign both, if the tiles are
    missing or of neither, or if the log of the larger checkpoint begins with the smaller: then there is no fork.
    """
    with as_bad_input("give two checkpoints of one log, and its key"):
        pairs = [(check.check_checkpoint(note, [key], _STAGE), note) for note in (first, second)]
    (small, small_note), (large, large_note) = sorted(pairs, key=lambda pair: pair[0].size)
    fork = Fork(key, small_note, large_note)
    if small.size != large.size:
        if log is None:
            what = f"the checkpoints have {small.size} and {large.size} entries"
            raise BadInput(what, hint="give the log's folder of the larger one with --log: its tiles show how it begins")
        if large.size > log.size or log.root(large.size) != large.root:
            raise BadInput("is not the log of the larger checkpoint", file=log.folder, hint="give the folder of that log's tiles")
        fork = Fork(key, small_note, large_note, log.root(small.size), log.consistency(small.size, large.size))
    with as_bad_input("the log only grew between them"):
        fork.checkpoints()
    return fork


def check_fork(data: bytes) -> Fork:
    """The fork in the bytes of a proof, checked; raises CheckError for what proves none."""
    document = check.parse_json(data, _STAGE)
    if bad := check.misfit(document, _SHAPE):
        raise CheckError(_STAGE, f"it does not have the format {FORMAT}: {bad} does not fit")
    root = None if document["root"] is None else bytes.fromhex(document["root"])
    key, hashes = LogKey.parse(document["key"]), check.parse_hashes(document["hashes"], _STAGE)
    fork = Fork(key, document["first"].encode(), document["second"].encode(), root, hashes)
    fork.checkpoints()
    return fork


def read_checkpoint(path: Path, key: LogKey | None) -> tuple[bytes, LogKey]:
    """A signed checkpoint from its file, a receipt or a proof of a log; and the key that signed it, as given.

    Raises BadInput for a file that has none, or without a key.
    """
    data = load(path, check.RECEIPT_BYTES, hint="give a signed checkpoint, or a receipt")
    if data[:1] == b"{":
        with as_bad_input("give a signed checkpoint, or a receipt", file=path):
            data = check.Receipt.parse(data).proof.checkpoint
    if key is None:
        raise BadInput("is signed by a log whose key is not known", file=path, hint="give the log's public key with --key")
    with as_bad_input("give a checkpoint of this log", file=path):
        check.check_checkpoint(data, [key], _STAGE)
    return data, key


def kept(folder: Path, key: LogKey, notes: tuple[bytes, bytes], log: Log | None) -> Path | None:
    """Keep two checkpoints of a log as evidence, in a file of the folder, as a proof where they are one; None if they agree.

    The larger may be of a log that we do not have: then the two are kept side by side, for whoever has its tiles.
    """
    from assay.exact import canonical, digest
    from assay.folder.files import write_bytes

    try:
        document = prove(*notes, key, log).document()
    except BadInput:
        first, second = (check.check_checkpoint(note, [key], _STAGE) for note in notes)
        if first == second or (log is not None and max(first.size, second.size) <= log.size):
            return None
        texts = [note.decode() for note in notes]
        document = {"schema": "assay.checkpoints/1", "key": str(key), "first": texts[0], "second": texts[1]}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{digest(document)[7:23]}.json"
    if not path.exists():
        write_bytes(path, canonical(document) + b"\n")
    return path
