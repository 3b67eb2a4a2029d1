"""A validator's node: it waits for work at the service, and carries out a round whenever there is some.

The process that waits is small: it imports neither judges nor the ledger. It holds the folder's lock, keeps one request for work
open, and starts each round as a process of its own (a fork, so that the key is asked for once). A round that is left alone, since
this process was killed, ends by itself; its lock keeps the next node waiting until then.

Every error is told, and the work is tried again after a pause that grows: a service that is away, a disk that is full, a clock
that is wrong. SIGTERM and Ctrl-C stop the round as they stop `assay run`, and then the node.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from assay.errors import AssayError, Unreachable
from assay.judge.running import backoff
from assay.node import is_signed, status, working
from assay.node.children import TROUBLE, Child, Stopping, StopWaiting
from assay.node.heartbeat import beat, leave
from assay.node.herald import Herald, Telling
from assay.serve.client import Client

if TYPE_CHECKING:
    from assay.ledger.keys import PrivateKey
    from assay.node import NodeOptions

__all__ = ["Node", "once"]

Tell = Callable[[str], None]
WAIT = 45
"""Seconds for which a request for work waits at the service: less than a client's deadline, and than a heartbeat may be old."""
AGAIN = 600.0
"""Seconds after which a round is due without news: results are missing, or what is judged is not handed in at the service."""
_AT_FIRST = (1.0, 2.0, 4.0)
"""Seconds before a single round asks again: a service that has just begun refuses what was signed before it did."""
_STOPPED = 130
_LAST_WORDS = 5.0
"""Seconds for the last page; what is still to be told then is told meanwhile, or after the next start."""


def once(folder: Path, url: str, signer: PrivateKey, options: NodeOptions, tell: Tell, telling: Telling | None = None) -> int:
    """One round in this process, and one look at what is wrong; returns the exit code. Raises AssayError."""
    from assay.node.round import Round

    with working(folder, signer.public.id):
        status.note(folder, url=url, validator=signer.public.id, trouble=None, started=status.now_text(), once=True)
        try:
            whole = Round(folder, url, signer, options, tell, _AT_FIRST).carry_out()
        except (AssayError, OSError) as error:
            status.note(folder, trouble=status.trouble_of(error), away=False)
            raise
        finally:
            leave(url, signer, folder)
            Herald(folder, telling or Telling(), tell).look()
    return 0 if whole else _STOPPED


class Node:
    """The node of one validator in one folder."""

    def __init__(
        self, folder: Path, url: str, signer: PrivateKey, options: NodeOptions, tell: Tell, telling: Telling | None = None
    ) -> None:
        self.folder, self.url, self.signer, self.options, self.tell = folder, url, signer, options, tell
        self._round = Child(self._round_here)
        self._herald = Child(Herald(folder, telling or Telling(), tell).run)
        self._stop = Stopping(lambda: self._round.send(signal.SIGTERM))
        self._trouble: dict[str, Any] | None = None
        self._failed = 0
        """Requests and rounds in a row that went wrong."""
        self._seen = ""
        self._due: float | None = 0.0
        """The time when a round begins without news, by the monotonic clock; None: never."""

    def run(self) -> None:
        """Work until somebody asks for the end. Raises AssayError if another node works in this folder."""
        name = self.signer.public.id
        with working(self.folder, name), self._stop.heard():
            begun = {"started": status.now_text(), "state": "waiting", "once": False}
            status.note(self.folder, url=self.url, validator=name, trouble=None, conflicts=None, **begun)
            self.tell(f"{name} follows {self.url}")
            with suppress(StopWaiting):
                while not self._stop.asked:
                    if not self._herald.running or self._herald.ended() is not None:
                        self._herald.begin()
                    self._turn()
            leave(self.url, self.signer, self.folder)
            status.note(self.folder, state="ended")
            self._herald.end(_LAST_WORDS)
            self.tell("ended")

    def _turn(self) -> None:
        """Ask for work, and carry a round out if there is other work than before, or one is due."""
        try:
            work = self._ask(wait=not self._is_due())
        except AssayError as error:
            self._trouble = status.trouble_of(error, self._trouble)
            status.note(self.folder, trouble=self._trouble, away=isinstance(error, Unreachable))
            self._pause()
            return
        if work["seen"] == self._seen and not self._is_due() and is_signed(self.folder):
            self._well(epoch=work["epoch"], settled=work["settled"], heard=status.now_text())
            return
        code = self._carry_out()
        noted = status.note(self.folder)
        if code == 0:
            self._well()
            self._seen = str(noted.get("seen", work["seen"]))
            self._due = time.monotonic() + AGAIN if any(map(noted.get, ("missing", "absent", "looks"))) else None
        elif not self._stop.asked:
            self._trouble = noted.get("trouble") or status.trouble_of(RuntimeError(f"a round ended with {code}"), self._trouble)
            status.note(self.folder, trouble=self._trouble)
            self._pause()

    def _is_due(self) -> bool:
        return self._due is not None and time.monotonic() >= self._due

    def _ask(self, *, wait: bool) -> dict[str, Any]:
        """The work that the service has, at once or when it changes. Raises AssayError."""
        path = f"work?wait={WAIT}&seen={quote(self._seen)}" if wait else "work"
        with self._stop.at_once(), Client(self.url, self.signer) as client:
            beat(client, self.folder, take_over=self.options.take_over)
            self.options = replace(self.options, take_over=False)  # once: whoever takes over later is not fought
            work = client.get(path)
        if not isinstance(work, dict) or not {"seen", "epoch", "settled"} <= work.keys():
            raise Unreachable(f"{self.url} does not say what to judge", hint="is it a service of Assay?")
        return work

    def _well(self, **changes: Any) -> None:
        if self._failed:
            self.tell("recovered")
        self._failed, self._trouble = 0, None
        status.note(self.folder, trouble=None, state="waiting", **changes)

    def _pause(self) -> None:
        """Wait after something went wrong, each time longer; then a round is due, which sends what waits."""
        self._failed += 1
        seconds = backoff(self._failed, 1.0, factor=2.0, longest=300.0)
        if self._trouble is not None and self._failed == 1:
            self.tell(f"trouble: {self._trouble['what']}")
        self._due = 0.0
        self._stop.sleep(seconds)

    # A round

    def _carry_out(self) -> int:
        """Carry a round out in a process of its own; returns its exit code, below 0 for the signal that ended it."""
        self._round.begin()
        if self._stop.asked:
            self._round.send(signal.SIGTERM)
        return self._round.wait()

    def _round_here(self) -> int:
        from assay.node.round import Round

        try:
            whole = Round(self.folder, self.url, self.signer, self.options, self.tell).carry_out()
        except (AssayError, OSError) as error:
            away = isinstance(error, Unreachable)
            before = status.content_of(self.folder).get("trouble")  # the round takes back that the service is away
            trouble = status.trouble_of(error, before if isinstance(before, dict) else None)
            status.note(self.folder, trouble=trouble, away=away, state="waiting")
            return TROUBLE
        return 0 if whole else _STOPPED
