"""Takes an archive in: it comes, a box unpacks it, its files become a submission. Nothing is left half done.

A box begins while the body still comes, if one is free: its start takes as long as the transfer of some megabytes. A client that
is slow loses it, and so holds up nobody. An archive without a box waits for one when its whole body is there.

All workers and hosts share the turns, in the database: how many archives are unpacked on a host, and one of each participant.
"""

from __future__ import annotations

import asyncio
import platform
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from assay.judge import submitting
from assay.ledger.store import StoreError
from assay.serve import uploads
from assay.serve.bodies import declared, receive
from assay.serve.http import HttpProblem
from assay.serve.notebook import Notebook, Upload
from assay.serve.site import ServedCompetition, now
from assay.serve.unpacking import ComingArchive, Withdrawn

__all__ = ["BOXES", "take_archive", "turn"]

BOXES = 2
"""The number of archives of a competition unpacked at once on one host, by all its workers; as many more while they come."""
WAIT_SECONDS = 20.0
"""The seconds that an archive waits for its turn after it came."""
POLL_SECONDS = 0.25
"""After so many seconds a waiting archive looks again whether it is its turn."""
KEEP_SECONDS = 10.0
"""A worker says so often that it still needs the turns that it holds."""

PREPARE_SECONDS = 0.1
"""So long after an upload the box of the next one is begun: the answer is on its way by then."""

EARLY_BYTES = 2**18
"""Bytes of a body from which on a box begins while the body comes."""
EARLY_SECONDS = 10.0
"""So long a box waits for the whole of such a body."""

Result = TypeVar("Result")


async def take_archive(
    request: Request,
    served: ServedCompetition,
    permission: uploads.Permission,
    most: int,
    sha: bytes,
    waiting: asyncio.Semaphore,
) -> Upload:
    """Receive an archive of at most so many bytes, unpack it, and make it a submission.

    waiting: bounds how many uploads of this process ask the database for a box. Raises HttpProblem (429) if no box becomes free,
    and what `receive` and the steps of `uploads` raise.
    """
    async with _staged(served) as files, _begun(request, served, most, files) as early:
        archive = None if early is None else early.archive
        with await receive(request, most, sha, follower=archive) as body:
            if early is None or not await early.finish():
                async with _box(served, waiting):
                    await _to_end(uploads.unpacked, served, body.path(), files)
        upload = await _to_end(uploads.store, served, permission, files)
    asyncio.get_running_loop().call_later(PREPARE_SECONDS, _prepare, served)
    return upload


def _prepare(served: ServedCompetition) -> None:
    with suppress(RuntimeError):  # the service is ending
        asyncio.get_running_loop().run_in_executor(None, uploads.prepare, served)


@asynccontextmanager
async def _box(served: ServedCompetition, waiting: asyncio.Semaphore) -> AsyncIterator[None]:
    """Wait until a box of this host is free. Raises HttpProblem (429) if none becomes free."""
    _, notebook = served.books()
    busy = HttpProblem(429, "too many submissions come at once", hint="send it again later", retry=30)
    until = monotonic() + WAIT_SECONDS
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            await waiting.acquire()
    except TimeoutError:
        raise busy from None
    try:
        async with turn(notebook, _names("box"), until - monotonic()) as mine:
            if not mine:
                raise busy
            yield
    finally:
        waiting.release()


def _names(what: str) -> list[str]:
    return [f"{what} {number} of {platform.node()}" for number in range(BOXES)]


@asynccontextmanager
async def _begun(request: Request, served: ServedCompetition, most: int, files: Path) -> AsyncIterator[_Early | None]:
    """A box that unpacks a body while it comes; None if the body is small, or of unknown size."""
    size = declared(request) or 0
    if not EARLY_BYTES <= size <= most:
        yield None
        return
    early = _Early(ComingArchive(size, EARLY_SECONDS), served, files)
    try:
        yield early
    finally:
        await early.stop()


class _Early:
    """An archive that a box unpacks while it comes, if one is free."""

    def __init__(self, archive: ComingArchive, served: ServedCompetition, files: Path) -> None:
        self.archive = archive
        self._done = asyncio.Event()
        self._unpacking = asyncio.ensure_future(self._unpack(served, files))

    async def _unpack(self, served: ServedCompetition, files: Path) -> None:
        """Raises Withdrawn if no box is free, and what `uploads.unpacked` raises."""
        _, notebook = served.books()
        try:
            async with turn(notebook, _names("early box")) as mine:
                if not mine:
                    raise Withdrawn
                await run_in_threadpool(uploads.unpacked, served, self.archive, files)
                self._done.set()
        finally:
            self.archive.close()

    async def finish(self) -> bool:
        """The archive is whole, and the one that was signed. Return whether it was unpacked; it was not if it came slowly.

        Raises what `uploads.unpacked` raises.
        """
        self.archive.end(whole=True)
        unpacked = asyncio.ensure_future(self._done.wait())
        try:
            await asyncio.wait([self._unpacking, unpacked], return_when=asyncio.FIRST_COMPLETED)
        finally:
            unpacked.cancel()
        if not self._done.is_set():  # else its turn may still be ending
            try:
                self._unpacking.result()
            except Withdrawn:
                return False
        return True

    async def stop(self) -> None:
        """Nobody needs the box any more."""
        self.archive.end(whole=False)
        await _ended(self._unpacking)
        self._unpacking.exception()


@asynccontextmanager
async def _staged(served: ServedCompetition) -> AsyncIterator[Path]:
    """A path for unpacked files that does not exist, in a folder that is removed afterwards."""
    with ExitStack() as stack:
        folder = await _to_end(stack.enter_context, submitting.staging(served.folder))
        try:
            yield folder / "files"
        finally:
            await _to_end(stack.close)


async def _to_end(work: Callable[..., Result], *args: Any) -> Result:
    """Works in a thread to the end, even if the client goes away meanwhile: nothing is left half done."""
    working = asyncio.ensure_future(run_in_threadpool(work, *args))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await _ended(working)
        working.exception()
        raise


async def _ended(working: asyncio.Future[Any]) -> None:
    """Wait until something has ended, however often this is cancelled."""
    while not working.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([working])


@asynccontextmanager
async def turn(notebook: Notebook, names: Sequence[str], wait: float = 0.0) -> AsyncIterator[bool]:
    """Hold one of several turns while the block lasts; False if others hold all of them. wait: seconds to wait for one.

    All workers and hosts share the turns. The turns of a worker that is killed end by themselves.
    """
    holder, until = secrets.token_hex(16), monotonic() + wait

    def take() -> bool:
        return any(notebook.take_turn(name, holder, now()) for name in names)

    keeping = asyncio.create_task(_keep_turns(notebook, holder))
    try:
        while not (mine := await run_in_threadpool(take)) and monotonic() < until:
            await asyncio.sleep(POLL_SECONDS)
        yield mine
    finally:
        keeping.cancel()
        await asyncio.shield(asyncio.ensure_future(run_in_threadpool(_end_turns, notebook, holder)))


async def _keep_turns(notebook: Notebook, holder: str) -> None:
    while True:
        await asyncio.sleep(KEEP_SECONDS)
        with suppress(StoreError):
            await run_in_threadpool(notebook.keep_turns, holder, now())


def _end_turns(notebook: Notebook, holder: str) -> None:
    with suppress(StoreError):  # they end by themselves
        notebook.end_turns(holder)
