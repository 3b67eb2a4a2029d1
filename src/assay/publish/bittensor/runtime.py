"""A runtime's description of itself, and what it decodes: by the library, in a child process with bounds on memory and time.

A node's metadata say how its answers are decoded. A few bytes of them can stand for gigabytes, both when they are read and when
something is decoded by them, so the library does neither in this process. A child serves every node with the same description.
The library is an extra; it is imported in one place, `core`.
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
    """The module bittensor_core: keys, SCALE, extrinsics; raises BadInput if the extra is not installed."""
    try:
        import bittensor_core
    except ImportError:
        hint = "install Assay with it: pip install 'assay[bittensor]'"
        raise BadInput("Bittensor needs the package bittensor-core", hint=hint) from None
    return bittensor_core


CHILDREN = 4
"""Descriptions that are held at one time."""
SECONDS = 60.0
"""For one call."""
MethodCall = tuple[str, tuple[Any, ...]]
"""The name of a method, and its arguments."""


@dataclass(frozen=True, slots=True)
class StorageItem:
    """An item of the chain's storage."""

    modifier: str
    value_type: Any
    default_bytes: bytes


class Described:
    """bittensor_core.Runtime in the child; results as `marshal` knows them."""

    def __init__(self, metadata: bytes, spec: int, transaction: int) -> None:
        self._inner = core().Runtime(metadata, spec, transaction)

    def facts(self) -> tuple[int, bool]:
        """The spec version, and whether the metadata are of version 15."""
        return int(self._inner.spec_version), bool(self._inner.is_v15)

    def entry(self, pallet: str, item: str) -> tuple[str, Any, bytes]:
        """An `Entry`; raises KeyError."""
        found = self._inner.storage_entry(pallet, item)
        return str(found.modifier), found.value_type, bytes(found.default_bytes)

    def ask(self, name: str, args: Sequence[Any], named: dict[str, Any]) -> Any:
        """What a method of the library's returns."""
        return getattr(self._inner, name)(*args, **named)

    def many(self, calls: Sequence[MethodCall]) -> list[Any]:
        """What several calls return."""
        return [getattr(self._inner, name)(*args) for name, args in calls]


_LOCK = threading.Lock()
_HELD: OrderedDict[bytes, Confined] = OrderedDict()


def _held(metadata: bytes, spec: int, transaction: int) -> Confined:
    key = sha256(metadata).digest() + f"{spec} {transaction}".encode()
    with _LOCK:
        found = _HELD.get(key)
        if found is None or not found.alive:
            found = _HELD[key] = Confined(f"{__name__}:Described", metadata, spec, transaction)
        _HELD.move_to_end(key)
        while len(_HELD) > CHILDREN:
            _HELD.popitem(last=False)[1].close()
        return found


class Runtime:
    """The runtime as a node at `host` describes it, with the methods of bittensor_core.Runtime that are used.

    They raise what the library's raise, and Unreachable where the child came to its bounds.
    """

    def __init__(self, host: str, metadata: bytes, spec: int, transaction: int) -> None:
        self._host = host
        try:
            self._child = _held(metadata, spec, transaction)
        except NoAnswer as error:
            raise self._wrong(error) from None
        self.spec_version, self.is_v15 = self._call("facts")
        self._entries: dict[tuple[str, str], StorageItem] = {}

    @property
    def alive(self) -> bool:
        """Whether its child is there; it is ended when it comes to its bounds."""
        return self._child.alive

    def many(self, calls: Sequence[MethodCall]) -> list[Any]:
        """What several calls of methods return, in one exchange with the child."""
        found: list[Any] = self._call("many", list(calls))
        return found

    def storage_entry(self, pallet: str, item: str) -> StorageItem:
        """An item of the storage; KeyError if there is none."""
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
        what = f"{self._host} describes its chain so that it cannot be decoded ({error.why})"
        return Unreachable(what, hint="is it a node of a subtensor chain?")
