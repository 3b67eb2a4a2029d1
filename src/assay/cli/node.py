"""The commands `assay node validator|operator|status`: what validators and operators leave running, and how it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.following import FolderArgument, KeyOption, UrlOption, signer_of
from assay.cli.judging.run import COMMAND as KIND_COMMAND
from assay.cli.operator import PlaceArgument, operator
from assay.cli.output import AsJson, emit
from assay.cli.telling import (
    MetricsOption,
    OnAlarmOption,
    PageOption,
    PlainOption,
    WebhookOption,
    show_alarms,
    tell,
    telling_of,
)
from assay.errors import BadInput

if TYPE_CHECKING:
    from assay.kind import Kind
    from assay.node import NodeOptions

__all__ = ["app"]

app = typer.Typer(
    name="node",
    help="Leave a validator or an operator running, and see how it is.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("validator", cls=KIND_COMMAND)
def validator(
    context: typer.Context,
    folder: FolderArgument,
    url: UrlOption,
    key: KeyOption,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", metavar="N", help="Trials at one time (1), or solutions (8).", min=1)
    ] = None,
    attempts: Annotated[int, typer.Option(metavar="N", help="Attempts for a trial that errs.", min=1)] = 3,
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
    """Follow a service: fetch, calibrate, judge, sign and send.

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

    from assay.node.validator import Node
    from assay.node.validator import once as one_round

    telling = telling_of(folder, on_alarm, webhook, plain_webhook, page, metrics)
    signer = signer_of(key)

    options = replace(_options(context, jobs, attempts), take_over=take_over)
    if not once:
        Node(folder, url, signer, options, tell, telling).run()
        return
    code = one_round(folder, url, signer, options, tell, telling)
    if code:
        raise typer.Exit(code)


app.command("operator")(operator)


def _options(context: typer.Context, jobs: int | None, attempts: int) -> NodeOptions:
    from functools import partial

    from assay.cli.judging.run import late_values, settings_of
    from assay.engine import opened
    from assay.judge.kind_options import where_judged
    from assay.node import NodeOptions

    def settings(kind: Kind) -> Any:
        try:
            return settings_of(context, kind)
        except typer.BadParameter as error:  # the kind is known only when the rules were fetched
            raise BadInput(f"this option {error.message}", hint=f"it is {error.param_hint}") from None

    return NodeOptions(jobs, attempts, settings, partial(opened, *where_judged(late_values(context)), most=jobs))


@app.command()
def status(folder: PlaceArgument, as_json: AsJson = False) -> None:
    """Say how a node is: one line, and a table of what is wrong.

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
    from assay.node.status import read_status
    from assay.scheme.subnet import places

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
