"""A service that is a command in the sandbox. It is started for every call, and knows of no other."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from assay.judge.sandbox.box import Image, Limits, Ran, Sandbox, Trouble
from assay.judge.workflow.call.answer import Broken
from assay.judge.workflow.call.service import Call, Declared
from assay.judge.workflow.services import Command

__all__ = ["CommandService", "box_limits", "run_once"]

PLACE = "/service"
_DISK = 256 << 20
_PROCESSES = 128
_ERRORS = 64_000
"""Bytes of stderr that a command may write beside its answer."""


def box_limits(seconds: float, memory_mb: int, output: int) -> Limits:
    """What one command of somebody else's may use."""
    return Limits(
        seconds=seconds, memory=memory_mb << 20, processes=_PROCESSES, disk=_DISK, output=output + _ERRORS, files=20_000
    )


def run_once(
    sandbox: Sandbox,
    image: Image,
    command: tuple[str, ...],
    bounds: Limits,
    *,
    stdin: bytes,
    put: dict[str, Path],
    env: dict[str, str],
    cwd: str | None,
    most: int,
) -> tuple[Ran, bytes]:
    """One command in a box of its own: how it ended, and at most `most` + 1 bytes of its stdout. Raises Trouble."""
    with tempfile.TemporaryDirectory(prefix="assay-call-") as made, sandbox.open(image, bounds) as box:
        for inside, source in put.items():
            box.put(source, inside)
        out = Path(made) / "out"
        ran = box.run(command, limits=bounds, stdout=out, stderr=Path(made) / "err", stdin=stdin, env=env, cwd=cwd)
        try:
            with out.open("rb") as file:
                return ran, file.read(most + 1)
        except OSError as error:
            raise Trouble(f"the output of a command cannot be read: {error.strerror}", file=out) from error


@dataclass(frozen=True)
class CommandService(Declared):
    """An `Asked`."""

    spec: Command
    parallel: int
    _sandbox: Sandbox
    _image: Image
    _folder: Path | None
    _threads: ThreadPoolExecutor

    @classmethod
    @contextmanager
    def open(cls, spec: Command, parallel: int, sandbox: Sandbox, folder: Path) -> Iterator[CommandService]:
        """Ready to be asked. What still runs when the context ends has its own bound on time, and is not waited for."""
        threads = ThreadPoolExecutor(parallel, thread_name_prefix="assay-call")
        place = None if spec.folder is None else folder / spec.folder
        try:
            yield cls(spec, parallel, sandbox, sandbox.image(), place, threads)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)

    async def ask(self, call: Call) -> bytes:
        """See `Asked`."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, call)

    def _run(self, call: Call) -> bytes:
        spec, most = self.spec, self.spec.answer_bytes
        ran, data = run_once(
            self._sandbox,
            self._image,
            spec.command,
            box_limits(call.seconds, spec.memory_mb, most),
            stdin=call.request,
            put={} if self._folder is None else {PLACE: self._folder},
            env={"ASSAY_ATTEMPT": str(call.attempt)},
            cwd=None if self._folder is None else PLACE,
            most=most,
        )
        if ran.stopped is not None:
            raise Broken(f"the service ran into its bound on {ran.stopped}")
        if ran.exit_code:
            raise Broken(f"the service ended with {ran.exit_code}")
        if len(data) > most:
            raise Broken(f"the answer has more than {most} bytes")
        return data
