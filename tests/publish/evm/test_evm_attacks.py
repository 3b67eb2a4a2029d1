"""Contracts that take part and mean harm: tokens that lie, and receivers that call back."""

from typing import Any

import pytest

from evm_kit import ETHER, FREE, RECEIPT, AnvilChain, EvmWorld, refused, scored

GOOD, TAKES_FEE, RETURNS_FALSE, LIES, REVERTS, GIVES_MORE, TAKES_MORE = range(7)
TAKES, REFUSES, CLAIMS_AGAIN, SETTLES, BURNS_GAS = range(5)


@pytest.fixture
def bad(world: EvmWorld) -> EvmWorld:
    """A world whose money is a token that misbehaves when told to."""
    world.token = world.chain.deploy("BadToken")
    return world


def behave(world: EvmWorld, manner: int) -> None:
    world.chain.send(world.token.functions.behave(manner))


# Tokens


def test_a_token_as_it_should_be(world: EvmWorld) -> None:
    world.token = world.chain.deploy("GoodToken")
    a = world.agents[0]
    world.open(split=[10_000])
    assert world.chain.balance(world.round.address, world.token) == ETHER
    world.commit(a)
    world.close()
    world.submit([(a, 5600)])
    world.settle()
    assert world.claim(a) == ETHER // 2 - ETHER // 80
    assert world.claim(world.collector) == ETHER // 80
    assert world.claim(world.sponsor) == ETHER // 2
    assert world.chain.balance(world.round.address, world.token) == 0


def test_coin_sent_with_a_token_would_be_lost_and_is_refused(bad: EvmWorld) -> None:
    bad.make()
    with refused("WrongValue", 0, 1):
        bad.chain.send(bad.round.functions.fund(), bad.sponsor, 1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("manner", "error", "values"),
    [
        (TAKES_FEE, "TokenMoved", (ETHER, ETHER - ETHER // 100 - 1)),
        (RETURNS_FALSE, "SafeERC20FailedOperation", ()),
        (LIES, "TokenMoved", (ETHER, 0)),
        (GIVES_MORE, "TokenMoved", (ETHER, ETHER + 1)),
    ],
)
def test_a_deposit_that_is_not_whole_is_none(bad: EvmWorld, manner: int, error: str, values: tuple[int, ...]) -> None:
    bad.make()
    behave(bad, manner)
    with refused(error, *values):
        bad.fund()
    assert bad.round.functions.state().call() == bad.round.functions.held().call() == 0
    behave(bad, GOOD)
    bad.fund()


def test_a_deposit_that_nobody_has_is_none(bad: EvmWorld) -> None:
    bad.make()
    with refused("ERC20InsufficientAllowance"):
        bad.chain.send(bad.round.functions.fund(), bad.sponsor)


@pytest.mark.parametrize(
    ("manner", "error"), [(RETURNS_FALSE, "SafeERC20FailedOperation"), (LIES, "TokenMoved"), (TAKES_MORE, "TokenMoved")]
)
def test_what_the_token_did_not_move_stays_owed(bad: EvmWorld, manner: int, error: str) -> None:
    a = bad.agents[0]
    bad.open(split=[10_000], feeBps=0)
    bad.chain.send(bad.token.functions.mint(bad.round.address, 1))
    bad.commit(a)
    bad.close()
    bad.submit([(a, 7000)])
    bad.settle()
    behave(bad, manner)
    with refused(error):
        bad.claim(a)
    assert bad.owed(a) == bad.round.functions.held().call() == ETHER
    behave(bad, GOOD)
    assert bad.claim(a) == ETHER


def test_a_fee_that_a_token_takes_later_is_the_receivers(bad: EvmWorld) -> None:
    """It was refused when it was put in. Should the token begin with it afterwards, its money is not locked in for that."""
    bad.open()
    behave(bad, TAKES_FEE)
    bad.expire()
    bad.settle()
    assert bad.claim(bad.sponsor) == ETHER - ETHER // 100 - 1
    assert bad.chain.balance(bad.round.address, bad.token) == bad.round.functions.held().call() == 0


def test_a_token_that_reverts_for_good_spoils_only_what_is_paid_in_it(bad: EvmWorld) -> None:
    bad.open()
    behave(bad, REVERTS)
    bad.expire()
    bad.settle()
    with pytest.raises(Exception, match="no"):
        bad.claim(bad.sponsor)
    assert bad.owed(bad.sponsor) == ETHER


def test_who_sends_it_to_the_round_itself_keeps_it(bad: EvmWorld) -> None:
    bad.open()
    bad.expire()
    bad.settle()
    with refused("TokenMoved", ETHER, 0):
        bad.claim(bad.sponsor, to=bad.round.address)
    assert bad.owed(bad.sponsor) == ETHER


@pytest.mark.sampled(2)
@pytest.mark.parametrize("called", ["fund", "settle", "claim"])
@pytest.mark.parametrize("during", ["fund", "claim"])
def test_a_token_that_calls_back_gets_nowhere(bad: EvmWorld, called: str, during: str) -> None:
    """The token calls the round in the middle of a transfer; it checks itself that the call fails."""
    bad.make(split=[10_000], feeBps=0)

    def arm() -> None:
        arguments = [bad.agents[5]] if called == "claim" else []
        data = bad.round.encode_abi(called, arguments)
        bad.chain.send(bad.token.functions.callBack(bad.round.address, data))

    if during == "fund":
        arm()
    bad.fund()
    bad.expire()
    bad.settle()
    if during == "claim":
        arm()
    assert bad.claim(bad.sponsor) == ETHER
    assert bad.token.functions.called().call()
    assert bad.chain.balance(bad.round.address, bad.token) == 0


# Receivers


@pytest.fixture
def contract(world: EvmWorld) -> Any:
    """An agent that is a contract, and has won."""
    return world.chain.deploy("AgentContract")


def act(world: EvmWorld, agent: Any, function: str, *arguments: Any) -> Any:
    return world.chain.send(agent.functions.act(world.round.address, world.round.encode_abi(function, list(arguments))))


def won(world: EvmWorld, agent: Any, **terms: Any) -> None:
    world.open(**{"split": [6000, 4000], "feeBps": 0} | terms)
    act(world, agent, "commit", b"\1" * 32)
    world.commit(world.agents[0])
    world.close()
    rows = scored([(agent.address, 9000), (world.agents[0], 8000)])
    world.chain.send(world.oracle.functions.submit(world.round.address, RECEIPT, rows), world.scorer)


@pytest.mark.parametrize("manner", [CLAIMS_AGAIN, SETTLES])
def test_a_receiver_that_calls_back_gets_what_is_owed_and_no_more(world: EvmWorld, contract: Any, manner: int) -> None:
    won(world, contract)
    world.settle()
    world.chain.send(contract.functions.behave(manner, world.round.address))
    act(world, contract, "claim", contract.address)
    assert contract.functions.tries().call() > 0
    assert contract.functions.successes().call() == 0
    assert world.chain.balance(contract.address) == ETHER * 6 // 10
    assert world.claim(world.agents[0]) == ETHER * 4 // 10


@pytest.mark.parametrize("manner", [REFUSES, BURNS_GAS])
def test_a_receiver_that_takes_nothing_holds_nobody_up(world: EvmWorld, contract: Any, manner: int) -> None:
    """Nor does it lose anything: it names another account."""
    won(world, contract)
    world.chain.send(contract.functions.behave(manner, world.round.address))
    world.settle()
    assert world.claim(world.agents[0]) == ETHER * 4 // 10
    with pytest.raises(Exception, match=r"0x|refused|[Oo]ut of gas|revert"):
        world.chain.send(
            contract.functions.act(world.round.address, world.round.encode_abi("claim", [contract.address])), gas=1_000_000
        )
    assert world.owed(contract.address) == ETHER * 6 // 10
    act(world, contract, "claim", world.agents[7])
    assert world.owed(contract.address) == 0


def test_a_sponsor_that_takes_nothing_holds_nobody_up(world: EvmWorld, contract: Any) -> None:
    world.chain.send(contract.functions.behave(REFUSES, contract.address))
    world.open(sponsor=contract.address, split=[6000, 4000], feeBps=0)
    world.commit(world.agents[0])
    world.close()
    world.submit([(world.agents[0], 7000)])
    world.settle()
    assert world.claim(world.agents[0]) == ETHER * 6 // 10
    act(world, contract, "claim", world.sponsor)


def test_coin_that_is_forced_in_changes_nothing(world: EvmWorld) -> None:
    world.open()
    world.chain.ask("anvil_setBalance", world.round.address, hex(5 * ETHER))
    world.expire()
    world.settle()
    assert world.claim(world.sponsor) == ETHER
    assert world.round.functions.held().call() == 0


# Other people's calls


def test_nobody_else_moves_money_or_changes_terms(world: EvmWorld, chain: AnvilChain) -> None:
    """Every function that changes something, called by a stranger at every stage, leaves what each is owed as it was."""
    a, stranger = world.agents[0], chain.accounts[20]
    world.open(split=[10_000], feeBps=100)
    changing = [
        entry
        for entry in world.round.abi
        if entry["type"] == "function" and entry["stateMutability"] in ("nonpayable", "payable")
    ]
    assert sorted(entry["name"] for entry in changing) == ["claim", "commit", "fund", "settle"]
    world.commit(a)
    world.close()
    world.submit([(a, 7000)])
    world.settle()
    owed = {account: world.owed(account) for account in (a, world.sponsor, world.collector)}
    for name, arguments in (("claim", [stranger]), ("commit", [b"\2" * 32]), ("fund", []), ("settle", [])):
        with pytest.raises(Exception, match="0x"):
            chain.send(world.round.functions[name](*arguments), stranger)
    assert {account: world.owed(account) for account in owed} == owed


def test_the_oracle_has_nothing_that_anybody_could_change(world: EvmWorld) -> None:
    """No admin, no role, no upgrade: what changes something there is submitting one's own scores, and taking back a signature."""
    changing = [
        entry["name"] for entry in world.oracle.abi if entry["type"] == "function" and entry["stateMutability"] == "nonpayable"
    ]
    assert sorted(changing) == ["revoke", "submit", "submitSigned"]


@pytest.mark.full
def test_who_settles_gives_it_too_little_gas_in_vain(world: EvmWorld) -> None:
    """There is no way in which scores that are there are not seen: it is settled by them, or not at all."""
    a = world.agents[0]
    world.open(split=[10_000], feeBps=0)
    world.commit(a)
    world.close()
    world.submit([(a, 7000)])
    world.expire()
    for gas in range(25_000, 200_000, 5_000):
        begun = world.chain.ask("evm_snapshot")
        hashed = world.round.functions.settle().transact({"from": world.sponsor, "gas": gas, **FREE})
        receipt = world.chain.w3.eth.wait_for_transaction_receipt(hashed)
        assert (receipt["status"], world.owed(a), world.owed(world.sponsor)) in ((0, 0, 0), (1, ETHER, 0))
        world.chain.ask("evm_revert", begun)
    assert receipt["status"] == 1
