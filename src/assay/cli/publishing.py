"""The commands `assay publish` and `assay attempts`, and the options and output that all commands about chains share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.publish.journal import SendHistory
    from assay.publish.outcome import Outcome
    from assay.publish.publishers import Comparison, Publisher, PublishPlan


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
PreviewOption = Annotated[
    bool,
    typer.Option("--preview", help="Show what Yuma consensus makes of the weights; send nothing. For a subnet of Bittensor."),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Send nothing; the same as without --yes.")]
WatchOption = Annotated[bool, typer.Option("--watch", help="Keep running: publish each new receipt when the chain allows.")]
OnceOption = Annotated[bool, typer.Option("--once", help="With --watch: one round, for cron and systemd's timers.")]
EveryOption = Annotated[float, typer.Option(metavar="SECONDS", help="With --watch: time between two looks.", min=0.1)]
AlarmOption = Annotated[
    float | None, typer.Option(metavar="SECONDS", help="With --watch: a receipt that waits longer is an alarm.", min=0.0)
]
MetricsOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="With --watch: write metrics for Prometheus' node exporter.")
]
PageOption = Annotated[Path | None, typer.Option(metavar="FILE", help="With --watch: write a web page about the state.")]


def telling(what: str) -> None:
    """Show progress on stderr."""
    from assay.cli.errors import printable

    typer.echo(printable(what), err=True)


def sentence_of(outcome: Outcome) -> str:
    """An outcome as a sentence."""
    from assay.publish.outcome import Confirmed, Planned, Sent, TooEarly, Unknown, moment

    match outcome:
        case Planned():
            return "Nothing was sent: --yes sends it."
        case Confirmed(block, transaction):
            return f"The chain has it, in block {block}" + (f", by {transaction}." if transaction else ", or before it.")
        case Sent(transaction, opens) if opens is not None:
            what = f"The chain has it, locked, by {transaction}, and opens it about block {opens}"
            return f"{what}: run this command again then."
        case Sent(transaction):
            return f"It was sent as {transaction}, but is not deep enough in the chain yet: run this command again to continue."
        case TooEarly(at, unit, what):
            return f"It is too early: {what}. It can be sent from {moment(at, unit)} on."
        case Unknown(what, transaction):
            state = f"whether the chain has {transaction}" if transaction else "the state of the chain"
            return _with_stop(f"Not known: {state}: {what}")
    return _with_stop(f"It was refused: {outcome.what}" + (f"; {outcome.hint}" if outcome.hint else ""))


def _with_stop(text: str) -> str:
    return text if text.endswith("?") else f"{text}."


def say(outcome: Outcome) -> None:
    """Show an outcome below what was shown before."""
    from assay.cli.show import sentence, show

    show("", sentence(sentence_of(outcome), style="bold" if outcome.ok else "bold red"))


def finish(outcome: Outcome, result: dict[str, Any], parts: Sequence[Any], *, as_json: bool) -> NoReturn:
    """Show the result for programs or for people, and exit with 0 if nobody has to act, else with 1."""
    from assay.cli.output import emit
    from assay.publish.outcome import document

    if not emit(lambda: result | {"outcome": document(outcome)}, as_json):
        from assay.cli.show import show

        show(*parts)
        say(outcome)
    raise typer.Exit(0 if outcome.ok else 1)


_Folder = Annotated[
    Path,
    typer.Argument(
        metavar="DIR", help="The competition's folder, or a subnet file; publish.toml is in it, or beside it.", show_default=False
    ),
]


def publish(
    folder: _Folder,
    to: ToOption,
    epoch: Annotated[int | None, typer.Argument(metavar="[EPOCH]", help="The epoch; otherwise the last settled.", min=0)] = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    preview: PreviewOption = False,
    as_json: JsonOption = False,
    watch: WatchOption = False,
    once: OnceOption = False,
    every: EveryOption = 60.0,
    alarm: AlarmOption = None,
    metrics: MetricsOption = None,
    page: PageOption = None,
) -> None:
    """Publish a settled epoch: scores to the oracle of a chain, weights to a subnet.

    Shows what would change on the chain, and sends it with --yes. If DIR is a subnet file, it publishes the split that
    `assay emission --sign` signed, after computing it again.

    Publishes only an epoch with a receipt, and sends nothing that the chain already has. Everything is written to the ledger
    before it is sent, so you can run the command again after a crash at any point. It ends when the chain has the epoch as deep
    as publish.toml requires, or when the outcome is not known yet; then the same command continues.

    --preview reads the subnet's weights, bonds and hyperparameters from the chain, and computes its next epoch without and with
    these weights: vtrust and dividends of each validator, before anything is set (`assay yuma`).

    If it is too early, the command says when to try again; that is not a failure. Exit code 1: refused, not known, or not deep
    enough yet.

    With --watch it runs until Ctrl-C or SIGTERM. It raises an alarm if an epoch is refused, if the chain does not accept your
    key, if the chain no longer has what was published, or if for two tempos (periods of the chain) nothing was set or the node
    did not answer; --alarm adds one for late epochs. If it ends during an alarm, the exit code is 3.

    \b
    Examples:
      assay publish my-bounty --to sepolia
      assay publish my-bounty 3 --to sepolia --yes
      assay publish my-subnet.toml --to mainnet --yes
      assay publish my-subnet --to mainnet --preview
      assay publish my-bounty --to sepolia --watch --yes --metrics assay.prom --page status.html
    """
    given = {"--once": once, "--alarm": alarm is not None, "--metrics": metrics is not None, "--page": page is not None}
    of_watching = [name for name, used in given.items() if used]
    _check_options(yes=yes, dry_run=dry_run, preview=preview, watch=watch, of_watching=of_watching)
    if preview:
        from assay.cli.yuma import preview_of

        preview_of(folder, to, epoch, as_json=as_json)
        return
    if watch:
        from assay.cli.watching import run

        _check_watch(folder, epoch)
        run(folder, to, every=every, patience=alarm, once=once, send=yes, files=(metrics, page), as_json=as_json)
    from assay.cli.keys import names

    plan, outcome, comparison = _published(folder, to, epoch, yes=yes)
    known = {} if folder.is_file() else names(folder)
    finish(outcome, _document(plan, comparison), list(_parts(plan, comparison, known)), as_json=as_json)


def _check_options(*, yes: bool, dry_run: bool, preview: bool, watch: bool, of_watching: list[str]) -> None:
    """Raise BadParameter for options that exclude each other."""
    if yes and dry_run:
        raise typer.BadParameter("--yes and --dry-run exclude each other", param_hint="--yes")
    if preview and (yes or watch or of_watching):
        what = "sends nothing, and shows nothing but the epoch: leave the other options out"
        raise typer.BadParameter(what, param_hint="--preview")
    if of_watching and not watch:
        raise typer.BadParameter("goes with --watch", param_hint=of_watching[0])


def _check_watch(folder: Path, epoch: int | None) -> None:
    """Raise BadParameter for arguments that a watch cannot use."""
    if epoch is not None:
        raise typer.BadParameter("a watch publishes every new epoch, not a given one; leave it out", param_hint="EPOCH")
    if folder.is_file():
        raise typer.BadParameter("a watch uses one ledger; publish a subnet file from cron", param_hint="DIR")


def planned(folder: Path, to: str, epoch: int | None) -> tuple[Publisher, PublishPlan]:
    """The publisher of a target, and its plan for an epoch of a competition or of a subnet file. Raises BadInput."""
    from assay.cli.ledger.keys import asking
    from assay.ledger.access import open_ledger
    from assay.publish import publishers, settled_epoch

    several = folder.is_file()
    publisher = publishers.open_publisher(publishers.read_target(folder.parent if several else folder, to, asking()))
    if several:
        return publisher, publisher.plan(settled_epoch.read_joint(folder, epoch))
    with open_ledger(folder) as ledger:
        return publisher, publisher.plan(settled_epoch.read(ledger, epoch))


def _published(folder: Path, to: str, epoch: int | None, *, yes: bool) -> tuple[PublishPlan, Outcome, Comparison]:
    """The plan, its outcome, and its comparison with the chain afterwards."""
    from assay.errors import Unreachable
    from assay.publish import publishers
    from assay.publish.outcome import Planned, Unknown

    publisher, plan = planned(folder, to, epoch)
    sent = publisher.send(plan, telling) if yes else None
    try:
        comparison = publisher.compare(plan)
    except Unreachable as error:
        if sent is not None:
            return plan, sent, publishers.Comparison(None, sent, [str(error)])
        return plan, Unknown(str(error)), publishers.Comparison(None, None, ["Nothing was sent"])
    return plan, sent or comparison.outcome or Planned(), comparison


def _document(plan: PublishPlan, comparison: Comparison) -> dict[str, Any]:
    return {
        "target": plan.target,
        "epoch": plan.epoch,
        "receipt": plan.receipt,
        "plan": plan.digest,
        "content": plan.content,
        "held": comparison.held,
        "left_out": [{"participant": key, "why": why} for key, why in plan.left_out],
        "notes": comparison.notes,
        "lines": [asdict(line) for line in (plan.lines if comparison.lines is None else comparison.lines)],
    }


def _parts(plan: PublishPlan, comparison: Comparison, names: Mapping[str, str]) -> Any:
    """The table of changes, and notes about participants that are left out and about the chain."""
    from assay.cli.show import Column, grid, heading, note

    yield heading(f"Epoch {plan.epoch} to {plan.target}")
    lines = plan.lines if comparison.lines is None else comparison.lines
    if lines:
        columns = [Column("participant", [line.participant for line in lines], kind="key")]
        if any(names.get(line.participant) for line in lines):
            columns.append(Column("name", [names.get(line.participant, "") for line in lines], kind="crop", spare=1))
        columns.append(Column("account", [line.account for line in lines], kind="key"))
        if comparison.held is not None:
            columns.append(Column("there now", [comparison.held.get(line.account, "") for line in lines], right=True))
        columns.append(Column("settled" if comparison.lines is None else "to be set", [line.value for line in lines], right=True))
        if comparison.held is not None:
            columns.append(Column("", [_change(comparison.held.get(line.account, ""), line.value) for line in lines]))
        yield grid(columns)
    else:
        yield note("No participant has an agreed score; an empty list is sent.")
    known = {line.account for line in lines}
    for account, value in (comparison.held or {}).items():
        if account not in known:
            yield note(f"The chain has {value} for {account}, which is not in the settlement.")
    for key, why in plan.left_out:
        yield note(f"{key} is left out: {why}.")
    for remark in comparison.notes:
        yield note(f"{remark}.")
    yield note(f"Receipt {plan.receipt}")


def _change(old: str, new: str) -> str:
    return "" if (old or "0") == (new or "0") else "other" if old else "new"


LINES = 40
"""The number of attempts of each target that are shown, the last ones."""


def attempts(
    folder: DirArgument,
    to: Annotated[
        str | None, typer.Option("--to", metavar="NAME", help="Only this target of publish.toml.", autocompletion=targets_of)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what was sent to chains, with the outcomes.

    Also shows what was about to be sent. Reads the ledger, or DIR/published; asks no chain, and sends nothing.

    \b
    Example:
      assay attempts my-bounty --to sepolia
    """
    from assay.cli.output import emit
    from assay.publish import publishers
    from assay.publish.journal import history

    names = [to] if to is not None else publishers.target_names(folder) or [""]
    targets = {name: history(publishers.read_target(folder, name).journal().entries) for name in names}
    if emit(lambda: {"targets": {name: [sent.document() for sent in rows] for name, rows in targets.items()}}, as_json):
        return
    from assay.cli.show import show

    show(*(part for name, rows in targets.items() for part in _history_parts(name, rows)))


def _history_parts(name: str, rows: Sequence[SendHistory]) -> list[Any]:
    from assay.cli.show import Column, grid, heading, note

    if not rows:
        return [heading(name), note("Nothing was sent there from here.")]
    shown = rows[-LINES:]
    columns = [
        Column("what", [sent.subject for sent in shown]),
        Column("states", [" → ".join(sent.states) for sent in shown], kind="text"),
        Column("last", [str(sent.last.get("at", "")) for sent in shown]),
        Column("block", [str(sent.last.get("block", "")) for sent in shown], right=True, spare=1),
        Column("transaction", [sent.transaction for sent in shown], kind="key"),
        Column("why", [sent.why for sent in shown], kind="text", spare=2),
    ]
    more = len(rows) - len(shown)
    return [heading(name), grid(columns), *([note(f"There are {more} older ones: --json has them all.")] if more else [])]
