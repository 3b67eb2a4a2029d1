"""The five kinds of SPEC 2, each as one object: what they have of their own, and where it is. See `assay.kind`.

Nothing of a kind is imported before it is asked for: a verifier needs no judge, and a judge no board.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from assay.judge.kind_options import (
    ADDRESS,
    AGAIN,
    CALIBRATE,
    ENV,
    FALLBACK,
    MODEL,
    MODEL_URL,
    PRICE,
    REUSE,
    RUNTIME,
    SANDBOX,
    TASK,
    TASKS,
    WHERE,
)
from assay.kind import Json, Kind, Option, ParquetReader, SubmitResult

if TYPE_CHECKING:
    from datetime import datetime

    from assay.records import Record
    from assay.scheme.model import ScoreRules
    from assay.settle.columns import Columns, RecordColumn, StandingRecords
    from assay.settle.inputs import Bools, Frame, Scored
    from assay.settle.settlement import Settlement
    from assay.settle.story.telling import Chapter, Subject

__all__ = ["GIVEN", "POINTS", "RUBRIC", "TESTS", "WORKFLOW"]
_BOXES = (SANDBOX, WHERE, ADDRESS, RUNTIME, REUSE, TASK, TASKS, ENV)
_TASKS = tuple(f"task-{number:02}" for number in range(1, 13))
"""Of samples."""


class _ArrayKind(Kind):
    """A kind whose records are read and scored as arrays. Its classes are named after it: `Tests` and `TestsScore` of tests."""

    @property
    def rules(self) -> type[ScoreRules]:
        from assay.scheme import model

        return cast("type[ScoreRules]", getattr(model, f"{self.name.title()}Score"))

    @property
    def record(self) -> type[Record]:
        from assay import records

        return cast("type[Record]", getattr(records, self.name.title()))

    @property
    def parquet(self) -> ParquetReader:
        from assay.folder import rows

        return rows

    def score(self, records: Sequence[Any], frame: Frame, rules: Any) -> Scored:
        from assay.settle.score import by_columns

        return by_columns(self, records, frame, rules)


class _TaskKind(_ArrayKind):
    """A kind whose judge tries tasks in sandboxes."""

    options: ClassVar[tuple[Option, ...]] = _BOXES

    def settings(self, values: Mapping[str, Any]) -> Any:
        from assay.judge.kind_options import TaskOptions

        return TaskOptions.of(values)


class _SubmittedAgents(Kind):
    """A kind whose submissions are agents."""

    def files(self, folder: Path, submission: str) -> Path | None:
        from assay.judge.terminal.competition import agent_of
        from assay.records import Participant

        agent = agent_of(folder, Participant("", submission=submission))
        return None if agent is None else agent.folder

    def submit(
        self, folder: Path, participant: str, given: str, epoch: int | None, *, at: datetime | None = None
    ) -> SubmitResult:
        from assay.judge.terminal.agent import BUILT_IN, is_folder
        from assay.judge.terminal.competition import submit_agent

        done = submit_agent(folder, participant, given, at=at, epoch=epoch)
        own = done.agent.name in BUILT_IN or is_folder(given)
        name = f"{done.agent.name} {done.agent.version}" if own else f"The command {given!r}"
        return SubmitResult(name, done.agent.digest, done.changed, done.epoch)


class _AgentKind(_SubmittedAgents, _TaskKind):
    """A kind whose agents may ask a model, after each task was calibrated."""

    options: ClassVar[tuple[Option, ...]] = (*_BOXES, CALIBRATE, MODEL_URL)

    def has(self, folder: Path, submission: str) -> bool:
        from assay.judge.terminal.competition import is_here

        return is_here(folder, submission)

    def put(self, folder: Path, submission: str, source: Path) -> None:
        from assay.judge.terminal.competition import put_agent

        put_agent(folder, source, submission)

    def cautions(self, settings: Any) -> Iterator[str]:
        model = settings.model
        if model is not None and not model.names:  # one that is always refused buys an error instead of a fail
            what = "agents may name any model of the service: one that is always at its limit turns a fail into an error"
            yield f"{what}; set ASSAY_MODEL_NAMES to the models that this account may use"


class _TestsKind(_AgentKind):
    """The share of tasks passed. SPEC 2.1."""

    name: ClassVar[str] = "tests"
    fields: ClassVar[Mapping[str, str]] = {
        "task": "an id of `tasks.txt`",
        "outcome": "`pass`, `fail`, `timeout` (a fail), or `error`: not the participant's fault, so the trial is missing",
        "trial": "1, 2, … as far as the scheme's `trials`; left out it is 1",
    }

    @property
    def parquet(self) -> ParquetReader:
        from assay.folder import bulk

        return bulk

    def columns(self, rules: Any) -> tuple[RecordColumn, ...]:
        from assay.settle.score.trials import COLUMNS

        return COLUMNS

    def tally(self, standing: StandingRecords, frame: Frame, rules: Any) -> Scored:
        from assay.settle.score.trials import counted

        return counted(standing, frame, rules)

    def tallied(self, rules: Any) -> bool:
        return not rules.scores_jointly()  # which needs to know the tasks

    def counts(self, value: Json, tasks: frozenset[str], rules: Any) -> tuple[int, ...]:
        from assay.settle.score.standing import tests_counts

        return tests_counts(value, tasks, rules)

    def scored(self, sums: Mapping[tuple[int, int], Sequence[int]], frame: Frame, rules: Any, first: Mapping[str, int]) -> Scored:
        from assay.settle.score.standing import tests_scored

        return tests_scored(sums, frame, rules, first)

    def trials(self, rules: Any) -> int | None:
        return cast("int", rules.trials)

    def kept(self, folder: Path, record: Any) -> Mapping[str, Path]:
        from assay.judge.terminal.record import kept

        return kept(folder, record)

    def saw(self, work: Json) -> str:
        return f"{work['passed']} of {work['trials']} passed"

    def failing(self, settlement: Settlement, subject: Subject, records: Sequence[Any]) -> Chapter | None:
        from assay.settle.story.agreement import tests

        return tests(settlement, subject, records)

    def enough(self, subject: Subject, value: int) -> tuple[tuple[str, ...], Json]:
        from assay.settle.story.weights import trials_enough

        return trials_enough(subject, value)

    def work_schema(self) -> Json:
        from assay.conformance.schema_parts import COUNT, closed

        return closed({"passed": COUNT, "trials": COUNT})

    def sample(self, rules: Any, judge: int, level: int) -> Iterator[Json]:
        passes = (9, 7, 3)[level] - (judge == 1 and level == 1)
        for at, task in enumerate(_TASKS):
            for trial in range(1, rules.trials + 1):
                yield {"task": task, "trial": trial, "outcome": "pass" if at < passes else "timeout" if at == 11 else "fail"}

    def sample_files(self, rules: Any) -> dict[str, str]:
        return {"tasks.txt": "".join(f"{task}\n" for task in _TASKS)}

    def standings(self, settlement: Settlement) -> Mapping[str, Any] | None:
        from assay.uncertainty import standings

        return None if settlement.inputs.scheme.score.scores_jointly() else standings(settlement)

    def doubts(self, rules: Any) -> str | None:
        if rules.scores_jointly():
            return 'with passed_by = "all" a score is no share of trials'
        return "there are too many records, or only sums of them"

    def notes(self, settlement: Settlement, folder: Path) -> Iterator[str]:
        from assay.serve.telling import weaker_tasks

        return weaker_tasks(settlement, folder)

    def about(self, settlement: Settlement, folder: Path, participant: str) -> Json:
        from assay.serve.telling import sick_tasks

        return sick_tasks(folder, settlement, participant)

    def sentences(self, about: Json) -> Iterator[str]:
        from assay.serve.telling import sick_tasks_in_words

        return sick_tasks_in_words(about)

    def look(self, folder: Path, participant: str) -> tuple[str, tuple[str | Path, ...]] | None:
        if not ((folder / "trials").is_dir() or (folder / "ledger.toml").exists()):
            return None
        return "Its trials, one by one", ("assay", "trials", folder, "--participant", participant)


class _WorkflowKind(_TaskKind):
    """Success, cost, latency and reliability over a window of tasks. SPEC 2.2."""

    name: ClassVar[str] = "workflow"
    judges = "workflows"
    shared: ClassVar[tuple[str, ...]] = ("round.toml",)
    fields: ClassVar[Mapping[str, str]] = {
        "task": "the task's id",
        "quality`, `steps_completed`, `steps_total": "how good the output is (0 to 1), and how far the workflow came",
        "cost`, `budget`, `seconds`, `max_seconds": "what it took and what it was allowed",
        "retries`, `declared_retries`, `timeouts`, `hard_failures": "what went wrong on the way",
        "outcome": "`ran` (default), `invalid` (no answer or an invalid plan: 0), `service-error` (the validator's own trouble)",
    }

    @property
    def parquet(self) -> ParquetReader:
        from assay.folder import scores

        return scores

    def columns(self, rules: Any) -> tuple[RecordColumn, ...]:
        from assay.settle.score.workflow import COLUMNS

        return COLUMNS

    def wrong(self, columns: Columns, present: Mapping[str, Bools]) -> Bools | None:
        from assay.settle.score.workflow import wrong

        return wrong(columns, present)

    def tally(self, standing: StandingRecords, frame: Frame, rules: Any) -> Scored:
        from assay.settle.score.workflow import counted

        return counted(standing, frame, rules)

    def spoils(self, value: Json) -> tuple[Any, ...] | None:
        from assay.settle.score.standing import workflow_spoilt

        return workflow_spoilt(value)

    def lasting(self, values: Sequence[Json], rules: Any, spoilt: Container[tuple[Any, ...]]) -> Sequence[Json]:
        from assay.settle.score.standing import workflow_lasting

        return workflow_lasting(values, rules, spoilt)

    def has_tasks(self, folder: Path, rules: Any) -> bool:
        from assay.judge.workflow.tasks import LIST
        from assay.scheme.reading import present

        return present(folder / LIST)  # evidence from elsewhere needs none

    def files(self, folder: Path, submission: str) -> Path | None:
        from assay.judge.workflow.competition import planner_of
        from assay.records import Participant

        planner = planner_of(folder, Participant("", submission=submission))
        return None if planner is None else planner.folder

    def put(self, folder: Path, submission: str, source: Path) -> None:
        from assay.judge.workflow.competition import put_planner

        put_planner(folder, source, submission)

    def saw(self, work: Json) -> str:
        return f"mean of {work['tasks']} {'task' if work['tasks'] == 1 else 'tasks'}"

    def failing(self, settlement: Settlement, subject: Subject, records: Sequence[Any]) -> Chapter | None:
        from assay.settle.story.agreement import workflow_tasks

        return workflow_tasks(settlement, subject, records)

    def work_schema(self) -> Json:
        from assay.conformance.schema_parts import COUNT, closed

        return closed({"tasks": COUNT})

    def sample(self, rules: Any, judge: int, level: int) -> Iterator[Json]:
        from assay.judge.samples import workflow_sample

        return workflow_sample(_TASKS[:4], level)

    def submit(
        self, folder: Path, participant: str, given: str, epoch: int | None, *, at: datetime | None = None
    ) -> SubmitResult:
        from assay.judge.workflow.competition import submit_plans

        plans = submit_plans(folder, participant, Path(given), at=at, epoch=epoch)
        return SubmitResult(f"{plans.planner.name} {plans.planner.version}", plans.planner.digest, plans.changed, plans.epoch)


class _RubricKind(_ArrayKind):
    """A baseline gate, weighted checks and a verdict. SPEC 2.3."""

    name: ClassVar[str] = "rubric"
    judges = "solutions"
    in_bps: ClassVar[bool] = True
    beside: ClassVar[str] = "bounty.toml"
    archive_bytes: ClassVar[int] = 4_000_000
    jobs: ClassVar[int] = 8
    options: ClassVar[tuple[Option, ...]] = (WHERE, ADDRESS, MODEL_URL, MODEL, FALLBACK, PRICE, AGAIN)
    fields: ClassVar[Mapping[str, str]] = {
        "baseline": "B1 legal, B2 ethical, B3 not spam, B4 addresses the problem; `true` = met",
        "checks": "every check of the scheme by its id, `true` = YES",
        "verdict": "EXCEPTIONAL, ELEGANT, COHERENT, MINOR_ISSUES, FLAWED or FUNDAMENTALLY_BROKEN",
        "outcome": "`judged` (default), or `unjudged` where the judge failed",
    }

    def columns(self, rules: Any) -> tuple[RecordColumn, ...]:
        from assay.settle.score.rubric import columns

        return columns(rules)

    def tally(self, standing: StandingRecords, frame: Frame, rules: Any) -> Scored:
        from assay.settle.score.rubric import counted

        return counted(standing, frame, rules)

    def remarks(self, rules: Any) -> Iterator[str]:
        from assay.settle.story.judgements import remarks

        return remarks(rules)

    def files(self, folder: Path, submission: str) -> Path | None:
        from assay.judge.rubric.stored import find_solution, solution_file
        from assay.records import Participant

        place = find_solution(folder, Participant("", submission=submission))
        return None if place is None else solution_file(folder, submission)

    def put(self, folder: Path, submission: str, source: Path) -> None:
        from assay.judge.rubric.stored import put_solution

        put_solution(folder, submission, source)

    def saw(self, work: Json) -> str:
        from assay.settle.story.judgements import saw

        return saw(work)

    def failing(self, settlement: Settlement, subject: Subject, records: Sequence[Any]) -> Chapter | None:
        from assay.settle.story.judgements import rubric

        return rubric(settlement, subject, records)

    def work_schema(self) -> Json:
        from assay.conformance.schema_parts import BPS, COUNT, FLAG, TEXT, closed, or_null

        answers = {"base": BPS, "missed_skippable": BPS, "verdict": or_null(TEXT)}
        panel = {"votes": COUNT, "flips": COUNT}
        return closed(answers | {"gate": FLAG, "capped": FLAG, "bps": BPS} | panel, optional=tuple(panel))

    def sample(self, rules: Any, judge: int, level: int) -> Iterator[Json]:
        from assay.judge.samples import rubric_sample

        return rubric_sample(rules, level)

    def settings(self, values: Mapping[str, Any]) -> Any:
        from assay.judge.rubric.run import RubricOptions

        return RubricOptions.of(values)

    def sample_rules(self, text: str) -> dict[str, str]:
        from assay.judge.samples import bounty_files

        return bounty_files(text)

    def submit(
        self, folder: Path, participant: str, given: str, epoch: int | None, *, at: datetime | None = None
    ) -> SubmitResult:
        from assay.judge.rubric.stored import submit_solution

        solution = submit_solution(folder, participant, Path(given), at=at, epoch=epoch)
        return SubmitResult("The solution", solution.solution.digest, solution.changed, solution.epoch)

    def notes(self, settlement: Settlement, folder: Path) -> Iterator[str]:
        from assay.serve.telling import about_judgements

        return about_judgements(settlement, folder)

    def about(self, settlement: Settlement, folder: Path, participant: str) -> Json:
        from assay.serve.telling import judging

        return judging(folder, settlement, participant)

    def sentences(self, about: Json) -> Iterator[str]:
        from assay.serve.telling import judging_in_words

        return judging_in_words(about)


class _PointsKind(_SubmittedAgents, _ArrayKind):
    """Points for valid issues and starred repositories. SPEC 2.4."""

    name: ClassVar[str] = "points"
    judges = "issues"
    shared: ClassVar[tuple[str, ...]] = ("issues.toml", "accounts.csv")
    fractions: ClassVar[frozenset[str]] = frozenset({"points"})
    fields: ClassVar[Mapping[str, str]] = {
        "repository": "`owner/name`, as in the scheme",
        "valid`, `invalid": "issues of this epoch",
        "revoked_valid`, `revoked_invalid": "issues of earlier epochs that are so no longer",
        "starred": "whether the participant stars the repository",
    }

    def columns(self, rules: Any) -> tuple[RecordColumn, ...]:
        from assay.settle.score.points import COLUMNS

        return COLUMNS

    def tally(self, standing: StandingRecords, frame: Frame, rules: Any) -> Scored:
        from assay.settle.score.points import counted

        return counted(standing, frame, rules)

    def saw(self, work: Json) -> str:
        points = f"{work['points']} {'point' if work['points'] == '1' else 'points'}"
        return f"{work['valid']} valid, {work['invalid']} invalid, {work['starred']} starred: {points}"

    def work_schema(self) -> Json:
        from assay.conformance.schema_parts import COUNT, FRACTION, closed

        return closed({"valid": COUNT, "invalid": COUNT, "starred": COUNT, "points": FRACTION})

    def sample(self, rules: Any, judge: int, level: int) -> Iterator[Json]:
        for repository in rules.repositories:
            yield {"repository": repository, "valid": (9, 5, 1)[level], "invalid": (1, 0, 2)[level], "starred": level < 2}

    def sample_files(self, rules: Any) -> dict[str, str]:
        from assay.judge.samples import issues_files

        return issues_files(rules)


class _GivenKind(_AgentKind):
    """A score that arrives already computed. SPEC 2.5."""

    name: ClassVar[str] = "given"
    fields: ClassVar[Mapping[str, str]] = {"score": "0 to 1"}

    def columns(self, rules: Any) -> tuple[RecordColumn, ...]:
        from assay.settle.score.points import GIVEN_COLUMNS

        return GIVEN_COLUMNS

    def tally(self, standing: StandingRecords, frame: Frame, rules: Any) -> Scored:
        from assay.settle.score.points import counted_given

        return counted_given(standing, frame, rules)

    def lasting(self, values: Sequence[Json], rules: Any, spoilt: Container[tuple[Any, ...]]) -> Sequence[Json]:
        from assay.settle.score.standing import given_lasting

        return given_lasting(values)

    def saw(self, work: Json) -> str:
        return f"given in epoch {work['epoch']}"

    def work_schema(self) -> Json:
        from assay.conformance.schema_parts import EPOCH, closed

        return closed({"epoch": EPOCH})

    def sample(self, rules: Any, judge: int, level: int) -> Iterator[Json]:
        yield {"score": ("0.9", "0.7", "0.2")[level]}


TESTS, WORKFLOW, RUBRIC, POINTS, GIVEN = _TestsKind(), _WorkflowKind(), _RubricKind(), _PointsKind(), _GivenKind()
