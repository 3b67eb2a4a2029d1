"""A request of the judge's as a model sees it: the keys that the system message gives, the frames, and what is outside."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.judge.rubric.frame import GUTTER
from assay.settle.score.rubric import BASELINE

__all__ = ["Framed", "Seen", "read"]

_KEY = re.compile(r"^  (problem|solution|checks) ([0-9a-f]{8,})$", re.MULTILINE)
_QUESTION = re.compile(r"^Question: the (baseline|checks|verdict)\.", re.MULTILINE)


@dataclass(frozen=True)
class Framed:
    """What is in one frame: its first line's words, and the texts of its items by name."""

    about: str
    items: Mapping[str, str]
    """Without the gutters."""
    raw: str
    """All of it, as it is shown."""


@dataclass(frozen=True)
class Seen:
    """One request. `outside` is all of the user message that is in no frame: to a model, instructions."""

    model: str
    phase: str
    ids: tuple[str, ...]
    """What is to be answered, by the form or the question."""
    system: str
    user: str
    keys: Mapping[str, str]
    frames: Mapping[str, Framed]
    outside: str

    @property
    def submission(self) -> str:
        """The solution's digest, as the frame says it."""
        found = re.search("sha256:[0-9a-f]{64}", self.frames["solution"].about) if "solution" in self.frames else None
        return found[0] if found else ""

    @property
    def solution(self) -> str:
        """All texts of the solution, as they are shown, but for the gutters."""
        return "\n".join(self.frames["solution"].items.values()) if "solution" in self.frames else ""


def read(body: Mapping[str, Any]) -> Seen:
    """The request in a body; raises ValueError, LookupError or TypeError for what no judge of ours sends."""
    system, user = (message["content"] for message in body["messages"])
    keys = dict(_KEY.findall(system))
    frames: dict[str, Framed] = {}
    outside = user
    for kind, key in keys.items():
        whole = re.search(rf"⟪assay begin {kind} {key}: (.*)⟫\n((?s:.*?))⟪assay end {kind} {key}⟫", outside)
        if whole is not None:
            item = rf'⟪assay item \d+ of \d+ {key}: "(.*)", \d+ bytes⟫\n((?s:.*?))\n⟪assay end item \d+ of \d+ {key}⟫'
            gutter = re.compile(rf"^{key[:GUTTER]} \d+\|", re.MULTILINE)
            items = {name: gutter.sub("", text) for name, text in re.findall(item, whole[2])}
            frames[kind] = Framed(whole[1], items, whole[2])
            outside = outside[: whole.start()] + outside[whole.end() :]
    phase, ids = _asked(body, outside, frames)
    return Seen(
        model=str(body["model"]),
        phase=phase,
        ids=ids,
        system=system,
        user=user,
        keys=keys,
        frames=frames,
        outside=outside,
    )


def _asked(body: Mapping[str, Any], outside: str, frames: Mapping[str, Framed]) -> tuple[str, tuple[str, ...]]:
    """The phase and what is to be answered: by the schema, or where there is none by the question's words."""
    form = body.get("response_format", {}).get("json_schema")
    if form is not None:
        return form["name"].removeprefix("assay_"), tuple(form["schema"]["properties"])
    found = _QUESTION.search(outside)
    if found is None:
        raise ValueError("there is no question")
    if found[1] == "checks":
        return found[1], tuple(frames["checks"].items)
    return found[1], BASELINE if found[1] == "baseline" else ("reason", "verdict")
