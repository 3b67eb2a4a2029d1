"""What an engine decides without a cluster: what it asks of nodes, how much is under way, what it repeats, and what it keeps."""

from __future__ import annotations

import heapq
import itertools
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay import engine
from assay.engine import ray_engine
from assay.engine.load import BUSY, LEAST, ErrandLoad
from assay.engine.ray_engine import AHEAD, LOST, Placement, RayCrew, RayNode
from assay.engine.ray_node import Answer, Bucket, Order
from assay.engine.station import Outcome
from assay.errors import BadInput
from assay.judge.stations import Errand, Needs, StationSpec
from ray_kit import folder_of

BIG = RayNode("big", {"CPU": 8.0, "memory": float(16 << 30), "sandbox": 1.0})
SMALL = RayNode("small", {"CPU": 2.0, "memory": float(4 << 30), "sandbox": 1.0})
BARE = RayNode("bare", {"CPU": 32.0, "memory": float(64 << 30)})
TRIAL = Needs(2.0, 2 << 30, 0, sandbox=True)


# What an errand asks for


def test_a_node_takes_what_its_scarcest_resource_allows() -> None:
    assert [node.takes(TRIAL, 2.0) for node in (BIG, SMALL, BARE)] == [4, 1, 0]
    assert [node.takes(TRIAL, 0.1) for node in (BIG, SMALL, BARE)] == [8, 2, 0]  # memory is given away once
    assert [node.takes(Needs(1.0), 1.0) for node in (BIG, SMALL, BARE)] == [8, 2, 32]
    assert RayNode("head", {"CPU": 0.0}).takes(Needs(1.0), 0.0) == 0  # it only coordinates


def test_an_errand_asks_for_what_its_like_used() -> None:
    load = ErrandLoad()
    assert load.cpus("t", TRIAL) == 2.0
    load.saw("t", 0.5)
    assert load.cpus("t", TRIAL) == 0.5
    assert load.cpus("other", TRIAL) == 2.0
    load.saw("t", 3.0)
    assert 0.5 < load.cpus("t", TRIAL) <= 2.0


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 1)), max_size=50))
def test_it_asks_for_something_and_never_for_more_than_is_allowed(seen: list[tuple[float, float]]) -> None:
    load = ErrandLoad()
    for cores, busy in seen:
        load.saw("t", cores, busy)
    assert LEAST <= load.cpus("t", TRIAL) <= TRIAL.cpus


def test_nodes_that_are_full_and_idle_get_more() -> None:
    """A simulation: each errand uses half a core beside what is measured of it. The nodes become busy, and are not crowded."""
    load, busy = ErrandLoad(), 0.0
    for _ in range(400):
        asked = load.cpus("t", TRIAL)
        going = int(8 / asked)
        busy = min(1.0, going * 0.4 / 8)
        load.saw("t", 0.5, busy)
    assert busy >= BUSY - 0.06


def test_a_node_that_other_programs_use_gets_less() -> None:
    """Two nodes: on one, other programs use half of the cores. Each becomes busy by itself, and is not crowded."""
    load = ErrandLoad()
    for _ in range(400):
        for node, others in (("quiet", 0.0), ("shared", 4.0)):
            busy = min(1.0, (others + 0.4 * int(8 / load.cpus("t", TRIAL, node))) / 8)
            load.saw("t", 0.5, busy, node)
    assert load.cpus("t", TRIAL, "quiet") < load.cpus("t", TRIAL, "shared") <= 0.5
    assert load.cpus("t", TRIAL, "new") == 0.5


def test_the_node_that_has_the_parcels_is_preferred_until_it_is_full() -> None:
    placement, rooms = Placement(), {"big": 4, "small": 2, "bare": 0}
    assert placement.choose(rooms, ["task"]) == "big"
    placement.prepared("small", ["task"])
    assert placement.choose(rooms, ["task"]) == "small"
    assert placement.choose(rooms, ["task", "agent"]) == "big"
    placement.prepared("big", ["task"])
    placement.going["big"] += 1
    assert placement.choose(rooms, ["task"]) == "small"
    assert placement.choose(rooms, ["task"], avoid="small") == "big"
    placement.going["small"] += 2
    assert placement.choose({"small": 2, "new": 2}, ["task"]) == "new"
    assert placement.choose({"small": 2}, ["task"], avoid="small") is None


# A crew, with a Ray that does as it is told


class NodeLost(Exception):
    """As Ray tells that a node is gone."""


class TaskFailed(NodeLost):
    """As Ray tells that our own code failed."""

    cause = ValueError("a fault of ours")


class FakeRef(int):
    """A task, and its future, which has ended when somebody asks for its result."""

    ray: FakeRay

    def future(self) -> FakeRef:
        return self

    def add_done_callback(self, call: Callable[[FakeRef], None]) -> None:
        call(self)

    def result(self) -> Any:
        return self.ray.get(self)


class FakeRay:
    """What `RayCrew` uses of Ray. `ends` decides what comes of the next task."""

    exceptions = SimpleNamespace(RayError=NodeLost, RayTaskError=TaskFailed)
    util = SimpleNamespace(scheduling_strategies=SimpleNamespace(NodeAffinitySchedulingStrategy=lambda node, **_: node))

    def __init__(self, nodes: list[RayNode]) -> None:
        self.there, self.under_way, self.options, self.cancelled = nodes, dict[int, Any](), list[dict[str, Any]](), list[int]()
        self.ends: Any = lambda number: Answer("big", Outcome(number))
        self.asked: list[Any] = []
        """Which node each task asked for."""
        self.whole = False
        """Whether `ends` sees all arguments of a task, or only what it is to carry out."""
        self._numbers = itertools.count()

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": node.id, "Resources": node.resources, "Alive": True} for node in self.there]

    def put(self, value: Any) -> Any:
        return value

    def remote(self, **_options: Any) -> Any:
        def submit(*args: Any, asked: Any = None) -> FakeRef:
            self.asked.append(asked)
            number = FakeRef(next(self._numbers))
            number.ray = self
            self.under_way[number] = args
            return number

        def options(**given: Any) -> Any:
            self.options.append(given)
            return SimpleNamespace(remote=partial(submit, asked=given.get("scheduling_strategy")))

        return lambda _what: SimpleNamespace(options=options, remote=lambda *_: None)

    def wait(self, refs: list[int], *, num_returns: int, timeout: float) -> tuple[list[int], list[int]]:
        return refs[:num_returns], refs[num_returns:]

    def get(self, ref: int) -> Any:
        args = self.under_way.pop(ref)
        if not args:
            return self.ends(None)
        outcome = self.ends(args if self.whole else pickle.loads(Order(*pickle.loads(args[0])).payload))
        if isinstance(outcome, Exception):
            raise outcome
        return pickle.dumps(outcome)

    def cancel(self, ref: int, *, force: bool) -> None:
        self.cancelled.append(ref)

    def kill(self, _actor: Any) -> None:
        pass


def crew(ray: FakeRay, most: int | None = None) -> RayCrew:
    return RayCrew(ray, StationSpec("x:y", None), most)


def sent(crew: RayCrew) -> int:
    """How many errands it takes before it has enough."""
    for number in itertools.count():
        if not crew.idle():
            return number
        crew.send(number, Errand(number, 60, TRIAL))
    raise AssertionError


def test_no_more_is_under_way_than_keeps_the_nodes_busy() -> None:
    ray = FakeRay([BIG, SMALL])
    busy = crew(ray)
    assert sent(busy) == AHEAD * 5
    assert not busy.idle()
    assert [heard.reply for heard in busy.hear(0)] == list(range(10))
    assert busy.idle()
    assert sent(crew(ray, most=3)) == 3
    assert ray.options[0]["name"].startswith("gate")
    assert ray.options[1] == {
        "num_cpus": 2.0,
        "num_gpus": 0,
        "memory": 2 << 30,
        "resources": {"sandbox": 0.001},
        "scheduling_strategy": "big",
    }
    assert Counter(ray.asked) == {"big": 8 + 2, "small": 2 + 1, None: 2}


def test_what_a_lost_node_had_goes_elsewhere() -> None:
    ray = FakeRay([BIG, SMALL])
    busy = crew(ray)
    busy.send(1, Errand("x", 60, TRIAL))
    ray.ends = lambda _: Answer("small", Outcome(), lost="its memory was not free on the host")
    assert list(busy.hear(0)) == []
    assert ray.asked[-1] == "big"
    ray.ends = lambda _: NodeLost("gone")
    assert list(busy.hear(0)) == []
    assert ray.asked[-1] == "small"
    ray.ends = lambda _: Answer("small", Outcome("judged"))
    assert [heard.reply for heard in busy.hear(0)] == ["judged"]


def test_what_is_lost_again_and_again_is_an_error_at_last() -> None:
    ray = FakeRay([BIG])
    ray.ends = lambda _: NodeLost("gone")
    busy = crew(ray)
    busy.send(1, Errand("x", 60, TRIAL))
    heard = list(itertools.chain.from_iterable(busy.hear(0) for _ in range(LOST + 1)))
    assert [(end.number, end.final) for end in heard] == [(1, False)]
    assert "lost" in heard[0].trouble


@pytest.mark.parametrize(
    ("ends", "trouble", "final"),
    [
        (Answer("big", Outcome(trouble="no sandbox here")), "no sandbox here", False),
        (Answer("big", Outcome(trouble="the task is broken", final=True)), "the task is broken", True),
        (TaskFailed(), "a fault of ours", False),
    ],
)
def test_an_error_of_the_judge_goes_back_to_the_run(ends: Any, trouble: str, final: bool) -> None:
    ray = FakeRay([BIG])
    ray.ends = lambda _: ends
    busy = crew(ray)
    busy.send(1, Errand("x", 60, TRIAL))
    (heard,) = busy.hear(0)
    assert trouble in heard.trouble
    assert heard.final is final


def test_an_errand_waits_for_a_node_that_can_take_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(ray_engine, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=lambda _: None))
    ray = FakeRay([BARE])
    busy = crew(ray)
    busy.send(1, Errand("x", 60, TRIAL))
    assert list(busy.hear(0)) == []
    now[0] += 10
    ray.there = [BARE, BIG]
    assert [heard.reply for heard in busy.hear(0)] == ["x"]
    ray.there = [BARE]
    now[0] += 10
    busy.send(2, Errand("x", 60, TRIAL))
    now[0] += ray_engine.NODELESS + 1
    (heard,) = busy.hear(0)
    assert "sandbox" in heard.trouble


def test_a_parcel_is_sent_to_a_node_that_lacks_it(tmp_path: Path) -> None:
    ray = FakeRay([BIG])
    busy, parcel = crew(ray), folder_of(tmp_path / "task")
    enclosed = list[bool]()

    def ends(args: Any) -> Answer:
        enclosed.append(list(args[2]) == [parcel.digest])
        return Answer("big", Outcome("judged")) if enclosed != [True, False] else Answer("big", Outcome(), lacks=True)

    ray.whole, ray.ends = True, ends
    for number in (1, 2, 3):
        busy.send(number, Errand("x", 60, TRIAL, {"task": parcel}))
        heard = list(busy.hear(0)) or list(busy.hear(0))
        assert [end.number for end in heard] == [number]
    assert enclosed == [True, False, True, False]


def test_an_end_cancels_what_is_under_way_and_clears_the_nodes() -> None:
    ray = FakeRay([BIG, BARE])
    busy = crew(ray)
    count = sent(busy)
    ray.ends = lambda _: 3
    busy.close(now=False)
    assert len(ray.cancelled) == count
    assert ray.asked[-2:] == ["big", "bare"]
    assert list(busy.remarks()) == ["Nodes removed 6 processes and folders that killed runs had left."]


def test_an_end_at_once_clears_nothing() -> None:
    busy = crew(FakeRay([BIG]))
    busy.close(now=True)
    assert list(busy.remarks()) == []


def test_what_a_station_cleared_is_said() -> None:
    ray = FakeRay([BIG])
    busy = crew(ray)
    busy.send(1, Errand("x", 60, TRIAL))
    ray.ends = lambda _: Answer("big", Outcome("judged", cleared=1))
    assert [heard.reply for heard in busy.hear(0)] == ["judged"]
    assert list(busy.remarks()) == ["Nodes removed 1 process or folder that killed runs had left."]


# The bucket of a service


def test_one_bucket_holds_the_rate_and_the_pause() -> None:
    now = [100.0]
    bucket = Bucket(120, lambda: now[0])
    assert [bucket.turn().seconds for _ in range(4)] == [0.0, 0.0, 0.5, 1.0]
    third, fourth = bucket.turn(), bucket.turn()
    assert (third.seconds, fourth.seconds) == (1.5, 2.0)
    now[0] += 1.5
    assert bucket.turn(third.ticket).seconds == 0.0
    bucket.pause(7.0)
    bucket.pause(3.0)  # it is over before the other one
    assert bucket.turn(fourth.ticket).seconds == 7.5  # a pause moves all, in their order
    assert bucket.turn(third.ticket).seconds == 7.0  # it was due, and had not gone yet
    assert bucket.turn().seconds == 8.0
    free = Bucket(None, lambda: now[0])
    assert (free.turn().seconds, free.turn().seconds) == (0.0, 0.0)
    free.pause(7.0)
    assert (free.turn().seconds, free.turn().seconds) == (7.0, 7.0)
    with pytest.raises(BadInput, match="0 is not a number"):
        Bucket(0)


def test_a_ticket_of_a_bucket_that_was_lost_is_none() -> None:
    lost, anew = Bucket(60, lambda: 1e9), Bucket(60, lambda: 5.0)
    lost.turn()
    ticket = lost.turn().ticket
    assert anew.turn(ticket).seconds == 0.0


@given(st.integers(1, 600), st.lists(st.tuples(st.floats(0, 5), st.integers(0, 20), st.floats(0, 9)), max_size=40))
def test_a_bucket_gives_its_rate_and_never_more(rate: int, steps: list[tuple[float, int, float]]) -> None:
    """Requests come in crowds, and the service asks for pauses. Each asks again when its turn comes."""
    now, gone, waiting, end = [0.0], list[float](), list[tuple[float, int, Any]](), 0.0
    bucket, numbers = Bucket(rate, lambda: now[0]), itertools.count()

    def ask(ticket: Any = None) -> None:
        turn = bucket.turn(ticket)
        if turn.seconds <= 1e-9:
            assert now[0] >= end - 1e-6
            gone.append(now[0])
        else:
            heapq.heappush(waiting, (now[0] + turn.seconds, next(numbers), turn.ticket))

    for pause, crowd, quiet in [*steps, (1e9, 0, 0.0)]:
        until_then = now[0] + pause
        while waiting and waiting[0][0] <= until_then:
            now[0], _, ticket = heapq.heappop(waiting)
            ask(ticket)
        now[0] = until_then
        for _ in range(crowd):
            ask()
        if quiet:
            bucket.pause(quiet)
            end = max(end, now[0] + quiet)
    assert len(gone) == sum(crowd for _, crowd, _ in steps)
    burst = max(1.0, rate / 60)
    for count, (first, last) in ((n, pair) for n in (1, 2, 10, 50) for pair in zip(gone, gone[n:], strict=False)):
        assert count + 1 <= burst + (last - first) * rate / 60 + 1e-3


# The entrance


def test_an_engine_by_name() -> None:
    with engine.opened() as here:
        assert here is None
    with pytest.raises(BadInput, match="did you mean 'ray'"), engine.opened("rai"):
        pass
    with pytest.raises(BadInput, match="of a Ray cluster"), engine.opened("local", "127.0.0.1:1"):
        pass


def test_an_error_of_a_driver_is_shown_where_its_cluster_is_gone() -> None:
    """Ray's own hook asks the cluster before it shows an error: where that is gone, it ends without it."""
    program = """
import contextlib, sys
from assay.engine.ray_engine import connected
from assay.errors import BadInput

with contextlib.suppress(BadInput):
    connected("nowhere")
print("ray" in sys.modules, sys.excepthook is sys.__excepthook__)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=600)
    assert ended.stdout == "True True\n"
