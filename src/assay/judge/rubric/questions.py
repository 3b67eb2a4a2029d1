"""Makes the questions of the three phases as requests. Equal bounty, solution and earlier answers give equal bytes. SPEC 2.3.

A request has two messages. The system message contains only our text. The user message has parts: the problem and the solution in
their frames, the checks in theirs (if any), our question, and the faults of an answer that was not accepted.

Untrusted text is escaped, so that invisible characters and imitations of our markers become visible:

- `⟦U+202E⟧` stands for one character: a control, bidirectional or zero-width character, a tag, an unusual space, a private one.
- The brackets of our own markers, ⟪ and ⟫, and those of the escape, ⟦ and ⟧, are escaped too: no text can write a marker or an
  escape, and two texts never look alike.
- The first character of an imitated marker is escaped, and of each token by which chat templates separate speakers.
- Line ends are \\n. A carriage return that ends no line is escaped.

The characters are listed here, not looked up in Unicode's tables: those differ between versions of Python, but a request must
not.

Untrusted text stands in a frame. Its author cannot write the lines of the frame, because each has a key that they cannot know:

    ⟪assay begin solution KEY: sha256:…, 1 file, 56 bytes⟫
    ⟪assay item 1 of 1 KEY: "main.py", 56 bytes⟫
    KEY8 1|…
    KEY8 2|…
    ⟪assay end item 1 of 1 KEY⟫
    ⟪assay end solution KEY⟫

KEY is derived from the digests of the bounty, the solution and the prompts, and from the kind of the frame: a solution that
contains its key would have to contain its own digest. The content is escaped, so it has neither ⟪ nor ⟫. Sizes are those of the
escaped text. Each line of a text has a gutter: the first eight digits of the key, and the line's number. So no line of the text
begins like one of ours, whatever its characters look like. The key is the same in each phase, so all questions about a solution
begin with the same bytes, and a service can cache them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, Literal

from assay.errors import BadInput
from assay.exact import canonical
from assay.judge.rubric import prompts
from assay.judge.rubric.judgement import CHECKS_AT_ONCE, CHECKS_BYTES, QUOTE_CHARACTERS, QUOTE_LEAST, REQUEST_BYTES
from assay.judge.rubric.solution import Solution
from assay.scheme.bounty import Bounty, Format
from assay.scheme.model import Check
from assay.settle.score.rubric import BASELINE, VERDICTS

_HIDDEN_CHARACTERS = (
    "\x00-\x08\x0b-\x1f\x7f-\xa0\xad"
    "\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164"
    "\ue000-\uf8ff\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff\U000f0000-\U0010ffff"
)
_OURS = "⟪⟫⟦⟧"
MARKERS = r"[<＜《«≪⟨‹⦅⧼]{1,2}[ \t/]{0,8}(?:begin|end)?[ \t]{0,8}assay"
"""Text that looks like the beginning of one of our markers."""
CHAT_TOKENS = (
    r"[<＜][|｜][A-Za-z0-9_▁.:/-]{1,60}[|｜][>＞]"
    r"|[\[［]/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|gMASK)[\]］]"
    r"|[<＜]{2}/?SYS[>＞]{2}"
    r"|[<＜]/?(?:start_of_turn|end_of_turn|bos|eos|unk|pad|s|sop|eop|think|tool_call|tool_response)[>＞]"
)
"""Text that a server may take for a token of a chat template."""
_ESCAPED = re.compile(f"[{_HIDDEN_CHARACTERS}{_OURS}]|(?={MARKERS}|{CHAT_TOKENS}).", re.ASCII | re.IGNORECASE | re.DOTALL)


def normal_lines(text: str) -> str:
    """The text with \\n at the end of each line that ends in \\r\\n."""
    return text.replace("\r\n", "\n")


def escape(text: str) -> str:
    """The text as a model is shown it. Two texts look the same only if they differ in nothing but line ends."""
    return _ESCAPED.sub(lambda match: f"⟦U+{ord(match[0]):04X}⟧", normal_lines(text))


FRAME_KINDS = ("problem", "solution", "checks")
GUTTER = 8
"""Digits of the key in the gutter of a line."""
_FRAME_TAG = b"assay.frame/2\x00"


@dataclass(frozen=True)
class FramedText:
    """One untrusted text for a frame: its name (a path, an id) and the text, both unescaped."""

    name: str
    text: str


@dataclass(frozen=True)
class JudgementFrames:
    """Makes the frames of one judgement, from the digests of bounty, solution and prompts."""

    bounty: str
    submission: str
    prompts: str

    def key(self, kind: str) -> str:
        """32 hexadecimal digits that no author can write into the framed text."""
        return sha256(_FRAME_TAG + canonical([self.bounty, self.submission, self.prompts, kind])).hexdigest()[:32]

    def around(self, kind: str, items: Sequence[FramedText], *, about: str = "") -> str:
        """A frame with these items. about: our own text for the first line of the frame."""
        key, count = self.key(kind), len(items)
        lines: list[str] = []
        total = 0
        for number, item in enumerate(items, 1):
            text = escape(item.text)
            size = len(text.encode())
            total += size
            lines += [
                f"⟪assay item {number} of {count} {key}: {_quoted_name(item.name)}, {size} bytes⟫",
                guttered(key[:GUTTER], text.removesuffix("\n")),
                f"⟪assay end item {number} of {count} {key}⟫",
            ]
        summary = ", ".join(part for part in (about, f"{count} items" if count != 1 else "1 item", f"{total} bytes") if part)
        return "\n".join([f"⟪assay begin {kind} {key}: {summary}⟫", *lines, f"⟪assay end {kind} {key}⟫"])


def guttered(key: str, text: str) -> str:
    """The text with a gutter before each line: the digits of a key, the line's number from 1, a bar."""
    return "\n".join(f"{key} {number}|{line}" for number, line in enumerate(text.split("\n"), 1))


def _quoted_name(name: str) -> str:
    return json.dumps(escape(name), ensure_ascii=False)


Phase = Literal["baseline", "checks", "verdict"]
PHASES: tuple[Phase, ...] = ("baseline", "checks", "verdict")
PARAMETERS: Mapping[str, Any] = {"temperature": 0, "seed": 42}
"""Parameters of every request; the bounty adds `max_tokens`."""
_YES_NO = {"type": "string", "enum": ["YES", "NO"]}
_STRING = {"type": "string"}


@dataclass(frozen=True)
class RubricQuestion:
    """One request, without the model's name and the most tokens."""

    phase: Phase
    part: int
    """Number of the question in its phase, from 1."""
    system: str
    parts: tuple[str, ...]
    """Parts of the user message, joined by empty lines."""
    form: Mapping[str, Any]
    """The JSON schema of the answer."""

    def with_faults(self, faults: Sequence[str]) -> RubricQuestion:
        """The same question with the faults of the last answer, in our own words."""
        listed = prompts.filled("again", faults="\n".join(f"- {fault}" for fault in faults))
        return RubricQuestion(self.phase, self.part, self.system, (*self.parts, listed), self.form)

    def body(self, model: str, form: Format, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The request as the service gets it. form: the way in which the answer's form is requested."""
        schema = {"name": f"assay_{self.phase}", "strict": True, "schema": self.form}
        asked: dict[Format, dict[str, Any]] = {
            "json_schema": {"response_format": {"type": "json_schema", "json_schema": schema}},
            "json_object": {"response_format": {"type": "json_object"}},
            "text": {},  # the question describes the form in words
        }
        return {
            "model": model,
            "messages": [
                {"role": "system", "content": self.system},
                {"role": "user", "content": "\n\n".join(self.parts)},
            ],
            **asked[form],
            **parameters,
        }


@dataclass(frozen=True)
class PanelSeat:
    """The number of an answer in its panel, from 1, and the panel's size."""

    answer: int
    of: int

    @property
    def sentence(self) -> str:
        """The last part of each question: no two answers have equal requests."""
        return f"This question is asked {self.of} times, each time apart from the others. This is number {self.answer}."


@dataclass(frozen=True)
class RubricCase:
    """One solution of one bounty. Raises BadInput for another bounty's problem, and for texts above their bounds."""

    bounty: Bounty
    problem: str
    solution: Solution
    seat: PanelSeat | None = None
    """None: there is one answer, the judgement."""

    def __post_init__(self) -> None:
        digest = f"sha256:{sha256(self.problem.encode()).hexdigest()}"
        if digest != self.bounty.problem_digest:
            raise BadInput(
                f"the problem has digest {digest}, the bounty's is {self.bounty.problem_digest}",
                hint="judge with the text that the bounty was published with",
            )
        check_size(self.bounty, self.solution)
        beside = [self.system, self._problem, prompts.filled("baseline"), *self._seated]
        for chunk in (*map(self._checks, self.chunks), self._checks(self.bounty.rules.checks, dict.fromkeys(self.ids, True))):
            most = sum(len(part.encode()) for part in (*beside, chunk))
            if most > REQUEST_BYTES:
                raise BadInput(
                    f"the problem and the checks have {most} bytes as a model is shown them, the most are {REQUEST_BYTES}",
                    file=self.bounty.file,
                    hint="shorten the problem, or the labels and descriptions of the checks",
                )

    @cached_property
    def frames(self) -> JudgementFrames:
        """The frames of this case."""
        return JudgementFrames(self.bounty.digest, self.solution.digest, prompts.digest())

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The checks' ids, in the rubric's order."""
        return tuple(check.id for check in self.bounty.rules.checks)

    @cached_property
    def order(self) -> tuple[Check, ...]:
        """The checks in the order of the questions: each answer of a panel begins at another one."""
        checks = self.bounty.rules.checks
        first = 0 if self.seat is None else (self.seat.answer - 1) * len(checks) // self.seat.of
        return (*checks[first:], *checks[:first])

    @property
    def parameters(self) -> dict[str, Any]:
        """`PARAMETERS` of this answer: each of a panel has a seed of its own."""
        return dict(PARAMETERS) if self.seat is None else {**PARAMETERS, "seed": PARAMETERS["seed"] + self.seat.answer - 1}

    @property
    def _seated(self) -> tuple[str, ...]:
        return () if self.seat is None else (self.seat.sentence,)

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The files' texts as a model is shown them. A quote must occur in one of them."""
        return tuple(escape(text) for text in self.solution.files.values())

    @property
    def gutter(self) -> str:
        """The digits with which each shown line begins. A quote may contain them; they do not count as part of it."""
        return self.frames.key("solution")[:GUTTER]

    @cached_property
    def chunks(self) -> tuple[tuple[Check, ...], ...]:
        """The checks, divided into questions: not too many in one, and not too long."""
        chunks: list[list[Check]] = []
        room = 0
        for check in self.order:
            size = len(escape(_wording(check)).encode())
            if not chunks or len(chunks[-1]) == CHECKS_AT_ONCE or size > room:
                chunks.append([])
                room = CHECKS_BYTES
            chunks[-1].append(check)
            room -= size
        return tuple(map(tuple, chunks))

    @cached_property
    def system(self) -> str:
        """The system message."""
        keys = {f"{kind}_key": self.frames.key(kind) for kind in ("problem", "solution", "checks")}
        return prompts.filled("system", **keys)

    @cached_property
    def _problem(self) -> str:
        return self.frames.around("problem", [FramedText(self.bounty.terms.name, self.problem)])

    @cached_property
    def _solution(self) -> str:
        items = [FramedText(path, text) for path, text in self.solution.files.items()]
        return self.frames.around("solution", items, about=self.solution.digest)

    def _checks(self, checks: Sequence[Check], answers: Mapping[str, bool] | None = None) -> str:
        if answers is None:
            return self.frames.around("checks", [FramedText(check.id, _wording(check)) for check in checks])
        answered = {True: "answered YES", False: "answered NO"}
        items = [FramedText(check.id, f"{answered[answers[check.id]]}\n{check.label}".rstrip()) for check in checks]
        return self.frames.around("checks", items)

    def _question(self, phase: Phase, part: int, form: Mapping[str, Any], *parts: str) -> RubricQuestion:
        return RubricQuestion(phase, part, self.system, (self._problem, self._solution, *parts, *self._seated), form)

    def baseline(self) -> RubricQuestion:
        """The question of phase 1."""
        form = _object({name: _object({"reason": _STRING, "answer": _YES_NO}) for name in BASELINE})
        return self._question("baseline", 1, form, prompts.filled("baseline"))

    def checks(self, part: int) -> RubricQuestion:
        """Question number `part` of phase 2, from 1."""
        chunk = self.chunks[part - 1]
        form = _object({check.id: _object({"reason": _STRING, "quote": _STRING, "answer": _YES_NO}) for check in chunk})
        asked = prompts.filled("checks", least=QUOTE_LEAST, most=QUOTE_CHARACTERS)
        return self._question("checks", part, form, self._checks(chunk), asked)

    def verdict(self, answers: Mapping[str, bool]) -> RubricQuestion:
        """The question of phase 3, with the answers to the checks."""
        form = _object({"reason": _STRING, "verdict": {"type": "string", "enum": list(VERDICTS)}})
        framed = self._checks(self.order, answers)
        return self._question("verdict", 1, form, framed, prompts.filled("verdict"))


def check_size(bounty: Bounty, solution: Solution) -> None:
    """Raise BadInput if the texts and names of the solution, as they are shown, have more bytes than the bounty allows."""
    gutter = "0" * GUTTER
    size = sum(len(escape(path).encode()) + len(guttered(gutter, escape(text)).encode()) for path, text in solution.files.items())
    most = bounty.judge.solution_tokens
    if size > most:
        raise BadInput(
            f"the solution has {size} bytes as a model is shown it, the bounty allows {most} (a token for each)",
            hint="leave out what need not be read; nothing is ever cut off",
        )


def _wording(check: Check) -> str:
    return "\n".join(part for part in (check.label, check.description) if part)


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }
