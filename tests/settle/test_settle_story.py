"""The story of a participant says what the settlement says, in every case, and what is missing where there is no score."""

import json
from typing import Any

import pytest
from hypothesis import given

from assay.errors import BadInput
from assay.exact import canonical
from assay.folder import parse_case
from assay.records import Validator
from assay.settle import Settlement, settle
from assay.settle.story import Explanation, Table, called, explain, without_score
from assay.settle.story.telling import named, ordinal, part, percent, percents, plural
from oracle import cases

TASKS = [f"t{number}" for number in range(10)]
WHEN = "2026-11-02T09:00:00Z"
Json = dict[str, Any]


def passing(passed: dict[str, list[int | None]], stakes: list[int], **sections: Json) -> Json:
    """A competition of kind tests: participant → how many of ten tasks passed at each validator, None where it saw nothing."""
    records = [
        {"kind": "tests", "epoch": 12, "validator": f"v{at}", "participant": key, "submission": f"s-{key}", "observed_at": WHEN}
        | {"task": task, "outcome": "pass" if number < count else "fail"}
        for key, counts in passed.items()
        for at, count in enumerate(counts)
        if count is not None
        for number, task in enumerate(TASKS)
    ]
    return {
        "scheme": {"scheme": {"name": "story"}, "score": {"kind": "tests"}, **sections},
        "epoch": 12,
        "participants": [
            {"key": key, "uid": at + 1, "submission": f"s-{key}", "last_reset_epoch": 12} for at, key in enumerate(passed)
        ],
        "validators": [{"key": f"v{at}", "stake": str(stake)} for at, stake in enumerate(stakes)],
        "tasks": TASKS,
        "evidence": records,
    }


def settled(case: Json) -> Settlement:
    return settle(parse_case(case))


def story_of(case: Json, key: str) -> Explanation:
    return settled(case).explain(key)


def prose(story: Explanation, chapter: str) -> str:
    return " ".join(story[chapter].text)


@given(cases.cases())
def test_every_story_repeats_the_settlement_and_nothing_else(case: Json) -> None:
    settlement = settled(case)
    document = settlement.document
    missing = without_score(settlement)
    weights = {row["participant"]: row for row in document["weights"]}
    for row in document["agreed"]:
        key = row["participant"]
        story = explain(settlement, key)
        assert (story.status, story.reason, story.settlement) == (row["status"], row["reason"], document["digest"])
        assert key in story.summary
        assert canonical(story.document()) == canonical(json.loads(json.dumps(story.document())))
        chapters = {chapter.name for chapter in story.chapters}
        assert len(chapters) == len(story.chapters)
        assert all(len(line) == len(c.table.columns) for c in story.chapters if c.table for line in c.table.rows)
        if row["status"] != "agreed":
            assert story["status"] == missing[key]
            assert chapters <= {"status", "evidence", "failed", "quorum", "outliers"}
            continue
        assert key not in missing
        assert story["score"].facts["score"] == row["score"]
        assert story["rank"].facts["rank"] == document["ranking"].index(key) + 1
        assert story["evidence"].facts["validators"] == row["validators"]
        if document["burn"] is None:
            assert {"release", "payout"} <= chapters
        else:
            assert {name: story["weight"].facts[name] for name in ("uid", "share", "u16", "chain_u16")} == {
                name: weights[key][name] for name in ("uid", "share", "u16", "chain_u16")
            }


def test_someone_unknown_is_refused_with_a_suggestion() -> None:
    settlement = settled(passing({"alice": [5, 5, 5]}, [1, 1, 1]))
    with pytest.raises(BadInput, match="did you mean 'alice'"):
        settlement.explain("alise")
    with pytest.raises(BadInput, match=r"participants\.csv"):
        settlement.explain("zzz")
    with pytest.raises(KeyError):
        settlement.explain("alice")["payout"]


def test_outliers_are_named_with_the_numbers_they_went_by() -> None:
    story = story_of(passing({"a": [8, 8, 8, 1]}, [1, 1, 1, 1]), "a")
    assert prose(story, "outliers") == (
        "The median is 0.8, MAD is 0 (at least 0.01 is used). "
        "|M| = 0.6745 × |score − median| / 0.01; above 3.5 it is an outlier. "
        "v3 is too far from the others and left out."
    )
    table = story["evidence"].table
    assert table is not None
    assert table.columns == ("validator", "stake", "saw", "score", "|M|", "counts")
    assert table.rows[3] == ("v3", "1", "1 of 10 passed", "0.1", "47.215", "no: outlier")
    assert prose(story, "score") == "The mean, weighted by stake, of the 3 scores that count is 0.8."


def test_flagged_who_hold_half_the_stake_stay() -> None:
    story = story_of(passing({"a": [8, 8, 8, 1]}, [1, 1, 1, 3]), "a")
    assert "v3 is flagged, but together the flagged hold half or more" in prose(story, "outliers")
    table = story["evidence"].table
    assert table is not None
    assert table.rows[3][-1] == "yes, though flagged"


@pytest.mark.parametrize(
    ("outliers", "expected"),
    [
        ({"method": "none"}, "The scheme does not look for outliers."),
        ({"method": "z"}, "The mean is 0.625; a score is an outlier where z² = ((score − mean) / σ)² is above 4."),
        ({"mad_floor": "0"}, "The median is 0.8 and MAD is 0: without a mad_floor no score can be flagged."),
    ],
)
def test_other_ways_to_look_for_outliers(outliers: Json, expected: str) -> None:
    story = story_of(passing({"a": [8, 8, 8, 1]}, [1, 1, 1, 1], consensus={"outliers": outliers}), "a")
    assert prose(story, "outliers").startswith(expected)


def test_two_scores_have_no_outlier() -> None:
    story = story_of(passing({"a": [8, 1]}, [1, 1], consensus={"min_validators": 2}), "a")
    assert prose(story, "outliers") == "There are fewer than three scores, so none can be an outlier."


def test_stake_is_shown_in_tao_too() -> None:
    story = story_of(passing({"a": [8, 8, 8, 5]}, [10**12, 1, 250 * 10**9, 10**9]), "a")
    evidence, quorum = story["evidence"].table, story["quorum"].table
    assert evidence is not None
    assert quorum is not None
    assert evidence.columns[:3] == ("validator", "stake", "in TAO")
    assert [row[1:3] for row in evidence.rows[:2]] == [("1000000000000", "1000"), ("1", "0.000000001")]
    assert quorum.rows[1:3] == (
        ("stake, rao", "1251000000001", "375300000001", "yes"),
        ("stake, TAO", "1251.000000001", "375.300000001", "yes"),
    )
    assert prose(story, "quorum").endswith("all stake in the registry, 1251000000001 rao (1251.000000001 TAO).")


def test_stake_that_is_missing_is_shown_in_tao_too() -> None:
    tao = 10**9
    story = story_of(passing({"a": [8, 8, 8, None]}, [tao, tao, tao, 97 * tao]), "a")
    assert prose(story, "status") == (
        "The validators that count hold 3000000000 rao (3 TAO), 3 % of the stake; 30 % is needed, 30000000000 rao (30 TAO). "
        "To do: validators with at least 27000000000 rao (27 TAO) more must judge it."
    )


def test_too_few_validators() -> None:
    story = story_of(passing({"a": [8, None, None]}, [1, 1, 1]), "a")
    assert prose(story, "status") == "1 validator counts; 3 are needed. To do: 2 more validators must judge the whole submission."
    assert story.summary == "a has no agreed score in epoch 12 (no-quorum), so it has no share in the reward."
    assert story["quorum"].facts["held"] is False


def test_too_little_stake() -> None:
    story = story_of(passing({"a": [8, 8, 8, None]}, [1, 1, 1, 97]), "a")
    assert prose(story, "status") == (
        "The validators that count hold 3, 3 % of the stake; 30 % is needed, 30. "
        "To do: validators with at least 27 more must judge it."
    )


def test_stake_after_outliers() -> None:
    case = passing({"a": [8, 8, 8, 1, None]}, [4, 4, 4, 10, 28], consensus={"recheck": True})
    story = story_of(case, "a")
    assert story.reason == "stake-after-outliers"
    assert "hold 12. The scheme checks the quorum again (recheck): 15 is needed" in prose(story, "status")
    assert story["outliers"].facts["excluded"] == ["v3"]


def test_missing_trials() -> None:
    case = passing({"a": [8, 8, 8]}, [1, 1, 1])
    del case["evidence"][-2:]
    story = story_of(case, "a")
    assert prose(story, "status").startswith("Trials are missing from v2 (2).")
    table = story["evidence"].table
    assert table is not None
    assert table.rows[2] == ("v2", "–", "–", "–", "no: 2 of 10 missing")
    assert "1 more has evidence about it that does not count." in story["evidence"].text


def test_a_duplicate() -> None:
    case = passing({"a": [8, 8, 8], "b": []}, [1, 1, 1])
    case["participants"][1]["submission"] = "s-a"
    story = story_of(case, "b")
    assert prose(story, "status").startswith("a handed in the same submission earlier,")
    assert len(story.chapters) == 1


def test_no_evidence_no_submission_and_none_that_counts() -> None:
    case = passing({"a": [8, 8, 8], "b": [], "c": [], "d": [8, 8]}, [0, 0, 1])
    case["participants"][2]["submission"] = ""
    settlement = settled(case)
    assert (
        "No validator has evidence about its current submission, in this epoch or before."
        in settlement.explain("b")["status"].text
    )
    assert "It has no submission in participants.csv, and there is no evidence about it." in prose(
        settlement.explain("c"), "status"
    )
    why = "Validators have evidence about it, but none of it counts: v0 (has no stake) and v1 (has no stake)."
    assert prose(settlement.explain("d"), "status").startswith(why)
    table = settlement.explain("d")["evidence"].table
    assert table is not None
    assert table.rows[0][-1] == "no: has no stake"


def test_nobody_drawn() -> None:
    case = passing({"a": [8, 8, 8], "b": []}, [1, 1, 1], consensus={"assign": 2, "min_validators": 2})
    case["randomness"] = [{"epoch": 12, "hex": "00" * 32}]
    settlement = settled(case)
    assert prose(settlement.explain("b"), "status").startswith("No validator was drawn to judge it")
    assert "the stake of the assigned validators, 2" in prose(settlement.explain("a"), "quorum")
    table = settlement.explain("a")["evidence"].table
    assert table is not None
    assert table.rows[2][-1] == "no: not drawn for this submission"


def test_a_cap_that_takes_and_gives() -> None:
    settlement = settled(passing({"a": [10] * 3, "b": [1] * 3, "c": [1] * 3}, [1, 1, 1]))
    assert prose(settlement.explain("a"), "cap") == (
        "No share may be more than 50 %: the 0.333333333 above it went to the shares below it. 0.5 is left."
    )
    assert "raises this share by 0.166666667 to 0.25" in prose(settlement.explain("b"), "cap")
    assert prose(settlement.explain("b"), "rank").endswith(
        "c has the same score: the earlier submission is first, then the key decides."
    )


def test_a_cap_that_nobody_can_fill_burns() -> None:
    story = story_of(passing({"a": [10] * 3, "b": [1] * 3}, [1, 1, 1], reward={"cap": "0.4"}), "a")
    assert "went to the shares below it as far as they could take it, and the rest burns" in prose(story, "cap")


def test_decay_since_when_and_what_ends_it() -> None:
    case = passing({"a": [8] * 3}, [1, 1, 1], reward={"cap": "1"})
    case["participants"][0]["last_reset_epoch"] = 0
    assert prose(story_of(case, "a"), "decay") == (
        "Its clock was last reset in epoch 0, 12 epochs ago; the first 10 epochs are free. "
        "2 stale epochs at 5 % (linear, at most 80 %), from epoch 11 on: 10 % burns, 90 % is kept. "
        "A new submission with a score above its own best, 0.8, resets the clock."
    )
    case["scheme"]["decay"] = {"reset": "update"}
    assert prose(story_of(case, "a"), "decay").endswith("A new submission resets the clock.")
    case["scheme"]["decay"] = {"curve": "none"}
    assert prose(story_of(case, "a"), "decay") == "Under this scheme nothing decays."


def test_decay_of_a_whole_competition() -> None:
    case = passing({"a": [8] * 3}, [1, 1, 1], decay={"clock": "competition"})
    assert prose(story_of(case, "a"), "decay").endswith(
        "If anyone's new submission reaches 0.816 (the record is 0.8), the clock is reset for all."
    )
    case["scheme"]["decay"]["improvement_mode"] = "absolute"
    assert "reaches 0.82 " in prose(story_of(case, "a"), "decay")
    case["history"] = [{"epoch": 1, "top_score": "0.995", "submission": "old"}]
    assert "reaches 1 (the record is 0.995)" in prose(story_of(case, "a"), "decay")


def test_a_score_of_zero_or_below_the_floor_takes_no_part() -> None:
    settlement = settled(passing({"a": [8] * 3, "b": [1] * 3, "c": [0] * 3}, [1, 1, 1], reward={"min_score": "0.2"}))
    assert prose(settlement.explain("b"), "strategy") == "The score is below min_score, 0.2, so it has no part in the reward."
    assert prose(settlement.explain("c"), "strategy") == "A score of 0 has no part in the reward."
    assert {chapter.name for chapter in settlement.explain("c").chapters}.isdisjoint({"cap", "decay"})


@pytest.mark.parametrize(
    ("reward", "key", "expected"),
    [
        ({"strategy": "linear"}, "a", "Linear: its score 0.8 of 1, the sum of the 2 scores that take part, is 0.8 (80 %)."),
        (
            {"strategy": "direct"},
            "b",
            "Direct: the score itself is the share, 0.2 (20 %), as all scores together (1) are not more than 1.",
        ),
        ({"strategy": "softmax", "temperature": "0.5"}, "a", "Softmax at temperature 0.5 over 2 scores: "),
        ({"strategy": "winner-takes-all"}, "a", "Winner takes all: the first of the ranking gets all: 1 (100 %)."),
        ({"strategy": "winner-takes-all"}, "b", "Winner takes all: only the first of the ranking gets a share; 2nd gets none."),
        (
            {"strategy": "quadratic"},
            "a",
            "Quadratic: the square of its score 0.8 over the sum of the squares of 2 scores: 0.941176471",
        ),
        ({"strategy": "ranked"}, "b", "Ranked: place 2 of 2 gets 1 of 3 parts: 0.333333333 (33.33 %)."),
    ],
)
def test_what_each_strategy_gave(reward: Json, key: str, expected: str) -> None:
    story = story_of(passing({"a": [8] * 3, "b": [2] * 3}, [1, 1, 1], reward=reward | {"cap": "1"}), key)
    assert prose(story, "strategy").startswith(expected)


def test_one_is_not_spoken_of_as_many() -> None:
    alone = passing({"a": [8, 8, 8]}, [1, 1, 1], decay={"curve": "linear", "grace_epochs": 1})
    assert "the sum of the 1 score that takes part" in prose(story_of(alone, "a"), "strategy")
    assert "the first epoch is free." in prose(story_of(alone, "a"), "decay")
    alone["scheme"]["decay"]["grace_epochs"] = 0
    assert "no epoch is free." in prose(story_of(alone, "a"), "decay")
    shared = passing({"a": [8, 8, 8], "b": [7, 7, 7]}, [1, 1, 1], reward={"strategy": "winner-takes-all", "top": 2})
    assert "the first 2 of the ranking get equal shares" in prose(story_of(shared, "a"), "strategy")
    equal = passing({key: [8, 8, 8] for key in "abc"}, [1, 1, 1])
    assert "a and c have the same score" in prose(story_of(equal, "b"), "rank")
    first = passing({"a": [1, 1, 1], "b": [0, 0, 0]}, [1, 1, 1], reward={"kind": "ranking"})
    assert "1 of 10 trials passed is enough." in prose(story_of(first, "b"), "next-place")
    assert plural(1, "batch", "batches") == "1 batch"
    assert plural(2, "batch", "batches") == "2 batches"


def test_direct_scores_above_one_together() -> None:
    story = story_of(passing({"a": [9] * 3, "b": [6] * 3}, [1, 1, 1], reward={"strategy": "direct", "cap": "1"}), "a")
    assert prose(story, "strategy") == "Direct: its score 0.9 of 1.5, the sum of all scores, which is more than 1: 0.6 (60 %)."


def test_who_has_no_uid_is_told_so() -> None:
    case = passing({"a": [8] * 3}, [1, 1, 1])
    case["participants"][0]["uid"] = None
    assert prose(story_of(case, "a"), "weight").startswith("It has no uid on the subnet, so its share burns.")
    assert story_of(case, "a").summary.endswith(". It has no uid, so its share burns: weight 0 of 65535.")


def given_case(scores: dict[str, str], payout: Json) -> Json:
    """A competition that pays out by given scores."""
    records = [
        {
            "kind": "given",
            "epoch": 1,
            "validator": "v",
            "participant": key,
            "submission": key,
            "observed_at": WHEN,
            "score": score,
        }
        for key, score in scores.items()
    ]
    return {
        "scheme": {
            "scheme": {"name": "prize"},
            "score": {"kind": "given"},
            "consensus": {"min_validators": 1, "min_stake": "0"},
            "reward": {"kind": "payout"},
            "payout": {"deposit": "1000"} | payout,
        },
        "participants": [{"key": key, "submission": key} for key in scores],
        "validators": [{"key": "v", "stake": "1"}],
        "evidence": records,
    }


def test_payouts() -> None:
    case = given_case({"a": "0.9", "b": "0.6", "c": "0.1"}, {"split": [6000, 3000, 1000], "fee_bps": 250})
    case["participants"][0]["address"] = "0x" + "a1" * 20
    settlement = settled(case)
    a, b, c = (settlement.explain(key) for key in "abc")
    assert prose(a, "release") == (
        "The best score, 9000 BPS, is 128.57 % of the threshold of 7000 BPS: 100 % of the deposit is released."
    )
    assert a["release"].table == Table(
        ("", "wei", "in ether"), (("deposit", "1000", "0.000000000000001"), ("released", "1000", "0.000000000000001"))
    )
    assert prose(a, "payout") == f"1st place gets 60 % of it, less a fee of 2.5 %. It goes to 0x{'a1' * 20}."
    assert a["payout"].table == Table(
        ("", "wei", "in ether"),
        (
            ("its part", "600", "0.0000000000000006"),
            ("fee", "15", "0.000000000000000015"),
            ("paid", "585", "0.000000000000000585"),
        ),
    )
    assert a.summary == "a is 1st of 3 with a score of 0.9 and is paid 585 wei (0.000000000000000585 ether) after fees."
    in_token = settlement.explain("a", token="0x5fbd…0aa3")
    assert in_token.summary.endswith("and is paid 585 smallest units of the token 0x5fbd…0aa3 after fees.")
    assert in_token["release"].table == Table(
        ("", "smallest units", "of the token"), (("deposit", "1000", "0x5fbd…0aa3"), ("released", "1000", "0x5fbd…0aa3"))
    )
    assert prose(b, "payout").endswith("To do: participants.csv has no address to pay to; fill it in.")
    assert prose(c, "payout") == "A place is paid only if its own score reaches 50 % of the threshold; 1000 BPS does not."
    assert c.summary.endswith("and is not paid.")


def test_payouts_that_are_nothing() -> None:
    low = story_of(given_case({"a": "0.1"}, {}), "a")
    assert prose(low, "release").endswith("below the lowest tier (50 %): the deposit is refunded.")
    assert prose(low, "payout") == "Nothing is released, so nothing is paid."
    second = story_of(given_case({"a": "0.9", "b": "0.8"}, {}), "b")
    assert prose(second, "payout") == "2nd place is not paid; the prize is for 1 place."
    dust = story_of(given_case({"a": "0.9", "b": "0.8"}, {"deposit": "1", "split": [9999, 1]}), "b")
    assert prose(dust, "payout") == "Its part of the released amount is less than the smallest unit, so it is paid nothing."


def test_unjudged() -> None:
    case = given_case({"a": "0.9"}, {})
    case["scheme"]["score"] = {"kind": "rubric", "checks": [{"id": "C1", "weight": 10000}]}
    record = {"kind": "rubric", "epoch": 1, "validator": "v", "participant": "a", "submission": "a", "observed_at": WHEN}
    case["evidence"] = [record | {"outcome": "unjudged"}]
    story = story_of(case, "a")
    assert prose(story, "status").startswith("v could not judge it:")


def test_a_suspected_injection() -> None:
    case = given_case({"a": "0.9"}, {})
    case["scheme"]["score"] = {"kind": "rubric", "checks": [{"id": "C1", "weight": 10000}], "injection": "unjudged"}
    record = {"kind": "rubric", "epoch": 1, "validator": "v", "participant": "a", "submission": "a", "observed_at": WHEN}
    answers = {"baseline": dict.fromkeys(("B1", "B2", "B3", "B4"), True), "checks": {"C1": True}, "verdict": "COHERENT"}
    case["evidence"] = [record | answers | {"injection_suspected": True}]
    story = story_of(case, "a")
    assert prose(story, "status").startswith("v found signs that the solution speaks to the judge;")
    table = story["evidence"].table
    assert table is not None
    assert table.rows[0][-1] == "no: an injection is suspected; this scheme then gives no score"


@pytest.mark.parametrize(
    ("answers", "verdict", "expected"),
    [
        ({"C1": True, "C2": False}, "ELEGANT", "base 6000, ELEGANT: 8000"),
        ({"C1": False, "C2": True}, "COHERENT", "base 4000, COHERENT, unskippable check missed: 2000"),
    ],
)
def test_what_a_judge_saw(answers: Json, verdict: str, expected: str) -> None:
    case = given_case({"a": "0.9"}, {})
    checks = [{"id": "C1", "weight": 6000, "skippable": False}, {"id": "C2", "weight": 4000}]
    case["scheme"]["score"] = {"kind": "rubric", "checks": checks}
    record = {"kind": "rubric", "epoch": 1, "validator": "v", "participant": "a", "submission": "a", "observed_at": WHEN}
    baseline = dict.fromkeys(("B1", "B2", "B3", "B4"), True)
    case["evidence"] = [record | {"baseline": baseline, "checks": answers, "verdict": verdict}]
    table = story_of(case, "a")["evidence"].table
    assert table is not None
    assert table.rows[0][2] == expected
    case["evidence"] = [record | {"baseline": baseline | {"B1": False}}]
    table = story_of(case, "a")["evidence"].table
    assert table is not None
    assert table.rows[0][2] == "baseline not met"


def test_a_story_is_plain_text_too() -> None:
    text = str(story_of(passing({"a": [8, 8, 8]}, [1, 1, 1]), "a"))
    assert text.startswith(
        "a is 1st of 1 with a score of 0.8 and has a share of 50 %: weight 32768 of 65535.\n\nWhat the validators saw"
    )
    assert "\n  v0         1      8 of 10 passed  0.8    0    yes\n" in text


def test_how_numbers_are_written() -> None:
    assert [percent(share) for share in ("0", "0.3333333", "1", "0.00001")] == ["0 %", "33.33 %", "100 %", "under 0.01 %"]
    assert percents(["0.1", "0.095"]) == ["10.00 %", "9.50 %"]
    assert percents(["0.1", "1"]) == ["10 %", "100 %"]
    assert (part(1, 3), part(1, 0)) == ("33.33 %", "0 %")
    assert (plural(1, "epoch"), plural(2, "epoch")) == ("1 epoch", "2 epochs")
    assert [ordinal(count) for count in (1, 2, 3, 4, 11, 12, 13, 21, 112)] == [
        *("1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "112th"),
    ]
    assert (named(["a"]), named(["a", "b"]), named(list("abcdefg"))) == ("a", "a and b", "a, b, c, d and 3 more")


def test_long_keys_of_validators_are_called_by_name_or_shortened() -> None:
    first, second, third, fourth = "a" * 64, "b" * 64, f"{'c' * 6}{'1' * 54}{'c' * 4}", f"{'c' * 6}{'2' * 54}{'c' * 4}"
    several = [Validator("short", 1, "Ann"), Validator(first, 1, "Bob"), *(Validator(key, 1) for key in (second, third, fourth))]
    assert called(several) == {"short": "short", first: "Bob", second: "bbbbbb…bbbb", third: third, fourth: fourth}
    assert called([Validator(first, 1, "Bob"), Validator(second, 1, "Bob")]) == {first: first, second: second}


def test_a_hotkey_is_called_by_its_name_and_its_ends() -> None:
    first, second, third = "5a" * 32, "5b" * 32, "5C4hrfjw9DjXZTzV3MwzrrAr9P1MJhSrvWGWqi1eSuyUpnhM"
    case = passing({first: [9, 9, 9], second: [5, 5, 5], third: [5, 5, 5]}, [1, 1, 1])
    people = {row["key"]: row for row in case["participants"]}
    people[first]["name"] = "Atlas"
    assert story_of(case, first).summary.startswith("Atlas (5a5a5a…5a5a) is 1st of 3")
    assert "is held by Atlas (5a5a5a…5a5a) with 0.9." in prose(story_of(case, third), "next-place")
    assert "5C4hrf…pnhM has the same score" in prose(story_of(case, second), "rank")
    people[second]["submission"] = people[first]["submission"]
    assert prose(story_of(case, second), "status").startswith("Atlas (5a5a5a…5a5a) handed in the same submission earlier")


def test_a_ranking_speaks_of_runs_and_of_no_reward() -> None:
    runs = {"min_validators": 1, "min_stake": "0", "combine": "mean", "outliers": {"method": "none"}}
    passed: dict[str, list[int | None]] = {"a": [9, 8], "b": [7, None], "c": [7, 7], "d": [None, None]}
    case = passing(passed, [1, 1], consensus=runs, reward={"kind": "ranking"})
    first, second = story_of(case, "a"), story_of(case, "b")
    assert prose(first, "quorum") == "2 runs count; 1 is needed."
    assert prose(second, "quorum") == "1 run counts; 1 is needed."
    assert prose(first, "next-place") == "It has the first place."
    assert prose(second, "rank") == "2nd of 3 participants with an agreed score. c has the same score, so they share the place."
    assert prose(second, "next-place").startswith("The place above, 1st, is held by a with 0.85. An equal score shares it.")
    assert {chapter.name for chapter in first.chapters}.isdisjoint({"share", "cap", "decay", "weight", "release", "payout"})
    strict = passing(passed, [1, 1], consensus=runs | {"min_validators": 2}, reward={"kind": "ranking"})
    assert "1 run counts; 2 are needed." in " ".join(without_score(settled(strict))["b"].text)
    assert "2 are needed." in prose(story_of(strict, "a"), "quorum")
