"""A validator whose clock is wrong says so, and goes on when it is right."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import judge_kit
import ledger_kit
import node_kit
import season_kit
import wrong_clock
from node_kit import WRONG, stored, submit, until
from season_kit import LONG
from service_kit import Running, running
from test_two_nodes import works
from wrong_clock import WrongClock

pytestmark = pytest.mark.slow

HOUR = 3600


@pytest.fixture
def clock(tmp_path: Path) -> WrongClock:
    return WrongClock(wrong_clock.library(tmp_path), tmp_path / "clock")


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    judge_kit.bubblewrap()
    monkeypatch.setenv("ASSAY_KEYS", node_kit.keys_in(tmp_path / "keys"))
    with running(ledger_kit.once(tmp_path / "desk" / "small", ("node",), node_kit.operator)) as started:
        yield started


@pytest.mark.full
@pytest.mark.parametrize("seconds", [HOUR, pytest.param(-HOUR, marks=pytest.mark.full)])
def test_a_validator_whose_clock_is_wrong_says_so_and_goes_on_when_it_is_right(
    service: Running, tmp_path: Path, clock: WrongClock, seconds: int
) -> None:
    theirs, folder = service.site.competition("small").folder, tmp_path / "mine"
    node = season_kit.validator(folder, f"{service.address}/small", node_kit.KEY, prefix=clock.prefix)
    with ExitStack() as stack:
        node.start()
        stack.callback(node.end)
        until(lambda: works(folder), "the node works")
        before = stored(theirs)
        clock.set(seconds)
        submit(theirs, "m1", WRONG)
        which = "ahead of" if seconds > 0 else "behind"
        until(
            lambda: f"seconds {which} the service's" in _lines(node.out, "alarm: "), "the node says that its clock is wrong", LONG
        )
        assert stored(theirs) == before, "nothing that it signs with this clock is taken"
        clock.set(0)
        until(lambda: len(stored(theirs)) == len(before) + 1, "what was handed in meanwhile is judged and sent", LONG)
        until(lambda: _lines(node.out, "over: "), "the node says that it is over", LONG)
        assert node.stop() == 0
    assert [row[2] for row in stored(theirs)] == ["pass", "fail"]
    assert node_kit.conflicts(theirs) == 0


def _lines(out: Path, kind: str) -> str:
    """What a node printed about its clock."""
    return "\n".join(line for line in out.read_text().splitlines() if kind in line and "clock" in line)
