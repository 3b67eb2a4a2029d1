"""`assay settle`: the leaderboard of an epoch, its settlement as JSON, or its rows as CSV."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.errors import warn
from assay.cli.progress import Meant
from assay.errors import BadInput

if TYPE_CHECKING:
    from assay.settle import Settlement

__all__ = ["settle"]


def settle(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)],
    epoch: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="The epoch; otherwise the highest that has evidence. With a ledger: otherwise the next, or, if there is "
            "nothing new, the last one settled.",
            min=0,
        ),
    ] = None,
    previous: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The settlement (JSON) of an earlier epoch, which decay goes on from.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The whole settlement as canonical JSON (RFC 8785).")] = False,
    as_csv: Annotated[
        bool,
        typer.Option(
            "--csv", help="The rows of weights or payouts, the last what burns or returns; or of a ranking, with intervals."
        ),
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write JSON (or CSV) to a file, and show the board.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="NAME", help="With a ledger: the log's key, if ledger.toml does not name it.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With a ledger: show the settlement, and keep nothing.")] = False,
    top: Annotated[int | None, typer.Option(metavar="N", help="Show so many rows of each table [32].", min=1)] = None,
    early: Annotated[
        bool, typer.Option("--early", help="Settle a payout before its scoring deadline, without whom nobody has judged yet.")
    ] = False,
    skip: Annotated[
        bool, typer.Option("--skip", help="With a ledger: pass the epochs between the last one settled and this one, for good.")
    ] = False,
    without_scores: Annotated[
        bool,
        typer.Option(
            "--without-scores", help="With a ledger: close the epoch though nobody has an agreed score; all of it burns."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --skip and --without-scores: do not ask once more.")] = False,
) -> None:
    """Settle an epoch: evidence into scores, weights or payouts.

    Shows who is ranked where and why the others are not. Nothing is written unless --output says so, and then all of it or
    nothing.

    A payout with a scoring deadline waits until then for submissions that have no agreed score; after it they are left out.

    A competition with a ledger is settled from it, after what it settled before: settlement and receipt are kept, the log grows
    by one, and the epoch is closed. Settled again, it is computed again and must come out the same. Settling goes to the next
    epoch: to pass others (--skip), or to close one in which nobody has an agreed score (--without-scores), must be said. Then it
    is first shown what that costs and who has not reported, and on a terminal asked once more.

    \b
    Examples:
      assay settle my-competition
      assay settle my-competition --epoch 12 --previous epoch-11.json --output epoch-12.json
      assay settle my-competition --json | jq .weights
      assay settle my-competition --dry-run
      assay settle my-competition --epoch 20 --skip
    """
    if as_json and as_csv:
        raise typer.BadParameter("--json and --csv exclude each other", param_hint="--csv")

    settlement, remark, without = _settled(
        folder, epoch, previous, key, dry_run=dry_run, early=early, meant=Meant(skip, without_scores, yes)
    )
    if as_json or as_csv or output is not None:
        from assay.cli.output import json_bytes, put, settlement_csv

        put(settlement_csv(settlement) if as_csv else json_bytes(settlement.document), output)
    if str(output) != "-" and (output is not None or not (as_json or as_csv)):
        _show(settlement, folder, " ".join(filter(None, (remark, without))), top)
    elif without:
        warn([without])


def _settled(
    folder: Path, epoch: int | None, previous: Path | None, key: str | None, *, dry_run: bool, early: bool, meant: Meant
) -> tuple[Settlement, str, str]:
    """The settlement, kept if there is a ledger and it is not a dry run; what to say of its receipt; whose score is missing."""
    from assay.cli.progress import Working, check_waited, deadline
    from assay.competition import open_competition
    from assay.folder.reader import passed_over
    from assay.scheme.load import warnings

    competition, remark, without = open_competition(folder), "", ""
    ledger = competition.has_ledger
    options = {"--key": key is not None, "--dry-run": dry_run, "--skip": meant.skip, "--without-scores": meant.without_scores}
    for option, given in options.items():
        if given and not ledger:
            what, hint = "there is no ledger, so nothing is signed or kept", "leave it out, or make a ledger: assay ledger init"
            raise BadInput(what, file=folder, field=option, hint=hint)
    until = None if early or dry_run else deadline(competition.scheme, datetime.now(UTC))

    def hold(found: Settlement) -> None:
        if until is not None:
            check_waited(found, folder, until)

    if ledger and previous is None:
        from assay.cli.ledger.epochs import settled

        settlement, remark, without = settled(
            folder, epoch, key, dry_run=dry_run, meant=meant, hold=None if until is None else hold
        )
    else:  # a ledger, which knows the settlement before, refuses to be told another
        with Working(f"settling {folder}"):
            settlement = competition.settle(epoch, previous=previous)
        hold(settlement)
        over = passed_over(folder / "evidence")
        warn(f"{path}: is not read; evidence is in files that end in .jsonl or .parquet" for path in over[:5])
    warn(f"{folder / 'scheme.toml'}: {message}" for message in warnings(competition.scheme))
    return settlement, remark, without


def _show(settlement: Settlement, folder: Path, remark: str, top: int | None) -> None:
    from assay.cli.board import board
    from assay.cli.progress import Working
    from assay.cli.show import TOP, note, show

    with Working("comparing participants"):
        parts = list(board(settlement, folder, top or TOP))
    show(*parts, *([note(remark)] if remark else []))
