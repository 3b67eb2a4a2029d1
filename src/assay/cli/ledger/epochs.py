"""`assay settle` in a competition with a ledger: what is signed and kept, and the line that says so.

`assay receipt`: the receipt of an epoch, or a participant's own proof.

`assay export epoch`, `export emission` and `assay import epoch`: a settled epoch as files, and back.
"""

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
    from assay.ledger.settling import Draft, SettledEpoch
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
    """The settlement, kept unless it is a dry run; what to say of its receipt; and whose score it closes without, or "".

    hold: raises if it is not to be kept yet.
    """
    from assay.cli.ledger.keys import asking
    from assay.cli.progress import Working
    from assay.ledger import config, keys, settling
    from assay.ledger.access import open_ledger

    with open_ledger(folder) as ledger:
        with Working(f"settling {folder}"):
            found = settling.draft(ledger, epoch)
        if isinstance(found, settling.SettledEpoch):
            return found.settlement, _remark(ledger, found), ""
        if dry_run:
            _warn(found.counted.aside)
            remark = ["Nothing was kept: the epoch is open, and has no receipt.", *_told(found)]
            return found.settlement, " ".join(remark), _without(found.closing)
        name = key or ledger.config.signer
        if name is None:
            raise BadInput(
                "does not say which key signs the receipt",
                file=folder / config.FILE,
                field="signer",
                hint="name the log's key with --key NAME; without it the settlement can be shown: --dry-run",
            )
        signer = keys.load(name, asking())
        if hold is not None:
            hold(found.settlement)
        meant.check(found.closing)
        with Working(f"settling {folder}"):
            made = settling.settle(ledger, signer, found.settlement.epoch, skip=meant.skip, without_scores=meant.without_scores)
        _warn(made.aside)
        told = [] if [*found.closing.costs()] else _told(found)  # what it costs was said before it was closed
        without = _without(found.closing)
        receipt = _remark(ledger, made) + ("." if told or without else "")
        return made.settlement, " ".join([receipt, *told]), without


def _told(found: Draft) -> list[str]:
    """What closing the epoch costs, or, where it is simply the next, whose evidence is of earlier epochs only."""
    from assay.settle.story.telling import named

    costs, who = [*found.closing.costs()], found.closing.silent_names
    if costs or not who or _without(found.closing):
        return costs
    return [f"Of {named(who, 10)} there is nothing new: what they saw before stands."]


def _without(closing: Closing) -> str:
    """Whose score an epoch is closed without, because validators have not reported; nothing where `costs` says it."""
    from assay.settle.story.telling import named

    if not closing.unscored or [*closing.costs()]:
        return ""
    who, epoch = closing.silent_names, closing.settlement.epoch
    silent = f"{named(who, 10)} {'has' if len(who) == 1 else 'have'} not reported"
    has = "has" if len(closing.unscored) == 1 else "have"
    return f"{silent}: for want of that {named(closing.unscored, 10)} {has} no agreed score in epoch {epoch}."


def _warn(aside: tuple[Aside, ...]) -> None:
    """Name the batches that do not count, and were not named with an earlier receipt."""
    from assay.cli.errors import warn

    warn([str(one) for one in aside if one.new])


def _remark(ledger: Ledger, found: SettledEpoch) -> str:
    if found.receipt is None:  # pragma: no cover  (who is settled has a receipt)
        return ""
    before = "" if found.new else ", as it was settled before"
    return f"Receipt {found.receipt.digest}, entry {found.receipt.position} of {ledger.key.name}{before}"


def receipt(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)],
    epoch: Annotated[int | None, typer.Argument(metavar="[EPOCH]", help="The epoch; otherwise the last settled.", min=0)] = None,
    participant: Annotated[
        str | None, typer.Option("--for", metavar="PARTICIPANT", help="His own proof: key, short form, name, or a beginning.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it to a file.")] = None,
) -> None:
    """The receipt of an epoch, or a participant's own proof.

    A receipt is the signed statement of a settled epoch, and the proof that it is in the log. With --for it is a participant's
    own proof: his result, the records that it rests on, and that both are under receipts in the log; nothing of the others.
    `assay verify` checks both.

    It is JSON; on a terminal only what it states is shown, unless it is written to a file or, with -o -, printed.

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
    """What a receipt or a proof states, and how to keep it: the JSON itself would fill the terminal."""
    from assay.cli.output import json_bytes
    from assay.cli.show import Column, command, grid, heading, show
    from assay.ledger.check import Receipt
    from assay.settle.story.telling import plural

    inner = document.get("receipt", document)
    found = Receipt.parse(json_bytes(inner))
    said = found.predicate
    name, of, more = f"epoch-{said['epoch']}.receipt", "receipt", list[str]()
    rows = [
        ("settlement", said["settlement"]),
        ("evidence", f"{plural(said['evidence']['count'], 'record')}, {said['evidence']['root']}"),
        ("log", f"entry {found.proof.index} of {found.proof.checkpoint.decode().partition(chr(10))[0]}"),
    ]
    if inner is not document:
        mine = document["result"]
        of, name = f"proof of {mine['participant']}", f"{mine['participant']}-epoch-{said['epoch']}.proof"
        more = ["--for", mine["participant"]]
        rank = "none" if mine["rank"] is None else str(mine["rank"])
        rows = [("rank", rank), ("score", str(mine["agreed"]["score"])), ("records", str(len(document["records"]))), *rows]
    columns = [Column("", [one for one, _ in rows]), Column("what it states", [what for _, what in rows], kind="text")]
    keep: list[str | Path] = ["assay", "receipt", folder, str(said["epoch"]), *more, "-o", name]
    show(heading(f"{said['competition']} · epoch {said['epoch']}: {of}"), grid(columns), "", command("To keep it", *keep))


Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)]


def export_epoch(
    folder: Folder,
    epoch: Annotated[int, typer.Argument(metavar="EPOCH", help="A settled epoch.", min=0, show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT", help="A new folder.", show_default=False)],
    parquet: Annotated[bool, typer.Option("--parquet", help="Evidence of kind tests as Parquet, for very many records.")] = False,
    as_json: AsJson = False,
) -> None:
    """A settled epoch of the ledger as files: all that anybody needs to verify it, offline.

    In the folder are evidence, signed batches, inputs, settlement, receipts and log. It is there whole or not at all.

    \b
    Examples:
      assay export epoch my-competition 12 -o epoch-12
      assay verify epoch-12 --key "example.org/my-competition+…"
    """
    from assay.cli.progress import Working
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
    """A subnet's signed split of an epoch as files: all that anybody needs to verify it, offline.

    In the folder are the signed split, the subnet's log, and the exported epoch of each competition. It is there whole or not at
    all.

    \b
    Examples:
      assay emission my-subnet.toml --epoch 12 --sign
      assay export emission my-subnet.toml 12 -o emission-12
      assay verify emission-12 --key "example.org/my-subnet+…" --subnet my-subnet.toml
    """
    from assay.cli.progress import Working
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
    """An exported epoch into a copy of its ledger: the same records, receipts and log. It is verified first.

    \b
    Example:
      assay import epoch copy-of-my-competition epoch-12
    """
    from assay.cli.progress import Working
    from assay.cli.show import sentence, show
    from assay.ledger.access import open_ledger
    from assay.ledger.exchange import import_bundle
    from assay.settle.story.telling import plural

    with Working(f"importing {source}"), open_ledger(folder) as ledger:
        found = import_bundle(ledger, source)
    if as_json:
        emit({"epoch": found.epoch, "records": found.records, "batches": found.batches, "new": found.new})
        return
    records, batches = plural(found.records, "record"), plural(found.batches, "batch", "batches")
    said = f"Epoch {found.epoch}: {records} in {batches}, verified and added."
    show(sentence(said if found.new else f"Epoch {found.epoch} is there already."))
