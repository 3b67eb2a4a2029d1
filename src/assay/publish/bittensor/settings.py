"""The fields of a target of kind `bittensor`, and its hotkey: of a wallet, of a key file, or of the environment.

A wallet has the usual layout:

WALLETS/NAME/hotkeys/HOTKEY         the hotkey, encrypted or not
WALLETS/NAME/hotkeys/HOTKEYpub.txt  its public part, where the wallet has written one

A wallet's coldkey holds the money; nothing here opens its file, or names it.
"""

from __future__ import annotations

import ipaddress
import os
import re
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from assay.errors import BadInput
from assay.folder import strict
from assay.folder.files import load
from assay.ledger import keys
from assay.ledger.keys import SR25519, PrivateKey, PublicKey
from assay.publish.bittensor.node import BittensorNode
from assay.publish.bittensor.runtime import core
from assay.publish.bittensor.subnet import MECHANISMS, NETUIDS
from assay.publish.publishers import Target
from assay.scheme.fields import Section

PUBLIC_BYTES = 65_536
_Name = Annotated[str, Field(pattern="^[A-Za-z0-9_][A-Za-z0-9 ._-]{0,99}$")]
_Path = Annotated[str, Field(min_length=1, max_length=4096)]


class HotkeyPlace(Section):
    """Where a hotkey is: in a wallet, in a file, or in a variable of the environment (mnemonic, seed, or a key file's text)."""

    wallet: _Name | None = None
    hotkey: _Name = "default"
    wallets: _Path = "~/.bittensor/wallets"
    keyfile: _Path | None = None
    env: Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    account: Annotated[str, Field(pattern="^[1-9A-HJ-NP-Za-km-z]{46,49}$")] | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if sum(one is not None for one in (self.wallet, self.keyfile, self.env)) != 1:
            raise PydanticCustomError("assay", "is to have one of wallet, keyfile and env; keep one of them")
        return self

    def path(self, folder: Path) -> Path | None:
        """The hotkey's file; None where it is in the environment."""
        if self.env is not None:
            return None
        if self.keyfile is not None:
            return folder / Path(self.keyfile).expanduser()
        return folder / Path(self.wallets).expanduser() / str(self.wallet) / "hotkeys" / self.hotkey


def address(key: PublicKey) -> str:
    """A hotkey as the chain's people spell it: SS58."""
    return str(core().ss58_encode(key.raw))


def respelled(key: str) -> str:
    """A key as the chain's nodes spell it, whatever prefix its SS58 has; as it is, if it is no hotkey's."""
    try:
        found = keys.public(key)
    except BadInput:
        return key
    return address(found) if found.kind == SR25519 else key


def hotkey_of(target: Target, name: str) -> PrivateKey:
    """The hotkey of a name in publish.toml; an encrypted one takes `$ASSAY_PASSPHRASE`, else what the target asks for.

    Raises BadInput, of which nothing says anything of a key.
    """
    place = target.key(name, HotkeyPlace)
    path = place.path(target.folder)
    found = _of_environment(target, str(place.env)) if path is None else keys.load(f"{path.parent}/{path.name}", target.ask)
    if found.public.kind != SR25519:
        raise BadInput("is no hotkey: it is of another kind than sr25519", file=path or target.file, field=f"keys.{name}")
    said = public_of(target, name)
    if said not in (None, address(found.public)):
        what = f"the key is that of {address(found.public)}, and {said} stands beside it"
        raise BadInput(what, file=target.file, field=f"keys.{name}", hint="correct account, or the wallet's public file")
    return found


def public_of(target: Target, name: str) -> str | None:
    """The address of a hotkey, as far as it can be known without opening it; raises BadInput for what is wrong."""
    place = target.key(name, HotkeyPlace)
    if place.account is not None:
        return address(keys.public(place.account))
    path = place.path(target.folder)
    if path is None:
        return address(_of_environment(target, str(place.env)).public)
    there = [file for file in (path.with_name(f"{path.name}pub.txt"), path) if file.exists()]
    if not there:
        raise BadInput("no such file", file=path, hint=f"correct keys.{name} in publish.toml, or put the hotkey there")
    for file in there:
        found = _public(load(file, PUBLIC_BYTES, hint="the wallet makes it"))
        if found is not None:
            return found
    return None


def _public(data: bytes) -> str | None:
    """The address in a key file; None if it is encrypted, or none."""
    try:
        said = strict.parse(data.decode())
        return address(keys.public(str(said["ss58Address"])))
    except (BadInput, ValueError, LookupError, TypeError):
        return None


def _of_environment(target: Target, variable: str) -> PrivateKey:
    """The hotkey in a variable: the words of a mnemonic, a seed of 64 hex digits, or the text of a key file."""
    said = os.environ.get(variable, "").strip()
    try:
        if re.fullmatch("[a-z]+( +[a-z]+){11,23}", said):
            pair = core().Keypair.from_mnemonic(" ".join(said.split()))
            return PrivateKey(PublicKey(SR25519, bytes(pair.public_key)), pair)
        return keys.read(said.encode(), kind=SR25519)
    except (ValueError, BadInput):
        what = f"the variable {variable} " + ("is empty" if not said else "holds no hotkey")
        hint = "put a mnemonic, 64 hex digits, or the text of a key file into it"
        raise BadInput(what, file=target.file, hint=hint) from None


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


ChainId = Annotated[str, BeforeValidator(genesis_of)]
"""A chain, kept as the hash of its block 0."""
_Text = Annotated[str, Field(min_length=1, max_length=4096)]


class BittensorSettings(Section):
    """`[targets.NAME]` with kind = "bittensor"."""

    url: _Text | None = None
    url_env: Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    chain: ChainId
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


def settings_of(target: Target) -> BittensorSettings:
    """The target's settings; raises BadInput with the line, and for a target of another kind."""
    if target.kind != "bittensor":
        raise target.refuse(f"is of kind {target.kind[:60]!r}, not 'bittensor'", hint="name a target of a subnet")
    return target.settings(BittensorSettings)


def node_of(target: Target, settings: BittensorSettings) -> BittensorNode:
    """The target's node, its chain not looked at yet; raises BadInput if its address is none."""
    return _node(target, settings, "url", settings.url, settings.url_env)


def witness_of(target: Target, settings: BittensorSettings) -> BittensorNode | None:
    """The second node, if the target has one; raises BadInput if its address is none."""
    if settings.confirm_url is None and settings.confirm_url_env is None:
        return None
    return _node(target, settings, "confirm_url", settings.confirm_url, settings.confirm_url_env)


def _node(target: Target, settings: BittensorSettings, field: str, said: str | None, variable: str | None) -> BittensorNode:
    url = said or os.environ.get(str(variable), "")
    field = field if said is not None else f"{field}_env"
    if not url:
        raise target.refuse(f"the variable {variable} is empty", field, "put the node's address into it")
    try:
        return BittensorNode(url, seconds=settings.rpc_seconds)
    except BadInput as error:
        raise target.refuse(error.what, field, error.hint) from None


def checked(node: BittensorNode, chain: str) -> BittensorNode:
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
