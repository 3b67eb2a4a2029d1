"""Weights as operators publish them: by the command, by a watch, of one competition or of several joined."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

import weights_kit as kit
from assay.cli import app
from assay.errors import BadInput, CannotSettle
from assay.ledger import access, keys, subnet_bundle
from assay.ledger.access import open_ledger
from assay.publish import publishers, settled_epoch
from assay.publish.bittensor import publisher
from assay.publish.evm.publisher import scores_of
from assay.publish.outcome import Confirmed, Refusal, TooEarly
from assay.publish.sender import SystemClock
from assay.publish.watch import TargetWatch, WatchEvent
from subtensor import Simulator
from weights_kit import EPOCH, ME, NETUID, WEIGHTS, PassingBlocks

SIGNER = keys.read(b"91" * 32)


@pytest.fixture
def chain(shared: Path) -> Iterator[Simulator]:
    with kit.subnet() as simulator:
        yield simulator


@pytest.fixture
def place(tmp_path: Path, chain: Simulator) -> Path:
    return kit.publish_toml(kit.competition(tmp_path / "c"), chain)


def joined(place: Path, there: Simulator) -> Path:
    """Two competitions with ledgers, 60 % and 30 %, and a subnet file over them."""
    kit.competition(place / "one", {"//M1": "0.5", "//M2": "0.5"}, uids={"//M1": 2, "//M2": 3}, name="one")
    kit.competition(place / "two", {"//M2": "0.2", "//M3": "0.2"}, uids={"//M2": 3, "//M3": 4}, name="two")
    parts = "".join(f'[[competitions]]\npath = "{name}"\nshare = "{share}"\n' for name, share in (("one", "60%"), ("two", "30%")))
    (place / "subnet.toml").write_text("burn_uid = 0\n" + parts)
    kit.publish_toml(place, there)
    access.make_ledger(place / "subnet.toml", "example.org/subnet", SIGNER)
    subnet_bundle.sign(place / "subnet.toml", SIGNER)
    return place / "subnet.toml"


def test_a_subnets_competitions_are_joined(tmp_path: Path, chain: Simulator) -> None:
    file, time = joined(tmp_path, chain), PassingBlocks(chain)
    plan = kit.opened(tmp_path).plan(settled_epoch.read_joint(file))
    assert [row["share"] for row in plan.content["weights"]] == ["9/20", "3/10", "3/20"]
    assert plan.content["burn"]["share"] == "1/10"
    outcome = kit.opened(tmp_path, time).send(plan, time.messages.append)
    assert isinstance(outcome, Confirmed)
    # 0.3, 0.45, 0.15 and 0.1, the largest 65535.
    assert chain.weights(NETUID, ME) == {0: 14563, 2: 43690, 3: 65535, 4: 21845}
    assert kit.states(tmp_path) == ["planned", "sent", "confirmed"]


def test_only_the_signed_split_is_published(tmp_path: Path, chain: Simulator) -> None:
    file = joined(tmp_path, chain)
    with open_ledger(file) as ledger:
        there = ledger.receipt(EPOCH)
    assert (
        settled_epoch.read_joint(file).receipt
        == kit.opened(tmp_path).plan(settled_epoch.read_joint(file)).receipt
        == there.digest
    )
    file.write_text(file.read_text().replace("60%", "70%"))
    with pytest.raises(
        CannotSettle, match=r"the split of epoch 3 was signed as sha256:\w+, but the competitions now give sha256:"
    ):
        settled_epoch.read_joint(file)
    with pytest.raises(CannotSettle, match="the split of epoch 4 is not signed"):
        settled_epoch.read_joint(file, EPOCH + 1)
    file.with_suffix(".ledger.toml").unlink()
    with pytest.raises(BadInput, match="the subnet has no log for its split"):
        settled_epoch.read_joint(file)


def test_the_uids_of_another_subnet_are_not_joined(tmp_path: Path, chain: Simulator) -> None:
    file = joined(tmp_path, chain)
    for name, netuid in (("one", NETUID), ("two", NETUID + 1)):
        kit.registry_of(tmp_path / name, chain, netuid=netuid)
        kit.settle(tmp_path / name, {"//M2": "0.2"}, EPOCH + 1)
    with pytest.raises(BadInput, match=r"'(one|two)' has uids of subnet [0-9]+ of the chain"):
        subnet_bundle.sign(file, SIGNER)


@pytest.mark.full
def test_the_uids_of_another_subnet_are_not_published(tmp_path: Path, chain: Simulator) -> None:
    file = joined(tmp_path, chain)
    for name in ("one", "two"):
        kit.registry_of(tmp_path / name, chain, netuid=NETUID + 1)
        kit.settle(tmp_path / name, {"//M2": "0.2"}, EPOCH + 1)
    subnet_bundle.sign(file, SIGNER)
    outcome = kit.opened(tmp_path).send(kit.opened(tmp_path).plan(settled_epoch.read_joint(file)), print)
    assert isinstance(outcome, Refusal)
    assert (outcome.code, chain.included()) == ("wrong-registry", [])


def test_a_competition_without_a_receipt_is_not_joined(tmp_path: Path, chain: Simulator) -> None:
    file = joined(tmp_path, chain)
    kit.settle(tmp_path / "one", {"//M1": "0.9"}, EPOCH + 1)
    with pytest.raises(CannotSettle, match="epoch 4 has no receipt"):
        subnet_bundle.sign(file, SIGNER, EPOCH + 1)
    with pytest.raises(CannotSettle, match="not settled into payouts"):
        scores_of(settled_epoch.read_joint(file, EPOCH), {})


def typed(*words: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["publish", *map(str, words)], prog_name="assay")
    return done.exit_code, done.output


def test_the_command(tmp_path: Path, shared: Path) -> None:
    with kit.subnet(block_time=0.1) as there:
        place = kit.publish_toml(kit.competition(tmp_path / "c"), there)
        there.register(NETUID, "//Stranger", uid=4)
        code, printed = typed(place, "--to", "sn")
        assert code == 0
        assert "Nothing was sent: --yes sends it." in printed, printed
        assert "to be set" in printed
        assert re.search(r"burn +uid 0 +10923  new", printed), printed
        assert "gets nothing and its weight burns: uid 4 has the hotkey" in " ".join(printed.split())
        code, printed = typed(place, "--to", "sn", "--yes")
        assert code == 0, printed
        assert re.search(r"The chain has it, in block \d+, by 0x[0-9a-f]{64}\.", " ".join(printed.split()))
        code, printed = typed(place, "--to", "sn", "--json")
        document = json.loads(printed)
        assert document["outcome"]["state"] == "confirmed"
        assert document["held"] == {"uid 0": "10923", "uid 2": "65535", "uid 3": "32768"}
        assert {row["account"]: row["value"] for row in document["lines"]}["uid 4"] == "0"
        kit.settle(place, kit.SCORES, EPOCH + 1)
        code, printed = typed(place, "--to", "sn", "--yes")
        assert (code, "It is too early" in printed) == (0, True)
        subnet_file = joined(tmp_path / "s", there)
        code, printed = typed(subnet_file, "--to", "sn")
        assert (code, "It is too early" in printed) == (0, True), printed


def test_a_dry_run_says_what_it_could_not_look_at(tmp_path: Path, shared: Path) -> None:
    with kit.subnet(commit=True) as there:
        place = kit.publish_toml(kit.competition(tmp_path / "c"), there)
        code, printed = typed(place, "--to", "sn")
        assert code == 1
        assert "It was refused: this machine's clock is" in printed  # a simulated chain has a clock of its own
        (place / "publish.toml").write_text((place / "publish.toml").read_text().replace('key = "me"', ""))
        code, printed = typed(place, "--to", "sn")
        assert "publish.toml names no key, so registration, permit, stake," in " ".join(printed.split())
        assert "there now" not in printed


def test_the_command_about_a_commitment(tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kit.subnet(commit=True, block_time=0.1) as there:
        place = kit.publish_toml(kit.competition(tmp_path / "c"), there)
        monkeypatch.setattr(publisher, "SystemClock", partial(SystemClock, wall=PassingBlocks(there).wall))
        code, printed = typed(place, "--to", "sn", "--yes")
        assert code == 0
        assert re.search(r"The chain has it, locked, by 0x[0-9a-f]{64}, and opens it about block \d+", " ".join(printed.split()))


def test_a_watch_sets_each_new_epoch_when_the_chain_allows(place: Path, chain: Simulator) -> None:
    passing, events = PassingBlocks(chain), list[WatchEvent]()
    watch = TargetWatch(
        publishers.read_target(place, "sn"), kit.opened(place, passing), events.append, clock=lambda: passing.seconds
    )
    assert watch.step().exit_code == 0
    assert chain.weights(NETUID, ME) == WEIGHTS
    (first,) = chain.included()
    kit.settle(place, {"//M1": "0.5", "//M2": "0.5", "//M3": "0.5"}, EPOCH + 1)
    assert watch.step().exit_code == 0
    assert isinstance(watch.memory.outcome, TooEarly)
    chain.step(100)
    passing.seconds += 10_000
    watch.step()
    assert chain.weights(NETUID, ME) == {2: 65535, 3: 65535, 4: 65535}
    assert len(chain.included()) == 2
    assert chain.included()[0] == first
    # And when nothing more is settled, it alarms after two tempos.
    assert watch.step().exit_code == 0
    chain.step(41)
    last = watch.step()
    assert [alarm.code for alarm, _ in last.alarms] == ["nothing-set"]
    assert last.exit_code == 3


def test_a_watch_says_when_its_weights_were_overwritten(place: Path, chain: Simulator) -> None:
    passing = PassingBlocks(chain)
    watch = TargetWatch(
        publishers.read_target(place, "sn"), kit.opened(place, passing), lambda _: None, clock=lambda: passing.seconds
    )
    assert watch.step().exit_code == 0
    chain.set("Weights", NETUID, ME, value=[(1, 65535)])
    chain.step(5)
    passing.seconds += 20 * 12 + 1
    last = watch.step()
    assert [alarm.code for alarm, _ in last.alarms] == ["undone"]
    assert "the chain has others now" in last.alarms[0][0].what
    assert len(chain.included()) == 1
    chain.set("Weights", NETUID, ME, value=sorted(WEIGHTS.items()))
    chain.step(5)
    assert watch.step().exit_code == 0


def test_a_watch_says_when_the_node_is_of_another_chain(place: Path, chain: Simulator) -> None:
    passing = PassingBlocks(chain)
    assert isinstance(kit.sent(place, passing), Confirmed)
    kit.publish_toml(place, chain, chain="finney")
    last = TargetWatch(
        publishers.read_target(place, "sn"), kit.opened(place, passing), lambda _: None, clock=lambda: passing.seconds
    ).step()
    assert [alarm.code for alarm, _ in last.alarms] == ["shut-out"]
