"""How a plan is carried out, in virtual time: what runs when, what stops it, whose fault it is. SPEC 2.2."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from assay.exact import NANO
from assay.judge.sandbox import InfrastructureError
from assay.judge.workflow import execute as judge
from assay.judge.workflow import limits
from assay.judge.workflow.call import Denied, Lied
from assay.judge.workflow.plan import Plan
from assay.judge.workflow.record import Moment, PlanRun
from workflow_kit import Fake, VirtualLoop, broken, plan, virtually, well

SECOND = NANO


def ran(plan: Plan, service: Fake, *, budget: int = NANO, seconds: int = 100, given: Any = None, moments: Any = None) -> PlanRun:
    """Carries it out in virtual time."""

    async def work(loop: VirtualLoop) -> PlanRun:
        tell = (lambda _moment: None) if moments is None else moments.append
        bounds = judge.RunBounds(budget, seconds * SECOND)
        return await judge.execute(plan, bounds, {"s": service}, given, clock=loop.nanoseconds, on_moment=tell)

    return virtually(work)


def steady(seconds: float = 1, **more: Any) -> Fake:
    return Fake(lambda _action, step, _attempt: (seconds, well(step)), **more)


def states(run: PlanRun) -> dict[str, str]:
    return {step.id: step.state for step in run.steps}


def test_what_is_ready_runs_at_the_same_time() -> None:
    service = steady()
    run = ran(plan("abcd", [("a", "c"), ("b", "c"), ("c", "d")]), service)
    assert (run.nanoseconds, service.most, run.completed) == (3 * SECOND, 2, 4)
    assert [step.id for step in run.steps] == list("abcd")


def test_a_service_is_asked_no_more_than_so_many_things_at_once() -> None:
    service = steady(parallel=2)
    run = ran(plan("abcde"), service)
    assert (run.nanoseconds, service.most) == (3 * SECOND, 2)


def test_waiting_for_a_service_is_no_part_of_a_time_out() -> None:
    run = ran(
        plan("abc", a={"timeout_seconds": "1.5"}, b={"timeout_seconds": "1.5"}, c={"timeout_seconds": "1.5"}), steady(parallel=1)
    )
    assert (run.timeouts, run.completed) == (0, 3)


def test_a_step_is_sent_what_it_refers_to() -> None:
    sent: list[bytes] = []

    class Recording(Fake):
        async def ask(self, call: Any) -> bytes:
            sent.append(call.request)
            return await super().ask(call)

    plan = Plan.model_validate(
        {
            "nodes": [
                {"id": "a", "service": "s", "action": "do", "params": {"q": "${task.input.question}"}},
                {"id": "b", "service": "s", "action": "sum", "params": {"from": "${a.output.k}", "text": "<${a.output}>"}},
            ],
            "edges": [["a", "b"]],
        }
    )
    service = Recording(lambda _action, _step, _attempt: (1, b'{"output": {"k": [0.10]}, "cost": "0"}'))
    assert ran(plan, service, given={"question": "why?"}).completed == 2
    assert sent == [
        b'{"action":"do","params":{"q":"why?"}}',
        b'{"action":"sum","params":{"from":[0.10],"text":"<{\\"k\\":[0.10]}>"}}',
    ]


def test_data_that_is_not_there_is_the_plans_failure_and_nothing_is_sent() -> None:
    plan = Plan.model_validate(
        {
            "nodes": [
                {"id": "a", "service": "s", "action": "do"},
                {"id": "b", "service": "s", "action": "do", "params": {"x": "${a.output.missing}"}},
            ],
            "edges": [["a", "b"]],
            "error_handling": {"b": {"retry_count": 3}},
        }
    )
    service = steady()
    result = ran(plan, service)
    assert (states(result), result.hard_failures, result.retries) == ({"a": "completed", "b": "failed"}, 1, 0)
    assert service.asked == [("a", 1)]  # not even for its health
    assert "${a.output.missing} does not exist" in result.steps[1].message


def test_declared_retries_are_made_and_no_more() -> None:
    service = Fake(lambda action, _step, attempt: (1, well() if action == "ping" or attempt == 3 else broken()))
    run = ran(plan("ab", a={"retry_count": 2}, b={"retry_count": 1}), service)
    assert states(run) == {"a": "completed", "b": "failed"}
    assert (run.retries, run.hard_failures, run.broken) == (3, 1, "")
    assert [attempt.outcome for attempt in run.steps[0].attempts] == ["broken", "broken", "answered"]
    assert run.steps[0].attempts[1].began == SECOND + round(limits.RETRY_WAIT * SECOND)


def test_a_failure_takes_with_it_those_that_need_it_and_no_others() -> None:
    service = Fake(lambda _action, step, _attempt: (1, Denied("no") if step == "b" else well()))
    run = ran(plan("abcde", [("a", "b"), ("b", "c"), ("a", "d"), ("d", "e")]), service)
    assert states(run) == {"a": "completed", "b": "failed", "c": "waiting", "d": "completed", "e": "completed"}
    assert (run.completed, run.hard_failures) == (3, 1)


def test_a_time_out_is_counted_each_time_and_what_comes_late_is_not_heard() -> None:
    service = Fake(lambda action, _step, _attempt: (0.1 if action == "ping" else 2, well(cost=1)))
    run = ran(plan("a", a={"retry_count": 1, "timeout_seconds": "1.5"}), service)
    assert (run.timeouts, run.retries, run.hard_failures, run.cost) == (2, 1, 1, 0)
    assert run.steps[0].message == "took longer than the 1.5 s that the step declared"


def test_cost_is_what_services_say_even_of_what_failed() -> None:
    script = {1: {"error": "try again", "cost": "0.2"}, 2: well(cost=NANO // 10)}
    run = ran(plan("a", a={"retry_count": 1}), Fake(lambda _action, _step, attempt: (1, script[attempt])))
    assert (run.cost, run.completed) == (3 * NANO // 10, 1)


def test_above_the_budget_the_run_stops_and_what_is_under_way_costs_nothing() -> None:
    times = {"a": 1.0, "b": 2.0, "c": 3.0}
    service = Fake(lambda _action, step, _attempt: (times.get(step, 1), well(cost=6 * NANO // 10)))
    run = ran(plan("abcd", [("b", "d")]), service)
    assert (run.stopped, run.cost, run.nanoseconds) == ("budget", 12 * NANO // 10, 2 * SECOND)
    assert states(run) == {"a": "completed", "b": "completed", "c": "given-up", "d": "waiting"}
    assert (run.hard_failures, run.steps[2].attempts[0].outcome) == (0, "given-up")
    assert service.under_way == 0


def test_a_budget_that_is_used_up_to_the_last_is_not_overrun() -> None:
    run = ran(plan("ab", [("a", "b")]), Fake(lambda _action, _step, _attempt: (1, well(cost=NANO // 2))))
    assert (run.stopped, run.completed, run.cost) == ("", 2, NANO)


def test_at_the_latency_bound_the_run_stops_and_a_slow_service_that_is_well_is_not_to_blame() -> None:
    service = Fake(lambda action, step, _attempt: (0.2 if action == "ping" else 2 if step == "a" else 50, well()))
    run = ran(plan("ab"), service, seconds=10)
    assert (run.stopped, run.broken, run.nanoseconds) == ("latency", "", 10 * SECOND)
    assert states(run) == {"a": "completed", "b": "given-up"}
    assert (run.timeouts, run.hard_failures) == (0, 0)


def test_a_time_out_as_long_as_the_task_is_the_tasks() -> None:
    service = Fake(lambda action, _step, _attempt: (0.2 if action == "ping" else 50, well()))
    run = ran(plan("a", a={"timeout_seconds": "10"}), service, seconds=10)
    assert (run.stopped, run.timeouts, run.hard_failures) == ("latency", 0, 0)


@pytest.mark.parametrize("health", [(0.1, broken()), (0.1, Denied("busy")), (0.1, Lied("no cost")), (0.1, b"pong"), (60, well())])
def test_a_service_that_is_not_well_is_to_blame(health: tuple[float, Any]) -> None:
    service = Fake(lambda action, _step, _attempt: health if action == "ping" else (1, broken()))
    run = ran(plan("a"), service)
    assert "health action" in run.broken


@pytest.mark.parametrize(
    "answer", [b'{"output": 1}', b'{"output": 1, "cost": 0.1}', {"output": 1, "cost": "-1"}, {"output": 1, "cost": "2"}]
)
def test_a_lie_about_cost_is_worth_no_second_attempt(answer: Any) -> None:
    service = Fake(lambda action, _step, _attempt: (1, well() if action == "ping" else answer))
    run = ran(plan("a", a={"retry_count": 3}), service)
    own = answer != {"output": 1, "cost": "2"}  # a plan may have asked for too much, but not for a cost that is none
    assert (run.retries, run.hard_failures, run.cost, bool(run.broken)) == (0, 1, 0, own)
    assert [attempt.outcome for attempt in run.steps[0].attempts] == ["lied"]
    service = Fake(lambda _action, _step, _attempt: (1, answer))
    wanted = "s does not answer in the required form" if own else "s does not answer its health action: "
    assert wanted in ran(plan("a", a={"retry_count": 3}), service).broken


def test_a_denial_is_the_plans_and_asks_nobody_for_his_health() -> None:
    service = Fake(lambda _action, _step, _attempt: (1, Denied("no")))
    run = ran(plan("a", a={"retry_count": 1}), service)
    assert (run.hard_failures, run.retries, run.broken) == (1, 1, "")
    assert service.asked == [("a", 1), ("a", 2)]


def test_a_broken_service_ends_the_run_at_once() -> None:
    service = Fake(lambda action, step, _attempt: (1, broken()) if action == "ping" or step == "a" else (50, well()))
    run = ran(plan("ab"), service)
    assert run.broken
    assert run.nanoseconds == 2 * SECOND
    assert service.under_way == 0


def test_a_service_is_asked_for_its_health_once_at_a_time() -> None:
    service = Fake(lambda action, _step, _attempt: (3 if action == "ping" else 1, well() if action == "ping" else broken()))
    run = ran(plan("abc", b={"retry_count": 1}), service)
    assert run.hard_failures == 3
    assert [step for step, _ in service.asked].count("health") == 1


def test_a_health_that_takes_too_long_at_the_end_is_not_waited_for() -> None:
    service = Fake(lambda action, _step, _attempt: (4, well()) if action == "ping" else (50, well()))
    run = ran(plan("a"), service, seconds=10)
    assert run.broken == "s did not answer its health action in time"
    loop_time = run.nanoseconds
    assert loop_time == 10 * SECOND


def test_trouble_of_ours_is_no_result() -> None:
    service = Fake(lambda _action, step, _attempt: (1, InfrastructureError("the host's disk is full") if step == "a" else well()))
    with pytest.raises(InfrastructureError, match="disk is full"):
        ran(plan("ab"), service)
    assert service.under_way == 0
    probing = Fake(lambda action, _step, _attempt: (1, InfrastructureError("no sandbox") if action == "ping" else broken()))
    with pytest.raises(InfrastructureError, match="no sandbox"):
        ran(plan("a"), probing)


def test_a_defect_of_the_judge_is_not_taken_for_anybodys_fault() -> None:
    with pytest.raises(ZeroDivisionError):
        ran(plan("ab"), Fake(lambda _action, _step, _attempt: (1, ZeroDivisionError("a defect"))))


def test_a_service_that_runs_out_of_time_by_itself_is_broken() -> None:
    service = Fake(lambda action, _step, _attempt: (1, well() if action == "ping" else TimeoutError()))
    assert [attempt.outcome for attempt in ran(plan("a"), service).steps[0].attempts] == ["broken"]


def test_what_the_steps_answer_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "_LARGE", 10**9)  # virtual time does not wait for threads
    monkeypatch.setattr(limits, "KEPT_BYTES", 150_000)
    monkeypatch.setattr(limits, "REQUEST_BYTES", 150_000)
    service = Fake(lambda _action, _step, _attempt: (1, well("x" * 100_000)))
    run = ran(plan("ab", [("a", "b")]), service)
    assert states(run) == {"a": "completed", "b": "failed"}
    assert "may have 150000 bytes together" in run.steps[1].message
    twice = {"x": ["${a.output}", "${a.output}"]}
    nodes = [{"id": "a", "service": "s", "action": "do"}, {"id": "b", "service": "s", "action": "do", "params": twice}]
    run = ran(Plan.model_validate({"nodes": nodes, "edges": [["a", "b"]]}), service)
    assert run.steps[1].message == "with the data of earlier steps the request is too large"


def test_moments_are_told_in_their_order() -> None:
    moments: list[Moment] = []
    service = Fake(lambda action, _step, attempt: (1, well(cost=5) if action == "ping" or attempt == 2 else broken()))
    ran(plan("a", a={"retry_count": 1}), service, moments=moments)
    assert [(moment.kind, moment.spent) for moment in moments] == [("began", 0), ("again", 0), ("began", 0), ("completed", 5)]


def test_who_carries_it_out_can_be_stopped() -> None:
    service = steady(50)

    async def work(loop: VirtualLoop) -> str:
        bounds = judge.RunBounds(NANO, 100 * SECOND)
        task = asyncio.ensure_future(judge.execute(plan("ab"), bounds, {"s": service}, None, clock=loop.nanoseconds))
        await asyncio.sleep(1)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return "stopped"
        return "went on"

    assert virtually(work) == "stopped"
    assert service.under_way == 0
