"""Answers over HTTP that end: of a bounded size and time, and as they are, never unpacked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import httpx

__all__ = ["ANSWER_BYTES", "Bounded"]

ANSWER_BYTES = 8 * 2**20
"""Bytes of one answer."""


@dataclass
class _Body(httpx.SyncByteStream):
    """An answer's body, given up when it is too large or too slow."""

    inner: httpx.SyncByteStream
    until: float

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for piece in self.inner:
            size += len(piece)
            if size > ANSWER_BYTES:
                raise httpx.ReadError(f"more than {ANSWER_BYTES} bytes")
            if time.monotonic() > self.until:
                raise httpx.ReadTimeout("too slow")
            yield piece

    def close(self) -> None:
        self.inner.close()


@dataclass
class Bounded(httpx.BaseTransport):
    """A transport with such answers. seconds: for the body in all."""

    inner: httpx.BaseTransport
    seconds: float

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """One request and its answer; raises httpx's errors."""
        request.headers["Accept-Encoding"] = "identity"
        answer = self.inner.handle_request(request)
        if "content-encoding" in answer.headers:
            answer.close()
            raise httpx.DecodingError("it is packed")
        assert isinstance(answer.stream, httpx.SyncByteStream)
        answer.stream = _Body(answer.stream, time.monotonic() + self.seconds)
        return answer

    def close(self) -> None:
        """Close its connections."""
        self.inner.close()
