"""Failures around bubblewrap boxes raise InfrastructureError, and a later run removes what dead runs left."""

import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

import boxes
from assay.judge import tree
from assay.judge.sandbox import InfrastructureError, cgroups
from assay.judge.sandbox import scratch as scratches
from assay.judge.sandbox.bubblewrap import Bubblewrap
from assay.judge.sandbox.cgroups import CountedGroup
from assay.judge.sandbox.scratch import Scratch
from assay.judge.sandbox.usage import DiskWatch
from boxes import LIMITS, Shell, alive, needs_root, python_path

MIB = 1 << 20

scratch = pytest.fixture(scope="module")(boxes.scratch)
sandbox = pytest.fixture(scope="module")(boxes.sandbox)
sh = pytest.fixture(boxes.sh)


# InfrastructureError.


def test_without_bubblewrap(tmp_path: Path, scratch: Path) -> None:
    with pytest.raises(InfrastructureError, match="apt install bubblewrap"):
        Bubblewrap(folder=scratch, bwrap=str(tmp_path / "none"))
    for version, expected in (("bubblewrap 0.3.1", "too old"), ("nothing", "too old")):
        with pytest.raises(InfrastructureError, match=expected):
            Bubblewrap(folder=scratch, bwrap=_program(tmp_path, f"echo {version}"))


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


def test_a_group_that_cannot_be_joined_is_trouble(scratch: Path, sh: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CountedGroup, "doors", [scratch / "no where" / "tasks"])
    with closing(Bubblewrap(folder=scratch, counted=True)) as broken:
        _trouble(broken, sh, "could not make the box: .*no where/tasks")


@needs_root
def test_who_does_not_join_its_group_is_put_into_it(sandbox: Bubblewrap, sh: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups._V1Group, "doors", property(lambda _group: (), lambda _group, _doors: None))
    with sandbox.open(sandbox.image(), LIMITS) as box:
        assert sh(box, "head -c 400M /dev/zero | tail -c 300M >/dev/null").ran.stopped == "memory"
        assert sh(box, "true").ran.peak_memory > 0


def _trouble(sandbox: Bubblewrap, sh: Shell, expected: str, script: str = "true") -> None:
    with sandbox.open(sandbox.image(), LIMITS) as box, pytest.raises(InfrastructureError, match=expected):
        sh(box, script)


def _program(folder: Path, body: str) -> str:
    program = folder / "bwrap"
    program.write_text(f"#!/bin/bash\n{body}\n")
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
        with pytest.raises(InfrastructureError, match="killed from outside"):
            ran.result()
    assert alive(token) == []


@pytest.mark.parametrize("status", [1, 5, 1000, 1 << 31, (1 << 32) - 5, 1 << 32, (1 << 33) + 1, (1 << 64) - 2])
def test_no_command_can_make_trouble_of_its_end(sandbox: Bubblewrap, sh: Shell, status: int) -> None:
    """Where the kernel lets it, it writes what bubblewrap is to report into the pipe between bubblewrap's two processes."""
    script = textwrap.dedent(f"""
        import ctypes, os, sys
        call = ctypes.CDLL(None, use_errno=True).syscall
        first = os.pidfd_open(1)
        for name in os.listdir("/proc/1/fd"):
            if "eventfd" in os.readlink("/proc/1/fd/" + name):
                os.write(call(438, first, int(name), 0), ({status}).to_bytes(8, sys.byteorder))
                while True: os.sched_yield()
    """)
    with sandbox.open(sandbox.image(), LIMITS) as box:
        ran = sh(box, script, shell="/usr/bin/python3").ran
    assert ran.stopped is None
    assert ran.exit_code in range(256)


@pytest.mark.parametrize("alive", [True, False])
def test_a_bubblewrap_that_is_killed_before_its_gate_opens_is_trouble(
    scratch: Path, sh: Shell, monkeypatch: pytest.MonkeyPatch, alive: bool
) -> None:
    """It says the number of the box's first process, which may be dead by then, and is dead before we listen."""
    monkeypatch.setattr(CountedGroup, "early", lambda _group, pid: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT))
    folder = Path(f"/var/tmp/assay-test-{secrets.token_hex(8)}")
    folder.mkdir(mode=0o755)
    first = subprocess.Popen(["sleep", "3000"])
    number = first.pid if alive else 1 << 22  # which is more than any process can have
    say = f"""while [ "$1" != --json-status-fd ]; do shift; done; echo '{{ "child-pid": {number} }}' >&"$2"; kill -9 $$"""
    try:
        program = _program(folder, f'[ "$1" != --version ] || {{ echo bubblewrap 0.8.0; exit; }}; {say}')
        with closing(Bubblewrap(folder=scratch, bwrap=program, counted=True)) as broken:
            _trouble(broken, sh, "killed from outside, by signal 9")
        if alive:
            assert first.wait() == -signal.SIGKILL
    finally:
        first.kill()
        first.wait()
        shutil.rmtree(folder)


def test_a_bubblewrap_that_is_killed_just_before_its_gate_opens_is_trouble(
    scratch: Path, sh: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(_group: CountedGroup, first: int) -> None:
        handle = os.pidfd_open(first)
        for pid in (_parent(first), first):
            os.kill(pid, signal.SIGKILL)
        assert select.select([handle], [], [], 60)[0]
        os.close(handle)

    monkeypatch.setattr(CountedGroup, "add", kill)
    with closing(Bubblewrap(folder=scratch, counted=True)) as sandbox:
        _trouble(sandbox, sh, "killed from outside, by signal 9")


def test_an_interrupt_leaves_nothing_alive(sandbox: Bubblewrap, sh: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: DiskWatch, view: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(DiskWatch, "look", interrupted)
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
    from assay.judge.sandbox import Image

    with pytest.raises(InfrastructureError, match="belongs to another sandbox"), sandbox.open(Image("sha256:0"), LIMITS):
        pass


@pytest.mark.parametrize("inside", ["/usr/bin/sh", "/", "app", "/app/../..", "/bin/x", "/proc/x", "/etc/alternatives/x", "/a\0b"])
def test_places_that_cannot_be_written(sandbox: Bubblewrap, tmp_path: Path, inside: str) -> None:
    (tmp_path / "file").write_text("x")
    with sandbox.open(sandbox.image(), LIMITS) as box:
        with pytest.raises(InfrastructureError):
            box.put(tmp_path / "file", inside)
        with pytest.raises(InfrastructureError):
            box.fresh(inside)


def test_a_place_for_boxes_has_to_be_ours(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "open")
    for name in ("open", "file", "link"):
        with pytest.raises(InfrastructureError):
            Scratch(tmp_path / name)


@needs_root
def test_a_place_for_boxes_has_to_be_in_reach(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o700)
    with pytest.raises(InfrastructureError, match="cannot enter this folder"):
        Scratch(tmp_path / "closed" / "boxes")


# What dead runs leave behind.


def test_a_killed_run_is_cleared_by_the_next(scratch: Path) -> None:
    token = f"assay{secrets.token_hex(12)}"
    script = textwrap.dedent(f"""
        import sys
        from pathlib import Path
        from assay.judge.sandbox import Limits
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
        _until(lambda: alive(token) == [])  # without control groups, nobody waits for what dies with a box's first process
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
    for folder in (ours, elsewhere, killed):
        folder.mkdir()
    try:
        _until(lambda: _moved(sleeper.pid, theirs))
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
    sandbox = Bubblewrap(folder=scratch)
    with sandbox.open(sandbox.image(), LIMITS) as box:
        sh(box, "mkdir -p a/b; chmod 0 a; echo x > /var/x; truncate -s 1G /var/y; (setsid sleep 290 &)")
        folder, run = box.root.path.parents[:2]
    assert not (folder / "root/app/a").exists()
    assert not list((folder / "root/var").glob("[xy]"))
    sandbox.close()
    assert not run.exists()
    assert not [group for group in _groups() if f"-{os.getpid()}-" in group and not group.endswith("-999999")]


def test_boxes_are_removed_without_threads_that_python_would_wait_for(scratch: Path) -> None:
    """A signal that breaks off the start of such a thread keeps a judge from ever ending, and his lock with him."""
    others = set(scratch.glob("run-*"))
    with closing(Bubblewrap(folder=scratch)) as sandbox:
        before = set(threading.enumerate())
        for _ in range(20):
            with suppress(KeyboardInterrupt), sandbox.open(sandbox.image(), LIMITS) as box:
                box.running = True  # so that its folder is removed, and not used again
                raise KeyboardInterrupt
        assert set(threading.enumerate()) == before
        assert len(list(scratch.glob("run-*/gone-*"))) <= scratches.BEHIND
    assert set(scratch.glob("run-*")) == others


def test_a_fork_has_a_folder_of_its_own(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Scratch(scratch)
    with own.box() as box:
        ours = box.parent
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 1)
        with own.box() as box:
            assert box.parent != ours
        own.close()
    assert ours.exists()
    tree.remove(ours)


def test_a_run_that_is_collected_during_a_sweep_does_not_wait_for_it(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A garbage collection closes runs at any moment, also while this thread holds the lock of the folder."""
    own, other = Scratch(scratch), Scratch(scratch)
    with own.box() as box:
        ours = box.parent
    dead, once = scratches._dead, [own]

    def collected(run: Path) -> bool:
        while once:
            once.pop().close()
        return dead(run)

    (scratch / "run-0").mkdir()
    monkeypatch.setattr(scratches, "_dead", collected)
    assert other.sweep() >= 1
    assert not ours.exists()


def _moved(pid: int, group: Path) -> bool:
    """Puts a process into a new group; False if another test that sweeps has removed that meanwhile."""
    group.mkdir(exist_ok=True)
    with suppress(FileNotFoundError):
        (group / "cgroup.procs").write_text(str(pid))
        return True
    return False


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
