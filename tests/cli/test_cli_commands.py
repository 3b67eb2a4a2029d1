"""The table of commands, from which `assay --help` is printed without importing any of them."""

from __future__ import annotations

import subprocess
import sys

from typer.testing import CliRunner

from assay.cli import app
from assay.cli.commands import COMMANDS, Loaded

JUDGING = (
    *("run", "trial", "trials", "logs", "submit", "tasks:check", "tasks:list", "tasks:pin"),
    *("sandbox:check", "export:harbor", "import:harbor"),
)


def test_a_command_says_of_itself_what_the_list_says() -> None:
    commands = Loaded()
    assert list(commands) == list(COMMANDS)
    for name, command in commands.items():
        assert command.name == name
        assert command.get_short_help_str(limit=200).removesuffix(".") == COMMANDS[name][1].removesuffix(".")


def test_every_command_of_the_judge_is_there() -> None:
    for name in JUDGING:
        done = CliRunner().invoke(app, [*name.split(":"), "--help"], prog_name="assay")
        assert done.exit_code == 0, name
        assert done.output.startswith(f"Usage: assay {name.replace(':', ' ')} ")
        assert "--install-completion" not in done.output


def test_a_wrong_command_is_answered_with_the_right_one() -> None:
    done = CliRunner().invoke(app, ["setle"], prog_name="assay")
    assert done.exit_code == 2
    assert "settle" in done.output


def test_help_imports_no_command() -> None:
    script = (
        "import sys; from assay.cli import app\n"
        "try: app(['--help'], prog_name='assay')\n"
        "except SystemExit: pass\n"
        "print('loaded', sorted(name for name in sys.modules if name.startswith(('assay.', 'pydantic', 'numpy', 'rich'))))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    known = ["assay.characters", "assay.cli", "assay.cli.commands", "assay.cli.errors", "assay.errors"]
    assert done.stdout.splitlines()[-1] == f"loaded {known}"
