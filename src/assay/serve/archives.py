"""Packs what a participant hands in, and unpacks what a stranger handed in, without trusting it.

`pack` makes a .tar.gz that is the same for the same files. `unpack` never reads an archive itself: a small program (`unpacker`)
does so in a box of the sandbox, with no network and with limits. Then the host copies out plain files and folders, follows no
link, and checks every name a second time.

A bad archive is a BadInput, with one sentence for its author. A sandbox that does not work is an InfrastructureError: it says
nothing about the archive, and the same archive can be sent again.
"""

from __future__ import annotations

import gzip
import json
import os
import stat
import tarfile
import tempfile
from contextlib import closing, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from assay.characters import PATTERN, printable
from assay.errors import BadInput
from assay.judge import tree
from assay.judge.sandbox import Box, InfrastructureError, Limits, Ran, Sandbox, choose
from assay.judge.tree.handles import FOLDER, PLAIN, holding, names, opened
from assay.serve import unpacker
from assay.serve.unpacker import ArchiveBounds, EntryNames, RefusedEntry

__all__ = ["BOUNDS", "ArchiveBounds", "pack", "unpack"]

BOUNDS = ArchiveBounds()
"""The bounds where nothing else is said."""

_PYTHON = "/usr/bin/python3"
_ARCHIVE, _PROGRAM, _OUT = "/srv/archive", "/srv/unpacker.py", "/srv/out"
"""Paths in the box."""
_SECONDS = 120.0
_MEMORY = 512 << 20
_BROKEN = (128 + 4, 128 + 6, 128 + 7, 128 + 8, 128 + 11)
"""Exit codes of a program that broke over its input: illegal instruction, abort, bus error, arithmetic, segmentation fault."""
_SENTENCE = 400
"""Characters of a sentence from the box."""


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


def unpack(archive: Path, target: Path, bounds: ArchiveBounds = BOUNDS, *, sandbox: Sandbox | None = None) -> None:
    """Unpacks a tar (plain, gz, xz, or zst if the box's Python has it) or a zip into a folder, which must not exist.

    sandbox: where it is unpacked; by default a new bubblewrap. Raises BadInput for a bad archive, and InfrastructureError;
    there is no target afterwards.
    """
    size = archive.stat().st_size
    if size > bounds.packed:
        raise BadInput(f"the archive has {size} bytes, and {bounds.packed} are the most", hint="leave out what is not needed")
    limits = Limits(
        seconds=_SECONDS, memory=_MEMORY, processes=8, output=64_000, files=2 * bounds.files + 10_000,
        disk=size + 2 * bounds.bytes + 16_384 * bounds.files,
    )  # fmt: skip
    boxes = sandbox or choose()
    with tempfile.TemporaryDirectory(prefix="assay-unpack-") as beside, boxes.open(boxes.image(), limits) as box:
        box.put(archive, _ARCHIVE, mode=0o444)
        box.put(Path(unpacker.__file__), _PROGRAM, mode=0o444)
        box.fresh(_OUT)
        listed = _run(box, limits, bounds, Path(beside))
        try:
            if not box.take(_OUT, target, most_bytes=bounds.bytes, most_files=bounds.files + 1):
                raise InfrastructureError("the unpacked files are not in the box")
            _check(target, bounds, listed)
        except BaseException as error:
            tree.remove(target)
            if isinstance(error, tree.TooMuch):
                raise BadInput(f"the archive {error.what}", hint="leave out what is not needed") from None
            raise


def _run(box: Box, limits: Limits, bounds: ArchiveBounds, beside: Path) -> tuple[object, object]:
    """Runs the unpacker, and returns how many files and bytes it says it wrote.

    Raises BadInput for what it says about the archive, and InfrastructureError.
    """
    request = json.dumps({"bounds": asdict(bounds), "refused": PATTERN}).encode()
    stdout, stderr = beside / "stdout", beside / "stderr"
    python = _PYTHON if os.path.exists(_PYTHON) else "python3"
    command = [python, "-I", "-B", _PROGRAM, _ARCHIVE, _OUT]
    ran = box.run(command, limits=limits, stdout=stdout, stderr=stderr, stdin=request, cwd="/")
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
