"""The parts that all routes share: problems (RFC 9457), answers with ETags and compression, and bodies with bounds."""

from __future__ import annotations

import asyncio
import gzip
import os
import re
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from functools import cached_property
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import zstandard
from pydantic import BaseModel, ConfigDict
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from assay.errors import AssayError, BadInput, CannotSettle, Refused, Unreachable, printable
from assay.exact import canonical
from assay.ledger.store import StoreError
from assay.serve.signed import SignedRequest, check_request

if TYPE_CHECKING:
    from assay.ledger.keys import PublicKey
    from assay.serve.site import ServedCompetition

__all__ = [
    "JSON",
    "PROBLEMS",
    "Hashed",
    "HttpProblem",
    "KeyTurns",
    "Readers",
    "answer",
    "extend",
    "known_tag",
    "look",
    "of_operator",
    "problem",
    "signed",
    "status_of",
    "words",
]

Name = TypeVar("Name")

JSON = "application/json"
PROBLEM = "application/problem+json"
_TEXT = re.compile("text/|application/(json|xml|problem|atom|x-ndjson)|image/svg")
PACKED_FROM = 1024
"""Answers of at least so many bytes are compressed."""
PACKED_HERE = 65_536
"""Answers of more bytes than this are compressed in a thread."""
PACKED_BYTES = 32 * 2**20
"""Bytes of compressed answers that stay in memory."""
READERS = 8
"""The number of threads that look things up for clients that only read."""
READERS_WAITING = 64
"""The number of requests that may wait for such a thread; others are refused until later."""
RETRY_SECONDS = 5
"""After so many seconds a client may try again what a busy service refused."""


class HttpProblem(AssayError):
    """A request that the service refuses: an HTTP status, and the sentences that a command of Assay would print."""

    def __init__(
        self, status: int, what: str, *, hint: str = "", field: str = "", stage: str = "", retry: int | None = None
    ) -> None:
        super().__init__(what, hint=hint, field=field, stage=stage)
        self.status, self.retry = status, retry
        self.headers: Mapping[str, str] = {}
        """Further headers of the answer."""


def problem(error: AssayError, *, folder: Path | None = None) -> Response:
    """An error as RFC 9457 has it. folder: what is cut off from file names, since a stranger need not know where they are."""
    status, retry = status_of(error)
    where, what, hint = words(error, folder)
    document: dict[str, Any] = {
        "type": f"urn:assay:problem:{error.reason_code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": printable(what),
    }
    if hint:
        document["hint"] = printable(hint)
    if where:
        document["where"] = printable(where)
    headers = {"Cache-Control": "no-store"} | ({} if retry is None else {"Retry-After": str(retry)})
    if isinstance(error, HttpProblem):
        headers |= error.headers
    return Response(canonical(document), status, headers, PROBLEM)


def words(error: AssayError, folder: Path | None = None) -> tuple[str, str, str]:
    """The location of an error, what is wrong and what to do, as strangers may read it. folder: see `problem`."""
    where, what, hint = error.where, _without_place(error), error.hint
    if folder is not None:
        where, what, hint = (text.replace(f"{folder}/", "").replace(str(folder), "DIR") for text in (where, what, hint))
    return "" if os.path.isabs(where) or "://" in where else where, what, hint


class ProblemDocument(BaseModel):
    """A problem document of RFC 9457, with the same sentences as the command line."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:assay:problem:cannot-settle",
                    "title": "Not Found",
                    "status": 404,
                    "detail": "epoch 13 is not settled: the last one settled is 12",
                    "hint": "the list of epochs has those that are",
                }
            ]
        }
    )

    type: str
    title: str
    status: int
    detail: str
    hint: str = ""
    where: str = ""


PROBLEMS: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "A problem document (RFC 9457)",
        "content": {PROBLEM: {"schema": ProblemDocument.model_json_schema()}},
    }
}
"""The answers that every route may give instead, for OpenAPI."""


async def signed(
    request: Request, served: ServedCompetition, whose: Callable[[PublicKey], Name], *, spend: bool = True
) -> tuple[Name, SignedRequest]:
    """Return who signed a request, and its signature, whose nonce is used up now. whose: key → name, or it raises.

    spend: False if the caller uses the nonce up, because it must see first whether anything of a stranger is to be written.

    The body is not read here: hand `body_sha256` to `receive`. Raises BadInput (401), HttpProblem (403, 409 for a replay, 429 if
    the key has too many requests that are not yet answered).
    """
    query = request.scope["query_string"]
    path = request.scope.get("raw_path") or request.scope["path"].encode()
    url = request.state.address + path.decode("latin-1") + (f"?{query.decode('latin-1')}" if query else "")
    method = getattr(request.state, "method", request.method)  # HEAD is answered as GET is
    asked = check_request(method, url, request.headers)
    request.state.turns.take(asked.key)

    def enter() -> Name:
        name = whose(asked.key)
        request.state.signer = asked.key
        if spend:
            served.spend(asked)
        return name

    return await run_in_threadpool(enter), asked


KEY_REQUESTS = 16
"""Signed requests of one key that one process answers at a time."""


class KeyTurns:
    """The requests of each key that are being answered: `count` for a process, and what one request took, to give it back."""

    def __init__(self, count: Counter[PublicKey]) -> None:
        self._count = count
        self._taken: list[PublicKey] = []

    def take(self, key: PublicKey) -> None:
        """Begin a request of a key. Raises HttpProblem (429) if it has too many."""
        if self._count[key] >= KEY_REQUESTS:
            what = f"{key.id} has {KEY_REQUESTS} requests that are not yet answered"
            raise HttpProblem(429, what, hint="wait for their answers", stage="turn", retry=1)
        self._count[key] += 1
        self._taken.append(key)

    def give_back(self) -> None:
        """The request is over."""
        for key in self._taken:
            self._count[key] -= 1
            if not self._count[key]:
                del self._count[key]
        self._taken.clear()


def status_of(error: AssayError) -> tuple[int, int | None]:
    """Return the HTTP status of an error, and after how many seconds to try again."""
    if isinstance(error, HttpProblem):
        return error.status, error.retry
    if isinstance(error, StoreError | Unreachable):
        return 503, RETRY_SECONDS
    if isinstance(error, CannotSettle):
        return 404, None
    if error.stage == "signature":
        return 401, None
    if of_operator(error):
        return 503, RETRY_SECONDS
    return (409 if isinstance(error, Refused) else 400), None


def _without_place(error: AssayError) -> str:
    """Return what is wrong, without the database's own words in brackets: they name hosts, users and paths."""
    return error.what.partition(" (")[0] if isinstance(error, StoreError) else error.what


def of_operator(error: AssayError) -> bool:
    """Whether an error is about a file or a database of the service: its operator can correct it, and no client can."""
    file = error.file
    return isinstance(error, BadInput) and file is not None and (isinstance(file, Path) or os.path.isabs(file) or "://" in file)


class Hashed(bytes):
    """An answer that is given many times: its digest is computed once."""

    @cached_property
    def digest(self) -> str:
        """The value of the ETag, 32 hex digits."""
        return _digest(self)


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()[:32]


def answer(
    request: Request,
    data: bytes,
    media: str,
    *,
    seconds: int = 0,
    headers: Mapping[str, str] | None = None,
    forever: bool = False,
) -> Response:
    """An answer with an ETag (304 where the client has it), compressed as the client asks. seconds: how long it may be kept.

    forever: what is under this address never changes.
    """
    digest = data.digest if isinstance(data, Hashed) else _digest(data)
    tag = f'W/"{digest}"'
    keep = "public, max-age=31536000, immutable" if forever else f"public, max-age={seconds}" if seconds else "no-cache"
    fields = {"ETag": tag, "Cache-Control": keep, "Vary": "Accept-Encoding"} | dict(headers or {})
    if request.method in ("GET", "HEAD") and known_tag(request, tag):
        return Response(status_code=304, headers=fields)
    encoding = _encoding(request.headers.get("accept-encoding", "")) if len(data) >= PACKED_FROM and _TEXT.match(media) else ""
    if encoding:
        fields["Content-Encoding"] = encoding
        packed = _PACKED.get(digest, encoding)
        if packed is None and len(data) > PACKED_HERE:
            return _Packing(data, digest, encoding, fields, media)
        data = packed or _PACKED.pack(digest, encoding, data)
    return Response(data, 200, fields, media)


def known_tag(request: Request, tag: str) -> bool:
    """Whether the client has what an ETag names (If-None-Match)."""
    known = {given.strip().removeprefix("W/") for given in request.headers.get("if-none-match", "").split(",")}
    return tag.removeprefix("W/") in known or "*" in known


def extend(request: Request, seconds: float) -> None:
    """Give a request that moves many bytes more time than others: so many seconds from now, beside the usual ones."""
    deadline = getattr(request.state, "deadline", None)
    if deadline is not None and (until := deadline.when()) is not None:
        deadline.reschedule(max(until, asyncio.get_running_loop().time() + seconds))


def _encoding(accepted: str) -> str:
    """The compression to use for a header Accept-Encoding; "" for none."""
    names = {}
    for part in accepted.lower().split(","):
        name, _, weight = part.partition(";")
        names[name.strip()] = weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return next((name for name in ("zstd", "gzip") if names.get(name)), "")


class _PackedBodies:
    """Bodies that were compressed, the most recently used last, up to PACKED_BYTES. Threads share it."""

    def __init__(self) -> None:
        self._lock, self._bodies, self._size = threading.Lock(), OrderedDict[tuple[str, str], bytes](), 0

    def get(self, tag: str, encoding: str) -> bytes | None:
        """The body with a tag, compressed, if it is kept."""
        with self._lock:
            packed = self._bodies.get((tag, encoding))
            if packed is not None:
                self._bodies.move_to_end((tag, encoding))
            return packed

    def pack(self, tag: str, encoding: str, data: bytes) -> bytes:
        """Compress a body, and keep it."""
        if encoding == "zstd":
            packed = zstandard.ZstdCompressor(level=9).compress(data)
        else:
            packed = gzip.compress(data, 6, mtime=0)
        with self._lock:
            if (tag, encoding) not in self._bodies:
                self._bodies[tag, encoding] = packed
                self._size += len(packed)
            while self._size > PACKED_BYTES:
                self._size -= len(self._bodies.popitem(last=False)[1])
        return packed


_PACKED = _PackedBodies()


class _Packing(Response):
    """An answer that a thread compresses when it is sent: meanwhile the others are answered."""

    def __init__(self, data: bytes, tag: str, encoding: str, fields: Mapping[str, str], media: str) -> None:
        super().__init__(None, 200, dict(fields), media)
        self._pack = data, tag, encoding, fields, media

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        data, tag, encoding, fields, media = self._pack
        packed = await run_in_threadpool(_PACKED.pack, tag, encoding, data)
        await Response(packed, 200, dict(fields), media)(scope, receive, send)


class Readers:
    """The readers that look something up in a thread: a few at a time, so that threads are left to those who send something.

    Its methods are for one event loop.
    """

    def __init__(self) -> None:
        self._turns, self._waiting = asyncio.Semaphore(READERS), 0

    async def look(self, make: Callable[..., Name], *args: Any) -> Name:
        """Return what `make` returns, or raise what it raises. Raises HttpProblem (429) if too many are waiting."""
        if self._waiting >= READERS_WAITING:
            raise HttpProblem(429, "too much is asked for at once", hint="ask again", retry=2)
        self._waiting += 1
        try:
            await self._turns.acquire()
        finally:
            self._waiting -= 1
        try:
            return await run_in_threadpool(make, *args)
        finally:
            self._turns.release()


async def look(request: Request, make: Callable[..., Name], *args: Any) -> Name:
    """Call `make` in a thread, in the line of those who only read, and return the result. Raises HttpProblem (429)."""
    readers: Readers = request.state.readers
    return await readers.look(make, *args)
