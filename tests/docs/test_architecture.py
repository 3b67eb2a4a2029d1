"""docs/architecture.md is a true map: every room is on it, every file it names exists, and one score goes the way it says."""

import re
import sys
import tomllib
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import assay

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "assay"
PAGE = ROOT / "docs" / "architecture.md"
WORDS = 36
"""The most words that the vocabulary may have."""
STEPS = 20
"""The most files that one score may pass through, from a line of JSONL to a weight of 16 bits."""


def _section(heading: str) -> str:
    """The text below a heading, up to the next heading of the same level."""
    text = PAGE.read_text(encoding="utf-8")
    assert f"\n## {heading}\n" in text
    return text.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def _files(text: str) -> list[str]:
    """The files of the package in a text, in its order, without their line numbers: `settle/pipeline.py`."""
    return re.findall(r"`([a-z_0-9/]+\.py)`", text)


def _rooms() -> set[str]:
    """The modules and packages directly under src/assay."""
    modules = {path.stem for path in PACKAGE.glob("*.py") if not path.name.startswith("__")}
    return modules | {path.parent.name for path in PACKAGE.glob("*/__init__.py")}


def test_every_room_is_on_the_map_from_the_ground_up() -> None:
    named = re.findall(r"^### `(\w+)`$", _section("Rooms, from the ground up"), re.MULTILINE)
    assert set(named) == _rooms()
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    layers = [re.findall(r"\w+", layer) for layer in reversed(contracts[0]["layers"])]
    height = {room: number for number, layer in enumerate(layers) for room in layer}
    assert [height[room] for room in named] == sorted(height[room] for room in named), "the order of pyproject's importlinter"


def test_every_file_that_the_map_names_exists() -> None:
    named = re.findall(r"`((?:[\w.-]+/)*[\w.-]+(?:\.(?:py|toml|md|json|txt)|/))`", PAGE.read_text(encoding="utf-8"))
    assert len(named) > 30
    users = {"scheme.toml"}  # files of a user's competition, not of the repository
    missing = [name for name in named if name not in users and not any((base / name).exists() for base in (PACKAGE, ROOT))]
    assert missing == []


def _entered() -> list[str]:
    """The package's files that run from opening examples/season to a weight, in the order in which they are first entered."""
    entered: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            entered[frame.f_code.co_filename] = None

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        weight = assay.open(ROOT / "examples" / "season").settle().weights["atlas"].u16
    finally:
        sys.setprofile(before)
    assert weight == 20550
    ours = [Path(file).relative_to(PACKAGE).as_posix() for file in entered if Path(file).is_relative_to(PACKAGE)]
    return [name for name in ours if name != "__init__.py"]


@pytest.fixture(scope="module")
def entered() -> list[str]:
    _entered()  # the first time modules are loaded and some values are kept for good
    return _entered()


def test_one_score_goes_the_way_that_the_map_says(entered: list[str]) -> None:
    way, helpers = _section("The way of one score").split("\nThe same run also", 1)
    steps = _files(way)
    assert len(steps) <= STEPS
    assert set(steps) | set(_files(helpers)) == set(entered)
    assert steps == [name for name in entered if name in steps], "the steps stand in the order in which files are entered"


def test_the_vocabulary_has_each_word_once() -> None:
    words = re.findall(r"^\| ([a-z ]+) \|", _section("Vocabulary"), re.MULTILINE)
    words.remove("word")
    assert 20 <= len(words) <= WORDS
    assert len(set(words)) == len(words)


def test_the_readme_says_what_it_is_before_anything_else() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = readme.splitlines()
    assert len(lines) <= 150
    assert lines[6:8] == ["```console", "$ assay settle examples/season"], "five lines of text, then the leaderboard"
    assert "make demo " in readme
    assert "make test " in readme
    table = readme.split("| You are | Start here |")[1].split("\n\n")[0]
    for reader in ("subnet owner", "agent developer", "sponsor", "auditor", "benchmark maintainer"):
        assert f"{reader}" in table
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", readme):
        assert (ROOT / link).exists(), link
