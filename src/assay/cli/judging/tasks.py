"""`assay tasks`: check, list and pin task sets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.judging.live import EngineOption, RuntimeOption, SandboxOption
from assay.cli.judging.task_health import health
from assay.judge.kind_options import SandboxName

if TYPE_CHECKING:
    from rich.console import RenderableType

    from assay.judge.terminal.competition import Changes, Manifest

__all__ = ["app"]

app = typer.Typer(
    name="tasks", help="Check, list and pin task sets in Harbor's format.", no_args_is_help=True, rich_markup_mode=None
)

app.command()(health)

Places = Annotated[list[Path], typer.Argument(metavar="DIR…", help="Folders of tasks, or tasks.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="As lines of JSON.")]


@app.command()
def check(
    places: Places,
    sandbox: SandboxOption = SandboxName.bubblewrap,
    engine: EngineOption = None,
    runtime: RuntimeOption = None,
    times: Annotated[int, typer.Option(metavar="N", help="How often each is tried.", min=1, max=100)] = 1,
    jobs: Annotated[int, typer.Option("--jobs", "-j", metavar="N", help="Tasks at one time.", min=1, max=1024)] = 1,
    as_json: AsJson = False,
) -> None:
    """Test whether tasks judge correctly on this machine, and show what else is wrong with them.

    In the sandbox that a run would use, the reference solution of each task must pass, and an agent that does nothing must fail.
    A success is stored. The task is not tried again while task, image and sandbox stay the same, so a run begins at once.

    Ends with 1 if a task cannot be loaded, or does not judge correctly here.

    \b
    Examples:
      assay tasks check my-competition/tasks --jobs 2
      assay tasks check terminal-bench-2 --sandbox containers
    """
    from assay.cli.errors import printable
    from assay.judge.sandbox import choose
    from assay.judge.terminal.calibration import check_tasks as checked
    from assay.settle.story.telling import plural

    chosen = choose(sandbox.value, engine=engine, runtime=runtime)
    chosen.sweep()
    result = checked(*places, sandbox=chosen, times=times, jobs=jobs)
    if as_json:
        from assay.exact import canonical

        for finding in result.findings:
            typer.echo(canonical(finding.document()))
    else:
        for finding in result.findings:
            typer.echo(printable(str(finding)))
        known = f", {result.known} of them known from before" if result.known else ""
        typer.echo(f"{result.right} of {plural(result.tasks, 'task')} judge right in {chosen.name}{known}")
        counts = {level: sum(finding.level == level for finding in result.findings) for level in ("refused", "error", "warning")}
        parts = [f"{count} refused" if level == "refused" else plural(count, level) for level, count in counts.items() if count]
        if parts:
            typer.echo(", ".join(parts))
    if any(finding.level != "warning" for finding in result.findings):
        raise typer.Exit(1)


@app.command("list")
def list_(places: Places, as_json: AsJson = False) -> None:
    """List the tasks of a set, what they may use, and their digests.

    \b
    Example:
      assay tasks list my-competition/tasks
    """
    from assay.judge.terminal.tasks import read_tasks

    tasks = read_tasks(*places)
    if as_json:
        from assay.exact import canonical

        for task in tasks:
            row = {"id": task.id, "digest": task.digest, "mode": task.mode, "workdir": task.workdir, "folder": str(task.folder)}
            typer.echo(canonical(row | {"memory": task.memory, "disk": task.disk}))
        return

    from assay.cli.judging.live import duration, memory
    from assay.cli.show import Column, grid, sentence, show
    from assay.settle.story.telling import plural

    columns = [
        Column("task", [task.id for task in tasks], style="bold"),
        Column("tests", [task.mode for task in tasks]),
        Column("agent's time", [duration(task.settings.agent.timeout_sec) for task in tasks], right=True, spare=1),
        Column("tests' time", [duration(task.settings.verifier.timeout_sec) for task in tasks], right=True, spare=2),
        Column("memory", [memory(task.memory) for task in tasks], right=True, spare=3),
        Column("disk", [memory(task.disk) for task in tasks], right=True, spare=4),
        Column("digest", [task.digest for task in tasks], kind="key"),
    ]
    show(grid(columns), "", sentence(plural(len(tasks), "task") + "."))
    if tasks.passed_over:
        passed_over = ", ".join(folder.name for folder in tasks.passed_over)
        show(sentence(f"Passed over, because nothing in them looks like a task: {passed_over}."))


@app.command()
def pin(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)],
    tasks: Annotated[Path | None, typer.Option(metavar="DIR", help="The task set, if it is not DIR/tasks.")] = None,
    change: Annotated[bool, typer.Option("--change", help="Change a set that there is evidence about.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As one line of canonical JSON.")] = False,
) -> None:
    """Write tasks.txt: every task of the set with the digest of its files.

    A score is over exactly these tasks. Changing the set changes what every score means: where there is evidence, that has to
    be said.

    \b
    Example:
      assay tasks pin my-competition
    """
    from assay.cli.show import show
    from assay.errors import BadInput
    from assay.judge.terminal import competition
    from assay.judge.terminal.tasks import read_tasks

    file = folder / "tasks.txt"
    now = competition.pin_tasks(read_tasks(tasks or folder / "tasks"))
    before = competition.read_manifest(file) if file.exists() else None
    changes = competition.compare_manifest(before, now) if before is not None else None
    if changes and (changes.changed or changes.removed or changes.moded) and not change and _judged(folder):
        names = (*changes.changed, *changes.removed, *changes.moded)
        raise BadInput(
            f"{', '.join(names[:5])} changed, and there is evidence about the set",
            file=file,
            hint="make a new competition of it, or use --change, and move the old evidence away yourself",
        )
    competition.write_manifest(now, file)
    if as_json:
        from assay.cli.output import emit

        lists = ("added", "removed", "changed", "moded", "unpinned")
        pins = [{"id": pinned.id, "digest": pinned.digest, "mode": pinned.mode} for pinned in now.pins]
        emit({"digest": now.digest, "tasks": pins} | {name: list(getattr(changes, name)) if changes else [] for name in lists})
        return
    show(*_report(now, changes))


def _judged(folder: Path) -> bool:
    return any((folder / "evidence").glob("*.jsonl")) or any((folder / "evidence").glob("*.parquet"))


def _report(now: Manifest, changes: Changes | None) -> Iterator[RenderableType]:
    from assay.cli.show import sentence
    from assay.settle.story.telling import plural

    yield sentence(f"{plural(len(now.pins), 'task')} {'is' if len(now.pins) == 1 else 'are'} pinned; the set is {now.digest}")
    if changes:
        for what in ("added", "removed", "changed", "moded", "unpinned"):
            names = getattr(changes, what)
            if names:
                label = {"moded": "verified in another way", "unpinned": "pinned for the first time"}.get(what, what)
                yield sentence(f"{label}: {', '.join(names)}", indent=2)
    weaker = [pin.id for pin in now.pins if pin.mode != "separate"]
    if weaker:
        yield sentence(f"Weaker, because their tests see the agent's own box: {', '.join(weaker)}.")
