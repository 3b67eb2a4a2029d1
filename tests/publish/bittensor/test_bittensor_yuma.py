"""The Yuma preview of weights before they are set, by a metagraph that is read from a chain at one block."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("bittensor_core")
pytest.importorskip("websockets")

import weights_kit as kit
from assay.errors import Unreachable
from assay.publish.bittensor.metagraph import Metagraph, read_metagraph
from assay.publish.bittensor.node import BittensorNode
from assay.publish.bittensor.subnet import SubnetState, read_subnet
from cli_kit import output, refused, run
from subtensor import Simulator
from weights_kit import ME, NETUID, WEIGHTS

ROWS = {0: {2: 100, 3: 300}, 2: {3: 65535}, 3: {2: 7, 4: 9}}
BONDS = {0: {2: 30_000, 3: 20_000}, 3: {4: 65_535}}
RULES = {"kappa": 32_767, "bonds_moving_average": 900_000}
Json = dict[str, Any]


@pytest.fixture
def chain(shared: Path) -> Iterator[Simulator]:
    """Uids 0 to 4, all with a permit; some set weights in block 7, and it is block 45."""
    with kit.subnet(settings={"BondsMovingAverage": 900_000}) as simulator:
        simulator.step(2)
        for name, rows in (("Weights", ROWS), ("Bonds", BONDS)):
            for uid, row in rows.items():
                simulator.set(name, NETUID, uid, value=list(row.items()))
        simulator.set("LastUpdate", NETUID, value=[7, 1, 7, 7, 7])
        simulator.step(38)
        yield simulator


@pytest.fixture
def place(tmp_path: Path, chain: Simulator) -> Path:
    return kit.publish_toml(kit.competition(tmp_path / "c"), chain)


def graph(chain: Simulator) -> Metagraph:
    node = BittensorNode(chain.url)
    subnet = read_subnet(node, NETUID, 0, node.head())
    assert isinstance(subnet, SubnetState)
    return read_metagraph(node, subnet)


def as_file(path: Path, rows: dict[int, dict[int, int]]) -> Path:
    neurons = [
        {
            "stake": str(10**12),
            "permit": True,
            "weights": [list(pair) for pair in rows.get(uid, {}).items()],
            "bonds": [list(pair) for pair in BONDS.get(uid, {}).items()],
        }
        for uid in range(5)
    ]
    path.write_text(json.dumps(RULES | {"neurons": neurons, "owner": 0}))
    return path


def test_the_preview_is_the_epoch_of_the_same_numbers_in_a_file(place: Path, chain: Simulator, tmp_path: Path) -> None:
    preview = json.loads(output("publish", place, "--to", "sn", "--preview", "--json"))
    before, after = (
        json.loads(output("yuma", as_file(tmp_path / "m.json", rows), "--json"))["epochs"][0]
        for rows in (ROWS, ROWS | {ME: WEIGHTS})
    )
    assert preview["epochs"] == [before, after]
    assert before["dividends"][ME] == 0 < after["dividends"][ME]
    assert (preview["uid"], preview["netuid"], preview["epoch"], preview["block"]["number"]) == (
        ME,
        NETUID,
        kit.EPOCH,
        chain.chain.head.number,
    )
    assert preview["due"] >= preview["block"]["number"]
    printed = " ".join(run("publish", place, "--to", "sn", "--preview", columns=200).stdout.split())
    assert "vtrust now" in printed
    assert f"dividends with the weights of {ME}" in printed
    assert chain.included() == []
    assert kit.journal(place) == []


def test_a_file_is_not_needed(place: Path, chain: Simulator) -> None:
    whole = json.loads(output("publish", place, "--to", "sn", "--preview", "--json"))
    asked = ("--url", chain.url, "--netuid", str(NETUID), "--block", str(chain.chain.finalized))
    document = json.loads(output("yuma", *asked, "--weights", place, "--uid", str(ME), "--json"))
    assert document["epochs"] == whole["epochs"]
    assert "Subnet 1, mechanism 0, at block" in " ".join(output("yuma", *asked).split())
    assert "give a file, or --url with --netuid" in run("yuma", code=2).stderr
    assert "subnet 9" in refused("yuma", "--url", chain.url, "--netuid", "9")


def test_what_the_chain_leaves_out_is_left_out(chain: Simulator) -> None:
    chain.set("ActivityCutoff", NETUID, value=42)
    chain.register(NETUID, "//M9", uid=4, alpha=10**12, permit=True)
    chain.set("Weights", NETUID, 3, value=[(2, 7), (4, 9)])
    chain.step()
    metagraph = graph(chain)
    updates = [neuron.last_update for neuron in metagraph.subnet.neurons]
    assert metagraph.neurons.inactive == {uid for uid, update in enumerate(updates) if update + 42 < metagraph.due}
    assert ME in metagraph.neurons.inactive
    new = metagraph.subnet.neurons[4].registered_at
    assert {(i, 4) for i in range(5) if updates[i] <= new} <= metagraph.neurons.outdated
    assert metagraph.neurons.recent == {4}
    changed = metagraph.with_weights(ME, WEIGHTS)
    assert ME not in changed.inactive
    assert not any(i == ME for i, _ in changed.outdated)
    assert changed.weights[ME] == [0, 0, 65535, 32768, 10923]


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [("Weights", [(9, 1)], "Weights"), ("Bonds", [(9, 1)], "Bonds"), ("BondsMovingAverage", 10**6 + 1, "BondsMovingAverage")],
)
def test_impossible_numbers_are_refused(chain: Simulator, name: str, value: Any, what: str) -> None:
    chain.set(name, *((NETUID, 2) if name in ("Weights", "Bonds") else (NETUID,)), value=value)
    chain.step()
    with pytest.raises(Unreachable, match=rf"impossible answer \({what}\)"):
        graph(chain)


def test_a_preview_needs_a_hotkey_with_a_uid_and_a_subnet(place: Path, chain: Simulator) -> None:
    kit.publish_toml(place, chain, key=None)
    assert "no hotkey is known" in refused("publish", place, "--to", "sn", "--preview")
    kit.publish_toml(place, chain)
    (place / "hotkey").write_text(kit.secret("//Stranger"))
    assert "has no uid on subnet 1" in refused("publish", place, "--to", "sn", "--preview")
    assert "--preview" in run("publish", place, "--to", "sn", "--preview", "--yes", code=2).stderr
    kit.publish_toml(place, chain, netuid=9)
    assert "the chain has no subnet 9" in refused("publish", place, "--to", "sn", "--preview")
