"""`code`: 0.7 × the share of tests passed + 0.3 × lint, of the files that a plan's output is. SPEC 2.2.

- The output is one text, which becomes the file that the task names, or an object of paths and texts.
- A test is a command in a box of its own with those files in /app; it is passed if it ends with 0 and prints what it should. What
  it should print never enters the box, so that no program can find it there.
- Lint is 1 − 0.05 for each finding of ruff, whose version the task names: another version would count otherwise.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from assay.errors import BadInput
from assay.exact import NANO, half_even
from assay.judge.sandbox.box import Limits, Sandbox, Trouble
from assay.judge.workflow import limits
from assay.judge.workflow.call.command import box_limits, run_once
from assay.judge.workflow.quality.scored import Scored
from assay.records import Amount
from assay.scheme.fields import Key, Section

__all__ = ["APP", "Case", "Code", "Lint", "check_ruff", "quality", "score"]

APP, TESTS, LINT = "/app", "/tests", "/lint/ruff"
MEMORY_MB = 512
_FINE = 20
"""Findings after which lint is 0."""
_PATH = re.compile(r"(?!/)(?!.*(?:^|/)\.{1,2}(?:/|$))(?!.*//)[A-Za-z0-9_.][A-Za-z0-9_./-]{0,199}(?<!/)", re.ASCII)
_LINT_SECONDS = 60.0
_COMMAND: tuple[str, ...] = (LINT, "check", "--isolated", "--no-cache", "--ignore-noqa", "--exit-zero", "--statistics")
_COMMAND += ("--output-format", "json", "--target-version", "py311")

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.][A-Za-z0-9_./-]{0,199}$")]
Said = Annotated[str, Field(max_length=1_000_000)]
Word = Annotated[str, Field(pattern=r"^[^\x00]*$")]
Rule = Annotated[str, Field(pattern=r"^[A-Z]+[0-9]*$")]


class Case(Section):
    """One test: a command in /app, what it reads, and what it must print; blanks and line ends at the end do not count."""

    name: Key
    command: Annotated[tuple[Word, ...], Field(strict=False, min_length=1, max_length=100)]
    stdin: Said = ""
    stdout: Said
    seconds: Amount = 10 * NANO


class Lint(Section):
    """Which ruff, and which of its rules."""

    ruff: Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+){1,3}$")]
    select: Annotated[tuple[Rule, ...], Field(strict=False, min_length=1, max_length=100)] = ("E", "F", "W")


class Code(Section):
    """`[quality]` of a task of type code."""

    file: Name = "solution.py"
    lint: Lint
    cases: Annotated[tuple[Case, ...], Field(strict=False, min_length=1, max_length=limits.TESTS)]
    criteria: Said = ""


def check_ruff(lint: Lint) -> Path:
    """This environment's ruff; raises BadInput if there is none, or another version than the task names."""
    program = _ruff()
    if program is None:
        raise BadInput("ruff is not installed", hint=f"pip install 'assay[workflow]' ruff=={lint.ruff}")
    found = _version(program)
    if found != lint.ruff:
        what = f"the task wants ruff {lint.ruff}, and {found} is installed"
        raise BadInput(what, field="quality.lint.ruff", hint=f"pip install ruff=={lint.ruff}: another version counts otherwise")
    return program


def score(rules: Code, tests: Path | None, output: Any, sandbox: Sandbox) -> Scored:
    """The quality of an output; tests: a folder that the commands see at /tests. Raises Trouble."""
    files = _files(output, rules.file)
    if isinstance(files, str):
        return Scored(0, {"note": files})
    with tempfile.TemporaryDirectory(prefix="assay-code-") as made:
        app = Path(made) / "app"
        for path, text in files.items():
            place = app / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(text.encode())
        put = {APP: app} | ({} if tests is None else {TESTS: tests})
        said = [_passed(case, put, sandbox) for case in rules.cases]
        found = _findings(rules.lint, app, sorted(path for path in files if path.endswith(".py")), sandbox)
    passed = said.count("passed")
    how: dict[str, Any] = {
        "tool": f"ruff {rules.lint.ruff}",
        "select": list(rules.lint.select),
        "cases": {case.name: word for case, word in zip(rules.cases, said, strict=True)},
        "findings": found,
    }
    return Scored(quality(passed, len(said), _FINE if found is None else found), how)


def quality(passed: int, tests: int, findings: int) -> int:
    """0.7·passed/tests + 0.3·max(0, 1 − 0.05·findings) in nanos, half to even, rounded once. SPEC 2.2."""
    clean = max(0, _FINE - findings)
    return half_even(NANO * (140 * passed + 3 * clean * tests), 200 * tests)


def _files(output: Any, name: str) -> dict[str, str] | str:
    """The files that an output stands for; or why it stands for none."""
    files = {name: output} if isinstance(output, str) else output
    if not isinstance(files, dict) or not files or len(files) > limits.CODE_FILES:
        return f"neither a text nor an object of 1 to {limits.CODE_FILES} texts"
    for path, text in files.items():
        if not isinstance(text, str) or _PATH.fullmatch(path) is None:
            return "an object with something else than relative paths and texts"
    return "a path that is a file and a folder" if _nested(files) else files


def _nested(files: dict[str, str]) -> bool:
    folders = {"/".join(parts[:end]) for path in files for parts in [path.split("/")] for end in range(1, len(parts))}
    return bool(folders & files.keys())


def _passed(case: Case, put: dict[str, Path], sandbox: Sandbox) -> str:
    bounds = box_limits(case.seconds / NANO, MEMORY_MB, limits.OUTPUT_BYTES)
    ran, data = run_once(
        sandbox,
        sandbox.image(),
        case.command,
        bounds,
        stdin=case.stdin.encode(),
        put=put,
        env={},
        cwd=APP,
        most=limits.OUTPUT_BYTES,
    )
    if ran.stopped is not None:
        return f"bound on {ran.stopped}"
    if ran.exit_code:
        return f"exit code {ran.exit_code}"
    return "passed" if data.rstrip() == case.stdout.encode().rstrip() else "another output"


def _findings(lint: Lint, app: Path, names: list[str], sandbox: Sandbox) -> int | None:
    """How much ruff finds in the Python files; None if it did not come to an end, which is theirs."""
    if not names:
        return 0
    command = (*_COMMAND, "--select", ",".join(lint.select), "--", *names)
    bounds = Limits(_LINT_SECONDS, MEMORY_MB << 20, 64, 256 << 20, limits.OUTPUT_BYTES)
    ran, data = run_once(
        sandbox,
        sandbox.image(),
        command,
        bounds,
        stdin=b"",
        put={APP: app, LINT: check_ruff(lint)},
        env={"RAYON_NUM_THREADS": "2"},
        cwd=APP,
        most=limits.OUTPUT_BYTES,
    )
    if ran.stopped is not None:
        return None
    if ran.exit_code:
        raise Trouble(f"ruff ended with {ran.exit_code}")
    try:
        return sum(int(row["count"]) for row in json.loads(data or b"[]"))  # it prints nothing where it finds nothing
    except (ValueError, TypeError, KeyError):
        raise Trouble("what ruff found cannot be read") from None


@cache
def _ruff() -> Path | None:
    beside = Path(sys.executable).with_name("ruff")
    found = str(beside) if beside.is_file() else shutil.which("ruff")
    return None if found is None else Path(found)


@cache
def _version(program: Path) -> str:
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60, check=True).stdout.split()
    except (OSError, subprocess.SubprocessError) as error:
        raise Trouble(f"ruff does not start: {error}", file=program) from error
    return said[1] if len(said) > 1 else ""
