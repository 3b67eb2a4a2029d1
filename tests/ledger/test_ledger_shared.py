"""Two operators on one PostgreSQL: one may be killed or hang in its turn, the database may crash; an epoch gets one receipt."""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event, Semaphore
from pathlib import Path

import pytest

import ledger_kit
import postgres
import store_kit as kit
from assay.ledger import check, config, intake, settling, store
from assay.ledger.audit import audit, audit_receipts
from assay.ledger.store import StoreError, Writer
from ledger_kit import SIGNER, VALIDATORS, processes

pytestmark = pytest.mark.no_cover  # the other tests reach every branch

WAIT = 120
"""Seconds, on a slow and busy machine."""
EPOCHS = (3, 4, 5, 6)
LATER = 1000
"""The epoch of what services take in: it stays open."""


@pytest.fixture
def server() -> Iterator[postgres.Cluster]:
    """A server for one test alone, which may stop it."""
    with postgres.cluster() as cluster:
        yield cluster


def two_operators(tmp_path: Path, url: str) -> tuple[Path, Path]:
    """Two folders of one ledger, each with a log of its own, as two machines have them."""
    first, second = tmp_path / "first", tmp_path / "second"
    ledger_kit.ledger_folder(first, database=url)
    shutil.copytree(first, second)
    return first, second


def is_settled_once(first: Path, second: Path, *epochs: int) -> None:
    """There is one receipt of each epoch, and both logs have it."""
    roots = set[bytes]()
    for place in (first, second):
        with ledger_kit.opened(place) as ledger:
            assert audit_receipts(ledger) == len(epochs)
            with ledger.store.reading() as view:
                assert [receipt.epoch for receipt in view.receipts()] == list(epochs)
            roots.add(ledger.log.root(len(epochs)))
    assert len(roots) == 1
    assert roots != {check.EMPTY_ROOT}


def settle_and_stop_before_the_end(place: Path, idle: str, holds: Event) -> None:
    """Hold the turn with a receipt that is not committed, and say so; then hang. If the session was ended, settle again."""
    from assay.ledger.store import engine

    engine.TURN_IDLE = idle
    add_checked = Writer.add_checked

    def add_and_hang(tx: Writer, count: int, envelope: bytes) -> None:
        add_checked(tx, count, envelope)
        holds.set()
        os.kill(os.getpid(), signal.SIGSTOP)

    Writer.add_checked = add_and_hang  # type: ignore[method-assign, assignment]
    with ledger_kit.opened(place) as ledger:
        try:
            settling.settle(ledger, SIGNER, 3)
        except StoreError as error:
            assert "nothing of this was stored" in str(error) or "ended the connection" in str(error)  # noqa: PT017
            assert not settling.settle(ledger, SIGNER, 3).new
            return
    raise AssertionError("the turn was taken away, and the receipt was stored")


@pytest.mark.parametrize("dies", [True, False], ids=["killed", "hangs"])
def test_another_operator_goes_on_if_the_one_with_the_turn(dies: bool, postgresql: postgres.Cluster, tmp_path: Path) -> None:
    first, second = two_operators(tmp_path, postgresql.database())
    ledger_kit.add(first, ledger_kit.records())
    holds = processes().Event()
    holder = processes().Process(target=settle_and_stop_before_the_end, args=(first, "10min" if dies else "500ms", holds))
    holder.start()
    try:
        assert holds.wait(WAIT)
        if dies:
            _end(holder)
        with ledger_kit.opened(second) as ledger:
            assert settling.settle(ledger, SIGNER, 3).new
        if not dies:
            assert holder.pid is not None
            os.kill(holder.pid, signal.SIGCONT)
            holder.join(WAIT)
            assert holder.exitcode == 0
    finally:
        _end(holder)
    is_settled_once(first, second, 3)


def _end(process: BaseProcess) -> None:
    process.kill()
    process.join(WAIT)


def serve_and_settle(place: Path, number: int, may: Semaphore, taken: Semaphore, done: Event) -> None:
    """Take in batches, and settle an epoch whenever it may; whatever the database does, try again. Says what was acknowledged."""
    validator, rules = list(VALIDATORS)[number], intake.intake_rules(place)
    acknowledged, new, epoch, owed = list[str](), list[int](), 3, False
    while epoch <= EPOCHS[-1] or not done.is_set():
        submission = f"s-{number}-{len(acknowledged)}"
        (batch,) = ledger_kit.batches(place, kit.trials([1], validator=validator, epoch=LATER, submission=submission))
        owed = owed or may.acquire(block=False)
        try:
            with ledger_kit.opened(place) as ledger:
                intake.accept(ledger.store, batch, rules)
                acknowledged.append(batch.digest)
                taken.release()
                if owed:
                    new += [epoch] * settling.settle(ledger, SIGNER, epoch).new
                    epoch, owed = epoch + 1, False
        except StoreError:
            time.sleep(0.02)
    (place / "said").write_text("\n".join([" ".join(map(str, new)), *acknowledged]))


@pytest.mark.full
def test_services_and_operators_go_on_when_the_database_crashes_and_restarts(server: postgres.Cluster, tmp_path: Path) -> None:
    places = two_operators(tmp_path, server.database())
    for epoch in EPOCHS:
        ledger_kit.add(places[0], ledger_kit.records(epoch=epoch))
    context = processes()
    taken, done, may = context.Semaphore(0), context.Event(), [context.Semaphore(0) for _ in places]
    workers = [
        context.Process(target=serve_and_settle, args=(place, number, may[number], taken, done))
        for number, place in enumerate(places)
    ]
    for worker in workers:
        worker.start()
    try:
        for ends in (signal.SIGQUIT, signal.SIGINT, signal.SIGQUIT, None):
            for _ in range(4):
                assert taken.acquire(timeout=WAIT / 4)
            for permit in may:
                permit.release()
            if ends is not None:
                server.restart(ends)
        done.set()
        for worker in workers:
            worker.join(WAIT)
        assert [worker.exitcode for worker in workers] == [0, 0]
    finally:
        for worker in workers:
            _end(worker)
    settled, acknowledged = list[int](), list[str]()
    for place in places:
        new, *digests = (place / "said").read_text().splitlines()
        settled += map(int, new.split())
        acknowledged += digests
    is_settled_once(*places, *EPOCHS)
    assert len(settled) == len(set(settled))  # a commit whose answer was lost is nobody's
    with store.open(config.read(places[0]).place) as ledger:
        audit(ledger)
        with ledger.reading() as view:
            digests = [batch.digest for batch in view.batches(LATER, LATER)]
    assert len(digests) == len(set(digests))
    assert set(acknowledged) <= set(digests)
