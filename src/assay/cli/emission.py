"""`assay emission`: the competitions of a subnet, joined into its weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.output import emit

if TYPE_CHECKING:
    from rich.console import RenderableType

    from assay.settle.emission import Emission

__all__ = ["emission"]


def emission(
    subnet: Annotated[Path, typer.Argument(metavar="SUBNET.toml", help="The subnet file.", show_default=False)],
    epoch: Annotated[
        int | None,
        typer.Option(metavar="N", help="The epoch; otherwise the last that all have settled, or have evidence of.", min=0),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The split as canonical JSON.")] = False,
    top: Annotated[int | None, typer.Option(metavar="N", help="Show so many rows of each table [32].", min=1)] = None,
    sign: Annotated[
        bool, typer.Option("--sign", help="Sign the split, and add it to the subnet's log: `assay ledger init SUBNET.toml`.")
    ] = False,
    key: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --sign: the log's key, if NAME.ledger.toml does not name it.")
    ] = None,
) -> None:
    """Combine the competitions of a subnet into one split of its weights.

    Settles every competition that the subnet file lists, and adds up the shares of each participant. If a competition has a
    ledger, the settlement in the ledger is used, and its receipt is checked and named.

    --sign needs an epoch that all competitions have settled. It signs and stores the split, which names the log and the receipt
    of each competition. Only a signed split can be published and exported. If you sign it again, it is computed again, and the
    result must be the same.

    \b
    Examples:
      assay emission my-subnet.toml
      assay emission my-subnet.toml --epoch 12 --json
      assay emission my-subnet.toml --epoch 12 --sign
    """
    if key is not None and not sign:
        raise typer.BadParameter("goes with --sign", param_hint="--key")
    import assay
    from assay.cli.output import Working

    if sign:
        split, remark = _signed(subnet, epoch, key)
    else:
        with Working(f"settling the competitions of {subnet}"):
            split, remark = assay.emission(subnet, epoch), ""
    if emit(split.document, as_json):
        return

    from assay.cli.show import TOP, note, show

    show(*_board(split, _called(subnet, split), top or TOP), *([note(remark)] if remark else []))


def _called(subnet: Path, split: Emission) -> list[str]:
    """The names of a split's competitions, in its order."""
    from assay.scheme.subnet import read
    from assay.settle.emission import labels

    return labels(read(subnet), [part.name for part in split.competitions])


def _signed(subnet: Path, epoch: int | None, key: str | None) -> tuple[Emission, str]:
    """The split, signed and kept, and what to say of its place in the log."""
    from assay.cli.ledger.keys import asking
    from assay.cli.output import Working
    from assay.errors import BadInput
    from assay.ledger import config, keys, subnet_bundle

    settings = config.read(subnet)
    name = key or settings.signer
    if name is None:
        what, hint = "does not say which key signs the split", "name the log's key with --key NAME"
        raise BadInput(what, file=settings.file, field="signer", hint=hint)
    signer = keys.load(name, asking())
    with Working(f"settling the competitions of {subnet}"):
        signed = subnet_bundle.sign(subnet, signer, epoch)
    before = "" if signed.new else ", as it was signed before"
    where = f"Signed {signed.receipt.digest}, entry {signed.receipt.position} of {settings.origin}{before}"
    return signed.emission, where


def _board(split: Emission, called: list[str], top: int) -> Iterator[RenderableType]:
    from assay.cli.show import Column, first, grid, heading, note, rest
    from assay.exact import NANO, RAO, coins, nanos
    from assay.settle.story.telling import percent, percents

    document = split.document
    parts, rows, burn = document["competitions"], document["weights"], document["burn"]
    yield heading(f"{len(parts)} {'competition' if len(parts) == 1 else 'competitions'} · epoch {document['epoch']}")
    yield ""
    columns = [
        Column("competition", called),
        Column("share", percents([part["share"] for part in parts]), right=True),
    ]
    if all(part["emission"] is not None for part in parts):
        columns.append(Column("rao", [part["emission"] for part in parts], right=True))
        columns.append(Column("TAO", [coins(part["emission"], RAO) for part in parts], right=True, spare=1))
    moved = [part for part in parts if part.get("received", part["share"]) != part["share"]]
    if moved:
        columns.insert(2, Column("receives", percents([part["received"] for part in parts]), right=True))
    yield grid(columns)
    if moved:
        nobody = ", ".join(name for name, part in zip(called, parts, strict=True) if part["received"] == "0" != part["share"])
        yield note(f"Nobody took part in {nobody}: its part goes to the others in proportion to theirs.")
    unclaimed = NANO - sum(nanos(part["share"]) for part in parts)
    if unclaimed:
        yield note(f"No competition claims {percent(unclaimed)}, which burns.")
    yield ""
    shares = [
        Column("participant", [*(row["participant"] for row in rows), "burn"], kind="key", style="bold"),
        Column("uid", ["–" if row["uid"] is None else str(row["uid"]) for row in (*rows, burn)], right=True),
        Column("share", percents([row["share"] for row in (*rows, burn)]), right=True),
        Column("u16", [str(row["u16"]) for row in (*rows, burn)], right=True),
        Column("on chain", [str(row["chain_u16"]) for row in (*rows, burn)], right=True),
    ]
    yield grid(first(shares, top, len(rows)), styles=[*("" for _ in rows[:top]), "dim"])
    yield from rest(top, len(rows))
    yield ""
    receipts = {name: part.receipt for name, part in zip(called, split.competitions, strict=True) if part.receipt is not None}
    for name, receipt in receipts.items():
        yield note(f"Receipt of {name} {receipt}")
    without = [name for name in called if name not in receipts]
    if receipts and without:
        yield note(f"Not settled in a ledger, so without a receipt: {', '.join(without)}.")
    yield from _blocks(split, called)
    yield note(f"Digest {document['digest']}")


def _blocks(split: Emission, called: list[str]) -> Iterator[RenderableType]:
    """A note for each registry older than another's; the uids are the same at both blocks, or they would not have been joined."""
    from assay.cli.show import note

    blocks = {name: part.block for name, part in zip(called, split.competitions, strict=True) if part.block is not None}
    newest = max(blocks.values(), default=0)
    for name, block in blocks.items():
        if block < newest:
            yield note(f"The registry of {name} is of block {block}, older than block {newest}; its uids were the same then.")
    if min(blocks.values(), default=0) < newest:
        yield note("Pull all at one block next time: assay registry pull SUBNET.toml --to NAME")
