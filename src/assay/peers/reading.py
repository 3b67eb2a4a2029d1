"""JSON of a peer: bounded in bytes, parts and nesting before anything is made of it.

Thirty-two megabytes of `[],` become a gigabyte of lists: a part takes many times its bytes in memory.
Parts are brackets, commas and strings; they are counted in the text, and strings are looked at as a whole.
A file by itself because those who read JSON that came by other ways (a websocket, a file) need no network library for it.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from assay.peers import NoAnswer, Overrun

__all__ = ["DEPTH", "PARTS", "bounded", "parsed", "parsed_aside"]

PARTS = 200_000
"""Brackets, commas and strings of one answer."""
DEPTH = 64
"""Objects and lists inside one another."""
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{,\]}]', re.DOTALL)  # possessive: nothing is kept for going back
_ASIDE = 65_536


def bounded(text: str, parts: int = PARTS, depth: int = DEPTH) -> None:
    """Refuse a text with more parts, or nested deeper. Raises Overrun."""
    if sum(map(text.count, '[{,"')) <= parts and text.count("[") + text.count("{") <= depth:
        return  # the rule: counting without looking at what is a string errs on the safe side
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
    """The value of a JSON text. Raises Overrun above the bounds, and NoAnswer for what is no JSON."""
    try:
        text = data if isinstance(data, str) else data.decode()
        bounded(text, parts, depth)
        return json.loads(text)
    except (ValueError, RecursionError):  # UnicodeDecodeError is one
        raise NoAnswer("not JSON") from None


async def parsed_aside(data: bytes, *, parts: int = PARTS, depth: int = DEPTH) -> Any:
    """The same, and what is large is read in a thread, so that the event loop goes on."""
    if len(data) <= _ASIDE:
        return parsed(data, parts=parts, depth=depth)
    return await asyncio.to_thread(parsed, data, parts=parts, depth=depth)
