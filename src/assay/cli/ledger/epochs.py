"""`assay export epoch`, `export emission` and `assay import epoch`: a settled epoch as files, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import AsJson, emit

__all__ = ["export_emission", "export_epoch", "import_epoch"]

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
    from assay.ledger.opened import open_ledger

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
    from assay.ledger import config, joint

    with Working(f"exporting epoch {epoch}"):
        joint.export(subnet, epoch, output)
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
    from assay.ledger.importing import import_bundle
    from assay.ledger.opened import open_ledger

    with Working(f"importing {source}"), open_ledger(folder) as ledger:
        found = import_bundle(ledger, source)
    if as_json:
        emit({"epoch": found.epoch, "records": found.records, "batches": found.batches, "new": found.new})
        return
    several = "batch" if found.batches == 1 else "batches"
    said = f"Epoch {found.epoch}: {found.records} records in {found.batches} {several}, verified and added."
    show(sentence(said if found.new else f"Epoch {found.epoch} is there already."))
