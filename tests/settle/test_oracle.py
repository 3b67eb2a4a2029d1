"""The oracle against the numbers that SPEC itself gives, and the shared vectors."""

from fractions import Fraction
from pathlib import Path

import pytest

from oracle import reward as oracle_reward
from oracle import settle
from oracle.numbers import fraction, show
from oracle_kit import (
    MET,
    SEED_CHECKS,
    a_case,
    case_of_tests,
    given_case,
    head,
    rubric_record,
    score_of,
    vectors,
)

# The shared vectors.


def test_vectors_tests(shared: Path) -> None:
    for vector in vectors(shared, "tests")["cases"]:
        assert score_of(case_of_tests(vector["passed"], vector["total"])) == vector["score"]


def test_vectors_workflow(shared: Path) -> None:
    for vector in vectors(shared, "workflow")["cases"]:
        assert score_of(a_case("workflow", [head("workflow", "p") | {"task": "t"} | vector])) == vector["score"]


def test_vectors_rubric(shared: Path) -> None:
    document = vectors(shared, "rubric")
    for vector in document["cases"]:
        for verdict, final in vector["final"].items():
            record = rubric_record("p", vector["failed"], verdict, vector.get("baseline_failed"))
            row = settle(a_case("rubric", [record], score={"checks": document["rubric"]}))["agreed"][0]
            assert (row["bps"], row["validators"][0]["work"]["bps"]) == (final, final)


def test_vectors_consensus(shared: Path) -> None:
    for vector in vectors(shared, "consensus")["cases"]:
        evidence = [head("given", "p", validator) | {"score": score} for validator, _, score in vector["scores"]]
        case = a_case("given", evidence, consensus={"min_validators": vector.get("min_validators", 3)})
        case["validators"] = [{"key": validator, "stake": stake} for validator, stake, _ in vector["scores"]]
        row = settle(case)["agreed"][0]
        assert row["score"] == vector["agreed"]
        assert row["status"] == vector.get("status", "agreed")
        for flag in ("flagged", "excluded"):
            assert [v["validator"] for v in row["validators"] if v[flag]] == vector.get(flag, [])


def test_vectors_cap(shared: Path) -> None:
    for vector in vectors(shared, "cap")["cases"]:
        shares = [fraction(share) for share in vector["shares"]]
        out, burn, unallocated = oracle_reward.cap(shares, fraction(vector["cap"]), vector["excess"])
        assert [show(share) for share in out] == vector["out"]
        assert show(burn) == vector["burn"]
        assert sum(out) + burn + unallocated == 1


def test_vectors_decay(shared: Path) -> None:
    for vector in vectors(shared, "decay")["cases"]:
        case = given_case(["0.5"], epoch=vector["epoch"], decay={"curve": vector["curve"]})
        case["participants"][0]["last_reset_epoch"] = vector["stale_since"]
        assert settle(case)["weights"][0]["kept"] == vector["kept"]


def test_vectors_weights(shared: Path) -> None:
    for vector in vectors(shared, "weights")["cases"]:
        reward = {"cap": "100%", "encoding": "round"}
        reward |= {name: vector[name] for name in ("strategy", "temperature", "top") if name in vector}
        document = settle(given_case(vector["scores"], reward=reward))
        assert [row["u16"] for row in document["weights"]] == vector["u16"]
        assert document["burn"]["u16"] == vector.get("burn", document["burn"]["u16"])


def test_vectors_payout(shared: Path) -> None:
    document = vectors(shared, "payout")
    common = {"deposit": document["deposit"], "threshold_bps": document["threshold_bps"]}
    for vector in document["cases"]:
        settled = settle(given_case([show(Fraction(vector["score"], 10_000))], reward={"kind": "payout"}, payout=common))
        assert settled["released"] == vector["released"]
    for vector in document["places"]:
        payout = {name: vector[name] for name in ("deposit", "threshold_bps", "split", "fee_bps")}
        scores = [show(Fraction(score, 10_000)) for score in vector["scores"]]
        settled = settle(given_case(scores, reward={"kind": "payout"}, payout=payout))
        paid = [row for row in settled["payouts"] if row["gross"] != "0"]
        for column in ("gross", "fee", "net"):
            assert [row[column] for row in paid] == vector[column]
        assert settled["refund"] == vector["refund"]


# SPEC's own examples.


def test_73_of_91_is_rounded_to_nanos() -> None:
    assert score_of(case_of_tests(73, 91)) == "0.802197802"


@pytest.mark.parametrize(
    ("verdict", "bps"),
    [
        ("EXCEPTIONAL", 10000),
        ("ELEGANT", 9000),
        ("COHERENT", 8000),
        ("MINOR_ISSUES", 7200),
        ("FLAWED", 6400),
        ("FUNDAMENTALLY_BROKEN", 2000),
    ],
)
def test_the_seeds_rubric(verdict: str, bps: int) -> None:
    row = settle(a_case("rubric", [rubric_record("p", ["C6", "C8"], verdict)], score={"checks": SEED_CHECKS}))["agreed"][0]
    assert row["bps"] == bps
    work = {"base": 8000, "missed_skippable": 2000, "verdict": verdict, "gate": True, "capped": False, "bps": bps}
    assert row["validators"][0]["work"] == work


def test_a_malformed_judgement_is_unjudged_and_a_failed_gate_needs_no_checks() -> None:
    record = rubric_record("p", [], "SPLENDID")
    row = settle(a_case("rubric", [record], score={"checks": SEED_CHECKS}))["agreed"][0]
    assert (row["status"], row["reason"], row["score"]) == ("unjudged", "malformed-or-unjudged", None)
    assert row["not_counted"] == [{"validator": "v", "reason": "unjudged", "missing": 0}]
    gate = head("rubric", "p") | {"baseline": MET | {"B3": False}}
    assert settle(a_case("rubric", [gate], score={"checks": SEED_CHECKS}))["agreed"][0]["bps"] == 0


def test_six_equal_participants_get_10923_each() -> None:
    for strategy in ("linear", "quadratic", "softmax"):
        document = settle(given_case(["0.7"] * 6, reward={"strategy": strategy, "encoding": "round"}))
        assert [row["u16"] for row in document["weights"]] == [10923] * 6
    exact = settle(given_case(["0.7"] * 6, reward={"encoding": "exact-sum"}))
    assert [row["u16"] for row in exact["weights"]] == [10923, 10923, 10923, 10922, 10922, 10922]


@pytest.mark.parametrize(
    ("valid", "invalid", "starred", "score"),
    [(20, 0, False, "1"), (7, 0, True, "0.3525"), (0, 0, True, "0"), (3, 4, True, "0"), (30, 30, False, "1")],
)
def test_points(valid: int, invalid: int, starred: bool, score: str) -> None:
    record = head("points", "p") | {"repository": "a/b", "valid": valid, "invalid": invalid, "starred": starred}
    assert score_of(a_case("points", [record], score={"repositories": {"a/b": "5"}})) == score


def test_points_of_a_window_less_what_was_revoked() -> None:
    counts = [(0, 9, 0, True), (4, 3, 0, True), (5, 1, 2, False)]
    evidence = [
        head("points", "p", epoch=epoch)
        | {"repository": "a/b", "valid": valid, "revoked_valid": revoked, "invalid": 0, "starred": starred}
        for epoch, valid, revoked, starred in counts
    ]
    case = a_case("points", evidence, score={"repositories": {"a/b": "5"}, "window_epochs": 2}, epoch=5)
    work = settle(case)["agreed"][0]["validators"][0]["work"]
    assert work == {"valid": 2, "invalid": 0, "starred": 0, "points": "10"}


def test_a_service_error_takes_the_task_out_for_everybody() -> None:
    ran = {"quality": "1", "steps_completed": 1, "steps_total": 1, "cost": "0", "budget": "1", "seconds": "0", "max_seconds": "1"}
    ran |= {"retries": 0, "declared_retries": 0, "timeouts": 0, "hard_failures": 0}
    evidence = [
        head("workflow", "p") | ran | {"task": "t1"},
        head("workflow", "p") | {"task": "t2", "outcome": "invalid"},
        head("workflow", "q") | {"task": "t2", "outcome": "service-error"},
    ]
    rows = {row["participant"]: row for row in settle(a_case("workflow", evidence))["agreed"]}
    assert rows["p"]["score"] == "1"
    assert rows["q"]["not_counted"] == [{"validator": "v", "reason": "no-tasks", "missing": 0}]


def test_exponential_decay_rounds_b_not_what_is_kept_and_is_bounded() -> None:
    decay = {"curve": "exponential", "rate": "0.333333333", "grace_epochs": 0}
    kept = []
    for epoch in (0, 1, 2, 50):
        case = given_case(["1"], epoch=epoch, decay=decay)
        case["participants"][0]["last_reset_epoch"] = 0
        kept.append(settle(case)["weights"][0]["kept"])
    assert kept == ["1", "0.666666667", "0.444444445", "0.2"]
