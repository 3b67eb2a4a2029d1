"""Files into and out of containers: an agent that tries to redirect them, and archives that no engine would send."""

import errno
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from assay.judge.sandbox import InfrastructureError
from assay.judge.sandbox.containers import Containers
from assay.judge.sandbox.containers.archive import Incoming, pack, unpack
from assay.judge.tree import Bounds, TooMuch, digest
from container_kit import ContainerBench, plain
from podman import sandbox

containers = pytest.fixture(scope="module")(sandbox)
bench = pytest.fixture(plain)

AMPLE = Bounds(1 << 20, 1000)


@pytest.fixture
def given_tree(tmp_path: Path) -> Path:
    """A small tree to be put in."""
    top = tmp_path / "given"
    (top / "sub").mkdir(parents=True)
    (top / "test.sh").write_text("echo tests\n")
    (top / "test.sh").chmod(0o755)
    (top / "sub" / "data").write_bytes(bytes(range(256)))
    (top / "link").symlink_to("sub/data")
    return top


def test_what_goes_in_comes_out_the_same(bench: ContainerBench, given_tree: Path) -> None:
    bench.box.put(given_tree, "/srv/a/b/tree")
    assert bench.sh("sh /srv/a/b/tree/test.sh; wc -c < /srv/a/b/tree/link").out == "tests\n256\n"
    assert bench.box.take("/srv/a/b/tree", bench.folder / "back", most_bytes=1 << 20, most_files=10)
    assert digest(bench.folder / "back") == digest(given_tree)
    assert bench.box.take("/srv/a/b/tree/test.sh", bench.folder / "one", most_bytes=100, most_files=1)
    assert (bench.folder / "one").read_text() == "echo tests\n"


def test_an_engine_that_breaks_off_is_sent_everything_again(
    bench: ContainerBench, given_tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, sent = bench.box._client.put, []

    def breaks(url: str, *, data: IO[bytes], **more: Any) -> Any:
        sent.append(data.read())
        if len(sent) > 1:
            return real(url, data=io.BytesIO(sent[-1]), **more)
        with tarfile.open(fileobj=io.BytesIO(sent[0])) as whole:
            half = whole.getmembers()[-1].offset
        real(url, data=io.BytesIO(sent[0][:half] + bytes(1024)), **more).close()
        raise requests.exceptions.ConnectionError("('Connection aborted.', BrokenPipeError(32, 'Broken pipe'))")

    monkeypatch.setattr(bench.box._client, "put", breaks)
    bench.box.put(given_tree, "/srv/tree")
    monkeypatch.undo()
    assert sent == [sent[0]] * 2
    # Nothing after the two blocks that end it: Podman's reader may be gone by then.
    with tarfile.open(fileobj=io.BytesIO(sent[0])) as whole:
        last = whole.getmembers()[-1]
    assert len(sent[0]) == last.offset_data + -(-last.size // 512) * 512 + 1024
    assert bench.box.take("/srv/tree", bench.folder / "back", most_bytes=1 << 20, most_files=10)
    assert digest(bench.folder / "back") == digest(given_tree)


def test_an_engine_that_never_takes_anything_is_trouble_in_the_end(
    bench: ContainerBench, given_tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def never(url: str, **more: Any) -> Any:
        calls.append(url)
        raise requests.exceptions.ConnectionError("broken pipe")

    monkeypatch.setattr(bench.box._client, "put", never)
    monkeypatch.setattr("assay.judge.sandbox.containers.container.time.sleep", lambda _seconds: None)
    with pytest.raises(InfrastructureError, match="broken pipe"):
        bench.box.put(given_tree, "/srv/tree")
    assert len(calls) == 3


def test_a_file_is_put_with_a_mode(bench: ContainerBench, given_tree: Path) -> None:
    bench.box.put(given_tree / "sub" / "data", "/srv/data", mode=0o400)
    assert bench.sh("stat -c '%a %u' /srv/data").out == "400 0\n"


def test_names_of_any_kind_go_in_and_out(bench: ContainerBench, tmp_path: Path) -> None:
    top = tmp_path / "names"
    top.mkdir()
    for name in (b"-rf", b" ", b"new\nline", b"\xff\xfe", "größe".encode(), b"x" * 255, b".wh.x"):
        Path(os.fsdecode(os.path.join(os.fsencode(top), name))).write_bytes(name)
    bench.box.put(top, "/srv/names")
    assert bench.box.take("/srv/names", tmp_path / "back", most_bytes=1 << 20, most_files=100)
    assert digest(tmp_path / "back") == digest(top)


STANDING = {
    "nothing": "true",
    "a full folder": "mkdir -p tests/old/deep; touch tests/old/deep/file; chmod 0 tests/old",
    "a file": "echo old > tests",
    "a link to a folder": "mkdir -p target; touch target/kept; ln -s target tests",
    "a link to a file": "echo kept > target; ln -s target tests",
    "a link to nothing": "ln -s /nowhere/at/all tests",
    "a link to itself": "ln -s tests tests",
    "a link to the host's": "ln -s /proc/1/root tests",
    "a FIFO": "mkfifo tests",
    "a socket": "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"tests\")'",
    "a file that nobody may touch": "echo old > tests; chmod 0 tests",
    "a hard link": "echo kept > target; ln target tests",
}
"""What an agent may have made of a place."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("what", STANDING)
def test_what_is_put_takes_the_place_of_whatever_stood_there(bench: ContainerBench, given_tree: Path, what: str) -> None:
    script = f"mkdir -p /srv/place; cd /srv/place; {STANDING[what]}"
    after = (
        "ls -A /srv/place/tests | sort | tr '\\n' ' '; ls -ld /srv/place/tests | cut -c1; cat /srv/place/target 2>/dev/null; true"
    )
    kept = "kept\n" if "echo kept" in STANDING[what] else ""

    assert bench.sh(script).ran.exit_code == 0
    bench.box.put(given_tree, "/srv/place/tests")
    assert bench.sh(after).out == f"link sub test.sh d\n{kept}"

    assert bench.sh(f"rm -rf /srv/place; {script}").ran.exit_code == 0
    bench.box.fresh("/srv/place/tests")
    assert bench.sh(after).out == f"d\n{kept}"

    assert bench.sh(f"rm -rf /srv/place; {script}").ran.exit_code == 0
    bench.box.put(given_tree / "test.sh", "/srv/place/tests")
    assert bench.sh("cat /srv/place/tests; ls -ld /srv/place/tests | cut -c1").out == "echo tests\n-\n"


ON_THE_WAY = {
    "a link": "mkdir /srv/elsewhere; ln -s /srv/elsewhere /srv/logs",
    "a file": "echo x > /srv/logs",
    "a FIFO": "mkfifo /srv/logs",
    "a link to itself": "ln -s logs /srv/logs",
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("what", ON_THE_WAY)
def test_a_way_that_is_no_folder_becomes_one(bench: ContainerBench, given_tree: Path, what: str) -> None:
    assert bench.sh(f"mkdir -p /srv; {ON_THE_WAY[what]}").ran.exit_code == 0
    assert not bench.box.take("/srv/logs/verifier", bench.folder / "none", most_bytes=1000, most_files=10)
    bench.box.fresh("/srv/logs/verifier")
    bench.box.put(given_tree, "/srv/logs/agent/tree")
    output = bench.sh("stat -c %F /srv/logs /srv/logs/verifier /srv/logs/agent/tree; ls -A /srv/elsewhere 2>/dev/null")
    assert output.out == "directory\n" * 3


def test_the_systems_own_links_stay(bench: ContainerBench, given_tree: Path) -> None:
    bench.box.put(given_tree / "test.sh", "/bin/mine")
    assert bench.sh("readlink /bin; /usr/bin/mine").out == "usr/bin\ntests\n"


def test_only_plain_things_come_out(bench: ContainerBench) -> None:
    script = """
        mkdir /srv/work; cd /srv/work
        echo data > file; ln file hard; ln -s file inner; ln -s /srv/work/file absolute; ln -s /etc/passwd out; ln -s ../../etc up
        mkdir folder; ln -s .. folder/back; ln -s ../.. folder/out; mkfifo fifo; chmod 0 folder
        python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'
    """
    assert bench.sh(script).ran.exit_code == 0
    target = bench.folder / "work"
    assert bench.box.take("/srv/work", target, most_bytes=1000, most_files=100)
    paths = {str(path.relative_to(target)) for path in target.rglob("*")}
    assert paths == {"file", "hard", "inner", "absolute", "folder", "folder/back"}
    assert (target / "hard").read_text() == "data\n"
    assert (target / "hard").samefile(target / "file")


@pytest.mark.parametrize(
    "script",
    ["ln -s /etc /srv/x", "ln -s /etc/passwd /srv/x", "mkfifo /srv/x", "ln -s /proc/self /srv/x", "ln -s /dev/zero /srv/x", ":"],
)
def test_what_is_neither_file_nor_folder_is_not_there(bench: ContainerBench, script: str) -> None:
    bench.sh(script)
    assert not bench.box.take("/srv/x", bench.folder / "x", most_bytes=1 << 30, most_files=100)
    assert not (bench.folder / "x").exists()


def test_a_take_is_bounded(bench: ContainerBench) -> None:
    bench.sh("mkdir -p /srv/n; cd /srv/n; seq 200 | xargs touch; truncate -s 1T hole")
    with pytest.raises(TooMuch):
        bench.box.take("/srv/n", bench.folder / "x", most_bytes=1 << 30, most_files=1000)
    bench.sh("rm /srv/n/hole")
    with pytest.raises(TooMuch):
        bench.box.take("/srv/n", bench.folder / "x", most_bytes=1 << 30, most_files=200)
    assert not (bench.folder / "x").exists()
    assert bench.box.take("/srv/n", bench.folder / "x", most_bytes=1 << 30, most_files=201)
    assert bench.sh("echo well").out == "well\n"


@pytest.mark.parametrize("place", ["relative", "/", "/srv/../etc", "", "/srv/\0"])
def test_a_path_must_be_one_of_something_in_the_box(bench: ContainerBench, place: str) -> None:
    with pytest.raises(ValueError, match="not an absolute path"):
        bench.box.fresh(place)


def test_set_user_bits_neither_go_in_nor_come_out(containers: Containers, bench: ContainerBench, tmp_path: Path) -> None:
    source = tmp_path / "program"
    source.write_text("x")
    source.chmod(0o6755)
    bench.box.put(source, "/srv/program")
    assert bench.sh("stat -c %a /srv/program; chmod 6755 /srv/program").out == "755\n"
    assert bench.box.take("/srv/program", tmp_path / "back", most_bytes=10, most_files=1)
    assert (tmp_path / "back").stat().st_mode & 0o7777 == 0o755


# What follows needs no engine.

Make = Callable[[tarfile.TarFile], None]


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", data: bytes = b"") -> Make:
    def add(archive: tarfile.TarFile) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.linkname, info.size, info.mode = kind, link, len(data), 0o755
        archive.addfile(info, io.BytesIO(data))

    return add


def archived(*makes: Make) -> io.BytesIO:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for make in makes:
            make(archive)
    file.seek(0)
    return file


TOP = member("top", tarfile.DIRTYPE)


@pytest.mark.parametrize(
    "makes",
    [
        [TOP, member("top/../../evil", data=b"x")],
        [TOP, member("/top/evil", data=b"x")],
        [TOP, member("other/evil", data=b"x")],
        [TOP, member("../top/evil", data=b"x")],
        [TOP, member("top/hard", tarfile.LNKTYPE, "/etc/passwd")],
        [TOP, member("top/hard", tarfile.LNKTYPE, "../secret")],
        [TOP, member("top/hard", tarfile.LNKTYPE, "top")],
    ],
)
def test_an_archive_with_names_from_elsewhere_is_trouble(tmp_path: Path, makes: list[Make]) -> None:
    (tmp_path / "secret").write_text("secret")
    with pytest.raises((InfrastructureError, OSError)):
        unpack(archived(*makes), tmp_path / "made", name="top", inside="/top", bounds=AMPLE)
    assert sorted(os.listdir(tmp_path)) == ["secret"]


@pytest.mark.parametrize(
    "makes",
    [
        [TOP, member("top/link", tarfile.SYMTYPE, "/tmp"), member("top/link/evil", data=b"x")],
        [TOP, member("top/link", tarfile.SYMTYPE, "."), member("top/link", data=b"x")],
        [TOP, member("top/file", data=b"x"), member("top/file", data=b"y")],
        [member("top/file", data=b"x")],
    ],
)
def test_an_archive_cannot_write_through_what_it_made(tmp_path: Path, makes: list[Make]) -> None:
    with pytest.raises((InfrastructureError, OSError)):
        unpack(archived(*makes), tmp_path / "made", name="top", inside="/top", bounds=AMPLE)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", [tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE])
def test_an_archives_devices_are_left_behind(tmp_path: Path, kind: bytes) -> None:
    assert unpack(archived(TOP, member("top/x", kind)), tmp_path / "made", name="top", inside="/top", bounds=AMPLE)
    assert os.listdir(tmp_path / "made") == []
    assert not unpack(archived(member("top", kind)), tmp_path / "none", name="top", inside="/top", bounds=AMPLE)


def test_hard_links_stay_hard_links_and_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    makes = [TOP, member("top/a", data=b"x" * 400), *(member(f"top/{n}", tarfile.LNKTYPE, "top/a") for n in range(2))]
    with pytest.raises(TooMuch):
        unpack(archived(*makes), tmp_path / "made", name="top", inside="/top", bounds=Bounds(399, 100))
    assert unpack(archived(*makes), tmp_path / "made", name="top", inside="/top", bounds=Bounds(400, 100))
    assert (tmp_path / "made" / "1").stat().st_nlink == 3
    with tarfile.open(fileobj=io.BytesIO(), mode="w") as archive:
        pack(archive, tmp_path / "made", "put")
        assert [getmember.linkname for getmember in archive.getmembers() if getmember.islnk()] == ["put/0", "put/0"]

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.EMLINK, "too many links")

    monkeypatch.setattr(os, "link", full)
    with pytest.raises(TooMuch):
        unpack(archived(*makes), tmp_path / "again", name="top", inside="/top", bounds=Bounds(1199, 100))
    assert unpack(archived(*makes), tmp_path / "again", name="top", inside="/top", bounds=Bounds(1200, 100))


def test_further_names_of_a_link_are_links_and_of_what_is_left_behind_nothing(tmp_path: Path) -> None:
    makes = [
        TOP, member("top/a", tarfile.SYMTYPE, "b"), member("top/c", tarfile.LNKTYPE, "top/a"),
        member("top/d", tarfile.FIFOTYPE), member("top/e", tarfile.LNKTYPE, "top/d"),
        member("top/f", tarfile.SYMTYPE, "../.."), member("top/g", tarfile.LNKTYPE, "top/f"),
    ]  # fmt: skip
    assert unpack(archived(*makes), tmp_path / "made", name="top", inside="/top", bounds=AMPLE)
    assert sorted(os.listdir(tmp_path / "made")) == ["a", "c"]
    assert os.readlink(tmp_path / "made" / "c") == "b"


def test_zeros_become_holes(tmp_path: Path) -> None:
    data = bytes(1 << 20) + b"x" + bytes(1 << 20)
    assert unpack(
        archived(TOP, member("top/a", data=data)), tmp_path / "made", name="top", inside="/top", bounds=Bounds(1 << 22, 9)
    )
    assert (tmp_path / "made" / "a").read_bytes() == data
    assert (tmp_path / "made" / "a").stat().st_blocks * 512 < 1 << 19


@pytest.mark.parametrize("cut", [1, 511, 512, 700, 1023])
def test_half_an_archive_is_trouble(tmp_path: Path, cut: int) -> None:
    whole = archived(member("top", data=b"x" * 600)).getvalue()
    with pytest.raises(InfrastructureError):
        unpack(io.BytesIO(whole[:cut]), tmp_path / "made", name="top", inside="/top", bounds=AMPLE)
    assert os.listdir(tmp_path) == []


@given(pieces=st.lists(st.binary(max_size=50), max_size=20), sizes=st.integers(1, 60))
def test_pieces_read_as_one(pieces: list[bytes], sizes: int) -> None:
    file = io.BufferedReader(Incoming(iter(pieces)), sizes)
    assert file.read() == b"".join(pieces)


def test_what_was_packed_unpacks_the_same(tmp_path: Path, given_tree: Path) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("skip"))
        pack(archive, given_tree, "top", mode=0o700)
    with tarfile.open(fileobj=io.BytesIO(file.getvalue())) as archive:
        names = archive.getmembers()
    assert [(name.name, name.isdir()) for name in names[:3]] == [("skip", False), ("top", False), ("top", True)]
    assert {name.name for name in names[3:]} == {"top/link", "top/sub", "top/sub/data", "top/test.sh"}
    assert {(name.uid, name.gid, name.uname) for name in names} == {(0, 0, "")}
    assert names[2].mode == 0o700
