"""What there is to judge: every submission that counts, every task, every trial, less what has evidence already. Pure. SPEC 2."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

from assay.judge.entries import counting
from assay.records import Participant

__all__ = ["Cell", "Done", "cells", "missing"]

Done = tuple[str, str, int]
"""(submission, task, trial): what one validator's evidence is about."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One trial to be judged."""

    participant: str
    submission: str
    task: str
    trial: int

    @property
    def parts(self) -> dict[str, str]:
        """What tells it from the participant's other trials."""
        return {"task": self.task, "trial": str(self.trial)}

    @property
    def key(self) -> Done:
        """What its evidence is about."""
        return self.submission, self.task, self.trial


def cells(participants: Iterable[Participant], tasks: Sequence[str], trials: int) -> Iterator[Cell]:
    """Every trial, participant by participant, so that scores become complete one after the other."""
    for one in counting(participants):
        for task in tasks:
            for trial in range(1, trials + 1):
                yield Cell(one.key, one.submission, task, trial)


def missing(participants: Iterable[Participant], tasks: Sequence[str], trials: int, done: Container[Done]) -> list[Cell]:
    """The trials without evidence."""
    return [cell for cell in cells(participants, tasks, trials) if cell.key not in done]
