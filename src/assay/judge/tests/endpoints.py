"""What an agent may ask of the model service: requests that leave nothing there. SPEC 2.1.

The validator's key is one account for all agents. What one can store there (a file, a thread, a batch, a response) the next can
read. So only endpoints that keep nothing are let through, and of those that can keep something, it is told not to.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from assay.judge.service import Model

__all__ = ["DEFAULT", "Refused", "check", "stateless"]

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
_STORES = ("/chat/completions", "/responses")
"""Whatever stands before them, since a validator may list them below another path."""
_ALWAYS = "/responses"
"""Keeps what it answered unless it is told not to."""
_KEPT = ("background", "conversation", "previous_response_id")
"""Fields that ask for what an earlier request left, or leave something."""
_ESCAPED = re.compile("%(2e|2f|5c|00|25)", re.ASCII | re.IGNORECASE)


class Refused(Exception):
    """What the agent asked for is not forwarded."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


def check(model: Model, method: str, target: str) -> None:
    """Raises Refused for a path that leads elsewhere than below the base_url, and for an endpoint that is not let through."""
    path = target.partition("?")[0]
    parts = path.split("/")
    odd = _ESCAPED.search(path) or "//" in path or any(part.partition(";")[0] in (".", "..") for part in parts)
    if not path.startswith("/") or odd:  # some services leave out what follows a semicolon
        raise Refused(403, "only paths below the service's base_url are forwarded")
    allowed: Sequence[str] = model.endpoints or DEFAULT
    if not any(_fits(method, path, one) for one in allowed):
        raise Refused(403, f"only these are forwarded: {', '.join(allowed)}")


def stateless(target: str, body: bytes) -> bytes:
    """The body that is forwarded: one that asks the service to keep nothing. Raises Refused where that cannot be."""
    path = target.partition("?")[0]
    if not path.endswith(_STORES):
        return body
    always = path.endswith(_ALWAYS)
    try:
        found: Any = json.loads(body, parse_constant=_refuse)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Refused(400, "the body is not a JSON object")
    odd = [name for name in found if name.casefold() in ("store", *_KEPT) and name not in ("store", *_KEPT)]
    if odd:  # some services read names without regard to case
        raise Refused(400, f"write {odd[0].casefold()} in small letters")
    asked = [name for name in _KEPT if found.get(name) not in (None, False)]
    if asked:
        raise Refused(403, f"{asked[0]} is not forwarded: nothing may stay at the service, or be read that another left there")
    if always or "store" in found:
        found["store"] = False
        return json.dumps(found).encode()
    return body


def _fits(method: str, path: str, endpoint: str) -> bool:
    verb, _, pattern = endpoint.partition(" ")
    wanted = re.escape(pattern).replace(r"\*", "[^/]+")
    return method == verb and any(re.fullmatch(wanted, each) for each in (path, _bare(path)))


def _bare(path: str) -> str:
    return path.removeprefix("/v1") if path.startswith("/v1/") else path


def _refuse(word: str) -> Any:
    raise ValueError(word)
