"""Answers of a service that its clients read as models, and how models say what they describe.

A validator's node imports this alone, not the service: a round begins sooner without FastAPI.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["DIGEST", "NULL", "JudgedAlready", "Work", "WorkRow", "described", "with_nulls"]

DIGEST = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
"""A digest, for examples."""
NULL = "\0null"
"""Stands for null in an example while FastAPI makes the document, which leaves out every field that is null."""


def with_nulls(value: Any, old: Any = None, new: Any = NULL) -> Any:
    """An example with NULL in the place of null; with old and new exchanged, the example again."""
    if isinstance(value, dict):
        return {name: with_nulls(part, old, new) for name, part in value.items()}
    if isinstance(value, list):
        return [with_nulls(part, old, new) for part in value]
    return new if value == old else value


def described(example: Any, *, strict: bool = False) -> ConfigDict:
    """The configuration of a model with an example of what it describes. strict: of a body, which has nothing else in it."""
    config = ConfigDict(json_schema_extra={"examples": [with_nulls(example)]})
    return config | ConfigDict(extra="forbid", strict=True) if strict else config


class JudgedAlready(BaseModel):
    """The records that the ledger has from this validator about a submission: their number, and the trials of each task.

    Records that are too old to count (`max_age_epochs`) are left out. Only trials that the rules ask for are listed, if they need
    not be judged again: they were judged on the task set of now, and in the open epoch if records are about an epoch.
    """

    records: int
    trials: dict[str, list[int]]


class WorkRow(BaseModel):
    """A submission that counts: whose, whether it is this validator's to judge (`assign`), and what was judged already."""

    participant: str
    submission: str
    assigned: bool
    evidence: JudgedAlready


class Work(BaseModel):
    """The work that a validator has now: the open epoch and the submissions to judge."""

    model_config = described(
        {
            "epoch": 13,
            "settled": 12,
            "kind": "tests",
            "scheme": DIGEST,
            "task_set": DIGEST,
            "folder": DIGEST,
            "submissions": [
                {
                    "participant": "atlas",
                    "submission": DIGEST,
                    "assigned": True,
                    "evidence": {"records": 3, "trials": {"t1": [1, 2], "t2": [1]}},
                }
            ],
            "seen": "5b1f0c9a2e7d4c38",
        }
    )

    epoch: Annotated[int, Field(description="The epoch that is open now")]
    settled: int | None
    kind: str
    scheme: Annotated[str, Field(description="The digest of the rules")]
    task_set: str | None
    folder: Annotated[str, Field(description="The digest of the rules and the registry, which `/folder` hands out")]
    submissions: list[WorkRow]
    seen: Annotated[str, Field(description="What to send as `seen` to wait for other work than this; own evidence is not news")]
