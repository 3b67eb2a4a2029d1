"""The commands `assay ledger grant|grants`: who may do what in a ledger that is in a shared PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.ledger.upkeep import Folder
from assay.cli.output import AsJson, emit
from assay.errors import BadInput, brief

__all__ = ["grant", "grants"]

_LIMITS = (
    "no time limit was set for {0}: the owner of the tables may not do it, so {0} can keep other writers waiting; let the"
    " administrator of the server run: ALTER ROLE (owner) CREATEROLE, then grant again"
)
_SESSIONS = (
    "{0} of the sessions of {1} continue, because the owner of the tables may not end them; let the administrator"
    " of the server run: GRANT pg_signal_backend TO (owner), then revoke again"
)
_MAY = {
    "reader": "read the ledger",
    "evidence": "read the ledger and add evidence",
    "validator": "read the ledger and add evidence of {0}",
    "service": "read the ledger, add evidence and submissions, and keep the service's tables",
    "settler": "read the ledger, and write what settling and publishing add",
    "operator": "do what service and settler may",
}


def grant(
    folder: Folder,
    user: Annotated[str, typer.Argument(metavar="USER", help="A user of the PostgreSQL server.", show_default=False)],
    validator: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Only evidence and leases of this validator, a key or a name of validators.csv."),
    ] = None,
    role: Annotated[
        str | None, typer.Option(metavar="ROLE", help="reader, service, settler or operator, in place of adding evidence.")
    ] = None,
    revoke: Annotated[bool, typer.Option("--revoke", help="Take all rights in the ledger from the user instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let a user of a shared PostgreSQL read the ledger and add one validator's evidence to it, and nothing else.

    With --validator the database itself refuses evidence and leases in any other validator's name. Without, the user may add
    evidence of any validator; what its validator did not sign is set aside when it is read. Nothing can be changed or removed.

    --role gives other rights: a reader only reads; the service (assay serve) adds evidence and submissions and keeps its own
    tables; a settler writes what settling and publishing add; an operator is both. All other rights of the user on these tables
    are taken away, and so are the rights of PUBLIC. Only the operator may use the owner of the tables, which can do everything
    and runs this command. Make a user for each validator and program.

    A user who writes keeps the others waiting until its transaction ends. Time limits of the server end a validator's transaction
    that hangs: 2 minutes without a statement, 10 minutes for one statement. --revoke waits for nobody, and ends the user's
    sessions.

    \b
    Examples:
      createuser --pwprompt val-1
      assay ledger grant my-competition val-1 --validator val-1
      assay ledger grant my-competition arena --role service
      assay ledger grant my-competition val-1 --revoke
    """
    from assay.cli.errors import warn
    from assay.cli.show import sentence, show
    from assay.ledger import config
    from assay.ledger.access import open_store
    from assay.serve.notebook import EVERY_TABLE
    from assay.settle.story.telling import plural

    ended, key = 0, None if validator is None else _key(folder, validator)
    given = _role(key, role, revoke=revoke)
    with open_store(config.read(folder)) as database:
        if revoke:
            ended, left = database.revoke(user, EVERY_TABLE)
            warn([_SESSIONS.format(left, user)] if left else [])
        else:
            warn([] if database.grant(user, given, key, EVERY_TABLE) else [_LIMITS.format(user)])
    if as_json:
        emit({"user": user, "rights": given} | ({} if key is None else {"validator": key}))
        return
    what = "has no rights in the ledger any more" if revoke else f"may {_MAY[given].format(key)}, and nothing else"
    also = f"; {plural(ended, 'session')} ended" if ended else ""
    show(sentence(f"{user} {what}{also}."))


def grants(folder: Folder, as_json: AsJson = False) -> None:
    """Show who may do what in a ledger in PostgreSQL: users, their roles, and whose evidence they may add.

    The role `other` is none that `assay ledger grant` gives: grant again, or revoke. Rights that come through another role of the
    server are named. Superusers of the server may do everything, and are shown only if they were given rights here.

    \b
    Example:
      assay ledger grants my-competition
    """
    from dataclasses import asdict

    from assay.cli.show import Column, grid, show
    from assay.ledger import config
    from assay.ledger.access import open_store
    from assay.serve.notebook import EVERY_TABLE

    with open_store(config.read(folder)) as database:
        users = database.granted(EVERY_TABLE)
    if as_json:
        emit({"grants": [asdict(user) for user in users]})
        return
    columns = [
        Column("user", [user.user for user in users], kind="crop"),
        Column("role", [user.role for user in users]),
        Column("writes", [user.validator or _writes(user.tables) for user in users], kind="key"),
        Column("through", [", ".join(user.through) for user in users], kind="crop", spare=2),
        Column("time limits", ["yes" if user.limited else "" for user in users], spare=1),
    ]
    show(grid(columns))


def _writes(tables: dict[str, list[str]]) -> str:
    """The number of tables that a user may write."""
    count = sum(name != "assay_turn" and may != ["SELECT"] for name, may in tables.items())
    return f"{count} {'table' if count == 1 else 'tables'}" if count else "nothing"


def _role(key: str | None, role: str | None, *, revoke: bool) -> str:
    """The role that is given, or `none`; raises BadInput for options that contradict one another."""
    from assay.ledger.store.rights import ROLES

    named = [role for role in ROLES if role not in ("evidence", "validator")]
    if (key is not None) + (role is not None) + revoke > 1:
        raise BadInput("--validator, --role and --revoke exclude one another", hint="say one of them")
    if role is not None and role not in named:
        raise BadInput(f"there is no role {brief(role)}", field="role", hint=f"one of {', '.join(named)}, or --validator KEY")
    return "none" if revoke else role or ("evidence" if key is None else "validator")


def _key(folder: Path, validator: str) -> str:
    """The validator's key as the registry spells it; raises BadInput if it has none that can sign."""
    from assay.cli.keys import validator_of
    from assay.ledger import config, intake

    known = intake.keys_of(config.read(folder).folder)
    named = validator_of(folder, validator)
    key, file = known.get(named), folder / "validators.csv"
    if key is None:
        raise BadInput(f"there is no validator {brief(validator)}", file=file, hint="say its key, or its name in that file")
    if isinstance(key, BadInput):
        raise key.at(file=file)
    return named
