"""A bounty on a chain through the commands alone: from the oracle to the last claim, as sponsor, agent and operator type them."""

import json
from pathlib import Path

import pytest

import ledger_kit
from assay.enclave import sealing
from assay.ledger import keys
from assay.publish.evm.contracts import oracle_address
from assay.publish.evm.libraries import checksum
from assay.scheme.bounty import read_bounty
from cli_kit import output, refused, run
from evm_commands_kit import P1, P2, P3, PEOPLE, account, bounty, judged, opened, place, printed, target
from evm_kit import ETHER, HOUR, AnvilChain
from publish_kit import with_keys

__all__ = ["place", "with_keys"]  # fixtures

pytestmark = pytest.mark.usefixtures("with_keys")


def test_from_the_oracle_to_the_deposit(place: Path, chain: AnvilChain) -> None:
    # The operator makes an oracle, the sponsor the bounty's contract, and puts the deposit in.
    assert bounty("oracle", place, yes=False)["outcome"] == {"state": "planned"}
    early = bounty("create", place, key="sponsor", yes=False, code=1)
    assert early["outcome"]["code"] == "no-oracle"
    oracle = bounty("oracle", place)
    assert (oracle["outcome"]["state"], oracle["oracle"]) == ("confirmed", oracle_address())
    assert bounty("oracle", place, key="sponsor")["oracle"] == oracle["oracle"], "there is one on a chain"
    looked = bounty("create", place, key="sponsor", yes=False)
    assert looked["outcome"] == {"state": "planned"}
    assert looked["actions"][0]["bounty"] == read_bounty(place).digest
    created = bounty("create", place, key="sponsor")
    assert created["round"].startswith("0x")
    assert bounty("create", place, key="sponsor")["round"] == created["round"], "made again, it is the one that is there"
    shown = printed("bounty", "show", place, "--to", "local")
    assert (shown["state"], shown["differences"], shown["terms"]["sponsor"]) == ("unfunded", [], account(1))
    bounty("fund", place, key="sponsor")
    before = chain.balance(created["round"])
    assert bounty("fund", place, key="sponsor")["outcome"]["state"] == "confirmed"
    assert chain.balance(created["round"]) == before == ETHER


@pytest.mark.full
def test_from_the_commitments_to_the_last_claim(place: Path, chain: AnvilChain) -> None:
    # Three agents commit: by what `assay commit` wrote, and by a digest.
    opened(place, chain)
    digest = read_bounty(place).digest
    secret = sealing.new_secret(digest, P1, "sha256:" + "11" * 32)
    (place / "one.salt").write_bytes(secret.data)
    signed = sealing.sign_commitment(sealing.new_secret(digest, P2, "sha256:" + "22" * 32), PEOPLE[P2])
    (place / "two.json").write_bytes(signed.envelope)
    assert bounty("commit", place, place / "one.salt", key="one")["actions"][0]["commitment"] == secret.commitment
    bounty("commit", place, place / "two.json", key="two")
    assert bounty("commit", place, place / "one.salt", key="one")["outcome"]["state"] == "confirmed"
    bounty("commit", place, "sha256:" + "33" * 32, key="three")
    document = printed("bounty", "show", place, "--to", "local")
    assert (document["state"], document["commitments"], document["held"]) == ("open", 3, str(ETHER))

    # It is too early for scores; then the epoch is published, and the deposit divided.
    judged(place, chain, {P1: 9000, P2: 6000, P3: None})
    early = printed("publish", place, "--to", "local", "--yes")
    assert early["outcome"]["state"] == "too-early"
    assert "It can be sent from 20" in " ".join(output("publish", place, "--to", "local").split())
    assert bounty("settle", place)["outcome"]["state"] == "too-early"
    chain.at(chain.now + HOUR + 1)
    dry = output("publish", place, "--to", "local", columns=200)
    assert "Nothing was sent: --yes sends it." in dry
    assert "9000 BPS  new" in dry
    assert f"{P3} is left out: unjudged." in dry
    sent = printed("publish", place, "3", "--to", "local", "--yes")
    assert sent["outcome"]["state"] == "confirmed"
    assert sent["held"] == {account(7): "9000 BPS", account(8): "6000 BPS"}
    assert "The chain has it, in block" in output("publish", place, "--to", "local", "--yes")
    assert bounty("settle", place)["outcome"]["state"] == "confirmed"

    # Each winner fetches their payment.
    with ledger_kit.opened(place) as ledger, ledger.store.reading() as view:
        kept = view.settlement(3)
    assert kept is not None
    settlement = json.loads(kept.document)
    assert [row["attestation"] for row in printed("bounty", "show", place, "--to", "local")["scores"]] == [None] * 2
    owed = {row["account"]: int(row["amount"]) for row in printed("bounty", "show", place, "--to", "local")["owed"]}
    nets = {checksum(row["address"]): int(row["net"]) for row in settlement["payouts"]}
    assert owed == nets | {account(6): int(settlement["fees"])}
    assert sum(owed.values()) + int(settlement["refund"]) == ETHER
    other = "0x" + "00" * 19 + "99"
    claimed = bounty("claim", place, "--receiver", other, key="one")["actions"][0]
    assert (claimed["amount"], claimed["to"]) == (str(nets[account(7)]), checksum(other))
    assert chain.balance(other) == nets[account(7)]
    assert bounty("claim", place, key="one")["outcome"]["state"] == "confirmed"
    assert bounty("claim", place, key="three", code=1)["outcome"]["code"] == "nothing-owed"
    assert "settled" in output("bounty", "show", place, "--to", "local")

    # All of it, whoever sent it, is in the one journal: the ledger's.
    assert not (place / "published").exists()
    rows = [(row["subject"], row["states"]) for row in printed("attempts", place)["targets"]["local"]]
    whole = ["planned", "sent", "confirmed"]
    assert ("epoch 3", ["too-early", *whole]) in rows
    assert [states for subject, states in rows if subject == "bounty claim"] == [whole, ["refused"]]


def test_no_scores_in_time_and_the_sponsor_has_it_back(place: Path, chain: AnvilChain) -> None:
    opened(place, chain)
    bounty("commit", place, "0x" + "33" * 32, key="three")
    assert bounty("refund", place, key="sponsor")["outcome"]["state"] == "too-early"
    assert bounty("claim", place, key="sponsor")["outcome"]["state"] == "too-early"
    chain.at(chain.now + 2 * HOUR + 2)
    assert "gives the deposit back" in output("bounty", "show", place, "--to", "local")
    before = chain.balance(account(1))
    done = bounty("refund", place, key="sponsor")
    assert [action["subject"] for action in done["actions"]] == ["bounty settle", "bounty claim"]
    assert chain.balance(account(1)) > before + ETHER * 99 // 100
    assert bounty("refund", place, key="sponsor")["outcome"]["state"] == "confirmed"
    judged(place, chain, {P1: 9000})
    assert printed("publish", place, "--to", "local", "--yes", code=1)["outcome"]["code"] == "not-open"


def test_a_bounty_in_a_token(place: Path, chain: AnvilChain) -> None:
    token = chain.deploy("GoodToken")
    target(place, chain, token=token.address)
    bounty("oracle", place)
    address = bounty("create", place, key="sponsor")["round"]
    assert bounty("fund", place, key="sponsor", code=1)["outcome"]["code"] == "funds"
    chain.send(token.functions.mint(account(1), ETHER))
    done = bounty("fund", place, key="sponsor")
    assert [action["subject"] for action in done["actions"]] == ["bounty approve", "bounty fund"]
    assert chain.balance(address, token) == ETHER
    assert bounty("fund", place, key="sponsor")["outcome"]["state"] == "confirmed"
    chain.at(chain.now + HOUR + 1)
    bounty("refund", place, key="sponsor")
    assert chain.balance(account(1), token) == ETHER


# What is refused


def test_a_contract_that_is_not_what_bounty_toml_says(place: Path, chain: AnvilChain) -> None:
    opened(place, chain)
    text = (place / "bounty.toml").read_text()
    (place / "bounty.toml").write_text(text.replace(str(ETHER), str(ETHER * 2)).replace("fee_bps = 250", "fee_bps = 100"))
    document = printed("bounty", "show", place, "--to", "local", code=1)
    assert {row["field"]: (row["there"], row["here"]) for row in document["differences"]} == {
        "bounty": (document["terms"]["bounty"], read_bounty(place).digest),
        "deposit": (str(ETHER), str(2 * ETHER)),
        "fee_bps": ("250", "100"),
    }
    assert "Its terms differ from bounty.toml and publish.toml" in run("bounty", "show", place, "--to", "local", code=1).stdout
    for command, words in (("fund", []), ("commit", ["sha256:" + "33" * 32])):
        document = bounty(command, place, *words, key="one", code=1)
        assert document["outcome"]["code"] == "wrong-terms"
    (place / "bounty.toml").write_text(text.replace("commitments_until", "submissions_until"))
    assert "commitments_until" in " ".join(run("bounty", "show", place, "--to", "local", code=1).stdout.split())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("commitments_until", "submissions_until", "bounty.commitments_until: is missing; a contract needs both deadlines"),
        ("scoring_deadline = ", "#", "payout.scoring_deadline: is missing"),
        (f'"{ETHER}"', '"0"', "payout.deposit: is 0; a round holds a deposit"),
        ('Z\n[[checks]]\nid = "c1"', '.5Z\n[[checks]]\nid = "c1"', "is finer than a second; chains count seconds"),
        ("[7000, 3000]", f"{[300] * 33 + [100]}", "payout.split: has 34 entries; the contract accepts 32"),
    ],
)
def test_terms_that_no_contract_takes(place: Path, chain: AnvilChain, old: str, new: str, message: str) -> None:
    text = (place / "bounty.toml").read_text()
    assert old in text
    (place / "bounty.toml").write_text(text.replace(old, new))
    assert message in refused("bounty", "create", place, "--to", "local", "--as", "sponsor")


def test_a_fee_that_nobody_gets(place: Path, chain: AnvilChain) -> None:
    target(place, chain, fee_recipient=None)
    assert "there is a fee, but no account receives it" in refused("bounty", "create", place, "--to", "local", "--as", "sponsor")


def test_deadlines_that_are_over_make_no_contract(place: Path, chain: AnvilChain) -> None:
    bounty("oracle", place)
    chain.at(chain.now + HOUR)
    document = bounty("create", place, key="sponsor", code=1)
    assert (document["outcome"]["code"], document["outcome"]["what"]) == (
        "bad-terms",
        "the contract does not accept the terms: commitUntil is wrong",
    )


def test_what_is_no_commitment_of_this_bounty_and_account(place: Path, chain: AnvilChain) -> None:
    opened(place, chain)
    digest = read_bounty(place).digest

    def commit(file: Path, *, key: str = "one") -> str:
        return refused("bounty", "commit", place, file, "--to", "local", "--as", key)

    assert "no such file; give sha256:…" in commit(place / "nothing")
    assert "does not hold the salt of a commitment" in commit(place / "scheme.toml")
    (place / "other.salt").write_bytes(sealing.new_secret("sha256:" + "00" * 32, P1, "sha256:" + "11" * 32).data)
    assert f"belongs to another bounty, sha256:{'00' * 32}; this one is {digest}" in commit(place / "other.salt")
    (place / "one.salt").write_bytes(sealing.new_secret(digest, P1, "sha256:" + "11" * 32).data)
    assert f"participants.csv:2: address: {P1} is paid at {account(7)}, but {account(8)} would commit" in commit(
        place / "one.salt", key="two"
    )
    stranger = keys.read(b"99" * 32)
    (place / "x.salt").write_bytes(sealing.new_secret(digest, stranger.public.raw.hex(), "sha256:" + "11" * 32).data)
    assert "has no participant" in commit(place / "x.salt")
    bounty("commit", place, "sha256:" + "33" * 32, key="one")
    assert bounty("commit", place, "sha256:" + "34" * 32, key="one", code=1)["outcome"]["code"] == "already-committed"


def test_what_is_typed_wrongly(place: Path, chain: AnvilChain) -> None:
    assert "exclude each other" in run("publish", place, "--to", "local", "--yes", "--dry-run", code=2).stderr
    assert "there is no target 'main', only: local" in refused("publish", place, "--to", "main")
    assert "targets.local.round: is missing; create the contract with `assay bounty create`" in refused(
        "bounty", "fund", place, "--to", "local", "--as", "sponsor"
    )
    target(place, chain, only_scorer=None)
    assert "targets.local.only_scorer: is missing; write the account whose scores count" in refused(
        "bounty", "create", place, "--to", "local", "--as", "sponsor"
    )
    assert "there is no key 'nobody'" in refused("bounty", "oracle", place, "--to", "local", "--as", "nobody")
    (place / "bounty.toml").unlink()
    assert "there is no bounty to create a contract for" in refused("bounty", "create", place, "--to", "local")
    text = (place / "publish.toml").read_text()
    (place / "publish.toml").write_text(text.replace('"evm"', '"fax"'))
    assert "targets.local: is of the kind 'fax'; a bounty is on an Ethereum chain" in refused(
        "bounty", "show", place, "--to", "local"
    )


def test_an_address_that_is_typed_wrongly(place: Path, chain: AnvilChain) -> None:
    opened(place, chain)
    assert "--receiver: is not an EVM address" in refused("bounty", "claim", place, "--to", "local", "--receiver", "me")


def test_a_node_that_is_not_there(place: Path, chain: AnvilChain) -> None:
    target(place, chain, rpc="http://127.0.0.1:1", round="0x" + "22" * 20)
    document = bounty("fund", place, key="sponsor", yes=False, code=1)
    assert document["outcome"]["state"] == "unknown"
    assert "127.0.0.1:1 does not answer" in refused("bounty", "show", place, "--to", "local", code=1)
    judged(place, chain, {P1: 9000})
    document = printed("publish", place, "--to", "local", code=1)
    assert (document["outcome"]["state"], document["held"], len(document["lines"])) == ("unknown", None, 1)
    shown = " ".join(run("publish", place, "--to", "local", code=1).stdout.split())
    assert "there now" not in shown
    assert "Nothing was sent. " in shown
    assert "Not known: the state of the chain: 127.0.0.1:1 does not answer" in shown
    assert shown.endswith("and the node running?")


def test_another_chain_than_publish_toml_says(place: Path, chain: AnvilChain) -> None:
    target(place, chain, chain_id=1, round="0x" + "22" * 20)
    for name in ("oracle", "create", "fund", "settle", "claim", "refund"):
        assert bounty(name, place, key="sponsor", code=1)["outcome"]["code"] == "wrong-chain"
    assert printed("bounty", "show", place, "--to", "local", code=1)["outcome"]["code"] == "wrong-chain"
