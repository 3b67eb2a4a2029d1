"""What of the libraries for Ethereum is used here, imported in one place: it is an extra, and takes a second to load.

One of them, py_ecc, raises Python's bound on recursion a hundredfold when it is imported. With that, JSON that is nested too
deeply ends the process instead of being refused; so it is put back.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from assay.errors import BadInput

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount
    from web3 import Web3


def web3() -> type[Web3]:
    """web3's class; raises BadInput if the extra is not installed."""
    limit = sys.getrecursionlimit()
    try:
        from web3 import Web3
    except ImportError:
        raise BadInput("Ethereum needs the package web3", hint="install Assay with it: pip install 'assay[evm]'") from None
    finally:
        sys.setrecursionlimit(limit)
    return Web3


def account(key: bytes) -> LocalAccount:
    """The account of a private key (32 bytes); raises ValueError, which says nothing of the key."""
    web3()
    from eth_account import Account
    from eth_utils.exceptions import ValidationError

    try:
        found: LocalAccount = Account.from_key(key)
    except (ValueError, ValidationError):
        raise ValueError("not a private key") from None
    return found


def typed_data(domain: dict[str, Any], types: dict[str, Any], message: dict[str, Any]) -> Any:
    """What is signed of EIP-712 data."""
    web3()
    from eth_account.messages import encode_typed_data

    return encode_typed_data(domain, types, message)


def checksum(address: str) -> str:
    """An address as EIP-55 spells it."""
    return str(web3().to_checksum_address(address))


def keccak(data: bytes) -> bytes:
    """Keccak-256."""
    return bytes(web3().keccak(data))
