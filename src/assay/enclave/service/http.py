"""Serves the enclave over HTTP: JSON in and out, bodies bounded in size and time, each refusal with a code and a sentence.

    GET  /attestation                 the enclave's keys, and the quote that binds them
    GET  /bounty                      the bounty that it judges
    POST /commitments                 a signed commitment        → the enclave's signed statement about it
    POST /submissions                 a sealed solution          → the enclave's signed statement about it
    GET  /submissions/WHO             the state of a participant, or of a commitment
    GET  /status                      counts, errors, the cost of judging
    GET  /results, /results/sealed    once they are published
    POST /release                     a receipt and its settlement → the winners' solutions, sealed to the sponsor

A refusal is `{"error": {"code", "what", "hint"}}`. No part of a body is ever logged, and no stack trace leaves the process.

`assay.peers.guard` decides which connections stay.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from assay.enclave.messages import ENVELOPE_BYTES, Rejected, RejectionCode
from assay.enclave.service.intake import sealed_limit
from assay.enclave.service.lifecycle import Service
from assay.enclave.service.results import RELEASE_BYTES
from assay.errors import AssayError
from assay.exact import canonical
from assay.peers.guard import Asgi, ConnectionGuard

BODY_SECONDS = 60.0
"""Seconds in which a body must arrive whole."""
STATUS = {
    RejectionCode.MALFORMED: 400,
    RejectionCode.TOO_LARGE: 413,
    RejectionCode.OTHER_BOUNTY: 409,
    RejectionCode.UNKNOWN_PARTICIPANT: 403,
    RejectionCode.NO_KEY: 403,
    RejectionCode.BAD_SIGNATURE: 403,
    RejectionCode.LATE: 410,
    RejectionCode.SECOND_COMMITMENT: 409,
    RejectionCode.NO_COMMITMENT: 409,
    RejectionCode.NOT_OPENED: 422,
    RejectionCode.NOT_COMMITTED: 422,
    RejectionCode.SECOND_SOLUTION: 409,
    RejectionCode.NO_SOLUTION: 422,
    RejectionCode.NOT_YET: 409,
    RejectionCode.UNKNOWN: 404,
    RejectionCode.NO_SPONSOR: 404,
    RejectionCode.NOT_SETTLED: 403,
    RejectionCode.STARTING: 503,
    RejectionCode.BUSY: 503,
    RejectionCode.INTERNAL: 500,
}


def make_app(service: Service, *, seconds: float = BODY_SECONDS, guard: ConnectionGuard | None = None) -> Asgi:
    """The application. seconds: in which a body must arrive whole; guard: decides which requests stay."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    _refusals(app, service.tell)
    most = sealed_limit(service.bounty)

    @app.get("/attestation")
    async def attestation() -> Response:
        service.ready()
        return _json(service.attestation)

    @app.get("/bounty")
    async def bounty() -> Response:
        bounty = service.bounty
        return _json(canonical({"digest": bounty.digest, "bounty": bounty.document(), "problem": bounty.problem}))

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
        """The answer to an accepted request, whose sender gets reserved requests."""
        if guard is not None:
            guard.welcome(request.scope["state"]["guest"], data)
        return _json(data)

    return _guarded(app if guard is None else guard.app(app, _answer_busy))


async def _answer_busy(scope: Any, receive: Any, send: Any) -> None:
    await _error(Rejected(RejectionCode.BUSY, "too much is asked at once", hint="try again"))(scope, receive, send)


def _refusals(app: FastAPI, tell: Callable[[str], None]) -> None:
    """Register the answers to exceptions. Of an internal error only its class and file are reported."""

    async def rejected(_: Request, error: Exception) -> Response:
        assert isinstance(error, Rejected)
        return _error(error)

    async def http(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _error(
            Rejected(RejectionCode.UNKNOWN, "there is nothing at this address", hint="see docs/enclave.md"), error.status_code
        )

    async def internal(_: Request, error: Exception) -> Response:
        tell(f"internal error: {type(error).__name__} {getattr(error, 'file', None) or ''}".rstrip())
        return _error(
            Rejected(RejectionCode.INTERNAL, "the enclave has an internal error; nothing was accepted", hint="try again later")
        )

    app.add_exception_handler(Rejected, rejected)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(AssayError, internal)
    app.add_exception_handler(Exception, internal)


def _error(error: Rejected, status: int | None = None) -> Response:
    document = {"code": error.code.value, "what": error.what, "hint": error.hint}
    return _json(canonical({"error": document}), status or STATUS[error.code])


def _json(data: bytes, status: int = 200) -> Response:
    return Response(data, status, media_type="application/json", headers={"Cache-Control": "no-store"})


async def _body(request: Request, most: int, seconds: float) -> bytes:
    """The whole body. Raises Rejected if it is too large or too slow."""
    declared = request.headers.get("content-length", "")
    if re.fullmatch("[0-9]+", declared, re.ASCII) and (len(declared) > 18 or int(declared) > most):
        raise Rejected(RejectionCode.TOO_LARGE, f"this is larger than {most} bytes")
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for piece in request.stream():
                body += piece
                if len(body) > most:
                    raise Rejected(RejectionCode.TOO_LARGE, f"this is larger than {most} bytes")
    except TimeoutError:
        raise Rejected(
            RejectionCode.BUSY, f"the request did not arrive whole within {seconds:g} seconds", hint="try again"
        ) from None
    except ClientDisconnect:
        raise Rejected(RejectionCode.BUSY, "the request did not arrive whole", hint="try again") from None
    return bytes(body)


def _guarded(app: Asgi) -> Asgi:
    """The application without exceptions: their messages could get into a server's log."""

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        try:
            await app(scope, receive, send)
        except Exception:  # noqa: BLE001  (it was answered, and its class reported)
            return

    return guarded
