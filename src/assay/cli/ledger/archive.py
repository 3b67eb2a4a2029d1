"""The command `assay ledger archive`: move the records of closed epochs to an archive."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import AsJson, emit

__all__ = ["archive"]


def archive(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)],
    to: Annotated[str, typer.Option("--to", metavar="ARCHIVE", help="A folder, or s3://BUCKET/PREFIX.", show_default=False)],
    epoch: Annotated[int | None, typer.Option(metavar="N", help="The epoch to archive.", min=0)] = None,
    before: Annotated[int | None, typer.Option(metavar="N", help="All settled epochs before this one.", min=0)] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Then drop their records from the ledger.")] = False,
    name: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="The competition's folder in the archive; otherwise its name.")
    ] = None,
    parquet: Annotated[bool, typer.Option("--parquet", help="Evidence as Parquet instead of JSON lines.")] = False,
    key: Annotated[str | None, typer.Option(metavar="NAME", help="The log's key [the signer in ledger.toml].")] = None,
    as_json: AsJson = False,
) -> None:
    """Write closed epochs to an archive, read them back and verify them; with --drop, drop their records from the ledger.

    An epoch is dropped only if the archive gives back exactly what its receipt binds. The ledger keeps the digest and the seq of
    each record, every signed batch, settlement and receipt, and the records that still decide a score. The log's key signs where
    the others are. Commands that need them read the archive; if it has moved, write `archive = "PLACE"` into ledger.toml.

    An epoch is refused if the next settlement still reads its records, or if the log's witnesses have not cosigned its receipt.
    The command may be stopped at any moment and run again. In PostgreSQL it needs the owner of the tables.

    \b
    Examples:
      assay ledger archive my-competition --to s3://my-bucket/archive --before 120
      assay ledger archive my-competition --to s3://my-bucket/archive --before 120 --drop --parquet
      assay ledger archive my-competition --to /srv/archive --epoch 12 --drop
    """
    from dataclasses import asdict

    from assay.archive import archive_epochs
    from assay.cli.ledger.keys import log_signer
    from assay.cli.output import Working
    from assay.cli.show import sentence, show
    from assay.ledger.access import open_ledger
    from assay.settle.story.telling import plural

    with open_ledger(folder) as ledger:
        signer = log_signer(ledger.config, key) if drop else None
        with Working(f"archiving {folder}") as work:

            def report(what: str, of: int) -> None:
                work.what = f"archiving {folder}: {what}, epoch {of}"

            run = archive_epochs(ledger, to, name, epoch=epoch, before=before, as_parquet=parquet, signer=signer, progress=report)
    dropped = {str(number): count for number, count in run.dropped.items()}
    if emit(asdict(run) | {"dropped": dropped}, as_json):
        return
    show(sentence(f"{plural(len(run.verified), 'epoch')} written to {run.place} as {run.folder}, read back and verified."))
    if run.before:
        show(sentence(f"{plural(len(run.before), 'epoch')} had been dropped before."))
    if drop:
        show(sentence(f"{plural(sum(run.dropped.values()), 'record')} dropped from the ledger, which says where they are."))
