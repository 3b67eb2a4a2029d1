"""A ledger's database as one file, taken while others write, and put back from it. SPEC 6.

The file is a ZIP archive of two parts:

    about.json    whose ledger it is, the log's signed checkpoint then, how much it holds, the SHA-256 of the other part
    ledger.db     the database as SQLite, whatever it was kept in

- It is one snapshot: writers go on meanwhile, and what they add is in it or not, batch by batch.
- What does not fit together is not put back: another digest, another log, a checkpoint that the log's key did not sign, or that
  is not of the receipts in it; and nothing is put where something is.
- What is older than the folder knows is refused unless that is asked for: a log that is ahead, a batch that was acknowledged.
- What was put back takes nothing in and signs nothing until it is adopted: `assay.ledger.store.schema`.
"""

from __future__ import annotations

import lzma
import os
import secrets
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import file_digest
from pathlib import Path

from assay.errors import BadInput, brief
from assay.exact import canonical
from assay.folder import strict
from assay.folder.files import flush_folder
from assay.ledger import check, config, intake, store
from assay.ledger.access import open_store
from assay.ledger.check import LogKey
from assay.ledger.config import Config
from assay.ledger.log import Log
from assay.ledger.store import Damaged, Store

__all__ = ["About", "back_up", "restore"]

_ABOUT, _DATABASE = "about.json", "ledger.db"
_FORMAT, _TIME = "assay.backup/1", "[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}Z"
_ABOUT_BYTES = 1_000_000
_PIECE = 1 << 20
_HELD = {"batches": int, "checkpoint": (check.WORD, None), "receipts": int, "records": int}
_SHAPE = {"digest": check.DIGEST, "held": _HELD, "key": check.WORD, "schema": _FORMAT, "taken": _TIME}
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    KeyError,
    EOFError,
    NotImplementedError,
    RuntimeError,
)
"""What an archive raises that is none, or is damaged, whatever it is compressed by."""
_ANOTHER = "use another backup; this one is damaged, or was changed"


@dataclass(frozen=True)
class Held:
    """How much a database holds; checkpoint: the log's with its last receipt, None before anything is settled."""

    records: int
    batches: int
    receipts: int
    checkpoint: str | None


@dataclass(frozen=True)
class About:
    """What a backup says of itself: of which log it is, when it was taken (RFC 3339), the digest of its database."""

    key: str
    taken: str
    digest: str
    held: Held
    schema: str = _FORMAT


def back_up(place: Path, file: Path, *, now: str) -> About:
    """Write the ledger of a competition's folder or a subnet file to a file that is not there yet, beside whoever writes.

    Raises BadInput for a file that is there or cannot be written, and StoreError.
    """
    with open_store(config.read(place)) as database, _beside(file) as copy, _beside(file) as packed:
        _check_free(file, "a backup never replaces another: give a new name")
        database.copy_to(copy)
        with store.open(copy) as found:
            held = _held(found)
        about = About(database.meta.key, now, _digest(copy), held)
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            archive.writestr(_ABOUT, canonical(asdict(about)))
            archive.write(copy, _DATABASE)
        _put(packed, file)
    return about


def restore(place: Path, file: Path, *, now: str, older: bool = False) -> About:
    """Put a backup where the folder's ledger.toml says the database is, where nothing is yet; it is to be adopted then.

    older: also what the folder knows more than. Everything is checked before anything is put there. Raises BadInput, Damaged for
    a backup that is not as it was taken, and StoreError.
    """
    said = config.read(place)
    target = None if "://" in said.place else Path(said.place)
    with _beside(said.folder / "restored" if target is None else target) as copy:
        for end in ("", "-wal", "-shm", "-journal"):
            if target is not None:
                _check_free(target.with_name(target.name + end), "move away all files that begin with its name, then do it again")
        about = _unpacked(file, copy)
        if about.key != said.key:
            raise BadInput(f"is of the log {about.key}, and {said.name} names {said.key}", file=file, hint="use its own backup")
        store.migrate(copy)
        with store.open(copy) as found:
            _check_whole(found, about, said, file)
            _check_against_folder(found, about, said, file, older=older)
            found.forget_home(now)
        if target is None:
            store.fill(said.place, copy)
        else:
            _put(copy, target)
    return about


def _held(found: Store) -> Held:
    with found.reading() as view:
        last = view.last_receipt()
        checkpoint = None if last is None else last.checkpoint.decode(errors="replace")
        return Held(view.count(), sum(1 for _ in view.batches()), len(view.settled_epochs()), checkpoint)


def _check_free(path: Path, hint: str) -> None:
    if os.path.lexists(path):
        raise BadInput("is there, and nothing is put over it", file=path, hint=hint)


def _unpacked(file: Path, copy: Path) -> About:
    """Put the database in a backup into a file of its own, checked by its digest, and return what is said of it."""
    try:
        with zipfile.ZipFile(file) as archive:
            with archive.open(_ABOUT) as data:
                about = _read(data.read(_ABOUT_BYTES), file)
            with archive.open(_DATABASE) as data, copy.open("xb") as out:
                shutil.copyfileobj(data, out, _PIECE)
    except _BROKEN as error:
        what = f"is no backup of a ledger, or is damaged ({brief(str(error))})"
        raise BadInput(what, file=file, hint="`assay ledger backup` makes one") from None
    except OSError as error:
        what = f"cannot be read, or not be unpacked to {copy.parent} ({error.strerror or error})"
        raise BadInput(what, file=file, hint="check both places, and the room there") from None
    if (digest := _digest(copy)) != about.digest:
        raise Damaged(f"holds a database of {digest}, and {about.digest} was put in", file=file, hint=_ANOTHER)
    return about


def _read(data: bytes, file: Path) -> About:
    try:
        said = strict.parse(data.decode())
    except (UnicodeDecodeError, BadInput):
        said = None
    if check.misfit(said, _SHAPE):
        raise BadInput(f"{_ABOUT} is not what a backup has", file=file, hint="`assay ledger backup` makes one; or upgrade Assay")
    return About(**said | {"held": Held(**said["held"])})


def _check_whole(found: Store, about: About, said: Config, file: Path) -> None:
    """Refuse a backup whose database is another ledger's, or is not what it says, up to the log's signed checkpoint."""
    held, key = _held(found), LogKey.parse(said.key)
    if (found.meta.origin, found.meta.key, held) != (said.origin, said.key, about.held):
        raise Damaged("its database is not what it says, or another ledger's", file=file, hint=_ANOTHER)
    try:
        size = 0 if held.checkpoint is None else check.check_checkpoint(held.checkpoint.encode(), [key]).size
    except check.CheckError as refused:
        raise Damaged(f"its checkpoint is not the log's ({refused})", file=file, hint=_ANOTHER) from None
    if size != held.receipts:
        raise Damaged(f"its checkpoint is of {size} receipts, and {held.receipts} are in it", file=file, hint=_ANOTHER)


def _check_against_folder(found: Store, about: About, said: Config, file: Path, *, older: bool) -> None:
    """Refuse what is of another history than the folder's log; and, unless asked for, what the folder's files know more than."""
    hint = "use a later backup; or say --older, and bring back what is missing: the page on the ledger says how"
    with found.reading() as view:
        if (said.tiles / "checkpoint").exists():
            log, key = Log(said.tiles, LogKey.parse(said.key)), LogKey.parse(said.key)
            if log.size > about.held.receipts and not older:
                what = f"is older than the log in {said.tiles}: it has {about.held.receipts} receipts, the log {log.size}"
                raise BadInput(what, file=file, hint=hint)
            common = view.receipt_at(min(log.size, about.held.receipts) - 1)
            if common is not None and check.check_checkpoint(common.checkpoint, [key]).root != log.root(common.position + 1):
                raise BadInput(f"has other receipts than the log in {said.tiles}", file=file, hint="one of the two was changed")
        if older:
            return
        try:
            intake.check_acknowledged(said.folder / intake.ACKNOWLEDGED, {one.digest for one in view.batches()})
        except Damaged as error:
            raise BadInput(f"is older than {error.where}: {error.what}", file=file, hint=hint) from None


def _digest(path: Path) -> str:
    with path.open("rb") as data:
        return f"sha256:{file_digest(data, 'sha256').hexdigest()}"


@contextmanager
def _beside(file: Path) -> Iterator[Path]:
    """The path of a file beside another, which is gone afterwards, whatever became of it."""
    path = file.with_name(f".{file.name[:100]}.{secrets.token_hex(8)}.tmp")
    try:
        yield path
    except OSError as error:
        what = f"cannot be written ({error.strerror})"
        raise BadInput(what, file=file, hint="check that the folder exists, its permissions and its space") from None
    finally:
        for rest in ("", "-wal", "-shm", "-journal"):
            path.with_name(path.name + rest).unlink(missing_ok=True)


def _put(path: Path, target: Path) -> None:
    """Bring a file to the disk, and then to its place, where nothing is; raises OSError."""
    with path.open("rb") as written:
        os.fsync(written.fileno())
    path.rename(target)
    flush_folder(target.parent)
