"""A run: each epoch that is over, counted for each linked participant in each repository that has no evidence yet. SPEC 2.4.

- A repository is read whole, or nothing is written about it: then it is an error of this run, and nobody's zero.
- Records are of epochs that are over, by GitHub's clock. One reading serves all of them.
- What was written stays. Where GitHub now tells another history of an epoch that has its record, the run says so.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from assay.errors import BadInput
from assay.exact import canonical
from assay.judge import entries, keeping
from assay.judge.entries import Entries, Written
from assay.judge.issues import accounts, kept, linking, reading, rules, shown
from assay.judge.issues.accounts import Link
from assay.judge.issues.answers import Unread
from assay.judge.issues.cache import Cache
from assay.judge.issues.client import GitHub, Stopped
from assay.judge.issues.counting import Counts, counts
from assay.judge.issues.linking import Linked, Links
from assay.judge.issues.lookup import TOKEN
from assay.judge.issues.reading import Facts
from assay.judge.issues.rules import Rules
from assay.judge.running import Event, Options, Stop, Summary, stopping
from assay.records import Evidence, Points
from assay.scheme import read as read_scheme
from assay.scheme.model import PointsScore

__all__ = ["Cell", "run"]

RECORDS = 200_000
"""Records of one run."""
_SAID = 5
"""How many of many things a sentence names."""


@dataclass(frozen=True)
class Cell:
    """One record to be: a participant in a repository and an epoch; or, without these, GitHub, which is read for all."""

    participant: str
    repository: str = ""
    epoch: int | None = None

    @property
    def parts(self) -> Mapping[str, str]:
        """Repository and epoch, as far as there are any."""
        said = {"repository": self.repository, "epoch": "" if self.epoch is None else str(self.epoch)}
        return {name: value for name, value in said.items() if value}


_GITHUB = Cell("GitHub")


@dataclass(frozen=True)
class _Result:
    outcome: str
    reason: str = ""
    message: str = ""


@dataclass(frozen=True)
class _Done:
    """A record of this validator that is there."""

    cell: Cell
    counted: tuple[int, int, int, int]


@dataclass
class _Run:
    """What a run has at hand."""

    entries: Entries
    score: PointsScore
    rules: Rules
    links: Sequence[Link]
    options: Options
    tell: Callable[[Event], None]
    stop: Stop
    summary: Summary = field(default_factory=lambda: Summary(0, unit="record", submission="account"))
    done: dict[Cell, tuple[int, int, int, int]] = field(default_factory=dict)

    def judge(self, written: Written[_Done]) -> None:
        self.done = {one.cell: one.counted for one in written.done}
        folder = kept.root(self.entries.folder, self.entries.validator)
        token = os.environ.get(TOKEN, "")
        cache = Cache(folder / "cache")
        began = Event("began", _GITHUB)

        def again(why: str, seconds: float) -> None:
            self.tell(Event("again", _GITHUB, record=_Result("error", message=why), seconds=seconds))
            self.tell(began)

        with GitHub(
            self.rules.github.api, token, cache, self.stop, attempts=self.options.attempts, delay=self.options.delay, tell=again
        ) as github:
            self.tell(began)
            found = linking.check(github, self.links, self.entries.scheme.name, self._phase)
            self._unlinked(found)
            if github.date is None:
                raise Unread(f"GitHub cannot be read: {next(iter(found.unread.values()), 'no account is linked')}")
            wanted = self._wanted(found.linked, list(self.rules.epochs.over(github.date)))
            missing = [cell for cell in wanted if cell not in self.done]
            self.summary.planned = len(missing)
            self.summary.epoch = max((cell.epoch or 0 for cell in wanted), default=self.rules.epochs.first)
            self.tell(Event("planned", count=len(missing), done=len(wanted) - len(missing)))
            by_name = {name: [cell for cell in missing if cell.repository == name] for name in self.score.repositories}
            for name, cells in by_name.items():
                if cells:
                    self._repository(github, name, cells, found.linked)
            if all(by_name.values()) and not self.summary.errors and not self.options.participants:
                cache.drop_unused()

    def _repository(self, github: GitHub, name: str, cells: Sequence[Cell], linked: Mapping[str, Linked]) -> None:
        path = kept.place(self.entries.folder, self.entries.validator, name)
        try:
            before = kept.read(path)
            facts = reading.read(
                github,
                name,
                self.rules.repositories[name],
                {one.account for one in linked.values()},
                before.known if before else (),
                stars=self.score.star_points > 0 and self.score.star_max > 0,
                phase=lambda what: self._phase(f"{name}: {what}"),
            )
            told = kept.told(facts, linked, self.entries.validator, self.rules, before)
            kept.write(path, told)
            counted = {key: counts(facts.issues, one.account, self.rules) for key, one in linked.items()}
            self._write(facts, cells, counted, linked)
        except (Unread, OSError) as error:
            self.summary.errors.append((Cell("all", name), str(error)))
            self.tell(Event("ended", Cell("all", name), record=_Result("error", message=str(error))))
            return
        self._remark(told, counted)

    def _write(
        self, facts: Facts, cells: Sequence[Cell], counted: Mapping[str, Mapping[int, Counts]], linked: Mapping[str, Linked]
    ) -> None:
        """Adds the repository's records to the evidence, all in one go."""
        lines, ended = [], []
        for cell in cells:
            epoch, here = cell.epoch or 0, counted[cell.participant].get(cell.epoch or 0, Counts())
            since = facts.stars.get(linked[cell.participant].account)
            record = Points(
                kind="points",
                epoch=epoch,
                validator=self.entries.validator,
                participant=cell.participant,
                submission="",
                observed_at=facts.at,
                repository=cell.repository,
                valid=here.valid,
                invalid=here.invalid,
                revoked_valid=here.revoked_valid,
                revoked_invalid=here.revoked_invalid,
                starred=since is not None and since < self.rules.epochs.end(epoch),
            )
            lines.append(canonical(record.document()) + b"\n")
            ended.append(Event("ended", cell, record=_Result("counted", _words(record))))
        keeping.append(keeping.evidence_file(self.entries.folder, self.entries.validator), b"".join(lines))
        self.summary.outcomes["counted"] += len(cells)
        for event in ended:
            self.tell(event)

    def _wanted(self, linked: Mapping[str, Linked], over: Sequence[int]) -> list[Cell]:
        """The records that there should be: of the epochs that are over and asked for, of those that are this validator's."""
        epochs = [epoch for epoch in over if epoch >= (self.options.since or 0)]
        if self.options.epoch is not None and self.options.epoch != self.options.since:
            epochs = [epoch for epoch in epochs if epoch == self.options.epoch]
            if not epochs:
                end = self.rules.epochs.wait
                what = f"epoch {self.options.epoch} is not over, or none of {rules.FILE}"
                raise BadInput(
                    what, field="epoch", hint=f"it is judged {end} s after its end; leave it out for all that are over"
                )
        here = [one for one in self.entries.participants if one.key in linked]
        first = epochs[0] if epochs else self.rules.epochs.first
        mine = here if self.options.everybody else entries.drawn(self.entries, here, {}, first)
        self.summary.others = tuple(one.key for one in here if one not in mine)
        if (records := len(mine) * len(epochs) * len(self.score.repositories)) > RECORDS:
            what = f"there are {records} records to be made, and a run makes {RECORDS}"
            raise BadInput(what, field="epochs", hint="judge an epoch at a time: --epoch")
        return [Cell(one.key, name, epoch) for epoch in epochs for name in self.score.repositories for one in mine]

    def _unlinked(self, found: Links) -> None:
        """Says whose accounts are not linked, and keeps those that could not be read as errors."""
        for participant, why in found.unread.items():
            self.summary.errors.append((Cell(participant, "account"), why))
        for participant, why in found.refused.items():
            self.summary.remarks.append(f"No account is linked for {participant}: {why}")
        named = {link.participant for link in self.links}
        without = [one.key for one in self.entries.participants if one.key not in named]
        if without and not self.options.participants:
            self.summary.remarks.append(f"Not in {accounts.ACCOUNTS.name}: {_several(without)}.")

    def _remark(self, told: kept.Kept, counted: Mapping[str, Mapping[int, Counts]]) -> None:
        """Says what counts for nothing, and where an epoch that has its record would now come out in another way."""
        strange = Counter(one.event.by or "somebody who is gone" for issue in told.issues for one in issue.ignored)
        if strange:
            names = _several([f"{name} ({count})" for name, count in sorted(strange.items())])
            self.summary.remarks.append(f"{told.repository}: labels that count for nothing, by {names}.")
        for what, numbers in (
            ("deleted or moved away; what they counted stays", [one.number for one in told.issues if one.gone]),
            ("came from another repository, and count nowhere", [one.number for one in told.issues if one.moved]),
        ):
            if numbers:
                self.summary.remarks.append(f"{told.repository}: {what}: {_several([f'#{number}' for number in numbers])}.")
        for cell, before in sorted(self.done.items(), key=lambda one: (one[0].participant, one[0].epoch or 0)):
            if cell.repository == told.repository and cell.participant in counted:
                now = counted[cell.participant].get(cell.epoch or 0, Counts())
                if (now.valid, now.invalid, now.revoked_valid, now.revoked_invalid) != before:
                    what = f"GitHub tells epoch {cell.epoch} of {cell.participant} otherwise now; its record stays"
                    self.summary.remarks.append(f"{told.repository}: {what}.")

    def _phase(self, what: str) -> None:
        self.tell(Event("phase", _GITHUB, phase=what))


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
    said = rules.read(competition, scheme.score)
    links = accounts.read(competition, [one.key for one in who.participants])
    if options.participants:
        links = tuple(link for link in links if link.participant in options.participants)
    if not links:
        raise BadInput("links nobody", file=competition / accounts.ACCOUNTS.name, hint="`assay issues link` makes a statement")
    root = kept.root(competition, validator)
    with keeping.held(root, validator), stopping() as stop:
        going = _Run(who, scheme.score, said, links, options, on_event, stop)
        try:
            keeping.mend(keeping.evidence_file(competition, validator))
        except OSError as error:
            raise BadInput(f"cannot be written ({error.strerror})", file=competition / "evidence") from None
        try:
            going.judge(entries.written(who, _done))
        except Stopped:
            going.summary.stopped = True
            on_event(Event("stopping"))
    going.summary.table = shown.rows(shown.lines(competition, validator, options.participants))
    return going.summary


def _done(one: Evidence) -> _Done:
    assert isinstance(one, Points)
    return _Done(
        Cell(one.participant, one.repository, one.epoch), (one.valid, one.invalid, one.revoked_valid, one.revoked_invalid)
    )


def _words(one: Points) -> str:
    """What a record says, for people: "5 valid, 1 invalid, starred"."""
    parts = [f"{one.valid} valid", f"{one.invalid} invalid"]
    parts += [f"{one.revoked_valid} valid revoked"] if one.revoked_valid else []
    parts += [f"{one.revoked_invalid} invalid revoked"] if one.revoked_invalid else []
    return ", ".join([*parts, *(["starred"] if one.starred else [])])


def _several(names: Iterable[str]) -> str:
    """The first few names of many."""
    listed = list(names)
    return ", ".join(listed[:_SAID]) + (f" and {len(listed) - _SAID} more" if len(listed) > _SAID else "")
