"""Decodes a chain's data by the runtime's metadata, in a child process with limits on memory and time.

A node's metadata say how its answers are decoded. A few hostile bytes in them can expand to gigabytes, when they are parsed or
when something is decoded by them. So the library does both only in a child process. One child serves all nodes with the same
metadata. The library is an extra, and is imported in one place, `core`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from assay.errors import BadInput, Unreachable
from assay.peers import NoAnswer
from assay.peers.confined import Confined


def core() -> Any:
    """The module bittensor_core, for keys, SCALE and extrinsics. Raises BadInput if the extra is not installed."""
    try:
        import bittensor_core
    except ImportError:
        hint = "install Assay with it: pip install 'assay[bittensor]'"
        raise BadInput("Bittensor needs the package bittensor-core", hint=hint) from None
    return bittensor_core


CHILDREN = 4
"""Most child processes at one time."""
SECONDS = 60.0
"""Time limit of one call."""
MethodCall = tuple[str, tuple[Any, ...]]
"""The name of a method, and its arguments."""


@dataclass(frozen=True, slots=True)
class StorageItem:
    """The metadata of an item of the chain's storage."""

    modifier: str
    value_type: Any
    default_bytes: bytes


class Described:
    """bittensor_core.Runtime in the child process. Its results are types that `marshal` supports."""

    def __init__(self, metadata: bytes, spec: int, transaction: int) -> None:
        self._inner = core().Runtime(metadata, spec, transaction)

    def facts(self) -> tuple[int, bool]:
        """The spec version, and whether the metadata have version 15."""
        return int(self._inner.spec_version), bool(self._inner.is_v15)

    def entry(self, pallet: str, item: str) -> tuple[str, Any, bytes]:
        """The fields of a `StorageItem`. Raises KeyError if there is none."""
        stored = self._inner.storage_entry(pallet, item)
        return str(stored.modifier), stored.value_type, bytes(stored.default_bytes)

    def ask(self, name: str, args: Sequence[Any], named: dict[str, Any]) -> Any:
        """The result of a method of the library."""
        return getattr(self._inner, name)(*args, **named)

    def many(self, calls: Sequence[MethodCall]) -> list[Any]:
        """The results of several calls."""
        return [getattr(self._inner, name)(*args) for name, args in calls]


_LOCK = threading.Lock()
_HELD: OrderedDict[bytes, Confined] = OrderedDict()


def _confined(metadata: bytes, spec: int, transaction: int) -> Confined:
    key = sha256(metadata).digest() + f"{spec} {transaction}".encode()
    with _LOCK:
        child = _HELD.get(key)
        if child is None or not child.alive:
            child = _HELD[key] = Confined(f"{__name__}:Described", metadata, spec, transaction)
        _HELD.move_to_end(key)
        while len(_HELD) > CHILDREN:
            _HELD.popitem(last=False)[1].close()
        return child


class Runtime:
    """The runtime that a node at `host` describes, with the used methods of bittensor_core.Runtime.

    They raise what the library's methods raise, and Unreachable if the child exceeds its limits.
    """

    def __init__(self, host: str, metadata: bytes, spec: int, transaction: int) -> None:
        self._host = host
        try:
            self._child = _confined(metadata, spec, transaction)
        except NoAnswer as error:
            raise self._wrong(error) from None
        self.spec_version, self.is_v15 = self._call("facts")
        self._entries: dict[tuple[str, str], StorageItem] = {}

    @property
    def alive(self) -> bool:
        """Whether its child process runs; the child ends when it exceeds its limits."""
        return self._child.alive

    def many(self, calls: Sequence[MethodCall]) -> list[Any]:
        """The results of several calls, in one exchange with the child."""
        results: list[Any] = self._call("many", list(calls))
        return results

    def storage_entry(self, pallet: str, item: str) -> StorageItem:
        """The metadata of an item of the storage. Raises KeyError if there is none."""
        if (pallet, item) not in self._entries:
            self._entries[pallet, item] = StorageItem(*self._call("entry", pallet, item))
        return self._entries[pallet, item]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **named: self._call("ask", name, args, named)

    def _call(self, name: str, *args: Any) -> Any:
        try:
            return self._child.call(name, *args, seconds=SECONDS)
        except NoAnswer as error:
            raise self._wrong(error) from None

    def _wrong(self, error: NoAnswer) -> Unreachable:
        what = f"{self._host} sent metadata that cannot be used for decoding ({error.why})"
        return Unreachable(what, hint="is it a node of a subtensor chain?")
