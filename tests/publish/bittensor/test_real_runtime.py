"""A season publishes to a real subtensor runtime: its WASM in chopsticks, our commands over the wire, polkadot.js reads back."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import crash_kit
import ledger_kit
import small_folder
import weights_crash
import weights_kit
from assay.ledger.access import receipt_predicate
from cli_kit import run
from runtime_kit import PATIENCE, RealChain, hotkey, read_back, real_chain

pytestmark = [pytest.mark.full, pytest.mark.slow]

VALIDATORS = {"//Val": 2 * 10**15, "//Val2": 10**15}
MINERS = ("//M1", "//M2", "//M3")
ME = 1
"""The uid of //Val. The owner has uid 0, //Val2 uid 2, the miners those after it."""
RATE = 10
KILLS = 12
SCHEME = weights_kit.SCHEME.replace("min_validators = 1", "min_validators = 2").replace('"none"', '"none"\nburn_uid = 0')


@pytest.fixture
def genesis(shared: Path) -> Path:
    return shared / "data/subtensor/raonet.json"


@pytest.fixture
def chain(genesis: Path, tmp_path: Path) -> Iterator[RealChain]:
    """A subnet with two validators and three miners, in which weights may be set every ten blocks."""
    with real_chain(genesis, tmp_path / "chain") as real:
        real.subnet("//Owner", VALIDATORS | dict.fromkeys(MINERS, 0))
        real.settings(WeightsSetRateLimit=str(RATE))
        yield real


class RuntimeSeason:
    """A competition of that subnet, whose files, keys and ledger our commands made."""

    def __init__(self, place: Path, chain: RealChain) -> None:
        self.place, self.chain = place, chain
        people = "".join(f"{hotkey(uri)},s{uri[2:]}\n" for uri in MINERS)
        small_folder.make(
            place,
            "given",
            scheme_toml=SCHEME,
            participants_csv=f"key,submission\n{people}",
            validators_csv=None,
            tasks_txt=None,
            evidence=None,
        )
        self.target()
        run("registry", "pull", place, "--to", "sn")
        for name, uri in (("val", "//Val"), ("val2", "//Val2"), ("stranger", "//Stranger")):
            (place / f"{name}.json").write_text(weights_kit.secret(uri))
            (place / f"{name}.json").chmod(0o600)
            run("keys", "import", name, place / f"{name}.json")
        run("keys", "new", "log")
        run("ledger", "init", place, "--origin", "example.org/real", "--key", "log")

    def target(self, name: str = "val", **changes: Any) -> None:
        """Write publish.toml: the target `sn`, with the hotkey of that name."""
        fields = {"url": self.chain.url, "chain": self.chain.genesis, "netuid": self.chain.netuid, "key": "me"}
        rows = [f"{field} = {json.dumps(value)}\n" for field, value in ({"kind": "bittensor"} | fields | changes).items()]
        (self.place / "publish.toml").write_text("[targets.sn]\n" + "".join(rows) + f'[keys.me]\nkeyfile = "{name}.json"\n')

    def judged(self, epoch: int, scores: Mapping[str, str]) -> None:
        """Two validators judge and sign, and the ledger takes it."""
        for name, uri in (("val", "//Val"), ("val2", "//Val2")):
            shared = {"validator": hotkey(uri), "epoch": epoch}
            rows = [
                small_folder.record("given", **shared, participant=hotkey(miner), submission=f"s{miner[2:]}", score=score)
                for miner, score in scores.items()
            ]
            (self.place / f"evidence/{name}-{epoch}.jsonl").write_text(small_folder.lines(rows))
            batches = self.place / f"batches/{name}-{epoch}"
            run("evidence", "sign", self.place, "--key", name, "--epoch", str(epoch), "-o", batches)
            run("evidence", "add", self.place, *sorted(batches.glob("*.batch")))

    def settled(self, epoch: int, scores: Mapping[str, str]) -> dict[int, int]:
        """The epoch is judged and settled: uid → weight, as the settlement has it."""
        self.judged(epoch, scores)
        return self.settlement(epoch)

    def settlement(self, epoch: int) -> dict[int, int]:
        """The weights of an epoch, which is settled if it is not yet: uid → weight."""
        settlement = json.loads(run("settle", self.place, "--epoch", str(epoch), "--json").stdout)
        rows = {row["uid"]: row["chain_u16"] for row in settlement["weights"]}
        rows[settlement["burn"]["uid"]] = settlement["burn"]["chain_u16"]
        return {uid: weight for uid, weight in rows.items() if weight}

    def publish(self, *words: str, code: int = 0) -> dict[str, Any]:
        """What `assay publish --yes` says, while the chain makes blocks; it must end with the code."""
        with self.chain.ticking():
            document: dict[str, Any] = json.loads(
                run("publish", self.place, "--to", "sn", "--yes", "--json", *words, code=code).stdout
            )
        return document

    def started(self, *words: str) -> subprocess.Popen[str]:
        """`assay publish --yes` in a process of its own."""
        command = [sys.executable, "-m", "assay", "publish", str(self.place), "--to", "sn", "--yes", *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def states(self) -> list[list[str]]:
        """Of each attempt, the states that the journal has."""
        document = json.loads(run("attempts", self.place, "--to", "sn", "--json").stdout)
        return [attempt["states"] for attempt in document["targets"]["sn"]]


@pytest.fixture
def season(tmp_path: Path, chain: RealChain, monkeypatch: pytest.MonkeyPatch) -> RuntimeSeason:
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    return RuntimeSeason(tmp_path / "season", chain)


def until(what: str, holds: Callable[[], object]) -> None:
    """Wait until it holds."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, f"this did not come: {what}"
        time.sleep(0.2)


def weights(chain: RealChain, uid: int = ME) -> dict[int, int]:
    """The weights on the chain, by polkadot.js."""
    return {int(to): weight for to, weight in read_back(chain, uid)["weights"].items()}


SCORES = {"//M1": "0.6", "//M2": "0.3", "//M3": "0.1"}


def test_a_season_of_three_epochs(season: RuntimeSeason, chain: RealChain) -> None:
    registry = json.loads((season.place / "registry.json").read_bytes())
    assert (registry["spec_version"], registry["netuid"]) == (218, chain.netuid)
    assert [neuron["hotkey"] for neuron in registry["neurons"]] == [hotkey(uri) for uri in ("//Owner", *VALIDATORS, *MINERS)]

    settled = season.settled(1, SCORES)
    assert settled == {3: 65535, 4: 32768, 5: 10923}
    early = season.publish()["outcome"]  # to the chain, a hotkey that has just registered has just set weights
    assert (early["state"], early["at"]) == ("too-early", chain.get("BlockAtRegistration", chain.netuid, ME) + RATE)
    chain.blocks(RATE)
    first = season.publish()
    assert (first["outcome"]["state"], weights(chain)) == ("confirmed", settled)
    assert read_back(chain, ME)["hotkey"] == hotkey("//Val")
    assert season.publish()["outcome"]["block"] == first["outcome"]["block"]  # it is there, so nothing is sent

    settled = season.settled(2, {"//M1": "0.1", "//M2": "0.8", "//M3": "0.2"})
    early = json.loads(run("publish", season.place, "--to", "sn", "--json").stdout)["outcome"]
    assert (early["state"], early["at"]) == ("too-early", first["outcome"]["block"] + RATE)
    watch = season.started("--watch", "--every", "0.5")
    with chain.ticking():
        until("the watch publishes epoch 2", lambda: len(season.states()) == 2 and season.states()[-1][-1] == "confirmed")
        assert weights(chain) == settled
        settled = season.settled(3, {"//M1": "0.5", "//M2": "0.5", "//M3": "0"})
        until("the watch publishes epoch 3", lambda: len(season.states()) == 3 and season.states()[-1][-1] == "confirmed")
    watch.send_signal(signal.SIGTERM)
    _, stderr = watch.communicate(timeout=PATIENCE)
    assert watch.returncode == 0, stderr
    assert weights(chain) == settled == {3: 65535, 4: 65535}
    run("ledger", "check", season.place)
    assert [states[-3:] for states in season.states()] == [["planned", "sent", "confirmed"]] * 3


def test_the_chain_refuses_what_is_refused_before_it_is_sent(season: RuntimeSeason, chain: RealChain) -> None:
    """Each rule is broken in turn: our check before sending and the runtime itself give the same name of the error."""
    settled = season.settled(1, SCORES)
    chain.fund("//Stranger")
    chain.blocks(RATE)
    call = {"netuid": chain.netuid, "dests": list(settled), "weights": list(settled.values()), "version_key": 0}

    def both(code: str, uri: str = "//Val", **fields: Any) -> None:
        outcome = season.publish(code=1)["outcome"]
        assert (outcome["state"], outcome["code"]) == ("refused", code)
        assert chain.send(uri, "set_weights", **call | fields) == code

    chain.settings(WeightsVersionKey="7")
    both("IncorrectWeightVersionKey")
    chain.settings(WeightsVersionKey="0", MinAllowedWeights=5)
    both("WeightVecLengthIsLow")
    chain.settings(MinAllowedWeights=1, MaxWeightsLimit=20_000)
    both("MaxWeightExceeded")
    chain.settings(MaxWeightsLimit=65_535)
    season.target("stranger")
    both("HotKeyNotRegisteredInSubNet", "//Stranger")
    season.target(netuid=4000)
    outcome = season.publish(code=1)["outcome"]
    assert outcome["code"] == "wrong-registry"
    assert all("sent" not in states for states in season.states())
    season.target()
    # This runtime gives every hotkey a permit in every block, so it never refuses one; before the next block we do.
    chain.settings(ValidatorPermit=[True, False, True, True, True, True])
    outcome = json.loads(run("publish", season.place, "--to", "sn", "--json", code=1).stdout)["outcome"]
    assert outcome["code"] == "NeuronNoValidatorPermit"
    chain.blocks()
    chain.store("SubtensorModule", WeightsMinStake=str(10**18))
    outcome = season.publish(code=1)["outcome"]  # the runtime's older name of StakeThreshold, which its node checks alone
    assert (outcome["state"], outcome["code"]) == ("refused", "NotEnoughStakeToSetWeights"), outcome
    chain.store("SubtensorModule", WeightsMinStake="0")
    assert season.publish()["outcome"]["state"] == "confirmed"
    assert weights(chain) == settled


def test_a_rule_that_changes_while_the_weights_wait(season: RuntimeSeason, chain: RealChain) -> None:
    settled = season.settled(1, SCORES)
    chain.blocks(RATE)
    sending = season.started("--json")
    until("the pool has the extrinsic", chain.node.pending)
    chain.settings(WeightsVersionKey="7")
    chain.blocks(2)
    stdout, _ = sending.communicate(timeout=PATIENCE)
    outcome = json.loads(stdout)["outcome"]
    assert (sending.returncode, outcome["state"], outcome["code"]) == (1, "refused", "IncorrectWeightVersionKey")
    assert season.states() == [["planned", "sent", "failed", "refused"]]
    season.target(version_key=7)
    assert season.publish()["outcome"]["state"] == "confirmed"
    assert weights(chain) == settled


def test_a_uid_that_changes_hands_after_the_settlement(season: RuntimeSeason, chain: RealChain) -> None:
    season.settled(1, SCORES)
    chain.blocks(RATE)
    now = str(chain.node.head().number)
    chain.store("SubtensorModule", BlockAtRegistration=[[[chain.netuid, uid], now] for uid in range(3)])
    chain.settings(MaxAllowedUids=6, ImmunityPeriod=RATE)
    chain.fund("//New//cold")
    chain.register("//New")  # the subnet is full, and its first three are immune
    (lost,) = (uid for uid in (3, 4, 5) if chain.get("Keys", chain.netuid, uid) == hotkey("//New"))
    document = season.publish()
    assert document["outcome"]["state"] == "confirmed"
    assert any(f"uid {lost} has the hotkey {hotkey('//New')} now" in remark for remark in document["notes"])
    read = weights(chain)
    assert lost not in read
    assert read[0] > 0  # its share burns
    run("registry", "pull", season.place, "--to", "sn")
    assert f"{hotkey('//New')},{lost}" in (season.place / "participants.csv").read_text()


def test_a_publisher_is_killed_and_begins_again(season: RuntimeSeason, chain: RealChain) -> None:
    """Killed when the pool has the extrinsic, then when a block has it; it is in the chain once."""
    settled = season.settled(1, SCORES)
    chain.blocks(RATE)
    before = chain.node.nonce(hotkey("//Val"))
    for blocks in (0, 1):
        sending = season.started()
        until("the pool or a block has it", lambda: chain.node.pending() or chain.node.nonce(hotkey("//Val")) > before)
        sending.kill()
        sending.communicate(timeout=PATIENCE)
        assert weights(chain) == {}
        chain.blocks(blocks)
    assert season.states()[0][-1] in ("planned", "sent")
    assert season.publish()["outcome"]["state"] == "confirmed"
    assert (weights(chain), chain.node.nonce(hotkey("//Val"))) == (settled, before + 1)
    assert len(season.states()) == 1


def test_a_node_that_stops_in_the_middle(season: RuntimeSeason, chain: RealChain) -> None:
    settled = season.settled(1, SCORES)
    chain.blocks(RATE)
    season.target(rpc_seconds=2, wait_seconds=5)
    before = chain.node.nonce(hotkey("//Val"))
    sending = season.started("--json")
    until("the pool has the extrinsic", chain.node.pending)
    chain.process.send_signal(signal.SIGSTOP)
    stdout, _ = sending.communicate(timeout=PATIENCE)
    chain.process.send_signal(signal.SIGCONT)
    assert (sending.returncode, json.loads(stdout)["outcome"]["state"]) == (1, "unknown")
    season.target()
    assert season.publish()["outcome"]["state"] == "confirmed"
    assert (weights(chain), chain.node.nonce(hotkey("//Val"))) == (settled, before + 1)


TEMPO = 12


def test_the_operator_closes_and_publishes_three_epochs(season: RuntimeSeason, chain: RealChain) -> None:
    """By `[epoch] tempo`: each epoch ends so many blocks after the one before, and its receipt has that block's registry."""
    scheme = season.place / "scheme.toml"
    scheme.write_text(f"{scheme.read_text()}[epoch]\ntempo = {TEMPO}\n")
    begun = json.loads((season.place / "registry.json").read_bytes())["block"]
    operator = ("node", "operator", season.place, "--no-serve", "--once")
    for epoch, best in enumerate(MINERS, start=1):
        season.judged(epoch, dict.fromkeys(MINERS, "0.2") | {best: "0.8"})
        run(*operator)
        assert len(season.states()) == epoch - 1  # the epoch has not ended
        may_set = chain.get("LastUpdate", chain.netuid)[ME] + RATE  # `--once` does not wait for it
        chain.blocks(max(0, max(begun + epoch * TEMPO, may_set) - chain.node.head().number))
        with chain.ticking():
            run(*operator)
        printed = run("attempts", season.place, columns=200).stdout
        assert [states[-1] for states in season.states()] == ["confirmed"] * epoch, printed
        assert weights(chain) == season.settlement(epoch)
        with ledger_kit.opened(season.place) as ledger:
            assert receipt_predicate(ledger.receipt(epoch))["registry"]["block"] == begun + epoch * TEMPO


def test_an_operator_is_killed_and_begins_again(season: RuntimeSeason, chain: RealChain) -> None:
    scheme = season.place / "scheme.toml"
    scheme.write_text(f"{scheme.read_text()}[epoch]\ntempo = {TEMPO}\n")
    season.judged(1, SCORES)
    chain.blocks(TEMPO)
    before = chain.node.nonce(hotkey("//Val"))
    command = [sys.executable, "-m", "assay", "node", "operator", str(season.place), "--no-serve"]
    for _ in range(2):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as operator:
            until("the pool has the extrinsic", lambda: len(chain.node.pending()) == 1)
            operator.kill()
    log = season.place.parent / "operator.out"
    with (
        log.open("wb") as out,
        subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL) as operator,
        chain.ticking(1.0),
    ):
        until("it works; what the killed ones left may have published before", lambda: log.stat().st_size)
        until("the epoch is published", lambda: season.states()[-1][-1] == "confirmed")
        operator.terminate()
        assert operator.wait(PATIENCE) == 0
    assert (weights(chain), chain.node.nonce(hotkey("//Val"))) == (season.settlement(1), before + 1)


def test_kills_at_any_step(genesis: Path, tmp_path: Path) -> None:
    """As `test_bittensor_crash` does it on the simulated chain; what a kill leaves is looked at, and seen through."""
    draw = random.Random(20261123)
    with real_chain(genesis, tmp_path / "chain") as chain, crash_kit.warm(tmp_path, "weights_crash") as warm:
        chain.subnet("//Owner", {"//Val": 10**15} | dict.fromkeys(MINERS, 0))
        chain.settings(WeightsSetRateLimit="0")
        where = {"url": chain.url, "chain": chain.genesis, "netuid": chain.netuid}
        template = weights_kit.publish_toml(weights_kit.competition(tmp_path / "template"), None, **where)
        plan = asdict(weights_kit.planned(template)) | {"lines": [], "left_out": []}
        left = set[str]()
        steps = warm.ask(weights_crash.steps_of, ledger_kit.copied(template, tmp_path / "whole"), plan)
        for number in range(KILLS):
            chain.store("SubtensorModule", Weights=[[[chain.netuid, ME], []]])
            chain.blocks()
            place = ledger_kit.copied(template, tmp_path / str(number))
            before = chain.node.nonce(hotkey("//Val"))
            for _ in range(2):
                warm.killed(weights_crash.publish, place, plan, draw.randint(1, steps))
            left.add(warm.ask(weights_crash.finish, place, plan, before))
            assert weights(chain) == weights_kit.WEIGHTS
            shutil.rmtree(place)
        assert len(left) > 1, left
