"""Signs transactions and scores, with a key from a keystore or the environment, or by a remote signer that keeps its key.

A remote signer gets JSON-RPC requests (`eth_signTransaction`, `eth_signTypedData_v4`, or clef's names for them). So clef and
Frame work, and the hardware wallets behind them. Its answer is decoded and compared with the request; if it differs, nothing is
sent.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from assay.errors import BadInput, Unreachable
from assay.folder.files import load
from assay.publish.evm import libraries
from assay.publish.evm.settings import EvmKeyPlace, Fees
from assay.publish.publishers import Target
from assay.publish.rpc import HttpRpc, RpcError

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

KEYSTORE_BYTES = 65_536
SIGNER_SECONDS = 300.0
"""The seconds that a signer may take, because a person may have to press a button."""
Ask = Callable[[], str]


@dataclass(frozen=True, slots=True)
class TransactionRequest:
    """A transaction to be signed. `to` is None if it creates a contract."""

    chain_id: int
    nonce: int
    to: str | None
    value: int
    data: bytes
    gas: int
    fees: Fees

    def fields(self) -> dict[str, Any]:
        """The fields as libraries and nodes name them."""
        fields: dict[str, Any] = {
            "type": 2,
            "chainId": self.chain_id,
            "nonce": self.nonce,
            "value": self.value,
            "data": f"0x{self.data.hex()}",
            "gas": self.gas,
            "maxFeePerGas": self.fees.most,
            "maxPriorityFeePerGas": self.fees.tip,
            "accessList": [],
        }
        return fields if self.to is None else fields | {"to": self.to}


class Signer(Protocol):
    """An account that signs."""

    @property
    def address(self) -> str:
        """As EIP-55 spells it."""

    def transaction(self, request: TransactionRequest) -> bytes:
        """The signed transaction, as it is sent. Raises BadInput and Unreachable."""

    def typed(self, domain: dict[str, Any], types: dict[str, Any], primary: str, message: dict[str, Any]) -> bytes:
        """The signature (65 bytes) of EIP-712 data. Raises BadInput and Unreachable."""


class LocalSigner:
    """A signer whose key is in this process's memory."""

    def __init__(self, account: LocalAccount) -> None:
        self._account = account

    @property
    def address(self) -> str:
        """As EIP-55 spells it."""
        return str(self._account.address)

    def transaction(self, request: TransactionRequest) -> bytes:
        """The signed transaction."""
        return bytes(self._account.sign_transaction(request.fields()).raw_transaction)

    def typed(self, domain: dict[str, Any], types: dict[str, Any], primary: str, message: dict[str, Any]) -> bytes:
        """The signature of EIP-712 data."""
        assert primary in types
        return bytes(self._account.sign_message(libraries.typed_data(domain, types, message)).signature)


class RemoteSigner:
    """A signer at an address, which has the key of an account."""

    def __init__(self, url: str, account: str) -> None:
        self.address = account
        self._http = HttpRpc(url, seconds=SIGNER_SECONDS, tries=1)

    def transaction(self, request: TransactionRequest) -> bytes:
        """The transaction that the signer signed, if it is the requested one."""
        fields = request.fields() | {"from": self.address}
        for name in ("chainId", "nonce", "value", "gas", "maxFeePerGas", "maxPriorityFeePerGas", "type"):
            fields[name] = hex(fields[name])
        answer = self._ask(("eth_signTransaction", "account_signTransaction"), fields)
        raw = _bytes(answer.get("raw") if isinstance(answer, dict) else answer)
        if raw is None or _decoded(raw) != (self.address, request):
            what = f"the signer at {self._http.host} signed another transaction than the requested one"
            raise BadInput(what, hint="nothing was sent; look at what it shows before it signs")
        return raw

    def typed(self, domain: dict[str, Any], types: dict[str, Any], primary: str, message: dict[str, Any]) -> bytes:
        """The signature, if it is this account's."""
        kinds = {"name": "string", "version": "string", "chainId": "uint256", "verifyingContract": "address"}
        own = [{"name": name, "type": kinds[name]} for name in domain]
        document = {"types": {"EIP712Domain": own, **types}, "primaryType": primary, "domain": domain, "message": _plain(message)}
        signature = _bytes(self._ask(("eth_signTypedData_v4", "account_signTypedData"), self.address, document))
        if signature is None or _signed_by(libraries.typed_data(domain, types, message), signature) != self.address:
            what = f"the signer at {self._http.host} did not sign the requested data with {self.address}"
            raise BadInput(what, hint="nothing was sent; is it the right account?")
        return signature

    def _ask(self, methods: tuple[str, ...], *params: Any) -> Any:
        for method in methods:
            try:
                return self._http.ask(method, *params)
            except RpcError as error:
                if error.code == -32601 or "not found" in error.message or "not supported" in error.message:
                    continue  # this signer has the other name
                raise BadInput(f"the signer at {self._http.host} refused: {error.message}", hint="nothing was sent") from None
        raise Unreachable(f"{self._http.host} is not a signer: it supports neither {' nor '.join(methods)}", final=True)


def signer_of(target: Target, name: str, ask: Ask | None = None) -> Signer:
    """The signer for a key of publish.toml. ask: asks for a keystore's passphrase if `$ASSAY_PASSPHRASE` is empty.

    Raises BadInput. No message contains any part of a key.
    """
    place = target.key(name, EvmKeyPlace)
    if place.signer is not None and place.account is not None:
        try:
            return RemoteSigner(place.signer, place.account)
        except BadInput as error:
            raise error.at(file=target.file, field=f"keys.{name}.signer") from None
    if place.env is not None:
        account = _of_environment(target, place.env)
    else:
        account = _of_keystore(target.folder / Path(str(place.keystore)).expanduser(), ask)
    local = LocalSigner(account)
    if place.account not in (None, local.address):
        what = f"is {place.account}, but the key belongs to {local.address}"
        raise BadInput(what, file=target.file, field=f"keys.{name}.account", hint="correct one of the two")
    return local


def _of_environment(target: Target, variable: str) -> LocalAccount:
    key = os.environ.get(variable, "").strip().removeprefix("0x")
    try:
        return libraries.account(bytes.fromhex(key))
    except ValueError:
        what = f"the variable {variable} " + ("is empty" if not key else "holds no private key")
        raise BadInput(what, file=target.file, hint="put 64 hex digits into it") from None


def _of_keystore(path: Path, ask: Ask | None) -> LocalAccount:
    data = load(path, KEYSTORE_BYTES, hint="give the path of a keystore (V3), as written by geth and wallets")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise BadInput(f"can be read by others (mode {mode:04o})", file=path, hint=f"let only yourself read it: chmod 600 {path}")
    passphrase = os.environ.get("ASSAY_PASSPHRASE", "") or (ask() if ask is not None else "")
    libraries.web3()
    from eth_account import Account

    try:
        return libraries.account(bytes(Account.decrypt(data.decode(), passphrase)))
    except (ValueError, KeyError, TypeError, AttributeError, NotImplementedError, ArithmeticError, MemoryError):
        what = "cannot be opened: the passphrase is wrong, or it is not a keystore"
        raise BadInput(what, file=path, hint="put the passphrase into ASSAY_PASSPHRASE, or type it when asked") from None


def _decoded(raw: bytes) -> tuple[str, TransactionRequest] | None:
    """The signer and the content of a signed transaction; None if it is not a transaction of type 2."""
    from eth_account import Account
    from eth_account.typed_transactions.typed_transaction import TypedTransaction
    from hexbytes import HexBytes
    from rlp.exceptions import RLPException

    try:
        decoded = TypedTransaction.from_bytes(HexBytes(raw)).as_dict()
        sender = str(Account.recover_transaction(raw))
    except (ValueError, TypeError, LookupError, RLPException):
        return None
    if decoded.get("type") != 2 or decoded.get("accessList"):
        return None
    to = bytes(decoded["to"])
    fees = Fees(decoded["maxFeePerGas"], decoded["maxPriorityFeePerGas"])
    address = libraries.checksum(f"0x{to.hex()}") if to else None
    rest = (decoded["value"], bytes(decoded["data"]), decoded["gas"], fees)
    return sender, TransactionRequest(decoded["chainId"], decoded["nonce"], address, *rest)


def _signed_by(message: Any, signature: bytes) -> str | None:
    from eth_account import Account
    from eth_keys.exceptions import BadSignature

    if len(signature) != 65:
        return None
    try:
        return str(Account.recover_message(message, signature=signature))
    except (ValueError, TypeError, BadSignature):
        return None


def _bytes(value: object) -> bytes | None:
    try:
        return bytes.fromhex(value[2:]) if isinstance(value, str) and value.startswith("0x") else None
    except ValueError:
        return None


def _plain(value: Any) -> Any:
    """The message as JSON."""
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, int) else value
