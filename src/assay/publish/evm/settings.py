"""The fields of a target of kind `evm`, and of the keys in publish.toml; and what a unit of gas may cost within them.

Gas is paid by EIP-1559, never above the bounds of the target. All fees are in wei per gas: `most` is the most that is paid, base
fee included; `tip` what the block's maker gets of it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from assay.exact import LARGEST
from assay.publish.evm.libraries import checksum
from assay.publish.publishers import Target
from assay.scheme.fields import Section

RISE = 8
"""A transaction replaces another if it pays an eighth more: nodes ask for a tenth."""


@dataclass(frozen=True, slots=True)
class Fees:
    """What one transaction offers."""

    most: int
    tip: int


@dataclass(frozen=True, slots=True)
class FeeLimits:
    """What it may offer at most."""

    most: int
    tip: int


def quote(base: int, tip: int, bounds: FeeLimits) -> Fees | None:
    """What to offer: room for the base fee to double. None if the bound does not even cover what it costs now."""
    tip = min(tip, bounds.tip, bounds.most)
    if base + tip > bounds.most:
        return None
    return Fees(min(2 * base + tip, bounds.most), tip)


def bumped(old: Fees, base: int, tip: int, bounds: FeeLimits) -> Fees | None:
    """What to offer instead of `old`, so that nodes take it in its place; None if the bounds leave no room for that."""
    wanted = Fees(max(2 * base + tip, _more(old.most)), max(tip, _more(old.tip)))
    found = Fees(min(wanted.most, bounds.most), min(wanted.tip, bounds.tip, bounds.most))
    return found if found.most >= _more(old.most) and found.tip >= _more(old.tip) else None


def _more(value: int) -> int:
    return value + -(-value // RISE)


NOBODY = "0x" + "00" * 20
GWEI = 10**9


def _address(value: object) -> object:
    """An address in one case, or as EIP-55 spells it; a wrong capital letter is a slip somewhere in it."""
    if not isinstance(value, str) or len(value) != 42 or not value.startswith("0x") or not _hex(value[2:]):
        raise PydanticCustomError("assay", "is not an EVM address; write 0x and 40 hex digits")
    digits = value[2:]
    if digits not in (digits.lower(), digits.upper()) and checksum(value) != value:
        raise PydanticCustomError("assay", "has a slip in it: its capital letters do not fit (EIP-55); copy it again")
    if value == NOBODY:
        raise PydanticCustomError("assay", "is nobody's address; leave the field out")
    return checksum(value)


def _hex(text: str) -> bool:
    return all(char in "0123456789abcdefABCDEF" for char in text)


def _gwei(value: object) -> int:
    try:
        found = Decimal(value) * GWEI if isinstance(value, str) else None
    except InvalidOperation:
        found = None
    if found is None or not found.is_finite() or found != int(found) or not 0 <= found < 10**24:
        raise PydanticCustomError("assay", 'is not an amount of gwei; write it as in "1.5"')
    return int(found)


Address = Annotated[str, BeforeValidator(_address)]
"""An address, kept as EIP-55 spells it."""
Gwei = Annotated[int, BeforeValidator(_gwei)]
"""Gwei as text, kept as wei."""
_Text = Annotated[str, Field(min_length=1, max_length=4096)]


class EvmKeyPlace(Section):
    """Where a key is: an encrypted keystore file, a variable of the environment, or a signer that holds it (clef, Frame, …)."""

    keystore: _Text | None = None
    env: Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    signer: _Text | None = None
    account: Address | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if sum(one is not None for one in (self.keystore, self.env, self.signer)) != 1:
            raise PydanticCustomError("assay", "is to have one of keystore, env and signer; keep one of them")
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
    """Who sends, and pays for gas."""
    scorer: _Text | None = None
    """Who signs the scores, where that is another than who sends them."""
    confirmations: Annotated[int, Field(ge=1, le=10_000)] = 12
    max_fee_gwei: Gwei = 100 * GWEI
    max_tip_gwei: Gwei = 3 * GWEI
    wait_seconds: Annotated[int, Field(ge=0, le=86_400)] = 900
    """How long a command waits for the chain before it says that it does not know yet."""
    bump_seconds: Annotated[int, Field(ge=1, le=86_400)] = 90
    """After so long a transaction that no block has taken is replaced by one that pays more."""
    rpc_seconds: Annotated[int, Field(ge=1, le=600)] = 20
    sponsor: Address | None = None
    """Of a bounty: who gets what is refunded; otherwise the account that makes it."""
    token: Address | None = None
    only_scorer: Address | None = None
    """Of a bounty: whose scores it takes, and nobody else's."""
    used_nonce: Annotated[int, Field(ge=0, le=2**64 - 2)] | None = None
    """A nonce of the sender's that its owner knows to be used up by another transaction."""
    fee_recipient: Address | None = None

    @model_validator(mode="after")
    def _one_address(self) -> Self:
        if (self.rpc is None) == (self.rpc_env is None):
            raise PydanticCustomError("assay", "is to have one of rpc and rpc_env; keep one of them")
        return self

    @property
    def bounds(self) -> FeeLimits:
        """What gas may cost."""
        return FeeLimits(self.max_fee_gwei, self.max_tip_gwei)


def settings_of(target: Target) -> EvmSettings:
    """The target's settings; raises BadInput with the line."""
    return target.settings(EvmSettings)


def rpc_url(target: Target, settings: EvmSettings) -> str:
    """The node's address; raises BadInput if the variable that should hold it is empty."""
    if settings.rpc is not None:
        return settings.rpc
    found = os.environ.get(str(settings.rpc_env), "")
    if not found:
        raise target.refuse(f"the variable {settings.rpc_env} is empty", "rpc_env", "put the node's address into it")
    return found
