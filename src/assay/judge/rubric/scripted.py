"""The script of a model whose answers and failures are written beforehand, in TOML; `scripted_server` serves it.

It is for demonstrations and tests.

    [[solutions]]
    name = "good"                       # for the reader, and for [[faults]]
    digest = "sha256:…"                 # or contains = "…", a text in it; neither: any solution
    model = "small"                     # only the answers of this model; left out: of any
    baseline = { B3 = "not genuine" }   # those that are not met, with a reason; others are met
    checks = { C1 = "def add(a, b):" }  # those that are met, with the quote; others are not
    verdict = "COHERENT"
    reasons = { C1 = "it is there" }

    [[faults]]                          # instead of the answer, for requests that match
    kind = "429"                        # a status, or one of `FAULT_KINDS`
    solution = "good"                   # and: phase, model; left out: any
    times = 2                           # of the matching requests; 0: all
    each = true                         # counted for each question separately
    after = 0                           # matching requests that are answered first
    seconds = 0                         # of Retry-After, or of being slow
    message = "…"                       # the service's message, with a status
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from assay.judge.rubric.questions import GUTTER
from assay.scheme.fields import Digest, Section
from assay.scheme.reading import read_toml, validate
from assay.settle.score.rubric import BASELINE, VERDICTS

_KEY = re.compile(r"^  (problem|solution|checks) ([0-9a-f]{8,})$", re.MULTILINE)
_QUESTION = re.compile(r"^Question: the (baseline|checks|verdict)\.", re.MULTILINE)


@dataclass(frozen=True)
class SeenFrame:
    """The content of one frame: the text of its first line, and its items by name."""

    about: str
    items: Mapping[str, str]
    """The texts without gutters."""
    raw: str
    """The whole content as it is shown."""


@dataclass(frozen=True)
class SeenRequest:
    """One request. `outside`: the part of the user message that is in no frame, which a model takes as instructions."""

    model: str
    phase: str
    ids: tuple[str, ...]
    """The names that need an answer, from the form or the question."""
    system: str
    user: str
    keys: Mapping[str, str]
    frames: Mapping[str, SeenFrame]
    outside: str

    @property
    def submission(self) -> str:
        """The solution's digest, from its frame."""
        match = re.search("sha256:[0-9a-f]{64}", self.frames["solution"].about) if "solution" in self.frames else None
        return match[0] if match else ""

    @property
    def solution(self) -> str:
        """All texts of the solution as they are shown, without the gutters."""
        return "\n".join(self.frames["solution"].items.values()) if "solution" in self.frames else ""


def read_request(body: Mapping[str, Any]) -> SeenRequest:
    """The request in a body; raises ValueError, LookupError or TypeError for a request that Assay does not send."""
    system, user = (message["content"] for message in body["messages"])
    keys = dict(_KEY.findall(system))
    frames: dict[str, SeenFrame] = {}
    outside = user
    for kind, key in keys.items():
        whole = re.search(rf"⟪assay begin {kind} {key}: (.*)⟫\n((?s:.*?))⟪assay end {kind} {key}⟫", outside)
        if whole is not None:
            item = rf'⟪assay item \d+ of \d+ {key}: "(.*)", \d+ bytes⟫\n((?s:.*?))\n⟪assay end item \d+ of \d+ {key}⟫'
            gutter = re.compile(rf"^{key[:GUTTER]} \d+\|", re.MULTILINE)
            items = {name: gutter.sub("", text) for name, text in re.findall(item, whole[2])}
            frames[kind] = SeenFrame(whole[1], items, whole[2])
            outside = outside[: whole.start()] + outside[whole.end() :]
    phase, ids = _asked_phase(body, outside, frames)
    return SeenRequest(
        model=str(body["model"]),
        phase=phase,
        ids=ids,
        system=system,
        user=user,
        keys=keys,
        frames=frames,
        outside=outside,
    )


def _asked_phase(body: Mapping[str, Any], outside: str, frames: Mapping[str, SeenFrame]) -> tuple[str, tuple[str, ...]]:
    """The phase and the names that need an answer, from the schema; without a schema, from the question's words."""
    form = body.get("response_format", {}).get("json_schema")
    if form is not None:
        return form["name"].removeprefix("assay_"), tuple(form["schema"]["properties"])
    match = _QUESTION.search(outside)
    if match is None:
        raise ValueError("there is no question")
    if match[1] == "checks":
        return match[1], tuple(frames["checks"].items)
    return match[1], BASELINE if match[1] == "baseline" else ("reason", "verdict")


def spoil_answer(kind: str, answer: dict[str, Any]) -> str:
    """The answer's content with a fault of this kind."""
    text = json.dumps(answer, ensure_ascii=False)
    whole = {
        "empty": "",
        "prose": f"Here is my answer: {text}",
        "fence": f"```json\n{text}\n```",
        "think": f"<think>\nIs it YES or NO?\n</think>\n\n{text}",
        "not-json": text[:-1],
        "list": f"[{text}]",
        "twice": f"{text[:-1]}, {text[1:]}",
        "missing": json.dumps(dict(list(answer.items())[1:])),
        "extra": json.dumps({**answer, "score": "10000"}),
        "surrogate": text[:-1] + ', "\\ud800": ""}',
    }
    if kind in whole:
        return whole[kind]
    first = next(iter(answer))
    part = answer[first] if isinstance(answer[first], dict) else answer
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
    changed = {**part, **{name: value for name, value in spoils[kind].items() if name in part}}
    return json.dumps(changed if part is answer else {**answer, first: changed})


CONTENT_FAULTS = (
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
"""Faults of an answer's content."""
FAULT_KINDS = (
    *("slow", "close", "cut", "no-json", "no-choices", "huge", "refusal", "length", "other-model", "no-model", "no-usage"),
    *CONTENT_FAULTS,
)
"""Faults that are not a status."""
_Name = Annotated[str, Field(max_length=200)]
_Text = Annotated[str, Field(max_length=10_000)]


_Words = dict[_Name, _Text]


class ScriptedSolution(Section):
    """`[[solutions]]`: the answers for one solution."""

    name: _Name = ""
    digest: Digest | None = None
    contains: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    model: _Name | None = None
    baseline: _Words = Field(default_factory=dict)
    checks: _Words = Field(default_factory=dict)
    verdict: Annotated[str, Field(pattern=f"^({'|'.join(VERDICTS)})$")] = "COHERENT"
    reasons: _Words = Field(default_factory=dict)

    def fits(self, seen: SeenRequest) -> bool:
        """Whether this entry is for the request's solution."""
        named = self.digest in (None, seen.submission) and self.model in (None, seen.model)
        return named and (self.contains is None or self.contains in seen.solution)

    def answer(self, seen: SeenRequest) -> dict[str, object]:
        """The answer to the request's question."""
        if seen.phase == "verdict":
            return {"reason": self.reasons.get("verdict", "as the script says"), "verdict": self.verdict}
        answers: dict[str, object] = {}
        for name in seen.ids:
            if seen.phase == "baseline":
                why = self.baseline.get(name)
                answers[name] = {"reason": why or "as the script says", "answer": "YES" if why is None else "NO"}
            else:
                quote = self.checks.get(name, "")
                reason = self.reasons.get(name, "as the script says")
                answers[name] = {"reason": reason, "quote": quote, "answer": "YES" if quote else "NO"}
        return answers


class ScriptedFault(Section):
    """`[[faults]]`: a failure instead of the answer."""

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
        if self.kind not in FAULT_KINDS and not (self.kind.isdigit() and 300 <= int(self.kind) < 600):
            raise PydanticCustomError(
                "assay",
                "{kind} is not a kind of fault; use a status, or a kind that the documentation names",
                {"kind": repr(self.kind)},
            )
        return self

    def fits(self, seen: SeenRequest, name: str) -> bool:
        """Whether it applies to this request. name: the script's name of the request's solution."""
        wanted = ((self.solution, name), (self.phase, seen.phase), (self.model, seen.model))
        return all(limit is None or limit == actual for limit, actual in wanted)


class Script(Section):
    """The answers and faults of a scripted model."""

    solutions: Annotated[tuple[ScriptedSolution, ...], Field(strict=False, max_length=10_000)] = ()
    faults: Annotated[tuple[ScriptedFault, ...], Field(strict=False, max_length=1000)] = ()


def read_script(file: Path) -> Script:
    """The script in a file; raises BadInput with file, line and field."""
    content, source = read_toml(file)
    return validate(Script, content, file=file, source=source)
