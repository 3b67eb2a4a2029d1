"""When a subnet's epochs are due: by state on the current chain, by the number of the block on older ones."""

from __future__ import annotations

from .storage import Storage


def due(state: Storage, netuid: int, block: int) -> bool:
    """Whether an epoch is due at a block. After `should_run_epoch` of the chain's run_coinbase."""
    tempo = state.get("Tempo", netuid)
    if tempo == 0:
        return False
    if not state.current:
        return bool((block + netuid + 1) % (tempo + 1) == tempo)  # not 0, as the comment in the chain's source has it
    pending = state.get("PendingEpochAt", netuid)
    if (pending and block >= pending) or state.get("BlocksSinceLastStep", netuid) > tempo:
        return True
    return bool(block - state.get("LastEpochBlock", netuid) >= tempo)


def index_ahead(state: Storage, netuid: int, block: int) -> int:
    """The epoch a commit or a reveal in this block belongs to: one more where an epoch is due in it and has not run."""
    return int(state.get("SubnetEpochIndex", netuid)) + due(state, netuid, block)
