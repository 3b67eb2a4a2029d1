"""The service of systemd: what it starts is a command that there is, and systemd itself finds nothing wrong with it."""

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from cli_kit import output

ROOT = Path(__file__).parents[2]
SERVICE = ROOT / "deploy" / "systemd" / "assay-publish.service"


def test_it_starts_a_watch_with_options_that_there_are() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(SERVICE.read_text(encoding="utf-8").replace("\\\n", ""))
    program, command, *words = shlex.split(unit["Service"]["ExecStart"])
    assert (program, command) == ("/opt/assay/bin/assay", "publish")
    assert {"--watch", "--yes", "--metrics", "--page", "--alarm"} <= set(words)
    known = set(re.findall(r"--[a-z-]+", output("publish", "--help")))
    assert {word for word in words if word.startswith("--")} <= known
    written = [word for word in words if word.startswith("/")]
    assert all(word.startswith(f"{unit['Service']['ReadWritePaths']}/") for word in written)
    assert (unit["Service"]["SuccessExitStatus"], unit["Service"]["RestartPreventExitStatus"]) == ("3", "2")
    assert unit["Service"]["MemoryMax"].endswith("G")


def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not there")
    copy = tmp_path / SERVICE.name
    copy.write_text(SERVICE.read_text(encoding="utf-8").replace("/opt/assay/bin/assay", "/bin/true"), encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).splitlines()
    assert [line for line in lines if SERVICE.stem in line] == []  # what it finds wrong with the machine's own is not ours
