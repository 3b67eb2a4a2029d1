"""A service that is asked by HTTP: one POST, nothing followed, nothing unpacked, no more read than is allowed."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from assay.judge.workflow.call.answer import Broken, CallFailed, Denied, Lied, read
from assay.judge.workflow.call.service import Call, Declared
from assay.judge.workflow.libraries import library
from assay.judge.workflow.services import Http

if TYPE_CHECKING:
    import httpx

__all__ = ["HttpService", "body", "client"]

_BUSY = frozenset({408, 425, 429})
"""Answers of a service that has no time now: as a server's error, not as a refusal."""


def client(url: str) -> httpx.AsyncClient:
    """A client that does only what it is told: no proxy of the environment, no redirect, each call on a connection of its own."""
    loaded = library("httpx")
    library("httpcore")
    bounds = loaded.Limits(max_connections=None, max_keepalive_connections=0)
    verify: ssl.SSLContext | bool = _context() if url.lower().startswith("https:") else False
    made: httpx.AsyncClient = loaded.AsyncClient(
        verify=verify, trust_env=False, timeout=None, follow_redirects=False, limits=bounds
    )
    return made


async def body(response: httpx.Response, most: int) -> bytes:
    """The bytes of an answer; raises Broken above so many, and for bytes that are packed."""
    if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise Broken("the answer is compressed, and nobody asked for that")
    data = bytearray()
    async for part in response.aiter_raw():
        data += part
        if len(data) > most:
            raise Broken(f"the answer has more than {most} bytes")
    return bytes(data)


@dataclass(frozen=True)
class HttpService(Declared):
    """An `Asked`."""

    spec: Http
    parallel: int
    _client: httpx.AsyncClient
    _headers: dict[str, str]

    @classmethod
    @asynccontextmanager
    async def open(cls, spec: Http, parallel: int, key: str | None) -> AsyncIterator[HttpService]:
        """Ready to be asked; closed with the context."""
        headers = {"content-type": "application/json", "accept": "application/json", "accept-encoding": "identity"}
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        async with client(spec.url) as opened:
            await library("anyio").lowlevel.checkpoint()  # what the first connection would load is loaded now
            yield cls(spec, parallel, opened, headers)

    async def ask(self, call: Call) -> bytes:
        """See `Asked`."""
        httpx = library("httpx")
        headers = self._headers | {"idempotency-key": call.step, "assay-attempt": str(call.attempt)}
        try:
            async with self._client.stream("POST", self.spec.url, content=call.request, headers=headers) as response:
                status = response.status_code
                if status == 200:
                    return await body(response, self.spec.answer_bytes)
                if 400 <= status < 500 and status not in _BUSY:
                    raise await self._denied(response)
                raise Broken(f"the service answered {status}")
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise Broken(f"the service cannot be reached: {error or type(error).__name__}") from None

    async def _denied(self, response: httpx.Response) -> CallFailed:
        """What a 4xx says: its own words, and its cost, if it is written as an answer."""
        try:
            read(await body(response, self.spec.answer_bytes), self.spec.max_cost)
        except (Denied, Lied) as error:
            return error
        except CallFailed:
            pass
        return Denied(f"the service answered {response.status_code}")


@cache
def _context() -> ssl.SSLContext:
    return ssl.create_default_context()
