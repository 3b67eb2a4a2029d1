"""The actions on a bounty's contracts: create, fund, commit, settle and claim, each carried out exactly once.

Before an action is sent, the chain is asked whether it is done already, comes too early, or would be refused. So the same action
again, after a crash or by mistake, has no second effect.
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
_OTHER_NODE = "the node does not show the real chain; use another node"


@dataclass(frozen=True)
class Action:
    """One planned transaction: its subject, its content as JSON, and a function that gives the call of an account now."""

    subject: str
    content: dict[str, Any]
    prepare: Prepare

    @property
    def plan(self) -> str:
        """`sha256:…` of subject and content."""
        return digest({"subject": self.subject, "content": self.content})


@dataclass(frozen=True)
class RoundState:
    """The state of a round (`unfunded`, `open` or `settled`), with its balance, its scores, and its debts by account."""

    address: str
    state: str
    terms: RoundTerms
    now: int
    commitments: int
    held: int
    receipt: str | None
    scores: tuple[tuple[str, int, str | None], ...]
    """(Agent, BPS, digest of the attestation of its judge)."""
    owed: tuple[tuple[str, int], ...]


def look(action: Action, account: str) -> Outcome:
    """The outcome that an action would have now; Planned if it would be sent."""
    prepared = action.prepare(account)
    return Planned() if isinstance(prepared, EvmCall) else prepared


def run(chain: EvmChain, signer: Signer, actions: Sequence[Action], tell: Tell) -> Outcome:
    """Send the actions in order, until one is not confirmed; the outcome of the last one that was sent."""
    outcome: Outcome = Planned()
    for action in actions:
        sender = chain.sender(signer, tell)
        outcome = sender.run(action.subject, action.plan, lambda action=action: action.prepare(signer.address))  # type: ignore[misc]
        if not isinstance(outcome, Confirmed):
            break
    return outcome


class Bounties:
    """The actions on a target's contracts. bounty: must match the round before anything is paid into or committed to it."""

    def __init__(self, chain: EvmChain, bounty: Bounty | None = None) -> None:
        self._chain, self.bounty = chain, bounty

    # Creating the contracts

    def make_oracle(self) -> Action:
        """Create the scoring oracle, if the chain does not have it yet."""
        return self._making(MADE_ORACLE, self._chain.oracle, artifact(ORACLE).bytecode, {})

    def create(self, terms: RoundTerms) -> Action:
        """Create a bounty's contract."""
        chain, codec = self._chain, self._chain.node.codec
        round_ = Contract(chain.node, ROUND, terms.address(codec))
        creation = self._making(MADE_ROUND, round_, terms.code(codec), terms.content())

        def prepare(account: str) -> EvmCall | Outcome:
            if chain.wrong() is None and not chain.node.code(chain.oracle.address):
                what = f"the chain has no oracle at {chain.oracle.address} yet"
                return Refusal("no-oracle", what, "create it with `assay bounty oracle`")
            return chain.wrong(chain.oracle) or creation.prepare(account)

        return Action(creation.subject, creation.content, prepare)

    def _making(self, subject: str, contract: Contract, code: bytes, content: dict[str, Any]) -> Action:
        """Create a contract at the address that follows from its code; afterwards `wrong` checks that it is there."""
        chain = self._chain
        shipped = f"keccak256:{keccak(artifact(contract.name).bytecode).hex()}"
        content = content | {"address": contract.address, "chain_id": chain.settings.chain_id, "code": shipped}

        def prepare(account: str) -> EvmCall | Outcome:
            wrong = chain.wrong() or chain.no_deployer()
            if wrong is not None:
                return wrong
            if chain.node.code(contract.address):
                return chain.wrong(contract) or Confirmed(chain.buried())
            checked = self._checked(EvmCall(None, code), account)  # the deployer would not give the reason
            return EvmCall(DEPLOYER, making(code)) if isinstance(checked, EvmCall) else checked

        return Action(subject, content, prepare)

    # Of the sponsor

    def fund(self) -> list[Action]:
        """Pay the deposit. If it is a token, the round is first allowed to take it."""
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
                allowance = node.call(terms.token, encoded(_TOKEN, "allowance", (account, at), node.codec))
            except Reverted as error:
                return reason(error)
            except RpcError as error:
                return of_node(error)
            return Confirmed(self._chain.buried()) if int.from_bytes(allowance, "big") >= terms.deposit else None

        return self._action("approve", {"deposit": str(terms.deposit), "token": terms.token}, call, done, strict=True)

    def _funded(self, _: str) -> Outcome | None:
        return Confirmed(self._chain.buried()) if self._state() != "unfunded" else None

    # Of an agent

    def commit(self, commitment: bytes) -> Action:
        """Bind the account to a commitment."""
        round_ = self._chain.round

        def done(account: str) -> Outcome | None:
            present = round_.ask("commitmentOf", account)
            if present == commitment:
                return Confirmed(self._chain.buried())
            if any(present):
                what = f"{account} already has another commitment, sha256:{present.hex()}"
                return Refusal("already-committed", what, "a commitment is final")
            return None

        call = EvmCall(round_.address, round_.data("commit", commitment))
        return self._action("commit", {"commitment": f"sha256:{commitment.hex()}"}, call, done, strict=True)

    # Of anybody

    def settle(self) -> Action:
        """Divide the deposit by the scores, or without scores after the deadline for them."""
        round_ = self._chain.round

        def done(_: str) -> Outcome | None:
            return Confirmed(self._chain.buried()) if self._state() == "settled" else None

        return self._action("settle", {}, EvmCall(round_.address, round_.data("settle")), done)

    def claim(self, whose: str, to: str | None = None) -> Action:
        """Pay out what the round owes an account, to that account or to another one."""
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
            return self._checked(EvmCall(round_.address, round_.data("claim", receiver)), account)

        content = {"round": round_.address, "amount": str(owed) if owed else None, "to": to}
        return Action("bounty claim", content, prepare)

    def _nothing(self, account: str) -> Outcome:
        """The outcome for an account that is owed nothing: it was fetched, or there is nothing yet, or nothing at all."""
        topic = f"0x{keccak(b'Claimed(address,address,uint256)').hex()}"
        logs = self._chain.node.logs(self._chain.round.address, [topic, f"0x{'00' * 12}{account[2:].lower()}"])
        if logs:
            return Confirmed(logs[-1].block, logs[-1].transaction)
        if self._state() != "settled":
            return TooEarly(self._terms().score_until + 1, "time", "the round is not settled; `assay bounty settle` does it")
        return Refusal("nothing-owed", f"the round owes {account} nothing", "is it the account that committed, or the sponsor's?")

    def state(self, accounts: Sequence[str]) -> RoundState:
        """The state of the round, with its debts to these accounts, to its sponsor and to its fee recipient."""
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
        """The terms of the round. Raises BadInput if the contract is not ours, because then its answers prove nothing."""
        wrong = self._chain.wrong(self._chain.round)
        if wrong is not None:
            raise BadInput(wrong.what, hint=wrong.hint)
        return self._chain.terms()

    def _commitments(self) -> int:
        count = int(self._chain.round.ask("commitments"))
        if count >= COUNT:
            what = f"the node says that the round at {self._chain.round.address} has {count} commitments, which is impossible"
            raise Unreachable(what, hint=_OTHER_NODE)
        return count

    def _state(self) -> str:
        number = self._chain.round.ask("state")
        if number >= len(STATES):
            what = f"the node says that the round at {self._chain.round.address} is in state {number}, which does not exist"
            raise Unreachable(what, hint=_OTHER_NODE)
        return STATES[number]

    def _action(
        self, name: str, content: dict[str, Any], call: EvmCall, done: Callable[[str], Outcome | None], *, strict: bool = False
    ) -> Action:
        """An action on the round. strict: refused if the round's terms differ from the files; a claim must not depend on them."""
        round_, chain = self._chain.round, self._chain

        def prepare(account: str) -> EvmCall | Outcome:
            wrong = chain.wrong(round_) or (chain.differs(self.bounty) if strict else None)
            return wrong or done(account) or self._checked(call, account)

        return Action(f"bounty {name}", {"round": round_.address} | content, prepare)

    def _checked(self, call: EvmCall, account: str) -> EvmCall | Outcome:
        """The call, if the chain would accept it now; otherwise why not."""
        try:
            self._chain.node.call(call.to, call.data, sender=account, value=call.value)
        except Reverted as error:
            return reason(error)
        except RpcError as error:
            return of_node(error)
        return call
