"""`--json`: every command that says something says it to programs too, as one document."""

import json
from pathlib import Path
from typing import Any

import pytest

import ledger_kit
from assay.ledger import keys
from cli_kit import command, commands, from_preset, output, run

EXAMPLES = Path(__file__).parents[2] / "examples"
CONFORMANCE = Path(__file__).parents[2] / "conformance"

WITHOUT = {
    "conformance serve": "it speaks JSON lines, and nothing else",
    "enclave collateral": "it prints a JSON document",
    "enclave develop": "it serves until it is stopped",
    "enclave serve": "it serves until it is stopped",
    "export erc8004": "it prints a JSON document",
    "ledger fork": "it prints a JSON document",
    "model scripted": "it serves until it is stopped",
    "node operator": "it works until it is stopped; `node status` says how it is",
    "node validator": "it works until it is stopped; `node status` says how it is",
    "open": "it prints the file that was sealed",
    "receipt": "it prints a JSON document",
    "scheme schema": "it prints a JSON schema",
    "serve": "it serves until it is stopped",
    "witness serve": "it serves until it is stopped",
}
"""The commands without --json, and why."""
LATER = {"trial"}


def test_every_command_says_it_to_programs_too() -> None:
    without = {
        " ".join(path) for path in commands() if "--json" not in {name for param in command(path).params for name in param.opts}
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
    checked = document("scheme", "check", place)
    assert (checked["score"], checked["reward"], checked["warnings"]) == ("tests", "weights", [])
    assert checked["digest"] in output("scheme", "check", place)
    assert "term-challenge" in [preset["name"] for preset in document("scheme", "list")["presets"]]


def test_cases_of_an_implementation() -> None:
    report = document("conformance", "run", CONFORMANCE / "cap.json")
    assert (report["good"], report["failed"], [file["file"] for file in report["files"]]) == (True, 0, ["cap.json"])
    assert report["files"][0]["passed"] == report["cases"] > 5
    bad = document("conformance", "run", CONFORMANCE / "cap.json", "--with", "cat", code=1)
    assert (bad["good"], len(bad["files"][0]["failures"])) == (False, bad["failed"])
    name = json.loads((CONFORMANCE / "cap.json").read_text(encoding="utf-8"))["cases"][0]["name"]
    (shown,) = document("conformance", "run", CONFORMANCE / "cap.json", "--case", name)["files"][0]["shown"]
    assert shown["expected"] == shown["got"]


def test_tasks_submissions_and_hashes(tmp_path: Path) -> None:
    place = from_preset(tmp_path / "mine")
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


def test_a_ledger_from_its_first_day_to_its_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    keys.save("small-log", ledger_kit.SIGNER)
    new = document("ledger", "init", from_preset(tmp_path / "new"), "--origin", "example.org/new", "--key", "small-log")
    assert new["key"].startswith("example.org/new+")
    place = ledger_kit.ledger_folder(tmp_path / "small")
    batches = [batch.data for batch in ledger_kit.batches(place, ledger_kit.records())]
    for number, data in enumerate(batches):
        (tmp_path / f"{number}.batch").write_bytes(data)
    files = [tmp_path / f"{number}.batch" for number in range(len(batches))]
    added = document("evidence", "add", place, *files)
    assert (added["new"], added["refused"], [entry["file"] for entry in added["added"]]) == (12, 0, [*map(str, files)])
    run("settle", place, "--key", "small-log")
    checked = document("ledger", "check", place)
    assert (checked["records"], checked["receipts"], checked["not_counted"]) == (12, 1, [])
    (epoch,) = document("ledger", "replay", place)["epochs"]
    assert epoch["settlement"] in output("settle", place, columns=200)
    assert document("ledger", "consistency", place, "1") == {"old": 1, "new": 1, "hashes": []}
    exported = document("export", "epoch", place, "3", "-o", tmp_path / "epoch")
    assert exported == {"epoch": 3, "folder": str(tmp_path / "epoch"), "key": str(ledger_kit.KEY)}
    empty = ledger_kit.ledger_folder(tmp_path / "copy")
    imported = {"epoch": 3, "records": 12, "batches": 3, "new": True, "audits": []}
    assert document("import", "epoch", empty, tmp_path / "epoch") == imported
    assert document("ledger", "adopt", place) == {"adopted": False}
    migration = document("ledger", "migrate", place)
    assert migration["before"] == migration["after"]


def test_signed_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    place = ledger_kit.ledger_folder(tmp_path / "small")
    keys.save("one", ledger_kit.VALIDATORS[ledger_kit.V1])
    (place / "evidence").mkdir()
    lines = [json.dumps(record) for record in ledger_kit.records(validators=[ledger_kit.V1])]
    (place / "evidence" / "run.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    signed = document("evidence", "sign", place, "--key", "one")
    assert (signed["records"], signed["of_a_former_epoch"]) == (4, 0)
    assert sorted(signed["files"]) == sorted(map(str, (place / "batches").iterdir()))
