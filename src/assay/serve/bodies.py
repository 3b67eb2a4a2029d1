"""Receives the body of a request within bounds: streamed to the disk, hashed by a thread while more of it comes."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import tempfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from starlette.requests import ClientDisconnect, Request

from assay.folder.files import flush_folder
from assay.serve.http import HttpProblem, extend

__all__ = ["Follower", "Received", "declared", "receive"]

SPOOL = 2**20
"""Bytes of a body that stay in memory; the rest goes to the disk."""
PART = 2**19
"""Bytes of a body that are hashed and written at once, by a thread, while more of it comes."""
BODY_RATE = 16_384
"""Bytes a second that a client must send at least, after the first BODY_SECONDS."""
BODY_SECONDS = 20.0


class Received:
    """A body as it came, with its SHA-256; a context manager that removes the temporary file."""

    def __init__(self, file: tempfile.SpooledTemporaryFile[bytes], size: int, digest: bytes) -> None:
        self.file, self.size, self.sha256 = file, size, digest

    def read(self) -> bytes:
        """The whole body."""
        self.file.seek(0)
        return self.file.read()

    def path(self) -> Path:
        """A path under which the body can be opened as long as this is open (Linux)."""
        self.file.rollover()
        self.file.flush()
        return Path(f"/proc/self/fd/{self.file.fileno()}")

    def save(self, place: Path, *, private: bool = False) -> None:
        """Write the body to a file in a folder that exists, whole or not at all, and flush both. Raises OSError.

        private: readable by the service alone.
        """
        beside = place.with_name(f".{secrets.token_hex(8)}.tmp")
        new = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with open(os.open(beside, new, 0o600 if private else 0o666), "wb") as file:
                self.file.seek(0)
                shutil.copyfileobj(self.file, file, 2**20)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(place)
        finally:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
        flush_folder(place.parent)

    def __enter__(self) -> Received:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()


class Follower(Protocol):
    """Somebody who reads a body while it comes."""

    def opened(self, file: int) -> None:
        """The body comes into this file."""

    def grew(self, there: int) -> None:
        """So many bytes are in the file now."""


class _Body:
    """A body that a thread hashes and writes while more of it comes."""

    def __init__(self, follower: Follower | None) -> None:
        self.file: tempfile.SpooledTemporaryFile[bytes] = tempfile.SpooledTemporaryFile(SPOOL)  # noqa: SIM115  (closed by Received)
        self.size, self.hasher, self._follower = 0, sha256(), follower
        self._held, self._written = list[bytes](), 0
        self._writing: asyncio.Future[None] | None = None
        if follower is not None:
            follower.opened(self.file.fileno())

    async def add(self, piece: bytes) -> None:
        """The next bytes. At most two parts are in memory: one is held, one is written."""
        self._held.append(piece)
        self.size += len(piece)
        if self.size - self._written >= PART:
            await self.settle()
            self._part()

    def _part(self) -> None:
        parts, self._held, self._written = self._held, [], self.size
        self._writing = asyncio.get_running_loop().run_in_executor(None, self._write, parts, self.size)

    async def settle(self) -> None:
        """Wait for the thread, also in a task that is cancelled meanwhile. Raises OSError."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
            self._writing.result()

    async def end(self) -> None:
        """Everything has come, and is in the file afterwards. Raises OSError."""
        await self.settle()
        if self.size > PART:
            self._part()
            await self.settle()
        else:
            self._write(self._held, self.size)

    def _write(self, parts: list[bytes], there: int) -> None:
        for part in parts:
            self.hasher.update(part)
            self.file.write(part)
        if self._follower is not None:
            self.file.flush()
            self._follower.grew(there)

    async def drop(self) -> None:
        """Remove the file."""
        with suppress(OSError):
            await self.settle()
        with suppress(OSError):
            self.file.close()


async def receive(request: Request, most: int, sha: bytes | None = None, *, follower: Follower | None = None) -> Received:
    """The body of a request, streamed to a file without a name. most: bytes; sha: the SHA-256 that it must have.

    follower: reads the body while it comes, before its digest is known.

    Raises HttpProblem: 413 if it is larger, 408 if it comes too slowly or not whole, 400 if it is another one than was signed.
    """
    length = declared(request)
    if length is not None and length > most:
        raise HttpProblem(413, f"the body is larger than {most} bytes", hint="send less at once", field="body")
    body, loop = _Body(follower), asyncio.get_running_loop()
    extend(request, 2 * BODY_SECONDS + most / BODY_RATE)
    begun = loop.time()
    pieces = aiter(request.stream())
    try:
        while True:
            left = begun + BODY_SECONDS + body.size / BODY_RATE - loop.time()
            async with asyncio.timeout(max(left, 0.0)):
                piece = await anext(pieces, None)
            if piece is None:
                break
            if body.size + len(piece) > most:
                raise HttpProblem(413, f"the body is larger than {most} bytes", hint="send less at once", field="body")
            await body.add(piece)
        await body.end()
        if sha is not None and body.hasher.digest() != sha:
            what = "the body is not the one that was signed: its digest differs"
            raise HttpProblem(400, what, field="body", hint="send it again")
    except TimeoutError:
        await body.drop()
        raise HttpProblem(408, "the body came too slowly", hint="send it again", field="body") from None
    except ClientDisconnect:
        await body.drop()
        raise HttpProblem(408, "the body did not come whole", hint="send it again", field="body") from None
    except BaseException:
        await body.drop()
        raise
    return Received(body.file, body.size, body.hasher.digest())


def declared(request: Request) -> int | None:
    """The size that a request says its body has; None if it says none."""
    text = request.headers.get("content-length", "")
    return int(text) if re.fullmatch("[0-9]{1,18}", text, re.ASCII) else None
