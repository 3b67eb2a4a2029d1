"""A service that is a Python function which the validator has installed. Each call is a process, which can be stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass

from assay.judge.sandbox.box import Trouble
from assay.judge.workflow.call.answer import Broken
from assay.judge.workflow.call.service import Call, Declared
from assay.judge.workflow.services import Python

__all__ = ["PythonService"]

_CHILD = "assay.judge.workflow.call.child"
_PIECE = 1 << 16


@dataclass(frozen=True)
class PythonService(Declared):
    """An `Asked`."""

    spec: Python
    parallel: int

    async def ask(self, call: Call) -> bytes:
        """See `Asked`."""
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", _CHILD, self.spec.entry),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise Trouble(f"a service's process cannot be started: {error.strerror}") from error
        try:
            return await self._talk(process, call.request)
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # and what it started
            await asyncio.shield(process.wait())

    async def _talk(self, process: asyncio.subprocess.Process, request: bytes) -> bytes:
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(ConnectionError):
            process.stdin.write(request)
            await process.stdin.drain()
            process.stdin.close()
        data = bytearray()
        while part := await process.stdout.read(_PIECE):
            data += part
            if len(data) > self.spec.answer_bytes:
                raise Broken(f"the answer has more than {self.spec.answer_bytes} bytes")
        code = await process.wait()
        if code:
            raise Broken(f"{self.spec.entry} ended with {code}")
        return bytes(data)
