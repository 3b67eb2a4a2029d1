"""Least rights on a shared PostgreSQL: the database itself refuses what a user's role does not allow, row by row."""

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

import ledger_kit
import postgres
import store_kit as kit
from assay.errors import BadInput
from assay.ledger import config, intake, keys, settling, store
from assay.ledger.batch import Batch
from assay.ledger.leases import CellLeases
from assay.ledger.store import Forbidden, Submission, rights, schema
from assay.serve.notebook import EVERY_TABLE, Notebook
from cli_kit import output, refused, run
from inserting import batch_row, record_rows, signed_anew
from ledger_kit import SIGNER, V1, V2, VALIDATORS
from test_ledger_rights import of

ROLES = ("val-1", "o'b\"; DROP TABLE records; --%s{0}", "reader", "service", "settler", "arena", "team", "maker", "late", "plain")
STRANGE = ROLES[1]
SECRET = ("serve_keys", "serve_invitations", "serve_nonces", "serve_logs")
ONLY = "this user of the database may write only its own validator's evidence and leases"


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Cluster]:
    """A server for this file's tests, whose users are gone with it."""
    with postgres.cluster() as cluster:
        for role in ROLES:
            quoted = role.replace('"', '""')
            cluster.sql("postgres", f"CREATE ROLE \"{quoted}\" LOGIN PASSWORD '{postgres.PASSWORD}'")
        yield cluster


@pytest.fixture
def place(server: postgres.Cluster, tmp_path: Path) -> Path:
    """A competition whose ledger is on the server, with the tables of the service."""
    folder = ledger_kit.ledger_folder(tmp_path / "small", database=server.database())
    Notebook(config.read(folder).place).close()
    return folder


def as_user(place: Path, user: str, folder: Path) -> Path:
    """A copy of the folder whose ledger.toml names this user."""
    shutil.copytree(place, folder)
    url = config.read(place).database
    (folder / "ledger.toml").write_text((place / "ledger.toml").read_text().replace(url, of(url, user)))
    return folder


def denied(url: str, *statements: str) -> list[str]:
    """Statements that a user of the database tries, each of which the database refuses; the states it gives."""
    states = []
    for statement in statements:
        with psycopg.connect(url) as connection, pytest.raises(psycopg.Error) as error:
            connection.execute(statement.encode())
        states.append(str(error.value.sqlstate))
    return states


@pytest.mark.no_cover
def test_a_validators_user_adds_the_evidence_of_that_validator_alone(place: Path, tmp_path: Path) -> None:
    url = config.read(place).place
    printed = output("ledger", "grant", place, "val-1", "--validator", "val-1")
    assert " ".join(printed.split()) == f"val-1 may read the ledger and add evidence of {V1}, and nothing else."
    theirs = of(url, "val-1")
    rules, (first, second) = intake.intake_rules(place), ledger_kit.batches(place, ledger_kit.records(validators=[V1, V2]))
    with store.open(theirs) as worker:
        assert intake.accept(worker, first, rules).new == 4
        with pytest.raises(Forbidden, match=ONLY) as error:
            intake.accept(worker, second, rules)
        assert "send the batches: `assay evidence sign`" in str(error.value)
        assert worker.elsewhere() is None
        worker.check_author(V1)
    with ledger_kit.opened(place) as ledger, ledger.counted() as view:
        assert view.count() == 4
    _rows_of_another(theirs, second)
    nothing = [
        *("UPDATE batches SET epoch = 9", "DELETE FROM records", "TRUNCATE records", "DROP POLICY assay_rows ON batches"),
        *("ALTER TABLE records DISABLE ROW LEVEL SECURITY", "INSERT INTO standing VALUES ('p', '')", "CREATE TABLE mine ()"),
        *(f"SELECT * FROM {name}" for name in SECRET),
    ]
    assert set(denied(theirs, *nothing)) == {"42501"}


def _rows_of_another(url: str, second: Batch) -> None:
    """Rows of V2 are refused: its batch, records in it or in V1's, and V1's batch with records that name V2."""
    into = {
        name: f"INSERT INTO {name} VALUES ({', '.join(['%s'] * size)})".encode()
        for name, size in (("batches", 10), ("records", 7))
    }
    mine, last = signed_anew(second, VALIDATORS[V1], validator=V1), (1, 4)
    with psycopg.connect(url) as connection:
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="assay_only_"):
            connection.execute(into["batches"], batch_row(second, last))
        connection.rollback()
        connection.execute(into["batches"], batch_row(mine, last))  # with the records of V2 in it
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="assay_only_"):
            connection.execute(into["records"], record_rows(mine, last)[0])
        connection.rollback()
        connection.execute(into["batches"], batch_row(mine, last))
        with pytest.raises(psycopg.DatabaseError):  # no JSON at all
            connection.execute(into["records"], record_rows(mine, last, body=b"\xff")[0])


@pytest.mark.no_cover
def test_records_in_the_batch_of_another_are_refused(place: Path) -> None:
    url = config.read(place).place
    output("ledger", "grant", place, "val-1", "--validator", V1)
    mine, second = ledger_kit.batches(place, ledger_kit.records(validators=[V1, V2]))
    with psycopg.connect(url) as owner, psycopg.connect(of(url, "val-1")) as theirs:
        marks = ", ".join(["%s"] * 10)
        owner.execute(f"INSERT INTO batches VALUES ({marks})".encode(), batch_row(second, (0, 0)))
        owner.commit()
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="assay_only_"):
            theirs.execute(b"INSERT INTO records VALUES (%s, %s, %s, %s, %s, %s, %s)", record_rows(mine, (0, 0))[0])


def test_a_validators_user_has_that_validators_leases_alone(place: Path, tmp_path: Path) -> None:
    settings = config.read(place)
    output("ledger", "grant", place, "val-1", "--validator", V1)
    with CellLeases(settings, V2, "two") as other:
        assert other.claim(("s1", "t1", 1)) == "ours"
        theirs = config.read(as_user(place, "val-1", tmp_path / "theirs"))
        with CellLeases(theirs, V1, "one") as worker:
            assert worker.claim(("s1", "t1", 1)) == "ours"
            worker.renew()
            worker.release(("s1", "t1", 1))
        with pytest.raises(Forbidden, match=ONLY), CellLeases(theirs, V2, "one") as thief:
            thief.claim(("s2", "t2", 1))
        with psycopg.connect(of(settings.place, "val-1")) as connection:
            for statement in ("SELECT * FROM run_leases", "UPDATE run_leases SET holder = 'one'", "DELETE FROM run_leases"):
                assert connection.execute(statement.encode()).rowcount == 0
        assert other.holds(("s1", "t1", 1))


def test_a_run_or_an_addition_for_another_validator_gets_one_sentence(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    monkeypatch.delenv("ASSAY_PASSPHRASE", raising=False)
    keys.save("val-2", VALIDATORS[V2])
    output("ledger", "grant", place, "val-1", "--validator", V1)
    theirs = as_user(place, "val-1", tmp_path / "theirs")
    (of_v2,) = ledger_kit.batches(place, ledger_kit.records(validators=[V2]))
    (file := tmp_path / "two.batch").write_bytes(b"\n".join([of_v2.envelope, *of_v2.bodies, b""]))
    added = run("evidence", "add", theirs, file, columns=10_000, code=2)
    assert added.stdout == "0 records added by 0 batches; 1 refused.\n"
    (message,) = added.stderr.splitlines()
    assert ONLY in message
    message = refused("run", theirs, "--sign", "val-2")  # before anything is judged
    assert f"{ONLY}: {V1}, not {V2}; use the user that the operator made for this validator" in message


@pytest.mark.no_cover
def test_the_owner_works_where_row_level_security_is_forced(server: postgres.Cluster, place: Path) -> None:
    output("ledger", "grant", place, "val-1", "--validator", V1)
    url = config.read(place).place
    server.sql(url, "CREATE ROLE keeper LOGIN; GRANT CREATE, USAGE ON SCHEMA public TO keeper; REASSIGN OWNED BY keeper TO assay")
    tables = server.sql(url, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'").split()
    server.sql(
        url, f"ALTER ROLE keeper PASSWORD '{postgres.PASSWORD}';" + "".join(f"ALTER TABLE {t} OWNER TO keeper;" for t in tables)
    )
    server.sql(url, "".join(f"ALTER TABLE {name} FORCE ROW LEVEL SECURITY;" for name in rights.RULED))
    (place / "ledger.toml").write_text((place / "ledger.toml").read_text().replace(url, of(url, "keeper")))
    ledger_kit.add(place, ledger_kit.records())
    with ledger_kit.opened(place) as ledger:
        assert settling.settle(ledger, SIGNER, 3).new
        assert {each.user: each.role for each in ledger.store.granted()} == {"keeper": "owner", "val-1": "validator"}


def test_service_settler_and_reader_do_their_work_and_no_more(place: Path, tmp_path: Path) -> None:
    url = config.read(place).place
    for user, role in (("service", "service"), ("settler", "settler"), ("reader", "reader"), ("arena", "operator")):
        output("ledger", "grant", place, user, "--role", role)
    served = as_user(place, "service", tmp_path / "served")
    ledger_kit.add(served, ledger_kit.records())
    with store.open(of(url, "service")) as served_store, served_store.writing() as tx:
        tx.add_submission(Submission("m1", "s1", 3))
    _keep_a_notebook(of(url, "service"))
    assert set(denied(of(url, "service"), "INSERT INTO inputs VALUES ('', '')", "DELETE FROM standing")) == {"42501"}
    with ledger_kit.opened(as_user(place, "settler", tmp_path / "settler")) as ledger:
        assert settling.settle(ledger, SIGNER, 3).new
        with ledger.store.writing() as tx:
            tx.add_attempts("chain", b"{}")
        with pytest.raises(Forbidden, match="the user may not do this"), ledger.store.writing() as tx:
            tx.add_batch(kit.signed(kit.trial_record(epoch=4)))
    never = ("DELETE FROM receipts", "UPDATE meta SET value = ''", *(f"SELECT * FROM {name}" for name in SECRET))
    assert set(denied(of(url, "settler"), *never)) == {"42501"}
    ledger_kit.add(place, ledger_kit.records(epoch=4))
    operator = as_user(place, "arena", tmp_path / "operator")
    with ledger_kit.opened(operator) as ledger:
        assert settling.settle(ledger, SIGNER, 4).new
    _keep_a_notebook(of(url, "arena"))
    with store.open(of(url, "reader")) as read_store, read_store.reading() as view:
        assert view.count() == 24
    assert set(denied(of(url, "reader"), "INSERT INTO assay_turn DEFAULT VALUES", "LOCK TABLE assay_turn", *never)) == {"42501"}


def _keep_a_notebook(url: str) -> None:
    now = datetime(2026, 11, 28, tzinfo=UTC)
    with closing(Notebook(url)) as notebook:
        notebook.register(f"m-{url[13:17]}", f"k-{url[13:17]}", now)
        notebook.beat(V1, now, [])


def test_who_may_what_is_shown(server: postgres.Cluster, place: Path) -> None:
    url = config.read(place).place
    output("ledger", "grant", place, "val-1", "--validator", V1)
    output("ledger", "grant", place, "plain")
    output("ledger", "grant", place, "reader", "--role", "reader")
    server.sql(url, "GRANT SELECT ON serve_keys TO maker; GRANT UPDATE (value) ON meta TO late; GRANT plain TO team")
    server.sql(url, 'GRANT SELECT ON serve_keys TO "settler" WITH GRANT OPTION')
    users = {each["user"]: each for each in json.loads(output("ledger", "grants", place, "--json"))["grants"]}
    assert {user: each["role"] for user, each in users.items()} == {
        "assay": "superuser", "late": "other", "maker": "other", "plain": "evidence", "reader": "reader", "settler": "other",
        "team": "evidence", "val-1": "validator",
    }  # fmt: skip
    assert users["val-1"] == {
        "user": "val-1", "role": "validator", "validator": V1, "limited": True, "through": [], "tables": users["plain"]["tables"]
    }  # fmt: skip
    assert users["team"]["through"] == ["plain"]
    assert users["late"]["tables"]["meta"] == ["UPDATE of value"]
    shown = output("ledger", "grants", place, columns=160)
    assert [line.split()[:2] for line in shown.splitlines() if line.startswith(("plain", "val-1"))] == [
        ["plain", "evidence"],
        ["val-1", "validator"],
    ]
    server.sql(url, "DROP POLICY assay_rows ON records; ALTER TABLE records DISABLE ROW LEVEL SECURITY; REVOKE plain FROM team")
    with store.open(url) as ledger:
        assert {each.user: each.role for each in ledger.granted(EVERY_TABLE)}["val-1"] == "other"
        ledger.grant("val-1", "validator", V1)
        assert {each.user: each.role for each in ledger.granted(EVERY_TABLE)}["val-1"] == "validator"


def test_strange_names_are_names_and_nothing_else(server: postgres.Cluster, place: Path) -> None:
    url = config.read(place).place
    with store.open(url) as ledger:
        for key in ('it\'s {key} \\ %s "x"; DROP TABLE records; --', V1):
            ledger.grant(STRANGE, "validator", key)
            assert [each.validator for each in ledger.granted() if each.user == STRANGE] == [key]
        ledger.revoke(STRANGE)
        assert STRANGE not in {each.user for each in ledger.granted()}
    assert server.sql(url, "SELECT count(*) FROM records") == "0\n"
    assert server.sql(url, "SELECT count(*) FROM pg_policy WHERE polname LIKE 'assay\\_only%'") == "0\n"


def test_a_user_with_rights_through_another_role_is_refused(server: postgres.Cluster, place: Path) -> None:
    url = config.read(place).place
    output("ledger", "grant", place, "team", "--role", "reader")
    server.sql(url, 'GRANT team TO "val-1"')
    refusal = refused("ledger", "grant", place, "val-1", "--validator", V1)
    assert "the user 'val-1' has other rights in the ledger through the role 'team', which are not the owner's to take" in refusal
    server.sql(url, 'REVOKE team FROM "val-1"; GRANT pg_write_all_data TO "val-1"')
    assert "through the role 'pg_write_all_data'" in refused("ledger", "grant", place, "val-1", "--validator", V1)
    server.sql(url, 'REVOKE pg_write_all_data FROM "val-1"; ALTER ROLE maker BYPASSRLS; ALTER ROLE late CREATEROLE')
    assert "'maker' bypasses row-level security, so rights do not bind it" in refused("ledger", "grant", place, "maker")
    assert "'late' may make roles, and join any, so rights do" in refused("ledger", "grant", place, "late")
    server.sql(url, "ALTER ROLE maker NOBYPASSRLS; ALTER ROLE late NOCREATEROLE")


def test_what_contradicts_itself_is_refused(place: Path, tmp_path: Path) -> None:
    words = ("ledger", "grant", place, "val-1")
    assert "--validator, --role and --revoke exclude one another" in refused(*words, "--validator", V1, "--revoke")
    assert "there is no role 'owner'; one of reader, service, settler, operator, or --validator" in refused(
        *words, "--role", "owner"
    )
    assert "validators.csv: there is no validator 'nobody'" in refused(*words, "--validator", "nobody")
    named = (place / "validators.csv").read_text()
    (place / "validators.csv").write_text(f"{named}somebody,1,\n")
    assert "validators.csv" in refused(*words, "--validator", "somebody")
    file = ledger_kit.ledger_folder(tmp_path / "file")
    why = "the ledger is a file, which has no users; files have file permissions"
    assert why in refused("ledger", "grants", file)
    assert why in refused("ledger", "grant", file, "val-1", "--validator", V1)
    with store.open(config.read(file).place) as ledger:
        ledger.check_author(V2)
    with store.open(config.read(place).place) as ledger:
        ledger.check_author(V2)
        with pytest.raises(BadInput, match="there is no user 'nobody'"):
            ledger.grant("nobody", "reader")


def test_a_table_in_use_is_not_waited_for_long(place: Path) -> None:
    url = config.read(place).place
    with psycopg.connect(url) as reader, store.open(url) as ledger:
        reader.execute("SELECT FROM records")
        with pytest.raises(store.DatabaseBusy, match="another program kept it locked"):
            ledger.grant("val-1", "validator", V1)
        reader.rollback()
        ledger.grant("val-1", "validator", V1)
        reader.execute("SELECT FROM records")
        assert ledger.revoke("val-1") == (0, 0)  # the policies stay
        assert [each.user for each in ledger.granted()] == ["assay"]
        reader.rollback()
        ledger.grant("val-1", "evidence")
        ledger.revoke("val-1")
        reader.execute("DROP OWNED BY team")
        assert reader.execute("SELECT FROM pg_policy WHERE polname LIKE 'assay\\_only%'").rowcount == 0


@pytest.mark.full
@pytest.mark.no_cover
def test_a_migration_keeps_the_policies(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = config.read(place).place
    output("ledger", "grant", place, "val-1", "--validator", V1)
    later = lambda connection: connection.exec_driver_sql("ALTER TABLE batches ADD COLUMN received_at TEXT")  # noqa: E731
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, later))
    store.migrate(url)
    first, second = ledger_kit.batches(place, ledger_kit.records(validators=[V1, V2]))
    with store.open(of(url, "val-1")) as worker:
        assert intake.accept(worker, first, intake.intake_rules(place)).new == 4
        with pytest.raises(Forbidden, match=ONLY):
            intake.accept(worker, second, intake.intake_rules(place))
        assert [each.validator for each in worker.granted() if each.user == "val-1"] == [V1]
