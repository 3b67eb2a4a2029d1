"""Subnets and who is in them: making them, changing them, and what the chain works out of them. Amounts are in rao."""

from __future__ import annotations

from typing import Any

import bittensor_core

from .storage import Storage

MAX_SUBNETS = 4096  # the index of a mechanism's storage is netuid + mechanism · this
SETTINGS: dict[str, Any] = {  # of a new subnet, as the chain gives them today; storage items by name
    "Tempo": 360,
    "WeightsSetRateLimit": 100,
    "CommitRevealWeightsEnabled": True,
    "RevealPeriodEpochs": 1,
    "WeightsVersionKey": 0,
    "MinAllowedWeights": 1,
    "MaxWeightsLimit": 65535,
    "MaxAllowedUids": 256,
    "MaxAllowedValidators": 64,
    "ImmunityPeriod": 4096,
    "ActivityCutoff": 5000,
}
VECTORS = {  # one value for each uid, under the netuid
    "Active": True,
    "ValidatorPermit": False,
    "Rank": 0,
    "Trust": 0,
    "Consensus": 0,
    "Incentive": 0,
    "Dividends": 0,
    "Emission": 0,
    "ValidatorTrust": 0,
    "PruningScores": 0,
}


def public_key(who: str | bytes) -> bytes:
    """The public key of a key URI (`//Alice`), an SS58 address or a public key."""
    if isinstance(who, bytes):
        return who
    if "/" in who:
        return bytes(bittensor_core.Keypair.create_from_uri(who).public_key)
    return bytes(bittensor_core.Keypair(ss58_address=who).public_key)


def index(netuid: int, mechanism: int) -> int:
    """Where the weights and last updates of a mechanism are stored."""
    return netuid + mechanism * MAX_SUBNETS


def add_subnet(state: Storage, netuid: int, owner_hotkey: str | bytes, owner_coldkey: str | bytes, **settings: Any) -> None:
    """A subnet without neurons. settings: storage items by name, over SETTINGS."""
    state.put("NetworksAdded", netuid, value=True)
    state.put("NetworkRegisteredAt", netuid, value=state.block)
    state.put("TotalNetworks", value=state.get("TotalNetworks") + 1)
    state.put("SubnetworkN", netuid, value=0)
    state.put("SubnetOwner", netuid, value=public_key(owner_coldkey))
    state.put("SubnetOwnerHotkey", netuid, value=public_key(owner_hotkey))
    for name, value in {**{name: value for name, value in SETTINGS.items() if state.has(name)}, **settings}.items():
        state.put(name, netuid, value=value)
    if state.has("LastEpochBlock"):
        state.put("LastEpochBlock", netuid, value=state.block)


def register(
    state: Storage,
    netuid: int,
    hotkey: str | bytes,
    coldkey: str | bytes,
    *,
    uid: int | None = None,
    alpha: int = 0,
    tao: int = 0,
    permit: bool = False,
    active: bool = True,
) -> int:
    """Give a hotkey the next uid, or `uid` in place of who has it, as the chain's append_neuron and replace_neuron do.

    Its last update is this block, so that its rate is limited from here on. Of who had the uid nothing stays, and the weights
    that others gave the uid become 0. (The chain itself never replaces the owner's hotkey.)
    """
    hot, cold, count = public_key(hotkey), public_key(coldkey), state.get("SubnetworkN", netuid)
    uid = count if uid is None else uid
    if uid > count:
        raise ValueError(f"the next uid of subnet {netuid} is {count}")
    if uid < count:
        _clear(state, netuid, uid)
    else:
        state.put("SubnetworkN", netuid, value=uid + 1)
    state.put("Keys", netuid, uid, value=hot)
    state.put("Uids", netuid, hot, value=uid)
    state.put("BlockAtRegistration", netuid, uid, value=state.block)
    state.put("Owner", hot, value=cold)
    state.put("IsNetworkMember", hot, netuid, value=True)
    owned = state.get("OwnedHotkeys", cold)
    if bittensor_core.encode_ss58(hot, 42) not in owned:
        state.put("OwnedHotkeys", cold, value=[*owned, hot])
    for name in filter(state.has, VECTORS):
        _set(state, name, netuid, uid, VECTORS[name])
    _set(state, "Active", netuid, uid, active)
    _set(state, "ValidatorPermit", netuid, uid, permit)
    for mechanism in range(mechanisms(state, netuid)):
        set_last_update(state, netuid, mechanism, uid, state.block)
    state.put("TotalHotkeyAlpha", hot, netuid, value=alpha)
    state.put("TotalHotkeyAlpha", hot, 0, value=tao)
    fund(state, hot)
    return int(uid)


def _clear(state: Storage, netuid: int, uid: int) -> None:
    """Take a uid from who has it."""
    gone = public_key(state.get("Keys", netuid, uid))
    state.put("Uids", netuid, gone, value=None)
    state.put("IsNetworkMember", gone, netuid, value=None)
    for mechanism in range(mechanisms(state, netuid)):
        at = index(netuid, mechanism)
        state.put("Weights", at, uid, value=None)
        for other, given in state.under("Weights", at):
            state.put("Weights", at, other, value=[(to, 0 if to == uid else weight) for to, weight in given])


def fund(state: Storage, who: str | bytes) -> None:
    """Make an account one that may send extrinsics, as registering its hotkey does."""
    account = state.get("System.Account", public_key(who))
    account["sufficients"] = max(1, account["sufficients"])
    state.put("System.Account", public_key(who), value=account)


def set_mechanisms(state: Storage, netuid: int, count: int) -> None:
    """How many mechanisms a subnet has; the neurons have never updated the new ones."""
    state.put("MechanismCountCurrent", netuid, value=count)
    for mechanism in range(1, count):
        state.put("LastUpdate", index(netuid, mechanism), value=[0] * state.get("SubnetworkN", netuid))


def mechanisms(state: Storage, netuid: int) -> int:
    """How many mechanisms a subnet has; 1 on a runtime that has none."""
    return int(state.get("MechanismCountCurrent", netuid)) if state.current else 1


def exists(state: Storage, netuid: int) -> bool:
    """Whether there is such a subnet."""
    return bool(state.get("NetworksAdded", netuid))


def uid_of(state: Storage, netuid: int, hotkey: bytes) -> int | None:
    """The uid of a hotkey."""
    uid = state.get("Uids", netuid, hotkey)
    return None if uid is None else int(uid)


def owner_uid(state: Storage, netuid: int) -> int | None:
    """The uid of the owner's hotkey."""
    return uid_of(state, netuid, public_key(state.get("SubnetOwnerHotkey", netuid)))


def stake(state: Storage, netuid: int, hotkey: bytes, at: int | None = None) -> tuple[int, int, int]:
    """Stake weight, its alpha and its TAO: alpha + TAO · TaoWeight / 2^64. Nobody delegates to a child hotkey here."""
    alpha = int(state.get("TotalHotkeyAlpha", hotkey, netuid, at=at))
    tao = int(state.get("TotalHotkeyAlpha", hotkey, 0, at=at))
    return alpha + tao * int(state.get("TaoWeight", at=at)) // 2**64, alpha, tao


def min_stake(state: Storage) -> int:
    """What a hotkey needs to set weights."""
    return int(state.get("StakeThreshold" if state.has("StakeThreshold") else "WeightsMinStake"))


def enough_stake(state: Storage, netuid: int, hotkey: bytes) -> bool:
    """Whether a hotkey may set weights by its stake: the owner's may always, where the runtime knows mechanisms."""
    if state.current and (uid := owner_uid(state, netuid)) is not None and uid == uid_of(state, netuid, hotkey):
        return True
    return stake(state, netuid, hotkey)[0] >= min_stake(state)


def last_update(state: Storage, netuid: int, mechanism: int, uid: int) -> int:
    """The block of a neuron's last update; 0 if it never did one."""
    blocks = state.get("LastUpdate", index(netuid, mechanism))
    return int(blocks[uid]) if uid < len(blocks) else 0


def set_last_update(state: Storage, netuid: int, mechanism: int, uid: int, block: int) -> None:
    """Remember the block in which a neuron set or committed weights."""
    _set(state, "LastUpdate", index(netuid, mechanism), uid, block)


def _set(state: Storage, item: str, at: int, uid: int, value: Any) -> None:
    values = list(state.get(item, at))
    values += [type(value)()] * (uid + 1 - len(values))
    values[uid] = value
    state.put(item, at, value=values)
