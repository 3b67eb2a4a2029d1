"""A run of the rubric judge: every solution that has no evidence of this validator yet is judged, several at a time. SPEC 2.3.

- What is judged or unjudged is on the disk before it counts; a run that is stopped or killed goes on where it was.
- The world's trouble (no service, no answer, a full disk) leaves a solution missing. It is no evidence, and nobody's zero.
- After the scoring deadline nothing is judged: it could not count.
- Where the bounty has an enclave, the enclave judges: there are no plain solutions here.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from assay.errors import AssayError, BadInput
from assay.exact import text
from assay.judge import entries
from assay.judge.entries import Entries
from assay.judge.rubric import asking, stored
from assay.judge.rubric.asking import Models, Price
from assay.judge.rubric.judgement import LIMITS, JudgeLimits, Judgement, JudgingCost, TokenUsage, why_fallback
from assay.judge.rubric.stored import JUDGEMENTS, JudgementStore, digest_hex, document_of, transcript_key
from assay.judge.running import Event, Options, Stop, Summary, stopping
from assay.ledger import keys
from assay.records import Evidence, Participant, Rubric
from assay.scheme.bounty import Bounty, read_bounty
from assay.scheme.fields import instant_text
from assay.scheme.load import BOUNTY
from assay.scheme.reading import present
from assay.settle.story.telling import named, plural

_TICK = 0.1
"""Seconds between two looks at whether somebody wants the end."""


@dataclass(frozen=True)
class Cell:
    """One solution to be judged."""

    participant: str
    submission: str
    parts: dict[str, str] = field(default_factory=dict, hash=False, compare=False)


@dataclass(frozen=True)
class Outcome:
    """The outcome of one solution."""

    outcome: str
    reason: str = ""
    message: str = ""


@dataclass
class _Tally:
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

    def _add(self, found: JudgingCost) -> None:
        self.usage += found.usage
        self.cost = None if self.cost is None or found.cost is None else self.cost + found.cost

    def remarks(self) -> list[str]:
        """The sums, and notable facts about the judging."""
        said = list(self._sums())
        for (model, why), participants in sorted(self.fallbacks.items()):
            whom = f"{plural(len(participants), 'solution')} ({named(sorted(participants), 8)})"
            said.append(f"The fallback model {model} judged {whom}, because {why}.")
        if self.suspected:
            said.append(f"Signs that a solution speaks to its judge: {', '.join(sorted(self.suspected))}.")
        return said

    def _sums(self) -> Iterator[str]:
        count = len(self.milliseconds)
        asked = count + self.missing
        if not asked:
            return
        said = ""
        if count:
            mean, longest = sum(self.milliseconds) // count, max(self.milliseconds)
            said = f"A judgement took {text(mean, 3)} s on average, {text(longest, 3)} s at most. "
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
        yield f"{said}{plural(asked, 'solution')} {'was' if asked == 1 else 'were'} asked about{among}; {took}. {cost}"


def run(
    competition: Path,
    validator: str,
    options: Options | None = None,
    on_event: Callable[[Event], None] = lambda _event: None,
    *,
    limits: JudgeLimits = LIMITS,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Summary:
    """Judges what is missing; raises BadInput and Busy before anything is judged.

    Ctrl-C and SIGTERM end it cleanly, if it runs in the main thread: the summary then says `stopped`.
    """
    options = options or Options()
    options.check()
    bounty = _bounty(competition)
    seen = entries.read(competition, bounty.scheme, validator, options.participants)
    here, absent = _here(seen, options)
    models = models_of(bounty, options)
    own = transcript_key(make=True).public
    sponsor = [] if bounty.terms.sponsor is None else [keys.sealing(bounty.terms.sponsor)]
    keep = JudgementStore(competition, validator, bounty.digest, list(dict.fromkeys([*sponsor, own])))
    with keep.lock(), stopping() as stop:
        if options.again:
            _again(keep)
        found = entries.written(seen, _about)
        recovered = keep.recover({submission for submission, _ in found.done})
        if recovered:
            on_event(Event("kept", count=len(recovered)))
        _check_same_bounty(bounty, competition, [attestation for _, attestation in found.done if attestation is not None])
        done, epoch = {submission for submission, _ in found.done} | set(recovered), found.of(options.epoch)
        wanted = here if options.everybody else entries.drawn(seen, here, found.first, epoch)
        missing = [one for one in wanted if one.submission not in done]
        on_event(Event("planned", count=len(missing), done=len(wanted) - len(missing)))
        others = tuple(one.key for one in here if one not in wanted)
        summary = Summary(len(missing), absent=absent, others=others, epoch=epoch, unit="solution", submission="solution")
        if missing:
            _check_time(bounty, now())
            going = _Run(seen, bounty, models, keep, options, on_event, summary, stop, limits, now)
            going.judge(missing)
        return summary


def models_of(bounty: Bounty, options: Options) -> Models:
    """The service and what it calls the bounty's models; raises BadInput where none is named, or a model by another name."""
    if options.model is None:
        raise BadInput(
            "no model is named that could judge",
            field="--model-url",
            hint="give the address of an OpenAI-compatible service, or set ASSAY_LLM_BASE_URL; its key is ASSAY_LLM_API_KEY",
        )
    prices = {name: Price(*price) for name, price in options.prices.items()}
    models = Models(options.model.base_url, options.model.key, options.primary, options.fallback, prices)
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


def _here(seen: Entries, options: Options) -> tuple[list[Participant], tuple[str, ...]]:
    """Participants whose submission counts and whose solution is here, and the keys of those whose is not; raises BadInput."""
    wanted = [one for one in entries.counting(seen.participants) if not options.participants or one.key in options.participants]
    here = [one for one in wanted if stored.find_solution(seen.folder, one) is not None]
    absent = tuple(one.key for one in wanted if one not in here)
    if not here:
        raise BadInput(
            "no participant has a solution here" + (f": {', '.join(absent[:5])} have none" if absent else ""),
            file=seen.folder / "participants.csv",
            hint="assay submit DIR PARTICIPANT SOLUTION puts one in its place",
        )
    return here, absent


def _about(found: Evidence) -> tuple[str, str | None]:
    assert isinstance(found, Rubric)  # evidence of another kind was refused
    return found.submission, found.attestation


def _check_same_bounty(bounty: Bounty, competition: Path, attestations: list[str]) -> None:
    """Refuse to go on with judgements of another bounty than this: a sponsor changed it since. Raises BadInput."""
    for attestation in attestations:
        if (competition / JUDGEMENTS / f"{digest_hex(attestation)}.json").exists():
            judged = document_of(competition, attestation).get("bounty")
            if judged != bounty.digest:
                hint = f"it was {judged}: get that back, or judge this one in a folder of its own"
                raise BadInput(f"is another bounty ({bounty.digest}) than was judged before", file=bounty.file, hint=hint)


def _again(keep: JudgementStore) -> None:
    if present(keep.competition / "ledger.toml"):
        raise BadInput("what a ledger has accepted stands", field="--again", hint="the first judgement of a solution counts")
    keep.forget_unjudged()


@dataclass
class _Run:
    """The state of a run."""

    seen: Entries
    bounty: Bounty
    models: Models
    keep: JudgementStore
    options: Options
    on_event: Callable[[Event], None]
    summary: Summary
    stop: Stop
    limits: JudgeLimits
    now: Callable[[], datetime]
    tally: _Tally = field(default_factory=_Tally)

    def judge(self, missing: list[Participant]) -> None:
        """Judge all of them, until none is left or the run is stopped."""
        self.cells = {one.submission: Cell(one.key, one.submission) for one in missing}
        self.begun: set[str] = set()
        self.over: set[str] = set()
        asyncio.run(self._all(missing))
        self.summary.outcomes = Counter(sorted(self.summary.outcomes.elements()))
        self.summary.errors.sort(key=lambda row: row[0].participant.encode())
        self.summary.remarks += self.tally.remarks()

    async def _all(self, missing: list[Participant]) -> None:
        going = asyncio.ensure_future(self._judged(missing))
        while not going.done():
            await asyncio.wait([going], timeout=_TICK)
            if self.stop.asked and not going.done():
                self.summary.stopped = True
                self.on_event(Event("stopping"))
                going.cancel()
                await asyncio.wait([going])
        if not going.cancelled():
            going.result()

    async def _judged(self, missing: list[Participant]) -> None:
        assert self.bounty.problem is not None  # `_bounty` saw to it
        read = (solution for one in missing if (solution := stored.find_solution(self.seen.folder, one)) is not None)
        found = await asking.judge_all(
            self.bounty,
            self.bounty.problem,
            read,
            self.models,
            jobs=self.options.jobs,
            on_event=self.heard,
            on_done=lambda solution, found: self.ended(solution.digest, found),
            limits=self.limits,
        )
        for submission, one in found.items():
            if submission not in self.over:  # it was not even begun
                self.ended(submission, one)

    def heard(self, event: asking.JudgeProgress) -> None:
        """Shows how far one has come."""
        cell = self.cells[event.submission]
        if event.submission not in self.begun:
            self.begun.add(event.submission)
            self.on_event(Event("began", cell))
        if event.measured is not None:
            self.tally.add_missing(event.measured)
        if event.phase:
            said = (event.phase, "" if event.kind == "asking" else event.kind, event.detail, event.words)
            self.on_event(Event("phase", cell, phase=" ".join(one for one in said if one)))

    def ended(self, submission: str, found: Judgement | AssayError) -> None:
        """Store the outcome of one; if it cannot be stored it is missing, as if it could not be judged."""
        cell = self.cells[submission]
        self.over.add(submission)
        if not isinstance(found, Judgement):
            self._missing(cell, str(found))
            return
        try:
            at = self.now()
            _check_time(self.bounty, at)
            self.keep.add(found, participant=cell.participant, epoch=self.summary.epoch, at=at)
        except (OSError, BadInput) as error:
            if found.measured is not None:
                self.tally.add_missing(found.measured)
            self._missing(cell, f"the judgement could not be kept: {error}")
            return
        self.summary.outcomes[found.outcome] += 1
        self.tally.add(cell.participant, found)
        self.on_event(Event("ended", cell, record=Outcome(found.outcome, _reason(found))))

    def _missing(self, cell: Cell, why: str) -> None:
        self.summary.errors.append((cell, why))
        self.on_event(Event("ended", cell, record=Outcome("error", message=why)))


def _reason(found: Judgement) -> str:
    """The text of a progress line: the verdict or the reason for none; the tokens and their cost."""
    said = [found.verdict or found.reason or "baseline not met"]
    if found.measured is not None:
        usage, cost = found.measured.usage, found.measured.cost
        said.append("tokens unknown" if usage.total is None else f"{usage.total} tokens")
        said += [] if cost is None else [text(cost, 6)]
    if found.fallback is not None:
        said.append(f"by the fallback model ({found.fallback})")
    if found.injection_suspected:
        said.append("injection suspected")
    return ", ".join(said)
