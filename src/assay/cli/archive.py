"""Commands on whole archives: `assay export archive`, `assay verify --all`, `assay settle --archive`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.errors import cut_digests, warn
from assay.cli.output import AsJson, Working, emit
from assay.errors import BadInput, Refused

if TYPE_CHECKING:
    from assay.archive import ArchiveReport, ShardEngine
    from assay.archive.shards import ArchiveSettlement, EpochVerdict

__all__ = [
    "Address",
    "Engine",
    "Memory",
    "Workers",
    "check_alone",
    "export_archive",
    "settle_archive",
    "shard_engine",
    "verify_archive",
]

Engine = Annotated[str, typer.Option(metavar="NAME", help="With an archive: where its epochs are computed: local, or ray.")]
Address = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="With --engine ray: the cluster; else RAY_ADDRESS, or the one on this machine."),
]
Workers = Annotated[
    int, typer.Option(metavar="N", help="With an archive: worker processes; 0 is one for each processor.", min=0, max=1024)
]
Memory = Annotated[
    float, typer.Option(metavar="GIB", help="With an archive: the memory for all workers of a machine, in GiB.", min=0.25)
]
SHOWN = 20
"""Ignored files that are named; the others are counted."""


def export_archive(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)],
    archive: Annotated[str, typer.Argument(metavar="ARCHIVE", help="A folder, or s3://BUCKET/PREFIX.", show_default=False)],
    name: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="The competition's folder in the archive; otherwise its name.")
    ] = None,
    parquet: Annotated[bool, typer.Option("--parquet", help="Evidence as Parquet instead of JSON lines.")] = False,
    as_json: AsJson = False,
) -> None:
    """Add a ledger's settled epochs to an archive, each once, and only those that are not there yet.

    An archive has many competitions: a folder each, with a folder for each epoch. It may be stopped at any moment, and run again
    after each epoch. Credentials and region of an object store come from the environment, as for other S3 programs.

    \b
    Examples:
      assay export archive my-competition archive --parquet
      assay export archive my-competition s3://my-bucket/archive --as subnet-7/my-competition
      assay verify --all archive --key my-competition/ledger.toml
    """
    from assay.archive import export_epochs
    from assay.cli.show import command, sentence, show
    from assay.ledger.access import open_ledger
    from assay.settle.story.telling import plural

    with Working(f"exporting to {archive}"), open_ledger(folder) as ledger:
        exported = export_epochs(ledger, archive, name, as_parquet=parquet)
        key = str(ledger.key)
    if emit({"archive": archive} | exported._asdict() | {"key": key}, as_json):
        return
    old, audits = len(exported.there), len(exported.audits)
    before = f"; {plural(old, 'epoch')} had been there" if old else ""
    show(sentence(f"{plural(len(exported.new), 'epoch')} added as {exported.folder}{before}."))
    if audits:
        show(sentence(f"{plural(audits, 'audit')} added."))
    show(command("Anybody can check it", "assay", "verify", "--all", archive, "--key", key))


def shard_engine(name: str, workers: int, memory: float, address: str | None) -> ShardEngine:
    """The engine of that name. address: of a Ray cluster. Raises BadInput for an unknown name, and an address of none."""
    from assay.engine import check_name

    check_name(name, address)
    if name == "local":
        from assay.archive import LocalWorkers

        return LocalWorkers(workers, int(memory * 2**30))
    from assay.engine.ray_shards import RayWorkers

    return RayWorkers(address, workers, int(memory * 2**30))


def verify_archive(archive: str, keys: Sequence[str], policy: Path | None, engine: ShardEngine, *, as_json: bool) -> None:
    """`assay verify --all`: a row for each epoch; exit code 1 if anything is refused or could not be verified."""
    from assay.archive import verify_all

    with _progress("verifying", archive) as progress:
        report = verify_all(archive, engine=engine, keys=keys, policy=policy, progress=progress)
    if not emit(report.document, as_json):
        _show_report(report, own=not keys, alone=policy is None)
    if not report.verified:
        raise typer.Exit(Refused.exit_code)


def _show_report(report: ArchiveReport, *, own: bool, alone: bool) -> None:
    from assay.cli.show import Column, grid, heading, note, sentence, show
    from assay.settle.story.telling import plural

    rows: list[tuple[str, str, str, str]] = [
        (competition or ".", "all", "", f"refused: {cut_digests(str(fault))}") for competition, fault in report.faults
    ]
    for verdict in report.verdicts:
        fault = verdict.fault
        checked = sum(result.done for result in verdict.audits)
        whole = f"verified, with {plural(checked, 'audit')}" if checked else "verified"
        what = whole if fault is None else f"{'refused' if fault.refused else 'not verified'}: {cut_digests(str(fault))}"
        rows.append((verdict.competition or ".", str(verdict.epoch), f"{verdict.records:,}" if verdict.held else "–", what))
    right = sum(verdict.fault is None for verdict in report.verdicts)
    competitions = plural(len({row[0] for row in rows}), "competition")
    every = plural(len(report.verdicts), "epoch")
    how = f"{every} verified, and computed again" if report.verified else f"{right} of {every} verified"
    columns = [
        Column("competition", [row[0] for row in rows], kind="crop"),
        Column("epoch", [row[1] for row in rows], right=True),
        Column("records", [row[2] for row in rows], right=True),
        Column("result", [row[3] for row in rows], kind="text"),
    ]
    show(heading(f"{report.place} · {competitions}: {how}"), grid(columns), "")
    for what, epochs in _unchecked_audits(report.verdicts).items():
        show(sentence(f"Not checked ({', '.join(epochs)}): {what}."))
    _warn_ignored(report.ignored)
    if own:
        show(sentence("Who signed these receipts was not checked: give each log's public key with --key."))
    if alone:
        show(note("Not proven: that everybody is shown these same logs. Witnesses of a policy prove it: --policy."))


def _unchecked_audits(verdicts: Sequence[EpochVerdict]) -> dict[str, list[str]]:
    """A step that was not checked of audits → the epochs of which it was not, in the order of the table."""
    unchecked: dict[str, list[str]] = {}
    for verdict in verdicts:
        about = f"{verdict.competition or '.'} {verdict.epoch}"
        for what in dict.fromkeys(cut_digests(result.what) for result in verdict.audits if not result.done):
            unchecked.setdefault(what, []).append(about)
    return unchecked


def settle_archive(pattern: str, output: Path | None, engine: ShardEngine, *, as_json: bool) -> None:
    """`assay settle --archive`: the digest of each epoch's settlement; exit code 1 for a fault, and for one that differs."""
    from assay.archive import settle_all
    from assay.archive.listing import epoch_folder
    from assay.folder import write_bytes

    def put(epoch: ArchiveSettlement) -> None:
        assert output is not None
        path = output / f"{epoch_folder(epoch.competition, epoch.epoch)}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, (epoch.document or b"") + b"\n")

    with _progress("settling", pattern) as progress:
        epochs, ignored = settle_all(pattern, engine=engine, output=None if output is None else put, progress=progress)
    rows = [
        {"competition": epoch.competition, "epoch": epoch.epoch}
        | (
            {"settlement": epoch.settlement, "agreed": epoch.agreed, "archived": epoch.archived or None}
            if epoch.fault is None
            else {"error": str(epoch.fault)}
        )
        for epoch in epochs
    ]
    wrong = any(epoch.fault is not None or epoch.differs for epoch in epochs)
    if not emit({"settled": not wrong, "archive": pattern, "epochs": rows, "ignored": list(ignored)}, as_json):
        _show_settled(epochs)
        _warn_ignored(ignored)
    if wrong:
        raise typer.Exit(1)


def _show_settled(epochs: Sequence[ArchiveSettlement]) -> None:
    from assay.cli.show import Column, grid, show

    def result(epoch: ArchiveSettlement) -> str:
        if epoch.fault is not None:
            return f"not settled: {cut_digests(str(epoch.fault))}"
        if epoch.differs:
            return f"differs from the archive's {cut_digests(epoch.archived)}"
        return "as in the archive" if epoch.archived else "settled"

    columns = [
        Column("competition", [epoch.competition or "." for epoch in epochs], kind="crop"),
        Column("epoch", [str(epoch.epoch) for epoch in epochs], right=True),
        Column("agreed", [str(epoch.agreed) if epoch.fault is None else "–" for epoch in epochs], right=True),
        Column("settlement", [epoch.settlement or "–" for epoch in epochs], kind="key"),
        Column("result", [result(epoch) for epoch in epochs], kind="text"),
    ]
    show(grid(columns))


def _warn_ignored(paths: Sequence[str]) -> None:
    warn(f"{path}: is no file of an archive, and was not read" for path in paths[:SHOWN])
    if len(paths) > SHOWN:
        warn([f"{len(paths) - SHOWN} more files are none of an archive, and were not read"])


def check_alone(options: dict[str, bool], why: str) -> None:
    """Refuse the first option that was given but does not go with another. Raises BadInput."""
    for option, given in options.items():
        if given:
            raise BadInput(f"does not go with {why}", field=option, hint="leave it out")


@contextmanager
def _progress(what: str, where: str) -> Iterator[Callable[[int, int], None]]:
    """A bar of epochs on a terminal; elsewhere nothing."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("epochs"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"{what} {where}", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
