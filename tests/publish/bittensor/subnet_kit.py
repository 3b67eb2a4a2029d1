"""A subnet as it could stand on a chain, and shares of it: for what is decided without a chain."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from assay.publish.bittensor.node import BlockId
from assay.publish.bittensor.subnet import Neuron, SubnetState
from assay.publish.settled_epoch import EpochShares

OWNER, ME = "owner", "me"
BLOCK = BlockId(1000, "0x" + "ab" * 32)


def neuron(uid: int, hotkey: str, **changes: Any) -> Neuron:
    plain = Neuron(uid, hotkey, f"cold-{hotkey}", stake=10**12, permit=True, active=True, last_update=0, registered_at=1)
    return replace(plain, **changes)


def subnet(*hotkeys: str, **changes: Any) -> SubnetState:
    """The owner has uid 0, `me` uid 1, the others those after it."""
    fields: dict[str, Any] = {
        "netuid": 7,
        "mechanism": 0,
        "mechanisms": 1,
        "block": BLOCK,
        "neurons": tuple(neuron(uid, key) for uid, key in enumerate((OWNER, ME, *hotkeys))),
        "owner_hotkeys": frozenset({OWNER}),
        "owner_hotkey": OWNER,
        "commit_reveal": False,
        "commit_version": 4,
        "reveal_epochs": 1,
        "version_key": 0,
        "rate_limit": 100,
        "min_allowed": 1,
        "max_limit": 65_535,
        "min_stake": 1000,
        "tempo": 360,
        "block_seconds": 12.0,
        "epoch_index": 5,
        "last_epoch": 900,
        "pending_epoch": 0,
        "since_step": 100,
        "unrevealed": {},
    }
    return SubnetState(**fields | changes)


def with_me(there: SubnetState, **changes: Any) -> SubnetState:
    return replace(
        there, neurons=tuple(replace(neuron, **changes) if neuron.hotkey == ME else neuron for neuron in there.neurons)
    )


def shares(parts: Mapping[str, tuple[int, str]], burn: str = "0", burn_uid: int = 0) -> EpochShares:
    """Participant → uid and share; what burns."""
    return EpochShares(tuple((key, uid, Fraction(share)) for key, (uid, share) in parts.items()), Fraction(burn), burn_uid)
