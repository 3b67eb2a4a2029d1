"""The commands `assay ledger init|check|rebuild|replay|consistency|lost|migrate`; others are in `upkeep` and `rights`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.errors import warn
from assay.cli.ledger.archive import archive
from assay.cli.ledger.rights import grant, grants
from assay.cli.ledger.upkeep import Folder, adopt, backup, copy, restore
from assay.cli.ledger.witnesses import fork, witness
from assay.cli.output import AsJson, emit
from assay.errors import BadInput

if TYPE_CHECKING:
    from rich.text import Text

    from assay.ledger.audit import Audited

__all__ = ["app"]

app = typer.Typer(
    name="ledger",
    help="Make, check, back up and move the ledger of a competition or subnet.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
for command in (backup, restore, copy, archive, adopt, grant, grants, witness, fork):
    app.command()(command)


@app.command()
def init(
    folder: Folder,
    origin: Annotated[
        str, typer.Option(metavar="NAME", help="The name of its log, such as example.org/my-competition.", show_default=False)
    ],
    key: Annotated[str, typer.Option(metavar="NAME", help="The key that signs its log: `assay keys list`.", show_default=False)],
    database: Annotated[
        str | None, typer.Option(metavar="FILE|URL", help="A new file, or an empty PostgreSQL database [ledger.db].")
    ] = None,
    log: Annotated[str | None, typer.Option(metavar="DIR", help="The folder of the log, for any web server [log].")] = None,
    as_json: AsJson = False,
) -> None:
    """Give a competition or a subnet a ledger: a database, a log, and ledger.toml, which says where both are.

    From then on, evidence must be signed, `assay settle` settles from the ledger, and every epoch gets a receipt.

    For a subnet file NAME.toml, the files are NAME.ledger.db, NAME-log and NAME.ledger.toml beside it. `assay emission NAME.toml
    --sign` writes the subnet's split of each epoch to this log.

    \b
    Examples:
      assay keys new my-log
      assay ledger init my-competition --origin example.org/my-competition --key my-log
      assay ledger init my-competition --origin example.org/my-competition --key my-log --database postgresql://me@db/ledger
      assay ledger init my-subnet.toml --origin example.org/my-subnet --key my-log
    """
    from assay.cli.ledger.keys import asking
    from assay.cli.show import command, sentence, show
    from assay.ledger import config, intake, keys, store
    from assay.ledger.access import make_ledger

    subnet = config.is_subnet(folder)
    people = {} if subnet else intake.keys_of(folder, may_be_empty=True)
    strangers = [name for name, checked in people.items() if isinstance(checked, BadInput)]
    if strangers:
        named = ", ".join(map(repr, strangers[:3])) + (" …" if len(strangers) > 3 else "")
        what = f"a ledger accepts evidence only from public keys; {len(strangers)} of these are not: {named}"
        warn([f"{folder / 'validators.csv'}: {what}; write what `assay keys show` prints"])
    settings = make_ledger(folder, origin, keys.load(key, asking()), database=database, log=log, name=key)
    place = store.shown(settings.database)
    if as_json:
        emit({"ledger": str(settings.file), "database": settings.database, "log": settings.log, "key": settings.key})
        return
    following = command("Add signed evidence", "assay", "evidence", "add", folder, "FILE.batch")
    if subnet:
        following = command("Sign the split of an epoch", "assay", "emission", folder, "--sign")
    show(
        sentence(f"The ledger is in {place}, its log in {settings.log}; {settings.file} says so. The log's public key:"),
        sentence(settings.key, indent=2),
        following,
    )


@app.command()
def check(
    folder: Folder,
    archived: Annotated[bool, typer.Option("--archived", help="Read the records in archives there, and check them too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check everything in the ledger: database, digests, batches, receipts up to the log, what was sent to chains, what is stored
    about closed epochs, and that every batch in acknowledged.jsonl is there.

    A batch that its validator did not sign for this log does not count, and is named. If no receipt was signed since it came, the
    exit code is 1. Nothing is settled again: `assay ledger replay` does that.

    Of records that are in an archive (`assay ledger archive`), the ledger has the digests: they are checked against the receipts.
    With --archived the records themselves are read from the archive.

    \b
    Examples:
      assay ledger check my-competition
      assay ledger check my-competition --archived
    """
    from assay.cli.output import Working
    from assay.cli.show import show
    from assay.ledger import config, settling
    from assay.ledger.audit import audit, audit_receipts, audit_standing

    if config.is_subnet(folder):
        _check_subnet(folder, as_json=as_json)
        return
    from assay.ledger.access import open_ledger
    from assay.publish.journal import journal_of

    with Working(f"checking {folder}"), open_ledger(folder) as ledger:
        audited, receipts = audit(ledger.store, ledger.key, deep=archived), audit_receipts(ledger)
        rows = audit_standing(ledger, deep=archived)
        with ledger.counted() as view:
            targets, aside = view.targets(), view.aside
            answered = settling.check_answered(ledger, view)
        away = ledger.store.elsewhere()
    entries = sum(len(journal_of(folder, target).entries) for target in targets)
    if as_json:
        counts = {"records": audited.records, "batches": audited.batches, "conflicts": audited.conflicts, "receipts": receipts}
        rest = {"sent_to_chains": entries, "acknowledged": answered, "not_counted": list(map(str, aside))}
        rest |= {} if rows is None else {"standing_rows": rows}
        rest |= {"archived": audited.archived} if audited.archived else {}
        rest["elsewhere"] = None if away is None else away.what
        emit(counts | rest)
        if any(batch.new for batch in aside):
            raise typer.Exit(1)
        return
    show(*_sentences(audited, receipts, rows, answered, entries, len(aside)))
    warn([*map(str, aside), *([] if away is None else [str(away)])])
    if any(batch.new for batch in aside):
        raise typer.Exit(1)


def _sentences(audited: Audited, receipts: int, rows: int | None, answered: int, entries: int, aside: int) -> Iterator[Text]:
    """Yield the sentences of a check. rows: of what is stored about closed epochs. entries: of the journals of targets."""
    from assay.cli.show import sentence
    from assay.settle.story.telling import plural

    dropped = plural(audited.archived, "record")
    acknowledged = "The batch that was" if answered == 1 else f"Each of the {answered} batches that were"
    records, batches = plural(audited.records, "record"), plural(audited.batches, "batch", "batches")
    yield sentence(f"{records} in {batches}, {audited.conflicts} in conflict with an earlier one.")
    if audited.archived:
        yield sentence(f"{dropped} in archives: checked by digest; --archived reads them.")
    if entries:
        yield sentence(f"{entries} {'entry' if entries == 1 else 'entries'} on what was sent to chains.")
    if answered:
        yield sentence(f"{acknowledged} acknowledged is there.")
    if rows:
        yield sentence(f"What is stored about closed epochs follows from the evidence ({plural(rows, 'row')}).")
    yield sentence(f"{receipts} {'receipt' if receipts == 1 else 'receipts'} in the log. {_rest(aside)}")


def _rest(aside: int) -> str:
    """The conclusion of a check."""
    if not aside:
        return "Everything is intact."
    return f"{aside} {'batch does' if aside == 1 else 'batches do'} not count; everything else is intact."


def _check_subnet(subnet: Path, *, as_json: bool) -> None:
    from assay.cli.output import Working
    from assay.cli.show import sentence, show
    from assay.ledger import subnet_bundle
    from assay.ledger.access import open_ledger

    with Working(f"checking {subnet}"), open_ledger(subnet) as ledger:
        ledger.store.check_integrity()
        count = subnet_bundle.audit(ledger)
    if as_json:
        emit({"splits": count})
        return
    show(sentence(f"{count} signed {'split' if count == 1 else 'splits'} in the log. Everything is intact."))


@app.command()
def rebuild(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)],
    key: Annotated[str | None, typer.Option(metavar="NAME", help="The log's key [the signer in ledger.toml].")] = None,
    as_json: AsJson = False,
) -> None:
    """Make anew what a large ledger stores about closed epochs, from all their evidence.

    A ledger with many records stores with each receipt what the next epoch needs of the earlier ones, so that settling costs what
    is new. The log's key signs it, and `assay ledger check` compares it with the evidence. If it was changed, nothing is settled
    until this command was run. Evidence, settlements and receipts stay as they are.

    \b
    Example:
      assay ledger rebuild my-competition
    """
    from assay.cli.ledger.keys import log_signer
    from assay.cli.output import Working
    from assay.cli.show import sentence, show
    from assay.ledger import settling
    from assay.ledger.access import open_ledger

    with open_ledger(folder) as ledger:
        signer = log_signer(ledger.config, key)
        with Working(f"reading all evidence of {folder}"):
            epoch = settling.rebuild(ledger, signer)
    if as_json:
        emit({"epoch": epoch})
    elif epoch is None:
        show(
            sentence("Nothing is stored: the ledger is small, its rules need all evidence, or the next receipt is to sign first.")
        )
    else:
        show(sentence(f"What follows from the evidence up to epoch {epoch} is stored anew."))


@app.command()
def replay(folder: Folder, as_json: AsJson = False) -> None:
    """Compute every settled epoch again, from the first: evidence roots, settlements and results must be the same.

    For a subnet file, compute every signed split again, from its competitions' ledgers.

    \b
    Example:
      assay ledger replay my-competition
    """
    from assay.cli.output import Working
    from assay.cli.show import Column, grid, sentence, show
    from assay.ledger import config, settling, subnet_bundle
    from assay.ledger.access import open_ledger

    subnet = config.is_subnet(folder)
    with Working(f"settling {folder} again"):
        if subnet:
            rows = [(split.epoch, split.digest) for split in subnet_bundle.replay(folder)]
        else:
            with open_ledger(folder) as ledger:
                rows = [(settled.settlement.epoch, settled.settlement.digest) for settled in settling.replay(ledger)]
    if as_json:
        emit({"epochs": [{"epoch": epoch, "emission" if subnet else "settlement": digest} for epoch, digest in rows]})
        return
    if not rows:
        show(sentence(f"No epoch is {'signed' if subnet else 'settled'} yet."))
        return
    columns = [
        Column("epoch", [str(epoch) for epoch, _ in rows], right=True),
        Column("emission" if subnet else "settlement", [digest for _, digest in rows], kind="key"),
    ]
    several = "epoch comes" if len(rows) == 1 else "epochs come"
    how = "signed" if subnet else "settled"
    show(grid([*columns, Column("", ["✓"] * len(rows))]), "", sentence(f"{len(rows)} {several} out as {how}."))


@app.command()
def consistency(
    folder: Folder,
    earlier: Annotated[int, typer.Argument(metavar="OLD", help="How many receipts the log had.", min=0, show_default=False)],
    later: Annotated[
        int | None, typer.Argument(metavar="NEW", help="How many it had later [as many as now].", min=0, show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the proof that the log only grew between two checkpoints: its hashes in base64, one a line.

    The second line of a checkpoint is its number of receipts. With the log's folder, no proof is needed: `assay verify` reads the
    folder itself. The proof is for people who have only a receipt and a checkpoint, and for check.py.

    \b
    Example:
      assay ledger consistency my-competition 1 2 > hashes
    """
    import base64

    from assay.ledger.access import open_ledger

    with open_ledger(folder) as ledger:
        size = ledger.log.size
        new = size if later is None else later
        if not earlier <= new <= size:
            what = f"the log has {size} receipts, so {earlier} and {new} cannot be an earlier and a later number of them"
            raise BadInput(what, file=ledger.log.folder, hint="give the second lines of two checkpoints, the smaller one first")
        hashes = [base64.b64encode(node).decode() for node in ledger.log.consistency(earlier, new)]
    if as_json:
        emit({"old": earlier, "new": new, "hashes": hashes})
        return
    for digits in hashes:
        typer.echo(digits)


@app.command()
def lost(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)],
    batches: Annotated[list[str], typer.Argument(metavar="BATCH...", help="Their digests: sha256:…", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Give up acknowledged batches that the database has lost for good, so that settling can continue.

    While an acknowledged batch is missing, nothing is settled; `assay settle` and `assay ledger check` name the batch. First try
    to restore the database, or ask the validator for the batch and add it again. This command writes the batches that are
    given up into acknowledged.jsonl. That cannot be undone.

    \b
    Example:
      assay ledger lost my-competition sha256:91aa609a1847160407b01a1b0c0b7f1ac2a4ee3bea5e3dad80163154ea267425
    """
    from assay.cli.show import command, sentence, show
    from assay.ledger import config
    from assay.ledger.access import open_ledger
    from assay.ledger.intake import ACKNOWLEDGED, give_up_batch

    config.read(folder)
    with open_ledger(folder) as ledger, ledger.counted() as view:
        counted = {stored.digest for stored in view.batches()}
    if still := next((digest for digest in batches if digest in counted), None):
        raise BadInput(f"batch {still} is in the ledger, and counts", file=folder / ACKNOWLEDGED, hint="name one that is missing")
    give_up_batch(folder / ACKNOWLEDGED, batches)
    if as_json:
        emit({"given_up": list(batches)})
        return
    several = "batch is" if len(batches) == 1 else "batches are"
    show(
        sentence(f"{len(batches)} {several} given up; {folder / ACKNOWLEDGED} says so."),
        command("Settle without", "assay", "settle", folder),
    )


@app.command()
def migrate(folder: Folder, as_json: AsJson = False) -> None:
    """Bring the ledger's database to the version that this Assay reads. Make a copy first.

    The command says how many batches of open epochs could be deleted from the database unseen: an earlier version noted them only
    there. The next receipt protects them. Before that, ask the validators for these batches and add them again.

    \b
    Example:
      assay ledger migrate my-competition
    """
    from assay.cli.show import sentence, show
    from assay.ledger import config, intake, store
    from assay.settle.story.telling import plural

    settings = config.read(folder)
    before, after = store.migrate(settings.place)
    with store.open(settings.place) as ledger, ledger.reading() as view:
        unseen = intake.unseen_batches(settings.folder / intake.ACKNOWLEDGED, view, settings.key)
    if unseen:
        named = plural(len(unseen), "batch", "batches")
        what = f"{named} of open epochs could be deleted from the database unseen: they are noted nowhere else"
        todo = (
            f"ask the validators for what they handed in, and add it again before the next `assay settle {folder}`, which signs"
        )
        warn([f"{what}; {todo} what is there then: `assay evidence add {folder} FILE.batch`"])
    if as_json:
        emit({"before": before, "after": after, "unseen": [batch.digest for batch in unseen]})
        return
    same = f"The database already has version {after} of the schema."
    show(sentence(same if before == after else f"The database was migrated from version {before} of the schema to {after}."))
