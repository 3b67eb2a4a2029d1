"""A run: each epoch that is over, counted for each linked participant in each repository that has no evidence yet. SPEC 2.4.

- A repository is read whole, or nothing is written about it: then it is an error of this run, and nobody's zero.
- Records are of epochs that are over, by GitHub's clock. One reading serves all of them.
- What was written stays. Where GitHub now tells another history of an epoch that has its record, the run says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from assay.errors import BadInput
from assay.exact import canonical
from assay.judge import entries, keeping
from assay.judge.entries import Entries
from assay.judge.github import accounts, counting, reading, rules, stored
from assay.judge.github.accounts import TOKEN, AccountLink, CheckedLinks, LinkedAccount
from assay.judge.github.client import AnswerCache, GitHub, ReadingStopped, Unread
from assay.judge.github.counting import IssueCounts, PlannedRecord, count_issues
from assay.judge.github.reading import RepositoryFacts
from assay.judge.github.rules import IssueRules
from assay.judge.github.stored import FourCounts, StoredReading
from assay.judge.running import Event, Options, Stop, Summary, stopping
from assay.records import Evidence, Points
from assay.scheme.load import read as read_scheme
from assay.scheme.model import PointsScore

_GITHUB = PlannedRecord("GitHub")


@dataclass(frozen=True)
class _Result:
    outcome: str
    reason: str = ""
    message: str = ""


@dataclass
class _Run:
    """The state of a run. done: the existing records of this validator."""

    entries: Entries
    score: PointsScore
    rules: IssueRules
    links: Sequence[AccountLink]
    options: Options
    tell: Callable[[Event], None]
    stop: Stop
    done: Mapping[PlannedRecord, FourCounts]
    summary: Summary = field(default_factory=lambda: Summary(0, unit="record", submission="account"))

    def judge(self) -> None:
        """Reads the links, then each repository of which records are missing."""
        cache = AnswerCache(stored.validator_folder(self.entries.folder, self.entries.validator) / "cache")
        before = {name: stored.load_reading(self.place(name)) for name in self.score.repositories}
        api, attempts, delay = self.rules.github.api, self.options.attempts, self.options.delay
        token = os.environ.get(TOKEN, "")
        with GitHub(api, token, cache, self.stop, attempts=attempts, delay=delay, tell=self.again) as github:
            self.tell(Event("began", _GITHUB))
            known = {one.participant: one.account for found in before.values() if found for one in found.accounts}
            found = accounts.check_links(github, self.links, self.entries.scheme.name, known, self.phase)
            missing = self.plan(found, github)
            by_name = {name: [cell for cell in missing if cell.repository == name] for name in self.score.repositories}
            for name, mine in by_name.items():
                if mine:
                    self.repository(github, name, mine, found.linked, before[name])
            if all(by_name.values()) and not self.summary.errors:
                cache.drop_unused()

    def plan(self, found: CheckedLinks, github: GitHub) -> list[PlannedRecord]:
        """The missing records; remarks name the participants without a link. Raises Unread if GitHub answered nothing."""
        asked = self.options.participants
        for participant, why in found.unread.items():
            if not asked or participant in asked:
                self.summary.errors.append((PlannedRecord(participant, "account"), why))
        everybody = [one for one in self.entries.participants if not asked or one.key in asked]
        self.summary.remarks += stored.unlinked_remarks(found, self.links, everybody)
        if github.date is None and found.unread:
            raise Unread(f"GitHub cannot be read: {next(iter(found.unread.values()))}")
        if github.date is None:  # it has answered, and nobody is linked
            return []
        over = counting.finished_epochs(self.rules.epochs, github.date, self.options)
        mine = counting.assigned_participants(self.entries, found.linked, over, self.options)
        self.summary.others = tuple(one.key for one in everybody if one.key in found.linked and one not in mine)
        wanted = counting.plan_records(mine, found.linked, list(self.score.repositories), over, self.rules.epochs)
        missing = [cell for cell in wanted if cell not in self.done]
        self.summary.planned = len(missing)
        self.summary.epoch = max((cell.epoch for cell in wanted), default=self.rules.epochs.first)
        self.tell(Event("planned", count=len(missing), done=len(wanted) - len(missing)))
        return missing

    def repository(
        self,
        github: GitHub,
        name: str,
        missing: Sequence[PlannedRecord],
        linked: Mapping[str, LinkedAccount],
        before: StoredReading | None,
    ) -> None:
        """Reads a repository whole and writes its records, or neither."""
        try:
            facts = reading.read_repository(
                github,
                name,
                self.rules.repositories[name],
                {one.account for one in linked.values()},
                before.known if before else (),
                stars=self.score.star_points > 0 and self.score.star_max > 0,
                phase=lambda what: self.phase(f"{name}: {what}"),
            )
            told = stored.make_reading(facts, linked, self.entries.validator, self.rules, before)
            stored.write_reading(self.place(name), told)
            counted = {key: count_issues(facts.issues, one.account, self.rules) for key, one in linked.items()}
            self.write(facts, missing, counted, linked)
        except (Unread, OSError) as error:
            self.summary.errors.append((PlannedRecord("all", name), str(error)))
            self.tell(Event("ended", PlannedRecord("all", name), record=_Result("error", message=str(error))))
            return
        self.summary.remarks += [*stored.reading_remarks(told), *stored.changed_history_remarks(name, self.done, counted)]

    def write(
        self,
        facts: RepositoryFacts,
        missing: Sequence[PlannedRecord],
        counted: Mapping[str, Mapping[int, IssueCounts]],
        linked: Mapping[str, LinkedAccount],
    ) -> None:
        """Adds the repository's records to the evidence, all in one go; raises OSError."""
        lines, ended = [], []
        for cell in missing:
            here, since = (
                counted[cell.participant].get(cell.epoch, IssueCounts()),
                facts.stars.get(linked[cell.participant].account),
            )
            record = Points(
                kind="points",
                epoch=cell.epoch,
                validator=self.entries.validator,
                participant=cell.participant,
                submission="",
                observed_at=facts.at,
                repository=cell.repository,
                valid=here.valid,
                invalid=here.invalid,
                revoked_valid=here.revoked_valid,
                revoked_invalid=here.revoked_invalid,
                starred=since is not None and since < self.rules.epochs.end(cell.epoch),
            )
            lines.append(canonical(record.document()) + b"\n")
            ended.append(Event("ended", cell, record=_Result("counted", stored.count_text(record))))
        keeping.append(keeping.evidence_file(self.entries.folder, self.entries.validator), b"".join(lines))
        self.summary.outcomes["counted"] += len(missing)
        for event in ended:
            self.tell(event)

    def place(self, repository: str) -> Path:
        """The file of a repository's reading."""
        return stored.reading_file(self.entries.folder, self.entries.validator, repository)

    def phase(self, what: str) -> None:
        """Tells what is read."""
        self.tell(Event("phase", _GITHUB, phase=what))

    def again(self, why: str, seconds: float) -> None:
        """Tells what is tried again, and when."""
        self.tell(Event("again", _GITHUB, record=_Result("error", message=why), seconds=seconds))
        self.tell(Event("began", _GITHUB))


def run(
    competition: Path, validator: str, options: Options | None = None, on_event: Callable[[Event], None] = lambda _event: None
) -> Summary:
    """Counts what is missing; raises BadInput, Busy, and Unread where nothing can be read at all. The token is GITHUB_TOKEN's."""
    options = options or Options()
    options.check()
    path = competition / "scheme.toml"
    scheme = read_scheme(path)
    if not isinstance(scheme.score, PointsScore):
        what = f"is {scheme.score.kind!r}, and issues are judged for points"
        raise BadInput(what, file=path, field="score.kind", hint='use kind = "points"')
    who = entries.read(competition, scheme, validator, options.participants)
    said = rules.read_rules(competition, scheme.score)
    links = accounts.read_links(competition, [one.key for one in who.participants])
    if not links:
        raise BadInput(
            "links nobody", file=competition / accounts.ACCOUNTS_FILE.name, hint="`assay issues link` makes a statement"
        )
    with keeping.held(stored.validator_folder(competition, validator), validator), stopping() as stop:
        try:
            keeping.mend(keeping.evidence_file(competition, validator))
        except OSError as error:
            raise BadInput(f"cannot be written ({error.strerror})", file=competition / "evidence") from None
        done = dict(entries.written(who, _done).done)
        going = _Run(who, scheme.score, said, links, options, on_event, stop, done)
        try:
            going.judge()
        except ReadingStopped:
            going.summary.stopped = True
            on_event(Event("stopping"))
    going.summary.table = stored.table_rows(stored.count_lines(competition, validator, options.participants))
    return going.summary


def _done(one: Evidence) -> tuple[PlannedRecord, FourCounts]:
    assert isinstance(one, Points)
    return PlannedRecord(one.participant, one.repository, one.epoch), (
        one.valid,
        one.invalid,
        one.revoked_valid,
        one.revoked_invalid,
    )
