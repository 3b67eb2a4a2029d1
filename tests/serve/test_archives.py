"""Archives from strangers: an honest one comes through as it was; each attack is refused with one sentence, nothing written."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import stat
import struct
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import pytest

import boxes
from assay.errors import BadInput
from assay.judge import tree
from assay.judge.sandbox import Bound, InfrastructureError, Ran
from assay.judge.sandbox.bubblewrap import BubbleBox, Bubblewrap
from assay.judge.sandbox.scratch import kill_named
from assay.serve import unpacker, unpacking
from assay.serve.archives import BOUNDS, ArchiveBounds, pack
from assay.serve.unpacking import ComingArchive, SpareBoxes, UnpackerBox, Withdrawn, unpack

scratch = pytest.fixture(scope="module")(boxes.scratch)
sandbox = pytest.fixture(scope="module")(boxes.sandbox)

SMALL = ArchiveBounds(packed=8_000_000, bytes=60_000_000, files=50, depth=5, name=100, path=200, ratio=20)

Tar = tuple[tarfile.TarInfo, bytes]


def entry(name: str, data: bytes = b"", type: bytes = tarfile.REGTYPE, *, link: str = "", size: int | None = None) -> Tar:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = type, link, len(data) if size is None else size
    return info, data


def tar(*entries: Tar, format: Literal[0, 1, 2] = tarfile.PAX_FORMAT) -> bytes:
    """A tar, made by hand: `TarFile.addfile` would read as many bytes as the size says."""
    parts = []
    for info, data in entries:
        parts += [info.tobuf(format, "utf-8", "surrogateescape"), data, bytes(-len(data) % 512)]
    return b"".join(parts) + bytes(1024)


def zipped(*entries: tuple[str, bytes], mode: int = 0, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in entries:
            info = zipfile.ZipInfo(name)
            info.external_attr, info.compress_type = mode << 16, method
            archive.writestr(info, data)
    return buffer.getvalue()


def encrypted() -> bytes:
    """A zip whose one entry says that it is encrypted, in both of its headers."""
    data = bytearray(zipped(("secret.py", b"print()")))
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + at] |= 1
    return bytes(data)


def overlapping() -> bytes:
    """A zip of two names for the same bytes."""
    data = bytearray(zipped(("a", b"x" * 1000), ("b", b"x" * 1000)))
    first = data.index(b"PK\x01\x02")
    second = data.index(b"PK\x01\x02", first + 1)
    data[second + 42 : second + 46] = data[first + 42 : first + 46]
    return bytes(data)


def holes() -> bytes:
    """A tar of GNU's kind with a file of a terabyte in it, all of it a hole."""
    header = bytearray(tarfile.TarInfo("giant").tobuf(tarfile.GNU_FORMAT))
    header[156:157] = tarfile.GNUTYPE_SPARSE
    header[386:410] = b"%011o\0%011o\0" % (0, 0)
    header[483:495] = b"\x80" + (10**12).to_bytes(11, "big")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + bytes(1024)


def many() -> bytes:
    """A tar with 10^5 files, whose names do not compress well."""
    names = (sha256(b"%d" % number).hexdigest() for number in range(100_000))
    return gzip.compress(tar(*map(entry, names), format=tarfile.USTAR_FORMAT), 6)


def many_in_zip() -> bytes:
    return zipped(*((f"f{number}", b"") for number in range(60_000)), method=zipfile.ZIP_STORED)


GOOD = tar(entry("agent.toml", b'name = "x"\n'))

HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "symlink": (lambda: tar(entry("run", type=tarfile.SYMTYPE, link="/etc/passwd")), "'run' is a symbolic link; put the file"),
    "hard link": (lambda: tar(entry("run", type=tarfile.LNKTYPE, link="/etc/passwd")), "'run' is a hard link; put the file"),
    "through a link": (
        lambda: tar(entry("d", type=tarfile.SYMTYPE, link="/tmp"), entry("d/evil", b"x")),
        "'d' is a symbolic link",
    ),
    "character device": (lambda: tar(entry("null", type=tarfile.CHRTYPE)), "'null' is a device; hand in plain"),
    "block device": (lambda: tar(entry("disk", type=tarfile.BLKTYPE)), "'disk' is a device"),
    "fifo": (lambda: tar(entry("pipe", type=tarfile.FIFOTYPE)), "'pipe' is a FIFO"),
    "unknown type": (lambda: tar(entry("what", type=b"Z")), "'what' is of an unknown type"),
    "absolute": (lambda: tar(entry("/tmp/assay-evil", b"x")), "'/tmp/assay-evil' is absolute"),
    "parent": (lambda: tar(entry("../evil", b"x")), "'../evil' leads out of the folder"),
    "parent below": (lambda: tar(entry("a/../../evil", b"x")), "leads out of the folder"),
    "dot in the middle": (lambda: tar(entry("a/./b", b"x")), "has an empty name or a dot"),
    "empty name": (lambda: tar(entry("a//b", b"x")), "has an empty name or a dot"),
    "backslash": (lambda: tar(entry("..\\evil", b"x")), "has a backslash"),
    "bomb": (lambda: gzip.compress(tar(entry("zeros", bytes(25_000_000)))), "unpacks to more than 20 times its size"),
    "bomb of xz": (lambda: lzma.compress(tar(entry("zeros", bytes(25_000_000)))), "unpacks to more than 20 times its size"),
    "bomb of zip": (lambda: zipped(("zeros", bytes(25_000_000))), "unpacks to more than 20 times its size"),
    "too many bytes": (
        lambda: gzip.compress(tar(entry("a", os.urandom(100)), entry("b", b"", size=80_000_000))),
        "unpacks to more than 60000000 bytes, with 'b' of 80000000 bytes",
    ),
    "giant": (lambda: tar(entry("giant", size=10**15)), "'giant' of 1000000000000000 bytes"),
    "negative size": (lambda: tar(entry("less", size=-512), format=tarfile.GNU_FORMAT), "cannot be read|impossible size"),
    "sparse giant": (holes, "'giant' is stored with holes"),
    "hundred thousand": (many, "has more than 50 files and folders"),
    "many in a zip": (many_in_zip, "has more than 50 files and folders"),
    "folders count": (lambda: tar(*(entry(f"{n}/a/b/c") for n in range(20))), "has more than 50 files and folders"),
    "same name": (lambda: tar(entry("a", b"1"), entry("a", b"2")), "has two entries with the name 'a'"),
    "same name in a zip": (lambda: zipped(("a", b"1"), ("./a", b"2")), "has two entries with the name 'a'"),
    "only case": (lambda: tar(entry("Main.py"), entry("main.py")), "'Main.py' and 'main.py' differ only in case"),
    "case of a folder": (lambda: tar(entry("Lib/a"), entry("lib/b")), "'Lib' and 'lib' differ only in case"),
    "normal form": (lambda: tar(entry("caf\u00e9"), entry("cafe\u0301")), "differ only in case or in how their letters"),
    "control character": (lambda: tar(entry("a\x1b[2J")), "has a control character"),
    "newline": (lambda: tar(entry("a\nb")), "has a control character"),
    "direction": (lambda: tar(entry("a\u202eyp.b")), "has a control character or an invisible one"),
    "not UTF-8": (lambda: tar(entry("caf\udce9")), "is not in UTF-8"),
    "not UTF-8 in a zip": (lambda: zipped(("cafe", b"")).replace(b"cafe", b"caf\xe9"), "is not in UTF-8"),
    "NUL in a zip": (lambda: zipped(("cafe", b"")).replace(b"cafe", b"ca\0e"), "has a control character"),
    "long name": (lambda: tar(entry("x" * 101)), "has more than 100 bytes"),
    "long path": (lambda: tar(entry("/".join(["x" * 90] * 3))), "has more than 200 bytes"),
    "deep": (lambda: tar(entry("a/a/a/a/a/a")), "more than 5 folders deep"),
    "file and folder": (lambda: tar(entry("a", b"x"), entry("a/b", b"x")), "has 'a' as a file and as a folder"),
    "file of a folder": (lambda: tar(entry("a/b", b"x"), entry("a", b"x")), "has 'a' as a file and as a folder"),
    "no name": (lambda: tar(entry("./", b"x")), "has a file without a name|impossible size"),
    "cut gzip": (lambda: gzip.compress(tar(entry("a", os.urandom(5000))))[:-100], "cannot be read"),
    "cut xz": (lambda: lzma.compress(tar(entry("a", os.urandom(5000))))[:-100], "cannot be read: it ends too early"),
    "cut tar": (lambda: tar(entry("a", os.urandom(5000)))[:3000], "cannot be read"),
    "no end of a tar": (lambda: GOOD[:-1024], "is cut off"),
    "cut zip": (lambda: zipped(("a", os.urandom(5000)))[:-30], "is cut off"),
    "data after a tar": (lambda: GOOD + GOOD, "is damaged, or has data after its end"),
    "data after gzip": (lambda: gzip.compress(GOOD) + b"more", "cannot be read"),
    "data after xz": (lambda: lzma.compress(GOOD) + b"more", "has data after its end"),
    "data after a zip": (lambda: zipped(("a", b"x")) + b"more", "has data after its end"),
    "wrong sum of gzip": (lambda: gzip.compress(GOOD)[:-8] + bytes(8), "cannot be read"),
    "wrong sum of a zip": (lambda: zipped(("a", b"xyz"), method=0).replace(b"xyz", b"xyy"), "cannot be read: Bad CRC"),
    "damaged header": (lambda: tar(entry("a"), entry("b")).replace(b"b\0\0\0", b"c\0\0\0", 1), "is damaged"),
    "garbage": (lambda: b"garbage" * 100, "is neither a tar nor a zip; pack it as .tar, .tar.gz"),
    "nothing": (lambda: b"", "is neither a tar nor a zip"),
    "empty tar": (lambda: bytes(10240), "is neither a tar nor a zip"),
    "empty zip": (zipped, "is empty"),
    "only the top": (lambda: tar(entry("./", type=tarfile.DIRTYPE)), "is empty"),
    "bzip2": (lambda: b"BZh91AY&SY" + bytes(600), "is neither a tar nor a zip"),
    "zstd": (lambda: b"\x28\xb5\x2f\xfd" + bytes(20), "zstd|cannot be read"),
    "encrypted zip": (encrypted, "'secret.py' is encrypted; pack it without a password"),
    "overlapping zip": (overlapping, "'a' and 'b' overlap|'b' and 'a' overlap"),
    "link in a zip": (lambda: zipped(("run", b"/etc/passwd"), mode=stat.S_IFLNK | 0o777), "'run' is a symbolic link"),
    "fifo in a zip": (lambda: zipped(("pipe", b""), mode=stat.S_IFIFO | 0o777), "'pipe' is a FIFO"),
    "device in a zip": (lambda: zipped(("null", b""), mode=stat.S_IFCHR | 0o666), "'null' is a device"),
    "parent in a zip": (lambda: zipped(("../evil", b"x")), "leads out of the folder"),
    "absolute in a zip": (lambda: zipped(("/tmp/assay-evil", b"x")), "is absolute"),
    "method of a zip": (lambda: zipped(("a", b"x" * 100), method=zipfile.ZIP_LZMA), "is packed with method 14"),
    "long list in a zip": (lambda: _edited(zipped(("a", b"x")), b"PK\x05\x06", 12, struct.pack("<I", 10**9)), "longer than its"),
    "too large": (lambda: bytes(SMALL.packed + 1), f"has {SMALL.packed + 1} bytes, and {SMALL.packed} are the most"),
}


def _edited(data: bytes, mark: bytes, at: int, new: bytes) -> bytes:
    place = data.index(mark) + at
    return data[:place] + new + data[place + len(new) :]


def listing(*folders: Path) -> list[str]:
    return sorted(str(path) for folder in folders for path in folder.rglob("*"))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder to unpack in; afterwards nothing was written outside of its `out`."""
    (tmp_path / "place").mkdir()
    before = sorted(os.listdir("/tmp")), sorted(os.listdir("/")), listing(tmp_path)
    yield tmp_path / "place"
    ours = [name for name in listing(tmp_path) if Path(name).name != "archive" and "/place/out" not in name]
    assert (sorted(name for name in os.listdir("/") if name), ours) == (before[1], before[2])
    assert not Path("/tmp/assay-evil").exists()
    assert not Path("/tmp/evil").exists()


@pytest.mark.sampled(8)
@pytest.mark.parametrize("attack", HOSTILE)
def test_an_attack_is_refused_with_one_sentence_and_writes_nothing(sandbox: Bubblewrap, place: Path, attack: str) -> None:
    make, sentence = HOSTILE[attack]
    archive = place / "archive"
    archive.write_bytes(make())
    with pytest.raises(BadInput, match=f"the archive .*({sentence})") as refused:
        unpack(archive, place / "out", SMALL, sandbox=sandbox)
    assert refused.value.hint
    assert "\n" not in str(refused.value)
    assert os.listdir(place) == ["archive"]


def agent(folder: Path) -> Path:
    """An agent's folder, with what makes folders differ: an empty one, a program, a name that is not ASCII, a file of zeros."""
    (folder / "lib" / "empty").mkdir(parents=True)
    (folder / "agent.toml").write_text('name = "x"\n')
    (folder / "main.py").write_text("print()\n")
    (folder / "main.py").chmod(0o775)
    (folder / "lib" / "caf\u00e9").write_bytes(bytes(200_000))
    return folder


FORMATS: dict[str, Callable[[bytes], bytes]] = {"tar": bytes, "gz": gzip.compress, "xz": lzma.compress}


@pytest.mark.parametrize("packing", [*FORMATS, "zip"])
def test_an_honest_archive_comes_through_as_it_was(sandbox: Bubblewrap, place: Path, tmp_path: Path, packing: str) -> None:
    source = agent(tmp_path / "place" / "out-source")
    buffer = io.BytesIO()
    if packing == "zip":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(source.rglob("*")):
                archive.write(path, path.relative_to(source).as_posix())
    else:
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            archive.add(source, ".")  # with `./` before each name, as `tar -c .` has it
    (place / "archive").write_bytes(FORMATS.get(packing, bytes)(buffer.getvalue()))
    unpack(place / "archive", place / "out", sandbox=sandbox)
    assert tree.digest(place / "out") == tree.digest(source)
    assert {oct(path.stat().st_mode & 0o777) for path in (place / "out").rglob("*") if path.is_file()} == {"0o644", "0o755"}


def test_what_is_packed_comes_through_and_is_the_same_every_time(sandbox: Bubblewrap, place: Path) -> None:
    sources = [agent(place / f"out-{number}") for number in range(2)]
    os.utime(sources[1] / "main.py", (1, 1))
    packed = []
    for source in sources:
        archive = io.BytesIO()
        pack(source, archive)
        packed.append(archive.getvalue())
    assert packed[0] == packed[1]
    (place / "archive").write_bytes(packed[0])
    unpack(place / "archive", place / "out", BOUNDS, sandbox=sandbox)
    assert tree.digest(place / "out") == tree.digest(sources[0])


def test_one_file_is_packed_under_its_name(sandbox: Bubblewrap, place: Path) -> None:
    source = place / "out-solution.md"
    source.write_text("an answer")
    with open(place / "archive", "wb") as archive:
        pack(source, archive)
    unpack(place / "archive", place / "out", sandbox=sandbox)
    assert [(path.name, path.read_text()) for path in (place / "out").iterdir()] == [("out-solution.md", "an answer")]


def test_what_cannot_be_handed_in_is_not_packed(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="name the folder or the file"):
        pack(tmp_path / "none", io.BytesIO())
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(BadInput, match="link: is a link or a device; hand in plain files"):
        pack(tmp_path, io.BytesIO())
    (tmp_path / "link").unlink()
    (tmp_path / "a").write_bytes(bytes(11))
    with pytest.raises(BadInput, match="more than 10 bytes"):
        pack(tmp_path, io.BytesIO(), bounds=replace(BOUNDS, bytes=10))


def _ran(code: int | None, stopped: Bound | None = None, cpu: float = 0.0) -> Ran:
    return Ran(code, stopped, 1.0, cpu, 0)


@pytest.mark.parametrize(
    ("ran", "error", "sentence"),
    [
        (_ran(None, "memory"), BadInput, "needs more than .* bytes of memory"),
        (_ran(None, "disk"), BadInput, "unpacks to more than it may"),
        (_ran(None, "time", 100.0), BadInput, "takes more than 60 s"),
        (_ran(None, "time", 1.0), InfrastructureError, "the machine may be overloaded"),
        (_ran(139), BadInput, "breaks the program that unpacks it"),
        (_ran(137), InfrastructureError, "the unpacker does not work: exit code 137"),
        (_ran(1), InfrastructureError, "the unpacker does not work"),
        (_ran(127), InfrastructureError, "the box needs Python"),
        (_ran(0), InfrastructureError, "the unpacker gave no answer"),
    ],
)
def test_whose_fault_it_is(
    sandbox: Bubblewrap, place: Path, monkeypatch: pytest.MonkeyPatch, ran: Ran, error: type[Exception], sentence: str
) -> None:
    def run(self: BubbleBox, command: object, *, stdout: Path, stderr: Path, **_more: object) -> Ran:
        stdout.write_bytes(b"")
        stderr.write_bytes(b"")
        return ran

    monkeypatch.setattr(BubbleBox, "run", run)
    (place / "archive").write_bytes(GOOD)
    with pytest.raises(error, match=sentence):
        unpack(place / "archive", place / "out", sandbox=sandbox)
    assert os.listdir(place) == ["archive"]


@pytest.mark.full
def test_the_memory_of_the_box_bounds_what_an_archive_may_take(
    sandbox: Bubblewrap, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long name of 200 MB is read into memory at once."""
    monkeypatch.setattr(unpacking, "_MEMORY", 64 << 20)
    name = bytes(200_000_000)
    bomb = gzip.compress(tar(entry("././@LongLink", name, tarfile.GNUTYPE_LONGNAME), entry("a"), format=tarfile.GNU_FORMAT), 1)
    (place / "archive").write_bytes(bomb)
    with pytest.raises(BadInput, match="memory"):
        unpack(place / "archive", place / "out", replace(BOUNDS, ratio=10_000), sandbox=sandbox)


def test_a_machine_without_bubblewrap_is_nobodys_fault(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "archive").write_bytes(GOOD)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InfrastructureError):
        unpack(place / "archive", place / "out")


class Other(ComingArchive):
    """An archive that is another one than was signed, which shows at its end."""

    def is_whole(self) -> bool:
        return False


def test_nothing_leaves_the_box_of_an_archive_that_is_another_one(sandbox: Bubblewrap, place: Path) -> None:
    coming = Other(len(GOOD))
    (place / "archive").write_bytes(GOOD)
    with open(place / "archive", "rb") as file:
        coming.opened(file.fileno())
    coming.grew(len(GOOD))
    coming.end(whole=True)  # the box gets all of it, and unpacks it
    with pytest.raises(Withdrawn):
        unpack(coming, place / "out", sandbox=sandbox)
    assert os.listdir(place) == ["archive"]


TAKEN_OVER = """
import os, sys
os.chdir("/srv/out")
{work}
sys.stdout.write('{{"files": 1, "bytes": 1}}')
sys.exit(0)
"""


@pytest.mark.parametrize(
    ("work", "sentence"),
    [
        ("os.symlink('/etc/passwd', 'a')", "unpacks to something else than it lists"),
        ("os.mkfifo('a')", "unpacks to something else than it lists"),
        ("os.symlink('b', 'a')", "unpacks to a link, 'a'"),
        ("open('A', 'w'); open('a', 'w')", "differ only in case"),
        ("open('x', 'w').truncate(300_000_000)", "unpacks to more than"),
        ("os.makedirs('a/' * 40)", "has folders more than 32 deep|more than 32 folders deep"),
    ],
)
def test_an_unpacker_that_was_taken_over_gains_nothing(
    sandbox: Bubblewrap, place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, work: str, sentence: str
) -> None:
    program = place / "out-program.py"
    program.write_text(TAKEN_OVER.format(work=work))
    monkeypatch.setattr(unpacker, "__file__", str(program))
    (place / "archive").write_bytes(GOOD)
    with pytest.raises(BadInput, match=sentence):
        unpack(place / "archive", place / "out", sandbox=sandbox)
    assert sorted(os.listdir(place)) == ["archive", "out-program.py"]


def test_the_box_has_only_the_archive_and_no_network(sandbox: Bubblewrap, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a program in the place of the unpacker sees: its own files, and no way out."""
    program = place / "out-program.py"
    work = (
        "import json, socket\n"
        "try: socket.create_connection(('127.0.0.1', 22), 1)\nexcept OSError as error: net = str(error)\n"
        "seen = sorted(os.listdir('/srv')), os.path.exists('/work'), sorted(os.listdir('/tmp')), net\n"
        "json.dump({'refused': repr(seen), 'hint': 'none'}, sys.stdout); sys.exit(0)"
    )
    program.write_text(TAKEN_OVER.format(work=work))
    monkeypatch.setattr(unpacker, "__file__", str(program))
    (place / "archive").write_bytes(GOOD)
    with pytest.raises(BadInput) as refused:
        unpack(place / "archive", place / "out", sandbox=sandbox)
    assert "(['__pycache__', 'out', 'unpacker.py'], False, [], " in str(refused.value)
    assert "refused" in str(refused.value) or "unreachable" in str(refused.value)


@pytest.fixture
def spares() -> Iterator[SpareBoxes]:
    boxes = SpareBoxes()
    yield boxes
    boxes.close()


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def boxes_of(sandbox: Bubblewrap) -> list[Path]:
    """The folders of boxes that are there."""
    return [path for path in sandbox.scratch.folder.glob("run-*/box-*") if path.is_dir()]


def unpack_all(sandbox: Bubblewrap, place: Path, spares: SpareBoxes, *data: bytes) -> list[str]:
    """What is said of archives that come one after the other, "" of those that are unpacked; a box is begun ahead of each."""
    sentences = []
    for number, archive in enumerate(data):
        spares.prepare(sandbox, BOUNDS)
        (place / "archive").write_bytes(archive)
        try:
            unpack(place / "archive", place / f"out-{number}", sandbox=sandbox, spares=spares)
            sentences.append("")
        except BadInput as error:
            sentences.append(error.what)
    return sentences


def test_a_box_that_waits_takes_one_archive_and_no_second(
    sandbox: Bubblewrap, place: Path, spares: SpareBoxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = list[UnpackerBox]()
    make = UnpackerBox.__init__

    def noted(self: UnpackerBox, *args: Any) -> None:
        begun.append(self)
        make(self, *args)

    monkeypatch.setattr(UnpackerBox, "__init__", noted)
    evil = tar(entry("../evil", b"1"))
    sentences = unpack_all(sandbox, place, spares, GOOD, evil, GOOD)
    assert [bool(sentence) for sentence in sentences] == [False, True, False]
    assert "leads out of the folder" in sentences[1]
    assert len(begun) == 3  # each archive had the box that waited, and nobody had it before
    assert tree.digest(place / "out-0") == tree.digest(place / "out-2")
    spares.close()
    assert not any(box.waits for box in begun)


def test_a_box_for_which_no_archive_comes_is_removed(
    sandbox: Bubblewrap, spares: SpareBoxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "KEEP_SECONDS", 0.05)
    spares.prepare(sandbox, BOUNDS)
    spares.prepare(sandbox, BOUNDS)
    until(lambda: not spares.waiting)
    until(lambda: not boxes_of(sandbox))


def test_a_box_that_was_killed_while_it_waited_is_no_error(sandbox: Bubblewrap, place: Path, spares: SpareBoxes) -> None:
    spares.prepare(sandbox, BOUNDS)
    (box,) = spares.waiting
    until(lambda: bool(boxes_of(sandbox)) and kill_named(boxes_of(sandbox)[0]) > 0)
    until(lambda: not box.waits)
    assert unpack_all(sandbox, place, spares, GOOD) == [""]
