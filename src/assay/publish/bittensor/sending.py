"""Extrinsics that set weights: what is signed, and what the chain says of it. `assay.publish.sender` has the rest.

- An extrinsic has one nonce, of which the chain takes one extrinsic, and is good for 64 blocks. A next one begins when it has
  ended: it is in a final block, or the final blocks show that none can have it. One of an epoch that is passed is not handed over
  any more, nor one that would pay somebody else by now, since a uid has changed hands.
- It has done what it should if the block's events say so and the storage has it, at a final block; where a second node is named,
  if that one says the same.
- A commitment is in the chain then, and not opened yet. It is looked for again when the chain should have opened it.
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
from assay.publish.bittensor.weights import PERIOD, Vector, nonces_of, signed
from assay.publish.outcome import Confirmed, Outcome, Refusal, Sent, Unknown, document
from assay.publish.publishers import PublishPlan
from assay.publish.rpc import RpcError
from assay.publish.sender import AttemptEnded, Chain, Following, Known, Prepare, Seen, Waiting

_NEWEST = "publish the newest epoch: older weights do not replace newer ones"


@dataclass(frozen=True, slots=True)
class BittensorCall:
    """What an extrinsic is to do; of a commitment, about which block the chain opens it."""

    data: bytes
    kind: CallKind
    vector: Vector
    reveal: int | None = None


class Extrinsics(Chain[BittensorAttempt, BittensorCall]):
    """Extrinsics of one hotkey to one target, which publish a plan. witness: the second node."""

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
        """Whether a node is of another chain."""
        return extrinsics.elsewhere(self._settings.chain, self._node, self._witness)

    def known(self, attempts: list[BittensorAttempt], plan: str) -> Known[BittensorAttempt] | None:
        """What has become of the plan, by the journal and the chain."""
        return known(attempts, self._plan, self._node, self._witness, self.owner)

    def sign(
        self, number: int, subject: str, plan: str, call: BittensorCall, attempts: list[BittensorAttempt]
    ) -> BittensorAttempt | Outcome:
        """An extrinsic with the next free nonce, good from the last final block on."""
        node, settings = self._node, self._settings
        final, head = node.finalized(), node.head()
        if head.number - final.number > PERIOD // 2:
            return Unknown(f"no block after {final.number} is final, and the newest is {head.number}; do this again")
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
        """What looks at the extrinsic once."""
        return _ExtrinsicFollower(self._node, self._witness, following).look


class _ExtrinsicFollower:
    """One extrinsic, looked at until final blocks say what became of it."""

    def __init__(
        self, node: BittensorNode, witness: BittensorNode | None, following: Following[BittensorAttempt, BittensorCall]
    ) -> None:
        self._node, self._witness, self._following, self._attempt = node, witness, following, following.attempt

    def look(self) -> Seen:
        """What became of it as far as final blocks say."""
        node, attempt = self._node, self._attempt
        made, prepare = attempt.signed, self._following.prepare
        final = node.finalized()
        used = node.nonce(attempt.account, final.hash) > made.nonce
        found = extrinsics.find(node, made, final) if used else None
        if found is not None:
            return self._included(found)
        if not used and final.number < made.death:
            return Waiting() if prepare is None else self._hand_over(prepare)
        if self._witness is not None and not extrinsics.never(self._witness, attempt):
            return Waiting(f"{node.host} says that no block has it, and {self._witness.host} does not, or not yet")
        if used:
            return AttemptEnded("lost", None, {"why": f"nonce {made.nonce} of {attempt.account} was used by another extrinsic"})
        return AttemptEnded(
            "expired", None, {"why": f"it was good up to block {made.death}, which is final, and no block has it"}
        )

    def _hand_over(self, prepare: Prepare[BittensorCall]) -> Outcome | Waiting:
        """See to it that the node has it, as long as a block can."""
        node, attempt = self._node, self._attempt
        made, head = attempt.signed, node.head()
        if head.number >= made.death or node.nonce(attempt.account, head.hash) > made.nonce:
            return Waiting()  # whether it is in a block shows when that is final
        if made.raw not in _pending(node):
            call = prepare()
            if isinstance(call, Refusal):
                return call
            if not isinstance(call, BittensorCall) or call.vector.by_uid != attempt.weights:
                return Waiting(_not_handed_over(attempt, call))
            try:
                node.submit(made.raw)
            except RpcError as error:
                answer = of_pool(error)
                if isinstance(answer, str):
                    return Waiting(answer)
                if answer is not None:
                    return _refused(answer, prepare)
        self._following.mark_sent()
        return Waiting()

    def _included(self, found: Inclusion) -> Outcome | AttemptEnded | Waiting:
        """It is in a final block: what it did there."""
        attempt, made = self._attempt, self._attempt.signed
        if self._witness is not None and not extrinsics.has_block(self._witness, found, made.raw):
            what = f"{self._witness.host} does not have it in block {found.block.number}, or that block is not final to it yet"
            return Waiting(what)
        more = {"hash": made.hash, "block": found.block.number, "block_hash": found.block.hash}
        failed = extrinsics.did(self._node, attempt, found)
        if failed is not None:
            more |= {"code": failed.code, "why": failed.what}
            if failed.code in RATE or failed.code in ("CommitRevealEnabled", "CommitRevealDisabled"):
                return AttemptEnded("failed", None, more)  # the chain says when, or takes it the other way
            refusal = Refusal(failed.code, f"{failed.what}; the extrinsic {made.hash} did nothing", failed.hint)
            return AttemptEnded("failed", refusal, more)
        if attempt.kind == "commit":
            return AttemptEnded("committed", Sent(made.hash, attempt.reveal), more)
        return self._read_back(found, more)

    def _read_back(self, found: Inclusion, more: dict[str, Any]) -> AttemptEnded | Waiting:
        attempt = self._attempt
        final = self._node.finalized()
        if all(extrinsics.holds(node, attempt, at) for node, at in self._both(final)):
            return AttemptEnded("confirmed", Confirmed(found.block.number, attempt.signed.hash), more)
        if extrinsics.holds(self._node, attempt, found.block):
            why = f"the weights were set in block {found.block.number}, and are others since"
            return AttemptEnded("overwritten", _overwritten(why), more | {"why": why})
        return Waiting(f"block {found.block.number} has it, and the weights that are stored are others")

    def _both(self, final: BlockId) -> list[tuple[BittensorNode, BlockId]]:
        """The nodes that have to say the same, each with a final block."""
        return [(self._node, final), *([] if self._witness is None else [(self._witness, self._witness.finalized())])]


def _pending(node: BittensorNode) -> list[bytes]:
    """What waits in the node's pool; nothing where it does not say."""
    try:
        return node.pending()
    except Unreachable:
        node.finalized()  # is it that question, or the node?
        return []


def _refused(refusal: Refusal, prepare: Prepare[BittensorCall]) -> Outcome:
    """A node's refusal, or what the chain's settings say by now, which is more: from which block on, say."""
    call = prepare() if refusal.code in RATE else None
    return refusal if call is None or isinstance(call, BittensorCall) else call


def _overwritten(why: str) -> Refusal:
    hint = "something else sets weights with this hotkey: let one program do it; done again, they are set anew"
    return Refusal("overwritten", why, hint)


def _not_handed_over(attempt: BittensorAttempt, call: BittensorCall | Outcome) -> str:
    """Why an extrinsic that no node has is not handed over again, though a block could have it yet."""
    why = (
        "a uid has changed hands since it was signed" if isinstance(call, BittensorCall) else str(document(call).get("what", ""))
    )
    return f"{why}; it is not handed over, and is over with block {attempt.signed.death}"


def known(
    attempts: list[BittensorAttempt], plan: PublishPlan, node: BittensorNode, witness: BittensorNode | None, owner: Owner | None
) -> Known[BittensorAttempt] | None:
    """What became of a plan, as the journal and the chain have it, and how an attempt has ended by that; None: nothing yet.

    Of an epoch one publication of a hotkey is enough, unless something else has undone it; weights of a later one stay. owner:
    what others sent does not count; None where the hotkey is not known.
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
        return Refusal("superseded", f"the weights of {newer[-1].subject} were sent after this was settled", _NEWEST)
    return None


def _since(attempt: BittensorAttempt, later: list[BittensorAttempt], node: BittensorNode) -> Known[BittensorAttempt]:
    """What has become of weights that were confirmed, with what was sent after them."""
    if newer := [other for other in later if other.state == "confirmed"]:
        what = f"the weights were there from block {attempt.block} on, and those of {newer[-1].subject} have replaced them"
        return Refusal("superseded", what, _NEWEST)
    if any(not other.ended for other in later):  # and the chain may have those by now
        return Confirmed(attempt.block, attempt.signed.hash)
    return _still(attempt, node)


def _still(attempt: BittensorAttempt, node: BittensorNode) -> Known[BittensorAttempt]:
    """Whether the newest weights that were confirmed are still those that the chain has."""
    final = node.finalized()
    if final.number < attempt.block or extrinsics.holds(node, attempt, final):
        return Confirmed(attempt.block, attempt.signed.hash)
    why = f"the weights were confirmed in block {attempt.block}, and the chain has others now, or none"
    more = {"hash": attempt.signed.hash, "block": attempt.block, "why": why}
    return attempt, AttemptEnded("overwritten", _overwritten(why), more)


def _opened(attempt: BittensorAttempt, node: BittensorNode, witness: BittensorNode | None) -> Known[BittensorAttempt]:
    """What became of a commitment that is in the chain."""
    final = node.finalized()
    if final.number < attempt.block or extrinsics.waits(node, attempt, final):
        return Sent(attempt.signed.hash, attempt.reveal)
    more = {"hash": attempt.signed.hash, "block": final.number, "block_hash": final.hash}
    if extrinsics.holds(node, attempt, final):
        if witness is not None and not extrinsics.holds(witness, attempt, witness.finalized()):
            return Unknown(f"{witness.host} does not have these weights, or not yet", attempt.signed.hash)
        return attempt, AttemptEnded("confirmed", Confirmed(final.number, attempt.signed.hash), more)
    why = f"the chain has opened the commitment of block {attempt.block}, or dropped it, and has not these weights"
    hint = "publish again; set this machine's clock, and see that permit and stake last until the chain opens it"
    return attempt, AttemptEnded("reveal-failed", Refusal("reveal-failed", why, hint), more | {"why": why})
