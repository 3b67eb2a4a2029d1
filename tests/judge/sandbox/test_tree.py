"""Trees of files: what a digest covers, what a copy keeps and skips, and that no link is followed."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.judge import tree
from assay.judge.tree.handles import BLOCK

MANY = tree.Bounds(bytes=10_000_000, files=1000)


def line(kind: str, content: str, path: str) -> str:
    return f"{kind} {content} {path}\n"


def of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def make_tree(root: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def test_a_digest_is_the_hash_of_the_lines_that_the_module_describes(tmp_path: Path) -> None:
    make_tree(tmp_path / "t", {"b/x": b"one", "a b": b"", "b.c": b"two"})
    (tmp_path / "t" / "b" / "x").chmod(0o755)
    (tmp_path / "t" / "b.c").chmod(0o644)
    (tmp_path / "t" / "a b").chmod(0o600)
    (tmp_path / "t" / "l").symlink_to("nowhere")
    lines = [
        line("folder", "-", "."),
        line("file", of(b""), "a%20b"),
        line("folder", "-", "b"),
        line("exec", of(b"one"), "b/x"),
        line("file", of(b"two"), "b.c"),
        line("link", of(b"nowhere"), "l"),
    ]
    assert tree.digest(tmp_path / "t") == f"sha256:{of(''.join(lines).encode())}"


@pytest.mark.parametrize(
    "change",
    [
        lambda t: (t / "a").write_bytes(b"2"),
        lambda t: (t / "a").chmod(0o755),
        lambda t: (t / "a").rename(t / "b"),
        lambda t: (t / "new").mkdir(),
        lambda t: ((t / "a").unlink(), (t / "a").symlink_to("1")),
        lambda t: ((t / "a").unlink(), (t / "a").mkdir()),
        lambda t: os.mkfifo(t / "f"),
        lambda t: (t / "a\nfile - b").write_bytes(b""),
    ],
)
def test_every_change_changes_the_digest(tmp_path: Path, change: object) -> None:
    root = make_tree(tmp_path / "t", {"a": b"1"})
    before = tree.digest(root)
    assert callable(change)
    change(root)
    assert tree.digest(root) != before


def test_times_owners_and_other_permissions_do_not_change_the_digest(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "t", {"a": b"1"})
    before = tree.digest(root)
    (root / "a").chmod(0o664)
    root.chmod(0o700)
    os.utime(root / "a", (1, 1))
    assert tree.digest(root) == before


def test_a_hole_and_written_zeros_are_the_same_and_a_huge_hole_is_cheap(tmp_path: Path) -> None:
    size = 5 * BLOCK + 7
    for name in ("hole", "zeros"):
        (tmp_path / name).mkdir()
    with (tmp_path / "hole" / "x").open("wb") as file:
        file.truncate(size)
        file.seek(2 * BLOCK + 3)
        file.write(b"data")
    data = bytearray(size)
    data[2 * BLOCK + 3 : 2 * BLOCK + 7] = b"data"
    (tmp_path / "zeros" / "x").write_bytes(bytes(data))
    assert tree.digest(tmp_path / "hole") == tree.digest(tmp_path / "zeros")
    assert tree.copy(tmp_path / "zeros", tmp_path / "copy").bytes == size
    assert (tmp_path / "copy" / "x").read_bytes() == bytes(data)

    with (tmp_path / "hole" / "x").open("r+b") as file:
        file.truncate(1 << 40)
    small = tree.Bounds(bytes=1_000_000, files=10)
    assert tree.digest(tmp_path / "hole", bounds=small) != tree.digest(tmp_path / "zeros", bounds=small)
    tree.copy(tmp_path / "hole", tmp_path / "huge", bounds=small)
    assert (tmp_path / "huge" / "x").stat().st_size == 1 << 40
    assert tree.digest(tmp_path / "huge") == tree.digest(tmp_path / "hole")


blocks = st.sampled_from([b"", b"\0", b"a", bytes(BLOCK), b"x" * BLOCK, bytes(BLOCK - 1) + b"e"])


@given(st.lists(blocks, max_size=4), st.lists(blocks, max_size=4))
def test_two_files_have_one_digest_only_if_they_are_equal(first: list[bytes], two: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as name:
        make_tree(Path(name), {"1": b"".join(first), "2": b"".join(two)})
        same = tree.digest(Path(name, "1")) == tree.digest(Path(name, "2"))
    assert same == (b"".join(first) == b"".join(two))


names = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=8).filter(
    lambda name: name not in (".", "..")
)
trees = st.recursive(
    st.binary(max_size=20) | st.sampled_from(["x", "./y/z", "a/b"]).map(lambda target: ("link", target)),
    lambda inner: st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)


def build(place: Path, what: object) -> None:
    if isinstance(what, dict):
        place.mkdir()
        for name, inner in what.items():
            build(place / name, inner)
    elif isinstance(what, tuple):
        place.symlink_to(what[1])
    else:
        assert isinstance(what, bytes)
        place.write_bytes(what)


@given(st.dictionaries(names, trees, max_size=4))
def test_a_copy_is_equal_and_a_removal_complete(what: dict[str, object]) -> None:
    with tempfile.TemporaryDirectory() as name:
        root, target = Path(name, "t"), Path(name, "copy")
        build(root, what)
        copied = tree.copy(root, target)
        assert (copied.left, copied.files) == (0, len(list(tree.walk(root))))
        assert tree.digest(target) == tree.digest(root)
        tree.remove(target)
        assert sorted(os.listdir(name)) == ["t"]


def test_a_copy_keeps_permissions_and_times_but_no_set_uid(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "t", {"d/x": b"1"})
    (root / "d" / "x").chmod(0o4751)
    (root / "d").chmod(0o2550)
    os.utime(root / "d" / "x", ns=(5, 1_500_000_000_123_456_789))
    tree.copy(root, tmp_path / "c")
    assert (tmp_path / "c" / "d" / "x").stat().st_mode & 0o7777 == 0o751
    assert (tmp_path / "c" / "d").stat().st_mode & 0o7777 == 0o550
    assert (tmp_path / "c" / "d" / "x").stat().st_mtime_ns == 1_500_000_000_123_456_789
    tree.remove(tmp_path / "c")


def test_devices_sockets_fifos_and_leaving_links_are_left_behind(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "t", {"d/x": b"1"})
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(root / "sock"))
    links = {
        "d/in": "../d/x", "d/up": "..", "in2": "d/./x", "abs": "/app/d/x",
        "out": "../t/d/x", "d/out": "../../etc/passwd", "abs-out": "/etc/passwd", "abs-up": "/app/d/../../etc/passwd",
        "prefix": "/application/x", "later": "d/in/../../../etc/passwd", "later2": "d/../d/x",
    }  # fmt: skip
    for name, target in links.items():
        (root / name).symlink_to(target)
    copied = tree.copy(root, tmp_path / "c", inside="/app")
    kept = {entry.path for entry in tree.walk(tmp_path / "c")}
    assert kept == {".", "d", "d/x", "d/in", "d/up", "in2", "abs"}
    assert copied.left == 9
    assert set(copied.names) == {"fifo", "sock", "out", "d/out", "abs-out", "abs-up", "prefix", "later", "later2"}
    assert os.readlink(tmp_path / "c" / "d" / "in") == "../d/x"
    assert tree.copy(root, tmp_path / "c2").left == 10


@pytest.mark.parametrize("act", [tree.digest, lambda root, way: tree.copy(root, root.parent / "c", beneath=way)])
def test_nothing_is_reached_through_a_link(tmp_path: Path, act: object) -> None:
    make_tree(tmp_path, {"secret/f/x": b"secret", "t/real/x": b"1"})
    (tmp_path / "t" / "way").symlink_to(tmp_path / "secret")
    assert callable(act)
    for way in ("way/f", "way/f/x", "real/x/y", "none", "none/x"):
        with pytest.raises(tree.Missing):
            act(tmp_path / "t", way)
    act(tmp_path / "t", "real")


def test_a_top_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    make_tree(tmp_path, {"secret/x": b"secret"})
    (tmp_path / "app").symlink_to("secret")
    assert [entry.kind for entry in tree.walk(tmp_path / "app")] == ["link"]
    with pytest.raises(tree.NotPlain):
        tree.copy(tmp_path / "app", tmp_path / "c")
    tree.remove(tmp_path / "app")
    assert (tmp_path / "secret" / "x").read_bytes() == b"secret"


def test_a_path_beneath_cannot_go_up(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a path beneath"):
        tree.peek(tmp_path, "../x", most=1)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        (tree.Bounds(bytes=1000, files=3), "more than 3 files"),
        (tree.Bounds(bytes=2, files=100), "more than 2 bytes"),
        (tree.Bounds(bytes=1000, files=100, depth=1), "more than 1 deep"),
    ],
)
def test_what_is_over_its_bounds_is_refused_and_leaves_nothing(tmp_path: Path, bounds: tree.Bounds, message: str) -> None:
    root = make_tree(tmp_path / "t", {"a/b": b"12", "c": b"3"})
    with pytest.raises(tree.TooMuch, match=message):
        tree.copy(root, tmp_path / "c", bounds=bounds)
    with pytest.raises(tree.TooMuch, match=message):
        tree.digest(root, bounds=bounds)
    assert sorted(os.listdir(tmp_path)) == ["t"]
    exact = tree.Bounds(bytes=3, files=4, depth=2)
    assert tree.copy(root, tmp_path / "c", bounds=exact) == tree.Copied(4, 3)


def test_hard_links_stay_hard_links_and_are_copied_and_read_once(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "t", {"a": b"12345", "deep/er/x": b"1"})
    for name in ("b", "deep/c", "deep/er/d"):
        os.link(root / "a", root / name)
    os.symlink("a", root / "s")
    os.link(root / "s", root / "s2", follow_symlinks=False)
    copied = tree.copy(root, tmp_path / "c", bounds=tree.Bounds(bytes=6, files=20))
    assert copied.bytes == 6
    assert (tmp_path / "c" / "a").stat().st_nlink == 4
    assert (tmp_path / "c" / "deep" / "er" / "d").read_bytes() == b"12345"
    assert (tmp_path / "c" / "s2").lstat().st_nlink == 2
    assert tree.digest(root) == tree.digest(tmp_path / "c")


def test_copies_into_one_folder_share_their_hard_links(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "t", {"a/x": b"12345", "b/y": b"1"})
    os.link(root / "a" / "x", root / "b" / "x")
    (tmp_path / "c").mkdir()
    links = tree.Links(tmp_path / "c")
    for name in ("a", "b"):
        tree.copy(root, tmp_path / "c" / name, beneath=name, links=links)
    assert (tmp_path / "c" / "a" / "x").samefile(tmp_path / "c" / "b" / "x")


def test_hard_links_keep_their_file_at_the_end_of_a_path_that_is_too_long_for_the_kernel(tmp_path: Path) -> None:
    here = tmp_path / "t"
    here.mkdir()
    number = os.open(here, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("n" * 250, dir_fd=number)
        inner = os.open("n" * 250, os.O_RDONLY, dir_fd=number)
        os.close(number)
        number = inner
    with open(os.open("first", os.O_WRONLY | os.O_CREAT, dir_fd=number), "wb") as file:
        file.write(b"12345")
    os.link("first", "second", src_dir_fd=number, dst_dir_fd=number)
    os.close(number)
    try:
        assert tree.copy(here, tmp_path / "c").bytes == 5
    finally:
        tree.remove(here)
        tree.remove(tmp_path / "c")


def test_a_file_that_can_have_no_more_names_is_copied_and_counts_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_tree(tmp_path / "t", {"a": b"12345"})
    os.link(root / "a", root / "b")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.EMLINK, "too many links")

    monkeypatch.setattr(os, "link", full)
    assert tree.copy(root, tmp_path / "c").bytes == 10
    monkeypatch.setattr(os, "link", lambda *_, **__: os.stat(tmp_path / "nothing"))
    with pytest.raises(FileNotFoundError):
        tree.copy(root, tmp_path / "d")


def test_a_copy_takes_up_what_was_written_and_not_what_lies_between(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    with open(tmp_path / "t" / "a", "wb") as file:
        for number in range(64):
            file.seek(number * BLOCK)
            file.write(b"x" * 4096)
    taken = tree.measure(tmp_path / "t").bytes
    assert tree.copy(tmp_path / "t", tmp_path / "c", bounds=tree.Bounds(bytes=taken + BLOCK, files=2)).bytes <= taken
    assert tree.measure(tmp_path / "c").bytes <= taken + BLOCK
    assert tree.digest(tmp_path / "t") == tree.digest(tmp_path / "c")


def test_a_digest_counts_every_name_unless_it_is_told_once(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "t", {"a": bytes(3 * BLOCK)})
    for name in "bcd":
        os.link(root / "a", root / name)
    assert tree.copy(root, tmp_path / "c", bounds=tree.Bounds(bytes=3 * BLOCK, files=100)).bytes == 3 * BLOCK
    whole = tree.digest(root)
    with pytest.raises(tree.TooMuch):
        tree.digest(root, bounds=tree.Bounds(bytes=11 * BLOCK, files=100))
    assert tree.digest(root, bounds=tree.Bounds(bytes=12 * BLOCK, files=100)) == whole
    assert tree.digest(root, bounds=tree.Bounds(bytes=3 * BLOCK, files=100), once=True) == whole


def test_an_existing_target_is_not_touched(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "t", {"a": b"1"})
    make_tree(tmp_path / "c", {"mine": b"2"})
    with pytest.raises(FileExistsError):
        tree.copy(root, tmp_path / "c")
    assert (tmp_path / "c" / "mine").read_bytes() == b"2"


def test_peek_reads_plain_files_only(tmp_path: Path) -> None:
    make_tree(tmp_path, {"logs/reward.txt": b"1\n", "elsewhere": b"1"})
    (tmp_path / "logs" / "link").symlink_to("reward.txt")
    os.mkfifo(tmp_path / "logs" / "fifo")
    assert tree.peek(tmp_path, "logs/reward.txt", most=2) == b"1\n"
    assert tree.peek(tmp_path, "logs/none", most=2) is None
    assert tree.peek(tmp_path, "none/none", most=2) is None
    with pytest.raises(tree.TooMuch):
        tree.peek(tmp_path, "logs/reward.txt", most=1)
    for name in ("link", "fifo", "."):
        with pytest.raises(tree.NotPlain):
            tree.peek(tmp_path / "logs" / name, most=100)


def test_measure_counts_a_file_with_several_names_once_and_holes_not_at_all(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "t", {"a": os.urandom(100_000)})
    alone = tree.measure(root)
    os.link(root / "a", root / "b")
    with (root / "hole").open("wb") as file:
        file.truncate(1 << 40)
    both = tree.measure(root)
    assert alone.bytes >= 100_000
    assert (both.files, alone.files) == (4, 2)
    assert both.bytes - alone.bytes < 100_000
    assert tree.measure(tmp_path / "none").files == 0
    with pytest.raises(tree.TooMuch):
        tree.measure(root, bounds=tree.Bounds(bytes=0, files=3))


def test_room_is_what_the_file_system_says(tmp_path: Path) -> None:
    assert 0 < tree.room(tmp_path).bytes <= os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize


def test_a_very_deep_tree_is_refused_and_can_be_removed() -> None:
    # Not in tmp_path: should this fail, pytest could not clear away so deep a folder, then or later.
    top = Path(tempfile.mkdtemp())
    try:
        here = os.open(top, os.O_RDONLY)
        for _ in range(2500):  # longer than any path that the system takes
            os.mkdir("d" * 10, dir_fd=here)
            inner = os.open("d" * 10, os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = inner
        os.close(here)
        with pytest.raises(tree.TooMuch, match="deep"):
            tree.digest(top / ("d" * 10))
        tree.remove(top / ("d" * 10))
        assert os.listdir(top) == []
    finally:
        subprocess.run(["rm", "-rf", top], check=True)


@contextmanager
def nobody(folder: Path) -> Iterator[None]:
    """As a user whom permissions bind; a root user becomes one for a while."""
    if os.geteuid() != 0:
        yield
        return
    for top, folders, files in os.walk(folder):
        for name in (".", *folders, *files):
            os.chown(os.path.join(top, name), 65534, 65534)
    os.setegid(65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def test_what_its_owner_closed_is_copied_if_asked_and_always_removed() -> None:
    with tempfile.TemporaryDirectory() as name:
        root = make_tree(Path(name) / "t", {"shut/x": b"1", "open/y": b"2"})
        with nobody(Path(name)):
            (root / "shut" / "x").chmod(0)
            (root / "shut").chmod(0)
            (root / "open").chmod(0o500)
            with pytest.raises(PermissionError):
                tree.copy(root, Path(name) / "c")
            assert not (Path(name) / "c").exists()
            tree.copy(root, Path(name) / "c", mend=True)
            assert (Path(name) / "c" / "shut").stat().st_mode & 0o777 == 0
            (root / "shut").chmod(0)
            tree.remove(root)
            tree.remove(Path(name) / "c")
            assert os.listdir(name) == []


def test_removing_touches_no_permission_through_a_link(tmp_path: Path) -> None:
    make_tree(tmp_path, {"mine/x": b"1", "t/y": b"2"})
    (tmp_path / "mine").chmod(0o500)
    (tmp_path / "t" / "link").symlink_to(tmp_path / "mine")
    tree.remove(tmp_path / "t")
    tree.remove(tmp_path / "t")
    tree.remove(tmp_path / "none" / "t")
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o500
    assert (tmp_path / "mine" / "x").read_bytes() == b"1"
