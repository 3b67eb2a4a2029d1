"""Small cases for the tests of the oracle."""

import json
from pathlib import Path
from typing import Any

import pytest

from oracle import settle

Doc = dict[str, Any]

ALONE = {"min_validators": 1, "min_stake": "0%"}
SEED_CHECKS = [
    {"id": name, "weight": weight, "skippable": name not in ("C1", "C2", "C4")}
    for name, weight in zip(
        ["C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8"], [2000, 1500, 1000, 1500, 1000, 1000, 1000, 1000], strict=True
    )
]
MET = dict.fromkeys(["B1", "B2", "B3", "B4"], True)


def head(kind: str, participant: str, validator: str = "v", epoch: int = 0) -> Doc:
    return {
        "kind": kind,
        "epoch": epoch,
        "validator": validator,
        "participant": participant,
        "submission": f"of-{participant}",
        "observed_at": "2026-01-01T00:00:00Z",
    }


def person(key: str, uid: int | None, **more: Any) -> Doc:
    return {"key": key, "uid": uid, "submission": f"of-{key}"} | more


def a_case(kind: str, evidence: list[Doc], *, score: Doc | None = None, consensus: Doc | None = None, **more: Any) -> Doc:
    """A case of everybody who appears in the evidence, stake 1 each; `more` sets other parts of the scheme or the case."""
    scheme = {"scheme": {"name": "s", "version": "1"}, "score": {"kind": kind} | (score or {}), "consensus": consensus or ALONE}
    scheme |= {name: more.pop(name) for name in ("reward", "decay", "payout") if name in more}
    people = list(dict.fromkeys(record["participant"] for record in evidence))
    judges = list(dict.fromkeys(record["validator"] for record in evidence))
    return {
        "scheme": scheme,
        "epoch": 0,
        "participants": [person(key, i + 1) for i, key in enumerate(people)],
        "validators": [{"key": key, "stake": "1"} for key in judges],
        "evidence": evidence,
    } | more


def given_case(scores: list[str], epoch: int = 0, **more: Any) -> Doc:
    """One validator's given scores of p0, p1, …."""
    evidence = [head("given", f"p{i}", epoch=epoch) | {"score": score} for i, score in enumerate(scores)]
    return a_case("given", evidence, epoch=epoch, **more)


def case_of_tests(passed: int, total: int) -> Doc:
    tasks = [f"t{i}" for i in range(total)]
    outcomes = [{"task": task, "outcome": "pass" if i < passed else "fail"} for i, task in enumerate(tasks)]
    return a_case("tests", [head("tests", "p") | outcome for outcome in outcomes], tasks=tasks)


def vectors(shared: Path, name: str) -> Doc:
    path = shared / "vectors" / f"{name}.json"
    if not path.is_file():
        pytest.skip(f"no {name}.json in the vectors beside the repository")
    document: Doc = json.loads(path.read_text(encoding="utf-8"))
    return document


def score_of(case: Doc) -> str | None:
    score: str | None = settle(case)["agreed"][0]["score"]
    return score


def rubric_record(participant: str, failed: list[str], verdict: str, baseline_failed: list[str] | None = None) -> Doc:
    baseline = MET | dict.fromkeys(baseline_failed or [], False)
    answers = {check["id"]: check["id"] not in failed for check in SEED_CHECKS}
    return head("rubric", participant) | {"baseline": baseline, "checks": answers, "verdict": verdict}
