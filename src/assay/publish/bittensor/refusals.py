"""Why a chain refuses weights: its rules, looked at before they are sent, and what a node says instead of taking them.

The rules are in the chain's order, each by its own name. Plain weights: pallets/subtensor/src/subnets/weights.rs, set_weights.
Commitments: the rules of the commitment first, then those that are applied when it is revealed, since a reveal that fails leaves
no trace. What the stake is compared with comes before both there (guards/check_weights.rs), as an error of the pool.

The numbers of a node's answers are those of its JSON-RPC (author) and of the chain's own errors of validity
(common/src/transaction_error.rs).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from assay.errors import printable
from assay.publish.bittensor.subnet import Neuron, SubnetState
from assay.publish.outcome import Outcome, Refusal, TooEarly
from assay.publish.rpc import RpcError

COMMIT_VERSION = 4
"""The form of a commitment that is made here."""
UNREVEALED = 10
"""Commitments of a hotkey in one epoch, at most."""
U16 = 65_535
_FRACTION = 32
"""Binary digits after the point of the chain's own fractions."""


def preflight(subnet: SubnetState, hotkey: str, uids: Sequence[int], values: Sequence[int], version_key: int) -> Outcome | None:
    """Why the chain would not take these weights of a hotkey now; None if it would."""
    own = subnet.by_hotkey.get(hotkey)
    if subnet.commit_reveal:
        return next(_of_commitment(subnet, hotkey, own, uids, values, version_key), None)
    return next(_of_weights(subnet, hotkey, own, uids, values, version_key), None)


def _of_weights(
    subnet: SubnetState, hotkey: str, own: Neuron | None, uids: Sequence[int], values: Sequence[int], version_key: int
) -> Iterator[Outcome]:
    if subnet.netuid == 0:
        yield refusal("CanNotSetRootNetworkWeights")
    if len(uids) != len(values):
        yield refusal("WeightVecNotEqualSize", f"{len(uids)} uids and {len(values)} weights")
    if subnet.mechanism >= subnet.mechanisms:
        yield _no_mechanism(subnet)
    if len(uids) > len(subnet.neurons):
        yield refusal("UidsLengthExceedUidsInSubNet", f"{len(uids)} weights, and {len(subnet.neurons)} uids on the subnet")
    if own is None:
        yield stranger(subnet, hotkey)
        return
    yield from _stake(subnet, own)
    yield from _version(subnet, version_key)
    yield from _rate(subnet, own)
    yield from _of_vector(subnet, own, uids, values)


def _of_commitment(
    subnet: SubnetState, hotkey: str, own: Neuron | None, uids: Sequence[int], values: Sequence[int], version_key: int
) -> Iterator[Outcome]:
    if own is not None:
        yield from _stake(subnet, own)
    if subnet.mechanism >= subnet.mechanisms:
        yield _no_mechanism(subnet)
    if subnet.commit_version < COMMIT_VERSION:
        yield older(subnet)
    elif subnet.commit_version > COMMIT_VERSION:
        what = f"the chain takes version {subnet.commit_version} of a commitment, and this program makes version {COMMIT_VERSION}"
        yield refusal("IncorrectCommitRevealVersion", what)
    if own is None:
        yield stranger(subnet, hotkey)
        return
    yield from _rate(subnet, own)
    if subnet.unrevealed.get(hotkey, 0) >= UNREVEALED:
        yield refusal("TooManyUnrevealedCommits", f"{subnet.unrevealed[hotkey]} commitments of this epoch wait")
    if subnet.netuid == 0:
        yield refusal("CanNotSetRootNetworkWeights")
    if len(uids) != len(values):
        yield refusal("WeightVecNotEqualSize", f"{len(uids)} uids and {len(values)} weights")
    if len(uids) > len(subnet.neurons):
        yield refusal("UidsLengthExceedUidsInSubNet", f"{len(uids)} weights, and {len(subnet.neurons)} uids on the subnet")
    yield from _version(subnet, version_key)
    yield from _of_vector(subnet, own, uids, values)


def _stake(subnet: SubnetState, own: Neuron) -> Iterator[Outcome]:
    if own.stake < subnet.min_stake and own.hotkey != subnet.owner_hotkey:
        yield refusal("NotEnoughStakeToSetWeights", f"its stake weight is {own.stake}, and {subnet.min_stake} is asked for")


def _version(subnet: SubnetState, version_key: int) -> Iterator[Outcome]:
    if 0 < subnet.version_key > version_key:
        yield refusal("IncorrectWeightVersionKey", f"the subnet asks for {subnet.version_key}, and version_key is {version_key}")


def _rate(subnet: SubnetState, own: Neuron) -> Iterator[Outcome]:
    """As of the newest block, though it is the next that could have it: a node may be behind by one."""
    may = own.last_update + subnet.rate_limit
    if own.last_update and subnet.block.number < may:
        what = f"weights were last set in block {own.last_update}, and may be every {subnet.rate_limit} blocks"
        yield TooEarly(may, "block", what)


def _of_vector(subnet: SubnetState, own: Neuron, uids: Sequence[int], values: Sequence[int]) -> Iterator[Outcome]:
    """What is asked of the weights themselves; a hotkey that weights itself alone may always do that."""
    alone = list(uids) == [own.uid]
    if not alone and not own.permit and own.hotkey != subnet.owner_hotkey:
        yield refusal("NeuronNoValidatorPermit")
    if len(set(uids)) < len(uids):
        yield refusal("DuplicateUids")
    if unknown := [uid for uid in uids if uid not in subnet.by_uid]:
        yield refusal("UidVecContainInvalidOne", f"there is no uid {unknown[0]} on the subnet")
    least = min(len(subnet.neurons), subnet.min_allowed)
    if not alone and len(uids) < least:
        yield refusal("WeightVecLengthIsLow", f"{len(uids)} weights, and the subnet asks for {least} at least")
    if not alone and subnet.max_limit < U16 and values and not _limited(values, subnet.max_limit):
        yield refusal("MaxWeightExceeded", f"{max(values)} of {sum(values)} is more than {subnet.max_limit} of {U16}")


def _limited(values: Sequence[int], limit: int) -> bool:
    """The largest part of the whole is not above the limit; both in the chain's fractions, which are rounded down."""
    return (max(values) << _FRACTION) // max(1, sum(values)) <= (limit << _FRACTION) // U16


def _no_mechanism(subnet: SubnetState) -> Refusal:
    what = f"the subnet has {subnet.mechanisms}, counted from 0, and mechanism is {subnet.mechanism}"
    return refusal("MechanismDoesNotExist", what)


def older(subnet: SubnetState) -> Refusal:
    """Of a chain whose runtime does not know the commitments that are made here yet; 0 is a runtime that names no version."""
    says = f" (it takes version {subnet.commit_version})" if subnet.commit_version else ""
    what = f"the chain's runtime is older than commitments of version {COMMIT_VERSION}{says}"
    hint = "wait until the chain is upgraded, or have the subnet's owner turn commitments off"
    return Refusal("IncorrectCommitRevealVersion", what, hint)


def stranger(subnet: SubnetState, hotkey: str) -> Refusal:
    """Of a hotkey that the subnet does not know."""
    return refusal("HotKeyNotRegisteredInSubNet", f"{hotkey} has no uid on subnet {subnet.netuid}")


def refusal(code: str, more: str = "") -> Refusal:
    """The refusal that the chain's own name of it stands for; of a name that is not known here it is told as it is."""
    what, hint = _WORDS.get(code, ("the chain says no to it", "nothing was changed by it; docs/bittensor.md"))
    return Refusal(code, f"{what} ({more})" if more else what, hint)


_AGAIN = "do this again: the chain's settings are read anew each time"
_WORDS: dict[str, tuple[str, str]] = {
    "CommitRevealEnabled": ("the subnet takes commitments instead of weights now", _AGAIN),
    "CommitRevealDisabled": ("the subnet takes weights instead of commitments now", _AGAIN),
    "CanNotSetRootNetworkWeights": ("the root network takes no such weights", "correct netuid in publish.toml"),
    "WeightVecNotEqualSize": ("there are not as many weights as uids", "tell whoever maintains this program"),
    "InputLengthsUnequal": ("there are not as many weights as uids", "tell whoever maintains this program"),
    "MechanismDoesNotExist": ("there is no such mechanism", "correct netuid and mechanism in publish.toml"),
    "SubnetNotExists": ("there is no such subnet", "correct netuid in publish.toml"),
    "UidsLengthExceedUidsInSubNet": ("there are more weights than uids", "pull the registry, and settle the next epoch by it"),
    "HotKeyNotRegisteredInSubNet": (
        "the hotkey is not registered on the subnet",
        "register it (that takes the coldkey, and another program), or correct key or netuid in publish.toml",
    ),
    "NotEnoughStakeToSetWeights": (
        "the hotkey has less stake than it takes to set weights",
        "have more staked to it; the stake weight counts what the chain's epoch counts",
    ),
    "IncorrectWeightVersionKey": (
        "the weights are of an older version than the subnet asks for",
        "see what its owner has changed; when that is met, write version_key in publish.toml",
    ),
    "IncorrectCommitRevealVersion": ("the chain takes another form of commitments", "install a newer version of this program"),
    "SettingWeightsTooFast": ("weights were set too short a time ago", "do this again later: --dry-run says from which block on"),
    "CommittingWeightsTooFast": ("weights were committed too short a time ago", "do this again later: --dry-run says when"),
    "RateLimitExceeded": ("weights were set or committed too short a time ago", "do this again later: --dry-run says when"),
    "TooManyUnrevealedCommits": ("too many commitments wait to be revealed", "wait for the subnet's next epoch"),
    "InvalidRevealRound": ("the round by which it was to be revealed is past", "set this machine's clock, then do this again"),
    "NeuronNoValidatorPermit": (
        "the hotkey has no validator permit",
        "the subnet's epoch gives it to those with the most stake; have more staked to the hotkey",
    ),
    "DuplicateUids": ("a uid has two weights", "tell whoever maintains this program"),
    "UidVecContainInvalidOne": ("a uid is not on the subnet", "pull the registry, and settle the next epoch by it"),
    "WeightVecLengthIsLow": (
        "there are fewer weights than the subnet asks for",
        "let more participants have a share (the scheme's strategy and floor), or have its owner lower min_allowed_weights",
    ),
    "MaxWeightExceeded": ("one weight is larger than the subnet allows", "lower the scheme's cap"),
}
"""The chain's name of a refusal → what it says, what to do."""


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
