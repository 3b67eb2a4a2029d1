"""Sending a transaction, once, and seeing it through.

- Before it is sent, the signed transaction stands in the journal, on the disk. After a crash the chain is asked what became of it
  before anything else is sent.
- A next one begins when the one before has ended: in a block as deep as was asked for, or certain never to be in one.
- One that no block takes is replaced by one with the same nonce that pays more, within the bounds: a chain takes one of the two.
- All that is ever signed for one plan has one nonce, whatever a node says became of it. So a node that lies cannot get two
  transactions that a chain would both take. Only who owns the account can say that the nonce is used up: `used_nonce`.
- A block that is replaced by another (a reorganisation) takes its transactions with it; then it goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from assay.errors import Unreachable
from assay.publish.clock import Clock
from assay.publish.evm.attempts import Attempt, Signed, attempts, under_way
from assay.publish.evm.fees import bumped, quote
from assay.publish.evm.libraries import keccak
from assay.publish.evm.node import Mined, Node
from assay.publish.evm.reasons import BUSY, Reverted, of_node, reason
from assay.publish.evm.settings import Settings
from assay.publish.evm.signers import Request, Signer
from assay.publish.journal import Journal
from assay.publish.outcome import Confirmed, Outcome, Refusal, Sent, Unknown, document
from assay.publish.rpc import RpcError
from assay.scheme.times import instant_text

__all__ = ["Call", "Clock", "Sending"]

GAS_ROOM = 5
"""A fifth more gas than a call takes now: by then the chain has changed."""
GAS_MOST = 2**24
"""No chain takes more of one transaction (EIP-7825)."""
BEGINNINGS = 5
"""So often is it begun anew in one go, where something else used the nonce, or the chain changed its mind."""
LOOKS = 3
"""So often must a node say that a nonce was used by something else: one of several behind an address may lag."""


@dataclass(frozen=True, slots=True)
class Call:
    """What a transaction is to do. `to` is None where it makes a contract."""

    to: str | None
    data: bytes
    value: int = 0


Prepare = Callable[[], Call | Outcome]
_TOO_LITTLE = ("underpriced", "fee too low", "less than block base fee")
_THERE_ALREADY = ("already known", "known transaction", "already imported", "already exists")
"""What nodes say of a transaction: each kind in words of its own."""


class Sending:
    """Transactions of one account to one target. `tell` is told how it goes on."""

    def __init__(
        self,
        node: Node,
        signer: Signer,
        journal: Journal,
        settings: Settings,
        tell: Callable[[str], None],
        clock: Clock | None = None,
    ) -> None:
        self._node, self._signer, self._journal, self._settings = node, signer, journal, settings
        self._tell, self._clock = tell, clock or Clock()

    def run(self, subject: str, plan: str, prepare: Prepare) -> Outcome:
        """Bring it to an end, or to where it waits. `prepare` looks at the chain, and says what to send, or why nothing is.

        It is asked again after everything that ends otherwise than it should. Raises BadInput and Overtaken; what the network
        does is an outcome.
        """
        self._until = self._clock.now() + self._settings.wait_seconds
        found: Outcome | None = None
        try:
            for _ in range(BEGINNINGS):
                found = self._step(subject, plan, prepare)
                if found is not None:
                    break
        except Unreachable as error:
            found = Unknown(f"{error.what}; {error.hint}" if error.hint else error.what)
        if found is None:
            what = f"something else sends from {self._signer.address} at the same time"
            found = Refusal("nonce", what, "let one program send, then do this again")
        if not isinstance(found, Confirmed) or found.transaction is None:
            self._journal.note(subject, plan, found)
        return found

    def _step(self, subject: str, plan: str, prepare: Prepare) -> Outcome | None:
        """One thing to its end: what is under way, else something new. None: look at the chain again, and begin anew."""
        there = under_way(self._journal.read())
        if there is None:
            ready = prepare()
            begun = self._begin(subject, plan, ready) if isinstance(ready, Call) else ready
            if not isinstance(begun, Attempt):
                return begun
            there = begun
        elif (there.account, there.chain_id) != (self._signer.address, self._settings.chain_id):
            what = f"a transaction of {there.account} on chain {there.chain_id} is under way: {there.subject}"
            return Refusal("under-way", what, "see that one to its end first, with its key")
        outcome = self._see_through(there)
        if (there.subject, there.plan) == (subject, plan):
            return outcome
        if there.ended or outcome is None:
            return None
        return Unknown(f"{there.subject} is under way, and comes first: {document(outcome).get('what', outcome.state)}")

    # A new one

    def _begin(self, subject: str, plan: str, call: Call) -> Attempt | Outcome:
        node, account = self._node, self._signer.address
        try:
            needed = node.gas(account, call.to, call.data, call.value)
        except Reverted as error:
            return reason(error)
        except RpcError as error:
            return of_node(error)
        head = node.head()
        if head.base_fee is None:
            return Refusal("no-eip-1559", "the chain has no base fee (EIP-1559)", "it cannot be published to")
        fees = quote(head.base_fee, node.tip(), self._settings.bounds)
        if fees is None:
            what = f"gas costs {head.base_fee / 1e9:.4g} gwei now, and {self._settings.bounds.most / 1e9:.4g} is the most allowed"
            return Refusal("fees", what, "wait, or raise max_fee_gwei in publish.toml")
        nonce = self._nonce(plan, call)
        if isinstance(nonce, Refusal):
            return nonce
        gas = min(needed + needed // GAS_ROOM, GAS_MOST)
        request = Request(self._settings.chain_id, nonce, call.to, call.value, call.data, gas, fees)
        number = len(attempts(self._journal.entries)) + 1
        first = self._signed(request)
        made = Attempt(number, subject, plan, account, request.chain_id, nonce, call.to, call.value, call.data, gas, [first])
        self._add(made.entry())
        return made

    def _nonce(self, plan: str, call: Call) -> int | Refusal:
        """The next one of the account; for what was signed before, by plan or to the byte, the one that it had then."""
        account, chain_id = self._signer.address, self._settings.chain_id
        used = self._node.count(account)
        before = [
            one
            for one in attempts(self._journal.entries)
            if (one.account, one.chain_id) == (account, chain_id)
            and (one.plan == plan or (one.to, one.value, one.data) == (call.to, call.value, call.data))
        ]
        if not before or before[-1].nonce == self._settings.used_nonce:
            return max(self._node.count(account, "pending"), used)
        nonce = before[-1].nonce
        if used <= nonce:
            return nonce
        what = f"it was signed with nonce {nonce} of {account}, which the node says another transaction used; no second is signed"
        hint = f"look elsewhere which transaction that was; if it was another, write used_nonce = {nonce} in publish.toml"
        return Refusal("nonce", what, hint)

    def _signed(self, request: Request) -> Signed:
        raw = self._signer.transaction(request)
        return Signed(f"0x{keccak(raw).hex()}", raw, request.fees)

    # One that is under way

    def _see_through(self, one: Attempt) -> Outcome | None:
        """Its outcome; None if it ended as if it had never been."""
        self._bumped_at, looks, trouble = self._clock.now(), 0, ""
        while True:
            try:
                used = self._node.count(one.account, self._buried_at())
                found = self._look(one)
                if found is not None and self._deep(found[1]):
                    return self._ended(one, *found)
                looks = looks + 1 if found is None and used > one.nonce else 0
                if looks >= LOOKS:
                    self._end(one, "lost", why=f"nonce {one.nonce} of {one.account} was used by another transaction")
                    return None
                if found is None and self._node.count(one.account) <= one.nonce:
                    outcome = self._press(one)
                    if outcome is not None or one.ended:
                        return outcome
                trouble = ""
            except Unreachable as error:
                trouble = error.what
            if self._clock.now() >= self._until:
                return self._waiting(one, trouble)
            self._clock.sleep(self._clock.poll)

    def _look(self, one: Attempt) -> tuple[str, Mined] | None:
        """Which of its transactions is in a block, and where; the others can be nowhere then."""
        for each in reversed(one.transactions):
            found = self._node.mined(each.hash)
            if found is not None:
                return each.hash, found
        return None

    def _buried_at(self) -> int:
        """The block on which enough others are."""
        return max(0, self._node.head().number - self._settings.confirmations + 1)

    def _deep(self, found: Mined) -> bool:
        """Whether enough blocks are on its own, and that is still one of the chain."""
        if self._node.head().number - found.block + 1 < self._settings.confirmations:
            return False
        there = self._node.block(found.block)
        return there is not None and there.hash == found.block_hash

    def _ended(self, one: Attempt, transaction: str, found: Mined) -> Outcome:
        more: dict[str, Any] = {"hash": transaction, "block": found.block, "block_hash": found.block_hash}
        if found.fine:
            made = {} if found.contract is None else {"contract": found.contract}
            self._end(one, "confirmed", **more, **made)
            return Confirmed(found.block, transaction)
        why = self._why(one, found.block)
        self._end(one, "reverted", **more, why=why.what)
        return Refusal(why.code, f"{why.what} (transaction {transaction} did nothing)", why.hint)

    def _why(self, one: Attempt, block: int) -> Refusal:
        """What the contract would have said in that block."""
        try:
            self._node.call(one.to, one.data, sender=one.account, value=one.value, at=block)
        except Reverted as error:
            found = reason(error)
            return found if isinstance(found, Refusal) else Refusal("too-early", found.what)
        except (RpcError, Unreachable):
            pass
        return Refusal("reverted", "the contract said no, or the gas was not enough", "look at the transaction")

    def _press(self, one: Attempt) -> Outcome | None:
        """See to it that a node has it, and that it pays enough."""
        last = one.transactions[-1]
        if not self._node.knows(last.hash):
            refused = self._doomed(one)
            if refused is not None:
                self._end(one, "dropped", why=refused)
                return None
            return self._hand_over(one, last)
        if last.hash not in one.sent:
            self._mark_sent(one, last)
        if self._clock.now() - self._bumped_at >= self._settings.bump_seconds:
            self._bumped_at = self._clock.now()
            return self._replace(one, last)
        return None

    def _doomed(self, one: Attempt) -> str | None:
        """Why a contract would refuse it now; None if it would not."""
        try:
            self._node.call(one.to, one.data, sender=one.account, value=one.value)
        except Reverted as error:
            return reason(error).what
        except RpcError:
            pass
        return None

    def _hand_over(self, one: Attempt, last: Signed, *, again: bool = False) -> Outcome | None:
        """Give it to the node; one that pays too little is replaced, `again`: but not a second time."""
        try:
            self._node.send(last.raw)
        except RpcError as error:
            if error.code in BUSY:
                raise Unreachable(f"the node does not take it now: {error.message}") from None
            said = error.message.lower()
            if "nonce too low" in said:
                return None  # something with this nonce is in a block; the next look finds it
            if any(word in said for word in _TOO_LITTLE):
                return None if again else self._replace(one, last)
            if not any(word in said for word in _THERE_ALREADY):
                refused = of_node(error)
                return Refusal(refused.code, refused.what, "it is signed, and the same is sent when this is done again")
        self._mark_sent(one, last)
        return None

    def _mark_sent(self, one: Attempt, last: Signed) -> None:
        if last.hash not in one.sent:
            self._add({"state": "sent", "attempt": one.number, "subject": one.subject, "plan": one.plan, "hash": last.hash})
            one.sent.add(last.hash)
            self._tell(f"sent {last.hash}")

    def _replace(self, one: Attempt, last: Signed) -> Outcome | None:
        """Another transaction in its place, that pays more, if the bounds let it."""
        base = self._node.head().base_fee
        fees = None if base is None else bumped(last.fees, base, self._node.tip(), self._settings.bounds)
        if fees is None:
            self._tell("no block takes it, and it offers the most that max_fee_gwei and max_tip_gwei allow")
            return None
        request = Request(one.chain_id, one.nonce, one.to, one.value, one.data, one.gas, fees)
        other = self._signed(request)
        self._add({"state": "replaced", "attempt": one.number, "subject": one.subject, "plan": one.plan} | other.entry())
        one.transactions.append(other)
        self._tell(f"no block takes it: it offers {fees.most / 1e9:.4g} gwei now")
        return self._hand_over(one, other, again=True)

    def _waiting(self, one: Attempt, trouble: str) -> Outcome:
        last = one.transactions[-1]
        if last.hash in one.sent and not trouble:
            return Sent(last.hash)
        what = trouble or "no node has taken it yet"
        return Unknown(f"{what}; do this again to see it through", last.hash)

    def _end(self, one: Attempt, state: str, **more: Any) -> None:
        self._add({"state": state, "attempt": one.number, "subject": one.subject, "plan": one.plan} | more)
        one.state, one.ending = state, more

    def _add(self, entry: dict[str, Any]) -> None:
        self._journal.add(entry | {"at": instant_text(datetime.now(UTC).replace(microsecond=0))})
