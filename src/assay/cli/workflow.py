"""Runs `assay workflow`: `check` and `run` for a plan's author, `task` and `pin` for a task's author, `round` for anyone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.judging.live import EngineOption, RuntimeOption, SandboxOption
from assay.cli.output import emit
from assay.judge.kind_options import SandboxName

if TYPE_CHECKING:
    from assay.judge.workflow.plan import Plan
    from assay.judge.workflow.tasks import WorkflowTask
    from assay.scheme.model import WorkflowScore


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

    graph, loaded, _ = _read(plan, task, scheme)
    if as_json:
        named = {} if loaded is None else {"task": loaded.id, "task_digest": loaded.digest}
        counts = {"steps": len(graph.nodes), "edges": len(graph.edges), "declared_retries": graph.declared_retries}
        emit({"plan_digest": graph.digest, "sinks": list(graph.sinks), **counts, **named})
        return

    from assay.cli.show import note, sentence, show
    from assay.cli.workflow_live import steps_table
    from assay.settle.story.telling import plural

    end = f"its output is what {' and '.join(graph.sinks)} answer{'' if len(graph.sinks) > 1 else 's'}"
    wanted = "" if loaded is None else f" for the task {loaded.id}"
    show(
        sentence(f"A plan of {plural(len(graph.nodes), 'step')}{wanted}; {end}."),
        "",
        steps_table(graph),
        "",
        note(f"Digest {graph.digest}"),
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
    """Execute a plan for a task, show its steps as they run, and show where each of the four parts of the score was won or lost.

    Nothing becomes evidence. The command sends real requests to the services. Ends with 1 if a service is broken, 130 if it was
    stopped.

    \b
    Examples:
      assay workflow run plan.json my-competition/tasks/rag-ferry
      assay workflow run plan.json tasks/rag-ferry --services services.toml --json | jq .score
    """
    import asyncio
    import os

    from assay.cli.workflow_live import Follow, report, report_blocks
    from assay.judge.sandbox import choose
    from assay.judge.workflow import services as service_files
    from assay.judge.workflow.competition import Desk

    graph, loaded, rules = _read(plan, task, scheme)
    assert loaded is not None
    file = services or _beside(task) / service_files.FILE
    desk = Desk(service_files.read(file), file.parent, os.environ)
    if desk.boxed(loaded):
        box = choose(sandbox.value, engine=engine, runtime=runtime)
        box.sweep()
        desk = Desk(desk.services, desk.folder, os.environ, box)
    desk.ready(loaded)
    try:
        with Follow(graph, quiet=as_json) as follow:
            done = asyncio.run(desk.carry_out(loaded, graph, name="desk", on_moment=follow.moment))
    except KeyboardInterrupt:
        raise typer.Exit(STOPPED) from None
    document = report(done, loaded, graph, rules)
    if not emit(document, as_json):
        from assay.cli.show import show

        show(*report_blocks(document, rules))
    if done.ran.broken:
        raise typer.Exit(BROKEN)


def _read(plan: Path, task: Path | None, scheme: Path | None) -> tuple[Plan, WorkflowTask | None, WorkflowScore]:
    """The plan, checked against the task and the scheme as far as they are named; raises BadInput."""
    from assay.folder.files import load
    from assay.judge.workflow import limits, tasks
    from assay.judge.workflow.plan import PlanBounds, PlanRules, parse_plan

    loaded = None if task is None else tasks.read_task(task)
    rules = _rules(task, scheme)
    held_to: Any = PlanRules(bounds=PlanBounds(limits.MOST_NODES, limits.MOST_EDGES, limits.MOST_PLAN_BYTES, 32))
    if loaded is not None:
        held_to = loaded.rules(rules.max_retries_per_step)
    data = load(plan, held_to.bounds.bytes, hint="write the plan first")
    return parse_plan(data, held_to, file=plan), loaded, rules


def _rules(task: Path | None, scheme: Path | None) -> WorkflowScore:
    from assay.judge.workflow.competition import rules_of
    from assay.scheme.model import WorkflowScore

    file = scheme
    if file is None and task is not None:
        beside = _beside(task) / "scheme.toml"
        file = beside if beside.exists() else None
    return WorkflowScore(kind="workflow") if file is None else rules_of(file)


def _beside(task: Path) -> Path:
    """The folder of the competition that a task is in: tasks/ID is two below it."""
    return task.resolve().parents[1]


Competition = Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)]


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
    from assay.judge.workflow.tasks import read_task

    workflow_task = read_task(folder)
    if package or as_json:
        document = workflow_task.package(retries)
        emit(document if package else document | {"digest": workflow_task.digest})
        return
    _show(workflow_task, retries)


def _show(workflow_task: WorkflowTask, retries: int) -> None:
    from assay.cli.show import Column, grid, note, sentence, show
    from assay.exact import text
    from assay.settle.story.telling import plural

    settings = workflow_task.settings
    least = plural(workflow_task.min_steps, "step")
    rows = [(service, action, how) for service, actions in settings.services.items() for action, how in actions.items()]
    quality = ", ".join(
        f"{name}: {value}" for name, value in workflow_task.measure.public().items() if value and name != "criteria"
    )
    show(
        sentence(f"{workflow_task.id}, a task of type {settings.type}: {settings.instruction}"),
        "",
        sentence(f"At most {text(workflow_task.budget)} and {text(workflow_task.nanoseconds)} s, counted as {least} at least."),
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
        note(f"Task {workflow_task.digest}"),
        note(f"Package {workflow_task.package_digest(retries)}"),
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
    from assay.folder.files import write_text
    from assay.judge.workflow.competition import rules_of
    from assay.judge.workflow.tasks import LIST, TASKS, everything, manifest_text, read_tasks
    from assay.settle.story.telling import plural

    rules_of(folder / "scheme.toml")
    task_set = everything(tasks or folder / TASKS)
    write_text(folder / LIST, manifest_text(task_set))
    pinned = read_tasks(folder, tasks)
    if emit({"digest": pinned.digest, "tasks": dict(pinned.digests)}, as_json):
        return
    show(sentence(f"{plural(len(task_set), 'task')} pinned; the set is {pinned.digest}"))


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
    from assay.judge.workflow.tasks import latest_round, read_round, read_tasks

    pinned = read_tasks(folder)
    draw = read_round(folder, pinned, (latest_round(folder) or 1) if epoch is None else epoch)
    if emit(draw.document(), as_json):
        return

    from assay.cli.show import Column, grid, note, sentence, show

    how = "all are asked" if draw.randomness is None else f"drawn by {draw.randomness.hex()}"
    show(
        sentence(f"Epoch {draw.epoch}: {len(draw.tasks)} of {len(pinned.digests)} tasks; {how}."),
        "",
        grid([Column("task", list(draw.tasks), style="bold"), Column("digest", list(draw.tasks.values()), kind="key")]),
        "",
        note(f"Task set {draw.task_set}"),
    )


app = typer.Typer(
    name="workflow",
    help="Check workflow plans and run them, and prepare the tasks they are for.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command("check")(check)
app.command("run")(run)
app.command("task")(task)
app.command("pin")(pin)
app.command("round")(round_)
