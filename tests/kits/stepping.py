"""The steps of a worker that publishes: calls of the file system and the network, and SQLAlchemy's to the ledger."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["count", "die_at", "go_on"]

CALLS = {
    *("open", "close", "fsync", "flock", "mkdir", "write"),
    *("BufferedRandom.write", "BufferedRandom.flush", "BufferedRandom.truncate"),
    *("socket.connect", "socket.sendall", "socket.send", "socket.recv_into", "socket.close"),
}
DATABASE = {"do_execute", "do_executemany", "do_commit"}


def die_at(last: int) -> None:
    """Be killed before step number `last` from now on."""

    def step(frame: FrameType, event: str, function: Any) -> None:
        nonlocal last
        if _is_step(frame, event, function):
            last -= 1
            if last == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(step)


def go_on() -> None:
    """Be killed no more."""
    sys.setprofile(None)


def count(work: Callable[[], object]) -> int:
    """The number of steps that some work takes."""
    steps = 0

    def counted(frame: FrameType, event: str, function: Any) -> None:
        nonlocal steps
        steps += _is_step(frame, event, function)

    sys.setprofile(counted)
    work()
    sys.setprofile(None)
    return steps


def _is_step(frame: FrameType, event: str, function: Any) -> bool:
    if event == "c_call":
        return function.__qualname__ in CALLS
    return event == "call" and frame.f_code.co_name in DATABASE
