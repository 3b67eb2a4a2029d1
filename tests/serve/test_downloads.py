"""What takes long is made once, one thing after the other, and nobody waits for ever."""

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.errors import BadInput
from assay.serve import downloads
from assay.serve.downloads import Workshop, tar_of
from assay.serve.http import HttpProblem


def test_who_asks_for_the_same_waits_for_the_same() -> None:
    calls: list[int] = []
    begun, go = threading.Event(), threading.Event()

    def make() -> int:
        begun.set()
        go.wait(60)
        calls.append(1)
        return len(calls)

    async def ask() -> list[int]:
        workshop = Workshop()
        several = [asyncio.create_task(workshop.once("name", make)) for _ in range(5)]
        await asyncio.to_thread(begun.wait, 60)
        go.set()
        first = await asyncio.gather(*several)
        return [*first, await workshop.once("name", make)]

    assert asyncio.run(ask()) == [1, 1, 1, 1, 1, 2]


def test_nobody_waits_for_ever_and_what_was_given_up_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "PATIENCE", 0.01)
    monkeypatch.setattr(downloads, "WAITING", 2)
    go = threading.Event()

    def slow() -> str:
        go.wait(60)
        return "made"

    def refuse() -> str:
        raise BadInput("wrong")

    async def status(workshop: Workshop, name: str, make: Callable[[], str]) -> int:
        with pytest.raises(HttpProblem) as refused:
            await workshop.once(name, make)
        assert refused.value.retry
        return refused.value.status

    async def ask() -> None:
        workshop = Workshop()
        assert [await status(workshop, name, slow) for name in ("one", "two")] == [503, 503]
        assert len(workshop._under_way) == 2
        assert await status(workshop, "three", slow) == 503
        assert len(workshop._under_way) == 2, "the third was not begun"
        go.set()
        while workshop._under_way:
            await asyncio.sleep(0.001)
        monkeypatch.setattr(downloads, "PATIENCE", 60)
        assert await workshop.once("one", slow) == "made"
        with pytest.raises(BadInput, match="wrong"):
            await workshop.once("two", refuse)

    asyncio.run(ask())


def test_a_file_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    def broken(path: Path) -> None:
        path.write_bytes(b"half")
        raise BadInput("wrong")

    def whole(path: Path) -> None:
        path.write_bytes(b"whole")

    async def ask() -> None:
        workshop = Workshop()
        with pytest.raises(BadInput, match="wrong"):
            await workshop.file(tmp_path, "x.tar", broken)
        assert [*(tmp_path / ".served").iterdir()] == []
        file = await workshop.file(tmp_path, "x.tar", whole)
        again = await workshop.file(tmp_path, "x.tar", broken)
        assert (file, file.path.read_bytes()) == (again, b"whole")

    asyncio.run(ask())


def test_a_tar_is_the_same_for_the_same_files_and_has_no_devices(tmp_path: Path) -> None:
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        for file in ("y", "x") if name == "a" else ("x", "y"):
            (folder / file).write_text(file)
        (folder / "link").symlink_to("x")
        tar_of(tmp_path / f"{name}.tar", [("top", folder)])
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    os.mkfifo(tmp_path / "a" / "pipe")
    with pytest.raises(BadInput, match="is a fifo"):
        tar_of(tmp_path / "c.tar", [("top", tmp_path / "a")])
