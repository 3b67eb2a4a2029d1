"""A target of kind `evm`, opened: its node, its contracts, its keys, and the terms of its round. SPEC 5.

Everything that is checked of them before anything is sent is here: the chain's id, the contracts' addresses, and in what the
terms of a round differ from bounty.toml and publish.toml.
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
"""What a round takes."""
LATEST = 253_402_300_799
"""The last second of the year 9999, after which nothing here tells the time."""
Difference = tuple[str, str, str]
"""A field, what stands in the contract, what the files say."""


@dataclass(frozen=True)
class RoundTerms:
    """What a round is made of, addresses as EIP-55 spells them, times in seconds since 1970. In the contract's order."""

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
        """As the constructor takes them."""
        digest = bytes.fromhex(self.bounty.removeprefix("sha256:"))
        return (digest, *list(vars(self).values())[1:-2], list(self.tiers), list(self.split))

    def code(self, codec: Any) -> bytes:
        """What makes the round: the code that ships, and these terms."""
        found = artifact(ROUND)
        return found.bytecode + encoded(found.abi, "", [self.values()], codec)

    def address(self, codec: Any) -> str:
        """Where a round with these terms is, and nothing else can be."""
        return address_of(self.code(codec))

    def content(self) -> dict[str, Any]:
        """As JSON, with the oracle, which is no choice."""
        found = vars(self) | {"deposit": str(self.deposit), "split": list(self.split), "oracle": oracle_address()}
        return found | {"tiers": [list(one) for one in self.tiers]}

    def told(self) -> list[tuple[str, str]]:
        """Each field for people."""
        return [(name, _shown(name, value)) for name, value in vars(self).items()]


def differences(found: RoundTerms, bounty: Bounty | None, settings: EvmSettings) -> list[Difference]:
    """In what a round's terms are others than bounty.toml and publish.toml say.

    A sponsor or a scorer that publish.toml does not name is not compared; without a bounty.toml nothing but what it names is.
    """
    mine = vars(found)
    if bounty is None:
        said = {"sponsor": settings.sponsor, "token": settings.token, "scorer": settings.only_scorer}
        wanted: dict[str, Any] = {"fee_recipient": settings.fee_recipient} | said
        wanted = {name: value for name, value in wanted.items() if value is not None}
    else:
        try:
            wanted = vars(of_bounty(bounty, settings, sponsor=found.sponsor, scorer=found.scorer))
        except BadInput as error:
            return [("bounty.toml", "", str(error))]
    return [
        (name, _shown(name, mine[name]), _shown(name, wanted[name]))
        for name in mine
        if mine[name] != wanted.get(name, mine[name])
    ]


def of_bounty(bounty: Bounty, settings: EvmSettings, *, sponsor: str, scorer: str) -> RoundTerms:
    """The terms of a bounty's folder. sponsor, scorer: where publish.toml names none.

    Raises BadInput for what a round cannot be made of, and where a deadline is missing.
    """
    payout = bounty.scheme.payout
    if payout is None:
        raise BadInput("has no [payout]", file=bounty.file, hint="a round holds a deposit and pays it out")
    file = bounty.file
    commits = _seconds(bounty.terms.commitments_until, bounty, "bounty.commitments_until")
    scores = _seconds(payout.scoring_deadline, bounty, "payout.scoring_deadline")
    if payout.deposit == 0:
        raise BadInput("is 0", file=file, field="payout.deposit", hint="a round holds a deposit")
    for field, found, most in (("split", payout.split, MAX_PLACES), ("tiers", payout.tiers, MAX_TIERS)):
        if len(found) > most:
            raise BadInput(f"has {len(found)} entries", file=file, field=f"payout.{field}", hint=f"the contract takes {most}")
    if payout.fee_bps and settings.fee_recipient is None:
        hint = "write fee_recipient in publish.toml, or fee_bps = 0"
        raise BadInput("there is a fee, and nobody who gets it", file=file, field="payout.fee_bps", hint=hint)
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
        tuple((one.reach_bps, one.release_bps) for one in payout.tiers),
        tuple(payout.split),
    )


def of_round(round_: Contract) -> RoundTerms:
    """The terms of a round that is there; raises Unreachable for times that no calendar has."""
    ask = round_.ask
    commits, scores = ask("commitUntil"), ask("scoreUntil")
    if max(commits, scores) > LATEST:
        what = f"{round_.address} answers what cannot be: it takes scores until the second {scores}"
        raise Unreachable(what, hint="is it the right address, and does the node tell what the chain has?")
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
        hint = "agents commit until the one, scores come until the other; a contract cannot do without"
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
"""Subjects of the attempts that make contracts."""


class EvmChain:
    """A target with what it takes to read from it and to send to it. `ask`: for a keystore's passphrase. `clock`: for tests."""

    def __init__(self, target: Target, *, ask: Ask | None = None, clock: SystemClock | None = None) -> None:
        self.target, self.settings = target, settings_of(target)
        self._ask, self._clock = ask or target.ask, clock or SystemClock()
        self._proven: dict[str, RoundTerms] = {}

    @cached_property
    def node(self) -> EvmNode:
        """The node; raises BadInput if its address is none."""
        try:
            return EvmNode(rpc_url(self.target, self.settings), seconds=self.settings.rpc_seconds)
        except BadInput as error:
            raise error.at(file=self.target.file, field=f"targets.{self.target.name}.rpc") from None

    @cached_property
    def journal(self) -> Journal:
        """What was sent to the target."""
        return self.target.journal()

    @cached_property
    def oracle(self) -> Contract:
        """The scoring oracle of this version."""
        return Contract(self.node, ORACLE, oracle_address())

    @cached_property
    def round(self) -> Contract:
        """The bounty's contract: that of publish.toml, else the one that was made from here; raises BadInput if there is none."""
        made = [
            one
            for one in EvmAttempt.read(self.journal.entries)
            if (one.subject, one.state, one.to) == (MADE_ROUND, "confirmed", DEPLOYER)
        ]
        if self.settings.round is None and not made:
            hint = "`assay bounty create` makes the contract, or write its address there"
            raise self.target.refuse("is missing", "round", hint)
        return Contract(self.node, ROUND, self.settings.round or address_of(made[-1].data[32:]))

    def bounty(self) -> Bounty | None:
        """The bounty beside publish.toml; None if there is no bounty.toml. Raises BadInput if it is wrong."""
        folder = self.target.folder
        return read_bounty(folder) if (folder / "bounty.toml").exists() else None

    def terms(self) -> RoundTerms:
        """The terms of the round, once `wrong` has proven them."""
        return self._proven[self.round.address]

    def differences(self, bounty: Bounty | None) -> list[Difference]:
        """In what the round, once it is proven, is another than bounty.toml and publish.toml say: field, there, here."""
        return differences(self.terms(), bounty, self.settings)

    def differs(self, bounty: Bounty | None) -> Refusal | None:
        """The same as a reason to send nothing there."""
        found = self.differences(bounty)
        if not found:
            return None
        field, there, here = found[0]
        more = f", and {len(found) - 1} more fields" if len(found) > 1 else ""
        what = f"the round {self.round.address} has {field} {there}, and the files here say {here}{more}"
        return Refusal("wrong-terms", what, "`assay bounty show` tells every difference; is it the right round?")

    def signer(self, role: str = "key", name: str | None = None) -> Signer:
        """The key of a role (`key`, `scorer`) in the target, or the one of this name; raises BadInput."""
        named = name or (self.settings.key if role == "key" else self.settings.scorer)
        if named is None:
            raise self.target.refuse("is missing", role, "name one of the keys in publish.toml")
        return signer_of(self.target, named, self._ask)

    def scorer_address(self) -> str | None:
        """Who makes the scores, as far as publish.toml says so without opening a key."""
        named = self.settings.scorer or self.settings.key
        return None if named is None else self.target.key(named, EvmKeyPlace).account

    def sender(self, signer: Signer, tell: Callable[[str], None]) -> Sender[EvmAttempt, EvmCall]:
        """What sends for an account."""
        transactions = Transactions(self.node, signer, self.settings, self._clock)
        return Sender(transactions, self.journal, tell, wait_seconds=self.settings.wait_seconds, clock=self._clock)

    def wrong(self, *contracts: Contract) -> Refusal | None:
        """Why nothing may be sent there: another chain, or no contract of ours at an address. None if all is right.

        Of a round it proves the terms as well, by its address: what is there was made by the code that ships with these terms,
        so its storage is what that code made of it, and it takes scores from the oracle that ships alone.
        """
        found = self.node.chain_id()
        if found != self.settings.chain_id:
            what = f"the node is of chain {found}, and publish.toml says {self.settings.chain_id}"
            return Refusal("wrong-chain", what, "correct rpc or chain_id")
        if self.settings.oracle not in (None, oracle_address()):
            what = (
                f"publish.toml names the oracle {self.settings.oracle}, and this version's is {oracle_address()} on every chain"
            )
            return Refusal("wrong-oracle", what, "leave oracle out; a round takes scores from no other")
        for one in contracts:
            if not one.is_ours():
                what = f"what is at {one.address} is not the {one.name} that ships with this version"
                return Refusal("wrong-contract", what, "is it the right address, on the right chain?")
            if one.name == ROUND and one.address not in self._proven:
                refused = self.no_deployer() or self._unproven(one)
                if refused is not None:
                    return refused
        return None

    def no_deployer(self) -> Refusal | None:
        """Whether the chain lacks the program by which addresses prove what is there."""
        if self.node.code(DEPLOYER) == DEPLOYER_CODE:
            return None
        what = f"the chain has no deterministic deployer at {DEPLOYER}, which makes the contracts"
        return Refusal(
            "no-deployer", what, "its authors say how anybody puts it there: github.com/Arachnid/deterministic-deployment-proxy"
        )

    def _unproven(self, round_: Contract) -> Refusal | None:
        terms = of_round(round_)
        at = terms.address(self.node.codec)
        if at != round_.address:
            what = (
                f"the round at {round_.address} has the code that ships, and was not made by it with the terms that it tells:"
                f" with those it would be at {at}"
            )
            return Refusal("wrong-contract", what, "do not rely on it: whoever made it chose what stands in its storage")
        if not self.oracle.is_ours():
            return Refusal(
                "wrong-contract", f"the oracle at {self.oracle.address} is not the one that ships", "is it the right chain?"
            )
        self._proven[round_.address] = terms
        return None

    def buried(self) -> int:
        """The latest block that is deep enough to be relied upon."""
        return max(0, self.node.head().number - self.settings.confirmations + 1)
