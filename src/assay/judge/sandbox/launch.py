"""The command line of bubblewrap, and what this machine's bubblewrap can do."""

from __future__ import annotations

import os
import re
import resource
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.judge.sandbox.box import Limits, Trouble
from assay.judge.sandbox.cgroups import SLACK
from assay.judge.sandbox.owner import INSIDE, Owner
from assay.judge.sandbox.root import HOME, HOSTNAME, PATH, Root

__all__ = ["Bwrap", "command_line", "find", "prefix"]

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
