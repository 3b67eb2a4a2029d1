"""`assay trials`: the trials that were judged here or came as evidence, listed and filtered.

Of a trial that was judged on another machine only its signed record is here: whose it is, its task and its outcome.

`assay logs`: what one trial printed, and how it ended; with --url the released logs of a service.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.output import AsJson, emit

if TYPE_CHECKING:
    from assay.judge.terminal.record import TrialRecord
    from assay.records import Evidence, Tests


class Ended(StrEnum):
    """The outcome of a trial."""

    passed = "pass"
    fail = "fail"
    timeout = "timeout"
    error = "error"


@dataclass(frozen=True)
class _ListedTrial:
    """A trial that was judged here and where it is kept, or the record of one that came as evidence."""

    record: TrialRecord | Tests
    judged: TrialRecord | None = None
    place: Path | None = None

    @property
    def slot(self) -> tuple[str, str, str, int]:
        """The validator, submission, task and trial that a row is about."""
        return self.record.validator, self.record.submission, self.record.task, self.record.trial

    def document(self) -> dict[str, Any]:
        """As JSON; `folder` is null where nothing is kept of it here."""
        fields = self.record.model_dump(mode="json", by_alias=True, exclude_none=True)
        if self.judged is None and fields["observed_at"].startswith("0001-"):
            del fields["observed_at"]  # Parquet need not say when
        return fields | {"folder": None if self.place is None else str(self.place)}


def trials(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)],
    validator: Annotated[str | None, typer.Option(metavar="NAME", help="Only this validator's.")] = None,
    participant: Annotated[str | None, typer.Option(metavar="KEY", help="Only this participant's.")] = None,
    task: Annotated[str | None, typer.Option(metavar="ID", help="Only of this task.")] = None,
    outcome: Annotated[list[Ended] | None, typer.Option(help="Only those. May be repeated.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A line of JSON for each trial.")] = False,
) -> None:
    """List trials: those that were judged here, and those known only from evidence.

    If another machine judged a trial, only its outcome is known, from the ledger or evidence/: no folder, no times, no logs.
    DIR may be an exported epoch.

    \b
    Examples:
      assay trials my-competition --outcome error
      assay trials my-competition --participant miner-7 --json | jq .agent.wall_seconds
      assay logs "$(assay trials my-competition --task git-rescue --json | jq -r '.folder // empty' | head -1)"
    """
    from assay.cli.keys import validator_of
    from assay.errors import BadInput
    from assay.judge.terminal.record import stored_trials

    if not folder.is_dir():
        raise BadInput("no such folder", file=folder, hint="name a competition's folder")
    validator = None if validator is None else validator_of(folder, validator)
    wanted = {choice.value for choice in outcome or ()}
    chosen = {"validator": validator, "participant": participant, "task": task}
    asked = {name: [value] for name, value in chosen.items() if value is not None} | ({"outcome": [*wanted]} if wanted else {})
    here = [_ListedTrial(judged, judged, place) for place, judged in stored_trials(folder)]
    known = {trial.slot for trial in here}
    listed = [
        trial
        for trial in (*here, *(trial for trial in _sent(folder, asked) if trial.slot not in known))
        if validator in (None, trial.record.validator)
        and participant in (None, trial.record.participant)
        and task in (None, trial.record.task)
        and (not wanted or trial.record.outcome in wanted)
    ]
    if as_json:
        from assay.exact import canonical

        for trial in listed:
            typer.echo((canonical(trial.document()) + b"\n"), nl=False)
        return
    _show(folder, listed)


def _sent(folder: Path, asked: dict[str, list[str]]) -> Iterator[_ListedTrial]:
    """The trials of which only the evidence is here."""
    from assay.records import Tests

    sent = [_ListedTrial(record) for record in _evidence(folder, asked) if isinstance(record, Tests)]
    yield from sorted(
        sent, key=lambda trial: (trial.record.epoch, trial.record.participant, trial.record.task, trial.record.trial)
    )


def _evidence(folder: Path, asked: dict[str, list[str]]) -> Iterator[Evidence]:
    """The records of the ledger that count, or, where there is no ledger, those in evidence/.

    asked: column → values; of Parquet, which may have millions, only the records with these.
    """
    from assay.errors import BadInput
    from assay.folder import bulk, evidence
    from assay.folder.files import Place
    from assay.records import record
    from assay.scheme.reading import opened, present

    if present(folder / "ledger.toml"):
        from assay.ledger.access import open_ledger

        with open_ledger(folder) as ledger, ledger.counted() as view:
            for stored in view.records():
                yield record(json.loads(stored.body))
        return
    if columns := sorted((folder / "evidence").glob("*.parquet")):
        yield from bulk.records(columns, None, asked)
    for path in sorted((folder / "evidence").glob("*.jsonl")):
        with opened(path) as file:
            for number, line in evidence.lines(file, path):
                at = Place(path, number)
                try:
                    entry = record(evidence.parse(line, at))
                except BadInput as error:
                    raise at.put(error) from None
                yield entry


def _show(folder: Path, listed: list[_ListedTrial]) -> None:
    from collections import Counter

    from assay.cli.judging.live import duration, memory
    from assay.cli.keys import called_in
    from assay.cli.show import Column, command, grid, sentence, show
    from assay.ledger.bundle import INPUTS
    from assay.settle.story.telling import plural

    if not listed:
        show(sentence("There are no such trials."))
        return
    rows, judged = [trial.record for trial in listed], [trial.judged for trial in listed]
    names = called_in(folder, (row.validator for row in rows))

    def took(trial_record: TrialRecord | None, whose: str) -> str:
        ran = None if trial_record is None else trial_record.agent if whose == "agent" else trial_record.tests
        return "" if ran is None else duration(float(ran.wall_seconds))

    columns = [
        Column("outcome", [row.outcome for row in rows]),
        Column("why", ["" if attempt is None else attempt.message or attempt.reason for attempt in judged], kind="crop"),
        Column("participant", [row.participant for row in rows], kind="key"),
        Column("task", [row.task for row in rows], kind="crop"),
        Column("trial", [str(row.trial) for row in rows], right=True),
        Column("epoch", [str(row.epoch) for row in rows], right=True, spare=6),
        Column("validator", [names[row.validator] for row in rows], kind="key", spare=1),
        Column("agent", [took(attempt, "agent") for attempt in judged], right=True, spare=2),
        Column("tests", [took(attempt, "tests") for attempt in judged], right=True, spare=3),
        Column(
            "memory",
            [memory(attempt.agent.peak_memory) if attempt and attempt.agent else "" for attempt in judged],
            right=True,
            spare=4,
        ),
        Column("folder", ["" if trial.place is None else str(trial.place) for trial in listed], spare=5),
    ]
    table = grid(column for column in columns if any(column.cells))
    counts, sent = Counter(row.outcome for row in rows), judged.count(None)
    summary = f"{plural(len(rows), 'trial')}: {', '.join(f'{count} {outcome}' for outcome, count in sorted(counts.items()))}."
    if sent:
        which, ended = ("All" if sent == len(rows) > 1 else str(sent)), ("it" if sent == 1 else "they")
        summary += f" {which} came as evidence from elsewhere, which says how {ended} ended and no more."
    show(table, "", sentence(summary))
    if (folder / INPUTS).exists():
        show(command("Listed as they stand. To check them", "assay", "verify", folder))


_LAST = 64_000
_WHOLE = 64_000_000


def logs(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="TRIAL", help="The trial's folder, as `assay trials --json` names it; not with --url.", show_default=False
        ),
    ] = None,
    whole: Annotated[bool, typer.Option("--all", help="All of it, not only the last 64 kB of each.")] = False,
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="URL", help="Logs at a service: the competition's address.", show_default=False),
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="NAME", help="Your key, where only you may read them; with --url.", show_default=False)
    ] = None,
    submission: Annotated[
        str | None, typer.Option(metavar="DIGEST", help="Whose logs; otherwise your current submission's. With --url.")
    ] = None,
    task: Annotated[
        str | None, typer.Option(metavar="ID", help="Only this task, with what was printed. With --url.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="Fetch the files into this folder. With --url.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what one trial printed, and how it ended.

    With --url: list the logs of your submission's trials at a service, as far as the competition releases them, and fetch them.
    Each file is checked against the digest that the service lists. The same command again fetches what is missing.
    Trials of hidden tasks are only counted.

    \b
    Examples:
      assay logs my-competition/trials/val-1/miner-7@0123456789ab/git-rescue/1
      assay logs --url https://assay.example.org/term-challenge --key me --task git-rescue
      assay logs --url https://assay.example.org/term-challenge --key me -o my-logs
    """
    from assay.errors import BadInput

    if url is not None:
        from assay.cli.participants import released_logs

        if folder is not None or whole:
            raise BadInput("--url and TRIAL cannot be used together", hint="assay logs --url URL --key NAME [--task ID] [-o DIR]")
        released_logs(url, key, submission, task, out, as_json=as_json)
        return
    if folder is None or key or submission or task or out:
        hint = "--key, --submission, --task and --out need --url"
        raise BadInput("give a trial's folder, or --url", hint=hint)
    _logs_here(folder, whole=whole, as_json=as_json)


def _logs_here(folder: Path, *, whole: bool, as_json: bool) -> None:
    """Print what is kept of a trial in a folder of this machine. Raises BadInput."""
    from assay.cli.judging.live import text_lines
    from assay.cli.show import heading, sentence, show
    from assay.judge.terminal import record

    trial = record.read_record(folder / record.FILE)
    printed = {name: record.end_of(folder / name, _WHOLE if whole else _LAST) for name in record.PRINTED}
    if as_json:
        texts = {name: data.decode("utf-8", "replace") for name, data in printed.items()}
        emit({"trial": trial.model_dump(mode="json", by_alias=True, exclude_none=True), "printed": texts})
        return
    show(
        heading(f"{trial.participant} on {trial.task}, trial {trial.trial}, by {trial.validator}: {trial.outcome}"),
        sentence(trial.message or f"{trial.reason}; attempt {trial.attempt}, {trial.mode} tests, in {trial.sandbox}."),
    )
    for name, data in printed.items():
        if data:
            show("", heading(name))
            typer.echo("\n".join(text_lines(data.rstrip(b"\n"))))
