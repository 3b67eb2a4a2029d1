"""What checks share: a bench with a sandbox to try, scripts run in its boxes, and the list that checks are put on.

Checks that a box is closed: commands, the network, the host, privileges.

Checks that bounds hold, that boxes are apart, and that files go in and out as they should.

What any sandbox must hold, tried out on this machine: `assay sandbox check`. SPEC 2.1.

Every check gets a bench with the sandbox and says what is wrong, or nothing. Boxes need no more than a shell and the usual small
programs. Whatever a broken sandbox would let through does no harm: the clock is set to what it shows, settings to what they are.
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
"""Time is far away, so that on a machine that is busy the bound that is checked is still the first one met."""
MIB = 1 << 20


@dataclass(frozen=True)
class Said:
    """How a script ended and what it printed."""

    ran: Ran
    out: str
    err: str

    def must(self) -> str:
        """Its output, if it ended well; raises CheckFailed."""
        if self.ran.exit_code != 0:
            raise CheckFailed(f"a plain script failed: {self.ran}; {self.err.strip()[-300:]}")
        return self.out


class CheckFailed(AssayError):
    """A check could not even be carried out."""


@dataclass(frozen=True)
class Bench:
    """A sandbox and what checks of it need."""

    sandbox: Sandbox
    image: Image
    folder: Path
    """On the host, for whatever the checks keep."""
    token: str
    """Something that occurs nowhere by chance."""

    @contextmanager
    def box(self) -> Iterator[Box]:
        """A new box."""
        with self.sandbox.open(self.image, LIMITS) as box:
            yield box

    def sh(self, box: Box, script: str, *, limits: Limits = LIMITS, stdin: bytes = b"", env: Mapping[str, str] | None = None,
           door: Path | None = None) -> Said:  # fmt: skip
        """Runs a shell script in a box."""
        out, err = self.folder / "stdout", self.folder / "stderr"
        ran = box.run(["sh", "-c", script], limits=limits, stdout=out, stderr=err, stdin=stdin, env=env, door=door)
        return Said(ran, out.read_text(errors="replace"), err.read_text(errors="replace"))

    def once(self, script: str, *, limits: Limits = LIMITS, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Said:
        """Runs a shell script in a box of its own."""
        with self.box() as box:
            return self.sh(box, script, limits=limits, stdin=stdin, env=env)

    def secret(self) -> Path:
        """A file of the host that everybody may read, with the token in it."""
        place = self.folder / "secret"
        place.mkdir(exist_ok=True)
        (place / "file").write_text(self.token)
        return place / "file"


Check = Callable[[Bench], str]


@dataclass(frozen=True)
class Result:
    """One check's."""

    name: str
    ok: bool
    why: str
    """What is wrong; empty if nothing is."""


def listing(checks: dict[str, Check]) -> Callable[[str], Callable[[Check], Check]]:
    """A decorator that puts a check on this list, by what it holds."""

    def named(name: str) -> Callable[[Check], Check]:
        def keep(one: Check) -> Check:
            checks[name] = one
            return one

        return keep

    return named


_CLOSED: dict[str, Check] = {}
_closed = listing(_CLOSED)
_ALLOWED = sum(1 << number for number in (0, 1, 3, 4, 5, 6, 7, 10))
"""Capabilities over one's own files, processes and small ports, as a container may have them; all others reach the host."""


@_closed("a command gets its input and its variables, and its output and exit code come back")
def _plain(bench: Bench) -> str:
    said = bench.once('cat; echo "$GIVEN"; echo wrong >&2; exit 7', stdin=b"in\n", env={"GIVEN": "given"})
    wanted = said.ran.exit_code == 7 and said.out == "in\ngiven\n" and said.err == "wrong\n"
    return "" if wanted else f"it came back as {said}"


@_closed("what a signal ended shows as 128 and its number")
def _signal(bench: Bench) -> str:
    return _unless(bench.once("kill -9 $$").ran, 137)


@_closed("files stay between commands, processes do not")
def _dead(bench: Bench) -> str:
    leave = (
        f"echo kept > kept; setsid sh -c 'while :; do sleep 1; done' {bench.token} >/dev/null 2>&1 &\n"
        f"(trap '' HUP TERM INT; (sh -c 'while :; do sleep 1; done' {bench.token} &) &) >/dev/null 2>&1 3>&1\nsleep 0.2; exit 0"
    )
    with bench.box() as box:
        bench.sh(box, leave).must()
        if _commands(bench.token):
            return "processes of a command are alive on the host when it has ended"
        found = bench.sh(box, "cat kept; cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '").out
        if not found.startswith("kept\n"):
            return "a file was gone with the command that wrote it"
        return "processes of a command are seen by the next" if bench.token in found else ""


@_closed("no network, not even the host's loopback")
def _network(bench: Bench) -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        port = listener.getsockname()[1]
        said = bench.once(f"cat /proc/net/dev; ! bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}' 2>/dev/null || echo reached").must()
        with suppress(BlockingIOError):
            listener.accept()[0].close()
            return "the host's loopback was reached"
    links = {line.partition(":")[0].strip() for line in said.splitlines() if ":" in line}
    return "" if links <= {"lo"} and "reached" not in said else f"there is a network: {sorted(links)}"


@_closed("no abstract socket of the host")
def _abstract(bench: Bench) -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(f"\0{bench.token}{secrets.token_hex(4)}")
        listener.listen()
        said = bench.once("cat /proc/net/unix").out
    return "a socket of the host is seen" if bench.token in said else ""


@_closed("a door leads to one socket of the host, and only while there is one")
def _door(bench: Bench) -> str:
    place = bench.folder / "door"
    script = "bash -c 'exec 3<>/dev/tcp/127.0.0.1/8080 && echo hello >&3 && cat <&3'"
    with bench.box() as box, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(place))
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
        said = bench.sh(box, script, door=place)
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as ours:
            ours.connect(str(place))  # should nobody have come, this lets the thread end
        thread.join(LIMITS.seconds)
        if said.out != "answer to hello\n":
            return f"nothing came through: {said.err.strip()[-300:]}"
        return "it is still open for the next command" if bench.sh(box, script).ran.exit_code == 0 else ""


@_closed("no file of the host")
def _files(bench: Bench) -> str:
    secret = bench.secret()
    said = bench.once(
        f"cat {secret} /proc/1/root{secret} /proc/*/cwd/{secret.name} 2>/dev/null; ls -a /tmp {bench.folder} 2>/dev/null"
    )
    return "a file of the host was read" if bench.token in said.out or bench.folder.name in said.out else ""


@_closed("nothing of the host can be written")
def _written(bench: Bench) -> str:
    bench.once(
        f"for d in / /usr /usr/bin /etc /tmp /var/tmp /root {bench.folder}; do echo x > $d/{bench.token}; done 2>/dev/null"
    )
    for folder in ("/", "/usr", "/usr/bin", "/etc", "/tmp", "/var/tmp", "/root", str(bench.folder)):
        if os.path.lexists(f"{folder}/{bench.token}"):
            os.unlink(f"{folder}/{bench.token}")
            return f"a file could be made in the host's {folder}"
    return ""


@_closed("no process of the host")
def _processes(bench: Bench) -> str:
    host = subprocess.Popen(["sh", "-c", "read x", bench.token], stdin=subprocess.PIPE)
    try:
        said = bench.once("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '; kill -9 -1")
        if bench.token in said.out:
            return "a process of the host is seen"
        return "a process of the host was killed" if host.poll() is not None else ""
    finally:
        host.kill()
        host.communicate()


@_closed("no variable of the host")
def _variables(bench: Bench) -> str:
    name = "ASSAY_CHECK_VARIABLE"
    os.environ[name] = bench.token
    try:
        said = bench.once("env; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'")
    finally:
        del os.environ[name]
    return "a variable of the host is seen" if bench.token in said.out or name in said.out else ""


@_closed("no privilege, and no way to gain any")
def _privilege(bench: Bench) -> str:
    rows = dict(line.split(":\t", 1) for line in bench.once("cat /proc/self/status").must().splitlines() if ":\t" in line)
    for name in ("CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd"):
        if int(rows[name], 16) & ~_ALLOWED:
            return f"{name} is {rows[name]}"
    return "" if rows.get("NoNewPrivs") == "1" else "a set-uid program could give privileges"


@_closed("nothing can be mounted, no device made, no disk seen")
def _devices(bench: Bench) -> str:
    said = bench.once(
        "mount -t tmpfs none /tmp 2>/dev/null && echo mounted; mknod /tmp/disk b 8 0 2>/dev/null && echo made\n"
        "for f in /dev/*; do [ ! -b $f ] || echo $f; done; for f in /dev/mem /dev/kmsg /dev/fuse; do [ ! -r $f ] || echo $f; done"
    )
    return f"there was {' '.join(said.out.split())}" if said.out.strip() else ""


@_closed("neither the clock nor the kernel's settings can be set")
def _kernel(bench: Bench) -> str:
    said = bench.once(
        'date -s "@$(date +%s)" >/dev/null 2>&1 && echo the clock\n'
        "for f in kernel/core_pattern vm/swappiness kernel/printk; do\n"
        '  v=$(cat /proc/sys/$f 2>/dev/null) && (echo "$v" > /proc/sys/$f) 2>/dev/null && echo $f; done; :'
    )
    return f"set could be: {said.out.strip()}" if said.out.strip() else ""


@_closed("no terminal to type into")
def _terminal(bench: Bench) -> str:
    return "it has a terminal" if bench.once("(: > /dev/tty) 2>/dev/null").ran.exit_code == 0 else ""


def _unless(ran: Ran, code: int) -> str:
    return "" if ran.exit_code == code else f"it came back as {ran}"


def _commands(token: str) -> bool:
    for name in os.listdir("/proc"):
        with suppress(OSError):
            if name.isdigit() and token.encode() in Path("/proc", name, "cmdline").read_bytes():
                return True
    return False


_BOUNDS: dict[str, Check] = {}
_bounded = listing(_BOUNDS)


@_bounded("the bound on memory holds")
def _memory(bench: Bench) -> str:
    limits = replace(LIMITS, memory=96 * MIB)
    said = bench.once("head -c 1500000000 /dev/zero | tail | wc -c", limits=limits)
    return "" if said.ran.stopped == "memory" or said.out.strip() != "1500000000" else f"it came back as {said.ran}"


@_bounded("files in memory count as memory")
def _shared(bench: Bench) -> str:
    limits = replace(LIMITS, memory=96 * MIB)
    said = bench.once("set -e; for i in 1 2 3; do head -c 64000000 /dev/zero > /dev/shm/$i; done; sleep 2", limits=limits)
    return _stopped(said.ran, "memory")


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


@_bounded("what waits in sockets counts as memory")
def _sockets(bench: Bench) -> str:
    line = '[ -z "$(command -v {0})" ] || exec {0} {1} {2}'
    tries = "\n".join(line.format(*program, shlex.quote(text)) for program, text in _DATAGRAMS.items())
    said = bench.once(f"{tries}\nexit 99", limits=replace(LIMITS, memory=48 * MIB))
    if said.ran.exit_code == 99:
        raise CheckFailed("neither perl nor python3 is in the box, which are needed to try it")
    return _stopped(said.ran, "memory")


@_bounded("the bound on processes holds")
def _forks(bench: Bench) -> str:
    script = "set -e; i=0; while [ $i -lt 600 ]; do sleep 290 & i=$((i+1)); done; sleep 290"
    return _stopped(bench.once(script, limits=replace(LIMITS, processes=24)).ran, "processes")


@_bounded("the bound on what is written holds")
def _disk(bench: Bench) -> str:
    with bench.box() as box:
        bench.sh(box, "head -c 20000000 /dev/zero > before").must()
        script = "set -e; i=0; while [ $i -lt 100 ]; do head -c 10000000 /dev/zero > f$i; i=$((i+1)); done; sleep 290"
        return _stopped(bench.sh(box, script, limits=replace(LIMITS, disk=32 * MIB)).ran, "disk")


@_bounded("the bound on files holds")
def _many(bench: Bench) -> str:
    script = "set -e; i=0; while [ $i -lt 20000 ]; do : > $i; i=$((i+1)); done; sleep 290"
    return _stopped(bench.once(script, limits=replace(LIMITS, files=2000)).ran, "disk")


@_bounded("the bound on time holds, whatever is done against it")
def _time(bench: Bench) -> str:
    began = time.monotonic()
    ran = bench.once("trap '' TERM INT HUP QUIT; while :; do sleep 1; done", limits=replace(LIMITS, seconds=0.5)).ran
    if ran.stopped != "time":
        return f"it came back as {ran}"
    return "" if time.monotonic() - began < LIMITS.seconds / 2 else "it was stopped much too late"


@_bounded("the bound on output holds")
def _output(bench: Bench) -> str:
    said = bench.once("yes & yes >&2", limits=replace(LIMITS, output=100_000))
    if len(said.out) + len(said.err) > 100_000:
        return f"{len(said.out) + len(said.err)} bytes were kept"
    return "" if said.ran.stopped == "output" and said.ran.output_dropped > 0 else f"it came back as {said.ran}"


@_bounded("boxes do not see each other")
def _others(bench: Bench) -> str:
    with bench.box() as one, bench.box() as other:
        bench.sh(one, f"for d in . /tmp /var/tmp /dev/shm /root; do echo x > $d/{bench.token}; done; :").must()
        found = bench.sh(other, "ls -a . /tmp /var/tmp /dev/shm /root").must()
        return "another box's file is seen" if bench.token in found else ""


@_bounded("files go in and come out")
def _artefacts(bench: Bench) -> str:
    source = bench.folder / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "script").write_text("#!/bin/sh\necho ran\n")
    (source / "deep" / "script").chmod(0o755)
    with bench.box() as box:
        box.put(source, "/new/place/source")
        box.put(source / "deep" / "script", "/new/one", mode=0o644)
        said = bench.sh(
            box, "/new/place/source/deep/script; [ ! -x /new/one ] && mkdir out && echo made > out/file && ln -s file out/link"
        )
        if said.out != "ran\n" or said.ran.exit_code != 0:
            return f"what was put in did not work: {said}"
        where = bench.image.workdir
        if not box.take(f"{where}/out", bench.folder / "out", most_bytes=MIB, most_files=10):
            return "what was made did not come out"
        if (bench.folder / "out" / "file").read_text() != "made\n" or os.readlink(bench.folder / "out" / "link") != "file":
            return "something else came out than was made"
        if box.take(f"{where}/nothing", bench.folder / "nothing", most_bytes=MIB, most_files=10):
            return "something came out that was not there"
        with suppress(tree.TooMuch):
            box.take(f"{where}/out", bench.folder / "again", most_bytes=2, most_files=10)
            return "more came out than was allowed"
    return ""


@_bounded("no link is followed out of a box")
def _links(bench: Bench) -> str:
    secret = bench.secret()
    make = f"mkdir out; ln -s {secret} out/a; ln -s ../../../../../..{secret} out/b; mkfifo out/c; ln -s {secret.parent} d"
    with bench.box() as box:
        bench.sh(box, make).must()
        where = bench.image.workdir
        box.take(f"{where}/out", bench.folder / "out", most_bytes=MIB, most_files=10)
        for name in ("a", "b", "c"):
            if os.path.lexists(bench.folder / "out" / name):
                return "a link that leads out, or a FIFO, came out"
        if box.take(f"{where}/d/file", bench.folder / "file", most_bytes=MIB, most_files=10):
            return "a file of the host came out through a link"
        box.put(bench.folder / "out", f"{where}/d/new")
        box.fresh(f"{where}/d/more")
        return "something was put on the host through a link" if set(os.listdir(secret.parent)) != {"file"} else ""


@_bounded("a fresh folder is fresh, whatever was there")
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
        said = bench.sh(box, look).must()
        if said.strip():
            return f"not fresh: {' '.join(said.split())}"
        return "" if bench.sh(box, "cat /tmp/kept").out == "kept\n" else "what a link led to was removed"


@_bounded("a frozen copy has everything, and changes no more")
def _frozen(bench: Bench) -> str:
    with bench.box() as box:
        bench.sh(box, "mkdir -p deep; echo first > deep/file; ln -s deep/file link; echo x > /root/x").must()
        with bench.sandbox.freeze(box) as image:
            bench.sh(box, "echo second > deep/file").must()
            with bench.sandbox.open(image, LIMITS) as copy:
                found = bench.sh(copy, "cat link /root/x && echo third > deep/file").out
            with bench.sandbox.open(image, LIMITS) as copy:
                found += bench.sh(copy, "cat link").out
    return "" if found == "first\nx\nfirst\n" else f"it had {found!r}"


def _stopped(ran: Ran, bound: Bound) -> str:
    """A bound has held if the command was stopped by it, or failed because the kernel refused it more."""
    return "" if ran.stopped == bound or ran.exit_code not in (None, 0) else f"it came back as {ran}"


CHECKS = _CLOSED | _BOUNDS
"""By what they hold, in the order in which they are carried out."""


def check(sandbox: Sandbox, image: Image | None = None) -> Iterator[Result]:
    """Carries out every check, in boxes from this image or the sandbox's plain one; raises Trouble if it has none."""
    chosen = image or sandbox.image()
    for name, one in CHECKS.items():
        with tempfile.TemporaryDirectory(prefix="assay-check-") as folder:
            os.chmod(folder, 0o755)
            try:
                why = one(Bench(sandbox, chosen, Path(folder), f"assay{secrets.token_hex(12)}"))
            except AssayError as error:
                why = str(error)
        yield Result(name, not why, why)
