"""The page of measurements: each stands between two marks, under the machine that it was taken on, as it was printed."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("numpy", "pydantic", "typer", "rich", "duckdb", "pyarrow", "sqlalchemy", "cryptography")
PROGRAMS = ("bwrap", "podman")


def put(text: str, name: str, printed: str) -> str:
    """The page with one measurement in its place; raises SystemExit if it has none."""
    begin, end = f"<!-- bench: {name} -->", f"<!-- end of {name} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise SystemExit(f"the page needs the lines {begin} and {end}, once each")
    block = f"{begin}\n```text\n{machine()}\n\n{printed.strip()}\n```\n{end}"
    return re.sub(f"{re.escape(begin)}.*?{re.escape(end)}", lambda _found: block, text, flags=re.DOTALL)


def machine() -> str:
    """The machine and the day of the measurement, in three lines."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    first = (
        f"{datetime.now(UTC):%Y-%m-%d}, {_processor()}, {cores} cores, {memory:.0f} GiB; {_system()}, Linux {platform.release()}"
    )
    packages = ", ".join(f"{name} {text}" for name in PACKAGES if (text := _version(name)))
    programs = ", ".join(text for name in PROGRAMS if (text := _said(name)))
    return "\n".join(line for line in (first, f"Python {platform.python_version()}; {packages}", programs) if line)


def _processor() -> str:
    named = re.search(r"^model name\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.MULTILINE)
    return f"{named[1].strip() if named else 'processor'} ({platform.machine()})"


def _system() -> str:
    named = re.search(r'^PRETTY_NAME="?([^"\n]+)', _read("/etc/os-release"), re.MULTILINE)
    return named[1] if named else platform.system()


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _said(program: str) -> str:
    """A program with its version, as it names itself; nothing if it is not there."""
    if shutil.which(program) is None:
        return ""
    ran = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return ran.stdout.strip()
