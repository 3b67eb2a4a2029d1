"""The commands `assay node validator|operator|status`: what validators and operators leave running, and how it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.following import FolderArgument, KeyOption, UrlOption, signer_of
from assay.cli.judging.run import COMMAND as KIND_COMMAND
from assay.cli.ledger.keys import asking
from assay.cli.output import AsJson, emit
from assay.cli.serve import (
    AddressOption,
    CertificateKeyOption,
    CertificateOption,
    HostOption,
    PortOption,
    ProxyOption,
    WorkersOption,
)
from assay.cli.telling import (
    MetricsOption,
    OnAlarmOption,
    PageOption,
    PlainOption,
    WebhookOption,
    show_alarms,
    telling_of,
)
from assay.errors import BadInput

if TYPE_CHECKING:
    from assay.kind import Kind
    from assay.ledger.keys import PrivateKey
    from assay.node import NodeOptions

__all__ = ["app"]

PlaceArgument = Annotated[
    Path, typer.Argument(metavar="DIR|SUBNET.toml", help="A competition's folder, or a subnet file.", show_default=False)
]
HELP = "Leave a validator or an operator running, and see how it is."


app = typer.Typer(name="node", help=HELP, no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """Leave a validator or an operator running, and see how it is."""


@app.command("validator", cls=KIND_COMMAND)
def validator(
    context: typer.Context,
    folder: FolderArgument,
    url: UrlOption,
    key: KeyOption,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", metavar="N", help="Trials at one time (1), or solutions (8).", min=1)
    ] = None,
    attempts: Annotated[int, typer.Option(metavar="N", help="How often a trial that errs is begun.", min=1)] = 3,
    once: Annotated[bool, typer.Option("--once", help="One round, then end: for cron, or to try it.")] = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Work although another node works with this key; that one stops.")
    ] = False,
    on_alarm: OnAlarmOption = None,
    webhook: WebhookOption = None,
    plain_webhook: PlainOption = False,
    page: PageOption = None,
    metrics: MetricsOption = None,
) -> None:
    """Follow the service of a competition: fetch what is new, calibrate, judge, sign and send, again and again.

    DIR is made if it is not there. Evidence that cannot be sent waits in DIR/batches, and goes to the epoch that is open when the
    service answers again; nothing is judged twice. A new task set is used from the next epoch on. kill -9, a full disk and a
    service that is away lose nothing: the node goes on by itself, or when it is started again. SIGTERM and Ctrl-C end it; a
    trial that is running is thrown away then, and judged again later.

    One node works with a key at a time. A second one stands still until the first was not heard for five minutes.

    The options of judges are those of `assay run`. `assay node status DIR` says how it is, and so do DIR/node/status.html, a page
    that reads itself again, and status.prom, for Prometheus. --on-alarm and --webhook tell each alarm once when it begins, and
    once when it is over.

    \b
    Examples:
      assay node validator my-copy --url https://assay.example.org/term-challenge --key val-1 --jobs 2
      assay node validator my-copy --url https://assay.example.org/term-challenge --key val-1 --once
      assay node validator my-copy --url https://assay.example.org/term-challenge --key val-1 --on-alarm "sh mail-alarm.sh"
    """
    from dataclasses import replace

    from assay.cli.errors import printable
    from assay.node.validator import Node
    from assay.node.validator import once as one_round

    telling = telling_of(folder, on_alarm, webhook, plain_webhook, page, metrics)
    signer = signer_of(key)

    def tell(line: str) -> None:
        from assay.node.status import now_text

        typer.echo(f"{now_text()}  {printable(line)}")

    options = replace(_options(context, jobs, attempts), take_over=take_over)
    if not once:
        Node(folder, url, signer, options, tell, telling).run()
        return
    code = one_round(folder, url, signer, options, tell, telling)
    if code:
        raise typer.Exit(code)


@app.command("operator")
def operator(
    place: PlaceArgument,
    serve: Annotated[bool, typer.Option("--serve/--no-serve", help="Whether this process also serves the season.")] = True,
    port: PortOption = 8400,
    host: HostOption = "127.0.0.1",
    address: AddressOption = None,
    certificate: CertificateOption = None,
    certificate_key: CertificateKeyOption = None,
    workers: WorkersOption = 1,
    proxy: ProxyOption = None,
    key: Annotated[
        str | None, typer.Option(metavar="NAME", help="The log's key, if ledger.toml does not name it.", show_default=False)
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(metavar="TARGET", help="The target of publish.toml from which the registry is pulled.", show_default=False),
    ] = None,
    to: Annotated[
        list[str] | None,
        typer.Option("--to", metavar="TARGET", help="Publish to this target of publish.toml [all].", show_default=False),
    ] = None,
    publish: Annotated[bool, typer.Option("--publish/--no-publish", help="Whether settled epochs are published.")] = True,
    export: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Export each settled epoch to FOLDER/epoch-N.", show_default=False)
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Close and publish what is due, and end: for cron.")] = False,
    on_alarm: OnAlarmOption = None,
    webhook: WebhookOption = None,
    plain_webhook: PlainOption = False,
    page: PageOption = None,
    metrics: MetricsOption = None,
) -> None:
    """Run a season: serve it, close each epoch when it ends, publish and export it, again and again.

    `[epoch]` in the scheme says when an epoch ends: every and start, or the tempo of a chain; without it epochs are closed by
    hand, and the node serves and publishes. An epoch that has ended waits for validators until all submissions have an agreed
    score, or the grace time is over. While nobody has an agreed score it stays open, unless the scheme says empty = "burn".
    After a day away every epoch is closed in its order; none is skipped.

    A registry that was pulled from a chain is pulled again at each epoch's block, one block for all competitions of a subnet.
    Everything that is settled goes to the targets of publish.toml. kill -9 loses nothing; SIGTERM and Ctrl-C end it.

    `assay node status` says how it is and what is wrong, and so do DIR/node/status.html and status.prom; --on-alarm and --webhook
    tell each alarm once when it begins, and once when it is over.

    \b
    Examples:
      assay node operator my-competition
      assay node operator my-subnet.toml --address https://assay.example.org --proxy 127.0.0.1
      assay node operator my-competition --no-serve --once
      assay node operator my-competition --on-alarm "sh mail-alarm.sh" --webhook https://hooks.example.org/assay
    """
    from assay.cli.errors import printable
    from assay.cli.serve import options_of
    from assay.node.operator import Operator, OperatorOptions

    service = None
    if serve and not once:
        from assay.serve import installed

        installed()
        service = options_of(place, port, host, address, certificate, certificate_key, workers, proxy)
    telling = telling_of(place, on_alarm, webhook, plain_webhook, page, metrics)
    signers, beside = _signers(place, key)
    known = _known_targets(beside)
    options = OperatorOptions(
        place, service, _registry(place, beside, known, registry), _targets(known, to, publish=publish), export, asking()
    )

    def tell(line: str) -> None:
        from assay.node.status import now_text

        typer.echo(f"{now_text()}  {printable(line)}")

    node = Operator(options, signers, tell, telling)
    if once:
        node.once()
        return
    code = node.run()
    if code:
        raise typer.Exit(code)


def _signers(place: Path, key: str | None) -> tuple[dict[Path, PrivateKey], Path]:
    """The key of each log, and the folder of publish.toml. Raises BadInput for a competition without a ledger or a key."""
    from assay.ledger import config, keys
    from assay.node.operator import places

    folders, subnet, beside = places(place)
    loaded: dict[str, PrivateKey] = {}
    signers = {}
    for each in (*folders, *([] if subnet is None else [subnet])):
        settings = config.read(each)
        name = key or settings.signer
        if name is None:
            hint = 'write signer = "NAME" there, or name the key with --key NAME'
            raise BadInput("does not say which key signs", file=settings.file, field="signer", hint=hint)
        signers[each] = loaded.setdefault(name, keys.load(name, asking())) if name not in loaded else loaded[name]
    return signers, beside


def _known_targets(beside: Path) -> dict[str, str]:
    """The targets of publish.toml and their kinds; none if there is no such file. Raises BadInput."""
    from assay.scheme.reading import read_toml

    file = beside / "publish.toml"
    if not file.exists():
        return {}
    content, _ = read_toml(file)
    targets = content.get("targets")
    rows = targets.items() if isinstance(targets, dict) else ()
    return {name: str(row.get("kind")) for name, row in rows if isinstance(row, dict)}


def _targets(known: dict[str, str], named: list[str] | None, *, publish: bool) -> tuple[str, ...]:
    if not publish:
        return ()
    for name in named or ():
        _check_target(known, name, "--to")
    return tuple(named or known)


def _registry(place: Path, beside: Path, known: dict[str, str], named: str | None) -> str | None:
    """The target from which registries are pulled: the one that is named, or the only subnet, if one was pulled before."""
    from assay.node.operator import places

    if named is not None:
        _check_target(known, named, "--registry")
        return named
    subnets = [name for name, kind in known.items() if kind == "bittensor"]
    folders, _, _ = places(place)
    if not subnets or not any((folder / "registry.json").exists() for folder in folders):
        return None
    if len(subnets) > 1:
        what = f"the registry was pulled from a chain, and there are several subnets: {', '.join(subnets)}"
        raise BadInput(what, file=beside / "publish.toml", hint="name one: --registry TARGET")
    return subnets[0]


def _check_target(known: dict[str, str], name: str, option: str) -> None:
    if name not in known:
        from assay.errors import suggest

        raise BadInput(f"publish.toml has no target {name[:60]!r}", field=option, hint=suggest(name, known, "write one there"))


def _options(context: typer.Context, jobs: int | None, attempts: int) -> NodeOptions:
    from assay.cli.judging.run import settings_of
    from assay.node import NodeOptions

    def settings(kind: Kind) -> Any:
        try:
            return settings_of(context, kind)
        except typer.BadParameter as error:  # the kind is known only when the rules were fetched
            raise BadInput(f"this option {error.message}", hint=f"it is {error.param_hint}") from None

    return NodeOptions(jobs, attempts, settings)


@app.command()
def status(folder: PlaceArgument, as_json: AsJson = False) -> None:
    """Say in a line what the node of DIR does, and what is wrong, with what to do about it.

    Ends with 0 if nothing is wrong, and 1 while an alarm stands. At a validator's node: the node does not run, the service is
    away for more than five minutes or refuses a batch, the clock is wrong, a result or a submission is missing, a task does not
    calibrate, records contradict earlier ones, the disk is almost full. At an operator's: the node or its service does not run,
    an epoch cannot be closed, a validator is late, the quorum is in danger, nobody judges a submission, a validator tells what is
    wrong on its machine, a target is not published to, the disk is almost full. With a subnet file, of all its competitions.

    \b
    Examples:
      assay node status my-copy
      assay node status my-subnet.toml --json
    """
    from assay.node.operator import places
    from assay.node.status import read_status

    folders = places(folder)[0]
    seen = [read_status(place, whole=not number) for number, place in enumerate(folders)]
    documents = {str(place): current.document for place, current in zip(folders, seen, strict=True)}
    if not emit(documents[str(folder)] if folders == [folder] else {"competitions": documents}, as_json):
        for place, current in zip(folders, seen, strict=True):
            if len(seen) > 1:
                typer.echo(f"{place.name}: ", nl=False)
            show_alarms(current)
    if any(current.alarms for current in seen):
        raise typer.Exit(1)
