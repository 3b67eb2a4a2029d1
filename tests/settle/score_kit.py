"""What the tests of `assay.settle.score` share: records in one line, frames in another, vectors from the shared folder."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from assay.records import Evidence, record
from assay.settle.inputs import Frame

WHEN = datetime(2026, 11, 2, 9, tzinfo=UTC)


def make(kind: str, validator: str = "v1", participant: str = "ann", **fields: Any) -> Evidence:
    """A record of epoch 1 about the participant's submission `s-<participant>`, unless told otherwise."""
    common = {"epoch": 1, "submission": f"s-{participant}", "observed_at": WHEN}
    return record({"kind": kind, "validator": validator, "participant": participant, **common, **fields})


def axes(
    participants: Sequence[str] = ("ann", "bob"),
    validators: Sequence[str] = ("v1", "v2"),
    *,
    submissions: Sequence[str] | None = None,
    tasks: Sequence[str] = (),
    epoch: int = 5,
    oldest: int = 0,
    duplicate_of: dict[str, str] | None = None,
) -> Frame:
    """A frame at epoch 5 in which everybody's submission is `s-<participant>`."""
    return Frame(
        epoch=epoch,
        oldest=oldest,
        validators=tuple(validators),
        participants=tuple(participants),
        submissions=tuple(f"s-{key}" for key in participants) if submissions is None else tuple(submissions),
        duplicate_of=duplicate_of or {},
        tasks=tuple(tasks),
    )


def vectors(shared: Path, name: str) -> Any:
    """The content of a shared vector file."""
    return json.loads((shared / "vectors" / f"{name}.json").read_text(encoding="utf-8"))
