"""Scores to the oracle of an Ethereum chain: the publisher of kind `evm`.

A round takes scores once. So what is sent is what the settlement says, to the unit: before it is sent the round itself is asked
what it would pay by these scores, and if that is anything but the settlement's payouts, nothing is sent.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.publish.evm.attempts import attempts
from assay.publish.evm.chain import Chain
from assay.publish.evm.libraries import checksum
from assay.publish.evm.reasons import reason
from assay.publish.evm.scores import MAX_AGENTS, NONE, Scores, scores_of
from assay.publish.evm.sending import Call, Clock
from assay.publish.evm.signers import Ask, Signer
from assay.publish.outcome import Confirmed, Outcome, Refusal, Unknown
from assay.publish.publishers import Comparison, Plan, Tell
from assay.publish.settled import SettledEpoch
from assay.publish.targets import Target

if TYPE_CHECKING:
    from assay.enclave.proofs import Proof

__all__ = ["EvmPublisher", "open_publisher"]

SIGNATURE_SECONDS = 86_400
"""How long a scorer's signature is good, at most until the round's deadline."""
_SCORE = [{"name": "agent", "type": "address"}, {"name": "bps", "type": "uint16"}, {"name": "attestation", "type": "bytes32"}]
_SCORES = [
    {"name": "round", "type": "address"},
    {"name": "receipt", "type": "bytes32"},
    {"name": "scores", "type": "Score[]"},
    {"name": "nonce", "type": "uint64"},
    {"name": "deadline", "type": "uint256"},
]


def open_publisher(target: Target, ask: Ask | None = None, clock: Clock | None = None) -> EvmPublisher:
    """The publisher of a target; raises BadInput if its settings are wrong."""
    return EvmPublisher(Chain(target, ask=ask, clock=clock))


class EvmPublisher:
    """The publisher of a target of kind `evm`."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain

    def plan(self, epoch: SettledEpoch) -> Plan:
        """The scores of an epoch, as the oracle takes them."""
        proofs = self._proofs(epoch)
        found = scores_of(epoch, {key: one.digest for key, one in proofs.items()})
        where = {"chain_id": self._chain.settings.chain_id, "oracle": self._chain.oracle.address}
        content = where | {"round": self._chain.round.address} | found.content()
        lists = [one.listed for one in proofs.values() if one.listed is not None]
        content |= {"attestations": lists} if lists else {}
        return Plan(self._chain.target.name, epoch.epoch, epoch.receipt, content, found.lines, found.left_out)

    def _proofs(self, epoch: SettledEpoch) -> dict[str, Proof]:
        """Participant → what attests its score; raises BadInput where an enclave is to judge, and some attestation is missing."""
        bounty = self._chain.bounty()
        if bounty is None or bounty.enclave is None:
            return {}
        from assay.enclave.proofs import proof

        agreed = {key: one for key, one in epoch.judgements.items() if key in epoch.settlement["ranking"]}
        found = {key: proof(bounty, one) for key, one in agreed.items()}
        return {key: one for key, one in found.items() if one is not None}

    def compare(self, plan: Plan) -> Comparison:
        """The plan against the oracle's scores and the round's sums."""
        return self._compare(plan, self._chain.scorer_address())

    def _compare(self, plan: Plan, scorer: str | None) -> Comparison:
        chain, scores = self._chain, _scores(plan)
        wrong = chain.wrong(chain.oracle, chain.round) or chain.differs(chain.bounty())
        if wrong is not None:
            return Comparison(None, wrong)
        receipt, there = chain.oracle.ask("scoresOf", chain.round.address, chain.terms().scorer)
        held = {checksum(agent): f"{bps} BPS" for agent, bps, _ in there}
        committed, notes = self._committed(scores)
        if receipt != NONE:
            return Comparison(held, self._there(receipt, there, scores, committed), notes)
        return Comparison(held, self._refused(scores, committed, scorer or chain.terms().scorer), notes)

    def send(self, plan: Plan, tell: Tell) -> Outcome:
        """Submit the scores, once."""
        chain = self._chain
        for listed in plan.content.get("attestations", []):
            _put_list(chain.target.folder, listed)
        sender = chain.signer()
        scorer = chain.signer("scorer") if chain.settings.scorer is not None else sender

        def prepare() -> Call | Outcome:
            found = self._compare(plan, scorer.address).outcome
            return self._call(plan, sender, scorer) if found is None else found

        found = chain.sending(sender, tell).run(plan.subject, plan.digest, prepare)
        if not isinstance(found, Confirmed) or found.transaction is None:
            return found
        again = self.confirm(plan)
        if isinstance(again, Confirmed):
            return found
        chain.journal.note(plan.subject, plan.digest, again, attempts(chain.journal.read())[-1].number)
        return again

    def confirm(self, plan: Plan) -> Outcome:
        """Whether the oracle has these scores, deep enough."""
        found = self.compare(plan).outcome
        return Unknown("the oracle does not have these scores") if found is None else found

    def pulse(self) -> None:
        """The chain has no tempo: only whether its node answers; raises Unreachable."""
        self._chain.node.head()

    def _committed(self, scores: Scores) -> tuple[list[tuple[str, int, bytes]], list[str]]:
        """The scores of those whom the round knows, and what is to be said of the others."""
        times = self._chain.round.ask("committedAtAll", [agent for agent, _, _ in scores.rows])
        known = [row for row, time in zip(scores.rows, times, strict=True) if time]
        strangers = [row for row, time in zip(scores.rows, times, strict=True) if not time]
        notes = [f"{agent} has not committed on the chain, and is left out" for agent, _, _ in strangers]
        return known, notes

    def _there(self, receipt: bytes, there: Any, scores: Scores, committed: list[tuple[str, int, bytes]]) -> Outcome:
        """What the scores that the oracle has come to: ours, deep enough or not yet, or others."""
        chain = self._chain
        if receipt != scores.receipt or [(checksum(agent), bps, proof) for agent, bps, proof in there] != committed:
            what = f"the round has other scores, of the receipt sha256:{receipt.hex()}"
            return Refusal("already-submitted", what, "a round takes scores once; settle it by those, or find out whose they are")
        deep = chain.buried()
        if chain.oracle.ask("scoresOf", chain.round.address, chain.terms().scorer, at=deep)[0] != receipt:
            return Unknown(f"the oracle has them, less than {chain.settings.confirmations} blocks deep; do this again")
        return Confirmed(deep)

    def _refused(self, scores: Scores, committed: list[tuple[str, int, bytes]], scorer: str) -> Outcome | None:
        """Why these scores of a scorer's cannot be submitted now; None if they can."""
        said = self._chain.round.refusal("requireScores", scorer)
        if said is not None:
            return reason(said)
        if len(committed) > MAX_AGENTS:
            return Refusal("too-many", f"there are {len(committed)} agents, and the oracle takes {MAX_AGENTS}")
        return self._differs(scores, committed)

    def _differs(self, scores: Scores, committed: list[tuple[str, int, bytes]]) -> Refusal | None:
        """Whether the round would pay anything else than the settlement says."""
        _, _, places, fees, refund = self._chain.round.ask("preview", committed)
        found = [(checksum(agent), gross, fee) for agent, _, gross, fee in places if gross]
        for number, (said, paid) in enumerate(zip(_padded(scores.places, found), _padded(found, scores.places), strict=True), 1):
            if said != paid:
                what = f"place {number} would be paid {_place(paid)}, and the settlement says {_place(said)}"
                return Refusal("payouts-differ", what, _DIFFERENT)
        if (fees, refund) != (scores.fees, scores.refund):
            what = f"fees {fees} and refund {refund} would follow, and the settlement says {scores.fees} and {scores.refund}"
            return Refusal("payouts-differ", what, _DIFFERENT)
        return None

    def _call(self, plan: Plan, sender: Signer, scorer: Signer) -> Call:
        chain = self._chain
        scores = _scores(plan)
        rows, _ = self._committed(scores)
        at, oracle = chain.round.address, chain.oracle
        if scorer.address == sender.address:
            return Call(oracle.address, oracle.data("submit", at, scores.receipt, rows))
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
        return Call(oracle.address, oracle.data("submitSigned", *values))


def _put_list(folder: Path, listed: dict[str, Any]) -> None:
    """A list of attestations beside those that it names: what a chain is told the digest of, anybody can fetch."""
    from assay.enclave.proofs import put

    put(folder, listed)


_DIFFERENT = (
    "there it goes by who committed, when, and the contract's terms: bring participants.csv in line with them and settle the next"
    " epoch, or make a round with the bounty's terms"
)


def _scores(plan: Plan) -> Scores:
    """The scores that a plan was made of."""
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
    return "nobody" if row is None else f"{row[1]} (fee {row[2]}) to {row[0]}"
