"""The calls that set and commit weights: every check of the chain in its own order, each with its own error.

The order is that of pallets/subtensor/src/subnets/weights.rs and macros/dispatches.rs. `pool_check` is what the chain's
transaction extension looks at before a call comes into the pool or a block; what it refuses never becomes a module's error.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from .schedule import index_ahead
from .storage import Storage
from .subnets import enough_stake, exists, index, last_update, mechanisms, owner_uid, public_key, set_last_update, uid_of

MAX_UNREVEALED = 10
COMMIT_BYTES = 5000  # the most a timelocked commit may have
SETS = ("set_weights", "set_mechanism_weights")
COMMITS = ("commit_timelocked_weights", "commit_timelocked_mechanism_weights")
STAKE_TOO_LOW, RATE_LIMIT, BAD_ROUND = 1, 6, 15  # Custom error: N

Event = tuple[str, Any]


class CallRefused(Exception):
    """A check that failed: the name of the module's error."""


def _need(held: bool, error: str) -> None:
    if not held:
        raise CallRefused(error)


def pool_check(state: Storage, who: bytes, function: str, args: dict[str, Any]) -> int | None:
    """The number of the custom error with which the pool turns a call away; None if it lets it in."""
    if function not in (*SETS, *COMMITS):
        return None
    netuid, mechanism = args["netuid"], args.get("mecid", 0)
    if not enough_stake(state, netuid, who):
        return STAKE_TOO_LOW
    if not state.current:
        return None
    if function in COMMITS and args["reveal_round"] < state.get("Drand.LastStoredRound"):
        return BAD_ROUND
    uid = uid_of(state, netuid, who)
    if uid is None or (function in SETS and state.get("CommitRevealWeightsEnabled", netuid)):
        return None
    return None if _in_time(state, netuid, mechanism, uid) else RATE_LIMIT


def set_weights(state: Storage, who: bytes, args: dict[str, Any]) -> list[Event]:
    """`set_weights` and `set_mechanism_weights`; CallRefused with the first check that fails."""
    _need(not state.get("CommitRevealWeightsEnabled", args["netuid"]), "CommitRevealEnabled")
    return store_weights(state, who, args["netuid"], args.get("mecid", 0), args["dests"], args["weights"], args["version_key"])


def store_weights(
    state: Storage, who: bytes, netuid: int, mechanism: int, uids: list[int], values: list[int], version_key: int
) -> list[Event]:
    """Check and store a vector, plain or revealed: as revealed it is neither limited in rate nor an update."""
    revealed = state.get("CommitRevealWeightsEnabled", netuid)
    count = state.get("SubnetworkN", netuid)
    _need(netuid != 0, "CanNotSetRootNetworkWeights")
    _need(len(uids) == len(values), "WeightVecNotEqualSize")
    missing = "MechanismDoesNotExist" if state.current else "SubNetworkDoesNotExist"
    _need(exists(state, netuid) and mechanism < mechanisms(state, netuid), missing)
    _need(len(uids) <= count, "UidsLengthExceedUidsInSubNet")
    uid = uid_of(state, netuid, who)
    if uid is None:
        raise CallRefused("HotKeyNotRegisteredInSubNet")
    _need(enough_stake(state, netuid, who), "NotEnoughStakeToSetWeights")
    asked = state.get("WeightsVersionKey", netuid)
    _need(asked == 0 or version_key >= asked, "IncorrectWeightVersionKey")
    _need(revealed or _in_time(state, netuid, mechanism, uid), "SettingWeightsTooFast")
    own = uids == [uid]
    owner = state.current and owner_uid(state, netuid) == uid
    _need(own or owner or state.get("ValidatorPermit", netuid)[uid], "NeuronNoValidatorPermit")
    _need(len(set(uids)) == len(uids), "DuplicateUids")
    _need(all(uid < count for uid in uids), "UidVecContainInvalidOne")
    _need(own or len(uids) >= min(count, state.get("MinAllowedWeights", netuid)), "WeightVecLengthIsLow")
    scaled = upscaled(values)
    _need(own or _limited(scaled, state.get("MaxWeightsLimit", netuid)), "MaxWeightExceeded")
    state.put("Weights", index(netuid, mechanism), uid, value=list(zip(uids, scaled, strict=True)))
    if not revealed:
        set_last_update(state, netuid, mechanism, uid, state.block)
    return [("WeightsSet", [index(netuid, mechanism), uid])]


def commit_timelocked(state: Storage, who: bytes, args: dict[str, Any]) -> list[Event]:
    """`commit_timelocked_weights` and `commit_timelocked_mechanism_weights`; CallRefused with the first check that fails."""
    netuid, mechanism = args["netuid"], args.get("mecid", 0)
    commit = as_bytes(args["commit"])
    _need(exists(state, netuid) and mechanism < mechanisms(state, netuid), "MechanismDoesNotExist")
    _need(state.get("CommitRevealWeightsEnabled", netuid), "CommitRevealDisabled")
    _need(args["commit_reveal_version"] == state.get("CommitRevealWeightsVersion"), "IncorrectCommitRevealVersion")
    uid = uid_of(state, netuid, who)
    if uid is None:
        raise CallRefused("HotKeyNotRegisteredInSubNet")
    _need(_in_time(state, netuid, mechanism, uid), "CommittingWeightsTooFast")
    epoch = index_ahead(state, netuid, state.block)
    place = ("TimelockedWeightCommits", index(netuid, mechanism), epoch)
    waiting = state.get(*place)
    _need(sum(public_key(entry[0]) == who for entry in waiting) < MAX_UNREVEALED, "TooManyUnrevealedCommits")
    state.put(*place, value=[*waiting, (who, state.block, commit, args["reveal_round"])])
    set_last_update(state, netuid, mechanism, uid, state.block)
    named = [who, index(netuid, mechanism), "0x" + digest(commit).hex(), args["reveal_round"]]
    return [("TimelockedWeightsCommitted", named)]


def digest(commit: Any) -> bytes:
    """The hash by which the chain names a commit."""
    return blake2b(as_bytes(commit), digest_size=32).digest()


def upscaled(values: list[int]) -> list[int]:
    """The values as the chain stores them: the greatest becomes 65535, halves are rounded up; zeros stay zeros."""
    most = max(values, default=0)
    return [(2 * value * 65535 + most) // (2 * most) for value in values] if most else list(values)


def as_bytes(value: Any) -> bytes:
    """A decoded Vec<u8>: the codec gives text where the bytes are text, hex elsewhere."""
    if isinstance(value, str):
        return bytes.fromhex(value[2:]) if value.startswith("0x") else value.encode()
    return bytes(value)


def fits(function: str, args: dict[str, Any]) -> bool:
    """Whether a call's arguments are within the bounds of their types: a longer commit does not decode on the chain."""
    return function not in COMMITS or len(as_bytes(args["commit"])) <= COMMIT_BYTES


def _in_time(state: Storage, netuid: int, mechanism: int, uid: int) -> bool:
    last = last_update(state, netuid, mechanism, uid)
    return mechanism < mechanisms(state, netuid) and (last == 0 or state.block - last >= state.get("WeightsSetRateLimit", netuid))


def _limited(values: list[int], limit: int) -> bool:
    return limit == 65535 or max(values, default=0) * 65535 <= limit * sum(values)
