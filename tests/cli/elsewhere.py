"""The command line as another system would run it: `python tests/cli/elsewhere.py windows|macos`, with commands on stdin.

They are JSON, a list of words each; the answer is a list of [exit code, stdout, stderr].

What the system does not have is taken away before anything of Assay is imported: modules, names of `os`, `signal`, …, and what
its `os.open` and `os.rename` would do. Libraries are imported before that: they have branches of their own for each system.
"""

import asyncio
import getpass
import importlib.util
import io
import json
import multiprocessing.connection
import os
import random
import select
import selectors
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import cryptography.hazmat.primitives.asymmetric.ed25519
import numpy as np
import pydantic
import rich.table
import sqlalchemy.dialects.sqlite
import typer.main

IMPORTED = (asyncio, getpass, importlib.util, io, multiprocessing.connection, random, shutil, sqlite3, subprocess, tempfile)
LIBRARIES = (cryptography.hazmat.primitives.asymmetric.ed25519, np, pydantic, rich.table, sqlalchemy.dialects.sqlite, typer.main)
"""They look for POSIX when they are imported, and do without elsewhere."""

LINUX: dict[ModuleType, list[str]] = {
    os: [
        "CLONE_NEWNS eventfd memfd_create O_NOATIME O_PATH O_TMPFILE O_DIRECT pidfd_open posix_fadvise posix_fallocate",
        "sched_getaffinity sched_setaffinity setresuid setresgid getresuid sendfile unshare fdatasync pipe2",
        "copy_file_range splice",
    ],
    select: ["epoll"],
    selectors: ["EpollSelector"],
    signal: ["pidfd_send_signal sigtimedwait sigwaitinfo"],
    socket: ["AF_NETLINK AF_PACKET AF_VSOCK SO_PEERCRED SO_BINDTODEVICE"],
}
"""What Linux alone has."""

POSIX: dict[ModuleType, list[str]] = {
    os: [
        "O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK O_NOCTTY O_SYNC O_DSYNC WNOHANG WIFEXITED WEXITSTATUS WIFSIGNALED WTERMSIG",
        "chown chroot confstr fchdir fchmod fchown fork forkpty getegid geteuid getgid getgroups getloadavg getpgid getpgrp",
        "getpriority getsid getuid initgroups killpg lchown lockf mkfifo mknod nice openpty pread preadv pwrite pwritev readv",
        "register_at_fork set_blocking setegid seteuid setgid setgroups setpgid setpriority setregid setreuid setsid setuid",
        "statvfs fstatvfs",
        "sync sysconf tcgetpgrp tcsetpgrp ttyname uname wait wait3 wait4 waitid writev getxattr setxattr listxattr",
    ],
    select: ["poll"],
    selectors: ["PollSelector"],
    signal: [
        "SIGALRM SIGBUS SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGUSR1 SIGUSR2 SIGWINCH",
        "alarm pause pthread_kill pthread_sigmask setitimer siginterrupt sigpending sigwait",
    ],
    socket: ["AF_UNIX"],
}
"""What Windows has not, beside that."""
MODULES = frozenset({"fcntl", "grp", "pty", "pwd", "readline", "resource", "spwd", "syslog", "termios", "tty"})


class Absent(MetaPathFinder):
    """Refuses to find modules that the system does not have."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        """Raises ModuleNotFoundError for one of them."""
        if fullname in MODULES:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def without(names: dict[ModuleType, list[str]]) -> None:
    """Take names away from modules."""
    for module, lists in names.items():
        for name in " ".join(lists).split():
            if hasattr(module, name):
                delattr(module, name)


def windows() -> None:
    """No POSIX modules, folders that cannot be opened, nothing renamed over what is there."""
    macos()
    without(POSIX)
    for name in MODULES & set(sys.modules):
        del sys.modules[name]
    sys.meta_path.insert(0, Absent())
    os.open = _no_folders(os.open)
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    os.rename = _not_over(os.rename)


def macos() -> None:
    """Nothing of what Linux alone has, and no /proc."""
    without(LINUX)


def _no_folders(open_: Callable[..., int]) -> Callable[..., int]:
    def opened(path: Any, *args: Any, **named: Any) -> int:
        if isinstance(path, str | bytes | os.PathLike) and os.path.isdir(path):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return open_(path, *args, **named)

    return opened


def _not_over(rename: Callable[..., None]) -> Callable[..., None]:
    def renamed(src: Any, dst: Any, **named: Any) -> None:
        if os.path.lexists(dst):
            raise FileExistsError(17, "File exists", os.fspath(dst))
        rename(src, dst, **named)

    return renamed


def answered(commands: list[list[str]]) -> list[list[Any]]:
    """What each command ends with and prints; "traceback" as the code of one that raises what it should not."""
    from typer.testing import CliRunner

    from assay.cli import app

    answers: list[list[Any]] = []
    for words in commands:
        result = CliRunner().invoke(app, words, prog_name="assay", env={"COLUMNS": "200"})
        code: int | str = result.exit_code
        error = result.stderr
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            code, error = "traceback", "".join(traceback.format_exception(result.exception))
        answers.append([code, result.stdout, error])
    return answers


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[2] / "src")
    {"windows": windows, "macos": macos}[sys.argv[1]]()
    print(json.dumps(answered(json.load(sys.stdin))))
