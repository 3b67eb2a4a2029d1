"""Opening what somebody names as a file."""

from __future__ import annotations

import errno
import stat
from pathlib import Path
from typing import BinaryIO

__all__ = ["check_file", "opened", "present"]


def opened(path: Path) -> BinaryIO:
    """The file, open for reading; raises OSError as `check_file` does."""
    check_file(path)
    return path.open("rb")


def check_file(path: Path) -> None:
    """Raise OSError for a pipe or a device, which might never end, unless it is named as one of /dev itself."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode) and path.parts[:2] != ("/", "dev"):
        raise OSError(errno.EINVAL, "it is a pipe or a device")


def present(path: Path) -> bool:
    """Whether something has that name: a link to nowhere has, and is refused when it is read, not taken for no file at all."""
    return path.exists() or path.is_symlink()
