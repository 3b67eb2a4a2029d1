"""An httpx transport over a `Peer`, for an SDK that takes one: answers arrive whole, bounded in size and time, never unpacked."""

from __future__ import annotations

import httpx

from assay.peers import NoAnswer, Overrun, Packed, Silent, reading
from assay.peers.http import Peer

ANSWER_BYTES = 8 * 2**20
"""Bytes of one answer."""


class PeerTransport(httpx.BaseTransport):
    """A transport with bounded answers. seconds: of one whole exchange; path: of a Unix socket."""

    def __init__(self, seconds: float, path: str | None = None) -> None:
        self._peer = Peer("http://localhost", seconds=seconds, uds=path)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request and return its answer. Raises httpx's errors, and ValueError for JSON with too many parts."""
        passed = ("content-type", "accept", "user-agent", "host")
        headers = {name: value for name, value in request.headers.items() if name in passed}
        try:
            answer = self._peer.ask(
                request.method, str(request.url), headers=headers, body=request.read() or None, most=ANSWER_BYTES
            )
        except Silent as error:
            raise httpx.ReadTimeout(error.why, request=request) from None
        except Packed as error:
            raise httpx.DecodingError(error.why, request=request) from None
        except NoAnswer as error:
            raise httpx.ReadError(error.why, request=request) from None
        try:
            reading.bounded(answer.body.decode("utf-8", "replace"))
        except Overrun as error:
            raise ValueError(error.why) from None  # as JSON that cannot be read
        rows = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
        return httpx.Response(answer.status, headers=rows, content=answer.body, request=request)

    def close(self) -> None:
        """Close its connections."""
        self._peer.close()
