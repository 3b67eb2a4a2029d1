"""Parses a peer's JSON within bounds: its parts and its nesting are counted in the text, before it is parsed.

A part takes many times its bytes in memory: thirty-two megabytes of `[],` become a gigabyte of lists. Parts are brackets, commas
and strings. This is a file of its own, because JSON from a websocket or a file needs no network library.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from assay.peers import NoAnswer, Overrun

__all__ = ["DEPTH", "PARTS", "bounded", "parsed", "parsed_aside"]

PARTS = 200_000
"""Most brackets, commas and strings of one answer."""
DEPTH = 64
"""Nesting of objects and lists."""
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{,\]}]', re.DOTALL)  # possessive: no backtracking
_ASIDE = 65_536


def bounded(text: str, parts: int = PARTS, depth: int = DEPTH) -> None:
    """Refuse a text with more parts or deeper nesting. Raises Overrun."""
    if sum(map(text.count, '[{,"')) <= parts and text.count("[") + text.count("{") <= depth:
        return  # the usual case: a count that ignores strings is never too low
    seen = within = 0
    for token in _TOKEN.finditer(text):
        match token[0][0]:
            case "]" | "}":
                within -= 1
                continue
            case "[" | "{":
                within += 1
        seen += 1
        if seen > parts:
            raise Overrun(f"more than {parts} parts")
        if within > depth:
            raise Overrun(f"nested more than {depth} deep")


def parsed(data: bytes | str, *, parts: int = PARTS, depth: int = DEPTH) -> Any:
    """The value of a JSON text. Raises Overrun above the bounds, and NoAnswer if it is not JSON."""
    try:
        text = data if isinstance(data, str) else data.decode()
        bounded(text, parts, depth)
        return json.loads(text)
    except (ValueError, RecursionError):  # UnicodeDecodeError is one
        raise NoAnswer("not JSON") from None


async def parsed_aside(data: bytes, *, parts: int = PARTS, depth: int = DEPTH) -> Any:
    """As `parsed`; a large text is parsed in a thread, so that the event loop goes on."""
    if len(data) <= _ASIDE:
        return parsed(data, parts=parts, depth=depth)
    return await asyncio.to_thread(parsed, data, parts=parts, depth=depth)
