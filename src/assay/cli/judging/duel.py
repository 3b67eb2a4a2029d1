"""`assay duel`: judge challengers against a king, pair by pair, no longer than needed. SPEC 7, `[duel]`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.judging.run import COMMAND, MISSING, STOPPED, engine_of, judge_of, settings_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from assay.judge.terminal.duel import DuelTrials
    from assay.records import Participant
    from assay.rules.duel import Contest
    from assay.scheme.model import Scheme

__all__ = ["COMMAND", "duel"]

FOLDER = "duels"
Json = dict[str, Any]
_Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)]
_Challenger = Annotated[
    list[str], typer.Argument(metavar="CHALLENGER", help="Keys of participants.csv; several share alpha.", show_default=False)
]
_King = Annotated[str, typer.Argument(metavar="KING", help="A key of participants.csv.", show_default=False)]
_Validator = Annotated[str, typer.Option(metavar="NAME", help="Whose evidence it is: a key or a name of validators.csv.")]
_Receipt = Annotated[Path | None, typer.Option(metavar="FILE", help="The last receipt; without it, the ledger's.")]
_Challengers = Annotated[
    int | None,
    typer.Option(min=1, max=10_000, metavar="N", help="How many challengers of this king share alpha [as many as are named]."),
]
_Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where the duel is written; - is stdout.")]


def duel(
    context: typer.Context,
    folder: _Folder,
    challenger: _Challenger,
    king: _King,
    validator: _Validator,
    receipt: _Receipt = None,
    challengers: _Challengers = None,
    epoch: Annotated[int | None, typer.Option(min=0, help="Of the evidence; otherwise the one after the receipt's.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Trials at one time.")] = 1,
    attempts: Annotated[int, typer.Option(min=1, help="Attempts for a trial that errs.")] = 3,
    output: _Output = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The duel as one line of canonical JSON.")] = False,
) -> None:
    """Judge challengers against a king, until it is certain who is better.

    A pair is one trial of one task. The last receipt gives the order, so nobody knew it before. The duel ends as soon as it is
    certain enough, by the scheme's [duel], and the document says with which pair. Evidence is stored as `assay run` does it, and
    what is there already is not judged again. With --jobs or an engine, some trials beyond the last pair may be judged too.

    Several challengers are judged one after the other, and the king's trials once. They share alpha: the chance that any of them
    wins that is not better is at most alpha. --challengers N says that there are N in all, if others are judged elsewhere. Each
    duel is a document of its own.

    An infrastructure error delays a duel and never decides it: the same command continues where it was. `assay verify --duel`
    computes the duel again, once its evidence is in a settled epoch.

    Ends with 0 if every duel is decided, 1 if a trial is left without a result, 130 if it was stopped.

    \b
    Examples:
      assay duel my-competition miner-7 miner-2 --validator val-1
      assay duel my-competition miner-7 miner-8 miner-9 miner-2 --validator val-1
      assay duel my-competition miner-7 miner-2 --validator val-1 --engine ray --jobs 8 --json
    """
    from assay.cli.keys import validator_of

    kind, judge = judge_of(folder)
    if output is not None and len(challenger) > 1 and str(output) != "-":
        raise typer.BadParameter("a file is for one duel: several go to DIR/duels", param_hint="--output")
    contests = _contests(folder, challenger, king, validator_of(folder, validator), receipt, challengers, epoch)
    own, undecided = settings_of(context, kind), 0
    won: list[str] = []
    for contest in contests:
        trials, stopped = _fight(context, folder, contest, judge, own, jobs, attempts, quiet=quiet)
        document = contest.fought(*trials.passed.values())
        _put(contest, trials, document, output or _file_of(folder, document, contest), as_json=as_json)
        if stopped and document["winner"] is None:
            raise typer.Exit(STOPPED)
        undecided += document["winner"] is None
        won += [contest.challenger.participant] * (document["winner"] == "challenger")
    if len(contests) > 1 and not as_json and str(output) != "-":
        from assay.cli.show import show

        show(*_told_of_all(contests, won, undecided))
    if undecided:
        raise typer.Exit(MISSING)


def _file_of(folder: Path, document: dict[str, Any], contest: Contest) -> Path:
    return folder / FOLDER / f"{document['receipt']['epoch']}-{_name(contest)}.json"


def _put(contest: Contest, trials: DuelTrials, document: dict[str, Any], target: Path, *, as_json: bool) -> None:
    """Write a duel's document to its file, `-` for standard output, and tell a person how it ended."""
    from assay.cli.output import emit, json_bytes, put

    to_file = str(target) != "-"
    if to_file:
        target.parent.mkdir(exist_ok=True)
    put(json_bytes(document), target)
    if to_file and not emit(document, as_json):
        from assay.cli.show import show

        show(*_report(contest, trials, document, target))


def _fight(
    context: typer.Context, folder: Path, contest: Contest, judge: Any, own: Any, jobs: int, attempts: int, *, quiet: bool
) -> tuple[DuelTrials, bool]:
    """Judge one duel as far as it goes: what is known of it, and whether it was stopped."""
    from assay.cli.judging.live import LiveRun
    from assay.judge.running import RunOptions
    from assay.judge.terminal.duel import DuelTrials

    trials, sides = DuelTrials(contest), (contest.challenger.participant, contest.king.participant)
    with engine_of(context, jobs) as engine, LiveRun(jobs, quiet=quiet) as live:
        options = RunOptions(
            jobs, contest.epoch, None, attempts, participants=sides, everybody=True, engine=engine, choice=trials, own=own
        )
        summary = judge(folder, contest.validator, options, live.event)
    return trials, bool(summary.stopped)


def _contests(
    folder: Path,
    named: Sequence[str],
    king: str,
    validator: str,
    receipt: Path | None,
    challengers: int | None,
    epoch: int | None,
) -> list[Contest]:
    """The duels that are asked for; raises BadInput for what is missing or wrong."""
    from assay.errors import BadInput
    from assay.folder import registry
    from assay.judge import entries
    from assay.rules.duel import Contest, Side
    from assay.scheme.load import read

    scheme = read(folder / "scheme.toml")
    _check(scheme, folder)
    seen = entries.read(folder, scheme, validator, (*named, king))
    counting = {participant.key: participant for participant in entries.counting(seen.participants)}
    for key in (*named, king):
        if key not in counting:
            hint = "both need a submission that counts: it is nobody else's before"
            raise BadInput(f"{key!r} has no submission that counts", file=folder / "participants.csv", hint=hint)
    if king in named:
        raise BadInput(f"{king!r} cannot challenge itself", field="KING", hint="name two participants")
    if twice := next((key for key in named if named.count(key) > 1), None):
        raise BadInput(f"{twice!r} is named twice", field="CHALLENGER", hint="name each challenger once")
    share = len(named) if challengers is None else challengers
    if share < len(named):
        hint = "all challengers of one king in one epoch share alpha: count them all"
        raise BadInput(f"{share} challengers are fewer than the {len(named)} that are named", field="--challengers", hint=hint)
    tasks = registry.read_tasks(folder / "tasks.txt", scheme.kind.trials(scheme.score) or 1)
    settled = _receipt(folder, receipt)
    for key in (*named, king):
        _check_before(counting[key], settled[0], folder)
    at, defending = settled[0] + 1 if epoch is None else epoch, Side(king, counting[king].submission)
    return [
        Contest(scheme, at, validator, Side(key, counting[key].submission), defending, settled, tasks.ids, tasks.digest, share)
        for key in named
    ]


def _check_before(participant: Participant, receipt: int, folder: Path) -> None:
    """Refuse a submission that came when the order could be known. Raises BadInput; warns if nothing says when it came."""
    from assay.cli.errors import warn
    from assay.errors import BadInput

    accepted, key = participant.accepted_epoch, participant.key
    if accepted is None:
        warn([f"nothing says when the submission of {key!r} was accepted: it must be before the receipt (accepted_epoch)"])
    elif accepted > receipt:
        what = f"the submission of {key!r} was accepted in epoch {accepted}, when the receipt of epoch {receipt} was known"
        hint = "whoever knows the order can hand in what is good at its beginning: wait for the receipt of that epoch"
        raise BadInput(what, file=folder / "participants.csv", field="accepted_epoch", hint=hint)


def _check(scheme: Scheme, folder: Path) -> None:
    """Refuse a scheme without duels. Raises BadInput."""
    from assay.errors import BadInput

    if scheme.duel is None:
        hint = "add it to the scheme: margin and alpha have defaults"
        raise BadInput("there is no section [duel]", file=folder / "scheme.toml", field="duel", hint=hint)


def _receipt(folder: Path, file: Path | None) -> tuple[int, str]:
    """Epoch and digest of the last receipt: in a file, or in the ledger. Raises BadInput."""
    from assay.errors import BadInput
    from assay.folder.files import load
    from assay.ledger import check, config
    from assay.ledger.access import open_store
    from assay.ledger.check import RECEIPT_BYTES, Receipt

    hint = "the order of a duel is drawn from it: settle an epoch of a ledger first, or give the file of a receipt with --receipt"
    if file is not None:
        try:
            receipt = Receipt.parse(load(file, RECEIPT_BYTES, hint="give a receipt"))
        except check.CheckError as error:
            raise BadInput(error.what, file=file, hint="give what `assay receipt` prints") from None
        return receipt.predicate["epoch"], f"sha256:{receipt.digest.hex()}"
    last = None
    if config.exists(folder) and (settings := config.read(folder)).is_here:
        with open_store(settings) as store, store.reading() as view:
            last = view.last_receipt()
    if last is None:
        raise BadInput("there is no receipt here", file=folder, hint=hint)
    return last.epoch, last.digest


def _name(contest: Contest) -> str:
    """The short name that tells a duel from others of the same receipt."""
    from assay.exact import digest

    sides = [contest.validator, contest.challenger.submission, contest.king.submission, contest.challengers]
    return digest(sides).removeprefix("sha256:")[:12]


def _report(contest: Contest, trials: DuelTrials, document: Json, target: Path) -> Iterator[RenderableType]:
    """The outcome of the duel, for people."""
    from assay.cli.show import command, heading, note, sentence
    from assay.settle.story.telling import plural

    taken, pairs = len(document["path"]), document["pairs"]
    yield heading(f"{contest.challenger.participant} against {contest.king.participant}")
    total = document["path"][-1]["sum"] if taken else 0
    ahead = f"{plural(abs(total), 'trial')} {'more' if total >= 0 else 'fewer'}"
    yield sentence(f"In {taken} of {pairs} pairs the challenger passed {ahead} than the king.")
    if document["winner"] is None:
        waits = document["waits_for"]
        yield sentence(f"The duel waits for trial {waits['trial']} of {waits['task']}. An error never decides it.")
        yield command("To continue", "assay", "duel", "…")
        return
    winner = "is better" if document["winner"] == "challenger" else "is not better than the king"
    how = "no outcome of the others can change that" if document["by"] == "certainty" else "that is certain enough"
    spared = 2 * pairs - sum(len(passed) for passed in trials.passed.values())
    yield sentence(f"The challenger {winner}: {how}. {plural(spared, 'trial')} of {2 * pairs} need not be judged.")
    yield note(f"{target} · {document['digest']}")


def _told_of_all(contests: Sequence[Contest], won: Sequence[str], undecided: int) -> Iterator[RenderableType]:
    """The sentences about all duels together."""
    from assay.cli.show import heading, sentence
    from assay.settle.story.telling import named, percent, plural

    rules = contests[0].scheme.duel
    assert rules is not None  # it was looked at
    yield heading(f"{plural(len(contests), 'challenger')} of {contests[0].king.participant}")
    better = (
        f"{named(list(won))} {'is' if len(won) == 1 else 'are'} better than the king" if won else "None is better than the king"
    )
    chance = f"with a chance of at most {percent(rules.alpha)} that any of {contests[0].challengers} wins that is not"
    yield sentence(f"{better}, {chance}." + (f" {plural(undecided, 'duel')} not decided yet." if undecided else ""))
