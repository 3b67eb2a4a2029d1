"""The commands `assay ledger backup|restore|copy|adopt`: what an operator does with a ledger's database as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.output import AsJson, emit
from assay.errors import BadInput

if TYPE_CHECKING:
    from assay.ledger.backup import About

__all__ = ["Folder", "adopt", "backup", "copy", "restore"]

Folder = Annotated[
    Path, typer.Argument(metavar="DIR|SUBNET.toml", help="The competition's folder, or a subnet file.", show_default=False)
]


_AsJson = Annotated[bool, typer.Option("--json", help="The backup's description, as JSON.")]


def backup(
    folder: Folder,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file.", show_default=False)],
    as_json: _AsJson = False,
) -> None:
    """Back up the whole ledger, in SQLite or PostgreSQL, to one file, as it is at one moment, while others write.

    The file is a ZIP archive: about.json has the log's signed checkpoint and a digest, ledger.db is the database as SQLite, with
    the tables of the service (assay serve). It appears only when it is complete. It does not have keys or other files of the
    folder: copy ledger.toml and the registry as well.

    \b
    Examples:
      assay ledger backup my-competition /backup/my-competition-12.zip
      assay ledger backup my-subnet.toml /backup/my-subnet-12.zip
    """
    from assay.cli.output import Working
    from assay.ledger.backup import back_up
    from assay.serve.notebook import TABLES

    with Working(f"copying the ledger of {folder}"):
        about = back_up(folder, file, now=_now(), beside=TABLES)
    _tell(f"{file} has the ledger", about, as_json)


def restore(
    folder: Folder,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `assay ledger backup` wrote.", show_default=False)],
    older: Annotated[
        bool, typer.Option("--older", help="Accept a backup that is older than the folder's log or acknowledged batches.")
    ] = False,
    as_json: _AsJson = False,
) -> None:
    """Restore a backup to the place of the database in DIR/ledger.toml: a new file, or an empty PostgreSQL database.

    A backup is refused if it was changed, if it is of another log, or if it is older than the folder's files: the log's signed
    checkpoint, and the batches in acknowledged.jsonl. Nothing is written before all of this is checked.

    A restored ledger can be read at once. It accepts and signs nothing until you stop the ledger that it replaces, and then say
    with `assay ledger adopt` that this is the only one.

    \b
    Examples:
      assay ledger restore my-competition /backup/my-competition-12.zip
      assay ledger restore my-competition /backup/my-competition-11.zip --older
    """
    from assay.cli.output import Working
    from assay.cli.show import command, show
    from assay.ledger.backup import restore as do
    from assay.serve.notebook import TABLES

    with Working(f"restoring the ledger of {folder}"):
        about = do(folder, file, now=_now(), older=older, beside=TABLES)
    _tell("The ledger was restored", about, as_json)
    if not as_json:
        show(
            command("Check it", "assay", "ledger", "check", folder),
            command("Stop the old ledger, then", "assay", "ledger", "adopt", folder, "--old-is-stopped"),
        )


def copy(
    folder: Folder,
    target: Annotated[
        str, typer.Argument(metavar="FILE|URL", help="A new file, or an empty PostgreSQL database.", show_default=False)
    ],
    as_json: AsJson = False,
) -> None:
    """Copy the whole ledger to another database: from SQLite to PostgreSQL, or the other way.

    The copy is one snapshot with every table, also those of the service (assay serve). It appears whole or not at all: it is read
    again before, and each table must have the same rows, in order, by one digest. A ledger that somebody writes to meanwhile is
    not copied: stop its programs first.

    The copy can be read at once. It accepts and signs nothing until ledger.toml names it, the old ledger is stopped and its file
    moved away, and you say with `assay ledger adopt` that the copy is the only one.

    \b
    Examples:
      assay ledger copy my-competition postgresql://me@db/ledger
      assay ledger copy my-competition /srv/my-competition/ledger.db
    """
    from assay.cli.output import Working
    from assay.cli.show import Column, command, grid, sentence, show
    from assay.ledger.backup import copy as do
    from assay.serve.notebook import TABLES

    with Working(f"copying the ledger of {folder}") as work:

        def progress(name: str, rows: int) -> None:
            work.what = f"copying the ledger of {folder}: {name}, {rows:,} rows"

        copied = do(folder, target, now=_now(), beside=TABLES, progress=progress)
    if as_json:
        from dataclasses import asdict

        emit(asdict(copied))
        return
    show(
        grid(
            [
                Column("table", list(copied.tables)),
                Column("rows", [str(each.rows) for each in copied.tables.values()], right=True),
                Column("digest", [each.digest for each in copied.tables.values()], kind="key"),
            ]
        ),
        sentence(f"{copied.source} was copied to {copied.target}. Both have the digest {copied.digest};"),
        sentence(f"the log has {copied.log['size']} receipts and the root {copied.log['root']}."),
        sentence("Stop what uses the ledger, name the copy in ledger.toml (database), and move the old database away; then:"),
        command("Adopt the copy", "assay", "ledger", "adopt", folder, "--old-is-stopped"),
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
    contents = about.held
    count = f"{plural(contents.records, 'record')} in {contents.batches} {'batch' if contents.batches == 1 else 'batches'}"
    show(sentence(f"{what} of {about.taken}: {count}, {plural(contents.receipts, 'receipt')}. Its database is {about.digest}."))


def adopt(
    folder: Folder,
    old_is_stopped: Annotated[
        bool, typer.Option("--old-is-stopped", help="Nothing uses the ledger any more where it lived before.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Declare that this is the only ledger now, after its folder was moved or its database restored.

    A ledger knows where it lives. In another place it is a copy, which can be read, but accepts and signs nothing. If two ledgers
    signed, one epoch would get two receipts, and the log would be forked for good. So first stop every program that uses the
    ledger in its old place: nodes, cron jobs, an old PostgreSQL cluster. The command checks the old place as far as it can: a
    file that still exists or that a program has open, a database of the same server that has more or is being written.

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
            hint = "if this is the only one now, and nothing uses the other: add --old-is-stopped"
            raise BadInput(why.what, file=why.file, hint=hint)
        unseen = "" if why is None else ledger.store.adopt()
    if as_json:
        emit({"adopted": why is not None})
        return
    here = "The ledger lives here already; nothing was changed." if why is None else "The ledger lives here from now on."
    show(sentence(f"{here} {unseen}"))
