"""The options of a node that say where it shows and tells what is wrong: `--on-alarm`, `--webhook`, `--page`, `--metrics`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from assay.node.herald import Telling
    from assay.node.status import NodeStatus

__all__ = ["MetricsOption", "OnAlarmOption", "PageOption", "PlainOption", "WebhookOption", "show_alarms", "tell", "telling_of"]

OnAlarmOption = Annotated[
    str | None,
    typer.Option(
        "--on-alarm", metavar="COMMAND", help="Run it for each alarm that begins or is over: JSON on its standard input."
    ),
]
WebhookOption = Annotated[
    str | None, typer.Option("--webhook", metavar="URL", help="Post each alarm that begins or is over there, as JSON.")
]
PlainOption = Annotated[
    bool, typer.Option("--plain-webhook", help="The webhook may be http on another machine: others can read it.")
]
PageOption = Annotated[
    Path | None, typer.Option("--page", metavar="FILE", help="Where the status page goes.", show_default="DIR/node/status.html")
]
MetricsOption = Annotated[
    Path | None,
    typer.Option("--metrics", metavar="FILE", help="Where the metrics for Prometheus go.", show_default="DIR/node/status.prom"),
]


def telling_of(
    folder: Path, on_alarm: str | None, webhook: str | None, plain: bool, page: Path | None, metrics: Path | None
) -> Telling:
    """Read the options of telling. Raises BadInput, before anything is done."""
    from assay.cli.watching import check_files
    from assay.node import carriers
    from assay.node.herald import Telling

    check_files(folder, (metrics, page))
    chosen: list[carriers.Carrier] = []
    if on_alarm is not None:
        chosen.append(carriers.command(on_alarm))
    if webhook is not None:
        chosen.append(carriers.webhook(webhook, plain=plain))
    return Telling(tuple(chosen), page, metrics)


def tell(line: str) -> None:
    """Print a line of a node, with the time."""
    from assay.cli.errors import printable
    from assay.node.status import now_text

    typer.echo(f"{now_text()}  {printable(line)}")


def show_alarms(current: NodeStatus) -> None:
    """Print what a node does in a line, and its alarms as a table: since when, what is wrong, what to do."""
    from assay.cli.errors import printable
    from assay.cli.show import Column, grid, show
    from assay.publish.faces import time_text

    typer.echo(printable(current.line))
    for remark in filter(None, map(current.content.get, ("waits", "sends_only", "in_ledger"))):
        typer.echo(printable(str(remark)))
    if current.alarms:
        columns = (
            Column("since", [time_text(since) for _, since in current.alarms], spare=1),
            Column("wrong", [alarm.what for alarm, _ in current.alarms], kind="text"),
            Column("what to do", [alarm.hint for alarm, _ in current.alarms], kind="text"),
        )
        typer.echo()
        show(grid(columns))
