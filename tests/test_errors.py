"""What errors say of values and of connections."""

import socket

import pytest

from assay.errors import broken


def chained(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "connection refused"),
        (socket.gaierror(-2, "Name or service not known"), "name or service not known"),
        (TimeoutError("what the other side had to do with it"), "no answer in time"),
        (chained(RuntimeError("secret"), ConnectionResetError(104, "Connection reset by peer")), "connection reset by peer"),
        (ValueError("secret"), "value error"),
        (OSError("Multiple exceptions: secret"), "oserror"),
    ],
)
def test_a_broken_connection_is_said_in_the_systems_words(error: Exception, said: str) -> None:
    assert broken(error) == said
