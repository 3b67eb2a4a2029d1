"""Two different records of one slot: the first accepted counts, the later is kept and flagged, nothing else changes. SPEC 3.0."""

import random
from pathlib import Path
from typing import Any

import pytest

import ledger_kit
import small_folder
import store_kit as kit
from assay.ledger import audit, batch, intake, store
from assay.ledger.batch import slot_of
from assay.ledger.store import Accepted, Store, slots
from assay.records import record
from ledger_kit import V1, V2


@pytest.fixture
def ledger(database: str) -> Store:
    return store.create(database, kit.META)


def add(ledger: Store, *records: dict[str, Any], task_set: str | None = None) -> Accepted:
    with ledger.writing() as tx:
        return tx.add_batch(kit.signed(*records, task_set=task_set))


def flagged(ledger: Store) -> list[tuple[int, int]]:
    """(the later, the one that counts) of each conflict."""
    with ledger.reading() as view:
        return [(conflict.record.seq, conflict.first.seq) for conflict in view.conflicts()]


def test_the_first_counts_and_a_later_different_one_is_flagged(ledger: Store) -> None:
    with ledger:
        assert add(ledger, kit.trial_record(outcome="pass")).conflicting == 0
        assert add(ledger, kit.trial_record(outcome="fail")) == Accepted(1, 0, 1, 2, 2)
        assert add(ledger, kit.trial_record(outcome="error")) == Accepted(1, 0, 1, 3, 3)
        assert flagged(ledger) == [(2, 1), (3, 1)]
        assert add(ledger, kit.trial_record(outcome="fail"), kit.trial_record(task="t2")) == Accepted(1, 1, 0, 4, 4)
        with ledger.reading() as view:
            assert view.conflicting() == {2: 1, 3: 1}
            assert [conflict.record.seq for conflict in view.conflicts(4)] == []
            assert [conflict.record.seq for conflict in view.conflicts(3, 3)] == [2, 3]
            among = {seqs: view.conflicts_among(*seqs) for seqs in ((1, 4, 9), (1, 4, 1), (3, 3, 9), (4, 4, 9))}
        assert [(count, [(conflict.record.seq, conflict.first.seq) for conflict in some]) for count, some in among.values()] == [
            (2, [(2, 1), (3, 1)]),
            (2, [(2, 1)]),
            (1, [(3, 1)]),
            (0, []),
        ]


def test_a_new_result_where_the_first_is_too_old_to_count_is_no_conflict(ledger: Store) -> None:
    """Records that are too old go before the first accepted is chosen. SPEC 8."""
    with ledger:
        for epoch, outcome, conflicting in ((1, "pass", 0), (3, "fail", 1), (4, "fail", 1), (6, "pass", 1)):
            with ledger.writing() as tx:
                batch_ = kit.signed(kit.trial_record(epoch=epoch, outcome=outcome))
                assert tx.add_batch(batch_, age=2).conflicting == conflicting, epoch
        with ledger.reading() as view:
            pairs = [(conflict.record.seq, conflict.first.seq) for conflict in view.conflicts(age=2)]
            assert pairs == [(2, 1), (3, 2), (4, 3)]
            assert view.conflicting(2) == {2: 1, 3: 1, 4: 1}
            assert view.conflicts_among(4, 4, 9, age=1) == (0, [])
        assert flagged(ledger) == [(2, 1), (3, 1), (4, 1)]


A, B = (f"sha256:{letter * 64}" for letter in "ab")


def test_a_new_result_on_a_new_task_set_is_no_conflict(ledger: Store) -> None:
    with ledger:
        assert add(ledger, kit.trial_record(outcome="pass"), task_set=A).conflicting == 0
        assert add(ledger, kit.trial_record(outcome="fail"), task_set=B) == Accepted(1, 0, 0, 2, 2)
        assert flagged(ledger) == []
        assert add(ledger, kit.trial_record(outcome="error"), task_set=B) == Accepted(1, 0, 1, 3, 3)
        assert flagged(ledger) == [(3, 2)]
        assert add(ledger, kit.trial_record(participant="m2", outcome="pass"), task_set=B).conflicting == 0  # as the first of all
        with ledger.reading() as view:
            assert view.conflicting() == {3: 1, 4: 1}
            assert [(conflict.record.seq, conflict.first.seq) for conflict in view.conflicts_among(4, 4, 9)[1]] == [(4, 2)]
            assert view.conflicts_among(2, 2, 9) == (0, [])
        audited = audit.audit(ledger)
        assert (audited.records, audited.conflicts) == (4, 2)


def test_what_is_signed_again_for_a_new_task_set_counts_on_both(ledger: Store) -> None:
    with ledger:
        add(ledger, kit.trial_record(outcome="pass"), task_set=A)
        assert add(ledger, kit.trial_record(outcome="pass"), task_set=B) == Accepted(0, 1)
        assert add(ledger, kit.trial_record(outcome="fail"), task_set=B).conflicting == 1
        assert flagged(ledger) == [(2, 1)]


def test_a_batch_whose_statement_was_changed_counts_on_all(tmp_path: Path) -> None:
    place = tmp_path / "ledger.db"
    with store.create(str(place), kit.META) as ledger:
        add(ledger, kit.trial_record(outcome="pass"), task_set=A)
        add(ledger, kit.trial_record(outcome="fail"), task_set=B)
        assert flagged(ledger) == []
        kit.sql(place, "DROP TRIGGER batches_no_update; UPDATE batches SET envelope = X'7B7D' WHERE id = 1;")
        assert flagged(ledger) == [(2, 1)]


def test_a_batch_without_a_task_set_counts_on_all(ledger: Store) -> None:
    with ledger:
        add(ledger, kit.trial_record(outcome="pass"), task_set=A)
        assert add(ledger, kit.trial_record(outcome="fail")).conflicting == 1
        assert add(ledger, kit.trial_record(outcome="error"), task_set=B).conflicting == 1
        assert flagged(ledger) == [(2, 1), (3, 2)]


@pytest.mark.parametrize(
    "other",
    [{"validator": V2}, {"submission": "s2"}, {"task": "t2"}, {"trial": 2}],
    ids=str,
)
def test_another_slot_is_no_conflict(ledger: Store, other: dict[str, Any]) -> None:
    with ledger:
        add(ledger, kit.trial_record(outcome="pass"))
        assert add(ledger, kit.trial_record(outcome="fail", **other)).conflicting == 0
        assert flagged(ledger) == []


def test_the_same_said_of_another_holder_is_no_conflict(ledger: Store) -> None:
    with ledger:
        add(ledger, kit.trial_record(participant="m1"))
        assert add(ledger, kit.trial_record(participant="m2")) == Accepted(1, 0, 0, 2, 2)
        assert add(ledger, kit.trial_record(participant="m2", outcome="fail")) == Accepted(1, 0, 1, 3, 3)


def test_without_a_submission_the_slot_is_the_participants(ledger: Store) -> None:
    with ledger:
        add(ledger, kit.trial_record(participant="m1", submission=""))
        assert add(ledger, kit.trial_record(participant="m2", submission="", outcome="fail")).conflicting == 0
        assert add(ledger, kit.trial_record(participant="m2", submission="")).conflicting == 1


def test_the_epoch_is_part_of_some_slots_only(ledger: Store) -> None:
    with ledger:
        add(ledger, kit.trial_record())
        assert add(ledger, kit.trial_record(epoch=4)).conflicting == 1
        given = small_folder.record("given", validator=V1)
        add(ledger, given)
        assert add(ledger, given | {"epoch": 4, "score": "0.7"}).conflicting == 0
        assert add(ledger, given | {"score": "0.7"}).conflicting == 1


def test_slots_that_share_their_bytes_are_told_apart(ledger: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who takes pains can make two slots with the same 16 bytes; here all have."""
    monkeypatch.setattr(batch, "_slots", lambda columns, kind: [bytes(16)] * len(columns.validators))
    with ledger:
        assert add(ledger, *kit.trials(range(3))) == Accepted(3, 0, 0, 1, 3)
        assert add(ledger, *kit.trials([1], outcome="fail"), *kit.trials([7])) == Accepted(2, 0, 1, 4, 5)
        assert add(ledger, *kit.trials([0])) == Accepted(0, 1)
        with ledger.reading() as view:
            conflicts = list(view.conflicts())
            assert len(conflicts) == 1
            assert b'"t1"' in conflicts[0].first.body
            assert b'"t1"' in conflicts[0].record.body


def test_many_slots_are_looked_up(ledger: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "AT_ONCE", 4)
    with ledger:
        add(ledger, *kit.trials(range(30)))
        assert add(ledger, *kit.trials(range(10, 50), outcome="fail")) == Accepted(40, 0, 20, 31, 70)
        assert len(flagged(ledger)) == 20


def test_a_run_that_has_no_record_is_not_looked_up_slot_by_slot(ledger: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "FEW", 2)
    with ledger:
        first, other = kit.trials(range(8)), kit.trials(range(8), submission="s2", outcome="fail")
        for trials in (first, other, [*first, *other[:4]]):
            there = [slot_of(record(row)) for row in trials]
            with ledger.reading() as view:
                known = slots.candidates(view._connection, there)
            monkeypatch.setattr(slots, "FEW", 10**6)
            with ledger.reading() as view:
                assert slots.candidates(view._connection, there) == known
            monkeypatch.setattr(slots, "FEW", 2)
            add(ledger, *trials)
        assert len(known) == 12


def test_the_records_of_a_run_stand_together() -> None:
    run = {slot_of(record(kit.trial_record(task=f"t{task}")))[:8] for task in range(20)}
    other = {slot_of(record(kit.trial_record(submission="s2", task=f"t{task}")))[:8] for task in range(20)}
    assert (len(run), len(other), len(run | other)) == (1, 1, 2)
    assert len({slot_of(record(kit.trial_record(task=f"t{task}"))) for task in range(20)}) == 20


@pytest.mark.no_cover
def test_a_conflict_changes_nothing_of_the_settlement(tmp_path: Path) -> None:
    digests = []
    for name, more in (("plain", []), ("contested", ledger_kit.records(outcome="fail"))):
        place = ledger_kit.ledger_folder(tmp_path / name)
        ledger_kit.add(place, ledger_kit.records())
        with ledger_kit.opened(place) as ledger:
            for batch in ledger_kit.batches(place, more):
                assert intake.accept(ledger.store, batch, intake.intake_rules(place)).conflicting == batch.statement.count
            digests.append(_settled(ledger))
    assert digests[0] == digests[1]


@pytest.mark.sampled(1)
@pytest.mark.no_cover
@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_arrival_is_irrelevant_where_nothing_conflicts(tmp_path: Path, seed: int) -> None:
    records = [record for epoch in (1, 2, 3) for record in ledger_kit.records(epoch=epoch, trial=epoch)]
    shuffled = random.Random(seed).sample(records, len(records))
    digests = []
    for name, some in (("in order", [records]), ("shuffled", [shuffled[:11], shuffled[11:12], shuffled[12:]])):
        place = ledger_kit.ledger_folder(tmp_path / name, scheme_toml=small_folder.SCHEME + "trials = 3\n")
        for part in some:
            ledger_kit.add(place, part)
        with ledger_kit.opened(place) as ledger:
            digests.append(_settled(ledger))
    assert digests[0] == digests[1]


def _settled(ledger: Any) -> str:
    from assay.ledger.settling import settle

    return settle(ledger, ledger_kit.SIGNER, 3, skip=True).settlement.digest
