"""What a service may answer, and the ways in which a call fails. SPEC 2.2.

    CallFailed
    ├── Denied      the service understood, and said no: the plan's fault
    ├── Broken      no answer, a server's error, or an answer that is none
    └── Lied        an answer without a cost that can be believed

A plan chooses what a service is asked, so a failure is the service's own only where no question could have caused it: a cost that
is missing, negative or no decimal string, and a reply that is no JSON object of the form below. `own` says so.

An answer is {"output": any JSON, "cost": "0.001"} or {"error": "why not"}, which may have a cost too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from assay.errors import BadInput
from assay.exact import nanos, text
from assay.judge.workflow import values
from assay.judge.workflow.limits import MESSAGE, PARTS
from assay.peers import Overrun
from assay.peers.reading import bounded

__all__ = ["Answer", "Broken", "CallFailed", "Denied", "Lied", "plain", "read"]


class CallFailed(Exception):
    """One attempt of a step came to nothing. `cost`: nanos that the service took all the same."""

    word: Literal["denied", "broken", "lied", "timeout"] = "broken"

    def __init__(self, message: str, cost: int = 0, *, own: bool = False) -> None:
        """own: whether the service is to blame, and no plan could have caused it."""
        super().__init__(plain(message))
        self.cost, self.own = cost, own


class Denied(CallFailed):
    """The service says that it will not do this."""

    word = "denied"


class Broken(CallFailed):
    """The service gave no answer that is one."""


class Lied(CallFailed):
    """What the service says of its cost cannot be."""

    word = "lied"


@dataclass(frozen=True)
class Answer:
    """What a service answered: the output as a value, and as JSON of ours; the cost in nanos."""

    output: Any
    data: bytes
    cost: int


def read(data: bytes, max_cost: int) -> Answer:
    """The answer in the bytes of one; raises CallFailed. max_cost: nanos."""
    try:
        bounded(data.decode("utf-8", "replace"), PARTS, depth=len(data))  # how deep it is, `values` looks at
        found = values.parse(data)
    except Overrun as error:
        raise Broken(f"the answer has {error.why}") from None
    except BadInput as error:
        raise Broken(f"the answer {error.what}", own=not _json(data)) from None
    if not isinstance(found, dict):
        raise Broken("the answer is not a JSON object", own=True)
    if "error" in found:
        said = found["error"]
        if found.keys() - {"error", "cost"} or not isinstance(said, str):
            raise Broken("the answer has an error that is no text, or something beside it", own=True)
        raise Denied(said or "the service gave no reason", _cost(found["cost"], max_cost) if "cost" in found else 0)
    if "output" not in found or found.keys() - {"output", "cost"}:
        raise Broken("the answer has not output and cost, and nothing else", own=True)
    if "cost" not in found:
        raise Lied("the answer has no cost", own=True)
    cost = _cost(found["cost"], max_cost)
    return Answer(found["output"], values.dumps(found["output"]), cost)


def plain(said: str) -> str:
    """Words as they are kept: printable, and not too many."""
    return "".join(char if char.isprintable() else " " for char in said[:MESSAGE].encode("utf-8", "backslashreplace").decode())


def _json(data: bytes) -> bool:
    """Whether it is JSON for some reader: the NaN, depth, length or key twice that we refuse may come of what a plan asked."""
    try:
        json.loads(data, parse_int=len)  # Python refuses integers of thousands of digits, which are JSON all the same
    except (ValueError, RecursionError) as error:
        return isinstance(error, RecursionError)
    return True


def _cost(said: object, most: int) -> int:
    try:
        cost = nanos(said)
    except BadInput as error:
        raise Lied(f"the cost {error.what}", own=True) from None
    if cost > most:
        raise Lied(f"the cost is {text(cost)}, and a call costs {text(most)} at most")
    return cost
