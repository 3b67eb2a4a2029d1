"""Whose weights they are: a hotkey of a wallet of the usual layout, of a key file, or of the environment.

WALLETS/NAME/hotkeys/HOTKEY         the hotkey, encrypted or not
WALLETS/NAME/hotkeys/HOTKEYpub.txt  its public part, where the wallet has written one

A wallet's coldkey holds the money; nothing here opens its file, or names it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from assay.errors import BadInput
from assay.folder import strict
from assay.folder.text import load
from assay.ledger import keys
from assay.ledger.keys import SR25519, PrivateKey, PublicKey
from assay.publish.bittensor.libraries import core
from assay.publish.targets import Target
from assay.scheme.fields import Section

__all__ = ["KeyPlace", "address", "hotkey_of", "public_of", "respelled"]

PUBLIC_BYTES = 65_536
_Name = Annotated[str, Field(pattern="^[A-Za-z0-9_][A-Za-z0-9 ._-]{0,99}$")]
_Path = Annotated[str, Field(min_length=1, max_length=4096)]


class KeyPlace(Section):
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
    place = target.key(name, KeyPlace)
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
    place = target.key(name, KeyPlace)
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
