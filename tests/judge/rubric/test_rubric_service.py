"""Asking over HTTP: what the service may do wrong, and that nothing of it becomes anybody's zero. SPEC 2.3."""

from __future__ import annotations

import logging
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from assay.errors import AssayError, BadInput, Unreachable
from assay.judge.rubric import service
from assay.judge.rubric.asking import JudgeProgress, Models, Price
from assay.judge.rubric.judgement import JudgeLimits, Judgement, TokenUsage
from assay.judge.rubric.questions import RubricCase
from assay.judge.rubric.scripted import CONTENT_FAULTS, SeenRequest
from assay.judge.rubric.scripted_server import ScriptedServer, scripted_model
from assay.judge.rubric.service import parse_completion, parse_error
from assay.judge.rubric.solution import Solution
from depth import depth
from hostile_kit import HostileConnection, hostile
from rubric_kit import ADD, KEY, QUICK, asked, asked_all, make_case, script

MANY = depth(40, 200)
BRIEF = JudgeLimits(first_pause=0.001, longest_pause=0.01, patience=0.05, tries=3, seconds=60.0)
"""For a service that does not recover."""


@pytest.fixture
def case(tmp_path: Path) -> RubricCase:
    return make_case(tmp_path)


@contextmanager
def _serving(*faults: dict[str, object]) -> Iterator[ScriptedServer]:
    with scripted_model(script(faults=list(faults))) as server:
        yield server


def _unreachable(case: RubricCase, url: str, *, limits: JudgeLimits = BRIEF) -> Unreachable:
    with pytest.raises(Unreachable) as error:
        asked(case, url, limits=limits)
    assert KEY not in repr(error.value) + str(error.value)
    assert "return a + b" not in str(error.value)
    return error.value


def test_a_service_that_is_well(case: RubricCase) -> None:
    with _serving() as server:
        judgement = asked(case, server.url)
    assert judgement.checks == {"C1": True, "C2": False}
    assert [(request.phase, request.model) for request in server.seen] == [
        ("baseline", "big"),
        ("checks", "big"),
        ("verdict", "big"),
    ]
    assert {exchange.answered for exchange in judgement.exchanges} == {"scripted/big"}
    assert judgement.measured is not None
    assert judgement.measured.tries == 3
    assert judgement.measured.cost is None
    assert judgement.measured.usage.total is not None
    assert judgement.measured.usage.total > 0


def test_a_service_has_other_names_for_the_models(case: RubricCase) -> None:
    with _serving() as server:
        judgement = asked(case, server.url, primary="vendor/big", prices={"vendor/big": Price(1_000_000, 2_000_000)})
    assert {request.model for request in server.seen} == {"vendor/big"}
    assert judgement.model == "vendor/big"
    assert judgement.measured is not None
    usage = judgement.measured.usage
    assert usage.prompt is not None
    assert usage.completion is not None
    assert judgement.measured.cost == usage.prompt + 2 * usage.completion


def test_a_price_that_is_not_known_makes_no_cost(case: RubricCase) -> None:
    with _serving({"kind": "404", "model": "big"}) as server:
        judgement = asked(case, server.url, prices={"big": Price(1, 1)})
    assert judgement.model == "small"
    assert judgement.measured is not None
    assert judgement.measured.cost is None


@pytest.mark.parametrize(
    "kind", ["429", "500", "502", "503", "529", "408", "409", "close", "cut", "no-json", "no-choices", "huge"]
)
def test_what_the_service_does_wrong_twice_is_asked_again(kind: str, case: RubricCase) -> None:
    with _serving({"kind": kind, "times": 2, "phase": "checks"}) as server:
        judgement = asked(case, server.url)
    assert judgement.checks == {"C1": True, "C2": False}
    assert judgement.model == "big"
    assert [exchange.fault for exchange in judgement.exchanges] == [None, None, None], (
        "it is not the model's answer that was wrong"
    )
    assert judgement.measured is not None
    assert judgement.measured.tries == 5


@pytest.mark.parametrize("kind", ["500", "503", "429", "cut", "close", "no-json", "no-choices", "huge", "400", "404", "422"])
def test_a_primary_that_stays_out_leaves_it_to_the_fallback(kind: str, case: RubricCase) -> None:
    with _serving({"kind": kind, "model": "big"}) as server:
        judgement = asked(case, server.url, limits=BRIEF)
    assert judgement.checks == {"C1": True, "C2": False}
    assert judgement.model == "small"
    assert judgement.exchanges[0].fault is not None


@pytest.mark.parametrize("kind", ["500", "503", "429", "cut", "no-json", "400", "403", "404"])
def test_where_both_are_out_the_submission_is_missing(kind: str, case: RubricCase) -> None:
    events: list[JudgeProgress] = []
    with _serving({"kind": kind}) as server:
        with pytest.raises(Unreachable) as error:
            asked(case, server.url, limits=BRIEF, on_event=events.append)
        assert {request.model for request in server.seen} == {"big", "small"}
    assert error.value.final == (kind == "404")
    assert events[-1].kind == "missing"
    assert [event.kind for event in events].count("failed") == 2


@pytest.mark.parametrize("status", ["401", "402", "407", "307", "301"])
def test_what_somebody_has_to_mend_is_not_asked_again(status: str, case: RubricCase) -> None:
    with _serving({"kind": status}) as server:
        error = _unreachable(case, server.url)
        assert len(server.seen) == 1
    assert error.final
    assert f"status {status}" in str(error)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", [*CONTENT_FAULTS, "refusal", "length"])
def test_what_the_model_says_wrong_once_is_asked_again(kind: str, case: RubricCase) -> None:
    phase = "verdict" if kind == "no-verdict" else "checks"
    with _serving({"kind": kind, "times": 1, "phase": phase}) as server:
        judgement = asked(case, server.url)
    assert judgement.checks == {"C1": True, "C2": False}
    faults = [exchange.fault for exchange in judgement.exchanges if exchange.fault is not None]
    assert len(faults) == 1
    assert judgement.model == "big"


def test_what_both_models_say_wrong_makes_it_unjudged(case: RubricCase) -> None:
    with _serving({"kind": "missing", "phase": "checks"}) as server:
        judgement = asked(case, server.url)
    assert judgement.answers == {"outcome": "unjudged", "baseline": None, "checks": None, "verdict": None}
    assert judgement.reason == "wrong-form"
    assert Counter(request.model for request in server.seen) == {"big": 4, "small": 4}


def test_nobody_listens(case: RubricCase) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        error = _unreachable(case, f"http://127.0.0.1:{taken.getsockname()[1]}/v1")
    assert "there is no connection to the model at 127.0.0.1" in str(error)
    assert not error.final


def test_who_takes_too_long_is_given_up(case: RubricCase) -> None:
    with _serving({"kind": "slow", "seconds": 30, "model": "big", "times": 1}) as server:
        judgement = asked(case, server.url, limits=JudgeLimits(seconds=0.5, first_pause=0.01, tries=9))
    assert judgement.model == "big"
    assert judgement.measured is not None
    assert judgement.measured.tries == 4


def test_who_only_listens_is_given_up(case: RubricCase) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        error = _unreachable(
            case, f"http://127.0.0.1:{deaf.getsockname()[1]}/v1", limits=JudgeLimits(seconds=0.2, tries=2, first_pause=0.01)
        )
    assert "big (timeout), small (timeout)" in str(error)


def test_retry_after_is_kept_to(case: RubricCase) -> None:
    """The server says a second; whoever came before that would be turned down, and so would find a pause that doubles."""
    waits: list[JudgeProgress] = []
    with _serving({"kind": "429", "times": 1, "seconds": 1}) as server:
        began = time.monotonic()
        asked(case, server.url, limits=JudgeLimits(first_pause=0.001, longest_pause=5), on_event=waits.append)
    assert time.monotonic() - began >= 1
    assert [event.detail for event in waits if event.kind == "waiting"] == ["status-429"]


def test_after_a_429_nobody_else_asks_either(case: RubricCase) -> None:
    honest = script(faults=[{"kind": "429", "times": 1, "seconds": 1}])
    times: list[float] = []

    def answer(seen: SeenRequest) -> dict[str, Any]:
        times.append(time.monotonic())
        return honest.solutions[0].answer(seen)

    solutions = [Solution({"add.py": f"{ADD}# {number}\n"}) for number in range(8)]
    with scripted_model(honest, brain=answer) as server:
        asked_all(case, solutions, server.url, jobs=2, limits=JudgeLimits(first_pause=0.001, longest_pause=5))
    assert len(times) == 24
    assert max(later - earlier for earlier, later in pairwise(times)) >= 0.9


def test_retry_after_has_a_bound(case: RubricCase) -> None:
    with _serving({"kind": "503", "times": 1, "seconds": 3000}) as server:
        assert asked(case, server.url, limits=QUICK).outcome == "judged"


def test_the_body_of_an_error_is_not_read_without_end(case: RubricCase) -> None:
    """It is turned down by its status, and `Retry-After` is kept to."""

    def endless(line: HostileConnection) -> None:
        line.send(b"HTTP/1.1 503 Busy\r\nRetry-After: 1\r\n\r\n")
        for _ in range(1000):
            line.send(b"x" * 100_000)

    began = time.monotonic()
    with hostile(endless) as there:
        error = _unreachable(case, f"{there.url}/v1", limits=JudgeLimits(tries=2, first_pause=0.01))
    assert "big (status-503), small (status-503)" in str(error)
    assert time.monotonic() - began >= 1.0


def test_a_question_that_a_filter_turns_down_is_a_refusal_not_an_outage(
    case: RubricCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "parse_error", lambda data: ("content_filter", ""))
    with _serving({"kind": "400"}) as server:
        judgement = asked(case, server.url)
    assert (judgement.outcome, judgement.reason) == ("unjudged", "refused")


def test_an_account_that_is_empty_is_for_somebody_to_mend(case: RubricCase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "parse_error", lambda data: ("insufficient_quota", ""))
    with _serving({"kind": "429"}) as server:
        assert _unreachable(case, server.url).final


@pytest.mark.full
def test_many_at_once_whatever_their_order(case: RubricCase) -> None:
    """A server that turns down every question, and a third of them again: all are judged, and alike in any order."""
    solutions = [Solution({"add.py": ADD, "notes.md": f"number {number}\n"}) for number in range(MANY)]
    faults = [{"kind": "429", "times": 1, "each": True}, {"kind": "503", "phase": "checks", "times": 1, "each": True}]
    limits = JudgeLimits(first_pause=0.001, longest_pause=0.01, patience=60)

    def judged(order: list[Solution], jobs: int) -> dict[str, tuple[object, bytes]]:
        with _serving(*faults) as server:
            judgements = asked_all(case, order, server.url, jobs=jobs, limits=limits)
        count = len(order)
        assert server.statuses == {200: 3 * count, 429: 3 * count, 503: count}
        return {
            digest: (judgement.answers, judgement.transcript)
            for digest, judgement in judgements.items()
            if isinstance(judgement, Judgement)
        }

    first, again = judged(solutions, 16), judged(solutions[::-2], 7)
    assert len(first) == MANY
    assert len(again) == MANY // 2
    assert again.items() <= first.items()
    assert list(first) == sorted(first)


def test_what_befalls_one_is_its_own(case: RubricCase) -> None:
    large, small = Solution({"a": "x" * 100_000}), case.solution
    with _serving() as server:
        judgements = asked_all(case, [large, small], server.url)
        assert len(server.seen) == 3
    assert isinstance(judgements[large.digest], BadInput)
    assert isinstance(judgements[small.digest], Judgement)


def test_a_refused_key_stops_the_rest(case: RubricCase) -> None:
    solutions = [Solution({"add.py": f"{ADD}# {number}\n"}) for number in range(20)]
    with _serving({"kind": "401"}) as server:
        errors = asked_all(case, solutions, server.url, jobs=2, limits=BRIEF)
        assert len(server.seen) <= 2
    assert len(errors) == 20
    assert all(isinstance(error, Unreachable) and error.final for error in errors.values())


def test_neither_key_nor_solution_is_in_any_log(case: RubricCase, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), _serving({"kind": "500", "times": 1}, {"kind": "prose", "times": 1}) as server:
        asked(case, server.url)
    assert KEY not in caplog.text
    assert "return a + b" not in caplog.text
    assert KEY not in repr(Models(server.url, KEY))


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a/v1",
        "http://",
        "a.example",
        "http://u:secret@a/v1",
        "https://a/v1?key=secret",
        "http://a:b/v1",
        "http://[/",
        "http://a/\x1b",
    ],
)
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(BadInput) as refusal:
        Models(url)
    if "@" in url:
        assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    "given",
    [{"api_key": "a\nb"}, {"api_key": "é"}, {"api_key": " sk"}, {"primary": ""}, {"fallback": "a b"}, {"primary": "x" * 300}],
)
def test_keys_and_names_that_are_none(given: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as refusal:
        Models("https://a.example/v1", **given)
    assert not given.get("api_key") or given["api_key"] not in str(refusal.value)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"choices": []}',
        b'{"choices": {}}',
        b'{"choices": [null]}',
        b'{"choices": [{"message": null}]}',
        b"[" * 100_000,
        b'{"choices": [{"message": {"content": 5}}]}',
        b'{"choices": [{"message": {"content": ["a"]}}]}',
        b'{"choices": [{"message": {"content": "\\ud800"}}]}',
        b"\xff",
    ],
)
def test_a_body_that_is_no_completion(body: bytes) -> None:
    assert parse_completion(body) is None
    assert parse_error(body) == ("", "")


def test_what_a_body_says_of_itself_is_cut_and_shown_plain() -> None:
    completion = parse_completion(
        b'{"model": "' + b"a\\u001b" * 200 + b'", "choices": [{"message": {"content": "x"}}], "system_fingerprint": 5,'
        b' "usage": {"prompt_tokens": -1, "completion_tokens": true}}'
    )
    assert completion is not None
    reply, usage = completion
    assert reply.model == "a\\x1b" * 100
    assert (reply.fingerprint, reply.finish, usage) == (None, None, TokenUsage(None, None))
    assert parse_error(b'{"error": {"code": "content_filter", "message": "no"}}') == ("content_filter", "no")
    assert parse_error(b'{"error": "no"}') == ("", "no")
    assert parse_error(b'{"message": "no"}') == ("", "no")
    assert parse_error(b'{"error": {"code": 5}}') == ("", "")


def test_a_price_is_exact() -> None:
    assert Price(270_000, 1_100_000).of(TokenUsage(1_000_000, 0)) == 270_000
    assert Price(1, 0).of(TokenUsage(500_000, 0)) == 0
    assert Price(3, 0).of(TokenUsage(500_000, 0)) == 2


def test_without_the_extra_it_is_said_what_to_install(case: RubricCase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "assay.judge.rubric.service", None)
    monkeypatch.delattr("assay.judge.rubric.service", raising=False)
    with pytest.raises(BadInput, match=r"pip install 'assay\[llm\]'"):
        asked(case, "http://127.0.0.1:1/v1")
    assert issubclass(Unreachable, AssayError)
