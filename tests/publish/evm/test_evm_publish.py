"""Scores of a settled epoch to the oracle, on a real node: what is sent, what is not, and what is known of it afterwards."""

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import ledger_kit
import publish_kit as kit
from assay.errors import BadInput, CannotSettle, Refused
from assay.ledger import settling
from assay.publish import publishers, settled_epoch
from assay.publish.evm.contracts import ORACLE
from assay.publish.outcome import Confirmed, Outcome, Refusal, TooEarly
from evm_kit import ETHER, NOBODY, EvmWorld
from publish_kit import EPOCH, PassingTime, with_keys

__all__ = ["with_keys"]  # a fixture

SCORES = {"m1": 9000, "m2": 6000, "m3": None, "m4": 3000}
pytestmark = pytest.mark.usefixtures("with_keys")


@pytest.fixture
def place(world: EvmWorld, tmp_path: Path) -> Path:
    """A settled epoch, and a round in which everybody has committed and scores are taken."""
    world.open()
    world.commit(*world.agents[:4])
    world.close()
    return kit.publish_toml(kit.competition(tmp_path / "small", world, SCORES), world)


def refusal(outcome: Outcome | None, code: str) -> Refusal:
    assert isinstance(outcome, Refusal), outcome
    assert outcome.code == code, outcome
    return outcome


def paid(world: EvmWorld) -> dict[str, int]:
    world.settle()
    return {name: world.owed(agent) for name, agent in zip(SCORES, world.agents, strict=False)}


def test_what_was_settled_is_what_the_oracle_is_told(place: Path, world: EvmWorld) -> None:
    plan = kit.planned(place)
    assert [(line.participant, line.value) for line in plan.lines] == [("m1", "9000 BPS"), ("m2", "6000 BPS"), ("m4", "3000 BPS")]
    assert plan.left_out == (("m3", "unjudged"),)
    before = kit.opened(place).compare(plan)
    assert (before.held, before.outcome, before.notes) == ({}, None, [])

    outcome = kit.sent(place)
    assert isinstance(outcome, Confirmed)
    assert outcome.transaction is not None
    receipt, rows = world.scores()
    with ledger_kit.opened(place) as ledger:
        epoch = settled_epoch.read(ledger, EPOCH)
    assert f"sha256:{receipt.hex()}" == epoch.receipt
    assert all(record.attestation for records in epoch.judgements.values() for record in records), "a plain run names it"
    proof = dict.fromkeys(SCORES, bytes(32))  # which attests nothing
    assert rows == sorted(
        [(world.agents[0], 9000, proof["m1"]), (world.agents[1], 6000, proof["m2"]), (world.agents[3], 3000, proof["m4"])],
        key=lambda row: row[0].lower(),
    )
    # And what it pays by them is what was settled.
    expected = {row["participant"]: int(row["net"]) for row in epoch.settlement["payouts"]}
    assert paid(world) == {"m3": 0} | expected
    assert world.owed(world.sponsor) == int(epoch.settlement["refund"])
    after = kit.opened(place).compare(plan)
    assert after.held == {world.agents[0]: "9000 BPS", world.agents[1]: "6000 BPS", world.agents[3]: "3000 BPS"}


def test_the_journal_has_it_before_it_is_sent_and_what_became_of_it(place: Path, world: EvmWorld) -> None:
    outcome = kit.sent(place)
    assert isinstance(outcome, Confirmed)
    planned, gone, confirmed = kit.journal(place)
    assert [entry["state"] for entry in (planned, gone, confirmed)] == ["planned", "sent", "confirmed"]
    assert planned["hash"] == gone["hash"] == confirmed["hash"] == outcome.transaction
    assert (planned["account"], planned["nonce"], planned["subject"]) == (world.scorer, 0, "epoch 3")
    assert planned["plan"] == kit.planned(place).digest
    assert not (place / "published").exists()
    key = kit.environment()["KEY_SCORER"][2:]
    assert not any(key in line.lower() for line in map(json.dumps, kit.journal(place)))


def test_sent_again_it_is_found_to_be_there(place: Path, world: EvmWorld) -> None:
    first = kit.sent(place)
    assert isinstance(first, Confirmed)
    for _ in range(2):
        again = kit.sent(place)
        assert isinstance(again, Confirmed)
        assert again.transaction is None
    assert kit.nonce(world, world.scorer) == 1
    assert isinstance(kit.opened(place).confirm(kit.planned(place)), Confirmed)
    assert kit.states(place) == ["planned", "sent", "confirmed", "confirmed"]


def test_before_it_is_sent_the_oracle_does_not_have_it(place: Path) -> None:
    assert kit.opened(place).confirm(kit.planned(place)).state == "unknown"


def test_too_early_is_no_failure(world: EvmWorld, tmp_path: Path) -> None:
    world.open()
    world.commit(*world.agents[:4])
    place = kit.publish_toml(kit.competition(tmp_path / "small", world, SCORES), world)
    outcome = kit.sent(place)
    assert isinstance(outcome, TooEarly)
    assert (outcome.at, outcome.unit, outcome.ok) == (world.terms["commitUntil"] + 1, "time", True)
    world.chain.at(outcome.at)
    assert isinstance(kit.sent(place), Confirmed)
    assert kit.states(place)[0] == "too-early"


def test_somebody_else_pays_for_what_the_scorer_signed(place: Path, world: EvmWorld) -> None:
    kit.publish_toml(place, world, key="relayer", scorer="scorer")
    assert isinstance(kit.sent(place), Confirmed)
    assert (kit.nonce(world, world.scorer), kit.nonce(world, kit.key_of(3).address)) == (0, 1)
    assert len(world.scores()[1]) == 3


def test_scores_that_somebody_else_submitted_are_confirmed_or_refused(place: Path, world: EvmWorld) -> None:
    plan = kit.planned(place)
    rows = [(row["agent"], row["bps"], bytes.fromhex(row["attestation"][2:])) for row in plan.content["scores"]]
    receipt = bytes.fromhex(plan.receipt[7:])
    begun = world.chain.ask("evm_snapshot")
    world.chain.send(world.oracle.functions.submit(world.round.address, receipt, rows), world.scorer)
    before = kit.nonce(world, world.scorer)
    assert isinstance(kit.sent(place), Confirmed)
    assert kit.nonce(world, world.scorer) == before
    for wrong, other in ((receipt[::-1], rows), (receipt, rows[:2]), (receipt, [(*rows[0][:2], b"\1" * 32), *rows[1:]])):
        world.chain.ask("evm_revert", begun)
        begun = world.chain.ask("evm_snapshot")
        world.chain.send(world.oracle.functions.submit(world.round.address, wrong, other), world.scorer)
        assert wrong.hex() in refusal(kit.sent(place), "already-submitted").what
    assert kit.states(place)[-1] == "refused"


def test_others_scores_are_relied_on_when_they_are_deep_enough(place: Path, world: EvmWorld) -> None:
    kit.publish_toml(place, world, confirmations=5)
    plan = kit.planned(place)
    rows = [(row["agent"], row["bps"], bytes.fromhex(row["attestation"][2:])) for row in plan.content["scores"]]
    submit = world.oracle.functions.submit(world.round.address, bytes.fromhex(plan.receipt[7:]), rows)
    world.chain.send(submit, world.scorer)
    assert "less than 5 blocks deep" in getattr(kit.sent(place), "what", "")
    world.chain.ask("anvil_mine", "0x4")
    assert isinstance(kit.sent(place), Confirmed)


# What is not sent


def test_a_round_that_would_pay_anything_else_is_told_nothing(world: EvmWorld, tmp_path: Path) -> None:
    world.open(deposit=ETHER + 1)
    world.commit(*world.agents[:4])
    world.close()
    place = kit.publish_toml(kit.competition(tmp_path / "small", world, SCORES), world)
    outcome = refusal(kit.sent(place), "payouts-differ")
    assert outcome.what == f"fees {15 * ETHER // 1000 + 75 * ETHER // 10000} and refund" + outcome.what.partition("refund")[2]
    assert world.scores()[1] == []


def test_a_tie_that_the_chain_decides_otherwise_is_not_published(world: EvmWorld, tmp_path: Path) -> None:
    """m1 handed in first by participants.csv; on the chain it committed later."""
    world.open()
    world.commit(world.agents[1])
    world.chain.at(world.chain.now + 10)
    world.commit(world.agents[0])
    world.close()
    place = kit.publish_toml(kit.competition(tmp_path / "small", world, {"m1": 9000, "m2": 9000}), world)
    outcome = refusal(kit.sent(place), "payouts-differ")
    assert outcome.what.startswith(f"place 1 would be paid {ETHER * 6 // 10} (fee {ETHER * 15 // 1000}) to {world.agents[1]}")


def test_who_did_not_commit_is_left_out_where_that_changes_nothing(world: EvmWorld, tmp_path: Path) -> None:
    world.open()
    world.commit(*world.agents[:2])
    world.close()
    place = kit.publish_toml(kit.competition(tmp_path / "small", world, SCORES), world)
    notes = kit.opened(place).compare(kit.planned(place)).notes
    assert notes == [f"{world.agents[3]} has not committed on the chain, and is left out"]
    assert isinstance(kit.sent(place), Confirmed)
    assert len(world.scores()[1]) == 2
    assert isinstance(kit.sent(place), Confirmed)


def test_a_winner_who_did_not_commit_holds_it_up(world: EvmWorld, tmp_path: Path) -> None:
    world.open()
    world.commit(world.agents[1])
    world.close()
    place = kit.publish_toml(kit.competition(tmp_path / "small", world, SCORES), world)
    outcome = refusal(kit.sent(place), "payouts-differ")
    assert f"to {world.agents[1]}, but the settlement says {ETHER * 6 // 10}" in outcome.what


def test_a_participant_without_an_address(world: EvmWorld, tmp_path: Path) -> None:
    world.open()
    world.commit(*world.agents[:2])
    world.close()
    place = kit.publish_toml(kit.competition(tmp_path / "small", world, SCORES, m4=""), world)
    plan = kit.planned(place)
    assert plan.left_out == (("m4", "has no address in participants.csv"), ("m3", "unjudged"))
    assert isinstance(kit.sent(place), Confirmed)
    winner = kit.publish_toml(kit.competition(tmp_path / "winner", world, SCORES, m2=""), world)
    with pytest.raises(BadInput, match=r"m2 is to be paid and has no address; fill it in"):
        kit.planned(winner)


def test_two_participants_with_one_address(world: EvmWorld, tmp_path: Path) -> None:
    world.open()
    place = kit.competition(tmp_path / "small", world, SCORES, m2=world.agents[0].lower())
    kit.publish_toml(place, world)
    with pytest.raises(BadInput, match=r"m1 and m2 have the same address"):
        kit.planned(place)


def test_weights_are_not_payouts(world: EvmWorld, tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small")
    ledger_kit.add(place, ledger_kit.records())
    with ledger_kit.opened(place) as ledger:
        settling.settle(ledger, ledger_kit.SIGNER, 3)
        world.make()
        kit.publish_toml(place, world)
        with pytest.raises(CannotSettle, match=r"epoch 3 is not settled into payouts"):
            kit.opened(place).plan(settled_epoch.read(ledger, 3))


def test_only_a_settled_epoch_is_published(place: Path) -> None:
    with ledger_kit.opened(place) as ledger:
        assert settled_epoch.read(ledger).epoch == EPOCH
        with pytest.raises(CannotSettle, match="epoch 4 has no receipt"):
            settled_epoch.read(ledger, 4)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("table", "column", "old", "new", "stage"),
    [
        ("settlements", "document", '"net":"585', '"net":"586', "settlement"),
        ("settlements", "document", '"bps":9000', '"bps":9999', "settlement"),
        ("inputs", "document", '"address":"0x', '"address":"0X', "inputs"),
        ("receipts", "envelope", '"sig":"', "", "receipt"),
    ],
)
def test_what_is_not_as_it_was_signed_is_not_published(
    place: Path, table: str, column: str, old: str, new: str, stage: str
) -> None:
    """Somebody changed the ledger's database: a payout, a score, an address, a signature."""
    with closing(sqlite3.connect(place / "ledger.db")) as database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f"DROP TRIGGER {name}")
        ((before,),) = database.execute(f"SELECT {column} FROM {table}").fetchall()
        at = before.index(old.encode()) + len(old)
        other = b"B" if before[at : at + 1] == b"A" else b"A"  # of a signature, its first character
        after = before.replace(old.encode(), new.encode(), 1) if new else before[:at] + other + before[at + 1 :]
        database.execute(f"UPDATE {table} SET {column} = ?", (after,))
        database.commit()
    with pytest.raises(Refused, match=rf"^{stage}: "):
        kit.planned(place)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"chain_id": 1}, "wrong-chain"),
        ({"oracle": "0x" + "11" * 20}, "wrong-oracle"),
        ({"round": "0x" + "11" * 20}, "wrong-contract"),
        ({"key": "sponsor"}, "not-the-scorer"),
        ({"only_scorer": "0x" + "11" * 20}, "wrong-terms"),
        ({"token": "0x" + "11" * 20}, "wrong-terms"),
    ],
)
def test_what_is_wrong_with_the_target_is_said_before_anything_is_signed(
    place: Path, world: EvmWorld, changes: dict[str, Any], code: str
) -> None:
    kit.publish_toml(place, world, **changes)
    refusal(kit.sent(place), code)
    assert not [entry for entry in kit.journal(place) if "raw" in entry]


def test_oracle_and_round_are_not_mistaken_for_each_other(place: Path, world: EvmWorld) -> None:
    kit.publish_toml(place, world, round=world.oracle.address)
    refusal(kit.sent(place), "wrong-contract")


def test_scores_go_where_the_round_looks_for_them(place: Path, world: EvmWorld) -> None:
    """The same oracle somewhere else would take them too, and nobody would ever look at them there."""
    other = world.chain.deploy(ORACLE)
    kit.publish_toml(place, world, oracle=other.address)
    assert world.oracle.address in refusal(kit.sent(place), "wrong-oracle").what
    assert kit.nonce(world, world.scorer) == 0


def test_without_the_extra_it_is_said_how_to_get_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "web3", None)
        with pytest.raises(BadInput, match=r"Ethereum needs the package web3; install Assay with it: pip install 'assay\[evm\]'"):
            kit.planned(place)


def test_the_scorer_is_known_without_its_key_where_publish_toml_names_it(place: Path, world: EvmWorld) -> None:
    text = (place / "publish.toml").read_text()
    text = text.replace('env = "KEY_SCORER"', f'env = "KEY_NOBODY"\naccount = "{world.sponsor}"')
    (place / "publish.toml").write_text(text)
    refusal(kit.opened(place).compare(kit.planned(place)).outcome, "not-the-scorer")


def test_a_round_of_another_scorer(world: EvmWorld, tmp_path: Path) -> None:
    world.open(scorer=world.admin)
    world.commit(*world.agents[:4])
    world.close()
    place = kit.publish_toml(kit.competition(tmp_path / "small", world, SCORES), world)
    refusal(kit.sent(place), "not-the-scorer")


def test_after_the_deadline_it_is_too_late(place: Path, world: EvmWorld) -> None:
    world.expire()
    outcome = refusal(kit.sent(place), "too-late")
    assert "refunds the sponsor" in outcome.hint


def test_an_account_without_coin_says_so(place: Path, world: EvmWorld) -> None:
    world.chain.ask("anvil_setNextBlockBaseFeePerGas", hex(10**9))
    world.chain.ask("evm_mine")
    world.chain.ask("anvil_setBalance", world.scorer, "0x1")
    refusal(kit.sent(place), "funds")


def test_where_gas_is_dearer_than_allowed_nothing_is_sent(place: Path, world: EvmWorld) -> None:
    kit.publish_toml(place, world, max_fee_gwei="5")
    world.chain.ask("anvil_setNextBlockBaseFeePerGas", hex(50 * 10**9))
    world.chain.ask("evm_mine")
    outcome = refusal(kit.sent(place), "fees")
    assert "but at most 5 is allowed" in outcome.what


def test_nobody_scored_is_published_too(world: EvmWorld, tmp_path: Path) -> None:
    world.open()
    world.commit(*world.agents[:2])
    world.close()
    place = kit.publish_toml(kit.competition(tmp_path / "small", world, {"m1": None, "m2": None}), world)
    assert isinstance(kit.sent(place), Confirmed)
    world.settle()
    assert world.owed(world.sponsor) == ETHER


def test_a_round_that_nobody_named_is_asked_for(place: Path, world: EvmWorld) -> None:
    kit.publish_toml(place, world, round=None)
    with pytest.raises(
        BadInput, match=r"publish.toml:1: targets.local.round: is missing; create the contract with `assay bounty create`"
    ):
        kit.planned(place)


def test_a_kind_that_nobody_publishes_to(place: Path, world: EvmWorld) -> None:
    from assay.publish.publishers import open_publisher

    kit.publish_toml(place, world, kind="fax")
    with pytest.raises(BadInput, match=r"publish.toml:2: targets.local.kind: there is no publisher of the kind 'fax', only"):
        open_publisher(publishers.read_target(place, "local"))
    kit.publish_toml(place, world)
    assert open_publisher(publishers.read_target(place, "local")).plan is not None


def test_zero_is_no_address(place: Path, world: EvmWorld) -> None:
    kit.publish_toml(place, world, round=NOBODY)
    with pytest.raises(BadInput, match=r"publish.toml:8: targets.local.round: is the zero address, which nobody owns"):
        kit.planned(place)


def test_time_passes_only_where_it_must(place: Path) -> None:
    time = PassingTime()
    assert isinstance(kit.sent(place, time), Confirmed)
    assert time.seconds <= 2
    assert len(time.messages) == 1
