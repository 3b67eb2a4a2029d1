"""A small competition on disk, right in everything, for tests that change one thing of it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.exact import digest

SCHEME = '[scheme]\nname = "small"\n[score]\nkind = "tests"\n'
PARTICIPANTS = "key,uid,name,submission,submitted_at,last_reset_epoch,address\nm1,1,,s1,2026-11-02T09:00:00Z,,\nm2,2,,s2,,,\n"
VALIDATORS = "key,stake,name\nv1,100,\nv2,200,\nv3,300,\n"
TASKS = "t1\nt2\n"
FIELDS: Mapping[str, Mapping[str, Any]] = {
    "tests": {"task": "t1", "outcome": "pass"},
    "workflow": {
        "task": "t1",
        "quality": "0.9",
        "steps_completed": 3,
        "steps_total": 4,
        "cost": "0.5",
        "budget": "2",
        "seconds": "10",
        "max_seconds": "60",
    },
    "rubric": {"baseline": {"B1": True, "B2": True, "B3": True, "B4": True}, "checks": {"c1": True}, "verdict": "COHERENT"},
    "points": {"repository": "o/r", "valid": 2, "invalid": 1, "starred": True},
    "given": {"score": "0.5"},
}
SCHEMES = {
    "tests": SCHEME,
    "workflow": '[scheme]\nname = "small"\n[score]\nkind = "workflow"\n',
    "rubric": '[scheme]\nname = "small"\n[score]\nkind = "rubric"\nchecks = [{id = "c1", weight = 10000, skippable = false}]\n',
    "points": '[scheme]\nname = "small"\n[score]\nkind = "points"\nrepositories = {"o/r" = "5"}\n',
    "given": '[scheme]\nname = "small"\n[score]\nkind = "given"\n',
}


def record(kind: str = "tests", /, **changes: Any) -> dict[str, Any]:
    """A record of evidence; a change to `...` leaves the field out."""
    shared = {"kind": kind, "epoch": 3, "validator": "v1", "participant": "m1", "submission": "s1"}
    whole = shared | {"observed_at": "2026-11-02T10:00:00Z"} | dict(FIELDS[kind]) | changes
    return {name: value for name, value in whole.items() if value is not ...}


def lines(records: Sequence[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def make(folder: Path, kind: str = "tests", /, **changes: str | bytes | None) -> Path:
    """The competition in a folder. A change names a file with `_` for `.`, or `evidence` for evidence/a.jsonl; None: no file."""
    files: dict[str, str | bytes | None] = {
        "scheme_toml": SCHEMES[kind],
        "participants_csv": PARTICIPANTS,
        "validators_csv": VALIDATORS,
        "tasks_txt": TASKS,
        "evidence": lines([record(kind, validator=validator) for validator in ("v1", "v2", "v3")]),
    }
    (folder / "evidence").mkdir(parents=True, exist_ok=True)
    for name, content in (files | changes).items():
        path = folder / ("evidence/a.jsonl" if name == "evidence" else ".".join(name.rsplit("_", 1)))
        if content is not None:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def settlement(**changes: Any) -> dict[str, Any]:
    """An earlier settlement of it, in which nobody had a score, with some of its fields changed or (`...`) left out."""
    document: dict[str, Any] = {
        "schema": "assay.settlement/1",
        "scheme": {"name": "small", "version": "1.0.0", "digest": "sha256:" + "0" * 64},
        "epoch": 2,
        "task_set": None,
        "total_stake": "600",
        **{name: [] for name in ("agreed", "ranking", "weights", "payouts")},
        **dict.fromkeys(("burn", "released", "tier_bps", "fees", "refund")),
        "unallocated": "0",
        "clock": {
            "record": "0.5",
            "last": 1,
            "submission": "s0",
            "participants": [{"participant": "m1", "submission": "s0", "best": "0.25", "last": 2}],
        },
    }
    fields = {name: value for name, value in (document | changes).items() if value is not ...}
    return fields | {"digest": digest(fields)}
