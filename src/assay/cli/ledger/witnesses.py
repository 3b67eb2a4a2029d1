"""The commands for witnesses: `assay ledger witness` and `fork` for a log, `assay witness key` and `serve` for who witnesses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.ledger.upkeep import Folder
from assay.cli.output import AsJson, emit
from assay.cli.serve import AddressOption, HostOption, PortOption, ProxyOption
from assay.errors import BadInput

if TYPE_CHECKING:
    from assay.publish.witnesses import CosignedCheckpoint

__all__ = ["app", "fork", "witness"]

app = typer.Typer(
    name="witness",
    help="Be a witness of logs: cosign their checkpoints as long as they only grow.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def witness(
    folder: Folder,
    seconds: Annotated[float, typer.Option(metavar="N", min=0.1, help="For all witnesses together, at each checkpoint.")] = 20.0,
    as_json: AsJson = False,
) -> None:
    """Have the witnesses of a log cosign its checkpoints, and show everybody what a quorum has cosigned.

    The file DIR/witnesses.policy (NAME.witnesses.policy for a subnet file) names them, in C2SP's tlog-policy format. As long as
    it is there, a new checkpoint is shown only when a quorum has cosigned it; the operator's node asks by itself. A witness that
    saw another history is named, and both checkpoints are kept in DIR/forks.

    The exit code is 1 while a checkpoint has no quorum.

    \b
    Example:
      assay ledger witness my-competition
    """
    from assay.cli.output import Working
    from assay.ledger.access import open_ledger
    from assay.publish.witnesses import LogWitnesses, policy_of

    with open_ledger(folder) as ledger:
        policy = policy_of(ledger)
        if policy is None:
            hint = "write one: docs/witnessing.md has an example"
            raise BadInput("no such file, so the log has no witnesses", file=ledger.config.policy, hint=hint)
        with Working(f"asking the witnesses of {ledger.key.name}"):
            rounds = [*LogWitnesses(policy, seconds=seconds).bring_up(ledger)]
        shown = ledger.log.shown()
        size = 0 if shown is None else shown.size
    if as_json:
        emit({"shown": size, "checkpoints": [_document(asked) for asked in rounds]})
    else:
        _show(rounds, policy.quorum, size)
    if rounds and not rounds[-1].reached:
        raise typer.Exit(1)


def _document(asked: CosignedCheckpoint) -> dict[str, object]:
    evidence = [str(path) for path in asked.evidence]
    row = {"size": asked.size, "quorum": asked.reached, "cosigned": list(asked.cosigned), "failed": dict(asked.failed)}
    return row | {"evidence": evidence}


def _show(rounds: list[CosignedCheckpoint], quorum: str, size: int) -> None:
    from assay.cli.show import Column, grid, sentence, show
    from assay.settle.story.telling import plural

    if not rounds:
        show(sentence(f"Everybody is shown the log with {plural(size, 'entry', 'entries')}. Nothing waits for its witnesses."))
        return
    last = rounds[-1]
    rows = [*((name, "cosigned") for name in last.cosigned), *last.failed.items()]
    if rows:
        show(grid([Column("witness", [name for name, _ in rows]), Column("", [what for _, what in rows], kind="text")]), "")
    reached = sum(asked.reached for asked in rounds)
    if reached:
        what = f"{plural(reached, 'checkpoint')} {'is' if reached == 1 else 'are'} cosigned"
        show(sentence(f"{what}: everybody is shown the log with {plural(size, 'entry', 'entries')}."))
    if not last.reached:
        more = " Both checkpoints are kept; `assay ledger fork` proves a fork." if last.evidence else ""
        entries = plural(last.size, "entry", "entries")
        show(sentence(f"The checkpoint of {entries} waits: the quorum {quorum} is not reached.{more}"))


def fork(
    first: Annotated[Path, typer.Argument(metavar="A", help="A signed checkpoint, a receipt, or a proof of a fork.")],
    second: Annotated[
        Path | None, typer.Argument(metavar="B", help="Another checkpoint or receipt of the log.", show_default=False)
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="The log's public key, or a file with it, such as ledger.toml.", show_default=False),
    ] = None,
    log: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The tiles of the larger one's log.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write the proof.", show_default=False)
    ] = None,
) -> None:
    """Prove that a log was forked: its key signed two checkpoints that cannot be of one log. Or check such a proof.

    The proof is one JSON document that anybody can check, without the log. For checkpoints of different sizes it needs the tiles
    of the larger one. If the log only grew from one to the other, there is no fork, and the exit code is 2.

    \b
    Examples:
      assay ledger fork seen-in-may checkpoint --key log.vkey --log log -o fork.json
      assay ledger fork fork.json
    """
    from assay.cli.ledger.verify import log_key
    from assay.cli.output import json_bytes, put
    from assay.ledger.check import RECEIPT_BYTES, LogKey
    from assay.ledger.forks import check_fork, prove, read_checkpoint
    from assay.ledger.keys import as_bad_input
    from assay.ledger.log import Log

    if second is None:
        from assay.folder.files import load

        with as_bad_input("give two checkpoints, or a proof that `assay ledger fork` wrote", file=first):
            proof = check_fork(load(first, RECEIPT_BYTES, hint="give two checkpoints, or a proof of a fork"))
            small, large = proof.checkpoints()
        from assay.cli.errors import printable
        from assay.settle.story.telling import plural

        last = plural(large.size, "entry", "entries")
        sizes = last if small.size == large.size else f"{small.size} and {last}"
        typer.echo(printable(f"forked: {small.origin} signed two histories, of {sizes}, with the key {proof.key}"))
        return
    known = None if key is None else LogKey.parse(log_key(key))
    note, named = read_checkpoint(first, known)
    other, _ = read_checkpoint(second, known)
    tiles = None if log is None else Log(log, named)
    put(json_bytes(prove(note, other, named, tiles).document()), output)


NameOption = Annotated[
    str, typer.Option("--name", metavar="NAME", help="The witness's name, such as example.org/witness.", show_default=False)
]
KeyOption = Annotated[
    str, typer.Option(metavar="KEY", help="Its key, which signs nothing else: `assay keys new`.", show_default=False)
]


@app.command("key")
def witness_key(name: NameOption, key: KeyOption, as_json: AsJson = False) -> None:
    """Print the public key of a witness, as it stands in policy files: `witness NAME VKEY URL`.

    \b
    Example:
      assay keys new witness
      assay witness key --name example.org/witness --key witness
    """
    from assay.cli.ledger.keys import asking
    from assay.ledger import keys
    from assay.ledger.cosigning import ED25519, WitnessKey

    public = keys.load(key, asking()).public
    if public.kind != "ed25519":
        raise BadInput(f"{public} is not an Ed25519 key", hint="make one: assay keys new NAME")
    vkey = str(WitnessKey(name, ED25519, public.raw))
    if not emit({"name": name, "key": vkey}, as_json):
        typer.echo(vkey)


@app.command("serve")
def serve_witness(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where it keeps what it has signed. Keep it: see below.")],
    name: NameOption,
    key: KeyOption,
    log: Annotated[
        list[str], typer.Option(metavar="KEY", help="A log's public key, or a file with it. May be repeated.", show_default=False)
    ],
    port: PortOption = 8500,
    host: HostOption = "127.0.0.1",
    address: AddressOption = None,
    proxy: ProxyOption = None,
) -> None:
    """Serve a witness of these logs (C2SP tlog-witness): it cosigns a checkpoint only if the log grew from the last one.

    DIR has one small file a log: the last checkpoint that was cosigned. A witness that lost it could sign an older tree, so keep
    it, and bring it back from nothing but the newest copy. It listens on loopback; put a reverse proxy before it.

    \b
    Example:
      assay witness serve witness-state --name example.org/witness --key witness --log term-challenge.vkey
    """
    from assay.cli.errors import printable, warn
    from assay.cli.ledger.keys import asking
    from assay.cli.ledger.verify import log_key
    from assay.cli.serve import options_of
    from assay.ledger import keys
    from assay.ledger.check import LogKey
    from assay.ledger.witness import Witness
    from assay.settle.story.telling import plural

    options = options_of(folder, port, host, address, None, None, 1, proxy)
    from assay.serve.listening import addresses, listen
    from assay.serve.witness import run_witness

    known = Witness(folder, name, keys.load(key, asking()), [LogKey.parse(log_key(text)) for text in log])
    with listen(options) as opened:
        if not options.is_loopback:
            warn([f"other machines reach {options.host}:{opened.getsockname()[1]}"])
        url = addresses(options, opened.getsockname()[1])[0]
        typer.echo(printable(f"witness {name.rpartition('/')[2]} {known.key} {url}"))
        for origin in known.logs:
            last = known.last(origin)
            typer.echo(
                printable(f"log {origin}: {'nothing' if last is None else plural(last.size, 'entry', 'entries')} cosigned yet")
            )
        typer.echo("Ctrl-C ends it.")
        run_witness(known, options, opened)
