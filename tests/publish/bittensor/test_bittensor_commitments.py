"""Commitments to weights on a simulated subnet, which opens them some epochs later, or does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import weights_kit as kit
from assay.publish.bittensor.node import BittensorNode
from assay.publish.bittensor.weights import REVEAL_EPOCHS
from assay.publish.outcome import Confirmed, Refusal, Sent
from subtensor import Simulator
from weights_kit import EPOCH, ME, NETUID, WEIGHTS, PassingBlocks


@pytest.fixture
def chain(shared: Path) -> Iterator[Simulator]:
    with kit.subnet() as simulator:
        yield simulator


@pytest.fixture
def place(tmp_path: Path, chain: Simulator) -> Path:
    return kit.publish_toml(kit.competition(tmp_path / "c"), chain)


@pytest.fixture
def locked(tmp_path: Path, shared: Path) -> Iterator[tuple[Path, Simulator]]:
    with kit.subnet(commit=True) as chain:
        yield kit.publish_toml(kit.competition(tmp_path / "c"), chain), chain


def test_a_commitment_is_opened_and_read_back(locked: tuple[Path, Simulator]) -> None:
    place, chain = locked
    chain.opens("//Val", WEIGHTS)
    time = PassingBlocks(chain)
    outcome = kit.sent(place, time)
    assert isinstance(outcome, Sent), outcome
    assert outcome.opens is not None
    assert kit.states(place) == ["planned", "sent", "committed", "sent"]
    ((_, extrinsic),) = chain.included()
    assert extrinsic["call"]["call_function"] == "commit_timelocked_mechanism_weights"
    arguments = {arg["name"]: arg["value"] for arg in extrinsic["call"]["call_args"]}
    assert (arguments["netuid"], arguments["mecid"], arguments["commit_reveal_version"]) == (NETUID, 0, 4)
    # Until then it waits, and nothing else is sent.
    assert kit.sent(place, time) == outcome == kit.opened(place, time).confirm(kit.planned(place))
    chain.step(outcome.opens - chain.chain.head.number - 1)
    assert chain.weights(NETUID, ME) == {}
    chain.step()
    assert chain.weights(NETUID, ME) == WEIGHTS, "the block in which the chain opens it was foretold"
    assert kit.sent(place, time) == outcome, "it is not final yet"
    chain.step(3)
    assert isinstance(kit.opened(place, time).compare(kit.planned(place)).outcome, Confirmed)
    done = kit.sent(place, time)
    assert isinstance(done, Confirmed)
    assert done.transaction == outcome.transaction
    assert len(chain.included()) == 1
    assert kit.states(place)[-1] == "confirmed"
    assert kit.sent(place, time) == done


def test_a_commitment_that_does_not_open_is_told_and_made_anew(locked: tuple[Path, Simulator]) -> None:
    place, chain = locked
    chain.opens("//Val", None)
    time = PassingBlocks(chain)
    outcome = kit.sent(place, time)
    assert isinstance(outcome, Sent)
    chain.step(100)
    failed = kit.sent(place, time)
    assert isinstance(failed, Refusal)
    assert failed.code == "reveal-failed"
    assert kit.states(place)[-2:] == ["reveal-failed", "refused"]
    chain.opens("//Val", WEIGHTS)
    again = kit.sent(place, time)
    assert isinstance(again, Sent)
    assert again.transaction != outcome.transaction
    chain.step(50)
    assert isinstance(kit.sent(place, time), Confirmed)


def test_nobody_waits_so_many_epochs(locked: tuple[Path, Simulator]) -> None:
    place, chain = locked
    chain.set("RevealPeriodEpochs", NETUID, value=REVEAL_EPOCHS + 1)
    outcome = kit.sent(place, PassingBlocks(chain))
    assert isinstance(outcome, Refusal)
    assert (outcome.code, kit.states(place)) == ("reveal-period", ["refused"])
    chain.set("RevealPeriodEpochs", NETUID, value=REVEAL_EPOCHS)
    assert isinstance(kit.sent(place, PassingBlocks(chain)), Sent)


def test_a_commitment_waits_for_the_beacon(locked: tuple[Path, Simulator]) -> None:
    place, chain = locked
    chain.pulses(False)
    chain.opens("//Val", WEIGHTS)
    time = PassingBlocks(chain)
    outcome = kit.sent(place, time)
    assert isinstance(outcome, Sent)
    assert outcome.opens is not None
    chain.step(outcome.opens - chain.chain.head.number + 4)
    assert kit.sent(place, time) == outcome
    chain.pulses(True)
    chain.step(4)
    assert isinstance(kit.sent(place, time), Confirmed)


def test_another_hotkeys_commitment_is_its_own(locked: tuple[Path, Simulator]) -> None:
    place, chain = locked
    chain.register(NETUID, "//Val2", alpha=10**12, permit=True)
    chain.set("WeightsSetRateLimit", NETUID, value=0)
    chain.opens("//Val", WEIGHTS)
    chain.opens("//Val2", WEIGHTS)
    time = PassingBlocks(chain)
    for uri in ("//Val", "//Val2"):
        (place / "hotkey").write_text(kit.secret(uri))
        assert isinstance(kit.sent(place, time), Sent)
    chain.step(50)
    assert isinstance(kit.sent(place, time), Confirmed)
    assert [attempt.state for attempt in kit.tried(place)] == ["committed", "confirmed"]
    (place / "hotkey").write_text(kit.secret("//Val"))
    assert isinstance(kit.sent(place, time), Confirmed)


def test_the_next_epoch_does_not_wait_for_the_one_before_to_open(locked: tuple[Path, Simulator]) -> None:
    place, chain = locked
    chain.set("WeightsSetRateLimit", NETUID, value=0)
    chain.opens("//Val", WEIGHTS)
    time = PassingBlocks(chain)
    assert isinstance(kit.sent(place, time), Sent)
    kit.settle(place, kit.SCORES, EPOCH + 1)
    assert isinstance(kit.sent(place, time, EPOCH + 1), Sent)
    assert len(chain.included()) == 2
    chain.step(50)
    assert isinstance(kit.sent(place, time, EPOCH + 1), Confirmed)
    assert [attempt.state for attempt in kit.tried(place)] == ["superseded", "confirmed"]


@pytest.mark.parametrize(
    ("setting", "value", "code", "hint"),
    [
        ("CommitRevealWeightsVersion", 5, "IncorrectCommitRevealVersion", "install a newer version of Assay"),
        ("CommitRevealWeightsVersion", 3, "IncorrectCommitRevealVersion", "wait until the chain is upgraded"),
        ("Tempo", 0, "no-epochs", "ask the subnet's owner"),
    ],
)
def test_a_commitment_that_cannot_be_made(locked: tuple[Path, Simulator], setting: str, value: int, code: str, hint: str) -> None:
    place, chain = locked
    chain.set(setting, *(() if setting == "CommitRevealWeightsVersion" else (NETUID,)), value=value)
    outcome = kit.sent(place, PassingBlocks(chain))
    assert isinstance(outcome, Refusal), outcome
    assert (outcome.code, chain.included()) == (code, [])
    assert hint in outcome.hint


@pytest.mark.parametrize(("off", "words"), [(-121, "behind"), (121, "ahead of")])
def test_a_clock_that_is_wrong_would_lose_it(locked: tuple[Path, Simulator], off: int, words: str) -> None:
    place, chain = locked
    time = PassingBlocks(chain)
    right = time.wall()
    time.wall = lambda: right + off  # type: ignore[method-assign]
    outcome = kit.sent(place, time)
    assert isinstance(outcome, Refusal)
    assert outcome.code == "clock"
    assert f"121 seconds {words} the chain's" in outcome.what


def test_a_subnet_that_turns_to_commitments_in_between(place: Path, chain: Simulator) -> None:
    chain.guards(False)
    chain.opens("//Val", WEIGHTS)
    time = PassingBlocks(chain, lambda: chain.set("CommitRevealWeightsEnabled", NETUID, value=True))
    outcome = kit.sent(place, time)
    assert isinstance(outcome, Sent), outcome
    assert [attempt.state for attempt in kit.tried(place)] == ["failed", "committed"]


@pytest.mark.full
def test_an_old_runtime_takes_plain_weights_and_no_commitments(tmp_path: Path, shared: Path) -> None:
    with kit.subnet(extended=False) as chain:
        place = kit.publish_toml(kit.competition(tmp_path / "c"), chain)
        chain.step(100)
        assert isinstance(kit.sent(place, PassingBlocks(chain)), Confirmed)
        assert chain.weights(NETUID, ME) == WEIGHTS
        chain.set("CommitRevealWeightsEnabled", NETUID, value=True)
        chain.step(100)
        kit.settle(place, kit.SCORES, EPOCH + 1)
        outcome = kit.sent(place, PassingBlocks(chain), EPOCH + 1)
        assert isinstance(outcome, Refusal)
        assert outcome.code == "IncorrectCommitRevealVersion"
        assert outcome.what == "the chain's runtime is older than commitments of version 4"
        assert "wait until the chain is upgraded" in outcome.hint


def test_a_runtime_that_has_no_such_call(locked: tuple[Path, Simulator], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a commitment to the first mechanism an older name is tried before it is refused."""
    place, chain = locked

    class Older:
        """A runtime that does not know some calls."""

        def __init__(self, runtime: Any, *unknown: str) -> None:
            self.runtime, self.unknown = runtime, unknown

        def __getattr__(self, name: str) -> Any:
            return getattr(self.runtime, name)

        def compose_call(self, pallet: str, name: str, arguments: dict[str, Any]) -> bytes:
            if name in self.unknown:
                raise ValueError(f"call {pallet}.{name} not found")
            return bytes(self.runtime.compose_call(pallet, name, arguments))

    real, unknown = BittensorNode.runtime, ["commit_timelocked_mechanism_weights", "commit_timelocked_weights"]
    monkeypatch.setattr(BittensorNode, "runtime", lambda self, at=None: Older(real(self, at), *unknown))
    outcome = kit.sent(place, PassingBlocks(chain))
    assert isinstance(outcome, Refusal)
    assert (outcome.code, chain.included()) == ("runtime", [])
    unknown.pop()
    assert isinstance(kit.sent(place, PassingBlocks(chain)), Sent)
    ((_, extrinsic),) = chain.included()
    assert extrinsic["call"]["call_function"] == "commit_timelocked_weights"
