"""A witness as a server: it takes checkpoints, and shows the last one of each log that it has cosigned. C2SP tlog-witness.

    POST /add-checkpoint                       `old SIZE`, the consistency proof, an empty line, the checkpoint
    GET  /SHA-256 of the origin/checkpoint     the checkpoint as it was cosigned last
    GET  /                                     its name, its key, the logs that it knows

Anybody may send: a request changes something only if the log's key signed its checkpoint. A log with several witnesses is small
work, so one process serves; what it answers is on the disk.
"""

from __future__ import annotations

import signal
import socket
import sys
from hashlib import sha256

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from assay.errors import BadInput
from assay.ledger.witness import NOTE_TYPE, REQUEST_BYTES, Witness
from assay.peers.guard import Asgi, ConnectionGuard
from assay.serve.listening import ServeOptions, networks
from assay.serve.run import HEADER_BYTES

__all__ = ["run_witness", "witness_app"]


def witness_app(witness: Witness, guard: ConnectionGuard) -> Asgi:
    """The application of a witness."""

    async def add(request: Request) -> Response:
        try:
            body = await _received(request)
        except ClientDisconnect:
            return _text(400, "the request ended before its body was whole")
        if body is None:
            return _text(413, f"a request has at most {REQUEST_BYTES} bytes")
        try:
            answer = await run_in_threadpool(witness.add, body)
        except (BadInput, OSError) as error:  # nothing was signed
            sys.stderr.write(f"{error}\n")
            return _text(503, "the witness cannot keep its state now; its operator can see why")
        return Response(answer.body, answer.status, media_type=answer.kind)

    async def last(request: Request) -> Response:
        wanted = request.path_params["origin"]
        origin = next((name for name in witness.logs if sha256(name.encode()).hexdigest() == wanted), None)
        try:
            note = None if origin is None else await run_in_threadpool(witness.note, origin)
        except BadInput as error:
            sys.stderr.write(f"{error}\n")
            return _text(503, "the witness cannot read its state now; its operator can see why")
        if note is None:
            return _text(404, "this witness has cosigned nothing of that log")
        return Response(note, media_type=NOTE_TYPE)

    async def about(request: Request) -> Response:
        logs = "".join(f"log {key}\n" for key in witness.logs.values())
        return _text(200, f"witness {witness.name} {witness.key}\n{logs}".removesuffix("\n"))

    routes = [
        Route("/add-checkpoint", add, methods=["POST"]),
        Route("/{origin}/checkpoint", last, methods=["GET"]),
        Route("/", about, methods=["GET"]),
    ]
    return guard.app(Starlette(routes=routes), _busy)


def run_witness(witness: Witness, options: ServeOptions, opened: socket.socket) -> None:
    """Serve until a signal comes."""
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn catches them, stops, and raises them again for whoever waits
        signal.signal(number, lambda *_: None)
    guard = ConnectionGuard(proxies=networks(options.proxies))
    config = uvicorn.Config(
        witness_app(witness, guard),
        http=guard.protocol(),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=HEADER_BYTES,
        timeout_graceful_shutdown=5,
    )
    uvicorn.Server(config).run(sockets=[opened])


async def _received(request: Request) -> bytes | None:
    """The body; None if it is too large."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > REQUEST_BYTES:
            return None
    return body


def _text(status: int, line: str) -> Response:
    return Response(f"{line}\n".encode(), status, media_type=NOTE_TYPE)


_busy = _text(503, "the witness is busy; ask again in a moment")
