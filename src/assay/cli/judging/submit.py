"""`assay submit`: make an agent or a solution the submission of a participant."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import AsJson, emit
from assay.exact import LARGEST

__all__ = ["submit"]


def submit(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)],
    participant: Annotated[str, typer.Argument(metavar="PARTICIPANT", help="A key of participants.csv.", show_default=False)],
    agent: Annotated[
        str,
        typer.Argument(
            metavar="AGENT|SOLUTION|PLANNER",
            help="A folder with agent.toml, a command line, oracle or noop; a text or texts for a bounty; a folder of plans.",
            show_default=False,
        ),
    ],
    epoch: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            max=LARGEST,
            help="The epoch in which it is accepted, for the ledger; else the latest that is open.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make an agent, a solution or a planner the current submission of a participant.

    The files are copied into the competition, under a name from their digest. The digest is the submission. Evidence about
    an earlier submission is kept, but no longer counts. If you submit the same files again, nothing changes. In a competition
    with a ledger, the ledger stores the submission too, with the epoch in which it was accepted.

    A solution is refused if it is larger than the bounty allows, or comes after its deadline.

    \b
    Examples:
      assay submit my-competition miner-7 my-agent/
      assay submit my-bounty agent-7 solution.md
      assay submit my-workflows miner-7 my-planner/
    """
    from assay.cli.show import sentence, show
    from assay.scheme.load import read

    done = read(folder / "scheme.toml").kind.submit(folder, participant, agent, epoch)
    named = {"participant": participant, "submission": done.submission, "name": done.name}
    if emit(named | {"changed": done.changed, "accepted_epoch": done.epoch}, as_json):
        return
    what = "is the submission" if done.changed else "is already the submission"
    kept = "" if done.epoch is None else f", accepted in epoch {done.epoch}"
    show(sentence(f"{done.name} {what} of {participant}{kept}: {done.submission}"))
