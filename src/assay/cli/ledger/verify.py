"""The command `assay verify`: check a receipt, a proof or a bundle, and print what was checked or the first fault."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.archive import Address, Engine, Memory, Workers, check_alone, shard_engine, verify_archive
from assay.cli.judging.run import UntilName

if TYPE_CHECKING:
    from assay.ledger.verify import Verified

__all__ = ["log_key", "verify"]

_RECEIPT = "A receipt, a participant's proof, or an exported folder. With --all: an archive, a folder or s3://BUCKET/PREFIX."
_Receipt = Annotated[str, typer.Argument(metavar="RECEIPT", help=_RECEIPT, show_default=False)]
_EVIDENCE = "The exported epoch, or a file of evidence; for a participant's proof, only its log is used."
_Evidence = Annotated[Path | None, typer.Option(metavar="PATH", help=_EVIDENCE)]
_KEYS = "The log's public key, or a file with it, such as ledger.toml; for a subnet, the key of its own log."
_Keys = Annotated[list[str] | None, typer.Option(metavar="KEY", help=_KEYS)]
_SUBNET = "A subnet file that a signed split must follow."
_Subnet = Annotated[Path | None, typer.Option(metavar="FILE", help=_SUBNET, show_default=False)]
_DUEL = "What `assay duel` wrote: the duel is computed again from the bundle's evidence."
_Duel = Annotated[Path | None, typer.Option(metavar="FILE", help=_DUEL, show_default=False)]
_UNTIL = "Also check that no outcome of a missing trial could change a rank, tier or weight; paid: only what is paid."
_Until = Annotated[UntilName | None, typer.Option(help=_UNTIL)]
_POLICY = "Witnesses (C2SP tlog-policy): a quorum must have cosigned."
_Policy = Annotated[Path | None, typer.Option(metavar="FILE", help=_POLICY, show_default=False)]


def verify(
    receipt: _Receipt,
    evidence: _Evidence = None,
    scheme: Annotated[Path | None, typer.Option(metavar="FILE", help="A scheme file that must be the receipt's.")] = None,
    key: _Keys = None,
    checkpoint: Annotated[Path | None, typer.Option(metavar="FILE", help="A checkpoint of the log that was seen before.")] = None,
    log: Annotated[Path | None, typer.Option(metavar="DIR", help="The folder of the log's tiles.")] = None,
    subnet: _Subnet = None,
    policy: _Policy = None,
    duel: _Duel = None,
    until: _Until = None,
    everything: Annotated[bool, typer.Option("--all", help="Verify every epoch of every competition in an archive.")] = False,
    engine: Engine = "local",
    address: Address = None,
    workers: Workers = 0,
    memory: Memory = 4.0,
    as_json: Annotated[bool, typer.Option("--json", help="As canonical JSON.")] = False,
) -> None:
    """Check a receipt, and compute its settlement again.

    It works offline, on files from anybody. It prints what was checked, or the first stage that fails, with what was expected
    and what was found; and what could not be checked.

    A subnet's signed split names the log of each competition, so the keys of these logs need not be given.

    With --until, every outcome that trials which nobody judged could have had must give the same ranks, tiers and weights.
    The exit code is 0 if every check passes, 1 if one fails.

    With --all, every epoch of an archive is verified (assay export archive writes one), by several processes at once. A fault in
    one epoch does not end the others' verification. --key may be repeated: a receipt must be of one of the logs.

    \b
    Examples:
      assay verify epoch-12 --key "example.org/my-competition+1a2b3c4d+Ab…"
      assay verify epoch-12.receipt --key log.vkey --checkpoint seen-in-may --log log
      assay verify miner-7-epoch-12.proof --key log.vkey --policy witnesses.policy
      assay verify epoch-12 --key log.vkey --duel duels/11-0f3a5b6c7d8e.json
      assay verify epoch-12 --key log.vkey --until paid
      assay verify emission-12 --key "example.org/my-subnet+1a2b3c4d+Ab…" --subnet my-subnet.toml
      assay verify --all s3://my-bucket/archive --key log-1.vkey --key log-2.vkey
    """
    from assay.cli.errors import refuse
    from assay.cli.output import Working, emit
    from assay.errors import Refused
    from assay.ledger.verify import verify as check

    keys = [log_key(text) for text in key or ()]
    files = {"evidence": evidence, "scheme": scheme, "checkpoint": checkpoint, "log": log, "subnet": subnet, "duel": duel}
    if everything:
        check_alone({f"--{name}": path is not None for name, path in (files | {"until": until}).items()}, "--all")
        verify_archive(receipt, keys, policy, shard_engine(engine, workers, memory, address), as_json=as_json)
        return
    try:
        with Working(f"verifying {receipt}"):
            report = check(receipt, key=keys, policy=policy, until=None if until is None else until.value, **files)
    except Refused as refused:
        refuse(refused, as_json=as_json)
    if not emit(report.document, as_json):
        _show(report, own=not keys, alone=policy is None)


def log_key(text: str) -> str:
    """A log's public key: the text itself, or the key in the file of that name, such as ledger.toml. Raises BadInput."""
    from assay.folder.files import decode, load
    from assay.ledger import config
    from assay.ledger.check import LogKey
    from assay.ledger.keys import as_bad_input

    path = Path(text)
    if path.suffix == ".toml":
        return config.load(path).key
    if "+" in text:
        return text
    content = decode(load(path, 65_536, hint="give NAME+HEX+BASE64, or a file that holds it, such as ledger.toml"), path).strip()
    with as_bad_input("it must hold the log's public key, NAME+HEX+BASE64, as ledger.toml has it", file=path):
        return str(LogKey.parse(content))


def _show(report: Verified, *, own: bool, alone: bool) -> None:
    from assay.cli.show import heading, note, sentence, show, stages

    predicate = report.receipt
    how = "verified, and computed again" if report.recomputed else "verified"
    joint = report.emission
    of, epoch = (
        (predicate["competition"], predicate["epoch"]) if joint is None else (f"emission of {joint['subnet']}", joint["epoch"])
    )
    what = f"{of} · epoch {epoch}"
    show(heading(f"{what}: {how}"), stages(report.checked), "")
    if own:
        what, whose = ("receipt", "log's") if joint is None else ("split", "subnet's")
        show(sentence(f"Who signed this {what} was not checked: give the {whose} public key with --key."), "")
    show(note(f"Digest {predicate['settlement']}" if joint is None else f"Emission {joint['digest']}"))
    if alone:
        show(sentence("Not proven: that everybody is shown this same log. Witnesses of a policy prove it: --policy."))
