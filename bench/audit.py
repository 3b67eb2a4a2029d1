"""Simulated audits of boards with planted false passes: how many are caught, and after how many re-runs. docs/auditing.md.

    python -m bench.audit [--audits N]

Each board has 5 participants, 4 validators with different stakes and 20 tasks: 400 records of kind tests, which are settled as
any epoch is (`winner-takes-all`, no rule about outliers: it would throw a single liar out before). On an honest board the first
is ahead of the second by 4 to 12 trials of 80. On a planted board, false passes lift the second to the first place. Nothing runs
in a box: what judging again would see is known.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from assay.ledger.auditing import plan_of, trials_of
from assay.records import Participant, Tests, Validator
from assay.rules.audit import AuditPlan, clean_draws, follow, seed_of
from assay.scheme.model import Scheme
from assay.settle import Inputs, pipeline

VALIDATORS, PARTICIPANTS, TASKS = 4, 5, 20
PLANTED = (0, 4, 8, 20)
AUDITS = 500
EACH = VALIDATORS * TASKS
SCHEME = Scheme.model_validate(
    {
        "scheme": {"name": "audited"},
        "score": {"kind": "tests"},
        "consensus": {"outliers": {"method": "none"}},
        "reward": {"strategy": "winner-takes-all"},
        "evidence": {"keep": "work"},
    }
)
STAKES = (28, 26, 24, 22)
WHEN = datetime(2026, 11, 2, tzinfo=UTC)
Claim = tuple[int, int, int]
"""Participant, validator, task."""


@dataclass(frozen=True)
class Audited:
    """The end of one audit. caught: a false claim was seen. reruns: up to that, or up to the end; whole: in the whole audit."""

    caught: bool
    confirmed: bool
    reruns: int
    whole: int


def board(rng: random.Random, planted: int) -> tuple[dict[Claim, bool], frozenset[Claim]]:
    """The claims of each trial, and those of them that are false passes."""
    leader = rng.randint(44, 56)
    counts = [leader - rng.randrange(planted), leader] if planted else [leader, leader - rng.randint(4, 12)]
    counts += [rng.randint(16, 40) for _ in range(PARTICIPANTS - 2)]
    cells = [(validator, task) for validator in range(VALIDATORS) for task in range(TASKS)]
    claims: dict[Claim, bool] = {}
    for who, count in enumerate(counts):
        passed = set(rng.sample(cells, count))
        claims |= {(who, *cell): cell in passed for cell in cells}
    false = frozenset(rng.sample([claim for claim, passed in claims.items() if claim[0] == 0 and not passed], planted))
    return claims | dict.fromkeys(false, True), false


def settled(claims: dict[Claim, bool]) -> AuditPlan:
    """The audit's plan of a board that is settled from records."""
    records = [
        Tests(
            kind="tests",
            epoch=1,
            validator=f"v{validator}",
            participant=f"p{who}",
            submission=f"s{who}",
            observed_at=WHEN,
            task=f"t{task:02}",
            outcome="pass" if passed else "fail",
            work=f"sha256:{who:08x}{validator:08x}{task:048x}",
        )
        for (who, validator, task), passed in claims.items()
    ]
    inputs = Inputs(
        SCHEME,
        1,
        tuple(Participant(f"p{who}", who + 1, submission=f"s{who}") for who in range(PARTICIPANTS)),
        tuple(Validator(f"v{number}", stake) for number, stake in enumerate(STAKES)),
        records,
        tuple(f"t{task:02}" for task in range(TASKS)),
    )
    settlement = pipeline.settle(inputs)
    return plan_of(settlement, trials_of(settlement, [(record.participant, record) for record in records]))


def carried_out(plan: AuditPlan, false: frozenset[Claim], randomness: bytes) -> Audited:
    """The audit of a board."""
    seed = seed_of(randomness, bytes(32))
    wrong = {
        at: (int(trial.participant[1:]), int(trial.validator[1:]), int(trial.task[1:])) in false
        for at, trial in enumerate(plan.trials)
    }
    sampled = clean_draws(plan) is not None
    path = follow(plan, seed, wrong) if sampled else None
    order: list[int] = []
    if path is not None:
        order = list(dict.fromkeys(path.drawn))
    if path is None or not path.confirmed:  # all are judged again, in any order
        rest = sorted(set(wrong) - set(order))
        random.Random(randomness).shuffle(rest)
        order += rest
    first = next((number for number, at in enumerate(order, start=1) if wrong[at]), None)
    return Audited(first is not None, path is not None and path.confirmed, first or len(order), len(order))


def simulated(planted: int, audits: int, seed: int = 0) -> list[Audited]:
    """So many audits, each of a board of its own."""
    rng = random.Random(1000 * planted + seed)
    outcomes = []
    for _ in range(audits):
        claims, false = board(rng, planted)
        outcomes.append(carried_out(settled(claims), false, rng.randbytes(32)))
    return outcomes


def row(planted: int, audits: Sequence[Audited]) -> dict[str, Any]:
    """The figures of one line."""
    count = len(audits)
    return {
        "planted": planted,
        "caught": 100 * sum(audit.caught for audit in audits) / count,
        "wrongly": 100 * sum(audit.confirmed and not audit.caught for audit in audits) / count,
        "reruns": sum(audit.reruns for audit in audits) / count,
        "whole": sum(audit.whole for audit in audits) / count,
    }


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--audits", type=int, default=AUDITS)
    audits = parser.parse_args().audits
    print(f"{audits} audits of boards of {PARTICIPANTS * EACH} trials each, risk 5 %")
    print("planted   caught   confirmed, nothing seen   re-runs to the first false claim or the end   in the whole audit")
    for planted in PLANTED:
        line = row(planted, simulated(planted, audits))
        print(
            f"{planted:7}  {line['caught']:5.1f} %   {line['wrongly']:21.1f} %   {line['reruns']:43.1f}   {line['whole']:18.1f}"
        )


if __name__ == "__main__":
    main()
