"""Runs a plan: calls the services of its steps, as parallel as possible, within the task's budget and latency. SPEC 2.2.

- A step begins when all steps that it needs have completed. If a step fails, the steps that need it do not begin; others go on.
- An attempt may take as long as the step declares, and never longer than the task has left. A failed attempt is repeated as often
  as the plan declares. After a false cost there is no further attempt.
- The cost is what the services state, including failed attempts. Above the budget the run stops: completed steps count, and steps
  in progress are given up and cost nothing. At the latency bound the run stops in the same way.
- If a service and not the plan made a step fail, or if a step still waited for a service at the latency bound, the service's
  health action is called. If that fails, the service is broken, and the task counts for no participant. If it answers, the step
  failed.
- A failure that no plan could have caused (an invalid cost, a reply in another form) shows at once that the service is broken.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any, Literal, TypeVar

from assay.exact import NANO
from assay.judge.running import backoff
from assay.judge.sandbox import InfrastructureError
from assay.judge.workflow import call as answers
from assay.judge.workflow import limits, values
from assay.judge.workflow.call import Broken, CallableService, CallFailed, Denied, ServiceAnswer, ServiceCall
from assay.judge.workflow.plan import TASK, Plan, PlanStep, TooLarge, fill_refs, find_refs
from assay.judge.workflow.record import Moment, MomentKind, PlanRun, StepAttempt, StepRun, TimedOut

__all__ = ["RunBounds", "execute"]

T = TypeVar("T")
StopCause = Literal["", "budget", "latency"]
_LARGE = 64_000
"""Bytes of data above which work is done in a thread, outside the event loop."""


@dataclass(frozen=True)
class RunBounds:
    """The limits that a task sets for a run."""

    budget: int
    """The most that it may cost, in nanos."""
    nanoseconds: int


class _RunEnded(Exception):
    """The run ends before its last step."""


async def execute(
    plan: Plan,
    bounds: RunBounds,
    services: Mapping[str, CallableService],
    given: Any,
    *,
    name: str = "",
    on_moment: Callable[[Moment], None] = lambda _moment: None,
    clock: Callable[[], int] = time.monotonic_ns,
) -> PlanRun:
    """Runs a checked plan, and returns the result. Raises InfrastructureError, for infrastructure errors only.

    given: the task's input. name: the run's name, which distinguishes its steps from those of other runs. clock: nanoseconds.
    """
    run = _PlanExecution(plan, bounds, services, given, name, on_moment, clock)
    try:
        return await run.carry_out()
    finally:
        await _cancel([*run.going.values(), *run.probes.values()])
        run.threads.shutdown(wait=False, cancel_futures=True)


@dataclass
class _PlanExecution:
    """The state of a run, and its steps."""

    plan: Plan
    bounds: RunBounds
    services: Mapping[str, CallableService]
    given: Any
    name: str
    on_moment: Callable[[Moment], None]
    clock: Callable[[], int]

    def __post_init__(self) -> None:
        self.steps = {node.id: StepRun(node.id, node.service, node.action) for node in self.plan.nodes}
        self.outputs: dict[str, Any] = {TASK: self.given}
        self.kept = 0
        self.spent = 0
        self.stopped: StopCause = ""
        self.broken = ""
        self.trouble: InfrastructureError | None = None
        self.ended: asyncio.Queue[str] = asyncio.Queue()
        self.going: dict[str, asyncio.Task[None]] = {}
        self.probes: dict[str, asyncio.Task[None]] = {}
        self.gates = {name: asyncio.Semaphore(service.parallel) for name, service in self.services.items()}
        self.threads = ThreadPoolExecutor(1, thread_name_prefix="assay-data")
        self.began = self.last = self.clock()
        self.until = asyncio.get_running_loop().time() + self.bounds.nanoseconds / NANO

    async def carry_out(self) -> PlanRun:
        try:
            async with asyncio.timeout_at(self.until):
                await self.follow()
        except TimeoutError:
            self.stopped = "latency"
        except _RunEnded:
            pass
        self.last = self.clock()
        waiting = [name for name in self.going if self.steps[name].state == "going"]
        await _cancel(self.going.values())
        if self.stopped == "latency":
            for name in waiting:
                self.probe(self.steps[name].service)
        await self.wait_for_probes()
        if self.trouble is not None:
            raise self.trouble
        return self.result()

    async def follow(self) -> None:
        """Starts the steps that are ready and waits for those that end, until none is in progress."""
        sorter = TopologicalSorter(self.plan.needs)
        sorter.prepare()
        self.start(sorter.get_ready())
        while self.going:
            name = await self.ended.get()
            if name:
                self.going.pop(name).result()
            if self.over:
                raise _RunEnded
            if name and self.steps[name].state == "completed":
                sorter.done(name)
                self.start(sorter.get_ready())

    @property
    def over(self) -> bool:
        """Whether the run ends now."""
        return bool(self.stopped) or self.decided

    def start(self, names: tuple[str, ...]) -> None:
        for name in sorted(names):
            self.steps[name].state = "going"
            task = self.going[name] = asyncio.create_task(self.step(self.plan.by_id[name]))
            task.add_done_callback(lambda _task, name=name: self.ended.put_nowait(name))  # type: ignore[misc]

    async def step(self, node: PlanStep) -> None:
        """One step with all its attempts."""
        step = self.steps[node.id]
        try:
            request = await self.request(node)
            self.keep(step, await self.attempts(node, step, request))
            step.state = "completed"
            self.report("completed", step)
        except CallFailed as error:
            step.state, step.message = "failed", str(error)
            self.report("failed", step)
            if error.own:
                self.blame(f"{node.service} does not answer in the required form: {error}")
            elif step.attempts and step.attempts[-1].outcome not in ("answered", "denied"):
                self.probe(node.service)
        except InfrastructureError as error:
            self.end(error)

    async def attempts(self, node: PlanStep, step: StepRun, request: bytes) -> ServiceAnswer:
        handling = self.plan.handling(node.id)
        seconds = None if handling.timeout_seconds is None else handling.timeout_seconds / NANO
        for attempt in range(1, handling.retry_count + 1):
            try:
                return await self.attempt(node, step, request, seconds)
            except (Denied, Broken, TimedOut):
                await asyncio.sleep(backoff(attempt, limits.RETRY_WAIT, factor=2.0, longest=limits.LONGEST_WAIT))
        return await self.attempt(node, step, request, seconds)

    async def attempt(self, node: PlanStep, step: StepRun, request: bytes, seconds: float | None) -> ServiceAnswer:
        """One execution of a step."""
        service = self.services[node.service]
        async with self.gates[node.service]:
            attempt = StepAttempt(len(step.attempts) + 1, self.clock() - self.began)
            step.attempts.append(attempt)
            self.report("began", step)
            left = self.until - asyncio.get_running_loop().time()
            own = None if seconds is None or seconds >= left else seconds  # a time-out after the run's end would have no effect
            call = ServiceCall(request, left if own is None else own, attempt.number, f"{self.name}/{node.id}")
            try:
                answer = await self.ask(service, call, own)
            except CallFailed as error:
                attempt.outcome, attempt.message, attempt.cost = error.word, str(error), error.cost
                attempt.ended = self.clock() - self.began
                self.pay(error.cost)
                self.report("again", step)
                raise
            attempt.outcome, attempt.cost, attempt.ended = "answered", answer.cost, self.clock() - self.began
            self.pay(answer.cost)
            return answer

    async def ask(self, service: CallableService, call: ServiceCall, seconds: float | None) -> ServiceAnswer:
        try:
            async with asyncio.timeout(seconds) as timeout:
                data = await service.ask(call)
        except TimeoutError:
            if not timeout.expired():
                raise Broken("the service reported a time-out of its own") from None
            raise TimedOut(f"took longer than the {seconds:g} s that the step declared") from None
        return await self.in_thread(len(data), lambda: answers.read(data, service.max_cost))

    async def request(self, node: PlanStep) -> bytes:
        """The request of a step, with the referenced data filled in. Raises Denied for data that does not exist."""
        size = sum(self.steps[ref.step].output_bytes for ref, _ in find_refs(node.params) if ref.step != TASK)
        try:
            params = await self.in_thread(size, lambda: fill_refs(node.params, self.outputs.__getitem__, limits.REQUEST_BYTES))
        except (LookupError, TooLarge) as error:
            raise Denied(str(error.args[0])) from None
        return b'{"action":' + values.dumps(node.action) + b',"params":' + params + b"}"

    async def in_thread(self, size: int, work: Callable[[], T]) -> T:
        """Does work on large data in a thread, so that it does not delay the time-outs of other steps."""
        if size < _LARGE:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self.threads, work)

    def keep(self, step: StepRun, answer: ServiceAnswer) -> None:
        """Stores the answer to a step; raises Denied if all answers together are too large."""
        self.kept += len(answer.data)
        if self.kept > limits.KEPT_BYTES:
            raise Denied(f"all answers to the steps of a plan may have {limits.KEPT_BYTES} bytes together")
        self.outputs[step.id] = answer.output
        step.output_digest, step.output_bytes = values.digest(answer.data), len(answer.data)

    def pay(self, cost: int) -> None:
        self.spent += cost
        if self.spent > self.bounds.budget and not self.stopped:
            self.stopped = "budget"
            self.ended.put_nowait("")

    def end(self, trouble: InfrastructureError) -> None:
        """Ends the run without a result, because of an infrastructure error."""
        self.trouble = self.trouble or trouble
        self.ended.put_nowait("")

    def probe(self, service: str) -> None:
        """Starts a call of a service's health action, unless one is in progress."""
        known = self.probes.get(service)
        if known is None or known.done():
            self.probes[service] = asyncio.create_task(self.health(service))

    async def health(self, name: str) -> None:
        """Finds out whether a service is broken."""
        service = self.services[name]
        request = values.dumps({"action": service.health, "params": {}})
        try:
            async with asyncio.timeout(service.health_seconds):
                answers.read(
                    await service.ask(ServiceCall(request, service.health_seconds, step=f"{self.name}/health")), service.max_cost
                )
        except TimeoutError:
            self.blame(f"{name} did not answer its health action within {service.health_seconds:g} s")
        except CallFailed as error:
            self.blame(f"{name} does not answer its health action: {error}")
        except InfrastructureError as error:
            self.end(error)

    def blame(self, why: str) -> None:
        self.broken = self.broken or why
        self.ended.put_nowait("")

    async def wait_for_probes(self) -> None:
        """Waits for the health actions, until shortly after the latency bound."""
        if self.probes and not self.decided:
            left = max(0.0, self.until - asyncio.get_running_loop().time()) + limits.GRACE
            _, late = await asyncio.wait(self.probes.values(), timeout=left)
            for name, probe in self.probes.items():
                if probe in late:
                    self.blame(f"{name} did not answer its health action in time")
        await _cancel(self.probes.values())

    @property
    def decided(self) -> bool:
        """Whether no further answer of a service could change the result."""
        return bool(self.broken or self.trouble is not None)

    def report(self, kind: MomentKind, step: StepRun) -> None:
        self.on_moment(Moment(kind, step, self.clock() - self.began, self.spent))

    def result(self) -> PlanRun:
        for step in self.steps.values():
            if step.state == "going":
                step.state = "given-up"
            for attempt in step.attempts:
                if attempt.ended is None:
                    attempt.outcome, attempt.ended = "given-up", self.last - self.began
        return PlanRun(
            steps=tuple(self.steps.values()),
            outputs={name: value for name, value in self.outputs.items() if name != TASK},
            cost=self.spent,
            nanoseconds=self.last - self.began,
            stopped=self.stopped,
            broken=self.broken,
        )


async def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancels tasks, and waits until they have ended."""
    left = set(tasks)
    for task in left:
        task.cancel()
    if left:
        for task in (await asyncio.wait(left))[0]:
            if not task.cancelled():
                task.exception()  # otherwise asyncio warns that nobody retrieved it
