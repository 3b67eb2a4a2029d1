"""What a sponsor, an agent, and anybody does with a bounty's contracts: each of it once, and looked at before it is done.

An action says what it would send, or why it would not: because it is done already, because it is too early, because it would be
refused. So doing it again after a crash, or twice, does it once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from assay.errors import BadInput, Unreachable
from assay.exact import digest
from assay.publish.evm.chain import MADE_ORACLE, MADE_ROUND, EvmChain, RoundTerms
from assay.publish.evm.contracts import DEPLOYER, ORACLE, ROUND, Reverted, artifact, making, of_node, reason
from assay.publish.evm.libraries import checksum, keccak
from assay.publish.evm.node import COUNT, Contract, encoded
from assay.publish.evm.settings import NOBODY
from assay.publish.evm.signers import Signer
from assay.publish.evm.transactions import EvmCall
from assay.publish.outcome import Confirmed, Outcome, Planned, Refusal, TooEarly
from assay.publish.publishers import Tell
from assay.publish.rpc import RpcError
from assay.scheme.bounty import Bounty

Prepare = Callable[[str], EvmCall | Outcome]
_TOKEN: list[dict[str, Any]] = [
    {"type": "function", "name": name, "inputs": [{"type": kind} for kind in kinds], "outputs": [{"type": out}]}
    for name, kinds, out in (
        ("allowance", ("address", "address"), "uint256"),
        ("approve", ("address", "uint256"), "bool"),
    )
]
STATES = ("unfunded", "open", "settled")


@dataclass(frozen=True)
class Action:
    """One transaction to be: what it is about, what stands in it, and what there is to send for an account, now."""

    subject: str
    content: dict[str, Any]
    prepare: Prepare

    @property
    def plan(self) -> str:
        """`sha256:…` of it."""
        return digest({"subject": self.subject, "content": self.content})


@dataclass(frozen=True)
class RoundState:
    """Where a round is: `unfunded`, `open` or `settled`; what it holds; what it was told; whom it owes what."""

    address: str
    state: str
    terms: RoundTerms
    now: int
    commitments: int
    held: int
    receipt: str | None
    scores: tuple[tuple[str, int, str | None], ...]
    """Agent, BPS, and the digest of what proves where its judge ran."""
    owed: tuple[tuple[str, int], ...]


def look(action: Action, account: str) -> Outcome:
    """What would come of an action now: Planned, if it would be sent."""
    found = action.prepare(account)
    return Planned() if isinstance(found, EvmCall) else found


def run(chain: EvmChain, signer: Signer, actions: Sequence[Action], tell: Tell) -> Outcome:
    """Do one after the other, as long as each comes to its end; what became of the last."""
    outcome: Outcome = Planned()
    for action in actions:
        sender = chain.sender(signer, tell)
        outcome = sender.run(action.subject, action.plan, lambda action=action: action.prepare(signer.address))  # type: ignore[misc]
        if not isinstance(outcome, Confirmed):
            break
    return outcome


class Bounties:
    """The actions on a target's contracts. bounty: what the round must be of, for whoever puts something into it."""

    def __init__(self, chain: EvmChain, bounty: Bounty | None = None) -> None:
        self._chain, self.bounty = chain, bounty

    # Making

    def make_oracle(self) -> Action:
        """The scoring oracle, where the chain does not have it yet."""
        return self._making(MADE_ORACLE, self._chain.oracle, artifact(ORACLE).bytecode, {})

    def create(self, terms: RoundTerms) -> Action:
        """A bounty's contract."""
        chain, codec = self._chain, self._chain.node.codec
        round_ = Contract(chain.node, ROUND, terms.address(codec))
        made = self._making(MADE_ROUND, round_, terms.code(codec), terms.content())

        def prepare(account: str) -> EvmCall | Outcome:
            if chain.wrong() is None and not chain.node.code(chain.oracle.address):
                return Refusal(
                    "no-oracle", f"the chain has no oracle at {chain.oracle.address} yet", "`assay bounty oracle` makes it"
                )
            return chain.wrong(chain.oracle) or made.prepare(account)

        return Action(made.subject, made.content, prepare)

    def _making(self, subject: str, contract: Contract, code: bytes, content: dict[str, Any]) -> Action:
        """A contract at the address that follows from its code; `wrong` of it tells afterwards whether it is there."""
        chain = self._chain
        shipped = f"keccak256:{keccak(artifact(contract.name).bytecode).hex()}"
        content = content | {"address": contract.address, "chain_id": chain.settings.chain_id, "code": shipped}

        def prepare(account: str) -> EvmCall | Outcome:
            wrong = chain.wrong() or chain.no_deployer()
            if wrong is not None:
                return wrong
            if chain.node.code(contract.address):
                return chain.wrong(contract) or Confirmed(chain.buried())
            tried = self._tried(EvmCall(None, code), account)  # the deployer would not say why
            return EvmCall(DEPLOYER, making(code)) if isinstance(tried, EvmCall) else tried

        return Action(subject, content, prepare)

    # The sponsor's

    def fund(self) -> list[Action]:
        """The deposit: of a token, what the round may take of it first."""
        terms = self._terms()
        paying = EvmCall(self._chain.round.address, self._chain.round.data("fund"), terms.deposit if terms.token == NOBODY else 0)
        pay = self._action("fund", {"deposit": str(terms.deposit), "token": terms.token}, paying, self._funded, strict=True)
        return [pay] if terms.token == NOBODY else [self._approve(terms), pay]

    def _approve(self, terms: RoundTerms) -> Action:
        node, at = self._chain.node, self._chain.round.address
        call = EvmCall(terms.token, encoded(_TOKEN, "approve", (at, terms.deposit), node.codec))

        def done(account: str) -> Outcome | None:
            funded = self._funded(account)
            if funded is not None:
                return funded
            try:
                said = node.call(terms.token, encoded(_TOKEN, "allowance", (account, at), node.codec))
            except Reverted as error:
                return reason(error)
            except RpcError as error:
                return of_node(error)
            return Confirmed(self._chain.buried()) if int.from_bytes(said, "big") >= terms.deposit else None

        return self._action("approve", {"deposit": str(terms.deposit), "token": terms.token}, call, done, strict=True)

    def _funded(self, _: str) -> Outcome | None:
        return Confirmed(self._chain.buried()) if self._state() != "unfunded" else None

    # The agent's

    def commit(self, commitment: bytes) -> Action:
        """A commitment of the account."""
        round_ = self._chain.round

        def done(account: str) -> Outcome | None:
            there = round_.ask("commitmentOf", account)
            if there == commitment:
                return Confirmed(self._chain.buried())
            if any(there):
                what = f"{account} is bound to another commitment already, sha256:{there.hex()}"
                return Refusal("already-committed", what, "it is for good")
            return None

        call = EvmCall(round_.address, round_.data("commit", commitment))
        return self._action("commit", {"commitment": f"sha256:{commitment.hex()}"}, call, done, strict=True)

    # Anybody's

    def settle(self) -> Action:
        """The division of the deposit: by the scores there are, or without any when their time is over."""
        round_ = self._chain.round

        def done(_: str) -> Outcome | None:
            return Confirmed(self._chain.buried()) if self._state() == "settled" else None

        return self._action("settle", {}, EvmCall(round_.address, round_.data("settle")), done)

    def claim(self, whose: str, to: str | None = None) -> Action:
        """What the round owes an account, to itself or to another."""
        round_ = self._chain.round
        wrong = self._chain.wrong(round_)
        owed = 0 if wrong else int(round_.ask("owed", whose))

        def prepare(account: str) -> EvmCall | Outcome:
            receiver = to or account
            wrong = self._chain.wrong(round_)
            if wrong is not None:
                return wrong
            if not round_.ask("owed", account):
                return self._nothing(account)
            return self._tried(EvmCall(round_.address, round_.data("claim", receiver)), account)

        content = {"round": round_.address, "amount": str(owed) if owed else None, "to": to}
        return Action("bounty claim", content, prepare)

    def _nothing(self, account: str) -> Outcome:
        """Why an account is owed nothing: it was fetched, or there is nothing yet, or nothing at all."""
        topic = f"0x{keccak(b'Claimed(address,address,uint256)').hex()}"
        logs = self._chain.node.logs(self._chain.round.address, [topic, f"0x{'00' * 12}{account[2:].lower()}"])
        if logs:
            return Confirmed(logs[-1].block, logs[-1].transaction)
        if self._state() != "settled":
            return TooEarly(self._terms().score_until + 1, "time", "the round is not settled; `assay bounty settle` does it")
        return Refusal("nothing-owed", f"the round owes {account} nothing", "is it the account that committed, or the sponsor's?")

    def state(self, accounts: Sequence[str]) -> RoundState:
        """Where the round is, and what it owes to these accounts, its sponsor and who takes the fee."""
        chain, round_ = self._chain, self._chain.round
        terms = self._terms()
        receipt, rows = chain.oracle.ask("scoresOf", round_.address, terms.scorer)
        everybody = dict.fromkeys([*accounts, terms.sponsor, *([] if terms.fee_recipient == NOBODY else [terms.fee_recipient])])
        owed = [(account, int(round_.ask("owed", account))) for account in everybody]
        return RoundState(
            round_.address,
            self._state(),
            terms,
            chain.node.head().time,
            self._commitments(),
            round_.ask("held"),
            f"sha256:{receipt.hex()}" if any(receipt) else None,
            tuple((checksum(agent), bps, f"sha256:{proof.hex()}" if any(proof) else None) for agent, bps, proof in rows),
            tuple((account, amount) for account, amount in owed if amount),
        )

    def _terms(self) -> RoundTerms:
        """Of the round; raises BadInput if it is none of ours: nothing that it says is worth anything then."""
        wrong = self._chain.wrong(self._chain.round)
        if wrong is not None:
            raise BadInput(wrong.what, hint=wrong.hint)
        return self._chain.terms()

    def _commitments(self) -> int:
        found = int(self._chain.round.ask("commitments"))
        if found >= COUNT:
            what = f"the round at {self._chain.round.address} is told to have {found} commitments"
            raise Unreachable(what, hint="the node does not tell what the chain has; use another")
        return found

    def _state(self) -> str:
        found = self._chain.round.ask("state")
        if found >= len(STATES):
            what = f"the round at {self._chain.round.address} is told to be in a state {found}, and there are {len(STATES)}"
            raise Unreachable(what, hint="the node does not tell what the chain has; use another")
        return STATES[found]

    def _action(
        self, name: str, content: dict[str, Any], call: EvmCall, done: Callable[[str], Outcome | None], *, strict: bool = False
    ) -> Action:
        """strict: not on a round that has other terms than the files here say. Who takes out what is his is never held up so."""
        round_, chain = self._chain.round, self._chain

        def prepare(account: str) -> EvmCall | Outcome:
            wrong = chain.wrong(round_) or (chain.differs(self.bounty) if strict else None)
            return wrong or done(account) or self._tried(call, account)

        return Action(f"bounty {name}", {"round": round_.address} | content, prepare)

    def _tried(self, call: EvmCall, account: str) -> EvmCall | Outcome:
        """The call, if it would be taken now; else why not."""
        try:
            self._chain.node.call(call.to, call.data, sender=account, value=call.value)
        except Reverted as error:
            return reason(error)
        except RpcError as error:
            return of_node(error)
        return call
