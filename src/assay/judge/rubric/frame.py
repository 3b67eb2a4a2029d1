"""The frame around what others wrote: lines that they cannot write, since each has a key that they cannot know. SPEC 2.3.

    ⟪assay begin solution KEY: sha256:…, 1 file, 56 bytes⟫
    ⟪assay item 1 of 1 KEY: "main.py", 56 bytes⟫
    KEY8 1|…
    KEY8 2|…
    ⟪assay end item 1 of 1 KEY⟫
    ⟪assay end solution KEY⟫

KEY is derived from the digests of the bounty, the solution and the prompts, and from what is in the frame: a solution that had it
would have to have its own digest. What is inside is `shown`, and so has neither ⟪ nor ⟫. Sizes are those of the text as shown.
Each line of a text has a gutter: the first eight digits of the key, and its number. So no line of others begins as one of ours
does, whatever its characters look like.
The key is the same in each phase, so that all questions on a solution begin alike and a service can keep what it has read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from assay.exact import canonical
from assay.judge.rubric.shown import shown

__all__ = ["GUTTER", "KINDS", "Frames", "Item", "guttered"]

KINDS = ("problem", "solution", "checks")
GUTTER = 8
"""Digits of the key in a gutter."""
_TAG = b"assay.frame/2\x00"


@dataclass(frozen=True)
class Item:
    """One text of others in a frame: what it is called (a path, an id) and the text, both as they came."""

    name: str
    text: str


@dataclass(frozen=True)
class Frames:
    """The frames of one judgement: of this bounty and this solution, under these prompts."""

    bounty: str
    submission: str
    prompts: str

    def key(self, kind: str) -> str:
        """32 hexadecimal digits that nobody can write into what is framed by them."""
        return sha256(_TAG + canonical([self.bounty, self.submission, self.prompts, kind])).hexdigest()[:32]

    def around(self, kind: str, items: Sequence[Item], *, about: str = "") -> str:
        """The items in their frame; `about` is ours, and is said where the frame begins."""
        key, count = self.key(kind), len(items)
        lines: list[str] = []
        total = 0
        for number, item in enumerate(items, 1):
            text = shown(item.text)
            size = len(text.encode())
            total += size
            lines += [
                f"⟪assay item {number} of {count} {key}: {_name(item.name)}, {size} bytes⟫",
                guttered(key[:GUTTER], text.removesuffix("\n")),
                f"⟪assay end item {number} of {count} {key}⟫",
            ]
        said = ", ".join(part for part in (about, f"{count} items" if count != 1 else "1 item", f"{total} bytes") if part)
        return "\n".join([f"⟪assay begin {kind} {key}: {said}⟫", *lines, f"⟪assay end {kind} {key}⟫"])


def guttered(key: str, text: str) -> str:
    """The text with a gutter before each line: the digits of a key, the line's number from 1, a bar."""
    return "\n".join(f"{key} {number}|{line}" for number, line in enumerate(text.split("\n"), 1))


def _name(name: str) -> str:
    return json.dumps(shown(name), ensure_ascii=False)
