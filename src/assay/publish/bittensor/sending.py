"""Sending an extrinsic, once, and seeing it through.

- Before it is handed to a node, the signed extrinsic stands in the journal. After a crash the chain is asked what became of it
  before anything else is sent.
- It has one nonce, of which the chain takes one extrinsic, and is good for 64 blocks. A next one begins when it has ended: it is
  in a final block, or the final blocks show that none can have it. One of an epoch that is passed is not pressed any more, nor
  one that would pay somebody else by now, since a uid has changed hands.
- It has done what it should if the block's events say so and the storage has it, at a final block; where a second node is named,
  if that one says the same.
- A commitment is in the chain then, and not opened yet. It is looked for again when the chain should have opened it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from assay.errors import Unreachable
from assay.ledger.keys import PrivateKey
from assay.publish.bittensor import chainside
from assay.publish.bittensor.attempts import Attempt, Kind, Whose, attempts, under_way
from assay.publish.bittensor.chainside import Found
from assay.publish.bittensor.extrinsic import PERIOD, nonces_of, signed
from assay.publish.bittensor.node import Node
from assay.publish.bittensor.pool import RATE, of_pool
from assay.publish.bittensor.settings import Settings
from assay.publish.bittensor.subnet import BlockId
from assay.publish.bittensor.wallet import address
from assay.publish.bittensor.weights import Vector
from assay.publish.clock import Clock
from assay.publish.journal import Journal
from assay.publish.outcome import Confirmed, Outcome, Refusal, Sent, Unknown, document
from assay.publish.publishers import Plan
from assay.publish.rpc import RpcError
from assay.scheme.times import instant_text

__all__ = ["Call", "Sending", "known"]

BEGINNINGS = 5
"""So often is it begun anew in one go, where something else used the nonce, or the time of an extrinsic was over."""


@dataclass(frozen=True, slots=True)
class Call:
    """What an extrinsic is to do; of a commitment, about which block the chain opens it."""

    data: bytes
    kind: Kind
    vector: Vector
    reveal: int | None = None


_ONE = "something else sets weights with this hotkey: let one program do it"
Prepare = Callable[[], Call | Outcome]


class Sending:
    """Extrinsics of one hotkey to one target. `tell` is told how it goes on. witness: the second node."""

    def __init__(
        self,
        node: Node,
        witness: Node | None,
        key: PrivateKey,
        journal: Journal,
        settings: Settings,
        tell: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self._node, self._witness, self._key, self._journal = node, witness, key, journal
        self._settings, self._tell, self._clock = settings, tell, clock
        self._account = address(key.public)

    def run(self, plan: Plan, prepare: Prepare) -> Outcome:
        """Bring it to an end, or to where it waits. `prepare` looks at the chain, and says what to send, or why nothing is.

        It is asked again after everything that ends otherwise than it should. Raises BadInput and Overtaken; what the network
        does is an outcome.
        """
        self._until = self._clock.now() + self._settings.wait_seconds
        found: Outcome | None = None
        try:
            for _ in range(BEGINNINGS):
                found = self._step(plan, prepare)
                if found is not None:
                    break
        except Unreachable as error:
            found = Unknown(f"{error.what}; {error.hint}" if error.hint else error.what)
        if found is None:
            what = f"something else sends from {self._account} at the same time"
            found = Refusal("nonce", what, "let one program send, then do this again")
        if not isinstance(found, Confirmed):
            self._journal.note(plan.subject, plan.digest, found)
        return found

    def _step(self, plan: Plan, prepare: Prepare) -> Outcome | None:
        """One thing to its end: what is under way, else something new. None: look at the chain again, and begin anew."""
        wrong = chainside.elsewhere(self._settings.chain, self._node, self._witness)
        if wrong is not None:
            return wrong
        every = attempts(self._journal.read())
        there = under_way(every)
        if there is None:
            before = self._known(every, plan)
            if before is not None:
                return before
            ready = prepare()
            begun = self._begin(plan, ready, len(every) + 1) if isinstance(ready, Call) else ready
            if not isinstance(begun, Attempt):
                return begun
            there = begun
        elif there.whose != self._whose():
            what = f"an extrinsic of {there.account} to subnet {there.netuid} is under way: {there.subject}"
            return Refusal("under-way", what, "see that one to its end first, with its key and its fields in publish.toml")
        outcome = self._see_through(there, prepare if there.plan == plan.digest else None)
        if there.plan == plan.digest:
            return outcome
        if there.ended or there.in_block or outcome is None:
            return None
        return Unknown(f"{there.subject} is under way, and comes first: {document(outcome).get('what', outcome.state)}")

    def _whose(self) -> Whose:
        return self._account, self._settings.chain, self._settings.netuid, self._settings.mechanism

    def _known(self, every: list[Attempt], plan: Plan) -> Outcome | None:
        """What became of the plan before, written down if that is new."""
        found = known(every, plan, self._node, self._witness, self._whose())
        if found is None:
            return None
        outcome, one, state, more = found
        if one is not None and state:
            self._end(one, state, **more)
        return outcome

    # A new one

    def _begin(self, plan: Plan, call: Call, number: int) -> Attempt | Outcome:
        node, settings = self._node, self._settings
        final, head = node.finalized(), node.head()
        if head.number - final.number > PERIOD // 2:
            return Unknown(f"no block after {final.number} is final, and the newest is {head.number}; do this again")
        runtime = node.runtime(head.hash)
        nonce = node.nonce(self._account, head.hash)
        taken = nonces_of(runtime, self._account, self._pending())
        while nonce in taken:
            nonce += 1
        made = signed(runtime, call.data, self._key, nonce=nonce, genesis=settings.chain, birth=final)
        account, chain, netuid, mechanism = self._whose()
        one = Attempt(
            number=number,
            subject=plan.subject,
            plan=plan.digest,
            epoch=plan.epoch,
            account=account,
            chain=chain,
            netuid=netuid,
            mechanism=mechanism,
            kind=call.kind,
            uids=call.vector.uids,
            values=call.vector.values,
            signed=made,
            reveal=call.reveal,
        )
        self._add(one.entry())
        return one

    def _pending(self) -> list[bytes]:
        """What waits in the node's pool; nothing where it does not say."""
        try:
            return self._node.pending()
        except Unreachable:
            self._node.finalized()  # is it that question, or the node?
            return []

    # One that is under way

    def _see_through(self, one: Attempt, prepare: Prepare | None) -> Outcome | None:
        """Its outcome; None if it ended as if it had never been."""
        while True:
            try:
                outcome = self._look(one, prepare)
                if not isinstance(outcome, str):
                    return outcome
                trouble = outcome
            except Unreachable as error:
                trouble = error.what
            if self._clock.now() >= self._until:
                return self._waiting(one, trouble)
            self._clock.sleep(self._clock.poll)

    def _look(self, one: Attempt, prepare: Prepare | None) -> Outcome | str | None:
        """What became of it as far as final blocks say; else a text: why it waits, empty where all is well."""
        node, made = self._node, one.signed
        final = node.finalized()
        used = node.nonce(one.account, final.hash) > made.nonce
        found = chainside.find(node, made, final) if used else None
        if found is not None:
            return self._included(one, found)
        if not used and final.number < made.death:
            return "" if prepare is None else self._press(one, prepare)
        if self._witness is not None and not chainside.never(self._witness, one):
            return f"{node.host} says that no block has it, and {self._witness.host} does not, or not yet"
        if used:
            self._end(one, "lost", why=f"nonce {made.nonce} of {one.account} was used by another extrinsic")
        else:
            self._end(one, "expired", why=f"it was good up to block {made.death}, which is final, and no block has it")
        return None

    def _press(self, one: Attempt, prepare: Prepare) -> Outcome | str:
        """See to it that the node has it, as long as a block can."""
        node, made = self._node, one.signed
        head = node.head()
        if head.number >= made.death or node.nonce(one.account, head.hash) > made.nonce:
            return ""  # whether it is in a block shows when that is final
        if made.raw not in self._pending():
            ready = prepare()
            if isinstance(ready, Refusal):
                return ready
            if not isinstance(ready, Call) or ready.vector.by_uid != one.weights:
                return _not_pressed(one, ready)
            try:
                node.submit(made.raw)
            except RpcError as error:
                said = of_pool(error)
                if isinstance(said, str):
                    return said
                if said is not None:
                    return self._refused(said, prepare)
        self._mark_sent(one)
        return ""

    def _refused(self, said: Refusal, prepare: Prepare) -> Outcome:
        """A node's refusal, or what the chain's settings say by now, which is more: from which block on, say."""
        ready = prepare() if said.code in RATE else None
        return said if ready is None or isinstance(ready, Call) else ready

    def _included(self, one: Attempt, found: Found) -> Outcome | str | None:
        """It is in a final block: what it did there."""
        if self._witness is not None and not chainside.has_block(self._witness, found, one.signed.raw):
            return f"{self._witness.host} does not have it in block {found.block.number}, or that block is not final to it yet"
        more = {"hash": one.signed.hash, "block": found.block.number, "block_hash": found.block.hash}
        failed = chainside.did(self._node, one, found)
        if failed is not None:
            self._end(one, "failed", **more, code=failed.code, why=failed.what)
            if failed.code in RATE or failed.code in ("CommitRevealEnabled", "CommitRevealDisabled"):
                return None  # the chain says when, or takes it the other way
            return Refusal(failed.code, f"{failed.what}; the extrinsic {one.signed.hash} did nothing", failed.hint)
        if one.kind == "commit":
            self._end(one, "committed", **more)
            return Sent(one.signed.hash, one.reveal)
        return self._read_back(one, found, more)

    def _read_back(self, one: Attempt, found: Found, more: dict[str, Any]) -> Outcome | str:
        final = self._node.finalized()
        if all(chainside.holds(node, one, at) for node, at in self._both(final)):
            self._end(one, "confirmed", **more)
            return Confirmed(found.block.number, one.signed.hash)
        if chainside.holds(self._node, one, found.block):
            why = f"the weights were set in block {found.block.number}, and are others since"
            self._end(one, "overwritten", **more, why=why)
            return Refusal("overwritten", why, f"{_ONE}; done again, they are set anew")
        return f"block {found.block.number} has it, and the weights that are stored are others"

    def _both(self, final: BlockId) -> list[tuple[Node, BlockId]]:
        """The nodes that have to say the same, each with a final block."""
        return [(self._node, final), *([] if self._witness is None else [(self._witness, self._witness.finalized())])]

    def _mark_sent(self, one: Attempt) -> None:
        if not one.sent:
            self._add({"state": "sent", "attempt": one.number, "subject": one.subject, "plan": one.plan, "hash": one.signed.hash})
            one.sent = True
            self._tell(f"sent {one.signed.hash}")

    def _waiting(self, one: Attempt, trouble: str) -> Outcome:
        if one.sent and not trouble:
            return Sent(one.signed.hash)
        return Unknown(f"{trouble or 'no node has taken it yet'}; do this again to see it through", one.signed.hash)

    def _end(self, one: Attempt, state: str, **more: Any) -> None:
        self._add({"state": state, "attempt": one.number, "subject": one.subject, "plan": one.plan} | more)
        one.state, one.ending = state, more
        if state == "confirmed":
            for other in attempts(self._journal.entries):
                if other.in_block and other.number < one.number and other.whose == one.whose:
                    self._end(other, "superseded", why=f"{one.subject} came before it was looked at again")

    def _add(self, entry: dict[str, Any]) -> None:
        self._journal.add(entry | {"at": instant_text(datetime.now(UTC).replace(microsecond=0))})


def _not_pressed(one: Attempt, ready: Call | Outcome) -> str:
    """Why an extrinsic that no node has is not handed over again, though a block could have it yet."""
    why = "a uid has changed hands since it was signed" if isinstance(ready, Call) else str(document(ready).get("what", ""))
    return f"{why}; it is not handed over, and is over with block {one.signed.death}"


Known = tuple[Outcome, Attempt | None, str, dict[str, Any]]


def known(every: list[Attempt], plan: Plan, node: Node, witness: Node | None, whose: Whose | None) -> Known | None:
    """What became of a plan, as the journal and the chain have it, and how an attempt has ended by that; None: nothing yet.

    Of an epoch one publication of a hotkey is enough, unless something else has undone it; weights of a later one stay. whose:
    what others sent is nothing to it; None where the hotkey is not known.
    """
    every = [one for one in every if whose in (None, one.whose)]
    mine = [one for one in every if one.plan == plan.digest]
    last = mine[-1] if mine else None
    if last is not None and last.state == "confirmed":
        return _since(last, [one for one in every if one.number > last.number], node)
    if last is not None and last.in_block:
        return _opened(last, node, witness)
    newer = [one for one in every if one.epoch > plan.epoch and (one.state == "confirmed" or not one.ended)]
    if newer:
        what = f"the weights of {newer[-1].subject} were sent after this was settled"
        return Refusal("superseded", what, "publish the newest epoch: older weights do not replace newer ones"), None, "", {}
    return None


def _since(one: Attempt, later: list[Attempt], node: Node) -> Known:
    """What has become of weights that were confirmed, with what was sent after them."""
    if newer := [other for other in later if other.state == "confirmed"]:
        what = f"the weights were there from block {one.block} on, and those of {newer[-1].subject} have replaced them"
        return Refusal("superseded", what, "publish the newest epoch: older weights do not replace newer ones"), None, "", {}
    if any(not other.ended for other in later):  # and the chain may have those by now
        return Confirmed(one.block, one.signed.hash), None, "", {}
    return _still(one, node)


def _still(one: Attempt, node: Node) -> Known:
    """Whether the newest weights that were confirmed are still those that the chain has."""
    final = node.finalized()
    if final.number < one.block or chainside.holds(node, one, final):
        return Confirmed(one.block, one.signed.hash), None, "", {}
    why = f"the weights were confirmed in block {one.block}, and the chain has others now, or none"
    more = {"hash": one.signed.hash, "block": one.block, "why": why}
    return Refusal("overwritten", why, f"{_ONE}; done again, they are set anew"), one, "overwritten", more


def _opened(one: Attempt, node: Node, witness: Node | None) -> Known:
    """What became of a commitment that is in the chain."""
    final = node.finalized()
    if final.number < one.block or chainside.waits(node, one, final):
        return Sent(one.signed.hash, one.reveal), None, "", {}
    more = {"hash": one.signed.hash, "block": final.number, "block_hash": final.hash}
    if chainside.holds(node, one, final):
        if witness is not None and not chainside.holds(witness, one, witness.finalized()):
            return Unknown(f"{witness.host} does not have these weights, or not yet", one.signed.hash), None, "", {}
        return Confirmed(final.number, one.signed.hash), one, "confirmed", more
    why = f"the chain has opened the commitment of block {one.block}, or dropped it, and has not these weights"
    hint = "publish again; set this machine's clock, and see that permit and stake last until the chain opens it"
    return Refusal("reveal-failed", why, hint), one, "reveal-failed", more | {"why": why}
