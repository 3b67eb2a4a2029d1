"""Imports the Ethereum libraries, in one place because they are an extra and take a second to load.

One of them, py_ecc, raises Python's recursion limit a hundredfold when it is imported. With that limit, deeply nested JSON would
crash the process instead of being refused. So the old limit is set again.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from assay.errors import BadInput

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount
    from web3 import Web3


def web3() -> type[Web3]:
    """The class Web3. Raises BadInput if the extra is not installed."""
    limit = sys.getrecursionlimit()
    try:
        from web3 import Web3
    except ImportError:
        raise BadInput("Ethereum needs the package web3", hint="install Assay with it: pip install 'assay[evm]'") from None
    finally:
        sys.setrecursionlimit(limit)
    return Web3


def account(key: bytes) -> LocalAccount:
    """The account of a private key (32 bytes). Raises ValueError, whose message contains nothing of the key."""
    web3()
    from eth_account import Account
    from eth_utils.exceptions import ValidationError

    try:
        local: LocalAccount = Account.from_key(key)
    except (ValueError, ValidationError):
        raise ValueError("not a private key") from None
    return local


def typed_data(domain: dict[str, Any], types: dict[str, Any], message: dict[str, Any]) -> Any:
    """EIP-712 data as it is signed."""
    web3()
    from eth_account.messages import encode_typed_data

    return encode_typed_data(domain, types, message)


def checksum(address: str) -> str:
    """An address in the spelling of EIP-55."""
    return str(web3().to_checksum_address(address))


def keccak(data: bytes) -> bytes:
    """The Keccak-256 hash."""
    return bytes(web3().keccak(data))
