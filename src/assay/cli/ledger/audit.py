"""The commands `assay audit draw`, `run` and `verify`: judge drawn trials again, until the outcome is confirmed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.judging.live import EngineOption, RuntimeOption, SandboxOption
from assay.cli.output import AsJson, emit
from assay.errors import BadInput, CannotSettle, Refused, Unreachable
from assay.judge.kind_options import SandboxName

if TYPE_CHECKING:
    from assay.cli.show import Column
    from assay.judge.terminal.again import TrialsAgain
    from assay.ledger.auditing import AuditedEpoch, AuditRandomness
    from assay.rules.audit import ClaimedTrial

__all__ = ["app", "draw", "run", "verify_audit"]

Json = dict[str, Any]
Seen = dict[str, list[str]]
app = typer.Typer(
    name="audit",
    help="Judge drawn trials of a settled epoch again, until its outcome is confirmed.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)]
_Epoch = Annotated[int | None, typer.Option(metavar="N", help="The epoch; else the last one settled.", show_default=False)]
_Bundle = Annotated[
    Path | None, typer.Option(metavar="DIR", help="The exported epoch, where the ledger is elsewhere.", show_default=False)
]
_Policy = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The log's witnesses; else DIR/witnesses.policy.", show_default=False)
]
_RANDOM = "64 hex digits instead of drand's; nobody can see that they were not chosen."
_Randomness = Annotated[str | None, typer.Option(metavar="HEX", help=_RANDOM, show_default=False)]
_Work = Annotated[
    list[Path] | None, typer.Option(metavar="DIR", help="More folders with kept work. May be repeated.", show_default=False)
]
_Key = Annotated[str | None, typer.Option(metavar="NAME", help="The auditor's key; else the log's own.", show_default=False)]
_ORIGIN = "The name of the auditor's log; else that of the ledger's, and /audits."
_Origin = Annotated[str | None, typer.Option(metavar="NAME", help=_ORIGIN)]
_AUDITS = "The folder of the audits; else DIR/audits."
_Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="DIR", help=_AUDITS)]


@app.command("draw")
def draw(
    folder: _Folder,
    epoch: _Epoch = None,
    bundle: _Bundle = None,
    policy: _Policy = None,
    randomness: _Randomness = None,
    as_json: AsJson = False,
) -> None:
    """Show what an audit of a settled epoch confirms, how many trials it takes, and which ones are drawn.

    The draw is fixed by the first round of drand after the receipt was witnessed and the scheme's delay has passed. Nobody can
    know it before, and nobody can choose it.

    \b
    Example:
      assay audit draw my-competition --epoch 12
    """
    from itertools import islice

    from assay.rules.audit import draws, seed_of

    with _opened(folder, epoch, bundle, policy) as audited:
        document: Json = {
            "epoch": audited.predicate["epoch"],
            "claims": [{"above": claim.above, "below": claim.below, "margin": claim.margin} for claim in audited.plan.claims],
            "counted": len(audited.trials),
            "drawn_from": len(audited.plan.trials),
            "draws": audited.clean,
            "round": None if audited.witnessed is None else audited.round,
        }
        try:
            value = _randomness(audited, randomness)
        except CannotSettle as error:
            if not emit(document | {"trials": None}, as_json):
                _show_plan(document)
                typer.echo(error.what)
            return
        most = len(audited.plan.trials) if audited.clean is None else audited.clean
        seed = seed_of(value.value, audited.receipt)
        chosen = [audited.plan.trials[at] for at in dict.fromkeys(islice(draws(audited.plan, seed), most))]
        if audited.clean is None:
            chosen = list(audited.plan.trials)
    rows = [
        {"participant": trial.participant, "validator": trial.validator, "task": trial.task, "trial": trial.trial}
        for trial in chosen
    ]
    if not emit(document | {"trials": rows}, as_json):
        from assay.cli.show import Column, grid, show

        _show_plan(document)
        show(grid([*_keys(rows), *(Column(name, [str(row[name]) for row in rows]) for name in ("task", "trial"))]))


def _show_plan(document: Json) -> None:
    from assay.cli.show import sentence, show
    from assay.settle.story.telling import plural

    what = f"Epoch {document['epoch']}: {plural(len(document['claims']), 'claim')}"
    which = f"{document['drawn_from']} of {plural(document['counted'], 'trial')} could overstate one"
    how = (
        "all of them are judged again"
        if document["draws"] is None
        else f"{plural(document['draws'], 'draw')} confirm if all hold"
    )
    show(sentence(f"{what}; {which}; {how}."))


@app.command("run")
def run(
    folder: _Folder,
    epoch: _Epoch = None,
    bundle: _Bundle = None,
    policy: _Policy = None,
    randomness: _Randomness = None,
    work: _Work = None,
    tasks: Annotated[Path | None, typer.Option(metavar="DIR", help="The task set, if it is not DIR/tasks.")] = None,
    key: _Key = None,
    origin: _Origin = None,
    output: _Output = None,
    sandbox: SandboxOption = SandboxName.bubblewrap,
    engine: EngineOption = None,
    runtime: RuntimeOption = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", metavar="N", help="So many trials at a time.", min=1)] = 1,
    as_json: AsJson = False,
) -> None:
    """Audit a settled epoch: judge drawn trials again, until the outcome is confirmed; else all; and sign what was seen.

    Only the tests run, in new boxes, on the work that validators kept. A trial that differs is judged three times, to tell a
    flaky task from a false claim. An infrastructure error is never a false claim: the command says so, signs nothing, and goes on
    where it was when it is asked again.

    The signed audit names every trial that was judged again and what was seen; it stands in a log of its own in DIR/audits. The
    exit code is 0 if the outcome is confirmed, 1 if not.

    \b
    Example:
      assay audit run my-competition --epoch 12 --jobs 2
    """
    from assay.cli.errors import printable
    from assay.cli.ledger.keys import asking
    from assay.judge.sandbox import choose
    from assay.judge.terminal.again import TrialsAgain
    from assay.ledger import audit_log, auditing, config, keys

    settings = config.read(folder) if config.exists(folder) else None
    name = key or (None if settings is None else settings.signer)
    if name is None:
        raise BadInput("nothing says who signs the audit", field="--key", hint="make a key: assay keys new auditor")
    signer, into = keys.load(name, asking()), output or folder / audit_log.AUDITS
    with _opened(folder, epoch, bundle, policy) as audited:
        value = _randomness(audited, randomness)
        box = choose(str(sandbox), engine=engine, runtime=runtime)
        judge = TrialsAgain(box, [folder, *(work or ())], tasks or folder / "tasks", audited.manifest)
        seen = _all_seen(audited, value, judge, into, jobs, loud=not as_json)
        predicate = auditing.predicate_of(audited, value, seen)
        payload = auditing.statement_of(predicate)
        path = audit_log.append(into, origin or f"{audited.origin}/audits", signer, payload)
    if not emit(predicate | {"file": str(path)}, as_json):
        _show_audit(predicate)
        typer.echo(printable(f"signed: {path}"))
    if predicate["verdict"] == "refused":
        raise typer.Exit(1)


def _all_seen(audited: AuditedEpoch, value: AuditRandomness, judge: TrialsAgain, into: Path, jobs: int, *, loud: bool) -> Seen:
    """The outcomes seen of every trial that had to be judged again; kept beside the audits until they are signed."""
    from assay.errors import AssayError
    from assay.folder.files import write_bytes
    from assay.judge.sandbox import InfrastructureError
    from assay.ledger.auditing import next_trials

    into.mkdir(parents=True, exist_ok=True)
    file = into / f".seen-{audited.receipt.hex()[:16]}-{value.value.hex()[:16]}.json"
    seen: Seen = json.loads(file.read_bytes()) if file.exists() else {}

    def outcomes_of(trial: ClaimedTrial) -> tuple[ClaimedTrial, Sequence[str] | AssayError]:
        try:
            record = audited.records[trial.record]
            return trial, judge.seen(trial, record.submission, record.work)
        except (InfrastructureError, BadInput) as error:
            return trial, error

    with ThreadPoolExecutor(jobs) as pool:
        while wanted := next_trials(audited, value.value, seen):
            troubles = list[AssayError]()
            for trial, outcomes in pool.map(outcomes_of, wanted):
                if isinstance(outcomes, AssayError):
                    troubles.append(outcomes)
                    continue
                seen[trial.record] = list(outcomes)
                if loud:
                    _tell(trial, outcomes)
            write_bytes(file, json.dumps(seen).encode())
            if troubles:
                what = f"{len(troubles)} of {len(wanted)} trials could not be judged again; the first: {troubles[0]}"
                raise Unreachable(what, hint="nothing is signed and nobody is blamed; run it again when this is mended")
    file.unlink(missing_ok=True)
    return seen


def _tell(trial: ClaimedTrial, outcomes: Sequence[str]) -> None:
    from assay.cli.errors import cut_digests, printable
    from assay.rules.audit import finding

    state = finding(trial.passed, outcomes)
    if state != "held":
        claimed = "pass" if trial.passed else "no pass"
        what = ", ".join(outcomes) or "its work is missing"
        line = f"{state}: {trial.validator} on {trial.participant}, {trial.task}: {claimed}; seen: {what}"
        typer.echo(printable(cut_digests(line)), err=True)


def _show_audit(predicate: Json) -> None:
    from assay.cli.show import Column, grid, sentence, show
    from assay.ledger.audit_log import summary

    show(sentence(summary(predicate)))
    rows = [row for row in predicate["judged"] if row["state"] != "held"]
    if rows:
        show(grid([*_keys(rows), *(Column(name, [row[name] for row in rows]) for name in ("task", "claimed", "state"))]))
    if predicate["untested"]:
        count = sum(row["trials"] for row in predicate["untested"])
        show(sentence(f"{count} more had no tests run, so they are taken as they are claimed."))


def _keys(rows: Sequence[Json]) -> list[Column]:
    """The columns of participants and validators."""
    from assay.cli.show import Column

    return [Column(name, [row[name] for row in rows], kind="key") for name in ("participant", "validator")]


@app.command("verify")
def verify_audit(
    audit: Annotated[Path, typer.Argument(metavar="AUDIT", help="The signed audit.", show_default=False)],
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="The exported epoch.", show_default=False)],
    auditor: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="The public key of the auditor's log, or a file with it.", show_default=False),
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="The public key of the ledger's log, or a file with it.", show_default=False)
    ] = None,
    policy: _Policy = None,
    as_json: AsJson = False,
) -> None:
    """Check a signed audit offline: the draw, the martingale and the verdict are made again from the epoch and what was seen.

    The outcomes seen are the auditor's word; anybody with the kept work can see it too, with `assay audit run`.

    \b
    Example:
      assay audit verify epoch-12-1a2b3c4d.audit epoch-12 --policy witnesses.policy
    """
    from assay.cli.errors import refuse
    from assay.cli.ledger.verify import log_key
    from assay.ledger.audit_log import read_audit
    from assay.ledger.auditing import audited_epoch, check_statement
    from assay.ledger.check import LogKey

    notes = list[str]()
    try:
        signed = read_audit(audit, None if auditor is None else LogKey.parse(log_key(auditor)))
        epoch = audited_epoch(bundle, None if key is None else log_key(key), policy)
        predicate = check_statement(epoch, signed.payload, on_randomness=notes.append)
    except Refused as refused:
        refuse(refused, as_json=as_json)
    if auditor is None:
        notes.append(f"the auditor's key {signed.key} is the one that the audit names itself")
    if not emit({"verified": True, "digest": signed.digest, "audit": predicate, "notes": notes}, as_json):
        _show_audit(predicate)
        for line in notes:
            typer.echo(line)


@contextmanager
def _opened(folder: Path, epoch: int | None, bundle: Path | None, policy: Path | None) -> Iterator[AuditedEpoch]:
    """The epoch of a folder's ledger, or of a bundle, verified."""
    from assay.ledger import config
    from assay.ledger.auditing import audited_epoch

    own = folder / config.POLICY
    rules = policy or (own if own.exists() else None)
    settings = config.read(folder) if config.exists(folder) else None
    key = None if settings is None else settings.key
    if bundle is not None:
        yield audited_epoch(bundle, key, rules)
        return
    from assay.ledger.access import open_ledger
    from assay.ledger.bundle import export

    with open_ledger(folder) as ledger, TemporaryDirectory(prefix="assay-audit-") as place:
        with ledger.store.reading() as view:
            last = view.last_receipt()
        if last is None:
            raise CannotSettle("no epoch is settled yet", file=folder, hint="assay settle")
        yield audited_epoch(export(ledger, last.epoch if epoch is None else epoch, Path(place) / "epoch"), key, rules)


def _randomness(audited: AuditedEpoch, text: str | None) -> AuditRandomness:
    """The randomness of the draw; raises CannotSettle if its round has not come yet, and Unreachable."""
    from assay.ledger import auditing, beacon
    from assay.ledger.keys import as_bad_input
    from assay.peers import NoAnswer
    from assay.peers.http import Peer

    if text is not None:
        return auditing.given(text)
    at = beacon.time_of_round(audited.round)
    if time.time() < at:
        when = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
        raise CannotSettle(
            f"the draw is decided by round {audited.round} of drand, which comes at {when} UTC", hint="ask again then"
        )
    why = ""
    for address in beacon.ADDRESSES:
        try:
            with Peer(address, seconds=20, proxies=True, keep=False) as peer:
                answer = peer.ask("GET", address + beacon.path_of(audited.round), most=beacon.ANSWER_BYTES)
        except NoAnswer as error:
            why = str(error)
            continue
        if answer.status == 200:
            with as_bad_input("ask another server of drand"):
                return auditing.of_beacon(beacon.parse_round(answer.body, audited.round))
        why = f"{address} answers with {answer.status}"
    raise Unreachable(f"drand cannot be asked for round {audited.round}: {why}", hint="ask again; the round stays the same")
