"""Signs extrinsics that set weights, and follows them on a subtensor chain for `assay.publish.sender`.

- An extrinsic has one nonce and is valid for 64 blocks. The next one begins only when it has ended: it is in a final block, or
  the final blocks show that it never can be. An extrinsic is not handed over any more if its epoch has passed, or if a uid has
  changed hands, so that it would pay somebody else.
- It succeeded if its block's events say so and the storage has the weights, both at a final block. If a second node is
  configured, that node must agree.
- A commitment is then in the chain but not opened yet. It is checked again when the chain should have opened it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from assay.errors import Unreachable
from assay.ledger.keys import PrivateKey
from assay.publish.bittensor import extrinsics
from assay.publish.bittensor.extrinsics import BittensorAttempt, CallKind, Inclusion, Owner
from assay.publish.bittensor.node import BittensorNode, BlockId
from assay.publish.bittensor.refusals import RATE, of_pool
from assay.publish.bittensor.settings import BittensorSettings, address
from assay.publish.bittensor.subnet import PALLET
from assay.publish.bittensor.weights import PERIOD, Vector, nonces_of, signed
from assay.publish.outcome import Confirmed, Outcome, Refusal, Sent, Unknown, document
from assay.publish.publishers import PublishPlan
from assay.publish.rpc import RpcError
from assay.publish.sender import AttemptEnded, Chain, Following, Known, Prepare, Seen, Waiting

_NEWEST = "publish the newest epoch: older weights do not replace newer ones"


@dataclass(frozen=True, slots=True)
class BittensorCall:
    """The call of an extrinsic. reveal: of a commitment, about which block the chain opens it."""

    data: bytes
    kind: CallKind
    vector: Vector
    reveal: int | None = None


class Extrinsics(Chain[BittensorAttempt, BittensorCall]):
    """Extrinsics of one hotkey to one target, which publish one plan. witness: the second node."""

    attempt = BittensorAttempt

    def __init__(
        self, node: BittensorNode, witness: BittensorNode | None, key: PrivateKey, settings: BittensorSettings, plan: PublishPlan
    ) -> None:
        self._node, self._witness, self._key, self._settings, self._plan = node, witness, key, settings, plan
        self.account = address(key.public)

    @property
    def owner(self) -> Owner:
        """The hotkey, the chain, the subnet and the mechanism."""
        return self.account, self._settings.chain, self._settings.netuid, self._settings.mechanism

    def wrong(self) -> Outcome | None:
        """The refusal if a node is of another chain; None if all is right."""
        return extrinsics.elsewhere(self._settings.chain, self._node, self._witness)

    def known(self, attempts: list[BittensorAttempt], plan: str) -> Known[BittensorAttempt] | None:
        """The outcome of the plan if it was sent before, by the journal and the chain."""
        return known(attempts, self._plan, self._node, self._witness, self.owner)

    def sign(
        self, number: int, subject: str, plan: str, call: BittensorCall, attempts: list[BittensorAttempt]
    ) -> BittensorAttempt | Outcome:
        """An extrinsic with the next free nonce, valid from the last final block on."""
        node, settings = self._node, self._settings
        final, head = node.finalized(), node.head()
        if head.number - final.number > PERIOD // 2:
            return Unknown(f"no block after {final.number} is final, but the newest is {head.number}; run this command again")
        runtime = node.runtime(head.hash)
        nonce = node.nonce(self.account, head.hash)
        taken = nonces_of(runtime, self.account, _pending(node))
        while nonce in taken:
            nonce += 1
        return BittensorAttempt(
            number=number,
            subject=subject,
            plan=plan,
            account=self.account,
            epoch=self._plan.epoch,
            chain=settings.chain,
            netuid=settings.netuid,
            mechanism=settings.mechanism,
            kind=call.kind,
            uids=call.vector.uids,
            values=call.vector.values,
            signed=signed(runtime, call.data, self._key, nonce=nonce, genesis=settings.chain, birth=final),
            reveal=call.reveal,
        )

    def follow(self, following: Following[BittensorAttempt, BittensorCall]) -> Callable[[], Seen]:
        """A function that looks at the extrinsic once."""
        return _ExtrinsicFollower(self._node, self._witness, following).look


class _ExtrinsicFollower:
    """Follows one extrinsic until final blocks show how it ended."""

    def __init__(
        self, node: BittensorNode, witness: BittensorNode | None, following: Following[BittensorAttempt, BittensorCall]
    ) -> None:
        self._node, self._witness, self._following, self._attempt = node, witness, following, following.attempt

    def look(self) -> Seen:
        """The state of the attempt, by final blocks."""
        node, attempt = self._node, self._attempt
        signed, prepare = attempt.signed, self._following.prepare
        final = node.finalized()
        used = node.nonce(attempt.account, final.hash) > signed.nonce
        inclusion = extrinsics.find(node, signed, final) if used else None
        if inclusion is not None:
            return self._included(inclusion)
        if not used and final.number < signed.death:
            return Waiting() if prepare is None else self._hand_over(prepare)
        if self._witness is not None and not extrinsics.never(self._witness, attempt):
            return Waiting(f"{node.host} says that no block has it, but {self._witness.host} does not say so, or not yet")
        if used:
            return AttemptEnded("lost", None, {"why": f"another extrinsic used nonce {signed.nonce} of {attempt.account}"})
        return AttemptEnded(
            "expired", None, {"why": f"it was valid up to block {signed.death}, which is final, and no block has it"}
        )

    def _hand_over(self, prepare: Prepare[BittensorCall]) -> Outcome | Waiting:
        """Make sure that the node has the extrinsic, as long as a block can include it."""
        node, attempt = self._node, self._attempt
        signed, head = attempt.signed, node.head()
        if head.number >= signed.death or node.nonce(attempt.account, head.hash) > signed.nonce:
            return Waiting()  # final blocks will show whether it is in one
        if signed.raw not in _pending(node):
            call = prepare()
            if isinstance(call, Refusal):
                return call
            if not isinstance(call, BittensorCall) or call.vector.by_uid != attempt.weights:
                return Waiting(_not_handed_over(attempt, call))
            try:
                node.submit(signed.raw)
            except RpcError as error:
                answer = of_pool(error, older=not node.has(PALLET, "StakeThreshold", head.hash))
                if isinstance(answer, str):
                    return Waiting(answer)
                if answer is not None:
                    return _refused(answer, prepare)
        self._following.mark_sent()
        return Waiting()

    def _included(self, inclusion: Inclusion) -> Outcome | AttemptEnded | Waiting:
        """The state of an extrinsic that is in a final block."""
        attempt, signed = self._attempt, self._attempt.signed
        if self._witness is not None and not extrinsics.has_block(self._witness, inclusion, signed.raw):
            number = inclusion.block.number
            return Waiting(f"{self._witness.host} does not have it in block {number}, or does not have this block as final yet")
        more = {"hash": signed.hash, "block": inclusion.block.number, "block_hash": inclusion.block.hash}
        failed = extrinsics.failure(self._node, attempt, inclusion)
        if failed is not None:
            more |= {"code": failed.code, "why": failed.what}
            if failed.code in RATE or failed.code in ("CommitRevealEnabled", "CommitRevealDisabled"):
                return AttemptEnded("failed", None, more)  # a new attempt comes later, or in the other form
            refusal = Refusal(failed.code, f"{failed.what}; the extrinsic {signed.hash} had no effect", failed.hint)
            return AttemptEnded("failed", refusal, more)
        if attempt.kind == "commit":
            return AttemptEnded("committed", Sent(signed.hash, attempt.reveal), more)
        return self._read_back(inclusion, more)

    def _read_back(self, inclusion: Inclusion, more: dict[str, Any]) -> AttemptEnded | Waiting:
        attempt = self._attempt
        final = self._node.finalized()
        if all(extrinsics.holds(node, attempt, at) for node, at in self._both(final)):
            return AttemptEnded("confirmed", Confirmed(inclusion.block.number, attempt.signed.hash), more)
        if extrinsics.holds(self._node, attempt, inclusion.block):
            why = f"the weights were set in block {inclusion.block.number}, but were overwritten since"
            return AttemptEnded("overwritten", _overwritten(why), more | {"why": why})
        return Waiting(f"block {inclusion.block.number} has it, but the chain has stored other weights")

    def _both(self, final: BlockId) -> list[tuple[BittensorNode, BlockId]]:
        """The nodes that must agree, each with a final block."""
        return [(self._node, final), *([] if self._witness is None else [(self._witness, self._witness.finalized())])]


def _pending(node: BittensorNode) -> list[bytes]:
    """The extrinsics in the node's pool; empty if the node does not list them."""
    try:
        return node.pending()
    except Unreachable:
        node.finalized()  # raises if the node does not answer at all
        return []


def _refused(refusal: Refusal, prepare: Prepare[BittensorCall]) -> Outcome:
    """The outcome by the chain's present state, which may name a block to wait for; otherwise the node's refusal."""
    call = prepare() if refusal.code in RATE else None
    return refusal if call is None or isinstance(call, BittensorCall) else call


def _overwritten(why: str) -> Refusal:
    hint = "another program sets weights with this hotkey: let only one do it; run the command again to set the weights again"
    return Refusal("overwritten", why, hint)


def _not_handed_over(attempt: BittensorAttempt, call: BittensorCall | Outcome) -> str:
    """The reason why an extrinsic that no node has is not handed over again, although a block could still include it."""
    why = (
        "a uid has changed hands since it was signed" if isinstance(call, BittensorCall) else str(document(call).get("what", ""))
    )
    return f"{why}; it is not handed over, and expires with block {attempt.signed.death}"


def known(
    attempts: list[BittensorAttempt], plan: PublishPlan, node: BittensorNode, witness: BittensorNode | None, owner: Owner | None
) -> Known[BittensorAttempt] | None:
    """The outcome of a plan by the journal and the chain, perhaps with the end of an attempt; None if nothing was sent yet.

    A hotkey publishes an epoch once, unless another program has overwritten its weights. Weights of a later epoch stay. owner:
    attempts of other owners do not count; None if the hotkey is not known.
    """
    attempts = [attempt for attempt in attempts if owner in (None, attempt.owner)]
    of_plan = [attempt for attempt in attempts if attempt.plan == plan.digest]
    last = of_plan[-1] if of_plan else None
    if last is not None and last.state == "confirmed":
        return _since(last, [attempt for attempt in attempts if attempt.number > last.number], node)
    if last is not None and last.in_block:
        return _opened(last, node, witness)
    newer = [
        attempt for attempt in attempts if attempt.epoch > plan.epoch and (attempt.state == "confirmed" or not attempt.ended)
    ]
    if newer:
        return Refusal("superseded", f"the weights of {newer[-1].subject}, which is newer, were already sent", _NEWEST)
    return None


def _since(attempt: BittensorAttempt, later: list[BittensorAttempt], node: BittensorNode) -> Known[BittensorAttempt]:
    """The outcome of confirmed weights, given the attempts after them."""
    if newer := [other for other in later if other.state == "confirmed"]:
        what = f"the chain had the weights from block {attempt.block} on, but those of {newer[-1].subject} have replaced them"
        return Refusal("superseded", what, _NEWEST)
    if any(not other.ended for other in later):  # the chain may already have those of a later attempt
        return Confirmed(attempt.block, attempt.signed.hash)
    return _still(attempt, node)


def _still(attempt: BittensorAttempt, node: BittensorNode) -> Known[BittensorAttempt]:
    """The outcome of the newest confirmed weights: whether the chain still has them."""
    final = node.finalized()
    if final.number < attempt.block or extrinsics.holds(node, attempt, final):
        return Confirmed(attempt.block, attempt.signed.hash)
    why = f"the weights were confirmed in block {attempt.block}, but the chain has others now, or none"
    more = {"hash": attempt.signed.hash, "block": attempt.block, "why": why}
    return attempt, AttemptEnded("overwritten", _overwritten(why), more)


def _opened(attempt: BittensorAttempt, node: BittensorNode, witness: BittensorNode | None) -> Known[BittensorAttempt]:
    """The outcome of a commitment that is in the chain."""
    final = node.finalized()
    if final.number < attempt.block or extrinsics.waits(node, attempt, final):
        return Sent(attempt.signed.hash, attempt.reveal)
    more = {"hash": attempt.signed.hash, "block": final.number, "block_hash": final.hash}
    if extrinsics.holds(node, attempt, final):
        if witness is not None and not extrinsics.holds(witness, attempt, witness.finalized()):
            return Unknown(f"{witness.host} does not have these weights, or not yet", attempt.signed.hash)
        return attempt, AttemptEnded("confirmed", Confirmed(final.number, attempt.signed.hash), more)
    why = f"the chain has opened or dropped the commitment of block {attempt.block}, but does not have these weights"
    hint = "publish again; set this machine's clock, and keep permit and stake until the chain opens it"
    return attempt, AttemptEnded("reveal-failed", Refusal("reveal-failed", why, hint), more | {"why": why})
