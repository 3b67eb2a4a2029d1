"""A Podman of our own for tests of the containers sandbox: set up by tools/containers, served while tests want it."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from assay.judge.sandbox.containers import Containers

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "containers"
_SETUP, _START = 1800, 300
"""Seconds for a download and an image on a slow machine, and for a start."""


@contextmanager
def serving() -> Iterator[str]:
    """Podman, answering on a socket whose address is given."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        pytest.skip("setting up Podman needs root on Debian")
    setup = subprocess.run(
        ["bash", str(TOOL), "setup"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_SETUP, check=False
    )
    assert setup.returncode == 0, (
        f"tools/containers setup failed: {(setup.stdout + setup.stderr).decode(errors='replace')[-3000:]}"
    )
    with tempfile.TemporaryDirectory(prefix="assay-podman-", dir="/tmp") as folder:  # a socket's path must be short
        place, log = Path(folder, "socket"), Path(folder, "log")
        with log.open("wb") as output:
            service = subprocess.Popen(
                ["bash", str(TOOL), "serve", str(place)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            until = time.monotonic() + _START
            while not _answers(place):
                assert service.poll() is None, f"Podman ended: {log.read_text(errors='replace')[-3000:]}"
                assert time.monotonic() < until, f"Podman does not answer: {log.read_text(errors='replace')[-3000:]}"
                time.sleep(0.1)
            yield f"unix://{place}"
        finally:
            service.send_signal(signal.SIGTERM)
            try:
                service.wait(60)
            except subprocess.TimeoutExpired:
                service.kill()
                service.wait()


def sandbox() -> Iterator[Containers]:
    """The sandbox, by a Podman that serves for as long as tests want it; to be made a fixture. Builds have no network.

    ASSAY_TEST_ENGINE: another engine's address, which has the base image; for a look at Docker by hand.
    """
    if other := os.environ.get("ASSAY_TEST_ENGINE"):
        yield Containers(other, build_network="none")
        return
    with serving() as url:
        yield Containers(url, build_network="none")


def podman(*arguments: str) -> str:
    """Carries out a command of that Podman's, beside the service, and returns what it prints."""
    here = ROOT / "build" / "containers"
    env = os.environ | {
        "CONTAINERS_CONF": str(here / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(here / "storage.conf"),
        "CONTAINERS_REGISTRIES_CONF": str(here / "registries.conf"),
    }
    ran = subprocess.run(["podman", *arguments], stdin=subprocess.DEVNULL, capture_output=True, env=env, timeout=600, check=True)
    return ran.stdout.decode()


def _answers(place: Path) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(10)
            client.connect(str(place))
            client.sendall(b"GET /_ping HTTP/1.0\r\nHost: localhost\r\n\r\n")
            return b" 200 " in client.recv(4096)
    except OSError:
        return False
