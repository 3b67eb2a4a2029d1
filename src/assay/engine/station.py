"""A station's process on a node, and the talk with it.

    Ray's worker ─socket─▶ station's process ─▶ worker of the judge ─▶ boxes

Ray ends its workers in many ways: a task is cancelled, the driver or the node's raylet dies, the system runs out of memory. It
may kill what they started, without warning. So a station's process is no child of Ray's worker: it lives by their socket. When
that closes, for whatever reason, it gives up its errand, removes all boxes, control groups and folders, and ends.
What kill -9 leaves of the station itself, the next one on this machine sweeps away.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from assay.errors import AssayError, BadInput
from assay.judge import tree
from assay.judge.sandbox.scratch import Scratch
from assay.judge.stations import Gate, Station, StationSpec, Ticket, Turn, pack

__all__ = ["Outcome", "Talk"]

PATIENCE = 90.0
"""Seconds that a station has to clear up; its own worker has sixty of them."""
_TICK = 0.2
_NOW = Turn(0.0, ("", 0.0))
_PROGRAM = "from assay.engine.station import main; raise SystemExit(main())"
"""Not -m: what is sent through the socket must be of this module, and not of one that is called __main__."""


@dataclass(frozen=True)
class Outcome:
    """A station's answer about an errand. cores: used on average. refused: the station could not be opened, and ends.

    cleared: the number of processes and folders of killed runs that it removed from its machine; it says so once.
    """

    reply: Any = None
    files: bytes = b""
    trouble: str = ""
    final: bool = False
    cores: float = 0.0
    refused: bool = False
    cleared: int = 0


class StationLost(Exception):
    """The station's process is gone."""


class Talk:
    """A station's process, as Ray's worker sees it. It must always be closed."""

    def __init__(self, spec: bytes) -> None:
        """spec: a pickled `StationSpec`."""
        ours, theirs = socket.socketpair()
        with theirs:
            line = [sys.executable, "-c", _PROGRAM, str(theirs.fileno())]
            launcher = subprocess.Popen(line, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, start_new_session=True)
        launcher.wait()  # it forked: the station is nobody's child
        self._connection = Connection(ours.detach())
        self._connection.send_bytes(spec)

    def carry_out(self, payload: bytes, places: Mapping[str, Path], seconds: float, gate: Gate) -> Outcome:
        """Have one errand carried out. payload: pickled. gate: answers the station's questions. Raises StationLost."""
        try:
            self._connection.send((payload, dict(places), seconds))
            until = time.monotonic() + seconds + PATIENCE
            while True:
                if not self._connection.poll(_TICK):  # Ray interrupts a task between two looks
                    if time.monotonic() > until:
                        raise StationLost
                    continue
                message = self._connection.recv()
                if isinstance(message, Outcome):
                    return message
                self._connection.send(_answered(gate, message))
        except (EOFError, OSError) as error:
            raise StationLost from error

    def close(self) -> None:
        """Have the station give up and clear up, and wait for it."""
        with suppress(OSError):
            self._connection.send(None)
            until = time.monotonic() + PATIENCE
            with suppress(EOFError):
                while time.monotonic() < until:
                    if self._connection.poll(_TICK):
                        self._connection.recv()
        self._connection.close()


def _answered(gate: Gate, question: float | Ticket | None) -> Turn:
    """The gate's answer: a number of seconds asks for a pause, a ticket or None for a turn."""
    if not isinstance(question, float):
        return gate.turn(question)
    gate.pause(question)
    return _NOW


class StationStopped(BaseException):
    """The station must end."""


class _StationGate:
    """A `stations.Gate`: asks Ray's worker, which asks for all nodes."""

    def __init__(self, desk: _StationDesk) -> None:
        self._desk, self._lock = desk, threading.Lock()

    def turn(self, ticket: Ticket | None = None) -> Turn:
        turn: Turn = self._ask(ticket)
        return turn

    def pause(self, seconds: float) -> None:
        self._ask(float(seconds))

    def _ask(self, question: float | Ticket | None) -> Any:
        with self._lock:
            self._desk.connection.send(question)
            return self._desk.messages.get()


class _StationDesk:
    """The station's end of the socket. A thread queues the incoming messages; the end of the socket ends the process."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.working = threading.Event()
        threading.Thread(target=self._hear, daemon=True).start()

    def _hear(self) -> None:
        with suppress(EOFError, OSError, pickle.UnpicklingError):
            while (message := self.connection.recv()) is not None:
                self.messages.put(message)
        self.messages.put(_NOW)  # a thread that waits for its turn waits no longer
        os.kill(os.getpid(), signal.SIGTERM)

    def serve(self) -> None:
        """Open the station, and carry errands out until the end of the talk."""
        scratch = Scratch()
        cleared = 0
        with suppress(AssayError):
            cleared = scratch.sweep()
        try:
            with scratch.box() as home:
                self._work(self.messages.get(), home, cleared)
        finally:
            scratch.close()

    def _work(self, spec: StationSpec, home: Path, cleared: int) -> None:
        place = home / "station"
        place.mkdir()
        try:
            station = spec.open(place, _StationGate(self))
        except AssayError as error:
            self.messages.get()
            self.connection.send(Outcome(trouble=str(error), final=isinstance(error, BadInput), refused=True))
            return
        try:
            while True:
                payload, places, seconds = self.messages.get()
                with _folder(home / "errand") as folder:
                    outcome = _carried_out(station, payload, places, seconds, folder)
                    self.connection.send(replace(outcome, cleared=cleared) if cleared else outcome)
                cleared = 0
        finally:
            station.close()


def _carried_out(station: Station, payload: bytes, places: Mapping[str, Path], seconds: float, folder: Path) -> Outcome:
    began = time.monotonic()
    try:
        done = station.carry_out(pickle.loads(payload), places, folder, seconds)
        return Outcome(done.reply, pack(folder), cores=done.cpu / max(0.001, time.monotonic() - began))
    except AssayError as error:
        return Outcome(trouble=str(error), final=isinstance(error, BadInput))
    except OSError as error:
        return Outcome(trouble=f"the host: {error.strerror or error}")


@contextmanager
def _folder(folder: Path) -> Iterator[Path]:
    """A new folder, which is removed after the block: whoever waits for what is in it has it by then."""
    folder.mkdir()
    try:
        yield folder
    finally:
        tree.remove(folder)


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # a second signal must not stop the cleaning up
    raise StationStopped


def main() -> int:
    """The process. It forks first, so that it is no child of whoever started it."""
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = Connection(int(sys.argv[1]))
    os.set_inheritable(connection.fileno(), False)
    try:
        signal.signal(signal.SIGTERM, _stop)
        _StationDesk(connection).serve()
    except StationStopped:
        pass
    except AssayError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0
