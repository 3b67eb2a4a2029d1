"""The bubblewrap sandbox: boxes made of namespaces, an unprivileged user, and a read-only /usr. SPEC 2.1.

A box is a folder of the host. Every command in it runs in a bubblewrap process of its own, with a control group of its own.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from assay.judge import tree
from assay.judge.sandbox import Box, Image, InfrastructureError, Limits, Ran, cgroups, images, launch, root
from assay.judge.sandbox.images import Images
from assay.judge.sandbox.reuse import BoxFolder, Spares
from assay.judge.sandbox.root import Rooted, first_number
from assay.judge.sandbox.scratch import Scratch, kill_named
from assay.judge.sandbox.supervise import NOT_STARTED, BoxCommand, supervise
from assay.judge.sandbox.usage import SPARE, DiskWatch

__all__ = ["BubbleBox", "Bubblewrap"]

_ANY = tree.Bounds(bytes=1 << 62, files=1 << 62)
"""For a tree whose size was checked before."""
_ROOM = 1 << 30
"""Bytes that a frozen copy may have in addition to what the box's commands wrote."""


@dataclass(frozen=True)
class _Tools:
    """The tools that every box of one sandbox shares."""

    bwrap: launch.Bwrap
    groups: cgroups.Groups
    filter: bytes | None
    spare: int


class Bubblewrap:
    """A `Sandbox`. Any number of threads may use one object."""

    name = "bubblewrap"

    def __init__(
        self,
        *,
        folder: Path | None = None,
        bases: Mapping[str, Path] | None = None,
        bwrap: str | None = None,
        counted: bool = False,
        spare: int = SPARE,
        reuse: bool = False,
    ) -> None:
        """Raises InfrastructureError if bubblewrap is missing, or if there is no usable folder for boxes.

        folder: for boxes, instead of $ASSAY_SCRATCH or /var/tmp/assay-UID. bases: root file systems by the image that each stands
        for. bwrap: path of the program. counted: use no control groups. spare: bytes that must stay free on the disk.
        reuse: a box may get the folder of an earlier box, see `reuse`; otherwise each box has a new folder.
        """
        program = launch.find(bwrap)
        self.scratch = Scratch(folder)
        self.images = Images(self.scratch)
        self.bases = dict(bases or {})
        self._tools = _Tools(program, cgroups.find(counted=counted), launch.program(), spare)
        self._spares = Spares(self.scratch, again=reuse)
        weakref.finalize(self, self._spares.close)
        weakref.finalize(self, self._tools.groups.close)

    def describe(self) -> str:
        """See `Sandbox.describe`."""
        who = f"users {first_number()} and up" if os.geteuid() == 0 else f"user {os.geteuid()}"
        calls = "system calls filtered" if self._tools.filter else "system calls not filtered on this processor"
        return f"{self._tools.bwrap.describe()}; {self._tools.groups.describe()}; boxes run as {who}; {calls}"

    def image(
        self, environment: Path | None = None, *, name: str = "", limits: Limits | None = None, any_base: bool = False
    ) -> Image:
        """See `Sandbox.image`."""
        if name and (base := self.base(name)) is not None:
            return base
        if environment is not None and (environment / "Dockerfile").is_file():
            return images.image(self, environment, limits, any_base=any_base)
        if name and not any_base:
            raise images.unmet(name)
        return root.of_host()

    def base(self, name: str) -> Rooted | None:
        """The root file system for an image: from `bases`, or added on this machine; None if there is none.

        Raises InfrastructureError.
        """
        if name in self.bases:
            return root.of_folder(self.bases[name])
        return images.find(name)

    @contextmanager
    def open(self, image: Image, limits: Limits) -> Iterator[BubbleBox]:
        """See `Sandbox.open`."""
        folder = self._spares.take(image)
        box = BubbleBox(folder, limits, self._tools)
        sound = False
        try:
            folder.begin()
            yield box
            sound = not box.running
        finally:
            try:
                box.close()
            finally:
                if sound:
                    self._spares.give(folder)
                else:
                    folder.close()

    @contextmanager
    def freeze(self, box: Box) -> Iterator[Image]:
        """See `Sandbox.freeze`."""
        if not isinstance(box, BubbleBox):
            raise InfrastructureError("the box belongs to another sandbox")
        with self.scratch.box() as folder:
            yield box.copy(folder / "tree")

    def close(self) -> None:
        """Removes the folder and the control groups of this process. The rest goes when the process ends.

        Raises InfrastructureError.
        """
        self.images.close()
        self._spares.close()
        self.scratch.close()
        self._tools.groups.close()

    def sweep(self) -> int:
        """See `Sandbox.sweep`."""
        return self.scratch.sweep() + self.images.sweep() + cgroups.sweep()


class BubbleBox:
    """A `Box`: a folder of the host, in which each command runs in a bubblewrap of its own."""

    def __init__(self, folder: BoxFolder, limits: Limits, tools: _Tools) -> None:
        self.root = folder.root
        self._box_folder, self._folder, self._owner = folder, folder.folder, folder.owner
        self._limits, self._tools = limits, tools
        self.running = False
        """True if a command runs, or was interrupted so that processes of it may be left."""

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
        """See `Box.run`."""
        where = cwd or self.root.image.workdir
        with _host_errors("the box's files could not be prepared"):
            self.root.prepare()
            if not self.root.is_folder(where):
                return _no_folder(where, limits, stdout, stderr)
            watch = DiskWatch(self.root.path, limits, mend=not self._owner.switched, spare=self._tools.spare)
            programs = self.root.programs()
        tools, counted = self._tools, self._tools.groups.kind == "counted"
        group = tools.groups.make(limits)
        self.running = True
        try:
            with _filter(tools.filter) as calls:

                def line(status: int, gate: int) -> list[str]:
                    own = launch.command_line(
                        tools.bwrap, self.root, command, limits=limits, env=env or {}, cwd=where,
                        status=status, gate=gate, seccomp=calls,
                    )  # fmt: skip
                    before = launch.prefix(
                        tools.bwrap, self._owner, limits, file=watch.most_bytes, counted=counted, doors=group.doors
                    )
                    return [*before, *own]

                ran = supervise(
                    BoxCommand(
                        line, () if calls is None else (calls,), self._folder, self._owner, limits, group, watch, stdin, stdout,
                        stderr, door,
                    )
                )  # fmt: skip
        finally:
            group.close()
        self.running = False
        self._box_folder.ended(watch.held)
        with _host_errors("the root file system was removed while a command ran in it"):
            if self.root.programs() != programs:
                raise InfrastructureError("the root file system was replaced while a command ran in it", file=self.root.image.top)
        return ran

    def put(self, source: Path, inside: str, *, mode: int | None = None) -> None:
        """See `Box.put`."""
        with _host_errors(f"{inside} could not be put into the box"):
            place = self.root.place(inside)
            tree.remove(place)
            try:
                tree.copy(source, place, inside=inside, bounds=_ANY, owner=self._owner.chown)
            except tree.TreeError as error:
                raise InfrastructureError(f"{inside} could not be put into the box: {error}") from error
            if mode is not None:
                os.chmod(place, mode)

    def fresh(self, inside: str) -> None:
        """See `Box.fresh`."""
        with _host_errors(f"{inside} could not be made fresh"):
            self.root.fresh(inside)

    def take(self, inside: str, target: Path, *, most_bytes: int, most_files: int) -> bool:
        """See `Box.take`."""
        beneath = self.root.beneath(inside)
        if beneath is None:
            return False
        bounds = tree.Bounds(most_bytes, most_files)
        with _host_errors(f"{inside} could not be taken out of the box"):
            try:
                tree.copy(self.root.path, target, beneath=beneath, bounds=bounds, inside=inside, mend=not self._owner.switched)
            except (tree.Missing, tree.NotPlain):
                return False
        return True

    def copy(self, target: Path) -> Rooted:
        """Copies everything in the box to a new folder, as an image.

        Raises InfrastructureError, and `tree.TooMuch` if the box's commands left too much.
        """
        bounds = tree.Bounds(4 * self._limits.disk + _ROOM, 2 * self._limits.files)
        image = self.root.image
        with _host_errors("the box could not be copied"):
            try:
                tree.copy(self.root.path, target, bounds=bounds, inside="/", mend=not self._owner.switched)
            except tree.TooMuch:
                self._fits()
                raise
            digest = sha256(f"{image.digest}\n{tree.digest(target, once=True)}\n".encode()).hexdigest()
        return Rooted(f"sha256:{digest}", image.env, image.workdir, image.top, target)

    def _fits(self) -> None:
        """Raises InfrastructureError if the image itself is too large to be copied."""
        if (start := self.root.image.tree) is not None:
            try:
                tree.digest(start, bounds=tree.Bounds(_ROOM, self._limits.files))
            except tree.TooMuch as error:
                raise InfrastructureError(f"the image is too large for a frozen copy: {error.what}", file=start) from None

    def close(self) -> None:
        """Kills the processes that an interrupted command may have left."""
        if self.running:
            kill_named(self._folder)


def _no_folder(where: str, limits: Limits, stdout: Path, stderr: Path) -> Ran:
    """The result of a command whose folder is missing. The command has failed: an earlier one in the box removed the folder."""
    stdout.write_bytes(b"")
    stderr.write_bytes(f"assay: there is no folder {where} to start in\n".encode(errors="replace")[: limits.output])
    return Ran(NOT_STARTED, None, 0.0, 0.0, 0)


@contextmanager
def _filter(program: bytes | None) -> Iterator[int | None]:
    """A descriptor from which bubblewrap reads the filter of system calls; None if there is no filter."""
    if program is None:
        yield None
        return
    number = os.memfd_create("seccomp", os.MFD_CLOEXEC)
    try:
        os.write(number, program)
        os.lseek(number, 0, os.SEEK_SET)
        yield number
    finally:
        os.close(number)


@contextmanager
def _host_errors(what: str) -> Iterator[None]:
    """Turns OSError into InfrastructureError. what: what could not be done."""
    try:
        yield
    except OSError as error:
        raise InfrastructureError(f"{what}: {error.strerror}", file=error.filename) from error
