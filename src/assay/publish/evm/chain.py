"""A target of kind `evm`, opened: its node, its contracts, its keys. What is checked of them before anything is sent is here."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from assay.errors import BadInput
from assay.publish.evm.artifacts import DEPLOYER, DEPLOYER_CODE, ORACLE, ROUND, address_of, oracle_address
from assay.publish.evm.attempts import attempts
from assay.publish.evm.node import Contract, Node
from assay.publish.evm.sending import Clock, Sending
from assay.publish.evm.settings import KeyPlace, rpc_url, settings_of
from assay.publish.evm.signers import Ask, Signer, signer_of
from assay.publish.evm.terms import Difference, Terms, differences, of_round
from assay.publish.journal import Journal
from assay.publish.outcome import Refusal
from assay.publish.targets import Target
from assay.scheme.bounty import Bounty, read_bounty

__all__ = ["MADE_ORACLE", "MADE_ROUND", "Chain"]

MADE_ORACLE, MADE_ROUND = "oracle", "bounty create"
"""Subjects of the attempts that make contracts."""


class Chain:
    """A target with what it takes to read from it and to send to it. `ask`: for a keystore's passphrase. `clock`: for tests."""

    def __init__(self, target: Target, *, ask: Ask | None = None, clock: Clock | None = None) -> None:
        self.target, self.settings = target, settings_of(target)
        self._ask, self._clock = ask or target.ask, clock
        self._proven: dict[str, Terms] = {}

    @cached_property
    def node(self) -> Node:
        """The node; raises BadInput if its address is none."""
        try:
            return Node(rpc_url(self.target, self.settings), seconds=self.settings.rpc_seconds)
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
            for one in attempts(self.journal.entries)
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

    def terms(self) -> Terms:
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
        return None if named is None else self.target.key(named, KeyPlace).account

    def sending(self, signer: Signer, tell: Callable[[str], None]) -> Sending:
        """What sends for an account."""
        return Sending(self.node, signer, self.journal, self.settings, tell, self._clock)

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
