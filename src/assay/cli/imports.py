"""`assay import`: results of other harnesses as a competition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.ledger.epochs import import_epoch

if TYPE_CHECKING:
    from rich.console import RenderableType

    from assay.imports import Imported, Options, Trials

__all__ = ["app"]

HELP = "Results of other harnesses as a competition, and exported epochs."
app = typer.Typer(name="import", help=HELP, no_args_is_help=True, rich_markup_mode=None)
app.command("epoch")(import_epoch)


class Attempts(StrEnum):
    """What attempt k of a task is."""

    auto = "auto"
    runs = "runs"
    trials = "trials"


class Timeout(StrEnum):
    """The rule for agents that ran out of time."""

    fail = "fail"
    verify = "verify"


class CountAs(StrEnum):
    """Whose counting."""

    scheme = "scheme"
    leaderboard = "leaderboard"


Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder: made, or with --add there already.")]
SchemeName = Annotated[
    str | None,
    typer.Option("--scheme", "--preset", metavar="PRESET|FILE", help="The rules; otherwise benchmark, or those that are there."),
]
Agent = Annotated[str | None, typer.Option(metavar="NAME", help="Every trial is of this agent, whatever the files call it.")]
AttemptsOption = Annotated[Attempts, typer.Option(help="Attempt k of a task is run k, or trial k of its run.")]
TimeoutOption = Annotated[
    Timeout | None, typer.Option(help="Agents out of time fail, or their tests decide; otherwise as the scheme says.")
]
CountAsOption = Annotated[
    CountAs, typer.Option("--count-as", help="leaderboard: resolved is a pass and everything else a fail, errors too.")
]
Strict = Annotated[bool, typer.Option("--strict-errors", help="A crashed agent or unreadable output is an error, not a fail.")]
EpochOption = Annotated[int, typer.Option(help="The epoch of all records.", min=0)]
Stake = Annotated[str, typer.Option(help="The stake of every run, for a scheme that weighs them.")]
FirstUid = Annotated[int, typer.Option(help="The uid of the first agent by name, for a scheme with weights.", min=0)]
NoUids = Annotated[bool, typer.Option("--no-uids", help="Nobody has a uid, for a scheme with weights.")]
Add = Annotated[bool, typer.Option("--add", help="Add evidence to the competition that is there.")]
Force = Annotated[bool, typer.Option("--force", help="Make an earlier import anew.")]
Assume = Annotated[
    bool, typer.Option("--assume-submission", help="With --add: the trials are of the submission in participants.csv.")
]
AsJson = Annotated[bool, typer.Option("--json", help="The report as canonical JSON.")]
Threshold = Annotated[
    str | None, typer.Option(metavar="NUMBER", help="From where on a score is a pass; needed for scores between 0 and 1.")
]
Source = Annotated[Path, typer.Argument(metavar="SRC", help="What to read.")]
Reader = Callable[[Path, "Options"], "Trials"]


@app.command()
def tb(
    src: Source,
    directory: Directory,
    scheme: SchemeName = None,
    agent: Agent = None,
    attempts: AttemptsOption = Attempts.auto,
    agent_timeout: TimeoutOption = None,
    count_as: CountAsOption = CountAs.scheme,
    strict_errors: Strict = False,
    epoch: EpochOption = 1,
    stake: Stake = "100",
    first_uid: FirstUid = 1,
    no_uids: NoUids = False,
    add: Add = False,
    force: Force = False,
    assume_submission: Assume = False,
    as_json: AsJson = False,
) -> None:
    """Terminal-Bench runs.

    SRC is a results.json, a run, or a folder of runs.

    \b
    Examples:
      assay import tb runs/ my-competition
      assay import tb runs/2026-11-02 my-competition --add
    """
    from assay.imports import terminal_bench

    _run(terminal_bench.read, **locals_of(locals()))


@app.command()
def harbor(
    src: Source,
    directory: Directory,
    scheme: SchemeName = None,
    agent: Agent = None,
    attempts: AttemptsOption = Attempts.auto,
    agent_timeout: TimeoutOption = None,
    count_as: CountAsOption = CountAs.scheme,
    strict_errors: Strict = False,
    epoch: EpochOption = 1,
    stake: Stake = "100",
    first_uid: FirstUid = 1,
    no_uids: NoUids = False,
    add: Add = False,
    force: Force = False,
    assume_submission: Assume = False,
    as_json: AsJson = False,
) -> None:
    """Harbor (Terminal-Bench 2) jobs.

    SRC is a job, or a folder of jobs.

    \b
    Example:
      assay import harbor jobs/ my-competition
    """
    from assay.imports import harbor as reader

    _run(reader.read, **locals_of(locals()))


@app.command()
def csv(
    src: Source,
    directory: Directory,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=COLUMN",
            help="The column of a field, such as run=seed: agent, run, task, trial, resolved, outcome, failure_mode, started_at, "
            "version. Can be given several times.",
        ),
    ] = None,
    scheme: SchemeName = None,
    agent: Agent = None,
    attempts: AttemptsOption = Attempts.auto,
    agent_timeout: TimeoutOption = None,
    count_as: CountAsOption = CountAs.scheme,
    strict_errors: Strict = False,
    epoch: EpochOption = 1,
    stake: Stake = "100",
    first_uid: FirstUid = 1,
    no_uids: NoUids = False,
    add: Add = False,
    force: Force = False,
    assume_submission: Assume = False,
    as_json: AsJson = False,
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
    _run(lambda path, options: tables.read(path, columns, options), **locals_of(locals()))


@app.command("inspect")
def inspect_(
    src: Source,
    directory: Directory,
    scorer: Annotated[
        str | None, typer.Option(metavar="NAME", help="The scorer that decides; needed where a log has several.")
    ] = None,
    metric: Annotated[str | None, typer.Option(metavar="NAME", help="Which value decides, where a score has several.")] = None,
    threshold: Threshold = None,
    scheme: SchemeName = None,
    agent: Agent = None,
    attempts: AttemptsOption = Attempts.auto,
    agent_timeout: TimeoutOption = None,
    count_as: CountAsOption = CountAs.scheme,
    strict_errors: Strict = False,
    epoch: EpochOption = 1,
    stake: Stake = "100",
    first_uid: FirstUid = 1,
    no_uids: NoUids = False,
    add: Add = False,
    force: Force = False,
    assume_submission: Assume = False,
    as_json: AsJson = False,
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

    choice = inspect_ai.Choice(scorer, metric, threshold_of(threshold))
    _run(lambda path, options: inspect_ai.read(path, options, choice), **locals_of(locals()))


@app.command("lm-eval")
def lm_eval_(
    src: Source,
    directory: Directory,
    metric: Annotated[
        str | None, typer.Option(metavar="NAME", help="The metric that decides, such as acc; needed where there are several.")
    ] = None,
    filter_: Annotated[
        str | None, typer.Option("--filter", metavar="NAME", help="The filter of the answers, where a task has several.")
    ] = None,
    threshold: Threshold = None,
    scheme: SchemeName = None,
    agent: Agent = None,
    attempts: AttemptsOption = Attempts.auto,
    agent_timeout: TimeoutOption = None,
    count_as: CountAsOption = CountAs.scheme,
    strict_errors: Strict = False,
    epoch: EpochOption = 1,
    stake: Stake = "100",
    first_uid: FirstUid = 1,
    no_uids: NoUids = False,
    add: Add = False,
    force: Force = False,
    assume_submission: Assume = False,
    as_json: AsJson = False,
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

    choice = lm_eval.Choice(metric, filter_, threshold_of(threshold))
    _run(lambda path, options: lm_eval.read(path, options, choice), **locals_of(locals()))


_SHARED = ("src", "directory", "scheme", "agent", "attempts", "agent_timeout", "count_as", "strict_errors", "epoch", "stake")
_WRITING = ("first_uid", "no_uids", "add", "force", "assume_submission", "as_json")


def locals_of(given: dict[str, Any]) -> dict[str, Any]:
    """The options that all commands share, out of the arguments of one."""
    return {name: given[name] for name in (*_SHARED, *_WRITING)}


def _run(reader: Reader, *, src: Path, directory: Path, scheme: str | None, as_json: bool, **said: Any) -> None:
    from assay.cli.progress import Working
    from assay.imports import competition
    from assay.scheme.reading import read_toml

    options = _options(**said)
    with Working(f"importing {src}"):
        trials = reader(src, options)
        text = read_toml(Path(scheme))[1] if scheme is not None and Path(scheme).is_file() else scheme
        done = competition(trials, directory, scheme=text, options=options)
    if as_json:
        from assay.cli.output import json_bytes, put

        put(json_bytes(done.document()), None)
        return

    from assay.cli.show import show

    show(*_report(done))


def _options(
    *,
    agent: str | None,
    attempts: Attempts,
    agent_timeout: Timeout | None,
    count_as: CountAs,
    strict_errors: bool,
    epoch: int,
    stake: str,
    first_uid: int,
    no_uids: bool,
    add: bool,
    force: bool,
    assume_submission: bool,
) -> Options:
    from assay.imports import Options

    if add and force:
        raise typer.BadParameter("--add and --force exclude each other", param_hint="--force")
    return Options(
        agent=agent,
        attempts=attempts.value,
        agent_timeout=None if agent_timeout is None else agent_timeout.value,
        count_as=count_as.value,
        strict_errors=strict_errors,
        epoch=epoch,
        stake=stake,
        first_uid=None if no_uids else first_uid,
        into="add" if add else "replace" if force else "new",
        assume_submission=assume_submission,
    )


def _report(done: Imported) -> Iterator[RenderableType]:
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
    for said in report["notes"]:
        yield sentence(f"Note: {said}.")
    yield command("Next", "assay", "settle", done.directory)
