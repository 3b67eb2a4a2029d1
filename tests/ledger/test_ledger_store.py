"""The store on both databases: what goes in comes out, nothing is changed or removed, one snapshot a reader."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import postgres
import store_kit as kit
from assay.errors import BadInput
from assay.ledger import store
from assay.ledger.store import Accepted, Store, StoredReceipt, StoredSettlement, Submission, engine, tables
from assay.records import record
from ledger_kit import V1, V2

Sql = Callable[[str], str]


@pytest.fixture
def ledger(database: str) -> Store:
    return store.create(database, kit.META)


@pytest.fixture
def sql(database: str, request: pytest.FixtureRequest) -> Sql:
    """Statements past our own code."""
    cluster: postgres.Cluster | None = request.getfixturevalue("postgresql") if "://" in database else None
    return lambda statements: kit.sql(database, statements, cluster)


def test_what_was_accepted_is_there_in_order(ledger: Store, database: str) -> None:
    first, second = kit.signed(*kit.trials(range(1, 4))), kit.signed(*kit.trials([9], epoch=4))
    with ledger, ledger.writing() as tx:
        assert tx.add_batch(first) == Accepted(new=3, known=0, first_seq=1, last_seq=3)
        assert tx.last_seq() == 3  # its own writing is there at once
        assert tx.add_batch(second) == Accepted(new=1, known=0, first_seq=4, last_seq=4)
    with store.open(database) as again, again.reading() as view:
        assert again.meta == kit.META
        assert list(view.records()) == [
            (seq, digest, body)
            for seq, (digest, body) in enumerate(
                zip(first.digests + second.digests, first.bodies + second.bodies, strict=True), start=1
            )
        ]
        assert [row.seq for row in view.records(4, 4)] == [4]
        assert [row.seq for row in view.records(5)] == []
        assert (view.count(), view.count(3, 3), view.count(5), view.last_seq(), view.highest_epoch()) == (4, 3, 0, 4, 4)
        batches = list(view.batches())
        assert [(batch.id, batch.digest, batch.epoch, batch.members) for batch in batches] == [
            (1, first.digest, 3, ((1, 3),)),
            (2, second.digest, 4, ((4, 4),)),
        ]
        assert batches[0].envelope == first.envelope
        assert (batches[0].count, batches[0].root, batches[0].first_seq, batches[0].last_seq) == (3, first.statement.root, 1, 3)
        assert view.named(first.digest) == batches[:1] == [view.numbered(1)]
        assert view.named("sha256:") == []
        assert [batch.id for batch in view.batches(4)] == [2]
        assert [view.last_batch(epoch) for epoch in (2, 3, 4)] == [0, 1, 2]


def test_an_empty_store_says_so(ledger: Store) -> None:
    with ledger, ledger.reading() as view:
        assert (view.count(), view.last_seq(), view.highest_epoch(), view.settled_epoch()) == (0, 0, None, None)
        for some in (view.records(), view.batches(), view.receipts(), view.conflicts()):
            assert list(some) == []
        for absent in (view.last_receipt(), view.receipt(3), view.settlement(3), view.inputs("sha256:inputs")):
            assert absent is None
        assert view.submissions() == {}


def test_many_records_come_a_piece_at_a_time(ledger: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.ledger.store.view.FETCH", 7)
    with ledger:
        with ledger.writing() as tx:
            tx.add_batch(kit.signed(*kit.trials(range(50))))
        with ledger.reading() as view:
            assert [record.seq for record in view.records()] == list(range(1, 51))


def test_records_are_read_a_page_at_a_time_and_by_validator(ledger: Store) -> None:
    """As the service reads them: an epoch's records after a seq, its last record, and what a validator's batches brought."""
    with ledger:
        with ledger.writing() as tx:
            tx.add_batch(kit.signed(*kit.trials(range(5))))
            tx.add_batch(kit.signed(*kit.trials(range(2), validator=V2)))
            tx.add_batch(kit.signed(kit.trial_record(epoch=4)))
        with ledger.reading() as view:
            assert [[row.seq for row in view.page(3, after, 3)] for after in (0, 3, 6, 7)] == [[1, 2, 3], [4, 5, 6], [7], []]
            assert view.page(3, 0, 3) == list(view.records(3, 3))[:3]
            assert view.page(5, 0, 3) == []
            assert view.last_record(3) == list(view.records(3, 3))[-1]
            assert view.last_record(5) is None
            assert [stored.id for stored in view.of_validator(V2, 0)] == [2]
            assert [stored.id for stored in view.of_validator(V1, 1)] == [3]


def test_a_record_is_stored_only_if_it_is_this_very_one(ledger: Store) -> None:
    first, second = brought = kit.trials(range(2))
    others = [first | {"outcome": "timeout"}, kit.trial_record(task="t9"), second | {"trial": 2}]
    with ledger:
        with ledger.writing() as tx:
            tx.add_batch(kit.signed(*brought))
        with ledger.reading() as view:
            assert view.stored([record(row) for row in (*brought, *others)]) == [True, True, False, False, False]
            assert view.stored([]) == []


def test_the_records_of_an_epoch_come_in_pages(ledger: Store) -> None:
    with ledger:
        with ledger.writing() as tx:
            tx.add_batch(kit.signed(*kit.trials(range(5))))
            tx.add_batch(kit.signed(*kit.trials([5], epoch=4, validator=V2)))
            tx.add_batch(kit.signed(*kit.trials(range(6, 8))))
        with ledger.reading() as view:
            pages = [[row.seq for row in view.page(3, after, 3)] for after in (0, 3, 5, 7, 8)]
            assert pages == [[1, 2, 3], [4, 5, 7], [7, 8], [8], []]
            assert view.page(3, 0, 100) == list(view.records(3, 3))
            assert view.page(9, 0, 3) == []
            assert [stored.id for stored in view.of_validator(V1, 0)] == [1, 3]
            assert sorted(row.seq for row in view.run("tests", V1, "s1")) == [1, 2, 3, 4, 5, 7, 8]
            assert [[row.seq for row in view.run("tests", V2, "s1", after)] for after in (3, 4)] == [[6], []]
            assert [*view.run("tests", V1, "s2")] == [*view.run("given", V1, "s1")] == []
            assert [view.last_record(epoch) for epoch in (3, 4, 5)] == [*view.page(3, 7, 1), *view.page(4, 0, 1), None]


def test_settlements_receipts_and_submissions(ledger: Store) -> None:
    with ledger:
        with ledger.writing() as tx:
            for position, epoch in enumerate((3, 5)):
                tx.add_settled(*kit.settled(epoch, position))
            for submission, epoch in (("s1", 3), ("s2", 4), ("s3", 6)):
                tx.add_submission(Submission("m1", submission, epoch))
        with ledger.reading() as view:
            assert view.settlement(5) == StoredSettlement(5, f"sha256:{5:064x}", "sha256:inputs", b'{"epoch":5}')
            assert view.inputs("sha256:inputs") == b"{}"
            last = StoredReceipt(5, 1, f"sha256:{5:064x}", b"envelope 5", b"checkpoint 5")
            assert view.last_receipt() == view.receipt(5) == last
            assert [receipt.epoch for receipt in view.receipts()] == [3, 5]
            assert list(view.receipts(1)) == [last]
            assert view.settled_epoch() == 5
            assert view.receipt_at(1) == last
            assert view.receipt_at(2) is None
            assert view.submissions() == {"m1": Submission("m1", "s3", 6)}
            assert view.submissions(5) == {"m1": Submission("m1", "s2", 4)}
            assert view.submissions(2) == {}
            assert [*view.submissions_after(1)] == [(2, Submission("m1", "s2", 4)), (3, Submission("m1", "s3", 6))]
            assert [view.submission_of(name) for name in ("m1", "m2")] == [Submission("m1", "s3", 6), None]


def test_a_block_that_raises_keeps_nothing(ledger: Store) -> None:
    with ledger:
        with pytest.raises(RuntimeError):
            _write_and_raise(ledger)
        with ledger.reading() as view:
            assert (view.count(), view.last_seq(), list(view.batches()), view.last_receipt()) == (0, 0, [], None)


def _write_and_raise(ledger: Store) -> None:
    with ledger.writing() as tx:
        tx.add_batch(kit.signed(kit.trial_record()))
        tx.add_settled(*kit.settled(3))
        raise RuntimeError


def test_a_reader_has_one_snapshot_whatever_a_writer_does(ledger: Store) -> None:
    with ledger, ledger.reading() as before:
        assert before.count() == 0
        with ledger.writing() as tx:
            tx.add_batch(kit.signed(kit.trial_record()))
        assert (before.count(), before.last_seq(), list(before.records())) == (0, 0, [])
        with ledger.reading() as after:
            assert after.count() == 1


def test_what_was_sent_is_kept_by_target(ledger: Store, database: str) -> None:
    with ledger, ledger.writing() as tx:
        assert (tx.targets(), tx.attempts("b")) == ([], [])
        tx.add_attempts("b", b"1", b"2")
        tx.add_attempts("a", b"1")
        tx.add_attempts("b", b"3")
    with store.open(database) as again, again.reading() as view:
        assert view.targets() == ["a", "b"]
        assert [view.attempts("b", after) for after in range(5)] == [[b"1", b"2", b"3"], [b"2", b"3"], [b"3"], [], []]
        assert view.attempts("a") == [b"1"]


def test_a_commit_shows_at_once(ledger: Store, database: str) -> None:
    with ledger:
        before = ledger.commits()
        assert ledger.commits() == before
        with ledger.writing() as tx:
            tx.add_batch(kit.signed(*kit.trials([1])))
        after = ledger.commits()
        with store.open(database) as other, other.writing() as tx:  # as another process would
            tx.add_batch(kit.signed(*kit.trials([2])))
        if "://" in database:
            assert (before, after, ledger.commits()) == (None, None, None)
        else:
            assert len({before, after, ledger.commits()}) == 3


def test_nobody_waits_to_see_a_commit(tmp_path: Path) -> None:
    place = tmp_path / "ledger.db"
    store.create(place, kit.META).close()
    with store.open(place) as ledger:
        with closing(sqlite3.connect(place, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            assert ledger.commits() is not None
        ledger.close()
        place.unlink()
        assert ledger.commits() is None


def test_settled_epochs(ledger: Store) -> None:
    with ledger, ledger.writing() as tx:
        assert tx.settled_epochs() == []
        for position, epoch in enumerate((3, 4, 7)):
            tx.add_settled(*kit.settled(epoch, position))
        assert [tx.settled_epochs(first) for first in (0, 4, 5, 8)] == [[3, 4, 7], [4, 7], [7], []]


@pytest.mark.no_cover
def test_the_database_itself_refuses_any_change(ledger: Store, sql: Sql) -> None:
    kit.fill(ledger)
    kit.archive(ledger)
    ledger.close()
    before = sql("SELECT count(*), max(seq) FROM records")
    for table in tables.APPEND_ONLY:
        column = next(iter(table.c)).name
        for statement in (
            f"UPDATE {table.name} SET {column} = {column}",
            f"DELETE FROM {table.name}",
        ):
            with pytest.raises((sqlite3.IntegrityError, AssertionError), match=f"assay: {table.name} is append-only"):
                sql(statement)
    assert sql("SELECT count(*), max(seq) FROM records") == before


@pytest.mark.sampled(3)
@pytest.mark.no_cover
@pytest.mark.parametrize("table", tables.APPEND_ONLY, ids=str)
def test_postgresql_refuses_to_empty_a_table(postgresql: postgres.Cluster, table: object) -> None:
    place = postgresql.database()
    with store.create(place, kit.META) as ledger:
        kit.fill(ledger)
    for statement in (f"TRUNCATE {table} CASCADE", f"INSERT INTO {table} SELECT * FROM {table} ON CONFLICT DO NOTHING"):
        if "ON CONFLICT" in statement and str(table) != "batches":
            kit.sql(place, statement, postgresql)  # which changes nothing
        else:
            with pytest.raises(AssertionError, match=r"is append-only|does not follow what is there"):
                kit.sql(place, statement, postgresql)
    assert kit.sql(place, "SELECT count(*) FROM records", postgresql) == "6\n"


@pytest.mark.no_cover
@pytest.mark.parametrize("table", tables.APPEND_ONLY, ids=str)
def test_sqlite_does_not_replace_a_row_either(tmp_path: Path, table: object) -> None:
    """REPLACE removes rows, and asks no trigger of removals."""
    place = tmp_path / "ledger.db"
    with store.create(place, kit.META) as ledger:
        kit.fill(ledger)
        kit.archive(ledger)
    for statement in (
        f"INSERT OR REPLACE INTO {table} SELECT * FROM {table}",
        f"REPLACE INTO {table} SELECT * FROM {table} LIMIT 1",
        f"UPDATE OR REPLACE {table} SET rowid = rowid",
    ):
        with pytest.raises(sqlite3.IntegrityError, match=r"is append-only|does not follow what is there"):
            kit.sql(place, statement)


def test_a_ledger_is_made_once(ledger: Store, database: str) -> None:
    ledger.close()
    with pytest.raises(store.NotALedger, match=r"is there already|there is a table 'archived' already"):
        store.create(database, kit.META)
    with store.open(database) as again:
        assert again.meta == kit.META


def test_what_cannot_be_made_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(store.DatabaseUnreachable, match="cannot be made"):
        store.create(tmp_path / "no" / "ledger.db", kit.META)

    def broken(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr("assay.ledger.store.schema.make_tables", broken)
    with pytest.raises(RuntimeError):
        store.create(tmp_path / "ledger.db", kit.META)
    assert list(tmp_path.iterdir()) == []


def test_a_postgresql_that_is_in_use_is_left_as_it_is(postgresql: postgres.Cluster) -> None:
    place = postgresql.database()
    postgresql.sql(place, "CREATE TABLE records (id integer)")
    with pytest.raises(store.NotALedger, match="there is a table 'records' already"):
        store.create(place, kit.META)
    with pytest.raises(store.NotALedger, match="is not a ledger"):
        store.open(place)
    assert postgresql.sql(place, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == "1\n"


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (None, "there is no such file; `assay ledger init` makes a ledger"),
        ("", "is not a ledger; `assay ledger init` makes one"),
        ("CREATE TABLE meta (key TEXT, value TEXT);", "its table `meta` is somebody else's"),
    ],
)
def test_what_is_no_ledger_is_refused(tmp_path: Path, content: str | None, match: str) -> None:
    place = tmp_path / "ledger.db"
    if content is not None:
        with closing(sqlite3.connect(place)) as connection:
            connection.executescript(content)
            connection.execute("PRAGMA user_version = 1")
    for use in (store.open, store.migrate):
        with pytest.raises(store.NotALedger, match=match):
            use(place)
    assert place.exists() == (content is not None)


@pytest.mark.parametrize(
    ("place", "match"),
    [
        ("mysql://me@db/ledger", "a ledger cannot be in a database of 'mysql'; use a path"),
        ("postgresql://me@db:port/ledger", "is not a URL of a database"),
        ("sqlite://", "names no file"),
        (":memory:", "names no file"),
        ("", "names no file"),
    ],
)
def test_a_place_that_is_none(place: str, match: str) -> None:
    with pytest.raises(BadInput, match=match):
        store.open(place)
    with pytest.raises(BadInput, match=match):
        store.create(place, kit.META)


def test_a_file_may_be_given_as_a_url(tmp_path: Path) -> None:
    store.create(f"sqlite:///{tmp_path}/what? a name.db".replace("?", "%3F"), kit.META).close()
    store.create(tmp_path / "what? a name#2.db", kit.META).close()
    assert {path.name for path in tmp_path.iterdir()} == {"what? a name.db", "what? a name#2.db"}


def test_without_psycopg_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'psycopg'")

    monkeypatch.setattr(engine, "create_engine", missing)
    with pytest.raises(BadInput, match=r"PostgreSQL needs the package psycopg; .*assay\[postgres\]"):
        store.open("postgresql://me@db/ledger")


def test_a_password_is_never_shown(postgresql: postgres.Cluster) -> None:
    with store.create(postgresql.database(), kit.META) as ledger:
        assert postgres.PASSWORD not in ledger.name
        assert "***" in ledger.name


def test_what_a_program_does_wrong_is_refused_whole(ledger: Store) -> None:
    with ledger:
        with ledger.writing() as tx:
            tx.add_settled(*kit.settled(3))
        with pytest.raises(store.StoreError, match="the database refused it, nothing of this was stored"):
            _settle_again(ledger)
        with ledger.reading() as view:
            assert view.submissions() == {}


def _settle_again(ledger: Store) -> None:
    with ledger.writing() as tx:
        tx.add_submission(Submission("m1", "s1", 3))
        tx.add_settled(*kit.settled(3))


def test_postgresql_commits_are_flushed_though_the_server_says_otherwise(postgresql: postgres.Cluster) -> None:
    place = postgresql.database()
    name = place.rpartition("/")[0] and place.split("/")[3].partition("?")[0]
    for setting, wanted in (("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")):
        postgresql.sql("postgres", f"ALTER DATABASE {name} SET synchronous_commit = {setting}")
        ledger = store.create(place, kit.META) if setting == "off" else store.open(place)
        with ledger, ledger.writing() as tx:
            assert tx._connection.exec_driver_sql("SHOW synchronous_commit").scalar() == wanted


def test_sqlite_commits_are_flushed(tmp_path: Path) -> None:
    with store.create(tmp_path / "ledger.db", kit.META) as ledger, ledger.writing() as tx:
        pragmas = {
            name: tx._connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}


def test_rows_refer_to_rows(ledger: Store) -> None:
    with ledger, pytest.raises(store.StoreError), ledger.writing() as tx:
        tx._add(tables.receipts, (3, 0, "sha256:", b"", b""))
