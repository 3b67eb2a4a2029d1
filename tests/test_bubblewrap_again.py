"""A folder that a box was in is used for the next, and nothing of the box before can be seen there."""

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

import boxes
from assay.judge import tree
from assay.judge.sandbox.box import Trouble
from assay.judge.sandbox.bubblewrap import BubbleBox, Bubblewrap
from boxes import LIMITS, Shell

scratch = pytest.fixture(scope="module")(boxes.scratch)
sh = pytest.fixture(boxes.sh)


@pytest.fixture
def own(scratch: Path) -> Iterator[Bubblewrap]:
    """A sandbox that no other test has used."""
    with closing(Bubblewrap(folder=scratch)) as made:
        yield made


def _whole(box: BubbleBox) -> dict[str, object]:
    """All that can be seen of a box's files, but inode numbers and times of change."""
    found: dict[str, object] = {}
    for entry in tree.walk(box.root.path):
        place = box.root.path / entry.path
        info = os.lstat(place)
        held = place.read_bytes() if stat.S_ISREG(info.st_mode) else entry.target
        more = [(name, os.getxattr(place, name, follow_symlinks=False)) for name in os.listxattr(place, follow_symlinks=False)]
        found[entry.path] = (info.st_mode, info.st_uid, info.st_gid, info.st_size, info.st_mtime_ns, info.st_nlink, held, more)
    return found


CHANGES = {
    "nothing": ":",
    "added": "mkdir -p a/b /var/x/y; echo x > a/b/c; ln -s / /opt/link; mkfifo /run/f; echo x > /x; chmod 0 a /var/x",
    "rewritten": "echo x >> /etc/passwd; echo y > /etc/hosts",
    "rewritten to the same": "cp -p /etc/passwd /tmp/p; cat /tmp/p > /etc/passwd; touch -r /tmp/p /etc/passwd; rm /tmp/p",
    "removed": "rm -rf /etc/passwd /home /app /tmp /var /bin",
    "replaced": "rm -rf /etc/passwd /bin /opt; mkdir /etc/passwd /bin; ln -s /app /opt; mv /srv /srv2; mkdir /srv",
    "a folder of links": "rm -rf /var; mkdir /app/away; cp -r /etc/ssl /app/away/cache; ln -s /app/away /var",
    "permissions": "chmod 0 /etc/passwd /app; chmod 777 /home /etc/hosts; chmod 700 /tmp; chmod 0 /etc",
    "times": "touch -d @1000000000 /app /etc/passwd /home /var/log; touch -a -d @1000000000 /etc/hosts",
    "hard links": "ln /etc/passwd /app/p; ln /etc/hosts /tmp/h; rm /etc/hosts",
    "attributes": 'python3 -c \'import os; [os.setxattr(p, "user.x", b"1") for p in ("/app", "/home", "/etc/passwd")]\' || true',
    "flags": "chattr +d /app /home /etc/hosts || true",
    "memory": 'python3 -c \'import mmap; f = open("/etc/passwd", "r+b"); m = mmap.mmap(f.fileno(), 0); m[:4] = b"evil"\'',
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_everything_is_as_it_was(own: Bubblewrap, sh: Shell, change: str) -> None:
    with own.open(own.image(), LIMITS) as first:
        before, folder = _whole(first), first.root.path
        said = sh(first, change, shell="/usr/bin/bash")
        assert said.ran.exit_code == 0, said
    with own.open(own.image(), LIMITS) as second:
        assert second.root.path == folder
        assert _whole(second) == before
        assert sh(second, "test -w /app && echo x > /tmp/x && id -un && pwd").out == "user\n/app\n"
    with own.open(own.image(), LIMITS) as third:
        assert third.root.path == folder
        assert _whole(third) == before


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
    other = own.image(tmp_path)
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
    found: list[Path] = []

    def broken() -> None:
        with own.open(own.image(), LIMITS) as first:
            found.append(first.root.path)
            raise Trouble("anything")

    with pytest.raises(Trouble):
        broken()
    with own.open(own.image(), LIMITS) as second:
        assert second.root.path not in found


def test_boxes_at_the_same_time_have_folders_and_users_of_their_own(own: Bubblewrap) -> None:
    for _ in range(2):
        with own.open(own.image(), LIMITS) as one, own.open(own.image(), LIMITS) as two:
            assert one.root.path != two.root.path
            if os.geteuid() == 0:
                assert os.stat(one.root.path).st_uid != os.stat(two.root.path).st_uid


def test_no_more_than_a_few_are_kept(own: Bubblewrap) -> None:
    with ExitStack() as stack:
        places = [stack.enter_context(own.open(own.image(), LIMITS)).root.path for _ in range(6)]
    assert sum(place.exists() for place in places) == 4
    own.close()
    assert not any(place.exists() for place in places)
