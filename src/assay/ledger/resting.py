"""The records that each participant's result rests on: a result binds their count and root, so that none can be left out. SPEC 6.

They are the records of the epochs up to the settlement's that bear on it (`assay.ledger.standing`), no older than
`max_age_epochs`, about the participant's submission, or about the participant itself where the kind goes by that or nothing was
submitted. Of one slot the first accepted is one of them. A duplicate's result rests on none.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

from assay.ledger import evidence
from assay.ledger.lines import Kept
from assay.records import KINDS

__all__ = ["bound", "resting"]

Json = dict[str, Any]
_PARTS: Mapping[str, tuple[str, ...]] = {
    "tests": ("task", "trial"),
    "workflow": ("epoch", "task"),
    "points": ("repository", "epoch"),
    "given": ("epoch",),
    "rubric": (),
}
"""What tells a kind's slots apart, beside the validator and whom or what they are about. SPEC 3.0."""


def resting(
    records: Iterable[Kept], inputs: Json, settlement: Mapping[str, Any], without: Container[int]
) -> Iterator[tuple[str, int, Kept]]:
    """(participant, epoch, record) of each record that a result rests on, in order of acceptance.

    records: all up to the settlement's epoch, in that order. inputs: the document that it follows from. without: the seqs of what
    is left out as being of another task set.
    """
    scheme = inputs["scheme"]
    kind, age = scheme["score"]["kind"], scheme["consensus"].get("max_age_epochs")
    oldest = 0 if age is None else settlement["epoch"] - age
    validators = {one["key"] for one in inputs["validators"]}
    shared, rows = KINDS[kind].shared_key, [row for row in settlement["agreed"] if row["duplicate_of"] is None]
    submitted = {row["submission"]: row["participant"] for row in rows if shared and row["submission"]}
    others = {row["participant"] for row in rows} - set(submitted.values())
    taken: set[tuple[object, ...]] = set()
    for one in records:
        value: Json = json.loads(one.body)
        if value["kind"] != kind or value["epoch"] < oldest or value["validator"] not in validators or one.seq in without:
            continue
        by_submission = shared and value["submission"]
        about = submitted.get(value["submission"]) if by_submission else value["participant"]
        if about is None or not (by_submission or about in others):
            continue
        slot = (about, value["validator"], *(value[name] for name in _PARTS[kind]))
        if slot not in taken:
            taken.add(slot)
            yield about, value["epoch"], one


def bound(records: Iterable[Kept], inputs: Json, settlement: Mapping[str, Any], without: Container[int]) -> dict[str, Json]:
    """Participant → count and root of the records that its result rests on; the root as that of a receipt's evidence. SPEC 6."""
    found: dict[str, tuple[list[int], list[bytes]]] = {row["participant"]: ([], []) for row in settlement["agreed"]}
    for participant, _, one in resting(records, inputs, settlement, without):
        seqs, digests = found[participant]
        seqs.append(one.seq)
        digests.append(one.digest)
    return {name: {"root": evidence.root(*both), "count": len(both[0])} for name, both in found.items()}
