"""Who needs no more trials: against brute force over all endings, settled by the kernel. SPEC 2.1, 3, 4, 5."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import prod
from random import Random
from typing import Any

import numpy as np
import pytest

from assay.conformance.kinds.rules import board_of
from assay.errors import BadInput
from assay.records import History, Tests
from assay.rules.column import ABSENT, ScoreColumn
from assay.rules.completions import OpenCell, completed
from assay.rules.decided import OpenSeason, Until, decided
from assay.scheme.model import Consensus, Scheme
from assay.settle import Settlement, pipeline
from depth import depth
from oracle.boards import COMBINE, OUTLIERS, drawn

Doc = dict[str, Any]
Counts = dict[tuple[str, str], int | None]
"""(validator, participant) → how many trials passed; None: the validator misses some."""
ENDINGS = depth(120, 1000)
"""The most endings of a board that is settled again and again."""
REWARDS: tuple[Doc, ...] = (
    {"strategy": "winner-takes-all", "cap": "100%"},
    {"strategy": "winner-takes-all", "top": 2},
    {"strategy": "winner-takes-all", "min_score": "0.5", "encoding": "exact-sum"},
    {"strategy": "linear", "min_score": "0.5"},
    {"strategy": "ranked", "min_score": "0.3", "encoding": "max-upscale"},
    {"strategy": "softmax", "temperature": "0.05"},
    {"kind": "ranking"},
)
DECAYS: tuple[Doc, ...] = (
    {"curve": "none"},
    {"curve": "none"},
    {"curve": "none"},
    {"clock": "competition", "improvement": "10%"},
    {"clock": "competition", "improvement": "0%", "improvement_mode": "absolute"},
    {"clock": "participant"},
)


def season(seed: int) -> Settlement:
    """A small board with some missing trials, under any rules of consensus, and some of reward and decay."""
    r = Random(seed)
    given = drawn(seed)
    if r.random() < 0.6:  # few validators are enough more often, so that scores are agreed
        given["consensus"] |= {"min_validators": 1, "min_stake": "0"}
    given["trials"] += 2
    for participant in given["participants"]:
        for seen in participant["seen"].values():
            left = given["trials"] - seen["passed"] - seen.get("missing", 0)
            if r.random() < 0.15 and left > 1:
                seen["missing"] = seen.get("missing", 0) + left - 1
    board = board_of(given)
    reward, decay = r.choice(REWARDS), r.choice(DECAYS)
    sections: Doc = {"scheme": {"name": "x"}, "score": {"kind": "tests"}, "consensus": given["consensus"], "reward": reward}
    if "payout" in given:
        split = r.choice([[10_000], [7000, 3000]])
        sections |= {"payout": given["payout"] | {"split": split}, "reward": {"kind": "payout"}}
    elif reward.get("kind") != "ranking":
        sections["decay"] = decay
    history: tuple[History, ...] = (
        History(epoch=0, top_score=r.choice([0, 400_000_000, 800_000_000]), submission=r.choice(["old", "p1"])),
    )
    history = history if r.random() < 0.7 else ()
    return pipeline.settle(replace(board.inputs, scheme=Scheme.model_validate(sections), epoch=1, history=history))


def counts(settlement: Settlement) -> tuple[Counts, dict[tuple[str, str], list[int | None]]]:
    """What each cell has if it is whole, and of each that is open what may become of it."""
    inputs = settlement.inputs
    passed, judged = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for record in inputs.evidence:  # type: ignore[union-attr]
        assert isinstance(record, Tests)
        judged[record.validator, record.participant] += 1
        passed[record.validator, record.participant] += record.outcome == "pass"
    closed: Counts = {}
    open_: dict[tuple[str, str], list[int | None]] = {}
    for cell in product((row.key for row in inputs.validators), (row.key for row in inputs.participants)):
        missing = len(inputs.tasks) - judged[cell]
        if missing:
            open_[cell] = [None, *range(passed[cell], passed[cell] + missing + 1)]
        else:
            closed[cell] = passed[cell]
    return closed, open_


def ended(settlement: Settlement, cells: Counts) -> Settlement:
    """The settlement in which each whole cell has so many passed trials."""
    template = settlement.inputs.evidence[0]  # type: ignore[index]
    records = [
        template.model_copy(
            update={
                "validator": validator,
                "participant": participant,
                "submission": participant,
                "task": task,
                "outcome": "pass" if number < count else "fail",
            }
        )
        for (validator, participant), count in cells.items()
        if count is not None
        for number, task in enumerate(settlement.inputs.tasks)
    ]
    return pipeline.settle(replace(settlement.inputs, evidence=records))


def paid(settlement: Settlement) -> object:
    """What anybody gets of it, and the competition's clock."""
    document, decay = settlement.document, settlement.inputs.scheme.decay
    weights = {row["participant"]: row for row in document.get("weights", ()) if row["share"] != "0" or row["u16"]}
    shown = {key: (row["share"], row["u16"], row["chain_u16"]) for key, row in weights.items()}
    payouts = {row["participant"]: row for row in document.get("payouts", ()) if row["gross"] != "0"}
    clock = settlement.clock
    own = clock.participants if decay is not None and decay.clock == "participant" else {}
    clocks = (clock.record, clock.last, clock.submission, dict(own)) if decay is not None and decay.curve != "none" else None
    released = None if settlement.payouts is None else (settlement.payouts.tier_bps, settlement.payouts.refund)
    return shown, document.get("burn"), document.get("unallocated"), payouts, released, clocks


def order(settlement: Settlement, participant: str) -> tuple[list[str], list[str] | None]:
    """The order of the others, and who of them is before it, if it has a rank."""
    ranking = settlement.ranking
    place = ranking.index(participant) if participant in ranking else None
    return [key for key in ranking if key != participant], None if place is None else ranking[:place]


def matters(settlement: Settlement, participant: str, until: Until, known: dict[Any, Settlement]) -> bool:
    """Whether the participant's own missing trials change anything in some ending."""
    closed, open_ = counts(settlement)
    own, others = ([cell for cell in open_ if (cell[1] == participant) is mine] for mine in (True, False))

    def settled(cells: Counts) -> Settlement:
        key = tuple(sorted((cell, count) for cell, count in cells.items() if count is not None))
        if key not in known:
            known[key] = ended(settlement, closed | cells)
        return known[key]

    for outside in product(*(open_[cell] for cell in others)):
        rest: Counts = dict(zip(others, outside, strict=True))
        left = settled(rest | dict.fromkeys(own))
        places = set[tuple[str, ...]]()
        for inside in product(*(open_[cell] for cell in own)):
            after = settled(rest | dict(zip(own, inside, strict=True)))
            if paid(after) != paid(left):
                return True
            alone, before = order(after, participant)
            if until == "decided":
                if alone != order(left, participant)[0]:
                    return True
                places |= set() if before is None else {tuple(before)}
        if len(places) > 1:
            return True
    return False


def boards(number: int) -> Iterator[tuple[int, Settlement]]:
    """Boards with open cells, and few enough endings to try them all."""
    seed = 0
    while number:
        seed += 1
        settlement = season(seed)
        if not len(settlement.inputs.evidence):  # type: ignore[arg-type]
            continue
        _, open_ = counts(settlement)
        if open_ and prod(len(choice) for choice in open_.values()) <= ENDINGS:
            number -= 1
            yield seed, settlement


def test_what_is_decided_no_ending_changes() -> None:
    """And most of what no ending changes is found to be decided."""
    tally = Counter[tuple[bool, bool]]()
    reasons = set()
    for seed, settlement in boards(depth(40, 200)):
        known: dict[Any, Settlement] = {}
        for until in ("decided", "paid"):
            if until == "paid" and settlement.inputs.scheme.reward.kind == "ranking":
                continue
            for standing in decided(settlement, until).standings:
                reasons.add(standing.why)
                if not standing.missing:
                    assert standing.why == "whole"
                    continue
                truly = not matters(settlement, standing.participant, until, known)
                assert truly or not standing.decided, (seed, until, standing)
                tally[truly, standing.decided] += 1
    assert reasons >= {"whole", "certain", "unscored", "behind", "below-floor", "may-be-paid", "part-of-all", "rank"}
    assert tally[True, True] > 4 * tally[True, False], tally


def test_bounds_hold_what_every_ending_agrees_on() -> None:
    """Whatever the rule about outliers, and however few scores may be judged for it; exact where they are enough."""
    inside = 0
    for seed in range(depth(400, 6000)):
        r = Random(seed)
        trials, count = r.randint(2, 9), r.randint(1, 5)
        consensus = {"min_validators": 1, "min_stake": "0", "combine": r.choice(COMBINE), "outliers": r.choice(OUTLIERS)}
        passed = [r.randint(0, trials) for _ in range(count)]
        cells = [
            OpenCell(at, passed[at], r.randint(1, trials - passed[at])) for at in range(min(2, count)) if passed[at] < trials
        ]
        for cell in cells:
            passed[cell.place] = ABSENT
        stakes = tuple(r.randint(1, 5) for _ in passed)
        column = ScoreColumn(np.array(passed, np.int64), stakes, sum(stakes), trials, Consensus.model_validate(consensus))
        choices = [[has] for has in passed]
        for cell in cells:
            choices[cell.place] = [ABSENT, *range(cell.passed, cell.passed + cell.missing + 1)]
        states = np.array(list(product(*choices)), np.int64)
        scores = column.judged(states)
        there = scores[scores >= 0]
        for most in (10**6, 1):
            reach = completed(column, cells, most)
            low, high = reach.outer
            assert low <= there.min() <= there.max() <= high, (seed, most)
            if reach.whole:
                assert (low, high, reach.bare) == (there.min(), there.max(), bool((scores < 0).any())), seed
        ends = {cell.place: (ABSENT, cell.passed, cell.passed + cell.missing) for cell in cells}
        at_ends = [all(state[at] in kept for at, kept in ends.items()) for state in states.tolist()]
        inside += scores[at_ends].max() < there.max()
    assert inside, "some score is the highest between the ends"


def board(seen: Doc, **scheme: Any) -> Settlement:
    """Four trials, one validator, first submissions first: what it saw of each participant."""
    given: Doc = {"trials": 4, "validators": [{"key": "v0", "stake": "1"}], "consensus": {"min_validators": 1, "min_stake": "0"}}
    given["participants"] = [{"key": key, "seen": {} if row is None else {"v0": row}} for key, row in seen.items()]
    inputs = board_of(given).inputs
    sections: Doc = {"scheme": {"name": "x"}, "score": {"kind": "tests"}, "consensus": given["consensus"]}
    sections |= {"reward": {"strategy": "winner-takes-all", "cap": "100%"}, "decay": {"curve": "none"}}
    if scheme.get("reward", {}).get("kind") == "ranking":
        del sections["decay"]
    return pipeline.settle(replace(inputs, scheme=Scheme.model_validate(sections | scheme)))


def test_one_pass_or_one_place_makes_the_difference() -> None:
    """Whoever is first by submission wins a tie."""
    for keys, decides in ((("a", "b"), True), (("b", "a"), False)):
        seen = {"a": {"passed": 3}, "b": {"passed": 1, "missing": 2}}
        season = OpenSeason(board({key: seen[key] for key in keys}), "paid")
        at = keys.index("b")
        assert season.decides(at) is decides
        assert season.standing(at).places == ((2, 2) if decides else (1, 2))
        season.took(0, at, passed=False)
        assert season.decides(at)
    season.took(0, at, passed=False)
    with pytest.raises(ValueError, match="no trial is missing there"):
        season.took(0, at, passed=True)


def test_a_leader_that_may_end_without_a_score_spares_nobody() -> None:
    season = OpenSeason(board({"a": {"passed": 3, "missing": 1}, "b": {"passed": 0, "missing": 2}}), "paid")
    assert season.standing(1).places == (2, 2)
    assert not season.decides(1)
    season.took(0, 0, passed=False)
    assert season.decides(1)


def test_the_first_record_of_a_competition_may_be_below_the_floor() -> None:
    decay: Doc = {"clock": "competition"}
    reward = {"strategy": "linear", "min_score": "0.9"}
    low = {"b": {"passed": 1, "missing": 1}}
    for seen, why in ((low, "clock"), ({"a": {"passed": 3}} | low, "below-floor"), (low | {"c": {"passed": 0}}, "clock")):
        season = OpenSeason(board(seen, decay=decay, reward=reward), "paid")
        assert season.why(list(seen).index("b")) == why


def test_the_clock_of_a_competition_remembers_only_the_best() -> None:
    """A score that improves on nothing leaves it alone; a participant's own clock starts with any score."""
    decay: Doc = {"clock": "competition", "improvement": "0%", "improvement_mode": "absolute"}
    seen = {"a": {"passed": 3}, "b": {"passed": 1, "missing": 1}}
    for clock, why in ((decay, "behind"), ({"clock": "participant"}, "clock")):
        assert OpenSeason(board(seen, decay=clock), "paid").why(1) == why
    history = tuple(History(epoch=0, top_score=score, submission="old") for score in (400_000_000, 600_000_000))
    for row, why in zip(history, ("clock", "behind"), strict=True):
        inputs = replace(board(seen, decay=decay).inputs, epoch=1, history=(row,))
        assert OpenSeason(pipeline.settle(inputs), "paid").why(1) == why


def test_who_handed_in_nothing_keeps_nothing_open() -> None:
    settlement = board({"a": {"passed": 3}, "b": {"passed": 0, "missing": 2}, "c": None})
    for submission, decides in (("c", False), ("", True)):
        people = tuple(replace(row, submission=submission) if row.key == "c" else row for row in settlement.inputs.participants)
        season = OpenSeason(pipeline.settle(replace(settlement.inputs, participants=people)), "decided")
        assert season.decides(1) is decides


def test_where_nobody_is_drawn_yet_everything_is_open() -> None:
    consensus = {"min_validators": 1, "min_stake": "0", "assign": 1}
    settlement = board({"a": {"passed": 3}, "b": None})
    scheme = Scheme.model_validate(settlement.inputs.scheme.model_dump(exclude_unset=True) | {"consensus": consensus})
    inputs = replace(settlement.inputs, scheme=scheme, randomness={0: bytes(32)})
    season = OpenSeason(pipeline.settle(inputs), "paid")
    assert [season.why(at) for at in range(2)] == ["whole", "undrawn"]


def test_a_ranking_pays_nobody() -> None:
    settlement = board({"a": {"passed": 3}}, reward={"kind": "ranking"})
    with pytest.raises(BadInput, match="a ranking pays nobody"):
        decided(settlement, "paid")
    assert decided(settlement, "decided").whole


def test_the_document_says_what_is_open() -> None:
    season = decided(board({"a": {"passed": 3}, "b": {"passed": 2, "missing": 2}}), "paid")
    document = season.document
    assert (season.whole, season.missing, document["schema"], document["digest"]) == (False, 2, "assay.decided/1", season.digest)
    assert document["participants"][1] == {
        "participant": "b",
        "missing": 2,
        "lowest": "0.5",
        "highest": "1",
        "sure": False,
        "places": [1, 2],
        "decided": False,
        "why": "may-be-paid",
    }
    assert season.standings[1].reason == "it may still be paid"
