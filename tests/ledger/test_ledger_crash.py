"""`kill -9` while a ledger takes in, settles and exports: nothing acknowledged is lost, nothing counts twice, the log goes on."""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import crash_kit
import crash_look
import crash_work
import ledger_kit
import postgres
import small_folder
from assay.ledger import bundle, config
from assay.ledger.log import Log
from crash_kit import Warm
from depth import depth
from ledger_kit import KEY

pytestmark = pytest.mark.no_cover  # the other tests reach every branch, and to trace these takes long

Another = Callable[[Path], str]
SEED = 20261102
KILLS = depth({"sqlite": 3, "postgresql": 2}, {"sqlite": 9, "postgresql": 5})
"""Twice each: at moments and at steps. With those before a write they are 52 in the full run."""
SERIES = {"sqlite": 14, "postgresql": 6}
"""In the long run, of 25 kills each, and twice: they are 1,000. Those at every step come to it."""


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    with crash_kit.warm(tmp_path_factory.mktemp("warm")) as process:
        yield process


def kind_of(database: str) -> str:
    return "postgresql" if "://" in database else "sqlite"


@pytest.fixture
def another(database: str, request: pytest.FixtureRequest) -> Another:
    """Where a further ledger may be made on the same database, which would be that of a competition in this folder."""
    if "://" not in database:
        return lambda folder: str(folder / "ledger.db")
    server: postgres.Cluster = request.getfixturevalue("postgresql")
    return lambda _: server.database()


@pytest.mark.parametrize("at_steps", [False, True], ids=["moments", "steps"])
def test_what_was_acknowledged_outlasts_a_kill(at_steps: bool, warm: Warm, database: str, tmp_path: Path) -> None:
    print(f"seed {SEED}")
    crash_kit.rounds(warm, tmp_path, database, random.Random(SEED), KILLS[kind_of(database)], at_steps=at_steps)


def test_a_kill_before_everything_that_settling_writes(warm: Warm, tmp_path: Path) -> None:
    assert crash_kit.every_write(warm, tmp_path, every=depth(6, 1)) > 20


@pytest.mark.full
@pytest.mark.parametrize("at_steps", [False, True], ids=["moments", "steps"])
def test_a_thousand_kills(at_steps: bool, warm: Warm, database: str, another: Another, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**9)
    for number in range(SERIES[kind_of(database)]):
        print(f"series {number}, seed {seed + number}")
        folder = tmp_path / str(number)
        folder.mkdir()
        crash_kit.rounds(warm, folder, another(folder), random.Random(seed + number), crash_kit.SERIES, at_steps=at_steps)


@pytest.mark.full
def test_a_kill_at_every_step(warm: Warm, another: Another, tmp_path: Path) -> None:
    assert crash_kit.every_step(warm, tmp_path, another) > 100


def test_a_log_that_is_killed_where_a_tile_fills(warm: Warm, tmp_path: Path) -> None:
    before = tmp_path / "before"
    Log.create(before, KEY, crash_work.checkpoint(0)).publish(crash_work.checkpoint(254), 0, crash_work.entries(254))
    step, killed = 1, True
    while killed:
        place, acknowledged, seen = (tmp_path / f"{step}-{name}" for name in ("log", "told", "seen"))
        shutil.copytree(before, place)
        killed = warm.killed(crash_work.publish, place, acknowledged, step, 258)
        warm.ask(crash_look.look_at_log, place, acknowledged, seen, 258)
        step += depth(37, 11)
    assert step > 100


def test_a_ledger_that_was_being_made_can_be_made(warm: Warm, database: str, another: Another, tmp_path: Path) -> None:
    step, killed = 1, True
    while killed:
        place = small_folder.make(tmp_path / str(step), validators_csv=ledger_kit.NAMES, evidence=None)
        where = another(place)
        killed = warm.killed(crash_work.init, place, step, where)
        warm.ask(crash_work.init_again, place, where)
        step += depth(15, 4) if kind_of(database) == "sqlite" else depth(50, 20)
    assert step > 20


def test_an_epoch_is_imported_whole_or_not(warm: Warm, database: str, another: Another, tmp_path: Path) -> None:
    place = tmp_path / "small"
    crash_work.create_ledger(place, "ledger.db")
    warm.ask(crash_work.steps_of, place, tmp_path / "told")
    source = crash_work.exported(place, crash_work.FIRST)
    assert (source / bundle.SETTLEMENT).exists()
    step, killed = 1, True
    while killed:
        where = tmp_path / str(step)
        copy = ledger_kit.ledger_folder(where, database=another(where))
        assert config.exists(copy)
        killed = warm.killed(crash_work.bring_in, copy, step, source)
        warm.ask(crash_work.bring_in_again, copy, source)
        step += depth(50, 12) if kind_of(database) == "sqlite" else depth(400, 30)
    assert step > 40
