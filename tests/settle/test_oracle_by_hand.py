"""The oracle on cases that were worked out by hand."""

import hashlib
from typing import Any

import pytest

from oracle import emission, settle
from oracle_kit import (
    ALONE,
    MET,
    SEED_CHECKS,
    Doc,
    a_case,
    case_of_tests,
    given_case,
    head,
    rubric_record,
    score_of,
)


def test_ties_go_to_the_earlier_instant_then_the_key() -> None:
    case = given_case(["0.5", "0.5", "0.5", "0.5"])
    times = [None, "2026-01-01T11:00:00Z", "2026-01-01T12:30:00+02:00", "2026-01-01T11:00:00.000Z"]
    for participant, time in zip(case["participants"], times, strict=True):
        participant["submitted_at"] = time
    assert settle(case)["ranking"] == ["p2", "p1", "p3", "p0"]


def test_a_duplicate_counts_for_the_earliest_only() -> None:
    case = given_case(["0.5", "0.6"])
    for participant, time in zip(case["participants"], ["2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"], strict=True):
        participant |= {"submission": "same", "submitted_at": time}
    case["evidence"] = [case["evidence"][0] | {"submission": "same"}]
    first, second = settle(case)["agreed"]
    assert (first["participant"], first["score"]) == ("p1", "0.5")
    assert (second["status"], second["duplicate_of"], second["validators"]) == ("duplicate", "p1", [])


def test_the_first_accepted_record_stands_until_it_is_too_old() -> None:
    first = head("rubric", "p", epoch=1) | {"seq": 1, "baseline": MET | {"B1": False}}
    later = rubric_record("p", [], "COHERENT") | {"seq": 2, "epoch": 3}
    case = a_case("rubric", [later, first], score={"checks": SEED_CHECKS}, epoch=3)
    assert score_of(case) == "0"
    case["scheme"]["consensus"] = ALONE | {"max_age_epochs": 1}
    assert score_of(case) == "1"


def test_recheck_asks_for_the_stake_after_outliers() -> None:
    evidence = [head("given", "p", f"v{i}") | {"score": score} for i, score in enumerate(["0.5", "0.5", "0.5", "0.9"])]
    case = a_case("given", evidence, consensus={"min_stake": "80%"})
    assert score_of(case) == "0.5"
    case["scheme"]["consensus"]["recheck"] = True
    row = settle(case)["agreed"][0]
    assert (row["status"], row["reason"], row["score"]) == ("no-quorum", "stake-after-outliers", None)
    assert (row["median"], row["mad"], row["validators"][3]["modified_z"]) == ("0.5", "0", "26.98")


def test_flagged_validators_with_half_of_the_stake_are_not_excluded() -> None:
    evidence = [head("given", "p", f"v{i}") | {"score": score} for i, score in enumerate(["0.8", "0.8", "0.2"])]
    case = a_case("given", evidence, consensus={})
    for stake, score in (("2", "0.5"), ("1", "0.8")):
        case["validators"][2]["stake"] = stake
        row = settle(case)["agreed"][0]
        assert (row["score"], row["flagged_majority"]) == (score, stake == "2")
        assert row["validators"][2]["flagged"]


def test_z_flags_strictly_above_the_threshold() -> None:
    evidence = [head("given", "p", f"v{i}") | {"score": score} for i, score in enumerate(["0", "0", "0", "0", "1"])]
    for threshold, flagged in (("2", False), ("1.999999999", True)):
        row = settle(a_case("given", evidence, consensus={"outliers": {"method": "z", "threshold": threshold}}))["agreed"][0]
        assert (row["validators"][4]["flagged"], row["validators"][4]["z_squared"], row["mean"]) == (flagged, "4", "0.2")


def test_the_lower_score_at_half_the_stake_is_the_stake_median() -> None:
    evidence = [head("given", "p", f"v{i}") | {"score": score} for i, score in enumerate(["0.9", "0.1"])]
    assert score_of(a_case("given", evidence, consensus=ALONE | {"combine": "stake-median"})) == "0.1"


def test_an_incomplete_validator_does_not_count_and_says_what_is_missing() -> None:
    case = case_of_tests(2, 3)
    case["evidence"] = [case["evidence"][0], case["evidence"][1] | {"outcome": "error"}]
    row = settle(case)["agreed"][0]
    assert (row["status"], row["reason"]) == ("incomplete", "missing-trials")
    assert row["not_counted"] == [{"validator": "v", "reason": "incomplete", "missing": 2}]


def test_only_the_assigned_count() -> None:
    evidence = [head("given", "p", validator) | {"score": "0.5"} for validator in ("v1", "v2", "v3")]
    case = a_case("given", evidence, consensus=ALONE | {"assign": 1}, randomness=[{"epoch": 0, "hex": "07" * 32}])
    drawn = min(("v1", "v2", "v3"), key=lambda key: hashlib.sha256(b"\x07" * 32 + b"\0of-p\0" + key.encode()).digest())
    row = settle(case)["agreed"][0]
    assert [v["validator"] for v in row["validators"]] == [drawn]
    assert (row["needed_stake_of"], {n["reason"] for n in row["not_counted"]}) == ("1", {"not-assigned"})


def test_without_uid_the_share_burns_last() -> None:
    case = given_case(["0.5", "0.5"], reward={"encoding": "exact-sum"})
    case["participants"][0]["uid"] = None
    document = settle(case)
    assert [row["u16"] for row in document["weights"]] == [0, 32768]
    assert (document["burn"]["u16"], document["burn"]["unregistered"]) == (32767, "0.5")
    assert [row["chain_u16"] for row in document["weights"]] == [0, 65535]


def chained(cases: list[Doc]) -> list[Doc]:
    """Settlements of successive cases, each the `previous` of the next."""
    documents: list[Doc] = []
    for case in cases:
        documents.append(settle(case | {"previous": documents[-1] if documents else None}))
    return documents


def one_score(epoch: int, score: str, submission: str, **decay: Any) -> Doc:
    case = given_case([score], epoch=epoch, decay=decay)
    case["participants"][0]["submission"] = case["evidence"][0]["submission"] = submission
    return case


@pytest.mark.parametrize(("reset", "lasts"), [("improvement", [3, 3, 3, 6]), ("update", [3, 4, 4, 6])])
def test_a_participants_clock(reset: str, lasts: list[int]) -> None:
    steps = [(3, "0.5", "a"), (4, "0.4", "b"), (5, "0.9", "b"), (6, "0.91", "c")]
    settled = chained([one_score(*step, reset=reset) for step in steps])
    assert [document["weights"][0]["last"] for document in settled] == lasts
    assert settled[-1]["clock"]["participants"] == [{"participant": "p0", "submission": "c", "best": "0.91", "last": 6}]


@pytest.mark.parametrize(
    ("mode", "scores", "lasts"),
    [
        ("relative", ["0.5", "0.509999999", "0.51", "0.99", "1"], [0, 0, 2, 3, 4]),
        ("absolute", ["0.5", "0.519999999", "0.52", "0.99", "1"], [0, 0, 2, 3, 4]),
    ],
)
def test_the_competitions_clock(mode: str, scores: list[str], lasts: list[int]) -> None:
    decay = {"clock": "competition", "improvement_mode": mode}
    steps = [one_score(epoch, score, f"s{epoch}", **decay) for epoch, score in enumerate(scores)]
    settled = chained(steps)
    assert [document["clock"]["last"] for document in settled] == lasts
    history = [{"epoch": epoch, "top_score": score, "submission": f"s{epoch}"} for epoch, score in enumerate(scores)]
    for epoch, step in enumerate(steps):
        assert settle(step | {"history": history})["clock"]["last"] == lasts[epoch]


def test_an_old_submission_judged_better_does_not_reset_the_competitions_clock() -> None:
    first = given_case(["0.5", "0.4"], decay={"clock": "competition"})
    second = given_case(["0.5", "0.9"], epoch=1, decay={"clock": "competition"})
    assert [document["clock"]["last"] for document in chained([first, second])] == [0, 0]
    second["participants"][1]["submission"] = second["evidence"][1]["submission"] = "another"
    assert [document["clock"]["last"] for document in chained([first, second])] == [0, 1]


def test_a_new_task_set_restarts_both_clocks() -> None:
    first, second = case_of_tests(3, 4), case_of_tests(1, 2) | {"epoch": 7}
    same = case_of_tests(1, 4) | {"epoch": 7}
    for case, last in ((second, 7), (same, 0)):
        clock = chained([first, case])[1]["clock"]
        assert (clock["last"], clock["participants"][0]["last"]) == (last, last)


def test_what_the_cap_frees_is_spread_within_what_direct_gave() -> None:
    document = settle(given_case(["0.6", "0.1"], reward={"strategy": "direct"}))
    assert [row["capped"] for row in document["weights"]] == ["0.5", "0.2"]
    assert (document["burn"]["strategy"], document["burn"]["cap"]) == ("0.3", "0")


def test_an_emission_split() -> None:
    first, two = given_case(["0.5", "0.5"], reward={"cap": "100%"}), given_case(["1"], reward={"cap": "100%"})
    two["participants"][0]["key"] = two["evidence"][0]["participant"] = "p1"
    two["participants"][0]["uid"] = 2
    competitions = [{"name": "a", "share": "0.5", "case": first}, {"name": "b", "share": "30%", "case": two}]
    subnet = {"encoding": "exact-sum", "burn_uid": 0, "emission": "101"}
    assert emission({"subnet": subnet, "competitions": competitions}) == {
        "epoch": 0,
        "competitions": [{"name": "a", "share": "0.5", "emission": "51"}, {"name": "b", "share": "0.3", "emission": "30"}],
        "weights": [
            {"participant": "p0", "uid": 1, "share": "0.25", "u16": 16384, "chain_u16": 29789},
            {"participant": "p1", "uid": 2, "share": "0.55", "u16": 36044, "chain_u16": 65535},
        ],
        "burn": {"uid": 0, "share": "0.2", "u16": 13107, "chain_u16": 23831},
    }
