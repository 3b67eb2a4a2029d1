"""What GitHub answered before, with its ETag, so that asking again costs nothing where nothing has changed.

A folder of the validator's own, for him alone: one file an address. It decides nothing: each answer is asked for again, and
GitHub says whether what is kept is still right. A file that is damaged is dropped.
"""

from __future__ import annotations

import json
import secrets
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from assay.exact import canonical
from assay.folder.write import clear

__all__ = ["Cache", "Kept"]


@dataclass(frozen=True, slots=True)
class Kept:
    """An answer: its ETag, its body, and the address of the page after it."""

    etag: str
    body: bytes
    next: str | None


class Cache:
    """Answers by address and media type. What a whole run has not asked for is dropped when it ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._used: set[str] = set()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        clear(folder)

    def get(self, url: str, accept: str) -> Kept | None:
        """What is kept of an address; None if it is nothing, or nothing whole."""
        path = self._path(url, accept)
        try:
            head, _, body = path.read_bytes().partition(b"\n")
            said = json.loads(head)
            if said["digest"] == sha256(body).hexdigest() and (said["url"], said["accept"]) == (url, accept):
                return Kept(said["etag"], body, said["next"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            pass
        with suppress(OSError):
            path.unlink()
        return None

    def put(self, url: str, accept: str, kept: Kept) -> None:
        """Keeps an answer, if there is room for it. It is not flushed: what a power cut leaves of it, its digest gives away."""
        said = {"url": url, "accept": accept, "etag": kept.etag, "next": kept.next, "digest": sha256(kept.body).hexdigest()}
        path = self._path(url, accept)
        beside = path.with_name(f".{path.name[:16]}.{secrets.token_hex(8)}.tmp")
        with suppress(OSError):
            try:
                beside.write_bytes(canonical(said) + b"\n" + kept.body)
                beside.replace(path)
            finally:
                beside.unlink(missing_ok=True)

    def drop_unused(self) -> None:
        """Drops what was not asked for since this was made."""
        for path in self.folder.iterdir():
            if path.name not in self._used:
                with suppress(OSError):
                    path.unlink()

    def _path(self, url: str, accept: str) -> Path:
        name = sha256(f"{accept}\n{url}".encode("utf-8", "surrogatepass")).hexdigest()
        self._used.add(name)
        return self.folder / name
