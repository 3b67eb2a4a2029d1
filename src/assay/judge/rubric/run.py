"""The run of the rubric judge: every solution that has no evidence yet is judged by a model, several at a time. SPEC 2.3.

- Requests to the model service are tried again by the service's client, so a solution is begun once.
- After the scoring deadline nothing is judged: it could not count.
- If the bounty has an enclave, the enclave judges: there are no plain solutions here.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from assay.errors import BadInput
from assay.exact import text
from assay.judge import entries, service
from assay.judge.cell_queue import Attempt, Report
from assay.judge.entries import Entries
from assay.judge.judge_run import JudgeRun
from assay.judge.rubric import asking, stored
from assay.judge.rubric.asking import Models, Price, SolutionJudge, parse_prices
from assay.judge.rubric.judgement import LIMITS, JudgeLimits, Judgement, JudgingCost, TokenUsage, why_fallback
from assay.judge.rubric.solution import Solution
from assay.judge.rubric.station import SolutionSettings
from assay.judge.rubric.stored import JUDGEMENTS, JudgementStore, digest_hex, document_of, transcript_key
from assay.judge.running import Judged, RunEvent, RunOptions, RunSummary, Tell, quiet
from assay.judge.service import ModelAccess
from assay.judge.stations import Errand, Heard, Needs, StationSpec
from assay.ledger import keys
from assay.records import Evidence, Participant, Rubric
from assay.scheme.bounty import Bounty, read_bounty
from assay.scheme.fields import instant_text
from assay.scheme.load import BOUNTY
from assay.scheme.reading import present
from assay.settle.story.telling import named, plural

_LONGEST = 6 * 3600.0
"""Seconds of one solution on another machine; the requests have bounds of their own."""
_WAITING = 0.25
"""Cores that a judge takes while it waits for its model."""


@dataclass(frozen=True)
class RubricOptions:
    """`running.RunOptions.own` of this judge."""

    model: ModelAccess | None = None
    """The model that answers a rubric."""
    primary: str | None = None
    fallback: str | None = None
    """The service's names for the two models of a bounty, where they differ from the bounty's."""
    prices: Mapping[str, Price] = field(default_factory=dict)
    """By the name that the service is asked for."""
    again: bool = False
    """Judge again what was left unjudged."""
    rate: int | None = None
    """Most requests a minute of all nodes together, where several ask; None: as many as the service takes."""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> RubricOptions:
        """The options from the command line, by `kind.Option.key`; the service's key is in the environment."""
        return cls(
            model=service.of_judges(os.environ, values["model_url"]),
            primary=values["model"],
            fallback=values["fallback"],
            prices=parse_prices(values["price"] or ()),
            again=values.get("again", False),
            rate=service.rate(os.environ, "ASSAY_LLM_RATE"),
        )


@dataclass(frozen=True)
class SolutionCell:
    """One solution to be judged."""

    participant: str
    submission: str
    parts: dict[str, str] = field(default_factory=dict, hash=False, compare=False)

    @property
    def key(self) -> tuple[object, ...]:
        """See `running.Cell`."""
        return (self.submission,)


@dataclass(frozen=True)
class _RubricOutcome(Judged):
    """The outcome of one solution, with the judgement, if there is one."""

    judgement: Judgement | None = None


@dataclass
class _JudgementTally:
    """The cost of the judgements for the summary, and the participants that the fallback model judged."""

    milliseconds: list[int] = field(default_factory=list)
    missing: int = 0
    """Solutions that ended without a judgement after they were asked about: what they took is in the sums."""
    usage: TokenUsage = field(default_factory=TokenUsage)
    cost: int | None = 0
    suspected: list[str] = field(default_factory=list)
    fallbacks: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """The fallback model, and why it was asked → the participants."""

    def add(self, participant: str, judgement: Judgement) -> None:
        """Add a stored judgement."""
        if judgement.measured is not None:
            self.milliseconds.append(judgement.measured.milliseconds)
            self._add(judgement.measured)
        if judgement.injection_suspected:
            self.suspected.append(participant)
        if judgement.fallback is not None:
            why = why_fallback(judgement.document()) + (f": {judgement.words}" if judgement.words else "")
            self.fallbacks.setdefault((str(judgement.model), why), []).append(participant)

    def add_missing(self, measured: JudgingCost) -> None:
        """Add the cost of one that ended without a judgement."""
        if measured.tries:
            self.missing += 1
            self._add(measured)

    def _add(self, judging_cost: JudgingCost) -> None:
        self.usage += judging_cost.usage
        self.cost = None if self.cost is None or judging_cost.cost is None else self.cost + judging_cost.cost

    def remarks(self) -> list[str]:
        """The sums, and notable facts about the judging."""
        sentences = list(self._sums())
        for (model, why), participants in sorted(self.fallbacks.items()):
            whom = f"{plural(len(participants), 'solution')} ({named(sorted(participants), 8)})"
            sentences.append(f"The fallback model {model} judged {whom}, because {why}.")
        if self.suspected:
            sentences.append(f"Signs that a solution speaks to its judge: {', '.join(sorted(self.suspected))}.")
        return sentences

    def _sums(self) -> Iterator[str]:
        count = len(self.milliseconds)
        asked = count + self.missing
        if not asked:
            return
        average = ""
        if count:
            mean, longest = sum(self.milliseconds) // count, max(self.milliseconds)
            average = f"A judgement took {text(mean, 3)} s on average, {text(longest, 3)} s at most. "
        among = f", {self.missing} of which ended without a judgement" if self.missing else ""
        total = self.usage.total
        if total is None:
            took = "how many tokens that took is not known, as the service did not tell of every request"
        else:
            took = f"that took {total} tokens, {total // asked} each"
        if self.cost is not None:
            cost = f"It cost {text(self.cost, 6)} in all."
        elif total is None:
            cost = "So what it cost is not known."
        else:
            cost = "What it cost is not known: --price says what a model's tokens cost."
        yield f"{average}{plural(asked, 'solution')} {'was' if asked == 1 else 'were'} asked about{among}; {took}. {cost}"


def run(
    competition: Path,
    validator: str,
    options: RunOptions | None = None,
    on_event: Tell = quiet,
    *,
    limits: JudgeLimits = LIMITS,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> RunSummary:
    """Judges what is missing; raises BadInput and RunBusy before anything is judged."""
    return _RubricRun(competition, validator, options, on_event, limits=limits, now=now).carry_out()


class _RubricRun(JudgeRun[SolutionCell, _RubricOutcome]):
    unit: ClassVar[str] = "solution"
    submission: ClassVar[str] = "solution"
    retries: ClassVar[bool] = False

    def __init__(
        self,
        competition: Path,
        validator: str,
        options: RunOptions | None,
        on_event: Tell,
        *,
        limits: JudgeLimits,
        now: Callable[[], datetime],
    ) -> None:
        super().__init__(competition, validator, options, on_event)
        self.limits, self.now = limits, now
        self.tally = _JudgementTally()
        self.attestations: list[str] = []
        """Of the judgements that are evidence already."""

    def open(self) -> Entries:
        self.bounty = _bounty(self.competition)
        seen = entries.read(self.competition, self.bounty.scheme, self.validator, self.options.participants)
        self.here, self.summary.absent = _here(seen, self.options)
        self.handed_in = {participant.submission: participant for participant in self.here}
        self.own = self.options.own or RubricOptions()
        self.models = models_of(self.bounty, self.own)
        own, sponsor = transcript_key(make=True).public, self.bounty.terms.sponsor
        to = [own] if sponsor is None else [keys.sealing(sponsor), own]
        self.store = JudgementStore(self.competition, self.validator, self.bounty.digest, list(dict.fromkeys(to)))
        return seen

    def lock(self) -> AbstractContextManager[int]:
        return self.store.lock()

    def clear(self) -> None:
        self.store.clear()
        if self.own.again:
            if present(self.competition / "ledger.toml"):
                hint = "the first judgement of a solution counts"
                raise BadInput("evidence that a ledger has accepted cannot be replaced", field="--again", hint=hint)
            self.store.forget_unjudged()

    def saw(self, record: Evidence) -> None:
        assert isinstance(record, Rubric)  # evidence of another kind was refused
        if record.attestation is not None:
            self.attestations.append(record.attestation)

    def check(self, wanted: Sequence[Participant], done: frozenset[tuple[object, ...]]) -> None:
        """Refuse to go on with judgements of another bounty than this: a sponsor changed it since. Raises BadInput."""
        for attestation in self.attestations:
            if (self.competition / JUDGEMENTS / f"{digest_hex(attestation)}.json").exists():
                judged = document_of(self.competition, attestation).get("bounty")
                if judged != self.bounty.digest:
                    what = f"is another bounty ({self.bounty.digest}) than was judged before"
                    hint = f"it was {judged}: get that back, or judge this one in a folder of its own"
                    raise BadInput(what, file=self.bounty.file, hint=hint)
        self.done = {str(submission) for (submission,) in done}

    def recover(self, missing: Iterable[SolutionCell]) -> list[tuple[object, ...]]:
        return [(submission,) for submission in self.store.recover(self.done)]

    def cells(self, wanted: Sequence[Participant]) -> list[SolutionCell]:
        return [SolutionCell(participant.key, participant.submission) for participant in wanted]

    def work(self, cells: Collection[SolutionCell]) -> None:
        _check_time(self.bounty, self.now())
        self.cell_of = {cell.submission: cell for cell in cells}
        super().work(cells)

    @asynccontextmanager
    async def service(self) -> AsyncIterator[None]:
        assert self.bounty.problem is not None  # `_bounty` saw to it
        async with asking.open_judge(self.bounty, self.bounty.problem, self.models, self._heard, self.limits) as judge:
            self.solution_judge: SolutionJudge = judge
            yield

    async def judge(self, cell: SolutionCell) -> _RubricOutcome:
        judgement = await self.solution_judge(self._solution(cell))
        return _RubricOutcome(judgement.outcome, _reason(judgement), judgement=judgement)

    def _solution(self, cell: SolutionCell) -> Solution:
        solution = stored.find_solution(self.competition, self.handed_in[cell.submission])
        if solution is None:
            raise BadInput("the solution is not here any more", hint="hand it in again, or get the file back")
        return solution

    def station(self) -> StationSpec:
        assert self.bounty.problem is not None  # `_bounty` saw to it
        settings = SolutionSettings(self.bounty, self.bounty.problem, self.models, self.limits)
        rate = None if self.own.model is None else self.own.rate
        return StationSpec("assay.judge.rubric.station:SolutionStation", settings, rate)

    def errand(self, attempt: Attempt[SolutionCell]) -> Errand:
        return Errand(self._solution(attempt.cell), _LONGEST, Needs(cpus=_WAITING))

    def report(self, attempt: Attempt[SolutionCell], heard: Heard) -> Report[SolutionCell, _RubricOutcome]:
        cell, reply = attempt.cell, heard.reply
        if heard.trouble:
            return Report(cell, self.failed(cell, heard.trouble), final=heard.final)
        for measured in reply.missing:
            self.tally.add_missing(measured)
        if reply.judgement is None:
            return Report(cell, self.failed(cell, reply.trouble))
        return Report(cell, _RubricOutcome(reply.judgement.outcome, _reason(reply.judgement), judgement=reply.judgement))

    def _heard(self, event: asking.JudgeProgress) -> None:
        """Shows how far one has come."""
        if event.measured is not None:
            self.tally.add_missing(event.measured)
        if event.phase:
            words = (event.phase, "" if event.kind == "asking" else event.kind, event.detail, event.words)
            self.tell(RunEvent("phase", self.cell_of[event.submission], phase=" ".join(word for word in words if word)))

    def keep(self, cell: SolutionCell, result: _RubricOutcome) -> None:
        assert result.judgement is not None  # it is no error
        at = self.now()
        _check_time(self.bounty, at)
        self.store.add(result.judgement, participant=cell.participant, epoch=self.summary.epoch, at=at)
        self.tally.add(cell.participant, result.judgement)

    def failed(self, cell: SolutionCell, why: str) -> _RubricOutcome:
        return _RubricOutcome("error", message=why)

    def not_kept(self, cell: SolutionCell, result: _RubricOutcome, why: str) -> _RubricOutcome:
        if result.judgement is not None and result.judgement.measured is not None:
            self.tally.add_missing(result.judgement.measured)
        return self.failed(cell, f"the judgement could not be kept: {why}")

    def remarks(self) -> list[str]:
        return self.tally.remarks()


def models_of(bounty: Bounty, options: RubricOptions) -> Models:
    """The service and what it calls the bounty's models; raises BadInput where none is named, or a model by another name."""
    if options.model is None:
        raise BadInput(
            "no model is named that could judge",
            field="--model-url",
            hint="give the address of an OpenAI-compatible service, or set ASSAY_LLM_BASE_URL; its key is ASSAY_LLM_API_KEY",
        )
    models = Models(options.model.base_url, options.model.key, options.primary, options.fallback, options.prices)
    models.settings(bounty, LIMITS)
    return models


def _bounty(competition: Path) -> Bounty:
    file = competition / BOUNTY
    if (competition / "scheme.toml").exists() and not file.exists():
        hint = "a solution is judged by the problem in it; `assay init --preset agonaut DIR` makes one to start from"
        raise BadInput("no such file", file=file, hint=hint)
    bounty = read_bounty(competition)
    if bounty.enclave is not None or bounty.problem is None:
        what = "solutions are sealed, and an enclave judges them"
        hint = "`assay enclave serve` judges, inside the enclave; `assay enclave collect` brings what came of it"
        raise BadInput(what, file=file, field="enclave" if bounty.enclave is not None else "problem", hint=hint)
    return bounty


def _check_time(bounty: Bounty, now: datetime) -> None:
    until = None if bounty.scheme.payout is None else bounty.scheme.payout.scoring_deadline
    if until is not None and now > until:
        what = f"is past ({instant_text(until)}): what is judged now could not count"
        raise BadInput(what, file=bounty.file, field="payout.scoring_deadline", hint="settle without: assay settle")


def _here(seen: Entries, options: RunOptions) -> tuple[list[Participant], tuple[str, ...]]:
    """Participants whose submission counts and whose solution is here, and the keys of those whose is not; raises BadInput."""
    wanted = [
        participant
        for participant in entries.judgeable(seen)
        if not options.participants or participant.key in options.participants
    ]
    here = [participant for participant in wanted if stored.find_solution(seen.folder, participant) is not None]
    absent = tuple(participant.key for participant in wanted if participant not in here)
    if not here:
        raise BadInput(
            "no participant has a solution here" + (f": {', '.join(absent[:5])} have none" if absent else ""),
            file=seen.folder / "participants.csv",
            hint="assay submit DIR PARTICIPANT SOLUTION puts one in its place",
        )
    return here, absent


def _reason(judgement: Judgement) -> str:
    """The text of a progress line: the verdict or the reason for none; the tokens and their cost."""
    parts = [judgement.verdict or judgement.reason or "baseline not met"]
    if judgement.measured is not None:
        usage, cost = judgement.measured.usage, judgement.measured.cost
        parts.append("tokens unknown" if usage.total is None else f"{usage.total} tokens")
        parts += [] if cost is None else [text(cost, 6)]
    if judgement.fallback is not None:
        parts.append(f"by the fallback model ({judgement.fallback})")
    if judgement.injection_suspected:
        parts.append("injection suspected")
    return ", ".join(parts)
