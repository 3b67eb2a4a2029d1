"""What a sandbox is, whichever it is: a box to run untrusted commands in, with bounds that hold. SPEC 2.1.

- A box has its own root, no network unless it is given a door, no host file, no host process, no privilege.
- Every command has bounds on time, memory, processes, disk and output; running into one stops it, and `Ran` says which.
- After a command, or when the box is closed, nothing of it is alive.
- Trouble that is not the command's raises `Trouble`: it becomes an ERROR of the trial, never a participant's zero.

Boxes for untrusted commands: bubblewrap by default, containers by choice.

A sandbox by its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from assay.errors import AssayError, BadInput, check_linux

__all__ = ["NAMES", "Bound", "Box", "Image", "Limits", "Ran", "Sandbox", "Trouble", "choose"]


Bound = Literal["time", "memory", "processes", "disk", "output"]


class Trouble(AssayError):
    """The sandbox, the host or an image broke: nobody's fault that is judged. The trial is an ERROR and is tried again."""


@dataclass(frozen=True)
class Limits:
    """What one command may use."""

    seconds: float
    """Wall-clock."""
    memory: int
    """Bytes, of all its processes and its files in memory together."""
    processes: int
    """Processes and threads at one time."""
    disk: int
    """Bytes written in the box."""
    output: int
    """Bytes of stdout and stderr together; what is over is not kept, and stops the command."""
    files: int = 200_000
    """Files and folders in the box."""
    cpus: float | None = None
    """Cores, where the sandbox can bound them."""


@dataclass(frozen=True)
class Image:
    """A root that boxes start from, and the digest that pins it in the evidence."""

    digest: str
    """`sha256:…` of what the box starts from; for the host's /usr, of its description."""
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/app"


@dataclass(frozen=True)
class Ran:
    """How a command ended. Exactly one of `exit_code` and `stopped` is not None."""

    exit_code: int | None
    """0 … 255; a signal n is 128 + n."""
    stopped: Bound | None
    """The bound that it ran into."""
    wall_seconds: float
    cpu_seconds: float
    peak_memory: int
    """Bytes; 0 if the sandbox cannot tell."""
    output_dropped: int = 0
    """Bytes of output that were not kept."""


class Box(Protocol):
    """A place to run commands in, one after the other; its files stay between them, its processes do not."""

    def run(
        self,
        command: Sequence[str],
        *,
        limits: Limits,
        stdout: Path,
        stderr: Path,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        door: Path | None = None,
    ) -> Ran:
        """Runs a command until it ends or meets a bound; then everything it started is dead. Raises Trouble.

        stdout, stderr: host files, written up to `limits.output` together. cwd: inside the box; the image's workdir by default.
        door: a Unix socket of the host through which `127.0.0.1:8080` inside reaches one service; None: no network at all.
        """

    def put(self, source: Path, inside: str, *, mode: int | None = None) -> None:
        """Copies a host file or folder to an absolute path in the box, in place of whatever is there. Raises Trouble."""

    def fresh(self, inside: str) -> None:
        """Makes a path in the box a new empty folder, whatever stood there, links and mounts included. Raises Trouble."""

    def take(self, inside: str, target: Path, *, most_bytes: int, most_files: int) -> bool:
        """Copies a file or folder out of the box to a host path that does not exist yet; False if it is not there.

        Only plain files, folders and links that stay inside are taken; links are kept as links and never followed; devices,
        FIFOs and sockets are left behind. Raises `tree.TooMuch` over the bounds and Trouble for what broke.
        """


class Sandbox(Protocol):
    """A way to make boxes."""

    name: str
    """"bubblewrap" or "containers"."""

    def describe(self) -> str:
        """One line for people: the program, its version, and how bounds are enforced (cgroup v2, v1, or counted)."""

    def image(
        self, environment: Path | None = None, *, name: str = "", limits: Limits | None = None, any_base: bool = False
    ) -> Image:
        """What a task asks to start from: `environment/Dockerfile`, built and kept, or the image called so, or the plain one.

        limits: of a build. any_base: the task says that any root file system will do where the named image cannot be had.
        Raises BadInput for a Dockerfile that this sandbox cannot carry out and for an image that it has not got, and Trouble.
        """

    def open(self, image: Image, limits: Limits) -> AbstractContextManager[Box]:
        """A new box that starts from an image. Raises Trouble.

        Closed, nothing of it is left: process, mount, control group, file; those put aside may still be being removed.
        """

    def freeze(self, box: Box) -> AbstractContextManager[Image]:
        """A frozen copy of everything in a box as an image, gone when the context ends. Raises Trouble, and `tree.TooMuch`."""

    def sweep(self) -> int:
        """Removes what dead runs of Assay on this machine left behind; returns how many things. Never touches a living run's."""


NAMES = ("bubblewrap", "containers")


def choose(
    name: str = "bubblewrap",
    *,
    folder: Path | None = None,
    engine: str | None = None,
    runtime: str | None = None,
    reuse: bool = False,
) -> Sandbox:
    """The sandbox called so. Raises BadInput for another name and for what it has not got, and Trouble.

    folder: where bubblewrap keeps its boxes. engine, runtime: the containers' socket, as unix:///…, and their runtime.
    reuse: let bubblewrap use a box's folder again.
    """
    check_linux("a sandbox")
    if name == "bubblewrap":
        for option, value in (("engine", engine), ("runtime", runtime)):
            if value:
                raise BadInput("bubblewrap has none", field=f"--{option}", hint="say --sandbox containers with it")
        from assay.judge.sandbox.bubblewrap import Bubblewrap

        return Bubblewrap(folder=folder, reuse=reuse)
    if name == "containers":
        if reuse:
            raise BadInput("every container is new", field="--reuse-boxes", hint="leave it out")
        from assay.judge.sandbox.containers import Containers

        return Containers(engine, runtime=runtime)
    raise BadInput(f"there is no sandbox {name!r}", hint=f"choose one of {', '.join(NAMES)}")
