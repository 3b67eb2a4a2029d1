"""`assay verify`: what was checked, stage by stage, or the first thing that is not right."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from assay.ledger.verify import Verified

__all__ = ["log_key", "verify"]


def verify(
    receipt: Annotated[
        Path,
        typer.Argument(metavar="RECEIPT", help="A receipt, a participant's proof, or what was exported.", show_default=False),
    ],
    evidence: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="The exported epoch, or a file of evidence; of a participant's proof, only for its log.",
        ),
    ] = None,
    scheme: Annotated[Path | None, typer.Option(metavar="FILE", help="A scheme file that must be the receipt's.")] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="The log's public key, or a file that has it: ledger.toml; of a subnet, its own log's."),
    ] = None,
    checkpoint: Annotated[Path | None, typer.Option(metavar="FILE", help="A checkpoint of the log that was seen before.")] = None,
    log: Annotated[Path | None, typer.Option(metavar="DIR", help="The folder of the log's tiles.")] = None,
    subnet: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A subnet file that a signed split must follow.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As canonical JSON.")] = False,
) -> None:
    """Check a receipt, and compute its settlement again.

    It works offline, without the ledger, on files from anybody. Says what was checked, or the first stage that is not right,
    whose it is, what was expected and what was found. What could not be looked at is said too.

    What a subnet's log signed names the log of each competition, whose key need not be given. A key that is given and is of no
    log that is checked is refused.

    Ends with 0 if everything that was looked at is right, 1 if something is not.

    \b
    Examples:
      assay verify epoch-12 --key "example.org/my-competition+1a2b3c4d+Ab…"
      assay verify epoch-12.receipt --key log.vkey --checkpoint seen-in-may --log log
      assay verify miner-7-epoch-12.proof --key log.vkey
      assay verify emission-12 --key "example.org/my-subnet+1a2b3c4d+Ab…" --subnet my-subnet.toml
    """
    from assay.cli.output import Working
    from assay.errors import Refused
    from assay.ledger.verify import verify as check

    try:
        with Working(f"verifying {receipt}"):
            found = check(
                receipt,
                evidence=evidence,
                scheme=scheme,
                key=[log_key(one) for one in key or ()],
                checkpoint=checkpoint,
                log=log,
                subnet=subnet,
            )
    except Refused as refused:
        if as_json:
            from assay.cli.output import json_bytes, put, refused_json

            put(json_bytes(refused_json(refused)), None)
            raise typer.Exit(refused.exit_code) from None
        raise
    if as_json:
        from assay.cli.output import json_bytes, put

        put(json_bytes(found.document()), None)
        return
    _show(found, own=not key)


def log_key(said: str) -> str:
    """The key itself, or what the file of that name holds: the key alone, or a ledger.toml. Raises BadInput."""
    from assay.folder.files import decode, load
    from assay.ledger import config
    from assay.ledger.check import LogKey
    from assay.ledger.keys import as_bad_input

    path = Path(said)
    if path.suffix == ".toml":
        return config.load(path).key
    if "+" in said:
        return said
    found = decode(load(path, 65_536, hint="give NAME+HEX+BASE64, or a file that holds it, such as ledger.toml"), path).strip()
    with as_bad_input("it must hold the log's public key, NAME+HEX+BASE64, as ledger.toml has it", file=path):
        return str(LogKey.parse(found))


def _show(found: Verified, *, own: bool) -> None:
    from assay.cli.show import heading, note, sentence, show, stages

    said = found.receipt
    how = "verified, and computed again" if found.recomputed else "verified"
    joint = found.emission
    of, epoch = (said["competition"], said["epoch"]) if joint is None else (f"emission of {joint['subnet']}", joint["epoch"])
    what = f"{of} · epoch {epoch}"
    show(heading(f"{what}: {how}"), stages(found.checked), "")
    if own:
        what, whose = ("receipt", "log's") if joint is None else ("split", "subnet's")
        show(sentence(f"Whose {what} it is was not checked: give the {whose} public key with --key."), "")
    show(note(f"Digest {said['settlement']}" if joint is None else f"Emission {joint['digest']}"))
