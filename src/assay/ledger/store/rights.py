"""Who may do what in a shared PostgreSQL: the owner all, a validator's user read all and add evidence, others nothing.

Writers take turns by locking the table `assay_turn`, which has no columns and no rows. PostgreSQL lets only those lock it who
have the right to change it, so that whoever may not write cannot hold up those who may. An advisory lock any role may take; a
database that does not have the table yet is written under one, until `grant` or a migration makes it.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, bindparam, text

from assay.errors import BadInput, brief
from assay.ledger.store.tables import SCHEMA, batches, records

__all__ = ["TURN", "grant", "make_turn", "revoke"]

TURN = "assay_turn"
EVIDENCE = (batches, records)
"""Where a validator's evidence is put: what its user may insert into."""
_ROLE = text(
    "SELECT r.rolsuper, pg_has_role(r.rolname, c.relowner, 'MEMBER') FROM pg_roles r, pg_class c"
    " WHERE r.rolname = :role AND c.oid = to_regclass('batches')"
).bindparams(bindparam("role"))
_OWNER = text("SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c WHERE c.oid = to_regclass('batches')")


def make_turn(connection: Connection) -> None:
    """The table by which writers take turns, if it is not there."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"CREATE TABLE IF NOT EXISTS {TURN} ()")


def grant(connection: Connection, role: str) -> None:
    """Let a user of the server read the ledger and add evidence, and nothing else; raises BadInput."""
    name = _checked(connection, role)
    _say(connection, _none(connection, name))
    make_turn(connection)
    database, schema = (_quoted(connection, one) for one in _names(connection))
    _say(
        connection,
        (
            f"GRANT CONNECT ON DATABASE {database} TO {name}",
            f"GRANT USAGE ON SCHEMA {schema} TO {name}",
            f"GRANT SELECT ON {_listed(SCHEMA.tables)} TO {name}",
            f"GRANT INSERT ON {_listed(table.name for table in EVIDENCE)} TO {name}",
            f"GRANT UPDATE ON {TURN} TO {name}",
        ),
    )


def revoke(connection: Connection, role: str) -> None:
    """Take every right in the ledger from a user of the server; raises BadInput."""
    _say(connection, _none(connection, _checked(connection, role)))


def _checked(connection: Connection, role: str) -> str:
    """A user as statements name it, who is there and whom rights bind; raises BadInput."""
    if connection.dialect.name != "postgresql":
        what = "the ledger is a file, which has no users"
        raise BadInput(what, hint="whoever may write the file may do everything; others send batches: assay evidence sign")
    if not connection.scalar(_OWNER):
        raise BadInput(
            "the tables are somebody else's", hint="grant as their owner: the user that `database` names in ledger.toml"
        )
    found = connection.execute(_ROLE, {"role": role}).first()
    if found is None:
        raise BadInput(f"there is no user {brief(role)} on the server", hint="make one: createuser --pwprompt NAME")
    if any(found):
        what = f"the user {brief(role)} is {'a superuser' if found[0] else 'the owner, or may act as it'}, whom no right binds"
        raise BadInput(what, hint="make a user for each validator: createuser --pwprompt NAME")
    return _quoted(connection, role)


def _none(connection: Connection, name: str) -> Iterable[str]:
    """The statements that take all rights from a user, and from everybody who has none by name."""
    _, schema = (_quoted(connection, one) for one in _names(connection))
    there = connection.exec_driver_sql(f"SELECT to_regclass('{TURN}') IS NOT NULL").scalar()
    tables = _listed([*SCHEMA.tables, *([TURN] if there else [])])
    yield f"REVOKE ALL ON {tables} FROM PUBLIC, {name}"
    yield f"REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC, {name}"


def _names(connection: Connection) -> tuple[str, str]:
    database, schema = connection.exec_driver_sql("SELECT current_database(), current_schema()").one()
    return str(database), str(schema)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _quoted(connection: Connection, name: str) -> str:
    return str(connection.dialect.identifier_preparer.quote_identifier(name))


def _say(connection: Connection, statements: Iterable[str]) -> None:
    for statement in statements:
        connection.exec_driver_sql(statement)
