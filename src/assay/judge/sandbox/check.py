"""Checks on this machine that a sandbox isolates its boxes and enforces its limits: `assay sandbox check`. SPEC 2.1.

Each check gets a `Bench` with the sandbox, and returns what is wrong, or an empty text. A box needs a shell and the usual small
programs. The checks do no harm even if a sandbox is broken: they set the clock and the settings to the values that these have.
"""

from __future__ import annotations

import os
import secrets
import shlex
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from assay.errors import AssayError
from assay.judge import tree
from assay.judge.sandbox import Bound, Box, Image, Limits, Ran, Sandbox

LIMITS = Limits(seconds=300, memory=256 << 20, processes=64, disk=64 << 20, output=1 << 20, files=20_000)
"""The time limit is far away, so that on a busy machine each command still reaches the limit that is checked first."""
MIB = 1 << 20


@dataclass(frozen=True)
class ScriptResult:
    """The result of a script, with its output."""

    ran: Ran
    out: str
    err: str

    def must(self) -> str:
        """The output of a script that ended with 0. Raises CheckFailed for another exit code."""
        if self.ran.exit_code != 0:
            raise CheckFailed(f"a simple script failed: {self.ran}; {self.err.strip()[-300:]}")
        return self.out


class CheckFailed(AssayError):
    """A check could not be carried out."""


@dataclass(frozen=True)
class Bench:
    """The sandbox under test, and what every check needs."""

    sandbox: Sandbox
    image: Image
    folder: Path
    """A temporary folder on the host."""
    token: str
    """A random text that occurs nowhere else on the machine."""

    @contextmanager
    def box(self) -> Iterator[Box]:
        """A new box."""
        with self.sandbox.open(self.image, LIMITS) as box:
            yield box

    def sh(
        self,
        box: Box,
        script: str,
        *,
        limits: Limits = LIMITS,
        stdin: bytes | int = b"",
        env: Mapping[str, str] | None = None,
        door: Path | None = None,
    ) -> ScriptResult:
        """Runs a shell script in a box."""
        out, err = self.folder / "stdout", self.folder / "stderr"
        ran = box.run(["sh", "-c", script], limits=limits, stdout=out, stderr=err, stdin=stdin, env=env, door=door)
        return ScriptResult(ran, out.read_text(errors="replace"), err.read_text(errors="replace"))

    def once(
        self, script: str, *, limits: Limits = LIMITS, stdin: bytes | int = b"", env: Mapping[str, str] | None = None
    ) -> ScriptResult:
        """Runs a shell script in a new box."""
        with self.box() as box:
            return self.sh(box, script, limits=limits, stdin=stdin, env=env)

    def secret(self) -> Path:
        """A file of the host that every user may read, with the token in it."""
        folder = self.folder / "secret"
        folder.mkdir(exist_ok=True)
        (folder / "file").write_text(self.token)
        return folder / "file"


Check = Callable[[Bench], str]
"""Returns what is wrong, or an empty text."""


@dataclass(frozen=True)
class CheckResult:
    """The result of one check."""

    name: str
    ok: bool
    why: str
    """The fault; empty if the check holds."""


CHECKS: dict[str, Check] = {}
"""Every check by its name, which says what must hold, in the order in which the checks run."""


def _holds(name: str) -> Callable[[Check], Check]:
    """A decorator that adds a check to `CHECKS`."""

    def add(check: Check) -> Check:
        CHECKS[name] = check
        return check

    return add


# The box is closed.

_ALLOWED = sum(1 << number for number in (0, 1, 3, 4, 5, 6, 7, 10))
"""Capabilities that a container may have: over its own files, its own processes and low ports. All others reach the host."""


@_holds("a command gets its input and its variables, and its output and exit code come back")
def _plain(bench: Bench) -> str:
    result = bench.once('cat; echo "$GIVEN"; echo wrong >&2; exit 7', stdin=b"in\n", env={"GIVEN": "given"})
    wanted = result.ran.exit_code == 7 and result.out == "in\ngiven\n" and result.err == "wrong\n"
    if not wanted:
        return f"the command returned {result}"
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    with open(read_end, "rb") as pipe:
        with open(write_end, "wb") as writer:
            writer.write(b"piped\n")
        result = bench.once("cat", stdin=pipe.fileno())
    return "" if result.out == "piped\n" else f"of what came through a pipe the command read {result.out!r}"


@_holds("a command that a signal ended has the exit code 128 plus the signal's number")
def _signal(bench: Bench) -> str:
    return _unless(bench.once("kill -9 $$").ran, 137)


@_holds("files stay between commands, processes do not")
def _dead(bench: Bench) -> str:
    leave = (
        f"echo kept > kept; setsid sh -c 'while :; do sleep 1; done' {bench.token} >/dev/null 2>&1 &\n"
        f"(trap '' HUP TERM INT; (sh -c 'while :; do sleep 1; done' {bench.token} &) &) >/dev/null 2>&1 3>&1\nsleep 0.2; exit 0"
    )
    with bench.box() as box:
        bench.sh(box, leave).must()
        if _commands(bench.token):
            return "processes of a command are alive on the host after it ended"
        seen = bench.sh(box, "cat kept; cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '").out
        if not seen.startswith("kept\n"):
            return "a file vanished when the command that wrote it ended"
        return "the next command sees processes of the one before" if bench.token in seen else ""


@_holds("a box has no network, and cannot reach the host's loopback")
def _network(bench: Bench) -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        port = listener.getsockname()[1]
        seen = bench.once(f"cat /proc/net/dev; ! bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}' 2>/dev/null || echo reached").must()
        with suppress(BlockingIOError):
            listener.accept()[0].close()
            return "the host's loopback was reached"
    links = {line.partition(":")[0].strip() for line in seen.splitlines() if ":" in line}
    return "" if links <= {"lo"} and "reached" not in seen else f"there is a network: {sorted(links)}"


@_holds("a box sees no abstract socket of the host")
def _abstract(bench: Bench) -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(f"\0{bench.token}{secrets.token_hex(4)}")
        listener.listen()
        seen = bench.once("cat /proc/net/unix").out
    return "a socket of the host is visible" if bench.token in seen else ""


@_holds("a door leads to one socket of the host, and only while the door is open")
def _door(bench: Bench) -> str:
    door = bench.folder / "door"
    script = "bash -c 'exec 3<>/dev/tcp/127.0.0.1/8080 && echo hello >&3 && cat <&3'"
    with bench.box() as box, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(door))
        listener.listen()
        listener.settimeout(LIMITS.seconds)

        def answer() -> None:
            with suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(LIMITS.seconds)
                    connection.sendall(b"answer to " + connection.recv(100))

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        result = bench.sh(box, script, door=door)
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as last:
            last.connect(str(door))  # if nothing connected, this ends the thread
        thread.join(LIMITS.seconds)
        if result.out != "answer to hello\n":
            return f"nothing came through: {result.err.strip()[-300:]}"
        return "the door is still open for the next command" if bench.sh(box, script).ran.exit_code == 0 else ""


@_holds("a box sees no file of the host")
def _files(bench: Bench) -> str:
    secret = bench.secret()
    result = bench.once(
        f"cat {secret} /proc/1/root{secret} /proc/*/cwd/{secret.name} 2>/dev/null; ls -a /tmp {bench.folder} 2>/dev/null"
    )
    return "a file of the host was read" if bench.token in result.out or bench.folder.name in result.out else ""


@_holds("a box cannot write to the host")
def _written(bench: Bench) -> str:
    bench.once(
        f"for d in / /usr /usr/bin /etc /tmp /var/tmp /root {bench.folder}; do echo x > $d/{bench.token}; done 2>/dev/null"
    )
    for folder in ("/", "/usr", "/usr/bin", "/etc", "/tmp", "/var/tmp", "/root", str(bench.folder)):
        if os.path.lexists(f"{folder}/{bench.token}"):
            os.unlink(f"{folder}/{bench.token}")
            return f"a file could be created in the host's {folder}"
    return ""


@_holds("a box sees no process of the host, and can kill none")
def _processes(bench: Bench) -> str:
    host = subprocess.Popen(["sh", "-c", "read x", bench.token], stdin=subprocess.PIPE)
    try:
        result = bench.once("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '; kill -9 -1")
        if bench.token in result.out:
            return "a process of the host is visible"
        return "a process of the host was killed" if host.poll() is not None else ""
    finally:
        host.kill()
        host.communicate()


@_holds("a box sees no environment variable of the host")
def _variables(bench: Bench) -> str:
    name = "ASSAY_CHECK_VARIABLE"
    os.environ[name] = bench.token
    try:
        result = bench.once("env; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'")
    finally:
        del os.environ[name]
    return "a variable of the host is visible" if bench.token in result.out or name in result.out else ""


@_holds("a box has no privilege, and cannot gain one")
def _privilege(bench: Bench) -> str:
    rows = dict(line.split(":\t", 1) for line in bench.once("cat /proc/self/status").must().splitlines() if ":\t" in line)
    for name in ("CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd"):
        if int(rows[name], 16) & ~_ALLOWED:
            return f"{name} is {rows[name]}"
    return "" if rows.get("NoNewPrivs") == "1" else "a set-uid program could give privileges"


@_holds("a box cannot mount a file system, create a device or see a disk")
def _devices(bench: Bench) -> str:
    result = bench.once(
        "mount -t tmpfs none /tmp 2>/dev/null && echo mounted; mknod /tmp/disk b 8 0 2>/dev/null && echo made\n"
        "for f in /dev/*; do [ ! -b $f ] || echo $f; done; for f in /dev/mem /dev/kmsg /dev/fuse; do [ ! -r $f ] || echo $f; done"
    )
    return f"this was possible or visible: {' '.join(result.out.split())}" if result.out.strip() else ""


@_holds("a box cannot set the clock or the kernel's settings")
def _kernel(bench: Bench) -> str:
    result = bench.once(
        'date -s "@$(date +%s)" >/dev/null 2>&1 && echo the clock\n'
        "for f in kernel/core_pattern vm/swappiness kernel/printk; do\n"
        '  v=$(cat /proc/sys/$f 2>/dev/null) && (echo "$v" > /proc/sys/$f) 2>/dev/null && echo $f; done; :'
    )
    return f"this could be set: {result.out.strip()}" if result.out.strip() else ""


@_holds("a box has no terminal")
def _terminal(bench: Bench) -> str:
    return "a command has a terminal" if bench.once("(: > /dev/tty) 2>/dev/null").ran.exit_code == 0 else ""


def _unless(ran: Ran, code: int) -> str:
    return "" if ran.exit_code == code else f"the command returned {ran}"


def _commands(token: str) -> bool:
    for name in os.listdir("/proc"):
        with suppress(OSError):
            if name.isdigit() and token.encode() in Path("/proc", name, "cmdline").read_bytes():
                return True
    return False


# Limits hold, boxes are separate, and files go in and out.


@_holds("the memory limit holds")
def _memory(bench: Bench) -> str:
    limits = replace(LIMITS, memory=96 * MIB)
    result = bench.once("head -c 1500000000 /dev/zero | tail | wc -c", limits=limits)
    return "" if result.ran.stopped == "memory" or result.out.strip() != "1500000000" else f"the command returned {result.ran}"


@_holds("files in memory count as memory")
def _shared(bench: Bench) -> str:
    limits = replace(LIMITS, memory=96 * MIB)
    result = bench.once("set -e; for i in 1 2 3; do head -c 64000000 /dev/zero > /dev/shm/$i; done; sleep 2", limits=limits)
    return _stopped(result.ran, "memory")


_DATAGRAMS = {
    ("perl", "-e"): """use Socket; socket(my $w, PF_INET, SOCK_DGRAM, 0); my @s;
for (1..4000) { socket(my $r, PF_INET, SOCK_DGRAM, 0) or last; bind($r, sockaddr_in(0, INADDR_LOOPBACK)) or last; push @s, $r;
send($w, "x" x 50000, 0, getsockname($r)) for 1..4 } sleep 2""",
    ("python3", "-c"): """import socket, time
kept, sender = [], socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(4000):
    try:
        kept.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    except OSError:
        break
    kept[-1].bind(("127.0.0.1", 0))
    for _ in range(4):
        sender.sendto(bytes(50000), kept[-1].getsockname())
time.sleep(2)""",
}


@_holds("data that waits in sockets counts as memory")
def _sockets(bench: Bench) -> str:
    line = '[ -z "$(command -v {0})" ] || exec {0} {1} {2}'
    tries = "\n".join(line.format(*program, shlex.quote(text)) for program, text in _DATAGRAMS.items())
    result = bench.once(f"{tries}\nexit 99", limits=replace(LIMITS, memory=48 * MIB))
    if result.ran.exit_code == 99:
        raise CheckFailed("this check needs perl or python3 in the box, and neither is there")
    return _stopped(result.ran, "memory")


@_holds("the process limit holds")
def _forks(bench: Bench) -> str:
    script = "set -e; i=0; while [ $i -lt 600 ]; do sleep 290 & i=$((i+1)); done; sleep 290"
    return _stopped(bench.once(script, limits=replace(LIMITS, processes=24)).ran, "processes")


@_holds("the disk limit holds")
def _disk(bench: Bench) -> str:
    with bench.box() as box:
        bench.sh(box, "head -c 20000000 /dev/zero > before").must()
        script = "set -e; i=0; while [ $i -lt 100 ]; do head -c 10000000 /dev/zero > f$i; i=$((i+1)); done; sleep 290"
        return _stopped(bench.sh(box, script, limits=replace(LIMITS, disk=32 * MIB)).ran, "disk")


@_holds("the file limit holds")
def _many(bench: Bench) -> str:
    script = "set -e; i=0; while [ $i -lt 20000 ]; do : > $i; i=$((i+1)); done; sleep 290"
    return _stopped(bench.once(script, limits=replace(LIMITS, files=2000)).ran, "disk")


@_holds("the time limit holds, whatever a command does against it")
def _time(bench: Bench) -> str:
    began = time.monotonic()
    ran = bench.once("trap '' TERM INT HUP QUIT; while :; do sleep 1; done", limits=replace(LIMITS, seconds=0.5)).ran
    if ran.stopped != "time":
        return f"the command returned {ran}"
    return "" if time.monotonic() - began < LIMITS.seconds / 2 else "the command was stopped much too late"


@_holds("the output limit holds")
def _output(bench: Bench) -> str:
    result = bench.once("yes & yes >&2", limits=replace(LIMITS, output=100_000))
    if len(result.out) + len(result.err) > 100_000:
        return f"{len(result.out) + len(result.err)} bytes of output were kept"
    return "" if result.ran.stopped == "output" and result.ran.output_dropped > 0 else f"the command returned {result.ran}"


@_holds("boxes do not see each other")
def _others(bench: Bench) -> str:
    with bench.box() as first, bench.box() as second:
        bench.sh(first, f"for d in . /tmp /var/tmp /dev/shm /root; do echo x > $d/{bench.token}; done; :").must()
        listed = bench.sh(second, "ls -a . /tmp /var/tmp /dev/shm /root").must()
        return "another box's file is visible" if bench.token in listed else ""


@_holds("files go into a box and come out again")
def _artefacts(bench: Bench) -> str:
    source = bench.folder / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "script").write_text("#!/bin/sh\necho ran\n")
    (source / "deep" / "script").chmod(0o755)
    with bench.box() as box:
        box.put(source, "/new/place/source")
        box.put(source / "deep" / "script", "/new/one", mode=0o644)
        result = bench.sh(
            box, "/new/place/source/deep/script; [ ! -x /new/one ] && mkdir out && echo made > out/file && ln -s file out/link"
        )
        if result.out != "ran\n" or result.ran.exit_code != 0:
            return f"files that were put into the box did not work: {result}"
        workdir = bench.image.workdir
        if not box.take(f"{workdir}/out", bench.folder / "out", most_bytes=MIB, most_files=10):
            return "a folder did not come out of the box"
        if (bench.folder / "out" / "file").read_text() != "made\n" or os.readlink(bench.folder / "out" / "link") != "file":
            return "files came out of the box changed"
        if box.take(f"{workdir}/nothing", bench.folder / "nothing", most_bytes=MIB, most_files=10):
            return "a path that does not exist came out of the box"
        with suppress(tree.TooMuch):
            box.take(f"{workdir}/out", bench.folder / "again", most_bytes=2, most_files=10)
            return "more bytes came out of the box than the limit allows"
    return ""


@_holds("no link is followed out of a box")
def _links(bench: Bench) -> str:
    secret = bench.secret()
    make = f"mkdir out; ln -s {secret} out/a; ln -s ../../../../../..{secret} out/b; mkfifo out/c; ln -s {secret.parent} d"
    with bench.box() as box:
        bench.sh(box, make).must()
        workdir = bench.image.workdir
        box.take(f"{workdir}/out", bench.folder / "out", most_bytes=MIB, most_files=10)
        for name in ("a", "b", "c"):
            if os.path.lexists(bench.folder / "out" / name):
                return "a FIFO, or a link that leads out of the folder, came out of the box"
        if box.take(f"{workdir}/d/file", bench.folder / "file", most_bytes=MIB, most_files=10):
            return "a file of the host came out of the box through a link"
        box.put(bench.folder / "out", f"{workdir}/d/new")
        box.fresh(f"{workdir}/d/more")
        return "something was written to the host through a link" if set(os.listdir(secret.parent)) != {"file"} else ""


@_holds("a fresh folder is empty, whatever was there before")
def _fresh(bench: Bench) -> str:
    make = (
        "mkdir -p /logs/verifier/a/b; echo 1 > /logs/verifier/reward.txt; chmod 0 /logs/verifier/a; chmod 500 /logs/verifier\n"
        "ln -s /tmp /tests; mkdir -p /a; ln -s /tmp /a/b; echo x > /file; echo kept > /tmp/kept"
    )
    with bench.box() as box:
        bench.sh(box, make).must()
        for place in ("/logs/verifier", "/tests", "/a/b/c", "/file"):
            box.fresh(place)
        look = "for d in /logs/verifier /tests /a/b/c /file; do [ ! -L $d ] && ls -A $d && : > $d/new || echo $d; done"
        stale = bench.sh(box, look).must().split()
        if stale:
            return f"not empty, or not writable: {' '.join(stale)}"
        return "" if bench.sh(box, "cat /tmp/kept").out == "kept\n" else "a link's target was removed"


@_holds("a frozen copy has everything, and no longer changes")
def _frozen(bench: Bench) -> str:
    with bench.box() as box:
        bench.sh(box, "mkdir -p deep; echo first > deep/file; ln -s deep/file link; echo x > /root/x").must()
        with bench.sandbox.freeze(box) as image:
            bench.sh(box, "echo second > deep/file").must()
            with bench.sandbox.open(image, LIMITS) as copy:
                contents = bench.sh(copy, "cat link /root/x && echo third > deep/file").out
            with bench.sandbox.open(image, LIMITS) as copy:
                contents += bench.sh(copy, "cat link").out
    return "" if contents == "first\nx\nfirst\n" else f"the copies had {contents!r}"


def _stopped(ran: Ran, bound: Bound) -> str:
    """A limit holds if it stopped the command, or if the command failed because the kernel refused it more."""
    return "" if ran.stopped == bound or ran.exit_code not in (None, 0) else f"the command returned {ran}"


def check(sandbox: Sandbox, image: Image | None = None) -> Iterator[CheckResult]:
    """Runs every check, in boxes that start from this image or the sandbox's default image.

    Raises InfrastructureError if it has none.
    """
    chosen = image or sandbox.image()
    for name, run_check in CHECKS.items():
        with tempfile.TemporaryDirectory(prefix="assay-check-") as folder:
            os.chmod(folder, 0o755)
            try:
                why = run_check(Bench(sandbox, chosen, Path(folder), f"assay{secrets.token_hex(12)}"))
            except AssayError as error:
                why = str(error)
        yield CheckResult(name, not why, why)
