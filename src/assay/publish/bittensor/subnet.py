"""Reads the state of a subnet from its chain, all at one block, with stakes and permits as the chain itself counts them.

The rules of the chain, with their places in its source (pallets/subtensor/src):

- Stake weight is a hotkey's alpha of the subnet plus TaoWeight times its stake on root, both after the parts that go to its child
  hotkeys and come from its parents. The epoch counts it, and the runtime api `get_subnet_state` calls it `total_stake`
  (staking/stake_utils/inherited_stake.rs, rpc_info/show_subnet.rs). It is not the sum of the stakes.
- Below StakeThreshold it counts as 0, except for the uid of the subnet's own hotkey (SubnetOwnerHotkey). That hotkey also has a
  validator's permit, whatever its stake (epoch/run_epoch/epoch_mechanism.rs, subnets/weights.rs).
- The chain recycles or burns what SubnetOwnerHotkey and any hotkey of the owner's coldkey earn
  (coinbase/run_coinbase/dividend_distribution.rs).
- Weights, last updates and commitments of mechanism m are stored under netuid + m · 4096 (subnets/mechanism.rs).
- MaxWeightsLimit is stored but no longer used: the limit is 65,535 (utils/misc/subnet_hyperparams.rs).

Runtimes without mechanisms (spec 218) return `get_subnet_state` as bytes and have no such threshold. For them the stake is the
one that the last epoch counted (StakeWeight), in parts of 65,535.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from assay.errors import Unreachable
from assay.publish.bittensor.node import BittensorNode, BlockId
from assay.publish.outcome import Refusal


@dataclass(frozen=True, slots=True)
class Neuron:
    """A uid with its hotkey. Addresses are SS58.

    stake: the stake weight as the chain's epoch counts it, in the smallest unit; 0 if it is below the chain's threshold.
    permit: whether it may validate; the subnet owner's own hotkey always may.
    last_update: the block in which it last set or committed weights for the mechanism; 0 if it never did.
    registered_at: the block in which the hotkey got this uid.
    """

    uid: int
    hotkey: str
    coldkey: str
    stake: int
    permit: bool
    active: bool
    last_update: int
    registered_at: int


@dataclass(frozen=True)
class SubnetState:
    """The state of a subnet and one of its mechanisms, all read at `block`. Durations are in blocks.

    owner_hotkeys: hotkeys of the owner; the chain burns what they would earn. min_stake: the stake that a hotkey needs to set
    weights; 0 if it needs none. epoch_index, last_epoch, pending_epoch, since_step: the chain's schedule of epochs, from which
    the block of a reveal follows; None if the runtime has no such state. reveal_epochs: epochs after which a commitment is
    revealed. unrevealed: how many commitments each hotkey made in this epoch. owner_hotkey: the one hotkey that needs neither
    stake nor a permit; None if it has no uid.
    """

    netuid: int
    mechanism: int
    mechanisms: int
    block: BlockId
    neurons: tuple[Neuron, ...]
    owner_hotkeys: frozenset[str]
    commit_reveal: bool
    commit_version: int
    reveal_epochs: int
    version_key: int
    rate_limit: int
    min_allowed: int
    max_limit: int
    min_stake: int
    tempo: int
    block_seconds: float
    epoch_index: int | None
    last_epoch: int | None
    pending_epoch: int | None
    since_step: int | None
    unrevealed: Mapping[str, int]
    owner_hotkey: str | None = None

    @cached_property
    def by_hotkey(self) -> dict[str, Neuron]:
        """The neurons by hotkey; a hotkey has at most one uid."""
        return {neuron.hotkey: neuron for neuron in self.neurons}

    @cached_property
    def by_uid(self) -> dict[int, Neuron]:
        """The neurons by uid."""
        return {neuron.uid: neuron for neuron in self.neurons}


NETUIDS = 4096
"""Every netuid is below this. It is also the distance between the storage indexes of two mechanisms."""
MECHANISMS = 16
"""Most mechanisms of a subnet."""
NUMBERS = 2**52
"""Block numbers and durations are below this, so the sum of two is exact even in JSON."""
U16 = 65_535
LARGE = ("StakeThreshold", "WeightsVersionKey")
"""Values that are not numbers of blocks, so they may be larger."""
MOST = 2**63
"""Every stake is below this: there are 21 million coins, and as many of each subnet's, in billionths."""
PALLET = "SubtensorModule"
_OF_SUBNET: dict[str, type] = {
    "NetworksAdded": bool,
    "SubnetworkN": int,
    "SubnetOwner": str,
    "SubnetOwnerHotkey": str,
    "Active": list,
    "ValidatorPermit": list,
    "StakeWeight": list,
    "CommitRevealWeightsEnabled": bool,
    "RevealPeriodEpochs": int,
    "WeightsVersionKey": int,
    "WeightsSetRateLimit": int,
    "MinAllowedWeights": int,
    "MaxWeightsLimit": int,
    "Tempo": int,
    "BlocksSinceLastStep": int,
}
_NEWER: dict[str, type] = {"MechanismCountCurrent": int, "SubnetEpochIndex": int, "LastEpochBlock": int, "PendingEpochAt": int}
_OF_CHAIN: dict[str, type] = {"StakeThreshold": int, "CommitRevealWeightsVersion": int}


def index_of(netuid: int, mechanism: int) -> int:
    """The index of a mechanism in the chain's storage."""
    return netuid + mechanism * NETUIDS


def read_subnet(node: BittensorNode, netuid: int, mechanism: int, at: BlockId) -> SubnetState | Refusal:
    """The subnet's state at a block, or the refusal if there is no such subnet. Raises Unreachable."""
    stored = _values(node, netuid, at)
    if not stored["NetworksAdded"]:
        return Refusal("SubnetNotExists", f"the chain has no subnet {netuid} at block {at.number}", "correct netuid")
    mechanisms = stored.get("MechanismCountCurrent", 1)
    if mechanism >= mechanisms:
        what = f"subnet {netuid} has no mechanism {mechanism}, only {mechanisms}"
        return Refusal("MechanismDoesNotExist", what, "correct mechanism; the first one is 0")
    owner, owner_hotkey = stored["SubnetOwner"], stored["SubnetOwnerHotkey"]
    neurons = _neurons(node, netuid, mechanism, at, stored)
    return SubnetState(
        netuid=netuid,
        mechanism=mechanism,
        mechanisms=mechanisms,
        block=at,
        neurons=neurons,
        owner_hotkeys=frozenset(row.hotkey for row in neurons if owner_hotkey == row.hotkey or owner == row.coldkey),
        commit_reveal=stored["CommitRevealWeightsEnabled"],
        commit_version=stored.get("CommitRevealWeightsVersion", 0),
        reveal_epochs=stored["RevealPeriodEpochs"],
        version_key=stored["WeightsVersionKey"],
        rate_limit=stored["WeightsSetRateLimit"],
        min_allowed=stored["MinAllowedWeights"],
        max_limit=U16 if "MechanismCountCurrent" in stored else stored["MaxWeightsLimit"],
        min_stake=stored.get("StakeThreshold", 0),
        tempo=stored["Tempo"],
        block_seconds=_block_seconds(node, at),
        epoch_index=stored.get("SubnetEpochIndex"),
        last_epoch=stored.get("LastEpochBlock"),
        pending_epoch=stored.get("PendingEpochAt"),
        since_step=stored.get("BlocksSinceLastStep"),
        unrevealed=_unrevealed(node, index_of(netuid, mechanism), at, stored.get("SubnetEpochIndex")),
        owner_hotkey=owner_hotkey if any(row.hotkey == owner_hotkey for row in neurons) else None,
    )


def weights_of(node: BittensorNode, where: SubnetState, uid: int, at: BlockId) -> dict[int, int]:
    """The weights that the chain has stored for a uid: uid → u16; empty if it has none."""
    pairs = node.query(PALLET, "Weights", (index_of(where.netuid, where.mechanism), uid), at.hash)
    if not _are(pairs, tuple) or not all(len(pair) == 2 and _are(pair, int) for pair in pairs):
        raise _impossible(node, "Weights")
    weights = {int(to): int(weight) for to, weight in pairs}
    if len(weights) < len(pairs):
        raise _impossible(node, "Weights")
    return weights


def _values(node: BittensorNode, netuid: int, at: BlockId) -> dict[str, Any]:
    """The chain's stored values about a subnet, by name, without those that an older runtime does not have."""
    kinds = _OF_SUBNET | _NEWER | _OF_CHAIN
    known = [name for name in kinds if name in _OF_SUBNET or node.has(PALLET, name, at.hash)]
    try:
        values = node.query_many([(PALLET, name, () if name in _OF_CHAIN else (netuid,)) for name in known], at.hash)
    except KeyError as error:
        what = f"Assay does not know the runtime of {node.host}: {error.args[0]}"
        raise Unreachable(what, final=True, hint="is there a newer version of Assay?") from None
    for name, value in zip(known, values, strict=True):
        if not isinstance(value, kinds[name]) or (isinstance(value, int) and name not in LARGE and value >= NUMBERS):
            raise _impossible(node, name)
    stored = dict(zip(known, values, strict=True))
    if stored["Tempo"] > U16:
        raise _impossible(node, "Tempo")
    return stored


def _neurons(node: BittensorNode, netuid: int, mechanism: int, at: BlockId, stored: Mapping[str, Any]) -> tuple[Neuron, ...]:
    uids = range(stored["SubnetworkN"])
    hotkeys = node.query_many([(PALLET, "Keys", (netuid, uid)) for uid in uids], at.hash)
    twice = [key for key, count in Counter(hotkeys).items() if count > 1]
    if twice:
        what = f"{node.host} says that the hotkey {twice[0]} has several uids of subnet {netuid}"
        raise Unreachable(what, hint="ask another node; if it says the same, wait until the chain has corrected it")
    coldkeys = node.query_many([(PALLET, "Owner", (key,)) for key in hotkeys], at.hash)
    registered = node.query_many([(PALLET, "BlockAtRegistration", (netuid, uid)) for uid in uids], at.hash)
    updates = node.query(PALLET, "LastUpdate", (index_of(netuid, mechanism),), at.hash)
    if not _are(updates, int) or not _are(registered, int) or any(number >= NUMBERS for number in (*updates, *registered)):
        raise _impossible(node, "LastUpdate")
    stakes = _stakes(node, netuid, at, hotkeys, stored)
    permits, active = stored["ValidatorPermit"], stored["Active"]
    owner = stored["SubnetOwnerHotkey"] if "StakeThreshold" in stored else None
    return tuple(
        Neuron(
            uid=uid,
            hotkey=hotkeys[uid],
            coldkey=coldkeys[uid],
            stake=stakes[uid] if stakes[uid] >= stored.get("StakeThreshold", 0) or hotkeys[uid] == owner else 0,
            permit=_at(permits, uid, False) or hotkeys[uid] == owner,
            active=_at(active, uid, False),
            last_update=_at(updates, uid, 0),
            registered_at=registered[uid],
        )
        for uid in uids
    )


def _stakes(node: BittensorNode, netuid: int, at: BlockId, hotkeys: Sequence[str], stored: Mapping[str, Any]) -> list[int]:
    """The stake weight of each uid, before the threshold."""
    state = node.call("SubnetInfoRuntimeApi", "get_subnet_state", (netuid,), at.hash)
    if state is None or isinstance(state, bytes):
        return [_at(stored["StakeWeight"], uid, 0) for uid in range(len(hotkeys))]
    stakes: list[int] = state["total_stake"] if isinstance(state, dict) and _are(state.get("total_stake"), int) else []
    if len(stakes) != len(hotkeys) or state.get("hotkeys") != hotkeys or any(stake >= MOST for stake in stakes):
        raise _impossible(node, "get_subnet_state")
    return stakes


def _unrevealed(node: BittensorNode, index: int, at: BlockId, epoch: int | None) -> dict[str, int]:
    """The number of commitments that each hotkey made in this epoch."""
    if epoch is None or not node.has(PALLET, "TimelockedWeightCommits", at.hash):
        return {}
    rows = node.query(PALLET, "TimelockedWeightCommits", (index, epoch), at.hash)
    if not _are(rows, tuple) or not all(row and isinstance(row[0], str) for row in rows):
        raise _impossible(node, "TimelockedWeightCommits")
    return dict(Counter(row[0] for row in rows))


def _block_seconds(node: BittensorNode, at: BlockId) -> float:
    """Seconds between two blocks, by the chain's own constant."""
    millis = node.runtime(at.hash).constant("Aura", "SlotDuration")
    if not isinstance(millis, int) or not 0 < millis <= 3_600_000:
        raise _impossible(node, "Aura.SlotDuration")
    return millis / 1000


def _are(values: object, kind: type) -> bool:
    return isinstance(values, list | tuple) and all(isinstance(value, kind) for value in values)


def _at(values: Sequence[Any], uid: int, otherwise: Any) -> Any:
    """The value of a uid in a vector that may be shorter than the subnet."""
    return values[uid] if uid < len(values) else otherwise


def _impossible(node: BittensorNode, what: str) -> Unreachable:
    return Unreachable(f"{node.host} sent an impossible answer ({what})", hint="is it a node of a subtensor chain?")
