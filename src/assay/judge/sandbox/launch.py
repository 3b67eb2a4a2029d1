"""The command line of bubblewrap, and what this machine's bubblewrap can do.

A filter of system calls that namespaces do not hold back, as a program for the kernel.

- Sockets other than local, IP and netlink ones: that of a virtual machine (AF_VSOCK) reaches its host from any network namespace.
  Of netlink only the one about routes, of IP only TCP, UDP and ICMP: what other protocols hold, nobody counts as memory.
- Key rings: one session's keys are shared by everything that was started in it.
- io_uring, bpf, perf_event_open, userfaultfd: large parts of the kernel that no task needs.
- The kernel's log: it tells of other boxes, and a crash writes into it.
- Requests to a file system for what outlives a box: subvolumes and snapshots, which are not removed as folders are, and keys;
  and for another generation number of a file, which a folder that is used again would keep.
- Calls in the manner of another processor, where numbers mean something else.

What is held back fails as if the kernel did not have it. Debuggers work.
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

from assay.judge.sandbox import Limits, Trouble
from assay.judge.sandbox.cgroups import SLACK
from assay.judge.sandbox.root import HOME, HOSTNAME, INSIDE, PATH, Owner, Root

_OLDEST = (0, 5)
_OPEN_FILES = 16_384
_STACK = 8 << 20
_OVER = 1 << 20
"""Bytes by which a file may pass the bound on the disk before the kernel refuses, so that a look can see it."""
_LANG = "C.UTF-8"


@dataclass(frozen=True)
class Bwrap:
    """The program that makes the namespaces, and two that prepare it."""

    path: str
    shell: str
    chroot: str
    """Where boxes are not our own user's; else not needed."""
    version: tuple[int, ...]

    def describe(self) -> str:
        """Name and version."""
        return f"bubblewrap {'.'.join(map(str, self.version))}"


def find(path: str | None = None) -> Bwrap:
    """This machine's bubblewrap, or the one at a path. Raises Trouble."""
    shell = _program("sh", "dash")
    chroot = _program("chroot", "coreutils") if os.geteuid() == 0 else ""
    found = shutil.which(path or "bwrap")
    if found is None:
        raise Trouble("bubblewrap is not installed", file=path, hint="apt install bubblewrap, or judge in containers")
    try:
        said = subprocess.run([found, "--version"], capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise Trouble(f"bubblewrap does not start: {error}", file=found) from error
    numbers = re.search(r"(\d+(?:\.\d+)+)", said)
    version = tuple(int(part) for part in numbers[1].split(".")) if numbers else ()
    if version < _OLDEST:
        raise Trouble(f"bubblewrap is too old: {said.strip()}", file=found, hint="0.8 or later is best, 0.5 the least")
    return Bwrap(found, shell, chroot, version)


def _program(name: str, package: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")  # which the PATH of a timed job may lack
    if found is None:
        raise Trouble(f"{name} is not installed", hint=f"apt install {package}")
    return found


def prefix(bwrap: Bwrap, owner: Owner, limits: Limits, *, file: int, counted: bool, doors: Sequence[Path]) -> list[str]:
    """The command line in front of bubblewrap's: it sets the kernel's limits, joins the group, and becomes the box's user.

    Programs do this, and not Python between fork and exec, because threads make that unsafe, and a large parent makes fork slow.
    A process that goes into a group by itself need not wait, as one that is put there has to, until no other is being started.
    chroot takes half as long as setpriv, which asks who the user is; new rights bubblewrap forbids itself before all else.
    file: bytes that one file may have by the bound on the disk. counted: there are no control groups. doors: see `Group`.
    """
    steps = ["ulimit -c 0", f"ulimit -f {_most('fsize', file + _OVER) // 512}", f"ulimit -n {_most('nofile', _OPEN_FILES)}"]
    steps.append(f"ulimit -S -s {_most('stack', _STACK) // 1024}")
    if counted:
        steps.append(f"ulimit -d {_most('data', 2 * limits.memory + _OVER) // 1024}")
        if owner.switched:  # all of that user's processes are the box's; shells have two names for their number
            most = _most("nproc", limits.processes + SLACK)
            steps.append(f"{{ ulimit -p {most} 2>/dev/null || ulimit -u {most}; }}")
    steps += [f"echo 0 >{shlex.quote(str(door))}" for door in doors]
    line = [bwrap.shell, "-c", " && ".join([*steps, 'exec "$@"']), "sh"]
    if owner.switched:
        line += [bwrap.chroot, f"--userspec=+{owner.uid}:+{owner.gid}", "--groups=", "/"]
    return line


def _most(name: str, value: int) -> int:
    """What may be set: our own limit cannot be passed."""
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
    """Everything of the host is left out but what `root` names. status, gate: pipes that bubblewrap reports on and waits for.

    The variables go here and not into bubblewrap's own environment, which programs in the box can read.
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
    # /dev is a file system in memory: without its own bound and closed to writing, it could be filled.
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
"""Offsets in what the kernel shows a filter: the call's number, the processor, the lower halves of the first arguments."""
_LOCAL = 1
_IP = (0, 1, 6, 17, 58)
"""What it takes by itself, ICMP, TCP, UDP, ICMPv6."""
_PROTOCOLS = ((2, _IP), (10, _IP), (16, (0,)))
"""AF_INET, AF_INET6, AF_NETLINK: a socket's family, and the protocols that it may have; local ones have none."""
_REQUESTS = (0x50009401, 0x5000940E, 0x50009417, 0x50009418, 0xC0506617, 0x40087602, 0x40086604)
"""BTRFS_IOC_SNAP_CREATE, _SUBVOL_CREATE, _SNAP_CREATE_V2, _SUBVOL_CREATE_V2, FS_IOC_ADD_ENCRYPTION_KEY, FS_IOC_SETVERSION,
EXT4_IOC_SETVERSION."""


@dataclass(frozen=True)
class _Processor:
    code: int
    socket: int
    ioctl: int
    denied: Mapping[str, int]
    most: int
    """Numbers from here on are of another manner of calling."""


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
    """The filter for a processor, this machine's by default, as bubblewrap takes it; None for one that is not known."""
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
        for each in protocols:
            rows += [(_JUMP_EQUAL, 0, 1, each), (_RETURN, 0, 0, _ALLOW)]
        rows.append((_RETURN, 0, 0, _ERRNO | errno.EPROTONOSUPPORT))
    rows.append((_RETURN, 0, 0, family))
    return b"".join(struct.pack("=HBBI", *row) for row in rows)
