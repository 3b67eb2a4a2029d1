"""Errands as Ray tasks: placed by what they need, bounded in flight, carried out elsewhere if their node is lost.

- A task asks Ray for cores, memory, GPUs and, if untrusted programs run in it, for a node that has the custom resource `sandbox`.
- At most `AHEAD` times as many errands are under way as the cluster can carry out at one time; the others are not made yet.
- An errand goes to a node that has its parcels (task set, submission) unless that is full; then to the one with the most room.
  If that node turns out to have none, Ray finds another.
- Causes: a node, a worker or an object is lost, so the errand goes elsewhere, at most `LOST` times; an error of the judge goes
  back to the run, which tries again as it does locally; whatever has a result is never repeated.
- An end is a cancelled task: its station gives up and clears up before the task is over. Then each node removes what killed runs
  left on it.

Ray is asked for nothing else: retries of its own are off, since only the run knows what may be repeated.
"""

from __future__ import annotations

import math
import os
import pickle
import queue
import secrets
import sys
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import assay
from assay.engine import ray_node
from assay.engine.load import ErrandLoad
from assay.errors import BadInput, Unreachable
from assay.judge.stations import Errand, Heard, Needs, Parcel, StationSpec, pack
from assay.settle.story.telling import plural

__all__ = ["Placement", "RayEngine", "RayNode", "connected"]

AHEAD = 2
LOST = 20
"""Times that one errand may be lost before it is an error."""
PATIENCE = 120.0
"""Seconds that cancelled errands have to clear up, and then nodes to remove what killed runs left."""
SANDBOX = "sandbox"
_SHARE = 0.001
"""Of the resource `sandbox`: it says that a node can hold boxes, and not how many."""
NODELESS = 60.0
"""Seconds that an errand waits for a node that has what it needs: one that was lost may come back."""
_INLINE = 65_536
"""Bytes up to which a station's settings travel with each errand, and not by way of Ray's object store."""
_TASKS = 10_000
_PARCELS = 256
"""Parcels that the driver keeps in Ray's object store at a time."""
_LOOK = 2.0
"""Seconds between two looks at which nodes there are."""
_RAY = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}


@dataclass(frozen=True)
class RayNode:
    """A node of the cluster, and what it has in all."""

    id: str
    resources: Mapping[str, float]

    def takes(self, needs: Needs, cpus: float) -> int:
        """The number of such errands that it can carry out at one time."""
        if cpus <= 0:  # a node that only coordinates
            return 0
        asked = _resources(needs, cpus)
        return min((math.floor(self.resources.get(name, 0.0) / amount + 1e-9) for name, amount in asked.items()), default=0)


def _resources(needs: Needs, cpus: float) -> dict[str, float]:
    """The resources that an errand asks of a node, by Ray's names."""
    asked = {"CPU": cpus, "memory": float(needs.memory), "GPU": float(needs.gpus), SANDBOX: _SHARE if needs.sandbox else 0.0}
    return {name: amount for name, amount in asked.items() if amount}


class Placement:
    """The choice of a node for an errand: of those that have its parcels, or else of all, the one with the most room."""

    def __init__(self) -> None:
        self._has: dict[str, set[str]] = defaultdict(set)
        self.going = Counter[str]()
        """Errands by the node for which they were meant."""

    def prepared(self, node: str, digests: list[str]) -> None:
        """Note that a node has these parcels now."""
        for digest in digests:
            self._has[digest].add(node)

    def lacks(self, node: str, digests: list[str]) -> None:
        """Note that a node does not have all of these parcels."""
        for digest in digests:
            self._has[digest].discard(node)

    def has(self, node: str | None, digest: str) -> bool:
        """Whether a node has a parcel, as far as is known."""
        return node in self._has[digest]

    def choose(self, rooms: Mapping[str, int], digests: list[str], avoid: str = "") -> str | None:
        """The node; None if there is none. rooms: node → how many such errands it takes. avoid: where the errand was lost."""
        able = [node for node, room in rooms.items() if room and node != avoid]
        ready = [node for node in able if self.going[node] < rooms[node] and all(node in self._has[digest] for digest in digests)]
        return min(ready or able, key=lambda node: (self.going[node] / rooms[node], node), default=None)


@dataclass
class _SentErrand:
    """An errand under way."""

    number: int
    errand: Errand
    key: str
    node: str | None = None
    lost: int = 0
    whole: bool = False
    """Whether all parcels travel with it: it came to a node that did not have them."""
    avoid: str = ""
    """The node where it was lost last."""
    until: float = 0.0
    """The end of its wait for a node that could take it, by the monotonic clock."""


def connected(address: str | None) -> Any:
    """The module ray, connected to a cluster; `shutdown` ends that. See `RayEngine` for what it raises."""
    for name, value in _RAY.items():
        os.environ.setdefault(name, value)
    hook = sys.excepthook
    try:
        import ray
    except ImportError:
        raise BadInput("working on many machines needs the Python package ray", hint="pip install 'assay[ray]'") from None
    sys.excepthook = hook  # Ray's own asks the cluster first: where that is gone, it ends the process and shows no error
    where = address or os.environ.get("RAY_ADDRESS") or "auto"
    hint = f"""start a node first: ray start --head --resources='{{"{SANDBOX}": 1}}'; then name it: --address HOST:PORT"""
    try:
        ray.init(address=where, namespace="assay", log_to_driver=False, configure_logging=False)
    except ConnectionError as error:
        raise Unreachable(f"there is no Ray cluster at {where}: {str(error)[:200]}", hint=hint) from None
    except (ValueError, RuntimeError) as error:
        raise BadInput(f"{where[:80]!r}: {str(error)[:300]}", field="--address", hint=hint) from None
    ray._private.worker._worker_logs_enabled = False  # Ray prints news of its nodes to stdout, where --json writes
    return ray


class RayEngine:
    """A `stations.ErrandEngine` on a Ray cluster. It must be closed."""

    def __init__(self, address: str | None = None, most: int | None = None) -> None:
        """Raises BadInput where Ray is not installed or no cluster is, and Unreachable where one does not answer."""
        self._ray, self._most = connected(address), most
        self._crews = 0

    def crew(self, spec: StationSpec) -> RayCrew:
        """See `stations.ErrandEngine.crew`."""
        self._crews += 1
        return RayCrew(self._ray, spec, self._most)

    def close(self) -> None:
        """Leave the cluster. Stations of this driver end by themselves."""
        with suppress(self._ray.exceptions.RayError):
            if not self._crews:  # nothing was to be judged; what killed runs left goes all the same
                _cleared(self._ray)
        self._ray.shutdown()


def _cleared(ray: Any) -> int:
    """Have each node remove what killed runs left on its machine; how many processes and folders that were. Raises RayError."""
    affinity, count = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy, 0
    task = ray.remote(num_cpus=0, max_retries=0)(ray_node.clear)
    alive = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    refs = [task.options(scheduling_strategy=affinity(name, soft=False)).remote() for name in alive]
    for ref in ray.wait(refs, num_returns=len(refs), timeout=PATIENCE)[0] if refs else ():
        with suppress(ray.exceptions.RayError):  # the node was lost just now, or its folders cannot be written
            count += ray.get(ref)
    return count


class RayCrew:
    """A `stations.Crew` of Ray tasks."""

    def __init__(self, ray: Any, spec: StationSpec, most: int | None) -> None:
        self._ray, self._most = ray, most
        data = pickle.dumps(spec)
        self._spec = data if len(data) <= _INLINE else ray.put(data)
        self._run = secrets.token_hex(8)
        self._task = ray.remote(max_retries=0)(ray_node.carry_out)
        self._tasks: dict[tuple[Needs, float, str | None], Any] = {}
        self._gate: Any = None
        if spec.asks:
            bucket = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(ray_node.Bucket)
            self._gate = bucket.options(name=ray_node.gate_of(self._run)).remote(spec.rate)
        self._parcels: OrderedDict[str, Any] = OrderedDict()
        self._going: dict[Any, _SentErrand] = {}
        self._over: queue.SimpleQueue[tuple[Any, Future[bytes]]] = queue.SimpleQueue()
        """Tasks that have ended, as Ray tells them."""
        self._homeless: list[_SentErrand] = []
        """Errands that no node could take now."""
        self._load, self._placement = ErrandLoad(), Placement()
        self._nodes: dict[str, RayNode] = {}
        self._looked = -math.inf
        self._last = "", Needs()
        """The task of the last errand, and what it asked for: the next is taken to ask for the same."""
        self._rooms: dict[tuple[str, Needs], dict[str, int]] = {}
        self._cleared = 0

    def idle(self) -> bool:
        """See `stations.Crew.idle`."""
        bound = AHEAD * max(1, self._slots())
        return len(self._going) + len(self._homeless) < (bound if self._most is None else min(self._most, bound))

    def send(self, number: int, errand: Errand) -> None:
        """See `stations.Crew.send`."""
        task = errand.parcels.get("task")
        self._place(_SentErrand(number, errand, "" if task is None else task.digest))

    def _room(self, key: str, needs: Needs) -> dict[str, int]:
        """Node → how many such errands it takes at one time, as it was when somebody last looked at which nodes there are."""
        nodes = self._there()
        if (key, needs) not in self._rooms:
            self._rooms[key, needs] = {name: node.takes(needs, self._cpus(key, needs, node)) for name, node in nodes.items()}
        return self._rooms[key, needs]

    def _cpus(self, key: str, needs: Needs, node: RayNode) -> float:
        """Cores that an errand asks of a node, which may have fewer than the task allows."""
        return min(self._load.cpus(key, needs, node.id), node.resources.get("CPU", 0.0))

    def _slots(self) -> int:
        """The number of errands like the last that all nodes together take at one time."""
        return sum(self._room(*self._last).values())

    def _place(self, sent: _SentErrand) -> None:
        if any(self._room(sent.key, sent.errand.needs).values()):
            self._begin(sent)
        else:
            sent.until = time.monotonic() + NODELESS
            self._homeless.append(sent)

    def _housed(self) -> Iterator[Heard]:
        """Begin the errands that waited for a node and have one now; those that waited for too long are trouble."""
        waiting, self._homeless = self._homeless, []
        for sent in waiting:
            if any(self._room(sent.key, sent.errand.needs).values()):
                self._begin(sent)
            elif time.monotonic() > sent.until:
                yield Heard(sent.number, trouble=self._impossible(sent.errand.needs))
            else:
                self._homeless.append(sent)

    def _begin(self, sent: _SentErrand) -> None:
        errand, needs = sent.errand, sent.errand.needs
        self._last, rooms = (sent.key, needs), self._room(sent.key, needs)
        digests = [parcel.digest for parcel in errand.parcels.values()]
        sent.node = self._placement.choose(rooms, digests, sent.avoid)
        cpus = self._cpus(sent.key, needs, self._nodes[sent.node or sent.avoid])
        if sent.node is not None:
            self._placement.going[sent.node] += 1
        parcels = {name: parcel.digest for name, parcel in errand.parcels.items()}
        order = ray_node.Order(assay.__version__, self._run, pickle.dumps(errand.payload), parcels, errand.seconds, needs.memory)
        ref = self._asking(needs, cpus, sent.node).remote(pickle.dumps(tuple(order)), self._spec, self._archives(sent))
        self._going[ref] = sent
        ref.future().add_done_callback(lambda done: self._over.put((ref, done)))

    def _asking(self, needs: Needs, cpus: float, node: str | None) -> Any:
        """The task, asking for this, at best of this node. It is kept, as making it takes as long as sending an errand."""
        task = self._tasks.get((needs, cpus, node))
        if task is None:
            options: dict[str, Any] = {"num_cpus": cpus, "num_gpus": needs.gpus}
            if needs.memory:
                options["memory"] = needs.memory
            if needs.sandbox:
                options["resources"] = {SANDBOX: _SHARE}
            if node is not None:
                affinity = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
                options["scheduling_strategy"] = affinity(node, soft=True, _spill_on_unavailable=True)
            if len(self._tasks) >= _TASKS:
                self._tasks.clear()
            task = self._tasks[needs, cpus, node] = self._task.options(**options)
        return task

    def _archives(self, sent: _SentErrand) -> dict[str, Any]:
        """Digest → where a parcel's archive is, of those that the node may not have."""
        parcels = sent.errand.parcels.values()
        lacking = [parcel for parcel in parcels if sent.whole or not self._placement.has(sent.node, parcel.digest)]
        return {parcel.digest: self._shipped(parcel) for parcel in lacking}

    def _shipped(self, parcel: Parcel) -> Any:
        """The reference to a parcel's archive in Ray's object store. Errands under way hold theirs; others may be forgotten."""
        ref = self._parcels.pop(parcel.digest, None)
        if ref is None:
            ref = self._ray.put(pack(parcel.folder))
        self._parcels[parcel.digest] = ref
        if len(self._parcels) > _PARCELS:
            self._parcels.popitem(last=False)
        return ref

    def hear(self, seconds: float) -> Iterator[Heard]:
        """See `stations.Crew.hear`."""
        yield from self._housed()
        with suppress(queue.Empty):
            over = [self._over.get(timeout=seconds)]
            over += [self._over.get() for _ in range(self._over.qsize())]
            for ref, done in over:
                sent = self._going.pop(ref)
                if sent.node is not None:
                    self._placement.going[sent.node] -= 1
                heard = self._ended(sent, done)
                if heard is not None:
                    yield heard

    def _ended(self, sent: _SentErrand, done: Future[bytes]) -> Heard | None:
        """The result of an errand that ended; None if it is sent once more."""
        errors = self._ray.exceptions
        try:
            answer: ray_node.Answer = pickle.loads(done.result())
        except errors.RayTaskError as error:  # our own code failed there
            return Heard(sent.number, trouble=f"a node failed: {str(error.cause or error)[:500]}")
        except errors.RayError as error:
            return self._again(sent, f"{type(error).__name__}: the node or its worker was lost", sent.node or "")
        digests = [parcel.digest for parcel in sent.errand.parcels.values()]
        if answer.lacks:
            sent.whole = True
            self._placement.lacks(answer.node, digests)
            self._place(sent)
            return None
        if answer.lost:
            return self._again(sent, answer.lost, answer.node)
        self._placement.prepared(answer.node, digests)
        outcome = answer.outcome
        self._cleared += outcome.cleared
        if not outcome.trouble:
            self._load.saw(sent.key, outcome.cores, answer.busy if self._full else None, answer.node)
        return Heard(sent.number, outcome.reply, outcome.files, outcome.trouble, outcome.final)

    def _again(self, sent: _SentErrand, why: str, node: str) -> Heard | None:
        sent.lost, sent.avoid = sent.lost + 1, node
        if sent.lost > LOST:
            return Heard(sent.number, trouble=f"it was lost {sent.lost} times, at last: {why}")
        self._looked = -math.inf
        self._place(sent)
        return None

    @property
    def _full(self) -> bool:
        """Whether there is more to do than the nodes carry out at one time."""
        return len(self._going) >= self._slots()

    def _there(self) -> dict[str, RayNode]:
        """The nodes that live, by id, as they were just now."""
        if time.monotonic() - self._looked > _LOOK:
            alive = [node for node in self._ray.nodes() if node["Alive"]]
            self._nodes = {node["NodeID"]: RayNode(node["NodeID"], node["Resources"]) for node in alive}
            self._looked = time.monotonic()
            self._rooms.clear()
        return self._nodes

    def _impossible(self, needs: Needs) -> str:
        if needs.sandbox and not any(SANDBOX in node.resources for node in self._nodes.values()):
            return f"""no node can hold a sandbox: start some with ray start … --resources='{{"{SANDBOX}": 1}}'"""
        asked = ", ".join(f"{name} {amount:g}" for name, amount in _resources(needs, min(needs.cpus, 1.0)).items())
        return f"no node of the Ray cluster has what this needs at one time: {asked}"

    def close(self, *, now: bool) -> None:
        """See `stations.Crew.close`."""
        errors = self._ray.exceptions
        for ref in self._going:
            with suppress(errors.RayError, ValueError):
                self._ray.cancel(ref, force=now)
        if self._going and not now:
            with suppress(errors.RayError):
                self._ray.wait(list(self._going), num_returns=len(self._going), timeout=PATIENCE)
        self._going.clear()
        self._parcels.clear()
        with suppress(errors.RayError):
            self._cleared += 0 if now else _cleared(self._ray)
            if self._gate is not None:
                self._ray.kill(self._gate)

    def remarks(self) -> Iterator[str]:
        """See `stations.Crew.remarks`."""
        if self._cleared:
            what = plural(self._cleared, "process or folder", "processes and folders")
            yield f"Nodes removed {what} that killed runs had left."
