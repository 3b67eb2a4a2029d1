"""The order in which records arrive that do not contradict one another does not matter: the settlement is the same to the bit."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import ledger_kit
from assay.ledger import batch, eligible, intake, settling
from assay.ledger.access import open_ledger, receipt_predicate
from assay.ledger.batch import Batch
from assay.ledger.store import Submission
from assay.records import record
from ledger_kit import SIGNER, VALIDATORS

Json = dict[str, Any]
EPOCHS = (3, 4)
OUTCOMES = ("pass", "fail", "error", "timeout")


def observed() -> list[Json]:
    """What three validators saw in two epochs of participants who handed in something new in the second: of all kinds."""
    draw = random.Random(7)
    return [
        record
        | {
            "submission": f"{record['submission']}-{record['epoch']}",
            "outcome": draw.choice(OUTCOMES),
            "observed_at": f"2026-11-{draw.randrange(10, 30)}T10:00:00Z",
        }
        for epoch in EPOCHS
        for record in ledger_kit.records(epoch=epoch)
    ]


def dealt(place: Path, records: Sequence[Json], draw: random.Random) -> list[Batch]:
    """The records in batches of random sizes and in random order, some of them in several batches."""
    terms = intake.intake_rules(place)
    batches = []
    for validator, signer in VALIDATORS.items():
        for epoch in EPOCHS:
            mine = [record for record in records if (record["validator"], record["epoch"]) == (validator, epoch)]
            mine += draw.sample(mine, draw.randrange(len(mine)))
            draw.shuffle(mine)
            while mine:
                size = draw.randint(1, len(mine))
                part, mine = {repr(record): record for record in mine[:size]}, mine[size:]
                batches.append(
                    batch.make(
                        map(record, part.values()),
                        origin=ledger_kit.ORIGIN,
                        competition=terms.competition,
                        task_set=terms.task_set,
                        signer=signer,
                        validator=validator,
                    )
                )
    draw.shuffle(batches)
    return batches


def settled(place: Path, database: str, batches: Sequence[Batch]) -> list[tuple[str, int]]:
    """The digests of the settlements of both epochs, and how many results they have.

    The root of the results binds the order in which the records were accepted that they rest on, as that of the evidence does.
    """
    people = "key,uid,name,submission,submitted_at,last_reset_epoch,address\nm1,1,,,,,\nm2,2,,,,,\n"
    ledger_kit.ledger_folder(place, database=database, participants_csv=people)
    digests = []
    with open_ledger(place) as ledger:
        with ledger.store.writing() as tx:
            for epoch in EPOCHS:
                for name in ("m1", "m2"):
                    tx.add_submission(Submission(name, f"s{name[1]}-{epoch}", epoch))
        for signed in batches:
            intake.accept(ledger.store, signed, intake.intake_rules(place))
        with ledger.store.reading() as view:
            assert view.count() == len(VALIDATORS) * 2 * 2 * len(EPOCHS)
            assert list(view.conflicts()) == []
        for epoch in EPOCHS:
            result = settling.settle(ledger, SIGNER, epoch)
            assert result.receipt is not None
            digests.append((result.settlement.digest, receipt_predicate(result.receipt)["results"]["count"]))
        assert [result.settlement.digest for result in settling.replay(ledger)] == [digest for digest, _ in digests]
    return digests


@pytest.mark.sampled(1)
@pytest.mark.no_cover
@pytest.mark.parametrize("seed", range(6))
def test_the_order_of_arrival_does_not_matter(seed: int, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger_kit.ledger_folder(tmp_path / "terms")
    straight = settled(tmp_path / "straight", "ledger.db", dealt(tmp_path / "terms", observed(), random.Random(-1)))
    monkeypatch.setattr(eligible, "MANY", 0 if seed % 2 else eligible.MANY)  # by way of Parquet, or one by one
    draw = random.Random(seed)
    records = observed()
    draw.shuffle(records)
    assert settled(tmp_path / "shuffled", database, dealt(tmp_path / "terms", records, draw)) == straight
    assert straight[0] != straight[1]


def test_an_epoch_may_come_before_the_one_before_it(database: str, tmp_path: Path) -> None:
    ledger_kit.ledger_folder(tmp_path / "terms")
    batches = dealt(tmp_path / "terms", observed(), random.Random(9))
    straight = settled(tmp_path / "straight", "ledger.db", sorted(batches, key=lambda signed: signed.statement.epoch))
    assert settled(tmp_path / "backwards", database, sorted(batches, key=lambda signed: -signed.statement.epoch)) == straight


@pytest.mark.full
@pytest.mark.no_cover
def test_of_records_that_contradict_one_another_the_order_is_all(tmp_path: Path) -> None:
    """So that the tests above would see a difference if there were one."""
    first, second = (ledger_kit.records(outcome=outcome) for outcome in ("pass", "fail"))
    digests = []
    for name, order in (("one", (first, second)), ("other", (second, first))):
        place = ledger_kit.ledger_folder(tmp_path / name)
        for some in order:
            ledger_kit.add(place, some)
        with ledger_kit.opened(place) as ledger:
            digests.append(settling.settle(ledger, SIGNER, 3).settlement.digest)
    assert digests[0] != digests[1]
