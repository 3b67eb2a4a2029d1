"""The secret of a development endpoint: in memory, or in a folder, so that the same keys are there after a restart."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from assay.errors import BadInput
from assay.folder.text import load
from assay.folder.write import flush_folder

__all__ = ["secret_of"]

_SIZE = 32
_NAME = "development-secret"


def secret_of(folder: Path | None) -> bytes:
    """32 bytes: new ones, or those of the folder, made there (0700, the file 0600) if it has none; raises BadInput."""
    if folder is None:
        return secrets.token_bytes(_SIZE)
    path = folder / _NAME
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            _made(path)
    except OSError as error:
        hint = "check the folder and its permissions"
        raise BadInput(f"cannot be written ({error.strerror})", file=path, hint=hint) from None
    found = load(path, _SIZE, hint="it is made when the endpoint starts")
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise BadInput("can be read by others", file=path, hint=f"make it yours alone: chmod 600 {path}")
    if len(found) != _SIZE:
        raise BadInput(f"is not a secret of {_SIZE} bytes", file=path, hint="remove it; its keys are lost then")
    return found


def _made(path: Path) -> None:
    """A new secret in a file that is whole or not there; one that another process has just made is left."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(_SIZE))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(beside, path)
        except FileExistsError:
            return
    finally:
        beside.unlink(missing_ok=True)
    flush_folder(path.parent)
