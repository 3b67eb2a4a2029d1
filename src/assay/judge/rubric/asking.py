"""From a bounty and a solution to a judgement: three phases, asked again within bounds. SPEC 2.3."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from assay.errors import AssayError
from assay.judge.rubric.judgement import Judgement
from assay.judge.rubric.limits import LIMITS, Limits
from assay.judge.rubric.model import Models
from assay.judge.rubric.solution import Solution
from assay.scheme.bounty import Bounty

__all__ = ["Event", "check", "judge", "judge_all"]


@dataclass(frozen=True)
class Event:
    """Something happened while a solution was judged: for a display. No text of the solution or of a model is in it."""

    kind: Literal["asking", "answered", "malformed", "waiting", "fallback", "judged", "unjudged", "missing"]
    submission: str
    model: str = ""
    phase: str = ""
    detail: str = ""
    """A fault's code, a status, what the service failed with; printable."""


def _quiet(event: Event) -> None:
    del event


def check(bounty: Bounty, problem: str, solution: Solution) -> None:
    """Raise BadInput as `judge` would before it asks: the solution, as it is shown, is larger than the bounty allows."""
    raise NotImplementedError


async def judge(
    bounty: Bounty,
    problem: str,
    solution: Solution,
    models: Models,
    *,
    on_event: Callable[[Event], None] = _quiet,
    limits: Limits = LIMITS,
) -> Judgement:
    """The judgement of one solution.

    problem: the text itself, which a sealed bounty has only the digest of. Raises BadInput if the digest is another, if something
    is larger than its bound, or if the extra `llm` is missing. Raises Unreachable where the service fails beyond the bounds, or
    refuses us: the submission is then missing, and no record of it is written.
    """
    raise NotImplementedError


async def judge_all(
    bounty: Bounty,
    problem: str,
    solutions: Iterable[Solution],
    models: Models,
    *,
    jobs: int = 8,
    on_event: Callable[[Event], None] = _quiet,
    on_done: Callable[[Solution, Judgement | AssayError], None] = lambda solution, found: None,
    limits: Limits = LIMITS,
) -> dict[str, Judgement | AssayError]:
    """Many solutions, at most `jobs` at a time over one client, by digest; what befell one (BadInput, Unreachable) is its own.

    on_done is called as each ends. After an Unreachable that is `final` no other is begun: those have it too.
    """
    raise NotImplementedError
