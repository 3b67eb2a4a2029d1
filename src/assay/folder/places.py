"""The place of an archive: a folder, or a prefix in an object store that speaks S3.

Both list their files, fetch one, and take the files of a new epoch. Only what was listed is read: a file that is gone or has
changed since is refused by name. An object store that does not answer is Unreachable, which says nothing about the archive.
Credentials, region and endpoint come from the environment (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, …); none is ever shown.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from assay.errors import BadInput, Refused, Unreachable
from assay.folder.files import LOCKS, lock, new_folder, write_bytes

__all__ = ["MOST_FILES", "STAGE", "ArchivePlace", "StoredFile", "open_place"]

STAGE = "archive"
"""The stage of a refusal that is about an archive's files, before anything in them is read."""
MOST_FILES = 5_000_000
"""Files of one archive."""
MOST_DEPTH = 16
"""Folders inside one another."""
LONGEST_PATH = 1024
PIECE = 32 * 2**20
"""Bytes that are asked of an object store at once."""
REQUEST_SECONDS, RETRIES, RETRY_SECONDS, PIECE_ATTEMPTS = 60, 5, 120, 3
"""Of one request; how often and how long it is tried again; and how often a piece is, whose answer broke off."""


@dataclass(frozen=True)
class StoredFile:
    """A file of an archive as it was listed: its path below the archive with `/`, its bytes, and what its content is known by."""

    path: str
    size: int
    version: str
    wrong: str = ""
    """The reason why it must not be read, such as "is a symbolic link"; empty for a plain file."""


class ArchivePlace(Protocol):
    """A folder or an object store with an archive."""

    name: str

    def files(self, below: str = "") -> Iterator[StoredFile]:
        """The files of the archive, or of a folder in it. Raises BadInput if there is no such place, and Unreachable."""
        ...

    def fetch(self, file: StoredFile, cache: Path) -> Path:
        """The file on this machine, in `cache` if it must be fetched. Raises Refused if it is not as listed; Unreachable."""
        ...

    def new_epoch(self, folder: str, last: str) -> AbstractContextManager[Path]:
        """A folder to fill, which becomes a folder of the archive when the block ends; the file `last` completes it."""
        ...

    def add(self, path: str, data: bytes) -> None:
        """Put a file where none is into the folder of an epoch; one that came there meanwhile stays. Raises as `new_epoch`."""
        ...


def open_place(where: str) -> ArchivePlace:
    """The place at a path or at an address `s3://BUCKET/PREFIX`. Raises BadInput for another address."""
    scheme, separator, _ = where.partition("://")
    if not separator:
        return FolderPlace(Path(where))
    if scheme == "s3" and not re.match(r"s3://[^/]+", where):
        raise BadInput("names no bucket", file=where, hint="write s3://BUCKET/PREFIX")
    if scheme != "s3":
        raise BadInput(f"archives are read from folders and from s3://…, not from {scheme[:20]}://…", file=where)
    return ObjectPlace(where)


class FolderPlace:
    """An archive in a folder. Symbolic links are not followed."""

    def __init__(self, root: Path) -> None:
        self.root, self.name = root, str(root)

    def files(self, below: str = "") -> Iterator[StoredFile]:
        """See ArchivePlace."""
        if below and not os.path.lexists(self.root / below):
            return
        if not self.root.is_dir():
            what = "no such folder" if not os.path.lexists(self.root) else "is not a folder"
            raise BadInput(what, file=self.root, hint="give an archive: what `assay export archive` writes")
        yield from self._walked(below, 0)

    def _walked(self, below: str, depth: int) -> Iterator[StoredFile]:
        try:
            entries = sorted(os.scandir(self.root / below), key=lambda entry: entry.name)
        except OSError as error:
            raise BadInput(f"cannot be read ({error.strerror})", file=self.root / below, hint="check permissions") from None
        for entry in entries:
            path = f"{below}/{entry.name}" if below else entry.name
            status = entry.stat(follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False) and depth < MOST_DEPTH:
                yield from self._walked(path, depth + 1)
            else:
                yield StoredFile(path, status.st_size, _version(status), _wrong(status.st_mode))

    def fetch(self, file: StoredFile, cache: Path) -> Path:
        """See ArchivePlace."""
        path = self.root / file.path
        try:
            now = os.lstat(path)
        except OSError:
            raise Refused(STAGE, "it was listed, but is gone", file=file.path) from None
        if _version(now) != file.version or not path.resolve().is_relative_to(self.root.resolve()):
            raise Refused(STAGE, "it has changed since it was listed", file=file.path)
        return path

    @contextmanager
    def new_epoch(self, folder: str, last: str) -> Iterator[Path]:
        """See ArchivePlace."""
        with new_folder(self.root / folder) as beside:
            yield beside

    def add(self, path: str, data: bytes) -> None:
        """See ArchivePlace."""
        target = self.root / path
        if not os.path.lexists(target):
            try:
                target.parent.mkdir(exist_ok=True)
            except OSError as error:
                raise BadInput(f"cannot be made ({error.strerror})", file=target.parent, hint="check permissions") from None
            write_bytes(target, data)


def _version(status: os.stat_result) -> str:
    return f"{status.st_mode}-{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"


def _wrong(mode: int) -> str:
    if stat.S_ISREG(mode):
        return ""
    if stat.S_ISLNK(mode):
        return "is a symbolic link"
    return "is in too many folders" if stat.S_ISDIR(mode) else "is a pipe or a device"


class ObjectPlace:
    """An archive in an object store. Each object is fetched in pieces, all of the version that was listed."""

    def __init__(self, where: str) -> None:
        self.name = where.rstrip("/")

    @cached_property
    def _store(self) -> Any:
        try:
            from obstore.store import from_url
        except ImportError:
            what = "object stores are read with obstore, which is not installed"
            raise BadInput(what, file=self.name, hint="pip install 'assay[archive]'") from None
        retries: Any = {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_SECONDS)}
        plain = os.environ.get("AWS_ALLOW_HTTP", "").lower() == "true"  # obstore does not look itself if it is given options
        options: Any = {"timeout": f"{REQUEST_SECONDS}s", "connect_timeout": "10s", "allow_http": plain}
        with self._reached("the store"):
            return from_url(self.name, client_options=options, retry_config=retries)

    def files(self, below: str = "") -> Iterator[StoredFile]:
        """See ArchivePlace."""
        import obstore

        any_file = False
        with self._reached("listing it"):
            for rows in obstore.list(self._store, prefix=below or None, chunk_size=1000):
                for row in rows:
                    path = str(row["path"])
                    any_file = True
                    yield StoredFile(path, row["size"], row["e_tag"] or "", _wrong_key(path))
        if not any_file and not below:
            raise BadInput("there is nothing at this address", file=self.name, hint="check bucket and prefix")

    def fetch(self, file: StoredFile, cache: Path) -> Path:
        """See ArchivePlace."""
        cache.mkdir(parents=True, exist_ok=True)
        target = cache / (hashlib.sha256(f"{file.version} {file.path}".encode()).hexdigest()[:32] + Path(file.path).suffix)
        if target.exists():
            return target
        beside = target.with_name(f"{target.name}.part")
        with beside.open("ab") as part:
            if LOCKS:
                lock(part.fileno())  # one worker fetches it, the others wait
            if target.exists():
                return target
            if file.size > (free := shutil.disk_usage(cache).free):
                what = f"it has {file.size} bytes, but {cache} has room for {free}"
                raise BadInput(what, file=file.path, hint="set TMPDIR to a folder with more room")
            self._fetched(file, beside)
            beside.rename(target)
        return target

    def _fetched(self, file: StoredFile, target: Path) -> None:
        with target.open("wb") as out:
            for begin in range(0, file.size, PIECE):
                out.write(self._piece(file, begin, min(begin + PIECE, file.size)))

    def _piece(self, file: StoredFile, begin: int, end: int) -> bytes:
        import obstore
        from obstore.exceptions import PreconditionError

        options: Any = {"range": (begin, end)} | ({"if_match": file.version} if file.version else {})
        for attempt in range(1, PIECE_ATTEMPTS + 1):
            try:
                with self._reached(f"fetching {file.path}"):
                    answer = obstore.get(self._store, file.path, options=options)
                    if answer.meta["size"] != file.size:
                        raise PreconditionError("another size")
                    data = bytes(answer.bytes())
                if len(data) == end - begin:
                    return data
            except FileNotFoundError:
                raise Refused(STAGE, "it was listed, but is gone", file=file.path) from None
            except PreconditionError:
                raise Refused(STAGE, "it has changed since it was listed", file=file.path) from None
            except Unreachable as error:
                if error.final or attempt == PIECE_ATTEMPTS:
                    raise
        raise Unreachable(f"{self.name}: fetching {file.path}: the answer broke off")

    @contextmanager
    def new_epoch(self, folder: str, last: str) -> Iterator[Path]:
        """See ArchivePlace."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        with tempfile.TemporaryDirectory(prefix="assay-archive-") as beside:
            yield Path(beside)
            names = sorted(path.name for path in Path(beside).iterdir() if path.name != last)
            try:
                for name in [*names, last]:
                    mode: Any = "create" if name == last else "overwrite"
                    with self._reached(f"writing {folder}/{name}"):
                        obstore.put(self._store, f"{folder}/{name}", Path(beside) / name, mode=mode)
            except AlreadyExistsError:
                what = "somebody else has written this epoch in the meantime"
                raise BadInput(what, file=f"{folder}/{last}", hint="export again: what is there is compared") from None

    def add(self, path: str, data: bytes) -> None:
        """See ArchivePlace."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        with suppress(AlreadyExistsError), self._reached(f"writing {path}"):
            obstore.put(self._store, path, data, mode="create")

    @contextmanager
    def _reached(self, what: str) -> Iterator[None]:
        """Raise Unreachable for every error of the store but those that say something about an object."""
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        try:
            yield
        except (FileNotFoundError, AlreadyExistsError, PreconditionError):
            raise
        except (BaseError, OSError, ValueError) as error:
            why, final = _why(error)
            hint = "check the credentials in the environment, and their rights" if final else "try again later"
            raise Unreachable(f"{self.name}: {what}: {why}", final=final, hint=hint) from None


def _why(error: Exception) -> tuple[str, bool]:
    """The cause of a failure in our words, and whether a retry is useless. The store's words may contain anything, even a key."""
    words = str(error)
    status = re.search(r"status code: (\d{3})", words)
    if status:
        code = int(status[1])
        return f"the store answered {code}", code in (400, 401, 403)
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno), error.errno not in (errno.EAGAIN, errno.ETIMEDOUT)
    if "missing" in words.lower() or "builder" in words.lower() or "credential" in words.lower():
        return "the address, or the credentials, are not complete", True
    return "the store does not answer", False


def _wrong_key(path: str) -> str:
    """The reason why an object's key is no path below an archive; empty if it is one."""
    parts = path.split("/")
    if len(path) > LONGEST_PATH or len(parts) > MOST_DEPTH:
        return "is longer, or in more folders, than paths of an archive are"
    if any(part in ("", ".", "..") for part in parts) or any(character in "\\\0" for character in path):
        return "is not a path below the archive"
    return ""
