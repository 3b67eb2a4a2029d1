"""Back up a ledger's database to one file while others write, restore it from that file, and copy it to another database. SPEC 6.

The file is a ZIP archive of two parts:

    about.json    whose ledger it is, the log's signed checkpoint, how much the database holds, the SHA-256 of the other part
    ledger.db     the database as SQLite, whatever the ledger uses

- A backup is one snapshot. Writers continue meanwhile; each batch that they add is either in it, or not.
- A backup that is not consistent is not restored: another digest, another log, a checkpoint that the log's key did not sign, or
  that does not fit the receipts. Nothing is restored over an existing database.
- A backup that is older than the folder's files (the log, the acknowledged batches) is refused unless the operator asks for it.
- A restored ledger accepts and signs nothing until it is adopted: `assay.ledger.store.schema`.
- Other tables in the database, such as those of a service (`beside`), are in the backup, and come back with the ledger.

A copy goes from SQLite to PostgreSQL, or the other way, without a file between. It must be adopted as a restored ledger must.
"""

from __future__ import annotations

import lzma
import os
import secrets
import shutil
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import file_digest
from pathlib import Path

from sqlalchemy import MetaData

from assay.errors import BadInput, brief
from assay.exact import canonical
from assay.folder import strict
from assay.folder.files import flush_folder
from assay.ledger import check, config, intake, store
from assay.ledger.access import Ledger, open_ledger, open_store
from assay.ledger.check import LogKey
from assay.ledger.config import Config
from assay.ledger.log import Log, is_log
from assay.ledger.store import CopiedTable, Damaged, Store, StoreError, View
from assay.ledger.store.copying import STOP, digest_of

__all__ = ["About", "LedgerCopy", "back_up", "copy", "restore"]

_ABOUT, _DATABASE = "about.json", "ledger.db"
_FORMAT, _TIME = "assay.backup/1", "[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}Z"
_ABOUT_BYTES = 1_000_000
_PIECE = 1 << 20
_CACHE_KIB = 4_096
"""The cache of an SQLite database during a copy, in KiB: everything is read once, and nothing of it soon again."""
_ENDS = ("", "-wal", "-shm", "-journal")
"""The endings of the names of an SQLite database's files."""
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
"""The exceptions of `zipfile` for a file that is not an archive, or is damaged, in any compression."""
_ANOTHER = "use another backup: this one is damaged, or was changed"


@dataclass(frozen=True)
class Held:
    """The counts of a database. checkpoint: the one in its last receipt, None before anything is settled."""

    records: int
    batches: int
    receipts: int
    checkpoint: str | None


@dataclass(frozen=True)
class About:
    """The description in a backup: its log's key, when it was taken (RFC 3339), the digest of its database."""

    key: str
    taken: str
    digest: str
    held: Held
    schema: str = _FORMAT


def back_up(place: Path, file: Path, *, now: str, beside: MetaData = store.NO_TABLES) -> About:
    """Back up the ledger of a competition's folder or a subnet file to a new file, while others write.

    beside: tables in the database that are not the ledger's. Raises BadInput for a file that exists or cannot be written, and
    StoreError.
    """
    with open_store(config.read(place)) as database, _beside(file) as copy, _beside(file) as packed:
        _check_free(file, "a backup never replaces another file: give a new name")
        database.copy_to(copy, beside)
        with store.open(copy) as copied:
            contents = _contents(copied)
        about = About(database.meta.key, now, _digest(copy), contents)
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            archive.writestr(_ABOUT, canonical(asdict(about)))
            archive.write(copy, _DATABASE)
        _put(packed, file)
    return about


def restore(place: Path, file: Path, *, now: str, older: bool = False, beside: MetaData = store.NO_TABLES) -> About:
    """Restore a backup to the place of the database in the folder's ledger.toml, which must be empty. Then adopt it.

    older: accept a backup that is older than the folder's files. beside: as `back_up` has it. Everything is
    checked before anything is written. Raises BadInput, Damaged for a backup that was changed, and StoreError.
    """
    settings = config.read(place)
    target = None if "://" in settings.place else Path(settings.place)
    with _beside(settings.folder / "restored" if target is None else target) as copy:
        for end in _ENDS:
            if target is not None:
                _check_free(
                    target.with_name(target.name + end),
                    "move away all files that begin with its name, then run the command again",
                )
        about = _unpacked(file, copy)
        if about.key != settings.key:
            raise BadInput(
                f"is of the log {about.key}, but {settings.name} names {settings.key}",
                file=file,
                hint="use a backup of this ledger",
            )
        store.migrate(copy)
        with store.open(copy) as copied:
            _check_whole(copied, about, settings, file)
            _check_against_folder(copied, about, settings, file, older=older)
            copied.forget_home(now)
        if target is None:
            store.fill(settings.place, copy, beside)
        else:
            _put(copy, target)
    return about


@dataclass(frozen=True)
class LedgerCopy:
    """The copy of a ledger: each table's rows and digest, one digest over all (`store.copying`), and the log as the copy has it.

    log: the number of receipts that the last checkpoint covers, and its root; the log's tiles have the same root.
    """

    source: str
    target: str
    digest: str
    tables: dict[str, CopiedTable]
    log: dict[str, int | str]


def copy(
    place: Path,
    target: str,
    *,
    now: str,
    beside: MetaData = store.NO_TABLES,
    progress: Callable[[str, int], None] = lambda *_: None,
) -> LedgerCopy:
    """Copy the ledger of a competition's folder or a subnet file to a new file, or to an empty PostgreSQL database.

    The copy is one snapshot, appears whole or not at all, and must be adopted before it signs. progress: called with a table and
    how many of its rows are done. Raises BadInput, Elsewhere for a ledger that does not live where it is, Damaged, and StoreError
    if somebody writes to the ledger meanwhile.
    """
    log = dict[str, int | str]()

    def check(copied: View) -> None:
        log.update(_log_of(copied, ledger))

    with open_ledger(place, cache=_CACHE_KIB) as ledger:
        if "://" in target:
            with ledger.store.copied_whole(target, now, beside, progress, check) as tables:
                pass
        else:
            with _beside(Path(target)) as unfinished:
                for end in _ENDS:
                    _check_free(Path(target + end), "give a new name: a copy never replaces another file")
                with ledger.store.copied_whole(unfinished, now, beside, progress, check) as tables:
                    _put(unfinished, Path(target))
        return LedgerCopy(ledger.store.name, store.shown(target), digest_of(tables), tables, log)


def _log_of(copied: View, ledger: Ledger) -> dict[str, int | str]:
    """The size and root of the log by the last receipt of a copy; raises StoreError if the log's tiles have another root."""
    last = copied.last_receipt()
    size = 0 if last is None else last.position + 1
    root = ledger.stated_root(copied, size - 1)
    if (size, root) != (ledger.log.size, ledger.log.checkpoint.root):
        what = f"it has {size} receipts, and the log had {ledger.log.size}, so nothing was copied"
        raise StoreError(what, file=ledger.store.name, hint=STOP)
    return {"size": size, "root": f"sha256:{root.hex()}"}


def _contents(database: Store) -> Held:
    with database.reading() as view:
        last = view.last_receipt()
        checkpoint = None if last is None else last.checkpoint.decode(errors="replace")
        return Held(view.count(), sum(1 for _ in view.batches()), len(view.settled_epochs()), checkpoint)


def _check_free(path: Path, hint: str) -> None:
    if os.path.lexists(path):
        raise BadInput("exists, and nothing is written over it", file=path, hint=hint)


def _unpacked(file: Path, copy: Path) -> About:
    """Unpack the database of a backup to a file, check its digest, and return the backup's description."""
    try:
        with zipfile.ZipFile(file) as archive:
            with archive.open(_ABOUT) as data:
                about = _read(data.read(_ABOUT_BYTES), file)
            with archive.open(_DATABASE) as data, copy.open("xb") as out:
                shutil.copyfileobj(data, out, _PIECE)
    except _BROKEN as error:
        what = f"is not a backup of a ledger, or is damaged ({brief(str(error))})"
        raise BadInput(what, file=file, hint="`assay ledger backup` makes one") from None
    except OSError as error:
        what = f"cannot be read, or cannot be unpacked to {copy.parent} ({error.strerror or error})"
        raise BadInput(what, file=file, hint="check both places, and their free space") from None
    if (digest := _digest(copy)) != about.digest:
        raise Damaged(f"has a database with the digest {digest}, not {about.digest} as it says", file=file, hint=_ANOTHER)
    return about


def _read(data: bytes, file: Path) -> About:
    try:
        description = strict.parse(data.decode())
    except (UnicodeDecodeError, BadInput):
        description = None
    if check.misfit(description, _SHAPE):
        raise BadInput(
            f"its {_ABOUT} is not that of a backup", file=file, hint="`assay ledger backup` makes one; or upgrade Assay"
        )
    return About(**description | {"held": Held(**description["held"])})


def _check_whole(database: Store, about: About, settings: Config, file: Path) -> None:
    """Raise Damaged for a backup whose database is another ledger's, or does not fit its description and checkpoint."""
    contents, key = _contents(database), LogKey.parse(settings.key)
    if (database.meta.origin, database.meta.key, contents) != (settings.origin, settings.key, about.held):
        raise Damaged("the database in this backup was changed, or belongs to another ledger", file=file, hint=_ANOTHER)
    try:
        size = 0 if contents.checkpoint is None else check.check_checkpoint(contents.checkpoint.encode(), [key]).size
    except check.CheckError as refused:
        raise Damaged(f"its checkpoint is not one of the log ({refused})", file=file, hint=_ANOTHER) from None
    if size != contents.receipts:
        raise Damaged(f"its checkpoint is of {size} receipts, but it has {contents.receipts}", file=file, hint=_ANOTHER)


def _check_against_folder(database: Store, about: About, settings: Config, file: Path, *, older: bool) -> None:
    """Raise BadInput for another history than the folder's log, and, unless `older`, for less than the folder's files have."""
    hint = "use a later backup; or add --older, and bring back what is missing: the page on the ledger says how"
    with database.reading() as view:
        if is_log(settings.tiles):
            log, key = Log(settings.tiles, LogKey.parse(settings.key)), LogKey.parse(settings.key)
            if log.size > about.held.receipts and not older:
                what = f"is older than the log in {settings.tiles}: it has {about.held.receipts} receipts, the log {log.size}"
                raise BadInput(what, file=file, hint=hint)
            common = view.receipt_at(min(log.size, about.held.receipts) - 1)
            if common is not None and check.check_checkpoint(common.checkpoint, [key]).root != log.root(common.position + 1):
                raise BadInput(
                    f"has other receipts than the log in {settings.tiles}", file=file, hint="one of the two was changed"
                )
        if older:
            return
        try:
            intake.check_acknowledged(settings.folder / intake.ACKNOWLEDGED, {batch.digest for batch in view.batches()})
        except Damaged as error:
            raise BadInput(f"is older than {error.where}: {error.what}", file=file, hint=hint) from None


def _digest(path: Path) -> str:
    with path.open("rb") as data:
        return f"sha256:{file_digest(data, 'sha256').hexdigest()}"


@contextmanager
def _beside(file: Path) -> Iterator[Path]:
    """The path of a temporary file beside another; it is removed at the end of the block."""
    path = file.with_name(f".{file.name[:100]}.{secrets.token_hex(8)}.tmp")
    try:
        yield path
    except OSError as error:
        what = f"cannot be written ({error.strerror})"
        raise BadInput(what, file=file, hint="check that the folder exists, its permissions and its space") from None
    finally:
        for rest in _ENDS:
            path.with_name(path.name + rest).unlink(missing_ok=True)


def _put(path: Path, target: Path) -> None:
    """Flush a file to the disk, then rename it to its place; raises OSError."""
    with path.open("rb") as written:
        os.fsync(written.fileno())
    path.rename(target)
    flush_folder(target.parent)
