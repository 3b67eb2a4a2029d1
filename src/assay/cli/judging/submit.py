"""`assay submit`: make an agent or a solution the submission of a participant."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import AsJson, emit
from assay.exact import LARGEST

__all__ = ["submit"]

EpochOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        max=LARGEST,
        help="The epoch in which it is accepted, for the ledger; else the latest that is open.",
        show_default=False,
    ),
]


def submit(
    given: Annotated[
        list[str],
        typer.Argument(
            metavar="DIR PARTICIPANT AGENT|SOLUTION|PLANNER",
            help="The competition's folder, a key of participants.csv, and what is handed in: a folder with agent.toml, a "
            "command line, oracle or noop; a text or texts for a bounty; a folder of plans. With --url only the last.",
            show_default=False,
        ),
    ],
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Hand in at a service: the competition's address.", show_default=False),
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="NAME", help="Your key, which signs; with --url.", show_default=False)
    ] = None,
    commit: Annotated[bool, typer.Option("--commit", help="Only commit to it; it is handed in later. With --url.")] = False,
    sealed: Annotated[
        bool, typer.Option("--sealed", help="A sealed solution (`assay seal`) or a commitment (`assay commit`). With --url.")
    ] = False,
    epoch: EpochOption = None,
    as_json: AsJson = False,
) -> None:
    """Make an agent, a solution or a planner the current submission of a participant.

    The files are copied into the competition, under a name from their digest. The digest is the submission. Evidence about
    an earlier submission is kept, but no longer counts. If you submit the same files again, nothing changes. In a competition
    with a ledger, the ledger stores the submission too, with the epoch in which it was accepted.

    With --url it is handed in at a service, by the participant whose key signs: `assay register` comes first.

    A solution is refused if it is larger than the bounty allows, or comes after its deadline.

    \b
    Examples:
      assay submit my-competition miner-7 my-agent/
      assay submit my-bounty agent-7 solution.md
      assay submit my-workflows miner-7 my-planner/
      assay submit --url https://assay.example.org/term-challenge --key me my-agent/
      assay submit --url https://assay.example.org/sorting --key me --sealed solution.sealed
    """
    from assay.errors import BadInput

    if url is not None:
        from assay.cli.participants import hand_in

        if len(given) != 1 or epoch is not None:
            raise BadInput("with --url only what is handed in is named", hint="assay submit --url URL --key NAME my-agent/")
        hand_in(url, key, given[0], commit=commit, sealed=sealed, as_json=as_json)
        return
    if len(given) != 3 or key is not None or commit or sealed:
        hint = "assay submit DIR PARTICIPANT AGENT; or at a service: assay submit --url URL --key NAME AGENT"
        raise BadInput("name the folder, the participant and what is handed in", hint=hint)
    _submit_here(Path(given[0]), given[1], given[2], epoch, as_json=as_json)


def _submit_here(folder: Path, participant: str, agent: str, epoch: int | None, *, as_json: bool) -> None:
    """Make it the submission in a folder of this machine, and say so. Raises BadInput, StoreError."""
    from assay.cli.show import sentence, show
    from assay.scheme.load import read

    done = read(folder / "scheme.toml").kind.submit(folder, participant, agent, epoch)
    named = {"participant": participant, "submission": done.submission, "name": done.name}
    if emit(named | {"changed": done.changed, "accepted_epoch": done.epoch}, as_json):
        return
    what = "is the submission" if done.changed else "is already the submission"
    accepted = "" if done.epoch is None else f", accepted in epoch {done.epoch}"
    show(sentence(f"{done.name} {what} of {participant}{accepted}: {done.submission}"))
