"""The run of the issues judge: each epoch that is over is counted, for each linked participant in each repository. SPEC 2.4.

- A repository is read whole, or nothing is written about it: then it is an error of this run, and never scored as zero.
- Records are of epochs that are over, by GitHub's clock. One reading serves all of them.
- A written record stays. If GitHub now tells another history of an epoch that has its record, the run says so.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar

from assay.errors import BadInput
from assay.exact import canonical
from assay.judge import entries, run_files
from assay.judge.entries import Entries, Written
from assay.judge.github import accounts, counting, reading, rules, stored
from assay.judge.github.accounts import TOKEN, CheckedLinks, LinkedAccount
from assay.judge.github.client import AnswerCache, GitHub, Unread
from assay.judge.github.counting import IssueCounts, PlannedRecord, count_issues
from assay.judge.github.reading import RepositoryFacts
from assay.judge.github.stored import FourCounts, StoredReading
from assay.judge.judge_run import JudgeRun
from assay.judge.running import Judged, RunEvent, RunOptions, RunStopped, RunSummary, Tell, quiet
from assay.records import Evidence, Points
from assay.scheme.load import read as read_scheme
from assay.scheme.model import PointsScore

_GITHUB = PlannedRecord("GitHub")


def run(competition: Path, validator: str, options: RunOptions | None = None, on_event: Tell = quiet) -> RunSummary:
    """Counts what is missing; raises BadInput, RunBusy, and Unread where nothing can be read. The token is GITHUB_TOKEN's."""
    return _IssuesRun(competition, validator, options, on_event).carry_out()


class _IssuesRun(JudgeRun[PlannedRecord, Judged]):
    """A repository is judged at once, so this run plans by what GitHub says, and has a loop of its own."""

    unit: ClassVar[str] = "record"
    submission: ClassVar[str] = "account"

    def open(self) -> Entries:
        path = self.competition / "scheme.toml"
        scheme = read_scheme(path)
        if not isinstance(scheme.score, PointsScore):
            what = f"is {scheme.score.kind!r}, and issues are judged for points"
            raise BadInput(what, file=path, field="score.kind", hint='use kind = "points"')
        self.score = scheme.score
        self.entries = entries.read(self.competition, scheme, self.validator, self.options.participants)
        self.rules = rules.read_rules(self.competition, scheme.score)
        self.links = accounts.read_links(self.competition, [participant.key for participant in self.entries.participants])
        if not self.links:
            file = self.competition / accounts.ACCOUNTS_FILE.name
            raise BadInput("has no linked account", file=file, hint="`assay issues link` makes a statement")
        self.done: dict[PlannedRecord, FourCounts] = {}
        return self.entries

    def lock(self) -> AbstractContextManager[int]:
        return run_files.held(stored.validator_folder(self.competition, self.validator), self.validator)

    def saw(self, record: Evidence) -> None:
        assert isinstance(record, Points)  # evidence of another kind was refused
        counts = (record.valid, record.invalid, record.revoked_valid, record.revoked_invalid)
        self.done[PlannedRecord(record.participant, record.repository, record.epoch)] = counts

    def go(self, written: Written[tuple[object, ...]]) -> None:
        try:
            self._read_all(written)
        except RunStopped:
            self.stopped()
        self.summary.table = stored.table_rows(stored.count_lines(self.competition, self.validator, self.options.participants))

    def _read_all(self, written: Written[tuple[object, ...]]) -> None:
        """Reads the links, then each repository of which records are missing."""
        cache = AnswerCache(stored.validator_folder(self.competition, self.validator) / "cache")
        before = {name: stored.load_reading(self._place(name)) for name in self.score.repositories}
        api, attempts, delay = self.rules.github.api, self.options.attempts, self.options.delay
        token = os.environ.get(TOKEN, "")
        with GitHub(api, token, cache, self.stop, attempts=attempts, delay=delay, tell=self._again) as github:
            self.tell(RunEvent("began", _GITHUB))
            known = {account.participant: account.account for past in before.values() if past for account in past.accounts}
            checked = accounts.check_links(github, self.links, self.entries.scheme.name, known, self._phase)
            missing = self._planned_records(checked, github, written.done)
            by_name = {name: [cell for cell in missing if cell.repository == name] for name in self.score.repositories}
            for name, mine in by_name.items():
                if mine:
                    self._repository(github, name, mine, checked.linked, before[name])
            if all(by_name.values()) and not self.summary.errors:
                cache.drop_unused()

    def _planned_records(self, checked: CheckedLinks, github: GitHub, done: frozenset[tuple[object, ...]]) -> list[PlannedRecord]:
        """The missing records; remarks name the participants without a link. Raises Unread if GitHub answered nothing."""
        asked = self.options.participants
        for participant, why in checked.unread.items():
            if not asked or participant in asked:
                self.summary.errors.append((PlannedRecord(participant, "account"), why))
        everybody = [participant for participant in self.entries.participants if not asked or participant.key in asked]
        self.summary.remarks += stored.unlinked_remarks(checked, self.links, everybody)
        if github.date is None and checked.unread:
            raise Unread(f"GitHub cannot be read: {next(iter(checked.unread.values()))}")
        if github.date is None:  # it has answered, and nobody is linked
            return []
        over = counting.finished_epochs(self.rules.epochs, github.date, self.options)
        mine = counting.assigned_participants(self.entries, checked.linked, over, self.options)
        self.summary.others = tuple(
            participant.key for participant in everybody if participant.key in checked.linked and participant not in mine
        )
        wanted = counting.plan_records(mine, checked.linked, list(self.score.repositories), over, self.rules.epochs)
        self.summary.epoch = max((cell.epoch for cell in wanted), default=self.rules.epochs.first)
        return list(self.planned(wanted, done))

    def _repository(
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
                {person.account for person in linked.values()},
                before.known if before else (),
                stars=self.score.star_points > 0 and self.score.star_max > 0,
                phase=lambda what: self._phase(f"{name}: {what}"),
            )
            new_reading = stored.make_reading(facts, linked, self.validator, self.rules, before)
            stored.write_reading(self._place(name), new_reading)
            counted = {key: count_issues(facts.issues, account.account, self.rules) for key, account in linked.items()}
            self._write(facts, missing, counted, linked)
        except (Unread, OSError) as error:
            self.missing(PlannedRecord("all", name), Judged("error", message=str(error)))
            return
        self.summary.remarks += [*stored.reading_remarks(new_reading), *stored.changed_history_remarks(name, self.done, counted)]

    def _write(
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
                validator=self.validator,
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
            ended.append(RunEvent("ended", cell, record=Judged("counted", stored.count_text(record))))
        run_files.append(self.evidence_file, b"".join(lines))
        self.summary.outcomes["counted"] += len(missing)
        for event in ended:
            self.tell(event)

    def _place(self, repository: str) -> Path:
        """The file of a repository's reading."""
        return stored.reading_file(self.competition, self.validator, repository)

    def _phase(self, what: str) -> None:
        """Tells what is read."""
        self.tell(RunEvent("phase", _GITHUB, phase=what))

    def _again(self, why: str, seconds: float) -> None:
        """Tells what is tried again, and when."""
        self.tell(RunEvent("again", _GITHUB, record=Judged("error", message=why), seconds=seconds))
        self.tell(RunEvent("began", _GITHUB))
