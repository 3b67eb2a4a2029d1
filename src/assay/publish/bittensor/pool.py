"""What a node says instead of taking an extrinsic, and what the chain says of one that did nothing, as outcomes.

The numbers are those of the node's JSON-RPC (author) and of the chain's own errors of validity
(common/src/transaction_error.rs).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from assay.errors import printable
from assay.publish.bittensor.preflight import refusal
from assay.publish.outcome import Refusal
from assay.publish.rpc import RpcError

__all__ = ["RATE", "dispatched", "of_pool"]

RATE = frozenset({"SettingWeightsTooFast", "CommittingWeightsTooFast", "RateLimitExceeded"})
"""Said by the chain of what comes too early."""
_CUSTOM = {
    1: "NotEnoughStakeToSetWeights",
    3: "SubnetNotExists",
    6: "RateLimitExceeded",
    10: "HotKeyNotRegisteredInSubNet",
    15: "InvalidRevealRound",
    18: "InputLengthsUnequal",
    19: "HotKeyNotRegisteredInSubNet",
}
"""The chain's own errors of validity that weights can meet; 1 is for any stake that is too low."""
_COLDKEY = {0: "a swap of its coldkey is announced", 21: "a swap of its coldkey is disputed"}
_WAITS = {
    1011: "the node cannot say yet whether it is valid",
    1012: "the node has banned it for a while, since it was not valid some minutes ago",
    1014: "another extrinsic with its nonce, or another commitment of the hotkey, waits in the node's pool",
    1016: "the node's pool is full",
}
"""Said by a node of what may be otherwise soon: it is handed over again."""
_LOOK = (
    "outdated",  # its nonce is used: the blocks show by what
    "ancient birth block",  # its time is over
)
_INVALID: tuple[tuple[str, str, str, str], ...] = (
    (
        "bad signature",
        "signature",
        "the node says that its signature is wrong",
        "the chain was upgraded, or is another: do this again",
    ),
    ("valid in the future", "nonce", "an earlier extrinsic of the hotkey is missing", "do this again when that one is through"),
    (
        "pay some fees",
        "payment",
        "the hotkey's account cannot pay for it",
        "setting weights costs nothing: is it the right chain?",
    ),
    ("block limits", "limits", "no block has room for it now", "do this again"),
)


def of_pool(error: RpcError) -> Refusal | str | None:
    """None: look at the chain again, it is there or its time is over; a text: why it waits; else why it is refused."""
    said = printable(f"{error.message} {error.data if isinstance(error.data, str) else ''}")
    if error.code == 1013 or (error.code == 1010 and any(words in said for words in _LOOK)):
        return None
    if error.code in _WAITS:
        return _WAITS[error.code]
    if error.code == 1010:
        number = re.search("[Cc]ustom error: ([0-9]{1,3})", said)
        return _custom(int(number[1])) if number else _invalid(said)
    return Refusal("node", f"the node does not take it: {said.strip()[:300]}", "ask another node")


def _custom(number: int) -> Refusal:
    if number in _COLDKEY:
        return Refusal("coldkey-swap", f"{_COLDKEY[number]}, and till then it does nothing else", "ask whoever has the coldkey")
    if number in _CUSTOM:
        return refusal(_CUSTOM[number])
    return Refusal("custom", f"the chain says that it is not valid (custom error {number})", "look it up: CustomTransactionError")


def _invalid(said: str) -> Refusal:
    for words, code, what, hint in _INVALID:
        if words in said:
            return Refusal(code, what, hint)
    return Refusal("invalid", f"the node says that it is not valid: {said.strip()[:300]}", "nothing was changed by it")


def dispatched(runtime: Any, error: object) -> Refusal:
    """What the error stands for by which an extrinsic in a block failed."""
    module = error.get("Module") if isinstance(error, Mapping) else None
    if isinstance(module, Mapping):
        raw = module.get("error")
        number = int(raw[2:4], 16) if isinstance(raw, str) else raw[0] if isinstance(raw, list | tuple | bytes) else raw
        try:
            name, _ = runtime.module_error(module.get("index"), number)
        except (ValueError, KeyError, TypeError):
            name = f"module-{module.get('index')}-{number}"
        return refusal(str(name))
    return Refusal("dispatch", f"the chain says no to it: {printable(str(error)[:200])}", "nothing was changed by it")
