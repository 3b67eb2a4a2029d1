"""A subnet as its chain has it at one block: what is read of it, and by which everything else decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

__all__ = ["BlockId", "Neuron", "Subnet"]


@dataclass(frozen=True, slots=True)
class BlockId:
    """A block: its number, and its hash as `0x` and 64 hex digits."""

    number: int
    hash: str


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
class Subnet:
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
