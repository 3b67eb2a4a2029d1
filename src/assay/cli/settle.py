"""`assay settle`: the leaderboard of an epoch, its settlement as JSON, or its rows as CSV.

A settlement reads no clock and asks nobody; this command does both. It waits for judgements until a payout's scoring deadline
(SPEC 5), and it asks before it closes more than the next epoch (SPEC 6, Epochs).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.archive import Address, Engine, Memory, Workers, check_alone, settle_archive, shard_engine
from assay.cli.errors import warn
from assay.errors import BadInput, CannotSettle

if TYPE_CHECKING:
    from assay.ledger.closing_cost import Closing
    from assay.scheme.model import Scheme
    from assay.settle import Settlement

__all__ = ["ClosingFlags", "settle"]

_EPOCH = (
    "The epoch; otherwise the highest that has evidence. With a ledger: otherwise the next, or the last one settled if there is "
    "nothing new."
)
Epoch = Annotated[int | None, typer.Option(metavar="N", help=_EPOCH, min=0)]
Previous = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The settlement (JSON) of an earlier epoch. Decay continues from it.")
]
Json = Annotated[bool, typer.Option("--json", help="The whole settlement as canonical JSON (RFC 8785).")]
_CSV = "The rows of weights or payouts (the last row is what burns or is refunded), or of a ranking with its intervals."
Csv = Annotated[bool, typer.Option("--csv", help=_CSV)]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write JSON (or CSV) to a file, and show the board.")
]
Key = Annotated[str | None, typer.Option(metavar="NAME", help="With a ledger: the log's key, if ledger.toml does not name it.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="With a ledger: show the settlement, and keep nothing.")]
Top = Annotated[int | None, typer.Option(metavar="N", help="Show so many rows of each table [32].", min=1)]
_EARLY = "Settle a payout before its scoring deadline; submissions that are not judged yet are left out."
Early = Annotated[bool, typer.Option("--early", help=_EARLY)]
_SKIP = "With a ledger: pass over the epochs between the last one settled and this one, for good."
Skip = Annotated[bool, typer.Option("--skip", help=_SKIP)]
_WITHOUT = "With a ledger: close the epoch although no participant has an agreed score; all of it burns."
WithoutScores = Annotated[bool, typer.Option("--without-scores", help=_WITHOUT)]
Yes = Annotated[bool, typer.Option("--yes", help="With --skip and --without-scores: do not ask again.")]


_ARCHIVE = "Settle the epochs of an archive whose evidence fits a pattern: 'archive/**/*.parquet', 's3://BUCKET/…'."
Archive = Annotated[str | None, typer.Option(metavar="PATTERN", help=_ARCHIVE)]


@dataclass(frozen=True)
class ClosingFlags:
    """The flags that allow closing an epoch that is not simply the next one with scores."""

    skip: bool = False
    without_scores: bool = False
    yes: bool = False

    def check(self, closing: Closing) -> None:
        """Warn what closing an epoch costs, if anything, and ask on a terminal; raises CannotSettle if the answer is no."""
        closing.check(skip=self.skip, without_scores=self.without_scores)
        costs = [*closing.costs()]
        warn(costs)
        if costs and not self.yes and _terminal():
            epoch = closing.settlement.epoch
            if not typer.confirm(f"Close epoch {epoch} for good?", err=True):
                raise CannotSettle(f"epoch {epoch} was not closed", hint="nothing was kept")


def settle(
    folder: Annotated[Path | None, typer.Argument(metavar="[DIR]", help="The competition's folder.", show_default=False)] = None,
    epoch: Epoch = None,
    previous: Previous = None,
    as_json: Json = False,
    as_csv: Csv = False,
    output: Output = None,
    key: Key = None,
    dry_run: DryRun = False,
    top: Top = None,
    early: Early = False,
    skip: Skip = False,
    without_scores: WithoutScores = False,
    yes: Yes = False,
    archive: Archive = None,
    engine: Engine = "local",
    address: Address = None,
    workers: Workers = 0,
    memory: Memory = 4.0,
) -> None:
    """Settle an epoch: evidence into scores, weights or payouts.

    Shows the ranking, and why the other participants have no score. Writes nothing without --output, and then the whole file or
    nothing.

    If the scheme has a payout with a scoring deadline, submissions without an agreed score delay the settlement until the
    deadline. After the deadline they are left out.

    A competition with a ledger is settled from its ledger: the settlement and its receipt are stored, the log grows by one
    entry, and the epoch is closed. A closed epoch is computed again and must give the same result. The next epoch is settled,
    unless --skip leaves out some epochs. --without-scores closes an epoch in which no participant has an agreed score. Both
    first show what that costs and which validators have not reported; on a terminal they ask again.

    With --archive, many competitions and epochs are settled at once from an archive (assay export archive writes one), each from
    the inputs, evidence and previous settlement that are there. Nothing is signed or verified: assay verify --all does that.
    --output names a folder for the settlements.

    \b
    Examples:
      assay settle my-competition
      assay settle my-competition --epoch 12 --previous epoch-11.json --output epoch-12.json
      assay settle my-competition --json | jq .weights
      assay settle my-competition --dry-run
      assay settle my-competition --epoch 20 --skip
      assay settle --archive 's3://my-bucket/archive/**/*.parquet' --output settlements
    """
    if as_json and as_csv:
        raise typer.BadParameter("--json and --csv exclude each other", param_hint="--csv")
    flags = ClosingFlags(skip, without_scores, yes)
    if archive is not None:
        _check_alone(as_csv, flags, folder=folder, epoch=epoch, previous=previous, key=key, dry_run=dry_run, top=top, early=early)
        settle_archive(archive, output, shard_engine(engine, workers, memory, address), as_json=as_json)
        return
    if folder is None:
        raise typer.BadParameter("name the competition's folder, or an archive with --archive", param_hint="DIR")
    settlement, remark, without = _settled(folder, epoch, previous, key, dry_run=dry_run, early=early, flags=flags)
    _write(settlement, output, as_csv=as_csv, wanted=as_json or as_csv or output is not None)
    on_stdout = str(output) == "-" or (output is None and (as_json or as_csv))
    _tell(settlement, folder, remark, without, top, board=not on_stdout)


def _check_alone(as_csv: bool, flags: ClosingFlags, **given: object) -> None:
    """Refuse what does not go with --archive. given: the other options by their names, None or False where they are not given."""
    given |= {"csv": as_csv, "skip": flags.skip, "without_scores": flags.without_scores}
    names = {name: "DIR" if name == "folder" else f"--{name.replace('_', '-')}" for name in given}
    check_alone({names[name]: value is not None and value is not False for name, value in given.items()}, "--archive")


def _write(settlement: Settlement, output: Path | None, *, as_csv: bool, wanted: bool) -> None:
    """The settlement as CSV or canonical JSON, to a file or stdout, if that is wanted."""
    if not wanted:
        return
    from assay.cli.board import settlement_csv
    from assay.cli.output import json_bytes, put

    put(settlement_csv(settlement) if as_csv else json_bytes(settlement.document), output)


def _tell(settlement: Settlement, folder: Path, remark: str, without: str, top: int | None, *, board: bool) -> None:
    """Show the board with both remarks; if stdout has the settlement, only warn of missing scores."""
    if board:
        _show(settlement, folder, " ".join(filter(None, (remark, without))), top)
    else:
        warn([without] if without else [])


def _settled(
    folder: Path, epoch: int | None, previous: Path | None, key: str | None, *, dry_run: bool, early: bool, flags: ClosingFlags
) -> tuple[Settlement, str, str]:
    """The settlement, a remark about its receipt, and who lacks a score. A ledger stores it, unless this is a dry run."""
    from assay.cli.output import Working
    from assay.competition import open_competition
    from assay.folder.reader import passed_over
    from assay.scheme.load import warnings

    competition, remark, without = open_competition(folder), "", ""
    ledger = competition.has_ledger
    options = {"--key": key is not None, "--dry-run": dry_run, "--skip": flags.skip, "--without-scores": flags.without_scores}
    for option, given in options.items():
        if given and not ledger:
            what, hint = "there is no ledger, so nothing is signed or kept", "leave it out, or make a ledger: assay ledger init"
            raise BadInput(what, file=folder, field=option, hint=hint)
    until = None if early or dry_run else _deadline(competition.scheme, datetime.now(UTC))

    def hold(settlement: Settlement) -> None:
        if until is not None:
            _check_all_judged(settlement, folder, until)

    if ledger and previous is None:
        from assay.cli.ledger.epochs import settled

        settlement, remark, without = settled(
            folder, epoch, key, dry_run=dry_run, meant=flags, hold=None if until is None else hold
        )
    else:  # with a ledger this refuses `previous`: the ledger already has the previous settlement
        with Working(f"settling {folder}"):
            settlement = competition.settle(epoch, previous=previous)
        hold(settlement)
        ignored = passed_over(folder / "evidence")
        warn(f"{path}: is not read; evidence is in files that end in .jsonl or .parquet" for path in ignored[:5])
    warn(f"{folder / 'scheme.toml'}: {message}" for message in warnings(competition.scheme))
    return settlement, remark, without


def _show(settlement: Settlement, folder: Path, remark: str, top: int | None) -> None:
    from assay.cli.board import board
    from assay.cli.output import Working
    from assay.cli.show import TOP, note, show

    with Working("comparing participants"):
        parts = list(board(settlement, folder, top or TOP))
    show(*parts, *([note(remark)] if remark else []))


def _deadline(scheme: Scheme, now: datetime) -> datetime | None:
    """The scoring deadline, if it is in the future."""
    until = None if scheme.payout is None else scheme.payout.scoring_deadline
    return until if until is not None and now < until else None


def _check_all_judged(settlement: Settlement, folder: Path, until: datetime) -> None:
    """Refuse to settle a payout before its deadline while a submission has no agreed score; raises CannotSettle."""
    from assay.ledger.closing_cost import unjudged

    missing = unjudged(settlement)
    if missing:
        from assay.scheme.fields import instant_text
        from assay.settle.story.telling import named

        raise CannotSettle(
            f"{named(missing)} {'has' if len(missing) == 1 else 'have'} no agreed score yet, and judging goes on until "
            f"{instant_text(until)}",
            file=folder,
            hint="judge what is missing, wait until then, or settle without: --early",
        )


def _terminal() -> bool:
    return sys.stdin.isatty()
