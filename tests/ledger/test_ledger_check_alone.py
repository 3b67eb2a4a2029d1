"""The stand-alone checks as one file: what the command says, and that the file needs nothing else."""

import ast
import hashlib
import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from assay.ledger import check
from assay.ledger.check import CheckError
from check_kit import (
    DIGEST,
    KEY,
    NAME,
    ONE,
    OTHER,
    b64,
    file_of,
    receipts,
)
from oracle import trees


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A receipt, the checkpoint before it, the proof between them."""
    hashes = [trees.leaf(receipt) for receipt in receipts()[1]]
    (tmp_path / "receipt").write_text(json.dumps(file_of(2, 5)), encoding="utf-8")
    (tmp_path / "seen").write_text(trees.note(NAME, 3, trees.tree_of(hashes[:3]), ONE), encoding="utf-8")
    (tmp_path / "hashes").write_text("".join(f"{b64(digest)}\n" for digest in trees.consistency(3, hashes)), encoding="utf-8")
    (tmp_path / "forked").write_text(trees.note(NAME, 3, trees.tree_of(hashes[1:4]), ONE), encoding="utf-8")
    return tmp_path


def test_the_command_says_what_it_has_checked(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(files / "receipt"), "--key", str(KEY)]
    assert check.main(words) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"checked: signature; entry 2 of 5 in {NAME}",
        f"it says: term epoch 2, settlement {DIGEST}",
        "not checked: that this follows from the evidence, which `assay verify` recomputes",
    ]
    assert check.main([*words, "--checkpoint", str(files / "seen"), "--consistency", str(files / "hashes")]) == 0
    assert capsys.readouterr().out.startswith(f"checked: signature; entry 2 of 5 in {NAME}; consistency\n")


def test_the_command_says_what_is_wrong(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    receipt = str(files / "receipt")
    for words, code, why in (
        ([receipt, "--key", str(OTHER)], 1, "refused: receipt: it is not signed by the key"),
        ([receipt, "--key", "nonsense"], 1, "refused: key: "),
        ([receipt, "--key", str(KEY), "--checkpoint", str(files / "forked")], 1, "refused: consistency: "),
        ([str(files / "none"), "--key", str(KEY)], 2, "cannot read: "),
    ):
        assert check.main(words) == code
        printed = capsys.readouterr()
        assert (printed.out, printed.err.startswith(why)) == ("", True), printed.err


def test_the_file_runs_alone(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = files / "check.py"
    copy.write_bytes(Path(check.__file__).read_bytes())
    command = [sys.executable, "-I", str(copy), str(files / "receipt"), "--key", str(KEY)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=files, timeout=120, check=False)
    assert (done.returncode, done.stderr, done.stdout[:8]) == (0, "", "checked:")
    monkeypatch.setattr(sys, "argv", ["check.py", str(files / "receipt"), "--key", str(KEY)])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path(check.__file__, run_name="__main__")


def test_it_imports_nothing_but_python_and_cryptography() -> None:
    tree = ast.parse(Path(check.__file__).read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) == {"cryptography"}


def test_an_error_tells_what_was_expected_and_found() -> None:
    assert str(CheckError("log", "it is wrong")) == "log: it is wrong"
    assert str(CheckError("log", "it is wrong", 1, "x" * 300)) == f"log: it is wrong (expected 1, found {'x' * 200})"
    assert hashlib.sha256().digest() == check.EMPTY_ROOT
