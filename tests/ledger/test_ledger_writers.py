"""Processes and threads that write to one ledger at once: every record is there once, in one order without a gap."""

from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from time import sleep

import pytest

import store_kit as kit
from assay.ledger import intake, store
from assay.ledger.audit import audit
from assay.ledger.store import Accepted
from depth import depth
from ledger_kit import VALIDATORS, processes

WRITERS = 8
SIZE = depth(20, 100)
"""Records of a batch."""


def write(database: str, writer: int, runs: int) -> list[Accepted]:
    """One process: its own batches, and after each the one that all writers have."""
    validator = list(VALIDATORS)[writer % len(VALIDATORS)]
    common = kit.signed(*kit.trials(range(SIZE), submission="common"))
    accepted = []
    with store.open(database) as ledger:
        for run in range(runs):
            tasks = range(SIZE)
            mine = kit.signed(*kit.trials(tasks, validator=validator, submission=f"s-{writer}-{run}"))
            accepted.append(intake.accept(ledger, mine, kit.TERMS))
            accepted.append(intake.accept(ledger, common, kit.TERMS))
    return accepted


def check(database: str, runs: int) -> None:
    store.create(database, kit.META).close()
    with ProcessPoolExecutor(WRITERS, mp_context=processes()) as pool:
        answers = list(pool.map(write, [database] * WRITERS, range(WRITERS), [runs] * WRITERS))
    accepted = [answer for some in answers for answer in some]
    records = WRITERS * runs * SIZE + SIZE
    assert Counter(answer.new for answer in accepted) == {SIZE: WRITERS * runs + 1, 0: WRITERS * runs - 1}
    ranges = sorted((answer.first_seq, answer.last_seq) for answer in accepted if answer.first_seq and answer.last_seq)
    assert ranges == [(first, first + SIZE - 1) for first in range(1, records, SIZE)]
    with store.open(database) as ledger:
        with ledger.reading() as view:
            rows = list(view.records())
            assert [row.seq for row in rows] == list(range(1, records + 1))
            assert len({row.digest for row in rows}) == records
            for batch in view.batches():
                assert batch.members == ((batch.first_seq, batch.last_seq),)
        assert audit(ledger).records == records


@pytest.mark.no_cover  # the other tests reach every branch, and to trace this takes long
def test_eight_writers(database: str) -> None:
    check(database, depth(2, 3))


@pytest.mark.full
@pytest.mark.no_cover
def test_eight_writers_of_100_000_records(database: str) -> None:
    check(database, 125)


def test_two_threads_write_to_one_file_in_turn(tmp_path: Path) -> None:
    """The second has a connection of its own while it waits; afterwards one of the two is kept for the next writer."""
    with store.create(tmp_path / "ledger.db", kit.META) as ledger, ThreadPoolExecutor(1) as pool:
        with ledger.writing() as tx:
            later = pool.submit(intake.accept, ledger, kit.signed(kit.trial_record(task="t2")), kit.TERMS)
            while ledger._engine.pool.checkedout() < 2:  # type: ignore[attr-defined]
                assert not later.done()
                sleep(0.001)
            tx.add_batch(kit.signed(*kit.trials(range(120), submission="s2")))  # more than one statement inserts
        assert later.result().first_seq == 121
        assert ledger._engine.pool.checkedout() == 1  # type: ignore[attr-defined]
        with pytest.raises(ZeroDivisionError), ledger.writing() as tx:
            assert tx.add_batch(kit.signed(kit.trial_record(task="t3"))).first_seq == 1 // 0
        with ledger.reading() as view:
            assert view.last_seq() == 121
        assert intake.accept(ledger, kit.signed(kit.trial_record(task="t3")), kit.TERMS).first_seq == 122
    assert not list(tmp_path.glob("ledger.db-*"))  # every connection was closed
