"""`assay publish --watch`: runs a watch in a loop, shows its events, and writes its metrics and its page."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

if TYPE_CHECKING:
    from assay.judge.running import Stop
    from assay.publish.watch import TargetWatch, WatchEvent, WatchReport

SLICE = 0.2
"""Seconds until a request to stop is noticed."""
SUFFIXES = (".prom", ".html")
"""Of the files for metrics and page, if they are in a competition's folder."""


def run(
    folder: Path,
    to: str,
    *,
    every: float,
    patience: float | None,
    once: bool,
    send: bool,
    files: Sequence[Path | None],
    as_json: bool,
) -> NoReturn:
    """Watch until a signal comes, or for one round; never returns. files: for the metrics, for the page."""
    from assay.cli.ledger.keys import asking
    from assay.judge.running import stopping
    from assay.publish import publishers
    from assay.publish.watch import TargetWatch, WatchEvent

    check_files(folder, files)

    def tell(event: WatchEvent) -> None:
        _say(event, as_json=as_json)

    target = publishers.read_target(folder, to, asking())
    watch = TargetWatch(target, publishers.open_publisher(target), tell, every, patience, send)
    with stopping() as stop:
        if not once:
            tell(WatchEvent("info", "watching", f"publishing {folder} to {to}, with a look every {every:g} seconds"))
        report = _loop(watch, stop, files, once=once)
        if not once:
            tell(WatchEvent("info", "stopped", "the watch was asked to stop"))
    raise typer.Exit(report.exit_code if once or report.alarms else 0)


def check_files(folder: Path, files: Sequence[Path | None]) -> None:
    """Raise BadInput, before anything else is done, for a file that Assay would replace but did not write.

    files: for the metrics, for the page.
    """
    from assay.errors import BadInput
    from assay.folder.files import unreadable
    from assay.publish.faces import METRICS_BEGIN, PAGE_BEGIN

    seen: list[Path] = []
    for path, suffix, begin in zip(files, SUFFIXES, (METRICS_BEGIN, PAGE_BEGIN), strict=True):
        if path is None:
            continue
        try:
            there = Path(os.path.realpath(path))
            if there in seen:
                raise BadInput("is already the file of the metrics", file=path, hint="give --metrics and --page different files")
            if there.is_relative_to(os.path.realpath(folder)) and there.suffix != suffix:
                what = "is in the competition's folder, and might be one of its own files"
                raise BadInput(what, file=path, hint=f"let its name end in {suffix}, or put it elsewhere")
            if not there.parent.is_dir():
                raise BadInput("cannot be written (its folder is not there)", file=path, hint="make the folder first")
            if there.exists() and not _begins(there, begin):
                what = "would be replaced, but no watch has written it"
                raise BadInput(what, file=path, hint="name a file that does not exist yet, or leave the option out")
        except (OSError, ValueError) as error:
            raise unreadable(path, error) from None
        seen.append(there)


def _begins(path: Path, begin: bytes) -> bool:
    """Whether the path is a regular file that begins like this, or is empty."""
    if not stat.S_ISREG(path.stat().st_mode):
        return False
    with path.open("rb") as file:
        return file.read(len(begin)) in (begin, b"")


def _loop(watch: TargetWatch, stop: Stop, files: Sequence[Path | None], *, once: bool) -> WatchReport:
    """Step until a stop is requested, or until one round is over."""
    from assay.errors import BadInput
    from assay.publish.watch import WatchEvent

    wrong: str | None = None
    while True:
        report = watch.step()
        try:
            _write(report, files, watch.every)
            wrong = ""
        except BadInput as error:
            if wrong is None:  # at the first time a person is there to correct it
                raise
            if str(error) != wrong:
                wrong = str(error)
                watch.tell(WatchEvent("warning", "file", wrong))
        if once and report.rest > 0:
            return report
        until = time.monotonic() + report.rest
        while not stop.asked and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, SLICE))
        if stop.asked:
            return report


def _write(report: WatchReport, files: Sequence[Path | None], every: float) -> None:
    from assay.folder import write_text
    from assay.publish.watch import metrics, page

    for path, text in zip(files, (metrics(report), page(report, every)), strict=True):
        if path is not None:
            write_text(path, text)


def _say(event: WatchEvent, *, as_json: bool) -> None:
    """Write an event as one line: for people on stderr, with time and level; as JSON on stdout."""
    from assay.cli.errors import printable
    from assay.cli.output import json_bytes
    from assay.publish.outcome import document, in_words
    from assay.scheme.fields import instant_text

    now = instant_text(datetime.now(UTC).replace(microsecond=0))
    what = event.what if event.outcome is None else in_words(event.outcome)
    if as_json:
        line: dict[str, Any] = {"at": now, "level": event.level, "event": event.name, "what": what}
        line |= {} if event.epoch is None else {"epoch": event.epoch}
        line |= {} if event.outcome is None else {"outcome": document(event.outcome)}
        typer.echo(json_bytes(line), nl=False)
        return
    typer.echo(printable(f"{now} {event.level:7} {event.text}"), err=True)
