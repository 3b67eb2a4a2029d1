"""Large answers: files that are made once and then streamed, with byte ranges, so that a download that broke off goes on.

    Workshop.file(name, make)  ─▶  a file of its own in DIR/.served, with its SHA-256  ─▶  file_answer  ─▶  206, 304, 416 or 200

Files that can be made again from the ledger or the folder are a cache: the operator may remove `.served` at any time. One thread
makes files, and one draws what takes long, so that strangers who ask for much cannot keep the machine busy with more than that.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
import secrets
import tarfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from assay.errors import BadInput
from assay.judge import tree
from assay.judge.tree.handles import PLAIN, holding, opened
from assay.serve.bodies import BODY_RATE
from assay.serve.http import HttpProblem, extend, known_tag

__all__ = ["DOWNLOADS", "MadeFile", "Workshop", "file_answer", "open_made", "tar_of"]

T = TypeVar("T")

KEPT = 16
"""Files of a competition that are kept; the one that was not asked for longest is removed first."""
WAITING = 64
"""Things that may wait to be made; what is above that is refused until later."""
PATIENCE = 60.0
"""Seconds for which a request waits for what is being made."""
PIECE = 2**18
"""Bytes that are read and sent at once."""
PIECE_SECONDS = 30.0
"""A client must make room for a piece in so many seconds, or it is dropped."""
_RANGE = re.compile("bytes=([0-9]{0,18})-([0-9]{0,18})", re.ASCII)
DOWNLOADS: Mapping[int | str, dict[str, Any]] = {
    206: {"description": "The bytes that the header Range asks for"},
    304: {"description": "The client has it already (If-None-Match)"},
    416: {"description": "The header Range asks for bytes that there are not"},
}
"""The answers that a download may give beside the whole file, for OpenAPI."""


@dataclass(frozen=True)
class MadeFile:
    """A file that was made: where it is, how large, and its SHA-256 (64 hex digits)."""

    path: Path
    size: int
    sha256: str


class Workshop:
    """Makes what takes long, in two threads of its own: one for what is drawn, one for files. For one event loop."""

    def __init__(self) -> None:
        self._drawing = ThreadPoolExecutor(1, thread_name_prefix="drawing")
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="writing")
        self._under_way: dict[object, Future[Any]] = {}

    async def once(self, name: object, make: Callable[[], T]) -> T:
        """Return what `make` returns, or raise what it raises. Callers that ask for the same name meanwhile get the same.

        Raises HttpProblem (503) if it takes long, or if too much is waiting: it goes on, and can be asked for again.
        """
        return await self._once(self._drawing, name, make)

    async def _once(self, thread: ThreadPoolExecutor, name: object, make: Callable[[], T]) -> T:
        future = self._under_way.get(name)
        if future is None:
            if len(self._under_way) >= WAITING:
                raise HttpProblem(503, "too much is being prepared", hint="ask again later", retry=30)
            loop = asyncio.get_running_loop()
            future = self._under_way[name] = thread.submit(make)
            future.add_done_callback(lambda done: _later(loop, self._forget, name, done))
        try:
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), PATIENCE)
        except TimeoutError:
            if future.done():
                raise
            raise HttpProblem(503, "this is being prepared, and takes a while", hint="ask again", retry=10) from None

    def _forget(self, name: object, done: Future[Any]) -> None:
        if self._under_way.get(name) is done:
            del self._under_way[name]

    async def file(self, folder: Path, name: str, make: Callable[[Path], None]) -> MadeFile:
        """The file of this name for a competition, from the cache in its folder, or written by `make` to the path it gets.

        name: `epoch-12.tar`; it must name the content, since what was made once stays. Raises as `made` does, and BadInput.
        """
        place = folder / ".served"
        if (there := await run_in_threadpool(_cached, place, name)) is not None:
            return there
        return await self._once(self._writing, (place, name), lambda: _make(place, name, make))


def _later(loop: asyncio.AbstractEventLoop, act: Callable[..., None], *words: object) -> None:
    """Call a function in an event loop, unless that was closed meanwhile."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(act, *words)


def _cached(place: Path, name: str) -> MadeFile | None:
    """A file that was made before, marked as asked for now."""
    stem, dot, ending = name.rpartition(".")
    for path in place.glob(f"{stem}~*{dot}{ending}"):
        with suppress(OSError):
            os.utime(path)
            return MadeFile(path, path.stat().st_size, path.name[len(stem) + 1 : -len(ending) - 1])
    return None


def _make(place: Path, name: str, make: Callable[[Path], None]) -> MadeFile:
    if (there := _cached(place, name)) is not None:
        return there
    stem, dot, ending = name.rpartition(".")
    beside = place / f".{secrets.token_hex(8)}.tmp"
    try:
        place.mkdir(exist_ok=True)
        make(beside)
        with beside.open("rb") as file:
            digest, size = sha256(), 0
            while piece := file.read(PIECE):
                digest.update(piece)
                size += len(piece)
        path = place / f"{stem}~{digest.hexdigest()}{dot}{ending}"
        beside.replace(path)
        _forget(place)
    except OSError as error:
        raise BadInput(f"cannot be written ({error.strerror})", file=place, hint="check permissions and space") from None
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
    return MadeFile(path, size, digest.hexdigest())


def _forget(place: Path) -> None:
    """Remove the files that were asked for longest ago, above KEPT."""
    dated = []
    for path in place.glob("*~*"):
        with suppress(OSError):
            dated.append((path.stat().st_mtime_ns, path))
    for _, path in sorted(dated, reverse=True)[KEPT:]:
        path.unlink(missing_ok=True)


def tar_of(target: Path, tops: Iterable[tuple[str, Path]]) -> None:
    """Write trees as a tar that is the same for the same files: sorted names, no times, no owners, permissions 644 or 755.

    tops: the name in the archive of a folder or file, and where it is. Links stay links; they are stored, not followed. Raises
    BadInput for devices, FIFOs and sockets, and the errors of `tree.walk`.
    """
    with target.open("xb") as out, closing(tarfile.open(fileobj=out, mode="w:", format=tarfile.PAX_FORMAT)) as archive:
        for top, source in tops:
            for entry in tree.walk(source):
                _add(archive, top if entry.path == "." else f"{top}/{entry.path}" if top else entry.path, entry, source)


def _add(archive: tarfile.TarFile, name: str, entry: tree.Entry, source: Path) -> None:
    info = tarfile.TarInfo(name)
    info.mode = 0o755 if entry.kind in ("exec", "folder") else 0o644
    if entry.kind == "folder":
        if name:
            info.type = tarfile.DIRTYPE
            archive.addfile(info)
    elif entry.kind == "link":
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, entry.target, 0o777
        archive.addfile(info)
    elif entry.kind in ("file", "exec"):
        beneath = "" if entry.path == "." else entry.path
        with holding(source, beneath) as (parent, last), opened(last, PLAIN, parent) as number:
            info.size = os.fstat(number).st_size
            with open(number, "rb", closefd=False) as file:
                archive.addfile(info, file)
    else:
        raise BadInput(f"is a {entry.kind}", file=source / entry.path, hint="only files, folders and links are handed out")


def open_made(file: MadeFile) -> BinaryIO:
    """Open a file to stream it; raises HttpProblem (503) if it was removed from the cache just now."""
    try:
        return file.path.open("rb")
    except FileNotFoundError:
        raise HttpProblem(503, "the file was replaced just now", hint="ask again", retry=1) from None


def file_answer(
    request: Request, file: BinaryIO | bytes, size: int, media: str, tag: str, headers: Mapping[str, str] | None = None
) -> Response:
    """A file, or the part that the header Range asks for (one range), with a strong ETag. It closes the file.

    tag: the digest of the file, for the ETag. Raises HttpProblem (416).
    """
    source = io.BytesIO(file) if isinstance(file, bytes) else file
    etag = f'"{tag}"'
    fields = {"ETag": etag, "Accept-Ranges": "bytes", "Cache-Control": "no-cache"} | dict(headers or {})
    if known_tag(request, etag):
        source.close()
        return Response(status_code=304, headers=fields)
    begin, end, status = 0, size, 200
    asked = _RANGE.fullmatch(request.headers.get("range", "").replace(" ", ""))
    if asked is not None and asked[0] != "bytes=-" and request.headers.get("if-range", etag) == etag:
        first, last = asked.groups()
        begin = int(first) if first else max(0, size - int(last))
        end = min(size, int(last) + 1) if first and last else size
        if begin >= end:
            source.close()
            what = f"the file has {size} bytes, so it cannot give {asked[0]}"
            problem = HttpProblem(416, what, hint="download it from the start")
            problem.headers = {"Content-Range": f"bytes */{size}"}
            raise problem
        status, fields["Content-Range"] = 206, f"bytes {begin}-{end - 1}/{size}"
    fields["Content-Length"] = str(end - begin)
    extend(request, (end - begin) / BODY_RATE)
    return _Streamed(request, source, begin, end - begin, status, fields, media)


class _Streamed(Response):
    """Sends a part of an open file and closes it, also if the client goes away."""

    def __init__(
        self, request: Request, file: BinaryIO, begin: int, count: int, status: int, fields: Mapping[str, str], media: str
    ) -> None:
        super().__init__(None, status, dict(fields), media)
        self._request, self._file, self._begin, self._left = request, file, begin, count
        if getattr(request.state, "method", "GET") == "HEAD":
            self._left = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            self._file.seek(self._begin)
            while self._left > 0:
                piece = await run_in_threadpool(self._file.read, min(PIECE, self._left))
                if not piece or await self._request.is_disconnected():
                    return
                self._left -= len(piece)
                async with asyncio.timeout(PIECE_SECONDS):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            if (guest := getattr(self._request.state, "guest", None)) is not None:
                guest.leave()
                await asyncio.sleep(0)  # so that the server knows
        finally:
            self._file.close()
