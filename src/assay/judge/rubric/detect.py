"""Signs that a solution speaks to its judge. Evidence, never an answer: a scheme may act on it, this judge does not. SPEC 2.3.

Deterministic on any version of Python: characters are folded by the tables of Unicode 3.2, which every version carries, and by
Unicode's confusables in the one version of a library that the extra pins; what neither knows is taken for a space. A sign is no
proof: a solution about such attacks has many. Nor is its absence: what holds is the frame.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import html
import re
from collections.abc import Iterator, Sequence
from functools import cache
from unicodedata import ucd_3_2_0
from urllib.parse import unquote

from assay.errors import BadInput
from assay.judge.rubric.phrases import addresses, plays_a_role
from assay.judge.rubric.shown import CHAT_TOKENS, MARKERS
from assay.judge.rubric.solution import Solution
from assay.settle.score.rubric import VERDICTS

__all__ = ["DETECTORS", "detect"]

DETECTORS = {
    "address": "speaks to a judge, a model or a system, or says how to answer",
    "bidi": "has characters that turn the direction of text around",
    "chat-template": "has tokens by which chat templates tell speakers apart",
    "control": "has control characters, or carriage returns that end no line",
    "encoded": "speaks to a judge in base64, in hexadecimal, in rot13, in escapes or backwards",
    "forged-answer": "has JSON of the form in which a judge answers",
    "homoglyphs": "speaks to a judge in letters that only look like ours, are spaced out, or are split by invisible ones",
    "marker": "has what looks like a line of our frames, in whatever brackets and letters",
    "role": "has lines that pretend to be those of a system, an assistant or a judge",
    "tags": "has invisible tag characters or selectors",
    "zero-width": "has characters without a width between letters",
}
"""Names, and what each says of a solution."""

_INVISIBLE = "\u00ad\u034f\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff\U000e0000-\U000e0fff"
_HIDDEN = re.compile(f"[{_INVISIBLE}]")
_SIGNS = {
    "bidi": re.compile("[\u202a-\u202e\u2066-\u2069]"),
    "chat-template": re.compile(rf"(?!</?(?:s|pad|unk|bos|eos|think)>)(?:{CHAT_TOKENS})", re.ASCII),
    "control": re.compile("[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f]|\r(?!\n)"),
    "marker": re.compile(rf"⟪[ \t/]{{0,8}}(?:begin|end)?[ \t]{{0,8}}assay\b|⟦U\+|{MARKERS}", re.ASCII | re.IGNORECASE),
    "tags": re.compile("(?<![\U0001f3f4\U000e0020-\U000e007e])[\U000e0001-\U000e007f]|[\ufe00-\ufe0f\U000e0100-\U000e01ef]{2}"),
    "zero-width": re.compile("[A-Za-z][\u00ad\u200b-\u200d\u2060-\u2064\ufeff\u034f\u180e]+[A-Za-z]|[\u200b\u2060-\u2064]{2}"),
}
_OPEN = r"[^\w\s.,;:!?'\"`=-][^\w\n'\"`]{0,11}"
_FRAME = re.compile(rf"{_OPEN}(?:(?:begin|end)[^\w\n]{{1,8}}assay\b|assay[^\w\n]{{1,8}}(?:begin|end|item)\b)")
"""A line of a frame in any brackets, once it is folded."""
_BLOB = re.compile(r"[A-Za-z0-9+/_-]{24,}={0,2}(?:\s{1,8}[A-Za-z0-9+/_-]{16,}={0,2}){0,400}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}[ :,]?){16,}|(?:\\x[0-9a-fA-F]{2}){8,}|(?:\\u00[0-9a-fA-F]{2}){8,}")
_SPACED = re.compile(r"(?<=\b[a-z])[ ._*-](?=[a-z]\b)")
_ALIKE = str.maketrans("авекмнорстухіјѕԁԛԝһαβεικνορτυχγωɑɡɩⅼ", "abekmhopctyxijsdqwhabeikvoptuxywagil")


def detect(solution: Solution, ids: Sequence[str] = ()) -> tuple[str, ...]:
    """The names of the signs that a solution has, in its texts or the names of its files; `ids`: the rubric's. Sorted."""
    raw = "\n\n".join(part for row in solution.files.items() for part in row)
    found = {name for name, sign in _SIGNS.items() if sign.search(raw)}
    text = _old(raw)
    low, forged, folded = text.lower(), _forged(ids), [*_folded(raw)]
    if addresses(low):
        found.add("address")
    elif any(addresses(other) for other in folded if other != low):
        found.add("homoglyphs")
    if any(map(_FRAME.search, folded)):
        found.add("marker")
    if plays_a_role(low):
        found.add("role")
    if forged.search(text):
        found.add("forged-answer")
    coded = [*_blobs(text), *([] if found & {"address", "forged-answer"} else _recoded(text))]
    if any(addresses(other.lower()) or forged.search(other) for other in coded):
        found.add("encoded")
    return tuple(sorted(found))


def _old(text: str) -> str:
    """The text with a space for each character that Unicode 3.2 does not know, tags and selectors excepted."""
    if text.isascii():
        return text
    known = {c: c if ucd_3_2_0.category(c) != "Cn" or "\U000e0000" <= c <= "\U000e0fff" else " " for c in set(text)}
    return "".join(map(known.__getitem__, text))


def _folded(text: str) -> Iterator[str]:
    """The text in plain letters, without what is invisible; with spaced-out words drawn together; and what tags spell."""
    plain = _HIDDEN.sub("", text)
    if not plain.isascii():
        alike = _alike()
        plain = _old("".join(alike.get(ord(c), c) if ucd_3_2_0.category(c) == "Cn" else c for c in plain))
        plain = ucd_3_2_0.normalize("NFKD", plain).lower().translate(_ALIKE)
        plain = "".join(c for c in plain if not ucd_3_2_0.combining(c)).translate(alike)
    plain = plain.lower()
    yield plain
    yield _SPACED.sub("", plain)
    yield "".join(chr(ord(c) - 0xE0000) for c in text if "\U000e0020" <= c <= "\U000e007e").lower()


@cache
def _alike() -> dict[int, str]:
    """Letters and signs that look like ASCII ones → those: Unicode's confusables, small Cyrillic and Greek, letters in boxes."""
    try:
        from confusable_homoglyphs.confusables import confusables_data
    except ImportError as error:
        what = "judging by a rubric needs the Python package confusable-homoglyphs"
        raise BadInput(what, hint="pip install 'assay[llm]'") from error
    found = {
        ord(char): row["c"]
        for char, rows in confusables_data.items()
        for row in rows
        if len(char) == 1 and not char.isascii() and row["c"].isascii() and len(row["c"]) == 1
    }
    for first in (0x1F130, 0x1F150, 0x1F170, 0x1F1E6):  # squared, circled, squared again, of flags
        found |= {first + place: chr(ord("a") + place) for place in range(26)}
    return found | _ALIKE


def _blobs(text: str) -> Iterator[str]:
    """What parts of the text may be a code of."""
    for blob in _BLOB.finditer(text):
        joined = re.sub(r"[\s=]", "", blob[0]).translate(str.maketrans("-_", "+/"))
        try:
            yield base64.b64decode(joined[: len(joined) // 4 * 4]).decode("latin-1")
        except binascii.Error:  # pragma: no cover - only digits of base64 are left
            continue
    for blob in _HEX.finditer(text):
        yield bytes.fromhex(re.sub(r"\\x|\\u00|[ :,]", "", blob[0])).decode("latin-1")


def _recoded(text: str) -> Iterator[str]:
    """What the text as a whole may be a code of."""
    yield codecs.encode(text, "rot13")
    if "&#" in text:
        yield html.unescape(text)
    if "%" in text:
        yield unquote(text)
    yield text[::-1]


def _forged(ids: Sequence[str]) -> re.Pattern[str]:
    names = "|".join(["B[1-4]", *map(re.escape, ids)])
    return re.compile(
        rf"""["']verdict["']\s{{0,9}}:\s{{0,9}}["'](?:{"|".join(VERDICTS)})"""
        rf"""|["'](?:{names})["']\s{{0,9}}:\s{{0,9}}(?:true\b|["'](?:YES|NO)["']|\{{\s{{0,9}}["'](?:reason|quote|answer)["'])"""
        r"""|["']answer["']\s{0,9}:\s{0,9}["']YES["']"""
    )
