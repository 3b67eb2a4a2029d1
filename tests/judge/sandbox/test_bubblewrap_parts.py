"""Parts of the bubblewrap sandbox: its door, its filter, its output files and its command line."""

import errno
import os
import secrets
import socket
import struct
import textwrap
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import boxes
from assay.judge.sandbox import InfrastructureError, cgroups, launch, root
from assay.judge.sandbox.bubblewrap import Bubblewrap
from assay.judge.sandbox.root import Owner, Root
from assay.judge.sandbox.supervise import Capture
from boxes import LIMITS, Shell

MIB = 1 << 20

scratch = pytest.fixture(scope="module")(boxes.scratch)
sandbox = pytest.fixture(scope="module")(boxes.sandbox)
sh = pytest.fixture(boxes.sh)


# The door.


def test_much_goes_through_a_door_at_once(sandbox: Bubblewrap, sh: Shell, scratch: Path) -> None:
    script = textwrap.dedent("""
        import socket, threading
        def one(number):
            data = bytes([number]) * 700_000
            with socket.create_connection(("127.0.0.1", 8080)) as ours:
                threading.Thread(target=lambda: (ours.sendall(data), ours.shutdown(socket.SHUT_WR))).start()
                got = b"".join(iter(lambda: ours.recv(65536), b""))
            print(got == data)
        threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    """)
    place = scratch / f"door-{secrets.token_hex(4)}"
    with socket.socket(socket.AF_UNIX) as listener, sandbox.open(sandbox.image(), LIMITS) as box:
        listener.bind(str(place))
        listener.listen(20)
        for _ in range(8):
            threading.Thread(target=_echo, args=(listener,), daemon=True).start()
        output = sh(box, f"/usr/bin/python3 - <<'E'\n{script}E", door=place)
    assert output.out == "True\n" * 8, output.err


def _echo(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        while data := connection.recv(65536):
            connection.sendall(data)


def test_a_door_to_nobody_answers_nothing(sandbox: Bubblewrap, sh: Shell, tmp_path: Path) -> None:
    with sandbox.open(sandbox.image(), LIMITS) as box:
        output = sh(box, "exec 3<>/dev/tcp/127.0.0.1/8080; read x <&3 || echo end", door=tmp_path / "nobody")
    assert output.out == "end\n"


# Parts.


def _verdict(program: bytes, number: int, processor: int, first: int, second: int = 0, third: int = 0) -> int:
    """What the kernel would answer: the program carried out on one call."""
    rows = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    data = {0: number, 4: processor, 16: first, 24: second, 32: third}
    held, at = 0, 0
    while True:
        code, true, false, value = rows[at]
        at += 1
        if code == 0x20:
            held = data[value]
        elif code == 0x06:
            return int(value)
        else:
            at += true if (held == value if code == 0x15 else held >= value) else false


@pytest.mark.parametrize(
    ("machine", "processor", "calls"), [("x86_64", 0xC000003E, (41, 16)), ("aarch64", 0xC00000B7, (198, 29))]
)
@given(number=st.integers(0, 460), family=st.integers(0, 50))
def test_the_filter_of_calls(machine: str, processor: int, calls: tuple[int, int], number: int, family: int) -> None:
    call, ioctl = calls
    program = launch.program(machine)
    assert program is not None
    absent, unknown, fine = 0x50000 | errno.ENOSYS, 0x50000 | errno.EAFNOSUPPORT, 0x7FFF0000
    denied = {"x86_64": {103, 248, 249, 250, 298, 321, 323}, "aarch64": {116, 217, 218, 219, 241, 280, 282}}[machine] | {
        425,
        426,
        427,
    }
    expected = absent if number in denied else fine
    if number == call:
        expected = fine if family in (1, 2, 10, 16) else unknown
    assert _verdict(program, number, processor, family) == expected
    assert _verdict(program, call, processor, family) == (fine if family in (1, 2, 10, 16) else unknown)
    assert _verdict(program, number, 0x40000003, family) == absent
    assert _verdict(program, number | 0x40000000, processor, family) == absent
    refused = 0x50000 | errno.EPROTONOSUPPORT
    for protocol in (*range(20), 58, 132, 136, 262):
        assert _verdict(program, call, processor, 16, 3, protocol) == (fine if protocol == 0 else refused)
        assert _verdict(program, call, processor, 1, 1, protocol) == fine
        for ip in (2, 10):
            assert _verdict(program, call, processor, ip, 1, protocol) == (fine if protocol in (0, 1, 6, 17, 58) else refused)
    for request in (0x50009401, 0x5000940E, 0x50009417, 0x50009418, 0xC0506617, 0x40087602, 0x40086604):
        assert _verdict(program, ioctl, processor, family, request) == 0x50000 | errno.ENOTTY
    assert _verdict(program, ioctl, processor, family, 0x40049409) == fine  # FICLONE
    assert launch.program("mips") is None


def test_no_kernel_log_and_no_subvolume(sandbox: Bubblewrap, sh: Shell) -> None:
    script = """import ctypes, errno, fcntl, os
call = ctypes.CDLL(None, use_errno=True)
assert call.klogctl(10, None, 0) == -1
print(errno.errorcode[ctypes.get_errno()])
try:
    fcntl.ioctl(os.open("/app", 0), 0x5000940E, bytearray(8) + b"sub".ljust(4088, bytes(1)))
except OSError as error:
    print(errno.errorcode[error.errno], os.listdir("/app"))"""
    with sandbox.open(sandbox.image(), LIMITS) as box:
        assert sh(box, script, shell="python3").out == "ENOSYS\nENOTTY []\n"


@given(chunks=st.lists(st.tuples(st.booleans(), st.binary(max_size=300)), max_size=12), most=st.integers(0, 900))
def test_output_is_kept_up_to_its_bound(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[tuple[bool, bytes]], most: int
) -> None:
    folder = tmp_path_factory.mktemp("capture")
    capture = Capture(folder / "out", folder / "err", most, None)
    try:
        pipes = capture.pipes
        for wrong, data in chunks:
            if data:
                os.write(capture.ends[wrong], data)
                capture.read(pipes[wrong])
        capture.started()
        capture.rest()
    finally:
        capture.close()
    total = b"".join(data for _, data in chunks)
    kept, left = {False: b"", True: b""}, most
    for wrong, data in chunks:
        kept[wrong] += data[:left]
        left -= len(data[:left])
    assert ((folder / "out").read_bytes(), (folder / "err").read_bytes()) == (kept[False], kept[True])
    assert capture.dropped == max(0, len(total) - most)


def test_an_output_file_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("kept")
    (tmp_path / "out").symlink_to(tmp_path / "other")
    with pytest.raises(InfrastructureError, match="output cannot be written"):
        Capture(tmp_path / "out", tmp_path / "err", 10, None)
    assert (tmp_path / "other").read_text() == "kept"


def test_the_command_line_has_no_way_around(sandbox: Bubblewrap, tmp_path: Path) -> None:
    box_root = Root(tmp_path / "root", root.of_host(), Owner(os.geteuid(), os.getegid(), False))
    line = launch.command_line(
        launch.Bwrap("bwrap", "sh", "chroot", (0, 8, 0)), box_root, ["--share-net", "x"], limits=LIMITS,
        env={"A": "--share-net"}, cwd="/app", status=3, gate=4, seccomp=5,
    )  # fmt: skip
    ours, command = line[: line.index("--")], line[line.index("--") + 1 :]
    assert command == ["--share-net", "x"]
    assert ours[ours.index("A") + 1] == "--share-net"
    for needed in ("--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--disable-userns", "--seccomp"):
        assert needed in ours
    assert ours[ours.index("--cap-drop") + 1] == "ALL"
    mounted = [ours[at + 1] for at, part in enumerate(ours) if part in ("--ro-bind", "--bind", "--dev-bind")]
    assert mounted[0] == str(tmp_path / "root")
    assert set(mounted[1:]) <= {
        "/usr",
        "/bin",
        "/sbin",
        "/lib",
        "/lib32",
        "/lib64",
        "/libx32",
        "/etc/alternatives",
        "/etc/ld.so.cache",
    }


def test_groups_of_version_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written and read in a folder that stands for the kernel's, since few machines have both versions."""
    written: dict[str, str] = {}
    monkeypatch.setattr(cgroups, "write_value", lambda file, value: written.__setitem__(file.name, str(value)))
    monkeypatch.setattr(cgroups, "_works", lambda groups: True)
    monkeypatch.setattr(cgroups, "_mounts", lambda: iter([("cgroup2", [], tmp_path)]))
    monkeypatch.setattr(cgroups, "_PATIENCE", 0)
    own = tmp_path / next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))[4:]
    own.mkdir(parents=True, exist_ok=True)
    assert cgroups.find().kind == "counted"
    (own / "cgroup.controllers").write_text("cpu memory pids\n")
    (own / "cgroup.subtree_control").write_text("\n")
    groups = cgroups.find()
    assert (groups.kind, dict(groups.places)) == ("v2", {"all": own})
    assert written == {"cgroup.subtree_control": "+cpu"}
    group = groups.make(replace(LIMITS, cpus=1.5))
    assert written | {"memory.max": str(256 * MIB), "pids.max": "66"} == written
    (place,) = own.glob("assay-*")
    assert group.look(None) is None
    (place / "memory.events").write_text("low 0\noom 1\noom_kill 0\n")
    (place / "pids.events").write_text("max 3\n")
    (place / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    (place / "memory.peak").write_text("4096\n")
    assert (group.look(None), group.cpu_seconds(), group.peak()) == ("processes", 2.5, 4096)
    (place / "memory.events").write_text("low 0\noom 1\noom_kill 1\n")
    assert group.look(None) == "memory"
    group.add(1)
    assert written["cgroup.procs"] == "1"
    group.close()
