"""Checks that a box is closed: commands, the network, the host, privileges."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

from assay.judge.sandbox.box import Ran
from assay.judge.sandbox.check.bench import LIMITS, Bench, Check, listing

__all__ = ["CHECKS"]

CHECKS: dict[str, Check] = {}
_named = listing(CHECKS)
_ALLOWED = sum(1 << number for number in (0, 1, 3, 4, 5, 6, 7, 10))
"""Capabilities over one's own files, processes and small ports, as a container may have them; all others reach the host."""


@_named("a command gets its input and its variables, and its output and exit code come back")
def _plain(bench: Bench) -> str:
    said = bench.once('cat; echo "$GIVEN"; echo wrong >&2; exit 7', stdin=b"in\n", env={"GIVEN": "given"})
    wanted = said.ran.exit_code == 7 and said.out == "in\ngiven\n" and said.err == "wrong\n"
    return "" if wanted else f"it came back as {said}"


@_named("what a signal ended shows as 128 and its number")
def _signal(bench: Bench) -> str:
    return _unless(bench.once("kill -9 $$").ran, 137)


@_named("files stay between commands, processes do not")
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


@_named("no network, not even the host's loopback")
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


@_named("no abstract socket of the host")
def _abstract(bench: Bench) -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(f"\0{bench.token}{secrets.token_hex(4)}")
        listener.listen()
        said = bench.once("cat /proc/net/unix").out
    return "a socket of the host is seen" if bench.token in said else ""


@_named("a door leads to one socket of the host, and only while there is one")
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


@_named("no file of the host")
def _files(bench: Bench) -> str:
    secret = bench.secret()
    said = bench.once(
        f"cat {secret} /proc/1/root{secret} /proc/*/cwd/{secret.name} 2>/dev/null; ls -a /tmp {bench.folder} 2>/dev/null"
    )
    return "a file of the host was read" if bench.token in said.out or bench.folder.name in said.out else ""


@_named("nothing of the host can be written")
def _written(bench: Bench) -> str:
    bench.once(
        f"for d in / /usr /usr/bin /etc /tmp /var/tmp /root {bench.folder}; do echo x > $d/{bench.token}; done 2>/dev/null"
    )
    for folder in ("/", "/usr", "/usr/bin", "/etc", "/tmp", "/var/tmp", "/root", str(bench.folder)):
        if os.path.lexists(f"{folder}/{bench.token}"):
            os.unlink(f"{folder}/{bench.token}")
            return f"a file could be made in the host's {folder}"
    return ""


@_named("no process of the host")
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


@_named("no variable of the host")
def _variables(bench: Bench) -> str:
    name = "ASSAY_CHECK_VARIABLE"
    os.environ[name] = bench.token
    try:
        said = bench.once("env; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'")
    finally:
        del os.environ[name]
    return "a variable of the host is seen" if bench.token in said.out or name in said.out else ""


@_named("no privilege, and no way to gain any")
def _privilege(bench: Bench) -> str:
    rows = dict(line.split(":\t", 1) for line in bench.once("cat /proc/self/status").must().splitlines() if ":\t" in line)
    for name in ("CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd"):
        if int(rows[name], 16) & ~_ALLOWED:
            return f"{name} is {rows[name]}"
    return "" if rows.get("NoNewPrivs") == "1" else "a set-uid program could give privileges"


@_named("nothing can be mounted, no device made, no disk seen")
def _devices(bench: Bench) -> str:
    said = bench.once(
        "mount -t tmpfs none /tmp 2>/dev/null && echo mounted; mknod /tmp/disk b 8 0 2>/dev/null && echo made\n"
        "for f in /dev/*; do [ ! -b $f ] || echo $f; done; for f in /dev/mem /dev/kmsg /dev/fuse; do [ ! -r $f ] || echo $f; done"
    )
    return f"there was {' '.join(said.out.split())}" if said.out.strip() else ""


@_named("neither the clock nor the kernel's settings can be set")
def _kernel(bench: Bench) -> str:
    said = bench.once(
        'date -s "@$(date +%s)" >/dev/null 2>&1 && echo the clock\n'
        "for f in kernel/core_pattern vm/swappiness kernel/printk; do\n"
        '  v=$(cat /proc/sys/$f 2>/dev/null) && (echo "$v" > /proc/sys/$f) 2>/dev/null && echo $f; done; :'
    )
    return f"set could be: {said.out.strip()}" if said.out.strip() else ""


@_named("no terminal to type into")
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
