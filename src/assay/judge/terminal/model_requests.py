"""What a trial's agent may ask of the model service, and what it did ask: for whoever has nothing to do with how it is asked.

What an agent may ask of the model service: requests that leave nothing there. SPEC 2.1.

The validator's key is one account for all agents. What one can store there (a file, a thread, a batch, a response) the next can
read. So only endpoints that keep nothing are let through, and of those that can keep something, it is told not to.

A service may also run tools by itself: it searches the web, calls servers that the request names, runs code and keeps its files.
With these an agent would have the service's network, and a place to leave things. Only tools that the agent runs are let through.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from assay.judge.service import ModelAccess


@dataclass(frozen=True)
class ProxyLimits:
    """What one trial may ask of the service."""

    requests: int = 10_000
    connections: int = 16
    """At one time."""
    request_bytes: int = 32_000_000
    """Of one request's body, as it comes in: what says how long its chunks are counts as well."""
    answer_bytes: int = 256_000_000
    """Of one answer's body."""
    total_bytes: int = 2_000_000_000
    """Of all that agents send, and of all answers' bodies."""
    seconds: float = 600.0
    """Without a byte, on either side."""
    whole: float = 3600.0
    """From the first byte of a request to the last of its answer, on the service's side."""
    pause: float = 1.0
    """Before a request that failed is asked again; doubled with each time, unless `Retry-After` says how long."""
    patience: float = 120.0
    """Of all such pauses."""
    again: int = 100
    """Requests that are asked again."""
    questions: int = 50
    """Questions of our own, by which it is seen whose a failure is."""
    question_seconds: float = 60.0
    """For one of them."""


LIMITS = ProxyLimits()
NAMED = 20
"""How many troubles are kept."""


@dataclass
class ModelTraffic:
    """What went through: for the record of the trial. `troubles` are the service's, never the agent's; `own` are the agent's."""

    requests: int = 0
    refused: int = 0
    sent: int = 0
    received: int = 0
    troubles: list[str] = field(default_factory=list)
    own: list[str] = field(default_factory=list)
    again: int = 0
    questions: int = 0

    def trouble(self, what: str) -> None:
        """Note a failure of the service; the first ones are kept in words."""
        if len(self.troubles) < NAMED:
            self.troubles.append(what)

    def to_blame(self, what: str) -> None:
        """Note a failure that the agent's request caused; the first ones are kept in words."""
        if len(self.own) < NAMED:
            self.own.append(what)

    def document(self) -> dict[str, Any]:
        """As JSON; what is seldom there is left out where it is not."""
        seldom = {"own": list(self.own), "again": self.again, "questions": self.questions}
        return {
            "requests": self.requests,
            "refused": self.refused,
            "sent": self.sent,
            "received": self.received,
            "troubles": list(self.troubles),
        } | {name: value for name, value in seldom.items() if value}


DEFAULT = (
    "POST /chat/completions",
    "POST /responses",
    "POST /messages",
    "POST /messages/count_tokens",
    "POST /embeddings",
    "GET /models",
    "GET /models/*",
)
"""If the validator says nothing else; `*` is one name. All of them with or without `/v1` in front."""
_ASKED = ("/chat/completions", "/responses", "/messages", "/messages/count_tokens")
"""Where a model is asked, whatever stands before, since a validator may list them below another path."""
_ALWAYS = "/responses"
"""Keeps what it answered unless it is told not to."""
_KEPT = ("background", "conversation", "previous_response_id")
"""Fields that ask for what an earlier request left, or leave something."""
_HOSTED = ("container", "enable_search", "mcp_servers", "plugins", "prompt", "search_parameters", "web_search_options")
"""Fields by which known services and gateways run tools, or read what is kept there."""
_TOOLS = re.compile(
    "function|custom|apply_patch|local_shell|computer_use_preview|(bash|computer|memory|text_editor)_[0-9]{8}", re.ASCII
)
"""Types of tools that the agent runs; the dated ones are `/messages`'."""
_ESCAPED = re.compile("%(2e|2f|5c|00|25)", re.ASCII | re.IGNORECASE)


_TOLD: list[dict[str, str]] = [{"role": "user", "content": "Answer with one word: ok"}]
_QUESTIONS: dict[str, dict[str, Any]] = {
    "/chat/completions": {"messages": _TOLD, "stream": True},
    "/responses": {"input": _TOLD, "stream": True, "store": False},
    "/messages": {"messages": _TOLD, "stream": True, "max_tokens": 16},
    "/messages/count_tokens": {"messages": _TOLD},
    "/embeddings": {"input": "ok"},
    "/completions": {"prompt": "ok", "max_tokens": 1},
}
"""What is asked to see whether the service answers us; by the end of the path.

Streams, since the beginning of an answer is enough; without `max_tokens` where it may be left out, since some models refuse it.
"""


class Probe(NamedTuple):
    """A small question of the judge's own."""

    method: str
    target: str
    body: bytes
    listing: str
    """Where models are listed beside it."""
    others: tuple[str, ...]
    """The same endpoint otherwise written: with and without `/v1`, and without the query, which the agent chose."""


class NotForwarded(Exception):
    """What the agent asked for is not forwarded."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


def check(model: ModelAccess, method: str, target: str) -> None:
    """Raises NotForwarded for a path outside the base_url, and for an endpoint that is not let through."""
    path = target.partition("?")[0]
    parts = path.split("/")
    odd = _ESCAPED.search(path) or "//" in path or any(part.partition(";")[0] in (".", "..") for part in parts)
    if not path.startswith("/") or odd:  # some services leave out what follows a semicolon
        raise NotForwarded(403, "only paths below the service's base_url are forwarded")
    allowed: Sequence[str] = model.endpoints or DEFAULT
    if not any(_fits(method, path, one) for one in allowed):
        raise NotForwarded(403, f"only these are forwarded: {', '.join(allowed)}")


def question(base: str, method: str, target: str, body: bytes) -> Probe | None:
    """To the same endpoint, about the same model as a request that was forwarded below `base`; None where none is known."""
    path = target.partition("?")[0]
    if method == "GET" and (found := re.search("/models(/[^/]+)?$", path)):
        listing = f"{path[: found.start()]}/models"
        return Probe("GET", listing, b"", listing, _others(base, listing, listing))
    end = max((one for one in _QUESTIONS if path.endswith(one)), key=len, default=None)
    if method != "POST" or end is None:
        return None
    asked = dict(_QUESTIONS[end])
    if isinstance(model := _model(body), str):
        asked["model"] = model
    return Probe("POST", target, json.dumps(asked).encode(), f"{path.removesuffix(end)}/models", _others(base, path, target))


def _others(base: str, path: str, target: str) -> tuple[str, ...]:
    bare = _bare(path.removeprefix(base))
    return tuple(one for one in (base + bare, f"{base}/v1{bare}") if one != target)


def _model(body: bytes) -> Any:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found.get("model") if isinstance(found, dict) else None


def stateless(model: ModelAccess, target: str, body: bytes) -> bytes:
    """The body that is forwarded: one that asks the service to keep nothing and run no tool. Raises NotForwarded otherwise."""
    path = target.partition("?")[0]
    keeping = path.endswith(_ASKED)
    if not keeping and not (model.names and path.endswith(tuple(_QUESTIONS))):
        return body
    found, twice = _object(body)
    known = ("model", "models") * bool(model.names) + ("store", "tools", *_KEPT, *_HOSTED) * keeping
    odd = [name for name in found if name.casefold() in known and name not in known]
    if odd:  # some services read names without regard to case
        raise NotForwarded(400, f"write {odd[0].casefold()} in small letters")
    if model.names:
        _check_names(model, found)
    if keeping:
        asked = [name for name in _KEPT if found.get(name) not in (None, False)]
        if asked:
            raise NotForwarded(
                403, f"{asked[0]} is not forwarded: nothing may stay at the service, or be read that another left there"
            )
        _check_tools(found)
        if path.endswith(_ALWAYS) or "store" in found:
            found["store"] = False
            twice = True
    return json.dumps(found).encode() if twice else body  # of a name that stands there twice, a service might read the other


def _object(body: bytes) -> tuple[dict[str, Any], bool]:
    """A body, and whether a name stands in it twice. Raises NotForwarded for what is no JSON object."""
    twice = False

    def pairs(given: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal twice
        made = dict(given)
        twice = twice or len(made) < len(given)
        return made

    try:
        found: Any = json.loads(body, parse_constant=_refuse, object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise NotForwarded(400, "the body is not a JSON object")
    return found, twice


def _check_names(model: ModelAccess, found: dict[str, Any]) -> None:
    """Raises NotForwarded for a model that the validator does not name; some gateways take a list of them as well."""
    more = found.get("models")
    asked = [found.get("model"), *(more if isinstance(more, list) else [] if more is None else [more])]
    if any(name not in model.names for name in asked):
        raise NotForwarded(403, f"only these models are let through: {', '.join(model.names)}")


def _check_tools(found: dict[str, Any]) -> None:
    """Raises NotForwarded for what the service would run, or fetch, by itself."""
    asked = [name for name in _HOSTED if found.get(name) not in (None, False)]
    if asked:
        raise NotForwarded(403, f"{asked[0]} is not forwarded: the service may run no tool, and read nothing that is kept there")
    tools = found.get("tools") or []
    if not isinstance(tools, list) or not all(isinstance(one, dict) for one in tools):
        raise NotForwarded(400, "tools is not a list of objects")
    for one in tools:
        kind = one.get("type", "custom")
        odd = [name for name in one if name.casefold() == "type" and name != "type"]
        if odd or not isinstance(kind, str) or not _TOOLS.fullmatch(kind):
            raise NotForwarded(403, "a tool that the service runs is not forwarded, only those that the agent runs")


def _fits(method: str, path: str, endpoint: str) -> bool:
    verb, _, pattern = endpoint.partition(" ")
    wanted = re.escape(pattern).replace(r"\*", "[^/]+")
    return method == verb and any(re.fullmatch(wanted, each) for each in (path, _bare(path)))


def _bare(path: str) -> str:
    return path.removeprefix("/v1") if path.startswith("/v1/") else path


def _refuse(word: str) -> Any:
    raise ValueError(word)
