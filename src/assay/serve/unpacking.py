"""Unpacks an archive that a stranger handed in, without trusting it: in a box of the sandbox, with no network and with limits.

Assay never reads an archive itself: a small program (`unpacker`) does so in a box. Then the host copies out plain files and
folders, follows no link, and checks every name a second time. An archive may still be coming while it is unpacked
(`ComingArchive`); nothing of it leaves the box before it is whole and is the one that was signed.

A box serves one archive, and then it is removed. Its start takes as long as some megabytes take to come, so after an upload the
next box is begun ahead, and waits for a minute (`SpareBoxes`).

A bad archive is a BadInput, with one sentence for its author. A sandbox that does not work is an InfrastructureError: it says
nothing about the archive, and the same archive can be sent again.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import py_compile
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from assay.characters import PATTERN, printable
from assay.errors import BadInput
from assay.judge import tree
from assay.judge.sandbox import Box, InfrastructureError, Limits, Ran, Sandbox, choose
from assay.serve import unpacker
from assay.serve.archives import BOUNDS, ArchiveBounds
from assay.serve.unpacker import EntryNames, RefusedEntry

__all__ = ["KEEP_SECONDS", "ComingArchive", "SpareBoxes", "UnpackerBox", "Withdrawn", "unpack"]

KEEP_SECONDS = 60.0
"""So long a box waits for the next archive."""
_LINGER = 0.1
"""Seconds after which a box is removed that was used."""
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
        """Writes the archive to a pipe while it comes. A reader that ends early is no error."""
        at = 0
        with suppress(OSError):  # the unpacker refused it already, and ended
            while True:
                with self._news:
                    self._wait(at)
                    there = self._there
                    if at == there or self._whole is False:
                        return
                while at < there and self._file is not None:
                    at += os.sendfile(into, self._file, at, there - at)


class UnpackerBox:
    """A box in which the unpacker waits for an archive; it is used once. A thread keeps it: bubblewrap dies with its thread."""

    def __init__(self, sandbox: Sandbox, bounds: ArchiveBounds) -> None:
        self.bounds = bounds
        self._limits = Limits(
            seconds=KEEP_SECONDS + _SECONDS, memory=_MEMORY, processes=8, output=64_000, files=2 * bounds.files + 10_000,
            disk=bounds.packed + bounds.bytes + 16_384 * bounds.files,
        )  # fmt: skip
        self._stdin, self._into = os.pipe2(os.O_CLOEXEC)
        self._ran, self._over = Future[tuple[Box, Ran, Path]](), threading.Event()
        self._failed: BaseException | None = None
        self._linger = 0.0
        self._thread = threading.Thread(target=self._keep, args=(sandbox,), daemon=True)
        self._thread.start()

    @property
    def waits(self) -> bool:
        """Whether the unpacker has not ended."""
        return not self._ran.done()

    def run(self, archive: ComingArchive) -> tuple[object, object]:
        """Let the unpacker have the archive, and return how many files and bytes it says it wrote.

        Raises BadInput for what it says about the archive, and InfrastructureError.
        """
        request = {"size": archive.size, "bounds": asdict(self.bounds), "refused": PATTERN}
        pumping = threading.Thread(target=self._pump, args=(archive, json.dumps(request).encode()), daemon=True)
        pumping.start()
        try:
            _box, ran, beside = self._ran.result()
        finally:
            pumping.join()
        _check_end(ran, beside / "stderr")
        try:
            answer: Any = json.loads((beside / "stdout").read_bytes())
            refused, hint, listed = answer.get("refused"), answer.get("hint"), (answer.get("files"), answer.get("bytes"))
        except (ValueError, AttributeError):
            raise InfrastructureError("the unpacker gave no answer", hint="run `assay sandbox check`") from None
        if refused is not None:
            raise BadInput(f"the archive {_sentence(refused)}", hint=_sentence(hint))
        return listed

    def take(self, target: Path) -> None:
        """Copy out what was unpacked; nothing runs in the box. Raises TreeError and InfrastructureError."""
        box, _ran, _beside = self._ran.result()
        if not box.take(_OUT, target, most_bytes=self.bounds.bytes, most_files=self.bounds.files + 1):
            raise InfrastructureError("the unpacked files are not in the box")

    def leave(self) -> None:
        """The box is needed no more, and is removed soon: not while the upload still needs the processor for its answer."""
        self._linger = _LINGER
        self._over.set()

    def close(self) -> None:
        """End the unpacker, and wait until the box is removed. Raises InfrastructureError if it cannot be."""
        if self._into >= 0:
            os.close(self._into)
            self._into = -1
        self._over.set()
        self._thread.join()
        if self._failed is not None:
            raise self._failed

    def _pump(self, archive: ComingArchive, request: bytes) -> None:
        with suppress(OSError):
            _widen(self._into)
            os.write(self._into, request + b"\n")  # blocks until there is room, or nobody reads any more
            archive.pump(self._into)
        os.close(self._into)
        self._into = -1

    def _keep(self, sandbox: Sandbox) -> None:
        """Run the thread: begin the box, wait for the end of the unpacker and for who takes its files, remove the box."""
        limits, stdin = self._limits, os.fdopen(self._stdin, "rb", buffering=0)
        try:
            with stdin, _folder() as beside, sandbox.open(sandbox.image(), limits) as box:
                _put_program(box, beside)
                box.fresh(_OUT)
                python = _PYTHON if os.path.exists(_PYTHON) else "python3"
                ran = box.run(
                    [python, "-I", "-S", "-B", "-c", _START, _SPOOL, _OUT],
                    limits=limits, stdout=beside / "stdout", stderr=beside / "stderr", stdin=stdin.fileno(), cwd="/",
                )  # fmt: skip
                stdin.close()  # whoever still writes hears that nobody reads
                self._ran.set_result((box, ran, beside))
                self._over.wait()
                time.sleep(self._linger)
        except BaseException as error:  # noqa: BLE001  (whoever has the box raises it)
            if self._ran.done():
                self._failed = error
            else:
                self._ran.set_exception(error)


class SpareBoxes:
    """For each set of bounds at most one box that is begun ahead; it is ended if no archive comes for KEEP_SECONDS."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spare = dict[ArchiveBounds, UnpackerBox]()
        atexit.register(self.close)

    @property
    def waiting(self) -> list[UnpackerBox]:
        """The boxes that were begun ahead."""
        with self._lock:
            return [*self._spare.values()]

    @contextmanager
    def lent(self, sandbox: Sandbox, bounds: ArchiveBounds) -> Iterator[UnpackerBox]:
        """The box that waits, or a new one; it is removed soon after the context ends."""
        with self._lock:
            spare = self._spare.pop(bounds, None)
        if spare is not None and not spare.waits:
            _closed(spare)
            spare = None
        box = spare or UnpackerBox(sandbox, bounds)
        try:
            yield box
        finally:
            box.leave()

    def prepare(self, sandbox: Sandbox, bounds: ArchiveBounds) -> None:
        """Begin a box ahead, unless one waits."""
        with self._lock:
            if bounds in self._spare:
                return
            spare = self._spare[bounds] = UnpackerBox(sandbox, bounds)
        ending = threading.Timer(KEEP_SECONDS, self._end, (spare,))
        ending.daemon = True
        ending.start()

    def _end(self, spare: UnpackerBox) -> None:
        with self._lock:
            if self._spare.get(spare.bounds) is not spare:
                return
            del self._spare[spare.bounds]
        _closed(spare)

    def close(self) -> None:
        """End all boxes that wait."""
        for spare in self.waiting:
            self._end(spare)


def _closed(box: UnpackerBox) -> None:
    with suppress(InfrastructureError):  # the next sweep of the sandbox removes what is left
        box.close()


def unpack(
    archive: Path | ComingArchive,
    target: Path,
    bounds: ArchiveBounds = BOUNDS,
    *,
    sandbox: Sandbox | None = None,
    spares: SpareBoxes | None = None,
) -> None:
    """Unpacks a tar (plain, gz, xz, or zst if the box's Python has it) or a zip into a folder, which must not exist.

    sandbox: where it is unpacked; by default a new bubblewrap. spares: where a box may wait; one that was used is removed soon.
    Raises BadInput for a bad archive, InfrastructureError, and Withdrawn; there is no target afterwards, unless only the box
    could not be removed.
    """
    with closing(archive if isinstance(archive, ComingArchive) else _there(archive)) as coming:
        if coming.size > bounds.packed:
            what = f"the archive has {coming.size} bytes, and {bounds.packed} are the most"
            raise BadInput(what, hint="leave out what is not needed")
        boxes = sandbox or choose()
        with closing(UnpackerBox(boxes, bounds)) if spares is None else spares.lent(boxes, bounds) as box:
            _unpack(coming, target, box)


def _unpack(archive: ComingArchive, target: Path, box: UnpackerBox) -> None:
    try:
        listed = box.run(archive)
    except (BadInput, InfrastructureError):
        if not archive.is_whole():  # so nothing follows from how the unpacker ended
            raise Withdrawn from None
        raise
    if not archive.is_whole():
        raise Withdrawn
    try:
        box.take(target)
        _check(target, box.bounds, listed)
    except BaseException as error:
        tree.remove(target)
        if isinstance(error, tree.TooMuch):
            raise BadInput(f"the archive {error.what}", hint="leave out what is not needed") from None
        raise


def _there(archive: Path) -> ComingArchive:
    with open(archive, "rb") as file:
        whole = ComingArchive(os.fstat(file.fileno()).st_size)
        whole.opened(file.fileno())
    whole.grew(whole.size)
    whole.end(whole=True)
    return whole


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder of the host for what a box prints."""
    with tempfile.TemporaryDirectory(prefix="assay-unpack-") as folder:
        yield Path(folder)


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


def _widen(pipe: int) -> None:
    """Make a pipe as large as it may be: a user may have too many pipes for a large one."""
    import fcntl  # Windows has none, and packs

    with suppress(OSError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE)


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
    names = EntryNames(bounds, PATTERN)
    size = tree.Bounds(bounds.bytes, bounds.files + 1, bounds.depth)
    plain = "hand in plain files and folders"
    try:
        for entry in tree.walk(target, bounds=size):
            folder = entry.kind == "folder"
            if not (folder or entry.kind in ("file", "exec")):
                raise BadInput(f"the archive unpacks to a {entry.kind}, {entry.path[:80]!r}", hint=plain)
            if entry.path != ".":
                names.add(entry.path, folder=folder, size=0 if folder else entry.size)
        if (names.files, names.bytes) != listed:
            raise BadInput("the archive unpacks to something else than it lists", hint=plain)
    except RefusedEntry as error:
        raise BadInput(f"the archive {error.what}", hint=error.hint) from None
    except OSError as error:
        raise InfrastructureError(f"the unpacked files cannot be read: {error.strerror}", file=error.filename) from error
