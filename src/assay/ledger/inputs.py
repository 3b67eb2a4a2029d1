"""What a settlement follows from beside its evidence, as one document: scheme, registry, tasks, history, randomness;
where the registry was pulled from a chain, the block of it. SPEC 6, 7.

It is a case (docs/formats.md) without epoch, evidence and previous settlement, normalised: it does not depend on the order of
rows or on how a value was spelt. A receipt pins it by its digest; `settled_from` makes of it what the settlement is computed
from, on the road that every case takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from assay.errors import BadInput
from assay.exact import digest, text
from assay.folder.previous import check_follows
from assay.folder.reader import Found, parse_case
from assay.records import Participant
from assay.scheme.times import instant_text
from assay.settle.inputs import Inputs, Previous

__all__ = ["FIELDS", "digest_of", "document", "settled_from"]

Json = dict[str, Any]
FIELDS = ("scheme", "participants", "validators", "tasks", "history", "randomness", "registry")


def document(inputs: Inputs) -> Json:
    """The document: rows sorted by key or epoch, fractions and times normalised, what is empty left out of a row. SPEC 6."""
    registry = {} if inputs.registry is None else {"registry": inputs.registry.model_dump()}
    return registry | {
        "scheme": inputs.scheme.document(),
        "participants": [_participant(one) for one in sorted(inputs.participants, key=lambda one: one.key.encode())],
        "validators": [
            _row(key=one.key, stake=str(one.stake), name=one.name)
            for one in sorted(inputs.validators, key=lambda one: one.key.encode())
        ],
        "tasks": list(inputs.manifest),
        "history": [
            _row(epoch=row.epoch, top_score=text(row.top_score), submission=row.submission, task_set=row.task_set)
            for row in sorted(inputs.history, key=lambda row: row.epoch)
        ],
        "randomness": [{"epoch": epoch, "hex": value.hex()} for epoch, value in sorted(inputs.randomness.items())],
    }


def digest_of(found: Mapping[str, Any]) -> str:
    """`sha256:…` of the document's canonical JSON. SPEC 6."""
    return digest(found)


def settled_from(found: Mapping[str, Any], *, epoch: int, evidence: Found, previous: Previous | None) -> Inputs:
    """What the settlement of an epoch follows from; raises BadInput as `folder.parse_case` does, and for a field too many."""
    for name in found:
        if name not in FIELDS:
            raise BadInput(f"there is no field {name[:80]!r} here", hint=f"the fields are {', '.join(FIELDS)}")
    inputs = parse_case({**found, "epoch": epoch}, evidence=evidence)
    if previous is not None:
        check_follows(previous, inputs.scheme, epoch)
    return replace(inputs, previous=previous)


def _participant(one: Participant) -> Json:
    return _row(
        key=one.key,
        uid=one.uid,
        name=one.name,
        submission=one.submission,
        submitted_at=None if one.submitted_at is None else instant_text(one.submitted_at),
        last_reset_epoch=one.last_reset_epoch,
        accepted_epoch=one.accepted_epoch,
        address=one.address,
    )


def _row(**fields: object) -> Json:
    return {name: value for name, value in fields.items() if value is not None and value != ""}
