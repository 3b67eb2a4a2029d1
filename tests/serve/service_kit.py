"""A running service on loopback, for tests: real sockets, real HTTP, a ledger on the disk."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import ledger_kit
from assay.ledger import settling
from assay.ledger.keys import PrivateKey
from assay.peers.guard import CONNECTION_LIMITS, ConnectionGuard, ConnectionLimits
from assay.serve.listening import ServeOptions, addresses, listen, networks
from assay.serve.run import server
from assay.serve.signed import sign_request
from assay.serve.site import Site, open_site


@dataclass(frozen=True)
class Answer:
    """What a service answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Running:
    """A service that runs: its site and its port."""

    site: Site
    port: int

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Answer:
        """One request, as it is given."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def signed(self, key: PrivateKey, method: str, path: str, body: bytes = b"", **how: Any) -> Answer:
        """One signed request; how: `created`, `nonce` of the signature."""
        headers = sign_request(key, method, f"{self.address}{path}", sha256(body).digest(), **how)
        return self.ask(method, path, body, headers)


@contextmanager
def running(place: Path, limits: ConnectionLimits = CONNECTION_LIMITS, *proxies: str) -> Iterator[Running]:
    """A service of a folder or a subnet file, in a thread, on a free port."""
    options = ServeOptions(place, port=0)
    opened: socket.socket = listen(options)
    port = opened.getsockname()[1]
    with opened, open_site(place, addresses(options, port)) as site:
        serving = server(site, ConnectionGuard(limits, proxies=networks(proxies)))
        thread = threading.Thread(target=serving.run, kwargs={"sockets": [opened]})
        thread.start()
        try:
            yield Running(site, port)
        finally:
            serving.should_exit = True
            thread.join()


def settle(service: Running, epoch: int = 3) -> None:
    """Everybody's evidence of an epoch in the only competition of a service, and the epoch settled."""
    (served,) = service.site.competitions.values()
    ledger_kit.add(served.folder, ledger_kit.records(epoch=epoch))
    with ledger_kit.opened(served.folder) as ledger:
        settling.settle(ledger, ledger_kit.SIGNER, epoch)


def listing(folder: Path) -> dict[str, bytes]:
    """Every file below a folder but the database's, with its content: what a refused request must leave unchanged."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not file.name.startswith("ledger.db")
    }
