"""The fields of a target of kind `evm` and of its keys in publish.toml, and the fees of transactions within their limits.

Gas is paid by EIP-1559, never above the target's limits. All fees are in wei per gas. `most` is the highest price, base fee
included; `tip` is the part of it for the block's proposer.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from assay.errors import BadInput
from assay.exact import LARGEST
from assay.publish.evm.libraries import checksum
from assay.publish.publishers import PUBLISH_FILE, Target
from assay.scheme.fields import Section
from assay.scheme.reading import read_toml

RISE = 8
"""A replacement pays one eighth more; nodes require one tenth more."""


@dataclass(frozen=True, slots=True)
class Fees:
    """The fees that one transaction offers."""

    most: int
    tip: int


@dataclass(frozen=True, slots=True)
class FeeLimits:
    """The highest fees that a transaction may offer."""

    most: int
    tip: int


def quote(base: int, tip: int, limits: FeeLimits) -> Fees | None:
    """The fees to offer, with room for the base fee to double. None if the limit does not even cover the present base fee."""
    tip = min(tip, limits.tip, limits.most)
    if base + tip > limits.most:
        return None
    return Fees(min(2 * base + tip, limits.most), tip)


def bumped(old: Fees, base: int, tip: int, limits: FeeLimits) -> Fees | None:
    """The fees with which nodes accept a replacement for `old`; None if the limits do not allow them."""
    wanted = Fees(max(2 * base + tip, _more(old.most)), max(tip, _more(old.tip)))
    fees = Fees(min(wanted.most, limits.most), min(wanted.tip, limits.tip, limits.most))
    return fees if fees.most >= _more(old.most) and fees.tip >= _more(old.tip) else None


def _more(value: int) -> int:
    return value + -(-value // RISE)


NOBODY = "0x" + "00" * 20
GWEI = 10**9


def _address(value: object) -> object:
    """Check an address, which must be in one case or in the spelling of EIP-55; a wrong capital letter shows a typo."""
    if not isinstance(value, str) or len(value) != 42 or not value.startswith("0x") or not _hex(value[2:]):
        raise PydanticCustomError("assay", "is not an EVM address; write 0x and 40 hex digits")
    digits = value[2:]
    if digits not in (digits.lower(), digits.upper()) and checksum(value) != value:
        raise PydanticCustomError("assay", "has a typo: its capital letters do not fit (EIP-55); copy it again")
    if value == NOBODY:
        raise PydanticCustomError("assay", "is the zero address, which nobody owns; leave the field out")
    return checksum(value)


def _hex(text: str) -> bool:
    return all(char in "0123456789abcdefABCDEF" for char in text)


def _gwei(value: object) -> int:
    try:
        wei = Decimal(value) * GWEI if isinstance(value, str) else None
    except InvalidOperation:
        wei = None
    if wei is None or not wei.is_finite() or wei != int(wei) or not 0 <= wei < 10**24:
        raise PydanticCustomError("assay", 'is not an amount of gwei; write it as in "1.5"')
    return int(wei)


Address = Annotated[str, BeforeValidator(_address)]
"""An address, stored in the spelling of EIP-55."""
Gwei = Annotated[int, BeforeValidator(_gwei)]
"""Gwei as text, stored as wei."""
_Text = Annotated[str, Field(min_length=1, max_length=4096)]


class EvmKeyPlace(Section):
    """The place of a key: an encrypted keystore file, an environment variable, or a signer (clef, Frame, …)."""

    keystore: _Text | None = None
    env: Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    signer: _Text | None = None
    account: Address | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if sum(place is not None for place in (self.keystore, self.env, self.signer)) != 1:
            raise PydanticCustomError("assay", "must have exactly one of keystore, env and signer; keep one of them")
        if self.signer is not None and self.account is None:
            raise PydanticCustomError("assay", "a signer has several accounts; name one: account")
        return self


class EvmSettings(Section):
    """`[targets.NAME]` with kind = "evm"."""

    rpc: _Text | None = None
    rpc_env: Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    chain_id: Annotated[int, Field(ge=1, le=LARGEST)]
    oracle: Address | None = None
    round: Address | None = None
    key: _Text | None = None
    """The key that sends, and pays for gas."""
    scorer: _Text | None = None
    """The key that signs the scores, if another key sends them."""
    confirmations: Annotated[int, Field(ge=1, le=10_000)] = 12
    max_fee_gwei: Gwei = 100 * GWEI
    max_tip_gwei: Gwei = 3 * GWEI
    wait_seconds: Annotated[int, Field(ge=0, le=86_400)] = 900
    """Seconds that a command waits for the chain before its outcome is `Unknown`."""
    bump_seconds: Annotated[int, Field(ge=1, le=86_400)] = 90
    """Seconds after which a transaction that no block includes is replaced by one that pays more."""
    rpc_seconds: Annotated[int, Field(ge=1, le=600)] = 20
    sponsor: Address | None = None
    """Of a bounty: the account that gets refunds; otherwise the account that creates the contract."""
    token: Address | None = None
    only_scorer: Address | None = None
    """Of a bounty: the only account whose scores the contract accepts."""
    used_nonce: Annotated[int, Field(ge=0, le=2**64 - 2)] | None = None
    """A nonce of the sender that was used by another transaction, as the sender's owner knows."""
    fee_recipient: Address | None = None

    @model_validator(mode="after")
    def _one_address(self) -> Self:
        if (self.rpc is None) == (self.rpc_env is None):
            raise PydanticCustomError("assay", "must have exactly one of rpc and rpc_env; keep one of them")
        return self

    @property
    def fee_limits(self) -> FeeLimits:
        """The highest fees of the target."""
        return FeeLimits(self.max_fee_gwei, self.max_tip_gwei)


def deposit_token(folder: Path) -> str:
    """The token of the bounty's deposit by the folder's publish.toml, shortened for people; empty for the chain's own coin.

    If targets have different tokens, all are named. A file that cannot be read has none, because boards do not depend on it.
    """
    try:
        content, _ = read_toml(folder / PUBLISH_FILE)
    except BadInput:
        return ""
    targets = content.get("targets")
    tables = [table for table in targets.values() if isinstance(table, dict)] if isinstance(targets, dict) else []
    names = [_short(table.get("token")) for table in tables if table.get("kind") == "evm"]
    return " or ".join(dict.fromkeys(filter(None, names)))


def _short(address: object) -> str:
    """An address as boards show it; empty if it is not an address."""
    valid = isinstance(address, str) and len(address) == 42 and address.startswith("0x") and _hex(address[2:])
    return f"{str(address)[:6]}…{str(address)[-4:]}" if valid else ""


def settings_of(target: Target) -> EvmSettings:
    """The target's settings. Raises BadInput with the line."""
    return target.settings(EvmSettings)


def rpc_url(target: Target, settings: EvmSettings) -> str:
    """The node's address. Raises BadInput if the variable that should contain it is empty."""
    if settings.rpc is not None:
        return settings.rpc
    url = os.environ.get(str(settings.rpc_env), "")
    if not url:
        raise target.refuse(f"the variable {settings.rpc_env} is empty", "rpc_env", "put the node's address into it")
    return url
