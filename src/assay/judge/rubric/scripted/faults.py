"""What is said, spoilt: each kind in one of the ways in which models do go wrong."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["spoilt"]


def spoilt(kind: str, said: dict[str, Any]) -> str:
    """The content that a fault of this kind makes of an answer."""
    text = json.dumps(said, ensure_ascii=False)
    whole = {
        "empty": "",
        "prose": f"Here is my answer: {text}",
        "fence": f"```json\n{text}\n```",
        "think": f"<think>\nIs it YES or NO?\n</think>\n\n{text}",
        "not-json": text[:-1],
        "list": f"[{text}]",
        "twice": f"{text[:-1]}, {text[1:]}",
        "missing": json.dumps(dict(list(said.items())[1:])),
        "extra": json.dumps({**said, "score": "10000"}),
        "surrogate": text[:-1] + ', "\\ud800": ""}',
    }
    if kind in whole:
        return whole[kind]
    first = next(iter(said))
    one = said[first] if isinstance(said[first], dict) else said
    spoils: dict[str, dict[str, Any]] = {
        "booleans": {"answer": True, "verdict": True},
        "numbers": {"answer": 1, "verdict": 1},
        "maybe": {"answer": "MAYBE", "verdict": "MAYBE"},
        "contradiction": {"answer": "NO", "quote": "a quote that is none"},
        "no-quote": {"answer": "YES", "quote": " \n"},
        "foreign-quote": {"answer": "YES", "quote": "a text that the solution does not have, surely"},
        "short-quote": {"answer": "YES", "quote": "a"},
        "no-verdict": {"verdict": "SUPERB"},
        "long-reason": {"reason": "so " * 2000},
    }
    changed = {**one, **{name: value for name, value in spoils[kind].items() if name in one}}
    return json.dumps(changed if one is said else {**said, first: changed})
