"""Publishes scores to the oracle of an Ethereum chain: the publisher of kind `evm`. SPEC 2.3, 5.

The oracle gets each agent's BPS, and the digest of the attestation of its judge. A round accepts scores only once. So before they
are sent, the round is asked what it would pay for them. If that is not exactly what the settlement pays, nothing is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import BadInput, CannotSettle
from assay.publish.evm.chain import EvmChain
from assay.publish.evm.contracts import reason
from assay.publish.evm.libraries import checksum
from assay.publish.evm.signers import Ask, Signer
from assay.publish.evm.transactions import EvmAttempt, EvmCall
from assay.publish.outcome import Confirmed, Outcome, Refusal, Unknown
from assay.publish.publishers import Comparison, Line, PublishPlan, Target, Tell
from assay.publish.sender import SystemClock
from assay.publish.settled_epoch import SettledEpoch

if TYPE_CHECKING:
    from assay.enclave.proofs import ScoreProof


MAX_AGENTS = 200
"""Most agents that the oracle accepts for one round."""
NONE = bytes(32)


@dataclass(frozen=True)
class Scores:
    """The scores of a round, ordered by the agents' addresses, and what the settlement pays for them.

    rows: (account, BPS, digest of the attestation). places: (account, gross, fee) of every paid place, from the first.
    left_out: (participant, why).
    """

    receipt: bytes
    rows: tuple[tuple[str, int, bytes], ...]
    places: tuple[tuple[str, int, int], ...]
    fees: int
    refund: int
    lines: tuple[Line, ...]
    left_out: tuple[tuple[str, str], ...]

    def content(self) -> dict[str, Any]:
        """The scores as JSON."""
        return {
            "receipt": f"0x{self.receipt.hex()}",
            "scores": [
                {"agent": agent, "bps": bps, "attestation": f"0x{attestation.hex()}"} for agent, bps, attestation in self.rows
            ],
            "places": [{"agent": agent, "gross": str(gross), "fee": str(fee)} for agent, gross, fee in self.places],
            "fees": str(self.fees),
            "refund": str(self.refund),
        }


def scores_of(epoch: SettledEpoch, attested: Mapping[str, str]) -> Scores:
    """The scores of an epoch. attested: participant → the digest of the attestation of its score, if it has one.

    A participant without an address is left out, and so is one beyond the limit of the oracle. The round's own sums show whether
    that changes what is paid; then nothing is sent. Raises CannotSettle if the epoch is not settled into payouts by BPS, and
    BadInput if two participants have the same address, or a winner has none.
    """
    settlement = epoch.settlement
    rows = {row["participant"]: row for row in settlement["agreed"]}
    if settlement["refund"] is None or any(rows[key]["bps"] is None for key in settlement["ranking"]):
        what = f"epoch {epoch.epoch} is not settled into payouts by a rubric's BPS, which is what a bounty's contract divides by"
        raise CannotSettle(what, hint="publish it to a target of another kind")
    accounts: dict[str, str] = {}
    left_out: list[tuple[str, str]] = []
    for key in settlement["ranking"]:
        account = epoch.addresses.get(key)
        if account is None:
            left_out.append((key, "has no address in participants.csv"))
        elif len(accounts) == MAX_AGENTS:
            left_out.append((key, f"is beyond the {MAX_AGENTS} agents that the oracle accepts, and has no paid place"))
        else:
            accounts[key] = checksum(account)
    _check_accounts(accounts)
    left_out += [(key, str(row["status"])) for key, row in rows.items() if row["status"] != "agreed"]
    scores = sorted(
        ((account, int(rows[key]["bps"]), _digest(attested.get(key))) for key, account in accounts.items()),
        key=lambda row: row[0].lower(),
    )
    paid = [row for row in settlement["payouts"] if row["gross"] != "0"]
    return Scores(
        _digest(epoch.receipt),
        tuple(scores),
        tuple((_account(accounts, row["participant"]), int(row["gross"]), int(row["fee"])) for row in paid),
        int(settlement["fees"]),
        int(settlement["refund"]),
        tuple(Line(key, account, f"{rows[key]['bps']} BPS") for key, account in accounts.items()),
        tuple(left_out),
    )


def _check_accounts(accounts: dict[str, str]) -> None:
    seen: dict[str, str] = {}
    for key, account in accounts.items():
        if account in seen:
            what = f"{seen[account]} and {key} have the same address {account}"
            hint = "an account commits once; give each participant an address of its own, then settle"
            raise BadInput(what, file="participants.csv", field="address", hint=hint)
        seen[account] = key


def _account(accounts: dict[str, str], key: str) -> str:
    if key not in accounts:
        what = f"{key} is to be paid and has no address"
        raise BadInput(what, file="participants.csv", field="address", hint="fill it in, then settle the next epoch")
    return accounts[key]


def _digest(text: str | None) -> bytes:
    return NONE if text is None else bytes.fromhex(text.removeprefix("sha256:"))


SIGNATURE_SECONDS = 86_400
"""The seconds for which a scorer's signature is valid, but at most until the round's deadline."""
_SCORE = [{"name": "agent", "type": "address"}, {"name": "bps", "type": "uint16"}, {"name": "attestation", "type": "bytes32"}]
_SCORES = [
    {"name": "round", "type": "address"},
    {"name": "receipt", "type": "bytes32"},
    {"name": "scores", "type": "Score[]"},
    {"name": "nonce", "type": "uint64"},
    {"name": "deadline", "type": "uint256"},
]


def open_publisher(target: Target, ask: Ask | None = None, clock: SystemClock | None = None) -> EvmPublisher:
    """The publisher of a target. Raises BadInput if its settings are wrong."""
    return EvmPublisher(EvmChain(target, ask=ask, clock=clock))


class EvmPublisher:
    """The publisher of a target of kind `evm`."""

    def __init__(self, chain: EvmChain) -> None:
        self._chain = chain

    def plan(self, epoch: SettledEpoch) -> PublishPlan:
        """The scores of an epoch, as the oracle accepts them."""
        proofs = self._proofs(epoch)
        scores = scores_of(epoch, {key: proof.digest for key, proof in proofs.items()})
        where = {"chain_id": self._chain.settings.chain_id, "oracle": self._chain.oracle.address}
        content = where | {"round": self._chain.round.address} | scores.content()
        lists = [proof.listed for proof in proofs.values() if proof.listed is not None]
        content |= {"attestations": lists} if lists else {}
        return PublishPlan(self._chain.target.name, epoch.epoch, epoch.receipt, content, scores.lines, scores.left_out)

    def _proofs(self, epoch: SettledEpoch) -> dict[str, ScoreProof]:
        """Participant → the attestation of its score. Raises BadInput if an enclave must judge and an attestation is missing."""
        bounty = self._chain.bounty()
        if bounty is None or bounty.enclave is None:
            return {}
        from assay.enclave.proofs import find_proof

        agreed = {key: records for key, records in epoch.judgements.items() if key in epoch.settlement["ranking"]}
        proofs = {key: find_proof(bounty, records) for key, records in agreed.items()}
        return {key: proof for key, proof in proofs.items() if proof is not None}

    def compare(self, plan: PublishPlan) -> Comparison:
        """The plan compared with the oracle's scores and the round's sums."""
        return self._compare(plan, self._chain.scorer_address())

    def _compare(self, plan: PublishPlan, scorer: str | None) -> Comparison:
        chain, scores = self._chain, _scores(plan)
        wrong = chain.wrong(chain.oracle, chain.round) or chain.differs(chain.bounty())
        if wrong is not None:
            return Comparison(None, wrong)
        receipt, there = chain.oracle.ask("scoresOf", chain.round.address, chain.terms().scorer)
        on_chain = {checksum(agent): f"{bps} BPS" for agent, bps, _ in there}
        committed, notes = self._committed(scores)
        if receipt != NONE:
            return Comparison(on_chain, self._there(receipt, there, scores, committed), notes)
        return Comparison(on_chain, self._refused(scores, committed, scorer or chain.terms().scorer), notes)

    def send(self, plan: PublishPlan, tell: Tell) -> Outcome:
        """Submit the scores, once."""
        chain = self._chain
        for listed in plan.content.get("attestations", []):
            _put_list(chain.target.folder, listed)
        sender = chain.signer()
        scorer = chain.signer("scorer") if chain.settings.scorer is not None else sender

        def prepare() -> EvmCall | Outcome:
            outcome = self._compare(plan, scorer.address).outcome
            return self._call(plan, sender, scorer) if outcome is None else outcome

        sent = chain.sender(sender, tell).run(plan.subject, plan.digest, prepare)
        if not isinstance(sent, Confirmed) or sent.transaction is None:
            return sent
        again = self.confirm(plan)
        if isinstance(again, Confirmed):
            return sent
        chain.journal.note(plan.subject, plan.digest, again, EvmAttempt.read(chain.journal.read())[-1].number)
        return again

    def confirm(self, plan: PublishPlan) -> Outcome:
        """Read the oracle's scores and compare them with the plan's. Confirmed if they are deep enough in the chain."""
        outcome = self.compare(plan).outcome
        return Unknown("the oracle does not have these scores") if outcome is None else outcome

    def pulse(self) -> None:
        """Only checks that the node answers, because the chain has no tempo. Raises Unreachable."""
        self._chain.node.head()

    def _committed(self, scores: Scores) -> tuple[list[tuple[str, int, bytes]], list[str]]:
        """The scores of the agents that committed to the round, and a note about each other agent."""
        times = self._chain.round.ask("committedAtAll", [agent for agent, _, _ in scores.rows])
        known = [row for row, time in zip(scores.rows, times, strict=True) if time]
        unknown = [row for row, time in zip(scores.rows, times, strict=True) if not time]
        notes = [f"{agent} has not committed on the chain, and is left out" for agent, _, _ in unknown]
        return known, notes

    def _there(self, receipt: bytes, there: Any, scores: Scores, committed: list[tuple[str, int, bytes]]) -> Outcome:
        """The outcome if the oracle has scores: they are ours, deep enough or not yet, or they are others."""
        chain = self._chain
        if receipt != scores.receipt or [(checksum(agent), bps, proof) for agent, bps, proof in there] != committed:
            what = f"the round has other scores, of the receipt sha256:{receipt.hex()}"
            return Refusal(
                "already-submitted", what, "a round accepts scores once; settle it by those, or find out whose they are"
            )
        deep = chain.buried()
        if chain.oracle.ask("scoresOf", chain.round.address, chain.terms().scorer, at=deep)[0] != receipt:
            return Unknown(f"the oracle has them, less than {chain.settings.confirmations} blocks deep; run this command again")
        return Confirmed(deep)

    def _refused(self, scores: Scores, committed: list[tuple[str, int, bytes]], scorer: str) -> Outcome | None:
        """The reason why these scores of a scorer cannot be submitted now; None if they can."""
        reverted = self._chain.round.refusal("requireScores", scorer)
        if reverted is not None:
            return reason(reverted)
        if len(committed) > MAX_AGENTS:
            return Refusal("too-many", f"there are {len(committed)} agents, and the oracle accepts {MAX_AGENTS}")
        return self._differs(scores, committed)

    def _differs(self, scores: Scores, committed: list[tuple[str, int, bytes]]) -> Refusal | None:
        """The refusal if the round would pay anything but the settlement's payouts; None if it pays exactly those."""
        _, _, preview, fees, refund = self._chain.round.ask("preview", committed)
        places = [(checksum(agent), gross, fee) for agent, _, gross, fee in preview if gross]
        pairs = zip(_padded(scores.places, places), _padded(places, scores.places), strict=True)
        for number, (settled, paid) in enumerate(pairs, 1):
            if settled != paid:
                what = f"place {number} would be paid {_place(paid)}, but the settlement says {_place(settled)}"
                return Refusal("payouts-differ", what, _DIFFERENT)
        if (fees, refund) != (scores.fees, scores.refund):
            what = f"fees {fees} and refund {refund} would follow, but the settlement says {scores.fees} and {scores.refund}"
            return Refusal("payouts-differ", what, _DIFFERENT)
        return None

    def _call(self, plan: PublishPlan, sender: Signer, scorer: Signer) -> EvmCall:
        chain = self._chain
        scores = _scores(plan)
        rows, _ = self._committed(scores)
        at, oracle = chain.round.address, chain.oracle
        if scorer.address == sender.address:
            return EvmCall(oracle.address, oracle.data("submit", at, scores.receipt, rows))
        nonce = oracle.ask("nonceOf", scorer.address, at)
        until = min(chain.node.head().time + SIGNATURE_SECONDS, chain.terms().score_until)
        domain = {
            "name": "Assay ScoringOracle",
            "version": "2",
            "chainId": chain.settings.chain_id,
            "verifyingContract": oracle.address,
        }
        message = {
            "round": at,
            "receipt": scores.receipt,
            "scores": [{"agent": agent, "bps": bps, "attestation": proof} for agent, bps, proof in rows],
            "nonce": nonce,
            "deadline": until,
        }
        signature = scorer.typed(domain, {"Score": _SCORE, "Scores": _SCORES}, "Scores", message)
        values = (scorer.address, at, scores.receipt, rows, nonce, until, signature)
        return EvmCall(oracle.address, oracle.data("submitSigned", *values))


def _put_list(folder: Path, listed: dict[str, Any]) -> None:
    """Write a list of attestations beside the files that it names, so that anyone can fetch what the chain has the digest of."""
    from assay.enclave.proofs import write_attestations

    write_attestations(folder, listed)


_DIFFERENT = (
    "the round decides by who committed, when, and its own terms: make participants.csv agree with them and settle the next"
    " epoch, or create a round with the bounty's terms"
)


def _scores(plan: PublishPlan) -> Scores:
    """The scores in a plan."""
    content = plan.content
    return Scores(
        _bytes(content["receipt"]),
        tuple((row["agent"], row["bps"], _bytes(row["attestation"])) for row in content["scores"]),
        tuple((row["agent"], int(row["gross"]), int(row["fee"])) for row in content["places"]),
        int(content["fees"]),
        int(content["refund"]),
        plan.lines,
        plan.left_out,
    )


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text[2:])


def _padded(rows: Any, others: Any) -> list[Any]:
    return [*rows, *[None] * (len(others) - len(rows))]


def _place(row: tuple[str, int, int] | None) -> str:
    return "to nobody" if row is None else f"{row[1]} (fee {row[2]}) to {row[0]}"
