"""The commands `assay receipt`, `assay export epoch|emission`, `assay import epoch`; and `assay settle` with a ledger."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.output import AsJson, emit
from assay.errors import BadInput

if TYPE_CHECKING:
    from assay.cli.settle import ClosingFlags
    from assay.ledger.access import Ledger
    from assay.ledger.closing_cost import Closing
    from assay.ledger.counting import Aside
    from assay.ledger.settling import Draft, EpochResult
    from assay.settle import Settlement


def settled(
    folder: Path,
    epoch: int | None,
    key: str | None,
    *,
    dry_run: bool,
    meant: ClosingFlags,
    hold: Callable[[Settlement], None] | None = None,
) -> tuple[Settlement, str, str]:
    """Settle for `assay settle`: the settlement, a sentence about its receipt, and a sentence about missing scores or "".

    Nothing is stored in a dry run. hold: raises if the settlement must not be stored yet.
    """
    from assay.cli.ledger.keys import asking
    from assay.cli.output import Working
    from assay.ledger import config, keys, settling
    from assay.ledger.access import open_ledger

    with open_ledger(folder) as ledger:
        with Working(f"settling {folder}"):
            drafted = settling.draft(ledger, epoch)
        if isinstance(drafted, settling.EpochResult):
            return drafted.settlement, _remark(ledger, drafted), ""
        if dry_run:
            _warn(drafted.counted.aside)
            remark = ["Nothing was stored: the epoch is open, and has no receipt.", *_costs(drafted)]
            return drafted.settlement, " ".join(remark), _without(drafted.closing)
        name = key or ledger.config.signer
        if name is None:
            raise BadInput(
                "does not say which key signs the receipt",
                file=folder / config.FILE,
                field="signer",
                hint="name the log's key with --key NAME; or only show the settlement, with --dry-run",
            )
        signer = keys.load(name, asking())
        if hold is not None:
            hold(drafted.settlement)
        meant.check(drafted.closing)
        with Working(f"settling {folder}"):
            settled_epoch = settling.settle(
                ledger,
                signer,
                drafted.settlement.epoch,
                skip=meant.skip,
                without_scores=meant.without_scores,
                drafted=drafted,
            )
        _warn(settled_epoch.aside)
        costs = [] if [*drafted.closing.costs()] else _costs(drafted)  # the costs were shown before the epoch was closed
        without = _without(drafted.closing)
        receipt = _remark(ledger, settled_epoch) + ("." if costs or without else "")
        return settled_epoch.settlement, " ".join([receipt, *costs]), without


def _costs(drafted: Draft) -> list[str]:
    """Sentences: what closing the epoch costs; or, if it costs nothing, who sent no new evidence."""
    from assay.settle.story.telling import named

    costs, who = [*drafted.closing.costs()], drafted.closing.silent_names
    if costs or not who or _without(drafted.closing):
        return costs
    return [f"{named(who, 10)} sent nothing new: their earlier evidence still counts."]


def _without(closing: Closing) -> str:
    """A sentence: who has no score because validators have not reported; "" if `costs` says it."""
    from assay.settle.story.telling import named

    if not closing.unscored or [*closing.costs()]:
        return ""
    who, epoch = closing.silent_names, closing.settlement.epoch
    silent = f"{named(who, 10)} {'has' if len(who) == 1 else 'have'} not reported"
    has = "has" if len(closing.unscored) == 1 else "have"
    return f"{silent}: without it, {named(closing.unscored, 10)} {has} no agreed score in epoch {epoch}."


def _warn(aside: tuple[Aside, ...]) -> None:
    """Warn of the batches that do not count, unless an earlier receipt already named them."""
    from assay.cli.errors import warn

    warn([str(batch) for batch in aside if batch.new])


def _remark(ledger: Ledger, settled_epoch: EpochResult) -> str:
    if settled_epoch.receipt is None:  # pragma: no cover  (who is settled has a receipt)
        return ""
    before = "" if settled_epoch.new else ", as it was settled before"
    waits = ""
    if ledger.config.policy.exists():
        with ledger.store.reading() as view:
            if view.witnessed(settled_epoch.receipt.position + 1) is None:
                waits = ". Nobody is shown it until its witnesses have cosigned: a node asks them, or assay ledger witness"
    return f"Receipt {settled_epoch.receipt.digest}, entry {settled_epoch.receipt.position} of {ledger.key.name}{before}{waits}"


def receipt(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)],
    epoch: Annotated[int | None, typer.Argument(metavar="[EPOCH]", help="The epoch; otherwise the last settled.", min=0)] = None,
    participant: Annotated[
        str | None, typer.Option("--for", metavar="PARTICIPANT", help="Their own proof: key, short form, name, or a beginning.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it to a file.")] = None,
) -> None:
    """Print the receipt of an epoch, or a participant's own proof.

    A receipt is the signed statement of a settled epoch, and the proof that it is in the log. With --for, the command makes a
    participant's own proof: their result, the records that it rests on, and that both are under receipts in the log. It shows
    nothing of the other participants. `assay verify` checks both.

    The output is JSON. A terminal shows only a summary; write the JSON to a file with -o FILE, or print it with -o -.

    \b
    Examples:
      assay receipt my-competition 12 -o epoch-12.receipt
      assay receipt my-competition 12 --for miner-7 -o miner-7-epoch-12.proof
    """
    from assay.cli.output import json_bytes, put
    from assay.errors import CannotSettle
    from assay.ledger.access import open_ledger

    with open_ledger(folder) as ledger:
        if epoch is None:
            with ledger.store.reading() as view:
                epoch = view.settled_epoch()
        if epoch is None:
            raise CannotSettle("no epoch is settled yet", file=ledger.store.name, hint="`assay settle` makes a receipt")
        if participant is None:
            document = ledger.document(ledger.receipt(epoch))
        else:
            from assay.cli.keys import find
            from assay.ledger.exchange import participants_of, proof_for

            document = proof_for(ledger, find(participant, participants_of(ledger, epoch)), epoch)
    if output is None and _terminal():
        _show(folder, document)
    else:
        put(json_bytes(document), output)


def _terminal() -> bool:
    return sys.stdout.isatty()


def _show(folder: Path, document: dict[str, Any]) -> None:
    """Print a summary of a receipt or proof, and how to write it to a file: the JSON itself would fill the terminal."""
    from assay.cli.output import json_bytes
    from assay.cli.show import Column, command, grid, heading, show
    from assay.ledger.check import Receipt
    from assay.settle.story.telling import plural

    inner = document.get("receipt", document)
    parsed = Receipt.parse(json_bytes(inner))
    predicate = parsed.predicate
    name, of, more = f"epoch-{predicate['epoch']}.receipt", "receipt", list[str]()
    rows = [
        ("settlement", predicate["settlement"]),
        ("evidence", f"{plural(predicate['evidence']['count'], 'record')}, {predicate['evidence']['root']}"),
        ("log", f"entry {parsed.proof.index} of {parsed.proof.checkpoint.decode().partition(chr(10))[0]}"),
    ]
    if inner is not document:
        mine = document["result"]
        of, name = f"proof of {mine['participant']}", f"{mine['participant']}-epoch-{predicate['epoch']}.proof"
        more = ["--for", mine["participant"]]
        rank = "none" if mine["rank"] is None else str(mine["rank"])
        rows = [("rank", rank), ("score", str(mine["agreed"]["score"])), ("records", str(len(document["records"]))), *rows]
    columns = [Column("", [label for label, _ in rows]), Column("what it states", [what for _, what in rows], kind="text")]
    keep: list[str | Path] = ["assay", "receipt", folder, str(predicate["epoch"]), *more, "-o", name]
    show(
        heading(f"{predicate['competition']} · epoch {predicate['epoch']}: {of}"), grid(columns), "", command("To save it", *keep)
    )


Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)]


def export_epoch(
    folder: Folder,
    epoch: Annotated[int, typer.Argument(metavar="EPOCH", help="A settled epoch.", min=0, show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT", help="A new folder.", show_default=False)],
    parquet: Annotated[bool, typer.Option("--parquet", help="The evidence as Parquet, for very many records.")] = False,
    as_json: AsJson = False,
) -> None:
    """Export a settled epoch as files: everything that anybody needs to verify it offline.

    The folder has the evidence, signed batches, inputs, settlement, receipts and log. It is complete, or not there at all.

    \b
    Examples:
      assay export epoch my-competition 12 -o epoch-12
      assay verify epoch-12 --key "example.org/my-competition+…"
    """
    from assay.cli.output import Working
    from assay.cli.show import command, show
    from assay.ledger import bundle
    from assay.ledger.access import open_ledger

    with Working(f"exporting epoch {epoch}"), open_ledger(folder) as ledger:
        bundle.export(ledger, epoch, output, as_parquet=parquet)
        key = str(ledger.key)
    if as_json:
        emit({"epoch": epoch, "folder": str(output), "key": key})
        return
    show(command("Anybody can check it", "assay", "verify", output, "--key", key))


def export_emission(
    subnet: Annotated[Path, typer.Argument(metavar="SUBNET.toml", help="The subnet file.", show_default=False)],
    epoch: Annotated[int, typer.Argument(metavar="EPOCH", help="An epoch whose split is signed.", min=0, show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT", help="A new folder.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Export a subnet's signed split of an epoch as files: everything that anybody needs to verify it offline.

    The folder has the signed split, the subnet's log, and the exported epoch of each competition. It is complete, or not there at
    all.

    \b
    Examples:
      assay emission my-subnet.toml --epoch 12 --sign
      assay export emission my-subnet.toml 12 -o emission-12
      assay verify emission-12 --key "example.org/my-subnet+…" --subnet my-subnet.toml
    """
    from assay.cli.output import Working
    from assay.cli.show import command, show
    from assay.ledger import config, subnet_bundle

    with Working(f"exporting epoch {epoch}"):
        subnet_bundle.export(subnet, epoch, output)
    key = config.read(subnet).key
    if as_json:
        emit({"epoch": epoch, "folder": str(output), "key": key})
        return
    show(command("Anybody can check it", "assay", "verify", output, "--key", key))


def import_epoch(
    folder: Folder,
    source: Annotated[Path, typer.Argument(metavar="BUNDLE", help="What `assay export epoch` wrote.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Import an exported epoch into a copy of its ledger: the same records, receipts, log and audits. It is verified first.

    An epoch that is there already adds only audits that came later. Compare the auditor's key with the one that they publish.

    \b
    Example:
      assay import epoch copy-of-my-competition epoch-12
    """
    from assay.cli.output import Working
    from assay.cli.show import sentence, show
    from assay.ledger.access import open_ledger
    from assay.ledger.exchange import import_bundle
    from assay.settle.story.telling import plural

    with Working(f"importing {source}"), open_ledger(folder) as ledger:
        imported = import_bundle(ledger, source)
    if as_json:
        counts = {"epoch": imported.epoch, "records": imported.records, "batches": imported.batches, "new": imported.new}
        emit(counts | {"audits": [audit.path.name for audit in imported.audits]})
        return
    records, batches = plural(imported.records, "record"), plural(imported.batches, "batch", "batches")
    added = f"Epoch {imported.epoch}: {records} in {batches}, verified and added."
    show(sentence(added if imported.new else f"The ledger has epoch {imported.epoch} already."))
    for audit in imported.audits:
        show(sentence(f"Audit {audit.path.name}, by {audit.key}, added."))
