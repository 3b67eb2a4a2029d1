"""The vectors of SPEC 2.3 through the whole path: a scripted model, the judge, the record, the settlement's BPS."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import assay
from assay.exact import BPS, NANO, canonical, nanos
from assay.judge.rubric.judgement import Judgement, make_record
from assay.judge.rubric.scripted import Script
from assay.judge.rubric.scripted_server import scripted_model
from assay.judge.rubric.solution import Solution
from rubric_kit import ADD, asked_all, make_case

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_the_vectors(shared: Path, tmp_path: Path) -> None:
    vectors: dict[str, Any] = json.loads((shared / "vectors" / "rubric.json").read_text(encoding="utf-8"))
    ids = [check["id"] for check in vectors["rubric"]]
    rows = [(vector, verdict, bps) for vector in vectors["cases"] for verdict, bps in vector["final"].items()]
    solutions = [Solution({"add.py": ADD, "number.txt": f"{number}\n"}) for number in range(len(rows))]
    solved = [
        {
            "digest": solution.digest,
            "checks": {name: "return a + b" for name in ids if name not in vector["failed"]},
            "verdict": verdict,
            "baseline": dict.fromkeys(vector.get("baseline_failed", ()), "as the vector says"),
        }
        for solution, (vector, verdict, _) in zip(solutions, rows, strict=True)
    ]
    case = make_case(tmp_path, checks=vectors["rubric"])
    with scripted_model(Script.model_validate({"solutions": solved})) as server:
        judgements = asked_all(case, solutions, server.url)
    _write(tmp_path, solutions, [judgements[solution.digest] for solution in solutions])
    agreed = assay.open(tmp_path).settle(epoch=1).document["agreed"]
    scores = {row["participant"]: row["score"] for row in agreed}
    assert len(rows) == 30
    for number, (_, _, bps) in enumerate(rows):
        assert nanos(scores[f"p{number:02}"]) == bps * (NANO // BPS)


def _write(folder: Path, solutions: list[Solution], judgements: list[Any]) -> None:
    participants = ["key,uid,name,submission,submitted_at,last_reset_epoch,address"]
    lines = []
    for number, (solution, judgement) in enumerate(zip(solutions, judgements, strict=True)):
        assert isinstance(judgement, Judgement)
        key = f"p{number:02}"
        participants.append(f"{key},,,{solution.digest},2026-01-01T00:00:00Z,,")
        lines.append(canonical(make_record(judgement, epoch=1, validator="v", participant=key, observed_at=NOW).document()))
    (folder / "participants.csv").write_text("\n".join(participants) + "\n", encoding="utf-8")
    (folder / "validators.csv").write_text("key,stake,name\nv,1,\n", encoding="utf-8")
    (folder / "evidence").mkdir()
    (folder / "evidence" / "e.jsonl").write_bytes(b"\n".join(lines) + b"\n")
