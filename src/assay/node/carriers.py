"""Carries alarms to people: runs the operator's command, or posts to the operator's address.

Both get one JSON document for each alarm that begins, and one when it is over. Each has a deadline, and what was not taken is
tried again by the caller. The address of a webhook is a secret of the operator's, so only its host is ever named.
"""

from __future__ import annotations

import ipaddress
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import Any, Protocol
from urllib.parse import urlsplit

from assay.errors import BadInput, printable
from assay.exact import canonical

__all__ = ["Carrier", "Command", "Webhook", "command", "webhook"]

SECONDS = 30.0
"""For one alarm; a command that takes longer is killed, with what it started."""
_WHY = 300
"""Characters of an error that are shown."""
_ANSWER_BYTES = 64 * 1024


class Carrier(Protocol):
    """Takes alarms to somebody. name: in messages, and in the list of what is still to be told."""

    @property
    def name(self) -> str:
        """The carrier's name in messages: its option."""

    def carry(self, document: dict[str, Any]) -> str:
        """Tell an alarm; returns why that failed, or "" if it was taken."""


@dataclass(frozen=True)
class Command:
    """A command, without a shell, that reads the document from its standard input."""

    words: Sequence[str]
    seconds: float = SECONDS
    name: str = "--on-alarm"

    def carry(self, document: dict[str, Any]) -> str:
        """Run it; it must end with 0 in time. Its standard error is the reason if it does not."""
        with TemporaryFile() as given, TemporaryFile() as errors:  # a pipe that a grandchild holds would have no end
            given.write(canonical(document) + b"\n")
            given.seek(0)
            try:
                process = subprocess.Popen(
                    self.words, stdin=given, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
                )
            except OSError as error:
                return f"{self.words[0]} cannot be run ({error.strerror})"
            try:
                code = process.wait(self.seconds)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return f"{self.words[0]} took more than {self.seconds:g} seconds, and was killed"
            if not code:
                return ""
            errors.seek(max(0, os.fstat(errors.fileno()).st_size - _WHY))
            text = printable(" ".join(errors.read(_WHY).decode("utf-8", "replace").split()))
            return f"{self.words[0]} ended with {code}" + (f": {text}" if text else "")


@dataclass(frozen=True)
class Webhook:
    """An address to which the document is posted."""

    url: str
    seconds: float = SECONDS
    name: str = "--webhook"

    def carry(self, document: dict[str, Any]) -> str:
        """Post it; any answer of 200 to 299 is that it was taken."""
        from assay.peers import NoAnswer
        from assay.peers.http import Peer

        host = urlsplit(self.url).hostname
        try:
            with Peer(self.url, seconds=self.seconds, proxies=True, keep=False) as peer:
                headers = {"Content-Type": "application/json"}
                answer = peer.ask("POST", headers=headers, body=canonical(document) + b"\n", most=_ANSWER_BYTES)
        except NoAnswer as error:
            return f"{host} does not answer: {error}"[:_WHY]
        return "" if 200 <= answer.status < 300 else f"{host} answers with status {answer.status}"


def command(text: str) -> Command:
    """Read the command of `--on-alarm`. Raises BadInput if it has no words, or no such program."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise BadInput(f"--on-alarm is no command ({error})", hint="close each quotation mark") from None
    if not words or shutil.which(words[0]) is None:
        what = f"--on-alarm names no program that can be run: {words[0] if words else text!r}"
        raise BadInput(what, hint="name it by its path; for a pipe or a variable, write a script")
    return Command(words)


def webhook(url: str, *, plain: bool = False) -> Webhook:
    """Read the address of `--webhook`. plain: it may be http to another machine. Raises BadInput."""
    try:
        parts = urlsplit(url)
        host, scheme = parts.hostname or "", parts.scheme
        url.encode("ascii")
    except ValueError:
        host = scheme = ""
    if scheme not in ("http", "https") or not host:
        raise BadInput("--webhook is not an address", hint="write it as in https://hooks.example.org/…")
    if scheme == "http" and not plain and not _is_here(host):
        what = f"--webhook would send alarms to {host} without TLS, so that others can read and change them"
        raise BadInput(what, hint="write https, or allow it: --plain-webhook")
    return Webhook(url)


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
