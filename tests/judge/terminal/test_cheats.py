"""Agents that try to win without solving: none passes where it must not, becomes an error, or reaches the host. SPEC 2.1."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from assay.judge.sandbox import NAMES
from cheating import BEGIN, CHEATS, END, MODES, Cheat, Ground, ground, opened, read_table, table
from depth import depth

PAGE = Path(__file__).parents[3] / "docs" / "security.md"


IN_BOTH = frozenset(
    {
        "abstract-socket", "control-groups", "daemon", "engine-socket", "fifo", "kill-all", "link-by-proc", "loopback",
        "memory-bomb", "privilege", "read-host", "replace-bash", "reward-before", "tests-mount",
    }
)  # fmt: skip
"""In short these are tried in containers too: each reaches for the sandbox itself, or for what it lends, in another way. The
others go by files, which the judge reads alike in every sandbox; `make full` tries all of them in both."""


def grounds(request: pytest.FixtureRequest) -> Iterator[Ground]:
    with (
        opened(request.param) as sandbox,
        TemporaryDirectory(prefix="assay-cheats-") as folder,
        ground(sandbox, Path(folder)) as prepared,
    ):
        yield prepared


every_ground = pytest.fixture(scope="module", params=NAMES)(grounds)
mostly_bubblewrap = pytest.fixture(
    scope="module", params=[name if name == "bubblewrap" else pytest.param(name, marks=pytest.mark.full) for name in NAMES]
)(grounds)


def in_containers(cheat: Cheat) -> tuple[str, ...]:
    """The modes that are tried there. To freeze a container takes seconds: the page's table tries that.

    In short it is one mode of each: the weaker, if the cheat must not pass in it.
    """
    weaker = "separate" if cheat.may_pass("shared", "containers") else "shared"
    return depth((weaker,), ("separate", "shared"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("cheat", [cheat for cheat in CHEATS if cheat.name in IN_BOTH], ids=lambda cheat: cheat.name)
def test_a_cheat(every_ground: Ground, cheat: Cheat) -> None:
    wins_nothing(every_ground, cheat)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("cheat", [cheat for cheat in CHEATS if cheat.name not in IN_BOTH], ids=lambda cheat: cheat.name)
def test_a_cheat_that_goes_by_files(mostly_bubblewrap: Ground, cheat: Cheat) -> None:
    wins_nothing(mostly_bubblewrap, cheat)


def wins_nothing(ground: Ground, cheat: Cheat) -> None:
    """It passes only where that is known, becomes no error, and reaches nothing of the host."""
    modes = MODES if ground.sandbox.name == "bubblewrap" else in_containers(cheat)
    with ThreadPoolExecutor(len(modes)) as pool:
        for mode, tried in zip(modes, pool.map(lambda mode: ground.tried(cheat, mode), modes), strict=True):
            verdict = tried.verdict
            assert verdict.outcome != "error", f"{mode}: {tried.message}"
            assert verdict.outcome in ("fail", "timeout") or cheat.may_pass(mode, ground.sandbox.name), f"{mode}: {verdict}"
    assert ground.reached == []


def test_an_honest_agent_passes_beside_them(every_ground: Ground) -> None:
    tried = every_ground.honest()
    assert tried.verdict.outcome == "pass", tried.message


def test_nothing_is_known_to_pass_in_separate() -> None:
    assert {cheat.name for cheat in CHEATS} > IN_BOTH
    assert len(CHEATS) >= 40
    assert all("separate" not in cheat.known | cheat.in_containers for cheat in CHEATS)


def test_the_page_lists_every_cheat_and_what_is_known() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert table(read_table(text.split(BEGIN)[1].split(END)[0]), sorted(NAMES)) == text.split(BEGIN)[1].split(END)[0]
    head, _, *rows = text.split(BEGIN)[1].split(END)[0].splitlines()
    columns = [cell.strip() for cell in head.strip("|").split("|")][2:]
    entries: dict[str, tuple[str, dict[str, str]]] = {}
    for row in rows:
        name, what, *cells = (cell.strip() for cell in row.strip("|").split("|"))
        entries[name.strip("`")] = what, dict(zip(columns, cells, strict=True))
    assert entries.keys() == {cheat.name for cheat in CHEATS}, "run python -m tests.cheating"
    for cheat in CHEATS:
        what, outcomes = entries[cheat.name]
        assert what == cheat.what
        for column, outcome in outcomes.items():
            sandbox, mode = column.split(", ")
            if outcome not in ("fail", "timeout"):
                assert outcome == "**passes** (known)", (cheat.name, column)
                assert cheat.may_pass(mode, sandbox), (cheat.name, column)
