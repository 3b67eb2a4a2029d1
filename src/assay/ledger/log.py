"""The pieces that a log is kept in: tiles of hashes and bundles of entries, and what their files are called (C2SP tlog-tiles).

Signing what a log says of itself: checkpoints as signed notes, and proofs with them (C2SP). SPEC 6.

The log on disk: a folder of files that never change and a checkpoint, for any web server to serve (C2SP tlog-tiles). SPEC 6.

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

import base64
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from assay.characters import allowed
from assay.errors import BadInput, brief
from assay.folder.files import alone, clear, flush_folder, load, write_bytes
from assay.ledger import check, merkle
from assay.ledger.check import NAME, PROOF, Checkpoint, LogKey, leaf_hash
from assay.ledger.keys import ED25519, PrivateKey, PublicKey, as_bad_input
from assay.ledger.merkle import Proof

WIDTH = 256
"""Hashes of a full tile."""
HASH_BYTES = 32
"""Bytes of a hash."""
ENTRY_BYTES = 2**16 - 1
"""Bytes of an entry."""

TilePlace = tuple[int, int]
"""Level and number of a tile."""


def tile_path(level: int | str, index: int, width: int = WIDTH) -> str:
    """Where a tile is: `tile/0/x001/x234/067`, with `.p/W` after it where it has fewer than 256 hashes.

    level: 0 … 63, or "entries". Raises ValueError if there is no such tile.
    """
    known = 0 <= level <= 63 if isinstance(level, int) else level == "entries"
    if not known or index < 0 or not 1 <= width <= WIDTH:
        raise ValueError(f"there is no tile {level}/{index} of width {width}")
    *before, last = f"{index:,}".split(",")
    parts = [*(f"x{part:>03}" for part in before), f"{last:>03}"]
    return f"tile/{level}/{'/'.join(parts)}" + ("" if width == WIDTH else f".p/{width}")


def partial_tiles(size: int) -> Iterator[tuple[int, int, int]]:
    """The partial tiles of a tree, one a level at most, from the leaves up: (level, index, width)."""
    level = 0
    while size:
        if size % WIDTH:
            yield level, size // WIDTH, size % WIDTH
        size, level = size // WIDTH, level + 1


def tile_root(data: bytes) -> bytes:
    """The root over the hashes in a tile, or in a part of one."""
    return merkle.root([data[at : at + HASH_BYTES] for at in range(0, len(data), HASH_BYTES)])


def root_of_tiles(tiles: Mapping[TilePlace, bytes], size: int) -> bytes:
    """The root of a tree of `size` leaves, from its partial tiles."""

    def node(level: int, index: int) -> bytes:
        tile, rest = divmod(level, 8)
        place, begin = divmod(index << rest, WIDTH)
        return tile_root(tiles[tile, place][begin * HASH_BYTES : (begin + (1 << rest)) * HASH_BYTES])

    return merkle.span(node, 0, size)


def grow_tiles(tiles: Mapping[TilePlace, bytes], size: int, entries: Sequence[bytes]) -> dict[TilePlace, bytes]:
    """The tiles that are new or longer when entries are added to a tree of `size` leaves with these partial tiles."""
    grown, hashes, level = dict[TilePlace, bytes](), [leaf_hash(one) for one in entries], 0
    while hashes:
        index = size // WIDTH
        data = (tiles[level, index] if size % WIDTH else b"") + b"".join(hashes)
        hashes = []
        for at in range(0, len(data), WIDTH * HASH_BYTES):
            grown[level, index] = chunk = data[at : at + WIDTH * HASH_BYTES]
            index += 1
            if len(chunk) == WIDTH * HASH_BYTES:
                hashes.append(tile_root(chunk))
        size, level = size // WIDTH, level + 1
    return grown


def log_files(entries: Sequence[bytes]) -> dict[str, bytes]:
    """All tiles and bundles of a log with these entries: path → bytes."""
    found = {tile_path(*at, len(data) // HASH_BYTES): data for at, data in grow_tiles({}, 0, entries).items()}
    for at in range(0, len(entries), WIDTH):
        part = entries[at : at + WIDTH]
        found[tile_path("entries", at // WIDTH, len(part))] = bundle_entries(part)
    return found


def bundle_entries(entries: Sequence[bytes]) -> bytes:
    """Entries in a file, each after its length in two bytes; ValueError if one is longer than ENTRY_BYTES."""
    if any(len(one) > ENTRY_BYTES for one in entries):
        raise ValueError(f"an entry is longer than {ENTRY_BYTES} bytes")
    return b"".join(len(one).to_bytes(2, "big") + one for one in entries)


def unbundle_entries(data: bytes) -> list[bytes]:
    """The entries in a bundle; ValueError if it ends within one."""
    found, at = [], 0
    while at < len(data):
        begin = at + 2
        at = begin + int.from_bytes(data[at:begin], "big")
        if at > len(data) or begin > len(data):
            raise ValueError("it ends within an entry")
        found.append(data[begin:at])
    return found


def log_key(origin: str, key: PublicKey) -> LogKey:
    """The vkey of a log of that name; raises BadInput if the name cannot be one, or if the key is not Ed25519."""
    if key.kind != ED25519:
        raise BadInput(f"{key} is not an Ed25519 key", hint="logs sign with Ed25519: assay keys new")
    if not allowed(origin) or not re.fullmatch(NAME, origin):
        raise BadInput(f"{brief(origin)} cannot be the name of a log", hint="use a host and a path, such as example.org/my-log")
    with as_bad_input("give the public key of the log"):
        return LogKey(key.raw, origin)


def sign_note(text: str, key: LogKey, signer: PrivateKey) -> bytes:
    """The text, which ends a line, as a note signed under the name of the log; ValueError if the signer's key is another."""
    if signer.public.raw != key.raw or not text.endswith("\n"):
        raise ValueError("the note is not one that this key can sign")
    signature = base64.b64encode(key.hint + signer.sign(text.encode())).decode()
    return f"{text}\n— {key.name} {signature}\n".encode()


def sign_checkpoint(size: int, root: bytes, key: LogKey, signer: PrivateKey) -> bytes:
    """The signed checkpoint of a log with `size` entries; its origin is the name of the key."""
    return sign_note(f"{key.name}\n{size}\n{base64.b64encode(root).decode()}\n", key, signer)


def proof_text(proof: Proof, checkpoint: bytes) -> str:
    """A C2SP tlog-proof: the place of an entry, up to the root of the signed checkpoint, whose size is the proof's."""
    hashes = "".join(f"{base64.b64encode(one).decode()}\n" for one in proof.hashes)
    return f"{PROOF}\nindex {proof.index}\n{hashes}\n{checkpoint.decode()}"


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
                raise check.CheckError("log", "a new log has no entries")
        _make_log(folder)
        write_bytes(folder / "checkpoint", note)
        return cls(folder, key)

    @classmethod
    def anew(cls, folder: Path, key: LogKey, note: bytes, entries: list[bytes]) -> Log:
        """A log with all its entries, from a signed checkpoint, in a folder that is not there yet: made whole or not at all.

        Raises BadInput if it cannot be written, check.CheckError if the checkpoint is not that of these entries.
        """
        after, root = check.check_checkpoint(note, [key]), merkle.root(list(map(check.leaf_hash, entries)))
        if (after.size, after.root) != (len(entries), root):
            raise check.CheckError("log", "the checkpoint is not that of its entries", after.root.hex(), root.hex())
        beside = folder.with_name(f".{folder.name[:100]}.{secrets.token_hex(8)}.tmp")
        try:
            _make_log(beside)
            for path, data in log_files(entries).items():
                _make_log((beside / path).parent)
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
        self._checked: dict[TilePlace, bytes] = {}
        self._edge = {(level, index): self._file(level, index, width) for level, index, width in partial_tiles(self.size)}
        if root_of_tiles(self._edge, self.size) != self.checkpoint.root:
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
        return root_of_tiles(self._edge | grow_tiles(self._edge, self.size, entries), self.size + len(entries))

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
            grown = grow_tiles(self._edge, self.size, added)
            if root_of_tiles(self._edge | grown, after.size) != after.root:
                raise BadInput("with these entries it has another root than the checkpoint", file=self.folder, hint=_BACK)
            for path, data in [
                *self._bundles(added),
                *((tile_path(*at, len(data) // HASH_BYTES), data) for at, data in grown.items()),
            ]:
                _make_log((self.folder / path).parent)
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
            if b"".join(map(check.leaf_hash, found)) != hashes[: width * HASH_BYTES]:
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
        return tile_root(self._tile(tile, place)[begin * HASH_BYTES : (begin + (1 << rest)) * HASH_BYTES])

    def _tile(self, level: int, index: int) -> bytes:
        """A tile, checked: a partial one by the checkpoint, when it was read; a full one by its hash in the tile above."""
        place = (level, index)
        if place in self._edge:
            return self._edge[place]
        if place not in self._checked:
            data = self._file(level, index, WIDTH)
            above, at = divmod(index, WIDTH)
            if tile_root(data) != self._tile(level + 1, above)[at * HASH_BYTES : (at + 1) * HASH_BYTES]:
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
        for level, index, width in partial_tiles(self.size):
            again = self._edge | {(level, index): self._from_below(level, index, width)}
            if root_of_tiles(again, self.size) == self.checkpoint.root:
                return self._changed(level, index, width)
        what = "the tiles do not lead to the checkpoint's root: several were changed, or it is the checkpoint of another log"
        return BadInput(what, file=self.folder / "checkpoint", hint=_COPY)

    def _from_below(self, level: int, index: int, width: int) -> bytes:
        """A partial tile, made again from the entries or from the tiles below; zeros if those cannot be read either."""
        try:
            if level == 0:
                found = self._bundle(self._path("entries", index, width))
                return b"".join(map(check.leaf_hash, found)).ljust(width * HASH_BYTES, b"\0")[: width * HASH_BYTES]
            return b"".join(tile_root(self._file(level - 1, index * WIDTH + at, WIDTH)) for at in range(width))
        except BadInput:
            return bytes(width * HASH_BYTES)

    def _path(self, level: int | str, index: int, width: int) -> Path:
        """The file of a tile; that of the full one where the partial one has gone."""
        path, full = (self.folder / tile_path(level, index, one) for one in (width, WIDTH))
        return full if full.exists() and not path.exists() else path

    def _file(self, level: int, index: int, width: int) -> bytes:
        """The first `width` hashes of a tile as its file has them."""
        path = self._path(level, index, width)
        data = load(path, WIDTH * HASH_BYTES, hint=_COPY)
        whole = WIDTH if path == self.folder / tile_path(level, index) else width
        if len(data) != whole * HASH_BYTES:
            raise BadInput(
                f"the tile was cut off or has grown: {len(data)} bytes, not {whole * HASH_BYTES}", file=path, hint=_COPY
            )
        return data[: width * HASH_BYTES]

    def _bundle(self, path: Path) -> list[bytes]:
        data = load(path, WIDTH * (ENTRY_BYTES + 2), hint=_COPY)
        try:
            return unbundle_entries(data)
        except ValueError as error:
            raise BadInput(f"the entries were cut off: {error}", file=path, hint=_COPY) from None

    def _bundles(self, added: Sequence[bytes]) -> Iterator[tuple[str, bytes]]:
        """The files of entries that are new or longer with these after those of the log."""
        first = self.size - self.size % WIDTH
        found = [*self.entries(first), *added]
        for at in range(0, len(found), WIDTH):
            part = found[at : at + WIDTH]
            yield tile_path("entries", (first + at) // WIDTH, len(part)), bundle_entries(part)

    def _drop_partial(self, before: int) -> None:
        """Remove the partial tiles that are full now. One that cannot be removed is in nobody's way."""
        for level, index, _ in partial_tiles(before):
            if self.size // WIDTH ** (level + 1) > index:
                for kind in (0, "entries") if level == 0 else (level,):
                    shutil.rmtree((self.folder / tile_path(kind, index, 1)).parent, ignore_errors=True)


def _make_log(folder: Path) -> None:
    """Make a folder and those above it, so that they outlast a power cut."""
    if folder.is_dir():
        return
    _make_log(folder.parent)
    try:
        folder.mkdir(exist_ok=True)
        flush_folder(folder.parent)
    except OSError as error:
        raise BadInput(f"cannot be made ({error.strerror})", file=folder, hint=_ROOM) from None
