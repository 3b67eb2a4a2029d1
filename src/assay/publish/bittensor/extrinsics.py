"""The journal's entries about extrinsics, and functions that find out from blocks and storage what an extrinsic did.

Entries of the journal. Each also has `state`, `subject`, `plan` (the digest of what is published) and `at` (when it was written):

    planned        attempt (counted from 1), epoch, account, chain, netuid, mechanism, kind (set, commit), uids, values, hash,
                   raw, nonce, birth, death; of a commitment also reveal: about which block the chain opens it
    sent           attempt, hash: a node has it
    committed      attempt, hash, block, block_hash: a commitment is in a final block, and waits until the chain opens it
    confirmed      attempt, hash, block, block_hash: ended; the chain has the weights, read back at a final block
    failed         attempt, hash, block, why: ended; it is in a block, without effect
    expired        attempt, why: ended; the blocks that could include it are final, and none has it
    lost           attempt, why: ended; another extrinsic used its nonce
    overwritten    attempt, hash, block, why: ended; it succeeded, but another extrinsic of the hotkey overwrote its weights
    reveal-failed  attempt, hash, block, why: ended; the chain has opened or dropped the commitment, but lacks its weights
    superseded     attempt, why: ended; the weights of a later epoch were confirmed before its own
    unknown, refused, too-early, sent or confirmed without an attempt: the outcome of a command

Only blocks and storage are evidence of what an extrinsic did. A node's statement about the extrinsic itself is never believed.
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
"""Account, chain, netuid and mechanism of weights."""


@dataclass
class BittensorAttempt(ChainAttempt):
    """One attempt: an extrinsic that was sent, or was about to be."""

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
        """The final block that has the extrinsic; 0 if none has."""
        return int(self.ending.get("block", 0))

    @property
    def weights(self) -> dict[int, int]:
        """The weights that the chain should have: uid → u16."""
        return dict(zip(self.uids, self.values, strict=True))

    @property
    def owner(self) -> Owner:
        """The account, and where it sets weights."""
        return self.account, self.chain, self.netuid, self.mechanism

    @property
    def described(self) -> str:
        """The attempt as the subject of a sentence, for people."""
        return f"an extrinsic of {self.account} to subnet {self.netuid}"

    def content(self) -> dict[str, Any]:
        """The fields that only this chain's entries have."""
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
        """The attempt of an entry `planned`. Raises KeyError if the entry belongs to another kind of target."""
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
"""The number of blocks followed back from the last final one (about ten hours); older blocks are looked up by number."""


@dataclass(frozen=True, slots=True)
class Inclusion:
    """The block that has an extrinsic, and its index in the block."""

    block: BlockId
    index: int


def elsewhere(chain: str, *nodes: BittensorNode | None) -> Refusal | None:
    """The refusal if a node is not of the chain with this block 0; None if all are."""
    for node in nodes:
        if node is not None and (genesis := node.genesis()) != chain:
            names = {genesis: name for name, genesis in CHAINS.items()}
            there, here = names.get(genesis, genesis), names.get(chain, chain)
            what = f"{node.host} is a node of the chain {there}, but publish.toml says {here}"
            return Refusal("wrong-chain", what, "correct url or chain")
    return None


def find(node: BittensorNode, signed: SignedExtrinsic, final: BlockId) -> Inclusion | None:
    """The block that has an extrinsic, among those that can include it, up to a final one; None if none of them has it.

    The blocks are followed back from the final one by their parents' hashes. Looking them up by number would be wrong if one of
    several nodes behind an address is on another branch.
    """
    until = min(final.number, signed.death)
    at = final if final.number - until <= STEPS else BlockId(until, _named(node, until, final))
    while at.number > signed.birth:
        header = node.header(at.hash)
        if header["number"] != at.number:
            raise Unreachable(f"{node.host} says that block {at.hash} has number {header['number']}, not {at.number}")
        if at.number <= until:
            raws = node.extrinsics(at.hash)
            if signed.raw in raws:
                return Inclusion(at, raws.index(signed.raw))
        at = BlockId(at.number - 1, str(header["parentHash"]))
    return None


def _named(node: BittensorNode, number: int, final: BlockId) -> str:
    """The hash of an old block by its number."""
    name = node.block_hash(number)
    if name is None:
        raise Unreachable(f"{node.host} has final blocks up to {final.number}, but no block {number}", hint="ask another node")
    return name


def never(node: BittensorNode, attempt: BittensorAttempt) -> bool:
    """Whether a node's final blocks show that no block has an extrinsic, and none ever will."""
    final = node.finalized()
    if node.nonce(attempt.account, final.hash) > attempt.signed.nonce:
        return find(node, attempt.signed, final) is None
    return final.number >= attempt.signed.death


def has_block(node: BittensorNode, inclusion: Inclusion, raw: bytes) -> bool:
    """Whether another node has the same extrinsic at the same place of the same final block."""
    block = inclusion.block
    if node.finalized().number < block.number or node.block_hash(block.number) != block.hash:
        return False
    raws = node.extrinsics(block.hash)
    return inclusion.index < len(raws) and raws[inclusion.index] == raw


def failure(node: BittensorNode, attempt: BittensorAttempt, inclusion: Inclusion) -> Refusal | None:
    """The reason why an extrinsic in a block had no effect; None if it succeeded.

    The block's events decide. If the node has deleted them, the block in which the hotkey last set or committed weights decides.
    """
    try:
        events = node.events(inclusion.block.hash)
    except Unreachable as error:
        return _old_failure(node, attempt, inclusion, error)
    for event in events:
        if event.get("extrinsic_idx") != inclusion.index or event.get("module_id") != "System":
            continue
        if event.get("event_id") == "ExtrinsicSuccess":
            return None
        if event.get("event_id") == "ExtrinsicFailed":
            attributes = event.get("attributes")
            why = attributes.get("dispatch_error") if isinstance(attributes, Mapping) else None
            return dispatched(node.runtime(str(node.header(inclusion.block.hash)["parentHash"])), why)
    what = f"{node.host} does not say what an extrinsic in block {inclusion.block.number} did"
    raise Unreachable(what, hint="ask another node")


def _old_failure(node: BittensorNode, attempt: BittensorAttempt, inclusion: Inclusion, deleted: Unreachable) -> Refusal | None:
    """The same, if the node has deleted the block's events; raises `deleted` if the storage does not decide either."""
    _, own = _own(node, attempt, node.finalized())
    if own is None or own.last_update > inclusion.block.number:
        raise deleted
    if own.last_update == inclusion.block.number:
        return None
    what = "the chain refused it, but the node has deleted the reason"
    return Refusal("failed", what, "--dry-run shows what prevents it now")


def _own(node: BittensorNode, attempt: BittensorAttempt, at: BlockId) -> tuple[SubnetState | None, Neuron | None]:
    state = subnet.read_subnet(node, attempt.netuid, attempt.mechanism, at)
    return (None, None) if isinstance(state, Refusal) else (state, state.by_hotkey.get(attempt.account))


def holds(node: BittensorNode, attempt: BittensorAttempt, at: BlockId) -> bool:
    """Whether the chain has the attempt's weights at a block."""
    state, own = _own(node, attempt, at)
    return state is not None and own is not None and subnet.weights_of(node, state, own.uid, at) == attempt.weights


def waits(node: BittensorNode, attempt: BittensorAttempt, at: BlockId) -> bool:
    """Whether a commitment is still to be opened. The chain deletes a commitment when it opens or drops it."""
    index = subnet.index_of(attempt.netuid, attempt.mechanism)
    rows: list[tuple[Any, Any]] = node.map(subnet.PALLET, "TimelockedWeightCommits", (index,), at.hash)
    return any(row[0] == attempt.account and row[1] == attempt.block for _, commits in rows for row in commits)
