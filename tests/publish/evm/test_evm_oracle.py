"""The scoring oracle on a real node: who may submit what, once, and signatures that are good for one chain and one contract."""

from pathlib import Path
from typing import Any

import pytest
from eth_account import Account
from eth_account.messages import encode_typed_data
from web3 import Web3

import evm_kit
from assay.publish.evm.contracts import ROUND
from evm_kit import CHAIN_ID, HOUR, NOBODY, RECEIPT, AnvilChain, EvmWorld, events, refused, scored

KEY = Account.from_key(b"\x5c" * 32)
"""A scorer who has no coin: somebody else pays the gas."""


@pytest.fixture
def ready(world: EvmWorld) -> EvmWorld:
    """A round with two agents, where scores are taken."""
    world.open()
    world.commit(*world.agents[:2])
    world.close()
    return world


# Who may


def test_a_round_takes_the_scores_of_its_scorer_alone(ready: EvmWorld) -> None:
    for stranger in (ready.admin, ready.sponsor, ready.agents[0]):
        with refused("NotTheScorer", stranger):
            ready.submit([(ready.agents[0], 1)], by=stranger)
    ready.submit([(ready.agents[0], 9000)])


def test_what_another_scorer_said_of_a_round_is_not_read(chain: AnvilChain, world: EvmWorld) -> None:
    """A round that lets anybody submit has the scores of each kept apart; it is asked for whose they are to be."""
    loose = chain.deploy("LooseRound")
    for number, by in enumerate((world.scorer, world.sponsor)):
        rows = [(world.agents[0], 100 + number, bytes(32))]
        chain.send(world.oracle.functions.submit(loose.address, RECEIPT, rows), by)
    for number, by in enumerate((world.scorer, world.sponsor)):
        assert world.oracle.functions.scoresOf(loose.address, by).call()[1][0][1] == 100 + number
    assert world.oracle.functions.scoresOf(loose.address, world.admin).call() == [bytes(32), []]


# What


def test_scores_are_kept_as_they_came(ready: EvmWorld) -> None:
    a, b = ready.agents[:2]
    proof = b"\xaa" * 32
    rows = [(a, 9000, proof), (b, 0, bytes(32))]
    receipt = ready.chain.send(ready.oracle.functions.submit(ready.round.address, RECEIPT, rows), ready.scorer)
    assert ready.scores() == [RECEIPT, rows]
    assert ready.oracle.functions.scoreOf(ready.round.address, ready.scorer, a).call() == [9000, proof, RECEIPT]
    assert ready.oracle.functions.scoreOf(ready.round.address, ready.scorer, b).call() == [0, bytes(32), RECEIPT]
    for nobody in (ready.agents[2], NOBODY, "0x" + "ff" * 20):
        with refused("NoScore", ready.round.address, nobody):
            ready.oracle.functions.scoreOf(ready.round.address, ready.scorer, Web3.to_checksum_address(nobody)).call()
    # The log alone says the same.
    (head,) = events(ready.oracle, "ScoresSubmitted", receipt)
    assert head == {"round": ready.round.address, "receipt": RECEIPT, "scorer": ready.scorer, "count": 2}
    logged = events(ready.oracle, "Scored", receipt)
    assert [(event["agent"], event["bps"], event["attestation"]) for event in logged] == rows
    assert {event["round"] for event in logged} == {ready.round.address}


def test_one_submission_a_round(ready: EvmWorld) -> None:
    ready.submit([(ready.agents[0], 1)])
    for again in ([(ready.agents[0], 1)], [(ready.agents[1], 1)], []):
        with refused("AlreadySubmitted", ready.round.address):
            ready.submit(again)


def test_what_is_wrong_with_a_batch_is_said_by_name(ready: EvmWorld) -> None:
    a, b, stranger = ready.agents[:3]
    submit, at = ready.oracle.functions.submit, ready.round.address

    def send(rows: list[Any], receipt: bytes = RECEIPT) -> None:
        ready.chain.send(submit(at, receipt, rows), ready.scorer)

    none = bytes(32)
    with refused("NoReceipt"):
        send([(a, 1, none)], none)
    with refused("ScoreTooHigh", a, 10_001):
        send([(a, 10_001, none)])
    with refused("DuplicateAgent", a):
        send([(a, 1, none), (a, 1, none)])
    with refused("NotAscending", a):
        send([(b, 1, none), (a, 1, none)])
    with refused("UnknownAgent", at, stranger):
        send([(stranger, 1, none)])
    with refused("UnknownAgent", at, NOBODY):
        send([(NOBODY, 1, none)])
    with refused("TooManyAgents", 201):
        send([(a, 1, none)] * 201)
    assert ready.scores() == [none, []]
    send([(a, 10_000, none), (b, 0, none)])


def test_scores_come_between_the_deadlines(world: EvmWorld) -> None:
    a = world.agents[0]
    world.make()
    with refused("NotOpen"):
        world.submit([])
    world.fund()
    world.commit(a)
    with refused("ScoresTooEarly", world.terms["commitUntil"]):
        world.submit([(a, 1)])
    world.chain.ask("evm_setNextBlockTimestamp", world.terms["commitUntil"])
    world.chain.ask("evm_mine")
    with refused("ScoresTooEarly"):
        world.submission([(a, 1)]).call({"from": world.scorer}, block_identifier="latest")
    world.expire()
    with refused("ScoresTooLate", world.terms["scoreUntil"]):
        world.submit([(a, 1)])
    world.settle()
    with refused("NotOpen"):
        world.submit([(a, 1)])


def test_the_last_second_is_in_time(ready: EvmWorld) -> None:
    ready.chain.ask("evm_setNextBlockTimestamp", ready.terms["scoreUntil"])
    ready.submit([(ready.agents[0], 1)])
    assert len(ready.scores()[1]) == 1


def test_a_round_that_is_no_contract_takes_no_scores(ready: EvmWorld) -> None:
    with pytest.raises(Exception, match="revert"):
        ready.chain.send(ready.oracle.functions.submit(ready.agents[0], RECEIPT, []), ready.scorer)


# Signatures


def signed(world: EvmWorld, rows: list[Any], nonce: int = 0, deadline: int | None = None, **changes: Any) -> tuple[Any, ...]:
    """The arguments of submitSigned, with KEY's signature over what EIP-712 makes of them, or of `changes`."""
    deadline = world.terms["scoreUntil"] if deadline is None else deadline
    message: dict[str, Any] = {
        "round": world.round.address,
        "receipt": RECEIPT,
        "scores": [{"agent": agent, "bps": bps, "attestation": proof} for agent, bps, proof in rows],
        "nonce": nonce,
        "deadline": deadline,
    } | changes.pop("message", {})
    score = [("agent", "address"), ("bps", "uint16"), ("attestation", "bytes32")]
    scores = [("round", "address"), ("receipt", "bytes32"), ("scores", "Score[]"), ("nonce", "uint64"), ("deadline", "uint256")]
    domain = {
        "name": "Assay ScoringOracle",
        "version": "2",
        "chainId": CHAIN_ID,
        "verifyingContract": world.oracle.address,
    } | changes
    types = {name: [{"name": field, "type": kind} for field, kind in of] for name, of in (("Score", score), ("Scores", scores))}
    signature = KEY.sign_message(encode_typed_data(domain, types, message)).signature
    return KEY.address, world.round.address, RECEIPT, rows, nonce, deadline, bytes(signature)


@pytest.fixture
def keyed(world: EvmWorld) -> EvmWorld:
    """Where scores are taken, and KEY's count."""
    world.open(scorer=KEY.address)
    world.commit(*world.agents[:2])
    world.close()
    return world


def test_anybody_may_bring_what_a_scorer_signed(keyed: EvmWorld) -> None:
    rows = scored([(keyed.agents[0], 9000), (keyed.agents[1], 10)])
    receipt = keyed.chain.send(keyed.oracle.functions.submitSigned(*signed(keyed, rows)), keyed.agents[9])
    assert events(keyed.oracle, "ScoresSubmitted", receipt)[0]["scorer"] == KEY.address
    assert keyed.scores() == [RECEIPT, rows]
    assert keyed.oracle.functions.nonceOf(KEY.address, keyed.round.address).call() == 1


def test_no_scores_at_all_can_be_signed_too(keyed: EvmWorld) -> None:
    keyed.chain.send(keyed.oracle.functions.submitSigned(*signed(keyed, [])))
    assert keyed.scores() == [RECEIPT, []]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "changed",
    [
        {"chainId": CHAIN_ID + 1},
        {"verifyingContract": "0x" + "11" * 20},
        {"name": "Another"},
        {"version": "1"},
        {"message": {"round": "0x" + "11" * 20}},
        {"message": {"receipt": b"\x11" * 32}},
        {"message": {"scores": []}},
        {"message": {"nonce": 1}},
        {"message": {"deadline": 1}},
    ],
)
def test_a_signature_is_good_for_what_it_is_of(keyed: EvmWorld, changed: dict[str, Any]) -> None:
    rows = scored([(keyed.agents[0], 9000)])
    with refused("BadSignature", KEY.address):
        keyed.chain.send(keyed.oracle.functions.submitSigned(*signed(keyed, rows, **changed)))


def test_a_relayer_can_change_nothing(keyed: EvmWorld) -> None:
    rows = scored([(keyed.agents[0], 9000), (keyed.agents[1], 8000)])
    scorer, at, receipt, _, nonce, deadline, signature = signed(keyed, rows)
    submit = keyed.oracle.functions.submitSigned
    better = scored([(keyed.agents[0], 10_000), (keyed.agents[1], 8000)])
    other = (signature[:-1] + bytes([signature[-1] ^ 1]), signature[:-1], b"", bytes(65))
    for wrong in (
        (scorer, at, receipt, better, nonce, deadline, signature),
        (scorer, at, receipt, rows[:1], nonce, deadline, signature),
        (scorer, at, b"\1" * 32, rows, nonce, deadline, signature),
        (scorer, at, receipt, rows, nonce, deadline + 1, signature),
        (keyed.scorer, at, receipt, rows, nonce, deadline, signature),
        *((scorer, at, receipt, rows, nonce, deadline, forgery) for forgery in other),
    ):
        with refused("BadSignature"):
            keyed.chain.send(submit(*wrong))
    with refused("InvalidAccountNonce", KEY.address, int(at, 16) << 64):
        keyed.chain.send(submit(scorer, at, receipt, rows, 1, deadline, signature))


def test_a_signature_has_its_time_and_its_maker_is_the_rounds(world: EvmWorld) -> None:
    world.open()
    world.commit(world.agents[0])
    world.close()
    rows = scored([(world.agents[0], 9000)])
    with refused("NotTheScorer", KEY.address):
        world.chain.send(world.oracle.functions.submitSigned(*signed(world, rows)))
    late = world.chain.now + 100
    arguments = signed(world, rows, deadline=late)
    world.chain.at(late + 1)
    with refused("SignatureExpired", late):
        world.chain.send(world.oracle.functions.submitSigned(*arguments))


def test_what_was_signed_can_be_made_worthless(keyed: EvmWorld) -> None:
    """A signature that was taken back does not count, and one for another round is as good as before."""
    rows = scored([(keyed.agents[0], 9000)])
    arguments = signed(keyed, rows)
    keyed.chain.w3.eth.send_transaction({"from": keyed.admin, "to": KEY.address, "value": 10**18, **evm_kit.FREE})
    revoke = keyed.oracle.functions.revoke(keyed.round.address).build_transaction(
        {"from": KEY.address, "nonce": 0, "chainId": CHAIN_ID, "gas": 100_000, **evm_kit.FREE}
    )
    keyed.chain.w3.eth.send_raw_transaction(KEY.sign_transaction(revoke).raw_transaction)
    with refused("InvalidAccountNonce"):
        keyed.chain.send(keyed.oracle.functions.submitSigned(*arguments))
    keyed.chain.send(keyed.oracle.functions.submitSigned(*signed(keyed, rows, nonce=1)))


def test_a_signature_is_spent_with_its_round(keyed: EvmWorld) -> None:
    rows = scored([(keyed.agents[0], 9000)])
    arguments = signed(keyed, rows, deadline=keyed.chain.now + 100 * HOUR)
    keyed.chain.send(keyed.oracle.functions.submitSigned(*arguments))
    with refused("InvalidAccountNonce"):
        keyed.chain.send(keyed.oracle.functions.submitSigned(*arguments))
    first = keyed.round
    keyed.open(scorer=KEY.address)
    keyed.commit(keyed.agents[0])
    keyed.close()
    assert keyed.round.address != first.address
    with refused("BadSignature"):
        keyed.chain.send(keyed.oracle.functions.submitSigned(arguments[0], keyed.round.address, *arguments[2:]))


def test_a_signature_of_one_chain_is_worth_nothing_on_another(keyed: EvmWorld, tmp_path: Path) -> None:
    """The same contracts at the same addresses: only the chain is another."""
    rows = scored([(keyed.agents[0], 9000)])
    arguments = signed(keyed, rows)
    with evm_kit.anvil(tmp_path, *evm_kit.OPTIONS, chain_id=CHAIN_ID + 1) as node:
        other = evm_kit.world(AnvilChain(node.url))
        other.open(**{name: keyed.terms[name] for name in ("scorer", "commitUntil", "scoreUntil")})
        other.commit(*other.agents[:2])
        other.close()
        assert (other.oracle.address, other.round.address) == (keyed.oracle.address, keyed.round.address)
        with refused("BadSignature", KEY.address):
            other.chain.send(other.oracle.functions.submitSigned(*arguments))
        mine, theirs = (world.oracle.functions.domainSeparator().call() for world in (keyed, other))
        assert mine != theirs
    keyed.chain.send(keyed.oracle.functions.submitSigned(*arguments))


def test_a_contract_can_be_the_scorer(world: EvmWorld) -> None:
    """A wallet of several keys, say: it says itself what it has signed (ERC-1271)."""
    ready, wallet = world, world.chain.deploy("ScorerContract")
    ready.open(scorer=wallet.address)
    ready.commit(*ready.agents[:2])
    ready.close()
    rows, deadline = scored([(ready.agents[0], 9000)]), ready.chain.now + HOUR
    submit = ready.oracle.functions.submitSigned(wallet.address, ready.round.address, RECEIPT, rows, 0, deadline, b"")
    with refused("BadSignature", wallet.address):
        ready.chain.send(submit)
    digest = ready.oracle.functions.digestOf(ready.round.address, RECEIPT, rows, 0, deadline).call()
    ready.chain.send(wallet.functions.accept(digest))
    ready.chain.send(submit)


# Size


@pytest.mark.full
def test_a_full_round_fits_into_transactions_as_chains_allow_them(chain: AnvilChain) -> None:
    """200 agents, 32 places: each step is well below 2²⁴ gas, the most of one transaction (EIP-7825)."""
    world = evm_kit.world(chain)
    world.open(split=[312] * 31 + [10_000 - 31 * 312], tiers=[(10_000 - i, 5_000) for i in range(16)])
    agents = [Web3.to_checksum_address(f"0x{number:040x}") for number in range(1, 201)]
    for agent in agents:
        chain.ask("anvil_impersonateAccount", agent)
    chain.ask("evm_setAutomine", False)
    for agent in agents:
        world.round.functions.commit(b"\1" * 32).transact({"from": agent, "gas": 100_000, **evm_kit.FREE})
    chain.ask("evm_mine")
    chain.ask("evm_setAutomine", True)
    for agent in agents:
        chain.ask("anvil_stopImpersonatingAccount", agent)
    assert world.round.functions.commitments().call() == 200
    world.close()
    # Ascending scores are the worst: each is put before all the others.
    rows = [(agent, 100 + number * 40, b"\xff" * 32) for number, agent in enumerate(agents)]
    submitted = chain.send(world.oracle.functions.submit(world.round.address, b"\xff" * 32, rows), world.scorer)
    settled = world.settle()
    assert len(events(world.round, "Placed", settled)) == 32
    assert submitted["gasUsed"] < 2**24 * 3 // 4
    assert settled["gasUsed"] < 2**24 // 2


def test_rounds_do_not_see_each_others_scores(ready: EvmWorld) -> None:
    first, a = ready.round, ready.agents[0]
    ready.submit([(a, 9000)])
    second = ready.open()
    assert ready.round.address == second.address
    assert ready.scores() == [bytes(32), []]
    first = ready.chain.contract(ROUND, first.address)
    ready.chain.send(first.functions.settle())
    ready.commit(a)
    ready.close()
    with refused("NotYet"):
        ready.settle()
