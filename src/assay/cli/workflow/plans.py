"""`assay workflow check` and `run`: a plan at its maker's desk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.judging.words import EngineOption, RuntimeOption, SandboxName, SandboxOption

if TYPE_CHECKING:
    from assay.judge.workflow.plan import Plan
    from assay.judge.workflow.task import Task
    from assay.scheme.model import WorkflowScore

__all__ = ["check", "run"]

BROKEN, STOPPED = 1, 130

PlanArgument = Annotated[Path, typer.Argument(metavar="PLAN", help="A JSON file.", show_default=False)]
SchemeOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The rules; else scheme.toml of the task's competition, or the preset cswon.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One line of JSON.")]


def check(
    plan: PlanArgument,
    task: Annotated[Path | None, typer.Option(metavar="DIR", help="The task's folder: what it allows is checked too.")] = None,
    scheme: SchemeOption = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a plan would be accepted, and if not, what is wrong with which step.

    Without a task it is checked by itself: cycles, unknown ids, references to what does not come before, floats.

    \b
    Examples:
      assay workflow check plan.json
      assay workflow check plan.json --task my-competition/tasks/rag-ferry
    """
    from assay.cli.output import json_bytes, put

    found, loaded, _ = _read(plan, task, scheme)
    if as_json:
        named = {} if loaded is None else {"task": loaded.id, "task_digest": loaded.digest}
        counts = {"steps": len(found.nodes), "edges": len(found.edges), "declared_retries": found.declared_retries}
        put(json_bytes({"plan_digest": found.digest, "sinks": list(found.sinks), **counts, **named}), None)
        return

    from assay.cli.show import note, sentence, show
    from assay.cli.workflow.told import steps_table
    from assay.settle.story.telling import plural

    end = f"its output is what {' and '.join(found.sinks)} answer{'' if len(found.sinks) > 1 else 's'}"
    wanted = "" if loaded is None else f" for the task {loaded.id}"
    show(
        sentence(f"A plan of {plural(len(found.nodes), 'step')}{wanted}; {end}."),
        "",
        steps_table(found),
        "",
        note(f"Digest {found.digest}"),
    )


def run(
    plan: PlanArgument,
    task: Annotated[Path, typer.Argument(metavar="TASK", help="The task's folder.", show_default=False)],
    services: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the services are; else services.toml of the task's competition.")
    ] = None,
    scheme: SchemeOption = None,
    sandbox: SandboxOption = SandboxName.bubblewrap,
    engine: EngineOption = None,
    runtime: RuntimeOption = None,
    as_json: AsJson = False,
) -> None:
    """Carry a plan out for a task, show its steps as they run, and where each of the four parts of the score was won or lost.

    Nothing becomes evidence. The services are asked for real. Ends with 1 if a service is broken, 130 if it was stopped.

    \b
    Examples:
      assay workflow run plan.json my-competition/tasks/rag-ferry
      assay workflow run plan.json tasks/rag-ferry --services services.toml --json | jq .score
    """
    import asyncio
    import os

    from assay.cli.workflow.follow import Follow
    from assay.cli.workflow.told import report, told
    from assay.judge.sandbox.choose import choose
    from assay.judge.workflow import services as service_files
    from assay.judge.workflow.desk import Desk

    found, loaded, rules = _read(plan, task, scheme)
    assert loaded is not None
    file = services or _beside(task) / service_files.FILE
    desk = Desk(service_files.read(file), file.parent, os.environ)
    if desk.boxed(loaded):
        box = choose(sandbox.value, engine=engine, runtime=runtime)
        box.sweep()
        desk = Desk(desk.services, desk.folder, os.environ, box)
    desk.ready(loaded)
    try:
        with Follow(found, quiet=as_json) as follow:
            done = asyncio.run(desk.carry_out(loaded, found, name="desk", on_moment=follow.moment))
    except KeyboardInterrupt:
        raise typer.Exit(STOPPED) from None
    document = report(done, loaded, found, rules)
    if as_json:
        from assay.cli.output import json_bytes, put

        put(json_bytes(document), None)
    else:
        from assay.cli.show import show

        show(*told(document, rules))
    if done.ran.broken:
        raise typer.Exit(BROKEN)


def _read(plan: Path, task: Path | None, scheme: Path | None) -> tuple[Plan, Task | None, WorkflowScore]:
    """The plan, checked against the task and the scheme as far as they are named; raises BadInput."""
    from assay.folder.text import load
    from assay.judge.workflow import limits
    from assay.judge.workflow import plan as plans
    from assay.judge.workflow import task as tasks

    loaded = None if task is None else tasks.read(task)
    rules = _rules(task, scheme)
    held_to: Any = plans.Rules(bounds=plans.Bounds(limits.MOST_NODES, limits.MOST_EDGES, limits.MOST_PLAN_BYTES, 32))
    if loaded is not None:
        held_to = loaded.rules(rules.max_retries_per_step)
    data = load(plan, held_to.bounds.bytes, hint="write the plan first")
    return plans.parse(data, held_to, file=plan), loaded, rules


def _rules(task: Path | None, scheme: Path | None) -> WorkflowScore:
    from assay.judge.workflow.contest import rules_of
    from assay.scheme.model import WorkflowScore

    file = scheme
    if file is None and task is not None:
        beside = _beside(task) / "scheme.toml"
        file = beside if beside.exists() else None
    return WorkflowScore(kind="workflow") if file is None else rules_of(file)


def _beside(task: Path) -> Path:
    """The folder of the competition that a task is in: tasks/ID is two below it."""
    return task.resolve().parents[1]
