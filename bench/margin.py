"""How long the margin of a board takes, and how often its least number is known exactly.

    python -m bench margin        a board of 64 validators × 256 participants, and smaller ones

Every board is drawn: participants of known skill, validators that see 80 trials each by chance.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from random import Random
from time import process_time

import numpy as np

from assay.records import Participant, Validator
from assay.rules.margin import VerdictName, margins
from assay.scheme.model import Scheme, TestsScore
from assay.settle import Settlement, pipeline
from assay.settle.inputs import Inputs, frame
from assay.settle.score.trials import tally

BOARDS = ((5, 20, 12), (10, 50, 12), (20, 100, 8), (64, 256, 12), (64, 20, 4))
"""Validators, participants, and how many boards."""
TRIALS = 80
VERDICTS: tuple[VerdictName, ...] = ("winner", "order")


def board(validators: int, participants: int, seed: int) -> Settlement:
    """A settled board whose participants are some tasks apart."""
    r = Random(seed)
    skills = sorted((r.uniform(0.2, 0.9) for _ in range(participants)), reverse=True)
    passed = np.array([[sum(r.random() < skill for _ in range(TRIALS)) for skill in skills] for _ in range(validators)], np.int64)
    scheme = Scheme.model_validate({"scheme": {"name": "margins", "version": "1"}, "score": {"kind": "tests"}})
    now = datetime(2026, 1, 1, tzinfo=UTC)
    inputs = Inputs(
        scheme=scheme,
        epoch=0,
        participants=tuple(
            Participant(key=f"p{at:03}", uid=at + 1, name="", submission=f"sha256:{at}", submitted_at=now)
            for at in range(participants)
        ),
        validators=tuple(Validator(key=f"v{at:02}", stake=r.randint(1, 100), name="") for at in range(validators)),
        tasks=tuple(f"t{at}" for at in range(TRIALS)),
    )
    everything = np.ones((validators, participants), np.bool_)
    scored = tally(
        passed, np.zeros((validators, participants), np.int64), everything, frame(inputs), TestsScore(kind="tests"), {}
    )
    return pipeline.settle(Inputs(**(vars(inputs) | {"evidence": scored})))


def main() -> None:
    """Print a line for each size and verdict: how many boards have an exact answer, and how wide the others are."""
    for validators, participants, count in BOARDS:
        for verdict in VERDICTS:
            texts, seconds = [], []
            for seed in range(count):
                settlement = board(validators, participants, seed)
                begun = process_time()
                (least,) = margins(settlement, verdicts=(verdict,), ways=("flips",)).found
                seconds.append(process_time() - begun)
                texts.append(f"{least.at_least}" + ("" if least.exact else f" to {least.at_most}"))
            exact = sum("to" not in text for text in texts)
            sys.stdout.write(
                f"{validators} × {participants}, {TRIALS} trials, {verdict}: {exact} of {count} exact, "
                f"{sum(seconds) / count:.2f} s of CPU on average, {max(seconds):.2f} s at most; flips: {', '.join(texts)}\n"
            )


if __name__ == "__main__":
    main()
