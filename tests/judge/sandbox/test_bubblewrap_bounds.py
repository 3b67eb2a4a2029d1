"""Limits in bubblewrap boxes: what counts towards them, what stops a command, and what is reported."""

import os
import secrets
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

import boxes
from assay.judge.sandbox import Ran, cgroups, usage
from assay.judge.sandbox.bubblewrap import Bubblewrap
from boxes import LIMITS, Shell, needs_root

MIB = 1 << 20

scratch = pytest.fixture(scope="module")(boxes.scratch)
sandbox = pytest.fixture(scope="module")(boxes.sandbox)
either = pytest.fixture(scope="module", params=["groups", "counted"])(boxes.either)
sh = pytest.fixture(boxes.sh)


def _stopped(ran: Ran, bound: str) -> bool:
    return ran.stopped == bound or ran.exit_code not in (None, 0)


def test_files_without_a_name_are_written_too(either: Bubblewrap, sh: Shell) -> None:
    script = "set -e; for i in 1 2 3 4 5 6 7 8; do exec {fd}>f; rm f; head -c 8000000 /dev/zero >&$fd; done; sleep 290"
    with either.open(either.image(), LIMITS) as box:
        assert sh(box, script, limits=replace(LIMITS, disk=24 * MIB)).ran.stopped == "disk"


@needs_root
def test_files_that_only_a_mapping_holds_are_written_too(either: Bubblewrap, sh: Shell) -> None:
    script = """import mmap, os, time
kept = []
for _ in range(8):
    number = os.open("f", os.O_RDWR | os.O_CREAT)
    os.write(number, os.urandom(1000))
    kept.append(mmap.mmap(number, 1000))
    os.unlink("f")
    for name in os.listdir("/proc/self/fd"):  # mmap keeps a descriptor of its own
        if name != str(number) and os.path.exists(link := f"/proc/self/fd/{name}") and os.readlink(link).endswith("(deleted)"):
            os.close(int(name))
    os.write(number, os.urandom(8_000_000))
    os.close(number)
time.sleep(290)"""
    mapped = Path("/proc/self/map_files")
    try:
        os.stat(mapped / os.listdir(mapped)[0])
    except PermissionError:
        pytest.skip("only root of the whole machine can look at mappings")
    with either.open(either.image(), LIMITS) as box:
        assert sh(box, script, shell="python3", limits=replace(LIMITS, disk=24 * MIB)).ran.stopped == "disk"


SOCKETS = {
    "udp": """import socket, time
kept, sender = [], socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(4000):
    kept.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    kept[-1].bind(("127.0.0.1", 0))
    for _ in range(4):
        sender.sendto(bytes(50_000), kept[-1].getsockname())
time.sleep(290)""",
    "tcp": """import socket, time
kept, listener = [], socket.create_server(("127.0.0.1", 0), backlog=1000)
for _ in range(1000):
    kept.append(socket.create_connection(listener.getsockname()))
    kept.append(listener.accept()[0])
    for each in kept[-2:]:
        each.setblocking(False)
        try:
            while each.send(bytes(65_536)):
                pass
        except BlockingIOError:
            pass
time.sleep(290)""",
    "netlink": """import socket, time
kept, sender = [], socket.socket(16, socket.SOCK_RAW, 2)
for _ in range(4000):
    kept.append(socket.socket(16, socket.SOCK_RAW, 2))
    kept[-1].bind((0, 0))
    for _ in range(3):
        sender.setblocking(False)
        try:
            sender.sendto(bytes(50_000), kept[-1].getsockname())
        except OSError:
            break
time.sleep(290)""",
}
"""What holds 400 MiB or more in sockets that nobody reads."""


@pytest.mark.parametrize("kind", SOCKETS)
def test_what_waits_in_sockets_is_memory(either: Bubblewrap, sh: Shell, kind: str) -> None:
    limits = replace(LIMITS, memory=64 * MIB)
    with either.open(either.image(), LIMITS) as box:
        output = sh(box, SOCKETS[kind], shell="/usr/bin/python3", limits=limits)
        if kind == "netlink" and either._tools.filter is not None:
            assert "Protocol not supported" in output.err
        else:
            assert output.ran.stopped == "memory", output


def test_netlink_counts_where_no_filter_refuses_it(scratch: Path, sh: Shell) -> None:
    with closing(Bubblewrap(folder=scratch)) as sandbox:
        sandbox._tools = replace(sandbox._tools, filter=None)
        with sandbox.open(sandbox.image(), LIMITS) as box:
            output = sh(box, SOCKETS["netlink"], shell="/usr/bin/python3", limits=replace(LIMITS, memory=64 * MIB))
    assert output.ran.stopped == "memory", output


def test_a_few_sockets_within_the_bound_are_fine(either: Bubblewrap, sh: Shell) -> None:
    script = "import socket, subprocess\n" + SOCKETS["udp"].replace("4000", "20").replace("time.sleep(290)", "time.sleep(0.3)")
    with either.open(either.image(), LIMITS) as box:
        assert sh(box, script, shell="/usr/bin/python3", limits=replace(LIMITS, memory=64 * MIB)).ran.exit_code == 0


def test_sockets_of_a_group_of_version_2_are_added_but_for_those_that_it_counts(tmp_path: Path) -> None:
    class Seen:
        def held(self, *, tcp: bool) -> int:
            assert not tcp
            return 50 * MIB

    def over(most: int, *, sock: int) -> bool:
        (tmp_path / "memory.stat").write_text(f"anon 1\nsock {sock}\nactive_file {10 * MIB}\ninactive_file 0\n")
        return cgroups.over_with_sockets(tmp_path, cast(Any, Seen()), most, second=True)

    (tmp_path / "memory.current").write_text(str(40 * MIB))
    assert over(79 * MIB, sock=0)
    assert not over(80 * MIB, sock=0)
    assert not over(60 * MIB, sock=20 * MIB)
    assert not over(1, sock=60 * MIB)


HIDDEN = """import ctypes, os, sys, threading, time
def work():
    if {own}:
        assert ctypes.CDLL(None, use_errno=True).unshare(0x400) == 0  # descriptors of its own
    {hold}
    time.sleep(290)
thread = threading.Thread(target=work)
thread.start()
if {ended}:
    ctypes.CDLL(None).pthread_exit(None)  # of a first thread that has ended, nothing is seen
thread.join()
"""


@pytest.mark.parametrize(("own", "ended"), [(True, False), (False, True), (True, True)])
def test_what_a_thread_holds_is_written_too(either: Bubblewrap, sh: Shell, own: bool, ended: bool) -> None:
    hold = "[os.write(os.open('.', os.O_TMPFILE | os.O_RDWR), os.urandom(8_000_000)) for _ in range(8)]"
    with either.open(either.image(), LIMITS) as box:
        script = HIDDEN.format(own=own, ended=ended, hold=hold)
        assert sh(box, script, shell="python3", limits=replace(LIMITS, disk=24 * MIB)).ran.stopped == "disk"


def test_memory_counts_when_the_first_thread_has_ended(either: Bubblewrap, sh: Shell) -> None:
    with either.open(either.image(), LIMITS) as box:
        script = HIDDEN.format(own=False, ended=True, hold="held = b'x' * 150_000_000")
        assert sh(box, script, shell="python3", limits=replace(LIMITS, memory=100 * MIB)).ran.stopped == "memory"


def test_nothing_hides_behind_very_many_descriptors(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Many:
        """What a short look does not see, a long one does, or is not at its end either."""

        def __init__(self, long: tuple[int, bool]) -> None:
            self.long = long

        def unnamed(self, _device: int, *, seconds: float = 0.02) -> tuple[int, bool]:
            return self.long if seconds > 1 else (0, False)

    for lost, long, over in [
        (9, (9 * MIB, True), False),
        (90, (9 * MIB, True), False),
        (90, (20 * MIB, True), True),
        (90, (0, False), True),
    ]:
        scratch.mkdir(exist_ok=True)
        room = iter([900 * MIB, (900 - lost) * MIB])
        monkeypatch.setattr(usage.DiskWatch, "_room", lambda _self, room=room: next(room))
        watch = usage.DiskWatch(scratch, replace(LIMITS, disk=10 * MIB), mend=False)
        assert watch.over(cast(Any, Many(long))) is over


def test_only_what_a_command_writes_itself_is_counted(sandbox: Bubblewrap, sh: Shell, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(secrets.token_bytes(20 * MIB))
    limits = replace(LIMITS, disk=10 * MIB, files=10)
    with sandbox.open(sandbox.image(), LIMITS) as box:
        box.put(tmp_path / "large", "/app/large")
        assert (
            sh(
                box, "ln large same; ln large again; truncate -s 5M holes; head -c 1000000 /dev/zero > f", limits=limits
            ).ran.exit_code
            == 0
        )
        assert sh(box, "cat large > other; sync", limits=limits).ran.stopped == "disk"
        assert sh(box, "rm other large same again; head -c 12000000 /dev/zero > f", limits=limits).ran.exit_code == 0


def test_one_file_that_passes_the_bound(either: Bubblewrap, sh: Shell) -> None:
    with either.open(either.image(), LIMITS) as box:
        assert _stopped(sh(box, "head -c 90000000 /dev/zero > f", limits=replace(LIMITS, disk=8 * MIB)).ran, "disk")


def test_folders_too_deep_to_be_measured(sandbox: Bubblewrap, sh: Shell) -> None:
    script = "for i in {1..400}; do mkdir d && cd -P d; done; sleep 290"
    with sandbox.open(sandbox.image(), LIMITS) as box:
        assert sh(box, script).ran.stopped == "disk"
        assert sh(box, "sleep 290").ran.stopped == "disk"  # and no trouble of ours


def test_a_folder_that_is_closed_hides_nothing(either: Bubblewrap, sh: Shell) -> None:
    script = "mkdir d; cd d; chmod 300 .; for i in 1 2 3 4 5 6; do head -c 8000000 /dev/zero > $i; done; sleep 290"
    with either.open(either.image(), LIMITS) as box:
        assert sh(box, script, limits=replace(LIMITS, disk=24 * MIB)).ran.stopped == "disk"


def test_a_process_tree_out_of_memory_is_stopped_as_a_whole(sandbox: Bubblewrap, sh: Shell) -> None:
    """With control groups the kernel kills one process; the others must not go on as if nothing had been."""
    script = "(head -c 1500000000 /dev/zero | tail >/dev/null) & wait; sleep 290"
    with sandbox.open(sandbox.image(), LIMITS) as box:
        ran = sh(box, script, limits=replace(LIMITS, memory=64 * MIB)).ran
        if _kind(sandbox) != "counted":
            assert ran.stopped == "memory"
            assert 32 * MIB < ran.peak_memory <= 65 * MIB


def test_what_was_used_is_told(either: Bubblewrap, sh: Shell) -> None:
    with either.open(either.image(), LIMITS) as box:
        ran = sh(box, "end=$((SECONDS+2)); while [ $SECONDS -lt $end ]; do :; done").ran
    assert ran.exit_code == 0
    assert ran.cpu_seconds > 0
    assert ran.wall_seconds > 0
    assert ran.peak_memory > 0


def test_a_group_that_cannot_be_had_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "_mounts", lambda: iter(()))
    assert cgroups.find().kind == "counted"
    assert "counted" in cgroups.find().describe()


def test_cores(sandbox: Bubblewrap, sh: Shell) -> None:
    with sandbox.open(sandbox.image(), LIMITS) as box:
        assert sh(box, "exit 0", limits=replace(LIMITS, cpus=0.5)).ran.exit_code == 0


def _kind(sandbox: Bubblewrap) -> str:
    return next(kind for kind in ("v1", "v2", "counted") if kind in sandbox.describe())
