"""Writes docs/cli.md from the commands themselves, and fills the console blocks of README and pages with what they print.

    python docs/reference.py            write them again
    python docs/reference.py --check    fail, naming the files, where one is out of date

A console block whose first line begins with `$ assay` or `$ python` is filled: each line that begins with `$ ` is run, what it
prints follows it. Commands run in a folder that shows the repository and belongs to the page, so that `assay init` leaves nothing
behind; key files are there too, in `keys`. The width is 100 columns, so the output is the same everywhere. What a page takes for
granted it prepares in comments, `<!-- $ COMMAND -->`, which are run before its blocks.

    python docs/reference.py --live docs/machines.md    write the output of a page's live blocks again

A live block is a text block whose first line begins with `NAME$ `: machine NAME is a folder of its own, in which `assay` is a
checkout. Digests and keys differ each time and are shown as `…`. Judging needs a sandbox, so a test of its own compares the page.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner

from assay.cli import app

sys.path.append(str(Path(__file__).parent))
import forking

ROOT = Path(__file__).parents[1]
REFERENCE = Path("docs/cli.md")
DATA = {"trials.csv": ROOT.parent / "shared" / "data" / "terminal-bench-core-0.1.1.trials.csv"}
"""Files that commands read and that are too large for the repository; a page that needs one is left alone where it is absent."""
WIDTH = "100"
ENVIRONMENT = {"COLUMNS": WIDTH, "ASSAY_KEYS": "keys", "ASSAY_PASSPHRASE": ""}
BLOCK = re.compile(r"^(```console\n)(\$ (?:assay|python)\b.*?)(^```$)", re.MULTILINE | re.DOTALL)
LIVE = re.compile(r"^(```text\n)([a-z]+\$ .*?)(^```$)", re.MULTILINE | re.DOTALL)
PROMPT = re.compile(r"([a-z]+)\$ (.*)")
NO_FILE = re.compile(r"^(cat|cp|head|mv|rm|sed|tail): .*No such file", re.MULTILINE)
DIFFERING = (
    (re.compile(r"sha256:[0-9a-f]{64}"), "sha256:…"),
    (re.compile(r"(epoch-\d+)-[0-9a-f]{12}"), r"\1-…"),
    (re.compile(r"\+[0-9a-f]{8}\+[A-Za-z0-9+/]{44}"), "+…"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "…"),
    (re.compile(r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "20…Z"),
)
"""What is another each time, and how it is shown."""
TRACEBACK = "Traceback (most recent call last)"
PREPARED = re.compile(r"^<!-- \$ (.*) -->$", re.MULTILINE)
SHELL = re.compile(r"[|<>;&*`]")
SERVER = "github.py"
"""An example's server, whose port is always the same: a command that starts it has a network of its own, see `own_network`."""
HEAD = """# Command line

This page lists every command as `--help` shows it. `python docs/reference.py` makes the page from the commands.

Commands print tables for people on stdout. `--json` prints canonical JSON (RFC 8785) in one line, and `--csv` prints rows.
Warnings and errors go to stderr. On a terminal, long keys are shortened in the middle, and every command that asks for a
participant accepts the short form. If the output is not a terminal, it has no colours, and keys are printed in full.

| exit code | meaning |
|---|---|
| 0 | success |
| 1 | the input is right, but the command could not settle or publish; or a trial, a task, a sandbox or a case failed |
| 2 | the input or the command is wrong; one message says what is wrong, where, and what to do; nothing is written |
| 3 | `assay publish --watch` ended during an alarm |
| 130 | stopped by Ctrl-C; finished work is kept |

`assay --install-completion` lets the shell complete commands, presets and participants.
"""


class Broken(Exception):
    """A command of a page ended with a traceback, or found no file: no page may show that."""


def commands(group: Any = None, path: tuple[str, ...] = ("assay",)) -> Iterator[tuple[str, ...]]:
    """The path of the root, of each group and of each command, in the order of the help."""
    found = typer.main.get_command(app) if group is None else group
    yield path
    for name, inner in getattr(found, "commands", {}).items():
        if not inner.hidden:
            yield from commands(inner, (*path, name))


def reference() -> str:
    """The text of docs/cli.md."""
    parts = [HEAD]
    for path in commands():
        text = _run([*path[1:], "--help"])
        parts.append(f"{'#' * min(len(path) + 1, 4)} {' '.join(path)}\n\n```text\n{text}```\n")
    return "\n".join(parts)


def filled(text: str, cwd: Path) -> str:
    """The text of a page with its console blocks run in a folder, after what it prepares."""
    for found in PREPARED.finditer(text):
        _output(found[1], cwd)
    return BLOCK.sub(lambda found: found[1] + _block(found[2], cwd) + found[3], text)


def live(text: str, place: Path) -> str:
    """The text of a page with its live blocks carried out, each machine in a folder of its own in `place`."""

    def block(found: re.Match[str]) -> str:
        lines = []
        for prompt in filter(None, map(PROMPT.fullmatch, found[2].splitlines())):
            home = place / prompt[1]
            if not home.exists():
                home.mkdir()
                (home / "assay").symlink_to(ROOT)
            output = _output(prompt[2], home)
            for differing, shown in DIFFERING:
                output = differing.sub(shown, output)
            lines += [prompt[0], *(line.rstrip() for line in output.rstrip("\n").splitlines())]
        return found[1] + "".join(f"{line}\n" for line in lines) + found[3]

    return LIVE.sub(block, text)


def _block(content: str, cwd: Path) -> str:
    lines = []
    for line in content.splitlines():
        if line.startswith("$ "):
            lines += [line, *_output(line[2:], cwd).splitlines()]
    return "".join(f"{line}\n" for line in lines)


def _output(command: str, cwd: Path) -> str:
    """What a command prints, errors included; a shell runs those that need one."""
    if SHELL.search(command) or not command.startswith("assay "):
        # In a network of its own `assay` is a process of its own; elsewhere a fork, which does not import everything again.
        first = [] if SERVER in command else [str(forking.folder())]
        path = os.pathsep.join([*first, str(Path(sys.executable).parent), os.environ["PATH"]])
        env = os.environ | ENVIRONMENT | {"PATH": path, "NO_COLOR": "1"}
        words = [*(own_network() if SERVER in command else ()), "bash", "-c", command]
        done = subprocess.run(words, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if TRACEBACK in done.stdout:
            raise Broken(f"`{command}` ended with a traceback:\n{done.stdout}")
        if NO_FILE.search(done.stdout):  # a command before it did not do what the page says
            raise Broken(f"`{command}` found no file:\n{done.stdout}")
        return done.stdout
    before = Path.cwd()
    os.chdir(cwd)
    try:
        return _run(shlex.split(command)[1:])
    finally:
        os.chdir(before)


@functools.cache
def own_network() -> tuple[str, ...]:
    """What to put before a command so that no other program has its ports; nothing where bubblewrap cannot do that."""
    words = ("bwrap", "--dev-bind", "/", "/", "--unshare-net", "--die-with-parent", "--")
    try:
        subprocess.run([*words, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return ()
    return words


def _run(words: list[str]) -> str:
    """What `assay` with these words prints; raises Broken if it raised what no command may raise."""
    result = CliRunner().invoke(app, words, prog_name="assay", env=ENVIRONMENT)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        told = "".join(traceback.format_exception(result.exception))
        raise Broken(f"`{shlex.join(['assay', *words])}` ended with a traceback:\n{told}") from result.exception
    return result.output


def pages(root: Path = ROOT) -> Iterator[Path]:
    """README and every page, but the reference, relative to the root."""
    found = [root / "README.md", *(root / "docs").rglob("*.md"), *(root / "examples").rglob("*.md")]
    yield from sorted(path.relative_to(root) for path in found if path.is_file() and path != root / REFERENCE)


def stale(root: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """Each file that is not what it should be, with what it should be."""
    for page in pages(root):
        text = (root / page).read_text(encoding="utf-8")
        needed = {name: path for name, path in DATA.items() if any(name in block[2] for block in BLOCK.finditer(text))}
        if BLOCK.search(text) and all(path.is_file() for path in needed.values()):
            with tempfile.TemporaryDirectory() as scratch:
                for path in root.iterdir():
                    (Path(scratch) / path.name).symlink_to(path)
                for name, path in needed.items():
                    (Path(scratch) / name).symlink_to(path)
                new = filled(text, Path(scratch))
            if new != text:
                yield page, new
    file, text = root / REFERENCE, reference()
    if not file.is_file() or file.read_text(encoding="utf-8") != text:
        yield REFERENCE, text


def main() -> int:
    """Write what is stale, or with --check name it: 1 if there is any. With --live PAGE, carry its live blocks out.

    1 as well, and nothing is written, where a command of a page is broken.
    """
    try:
        return _main()
    except Broken as error:
        print(f"nothing was written: {error}", file=sys.stderr)
        return 1


def _main() -> int:
    if sys.argv[1:2] == ["--live"]:
        for page in map(Path, sys.argv[2:]):
            with tempfile.TemporaryDirectory() as place:
                text = live(page.read_text(encoding="utf-8"), Path(place))
            page.write_text(text, encoding="utf-8")
        return 0
    check = sys.argv[1:] == ["--check"]
    found = list(stale())
    for page, text in found:
        if check:
            print(f"{page} is out of date: run python docs/reference.py")
        else:
            (ROOT / page).write_text(text, encoding="utf-8")
            print(f"wrote {page}")
    return 1 if check and found else 0


if __name__ == "__main__":
    sys.exit(main())
