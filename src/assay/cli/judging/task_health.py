"""`assay tasks health`: what the evidence of an epoch says of each task. SPEC 2.1."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.output import AsJson, emit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from assay.rules.task_health import TaskHealth

__all__ = ["health"]

BAR = 10
"""Signs of a bar."""


def health(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)],
    epoch: Annotated[int | None, typer.Option(metavar="N", help="The epoch; the newest by default.", min=0)] = None,
    sick: Annotated[bool, typer.Option("--sick", help="Only tasks about which there is a word.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show which tasks tell nothing, or mislead: dead, flaky, never-separating and negatively separating ones.

    The words follow from counts of trials, with exact inequalities and minimum counts; docs/task-health.md has them. No score
    depends on them.

    \b
    Examples:
      assay tasks health my-competition
      assay tasks health my-competition --epoch 12 --sick --json
    """
    from assay.cli.output import Working
    from assay.cli.show import show
    from assay.errors import CannotSettle
    from assay.serve.season import read

    with Working(f"reading {folder}"):
        season = read(folder, epoch)
        if not season.tasks.names:
            what = "has no single trials of tasks"
            raise CannotSettle(what, file=folder, hint="name a competition of kind tests whose evidence is not only counted")
        rows = [*season.tasks.health.values()]
    shown = [row for row in rows if row.words] if sick else rows
    document = {"schema": "assay.task-health/1", "epoch": season.settlement.epoch}
    if emit(lambda: document | {"tasks": [row.document() for row in shown]}, as_json):
        return
    show(*_shown(shown, len(rows), season.settlement.epoch))


def _bar(part: int, whole: int) -> str:
    full = part * BAR // whole if whole else 0
    return "█" * full + "░" * (BAR - full)


def _shown(rows: Sequence[TaskHealth], count: int, epoch: int) -> Iterator[RenderableType]:
    from assay.cli.show import Column, grid, heading, note, sentence
    from assay.rules.task_health import WORDS
    from assay.serve.draw import rest_text
    from assay.settle.story.telling import plural

    yield heading(f"Health of {plural(count, 'task')} in epoch {epoch}")
    if rows:
        trials = [row.passed + row.failed for row in rows]
        yield ""
        yield grid(
            [
                Column("task", [row.task for row in rows], kind="key", style="bold"),
                Column("passed", [_bar(row.passed, of) for row, of in zip(rows, trials, strict=True)], spare=2),
                Column("trials", [f"{row.passed} of {of}" for row, of in zip(rows, trials, strict=True)], right=True),
                Column("errors", [str(row.errors or "") for row in rows], right=True, spare=3),
                Column("pairs differ", [f"{row.differing} of {row.pairs}" if row.pairs else "–" for row in rows], right=True),
                Column("rest: pass / fail", [rest_text(row.rest_passers, row.rest_failers) for row in rows], right=True, spare=1),
                Column("health", [", ".join(row.words) for row in rows]),
            ]
        )
        yield note(
            "Pairs differ: of two trials of one participant, how many ended differently. Rest: the share of the other tasks "
            "passed by those who pass this one, and by those who do not."
        )
    words = [(word, sum(word in row.words for row in rows)) for word in WORDS]
    known = [f"{number} {word}" for word, number in words if number]
    yield ""
    yield sentence(f"{', '.join(known)}." if known else "No task is dead, flaky, never-separating or negative.")
