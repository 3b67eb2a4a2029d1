"""Commands in containers: how they end, every limit, what an agent leaves behind, and what it does to the engine."""

import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from assay.judge.sandbox import Bound, Limits
from assay.judge.sandbox.containers import Containers, container
from assay.judge.sandbox.containers.usage import _EngineUsage
from container_kit import LIMITS, LONG, ContainerBench, commands, plain, sh
from podman import sandbox

containers = pytest.fixture(scope="module")(sandbox)
bench = pytest.fixture(plain)

BIG = 30_000_000
"""Bytes that are more than may be written."""


def test_says_how_a_command_ended_and_what_it_used(bench: ContainerBench) -> None:
    output = bench.python("import sys; x = bytearray(30_000_000); sum(range(10**6)); sys.exit(9)")
    assert (output.ran.exit_code, output.ran.stopped) == (9, None)
    assert output.ran.cpu_seconds > 0
    assert output.ran.wall_seconds > 0
    assert output.ran.peak_memory > 30_000_000


def test_a_later_command_is_not_charged_for_an_earlier_one(bench: ContainerBench) -> None:
    before = bench.python("x = bytearray(100_000_000)").ran
    after = bench.sh("true").ran
    assert before.peak_memory > 100_000_000
    if Path("/sys/fs/cgroup/memory").is_dir():  # version 2 of control groups keeps one peak for all of a container's life
        assert after.peak_memory < 100_000_000
    assert after.cpu_seconds >= 0


@pytest.mark.parametrize(
    ("command", "code"),
    [(("no-such-program",), 127), (("/etc/passwd",), 126), (("/srv",), 126), (("sh", "-c", "kill -9 $$"), 137)],
)
def test_a_command_that_cannot_be_started_has_failed(bench: ContainerBench, command: tuple[str, ...], code: int) -> None:
    ran = bench.box.run(command, limits=LIMITS, stdout=bench.folder / "out", stderr=bench.folder / "err")
    assert ran.exit_code in {126, 127} if code != 137 else ran.exit_code == 137
    assert bench.sh("echo well").out == "well\n"


def test_without_its_folder_a_command_has_failed(bench: ContainerBench) -> None:
    assert bench.sh("rm -rf /app").ran.exit_code == 0
    output = bench.sh("true")
    assert output.ran.exit_code == 126
    assert "/app" in output.err
    bench.box.fresh("/app")
    assert bench.sh("pwd").out == "/app\n"


def test_input_of_any_size_is_read_or_not(bench: ContainerBench) -> None:
    data = bytes(range(256)) * 20_000
    assert bench.sh("wc -c", stdin=data).out.strip() == str(len(data))
    assert bench.sh("exit 4", stdin=data).ran.exit_code == 4
    assert bench.sh("cat", stdin=b"").out == ""


def test_quick_output_is_all_there(bench: ContainerBench) -> None:
    for number in range(10):
        output = bench.sh(f"echo out {number}; echo err {number} >&2")
        assert (output.out, output.err) == (f"out {number}\n", f"err {number}\n")


def test_output_is_kept_up_to_its_bound(bench: ContainerBench) -> None:
    output = bench.sh(f"yes | head -c 3000000; {LONG}", output=1000)
    assert output.ran.stopped == "output"
    assert len(output.out) + len(output.err) == 1000
    assert output.ran.output_dropped > 0
    output = bench.sh("yes | head -c 1001", output=1000)
    assert (output.ran.stopped, output.ran.output_dropped, len(output.out)) == ("output", 1, 1000)
    assert bench.sh("yes | head -c 1000", output=1000).ran.stopped is None


def test_closing_its_output_does_not_end_a_command(bench: ContainerBench) -> None:
    assert bench.sh("exec >&- 2>&- <&-; sleep 2; exit 5").ran.exit_code == 5


def test_who_keeps_the_output_open_does_not_keep_a_command_alive(bench: ContainerBench) -> None:
    output = bench.sh(f"(trap '' HUP TERM; {LONG}) & echo before; exit 6")
    assert (output.ran.exit_code, output.out) == (6, "before\n")


def test_the_bound_on_time_holds(bench: ContainerBench) -> None:
    assert bench.sh(f"trap '' TERM INT HUP; {LONG}; {LONG}", seconds=2).ran.stopped == "time"
    assert bench.sh("echo well").out == "well\n"


WRITES: list[tuple[str, str]] = [
    ("a file", f"head -c {BIG} /dev/zero > /srv/file"),
    ("the hosts file, which the engine put there", f"head -c {BIG} /dev/zero > /etc/hosts"),
    ("the host name", f"head -c {BIG} /dev/zero > /etc/hostname"),
    ("a file without a name", f"exec 3<>/srv/file; rm /srv/file; head -c {BIG} /dev/zero >&3"),
    ("many files", "mkdir /srv/many; cd /srv/many; seq 30000 | xargs touch"),
    ("deep folders", 'python3 -c \'import os\nfor _ in range(500): os.mkdir("d"); os.chdir("d")\''),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("what", "script"), WRITES, ids=[what for what, _ in WRITES])
def test_the_bound_on_what_is_written_holds(bench: ContainerBench, what: str, script: str) -> None:
    # What was written and is not on the disk yet is in memory, so that may be met first.
    assert bench.sh(f"{script}; {LONG}").ran.stopped in {"disk", "memory"}


def test_what_was_put_in_does_not_count_as_written(bench: ContainerBench, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(BIG))
    bench.box.put(tmp_path / "large", "/srv/large")
    output = bench.sh("wc -c < /srv/large; echo x > /srv/small; sleep 1")
    assert (output.ran.stopped, output.out.strip()) == (None, str(BIG))


def test_what_was_written_at_the_last_moment_counts(bench: ContainerBench) -> None:
    assert bench.sh(f"head -c {BIG} /dev/zero > /srv/file").ran.stopped in {"disk", "memory"}


BOMBS: list[tuple[str, str, set[Bound]]] = [
    ("memory", "x = bytearray(1 << 30)", {"memory"}),
    ("memory in files", "open('/dev/shm/a', 'wb').write(bytes(1 << 28)); open('/dev/a', 'wb').write(bytes(1 << 28))", {"memory"}),
    ("processes", "import os\nfor _ in range(200): os.fork() or os.execvp('sleep', ['sleep', '900'])", {"processes", "memory"}),
    ("forks", "import os\nwhile True: os.fork()", {"processes", "memory"}),
    ("threads", "import threading\nfor _ in range(200): threading.Thread(target=__import__('time').sleep, args=(900,)).start()",
     {"processes", "memory"}),
]  # fmt: skip


@pytest.mark.parametrize(("what", "script", "bounds"), BOMBS, ids=[bomb[0] for bomb in BOMBS])
def test_a_bomb_meets_its_bound(bench: ContainerBench, what: str, script: str, bounds: set[Bound]) -> None:
    if what == "memory in files":
        # Those file systems have bounds of their own, smaller than the box's: either is fine, if the box lives on.
        assert bench.python(script).ran.exit_code != 0
    else:
        output = sh(bench.box, bench.folder, f"cat > /tmp/bomb.py; python3 /tmp/bomb.py; {LONG}", stdin=script.encode())
        assert output.ran.stopped in bounds
    assert bench.sh("echo well").out == "well\n"


def test_limits_may_change_from_command_to_command(bench: ContainerBench) -> None:
    script = "x = bytearray(300_000_000); print(len(x))"
    large = replace(LIMITS, memory=1 << 30, processes=100)
    assert sh(bench.box, bench.folder, script, command=("python3", "-c"), limits=large).out == "300000000\n"
    assert bench.python(script).ran.stopped == "memory"
    assert sh(bench.box, bench.folder, script, command=("python3", "-c"), limits=large).out == "300000000\n"


def test_nothing_outlives_its_command(bench: ContainerBench) -> None:
    token = f"assay{uuid.uuid4().hex}"
    leave = (
        f"import os, signal, sys, time\n"
        f"for number in range(1, 65):\n"
        f"    try: signal.signal(number, signal.SIG_IGN)\n"
        f"    except (OSError, ValueError): pass\n"
        f"for _ in range(5):\n"
        f"    if os.fork() == 0:\n"
        f"        os.setsid()\n"
        f"        if os.fork() == 0: os.execvp('sh', ['sh', '-c', 'while :; do sleep 1; done', '{token}'])\n"
        f"        os._exit(0)\n"
        f"time.sleep(0.5); print('left')"
    )
    assert bench.python(leave).out == "left\n"
    assert commands(token) == []
    seen = bench.sh("ls -d /proc/[0-9]* | wc -l; echo $$").out.split()
    assert int(seen[0]) <= 4  # ours, the shell, ls and wc


def test_an_agent_cannot_replace_what_clears_up(bench: ContainerBench) -> None:
    token = f"assay{uuid.uuid4().hex}"
    evil = f"#!/usr/bin/python3\nimport os\nos.execvp('python3', ['python3', '-c', 'import time; time.sleep(900)', '{token}'])\n"
    script = (
        "rm -f /.assay-*; for name in kill sleep env bash ps pkill; do rm -f /usr/bin/$name; cp /tmp/evil /usr/bin/$name;"
        "chmod 755 /usr/bin/$name; done; (/usr/bin/python3 /tmp/evil >/dev/null 2>&1 &); echo done"
    )
    assert bench.sh("cat > /tmp/evil", stdin=evil.encode()).ran.exit_code == 0
    assert bench.sh(script).out == "done\n"
    assert commands(token) == []
    assert bench.python("print('well')").out == "well\n"


def test_signals_do_not_reach_the_first_process(bench: ContainerBench) -> None:
    output = bench.sh("kill -STOP 1; kill -KILL 1; kill -TERM 1; kill -SEGV 1; sleep 1; echo alive")
    assert output.out == "alive\n"
    # The one that it waits for makes it do what it is there for: the agent has killed itself.
    assert bench.sh(f"kill -USR1 1; {LONG}").ran.exit_code == 137
    assert bench.sh(f"kill -USR1 1; {LONG}").ran.exit_code == 137
    assert bench.sh("echo well").out == "well\n"


def test_nobody_looks_into_the_first_process(bench: ContainerBench) -> None:
    for name in ("mem", "environ", "maps", "fd/1", "root/etc"):
        assert bench.sh(f"cat /proc/1/{name} || ls /proc/1/{name}/").ran.exit_code != 0, name
    assert bench.sh("echo x > /proc/1/mem").ran.exit_code != 0


FIFOS = [
    "rm -f /etc/passwd /etc/group; mkfifo /etc/passwd /etc/group",
    "rm -f /etc/passwd; mkfifo /srv/fifo; ln -s /srv/fifo /etc/passwd",
    "mv /etc /etc2; mkdir /etc; mkfifo /etc/group",
    "rm -f /etc/passwd; mkdir /etc/passwd",
    "ln -sf passwd /etc/passwd; ln -sf /nowhere /etc/group",
    "rm -f /etc/passwd; ln -s /dev/zero /etc/passwd; ln -sf /etc/group /etc/group",
    "head -c 10000000 /dev/zero > /etc/passwd",
]
"""An engine that opens one of the first two waits for ever, and takes everything else of the engine with it."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("script", FIFOS)
def test_files_that_the_engine_reads_do_not_stop_it(containers: Containers, bench: ContainerBench, script: str) -> None:
    assert bench.sh(f"{script}; true").ran.exit_code == 0
    assert bench.python("print('well')").out == "well\n"
    bench.box.put(bench.folder, "/srv/put")
    assert bench.box.take("/srv/put", bench.folder / "taken", most_bytes=1 << 20, most_files=100)
    with containers.freeze(bench.box) as image, containers.open(image, LIMITS) as box:
        assert sh(box, bench.folder, "print('well')", command=("python3", "-c")).out == "well\n"


@pytest.mark.full
def test_without_a_look_at_the_host_the_engine_says_what_is_used(
    containers: Containers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "groups_of", lambda pid, name: None)
    monkeypatch.setattr(container, "disk", lambda client, about: _EngineUsage(client, about["Id"]))
    with containers.open(containers.image(), LIMITS) as box:
        output = sh(box, tmp_path, "echo hello; exit 3")
        assert (output.out, output.ran.exit_code) == ("hello\n", 3)
        assert output.ran.cpu_seconds >= 0
        assert sh(box, tmp_path, f"head -c {BIG} /dev/zero > /srv/file; {LONG}").ran.stopped == "disk"
        assert sh(box, tmp_path, f"for i in $(seq 80); do {LONG} & done; wait").ran.stopped in {"processes", None}
        assert sh(box, tmp_path, "echo well").out == "well\n"


def test_a_small_box_can_be_run_in(containers: Containers, tmp_path: Path) -> None:
    small = Limits(seconds=600, memory=32 << 20, processes=2, disk=1 << 20, output=1000, cpus=0.5)
    with containers.open(containers.image(), small) as box:
        assert sh(box, tmp_path, "echo small", limits=small).out == "small\n"
