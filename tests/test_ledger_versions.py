"""Versions of the schema: a ledger of another one is refused by name, and an older one is brought forward, on both databases.

tests/ledger-v1 has a ledger as version 1 wrote it; every later version must be able to take it up.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Connection

import postgres
import store_kit as kit
from assay.ledger import store
from assay.ledger.audit import Audited, audit
from assay.ledger.store import schema

STORED = Path(__file__).with_name("ledger-v1")
Sql = Callable[[str], str]


@pytest.fixture
def sql(database: str, request: pytest.FixtureRequest) -> Sql:
    cluster: postgres.Cluster | None = request.getfixturevalue("postgresql") if "://" in database else None
    return lambda statements: kit.sql(database, statements, cluster)


@pytest.fixture
def old(database: str, sql: Sql) -> str:
    """A ledger of version 1, as it was stored."""
    sql((STORED / f"{'postgresql' if '://' in database else 'sqlite'}.sql").read_text("utf-8"))
    return database


def second(connection: Connection) -> None:
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
            assert [one.root for one in view.batches()] == [kit.signed(*kit.trials(range(1, 4))).statement.root, ANOTHER]
            assert view.settlement(3) == kit.settled(3)[0]
            assert view.last_receipt() == kit.settled(3)[2]
            assert view.submissions()["m1"].submission == "s1"


ANOTHER = kit.signed(*kit.trials([3, 4], outcome="fail"), *kit.trials([5])).statement.root


def test_what_version_1_wrote_is_read(old: str) -> None:
    assert schema.version() == 1  # a later one: migrate here, and store what that version writes beside it
    check_content(old)
    assert store.migrate(old) == (1, 1)


def test_version_1_is_written_as_it_was(old: str, tmp_path: Path, postgresql: postgres.Cluster) -> None:
    """A change of the tables is a new version."""
    on_server = "://" in old
    new = postgresql.database() if on_server else str(tmp_path / "again.db")
    store.create(new, kit.META).close()
    query = COLUMNS if on_server else "SELECT type, name, sql FROM sqlite_master ORDER BY 1, 2"
    assert kit.sql(new, query, postgresql) == kit.sql(old, query, postgresql)


COLUMNS = (
    "SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns WHERE table_schema = 'public'"
    " UNION SELECT tablename, indexname, indexdef, '' FROM pg_indexes WHERE schemaname = 'public'"
    " UNION SELECT event_object_table, trigger_name, event_manipulation, action_statement FROM information_schema.triggers"
    " ORDER BY 1, 2, 3"
)


def test_an_older_one_is_refused_and_brought_forward(old: str, sql: Sql, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "MIGRATIONS", (second,))
    with pytest.raises(store.OtherVersion, match=r"made by an older Assay: its schema is version 1, this one needs 2; .*migrate"):
        store.open(old)
    assert store.migrate(old) == (1, 2)
    assert store.migrate(old) == (2, 2)
    check_content(old)
    assert sql("SELECT count(*) FROM visits").strip() == "0"
    with store.open(old) as ledger, ledger.writing() as tx:
        tx.add_batch(kit.signed(kit.one(task="t9")))
    with pytest.raises(Exception, match="append-only"):
        sql("DELETE FROM batches")


def test_a_migration_that_fails_changes_nothing(old: str, sql: Sql, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as later:
        later.setattr(schema, "MIGRATIONS", (second, failing))
        with pytest.raises(RuntimeError):
            store.migrate(old)
    check_content(old)
    with pytest.raises(Exception, match="visits"):
        sql("SELECT count(*) FROM visits")


def test_a_newer_one_is_refused(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as later:
        later.setattr(schema, "MIGRATIONS", (second,))
        store.migrate(old)
    for use in (store.open, store.migrate):
        with pytest.raises(store.OtherVersion, match="made by a newer Assay: its schema is version 2, this one knows 1; upgrade"):
            use(old)


def test_a_new_ledger_has_the_last_version(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "MIGRATIONS", (second, second))
    store.create(database, kit.META).close()
    assert store.migrate(database) == (3, 3)
