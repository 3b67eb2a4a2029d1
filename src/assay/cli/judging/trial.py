"""`assay trial`: one agent on one task, as it happens, or on a set of tasks, for whoever develops either. SPEC 2.1.

Each task of a set is tried by the very command that tries one, in a process of its own, so the rules are the same: calibration,
time, bounds, and what counts as an infrastructure error. An error is no failure: it leaves the score open.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.errors import printable
from assay.cli.judging.live import EngineOption, EnvOption, RuntimeOption, SandboxOption
from assay.exact import NANO, half_even, text
from assay.judge.kind_options import SandboxName
from assay.uncertainty import wilson

if TYPE_CHECKING:
    from assay.judge.terminal.agent import Agent
    from assay.judge.terminal.tasks import Task
    from assay.judge.terminal.trial import TrialResult, TrialSetup


Json = dict[str, Any]
_STOPPED = "stopped"


@dataclass
class TrialSet:
    """The tasks of a set in their order, and what came of those that were tried."""

    agent: str
    tasks: tuple[str, ...]
    trials: dict[str, Json] = field(default_factory=dict)
    stopped: bool = False

    def count(self, *outcomes: str) -> int:
        """Trials that ended so."""
        return sum(row["outcome"] in outcomes for row in self.trials.values())

    @property
    def passed(self) -> int:
        """Tasks that were passed."""
        return self.count("pass")

    @property
    def judged(self) -> int:
        """Tasks with a result: errors have none, nor has what was never tried."""
        return self.count("pass", "fail", "timeout")

    @property
    def score(self) -> str | None:
        """The share of all tasks that were passed, as evidence would score; None while one of them has no result."""
        return text(half_even(self.passed * NANO, len(self.tasks))) if self.judged == len(self.tasks) else None

    def document(self) -> Json:
        """The set as JSON."""
        counts = {"tasks": len(self.tasks), "passed": self.passed, "judged": self.judged, "errors": self.count("error")}
        trials = [self.trials[task] for task in self.tasks if task in self.trials]
        missing = [task for task in self.tasks if self.trials.get(task, {}).get("outcome") not in ("pass", "fail", "timeout")]
        head = {"schema": "assay.trial-set/1", "agent": self.agent, "score": self.score, "stopped": self.stopped}
        return head | counts | {"missing": missing, "trials": trials}

    def summary(self) -> str:
        """The result of the set, in a sentence or two."""
        from assay.settle.story.telling import plural

        if self.score is not None:
            sure = wilson(self.passed, len(self.tasks))
            between = f"{100 * sure.low:.1f}–{100 * sure.high:.1f} %"
            return f"Score {self.score}: {self.passed} of {plural(len(self.tasks), 'task')} passed (95 % interval {between})."
        rest = len(self.tasks) - self.judged
        why = "Stopped, so there is no score yet" if self.stopped else "No score"
        has = "has" if rest == 1 else "have"
        missing = f"{rest} of {plural(len(self.tasks), 'task')} {has} no result, and errors are never failures"
        return f"{why}: {missing}. Of the {self.judged} with one, {self.passed} passed."


def try_set(agent: str, tasks: Sequence[Path], options: Sequence[str], jobs: int, *, output: Path | None, loud: bool) -> TrialSet:
    """Try every task, so many at a time, telling each result as it comes. Ctrl-C stops the trials and keeps what there is."""
    trial_set = TrialSet(agent, tuple(task.name for task in tasks))
    running: dict[str, subprocess.Popen[bytes]] = {}
    starting = threading.Lock()

    def attempt(task: Path) -> Json:
        words = [str(task), agent, "--json", *options, *(["--output", str(output / task.name)] if output else [])]
        with starting:
            if trial_set.stopped:
                return {"task": task.name, "outcome": _STOPPED}
            process = running[task.name] = subprocess.Popen(
                [sys.executable, "-m", "assay", "trial", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # so that Ctrl-C in a terminal is this command's to answer
            )
        printed, wrong = process.communicate()
        running.pop(task.name)
        return _document_of(task.name, process.returncode, printed, wrong, stopped=trial_set.stopped)

    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(attempt, task) for task in tasks]
        try:
            for future in as_completed(futures):
                _take(trial_set, future.result(), loud)
        except KeyboardInterrupt:
            with starting:
                trial_set.stopped = True
            for future in futures:
                future.cancel()
            for process in list(running.values()):
                process.send_signal(signal.SIGINT)
    for future in futures:
        if future.done() and not future.cancelled() and future.result()["task"] not in trial_set.trials:
            _take(trial_set, future.result(), loud)
    return trial_set


def _document_of(task: str, code: int, printed: bytes, wrong: bytes, *, stopped: bool) -> Json:
    """The document that a trial's process printed; trouble of its own is an error of the trial."""
    try:
        document: Json = json.loads(printed)
    except ValueError:
        if stopped or code == 130:
            return {"task": task, "outcome": _STOPPED}
        last = (wrong.decode(errors="replace").strip().splitlines() or [f"the trial's process ended with {code}"])[-1]
        return {"task": task, "outcome": "error", "reason": "error", "message": last.removeprefix("error: "), "seconds": None}
    return document


def _take(trial_set: TrialSet, trial: Json, loud: bool) -> None:
    if trial["outcome"] == _STOPPED:
        return
    trial_set.trials[trial["task"]] = trial
    if loud:
        why = f": {trial['message']}" if trial["outcome"] == "error" and trial["message"] else ""
        line = f"{len(trial_set.trials)}/{len(trial_set.tasks)} {trial['task']}: {trial['outcome']}{why}"
        typer.echo(printable(line), err=True)


NOT_PASSED, STOPPED = 1, 130


_Task = Annotated[Path, typer.Argument(metavar="TASK", help="A task's folder, or a folder of tasks.", show_default=False)]
_Agent = Annotated[
    str, typer.Argument(metavar="AGENT", help="A folder with agent.toml, a command line, oracle or noop.", show_default=False)
]
_Verify = Annotated[bool, typer.Option("--verify", help="Run the tests even if the agent runs out of time.")]
_Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="DIR", help="Keep what was printed and left in a new folder.")
]
_Jobs = Annotated[int, typer.Option("--jobs", "-j", metavar="N", help="Of a folder of tasks, so many at a time.", min=1)]
_AsJson = Annotated[bool, typer.Option("--json", help="The result as canonical JSON, not what is printed.")]


def trial(
    task: _Task,
    agent: _Agent,
    sandbox: SandboxOption = SandboxName.bubblewrap,
    engine: EngineOption = None,
    runtime: RuntimeOption = None,
    env: EnvOption = None,
    verify: _Verify = False,
    output: _Output = None,
    jobs: _Jobs = 1,
    as_json: _AsJson = False,
) -> None:
    """Run one agent on one task, and show what it prints; or on a folder of tasks, and show its score.

    The task is calibrated first, once: its reference solution must pass here, and an agent that does nothing must fail. If not,
    the trial is an error.

    If TASK is a folder of tasks, each of them is tried in the same way. The score is the share of tasks that passed. An
    infrastructure error is not a failure: while a task has no result, there is no score. Ctrl-C stops, and shows the results so
    far.

    Nothing becomes evidence. Ends with 0 if the tests of every task pass, 1 if not, 130 if it was stopped.

    \b
    Examples:
      assay trial tasks/git-rescue oracle
      assay trial tasks/git-rescue my-agent/
      assay trial tasks/git-rescue "bash -c 'git reflog'" --output last
      assay trial tasks my-agent/ --jobs 4
    """
    import os

    from assay.judge import service
    from assay.judge.kind_options import variables
    from assay.judge.sandbox import choose
    from assay.judge.terminal import agent as agents
    from assay.judge.terminal.tasks import read_task, read_tasks, task_folders
    from assay.judge.terminal.trial import TrialSetup

    loaded = agents.find_agent(agent)
    alone = not task.is_dir() or task_folders(task)[0] == [task.resolve()]
    tasks = [read_task(task.resolve())] if alone else list(read_tasks(task))
    chosen = choose(sandbox.value, engine=engine, runtime=runtime)
    setup = TrialSetup(chosen, "verify" if verify else "fail", service.of_agents(os.environ), env=variables(env or ()))
    agents.check_agent(loaded, tasks, setup.env, model=setup.model is not None)
    setup.sandbox.sweep()
    if alone:
        _try_one(setup, tasks[0], loaded, output, as_json=as_json)
        return
    words = ["--sandbox", sandbox.value, *(["--verify"] if verify else [])]
    words += [word for name in env or () for word in ("--env", name)]
    words += [word for option, value in (("--engine", engine), ("--runtime", runtime)) if value for word in (option, value)]
    _try_set(agent, [task.folder for task in tasks], words, jobs, output, as_json=as_json)


def _try_one(setup: TrialSetup, task: Task, agent: Agent, output: Path | None, *, as_json: bool) -> None:
    """Try one task, show what is printed and how it ended, and end as it ended."""
    from tempfile import TemporaryDirectory

    from assay.cli.judging.live import FollowTrial
    from assay.cli.output import emit
    from assay.errors import BadInput
    from assay.judge.terminal import agent as agents
    from assay.judge.terminal.calibration import Uncalibrated, calibrate
    from assay.judge.terminal.trial import TrialResult, image_of, run_trial

    with TemporaryDirectory(prefix="assay-trial-") as temporary:
        folder = output or Path(temporary) / "trial"
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            hint = "name a folder that is not there yet"
            raise BadInput(f"cannot be made ({error.strerror})", file=folder, hint=hint) from None
        try:
            with FollowTrial(folder, quiet=as_json) as follow:
                image = image_of(setup.sandbox, task)
                if agent not in agents.BUILT_IN.values():  # which are what a calibration tries, and show why one fails
                    calibrate(setup.sandbox, task, image)
                result = run_trial(setup, task, agent, image, folder, say=follow.phase)
        except KeyboardInterrupt:
            raise typer.Exit(STOPPED) from None
        except Uncalibrated as error:
            result = TrialResult.failed(f"{error.what}; {error.hint}")
        if not emit(_document(task.id, result), as_json):
            _show_result(result)
    if result.verdict.outcome != "pass":
        raise typer.Exit(NOT_PASSED)


def _try_set(agent: str, tasks: list[Path], options: list[str], jobs: int, output: Path | None, *, as_json: bool) -> None:
    """Try a folder of tasks, show what came of it, and end as it ended."""
    from assay.cli.judging.live import duration
    from assay.cli.output import emit
    from assay.cli.show import Column, grid, sentence, show

    trial_set = try_set(agent, tasks, options, jobs, output=output, loud=not as_json)
    if not emit(trial_set.document(), as_json):
        rows = [trial_set.trials.get(task, {"outcome": "–", "reason": "not tried"}) for task in trial_set.tasks]
        times = [duration(float(row["seconds"])) if row.get("seconds") else "–" for row in rows]
        columns = [
            Column("task", trial_set.tasks, kind="key", style="bold"),
            Column("outcome", [row["outcome"] for row in rows]),
            Column("why", ["" if row["outcome"] == "pass" else row.get("message") or row["reason"] for row in rows], kind="text"),
            Column("time", times, right=True, spare=1),
        ]
        show(grid(columns), "", sentence(trial_set.summary()))
    if trial_set.stopped or trial_set.passed < len(trial_set.tasks):
        raise typer.Exit(STOPPED if trial_set.stopped else NOT_PASSED)


def _document(task: str, tried: TrialResult) -> dict[str, str | None]:
    seconds = (tried.finished_at - tried.started_at).total_seconds()
    verdict = tried.verdict
    return {
        "task": task,
        "outcome": verdict.outcome,
        "reason": str(verdict.reason),
        "message": tried.message,
        "seconds": f"{seconds:.3f}",
    }


def _show_result(tried: TrialResult) -> None:
    from assay.cli.judging.live import duration, memory
    from assay.cli.show import sentence, show

    verdict = tried.verdict
    colour = typer.colors.GREEN if verdict.outcome == "pass" else typer.colors.RED
    typer.secho(verdict.outcome.upper(), fg=colour, bold=True, nl=False)
    why = f" ({verdict.reason})" if verdict.outcome != "pass" else ""
    parts = []
    for name, ran in (("agent", tried.agent), ("tests", tried.tests)):
        if ran is not None:
            ended = f"exit code {ran.exit_code}" if ran.stopped is None else f"over its bound on {ran.stopped}"
            used = f", {memory(ran.peak_memory)}" if ran.peak_memory else ""
            parts.append(f"{name}: {ended}, {duration(ran.wall_seconds)}{used}")
    typer.echo(f"{why}  {'; '.join(parts)}")
    if tried.message:
        show(sentence(tried.message))
    for note in tried.notes:
        show(sentence(f"Note: {note}."))
