"""References to data in the params of a step: `${STEP.output}`, `${STEP.output.key.0}`, `${task.input.key}`.

- A string that is one reference stands for the value itself; inside a longer string, for its text (JSON, if it is no string).
- Parts of a path are separated by points: a key of an object, or the index of a list.
- `$${` is a `${` that is meant as it stands. Any other `${` must be a reference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from assay.errors import BadInput, brief
from assay.judge.workflow import values

__all__ = ["TASK", "Ref", "TooLarge", "fill", "find"]

TASK = "task"
"""What a reference to the task's own input begins with; no step may be called so."""
_OPEN = re.compile(r"\$?\$\{")
_REF = re.compile(r"\$\{([^{}$]*)\}")
_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", re.ASCII)


class TooLarge(ValueError):
    """What the references stand for does not fit the bound on a request."""


@dataclass(frozen=True)
class Ref:
    """Where a value comes from: a step, or the task; and the path into its output, or input."""

    step: str
    path: tuple[str, ...]

    def __str__(self) -> str:
        return "${" + ".".join((self.step, "input" if self.step == TASK else "output", *self.path)) + "}"


def find(params: Any, field: str = "params") -> Iterator[tuple[Ref, str]]:
    """Every reference in a value, and the field it stands in; raises BadInput for a `${` that is none."""
    if isinstance(params, str):
        for part in _parts(params, field):
            if isinstance(part, Ref):
                yield part, field
    elif isinstance(params, dict):
        for key, inner in params.items():
            yield from find(inner, f"{field}.{key}")
    elif isinstance(params, list):
        for index, inner in enumerate(params):
            yield from find(inner, f"{field}[{index}]")


def fill(params: Any, known: Callable[[str], Any], most: int) -> bytes:
    """The params as JSON with every reference replaced by its value.

    known: step → its output, `task` → the input. Raises LookupError for a path that leads nowhere, and TooLarge for more than
    `most` bytes, before more is made than that.
    """
    made = _Made(known, most)
    return "".join(made.value(params)).encode()


@dataclass
class _Made:
    known: Callable[[str], Any]
    left: int

    def value(self, params: Any) -> Iterator[str]:
        if isinstance(params, dict):
            yield "{"
            for place, (key, inner) in enumerate(params.items()):
                yield self.counted(f"{',' if place else ''}{values.dumps(key).decode()}:")
                yield from self.value(inner)
            yield "}"
        elif isinstance(params, list):
            yield "["
            for place, inner in enumerate(params):
                yield "," if place else ""
                yield from self.value(inner)
            yield "]"
        elif isinstance(params, str) and "${" in params:
            yield self.text(_parts(params, ""))
        else:
            yield self.counted(values.dumps(params).decode())

    def text(self, parts: list[str | Ref]) -> str:
        if len(parts) == 1 and isinstance(parts[0], Ref):
            return self.counted(values.dumps(self.of(parts[0])).decode())
        whole = []
        for part in parts:
            whole.append(self.counted(values.shown(self.of(part)) if isinstance(part, Ref) else part))
        return values.dumps("".join(whole)).decode()

    def of(self, ref: Ref) -> Any:
        try:
            return values.at(self.known(ref.step), ref.path)
        except LookupError as error:
            raise LookupError(f"{ref} leads nowhere: there is no {error}") from None

    def counted(self, text: str) -> str:
        self.left -= len(text.encode())
        if self.left < 0:
            raise TooLarge("with the data of earlier steps the request is too large")
        return text


def _parts(text: str, field: str) -> list[str | Ref]:
    """The text as literal pieces and references; raises BadInput."""
    parts: list[str | Ref] = []
    end = 0
    while found := _OPEN.search(text, end):
        parts.append(text[end : found.start()])
        if found[0] == "$${":
            parts.append("${")
            end = found.end()
            continue
        whole = _REF.match(text, found.start())
        if whole is None:
            what = f"{brief(text[found.start() :], 40)} begins a reference and does not end one"
            raise BadInput(what, field=field, hint="write ${step.output.key}, or $${ for a ${ that is meant so")
        parts.append(_ref(whole[1], field))
        end = whole.end()
    parts.append(text[end:])
    return [part for part in parts if part != ""]


def _ref(said: str, field: str) -> Ref:
    step, *rest = said.split(".")
    wanted = "input" if step == TASK else "output"
    if _ID.fullmatch(step) is None or not rest or rest[0] != wanted or "" in rest:
        raise BadInput(
            f"{brief('${' + said + '}')} is not a reference", field=field, hint="write ${step.output.key} or ${task.input.key}"
        )
    return Ref(step, tuple(rest[1:]))
