"""Scores to the oracle of an Ethereum chain: the publisher of kind `evm`. SPEC 2.3, 5.

The oracle is told each agent's BPS, and what attests where its judge ran. A round takes scores once. So what is sent is what the
settlement says, to the unit: before it is sent the round itself is asked what it would pay by these scores, and if that is
anything but the settlement's payouts, nothing is sent.
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
"""What the oracle takes of one round."""
NONE = bytes(32)


@dataclass(frozen=True)
class Scores:
    """The scores of a round, agents ascending by address, and what the settlement pays by them.

    places: (account, gross, fee) of every place that is paid, the first first. left_out: (participant, why).
    """

    receipt: bytes
    rows: tuple[tuple[str, int, bytes], ...]
    places: tuple[tuple[str, int, int], ...]
    fees: int
    refund: int
    lines: tuple[Line, ...]
    left_out: tuple[tuple[str, str], ...]

    def content(self) -> dict[str, Any]:
        """All of it as JSON."""
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
    """What is to be told of an epoch. attested: participant → the digest of what attests its score; who is not there has none.

    Who has no account is left out, and who is beyond what the oracle takes; the round's own sums show whether that changes what
    is paid, and then nothing is sent. Raises CannotSettle for an epoch that is settled into something else than payouts by BPS,
    and BadInput where two participants have one account, or a winner has none.
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
            left_out.append((key, f"is beyond the {MAX_AGENTS} that the oracle takes, and holds no place"))
        else:
            accounts[key] = checksum(account)
    _check_accounts(accounts)
    left_out += [(key, str(row["status"])) for key, row in rows.items() if row["status"] != "agreed"]
    said = sorted(
        ((account, int(rows[key]["bps"]), _digest(attested.get(key))) for key, account in accounts.items()),
        key=lambda row: row[0].lower(),
    )
    paid = [row for row in settlement["payouts"] if row["gross"] != "0"]
    return Scores(
        _digest(epoch.receipt),
        tuple(said),
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
            raise BadInput(
                what, file="participants.csv", field="address", hint="an account commits once; give each its own, then settle"
            )
        seen[account] = key


def _account(accounts: dict[str, str], key: str) -> str:
    if key not in accounts:
        what = f"{key} is to be paid and has no address"
        raise BadInput(what, file="participants.csv", field="address", hint="fill it in, then settle the next epoch")
    return accounts[key]


def _digest(text: str | None) -> bytes:
    return NONE if text is None else bytes.fromhex(text.removeprefix("sha256:"))


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


def open_publisher(target: Target, ask: Ask | None = None, clock: SystemClock | None = None) -> EvmPublisher:
    """The publisher of a target; raises BadInput if its settings are wrong."""
    return EvmPublisher(EvmChain(target, ask=ask, clock=clock))


class EvmPublisher:
    """The publisher of a target of kind `evm`."""

    def __init__(self, chain: EvmChain) -> None:
        self._chain = chain

    def plan(self, epoch: SettledEpoch) -> PublishPlan:
        """The scores of an epoch, as the oracle takes them."""
        proofs = self._proofs(epoch)
        found = scores_of(epoch, {key: one.digest for key, one in proofs.items()})
        where = {"chain_id": self._chain.settings.chain_id, "oracle": self._chain.oracle.address}
        content = where | {"round": self._chain.round.address} | found.content()
        lists = [one.listed for one in proofs.values() if one.listed is not None]
        content |= {"attestations": lists} if lists else {}
        return PublishPlan(self._chain.target.name, epoch.epoch, epoch.receipt, content, found.lines, found.left_out)

    def _proofs(self, epoch: SettledEpoch) -> dict[str, ScoreProof]:
        """Participant → what attests its score; raises BadInput where an enclave is to judge, and some attestation is missing."""
        bounty = self._chain.bounty()
        if bounty is None or bounty.enclave is None:
            return {}
        from assay.enclave.proofs import find_proof

        agreed = {key: one for key, one in epoch.judgements.items() if key in epoch.settlement["ranking"]}
        found = {key: find_proof(bounty, one) for key, one in agreed.items()}
        return {key: one for key, one in found.items() if one is not None}

    def compare(self, plan: PublishPlan) -> Comparison:
        """The plan against the oracle's scores and the round's sums."""
        return self._compare(plan, self._chain.scorer_address())

    def _compare(self, plan: PublishPlan, scorer: str | None) -> Comparison:
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

    def send(self, plan: PublishPlan, tell: Tell) -> Outcome:
        """Submit the scores, once."""
        chain = self._chain
        for listed in plan.content.get("attestations", []):
            _put_list(chain.target.folder, listed)
        sender = chain.signer()
        scorer = chain.signer("scorer") if chain.settings.scorer is not None else sender

        def prepare() -> EvmCall | Outcome:
            found = self._compare(plan, scorer.address).outcome
            return self._call(plan, sender, scorer) if found is None else found

        found = chain.sender(sender, tell).run(plan.subject, plan.digest, prepare)
        if not isinstance(found, Confirmed) or found.transaction is None:
            return found
        again = self.confirm(plan)
        if isinstance(again, Confirmed):
            return found
        chain.journal.note(plan.subject, plan.digest, again, EvmAttempt.read(chain.journal.read())[-1].number)
        return again

    def confirm(self, plan: PublishPlan) -> Outcome:
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
    """A list of attestations beside those that it names: what a chain is told the digest of, anybody can fetch."""
    from assay.enclave.proofs import write_attestations

    write_attestations(folder, listed)


_DIFFERENT = (
    "there it goes by who committed, when, and the contract's terms: bring participants.csv in line with them and settle the next"
    " epoch, or make a round with the bounty's terms"
)


def _scores(plan: PublishPlan) -> Scores:
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
