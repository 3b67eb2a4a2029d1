"""`assay trial`: one agent on one task, as it happens, or on a set of them, for whoever develops either."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.judging.words import EngineOption, EnvOption, RuntimeOption, SandboxName, SandboxOption

if TYPE_CHECKING:
    from assay.judge.tests.trial import Tried

__all__ = ["trial"]

NOT_PASSED, STOPPED = 1, 130


def trial(
    task: Annotated[Path, typer.Argument(metavar="TASK", help="A task's folder, or a folder of tasks.", show_default=False)],
    agent: Annotated[
        str, typer.Argument(metavar="AGENT", help="A folder with agent.toml, a command line, oracle or noop.", show_default=False)
    ],
    sandbox: SandboxOption = SandboxName.bubblewrap,
    engine: EngineOption = None,
    runtime: RuntimeOption = None,
    env: EnvOption = None,
    verify: Annotated[bool, typer.Option("--verify", help="Run the tests even if the agent runs out of time.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Keep what was printed and left in a new folder.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", metavar="N", help="Of a folder of tasks, so many at a time.", min=1)] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="The result as canonical JSON, not what is printed.")] = False,
) -> None:
    """Run one agent on one task, and show what it prints; or on a folder of tasks, and show its score.

    The task is calibrated first, once: its solution has to pass here, and doing nothing has to fail, or the trial is an error.

    Of a folder, each task is tried in the same way, and the share of tasks passed is the score. An error is no failure: while a
    task has no result there is no score. Ctrl-C ends with what there is.

    Nothing becomes evidence. Ends with 0 if the tests of every task pass, 1 if not, 130 if it was stopped.

    \b
    Examples:
      assay trial tasks/git-rescue oracle
      assay trial tasks/git-rescue my-agent/
      assay trial tasks/git-rescue "bash -c 'git reflog'" --output last
      assay trial tasks my-agent/ --jobs 4
    """
    import os
    from tempfile import TemporaryDirectory

    from assay.cli.judging.follow import Follow
    from assay.cli.judging.words import given
    from assay.cli.output import json_bytes, put
    from assay.errors import BadInput
    from assay.judge import service
    from assay.judge.sandbox.choose import choose
    from assay.judge.tests import agent as agents
    from assay.judge.tests.calibration import Uncalibrated, calibrate
    from assay.judge.tests.tasks import read
    from assay.judge.tests.tasks.read import folders, read_task
    from assay.judge.tests.trial import Judge, Tried, image_of, run_trial

    who = agents.find(agent)
    one = not task.is_dir() or folders(task)[0] == [task.resolve()]
    tasks = [read_task(task.resolve())] if one else list(read(task))
    chosen = choose(sandbox.value, engine=engine, runtime=runtime)
    judge = Judge(chosen, "verify" if verify else "fail", service.of_agents(os.environ), env=given(env))
    agents.check(who, tasks, judge.env, model=judge.model is not None)
    judge.sandbox.sweep()
    if not one:
        said = ["--sandbox", sandbox.value, *(["--verify"] if verify else [])]
        said += [word for name in env or () for word in ("--env", name)]
        said += [word for option, value in (("--engine", engine), ("--runtime", runtime)) if value for word in (option, value)]
        _set(agent, [loaded.folder for loaded in tasks], said, jobs, output, as_json=as_json)
        return
    loaded = tasks[0]
    with TemporaryDirectory(prefix="assay-trial-") as made:
        folder = output or Path(made) / "trial"
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise BadInput(
                f"cannot be made ({error.strerror})", file=folder, hint="name a folder that is not there yet"
            ) from None
        try:
            with Follow(folder, quiet=as_json) as follow:
                image = image_of(judge.sandbox, loaded)
                if who not in agents.BUILT_IN.values():  # which are what a calibration tries, and show why one fails
                    calibrate(judge.sandbox, loaded, image)
                tried = run_trial(judge, loaded, who, image, folder, say=follow.phase)
        except KeyboardInterrupt:
            raise typer.Exit(STOPPED) from None
        except Uncalibrated as error:
            tried = Tried.failed(f"{error.what}; {error.hint}")
        if as_json:
            put(json_bytes(_document(loaded.id, tried)), None)
        else:
            _tell(tried)
    if tried.verdict.outcome != "pass":
        raise typer.Exit(NOT_PASSED)


def _set(agent: str, tasks: list[Path], said: list[str], jobs: int, output: Path | None, *, as_json: bool) -> None:
    """Try a folder of tasks, show what came of it, and end as it ended."""
    from assay.cli.judging.trial_set import try_set
    from assay.cli.judging.words import duration
    from assay.cli.output import json_bytes, put
    from assay.cli.show import Column, grid, sentence, show

    found = try_set(agent, tasks, said, jobs, output=output, loud=not as_json)
    if as_json:
        put(json_bytes(found.document()), None)
    else:
        rows = [found.trials.get(task, {"outcome": "–", "reason": "not tried"}) for task in found.tasks]
        times = [duration(float(row["seconds"])) if row.get("seconds") else "–" for row in rows]
        columns = [
            Column("task", found.tasks, kind="key", style="bold"),
            Column("outcome", [row["outcome"] for row in rows]),
            Column("why", ["" if row["outcome"] == "pass" else row.get("message") or row["reason"] for row in rows], kind="text"),
            Column("time", times, right=True, spare=1),
        ]
        show(grid(columns), "", sentence(found.summary()))
    if found.stopped or found.passed < len(found.tasks):
        raise typer.Exit(STOPPED if found.stopped else NOT_PASSED)


def _document(task: str, tried: Tried) -> dict[str, str | None]:
    seconds = (tried.finished_at - tried.started_at).total_seconds()
    verdict = tried.verdict
    return {
        "task": task,
        "outcome": verdict.outcome,
        "reason": str(verdict.reason),
        "message": tried.message,
        "seconds": f"{seconds:.3f}",
    }


def _tell(tried: Tried) -> None:
    from assay.cli.judging.words import duration, memory
    from assay.cli.show import sentence, show

    verdict = tried.verdict
    colour = typer.colors.GREEN if verdict.outcome == "pass" else typer.colors.RED
    typer.secho(verdict.outcome.upper(), fg=colour, bold=True, nl=False)
    why = f" ({verdict.reason})" if verdict.outcome != "pass" else ""
    said = []
    for name, ran in (("agent", tried.agent), ("tests", tried.tests)):
        if ran is not None:
            ended = f"exit code {ran.exit_code}" if ran.stopped is None else f"over its bound on {ran.stopped}"
            used = f", {memory(ran.peak_memory)}" if ran.peak_memory else ""
            said.append(f"{name}: {ended}, {duration(ran.wall_seconds)}{used}")
    typer.echo(f"{why}  {'; '.join(said)}")
    if tried.message:
        show(sentence(tried.message))
    for note in tried.notes:
        show(sentence(f"Note: {note}."))
