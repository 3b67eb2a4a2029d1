"""What the tests of the containers sandbox share. Time limits are far away, so that a slow machine changes no result."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from assay.judge.sandbox import Box, Limits, Ran
from assay.judge.sandbox.containers import Containers
from assay.judge.sandbox.containers.container import ContainerBox

LIMITS = Limits(seconds=600, memory=256 << 20, processes=64, disk=20 << 20, output=1 << 20, files=20_000)
LONG = "sleep 900"
"""What a command does that must be stopped."""
PATIENCE = 600.0


@dataclass(frozen=True)
class ContainerOutput:
    """How a script ended, and what it printed."""

    ran: Ran
    out: str
    err: str


@dataclass(frozen=True)
class ContainerBench:
    """A box, and a folder of the host."""

    box: ContainerBox
    folder: Path

    def sh(self, script: str, *, stdin: bytes = b"", **limits: int | float) -> ContainerOutput:
        """Runs a shell script, with these limits changed."""
        return sh(self.box, self.folder, script, stdin=stdin, limits=replace(LIMITS, **limits))  # type: ignore[arg-type]

    def python(self, script: str) -> ContainerOutput:
        """Runs a Python script."""
        return sh(self.box, self.folder, script, command=("python3", "-c"))


def sh(
    box: Box, folder: Path, script: str, *, stdin: bytes = b"", limits: Limits = LIMITS, command: tuple[str, ...] = ("sh", "-c")
) -> ContainerOutput:
    """Runs a script in a box."""
    out, err = folder / "stdout", folder / "stderr"
    ran = box.run([*command, script], limits=limits, stdout=out, stderr=err, stdin=stdin)
    return ContainerOutput(ran, out.read_text(errors="replace"), err.read_text(errors="replace"))


def plain(containers: Containers, tmp_path: Path) -> Iterator[ContainerBench]:
    """A new box from the plain image; to be made a fixture."""
    with containers.open(containers.image(), LIMITS) as box:
        yield ContainerBench(box, tmp_path)


def commands(token: str) -> list[str]:
    """The command lines on the host that a token occurs in."""
    lines = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                line = Path("/proc", name, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if token in line:
                lines.append(line)
    return lines


def wait_for(file: Path, text: str) -> None:
    """Until a text is in a file."""
    until = time.monotonic() + PATIENCE
    while not (file.exists() and text in file.read_text(errors="replace")):
        assert time.monotonic() < until, f"{text!r} did not come into {file}"
        time.sleep(0.05)
