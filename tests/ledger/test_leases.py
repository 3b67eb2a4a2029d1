"""Leases of cells: one driver at a time has a cell, what is in the ledger is done, and what a dead driver had is free again."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import ledger_kit
import postgres
from assay.ledger import config, leases
from assay.ledger.leases import CellLeases
from assay.ledger.store import DatabaseUnreachable

VALIDATOR = next(iter(ledger_kit.VALIDATORS))
CELL, OTHER = ("s1", "t1", 1), ("s2", "t2", 1)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return ledger_kit.made(tmp_path / "small")


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    seconds = [time.time()]
    clock = lambda: seconds[0]  # noqa: E731
    monkeypatch.setattr(leases, "time", SimpleNamespace(time=clock, monotonic=clock))
    return seconds


def driver(place: Path, holder: str) -> CellLeases:
    return CellLeases(config.read(place), VALIDATOR, holder)


def test_one_driver_has_a_cell(place: Path) -> None:
    with driver(place, "one") as one, driver(place, "two") as two:
        assert (one.claim(CELL), two.claim(CELL), two.claim(OTHER)) == ("ours", "held", "ours")
        assert one.claim(CELL) == "ours"
        assert (one.holds(CELL), two.holds(CELL)) == (True, False)
        one.release(CELL)
        assert two.claim(CELL) == "ours"
    with driver(place, "three") as three:  # those that ended have none
        assert three.claim(CELL) == "ours"


@pytest.mark.no_cover
def test_drivers_on_several_machines_share_a_database(database: str, tmp_path: Path) -> None:
    place = ledger_kit.made(tmp_path / "small", database=database)
    with driver(place, "one") as one, driver(place, "two") as two:
        assert (one.claim(CELL), two.claim(CELL), two.claim(OTHER)) == ("ours", "held", "ours")
        one.release(CELL)
        one.release(OTHER)
        assert (two.claim(CELL), one.claim(OTHER)) == ("ours", "held")


def test_the_same_folder_goes_on_at_once(place: Path) -> None:
    killed = driver(place, "one")
    killed.claim(CELL)
    with driver(place, "two") as two, driver(place, "one") as again:
        assert (two.claim(CELL), again.claim(CELL)) == ("held", "ours")


def test_what_a_dead_driver_had_is_free_after_a_while(place: Path, now: list[float]) -> None:
    silent, alive = driver(place, "one"), driver(place, "two")
    silent.claim(CELL)
    silent.claim(OTHER)
    for _ in range(2):
        now[0] += leases.LEASE / 2 + 1
        assert silent.claim(OTHER) == "ours"
        silent.renew()
    assert alive.claim(CELL) == "held"  # it was renewed
    now[0] += leases.LEASE + 1
    assert alive.claim(CELL) == "ours"
    assert not silent.holds(CELL)  # it was stopped, and goes on: what it judged is another driver's now
    assert silent.holds(OTHER)


def test_one_look_shows_what_others_have(database: str, tmp_path: Path) -> None:
    place = ledger_kit.made(tmp_path / "small", database=database)
    with driver(place, "one") as one:
        one.claim(CELL)
        with driver(place, "two") as two:
            two.claim(OTHER)
            assert two.held([CELL, OTHER]) == {CELL}
            one.release(CELL)
            assert two.claim(CELL) == "held"  # not asked again until the next look
            assert two.held([CELL, OTHER]) == set()
            assert two.claim(CELL) == "ours"


def test_a_look_shows_whose_lease_is_over(place: Path, now: list[float]) -> None:
    silent, alive = driver(place, "one"), driver(place, "two")
    silent.claim(CELL)
    assert alive.held([CELL]) == {CELL}
    now[0] += leases.LEASE + 1
    assert alive.held([CELL]) == set()
    assert alive.claim(CELL) == "ours"


def test_a_database_that_does_not_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds, asked = [0.0], list[int]()
    pause = lambda pause: seconds.__setitem__(0, seconds[0] + pause)  # noqa: E731
    monkeypatch.setattr(leases, "time", SimpleNamespace(monotonic=lambda: seconds[0], sleep=pause))

    def ask() -> int:
        asked.append(1)
        if len(asked) < 3:
            raise DatabaseUnreachable("it restarts")
        return len(asked)

    assert leases.patiently(ask) == 3
    asked.clear()
    with pytest.raises(DatabaseUnreachable, match="it restarts"):
        leases.patiently(ask, 0.0)
    assert seconds[0] < leases.PATIENCE


def test_leases_outlast_a_restart_of_the_database(postgresql: postgres.Cluster, tmp_path: Path) -> None:
    place = ledger_kit.made(tmp_path / "small", database=postgresql.database())
    with driver(place, "one") as one:
        one.claim(CELL)
        postgresql.restart(postgres.CRASH)
        assert one.claim(OTHER) == "ours"
        postgresql.restart(postgres.CRASH)
        one.release(CELL)
        with driver(place, "two") as two:
            assert (two.claim(CELL), two.claim(OTHER)) == ("ours", "held")


def test_what_is_in_the_ledger_is_done_for_all(place: Path) -> None:
    with driver(place, "one") as one, driver(place, "two") as two:
        assert one.claim(CELL) == "ours"
        ledger_kit.add(place, ledger_kit.records(validators=[VALIDATOR]))
        assert two.claim(CELL) == "done"
        assert two.claim(("s1", "t1", 2)) == "ours"
        ledger_kit.add(place, ledger_kit.records(validators=[VALIDATOR])[:1])  # a batch of what is known already
        one.renew()
        assert one.claim(CELL) == "done"
