"""The trials of a duel, in its order, until it is decided: a choice of what a run judges (`judge.running.CellChoice`). SPEC 7.

A pair is judged for the challenger, then for the king. Evidence that is there already counts. As soon as the duel is decided,
nothing more is begun. If a trial is left missing after all attempts, the duel waits for it, and nothing more is begun either: the
same command continues it later.
"""

from __future__ import annotations

from collections.abc import Collection

from assay.judge.terminal.competition import TrialCell
from assay.rules.duel import Contest, Course, Pair

__all__ = ["DuelTrials"]


class DuelTrials:
    """The known trials of both sides. `course` is the duel as far as they go."""

    def __init__(self, contest: Contest) -> None:
        assert contest.scheme.duel is not None
        self.contest, self.along = contest, contest.along
        self.passed: dict[str, dict[Pair, bool]] = {contest.challenger.submission: {}, contest.king.submission: {}}
        """Submission → pair → whether it passed."""
        self.course = Course(len(self.along), contest.scheme.duel, contest.challengers)
        self.blocked = False
        """A trial is left missing."""

    def chosen(self, cells: Collection[TrialCell]) -> list[TrialCell]:
        """The trials of both sides, pair by pair."""
        known = {(cell.submission, cell.task, cell.trial): cell for cell in cells}
        wanted = [(side, *pair) for pair in self.along for side in self.passed]
        return [known[key] for key in wanted if key in known]

    def saw(self, key: tuple[object, ...], outcome: str) -> None:
        """Note the outcome of a trial, by (submission, task, trial); of one that has several, the first."""
        submission, task, trial = key
        if str(submission) not in self.passed or not isinstance(trial, int):
            return
        if outcome == "error":
            self.blocked = True
            return
        self.passed[str(submission)].setdefault((str(task), trial), outcome == "pass")
        self._go_on()

    def _go_on(self) -> None:
        challenger, king = self.passed.values()
        while self.course.winner is None:
            pair = self.along[len(self.course.steps)]
            if pair not in challenger or pair not in king:
                return
            self.course.take(challenger[pair], king[pair])

    @property
    def enough(self) -> bool:
        """Whether it is decided, or waits for a trial that cannot be judged now."""
        return self.course.winner is not None or self.blocked
