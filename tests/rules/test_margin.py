"""Margins: against brute force in fractions, with bounds alone, and every shown change settled again. SPEC 2.1, 3, 5."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest
from bench.margin import board

import assay
from assay.conformance import answer
from assay.conformance.kinds.rules import board_of
from assay.errors import BadInput
from assay.records import Participant, Validator, record
from assay.rules.column import DOWN, UP, ScoreColumn
from assay.rules.fences import FlipBound
from assay.rules.flips import Effort, FlipSearch
from assay.rules.joint import JointBoard
from assay.rules.margin import VerdictName, margins, verdict_of
from assay.rules.pricing import PricedFlips
from assay.rules.trials import marks, trial_board
from assay.scheme.model import Consensus, Scheme
from assay.settle import Settlement, pipeline
from assay.settle.inputs import Inputs
from cli_kit import output
from depth import depth
from oracle.boards import drawn
from oracle.margin import margin

SHORT, WHOLE = 60, 10_000
NO_EFFORT = Effort(ball=0, climb=0, whole=0, lies=0)


def test_brute_force_finds_the_same() -> None:
    for seed in range(depth(SHORT, WHOLE)):
        given = drawn(seed)
        assert answer("margin", given) == margin(given), seed


@pytest.mark.full
def test_without_effort_the_truth_is_between_the_two() -> None:
    for seed in range(depth(30, 2000)):
        given = drawn(seed)
        truth = margin(given)["verdicts"]
        for least in margins(board_of(given), effort=NO_EFFORT).found:
            exact = truth[least.verdict][least.way]
            exact = None if exact is None else int(exact)
            assert least.at_least is None or least.at_least <= (exact if exact is not None else 10**18), (seed, least)
            assert least.at_least is not None or exact is None, (seed, least)
            assert least.at_most is None or (exact is not None and least.at_most >= exact), (seed, least)


def test_a_bound_is_never_above_what_a_state_takes() -> None:
    for seed in range(depth(40, 1500)):
        r = Random(seed)
        given = drawn(seed)
        trials = given["trials"]
        passed = np.array([r.randint(0, trials) for _ in given["validators"]], np.int64)
        stakes = tuple(int(row["stake"]) for row in given["validators"])
        column = ScoreColumn(passed, stakes, sum(stakes), trials, Consensus.model_validate(given["consensus"]))
        states = np.array(list(product(range(trials + 1), repeat=len(passed))), np.int64)
        scores, flips = column.judged(states), np.abs(states - passed).sum(axis=1)
        for way in (UP, DOWN):
            bound = FlipBound(column, way, int(flips.max()))
            for mark in {int(score) for score in scores if score >= 0}:
                reached = way * scores >= way * mark if way == UP else (way * scores >= way * mark) & (scores >= 0)
                assert bound.least(mark) <= flips[reached].min(), (seed, way, mark)


def test_prices_prove_the_fewest_flips_and_find_them() -> None:
    """Against all states of small columns: never above the truth, and mostly the truth, with a state that the kernel confirms."""
    known = asked = 0
    for seed in range(depth(60, 2500)):
        r = Random(seed)
        passed, trials, stakes = _column(r)
        rules = Consensus.model_validate(drawn(seed)["consensus"] | {"min_validators": 1})
        column = ScoreColumn(passed, stakes, sum(stakes), trials, rules)
        states = np.array(list(product(range(trials + 1), repeat=len(passed))), np.int64)
        scores, flips = column.judged(states), np.abs(states - passed).sum(axis=1)
        for way in (UP, DOWN):
            prices = PricedFlips(column, way, int(flips.max()))
            marks = sorted({int(score) for score in scores if score >= 0}) if prices.supported else []
            for mark in r.sample(marks, min(4, len(marks))):
                fewest = int(flips[(way * scores >= way * mark) & (scores >= 0)].min())
                limit = max(0, min(fewest + r.randint(-2, 2), int(flips.max())))
                bound = prices.least(mark, limit)
                assert bound.least <= fewest, (seed, way, mark)
                if bound.state is not None:
                    assert way * int(column.judged(bound.state[None, :])[0]) >= way * mark, (seed, way, mark)
                    assert int(np.abs(bound.state - passed).sum()) == bound.flips, (seed, way, mark)
                known, asked = known + (bound.least == min(fewest, limit + 1)), asked + 1
    assert known >= 0.7 * asked > 0


def _column(r: Random) -> tuple[np.ndarray[Any, np.dtype[np.int64]], int, tuple[int, ...]]:
    """Passed trials and stakes of 3 to 5 validators, and the number of trials, so few that all states can be judged."""
    validators, trials = r.choice([(3, 4), (3, 7), (4, 3), (4, 5), (5, 3)])
    passed = np.array([r.randint(0, trials) for _ in range(validators)], np.int64)
    return passed, trials, tuple(r.choice([1, 1, 2, 3, 5, 10]) for _ in range(validators))


def test_a_board_of_ten_validators_is_known_exactly() -> None:
    """Wider than all states can be judged: the quick bound alone leaves 7 to 12 here."""
    least = margins(board(10, 50, 1), verdicts=("winner",), ways=("flips",)).found[0]
    assert least.exact
    assert least.at_least == 10


def test_the_proof_can_be_checked_by_its_rows() -> None:
    """With every way to divide one flip less, one score keeps the two apart."""
    given = drawn(3) | {"trials": 4, "consensus": {"outliers": {"method": "none"}}}
    given |= {"validators": [{"key": f"v{at}", "stake": "1"} for at in range(3)]}
    given["participants"] = [
        {"key": key, "seen": {f"v{at}": {"passed": count} for at, count in enumerate(counts)}}
        for key, counts in (("a", (4, 4, 3)), ("b", (2, 3, 3)))
    ]
    given.pop("payout", None)
    least = margins(board_of(given)).of("winner", "flips")
    assert least is not None
    assert least.exact
    assert least.at_least == 4
    stays: dict[tuple[str, int], str] = {(row["participant"], row["flips"]): row["score"] for row in least.proof}
    for flips in range(4):
        above = max(score for (who, by), score in stays.items() if who == "a" and by >= flips)
        below = min(score for (who, by), score in stays.items() if who == "b" and by >= 3 - flips)
        assert above >= below


def test_every_change_that_is_shown_changes_the_verdict() -> None:
    season_margins = margins(assay.open("examples/season").settle())
    for least in season_margins.found:
        assert (least.at_most is None) == (least.then is None)
        assert least.then is None or least.then != verdict_of(season_margins.settlement, least.verdict)
        if least.way == "flips" and least.at_most is not None:
            assert sum(abs(change.after - (change.before or 0)) for change in least.changes) == least.at_most
            assert sum(len({*change.trials}) for change in least.changes) == least.at_most


def test_scores_with_missing_trials_have_a_range() -> None:
    ranges = {span.participant: span for span in margins(assay.open("examples/season").settle(), ways=("missing",)).ranges}
    assert (ranges["atlas"].lowest, ranges["atlas"].highest) == (ranges["atlas"].score, ranges["atlas"].score)
    cobalt = ranges["cobalt"]
    assert cobalt.exact
    assert cobalt.missing == 1
    assert (cobalt.lowest, cobalt.score, cobalt.highest) == (622_000_000, 626_829_268, 640_000_000)
    assert ranges["fjord"].lowest is None


def test_a_wide_board_is_answered_honestly() -> None:
    r = Random(1)
    rules = Consensus.model_validate({})
    columns = {
        at: ScoreColumn(np.array([r.randint(low, low + 15) for _ in range(8)], np.int64), tuple(range(1, 9)), 36, 80, rules)
        for at, low in ((0, 55), (1, 45))
    }
    flips = FlipSearch(columns, Effort(ball=20_000, climb=20_000)).pair(0, 1, 1)
    assert flips.at_most is not None
    assert 1 <= flips.at_least <= flips.at_most
    agreed = {at: int(columns[at].judged(state[None, :])[0]) for at, state in flips.states.items()}
    assert agreed[1] > agreed[0]


def test_marks_are_where_tiers_begin() -> None:
    given = drawn(2) | {"payout": {"deposit": "100", "threshold_bps": 5000}}
    reached, above = marks(board_of(given))
    assert above is None or reached is None or reached < above


@pytest.mark.parametrize(
    ("sections", "why"),
    [({"score": {"kind": "given"}}, "no trials"), ({"score": {"kind": "tests", "passed_by": "all"}}, "joins their trials")],
)
def test_other_evidence_is_refused(sections: dict[str, object], why: str) -> None:
    settlement = board_of(drawn(5))
    inputs = settlement.inputs
    scheme = type(inputs.scheme).model_validate({"scheme": {"name": "x"}} | sections)
    settlement.inputs.__dict__["scheme"] = scheme
    with pytest.raises(BadInput, match=why):
        trial_board(settlement)


def test_the_command_says_what_a_verdict_needs() -> None:
    shown = " ".join(output("margin", "examples/season").split())
    assert "atlas stays first unless 2 trials are wrong, or validators with 18 % of the stake lie." in shown
    document = json.loads(output("margin", "examples/season", "--json"))
    assert document["schema"] == "assay.margin/1"
    assert document["verdicts"]["winner"]["flips"]["then"] == "borealis"


def _joint(seed: int) -> Settlement:
    """A small board whose tasks pass by all validators."""
    r = Random(seed)
    tasks, trials = r.choice([(2, 1), (3, 1), (2, 2)])
    payout = {"payout": {"deposit": "1000", "threshold_bps": 7000}, "reward": {"kind": "payout"}} if r.random() < 0.4 else {}
    scheme = {"scheme": {"name": "joint"}, "score": {"kind": "tests", "trials": trials, "passed_by": "all"}} | payout
    names = [f"v{at}" for at in range(r.randint(1, 2 if tasks * trials > 3 else 3))]
    people = [f"p{at}" for at in range(r.randint(1, 3))]
    at = datetime(2026, 11, 1, tzinfo=UTC)
    records = [
        record(
            {"kind": "tests", "epoch": 1, "validator": judge, "participant": who, "submission": f"s{who}", "task": f"t{task}"}
            | {"trial": trial + 1, "outcome": r.choice(["pass", "pass", "fail"]), "observed_at": "2026-11-02T10:00:00Z"}
        )
        for judge in names
        for who in people
        for task in range(tasks)
        for trial in range(trials)
    ]
    return pipeline.settle(
        Inputs(
            scheme=Scheme.model_validate(scheme | {"consensus": {"min_validators": 1}}),
            epoch=1,
            participants=tuple(
                Participant(who, uid=place + 1, submission=f"s{who}", submitted_at=at + timedelta(hours=r.randint(0, 2)))
                for place, who in enumerate(people)
            ),
            validators=tuple(Validator(key=name, stake=r.randint(1, 9), name="") for name in names),
            tasks=tuple(f"t{task}" for task in range(tasks)),
            evidence=tuple(records),
        )
    )


def _by_brute_force(settlement: Settlement, verdict: VerdictName) -> int | None:
    """The fewest flips: all outcomes of each participant, then all combinations, settled by the kernel."""
    board, least = JointBoard(settlement), None
    options: list[dict[int, tuple[int, np.ndarray[Any, Any]]]] = []
    for at in range(board.known.shape[1]):
        known, cheapest = board.known[:, at], dict[int, tuple[int, np.ndarray[Any, Any]]]()
        for flat in product((0, 1), repeat=known.size):
            state = np.array(flat, np.int8).reshape(known.shape)
            passed = int((state.reshape(len(state), board.tasks, -1) == 1).all(axis=(0, 2)).sum())
            cost = int((state != known).sum())
            if passed not in cheapest or cost < cheapest[passed][0]:
                cheapest[passed] = cost, state
        options.append(cheapest)
    for choice in product(*(option.values() for option in options)):
        cost = sum(flips for flips, _ in choice)
        if least is None or cost < least:
            after = board.resettled({at: state for at, (_, state) in enumerate(choice)})
            least = cost if verdict_of(after, verdict) != verdict_of(settlement, verdict) else least
    return least


def test_where_tasks_pass_by_all_validators_the_fewest_flips_are_counted() -> None:
    for seed in range(depth(25, 2000)):
        settlement = _joint(seed)
        for least in margins(settlement, ways=("flips",)).found:
            assert least.exact
            assert least.at_least == _by_brute_force(settlement, least.verdict), (seed, least.verdict)
            assert sum(len(change.trials) for change in least.changes) == (least.at_most or 0)


def test_one_liar_takes_all_tasks_away_where_all_must_agree() -> None:
    settlement = next(board for board in map(_joint, range(100)) if len(set(board.agreement.score.tolist())) > 1)
    least = margins(settlement, ways=("stake",)).of("winner", "stake")
    assert least is not None
    assert least.at_least == min(validator.stake for validator in settlement.inputs.validators)
