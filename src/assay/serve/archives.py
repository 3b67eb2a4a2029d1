"""Packs what a participant hands in, and unpacks what a stranger handed in, without trusting it.

`pack` makes a .tar.gz that is the same for the same files. `unpack` never reads an archive itself: a small program (`unpacker`)
does so in a box of the sandbox, with no network and with limits. Then the host copies out plain files and folders, follows no
link, and checks every name a second time. An archive may still be coming while it is unpacked (`ComingArchive`); nothing of it
leaves the box before it is whole and is the one that was signed.

A bad archive is a BadInput, with one sentence for its author. A sandbox that does not work is an InfrastructureError: it says
nothing about the archive, and the same archive can be sent again.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import py_compile
import stat
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

from assay.characters import PATTERN, printable
from assay.errors import BadInput
from assay.judge import tree
from assay.judge.sandbox import Box, InfrastructureError, Limits, Ran, Sandbox, choose
from assay.judge.tree.handles import FOLDER, PLAIN, holding, names, opened
from assay.serve import unpacker
from assay.serve.unpacker import EntryNames, RefusedEntry

__all__ = ["ARCHIVE", "BOUNDS", "SEALED", "ArchiveBounds", "ComingArchive", "Withdrawn", "pack", "unpack"]

ARCHIVE = "application/gzip"
"""The media type of an archive; any other than SEALED means an archive too."""
SEALED = "application/vnd.assay.sealed"
"""The media type of a sealed solution, and of the commitment to one."""


@dataclass(frozen=True)
class ArchiveBounds:
    """How large an archive and its content may be."""

    packed: int = 64_000_000
    """Bytes of the archive itself."""
    bytes: int = 256_000_000
    """Bytes of all files together."""
    files: int = 20_000
    """Files and folders, with folders that are only named in a file's path."""
    depth: int = 32
    """Names in a path."""
    name: int = 255
    """Bytes of one name."""
    path: int = 1000
    """Bytes of a path."""
    ratio: int = 200
    """How many times larger the content may be than the archive, once it is larger than 10 MB."""


BOUNDS = ArchiveBounds()
"""The bounds where nothing else is said."""

_PYTHON = "/usr/bin/python3"
_SPOOL, _PROGRAM, _OUT = "/srv/archive", "/srv/unpacker.py", "/srv/out"
"""Paths in the box."""
_START = "import os, sys; sys.path.append('/srv'); import unpacker; os._exit(unpacker.main())"
"""Starts the program as a module, so that Python takes its compiled form; it ends without cleaning its memory up."""
_SECONDS = 120.0
_MEMORY = 512 << 20
_BROKEN = (128 + 4, 128 + 6, 128 + 7, 128 + 8, 128 + 11)
"""Exit codes of a program that broke over its input: illegal instruction, abort, bus error, arithmetic, segmentation fault."""
_SENTENCE = 400
"""Characters of a sentence from the box."""
_PIPE = 1 << 20
"""Bytes of a pipe that a box reads an archive from."""


def pack(source: Path, target: IO[bytes], *, bounds: ArchiveBounds = BOUNDS, compressed: bool = True) -> None:
    """Writes a folder, or one file, as a .tar.gz: sorted names, no times, no owners, permissions 644 or 755.

    The same files give the same bytes; as a plain tar (compressed=False) on every machine, whatever its zlib. Raises BadInput for
    links and devices, for too many files, and for files that change meanwhile.
    """
    found = EntryNames(bounds, PATTERN)
    try:
        gz = (
            gzip.GzipFile(filename="", mode="wb", fileobj=target, mtime=0, compresslevel=6) if compressed else nullcontext(target)
        )
        with (
            gz as packed,
            closing(tarfile.open(fileobj=packed, mode="w:", format=tarfile.PAX_FORMAT, encoding="utf-8")) as tar,
            holding(source, "") as (parent, name),
        ):
            _pack_entry(tar, parent, name, "" if source.is_dir() else source.name, found, source)
    except RefusedEntry as error:
        raise BadInput(error.what, file=source, hint=error.hint) from None
    except tree.TreeError as error:
        raise BadInput(error.what, file=source, hint="name the folder or the file to hand in") from None
    except OSError as error:
        raise BadInput(
            f"cannot be packed ({error.strerror or error})", file=error.filename or source, hint="try it again"
        ) from None


def _pack_entry(tar: tarfile.TarFile, parent: int, name: str, path: str, found: EntryNames, source: Path) -> None:
    """Adds one entry and everything below it. path: its name in the archive; empty for the top."""
    info = os.stat(name, dir_fd=parent, follow_symlinks=False)
    entry = tarfile.TarInfo(path)
    if stat.S_ISREG(info.st_mode):
        found.add(path, folder=False, size=info.st_size)
        with opened(name, PLAIN, parent) as number, open(number, "rb", closefd=False) as file:
            entry.size, entry.mode = os.fstat(number).st_size, 0o755 if info.st_mode & 0o100 else 0o644
            tar.addfile(entry, file)
        return
    if not stat.S_ISDIR(info.st_mode):
        raise BadInput("is a link or a device", file=source / path, hint="hand in plain files and folders only")
    if path:
        found.add(path, folder=True)
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(entry)
    with opened(name, FOLDER, parent) as folder:
        most = tree.WalkUsage(tree.Bounds(bytes=found.bounds.bytes, files=found.bounds.files))
        for last, _status in names(folder, most):
            _pack_entry(tar, folder, last, f"{path}/{last}" if path else last, found, source)


class Withdrawn(Exception):
    """The archive did not come whole, came too slowly, or is not the one that was signed; nothing of it was kept."""


class ComingArchive:
    """An archive that comes into a file, and that a box reads from there meanwhile. Threads share it.

    size: the bytes that it will have. seconds: how long a box waits for the whole of it; None: it is there already.
    """

    def __init__(self, size: int, seconds: float | None = None) -> None:
        self.size = size
        self._until = None if seconds is None else time.monotonic() + seconds
        self._file: int | None = None
        self._there, self._closed = 0, False
        self._whole: bool | None = None
        self._news = threading.Condition()

    def opened(self, file: int) -> None:
        """The archive comes into this file; a duplicate of it is kept until `close`."""
        with self._news:
            if not self._closed:
                self._file = os.dup(file)

    def close(self) -> None:
        """Nobody reads the archive any more."""
        with self._news:
            self._closed = True
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def grew(self, there: int) -> None:
        """So many bytes are in the file now."""
        with self._news:
            self._there = there
            self._news.notify_all()

    def end(self, *, whole: bool) -> None:
        """Nothing more comes. whole: it is complete, and the one that was signed. The first call counts."""
        with self._news:
            if self._whole is None:
                self._whole = whole
                self._news.notify_all()

    def is_whole(self) -> bool:
        """Waits until the archive has ended or is late, and returns whether it may be taken."""
        with self._news:
            self._wait(-1)
            return bool(self._whole)

    def _wait(self, at: int) -> None:
        """Waits until there is more than this, or the archive has ended. It ends when it is late."""
        left = None if self._until is None else self._until - time.monotonic()
        if not self._news.wait_for(lambda: 0 <= at < self._there or self._whole is not None, left):
            self._whole = False

    def pump(self, into: int) -> None:
        """Writes the archive to a pipe while it comes, and closes the pipe. A reader that ends early is no error."""
        at = 0
        try:
            while True:
                with self._news:
                    self._wait(at)
                    there = self._there
                    if at == there or self._whole is False:
                        return
                while at < there and self._file is not None:
                    at += os.sendfile(into, self._file, at, there - at)
        except OSError:  # the unpacker refused it already, and ended
            return
        finally:
            os.close(into)


def unpack(
    archive: Path | ComingArchive,
    target: Path,
    bounds: ArchiveBounds = BOUNDS,
    *,
    sandbox: Sandbox | None = None,
    done: Callable[[], None] = lambda: None,
) -> None:
    """Unpacks a tar (plain, gz, xz, or zst if the box's Python has it) or a zip into a folder, which must not exist.

    sandbox: where it is unpacked; by default a new bubblewrap. done: is called when the files are there and were checked; then
    only the box is removed. Raises BadInput for a bad archive, InfrastructureError, and Withdrawn; there is no target afterwards,
    unless only the box could not be removed.
    """
    with closing(archive if isinstance(archive, ComingArchive) else _there(archive)) as coming:
        _unpack(coming, target, bounds, sandbox, done)


def _there(archive: Path) -> ComingArchive:
    with open(archive, "rb") as file:
        whole = ComingArchive(os.fstat(file.fileno()).st_size)
        whole.opened(file.fileno())
    whole.grew(whole.size)
    whole.end(whole=True)
    return whole


def _unpack(
    archive: ComingArchive, target: Path, bounds: ArchiveBounds, sandbox: Sandbox | None, done: Callable[[], None]
) -> None:
    if archive.size > bounds.packed:
        raise BadInput(
            f"the archive has {archive.size} bytes, and {bounds.packed} are the most", hint="leave out what is not needed"
        )
    limits = Limits(
        seconds=_SECONDS, memory=_MEMORY, processes=8, output=64_000, files=2 * bounds.files + 10_000,
        disk=archive.size + bounds.bytes + 16_384 * bounds.files,
    )  # fmt: skip
    boxes = sandbox or choose()
    with tempfile.TemporaryDirectory(prefix="assay-unpack-") as beside, boxes.open(boxes.image(), limits) as box:
        _put_program(box, Path(beside))
        box.fresh(_OUT)
        try:
            listed = _run(box, limits, archive, bounds, Path(beside))
        except (BadInput, InfrastructureError):
            if not archive.is_whole():  # so nothing follows from how the unpacker ended
                raise Withdrawn from None
            raise
        if not archive.is_whole():
            raise Withdrawn
        try:
            if not box.take(_OUT, target, most_bytes=bounds.bytes, most_files=bounds.files + 1):
                raise InfrastructureError("the unpacked files are not in the box")
            _check(target, bounds, listed)
        except BaseException as error:
            tree.remove(target)
            if isinstance(error, tree.TooMuch):
                raise BadInput(f"the archive {error.what}", hint="leave out what is not needed") from None
            raise
        done()


def _put_program(box: Box, beside: Path) -> None:
    """Put the unpacker into the box, with its compiled form: an upload would wait while Python compiles the source."""
    source = Path(unpacker.__file__)
    compiled = beside / "compiled"
    compiled.write_bytes(_compiled(source))
    box.put(source, _PROGRAM, mode=0o444)
    box.put(compiled, importlib.util.cache_from_source(_PROGRAM), mode=0o444)  # a Python of another version looks elsewhere


@cache
def _compiled(source: Path) -> bytes:
    with tempfile.TemporaryDirectory(prefix="assay-unpack-") as folder:
        compiled = Path(folder, "compiled")
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH  # the two are put into the box together
        py_compile.compile(str(source), str(compiled), dfile=_PROGRAM, doraise=True, invalidation_mode=mode)
        return compiled.read_bytes()


@contextmanager
def _piped(archive: ComingArchive) -> Iterator[int]:
    """The end of a pipe from which the archive can be read."""
    import fcntl  # Windows has none, and packs

    out, into = os.pipe2(os.O_CLOEXEC)
    with suppress(OSError):  # a user may have too many pipes for a large one
        fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, _PIPE)
    pumping = threading.Thread(target=archive.pump, args=(into,))
    pumping.start()
    try:
        yield out
    finally:
        os.close(out)
        pumping.join()


def _run(box: Box, limits: Limits, archive: ComingArchive, bounds: ArchiveBounds, beside: Path) -> tuple[object, object]:
    """Runs the unpacker, and returns how many files and bytes it says it wrote.

    Raises BadInput for what it says about the archive, and InfrastructureError.
    """
    request = json.dumps({"size": archive.size, "bounds": asdict(bounds), "refused": PATTERN})
    stdout, stderr = beside / "stdout", beside / "stderr"
    python = _PYTHON if os.path.exists(_PYTHON) else "python3"
    command = [python, "-I", "-S", "-B", "-c", _START, _SPOOL, _OUT, request]
    with _piped(archive) as stdin:
        ran = box.run(command, limits=limits, stdout=stdout, stderr=stderr, stdin=stdin, cwd="/")
    _check_end(ran, stderr)
    try:
        answer: Any = json.loads(stdout.read_bytes())
        refused, hint, listed = answer.get("refused"), answer.get("hint"), (answer.get("files"), answer.get("bytes"))
    except (ValueError, AttributeError):
        raise InfrastructureError("the unpacker gave no answer", hint="run `assay sandbox check`") from None
    if refused is not None:
        raise BadInput(f"the archive {_sentence(refused)}", hint=_sentence(hint))
    return listed


def _sentence(text: object) -> str:
    return printable(str(text)[:_SENTENCE])


def _check_end(ran: Ran, stderr: Path) -> None:
    """Says whose fault it is if the unpacker did not come to its end. Raises BadInput and InfrastructureError."""
    if ran.stopped == "memory":
        raise BadInput(f"the archive needs more than {_MEMORY} bytes of memory to be unpacked", hint="pack it with gzip")
    if ran.stopped == "disk":
        raise BadInput("the archive unpacks to more than it may", hint="leave out what is not needed")
    if ran.stopped == "time" and ran.cpu_seconds > _SECONDS / 2:
        raise BadInput(f"the archive takes more than {_SECONDS / 2:g} s to be unpacked", hint="pack it with gzip")
    if ran.stopped is not None:
        hint = "the machine may be overloaded: send it again later"
        raise InfrastructureError(f"an archive could not be unpacked: the box reached its limit on {ran.stopped}", hint=hint)
    if ran.exit_code in _BROKEN:
        raise BadInput("the archive breaks the program that unpacks it", hint="pack it again, as .tar.gz")
    if ran.exit_code != 0:
        lines = stderr.read_text(errors="replace").strip().splitlines() or [f"exit code {ran.exit_code}"]
        hint = f"the box needs Python 3.8 or later at {_PYTHON}; run `assay sandbox check`"
        raise InfrastructureError(f"the unpacker does not work: {_sentence(lines[-1])}", hint=hint)


def _check(target: Path, bounds: ArchiveBounds, listed: tuple[object, object]) -> None:
    """Checks what came out of the box, in case the archive took the unpacker over.

    Raises BadInput, TooMuch and InfrastructureError.
    """
    found = EntryNames(bounds, PATTERN)
    size = tree.Bounds(bounds.bytes, bounds.files + 1, bounds.depth)
    plain = "hand in plain files and folders"
    try:
        for entry in tree.walk(target, bounds=size):
            folder = entry.kind == "folder"
            if not (folder or entry.kind in ("file", "exec")):
                raise BadInput(f"the archive unpacks to a {entry.kind}, {entry.path[:80]!r}", hint=plain)
            if entry.path != ".":
                found.add(entry.path, folder=folder, size=0 if folder else entry.size)
        if (found.files, found.bytes) != listed:
            raise BadInput("the archive unpacks to something else than it lists", hint=plain)
    except RefusedEntry as error:
        raise BadInput(f"the archive {error.what}", hint=error.hint) from None
    except OSError as error:
        raise InfrastructureError(f"the unpacked files cannot be read: {error.strerror}", file=error.filename) from error
