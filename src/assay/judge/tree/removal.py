"""Removing a tree, or what matches patterns in one, whatever its permissions and depth."""

from __future__ import annotations

import fnmatch
import itertools
import os
import re
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path

from assay.judge.tree.held import FOLDER, holding, mended
from assay.judge.tree.looking import walk
from assay.judge.tree.model import Missing, TreeError

__all__ = ["prune", "remove"]

_SHALLOW = 64
_BATCH = 10_000


def prune(root: Path, patterns: Iterable[str], beneath: str = "") -> None:
    """Removes what matches one of the patterns, as `tar --exclude` reads them; raises as `walk` and `remove`.

    A pattern is held against a path and against what is left of it after each slash; `*` goes over slashes; `./` is the top.
    """
    wanted = [re.compile(fnmatch.translate(one.rstrip("/"))) for one in patterns]
    found: list[str] = []
    for entry in walk(root, beneath):
        parts = (".", *entry.path.split("/")) if entry.path != "." else ()
        if found and entry.path.startswith(f"{found[-1]}/"):
            continue
        if any(one.match("/".join(parts[start:])) for start in range(len(parts)) for one in wanted):
            found.append(entry.path)
    for path in found:
        remove(root, f"{beneath}/{path}")


def remove(root: Path, beneath: str = "") -> None:
    """Removes a file or a tree, closed and deep ones too; nothing there is fine. Raises OSError, and TreeError for a mount."""
    try:
        with holding(root, beneath) as (parent, name):
            info = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if not stat.S_ISDIR(info.st_mode):
                os.unlink(name, dir_fd=parent)
                return
            with mended(name, FOLDER, parent, 0o700) as top:
                # What is too deep is moved up to the top and removed from there, so that any depth needs few descriptors.
                _empty(top, top, 0, os.fstat(top).st_dev)
            os.rmdir(name, dir_fd=parent)
    except (Missing, FileNotFoundError):
        return


def _empty(folder: int, top: int, depth: int, device: int) -> None:
    while True:
        with os.scandir(folder) as entries:
            batch = list(itertools.islice(entries, _BATCH))
        if not batch:
            return
        for entry in batch:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.name, dir_fd=folder)
                continue
            with mended(entry.name, FOLDER, folder, 0o700) as inner:
                if os.fstat(inner).st_dev != device:
                    raise TreeError(f"{entry.name[:80]!r} is a mount, which is not removed", hint="unmount it first")
                if depth < _SHALLOW:
                    _empty(inner, top, depth + 1, device)
            if depth < _SHALLOW:
                os.rmdir(entry.name, dir_fd=folder)
            else:
                os.rename(entry.name, f".{secrets.token_hex(8)}", src_dir_fd=folder, dst_dir_fd=top)
