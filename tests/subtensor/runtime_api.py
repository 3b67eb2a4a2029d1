"""The runtime's own functions, asked through `state_call`: those that a client needs, with what the chain would answer."""

from __future__ import annotations

from typing import Any

from .chain import SimulatedChain
from .newer import STATE
from .pool import RpcFault
from .storage import Storage
from .subnets import exists, index, public_key, stake


def call(chain: SimulatedChain, method: str, params: bytes, at: int) -> bytes:
    """What a runtime function answers, in SCALE, by the state of block `at`."""
    state = chain.state
    if method == "Metadata_metadata_at_version":
        content = state.metadata.versions.get(int.from_bytes(params, "little"))
        return b"\0" if content is None else b"\1" + state.encode("Compact<u32>", len(content)) + content
    if method == "Metadata_metadata_versions":
        return state.encode("Vec<u32>", sorted(state.metadata.versions))
    if method == "Metadata_metadata":
        return state.encode("Compact<u32>", len(oldest(state))) + oldest(state)
    if method == "Core_version":
        return bytes.fromhex(_constant(state)[2:])
    if method == "AccountNonceApi_account_nonce":
        return state.encode("u32", state.get("System.Account", params[:32], at=at)["nonce"])
    if method == "TransactionPaymentApi_query_info":  # setting weights is free
        return state.encode("Compact<u64>", 1_000_000) + b"\0" + b"\0" + bytes(8)
    if method == "SubnetInfoRuntimeApi_get_subnet_state":
        content = subnet_state(state, int.from_bytes(params[:2], "little"), at)
        return content if state.current else state.encode("Compact<u32>", len(content)) + content
    raise RpcFault(4003, f"Client error: Execution failed: Other: Exported method {method} is not found")


def oldest(state: Storage) -> bytes:
    """Metadata 14, which every node has, unless it was given to this one in another version only."""
    if 14 not in state.metadata.versions:
        raise RpcFault(4003, "Client error: this simulated node was given no metadata of version 14")
    return state.metadata.versions[14]


def _constant(state: Storage) -> str:
    version = state.runtime.constant("System", "Version")
    return "0x" + bytes(state.runtime.encode("scale_info::97", version)).hex()


def subnet_state(state: Storage, netuid: int, at: int) -> bytes:
    """An Option<SubnetState>: a vector for each thing that is known of the neurons."""
    if not exists(state, netuid):
        return b"\0"
    hotkeys = [public_key(state.get("Keys", netuid, uid, at=at)) for uid in range(state.get("SubnetworkN", netuid, at=at))]
    stakes = [stake(state, netuid, hotkey, at) for hotkey in hotkeys]
    values: dict[str, Any] = {
        "netuid": netuid,
        "hotkeys": hotkeys,
        "coldkeys": [state.get("Owner", hotkey, at=at) for hotkey in hotkeys],
        "active": state.get("Active", netuid, at=at),
        "validator_permit": state.get("ValidatorPermit", netuid, at=at),
        "last_update": state.get("LastUpdate", index(netuid, 0), at=at),
        "block_at_registration": [state.get("BlockAtRegistration", netuid, uid, at=at) for uid in range(len(hotkeys))],
        "total_stake": [amounts[0] for amounts in stakes],
        "alpha_stake": [amounts[1] for amounts in stakes],
        "tao_stake": [amounts[2] for amounts in stakes],
        "emission_history": [],
    }
    zeros = [0] * len(hotkeys)
    raw = b"\1"
    for name, kind in STATE:
        plain = kind.replace("NetUid", "u16").replace("AccountId", "AccountId32")
        raw += state.encode(plain, values.get(name, zeros))
    return raw
