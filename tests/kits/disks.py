"""Small disks for tests: one can be filled, or be read only."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["filled", "mounted", "read_only", "remount"]


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[Path]:
    """A small disk."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk takes root")
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True, timeout=60)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True, timeout=60)


def remount(disk: Path, option: str) -> None:
    """The same disk otherwise: `ro`, `rw`, `size=16m`."""
    subprocess.run(["mount", "-o", f"remount,{option}", disk], check=True, timeout=60)


@contextmanager
def read_only(disk: Path) -> Iterator[None]:
    """Nobody may write to the disk while the block lasts, even if somebody has a file there open."""
    subprocess.run(["mount", "--bind", disk, disk], check=True, timeout=60)
    try:
        remount(disk, "bind,ro")
        yield
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True, timeout=60)


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """No space is left on the disk while the block lasts."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    try:
        yield
    finally:
        filler.unlink()
