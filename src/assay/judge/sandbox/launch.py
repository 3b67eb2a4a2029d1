"""Finds bubblewrap, and builds its command line and its filter of system calls.

Namespaces do not restrict some system calls, so a program for the kernel (seccomp) filters them. A filtered call fails as if the
kernel did not have it. Debuggers work. The filter blocks:

- Sockets other than local, IP and netlink ones. A virtual machine's socket (AF_VSOCK) reaches the host from any network
  namespace. Netlink is open for routes only, and IP for TCP, UDP and ICMP only: no counter includes other protocols' memory.
- Key rings: everything that was started in one session shares that session's keys.
- io_uring, bpf, perf_event_open, userfaultfd: large parts of the kernel that no task needs.
- The kernel's log: it shows other boxes, and a crash writes into it.
- Requests to a file system for things that outlive a box: subvolumes and snapshots, which are not removed like folders, and keys.
  Also for a new generation number of a file, which would stay in a folder that is reused.
- Calls in another processor's calling convention, where the numbers have other meanings.
"""

from __future__ import annotations

import errno
import os
import re
import resource
import shlex
import shutil
import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.judge.sandbox import InfrastructureError, Limits
from assay.judge.sandbox.cgroups import SLACK
from assay.judge.sandbox.root import HOME, HOSTNAME, INSIDE, PATH, Owner, Root

_OLDEST = (0, 5)
_OPEN_FILES = 16_384
_STACK = 8 << 20
_OVER = 1 << 20
"""Bytes by which a file may exceed the disk limit before the kernel refuses, so that a measurement can see the excess."""
_LANG = "C.UTF-8"


@dataclass(frozen=True)
class Bwrap:
    """Paths of bubblewrap, which makes the namespaces, and of two programs that start it."""

    path: str
    shell: str
    chroot: str
    """Empty where boxes run as Assay's own user, which needs no chroot."""
    version: tuple[int, ...]

    def describe(self) -> str:
        """The program's name and version, for people."""
        return f"bubblewrap {'.'.join(map(str, self.version))}"


def find(path: str | None = None) -> Bwrap:
    """Finds bubblewrap on this machine, or at a path. Raises InfrastructureError."""
    shell = _program("sh", "dash")
    chroot = _program("chroot", "coreutils") if os.geteuid() == 0 else ""
    bwrap = shutil.which(path or "bwrap")
    if bwrap is None:
        raise InfrastructureError("bubblewrap is not installed", file=path, hint="apt install bubblewrap, or judge in containers")
    try:
        printed = subprocess.run([bwrap, "--version"], capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise InfrastructureError(f"bubblewrap does not start: {error}", file=bwrap) from error
    numbers = re.search(r"(\d+(?:\.\d+)+)", printed)
    version = tuple(int(part) for part in numbers[1].split(".")) if numbers else ()
    if version < _OLDEST:
        raise InfrastructureError(
            f"bubblewrap is too old: {printed.strip()}", file=bwrap, hint="install 0.5 or later; 0.8 is best"
        )
    return Bwrap(bwrap, shell, chroot, version)


def _program(name: str, package: str) -> str:
    program = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")  # the PATH of a cron job may lack these
    if program is None:
        raise InfrastructureError(f"{name} is not installed", hint=f"apt install {package}")
    return program


def prefix(bwrap: Bwrap, owner: Owner, limits: Limits, *, file: int, counted: bool, doors: Sequence[Path]) -> list[str]:
    """The start of the command line: sets the kernel's limits, joins the control group, and changes to the box's user.

    A shell does this, not Python between fork and exec: threads make that unsafe, and a large parent process makes fork slow.
    A process that joins a group itself does not wait; a process that another one moves waits until no process is being started.
    chroot takes half the time of setpriv, which looks the user up. bubblewrap itself forbids new privileges at once.
    file: the largest size in bytes that the disk limit allows a file. counted: there are no control groups. doors: see `Group`.
    """
    steps = ["ulimit -c 0", f"ulimit -f {_most('fsize', file + _OVER) // 512}", f"ulimit -n {_most('nofile', _OPEN_FILES)}"]
    steps.append(f"ulimit -S -s {_most('stack', _STACK) // 1024}")
    if counted:
        steps.append(f"ulimit -d {_most('data', 2 * limits.memory + _OVER) // 1024}")
        if owner.switched:  # this user has no processes but the box's; shells have two names for this limit
            most = _most("nproc", limits.processes + SLACK)
            steps.append(f"{{ ulimit -p {most} 2>/dev/null || ulimit -u {most}; }}")
    steps += [f"echo 0 >{shlex.quote(str(door))}" for door in doors]
    line = [bwrap.shell, "-c", " && ".join([*steps, 'exec "$@"']), "sh"]
    if owner.switched:
        line += [bwrap.chroot, f"--userspec=+{owner.uid}:+{owner.gid}", "--groups=", "/"]
    return line


def _most(name: str, value: int) -> int:
    """The value, or this process's own hard limit if that is lower: it cannot be exceeded."""
    hard = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))[1]
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


def command_line(
    bwrap: Bwrap,
    root: Root,
    command: Sequence[str],
    *,
    limits: Limits,
    env: Mapping[str, str],
    cwd: str,
    status: int,
    gate: int,
    seccomp: int | None,
) -> list[str]:
    """The command line of bubblewrap: the box sees nothing of the host except what `root` names.

    status, gate: pipes. bubblewrap reports on the first, and waits for the second. The variables are arguments, because programs
    in the box can read bubblewrap's own environment.
    """
    line = [
        bwrap.path, "--unshare-all", "--unshare-user", "--uid", str(INSIDE), "--gid", str(INSIDE), "--hostname", HOSTNAME,
        "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv",
        "--json-status-fd", str(status), "--block-fd", str(gate),
    ]  # fmt: skip
    if bwrap.version >= (0, 8):
        line.append("--disable-userns")
    if seccomp is not None:
        line += ["--seccomp", str(seccomp)]
    line += ["--bind", str(root.path), "/"]
    for source, inside in root.read_only:
        line += ["--ro-bind", source, inside]
    # /dev is a file system in memory: it could be filled unless it is read-only and /dev/shm has a size.
    line += ["--proc", "/proc", "--dev", "/dev"]
    if bwrap.version >= (0, 7):
        line += ["--size", str(max(1 << 16, limits.memory))]
    line += ["--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
    for name, value in ({"PATH": PATH, "HOME": HOME, "LANG": _LANG} | dict(root.image.env) | dict(env)).items():
        line += ["--setenv", name, value]
    return [*line, "--chdir", cwd, "--", *command]


_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER, _PROCESSOR, _FIRST, _SECOND, _THIRD = 0, 4, 16, 24, 32
"""Offsets in the data of a filter: the call's number, the processor, and the lower halves of the first three arguments."""
_LOCAL = 1
_IP = (0, 1, 6, 17, 58)
"""The default protocol, ICMP, TCP, UDP, ICMPv6."""
_PROTOCOLS = ((2, _IP), (10, _IP), (16, (0,)))
"""AF_INET, AF_INET6, AF_NETLINK: a socket's family and the protocols that it may have. Local sockets have no protocol."""
_REQUESTS = (0x50009401, 0x5000940E, 0x50009417, 0x50009418, 0xC0506617, 0x40087602, 0x40086604)
"""BTRFS_IOC_SNAP_CREATE, _SUBVOL_CREATE, _SNAP_CREATE_V2, _SUBVOL_CREATE_V2, FS_IOC_ADD_ENCRYPTION_KEY, FS_IOC_SETVERSION,
EXT4_IOC_SETVERSION."""


@dataclass(frozen=True)
class _Processor:
    """The numbers by which a processor names itself and its system calls."""

    code: int
    socket: int
    ioctl: int
    denied: Mapping[str, int]
    most: int
    """Numbers from here on belong to another calling convention."""


_COMMON = {"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427}
_PROCESSORS = {
    "x86_64": _Processor(
        0xC000003E, 41, 16,
        {"syslog": 103, "add_key": 248, "request_key": 249, "keyctl": 250, "perf_event_open": 298, "bpf": 321, "userfaultfd": 323}
        | _COMMON,
        0x40000000,
    ),
    "aarch64": _Processor(
        0xC00000B7, 198, 29,
        {"syslog": 116, "add_key": 217, "request_key": 218, "keyctl": 219, "perf_event_open": 241, "bpf": 280, "userfaultfd": 282}
        | _COMMON,
        0x40000000,
    ),
}  # fmt: skip


def program(machine: str | None = None) -> bytes | None:
    """The filter for a processor (by default this machine's) in the form that bubblewrap reads; None for an unknown processor."""
    processor = _PROCESSORS.get(machine or os.uname().machine)
    if processor is None:
        return None
    absent, family, request = (_ERRNO | number for number in (errno.ENOSYS, errno.EAFNOSUPPORT, errno.ENOTTY))
    denied = sorted(processor.denied.values())
    rows: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _PROCESSOR),
        (_JUMP_EQUAL, 1, 0, processor.code),
        (_RETURN, 0, 0, absent),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_AT_LEAST, 0, 1, processor.most),
        (_RETURN, 0, 0, absent),
    ]
    for number in denied:
        rows += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, absent)]
    rows += [(_JUMP_EQUAL, 0, 2 * len(_REQUESTS) + 2, processor.ioctl), (_LOAD, 0, 0, _SECOND)]
    for number in _REQUESTS:
        rows += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, request)]
    rows.append((_RETURN, 0, 0, _ALLOW))
    rows += [(_JUMP_EQUAL, 1, 0, processor.socket), (_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, _FIRST)]
    rows += [(_JUMP_EQUAL, 0, 1, _LOCAL), (_RETURN, 0, 0, _ALLOW)]
    for number, protocols in _PROTOCOLS:
        rows += [(_JUMP_EQUAL, 0, 2 * len(protocols) + 2, number), (_LOAD, 0, 0, _THIRD)]
        for protocol in protocols:
            rows += [(_JUMP_EQUAL, 0, 1, protocol), (_RETURN, 0, 0, _ALLOW)]
        rows.append((_RETURN, 0, 0, _ERRNO | errno.EPROTONOSUPPORT))
    rows.append((_RETURN, 0, 0, family))
    return b"".join(struct.pack("=HBBI", *row) for row in rows)
