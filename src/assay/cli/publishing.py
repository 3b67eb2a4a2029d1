"""`assay publish` and `assay attempts`: what was settled, onto a chain, and what became of it; and what such commands share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.publish.journal import SendHistory
    from assay.publish.outcome import Outcome
    from assay.publish.publishers import Comparison, PublishPlan


def targets_of(ctx: typer.Context, incomplete: str) -> list[str]:
    """The targets of publish.toml, for the shell's completion."""
    from assay.publish.publishers import target_names

    folder = ctx.params.get("folder")
    return [] if folder is None else [name for name in target_names(Path(folder)) if name.startswith(incomplete)]


DirArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="The competition's folder, with publish.toml.", show_default=False)
]
ToOption = Annotated[str, typer.Option("--to", metavar="NAME", help="A target of publish.toml.", autocompletion=targets_of)]
AsOption = Annotated[
    str | None, typer.Option("--as", metavar="KEY", help="A key of publish.toml; otherwise the target's own.", show_default=False)
]
YesOption = Annotated[bool, typer.Option("--yes", help="Send it. Without, only what would be sent is shown.")]
JsonOption = Annotated[bool, typer.Option("--json", help="As canonical JSON.")]


def telling(what: str) -> None:
    """How it goes on, on stderr."""
    from assay.cli.errors import printable

    typer.echo(printable(what), err=True)


def moment(at: int, unit: str) -> str:
    """From when on something may be sent: a time, or a block."""
    if unit != "time":
        return f"block {at}"
    try:
        return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):  # a contract may have any number there
        return f"second {at}"


def sentence_of(outcome: Outcome) -> str:
    """An outcome in words."""
    from assay.publish.outcome import Confirmed, Planned, Sent, TooEarly, Unknown

    match outcome:
        case Planned():
            return "Nothing was sent: --yes sends it."
        case Confirmed(block, transaction):
            return f"It is there, in block {block}" + (f", by {transaction}." if transaction else ", or before it.")
        case Sent(transaction, opens) if opens is not None:
            return f"It is in the chain, locked, by {transaction}. The chain opens it about block {opens}: do this again then."
        case Sent(transaction):
            return f"It was sent, as {transaction}, and is not deep enough in the chain yet: do this again to see it through."
        case TooEarly(at, unit, what):
            return f"It is too early: {what}. From {moment(at, unit)} on it can be sent."
        case Unknown(what, transaction):
            of = f"what became of {transaction}" if transaction else "how it stands"
            return _ended(f"It is not known {of}: {what}")
    return _ended(f"It was refused: {outcome.what}" + (f"; {outcome.hint}" if outcome.hint else ""))


def _ended(said: str) -> str:
    return said if said.endswith("?") else f"{said}."


def say(outcome: Outcome) -> None:
    """Tell an outcome below what was shown."""
    from assay.cli.show import sentence, show

    show("", sentence(sentence_of(outcome), style="bold" if outcome.ok else "bold red"))


def finish(outcome: Outcome, said: dict[str, Any], parts: Sequence[Any], *, as_json: bool) -> NoReturn:
    """Show what it came to, for programs or for people, and end: 0 if nobody has to do anything about it, else 1."""
    from assay.cli.output import emit
    from assay.publish.outcome import document

    if not emit(lambda: said | {"outcome": document(outcome)}, as_json):
        from assay.cli.show import show

        show(*parts)
        say(outcome)
    raise typer.Exit(0 if outcome.ok else 1)


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
        from assay.cli.watching import run

        _check_watch(folder, epoch)
        run(folder, to, every=every, patience=alarm, once=once, send=yes, files=(metrics, page), as_json=as_json)
    given = {"--once": once, "--alarm": alarm is not None, "--metrics": metrics is not None, "--page": page is not None}
    for name in (name for name, used in given.items() if used):
        raise typer.BadParameter("goes with --watch", param_hint=name)
    from assay.cli.keys import names

    plan, outcome, held = _published(folder, to, epoch, yes=yes)
    known = {} if folder.is_file() else names(folder)
    finish(outcome, _document(plan, held), list(_parts(plan, held, known)), as_json=as_json)


def _check_watch(folder: Path, epoch: int | None) -> None:
    """Refuse what a watch cannot do; raises BadParameter."""
    if epoch is not None:
        raise typer.BadParameter("a watch publishes what is settled, not one epoch", param_hint="EPOCH")
    if folder.is_file():
        raise typer.BadParameter("a watch goes by one ledger; of a subnet file, publish from cron", param_hint="DIR")


def _published(folder: Path, to: str, epoch: int | None, *, yes: bool) -> tuple[PublishPlan, Outcome, Comparison]:
    """What would be sent, or was; what became of it; and how the chain stands then."""
    from assay.cli.ledger.keys import asking
    from assay.errors import Unreachable
    from assay.ledger.access import open_ledger
    from assay.publish import publishers, settled_epoch
    from assay.publish.outcome import Planned, Unknown

    several = folder.is_file()
    publisher = publishers.open_publisher(publishers.read_target(folder.parent if several else folder, to, asking()))
    if several:
        plan = publisher.plan(settled_epoch.read_joint(folder, epoch))
    else:
        with open_ledger(folder) as ledger:
            plan = publisher.plan(settled_epoch.read(ledger, epoch))
    sent = publisher.send(plan, telling) if yes else None
    try:
        held = publisher.compare(plan)
    except Unreachable as error:
        if sent is not None:
            return plan, sent, publishers.Comparison(None, sent, [str(error)])
        return plan, Unknown(str(error)), publishers.Comparison(None, None, ["Nothing was sent"])
    return plan, sent or held.outcome or Planned(), held


def _document(plan: PublishPlan, held: Comparison) -> dict[str, Any]:
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


def _parts(plan: PublishPlan, held: Comparison, names: Mapping[str, str]) -> Any:
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


LINES = 40
"""Of each target the last so many are shown."""


def attempts(
    folder: DirArgument,
    to: Annotated[
        str | None, typer.Option("--to", metavar="NAME", help="Only this target of publish.toml.", autocompletion=targets_of)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """What was sent to chains, and what became of it.

    What was about to be sent, too: from the ledger, or from DIR/published. Nothing is asked of a chain, and nothing is sent.

    \b
    Example:
      assay attempts my-bounty --to sepolia
    """
    from assay.cli.output import emit
    from assay.publish import publishers
    from assay.publish.journal import history

    names = [to] if to is not None else publishers.target_names(folder) or [""]
    found = {name: history(publishers.read_target(folder, name).journal().entries) for name in names}
    if emit(lambda: {"targets": {name: [tried.document() for tried in rows] for name, rows in found.items()}}, as_json):
        return
    from assay.cli.show import show

    show(*(part for name, rows in found.items() for part in _history_parts(name, rows)))


def _history_parts(name: str, rows: Sequence[SendHistory]) -> list[Any]:
    from assay.cli.show import Column, grid, heading, note

    if not rows:
        return [heading(name), note("Nothing was sent there from here.")]
    shown = rows[-LINES:]
    columns = [
        Column("what", [one.subject for one in shown]),
        Column("what became of it", [" → ".join(one.states) for one in shown], kind="text"),
        Column("last", [str(one.last.get("at", "")) for one in shown]),
        Column("block", [str(one.last.get("block", "")) for one in shown], right=True, spare=1),
        Column("transaction", [one.transaction for one in shown], kind="key"),
        Column("why", [one.why for one in shown], kind="text", spare=2),
    ]
    more = len(rows) - len(shown)
    return [heading(name), grid(columns), *([note(f"And {more} before: --json has them all.")] if more else [])]
