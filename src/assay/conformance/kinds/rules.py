"""Kinds of case for what the room `rules` decides or tells: duels, margins, the health of tasks. SPEC 7; docs/margins.md."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import Field

from assay.conformance.kinds.stages import kind
from assay.errors import BadInput
from assay.records import Participant, Tests, Validator
from assay.rules import duel as duels
from assay.rules.margin import margins
from assay.rules.task_health import TrialCount
from assay.rules.task_health import task_health as health_of
from assay.scheme.fields import Digest, Key, Rao, Section
from assay.scheme.model import Consensus, Duel, Payout, Scheme
from assay.scheme.reading import validate
from assay.settle import Settlement, pipeline
from assay.settle.inputs import Inputs

__all__ = ["board_of", "duel", "margin", "task_health"]

Json = dict[str, Any]
_Outcome = Literal["pass", "fail", "timeout", "error"]
START = datetime(2026, 1, 1, tzinfo=UTC)


class _DuelTrial(Section):
    task: Key
    trial: Annotated[int, Field(ge=1, le=10_000)] = 1
    challenger: _Outcome | None = None
    king: _Outcome | None = None


class _Duel(Section):
    duel: Duel
    receipt: Digest
    challenger: Key
    king: Key
    tasks: Annotated[tuple[Key, ...], Field(strict=False, min_length=1, max_length=10_000)]
    trials: Annotated[int, Field(ge=1, le=10_000)] = 1
    challengers: Annotated[int, Field(ge=1, le=10_000)] = 1
    results: Annotated[tuple[_DuelTrial, ...], Field(strict=False)] = ()


@kind(_Duel)
def duel(given: _Duel) -> Json:
    """A duel by the [duel] section: the submissions of both, the receipt that its order is drawn from, how many challengers share
    alpha, and outcomes of trials: the path as far as they go, the winner and by what, or the pair that is waited for. SPEC 7."""
    if len(set(given.tasks)) != len(given.tasks):
        raise BadInput("a task is there twice", field="tasks", hint="keep one of the two")
    pairs = [(row.task, row.trial) for row in given.results]
    if len(set(pairs)) != len(pairs):
        raise BadInput("a trial is there twice", field="results", hint="keep one of the two")
    along = duels.order(
        given.tasks, given.trials, bytes.fromhex(given.receipt.removeprefix("sha256:")), given.challenger, given.king
    )
    sides: tuple[dict[duels.Pair, bool], dict[duels.Pair, bool]] = ({}, {})
    for row, pair in zip(given.results, pairs, strict=True):
        for side, outcome in zip(sides, (row.challenger, row.king), strict=True):
            if outcome not in (None, "error"):
                side[pair] = outcome == "pass"
    course = duels.decide(len(along), duels.outcomes(along, *sides), given.duel, given.challengers)
    return duels.document(along, course)


class _Seen(Section):
    passed: Annotated[int, Field(ge=0, le=64)]
    missing: Annotated[int, Field(ge=0, le=64)] = 0


class _Judged(Section):
    key: Key
    seen: dict[Key, _Seen]


class _StakedValidator(Section):
    key: Key
    stake: Rao


class _Margin(Section):
    consensus: Consensus = Consensus()
    payout: Payout | None = None
    trials: Annotated[int, Field(ge=1, le=64)]
    validators: Annotated[tuple[_StakedValidator, ...], Field(strict=False, min_length=1, max_length=8)]
    participants: Annotated[tuple[_Judged, ...], Field(strict=False, min_length=1, max_length=8)]


@kind(_Margin)
def margin(given: _Margin) -> Json:
    """A board of kind tests, participants in the order of their submissions, and how many of so many trials each validator saw
    pass: the fewest flips, the fewest missing trials, and the least lying stake that change each verdict; null if none does."""
    least_changes = margins(_settled(given))
    wide = [least for least in least_changes.found if not least.exact]
    if wide:
        raise BadInput("the least is not known", field=wide[0].way, hint="use a smaller board")
    names = dict.fromkeys(least.verdict for least in least_changes.found)
    rows = {
        name: {
            least.way: str(least.at_least) if least.way == "stake" and least.at_least is not None else least.at_least
            for least in least_changes.found
            if least.verdict == name
        }
        for name in names
    }
    return {"verdicts": rows}


def board_of(document: Json) -> Settlement:
    """The settlement of such a board; raises BadInput if it is wrong."""
    return _settled(validate(_Margin, document))


def _settled(given: _Margin) -> Settlement:
    return pipeline.settle(_inputs(given))


def _inputs(given: _Margin) -> Inputs:
    kind = "ranking" if given.payout is None else "payout"
    sections: Json = {"scheme": {"name": "margin"}, "score": {"kind": "tests"}, "reward": {"kind": kind}}
    scheme = Scheme.model_validate(sections | {"consensus": given.consensus, "payout": given.payout})
    for field, rows in (("validators", given.validators), ("participants", given.participants)):
        if len({row.key for row in rows}) < len(rows):
            raise BadInput("a key is there twice", field=field, hint="keep one of the two")
    known = {row.key for row in given.validators}
    records = []
    for participant in given.participants:
        for validator, seen in participant.seen.items():
            if validator not in known or seen.passed + seen.missing > given.trials or seen.missing == given.trials:
                what = f"{validator!r} cannot have seen that of {participant.key!r}"
                raise BadInput(what, field="participants", hint="name a validator, and leave it out if it saw no trial")
            records += [
                _record(participant.key, validator, number, "pass" if number < seen.passed else "fail")
                for number in range(given.trials - seen.missing)
            ]
    return Inputs(
        scheme=scheme,
        epoch=0,
        participants=tuple(
            Participant(key=row.key, uid=at + 1, name="", submission=row.key, submitted_at=START + timedelta(seconds=at))
            for at, row in enumerate(given.participants)
        ),
        validators=tuple(Validator(key=row.key, stake=row.stake, name="") for row in given.validators),
        evidence=records,
        tasks=tuple(f"t{number}" for number in range(given.trials)),
    )


def _record(participant: str, validator: str, number: int, outcome: str) -> Tests:
    return Tests.model_validate(
        {
            "kind": "tests",
            "epoch": 0,
            "validator": validator,
            "participant": participant,
            "submission": participant,
            "observed_at": START,
            "task": f"t{number}",
            "outcome": outcome,
        }
    )


class _TaskTrials(Section):
    task: Key
    participant: Key
    outcomes: Annotated[tuple[_Outcome, ...], Field(strict=False, max_length=10_000)]


class _TaskHealth(Section):
    tasks: Annotated[tuple[Key, ...], Field(strict=False, min_length=1, max_length=10_000)]
    results: Annotated[tuple[_TaskTrials, ...], Field(strict=False)]


@kind(_TaskHealth)
def task_health(given: _TaskHealth) -> Json:
    """The health of each task from the outcomes of its trials: exact counts, and the words dead, flaky, never-separating and
    negative. docs/task-health.md."""
    if len(set(given.tasks)) != len(given.tasks):
        raise BadInput("a task is there twice", field="tasks", hint="keep one of the two")
    rows = {(row.task, row.participant): row.outcomes for row in given.results}
    if len(rows) != len(given.results):
        raise BadInput("a participant's trials of a task are there twice", field="results", hint="put them into one list")
    if not {task for task, _ in rows} <= set(given.tasks):
        raise BadInput("there are results of a task that is not named", field="results", hint="name every task in tasks")
    people = sorted({participant for _, participant in rows})
    counts = {task: [_count(rows.get((task, key), ())) for key in people] for task in given.tasks}
    return {"tasks": [health.document() for health in health_of(counts)]}


def _count(outcomes: tuple[str, ...]) -> TrialCount:
    passed, errors = outcomes.count("pass"), outcomes.count("error")
    return TrialCount(passed, len(outcomes) - passed - errors, errors)
