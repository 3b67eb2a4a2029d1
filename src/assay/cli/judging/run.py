"""`assay run`: judge what has no evidence yet, with live progress, then settle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from assay.cli.errors import warn

if TYPE_CHECKING:
    from rich.console import RenderableType

    from assay.cli.judging.signing import Signing
    from assay.judge.judges import JudgeFunction
    from assay.judge.running import RunSummary
    from assay.judge.stations import ErrandEngine
    from assay.judge.until import UntilDecided
    from assay.kind import Kind, Option

__all__ = ["COMMAND", "engine_of", "judge_of", "late_values", "run", "settings_of"]

MISSING, STOPPED = 1, 130


class UntilName(StrEnum):
    """The choices of --until: the outcomes that a run is certain of before it stops."""

    decided = "decided"
    paid = "paid"


_OPTIONS, _VALUES = "assay.kind.options", "assay.kind.values"

_Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)]
_Validator = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Whose evidence it is: a key or a name of validators.csv; with --sign, the key's."),
]
_Participant = Annotated[list[str] | None, typer.Option(metavar="KEY", help="Only this participant. May be repeated.")]
_Everybody = Annotated[
    bool, typer.Option("--all", help="Also submissions for which `assign` drew other validators; it counts for nothing.")
]
_Epoch = Annotated[int | None, typer.Option(metavar="N", help="Of the evidence; otherwise the highest there is, or 1.", min=0)]
_Jobs = Annotated[
    int | None,
    typer.Option("--jobs", "-j", metavar="N", help="Trials at one time (1), or solutions (8).", min=1, show_default=False),
]
_Attempts = Annotated[int, typer.Option(metavar="N", help="Attempts for a trial that errs.", min=1)]
_Sign = Annotated[
    str | None, typer.Option(metavar="KEY", help="Sign what was judged with this key file, and add it to the ledger.")
]
_Until = Annotated[
    UntilName | None,
    typer.Option(help="Stop judging whoever cannot change a rank, tier or weight any more; paid: only what is paid."),
]
_Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
_AsJson = Annotated[bool, typer.Option("--json", help="What came of it as one line of canonical JSON; no board.")]


class _RunCommand(TyperCommand):
    """`assay run`, and others that judge, with the options of kinds beside those of every judge."""

    late = True
    """Further options are known when the competition is: see `assay.cli.configuration`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Find the competition in the arguments first, because its kind may add options of its own."""
        from assay.cli.configuration import bind

        configured = (ctx.default_map or {}).get("folder")
        places = args if configured is None else [*args, configured]
        params = _params(_options_of(places, {name for param in self.params for name in param.opts}))
        bind(ctx, params)
        ctx.meta[_OPTIONS] = params
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        """The options of every judge, those of kinds, and --help."""
        *params, helping = super().get_params(ctx)
        return [*params, *ctx.meta.get(_OPTIONS, ()), helping]


COMMAND = _RunCommand
"""The command class that `assay.cli.commands` uses for `run`."""


def _options_of(args: list[str], taken: set[str]) -> list[Option]:
    """The options of Assay's own kinds, and of the kind of the first argument that is a competition's folder."""
    from assay.errors import BadInput
    from assay.kind import builtin_options, find, known
    from assay.scheme.reading import read_toml

    options = builtin_options()
    folder = next((Path(arg) for arg in args if not arg.startswith("-") and Path(arg, "scheme.toml").is_file()), None)
    if folder is None:
        return list(options.values())
    try:
        score = read_toml(folder / "scheme.toml")[0].get("score")
    except BadInput:
        score = None  # the command itself says what is wrong
    name = score.get("kind") if isinstance(score, dict) else None
    for option in find(str(name)).options if known(name) else ():
        if option.name in taken:
            hint = "ask who wrote the package that has this kind"
            raise BadInput(f"the kind {name!r} has an option {option.name}, which every judge has", field="score.kind", hint=hint)
        options[option.name] = option
    return list(options.values())


def _params(options: Sequence[Option]) -> list[Any]:
    """Options of kinds for the command line, made as any command's are; what is given stands in the context."""
    import inspect

    def holder(**_values: object) -> None: ...

    types = {
        option.key: Annotated[
            option.type | None, typer.Option(option.name, help=option.help, metavar=option.metavar, min=option.least)
        ]
        for option in options
    }
    by_name = inspect.Parameter.KEYWORD_ONLY
    given = [inspect.Parameter(option.key, by_name, default=option.default, annotation=types[option.key]) for option in options]
    holder.__annotations__ = dict(types)
    holder.__signature__ = inspect.Signature(given)  # type: ignore[attr-defined]
    command = typer.Typer(add_completion=False, rich_markup_mode=None)
    command.command("run")(holder)

    def keep(ctx: Any, param: Any, value: Any) -> Any:
        ctx.meta.setdefault(_VALUES, {})[param.name] = value
        return value

    params = [param for param in typer.main.get_command(command).params if param.name in types]
    for line in params:
        line.expose_value, line.callback = False, keep  # `run` has no parameter for it
    return params


def run(
    context: typer.Context,
    folder: _Folder,
    validator: _Validator = None,
    jobs: _Jobs = None,
    participant: _Participant = None,
    everybody: _Everybody = False,
    epoch: _Epoch = None,
    attempts: _Attempts = 3,
    sign: _Sign = None,
    until: _Until = None,
    quiet: _Quiet = False,
    as_json: _AsJson = False,
) -> None:
    """Judge the submissions that have no evidence yet, then show the leaderboard.

    The kind in the scheme says how. tests: agents run in sandboxes, then the tasks' own tests decide. rubric: a model answers
    the checks for each solution, with quotes. points: issues and their labels are read from GitHub, and each epoch that is over
    is counted. workflow: planners give plans, and the plans are executed. Each result is stored at once. Ctrl-C stops the run,
    and the same command continues it. An infrastructure error is never a fail: the trial is tried again, then left missing.

    Before a task judges anybody, it is calibrated: in this sandbox and image its reference solution must pass, and an agent that
    does nothing must fail. A success is stored in $ASSAY_STATE, else in /var/lib/assay or ~/.local/share/assay.

    In a competition with a ledger, --sign adds the evidence to the ledger, and the leaderboard shows how the epoch would be
    settled now. The epoch stays open for other validators; `assay settle` closes it. With --engine ray, the nodes of a Ray
    cluster judge, --jobs trials at most at one time; with --sign too, several machines may run this for one validator.

    With --until decided (kind tests), a participant is not judged any further when no outcome of what is left can change a rank,
    a tier or a weight. With --until paid, ranks of those who get nothing may stay open. A trial that was spared is missing.

    Environment: ASSAY_MODEL_URL and ASSAY_MODEL_KEY are the model for agents that use one; the key stays outside the sandbox.
    ASSAY_LLM_BASE_URL and ASSAY_LLM_API_KEY are the model that answers a rubric. GITHUB_TOKEN is the token for GitHub. After a
    bounty's scoring deadline nothing is judged.
    Ends with 0 if nothing is missing any more, 1 if something is left without a result, 130 if it was stopped.

    \b
    Examples:
      assay run my-competition --validator val-1 --jobs 2
      assay run my-competition --validator val-1 --participant miner-7 --task git-rescue
      assay run my-competition --sign val-1 --until paid
      assay run my-competition --validator val-1 --engine ray --address 10.0.0.1:6379
      assay run my-bounty --validator val-1 --model-url https://api.example.com/v1
    """
    from assay.cli.judging.live import LiveRun
    from assay.judge.running import RunOptions

    kind, judge = judge_of(folder)
    own = settings_of(context, kind)
    whose, signing = _whose(folder, validator, sign)
    since = None if signing is None else signing.epoch
    choice = None if until is None else _choice(folder, whose, until, since if epoch is None else epoch, everybody=everybody)
    with engine_of(context, jobs) as engine, LiveRun(jobs or kind.jobs, quiet=quiet) as live, ExitStack() as stack:
        shared = None if signing is None or engine is None else stack.enter_context(signing.shared(epoch))
        options = RunOptions(
            jobs or kind.jobs, since if epoch is None else epoch, since, attempts, participants=participant or (),
            everybody=everybody, engine=engine, leases=None if shared is None else shared.leases, choice=choice, own=own,
        )  # fmt: skip
        summary = judge(folder, whose, options, live.event if shared is None else shared.heard(live.event))
    _conclude(folder, summary, choice, signing, epoch, as_json=as_json)


def _choice(folder: Path, validator: str, until: UntilName, epoch: int | None, *, everybody: bool) -> UntilDecided:
    """The trials that may still matter, for --until. Raises BadInput."""
    from assay.errors import BadInput
    from assay.judge.until import UntilDecided

    if everybody:
        what = "judges also what counts for nothing, and --until only what can change something"
        raise BadInput(what, field="--all", hint="leave one of them out")
    choice = UntilDecided.of(folder, validator, until.value, epoch)
    warn(choice.season.cautions)
    return choice


def engine_of(context: typer.Context, jobs: int | None) -> AbstractContextManager[ErrandEngine | None]:
    """The engine that trials are judged in, as the options of kinds say; None is this machine."""
    from assay.engine import opened
    from assay.judge.kind_options import where_judged

    return opened(*where_judged(late_values(context)), most=jobs)


def judge_of(folder: Path) -> tuple[Kind, JudgeFunction]:
    """The kind of a competition, and its judge. Raises BadInput."""
    from assay.judge import judges
    from assay.scheme.load import read

    rules = read(folder / "scheme.toml")
    use = None if rules.judge is None else rules.judge.use
    return rules.kind, judges.find(rules.kind.name, use, file=folder / "scheme.toml")


def late_values(context: typer.Context) -> Mapping[str, Any]:
    """The values of the options of kinds, by parameter."""
    values: Mapping[str, Any] = context.meta.get(_VALUES, {})
    return values


def settings_of(context: typer.Context, kind: Kind) -> Any:
    """The settings that the judge gets of the options of its kind; refuses those that say nothing to it."""
    values = late_values(context)
    own = {option.key: values[option.key] for option in kind.options}
    for param in context.command.get_params(context):
        if values.get(str(param.name)) and param.name not in own and values[str(param.name)] != param.default:
            hint = param.opts[0]
            raise typer.BadParameter(f"says nothing to the judge of the kind {kind.name!r}; leave it out", param_hint=hint)
    settings = kind.settings(own)
    warn(list(kind.cautions(settings)))
    return settings


def _whose(folder: Path, validator: str | None, sign: str | None) -> tuple[str, Signing | None]:
    """The validator's key as the registry has it, and what signs for it; both are looked at before anything is judged."""
    from assay.cli.judging.signing import Signing
    from assay.cli.keys import validator_of

    named = None if validator is None else validator_of(folder, validator)
    if sign is not None:
        signing = Signing(folder, named, sign)
        return signing.validator, signing
    if named is None:
        what = "say whose evidence it is, a key or a name of validators.csv; or --sign with the validator's key"
        raise typer.BadParameter(what, param_hint="--validator")
    return named, None


def _conclude(
    folder: Path,
    summary: RunSummary,
    choice: UntilDecided | None,
    signing: Signing | None,
    asked: int | None,
    *,
    as_json: bool,
) -> None:
    """Say what came of the run, sign it, and settle. asked: --epoch. Raises typer.Exit where something is missing."""
    from assay.cli.show import command, show

    if as_json:
        from assay.cli.output import emit

        if signing is not None:
            signing.add(asked)
        decided = {} if choice is None else {"decided": choice.document}
        emit(_document(summary) | decided | {"signed": signing is not None})
        if summary.stopped or summary.errors:
            raise typer.Exit(STOPPED if summary.stopped else MISSING)
        return
    show(*_report(summary, choice))
    if choice is not None:
        show(*_told_of_decided(choice))
    if signing is not None:
        show(signing.add(asked), "")
    if summary.stopped:
        raise typer.Exit(STOPPED)
    if (signing is None and _is_elsewhere(folder)) or (signing is not None and signing.away is not None):
        if signing is None and summary.judged:
            show(command("It counts once it is signed and sent", "assay", "push", folder, "--url", "URL", "--key", "KEY"))
        if summary.errors:
            raise typer.Exit(MISSING)
        return  # what it would settle as, only the ledger can say
    epoch = _settle(folder)
    if signing is None and summary.judged and (folder / "ledger.toml").exists():
        show(command("It counts once it is signed and added to the ledger", "assay", "evidence", "sign", folder, "--key", "KEY"))
    if signing is not None and epoch is not None and epoch >= (signing.epoch or 0):
        show(command("The epoch is open for others; to close it", "assay", "settle", folder))
    if summary.errors:
        raise typer.Exit(MISSING)


def _is_elsewhere(folder: Path) -> bool:
    """Whether the competition's ledger is on another machine, as it is in a folder that was pulled."""
    from assay.ledger import config

    return config.exists(folder) and not config.read(folder).is_here


def _document(summary: RunSummary) -> dict[str, Any]:
    """The summary of a run, for programs."""
    errors = [{"participant": cell.participant, **cell.parts, "why": why} for cell, why in summary.errors]
    counts = {"planned": summary.planned, "judged": summary.judged, "outcomes": dict(summary.outcomes), "errors": errors}
    rest = {"absent": list(summary.absent), "others": list(summary.others), "remarks": list(summary.remarks)}
    return {"unit": summary.unit, "stopped": summary.stopped, **counts, **rest}


def _report(summary: RunSummary, choice: UntilDecided | None) -> Iterator[RenderableType]:
    from assay.cli.judging.live import table
    from assay.cli.show import Column, grid, heading, sentence
    from assay.settle.story.telling import plural

    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(summary.outcomes.items()))
    if not summary.planned and not summary.errors and choice is not None and choice.spared:
        yield sentence(f"Nothing is left to judge: every {summary.unit} has its evidence, or cannot change anything.")
    elif not summary.planned and not summary.errors:
        named = "" if summary.submission == "account" else " of the submissions in participants.csv"
        yield sentence(f"Nothing is missing: every {summary.unit}{named} has its evidence.")
    else:
        left = summary.planned - summary.judged
        yield sentence(
            f"{plural(summary.judged, summary.unit)} judged"
            + (f" ({counts})" if counts else "")
            + (f", {left} left." if left else ".")
        )
    if summary.stopped:
        yield sentence("Stopped; the same command goes on from here.")
    if summary.absent:
        absent = ", ".join(summary.absent)
        yield sentence(f"No {summary.submission} is here for {absent}: assay submit puts one in its place.")
    if summary.others:
        yield sentence(f"Other validators were drawn for {', '.join(summary.others)}.")
    if summary.errors:
        yield ""
        yield heading("Errors, which are nobody's fails")
        parts = summary.errors[0][0].parts
        columns = [Column("participant", [cell.participant for cell, _ in summary.errors], kind="key")]
        columns += [Column(name, [cell.parts[name] for cell, _ in summary.errors], kind="crop") for name in parts]
        yield grid([*columns, Column("why", [why for _, why in summary.errors], kind="text")])
    if summary.table:
        yield ""
        yield table(summary.table)
    for remark in summary.remarks:
        yield sentence(remark)
    yield ""


def _told_of_decided(choice: UntilDecided) -> Iterator[RenderableType]:
    """Say whether it is decided, and what need not be judged."""
    from assay.cli.show import Column, grid, sentence
    from assay.exact import text
    from assay.settle.story.telling import plural

    spared = choice.spared
    count = sum(row.trials for row in spared)
    changes = "what anybody is paid" if choice.season.until == "paid" else "a rank, a tier or a weight"
    if not choice.is_all_decided:
        yield sentence(f"It is not decided yet: some trials that are left can still change {changes}.")
    if not spared:
        yield sentence("No trial was spared: each could change something.")
        yield ""
        return
    yield sentence(f"Decided: {plural(count, 'trial')} need not be judged, because no outcome can change {changes}.")

    def shown(score: int | None) -> str:
        return "none" if score is None else text(score)

    rows = [row.standing for row in spared]
    places = ["–".join(str(place) for place in dict.fromkeys(row.places or ())) or "none" for row in rows]
    yield grid(
        [
            Column("participant", [row.participant for row in rows], kind="key"),
            Column("spared", [str(row.trials) for row in spared], right=True),
            Column("[lowest, highest]", [f"[{shown(row.lowest)}, {shown(row.highest)}]" for row in rows], right=True),
            Column("place", places, right=True),
            Column("why", [row.reason for row in rows], kind="text"),
        ]
    )
    yield ""


def _settle(folder: Path) -> int | None:
    """Show the settlement of the evidence so far, and its epoch; None if nothing can be settled yet."""
    from assay.cli.board import board
    from assay.cli.show import note, show
    from assay.competition import open_competition
    from assay.errors import CannotSettle

    try:
        competition = open_competition(folder)
        settlement = competition.settle(competition.newest)
    except CannotSettle as error:
        show(note(str(error)))
        return None
    show(*board(settlement, folder))
    return settlement.epoch
