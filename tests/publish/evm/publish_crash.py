"""Workers that publish until they are killed, and what must be known afterwards. `crash_kit.Warm` forks them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import publish_kit as kit
import stepping
from assay.publish import publishers
from assay.publish.evm.node import EvmNode
from assay.publish.evm.publisher import open_publisher
from assay.publish.evm.transactions import EvmAttempt
from assay.publish.outcome import Confirmed, document
from assay.publish.publishers import PublishPlan
from assay.publish.sender import SystemClock, under_way

__all__ = ["finish", "imports", "publish", "steps_of"]


def imports() -> None:
    """Import what is imported late."""
    with tempfile.TemporaryDirectory() as place:
        folder = kit.publish_toml(Path(place), None, rpc="http://127.0.0.1:9", oracle="0x" + "11" * 20, round="0x" + "22" * 20)
        publisher = kit.opened(folder)
        signer = publisher._chain.signer()
        publisher._chain.sender(signer, print)


def publish(place: str, plan: dict[str, Any], last_step: int | None) -> dict[str, Any]:
    """Publish; at step `last_step` killed."""
    if last_step is not None:
        stepping.die_at(last_step)
    outcome = _send(place, plan)
    stepping.go_on()
    return outcome


def steps_of(place: str, plan: dict[str, Any]) -> int:
    """How many steps it takes."""
    return stepping.count(lambda: _send(place, plan))


def finish(place: str, plan: dict[str, Any], before: int) -> str:
    """What a killed worker left is what the journal says; seen through, it is there, once. How far it was: the last state."""
    target = publishers.read_target(Path(place), "local")
    entries = target.journal().entries
    last = str(entries[-1]["state"]) if entries else "nothing"
    known = [transaction.hash for each in EvmAttempt.read(entries) for transaction in each.transactions]
    node = _node(place)
    account = kit.key_of(2).address
    mined = [hash_ for hash_ in known if node.mined(hash_) is not None]
    # Whatever the account has sent stands in the journal; and nothing that stands there is there twice.
    assert node.count(account, "pending") - before == len([digest for digest in known if node.knows(digest)]) <= 1
    assert len(mined) <= 1
    confirmed = [entry for entry in entries if entry["state"] == "confirmed" and "attempt" in entry]
    assert all(entry["hash"] in mined for entry in confirmed)

    outcome = _send(place, plan)
    assert outcome["state"] == "confirmed", outcome
    assert node.count(account, "pending") - before == 1
    entries = target.journal().entries
    assert under_way(EvmAttempt.read(entries)) is None
    states = [entry["state"] for entry in entries]
    assert states.count("confirmed") >= 1
    assert [attempt.state for attempt in EvmAttempt.read(entries)] == ["confirmed"]
    return last


def _send(place: str, plan: dict[str, Any]) -> dict[str, Any]:
    os.environ.update(kit.environment())
    node = _node(place)

    def wait(_: float) -> None:
        node.http.ask("evm_mine")

    publisher = open_publisher(publishers.read_target(Path(place), "local"), clock=SystemClock(poll=0, sleep=wait))
    outcome = publisher.send(PublishPlan(**plan | {"lines": (), "left_out": ()}), lambda _: None)
    if isinstance(outcome, Confirmed):
        assert isinstance(publisher.confirm(PublishPlan(**plan | {"lines": (), "left_out": ()})), Confirmed)
    return document(outcome)


def _node(place: str) -> EvmNode:
    return EvmNode(str(publishers.read_target(Path(place), "local").fields["rpc"]))
