"""Fixtures for tests of the command line: running it in this process, and competitions to run it on."""

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer.main
from typer.testing import CliRunner

from assay.cli import app

__all__ = ["Json", "command", "commands", "files_under", "from_preset", "narrow", "output", "refused", "run"]

Json = dict[str, Any]
RUNNER = CliRunner()


def run(*words: str | Path, columns: int = 80, code: int | None = 0) -> Any:
    """The result of a command, which must end with the code (None: with 0 or 1); the terminal is `columns` wide."""
    result = RUNNER.invoke(app, [str(word) for word in words], env={"COLUMNS": str(columns)}, prog_name="assay")
    assert result.exit_code in ((0, 1) if code is None else (code,)), f"{result.output}\n{result.exception!r}"
    return result


def commands(group: Mapping[str, Any] | None = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command."""
    for name, inner in _members(group).items():
        if hasattr(inner, "commands"):
            yield from commands(inner.commands, (*path, name))
        else:
            yield (*path, name)


def command(path: tuple[str, ...]) -> Any:
    """The command of these words, as the library of the command line has it."""
    member: Any = None
    for name in path:
        member = _members(None if member is None else member.commands)[name]
    return member


def _members(group: Mapping[str, Any] | None) -> Mapping[str, Any]:
    root: Any = typer.main.get_command(app)
    return root.commands if group is None else group


def output(*words: str | Path, columns: int = 80) -> str:
    """The output of a command that succeeds."""
    text: str = run(*words, columns=columns).stdout
    return text


def narrow(text: str, columns: int = 80) -> bool:
    """Whether every line fits, but for digests, keys, paths and commands to copy, which are never broken."""
    lines = (re.sub(r"\S{60,}|^  assay .*", "", line) for line in text.splitlines())
    return all(len(line) <= columns for line in lines)


def refused(*words: str | Path, code: int = 2) -> str:
    """The one message of a command that ends with the code and prints nothing else; no traceback."""
    result = run(*words, columns=10_000, code=code)
    assert result.stdout == ""
    message: str = result.stderr
    assert message.startswith("error: ")
    assert message.count("\n") == 1, message
    assert "Traceback" not in message
    return message.removeprefix("error: ").rstrip("\n")


def from_preset(place: Path, preset: str = "term-challenge") -> Path:
    """A competition as `assay init` makes it."""
    run("init", "--preset", preset, place)
    return place


def files_under(place: Path) -> dict[str, bytes]:
    """Path → bytes of every file."""
    return {str(path.relative_to(place)): path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}


def records(place: Path) -> list[Json]:
    """The sample evidence of a competition."""
    return [json.loads(line) for line in (place / "evidence/sample.jsonl").read_text(encoding="utf-8").splitlines()]


def with_records(place: Path, records: list[Json]) -> None:
    """Put records in place of the sample."""
    (place / "evidence/sample.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def rewrite(path: Path, old: str, new: str, most: int = -1) -> None:
    """Replace a text that must be in the file; at most so often."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, most), encoding="utf-8")


def copied(source: Path, target: Path) -> Path:
    """A copy of a folder."""
    return Path(shutil.copytree(source, target))
