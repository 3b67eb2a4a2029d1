"""A subnet as its chain has it, all of it read at one block; everything else decides by it.

What the chain does, and where its source says so (pallets/subtensor/src):

- Stake weight: what a hotkey holds of the subnet's alpha, and TaoWeight of what it holds on root, both after what goes to its
  child hotkeys and comes from its parents. The epoch counts that, and the runtime api `get_subnet_state` calls it `total_stake`
  (staking/stake_utils/inherited_stake.rs, rpc_info/show_subnet.rs). A sum of stake is something else.
- Below StakeThreshold it counts as 0, except for the uid of the subnet's own hotkey (SubnetOwnerHotkey), which also has a
  validator's permit whatever its stake (epoch/run_epoch/epoch_mechanism.rs, subnets/weights.rs).
- What is earned by any hotkey of the owner's coldkey, and by SubnetOwnerHotkey, is recycled or burned
  (coinbase/run_coinbase/dividend_distribution.rs).
- Weights, last updates and commitments of mechanism m are stored under netuid + m · 4096 (subnets/mechanism.rs).
- MaxWeightsLimit is stored and no longer looked at: the limit is 65,535 (utils/misc/subnet_hyperparams.rs).

Runtimes without mechanisms (spec 218) put `get_subnet_state` into bytes and have no threshold of that kind; of them the stake is
what the last epoch counted (StakeWeight), in parts of 65,535.
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
    """Who has a uid. Addresses are SS58.

    stake: the stake weight as the chain's epoch counts it, in its smallest unit; 0 where the chain's own threshold drops it.
    permit: whether it may validate; the hotkey that the subnet names as its owner's always may.
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
    """A subnet and one of its mechanisms, all read at `block`. Lengths of time are in blocks.

    owner_hotkeys: hotkeys whose uid is the owner's: what they would earn, the chain burns.
    min_stake: what a hotkey needs to set weights; 0 for none. epoch_index, last_epoch, pending_epoch, since_step: the state of
    the chain's schedule of epochs, by which the block of a reveal is found; None where a runtime has no such state.
    reveal_epochs: epochs after which a commitment is revealed. unrevealed: commitments of this epoch, by hotkey.
    owner_hotkey: the one hotkey that needs neither stake nor a permit; None if it has no uid.
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
        """The neurons by hotkey: a hotkey has one uid at most."""
        return {one.hotkey: one for one in self.neurons}

    @cached_property
    def by_uid(self) -> dict[int, Neuron]:
        """The neurons by uid."""
        return {one.uid: one for one in self.neurons}


NETUIDS = 4096
"""A netuid is below this, and the storage of each mechanism is as far from the next one's."""
MECHANISMS = 16
"""A subnet has at most as many mechanisms."""
NUMBERS = 2**52
"""Numbers of blocks, and of what is counted in them, are below this: the sum of two is exact in JSON too."""
U16 = 65_535
LARGE = ("StakeThreshold", "WeightsVersionKey")
"""Not counted in blocks."""
MOST = 2**63
"""Nothing has as much stake: there are 21 million of the coin and of each subnet's, in billionths."""
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
    """Under which number the storage of a mechanism is."""
    return netuid + mechanism * NETUIDS


def read_subnet(node: BittensorNode, netuid: int, mechanism: int, at: BlockId) -> SubnetState | Refusal:
    """The subnet at a block, or why there is none; raises Unreachable."""
    found = _values(node, netuid, at)
    if not found["NetworksAdded"]:
        return Refusal("SubnetNotExists", f"the chain has no subnet {netuid} at block {at.number}", "correct netuid")
    mechanisms = found.get("MechanismCountCurrent", 1)
    if mechanism >= mechanisms:
        what = f"subnet {netuid} has no mechanism {mechanism}, only {mechanisms}"
        return Refusal("MechanismDoesNotExist", what, "correct mechanism; the first one is 0")
    owner, owner_hotkey = found["SubnetOwner"], found["SubnetOwnerHotkey"]
    neurons = _neurons(node, netuid, mechanism, at, found)
    return SubnetState(
        netuid=netuid,
        mechanism=mechanism,
        mechanisms=mechanisms,
        block=at,
        neurons=neurons,
        owner_hotkeys=frozenset(one.hotkey for one in neurons if owner_hotkey == one.hotkey or owner == one.coldkey),
        commit_reveal=found["CommitRevealWeightsEnabled"],
        commit_version=found.get("CommitRevealWeightsVersion", 0),
        reveal_epochs=found["RevealPeriodEpochs"],
        version_key=found["WeightsVersionKey"],
        rate_limit=found["WeightsSetRateLimit"],
        min_allowed=found["MinAllowedWeights"],
        max_limit=U16 if "MechanismCountCurrent" in found else found["MaxWeightsLimit"],
        min_stake=found.get("StakeThreshold", 0),
        tempo=found["Tempo"],
        block_seconds=_block_seconds(node, at),
        epoch_index=found.get("SubnetEpochIndex"),
        last_epoch=found.get("LastEpochBlock"),
        pending_epoch=found.get("PendingEpochAt"),
        since_step=found.get("BlocksSinceLastStep"),
        unrevealed=_unrevealed(node, index_of(netuid, mechanism), at, found.get("SubnetEpochIndex")),
        owner_hotkey=owner_hotkey if any(one.hotkey == owner_hotkey for one in neurons) else None,
    )


def weights_of(node: BittensorNode, where: SubnetState, uid: int, at: BlockId) -> dict[int, int]:
    """The weights that the chain has of a uid: uid → u16; empty if it has none."""
    found = node.query(PALLET, "Weights", (index_of(where.netuid, where.mechanism), uid), at.hash)
    if not _are(found, tuple) or not all(len(one) == 2 and _are(one, int) for one in found):
        raise _nonsense(node, "Weights")
    made = {int(to): int(weight) for to, weight in found}
    if len(made) < len(found):
        raise _nonsense(node, "Weights")
    return made


def _values(node: BittensorNode, netuid: int, at: BlockId) -> dict[str, Any]:
    """What the chain has stored about a subnet, by name; what an older runtime does not know is left out."""
    kinds = _OF_SUBNET | _NEWER | _OF_CHAIN
    known = [name for name in kinds if name in _OF_SUBNET or node.has(PALLET, name, at.hash)]
    try:
        values = node.query_many([(PALLET, name, () if name in _OF_CHAIN else (netuid,)) for name in known], at.hash)
    except KeyError as error:
        what = f"the runtime of {node.host} is not understood: {error.args[0]}"
        raise Unreachable(what, final=True, hint="is there a newer version of Assay?") from None
    for name, value in zip(known, values, strict=True):
        if not isinstance(value, kinds[name]) or (isinstance(value, int) and name not in LARGE and value >= NUMBERS):
            raise _nonsense(node, name)
    found = dict(zip(known, values, strict=True))
    if found["Tempo"] > U16:
        raise _nonsense(node, "Tempo")
    return found


def _neurons(node: BittensorNode, netuid: int, mechanism: int, at: BlockId, found: Mapping[str, Any]) -> tuple[Neuron, ...]:
    uids = range(found["SubnetworkN"])
    hotkeys = node.query_many([(PALLET, "Keys", (netuid, uid)) for uid in uids], at.hash)
    twice = [key for key, count in Counter(hotkeys).items() if count > 1]
    if twice:
        what = f"{node.host} says that the hotkey {twice[0]} has several uids of subnet {netuid}"
        raise Unreachable(what, hint="ask another node; if it says so too, wait until the chain has mended it")
    coldkeys = node.query_many([(PALLET, "Owner", (key,)) for key in hotkeys], at.hash)
    registered = node.query_many([(PALLET, "BlockAtRegistration", (netuid, uid)) for uid in uids], at.hash)
    updates = node.query(PALLET, "LastUpdate", (index_of(netuid, mechanism),), at.hash)
    if not _are(updates, int) or not _are(registered, int) or any(number >= NUMBERS for number in (*updates, *registered)):
        raise _nonsense(node, "LastUpdate")
    stakes = _stakes(node, netuid, at, hotkeys, found)
    permits, active = found["ValidatorPermit"], found["Active"]
    owner = found["SubnetOwnerHotkey"] if "StakeThreshold" in found else None
    return tuple(
        Neuron(
            uid=uid,
            hotkey=hotkeys[uid],
            coldkey=coldkeys[uid],
            stake=stakes[uid] if stakes[uid] >= found.get("StakeThreshold", 0) or hotkeys[uid] == owner else 0,
            permit=_at(permits, uid, False) or hotkeys[uid] == owner,
            active=_at(active, uid, False),
            last_update=_at(updates, uid, 0),
            registered_at=registered[uid],
        )
        for uid in uids
    )


def _stakes(node: BittensorNode, netuid: int, at: BlockId, hotkeys: Sequence[str], found: Mapping[str, Any]) -> list[int]:
    """The stake weight of each uid, before the threshold."""
    state = node.call("SubnetInfoRuntimeApi", "get_subnet_state", (netuid,), at.hash)
    if state is None or isinstance(state, bytes):
        return [_at(found["StakeWeight"], uid, 0) for uid in range(len(hotkeys))]
    stakes: list[int] = state["total_stake"] if isinstance(state, dict) and _are(state.get("total_stake"), int) else []
    if len(stakes) != len(hotkeys) or state.get("hotkeys") != hotkeys or any(stake >= MOST for stake in stakes):
        raise _nonsense(node, "get_subnet_state")
    return stakes


def _unrevealed(node: BittensorNode, index: int, at: BlockId, epoch: int | None) -> dict[str, int]:
    """How many commitments each hotkey has made in this epoch."""
    if epoch is None or not node.has(PALLET, "TimelockedWeightCommits", at.hash):
        return {}
    rows = node.query(PALLET, "TimelockedWeightCommits", (index, epoch), at.hash)
    if not _are(rows, tuple) or not all(row and isinstance(row[0], str) for row in rows):
        raise _nonsense(node, "TimelockedWeightCommits")
    return dict(Counter(row[0] for row in rows))


def _block_seconds(node: BittensorNode, at: BlockId) -> float:
    """Seconds from a block to the next, by the chain's own constant."""
    found = node.runtime(at.hash).constant("Aura", "SlotDuration")
    if not isinstance(found, int) or not 0 < found <= 3_600_000:
        raise _nonsense(node, "Aura.SlotDuration")
    return found / 1000


def _are(values: object, kind: type) -> bool:
    return isinstance(values, list | tuple) and all(isinstance(one, kind) for one in values)


def _at(values: Sequence[Any], uid: int, otherwise: Any) -> Any:
    """A uid's value in a vector, which may be shorter than the subnet."""
    return values[uid] if uid < len(values) else otherwise


def _nonsense(node: BittensorNode, what: str) -> Unreachable:
    return Unreachable(f"{node.host} answers what cannot be ({what})", hint="is it a node of a subtensor chain?")
