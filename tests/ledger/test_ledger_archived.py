"""Records of closed epochs move to an archive: verified there, dropped here, and everything says the same afterwards."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ledger_kit
import object_store
import postgres
import store_kit as kit
from assay.archive import archive_epochs, dropping
from assay.archive.dropping import ArchivedRun
from assay.errors import BadInput, CannotSettle, Refused
from assay.ledger import archiving, backup, bundle, config, intake, keys, settling, standing, store
from assay.ledger.access import Ledger
from assay.ledger.audit import audit, audit_receipts, audit_standing
from assay.ledger.exchange import proof_for
from assay.ledger.store import Archived, Damaged, archives, parts
from cli_kit import output, refused
from inserting import Inserter, batch_row, record_rows, signed_anew
from ledger_kit import SIGNER, V1, V2, VALIDATORS, records

KINDS = {"tests": {}, "rubric": {"verdict": "FLAWED"}}
NOW = "2026-11-28T12:00:00Z"


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(standing, "MANY", -1)
    archives._bodies.cache_clear()
    yield
    archives._bodies.cache_clear()


def settled_ledger(tmp_path: Path, database: str, kind: str = "tests", **changes: Any) -> Path:
    """A ledger with three settled epochs."""
    if "://" not in database:
        return ledger_kit.once(
            tmp_path / "small", ("archived", kind, *changes), lambda place: fill(place, "ledger.db", kind, changes)
        )
    return fill(tmp_path / "small", database, kind, changes)


def fill(place: Path, database: str, kind: str, changes: Any) -> Path:
    ledger_kit.ledger_folder(place, kind, database, **changes)
    for epoch in (3, 4, 5):
        more: dict[str, Any] = {"trial": epoch - 2} if kind == "tests" else {}
        ledger_kit.add(place, records(kind, epoch=epoch, **more))
        settle(place, epoch)
    return place


def settle(place: Path, epoch: int) -> str:
    with ledger_kit.opened(place) as ledger:
        return settling.settle(ledger, SIGNER, epoch, skip=True, without_scores=True).settlement.digest


def moved(place: Path, to: Path | str, **options: Any) -> ArchivedRun:
    with ledger_kit.opened(place) as ledger:
        chosen: dict[str, Any] = {"before": 5, "signer": SIGNER} | options
        return archive_epochs(ledger, str(to), **chosen)


def sizes(place: Path) -> dict[int, int]:
    """Epoch → bytes of bodies that the database has."""
    with ledger_kit.opened(place) as ledger, ledger.store.reading() as view:
        by_epoch: dict[int, int] = {}
        for row in view.rows():
            by_epoch[row.epoch] = by_epoch.get(row.epoch, 0) + len(row.body)
        return by_epoch


def everything(ledger: Ledger, tmp_path: Path) -> dict[str, Any]:
    """What anybody asks of a ledger."""
    held = settling.again
    with ledger.counted() as view:
        receipts = list(view.receipts())
        settlements = {receipt.epoch: held(view, receipt, whole=True) for receipt in receipts}
        assert {epoch: held(view, receipts[at]).digest for at, epoch in enumerate(settlements)} == {
            epoch: settlement.digest for epoch, settlement in settlements.items()
        }
    last = settlements[max(settlements)]
    target = tmp_path / "bundle"
    shutil.rmtree(target, ignore_errors=True)
    bundle.export(ledger, 4, target)
    return {
        "settlements": {epoch: settlement.digest for epoch, settlement in settlements.items()},
        "explained": [item.digest for item in settling.records_about(ledger, last, "m1")],
        "proof": proof_for(ledger, "m1", 4),
        "replayed": [result.settlement.digest for result in settling.replay(ledger)],
        "bundle": {path.name: path.read_bytes() for path in sorted(target.rglob("*")) if path.is_file()},
        "receipts": audit_receipts(ledger),
        "rows": audit_standing(ledger, deep=True),
        "audited": audit(ledger.store, ledger.key, deep=True),
    }


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS)
def test_a_dropped_epoch_says_the_same(kind: str, tmp_path: Path) -> None:
    check_dropped(kind, tmp_path, "ledger.db")


def test_a_part_is_dropped(tmp_path: Path, postgresql: postgres.Cluster) -> None:
    check_dropped("tests", tmp_path, postgresql.database())


@pytest.mark.full
def test_a_part_with_what_still_decides_is_dropped(tmp_path: Path, postgresql: postgres.Cluster) -> None:
    check_dropped("rubric", tmp_path, postgresql.database())


def test_an_epoch_is_dropped_into_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On S3 it is verified before anything is dropped, read again from there, and missed by name when it is gone."""
    place = settled_ledger(tmp_path, "ledger.db")
    with ledger_kit.opened(place) as ledger:
        answers = everything(ledger, tmp_path)
    with object_store.object_store() as server:
        object_store.environment(monkeypatch, server)
        where = f"s3://{object_store.BUCKET}/season"
        run = moved(place, where)
        assert (run.verified, run.before, sum(run.dropped.values())) == ([3, 4], [], 24)
        assert {epoch: size for epoch, size in sizes(place).items() if epoch < 5} == {3: 0, 4: 0}
        with ledger_kit.opened(place) as ledger:
            assert everything(ledger, tmp_path) == answers
        assert moved(place, where) == ArchivedRun(where, "small", before=[3, 4])
        server.delete("season/small/epoch-4/epoch-4.jsonl")
        archives._bodies.cache_clear()
        with ledger_kit.opened(place) as ledger, ledger.store.reading() as view:
            assert len(list(view.records(3, 3))) == 12
            with pytest.raises(Archived, match="epoch"):
                list(view.records(4, 4))


def check_dropped(kind: str, tmp_path: Path, database: str) -> None:
    place, to = settled_ledger(tmp_path, database, kind), tmp_path / "archive"
    before = sizes(place)
    with ledger_kit.opened(place) as ledger:
        answers = everything(ledger, tmp_path)
        if "://" in database:
            with ledger.store.reading() as view:  # of epochs after the first receipt
                assert parts.parts(view._connection) == {f"bodies_{epoch}" for epoch in range(4, 10)}
    run = moved(place, to)
    kept = {3: 0, 4: 0} if kind == "tests" else {3: before[3], 4: 0}
    assert (run.verified, run.before, sum(run.dropped.values())) == ([3, 4], [], 24 if kind == "tests" else 6)
    after = sizes(place)
    assert {epoch: after[epoch] for epoch in (3, 4)} == kept
    assert after[5] == before[5]
    with ledger_kit.opened(place) as ledger:
        if "://" in database:
            with ledger.store.reading() as view:
                assert parts.parts(view._connection) == {f"bodies_{epoch}" for epoch in range(5, 10)}
        assert everything(ledger, tmp_path) == answers
        audited = audit(ledger.store, ledger.key)
        assert (audited.records, audited.archived) == (answers["audited"].records, sum(run.dropped.values()))
        assert audit_standing(ledger) is None
    assert moved(place, to) == ArchivedRun(str(to), "small", before=[3, 4])
    # The next epoch, with records that contradict dropped ones.
    ledger_kit.add(place, records(kind, epoch=6, **({"outcome": "fail"} if kind == "tests" else KINDS[kind])))
    digest, conflicts = settle(place, 6), 12 if kind == "tests" else 18
    with ledger_kit.opened(place) as ledger, ledger.counted() as view:
        receipt = view.receipt(6)
        assert receipt is not None
        assert settling.again(view, receipt, whole=True).digest == digest
        assert sum(view.conflicting().values()) == conflicts
        assert len(list(view.conflicts())) == conflicts
        summary = audit(ledger.store, ledger.key, deep=True)
        assert (summary.archived, summary.conflicts) == (0, conflicts)
        assert settling.rebuild(ledger, SIGNER) == 6
        assert audit_standing(ledger, deep=True) is not None


def test_a_record_that_was_dropped_is_known(tmp_path: Path, database: str) -> None:
    place = settled_ledger(tmp_path, database)
    batches = list(ledger_kit.batches(place, records(epoch=6, validators=[V1])))
    items = next(ledger_kit.batches(place, records(epoch=3, validators=[V1]))).records
    moved(place, tmp_path / "archive")
    shutil.rmtree(tmp_path / "archive")  # nothing here may need it
    with ledger_kit.opened(place) as ledger:
        with ledger.store.reading() as view:
            assert view.without_slots(items, lambda _: True) == []
            assert view.stored(items) == [True] * 4
        accepted = intake.accept(ledger.store, batches[0], intake.intake_rules(place))
        assert (accepted.new, accepted.conflicting) == (4, 4)
        with ledger.store.reading() as view:
            assert view.conflicts_among(accepted.first_seq or 0, accepted.last_seq or 0, 10) == (4, [])
            assert view.size(1, 12) == 0
    settle(place, 6)
    with ledger_kit.opened(place) as ledger:
        assert audit(ledger.store, ledger.key).conflicts == 4
        assert audit_receipts(ledger) == 4


def test_an_archive_that_is_gone_is_named(tmp_path: Path, database: str) -> None:
    place, to = settled_ledger(tmp_path, database), tmp_path / "archive"
    moved(place, to)
    to.rename(tmp_path / "elsewhere")
    assert f"epoch 3 are in the archive {to}, which cannot be read" in refused("ledger", "replay", place, code=1)
    with ledger_kit.opened(place) as ledger, pytest.raises(Archived, match=r'write archive = "PLACE" into ledger.toml'):
        bundle.export(ledger, 4, tmp_path / "bundle")
    settings = config.read(place)
    config.write(config.Config(**vars(settings) | {"archive": str(tmp_path / "elsewhere")}))
    assert "3 epochs come out as settled" in output("ledger", "replay", place)
    archives._bodies.cache_clear()
    file = tmp_path / "elsewhere" / "small" / "epoch-3" / "epoch-3.jsonl"
    file.write_bytes(file.read_bytes().replace(b"pass", b"fail"))
    assert "was changed: its digest differs" in refused("ledger", "check", place, "--archived", code=1)
    file.unlink()
    assert "no such file" in refused("ledger", "check", place, "--archived", code=1)


def test_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, to = settled_ledger(tmp_path, "ledger.db"), tmp_path / "archive"
    before = sizes(place)
    with pytest.raises(BadInput, match="is not the key of this log"):
        moved(place, to, signer=keys.read(b"78" * 32))
    for options in ({"before": None}, {"epoch": 3}):
        with pytest.raises(BadInput, match="use --epoch N or --before N"):
            moved(place, to, **options)
    with pytest.raises(CannotSettle, match="no epoch before 3 is settled"):
        moved(place, to, before=3)
    with pytest.raises(CannotSettle, match="epoch 9 has no receipt"):
        moved(place, to, before=None, epoch=9)
    with monkeypatch.context() as few:
        few.setattr(standing, "MANY", 10**6)
        (place / "participants.csv").touch()
        with ledger_kit.opened(place) as ledger:
            settling.rebuild(ledger, SIGNER)  # forgets what is not needed
        with pytest.raises(BadInput, match="the next settlement reads the records of epoch 3"):
            moved(place, to)
    with ledger_kit.opened(place) as ledger:
        settling.rebuild(ledger, SIGNER)
    (place / config.POLICY).write_text("quorum none\n")
    with pytest.raises(BadInput, match="they have not cosigned the receipt of epoch 3 yet; `assay ledger witness`"):
        moved(place, to)
    (place / config.POLICY).unlink()
    assert not to.exists()
    assert sizes(place) == before
    with ledger_kit.opened(place) as ledger, ledger.counted() as view:
        receipt = view.receipt(5)
        assert receipt is not None
        monkeypatch.setattr(type(ledger.log), "size", property(lambda _: 2))
        with pytest.raises(BadInput, match="the log does not have the receipt of epoch 5 yet"):
            archiving.check_droppable(ledger, view, receipt)


def test_an_archive_that_does_not_give_it_back_drops_nothing(tmp_path: Path) -> None:
    place, to = settled_ledger(tmp_path, "ledger.db"), tmp_path / "archive"
    before = sizes(place)
    assert moved(place, to, signer=None).verified == [3, 4]
    file = to / "small" / "epoch-4" / "epoch-4.jsonl"
    good = file.read_bytes()
    file.write_bytes(good.replace(b"pass", b"fail", 1))
    with pytest.raises(Refused, match=r"epoch 4 cannot be read back from the archive \(.*\), so nothing of it was dropped"):
        moved(place, to, before=None, epoch=4)
    file.with_suffix(".parquet").write_bytes(b"")
    with pytest.raises(BadInput, match="keep the evidence of an epoch in one file"):
        moved(place, to, before=None, epoch=4)
    assert sizes(place) == before
    file.with_suffix(".parquet").unlink()
    file.write_bytes(good)
    assert list(moved(place, to).dropped) == [3, 4]


def test_records_that_are_too_old_need_not_be_stored(tmp_path: Path) -> None:
    rules = 'min_validators = 1\nmin_stake = "0%"\nmax_age_epochs = 1\n'
    scheme = f'[scheme]\nname = "small"\n[score]\nkind = "tests"\n[consensus]\n{rules}'
    place = settled_ledger(tmp_path, "ledger.db", scheme_toml=scheme)
    with pytest.raises(BadInput, match="the next settlement reads the records of epoch 5"):
        moved(place, tmp_path / "archive", before=6)
    assert moved(place, tmp_path / "archive").dropped == {3: 12, 4: 12}
    shutil.rmtree(tmp_path / "archive")
    ledger_kit.add(place, records(epoch=6, trial=9))
    assert settle(place, 6)


def test_a_kill_leaves_everything(tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, to = settled_ledger(tmp_path, database), tmp_path / "archive"
    before = sizes(place)
    for module, name in ((dropping, "verify_epoch"), (archiving, "signed"), (parts, "_bodies"), (parts, "append_only")):

        def killed(*_: object) -> None:
            raise KeyboardInterrupt

        if name == "append_only" and "://" in database:
            continue
        with monkeypatch.context() as patched:
            patched.setattr(module, name, killed)
            with pytest.raises(KeyboardInterrupt):
                moved(place, to)
        assert sizes(place) == before
    with ledger_kit.opened(place) as ledger:
        assert audit(ledger.store, ledger.key).archived == 0
    assert moved(place, to).dropped == {3: 12, 4: 12}
    with ledger_kit.opened(place) as ledger:
        assert audit(ledger.store, ledger.key).archived == 24
        with pytest.raises(store.StoreError, match="append-only"), ledger.store.writing() as tx:
            tx._connection.exec_driver_sql("UPDATE records SET body = ''")
        entry = store.StoredArchived(3, 0, b"")
        assert ledger.store.drop(entry, []) == 0  # again


def test_what_no_receipt_covers_stays(tmp_path: Path, database: str) -> None:
    """Somebody inserted a batch that does not count: no archive has it."""
    place = settled_ledger(tmp_path, database)
    inserter = Inserter(config.read(place).database, place)
    (of_v2,) = ledger_kit.batches(place, records(epoch=6, validators=[V2], trial=9))
    forged, last = signed_anew(of_v2, VALIDATORS[V1]), inserter.last()
    inserter.put(batch_row(forged, last), record_rows(forged, last))
    ledger_kit.add(place, records(epoch=6, trial=8))
    settle(place, 6)
    before = sizes(place)
    assert moved(place, tmp_path / "archive", before=7).dropped == {3: 12, 4: 12, 5: 12, 6: 12}
    assert sizes(place)[6] == before[6] // 4
    with ledger_kit.opened(place) as ledger:
        assert audit(ledger.store, ledger.key, deep=True).records == 48


def test_rows_that_say_where_it_is_are_signed(tmp_path: Path) -> None:
    place = settled_ledger(tmp_path, "ledger.db")
    moved(place, tmp_path / "archive", before=4)
    read = "SELECT envelope FROM archived"
    with ledger_kit.opened(place) as ledger, ledger.counted() as view:
        receipt, fourth = view.receipt(3), view.receipt(4)
        assert receipt is not None
        assert fourth is not None
        (entry,) = archives.entries(view._connection)
        assert entry.checkpoint == receipt.checkpoint.decode()
        others = [
            archiving.signed(ledger, archives.ArchivedEpoch(**vars(entry) | change), SIGNER)
            for change in ({"receipt": "sha256:" + "0" * 64}, {"first": 1})
        ]
        later = {"epoch": 4, "first": 4, "receipt": fourth.digest}
        third = archiving.signed(ledger, archives.ArchivedEpoch(**vars(entry) | later), SIGNER)
    envelope = json.loads(kit.sql(place / "ledger.db", f"SELECT CAST(envelope AS TEXT) FROM ({read})"))
    envelope["signatures"][0]["sig"] = "A" * 86 + "=="
    for row, words in (
        (store.StoredArchived(3, 0, json.dumps(envelope).encode()), "is not what the log's key signed"),
        (store.StoredArchived(3, 2, others[1].envelope), "is not what the log's key signed"),
        (others[0], "the receipt of the archived epoch 3 changed"),
        (others[1], "the first epoch in the archive of epoch 3 changed"),
    ):
        _replace(place, row)
        with ledger_kit.opened(place) as ledger, pytest.raises(Damaged, match=words):
            audit(ledger.store, ledger.key)
    _replace(place, third)
    with ledger_kit.opened(place) as ledger, pytest.raises(Damaged, match="the digest of record 1 changed"):
        audit(ledger.store, ledger.key)
    with (
        ledger_kit.opened(place) as ledger,
        pytest.raises(Damaged, match="record 1 has no body, and its epoch 3 is in no archive"),
    ):
        list(settling.replay(ledger))
    kit.sql(place / "ledger.db", "DELETE FROM archived; SELECT 1;")
    with ledger_kit.opened(place) as ledger, pytest.raises(Damaged, match="the digest of record 1 changed"):
        audit(ledger.store, ledger.key, deep=False)


def _replace(place: Path, row: store.StoredArchived) -> None:
    statements = (
        "DROP TRIGGER IF EXISTS archived_no_delete; DELETE FROM archived;"
        f" INSERT INTO archived VALUES ({row.epoch}, {row.first}, x'{row.envelope.hex()}'); SELECT 1;"
    )
    kit.sql(place / "ledger.db", statements)


def test_a_copy_knows_where_it_is(tmp_path: Path, database: str) -> None:
    place = settled_ledger(tmp_path, "ledger.db")
    moved(place, tmp_path / "archive")
    target = database if "://" in database else str(tmp_path / "copy.db")
    copied = backup.copy(place, target, now=NOW)
    assert (copied.tables["archived"].rows, copied.tables["records"].rows) == (2, 36)
    with store.open(target) as other:
        assert audit(other).archived == 24
        assert audit(other, deep=True).archived == 0


def test_the_command_says_what_it_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, to = settled_ledger(tmp_path, "ledger.db"), tmp_path / "archive"
    printed = " ".join(output("ledger", "archive", place, "--to", to, "--before", "5").split())
    assert printed == f"2 epochs written to {to} as small, read back and verified."
    message = refused("ledger", "archive", place, "--to", to, "--before", "5", "--drop")
    assert "does not say which key signs; name the log's key with --key NAME" in message
    (tmp_path / "log.key").write_text("77" * 32)
    monkeypatch.setattr(keys, "load", lambda *_: SIGNER)
    words = ("ledger", "archive", place, "--to", to, "--before", "5", "--drop", "--key", "log")
    assert "24 records dropped from the ledger, which says where they are." in output(*words, columns=500)
    assert "2 epochs had been dropped before." in output(*words, columns=500)
    assert json.loads(output(*words, "--json")) == {
        "place": str(to),
        "before": [3, 4],
        "dropped": {},
        "folder": "small",
        "verified": [],
    }
    assert "24 records in archives: checked by digest; --archived reads them." in output("ledger", "check", place, columns=500)
    assert json.loads(output("ledger", "check", place, "--json"))["archived"] == 24
    assert "archived" not in json.loads(output("ledger", "check", place, "--json", "--archived"))
