"""Commitments that the chain opens by itself (version 4): locked to a round of drand's beacon, which nobody has before its time.

In it are the hotkey, the uids, the weights and the version key. Which round it is follows from the subnet's schedule of epochs,
all of it read at one block, and from this machine's clock. One that is too early would show the weights too soon; one too late
is not there when the chain opens them, and then they are lost.
"""

from __future__ import annotations

from dataclasses import dataclass

from assay.ledger.keys import PublicKey
from assay.publish.bittensor.libraries import core
from assay.publish.bittensor.preflight import older
from assay.publish.bittensor.subnet import Subnet
from assay.publish.bittensor.weights import Vector
from assay.publish.outcome import Refusal

__all__ = ["CLOCK_SECONDS", "EPOCHS", "Commitment", "clock", "commitment", "reveal_block"]

CLOCK_SECONDS = 120
"""How far this machine's clock may be from the chain's, whose newest block is some seconds old."""

EPOCHS = 300
"""Epochs till it is opened, at most: the library goes through them one by one."""
LATE = 3
"""Blocks after which the round comes: as the library reckons, so that the chain has its signature by then."""


@dataclass(frozen=True, slots=True)
class Commitment:
    """What is committed to: its bytes, the round that opens it, and about which block the chain does."""

    data: bytes
    round: int
    reveal: int


def commitment(
    subnet: Subnet, hotkey: PublicKey, vector: Vector, version_key: int, *, chain: float, here: float
) -> Commitment | Refusal:
    """Weights of a hotkey, locked; or why they cannot be. chain, here: what time it is by each, seconds since 1970."""
    index, last, pending, since = subnet.epoch_index, subnet.last_epoch, subnet.pending_epoch, subnet.since_step
    if index is None or last is None or pending is None or since is None:
        return older(subnet)
    if subnet.tempo == 0:
        return Refusal("no-epochs", "the subnet's tempo is 0: nothing that is committed is ever opened", "ask the subnet's owner")
    if subnet.reveal_epochs > EPOCHS:
        what = f"the subnet opens commitments after {subnet.reveal_epochs} epochs, and {EPOCHS} are waited for at most"
        return Refusal("reveal-period", what, "ask the subnet's owner")
    if (wrong := clock(chain, here)) is not None:
        return wrong
    data, number = core().get_encrypted_commit_v2(
        uids=list(vector.uids),
        weights=list(vector.values),
        version_key=version_key,
        last_epoch_block=last,
        pending_epoch_at=pending,
        subnet_epoch_index=index,
        tempo=subnet.tempo,
        blocks_since_last_step=since,
        current_block=subnet.block.number,
        subnet_reveal_period_epochs=subnet.reveal_epochs,
        block_time=subnet.block_seconds,
        hotkey=hotkey.raw,
    )
    return Commitment(bytes(data), int(number), reveal_block(subnet))


def clock(chain: float, here: float) -> Refusal | None:
    """Whether the two clocks differ by so much that a commitment would be locked to the wrong time."""
    if abs(here - chain) <= CLOCK_SECONDS:
        return None
    what = f"this machine's clock is {abs(here - chain):.0f} seconds {'behind' if here < chain else 'ahead of'} the chain's"
    return Refusal("clock", what, "set it; if it is right, the chain stands still: wait")


def reveal_block(subnet: Subnet) -> int:
    """About when what is committed in the next block is opened: some epochs later, if nobody changes the schedule.

    The round comes three blocks after that epoch has begun, so that nobody knows the weights before.
    """
    after = subnet.block.number + 1
    due = [] if subnet.last_epoch is None else [subnet.last_epoch + subnet.tempo]
    due += [subnet.pending_epoch] if subnet.pending_epoch else []
    begins = max(after, min(due, default=after))
    # What comes in the block in which an epoch begins belongs to that one already.
    return begins + subnet.tempo * (subnet.reveal_epochs - (begins > after)) + LATE
