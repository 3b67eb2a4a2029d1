"""What the journal says of extrinsics, and what a chain has of them.

Entries of the journal, each with `state`, `subject`, `plan` (the digest of what is published) and `at` (when):

    planned        attempt (counted from 1), epoch, account, chain, netuid, mechanism, kind (set, commit), uids, values, hash,
                   raw, nonce, birth, death; of a commitment reveal: about which block the chain opens it
    sent           attempt, hash: a node has it
    committed      attempt, hash, block, block_hash: a commitment is in a final block, and waits for the chain to open it
    confirmed      attempt, hash, block, block_hash: ended; the chain has the weights, read back at a final block
    failed         attempt, hash, block, why: ended; it is in a block, and did nothing
    expired        attempt, why: ended; the blocks that could have had it are final, and none has it
    lost           attempt, why: ended; its nonce was used by something else
    overwritten    attempt, hash, block, why: ended; it did what it should, and something else of the same hotkey has undone it
    reveal-failed  attempt, hash, block, why: ended; the chain has opened the commitment, or dropped it, and has not these weights
    superseded     attempt, why: ended; the weights of a later epoch came before it was looked at again
    unknown, refused, too-early, sent or confirmed without an attempt: what a command ended with

Of the chain only blocks and storage are believed, never what a node says became of an extrinsic: in which final block it is, what
it did there, and what is stored because of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from assay.errors import Unreachable
from assay.publish.bittensor import subnet
from assay.publish.bittensor.node import BittensorNode, BlockId
from assay.publish.bittensor.refusals import dispatched
from assay.publish.bittensor.settings import CHAINS
from assay.publish.bittensor.subnet import Neuron, SubnetState
from assay.publish.bittensor.weights import SignedExtrinsic
from assay.publish.outcome import Refusal
from assay.publish.sender import ChainAttempt

CallKind = Literal["set", "commit"]
Owner = tuple[str, str, int, int]
"""Whose weights, and where: account, chain, netuid, mechanism."""


@dataclass
class BittensorAttempt(ChainAttempt):
    """One extrinsic that was sent, or was about to be."""

    ENDED: ClassVar[frozenset[str]] = frozenset(
        {"confirmed", "failed", "expired", "lost", "overwritten", "reveal-failed", "superseded"}
    )
    WAITS: ClassVar[frozenset[str]] = frozenset({"committed"})

    epoch: int
    chain: str
    netuid: int
    mechanism: int
    kind: CallKind
    uids: tuple[int, ...]
    values: tuple[int, ...]
    signed: SignedExtrinsic
    reveal: int | None = None

    @property
    def transaction(self) -> str:
        """The extrinsic's hash."""
        return self.signed.hash

    @property
    def block(self) -> int:
        """The final block that has it; 0 where none does."""
        return int(self.ending.get("block", 0))

    @property
    def weights(self) -> dict[int, int]:
        """What the chain should have of it: uid → u16."""
        return dict(zip(self.uids, self.values, strict=True))

    @property
    def owner(self) -> Owner:
        """Whose weights it sets, and where."""
        return self.account, self.chain, self.netuid, self.mechanism

    @property
    def described(self) -> str:
        """What it is, for people."""
        return f"an extrinsic of {self.account} to subnet {self.netuid}"

    def content(self) -> dict[str, Any]:
        """The entry's own fields."""
        content: dict[str, Any] = {
            "epoch": self.epoch,
            "chain": self.chain,
            "netuid": self.netuid,
            "mechanism": self.mechanism,
            "kind": self.kind,
            "uids": list(self.uids),
            "values": list(self.values),
            "hash": self.signed.hash,
            "raw": f"0x{self.signed.raw.hex()}",
            "nonce": self.signed.nonce,
            "birth": self.signed.birth,
            "death": self.signed.death,
        }
        return content if self.reveal is None else content | {"reveal": self.reveal}

    @classmethod
    def planned(cls, entry: dict[str, Any]) -> BittensorAttempt:
        """The attempt that an entry plans; raises KeyError if the entry is of another kind of target."""
        raw = bytes.fromhex(entry["raw"][2:])
        return cls(
            number=entry["attempt"],
            subject=entry["subject"],
            plan=entry["plan"],
            account=entry["account"],
            epoch=entry["epoch"],
            chain=entry["chain"],
            netuid=entry["netuid"],
            mechanism=entry["mechanism"],
            kind=entry["kind"],
            uids=tuple(entry["uids"]),
            values=tuple(entry["values"]),
            signed=SignedExtrinsic(entry["hash"], raw, entry["nonce"], entry["birth"], entry["death"]),
            reveal=entry.get("reveal"),
        )


STEPS = 3000
"""So many blocks are gone back from the last final one, some ten hours; what is older is looked up by its number."""


@dataclass(frozen=True, slots=True)
class Inclusion:
    """A block that has it, and in which place."""

    block: BlockId
    index: int


def elsewhere(chain: str, *nodes: BittensorNode | None) -> Refusal | None:
    """Whether a node is of another chain than that with this block 0."""
    for node in nodes:
        if node is not None and (found := node.genesis()) != chain:
            names = {genesis: name for name, genesis in CHAINS.items()}
            what = (
                f"{node.host} is a node of the chain {names.get(found, found)}, and publish.toml says {names.get(chain, chain)}"
            )
            return Refusal("wrong-chain", what, "correct url or chain")
    return None


def find(node: BittensorNode, made: SignedExtrinsic, final: BlockId) -> Inclusion | None:
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
                return Inclusion(at, there.index(made.raw))
        at = BlockId(at.number - 1, str(header["parentHash"]))
    return None


def _named(node: BittensorNode, number: int, final: BlockId) -> str:
    """The hash of a block of long ago, to which it is too far to go back."""
    name = node.block_hash(number)
    if name is None:
        raise Unreachable(f"{node.host} has final blocks up to {final.number}, and no block {number}", hint="ask another node")
    return name


def never(node: BittensorNode, one: BittensorAttempt) -> bool:
    """Whether a node's final blocks show that no block has an extrinsic, and none will."""
    final = node.finalized()
    if node.nonce(one.account, final.hash) > one.signed.nonce:
        return find(node, one.signed, final) is None
    return final.number >= one.signed.death


def has_block(node: BittensorNode, found: Inclusion, raw: bytes) -> bool:
    """Whether a node has the extrinsic in that place too, and the block is final to it."""
    if node.finalized().number < found.block.number or node.block_hash(found.block.number) != found.block.hash:
        return False
    there = node.extrinsics(found.block.hash)
    return found.index < len(there) and there[found.index] == raw


def did(node: BittensorNode, one: BittensorAttempt, found: Inclusion) -> Refusal | None:
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


def _did_long_ago(node: BittensorNode, one: BittensorAttempt, found: Inclusion, why: Unreachable) -> Refusal | None:
    _, own = _own(node, one, node.finalized())
    if own is None or own.last_update > found.block.number:
        raise why
    if own.last_update == found.block.number:
        return None
    return Refusal("failed", "the chain said no to it; the node has forgotten why", "--dry-run says what stands against it now")


def _own(node: BittensorNode, one: BittensorAttempt, at: BlockId) -> tuple[SubnetState | None, Neuron | None]:
    there = subnet.read_subnet(node, one.netuid, one.mechanism, at)
    return (None, None) if isinstance(there, Refusal) else (there, there.by_hotkey.get(one.account))


def holds(node: BittensorNode, one: BittensorAttempt, at: BlockId) -> bool:
    """Whether the chain has these weights of its hotkey at a block."""
    there, own = _own(node, one, at)
    return there is not None and own is not None and subnet.weights_of(node, there, own.uid, at) == one.weights


def waits(node: BittensorNode, one: BittensorAttempt, at: BlockId) -> bool:
    """Whether a commitment in a block before is still to be opened. Of one that nothing came of, the chain keeps no trace."""
    index = subnet.index_of(one.netuid, one.mechanism)
    rows: list[tuple[Any, Any]] = node.map(subnet.PALLET, "TimelockedWeightCommits", (index,), at.hash)
    return any(row[0] == one.account and row[1] == one.block for _, kept in rows for row in kept)
