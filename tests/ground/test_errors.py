"""What errors say of values and of connections."""

import socket

import pytest

from assay.errors import broken, suggest


def chained(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "connection refused"),
        (socket.gaierror(-2, "Name or service not known"), "name or service not known"),
        (TimeoutError("what the other side had to do with it"), "no answer in time"),
        (chained(RuntimeError("secret"), ConnectionResetError(104, "Connection reset by peer")), "connection reset by peer"),
        (ValueError("secret"), "value error"),
        (OSError("Multiple exceptions: secret"), "oserror"),
    ],
)
def test_a_broken_connection_is_said_in_the_systems_words(error: Exception, message: str) -> None:
    assert broken(error) == message


def test_a_suggestion_names_what_is_near_and_else_says_what_to_do() -> None:
    known = ["quorum", "epoch", "epochs"]
    assert suggest("qorum", known, "use one of three", then="If not, add it") == "did you mean 'quorum'? If not, add it"
    assert suggest("epohc", known, most=3) == "did you mean 'epoch' or 'epochs'?"
    assert suggest("zzz", known, "use one of three", then="If not, add it") == "use one of three"
