"""Reads the fields of a target of kind `bittensor`, and its hotkey from a wallet, a key file or the environment.

A wallet has the usual layout:

WALLETS/NAME/hotkeys/HOTKEY         the hotkey, encrypted or not
WALLETS/NAME/hotkeys/HOTKEYpub.txt  its public part, if the wallet has written one

The coldkey of a wallet owns the money. Nothing here opens its file or names it.
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
    """The place of a hotkey: a wallet, a file, or an environment variable (mnemonic, seed, or the text of a key file)."""

    wallet: _Name | None = None
    hotkey: _Name = "default"
    wallets: _Path = "~/.bittensor/wallets"
    keyfile: _Path | None = None
    env: Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    account: Annotated[str, Field(pattern="^[1-9A-HJ-NP-Za-km-z]{46,49}$")] | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if sum(place is not None for place in (self.wallet, self.keyfile, self.env)) != 1:
            raise PydanticCustomError("assay", "must have exactly one of wallet, keyfile and env; keep one of them")
        return self

    def path(self, folder: Path) -> Path | None:
        """The hotkey's file; None if the hotkey is in the environment."""
        if self.env is not None:
            return None
        if self.keyfile is not None:
            return folder / Path(self.keyfile).expanduser()
        return folder / Path(self.wallets).expanduser() / str(self.wallet) / "hotkeys" / self.hotkey


def address(key: PublicKey) -> str:
    """The SS58 address of a hotkey."""
    return str(core().ss58_encode(key.raw))


def respelled(key: str) -> str:
    """The SS58 address of a hotkey with the chain's prefix, whatever its own prefix is; any other key is returned unchanged."""
    try:
        public = keys.public(key)
    except BadInput:
        return key
    return address(public) if public.kind == SR25519 else key


def hotkey_of(target: Target, name: str) -> PrivateKey:
    """The hotkey for a key of publish.toml. Its passphrase comes from `$ASSAY_PASSPHRASE`, otherwise the target asks for it.

    Raises BadInput. No message contains any part of a secret key.
    """
    place = target.key(name, HotkeyPlace)
    path = place.path(target.folder)
    hotkey = _of_environment(target, str(place.env)) if path is None else keys.load(f"{path.parent}/{path.name}", target.ask)
    if hotkey.public.kind != SR25519:
        raise BadInput("is not a hotkey, because it is not an sr25519 key", file=path or target.file, field=f"keys.{name}")
    written = public_of(target, name)
    if written not in (None, address(hotkey.public)):
        what = f"the key belongs to {address(hotkey.public)}, but {written} is written beside it"
        raise BadInput(what, file=target.file, field=f"keys.{name}", hint="correct account, or the wallet's public file")
    return hotkey


def public_of(target: Target, name: str) -> str | None:
    """The address of a hotkey; None if it is not known without opening the key. Raises BadInput if a file is missing or wrong."""
    place = target.key(name, HotkeyPlace)
    if place.account is not None:
        return address(keys.public(place.account))
    path = place.path(target.folder)
    if path is None:
        return address(_of_environment(target, str(place.env)).public)
    files = [file for file in (path.with_name(f"{path.name}pub.txt"), path) if file.exists()]
    if not files:
        raise BadInput("no such file", file=path, hint=f"correct keys.{name} in publish.toml, or put the hotkey there")
    for file in files:
        known = _public(load(file, PUBLIC_BYTES, hint="the wallet writes it"))
        if known is not None:
            return known
    return None


def _public(data: bytes) -> str | None:
    """The address in a key file; None if the file is encrypted or has no address."""
    try:
        content = strict.parse(data.decode())
        return address(keys.public(str(content["ss58Address"])))
    except (BadInput, ValueError, LookupError, TypeError):
        return None


def _of_environment(target: Target, variable: str) -> PrivateKey:
    """The hotkey in a variable: the words of a mnemonic, a seed of 64 hex digits, or the text of a key file."""
    text = os.environ.get(variable, "").strip()
    try:
        if re.fullmatch("[a-z]+( +[a-z]+){11,23}", text):
            pair = core().Keypair.from_mnemonic(" ".join(text.split()))
            return PrivateKey(PublicKey(SR25519, bytes(pair.public_key)), pair)
        return keys.read(text.encode(), kind=SR25519)
    except (ValueError, BadInput):
        what = f"the variable {variable} " + ("is empty" if not text else "holds no hotkey")
        hint = "put a mnemonic, 64 hex digits, or the text of a key file into it"
        raise BadInput(what, file=target.file, hint=hint) from None


CHAINS = {
    "finney": "0x2f0555cc76fc2840a25a6ea3b9637146806f1f44b090c175ffde2a7e5ab36c03",
    "test": "0x8f9cf856bf558a14440e75569c9e58594757048d7b3a84b5d25f6bd978263105",
}
"""The names of known chains, with the hash of block 0: Bittensor's main chain and its test chain."""


def genesis_of(value: object) -> object:
    """The hash of a chain's block 0, from that hash or from the chain's name."""
    genesis = CHAINS.get(value.lower(), value.lower()) if isinstance(value, str) else ""
    if len(genesis) != 66 or not genesis.startswith("0x") or set(genesis[2:]) - set("0123456789abcdef"):
        known = ", ".join(CHAINS)
        raise PydanticCustomError(
            "assay", "is not a chain; write the hash of its block 0 (0x and 64 hex digits), or: {known}", {"known": known}
        )
    return genesis


ChainId = Annotated[str, BeforeValidator(genesis_of)]
"""A chain, stored as the hash of its block 0."""
_Text = Annotated[str, Field(min_length=1, max_length=4096)]


class BittensorSettings(Section):
    """`[targets.NAME]` with kind = "bittensor"."""

    url: _Text | None = None
    url_env: Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    chain: ChainId
    """The chain; a node of another chain is refused."""
    netuid: Annotated[int, Field(ge=0, lt=NETUIDS)]
    mechanism: Annotated[int, Field(ge=0, lt=MECHANISMS)] = 0
    rpc_seconds: Annotated[int, Field(ge=1, le=600)] = 20
    key: _Text | None = None
    """The hotkey whose weights are set."""
    version_key: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    """The version of the subnet's rules for these weights, as its owner counts."""
    force_burn: bool = False
    """Send the burned share to the burn UID even if that uid is not the owner's; then it pays whoever has the uid."""
    confirm_url: _Text | None = None
    confirm_url_env: Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    """A second node, which must agree before anything counts as confirmed."""
    wait_seconds: Annotated[int, Field(ge=0, le=86_400)] = 600
    """Seconds that a command waits for the chain before its outcome is `Unknown`."""

    @model_validator(mode="after")
    def _one_address(self) -> Self:
        if (self.url is None) == (self.url_env is None):
            raise PydanticCustomError("assay", "must have exactly one of url and url_env; keep one of them")
        if self.confirm_url is not None and self.confirm_url_env is not None:
            raise PydanticCustomError("assay", "has both confirm_url and confirm_url_env; keep one of them")
        return self


def settings_of(target: Target) -> BittensorSettings:
    """The target's settings. Raises BadInput with the line, or for a target of another kind."""
    if target.kind != "bittensor":
        raise target.refuse(f"is of kind {target.kind[:60]!r}, not 'bittensor'", hint="name a target of a subnet")
    return target.settings(BittensorSettings)


def node_of(target: Target, settings: BittensorSettings) -> BittensorNode:
    """The target's node, whose chain is not checked yet. Raises BadInput if its address is not valid."""
    return _node(target, settings, "url", settings.url, settings.url_env)


def witness_of(target: Target, settings: BittensorSettings) -> BittensorNode | None:
    """The second node; None if the target has none. Raises BadInput if its address is not valid."""
    if settings.confirm_url is None and settings.confirm_url_env is None:
        return None
    return _node(target, settings, "confirm_url", settings.confirm_url, settings.confirm_url_env)


def _node(target: Target, settings: BittensorSettings, field: str, address: str | None, variable: str | None) -> BittensorNode:
    url = address or os.environ.get(str(variable), "")
    field = field if address is not None else f"{field}_env"
    if not url:
        raise target.refuse(f"the variable {variable} is empty", field, "put the node's address into it")
    try:
        return BittensorNode(url, seconds=settings.rpc_seconds)
    except BadInput as error:
        raise target.refuse(error.what, field, error.hint) from None


def checked(node: BittensorNode, chain: str) -> BittensorNode:
    """The node, if it is of the chain with this block 0. Raises BadInput if it is not, and Unreachable."""
    genesis = node.genesis()
    if genesis != chain:
        names = {genesis: name for name, genesis in CHAINS.items()}
        what = f"{node.host} is a node of the chain {names.get(genesis, genesis)}, not of {names.get(chain, chain)}"
        raise BadInput(what, field="chain", hint="correct the address, or the chain")
    return node


def subnet_of(target: Target) -> tuple[BittensorNode, int, int]:
    """The source of a registry: a target's node, which is checked, netuid and mechanism. Raises BadInput, Unreachable."""
    settings = settings_of(target)
    if settings.netuid == 0:
        raise target.refuse("is the root network, which has no participants", "netuid", "name a subnet")
    return checked(node_of(target, settings), settings.chain), settings.netuid, settings.mechanism


def open_to_anybody(url: str) -> bool:
    """True if others on the network can read and change the traffic: the address is neither encrypted nor of this machine."""
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
