"""Key files: one key each, for its owner alone (0600, in a folder of 0700), never written over.

They are in `$ASSAY_KEYS`, or else in `~/.config/assay/keys`, as NAME.key.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from assay.errors import BadInput
from assay.folder.text import load as load_bytes
from assay.folder.text import unreadable
from assay.folder.write import flush_folder
from assay.ledger.keys.private import PrivateKey, read
from assay.ledger.keys.public import PublicKey

__all__ = ["NamedKey", "folder", "listed", "load", "path_of", "save"]

KEY_BYTES = 65_536
"""Bytes of a key file."""
_NAME = re.compile("[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class NamedKey:
    """A key file as the list shows it: its name, its place, and its public key, which is None while it is encrypted."""

    name: str
    path: Path
    public: PublicKey | None
    problem: str = ""


def folder() -> Path:
    """Where the key files are."""
    said = os.environ.get("ASSAY_KEYS", "")
    return Path(said) if said else Path.home() / ".config" / "assay" / "keys"


def path_of(name: str) -> Path:
    """The file of a key, by its name or, where that has a slash, by its path; raises BadInput if it can be neither."""
    if "/" in name:
        return Path(name)
    if not _NAME.fullmatch(name):
        raise BadInput(f"{name[:60]!r} cannot be the name of a key", hint="use letters, digits, dots, dashes and underscores")
    return folder() / f"{name}.key"


def load(name: str, ask: Callable[[], str] | None = None) -> PrivateKey:
    """The key of a name or path; an encrypted one takes `$ASSAY_PASSPHRASE`, else what `ask` returns.

    Raises BadInput if there is none, if others can read it, or if the passphrase is wrong.
    """
    path = path_of(name)
    data = load_bytes(path, KEY_BYTES, hint="`assay keys list` shows the keys there are, `assay keys new` makes one")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise BadInput(f"can be read by others (mode {mode:04o})", file=path, hint=f"make it yours alone: chmod 600 {path}")
    said = os.environ.get("ASSAY_PASSPHRASE", "")
    try:
        return read(data, passphrase=(lambda: said) if said else ask)
    except BadInput as error:
        raise error.at(file=path) from None


def save(name: str, key: PrivateKey, passphrase: str = "") -> Path:
    """Put a key in its file and return the path; raises BadInput if the name is taken or the file cannot be written."""
    path = path_of(name)
    try:
        if not path.parent.is_dir():
            path.parent.mkdir(mode=0o700, parents=True)
        elif "/" not in name and path.parent.stat().st_mode & 0o022:
            raise BadInput("others can write to it", file=path.parent, hint=f"make it yours alone: chmod 700 {path.parent}")
        _write(path, key.to_file(passphrase))
    except OSError as error:
        raise BadInput(f"cannot be written ({error.strerror})", file=path, hint="check the folder and its permissions") from None
    return path


def _write(path: Path, data: bytes) -> None:
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(beside, path)  # unlike a rename, this fails where there is a file already
    except FileExistsError:
        hint = "choose another name; keys are not written over"
        raise BadInput("there is a key of this name already", file=path, hint=hint) from None
    finally:
        beside.unlink(missing_ok=True)
    flush_folder(path.parent)


def listed() -> list[NamedKey]:
    """The key files by name; raises BadInput if the folder cannot be read. Of a file that is wrong, the problem is told."""
    place = folder()
    try:
        paths = sorted(path for path in place.iterdir() if path.suffix == ".key") if place.exists() else []
    except OSError as error:
        raise unreadable(place, error) from None
    return [_listed(path) for path in paths]


def _listed(path: Path) -> NamedKey:
    try:
        return NamedKey(path.stem, path, load(f"{path.parent}/{path.name}").public)
    except BadInput as error:
        return NamedKey(path.stem, path, None, error.what)
