"""Unpacks an archive that a stranger handed in: a program of its own, which runs in a box with the standard library alone.

    python3 -I unpacker.py SPOOL FOLDER < request and archive

The request is one line of JSON: `{"size": 1024, "bounds": {…}, "refused": "a regular expression of characters"}`; the program
may wait for it, and ends if nothing comes. The archive follows. The answer is one line of JSON on stdout: `{"files": 3, "bytes":
120}`, or `{"refused": "what is wrong", "hint": "what to do"}`. Both end with exit code 0. Any other exit code means that the
program did not work: nothing follows from it about the archive.

- The archive is read once, while it comes. Each name, type and size is checked before the first byte of its file is written. Of
  a refused archive the caller takes nothing, so it does not matter what was written before. Only a zip is kept in SPOOL first,
  because its list is at its end.
- Only plain files and folders are taken: no link, no device, no hole, no encryption.
- A file that several readers could understand in different ways is refused: data after the end, entries that overlap, two names
  for one place.

`unpacking` starts this program, and checks the names once more outside of the box with `EntryNames`. The Python of the box may be
older than Assay's, so this file uses nothing newer than Python 3.8. An upload waits for its start, so it imports little.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import struct
import sys
import tarfile
import unicodedata
import zlib
from itertools import chain
from types import SimpleNamespace

TYPE_CHECKING = False
if TYPE_CHECKING:
    import zipfile
    from collections.abc import Iterable, Iterator
    from typing import IO, Any

    from assay.serve.archives import ArchiveBounds

__all__ = ["EntryNames", "RefusedEntry", "unpack"]

_CHUNK = 1 << 18
_DICTIONARY = 128 << 20
"""Bytes that the decompression of xz may take; `xz -9` takes 65 MiB."""
_HARMLESS = 10_000_000
"""Bytes up to which nothing is a bomb, however well it was packed."""
_OVERHEAD = 4096
"""Bytes that an entry of a tar may have beside its data: headers, long names, padding."""
_END = 1024
"""Bytes of zeros at the end of every tar."""
_BLOCK = 512
"""Bytes of a tar's header."""
_PLAIN = "hand in plain files and folders only"


class RefusedEntry(Exception):
    """The archive is refused: what is wrong with it, and what its author can do."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what, self.hint = what, hint


def shown(name: str) -> str:
    """A name for a message, at most 80 characters of it."""
    return repr(name if len(name) <= 80 else name[:79] + "…")


class EntryNames:
    """The names of one archive: each is checked by itself, and against all earlier ones."""

    def __init__(self, bounds: ArchiveBounds, refused: str) -> None:
        """refused: a regular expression that finds characters which no name may have."""
        self.bounds, self.bytes = bounds, 0
        self._refused = re.compile(refused)
        self._folders: dict[str, bool] = {}
        """Path → whether it is a folder, of every entry and of every folder above one."""
        self._listed: set[str] = set()
        self._folded: dict[str, str] = {}

    @property
    def files(self) -> int:
        """The number of files and folders."""
        return len(self._folders)

    def add(self, name: str, *, folder: bool, size: int = 0) -> str:
        """The path of a new entry below the top, `.` for the top itself. size: bytes of data. Raises RefusedEntry."""
        parts = self._parts(name)
        path = "/".join(parts) or "."
        if path in self._listed:
            raise RefusedEntry(f"has two entries with the name {shown(path)}", "keep one of them")
        if path == "." and not folder:
            raise RefusedEntry("has a file without a name", "give it a name")
        self._listed.add(path)
        for count in range(1, len(parts) + 1):
            self._place("/".join(parts[:count]), folder or count < len(parts))
        self.bytes += size
        if self.bytes > self.bounds.bytes:
            what = f"unpacks to more than {self.bounds.bytes} bytes, with {shown(path)} of {size} bytes"
            raise RefusedEntry(what, "leave out what is not needed")
        return path

    def _parts(self, name: str) -> list[str]:
        """The names in a path. A leading `./` and a final slash, as `tar` writes them, are left out."""
        try:
            raw = name.encode()
        except UnicodeEncodeError:
            raise RefusedEntry(f"the name {shown(name)} is not in UTF-8", "rename it") from None
        if len(raw) > self.bounds.path:
            raise RefusedEntry(f"the path {shown(name)} has more than {self.bounds.path} bytes", "use shorter names")
        if self._refused.search(name):
            raise RefusedEntry(f"the name {shown(name)} has a control character or an invisible one", "rename it")
        if name.startswith("/"):
            raise RefusedEntry(f"the name {shown(name)} is absolute", "pack the folder with names relative to it")
        if "\\" in name:
            raise RefusedEntry(f"the name {shown(name)} has a backslash", "separate folders with / and use no other slashes")
        text = name[:-1] if name.endswith("/") else name
        text = text[2:] if text.startswith("./") else text
        parts = text.split("/") if text not in ("", ".") else []
        if ".." in parts:
            raise RefusedEntry(f"the name {shown(name)} leads out of the folder with ..", "pack names without ..")
        if "" in parts or "." in parts:
            raise RefusedEntry(f"the path {shown(name)} has an empty name or a dot in it", "pack plain relative names")
        if len(parts) > self.bounds.depth:
            raise RefusedEntry(f"the path {shown(name)} is more than {self.bounds.depth} folders deep", "use fewer folders")
        long = next((part for part in parts if len(part.encode()) > self.bounds.name), None)
        if long is not None:
            raise RefusedEntry(f"the name {shown(long)} has more than {self.bounds.name} bytes", "use shorter names")
        return parts

    def _place(self, path: str, folder: bool) -> None:
        known = self._folders.get(path)
        if known is not None:
            if not (known and folder):
                raise RefusedEntry(f"has {shown(path)} as a file and as a folder", "rename one of them")
            return
        if len(self._folders) >= self.bounds.files:
            raise RefusedEntry(f"has more than {self.bounds.files} files and folders", "leave out what is not needed")
        # The canonical caseless match of Unicode: what some file system takes for one name.
        folded = unicodedata.normalize("NFD", unicodedata.normalize("NFD", path).casefold())
        other = self._folded.setdefault(folded, path)
        if other != path:
            what = f"the names {shown(other)} and {shown(path)} differ only in case or in how their letters are encoded"
            raise RefusedEntry(what, "rename one of them")
        self._folders[path] = folder


class _Forward:
    """A stream as `tarfile` wants to have it: a file that is only read forward, and a block backward."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._ahead = chunks, memoryview(b"")
        self._at, self._last = 0, b""

    def tell(self) -> int:
        return self._at

    def read(self, count: int) -> bytes:
        """The next bytes, fewer only at the end."""
        if count < 0:
            raise ValueError("a size is negative")
        parts, left = [], count
        while left:
            if not self._ahead:
                self._ahead = memoryview(next(self._chunks, b""))
            if not self._ahead:
                break
            parts.append(self._ahead[:left])
            self._ahead = self._ahead[left:]
            left -= len(parts[-1])
        data = b"".join(parts)
        self._at += len(data)
        self._last = data[-_BLOCK:] if len(data) >= _BLOCK else (self._last + data)[-_BLOCK:]
        return data

    def seek(self, to: int) -> None:
        """Skips forward, or goes back within the last block."""
        while self._at < to and self.read(min(to - self._at, _CHUNK)):
            pass
        back = self._at - to
        if back > len(self._last):
            raise ValueError("its parts are not in order")
        if back > 0:
            self._ahead = memoryview(self._last[-back:] + bytes(self._ahead))
            self._at, self._last = to, self._last[:-back]

    def pieces(self, size: int) -> Iterator[bytes]:
        """So many bytes, from here on."""
        while size:
            piece = self.read(min(size, _CHUNK))
            if not piece:
                raise EOFError("it ends too early")
            size -= len(piece)
            yield piece


def unpack(chunks: Iterator[bytes], size: int, spool: str, folder: str, bounds: ArchiveBounds, refused: str) -> EntryNames:
    """Unpacks an archive of so many bytes into a folder that exists and is empty. Raises RefusedEntry, `_damaged` and OSError.

    spool: a path for a file that does not exist.
    """
    names, file = EntryNames(bounds, refused), _Forward(chunks)
    head = file.read(_BLOCK)
    file.seek(0)
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        with open(spool, "xb+") as archive:
            for piece in iter(lambda: file.read(_CHUNK), b""):
                archive.write(piece)
            _unzip(archive, folder, names)
    elif head[:2] == b"\x1f\x8b":
        _untar(_decompressed(_gunzip(file), size, bounds), folder, names)
    elif head[:6] == b"\xfd7zXZ\x00":
        _untar(_decompressed(_unxz(file), size, bounds), folder, names)
    elif head[:4] == b"\x28\xb5\x2f\xfd":
        _untar(_decompressed(_unzstd(file), size, bounds), folder, names)
    elif head[257:262] == b"ustar":
        _untar(file, folder, names)
    else:
        raise RefusedEntry("is neither a tar nor a zip", "pack it as .tar, .tar.gz, .tar.xz or .zip")
    if names.files == 0:
        raise RefusedEntry("is empty", "pack the files that are to be handed in")
    return names


def _decompressed(chunks: Iterable[bytes], size: int, bounds: ArchiveBounds) -> _Forward:
    """The tar in a compressed archive of so many bytes. Reading it raises RefusedEntry for a bomb."""
    most = bounds.bytes + _OVERHEAD * bounds.files
    ratio = max(_HARMLESS, bounds.ratio * size)

    def counted() -> Iterator[bytes]:
        written = 0
        for chunk in chunks:
            written += len(chunk)
            if written > ratio:
                raise RefusedEntry(f"unpacks to more than {bounds.ratio} times its size", "pack no long runs of the same bytes")
            if written > most:
                raise RefusedEntry(f"unpacks to more than {bounds.bytes} bytes", "leave out what is not needed")
            if chunk:
                yield chunk

    return _Forward(counted())


def _gunzip(file: Any) -> Iterator[bytes]:
    import gzip

    with gzip.GzipFile(fileobj=file, mode="rb") as unpacked:
        while chunk := unpacked.read(_CHUNK):
            yield chunk


def _unxz(file: _Forward) -> Iterator[bytes]:
    import lzma

    return _through(lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_DICTIONARY), file)


def _unzstd(file: _Forward) -> Iterator[bytes]:
    try:
        from compression import zstd  # type: ignore[import-not-found, unused-ignore]  # since Python 3.14
    except ImportError:
        raise RefusedEntry(
            "is packed with zstd, which this service cannot read", "pack it as .tar, .tar.gz, .tar.xz or .zip"
        ) from None
    return _through(zstd.ZstdDecompressor(), file)


def _through(unpacker: Any, file: _Forward) -> Iterator[bytes]:
    """Yield what a decompressor makes of a file: the whole of it and nothing more, never much at one time."""
    while not unpacker.eof:
        data = file.read(_CHUNK) if unpacker.needs_input else b""
        if not data and unpacker.needs_input:
            raise EOFError("it ends too early")
        yield unpacker.decompress(data, _CHUNK)
    if unpacker.unused_data or file.read(1):
        raise RefusedEntry("has data after its end", "pack it again, as one archive")


def _untar(file: _Forward, folder: str, names: EntryNames) -> None:
    readable: Any = file
    with tarfile.open(fileobj=readable, mode="r:", encoding="utf-8", errors="surrogateescape") as tar:
        for member in tar:
            path = _tar_entry(member, names)
            if member.isdir():
                os.makedirs(os.path.join(folder, path), exist_ok=True)
                continue
            file.seek(member.offset_data)
            _write(file.pieces(member.size), folder, path, member.size, executable=bool(member.mode & 0o100))
        _check_end(file, tar.offset)


def _tar_entry(member: tarfile.TarInfo, names: EntryNames) -> str:
    """The path of an entry of a tar. Raises RefusedEntry for anything that is not a plain file or folder."""
    if member.issym() or member.islnk():
        kind = "symbolic" if member.issym() else "hard"
        raise RefusedEntry(f"{shown(member.name)} is a {kind} link", f"put the file itself there; {_PLAIN}")
    if member.issparse():
        raise RefusedEntry(f"{shown(member.name)} is stored with holes", "pack it without --sparse")
    if not (member.isdir() or member.isreg()):
        known = {tarfile.CHRTYPE: "a device", tarfile.BLKTYPE: "a device", tarfile.FIFOTYPE: "a FIFO"}
        raise RefusedEntry(f"{shown(member.name)} is {known.get(member.type, 'of an unknown type')}", _PLAIN)
    if member.size < 0 or (member.isdir() and member.size):
        raise RefusedEntry(f"{shown(member.name)} has the impossible size {member.size}", "pack it again")
    return names.add(member.name, folder=member.isdir(), size=member.size)


def _check_end(file: _Forward, offset: int) -> None:
    """Checks that a tar ends where its entries end, with zeros alone. Raises RefusedEntry."""
    file.seek(offset)
    rest = 0
    while chunk := file.read(_CHUNK):
        if chunk.count(0) != len(chunk):
            raise RefusedEntry(f"is damaged, or has data after its end, near byte {offset + rest}", "pack it again")
        rest += len(chunk)
    if rest < _END:
        raise RefusedEntry("is cut off: the end of the tar is missing", "send the whole file")


_LISTED = 46
"""Bytes of an entry in the list of a zip, without its name."""
_METHODS = (0, 8)
"""Stored and deflated."""


def _unzip(file: IO[bytes], folder: str, names: EntryNames) -> None:
    import zipfile

    _check_list(file, names.bounds)
    with zipfile.ZipFile(file) as archive:
        entries = [(_zip_entry(info, names), info) for info in archive.infolist()]
        _check_apart(file, [info for _path, info in entries], archive.start_dir)
        size = os.fstat(file.fileno()).st_size
        if names.bytes > max(_HARMLESS, names.bounds.ratio * size):
            raise RefusedEntry(f"unpacks to more than {names.bounds.ratio} times its size", "pack no long runs of the same bytes")
        for path, info in entries:
            if info.is_dir():
                os.makedirs(os.path.join(folder, path), exist_ok=True)
                continue
            with archive.open(info) as data:
                pieces = iter(lambda data=data: data.read(_CHUNK), b"")  # type: ignore[misc]
                _write(pieces, folder, path, info.file_size, executable=bool(_mode(info) & 0o100))


def _check_list(file: IO[bytes], bounds: ArchiveBounds) -> None:
    """Refuses a zip whose list of entries is too long to be read. Raises RefusedEntry."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 22 - 0xFFFF))
    tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) < at + 22:
        raise RefusedEntry("is cut off: the list of its entries is missing", "send the whole file")
    _disk, _first, here, count, length, _offset, comment = struct.unpack("<4xHHHHIIH", tail[at : at + 22])
    if len(tail) != at + 22 + comment:
        raise RefusedEntry("has data after its end", "pack it again, as one archive")
    if here != count or 0xFFFF in (here, count) or length == 0xFFFFFFFF or count > bounds.files:
        raise RefusedEntry(f"has more than {min(bounds.files, 0xFFFE)} files and folders", "leave out what is not needed")
    if length > count * (_LISTED + 3 * 0xFFFF):
        raise RefusedEntry("has a list of entries that is longer than its entries", "pack it again")


def _mode(info: zipfile.ZipInfo) -> int:
    """The mode of an entry as Unix knows it; 0 if the zip was made elsewhere."""
    return info.external_attr >> 16


def _zip_entry(info: zipfile.ZipInfo, names: EntryNames) -> str:
    """The path of an entry of a zip. Raises RefusedEntry for anything that is not a plain file or folder."""
    name = info.orig_filename
    if info.flag_bits & 0x41:
        raise RefusedEntry(f"{shown(name)} is encrypted", "pack it without a password")
    if not info.flag_bits & 0x800 and any(ord(character) > 0x7E for character in name):
        raise RefusedEntry(f"the name {shown(name)} is not in UTF-8", "rename it, or hand in a .tar.gz")
    kind = stat.S_IFMT(_mode(info))
    if kind == stat.S_IFLNK:
        raise RefusedEntry(f"{shown(name)} is a symbolic link", f"put the file itself there; {_PLAIN}")
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise RefusedEntry(f"{shown(name)} is a {'FIFO' if kind == stat.S_IFIFO else 'device'}", _PLAIN)
    if info.is_dir() and info.file_size:
        raise RefusedEntry(f"{shown(name)} is a folder of {info.file_size} bytes", "pack it again")
    if info.compress_type not in _METHODS:
        raise RefusedEntry(f"{shown(name)} is packed with method {info.compress_type}", "pack it with deflate, or as .tar.gz")
    return names.add(name, folder=info.is_dir(), size=info.file_size)


def _check_apart(file: IO[bytes], entries: list[zipfile.ZipInfo], end: int) -> None:
    """Checks that no two entries of a zip share bytes: a small file could unpack to a giant one. Raises RefusedEntry."""
    before, last = 0, ""
    for info in sorted(entries, key=lambda entry: entry.header_offset):
        file.seek(info.header_offset)
        header = file.read(30)
        if info.header_offset < before:
            raise RefusedEntry(f"{shown(last)} and {shown(info.filename)} overlap", "pack it again with a usual program")
        if len(header) < 30 or header[:4] != b"PK\x03\x04":
            raise RefusedEntry(f"{shown(info.filename)} is not where the list says", "pack it again")
        before = info.header_offset + 30 + sum(struct.unpack("<HH", header[26:30])) + info.compress_size
        last = info.filename
    if before > end:
        raise RefusedEntry(f"{shown(last)} and the list of entries overlap", "pack it again with a usual program")


def _write(pieces: Iterable[bytes], folder: str, path: str, size: int, *, executable: bool) -> None:
    """Writes a new file of exactly this size. Raises RefusedEntry and OSError."""
    place = os.path.join(folder, path)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    number = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(number, "wb") as file:
        written = 0
        for piece in pieces:
            written += len(piece)
            if written > size:
                break
            file.write(piece)
        os.fchmod(file.fileno(), 0o755 if executable else 0o644)
    if written != size:
        raise RefusedEntry(f"{shown(path)} does not have the {size} bytes that the archive says", "pack it again")


def _damaged() -> tuple[type[Exception], ...]:
    """The exceptions of the libraries for damaged and for confusing archives. NotImplementedError is a RuntimeError."""
    import lzma
    import zipfile

    own = (tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error)
    return (*own, EOFError, ValueError, LookupError, OverflowError, struct.error, RuntimeError)


_OF_NAMES = (errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL)


def _line(chunks: Iterator[bytes]) -> tuple[bytes, bytes]:
    """The first line, and what has come after it; no line if the stream ends without one."""
    seen = b""
    for chunk in chunks:
        seen += chunk
        line, newline, ahead = seen.partition(b"\n")
        if newline:
            return line, ahead
    return b"", b""


def main() -> int:
    """Answers the request; returns the exit code."""
    spool, folder, chunks = sys.argv[1], sys.argv[2], iter(lambda: os.read(0, _CHUNK), b"")
    line, ahead = _line(chunks)
    if not line:
        return 0
    request = json.loads(line)
    bounds: Any = SimpleNamespace(**request["bounds"])
    try:
        names = unpack(chain([ahead] if ahead else [], chunks), request["size"], spool, folder, bounds, request["refused"])
        answer: dict[str, object] = {"files": names.files, "bytes": names.bytes}
    except RefusedEntry as error:
        answer = {"refused": error.what, "hint": error.hint}
    except MemoryError:
        answer = {"refused": "needs too much memory to be unpacked", "hint": "pack it with gzip"}
    except _damaged() as error:
        answer = {"refused": f"cannot be read: {str(error)[:200] or type(error).__name__}", "hint": "pack it again, as .tar.gz"}
    except OSError as error:
        if error.errno is not None and error.errno not in _OF_NAMES:
            raise
        answer = {"refused": f"cannot be read: {str(error)[:200]}", "hint": "pack it again, as .tar.gz"}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()  # the caller may end the process at once
    return 0


if __name__ == "__main__":
    sys.exit(main())
