"""Reads a model's answer strictly: it is one JSON object of the requested form, or it has faults. SPEC 2.3.

The model is told a fault in our own words: no text of the solution or of the answer is repeated outside of a frame.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.errors import BadInput
from assay.folder import strict
from assay.judge.rubric.judgement import ANSWER_BYTES, QUOTE_CHARACTERS, QUOTE_LEAST, REASON_CHARACTERS
from assay.judge.rubric.questions import escape, normal_lines
from assay.settle.score.rubric import BASELINE, VERDICTS

FAULTS: Mapping[str, str] = {
    "refused": "it was a refusal to answer",
    "empty": "it was empty",
    "cut-off": "it was cut off before its end",
    "too-long": "it was too long",
    "not-json": "it was not one JSON object and nothing else, without a code fence, with each key once",
    "wrong-form": "it did not have the keys that are asked for, each once and no others, with strings as their values",
    "no-answer": "the answer was neither YES nor NO",
    "no-verdict": "the verdict was none of the six",
    "long-reason": "the reason was too long",
    "contradiction": "the answer was NO and yet there was a quote; with NO the quote is the empty string",
    "no-quote": "the answer was YES without a quote; quote the solution, or answer NO",
    "short-quote": "the quote was too short",
    "long-quote": "the quote was too long",
    "quote-not-found": "the quote was not found, character for character, in an item of the solution's frame",
}
"""Code of a fault → the sentence for the model."""


@dataclass(frozen=True)
class Reply:
    """A model's reply as the service returned it."""

    content: str | None
    refusal: str | None
    finish: str | None
    """`finish_reason`."""
    model: str | None
    """The model that the service names."""
    fingerprint: str | None


class Faulty(Exception):
    """The answer is not accepted. It has the code of the first fault, and each fault in words."""

    def __init__(self, code: str, sentences: Sequence[str] = ()) -> None:
        super().__init__(code)
        self.code, self.sentences = code, tuple(sentences) or (FAULTS[code],)


@dataclass(frozen=True)
class Answers:
    """Answers by name, with the reason of each, and the quote of each that is true."""

    answers: Mapping[str, bool]
    reasons: Mapping[str, str]
    quotes: Mapping[str, str]


@dataclass(frozen=True)
class VerdictAnswer:
    """A verdict and its reason."""

    verdict: str
    reason: str


def read_baseline(reply: Reply) -> Answers:
    """The answers of phase 1; raises Faulty."""
    return _answers(_object(reply, BASELINE), BASELINE, None)


def read_checks(reply: Reply, ids: Sequence[str], texts: Sequence[str], gutter: str = "") -> Answers:
    """The answers to the checks `ids`, each YES with a quote that is in one of the texts; raises Faulty.

    gutter: the digits with which each shown line begins; they are not part of a quote.
    """
    return _answers(_object(reply, ids), ids, texts, gutter)


def read_verdict(reply: Reply) -> VerdictAnswer:
    """The answer of phase 3; raises Faulty."""
    answer = _strings(_object(reply, ("reason", "verdict")), ("reason", "verdict"))
    if answer["verdict"] not in VERDICTS:
        raise Faulty("no-verdict")
    if len(answer["reason"]) > REASON_CHARACTERS:
        raise Faulty("long-reason")
    return VerdictAnswer(answer["verdict"], _printable(answer["reason"]))


def _object(reply: Reply, keys: Sequence[str]) -> dict[str, Any]:
    """The reply's JSON object, with exactly these keys. Raises Faulty."""
    if reply.refusal or reply.finish == "content_filter":
        raise Faulty("refused")
    if reply.finish == "length":
        raise Faulty("cut-off")
    if reply.content is None or not reply.content.strip():
        raise Faulty("empty")
    if reply.finish != "stop":
        raise Faulty("cut-off")
    try:
        if len(reply.content.encode()) > ANSWER_BYTES:
            raise Faulty("too-long")
        value = strict.parse(reply.content)
        strict.check(value)
    except (BadInput, UnicodeEncodeError):
        raise Faulty("not-json") from None
    if not isinstance(value, dict):
        raise Faulty("not-json")
    if value.keys() != set(keys):
        raise Faulty("wrong-form")
    return value


def _strings(value: object, keys: Sequence[str]) -> dict[str, str]:
    if not isinstance(value, dict) or value.keys() != set(keys):
        raise Faulty("wrong-form")
    if not all(isinstance(text, str) for text in value.values()):
        raise Faulty("wrong-form")
    return value


def _answers(document: Mapping[str, Any], names: Sequence[str], texts: Sequence[str] | None, gutter: str = "") -> Answers:
    """The answers. Raises Faulty with all faults; it names items by position, because their names are untrusted."""
    wrong: list[tuple[str, int]] = []
    answers: dict[str, bool] = {}
    reasons: dict[str, str] = {}
    quotes: dict[str, str] = {}
    for place, name in enumerate(names, 1):
        try:
            item = _strings(document[name], ("reason", "answer") if texts is None else ("reason", "quote", "answer"))
            if item["answer"] not in ("YES", "NO"):
                raise Faulty("no-answer")
            if len(item["reason"]) > REASON_CHARACTERS:
                raise Faulty("long-reason")
            yes = item["answer"] == "YES"
            if texts is not None:
                quote = _quote(item["quote"], texts, gutter, yes=yes)
                if yes:
                    quotes[name] = quote
            answers[name], reasons[name] = yes, _printable(item["reason"])
        except Faulty as fault:
            wrong.append((fault.code, place))
    if wrong:
        raise Faulty(wrong[0][0], [f"item {place} of {len(names)}: {FAULTS[code]}" for code, place in wrong])
    return Answers(answers, reasons, quotes)


def _quote(quoted: str, texts: Sequence[str], gutter: str, *, yes: bool) -> str:
    if not yes:
        if quoted:
            raise Faulty("contradiction")
        return ""
    quote = normal_lines(quoted)
    size = _ink(quote)
    if not size:
        raise Faulty("no-quote")
    if len(quote) > QUOTE_CHARACTERS:
        raise Faulty("long-quote")
    bare = re.sub(rf"^{gutter} [0-9]+\|", "", quote, flags=re.MULTILINE) if gutter else quote
    for read in (quote, escape(quote), bare, escape(bare)):  # the model may quote the character that an escape stands for
        within = [text for text in texts if read in text]
        if within:
            break
    else:
        raise Faulty("quote-not-found")
    quote, size = read, _ink(read)
    if not size:
        raise Faulty("no-quote")
    if size < QUOTE_LEAST and all(size < _ink(text) for text in within):
        raise Faulty("short-quote")
    return quote


def _ink(text: str) -> int:
    """The number of characters that are not white space."""
    return sum(map(len, text.split()))


def _printable(text: str) -> str:
    """A model's text made printable, so that it cannot control a terminal."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)
