"""Carrying out a plan: steps whose inputs are ready run at the same time, within the task's budget and latency. SPEC 2.2.

- A step begins when all that it needs is done. One that fails takes with it those that need it; the others go on.
- Each attempt has the time that the step declares, and never more than the task has left. A failed attempt is made again as
  often as the plan declares, and not once more; a lie about cost is not worth a second attempt.
- What services say is what it cost, of attempts that failed too. Above the budget the run stops: what was done counts, what was
  under way is given up, and costs nothing. At the latency bound it stops likewise.
- When a service, and not the plan, made a step fail, or the latency bound found it waiting, the service is asked for its health.
  If that fails, the service is broken, and the task counts for nobody. If it answers, the step has failed by itself. What no plan
  could have caused (a cost that is none, a reply in another form) needs no such question: the service is broken.
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
from assay.judge.sandbox import Trouble
from assay.judge.workflow import call as answers
from assay.judge.workflow import limits, values
from assay.judge.workflow.call import Broken, CallableService, CallFailed, Denied, ServiceAnswer, ServiceCall
from assay.judge.workflow.plan import TASK, Plan, PlanStep, TooLarge, fill_refs, find_refs
from assay.judge.workflow.record import Moment, MomentKind, PlanRun, StepAttempt, StepRun, TimedOut

__all__ = ["RunBounds", "execute"]

T = TypeVar("T")
StopCause = Literal["", "budget", "latency"]
_LARGE = 64_000
"""Bytes of data that are taken apart beside the loop rather than in it."""


@dataclass(frozen=True)
class RunBounds:
    """What a task gives a run."""

    budget: int
    """Nanos of money."""
    nanoseconds: int


class _RunEnded(Exception):
    """The run has come to its end before its last step."""


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
    """Carries out a plan that was checked, and says how it went; raises Trouble for what is ours, and only that.

    given: the task's input. name: of this run, which tells its steps from those of others. clock: nanoseconds.
    """
    run = _PlanExecution(plan, bounds, services, given, name, on_moment, clock)
    try:
        return await run.carry_out()
    finally:
        await _given_up([*run.going.values(), *run.probes.values()])
        run.threads.shutdown(wait=False, cancel_futures=True)


@dataclass
class _PlanExecution:
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
        self.trouble: Trouble | None = None
        self.ended: asyncio.Queue[str] = asyncio.Queue()
        self.going: dict[str, asyncio.Task[None]] = {}
        self.probes: dict[str, asyncio.Task[None]] = {}
        self.gates = {name: asyncio.Semaphore(one.parallel) for name, one in self.services.items()}
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
        await _given_up(self.going.values())
        if self.stopped == "latency":
            for name in waiting:
                self.probe(self.steps[name].service)
        await self.hear_probes()
        if self.trouble is not None:
            raise self.trouble
        return self.result()

    async def follow(self) -> None:
        """Starts what is ready, and waits for what ends, until nothing is going on any more."""
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
        """Whether the run need not go on."""
        return bool(self.stopped) or self.over_for_good

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
            self.tell("completed", step)
        except CallFailed as error:
            step.state, step.message = "failed", str(error)
            self.tell("failed", step)
            if error.own:
                self.blame(f"{node.service} does not keep to the form of an answer: {error}")
            elif step.attempts and step.attempts[-1].outcome not in ("answered", "denied"):
                self.probe(node.service)
        except Trouble as error:
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
            self.tell("began", step)
            left = self.until - asyncio.get_running_loop().time()
            own = None if seconds is None or seconds >= left else seconds  # what could not end before the run does has no end
            call = ServiceCall(request, left if own is None else own, attempt.number, f"{self.name}/{node.id}")
            try:
                found = await self.ask(service, call, own)
            except CallFailed as error:
                attempt.outcome, attempt.message, attempt.cost = error.word, str(error), error.cost
                attempt.ended = self.clock() - self.began
                self.pay(error.cost)
                self.tell("again", step)
                raise
            attempt.outcome, attempt.cost, attempt.ended = "answered", found.cost, self.clock() - self.began
            self.pay(found.cost)
            return found

    async def ask(self, service: CallableService, call: ServiceCall, seconds: float | None) -> ServiceAnswer:
        try:
            async with asyncio.timeout(seconds) as timeout:
                data = await service.ask(call)
        except TimeoutError:
            if not timeout.expired():
                raise Broken("the service ran out of time by itself") from None
            raise TimedOut(f"took longer than the {seconds:g} s that it declared") from None
        return await self.beside(len(data), lambda: answers.read(data, service.max_cost))

    async def request(self, node: PlanStep) -> bytes:
        """What a step sends, with the data that it refers to in place. Raises Denied for data that is not there."""
        size = sum(self.steps[ref.step].output_bytes for ref, _ in find_refs(node.params) if ref.step != TASK)
        try:
            params = await self.beside(size, lambda: fill_refs(node.params, self.outputs.__getitem__, limits.REQUEST_BYTES))
        except (LookupError, TooLarge) as error:
            raise Denied(str(error.args[0])) from None
        return b'{"action":' + values.dumps(node.action) + b',"params":' + params + b"}"

    async def beside(self, size: int, work: Callable[[], T]) -> T:
        """Does what takes long beside the loop, so that nobody's time-out waits for it."""
        if size < _LARGE:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self.threads, work)

    def keep(self, step: StepRun, found: ServiceAnswer) -> None:
        """Remembers what a step answered; raises Denied if the run has too much to remember."""
        self.kept += len(found.data)
        if self.kept > limits.KEPT_BYTES:
            raise Denied(f"the steps of a plan may answer {limits.KEPT_BYTES} bytes in all")
        self.outputs[step.id] = found.output
        step.output_digest, step.output_bytes = values.digest(found.data), len(found.data)

    def pay(self, cost: int) -> None:
        self.spent += cost
        if self.spent > self.bounds.budget and not self.stopped:
            self.stopped = "budget"
            self.ended.put_nowait("")

    def end(self, trouble: Trouble) -> None:
        """Something of ours broke: there is no result."""
        self.trouble = self.trouble or trouble
        self.ended.put_nowait("")

    def probe(self, service: str) -> None:
        """Asks a service for its health, once at a time."""
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
        except Trouble as error:
            self.end(error)

    def blame(self, why: str) -> None:
        self.broken = self.broken or why
        self.ended.put_nowait("")

    async def hear_probes(self) -> None:
        """Waits for what services say of their health, hardly longer than the run itself may take."""
        if self.probes and not self.over_for_good:
            left = max(0.0, self.until - asyncio.get_running_loop().time()) + limits.GRACE
            _, late = await asyncio.wait(self.probes.values(), timeout=left)
            for name, probe in self.probes.items():
                if probe in late:
                    self.blame(f"{name} did not answer its health action in time")
        await _given_up(self.probes.values())

    @property
    def over_for_good(self) -> bool:
        """Whether nothing that a service says could change the result."""
        return bool(self.broken or self.trouble is not None)

    def tell(self, kind: MomentKind, step: StepRun) -> None:
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


async def _given_up(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancels what is going on, and waits until it is gone."""
    left = set(tasks)
    for task in left:
        task.cancel()
    if left:
        for task in (await asyncio.wait(left))[0]:
            if not task.cancelled():
                task.exception()  # it was seen
