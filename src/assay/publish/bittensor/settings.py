"""The fields of a target of kind `bittensor`."""

from __future__ import annotations

import ipaddress
import os
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from assay.errors import BadInput
from assay.publish.bittensor.node import Node
from assay.publish.bittensor.read import MECHANISMS, NETUIDS
from assay.publish.targets import Target
from assay.scheme.fields import Section

__all__ = ["CHAINS", "Chain", "Settings", "checked", "genesis_of", "node_of", "open_to_anybody", "settings_of", "witness_of"]

CHAINS = {
    "finney": "0x2f0555cc76fc2840a25a6ea3b9637146806f1f44b090c175ffde2a7e5ab36c03",
    "test": "0x8f9cf856bf558a14440e75569c9e58594757048d7b3a84b5d25f6bd978263105",
}
"""The hashes of block 0 that have a name: Bittensor's main chain, and its test chain."""


def genesis_of(value: object) -> object:
    """A chain by the hash of its block 0, or by its name."""
    found = CHAINS.get(value.lower(), value.lower()) if isinstance(value, str) else ""
    if len(found) != 66 or not found.startswith("0x") or set(found[2:]) - set("0123456789abcdef"):
        known = ", ".join(CHAINS)
        raise PydanticCustomError(
            "assay", "is no chain; write the hash of its block 0 (0x and 64 hex digits), or: {known}", {"known": known}
        )
    return found


Chain = Annotated[str, BeforeValidator(genesis_of)]
"""A chain, kept as the hash of its block 0."""
_Text = Annotated[str, Field(min_length=1, max_length=4096)]


class Settings(Section):
    """`[targets.NAME]` with kind = "bittensor"."""

    url: _Text | None = None
    url_env: Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    chain: Chain
    """Which chain it has to be: a node of another one is not listened to."""
    netuid: Annotated[int, Field(ge=0, lt=NETUIDS)]
    mechanism: Annotated[int, Field(ge=0, lt=MECHANISMS)] = 0
    rpc_seconds: Annotated[int, Field(ge=1, le=600)] = 20
    key: _Text | None = None
    """Whose weights they are: a hotkey."""
    version_key: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    """Which version of the subnet's rules the weights are made by, as its owner counts."""
    force_burn: bool = False
    """Let what burns go to the burn UID though that is not the owner's: then it pays whoever has it."""
    confirm_url: _Text | None = None
    confirm_url_env: Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    """A second node, which has to say the same before anything counts as confirmed."""
    wait_seconds: Annotated[int, Field(ge=0, le=86_400)] = 600
    """How long a command waits for the chain before it says that it does not know yet."""

    @model_validator(mode="after")
    def _one_address(self) -> Self:
        if (self.url is None) == (self.url_env is None):
            raise PydanticCustomError("assay", "is to have one of url and url_env; keep one of them")
        if self.confirm_url is not None and self.confirm_url_env is not None:
            raise PydanticCustomError("assay", "is to have one of confirm_url and confirm_url_env; keep one of them")
        return self


def settings_of(target: Target) -> Settings:
    """The target's settings; raises BadInput with the line, and for a target of another kind."""
    if target.kind != "bittensor":
        raise target.refuse(f"is of kind {target.kind[:60]!r}, not 'bittensor'", hint="name a target of a subnet")
    return target.settings(Settings)


def node_of(target: Target, settings: Settings) -> Node:
    """The target's node, its chain not looked at yet; raises BadInput if its address is none."""
    return _node(target, settings, "url", settings.url, settings.url_env)


def witness_of(target: Target, settings: Settings) -> Node | None:
    """The second node, if the target has one; raises BadInput if its address is none."""
    if settings.confirm_url is None and settings.confirm_url_env is None:
        return None
    return _node(target, settings, "confirm_url", settings.confirm_url, settings.confirm_url_env)


def _node(target: Target, settings: Settings, field: str, said: str | None, variable: str | None) -> Node:
    url = said or os.environ.get(str(variable), "")
    field = field if said is not None else f"{field}_env"
    if not url:
        raise target.refuse(f"the variable {variable} is empty", field, "put the node's address into it")
    try:
        return Node(url, seconds=settings.rpc_seconds)
    except BadInput as error:
        raise target.refuse(error.what, field, error.hint) from None


def checked(node: Node, chain: str) -> Node:
    """The node, if it is of the chain with this block 0; raises BadInput, and Unreachable."""
    found = node.genesis()
    if found != chain:
        names = {genesis: name for name, genesis in CHAINS.items()}
        what = f"{node.host} is a node of the chain {names.get(found, found)}, and not of {names.get(chain, chain)}"
        raise BadInput(what, field="chain", hint="correct the address, or the chain")
    return node


def open_to_anybody(url: str) -> bool:
    """Whether somebody on the way can read and change what is said: an address that is not encrypted, nor of this machine."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    host = parts.hostname or ""
    try:
        here = ipaddress.ip_address(host).is_loopback
    except ValueError:
        here = host == "localhost"
    return parts.scheme == "ws" and not here
