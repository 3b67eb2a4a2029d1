"""Nothing is signed over a batch that its validator did not sign: it is set aside and named, and the season goes on."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import ledger_kit
from assay.exact import canonical
from assay.ledger import batch, bundle, check, counting, intake, keys, settling
from assay.ledger.access import open_ledger
from assay.ledger.batch import Batch, BatchStatement
from assay.ledger.keys import sign_envelope
from assay.ledger.keys.hotkey import NotInstalled
from assay.ledger.record_lines import columns_of
from assay.ledger.store import Damaged, View
from assay.ledger.verify import verify
from assay.records import record
from cli_kit import run
from ledger_kit import KEY, ORIGIN, SIGNER, V1, V2, VALIDATORS
from test_ledger_origin import first_version

MALLORY = keys.read(b"99" * 32)


def planted(place: Path, signed: Batch) -> None:
    """What somebody does who may insert into the database: the tables' rows, past the intake."""
    with open_ledger(place) as ledger, ledger.store.writing() as tx:
        tx.add_batch(signed)


def resigned(original: Batch, signer: keys.PrivateKey) -> Batch:
    """The same statement under somebody's signature."""
    return batch.read(original.data.replace(original.envelope, canonical(sign_envelope(original.payload, signer))))


def saying(signer: keys.PrivateKey = VALIDATORS[V1], origin: str = ORIGIN, **changes: Any) -> Batch:
    """What the first validator is said to have seen, signed by whoever."""
    records = [record(row) for row in ledger_kit.records(validators=[V1], **changes)]
    named: dict[str, Any] = {"competition": "small", "task_set": None, "signer": VALIDATORS[V1], "validator": V1}
    return resigned(batch.make(records, origin=origin, **named), signer)


def of_no_key() -> Batch:
    """In the name of somebody whose name is no key."""
    records = tuple(record(row | {"validator": "elm"}) for row in ledger_kit.records(validators=[V1]))
    rows = sorted((bytes.fromhex(record.digest[7:]), canonical(record.document())) for record in records)
    digests, bodies = tuple(digest for digest, _ in rows), tuple(body for _, body in rows)
    by_digest = {record.digest: record for record in records}
    ordered = tuple(by_digest[f"sha256:{digest.hex()}"] for digest in digests)
    statement = BatchStatement(ORIGIN, "small", 3, "tests", "elm", None, len(rows), batch.root_of(digests), ("s1", "s2"))
    payload = canonical(statement.document())
    envelope = canonical(sign_envelope(payload, MALLORY))
    return Batch(envelope, batch.parsed(envelope), statement, bodies, digests, columns_of(ordered))


FORGED: dict[str, tuple[Callable[[], Batch], str]] = {
    "another key": (lambda: saying(MALLORY), "it is not signed by the key"),
    "another validator's key": (lambda: saying(VALIDATORS[V2]), "it is not signed by the key"),
    "another log": (lambda: saying(origin="example.org/x"), "it is for the log 'example.org/x'"),
    "version 1": (lambda: first_version(saying()), "it is of version 1, which names no log"),
    "no key": (of_no_key, "'elm' is not a public key"),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", FORGED)
def test_what_its_validator_did_not_sign_is_set_aside_and_the_season_goes_on(case: str, database: str, tmp_path: Path) -> None:
    """Put into the database before the validator hands in its own."""
    make, why = FORGED[case]
    place, clean = ledger_kit.ledger_folder(tmp_path / "small", database=database), ledger_kit.ledger_folder(tmp_path / "clean")
    forged = make()
    planted(place, forged)
    for folder in (place, clean):
        ledger_kit.add(folder, ledger_kit.records(outcome="fail"))
    checked = run("ledger", "check", place, columns=10_000, code=1)
    named = f"warning: batch {forged.digest}, attributed to {forged.statement.validator}, epoch 3, is set aside: {why}"
    assert named in checked.stderr
    assert "1 batch does not count; everything else is intact." in checked.stdout
    with ledger_kit.opened(place) as ledger, ledger_kit.opened(clean) as other:
        settled = settling.settle(ledger, SIGNER)
        assert settled.settlement.digest == settling.settle(other, SIGNER).settlement.digest
        assert [(aside.batch.digest, aside.new) for aside in settled.aside] == [(forged.digest, True)]
        bundle.export(ledger, 3, tmp_path / "bundle")
        assert [result.new for result in settling.replay(ledger)] == [False]
    assert verify(tmp_path / "bundle", key=str(KEY)).recomputed
    assert named in run("ledger", "check", place, columns=10_000).stderr  # a receipt was signed beside it: it is known
    for folder in (place, clean):
        ledger_kit.add(folder, ledger_kit.records(epoch=4))
    with ledger_kit.opened(place) as ledger, ledger_kit.opened(clean) as other:
        settled = settling.settle(ledger, SIGNER)
        assert settled.settlement.digest == settling.settle(other, SIGNER).settlement.digest
        assert [aside.new for aside in settled.aside] == [False]
        bundle.export(ledger, 4, tmp_path / "later")
    assert verify(tmp_path / "later", key=str(KEY)).recomputed


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = ledger_kit.ledger_folder(tmp_path / "small")
    ledger_kit.add(folder, ledger_kit.records())
    return folder


def test_the_command_names_it(place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    keys.save("log", SIGNER)
    for trial in (2, 3):
        planted(place, saying(MALLORY, trial=trial))
    for words in (["--dry-run"], ["--key", "log"]):
        assert "is set aside: it is not signed by the key" in run("settle", place, *words, columns=10_000).stderr
    assert run("settle", place, "--key", "log", columns=10_000).stderr == ""
    assert "2 batches do not count; everything else is intact." in run("ledger", "check", place, columns=10_000).stdout


def test_an_epoch_that_only_a_forged_batch_names_is_not_the_highest(place: Path) -> None:
    planted(place, saying(MALLORY, epoch=9_000))
    with ledger_kit.opened(place) as ledger:
        assert settling.settle(ledger, SIGNER).settlement.epoch == 3


def test_a_batch_that_came_after_its_epoch_was_settled(place: Path, tmp_path: Path) -> None:
    """By a validator that signed it itself."""
    with ledger_kit.opened(place) as ledger:
        settling.settle(ledger, SIGNER)
    planted(place, saying(trial=2))
    ledger_kit.add(place, ledger_kit.records(epoch=4))
    with ledger_kit.opened(place) as ledger:
        settled = settling.settle(ledger, SIGNER)
        assert [aside.why for aside in settled.aside] == ["it came after its epoch was settled"]
        bundle.export(ledger, 4, tmp_path / "bundle")
    assert verify(tmp_path / "bundle", key=str(KEY)).recomputed


@pytest.mark.no_cover
def test_a_signature_is_checked_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, seen = batch.check_envelope, list[check.Envelope]()

    def counting(envelope: check.Envelope, key: Any) -> None:
        seen.append(envelope)
        whole(envelope, key)

    monkeypatch.setattr(batch, "check_envelope", counting)
    with ledger_kit.opened(place) as ledger:
        settling.settle(ledger, SIGNER)
    assert len(seen) == 3
    ledger_kit.add(place, ledger_kit.records(epoch=4, validators=[V1]))
    seen.clear()
    with ledger_kit.opened(place) as ledger:
        settling.settle(ledger, SIGNER)
        assert len(list(settling.replay(ledger))) == 2
    assert len(seen) == 1


def test_the_word_of_somebody_else_that_it_was_checked_is_passed_over(place: Path) -> None:
    forged = saying(MALLORY, trial=2)
    planted(place, forged)
    with ledger_kit.opened(place) as ledger:
        with ledger.counted() as view:
            view.aside = ()
            words = [view.signed(3, MALLORY), b"[]", canonical(sign_envelope(b"[]", SIGNER))]
        with ledger.store.writing() as tx:
            for number, word in enumerate(words, start=10):
                tx.add_checked(number, word)
        with ledger.counted() as view:
            assert [aside.batch.digest for aside in view.aside] == [forged.digest]


def inserted(place: Path, statement: str, *values: object) -> None:
    """Past everything of ours, as somebody who may insert, and no more."""
    with closing(sqlite3.connect(place / "ledger.db", isolation_level=None)) as database:
        database.execute(statement, values)


def test_a_batch_that_somebody_put_there_first_does_not_stand_in_the_way(place: Path) -> None:
    """The same statement under another signature: the validator's own is kept beside it."""
    own = saying(trial=2)
    planted(place, resigned(own, MALLORY))
    with ledger_kit.opened(place) as ledger:
        assert [intake.accept(ledger.store, own, intake.intake_rules(place)).new for _ in range(2)] == [4, 0]
        assert (place / intake.ACKNOWLEDGED).read_text().count(own.digest) == 1
        with ledger.counted() as view:
            assert [(aside.batch.id, aside.batch.digest) for aside in view.aside] == [(4, own.digest)]
            assert [batch.id for batch in view.batches() if batch.digest == own.digest] == [5]


def test_nobody_is_told_to_contradict_what_another_signed(place: Path) -> None:
    planted(place, saying(MALLORY, outcome="fail"))
    shown = run("evidence", "list", place, "--conflicts", columns=10_000)
    assert "No record contradicts an earlier one." in shown.stdout
    assert "is set aside: it is not signed by the key" in shown.stderr
    assert '"fail"' not in run("evidence", "list", place, "--json").stdout


def test_who_may_insert_cannot_let_batches_that_name_no_log_in(place: Path) -> None:
    """They count where they were before version 2: how far, is written down when a ledger is made or brought forward."""
    with pytest.raises(sqlite3.DatabaseError, match="UNIQUE"):
        inserted(place, "INSERT INTO meta VALUES ('unnamed_batches', '1000')")
    with ledger_kit.opened(place) as ledger:
        settling.settle(ledger, SIGNER)
    inserted(place, "DELETE FROM meta WHERE key = 'unnamed_batches'")  # a ledger in which nothing was written of it
    inserted(place, "INSERT INTO meta VALUES ('unnamed_batches', '1000')")
    planted(place, first_version(saying(epoch=4)))
    with ledger_kit.opened(place) as ledger, ledger.counted() as view:
        assert [aside.why for aside in view.aside] == ["it is of version 1, which names no log"]


def test_an_old_word_does_not_stand_for_the_last(place: Path) -> None:
    """What the log's key said after epoch 3, put there again as if it were of more batches."""
    with ledger_kit.opened(place) as ledger:
        settling.settle(ledger, SIGNER)
    ledger_kit.add(place, ledger_kit.records(epoch=4))
    with ledger_kit.opened(place) as ledger:
        settling.settle(ledger, SIGNER)
    planted(place, saying(trial=2, epoch=4))
    inserted(place, "INSERT INTO checked SELECT 'x', 1000, envelope FROM checked ORDER BY batches LIMIT 1")
    with ledger_kit.opened(place) as ledger:
        assert [aside.why for aside in settling.draft(ledger, 5).counted.aside] == ["it came after its epoch was settled"]  # type: ignore[union-attr]


def test_a_batch_that_is_set_aside_takes_nobodys_records_with_it(place: Path) -> None:
    """It is said to have brought the first validator's records, as of another epoch, and is signed by somebody else."""
    with ledger_kit.opened(place) as ledger, ledger.store.reading() as view:
        own = next(view.batches())
    assert own.members == ((own.first_seq, own.last_seq),)
    payload = batch.parsed(own.envelope).payload.replace(b'"epoch":3', b'"epoch":9')
    row = (4, f"sha256:{sha256(payload).hexdigest()}", own.validator, 9, own.count, own.root)
    members = f"[[{own.first_seq},{own.last_seq}]]"
    values = (*row, canonical(sign_envelope(payload, MALLORY)), members, own.first_seq, own.last_seq)
    inserted(place, f"INSERT INTO batches VALUES ({', '.join('?' * len(values))})", *values)
    with ledger_kit.opened(place) as ledger, ledger.counted() as view:
        assert [aside.batch.id for aside in view.aside] == [4]
        assert len(list(view.records(0, 3))) == view.count(0, 3) == 12


@pytest.mark.no_cover
def test_a_record_that_was_put_there_first_as_of_another_epoch_is_kept_once_more(place: Path) -> None:
    own = saying(trial=2)
    payload = own.payload.replace(b'"epoch":3', b'"epoch":9')
    statement = replace(own.statement, epoch=9)
    envelope = canonical(sign_envelope(payload, MALLORY))
    planted(place, replace(own, envelope=envelope, signed=batch.parsed(envelope), statement=statement))
    with ledger_kit.opened(place) as ledger:
        assert intake.accept(ledger.store, own, intake.intake_rules(place)).new == 4
        assert [aside.batch.epoch for aside in settling.settle(ledger, SIGNER, 3).aside] == [9]
        with ledger.counted() as view:
            assert [record.seq for record in view.records()] == [*range(1, 13), *range(17, 21)]


@pytest.mark.parametrize("word", ["text", 5])
def test_a_word_of_another_form_is_passed_over(place: Path, word: object) -> None:
    inserted(place, "INSERT INTO checked VALUES ('x', 1000, ?)", word)
    with ledger_kit.opened(place) as ledger:
        assert settling.settle(ledger, SIGNER).aside == ()


def test_a_number_that_no_batch_is_given_is_refused_by_the_database(place: Path) -> None:
    """It would be more than a number of JSON's, and nothing could be signed."""
    columns = "digest || 'x', validator, epoch, count, root, envelope, members, NULL, NULL"
    for number in (2**60, 0, -1, 5):
        with pytest.raises(sqlite3.IntegrityError, match="does not follow what is there"):
            inserted(place, f"INSERT INTO batches SELECT {number}, {columns} FROM batches LIMIT 1")
    inserted(place, "DROP TRIGGER batches_fit")  # as in a ledger that was brought forward with such a number in it
    inserted(place, f"INSERT INTO batches SELECT {2**60}, {columns} FROM batches LIMIT 1")
    with (
        ledger_kit.opened(place) as ledger,
        pytest.raises(Damaged, match=f"batch {2**60} has a number that the ledger never gives"),
    ):
        settling.settle(ledger, SIGNER)


def test_a_true_batch_that_is_there_twice_counts_once(place: Path) -> None:
    """Somebody writes its row a second time, as one that brought no new records."""
    columns = "digest, validator, epoch, count, root, envelope, members, NULL, NULL"
    inserted(place, f"INSERT INTO batches SELECT 4, {columns} FROM batches WHERE id = 1")
    with ledger_kit.opened(place) as ledger:
        settled = settling.settle(ledger, SIGNER)
        assert [(aside.batch.id, aside.why) for aside in settled.aside] == [(4, "it is there already, as batch 1")]
        with ledger.counted() as view:
            assert [batch.id for batch in view.batches()] == [1, 2, 3]


def test_a_batch_of_too_many_bytes_is_not_read(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What somebody put there past the intake does not have to fit into memory."""
    with ledger_kit.opened(place) as ledger:
        settling.settle(ledger, SIGNER)
    planted(place, saying(epoch=4))
    monkeypatch.setattr(batch, "BATCH_BYTES", 100)
    monkeypatch.setattr(View, "between", lambda *_: pytest.fail("it was read"))
    with ledger_kit.opened(place) as ledger, ledger.counted() as view:
        assert [aside.why for aside in view.aside] == ["it has more than 100 bytes"]


def as_owner(place: Path, statement: str) -> None:
    """Past the triggers, as the owner of the tables may."""
    with closing(sqlite3.connect(place / "ledger.db", isolation_level=None)) as database:
        for what in ("update", "delete"):
            database.execute(f"DROP TRIGGER batches_no_{what}")
        database.execute(statement)


@pytest.mark.parametrize(
    ("statement", "match"),
    [
        ("UPDATE batches SET members = '[[1,3]]' WHERE id = 1", "batches are not those whose signatures were checked"),
        ("DELETE FROM batches WHERE id = 3", "3 batches were checked, but the last one there is 2"),
    ],
)
def test_what_was_checked_and_changed_since_is_damage(place: Path, statement: str, match: str) -> None:
    with ledger_kit.opened(place) as ledger:
        settling.settle(ledger, SIGNER)
    as_owner(place, statement)
    with ledger_kit.opened(place) as ledger, pytest.raises(Damaged, match=match):
        settling.draft(ledger, 3)


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ("root = 'sha256:0'", "it does not count: what batch 1 states changed"),
        ("digest = 'sha256:0'", "the ledger no longer has it"),
        ("envelope = 'x'", "it does not count: the form of batch 1 was changed"),
        ("envelope = X'00'", "it does not count: the envelope of batch 1 cannot be read"),
        ("members = '[[1,3]]'", "it does not count: 4 records are expected, 3 are there"),
        ("members = '[[2,5]]'", "it does not count: it claims to have brought records that it does not have"),
        ("members = '[[1,9007199254740991]]'", "4 records are expected, 9007199254740991 are there"),
        ("members = '[[4,1]]'", "4 records are expected, 0 are there"),
        ("last_seq = 9007199254740991", "it claims to have brought records that it does not have"),
    ],
)
def test_what_was_acknowledged_and_does_not_agree_with_itself_is_damage(place: Path, values: str, match: str) -> None:
    as_owner(place, f"UPDATE batches SET {values} WHERE id = 1")
    with ledger_kit.opened(place) as ledger, pytest.raises(Damaged, match=match):
        settling.settle(ledger, SIGNER)


def test_a_receipt_that_was_signed_over_a_forged_batch_is_named(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a program that did not look: its epochs do not verify, and nothing is signed after them."""
    forged = saying(MALLORY, trial=2)
    planted(place, forged)
    with monkeypatch.context() as earlier, ledger_kit.opened(place) as ledger:
        earlier.setattr(counting.BatchVerdicts, "why", lambda *_: "")
        earlier.setattr(counting.CountedView, "signed", lambda *_: b"{}")
        settling.settle(ledger, SIGNER)
    ledger_kit.add(place, ledger_kit.records(epoch=4))
    match = f"the receipt of epoch 3 binds 16 records, but 12 of the ledger's count; batch {forged.digest}"
    with ledger_kit.opened(place) as ledger, pytest.raises(Damaged, match=match):
        settling.settle(ledger, SIGNER)


@pytest.mark.no_cover
def test_a_record_that_an_honest_batch_has_too_counts(tmp_path: Path) -> None:
    """Somebody puts records in a validator's name there that it hands in itself afterwards."""
    place, clean = ledger_kit.ledger_folder(tmp_path / "small"), ledger_kit.ledger_folder(tmp_path / "clean")
    planted(place, saying(MALLORY))
    for folder in (place, clean):
        ledger_kit.add(folder, [*ledger_kit.records(), *ledger_kit.records(validators=[V1], trial=2)])
    with ledger_kit.opened(place) as ledger, ledger_kit.opened(clean) as other:
        settled, wanted = settling.settle(ledger, SIGNER), settling.settle(other, SIGNER)
        bundle.export(ledger, 3, tmp_path / "bundle")
    assert len(settled.aside) == 1
    assert settled.settlement.digest == wanted.settlement.digest
    assert verify(tmp_path / "bundle", key=str(KEY)).recomputed


def test_without_the_library_of_hotkeys_nothing_is_set_aside(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> None:
        raise NotInstalled("hotkeys need a library that is not installed")

    monkeypatch.setattr(keys, "public", missing)
    with ledger_kit.opened(place) as ledger, pytest.raises(NotInstalled):
        settling.settle(ledger, SIGNER)
