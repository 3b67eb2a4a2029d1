"""Services as they are in the world: over HTTP, in the sandbox, in Python; and a run with those that misbehave. SPEC 2.2."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from assay.errors import BadInput
from assay.exact import NANO
from assay.judge.workflow import execute as judge
from assay.judge.workflow import services as files
from assay.judge.workflow.call import ServiceHost, opened
from assay.judge.workflow.plan import Plan
from assay.judge.workflow.record import PlanRun
from assay.judge.workflow.services import Services
from judge_kit import bubblewrap
from workflow_chaos import (
    ChaosServer,
    Reply,
    closes_amid_the_body,
    drips,
    floods,
    hangs,
    hangs_amid_the_body,
    redirects,
    reply_of,
    resets,
    serving,
    well,
)

LATENCY, MORE = 2, 1
"""Seconds: the bound of the runs here, and how much longer they may take whatever services do."""


def http(server: ChaosServer, **more: Any) -> Services:
    common = {"kind": "http", "url": server.url, "actions": ["do", "ping"], "health": "ping", "max_cost": "0.01"}
    return Services.model_validate({"services": {"s": common | more}})


def carried_out(
    services: Services, *, action: str = "do", params: Any = None, folder: Path = Path(), sandbox: Any = None, **handling: Any
) -> tuple[PlanRun, float]:
    """One step, asked of the service `s`; and how many seconds that took."""
    node = {"id": "a", "service": "s", "action": action, "params": params or {}}
    plan = Plan.model_validate({"nodes": [node], "error_handling": {"a": handling} if handling else {}})

    async def work() -> PlanRun:
        async with opened(services, ["s"], ServiceHost(folder, os.environ, sandbox)) as asked:
            began = time.monotonic()
            try:
                return await judge.execute(plan, judge.RunBounds(NANO, LATENCY * NANO), asked, None, name="run")
            finally:
                took.append(time.monotonic() - began)

    took: list[float] = []
    return asyncio.run(work()), took[0]


def outcomes(run: PlanRun) -> list[str]:
    return [attempt.outcome for attempt in run.steps[0].attempts]


def test_a_service_is_asked_by_post_and_told_which_attempt_it_is() -> None:
    replies: list[Reply] = [reply_of({}, 503), well({"n": 1})]

    def next_one(handler: Any) -> None:
        replies.pop(0)(handler)

    with serving(do=next_one) as server:
        run, _ = carried_out(http(server), params={"q": "é"}, retry_count=1)
    assert (run.completed, run.retries, run.cost, run.outputs) == (1, 1, NANO // 1000, {"a": {"n": 1}})
    headers = [{name.lower(): value for name, value in sent.items()} for _, sent in server.seen]
    assert [header["assay-attempt"] for header in headers] == ["1", "2"]
    assert {header["idempotency-key"] for header in headers} == {"run/a"}
    assert all("authorization" not in header for header in headers)


def test_a_key_is_sent_and_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "a-key-that-nobody-sees"
    with serving(do=reply_of({}, 503), ping=reply_of({}, 503)) as server:
        services = http(server, key="SEARCH_KEY")
        with pytest.raises(BadInput, match="SEARCH_KEY is not set"):
            carried_out(services)
        monkeypatch.setenv("SEARCH_KEY", secret)
        run, _ = carried_out(services)
        assert server.seen[0][1]["authorization"] == f"Bearer {secret}"
    assert secret not in repr(run) + repr(services)


MISBEHAVIOUR: dict[str, Reply] = {
    "hangs": hangs,
    "hangs amid the body": hangs_amid_the_body,
    "closes amid the body": closes_amid_the_body,
    "resets": resets,
    "drips": drips,
    "10 MB": floods,
    "redirects": redirects,
    "answers late": well(seconds=1.2),
    "503": reply_of({}, 503),
    "429": reply_of({}, 429),
    "204": reply_of(b"", 204),
    "no JSON": reply_of(b"<html>"),
    "compressed": reply_of(b"\x1f\x8b", content_encoding="gzip"),
    "another shape": reply_of({"result": 1}),
    "an error that is no text": reply_of({"error": 1}),
    "more than it may": reply_of({"output": 1, "cost": "0", "tokens": 5}),
}
OWN = {"no JSON", "another shape", "an error that is no text", "more than it may"}
"""What no plan could have caused, so that the service is to blame however well it is."""
LIES: dict[str, Any] = {
    "no cost": {"output": 1},
    "negative": {"output": 1, "cost": "-0.001"},
    "a float": {"output": 1, "cost": 0.001},
    "NaN in quotes": {"output": 1, "cost": "NaN"},
    "an exponent": {"output": 1, "cost": "1e-3"},
    "above what it may be": {"output": 1, "cost": "0.010000001"},
}


def within(run: Any, bound: float) -> PlanRun:
    """The run, in time; on a machine that is busy elsewhere it has three tries to be, and the same result each time."""
    for _ in range(3):
        plan_run, seconds = run()
        if seconds <= bound:
            break
    assert seconds <= bound
    result: PlanRun = plan_run
    return result


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("name", "health"),
    [*((name, health) for name in MISBEHAVIOUR for health in ("well", "broken")), ("hangs", "hanging"), ("503", "hanging")],
)
def test_a_run_ends_in_time_with_the_right_one_to_blame(name: str, health: str) -> None:
    """The latency bound is 2 s; with a time-out of 0.3 s declared, and one retry."""
    pings = {"well": well(), "broken": reply_of({}, 500), "hanging": hangs}
    with serving(do=MISBEHAVIOUR[name], ping=pings[health]) as server:
        run = within(lambda: carried_out(http(server), retry_count=1, timeout_seconds="0.3"), LATENCY + MORE)
    assert (run.completed, run.retries, run.hard_failures, run.cost) == (0, 1, 1, 0)
    late = name in ("hangs", "hangs amid the body", "drips", "answers late")
    assert set(outcomes(run)) == {"timeout" if late else "broken"}
    assert bool(run.broken) == (health != "well" or name in OWN)


@pytest.mark.parametrize("health", ["well", "hanging"])
@pytest.mark.parametrize("name", ["hangs", "hangs amid the body", "drips"])
def test_without_a_time_out_of_its_own_a_step_has_the_tasks(name: str, health: str) -> None:
    with serving(do=MISBEHAVIOUR[name], ping=well() if health == "well" else hangs) as server:
        run = within(lambda: carried_out(http(server)), LATENCY + MORE)
    assert (run.stopped, run.timeouts, run.hard_failures, outcomes(run)) == ("latency", 0, 0, ["given-up"])
    assert bool(run.broken) == (health != "well")
    assert run.nanoseconds >= LATENCY * NANO


@pytest.mark.parametrize("name", LIES)
@pytest.mark.parametrize("status", [200, 400])
def test_a_cost_that_is_none_is_the_services_fault_and_no_hard_failure_counts(name: str, status: int) -> None:
    reply = LIES[name] if status == 200 else {"error": "no"} | {key: value for key, value in LIES[name].items() if key == "cost"}
    with serving(do=reply_of(reply, status), ping=well(cost="0")) as server:
        run, _ = carried_out(http(server), retry_count=3)
    if status == 400 and name == "no cost":  # a refusal needs none
        assert (run.broken, outcomes(run)) == ("", ["denied"] * 4)
    elif name == "above what it may be":  # a plan may have asked for too much
        assert (outcomes(run), run.cost, run.hard_failures, run.broken) == (["lied"], 0, 1, "")
    else:
        assert (outcomes(run), run.cost) == (["lied"], 0)
        assert "does not answer in the required form: the " in run.broken
    with serving(do=reply_of(LIES[name]), ping=reply_of(LIES[name])) as server:
        assert carried_out(http(server), retry_count=3)[0].broken


@pytest.mark.parametrize("output", ["NaN", "[" * 200 + "]" * 200, '{"a": 1, "a": 2}', "9" * 5000])
def test_an_output_that_a_plan_may_have_asked_for_is_not_the_services_fault(output: str) -> None:
    with serving(do=reply_of(f'{{"output": {output}, "cost": "0"}}'.encode()), ping=well(cost="0")) as server:
        run, _ = carried_out(http(server))
    assert (outcomes(run), run.hard_failures, run.broken) == (["broken"], 1, "")


@pytest.mark.parametrize(
    ("reply", "cost"),
    [
        (reply_of({"error": "no such document"}), 0),
        (reply_of({"error": "no such document", "cost": "0.002"}, 404), 2 * NANO // 1000),
        (reply_of(b"go away", 403), 0),
    ],
)
def test_a_refusal_is_the_plans(reply: Reply, cost: int) -> None:
    with serving(do=reply, ping=hangs) as server:
        run, _ = carried_out(http(server))
    assert (outcomes(run), run.cost, run.hard_failures, run.broken) == (["denied"], cost, 1, "")


def test_nobody_there_is_a_broken_service() -> None:
    with serving(do=well()) as server:
        services = http(server)
    run, _ = carried_out(services)
    assert "cannot be reached" in run.broken


def test_numbers_stay_as_they_were_written() -> None:
    with serving(do=reply_of(b'{"output": {"n": 0.10000000000000000001}, "cost": "0"}')) as server:
        run, _ = carried_out(http(server))
    assert str(run.outputs["a"]["n"]) == "0.10000000000000000001"


PROGRAM = """
import json, os, sys, time
asked = json.load(sys.stdin)
if asked["action"] == "ping":
    print('{"output": 1, "cost": "0"}'); sys.exit()
what = asked["params"].get("what")
if what == "hang": time.sleep(60)
if what == "fail": sys.exit(3)
if what == "flood": print("x" * 5_000_000)
if what == "deny": print('{"error": "no"}'); sys.exit()
print(json.dumps({"output": [asked["params"], os.environ.get("ASSAY_ATTEMPT"), os.getcwd()], "cost": "0.005"}))
"""


def command(tmp_path: Path) -> Services:
    (tmp_path / "program").mkdir(exist_ok=True)
    (tmp_path / "program" / "main.py").write_text(PROGRAM, encoding="utf-8")
    spec = {"kind": "command", "command": ["python3", "main.py"], "folder": "program", "actions": ["do", "ping"]}
    return Services.model_validate({"services": {"s": spec | {"health": "ping", "max_cost": "0.01"}}})


def test_a_command_answers_from_a_box(tmp_path: Path) -> None:
    services, box = command(tmp_path), bubblewrap()
    run, _ = carried_out(services, params={"k": 1}, folder=tmp_path, sandbox=box)
    assert (run.outputs["a"], run.cost) == ([{"k": 1}, "1", "/service"], 5 * NANO // 1000)
    for what, outcome in (("fail", "broken"), ("flood", "broken"), ("deny", "denied")):
        run, _ = carried_out(services, params={"what": what}, folder=tmp_path, sandbox=box)
        assert (outcomes(run), run.broken) == ([outcome], ""), run.steps
    run = within(
        lambda: carried_out(services, params={"what": "hang"}, folder=tmp_path, sandbox=box, timeout_seconds="0.3"),
        LATENCY + MORE,
    )
    assert (outcomes(run), run.timeouts) == (["timeout"], 1)


def test_a_command_needs_a_sandbox(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="runs in a sandbox, and there is none"):
        carried_out(command(tmp_path), folder=tmp_path)


MODULE = """
import time

def answer(action, params):
    print("this goes nowhere")
    what = params.get("what")
    if what == "hang": time.sleep(60)
    if what == "raise": raise RuntimeError
    if what == "flood": return "x" * 5_000_000
    if what == "deny": return {"error": "no"}
    return {"output": [action, params], "cost": "0.001"}

class Inner:
    method = staticmethod(answer)
"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("entry", ["assay_test_service:answer", "assay_test_service:Inner.method"])
def test_a_python_function_answers_from_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str) -> None:
    (tmp_path / "assay_test_service.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]))
    spec = {"kind": "python", "entry": entry, "actions": ["do", "ping"], "health": "ping", "max_cost": "0.01"}
    services = Services.model_validate({"services": {"s": spec | {"health_seconds": "60"}}})

    def asked(what: str | None = None, **handling: Any) -> tuple[PlanRun, float]:
        node = {"id": "a", "service": "s", "action": "do", "params": {} if what is None else {"what": what}}
        plan = Plan.model_validate({"nodes": [node], "error_handling": {"a": handling} if handling else {}})

        async def work() -> PlanRun:
            async with opened(services, ["s"], ServiceHost(tmp_path, {})) as ready:
                return await judge.execute(plan, judge.RunBounds(NANO, 60 * NANO), ready, None)

        began = time.monotonic()
        return asyncio.run(work()), time.monotonic() - began

    assert asked()[0].outputs == {"a": ["do", {}]}
    for what, outcome in (("raise", "broken"), ("flood", "broken"), ("deny", "denied")):
        run, _ = asked(what)
        assert (outcomes(run), run.broken) == ([outcome], ""), what
    run, _ = asked("hang", timeout_seconds="0.5")
    assert (outcomes(run), run.broken) == (["timeout"], "")


def test_a_function_that_is_not_installed_is_a_broken_service() -> None:
    spec = {"kind": "python", "entry": "no_such_module:answer", "actions": ["do"], "health": "do", "max_cost": "0"}
    services = Services.model_validate({"services": {"s": spec | {"health_seconds": "60"}}})

    async def work() -> PlanRun:
        plan = Plan.model_validate({"nodes": [{"id": "a", "service": "s", "action": "do"}]})
        async with opened(services, ["s"], ServiceHost(Path(), {})) as ready:
            return await judge.execute(plan, judge.RunBounds(NANO, 60 * NANO), ready, None)

    assert "no_such_module:answer ended with 1" in asyncio.run(work()).broken
    assert sys.modules.get("no_such_module") is None


GOOD = """
[services.s]
kind = "http"
url = "http://127.0.0.1:1/"
actions = ["do", "ping"]
health = "ping"
max_cost = "0.01"
"""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("kind = \"http\"", "kind = \"smtp\""), "services.toml:3: services.s.kind: is missing or unknown; use one of command"),
        (("\"http://127.0.0.1:1/\"", "\"ftp://x/\""), "services.toml:4: services.s.url: is not an address"),
        (("\"http://127.0.0.1:1/\"", "\"http://user:secret@x/\""), "is not an address"),
        (("health = \"ping\"", "health = \"pong\""), "health is not one of the actions"),
        (("max_cost = \"0.01\"", "max_cost = 0.01"), "is not a decimal string"),
        (("max_cost = \"0.01\"", ""), "max_cost: is missing"),
        (("max_cost = \"0.01\"", "max_cost = \"0.01\"\nhealth_seconds = \"0\""), "health_seconds is 0"),
        (("actions = [\"do\", \"ping\"]", "actions = []"), "actions: is empty"),
        (("[services.s]", "[services.s]\nextra = 1"), "there is no field 'extra' here"),
        (("kind = \"http\"\nurl = \"http://127.0.0.1:1/\"", "kind = \"python\"\nentry = \"os.system\""), "entry"),
        (
            ("kind = \"http\"\nurl = \"http://127.0.0.1:1/\"", "kind = \"command\"\ncommand = [\"x\"]\nfolder = \"gone\""),
            "services.s.folder: no such folder: gone",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_services_toml_is_said(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    file = tmp_path / "services.toml"
    file.write_text(GOOD, encoding="utf-8")
    assert files.read(file).actions == {"s": frozenset({"do", "ping"})}
    assert change[0] in GOOD
    file.write_text(GOOD.replace(*change), encoding="utf-8")
    with pytest.raises(BadInput) as refused:
        files.read(file)
    assert message in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_service_that_a_task_wants_must_be_there(tmp_path: Path) -> None:
    file = tmp_path / "services.toml"
    with pytest.raises(BadInput, match="no such file"):
        files.read(file)
    file.write_text(GOOD, encoding="utf-8")
    services = files.read(file)
    services.check_has({"s": frozenset({"do"})})
    with pytest.raises(BadInput, match="there is no service 't'"):
        services.check_has({"t": frozenset({"do"})})
    with pytest.raises(BadInput, match="'s' has no action 'fly'"):
        services.check_has({"s": frozenset({"fly"})})
