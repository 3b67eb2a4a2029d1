"""The body of a chat completion: what of it is an answer. A body that is none is the fault of the service, not of the model."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from assay.errors import printable
from assay.judge.rubric.judgement import Usage
from assay.judge.rubric.limits import NAME_CHARACTERS, WORDS_CHARACTERS
from assay.judge.rubric.reply import Reply

__all__ = ["ECHO", "completion", "error_of", "words"]

ECHO = 20
"""Characters that a text and an error share before they are taken for an echo."""
LETTERS = 14
"""Letters and digits that they share, whatever is between them and however it is written."""
_MOST_TOKENS = 2**31
_WRITTEN = re.compile(
    r"\\+(?:u(?P<u>[0-9a-f]{4})|x(?P<x>[0-9a-f]{2})|[a-z])|&#?\w{1,8};|<br ?/?>|%[0-9a-f]{2}"
    r"|(?<![0-9a-f])[0-9a-f]{8} [0-9]{1,7}\||(?P<letter>[^\W_])",
    re.IGNORECASE,
)
"""A letter or digit, plain or escaped; what stands for something else in escaped text; a gutter."""


def completion(data: bytes) -> tuple[Reply, Usage] | None:
    """The reply in a body, and the tokens it took (None where it does not say); None if it is no chat completion."""
    try:
        found: Any = json.loads(data)
        choice = found["choices"][0]
        message, finish = choice["message"], choice.get("finish_reason")
        content, refusal = message.get("content"), message.get("refusal")
        if not all(one is None or isinstance(one, str) for one in (content, refusal, finish)):
            return None
        for one in (content, refusal, finish):
            (one or "").encode()  # a lone surrogate is no text
        reply = Reply(content, refusal, finish, _name(found.get("model")), _name(found.get("system_fingerprint")))
        usage = found.get("usage")
        return reply, Usage(_tokens(usage, "prompt_tokens"), _tokens(usage, "completion_tokens"))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def error_of(data: bytes) -> tuple[str, str]:
    """`error.code` and `error.message` of the body of an error, as far as it has them; the message is as the service wrote it."""
    try:
        found: Any = json.loads(data)
        error = found.get("error", found)
        if isinstance(error, str):  # some say only this
            return "", error
        return tuple(one if isinstance(one := error.get(name), str) else "" for name in ("code", "message"))  # type: ignore[return-value]
    except (ValueError, AttributeError, RecursionError):
        return "", ""


def words(said: str, secrets: Sequence[str], texts: Sequence[str]) -> str:
    """What a service said, as people may be shown it: printable, cut, no secret in it, and nothing of what it was asked about.

    texts: what others wrote, in a request. A run of `ECHO` characters of the said that one of them has is left out, and one of
    `LETTERS` letters and digits: services repeat what they were sent with escapes, and as it was sent, with gutters.
    """
    for secret in secrets:
        said = said.replace(secret, "…") if secret else said
    said = " ".join(said[: 4 * WORDS_CHARACTERS].split())
    plain = [" ".join(text.split()) for text in texts]
    hidden = bytearray(len(said))
    for start in range(len(said) - ECHO + 1):
        if any(said[start : start + ECHO] in text for text in plain):
            hidden[start : start + ECHO] = b"\x01" * ECHO
    letters, places = _letters(said)
    bare = [_letters(text)[0] for text in texts]
    for start in range(len(letters) - LETTERS + 1):
        if any(letters[start : start + LETTERS] in text for text in bare):
            first, last = places[start][0], places[start + LETTERS - 1][1]
            hidden[first:last] = b"\x01" * (last - first)
    kept = "".join(
        "" if hide and hidden[place - 1 : place] == b"\x01" else "…" if hide else c
        for place, (c, hide) in enumerate(zip(said, hidden, strict=True))
    )
    return printable(kept if len(kept) <= WORDS_CHARACTERS else f"{kept[:WORDS_CHARACTERS]}…")


def _letters(text: str) -> tuple[str, list[tuple[int, int]]]:
    """The letters and digits of a text, small, with escapes read; and where each begins and ends in it."""
    letters: list[str] = []
    places: list[tuple[int, int]] = []
    for found in _WRITTEN.finditer(text):
        code = found["u"] or found["x"]
        one = (chr(int(code, 16)) if code else found["letter"] or "").lower()[:1]
        if one.isalnum():
            letters.append(one)
            places.append(found.span())
    return "".join(letters), places


def _name(value: object) -> str | None:
    """A name of the service's, as it may be shown: cut, and nothing that a terminal would act on."""
    if not isinstance(value, str):
        return None
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in value[:NAME_CHARACTERS])


def _tokens(usage: object, name: str) -> int | None:
    count = usage.get(name) if isinstance(usage, dict) else None
    return count if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < _MOST_TOKENS else None
