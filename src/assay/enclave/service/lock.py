"""One service for a competition at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assay.enclave.service.state import FOLDER
from assay.errors import BadInput

__all__ = ["locked"]


@contextmanager
def locked(competition: Path) -> Iterator[None]:
    """In the block, nobody else serves this competition; raises BadInput if somebody does. It ends with the process."""
    path = competition / FOLDER / ".lock"
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise BadInput(f"cannot be made ({error.strerror})", file=path, hint="check the folder and its permissions") from None
    try:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BadInput("is being served already", file=path.parent, hint="one enclave at a time judges a bounty") from None
        yield
    finally:
        os.close(number)
