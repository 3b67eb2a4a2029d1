"""The body of a chat completion: what of it is an answer. A body that is none is the fault of the service, not of the model."""

from __future__ import annotations

import json
from typing import Any

from assay.judge.rubric.judgement import Usage
from assay.judge.rubric.limits import NAME_CHARACTERS
from assay.judge.rubric.reply import Reply

__all__ = ["completion", "error_code"]

_MOST_TOKENS = 2**31


def completion(data: bytes) -> tuple[Reply, Usage] | None:
    """The reply in a body, and the tokens it took; None if it is no chat completion."""
    try:
        found: Any = json.loads(data)
        choice = found["choices"][0]
        message, finish = choice["message"], choice.get("finish_reason")
        content, refusal = message.get("content"), message.get("refusal")
        if not all(one is None or isinstance(one, str) for one in (content, refusal, finish)):
            return None
        for one in (content, refusal, finish):
            (one or "").encode()  # a lone surrogate is no text
        reply = Reply(content, refusal, finish, _name(found.get("model")), _name(found.get("system_fingerprint")))
        usage = found.get("usage")
        return reply, Usage(_tokens(usage, "prompt_tokens"), _tokens(usage, "completion_tokens"))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def error_code(data: bytes) -> str:
    """`error.code` of the body of an error, if it has one."""
    try:
        code = json.loads(data)["error"]["code"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
    return code if isinstance(code, str) else ""


def _name(value: object) -> str | None:
    """A name of the service's, as it may be shown: cut, and nothing that a terminal would act on."""
    if not isinstance(value, str):
        return None
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in value[:NAME_CHARACTERS])


def _tokens(usage: object, name: str) -> int:
    count = usage.get(name) if isinstance(usage, dict) else None
    return count if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < _MOST_TOKENS else 0
