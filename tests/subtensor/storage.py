"""The state of the chain: SCALE keys to SCALE values, and the history of each, so that every block's state can be asked for."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import Any

import bittensor_core

from .metadata import Metadata
from .newer import PALLET


class Storage:
    """What every block left behind. `block` is the one that is written to; earlier ones are read with `at`.

    An item is named by its pallet and its name, `System.Account`; without a pallet it is the subtensor pallet's.
    """

    def __init__(self, metadata: Metadata) -> None:
        self.metadata = metadata
        self.runtime: Any = bittensor_core.Runtime(metadata.best, metadata.spec_version, metadata.transaction_version)
        self.block = 0
        self._history: dict[bytes, list[tuple[int, bytes | None]]] = {}
        self._order: list[bytes] = []  # every key that ever was, sorted
        self.current = self.has("MechanismCountCurrent")  # the runtime is one that knows mechanisms

    def key(self, item: str, *params: Any) -> bytes:
        """The full key, or its beginning where params are left out."""
        return bytes(self.runtime.storage_key(*_split(item), list(params)))

    def raw(self, key: bytes, at: int | None = None) -> bytes | None:
        """The bytes under a key as block `at` left them; None where nothing is stored."""
        history = self._history.get(key, [])
        known = len(history) if at is None else bisect_right(history, at, key=lambda entry: entry[0])
        return history[known - 1][1] if known else None

    def keys(self, prefix: bytes, at: int | None = None) -> list[bytes]:
        """The keys under a prefix that hold something, in their order."""
        first = bisect_left(self._order, prefix)
        keys = []
        for key in self._order[first:]:
            if not key.startswith(prefix):
                break
            if self.raw(key, at) is not None:
                keys.append(key)
        return keys

    def has(self, item: str) -> bool:
        """Whether this runtime has the item at all."""
        try:
            self.runtime.storage_entry(*_split(item))
        except KeyError:
            return False
        return True

    def get(self, item: str, *params: Any, at: int | None = None) -> Any:
        """The value, decoded; the item's default where nothing is stored, None if it is optional."""
        entry = self.runtime.storage_entry(*_split(item))
        raw = self.raw(self.key(item, *params), at)
        if raw is None and entry.modifier == "Optional":
            return None
        return self.runtime.decode(entry.value_type, entry.default_bytes if raw is None else raw)

    def put(self, item: str, *params: Any, value: Any) -> None:
        """Store a value in the block that is written to; None removes what is there."""
        entry = self.runtime.storage_entry(*_split(item))
        raw = None if value is None else bytes(self.runtime.encode(entry.value_type, value))
        key = self.key(item, *params)
        if key not in self._history:
            self._history[key] = []
            insort(self._order, key)
        history = self._history[key]
        if history and history[-1][0] == self.block:
            history.pop()
        history.append((self.block, raw))

    def under(self, item: str, *params: Any, at: int | None = None) -> list[tuple[Any, Any]]:
        """The free part of the key and the value of all that is stored under an item and the first of its params."""
        keys = self.keys(self.key(item, *params), at)
        values = [self.raw(key, at) for key in keys]
        pairs = self.runtime.decode_map_pairs(*_split(item), keys, values, len(params))
        return [(key, value) for key, value in pairs]

    def rewind(self, number: int) -> None:
        """Forget what blocks after `number` wrote."""
        for history in self._history.values():
            while history and history[-1][0] > number:
                history.pop()
        self.block = number

    def encode(self, type_name: str, value: Any) -> bytes:
        """A value in SCALE."""
        return bytes(self.runtime.encode(type_name, value))


def _split(item: str) -> tuple[str, str]:
    pallet, _, name = item.rpartition(".")
    return pallet or PALLET, name
