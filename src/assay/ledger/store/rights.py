"""Say who may do what in a shared PostgreSQL, in the server's own words: privileges, and row-level security.

The owner of the tables may do everything; others may do what their role allows:

    reader      reads the ledger
    evidence    reads it, adds evidence of any validator, and has leases
    validator   the same, of one validator alone
    service     reads it, adds evidence and submissions, and keeps the service's tables
    settler     reads it, and adds what settling and publishing write
    operator    what service and settler may

Nobody else may do anything. Privileges cannot tell whose evidence a row is. So there is a restrictive policy for the user of one
validator on each table of `RULED`, which names the validator. A policy that admits every row stands beside it, since row-level
security admits none without one: it binds nobody, neither the owner nor the users without a validator.

Policies and privileges are in PostgreSQL's own catalog, and belong to the tables. A migration keeps them; a copy has none.
A user whom privileges do not bind (a superuser, the owner, one who bypasses row-level security, on servers before 16 one who may
make roles) is refused, and so is a user who has rights through another role.

A user who writes can hold its turn as long as its transaction lasts. `grant` sets time limits for a validator's user in this
database, which end a transaction that hangs. A session can change its own limits, so against a hostile user there is `revoke`: it
does not wait for a turn, and then ends the user's sessions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, Table, bindparam, func, inspect, select, text
from sqlalchemy.exc import DBAPIError

from assay.errors import BadInput, brief
from assay.ledger.store.engine import OTHERS_ROWS, Forbidden
from assay.ledger.store.parts import BODIES
from assay.ledger.store.schema import TURN, make_turn
from assay.ledger.store.tables import (
    SCHEMA,
    archived,
    attempts,
    batches,
    checked,
    inputs,
    leases,
    receipts,
    records,
    settlements,
    standing,
    submissions,
    witnessed,
)

__all__ = [
    "LIMITS",
    "ROLES",
    "Granted",
    "bound_to",
    "check_author",
    "end_sessions",
    "grant",
    "granted",
    "renew",
    "revoke",
    "unbind",
]

LIMITS = {"idle_in_transaction_session_timeout": "2min", "statement_timeout": "10min"}
"""PostgreSQL's time limits for a validator's user: for an idle transaction, and for one statement."""
LOCK_MS = 500
"""Milliseconds that a change of policies waits at once for those who use a table: readers who come meanwhile wait behind it."""
_EVIDENCE = (batches, records)
_SERVICE = (*_EVIDENCE, submissions)
_SETTLING = (inputs, settlements, receipts, attempts, checked, witnessed, standing)
_ADDS: dict[str, Sequence[Table]] = {
    "reader": (),
    "evidence": _EVIDENCE,
    "validator": _EVIDENCE,
    "service": _SERVICE,
    "settler": _SETTLING,
    "operator": (*_SERVICE, *_SETTLING),
}
"""Role → the ledger's tables into which it inserts."""
ROLES = tuple(_ADDS)
_LIMITED, _SERVES, _SETTLES = ("evidence", "validator"), ("service", "operator"), ("settler", "operator")
_ROWS = frozenset({"SELECT", "INSERT", "UPDATE", "DELETE"})
RULED = {
    "batches": "FOR INSERT TO {user} WITH CHECK (validator = {key})",
    "records": (
        "FOR INSERT TO {user} WITH CHECK (EXISTS (SELECT FROM batches b WHERE b.id = records.batch AND b.validator = {key})"
        " AND CASE WHEN body = ''::bytea THEN true ELSE pg_catalog.convert_from(body, 'UTF8')::json ->> 'validator' = {key} END)"
    ),
    "run_leases": "FOR ALL TO {user} USING (validator = {key})",
}
"""Table → whose rows the user of one validator may write, in the order in which the tables are locked."""
_ADMITS = "assay_rows"
_REFUSED = "42501"
"""PostgreSQL's SQLSTATE for a missing right."""
_USER = text(
    "SELECT r.oid, r.rolsuper, pg_has_role(r.rolname, c.relowner, 'MEMBER') AS owns, r.rolbypassrls AS bypasses,"
    " r.rolcreaterole AND current_setting('server_version_num')::int < 160000 AS makes"
    " FROM pg_roles r, pg_class c WHERE r.rolname = :role AND c.oid = to_regclass('batches')"
).bindparams(bindparam("role"))
_UNBOUND = {
    "rolsuper": "is a superuser",
    "owns": "is the owner, or may act as the owner",
    "bypasses": "bypasses row-level security",
    "makes": "may make roles, and join any",
}
_OWNER = text("SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c WHERE c.oid = to_regclass('batches')")
_OWNED = text(
    "SELECT t.relname FROM pg_class t, pg_class c WHERE c.oid = to_regclass('batches') AND t.relowner = c.relowner"
    " AND t.relnamespace = c.relnamespace AND t.relkind IN ('r', 'p', 'S') ORDER BY t.relname"
)
_GRANTED = text(
    "WITH ours AS (SELECT oid, relname, relacl, relowner FROM pg_class WHERE relname = ANY(:names) AND relkind IN ('r', 'p')"
    " AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('batches'))),"
    " given AS (SELECT o.relname, a.grantee, a.privilege_type AS may"
    " FROM ours o, aclexplode(coalesce(o.relacl, acldefault('r', o.relowner))) a"
    " UNION SELECT o.relname, a.grantee, a.privilege_type || ' of ' || t.attname FROM ours o"
    " JOIN pg_attribute t ON t.attrelid = o.oid, aclexplode(t.attacl) a"
    " UNION SELECT o.relname, g.oid, p.may FROM ours o, (VALUES ('pg_read_all_data', 'SELECT'), ('pg_write_all_data', 'INSERT'),"
    " ('pg_write_all_data', 'UPDATE'), ('pg_write_all_data', 'DELETE')) p(role, may) JOIN pg_roles g ON g.rolname = p.role)"
    " SELECT r.oid, r.rolname, given.relname, given.may, g.rolname AS through, r.rolsuper,"
    " pg_has_role(r.oid, (SELECT relowner FROM ours WHERE relname = 'batches'), 'MEMBER') AS owns,"
    " EXISTS (SELECT FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase AND d.datname = current_database()"
    " WHERE s.setrole = r.oid) AS limited"
    " FROM given LEFT JOIN pg_roles g ON g.oid = given.grantee JOIN pg_roles r ON given.grantee = 0"
    " OR CASE WHEN r.rolsuper THEN r.oid = given.grantee ELSE pg_has_role(r.oid, given.grantee, 'MEMBER') END"
    " WHERE r.rolname !~ '^pg_' ORDER BY r.rolname, given.relname, given.may"
)
_POLICIES = text(
    "SELECT c.relname, p.polroles[1] AS number,"
    " coalesce(pg_get_expr(p.polwithcheck, c.oid), pg_get_expr(p.polqual, c.oid)) AS rule,"
    " p.polname = 'assay_only_' || p.polroles[1] AND NOT p.polpermissive AND cardinality(p.polroles) = 1 AND c.relrowsecurity"
    " AND p.polcmd IN ('a', '*') AS whole FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid"
    " WHERE p.polname LIKE 'assay\\_only\\_%' AND c.relnamespace ="
    " (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('batches')) ORDER BY c.relname"
)
_KEY = re.compile(r"validator\)? = '((?:[^']|'')*)'::text|'validator'::text\) = '((?:[^']|'')*)'::text")


@dataclass
class Granted:
    """The rights of a user of the server: its role, or `owner`, `superuser`, `other`; `other` is no role of ours.

    validator: the one whose rows alone it may write. tables: what it may do with each. through: other roles from which it has
    some of it. limited: whether the server ends its transactions that hang.
    """

    user: str
    role: str = "other"
    validator: str | None = None
    limited: bool = False
    through: list[str] = field(default_factory=list)
    tables: dict[str, list[str]] = field(default_factory=dict)


def privileges(role: str, beside: Iterable[str] = ()) -> dict[str, frozenset[str]]:
    """Table → what a role may do with its rows. beside: the names of the service's tables."""
    may = {name: {"SELECT"} for name in (*SCHEMA.tables, BODIES)}
    for table in _ADDS[role]:
        may[table.name].add("INSERT")
    if role in _SETTLES:
        may[standing.name].add("DELETE")
    if _ADDS[role]:
        may[TURN] = {"UPDATE"}
    if role in _LIMITED:
        may[leases.name] = set(_ROWS)
    if role in _SERVES:
        may |= {name: set(_ROWS) for name in beside}
    return {name: frozenset(rights) for name, rights in may.items()}


def grant(connection: Connection, user: str, role: str, validator: str | None = None, beside: Sequence[Table] = ()) -> bool:
    """Give a user of the server a role, and take its other rights; raises BadInput, and DatabaseBusy if a table is in use.

    validator: the one of the role `validator`. beside: the service's tables. Returns whether the time limits of the role were
    set: that needs a superuser, or an owner with CREATEROLE.
    """
    number, name = _checked_user(connection, user)
    _make_tables(connection, role, beside)
    _run(connection, _revoking(connection, name, beside))
    _drop_policies(connection, number)
    database, schema = (_quoted(connection, identifier) for identifier in _database_names(connection))
    wanted = privileges(role, (table.name for table in beside))
    _run(connection, (f"GRANT CONNECT ON DATABASE {database} TO {name}", f"GRANT USAGE ON SCHEMA {schema} TO {name}"))
    _run(connection, (f"GRANT {', '.join(sorted(may))} ON {table} TO {name}" for table, may in sorted(wanted.items())))
    if role in _SERVES:
        _run(connection, (f"GRANT USAGE ON SEQUENCE {each} TO {name}" for each in _sequences(connection, beside)))
    if validator is not None:
        _bind(connection, number, name, validator)
    given = next(each for each in granted(connection, beside) if each.user == user)
    if given.through or given.role != role:
        through = f" through the role {given.through[0]!r}" if given.through else ""
        what = f"the user {brief(user)} has other rights in the ledger{through}, which are not the owner's to take"
        raise BadInput(what, hint="take the user out of that role, or make a new user: createuser --pwprompt NAME")
    if role not in _LIMITED:
        _permitted(connection, _limits(connection, name, [f"RESET {setting}" for setting in LIMITS]))
        return True
    return _permitted(connection, _limits(connection, name, [f"SET {setting} = '{value}'" for setting, value in LIMITS.items()]))


def revoke(connection: Connection, user: str, beside: Sequence[Table] = ()) -> None:
    """Take every right in the ledger from a user of the server; raises BadInput. Its sessions continue: see `end_sessions`."""
    _, name = _checked_user(connection, user)
    _run(connection, _revoking(connection, name, beside))
    _permitted(connection, _limits(connection, name, [f"RESET {setting}" for setting in LIMITS]))


def unbind(connection: Connection, user: str) -> None:
    """Remove the policies for a user who has no rights any more; raises DatabaseBusy if a table is in use."""
    number, _ = _checked_user(connection, user)
    _drop_policies(connection, number)


def renew(connection: Connection) -> None:
    """Give those who read records the tables of version 7 of the schema, and make the policies on records anew."""
    readers = (
        "SELECT DISTINCT grantee::regrole::text FROM pg_class, aclexplode(relacl) WHERE oid = to_regclass('records')"
        " AND privilege_type = 'SELECT' AND grantee NOT IN (0, relowner)"
    )
    for name in connection.exec_driver_sql(readers).scalars().all():
        connection.exec_driver_sql(f"GRANT SELECT ON {BODIES}, {archived.name} TO {name}")
    bound = {number: name for number, tables in _validators(connection).items() if (name := tables.get(records.name))}
    for number, validator in bound.items():
        name = connection.exec_driver_sql("SELECT quote_ident(rolname) FROM pg_roles WHERE oid = %s", (number,)).scalar_one()
        connection.exec_driver_sql(f"DROP POLICY assay_only_{number} ON {records.name}")
        _make_policy(connection, records.name, number, name, validator)


def end_sessions(connection: Connection, user: str) -> tuple[int, int]:
    """End a user's sessions in this database; returns how many were ended, and how many we may not end."""
    query = text("SELECT pid FROM pg_stat_activity WHERE usename = :role AND datname = current_database()")
    sessions = connection.scalars(query, {"role": user}).all()
    ended = sum(_permitted(connection, [f"SELECT pg_terminate_backend({pid}, 5000)"]) for pid in sessions)
    return ended, len(sessions) - ended


def granted(connection: Connection, beside: Sequence[Table] = ()) -> list[Granted]:
    """The users with any right in the ledger, by name; superusers without rights of their own are left out. Raises BadInput."""
    _check_server(connection)
    service = [table.name for table in beside]
    users, numbers = dict[str, Granted](), dict[str, int]()
    for row in connection.execute(_GRANTED, {"names": [*SCHEMA.tables, BODIES, TURN, leases.name, *service]}):
        user = users.setdefault(row.rolname, Granted(row.rolname, limited=row.limited))
        numbers[row.rolname] = row.oid
        user.role = "superuser" if row.rolsuper else "owner" if row.owns else "other"
        may = user.tables.setdefault(row.relname, [])
        may += [row.may] * (row.may not in may)
        through = "PUBLIC" if row.through is None else row.through
        user.through += [through] * (through != user.user and through not in user.through)
    policies = _validators(connection)
    there = set(service) & set(inspect(connection).get_table_names())
    for user in users.values():
        if user.role == "other":
            user.role, user.validator = _role_of(user.tables, policies.get(numbers[user.user], {}), there)
    return list(users.values())


def bound_to(connection: Connection) -> str | None:
    """The validator whose evidence alone we may add; None if we are not bound to one."""
    if connection.dialect.name != "postgresql":
        return None
    number = connection.exec_driver_sql("SELECT oid FROM pg_roles WHERE rolname = current_user").scalar_one()
    return _validators(connection).get(number, {}).get(batches.name)


def check_author(connection: Connection, validator: str) -> None:
    """Raise Forbidden if we may add evidence of another validator only."""
    only = bound_to(connection)
    if only not in (None, validator):
        what, hint = OTHERS_ROWS
        raise Forbidden(f"{what}: {only}, not {validator}", hint=hint)


def _role_of(tables: Mapping[str, list[str]], policies: Mapping[str, str | None], service: set[str]) -> tuple[str, str | None]:
    """The role that has these rights, and its validator; `other` if there is none, or policies are missing or were changed."""
    has = {name: frozenset(may) for name, may in tables.items()}
    roles = [role for role in ROLES if privileges(role, service) == has and (role == "validator") == bool(policies)]
    validators = set(policies.values())
    if not roles or (policies and (set(policies) != set(RULED) or len(validators) != 1 or None in validators)):
        return "other", None
    return roles[0], next(iter(validators), None)


def _validators(connection: Connection) -> dict[int, dict[str, str | None]]:
    """User's number → table → the validator that its policy there names; None if the policy is not as `grant` makes it."""
    users = dict[int, dict[str, str | None]]()
    for row in connection.execute(_POLICIES):
        keys = {(quoted or other).replace("''", "'") for quoted, other in _KEY.findall(row.rule or "")}
        users.setdefault(row.number, {})[row.relname] = keys.pop() if row.whole and len(keys) == 1 else None
    return users


def _make_tables(connection: Connection, role: str, beside: Sequence[Table]) -> None:
    """Make the tables that a user with this role needs, and may not make."""
    make_turn(connection)
    if role in _LIMITED:
        leases.create(connection, checkfirst=True)
    if role in _SERVES:
        for table in beside:
            table.create(connection, checkfirst=True)


def _bind(connection: Connection, number: int, name: str, validator: str) -> None:
    """Let a user write the rows of one validator alone."""
    ruled = text("SELECT c.relname FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid WHERE p.polname = :name")
    there = set(connection.scalars(ruled, {"name": _ADMITS}))
    for table in RULED:
        if table not in there:
            connection.exec_driver_sql(f"CREATE POLICY {_ADMITS} ON {table} USING (true)")
        connection.exec_driver_sql(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        _make_policy(connection, table, number, name, validator)


def _make_policy(connection: Connection, table: str, number: int, name: str, validator: str) -> None:
    """Let a user write only the rows of a validator in one table."""
    key = str(connection.scalar(select(func.quote_literal(validator)))).replace("%", "%%")
    only = f"CREATE POLICY assay_only_{number} ON {table} AS RESTRICTIVE"
    connection.exec_driver_sql(f"{only} {RULED[table].format(user=name, key=key)}")


def _drop_policies(connection: Connection, number: int) -> None:
    _run(connection, [f"SET LOCAL lock_timeout = '{LOCK_MS}ms'"])
    there = connection.execute(_POLICIES).all()
    for table in RULED:
        if any((row.relname, row.number) == (table, number) for row in there):
            connection.exec_driver_sql(f"DROP POLICY assay_only_{number} ON {table}")


def _limits(connection: Connection, name: str, settings: Iterable[str]) -> list[str]:
    """The statements that change a user's settings in this database."""
    database = _quoted(connection, _database_names(connection)[0])
    return [f"ALTER ROLE {name} IN DATABASE {database} {setting}" for setting in settings]


def _permitted(connection: Connection, statements: Iterable[str]) -> bool:
    """Run statements, all or none; False if we lack the right."""
    try:
        with connection.begin_nested():
            _run(connection, statements)
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) == _REFUSED:
            return False
        raise
    return True


def _check_server(connection: Connection) -> None:
    if connection.dialect.name != "postgresql":
        what = "the ledger is a file, which has no users; files have file permissions"
        raise BadInput(what, hint="whoever may write the file may do everything; let others send batches: assay evidence sign")


def _checked_user(connection: Connection, user: str) -> tuple[int, str]:
    """The number and the quoted name of an existing user who is bound by rights; raises BadInput."""
    _check_server(connection)
    if not connection.scalar(_OWNER):
        raise BadInput(
            "somebody else owns the tables", hint="grant as their owner: the user that `database` names in ledger.toml"
        )
    flags = connection.execute(_USER, {"role": user}).mappings().first()
    if flags is None:
        raise BadInput(f"there is no user {brief(user)} on the server", hint="make one: createuser --pwprompt NAME")
    status = next((words for name, words in _UNBOUND.items() if flags[name]), None)
    if status is not None:
        what = f"the user {brief(user)} {status}, so rights do not bind it"
        raise BadInput(what, hint="make a user for each validator: createuser --pwprompt NAME")
    return flags["oid"], _quoted(connection, user)


def _revoking(connection: Connection, name: str, beside: Iterable[Table]) -> Iterator[str]:
    """The statements that take all rights from a user, and from PUBLIC."""
    _, schema = (_quoted(connection, identifier) for identifier in _database_names(connection))
    there = connection.scalars(_OWNED).all()
    known = {*SCHEMA.tables, BODIES, TURN, leases.name, *(table.name for table in beside)}
    for table in there:
        whom = f"PUBLIC, {name}" if table in known else name
        yield f"REVOKE ALL ON {_quoted(connection, table)} FROM {whom}"
    yield f"REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC, {name}"


def _sequences(connection: Connection, beside: Sequence[Table]) -> list[str]:
    """The sequences that number the rows of tables."""
    numbered = [(table.name, column.name) for table in beside if (column := table.autoincrement_column) is not None]
    return [str(connection.scalar(select(func.pg_get_serial_sequence(*each)))) for each in numbered]


def _database_names(connection: Connection) -> tuple[str, str]:
    database, schema = connection.exec_driver_sql("SELECT current_database(), current_schema()").one()
    return str(database), str(schema)


def _quoted(connection: Connection, name: str) -> str:
    return str(connection.dialect.identifier_preparer.quote_identifier(name))


def _run(connection: Connection, statements: Iterable[str]) -> None:
    for statement in statements:
        connection.exec_driver_sql(statement)
