"""Keep a Merkle log in a folder for any web server, sign its checkpoints, and prove its entries (C2SP tlog-tiles). SPEC 6.

    checkpoint              the signed root that everybody is shown
    signed                  the newest signed root, while witnesses are asked to cosign it; nobody is shown it
    tile/0/x001/234         256 hashes of entries; tile/1/… the roots of 256 such tiles each; and so on
    tile/0/x001/235.p/17    the last tile of a level, with the 17 hashes it has so far
    tile/entries/x001/234   the entries themselves

- Tiles are on the disk before the checkpoint that covers them; the checkpoint is then replaced at once. If a crash leaves tiles
  without a checkpoint, the next append writes them again.
- An append writes the last tiles of the levels that grow, and removes unfinished files of a writer that died. A partial tile is
  removed when its full tile is there.
- A log with witnesses publishes in two steps: `publish` writes tiles and `signed`; when enough witnesses have cosigned that,
  `show` replaces the checkpoint. The checkpoint that is shown never becomes older.
- A file is used only if it leads to the checkpoint's root; one that does not is named in the error. Only someone who saw a later
  checkpoint can see that the checkpoint itself was rolled back: `check_against`.
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
    """The path of a tile: `tile/0/x001/x234/067`, followed by `.p/W` if it has fewer than 256 hashes.

    level: 0 … 63, or "entries". Raises ValueError if there is no such tile.
    """
    known = 0 <= level <= 63 if isinstance(level, int) else level == "entries"
    if not known or index < 0 or not 1 <= width <= WIDTH:
        raise ValueError(f"there is no tile {level}/{index} of width {width}")
    *before, last = f"{index:,}".split(",")
    parts = [*(f"x{part:>03}" for part in before), f"{last:>03}"]
    return f"tile/{level}/{'/'.join(parts)}" + ("" if width == WIDTH else f".p/{width}")


def partial_tiles(size: int) -> Iterator[tuple[int, int, int]]:
    """The partial tiles of a tree, at most one a level, from the leaves up: (level, index, width)."""
    level = 0
    while size:
        if size % WIDTH:
            yield level, size // WIDTH, size % WIDTH
        size, level = size // WIDTH, level + 1


def tile_root(data: bytes) -> bytes:
    """The root over the hashes in a tile, or in a part of a tile."""
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
    grown, hashes, level = dict[TilePlace, bytes](), [leaf_hash(entry) for entry in entries], 0
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
    files = {tile_path(*at, len(data) // HASH_BYTES): data for at, data in grow_tiles({}, 0, entries).items()}
    for at in range(0, len(entries), WIDTH):
        part = entries[at : at + WIDTH]
        files[tile_path("entries", at // WIDTH, len(part))] = bundle_entries(part)
    return files


def bundle_entries(entries: Sequence[bytes]) -> bytes:
    """Entries in a file, each after its length in two bytes; ValueError if one is longer than ENTRY_BYTES."""
    if any(len(entry) > ENTRY_BYTES for entry in entries):
        raise ValueError(f"an entry is longer than {ENTRY_BYTES} bytes")
    return b"".join(len(entry).to_bytes(2, "big") + entry for entry in entries)


def unbundle_entries(data: bytes) -> list[bytes]:
    """The entries in a bundle; ValueError if it ends within one."""
    entries, at = [], 0
    while at < len(data):
        begin = at + 2
        at = begin + int.from_bytes(data[at:begin], "big")
        if at > len(data) or begin > len(data):
            raise ValueError("it ends within an entry")
        entries.append(data[begin:at])
    return entries


def is_log(folder: Path) -> bool:
    """Whether there is a log in a folder: one of its checkpoints."""
    return any((folder / name).exists() for name in (SHOWN, WAITING))


def log_key(origin: str, key: PublicKey) -> LogKey:
    """The vkey of a log with this name; raises BadInput for a name that a log cannot have, or a key that is not Ed25519."""
    if key.kind != ED25519:
        raise BadInput(f"{key} is not an Ed25519 key", hint="logs sign with Ed25519: assay keys new")
    if not allowed(origin) or not re.fullmatch(NAME, origin):
        raise BadInput(f"{brief(origin)} cannot be the name of a log", hint="use a host and a path, such as example.org/my-log")
    with as_bad_input("give the public key of the log"):
        return LogKey(key.raw, origin)


def sign_note(text: str, key: LogKey, signer: PrivateKey) -> bytes:
    """A text of whole lines as a note, signed under the log's name; ValueError if the signer has another key."""
    if signer.public.raw != key.raw or not text.endswith("\n"):
        raise ValueError("the note is not one that this key can sign")
    signature = base64.b64encode(key.hint + signer.sign(text.encode())).decode()
    return f"{text}\n— {key.name} {signature}\n".encode()


def sign_checkpoint(size: int, root: bytes, key: LogKey, signer: PrivateKey) -> bytes:
    """The signed checkpoint of a log with `size` entries; its origin is the name of the key."""
    return sign_note(f"{key.name}\n{size}\n{base64.b64encode(root).decode()}\n", key, signer)


def proof_text(proof: Proof, checkpoint: bytes) -> str:
    """A C2SP tlog-proof: the place of an entry, up to the root of the signed checkpoint, whose size is the proof's."""
    hashes = "".join(f"{base64.b64encode(hash_).decode()}\n" for hash_ in proof.hashes)
    return f"{PROOF}\nindex {proof.index}\n{hashes}\n{checkpoint.decode()}"


SHOWN, WAITING = "checkpoint", "signed"
"""The files of the checkpoint that everybody is shown, and of a newer one that waits for witnesses."""
_ROOM = "check its place, its permissions and the free space"
KEPT = 64
"""The number of checked tiles that stay in memory."""
_ABSENT = (
    "only the machine that settles has it; if it should be here, move ledger.toml away and run `assay ledger init` again with the"
    " same names"
)
_BACK = "bring the right one back from a copy"
_COPY = "bring it back from a copy; or move the log's folder away: `assay ledger check` makes it again from the database"


class Log:
    """A log in a folder, at its signed checkpoint; `key` is the log's public key and name.

    Raises BadInput, with the file, if something in the folder does not fit the checkpoint.
    """

    def __init__(self, folder: Path, key: LogKey) -> None:
        self.folder, self.key = folder, key
        self.reload()

    @classmethod
    def create(cls, folder: Path, key: LogKey, note: bytes) -> Log:
        """A new log, from the signed checkpoint of the empty tree; raises BadInput if there is a log in the folder."""
        if is_log(folder):
            raise BadInput("there is a log already", file=folder / "checkpoint", hint="choose another folder")
        with as_bad_input("sign it with the log's own key"):
            if check.check_checkpoint(note, [key]).size:
                raise check.CheckError("log", "a new log has no entries")
        _make_log(folder)
        write_bytes(folder / "checkpoint", note)
        return cls(folder, key)

    @classmethod
    def anew(cls, folder: Path, key: LogKey, note: bytes, entries: list[bytes], *, waits: bool = False) -> Log:
        """A log made from a signed checkpoint and all its entries, in a new folder: complete, or not at all.

        waits: witnesses must cosign the checkpoint before it is shown.
        Raises BadInput if it cannot be written, check.CheckError if the checkpoint is not one of these entries.
        """
        after, root = check.check_checkpoint(note, [key]), merkle.root(list(map(check.leaf_hash, entries)))
        if (after.size, after.root) != (len(entries), root):
            raise check.CheckError("log", "the checkpoint does not fit the entries", after.root.hex(), root.hex())
        beside = folder.with_name(f".{folder.name[:100]}.{secrets.token_hex(8)}.tmp")
        try:
            _make_log(beside)
            for path, data in log_files(entries).items():
                _make_log((beside / path).parent)
                write_bytes(beside / path, data)
            write_bytes(beside / (WAITING if waits else SHOWN), note)
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
        """The empty log of a ledger whose folder for it is missing: it can be read, but neither checked nor continued."""
        log = cls.__new__(cls)
        log.folder, log.key, log.note, log.checkpoint = folder, key, b"", Checkpoint(key.name, 0, check.EMPTY_ROOT)
        log._checked, log._edge = {}, {}
        return log

    def reload(self) -> None:
        """Read the checkpoint and its partial tiles again: another process may have added to the log."""
        self._check_there()
        while True:
            self.note, self.checkpoint = self._newest()
            try:
                self._read_edge()
            except BadInput:
                if self._newest()[0] == self.note:
                    raise
            else:
                return

    def _newest(self) -> tuple[bytes, Checkpoint]:
        """The newest signed checkpoint: the one that waits for witnesses, or the one that is shown."""
        shown = self._signed(SHOWN) if (self.folder / SHOWN).exists() or not (self.folder / WAITING).exists() else None
        waiting = self._signed(WAITING) if (self.folder / WAITING).exists() else None
        return max((pair for pair in (shown, waiting) if pair is not None), key=lambda pair: pair[1].size)

    def shown(self) -> Checkpoint | None:
        """The checkpoint that everybody is shown; None if none was cosigned since the log's folder was made again."""
        return self._signed(SHOWN)[1] if (self.folder / SHOWN).exists() else None

    def _signed(self, name: str) -> tuple[bytes, Checkpoint]:
        note = load(self.folder / name, check.NOTE_BYTES, hint=f"the folder of a log has one; {_COPY}")
        with as_bad_input(_COPY, file=self.folder / name):
            return note, check.check_checkpoint(note, [self.key])

    def _check_there(self) -> None:
        if not (self.folder.exists() or self.folder.is_symlink()):
            raise BadInput(
                "the log's folder is missing, and there is no receipt from which to make it again", file=self.folder, hint=_ABSENT
            )

    def _read_edge(self) -> None:
        self._checked: dict[TilePlace, bytes] = {}
        self._edge = {(level, index): self._file(level, index, width) for level, index, width in partial_tiles(self.size)}
        if root_of_tiles(self._edge, self.size) != self.checkpoint.root:
            raise self._blame()

    @property
    def size(self) -> int:
        """The number of entries."""
        return self.checkpoint.size

    def check_end(self) -> None:
        """Raise BadInput unless the log can be continued: its last entries are whole, and its folder can be written."""
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

    def publish(self, note: bytes, first: int, entries: Sequence[bytes], *, waits: bool = False) -> None:
        """Bring the folder up to a signed checkpoint; `entries` are those from number `first` up to its size.

        waits: witnesses must cosign the checkpoint before it is shown.
        A folder that is as far or further is only checked against it. Raises BadInput, with nothing written, if the checkpoint
        does not fit this log with these entries.
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
                what = f"has {self.size} entries, and {len(entries)} more from number {first} do not bring it to {after.size}"
                raise BadInput(what, file=self.folder, hint="give all entries that are missing")
            added = entries[self.size - first :]
            grown = grow_tiles(self._edge, self.size, added)
            if root_of_tiles(self._edge | grown, after.size) != after.root:
                raise BadInput("has another root with these entries than the checkpoint", file=self.folder, hint=_BACK)
            for path, data in [
                *self._bundles(added),
                *((tile_path(*at, len(data) // HASH_BYTES), data) for at, data in grown.items()),
            ]:
                _make_log((self.folder / path).parent)
                clear((self.folder / path).parent)
                write_bytes(self.folder / path, data)
            clear(self.folder)
            write_bytes(self.folder / (WAITING if waits else SHOWN), note)
            before = self.size
            self.reload()
            self._drop_partial(before)

    def show(self, note: bytes) -> None:
        """Show everybody a signed checkpoint of this log, with its cosignatures, unless a newer one is shown already.

        Raises BadInput, with nothing written, if the checkpoint is not of this log.
        """
        with as_bad_input("sign it with the log's own key", file=self.folder):
            after = check.check_checkpoint(note, [self.key])
        if not (self._is_newer(note, after) or self._waits_for(after)):
            return  # without the lock: who only reads may not write here
        with alone(self.folder):
            self.reload()
            self.check_against(after)
            if self._is_newer(note, after):
                write_bytes(self.folder / SHOWN, note)
            if self._waits_for(after):
                (self.folder / WAITING).unlink()

    def _is_newer(self, note: bytes, after: Checkpoint) -> bool:
        """Whether a checkpoint is newer than the one that is shown, or the same with more signatures."""
        if not (self.folder / SHOWN).exists():
            return True
        data, shown = self._signed(SHOWN)
        return after.size > shown.size or (after.size == shown.size and len(note) > len(data))

    def _waits_for(self, after: Checkpoint) -> bool:
        """Whether the checkpoint that waits for witnesses is not newer than this one."""
        return (self.folder / WAITING).exists() and self._signed(WAITING)[1].size <= after.size

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
        """Raise BadInput unless the log continues a checkpoint seen before: it could have been rolled back, or forked."""
        if seen.size > self.size:
            what = f"was rolled back: its size is {self.size}, and was {seen.size}"
            raise BadInput(what, file=self.folder / "checkpoint", hint=_BACK)
        if (root := self.root(seen.size)) != seen.root:
            what = f"was forked: the root of its first {seen.size} entries was {seen.root.hex()}, and is {root.hex()}"
            raise BadInput(what, file=self.folder / "checkpoint", hint=_BACK)

    def entries(self, first: int = 0) -> Iterator[bytes]:
        """The entries from number `first` on, each checked against the log."""
        for index in range(first // WIDTH, -(-self.size // WIDTH)):
            width = min(WIDTH, self.size - index * WIDTH)
            path = self._path("entries", index, width)
            hashes = self._tile(0, index)
            bundle = self._bundle(path)[:width]
            if b"".join(map(check.leaf_hash, bundle)) != hashes[: width * HASH_BYTES]:
                raise BadInput("the entries were changed: they are not those of the log", file=path, hint=_COPY)
            yield from bundle[max(0, first - index * WIDTH) :]

    def check(self) -> None:
        """Read the whole log again, from the root down to every entry; raises BadInput with the first file that is wrong."""
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
        """A checked tile: a partial one was checked with the checkpoint, a full one is checked by its hash in the tile above."""
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
        """The error that names the wrong partial tile, found by making each again from the level below."""
        for level, index, width in partial_tiles(self.size):
            again = self._edge | {(level, index): self._from_below(level, index, width)}
            if root_of_tiles(again, self.size) == self.checkpoint.root:
                return self._changed(level, index, width)
        what = "the tiles do not lead to the checkpoint's root: several were changed, or the checkpoint is of another log"
        return BadInput(what, file=self.folder / "checkpoint", hint=_COPY)

    def _from_below(self, level: int, index: int, width: int) -> bytes:
        """A partial tile, made again from the entries or the tiles below; zeros if those cannot be read."""
        try:
            if level == 0:
                bundle = self._bundle(self._path("entries", index, width))
                return b"".join(map(check.leaf_hash, bundle)).ljust(width * HASH_BYTES, b"\0")[: width * HASH_BYTES]
            return b"".join(tile_root(self._file(level - 1, index * WIDTH + at, WIDTH)) for at in range(width))
        except BadInput:
            return bytes(width * HASH_BYTES)

    def _path(self, level: int | str, index: int, width: int) -> Path:
        """The file of a tile; that of the full tile if the partial one was removed."""
        path, full = (self.folder / tile_path(level, index, size) for size in (width, WIDTH))
        return full if full.exists() and not path.exists() else path

    def _file(self, level: int, index: int, width: int) -> bytes:
        """The first `width` hashes in the file of a tile."""
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
        """The files of entries that are new or longer after these are added: (path, bytes)."""
        first = self.size - self.size % WIDTH
        entries = [*self.entries(first), *added]
        for at in range(0, len(entries), WIDTH):
            part = entries[at : at + WIDTH]
            yield tile_path("entries", (first + at) // WIDTH, len(part)), bundle_entries(part)

    def _drop_partial(self, before: int) -> None:
        """Remove the partial tiles that are full now. One that cannot be removed does no harm."""
        for level, index, _ in partial_tiles(before):
            if self.size // WIDTH ** (level + 1) > index:
                for kind in (0, "entries") if level == 0 else (level,):
                    shutil.rmtree((self.folder / tile_path(kind, index, 1)).parent, ignore_errors=True)


def _make_log(folder: Path) -> None:
    """Make a folder and its parents, flushed so that they survive a power cut."""
    if folder.is_dir():
        return
    _make_log(folder.parent)
    try:
        folder.mkdir(exist_ok=True)
        flush_folder(folder.parent)
    except OSError as error:
        raise BadInput(f"cannot be made ({error.strerror})", file=folder, hint=_ROOM) from None
