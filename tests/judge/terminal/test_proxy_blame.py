"""A model service that fails: whose trouble it is, the service's or the request's that an agent made so. SPEC 2.1."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from assay.judge.service import ModelAccess
from assay.judge.terminal import model_proxy, upstream
from assay.judge.terminal.model_proxy import open_proxy
from hostile_kit import BEHAVIOURS, GIVE_UP, grown, hostile, is_plain
from proxy_kit import KEY, QUICK, ProxyRequest, RememberingService, Through, ask, proxied, say, service

REFUSALS = [401, 402, 403, 407, 408, 425, 429, 500, 502, 503, 504, 529]
POISON = json.dumps({"model": "m", "messages": [{"role": "user", "content": "poison"}]}).encode()
Answer = Callable[[BaseHTTPRequestHandler], None]


def poisoned(bad: Answer, good: Answer | None = None) -> Callable[[RememberingService], Answer]:
    """A service that answers `bad` to what has the word in it, and all else well."""

    def answer_for(behind: RememberingService) -> Answer:
        def answer(handler: BaseHTTPRequestHandler) -> None:
            (bad if b"poison" in behind.asked[-1].body else good or say())(handler)

        return answer

    return answer_for


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)


def in_turn(answers: list[Answer]) -> Answer:
    left = iter(answers)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        next(left)(handler)

    return answer


def texts(asked: list[ProxyRequest]) -> list[bytes]:
    return [request.body for request in asked]


@pytest.mark.parametrize("status", [200, 302, 400, 404, 405, 409, 413, 415, 422])
def test_what_is_the_agents_own_affair(door: Path, status: int) -> None:
    with proxied(door, say(status)) as (behind, seen):
        assert ask(door)[0] == status
    assert (seen.troubles, seen.own, len(behind.asked)) == ([], [], 1)


@pytest.mark.parametrize("status", REFUSALS)
def test_what_everybody_is_refused_is_the_services_trouble(door: Path, status: int) -> None:
    with proxied(door, say(status)) as (_, seen):
        assert ask(door)[0] == status
    assert seen.troubles == [f"POST: status {status}; and the judge's own probe: status {status}"]
    assert seen.own == []


@pytest.mark.parametrize("status", REFUSALS)
def test_what_only_the_request_is_refused_is_the_agents_own(door: Path, status: int) -> None:
    """An agent that would fail cannot buy an error by a request that the service refuses."""
    with proxied(door, say()) as (behind, seen):
        behind.answer = poisoned(say(status, b"no"))(behind)
        answer = ask(door, path="/chat/completions", body=POISON)
        assert (answer[0], answer[2]) == (status, b"no")
        assert ask(door, path="/chat/completions", body=b'{"model": "m"}')[0] == 200
    assert (seen.troubles, seen.own) == ([], [f"POST: status {status}"])
    question = json.loads(behind.asked[-2 if status in (401, 402, 403, 407) else -3].body)
    assert (question["model"], question["stream"]) == ("m", True)
    assert behind.asked[1].headers["Authorization"] == f"Bearer {KEY}"


def test_a_request_that_breaks_the_connection_is_the_agents_own(door: Path) -> None:
    with proxied(door, say()) as (behind, seen):
        behind.answer = poisoned(hang_up)(behind)
        assert ask(door, path="/chat/completions", body=POISON)[0] == 502
    assert seen.troubles == []
    assert len(seen.own) == 1
    assert "no answer" in seen.own[0]


def test_a_request_that_is_never_answered_is_the_agents_own(door: Path) -> None:
    done = threading.Event()
    with proxied(door, say(), replace(QUICK, seconds=1.0)) as (behind, seen):
        behind.answer = poisoned(wait_for(done, threading.Event()))(behind)
        assert ask(door, path="/chat/completions", body=POISON)[0] == 502
        done.set()
    assert (seen.troubles, seen.own) == ([], ["POST: no answer (no answer in time)"])


def test_what_passes_by_itself_is_nobodys_trouble(door: Path) -> None:
    refusals = [say(503), hang_up, say()]
    with proxied(door, say()) as (behind, seen):
        behind.answer = in_turn(refusals)
        assert ask(door)[0] == 200
    assert (seen.troubles, seen.own, seen.again, seen.questions) == ([], [], 2, 0)


def test_an_outage_that_ends_while_we_ask_is_nobodys_trouble(door: Path) -> None:
    refusals = [say(503), say(503), say(503), say(200), say(200, b"late")]
    with proxied(door, say()) as (behind, seen):
        behind.answer = in_turn(refusals)
        assert ask(door)[2] == b"late"
    assert (seen.troubles, seen.own, seen.questions) == ([], [], 1)


def test_an_outage_that_begins_after_a_question_was_answered_is_seen(door: Path) -> None:
    with proxied(door, say()) as (behind, seen):
        behind.answer = poisoned(say(500))(behind)
        assert ask(door, path="/chat/completions", body=POISON)[0] == 500
        assert seen.own == ["POST: status 500"]
        behind.answer = say(500)
        assert ask(door, path="/chat/completions", body=POISON)[0] == 500
    assert seen.troubles == ["POST: status 500; and the judge's own probe: status 500"]


def test_nobody_there(door: Path) -> None:
    with socket.socket() as free:  # bound and not listening: nobody else can take the port
        free.bind(("127.0.0.1", 0))
        with open_proxy(ModelAccess(f"http://127.0.0.1:{free.getsockname()[1]}"), door, QUICK) as seen:
            assert ask(door)[0] == 502
    why = "no answer (connection refused)"
    assert seen.troubles == [f"POST: {why}; and the judge's own probe: {why}"]


@pytest.mark.parametrize("answer", [hang_up, say(103, b"")])
def test_no_answer_at_all(door: Path, answer: Answer) -> None:
    with proxied(door, answer) as (_, seen):
        assert ask(door)[0] == 502
    assert len(seen.troubles) == 1
    assert "no answer" in seen.troubles[0]


def test_an_endpoint_without_a_question_is_believed(door: Path) -> None:
    with service(say(503)) as behind, open_proxy(ModelAccess(behind.url, endpoints=("POST /rerank",)), door, QUICK) as seen:
        assert ask(door, path="/rerank")[0] == 503
    assert seen.troubles == ["POST: status 503; and no probe of this endpoint is known that would show who caused the failure"]


def cut(handler: BaseHTTPRequestHandler) -> None:
    say(200, b"half", Content_Length="8")(handler)


def test_a_service_that_cuts_off_every_answer_is_in_trouble(door: Path) -> None:
    with proxied(door, cut) as (_, seen), pytest.raises(http.client.IncompleteRead):
        ask(door)
    (trouble,) = seen.troubles
    assert trouble.startswith("POST: cut off (")
    assert "; and the judge's own probe: no answer (" in trouble


def test_an_answer_that_is_cut_off_once_is_the_services_trouble(door: Path) -> None:
    """Part of it has gone to the agent, so it cannot be asked again for it; asked for once more, it comes whole."""
    answers = [cut, say()]
    with proxied(door, say()) as (behind, seen):
        behind.answer = in_turn(answers)
        with pytest.raises(http.client.IncompleteRead):
            ask(door, body=b"x")
        assert texts(behind.asked) == [b"x", b"x"]
    (trouble,) = seen.troubles
    assert trouble.endswith(", and complete when it was requested again")


def test_an_answer_that_is_always_cut_off_is_the_requests_own(door: Path) -> None:
    with proxied(door, say()) as (behind, seen):
        behind.answer = poisoned(cut)(behind)
        with pytest.raises(http.client.IncompleteRead):
            ask(door, path="/chat/completions", body=POISON)
    assert seen.troubles == []
    assert seen.own[0].startswith("POST: cut off (")


def test_a_limit_is_waited_for_and_nothing_goes_out_in_between(door: Path) -> None:
    times: list[float] = []

    def limited(handler: BaseHTTPRequestHandler) -> None:
        times.append(time.monotonic())
        (say(429, b"", Retry_After="1") if len(times) == 1 else say())(handler)

    with proxied(door, limited) as (_, seen):
        first = threading.Thread(target=ask, args=(door,))
        first.start()
        while not seen.again:
            time.sleep(0.01)
        assert ask(door)[0] == 200
        first.join()
    assert min(times[1:]) - times[0] >= 1.0
    assert (seen.troubles, seen.own, seen.questions) == ([], [], 0)


def test_a_limit_that_lasts_longer_than_our_patience_is_not_waited_for(door: Path) -> None:
    with proxied(door, say(429, b"", Retry_After="3600")) as (behind, seen):
        assert ask(door)[0] == 429
    assert [request.path for request in behind.asked] == ["/v1/embeddings"] * 2 + ["/v1/v1/embeddings"]  # the agent's, and ours
    assert len(seen.troubles) == 1


def test_one_trial_sends_only_so_many_requests_in_a_minute(door: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "_MINUTE", 1.0)
    began = time.monotonic()
    with service(say()) as behind, open_proxy(ModelAccess(behind.url, KEY, per_minute=3), door, QUICK) as seen:
        assert [ask(door)[0] for _ in range(7)] == [200] * 7
    assert time.monotonic() - began >= 2.0
    assert (seen.refused, seen.troubles) == (0, [])


def test_questions_and_repeats_are_bounded(door: Path) -> None:
    with proxied(door, say(), replace(QUICK, questions=2, again=3)) as (behind, seen):
        behind.answer = poisoned(say(500))(behind)
        for _ in range(5):
            assert ask(door, path="/chat/completions", body=POISON)[0] == 500
    assert (seen.troubles, seen.own, seen.questions, seen.again) == ([], ["POST: status 500"] * 5, 2, 3)
    assert len(behind.asked) == 5 + 2 + 3


def test_refusals_for_good_share_a_question(door: Path) -> None:
    with proxied(door, say()) as (behind, seen):
        behind.answer = poisoned(say(403))(behind)
        for _ in range(5):
            assert ask(door, path="/chat/completions", body=POISON)[0] == 403
    assert (seen.troubles, seen.questions, len(behind.asked)) == ([], 1, 6)


def no_access(behind: RememberingService, models: int) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        listing = behind.asked[-1].path.endswith("/models")
        say(models if listing else 403)(handler)

    return answer


@pytest.mark.parametrize("models", [200, 403, 500])
def test_a_model_that_the_account_may_not_use(door: Path, models: int) -> None:
    """The agent names it, so its refusal is the agent's, as long as the account is good for anything."""
    with proxied(door, say()) as (behind, seen):
        behind.answer = no_access(behind, models)
        assert ask(door, path="/v1/chat/completions", body=b'{"model": "not-ours"}')[0] == 403
        assert (behind.asked[2].method, behind.asked[2].path) == ("GET", "/v1/v1/models")
    assert bool(seen.troubles) == (models != 200)
    assert bool(seen.own) == (models == 200)


@pytest.mark.parametrize("status", [403, 404])
def test_a_model_that_the_validator_names_is_there(door: Path, status: int) -> None:
    with service(say()) as behind, open_proxy(ModelAccess(behind.url, KEY, names=("a", "b")), door, QUICK) as seen:
        for body in (b'{"model": "c"}', b"{}", b'{"model": "a", "models": ["a", "c"]}', b'{"model": "a", "Model": "c"}', b"["):
            assert ask(door, path="/embeddings", body=body)[0] in (400, 403)
        assert (behind.asked, seen.refused) == ([], 5)
        assert ask(door, path="/embeddings", body=b'{"model": "c", "model": "b", "input": "x"}')[0] == 200
        assert json.loads(behind.asked[0].body) == {"model": "b", "input": "x"}
        behind.answer = no_access(behind, 200) if status == 403 else say(404)
        assert ask(door, path="/embeddings", body=b'{"model": "a"}')[0] == status
    assert seen.troubles == [f"POST: status {status}; and the judge's own probe: status {status}"]


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/chat/completions?a=b", {"messages", "stream", "model"}),
        ("/responses", {"input", "stream", "store", "model"}),
        ("/messages", {"messages", "stream", "max_tokens", "model"}),
        ("/v1/messages/count_tokens", {"messages", "model"}),
        ("/embeddings", {"input", "model"}),
        ("/completions", {"prompt", "max_tokens", "model"}),
    ],
)
def test_a_question_is_one_that_the_endpoint_takes(door: Path, path: str, asked: set[str]) -> None:
    endpoints = (f"POST {path.partition('?')[0]}",)
    with service(say()) as behind, open_proxy(ModelAccess(behind.url, KEY, endpoints=endpoints), door, QUICK) as seen:
        behind.answer = poisoned(say(403))(behind)
        assert ask(door, path=path, body=b'{"model": "m", "x": "poison"}')[0] == 403
        assert behind.asked[1].path == f"/v1{path}"
        assert set(json.loads(behind.asked[1].body)) == asked
    assert (seen.own, seen.troubles) == (["POST: status 403"], [])


@pytest.mark.parametrize("status", [401, 403, 500])
@pytest.mark.parametrize("path", ["/embeddings?key=bad", "/v1/embeddings", "/v1/embeddings?a=b"])
def test_an_address_that_only_an_agent_writes_so_is_its_own(door: Path, path: str, status: int) -> None:
    def strict(behind: RememberingService) -> Answer:
        def answer(handler: BaseHTTPRequestHandler) -> None:
            say(200 if behind.asked[-1].path == "/v1/embeddings" else status)(handler)

        return answer

    with proxied(door, say()) as (behind, seen):
        behind.answer = strict(behind)
        assert ask(door, path=path)[0] == status
    assert (seen.troubles, seen.own) == ([], [f"POST: status {status}"])


def test_an_answer_that_the_agent_kept_waiting_is_its_own(door: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_proxy, "_SLOW", -1.0)
    with proxied(door, say()) as (behind, seen):
        behind.answer = in_turn([cut, say()])
        with pytest.raises(http.client.IncompleteRead):
            ask(door)
    assert (seen.troubles, len(seen.own), len(behind.asked)) == ([], 1, 1)


def wait_for(event: threading.Event, arrived: threading.Event) -> Answer:
    def answer(_handler: BaseHTTPRequestHandler) -> None:
        arrived.set()
        event.wait(GIVE_UP)

    return answer


@pytest.mark.parametrize("dead", [True, False])
def test_a_service_that_is_silent_to_the_end_of_a_trial(door: Path, monkeypatch: pytest.MonkeyPatch, dead: bool) -> None:
    """Out of time, because the service never answered: nobody's fail. If it answers others, it was the request's."""
    monkeypatch.setattr(upstream, "_LONG", 0.0)
    arrived, done = threading.Event(), threading.Event()
    with service(say()) as behind:
        silent = wait_for(done, arrived)
        behind.answer = silent if dead else poisoned(silent)(behind)
        with open_proxy(ModelAccess(behind.url, KEY), door, replace(QUICK, question_seconds=1.0 if dead else 60.0)) as seen:
            connection = Through(door)
            connection.request("POST", "/chat/completions", body=POISON)
            assert arrived.wait(GIVE_UP)
        connection.close()
        done.set()
    assert bool(seen.troubles) == dead
    if dead:
        assert seen.troubles[0].startswith("POST: no answer for 0 s when the trial ended; and the judge's own probe: no answer (")


def test_a_request_in_doubt_when_the_trial_ends_is_looked_into(door: Path) -> None:
    with proxied(door, say(503), replace(QUICK, pause=50.0)) as (_, seen):
        connection = Through(door)
        connection.request("POST", "/embeddings", body=b"{}")
        while not seen.again:
            time.sleep(0.01)
    connection.close()
    assert len(seen.troubles) == 1
    assert seen.troubles[0].endswith("and the judge's own probe: status 503")


ENDLESS = ("silent", "drips its header", "drips headers", "early hints without end")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", BEHAVIOURS)
def test_a_hostile_service(door: Path, name: str) -> None:
    """Bounded in time, bytes and memory, and its words cannot hurt; whatever reaches the agent is as it came."""
    limits = replace(QUICK, whole=0.5 if name in (*ENDLESS, "drips its body") else 30.0, question_seconds=0.5, answer_bytes=10**7)
    before, began = grown(), time.monotonic()
    got: Any = None
    with hostile(BEHAVIOURS[name]) as there, open_proxy(ModelAccess(f"{there.url}/v1", KEY), door, limits) as seen:
        try:
            got = ask(door)
        except (http.client.HTTPException, OSError) as error:
            got = error
    assert got is not None
    assert time.monotonic() - began < GIVE_UP / 2
    assert grown() - before < 150 * 2**20
    words = "".join([*seen.troubles, *seen.own])
    assert is_plain(words)
    assert KEY not in words
    if name in (*ENDLESS, "drips its body", "shorter than it says", "not HTTP", "headers without end", "hangs up"):
        assert seen.troubles
