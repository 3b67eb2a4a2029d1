"""`--json`: every command that says something says it to programs too, as one document."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli_kit import command, commands, made, output, run

EXAMPLES = Path(__file__).parents[1] / "examples"
CONFORMANCE = Path(__file__).parents[1] / "conformance"

WITHOUT = {
    "conformance serve": "it speaks JSON lines, and nothing else",
    "enclave collateral": "it prints a JSON document",
    "enclave develop": "it serves until it is stopped",
    "enclave serve": "it serves until it is stopped",
    "model scripted": "it serves until it is stopped",
    "open": "it prints the file that was sealed",
    "receipt": "it prints a JSON document",
    "scheme schema": "it prints a JSON schema",
}
"""The commands without --json, and why."""
LATER = {
    *("evidence add", "evidence sign", "export emission", "export epoch", "import epoch", "run", "trial"),
    *("ledger check", "ledger consistency", "ledger init", "ledger migrate", "ledger replay", "ledger backup", "ledger restore"),
}


def test_every_command_says_it_to_programs_too() -> None:
    without = {
        " ".join(path) for path in commands() if "--json" not in {name for one in command(path).params for name in one.opts}
    }
    assert without - LATER == set(WITHOUT)


def document(*words: str | Path, code: int = 0) -> Any:
    """The one document that a command prints."""
    printed: str = run(*words, "--json", code=code).stdout
    assert printed.endswith("\n")
    assert printed.count("\n") == 1, printed[:300]
    return json.loads(printed)


def test_a_new_competition_and_its_scheme(tmp_path: Path) -> None:
    place = tmp_path / "new"
    begun = document("init", "--preset", "term-challenge", place)
    assert (begun["folder"], begun["preset"]) == (str(place), "term-challenge")
    assert sorted(begun["files"]) == sorted(path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file())
    found = document("scheme", "check", place)
    assert (found["score"], found["reward"], found["warnings"]) == ("tests", "weights", [])
    assert found["digest"] in output("scheme", "check", place)
    assert "term-challenge" in [one["name"] for one in document("scheme", "list")["presets"]]


def test_cases_of_an_implementation() -> None:
    found = document("conformance", "run", CONFORMANCE / "cap.json")
    assert (found["good"], found["failed"], [one["file"] for one in found["files"]]) == (True, 0, ["cap.json"])
    assert found["files"][0]["passed"] == found["cases"] > 5
    bad = document("conformance", "run", CONFORMANCE / "cap.json", "--with", "cat", code=1)
    assert (bad["good"], len(bad["files"][0]["failures"])) == (False, bad["failed"])
    name = json.loads((CONFORMANCE / "cap.json").read_text(encoding="utf-8"))["cases"][0]["name"]
    (shown,) = document("conformance", "run", CONFORMANCE / "cap.json", "--case", name)["files"][0]["shown"]
    assert shown["expected"] == shown["got"]


def test_tasks_submissions_and_hashes(tmp_path: Path) -> None:
    place = made(tmp_path / "mine")
    tasks = EXAMPLES / "term-challenge" / "tasks"
    pinned = document("tasks", "pin", place, "--tasks", tasks, "--change")
    assert len(pinned["tasks"]) == 10
    assert pinned["digest"] in output("tasks", "pin", place, "--tasks", tasks, columns=200)
    given = document("submit", place, "miner-a", EXAMPLES / "term-challenge" / "agents" / "hopeful")
    assert (given["participant"], given["changed"], given["accepted_epoch"]) == ("miner-a", True, None)
    again = document("submit", place, "miner-a", EXAMPLES / "term-challenge" / "agents" / "hopeful")
    assert again == given | {"changed": False}
    file = EXAMPLES / "agonaut" / "app-compose.json"
    assert document("enclave", "compose-hash", file) == {
        "compose_hash": output("enclave", "compose-hash", file).strip(),
        "file": str(file),
    }


def test_workflow_tasks_and_bases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    place = shutil.copytree(EXAMPLES / "cswon", tmp_path / "cswon")
    pinned = document("workflow", "pin", place)
    assert pinned["digest"] in output("workflow", "pin", place, columns=200)
    monkeypatch.setenv("ASSAY_STATE", str(tmp_path / "state"))
    assert document("sandbox", "base", "list") == {"bases": []}
