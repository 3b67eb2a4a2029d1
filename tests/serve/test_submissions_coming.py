"""Archives that a box unpacks while they still come: nothing leaves the box before the whole body is the one that was signed."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from assay.judge import submitting, tree
from assay.serve import taking, uploads
from assay.serve.unpacking import ComingArchive, unpack
from service_kit import Running
from test_submissions import ONE, PUT, agent, evil, folder_of, headers, packed, patient, served, state


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    with served(tmp_path / "small") as started:
        yield started


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was unpacked: an archive that was coming, or a file that was there. After each one: how it ended."""
    events: list[Any] = []

    def watched(archive: Path | ComingArchive, target: Path, *args: Any, **more: Any) -> None:
        events.append("coming" if isinstance(archive, ComingArchive) else "there")
        try:
            unpack(archive, target, *args, **more)
            events.append("unpacked")
        except Exception as error:
            events.append(type(error).__name__)
            raise

    monkeypatch.setattr(uploads, "unpack", watched)
    return events


def large(folder: Path, size: int = 3_000_000) -> bytes:
    """An archive with so many bytes, not compressed."""
    (agent(folder) / "data").write_bytes(os.urandom(size))
    return packed(folder, compressed=False)


def staged(service: Running) -> list[str]:
    place = folder_of(service) / submitting.STAGED
    return sorted(path.name for path in place.rglob("*")) if place.exists() else []


def sent(service: Running, archive: bytes, first: int, meanwhile: Callable[[socket.socket], None]) -> bytes:
    """What a client reads that sends its first bytes, then something happens, then it sends the rest, as far as it can."""
    lines = [f"PUT {PUT} HTTP/1.1", f"Host: 127.0.0.1:{service.port}", f"Content-Length: {len(archive)}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers(service, ONE, archive).items()]
    with socket.create_connection(("127.0.0.1", service.port), timeout=60) as client:
        client.sendall("\r\n".join([*lines, "", ""]).encode() + archive[:first])
        meanwhile(client)
        with suppress(OSError):
            client.sendall(archive[first:])
        return b"".join(iter(lambda: client.recv(65_536), b""))


def test_a_box_unpacks_what_comes(service: Running, tmp_path: Path, seen: list[Any]) -> None:
    archive = large(tmp_path / "agent")
    answer = service.signed(ONE, "PUT", PUT, archive)
    assert (answer.status, seen) == (201, ["coming", "unpacked"]), answer
    assert answer.json["submission"] == tree.digest(tmp_path / "agent")
    (kept,) = [path for path in (folder_of(service) / "agents").iterdir() if not path.name.startswith(".")]
    assert tree.digest(kept) == tree.digest(tmp_path / "agent")
    assert staged(service) == []


def test_another_body_than_was_signed_leaves_nothing(service: Running, tmp_path: Path, seen: list[Any]) -> None:
    archive = large(tmp_path / "agent")
    before = state(service)
    other = bytearray(archive)
    other[-2_000_000] ^= 1  # in the content of a file: the archive itself is sound
    answer = service.ask("PUT", PUT, bytes(other), headers(service, ONE, archive))
    assert (answer.status, answer.json["detail"]) == (400, "the body is not the one that was signed: its digest differs")
    assert seen == ["coming", "Withdrawn"]
    assert (state(service), staged(service)) == (before, [])


def test_a_body_that_ends_early_leaves_nothing(service: Running, tmp_path: Path, seen: list[Any]) -> None:
    archive = large(tmp_path / "agent")
    before = state(service)
    answer = sent(service, archive, len(archive) // 2, lambda client: client.shutdown(socket.SHUT_WR))
    assert b" 201 " not in answer
    assert patient(service, ONE, archive).status == 201  # so the first request is over
    assert seen == ["coming", "Withdrawn", "coming", "unpacked"]
    assert before != state(service)
    assert staged(service) == []


def test_a_slow_client_loses_its_box_and_nothing_else(
    service: Running, tmp_path: Path, seen: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "EARLY_SECONDS", 0.1)
    lost = threading.Event()

    def watched(self: ComingArchive) -> bool:
        whole = is_whole(self)
        lost.set()
        return whole

    is_whole = ComingArchive.is_whole
    monkeypatch.setattr(ComingArchive, "is_whole", watched)
    archive = large(tmp_path / "agent")
    answer = sent(service, archive, 1_000_000, lambda client: assert_soon(lost))
    assert b" 201 " in answer.partition(b"\r\n")[0]
    assert seen == ["coming", "Withdrawn", "there", "unpacked"]
    assert staged(service) == []


def assert_soon(event: threading.Event) -> None:
    assert event.wait(60)


def test_what_is_refused_at_once_is_read_to_its_end(service: Running, seen: list[Any]) -> None:
    before = state(service)
    head = evil()[:1024]
    answer = service.signed(ONE, "PUT", PUT, head + os.urandom(2_000_000))
    assert answer.status == 400, answer
    assert "'../evil' leads out of the folder" in answer.json["detail"]
    assert seen == ["coming", "BadInput"]
    assert (state(service), staged(service)) == (before, [])


def test_where_no_box_is_free_the_body_waits_for_one(
    service: Running, tmp_path: Path, seen: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "EARLY_BYTES", 2**40)
    assert service.signed(ONE, "PUT", PUT, large(tmp_path / "agent")).status == 201
    assert seen == ["there", "unpacked"]


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    dead = tmp_path / submitting.STAGED / "dead"
    (dead / "files").mkdir(parents=True)
    with submitting.staging(tmp_path) as first:
        assert not dead.exists()
        with submitting.staging(tmp_path) as second:
            assert first.is_dir()
            assert second.is_dir()
            assert submitting.is_staged(tmp_path, second / "files")
        assert not second.exists()
    assert not first.exists()
    assert not submitting.is_staged(tmp_path, tmp_path / "agents" / "x" / "files")
