"""JSON-RPC, whatever carries it: where it is asked, and what an answer says."""

from __future__ import annotations

from typing import Any
from urllib.parse import SplitResult, urlsplit

from assay.errors import BadInput
from assay.peers import Words

__all__ = ["NoAnswerError", "RpcError", "parted", "result"]


class RpcError(Exception):
    """The other side understood, and said no: its code, its message, its data. The message can be shown and written down."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        self.code, self.message = code, Words()(_text(message), 500)
        super().__init__(self.message)
        self.data = _text(data) if isinstance(data, str) else data


def _text(said: str) -> str:
    """Without halves of characters, which JSON can hold and no file can."""
    return said.encode("utf-8", "replace").decode()


class NoAnswerError(Exception):
    """What came is no answer; why, in a few words."""


def parted(url: str, *schemes: str, hint: str) -> tuple[SplitResult, str, int | None]:
    """The parts of a node's address, its host and its port; raises BadInput, which says nothing of it, for what is none."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        host.encode("idna")  # as whoever looks for the host will: a label has 63 characters at most, and one at least
    except ValueError:
        host, port = "", None
    if not host or parts.scheme not in schemes or not url.isascii() or not url.isprintable():
        raise BadInput("is no address of a node", hint=hint)
    return parts, host, port


def result(said: dict[str, Any], number: int) -> Any:
    """The result in an answer to question `number`; raises RpcError and NoAnswerError."""
    error = said.get("error")
    if error is not None:
        found = error if isinstance(error, dict) else {"message": str(error)}
        code = found.get("code")
        raise RpcError(code if isinstance(code, int) else 0, str(found.get("message", "")), found.get("data"))
    if "result" not in said or said.get("id") != number:
        raise NoAnswerError("neither result nor error")
    return said["result"]
