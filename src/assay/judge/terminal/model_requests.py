"""Decides which requests of an agent are forwarded to the model service, and counts what a trial sent. SPEC 2.1.

The validator's key is one account for all agents. If an agent could store something there (a file, a thread, a batch, an
answer), the next agent could read it. So only endpoints that store nothing are allowed. An endpoint that could store something is
told not to.

A service may also run tools itself: search the web, call servers that the request names, run code and keep its files. That would
give an agent the service's network and a place to leave things. So only tools that the agent itself runs are allowed.
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
    """Limits of one trial's use of the service."""

    requests: int = 10_000
    connections: int = 16
    """Connections at one time."""
    request_bytes: int = 32_000_000
    """Bytes of one request's body as it arrives, including the lengths of its chunks."""
    answer_bytes: int = 256_000_000
    """Bytes of one answer's body."""
    total_bytes: int = 2_000_000_000
    """Bytes of everything that the agent sends and of all answers' bodies."""
    seconds: float = 600.0
    """Seconds without a byte, on either side."""
    whole: float = 3600.0
    """Seconds from the first byte of a request to the last of its answer, on the service's side."""
    pause: float = 1.0
    """Seconds before a failed request is sent again; doubled each time, unless `Retry-After` says how long."""
    patience: float = 120.0
    """Seconds of all such pauses."""
    again: int = 100
    """Requests that are sent again."""
    questions: int = 50
    """Probes: requests of the judge's own that show whether service or agent caused a failure."""
    question_seconds: float = 60.0
    """Seconds of one probe."""


LIMITS = ProxyLimits()
NAMED = 20
"""The number of failures that are stored."""


@dataclass
class ModelTraffic:
    """The traffic of the proxy, for the record. `troubles` are the service's failures, `own` those of the agent's requests."""

    requests: int = 0
    refused: int = 0
    sent: int = 0
    received: int = 0
    troubles: list[str] = field(default_factory=list)
    own: list[str] = field(default_factory=list)
    again: int = 0
    questions: int = 0

    def trouble(self, what: str) -> None:
        """Records a failure of the service; only the first `NAMED` are stored."""
        if len(self.troubles) < NAMED:
            self.troubles.append(what)

    def to_blame(self, what: str) -> None:
        """Records a failure that the agent's request caused; only the first `NAMED` are stored."""
        if len(self.own) < NAMED:
            self.own.append(what)

    def document(self) -> dict[str, Any]:
        """The counts as JSON, without the rare ones that are zero."""
        rare = {"own": list(self.own), "again": self.again, "questions": self.questions}
        return {
            "requests": self.requests,
            "refused": self.refused,
            "sent": self.sent,
            "received": self.received,
            "troubles": list(self.troubles),
        } | {name: value for name, value in rare.items() if value}


DEFAULT = (
    "POST /chat/completions",
    "POST /responses",
    "POST /messages",
    "POST /messages/count_tokens",
    "POST /embeddings",
    "GET /models",
    "GET /models/*",
)
"""The endpoints that are allowed by default, each with or without `/v1` in front; `*` is one name."""
_MODEL_PATHS = ("/chat/completions", "/responses", "/messages", "/messages/count_tokens")
"""Ends of the paths that ask a model. A validator may list them below another path."""
_STORES = "/responses"
"""An endpoint that stores its answer unless it is told not to."""
_STATE_FIELDS = ("background", "conversation", "previous_response_id")
"""Fields that read what an earlier request stored, or store something."""
_HOSTED_FIELDS = ("container", "enable_search", "mcp_servers", "plugins", "prompt", "search_parameters", "web_search_options")
"""Fields that let known services and gateways run tools, or read what is stored there."""
_TOOLS = re.compile(
    "function|custom|apply_patch|local_shell|computer_use_preview|(bash|computer|memory|text_editor)_[0-9]{8}", re.ASCII
)
"""Types of tools that the agent runs; those with a date are from `/messages`."""
_ESCAPED = re.compile("%(2e|2f|5c|00|25)", re.ASCII | re.IGNORECASE)


_MESSAGES: list[dict[str, str]] = [{"role": "user", "content": "Answer with one word: ok"}]
_PROBES: dict[str, dict[str, Any]] = {
    "/chat/completions": {"messages": _MESSAGES, "stream": True},
    "/responses": {"input": _MESSAGES, "stream": True, "store": False},
    "/messages": {"messages": _MESSAGES, "stream": True, "max_tokens": 16},
    "/messages/count_tokens": {"messages": _MESSAGES},
    "/embeddings": {"input": "ok"},
    "/completions": {"prompt": "ok", "max_tokens": 1},
}
"""The body of a probe, by the end of the path.

The answers are streams, since their beginning is enough. `max_tokens` is left out where possible, since some models refuse it.
"""


class Probe(NamedTuple):
    """A small request of the judge's own, which shows whether the service works."""

    method: str
    target: str
    body: bytes
    listing: str
    """The path beside it that lists models."""
    others: tuple[str, ...]
    """Other forms of the same path: with and without `/v1`, and without the query, which the agent chose."""


class NotForwarded(Exception):
    """The agent's request is not forwarded."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


def check(model: ModelAccess, method: str, target: str) -> None:
    """Raises NotForwarded for a path outside the base_url, and for an endpoint that is not allowed."""
    path = target.partition("?")[0]
    parts = path.split("/")
    odd = _ESCAPED.search(path) or "//" in path or any(part.partition(";")[0] in (".", "..") for part in parts)
    if not path.startswith("/") or odd:  # some services ignore what follows a semicolon
        raise NotForwarded(403, "only paths below the service's base_url are forwarded")
    allowed: Sequence[str] = model.endpoints or DEFAULT
    if not any(_matches(method, path, endpoint) for endpoint in allowed):
        raise NotForwarded(403, f"only these are forwarded: {', '.join(allowed)}")


def make_probe(base: str, method: str, target: str, body: bytes) -> Probe | None:
    """A probe of the same endpoint and model as a request below `base`; None if no probe of the endpoint is known."""
    path = target.partition("?")[0]
    if method == "GET" and (match := re.search("/models(/[^/]+)?$", path)):
        listing = f"{path[: match.start()]}/models"
        return Probe("GET", listing, b"", listing, _other_forms(base, listing, listing))
    end = max((ending for ending in _PROBES if path.endswith(ending)), key=len, default=None)
    if method != "POST" or end is None:
        return None
    content = dict(_PROBES[end])
    if isinstance(model := _requested_model(body), str):
        content["model"] = model
    listing = f"{path.removesuffix(end)}/models"
    return Probe("POST", target, json.dumps(content).encode(), listing, _other_forms(base, path, target))


def _other_forms(base: str, path: str, target: str) -> tuple[str, ...]:
    bare = _without_v1(path.removeprefix(base))
    return tuple(form for form in (base + bare, f"{base}/v1{bare}") if form != target)


def _requested_model(body: bytes) -> Any:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return content.get("model") if isinstance(content, dict) else None


def stateless(model: ModelAccess, target: str, body: bytes) -> bytes:
    """The body that is forwarded: it asks the service to store nothing and to run no tool. Raises NotForwarded otherwise."""
    path = target.partition("?")[0]
    asks_model = path.endswith(_MODEL_PATHS)
    if not asks_model and not (model.names and path.endswith(tuple(_PROBES))):
        return body
    content, rewrite = _parse_object(body)
    known = ("model", "models") * bool(model.names) + ("store", "tools", *_STATE_FIELDS, *_HOSTED_FIELDS) * asks_model
    odd = [name for name in content if name.casefold() in known and name not in known]
    if odd:  # some services ignore the case of names
        raise NotForwarded(400, f"write {odd[0].casefold()} in small letters")
    if model.names:
        _check_models(model, content)
    if asks_model:
        state = [name for name in _STATE_FIELDS if content.get(name) not in (None, False)]
        if state:
            raise NotForwarded(
                403,
                f"{state[0]} is not forwarded: agents may store nothing at the service, and read nothing stored there",
            )
        _check_tools(content)
        if path.endswith(_STORES) or "store" in content:
            content["store"] = False
            rewrite = True
    return json.dumps(content).encode() if rewrite else body  # of a repeated name, the service might read the other value


def _parse_object(body: bytes) -> tuple[dict[str, Any], bool]:
    """The JSON object in a body, and whether a name occurs twice in it. Raises NotForwarded if it is not an object."""
    repeated = False

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        content = dict(items)
        repeated = repeated or len(content) < len(items)
        return content

    try:
        content: Any = json.loads(body, parse_constant=_refuse, object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise NotForwarded(400, "the body is not a JSON object")
    return content, repeated


def _check_models(model: ModelAccess, content: dict[str, Any]) -> None:
    """Raises NotForwarded for a model that the validator does not allow. Some gateways also accept a list of models."""
    more = content.get("models")
    requested = [content.get("model"), *(more if isinstance(more, list) else [] if more is None else [more])]
    if any(name not in model.names for name in requested):
        raise NotForwarded(403, f"only these models are allowed: {', '.join(model.names)}")


def _check_tools(content: dict[str, Any]) -> None:
    """Raises NotForwarded for what the service would run or fetch itself."""
    hosted = [name for name in _HOSTED_FIELDS if content.get(name) not in (None, False)]
    if hosted:
        raise NotForwarded(403, f"{hosted[0]} is not forwarded: the service may run no tool, and read nothing stored there")
    tools = content.get("tools") or []
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise NotForwarded(400, "tools is not a list of objects")
    for tool in tools:
        kind = tool.get("type", "custom")
        odd = [name for name in tool if name.casefold() == "type" and name != "type"]
        if odd or not isinstance(kind, str) or not _TOOLS.fullmatch(kind):
            raise NotForwarded(403, "a tool that the service runs is not forwarded, only tools that the agent runs")


def _matches(method: str, path: str, endpoint: str) -> bool:
    verb, _, pattern = endpoint.partition(" ")
    wanted = re.escape(pattern).replace(r"\*", "[^/]+")
    return method == verb and any(re.fullmatch(wanted, form) for form in (path, _without_v1(path)))


def _without_v1(path: str) -> str:
    return path.removeprefix("/v1") if path.startswith("/v1/") else path


def _refuse(word: str) -> Any:
    raise ValueError(word)
