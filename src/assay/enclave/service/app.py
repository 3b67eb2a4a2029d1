"""The service over HTTP: JSON in and out, every body bounded in size and time, every refusal a code and a sentence.

    GET  /attestation                 the enclave's keys, and the quote that binds them
    GET  /bounty                      the bounty that it judges
    POST /commitments                 a signed commitment        → what the enclave signs of it
    POST /submissions                 a sealed solution          → what the enclave signs of it
    GET  /submissions/WHO             where a participant, or a commitment, stands
    GET  /status                      counts, troubles, what judging has taken
    GET  /results, /results/sealed    once they are given out
    POST /release                     a receipt and its settlement → the winners' solutions, sealed to the sponsor

A refusal is `{"error": {"code", "what", "hint"}}`. Nothing of a body is ever logged, and no stack trace leaves.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from assay.enclave.rejected import Code, Rejected
from assay.enclave.service.desk import most_sealed
from assay.enclave.service.door import Door
from assay.enclave.service.release import RELEASE_BYTES
from assay.enclave.service.service import Service
from assay.enclave.signed import ENVELOPE_BYTES
from assay.errors import AssayError
from assay.exact import canonical

__all__ = ["BODY_SECONDS", "STATUS", "app_of"]

BODY_SECONDS = 60.0
"""For a body to arrive whole."""
STATUS = {
    Code.MALFORMED: 400,
    Code.TOO_LARGE: 413,
    Code.OTHER_BOUNTY: 409,
    Code.UNKNOWN_PARTICIPANT: 403,
    Code.NO_KEY: 403,
    Code.BAD_SIGNATURE: 403,
    Code.LATE: 410,
    Code.SECOND_COMMITMENT: 409,
    Code.NO_COMMITMENT: 409,
    Code.NOT_OPENED: 422,
    Code.NOT_COMMITTED: 422,
    Code.SECOND_SOLUTION: 409,
    Code.NO_SOLUTION: 422,
    Code.NOT_YET: 409,
    Code.UNKNOWN: 404,
    Code.NO_SPONSOR: 404,
    Code.NOT_SETTLED: 403,
    Code.STARTING: 503,
    Code.BUSY: 503,
    Code.INTERNAL: 500,
}
Asgi = Callable[[Any, Any, Any], Awaitable[None]]


def app_of(service: Service, *, seconds: float = BODY_SECONDS, door: Door | None = None) -> Asgi:
    """The application; seconds: for a body to arrive whole; door: where requests come in. Raises nothing into the server."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    _refusals(app, service.tell)
    most = most_sealed(service.bounty)

    @app.get("/attestation")
    async def attestation() -> Response:
        service.ready()
        return _json(service.attestation)

    @app.get("/bounty")
    async def bounty() -> Response:
        found = service.bounty
        return _json(canonical({"digest": found.digest, "bounty": found.document(), "problem": found.problem}))

    @app.post("/commitments")
    async def commitments(request: Request) -> Response:
        return taken(request, service.commit(await _body(request, ENVELOPE_BYTES, seconds)))

    @app.post("/submissions")
    async def submissions(request: Request) -> Response:
        return taken(request, service.submit(await _body(request, most, seconds)))

    @app.get("/submissions/{who:path}")
    async def about(who: str) -> Response:
        return _json(service.about(who))

    @app.get("/status")
    async def status() -> Response:
        return _json(service.status())

    @app.get("/results")
    async def results() -> Response:
        return _json(service.given_out().data)

    @app.get("/results/sealed")
    async def sealed() -> Response:
        return _json(service.sealed_results())

    @app.post("/release")
    async def release(request: Request) -> Response:
        return taken(request, service.release(await _body(request, RELEASE_BYTES, seconds)))

    def taken(request: Request, data: bytes) -> Response:
        """What came is worth something, so room is kept for who sent it."""
        if door is not None:
            door.welcome(request.scope["state"]["guest"], data)
        return _json(data)

    return _guarded(app if door is None else door.app(app, _busy))


async def _busy(scope: Any, receive: Any, send: Any) -> None:
    await _error(Rejected(Code.BUSY, "too much is asked at once", hint="try again"))(scope, receive, send)


def _refusals(app: FastAPI, tell: Callable[[str], None]) -> None:
    """How what is raised is answered. Of a trouble of ours its kind is told, and which file it is in: not what it says."""

    async def rejected(_: Request, error: Exception) -> Response:
        assert isinstance(error, Rejected)
        return _error(error)

    async def http(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _error(Rejected(Code.UNKNOWN, "there is no such thing here", hint="see docs/enclave.md"), error.status_code)

    async def internal(_: Request, error: Exception) -> Response:
        tell(f"internal trouble: {type(error).__name__} {getattr(error, 'file', None) or ''}".rstrip())
        return _error(Rejected(Code.INTERNAL, "the enclave is in trouble; nothing was taken", hint="try again later"))

    app.add_exception_handler(Rejected, rejected)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(AssayError, internal)
    app.add_exception_handler(Exception, internal)


def _error(error: Rejected, status: int | None = None) -> Response:
    told = {"code": error.code.value, "what": error.what, "hint": error.hint}
    return _json(canonical({"error": told}), status or STATUS[error.code])


def _json(data: bytes, status: int = 200) -> Response:
    return Response(data, status, media_type="application/json", headers={"Cache-Control": "no-store"})


async def _body(request: Request, most: int, seconds: float) -> bytes:
    """The body, whole; raises Rejected if it is too large or too slow."""
    said = request.headers.get("content-length", "")
    if re.fullmatch("[0-9]+", said, re.ASCII) and (len(said) > 18 or int(said) > most):
        raise Rejected(Code.TOO_LARGE, f"this is larger than {most} bytes")
    found = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for piece in request.stream():
                found += piece
                if len(found) > most:
                    raise Rejected(Code.TOO_LARGE, f"this is larger than {most} bytes")
    except TimeoutError:
        raise Rejected(Code.BUSY, f"the request did not arrive whole within {seconds:g} seconds", hint="try again") from None
    except ClientDisconnect:
        raise Rejected(Code.BUSY, "the request did not arrive whole", hint="try again") from None
    return bytes(found)


def _guarded(app: Asgi) -> Asgi:
    """The application so that no error comes out of it: what it says may be in a server's log."""

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        try:
            await app(scope, receive, send)
        except Exception:  # noqa: BLE001  (it was answered, and its kind told)
            return

    return guarded
