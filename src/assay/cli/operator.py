"""The command `assay node operator`: a season that is served, closed and published by one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.ledger.keys import asking
from assay.cli.serve import (
    AddressOption,
    CertificateKeyOption,
    CertificateOption,
    HostOption,
    PortOption,
    ProxyOption,
    WorkersOption,
    options_of,
)
from assay.cli.telling import MetricsOption, OnAlarmOption, PageOption, PlainOption, WebhookOption, tell, telling_of
from assay.errors import BadInput

if TYPE_CHECKING:
    from assay.ledger.keys import PrivateKey

__all__ = ["PlaceArgument", "operator", "registry_target", "signers_of"]

PlaceArgument = Annotated[
    Path, typer.Argument(metavar="DIR|SUBNET.toml", help="A competition's folder, or a subnet file.", show_default=False)
]
ServeOption = Annotated[bool, typer.Option("--serve/--no-serve", help="Whether this process also serves the season.")]
LogKeyOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="The log's key, if ledger.toml does not name it.", show_default=False)
]
RegistryOption = Annotated[
    str | None,
    typer.Option(metavar="TARGET", help="The target of publish.toml from which the registry is pulled.", show_default=False),
]
TargetsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--to", metavar="TARGET", help="Publish only to this target of publish.toml. May be repeated.", show_default=False
    ),
]
PublishOption = Annotated[bool, typer.Option("--publish/--no-publish", help="Whether settled epochs are published.")]
ExportOption = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Export each settled epoch to FOLDER/epoch-N.", show_default=False)
]
CatchUpOption = Annotated[
    bool,
    typer.Option(
        "--catch-up",
        help="Close all epochs that have ended, although this clock is new here. For one start: in a unit it stays on for ever, "
        "and no clock that is wrong is refused.",
    ),
]
OnceOption = Annotated[bool, typer.Option("--once", help="Close and publish what is due, and end: for cron.")]


def operator(
    place: PlaceArgument,
    serve: ServeOption = True,
    port: PortOption = 8400,
    host: HostOption = "127.0.0.1",
    address: AddressOption = None,
    certificate: CertificateOption = None,
    certificate_key: CertificateKeyOption = None,
    workers: WorkersOption = 1,
    proxy: ProxyOption = None,
    key: LogKeyOption = None,
    registry: RegistryOption = None,
    to: TargetsOption = None,
    publish: PublishOption = True,
    export: ExportOption = None,
    catch_up: CatchUpOption = False,
    once: OnceOption = False,
    on_alarm: OnAlarmOption = None,
    webhook: WebhookOption = None,
    plain_webhook: PlainOption = False,
    page: PageOption = None,
    metrics: MetricsOption = None,
) -> None:
    """Run a season: serve, close epochs, publish and export.

    `[epoch]` in the scheme says when an epoch ends: every and start, or the tempo of a chain; without it epochs are closed by
    hand, and the node serves and publishes. An epoch that has ended waits for validators until all submissions have an agreed
    score, or the grace time is over. While nobody has an agreed score it stays open, unless the scheme says empty = "burn". After
    a day away every epoch is closed in its order; none is skipped. A clock that is new here closes several only with --catch-up.

    A registry that was pulled from a chain is pulled again at each epoch's block, one block for all competitions of a subnet.
    Everything that is settled goes to the targets of publish.toml. kill -9 loses nothing; SIGTERM and Ctrl-C end it.

    `assay node status` says how it is and what is wrong, and so do DIR/node/status.html and status.prom; --on-alarm and --webhook
    tell each alarm once when it begins, and once when it is over. With --once, it ends with 3 while a target has an alarm.

    \b
    Examples:
      assay node operator my-competition
      assay node operator my-subnet.toml --address https://assay.example.org --proxy 127.0.0.1
      assay node operator my-competition --no-serve --once
      assay node operator my-competition --on-alarm "sh mail-alarm.sh" --webhook https://hooks.example.org/assay
    """
    from assay.node.operator import Operator, OperatorOptions
    from assay.publish.publishers import target_kinds
    from assay.scheme.subnet import places

    service = None
    if serve and not once:
        service = options_of(place, port, host, address, certificate, certificate_key, workers, proxy)
    telling = telling_of(place, on_alarm, webhook, plain_webhook, page, metrics)
    folders, subnet, beside = places(place)
    signers = signers_of([*folders, *([] if subnet is None else [subnet])], key)
    known = target_kinds(beside)
    source, targets = registry_target(folders, beside, known, registry), _targets(known, to, publish=publish)
    options = OperatorOptions(place, service, source, targets, export, catch_up)
    node = Operator(options, signers, tell, telling)
    code = node.once() if once else node.run()
    if code:
        raise typer.Exit(code)


def signers_of(places: Sequence[Path], key: str | None) -> dict[Path, PrivateKey]:
    """Load the key of each place's log; places: competitions' folders and subnet files.

    key: the name of the key file, if ledger.toml does not say it. Raises BadInput for a place without a ledger or a key.
    """
    from assay.ledger import config, keys

    loaded: dict[str, PrivateKey] = {}
    signers = {}
    for place in places:
        settings = config.read(place)
        name = key or settings.signer
        if name is None:
            hint = 'write signer = "NAME" there, or name the key with --key NAME'
            raise BadInput("does not say which key signs", file=settings.file, field="signer", hint=hint)
        if name not in loaded:
            loaded[name] = keys.load(name, asking())
        signers[place] = loaded[name]
    return signers


def _targets(known: Mapping[str, str], named: list[str] | None, *, publish: bool) -> tuple[str, ...]:
    if not publish:
        return ()
    for name in named or ():
        _check_target(known, name, "--to")
    return tuple(named or known)


def registry_target(folders: Sequence[Path], beside: Path, known: Mapping[str, str], named: str | None) -> str | None:
    """Choose the target from which registries are pulled: the named one, or the only subnet, if one was pulled before.

    folders: the competitions'. known: the targets of publish.toml, which is in the folder `beside`, and their kinds. Raises
    BadInput if there is no such target, or if there are several subnets.
    """
    from assay.folder.registry import PULLED_FILE
    from assay.publish.publishers import PUBLISH_FILE

    if named is not None:
        _check_target(known, named, "--registry")
        return named
    subnets = [name for name, kind in known.items() if kind == "bittensor"]
    if not subnets or not any((folder / PULLED_FILE).exists() for folder in folders):
        return None
    if len(subnets) > 1:
        what = f"the registry was pulled from a chain, and there are several subnets: {', '.join(subnets)}"
        raise BadInput(what, file=beside / PUBLISH_FILE, hint="name one: --registry TARGET")
    return subnets[0]


def _check_target(known: Mapping[str, str], name: str, option: str) -> None:
    if name not in known:
        from assay.errors import suggest

        raise BadInput(f"publish.toml has no target {name[:60]!r}", field=option, hint=suggest(name, known, "write one there"))
