"""What a block does before its extrinsics: timelocked commits are revealed, then epochs run. After block_step.rs of the chain."""

from __future__ import annotations

from dataclasses import dataclass, field

import bittensor_core

from . import weights
from .schedule import due, index_ahead
from .storage import Storage
from .subnets import index, mechanisms, public_key


@dataclass(frozen=True)
class Contents:
    """What is in a commit: as a test says, or decrypted with a signature of the beacon that a test knows."""

    weights: dict[int, int] | None  # None: it does not decrypt
    version_key: int = 0


@dataclass
class Beacon:
    """When the chain gets the pulse that opens an epoch's commits: `late` blocks after the epoch began, or never for now.

    Clients choose a round that comes three blocks into the epoch, so that nobody reads the weights before it. signatures: the
    beacon's own, in hex, of the rounds that a test knows it of: commits to these are decrypted.
    """

    there: bool = True
    late: int = 3
    signatures: dict[int, str] = field(default_factory=dict)

    def decrypt(self, state: Storage, who: bytes, commit: bytes, round_: int) -> Contents | None:
        """What is in a commit to a round whose signature is known; None if it does not decrypt, or is another hotkey's."""
        if round_ not in self.signatures:
            return None
        framed = state.encode("Compact<u32>", len(commit)) + commit + round_.to_bytes(8, "little")
        try:
            plain = bittensor_core.decrypt_with_signature(framed, self.signatures[round_])
            hotkey, uids, values, key = state.runtime.decode("(Vec<u8>, Vec<u16>, Vec<u16>, u64)", bytes(plain))
        except ValueError:
            return None
        if weights.as_bytes(hotkey) != who or len(set(uids)) != len(values) or len(uids) != len(values):
            return None  # the chain would not store it either
        return Contents(dict(zip(uids, values, strict=True)), key)


def step(state: Storage, opened: dict[bytes, Contents], beacon: Beacon) -> list[weights.Event]:
    """Reveal what is to be revealed in the block that is written to, then run the epochs that are due; the events of both."""
    events: list[weights.Event] = []
    for netuid, _ in state.under("NetworksAdded"):
        if state.has("TimelockedWeightCommits"):
            events += reveal(state, netuid, opened, beacon)
        since = min(state.get("BlocksSinceLastStep", netuid), state.get("Tempo", netuid)) + 1
        state.put("BlocksSinceLastStep", netuid, value=since)
        ran = due(state, netuid, state.block)
        if ran:
            state.put("BlocksSinceLastStep", netuid, value=0)
            state.put("LastMechansimStepBlock", netuid, value=state.block)
        if ran and state.has("LastEpochBlock"):
            state.put("LastEpochBlock", netuid, value=state.block)
            state.put("PendingEpochAt", netuid, value=0)
            state.put("SubnetEpochIndex", netuid, value=state.get("SubnetEpochIndex", netuid) + 1)
    return events


def reveal(state: Storage, netuid: int, opened: dict[bytes, Contents], beacon: Beacon) -> list[weights.Event]:
    """Store the weights of the commits whose epoch has come. One that fails leaves no event and is gone, as on the chain.

    Without the beacon's pulse a commit waits and is tried again in each block of its epoch; later it is dropped.
    """
    events: list[weights.Event] = []
    period, now = state.get("RevealPeriodEpochs", netuid), index_ahead(state, netuid, state.block)
    since = 0 if due(state, netuid, state.block) else state.block - state.get("LastEpochBlock", netuid)
    for mechanism in range(mechanisms(state, netuid)):
        at = index(netuid, mechanism)
        for epoch, _ in state.under("TimelockedWeightCommits", at):
            if epoch < now - period:
                state.put("TimelockedWeightCommits", at, epoch, value=None)
        waiting = state.get("TimelockedWeightCommits", at, now - period) if now >= period else []
        if not waiting or not beacon.there or since < beacon.late:
            continue
        state.put("TimelockedWeightCommits", at, now - period, value=None)
        for address, _, commit, round_ in waiting:
            who = public_key(address)
            contents = opened.get(weights.digest(commit), opened.get(who))
            contents = contents or beacon.decrypt(state, who, weights.as_bytes(commit), round_)
            if contents is None or contents.weights is None:
                continue
            uids, values = list(contents.weights), list(contents.weights.values())
            try:
                events += weights.store_weights(state, who, netuid, mechanism, uids, values, contents.version_key)
            except weights.CallRefused:
                continue
            events.append(("TimelockedWeightsRevealed", [at, who]))
    return events
