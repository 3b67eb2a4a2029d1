"""`assay submit`: make an agent the submission of a participant."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["submit"]


def submit(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)],
    participant: Annotated[str, typer.Argument(metavar="PARTICIPANT", help="A key of participants.csv.", show_default=False)],
    agent: Annotated[
        str, typer.Argument(metavar="AGENT", help="A folder with agent.toml, a command line, oracle or noop.", show_default=False)
    ],
    epoch: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            max=2**53 - 1,
            help="The epoch in which it is accepted, for the ledger; else the latest that is open.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Make an agent the current submission of a participant.

    Its files are copied into the competition, under their digest, which is the submission. What was judged of an earlier
    submission is kept and no longer counts. The same agent once more changes nothing. In a competition with a ledger, the
    submission is kept there too, with the epoch in which it was accepted.

    \b
    Example:
      assay submit my-competition miner-7 my-agent/
    """
    from assay.cli.show import sentence, show
    from assay.judge.tests.submit import submit as do

    done = do(folder, participant, agent, epoch=epoch)
    what = "is the submission" if done.changed else "is already the submission"
    kept = "" if done.epoch is None else f", accepted in epoch {done.epoch}"
    show(sentence(f"{done.agent.name} {done.agent.version} {what} of {participant}{kept}: {done.agent.digest}"))
