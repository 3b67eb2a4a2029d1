"""`kill -9` while an epoch is published: never sent twice, never lost, and it is always known what became of it."""

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
import publish_crash
import publish_kit as kit
from crash_kit import Warm
from depth import depth
from evm_kit import EvmWorld
from publish_kit import with_keys

__all__ = ["with_keys"]  # a fixture

SCORES = {"m1": 9000, "m2": 6000}
KILLS = depth(2, 10)
"""Four times: at steps and at moments, of each journal. In the long run 200 of each, and one at every step."""
pytestmark = pytest.mark.usefixtures("with_keys")


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in kit.environment().items():
            patch.setenv(name, value)
        with crash_kit.warm(tmp_path_factory.mktemp("warm"), "publish_crash") as prepared:
            yield prepared


class RoundStage:
    """A settled competition, and a round in which it can be published; the chain is put back before each trial."""

    def __init__(self, world: EvmWorld, folder: Path, warm: Warm) -> None:
        self.world, self.folder, self.warm, self.number = world, folder, warm, 0
        self.left = set[str]()
        """How far they were when they were killed."""
        world.open()
        world.commit(*world.agents[:2])
        world.close()
        self.template = kit.publish_toml(kit.competition(folder / "template", world, SCORES), world, confirmations=3)
        plan = asdict(kit.planned(self.template))
        self.plan: dict[str, Any] = plan | {"lines": [], "left_out": []}
        self.begun = world.chain.ask("evm_snapshot")

    def whole(self) -> tuple[int, float]:
        """How many steps it takes, and how many seconds, if nobody is killed."""
        place = self._place()
        begun = time.monotonic()
        steps: int = self.warm.ask(publish_crash.steps_of, place, self.plan)
        return steps, time.monotonic() - begun

    def _place(self) -> Path:
        self.world.chain.ask("evm_revert", self.begun)
        self.begun = self.world.chain.ask("evm_snapshot")
        self.number += 1
        return ledger_kit.copied(self.template, self.folder / str(self.number))

    def trial(self, *kills: int | float) -> bool:
        """Publish, killed again and again: before step n, or after so many seconds. Whether the first kill came in time."""
        place = self._place()
        before = kit.nonce(self.world, self.world.scorer)
        first = None
        for kill in kills:
            step, after = (kill, None) if isinstance(kill, int) else (None, kill)
            killed = self.warm.killed(publish_crash.publish, place, self.plan, step, after=after)
            first = killed if first is None else first
        self.left.add(self.warm.ask(publish_crash.finish, place, self.plan, before))
        shutil.rmtree(place)
        return bool(first)


@pytest.fixture(params=["ledger", "file"])
def stage(world: EvmWorld, tmp_path: Path, warm: Warm, request: pytest.FixtureRequest) -> RoundStage:
    """Its journal is in the ledger, or, without one, in a file."""
    round_stage = RoundStage(world, tmp_path, warm)
    if request.param == "file":
        (round_stage.template / "ledger.toml").unlink()
    return round_stage


def trials(stage: RoundStage, count: int, draw: random.Random, *, at_steps: bool) -> None:
    """Each is killed twice, somewhere between the beginning and the end."""
    steps, seconds = stage.whole()
    for _ in range(count // 2):
        stage.trial(*(draw.randint(1, steps) if at_steps else draw.uniform(0, seconds) for _ in range(2)))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("at_steps", [False, True], ids=["moments", "steps"])
def test_what_a_kill_leaves_is_seen_through(stage: RoundStage, at_steps: bool) -> None:
    trials(stage, KILLS, random.Random(20261121), at_steps=at_steps)


@pytest.mark.full
@pytest.mark.parametrize("at_steps", [False, True], ids=["moments", "steps"])
def test_two_hundred_kills(stage: RoundStage, at_steps: bool) -> None:
    seed = random.SystemRandom().randrange(10**9)
    print(f"seed {seed}")
    trials(stage, 200, random.Random(seed), at_steps=at_steps)
    assert not at_steps or len(stage.left) > 2, stage.left


@pytest.mark.full
def test_a_kill_before_every_step(stage: RoundStage) -> None:
    step = 1
    while stage.trial(step):
        step += 1
    assert step > 40
