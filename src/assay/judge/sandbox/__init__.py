"""Runs untrusted commands in boxes with enforced limits: bubblewrap by default, containers on request. SPEC 2.1.

- A box has its own root file system. It sees no file and no process of the host, has no privileges, and no network. A `door` is
  the only way out: it leads to one socket of the host.
- Every command has limits on time, memory, processes, disk and output. Reaching one stops the command, and `Ran` says which.
- After a command, and after a box is closed, none of its processes is alive.
- A failure of the infrastructure raises `InfrastructureError`. The trial becomes an error and is never scored as a failure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, Protocol

from assay.errors import AssayError, BadInput, check_linux

__all__ = [
    "NAMES",
    "Bound",
    "Box",
    "Image",
    "InfrastructureError",
    "Limits",
    "Ran",
    "Sandbox",
    "check_docker",
    "choose",
]


Bound = Literal["time", "memory", "processes", "disk", "output"]


class InfrastructureError(AssayError):
    """The sandbox, the host or an image failed. The trial is an error: it says nothing about the participant, and is retried."""


@dataclass(frozen=True)
class Limits:
    """The limits of one command, one for each resource."""

    seconds: float
    """Wall-clock time."""
    memory: int
    """Bytes, for all its processes and its files in memory together."""
    processes: int
    """Processes and threads at one time."""
    disk: int
    """Bytes written in the box."""
    output: int
    """Bytes of stdout and stderr together. Output beyond this is dropped, and stops the command."""
    files: int = 200_000
    """Files and folders in the box."""
    cpus: float | None = None
    """Cores, if the sandbox can limit them."""


@dataclass(frozen=True)
class Image:
    """The root file system that a box starts from, and the digest that names it in the evidence."""

    digest: str
    """`sha256:…` of the root file system. For the host's /usr: of the names of the distribution and its packages."""
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/app"


@dataclass(frozen=True)
class Ran:
    """The result of a command. Either `exit_code` or `stopped` is set, and the other is None."""

    exit_code: int | None
    """0 … 255. A command that signal n ended has 128 + n."""
    stopped: Bound | None
    """The limit that the command reached."""
    wall_seconds: float
    cpu_seconds: float
    peak_memory: int
    """Bytes; 0 if the sandbox does not know."""
    output_dropped: int = 0
    """Bytes of output beyond the limit, which are lost."""


class Box(Protocol):
    """An isolated environment that runs commands one after another. Files stay from one command to the next; processes do not."""

    def run(
        self,
        command: Sequence[str],
        *,
        limits: Limits,
        stdout: Path,
        stderr: Path,
        stdin: bytes | int = b"",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        door: Path | None = None,
    ) -> Ran:
        """Runs a command until it ends or reaches a limit, then kills everything it started. Raises InfrastructureError.

        stdin: bytes, or an open descriptor, such as a pipe, that the command reads to its end; it stays the caller's.
        stdout, stderr: files on the host; together they hold at most `limits.output` bytes. cwd: in the box; the image's workdir
        by default. door: a Unix socket of the host, which `127.0.0.1:8080` in the box leads to; None: no network at all.
        """

    def put(self, source: Path, inside: str, *, mode: int | None = None) -> None:
        """Copies a file or folder of the host to an absolute path in the box, and replaces what is there.

        Raises InfrastructureError.
        """

    def fresh(self, inside: str) -> None:
        """Replaces whatever is at a path in the box, a link or mount too, with a new empty folder. Raises InfrastructureError."""

    def take(self, inside: str, target: Path, *, most_bytes: int, most_files: int) -> bool:
        """Copies a file or folder out of the box to a path on the host that must not exist; False if the box has no such file.

        Only plain files, folders and links that stay inside are copied; links stay links and are never followed; devices, FIFOs
        and sockets are skipped. Raises `tree.TooMuch` above the limits, and InfrastructureError.
        """


class Sandbox(Protocol):
    """Makes boxes."""

    name: str
    """"bubblewrap" or "containers"."""

    def describe(self) -> str:
        """One line for people: the program, its version, and how limits are enforced (cgroup v2, v1, or by counting)."""

    def image(
        self, environment: Path | None = None, *, name: str = "", limits: Limits | None = None, any_base: bool = False
    ) -> Image:
        """The image that a task starts from: built from `environment/Dockerfile`, or the image `name`, or the default image.

        limits: of a build. any_base: any root file system may stand in for the named image if this sandbox does not have it.
        Raises BadInput for a Dockerfile that it cannot build and for an image that it does not have, and InfrastructureError.
        """

    def open(self, image: Image, limits: Limits) -> AbstractContextManager[Box]:
        """A new box that starts from an image. Raises InfrastructureError.

        After it is closed, no process, mount, control group or file of it remains. Files may be deleted in the background.
        """

    def freeze(self, box: Box) -> AbstractContextManager[Image]:
        """A copy of everything in a box as an image, deleted when the context ends.

        Raises InfrastructureError and `tree.TooMuch`.
        """

    def sweep(self) -> int:
        """Removes what dead runs of Assay left on this machine, and returns how many items. Never touches a living run."""


NAMES = ("bubblewrap", "containers")


def choose(
    name: str = "bubblewrap",
    *,
    folder: Path | None = None,
    engine: str | None = None,
    runtime: str | None = None,
    reuse: bool = False,
) -> Sandbox:
    """The sandbox with this name.

    Raises BadInput for an unknown name or an option that the sandbox does not have, and InfrastructureError.

    folder: where bubblewrap keeps its boxes. engine: the container engine's socket, as unix:///…. runtime: the runtime of
    containers. reuse: bubblewrap may reuse the folder of an earlier box.
    """
    check_linux("a sandbox")
    if name == "bubblewrap":
        for option, value in (("engine", engine), ("runtime", runtime)):
            if value:
                raise BadInput("only containers have one", field=f"--{option}", hint="add --sandbox containers")
        from assay.judge.sandbox.bubblewrap import Bubblewrap

        return Bubblewrap(folder=folder, reuse=reuse)
    if name == "containers":
        if reuse:
            raise BadInput("every container is new", field="--reuse-boxes", hint="leave it out")
        check_docker()
        from assay.judge.sandbox.containers import Containers

        return Containers(engine, runtime=runtime)
    raise BadInput(f"there is no sandbox {name!r}", hint=f"choose one of {', '.join(NAMES)}")


def check_docker() -> None:
    """Raises BadInput if the Python package docker is missing; `assay.judge.sandbox.containers` can only be imported with it."""
    if find_spec("docker") is None:
        raise BadInput("the containers sandbox needs the Python package docker", hint="pip install 'assay[containers]'")
