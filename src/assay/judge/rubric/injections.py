"""Detects signs that a solution speaks to its judge. They change no answer, but a scheme may act on them. SPEC 2.3.

The result is the same on any version of Python: characters are folded by the tables of Unicode 3.2, which every version has, and
by Unicode's confusables in the library version that the extra pins. A character that is in neither becomes a space. A sign is not
a proof: a solution about such attacks has many. The absence of signs proves nothing either: the frame is the defence.

Phrases are found in the lower-case text by their first words. A line of `_LINES` has the first words, a colon, and the phrases
that may follow. There a space matches anything between two words, ~4 up to four words, a name in capitals one of `_NAMES`; the
rest is a regular expression. Every repetition has a bound.
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
from assay.judge.rubric.questions import CHAT_TOKENS, MARKERS
from assay.judge.rubric.solution import Solution
from assay.settle.score.rubric import VERDICTS

_NAMES = {
    "JUDGE": "(?:judge|grader|evaluator|scorer|rater|assessor|llm|(?:large )?language model|ai(?: (?:model|system|reviewer))?"
    "|assistant|chatbot|gpt)s?",
    "TOLD": "(?:instructions?|prompts?|rules?|messages?|directions?|guidelines?|rubric|checks|criteria)",
    "EARLIER": "(?:previous|prior|above|earlier|preceding|foregoing|your|judge|system|hidden|sponsor)",
    "CHECKS": "(?:checks?|criteri[a-z]+|baselines?|items?)",
    "THIS": "(?:submission|solution|rubric|entry|work)",
    "TOP": "(?:full|maximum|max|top|highest|perfect|best)(?: possible)? (?:marks?|scores?|points?|verdict|grade|bps)",
    "SPEAKER": "(?:sponsor|operator|administrator|admin|judge|grader|system|assay)",
}
_LINES = """
ignore ignoring disregard forget override overrule follow following: ~4 EARLIER ~2 TOLD
ignore ignoring disregard forget override overrule: (?:(?:all|any|the|every) ){0,2}(?:instructions?|rubric)
ignore ignoring disregard forget: ~2 (?:everything|anything|all) ~3 (?:above|before|told|said)
new: (?:instructions?|rules|task|orders) (?:for|to) (?:you|the judge|the model|the ai)
ignore reveal repeat print output new updated end override: ~3 system (?:prompt|message|instructions?)
you: (?:are|re|will be|must act as|act as)(?: now| no longer)?(?: an?| the| my)? ~2 JUDGE
dear attention hey hello: (?:(?:the|all|any) )?JUDGE
note message instruction instructions: (?:to|for) (?:(?:the|all|any) )?JUDGE
if: you(?: are|'re) an? JUDGE
as: an? (?:ai|llm|language model|judge|grader|evaluator) you
from: now on (?:you|answer|the verdict)
pretend: (?:that )?you (?:are|re|have)
let lets: (?:s )?(?:play a game|role play|roleplay)
you: are now (?:an? )?(?:dan|unrestricted|jailbroken)
am is: (?:i )?the (?:sponsor|judge|operator|administrator|system)\\b(?! (?:s|of|is|in|at|on|for|under|where|that|which|who|we|to))
sponsor operator administrator admin judge grader system assay: (?:s )?(?:note|override|notice|directive|update)s?\\b\\s?[:\\]]
answer mark grade score rate evaluate count treat: ~4 (?:CHECKS|THIS) ~3 (?:yes|exceptional|elegant|met|passed|full marks)
answer respond reply say: ~3 yes (?:to|for|on) (?:all|every|each) ~1 CHECKS
all every each: ~2 CHECKS ~1 (?:are|is|must be|should be) ~1 (?:yes|met|true|satisfied)
verdict: (?:(?:is|must be|should be|to be|to|of) )?(?:exceptional|elegant)
give award assign grant: ~2 (?:me|us|it|answer|THIS) ~3 TOP
score rate grade mark: (?:this|my|our) THIS ~2 (?:10000|100|highest|perfect|exceptional)
your: (?:answer|judge?ment|verdict|evaluation|reply|response) (?:must|should|will|shall) (?:be|say|contain|include|read|state)
not don never: (?:t )?(?:mention|reveal|report|flag|quote) ~2 (?:instructions?|injection|messages?|text|note|comment)
end: of (?:the )?(?:untrusted|frame|participant|quoted material)
end: of (?:the )?(?:solution|submission) ~2 (?:now|new|system|assay|judge|next|instructions?|begin)
approved preapproved already: ~3 by ~2 (?:sponsor|judge|administrator|operator|assay|committee|organi[sz]ers?)
ignoriere ignorieren vergiss missachte: ~4 (?:anweisung|vorgabe|prompt|regeln?)[a-z]{0,3}
ignorez oubliez: ~4 (?:instructions|consignes)
ignora ignore olvida: ~4 (?:instrucciones|instruções|istruzioni)
игнорируй игнорируйте проигнорируй забудь забудьте: ~4 (?:инструкци|указани|правил)[а-я]{0,3}
"""
_UNSPACED = re.compile(
    "(?:忽略|无视|無視|忘记|忘記).{0,8}(?:指令|指示|提示|规则|規則)|(?:以前|これまで|上記).{0,6}(?:指示|命令).{0,6}(?:無視|忘れ)"
)
_WORDS = re.compile(r"\w+")


def _name_pattern(pattern: str) -> str:
    for name, meaning in _NAMES.items():
        pattern = pattern.replace(name, meaning)
    return pattern


def _phrase_pattern(pattern: str) -> re.Pattern[str]:
    """The gap between words is bounded and contains no word characters, so no text makes the search slow."""
    between = r"\W{1,40}"
    spaced = re.sub(" ?~([0-9]) ", lambda gap: f" (?:\\w{{1,40}} ){{0,{gap[1]}}}?", pattern).lstrip()
    return re.compile(f"{between}{_name_pattern(spaced)}(?!\\w)".replace(" ", between))


def _by_first_word() -> dict[str, tuple[re.Pattern[str], ...]]:
    by_word: dict[str, list[re.Pattern[str]]] = {}
    for line in _LINES.strip().splitlines():
        first, _, rest = line.partition(": ")
        pattern = _phrase_pattern(rest)
        for word in first.split():
            by_word.setdefault(word, []).append(pattern)
    return {word: tuple(patterns) for word, patterns in by_word.items()}


_PHRASES = _by_first_word()
_ROLE = re.compile(
    "|".join(
        (
            _name_pattern(
                r"^[ \t#/*>;|(\[{!-]{0,12}(?:SPEAKER|assistant|developer|human)\b[ a-z]{0,20}[\])}>]? ?[:：][^\w\n]{0,4}"
            )
            + "(?:you|your|ignore|disregard|the (?:judge|grader|solution|submission|participant|verdict)|please|from now"
            "|new instructions?|override|answer|verdict|all checks|i have|i find|understood|sure|set the)\\b",
            r"^[ \t]{0,8}#{1,6} ?system (?:prompt|message|override|instructions?)\b",
            "</?(?:system|assistant|untrusted[a-z_]{0,20}|judge[a-z_]{0,20}|submission|user_input|human)>",
            r"\[(?:system|assistant|judge) (?:message|prompt|note|says)[ a-z]{0,20}\]",
            r"\[end of (?:document|solution|submission|input)\]",
        )
    ),
    re.MULTILINE,
)


def addresses_judge(low: str) -> bool:
    """Whether a lower-case text speaks to a judge, a model or a system, or says how to answer."""
    for word in _WORDS.finditer(low):
        for pattern in _PHRASES.get(word[0], ()):
            if pattern.match(low, word.end()):
                return True
    return not low.isascii() and _UNSPACED.search(low) is not None


def plays_a_role(low: str) -> bool:
    """Whether a lower-case text has lines that pretend to be those of a system, an assistant or a judge."""
    return _ROLE.search(low) is not None


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
"""Name of a sign → what it says about a solution."""

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
"""A line of a frame, in any brackets, after folding."""
_BLOB = re.compile(r"[A-Za-z0-9+/_-]{24,}={0,2}(?:\s{1,8}[A-Za-z0-9+/_-]{16,}={0,2}){0,400}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}[ :,]?){16,}|(?:\\x[0-9a-fA-F]{2}){8,}|(?:\\u00[0-9a-fA-F]{2}){8,}")
_SPACED = re.compile(r"(?<=\b[a-z])[ ._*-](?=[a-z]\b)")
_ALIKE = str.maketrans("авекмнорстухіјѕԁԛԝһαβεικνορτυχγωɑɡɩⅼ", "abekmhopctyxijsdqwhabeikvoptuxywagil")


def detect(solution: Solution, ids: Sequence[str] = ()) -> tuple[str, ...]:
    """The sorted names of the signs in a solution's texts and file names. ids: of the rubric's checks."""
    raw = "\n\n".join(part for row in solution.files.items() for part in row)
    signs = {name for name, sign in _SIGNS.items() if sign.search(raw)}
    text = _old(raw)
    low, forged, folded = text.lower(), _forged(ids), [*_folded(raw)]
    if addresses_judge(low):
        signs.add("address")
    elif any(addresses_judge(other) for other in folded if other != low):
        signs.add("homoglyphs")
    if any(map(_FRAME.search, folded)):
        signs.add("marker")
    if plays_a_role(low):
        signs.add("role")
    if forged.search(text):
        signs.add("forged-answer")
    coded = [*_blobs(text), *([] if signs & {"address", "forged-answer"} else _recoded(text))]
    if any(addresses_judge(other.lower()) or forged.search(other) for other in coded):
        signs.add("encoded")
    return tuple(sorted(signs))


def _old(text: str) -> str:
    """The text with a space for each character that Unicode 3.2 does not have, except tags and selectors."""
    if text.isascii():
        return text
    known = {c: c if ucd_3_2_0.category(c) != "Cn" or "\U000e0000" <= c <= "\U000e0fff" else " " for c in set(text)}
    return "".join(map(known.__getitem__, text))


def _folded(text: str) -> Iterator[str]:
    """The text in plain letters without invisible characters; the same with spaced-out words joined; the text in tags."""
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
    """A character that looks like an ASCII one → that one: Unicode's confusables, Cyrillic and Greek, boxed letters."""
    try:
        from confusable_homoglyphs.confusables import confusables_data
    except ImportError as error:
        what = "judging by a rubric needs the Python package confusable-homoglyphs"
        raise BadInput(what, hint="pip install 'assay[llm]'") from error
    letters = {
        ord(char): row["c"]
        for char, rows in confusables_data.items()
        for row in rows
        if len(char) == 1 and not char.isascii() and row["c"].isascii() and len(row["c"]) == 1
    }
    for first in (0x1F130, 0x1F150, 0x1F170, 0x1F1E6):  # squared, circled, squared again, of flags
        letters |= {first + place: chr(ord("a") + place) for place in range(26)}
    return letters | {code: chr(letter) for code, letter in _ALIKE.items()}


def _blobs(text: str) -> Iterator[str]:
    """Decodings of parts of the text."""
    for blob in _BLOB.finditer(text):
        joined = re.sub(r"[\s=]", "", blob[0]).translate(str.maketrans("-_", "+/"))
        try:
            yield base64.b64decode(joined[: len(joined) // 4 * 4]).decode("latin-1")
        except binascii.Error:  # pragma: no cover - only digits of base64 are left
            continue
    for blob in _HEX.finditer(text):
        yield bytes.fromhex(re.sub(r"\\x|\\u00|[ :,]", "", blob[0])).decode("latin-1")


def _recoded(text: str) -> Iterator[str]:
    """Decodings of the whole text."""
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
