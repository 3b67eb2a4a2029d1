"""A PostgreSQL that several share: what a validator's user may do, and that nobody without rights can hold up who has them."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

import ledger_kit
import postgres
import store_kit as kit
from assay.errors import BadInput
from assay.ledger import config, intake, settling, store
from assay.ledger.access import open_ledger
from assay.ledger.store import Store, Submission, rights
from assay.ledger.store.engine import LOCK
from cli_kit import output, refused, run
from inserting import batch_row, record_rows, signed_anew
from ledger_kit import SIGNER, V1, V2, VALIDATORS

ROLES = ("val-1", "100%", "stranger", "operator")


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Cluster]:
    """A server for this file's tests, whose users are gone with it."""
    with postgres.cluster() as cluster:
        for role in ROLES:
            cluster.sql("postgres", f"CREATE ROLE \"{role}\" LOGIN PASSWORD '{postgres.PASSWORD}'")
        yield cluster


def of(place: str, role: str) -> str:
    """The URL of another user."""
    return place.replace("//assay:", f"//{role.replace('%', '%25')}:")


def add(ledger: Store, *tasks: int) -> None:
    with ledger.writing() as tx:
        tx.add_batch(kit.signed(*kit.trials(tasks)))


def test_a_validators_user_reads_and_adds_evidence_and_no_more(server: postgres.Cluster, tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small", database=server.database())
    url = config.read(place).place
    server.sql(url, 'GRANT ALL ON ALL TABLES IN SCHEMA public TO "val-1"; GRANT SELECT ON receipts TO PUBLIC')  # too much
    assert output("ledger", "grant", place, "val-1") == "val-1 may read the ledger and add evidence, and nothing else.\n"
    output("ledger", "grant", place, "100%")
    batches = list(ledger_kit.batches(place, ledger_kit.records()))
    with store.open(of(url, "val-1")) as theirs:
        for batch in batches:
            assert intake.accept(theirs, batch, intake.intake_rules(place)).new == 4
        assert theirs.elsewhere() is None
        forbidden: list[Callable[[store.Writer], object]] = [
            lambda tx: tx.add_submission(Submission("m1", "s1", 3)),
            lambda tx: tx.add_settled(*kit.settled(3)),
            lambda tx: tx.add_checked(1, b"{}"),
            lambda tx: tx.add_attempts("chain", b"{}"),
            *(
                lambda tx, statement=statement: tx._connection.exec_driver_sql(statement)
                for statement in (
                    "UPDATE meta SET value = '9' WHERE key = 'schema_version'",
                    "UPDATE batches SET epoch = 9",
                    "DELETE FROM records",
                    "TRUNCATE records",
                    "DROP TRIGGER records_append_only ON records",
                    "CREATE TABLE mine ()",
                    "INSERT INTO assay_turn DEFAULT VALUES",
                )
            ),
        ]
        for act in forbidden:
            with pytest.raises(store.Forbidden, match="the user may not do this"), theirs.writing() as tx:
                act(tx)
        with pytest.raises(store.Forbidden, match="assay ledger grant"):
            theirs.adopt()
    with store.open(of(url, "100%")) as theirs, theirs.reading() as view:
        assert view.count() == 12
    with pytest.raises(store.Forbidden):
        store.open(of(url, "stranger")).close()
    with ledger_kit.opened(place) as ledger:
        assert settling.settle(ledger, SIGNER, 3).new
    assert output("ledger", "grant", place, "val-1", "--revoke", "--json") == '{"rights":"none","user":"val-1"}\n'
    with pytest.raises(store.Forbidden):
        store.open(of(url, "val-1")).close()


@pytest.mark.no_cover
def test_what_a_validators_user_writes_in_anothers_name_never_counts(server: postgres.Cluster, tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small", database=server.database())
    url = config.read(place).place
    output("ledger", "grant", place, "val-1")
    ledger_kit.add(place, ledger_kit.records())
    (of_v2,) = ledger_kit.batches(place, ledger_kit.records(validators=[V2], trial=2))
    forged = [signed_anew(of_v2, VALIDATORS[V1]), signed_anew(of_v2, validator=V1)]  # V2 named by the batch, and by its records
    with psycopg.connect(of(url, "val-1")) as theirs:
        for number, batch in enumerate(forged):
            last = 3 + number, 12 + 4 * number
            theirs.execute(f"INSERT INTO batches VALUES ({', '.join(['%s'] * 10)})".encode(), batch_row(batch, last))
            for row in record_rows(batch, last):
                theirs.execute(f"INSERT INTO records VALUES ({', '.join(['%s'] * 7)})".encode(), row)
    for statement in ("UPDATE batches SET count = 0", "DELETE FROM records"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege), psycopg.connect(of(url, "val-1")) as theirs:
            theirs.execute(f"{statement} WHERE epoch = 3".encode())
    with ledger_kit.opened(place) as ledger:
        assert intake.accept(ledger.store, of_v2, intake.intake_rules(place)).new == 4  # the true one is not kept out
        settled = settling.settle(ledger, SIGNER, 3)
        assert [(aside.batch.id, aside.batch.validator) for aside in settled.aside] == [(4, V2), (5, V1)]
        with ledger.counted() as view:
            assert view.count() == 16


def test_a_validators_folder_needs_no_log(server: postgres.Cluster, tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small", database=server.database())
    output("ledger", "grant", place, "val-1")
    ledger_kit.add(place, ledger_kit.records())
    theirs = tmp_path / "theirs"
    shutil.copytree(place, theirs, ignore=shutil.ignore_patterns("log", "acknowledged.jsonl"))
    url = of(config.read(place).place, "val-1")
    (theirs / "ledger.toml").write_text((place / "ledger.toml").read_text().replace(config.read(place).database, url))
    assert output("settle", theirs, "--dry-run") == output("settle", place, "--dry-run").replace(str(place), str(theirs))
    assert not (theirs / "log").exists()
    why = "the log's folder is missing, and there is no receipt from which to make it again"
    assert f"theirs/log: {why}; only the machine that settles has it" in refused("ledger", "check", theirs)
    with open_ledger(theirs) as ledger, pytest.raises(BadInput, match=why):
        settling.settle(ledger, SIGNER)
    with open_ledger(place) as ledger:
        settling.settle(ledger, SIGNER)
    assert "1 receipt in the log. Everything is intact." in output("ledger", "check", theirs)


def test_who_has_no_right_cannot_hold_up_writers(server: postgres.Cluster) -> None:
    place = server.database()
    store.create(place, kit.META).close()
    server.sql(place, 'GRANT SELECT ON ALL TABLES IN SCHEMA public TO "val-1"')
    for role in ("stranger", "val-1"):
        with psycopg.connect(of(place, role)) as theirs, store.open(place, wait=0.2) as ledger:
            theirs.execute("SELECT pg_advisory_lock(%s)", (LOCK,))
            add(ledger, len(role))
            for mode in ("EXCLUSIVE", "SHARE", "ROW EXCLUSIVE"):
                theirs.rollback()
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    theirs.execute(f"LOCK TABLE assay_turn IN {mode} MODE")


def test_a_ledger_of_before_takes_turns_by_the_advisory_lock(server: postgres.Cluster) -> None:
    place = server.database()
    with store.create(place, kit.META) as first:
        server.sql(place, "DROP TABLE assay_turn")
        with store.open(place, wait=0.05) as second, first.writing() as tx:
            tx.add_batch(kit.signed(kit.trial_record()))
            with pytest.raises(store.DatabaseBusy):
                add(second, 2)
        first.grant("val-1")
        with store.open(of(place, "val-1"), wait=0.05) as second, first.writing() as tx:
            tx.add_batch(kit.signed(*kit.trials([3])))
            with pytest.raises(store.DatabaseBusy):
                add(second, 2)


def test_whom_rights_do_not_bind_is_refused(server: postgres.Cluster, tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small", database=server.database())
    assert "there is no user 'nobody' on the server; make one: createuser" in refused("ledger", "grant", place, "nobody")
    assert "the user 'assay' is a superuser, so rights do not bind it" in refused("ledger", "grant", place, "assay")
    server.sql("postgres", 'CREATE ROLE owner LOGIN; GRANT owner TO "val-1"')
    server.sql(config.read(place).place, "ALTER TABLE batches OWNER TO owner")
    assert "the user 'val-1' is the owner, or may act as the owner, so" in refused("ledger", "grant", place, "val-1")
    url = config.read(place).place
    server.sql(url, "GRANT SELECT ON meta TO stranger; GRANT SELECT, UPDATE ON assay_turn TO stranger")
    with store.open(of(url, "stranger")) as theirs, pytest.raises(BadInput, match="somebody else owns the tables; grant as"):
        theirs.grant("100%")


def test_a_turn_that_is_kept_ends_by_the_servers_limits(server: postgres.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights, "LIMITS", {"idle_in_transaction_session_timeout": "300ms", "statement_timeout": "400ms"})
    place = server.database()
    with store.create(place, kit.META) as ledger:
        assert ledger.grant("val-1")
        for keeps in ("SELECT 1", "SELECT pg_sleep(60)"):
            with suppress(psycopg.Error), psycopg.connect(of(place, "val-1")) as theirs:
                theirs.execute("LOCK TABLE assay_turn IN EXCLUSIVE MODE")
                with suppress(psycopg.errors.QueryCanceled):
                    theirs.execute(keeps)
                add(ledger, len(keeps))  # it waits, and not for long
        ledger.revoke("val-1")
        query = (
            "SELECT count(*) FROM pg_db_role_setting JOIN pg_database d ON d.oid = setdatabase AND datname = current_database()"
        )
        assert server.sql(place, query) == "0\n"


def test_who_undoes_the_limits_is_named_and_ended(server: postgres.Cluster, tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small", database=server.database())
    url = config.read(place).place
    output("ledger", "grant", place, "val-1")
    with psycopg.connect(of(url, "val-1")) as theirs, store.open(url, wait=0.2) as ledger:
        theirs.execute("SET idle_in_transaction_session_timeout = 0; LOCK TABLE assay_turn IN EXCLUSIVE MODE")
        pid = theirs.info.backend_pid
        with pytest.raises(store.DatabaseBusy, match=rf"val-1 \(process {pid} of the server\) holds it; .*DIR USER --revoke"):
            add(ledger, 1)
        printed = output("ledger", "grant", place, "val-1", "--revoke")
        assert printed == "val-1 has no rights in the ledger any more; 1 session ended.\n"
        add(ledger, 1)
        with pytest.raises(psycopg.OperationalError):
            theirs.execute("SELECT 1")
        theirs.close()


def test_who_has_the_turn_is_left_out_where_the_server_does_not_tell(server: postgres.Cluster) -> None:
    place = server.database()
    with store.create(place, kit.META) as ledger:
        ledger.grant("val-1")
        server.sql(place, "REVOKE SELECT ON pg_locks FROM PUBLIC")  # in this database alone
        with store.open(of(place, "val-1"), wait=0.05) as theirs, ledger.writing() as tx:
            tx.add_batch(kit.signed(kit.trial_record()))
            with pytest.raises(store.DatabaseBusy, match="another program kept it locked, nothing of this was stored") as refusal:
                add(theirs, 2)
        assert "holds it" not in str(refusal.value)
        assert "--revoke" not in str(refusal.value)


def test_a_user_whom_somebody_else_is_changing_is_given_nothing(server: postgres.Cluster) -> None:
    place = server.database()
    store.create(place, kit.META).close()
    with psycopg.connect(place) as other, store.open(place, wait=0.05) as ledger:
        other.execute(f"ALTER ROLE \"val-1\" IN DATABASE {make_url(place).database} SET statement_timeout = '1s'")
        with pytest.raises(store.DatabaseBusy, match="another program kept it locked, nothing of this was stored"):
            ledger.grant("val-1")
        other.rollback()
        with pytest.raises(store.Forbidden):
            store.open(of(place, "val-1")).close()
        assert ledger.grant("val-1")
    with store.open(of(place, "val-1")) as theirs:
        add(theirs, 1)


def test_an_owner_who_may_not_set_limits_or_end_sessions_is_told_who_may(server: postgres.Cluster, tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small", database=server.database())
    url = config.read(place).place
    server.sql(url, "GRANT CREATE ON SCHEMA public TO operator")
    tables = server.sql(url, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    server.sql(url, "".join(f"ALTER TABLE {name} OWNER TO operator;" for name in tables.split()))
    text = (place / "ledger.toml").read_text().replace(url, of(url, "operator"))
    (place / "ledger.toml").write_text(text)
    printed = " ".join(run("ledger", "grant", place, "stranger").stderr.split())
    assert "no time limit was set for stranger" in printed
    assert "ALTER ROLE (owner) CREATEROLE" in printed
    with psycopg.connect(of(url, "stranger")) as theirs:
        theirs.execute("SELECT 1")
        printed = " ".join(run("ledger", "grant", place, "stranger", "--revoke").stderr.split())
        assert "1 of the sessions of stranger continue" in printed
        assert "GRANT pg_signal_backend TO (owner)" in printed


def test_a_file_has_no_users(tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small")
    why = "the ledger is a file, which has no users; files have file permissions; whoever may write"
    assert why in refused("ledger", "grant", place, "val-1")
