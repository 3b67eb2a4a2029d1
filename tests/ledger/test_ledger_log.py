"""The log on disk: tiles as C2SP lays them out, proofs from them, and files that are not what they were."""

import errno
import fcntl
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.ledger import check, keys, log
from assay.ledger.log import Log
from oracle import trees

SEED = bytes([7]) * 32
SIGNER = keys.read(SEED.hex().encode())
NAME = "example.org/log"
KEY = log.log_key(NAME, SIGNER.public)
ENTRIES = [number.to_bytes(32, "big") for number in range(1500)]
LEAVES = [trees.leaf(entry) for entry in ENTRIES]


def signed(size: int, leaves: Sequence[bytes] = LEAVES) -> bytes:
    return trees.note(NAME, size, trees.tree_of(leaves[:size]), Ed25519PrivateKey.from_private_bytes(SEED)).encode()


def make_log(folder: Path, size: int = 0) -> Log:
    tlog = Log.create(folder, KEY, signed(0))
    if size:
        tlog.publish(signed(size), 0, ENTRIES[:size])
    return tlog


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# Tiles


@pytest.mark.parametrize(
    ("level", "index", "width", "path"),
    [
        (0, 0, 256, "tile/0/000"),
        (1, 67, 256, "tile/1/067"),
        (0, 999, 3, "tile/0/999.p/3"),
        (63, 1000, 255, "tile/63/x001/000.p/255"),
        ("entries", 1234067, 256, "tile/entries/x001/x234/067"),
        (0, 10**9, 1, "tile/0/x001/x000/x000/000.p/1"),
    ],
)
def test_paths_of_tiles(level: int | str, index: int, width: int, path: str) -> None:
    assert log.tile_path(level, index, width) == path == trees.tile_name(level, index, width)


@pytest.mark.parametrize("place", [(-1, 0, 1), (64, 0, 1), ("data", 0, 1), (0, -1, 1), (0, 0, 0), (0, 0, 257)])
def test_what_is_no_tile_has_no_path(place: tuple[int | str, int, int]) -> None:
    with pytest.raises(ValueError, match="there is no tile"):
        log.tile_path(*place)


def test_the_tree_of_the_specification() -> None:
    """Its own example: 70,000 entries."""
    assert list(log.partial_tiles(70_000)) == [(0, 273, 112), (1, 1, 17), (2, 0, 1)]
    assert list(log.partial_tiles(256)) == [(1, 0, 1)]
    assert list(log.partial_tiles(0)) == []


@given(st.lists(st.binary(max_size=400), max_size=6))
def test_entries_go_into_a_bundle_and_come_back(entries: list[bytes]) -> None:
    data = log.bundle_entries(entries)
    assert data == b"".join(len(entry).to_bytes(2, "big") + entry for entry in entries)
    assert log.unbundle_entries(data) == entries


def test_a_bundle_is_whole() -> None:
    for data in (b"\0", b"\0\1", b"\0\1a\0", b"\0\2a"):
        with pytest.raises(ValueError, match="it ends within an entry"):
            log.unbundle_entries(data)
    with pytest.raises(ValueError, match="an entry is longer than 65535 bytes"):
        log.bundle_entries([bytes(65_536)])
    assert log.unbundle_entries(log.bundle_entries([bytes(65_535)])) == [bytes(65_535)]


# Appending and proving


@pytest.mark.no_cover
@settings(max_examples=10)
@given(st.lists(st.sampled_from([1, 2, 100, 255, 256, 257, 400]), min_size=1, max_size=4))
def test_a_log_is_laid_out_as_c2sp_says(tmp_path_factory: pytest.TempPathFactory, steps: list[int]) -> None:
    folder = tmp_path_factory.mktemp("log")
    tlog = make_log(folder)
    size = 0
    for step in steps:
        before, size = size, min(size + step, len(ENTRIES))
        assert tlog.root_with(ENTRIES[before:size]) == trees.tree_of(LEAVES[:size])
        tlog.publish(signed(size), before, ENTRIES[before:size])
    for level in range(3):
        for index in range(-(-size // 256 ** (level + 1))):
            hashes = trees.tile(level, index, LEAVES[:size])
            if hashes:
                assert (folder / trees.tile_name(level, index, len(hashes))).read_bytes() == b"".join(hashes)
    assert list(Log(folder, KEY).entries()) == ENTRIES[:size]
    assert list(tlog.entries(size - 1)) == ENTRIES[size - 1 : size]
    partial = {name.rpartition(".p/")[0] for name in names(folder) if ".p/" in name}
    assert not partial & names(folder)
    tlog.check()


@pytest.mark.parametrize("size", [1, 255, 256, 257, 1500])
def test_proofs_come_from_tiles(tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "KEPT", 2)
    tlog = make_log(tmp_path, size)
    for of in sorted({1, size // 2 + 1, size - 1, size} - {0}):
        for index in sorted({0, of // 3, of // 2, of - 1}):
            assert list(tlog.inclusion(index, of).hashes) == trees.inclusion(index, LEAVES[:of])
            assert list(tlog.consistency(index, of)) == trees.consistency(index, LEAVES[:of])
    assert list(tlog.consistency(1)) == trees.consistency(1, LEAVES[:size])
    assert tlog.root() == trees.tree_of(LEAVES[:size])
    assert tlog.root(0) == check.EMPTY_ROOT
    for wrong in (-1, size + 1):
        with pytest.raises(ValueError, match=f"the log has {size} entries"):
            tlog.root(wrong)


def test_an_append_writes_the_last_tiles_alone(tmp_path: Path) -> None:
    tlog = make_log(tmp_path, 1100)
    before = {name: (tmp_path / name).stat().st_mtime_ns for name in names(tmp_path)}
    tlog.publish(signed(1101), 1100, ENTRIES[1100:1101])
    after = {name: (tmp_path / name).stat().st_mtime_ns for name in names(tmp_path)}
    assert {name for name in after if after[name] != before.get(name)} == {
        "checkpoint",
        "tile/0/004.p/77",
        "tile/entries/004.p/77",
    }


def test_a_log_is_as_far_as_its_checkpoint(tmp_path: Path) -> None:
    tlog = make_log(tmp_path, 300)
    assert (tlog.size, tlog.checkpoint.root) == (300, trees.tree_of(LEAVES[:300]))
    assert tlog.note == signed(300)
    tlog.publish(signed(300), 0, [])
    tlog.publish(signed(200), 200, [])
    tlog.publish(signed(302), 290, ENTRIES[290:302])
    assert Log(tmp_path, KEY).size == 302
    with pytest.raises(BadInput, match="has 302 entries, and 1 more from number 303 do not bring it to 304"):
        tlog.publish(signed(304), 303, ENTRIES[303:304])
    with pytest.raises(BadInput, match="do not bring it to 304"):
        tlog.publish(signed(304), 302, ENTRIES[302:303])
    with pytest.raises(BadInput, match="another root with these entries than the checkpoint"):
        tlog.publish(signed(303), 302, [b"another"])
    stranger = keys.new()
    with pytest.raises(BadInput, match="the note is not signed"):
        tlog.publish(log.sign_checkpoint(303, bytes(32), log.log_key(NAME, stranger.public), stranger), 302, [])
    assert Log(tmp_path, KEY).size == 302


def test_a_log_begins_empty(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="a new log has no entries"):
        Log.create(tmp_path / "log", KEY, signed(1))
    assert not (tmp_path / "log").exists()
    make_log(tmp_path / "a/b/log")
    with pytest.raises(BadInput, match="there is a log already"):
        make_log(tmp_path / "a/b/log")
    assert list(Log(tmp_path / "a/b/log", KEY).entries()) == []


def test_what_a_crash_left_is_written_again(tmp_path: Path) -> None:
    tlog = make_log(tmp_path, 300)
    (tmp_path / "tile/0/001.p/45").write_bytes(b"torn")
    (tmp_path / "tile/entries/001.p/45").write_bytes(b"torn")
    tlog.publish(signed(301), 300, ENTRIES[300:301])
    Log(tmp_path, KEY).check()


def test_a_tile_that_cannot_be_written_leaves_the_log_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tlog = make_log(tmp_path, 300)
    before = (tmp_path / "checkpoint").read_bytes()

    def full(path: Path, data: bytes) -> None:
        raise BadInput("cannot be written (No space left on device)", file=path)

    with monkeypatch.context() as patched:
        patched.setattr(log, "write_bytes", full)
        with pytest.raises(BadInput, match="No space left"):
            tlog.publish(signed(301), 300, ENTRIES[300:301])
    assert (tmp_path / "checkpoint").read_bytes() == before
    tlog.publish(signed(301), 300, ENTRIES[300:301])

    def refused(path: Path, exist_ok: bool) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "mkdir", refused)
        with pytest.raises(BadInput, match="cannot be made"):
            Log.create(tmp_path / "other", KEY, signed(0))


@pytest.mark.no_cover
def test_who_is_later_does_not_take_the_log_back(tmp_path: Path) -> None:
    make_log(tmp_path)

    def publish(sizes: Sequence[int]) -> None:
        tlog = Log(tmp_path, KEY)
        for size in sizes:
            tlog.publish(signed(size), 0, ENTRIES[:size])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(publish, [range(1, 60, 2), range(2, 61, 2)]))
    assert Log(tmp_path, KEY).size == 60


def test_the_folder_is_held_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tlog = make_log(tmp_path, 1)
    held = []

    def look(path: Path, data: bytes) -> None:
        number = os.open(tmp_path, os.O_RDONLY)
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held.append(path.name)
        finally:
            os.close(number)

    monkeypatch.setattr(log, "write_bytes", look)
    tlog.publish(signed(2), 1, ENTRIES[1:2])
    assert sorted(held) == ["2", "2", "checkpoint"]


# What is not as it was


def flip(path: Path, at: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.sampled(10)
@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("tile/0/000", 1500),
        ("tile/0/004", 1500),
        ("tile/0/005.p/220", 1500),
        ("tile/1/000.p/5", 1500),
        ("tile/entries/000", 1500),
        ("tile/entries/005.p/220", 1500),
        ("tile/1/000.p/1", 256),
        ("tile/0/000.p/3", 3),
    ],
)
@pytest.mark.parametrize("how", ["changed", "cut", "grown", "gone"])
def test_a_file_that_is_not_what_it_was_is_named(tmp_path: Path, name: str, size: int, how: str) -> None:
    make_log(tmp_path, size)
    path = tmp_path / name
    data = path.read_bytes()
    if how == "changed":
        flip(path, len(data) - 1)
    elif how == "cut":
        path.write_bytes(data[:-1])
    elif how == "grown":
        path.write_bytes(data + b"\0")
    else:
        path.unlink()
    with pytest.raises(BadInput) as caught:
        Log(tmp_path, KEY).check()
    assert caught.value.file == path


def test_a_proof_is_not_made_from_a_changed_tile(tmp_path: Path) -> None:
    tlog = make_log(tmp_path, 1500)
    flip(tmp_path / "tile/0/002")
    assert tlog.inclusion(0).size == 1500
    with pytest.raises(BadInput, match="tile/0/002: the tile was changed"):
        tlog.inclusion(600)
    with pytest.raises(BadInput, match="tile/0/002: the tile was changed"):
        list(tlog.entries(600))


def test_several_wrong_tiles_are_somebodys_doing(tmp_path: Path) -> None:
    make_log(tmp_path, 1500)
    flip(tmp_path / "tile/0/005.p/220")
    flip(tmp_path / "tile/1/000.p/5")
    with pytest.raises(BadInput, match="checkpoint: the tiles do not lead to the checkpoint's root"):
        Log(tmp_path, KEY)


def test_what_is_below_a_wrong_tile_may_be_gone(tmp_path: Path) -> None:
    make_log(tmp_path, 1500)
    flip(tmp_path / "tile/0/005.p/220")
    (tmp_path / "tile/entries/005.p/220").unlink()
    (tmp_path / "tile/0/003").unlink()
    with pytest.raises(BadInput, match="several were changed"):
        Log(tmp_path, KEY)


def test_the_full_tile_stands_in_for_a_partial_one(tmp_path: Path) -> None:
    make_log(tmp_path, 300).publish(signed(600), 300, ENTRIES[300:600])
    (tmp_path / "checkpoint").write_bytes(signed(300))
    rolled_back = Log(tmp_path, KEY)
    assert list(rolled_back.entries(299)) == ENTRIES[299:300]
    rolled_back.check()


def test_a_checkpoint_that_went_back_is_seen_by_who_saw_the_later_one(tmp_path: Path) -> None:
    tlog = make_log(tmp_path, 300)
    tlog.publish(signed(600), 300, ENTRIES[300:600])
    seen = tlog.checkpoint
    (tmp_path / "checkpoint").write_bytes(signed(300))
    with pytest.raises(BadInput, match="checkpoint: was rolled back: its size is 300, and was 600"):
        Log(tmp_path, KEY).check_against(seen)


def test_a_fork_is_seen_by_who_saw_the_other_branch(tmp_path: Path) -> None:
    tlog = make_log(tmp_path, 600)
    other = [*LEAVES[:299], trees.leaf(b"other"), *LEAVES[300:]]
    tlog.check_against(check.check_checkpoint(signed(299, other), [KEY]))
    with pytest.raises(BadInput, match="was forked: the root of its first 300 entries was"):
        tlog.check_against(check.check_checkpoint(signed(300, other), [KEY]))
    with pytest.raises(BadInput, match="was forked"):
        tlog.publish(signed(600, other), 0, ENTRIES[:600])


def test_the_checkpoint_is_of_the_log(tmp_path: Path) -> None:
    make_log(tmp_path, 3)
    with pytest.raises(BadInput, match="the note is not signed by the key"):
        Log(tmp_path, log.log_key(NAME, keys.new().public))
    (tmp_path / "checkpoint").unlink()
    with pytest.raises(BadInput, match="no such file; the folder of a log has one"):
        Log(tmp_path, KEY)


def test_a_log_that_grows_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between checkpoint and tiles another process adds: the partial tiles go that the first checkpoint spoke of."""
    make_log(tmp_path, 255)
    whole, grown = Log(tmp_path, KEY), False
    read = Log._read_edge

    def late(tlog: Log) -> None:
        nonlocal grown
        if not grown and tlog is not whole:
            grown = True
            monkeypatch.undo()
            whole.publish(signed(256), 255, ENTRIES[255:256])
            monkeypatch.setattr(Log, "_read_edge", late)
            (tmp_path / "tile/0/000").rename(tmp_path / "aside")  # as if the full one were not seen yet
            try:
                read(tlog)
            finally:
                (tmp_path / "aside").rename(tmp_path / "tile/0/000")
        else:
            read(tlog)

    monkeypatch.setattr(Log, "_read_edge", late)
    assert Log(tmp_path, KEY).size == 256
