"""`kill -9` while weights are published: never sent twice, never lost, and it is always known what became of them."""

import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import crash_kit
import ledger_kit
import weights_crash
import weights_kit as kit
from crash_kit import Warm
from depth import depth
from subtensor import Simulator
from weights_kit import ME, NETUID, WEIGHTS

KILLS = depth(8, 16)
"""In the suite, of plain weights and of commitments each, half at steps and half at moments. In the long run 200 of each."""
FEW = {"WeightsSetRateLimit": 0, "Tempo": 6}


@pytest.fixture(scope="module")
def warm(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    with crash_kit.warm(tmp_path_factory.mktemp("warm"), "weights_crash") as prepared:
        yield prepared


class WeightsStage:
    """A settled competition, and a subnet in which its weights can be set, again and again."""

    def __init__(self, chain: Simulator, folder: Path, warm: Warm) -> None:
        self.chain, self.folder, self.warm, self.number = chain, folder, warm, 0
        self.left = set[str]()
        """How far they were when they were killed."""
        self.template = kit.publish_toml(kit.competition(folder / "template"), chain)
        plan = asdict(kit.planned(self.template))
        self.plan: dict[str, Any] = plan | {"lines": [], "left_out": []}

    def whole(self) -> tuple[int, float]:
        """How many steps it takes, and how many seconds, if nobody is killed."""
        place = self._place()
        begun = time.monotonic()
        steps: int = self.warm.ask(weights_crash.steps_of, place, self.plan)
        return steps, time.monotonic() - begun

    def _place(self) -> Path:
        """Nobody has set weights, and nothing is under way."""
        self.chain.set("Weights", NETUID, ME, value=[])
        self.chain.step(8)
        self.number += 1
        return ledger_kit.copied(self.template, self.folder / str(self.number))

    def trial(self, *kills: int | float) -> bool:
        """Publish, killed again and again: before step n, or after so many seconds. Whether the first kill came in time."""
        place = self._place()
        before = int(self.chain.get("System.Account", kit.public_key("//Val"))["nonce"])
        first = None
        for kill in kills:
            step, after = (kill, None) if isinstance(kill, int) else (None, kill)
            killed = self.warm.killed(weights_crash.publish, place, self.plan, step, after=after)
            first = killed if first is None else first
        self.left.add(self.warm.ask(weights_crash.finish, place, self.plan, before))
        assert self.chain.weights(NETUID, ME) == WEIGHTS
        shutil.rmtree(place)
        return bool(first)


@pytest.fixture(params=[False, True], ids=["set", "commit"])
def stage(request: pytest.FixtureRequest, tmp_path: Path, warm: Warm) -> Iterator[WeightsStage]:
    with kit.subnet(commit=request.param, control=True, settings=FEW) as chain:
        chain.opens("//Val", WEIGHTS)
        yield WeightsStage(chain, tmp_path, warm)


def trials(stage: WeightsStage, count: int, draw: random.Random, *, at_steps: bool) -> None:
    """Each is killed twice, somewhere between the beginning and the end."""
    steps, seconds = stage.whole()
    for _ in range(count // 2):
        stage.trial(*(draw.randint(1, steps) if at_steps else draw.uniform(0, seconds) for _ in range(2)))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("at_steps", [False, True], ids=["moments", "steps"])
def test_what_a_kill_leaves_is_seen_through(stage: WeightsStage, at_steps: bool) -> None:
    trials(stage, KILLS // 2, random.Random(20261121), at_steps=at_steps)


@pytest.mark.full
@pytest.mark.parametrize("at_steps", [False, True], ids=["moments", "steps"])
def test_two_hundred_kills(stage: WeightsStage, at_steps: bool) -> None:
    seed = random.SystemRandom().randrange(10**9)
    print(f"seed {seed}")
    trials(stage, 200, random.Random(seed), at_steps=at_steps)
    assert not at_steps or len(stage.left) > 1, stage.left


@pytest.mark.full
def test_a_kill_before_every_step(stage: WeightsStage) -> None:
    step = 1
    while stage.trial(step):
        step += 1
    assert step > 100
