"""A failed test is reported with its name, even if pytest cannot show the failure."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PLUGIN = """
import ast, pytest, _pytest._code.source

def parse(*arguments):
    raise SystemError("AST constructor recursion depth mismatch")

_pytest._code.source.ast = type("Broken", (), {"parse": parse})
"""


FAILING = """
def test_wrong() -> None:
    assert 1 == 2, "so it is"
"""


@pytest.mark.no_cover
def test_a_failure_that_pytest_cannot_show_keeps_its_name(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(PLUGIN, encoding="utf-8")
    (tmp_path / "test_it.py").write_text(FAILING, encoding="utf-8")
    (tmp_path / "conftest.py").write_text("from house import pytest_runtest_makereport\n", encoding="utf-8")
    (tmp_path / "house.py").symlink_to(TESTS / "conftest.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "broken", "-p", "no:cacheprovider", "--rootdir", ".", "."]
    env = {"PYTHONPATH": f"{tmp_path}:{TESTS / 'kits'}", "PATH": ""}
    ran = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "FAILED test_it.py::test_wrong" in ran.stdout
    assert "pytest could not show this failure (SystemError" in ran.stdout
    assert "so it is" in ran.stdout
