"""`assay ledger backup|restore|adopt|grant`: what an operator does with a ledger's database as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.output import AsJson, emit
from assay.errors import BadInput

if TYPE_CHECKING:
    from assay.ledger.backup import About

__all__ = ["Folder", "adopt", "backup", "grant", "restore"]

Folder = Annotated[
    Path, typer.Argument(metavar="DIR|SUBNET.toml", help="The competition's folder, or a subnet file.", show_default=False)
]


_AsJson = Annotated[bool, typer.Option("--json", help="What the backup says of itself, as JSON.")]


def backup(
    folder: Folder,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file.", show_default=False)],
    as_json: _AsJson = False,
) -> None:
    """Write the whole ledger to one file, from one moment, while others go on writing: of SQLite and of PostgreSQL.

    The file is a ZIP archive: about.json has the log's signed checkpoint and a digest, ledger.db is the database as SQLite. It is
    put in its place when it is whole. Keys are not in it, nor is the folder: ledger.toml and the registry are files like others.

    \b
    Examples:
      assay ledger backup my-competition /backup/my-competition-12.zip
      assay ledger backup my-subnet.toml /backup/my-subnet-12.zip
    """
    from assay.cli.output import Working
    from assay.ledger.backup import back_up

    with Working(f"copying the ledger of {folder}"):
        about = back_up(folder, file, now=_now())
    _tell(f"{file} has the ledger", about, as_json)


def restore(
    folder: Folder,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `assay ledger backup` wrote.", show_default=False)],
    older: Annotated[
        bool, typer.Option("--older", help="Also if the folder's log, or what was acknowledged, goes further than the backup.")
    ] = False,
    as_json: _AsJson = False,
) -> None:
    """Put a backup where DIR/ledger.toml says that the database is: a file that is not there, or an empty PostgreSQL database.

    Refused is a backup that is not what was written, is of another log, or is older than what the folder knows: the log's signed
    checkpoint, and the batches that acknowledged.jsonl answers for. Nothing is written before all of that is checked.

    What was restored can be read at once. It takes nothing in and signs nothing until the ledger before it is stopped, and this
    one is said to be the only one: `assay ledger adopt`.

    \b
    Examples:
      assay ledger restore my-competition /backup/my-competition-12.zip
      assay ledger restore my-competition /backup/my-competition-11.zip --older
    """
    from assay.cli.output import Working
    from assay.cli.show import command, show
    from assay.ledger.backup import restore as do

    with Working(f"restoring the ledger of {folder}"):
        about = do(folder, file, now=_now(), older=older)
    _tell("The ledger was restored", about, as_json)
    if not as_json:
        show(
            command("Look it over", "assay", "ledger", "check", folder),
            command("Stop the one before, then", "assay", "ledger", "adopt", folder, "--old-is-stopped"),
        )


def _now() -> str:
    """The time, in seconds, as RFC 3339 has it."""
    from datetime import UTC, datetime

    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _tell(what: str, about: About, as_json: bool) -> None:
    from assay.cli.show import sentence, show
    from assay.settle.story.telling import plural

    if as_json:
        from dataclasses import asdict

        from assay.cli.output import json_bytes, put

        put(json_bytes(asdict(about)), None)
        return
    held = about.held
    count = f"{plural(held.records, 'record')} in {held.batches} {'batch' if held.batches == 1 else 'batches'}"
    show(sentence(f"{what} of {about.taken}: {count}, {plural(held.receipts, 'receipt')}. Its database is {about.digest}."))


def adopt(
    folder: Folder,
    old_is_stopped: Annotated[
        bool, typer.Option("--old-is-stopped", help="Nobody works any more where the ledger lived before.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say that this is the ledger now, and the only one: after its folder was moved, or its database restored.

    A ledger knows where it lives. What is somewhere else is a copy: it can be read, and takes in and signs nothing. Two that both
    sign would give out two receipts for one epoch, and the log would be forked for good. So first stop whatever works with the
    ledger where it was: nodes, cron jobs, an old PostgreSQL cluster. What can be seen from here of the old place is looked at: a
    file that is still there or open in a program, a database of the same server that has more or is being written.

    \b
    Examples:
      assay ledger adopt my-competition
      assay ledger adopt my-competition --old-is-stopped
    """
    from assay.cli.show import sentence, show
    from assay.ledger.access import open_ledger

    with open_ledger(folder) as ledger:
        why = ledger.store.elsewhere()
        if why is not None and not old_is_stopped:
            hint = "if this is the only one now, and nobody works with the other: add --old-is-stopped"
            raise BadInput(why.what, file=why.file, hint=hint)
        unseen = "" if why is None else ledger.store.adopt()
    if as_json:
        emit({"adopted": why is not None})
        return
    here = "The ledger lives here already; nothing was changed." if why is None else "The ledger lives here from now on."
    show(sentence(f"{here} {unseen}"))


_LIMITS = (
    "no time limit was set for {0}: the owner of the tables may not do it, so {0} can keep other writers waiting; let the"
    " administrator of the server say: ALTER ROLE (owner) CREATEROLE, then grant again"
)
_SESSIONS = (
    "{0} of the sessions of {1} go on, since the owner of the tables may not end them; let the administrator"
    " of the server say: GRANT pg_signal_backend TO (owner), then revoke again"
)


def grant(
    folder: Folder,
    role: Annotated[str, typer.Argument(metavar="USER", help="A user of the PostgreSQL server.", show_default=False)],
    revoke: Annotated[bool, typer.Option("--revoke", help="Take all rights in the ledger from the user instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let a validator's user read the ledger in a shared PostgreSQL and add evidence to it, and nothing else.

    The user gets SELECT on all tables, INSERT where evidence is kept, and a turn among the writers. Whatever other rights it had
    on these tables is taken away, and so is what everybody had. The owner of the tables stays the operator's alone: it can do
    everything, and gives this command. Give each validator a user of its own.

    A user who writes keeps the others waiting until its transaction ends. Time limits of the server end one that hangs: 2 minutes
    without a statement, 10 minutes of one. --revoke waits for nobody, and ends the sessions that the user has.

    \b
    Examples:
      createuser --pwprompt val-1
      assay ledger grant my-competition val-1
      assay ledger grant my-competition val-1 --revoke
    """
    from assay.cli.errors import warn
    from assay.cli.show import sentence, show
    from assay.ledger import config
    from assay.ledger.access import open_store
    from assay.settle.story.telling import plural

    with open_store(config.read(folder)) as database:
        if revoke:
            ended, left = database.revoke(role)
            warn([_SESSIONS.format(left, role)] if left else [])
        else:
            ended = 0
            warn([] if database.grant(role) else [_LIMITS.format(role)])
    if as_json:
        emit({"user": role, "rights": "none" if revoke else "evidence"})
        return
    what = "has no right in the ledger any more" if revoke else "may read the ledger and add evidence, and nothing else"
    also = f"; {plural(ended, 'session')} ended" if ended else ""
    show(sentence(f"{role} {what}{also}."))
