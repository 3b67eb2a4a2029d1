"""Bodies of records in parts, on PostgreSQL: who may write them, who makes them, and what a migration makes of rights."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import ledger_kit
import postgres
from assay.ledger import config, intake, settling, standing, store
from assay.ledger.store import parts, rights
from inserting import batch_row, record_rows, signed_anew
from ledger_kit import SIGNER, V1, V2, VALIDATORS, records

USER = "part-1"


@pytest.fixture
def place(tmp_path: Path, postgresql: postgres.Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A ledger with a settled epoch, parts, and a user of the first validator."""
    monkeypatch.setattr(standing, "MANY", -1)
    folder = ledger_kit.ledger_folder(tmp_path / "small", database=postgresql.database())
    ledger_kit.add(folder, records())
    url = config.read(folder).place
    postgresql.sql(url, f"CREATE ROLE \"{USER}\" LOGIN PASSWORD '{postgres.PASSWORD}'")
    with ledger_kit.opened(folder) as ledger:
        assert settling.settle(ledger, SIGNER, 3).new
        ledger.store.grant(USER, "validator", V1)
    yield folder
    postgresql.sql(url, f'DROP OWNED BY "{USER}"; DROP ROLE "{USER}"')


def theirs(place: Path) -> str:
    return config.read(place).place.replace("//assay:", f"//{USER}:")


def test_a_validators_user_writes_its_own_bodies(place: Path, postgresql: postgres.Cluster) -> None:
    url = config.read(place).place
    before = "DROP TABLE archived, bodies CASCADE; DROP TRIGGER records_part ON records; DROP FUNCTION assay_records_part"
    old = rights.RULED["records"].replace("CASE WHEN body = ''::bytea THEN true ELSE ", "").replace(" END)", ")")
    with psycopg.connect(url) as owner:
        number = owner.execute("SELECT oid FROM pg_roles WHERE rolname = %s", (USER,)).fetchone()
        assert number is not None
        rule = old.format(user=f'"{USER}"', key=f"'{V1}'")
        policy = f"DROP POLICY assay_only_{number[0]} ON records; CREATE POLICY assay_only_{number[0]} ON records AS RESTRICTIVE"
        for statement in (*f"{before}; {policy} {rule}".split("; "), "UPDATE meta SET value = '6' WHERE key = 'schema_version'"):
            owner.execute(statement.encode())
    assert store.migrate(url) == (6, 7)  # whose rights are as they were made by version 6
    with ledger_kit.opened(place) as ledger:
        assert [(row.user, row.role, row.validator) for row in ledger.store.granted() if row.user == USER] == [
            (USER, "validator", V1)
        ]
        assert ledger.store.make_parts(3) == [4, 5, 6, 7]
        assert ledger.store.make_parts(4) == [8]
    mine, others = ledger_kit.batches(place, records(epoch=4, validators=[V1, V2]))
    with store.open(theirs(place)) as ours:
        assert intake.accept(ours, mine, intake.intake_rules(place)).new == 4
        assert ours.make_parts(9) == []
        with pytest.raises(store.Forbidden):
            ours.drop(store.StoredArchived(3, 0, b""), [])
        with ours.reading() as view:
            assert sorted(row.body for row in view.between(13, 16)) == sorted(mine.bodies)
    last = 4, 16
    forged = signed_anew(others, VALIDATORS[V1], validator=V1)  # V2's records in a batch of V1
    with psycopg.connect(theirs(place)) as connection:
        connection.execute(f"INSERT INTO batches VALUES ({', '.join(['%s'] * 10)})".encode(), batch_row(forged, last))
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="of another validator than its batch"):
            connection.execute(
                f"INSERT INTO records VALUES ({', '.join(['%s'] * 7)})".encode(), next(iter(record_rows(forged, last)))
            )
    for statement in ("INSERT INTO bodies VALUES (4, 99, 'x')", "INSERT INTO bodies_4 VALUES (4, 99, 'x')", "DELETE FROM bodies"):
        with psycopg.connect(theirs(place)) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement.encode())
    with psycopg.connect(url) as owner, pytest.raises(psycopg.errors.RaiseException, match="bodies is append-only"):
        owner.execute("DELETE FROM bodies")


def test_a_body_that_is_left_out_counts_for_nobody(place: Path) -> None:
    """A validator's own user inserts its true batch without bodies: it is set aside, and nothing else is held up."""
    mine, _ = ledger_kit.batches(place, records(epoch=4, validators=[V1, V2]))
    with psycopg.connect(theirs(place)) as connection:
        connection.execute(f"INSERT INTO batches VALUES ({', '.join(['%s'] * 10)})".encode(), batch_row(mine, (3, 12)))
        for row in record_rows(mine, (3, 12)):
            values = (*row[:-1], b"")
            connection.execute(f"INSERT INTO records VALUES ({', '.join(['%s'] * 7)})".encode(), values)
    ledger_kit.add(place, records(epoch=4))
    with ledger_kit.opened(place) as ledger:
        settled = settling.settle(ledger, SIGNER, 4)
        assert [aside.why for aside in settled.aside] == ["record 13 has no body, and its epoch 4 is in no archive"]


def test_there_are_not_more_parts_than_a_query_may_look_at(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MOST", 6)
    with ledger_kit.opened(place) as ledger:
        assert ledger.store.make_parts(7) == [8, 9]
        assert ledger.store.make_parts(9) == []
        ledger_kit.add(place, records(epoch=12))  # without a part, in the row
        with ledger.store.reading() as view:
            assert len(list(view.records(12, 12))) == 12


def test_parts_that_cannot_be_made_hold_nothing_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> list[int]:
        raise store.StoreError("the disk is full")

    monkeypatch.setattr(parts, "make", refused)
    with ledger_kit.opened(ledger_kit.ledger_folder(tmp_path / "small")) as ledger:
        assert ledger.store.make_parts(3) == []
