"""The contracts as they ship, and their errors in words.

Interface and code are compiled by `tools/contracts` with the settings that each file names. Both contracts are made by DEPLOYER
with CREATE2 (EIP-1014), so an address is a hash over the code that made what is there and the arguments of its constructor. That
proves more than the code at an address does: code can be put there by anything, with any storage.

A contract that says no does it with a custom error, of ours or of the libraries that it rests on; each has its sentence here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from assay.errors import printable
from assay.exact import LARGEST
from assay.publish.evm.libraries import checksum, keccak, web3
from assay.publish.outcome import Refusal, TooEarly
from assay.publish.rpc import RpcError

ORACLE, ROUND = "ScoringOracle", "BountyRound"
DEPLOYER = "0x4e59b44847b379578588920cA78FbF26c0B4956C"
"""Makes a contract of the code it is sent, after 32 bytes of salt: the same program at the same address on nearly every chain."""
DEPLOYER_CODE = bytes.fromhex(
    "7fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffe03601600081602082378035828234f58015156039578182fd5b80825250"
    "50506014600cf3"
)
_SALT = bytes(32)


@dataclass(frozen=True)
class CompiledContract:
    """One contract: its ABI, the code that makes it, and the code that is then there, but for the values of its making."""

    name: str
    abi: tuple[dict[str, Any], ...]
    bytecode: bytes
    deployed: bytes
    immutables: tuple[tuple[int, int], ...]
    """(Start, length) of the values that are put into the code when it is made."""

    def is_at(self, code: bytes) -> bool:
        """Whether the code at an address is this contract's, whatever values it was made with."""
        return len(code) == len(self.deployed) and self._blank(code) == self._blank(self.deployed)

    def _blank(self, code: bytes) -> bytes:
        found = bytearray(code)
        for start, length in self.immutables:
            found[start : start + length] = bytes(length)
        return bytes(found)


def making(code: bytes) -> bytes:
    """What DEPLOYER is sent to make a contract. code: the shipped bytecode, and the constructor's arguments."""
    return _SALT + code


def address_of(code: bytes) -> str:
    """Where DEPLOYER makes a contract of this code, as EIP-55 spells it."""
    said = b"\xff" + bytes.fromhex(DEPLOYER[2:]) + _SALT + keccak(code)
    return checksum(f"0x{keccak(said)[12:].hex()}")


@cache
def oracle_address() -> str:
    """Where the oracle is, on every chain: it has no constructor arguments."""
    return address_of(artifact(ORACLE).bytecode)


@cache
def artifact(name: str) -> CompiledContract:
    """One of the contracts that ship: ORACLE or ROUND."""
    found = json.loads(files("assay.publish.evm").joinpath("contracts", f"{name}.json").read_bytes())
    return CompiledContract(
        found["contract"],
        tuple(found["abi"]),
        bytes.fromhex(found["bytecode"][2:]),
        bytes.fromhex(found["deployed"][2:]),
        tuple((one["start"], one["length"]) for one in found["immutables"]),
    )


BUSY = frozenset({-32005, -32603, 429})
"""Codes with which nodes say that they will not now (too many questions, a fault within): no answer to what was asked."""
"""Of a time, which a node may have made up: JSON has no larger integers, and no contract of ours has it."""


class Reverted(Exception):
    """A contract said no: the name of its error and the values in it, by name. `name` is "" where it said nothing known."""

    def __init__(self, data: bytes = b"", message: str = "", *, name: str = "", values: dict[str, Any] | None = None) -> None:
        self.name, self.values = (name, values or {}) if name else _decoded(data)
        super().__init__(self.name or printable(message)[:500] or "reverted without a reason")


def reason(error: Reverted) -> Refusal | TooEarly:
    """The outcome that an error stands for."""
    values = error.values
    match error.name:
        case "ScoresTooEarly" | "CommitmentsOpen":
            return TooEarly(min(int(values["commitUntil"]) + 1, LARGEST), "time", "agents may still commit")
        case "NotYet":
            until = min(int(values["scoreUntil"]) + 1, LARGEST)
            return TooEarly(until, "time", "there are no scores yet, and they may still come")
        case name if name in _WORDS:
            code, what, hint = _WORDS[name]
            return Refusal(code, what.format(**values)[:500], hint)
    shown = ", ".join(f"{name} {value}" for name, value in values.items())
    what = f"the contract said no: {error}" + (f" ({shown})" if shown else "")
    return Refusal("reverted", what[:500], "nothing was changed by it")


def of_node(error: RpcError) -> Refusal:
    """What a node said instead of taking a transaction, as an outcome."""
    said = error.message.lower()
    if "insufficient funds" in said or "insufficient balance" in said:
        return Refusal("funds", "the account cannot pay for it", "put more of the chain's coin into it")
    return Refusal("node", f"the node does not take it: {error.message}", "nothing was changed by it")


_WORDS: dict[str, tuple[str, str, str]] = {
    "NotTheScorer": ("not-the-scorer", "the round takes another's scores, not those of {scorer}", "sign with the scorer's key"),
    "AlreadySubmitted": ("already-submitted", "the round has scores already, and keeps them", "they can be read: --dry-run"),
    "ScoresTooLate": ("too-late", "the round took scores until {scoreUntil}", "whoever settles it now refunds the sponsor"),
    "NotOpen": ("not-open", "the round is not funded yet, or settled already", "`assay bounty show` says which"),
    "UnknownAgent": ("unknown-agent", "{agent} has not committed to anything in this round", "only who committed has a place"),
    "CommitmentsClosed": ("too-late", "commitments were taken until {commitUntil}", "the round goes on without"),
    "AlreadyCommitted": ("already-committed", "{agent} is bound to a commitment already", "it is for good"),
    "AlreadyFunded": ("already-funded", "the round has its deposit", ""),
    "NothingOwed": ("nothing-owed", "{account} has nothing to fetch here", "is it the account that committed?"),
    "SignatureExpired": ("expired", "the signature was good until {deadline}", "sign again"),
    "BadSignature": ("bad-signature", "the signature is not that of {scorer} over these scores", "name the scorer's own key"),
    "TokenMoved": (
        "token",
        "the token moved {moved} rather than {expected}",
        "a token that takes a fee, or says what is not so, cannot be used",
    ),
    "SafeERC20FailedOperation": ("token", "the token {token} did not do as it was told", "is the amount there?"),
    "ERC20InsufficientBalance": ("funds", "{sender} has {balance} of the token and needs {needed}", "put more in"),
    "ERC20InsufficientAllowance": ("token", "the round may take {allowance} of the token and needs {needed}", "approve it first"),
    "BadTerms": (
        "bad-terms",
        "the contract does not take the terms: {field} is wrong",
        "correct it in the scheme or in publish.toml",
    ),
}
"""Error → code, what it says, what to do."""
_Fields = tuple[tuple[str, str], ...]
_TOKENS: tuple[tuple[str, _Fields], ...] = (
    ("ERC20InsufficientBalance", (("sender", "address"), ("balance", "uint256"), ("needed", "uint256"))),
    ("ERC20InsufficientAllowance", (("spender", "address"), ("allowance", "uint256"), ("needed", "uint256"))),
)
"""What tokens say, by ERC-6093."""


@cache
def _errors() -> dict[bytes, tuple[str, _Fields]]:
    """Selector → name and fields of an error."""
    found = list(_TOKENS)
    for name in (ORACLE, ROUND):
        for one in artifact(name).abi:
            if one["type"] == "error":
                found.append((one["name"], tuple((field["name"], field["type"]) for field in one["inputs"])))
    found += [("Error", (("message", "string"),)), ("Panic", (("code", "uint256"),))]
    return {keccak(f"{name}({','.join(kind for _, kind in fields)})".encode())[:4]: (name, fields) for name, fields in found}


def _decoded(data: bytes) -> tuple[str, dict[str, Any]]:
    known = _errors().get(data[:4])
    if known is None:
        return "", {}
    name, fields = known
    from eth_abi.exceptions import DecodingError

    try:
        values = web3()().codec.decode([kind for _, kind in fields], data[4:])
    except (DecodingError, OverflowError):
        return "", {}
    shown = (printable(value) if isinstance(value, str) else value for value in values)
    return name, {field: value for (field, _), value in zip(fields, shown, strict=True)}
