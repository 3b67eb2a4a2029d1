"""JSON-RPC, whatever carries it: what an answer says."""

from __future__ import annotations

from typing import Any

__all__ = ["NoAnswerError", "RpcError", "result"]


class RpcError(Exception):
    """The other side understood, and said no: its code, its message, its data."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message[:500], data


class NoAnswerError(Exception):
    """What came is no answer; why, in a few words."""


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
