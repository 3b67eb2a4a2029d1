"""Transactions: what is signed, what the journal says of them, and what the chain does. `assay.publish.sender` has the rest.

- A transaction has ended when it is in a block as deep as was asked for, or certain never to be in one.
- One that no block takes is replaced by one with the same nonce that pays more, within the bounds: a chain takes one of the two.
- All that is ever signed for one plan has one nonce, whatever a node says became of it. So a node that lies cannot get two
  transactions that a chain would both take. Only the account's owner can say that the nonce is used up: `used_nonce`.
- A block that is replaced by another (a reorganisation) takes its transactions with it; then it goes on from there.

Entries of the journal, each with `state`, `subject` (what it is about), `plan` (the digest of what is sent) and `at` (when):

    planned     attempt (counted from 1), account, chain_id, nonce, to, value, data, gas, and a first transaction
    replaced    attempt, and another transaction with the same nonce, of which a chain can take one only
    sent        attempt, hash: a node has it
    confirmed   attempt, hash, block, block_hash: ended, as deep as was asked for
    reverted    attempt, hash, block, why: ended; it is in a block, and did nothing
    lost        attempt, why: ended; its nonce was used by something else
    dropped     attempt, why: ended; no node has it, and the contract would refuse it now
    unknown, refused, too-early, confirmed without an attempt: what a command ended with; with one, what reading back came to

A transaction is hash, raw (as it was signed), max_fee, max_tip.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from assay.errors import Unreachable
from assay.publish.evm.contracts import BUSY, Reverted, of_node, reason
from assay.publish.evm.libraries import keccak
from assay.publish.evm.node import EvmNode, Mined
from assay.publish.evm.settings import EvmSettings, Fees, bumped, quote
from assay.publish.evm.signers import Signer, TransactionRequest
from assay.publish.outcome import Confirmed, Outcome, Refusal
from assay.publish.rpc import RpcError
from assay.publish.sender import AttemptEnded, Chain, ChainAttempt, Following, Seen, SystemClock, Waiting


@dataclass(frozen=True, slots=True)
class SignedTransaction:
    """A signed transaction: its hash, its bytes, what it offers."""

    hash: str
    raw: bytes = field(repr=False)
    fees: Fees

    def entry(self) -> dict[str, Any]:
        """As the journal has it."""
        fees = {"max_fee": str(self.fees.most), "max_tip": str(self.fees.tip)}
        return {"hash": self.hash, "raw": f"0x{self.raw.hex()}"} | fees

    @classmethod
    def of(cls, entry: dict[str, Any]) -> SignedTransaction:
        """The transaction of an entry."""
        fees = Fees(int(entry["max_fee"]), int(entry["max_tip"]))
        return cls(entry["hash"], bytes.fromhex(entry["raw"][2:]), fees)


@dataclass
class EvmAttempt(ChainAttempt):
    """One thing that was sent, or was about to be: transactions with one nonce, of which a chain can take one."""

    ENDED: ClassVar[frozenset[str]] = frozenset({"confirmed", "reverted", "lost", "dropped"})

    chain_id: int
    nonce: int
    to: str | None
    value: int
    data: bytes
    gas: int
    transactions: list[SignedTransaction]

    @property
    def transaction(self) -> str:
        """The hash of the last one, which pays the most."""
        return self.transactions[-1].hash

    @property
    def owner(self) -> tuple[object, ...]:
        """The account, and on which chain."""
        return self.account, self.chain_id

    @property
    def described(self) -> str:
        """What it is, for people."""
        return f"a transaction of {self.account} on chain {self.chain_id}"

    def content(self) -> dict[str, Any]:
        """The entry's own fields."""
        return {
            "chain_id": self.chain_id,
            "nonce": self.nonce,
            "to": self.to,
            "value": str(self.value),
            "data": f"0x{self.data.hex()}",
            "gas": self.gas,
        } | self.transactions[0].entry()

    @classmethod
    def planned(cls, entry: dict[str, Any]) -> EvmAttempt:
        """The attempt that an entry plans; raises KeyError if the entry is of another kind of target."""
        return cls(
            entry["attempt"],
            entry["subject"],
            entry["plan"],
            entry["account"],
            entry["chain_id"],
            entry["nonce"],
            entry["to"],
            int(entry["value"]),
            bytes.fromhex(entry["data"][2:]),
            entry["gas"],
            [SignedTransaction.of(entry)],
        )

    def follow(self, entry: dict[str, Any]) -> None:
        """Take in a later entry about it: another transaction in its place, or what became of it."""
        if entry["state"] == "replaced":
            self.transactions.append(SignedTransaction.of(entry))
        else:
            super().follow(entry)


GAS_ROOM = 5
"""A fifth more gas than a call takes now: by then the chain has changed."""
GAS_MOST = 2**24
"""No chain takes more of one transaction (EIP-7825)."""
LOOKS = 3
"""So often must a node say that a nonce was used by something else: one of several behind an address may lag."""
_TOO_LITTLE = ("underpriced", "fee too low", "less than block base fee")
_THERE_ALREADY = ("already known", "known transaction", "already imported", "already exists")
"""What nodes say of a transaction: each kind in words of its own."""


@dataclass(frozen=True, slots=True)
class EvmCall:
    """What a transaction is to do. `to` is None where it makes a contract."""

    to: str | None
    data: bytes
    value: int = 0


class Transactions(Chain[EvmAttempt, EvmCall]):
    """Transactions of one account to one target."""

    attempt = EvmAttempt

    def __init__(self, node: EvmNode, signer: Signer, settings: EvmSettings, clock: SystemClock) -> None:
        self._node, self._signer, self._settings, self._clock = node, signer, settings, clock
        self.account = signer.address

    @property
    def owner(self) -> tuple[object, ...]:
        """The account, and on which chain."""
        return self.account, self._settings.chain_id

    def sign(self, number: int, subject: str, plan: str, call: EvmCall, attempts: list[EvmAttempt]) -> EvmAttempt | Outcome:
        """A transaction with the plan's nonce, at a fee within the bounds."""
        node, account = self._node, self.account
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
        nonce = self._nonce(plan, call, attempts)
        if isinstance(nonce, Refusal):
            return nonce
        gas = min(needed + needed // GAS_ROOM, GAS_MOST)
        request = TransactionRequest(self._settings.chain_id, nonce, call.to, call.value, call.data, gas, fees)
        first = _signed(self._signer, request)
        return EvmAttempt(number, subject, plan, account, request.chain_id, nonce, call.to, call.value, call.data, gas, [first])

    def _nonce(self, plan: str, call: EvmCall, attempts: list[EvmAttempt]) -> int | Refusal:
        """The next one of the account; for what was signed before, by plan or to the byte, the one that it had then."""
        used = self._node.count(self.account)
        before = [
            attempt
            for attempt in attempts
            if attempt.owner == self.owner
            and (attempt.plan == plan or (attempt.to, attempt.value, attempt.data) == (call.to, call.value, call.data))
        ]
        if not before or before[-1].nonce == self._settings.used_nonce:
            return max(self._node.count(self.account, "pending"), used)
        nonce = before[-1].nonce
        if used <= nonce:
            return nonce
        what = (
            f"it was signed with nonce {nonce} of {self.account}, which the node says another transaction used;"
            " no second is signed"
        )
        hint = f"look elsewhere which transaction that was; if it was another, write used_nonce = {nonce} in publish.toml"
        return Refusal("nonce", what, hint)

    def follow(self, following: Following[EvmAttempt, EvmCall]) -> Callable[[], Seen]:
        """What looks at the transactions once."""
        return _TransactionFollower(self._node, self._signer, self._settings, self._clock, following).look


def _signed(signer: Signer, request: TransactionRequest) -> SignedTransaction:
    """A request, signed."""
    raw = signer.transaction(request)
    return SignedTransaction(f"0x{keccak(raw).hex()}", raw, request.fees)


class _TransactionFollower:
    """The transactions of one attempt, looked at until one is deep enough, or none can be any more."""

    def __init__(
        self, node: EvmNode, signer: Signer, settings: EvmSettings, clock: SystemClock, following: Following[EvmAttempt, EvmCall]
    ) -> None:
        self._node, self._signer, self._settings, self._clock = node, signer, settings, clock
        self._following, self._attempt = following, following.attempt
        self._bumped_at, self._looks = clock.now(), 0

    def look(self) -> Seen:
        """What became of it as far as blocks say that are deep enough."""
        node, attempt = self._node, self._attempt
        used = node.count(attempt.account, self._buried_at())
        found = self._mined()
        if found is not None and self._deep(found[1]):
            return self._ended(*found)
        self._looks = self._looks + 1 if found is None and used > attempt.nonce else 0
        if self._looks >= LOOKS:
            why = f"nonce {attempt.nonce} of {attempt.account} was used by another transaction"
            return AttemptEnded("lost", None, {"why": why})
        if found is None and node.count(attempt.account) <= attempt.nonce:
            return self._press()
        return Waiting()

    def _mined(self) -> tuple[str, Mined] | None:
        """Which of its transactions is in a block, and where; the others can be nowhere then."""
        for transaction in reversed(self._attempt.transactions):
            found = self._node.mined(transaction.hash)
            if found is not None:
                return transaction.hash, found
        return None

    def _buried_at(self) -> int:
        """The block on which enough others are."""
        return max(0, self._node.head().number - self._settings.confirmations + 1)

    def _deep(self, found: Mined) -> bool:
        """Whether enough blocks are on its own, and that is still one of the chain."""
        if self._node.head().number - found.block + 1 < self._settings.confirmations:
            return False
        block = self._node.block(found.block)
        return block is not None and block.hash == found.block_hash

    def _ended(self, transaction: str, found: Mined) -> AttemptEnded:
        more: dict[str, Any] = {"hash": transaction, "block": found.block, "block_hash": found.block_hash}
        if found.fine:
            contract = {} if found.contract is None else {"contract": found.contract}
            return AttemptEnded("confirmed", Confirmed(found.block, transaction), more | contract)
        why = self._why(found.block)
        refusal = Refusal(why.code, f"{why.what} (transaction {transaction} did nothing)", why.hint)
        return AttemptEnded("reverted", refusal, more | {"why": why.what})

    def _why(self, block: int) -> Refusal:
        """What the contract would have said in that block."""
        attempt = self._attempt
        try:
            self._node.call(attempt.to, attempt.data, sender=attempt.account, value=attempt.value, at=block)
        except Reverted as error:
            found = reason(error)
            return found if isinstance(found, Refusal) else Refusal("too-early", found.what)
        except (RpcError, Unreachable):
            pass
        return Refusal("reverted", "the contract said no, or the gas was not enough", "look at the transaction")

    def _press(self) -> Seen:
        """See to it that a node has it, and that it pays enough."""
        last = self._attempt.transactions[-1]
        if not self._node.knows(last.hash):
            refused = self._doomed()
            return self._hand_over(last) if refused is None else AttemptEnded("dropped", None, {"why": refused})
        self._following.mark_sent()
        if self._clock.now() - self._bumped_at >= self._settings.bump_seconds:
            self._bumped_at = self._clock.now()
            return self._replace(last)
        return Waiting()

    def _doomed(self) -> str | None:
        """Why a contract would refuse it now; None if it would not."""
        attempt = self._attempt
        try:
            self._node.call(attempt.to, attempt.data, sender=attempt.account, value=attempt.value)
        except Reverted as error:
            return reason(error).what
        except RpcError:
            pass
        return None

    def _hand_over(self, last: SignedTransaction, *, again: bool = False) -> Refusal | Waiting:
        """Give it to the node; one that pays too little is replaced, `again`: but not a second time."""
        try:
            self._node.send(last.raw)
        except RpcError as error:
            if error.code in BUSY:
                raise Unreachable(f"the node does not take it now: {error.message}") from None
            answer = error.message.lower()
            if "nonce too low" in answer:
                return Waiting()  # something with this nonce is in a block; the next look finds it
            if any(words in answer for words in _TOO_LITTLE):
                return Waiting() if again else self._replace(last)
            if not any(words in answer for words in _THERE_ALREADY):
                refused = of_node(error)
                return Refusal(refused.code, refused.what, "it is signed, and the same is sent when this is done again")
        self._following.mark_sent()
        return Waiting()

    def _replace(self, last: SignedTransaction) -> Refusal | Waiting:
        """Another transaction in its place, that pays more, if the bounds let it."""
        attempt, following = self._attempt, self._following
        base = self._node.head().base_fee
        fees = None if base is None else bumped(last.fees, base, self._node.tip(), self._settings.bounds)
        if fees is None:
            following.tell("no block takes it, and it offers the most that max_fee_gwei and max_tip_gwei allow")
            return Waiting()
        request = TransactionRequest(attempt.chain_id, attempt.nonce, attempt.to, attempt.value, attempt.data, attempt.gas, fees)
        other = _signed(self._signer, request)
        following.add("replaced", **other.entry())
        attempt.transactions.append(other)
        following.tell(f"no block takes it: it offers {fees.most / 1e9:.4g} gwei now")
        return self._hand_over(other, again=True)
