"""Witnesses for tests: ours in a thread, other software's in a process, and some that are slow, dead or lie."""

import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import uvicorn

from assay.ledger import keys
from assay.ledger.check import LogKey
from assay.ledger.cosigning import ED25519, WitnessKey
from assay.ledger.witness import Witness
from assay.peers.guard import ConnectionGuard
from assay.serve.witness import witness_app

OTHERS = Path(sys.prefix) / "witnesses" / "bin"
"""Programs of other software: tools/witnesses."""


def signer(number: int) -> keys.PrivateKey:
    """The key of our witness of this number."""
    return keys.from_seed(f"w{number}".encode() * 16)


def vkey(number: int) -> WitnessKey:
    """The public key of our witness of this number, as policies have it."""
    return WitnessKey(f"example.net/w{number}", ED25519, signer(number).public.raw)


@dataclass(frozen=True)
class RunningWitness:
    """A witness that answers: its key as a policy has it, and its address."""

    vkey: str
    url: str


@contextmanager
def serving(place: Path, number: int, logs: Iterable[LogKey]) -> Iterator[RunningWitness]:
    """Our own witness, over HTTP."""
    witness = Witness(place / f"w{number}", f"example.net/w{number}", signer(number), logs)
    guard = ConnectionGuard()
    config = uvicorn.Config(
        witness_app(witness, guard), http=guard.protocol(), ws="none", lifespan="off", log_config=None, log_level="error"
    )
    server = uvicorn.Server(config)
    with closing(socket.create_server(("127.0.0.1", 0))) as opened:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]}, daemon=True)
        thread.start()
        try:
            yield RunningWitness(str(vkey(number)), f"http://127.0.0.1:{opened.getsockname()[1]}")
        finally:
            server.should_exit = True
            thread.join(10)


@contextmanager
def other_software(place: Path, name: str, logs: Iterable[LogKey]) -> Iterator[RunningWitness]:
    """A witness of other software, in a process."""
    place.mkdir(parents=True, exist_ok=True)
    program, config = OTHERS / "aics-witness", place / "witness.json"
    with closing(socket.create_server(("127.0.0.1", 0))) as opened:
        port = opened.getsockname()[1]

    def run(*words: str) -> str:
        return subprocess.run([program, *words], cwd=place, check=True, capture_output=True, text=True).stdout

    if not config.exists():
        run("init", "--config", str(config), "--name", name, "--listen", f"127.0.0.1:{port}")
        for log in logs:
            run("add-log", "--config", str(config), "--origin", log.name, "--vkey", str(log))
    key = run("init", "--config", str(config)).split()[-1]
    command = [str(program), "serve", "--config", str(config), "--listen", f"127.0.0.1:{port}"]
    with subprocess.Popen(command, cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _until_it_answers(f"http://127.0.0.1:{port}/")
            yield RunningWitness(key, f"http://127.0.0.1:{port}")
        finally:
            process.kill()


def _until_it_answers(url: str) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            with urlopen(url, timeout=5):
                return
        except URLError as error:
            if hasattr(error, "code"):  # an HTTP status is an answer
                return
        time.sleep(0.05)
    raise AssertionError(f"{url} does not answer")


Says = Callable[[bytes], tuple[int, bytes, str]]
"""The body of a request → status, body and type of the answer."""


@contextmanager
def saying(number: int, says: Says, shows: Callable[[], bytes] = lambda: b"") -> Iterator[RunningWitness]:
    """A witness that answers each request as it is told to. shows: what it says that it has signed."""

    class SayingHandler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self._answer(*says(self.rfile.read(int(self.headers["Content-Length"]))))

        def do_GET(self) -> None:
            self._answer(200 if shows() else 404, shows(), "text/plain")

        def _answer(self, status: int, body: bytes, kind: str) -> None:
            with suppress(OSError):  # it was hung up on
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), SayingHandler)
    server.daemon_threads, server.block_on_close = True, False
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield RunningWitness(str(vkey(number)), f"http://127.0.0.1:{server.server_address[1]}")
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def dead(number: int) -> RunningWitness:
    """A witness at an address where nobody listens."""
    with closing(socket.create_server(("127.0.0.1", 0))) as opened:
        port = opened.getsockname()[1]
    return RunningWitness(str(vkey(number)), f"http://127.0.0.1:{port}")


def write_policy(path: Path, quorum: int, *witnesses: RunningWitness, log: LogKey | None = None) -> Path:
    """A policy file: so many of these witnesses, named w1, w2 …"""
    names = [f"w{number}" for number in range(1, len(witnesses) + 1)]
    lines = [] if log is None else [f"log {log}"]
    lines += [f"witness {name} {each.vkey} {each.url}" for name, each in zip(names, witnesses, strict=True)]
    lines += [f"group enough {quorum} {' '.join(names)}", "quorum enough"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def fetched(url: str) -> bytes:
    """The bytes at an address."""
    with urlopen(url, timeout=10) as answer:
        return bytes(answer.read())


def forget(place: Path) -> None:
    """Remove what a witness has signed."""
    shutil.rmtree(place)


def documents(folder: Path) -> list[dict[str, object]]:
    """The evidence in a folder."""
    return [json.loads(path.read_bytes()) for path in sorted(folder.glob("*.json"))]
