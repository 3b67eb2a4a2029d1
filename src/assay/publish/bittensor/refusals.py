"""Checks weights against the chain's rules before they are sent, and explains the errors with which node and chain refuse them.

The rules are in the chain's order, with the chain's names. Plain weights: pallets/subtensor/src/subnets/weights.rs, set_weights.
Commitments: first the rules of the commitment, then those of its reveal, because a failed reveal leaves no trace. The chain
checks the stake before both, and reports it as an error of the pool (guards/check_weights.rs).

The error numbers are those of the node's JSON-RPC (author) and the chain's own validity errors (common/src/transaction_error.rs).
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
"""The version of the commitments that Assay makes."""
UNREVEALED = 10
"""Most commitments of a hotkey in one epoch."""
U16 = 65_535
_FRACTION = 32
"""Fractional bits of the chain's fixed-point numbers."""


def preflight(subnet: SubnetState, hotkey: str, uids: Sequence[int], values: Sequence[int], version_key: int) -> Outcome | None:
    """The reason why the chain would not accept these weights of a hotkey now; None if it would."""
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
        what = f"the chain accepts commitments of version {subnet.commit_version}, but Assay makes version {COMMIT_VERSION}"
        yield refusal("IncorrectCommitRevealVersion", what)
    if own is None:
        yield stranger(subnet, hotkey)
        return
    yield from _rate(subnet, own)
    if subnet.unrevealed.get(hotkey, 0) >= UNREVEALED:
        yield refusal("TooManyUnrevealedCommits", f"{subnet.unrevealed[hotkey]} commitments of this epoch are waiting")
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
        yield refusal("NotEnoughStakeToSetWeights", f"its stake weight is {own.stake}, but {subnet.min_stake} is required")


def _version(subnet: SubnetState, version_key: int) -> Iterator[Outcome]:
    if 0 < subnet.version_key > version_key:
        what = f"the subnet requires {subnet.version_key}, but version_key is {version_key}"
        yield refusal("IncorrectWeightVersionKey", what)


def _rate(subnet: SubnetState, own: Neuron) -> Iterator[Outcome]:
    """The rate limit at the newest block, not at the next one that could include the weights: a node may lag by a block."""
    may = own.last_update + subnet.rate_limit
    if own.last_update and subnet.block.number < may:
        what = f"weights were last set in block {own.last_update}, and may be set every {subnet.rate_limit} blocks"
        yield TooEarly(may, "block", what)


def _of_vector(subnet: SubnetState, own: Neuron, uids: Sequence[int], values: Sequence[int]) -> Iterator[Outcome]:
    """The rules about the weights themselves; a hotkey may always set a weight for itself alone."""
    alone = list(uids) == [own.uid]
    if not alone and not own.permit and own.hotkey != subnet.owner_hotkey:
        yield refusal("NeuronNoValidatorPermit")
    if len(set(uids)) < len(uids):
        yield refusal("DuplicateUids")
    if unknown := [uid for uid in uids if uid not in subnet.by_uid]:
        yield refusal("UidVecContainInvalidOne", f"there is no uid {unknown[0]} on the subnet")
    least = min(len(subnet.neurons), subnet.min_allowed)
    if not alone and len(uids) < least:
        yield refusal("WeightVecLengthIsLow", f"{len(uids)} weights, but the subnet requires at least {least}")
    if not alone and subnet.max_limit < U16 and values and not _limited(values, subnet.max_limit):
        yield refusal("MaxWeightExceeded", f"{max(values)} of {sum(values)} is more than {subnet.max_limit} of {U16}")


def _limited(values: Sequence[int], limit: int) -> bool:
    """True if the largest part of the whole is within the limit, both in the chain's fixed-point numbers, rounded down."""
    return (max(values) << _FRACTION) // max(1, sum(values)) <= (limit << _FRACTION) // U16


def _no_mechanism(subnet: SubnetState) -> Refusal:
    what = f"the subnet has {subnet.mechanisms}, counted from 0, but mechanism is {subnet.mechanism}"
    return refusal("MechanismDoesNotExist", what)


def older(subnet: SubnetState) -> Refusal:
    """The refusal for a chain whose runtime does not support Assay's commitments yet; version 0 means that it names none."""
    says = f" (it accepts version {subnet.commit_version})" if subnet.commit_version else ""
    what = f"the chain's runtime is older than commitments of version {COMMIT_VERSION}{says}"
    hint = "wait until the chain is upgraded, or ask the subnet's owner to turn commitments off"
    return Refusal("IncorrectCommitRevealVersion", what, hint)


def stranger(subnet: SubnetState, hotkey: str) -> Refusal:
    """The refusal for a hotkey that has no uid on the subnet."""
    return refusal("HotKeyNotRegisteredInSubNet", f"{hotkey} has no uid on subnet {subnet.netuid}")


def refusal(code: str, more: str = "") -> Refusal:
    """The refusal for the chain's own name of an error, which may be unknown here. more: details, for people."""
    what, hint = _WORDS.get(code, ("the chain refuses it", "nothing was changed; docs/bittensor.md"))
    return Refusal(code, f"{what} ({more})" if more else what, hint)


_AGAIN = "run this command again: it reads the chain's settings again each time"
_OUR_FAULT = "report it to Assay's maintainers"
_WORDS: dict[str, tuple[str, str]] = {
    "CommitRevealEnabled": ("the subnet now requires commitments instead of weights", _AGAIN),
    "CommitRevealDisabled": ("the subnet now requires weights instead of commitments", _AGAIN),
    "CanNotSetRootNetworkWeights": ("the root network does not accept such weights", "correct netuid in publish.toml"),
    "WeightVecNotEqualSize": ("the numbers of weights and of uids differ", _OUR_FAULT),
    "InputLengthsUnequal": ("the numbers of weights and of uids differ", _OUR_FAULT),
    "MechanismDoesNotExist": ("there is no such mechanism", "correct netuid and mechanism in publish.toml"),
    "SubnetNotExists": ("there is no such subnet", "correct netuid in publish.toml"),
    "UidsLengthExceedUidsInSubNet": ("there are more weights than uids", "pull the registry, and settle the next epoch with it"),
    "HotKeyNotRegisteredInSubNet": (
        "the hotkey is not registered on the subnet",
        "register it (with the coldkey, in another program), or correct key or netuid in publish.toml",
    ),
    "NotEnoughStakeToSetWeights": (
        "the hotkey has less stake than is needed to set weights",
        "get more stake; the stake weight is what the chain's epoch counts",
    ),
    "IncorrectWeightVersionKey": (
        "the weights have an older version than the subnet requires",
        "find out what its owner has changed; when you comply, write version_key in publish.toml",
    ),
    "IncorrectCommitRevealVersion": ("the chain requires another version of commitments", "install a newer version of Assay"),
    "SettingWeightsTooFast": (
        "weights were set too recently",
        "run this command again later: --dry-run says from which block on",
    ),
    "CommittingWeightsTooFast": ("weights were committed too recently", "run this command again later: --dry-run says when"),
    "RateLimitExceeded": ("weights were set or committed too recently", "run this command again later: --dry-run says when"),
    "TooManyUnrevealedCommits": ("too many commitments wait to be revealed", "wait for the subnet's next epoch"),
    "InvalidRevealRound": ("the round of its reveal is past", "set this machine's clock, then run this command again"),
    "NeuronNoValidatorPermit": (
        "the hotkey has no validator permit",
        "the subnet's epoch gives it to the hotkeys with the most stake; get more stake for this one",
    ),
    "DuplicateUids": ("a uid has two weights", _OUR_FAULT),
    "UidVecContainInvalidOne": ("a uid is not on the subnet", "pull the registry, and settle the next epoch with it"),
    "WeightVecLengthIsLow": (
        "there are fewer weights than the subnet requires",
        "let more participants have a share (the scheme's strategy and floor), or ask its owner to lower min_allowed_weights",
    ),
    "MaxWeightExceeded": ("one weight is larger than the subnet allows", "lower the scheme's cap"),
}
"""The chain's name of an error → what it means, what to do."""


RATE = frozenset({"SettingWeightsTooFast", "CommittingWeightsTooFast", "RateLimitExceeded"})
"""The chain's errors for weights that come too early."""
_CUSTOM = {
    1: "NotEnoughStakeToSetWeights",
    3: "SubnetNotExists",
    6: "RateLimitExceeded",
    10: "HotKeyNotRegisteredInSubNet",
    15: "InvalidRevealRound",
    18: "InputLengthsUnequal",
    19: "HotKeyNotRegisteredInSubNet",
}
"""The chain's own validity errors that weights can cause; 1 stands for any stake that is too low."""
_CUSTOM_OLDER = _CUSTOM | {3: "NotEnoughStakeToSetWeights"}
"""The errors of a runtime without StakeThreshold (spec 218). It numbers them by call; the least stake is WeightsMinStake."""
_COLDKEY = {0: "a swap of its coldkey is announced", 21: "a swap of its coldkey is disputed"}
_WAITS = {
    1011: "the node cannot say yet whether it is valid",
    1012: "the node has banned it for a while, since it was not valid some minutes ago",
    1014: "another extrinsic with its nonce, or another commitment of the hotkey, waits in the node's pool",
    1016: "the node's pool is full",
}
"""A node's errors that may pass; the extrinsic is handed over again."""
_LOOK = (
    "outdated",  # its nonce is used; blocks show by which extrinsic
    '"stale"',  # the same, as chopsticks says it
    "ancient birth block",  # it has expired
    '"ancientBirthBlock"',
)
_INVALID: tuple[tuple[str, str, str, str], ...] = (
    (
        "bad signature",
        "signature",
        "the node says that its signature is wrong",
        "the chain was upgraded, or it is another chain: run this command again",
    ),
    (
        "valid in the future",
        "nonce",
        "an earlier extrinsic of the hotkey is missing",
        "run this command again when that one is in a block",
    ),
    (
        "pay some fees",
        "payment",
        "the hotkey's account cannot pay for it",
        "setting weights costs nothing: is it the right chain?",
    ),
    ("block limits", "limits", "no block has room for it now", "run this command again"),
)


def of_pool(error: RpcError, *, older: bool = False) -> Refusal | str | None:
    """A node's error as a Refusal; a text if the extrinsic only has to wait; None if the chain must be looked at again.

    older: whether the chain's runtime has no StakeThreshold.
    """
    answer = printable(f"{error.message} {error.data if isinstance(error.data, str) else ''}")
    if error.code == 1013 or (error.code == 1010 and any(words in answer for words in _LOOK)):
        return None
    if error.code in _WAITS:
        return _WAITS[error.code]
    if error.code == 1010:
        number = re.search('[Cc]ustom(?: error: |":)([0-9]{1,3})', answer)  # as Substrate's node says it, or as chopsticks does
        return _custom(int(number[1]), _CUSTOM_OLDER if older else _CUSTOM) if number else _invalid(answer)
    return Refusal("node", f"the node does not accept it: {answer.strip()[:300]}", "ask another node")


def _custom(number: int, names: Mapping[int, str]) -> Refusal:
    if number in _COLDKEY:
        what = f"{_COLDKEY[number]}, and until it is over the hotkey can do nothing else"
        return Refusal("coldkey-swap", what, "ask the owner of the coldkey")
    if number in names:
        return refusal(names[number])
    return Refusal("custom", f"the chain says that it is not valid (custom error {number})", "look it up: CustomTransactionError")


def _invalid(answer: str) -> Refusal:
    for words, code, what, hint in _INVALID:
        if words in answer:
            return Refusal(code, what, hint)
    return Refusal("invalid", f"the node says that it is not valid: {answer.strip()[:300]}", "nothing was changed")


def dispatched(runtime: Any, error: object) -> Refusal:
    """The refusal for the error of an extrinsic that failed in a block."""
    module = error.get("Module") if isinstance(error, Mapping) else None
    if isinstance(module, Mapping):
        raw = module.get("error")
        number = int(raw[2:4], 16) if isinstance(raw, str) else raw[0] if isinstance(raw, list | tuple | bytes) else raw
        try:
            name, _ = runtime.module_error(module.get("index"), number)
        except (ValueError, KeyError, TypeError):
            name = f"module-{module.get('index')}-{number}"
        return refusal(str(name))
    return Refusal("dispatch", f"the chain refuses it: {printable(str(error)[:200])}", "nothing was changed")
