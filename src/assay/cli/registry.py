"""`assay registry pull`: participants and validators as a subnet of Bittensor has them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.errors import warn
from assay.cli.publishing import JsonOption
from assay.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assay.publish.bittensor.node import BittensorNode, BlockId
    from assay.publish.bittensor.registry import Change, Pull

OLD_SECONDS = 600
"""A final block that is older is worth a word: the node may have stopped following its chain."""
app = typer.Typer(
    name="registry", no_args_is_help=True, help="Fetch participants and validators from a chain.", rich_markup_mode=None
)


def _targets(ctx: typer.Context, incomplete: str) -> list[str]:
    """The targets of the publish.toml that is meant, for the shell's completion."""
    from assay.publish.publishers import target_names

    first = Path(next(iter(ctx.params.get("places") or ["."])))
    return [name for name in target_names(first.parent if first.is_file() else first) if name.startswith(incomplete)]


@app.callback()
def main() -> None:
    """Fetch participants and validators from a chain."""


@app.command("pull")
def pull(
    places: Annotated[
        list[Path],
        typer.Argument(metavar="DIR…", help="The competition's folder; or several, or a subnet file.", show_default=False),
    ],
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="NAME", help="A target of publish.toml, not --url and --netuid.", autocompletion=_targets),
    ] = None,
    url: Annotated[str | None, typer.Option(metavar="URL", help="A node of the chain: wss://… or ws://127.0.0.1:9944.")] = None,
    netuid: Annotated[int | None, typer.Option(metavar="N", help="The subnet.", min=1, max=4095)] = None,
    mechanism: Annotated[int, typer.Option(metavar="N", help="With --netuid: the subnet's mechanism.", min=0, max=15)] = 0,
    block: Annotated[str, typer.Option(metavar="N", help="A final block, by its number; otherwise the last.")] = "finalized",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what changes, and write nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Pull participants and validators from a subnet of Bittensor.

    All is read at one block. Writes participants.csv: every hotkey but the burn UID's, with its uid. A key that is there keeps
    its row; one that has no uid any more stays, without one. Writes validators.csv: the hotkeys with a permit, and their stake
    weight as the chain's epoch counts it; a hotkey that has none any more stays, with stake 0. Writes registry.json: the block,
    which goes into the receipt of a competition with a ledger.

    The competitions of one subnet are pulled together, so that all have the same block: name their folders, or the subnet file.
    Either all are written, or none. The target of --to is that of the first folder's publish.toml, or of the one beside the
    subnet file.

    As long as registry.json is there, other uids or stakes than it is of are not settled.

    \b
    Examples:
      assay registry pull my-subnet --netuid 5 --url wss://entrypoint-finney.opentensor.ai:443 --dry-run
      assay registry pull my-subnet --to mainnet
      assay registry pull my-subnet.toml --to mainnet
    """
    from assay.publish.bittensor import registry
    from assay.scheme.load import read as read_scheme

    beside, folders = _folders(places)
    for folder in folders:  # before a node is asked
        read_scheme(folder / "scheme.toml")
    node, netuid, mechanism = _node(beside, to, url, netuid, mechanism)
    try:
        at = block_of(node, block)
        pulls = registry.pull_together(node, netuid, mechanism, at, folders)
        if block == "finalized":
            warn(_old(node, at))
    finally:
        node.close()
    if not dry_run:
        registry.write(*pulls)
    _tell(pulls, written=not dry_run, as_json=as_json)


def _folders(places: Sequence[Path]) -> tuple[Path, list[Path]]:
    """The folder of publish.toml, and the competitions' folders, each once, in the order given."""
    from assay.scheme import subnet

    named = [subnet.places(place) for place in places]
    by_path: dict[Path, Path] = {}
    for folders, _, _ in named:
        for folder in folders:
            by_path.setdefault(folder.resolve(), folder)
    return named[0][2], list(by_path.values())


def _node(folder: Path, to: str | None, url: str | None, netuid: int | None, mechanism: int) -> tuple[BittensorNode, int, int]:
    """The node that is to be asked, and for what."""
    from assay.publish import publishers
    from assay.publish.bittensor import settings
    from assay.publish.bittensor.node import BittensorNode

    if to is not None:
        if url is not None or netuid is not None or mechanism:
            raise typer.BadParameter("the target has these already: leave out --url, --netuid and --mechanism", param_hint="--to")
        return settings.subnet_of(publishers.read_target(folder, to))
    if url is None or netuid is None:
        raise typer.BadParameter("give --url and --netuid, or a target of publish.toml: --to NAME", param_hint="--netuid")
    if settings.open_to_anybody(url):
        warn(["--url: what the node says is not encrypted on the way, and anybody there can change it; use wss://"])
    try:
        return BittensorNode(url), netuid, mechanism
    except BadInput as error:
        raise error.at(field="--url") from None


def block_of(node: BittensorNode, text: str) -> BlockId:
    """The block that is meant; raises BadInput for one that is not final: another may take its place."""
    from assay.publish.bittensor.node import BlockId

    last = node.finalized()
    if text == "finalized":
        return last
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise BadInput(f"{text[:60]!r} is not a block", field="--block", hint="give the number of a block, or finalized")
    block_hash = None if int(text) > last.number else node.block_hash(int(text))
    if block_hash is None:
        raise BadInput(f"block {text} is not final yet", field="--block", hint=f"the newest final block is {last.number}")
    return BlockId(int(text), block_hash)


def _old(node: BittensorNode, at: BlockId) -> Iterator[str]:
    """A word on a final block that is old by the clock of this machine."""
    from assay.settle.story.telling import plural

    then = node.query("Timestamp", "Now", (), at.hash)
    age = int(time.time()) - then // 1000 if isinstance(then, int) else 0
    if age > OLD_SECONDS:
        old = plural(age // 60, "minute")
        yield f"the last final block of {node.host}, {at.number}, is {old} old: does the node follow its chain?"


def _tell(pulls: Sequence[Pull], *, written: bool, as_json: bool) -> None:
    from assay.cli.output import emit

    if emit(lambda: _document(pulls, written=written), as_json):
        return
    from assay.cli.show import heading, note, show
    from assay.settle.story.telling import plural

    about = pulls[0].pulled
    show(heading(f"Subnet {about.netuid}, mechanism {about.mechanism}, at block {about.block}"))
    for each in pulls:
        if len(pulls) > 1:
            show("", heading(str(each.folder)))
        show(
            *_parts("participant", "uid", each.people),
            *_parts("validator", "stake", each.judges),
            note(f"{plural(each.participants, 'participant')}, {plural(each.validators, 'validator')}; block {about.hash}"),
            note(f"{'Written to' if written else 'Nothing was written to'} {each.folder}."),
        )


def _parts(who: str, what: str, changes: Sequence[Change]) -> Iterator[Any]:
    from assay.cli.show import Column, grid, note

    if not changes:
        yield note(f"Nothing changes of any {who}.")
        return
    names = (
        [Column("name", [change.name for change in changes], kind="crop", spare=1)]
        if any(change.name for change in changes)
        else []
    )
    yield grid(
        [
            Column(who, [change.key for change in changes], kind="key"),
            *names,
            Column(f"{what} before", [change.before for change in changes], right=True),
            Column("now", [change.now for change in changes], right=True),
            Column("", [change.kind for change in changes]),
        ]
    )


def _document(pulls: Sequence[Pull], *, written: bool) -> dict[str, Any]:
    def row(change: Change) -> dict[str, Any]:
        return {"key": change.key, "before": change.before or None, "now": change.now or None, "change": change.kind}

    documents = [
        {
            "registry": each.pulled.model_dump(),
            "participants": {"count": each.participants, "changes": [row(person) for person in each.people]},
            "validators": {"count": each.validators, "changes": [row(judge) for judge in each.judges]},
            "written": written,
        }
        for each in pulls
    ]
    if len(pulls) == 1:
        return documents[0]
    folders = [{"folder": str(each.folder)} | document for each, document in zip(pulls, documents, strict=True)]
    return {"folders": folders, "written": written}
