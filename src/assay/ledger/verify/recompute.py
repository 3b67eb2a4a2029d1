"""The stages that recompute: the inputs are those of the receipt, and the same settlement follows from them. SPEC 2-6."""

from __future__ import annotations

import heapq
import itertools
import json
from collections.abc import Iterator, Sequence
from hashlib import sha256
from operator import itemgetter
from pathlib import Path
from typing import Any

from assay.errors import Refused
from assay.exact import digest
from assay.ledger import bundle, evidence, inputs, lines, receipt, resting, standing
from assay.ledger.standing import Judged
from assay.ledger.verify.material import Material, content, document, gathered
from assay.ledger.verify.receipts import Chain
from assay.ledger.verify.report import Verified, or_null, several, stage
from assay.records import Evidence, record
from assay.scheme.load import read as read_scheme
from assay.settle import Settlement, pipeline

__all__ = ["differs", "records_about", "same_scheme", "settlement"]

Json = dict[str, Any]


def same_scheme(file: Path, said: Json, into: Verified) -> None:
    """Stage `inputs`, of a scheme file that somebody keeps: it is the one that the receipt names."""
    found = read_scheme(file).digest
    if found != said["scheme"]:
        raise Refused("inputs", "the scheme is not the receipt's", expected=said["scheme"], found=found, file=file)
    into.right("inputs", f"the scheme of {file} is the receipt's")


def settlement(given: Material, before: Chain, judged: Sequence[Judged], into: Verified) -> Settlement:
    """Stages `inputs`, `settlement` and `results`: everything is computed again, and compared with what the receipt says."""
    assert given.root is not None
    said = before.receipts[-1].predicate
    found = _inputs(given.root / bundle.INPUTS, said)
    without = standing.left_out(judged, said["task_set"])
    paths = list(given.evidence.values())

    with (
        stage("inputs"),
        standing.from_files(paths, lambda: itertools.chain.from_iterable(map(_records, paths)), without) as where,
    ):
        settled = inputs.settled_from(found, epoch=said["epoch"], evidence=where, previous=before.previous)
        for what, ours, theirs in (
            ("scheme", settled.scheme.digest, said["scheme"]),
            ("competition", settled.scheme.name, said["competition"]),
            ("task set", settled.task_set, said["task_set"]),
            ("registry", found.get("registry"), said.get("registry")),
        ):
            _same(ours, theirs, "inputs", f"the {what} is not the receipt's", given.root / bundle.INPUTS)
        if inputs.document(settled) != found:
            raise Refused("inputs", "it is not written in the one form that inputs have", file=given.root / bundle.INPUTS)
        people, judges = several(len(settled.participants), "participant"), several(len(settled.validators), "validator")
        into.right("inputs", f"{people}, {judges}, scheme {said['scheme']}{_block(said)}")
    with stage("settlement"):
        again = pipeline.settle(settled)
        _compare(again.document, given.root / bundle.SETTLEMENT)
        _same(again.digest, said["settlement"], "settlement", "the receipt is of another settlement", given.path)
        into.right("settlement", f"computed again to the bit: {again.digest}")
    held = (lines.Kept(seq, sha256(body).digest(), body) for seq, body in _in_order(paths))
    first = before.receipts[-1].version == 1
    into.left_out = gone = frozenset(without.tolist())
    rows = receipt.results(again.document, None if first else resting.bound(held, found, again.document, gone))
    root = f"sha256:{receipt.results_tree(rows).root().hex()}"
    _same({"root": root, "count": len(rows)}, said["results"], "results", "the receipt is of other results", given.path)
    into.right("results", f"{several(len(rows), 'result')} under their root")
    return again


def records_about(bundle_: Path, found: Verified, participant: str) -> list[Evidence]:
    """The records that the result of one participant rests on, of a bundle that was verified, with their seq."""
    assert found.settlement is not None
    paths = list(gathered(bundle_, None).evidence.values())
    held = (lines.Kept(seq, sha256(body).digest(), body) for seq, body in _in_order(paths))
    rows = resting.resting(held, document(bundle_ / bundle.INPUTS), found.settlement.document, found.left_out)
    return [record(json.loads(one.body) | {"seq": one.seq}) for name, _, one in rows if name == participant]


def _in_order(paths: Sequence[Path]) -> Iterator[tuple[int, bytes]]:
    """The records of all files in order of acceptance: each file is, and a later epoch's may have been accepted earlier."""
    return heapq.merge(*map(_records, paths), key=itemgetter(0))


def _records(path: Path) -> Iterator[tuple[int, bytes]]:
    for part in evidence.parts(path):
        yield from zip(part.seqs, part.bodies, strict=True)


def _block(said: Json) -> str:
    """Of which block the registry is, where it was pulled from a chain: whether it was right there, only the chain can say."""
    found = said.get("registry")
    return f"; registry of subnet {found['netuid']} at block {found['block']}, {found['hash']}" if found else ""


def _inputs(path: Path, said: Json) -> Json:
    with stage("inputs"):
        found = document(path)
        if not isinstance(found, dict):
            raise Refused("inputs", "it is not a JSON object", file=path)
        _same(digest(found), said["inputs"], "inputs", "the inputs are not those of the receipt", path)
        return found


def _same(found: object, wanted: object, name: str, what: str, file: Path) -> None:
    if found != wanted:
        raise Refused(name, what, expected=or_null(wanted), found=or_null(found), file=file)


def _compare(ours: Json, path: Path) -> None:
    """Refuse a settlement that differs from the one computed, naming the first field, and whose it is."""
    if content(path) == lines.plain(ours).encode() + b"\n":  # as it is exported; it is long, and parsing it would take as long
        return
    found = differs(ours, document(path))
    if found is not None:
        place, participant, wanted, there = found
        what = f"{place or 'all of it'} differs"
        raise Refused("settlement", what, participant=participant, expected=or_null(wanted), found=or_null(there), file=path)


Difference = tuple[str, str, Any, Any]
"""Field, participant ("" if it is nobody's), what was computed, what is there."""
NOTHING = "nothing"


def differs(ours: Any, theirs: Any, place: str = "", participant: str = "") -> Difference | None:
    """The first field in which two documents differ, rows about participants being compared by participant; None if none does."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        participant = ours.get("participant", participant) if isinstance(ours.get("participant", ""), str) else participant
        for name in (*ours, *(name for name in theirs if name not in ours)):
            inner = f"{place}.{name}" if place else name
            if name not in ours or name not in theirs:
                return inner, participant, ours.get(name, NOTHING), theirs.get(name, NOTHING)
            found = differs(ours[name], theirs[name], inner, participant)
            if found is not None:
                return found
        return None
    if isinstance(ours, list) and isinstance(theirs, list):
        return _rows_differ(ours, theirs, place, participant)
    if type(ours) is not type(theirs) or ours != theirs:
        return place, participant, ours, theirs
    return None


def _rows_differ(ours: list[Any], theirs: list[Any], place: str, participant: str) -> Difference | None:
    keys = _keys(ours), _keys(theirs)
    if keys[0] and keys[1] and keys[0] != keys[1]:
        both = dict(zip(keys[1], theirs, strict=True))
        for key, row in zip(keys[0], ours, strict=True):
            if key not in both:
                return place, key, "a row", NOTHING
            found = differs(row, both[key], place, key)
            if found is not None:
                return found
    for at, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        found = differs(one, other, f"{place}[{at}]", participant)
        if found is not None:
            return found
    if len(ours) != len(theirs):
        return place, participant, f"{len(ours)} rows", f"{len(theirs)} rows"
    return None


def _keys(rows: list[Any]) -> list[str]:
    """Whom each row is about, if every one is about a participant of its own."""
    keys = [row.get("participant") if isinstance(row, dict) else None for row in rows]
    names = [key for key in keys if isinstance(key, str)]
    return names if len(names) == len(rows) and len(set(names)) == len(rows) else []
