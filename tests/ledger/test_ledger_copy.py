"""A ledger is copied from one database to another: the same rows by digest, all or nothing, and adopted before it signs."""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Column, Integer, MetaData, Table, Text, insert, inspect, select

import ledger_kit
import postgres
from assay.errors import BadInput
from assay.ledger import backup, config, settling, standing, store
from assay.ledger.access import Ledger, open_ledger
from assay.ledger.audit import audit, audit_receipts, audit_standing
from assay.ledger.backup import copy
from assay.ledger.store import Damaged, StoreError, copying, runs, schema, tables
from assay.ledger.store.engine import make_engine
from assay.ledger.store.tables import SCHEMA
from cli_kit import output, refused
from ledger_kit import SIGNER

NOW = "2026-11-28T05:00:00Z"


@pytest.fixture
def place(tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A competition with two receipts and standing rows on either database, and evidence of a third epoch."""
    monkeypatch.setattr(standing, "MANY", 0)
    folder = ledger_kit.ledger_folder(tmp_path / "small", database=database)
    for epoch in (3, 4):
        ledger_kit.add(folder, ledger_kit.records(epoch=epoch, trial=epoch - 2))
        with ledger_kit.opened(folder) as ledger:
            settling.settle(ledger, SIGNER, epoch)
    ledger_kit.add(folder, ledger_kit.records(epoch=5, trial=3))
    return folder


@pytest.fixture
def target(database: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """An empty place on the other database."""
    if "://" in database:
        return str(tmp_path / "copy.db")
    server: postgres.Cluster = request.getfixturevalue("postgresql")
    return server.database()


def name_in_toml(place: Path, target: str) -> None:
    file = place / "ledger.toml"
    file.write_text(file.read_text().replace(json.dumps(config.read(place).database), json.dumps(target)))


def rows(place: str, beside: MetaData = store.NO_TABLES) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table, but where the ledger lives."""
    with store.open(place) as ledger, ledger.reading() as view:
        every = {}
        for table in (*SCHEMA.sorted_tables, *beside.sorted_tables):
            columns = tables.ROW if table is tables.records else table.c
            fetched = [tuple(row) for row in view._connection.execute(select(*columns))]
            every[table.name] = sorted(row for row in fetched if row[0] not in ("home", "former_home"))
        return every


def is_empty(target: str) -> bool:
    if "://" not in target:
        return not list(Path(target).parent.glob("*copy.db*"))
    engine = make_engine(target)
    try:
        return inspect(engine).get_table_names() == []
    finally:
        engine.dispose()


def test_a_copy_has_every_row_and_goes_on_when_it_is_adopted(place: Path, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "COPY_ROWS", 5)  # several pieces, and words about the way
    beside = MetaData()
    visits = Table("visits", beside, Column("id", Integer, primary_key=True), Column("name", Text))
    old = config.read(place).place
    with store.open(old) as source, source.writing() as tx:
        visits.create(tx._connection)
        tx._connection.execute(insert(visits).values(name="Ünï"))
    copied = copy(place, target, now=NOW, beside=beside)
    before = rows(old, beside)
    assert rows(target, beside) == before
    assert {name: table.rows for name, table in copied.tables.items()} == {name: len(rows) for name, rows in before.items()}
    assert (copied.tables["records"].rows, copied.tables["receipts"].rows, len(before["standing"]) > 0) == (36, 2, True)
    with ledger_kit.opened(place) as ledger:
        assert copied.log == {"size": 2, "root": f"sha256:{ledger.log.root(2).hex()}"}
    assert postgres.PASSWORD not in json.dumps(asdict(copied))

    name_in_toml(place, target)
    with ledger_kit.opened(place) as ledger:
        assert (audit(ledger.store).records, audit_receipts(ledger), audit_standing(ledger)) == (36, 2, 3)
        with pytest.raises(store.Elsewhere, match=f"was restored on {NOW}, and accepts and signs nothing until it is adopted"):
            settling.settle(ledger, SIGNER, 5)
        if "://" not in old:
            with pytest.raises(BadInput, match=r"the ledger is still in .*ledger.db, and this is a copy of it; move that file"):
                ledger.store.adopt()
            Path(old).rename(f"{old}.old")
        ledger.store.adopt()
        assert settling.settle(ledger, SIGNER, 5).new
        with ledger.store.writing() as tx:  # numbers go on after those that were copied
            tx._connection.execute(insert(visits).values(name="bob"))
            assert tx._connection.execute(select(visits.c.id).order_by(visits.c.id)).scalars().all() == [1, 2]
        with pytest.raises(StoreError, match="append-only"), ledger.store.writing() as tx:
            tx._connection.exec_driver_sql("DELETE FROM records")


def test_the_command_copies_and_says_by_which_digest(place: Path, target: str) -> None:
    document = json.loads(output("ledger", "copy", place, target, "--json"))
    with store.open(target) as ledger, ledger.reading() as view:
        there = copying.digest_tables(view._connection, copying.tables_of(view._connection, store.NO_TABLES))
    assert document["digest"] == copying.digest_of(there)
    assert document["tables"]["records"] == {"rows": 36, "digest": there["records"].digest}
    assert (
        "exists, and nothing is" in refused("ledger", "copy", place, target)
        if "://" not in target
        else ("there is a table 'archived' already; use an empty database" in refused("ledger", "copy", place, target))
    )


def test_the_command_shows_a_table_and_the_next_step(tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small")
    shown = output("ledger", "copy", place, tmp_path / "copy.db")
    assert "records" in shown
    assert "the log has 0 receipts" in " ".join(shown.split())
    assert f"assay ledger adopt {place} --old-is-stopped" in shown


def test_a_ledger_that_somebody_writes_to_meanwhile_is_not_copied(place: Path, target: str) -> None:
    def more_evidence() -> None:
        ledger_kit.add(place, ledger_kit.records(epoch=5, trial=4))

    def other_standing_rows() -> None:
        with store.open(config.read(place).place) as ledger, ledger.writing() as tx:
            standing.forget(tx)

    for table, act in {"batches": more_evidence, "standing": other_standing_rows}.items():
        todo = [act]

        def interfere(name: str, _rows: int, todo: list[Callable[[], None]] = todo) -> None:
            if name == "standing, read again" and todo:  # the copy is whole, and not committed
                todo.pop()()

        with pytest.raises(
            StoreError, match=f"somebody wrote to the table '{table}' meanwhile, so nothing was copied; stop every"
        ):
            copy(place, target, now=NOW, progress=interfere)
        assert not todo
        assert is_empty(target)


def test_a_copy_that_is_interrupted_leaves_nothing(place: Path, target: str) -> None:
    for at in ("records", "meta", "records, read again"):

        def interrupt(name: str, _rows: int, at: str = at) -> None:
            if name == at:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            copy(place, target, now=NOW, progress=interrupt)
        assert is_empty(target)
    copy(place, target, now=NOW)
    assert rows(target) == rows(config.read(place).place)


def test_a_copy_that_the_database_changed_is_not_kept(place: Path, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spoiled = tables.triggers

    def spoil(dialect: str) -> list[str]:
        return ["UPDATE batches SET validator = 'x' WHERE id = 1", *spoiled(dialect)]

    monkeypatch.setattr(schema, "triggers", spoil)
    with pytest.raises(Damaged, match="the table 'batches' has other rows than were copied to it, so nothing was copied"):
        copy(place, target, now=NOW)
    assert is_empty(target)


def test_what_is_not_at_home_or_differs_from_its_log_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, target = ledger_kit.ledger_folder(tmp_path / "small"), tmp_path / "copy.db"
    ledger_kit.add(place, ledger_kit.records())
    shutil.copytree(place, tmp_path / "another")
    with pytest.raises(store.Elsewhere, match="is a copy of the ledger in"):
        copy(tmp_path / "another", str(target), now=NOW)
    name_in_toml(place, "postgres:nothing")
    with pytest.raises(BadInput, match="there is no such file"):
        copy(place, str(target), now=NOW)
    name_in_toml(place, "ledger.db")
    (tmp_path / "copy.db-wal").touch()
    with pytest.raises(BadInput, match=r"copy.db-wal: exists, and nothing is written over it; give a new name"):
        copy(place, str(target), now=NOW)
    (tmp_path / "copy.db-wal").unlink()

    def settled_late(folder: Path, cache: int) -> Ledger:
        opened = open_ledger(folder, cache=cache)
        with ledger_kit.opened(place) as other:
            settling.settle(other, SIGNER, 3)
        return opened

    monkeypatch.setattr(backup, "open_ledger", settled_late)
    with pytest.raises(StoreError, match="it has 1 receipts, and the log had 0, so nothing was copied; stop every program"):
        copy(place, str(target), now=NOW)
    assert not target.exists()


def test_a_row_has_one_encoding_and_a_type_that_is_stored_by_no_ledger_has_none() -> None:
    values = [None, 0, 1, -1, 10, "", "0", "1", "é", b"", b"0", b"\xc3\xa9", "i1;", b"n"]
    encoded = [b"".join(copying._encoded(value)) for value in values]
    assert len(set(encoded)) == len(values)
    assert encoded[:5] == [b"n", b"i0;", b"i1;", b"i-1;", b"i10;"]
    assert b"".join(copying._encoded(True)) == b"i1;"
    assert b"".join(copying._encoded("é")) == b"t2:\xc3\xa9"
    with pytest.raises(TypeError, match="a ledger stores no float"):
        copying._encoded(0.5)


def test_a_file_hides_no_table_and_any_view_finds_records_by_their_slots(tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small")
    ledger_kit.add(place, ledger_kit.records())
    with ledger_kit.opened(place) as ledger, ledger.store.reading() as view:
        assert schema.may_read(view._connection, "records")
        stored = list(view.rows())
        assert runs.of_slots(view, [row.slot for row in stored[:2]], 3) == stored[:2]


def test_an_interrupted_copy_leaves_no_cursor_open(
    tmp_path: Path, postgresql: postgres.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small", database=postgresql.database())
    ledger_kit.add(place, ledger_kit.records())
    cursors, init_cursor = list[psycopg.ServerCursor[Any]](), psycopg.ServerCursor.__init__

    def note(self: psycopg.ServerCursor[Any], *arguments: Any, **options: Any) -> None:
        init_cursor(self, *arguments, **options)
        cursors.append(self)

    monkeypatch.setattr(psycopg.ServerCursor, "__init__", note)
    monkeypatch.setattr(copying, "COPY_ROWS", 5)
    for at in ("records", "records, read again"):

        def interrupt(name: str, rows: int, at: str = at) -> None:
            if (name, rows) == (at, 5):  # in the middle of the table
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):  # the traceback is kept, and with it everything that was going on
            copy(
                place,
                postgresql.database() if at == "records, read again" else str(tmp_path / "copy.db"),
                now=NOW,
                progress=interrupt,
            )
        assert cursors
        assert all(cursor.closed for cursor in cursors)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("crashes", "at"),
    [
        ("source", "records"),
        ("target", "records"),
        ("source", "records, read again"),
        pytest.param("target", "records, read again", marks=pytest.mark.full),
        pytest.param("source", "standing, read again", marks=pytest.mark.full),
        pytest.param("target", "standing, read again", marks=pytest.mark.full),
    ],
)
def test_a_database_that_restarts_in_the_middle_of_a_copy(
    crashes: str, at: str, tmp_path: Path, postgresql: postgres.Cluster
) -> None:
    on_server, todo = postgresql.database(), [postgresql]
    place = ledger_kit.ledger_folder(tmp_path / "small", database=on_server if crashes == "source" else "ledger.db")
    target = str(tmp_path / "copy.db") if crashes == "source" else on_server
    ledger_kit.add(place, ledger_kit.records())

    def crash(name: str, _rows: int) -> None:
        if name == at and todo:
            todo.pop().restart(postgres.CRASH)

    if crashes == "source" and at != "records":  # everything was read, and is compared once more before the copy is kept
        copy(place, target, now=NOW, progress=crash)
    else:
        with pytest.raises(store.DatabaseUnreachable, match="the server does not answer, or ended the connection") as error:
            copy(place, target, now=NOW, progress=crash)
        assert str(error.value.file) == store.shown(on_server)
        assert is_empty(target)
        copy(place, target, now=NOW)
    with ledger_kit.opened(place) as ledger:
        assert audit(ledger.store).records == 12
    assert rows(target) == rows(config.read(place).place)
