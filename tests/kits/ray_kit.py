"""A Ray cluster of several nodes on this machine, on loopback, with ports and folders of its own; and what is left of it.

Everything that a node starts has a mark in its environment, stations and workers too: so a node is killed as a machine dies,
whole and at once, and nothing of anybody else is touched. All of it is gone when the block ends, however it ends.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from assay.judge import tree
from assay.judge.stations import Parcel

_AGAIN = "trap 'kill $child; exit' TERM; while :; do \"$@\" & child=$!; wait $child; sleep 1; done"
"""Ray gives a node thirty seconds to start, which a busy machine may not have."""
_LIBC = ctypes.CDLL(None)
_SET_PDEATHSIG = 1
MARK = "ASSAY_TEST_NODE"
WAIT = 600.0
"""Seconds that a step may take on a machine that is very busy."""
_SEEN = 0.05
_AGENTS = ("runtime-env-agent", "dashboard-agent-grpc", "dashboard-agent-listen", "metrics-export")
_PORTS = ("node-manager", "object-manager", *_AGENTS)


def until(what: Callable[[], bool], why: str = "it did not come") -> None:
    """Wait until something is so."""
    end = time.monotonic() + WAIT
    while not what():
        assert time.monotonic() < end, why
        time.sleep(_SEEN)


def marked(mark: str) -> list[int]:
    """The processes with a mark."""
    word, pids = f"{MARK}={mark}".encode(), []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with suppress(OSError):
                if word in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                    pids.append(int(name))
    return pids


def kill(mark: str) -> None:
    """Kill everything with a mark, as the loss of a machine does."""

    def gone() -> bool:
        for pid in (pids := marked(mark)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not pids

    until(gone, f"processes with the mark {mark} cannot be killed")


class Cluster:
    """A head and as many further nodes as are started. Each can hold boxes."""

    def __init__(self, folder: Path, cpus: int, memory: int) -> None:
        self.folder, self.cpus, self.memory, self.name = folder, cpus, memory, secrets.token_hex(6)
        self.nodes: list[str] = []
        """The marks of the nodes that were not killed; the first is the head."""
        self.runs: list[Run] = []
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        (self.port,) = _ports(1)
        self.address = f"127.0.0.1:{self.port}"
        self._numbers = iter(range(1_000_000))
        self.start(head=True)

    def env(self, mark: str, place: str) -> dict[str, str]:
        """The environment of a node, or of a driver. place: the machine that it stands for, with its own state and scratch."""
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return env | {
            MARK: mark,
            "ASSAY_STATE": str(self.folder / place / "state"),
            "ASSAY_SCRATCH": str(self.folder / place / "scratch"),
            "PYTHONPYCACHEPREFIX": str(Path(__file__).parents[2] / "build" / "compiled"),
            "PYTHONWARNINGS": "ignore",  # of Ray's own
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        }

    def start(self, *, head: bool = False) -> str:
        """Begin to start a node; its mark. It takes its share when it is there."""
        number = next(self._numbers)
        mark = f"{self.name}-{number}"
        line = ["sh", "-c", _AGAIN, "sh", str(Path(sys.executable).with_name("ray")), "start", "--block", "--disable-usage-stats"]
        # With ports of its own, a node does not wait for its agents to find some: a busy machine is too slow for that.
        line += [f"--{name}-port={port}" for name, port in zip(_PORTS, _ports(len(_PORTS)), strict=True)]
        line += ["--min-worker-port=0", "--max-worker-port=0", "--node-ip-address=127.0.0.1", "--include-log-monitor=false"]
        line += [f"--num-cpus={self.cpus}", f"--memory={self.memory}", "--object-store-memory=80000000"]
        line += ['--resources={"sandbox": 1}']
        if head:
            line += ["--head", f"--port={self.port}", "--include-dashboard=false", f"--temp-dir={self.folder / 'ray'}"]
            line += ["--no-monitor"]  # nobody scales this cluster
        else:
            line += [f"--address={self.address}"]
        env = self.env(mark, f"node-{min(number, 1)}")
        with (self.folder / f"node-{number}.txt").open("wb") as log:
            self._processes[mark] = subprocess.Popen(
                line,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
                preexec_fn=_follow,  # noqa: PLW1509  (it calls nothing but the kernel)
            )
        self.nodes.append(mark)
        if head:
            until(lambda: _listens(self.port), "the head does not listen")
        return mark

    def lose(self, mark: str) -> None:
        """Kill a node."""
        self.nodes.remove(mark)
        kill(mark)
        self._processes.pop(mark).wait()

    def run(self, folder: Path, *options: str, driver: str = "driver", validator: str | None = "val-1") -> Run:
        """Begin `assay run` on all nodes. validator: whose evidence it is, if the options do not say it."""
        whose = [] if validator is None else ["--validator", validator]
        words = ["--engine", "ray", "--address", self.address, *whose, *options]
        self.runs.append(Run(self, folder, words, f"{self.name}-{driver}"))
        return self.runs[-1]

    def is_complete(self) -> bool:
        """Whether all nodes that were started are there."""
        ask = "import ray, sys; ray.init(sys.argv[1], log_to_driver=False); print(sum(node['Alive'] for node in ray.nodes()))"
        line = [sys.executable, "-c", ask, self.address]
        printed = subprocess.run(line, env=self.env(f"{self.name}-look", "driver"), stdout=subprocess.PIPE, check=True).stdout
        return int(printed.split()[-1]) == len(self.nodes)

    def left(self) -> list[str]:
        """The remains of Assay on the nodes while nothing is judged: stations, workers, and folders of boxes.

        A machine whose node was killed was cleared at the end of the run, if it was back by then.
        """
        lines = []
        for mark in self.nodes:
            for pid in marked(mark):
                with suppress(OSError):
                    command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    lines += [command] if "assay" in command.partition("site-packages")[0] and "ray start" not in command else []
        return lines + [str(path) for path in self.folder.glob("node-*/scratch/run-*")]

    def close(self) -> None:
        """Kill whatever goes on."""
        for run in self.runs:
            run.kill()
        for mark, process in self._processes.items():
            kill(mark)
            process.wait()


class Run:
    """An `assay run` that goes on."""

    def __init__(self, cluster: Cluster, folder: Path, options: list[str], mark: str) -> None:
        self.folder = folder
        self.log = cluster.folder / f"{mark}-{secrets.token_hex(3)}.txt"
        self.errors = self.log.with_suffix(".err")
        with self.log.open("wb") as log, self.errors.open("wb") as errors:
            line = [sys.executable, "-m", "assay", "run", str(folder), "--json", "--quiet", *options]
            env = cluster.env(mark, "driver")
            self.process = subprocess.Popen(line, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=errors)

    def reaches(self, count: int) -> bool:
        """Wait until there is so much evidence; False if the run ended before."""
        until(lambda: evidence(self.folder) >= count or self.process.poll() is not None)
        return self.process.poll() is None

    def kill(self) -> None:
        """Kill it, without warning."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Stop it, as Ctrl-C does; its exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(WAIT)

    def end(self) -> str:
        """Wait for the end; what it printed. It must not fail."""
        code = self.process.wait(WAIT)
        printed = self.log.read_text(errors="replace")
        assert code == 0, printed + self.errors.read_text(errors="replace")
        return printed


def evidence(folder: Path) -> int:
    """The number of lines of evidence."""
    return sum(file.read_bytes().count(b"\n") for file in (folder / "evidence").glob("*.jsonl"))


@contextmanager
def cluster(*, cpus: int = 2, nodes: int = 2, memory: int = 4 << 30) -> Iterator[Cluster]:
    """A cluster that is gone after the block. memory: bytes of each node. Skips the test where Ray is not installed."""
    if not Path(sys.executable).with_name("ray").exists():
        pytest.skip("no Ray here")
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="assay-ray-", dir="/var/tmp"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o711)
        ray_cluster = Cluster(folder, cpus, memory)
        stack.callback(ray_cluster.close)
        for _ in range(nodes - 1):
            ray_cluster.start()
        yield ray_cluster


def _follow() -> None:
    """End with the process that runs the tests, however that ends: Ray ends its own then."""
    _LIBC.prctl(_SET_PDEATHSIG, signal.SIGTERM)


def _ports(count: int) -> list[int]:
    """Ports that nothing listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for endpoint in sockets:
            endpoint.bind(("127.0.0.1", 0))
        return [endpoint.getsockname()[1] for endpoint in sockets]


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def folder_of(place: Path, text: str = "echo\n") -> Parcel:
    """A parcel with a program, a folder and a link that leads back."""
    (place / "sub").mkdir(parents=True)
    (place / "run.sh").write_text(text)
    (place / "run.sh").chmod(0o755)
    (place / "sub" / "link").symlink_to("../run.sh")
    return Parcel(tree.digest(place), place)
