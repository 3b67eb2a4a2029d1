"""What `assay evidence list` prints of a ledger: batches and conflicts as tables, records as lines of JSON.

`assay evidence`: signed evidence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from assay.cli.keys import called_in
from assay.cli.output import AsJson, emit
from assay.cli.show import Column, grid, sentence, show
from assay.exact import canonical
from assay.ledger.store import StoredRecord, View
from assay.ledger.store.view import LATEST
from assay.settle.story.telling import plural

Json = dict[str, Any]


@dataclass(frozen=True)
class Chosen:
    """Whose evidence is listed, and of which epoch; None: all."""

    validator: str | None
    epoch: int | None

    @property
    def epochs(self) -> tuple[int, int]:
        """The first and the last epoch."""
        return (0, LATEST) if self.epoch is None else (self.epoch, self.epoch)

    def has(self, validator: str) -> bool:
        """Whether this validator's is listed."""
        return self.validator in (None, validator)


def record_lines(view: View, chosen: Chosen) -> Iterator[bytes]:
    """The records in order of acceptance, each as a line of JSON with its `seq`, which evidence/ takes."""
    for one in view.records(*chosen.epochs):
        if chosen.validator is None or chosen.has(json.loads(one.body)["validator"]):
            yield _line(one)


def conflict_lines(view: View, chosen: Chosen) -> Iterator[bytes]:
    """A line of JSON for each conflict: the record that counts, and the later one."""
    for first, later in _conflicts(view, chosen):
        yield canonical({"first": first, "later": later})


def show_batches(view: View, chosen: Chosen, folder: Path) -> None:
    """The batches in order of acceptance."""
    found = [one for one in view.batches(*chosen.epochs) if chosen.has(one.validator)]
    if not found:
        show(sentence("There is no such evidence."))
        return
    conflicts, names = view.conflicting(), called_in(folder, (one.validator for one in found))
    columns = [
        Column("epoch", [str(one.epoch) for one in found], right=True),
        Column("validator", [names[one.validator] for one in found], kind="key"),
        Column("records", [str(one.count) for one in found], right=True),
        Column("new", ["0" if one.first_seq is None else f"{one.first_seq}–{one.last_seq}" for one in found], right=True),
        Column("conflicts", [str(conflicts.get(one.id, 0)) for one in found], right=True),
        Column("batch", [one.digest for one in found], kind="key", spare=1),
    ]
    records = plural(sum(one.count for one in found), "record")
    show(grid(columns), sentence(f"{records} in {plural(len(found), 'batch', 'batches')}."))


def show_conflicts(view: View, chosen: Chosen, folder: Path) -> None:
    """The conflicts: what was accepted first, which counts, and what came later."""
    found = list(_conflicts(view, chosen))
    if not found:
        show(sentence("No record contradicts an earlier one."))
        return
    names = called_in(folder, (later["validator"] for _, later in found))
    differences = [{name for name in first.keys() | later.keys() if first.get(name) != later.get(name)} for first, later in found]
    columns = [
        Column("validator", [names[later["validator"]] for _, later in found], kind="key"),
        Column("participant", [later["participant"] for _, later in found], kind="key"),
        Column("about", [_about(later) for _, later in found], kind="crop"),
        Column("counts", [_said(one[0], said) for one, said in zip(found, differences, strict=True)], kind="text"),
        Column("came later", [_said(one[1], said) for one, said in zip(found, differences, strict=True)], kind="text"),
    ]
    end = "record contradicts" if len(found) == 1 else "records contradict"
    show(grid(columns), sentence(f"{len(found)} {end} an earlier one, which counts; they are kept, and change nothing."))


def _conflicts(view: View, chosen: Chosen) -> Iterator[tuple[Json, Json]]:
    for one in view.conflicts(*chosen.epochs):
        first, later = json.loads(_line(one.first)), json.loads(_line(one.record))
        if chosen.has(later["validator"]):
            yield first, later


def _about(record: Json) -> str:
    parts = [record[name] for name in ("task", "repository") if name in record]
    trial = [f"trial {record['trial']}"] if record.get("trial", 1) != 1 else []
    return " ".join([*parts, *trial]) or f"epoch {record['epoch']}"


def _said(record: Json, names: set[str]) -> str:
    return ", ".join(f"{name} {_text(record.get(name))}" for name in sorted(names))


def _text(value: object) -> str:
    return "–" if value is None else value if isinstance(value, str) else canonical(value).decode()


def _line(one: StoredRecord) -> bytes:
    return b'%b,"seq":%d}' % (one.body[:-1], one.seq)


app = typer.Typer(name="evidence", help="Signed evidence.", no_args_is_help=True, rich_markup_mode=None)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)]


class Parts(StrEnum):
    """What one batch holds."""

    submission = "submission"
    epoch = "epoch"


@app.callback()
def _group() -> None:
    """Signed evidence."""


@app.command()
def sign(
    folder: Folder,
    key: Annotated[str, typer.Option(metavar="NAME", help="The validator's key: `assay keys list`.", show_default=False)],
    epoch: Annotated[int | None, typer.Option(metavar="N", help="Only of this epoch.", min=0)] = None,
    former: Annotated[
        int | None,
        typer.Option(
            "--from", metavar="M", min=0, help="Also what is of epoch M, which was closed before it was handed in, as of N."
        ),
    ] = None,
    by: Annotated[Parts, typer.Option(help="A batch for each epoch and submission, or for each epoch.")] = Parts.submission,
    origin: Annotated[
        str | None, typer.Option(metavar="NAME", help="The log that it is for [that of DIR/ledger.toml].", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="PATH", help="A folder, or a file *.batch where it is one batch [DIR/batches]."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Sign the evidence of one validator: what DIR/evidence/*.jsonl has by the key of that name.

    A batch is one run of one submission, under one signature. It names the log that it is for, and counts in no other ledger.
    Signing the same evidence again gives files of the same names.

    Evidence that came too late is refused, since its epoch is settled. With --from it is signed for an epoch that is open: the
    label of the records changes, and nothing else of them. Do not do it to what the ledger has: it would contradict itself.

    \b
    Examples:
      assay evidence sign my-competition --key val-1
      assay evidence sign my-competition --key val-1 --epoch 12 -o batches
      assay evidence sign my-competition --key val-1 --epoch 13 --from 12
      assay evidence sign my-competition --key val-1 --origin example.org/my-competition
    """
    from assay.cli.errors import warn
    from assay.cli.ledger.keys import asking
    from assay.cli.show import sentence, show
    from assay.errors import BadInput
    from assay.folder import write_bytes
    from assay.ledger import config, keys, signing
    from assay.settle.story.telling import plural

    late = None
    if former is not None:
        if epoch is None or former >= epoch:
            raise typer.BadParameter("say with --epoch for which later epoch it is signed", param_hint="--from")
        judged_on = signing.settled_on(folder, former)
        late = signing.Late(epoch, former, task_set_of=lambda _: judged_on)
    found = signing.sign_folder(folder, keys.load(key, asking()), epoch=epoch, late=late, by=by.value, origin=origin)
    place = folder / "batches" if out is None else out
    if place.suffix == ".batch":
        if len(found) > 1:
            what = f"there are {len(found)} batches for one file"
            raise BadInput(what, file=place, hint="give a folder, or say --by epoch --epoch N")
        write_bytes(place, found[0].data)
    files = [place] if place.suffix == ".batch" else signing.write(found, place)
    records = sum(one.statement.count for one in found)
    if as_json:
        emit({"files": list(map(str, files)), "records": records, "of_a_former_epoch": 0 if late is None else late.chosen})
        return
    for path in files:
        typer.echo(str(path))
    of = f", {late.chosen} of them of epoch {late.former}" if late is not None else ""
    show(sentence(f"{plural(records, 'record')} in {plural(len(found), 'batch', 'batches')}, signed{of}."))
    if config.exists(folder) and not (said := config.read(folder)).is_here:
        settled, epochs = signing.published(said), sorted({one.statement.epoch for one in found})
        if epoch is None:
            show(sentence(signing.of_open(epochs, settled)))
        closed = [epoch for epoch in epochs if settled is not None and epoch <= settled]
        warn(f"epoch {one} is settled: its batches will be refused; sign --epoch N --from {one}, N an open one" for one in closed)


@app.command()
def add(
    folder: Folder,
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Signed batches.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Add signed batches to the competition's ledger: each whole, or not at all; one that is refused does not stop the others.

    What is said to be added is on the disk. A batch that was added before adds nothing, so it does no harm to add it again.
    Records in *.jsonl are signed first: `assay evidence sign`.

    \b
    Examples:
      assay evidence add my-competition batches/*.batch
    """
    from assay.cli.errors import printable, tell
    from assay.cli.show import sentence, show
    from assay.errors import BadInput
    from assay.ledger import config, intake
    from assay.ledger.access import open_store
    from assay.settle.story.telling import plural

    known, added = intake.intake_rules(folder), []
    with open_store(config.read(folder)) as database:
        database.check_home()
        for file in files:
            try:
                found = intake.accept(database, file, known)
            except BadInput as error:
                if file.suffix == ".jsonl":
                    error.what, error.hint = "is no signed batch", "sign it first: assay evidence sign"
                    error.line = None
                tell("error", str(error), typer.colors.RED)
                continue
            added.append((file, found))
            if as_json:
                continue
            conflicts = f", {found.conflicting} in conflict with an earlier one" if found.conflicting else ""
            typer.echo(f"{printable(str(file))}: {found.new} new, {found.known} known{conflicts}")
    new, refused = sum(one.new for _, one in added), len(files) - len(added)
    if as_json:
        rows = [{"file": str(at), "new": one.new, "known": one.known, "conflicting": one.conflicting} for at, one in added]
        emit({"added": rows, "new": new, "refused": refused})
    else:
        told = f"{plural(new, 'record')} added by {plural(len(added), 'batch', 'batches')}"
        show(sentence(f"{told}; {refused} refused." if refused else f"{told}."))
    if refused:
        raise typer.Exit(BadInput.exit_code)


@app.command("list")
def list_(
    folder: Folder,
    validator: Annotated[str | None, typer.Option(metavar="NAME", help="Only of this validator, by key or name.")] = None,
    epoch: Annotated[int | None, typer.Option(metavar="N", help="Only of this epoch.", min=0)] = None,
    conflicts: Annotated[
        bool, typer.Option("--conflicts", help="Records that say something else than the one accepted first, which counts.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The records, as lines of JSON with their seq.")] = False,
) -> None:
    """List the batches that were accepted; with --conflicts, the records that contradict an earlier one.

    What does not count, since its validator did not sign it or it is of another ledger, is named on stderr and not listed.

    \b
    Examples:
      assay evidence list my-competition --epoch 12
      assay evidence list my-competition --conflicts
      assay evidence list my-competition --epoch 12 --json > epoch-12.jsonl
    """
    from assay.cli.errors import warn
    from assay.cli.keys import validator_of
    from assay.ledger.access import open_ledger

    chosen = Chosen(None if validator is None else validator_of(folder, validator), epoch)
    with open_ledger(folder) as ledger, ledger.counted() as view:
        warn(str(one) for one in view.aside)
        if as_json:
            for line in conflict_lines(view, chosen) if conflicts else record_lines(view, chosen):
                typer.echo(line)
        elif conflicts:
            show_conflicts(view, chosen, folder)
        else:
            show_batches(view, chosen, folder)
