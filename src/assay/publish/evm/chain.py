"""A target of kind `evm`, opened: its node, its contracts, its keys. What is checked of them before anything is sent is here."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from assay.errors import BadInput
from assay.publish.evm.artifacts import ORACLE, ROUND
from assay.publish.evm.attempts import attempts
from assay.publish.evm.node import Contract, Node
from assay.publish.evm.sending import Clock, Sending
from assay.publish.evm.settings import KeyPlace, rpc_url, settings_of
from assay.publish.evm.signers import Ask, Signer, signer_of
from assay.publish.journal import Journal
from assay.publish.outcome import Refusal
from assay.publish.targets import Target

__all__ = ["MADE_ORACLE", "MADE_ROUND", "Chain"]

MADE_ORACLE, MADE_ROUND = "oracle", "bounty create"
"""Subjects of the attempts that make contracts."""


class Chain:
    """A target with what it takes to read from it and to send to it. `ask`: for a keystore's passphrase. `clock`: for tests."""

    def __init__(self, target: Target, *, ask: Ask | None = None, clock: Clock | None = None) -> None:
        self.target, self.settings = target, settings_of(target)
        self._ask, self._clock = ask or target.ask, clock

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
        """The scoring oracle: that of publish.toml, else the one that was made from here; raises BadInput if there is none."""
        return Contract(self.node, ORACLE, self._address("oracle", self.settings.oracle, MADE_ORACLE, "`assay bounty oracle`"))

    @cached_property
    def round(self) -> Contract:
        """The bounty's contract, likewise."""
        return Contract(self.node, ROUND, self._address("round", self.settings.round, MADE_ROUND, "`assay bounty create`"))

    def _address(self, field: str, said: str | None, subject: str, command: str) -> str:
        made = [one for one in attempts(self.journal.entries) if one.subject == subject and one.state == "confirmed"]
        if said is None and not made:
            raise self.target.refuse("is missing", field, f"{command} makes the contract, or write its address there")
        return said or str(made[-1].ending["contract"])

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
        """Why nothing may be sent there: another chain, or no contract of ours at an address. None if all is right."""
        found = self.node.chain_id()
        if found != self.settings.chain_id:
            what = f"the node is of chain {found}, and publish.toml says {self.settings.chain_id}"
            return Refusal("wrong-chain", what, "correct rpc or chain_id")
        for one in contracts:
            if not one.is_ours():
                what = f"what is at {one.address} is not the {one.name} that ships with this version"
                return Refusal("wrong-contract", what, "is it the right address, on the right chain?")
        return None

    def buried(self) -> int:
        """The latest block that is deep enough to be relied upon."""
        return max(0, self.node.head().number - self.settings.confirmations + 1)
