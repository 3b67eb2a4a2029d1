"""The parcels that a node has: folders by digest, fetched once, and checked before each use by a process.

    STATE/parcels/<64 hex digits>/     the content, read-only by agreement
    STATE/parcels/.new-…/              being unpacked

Several processes of a node may fetch the same one at a time: whoever is first puts it in its place, the others take that.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from assay.judge import tree
from assay.judge.sandbox import InfrastructureError, images
from assay.judge.stations import BOUNDS, unpack

__all__ = ["ParcelShelf"]

KEPT = 14 * 86_400.0
"""Seconds after its last use until a parcel is removed."""
_HALF_MADE = 3600.0


class ParcelShelf:
    """The parcels of this machine, as one process sees them."""

    def __init__(self, folder: Path | None = None) -> None:
        """folder: None: that of the machine's state."""
        self.folder = folder or images.state() / "parcels"
        self._checked: set[str] = set()

    def get(self, digest: str, fetch: Callable[[], bytes]) -> Path:
        """The folder of a parcel. fetch: its archive, if this machine does not have it. Raises InfrastructureError.

        A folder whose content has another digest is thrown away, and the parcel is fetched anew.
        """
        place = self.folder / digest.removeprefix("sha256:")
        try:
            if digest not in self._checked or not place.is_dir():
                if not _is(place, digest):
                    self._fetch(place, digest, fetch())
                self._checked.add(digest)
            os.utime(place)
        except (OSError, tree.TreeError) as error:
            why = error.what if isinstance(error, tree.TreeError) else error.strerror
            raise InfrastructureError(f"what was shipped cannot be kept: {why}", file=place) from error
        return place

    def _fetch(self, place: Path, digest: str, archive: bytes) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._clear()
        new = self.folder / f".new-{secrets.token_hex(8)}"
        new.mkdir()
        try:
            unpack(archive, new)
            if not _is(new, digest):
                raise InfrastructureError("what was shipped is something else than was meant", file=place)
            if place.exists():
                place.rename(self.folder / f".new-{secrets.token_hex(8)}")  # damaged; it is cleared away when it is old
            with suppress(FileExistsError, OSError):
                new.rename(place)
            if not _is(place, digest):  # somebody else put another one there
                raise InfrastructureError("what was shipped cannot be kept", file=place)
        finally:
            with suppress(tree.Missing):
                tree.remove(new)

    def _clear(self) -> None:
        """Remove what nobody has used for long."""
        now = time.time()
        for path in self.folder.iterdir():
            with suppress(OSError, tree.TreeError):
                if now - path.stat().st_mtime > (_HALF_MADE if path.name.startswith(".new-") else KEPT):
                    tree.remove(path)


def _is(place: Path, digest: str) -> bool:
    return place.is_dir() and tree.digest(place, bounds=BOUNDS) == digest
