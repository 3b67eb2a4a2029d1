"""The ledger's formats: Merkle trees and proofs, signed notes, envelopes, tiles, batches. SPEC 6."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from assay.conformance.kinds.kind import Kind, kind
from assay.errors import BadInput
from assay.ledger import batch as batches
from assay.ledger import check, keys, log, merkle, tiles
from assay.ledger.check import Envelope, LogKey, LogProof
from assay.ledger.refusal import as_bad_input
from assay.scheme.fields import Section

__all__ = ["batch", "checkpoint", "consistency", "dsse", "inclusion", "log_proof", "merkle_tree", "tile_path", "tiled_log"]

Json = dict[str, Any]
Bytes = Annotated[str, Field(max_length=200_000, pattern=r"^([0-9a-f]{2})*$")]
Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Size = Annotated[int, Field(ge=0, lt=2**63)]
Hashes = Annotated[tuple[Hash, ...], Field(strict=False, max_length=100)]
Words = Annotated[tuple[str, ...], Field(strict=False)]
Text = Annotated[str, Field(max_length=1_000_000)]
_HINT = "it must be refused"


def refusing(found: Kind) -> Kind:
    """The kind, with what `check` refuses as the refusal of the case."""

    def answer(given: Any) -> Any:
        with as_bad_input(_HINT):
            return found.answer(given)

    return Kind(found.name, found.about, found.model, answer)


def _raw(texts: tuple[str, ...]) -> list[bytes]:
    return [bytes.fromhex(one) for one in texts]


class _Tree(Section):
    entries: Annotated[tuple[Bytes, ...], Field(strict=False)]
    index: Size | None = None
    old: Size | None = None


@kind(_Tree)
def merkle_tree(given: _Tree) -> Json:
    """The RFC 6962 root over entries; with `index` the proof that this entry is among them, with `old` the proof that the tree
    goes on from that of the first `old`."""
    tree = merkle.Tree([check.leaf_hash(one) for one in _raw(given.entries)])
    found: Json = {"root": tree.root().hex()}
    try:
        if given.index is not None:
            found["inclusion"] = [one.hex() for one in tree.inclusion(given.index).hashes]
        if given.old is not None:
            found["consistency"] = [one.hex() for one in tree.consistency(given.old)]
    except ValueError as error:
        raise BadInput(str(error), hint="use a smaller number") from None
    return found


class _Inclusion(Section):
    root: Hash
    size: Size
    index: Size
    entry: Bytes
    proof: Hashes


@refusing
@kind(_Inclusion)
def inclusion(given: _Inclusion) -> Json:
    """Whether an entry is at its index in the tree of that size and root, by the proof: refused if it is not."""
    leaf = check.leaf_hash(bytes.fromhex(given.entry))
    check.check_inclusion(bytes.fromhex(given.root), given.size, given.index, leaf, _raw(given.proof))
    return {"included": True}


class _Consistency(Section):
    old: Size
    old_root: Hash
    new: Size
    new_root: Hash
    proof: Hashes


@refusing
@kind(_Consistency)
def consistency(given: _Consistency) -> Json:
    """Whether the larger tree goes on from the smaller, by the proof: refused if it does not."""
    roots = bytes.fromhex(given.old_root), bytes.fromhex(given.new_root)
    check.check_consistency(given.old, roots[0], given.new, roots[1], _raw(given.proof))
    return {"consistent": True}


class _Checkpoint(Section):
    note: Text
    keys: Words


@refusing
@kind(_Checkpoint)
def checkpoint(given: _Checkpoint) -> Json:
    """A checkpoint in a signed note (C2SP), by the public keys of the log (vkeys): what it says, if one of them signed it."""
    found = check.check_checkpoint(given.note.encode(), [LogKey.parse(one) for one in given.keys])
    return {"origin": found.origin, "size": str(found.size), "root": found.root.hex()}


class _LogProof(Section):
    proof: Text
    entry: Bytes
    keys: Words


@refusing
@kind(_LogProof)
def log_proof(given: _LogProof) -> Json:
    """A C2SP tlog-proof of an entry, by the public keys of the log (vkeys): where it is, if it is there."""
    found = LogProof.parse(given.proof)
    log = check.check_checkpoint(found.checkpoint, [LogKey.parse(one) for one in given.keys])
    check.check_inclusion(log.root, log.size, found.index, check.leaf_hash(bytes.fromhex(given.entry)), found.hashes)
    return {"origin": log.origin, "index": str(found.index), "size": str(log.size)}


class _Dsse(Section):
    json_: Annotated[Text, Field(alias="json")]
    keys: Words
    threshold: Annotated[int, Field(ge=1)] = 1


@refusing
@kind(_Dsse)
def dsse(given: _Dsse) -> Json:
    """A DSSE envelope as a JSON text around an in-toto payload, by keys (`ed25519:` or `sr25519:` and hex, or the
    address of a hotkey): the payload (hex) and the keys that signed it, in the order given, if they are at least `threshold`."""
    envelope = Envelope.parse(check.parse_json(given.json_.encode(), "dsse"), "dsse")
    found = check.check_envelope(envelope, [keys.public(one) for one in given.keys], "dsse", given.threshold)
    return {"payload": envelope.payload.hex(), "signed_by": [one.id for one in found]}


class _TilePath(Section):
    level: Annotated[int, Field(ge=0)] | str
    index: Annotated[int, Field(ge=0)]
    width: int


@kind(_TilePath)
def tile_path(given: _TilePath) -> Json:
    """Where the tile of a level (or of `entries`) is (C2SP tlog-tiles), 256 hashes wide or narrower."""
    try:
        return {"path": tiles.tile_path(given.level, given.index, given.width)}
    except ValueError as error:
        raise BadInput(str(error), hint="levels are 0 to 63, widths 1 to 256") from None


class _TiledLog(Section):
    files: dict[str, Bytes]
    checkpoint: Text
    key: str
    seen: Text | None = None


@refusing
@kind(_TiledLog)
def tiled_log(given: _TiledLog) -> Json:
    """A log as its files (path → hex) and its checkpoint, every tile and entry checked by its key (vkey); with `seen`, a signed
    checkpoint seen at another time, that the log goes on from it."""
    key = LogKey.parse(given.key)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "checkpoint").write_bytes(given.checkpoint.encode())
        for path, data in given.files.items():
            if not re.fullmatch(r"tile/(\d+|entries)/(x\d{3}/)*\d{3}(\.p/\d+)?", path, re.ASCII):
                raise BadInput(f"{path[:60]!r} is not the path of a tile", field="files", hint="see C2SP tlog-tiles")
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(bytes.fromhex(data))
        found = log.Log(folder, key)
        found.check()
        if given.seen is not None:
            found.check_against(check.check_checkpoint(given.seen.encode(), [key]))
        entries = [one.hex() for one in found.entries()]
    return {"size": str(found.size), "root": found.checkpoint.root.hex(), "last": entries[-1] if entries else None}


class _Batch(Section):
    text: Text
    key: str | None = None


@kind(_Batch)
def batch(given: _Batch) -> Json:
    """A batch of evidence as the text of its file, by the key of its validator, which is the one it names if none is given: what
    it states, and its digest."""
    found = batches.read(given.text.encode())
    batches.check_signature(found, keys.public(found.statement.validator if given.key is None else given.key))
    return {"digest": found.digest, "statement": found.statement.document()}
