"""Workers that set weights until they are killed, and what must be known afterwards. `crash_kit.Warm` forks them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import stepping
import weights_kit as kit
from assay.publish import publishers, rpc
from assay.publish.bittensor import extrinsics, runtime
from assay.publish.bittensor.extrinsics import BittensorAttempt
from assay.publish.bittensor.node import BittensorNode
from assay.publish.bittensor.publisher import open_publisher
from assay.publish.outcome import Outcome, Sent, document
from assay.publish.publishers import PublishPlan
from assay.publish.rpc import RpcError
from assay.publish.sender import SystemClock, under_way

__all__ = ["finish", "imports", "publish", "steps_of"]


def imports() -> None:
    """Import what is imported late."""
    runtime.core()
    rpc.connector()
    with tempfile.TemporaryDirectory() as place:
        kit.planned(kit.publish_toml(kit.competition(Path(place) / "c"), None))


def publish(place: str, plan: dict[str, Any], last_step: int | None) -> dict[str, Any]:
    """Publish; at step `last_step` killed."""
    if last_step is not None:
        stepping.die_at(last_step)
    outcome = _send(place, plan)
    stepping.go_on()
    return document(outcome)


def steps_of(place: str, plan: dict[str, Any]) -> int:
    """How many steps it takes."""
    return stepping.count(lambda: _send(place, plan))


def finish(place: str, plan: dict[str, Any], before: int) -> str:
    """What a killed worker left is what the journal says; seen through, it is there, once. How far it was: the last state."""
    entries = publishers.read_target(Path(place), "sn").journal().entries
    last = str(entries[-1]["state"]) if entries else "nothing"
    node, account = _node(place), kit.hotkey("//Val")
    ours = BittensorAttempt.read(entries)
    used, waiting = node.nonce(account) - before, node.pending()
    # Whatever the hotkey has sent stands in the journal; and nothing that stands there is there twice.
    assert len(ours) <= 1
    assert used + len(waiting) <= len(ours)
    assert all(raw == ours[0].signed.raw for raw in waiting)
    if used:
        assert extrinsics.find(node, ours[0].signed, node.head()) is not None
    if ours and ours[0].state == "confirmed":
        assert used == 1

    outcome = _send(place, plan)
    assert outcome.state == "confirmed", outcome
    assert node.nonce(account) - before == 1
    assert node.pending() == []
    (attempt,) = BittensorAttempt.read(publishers.read_target(Path(place), "sn").journal().entries)
    assert attempt.state == "confirmed"
    assert under_way([attempt]) is None
    assert extrinsics.holds(node, attempt, node.finalized())
    return last


def _send(place: str, plan: dict[str, Any]) -> Outcome:
    """Publish, and of a commitment wait until the chain has opened it."""
    node = _node(place)

    def wait(_: float) -> None:
        _blocks(node, 1)

    clock = SystemClock(poll=0, sleep=wait, wall=lambda: node.query("Timestamp", "Now") / 1000)
    publisher = open_publisher(publishers.read_target(Path(place), "sn"), clock=clock)
    whole = PublishPlan(**plan | {"lines": (), "left_out": ()})
    outcome = publisher.send(whole, lambda _: None)
    while isinstance(outcome, Sent) and outcome.opens is not None:
        _blocks(node, 5)
        outcome = publisher.send(whole, lambda _: None)
    return outcome


def _node(place: str) -> BittensorNode:
    return BittensorNode(str(publishers.read_target(Path(place), "sn").fields["url"]))


def _blocks(node: BittensorNode, count: int) -> None:
    """Make blocks: on the simulated node, or on a real runtime under chopsticks."""
    try:
        node.ask("simulator_step", {"blocks": count})
    except RpcError:
        node.ask("dev_newBlock", {"count": count})
