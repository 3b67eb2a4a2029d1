"""Clocks that are wrong, and are set: no epoch is closed twice or skipped, and a validator says what is the matter."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

import judge_kit
import ledger_kit
import node_kit
import season_kit
import test_operator
import wrong_clock
from cli_kit import output
from node_kit import WRONG, stored, submit, until
from season_kit import LONG
from service_kit import Running, running
from test_closing import settled
from test_two_nodes import works
from wrong_clock import WrongClock

pytestmark = pytest.mark.slow

EVERY, HOUR = 600, 3600


@pytest.fixture
def clock(tmp_path: Path) -> WrongClock:
    return WrongClock(wrong_clock.library(tmp_path), tmp_path / "clock")


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    judge_kit.bubblewrap()
    monkeypatch.setenv("ASSAY_KEYS", node_kit.keys_in(tmp_path / "keys"))
    with running(ledger_kit.once(tmp_path / "desk" / "small", ("node",), node_kit.operator)) as started:
        yield started


def test_an_operators_clock_jumps_forward_and_back(tmp_path: Path, clock: WrongClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward: what has ended by the clock is closed, in its order. Back: nothing is, until the next epoch ends again."""
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path))
    place = test_operator.season(tmp_path, every=EVERY)
    port, due = season_kit.free_port(), place / "node" / "due.json"
    node = season_kit.operator(place, port, prefix=clock.prefix)
    with ExitStack() as stack:
        node.start()
        stack.callback(node.end)
        until(due.exists, "the node looks at its clock")
        first = json.loads(due.read_bytes())["due"]
        clock.set(5 * EVERY)
        until(lambda: len(settled(place)) == 5, "what ended by the clock is closed")
        until(lambda: json.loads(due.read_bytes())["due"] == first + 5 * EVERY, "the sixth ends when it would have ended anyway")
        before, back = due.stat().st_mtime_ns, count(1)

        def looks_again() -> bool:
            clock.set(
                next(back) * -3 * HOUR
            )  # further and further: it looks at once after a jump, if it was not looking just then
            return due.stat().st_mtime_ns != before

        until(looks_again, "the node looks at its clock after it was set back")
        assert settled(place) == [1, 2, 3, 4, 5]
        assert json.loads(due.read_bytes())["due"] == first + 5 * EVERY
        clock.set(6 * EVERY)
        until(lambda: len(settled(place)) == 6, "the sixth is closed")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=60) as answer:
            assert answer.status == 200
        assert node.stop() == 0
    assert settled(place) == [1, 2, 3, 4, 5, 6]
    output("ledger", "check", place)


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
