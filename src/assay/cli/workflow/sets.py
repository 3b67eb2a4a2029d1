"""`assay workflow task`, `pin` and `round`: what is asked, for who sets tasks and who wants to draw them again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from assay.judge.workflow.task import Task

__all__ = ["pin", "round_", "task"]

Competition = Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="One line of JSON.")]


def task(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The task's folder, with task.toml.", show_default=False)],
    package: Annotated[bool, typer.Option("--package", help="Print what participants are sent: all but the reference.")] = False,
    retries: Annotated[int, typer.Option(metavar="N", min=0, help="Retries a step may declare, as the scheme has it.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Say what a task asks, or what is wrong with it.

    A task without a reference, or with an empty checklist, is refused.

    \b
    Examples:
      assay workflow task my-competition/tasks/rag-ferry
      assay workflow task my-competition/tasks/rag-ferry --package > package.json
    """
    from assay.cli.output import json_bytes, put
    from assay.judge.workflow.task import read

    found = read(folder)
    if package or as_json:
        document = found.package(retries)
        put(json_bytes(document if package else document | {"digest": found.digest}), None)
        return
    _show(found, retries)


def _show(found: Task, retries: int) -> None:
    from assay.cli.show import Column, grid, note, sentence, show
    from assay.exact import text
    from assay.settle.story.telling import plural

    said = found.settings
    least = plural(found.min_steps, "step")
    rows = [(service, action, how) for service, actions in said.services.items() for action, how in actions.items()]
    quality = ", ".join(f"{name}: {value}" for name, value in found.measure.public().items() if value and name != "criteria")
    show(
        sentence(f"{found.id}, a task of type {said.type}: {said.instruction}"),
        "",
        sentence(f"At most {text(found.budget)} and {text(found.nanoseconds)} s, counted as {least} at least."),
        sentence(f"Judged by {quality or 'its reference'}."),
        "",
        grid(
            [
                Column("service", [row[0] for row in rows], style="bold"),
                Column("action", [row[1] for row in rows]),
                Column("how", [row[2] for row in rows], kind="text"),
            ]
        ),
        "",
        note(f"Task {found.digest}"),
        note(f"Package {found.package_digest(retries)}"),
    )


def pin(
    folder: Competition,
    tasks: Annotated[Path | None, typer.Option(metavar="DIR", help="The tasks, if they are not in DIR/tasks.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write tasks.txt: every task with the digest of its files. Each is read, so none is pinned that cannot be judged.

    \b
    Example:
      assay workflow pin my-competition
    """
    from assay.cli.show import sentence, show
    from assay.folder.write import write_text
    from assay.judge.workflow import taskset
    from assay.judge.workflow.contest import rules_of
    from assay.settle.story.telling import plural

    rules_of(folder / "scheme.toml")
    found = taskset.everything(tasks or folder / taskset.TASKS)
    write_text(folder / taskset.LIST, taskset.text(found))
    pinned = taskset.read(folder, tasks)
    if as_json:
        from assay.cli.output import emit

        emit({"digest": pinned.digest, "tasks": dict(pinned.digests)})
        return
    show(sentence(f"{plural(len(found), 'task')} pinned; the set is {pinned.digest}"))


def round_(
    folder: Competition,
    epoch: Annotated[int | None, typer.Option(metavar="N", min=0, help="The epoch; else the last that is drawn, or 1.")] = None,
    as_json: AsJson = False,
) -> None:
    """Draw the tasks of an epoch again from tasks.txt, round.toml and randomness.csv.

    \b
    Examples:
      assay workflow round my-competition --epoch 12
      assay workflow round my-competition --epoch 12 --json | jq -r '.tasks | keys[]'
    """
    from assay.cli.output import json_bytes, put
    from assay.judge.workflow import rounds, taskset

    pinned = taskset.read(folder)
    found = rounds.read(folder, pinned, (rounds.latest(folder) or 1) if epoch is None else epoch)
    if as_json:
        put(json_bytes(found.document()), None)
        return

    from assay.cli.show import Column, grid, note, sentence, show

    how = "all are asked" if found.randomness is None else f"drawn by {found.randomness.hex()}"
    show(
        sentence(f"Epoch {found.epoch}: {len(found.tasks)} of {len(pinned.digests)} tasks; {how}."),
        "",
        grid([Column("task", list(found.tasks), style="bold"), Column("digest", list(found.tasks.values()), kind="key")]),
        "",
        note(f"Task set {found.task_set}"),
    )
