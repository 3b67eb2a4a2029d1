"""The characters that a key, a task, a name or a submission may have: one list for every version of Unicode. SPEC 1.

The meaning of "printable" or "a letter" changes with each version of Unicode, and each Python has the tables of its year: U+1FAE8
is unknown to 3.11 and a face to 3.13. So nothing that affects a settlement uses those tables. Refused are:

- C0, DEL and C1: U+0000–001F, 007F–009F
- the line and paragraph separators: U+2028, 2029
- characters that turn the direction of writing: U+061C, 200E, 200F, 202A–202E, 2066–2069
- characters without a width: U+200B–200D, 2060, FEFF
- halves of a pair of surrogates: U+D800–DFFF
- noncharacters: U+FDD0–FDEF, and the last two of each plane (U+FFFE, FFFF, 1FFFE, 1FFFF … 10FFFE, 10FFFF)

Every other character is accepted, assigned or not. This room stands below `errors`, because a message shows what a file holds.
"""

from __future__ import annotations

import re

__all__ = ["PATTERN", "REFUSED", "allowed", "mixed_word", "printable", "unmasked"]

REFUSED: tuple[tuple[int, int], ...] = (
    (0x0000, 0x001F),
    (0x007F, 0x009F),
    (0x061C, 0x061C),
    (0x200B, 0x200F),
    (0x2028, 0x202E),
    (0x2060, 0x2060),
    (0x2066, 0x2069),
    (0xD800, 0xDFFF),
    (0xFDD0, 0xFDEF),
    (0xFEFF, 0xFEFF),
    *((plane + 0xFFFE, plane + 0xFFFF) for plane in range(0, 0x110000, 0x10000)),
)
"""The first and the last of each run of characters that are refused, ascending."""


def _run(first: int, last: int) -> str:
    """A run as it stands in brackets; above U+FFFF as it is, since engines do not agree on an escape there."""
    ends = (first, last) if first < last else (first,)
    return "-".join(f"\\u{point:04x}" if point < 0x10000 else chr(point) for point in ends)


PATTERN = f"[{''.join(_run(*run) for run in REFUSED if run != (0xD800, 0xDFFF))}]"
"""A refused character as a regular expression that ECMA-262 (with `u`), Python and Rust read alike. JSON has no surrogates."""

_REFUSED = re.compile(f"[{''.join(_run(*run) for run in REFUSED)}]")


def allowed(text: str) -> bool:
    """Whether the text holds none of the refused characters."""
    return _REFUSED.search(text) is None


def printable(text: str) -> str:
    """The text as one line, refused characters written out as in `\\x1b`: what a file holds cannot move the cursor."""
    return text if allowed(text) else _REFUSED.sub(lambda match: ascii(match[0])[1:-1], text)


# Names that people choose: a service refuses those that pass for others. No settlement depends on what follows.

_SCRIPTS = {
    "Latin": "A-Za-z\u00aa\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff",
    "Greek": "\u0370-\u0373\u0376-\u037d\u037f-\u0386\u0388-\u03ff\u1f00-\u1fff",
    "Cyrillic": "\u0400-\u0481\u048a-\u052f\u1c80-\u1c8f\ua640-\ua66e\ua680-\ua69d",
}
"""The letters of scripts that share shapes, as in the brackets of a regular expression."""
_MARKS = "\u0300-\u036f\u0483-\u0489"
"""Marks above and below letters of any of these scripts."""
_WORD = re.compile(f"[{''.join(_SCRIPTS.values())}{_MARKS}]+")
_LETTERS = {script: re.compile(f"[{letters}]") for script, letters in _SCRIPTS.items()}
_LOOK_ALIKE = str.maketrans(
    "АВЕЅІЈКМНОРСТУҮХԌԚԜӀаеѕіјкорсуүхһԁԛԝӏΑΒΕΖΗΙΚΜΝΟΡΤΥΧͿαγικνορυϳ",
    "ABESIJKMHOPCTYYXGQWIaesijkopcyyxhdqwlABEZHIKMNOPTYXJayikvopuj",
)
"""Cyrillic and Greek letters, and the Latin ones that nobody can tell from them."""


def mixed_word(text: str) -> tuple[str, list[str]] | None:
    """The first word with letters of several scripts that share shapes, and these scripts; None if there is none."""
    for word in _WORD.findall(text):
        scripts = [script for script, letters in _LETTERS.items() if letters.search(word)]
        if len(scripts) > 1:
            return word, scripts
    return None


def unmasked(text: str) -> str:
    """The text with Latin letters in the place of Cyrillic and Greek ones that look like them."""
    return text.translate(_LOOK_ALIKE)
