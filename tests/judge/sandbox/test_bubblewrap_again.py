"""A box that reuses the folder of an earlier box sees nothing of that box."""

import errno
import fcntl
import os
import secrets
import stat
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

import boxes
from assay.judge import tree
from assay.judge.sandbox import InfrastructureError, reuse
from assay.judge.sandbox.bubblewrap import BubbleBox, Bubblewrap
from assay.judge.sandbox.reuse import _Start
from boxes import LIMITS, Shell, needs_root

scratch = pytest.fixture(scope="module")(boxes.scratch)
sh = pytest.fixture(boxes.sh)


@pytest.fixture
def own(scratch: Path) -> Iterator[Bubblewrap]:
    """A sandbox that no other test has used."""
    with closing(Bubblewrap(folder=scratch, reuse=True)) as sandbox:
        yield sandbox


def _whole(box: BubbleBox) -> dict[str, tuple[object, ...]]:
    """All that can be seen of a box's files, but inode numbers and times of change; times, owner and generation last."""
    entries: dict[str, tuple[object, ...]] = {}
    for entry in tree.walk(box.root.path):
        place = box.root.path / entry.path
        info = os.lstat(place)
        held = place.read_bytes() if stat.S_ISREG(info.st_mode) else entry.target
        more = [(name, os.getxattr(place, name, follow_symlinks=False)) for name in os.listxattr(place, follow_symlinks=False)]
        flags, generation = _flags(place) if stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode) else (b"", b"")
        if entry.path.split("/")[0] == "app":  # which may be new
            generation = b""
        seen = info.st_mode, info.st_size, info.st_nlink, held, more, flags
        entries[entry.path] = (*seen, info.st_mtime_ns, info.st_uid, info.st_gid, generation)
    return entries


def _flags(place: Path) -> tuple[bytes, bytes]:
    """FS_IOC_GETFLAGS and FS_IOC_GETVERSION, where the file system has them."""
    number = os.open(place, os.O_RDONLY)
    try:
        values = []
        for call in (0x80086601, 0x80087601):
            held = bytearray(8)
            with suppress(OSError):
                fcntl.ioctl(number, call, held)
            values.append(bytes(held))
        return values[0], values[1]
    finally:
        os.close(number)


def _anew(whole: dict[str, tuple[object, ...]]) -> dict[str, tuple[object, ...]]:
    """What is the same in a folder that was made anew."""
    return {name: seen[:-4] for name, seen in whole.items()}


ADDED = {
    "nothing": ":",
    "files": "mkdir -p a/b /var/x/y; echo x > a/b/c; ln -s / /opt/link; mkfifo /run/f; echo x > /x; chmod 0 a /var/x",
    "names": r"cd /opt; touch $'\n' $'a\nb' $'\xff\xfe' ' ' -rf '*' $(printf x%.0s {1..255}); mkdir $'/tmp/\n..'",
    "links between what was added": "echo x > /a; for d in /var /tmp /opt/; do ln /a $d/b; done; chmod 6777 /a",
    "a socket": "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"/run/s\")'",
    "flags of what was added": "mkdir /x; chattr +d /x || :",
    "depth": "cd /var; for i in {1..100}; do mkdir d; cd d; done",
    "the folder's time": "touch -d @1000000000 /home /var/log; touch -d @4000000000 /srv",
    "read": "cat /etc/* >/dev/null 2>&1; ls -R /etc /var >/dev/null; :",
    "work": "cd /; rm -rf /app; ln -s /etc /app",
    "work replaced": "cd /; mv /app /old; cp -r /etc /app; chmod 0 /app",
}
"""After these the folder is the same, and is used again."""
CHANGED = {
    "rewritten": "echo x >> /etc/passwd; echo y > /etc/hosts",
    "rewritten to the same": "cp -p /etc/passwd /tmp/p; cat /tmp/p > /etc/passwd; touch -r /tmp/p /etc/passwd; rm /tmp/p",
    "removed": "rm -rf /etc/passwd /home /app /tmp /var /bin",
    "replaced": "rm -rf /etc/passwd /bin /opt; mkdir /etc/passwd /bin; ln -s /app /opt; mv /srv /srv2; mkdir /srv",
    "replaced by itself": "mv /etc/hosts /h; cp -p /h /etc/hosts; rm /h",
    "swapped": "mv /srv /x; mv /opt /srv; mv /x /opt",
    "a FIFO": "rm /etc/hosts; mkfifo /etc/hosts",
    "a folder of links": "rm -rf /var; mkdir /app/away; cp -r /etc/ssl /app/away/cache; ln -s /app/away /var",
    "permissions": "chmod 0 /etc/passwd /app; chmod 777 /home /etc/hosts; chmod 700 /tmp; chmod 0 /etc",
    "permissions of one folder": "chmod 2755 /srv",
    "set-user bits": "chmod 6755 /etc/hosts",
    "the time of a file": "touch -r /etc/hosts /x; touch -d @1000000000 /etc/hosts; touch -r /x /etc/hosts; rm /x",
    "hard links": "ln /etc/passwd /app/p; ln /etc/hosts /tmp/h; rm /etc/hosts",
    "a hard link": "ln /etc/passwd /a",
    "memory": 'python3 -c \'import mmap; f = open("/etc/passwd", "r+b"); m = mmap.mmap(f.fileno(), 0); m[:4]; m[:4] = b"evil"\'',
}
"""After these it is not."""
EITHER = {
    "a grown folder": "cd /tmp; for i in {1..300}; do : > $(printf %0200d $i); done",
    "a folder that was away": "mv /srv /away; mkdir /srv; rmdir /srv; mv /away /srv",
    "room behind the end": "fallocate -n -l 1M /etc/passwd || :",
}
"""After these it depends on the file system."""
ALL = ADDED | CHANGED | EITHER
ACL = f"02000000 01000700{'f' * 8} 02000700e8030000 04000700{'f' * 8} 10000700{'f' * 8} 20000000{'f' * 8}"
ATTRIBUTES = {
    "an attribute of a folder": 'os.setxattr("/srv", "user.x", b"1")',
    "an attribute of a file": 'os.setxattr("/etc/hosts", "user.x", b"1")',
    "access by a list": f'os.setxattr("/srv", "system.posix_acl_default", bytes.fromhex("{ACL}"))',
    "a flag of a folder": 'fcntl.ioctl(os.open("/srv", 0), 0x40086602, struct.pack("l", 0x40))',
    "a flag of a file": 'fcntl.ioctl(os.open("/etc/hosts", 0), 0x40086602, struct.pack("l", 0x40))',
}
"""What not every file system has; the flag is that of files that are not to be dumped."""


SET_GENERATION = """
import fcntl, os, struct, sys
for call in (0x40087602, 0x40086604):
    for place in sys.argv[1:]:
        try:
            fcntl.ioctl(os.open(place, 0), call, struct.pack("l", 0x5EC2E7))
            print("set")
        except OSError as error:
            print(error.errno)
"""


def test_a_box_cannot_set_the_generation_of_a_file(own: Bubblewrap, sh: Shell) -> None:
    if own._tools.filter is None:
        pytest.skip("system calls are not filtered on this processor")
    with own.open(own.image(), LIMITS) as box:
        output = sh(box, SET_GENERATION + "\n", shell="/usr/bin/python3")
        assert output.out == ""
        (box.root.path / "app" / "set.py").write_text(SET_GENERATION)
        output = sh(box, "python3 set.py /srv /etc/hosts /app")
        assert set(output.out.split()) == {str(errno.ENOTTY)}, output


def test_a_folder_whose_generation_was_set_is_not_used_again(own: Bubblewrap, sh: Shell) -> None:
    own._tools = replace(own._tools, filter=None)  # as on a processor where nothing refuses it
    with own.open(own.image(), LIMITS) as first:
        folder = first.root.path
        (folder / "app" / "set.py").write_text(SET_GENERATION)
        output = sh(first, "python3 set.py /srv")
    if "set" not in output.out:
        pytest.skip("the file system that boxes are on has no such thing")
    with own.open(own.image(), LIMITS) as second:
        assert second.root.path != folder


@pytest.mark.parametrize("reuse", [False, True])
def test_boxes_are_new_unless_somebody_asks_for_used_ones(scratch: Path, reuse: bool) -> None:
    with closing(Bubblewrap(folder=scratch, reuse=reuse)) as sandbox:
        with sandbox.open(sandbox.image(), LIMITS) as first:
            folder = first.root.path
        with sandbox.open(sandbox.image(), LIMITS) as second:
            assert (second.root.path == folder) is reuse
        assert not list(folder.parents[1].glob("box-*/root")) or reuse


STEPS = """
import ctypes, errno, fcntl, os, random, struct, sys
draw = random.Random(int(sys.argv[1]))
places = ["/", "/srv", "/opt", "/home", "/etc", "/var", "/tmp", "/app", "/etc/hosts", "/etc/passwd", "/var/log"]
def ioctl(place, call, data):
    fcntl.ioctl(os.open(place, 0), call, data)
def rename(place):
    os.rename(place, place + ".away"); os.rename(place + ".away", place)
def add(place):
    name = f"{place}/added{draw.random()}"
    os.mkdir(name) if draw.random() < 0.5 else open(name, "w").close()
def holes(place):
    number = os.open(place, os.O_RDWR)
    ctypes.CDLL(None).fallocate(number, draw.choice([1, 3]), ctypes.c_long(0), ctypes.c_long(4096))
steps = [
    lambda place: os.chmod(place, draw.choice([0o755, 0o700, 0o644, 0o1777, 0o2755])),
    lambda place: os.utime(place, ns=(draw.randrange(10**18), draw.randrange(10**18))),
    lambda place: os.setxattr(place, "user.x", b"1"),
    lambda place: (os.setxattr(place, "user.x", b"1"), os.removexattr(place, "user.x")),
    lambda place: ioctl(place, 0x40086602, struct.pack("l", draw.choice([0x40, 0x80, 0x800, 0x10000]))),
    lambda place: ioctl(place, 0x401C5820, struct.pack("5I8x", draw.choice([0, 0x40, 0x80]), 0, 0, draw.randrange(3), 0)),
    lambda place: ioctl(place, 0x40087602, struct.pack("l", draw.randrange(2**31))),
    lambda place: ioctl(place, 0x40086604, struct.pack("l", draw.randrange(2**31))),
    rename, add, holes,
    lambda place: os.link(place, f"/opt/link{draw.random()}"),
    lambda place: os.chown(place, -1, os.getgid()),
    lambda place: open(place, "a").write("x"),
    lambda place: (os.truncate(place, 9)),
    lambda place: open(place).read(),
]
for _ in range(draw.randrange(1, 4)):
    try:
        draw.choice(steps)(draw.choice(places))
    except (OSError, ValueError):
        pass
"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("filtered", [True, False])
def test_whatever_an_owner_sets_the_next_box_does_not_see(own: Bubblewrap, sh: Shell, tmp_path: Path, filtered: bool) -> None:
    (tmp_path / "steps.py").write_text(STEPS)
    if not filtered:
        own._tools = replace(own._tools, filter=None)
    used = 0
    for seed in range(25):
        with own.open(own.image(), LIMITS) as first:
            before, folder = _whole(first), first.root.path
            first.put(tmp_path / "steps.py", "/tmp/steps.py")
            assert sh(first, f"python3 /tmp/steps.py {seed}").ran.stopped is None
        with own.open(own.image(), LIMITS) as second:
            after, same = _whole(second), second.root.path == folder
            used += same
            assert (after if same else _anew(after)) == (before if same else _anew(before)), seed
    assert 0 < used < 25


@pytest.mark.sampled(3)
@pytest.mark.parametrize("change", ALL.values(), ids=ALL.keys())
def test_everything_is_as_it_was(own: Bubblewrap, sh: Shell, change: str) -> None:
    with own.open(own.image(), LIMITS) as first:
        before, folder = _whole(first), first.root.path
        output = sh(first, change, shell="/usr/bin/bash")
        assert output.ran.exit_code == 0, output
    with own.open(own.image(), LIMITS) as second:
        if change not in EITHER.values():
            assert (second.root.path == folder) is (change in ADDED.values())
        assert _anew(_whole(second)) == _anew(before)
        if second.root.path == folder:
            assert _whole(second) == before
        before, folder = _whole(second), second.root.path
        assert sh(second, "test -w /app && echo x > /tmp/x && id -un && pwd").out == "user\n/app\n"
    with own.open(own.image(), LIMITS) as third:
        assert third.root.path == folder
        assert _whole(third) == before


@pytest.mark.parametrize("change", ATTRIBUTES.values(), ids=ATTRIBUTES.keys())
def test_what_is_set_of_an_entry_does_not_stay(own: Bubblewrap, sh: Shell, change: str) -> None:
    with own.open(own.image(), LIMITS) as first:
        before, folder = _whole(first), first.root.path
        output = sh(first, f"import fcntl, os, struct\n{change}", shell="/usr/bin/python3")
    if "Operation not supported" in output.err or "Inappropriate ioctl" in output.err:
        pytest.skip("the file system that boxes are on has no such thing")
    assert output.ran.exit_code == 0, output
    with own.open(own.image(), LIMITS) as second:
        assert second.root.path != folder
        assert _anew(_whole(second)) == _anew(before)


def test_times_of_change_do_not_tell_what_the_box_before_did(own: Bubblewrap, sh: Shell) -> None:
    for script in (
        ":",
        "touch /etc/x /srv/x; rm -rf /app",
        "touch -d @1000000000 /home; ls -R / >/dev/null 2>&1; cat /etc/hosts",
    ):
        with own.open(own.image(), LIMITS) as box:
            sh(box, script, shell="/usr/bin/bash")
    with own.open(own.image(), LIMITS) as box:
        start = box._box_folder._start
        assert start is not None
        changed = [os.lstat(box.root.path / name).st_ctime_ns for name in start._seen if name]
    assert changed == sorted(changed)  # all were set in this order, but the top, which is set again when a box is given out


@contextmanager
def _in_memory(kind: str) -> Iterator[Bubblewrap]:
    folder = Path(f"/var/tmp/assay-test-{secrets.token_hex(8)}")
    folder.mkdir()
    if subprocess.run(["mount", "-t", kind, "-o", "mode=711", "none", folder], check=False, capture_output=True).returncode:
        folder.rmdir()
        pytest.skip("nothing can be mounted here")
    try:
        with closing(Bubblewrap(folder=folder / "boxes", spare=0, reuse=True)) as sandbox:
            yield sandbox
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
        folder.rmdir()


@needs_root
def test_nothing_stays_where_times_of_change_move_in_steps(sh: Shell) -> None:
    with _in_memory("ramfs") as stepping:
        for number in range(30):
            with stepping.open(stepping.image(), LIMITS) as box:
                (box.root.path / f"put-{number}").mkdir()
                assert [name for name in os.listdir(box.root.path) if name.startswith("put")] == [f"put-{number}"]
        with stepping.open(stepping.image(), LIMITS) as box:
            before = _whole(box)
            assert sh(box, CHANGED["memory"]).ran.exit_code == 0
        with stepping.open(stepping.image(), LIMITS) as box:
            assert _anew(_whole(box)) == _anew(before)


@needs_root
@pytest.mark.parametrize("change", [EITHER["a folder that was away"], ADDED["work"], ADDED["work replaced"]])
def test_the_order_of_names_does_not_tell_what_was_away(sh: Shell, change: str) -> None:
    names = "ls -U --ignore=app / /etc /var"
    with _in_memory("tmpfs") as listing:
        with listing.open(listing.image(), LIMITS) as box:
            before = sh(box, names).out
            assert sh(box, change).ran.exit_code == 0
        for _ in range(2):
            with listing.open(listing.image(), LIMITS) as box:
                assert sh(box, names).out == before


def test_where_times_do_not_move_no_folder_is_used_again(own: Bubblewrap, sh: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Start, "_set_back", lambda self, name: self._seen[name].info)
    for second, steps in ((1, 1 << 62), (1 << 62, 3)):  # as if they were whole seconds; and as if the clock stood still
        monkeypatch.setattr(reuse, "_SECOND", second)
        monkeypatch.setattr(reuse, "_STEPS", steps)
        with own.open(own.image(), LIMITS) as box:
            folder = box.root.path
            sh(box, "echo x > /x")
        assert not folder.exists()


@pytest.mark.parametrize(
    "change", ["chmod 700 /", "truncate -s 1G /x; dd if=/dev/zero of=/y bs=1M count=40", "mkdir /many/{1..900} -p"]
)
def test_what_is_too_much_or_cannot_be_undone_is_put_aside(own: Bubblewrap, sh: Shell, change: str) -> None:
    with own.open(own.image(), LIMITS) as first:
        before, folder = _whole(first), first.root.path
        assert sh(first, change).ran.exit_code == 0
    with own.open(own.image(), LIMITS) as second:
        if change.startswith("truncate"):
            assert sh(second, "ls / | grep -x '[xy]'").ran.exit_code == 1
        else:
            assert second.root.path != folder
        assert _whole(second).keys() == before.keys()
        assert stat.S_IMODE(os.stat(second.root.path).st_mode) == 0o755


def test_only_for_the_same_image(own: Bubblewrap, sh: Shell, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM debian:12\nWORKDIR /work\nRUN echo x > y\n")
    other = own.image(tmp_path, any_base=True)
    with own.open(own.image(), LIMITS) as first:
        folder = first.root.path
    with own.open(other, LIMITS) as second:
        assert second.root.path != folder
        assert sh(second, "cat y").out == "x\n"
        changed = second.root.path
        sh(second, "echo z > y")
    with own.open(other, LIMITS) as third:
        assert third.root.path == changed
        assert sh(third, "cat y").out == "x\n"


def test_trouble_ends_a_folder(own: Bubblewrap) -> None:
    places: list[Path] = []

    def broken() -> None:
        with own.open(own.image(), LIMITS) as first:
            places.append(first.root.path)
            raise InfrastructureError("anything")

    with pytest.raises(InfrastructureError):
        broken()
    with own.open(own.image(), LIMITS) as second:
        assert second.root.path not in places


def test_boxes_at_the_same_time_have_folders_and_users_of_their_own(own: Bubblewrap) -> None:
    for _ in range(2):
        with own.open(own.image(), LIMITS) as first, own.open(own.image(), LIMITS) as two:
            assert first.root.path != two.root.path
            if os.geteuid() == 0:
                assert os.stat(first.root.path).st_uid != os.stat(two.root.path).st_uid


def test_no_more_than_a_few_are_kept(own: Bubblewrap) -> None:
    with ExitStack() as stack:
        places = [stack.enter_context(own.open(own.image(), LIMITS)).root.path for _ in range(6)]
    assert sum(place.exists() for place in places) == 4
    own.close()
    assert not any(place.exists() for place in places)
