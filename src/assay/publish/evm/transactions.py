"""Signs transactions, replaces those that pay too little, and follows them on an Ethereum chain for `assay.publish.sender`.

- A transaction has ended when it is in a block that is deep enough, or when it can never get into one.
- If no block includes a transaction, another one with the same nonce and higher fees replaces it, within the limits. A chain can
  only include one of the two.
- All transactions that are ever signed for one plan have the same nonce, whatever a node says about them. So a lying node cannot
  obtain two transactions that a chain would both include. Only the account's owner can declare a nonce as used: `used_nonce`.
- If a reorganisation removes a block, its transactions are pending again, and are followed again.

Entries of the journal. Each also has `state`, `subject`, `plan` (the digest of what is sent) and `at` (when it was written):

    planned     attempt (counted from 1), account, chain_id, nonce, to, value, data, gas, and the first transaction
    replaced    attempt, and another transaction with the same nonce
    sent        attempt, hash: a node has it
    confirmed   attempt, hash, block, block_hash: ended; it is deep enough
    reverted    attempt, hash, block, why: ended; it is in a block, without effect
    lost        attempt, why: ended; another transaction used its nonce
    dropped     attempt, why: ended; no node has it, and the contract would refuse it now
    unknown, refused, too-early, confirmed: without an attempt, the outcome of a command; with one, the result of reading back

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
    """A signed transaction: its hash, its bytes, its fees."""

    hash: str
    raw: bytes = field(repr=False)
    fees: Fees

    def entry(self) -> dict[str, Any]:
        """The transaction's fields of a journal entry."""
        fees = {"max_fee": str(self.fees.most), "max_tip": str(self.fees.tip)}
        return {"hash": self.hash, "raw": f"0x{self.raw.hex()}"} | fees

    @classmethod
    def of(cls, entry: dict[str, Any]) -> SignedTransaction:
        """The transaction in a journal entry."""
        fees = Fees(int(entry["max_fee"]), int(entry["max_tip"]))
        return cls(entry["hash"], bytes.fromhex(entry["raw"][2:]), fees)


@dataclass
class EvmAttempt(ChainAttempt):
    """One attempt: transactions with the same nonce, of which a chain can include only one."""

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
        """The hash of the last transaction, which pays the most."""
        return self.transactions[-1].hash

    @property
    def owner(self) -> tuple[object, ...]:
        """The account, and on which chain."""
        return self.account, self.chain_id

    @property
    def described(self) -> str:
        """The attempt as the subject of a sentence, for people."""
        return f"a transaction of {self.account} on chain {self.chain_id}"

    def content(self) -> dict[str, Any]:
        """The fields that only this chain's entries have."""
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
        """The attempt of an entry `planned`. Raises KeyError if the entry belongs to another kind of target."""
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
        """Update the attempt by a later entry about it, which may replace its transaction."""
        if entry["state"] == "replaced":
            self.transactions.append(SignedTransaction.of(entry))
        else:
            super().follow(entry)


GAS_ROOM = 5
"""A transaction gets a fifth more gas than its call needs now, because the chain may change until it is included."""
GAS_MOST = 2**24
"""Most gas of one transaction on any chain (EIP-7825)."""
LOOKS = 3
"""A node must say so many times in a row that another transaction used a nonce; a node behind a load balancer may lag."""
_TOO_LITTLE = ("underpriced", "fee too low", "less than block base fee")
_THERE_ALREADY = ("already known", "known transaction", "already imported", "already exists")
"""Parts of nodes' error messages about a transaction; every kind of node has its own."""


@dataclass(frozen=True, slots=True)
class EvmCall:
    """The call that a transaction makes. `to` is None if it creates a contract."""

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
        """A transaction with the plan's nonce and fees within the limits."""
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
        fees = quote(head.base_fee, node.tip(), self._settings.fee_limits)
        if fees is None:
            limit = self._settings.fee_limits.most
            what = f"gas costs {head.base_fee / 1e9:.4g} gwei now, but at most {limit / 1e9:.4g} is allowed"
            return Refusal("fees", what, "wait, or raise max_fee_gwei in publish.toml")
        nonce = self._nonce(plan, call, attempts)
        if isinstance(nonce, Refusal):
            return nonce
        gas = min(needed + needed // GAS_ROOM, GAS_MOST)
        request = TransactionRequest(self._settings.chain_id, nonce, call.to, call.value, call.data, gas, fees)
        first = _signed(self._signer, request)
        return EvmAttempt(number, subject, plan, account, request.chain_id, nonce, call.to, call.value, call.data, gas, [first])

    def _nonce(self, plan: str, call: EvmCall, attempts: list[EvmAttempt]) -> int | Refusal:
        """The account's next nonce; for a plan or call that was signed before, the nonce that it had then."""
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
            f"it was signed with nonce {nonce} of {self.account}, but the node says that another transaction used this nonce;"
            " nothing was signed again"
        )
        hint = f"look up elsewhere which transaction used it; if it was another, write used_nonce = {nonce} in publish.toml"
        return Refusal("nonce", what, hint)

    def follow(self, following: Following[EvmAttempt, EvmCall]) -> Callable[[], Seen]:
        """A function that looks at the transactions once."""
        return _TransactionFollower(self._node, self._signer, self._settings, self._clock, following).look


def _signed(signer: Signer, request: TransactionRequest) -> SignedTransaction:
    """Sign a request."""
    raw = signer.transaction(request)
    return SignedTransaction(f"0x{keccak(raw).hex()}", raw, request.fees)


class _TransactionFollower:
    """Follows the transactions of one attempt until one is deep enough, or until none can get into a block any more."""

    def __init__(
        self, node: EvmNode, signer: Signer, settings: EvmSettings, clock: SystemClock, following: Following[EvmAttempt, EvmCall]
    ) -> None:
        self._node, self._signer, self._settings, self._clock = node, signer, settings, clock
        self._following, self._attempt = following, following.attempt
        self._bumped_at, self._looks = clock.now(), 0

    def look(self) -> Seen:
        """The state of the attempt, by blocks that are deep enough."""
        node, attempt = self._node, self._attempt
        used = node.count(attempt.account, self._buried_at())
        mined = self._mined()
        if mined is not None and self._deep(mined[1]):
            return self._ended(*mined)
        self._looks = self._looks + 1 if mined is None and used > attempt.nonce else 0
        if self._looks >= LOOKS:
            why = f"another transaction used nonce {attempt.nonce} of {attempt.account}"
            return AttemptEnded("lost", None, {"why": why})
        if mined is None and node.count(attempt.account) <= attempt.nonce:
            return self._press()
        return Waiting()

    def _mined(self) -> tuple[str, Mined] | None:
        """The transaction that is in a block, and where it is; at most one can be."""
        for transaction in reversed(self._attempt.transactions):
            mined = self._node.mined(transaction.hash)
            if mined is not None:
                return transaction.hash, mined
        return None

    def _buried_at(self) -> int:
        """The newest block that is deep enough."""
        return max(0, self._node.head().number - self._settings.confirmations + 1)

    def _deep(self, mined: Mined) -> bool:
        """Whether enough blocks follow the transaction's block, and the chain still has it."""
        if self._node.head().number - mined.block + 1 < self._settings.confirmations:
            return False
        block = self._node.block(mined.block)
        return block is not None and block.hash == mined.block_hash

    def _ended(self, transaction: str, mined: Mined) -> AttemptEnded:
        more: dict[str, Any] = {"hash": transaction, "block": mined.block, "block_hash": mined.block_hash}
        if mined.succeeded:
            contract = {} if mined.contract is None else {"contract": mined.contract}
            return AttemptEnded("confirmed", Confirmed(mined.block, transaction), more | contract)
        why = self._why(mined.block)
        refusal = Refusal(why.code, f"{why.what} (transaction {transaction} had no effect)", why.hint)
        return AttemptEnded("reverted", refusal, more | {"why": why.what})

    def _why(self, block: int) -> Refusal:
        """The reason that the contract would have given in that block."""
        attempt = self._attempt
        try:
            self._node.call(attempt.to, attempt.data, sender=attempt.account, value=attempt.value, at=block)
        except Reverted as error:
            outcome = reason(error)
            return outcome if isinstance(outcome, Refusal) else Refusal("too-early", outcome.what)
        except (RpcError, Unreachable):
            pass
        return Refusal("reverted", "the contract refused it, or the gas was not enough", "look at the transaction")

    def _press(self) -> Seen:
        """Make sure that a node has the transaction, and that it pays enough."""
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
        """The reason why the contract would refuse the transaction now; None if it would not."""
        attempt = self._attempt
        try:
            self._node.call(attempt.to, attempt.data, sender=attempt.account, value=attempt.value)
        except Reverted as error:
            return reason(error).what
        except RpcError:
            pass
        return None

    def _hand_over(self, last: SignedTransaction, *, again: bool = False) -> Refusal | Waiting:
        """Give a transaction to the node. If it pays too little it is replaced, but not twice (`again`)."""
        try:
            self._node.send(last.raw)
        except RpcError as error:
            if error.code in BUSY:
                raise Unreachable(f"the node does not accept it now: {error.message}") from None
            answer = error.message.lower()
            if "nonce too low" in answer:
                return Waiting()  # something with this nonce is in a block; the next look finds it
            if any(words in answer for words in _TOO_LITTLE):
                return Waiting() if again else self._replace(last)
            if not any(words in answer for words in _THERE_ALREADY):
                refused = of_node(error)
                hint = "it is signed; run this command again to send the same transaction"
                return Refusal(refused.code, refused.what, hint)
        self._following.mark_sent()
        return Waiting()

    def _replace(self, last: SignedTransaction) -> Refusal | Waiting:
        """Replace a transaction by one that pays more, if the limits allow it."""
        attempt, following = self._attempt, self._following
        base = self._node.head().base_fee
        fees = None if base is None else bumped(last.fees, base, self._node.tip(), self._settings.fee_limits)
        if fees is None:
            following.tell("no block includes it, and it already offers the most that max_fee_gwei and max_tip_gwei allow")
            return Waiting()
        request = TransactionRequest(attempt.chain_id, attempt.nonce, attempt.to, attempt.value, attempt.data, attempt.gas, fees)
        other = _signed(self._signer, request)
        following.add("replaced", **other.entry())
        attempt.transactions.append(other)
        following.tell(f"no block includes it: it offers {fees.most / 1e9:.4g} gwei now")
        return self._hand_over(other, again=True)
