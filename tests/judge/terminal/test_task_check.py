"""What `assay tasks check` says: what cannot be loaded, plain hints, and what came of trying each task."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.errors import BadInput
from assay.judge.sandbox import InfrastructureError
from assay.judge.sandbox.bubblewrap import Bubblewrap
from assay.judge.terminal.calibration import Finding, check_tasks, inspect_tasks
from judge_kit import bubblewrap, make_task

CHECK = "exec python3 -I /tests/check.py\n"


def make(tmp_path: Path, script: str = CHECK, *, toml: str = "", dockerfile: str = "FROM base\nWORKDIR /app\n") -> Path:
    """A task about which there is nothing to say, but for what is given."""
    folder = tmp_path / "one"
    for name in ("environment", "solution", "tests"):
        (folder / name).mkdir(parents=True)
    (folder / "task.toml").write_text(toml)
    (folder / "instruction.md").write_text("Write a file.\n")
    (folder / "environment" / "Dockerfile").write_text(dockerfile)
    (folder / "solution" / "solve.sh").write_text("#!/bin/bash\ntouch /app/x\n")
    (folder / "tests" / "test.sh").write_text(f"#!/bin/bash\nset -e\n{script}")
    (folder / "tests" / "check.py").write_text("assert open('/app/x').read() == ''\n")
    (folder / "tests" / "test.sh").chmod(0o755)
    return folder


def rules(tmp_path: Path) -> list[tuple[str, str, int | None]]:
    return [(inspect_task.level, inspect_task.rule, inspect_task.line) for inspect_task in inspect_tasks(tmp_path)[0]]


def test_there_is_nothing_to_say_about_a_good_task(tmp_path: Path) -> None:
    make(tmp_path)
    assert inspect_tasks(tmp_path)[0] == []


CHANGES: list[tuple[str, Callable[[Path], object], tuple[str, str, str]]] = [
    ("no solution", lambda t: (t / "solution" / "solve.sh").unlink(), ("warning", "no-solution", "solve.sh")),
    ("not executable", lambda t: (t / "tests" / "test.sh").chmod(0o644), ("warning", "not-executable", "test.sh")),
    ("no shebang", lambda t: (t / "tests" / "test.sh").write_text(CHECK), ("warning", "no-shebang", "test.sh")),
    (
        "windows",
        lambda t: (t / "tests" / "test.sh").write_bytes(b"#!/bin/bash\r\nexit 1\r\n"),
        ("warning", "line-ends", "test.sh"),
    ),
    (
        "leak",
        lambda t: (t / "environment" / "s").write_bytes((t / "solution" / "solve.sh").read_bytes()),
        ("warning", "leaks", "s"),
    ),
    ("leak", lambda t: (t / "environment" / "s").write_bytes((t / "tests" / "test.sh").read_bytes()), ("warning", "leaks", "s")),
    ("litter", lambda t: (t / "tests" / ".DS_Store").write_text("x"), ("warning", "litter", ".DS_Store")),
    ("empty", lambda t: (t / "tests" / "data").mkdir(), ("warning", "empty-folder", "data")),
]


@pytest.mark.parametrize(("name", "change", "wanted"), CHANGES)
def test_what_is_wrong_with_the_files(
    tmp_path: Path, name: str, change: Callable[[Path], object], wanted: tuple[str, str, str]
) -> None:
    change(make(tmp_path))
    findings = inspect_tasks(tmp_path)[0]
    assert wanted in [(finding.level, finding.rule, finding.file.name) for finding in findings], name
    assert all(finding.do for finding in findings)


@pytest.mark.parametrize(
    ("toml", "wanted"),
    [
        ('[verifier]\nenvironment_mode = "shared"', ("weaker", "verifier.environment_mode", 2)),
        ("[environment]\nmemory_mb = 32", ("small", "environment.memory_mb", 2)),
        ("[environment]\nstorage_mb = 2", ("small", "environment.storage_mb", 2)),
        ("[metadata.assay]\nbaes = 'any'", ("unknown-key", "metadata.assay.baes", 2)),
        ("[agent]\ntimeout_sec = 1", ("small", "agent.timeout_sec", 2)),
        ("[environment]\ncolour = 1", ("unknown-key", "environment.colour", 2)),
        ('[environment]\nnetwork_mode = "public"', ("no-effect", "environment.network_mode", 2)),
        ("[[artifacts]]\nsource = '/data'\ndestination = 'd'", ("no-effect", "artifacts.0.destination", 1)),
        ('[environment.env]\nHOME = "/app"', ("steered", "", None)),
    ],
)
def test_what_is_suspicious_in_the_settings(tmp_path: Path, toml: str, wanted: tuple[str, str, int | None]) -> None:
    make(tmp_path, toml=toml)
    assert [(inspect_task.rule, inspect_task.field, inspect_task.line) for inspect_task in inspect_tasks(tmp_path)[0]] == [wanted]


@pytest.mark.parametrize("line", ["USER me", "ADD https://example.org/x /x", "VOLUME /x"])
def test_what_bubblewrap_cannot_do_in_the_dockerfile(tmp_path: Path, line: str) -> None:
    make(tmp_path, dockerfile=f"FROM base\nWORKDIR /app\n{line}\n")
    assert rules(tmp_path) == [("warning", "containers-only", 3)]


def test_a_task_without_a_work_directory(tmp_path: Path) -> None:
    make(tmp_path, toml="[environment]\ndocker_image = 'x'", dockerfile="FROM x\n")
    assert rules(tmp_path) == [("warning", "no-workdir", None)]


def test_what_cannot_be_loaded_is_a_finding_and_the_others_are_checked_still(tmp_path: Path) -> None:
    make(tmp_path, toml="[environment]\ngpus = 1")
    make(tmp_path / "more")
    os.rename(tmp_path / "more" / "one", tmp_path / "two")
    (tmp_path / "two" / "solution" / "solve.sh").unlink()
    findings = inspect_tasks(tmp_path)[0]
    assert [(finding.level, finding.rule, finding.task) for finding in findings] == [
        ("refused", "refused", "one"),
        ("warning", "empty-folder", "two"),
        ("warning", "no-solution", "two"),
    ]
    assert str(findings[0]) == (
        f"{tmp_path}/one/task.toml:2: environment.gpus: refused [refused] GPUs are not supported; "
        "set gpus = 0, or leave the task out"
    )
    assert findings[0].document()["line"] == 2
    with pytest.raises(BadInput, match="has no tasks"):
        inspect_tasks(tmp_path / "more")


def test_the_same_id_twice_is_a_finding(tmp_path: Path) -> None:
    make(tmp_path / "a")
    make(tmp_path / "b")
    assert [(inspect_task.level, inspect_task.rule) for inspect_task in inspect_tasks(tmp_path / "a", tmp_path / "b")[0]] == [
        ("refused", "twice")
    ]


# What is tried


def test_a_task_that_writes_its_reward_whatever_happened_is_found_because_doing_nothing_passes(tmp_path: Path) -> None:
    make_task(tmp_path / "set" / "right")
    make_task(tmp_path / "set" / "wrong", tests="#!/bin/bash\ngrep -q x /app/x || true; echo 1 > /logs/verifier/reward.txt\n")
    result = check_tasks(tmp_path / "set", sandbox=bubblewrap(), jobs=2)
    wrong = [finding for finding in result.findings if finding.level != "warning"]
    assert [(finding.level, finding.rule, finding.task, finding.what) for finding in wrong] == [
        ("error", "uncalibrated", "wrong", "doing nothing passes its tests")
    ]
    assert "assay trial" in wrong[0].do
    assert (result.right, result.tasks) == (1, 2)
    assert check_tasks(tmp_path / "set", sandbox=bubblewrap()).known == 1


def test_a_published_task_is_judged_by_what_it_does_and_not_by_what_it_looks_like(tmp_path: Path) -> None:
    """As Terminal-Bench 2 has them: a version of its own, a script that fetches and says its verdict in the reward file only."""
    script = """#!/bin/bash
if [ "$PWD" = "/" ]; then echo "Error: No working directory set."; exit 1; fi
grep -qx hello /app/out.txt
if [ $? -eq 0 ]; then echo 1 > /logs/verifier/reward.txt; else echo 0 > /logs/verifier/reward.txt; fi
exit 0
curl -LsSf https://example.org/uv.sh | sh
"""
    task = make_task(tmp_path / "one", tests=script, files={"environment/data.txt": "hello\n", "solution/data.txt": "hello\n"})
    toml = task.folder / "task.toml"
    toml.write_text(toml.read_text().replace('schema_version = "1.0"', 'version = "0.0"'))
    result = check_tasks(tmp_path / "one", sandbox=bubblewrap())
    assert [finding for finding in result.findings if finding.level != "warning"] == []
    assert (result.right, result.tasks) == (1, 1)


def test_an_environment_that_is_not_here_is_named_with_its_place(tmp_path: Path) -> None:
    make_task(tmp_path / "one", base="", dockerfile="FROM ubuntu:24.04\nWORKDIR /app\n")
    findings = [finding for finding in check_tasks(tmp_path / "one", sandbox=bubblewrap()).findings if finding.level == "error"]
    assert [(finding.rule, finding.line, finding.file.name) for finding in findings] == [("environment", 1, "Dockerfile")]
    assert "ubuntu:24.04" in findings[0].what
    assert "assay sandbox base add ubuntu:24.04" in findings[0].do


def test_trouble_is_an_error_of_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: object, **_names: object) -> None:
        raise InfrastructureError("the disk is full", hint="free some space")

    make_task(tmp_path / "one")
    with monkeypatch.context() as patch:
        patch.setattr(Bubblewrap, "image", broken)
        findings: list[Finding] = [
            finding for finding in check_tasks(tmp_path / "one", sandbox=bubblewrap()).findings if finding.level == "error"
        ]
    assert [(finding.rule, finding.what, finding.do) for finding in findings] == [
        ("trouble", "the disk is full", "free some space")
    ]
