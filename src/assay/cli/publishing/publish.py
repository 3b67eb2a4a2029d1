"""`assay publish`: what was settled, onto a chain."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.publishing.words import JsonOption, ToOption, YesOption, finish, telling

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.publish.outcome import Outcome
    from assay.publish.publishers import Comparison, Plan

__all__ = ["publish"]


def publish(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="The competition's folder, or a subnet file; publish.toml is in it, or beside it.",
            show_default=False,
        ),
    ],
    to: ToOption,
    epoch: Annotated[int | None, typer.Argument(metavar="[EPOCH]", help="The epoch; otherwise the last settled.", min=0)] = None,
    yes: YesOption = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Send nothing, which is so anyway without --yes.")] = False,
    as_json: JsonOption = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on: publish each new receipt when the chain allows.")] = False,
    once: Annotated[bool, typer.Option("--once", help="With --watch: one round, for cron and systemd's timers.")] = False,
    every: Annotated[float, typer.Option(metavar="SECONDS", help="With --watch: between two looks.", min=0.1)] = 60.0,
    alarm: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="With --watch: a receipt that waits longer is an alarm.", min=0.0)
    ] = None,
    metrics: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --watch: metrics, as Prometheus' node exporter reads them.")
    ] = None,
    page: Annotated[Path | None, typer.Option(metavar="FILE", help="With --watch: a web page on how it stands.")] = None,
) -> None:
    """Publish a settled epoch: scores to the oracle of a chain, weights to a subnet.

    Shows what changes against what the chain holds, and with --yes sends it.

    Of a subnet file the split that `assay emission --sign` signed is published, after it was computed again.

    Only what has a receipt is published, and the chain is asked first: what it has already is not sent again. What is sent
    stands in the ledger before it is sent, so that this can be done again after a crash at any point. It ends when the chain
    has it as deep as publish.toml asks for, or says that it does not know yet; then the same command goes on.

    Too early is no failure: it says from when on. Exit code 1 if it was refused, or is not known or not deep enough yet.

    With --watch it goes on until Ctrl-C or SIGTERM, and alarms: when an epoch is refused, when the chain has no place for our
    key or lost what was published, when nothing was set for two of its tempos, or its node is away so long, and by --alarm.
    Then it ends with exit code 3; with --once at once.

    \b
    Examples:
      assay publish my-bounty --to sepolia
      assay publish my-bounty 3 --to sepolia --yes
      assay publish my-subnet.toml --to mainnet --yes
      assay publish my-bounty --to sepolia --watch --yes --metrics assay.prom --page status.html
    """
    if yes and dry_run:
        raise typer.BadParameter("--yes and --dry-run exclude each other", param_hint="--yes")
    if watch:
        from assay.cli.publishing.watch import run

        if epoch is not None:
            raise typer.BadParameter("a watch publishes what is settled, not one epoch", param_hint="EPOCH")
        if folder.is_file():
            raise typer.BadParameter("a watch goes by one ledger; of a subnet file, publish from cron", param_hint="DIR")
        run(folder, to, every=every, patience=alarm, once=once, send=yes, files=(metrics, page), as_json=as_json)
    given = {"--once": once, "--alarm": alarm is not None, "--metrics": metrics is not None, "--page": page is not None}
    for name in (name for name, used in given.items() if used):
        raise typer.BadParameter("goes with --watch", param_hint=name)
    from assay.cli.keys import names

    plan, outcome, held = _published(folder, to, epoch, yes=yes)
    known = {} if folder.is_file() else names(folder)
    finish(outcome, _document(plan, held), list(_parts(plan, held, known)), as_json=as_json)


def _published(folder: Path, to: str, epoch: int | None, *, yes: bool) -> tuple[Plan, Outcome, Comparison]:
    """What would be sent, or was; what became of it; and how the chain stands then."""
    from assay.cli.ledger.keys import asking
    from assay.errors import Unreachable
    from assay.ledger.opened import open_ledger
    from assay.publish import publishers, settled, targets
    from assay.publish.outcome import Planned, Unknown

    several = folder.is_file()
    publisher = publishers.opened(targets.read(folder.parent if several else folder, to, asking()))
    if several:
        plan = publisher.plan(settled.joined(folder, epoch))
    else:
        with open_ledger(folder) as ledger:
            plan = publisher.plan(settled.read(ledger, epoch))
    sent = publisher.send(plan, telling) if yes else None
    try:
        held = publisher.compare(plan)
    except Unreachable as error:
        if sent is not None:
            return plan, sent, publishers.Comparison(None, sent, [str(error)])
        return plan, Unknown(str(error)), publishers.Comparison(None, None, ["Nothing was sent"])
    return plan, sent or held.outcome or Planned(), held


def _document(plan: Plan, held: Comparison) -> dict[str, Any]:
    return {
        "target": plan.target,
        "epoch": plan.epoch,
        "receipt": plan.receipt,
        "plan": plan.digest,
        "content": plan.content,
        "held": held.held,
        "left_out": [{"participant": key, "why": why} for key, why in plan.left_out],
        "notes": held.notes,
        "lines": [asdict(line) for line in (plan.lines if held.lines is None else held.lines)],
    }


def _parts(plan: Plan, held: Comparison, names: Mapping[str, str]) -> Any:
    """The table of what changes, who is left out, and what else there is to be said."""
    from assay.cli.show import Column, grid, heading, note

    yield heading(f"Epoch {plan.epoch} to {plan.target}")
    lines = plan.lines if held.lines is None else held.lines
    if lines:
        columns = [Column("participant", [line.participant for line in lines], kind="key")]
        if any(names.get(line.participant) for line in lines):
            columns.append(Column("name", [names.get(line.participant, "") for line in lines], kind="crop", spare=1))
        columns.append(Column("account", [line.account for line in lines], kind="key"))
        if held.held is not None:
            columns.append(Column("there now", [held.held.get(line.account, "") for line in lines], right=True))
        columns.append(Column("settled" if held.lines is None else "to be set", [line.value for line in lines], right=True))
        if held.held is not None:
            columns.append(Column("", [_change(held.held.get(line.account, ""), line.value) for line in lines]))
        yield grid(columns)
    else:
        yield note("Nobody has an agreed score: that is what is sent.")
    known = {line.account for line in lines}
    for account, value in (held.held or {}).items():
        if account not in known:
            yield note(f"The chain has {value} of {account}, who is not in the settlement.")
    for key, why in plan.left_out:
        yield note(f"{key} is left out: {why}.")
    for said in held.notes:
        yield note(f"{said}.")
    yield note(f"Receipt {plan.receipt}")


def _change(old: str, new: str) -> str:
    return "" if (old or "0") == (new or "0") else "other" if old else "new"
