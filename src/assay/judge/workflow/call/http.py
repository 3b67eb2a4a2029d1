"""A service that is asked by HTTP: one POST, nothing followed, nothing unpacked, no more read than is allowed (`assay.peers`)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.judge.workflow.call.answer import Broken, CallFailed, Denied, Lied, read
from assay.judge.workflow.call.service import Call, Declared
from assay.judge.workflow.services import Http
from assay.peers import NoAnswer, Overrun, Packed, peer

if TYPE_CHECKING:
    from assay.peers.http import Peer

__all__ = ["HttpService", "client", "unreadable"]

_BUSY = frozenset({408, 425, 429})
"""Answers of a service that has no time now: as a server's error, not as a refusal."""
_DENIED = frozenset(range(400, 500)) - _BUSY
_SPARE = 5.0
"""Seconds that a thread has more than who waits for it, who gives up by himself."""


def client(url: str, seconds: float, at: str | None = None) -> Peer:
    """A client that does only what it is told: no proxy of the environment, no redirect, each call on a connection of its own.

    Its connections end with their exchanges. It is not to be closed, since a thread of one that was given up may still be at it.
    at: the address that the host was looked up to be.
    """
    return peer(url, extra="workflow", seconds=seconds + _SPARE, at=at, keep=False)


def unreadable(error: NoAnswer) -> str | None:
    """What is wrong with an answer of which the beginning came; None for one that did not come."""
    if isinstance(error, Packed):
        return "the answer is compressed, and nobody asked for that"
    return f"the answer has {error.why}" if isinstance(error, Overrun) else None


@dataclass(frozen=True)
class HttpService(Declared):
    """An `Asked`."""

    spec: Http
    parallel: int
    _headers: dict[str, str]

    @classmethod
    @asynccontextmanager
    async def open(cls, spec: Http, parallel: int, key: str | None) -> AsyncIterator[HttpService]:
        """Ready to be asked; closed with the context."""
        headers = {"content-type": "application/json", "accept": "application/json"}
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        client(spec.url, 0.0).close()  # what the first connection would load is loaded now
        yield cls(spec, parallel, headers)

    async def ask(self, call: Call) -> bytes:
        """See `Asked`."""
        headers = self._headers | {"idempotency-key": call.step, "assay-attempt": str(call.attempt)}
        most = self.spec.answer_bytes
        try:
            asking = client(self.spec.url, call.seconds)
            answer = await asking.ask_aside("POST", headers=headers, body=call.request, most=most, bodies=_DENIED | {200})
        except NoAnswer as error:
            what = unreadable(error)
            if what is not None and error.head is not None and error.head.status in _DENIED:
                raise Denied(f"the service answered {error.head.status}") from None
            raise Broken(what or f"the service cannot be reached: {error.why}") from None
        if answer.status == 200:
            return answer.body
        if answer.status in _DENIED:
            raise self._denied(answer.status, answer.body)
        raise Broken(f"the service answered {answer.status}")

    def _denied(self, status: int, body: bytes) -> CallFailed:
        """What a 4xx says: its own words, and its cost, if it is written as an answer."""
        try:
            read(body, self.spec.max_cost)
        except (Denied, Lied) as error:
            return error
        except CallFailed:
            pass
        return Denied(f"the service answered {status}")
