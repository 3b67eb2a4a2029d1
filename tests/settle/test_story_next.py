"""What would take the next place is what settling it gives; which tasks and checks failed is what the records say."""

import copy
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import assume, given

from assay.exact import nanos, text
from assay.folder import parse_case
from assay.records import record
from assay.settle import Settlement, settle
from assay.settle.inputs import Scored
from assay.settle.story import Explanation
from oracle import cases
from test_settle_story import WHEN, passing, prose, settled, story_of

Json = dict[str, Any]
NEW = "brand-new"


def handed_in(case: Json, settlement: Settlement, key: str, score: str) -> Settlement:
    """The epoch settled after the participant handed in something new, of which all who judged it gave this score."""
    after: Json = copy.deepcopy(case)
    voters = next(row for row in settlement.document["agreed"] if row["participant"] == key)["validators"]
    times = [datetime.fromisoformat(row["submitted_at"]) for row in after["participants"] if row.get("submitted_at")]
    for row in after["participants"]:
        if row["key"] == key:
            row["submission"] = NEW
            if row.get("submitted_at"):
                row["submitted_at"] = (max(times) + timedelta(seconds=1)).isoformat()
    after["evidence"] = [
        *(row for row in after["evidence"] if row["participant"] != key or row["submission"] != NEW),
        *(
            {"kind": "given", "epoch": settlement.epoch, "validator": vote["validator"], "participant": key, "submission": NEW}
            | {"observed_at": WHEN, "score": score, "seq": 10**6 + at}
            for at, vote in enumerate(voters)
        ),
    ]
    return settle(parse_case(after))


@given(cases.cases("given"))
def test_the_least_score_is_what_settling_it_gives(case: Json) -> None:
    assume("assign" not in case["scheme"].get("consensus", {}))  # who is drawn depends on the submission
    settlement = settled(case)
    for place, key in enumerate(settlement.ranking, start=1):
        facts = settlement.explain(key)["next-place"].facts
        if place == 1 or facts["least"] is None:
            if place > 1:
                assert handed_in(case, settlement, key, "1").ranking.index(key) >= place - 1
            continue
        then = handed_in(case, settlement, key, facts["least"])
        assert then.ranking.index(key) == facts["place"] - 1 < place - 1
        if then.allotment is not None:
            row = then.document["weights"][facts["place"] - 1]
            assert {name: row[name] for name in ("share", "u16", "chain_u16")} == {
                name: facts[name] for name in ("share", "u16", "chain_u16")
            }
        else:
            paid = {row["participant"]: row["net"] for row in then.document["payouts"]}
            assert paid.get(key, "0") == facts["net"]
        if nanos(facts["least"]):
            less = handed_in(case, settlement, key, text(nanos(facts["least"]) - 1))
            assert less.ranking.index(key) >= place - 1


def test_the_next_place_of_trials() -> None:
    case = passing({"a": [8] * 3, "b": [5] * 3, "c": [2] * 3}, [1, 1, 1], reward={"cap": "1"})
    assert prose(story_of(case, "a"), "next-place") == "It has the first place."
    assert prose(story_of(case, "c"), "next-place") == (
        "The place above, 2nd, is held by b with 0.5. A new submission with an agreed score of 0.500000001 or more takes it: "
        "if all else stays the same, its share would be 27.78 %: weight 18204 of 65535. "
        "If every validator sees the same, 6 of 10 trials passed are enough."
    )
    assert story_of(case, "c")["next-place"].facts["trials_passed"] == 6


def test_the_next_place_where_a_task_passes_by_all_validators() -> None:
    case = passing({"a": [8, 9, 8], "b": [5, 3, 4]}, [1, 1, 1])
    case["scheme"]["score"]["passed_by"] = "all"
    assert "It is enough if every validator sees all trials of 9 of 10 tasks pass." in prose(story_of(case, "b"), "next-place")
    facts = story_of(case, "b")["next-place"].facts
    assert (facts["tasks_passed"], facts["tasks"]) == (9, 10)
    assert (
        "In 3 of 10 tasks every one of them saw all trials pass; only these count as passed. So all have the score 0.3."
    ) in prose(story_of(case, "b"), "evidence")
    case["evidence"] = [record for record in case["evidence"] if record["participant"] != "b" or record["task"] != "t0"]
    assert "only these count" not in prose(story_of(case, "b"), "evidence")


def test_the_first_of_equals_is_passed_together_with_the_others() -> None:
    case = passing({"a": [5] * 3, "b": [5] * 3, "c": [5] * 3, "d": [1] * 3}, [1, 1, 1])
    assert "takes place 1 at once" in prose(story_of(case, "d"), "next-place")
    assert prose(story_of(case, "b"), "rank").endswith(
        "a and c have the same score: the earlier submission is first, then the key decides."
    )


def test_no_score_is_above_one() -> None:
    case = passing({"a": [10] * 3, "b": [5] * 3}, [1, 1, 1])
    for row, day in zip(case["participants"], "23", strict=True):
        row["submitted_at"] = f"2026-11-0{day}T09:00:00Z"
    assert prose(story_of(case, "b"), "next-place").endswith(
        "No score can take this place: there is no higher score, and of equal scores the earlier submission ranks first."
    )
    assert story_of(case, "b")["next-place"].facts["least"] is None
    case["participants"][1]["submitted_at"] = "9999-12-31T23:59:59.999999Z"
    assert story_of(case, "b")["next-place"].facts["least"] is None
    for row in case["participants"]:
        del row["submitted_at"]
    case["participants"][1]["key"] = "A"  # without times the key decides, and this one is before "a"
    for evidence_row in case["evidence"]:
        evidence_row["participant"] = evidence_row["participant"].replace("b", "A")
    assert story_of(case, "A")["next-place"].facts["least"] == "1"


def test_equals_share_a_place_of_a_ranking() -> None:
    case = passing({"a": [8] * 3, "b": [5] * 3, "c": [5] * 3, "d": [2] * 3}, [1, 1, 1], reward={"kind": "ranking"})
    case["scheme"].pop("decay", None)
    assert prose(story_of(case, "a"), "next-place") == "It has the first place."
    assert prose(story_of(case, "c"), "next-place").startswith(
        "The place above, 1st, is held by a with 0.8. An equal score shares it. If every "
    )
    facts = story_of(case, "d")["next-place"].facts
    assert (facts["rank"], facts["place"], facts["above"], facts["least"], facts["trials_passed"]) == (4, 2, "c", "0.5", 5)


CHECKS: list[Json] = [{"id": f"C{at}", "label": f"what {at} asks", "weight": 2500, "skippable": at > 1} for at in range(1, 5)]


def judged(answers: dict[str, list[str]], **scheme: Any) -> Json:
    """A rubric's case: participant → what each validator answered NO to."""
    records = [
        {"kind": "rubric", "epoch": 1, "validator": f"v{at}", "participant": key, "submission": f"s-{key}", "observed_at": WHEN}
        | {"baseline": {f"B{number}": f"B{number}" not in no for number in range(1, 5)}}
        | {"checks": {check["id"]: check["id"] not in no for check in CHECKS}, "verdict": "COHERENT"}
        for key, every in answers.items()
        for at, no in enumerate(every)
    ]
    return {
        "scheme": {"scheme": {"name": "r"}, "score": {"kind": "rubric", "checks": CHECKS}, **scheme},
        "epoch": 1,
        "participants": [{"key": key, "submission": f"s-{key}"} for key in answers],
        "validators": [{"key": f"v{at}", "stake": "1"} for at in range(3)],
        "evidence": records,
    }


PAYOUT: Json = {"reward": {"kind": "payout"}, "payout": {"deposit": "1000000", "split": [7000, 3000]}}


def test_the_checks_that_were_missed() -> None:
    case = judged({"a": ["", "C2", "C2C3"], "b": ["B3"] * 3, "c": [""] * 3}, **PAYOUT)
    chapter = story_of(case, "a")["failed"]
    assert chapter.text == ("2 checks were missed.",)
    assert chapter.table is not None
    assert chapter.table.rows == (
        ("C2", "2500", "yes", "v1 and v2", "what 2 asks"),
        ("C3", "2500", "yes", "v2", "what 3 asks"),
    )
    assert chapter.facts["checks"][1] == {"check": "C3", "weight": 2500, "skippable": True, "validators": ["v2"]}
    gate = story_of(case, "b")["failed"]
    assert gate.text == ("1 check was missed.",)
    assert gate.table is not None
    assert gate.table.rows == (("B3", "all", "no", "v0, v1 and v2", "it is not spam"),)
    assert prose(story_of(case, "c"), "failed") == "No check was missed."
    assert story_of(case, "c")["failed"].table is None


def test_the_next_place_of_a_payout() -> None:
    case = judged({"a": ["C2"] * 3, "b": ["C2C3"] * 3, "c": [""] * 3}, **PAYOUT)
    facts = story_of(case, "b")["next-place"].facts
    assert (facts["above"], facts["above_score"], facts["least"]) == ("a", "7500 BPS", "7501 BPS")
    assert prose(story_of(case, "b"), "next-place").endswith("it would be paid 300000 wei (0.0000000000003 ether) after fees.")
    assert "No score can take this place" not in prose(story_of(case, "b"), "next-place")
    case["scheme"]["payout"]["split"] = [10000]
    assert story_of(case, "b")["next-place"].facts["net"] == "0"


def test_the_tasks_that_were_not_passed() -> None:
    case = passing({"a": [9, 8, 8], "b": [10] * 3}, [1, 1, 1])
    chapter = story_of(case, "a")["failed"]
    assert chapter.text == ("2 tasks of 10 were not passed in every trial by every validator.",)
    assert chapter.table is not None
    assert chapter.table.rows == (("t8", "1 of 3", "v1, v2"), ("t9", "0 of 3", "v0, v1, v2"))
    assert prose(story_of(case, "b"), "failed") == "Every validator saw every task passed."
    assert story_of(passing({"a": [9, 9, 9]}, [1, 1, 1]), "a")["failed"].text[0].startswith("1 task of 10 was not passed")


def test_trials_and_lack_of_time_are_told() -> None:
    case = passing({"a": [10] * 3}, [1, 1, 1])
    case["scheme"]["score"]["trials"] = 2
    case["evidence"] += [row | {"trial": 2} for row in case["evidence"]]
    case["evidence"][0]["outcome"] = "timeout"  # t0 of v0, the first trial
    case["evidence"][10]["outcome"], case["evidence"][40]["outcome"] = "timeout", "fail"  # t0 of v1, both
    case["evidence"][21]["outcome"] = "fail"  # t1 of v2
    case["evidence"].append(case["evidence"][5] | {"trial": 9, "outcome": "fail"})  # of no trial that counts
    case["evidence"].append(case["evidence"][5] | {"task": "of another set"})
    story = story_of(case, "a")["failed"]
    assert story.table is not None
    assert story.table.rows == (
        ("t0", "3 of 6", "v0 (1 of 2, out of time), v1 (2 of 2, 1 out of time)"),
        ("t1", "5 of 6", "v2 (1 of 2)"),
    )
    by = story.facts["tasks"][0]["validators"]
    assert by[0] == {"validator": "v0", "passed": 1, "timeout": 1, "trials": 2}


def test_more_than_people_read_are_facts_alone() -> None:
    case = passing({"a": [0] * 3}, [1, 1, 1])
    case["tasks"] = [f"t{number}" for number in range(30)]
    case["evidence"] += [row | {"task": f"t{at}"} for at in range(10, 30) for row in case["evidence"] if row["task"] == "t0"]
    chapter = story_of(case, "a")["failed"]
    assert chapter.text[1] == "The first 20 are shown; --json shows all."
    assert chapter.table is not None
    assert (len(chapter.table.rows), len(chapter.facts["tasks"])) == (20, 30)


def ran(task: str, validator: str, **changes: Any) -> Json:
    fields = {"kind": "workflow", "epoch": 2, "validator": validator, "participant": "a", "submission": "s", "observed_at": WHEN}
    fields |= {"task": task, "quality": "1", "steps_completed": 4, "steps_total": 4, "cost": "0.01", "budget": "0.05"}
    return fields | {"seconds": "1", "max_seconds": "10"} | changes


def test_the_tasks_of_a_workflow_that_failed() -> None:
    case = {
        "scheme": {"scheme": {"name": "w"}, "score": {"kind": "workflow"}},
        "epoch": 2,
        "participants": [{"key": "a", "uid": 1, "submission": "s"}],
        "validators": [{"key": f"v{at}", "stake": "1"} for at in range(3)],
        "evidence": [ran(task, f"v{at}") for at in range(3) for task in ("x", "y", "z")],
    }
    assert prose(story_of(case, "a"), "failed") == "In every task success was above 0.7."
    changes: list[Json] = [{"quality": "0.7"}, {"outcome": "invalid"}]
    for at, change in zip((4, 7), changes, strict=True):
        case["evidence"][at] |= change  # type: ignore[index]
    chapter = story_of(case, "a")["failed"]
    assert chapter.text == (
        "In 1 of 3 tasks success was not above 0.7 for every validator, so cost and time add nothing to the score there.",
    )
    assert chapter.table is not None
    assert chapter.table.rows == (("y", "2", "v1 (0.7), v2 (invalid)"),)


def test_where_only_sums_are_there_the_records_are_given() -> None:
    case = passing({"a": [9, 8, 8]}, [1, 1, 1])
    whole = parse_case(case)
    settlement = settle(whole)
    sums = settle(replace(whole, evidence=settlement.scored))
    assert isinstance(sums.inputs.evidence, Scored)
    assert "failed" not in names(sums.explain("a"))
    records = [record(row) for row in case["evidence"]]
    assert sums.explain("a", records)["failed"] == settlement.explain("a")["failed"]


def names(story: Explanation) -> set[str]:
    return {chapter.name for chapter in story.chapters}


@pytest.mark.parametrize("kind", ["points", "given"])
def test_other_kinds_have_nothing_that_fails(kind: str) -> None:
    case = cases.case_of(3, kind)
    settlement = settled(case)
    assert all("failed" not in names(settlement.explain(key)) for key in settlement.frame.participants)


def test_decay_says_when_it_begins() -> None:
    case = passing({"a": [8] * 3}, [1, 1, 1], reward={"cap": "1"})
    assert prose(story_of(case, "a"), "decay").startswith(
        "Its clock was last reset in epoch 12, this epoch; the first 10 epochs are free. Everything is kept. "
        "Decay begins in epoch 23, unless the clock is reset before."
    )
    assert story_of(case, "a")["decay"].facts["begins"] == 23
