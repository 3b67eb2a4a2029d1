"""Intake on both databases: what is refused and why, what is known already, and that a batch is kept whole or not at all."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import small_folder
import store_kit as kit
from assay.errors import BadInput
from assay.ledger import batch, intake, keys, store
from assay.ledger.batch import Batch
from assay.ledger.store import Accepted, Forbidden, Full, Store, Writer
from assay.records import record
from ledger_kit import NAMES, V1, V2, VALIDATORS

STRANGER = keys.read(b"ab" * 32)


@pytest.fixture
def ledger(database: str) -> Store:
    return store.create(database, kit.META)


def count(ledger: Store) -> int:
    with ledger.reading() as view:
        return len(list(view.records()))


def test_a_batch_is_taken_from_a_file_from_bytes_or_as_it_is(ledger: Store, tmp_path: Path) -> None:
    with ledger:
        file = tmp_path / "a.batch"
        file.write_bytes(kit.signed(kit.trial_record(task="t1")).data)
        assert intake.accept(ledger, file, kit.TERMS) == Accepted(1, 0, 0, 1, 1)
        assert intake.accept(ledger, kit.signed(kit.trial_record(task="t2")).data, kit.TERMS) == Accepted(1, 0, 0, 2, 2)
        assert intake.accept(ledger, kit.signed(kit.trial_record(task="t3")), kit.TERMS) == Accepted(1, 0, 0, 3, 3)
        assert count(ledger) == 3


def test_the_same_once_more_is_known(ledger: Store) -> None:
    with ledger:
        signed = kit.signed(*kit.trials(range(4)))
        intake.accept(ledger, signed, kit.TERMS)
        assert intake.accept(ledger, signed, kit.TERMS) == Accepted(new=0, known=4)
        with ledger.reading() as view:
            assert len(list(view.batches())) == 1


def test_a_record_of_two_batches_is_one(ledger: Store) -> None:
    with ledger:
        first, second = kit.signed(*kit.trials(range(4))), kit.signed(*kit.trials(range(2, 6)))
        intake.accept(ledger, first, kit.TERMS)
        assert intake.accept(ledger, second, kit.TERMS) == Accepted(new=2, known=2, first_seq=5, last_seq=6)
        third = kit.signed(*kit.trials(range(1, 3)))
        assert intake.accept(ledger, third, kit.TERMS) == Accepted(new=0, known=2)
        with ledger.reading() as view:
            rows = {record.seq: record.digest for record in view.records()}
            for kept, given in zip(view.batches(), (first, second, third), strict=True):
                seqs = [seq for begin, end in kept.members for seq in range(begin, end + 1)]
                assert sorted(rows[seq] for seq in seqs) == sorted(given.digests)
            assert [record.seq for record in view.records()] == [1, 2, 3, 4, 5, 6]


@pytest.mark.no_cover
@pytest.mark.parametrize("kind", list(small_folder.FIELDS))
def test_every_kind_is_taken(ledger: Store, kind: str) -> None:
    terms = replace(kit.TERMS, kind=kind)
    records = [small_folder.record(kind, validator=V1, participant=name, submission=f"s-{name}") for name in ("m1", "m2")]
    with ledger:
        assert intake.accept(ledger, kit.signed(*records), terms).new == 2
        assert intake.accept(ledger, kit.signed(records[0]), terms) == Accepted(new=0, known=1)
        assert intake.accept(ledger, kit.signed(records[0] | {"observed_at": "2026-11-02T11:00:00Z"}), terms).conflicting == 1


def _under_signature_of(own: Batch, other: Batch) -> bytes:
    """A batch with the signature of another one."""
    begin, end = (signed.envelope.split(b'"signatures"') for signed in (own, other))
    return begin[0] + b'"signatures"' + end[1] + b"\n" + b"\n".join(own.bodies) + b"\n"


def _stranger() -> Batch:
    name = STRANGER.public.raw.hex()
    evidence = record(kit.trial_record(validator=name))
    return batch.make([evidence], origin=kit.META.origin, competition="small", task_set=None, signer=STRANGER, validator=name)


REFUSED: dict[str, tuple[Callable[[], Batch | bytes], str, str]] = {
    "unknown key": (_stranger, "validator", "there is no validator '"),
    "bad signature": (
        lambda: _under_signature_of(kit.signed(kit.trial_record()), kit.signed(kit.trial_record(task="t2"))),
        V1,
        "it is not signed by the key",
    ),
    "another's signature": (
        lambda: _under_signature_of(kit.signed(kit.trial_record()), kit.signed(kit.trial_record(validator=V2))),
        V1,
        "it is not signed by the key",
    ),
    "competition": (
        lambda: kit.signed(kit.trial_record(), competition="large"),
        "competition",
        "is 'large', but the ledger's is 'small'",
    ),
    "kind": (lambda: kit.signed(small_folder.record("given", validator=V1)), "kind", "is 'given', but the ledger's is 'tests'"),
    "task set": (
        lambda: kit.signed(kit.trial_record(), task_set=f"sha256:{1:064x}"),
        "task_set",
        "the task set sha256:0+1, but the comp",
    ),
    "participant": (
        lambda: kit.signed(kit.trial_record(), kit.trial_record(participant="m9", task="t2")),
        "participant",
        "no participant 'm9'",
    ),
    "schema": (lambda: kit.signed(kit.trial_record()).data.replace(b'"pass"', b'"maybe"'), "outcome", "is 'maybe'; use one of"),
    "root": (lambda: kit.signed(kit.trial_record()).data.replace(b'"t1"', b'"t2"'), "", "not those that were signed"),
    "no batch": (lambda: b"{}", "", "is not a batch"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_leaves_nothing(ledger: Store, tmp_path: Path, case: str) -> None:
    make, field, match = REFUSED[case]
    terms = replace(kit.TERMS, task_set=f"sha256:{2:064x}")
    given = make()
    file = tmp_path / "x.batch"
    file.write_bytes(given if isinstance(given, bytes) else given.data)
    with ledger:
        with pytest.raises(BadInput, match=match) as refusal:
            intake.accept(ledger, file, terms)
        assert refusal.value.file == file
        assert refusal.value.field == field
        assert refusal.value.hint
        assert count(ledger) == 0
        with ledger.reading() as view:
            assert list(view.batches()) == []


def test_too_large_is_refused(ledger: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    data = kit.signed(*kit.trials(range(3))).data
    with ledger:
        with monkeypatch.context() as less:
            less.setattr(batch, "RECORDS", 2)
            with pytest.raises(BadInput, match=r"has 3 records, .* the most is 2"):
                intake.accept(ledger, data, kit.TERMS)
        monkeypatch.setattr(batch, "BATCH_BYTES", 100)
        with pytest.raises(BadInput):
            intake.accept(ledger, data, kit.TERMS)
        assert count(ledger) == 0


def test_nothing_new_is_taken_of_a_settled_epoch(ledger: Store) -> None:
    kept = kit.signed(kit.trial_record(task="t1"))
    with ledger:
        intake.accept(ledger, kept, kit.TERMS)
        with ledger.writing() as tx:
            tx.add_settled(*kit.settled(3))
        for epoch in (2, 3):
            with pytest.raises(BadInput, match=f"epoch {epoch} is settled, the last is 3") as refusal:
                intake.accept(ledger, kit.signed(kit.trial_record(task="t2", epoch=epoch)), kit.TERMS)
            assert refusal.value.field == "epoch"
        assert intake.accept(ledger, kept, kit.TERMS) == Accepted(new=0, known=1)  # whoever did not hear the answer asks again
        assert intake.accept(ledger, kit.signed(kit.trial_record(task="t2", epoch=4)), kit.TERMS).new == 1
        assert count(ledger) == 2


def test_a_ledger_keeps_to_one_competition(ledger: Store) -> None:
    with ledger, pytest.raises(BadInput, match="the ledger is of 'small', but the scheme is called 'other'"):
        intake.accept(ledger, kit.signed(kit.trial_record(), competition="other"), replace(kit.TERMS, competition="other"))


def test_evidence_on_an_unsaid_task_set_is_taken(ledger: Store) -> None:
    with ledger:
        terms = replace(kit.TERMS, task_set=f"sha256:{2:064x}")
        assert intake.accept(ledger, kit.signed(kit.trial_record()), terms).new == 1
        assert intake.accept(ledger, kit.signed(kit.trial_record(task="t2"), task_set=terms.task_set), terms).new == 1


def _terms(place: Path, kind: str = "tests", /, **changes: Any) -> intake.IntakeRules:
    return intake.intake_rules(small_folder.make(place, kind, **{"validators_csv": NAMES} | changes))


def test_the_terms_are_those_of_the_folder(tmp_path: Path) -> None:
    terms = _terms(tmp_path / "tests")
    assert (terms.competition, terms.kind, terms.participants) == ("small", "tests", {"m1", "m2"})
    assert terms.validators == {name: key.public for name, key in VALIDATORS.items()}
    assert terms.task_set is not None
    assert _terms(tmp_path / "given", "given").task_set is None


def test_two_spellings_of_one_key_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=rf"validators.csv:3: key: is the same key as '{V1}'"):
        _terms(tmp_path, validators_csv=f"key,stake\n{V1},1\n0x{V1.upper()},1\n")


def test_a_validator_whose_name_is_no_key_cannot_sign(tmp_path: Path, ledger: Store) -> None:
    terms = _terms(tmp_path, validators_csv=f"key,stake\n{V1},1\nelm,1\n")
    assert isinstance(terms.validators["elm"], BadInput)
    with ledger:
        intake.accept(ledger, kit.signed(kit.trial_record(), task_set=terms.task_set), terms)
        unknown = replace(terms, validators={V1: terms.validators["elm"]})
        with pytest.raises(BadInput, match="'elm' is not a public key") as refusal:
            intake.accept(ledger, kit.signed(kit.trial_record(task="t2"), task_set=terms.task_set), unknown)
        assert refusal.value.field == "validator"


def test_batches_that_come_together_have_each_its_own_verdict(ledger: Store, tmp_path: Path) -> None:
    """One transaction and one flush for all; a refused one stops no other, and what repeats within the group is known."""
    with ledger:
        other = tmp_path / "other.batch"
        other.write_bytes(kit.signed(kit.trial_record(), competition="another").data)
        elsewhere = kit.signed(kit.trial_record(task="t9"), origin="example.org/other")
        first, again = kit.signed(*kit.trials(range(3))), kit.signed(*kit.trials([2], outcome="fail"), *kit.trials([3]))
        came: list[intake.Source] = [
            b"no batch",
            first,
            other,
            again.data,
            elsewhere,
            first,
            kit.signed(kit.trial_record(task="t5")),
        ]
        before = ledger.commits()
        verdicts = list(intake.accept_all(ledger, came, kit.TERMS))
        taken = [Accepted(3, 0, 0, 1, 3), Accepted(2, 0, 1, 4, 5), Accepted(0, 3), Accepted(1, 0, 0, 6, 6)]
        assert [verdict for verdict in verdicts if isinstance(verdict, Accepted)] == taken
        refused = [verdict for verdict in verdicts if isinstance(verdict, BadInput)]
        assert [verdicts.index(verdict) for verdict in refused] == [0, 2, 4]
        assert refused[1].file == other
        assert "the batch is for the log 'example.org/other'" in refused[2].what
        assert before is None or ledger.commits() == before + 1
        assert list(intake.accept_all(ledger, [], kit.TERMS)) == []


def test_more_batches_than_a_group_has_are_all_taken(ledger: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "GROUP", 2)
    with ledger:
        batches = [kit.signed(kit.trial_record(task=f"t{task}")) for task in range(5)]
        monkeypatch.setattr(intake, "GROUP_BYTES", len(batches[0].bodies[0]) + 1)
        assert [
            verdict.first_seq for verdict in intake.accept_all(ledger, batches, kit.TERMS) if isinstance(verdict, Accepted)
        ] == [
            1,
            2,
            3,
            4,
            5,
        ]


def test_a_group_that_the_database_refuses_is_stored_batch_by_batch(
    ledger: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that the database does not take takes no other with it; what cannot be acknowledged says so itself."""
    batches = [kit.signed(kit.trial_record(task=f"t{task}")) for task in range(3)]
    add_batch = Writer.add_batch

    def refusing(self: Writer, given: Batch, *rest: Any, **options: Any) -> Accepted:
        if given.digest == batches[1].digest:
            raise Forbidden("is another's")
        return add_batch(self, given, *rest, **options)

    monkeypatch.setattr(Writer, "add_batch", refusing)
    terms = replace(kit.TERMS, answers=tmp_path / "acknowledged.jsonl")
    with ledger:
        first, second, third = intake.accept_all(ledger, batches, terms)
        assert (first, third) == (Accepted(1, 0, 0, 1, 1), Accepted(1, 0, 0, 2, 2))
        assert isinstance(second, Forbidden)
        assert len((tmp_path / "acknowledged.jsonl").read_text().splitlines()) == 2
        lost = replace(kit.TERMS, answers=tmp_path / "gone" / "acknowledged.jsonl")
        whats = [
            verdict.what for verdict in intake.accept_all(ledger, [batches[0], batches[2]], lost) if isinstance(verdict, BadInput)
        ]
        ends = [f"the batch {batches[at].digest} is stored, but not acknowledged" for at in (0, 2)]
        assert [what.partition(": ")[2] for what in whats] == ends


def test_a_database_that_fails_stops_all_that_come(ledger: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> Accepted:
        raise Full("the disk is full")

    monkeypatch.setattr(Writer, "add_batch", full)
    with ledger, pytest.raises(Full):
        list(intake.accept_all(ledger, [kit.signed(kit.trial_record(task=f"t{task}")) for task in range(2)], kit.TERMS))
    with ledger:
        assert count(ledger) == 0


@pytest.mark.parametrize("kind", ["tests", "workflow", "rubric", "points", "given"])
def test_slots_of_many_records_are_those_of_each(kind: str) -> None:
    changed: list[dict[str, Any]] = [
        {},
        {"submission": ""},
        {"submission": "", "participant": "m2"},
        {"validator": V2},
        {"epoch": 4},
    ]
    records = [record(small_folder.record(kind, **changes)) for changes in changed]
    assert batch.slots_of(records) == [batch.slot_of(item) for item in records]
    assert batch.slots_of([]) == []
