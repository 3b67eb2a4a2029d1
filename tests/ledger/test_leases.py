"""Leases of cells: one driver at a time has a cell, what is in the ledger is done, and what a dead driver had is free again."""

from __future__ import annotations

import json
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace

import pytest

import ledger_kit
import postgres
import small_folder
from assay.ledger import batch, config, intake, leases, store
from assay.ledger.leases import CellLeases, Key
from assay.ledger.store import DatabaseUnreachable
from assay.records import record

VALIDATOR = next(iter(ledger_kit.VALIDATORS))
CELL, OTHER = ("s1", "t1", 1), ("s2", "t2", 1)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return ledger_kit.ledger_folder(tmp_path / "small")


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    seconds = [time.time()]
    clock = lambda: seconds[0]  # noqa: E731
    monkeypatch.setattr(leases, "time", SimpleNamespace(time=clock, monotonic=clock))
    return seconds


def driver(place: Path, holder: str) -> CellLeases:
    return CellLeases(config.read(place), VALIDATOR, holder)


def test_one_driver_has_a_cell(place: Path) -> None:
    with driver(place, "one") as first, driver(place, "two") as two:
        assert (first.claim(CELL), two.claim(CELL), two.claim(OTHER)) == ("ours", "held", "ours")
        assert first.claim(CELL) == "ours"
        assert (first.holds(CELL), two.holds(CELL)) == (True, False)
        first.release(CELL)
        assert two.claim(CELL) == "ours"
    with driver(place, "three") as three:  # those that ended have none
        assert three.claim(CELL) == "ours"


def test_a_cell_whose_record_is_too_old_is_not_done(place: Path) -> None:
    submission, task, trial = CELL
    row = small_folder.record(validator=VALIDATOR, submission=submission, task=task, trial=trial, epoch=3)
    ledger_kit.add(place, [row])
    answers = [CellLeases(config.read(place), VALIDATOR, "one", oldest=oldest).claim(CELL) for oldest in (0, 3, 4)]
    assert answers == ["done", "done", "ours"]


@pytest.mark.no_cover
def test_drivers_on_several_machines_share_a_database(database: str, tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small", database=database)
    with driver(place, "one") as first, driver(place, "two") as two:
        assert (first.claim(CELL), two.claim(CELL), two.claim(OTHER)) == ("ours", "held", "ours")
        first.release(CELL)
        first.release(OTHER)
        assert (two.claim(CELL), first.claim(OTHER)) == ("ours", "held")


def judge(place: Path, number: int, cells: list[Key], start: Barrier) -> list[Key]:
    """A driver's process: it judges every cell that it may, each into a batch of its own; returns the cells that it judged."""
    outcome = ("pass", "fail")[number]
    judged, waiting, known = list[Key](), list(cells), intake.intake_rules(place)
    with driver(place, f"driver {number}") as leases_here, store.open(config.read(place).place) as ledger:
        start.wait(60)
        while waiting:
            cell = waiting.pop(0)
            answer = leases_here.claim(cell)
            if answer == "ours":
                submission, task, trial = cell
                row = small_folder.record(validator=VALIDATOR, submission=submission, task=task, trial=trial, outcome=outcome)
                signed = batch.make(
                    [record(row)],
                    origin=ledger_kit.ORIGIN,
                    competition=known.competition,
                    task_set=known.task_set,
                    signer=ledger_kit.VALIDATORS[VALIDATOR],
                    validator=VALIDATOR,
                )
                verdict = intake.accept(ledger, signed, known)
                assert (verdict.new, verdict.conflicting) == (1, 0)
                judged.append(cell)
            elif answer == "held":
                waiting.append(cell)
                leases_here.held(waiting)
    return judged


@pytest.mark.no_cover
def test_two_drivers_of_one_database_judge_each_trial_once(postgresql: postgres.Cluster, tmp_path: Path) -> None:
    """Two processes that begin at the same moment, and a third that died with a lease. They never judge the same trial.

    Each driver sees another outcome, so a trial that both judged would be a conflict.
    """
    place = ledger_kit.ledger_folder(tmp_path / "small", database=postgresql.database())
    cells: list[Key] = [("s1", f"t{task}", trial) for task in range(1, 7) for trial in (1, 2)]
    dead = CellLeases(config.read(place), VALIDATOR, "dead", lease=-2)
    assert dead.claim(cells[5]) == "ours"  # its process goes without giving up the lease, which is over
    dead._engine.dispose()
    dead._store.close()
    context = ledger_kit.processes()
    with context.Manager() as shared, ProcessPoolExecutor(2, mp_context=context) as pool:
        start = shared.Barrier(2)
        first, second = pool.map(judge, [place, place], (0, 1), [cells, cells[::-1]], [start, start])
    assert sorted(first + second) == sorted(cells)
    with ledger_kit.opened(place) as ledger, ledger.store.reading() as view:
        assert view.count() == len(list(view.batches())) == len(cells)
        assert list(view.conflicts()) == []
        outcomes = Counter(json.loads(row.body)["outcome"] for row in view.records())
    assert outcomes == Counter({"pass": len(first), "fail": len(second)})
    assert len(rows_of(place)) == len(cells)


def rows_of(place: Path) -> list[bytes]:
    """The lines of what was acknowledged."""
    return (place / intake.ACKNOWLEDGED).read_bytes().splitlines()


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
    place = ledger_kit.ledger_folder(tmp_path / "small", database=database)
    with driver(place, "one") as first:
        first.claim(CELL)
        with driver(place, "two") as two:
            two.claim(OTHER)
            assert two.held([CELL, OTHER]) == {CELL}
            first.release(CELL)
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
    place = ledger_kit.ledger_folder(tmp_path / "small", database=postgresql.database())
    with driver(place, "one") as first:
        first.claim(CELL)
        postgresql.restart(postgres.CRASH)
        assert first.claim(OTHER) == "ours"
        postgresql.restart(postgres.CRASH)
        first.release(CELL)
        with driver(place, "two") as two:
            assert (two.claim(CELL), two.claim(OTHER)) == ("ours", "held")


def test_what_is_in_the_ledger_is_done_for_all(place: Path) -> None:
    with driver(place, "one") as first, driver(place, "two") as two:
        assert first.claim(CELL) == "ours"
        ledger_kit.add(place, ledger_kit.records(validators=[VALIDATOR]))
        assert two.claim(CELL) == "done"
        assert two.claim(("s1", "t1", 2)) == "ours"
        ledger_kit.add(place, ledger_kit.records(validators=[VALIDATOR])[:1])  # a batch of what is known already
        first.renew()
        assert first.claim(CELL) == "done"
