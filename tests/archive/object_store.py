"""An S3 of our own for tests: moto's server as a process on loopback, with one bucket, gone when the block ends."""

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import obstore
import pytest
from obstore.store import S3Store

SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""
BUCKET, SECRET = "evidence", "a-secret-that-nobody-may-see"


@dataclass(frozen=True)
class ObjectStore:
    """A running store, as somebody else sees it who may change what is there."""

    url: str

    @property
    def bucket(self) -> Any:
        given: Any = {"access_key_id": "tests", "secret_access_key": SECRET, "region": "us-east-1", "endpoint": self.url}
        return S3Store(BUCKET, config=given, client_options={"allow_http": True})

    def put(self, key: str, data: bytes) -> None:
        obstore.put(self.bucket, key, data)

    def delete(self, key: str) -> None:
        obstore.delete(self.bucket, key)

    def raw(self, path: str) -> None:
        """PUT an empty object at a path that a library would not let pass; or, without one, make the bucket."""
        request = urllib.request.Request(f"{self.url}/{BUCKET}{path}", method="PUT")
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """The store, on a port that the system chooses."""
    with subprocess.Popen([sys.executable, "-W", "ignore", "-c", SERVER], stdin=-1, stdout=-1, stderr=-3, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            store = ObjectStore(f"http://127.0.0.1:{int(process.stdout.readline())}")
            store.raw("")
            yield store
        finally:
            process.stdin.close()
            process.wait(60)


def environment(monkeypatch: pytest.MonkeyPatch, store: ObjectStore) -> None:
    """Make this process a client of the store, as an operator does."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    given = {"ACCESS_KEY_ID": "somebody", "SECRET_ACCESS_KEY": SECRET, "REGION": "us-east-1", "ENDPOINT_URL": store.url}
    for name, value in (given | {"ALLOW_HTTP": "true"}).items():
        monkeypatch.setenv(f"AWS_{name}", value)
