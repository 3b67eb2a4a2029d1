"""Warm-up: a share times min(1, tasks seen / warm_up), after decay; the rest burns. Off by default. SPEC 2.2, 4."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from assay.errors import BadInput
from assay.folder import parse_case
from assay.scheme.load import parse
from assay.scheme.model import Reward
from assay.settle import Settlement, settle
from assay.settle.reward import allot

NANO = 10**9
PERFECT = {"quality": "1", "steps_completed": 1, "steps_total": 1, "cost": "0", "budget": "1", "seconds": "0", "max_seconds": "1"}


def settled(tasks: dict[str, dict[str, int]], **score: Any) -> Settlement:
    """participant → validator → in how many tasks it was seen; everybody is perfect."""
    records = [
        {"kind": "workflow", "epoch": 1, "validator": validator, "participant": participant, "submission": f"of-{participant}"}
        | {"observed_at": "2026-01-01T00:00:00Z", "task": f"t{task}", **PERFECT}
        for participant, seen in tasks.items()
        for validator, count in seen.items()
        for task in range(count)
    ]
    validators = list(dict.fromkeys(name for seen in tasks.values() for name in seen))
    return settle(
        parse_case(
            {
                "scheme": {
                    "scheme": {"name": "s"},
                    "score": {"kind": "workflow", **score},
                    "consensus": {"min_validators": 1},
                    "reward": {"cap": "1"},
                    "decay": {"curve": "none"},
                },
                "epoch": 1,
                "participants": [{"key": key, "uid": uid, "submission": f"of-{key}"} for uid, key in enumerate(tasks, 1)],
                "validators": [{"key": key, "stake": "100"} for key in validators],
                "evidence": records,
            }
        )
    )


def test_a_share_grows_with_the_tasks_seen() -> None:
    settlement = settled({"new": {"v": 1}, "old": {"v": 5}}, warm_up=4)
    rows = {row["participant"]: row for row in settlement.document["weights"]}
    assert (rows["new"]["tasks_seen"], rows["new"]["warm"], rows["new"]["share"]) == (1, "0.25", "0.125")
    assert (rows["old"]["tasks_seen"], rows["old"]["warm"], rows["old"]["share"]) == (5, "1", "0.5")
    assert settlement.document["burn"]["warm_up"] == settlement.document["burn"]["share"] == "0.375"
    assert settlement.explain("new")["warm-up"].text == (
        "It was seen in 1 task; a whole share needs 4. So 25 % is kept, and the rest burns.",
    )
    assert settlement.explain("old")["warm-up"].text == ("It was seen in 5 tasks; a whole share needs 4. Everything is kept.",)


def test_without_the_rule_nothing_says_so() -> None:
    settlement = settled({"new": {"v": 1}, "old": {"v": 5}})
    assert settlement.warmth is None
    assert not {"tasks_seen", "warm"} & settlement.document["weights"][0].keys()
    assert "warm_up" not in settlement.document["burn"]
    assert "warm-up" not in {chapter.name for chapter in settlement.explain("new").chapters}
    assert "warm_up" not in settlement.inputs.scheme.document()["score"]


@pytest.mark.parametrize(("counts", "seen"), [((3,), 3), ((1, 4), 1), ((4, 1, 3), 3), ((4, 1, 3, 2), 2)])
def test_of_what_validators_saw_the_lower_median_counts(counts: tuple[int, ...], seen: int) -> None:
    settlement = settled({"a": {f"v{place}": count for place, count in enumerate(counts)}}, warm_up=10)
    assert settlement.document["weights"][0]["tasks_seen"] == seen


def test_it_comes_after_decay_and_before_registration_and_stays_exact() -> None:
    rules = Reward.model_validate({"cap": "1"})
    allotment = allot([NANO, NANO, NANO], rules, [NANO // 2, NANO, NANO], [True, True, False], [1, 2, 9], 7)
    assert [allotment.share[place] for place in range(3)] == [Fraction(1, 42), Fraction(2, 21), Fraction(0)]
    assert allotment.burn_decay == Fraction(1, 6)
    assert allotment.burn_warm_up == Fraction(1, 6) - Fraction(1, 42) + Fraction(1, 3) - Fraction(2, 21)
    assert allotment.burn_unregistered == Fraction(1, 3)
    assert allotment.burn == 1 - allotment.share.total
    with pytest.raises(ValueError, match="differ in length"):
        allot([NANO], rules, [NANO], [True], [], 7)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(BadInput, match=r"score: warm_up is 6, and no more than the window's 5 tasks are ever seen"):
        parse('[scheme]\nname = "s"\n[score]\nkind = "workflow"\nwindow = 5\nwarm_up = 6\n')
    payout = '[reward]\nkind = "payout"\n[payout]\ndeposit = "1"\n'
    with pytest.raises(BadInput, match="warm_up takes from weights, and there are payouts"):
        parse(f'[scheme]\nname = "s"\n[score]\nkind = "workflow"\nwarm_up = 6\n{payout}')
