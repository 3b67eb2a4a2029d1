"""What a chain has of an extrinsic of ours: in which final block it is, what it did there, and what is stored because of it.

Only blocks and storage are believed, never what a node says became of an extrinsic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.errors import Unreachable
from assay.publish.bittensor import read
from assay.publish.bittensor.attempts import Attempt
from assay.publish.bittensor.extrinsic import Signed
from assay.publish.bittensor.node import Node
from assay.publish.bittensor.pool import dispatched
from assay.publish.bittensor.settings import CHAINS
from assay.publish.bittensor.subnet import BlockId, Neuron, Subnet
from assay.publish.outcome import Refusal

__all__ = ["Found", "did", "elsewhere", "find", "has_block", "holds", "never", "waits"]

STEPS = 3000
"""So many blocks are gone back from the last final one, some ten hours; what is older is looked up by its number."""


@dataclass(frozen=True, slots=True)
class Found:
    """A block that has it, and in which place."""

    block: BlockId
    index: int


def elsewhere(chain: str, *nodes: Node | None) -> Refusal | None:
    """Whether a node is of another chain than that with this block 0."""
    for node in nodes:
        if node is not None and (found := node.genesis()) != chain:
            names = {genesis: name for name, genesis in CHAINS.items()}
            what = (
                f"{node.host} is a node of the chain {names.get(found, found)}, and publish.toml says {names.get(chain, chain)}"
            )
            return Refusal("wrong-chain", what, "correct url or chain")
    return None


def find(node: Node, made: Signed, final: BlockId) -> Found | None:
    """Where an extrinsic is, among the blocks that could have it and come before a final one; None if it is in none.

    Each is named by the one after it, back from the final one: of several nodes behind one address, one that is on a branch of
    its own would say otherwise which block has a number.
    """
    until = min(final.number, made.death)
    at = final if final.number - until <= STEPS else BlockId(until, _named(node, until, final))
    while at.number > made.birth:
        header = node.header(at.hash)
        if header["number"] != at.number:
            raise Unreachable(f"{node.host} says of block {at.hash} that its number is {header['number']}, and not {at.number}")
        if at.number <= until:
            there = node.extrinsics(at.hash)
            if made.raw in there:
                return Found(at, there.index(made.raw))
        at = BlockId(at.number - 1, str(header["parentHash"]))
    return None


def _named(node: Node, number: int, final: BlockId) -> str:
    """The hash of a block of long ago, to which it is too far to go back."""
    name = node.block_hash(number)
    if name is None:
        raise Unreachable(f"{node.host} has final blocks up to {final.number}, and no block {number}", hint="ask another node")
    return name


def never(node: Node, one: Attempt) -> bool:
    """Whether a node's final blocks show that no block has an extrinsic, and none will."""
    final = node.finalized()
    if node.nonce(one.account, final.hash) > one.signed.nonce:
        return find(node, one.signed, final) is None
    return final.number >= one.signed.death


def has_block(node: Node, found: Found, raw: bytes) -> bool:
    """Whether a node has the extrinsic in that place too, and the block is final to it."""
    if node.finalized().number < found.block.number or node.block_hash(found.block.number) != found.block.hash:
        return False
    there = node.extrinsics(found.block.hash)
    return found.index < len(there) and there[found.index] == raw


def did(node: Node, one: Attempt, found: Found) -> Refusal | None:
    """Why an extrinsic did nothing; None if it did what it should. By the block's own events.

    Where the node has forgotten these, by the block in which the hotkey last set or committed weights.
    """
    try:
        events = node.events(found.block.hash)
    except Unreachable as error:
        return _did_long_ago(node, one, found, error)
    for event in events:
        if event.get("extrinsic_idx") != found.index or event.get("module_id") != "System":
            continue
        if event.get("event_id") == "ExtrinsicSuccess":
            return None
        if event.get("event_id") == "ExtrinsicFailed":
            said = event.get("attributes")
            why = said.get("dispatch_error") if isinstance(said, Mapping) else None
            return dispatched(node.runtime(str(node.header(found.block.hash)["parentHash"])), why)
    raise Unreachable(f"{node.host} does not say what became of an extrinsic in block {found.block.number}", hint="ask another")


def _did_long_ago(node: Node, one: Attempt, found: Found, why: Unreachable) -> Refusal | None:
    _, own = _own(node, one, node.finalized())
    if own is None or own.last_update > found.block.number:
        raise why
    if own.last_update == found.block.number:
        return None
    return Refusal("failed", "the chain said no to it; the node has forgotten why", "--dry-run says what stands against it now")


def _own(node: Node, one: Attempt, at: BlockId) -> tuple[Subnet | None, Neuron | None]:
    there = read.subnet(node, one.netuid, one.mechanism, at)
    return (None, None) if isinstance(there, Refusal) else (there, there.by_hotkey.get(one.account))


def holds(node: Node, one: Attempt, at: BlockId) -> bool:
    """Whether the chain has these weights of its hotkey at a block."""
    there, own = _own(node, one, at)
    return there is not None and own is not None and read.weights_of(node, there, own.uid, at) == one.weights


def waits(node: Node, one: Attempt, at: BlockId) -> bool:
    """Whether a commitment in a block before is still to be opened. Of one that nothing came of, the chain keeps no trace."""
    index = read.index_of(one.netuid, one.mechanism)
    rows: list[tuple[Any, Any]] = node.map(read.PALLET, "TimelockedWeightCommits", (index,), at.hash)
    return any(row[0] == one.account and row[1] == one.block for _, kept in rows for row in kept)
