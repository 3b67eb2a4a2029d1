"""`assay export cose|scitt|erc8004`: a settled epoch in forms that other programs read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.output import AsJson, emit

if TYPE_CHECKING:
    from assay.ledger.access import Ledger
    from assay.ledger.keys import PrivateKey

__all__ = ["export_cose", "export_erc8004", "export_scitt"]

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)]
Epoch = Annotated[int, typer.Argument(metavar="EPOCH", help="A settled epoch.", min=0, show_default=False)]
KeyName = Annotated[str | None, typer.Option("--key", metavar="NAME", help="The log's key; otherwise the one in ledger.toml.")]


def export_cose(
    folder: Folder,
    epoch: Epoch,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The file to write.", show_default=False)],
    key: KeyName = None,
    as_json: AsJson = False,
) -> None:
    """Export the receipt of an epoch as a COSE receipt (RFC 9942), signed by the log's key.

    It proves that the entry, which is SHA-256 of the receipt's statement, is in the log: an inclusion proof of RFC 9162, and a
    signature over the root that it leads to. The root is detached.

    \b
    Example:
      assay export cose my-competition 12 -o epoch-12.cose
    """
    from assay.ledger.cose import cose_receipt

    _write(folder, epoch, key, output, cose_receipt, as_json=as_json)


def export_scitt(
    folder: Folder,
    epoch: Epoch,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The file to write.", show_default=False)],
    key: KeyName = None,
    as_json: AsJson = False,
) -> None:
    """Export the receipt of an epoch as a SCITT transparent statement, signed by the log's key.

    The payload is the receipt's in-toto statement, as it is. The COSE receipt of `assay export cose` is in its header.

    \b
    Example:
      assay export scitt my-competition 12 -o epoch-12.scitt
    """
    from assay.ledger.cose import scitt_statement

    _write(folder, epoch, key, output, scitt_statement, as_json=as_json)


def _write(
    folder: Path, epoch: int, key: str | None, output: Path, make: Callable[[Ledger, int, PrivateKey], bytes], *, as_json: bool
) -> None:
    from assay.cli.ledger.keys import asking
    from assay.cli.output import put
    from assay.cli.show import sentence, show
    from assay.errors import BadInput
    from assay.ledger import config, keys
    from assay.ledger.access import open_ledger

    with open_ledger(folder) as ledger:
        name = key or ledger.config.signer
        if name is None:
            hint = "name the log's key with --key NAME"
            raise BadInput("does not say which key signs for the log", file=folder / config.FILE, field="signer", hint=hint)
        data = make(ledger, epoch, keys.load(name, asking()))
        log = str(ledger.key)
    put(data, output)
    if str(output) == "-" or emit({"epoch": epoch, "file": str(output), "bytes": len(data), "key": log}, as_json):
        return
    show(sentence(f"{len(data):,} bytes were written to {output}. Their signature is checked with the log's key:"), log)


def export_erc8004(
    folder: Folder,
    epoch: Epoch,
    participant: Annotated[
        str, typer.Option("--for", metavar="PARTICIPANT", help="Whose score: key, short form, name, or a beginning.")
    ],
    request: Annotated[str, typer.Option(metavar="HASH", help="The requestHash of the registry's ValidationRequest.")],
    uri: Annotated[str, typer.Option(metavar="URI", help="Where the exported epoch is, for everybody to compute it again.")],
    tag: Annotated[str, typer.Option(metavar="TEXT", help="The response's tag; otherwise the competition's name.")] = "",
    registry: Annotated[str | None, typer.Option(metavar="ADDRESS", help="The Validation Registry, for `to`.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it to a file.")] = None,
) -> None:
    """Print the answer to a validation request of ERC-8004, as a transaction for the validator's account to send.

    The response is the participant's agreed score in hundredths, responseURI is where the bundle is, and responseHash is the
    settlement's digest. Nothing is sent. The output is JSON: the arguments by their names, and `data`, the calldata.

    \b
    Example:
      assay export erc8004 my-competition 12 --for miner-7 --request 0x5f… --uri https://example.org/12.tar
    """
    import json

    from assay.cli.keys import find
    from assay.cli.output import json_bytes, put
    from assay.ledger.access import open_ledger, stored_settlement
    from assay.ledger.exchange import participants_of
    from assay.publish.evm.erc8004 import validation_response

    with open_ledger(folder) as ledger:
        ledger.receipt(epoch)
        with ledger.store.reading() as view:
            settled, _ = stored_settlement(view, epoch)
        whom = find(participant, participants_of(ledger, epoch))
    document = json.loads(settled.document)
    tag = tag or document["scheme"]["name"]
    put(json_bytes(validation_response(document, whom, request=request, uri=uri, tag=tag, registry=registry)), output)
