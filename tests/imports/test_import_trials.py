"""What a trial of another harness counts as, and which of several trials of one cell is kept. SPEC 2.1, 3.0."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.imports.trials import FailureCause, Outcome, Trial, cells, decide, moment, natural, numbered, validator_of

OUTCOMES = ("pass", "fail", "timeout", "error")


def trial(resolved: bool | None = True, trouble: FailureCause = FailureCause.NONE, **more: Any) -> Trial:
    return Trial("a", "run-1", "t", resolved=resolved, trouble=trouble, **more)


# One row for every pair of trouble and result: fail, verify, fail with strict errors, leaderboard.
TABLE: dict[tuple[FailureCause, bool | None], tuple[str, str, str, str]] = {
    (FailureCause.NONE, True): ("pass", "pass", "pass", "pass"),
    (FailureCause.NONE, False): ("fail", "fail", "fail", "fail"),
    (FailureCause.NONE, None): ("error", "error", "error", "fail"),
    (FailureCause.AGENT_TIMEOUT, True): ("timeout", "pass", "timeout", "pass"),
    (FailureCause.AGENT_TIMEOUT, False): ("timeout", "fail", "timeout", "fail"),
    (FailureCause.AGENT_TIMEOUT, None): ("timeout", "timeout", "timeout", "fail"),
    (FailureCause.TEST_TIMEOUT, True): ("timeout", "timeout", "timeout", "pass"),
    (FailureCause.TEST_TIMEOUT, False): ("timeout", "timeout", "timeout", "fail"),
    (FailureCause.TEST_TIMEOUT, None): ("timeout", "timeout", "timeout", "fail"),
    (FailureCause.AGENT, True): ("pass", "pass", "pass", "pass"),
    (FailureCause.AGENT, False): ("fail", "fail", "error", "fail"),
    (FailureCause.AGENT, None): ("fail", "fail", "error", "fail"),
    (FailureCause.SETUP, True): ("error", "error", "error", "pass"),
    (FailureCause.SETUP, False): ("error", "error", "error", "fail"),
    (FailureCause.SETUP, None): ("error", "error", "error", "fail"),
    (FailureCause.ELSEWHERE, True): ("pass", "pass", "pass", "pass"),
    (FailureCause.ELSEWHERE, False): ("error", "error", "error", "fail"),
    (FailureCause.ELSEWHERE, None): ("error", "error", "error", "fail"),
}


def test_the_table_has_every_pair() -> None:
    assert set(TABLE) == {(trouble, resolved) for trouble in FailureCause for resolved in (True, False, None)}


@pytest.mark.parametrize(("trouble", "resolved"), TABLE)
def test_what_a_trial_counts_as(trouble: FailureCause, resolved: bool | None) -> None:
    attempt = trial(resolved, trouble)
    assert (
        decide(attempt, "fail"),
        decide(attempt, "verify"),
        decide(attempt, "fail", strict_errors=True),
        decide(attempt, "verify", leaderboard=True),
    ) == TABLE[trouble, resolved]


@pytest.mark.parametrize("stated", OUTCOMES)
def test_an_outcome_that_the_source_states_is_kept(stated: Outcome) -> None:
    attempt = trial(None, FailureCause.AGENT_TIMEOUT, stated=stated)
    assert decide(attempt, "fail") == decide(attempt, "verify") == stated
    assert decide(attempt, leaderboard=True) == ("pass" if stated == "pass" else "fail")


def at(hour: int, outcome: Outcome, line: int) -> tuple[Outcome, Trial]:
    return outcome, trial(started_at=datetime(2026, 1, 1, hour, tzinfo=UTC), file="x.csv", line=line)


def test_the_same_result_twice_counts_once_the_earliest() -> None:
    merged = cells([at(5, "pass", 2), at(3, "pass", 3), at(4, "pass", 4)])
    (kept,) = merged.outcomes.values()
    assert kept[1].line == 3
    assert (merged.repeated, merged.retried) == (2, 0)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_an_error_gives_way_to_a_result(order: tuple[int, int]) -> None:
    pair = [at(3, "error", 2), at(4, "fail", 3)]
    merged = cells([pair[i] for i in order])
    ((outcome, kept),) = merged.outcomes.values()
    assert (outcome, kept.line, merged.retried) == ("fail", 3, 1)


def test_two_different_results_are_refused_with_both_places() -> None:
    with pytest.raises(BadInput, match=r"^x\.csv:7: says fail for agent 'a', run-1, task 't', trial 1, but x\.csv:2 says pass"):
        cells([at(3, "pass", 2), at(4, "fail", 7)])


@given(st.permutations([at(3, "error", 2), at(4, "pass", 3), at(5, "pass", 4), at(2, "error", 5), at(6, "error", 6)]))
def test_what_is_kept_does_not_depend_on_the_order(pairs: list[tuple[Outcome, Trial]]) -> None:
    ((outcome, kept),) = cells(pairs).outcomes.values()
    assert (outcome, kept.line) == ("pass", 3)


def test_cells_are_in_the_order_of_their_keys_bytes() -> None:
    pairs: list[tuple[Outcome, Trial]] = [
        ("pass", Trial(agent, "run-1", task)) for agent in ("b", "Z", "é", "a") for task in ("u", "t")
    ]
    assert [cell[0] + cell[2] for cell in cells(pairs).outcomes] == ["Zt", "Zu", "at", "au", "bt", "bu", "ét", "éu"]


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ("2025-07-11T20:35:11.742594+00:00", (datetime(2025, 7, 11, 20, 35, 11, 742594, tzinfo=UTC), False)),
        ("2025-07-11T22:35:11+02:00", (datetime(2025, 7, 11, 20, 35, 11, tzinfo=UTC), False)),
        ("2025-07-11T20:35:11", (datetime(2025, 7, 11, 20, 35, 11, tzinfo=UTC), True)),
        ("", (None, False)),
        (None, (None, False)),
    ],
)
def test_moments(given_: object, expected: tuple[datetime | None, bool]) -> None:
    assert moment(given_) == expected


@pytest.mark.parametrize("given_", ["yesterday", 5, "2025-13-01T00:00:00Z", "2025-07-11"])
def test_what_is_no_moment_is_refused(given_: object) -> None:
    with pytest.raises(BadInput, match="time"):
        moment(given_)


def test_runs_are_numbered_as_people_count() -> None:
    assert numbered(["run10", "run9", "run1", "run9"]) == {"run1": 1, "run9": 2, "run10": 3}
    assert validator_of(3) == "run-3"


@given(st.lists(st.text(max_size=12), max_size=6))
def test_any_names_can_be_numbered(names: list[str]) -> None:
    assert sorted(numbered(names).values()) == list(range(1, len(set(names)) + 1))
    assert sorted(sorted(names, key=natural)) == sorted(names)
