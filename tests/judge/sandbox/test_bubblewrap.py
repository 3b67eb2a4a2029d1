"""The bubblewrap sandbox: every check of a sandbox holds, and what its boxes contain."""

import os
import secrets
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

import boxes
from assay.judge import tree
from assay.judge.sandbox import InfrastructureError, launch, root
from assay.judge.sandbox.bubblewrap import Bubblewrap
from assay.judge.sandbox.check import CHECKS, Bench, CheckFailed, check
from assay.judge.sandbox.root import Root
from boxes import LIMITS, STRANGER, Shell, needs_root, python_path

scratch = pytest.fixture(scope="module")(boxes.scratch)
sandbox = pytest.fixture(scope="module")(boxes.sandbox)
either = pytest.fixture(scope="module", params=["groups", "counted"])(boxes.either)
sh = pytest.fixture(boxes.sh)


@pytest.fixture
def bench(sandbox: Bubblewrap) -> Iterator[Bench]:
    with _bench(sandbox) as bench:
        yield bench


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


@pytest.mark.sampled(24)
@pytest.mark.parametrize("name", CHECKS)
def test_check(either: Bubblewrap, name: str) -> None:
    with _bench(either) as bench:
        assert CHECKS[name](bench) == ""


def test_a_check_that_breaks_is_one_that_failed(sandbox: Bubblewrap, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(bench: Bench) -> str:
        raise InfrastructureError("it broke")

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
        (_and("--share-net"), "a box has no network, and cannot reach the host's loopback"),
        (_and("--share-net"), "a box sees no abstract socket of the host"),
        (_and("--ro-bind", "/tmp", "/tmp"), "a box sees no file of the host"),
        (_and("--bind", "/dev/shm", "/dev/shm"), "boxes do not see each other"),
        (_processes, "a box sees no process of the host, and can kill none"),
        (_variable, "a box sees no environment variable of the host"),
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
        CHECKS["a fresh folder is empty, whatever was there before"](bench)


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
        done = subprocess.run(
            [*_as_stranger(), python, "-B", "-c", script, folder / "boxes"],
            env={"PYTHONPATH": python_path(), "PATH": os.environ["PATH"]}, cwd="/", capture_output=True, text=True, check=False,
        )  # fmt: skip
    finally:
        shutil.rmtree(folder)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
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


def test_every_process_is_under_the_kernels_limits_and_in_no_group(sandbox: Bubblewrap, sh: Shell) -> None:
    """The first process is bubblewrap's, and all others are its children."""
    script = "grep -hE '^Max (core|file size|open|stack)' /proc/1/limits /proc/self/limits; grep ^Groups: /proc/self/status"
    with sandbox.open(sandbox.image(), LIMITS) as box:
        *rows, groups = (row.split() for row in sh(box, script).out.splitlines())
    size, stack, core, files = (row[-3:-1] for row in rows[:4])
    assert rows[:4] == rows[4:]
    assert (core, files, stack[0]) == (["0", "0"], ["16384", "16384"], str(8 << 20))
    assert size[0] == size[1]
    assert LIMITS.disk < int(size[0]) < LIMITS.disk + (8 << 20)
    assert groups == ["Groups:"] or os.geteuid() != 0


@needs_root
def test_every_box_has_a_user_of_its_own(sandbox: Bubblewrap, sh: Shell) -> None:
    with sandbox.open(sandbox.image(), LIMITS) as first, sandbox.open(sandbox.image(), LIMITS) as other:
        for box in (first, other):
            sh(box, "touch file")
        users = {os.stat(box.root.path / "app/file").st_uid for box in (first, other)}
    assert len(users) == 2
    assert min(users) >= root.first_number()


@needs_root
def test_boxes_in_different_folders_have_different_users(sandbox: Bubblewrap) -> None:
    place = Path(f"/var/tmp/assay-test-{secrets.token_hex(8)}")
    try:
        with closing(Bubblewrap(folder=place)) as other, ExitStack() as stack:
            boxes = [stack.enter_context(opener.open(opener.image(), LIMITS)) for opener in (sandbox, other)]
            assert len({os.stat(box.root.path).st_uid for box in boxes}) == 2
    finally:
        tree.remove(place)


def test_users_without_a_place_for_all_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(root, "_LOCKS", tmp_path / "file" / "users")
    assert root.locks(tmp_path) == tmp_path


@needs_root
def test_users_run_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root, "BOXES", 2)
    with ExitStack() as stack:
        numbers = {stack.enter_context(root.owner(tmp_path / "users")).uid for _ in range(2)}
        with pytest.raises(InfrastructureError, match="2 boxes are open"), root.owner(tmp_path / "users"):
            pass
    assert len(numbers) == 2
    with root.owner(tmp_path / "users") as again:
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
        output = sh(box, "echo ran")
        assert (output.ran.exit_code, output.out) == (126, "")
        assert "/app" in output.err
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


@pytest.mark.full
def test_many_threads_share_one_sandbox(sandbox: Bubblewrap, tmp_path: Path) -> None:
    def echoed(number: int) -> str:
        folder = tmp_path / str(number)
        folder.mkdir()
        with sandbox.open(sandbox.image(), LIMITS) as box:
            return Shell(folder)(box, f"echo {number} > file; cat file").out

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(echoed, range(18))) == [f"{number}\n" for number in range(18)]
