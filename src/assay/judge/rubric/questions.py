"""The questions of the three phases, as requests: the same bounty, solution and answers so far make the same bytes. SPEC 2.3.

A request has two messages. The system message is ours alone. The user message is made of parts: the problem and the solution in
their frames, the checks in theirs where there are any, our question, and what was wrong with an answer that was not accepted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, Literal

from assay.errors import BadInput
from assay.judge.rubric import prompts
from assay.judge.rubric.frame import GUTTER, Frames, Item, guttered
from assay.judge.rubric.limits import CHECKS_AT_ONCE, CHECKS_BYTES, QUOTE_CHARACTERS, QUOTE_LEAST, REQUEST_BYTES
from assay.judge.rubric.shown import shown
from assay.judge.rubric.solution import Solution
from assay.scheme.bounty import Bounty, Format
from assay.scheme.model import Check
from assay.settle.score.rubric import BASELINE, VERDICTS

__all__ = ["PARAMETERS", "PHASES", "Case", "Phase", "Question", "check_size"]

Phase = Literal["baseline", "checks", "verdict"]
PHASES: tuple[Phase, ...] = ("baseline", "checks", "verdict")
PARAMETERS: Mapping[str, Any] = {"temperature": 0, "seed": 42}
"""What each request has; `max_tokens` comes with the bounty."""
_YES_NO = {"type": "string", "enum": ["YES", "NO"]}
_STRING = {"type": "string"}


@dataclass(frozen=True)
class Question:
    """One request but for the model's name and the most tokens."""

    phase: Phase
    part: int
    """Which of several questions of the phase, from 1."""
    system: str
    parts: tuple[str, ...]
    """Of the user message, joined by empty lines."""
    form: Mapping[str, Any]
    """The JSON schema of the answer."""

    def with_faults(self, faults: Sequence[str]) -> Question:
        """The question asked again: what was wrong with the last answer, in words of ours."""
        said = prompts.filled("again", faults="\n".join(f"- {fault}" for fault in faults))
        return Question(self.phase, self.part, self.system, (*self.parts, said), self.form)

    def body(self, model: str, form: Format, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The request as the service gets it; form: how the form of the answer is asked for."""
        schema = {"name": f"assay_{self.phase}", "strict": True, "schema": self.form}
        asked: dict[Format, dict[str, Any]] = {
            "json_schema": {"response_format": {"type": "json_schema", "json_schema": schema}},
            "json_object": {"response_format": {"type": "json_object"}},
            "text": {},  # the question says the form in words
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
class Case:
    """One solution to one bounty; raises BadInput for a problem that is not the bounty's, and for what is above its bound."""

    bounty: Bounty
    problem: str
    solution: Solution

    def __post_init__(self) -> None:
        found = f"sha256:{sha256(self.problem.encode()).hexdigest()}"
        if found != self.bounty.problem_digest:
            raise BadInput(
                f"the problem has digest {found}, the bounty's is {self.bounty.problem_digest}",
                hint="judge with the text that the bounty was published with",
            )
        check_size(self.bounty, self.solution)
        beside = [self.system, self._problem, prompts.filled("baseline")]
        for chunk in (*map(self._checks, self.chunks), self._checks(self.bounty.rules.checks, dict.fromkeys(self.ids, True))):
            most = sum(len(part.encode()) for part in (*beside, chunk))
            if most > REQUEST_BYTES:
                raise BadInput(
                    f"the problem and the checks have {most} bytes as a model is shown them, the most are {REQUEST_BYTES}",
                    file=self.bounty.file,
                    hint="shorten the problem, or the labels and descriptions of the checks",
                )

    @cached_property
    def frames(self) -> Frames:
        """The frames of this case."""
        return Frames(self.bounty.digest, self.solution.digest, prompts.digest())

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The checks' ids, in the rubric's order."""
        return tuple(check.id for check in self.bounty.rules.checks)

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The files' texts as a model is shown them: in one of them a quote is to be found."""
        return tuple(shown(text) for text in self.solution.files.values())

    @property
    def gutter(self) -> str:
        """The digits with which each line of the solution begins: a quote may have them, and they are no part of it."""
        return self.frames.key("solution")[:GUTTER]

    @cached_property
    def chunks(self) -> tuple[tuple[Check, ...], ...]:
        """The checks as they are asked: at most so many at once, and not too long."""
        made: list[list[Check]] = []
        room = 0
        for check in self.bounty.rules.checks:
            size = len(shown(_wording(check)).encode())
            if not made or len(made[-1]) == CHECKS_AT_ONCE or size > room:
                made.append([])
                room = CHECKS_BYTES
            made[-1].append(check)
            room -= size
        return tuple(map(tuple, made))

    @cached_property
    def system(self) -> str:
        """The system message."""
        keys = {f"{kind}_key": self.frames.key(kind) for kind in ("problem", "solution", "checks")}
        return prompts.filled("system", **keys)

    @cached_property
    def _problem(self) -> str:
        return self.frames.around("problem", [Item(self.bounty.terms.name, self.problem)])

    @cached_property
    def _solution(self) -> str:
        items = [Item(path, text) for path, text in self.solution.files.items()]
        return self.frames.around("solution", items, about=self.solution.digest)

    def _checks(self, checks: Sequence[Check], answers: Mapping[str, bool] | None = None) -> str:
        if answers is None:
            return self.frames.around("checks", [Item(check.id, _wording(check)) for check in checks])
        said = {True: "answered YES", False: "answered NO"}
        items = [Item(check.id, f"{said[answers[check.id]]}\n{check.label}".rstrip()) for check in checks]
        return self.frames.around("checks", items)

    def _question(self, phase: Phase, part: int, form: Mapping[str, Any], *parts: str) -> Question:
        return Question(phase, part, self.system, (self._problem, self._solution, *parts), form)

    def baseline(self) -> Question:
        """Phase 1."""
        form = _object({name: _object({"reason": _STRING, "answer": _YES_NO}) for name in BASELINE})
        return self._question("baseline", 1, form, prompts.filled("baseline"))

    def checks(self, part: int) -> Question:
        """Phase 2, its question number `part`, from 1."""
        chunk = self.chunks[part - 1]
        form = _object({check.id: _object({"reason": _STRING, "quote": _STRING, "answer": _YES_NO}) for check in chunk})
        asked = prompts.filled("checks", least=QUOTE_LEAST, most=QUOTE_CHARACTERS)
        return self._question("checks", part, form, self._checks(chunk), asked)

    def verdict(self, answers: Mapping[str, bool]) -> Question:
        """Phase 3: how the checks were answered is told."""
        form = _object({"reason": _STRING, "verdict": {"type": "string", "enum": list(VERDICTS)}})
        told = self._checks(self.bounty.rules.checks, answers)
        return self._question("verdict", 1, form, told, prompts.filled("verdict"))


def check_size(bounty: Bounty, solution: Solution) -> None:
    """Raise BadInput where the solution, its texts and names as a model is shown them, has more bytes than the bounty allows."""
    gutter = "0" * GUTTER
    size = sum(len(shown(path).encode()) + len(guttered(gutter, shown(text)).encode()) for path, text in solution.files.items())
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
