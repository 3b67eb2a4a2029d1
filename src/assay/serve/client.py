"""The client of a service: signed requests, each with a total deadline, and the service's refusals as errors of Assay."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import assay
from assay.errors import AssayError, BadInput, Unreachable, brief, printable
from assay.ledger.keys import PrivateKey
from assay.peers import NoAnswer
from assay.peers.http import Peer, PeerAnswer
from assay.serve.signed import sign_request

__all__ = ["PAUSES", "Client", "patiently"]

ANSWER_BYTES = 64 * 2**20
SECONDS = 60.0
RATE = 16_384
"""Bytes of a body that extend the deadline by one second."""
PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds before each further attempt at what a service did not answer."""
FILE_BYTES = 2**36
"""The most bytes of a file that is fetched."""
_KNOWN_TAG = re.compile('"[!#-~]{1,200}"')
T = TypeVar("T")


def patiently(act: Callable[[], T], pauses: Sequence[float] = PAUSES, sleep: Callable[[float], None] = time.sleep) -> T:
    """Return what `act` returns; it is called again after each pause while a service does not answer or is busy.

    Only for what may be sent twice. Raises the last Unreachable, one that is final at once, and every other error.
    """
    for pause in pauses:
        try:
            return act()
        except Unreachable as error:
            if error.final:
                raise
            sleep(pause)
    return act()


class Client:
    """A service at an address, `http://127.0.0.1:8400/term-challenge`: the path begins with the competition. A context manager.

    The address of one of its pages, or of its API below `/v1`, is as good: people copy what their browser shows.

    key: signs requests; None can only read. Every method raises Unreachable if the service does not answer or is busy, and
    BadInput with the service's own sentences if it refuses.
    """

    def __init__(self, address: str, key: PrivateKey | None = None, *, seconds: float = SECONDS) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            hint = "write it as the service prints it: http://127.0.0.1:8400/term-challenge"
            raise BadInput(f"{brief(address, 100)} is not the address of a service", hint=hint)
        path = parts.path.strip("/")
        self.base, self.segment = f"{parts.scheme}://{parts.netloc}", re.sub("^v1(/|$)", "", path).partition("/")[0]
        self.key = key
        self.ahead = 0.0
        """The least seconds by which this machine's clock is ahead of the service's (below 0: behind); 0 if nothing is known."""
        self._peer = Peer(self.base, seconds=seconds, rate=RATE, proxies=True)

    def __enter__(self) -> Self:
        if not self.segment:
            self.segment = self._only()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._peer.close()

    def _only(self) -> str:
        """The competition of a service that has one."""
        rows = self._read(self._asked("GET", "/v1/competitions", None, {}))["competitions"]
        segments = [str(row["board"]).strip("/") for row in rows]
        if len(segments) != 1:
            hint = f"add it to the address: {self.base}/{segments[0]}" if segments else "is it the right address?"
            raise BadInput(f"the service has {len(segments)} competitions: {', '.join(segments):.300}", hint=hint)
        return segments[0]

    def get(self, path: str) -> Any:
        """Return what is at a path below the competition's part of the API, as JSON; signed if there is a key."""
        return self._read(self._asked("GET", f"/v1/{self.segment}/{path}", None, {}))

    def send(self, method: str, path: str, body: bytes, media: str) -> Any:
        """Send a body, signed, and return the answer as JSON (None if there is none)."""
        return self._read(self._asked(method, f"/v1/{self.segment}/{path}", body, {"Content-Type": media}))

    def download(self, path: str, most: int = ANSWER_BYTES) -> bytes:
        """The bytes at a path below the competition's part of the API, at most so many; signed if there is a key."""
        return self._asked("GET", f"/v1/{self.segment}/{path}", None, {}, most).body

    def fetch(self, path: str, target: Path) -> str:
        """Download into a file, which is whole or not there; return the ETag that the service gave it, without quotes.

        A download that broke off is beside it (`.part`, `.etag`): the rest is asked for by Range, and only if the ETag is the
        same. Call it with `patiently`: each call goes on where the last one broke off. Raises BadInput if it cannot be written.
        """
        part, note = (target.with_name(f"{target.name}.{ending}") for ending in ("part", "etag"))
        try:
            tag = self._fetch(path, part, note)
            part.replace(target)
            note.unlink(missing_ok=True)
        except OSError as error:
            raise BadInput(f"cannot be written ({error.strerror})", file=target, hint="check permissions and space") from None
        return tag.strip('"')

    def _fetch(self, path: str, part: Path, note: Path) -> str:
        """Bring a part to its end. Raises OSError, Unreachable, BadInput."""
        tag, size = "", 0
        with suppress(OSError):
            tag, size = note.read_text(), part.stat().st_size
        method, url = "GET", f"{self.base}/v1/{self.segment}/{path}"
        headers = {"Range": f"bytes={size}-", "If-Range": tag} if size and _KNOWN_TAG.fullmatch(tag) else {}
        try:
            with self._peer.exchange(method, url, headers=headers | self._signed(method, url, b""), most=FILE_BYTES) as opened:
                answer = opened.answer
                if answer.status == 416 and answer.header("content-range") == f"bytes */{size}":
                    return tag  # it ended just before the last download was stopped
                if answer.status not in (200, 206):
                    note.unlink(missing_ok=True)
                    raise self._refusal(PeerAnswer(answer.status, answer.headers, b"".join(iter(opened.read, b""))))
                begin = size if answer.status == 206 else 0
                new = answer.header("etag") or ""
                if not _KNOWN_TAG.fullmatch(new) or (begin and new != tag):
                    hint = "is it a service of Assay?"
                    raise Unreachable(f"{self.base} does not say which file it sends", final=True, hint=hint)
                with part.open("r+b" if begin else "wb") as file:
                    note.write_text(new, encoding="ascii", newline="")  # when nothing of another file is in the part any more
                    file.seek(begin)
                    while piece := opened.read():
                        file.write(piece)
                    file.flush()
                    os.fsync(file.fileno())
        except NoAnswer as error:
            raise self._silent(error) from None
        return new

    def _signed(self, method: str, url: str, body: bytes) -> dict[str, str]:
        """The headers that say who asks: the version, and a signature if there is a key."""
        agent = {"User-Agent": f"assay/{assay.__version__}"}
        return agent if self.key is None else agent | sign_request(self.key, method, url, sha256(body).digest())

    def _silent(self, error: NoAnswer) -> Unreachable:
        hint = "is it running there? try again later"
        if "WRONG_VERSION_NUMBER" in str(error):
            hint = f"if it has no TLS, write {self.base.replace('https', 'http', 1)}"
        return Unreachable(f"{self.base} does not answer: {error}", hint=hint)

    def _asked(self, method: str, path: str, body: bytes | None, headers: dict[str, str], most: int = ANSWER_BYTES) -> PeerAnswer:
        url = f"{self.base}{path}"
        headers = headers | self._signed(method, url, body or b"")
        if body is not None:
            headers["Content-Length"] = str(len(body))
        sent = time.time()
        try:
            answer = self._peer.ask(method, url, headers=headers, body=body, most=most)
        except NoAnswer as error:
            raise self._silent(error) from None
        self.ahead = _ahead(answer.header("date") or "", sent, time.time())
        if not 200 <= answer.status < 300:
            raise self._refusal(answer)
        return answer

    def _read(self, answer: PeerAnswer) -> Any:
        if not answer.body:
            return None
        try:
            return json.loads(answer.body)
        except ValueError:
            raise Unreachable(f"{self.base} did not answer with JSON", final=True, hint="is it a service of Assay?") from None

    def _refusal(self, answer: PeerAnswer) -> AssayError:
        """The error that a refusal is: in the service's own words, if it is a problem document."""
        try:
            document = json.loads(answer.body[:65_536])
            what, hint, where = str(document["detail"]), str(document.get("hint", "")), str(document.get("where", ""))
        except (ValueError, KeyError, TypeError, RecursionError):
            what, hint, where = f"{self.base} answers with status {answer.status}", "is it the address of a service of Assay?", ""
        what, hint, where = printable(what)[:2000], printable(hint)[:2000], printable(where)[:300]
        where = "" if where == "body" and what.startswith("the body ") else where  # it would be said twice
        if answer.status in (408, 429) or answer.status >= 500:
            return Unreachable(what, hint=hint)
        return BadInput(what, hint=hint, field=where)


def _ahead(date: str, sent: float, came: float) -> float:
    """Return by how much our clock is certainly ahead of the one that wrote `date`, between `sent` and `came`; below 0: behind.

    A date has whole seconds. The time that the request was under way is no difference of clocks.
    """
    try:
        theirs = parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return max(sent - theirs - 1, 0.0) or min(came - theirs, 0.0)
