"""Loads the shipped contracts, computes their addresses, and turns their errors into sentences.

`tools/contracts` compiles interface and code, with the settings that each file names. DEPLOYER creates both contracts with
CREATE2 (EIP-1014), so an address is a hash of the creation code and the constructor's arguments. That proves more than comparing
the code at an address: anybody can put the same code at an address with a different storage.

A contract refuses a call with a custom error, its own or one of the libraries it uses. Each error has a sentence here.
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
"""Creates a contract from the code it is sent, after 32 bytes of salt. It has the same address on nearly every chain."""
DEPLOYER_CODE = bytes.fromhex(
    "7fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffe03601600081602082378035828234f58015156039578182fd5b80825250"
    "50506014600cf3"
)
_SALT = bytes(32)


@dataclass(frozen=True)
class CompiledContract:
    """One shipped contract: its ABI, the code that creates it, and the deployed code, with zeros for its immutable values."""

    name: str
    abi: tuple[dict[str, Any], ...]
    bytecode: bytes
    deployed: bytes
    immutables: tuple[tuple[int, int], ...]
    """(Start, length) of the immutable values in the deployed code."""

    def is_at(self, code: bytes) -> bool:
        """Whether the code at an address is this contract's, whatever its immutable values are."""
        return len(code) == len(self.deployed) and self._blank(code) == self._blank(self.deployed)

    def _blank(self, code: bytes) -> bytes:
        blank = bytearray(code)
        for start, length in self.immutables:
            blank[start : start + length] = bytes(length)
        return bytes(blank)


def making(code: bytes) -> bytes:
    """The data that DEPLOYER is sent to create a contract. code: the shipped bytecode and the constructor's arguments."""
    return _SALT + code


def address_of(code: bytes) -> str:
    """The address at which DEPLOYER creates a contract from this code, in the spelling of EIP-55."""
    preimage = b"\xff" + bytes.fromhex(DEPLOYER[2:]) + _SALT + keccak(code)
    return checksum(f"0x{keccak(preimage)[12:].hex()}")


@cache
def oracle_address() -> str:
    """The oracle's address, which is the same on every chain because its constructor has no arguments."""
    return address_of(artifact(ORACLE).bytecode)


@cache
def artifact(name: str) -> CompiledContract:
    """One of the shipped contracts: ORACLE or ROUND."""
    compiled = json.loads(files("assay.publish.evm").joinpath("contracts", f"{name}.json").read_bytes())
    return CompiledContract(
        compiled["contract"],
        tuple(compiled["abi"]),
        bytes.fromhex(compiled["bytecode"][2:]),
        bytes.fromhex(compiled["deployed"][2:]),
        tuple((value["start"], value["length"]) for value in compiled["immutables"]),
    )


BUSY = frozenset({-32005, -32603, 429})
"""Error codes of nodes that cannot answer now (rate limit, internal error); they say nothing about the question."""


class Reverted(Exception):
    """A contract refused a call: the name of its error ("" if it is not known), and the error's values by name."""

    def __init__(self, data: bytes = b"", message: str = "", *, name: str = "", values: dict[str, Any] | None = None) -> None:
        self.name, self.values = (name, values or {}) if name else _decoded(data)
        super().__init__(self.name or printable(message)[:500] or "reverted without a reason")


def reason(error: Reverted) -> Refusal | TooEarly:
    """The outcome that a contract's error means."""
    values = error.values
    match error.name:
        case "ScoresTooEarly" | "CommitmentsOpen":
            # A node may invent any time; JSON has no larger integers.
            return TooEarly(min(int(values["commitUntil"]) + 1, LARGEST), "time", "agents may still commit")
        case "NotYet":
            until = min(int(values["scoreUntil"]) + 1, LARGEST)
            return TooEarly(until, "time", "there are no scores yet, but they may still come")
        case name if name in _WORDS:
            code, what, hint = _WORDS[name]
            return Refusal(code, what.format(**values)[:500], hint)
    shown = ", ".join(f"{name} {value}" for name, value in values.items())
    what = f"the contract refused: {error}" + (f" ({shown})" if shown else "")
    return Refusal("reverted", what[:500], "nothing was changed")


def of_node(error: RpcError) -> Refusal:
    """The outcome if a node refuses a transaction with this error."""
    answer = error.message.lower()
    if "insufficient funds" in answer or "insufficient balance" in answer:
        return Refusal("funds", "the account cannot pay for it", "put more of the chain's coin into it")
    return Refusal("node", f"the node does not accept it: {error.message}", "nothing was changed")


_WORDS: dict[str, tuple[str, str, str]] = {
    "NotTheScorer": ("not-the-scorer", "the round has another scorer than {scorer}", "sign with the scorer's key"),
    "AlreadySubmitted": ("already-submitted", "the round already has scores, which are final", "--dry-run shows them"),
    "ScoresTooLate": ("too-late", "the round accepted scores until {scoreUntil}", "settling it now refunds the sponsor"),
    "NotOpen": ("not-open", "the round is not funded yet, or settled already", "`assay bounty show` says which"),
    "UnknownAgent": (
        "unknown-agent",
        "{agent} has not committed to anything in this round",
        "only a committed agent gets a place",
    ),
    "CommitmentsClosed": ("too-late", "commitments were accepted until {commitUntil}", "the round continues without yours"),
    "AlreadyCommitted": ("already-committed", "{agent} already has a commitment", "a commitment is final"),
    "AlreadyFunded": ("already-funded", "the round has its deposit", ""),
    "NothingOwed": ("nothing-owed", "the round owes {account} nothing", "is it the account that committed?"),
    "SignatureExpired": ("expired", "the signature was good until {deadline}", "sign again"),
    "BadSignature": ("bad-signature", "the signature is not that of {scorer} over these scores", "name the scorer's own key"),
    "TokenMoved": (
        "token",
        "the token moved {moved} instead of {expected}",
        "a token that takes a fee, or reports wrong balances, cannot be used",
    ),
    "SafeERC20FailedOperation": ("token", "the token {token} did not transfer the amount", "check that the account has it"),
    "ERC20InsufficientBalance": ("funds", "{sender} has {balance} of the token and needs {needed}", "put more in"),
    "ERC20InsufficientAllowance": ("token", "the round may take {allowance} of the token and needs {needed}", "approve it first"),
    "BadTerms": (
        "bad-terms",
        "the contract does not accept the terms: {field} is wrong",
        "correct it in the scheme or in publish.toml",
    ),
}
"""Error → code, what it means, what to do."""
_Fields = tuple[tuple[str, str], ...]
_TOKENS: tuple[tuple[str, _Fields], ...] = (
    ("ERC20InsufficientBalance", (("sender", "address"), ("balance", "uint256"), ("needed", "uint256"))),
    ("ERC20InsufficientAllowance", (("spender", "address"), ("allowance", "uint256"), ("needed", "uint256"))),
)
"""Errors of tokens, by ERC-6093."""


@cache
def _errors() -> dict[bytes, tuple[str, _Fields]]:
    """Selector → name and fields of an error."""
    errors = list(_TOKENS)
    for name in (ORACLE, ROUND):
        for entry in artifact(name).abi:
            if entry["type"] == "error":
                errors.append((entry["name"], tuple((field["name"], field["type"]) for field in entry["inputs"])))
    errors += [("Error", (("message", "string"),)), ("Panic", (("code", "uint256"),))]
    return {keccak(f"{name}({','.join(kind for _, kind in fields)})".encode())[:4]: (name, fields) for name, fields in errors}


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
