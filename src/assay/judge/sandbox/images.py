"""The images that bubblewrap built: kept for as long as somebody asks for them, cleared where nobody did for long.

images/KEY/…        one image, only ever seen whole
images/KEY.lock     held while it is built
images/used         held, shared, by every process that may start boxes from an image; alone by who clears
"""

from __future__ import annotations

import fcntl
import os
import time
import weakref
from contextlib import suppress
from pathlib import Path

from assay.judge.sandbox.box import Trouble
from assay.judge.sandbox.scratch import Scratch

__all__ = ["KEPT", "Images"]

KEPT = 14 * 24 * 3600
"""Seconds that an image stays without being asked for."""
_LOCK = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class Images:
    """The folder of built images, as one sandbox uses it."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch, self._folder = scratch, scratch.folder / "images"
        self._used: weakref.finalize[..., Images] | None = None

    def use(self) -> Path:
        """The folder, in which nothing is cleared from now on until `close`. Raises OSError."""
        if self._used is None:
            self._folder.mkdir(mode=0o711, exist_ok=True)
            number = os.open(self._folder / "used", _LOCK, 0o600)
            self._used = weakref.finalize(self, _release, number)
            fcntl.flock(number, fcntl.LOCK_SH)
        return self._folder

    def sweep(self) -> int:
        """Clears what nobody asked for in a long time, unless somebody may be using images; returns how many. Raises Trouble."""
        removed = 0
        try:
            number = os.open(self._folder / "used", _LOCK, 0o600)
        except FileNotFoundError:
            return 0
        try:
            with suppress(BlockingIOError):
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for image in sorted(self._folder.iterdir()):
                    if image.is_dir() and time.time() - image.stat().st_mtime > KEPT:
                        with self._scratch.box() as gone:  # a box's folder goes whatever happens, and never halfway
                            os.rename(image, gone / "image")
                        self._folder.joinpath(f"{image.name}.lock").unlink(missing_ok=True)
                        removed += 1
        except OSError as error:
            raise Trouble(f"old images cannot be cleared: {error.strerror}", file=error.filename) from error
        finally:
            _release(number)
        return removed

    def close(self) -> None:
        """Nothing is used any more."""
        if self._used is not None:
            self._used()
            self._used = None


def _release(number: int) -> None:
    """Lets go of the lock; closing is not enough while another thread is starting a program, which holds the file until then."""
    fcntl.flock(number, fcntl.LOCK_UN)
    os.close(number)
