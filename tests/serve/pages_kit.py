"""Real seasons for tests of pages, and a browser that gets the pages from memory and nothing else."""

from __future__ import annotations

import csv
import io
import json
import mimetypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, Route

import ledger_kit
import small_folder
from assay.ledger import batch, intake, keys, settling
from assay.records import record
from assay.serve import pages
from assay.serve.live import Judging, LiveState
from assay.serve.season import Season

EXAMPLES = Path(__file__).parents[2] / "examples"
NOW = datetime(2026, 11, 2, 10, tzinfo=UTC)
ORIGIN = "http://pages.test"
AXE = Path(__file__).parents[2] / "contracts" / "node_modules" / "axe-core" / "axe.min.js"
CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
SHIFTS = """
window.shifted = 0;
new PerformanceObserver((list) => { for (const shift of list.getEntries()) window.shifted += shift.value; })
  .observe({ type: "layout-shift", buffered: true });
"""
"""Adds up how far things move while a page loads."""


def with_ledger(source: Path, place: Path) -> Path:
    """A folder of an example, its evidence in a ledger, signed by keys of its validators, every epoch settled."""
    named = [*csv.DictReader(io.StringIO((source / "validators.csv").read_text()))]
    signers = {row["key"]: keys.read(f"{number:02}".encode() * 32) for number, row in enumerate(named, start=11)}
    public = {name: signer.public.raw.hex() for name, signer in signers.items()}
    rows = "".join(f"{public[row['key']]},{row['stake']},{row['name']}\n" for row in named)
    files = {file.replace(".", "_"): (source / file).read_text() for file in ("scheme.toml", "participants.csv", "tasks.txt")}
    people = [*csv.DictReader(io.StringIO(files["participants_csv"]))]
    columns = [name for name in people[0] if name != "last_reset_epoch"]  # the ledger knows it
    rows_of_people = [columns, *([row[name] for name in columns] for row in people)]
    files["participants_csv"] = "".join(f"{','.join(row)}\n" for row in rows_of_people)
    folder = ledger_kit.ledger_folder(place, validators_csv=f"key,stake,name\n{rows}", **files)
    evidence: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for file in sorted((source / "evidence").glob("*.jsonl")):
        for line in file.read_text().splitlines():
            value = json.loads(line)
            evidence.setdefault((value["epoch"], value["validator"]), []).append(
                value | {"validator": public[value["validator"]]}
            )
    terms = intake.intake_rules(folder)
    with ledger_kit.opened(folder) as ledger:
        for (_, validator), values in sorted(evidence.items()):
            new_batch = batch.make(
                [record(value) for value in values],
                origin=ledger_kit.ORIGIN,
                competition=terms.competition,
                task_set=terms.task_set,
                signer=signers[validator],
                validator=public[validator],
            )
            intake.accept(ledger.store, new_batch, terms)
        for epoch in sorted({epoch for epoch, _ in evidence}):
            settling.settle(ledger, ledger_kit.SIGNER, epoch, skip=True, without_scores=True)
    return folder


def large(place: Path, *, people: int = 300, validators: int = 40, tasks: int = 40) -> Path:
    """Many participants with a record of few, and one whom many validators judged on many tasks."""
    judges = [f"v{number:02}" for number in range(validators)]
    names = [f"decode-packet-capture-{number:02}" for number in range(tasks)]
    records = [
        small_folder.record(validator=judge, participant="m000", submission="s0", task=task, outcome=outcome)
        for at, judge in enumerate(judges)
        for number, task in enumerate(names)
        for outcome in ["fail" if number < 8 else "timeout" if number < 20 and at % 3 else "pass"]
    ]
    records += [
        small_folder.record(validator=judge, participant=f"m{at:03}", submission=f"s{at}", task=task, outcome=outcome)
        for at in range(1, people)
        for judge in judges[:3]
        for number, task in enumerate(names)
        for outcome in ["pass" if number * 7919 % people < at else "fail"]
    ]
    return small_folder.make(
        place,
        participants_csv="key,uid,name,submission\n"
        + "".join(f"m{at:03},{at + 1},{'' if at % 3 else f'Miner {at}'},s{at}\n" for at in range(people)),
        validators_csv="key,stake\n" + "".join(f"{judge},{1000 - number}\n" for number, judge in enumerate(judges)),
        scheme_toml=small_folder.SCHEME + '[consensus]\nmin_stake = "1%"\n',
        tasks_txt="".join(f"{task}\n" for task in names),
        evidence=small_folder.lines(records),
    )


def judged_now(season: Season) -> LiveState:
    """Two validators that judge, a third that is silent, and somebody who waits."""
    people, judges, tasks = [*season.participants], [*season.validators], season.tasks.names or ("",)
    heard = (timedelta(seconds=4), timedelta(seconds=20), timedelta(hours=1))
    judging = tuple(
        Judging(judge, who, f"s{done}", tasks[done % len(tasks)], done, 10, NOW - timedelta(hours=2), NOW - ago)
        for done, (judge, who, ago) in enumerate(zip(judges, people, heard, strict=False), start=3)
    )
    return LiveState(season.settlement.epoch + 1, judging, 5000, tuple(people[-1:]))


class PagesOfSeason:
    """The files of a season by their names, each drawn when it is first asked for. query: as `pages.page` has it."""

    def __init__(self, season: Season, query: Mapping[str, str] | None = None) -> None:
        self.season, self.query = season, query
        self._drawn = dict(pages.assets())
        if season.scheme.stakes:
            self._drawn["live.html"] = pages.live_page(season.scheme, season, judged_now(season), "events", NOW)

    @property
    def names(self) -> list[str]:
        """Its HTML pages."""
        return [name for name in pages.names(self.season) if name.endswith(".html")]

    def read(self, name: str, query: Mapping[str, str] | None = None) -> bytes | None:
        """A file; None if there is none of that name."""
        if name not in self._drawn or query:
            try:
                drawn = pages.page(self.season, name, query or self.query)
            except KeyError:
                return None
            if query:
                return drawn
            self._drawn[name] = drawn
        return self._drawn[name]


@dataclass
class Visit:
    """A page in a browser, and everything that went wrong there: errors of the console, requests to elsewhere or for nothing."""

    page: Page
    wrong: list[str] = field(default_factory=list)

    def open(self, name: str) -> None:
        """Load a page."""
        self.page.goto(f"{ORIGIN}/{name}", wait_until="load")

    def heard(self, message: ConsoleMessage) -> None:
        """Note what the console says."""
        if message.type in ("error", "warning"):
            self.wrong.append(f"{self.page.url}: {message.text}")


@contextmanager
def visiting(browser: Browser, site: PagesOfSeason, *, width: int = 1280, script: bool = True, **how: Any) -> Iterator[Visit]:
    """A browser's page that has this site and nothing else."""
    context = browser.new_context(viewport={"width": width, "height": 800}, java_script_enabled=script, **how)
    try:
        if script:
            context.add_init_script(SHIFTS)
        visit = Visit(context.new_page())

        def answer(route: Route) -> None:
            address, _, query = route.request.url.partition("?")
            asked = {name: value for name, _, value in (part.partition("=") for part in query.split("&")) if value}
            name = address.removeprefix(f"{ORIGIN}/")
            body = site.read(name or "index.html", asked) if address.startswith(f"{ORIGIN}/") else None
            if name == "events":
                route.fulfill(status=204)  # so that a browser does not ask again
            elif body is None:
                visit.wrong.append(f"{visit.page.url} asks for {route.request.url}")
                route.abort()
            else:
                media = mimetypes.guess_type(name)[0] or "application/octet-stream"
                route.fulfill(body=body, content_type=f"{media}; charset=utf-8" if media.startswith("text") else media)

        context.route("**/*", answer)
        visit.page.on("console", visit.heard)
        visit.page.on("pageerror", lambda error: visit.wrong.append(f"{visit.page.url}: {error}"))
        yield visit
    finally:
        context.close()
