"""Weights onto a simulated subnet: what is sent, that it is there, and every way in which it does not get there."""

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import weights_kit as kit
from assay.cli import app
from assay.errors import BadInput, CannotSettle
from assay.publish import settled
from assay.publish.bittensor import publisher
from assay.publish.bittensor.node import Node
from assay.publish.clock import Clock
from assay.publish.evm.scores import scores_of
from assay.publish.outcome import Confirmed, Refusal, Sent, TooEarly
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


def test_the_next_epoch_is_another_publication_though_the_weights_be_the_same(place: Path, chain: Simulator) -> None:
    time = Passing(chain)
    first = kit.sent(place, time)
    kit.settle(place, kit.SCORES, EPOCH + 1)
    early = kit.sent(place, time, EPOCH + 1)
    assert isinstance(first, Confirmed)
    assert isinstance(early, TooEarly)
    assert (early.at, early.unit) == (first.block + 100, "block")
    assert early.what == f"weights were last set in block {first.block}, and may be every 100 blocks"
    chain.step(first.block + 100 - chain.chain.head.number)
    second = kit.sent(place, time, EPOCH + 1)
    assert isinstance(second, Confirmed)
    assert second.block == first.block + 101
    assert [one["nonce"] for _, one in chain.included()] == [0, 1]
    # The first is not published over it.
    assert kit.sent(place, time) == first
    kit.settle(place, kit.SCORES, EPOCH + 2)
    chain.step(100)
    assert isinstance(kit.sent(place, time, EPOCH + 2), Confirmed)


def test_older_weights_do_not_replace_newer_ones(place: Path, chain: Simulator) -> None:
    time = Passing(chain)
    kit.settle(place, kit.SCORES, EPOCH + 1)
    assert isinstance(kit.sent(place, time, EPOCH + 1), Confirmed)
    chain.step(100)
    found = kit.sent(place, time)
    assert isinstance(found, Refusal)
    assert found.code == "superseded"
    assert len(chain.included()) == 1


def test_a_uid_that_changed_hands_burns(place: Path, chain: Simulator) -> None:
    chain.register(NETUID, "//Stranger", uid=2)
    time = Passing(chain)
    looked = kit.opened(place, time).compare(kit.planned(place))
    shown = {line.account: line.value for line in looked.lines or ()}
    assert shown == {"uid 0": "65535", "uid 2": "0", "uid 3": "32768", "uid 4": "10923"}
    assert (
        f"{kit.hotkey('//M1')} gets nothing, its weight burns: uid 2 has the hotkey {kit.hotkey('//Stranger')} now"
        in looked.notes
    )
    assert isinstance(kit.sent(place, time), Confirmed)
    assert chain.weights(NETUID, ME) == {0: 65535, 3: 32768, 4: 10923}


def test_what_burns_goes_to_nobody_but_the_owner(tmp_path: Path) -> None:
    with kit.subnet() as chain:
        chain.register(NETUID, "//Somebody", uid=0)
        chain.step(3)
        place = kit.publish_toml(kit.competition(tmp_path / "c", uids={"//M1": 2, "//M2": 3}), chain)
        time = Passing(chain)
        found = kit.sent(place, time)
        assert isinstance(found, Refusal)
        assert found.code == "burn-uid-not-owner"
        assert kit.hotkey("//Somebody") in found.what
        assert chain.included() == []
        kit.publish_toml(place, chain, force_burn=True)
        assert any("force_burn lets it" in note for note in kit.opened(place, time).compare(kit.planned(place)).notes)
        assert isinstance(kit.sent(place, time), Confirmed)
        assert chain.weights(NETUID, ME) == {0: 10923, 2: 65535, 3: 32768}


def test_where_nothing_burns_nobody_asks_whose_the_burn_uid_is(place: Path, chain: Simulator) -> None:
    chain.register(NETUID, "//Somebody", uid=0)
    assert isinstance(kit.sent(place, Passing(chain)), Confirmed)


def test_everything_burns(tmp_path: Path, chain: Simulator) -> None:
    place = kit.publish_toml(kit.competition(tmp_path / "c", dict.fromkeys(kit.SCORES, "0")), chain)
    assert isinstance(kit.sent(place, Passing(chain)), Confirmed)
    assert chain.weights(NETUID, ME) == {0: 65535}


def test_any_hotkey_of_the_owners_coldkey_takes_what_burns(tmp_path: Path, chain: Simulator) -> None:
    chain.register(NETUID, "//Owner2", coldkey="//Owner//cold", uid=0)
    place = kit.publish_toml(kit.competition(tmp_path / "c", dict.fromkeys(kit.SCORES, "0")), chain)
    assert isinstance(kit.sent(place, Passing(chain)), Confirmed)


REFUSED = [
    ("NotEnoughStakeToSetWeights", "StakeThreshold", 10**15),
    ("IncorrectWeightVersionKey", "WeightsVersionKey", 5),
    ("WeightVecLengthIsLow", "MinAllowedWeights", 4),
    ("NeuronNoValidatorPermit", "ValidatorPermit", [True, False, False, False, False]),
]
GLOBAL = ("StakeThreshold", "CommitRevealWeightsVersion")


@pytest.mark.parametrize(("code", "setting", "value"), REFUSED)
def test_what_the_chain_would_refuse_is_not_sent(place: Path, chain: Simulator, code: str, setting: str, value: object) -> None:
    chain.set(setting, *(() if setting in GLOBAL else (NETUID,)), value=value)
    found = kit.sent(place, Passing(chain))
    assert isinstance(found, Refusal), found
    assert (found.code, chain.included(), kit.states(place)) == (code, [], ["refused"])


def test_a_stranger_sets_no_weights(place: Path, chain: Simulator) -> None:
    chain.register(NETUID, "//Other", uid=ME)
    found = kit.sent(place, Passing(chain))
    assert isinstance(found, Refusal)
    assert found.code == "HotKeyNotRegisteredInSubNet"


def test_another_chain_or_subnet_is_refused(place: Path, chain: Simulator) -> None:
    for changes, code in (
        ({"chain": "0x" + "11" * 32}, "wrong-chain"),
        ({"chain": "finney"}, "wrong-chain"),
        ({"netuid": 9}, "SubnetNotExists"),
        ({"mechanism": 1}, "MechanismDoesNotExist"),
    ):
        kit.publish_toml(place, chain, **changes)
        for found in (kit.sent(place, Passing(chain)), kit.opened(place).compare(kit.planned(place)).outcome):
            assert isinstance(found, Refusal), found
            assert found.code == code


def test_a_version_key_is_sent(place: Path, chain: Simulator) -> None:
    chain.set("WeightsVersionKey", NETUID, value=5)
    kit.publish_toml(place, chain, version_key=7)
    assert isinstance(kit.sent(place, Passing(chain)), Confirmed)
    ((_, one),) = chain.included()
    assert {arg["name"]: arg["value"] for arg in one["call"]["call_args"]}["version_key"] == 7


def test_another_mechanism(place: Path, chain: Simulator) -> None:
    chain.mechanisms(NETUID, 2)
    kit.publish_toml(place, chain, mechanism=1)
    assert isinstance(kit.sent(place, Passing(chain)), Confirmed)
    ((_, one),) = chain.included()
    assert one["call"]["call_function"] == "set_mechanism_weights"
    assert (chain.weights(NETUID, ME), chain.weights(NETUID, ME, 1)) == ({}, WEIGHTS)


def test_what_only_a_block_refuses(place: Path, chain: Simulator) -> None:
    """Between looking and the block the chain has changed: the extrinsic is in a block and did nothing."""
    chain.guards(False)
    time = Passing(chain, lambda: chain.set("WeightsVersionKey", NETUID, value=99))
    found = kit.sent(place, time)
    assert isinstance(found, Refusal)
    assert (found.code, kit.states(place)[-2:]) == ("IncorrectWeightVersionKey", ["failed", "refused"])
    assert "did nothing" in found.what
    chain.set("WeightsVersionKey", NETUID, value=0)
    assert isinstance(kit.sent(place, time), Confirmed)
    assert [one["nonce"] for _, one in chain.included()] == [0, 1]


def test_a_block_that_says_too_fast_is_too_early(place: Path, chain: Simulator) -> None:
    chain.guards(False)
    time = Passing(chain, lambda: chain.set("LastUpdate", NETUID, value=[0, chain.chain.head.number, 0, 0, 0]))
    found = kit.sent(place, time)
    assert isinstance(found, TooEarly)
    assert kit.states(place)[-2:] == ["failed", "too-early"]


def test_a_pool_that_says_too_fast_is_asked_again(place: Path, chain: Simulator) -> None:
    chain.fault("error", "author_submitExtrinsic", code=1010, message="Invalid Transaction", data="Custom error: 6")
    time = Passing(chain)
    found = kit.sent(place, time)
    assert isinstance(found, Refusal)
    assert (found.code, kit.states(place)) == ("RateLimitExceeded", ["planned", "refused"])
    # It is still good: the same extrinsic is handed over again.
    assert isinstance(kit.sent(place, time), Confirmed)
    assert len(kit.tried(place)) == 1


def test_without_a_key_nothing_is_sent(place: Path, chain: Simulator) -> None:
    kit.publish_toml(place, chain, key=None)
    with pytest.raises(BadInput, match="name one of the keys"):
        kit.sent(place, Passing(chain))
    looked = kit.opened(place).compare(kit.planned(place))
    assert looked.outcome is None
    assert "account" in looked.notes[-1]


def test_the_pulse(place: Path, chain: Simulator) -> None:
    there = kit.opened(place).pulse()
    assert there is not None
    assert (there.now, there.last, there.tempo) == (chain.chain.head.number, None, 20)
    found = kit.sent(place, Passing(chain))
    assert isinstance(found, Confirmed)
    there = kit.opened(place).pulse()
    assert there is not None
    assert there.last == found.block


# Commitments


@pytest.fixture
def locked(tmp_path: Path, shared: Path) -> Iterator[tuple[Path, Simulator]]:
    with kit.subnet(commit=True) as chain:
        yield kit.publish_toml(kit.competition(tmp_path / "c"), chain), chain


def test_a_commitment_is_opened_and_read_back(locked: tuple[Path, Simulator]) -> None:
    place, chain = locked
    chain.opens("//Val", WEIGHTS)
    time = Passing(chain)
    found = kit.sent(place, time)
    assert isinstance(found, Sent), found
    assert found.opens is not None
    assert kit.states(place) == ["planned", "sent", "committed", "sent"]
    ((_, one),) = chain.included()
    assert one["call"]["call_function"] == "commit_timelocked_mechanism_weights"
    said = {arg["name"]: arg["value"] for arg in one["call"]["call_args"]}
    assert (said["netuid"], said["mecid"], said["commit_reveal_version"]) == (NETUID, 0, 4)
    # Until then it waits, and nothing else is sent.
    assert kit.sent(place, time) == found == kit.opened(place, time).confirm(kit.planned(place))
    chain.step(found.opens - chain.chain.head.number - 1)
    assert chain.weights(NETUID, ME) == {}
    chain.step()
    assert chain.weights(NETUID, ME) == WEIGHTS, "the block in which the chain opens it was foretold"
    assert kit.sent(place, time) == found, "it is not final yet"
    chain.step(3)
    assert isinstance(kit.opened(place, time).compare(kit.planned(place)).outcome, Confirmed)
    done = kit.sent(place, time)
    assert isinstance(done, Confirmed)
    assert done.transaction == found.transaction
    assert len(chain.included()) == 1
    assert kit.states(place)[-1] == "confirmed"
    assert kit.sent(place, time) == done


def test_a_commitment_that_does_not_open_is_told_and_made_anew(locked: tuple[Path, Simulator]) -> None:
    place, chain = locked
    chain.opens("//Val", None)
    time = Passing(chain)
    found = kit.sent(place, time)
    assert isinstance(found, Sent)
    chain.step(100)
    failed = kit.sent(place, time)
    assert isinstance(failed, Refusal)
    assert failed.code == "reveal-failed"
    assert kit.states(place)[-2:] == ["reveal-failed", "refused"]
    chain.opens("//Val", WEIGHTS)
    again = kit.sent(place, time)
    assert isinstance(again, Sent)
    assert again.transaction != found.transaction
    chain.step(50)
    assert isinstance(kit.sent(place, time), Confirmed)


def test_a_commitment_waits_for_the_beacon(locked: tuple[Path, Simulator]) -> None:
    place, chain = locked
    chain.pulses(False)
    chain.opens("//Val", WEIGHTS)
    time = Passing(chain)
    found = kit.sent(place, time)
    assert isinstance(found, Sent)
    assert found.opens is not None
    chain.step(found.opens - chain.chain.head.number + 4)
    assert kit.sent(place, time) == found
    chain.pulses(True)
    chain.step(4)
    assert isinstance(kit.sent(place, time), Confirmed)


def test_the_next_epoch_does_not_wait_for_the_one_before_to_open(locked: tuple[Path, Simulator]) -> None:
    place, chain = locked
    chain.set("WeightsSetRateLimit", NETUID, value=0)
    chain.opens("//Val", WEIGHTS)
    time = Passing(chain)
    assert isinstance(kit.sent(place, time), Sent)
    kit.settle(place, kit.SCORES, EPOCH + 1)
    assert isinstance(kit.sent(place, time, EPOCH + 1), Sent)
    assert len(chain.included()) == 2
    chain.step(50)
    assert isinstance(kit.sent(place, time, EPOCH + 1), Confirmed)
    assert [one.state for one in kit.tried(place)] == ["superseded", "confirmed"]


@pytest.mark.parametrize(
    ("setting", "value", "code"),
    [("CommitRevealWeightsVersion", 5, "IncorrectCommitRevealVersion"), ("Tempo", 0, "no-epochs")],
)
def test_a_commitment_that_cannot_be_made(locked: tuple[Path, Simulator], setting: str, value: int, code: str) -> None:
    place, chain = locked
    chain.set(setting, *(() if setting in GLOBAL else (NETUID,)), value=value)
    found = kit.sent(place, Passing(chain))
    assert isinstance(found, Refusal), found
    assert (found.code, chain.included()) == (code, [])


@pytest.mark.parametrize(("off", "words"), [(-121, "behind"), (121, "ahead of")])
def test_a_clock_that_is_wrong_would_lose_it(locked: tuple[Path, Simulator], off: int, words: str) -> None:
    place, chain = locked
    time = Passing(chain)
    right = time.wall()
    time.wall = lambda: right + off  # type: ignore[method-assign]
    found = kit.sent(place, time)
    assert isinstance(found, Refusal)
    assert found.code == "clock"
    assert f"121 seconds {words} the chain's" in found.what


def test_a_subnet_that_turns_to_commitments_in_between(place: Path, chain: Simulator) -> None:
    chain.guards(False)
    chain.opens("//Val", WEIGHTS)
    time = Passing(chain, lambda: chain.set("CommitRevealWeightsEnabled", NETUID, value=True))
    found = kit.sent(place, time)
    assert isinstance(found, Sent), found
    assert [one.state for one in kit.tried(place)] == ["failed", "committed"]


def test_an_old_runtime_takes_plain_weights_and_no_commitments(tmp_path: Path, shared: Path) -> None:
    with kit.subnet(extended=False) as chain:
        place = kit.publish_toml(kit.competition(tmp_path / "c"), chain)
        chain.step(100)
        assert isinstance(kit.sent(place, Passing(chain)), Confirmed)
        assert chain.weights(NETUID, ME) == WEIGHTS
        chain.set("CommitRevealWeightsEnabled", NETUID, value=True)
        chain.step(100)
        kit.settle(place, kit.SCORES, EPOCH + 1)
        found = kit.sent(place, Passing(chain), EPOCH + 1)
        assert isinstance(found, Refusal)
        assert found.code == "IncorrectCommitRevealVersion"


def test_a_runtime_that_has_no_such_call(locked: tuple[Path, Simulator], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a commitment to the first mechanism an older name is tried before it is refused."""
    place, chain = locked

    class Older:
        """A runtime that does not know some calls."""

        def __init__(self, runtime: Any, *unknown: str) -> None:
            self.runtime, self.unknown = runtime, unknown

        def __getattr__(self, name: str) -> Any:
            return getattr(self.runtime, name)

        def compose_call(self, pallet: str, name: str, said: dict[str, Any]) -> bytes:
            if name in self.unknown:
                raise ValueError(f"call {pallet}.{name} not found")
            return bytes(self.runtime.compose_call(pallet, name, said))

    real, unknown = Node.runtime, ["commit_timelocked_mechanism_weights", "commit_timelocked_weights"]
    monkeypatch.setattr(Node, "runtime", lambda self, at=None: Older(real(self, at), *unknown))
    found = kit.sent(place, Passing(chain))
    assert isinstance(found, Refusal)
    assert (found.code, chain.included()) == ("runtime", [])
    unknown.pop()
    assert isinstance(kit.sent(place, Passing(chain)), Sent)
    ((_, one),) = chain.included()
    assert one["call"]["call_function"] == "commit_timelocked_weights"


# Several competitions


def joined(place: Path, there: Simulator) -> Path:
    """Two competitions with ledgers, 60 % and 30 %, and a subnet file over them."""
    kit.competition(place / "one", {"//M1": "0.5", "//M2": "0.5"}, uids={"//M1": 2, "//M2": 3}, name="one")
    kit.competition(place / "two", {"//M2": "0.2", "//M3": "0.2"}, uids={"//M2": 3, "//M3": 4}, name="two")
    parts = "".join(f'[[competitions]]\npath = "{name}"\nshare = "{share}"\n' for name, share in (("one", "60%"), ("two", "30%")))
    (place / "subnet.toml").write_text("burn_uid = 0\n" + parts)
    kit.publish_toml(place, there)
    return place / "subnet.toml"


def test_a_subnets_competitions_are_joined(tmp_path: Path, chain: Simulator) -> None:
    file, time = joined(tmp_path, chain), Passing(chain)
    plan = kit.opened(tmp_path).plan(settled.joined(file))
    assert [row["share"] for row in plan.content["weights"]] == ["9/20", "3/10", "3/20"]
    assert plan.content["burn"]["share"] == "1/10"
    found = kit.opened(tmp_path, time).send(plan, time.told.append)
    assert isinstance(found, Confirmed)
    # 0.3, 0.45, 0.15 and 0.1, the largest 65535.
    assert chain.weights(NETUID, ME) == {0: 14563, 2: 43690, 3: 65535, 4: 21845}
    assert kit.states(tmp_path) == ["planned", "sent", "confirmed"]


def test_a_competition_without_a_receipt_is_not_joined(tmp_path: Path, chain: Simulator) -> None:
    file = joined(tmp_path, chain)
    kit.settle(tmp_path / "one", {"//M1": "0.9"}, EPOCH + 1)
    with pytest.raises(CannotSettle, match="epoch 4 of two has no receipt"):
        settled.joined(file, EPOCH + 1)
    with pytest.raises(CannotSettle, match="not settled into payouts"):
        scores_of(settled.joined(file, EPOCH))


# As it is typed


def typed(*words: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["publish", *map(str, words)], prog_name="assay")
    return done.exit_code, done.output


def test_the_command(tmp_path: Path, shared: Path) -> None:
    with kit.subnet(block_time=0.1) as there:
        place = kit.publish_toml(kit.competition(tmp_path / "c"), there)
        there.register(NETUID, "//Stranger", uid=4)
        code, said = typed(place, "--to", "sn")
        assert code == 0
        assert "Nothing was sent: --yes sends it." in said
        assert "to be set" in said
        assert re.search(r"burn +uid 0 +10923  new", said), said
        assert "gets nothing, its weight burns: uid 4 has the hotkey" in " ".join(said.split())
        code, said = typed(place, "--to", "sn", "--yes")
        assert code == 0, said
        assert re.search(r"It is there, in block \d+, by 0x[0-9a-f]{64}\.", " ".join(said.split()))
        code, said = typed(place, "--to", "sn", "--json")
        found = json.loads(said)
        assert found["outcome"]["state"] == "confirmed"
        assert found["held"] == {"uid 0": "10923", "uid 2": "65535", "uid 3": "32768"}
        assert {row["account"]: row["value"] for row in found["lines"]}["uid 4"] == "0"
        kit.settle(place, kit.SCORES, EPOCH + 1)
        code, said = typed(place, "--to", "sn", "--yes")
        assert (code, "It is too early" in said) == (0, True)
        subnet_file = joined(tmp_path / "s", there)
        code, said = typed(subnet_file, "--to", "sn")
        assert (code, "It is too early" in said) == (0, True), said


def test_the_command_about_a_commitment(tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kit.subnet(commit=True, block_time=0.1) as there:
        place = kit.publish_toml(kit.competition(tmp_path / "c"), there)
        monkeypatch.setattr(publisher, "Clock", partial(Clock, wall=Passing(there).wall))
        code, said = typed(place, "--to", "sn", "--yes")
        assert code == 1
        assert re.search(
            r"It is in the chain, locked, by 0x[0-9a-f]{64}\. The chain opens it about block \d+", " ".join(said.split())
        )
