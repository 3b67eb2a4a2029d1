"""Reads what a Yuma epoch of a subnet follows from: weights, bonds and hyperparameters, all at one block.

The rules of the chain (pallets/subtensor/src/epoch/run_epoch.rs), for the next epoch after the block:

- A neuron is inactive if it set no weights for ActivityCutoff blocks. Its stake then moves no consensus.
- A weight does not count if its target got its uid in the block in which the weights were set, or later.
- Bonds with a uid do not count if it was registered since the epoch before.
- A runtime without one of the newer hyperparameters computes as the defaults of `YumaRules` do.

Whoever sets weights now is active, and all its weights count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from assay.errors import Unreachable
from assay.publish.bittensor.node import BittensorNode
from assay.publish.bittensor.subnet import PALLET, SubnetState, index_of
from assay.rules.fixed import U16, of_ratio
from assay.rules.yuma import Neurons, YumaEpoch, YumaRules, epoch

__all__ = ["Metagraph", "YumaPreview", "preview", "read_metagraph"]

MILLION = 10**6
_NUMBERS = {"Kappa": U16, "BondsPenalty": U16, "BondsMovingAverage": MILLION, "AlphaSigmoidSteepness": 2**15 - 1}
"""Hyperparameter → the largest value."""
_FIELDS = {
    "Kappa": "kappa",
    "BondsPenalty": "bonds_penalty",
    "BondsMovingAverage": "bonds_moving_average",
    "AlphaSigmoidSteepness": "steepness",
    "Yuma3On": "yuma3",
    "LiquidAlphaOn": "liquid",
}


@dataclass(frozen=True)
class Metagraph:
    """The neurons of a subnet and its hyperparameters. due: the block of the next epoch, by the chain's schedule."""

    subnet: SubnetState
    neurons: Neurons
    rules: YumaRules
    due: int

    def with_weights(self, uid: int, weights: Mapping[int, int]) -> Neurons:
        """The neurons if a uid sets these weights now: uid → u16. Each must be a uid of the subnet."""
        neurons = self.neurons
        row = [weights.get(at, 0) for at in range(len(neurons.stakes))]
        rows = [row if at == uid else list(before) for at, before in enumerate(neurons.weights)]
        outdated = frozenset(pair for pair in neurons.outdated if pair[0] != uid)
        return replace(neurons, weights=rows, inactive=neurons.inactive - {uid}, outdated=outdated)


@dataclass(frozen=True)
class YumaPreview:
    """The next epoch as it is now, and as it is if a uid sets some weights now."""

    metagraph: Metagraph
    uid: int
    before: YumaEpoch
    after: YumaEpoch


def preview(metagraph: Metagraph, uid: int, weights: Mapping[int, int]) -> YumaPreview:
    """The epoch with and without these weights of a uid."""
    before = epoch(metagraph.neurons, metagraph.rules)
    return YumaPreview(metagraph, uid, before, epoch(metagraph.with_weights(uid, weights), metagraph.rules))


def read_metagraph(node: BittensorNode, subnet: SubnetState) -> Metagraph:
    """The metagraph of a subnet at the block of its state. Raises Unreachable."""
    at, index, n = subnet.block, index_of(subnet.netuid, subnet.mechanism), len(subnet.neurons)
    uids = [neuron.uid for neuron in subnet.neurons]
    weights, bonds = (
        [_row(node, name, pairs, n) for pairs in node.query_many([(PALLET, name, (index, uid)) for uid in uids], at.hash)]
        for name in ("Weights", "Bonds")
    )
    stored = _hyperparameters(node, subnet)
    due = at.number + max(0, subnet.tempo - (subnet.since_step or 0))
    updates, registered = ([getattr(neuron, name) for neuron in subnet.neurons] for name in ("last_update", "registered_at"))
    cutoff = stored.pop("ActivityCutoff", None)
    inactive = {i for i in uids if (updates[i] + cutoff < due if cutoff is not None else not subnet.neurons[i].active)}
    owner = None if subnet.owner_hotkey is None else subnet.by_hotkey[subnet.owner_hotkey].uid
    neurons = Neurons(
        stakes=[neuron.stake for neuron in subnet.neurons],
        weights=weights,
        permits=[neuron.permit for neuron in subnet.neurons],
        bonds=bonds,
        inactive=frozenset(inactive),
        outdated=frozenset((i, j) for i in uids for j in uids if updates[i] <= registered[j]),
        recent=frozenset(j for j in uids if due - subnet.tempo <= registered[j]),
        owner=owner,
    )
    return Metagraph(subnet, neurons, _rules(stored), due)


def _hyperparameters(node: BittensorNode, subnet: SubnetState) -> dict[str, Any]:
    """The stored hyperparameters that the runtime has."""
    at = subnet.block.hash
    names = [name for name in (*_FIELDS, "AlphaValues", "ActivityCutoff") if node.has(PALLET, name, at)]
    values = node.query_many([(PALLET, name, (subnet.netuid,)) for name in names], at)
    stored = dict(zip(names, values, strict=True))
    for name, value in stored.items():
        if name == "AlphaValues":
            pair = list(value) if isinstance(value, list | tuple) else []
            right = len(pair) == 2 and all(_is_number(part, U16) for part in pair)
        elif name in ("Yuma3On", "LiquidAlphaOn"):
            right = isinstance(value, bool)
        else:
            right = _is_number(value, _NUMBERS.get(name, U16))
        if not right:
            raise _impossible(node, name)
    return stored


def _rules(stored: Mapping[str, Any]) -> YumaRules:
    fields = {field: stored[name] for name, field in _FIELDS.items() if name in stored}
    if "AlphaValues" in stored:
        fields["alpha_low"], fields["alpha_high"] = (of_ratio(value, U16) for value in stored["AlphaValues"])
    return YumaRules(**fields)


def _row(node: BittensorNode, name: str, pairs: object, n: int) -> list[int]:
    """A row of u16 by uid, of the pairs that the chain stores."""
    row = [0] * n
    for pair in pairs if isinstance(pairs, list | tuple) else [None]:
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not _is_number(pair[0], n - 1) or not _is_number(pair[1], U16):
            raise _impossible(node, name)
        row[pair[0]] = pair[1]
    return row


def _is_number(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _impossible(node: BittensorNode, what: str) -> Unreachable:
    return Unreachable(f"{node.host} sent an impossible answer ({what})", hint="is it a node of a subtensor chain?")
