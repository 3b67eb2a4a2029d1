"""Assay on the other side of the protocol: a line of JSON for each line of JSON. SPEC 6."""

from __future__ import annotations

from typing import BinaryIO

from assay.conformance.runner import answer, refusal
from assay.errors import AssayError, BadInput
from assay.exact import canonical
from assay.folder import strict

__all__ = ["serve"]


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer every line `{"kind", "input"}` with the output, or with `{"refused": true, "code", "why"}`, until the lines end."""
    for line in requests:
        try:
            asked = strict.parse(line.decode())
            if not isinstance(asked, dict) or asked.keys() != {"kind", "input"}:
                raise BadInput("is not a request", hint='a line is {"kind": …, "input": …}')
            reply = answer(asked["kind"], asked["input"])
        except AssayError as error:
            reply = refusal(error)
        except UnicodeDecodeError:
            reply = refusal(BadInput("the line is not UTF-8"))
        replies.write(canonical(reply) + b"\n")
        replies.flush()
