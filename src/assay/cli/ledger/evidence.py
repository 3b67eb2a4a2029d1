"""The commands `assay evidence sign|add|send|list`: sign evidence as batches, add or send them, and list what a ledger has."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.keys import called_in
from assay.cli.output import AsJson, emit
from assay.cli.show import Column, grid, sentence, show
from assay.exact import canonical
from assay.ledger.store import Conflict, StoredRecord, View
from assay.ledger.store.view import LATEST
from assay.settle.story.telling import plural

if TYPE_CHECKING:
    from assay.ledger.batch import Batch
    from assay.ledger.signing import Late
    from assay.serve.client import Client
    from assay.serve.log_files import LogsSent

Json = dict[str, Any]
CONFLICTS = 5
"""So many conflicts a command shows that hands in evidence."""


@dataclass(frozen=True)
class Chosen:
    """The validator and the epoch whose evidence is listed; None: all. age: the scheme's `max_age_epochs`."""

    validator: str | None
    epoch: int | None
    age: int | None = None

    @property
    def epochs(self) -> tuple[int, int]:
        """The first and the last epoch."""
        return (0, LATEST) if self.epoch is None else (self.epoch, self.epoch)

    def has(self, validator: str) -> bool:
        """Whether this validator's evidence is listed."""
        return self.validator in (None, validator)


def record_lines(view: View, chosen: Chosen) -> Iterator[bytes]:
    """The records in order of acceptance, each as a line of JSON with its `seq`, as files in evidence/ have them."""
    for stored in view.records(*chosen.epochs):
        if chosen.validator is None or chosen.has(json.loads(stored.body)["validator"]):
            yield _line(stored)


def conflict_lines(view: View, chosen: Chosen) -> Iterator[bytes]:
    """A line of JSON for each conflict: the record that counts, and the later one."""
    for first, later in _conflicts(view, chosen):
        yield canonical({"first": first, "later": later})


def show_batches(view: View, chosen: Chosen, folder: Path) -> None:
    """Print a table of the batches, in order of acceptance."""
    batches = [batch for batch in view.batches(*chosen.epochs) if chosen.has(batch.validator)]
    if not batches:
        show(sentence("There is no such evidence."))
        return
    conflicts, names = view.conflicting(chosen.age), called_in(folder, (batch.validator for batch in batches))
    columns = [
        Column("epoch", [str(batch.epoch) for batch in batches], right=True),
        Column("validator", [names[batch.validator] for batch in batches], kind="key"),
        Column("records", [str(batch.count) for batch in batches], right=True),
        Column(
            "new", ["0" if batch.first_seq is None else f"{batch.first_seq}–{batch.last_seq}" for batch in batches], right=True
        ),
        Column("conflicts", [str(conflicts.get(batch.id, 0)) for batch in batches], right=True),
        Column("batch", [batch.digest for batch in batches], kind="key", spare=1),
    ]
    records = plural(sum(batch.count for batch in batches), "record")
    show(grid(columns), sentence(f"{records} in {plural(len(batches), 'batch', 'batches')}."))


def show_conflicts(view: View, chosen: Chosen, folder: Path) -> None:
    """Print a table of the conflicts: the record that was accepted first, which counts, and the later one."""
    conflicts = list(_conflicts(view, chosen))
    if not conflicts:
        show(sentence("No record contradicts an earlier one."))
        return
    names = called_in(folder, (later["validator"] for _, later in conflicts))
    differences = [
        {name for name in first.keys() | later.keys() if first.get(name) != later.get(name)} for first, later in conflicts
    ]
    columns = [
        Column("validator", [names[later["validator"]] for _, later in conflicts], kind="key"),
        Column("participant", [later["participant"] for _, later in conflicts], kind="key"),
        Column("about", [_about(later) for _, later in conflicts], kind="crop"),
        Column("counts", [_values(pair[0], fields) for pair, fields in zip(conflicts, differences, strict=True)], kind="text"),
        Column(
            "came later", [_values(pair[1], fields) for pair, fields in zip(conflicts, differences, strict=True)], kind="text"
        ),
    ]
    end = "record contradicts" if len(conflicts) == 1 else "records contradict"
    show(grid(columns), sentence(f"{len(conflicts)} {end} an earlier one. The earlier one counts; the later one is only stored."))


def _conflicts(view: View, chosen: Chosen) -> Iterator[tuple[Json, Json]]:
    for first, later in map(_pair, view.conflicts(*chosen.epochs, age=chosen.age)):
        if chosen.has(later["validator"]):
            yield first, later


def _pair(conflict: Conflict) -> tuple[Json, Json]:
    """The record that counts, and the later one."""
    return json.loads(_line(conflict.first)), json.loads(_line(conflict.record))


def warn_of_conflicts(count: int, pairs: Sequence[tuple[Json, Json]]) -> None:
    """Say which of the records that were handed in contradict earlier ones, which of the two counts, and what to do."""
    from assay.cli.errors import warn

    if not count:
        return
    for first, later in pairs[:CONFLICTS]:
        fields = {name for name in first.keys() | later.keys() if first.get(name) != later.get(name)} - {"seq", "observed_at"}
        whose = f"{later['participant']}, {_about(later)}"
        warn([f"{whose}: record {first['seq']} counts ({_values(first, fields)}); this one does not ({_values(later, fields)})"])
    many = "records contradict earlier ones" if count > 1 else "record contradicts an earlier one"
    more = f" ({count - CONFLICTS} of them are not shown)" if count > CONFLICTS else ""
    hint = "if you judged again in a new copy of the folder, go on in the one that has your evidence; the operator sees all"
    hint += " contradictions with: assay evidence list DIR --conflicts"
    warn([f"{count} {many} of the same validator{more}. The earlier one counts, and nothing counts twice", hint])


def _about(record: Json) -> str:
    parts = [record[name] for name in ("task", "repository") if name in record]
    trial = [f"trial {record['trial']}"] if record.get("trial", 1) != 1 else []
    return " ".join([*parts, *trial]) or f"epoch {record['epoch']}"


def _values(record: Json, names: set[str]) -> str:
    return ", ".join(f"{name} {_text(record.get(name))}" for name in sorted(names))


def _text(value: object) -> str:
    return "–" if value is None else value if isinstance(value, str) else canonical(value).decode()


def _line(stored: StoredRecord) -> bytes:
    return b'%b,"seq":%d}' % (stored.body[:-1], stored.seq)


app = typer.Typer(
    name="evidence",
    help="Sign evidence, add it to a ledger or send it to a service, and list what was accepted.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)]


class Parts(StrEnum):
    """The part of the evidence that goes into one batch."""

    submission = "submission"
    epoch = "epoch"


@app.callback()
def _group() -> None:
    """Sign evidence, add it to a ledger or send it to a service, and list what was accepted."""


@app.command()
def sign(
    folder: Folder,
    key: Annotated[str, typer.Option(metavar="NAME", help="The validator's key: `assay keys list`.", show_default=False)],
    epoch: Annotated[int | None, typer.Option(metavar="N", help="Only of this epoch.", min=0)] = None,
    former: Annotated[
        int | None,
        typer.Option("--from", metavar="M", min=0, help="Also sign late evidence of the settled epoch M, for epoch N."),
    ] = None,
    by: Annotated[Parts, typer.Option(help="One batch for each epoch and submission, or for each epoch.")] = Parts.submission,
    origin: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The log that the batches are for [that of DIR/ledger.toml].", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="PATH", help="A folder, or a file *.batch for a single batch [DIR/batches]."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Sign one validator's evidence in DIR/evidence/*.jsonl with the key of that name.

    A batch is one run of one submission, under one signature. It names the log that it is for, and counts in no other ledger.
    Signing the same evidence again gives files of the same names.

    A ledger refuses evidence of an epoch that is settled. With --from, such late evidence is signed for an open epoch: only the
    label of the records changes. Do not sign records again that the ledger already has: they would contradict each other.

    \b
    Examples:
      assay evidence sign my-competition --key val-1
      assay evidence sign my-competition --key val-1 --epoch 12 -o batches
      assay evidence sign my-competition --key val-1 --epoch 13 --from 12
      assay evidence sign my-competition --key val-1 --origin example.org/my-competition
    """
    from assay.cli.ledger.keys import asking
    from assay.errors import BadInput
    from assay.folder import write_bytes
    from assay.ledger import keys, signing

    late = _late(folder, former, epoch)
    batches = signing.sign_folder(folder, keys.load(key, asking()), epoch=epoch, late=late, by=by.value, origin=origin)
    place = folder / "batches" if out is None else out
    if place.suffix == ".batch":
        if len(batches) > 1:
            what = f"there are {len(batches)} batches for one file"
            raise BadInput(what, file=place, hint="give a folder, or use --by epoch --epoch N")
        write_bytes(place, batches[0].data)
    files = [place] if place.suffix == ".batch" else signing.write(batches, place)
    records = sum(batch.statement.count for batch in batches)
    if as_json:
        emit({"files": list(map(str, files)), "records": records, "of_a_former_epoch": 0 if late is None else late.chosen})
        return
    for path in files:
        typer.echo(str(path))
    of = f", {late.chosen} of them of epoch {late.former}" if late is not None else ""
    show(sentence(f"{plural(records, 'record')} in {plural(len(batches), 'batch', 'batches')}, signed{of}."))
    _warn_of_settled(folder, batches, epoch)


def _late(folder: Path, former: int | None, epoch: int | None) -> Late | None:
    """The late evidence of epoch `former`, which is signed for `epoch`; None if no former epoch is named."""
    from assay.ledger import signing

    if former is None:
        return None
    if epoch is None or former >= epoch:
        raise typer.BadParameter("name with --epoch a later epoch, for which it is signed", param_hint="--from")
    judged_on = signing.settled_on(folder, former)
    return signing.Late(epoch, former, task_set_of=lambda _: judged_on)


def _warn_of_settled(folder: Path, batches: Sequence[Batch], epoch: int | None) -> None:
    """Say which epoch is open where the ledger is on another machine, and warn of batches of settled epochs."""
    from assay.cli.errors import warn
    from assay.ledger import config, signing

    if config.exists(folder) and not (ledger := config.read(folder)).is_here:
        settled, epochs = signing.published(ledger), sorted({batch.statement.epoch for batch in batches})
        if epoch is None:
            show(sentence(signing.of_open(epochs, settled)))
        closed = [epoch for epoch in epochs if settled is not None and epoch <= settled]
        warn(
            f"epoch {past} is settled: its batches will be refused; sign with --epoch N --from {past}, N an open epoch"
            for past in closed
        )


@app.command()
def add(
    folder: Folder,
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Signed batches.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Add signed batches to the competition's ledger: each whole, or not at all; a refused batch does not stop the others.

    When the command says that a batch is added, it is on the disk. Adding the same batch again does no harm.
    Records in *.jsonl must be signed first: `assay evidence sign`.

    \b
    Examples:
      assay evidence add my-competition batches/*.batch
    """
    from assay.cli.errors import tell
    from assay.cli.show import sentence, show
    from assay.errors import BadInput
    from assay.ledger import config, intake
    from assay.ledger.access import open_store
    from assay.settle.story.telling import plural

    known, added, conflicts = intake.intake_rules(folder), [], list[tuple[Json, Json]]()
    with open_store(config.read(folder)) as database:
        database.check_home()
        for file, accepted in zip(files, intake.accept_all(database, files, known), strict=True):
            if isinstance(accepted, BadInput):
                if file.suffix == ".jsonl":
                    accepted.what, accepted.hint = "is not a signed batch", "sign it first: assay evidence sign"
                    accepted.line = None
                tell("error", str(accepted), typer.colors.RED)
                continue
            added.append((file, accepted))
            if not as_json:
                typer.echo(outcome_line(file, accepted.new, accepted.known, accepted.conflicting))
            if accepted.conflicting and len(conflicts) < CONFLICTS and accepted.first_seq and accepted.last_seq:
                with database.reading() as view:
                    seqs = accepted.first_seq, accepted.last_seq
                    conflicts += map(_pair, view.conflicts_among(*seqs, CONFLICTS, age=known.age)[1])
    new, refused = sum(result.new for _, result in added), len(files) - len(added)
    if as_json:
        rows = [
            {"file": str(at), "new": result.new, "known": result.known, "conflicting": result.conflicting} for at, result in added
        ]
        emit({"added": rows, "new": new, "refused": refused})
    else:
        summary = f"{plural(new, 'record')} added by {plural(len(added), 'batch', 'batches')}"
        show(sentence(f"{summary}; {refused} refused." if refused else f"{summary}."))
    warn_of_conflicts(sum(result.conflicting for _, result in added), conflicts)
    if refused:
        raise typer.Exit(BadInput.exit_code)


@app.command()
def send(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="The competition at its service.", show_default=False)],
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Signed batches.", show_default=False)],
    key: Annotated[str, typer.Option(metavar="NAME", help="The validator's key: `assay keys list`.", show_default=False)],
    logs: Annotated[bool, typer.Option("--logs/--no-logs", help="Also hand over what was kept of the trials.")] = True,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="DIR", help="The folder with the trials. Default: the one that contains batches/."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Send signed batches to the service of a competition. A refused batch does not stop the others.

    When the command says that records are new or known, they are on the service's disk. If the service does not answer, the
    command tries again for a minute. Sending the same batch again does no harm.

    After the evidence, the logs of its trials and the work that was kept of them are handed over: the operator can read them, and
    participants can as far as the scheme releases them. Files that the service has already are not sent again.

    \b
    Examples:
      assay evidence send https://assay.example.org/term-challenge --key val-1 my-competition/batches/*.batch
      assay evidence send https://assay.example.org/term-challenge --key val-1 --no-logs epoch-3.batch
    """
    from assay.cli.errors import tell
    from assay.cli.ledger.keys import asking
    from assay.errors import BadInput
    from assay.ledger import keys
    from assay.serve import installed

    installed()
    from assay.serve.client import Client
    from assay.serve.sending import send_batches

    refused, sent, conflicts = 0, list[Json](), list[tuple[Json, Json]]()
    with Client(address, keys.load(key, asking())) as client:
        for file, row in send_batches(client, files):
            if row.outcome == "refused":
                refused += 1
                tell("error", f"{file}: {row.detail}; {row.hint}" if row.hint else f"{file}: {row.detail}", typer.colors.RED)
                continue
            known = row.records - row.new
            sent.append({"file": str(file), "new": row.new, "known": known, "conflicting": row.conflicts})
            conflicts += ((pair.first, pair.later) for pair in row.conflicting)
            if not as_json:
                typer.echo(outcome_line(file, row.new, known, row.conflicts))
        handed_over = _send_logs(client, [Path(row["file"]) for row in sent], folder) if logs else None
    new = sum(row["new"] for row in sent)
    if as_json:
        counts = {} if handed_over is None else {"logs": {"new": handed_over.new, "known": handed_over.known}}
        emit({"sent": sent, "new": new, "refused": refused} | counts)
    else:
        summary = f"{plural(new, 'record')} accepted by the service, in {plural(len(sent), 'batch', 'batches')}"
        show(sentence(f"{summary}; {refused} refused." if refused else f"{summary}."))
    if handed_over is not None:
        tell_logs(handed_over, quiet=as_json)
    warn_of_conflicts(sum(row["conflicting"] for row in sent), conflicts)
    if refused:
        raise typer.Exit(BadInput.exit_code)


def _send_logs(client: Client, files: Sequence[Path], folder: Path | None) -> LogsSent:
    """Hand over what is kept of the trials in these batches. folder: where; None: beside the folder of each batch."""
    from assay.ledger import batch
    from assay.serve.log_files import LogsSent, send_logs

    sent = LogsSent()
    for file in files:
        place = file.absolute().parent.parent if folder is None else folder
        if folder is not None or (place / "scheme.toml").exists():
            send_logs(client, place, batch.read(file).records, sent)
    return sent


def tell_logs(sent: LogsSent, *, quiet: bool = False) -> None:
    """Say what became of logs that were handed over. quiet: only what went wrong."""
    from assay.cli.errors import warn

    warn(f"the logs of {plural(count, 'trial')} were refused: {why}" for why, count in sent.refused.items())
    warn(f"not handed over: {why}" for why in sent.left_out)
    if not quiet and (sent.new or sent.known):
        there = f"; {sent.known} were there already" if sent.known else ""
        show(sentence(f"Logs of {plural(sent.new, 'trial')} handed over{there}."))


def outcome_line(file: Path, new: int, known: int, conflicting: int) -> str:
    """A line about a batch that was handed in."""
    from assay.cli.errors import printable

    conflicts = f", {conflicting} in conflict with an earlier one" if conflicting else ""
    return f"{printable(str(file))}: {new} new, {known} known{conflicts}"


@app.command("list")
def list_(
    folder: Folder,
    validator: Annotated[str | None, typer.Option(metavar="NAME", help="Only of this validator, by key or name.")] = None,
    epoch: Annotated[int | None, typer.Option(metavar="N", help="Only of this epoch.", min=0)] = None,
    conflicts: Annotated[
        bool, typer.Option("--conflicts", help="Records that contradict the first accepted one, which counts.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The records, as lines of JSON with their seq.")] = False,
) -> None:
    """List the batches that were accepted; with --conflicts, the records that contradict an earlier one.

    Batches that do not count (not signed by their validator, or for another ledger) are not listed; stderr names them.

    \b
    Examples:
      assay evidence list my-competition --epoch 12
      assay evidence list my-competition --conflicts
      assay evidence list my-competition --epoch 12 --json > epoch-12.jsonl
    """
    from assay.cli.errors import warn
    from assay.cli.keys import validator_of
    from assay.ledger.access import open_ledger
    from assay.scheme.load import read

    rules = folder / "scheme.toml"
    age = read(rules).consensus.max_age_epochs if rules.exists() else None
    chosen = Chosen(None if validator is None else validator_of(folder, validator), epoch, age)
    with open_ledger(folder) as ledger, ledger.counted() as view:
        warn(str(batch) for batch in view.aside)
        if as_json:
            for line in conflict_lines(view, chosen) if conflicts else record_lines(view, chosen):
                typer.echo(line)
        elif conflicts:
            show_conflicts(view, chosen, folder)
        else:
            show_batches(view, chosen, folder)
