"""SPEC 4 Decay: the participants' clocks, the competition's clock, and the burned fraction B."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .numbers import fraction, nanos, show, show_or_null, utf8

Doc = dict[str, Any]


@dataclass
class Agreed:
    """A participant with an agreed score, as the clocks see it."""

    participant: str
    submission: str
    score: Fraction


@dataclass
class State:
    """A participant's clock: the submission last agreed on, its best score so far, the epoch it counts from."""

    submission: str
    best: Fraction
    last: int


def is_new(submission: str, before: str | None) -> bool:
    """Whether a submission is another one than before; an empty one always is. SPEC 4."""
    return submission == "" or submission != before


def task_sets_differ(before: str | None, other: str | None) -> bool:
    """Whether a new task set restarts the clocks: both known, and not the same. SPEC 4."""
    return bool(before) and bool(other) and before != other


def earlier_states(previous: Doc | None, task_set: str | None) -> dict[str, State]:
    """Participants' clocks as the previous settlement left them; none where the task set is new. SPEC 4."""
    if previous is None or task_sets_differ(previous["task_set"], task_set):
        return {}
    return {
        row["participant"]: State(row["submission"], fraction(row["best"]), row["last"])
        for row in previous["clock"]["participants"]
    }


def participant_clocks(agreed: list[Agreed], case: Doc, decay: Doc, epoch: int, task_set: str | None) -> dict[str, State]:
    """Every participant's clock after this epoch. SPEC 4 Decay, `clock = "participant"`."""
    states = earlier_states(case["previous"], task_set)
    resets = {p["key"]: p.get("last_reset_epoch") for p in case["participants"]}
    for item in agreed:
        state = states.get(item.participant)
        if state is None:
            start = resets[item.participant]
            last = epoch if case["previous"] is not None or start is None else start
            states[item.participant] = State(item.submission, item.score, last)
            continue
        if is_new(item.submission, state.submission) and (decay["reset"] == "update" or item.score > state.best):
            state.last = epoch
        state.best = max(state.best, item.score)
        state.submission = item.submission
    return states


@dataclass
class ClockRecord:
    """The competition's clock: the score of the last reset, its epoch, its submission, the task set it was made on."""

    score: Fraction | None = None
    last: int | None = None
    submission: str | None = None
    task_set: str | None = None

    def reached_by(self, score: Fraction, decay: Doc) -> bool:
        """Whether a new submission's score resets the clock. SPEC 4."""
        assert self.score is not None
        theta = fraction(decay["improvement"])
        if decay["improvement_mode"] == "relative":
            bar = self.score * (1 + theta)
        else:
            bar = self.score + theta
        return score >= bar or (score == 1 and self.score < 1)

    def restart(self, task_set: str | None) -> None:
        """Forgets the record where the task set is a new one; keeps the set in mind. SPEC 4."""
        if task_sets_differ(self.task_set, task_set):
            self.score = self.last = self.submission = None
        self.task_set = task_set or self.task_set

    def step(self, epoch: int, ranked: list[Agreed], own: dict[str, str], decay: Doc) -> None:
        """One epoch: `ranked` in ranking order, `own` the participants' submissions of the settlement before. SPEC 4."""
        if self.score is None:
            if ranked and ranked[0].score > 0:
                self.score, self.last, self.submission = ranked[0].score, epoch, ranked[0].submission
            return
        for item in ranked:
            if is_new(item.submission, self.submission) and is_new(item.submission, own.get(item.participant)):
                if self.reached_by(item.score, decay):
                    self.score, self.last, self.submission = item.score, epoch, item.submission
                return


def competition_clock(ranked: list[Agreed], case: Doc, decay: Doc, epoch: int, task_set: str | None) -> ClockRecord:
    """The competition's clock after this epoch; a previous settlement overrides history.csv. SPEC 4 Decay."""
    previous = case["previous"]
    record = ClockRecord()
    own: dict[str, str] = {}
    if previous is not None:
        clock = previous["clock"]
        score = None if clock["record"] is None else fraction(clock["record"])
        record = ClockRecord(score, clock["last"], clock["submission"], previous["task_set"])
        own = {row["participant"]: row["submission"] for row in clock["participants"]}
    else:
        for row in sorted(case["history"], key=lambda row: int(row["epoch"])):
            if row["epoch"] < epoch:
                record.restart(row.get("task_set") or None)
                top = Agreed("", row.get("submission") or "", fraction(row["top_score"]))
                record.step(row["epoch"], [top], {}, decay)
    record.restart(task_set)
    record.step(epoch, ranked, own, decay)
    return record


def stale(epoch: int, last: int | None, decay: Doc) -> int:
    """Epochs without improvement past the grace. SPEC 4."""
    if last is None or decay["curve"] == "none":
        return 0
    return max(0, epoch - last - int(decay["grace_epochs"]))


def burned(tau: int, decay: Doc) -> Fraction:
    """B, rounded to nanos. SPEC 1, 4."""
    rate, most = fraction(decay["rate"]), fraction(decay["max_burn"])
    if decay["curve"] == "none":
        return Fraction(0)
    if decay["curve"] == "linear":
        return nanos(min(rate * tau, most))
    return nanos(min(1 - (1 - rate) ** tau, most))


def clock_document(record: ClockRecord, states: dict[str, State]) -> Doc:
    """Both clocks as the settlement keeps them for the next one."""
    return {
        "record": show_or_null(record.score),
        "last": record.last,
        "submission": record.submission,
        "participants": [
            {"participant": key, "submission": states[key].submission, "best": show(states[key].best), "last": states[key].last}
            for key in sorted(states, key=utf8)
        ],
    }
