"""Talking to the other side of a wire, which may be broken or hostile. Every client of Assay speaks to its peer through here.

One rule holds for each of them:

- A total deadline runs from the first look-up of a name to the last byte. Headers and 1xx answers are within it.
- Bytes are bounded on the wire, and after decoding. Content codings are not asked for, and refused where they come all the same.
- JSON is bounded in bytes, parts and nesting before anything is made of it (`reading`).
- What only a library can decode is decoded in a child process with a bound on memory and time (`confined`).
- Every error of the peer is an error of ours. A peer's own words are cut, made printable, and stripped of secrets (`Words`).

`http` and `network` need the package httpcore, which is an extra's; import them late, or through `peer`.
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
"""A secret of fewer characters would be found everywhere."""


class NoAnswer(Exception):
    """The peer gave no answer that can be read; why, in a few printable words of ours. `never`: nothing was listening."""

    def __init__(self, why: str, *, never: bool = False) -> None:
        super().__init__(why)
        self.why, self.never = why, never
        self.head: PeerAnswer | None = None
        """Status and headers, if these came."""


class Silent(NoAnswer):
    """No answer in time. `whole`: the time for all of it was over, rather than that for one wait."""

    def __init__(self, why: str, *, never: bool = False, whole: bool = False) -> None:
        super().__init__(why, never=never)
        self.whole = whole


class Overrun(NoAnswer):
    """The answer has more bytes, or more parts, than it may."""


class Packed(NoAnswer):
    """The answer has a content coding, which nobody asked for."""


class Words:
    """What a peer says, made fit for messages: without these secrets, printable, and not too long."""

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
        """Whether a secret is in any of these."""
        texts = [part.decode("latin-1") if isinstance(part, bytes) else part or "" for part in parts]
        return any(secret in text for secret in self._secrets for text in texts)

    def __call__(self, message: object, most: int = 200) -> str:
        """The message on one line, at most `most` characters of it."""
        longest = max((len(secret) for secret in self._secrets), default=0)
        text = str(message)[: most * max(64, longest)]  # enough to find each secret that begins within what is shown
        for secret in self._secrets:
            text = text.replace(secret, _CUT)
        shown = printable(text[: most + 1])
        if not shown.isprintable():  # nothing is settled by a message: what this Python knows of Unicode may decide here
            shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in shown)
        return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def retry_after(value: str | None) -> float | None:
    """A header `Retry-After` in seconds from now; None where it says nothing that can be kept to."""
    try:
        if value is None or value.strip().isdecimal():
            return None if value is None else float(value.strip()[:9])
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None


def peer(url: str, *, extra: str, **options: Any) -> Peer:
    """A `Peer` with these options at an address; raises BadInput that names the extra if the library for it is not installed."""
    try:
        from assay.peers.http import Peer
    except ImportError:
        what = "a service is asked through the package httpcore, which is not installed"
        raise BadInput(what, hint=f"install it: pip install 'assay[{extra}]'") from None
    return Peer(url, **options)
