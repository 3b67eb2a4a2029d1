"""Weights onto a simulated subnet: what is sent, that it is there, and every way in which it does not get there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import weights_kit as kit
from assay.publish.outcome import Confirmed, Refusal, Sent, TooEarly, Unknown
from subtensor import Simulator
from weights_kit import EPOCH, ME, NETUID, WEIGHTS, Passing

pytestmark = pytest.mark.usefixtures("shared")


@pytest.fixture
def chain(shared: Path) -> Iterator[Simulator]:
    with kit.subnet() as made:
        yield made


@pytest.fixture
def place(tmp_path: Path, chain: Simulator) -> Path:
    return kit.publish_toml(kit.competition(tmp_path / "c"), chain)


def test_weights_are_set_and_read_back(place: Path, chain: Simulator) -> None:
    time = Passing(chain)
    before = kit.opened(place, time).compare(kit.planned(place))
    assert (before.held, before.outcome) == ({}, None)
    assert [(line.account, line.value) for line in before.lines or ()] == [
        ("uid 2", "65535"),
        ("uid 3", "32768"),
        ("uid 4", "10923"),
        ("uid 0", "0"),
    ]
    found = kit.sent(place, time)
    assert isinstance(found, Confirmed), found
    assert chain.weights(NETUID, ME) == WEIGHTS
    ((block, one),) = chain.included()
    assert block.number == found.block <= chain.chain.finalized
    assert one["call"]["call_function"] == "set_weights"
    assert one["nonce"] == 0
    assert kit.states(place) == ["planned", "sent", "confirmed"]
    after = kit.opened(place, time).compare(kit.planned(place))
    assert after.held == {f"uid {uid}": str(value) for uid, value in WEIGHTS.items()}
    assert after.outcome == found == kit.opened(place, time).confirm(kit.planned(place))
    # Done again, nothing is sent.
    assert kit.sent(place, time) == found
    assert len(chain.included()) == 1
