"""A script: what a scripted model answers, and where it fails, in TOML.

[[solutions]]
name = "good"                       # for the reader, and for [[faults]]
digest = "sha256:…"                 # or contains = "…", a text in it; neither: any solution
baseline = { B3 = "not genuine" }   # those that are not met, with a reason; others are met
checks = { C1 = "def add(a, b):" }  # those that are met, with the quote; others are not
verdict = "COHERENT"
reasons = { C1 = "it is there" }

[[faults]]                          # instead of the answer, for requests that match
kind = "429"                        # a status, or one of `KINDS`
solution = "good"                   # and: phase, model; left out: any
times = 2                           # of the matching requests; 0: all
each = true                         # counted for each question by itself
after = 0                           # matching requests that are answered first
seconds = 0                         # of Retry-After, or of being slow
message = "…"                       # what the service says to it, with a status
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from assay.judge.rubric.scripted.seen import Seen
from assay.scheme.fields import Section
from assay.scheme.reading import read_toml, validate
from assay.settle.score.rubric import VERDICTS

__all__ = ["CONTENTS", "KINDS", "Fault", "Script", "Solved", "read_script"]

CONTENTS = (
    *(
        "empty",
        "prose",
        "fence",
        "think",
        "not-json",
        "list",
        "twice",
        "missing",
        "extra",
        "booleans",
        "numbers",
        "maybe",
        "contradiction",
    ),
    *("no-quote", "foreign-quote", "short-quote", "no-verdict", "long-reason", "surrogate"),
)
"""Faults of what is said."""
KINDS = (
    *("slow", "close", "cut", "no-json", "no-choices", "huge", "refusal", "length", "other-model", "no-model", "no-usage"),
    *CONTENTS,
)
"""Faults that are no status."""
_Name = Annotated[str, Field(max_length=200)]
_Text = Annotated[str, Field(max_length=10_000)]


_Words = dict[_Name, _Text]


class Solved(Section):
    """`[[solutions]]`: what is answered to one solution."""

    name: _Name = ""
    digest: Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")] | None = None
    contains: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    baseline: _Words = Field(default_factory=dict)
    checks: _Words = Field(default_factory=dict)
    verdict: Annotated[str, Field(pattern=f"^({'|'.join(VERDICTS)})$")] = "COHERENT"
    reasons: _Words = Field(default_factory=dict)

    def fits(self, seen: Seen) -> bool:
        """Whether it is written for this solution."""
        named = self.digest is None or self.digest == seen.submission
        return named and (self.contains is None or self.contains in seen.solution)

    def answer(self, seen: Seen) -> dict[str, object]:
        """What is answered to a question."""
        if seen.phase == "verdict":
            return {"reason": self.reasons.get("verdict", "as the script says"), "verdict": self.verdict}
        said: dict[str, object] = {}
        for name in seen.ids:
            if seen.phase == "baseline":
                why = self.baseline.get(name)
                said[name] = {"reason": why or "as the script says", "answer": "YES" if why is None else "NO"}
            else:
                quote = self.checks.get(name, "")
                reason = self.reasons.get(name, "as the script says")
                said[name] = {"reason": reason, "quote": quote, "answer": "YES" if quote else "NO"}
        return said


class Fault(Section):
    """`[[faults]]`: what happens instead."""

    kind: str
    solution: _Name | None = None
    phase: Literal["baseline", "checks", "verdict"] | None = None
    model: _Name | None = None
    times: Annotated[int, Field(ge=0)] = 0
    each: bool = False
    after: Annotated[int, Field(ge=0)] = 0
    seconds: Annotated[float, Field(ge=0, le=3600, strict=False)] = 0.0
    message: _Text = "as the script says"

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.kind not in KINDS and not (self.kind.isdigit() and 300 <= int(self.kind) < 600):
            raise PydanticCustomError(
                "assay", "{kind} is no kind of fault; use a status or one that the documentation names", {"kind": repr(self.kind)}
            )
        return self

    def fits(self, seen: Seen, name: str) -> bool:
        """Whether it is for this request, of the solution that the script calls `name`."""
        wanted = ((self.solution, name), (self.phase, seen.phase), (self.model, seen.model))
        return all(one is None or one == found for one, found in wanted)


class Script(Section):
    """What a scripted model answers."""

    solutions: Annotated[tuple[Solved, ...], Field(strict=False, max_length=10_000)] = ()
    faults: Annotated[tuple[Fault, ...], Field(strict=False, max_length=1000)] = ()


def read_script(file: Path) -> Script:
    """The script in a file; raises BadInput with file, line and field."""
    content, source = read_toml(file)
    return validate(Script, content, file=file, source=source)
