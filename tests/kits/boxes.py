"""Boxes for tests: shell scripts run in them, and what came of it."""

import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from assay.judge import tree
from assay.judge.sandbox import Box, Limits, Ran
from assay.judge.sandbox.bubblewrap import Bubblewrap

LIMITS = Limits(seconds=300, memory=256 << 20, processes=64, disk=64 << 20, output=1 << 20, files=20_000)
"""Time is far away: on a busy machine another bound is still met first."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can do this")
STRANGER = 54321
"""A user without rights, and without an entry anywhere."""


@dataclass(frozen=True)
class BoxOutput:
    ran: Ran
    out: str
    err: str


@dataclass
class Shell:
    """Runs scripts in boxes."""

    folder: Path
    limits: Limits = field(default=LIMITS)

    def __call__(
        self,
        box: Box,
        script: str,
        *,
        limits: Limits | None = None,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        door: Path | None = None,
        shell: str = "bash",
    ) -> BoxOutput:
        out, err = self.folder / "stdout", self.folder / "stderr"
        ran = box.run(
            [shell, "-c", script], limits=limits or self.limits, stdout=out, stderr=err, stdin=stdin, env=env, cwd=cwd, door=door
        )
        return BoxOutput(ran, out.read_text(errors="replace"), err.read_text(errors="replace"))


def alive(mark: str) -> list[int]:
    """The host's processes whose command line has this in it."""
    pids = []
    for name in os.listdir("/proc"):
        with suppress(OSError):
            if name.isdigit() and mark.encode() in Path("/proc", name, "cmdline").read_bytes():
                pids.append(int(name))
    return pids


def python_path() -> str:
    """The PYTHONPATH with which a Python started elsewhere finds all that this one finds."""
    return os.pathsep.join(part for part in sys.path if part)


# To be made fixtures, each by the file that wants it.


def scratch() -> Iterator[Path]:
    """A folder for boxes: pytest's own folders are closed to the users that boxes run as."""
    folder = Path(f"/var/tmp/assay-test-{secrets.token_hex(8)}")
    yield folder
    tree.remove(folder)


def either(request: pytest.FixtureRequest, scratch: Path) -> Iterator[Bubblewrap]:
    """The sandbox as this machine has it, and as it is on a machine without control groups."""
    with closing(Bubblewrap(folder=scratch, counted=request.param == "counted")) as sandbox:
        yield sandbox


def sandbox(scratch: Path) -> Iterator[Bubblewrap]:
    with closing(Bubblewrap(folder=scratch)) as sandbox:
        yield sandbox


def sh(tmp_path: Path) -> Shell:
    return Shell(tmp_path)
