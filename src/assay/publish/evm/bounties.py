"""What a sponsor, an agent, and anybody does with a bounty's contracts: each of it once, and looked at before it is done.

An action says what it would send, or why it would not: because it is done already, because it is too early, because it would be
refused. So doing it again after a crash, or twice, does it once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from assay.exact import digest
from assay.publish.evm.artifacts import ORACLE, ROUND, artifact
from assay.publish.evm.attempts import attempts
from assay.publish.evm.chain import MADE_ORACLE, MADE_ROUND, Chain
from assay.publish.evm.libraries import checksum, keccak
from assay.publish.evm.node import Contract, encoded
from assay.publish.evm.reasons import Reverted, of_node, reason
from assay.publish.evm.sending import Call
from assay.publish.evm.settings import NOBODY
from assay.publish.evm.signers import Signer
from assay.publish.evm.terms import Terms, of_round
from assay.publish.outcome import Confirmed, Outcome, Planned, Refusal, TooEarly
from assay.publish.publishers import Tell
from assay.publish.rpc import RpcError

__all__ = ["Action", "Bounties", "State", "look", "run"]

Prepare = Callable[[str], Call | Outcome]
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
class State:
    """Where a round is: `unfunded`, `open` or `settled`; what it holds; what it was told; whom it owes what."""

    address: str
    state: str
    terms: Terms
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
    return Planned() if isinstance(found, Call) else found


def run(chain: Chain, signer: Signer, actions: Sequence[Action], tell: Tell) -> Outcome:
    """Do one after the other, as long as each comes to its end; what became of the last."""
    outcome: Outcome = Planned()
    for action in actions:
        sending = chain.sending(signer, tell)
        outcome = sending.run(action.subject, action.plan, lambda action=action: action.prepare(signer.address))  # type: ignore[misc]
        if not isinstance(outcome, Confirmed):
            break
    return outcome


class Bounties:
    """The actions on a target's contracts."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain

    # Making

    def make_oracle(self, admin: str, scorer: str) -> Action:
        """A new scoring oracle, with who grants roles and who has the first."""
        return self._making(MADE_ORACLE, ORACLE, {"admin": admin, "scorer": scorer}, [admin, scorer])

    def create(self, terms: Terms) -> Action:
        """A bounty's contract."""
        made = self._making(MADE_ROUND, ROUND, terms.content(), [terms.values()])

        def prepare(account: str) -> Call | Outcome:
            wrong = self._chain.wrong(Contract(self._chain.node, ORACLE, terms.oracle))
            return wrong or made.prepare(account)

        return Action(made.subject, made.content, prepare)

    def _making(self, subject: str, name: str, content: dict[str, Any], values: Sequence[Any]) -> Action:
        chain, found = self._chain, artifact(name)
        content = content | {"chain_id": chain.settings.chain_id, "code": f"keccak256:{keccak(found.bytecode).hex()}"}
        plan = digest({"subject": subject, "content": content})

        def prepare(account: str) -> Call | Outcome:
            wrong = chain.wrong()
            if wrong is not None:
                return wrong
            for one in attempts(chain.journal.entries):
                same = (one.subject, one.plan, one.state) == (subject, plan, "confirmed")
                if same and chain.node.code(str(one.ending["contract"])):
                    return Confirmed(one.ending["block"], one.ending["hash"])
            data = found.bytecode + encoded(found.abi, "", values, chain.node.codec)
            return self._tried(Call(None, data), account)

        return Action(subject, content, prepare)

    def made(self, subject: str) -> str:
        """The address of the contract that was made last."""
        return str([one for one in attempts(self._chain.journal.read()) if one.subject == subject][-1].ending["contract"])

    # The sponsor's

    def fund(self) -> list[Action]:
        """The deposit: of a token, what the round may take of it first."""
        terms = self._terms()
        paying = Call(self._chain.round.address, self._chain.round.data("fund"), terms.deposit if terms.token == NOBODY else 0)
        pay = self._action("fund", {"deposit": str(terms.deposit), "token": terms.token}, paying, self._funded)
        return [pay] if terms.token == NOBODY else [self._approve(terms), pay]

    def _approve(self, terms: Terms) -> Action:
        node, at = self._chain.node, self._chain.round.address
        call = Call(terms.token, encoded(_TOKEN, "approve", (at, terms.deposit), node.codec))

        def done(account: str) -> Outcome | None:
            allowed = int.from_bytes(node.call(terms.token, encoded(_TOKEN, "allowance", (account, at), node.codec)), "big")
            funded = self._funded(account)
            return funded or (Confirmed(self._chain.buried()) if allowed >= terms.deposit else None)

        return self._action("approve", {"deposit": str(terms.deposit), "token": terms.token}, call, done)

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

        call = Call(round_.address, round_.data("commit", commitment))
        return self._action("commit", {"commitment": f"sha256:{commitment.hex()}"}, call, done)

    # Anybody's

    def settle(self) -> Action:
        """The division of the deposit: by the scores there are, or without any when their time is over."""
        round_ = self._chain.round

        def done(_: str) -> Outcome | None:
            return Confirmed(self._chain.buried()) if self._state() == "settled" else None

        return self._action("settle", {}, Call(round_.address, round_.data("settle")), done)

    def claim(self, whose: str, to: str | None = None) -> Action:
        """What the round owes an account, to itself or to another."""
        round_ = self._chain.round
        owed = int(round_.ask("owed", whose))

        def prepare(account: str) -> Call | Outcome:
            receiver = to or account
            wrong = self._chain.wrong(round_)
            if wrong is not None:
                return wrong
            if not round_.ask("owed", account):
                return self._nothing(account)
            return self._tried(Call(round_.address, round_.data("claim", receiver)), account)

        content = {"round": round_.address, "amount": str(owed) if owed else None, "to": to}
        return Action("bounty claim", content, prepare)

    def _nothing(self, account: str) -> Outcome:
        """Why an account is owed nothing: it was fetched, or there is nothing yet, or nothing at all."""
        topic = f"0x{keccak(b'Claimed(address,address,uint256)').hex()}"
        logs = self._chain.node.logs(self._chain.round.address, [topic, f"0x{'00' * 12}{account[2:].lower()}"])
        if logs:
            return Confirmed(int(str(logs[-1]["blockNumber"]), 16), str(logs[-1]["transactionHash"]))
        if self._state() != "settled":
            return TooEarly(self._terms().score_until + 1, "time", "the round is not settled; `assay bounty settle` does it")
        return Refusal("nothing-owed", f"the round owes {account} nothing", "is it the account that committed, or the sponsor's?")

    def state(self, accounts: Sequence[str]) -> State:
        """Where the round is, and what it owes to these accounts, its sponsor and who takes the fee."""
        chain, round_ = self._chain, self._chain.round
        terms = self._terms()
        receipt, rows = Contract(chain.node, ORACLE, terms.oracle).ask("scoresOf", round_.address)
        everybody = dict.fromkeys([*accounts, terms.sponsor, *([] if terms.fee_recipient == NOBODY else [terms.fee_recipient])])
        owed = [(account, int(round_.ask("owed", account))) for account in everybody]
        return State(
            round_.address,
            self._state(),
            terms,
            chain.node.head().time,
            round_.ask("commitments"),
            round_.ask("held"),
            f"sha256:{receipt.hex()}" if any(receipt) else None,
            tuple((checksum(agent), bps, f"sha256:{proof.hex()}" if any(proof) else None) for agent, bps, proof in rows),
            tuple((account, amount) for account, amount in owed if amount),
        )

    def _terms(self) -> Terms:
        return of_round(self._chain.round)

    def _state(self) -> str:
        return STATES[self._chain.round.ask("state")]

    def _action(self, name: str, content: dict[str, Any], call: Call, done: Callable[[str], Outcome | None]) -> Action:
        round_ = self._chain.round

        def prepare(account: str) -> Call | Outcome:
            return self._chain.wrong(round_) or done(account) or self._tried(call, account)

        return Action(f"bounty {name}", {"round": round_.address} | content, prepare)

    def _tried(self, call: Call, account: str) -> Call | Outcome:
        """The call, if it would be taken now; else why not."""
        try:
            self._chain.node.call(call.to, call.data, sender=account, value=call.value)
        except Reverted as error:
            return reason(error)
        except RpcError as error:
            return of_node(error)
        return call
