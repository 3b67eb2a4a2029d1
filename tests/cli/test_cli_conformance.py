"""`assay conformance`: the cases of a folder, by Assay and by another program."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli_kit import output, refused, run


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    """A folder with two cases, the second of them a refusal."""
    drafts = [
        {"name": "seed", "input": {"passed": 73, "trials": 91}, "output": {"score": "0.802197802"}},
        {"name": "too many", "input": {"passed": 92, "trials": 91}, "refused": True, "why": "more than all"},
    ]
    document = {"schema": "assay.cases/1", "kind": "tests", "about": "Pass rates.", "cases": drafts}
    (tmp_path / "tests.json").write_text(json.dumps(document), encoding="utf-8")
    return tmp_path


def test_cases_that_pass(cases: Path) -> None:
    assert output("conformance", "run", cases) == "tests.json: 2 of 2\n2 cases in 1 files: all pass\n"


def test_cases_that_fail_are_code_1(cases: Path) -> None:
    file = cases / "tests.json"
    file.write_text(file.read_text(encoding="utf-8").replace("0.802197802", "0.8022"), encoding="utf-8")
    result = run("conformance", "run", cases, code=1)
    assert "FAILED seed" in result.stdout
    assert result.stdout.endswith("1 failed\n")


def test_one_case_of_one_file(cases: Path) -> None:
    printed = output("conformance", "run", cases / "tests.json", "--case", "seed")
    assert printed.count('"score": "0.802197802"') == 2
    assert printed.endswith("1 cases in 1 files: all pass\n")


def test_another_program_can_be_asked(cases: Path) -> None:
    other = f"{sys.executable} -m assay conformance serve"
    assert output("conformance", "run", cases, "--with", other).endswith("all pass\n")


def test_what_is_no_folder_of_cases_is_refused(tmp_path: Path) -> None:
    assert refused("conformance", "run", tmp_path)


def test_serving_as_a_program() -> None:
    asked = b'{"kind":"tests","input":{"passed":1,"trials":2}}\n{"kind":"tests"}\n'
    done = subprocess.run([sys.executable, "-m", "assay", "conformance", "serve"], input=asked, capture_output=True, check=True)
    first, second = map(json.loads, done.stdout.splitlines())
    assert first == {"score": "0.5"}
    assert second["refused"] is True
