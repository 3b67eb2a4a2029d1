"""`assay import`: imports the results of other harnesses as a competition."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.ledger.epochs import import_epoch
from assay.cli.output import emit

if TYPE_CHECKING:
    from rich.console import RenderableType

    from assay.imports import ImportedCompetition, ImportOptions, Trials

__all__ = ["app"]

HELP = "Import results of other harnesses as a competition, or exported epochs into a ledger."
app = typer.Typer(name="import", help=HELP, no_args_is_help=True, rich_markup_mode=None)
app.command("epoch")(import_epoch)


class Attempts(StrEnum):
    """The meaning of attempt k of a task."""

    auto = "auto"
    runs = "runs"
    trials = "trials"


class Timeout(StrEnum):
    """The rule for agents that ran out of time."""

    fail = "fail"
    verify = "verify"


class CountAs(StrEnum):
    """The rules of counting that are used."""

    scheme = "scheme"
    leaderboard = "leaderboard"


Threshold = Annotated[
    str | None, typer.Option(metavar="NUMBER", help="The least score that is a pass; needed for scores between 0 and 1.")
]
Reader = Callable[[Path, "ImportOptions"], "Trials"]


@dataclass(frozen=True, kw_only=True)
class _ImportArguments:
    """The arguments and options of every import command: each field is one of them."""

    src: Annotated[Path, typer.Argument(metavar="SRC", help="What to read.")]
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder: made, or with --add there already.")]
    scheme: Annotated[
        str | None,
        typer.Option(
            "--scheme", "--preset", metavar="PRESET|FILE", help="The rules; otherwise benchmark, or those that are there."
        ),
    ] = None
    agent: Annotated[
        str | None, typer.Option(metavar="NAME", help="Every trial is of this agent, whatever the files call it.")
    ] = None
    attempts: Annotated[Attempts, typer.Option(help="Attempt k of a task is run k, or trial k of its run.")] = Attempts.auto
    agent_timeout: Annotated[
        Timeout | None, typer.Option(help="Agents out of time fail, or their tests decide; otherwise as the scheme says.")
    ] = None
    count_as: Annotated[
        CountAs, typer.Option("--count-as", help="leaderboard: resolved is a pass and everything else a fail, errors too.")
    ] = CountAs.scheme
    strict_errors: Annotated[
        bool, typer.Option("--strict-errors", help="A crashed agent or unreadable output is an error, not a fail.")
    ] = False
    epoch: Annotated[int, typer.Option(help="The epoch of all records.", min=0)] = 1
    stake: Annotated[str, typer.Option(help="The stake of every run, for a scheme that weighs them.")] = "100"
    first_uid: Annotated[int, typer.Option(help="The uid of the first agent by name, for a scheme with weights.", min=0)] = 1
    no_uids: Annotated[bool, typer.Option("--no-uids", help="Nobody has a uid, for a scheme with weights.")] = False
    add: Annotated[bool, typer.Option("--add", help="Add evidence to the competition that is there.")] = False
    force: Annotated[bool, typer.Option("--force", help="Repeat an earlier import.")] = False
    assume_submission: Annotated[
        bool, typer.Option("--assume-submission", help="With --add: the trials are of the submission in participants.csv.")
    ] = False
    as_json: Annotated[bool, typer.Option("--json", help="The report as canonical JSON.")] = False

    def options(self) -> ImportOptions:
        """The options of the import. Raises BadParameter for two that exclude each other."""
        from assay.imports import ImportOptions

        if self.add and self.force:
            raise typer.BadParameter("--add and --force exclude each other", param_hint="--force")
        return ImportOptions(
            agent=self.agent,
            attempts=self.attempts.value,
            agent_timeout=None if self.agent_timeout is None else self.agent_timeout.value,
            count_as=self.count_as.value,
            strict_errors=self.strict_errors,
            epoch=self.epoch,
            stake=self.stake,
            first_uid=None if self.no_uids else self.first_uid,
            into="add" if self.add else "replace" if self.force else "new",
            assume_submission=self.assume_submission,
        )


def _command(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function as a command. The command has the shared options and the function's own ones."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        def run(**values: Any) -> None:
            shared = {field: values.pop(field) for field in parameters}
            function(_ImportArguments(**shared), **values)

        parameters = inspect.signature(_ImportArguments, eval_str=True).parameters
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        src, directory, *options = parameters.values()
        named = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (src, directory, *own, *options)]
        vars(run)["__signature__"] = inspect.Signature(named)
        run.__doc__ = function.__doc__
        app.command(name)(run)
        return function

    return register


@_command("tb")
def tb(
    arguments: _ImportArguments,
) -> None:
    """Terminal-Bench runs.

    SRC is a results.json, a run, or a folder of runs.

    \b
    Examples:
      assay import tb runs/ my-competition
      assay import tb runs/2026-11-02 my-competition --add
    """
    from assay.imports import terminal_bench

    _run(terminal_bench.read, arguments)


@_command("harbor")
def harbor(
    arguments: _ImportArguments,
) -> None:
    """Harbor (Terminal-Bench 2) jobs.

    SRC is a job, or a folder of jobs.

    \b
    Example:
      assay import harbor jobs/ my-competition
    """
    from assay.imports import harbor as reader

    _run(reader.read, arguments)


@_command("csv")
def csv(
    arguments: _ImportArguments,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=COLUMN",
            help="The column of a field, such as run=seed: agent, run, task, trial, resolved, outcome, failure_mode, started_at, "
            "version. Can be given several times.",
        ),
    ] = None,
) -> None:
    """A table with one row a trial.

    Its columns are agent, run, task, resolved, failure_mode, started_at, or what --column says. A run stands for a validator.

    \b
    Examples:
      assay import csv trials.csv my-competition
      assay import csv trials.csv my-competition --column agent=model --column run=seed
    """
    from assay.imports import tables

    columns = tables.mapping(column or [])
    _run(lambda path, options: tables.read(path, columns, options), arguments)


@_command("inspect")
def inspect_(
    arguments: _ImportArguments,
    scorer: Annotated[
        str | None, typer.Option(metavar="NAME", help="The scorer that decides; needed where a log has several.")
    ] = None,
    metric: Annotated[str | None, typer.Option(metavar="NAME", help="Which value decides, where a score has several.")] = None,
    threshold: Threshold = None,
) -> None:
    """Inspect AI logs.

    SRC is an .eval or .json log, or a folder of logs. A model is a participant, a sample a task, an epoch a trial (or a run,
    where there is one log of each task). A sample passes where the scorer says C (or true, or 1); with --threshold where its
    score reaches that. Samples with an error are errors, never failures.

    \b
    Examples:
      assay import inspect logs/ my-board
      assay import inspect logs/ my-board --scorer rubric --threshold 0.75
    """
    from assay.imports import inspect_ai
    from assay.imports.trials import threshold_of

    choice = inspect_ai.ScoreChoice(scorer, metric, threshold_of(threshold))
    _run(lambda path, options: inspect_ai.read(path, options, choice), arguments)


@_command("lm-eval")
def lm_eval_(
    arguments: _ImportArguments,
    metric: Annotated[
        str | None, typer.Option(metavar="NAME", help="The metric that decides, such as acc; needed where there are several.")
    ] = None,
    filter_: Annotated[
        str | None, typer.Option("--filter", metavar="NAME", help="The filter of the answers, where a task has several.")
    ] = None,
    threshold: Threshold = None,
) -> None:
    """Samples of lm-evaluation-harness.

    SRC is a samples_*.jsonl file, or the folder of --output_path (with --log_samples). A model is a participant, a document
    a task, an evaluation a run. A document passes where the metric is 1; with --threshold where it reaches that.

    \b
    Examples:
      assay import lm-eval results/ my-board --metric acc
      assay import lm-eval results/ my-board --metric exact_match --filter strict-match
    """
    from assay.imports import lm_eval
    from assay.imports.trials import threshold_of

    choice = lm_eval.MetricChoice(metric, filter_, threshold_of(threshold))
    _run(lambda path, options: lm_eval.read(path, options, choice), arguments)


def _run(reader: Reader, arguments: _ImportArguments) -> None:
    from assay.cli.output import Working
    from assay.imports import competition
    from assay.scheme.reading import read_toml

    options, scheme = arguments.options(), arguments.scheme
    with Working(f"importing {arguments.src}"):
        trials = reader(arguments.src, options)
        text = read_toml(Path(scheme))[1] if scheme is not None and Path(scheme).is_file() else scheme
        done = competition(trials, arguments.directory, scheme=text, options=options)
    if emit(done.document(), arguments.as_json):
        return

    from assay.cli.show import show

    show(*_report(done))


def _report(done: ImportedCompetition) -> Iterator[RenderableType]:
    from assay.cli.show import Column, command, grid, heading, sentence
    from assay.settle.story.telling import named, plural

    report = done.document()
    yield heading(f"{done.directory}: {report['scheme']['name']} {report['scheme']['version']}")
    counts = [plural(report["agents"], "agent"), plural(report["validators"], "run"), plural(report["tasks"], "task")]
    new = "" if report["added"] == report["records"] else f", {report['added']} of them new"
    yield sentence(f"{named(counts)}: {plural(report['records'], 'trial')}{new}.")
    yield ""
    outcomes = ("pass", "fail", "timeout", "error")
    modes = report["modes"]
    yield grid(
        [
            Column("how it ended", [*modes, "all"]),
            *(
                Column(
                    outcome,
                    [*(str(counts.get(outcome, 0)) for counts in modes.values()), str(report["outcomes"][outcome])],
                    right=True,
                )
                for outcome in outcomes
            ),
        ]
    )
    yield ""
    for note in report["notes"]:
        yield sentence(f"Note: {note}.")
    yield command("Next", "assay", "settle", done.directory)
