"""A wrong clock for a process and its children: the time of day is off by the seconds in a file; time passes as it does.

libfaketime also changes the clock by which programs wait, and Python then hangs or raises EINVAL. This library, which gcc makes
from wrong_clock.c in a moment, changes the time of day alone.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from assay.folder.files import write_text

__all__ = ["WrongClock", "library"]

_SOURCE = Path(__file__).with_name("wrong_clock.c")


def library(folder: Path) -> Path:
    """Make the library in a folder; a machine without gcc skips the test."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("gcc is not installed, which makes the wrong clock of this test: apt-get install gcc libc6-dev")
    file = folder / "wrong_clock.so"
    subprocess.run([gcc, "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", file, _SOURCE], check=True, timeout=300)
    return file


class WrongClock:
    """The clock of one process. file: has the seconds by which it is ahead."""

    def __init__(self, library: Path, file: Path) -> None:
        self._library, self._file = library, file
        self.set(0)

    @property
    def prefix(self) -> list[str]:
        """The words before the command of the process."""
        return ["env", f"LD_PRELOAD={self._library}", f"ASSAY_WRONG_CLOCK={self._file}"]

    def set(self, seconds: int) -> None:
        """Let the clock jump: it is ahead by so many seconds from now on; below 0: behind."""
        write_text(self._file, f"{seconds}\n")
