"""Exit codes, bounds and reward files into outcomes. SPEC 2.1."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.judge.sandbox import Bound, Ran
from assay.judge.terminal.record import (
    REWARD_BYTES,
    AgentTimeout,
    TrialOutcome,
    TrialReason,
    TrialVerdict,
    after_agent,
    after_tests,
    after_troubles,
    is_one,
    says_one,
)

BOUNDS: tuple[Bound, ...] = get_args(Bound)
RULES: tuple[AgentTimeout, ...] = get_args(AgentTimeout)
ONES = [b"1", b"1.0", b" 1\n", b"1.", b"+1", b"01", b"1.000000000", b"1e0", b"10e-1", b"0.1E1", b"\r\n1\t\r\n"]
NOT_ONES = [
    b"",
    b" ",
    b"0",
    b"10",
    b"1x",
    b"x1",
    b"1 1",
    b"1\n1",
    b"-1",
    b"nan",
    b"NaN",
    b"inf",
    b"Infinity",
    b"1_0",
    b"1,0",
    b"0x1",
    b"1.0000000000000000000000000000000001",
    b"0.9999999999999999999999999999999999",
    b"1e400",
    b"1e9999999999",
    b"1\0",
    b"\xef\xbb\xbf1",
    "１".encode(),
    "١".encode(),
    b"\xff",
    b"True",
    b'"1"',
    b"1e",
    b".",
    b"1" + b"0" * 200,
    b"0" * 200 + b"1",
    b" " * REWARD_BYTES + b"1",
]


def ran(code: int = 0, stopped: Bound | None = None) -> Ran:
    return Ran(None if stopped else code, stopped, 1.0, 1.0, 1)


@pytest.mark.parametrize("data", ONES)
def test_what_is_exactly_one(data: bytes) -> None:
    assert is_one(data)
    assert after_tests(ran(), data, None) == TrialVerdict("pass", TrialReason.PASSED)


@pytest.mark.parametrize("data", NOT_ONES)
def test_what_is_not(data: bytes) -> None:
    assert not is_one(data)
    assert after_tests(ran(), data, None) == TrialVerdict("fail", TrialReason.REWARD_NOT_ONE)


@pytest.mark.parametrize(
    ("data", "passes"),
    [
        ('{"reward": 1}', True),
        ('{"reward": 1.0, "style": 0.2}', True),
        ('{"reward": 1e0}', True),
        ('\n{"reward": 1}\n', True),
        ('{"reward": 10}', False),
        ('{"reward": 1.00000000000000000001}', False),
        ('{"reward": true}', False),
        ('{"reward": "1"}', False),
        ('{"reward": NaN}', False),
        ('{"reward": Infinity}', False),
        ('{"reward": null}', False),
        ('{"reward": [1]}', False),
        ('{"reward": 0, "reward": 1}', False),
        ('{"reward": 1, "a": {"b": 1, "b": 1}}', False),
        ('{"Reward": 1}', False),
        ('{"rewards": {"reward": 1}}', False),
        ("{}", False),
        ("[]", False),
        ("1", False),
        ("", False),
        ('{"reward": 1', False),
        ('{"reward": 1x}', False),
        ('{"reward": 1e999999999999999999999}', False),
        ('{"reward": 1, "other": 1e999999999999999999999}', True),
        ('{"reward": 1' + "0" * 5000 + "}", False),
        ('{"reward": 1, "deep": ' + "[" * 30_000 + "]" * 30_000 + "}", False),
        ('{"reward": 1, "long": "' + "x" * REWARD_BYTES + '"}', False),
    ],
)
def test_reward_json(data: str, passes: bool) -> None:
    assert says_one(data.encode()) is passes
    assert (after_tests(ran(), None, data.encode()).outcome == "pass") is passes


def test_reward_json_that_is_no_text() -> None:
    assert not says_one(b'{"reward": 1, "x": "\xff"}')
    assert not says_one('{"reward": 1}'.encode("utf-16"))


@given(st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-100, max_value=100) | st.just(Decimal(1)))
def test_a_number_passes_if_and_only_if_it_is_one(number: Decimal) -> None:
    assert is_one(str(number).encode()) is (number == 1)
    assert says_one(f'{{"reward": {number}}}'.encode()) is (number == 1)


@given(st.binary(max_size=60))
def test_any_bytes_are_judged(data: bytes) -> None:
    try:
        expected = float(data.decode("ascii")) == 1 and b"_" not in data
    except ValueError:
        expected = False
    if not expected:  # what float() rounds to 1, or strips, need not be exactly 1
        assert not is_one(data)
    try:
        loaded = json.loads(data)
    except (ValueError, UnicodeDecodeError):
        loaded = None
    if not isinstance(loaded, dict):
        assert not says_one(data)


def test_no_reward_leaves_it_to_the_exit_code() -> None:
    assert after_tests(ran(0), None, None) == TrialVerdict("pass", TrialReason.PASSED)
    for code in (1, 2, 126, 127, 137, 255):
        assert after_tests(ran(code), None, None) == TrialVerdict("fail", TrialReason.TESTS_FAILED)


def test_a_reward_does_not_outweigh_the_exit_code() -> None:
    assert after_tests(ran(1), b"1", b'{"reward": 1}') == TrialVerdict("fail", TrialReason.TESTS_FAILED)


@pytest.mark.parametrize("text", [None, b"1", b"0", b"", b"1x"])
@pytest.mark.parametrize("json_", [None, b'{"reward": 1}', b'{"reward": 0}', b"", b"{}"])
def test_both_files_must_say_one(text: bytes | None, json_: bytes | None) -> None:
    expected = text in (None, b"1") and json_ in (None, b'{"reward": 1}')
    assert (after_tests(ran(0), text, json_).outcome == "pass") is expected


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_bound_of_the_tests_outweighs_what_they_wrote(bound: Bound) -> None:
    expected: TrialOutcome = "timeout" if bound == "time" else "fail"
    assert after_tests(ran(stopped=bound), b"1", b'{"reward": 1}') == TrialVerdict(expected, TrialReason(f"tests-{bound}"))


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("rule", RULES)
def test_a_bound_of_the_agent(bound: Bound, rule: AgentTimeout) -> None:
    verdict = after_agent(ran(stopped=bound), rule)
    if bound == "time":
        assert verdict == (TrialVerdict("timeout", TrialReason.AGENT_TIME) if rule == "fail" else None)
    else:
        assert verdict == TrialVerdict("fail", TrialReason(f"agent-{bound}"))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("code", [0, 1, 127, 137])
def test_the_agents_exit_code_decides_nothing(code: int, rule: AgentTimeout) -> None:
    assert after_agent(ran(code), rule) is None


def test_troubles_of_the_model_make_an_error_of_what_did_not_pass() -> None:
    error, passed = TrialVerdict("error", TrialReason.TROUBLE), TrialVerdict("pass", TrialReason.PASSED)
    for verdict in (TrialVerdict("fail", TrialReason.TESTS_FAILED), TrialVerdict("timeout", TrialReason.AGENT_TIME), error):
        assert after_troubles(verdict, ["POST: status 503"]) == error
        assert after_troubles(verdict, []) == verdict
    assert after_troubles(passed, ["POST: status 503"]) == passed
