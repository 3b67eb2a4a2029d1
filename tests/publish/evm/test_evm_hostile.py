"""A sponsor that means harm: contracts of its own in every place of publish.toml, and every command that somebody trusts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from web3 import Web3

from assay.publish.evm.contracts import DEPLOYER, ROUND, artifact, oracle_address
from cli_kit import run
from evm_commands_kit import P1, P2, account, bounty, judged, opened, place, printed, target, time
from evm_kit import ETHER, FREE, HOUR, AnvilChain, refused
from publish_kit import with_keys

__all__ = ["place", "with_keys"]  # fixtures

pytestmark = pytest.mark.usefixtures("with_keys")
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("bounty", "fund"),
    ("bounty", "commit", "sha256:" + "33" * 32),
    ("bounty", "settle"),
    ("bounty", "claim"),
    ("bounty", "refund"),
    ("publish",),
)
STRICT = {"fund", "commit", "publish"}
"""Those that put something in. Who takes out what is his is told of other terms, and not held up by them."""


@pytest.fixture
def honest(place: Path, chain: AnvilChain) -> Any:
    """The round that the sponsor should have named; its epoch is settled."""
    opened(place, chain)
    contract = chain.contract(ROUND, printed("bounty", "show", place, "--to", "local")["round"])
    judged(place, chain, {P1: 9000, P2: 6000})
    return contract


def codes(place: Path) -> dict[str, str | None]:
    """What each command comes to, nothing being sent: the code it refuses with; None where it does not."""
    outcomes: dict[str, str | None] = {}
    for command, *words in COMMANDS:
        name = words[0] if command == "bounty" else command
        key = [] if command == "publish" else ["--as", "one"]
        outcomes[name] = printed(command, *words[:1], place, *words[1:], "--to", "local", *key, code=None)["outcome"].get("code")
    shown = run("bounty", "show", place, "--to", "local", "--json", code=None)
    document = json.loads(shown.stdout)
    outcomes["show"] = document["outcome"]["code"] if "outcome" in document else "differs" if shown.exit_code else None
    return outcomes


def refusing(place: Path, code: str) -> None:
    """Every command refuses with this code."""
    assert set(codes(place).values()) == {code}


def differing(place: Path, *fields: str) -> None:
    """The round is one of ours, and another than the files say: these fields are named, and nothing is put into it."""
    outcomes = codes(place)
    assert {name for name, code in outcomes.items() if code == "wrong-terms"} == STRICT
    assert outcomes["show"] == "differs"
    document = printed("bounty", "show", place, "--to", "local", code=1)
    assert [row["field"] for row in document["differences"]] == list(fields)
    done = run("bounty", "settle", place, "--to", "local", "--as", "one", code=None)
    assert all(f"the round has {field} " in " ".join(done.stderr.split()) for field in fields)


def raw(chain: AnvilChain, code: bytes, storage: dict[int, int] | None = None) -> str:
    """A contract with this code and storage, as anybody can make one: what made it is another program than what is there."""
    push, store = b"\x7f", b"\x55"
    pairs = [(value.to_bytes(32, "big"), slot.to_bytes(32, "big")) for slot, value in (storage or {}).items()]
    first = b"".join(push + value + push + slot + store for value, slot in pairs)
    # PUSH2 size, DUP1, PUSH2 where it begins, PUSH0, CODECOPY, PUSH0, RETURN
    tail = b"\x61" + len(code).to_bytes(2, "big") + b"\x80\x61" + (len(first) + 11).to_bytes(2, "big") + b"\x5f\x39\x5f\xf3"
    hashed = chain.w3.eth.send_transaction({"from": chain.accounts[1], "data": first + tail + code, **FREE})
    return str(chain.w3.eth.wait_for_transaction_receipt(hashed)["contractAddress"])


def forged(chain: AnvilChain, real: Any, values: dict[str, str], storage: dict[int, int] | None = None) -> str:
    """The round that ships, its code as it is there and its storage, with other addresses put into the code."""
    code = bytes(chain.w3.eth.get_code(real.address))
    for old, new in values.items():
        assert bytes.fromhex(old[2:]) in code
        code = code.replace(bytes.fromhex(old[2:]), bytes.fromhex(new[2:]))
    arrays = [int.from_bytes(Web3.keccak(number.to_bytes(32, "big")), "big") for number in range(10)]
    slots = [*range(10), *(start + more for start in arrays for more in range(4))]
    there = {slot: int.from_bytes(chain.w3.eth.get_storage_at(real.address, slot), "big") for slot in slots}
    return raw(chain, code, {slot: value for slot, value in there.items() if value} | (storage or {}))


def genuine(place: Path, chain: AnvilChain, *, bounty_toml: tuple[str, str] = ("", ""), **fields: Any) -> None:
    """publish.toml names a round that ours made, with other terms than the files say."""
    text = (place / "bounty.toml").read_text()
    (place / "bounty.toml").write_text(text.replace(*bounty_toml))
    target(place, chain, **fields)
    address = bounty("create", place, key="sponsor")["round"]
    (place / "bounty.toml").write_text(text)
    target(place, chain, round=address)


# Contracts of its own


def test_the_attack_from_end_to_end(place: Path, chain: AnvilChain, honest: Any) -> None:
    """A shipped round with an oracle of the sponsor's: every value that it tells is what was promised, and its code is ours."""
    sponsor, victim, puppet = chain.accounts[1], chain.accounts[7], chain.accounts[8]
    evil = chain.deploy("PuppetOracle", puppet)
    forgery = forged(chain, honest, {oracle_address(): evil.address})
    target(place, chain, round=forgery)
    code = bytes(chain.w3.eth.get_code(forgery))
    assert artifact(ROUND).is_at(code), "the code alone does not tell"
    there = chain.contract(ROUND, forgery)
    for name in ("bounty", "sponsor", "deposit", "scorer", "commitUntil", "scoreUntil", "state", "held", "tiers", "split"):
        assert there.functions[name]().call() == honest.functions[name]().call(), name
    refusing(place, "wrong-contract")
    shown = run("bounty", "show", place, "--to", "local", code=1).stdout
    assert "was not created by it with the terms that it gives" in " ".join(shown.split())
    assert "All terms are those of" not in shown

    # Were somebody to commit there all the same, it cannot be settled before that is over, whatever the oracle says.
    chain.ask("anvil_setBalance", forgery, hex(ETHER))
    for committer in (victim, puppet):
        chain.send(there.functions.commit(b"\1" * 32), committer)
    with refused("CommitmentsOpen"):
        chain.send(there.functions.settle(), sponsor)
    chain.at(there.functions.commitUntil().call() + 1)
    chain.send(there.functions.settle(), sponsor)
    assert there.functions.owed(victim).call() == 0 < there.functions.owed(puppet).call(), "it is a real attack"


def test_an_oracle_of_its_own_is_named(place: Path, chain: AnvilChain, honest: Any) -> None:
    target(place, chain, oracle=chain.deploy("PuppetOracle", account(8)).address, round=honest.address)
    refusing(place, "wrong-oracle")


@pytest.mark.full
@pytest.mark.parametrize("change", ["storage", "copy", "forwarder", "nothing", "oracle"])
def test_a_round_of_its_own(place: Path, chain: AnvilChain, honest: Any, change: str) -> None:
    making: dict[str, Callable[[], str]] = {
        # Whatever is owed, it was there from the beginning.
        "storage": lambda: forged(chain, honest, {}, {6: 10**30}),
        "copy": lambda: forged(chain, honest, {}),
        "forwarder": lambda: chain.deploy("Forwarder", honest.address).address,
        "nothing": lambda: "0x" + "77" * 20,
        "oracle": oracle_address,
    }
    target(place, chain, round=making[change]())
    refusing(place, "wrong-contract")


def test_a_chain_where_another_program_makes_contracts(place: Path, chain: AnvilChain, honest: Any) -> None:
    """Addresses prove what is there by what the deployer does; one that does something else proves nothing."""
    target(place, chain, round=honest.address)
    chain.ask("anvil_setCode", DEPLOYER, "0x00")
    refusing(place, "no-deployer")
    for command in ("oracle", "create"):
        assert bounty(command, place, key="sponsor", code=1)["outcome"]["code"] == "no-deployer"


# Terms of its own


@pytest.mark.full
def test_another_scorer_than_publish_toml_says(place: Path, chain: AnvilChain, honest: Any) -> None:
    genuine(place, chain, only_scorer=account(1))
    differing(place, "scorer")


@pytest.mark.full
def test_another_sponsor_and_another_fee(place: Path, chain: AnvilChain, honest: Any) -> None:
    genuine(place, chain, sponsor=account(9), fee_recipient=account(9))
    target(place, chain, round=printed("bounty", "show", place, "--to", "local", code=1)["round"], sponsor=account(1))
    differing(place, "sponsor", "fee_recipient")


@pytest.mark.full
def test_another_deadline_and_another_split(place: Path, chain: AnvilChain, honest: Any) -> None:
    until = honest.functions.commitUntil().call()
    genuine(place, chain, bounty_toml=(time(until), time(until + HOUR // 2)))
    differing(place, "bounty", "commit_until")


@pytest.mark.full
def test_another_token(place: Path, chain: AnvilChain, honest: Any) -> None:
    genuine(place, chain, token=chain.deploy("BadToken").address)
    differing(place, "token")


def test_without_a_bounty_toml_nothing_is_said_to_be_as_it_has_it(place: Path, chain: AnvilChain, honest: Any) -> None:
    """A folder from which the sponsor left it out."""
    assert "All terms are those of bounty.toml and publish.toml" in run("bounty", "show", place, "--to", "local").stdout
    target(place, chain, round=honest.address)
    (place / "bounty.toml").unlink()
    shown = " ".join(run("bounty", "show", place, "--to", "local").stdout.split())
    assert "have it" not in shown
    assert "There is no bounty.toml here, so only the terms that publish.toml names were compared." in shown


@pytest.mark.full
def test_what_no_contract_can_tell_is_said_in_a_sentence(place: Path, chain: AnvilChain, honest: Any) -> None:
    """Where the files themselves name what the sponsor chose, nothing differs; whose it is stands there."""
    token = chain.deploy("BadToken").address
    genuine(place, chain, only_scorer=account(1), token=token)
    address = printed("bounty", "show", place, "--to", "local", code=1)["round"]
    target(place, chain, round=address, only_scorer=account(1), token=token)
    document = printed("bounty", "show", place, "--to", "local")
    assert document["differences"] == []
    assert document["check_elsewhere"] == (
        f"Check elsewhere that {account(1)} is the scorer that the sponsor promised (its scores are final, and nothing"
        f" attests where it judges), that the token {token} is worth something, and that your node shows you the real chain."
    )
    shown = " ".join(run("bounty", "show", place, "--to", "local").stdout.split())
    assert document["check_elsewhere"] in shown
    text = (place / "bounty.toml").read_text()
    (place / "bounty.toml").write_text(text.replace("[[checks]]", f'[enclave]\ncompose_hash = "{"ab" * 32}"\n[[checks]]', 1))
    sealed = printed("bounty", "show", place, "--to", "local", code=1)["check_elsewhere"]
    assert "its enclave is the one that bounty.toml pins (`assay enclave verify`)" in sealed


def test_a_token_that_refuses_to_say_what_it_allows(place: Path, chain: AnvilChain) -> None:
    """A token of the sponsor's is asked before anything is sent; whatever it answers is an answer of ours."""
    token = chain.deploy("BadToken")
    target(place, chain, token=token.address)
    bounty("oracle", place)
    bounty("create", place, key="sponsor")
    for code in ("0x5f5ffd", "0x5b5f56", "0x00"):  # it reverts; it burns all gas; it answers nothing
        chain.ask("anvil_setCode", token.address, code)
        document = bounty("fund", place, key="sponsor", code=None)
        assert document["outcome"]["state"] in ("refused", "unknown", "planned", "confirmed"), document
