"""Asking an enclave's service, at `unix:PATH` or `http(s)://HOST`: bounded in time and size, and refusals as they were meant."""

from __future__ import annotations

from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from assay.enclave.rejected import Code, Rejected
from assay.errors import BadInput, Unreachable, brief
from assay.peers import NoAnswer, Overrun, Packed, Words, peer, reading

__all__ = ["ANSWER_BYTES", "Client"]

ANSWER_BYTES = 2**30
"""Bytes of one answer: of results with every judgement's quote, or of a release."""
ANSWER_PARTS = 8_000_000
"""Brackets, commas and strings of one answer: a judgement's quote and log have some five hundred."""
SECONDS = 120.0
"""For an exchange in all, and for each wait in it."""
RATE = 65_536
"""Bytes that give an exchange one second more: what is large may take its time, what drips may not."""
_REFUSAL = 65_536
_WORDS = Words()


class Client:
    """An enclave at its address; raises BadInput for one that cannot be an address. A context manager.

    seconds: for an exchange in all, before what its bytes add to it.
    """

    def __init__(self, url: str, *, seconds: float = SECONDS) -> None:
        self.url, uds, self._base = url, None, url.rstrip("/")
        if url.startswith("unix:"):
            uds, self._base = url.removeprefix("unix:"), "http://enclave"
        elif not url.startswith(("http://", "https://")) or not _is_url(url):
            raise BadInput(f"{brief(url)} is no address", field="url", hint="give unix:PATH or http://HOST:PORT")
        self._peer = peer(self._base, extra="tee", seconds=seconds, idle=seconds, rate=RATE, uds=uds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._peer.close()

    def get(self, path: str, most: int = ANSWER_BYTES) -> bytes:
        """What is there; raises Rejected where the enclave says no, Unreachable where it does not answer."""
        return self._asked("GET", path, None, most)

    def post(self, path: str, body: bytes, most: int = ANSWER_BYTES) -> bytes:
        """What is answered to a body; raises as `get`."""
        return self._asked("POST", path, body, most)

    def _asked(self, how: str, path: str, body: bytes | None, most: int) -> bytes:
        hint = "is it an enclave's service?"
        try:
            answer = self._peer.ask(how, f"{self._base}{path}", body=body, most=most)
            reading.bounded(answer.body.decode("utf-8", "replace"), ANSWER_PARTS)
        except Overrun as error:
            raise Unreachable(f"{self.url} answered with {error.why}", hint=hint) from None
        except Packed as error:
            raise Unreachable(f"{self.url} does not answer ({error.why})", hint=hint) from None
        except NoAnswer as error:
            hint = "is it running there? What was taken stays taken: asking again does no harm"
            raise Unreachable(f"{self.url} does not answer ({error.why})", hint=hint) from None
        if answer.status == 200:
            return answer.body
        raise _refusal(answer.body) or Unreachable(f"{self.url} answered with status {answer.status}", hint=hint)


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    return bool(parts.hostname) and url.isascii() and url.isprintable() and " " not in url


def _refusal(data: bytes) -> Rejected | None:
    """The refusal in an answer; None if it is none of ours."""
    try:
        said = reading.parsed(data[:_REFUSAL], parts=100)["error"]
        return Rejected(Code(said["code"]), _WORDS(said["what"], 1000), hint=_WORDS(said["hint"], 1000))
    except (NoAnswer, KeyError, TypeError, ValueError):
        return None
