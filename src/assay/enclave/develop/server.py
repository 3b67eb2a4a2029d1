"""Serves dstack's guest API for one development machine on a Unix socket: JSON over HTTP, bytes in hex, the log as a JSON text.

    POST /GetQuote {"report_data"}                      a quote of up to 64 bytes, and the log
    POST /GetKey   {"path", "purpose", "algorithm"}     the key of a path
    POST /Info, /Version                                a description of the machine
    GET  /development/collateral                        not part of dstack: the collateral that `verify` needs

Only the owner may use the socket, because it gives out keys. An error is answered with 400 and {"error"}, as dstack does. All
keys are derived from one secret. It is in memory, or in a folder, so that the keys survive a restart.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import socketserver
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from assay.enclave.develop.machine import Machine
from assay.errors import BadInput
from assay.folder.files import flush_folder, load

_SECRET_BYTES = 32
_SECRET_FILE = "development-secret"


def load_secret(folder: Path | None) -> bytes:
    """The secret, 32 bytes: a new one, or the folder's. A missing one is made there (0700, the file 0600). Raises BadInput."""
    if folder is None:
        return secrets.token_bytes(_SECRET_BYTES)
    path = folder / _SECRET_FILE
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            _make_secret(path)
    except OSError as error:
        hint = "check the folder and its permissions"
        raise BadInput(f"cannot be written ({error.strerror})", file=path, hint=hint) from None
    secret = load(path, _SECRET_BYTES, hint="it is made when the endpoint starts")
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise BadInput("can be read by others", file=path, hint=f"let only its owner read it: chmod 600 {path}")
    if len(secret) != _SECRET_BYTES:
        raise BadInput(f"is not a secret of {_SECRET_BYTES} bytes", file=path, hint="remove it; its keys are then lost")
    return secret


def _make_secret(path: Path) -> None:
    """Write a new secret atomically. If another process has just written one, that one stays."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(_SECRET_BYTES))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(beside, path)
        except FileExistsError:
            return
    finally:
        beside.unlink(missing_ok=True)
    flush_folder(path.parent)


COLLATERAL = "/development/collateral"
VERSION = {"version": "0.5.4", "rev": "assay development, not dstack"}
_BODY = 65_536
_SECONDS = 30.0
_ALGORITHMS = ("", "secp256k1", "ed25519")
Json = dict[str, Any]


class _Wrong(Exception):
    """The request cannot be answered."""


class DevelopmentServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """The endpoint; `serve_forever` until `shutdown`. now: gives the time of the collateral (seconds since 1970)."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, path: Path, machine: Machine, now: Callable[[], int]) -> None:
        self.machine, self.now, self.path = machine, now, path
        _freed(path)
        mask = os.umask(0o177)
        try:
            super().__init__(str(path), _DstackHandler)
        except OSError as error:
            why = error.strerror or str(error)
            raise BadInput(f"cannot be a socket ({why})", file=path, hint="name a new file; its path is short") from None
        finally:
            os.umask(mask)

    def server_close(self) -> None:
        """Close the socket, and remove its file."""
        super().server_close()
        self.path.unlink(missing_ok=True)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that disconnects."""

    def collateral(self) -> Json:
        """The collateral now."""
        return self.machine.authority.collateral(self.now()).document()

    def answer(self, path: str, body: Json) -> Json:
        """dstack's answer to a request; raises _Wrong."""
        match path:
            case "/GetQuote":
                data = _hex(body, "report_data")
                quote = self.machine.quote(data)
                log = self.machine.log_text()
                return {"quote": quote.hex(), "event_log": log, "report_data": data.hex(), "vm_config": "{}"}
            case "/GetKey":
                if body.get("algorithm", "") not in _ALGORITHMS:
                    raise _Wrong("Unsupported algorithm")
                key, chain = self.machine.key(_text(body, "path"), _text(body, "purpose"))
                return {"key": key.hex(), "signature_chain": [signature.hex() for signature in chain]}
            case "/Info":
                return self.machine.info()
            case "/Version":
                return VERSION
        raise KeyError(path)


def _freed(path: Path) -> None:
    """Remove the socket of an endpoint that was killed; raises BadInput if one is alive, or if it is another file."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return
    if not stat.S_ISSOCK(mode):
        raise BadInput("exists already, and is not a socket", file=path, hint="name a new file")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
            return
    raise BadInput("an endpoint is running there", file=path, hint="stop it, or name another file")


def _text(body: Json, name: str) -> str:
    value = body.get(name, "")
    if not isinstance(value, str):
        raise _Wrong(f"{name} is not a string")
    return value


def _hex(body: Json, name: str) -> bytes:
    try:
        data = bytes.fromhex(_text(body, name))
    except ValueError:
        raise _Wrong(f"{name} is not hex") from None
    if not 0 < len(data) <= 64:
        raise _Wrong("Report data is too long" if data else "Report data is empty")
    return data


class _DstackHandler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    timeout = _SECONDS
    server: DevelopmentServer

    def do_GET(self) -> None:
        self._answered(lambda: self.server.collateral() if self.path == COLLATERAL else None)

    def do_POST(self) -> None:
        self._answered(self._posted)

    def _posted(self) -> Json | None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > _BODY:
            self.close_connection = True
            raise _Wrong("the body has no length, or is too long")
        try:
            body = json.loads(self.rfile.read(int(length)) or b"{}")
        except (ValueError, RecursionError):
            raise _Wrong("the body is not JSON") from None
        if not isinstance(body, dict):
            raise _Wrong("the body is not an object")
        try:
            return self.server.answer(self.path, body)
        except KeyError:
            return None

    def _answered(self, asked: Callable[[], Json | None]) -> None:
        try:
            answer = asked()
            self._send(404, {"error": "there is no such path"}) if answer is None else self._send(200, answer)
        except _Wrong as error:
            self._send(400, {"error": str(error)})

    def _send(self, status: int, answer: Json) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def address_string(self) -> str:
        return "a client"  # a Unix socket has no addresses

    def log_message(self, *_: Any) -> None:
        """Log nothing: the paths of keys are private."""


@contextmanager
def serve_in_thread(path: Path, machine: Machine, now: Callable[[], int]) -> Iterator[DevelopmentServer]:
    """Run the endpoint in a thread of this process, for tests."""
    server = DevelopmentServer(path, machine, now)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        with suppress(OSError):
            server.server_close()
