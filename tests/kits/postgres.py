"""A PostgreSQL of our own for tests of the ledger: a cluster in a temporary folder, on a socket there, gone afterwards."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

__all__ = ["CRASH", "Cluster", "cluster"]

CRASH = signal.SIGQUIT
"""As if the machine had crashed: pg_ctl calls it immediate."""

_START, _STOP = 300, 120
"""Seconds, on a slow and busy machine."""
_USER = "assay"
PASSWORD = "not-a-secret"


class Cluster:
    """A server that can be stopped and started; its databases are made as they are asked for."""

    def __init__(self, folder: Path, programs: Path, user: pwd.struct_passwd | None) -> None:
        self._folder, self._programs, self._user = folder, programs, user
        self._server: subprocess.Popen[bytes] | None = None
        self._names = count(1)

    @property
    def data(self) -> Path:
        """The folder of its files."""
        return self._folder / "data"

    def url(self, database: str, password: str = PASSWORD) -> str:
        return f"postgresql://{_USER}:{password}@/{database}?host={self._folder}"

    def database(self) -> str:
        """The URL of a new, empty database."""
        name = f"ledger{next(self._names)}"
        self.sql("postgres", f"CREATE DATABASE {name}")
        return self.url(name)

    def sql(self, database: str, statements: str) -> str:
        """The output of psql for the statements; database: its name, or its URL."""
        url = database if "://" in database else self.url(database)
        command = [str(self._programs / "psql"), "-XqAt", "-v", "ON_ERROR_STOP=1", "-d", url, "-f", "-"]
        ran = subprocess.run(command, input=statements, capture_output=True, text=True, timeout=_START, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def make(self) -> None:
        password = self._folder / "password"
        password.write_text(PASSWORD)
        if self._user is not None:
            for place in (self._folder, password):
                os.chown(place, self._user.pw_uid, self._user.pw_gid)
        options = (
            "--auth=scram-sha-256",
            "--no-sync",
            "--encoding=UTF8",
            "--locale=C",
            "--username",
            _USER,
            "--pwfile",
            password,
        )
        process = self._run(self._programs / "initdb", "--pgdata", self._folder / "data", *options)
        printed, _ = process.communicate(timeout=_START)
        assert process.returncode == 0, printed.decode(errors="replace")

    def start(self) -> None:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self._folder),
            "fsync": "off",
            "shared_buffers": "32MB",
            "max_connections": "40",
            "dynamic_shared_memory_type": "mmap",
            "log_min_messages": "fatal",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        self._server = self._run(self._programs / "postgres", "-D", self._folder / "data", *options, log=self._folder / "log")
        ready = [str(self._programs / "pg_isready"), "-q", "-h", str(self._folder), "-d", "postgres", "-U", _USER]
        until = time.monotonic() + _START
        while subprocess.run(ready, check=False, timeout=_START).returncode != 0:
            assert self._server.poll() is None, (self._folder / "log").read_text(errors="replace")
            assert time.monotonic() < until, "PostgreSQL does not answer"
            time.sleep(0.05)

    def stop(self, number: int = signal.SIGINT) -> None:
        """End the server: SIGINT at once and in order, SIGQUIT as if the machine had crashed."""
        server, self._server = self._server, None
        if server is None:
            return
        server.send_signal(number)
        try:
            server.wait(_STOP)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()

    def restart(self, number: int) -> None:
        """End the server, and start it again."""
        self.stop(number)
        self.start()

    def _run(self, *words: str | Path, log: Path | None = None) -> subprocess.Popen[bytes]:
        """A program of PostgreSQL's, which root may not run; it ends with us, however we end."""
        command = ["setpriv", "--pdeathsig", "INT"]
        if self._user is not None:
            command += [f"--reuid={self._user.pw_uid}", f"--regid={self._user.pw_gid}", "--clear-groups"]
        with (log or Path(os.devnull)).open("ab") as output:
            return subprocess.Popen(
                [*command, *map(str, words)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if log is None else output,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env=os.environ | {"LC_ALL": "C.UTF-8"},
            )


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A cluster that runs. The test fails if PostgreSQL is missing: `tools/system tests` installs it."""
    with tempfile.TemporaryDirectory(prefix="assay-pg-", dir="/tmp") as folder:  # a socket's path must be short
        server = Cluster(Path(folder), _programs(), _somebody())
        server.make()
        server.start()
        try:
            yield server
        finally:
            server.stop(signal.SIGQUIT)  # its folder goes too: there is nothing to bring in order


def _programs() -> Path:
    """The folder of the newest PostgreSQL here: Debian keeps its programs apart, others on the PATH."""
    apart = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    initdb = str(apart[-1]) if apart else shutil.which("initdb")
    assert initdb is not None, "PostgreSQL is missing: `bash tools/system tests` installs it"
    return Path(initdb).parent


def _somebody() -> pwd.struct_passwd | None:
    """The user to be where we are root: PostgreSQL's own user, or nobody."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise AssertionError("there is no user to run PostgreSQL as")
