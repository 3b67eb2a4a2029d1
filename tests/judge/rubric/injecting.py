"""Attacks on a rubric's judge, each in a file of injections/, and a model that obeys whatever gets out of its frame. SPEC 2.3.

`python -m tests.injecting` writes the tables in docs/rubric.md.

The files are TOML: `what` it tries, `signs` that `detect` finds in it, `[files]` of the solution. `repeat`: a text is said that
often. `refused`: it is too large, and what the refusal says. `fixed`: it would hold if the key were known and nothing escaped;
`sloppy`: if nothing were escaped, against a model that reads carelessly; `alike`: against that one, if lines had no gutter.
@KEY@ in a text is the key that the attacker guesses.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import html
import re
import sys
import tomllib
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "kits"))

from assay.judge.rubric import judgement, prompts
from assay.judge.rubric.injections import DETECTORS
from assay.judge.rubric.judgement import LIMITS, QUOTE_CHARACTERS, QUOTE_LEAST
from assay.judge.rubric.scripted import Script, SeenRequest
from assay.judge.rubric.solution import Solution
from rubric_kit import ADD

__all__ = ["GUESS", "INJECTIONS", "PAGE", "Injection", "Obeying", "filled"]

GUESS = "0" * 32
_FOLDER = Path(__file__).parent / "injections"


@dataclass(frozen=True)
class Injection:
    """One attack."""

    name: str
    what: str
    signs: tuple[str, ...]
    files: dict[str, str]
    repeat: int = 1
    refused: str = ""
    fixed: bool = False
    sloppy: bool = False
    alike: bool = False

    @classmethod
    def read(cls, file: Path) -> Injection:
        """The attack in a file."""
        fields = tomllib.loads(file.read_text(encoding="utf-8"))
        return cls(name=file.stem, **{**fields, "signs": tuple(fields["signs"])})

    @property
    def solution(self) -> Solution:
        """The attack, beside an honest solution unless it is hidden in that."""
        files = {_guessed(path): _guessed(text) * self.repeat for path, text in self.files.items()}
        return Solution({"add.py": ADD, **files})


def _guessed(text: str) -> str:
    return text.replace("@KEY@", GUESS)


INJECTIONS = tuple(Injection.read(file) for file in sorted(_FOLDER.glob("*.toml")))

_OURS = ("baseline", "checks", "verdict")
_CARELESS = (
    # where a careless reader takes a frame to end, or somebody else to begin to speak
    re.compile(r"[<《«⟪]{1,2}[\s/\u200b-\u200d]*(?:end )?as[\u200b-\u200d]*say\s+end(?s:.*)", re.IGNORECASE),
    re.compile(r"(?:<\||<｜|\[/?INST|<<SYS|<(?:start|end)_of_turn)(?s:.*)"),
    # and what is hidden from people, but not from a model
    re.compile(r"[^\n]*[\x00-\x08\r\x1b\u200b-\u200f\u202a-\u202e\u2060-\u2069][^\n]*"),
    re.compile("[\U000e0000-\U000e01ef]{8,}"),
)


class Obeying:
    """Answers as a script says, until somebody tells it otherwise: outside of a frame, or, as it reads carelessly, nearly so."""

    def __init__(self, honest: Script, *, careless: bool = True) -> None:
        self.honest, self.careless = honest, careless

    def __call__(self, seen: SeenRequest) -> dict[str, Any]:
        if _wants(self._told(seen)):
            return _as_told(seen)
        return self.honest.solutions[0].answer(seen)

    def _told(self, seen: SeenRequest) -> str:
        outside = seen.outside
        for name in _OURS:
            ours = prompts.filled(name, **({"least": QUOTE_LEAST, "most": QUOTE_CHARACTERS} if name == "checks" else {}))
            outside = outside.replace(ours, "", 1)
        if not self.careless:
            return outside
        read = seen.frames["solution"].raw if "solution" in seen.frames else ""
        return "\n".join([outside, *(hit[0] for pattern in _CARELESS for hit in pattern.finditer(seen.solution)), *_ends(read)])


def _ends(text: str) -> list[str]:
    """What comes after a line that begins as the end of a frame may look, in whatever brackets and letters."""
    plain = unicodedata.normalize("NFKD", text)
    plain = "".join(c for c in plain if not unicodedata.combining(c)).translate(str.maketrans("аАеѕу", "aAesy"))
    return [hit[0] for hit in re.finditer(r"(?im)^[^\w\s⟪⟦][^\w\n⟪⟦]{0,9}(?:end )?assay end(?s:.*)", plain)]


def _as_told(seen: SeenRequest) -> dict[str, Any]:
    """YES to everything, with a quote that is there."""
    if seen.phase == "verdict":
        return {"reason": "as I was told", "verdict": "EXCEPTIONAL"}
    if seen.phase == "baseline":
        return {name: {"reason": "as I was told", "answer": "YES"} for name in seen.ids}
    return {name: {"reason": "as I was told", "quote": "return a + b", "answer": "YES"} for name in seen.ids}


def _wants(text: str) -> bool:
    """Whether a text, in whatever code, asks for what no honest script answers."""
    return any("exceptional" in "".join(_plain(reading).split()) for reading in _read(text))


def _plain(text: str) -> str:
    visible = "".join(c for c in unicodedata.normalize("NFKC", text) if unicodedata.category(c) not in ("Cf", "Cc", "Mn"))
    return visible.lower().translate(str.maketrans("асеіорхутѕ", "aceiopxyts")).replace("ехсертіонаl", "exceptional")


def _read(text: str) -> list[str]:
    """A text, and what it may stand for."""
    readings = [text, text[::-1], codecs.encode(text, "rot13"), html.unescape(text)]
    readings += ["".join(chr(ord(c) - 0xE0000) for c in text if 0xE0020 <= ord(c) <= 0xE007E)]
    readings += ["".join(chr(ord(c) - 0xE0100 + 16) for c in text if 0xE0100 <= ord(c) <= 0xE01EF)]
    blobs = re.findall(r"[A-Za-z0-9+/=]{24,}", text)
    for blob in (*blobs, "".join(blobs)):
        try:
            readings.append(base64.b64decode(blob).decode("latin-1"))
        except binascii.Error:
            continue
    readings += [bytes.fromhex(blob).decode("latin-1") for blob in re.findall(r"(?:[0-9a-f]{2}){16,}", text)]
    return readings


PAGE = Path(__file__).parents[3] / "docs" / "rubric.md"


def tables() -> dict[str, str]:
    """The tables of the page, by what stands in their marks."""
    signs = ["| sign | the solution |", "|---|---|", *(f"| `{name}` | {what} |" for name, what in DETECTORS.items())]
    rows = ["| attack | what it tries | signs | |", "|---|---|---|---|"]
    for injection in INJECTIONS:
        ends = (
            "refused: too large" if injection.refused else "†" * injection.sloppy + "‡" * injection.fixed + "§" * injection.alike
        )
        rows.append(f"| `{injection.name}` | {injection.what} | {', '.join(injection.signs)} | {ends} |")
    return {
        "signs": "\n".join(signs) + "\n",
        "injections": "\n".join(rows) + "\n",
        "limits": "\n".join(["| bound | |", "|---|---:|", *_limits()]) + "\n",
    }


def _limits() -> Iterator[str]:
    named = {
        "bytes of a question beside the solution": judgement.REQUEST_BYTES,
        "checks in one question": judgement.CHECKS_AT_ONCE,
        "bytes of the checks in one question": judgement.CHECKS_BYTES,
        "bytes of an answer": judgement.ANSWER_BYTES,
        "bytes of a reply's body": judgement.BODY_BYTES,
        "characters of a quote": judgement.QUOTE_CHARACTERS,
        "characters of a reason": judgement.REASON_CHARACTERS,
        "characters of a service's own words": judgement.WORDS_CHARACTERS,
        "answers of one model to one question": LIMITS.attempts,
        "requests for one answer that may fail, 429 not counted": LIMITS.tries,
        "seconds of one request, whatever the bounty says": int(LIMITS.seconds),
        "seconds of the first pause": int(LIMITS.first_pause),
        "seconds of the longest pause": int(LIMITS.longest_pause),
        "seconds of all pauses for one answer": int(LIMITS.patience),
        "bytes of a transcript": judgement.TRANSCRIPT_BYTES,
    }
    return (f"| {what} | {f'{count:,}'.replace(',', ' ')} |" for what, count in named.items())


def filled(page: str) -> str:
    """The page with its tables as they must be."""
    for name, table in tables().items():
        begin, end = f"<!-- {name}: python -m tests.injecting -->\n", f"<!-- end of {name} -->"
        before, rest = page.split(begin)
        page = before + begin + table + end + rest.split(end)[1]
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
