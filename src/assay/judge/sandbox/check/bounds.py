"""Checks that bounds hold, that boxes are apart, and that files go in and out as they should."""

from __future__ import annotations

import os
import shlex
import time
from contextlib import suppress
from dataclasses import replace

from assay.judge import tree
from assay.judge.sandbox.box import Bound, Ran
from assay.judge.sandbox.check.bench import LIMITS, MIB, Bench, Check, CheckFailed, listing

__all__ = ["CHECKS"]

CHECKS: dict[str, Check] = {}
_named = listing(CHECKS)


@_named("the bound on memory holds")
def _memory(bench: Bench) -> str:
    limits = replace(LIMITS, memory=96 * MIB)
    said = bench.once("head -c 1500000000 /dev/zero | tail | wc -c", limits=limits)
    return "" if said.ran.stopped == "memory" or said.out.strip() != "1500000000" else f"it came back as {said.ran}"


@_named("files in memory count as memory")
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


@_named("what waits in sockets counts as memory")
def _sockets(bench: Bench) -> str:
    line = '[ -z "$(command -v {0})" ] || exec {0} {1} {2}'
    tries = "\n".join(line.format(*program, shlex.quote(text)) for program, text in _DATAGRAMS.items())
    said = bench.once(f"{tries}\nexit 99", limits=replace(LIMITS, memory=48 * MIB))
    if said.ran.exit_code == 99:
        raise CheckFailed("neither perl nor python3 is in the box, which are needed to try it")
    return _stopped(said.ran, "memory")


@_named("the bound on processes holds")
def _forks(bench: Bench) -> str:
    script = "set -e; i=0; while [ $i -lt 600 ]; do sleep 290 & i=$((i+1)); done; sleep 290"
    return _stopped(bench.once(script, limits=replace(LIMITS, processes=24)).ran, "processes")


@_named("the bound on what is written holds")
def _disk(bench: Bench) -> str:
    with bench.box() as box:
        bench.sh(box, "head -c 20000000 /dev/zero > before").must()
        script = "set -e; i=0; while [ $i -lt 100 ]; do head -c 10000000 /dev/zero > f$i; i=$((i+1)); done; sleep 290"
        return _stopped(bench.sh(box, script, limits=replace(LIMITS, disk=32 * MIB)).ran, "disk")


@_named("the bound on files holds")
def _many(bench: Bench) -> str:
    script = "set -e; i=0; while [ $i -lt 20000 ]; do : > $i; i=$((i+1)); done; sleep 290"
    return _stopped(bench.once(script, limits=replace(LIMITS, files=2000)).ran, "disk")


@_named("the bound on time holds, whatever is done against it")
def _time(bench: Bench) -> str:
    began = time.monotonic()
    ran = bench.once("trap '' TERM INT HUP QUIT; while :; do sleep 1; done", limits=replace(LIMITS, seconds=0.5)).ran
    if ran.stopped != "time":
        return f"it came back as {ran}"
    return "" if time.monotonic() - began < LIMITS.seconds / 2 else "it was stopped much too late"


@_named("the bound on output holds")
def _output(bench: Bench) -> str:
    said = bench.once("yes & yes >&2", limits=replace(LIMITS, output=100_000))
    if len(said.out) + len(said.err) > 100_000:
        return f"{len(said.out) + len(said.err)} bytes were kept"
    return "" if said.ran.stopped == "output" and said.ran.output_dropped > 0 else f"it came back as {said.ran}"


@_named("boxes do not see each other")
def _others(bench: Bench) -> str:
    with bench.box() as one, bench.box() as other:
        bench.sh(one, f"for d in . /tmp /var/tmp /dev/shm /root; do echo x > $d/{bench.token}; done; :").must()
        found = bench.sh(other, "ls -a . /tmp /var/tmp /dev/shm /root").must()
        return "another box's file is seen" if bench.token in found else ""


@_named("files go in and come out")
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


@_named("no link is followed out of a box")
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


@_named("a fresh folder is fresh, whatever was there")
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


@_named("a frozen copy has everything, and changes no more")
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
