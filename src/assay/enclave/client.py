"""Asking an enclave's service, at `unix:PATH` or `http(s)://HOST`: bounded in time and size, and refusals as they were meant."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any, Self

from assay.enclave.rejected import Code, Rejected
from assay.errors import BadInput, Unreachable, brief, broken
from assay.folder import strict
from assay.folder.text import decode

__all__ = ["ANSWER_BYTES", "Client"]

ANSWER_BYTES = 2**30
"""Bytes of one answer: of results with every judgement's quote, or of a release."""
SECONDS = 120.0
"""Without a byte."""


class Client:
    """An enclave at its address; raises BadInput for one that cannot be an address. A context manager."""

    def __init__(self, url: str, *, seconds: float = SECONDS) -> None:
        try:
            import httpx
        except ImportError:
            hint = "install it: pip install 'assay[tee]'"
            raise BadInput("an enclave is asked through a library that is not installed", hint=hint) from None
        self.url, self._errors = url, (OSError, httpx.HTTPError, httpx.InvalidURL, httpx.StreamError)
        transport, base, self._path = httpx.HTTPTransport(), url, ""
        if url.startswith("unix:"):
            self._path = url.removeprefix("unix:")
            transport, base = httpx.HTTPTransport(uds=self._path), "http://enclave"
        elif not url.startswith(("http://", "https://")):
            raise BadInput(f"{brief(url)} is no address", field="url", hint="give unix:PATH or http://HOST:PORT")
        try:
            self._client = httpx.Client(base_url=base, transport=transport, timeout=seconds, trust_env=False)
        except httpx.InvalidURL as error:
            hint = "give unix:PATH or http://HOST:PORT"
            raise BadInput(f"{brief(url)} is no address ({error})", field="url", hint=hint) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._client.close()

    def get(self, path: str, most: int = ANSWER_BYTES) -> bytes:
        """What is there; raises Rejected where the enclave says no, Unreachable where it does not answer."""
        return self._asked("GET", path, None, most)

    def post(self, path: str, body: bytes, most: int = ANSWER_BYTES) -> bytes:
        """What is answered to a body; raises as `get`."""
        return self._asked("POST", path, body, most)

    def _asked(self, how: str, path: str, body: bytes | None, most: int) -> bytes:
        found = bytearray()
        try:
            self._probe()
            with self._client.stream(how, path, content=body, headers={"Accept-Encoding": "identity"}) as answer:
                for piece in answer.iter_raw():
                    found += piece
                    if len(found) > most:
                        raise Unreachable(f"{self.url} answered with more than {most} bytes", hint="is it an enclave's service?")
                status = answer.status_code
        except self._errors as error:
            hint = "is it running there? What was taken stays taken: asking again does no harm"
            raise Unreachable(f"{self.url} does not answer ({broken(error)})", hint=hint) from None
        if status == 200:
            return bytes(found)
        raise _refusal(bytes(found)) or Unreachable(
            f"{self.url} answered with status {status}", hint="is it an enclave's service?"
        )

    def _probe(self) -> None:
        """Raise OSError where nobody listens at a Unix socket: the library would leave its own open."""
        if self._path:
            with socket.socket(socket.AF_UNIX) as made:
                made.connect(self._path)


def _refusal(data: bytes) -> Rejected | None:
    """The refusal in an answer; None if it is none of ours."""
    try:
        said: Any = strict.parse(decode(data[:65_536], None))["error"]
        return Rejected(Code(said["code"]), str(said["what"])[:1000], hint=str(said["hint"])[:1000])
    except (BadInput, KeyError, TypeError, ValueError):
        return None
