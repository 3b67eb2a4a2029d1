"""`assay pull` and `assay push`: one round of what a validator's node does, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.output import AsJson, emit
from assay.cli.show import command, sentence, show
from assay.errors import BadInput
from assay.settle.story.telling import named, plural

if TYPE_CHECKING:
    from assay.ledger.keys import PrivateKey
    from assay.node.fetch import PullResult
    from assay.node.spool import PushResult

__all__ = ["FolderArgument", "KeyOption", "UrlOption", "pull", "push", "signer_of"]

FolderArgument = Annotated[Path, typer.Argument(metavar="DIR", help="Your copy of the competition's folder.", show_default=False)]
UrlOption = Annotated[
    str, typer.Option("--url", metavar="URL", help="The competition's address, as its pages have it.", show_default=False)
]
KeyOption = Annotated[
    str, typer.Option("--key", metavar="NAME", help="The validator's key: `assay keys list`.", show_default=False)
]


def signer_of(name: str) -> PrivateKey:
    """The key of a name, if the libraries of the client are installed. Raises BadInput, CannotSettle."""
    from assay.cli.ledger.keys import asking
    from assay.ledger import keys
    from assay.serve import installed

    installed()
    return keys.load(name, asking())


def pull(folder: FolderArgument, url: UrlOption, key: KeyOption, as_json: AsJson = False) -> None:
    """Fetch what a validator judges: rules, registry, tasks and submissions of a competition that somebody serves.

    Then `assay run` judges in DIR as it does on the operator's machine. Only what is new is fetched, and a download goes on where
    it broke off. Every digest is checked before anything is put in its place. Your evidence stays as it is.

    \b
    Example:
      assay pull my-copy --url https://assay.example.org/term-challenge --key val-1
    """
    from assay.node import fetch, working
    from assay.node.spool import validator_in
    from assay.serve.client import Client

    signer = signer_of(key)
    with Client(url, signer) as client, working(folder, key):
        pulled = fetch.pull(client, folder, signer.public)
    if emit(pulled.document, as_json):
        return
    _tell_pull(pulled)
    mine = [row for row in pulled.work.submissions if row.assigned]
    if mine:
        run = ("assay", "run", folder, "--validator", validator_in(folder, signer), "--epoch", str(pulled.work.epoch))
        show(command("Judge them", *run), command("Then", "assay", "push", folder, "--url", url, "--key", key))


def _tell_pull(pulled: PullResult) -> None:
    rows = pulled.work.submissions
    mine = sum(row.assigned for row in rows)
    counted = f"{plural(len(rows), 'submission')} {'counts' if len(rows) == 1 else 'count'}"
    drawn = "" if mine == len(rows) else f", {mine} of them for you to judge"
    new = [*pulled.tables]
    if pulled.tasks:
        new.append(f"{plural(pulled.tasks, 'task')}")
    if pulled.submissions:
        new.append(f"the submissions of {named(list(pulled.submissions))}")
    show(
        sentence(f"Epoch {pulled.work.epoch} is open. {counted}{drawn}."),
        sentence(f"New here: {', '.join(new)}." if new else "Nothing is new."),
        *(sentence(f"Not here: the submission of {key}: {why}") for key, why in pulled.absent.items()),
    )


def push(
    folder: FolderArgument,
    url: UrlOption,
    key: KeyOption,
    logs: Annotated[bool, typer.Option("--logs/--no-logs", help="Also hand over what was kept of the trials.")] = True,
    again: Annotated[
        bool, typer.Option("--again", help="Also send what the service had: it was restored from a backup.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Sign what was judged, and send all batches that the service of the competition does not have.

    A batch that the service has moves to DIR/batches/sent. If the service does not answer, batches wait in DIR/batches: run the
    command again, or give them to the operator as files. Evidence of an epoch that was settled meanwhile is signed for the open
    epoch, and not judged again. Sending twice does no harm.

    \b
    Example:
      assay push my-copy --url https://assay.example.org/term-challenge --key val-1
    """
    from assay.cli.ledger.evidence import tell_logs, warn_of_conflicts
    from assay.node import fetch, working
    from assay.node.spool import Spool
    from assay.serve.client import Client

    signer = signer_of(key)
    with Client(url, signer) as client, working(folder, key):
        spool = Spool(folder, signer)
        epoch = fetch.ask_work(client).epoch if again else None  # nothing is taken out while nobody answers
        signed = spool.sign()  # first, so that it is a file to send in any way, whether the service answers or not
        if epoch is not None:
            spool.take_out()
        result = spool.push(client, fetch.ask_work(client).epoch if epoch is None else epoch, logs=logs)
        result.signed += signed
    if not emit(push_document(result), as_json):
        _tell_push(result)
    tell_logs(result.logs, quiet=as_json)
    pairs = [(pair.first, pair.later) for row in result.sent for pair in row.outcome.conflicting]
    warn_of_conflicts(sum(row.outcome.conflicts for row in result.sent), pairs)
    if result.refused:
        raise typer.Exit(BadInput.exit_code)


def push_document(result: PushResult) -> dict[str, Any]:
    """The result of a push, for programs."""
    several = (("sent", result.sent), ("refused", result.refused), ("late", result.late))
    rows = {name: [row.document for row in group] for name, group in several}
    return {"signed": result.signed, "new": result.new, **rows, "logs": {"new": result.logs.new, "known": result.logs.known}}


def _tell_push(result: PushResult) -> None:
    from assay.cli.errors import tell
    from assay.cli.ledger.evidence import outcome_line

    for row in result.sent:
        outcome = row.outcome
        again = f", signed for epoch {outcome.epoch} because it came too late for its own" if row.again else ""
        typer.echo(outcome_line(row.file, outcome.new, outcome.records - outcome.new, outcome.conflicts) + again)
    for row in result.refused:
        why = f"{row.outcome.detail}; {row.outcome.hint}" if row.outcome.hint else row.outcome.detail
        tell("error", f"{row.file}: {why}", typer.colors.RED)
    for row in result.late:
        tell("warning", f"{row.file}: {row.outcome.detail}; nothing can be done about it", typer.colors.YELLOW)
    if not result.sent and not result.refused and not result.late:
        show(sentence("The service has everything that was judged here."))
        return
    summary = f"{plural(result.new, 'record')} accepted by the service, in {plural(len(result.sent), 'batch', 'batches')}"
    show(sentence(f"{summary}; {len(result.refused)} refused." if result.refused else f"{summary}."))
