"""`assay trials`: the trials that were judged here, listed and filtered."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from assay.judge.tests.record import TrialRecord

__all__ = ["trials"]


class Ended(StrEnum):
    """How a trial ended."""

    passed = "pass"
    fail = "fail"
    timeout = "timeout"
    error = "error"


def trials(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)],
    validator: Annotated[str | None, typer.Option(metavar="NAME", help="Only this validator's.")] = None,
    participant: Annotated[str | None, typer.Option(metavar="KEY", help="Only this participant's.")] = None,
    task: Annotated[str | None, typer.Option(metavar="ID", help="Only of this task.")] = None,
    outcome: Annotated[list[Ended] | None, typer.Option(help="Only those; can be said several times.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A line of JSON for each trial.")] = False,
) -> None:
    """List the trials that were judged here.

    \b
    Examples:
      assay trials my-competition --outcome error
      assay trials my-competition --participant miner-7 --json | jq .agent.wall_seconds
      assay logs "$(assay trials my-competition --task git-rescue --json | jq -r .folder | head -1)"
    """
    from assay.cli.keys import validator_of
    from assay.errors import BadInput
    from assay.judge.tests.store import kept

    if not folder.is_dir():
        raise BadInput("no such folder", file=folder, hint="name a competition's folder")
    validator = None if validator is None else validator_of(folder, validator)
    wanted = {one.value for one in outcome or ()}
    found = [
        (place, one)
        for place, one in kept(folder)
        if validator in (None, one.validator)
        and participant in (None, one.participant)
        and task in (None, one.task)
        and (not wanted or one.outcome in wanted)
    ]
    if as_json:
        from assay.exact import canonical

        for place, one in found:
            document = one.model_dump(mode="json", by_alias=True, exclude_none=True)
            typer.echo((canonical(document | {"folder": str(place)}) + b"\n"), nl=False)
        return
    _show(folder, found)


def _show(folder: Path, found: list[tuple[Path, TrialRecord]]) -> None:
    from collections import Counter

    from assay.cli.judging.words import duration, memory
    from assay.cli.keys import called_in
    from assay.cli.show import Column, grid, sentence, show
    from assay.settle.story.telling import plural

    if not found:
        show(sentence("There are no such trials."))
        return
    rows = [one for _, one in found]
    names = called_in(folder, (one.validator for one in rows))

    def took(one: TrialRecord, whose: str) -> str:
        ran = one.agent if whose == "agent" else one.tests
        return "" if ran is None else duration(float(ran.wall_seconds))

    table = grid(
        [
            Column("outcome", [one.outcome for one in rows]),
            Column("why", [one.message or one.reason for one in rows], kind="crop"),
            Column("participant", [one.participant for one in rows], kind="key"),
            Column("task", [one.task for one in rows], kind="crop"),
            Column("trial", [str(one.trial) for one in rows], right=True),
            Column("validator", [names[one.validator] for one in rows], kind="key", spare=1),
            Column("agent", [took(one, "agent") for one in rows], right=True, spare=2),
            Column("tests", [took(one, "tests") for one in rows], right=True, spare=3),
            Column("memory", [memory(one.agent.peak_memory) if one.agent else "" for one in rows], right=True, spare=4),
            Column("folder", [str(place) for place, _ in found], spare=5),
        ]
    )
    counts = Counter(one.outcome for one in rows)
    show(
        table,
        "",
        sentence(
            f"{plural(len(rows), 'trial')}: {', '.join(f'{count} {outcome}' for outcome, count in sorted(counts.items()))}."
        ),
    )
