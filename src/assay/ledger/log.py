"""The log on disk: a folder of files that never change and a checkpoint, for any web server to serve (C2SP tlog-tiles). SPEC 6.

    checkpoint              the signed root
    tile/0/x001/234         256 hashes of entries; tile/1/… the roots of 256 such tiles each; and so on up
    tile/0/x001/235.p/17    the last tile of a level, with the 17 hashes it has so far
    tile/entries/x001/234   the entries themselves

- Tiles are on the disk before the checkpoint that speaks of them, which is put in place at once. Tiles that a crash left without
  a checkpoint are written again by the next append.
- An append writes the last tiles of the levels that grow, and removes what a dead writer left half written. Partial tiles go
  when the full one is there.
- What is read is used only if it leads to the checkpoint's root; a file that does not is named. That the checkpoint itself was
  put back to an earlier one can be seen only by who has seen the later one: `check_against`.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from assay.errors import BadInput
from assay.folder.text import load
from assay.folder.write import alone, clear, flush_folder, write_bytes
from assay.ledger import check, merkle, tiles
from assay.ledger.check import Checkpoint, LogKey
from assay.ledger.merkle import Proof
from assay.ledger.refusal import as_bad_input
from assay.ledger.tiles import ENTRY_BYTES, HASH, WIDTH, Place, tile_path

__all__ = ["Log"]

_ROOM = "check its place, permissions and space"
KEPT = 64
"""Tiles that are kept in memory once they were checked."""
_ABSENT = (
    "whoever settles has it, a validator needs none; if this is where it was: move ledger.toml away and do `assay ledger init`"
    " again, with the same names"
)
_BACK = "bring the right one back from a copy"
_COPY = "bring it back from a copy; or move the log's folder away: `assay ledger check` makes it anew from the database"


class Log:
    """A log in a folder, as its signed checkpoint says; `key` is the log's public key and name.

    Raises BadInput, with the file, wherever something in the folder is not what the checkpoint says.
    """

    def __init__(self, folder: Path, key: LogKey) -> None:
        self.folder, self.key = folder, key
        self.reload()

    @classmethod
    def create(cls, folder: Path, key: LogKey, note: bytes) -> Log:
        """A new log, from the signed checkpoint of the empty tree; raises BadInput if there is a log in the folder."""
        if (folder / "checkpoint").exists():
            raise BadInput("there is a log already", file=folder / "checkpoint", hint="choose another folder")
        with as_bad_input("sign it with the log's own key"):
            if check.check_checkpoint(note, [key]).size:
                raise check.Refused("log", "a new log has no entries")
        _make(folder)
        write_bytes(folder / "checkpoint", note)
        return cls(folder, key)

    @classmethod
    def anew(cls, folder: Path, key: LogKey, note: bytes, entries: list[bytes]) -> Log:
        """A log with all its entries, from a signed checkpoint, in a folder that is not there yet: made whole or not at all.

        Raises BadInput if it cannot be written, check.Refused if the checkpoint is not that of these entries.
        """
        after, root = check.check_checkpoint(note, [key]), merkle.root(list(map(check.leaf_hash, entries)))
        if (after.size, after.root) != (len(entries), root):
            raise check.Refused("log", "the checkpoint is not that of its entries", after.root.hex(), root.hex())
        beside = folder.with_name(f".{folder.name[:100]}.{secrets.token_hex(8)}.tmp")
        try:
            _make(beside)
            for path, data in tiles.files(entries).items():
                _make((beside / path).parent)
                write_bytes(beside / path, data)
            write_bytes(beside / "checkpoint", note)
            beside.rename(folder)
            flush_folder(folder.parent)
        except (BadInput, OSError) as error:
            why = error.what if isinstance(error, BadInput) else f"cannot be made ({error.strerror})"
            raise BadInput(why, file=folder, hint=_ROOM) from None
        finally:
            shutil.rmtree(beside, ignore_errors=True)
        return cls(folder, key)

    @classmethod
    def absent(cls, folder: Path, key: LogKey) -> Log:
        """The log before its first entry, where its folder is not: it is read as empty, and neither checked nor gone on from."""
        log = cls.__new__(cls)
        log.folder, log.key, log.note, log.checkpoint = folder, key, b"", Checkpoint(key.name, 0, check.EMPTY_ROOT)
        log._checked, log._edge = {}, {}
        return log

    def reload(self) -> None:
        """Read the checkpoint again, and the tiles that its root is made of: another process may have added to the log."""
        self._check_there()
        path = self.folder / "checkpoint"
        while True:
            self.note = self._note()
            with as_bad_input(_COPY, file=path):
                self.checkpoint = check.check_checkpoint(self.note, [self.key])
            try:
                self._read_edge()
            except BadInput:
                if self._note() == self.note:
                    raise
            else:
                return

    def _check_there(self) -> None:
        if not (self.folder.exists() or self.folder.is_symlink()):
            raise BadInput("there is no such folder, and no receipt to make the log anew from", file=self.folder, hint=_ABSENT)

    def _note(self) -> bytes:
        return load(self.folder / "checkpoint", check.NOTE_BYTES, hint=f"the folder of a log has one; {_COPY}")

    def _read_edge(self) -> None:
        self._checked: dict[Place, bytes] = {}
        self._edge = {(level, index): self._file(level, index, width) for level, index, width in tiles.edge(self.size)}
        if tiles.root(self._edge, self.size) != self.checkpoint.root:
            raise self._blame()

    @property
    def size(self) -> int:
        """How many entries there are."""
        return self.checkpoint.size

    def check_end(self) -> None:
        """Refuse unless the log can be gone on from: its last entries are whole, and its folder can be written."""
        self._check_there()
        with alone(self.folder):
            self.reload()
            for _ in self.entries(self.size - self.size % WIDTH):
                pass
        if not os.access(self.folder, os.W_OK):
            raise BadInput("cannot be written", file=self.folder, hint=_ROOM)

    def root_with(self, entries: Sequence[bytes]) -> bytes:
        """The root that the log will have with these entries after its own; nothing is written."""
        return tiles.root(self._edge | tiles.grow(self._edge, self.size, entries), self.size + len(entries))

    def publish(self, note: bytes, first: int, entries: Sequence[bytes]) -> None:
        """Bring the folder up to a signed checkpoint; `entries` are those from number `first` up to its size.

        Where the folder is as far or further, it is only checked against it. Raises BadInput, with nothing written, if the
        checkpoint is not that of this log with these entries.
        """
        with as_bad_input("sign it with the log's own key", file=self.folder):
            after = check.check_checkpoint(note, [self.key])
        self._check_there()
        with alone(self.folder):
            self.reload()
            if after.size <= self.size:
                self.check_against(after)
                return
            if first > self.size or first + len(entries) != after.size:
                what = f"it has {self.size} entries, and {len(entries)} from number {first} on do not bring it to {after.size}"
                raise BadInput(what, file=self.folder, hint="give all that are missing")
            added = entries[self.size - first :]
            grown = tiles.grow(self._edge, self.size, added)
            if tiles.root(self._edge | grown, after.size) != after.root:
                raise BadInput("with these entries it has another root than the checkpoint", file=self.folder, hint=_BACK)
            for path, data in [*self._bundles(added), *((tile_path(*at, len(data) // HASH), data) for at, data in grown.items())]:
                _make((self.folder / path).parent)
                clear((self.folder / path).parent)
                write_bytes(self.folder / path, data)
            clear(self.folder)
            write_bytes(self.folder / "checkpoint", note)
            before = self.size
            self.reload()
            self._drop_partial(before)

    def inclusion(self, index: int, size: int | None = None) -> Proof:
        """The proof that entry `index` is among the first `size`, or all; ValueError if there is no such entry."""
        return merkle.inclusion(self._node, self._up_to(size), index)

    def consistency(self, old: int, new: int | None = None) -> tuple[bytes, ...]:
        """The proof that the first `old` entries are the beginning of the first `new`, or all; ValueError if there are fewer."""
        return merkle.consistency(self._node, old, self._up_to(new))

    def root(self, size: int | None = None) -> bytes:
        """The root over the first `size` entries, or all; ValueError if there are fewer."""
        return merkle.span(self._node, 0, self._up_to(size))

    def check_against(self, seen: Checkpoint) -> None:
        """Refuse unless the log goes on from a checkpoint seen before: it could have been rolled back, or forked."""
        if seen.size > self.size:
            what = f"was rolled back: its size is {self.size}, and was {seen.size}"
            raise BadInput(what, file=self.folder / "checkpoint", hint=_BACK)
        if (found := self.root(seen.size)) != seen.root:
            what = f"was forked: the root of its first {seen.size} entries was {seen.root.hex()}, and is {found.hex()}"
            raise BadInput(what, file=self.folder / "checkpoint", hint=_BACK)

    def entries(self, first: int = 0) -> Iterator[bytes]:
        """The entries from number `first` on, each checked against the log."""
        for index in range(first // WIDTH, -(-self.size // WIDTH)):
            width = min(WIDTH, self.size - index * WIDTH)
            path = self._path("entries", index, width)
            hashes = self._tile(0, index)
            found = self._bundle(path)[:width]
            if b"".join(map(check.leaf_hash, found)) != hashes[: width * HASH]:
                raise BadInput("the entries were changed: they are not those of the log", file=path, hint=_COPY)
            yield from found[max(0, first - index * WIDTH) :]

    def check(self) -> None:
        """Read all of it again, from the root down to every entry; raises BadInput with the first file that is wrong."""
        self.reload()
        for level in reversed(range(8)):
            for index in range(self.size // WIDTH ** (level + 1)):
                self._tile(level, index)
        for _ in self.entries():
            pass

    def _up_to(self, size: int | None) -> int:
        if size is not None and not 0 <= size <= self.size:
            raise ValueError(f"the log has {self.size} entries")
        return self.size if size is None else size

    def _node(self, level: int, index: int) -> bytes:
        tile, rest = divmod(level, 8)
        place, begin = divmod(index << rest, WIDTH)
        return tiles.fold(self._tile(tile, place)[begin * HASH : (begin + (1 << rest)) * HASH])

    def _tile(self, level: int, index: int) -> bytes:
        """A tile, checked: a partial one by the checkpoint, when it was read; a full one by its hash in the tile above."""
        place = (level, index)
        if place in self._edge:
            return self._edge[place]
        if place not in self._checked:
            data = self._file(level, index, WIDTH)
            above, at = divmod(index, WIDTH)
            if tiles.fold(data) != self._tile(level + 1, above)[at * HASH : (at + 1) * HASH]:
                raise self._changed(level, index, WIDTH)
            if len(self._checked) >= KEPT:
                self._checked.clear()
            self._checked[place] = data
        return self._checked[place]

    def _changed(self, level: int, index: int, width: int) -> BadInput:
        path = self._path(level, index, width)
        return BadInput("the tile was changed: its hashes are not those of the log", file=path, hint=_COPY)

    def _blame(self) -> BadInput:
        """Which of the partial tiles is wrong, by what is below it, since together they have not the checkpoint's root."""
        for level, index, width in tiles.edge(self.size):
            again = self._edge | {(level, index): self._from_below(level, index, width)}
            if tiles.root(again, self.size) == self.checkpoint.root:
                return self._changed(level, index, width)
        what = "the tiles do not lead to the checkpoint's root: several were changed, or it is the checkpoint of another log"
        return BadInput(what, file=self.folder / "checkpoint", hint=_COPY)

    def _from_below(self, level: int, index: int, width: int) -> bytes:
        """A partial tile, made again from the entries or from the tiles below; zeros if those cannot be read either."""
        try:
            if level == 0:
                found = self._bundle(self._path("entries", index, width))
                return b"".join(map(check.leaf_hash, found)).ljust(width * HASH, b"\0")[: width * HASH]
            return b"".join(tiles.fold(self._file(level - 1, index * WIDTH + at, WIDTH)) for at in range(width))
        except BadInput:
            return bytes(width * HASH)

    def _path(self, level: int | str, index: int, width: int) -> Path:
        """The file of a tile; that of the full one where the partial one has gone."""
        path, full = (self.folder / tile_path(level, index, one) for one in (width, WIDTH))
        return full if full.exists() and not path.exists() else path

    def _file(self, level: int, index: int, width: int) -> bytes:
        """The first `width` hashes of a tile as its file has them."""
        path = self._path(level, index, width)
        data = load(path, WIDTH * HASH, hint=_COPY)
        whole = WIDTH if path == self.folder / tile_path(level, index) else width
        if len(data) != whole * HASH:
            raise BadInput(f"the tile was cut off or has grown: {len(data)} bytes, not {whole * HASH}", file=path, hint=_COPY)
        return data[: width * HASH]

    def _bundle(self, path: Path) -> list[bytes]:
        data = load(path, WIDTH * (ENTRY_BYTES + 2), hint=_COPY)
        try:
            return tiles.unbundle(data)
        except ValueError as error:
            raise BadInput(f"the entries were cut off: {error}", file=path, hint=_COPY) from None

    def _bundles(self, added: Sequence[bytes]) -> Iterator[tuple[str, bytes]]:
        """The files of entries that are new or longer with these after those of the log."""
        first = self.size - self.size % WIDTH
        found = [*self.entries(first), *added]
        for at in range(0, len(found), WIDTH):
            part = found[at : at + WIDTH]
            yield tile_path("entries", (first + at) // WIDTH, len(part)), tiles.bundle(part)

    def _drop_partial(self, before: int) -> None:
        """Remove the partial tiles that are full now. One that cannot be removed is in nobody's way."""
        for level, index, _ in tiles.edge(before):
            if self.size // WIDTH ** (level + 1) > index:
                for kind in (0, "entries") if level == 0 else (level,):
                    shutil.rmtree((self.folder / tile_path(kind, index, 1)).parent, ignore_errors=True)


def _make(folder: Path) -> None:
    """Make a folder and those above it, so that they outlast a power cut."""
    if folder.is_dir():
        return
    _make(folder.parent)
    try:
        folder.mkdir(exist_ok=True)
        flush_folder(folder.parent)
    except OSError as error:
        raise BadInput(f"cannot be made ({error.strerror})", file=folder, hint=_ROOM) from None
