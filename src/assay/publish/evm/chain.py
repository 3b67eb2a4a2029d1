"""Opens a target of kind `evm`: its node, contracts, keys, and the terms of its round. SPEC 5.

All checks before sending are here: the chain's id, the contracts' addresses, and whether the terms of a round differ from
bounty.toml and publish.toml.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from assay.errors import BadInput, Unreachable
from assay.publish.evm.contracts import DEPLOYER, DEPLOYER_CODE, ORACLE, ROUND, address_of, artifact, oracle_address
from assay.publish.evm.libraries import checksum
from assay.publish.evm.node import Contract, EvmNode, encoded
from assay.publish.evm.settings import NOBODY, EvmKeyPlace, EvmSettings, rpc_url, settings_of
from assay.publish.evm.signers import Ask, Signer, signer_of
from assay.publish.evm.transactions import EvmAttempt, EvmCall, Transactions
from assay.publish.journal import Journal
from assay.publish.outcome import Refusal
from assay.publish.publishers import Target
from assay.publish.sender import Sender, SystemClock
from assay.scheme.bounty import Bounty, read_bounty
from assay.scheme.fields import instant_text

MAX_PLACES, MAX_TIERS = 32, 16
"""Most places and tiers of a round."""
LATEST = 253_402_300_799
"""The last second of the year 9999; Python's calendar ends there."""
Difference = tuple[str, str, str]
"""A field, its value in the contract, its value in the files."""


@dataclass(frozen=True)
class RoundTerms:
    """The terms of a round, in the contract's order. Addresses are in the spelling of EIP-55, times in seconds since 1970."""

    bounty: str
    sponsor: str
    token: str
    deposit: int
    scorer: str
    fee_recipient: str
    fee_bps: int
    threshold_bps: int
    commit_until: int
    score_until: int
    tiers: tuple[tuple[int, int], ...]
    split: tuple[int, ...]

    def values(self) -> tuple[Any, ...]:
        """The arguments of the constructor."""
        digest = bytes.fromhex(self.bounty.removeprefix("sha256:"))
        return (digest, *list(vars(self).values())[1:-2], list(self.tiers), list(self.split))

    def code(self, codec: Any) -> bytes:
        """The creation code of the round: the shipped bytecode with these terms."""
        contract = artifact(ROUND)
        return contract.bytecode + encoded(contract.abi, "", [self.values()], codec)

    def address(self, codec: Any) -> str:
        """The address of the round with these terms, where nothing else can be."""
        return address_of(self.code(codec))

    def content(self) -> dict[str, Any]:
        """The terms as JSON, with the oracle, which is the same for every round."""
        content = vars(self) | {"deposit": str(self.deposit), "split": list(self.split), "oracle": oracle_address()}
        return content | {"tiers": [list(tier) for tier in self.tiers]}

    def rows(self) -> list[tuple[str, str]]:
        """Each field with its value, for people."""
        return [(name, _shown(name, value)) for name, value in vars(self).items()]


def differences(terms: RoundTerms, bounty: Bounty | None, settings: EvmSettings) -> list[Difference]:
    """The fields in which a round's terms differ from bounty.toml and publish.toml.

    A sponsor or scorer is compared only if publish.toml names it. Without a bounty.toml, only the fields that publish.toml names
    are compared.
    """
    there = vars(terms)
    if bounty is None:
        named = {"sponsor": settings.sponsor, "token": settings.token, "scorer": settings.only_scorer}
        here: dict[str, Any] = {"fee_recipient": settings.fee_recipient} | named
        here = {name: value for name, value in here.items() if value is not None}
    else:
        try:
            here = vars(of_bounty(bounty, settings, sponsor=terms.sponsor, scorer=terms.scorer))
        except BadInput as error:
            return [("bounty.toml", "", str(error))]
    return [
        (name, _shown(name, there[name]), _shown(name, here[name]))
        for name in there
        if there[name] != here.get(name, there[name])
    ]


def of_bounty(bounty: Bounty, settings: EvmSettings, *, sponsor: str, scorer: str) -> RoundTerms:
    """The terms by a bounty's folder. sponsor, scorer: used if publish.toml does not name them.

    Raises BadInput if a deadline is missing, or if no round can have these terms.
    """
    payout = bounty.scheme.payout
    if payout is None:
        raise BadInput("has no [payout]", file=bounty.file, hint="a round holds a deposit and pays it out")
    file = bounty.file
    commits = _seconds(bounty.terms.commitments_until, bounty, "bounty.commitments_until")
    scores = _seconds(payout.scoring_deadline, bounty, "payout.scoring_deadline")
    if payout.deposit == 0:
        raise BadInput("is 0", file=file, field="payout.deposit", hint="a round holds a deposit")
    for field, entries, most in (("split", payout.split, MAX_PLACES), ("tiers", payout.tiers, MAX_TIERS)):
        if len(entries) > most:
            raise BadInput(f"has {len(entries)} entries", file=file, field=f"payout.{field}", hint=f"the contract accepts {most}")
    if payout.fee_bps and settings.fee_recipient is None:
        hint = "write fee_recipient in publish.toml, or fee_bps = 0"
        raise BadInput("there is a fee, but no account receives it", file=file, field="payout.fee_bps", hint=hint)
    return RoundTerms(
        bounty.digest,
        settings.sponsor or sponsor,
        settings.token or NOBODY,
        payout.deposit,
        settings.only_scorer or scorer,
        settings.fee_recipient or NOBODY,
        payout.fee_bps,
        payout.threshold_bps,
        commits,
        scores,
        tuple((tier.reach_bps, tier.release_bps) for tier in payout.tiers),
        tuple(payout.split),
    )


def of_round(round_: Contract) -> RoundTerms:
    """The terms of a round on the chain. Raises Unreachable for times after the year 9999."""
    ask = round_.ask
    commits, scores = ask("commitUntil"), ask("scoreUntil")
    if max(commits, scores) > LATEST:
        what = f"{round_.address} sent an impossible answer: it accepts scores until the second {scores}"
        raise Unreachable(what, hint="is it the right address, and does the node show the real chain?")
    return RoundTerms(
        f"sha256:{ask('bounty').hex()}",
        checksum(ask("sponsor")),
        checksum(ask("token")),
        ask("deposit"),
        checksum(ask("scorer")),
        checksum(ask("feeRecipient")),
        ask("feeBps"),
        ask("thresholdBps"),
        commits,
        scores,
        tuple((reach, release) for reach, release in ask("tiers")),
        tuple(ask("split")),
    )


def _seconds(time: datetime | None, bounty: Bounty, field: str) -> int:
    if time is None:
        hint = "a contract needs both deadlines: until when agents commit, and until when scores come"
        raise BadInput("is missing", file=bounty.file, field=field, hint=hint)
    if time.microsecond:
        raise BadInput(f"{instant_text(time)} is finer than a second", file=bounty.file, field=field, hint="chains count seconds")
    return int(time.timestamp())


def _shown(name: str, value: Any) -> str:
    if name.endswith("_until"):
        return instant_text(datetime.fromtimestamp(value, UTC))
    if value == NOBODY:
        return {"token": "the chain's own coin"}.get(name, "nobody")
    if name == "tiers":
        return ", ".join(f"{reach} → {release}" for reach, release in value)
    return ", ".join(map(str, value)) if name == "split" else str(value)


MADE_ORACLE, MADE_ROUND = "oracle", "bounty create"
"""Subjects of the attempts that create contracts."""


class EvmChain:
    """An opened target: reads from it and sends to it. ask: asks for a keystore's passphrase. clock: for tests."""

    def __init__(self, target: Target, *, ask: Ask | None = None, clock: SystemClock | None = None) -> None:
        self.target, self.settings = target, settings_of(target)
        self._ask, self._clock = ask or target.ask, clock or SystemClock()
        self._proven: dict[str, RoundTerms] = {}

    @cached_property
    def node(self) -> EvmNode:
        """The node. Raises BadInput if its address is not valid."""
        try:
            return EvmNode(rpc_url(self.target, self.settings), seconds=self.settings.rpc_seconds)
        except BadInput as error:
            raise error.at(file=self.target.file, field=f"targets.{self.target.name}.rpc") from None

    @cached_property
    def journal(self) -> Journal:
        """The target's journal."""
        return self.target.journal()

    @cached_property
    def oracle(self) -> Contract:
        """The scoring oracle of this version."""
        return Contract(self.node, ORACLE, oracle_address())

    @cached_property
    def round(self) -> Contract:
        """The bounty's contract: the one in publish.toml, otherwise the last one created by this journal.

        Raises BadInput if there is neither.
        """
        created = [
            attempt
            for attempt in EvmAttempt.read(self.journal.entries)
            if (attempt.subject, attempt.state, attempt.to) == (MADE_ROUND, "confirmed", DEPLOYER)
        ]
        if self.settings.round is None and not created:
            hint = "create the contract with `assay bounty create`, or write its address there"
            raise self.target.refuse("is missing", "round", hint)
        return Contract(self.node, ROUND, self.settings.round or address_of(created[-1].data[32:]))

    def bounty(self) -> Bounty | None:
        """The bounty beside publish.toml; None if there is no bounty.toml. Raises BadInput if the file is wrong."""
        folder = self.target.folder
        return read_bounty(folder) if (folder / "bounty.toml").exists() else None

    def terms(self) -> RoundTerms:
        """The terms of the round; only after `wrong` has proven them."""
        return self._proven[self.round.address]

    def differences(self, bounty: Bounty | None) -> list[Difference]:
        """The fields in which the round, after it is proven, differs from bounty.toml and publish.toml."""
        return differences(self.terms(), bounty, self.settings)

    def differs(self, bounty: Bounty | None) -> Refusal | None:
        """The refusal to send anything to a round with differences; None if there are none."""
        fields = self.differences(bounty)
        if not fields:
            return None
        field, there, here = fields[0]
        more = f", and {len(fields) - 1} more fields" if len(fields) > 1 else ""
        what = f"the round {self.round.address} has {field} {there}, but the files here say {here}{more}"
        return Refusal("wrong-terms", what, "`assay bounty show` shows every difference; is it the right round?")

    def signer(self, role: str = "key", name: str | None = None) -> Signer:
        """The key with this name, otherwise the target's key of a role (`key`, `scorer`). Raises BadInput."""
        named = name or (self.settings.key if role == "key" else self.settings.scorer)
        if named is None:
            raise self.target.refuse("is missing", role, "name one of the keys in publish.toml")
        return signer_of(self.target, named, self._ask)

    def scorer_address(self) -> str | None:
        """The scorer's address, if publish.toml gives it without opening a key."""
        named = self.settings.scorer or self.settings.key
        return None if named is None else self.target.key(named, EvmKeyPlace).account

    def sender(self, signer: Signer, tell: Callable[[str], None]) -> Sender[EvmAttempt, EvmCall]:
        """The sender for an account."""
        transactions = Transactions(self.node, signer, self.settings, self._clock)
        return Sender(transactions, self.journal, tell, wait_seconds=self.settings.wait_seconds, clock=self._clock)

    def wrong(self, *contracts: Contract) -> Refusal | None:
        """The reason why nothing may be sent there: another chain, or a contract that is not ours. None if all is right.

        The terms of a round are proven by its address: only the shipped code with these terms can be there. So its storage was
        written by that code alone, and it accepts scores only from the shipped oracle.
        """
        chain_id = self.node.chain_id()
        if chain_id != self.settings.chain_id:
            what = f"the node is of chain {chain_id}, but publish.toml says {self.settings.chain_id}"
            return Refusal("wrong-chain", what, "correct rpc or chain_id")
        if self.settings.oracle not in (None, oracle_address()):
            what = (
                f"publish.toml names the oracle {self.settings.oracle}, but this version's is {oracle_address()} on every chain"
            )
            return Refusal("wrong-oracle", what, "leave oracle out; a round accepts scores from no other")
        for contract in contracts:
            if not contract.is_ours():
                what = f"the code at {contract.address} is not the {contract.name} that ships with this version"
                return Refusal("wrong-contract", what, "is it the right address, on the right chain?")
            if contract.name == ROUND and contract.address not in self._proven:
                refused = self.no_deployer() or self._unproven(contract)
                if refused is not None:
                    return refused
        return None

    def no_deployer(self) -> Refusal | None:
        """The refusal if the chain lacks the deployer, without which an address proves nothing. None if the chain has it."""
        if self.node.code(DEPLOYER) == DEPLOYER_CODE:
            return None
        what = f"the chain has no deterministic deployer at {DEPLOYER}, which creates the contracts"
        hint = "anyone can deploy it: github.com/Arachnid/deterministic-deployment-proxy"
        return Refusal("no-deployer", what, hint)

    def _unproven(self, round_: Contract) -> Refusal | None:
        terms = of_round(round_)
        at = terms.address(self.node.codec)
        if at != round_.address:
            what = (
                f"the round at {round_.address} has the shipped code, but was not created by it with the terms that it gives:"
                f" with those it would be at {at}"
            )
            return Refusal("wrong-contract", what, "do not rely on it: its creator could write anything into its storage")
        if not self.oracle.is_ours():
            what = f"the oracle at {self.oracle.address} is not the one that ships"
            return Refusal("wrong-contract", what, "is it the right chain?")
        self._proven[round_.address] = terms
        return None

    def buried(self) -> int:
        """The latest block that is deep enough to rely on."""
        return max(0, self.node.head().number - self.settings.confirmations + 1)
