"""What was asked and answered, as canonical JSON; and a replay of it without a network. SPEC 2.3, 6."""

from __future__ import annotations

from dataclasses import dataclass

from assay.judge.rubric.judgement import Judgement
from assay.judge.rubric.solution import Solution
from assay.scheme.bounty import Bounty

__all__ = ["SCHEMA", "Change", "compare", "replay"]

SCHEMA = "assay.transcript/1"


@dataclass(frozen=True)
class Change:
    """An answer that two judgements of one solution do not share: `B3`, a check's id, `verdict`, `outcome`; before and after."""

    name: str
    before: bool | str | None
    after: bool | str | None


def replay(transcript: bytes, bounty: Bounty, problem: str, solution: Solution) -> Judgement:
    """The judgement that a transcript's replies lead to; no network.

    Every request is made anew and compared. Raises Refused (stage `transcript`) where it is not what we would have asked, and
    BadInput where it is no transcript.
    """
    raise NotImplementedError


def compare(old: Judgement, new: Judgement) -> list[Change]:
    """Every answer that changed, in the order outcome, baseline, checks, verdict; empty: the same score."""
    raise NotImplementedError
