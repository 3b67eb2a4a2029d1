"""The answer to a request of ERC-8004's Validation Registry: the settlement of an epoch, as evidence for an agent's score.

The validator that a request names calls `validationResponse`. responseURI is where the bundle is, so that anybody can compute the
settlement again; responseHash is the settlement's digest, which the bundle leads to. The registry checks none of it. The form is
that of the registries since version 2 of their contracts: the tag is a string.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from assay.errors import BadInput, CannotSettle
from assay.exact import NANO, half_even, nanos
from assay.publish.evm.libraries import checksum, web3
from assay.publish.evm.node import encoded

__all__ = ["WHOLE", "validation_response"]

FUNCTION = "validationResponse"
INPUTS = (
    ("requestHash", "bytes32"),
    ("response", "uint8"),
    ("responseURI", "string"),
    ("responseHash", "bytes32"),
    ("tag", "string"),
)
ABI: list[dict[str, Any]] = [
    {"type": "function", "name": FUNCTION, "inputs": [{"name": name, "type": kind} for name, kind in INPUTS]}
]
WHOLE = 100
"""The response to a whole score; the registry refuses a higher one."""
LONGEST = 2048
"""Characters of a URI or a tag: all of them are paid for."""


def validation_response(
    settlement: Mapping[str, Any], participant: str, *, request: str, uri: str, tag: str = "", registry: str | None = None
) -> dict[str, Any]:
    """The call that answers a request about a participant, with its arguments by their names, and `data`: what is sent.

    settlement: the document. participant: the key; its agreed score, in hundredths, half to even, is the response. request: the
    requestHash, 0x and 64 hex digits. uri: where the epoch's bundle is. registry: the contract's address; None: without `to`.
    Raises CannotSettle for a participant without an agreed score, which is not a score of 0; BadInput for what cannot be sent.
    """
    row = next((row for row in settlement["agreed"] if row["participant"] == participant), None)
    if row is None or row["status"] != "agreed":
        why = "is no participant of it" if row is None else f"has no agreed score in it: {row['reason']}"
        raise CannotSettle(f"{participant} {why}; that is no score of 0", hint="`assay show` lists those that have one")
    if not re.fullmatch("0x[0-9a-fA-F]{64}", request):
        raise BadInput("is not a hash: 0x and 64 hex digits", field="--request", hint="it is in the registry's ValidationRequest")
    if not urlsplit(uri).scheme or len(uri) > LONGEST or re.search(r"[^!-~]", uri):
        raise BadInput("is not a URI", field="--uri", hint="give where the bundle is: https://… or ipfs://…")
    if len(tag) > LONGEST:
        raise BadInput(f"has more than {LONGEST} characters", field="--tag", hint="give a short one")
    settled = "0x" + settlement["digest"].removeprefix("sha256:")
    values = (request.lower(), half_even(nanos(row["score"]) * WHOLE, NANO), uri, settled, tag)
    given = (bytes.fromhex(request[2:]), values[1], uri, bytes.fromhex(settled[2:]), tag)
    data = encoded(ABI, FUNCTION, given, web3()().codec)
    to = {} if registry is None else {"to": _address(registry)}
    signature = f"{FUNCTION}({','.join(kind for _, kind in INPUTS)})"
    return (
        to
        | {"function": signature}
        | {name: value for (name, _), value in zip(INPUTS, values, strict=True)}
        | {"data": f"0x{data.hex()}"}
    )


def _address(text: str) -> str:
    if not re.fullmatch("0x[0-9a-fA-F]{40}", text):
        raise BadInput("is not an address: 0x and 40 hex digits", field="--registry", hint="give that of the Validation Registry")
    return checksum(text)
