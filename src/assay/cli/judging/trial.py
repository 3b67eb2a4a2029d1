"""`assay trial`: one agent on one task, as it happens, for whoever develops either."""

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
    task: Annotated[Path, typer.Argument(metavar="TASK", help="The task's folder.", show_default=False)],
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
) -> None:
    """Run one agent on one task, and show what it prints.

    The task is calibrated first, once: its solution has to pass here, and doing nothing has to fail, or the trial is an error.

    Nothing becomes evidence. Ends with 0 if the tests pass, 1 if not, 130 if it was stopped.

    \b
    Examples:
      assay trial tasks/git-rescue oracle
      assay trial tasks/git-rescue my-agent/
      assay trial tasks/git-rescue "bash -c 'git reflog'" --output last
    """
    import os
    from tempfile import TemporaryDirectory

    from assay.cli.judging.follow import Follow
    from assay.cli.judging.words import given
    from assay.errors import BadInput
    from assay.judge import service
    from assay.judge.sandbox.choose import choose
    from assay.judge.tests import agent as agents
    from assay.judge.tests.calibration import Uncalibrated, calibrate
    from assay.judge.tests.tasks import read_task
    from assay.judge.tests.trial import Judge, Tried, image_of, run_trial

    loaded, who = read_task(task.resolve()), agents.find(agent)
    chosen = choose(sandbox.value, engine=engine, runtime=runtime)
    judge = Judge(chosen, "verify" if verify else "fail", service.of_agents(os.environ), env=given(env))
    agents.check(who, [loaded], judge.env, model=judge.model is not None)
    judge.sandbox.sweep()
    with TemporaryDirectory(prefix="assay-trial-") as made:
        folder = output or Path(made) / "trial"
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise BadInput(
                f"cannot be made ({error.strerror})", file=folder, hint="name a folder that is not there yet"
            ) from None
        try:
            with Follow(folder) as follow:
                image = image_of(judge.sandbox, loaded)
                if who not in agents.BUILT_IN.values():  # which are what a calibration tries, and show why one fails
                    calibrate(judge.sandbox, loaded, image)
                tried = run_trial(judge, loaded, who, image, folder, say=follow.phase)
        except KeyboardInterrupt:
            raise typer.Exit(STOPPED) from None
        except Uncalibrated as error:
            tried = Tried.failed(f"{error.what}; {error.hint}")
        _tell(tried)
    if tried.verdict.outcome != "pass":
        raise typer.Exit(NOT_PASSED)


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
