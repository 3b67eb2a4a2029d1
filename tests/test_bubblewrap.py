"""Boxes by bubblewrap, for real: as root with control groups, counted without them, and as a user without rights."""

import errno
import os
import re
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.judge import tree
from assay.judge.sandbox import cgroups, launch, owner, root, seccomp
from assay.judge.sandbox.box import Ran, Trouble
from assay.judge.sandbox.bubblewrap import Bubblewrap
from assay.judge.sandbox.capture import Capture
from assay.judge.sandbox.check import CHECKS, Bench, CheckFailed, check
from assay.judge.sandbox.choose import choose
from assay.judge.sandbox.disk import Watch
from assay.judge.sandbox.owner import Owner
from assay.judge.sandbox.root import Root
from assay.judge.sandbox.scratch import Scratch
from boxes import LIMITS, STRANGER, Shell, alive, needs_root, python_path

MIB = 1 << 20


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    """Where boxes are: pytest's own folders are closed to the users that boxes run as."""
    folder = Path(f"/var/tmp/assay-test-{secrets.token_hex(8)}")
    yield folder
    tree.remove(folder)


@pytest.fixture(scope="module", params=["groups", "counted"])
def either(request: pytest.FixtureRequest, scratch: Path) -> Iterator[Bubblewrap]:
    """The sandbox as this machine has it, and as it is on a machine without control groups."""
    with closing(Bubblewrap(folder=scratch, counted=request.param == "counted")) as made:
        yield made


@pytest.fixture(scope="module")
def sandbox(scratch: Path) -> Iterator[Bubblewrap]:
    with closing(Bubblewrap(folder=scratch)) as made:
        yield made


@pytest.fixture
def sh(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def bench(sandbox: Bubblewrap) -> Iterator[Bench]:
    with _bench(sandbox) as made:
        yield made


@contextmanager
def _bench(sandbox: Bubblewrap) -> Iterator[Bench]:
    token = f"assay{secrets.token_hex(12)}"
    folder = Path(f"/tmp/{token}-bench")
    folder.mkdir(mode=0o755)
    try:
        yield Bench(sandbox, sandbox.image(), folder, token)
    finally:
        shutil.rmtree(folder)


# What any sandbox must hold.


@pytest.mark.parametrize("name", CHECKS)
def test_check(either: Bubblewrap, name: str) -> None:
    with _bench(either) as bench:
        assert CHECKS[name](bench) == ""


def test_a_check_that_breaks_is_one_that_failed(sandbox: Bubblewrap, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(bench: Bench) -> str:
        raise Trouble("it broke")

    monkeypatch.setattr("assay.judge.sandbox.check.CHECKS", {"one": lambda bench: "", "other": broken})
    assert [(result.name, result.ok, result.why) for result in check(sandbox)] == [
        ("one", True, ""),
        ("other", False, "it broke"),
    ]


def _and(*more: str) -> Callable[[list[str]], list[str]]:
    return lambda line: [*line[: line.index("--chdir")], *more, *line[line.index("--chdir") :]]


def _variable(line: list[str]) -> list[str]:
    return _and("--setenv", "HOST", os.environ.get("ASSAY_CHECK_VARIABLE", ""))(line)


def _processes(line: list[str]) -> list[str]:
    at = line.index("--proc")
    return [*line[:at], "--ro-bind", "/proc", "/proc", *line[at + 2 :]]


@pytest.mark.parametrize(
    ("change", "caught"),
    [
        (_and("--share-net"), "no network, not even the host's loopback"),
        (_and("--share-net"), "no abstract socket of the host"),
        (_and("--ro-bind", "/tmp", "/tmp"), "no file of the host"),
        (_and("--bind", "/dev/shm", "/dev/shm"), "boxes do not see each other"),
        (_processes, "no process of the host"),
        (_variable, "no variable of the host"),
    ],
)
def test_a_weaker_box_is_caught(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, change: Callable[[list[str]], list[str]], caught: str
) -> None:
    whole = launch.command_line
    assert CHECKS[caught](bench) == ""
    monkeypatch.setattr(launch, "command_line", lambda *args, **more: change(whole(*args, **more)))
    try:
        assert CHECKS[caught](bench) != ""
    finally:
        Path("/dev/shm", bench.token).unlink(missing_ok=True)


def test_a_folder_that_stays_is_caught(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Root, "fresh", lambda self, inside: None)
    with pytest.raises(CheckFailed, match="Permission denied"):
        CHECKS["a fresh folder is fresh, whatever was there"](bench)


def test_processes_that_outlive_their_command_are_caught(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "files stay between commands, processes do not"
    monkeypatch.setattr("assay.judge.sandbox.check._commands", lambda token: True)
    assert "alive" in CHECKS[name](bench)


@pytest.mark.slow
@needs_root
def test_a_user_without_rights_can_have_boxes() -> None:
    script = textwrap.dedent("""
        import sys
        from pathlib import Path
        from assay.judge.sandbox.bubblewrap import Bubblewrap
        from assay.judge.sandbox.check import check
        sandbox = Bubblewrap(folder=Path(sys.argv[1]))
        print(sandbox.describe())
        for result in check(sandbox):
            print("ok" if result.ok else "not ok", result.name, result.why)
        sandbox.close()
    """)
    folder = Path(f"/var/tmp/assay-test-{secrets.token_hex(8)}")
    folder.mkdir()
    os.chown(folder, STRANGER, STRANGER)
    python = _python_of_strangers()
    if python is None:
        pytest.skip("this Python and Assay are in a folder that other users cannot get to")
    try:
        said = subprocess.run(
            [*_as_stranger(), python, "-B", "-c", script, folder / "boxes"],
            env={"PYTHONPATH": python_path(), "PATH": os.environ["PATH"]}, cwd="/", capture_output=True, text=True, check=False,
        )  # fmt: skip
    finally:
        shutil.rmtree(folder)
    assert said.returncode == 0, said.stderr
    lines = said.stdout.splitlines()
    assert f"user {STRANGER}" in lines[0]
    assert [line for line in lines[1:] if not line.startswith("ok ")] == []
    assert len(lines) == 1 + len(CHECKS)


def _as_stranger() -> list[str]:
    """`env`, because what setpriv itself starts is still found with root's rights."""
    return ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups", "env"]


def _python_of_strangers() -> str | None:
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        tried = subprocess.run(
            [*_as_stranger(), python, "-B", "-c", "import assay.judge.sandbox.check"], env={"PYTHONPATH": python_path()}, cwd="/",
            capture_output=True, check=False,
        )  # fmt: skip
        if tried.returncode == 0:
            return python
    return None


# What a box is.


def test_a_box_is_nobodys_and_can_do_nothing(sandbox: Bubblewrap, sh: Shell) -> None:
    script = "id -u; unshare -U true 2>/dev/null || echo none; grep -E '^(Cap|NoNew|Seccomp:)' /proc/self/status"
    with sandbox.open(sandbox.image(), LIMITS) as box:
        rows = sh(box, script).out.splitlines()
    assert rows[:2] == ["1000", "none"]
    assert [row.split()[1] for row in rows[2:7]] == ["0" * 16] * 5
    assert rows[7:] == ["NoNewPrivs:\t1", "Seccomp:\t2"]


@needs_root
def test_every_box_has_a_user_of_its_own(sandbox: Bubblewrap, sh: Shell) -> None:
    with sandbox.open(sandbox.image(), LIMITS) as one, sandbox.open(sandbox.image(), LIMITS) as other:
        for box in (one, other):
            sh(box, "touch file")
        users = {os.stat(box.root.path / "app/file").st_uid for box in (one, other)}
    assert len(users) == 2
    assert min(users) >= owner.first_number()


@needs_root
def test_users_run_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "BOXES", 2)
    with ExitStack() as stack:
        numbers = {stack.enter_context(owner.owner(tmp_path / "users")).uid for _ in range(2)}
        with pytest.raises(Trouble, match="2 boxes are open"), owner.owner(tmp_path / "users"):
            pass
    assert len(numbers) == 2
    with owner.owner(tmp_path / "users") as again:
        assert again.uid in numbers


def test_an_exit_code_of_what_cannot_be_started(sandbox: Bubblewrap, tmp_path: Path) -> None:
    def code(command: list[str]) -> int | None:
        return box.run(command, limits=LIMITS, stdout=tmp_path / "out", stderr=tmp_path / "err").exit_code

    with sandbox.open(sandbox.image(), LIMITS) as box:
        assert code(["no-such-command"]) == 127
        assert b"no-such-command" in (tmp_path / "err").read_bytes()
        assert code(["/etc/passwd"]) == 126
        assert code(["bash", "-c", "exit 1"]) == 1


def test_input_is_read_only_and_complete(sandbox: Bubblewrap, sh: Shell) -> None:
    data = secrets.token_bytes(300_000)
    with sandbox.open(sandbox.image(), LIMITS) as box:
        assert sh(box, "wc -c; echo more >&0", stdin=data).out == "300000\n"
        assert sh(box, "cat /dev/stdin | md5sum; echo a > /dev/stdout; echo b > /dev/stderr", stdin=b"x").err == "b\n"
        assert sh(box, "read x || echo nothing").out == "nothing\n"


def test_a_box_survives_what_a_command_did_to_it(sandbox: Bubblewrap, sh: Shell) -> None:
    destroy = "rm -rf /var /tmp; mv /etc /old; ln -s /tmp /etc; ln -sfn /app /bin; ln -sfn /nowhere /lib64; chmod 0 /"
    look = "[ ! -L /etc ] && [ -d /etc/alternatives ] && readlink /bin && echo x > /etc/x && ls -d /var || echo no var"
    with sandbox.open(sandbox.image(), LIMITS) as box:
        sh(box, destroy)
        assert sh(box, look).out == "usr/bin\nno var\n"


def test_a_work_directory_that_is_gone_is_the_commands_fault(sandbox: Bubblewrap, sh: Shell) -> None:
    with sandbox.open(sandbox.image(), LIMITS) as box:
        sh(box, "cd /; rmdir /app")
        said = sh(box, "echo ran")
        assert (said.ran.exit_code, said.out) == (126, "")
        assert "/app" in said.err
        for broken in (
            "ln -s /app /app",
            "ln -s /etc/passwd /app",
            "rm /app; mkdir -m 0 /app",
            "rmdir /app; ln -s ../../.. /app",
        ):
            assert sh(box, broken, cwd="/").ran.exit_code in (0, 1)
            assert sh(box, "echo ran").ran.exit_code == 126, broken
            sh(box, "rm -f /app || rmdir /app", cwd="/")
        sh(box, "mkdir /real; rm -rf /app; ln -s /real /app", cwd="/")
        assert sh(box, "pwd -P").out == "/real\n"


def test_scripts_stop_a_box_only_for_themselves(sandbox: Bubblewrap, sh: Shell) -> None:
    with sandbox.open(sandbox.image(), LIMITS) as box:
        assert sh(box, "kill -9 -1; kill -9 1; kill -9 $PPID; exit 5").ran.exit_code in (5, 137)
        assert sh(box, "exec >&- 2>&-; exit 3").ran.exit_code == 3


def test_system_calls_that_lead_out_are_not_there(sandbox: Bubblewrap, sh: Shell) -> None:
    script = textwrap.dedent("""
        import ctypes, errno, platform, socket
        for family in (40, 38, 29):
            try:
                socket.socket(family, socket.SOCK_STREAM if family == 40 else socket.SOCK_RAW)
                print("family", family)
            except OSError as error:
                if error.errno != errno.EAFNOSUPPORT:
                    print(error)
        for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK):
            socket.socket(family, socket.SOCK_RAW if family == socket.AF_NETLINK else socket.SOCK_STREAM).close()
        library = ctypes.CDLL(None, use_errno=True)
        number = {"x86_64": 250, "aarch64": 219}[platform.machine()]
        if library.syscall(number, 0, -3, 1) != -1 or ctypes.get_errno() != errno.ENOSYS:
            print("keyctl")
        print("end")
    """)
    with sandbox.open(sandbox.image(), LIMITS) as box:
        assert sh(box, f"/usr/bin/python3 - <<'E'\n{script}E").out == "end\n"


def test_many_threads_share_one_sandbox(sandbox: Bubblewrap, tmp_path: Path) -> None:
    def one(number: int) -> str:
        folder = tmp_path / str(number)
        folder.mkdir()
        with sandbox.open(sandbox.image(), LIMITS) as box:
            return Shell(folder)(box, f"echo {number} > file; cat file").out

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(one, range(18))) == [f"{number}\n" for number in range(18)]


# Bounds.


def _stopped(ran: Ran, bound: str) -> bool:
    return ran.stopped == bound or ran.exit_code not in (None, 0)


def test_files_without_a_name_are_written_too(either: Bubblewrap, sh: Shell) -> None:
    script = "set -e; for i in 1 2 3 4 5 6 7 8; do exec {fd}>f; rm f; head -c 8000000 /dev/zero >&$fd; done; sleep 290"
    with either.open(either.image(), LIMITS) as box:
        assert sh(box, script, limits=replace(LIMITS, disk=24 * MIB)).ran.stopped == "disk"


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


# Trouble.


def test_without_bubblewrap(tmp_path: Path, scratch: Path) -> None:
    with pytest.raises(Trouble, match="apt install bubblewrap"):
        Bubblewrap(folder=scratch, bwrap=str(tmp_path / "none"))
    for said, expected in (("bubblewrap 0.3.1", "too old"), ("nothing", "too old")):
        with pytest.raises(Trouble, match=expected):
            Bubblewrap(folder=scratch, bwrap=_program(tmp_path, f"echo {said}"))


def test_a_bubblewrap_that_fails_is_trouble(scratch: Path, sh: Shell) -> None:
    folder = Path(f"/var/tmp/assay-test-{secrets.token_hex(8)}")
    folder.mkdir(mode=0o755)
    try:
        for body, expected in (
            ("echo 'bwrap: no namespaces' >&2; exit 1", "no namespaces"),
            ("kill -9 $$", "killed from outside"),
        ):
            program = _program(folder, f'[ "$1" != --version ] || {{ echo bubblewrap 0.8.0; exit; }}; {body}')
            with closing(Bubblewrap(folder=scratch, bwrap=program)) as broken:
                _trouble(broken, sh, expected)
    finally:
        shutil.rmtree(folder)


def _trouble(sandbox: Bubblewrap, sh: Shell, expected: str, script: str = "true") -> None:
    with sandbox.open(sandbox.image(), LIMITS) as box, pytest.raises(Trouble, match=expected):
        sh(box, script)


def _program(folder: Path, body: str) -> str:
    program = folder / "bwrap"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return str(program)


def test_a_box_killed_from_outside_is_trouble(sandbox: Bubblewrap, tmp_path: Path) -> None:
    token = f"assay{secrets.token_hex(12)}"
    with sandbox.open(sandbox.image(), LIMITS) as box, ThreadPoolExecutor(1) as pool:
        script = f": {token}; echo begun; sleep 290; :"
        ran = pool.submit(box.run, ["bash", "-c", script], limits=LIMITS, stdout=tmp_path / "out", stderr=tmp_path / "err")
        _until(lambda: (tmp_path / "out").exists() and (tmp_path / "out").read_text() == "begun\n")
        (outer,) = (pid for pid in alive(token) if _parent(pid) == os.getpid())
        os.kill(outer, signal.SIGKILL)
        with pytest.raises(Trouble, match="killed from outside"):
            ran.result()
    assert alive(token) == []


def test_an_interrupt_leaves_nothing_alive(sandbox: Bubblewrap, sh: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Watch, view: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(Watch, "look", interrupted)
    token = f"assay{secrets.token_hex(12)}"
    with pytest.raises(KeyboardInterrupt), sandbox.open(sandbox.image(), LIMITS) as box:
        sh(box, f"setsid bash -c 'sleep 290; : {token}' & sleep 290")
    assert alive(token) == []


def test_a_disk_of_the_host_that_is_full_is_trouble(scratch: Path, sh: Shell) -> None:
    with closing(Bubblewrap(folder=scratch, spare=1 << 60)) as full:
        _trouble(full, sh, "is full")


@needs_root
def test_a_disk_that_fills_up_meanwhile_is_trouble(sh: Shell) -> None:
    folder = Path(f"/var/tmp/assay-test-{secrets.token_hex(8)}")
    folder.mkdir(mode=0o711)
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m,mode=711", "none", folder], check=False, capture_output=True
    ).returncode:
        folder.rmdir()
        pytest.skip("nothing can be mounted here")
    try:
        with closing(Bubblewrap(folder=folder, spare=4 * MIB)) as small:
            _trouble(small, sh, "full", "head -c 60000000 /dev/zero > f; sleep 290")
    finally:
        subprocess.run(["umount", folder], check=True)
        folder.rmdir()


def test_an_image_of_another_sandbox(sandbox: Bubblewrap) -> None:
    from assay.judge.sandbox.box import Image

    with pytest.raises(Trouble, match="not one of this sandbox's"), sandbox.open(Image("sha256:0"), LIMITS):
        pass


@pytest.mark.parametrize("inside", ["/usr/bin/sh", "/", "app", "/app/../..", "/bin/x", "/proc/x", "/etc/alternatives/x", "/a\0b"])
def test_places_that_cannot_be_written(sandbox: Bubblewrap, tmp_path: Path, inside: str) -> None:
    (tmp_path / "file").write_text("x")
    with sandbox.open(sandbox.image(), LIMITS) as box:
        with pytest.raises(Trouble):
            box.put(tmp_path / "file", inside)
        with pytest.raises(Trouble):
            box.fresh(inside)


def test_a_place_for_boxes_has_to_be_ours(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "open")
    for name in ("open", "file", "link"):
        with pytest.raises(Trouble):
            Scratch(tmp_path / name)


@needs_root
def test_a_place_for_boxes_has_to_be_in_reach(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o700)
    with pytest.raises(Trouble, match="cannot pass"):
        Scratch(tmp_path / "closed" / "boxes")


# What dead runs leave behind.


def test_a_killed_run_is_cleared_by_the_next(scratch: Path) -> None:
    token = f"assay{secrets.token_hex(12)}"
    script = textwrap.dedent(f"""
        import sys
        from pathlib import Path
        from assay.judge.sandbox.box import Limits
        from assay.judge.sandbox.bubblewrap import Bubblewrap
        sandbox = Bubblewrap(folder=Path(sys.argv[1]))
        limits = Limits(seconds=300, memory=1 << 28, processes=64, disk=1 << 26, output=1 << 20)
        with sandbox.open(sandbox.image(), limits) as box:
            box.run(["bash", "-c", ": {token}; (setsid sleep 290 &); sleep 290; :"], limits=limits,
                    stdout=Path(sys.argv[1], "out"), stderr=Path(sys.argv[1], "err"))
    """)
    with closing(Bubblewrap(folder=scratch)) as living, living.open(living.image(), LIMITS) as box:
        runs = set(scratch.glob("run-*"))
        dead = subprocess.Popen([sys.executable, "-c", script, scratch], env={**os.environ, "PYTHONPATH": python_path()})
        _until(lambda: len(alive(token)) > 2)
        (left,) = set(scratch.glob("run-*")) - runs
        groups = _groups()
        dead.kill()
        dead.wait()
        assert living.sweep() >= 1
        assert alive(token) == []
        assert not left.exists()
        assert not [group for group in _groups() & groups if f"-{dead.pid}-" in group]
        assert runs <= set(scratch.glob("run-*"))
        assert box.run(["true"], limits=LIMITS, stdout=scratch / "out", stderr=scratch / "err").exit_code == 0
        assert living.scratch.sweep() == 0


def test_groups_of_the_dead_are_cleared_and_those_of_the_living_not(sandbox: Bubblewrap) -> None:
    groups = cgroups.find()
    if groups.kind == "counted":
        pytest.skip("this machine has no control groups for us")
    namespace = os.stat("/proc/self/ns/pid").st_ino
    top = next(iter(groups.places.values()))
    ours = top / f"assay-{namespace}-{os.getpid()}-{_born(os.getpid())}-999999"
    theirs, elsewhere = top / f"assay-{namespace}-{os.getpid()}-1-999999", top / f"assay-1-{os.getpid()}-1-999999"
    sleeper, unreaped = subprocess.Popen(["sleep", "290"]), subprocess.Popen(["true"])
    os.waitid(os.P_PID, unreaped.pid, os.WEXITED | os.WNOWAIT)
    killed = top / f"assay-{namespace}-{unreaped.pid}-{_born(unreaped.pid)}-999999"
    for folder in (ours, theirs, elsewhere, killed):
        folder.mkdir()
    try:
        (theirs / "cgroup.procs").write_text(str(sleeper.pid))
        cgroups.sweep()
        assert sleeper.wait() == -signal.SIGKILL
        assert [folder.exists() for folder in (ours, theirs, elsewhere, killed)] == [True, False, True, False]
    finally:
        sleeper.kill()
        sleeper.wait()
        unreaped.wait()
        for folder in (ours, theirs, elsewhere, killed):
            with suppress(FileNotFoundError):
                folder.rmdir()


def test_groups_that_an_interruption_left_are_removed_with_the_sandbox(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox, before = Bubblewrap(folder=scratch), _groups()

    def interrupted(folder: Path) -> bool:
        raise KeyboardInterrupt

    with sandbox.open(sandbox.image(), LIMITS) as box, monkeypatch.context() as patch:
        patch.setattr(cgroups, "_remove", interrupted)
        with pytest.raises(KeyboardInterrupt):
            box.run(["true"], limits=LIMITS, stdout=scratch / "out", stderr=scratch / "err")
    left = {group for group in _groups() - before if f"-{os.getpid()}-" in group}
    if not left:
        pytest.skip("this machine has no control groups for us")
    sandbox.close()
    assert not left & _groups()


def test_a_closed_box_leaves_nothing(scratch: Path, sh: Shell) -> None:
    made = Bubblewrap(folder=scratch)
    with made.open(made.image(), LIMITS) as box:
        sh(box, "mkdir -p a/b; chmod 0 a; echo x > /var/x; (setsid sleep 290 &)")
        (run,) = {path for path in scratch.glob("run-*") if (path / "box-0").exists() and _ours(path)}
        (folder,) = run.glob("box-*")
    assert not folder.exists()
    made.close()
    assert not run.exists()
    assert not [group for group in _groups() if f"-{os.getpid()}-" in group and not group.endswith("-999999")]


def test_a_fork_has_a_folder_of_its_own(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Scratch(scratch)
    with made.box() as box:
        ours = box.parent
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 1)
        with made.box() as box:
            assert box.parent != ours
        made.close()
    assert ours.exists()
    tree.remove(ours)


def _ours(run: Path) -> bool:
    return any(
        os.path.samefile(f"/proc/self/fd/{number}", run / "alive") for number in os.listdir("/proc/self/fd") if _is(number)
    )


def _is(number: str) -> bool:
    return os.path.exists(f"/proc/self/fd/{number}")


def _groups() -> set[str]:
    return {name for _folder, names, _files in os.walk("/sys/fs/cgroup") for name in names if name.startswith("assay-")}


def _born(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMITS.seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


# Images.


def _context(folder: Path, text: str) -> Path:
    environment = folder / "environment"
    environment.mkdir(exist_ok=True)
    (environment / "Dockerfile").write_text(textwrap.dedent(text))
    return environment


def test_a_dockerfile_is_built_and_kept(sandbox: Bubblewrap, sh: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = _context(
        tmp_path,
        """
        FROM debian:12
        ARG WHO=world
        ENV GREETING="hello ${WHO}"
        WORKDIR /work/here
        COPY data/ ./data/
        COPY one.sh /bin-of-ours/
        RUN echo "$GREETING" > greeting && chmod 700 data && id -u > who
        RUN mkdir -p /srv/x && ln -s /work/here/greeting /srv/x/link
        """,
    )
    (environment / "data" / "deep").mkdir(parents=True)
    (environment / "data" / "deep" / "file").write_text("one\n")
    (environment / "data" / "link").symlink_to("deep/file")
    (environment / "one.sh").write_text("#!/bin/sh\necho ran\n")
    (environment / "one.sh").chmod(0o755)
    image = sandbox.image(environment)
    assert (image.workdir, image.env) == ("/work/here", {"GREETING": "hello world"})
    with sandbox.open(image, LIMITS) as box:
        said = sh(box, "pwd; cat greeting who data/link /srv/x/link; /bin-of-ours/one.sh; echo $GREETING; stat -c %a data")
        assert said.out == "/work/here\nhello world\n1000\none\nhello world\nran\nhello world\n700\n", said.err
        sh(box, "echo changed > greeting")
    with sandbox.open(image, LIMITS) as box:
        assert sh(box, "cat greeting").out == "hello world\n"
    with monkeypatch.context() as patch:
        patch.setattr(Bubblewrap, "open", lambda *args: pytest.fail("it was built again"))
        assert sandbox.image(environment) == image
    (environment / "data" / "deep" / "file").write_text("two\n")
    other = sandbox.image(environment)
    assert other.digest != image.digest
    (environment / "data" / "deep" / "file").write_text("one\n")
    assert sandbox.image(environment) == image


def test_a_dockerfile_that_fails_is_trouble_with_its_line(sandbox: Bubblewrap, tmp_path: Path) -> None:
    environment = _context(tmp_path, "FROM x\n\nRUN echo before; echo broken >&2; exit 3\n")
    for _twice in range(2):
        with pytest.raises(Trouble, match=r"Dockerfile:3: RUN ended with exit code 3: before / broken;"):
            sandbox.image(environment)
    _context(tmp_path, "FROM x\nCOPY Dockerfile /usr/local/bin/\n")
    with pytest.raises(Trouble, match=r"Dockerfile:2: .*not a place in a box"):
        sandbox.image(environment)
    _context(tmp_path, "FROM x\nADD https://example.org/x /x\n")
    with pytest.raises(BadInput, match="Dockerfile:2: ADD"):
        sandbox.image(environment)
    assert not [
        path for path in (sandbox.scratch.folder / "images").iterdir() if path.is_dir() and not (path / "image.json").exists()
    ]


def test_an_image_that_is_not_there_is_trouble(sandbox: Bubblewrap, tmp_path: Path) -> None:
    with pytest.raises(Trouble, match="debian:12 cannot be had"):
        sandbox.image(tmp_path, name="debian:12")


def test_a_root_file_system_of_ones_own(scratch: Path, sh: Shell, tmp_path: Path) -> None:
    top = scratch / "root-file-system"
    _small_root(top)
    with closing(Bubblewrap(folder=scratch, bases={"mine": top})) as made:
        image = made.image(name="mine")
        assert image.digest == tree.digest(top)
        with made.open(image, LIMITS) as box:
            said = sh(
                box,
                "while read x; do echo $x; done < /etc/mine; echo x > /etc/mine; echo x > /usr/x; echo /usr/*; pwd",
                shell="sh",
            )
            assert said.out == "mine\n/usr/bin /usr/lib /usr/lib64\n/app\n" or said.out.startswith("mine\n/usr/bin"), said.err
            assert "x" not in said.out.split("\n")[1].split("/")
        assert (top / "etc" / "mine").read_text() == "mine\n"
        environment = _context(tmp_path, "FROM mine\nRUN echo built > /built; read x < /etc/mine; echo $x >> /built\n")
        with made.open(made.image(environment), LIMITS) as box:
            assert sh(box, "while read x; do echo $x; done < /built", shell="sh").out == "built\nmine\n"
    with pytest.raises(Trouble, match="not a root file system"):
        root.of_folder(tmp_path)


def _small_root(top: Path) -> None:
    """A shell and the libraries that it needs."""
    shell = os.path.realpath("/bin/sh")
    said = subprocess.run(["ldd", shell], capture_output=True, text=True, check=True).stdout
    (top / "usr/bin").mkdir(parents=True)
    (top / "etc").mkdir()
    (top / "etc/mine").write_text("mine\n")
    (top / "etc/up").symlink_to("../usr/bin/sh")
    shutil.copy(shell, top / "usr/bin/sh")
    for library in re.findall(r"(/\S+)", said):
        place = top / "usr" / os.path.relpath(os.path.realpath(library), "/").removeprefix("usr/")
        named = top / "usr" / library.lstrip("/").removeprefix("usr/")
        for target in {place, named}:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, target)
    for name in ("bin", "lib", "lib64"):
        (top / name).symlink_to(f"usr/{name}")


@pytest.mark.parametrize("name", ["bubblewrap", "none"])
def test_choose(name: str, scratch: Path) -> None:
    if name == "none":
        with pytest.raises(BadInput, match="choose one of bubblewrap, containers"):
            choose(name)
    else:
        assert choose(name, folder=scratch).name == name


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
        said = sh(box, f"/usr/bin/python3 - <<'E'\n{script}E", door=place)
    assert said.out == "True\n" * 8, said.err


def _echo(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        while data := connection.recv(65536):
            connection.sendall(data)


def test_a_door_to_nobody_answers_nothing(sandbox: Bubblewrap, sh: Shell, tmp_path: Path) -> None:
    with sandbox.open(sandbox.image(), LIMITS) as box:
        said = sh(box, "exec 3<>/dev/tcp/127.0.0.1/8080; read x <&3 || echo end", door=tmp_path / "nobody")
    assert said.out == "end\n"


# Parts.


def _verdict(program: bytes, number: int, processor: int, first: int) -> int:
    """What the kernel would answer: the program carried out on one call."""
    rows = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    data = {0: number, 4: processor, 16: first}
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


@pytest.mark.parametrize(("machine", "processor", "call"), [("x86_64", 0xC000003E, 41), ("aarch64", 0xC00000B7, 198)])
@given(number=st.integers(0, 460), family=st.integers(0, 50))
def test_the_filter_of_calls(machine: str, processor: int, call: int, number: int, family: int) -> None:
    program = seccomp.program(machine)
    assert program is not None
    absent, unknown, fine = 0x50000 | errno.ENOSYS, 0x50000 | errno.EAFNOSUPPORT, 0x7FFF0000
    denied = {"x86_64": {248, 249, 250, 298, 321, 323}, "aarch64": {217, 218, 219, 241, 280, 282}}[machine] | {425, 426, 427}
    expected = absent if number in denied else fine
    if number == call:
        expected = fine if family in (1, 2, 10, 16) else unknown
    assert _verdict(program, number, processor, family) == expected
    assert _verdict(program, call, processor, family) == (fine if family in (1, 2, 10, 16) else unknown)
    assert _verdict(program, number, 0x40000003, family) == absent
    assert _verdict(program, number | 0x40000000, processor, family) == absent
    assert seccomp.program("mips") is None


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
    with pytest.raises(Trouble, match="output cannot be kept"):
        Capture(tmp_path / "out", tmp_path / "err", 10, None)
    assert (tmp_path / "other").read_text() == "kept"


def test_the_command_line_has_no_way_around(sandbox: Bubblewrap, tmp_path: Path) -> None:
    made = Root(tmp_path / "root", root.of_host(), Owner(os.geteuid(), os.getegid(), False))
    line = launch.command_line(
        launch.Bwrap("bwrap", "prlimit", "setpriv", (0, 8, 0)), made, ["--share-net", "x"], limits=LIMITS,
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
    monkeypatch.setattr(cgroups, "_write", lambda file, value: written.__setitem__(file.name, str(value)))
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
