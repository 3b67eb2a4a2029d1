"""Talks to peers that may be broken or hostile. Every client of Assay uses this room.

One rule holds for each client:

- A total deadline runs from the look-up of the name to the last byte. Headers and 1xx answers are within it.
- Bytes are bounded on the wire, and after decoding. Content codings are not requested, and refused if they come all the same.
- JSON is bounded in bytes, parts and nesting before it is parsed (`reading`).
- Formats that only a library can decode are decoded in a child process, with a bound on memory and time (`confined`).
- Every error of the peer becomes one of our errors. A peer's own words are cut, made printable, and stripped of secrets
  (`Words`).

`http` and `network` need the package httpcore, which belongs to an extra. Import them late, or through `peer`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from assay.errors import BadInput, printable

if TYPE_CHECKING:
    from assay.peers.http import Peer, PeerAnswer

__all__ = ["NoAnswer", "Overrun", "Packed", "Silent", "Words", "peer", "retry_after"]

_CUT = "[secret]"
_LEAST = 4
"""A shorter secret is not searched for: it would occur everywhere."""


class NoAnswer(Exception):
    """The peer gave no readable answer. `why`: a few printable words of ours; `never`: nothing was listening."""

    def __init__(self, why: str, *, never: bool = False) -> None:
        super().__init__(why)
        self.why, self.never = why, never
        self.head: PeerAnswer | None = None
        """Status and headers, if these came."""


class Silent(NoAnswer):
    """No answer came in time. `whole`: the time for the whole exchange was over, not that for one wait."""

    def __init__(self, why: str, *, never: bool = False, whole: bool = False) -> None:
        super().__init__(why, never=never)
        self.whole = whole


class Overrun(NoAnswer):
    """The answer has more bytes or parts than allowed."""


class Packed(NoAnswer):
    """The answer has a content coding, although none was requested."""


class Words:
    """Makes a peer's words fit for messages: without these secrets, printable, and not too long."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = {
            form
            for secret in secrets
            if len(secret) >= _LEAST
            for form in (secret, quote(secret, safe=""), json.dumps(secret)[1:-1])
        }
        self._secrets = sorted(known, key=len, reverse=True)

    def __repr__(self) -> str:
        return f"Words({len(self._secrets)} secrets)"

    def repeated(self, *parts: str | bytes | None) -> bool:
        """Whether one of these texts contains a secret."""
        texts = [part.decode("latin-1") if isinstance(part, bytes) else part or "" for part in parts]
        return any(secret in text for secret in self._secrets for text in texts)

    def __call__(self, message: object, most: int = 200) -> str:
        """The message on one line, at most `most` characters of it."""
        longest = max((len(secret) for secret in self._secrets), default=0)
        text = str(message)[: most * max(64, longest)]  # enough to find each secret that begins in the shown part
        for secret in self._secrets:
            text = text.replace(secret, _CUT)
        shown = printable(text[: most + 1])
        if not shown.isprintable():  # a message decides nothing, so this Python's Unicode tables may be used
            shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in shown)
        return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def retry_after(value: str | None) -> float | None:
    """The seconds that a header `Retry-After` asks for; None if it is absent or unreadable."""
    try:
        if value is None or value.strip().isdecimal():
            return None if value is None else float(value.strip()[:9])
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None


def peer(url: str, *, extra: str, **options: Any) -> Peer:
    """A `Peer` at an address, with these options. Raises BadInput that names the extra if its library is not installed."""
    try:
        from assay.peers.http import Peer
    except ImportError:
        what = "a service is asked through the package httpcore, which is not installed"
        raise BadInput(what, hint=f"install it: pip install 'assay[{extra}]'") from None
    return Peer(url, **options)
