"""Packages that somebody installed beside Assay, for tests: a folder on the path, and what `pip install` would leave in it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from assay import kind as kinds


def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of packages on the path; what is known of kinds is looked up anew, before and afterwards. To be made a fixture."""
    place = tmp_path / "site"
    place.mkdir()
    monkeypatch.syspath_prepend(place)
    kinds._others.cache_clear()
    yield place
    kinds._others.cache_clear()


def package(site: Path, name: str, group: str, entry: str, code: str) -> None:
    """Install a package of one module with one entry point."""
    about = site / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")
    (site / f"{name}.py").write_text(code)


def remove(site: Path, name: str) -> None:
    """Take a package away again."""
    (site / f"{name}-1.0.dist-info" / "entry_points.txt").unlink()
    kinds._others.cache_clear()
