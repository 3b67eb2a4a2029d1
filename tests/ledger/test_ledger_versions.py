"""Versions of the schema: a ledger of another one is refused by name, and an older one is brought forward, on both databases.

tests/ledger/ledger-v1 and so on have a ledger as that version wrote it; every later version must be able to take it up.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Connection

import postgres
import store_kit as kit
from assay.ledger import store
from assay.ledger.audit import Audited, audit
from assay.ledger.store import runs, schema

STORED = {version: Path(__file__).with_name(f"ledger-v{version}") for version in (1, 2, 3, 4, 5, 6, 7)}
LAST = schema.schema_version()
Sql = Callable[[str], str]


@pytest.fixture
def sql(database: str, request: pytest.FixtureRequest) -> Sql:
    cluster: postgres.Cluster | None = request.getfixturevalue("postgresql") if "://" in database else None
    return lambda statements: kit.sql(database, statements, cluster)


@pytest.fixture
def old(database: str, sql: Sql) -> str:
    """A ledger of version 1, as it was stored."""
    sql(stored(database, 1))
    return database


def stored(database: str, version: int) -> str:
    return (STORED[version] / f"{'postgresql' if '://' in database else 'sqlite'}.sql").read_text("utf-8")


def another(connection: Connection) -> None:
    """A migration as a later version might have it."""
    connection.exec_driver_sql("ALTER TABLE batches ADD COLUMN received_at TEXT")
    connection.exec_driver_sql("CREATE TABLE visits (id INTEGER PRIMARY KEY)")


def failing(connection: Connection) -> None:
    connection.exec_driver_sql("ALTER TABLE batches ADD COLUMN sent_at TEXT")
    raise RuntimeError


def check_content(place: str) -> None:
    with store.open(place) as ledger:
        assert ledger.meta == kit.META
        assert audit(ledger) == Audited(records=6, batches=2, conflicts=1)
        with ledger.reading() as view:
            assert [batch.root for batch in view.batches()] == [kit.signed(*kit.trials(range(1, 4))).statement.root, ANOTHER]
            assert view.settlement(3) == kit.settled(3)[0]
            assert view.last_receipt() == kit.settled(3)[2]
            assert view.submissions()["m1"].submission == "s1"


ANOTHER = kit.signed(*kit.trials([3, 4], outcome="fail"), *kit.trials([5])).statement.root


def check_attempts(place: str, *, there: bool) -> None:
    with store.open(place) as ledger, ledger.reading() as view:
        assert {target: view.attempts(target) for target in view.targets()} == (kit.ATTEMPTS if there else {})


def test_what_version_1_wrote_is_brought_forward(old: str) -> None:
    assert max(STORED) == LAST  # a later one: store what that version writes beside these
    assert store.migrate(old) == (1, LAST)
    check_content(old)
    check_attempts(old, there=False)
    with store.open(old) as ledger, ledger.writing() as tx:
        for target, entries in kit.ATTEMPTS.items():
            tx.add_attempts(target, *entries)
    check_attempts(old, there=True)


def test_what_version_2_wrote_is_read(database: str, sql: Sql) -> None:
    sql(stored(database, 2))
    assert store.migrate(database) == (2, LAST)
    check_content(database)
    check_attempts(database, there=True)


@pytest.mark.no_cover
@pytest.mark.parametrize("version", [3, 4])
def test_what_version_3_or_4_wrote_is_read(version: int, database: str, sql: Sql) -> None:
    sql(stored(database, version))
    assert store.migrate(database) == (version, LAST)
    check_content(database)
    with store.open(database) as ledger, ledger.reading() as view:
        assert (view.checked(), view.unnamed()) == ([(2, b"{}")], 0)


def test_what_version_5_wrote_is_read(database: str, sql: Sql) -> None:
    sql(stored(database, 5))
    assert store.migrate(database) == (5, LAST)
    check_content(database)
    with store.open(database) as ledger, ledger.reading() as view:
        assert view.witnessed() == store.StoredCheckpoint(1, b"note")


def test_what_version_6_wrote_is_read(database: str, sql: Sql) -> None:
    sql(stored(database, 6))
    assert store.migrate(database) == (6, LAST)
    check_content(database)
    with store.open(database) as ledger, ledger.reading() as view:
        assert runs.standing_rows(view) == {"p:m1": b"{}"}


def test_what_version_7_wrote_is_read(database: str, sql: Sql) -> None:
    sql(stored(database, 7))
    check_content(database)
    if "://" in database:
        assert sql("SELECT relkind FROM pg_class WHERE relname = 'bodies'") == "p\n"


def test_batches_that_name_no_log_may_be_those_that_there_were(database: str, sql: Sql) -> None:
    sql(stored(database, 2))
    store.migrate(database)
    with store.open(database) as ledger, ledger.reading() as view:
        assert (view.checked(), view.unnamed()) == ([], 2)


@pytest.mark.no_cover
def test_the_last_version_is_written_as_it_was(
    old: str, sql: Sql, tmp_path: Path, database: str, postgresql: postgres.Cluster
) -> None:
    """A change of the tables is a new version. One that was brought forward is as one that was made."""
    on_server = "://" in old
    created, again = (postgresql.database() if on_server else str(tmp_path / f"{name}.db") for name in ("made", "again"))
    store.create(created, kit.META).close()
    kit.sql(again, stored(again, LAST), postgresql)
    store.migrate(old)
    query = COLUMNS if on_server else "SELECT type, name, sql FROM sqlite_master ORDER BY 1, 2"
    assert kit.sql(created, query, postgresql) == kit.sql(again, query, postgresql) == sql(query)


COLUMNS = (
    "SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns WHERE table_schema = 'public'"
    " UNION SELECT tablename, indexname, indexdef, '' FROM pg_indexes WHERE schemaname = 'public'"
    " UNION SELECT event_object_table, trigger_name, event_manipulation, action_statement FROM information_schema.triggers"
    " ORDER BY 1, 2, 3"
)


def test_an_older_one_is_refused_and_brought_forward(old: str, sql: Sql, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, another))
    with pytest.raises(store.OtherVersion, match=r"made by an older Assay: its schema is version 1, this one needs 8; .*migrate"):
        store.open(old)
    assert store.migrate(old) == (1, LAST + 1)
    assert store.migrate(old) == (LAST + 1, LAST + 1)
    check_content(old)
    assert sql("SELECT count(*) FROM visits").strip() == "0"
    with store.open(old) as ledger, ledger.writing() as tx:
        tx.add_batch(kit.signed(kit.trial_record(task="t9")))
    with pytest.raises(Exception, match="append-only"):
        sql("DELETE FROM batches")


@pytest.mark.no_cover
def test_a_migration_that_fails_changes_nothing(old: str, sql: Sql, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as later:
        later.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, another, failing))
        with pytest.raises(RuntimeError):
            store.migrate(old)
    for table in ("visits", "attempts"):
        with pytest.raises(Exception, match=table):
            sql(f"SELECT count(*) FROM {table}")
    store.migrate(old)
    check_content(old)


def test_a_newer_one_is_refused(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as later:
        later.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, another))
        store.migrate(old)
    for use in (store.open, store.migrate):
        with pytest.raises(store.OtherVersion, match="made by a newer Assay: its schema is version 8, this one knows 7; upgrade"):
            use(old)


def test_a_new_ledger_has_the_last_version(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "MIGRATIONS", (another, another))
    store.create(database, kit.META).close()
    assert store.migrate(database) == (3, 3)
